"""Record locks between processes: POSIX (fcntl) and open-file-description (OFD) locks."""

import errno
import fcntl
import os
import signal
import struct
import time

from harness import QUICK, Child, case, read_file, refused, soon, write_file

READ, WRITE, NONE = fcntl.F_RDLCK, fcntl.F_WRLCK, fcntl.F_UNLCK
OFD_GET, OFD_SET, OFD_WAIT = 36, 37, 38
# struct flock with 64-bit offsets: type, whence, start, length, process.
LAYOUT = "hhqqi4x"


def lock(file, kind, start=0, length=0, command=fcntl.F_SETLK):
    fcntl.fcntl(file, command, struct.pack(LAYOUT, kind, os.SEEK_SET, start, length, 0))


def holder(file, kind, start=0, length=0, command=fcntl.F_GETLK):
    """(kind, start, length, process) of the first lock in the way, or `None`."""
    answer = fcntl.fcntl(file, command, struct.pack(LAYOUT, kind, os.SEEK_SET, start, length, 0))
    kind, _, start, length, process = struct.unpack(LAYOUT, answer)
    return None if kind == NONE else (kind, start, length, process)


def opened():
    return os.open("f", os.O_CREAT | os.O_RDWR)


def elsewhere(function):
    """The function in another process, on a descriptor of its own."""
    return Child(lambda: function(opened())).result()


def busy(file, *arguments):
    refused((errno.EAGAIN, errno.EACCES), lock, file, *arguments)


@case
def ranges_exclude_other_processes():
    file = opened()
    lock(file, WRITE, 10, 10)
    lock(file, READ, 30, 10)
    elsewhere(lambda other: busy(other, WRITE, 19, 1))
    elsewhere(lambda other: busy(other, READ, 0, 0))
    elsewhere(lambda other: busy(other, WRITE, 30, 1))
    elsewhere(lambda other: lock(other, READ, 30, 10))
    elsewhere(lambda other: lock(other, WRITE, 20, 10))
    elsewhere(lambda other: lock(other, WRITE, 0, 10))
    assert elsewhere(lambda other: holder(other, WRITE, 0, 0)) == (WRITE, 10, 10, os.getpid())
    assert elsewhere(lambda other: holder(other, READ, 35, 1)) is None


@case
def unlocking_splits_and_joining_merges():
    file = opened()
    lock(file, WRITE, 0, 100)
    lock(file, NONE, 40, 20)
    elsewhere(lambda other: lock(other, WRITE, 40, 20))
    elsewhere(lambda other: busy(other, WRITE, 39, 1))
    assert elsewhere(lambda other: holder(other, WRITE, 41, 0)) == (WRITE, 60, 40, os.getpid())
    lock(file, READ, 10, 10)
    elsewhere(lambda other: lock(other, READ, 12, 3))
    assert elsewhere(lambda other: holder(other, WRITE, 15, 1))[:3] == (READ, 10, 10)
    lock(file, WRITE, 0, 100)
    assert elsewhere(lambda other: holder(other, WRITE, 50, 1))[:3] == (WRITE, 0, 100)


@case
def ranges_to_the_end_of_everything():
    file = opened()
    lock(file, WRITE, 1000, 0)
    elsewhere(lambda other: busy(other, READ, (1 << 63) - 1, 1))
    assert elsewhere(lambda other: holder(other, READ, 5000, 1))[:3] == (WRITE, 1000, 0)
    lock(file, NONE, 0, 0)
    lock(file, WRITE, 100, -50)
    assert elsewhere(lambda other: holder(other, READ, 0, 0))[:3] == (WRITE, 50, 50)
    refused(errno.EINVAL, lock, file, WRITE, 10, -20)
    refused(errno.EINVAL, lock, file, WRITE, -1, 1)


@case
def locks_go_with_any_close_and_with_the_process():
    file = opened()
    lock(file, WRITE)
    os.close(opened())
    elsewhere(lambda other: lock(other, WRITE))
    lock(file, WRITE)
    child = Child(lambda: (refused((errno.EAGAIN, errno.EACCES), lock, file, WRITE), time.sleep(0.1)))
    child.result()
    elsewhere(lambda other: busy(other, WRITE))
    lock(file, NONE)
    sleeper = Child(lambda: (lock(opened(), WRITE), write_file("held"), time.sleep(60)))
    soon(lambda: os.path.exists("held"))
    busy(file, WRITE)
    sleeper.kill()
    soon(lambda: not sleeper.running())
    lock(file, WRITE)


@case
def a_waiter_gets_the_lock_on_release():
    file = opened()
    lock(file, WRITE, 0, 10)
    waiter = Child(lambda: lock(opened(), WRITE, 5, 10, fcntl.F_SETLKW))
    time.sleep(0.2)
    assert waiter.running(), "did not wait"
    lock(file, NONE, 0, 5)
    time.sleep(0.1)
    assert waiter.running(), "woken by the wrong half"
    lock(file, NONE, 5, 5)
    waiter.result(5)


