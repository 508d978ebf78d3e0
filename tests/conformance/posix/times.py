"""Times: exact to the nanosecond, changed by what changes, left by what does not."""

import ctypes
import errno
import os
import time

from harness import called, case, read_file, refused, skip, write_file

AT_FDCWD, NOFOLLOW = -100, 0x100
NOW, OMIT = (1 << 30) - 1, (1 << 30) - 2


def utimensat(path, access, modify, flags=0):
    """Each time is (seconds, nanoseconds)."""
    times = (ctypes.c_long * 4)(*access, *modify)
    called("utimensat", AT_FDCWD, os.fsencode(path), times, flags)


class Statx(ctypes.Structure):
    _fields_ = [("mask", ctypes.c_uint32), ("before", ctypes.c_uint8 * 76), ("born", ctypes.c_int64),
                ("nanoseconds", ctypes.c_uint32), ("behind", ctypes.c_uint8 * 164)]


STATX_BTIME = 0x800


def born(path):
    """When the object came into being; None if the file system does not say."""
    answer = Statx()
    called("statx", AT_FDCWD, path.encode(), NOFOLLOW, 0xFFF, ctypes.byref(answer))
    return answer.born + answer.nanoseconds / 1e9 if answer.mask & STATX_BTIME else None


@case
def an_object_shows_when_it_was_born():
    """No object of a mount had a birth, whatever its store knew."""
    start = time.time() - 2
    write_file("f", b"x")
    os.mkdir("d")
    os.symlink("f", "l")
    births = {name: born(name) for name in ("f", "d", "l")}
    if None in births.values():
        skip("the file system keeps no births")
    for name, birth in births.items():
        assert start <= birth <= time.time() + 2, "%s: %s" % (name, birth)
    os.utime("f", (1, 1))
    os.chmod("f", 0o600)
    os.link("f", "g")
    write_file("f", b"longer")
    assert born("f") == births["f"] == born("g")


@case
def nanoseconds_are_kept():
    write_file("f")
    os.mkdir("d")
    for name in ("f", "d"):
        for seconds, nanoseconds in [(0, 1), (1, 999_999_999), (1_700_000_000, 123_456_789), (2**31 + 5, 7)]:
            utimensat(name, (seconds, nanoseconds), (seconds + 1, nanoseconds))
            seen = os.stat(name)
            assert seen.st_atime_ns == seconds * 10**9 + nanoseconds
            assert seen.st_mtime_ns == (seconds + 1) * 10**9 + nanoseconds


@case
def times_before_1970():
    write_file("f")
    utimensat("f", (-1, 500_000_000), (-86400, 1))
    seen = os.stat("f")
    assert seen.st_atime_ns == -500_000_000 and seen.st_mtime_ns == -86400 * 10**9 + 1


@case
def one_time_may_be_left_or_be_now():
    write_file("f")
    utimensat("f", (100, 1), (200, 2))
    utimensat("f", (0, OMIT), (300, 3))
    seen = os.stat("f")
    assert (seen.st_atime_ns, seen.st_mtime_ns) == (100 * 10**9 + 1, 300 * 10**9 + 3)
    utimensat("f", (400, 4), (0, OMIT))
    seen = os.stat("f")
    assert (seen.st_atime_ns, seen.st_mtime_ns) == (400 * 10**9 + 4, 300 * 10**9 + 3)
    before = time.time_ns() - 10**8
    utimensat("f", (0, OMIT), (0, NOW))
    seen = os.stat("f")
    assert before < seen.st_mtime_ns < time.time_ns() + 10**8 and seen.st_atime_ns == 400 * 10**9 + 4
    change = seen.st_ctime_ns
    time.sleep(0.02)
    utimensat("f", (0, OMIT), (0, OMIT))
    assert os.stat("f").st_ctime_ns == change
    refused(errno.EINVAL, utimensat, "f", (0, 10**9), (0, 0))


@case
def symlinks_have_their_own_times():
    write_file("f")
    os.symlink("f", "s")
    utimensat("f", (1, 0), (2, 0))
    utimensat("s", (3, 30), (4, 40), NOFOLLOW)
    assert os.lstat("s").st_mtime_ns == 4 * 10**9 + 40 and os.stat("s").st_mtime_ns == 2 * 10**9


@case
def what_changes_which_time():
    write_file("f", b"data")
    file = os.open("f", os.O_RDWR)
    both = [
        lambda: os.pwrite(file, b"x", 0),
        lambda: os.ftruncate(file, 2),
        lambda: os.ftruncate(file, 100),
        lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)),
        lambda: os.posix_fallocate(file, 0, 5000),
    ]
    change_only = [
        lambda: os.chmod("f", 0o600),
        lambda: os.chown("f", os.getuid(), os.getgid()),
        lambda: os.link("f", "g"),
        lambda: os.unlink("g"),
    ]
    neither = [lambda: read_file("f"), lambda: os.stat("f"), lambda: os.fsync(file), lambda: os.access("f", os.R_OK)]
    for steps, modifies, changes in [(both, True, True), (change_only, False, True), (neither, False, False)]:
        for number, step in enumerate(steps):
            before = os.stat("f")
            time.sleep(0.02)
            step()
            after = os.stat("f")
            assert (after.st_mtime_ns > before.st_mtime_ns) == modifies, (number, "modified", modifies)
            assert (after.st_ctime_ns > before.st_ctime_ns) == changes, (number, "changed", changes)


@case
def set_times_survive_what_was_written_before():
    """As cp -a and tar do: write, set the times, close; the data must not bring its own time."""
    for number in range(30):
        name = "f%d" % number
        file = os.open(name, os.O_CREAT | os.O_WRONLY)
        os.write(file, b"x" * (number * 5000))
        os.utime(file, ns=(10**18 + number, 10**18 + 2 * number))
        os.fchmod(file, 0o640)
        os.close(file)
    for number in range(30):
        assert os.stat("f%d" % number).st_mtime_ns == 10**18 + 2 * number


@case
def new_files_are_of_now():
    before = time.time_ns() - 10**8
    write_file("f", b"x")
    os.mkdir("d")
    os.symlink("x", "s")
    after = time.time_ns() + 10**8
    for name in ("f", "d", "s"):
        seen = os.lstat(name)
        assert all(before < stamp < after for stamp in (seen.st_atime_ns, seen.st_mtime_ns, seen.st_ctime_ns))


@case
def the_same_through_name_and_descriptor():
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    for number in range(50):
        os.write(file, b"x" * 100)
        one, two = os.fstat(file), os.stat("f")
        assert (one.st_size, one.st_mtime_ns, one.st_ctime_ns) == (two.st_size, two.st_mtime_ns, two.st_ctime_ns)
