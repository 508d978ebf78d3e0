"""rename and renameat2: what may replace what, atomically, also under open files and in races."""

import errno
import os
import stat
import time

from harness import QUICK, Child, called, case, read_file, refused, skip, write_file

AT_FDCWD, NOREPLACE, EXCHANGE, WHITEOUT = -100, 1, 2, 4


def renameat2(old, new, flags):
    try:
        called("renameat2", AT_FDCWD, os.fsencode(old), AT_FDCWD, os.fsencode(new), flags)
    except OSError as error:
        if error.errno == errno.EINVAL and os.path.dirname(old) == os.path.dirname(new):
            raise AssertionError("renameat2 does not know flag %d" % flags) from error
        raise


@case
def noreplace_replaces_nothing():
    write_file("a", b"a")
    write_file("b", b"b")
    refused(errno.EEXIST, renameat2, "a", "b", NOREPLACE)
    assert read_file("a") == b"a" and read_file("b") == b"b"
    renameat2("a", "c", NOREPLACE)
    assert sorted(os.listdir(".")) == ["b", "c"]
    os.mkdir("d")
    refused(errno.EEXIST, renameat2, "c", "d", NOREPLACE)


def is_whiteout(path):
    about = os.lstat(path)
    return (stat.S_IFMT(about.st_mode), about.st_rdev, about.st_nlink) == (stat.S_IFCHR, 0, 1)


@case(root=True)
def a_whiteout_stays_at_the_old_name():
    """Every mount refused the flag, and so an overlay refused the mount as its upper layer."""
    os.makedirs("x/d/sub")
    os.mkdir("y")
    for name in ("x/f", "x/g", "x/h", "y/h"):
        write_file(name, name.encode())
    old = os.open("y/h", os.O_RDONLY)
    renameat2("x/f", "x/new", WHITEOUT)
    renameat2("x/g", "y/g", WHITEOUT)
    renameat2("x/h", "y/h", WHITEOUT)
    renameat2("x/d", "y/d", WHITEOUT)
    assert [read_file(name) for name in ("x/new", "y/g", "y/h")] == [b"x/f", b"x/g", b"x/h"]
    assert os.read(old, 9) == b"y/h" and os.fstat(old).st_nlink == 0
    os.close(old)
    assert all(is_whiteout("x/" + name) for name in "fghd")
    assert sorted(os.listdir("x")) == ["d", "f", "g", "h", "new"] and os.listdir("y/d") == ["sub"]
    assert (os.stat("x").st_nlink, os.stat("y").st_nlink) in [(2, 3), (1, 1)]
    # A whiteout is a name like others.
    renameat2("x/new", "x/f", WHITEOUT)
    assert read_file("x/f") == b"x/f" and is_whiteout("x/new")
    refused(errno.ENOENT, renameat2, "x/none", "x/other", WHITEOUT)
    os.link("x/f", "x/same")
    renameat2("x/f", "x/same", WHITEOUT)
    assert read_file("x/f") == b"x/f" and os.stat("x/f").st_nlink == 2
    for name in ("new", "g", "h", "d"):
        os.unlink("x/" + name)


@case(root=True)
def a_whiteout_may_spare_the_new_name():
    """Bug: flags were taken for four exact values, so two of them together were refused with EINVAL."""
    os.mkdir("x")
    for name in ("x/f", "x/there"):
        write_file(name, name.encode())
    refused(errno.EEXIST, renameat2, "x/f", "x/there", WHITEOUT | NOREPLACE)
    assert read_file("x/f") == b"x/f" and read_file("x/there") == b"x/there"
    renameat2("x/f", "x/new", WHITEOUT | NOREPLACE)
    assert read_file("x/new") == b"x/f" and is_whiteout("x/f")
    for other in (NOREPLACE, WHITEOUT, NOREPLACE | WHITEOUT):
        flags = EXCHANGE | other
        refused(errno.EINVAL, called, "renameat2", AT_FDCWD, b"x/new", AT_FDCWD, b"x/there", flags)
    os.unlink("x/f")


@case
def exchange_swaps_files_and_folders():
    os.makedirs("x/d/sub")
    os.mkdir("y")
    write_file("y/f", b"file")
    inodes = os.stat("x/d").st_ino, os.stat("y/f").st_ino
    renameat2("x/d", "y/f", EXCHANGE)
    assert (os.stat("y/f").st_ino, os.stat("x/d").st_ino) == inodes
    assert read_file("x/d") == b"file" and os.listdir("y/f") == ["sub"]
    assert os.stat("y/f/..").st_ino == os.stat("y").st_ino
    assert os.stat("y/f/sub/../..").st_ino == os.stat("y").st_ino
    links = os.stat("x").st_nlink, os.stat("y").st_nlink
    assert links in [(2, 3), (1, 1)], links
    refused(errno.ENOENT, renameat2, "x/d", "missing", EXCHANGE)
    refused(errno.EINVAL, called, "renameat2", AT_FDCWD, b"x", AT_FDCWD, b"x/d", NOREPLACE | EXCHANGE)


