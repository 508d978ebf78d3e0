"""Hard links, removal, and files that live on without a name."""

import errno
import os
import tempfile
import time

from harness import called, case, read_file, refused, skip, write_file

AT_FDCWD, AT_SYMLINK_FOLLOW = -100, 0x400


def other_file_system():
    here = os.stat(".").st_dev
    for place in ["/dev/shm", "/tmp", "/var/tmp", "/run"]:
        if os.access(place, os.W_OK) and os.stat(place).st_dev != here:
            return place
    return skip("no second file system")


@case
def a_link_is_the_same_file():
    write_file("one", b"text")
    os.link("one", "two")
    one, two = os.stat("one"), os.stat("two")
    assert one.st_ino == two.st_ino and one.st_nlink == two.st_nlink == 2
    with open("two", "ab") as file:
        file.write(b"+")
    assert read_file("one") == b"text+"
    os.chmod("two", 0o600)
    assert os.stat("one").st_mode & 0o777 == 0o600
    os.unlink("one")
    assert os.stat("two").st_nlink == 1 and read_file("two") == b"text+"


@case
def counts_and_change_times_follow_links():
    write_file("one")
    open_file = os.open("one", os.O_RDONLY)
    before = os.fstat(open_file).st_ctime_ns
    for step in [lambda: os.link("one", "two"), lambda: os.rename("two", "three"), lambda: os.unlink("three")]:
        time.sleep(0.02)
        step()
        now = os.fstat(open_file).st_ctime_ns
        assert now > before, "a link, rename or unlink left the change time"
        before = now
    assert os.fstat(open_file).st_nlink == 1


@case
def what_cannot_be_linked():
    os.mkdir("d")
    write_file("file")
    os.symlink("file", "soft")
    refused(errno.EPERM, os.link, "d", "d2")
    refused(errno.EEXIST, os.link, "file", "soft")
    refused(errno.ENOENT, os.link, "missing", "new")
    os.link("soft", "soft2", follow_symlinks=False)
    assert os.path.islink("soft2") and os.lstat("soft").st_nlink == 2


@case
def not_across_file_systems():
    write_file("file")
    with tempfile.TemporaryDirectory(dir=other_file_system()) as other:
        refused(errno.EXDEV, os.link, "file", other + "/file")
        refused(errno.EXDEV, os.rename, "file", other + "/file")


@case
def an_unlinked_file_lives_while_open():
    file = os.open("f", os.O_CREAT | os.O_RDWR, 0o644)
    os.write(file, b"before")
    os.unlink("f")
    refused(errno.ENOENT, os.stat, "f")
    assert os.fstat(file).st_nlink == 0 and os.fstat(file).st_size == 6
    os.pwrite(file, b"after!", 6)
    assert os.pread(file, 99, 0) == b"beforeafter!"
    os.fchmod(file, 0o600)
    os.ftruncate(file, 3)
    os.utime(file, ns=(10**18, 10**18 + 1))
    seen = os.fstat(file)
    assert (seen.st_mode & 0o777, seen.st_size, seen.st_mtime_ns) == (0o600, 3, 10**18 + 1)
    os.fsync(file)
    again = os.open("/proc/self/fd/%d" % file, os.O_RDONLY)
    os.close(file)
    assert os.read(again, 99) == b"bef"


@case
def a_new_file_of_the_old_name_is_another():
    old = os.open("f", os.O_CREAT | os.O_RDWR)
    os.write(old, b"old")
    os.unlink("f")
    write_file("f", b"new!")
    assert os.pread(old, 9, 0) == b"old" and read_file("f") == b"new!"
    os.write(old, b"er")
    os.ftruncate(old, 1)
    assert read_file("f") == b"new!" and os.fstat(old).st_size == 1
    os.close(old)
    assert read_file("f") == b"new!"


@case
def no_link_back_to_a_removed_file():
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    os.unlink("f")
    source = b"/proc/self/fd/%d" % file
    refused(errno.ENOENT, called, "linkat", AT_FDCWD, source, AT_FDCWD, b"again", AT_SYMLINK_FOLLOW)


def temporary(folder, flags=0):
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | flags, 0o640)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EISDIR):
            skip("O_TMPFILE is not offered")
        raise


@case
def a_temporary_file_gets_its_name_last():
    file = temporary(".")
    os.write(file, b"whole")
    assert os.listdir(".") == [] and os.fstat(file).st_nlink == 0
    called("linkat", AT_FDCWD, b"/proc/self/fd/%d" % file, AT_FDCWD, b"named", AT_SYMLINK_FOLLOW)
    assert read_file("named") == b"whole" and os.stat("named").st_nlink == 1
    assert os.stat("named").st_mode & 0o777 == 0o640
    os.write(file, b", and more")
    os.close(file)
    assert read_file("named") == b"whole, and more"


@case
def a_temporary_file_lives_as_long_as_it_is_open():
    """O_TMPFILE was refused on every mount."""
    os.mkdir("d")
    file = temporary("d", os.O_EXCL)
    number = os.fstat(file).st_ino
    os.write(file, b"x" * 100_000)
    assert os.pread(file, 5, 99_995) == b"xxxxx"
    others = [temporary("d") for _ in range(20)]
    assert len({os.fstat(other).st_ino for other in others} | {number}) == 21
    # With O_EXCL it never gets a name.
    refused(errno.ENOENT, called, "linkat", AT_FDCWD, b"/proc/self/fd/%d" % file, AT_FDCWD, b"n", AT_SYMLINK_FOLLOW)
    os.rmdir("d")
    assert os.pread(file, 100_001, 0) == b"x" * 100_000 and os.fstat(file).st_nlink == 0
    for each in (file, *others):
        os.close(each)


@case
def a_removed_directory_stays_readable_but_dead():
    os.mkdir("d")
    folder = os.open("d", os.O_RDONLY)
    os.rmdir("d")
    assert os.listdir(folder) == []
    refused(errno.ENOENT, os.open, "x", os.O_CREAT | os.O_WRONLY, dir_fd=folder)
    os.mkdir("d")
    assert os.fstat(folder).st_ino != os.stat("d").st_ino or os.fstat(folder).st_nlink == 0


@case
def many_links():
    write_file("first")
    for number in range(500):
        os.link("first", "l%d" % number)
    assert os.stat("l499").st_nlink == 501
    for number in range(500):
        os.unlink("l%d" % number)
    assert os.stat("first").st_nlink == 1