def interrupted_wait(function):
    """Runs a blocking call under an alarm; true when the alarm ended it with EINTR."""
    def ring(*_):
        raise InterruptedError(errno.EINTR, "alarm")

    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    start = time.monotonic()
    try:
        function()
    except InterruptedError:
        return time.monotonic() - start < 5
    return False


@case
def a_signal_ends_the_wait():
    file = opened()
    lock(file, WRITE)
    assert elsewhere(lambda other: interrupted_wait(lambda: lock(other, WRITE, 0, 0, fcntl.F_SETLKW)))
    lock(file, NONE)
    # The interrupted wait must not be granted later, to nobody.
    time.sleep(0.1)
    elsewhere(lambda other: lock(other, WRITE))
    assert holder(file, WRITE) is None


@case
def a_killed_waiter_leaves_nothing():
    file = opened()
    lock(file, WRITE)
    waiters = [Child(lambda: lock(opened(), WRITE, 0, 0, fcntl.F_SETLKW)) for _ in range(3)]
    time.sleep(0.2)
    for waiter in waiters:
        waiter.kill()
    soon(lambda: not any(waiter.running() for waiter in waiters), 5)
    lock(file, NONE)
    elsewhere(lambda other: lock(other, WRITE))
    assert holder(file, WRITE) is None
    lock(file, WRITE)


@case
def a_circle_of_waits_is_refused():
    file = opened()
    lock(file, WRITE, 0, 1)

    def other_side():
        other = opened()
        lock(other, WRITE, 1, 1)
        write_file("ready")
        try:
            lock(other, WRITE, 0, 1, fcntl.F_SETLKW)
            return "got"
        except OSError as error:
            return error.errno

    child = Child(other_side)
    soon(lambda: os.path.exists("ready"))
    time.sleep(0.2)
    try:
        lock(file, WRITE, 1, 1, fcntl.F_SETLKW)
        mine = "got"
    except OSError as error:
        mine = error.errno
    lock(file, NONE, 0, 0)
    assert sorted(map(str, [mine, child.result()])) == sorted(map(str, ["got", errno.EDEADLK]))


@case
def locks_want_matching_descriptors():
    write_file("f")
    refused(errno.EBADF, lock, os.open("f", os.O_RDONLY), WRITE)
    refused(errno.EBADF, lock, os.open("f", os.O_WRONLY), READ)
    lock(os.open("f", os.O_RDONLY), READ)


@case
def a_counter_under_a_lock_loses_nothing():
    write_file("f", b"0")
    turns = 30 if QUICK else 100

    def count():
        file = opened()
        for _ in range(turns):
            lock(file, WRITE, 0, 0, fcntl.F_SETLKW)
            value = int(os.pread(file, 20, 0))
            os.pwrite(file, b"%d" % (value + 1), 0)
            lock(file, NONE, 0, 0)

    for child in [Child(count) for _ in range(6)]:
        child.result(50)
    assert int(read_file("f")) == 6 * turns


@case
def descriptions_own_ofd_locks():
    one, two = opened(), opened()
    lock(one, WRITE, 0, 10, OFD_SET)
    refused((errno.EAGAIN, errno.EACCES), lock, two, WRITE, 5, 1, OFD_SET)
    assert holder(two, WRITE, 0, 0, OFD_GET) == (WRITE, 0, 10, -1)
    os.close(opened())
    refused((errno.EAGAIN, errno.EACCES), lock, two, READ, 5, 1, OFD_SET)
    copy = os.dup(one)
    os.close(one)
    refused((errno.EAGAIN, errno.EACCES), lock, two, READ, 5, 1, OFD_SET)
    # A fork shares the description, so the lock is the child's too, and outlives the child.
    Child(lambda: lock(copy, WRITE, 0, 20, OFD_SET)).result()
    refused((errno.EAGAIN, errno.EACCES), lock, two, READ, 15, 1, OFD_SET)
    os.close(copy)
    lock(two, WRITE, 0, 0, OFD_SET)


@case
def ofd_locks_and_posix_locks_exclude_each_other():
    file = opened()
    lock(file, WRITE, 0, 0, OFD_SET)
    elsewhere(lambda other: busy(other, WRITE))
    waiter = Child(lambda: lock(opened(), WRITE, 0, 0, OFD_WAIT))
    time.sleep(0.2)
    assert waiter.running()
    lock(file, NONE, 0, 0, OFD_SET)
    waiter.result(5)
    lock(file, WRITE)
    assert elsewhere(lambda other: holder(other, READ, 0, 0, OFD_GET))[:3] == (WRITE, 0, 0)