@case
def what_may_replace_what():
    os.makedirs("empty")
    os.makedirs("full/inner")
    write_file("file", b"f")
    refused(errno.EISDIR, os.rename, "file", "empty")
    refused(errno.ENOTDIR, os.rename, "empty", "file")
    refused((errno.ENOTEMPTY, errno.EEXIST), os.rename, "empty", "full")
    refused(errno.EINVAL, os.rename, "full", "full/inner/below")
    refused((errno.ENOTEMPTY, errno.EEXIST), os.rename, "full/inner", "full")
    refused(errno.ENOENT, os.rename, "missing", "x")
    refused(errno.ENOTDIR, os.rename, "file", "file/x")
    os.rename("full", "empty")
    assert os.listdir("empty") == ["inner"] and not os.path.exists("full")
    os.rename("file", "file")
    assert read_file("file") == b"f"


@case
def two_names_of_one_file_both_stay():
    write_file("a", b"x")
    os.link("a", "b")
    os.rename("a", "b")
    assert sorted(os.listdir(".")) == ["a", "b"] and os.stat("a").st_nlink == 2


@case
def a_replaced_file_lives_while_open():
    write_file("old", b"old")
    write_file("new", b"new")
    file = os.open("old", os.O_RDWR)
    os.rename("new", "old")
    assert os.pread(file, 9, 0) == b"old" and os.fstat(file).st_nlink == 0
    os.pwrite(file, b"OLD+", 0)
    assert read_file("old") == b"new" and os.pread(file, 9, 0) == b"OLD+"


@case
def an_open_file_follows_its_new_name():
    os.mkdir("d")
    file = os.open("a", os.O_CREAT | os.O_RDWR)
    os.write(file, b"one")
    os.rename("a", "d/b")
    os.write(file, b"two")
    assert read_file("d/b") == b"onetwo" and os.fstat(file).st_ino == os.stat("d/b").st_ino


@case
def folders_move_with_what_is_below():
    os.makedirs("one/sub/deep")
    os.mkdir("two")
    write_file("one/sub/deep/file", b"x")
    inside = os.open("one/sub/deep", os.O_RDONLY)
    os.rename("one/sub", "two/sub")
    assert read_file("two/sub/deep/file") == b"x"
    refused(errno.ENOENT, os.stat, "one/sub/deep/file")
    write_file("two/sub/deep/late", b"y")
    assert sorted(os.listdir(inside)) == ["file", "late"]
    assert os.stat("../..", dir_fd=inside).st_ino == os.stat("two").st_ino


@case
def a_replaced_name_is_never_missing():
    write_file("name", b"0" * 100)
    end = time.monotonic() + (0.5 if QUICK else 2)

    def replace(who):
        while time.monotonic() < end:
            write_file("new%d" % who, b"%d" % who * 100)
            os.rename("new%d" % who, "name")

    writers = [Child(lambda who=who: replace(who)) for who in (1, 2)]
    while time.monotonic() < end:
        data = read_file("name")
        assert len(data) == 100 and len(set(data)) == 1, "a mixture of versions"
        os.stat("name")
    for writer in writers:
        writer.result()


@case
def crossing_renames_do_not_lock_up():
    for name in "ab":
        os.mkdir(name)
        write_file("%s/%s" % (name, name))
    end = time.monotonic() + (0.5 if QUICK else 2)

    def swing(name, here, there):
        count = 0
        while time.monotonic() < end:
            os.rename("%s/%s" % (here, name), "%s/%s" % (there, name))
            here, there = there, here
            count += 1
        return count

    swings = [Child(lambda: swing("a", "a", "b")), Child(lambda: swing("b", "b", "a"))]
    assert all(child.result() > 10 for child in swings)
    assert sorted(os.listdir("a") + os.listdir("b")) == ["a", "b"]


@case
def no_folder_becomes_its_own_ancestor():
    """Two moves that are each harmless would close a loop together; one of them must lose."""
    for turn in range(60 if QUICK else 300):
        os.makedirs("r%d/a" % turn)
        os.makedirs("r%d/b" % turn)

        def move(old, new):
            try:
                os.rename("r%d/%s" % (turn, old), "r%d/%s" % (turn, new))
                return True
            except OSError as error:
                assert error.errno in (errno.EINVAL, errno.ENOENT, errno.ENOTEMPTY), error
                return False

        one, two = Child(lambda: move("a", "b/a")), Child(lambda: move("b", "a/b"))
        assert [one.result(), two.result()].count(True) == 1
        found = [os.path.join(top, name) for top, names, _ in os.walk("r%d" % turn) for name in names]
        assert len(found) == 2, found


@case
def folder_times_and_counts_follow():
    os.makedirs("from/d")
    os.mkdir("to")
    time.sleep(0.02)
    before = os.stat("from").st_mtime_ns, os.stat("to").st_mtime_ns
    os.rename("from/d", "to/d")
    assert os.stat("from").st_mtime_ns > before[0] and os.stat("to").st_mtime_ns > before[1]
    links = os.stat("from").st_nlink, os.stat("to").st_nlink
    assert links in [(2, 3), (1, 1)], links


@case
def long_paths_of_renames():
    if os.pathconf(".", "PC_NAME_MAX") != 255:
        skip("names are not 255 bytes")
    os.mkdir("d" * 255)
    write_file("f" * 255)
    os.rename("f" * 255, "d" * 255 + "/" + "g" * 255)
    assert os.listdir("d" * 255) == ["g" * 255]
