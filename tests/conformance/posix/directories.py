"""Listings: complete, without doubles, in spite of changes; positions; counts; types."""

import ctypes
import errno
import os
import stat
import time

from harness import QUICK, Child, called, case, libc, refused, write_file

libc.opendir.restype = ctypes.c_void_p
libc.readdir64.restype = ctypes.c_void_p
libc.telldir.restype = ctypes.c_long
for function in (libc.readdir64, libc.telldir, libc.closedir, libc.rewinddir):
    function.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]


class Stream:
    """opendir and its friends, which Python hides."""

    def __init__(self, path):
        self.stream = libc.opendir(os.fsencode(path))
        assert self.stream, "opendir failed"

    def next(self):
        """The next name, or `None` at the end."""
        entry = libc.readdir64(self.stream)
        if not entry:
            return None
        # struct dirent64: inode 8, offset 8, length 2, type 1, name.
        return ctypes.string_at(entry + 19).decode()

    def rest(self):
        names = []
        while (name := self.next()) is not None:
            names.append(name)
        return names

    def tell(self):
        return libc.telldir(self.stream)

    def seek(self, position):
        libc.seekdir(self.stream, position)

    def rewind(self):
        libc.rewinddir(self.stream)


def fill(count, prefix="entry"):
    names = ["%s-%05d" % (prefix, number) for number in range(count)]
    for name in names:
        write_file(name)
    return names


@case
def a_listing_has_every_name_once():
    names = fill(500 if QUICK else 3000)
    listed = Stream(".").rest()
    assert sorted(listed) == sorted(names + [".", ".."])


@case
def positions_can_be_returned_to():
    fill(400)
    stream = Stream(".")
    marks, order = [], []
    while True:
        position, name = stream.tell(), stream.next()
        if name is None:
            break
        marks.append(position)
        order.append(name)
    for at in list(range(0, len(order), 37))[::-1]:
        stream.seek(marks[at])
        assert stream.next() == order[at]
    stream.seek(marks[200])
    assert stream.rest() == order[200:]
    stream.rewind()
    assert stream.rest() == order


@case
def removal_while_reading_loses_nothing():
    names = fill(1000)
    stream, seen = Stream("."), []
    while (name := stream.next()) is not None:
        if name not in (".", ".."):
            seen.append(name)
            os.unlink(name)
    assert sorted(seen) == names and os.listdir(".") == []


@case
def a_position_survives_the_removal_of_what_came_before():
    fill(600)
    stream = Stream(".")
    before = [stream.next() for _ in range(300)]
    position = stream.tell()
    after = stream.rest()
    for name in before:
        if name not in (".", ".."):
            os.unlink(name)
    stream.seek(position)
    assert stream.rest() == after


@case
def creation_while_reading_doubles_nothing():
    names = fill(600)
    stream, seen = Stream("."), []
    while (name := stream.next()) is not None:
        seen.append(name)
        if len(seen) % 3 == 0 and len(seen) < 900:
            write_file("new-%d" % len(seen))
    old = [name for name in seen if name.startswith("entry")]
    assert sorted(old) == names, "an entry that stayed was missed or seen twice"
    assert len(set(seen)) == len(seen)


@case
def others_may_churn():
    names = fill(300, "stays")
    end = time.monotonic() + (0.6 if QUICK else 3)

    def churn(who):
        number = 0
        while time.monotonic() < end:
            name = "comes-%d-%d" % (who, number % 50)
            write_file(name)
            os.rename(name, name + ".renamed")
            os.unlink(name + ".renamed")
            number += 1

    children = [Child(lambda who=who: churn(who)) for who in (1, 2)]
    scans = 0
    while time.monotonic() < end:
        stays = [name for name in Stream(".").rest() if name.startswith("stays")]
        assert sorted(stays) == names, "scan %d" % scans
        scans += 1
    for child in children:
        child.result()
    assert scans > 3


@case
def types_in_listings_are_true():
    write_file("file")
    os.mkdir("folder")
    os.symlink("file", "soft")
    os.mkfifo("fifo")
    for entry in os.scandir("."):
        mode = os.lstat(entry.name).st_mode
        assert entry.is_symlink() == stat.S_ISLNK(mode)
        assert entry.is_dir(follow_symlinks=False) == stat.S_ISDIR(mode)
        assert entry.is_file(follow_symlinks=False) == stat.S_ISREG(mode)
        assert entry.inode() == os.lstat(entry.name).st_ino


@case
def rewinding_shows_what_is_new():
    fill(10)
    stream = Stream(".")
    stream.rest()
    write_file("new")
    os.unlink("entry-00003")
    stream.rewind()
    listed = stream.rest()
    assert "new" in listed and "entry-00003" not in listed


@case
def a_second_listing_is_fresh():
    for number in range(100):
        write_file("n%d" % number)
        assert len(os.listdir(".")) == 1
        Child(lambda: os.unlink("n%d" % number)).result() if number % 10 == 0 else os.unlink("n%d" % number)
        assert os.listdir(".") == []


@case
def folders_count_their_folders():
    os.mkdir("d")
    assert os.stat("d").st_nlink in (1, 2)
    for number in range(20):
        os.mkdir("d/%d" % number)
    assert os.stat("d").st_nlink in (1, 22)
    for number in range(20):
        os.rmdir("d/%d" % number)
    assert os.stat("d").st_nlink in (1, 2)


@case
def changes_touch_the_folder_times():
    os.mkdir("d")
    steps = [
        lambda: write_file("d/a"),
        lambda: os.mkdir("d/b"),
        lambda: os.rename("d/a", "d/c"),
        lambda: os.symlink("x", "d/s"),
        lambda: os.link("d/c", "d/l"),
        lambda: os.unlink("d/c"),
        lambda: os.rmdir("d/b"),
    ]
    for step in steps:
        before = os.stat("d")
        time.sleep(0.02)
        step()
        after = os.stat("d")
        assert after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns


@case
def only_empty_folders_go():
    os.makedirs("d/e")
    refused((errno.ENOTEMPTY, errno.EEXIST), os.rmdir, "d")
    refused(errno.EEXIST, os.mkdir, "d")
    refused(errno.EISDIR, os.open, "d", os.O_WRONLY)
    refused(errno.EISDIR, os.read, os.open("d", os.O_RDONLY), 1)
    os.rmdir("d/e")
    os.rmdir("d")
    refused(errno.ENOENT, os.rmdir, "d")


@case
def one_of_many_makes_the_folder():
    def attempt(number):
        try:
            os.mkdir("d%d" % number)
            return 1
        except FileExistsError:
            return 0

    children = [Child(lambda: [attempt(number) for number in range(60)]) for _ in range(4)]
    wins = [child.result() for child in children]
    assert [sum(column) for column in zip(*wins)] == [1] * 60


@case
def folders_can_be_synced():
    os.mkdir("d")
    folder = os.open("d", os.O_RDONLY | os.O_DIRECTORY)
    write_file("d/a")
    os.fsync(folder)
    called("syncfs", folder)
