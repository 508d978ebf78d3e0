"""BSD locks: whole files, owned by open file descriptions."""

import errno
import fcntl
import os
import time

from harness import QUICK, Child, case, read_file, refused, soon, write_file
from locks import WRITE, elsewhere, interrupted_wait, lock, opened

EXCLUSIVE, SHARED, UNLOCK = fcntl.LOCK_EX, fcntl.LOCK_SH, fcntl.LOCK_UN
TRY_EXCLUSIVE, TRY_SHARED = EXCLUSIVE | fcntl.LOCK_NB, SHARED | fcntl.LOCK_NB


def busy(file, how=TRY_EXCLUSIVE):
    refused(errno.EWOULDBLOCK, fcntl.flock, file, how)


@case
def descriptions_exclude_each_other():
    one, two, three = opened(), opened(), opened()
    fcntl.flock(one, SHARED)
    fcntl.flock(two, TRY_SHARED)
    busy(three)
    fcntl.flock(two, UNLOCK)
    fcntl.flock(one, EXCLUSIVE)
    busy(two, TRY_SHARED)
    elsewhere(lambda other: busy(other))
    fcntl.flock(one, SHARED)
    fcntl.flock(two, TRY_SHARED)


@case
def copies_share_the_lock_until_the_last_close():
    one, two = opened(), opened()
    fcntl.flock(one, EXCLUSIVE)
    copy = os.dup(one)
    os.close(one)
    busy(two)
    child = Child(lambda: (write_file("forked"), soon(lambda: os.path.exists("go"))))
    soon(lambda: os.path.exists("forked"))
    os.close(copy)
    busy(two)
    write_file("go")
    child.result()
    soon(lambda: not child.running())
    fcntl.flock(two, TRY_EXCLUSIVE)


@case
def any_descriptor_may_be_locked():
    write_file("f")
    one, two = os.open("f", os.O_RDONLY), os.open("f", os.O_RDONLY)
    fcntl.flock(one, EXCLUSIVE)
    busy(two)
    os.mkdir("d")
    folder, again = os.open("d", os.O_RDONLY), os.open("d", os.O_RDONLY)
    fcntl.flock(folder, EXCLUSIVE)
    busy(again)


@case
def a_waiter_gets_it_when_the_holder_goes():
    file = opened()
    fcntl.flock(file, EXCLUSIVE)
    waiters = [Child(lambda: fcntl.flock(opened(), EXCLUSIVE)) for _ in range(4)]
    time.sleep(0.2)
    # The waiters inherited `file`, so only an unlock lets go.
    assert all(waiter.running() for waiter in waiters)
    fcntl.flock(file, UNLOCK)
    for waiter in waiters:
        waiter.result(5)


@case
def a_signal_ends_the_wait():
    file = opened()
    fcntl.flock(file, EXCLUSIVE)
    assert elsewhere(lambda other: interrupted_wait(lambda: fcntl.flock(other, EXCLUSIVE)))
    fcntl.flock(file, UNLOCK)
    time.sleep(0.1)
    elsewhere(lambda other: fcntl.flock(other, TRY_EXCLUSIVE))


@case
def killed_holders_and_waiters_leave_nothing():
    holder = Child(lambda: (fcntl.flock(opened(), EXCLUSIVE), write_file("held"), time.sleep(60)))
    soon(lambda: os.path.exists("held"))
    waiter = Child(lambda: fcntl.flock(opened(), EXCLUSIVE))
    time.sleep(0.2)
    file = opened()
    busy(file)
    waiter.kill()
    holder.kill()
    soon(lambda: not holder.running() and not waiter.running(), 5)
    # The kernel may tell the file system of the last close a moment after the process is gone.
    def free():
        try:
            fcntl.flock(file, TRY_EXCLUSIVE)
            return True
        except BlockingIOError:
            return False

    soon(free, 5)


@case
def the_two_kinds_of_lock_do_not_meet():
    one = opened()
    fcntl.flock(one, EXCLUSIVE)
    elsewhere(lambda other: lock(other, WRITE))
    lock(one, WRITE)
    fcntl.flock(one, UNLOCK)
    elsewhere(lambda other: fcntl.flock(other, TRY_EXCLUSIVE))


@case
def a_counter_under_a_lock_loses_nothing():
    write_file("f", b"0")
    turns = 30 if QUICK else 100

    def count():
        for _ in range(turns):
            file = opened()
            fcntl.flock(file, EXCLUSIVE)
            value = int(os.pread(file, 20, 0))
            os.pwrite(file, b"%d" % (value + 1), 0)
            os.close(file)

    for child in [Child(count) for _ in range(5)]:
        child.result(50)
    assert int(read_file("f")) == 5 * turns
