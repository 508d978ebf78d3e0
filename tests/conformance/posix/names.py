"""Names: which are allowed, how long, how paths are walked."""

import errno
import os

from harness import Child, called, case, read_file, refused, write_file


@case
def limit_is_255_bytes():
    longest, longer = "n" * 255, "n" * 256
    write_file(longest, b"x")
    assert os.listdir(".") == [longest] and read_file(longest) == b"x"
    os.rename(longest, "m" * 255)
    os.mkdir(longest)
    os.rmdir(longest)
    for call in [
        lambda: os.open(longer, os.O_CREAT | os.O_WRONLY),
        lambda: os.mkdir(longer),
        lambda: os.symlink("t", longer),
        lambda: os.mkfifo(longer),
        lambda: os.stat(longer),
        lambda: os.unlink(longer),
        lambda: os.rename("m" * 255, longer),
        lambda: os.link("m" * 255, longer),
    ]:
        refused(errno.ENAMETOOLONG, call)
    # 255 bytes, not characters.
    os.mkdir("é" * 127)
    refused(errno.ENAMETOOLONG, os.mkdir, "é" * 128)


@case
def every_byte_may_stand_in_a_name():
    names = {bytes([byte]) for byte in range(1, 256) if byte not in b"./"}
    names |= {b"a" + bytes([byte]) + b"b" for byte in range(1, 256) if byte != 0x2F}
    for name in names:
        write_file(name, name)
    assert set(os.listdir(b".")) == names
    assert all(read_file(name) == name for name in names)
    for name in names:
        os.unlink(name)
    assert os.listdir(b".") == []


@case
def case_and_dots_count():
    for name in ["a", "A", "...", "..a", ".a", "a."]:
        write_file(name, name.encode())
    assert sorted(os.listdir(".")) == sorted(["a", "A", "...", "..a", ".a", "a."])
    assert read_file("A") == b"A" and read_file("a") == b"a"


@case
def dot_and_dot_dot_are_not_entries():
    os.mkdir("d")
    refused(errno.EEXIST, os.mkdir, ".")
    refused(errno.EEXIST, os.mkdir, "d/..")
    refused(errno.EINVAL, os.rmdir, "d/.")
    refused((errno.ENOTEMPTY, errno.EBUSY), os.rmdir, "d/..")
    refused((errno.EBUSY, errno.EINVAL), os.rename, "d/.", "e")
    refused((errno.EISDIR, errno.EPERM), os.unlink, "d")


@case
def dot_dot_walks_up():
    os.makedirs("a/b/c")
    write_file("a/file", b"found")
    assert read_file("a/b/c/../../file") == b"found"
    assert os.stat("a/b/c/../..").st_ino == os.stat("a").st_ino
    os.symlink("a/b/c", "short")
    assert os.stat("short/..").st_ino == os.stat("a/b").st_ino
    deep = os.open("a/b/c", os.O_RDONLY)
    os.rename("a/b", "moved")
    assert os.stat("..", dir_fd=deep).st_ino == os.stat("moved").st_ino
    assert os.stat("../..", dir_fd=deep).st_ino == os.stat(".").st_ino
    os.close(deep)


@case
def working_directory_that_was_removed():
    os.mkdir("gone")

    def stay():
        os.chdir("gone")
        os.rmdir("../gone")
        refused(errno.ENOENT, os.getcwd)
        refused(errno.ENOENT, os.open, "new", os.O_CREAT | os.O_WRONLY)
        refused(errno.ENOENT, os.mkdir, "new")
        refused(errno.ENOENT, os.stat, "old")
        assert os.listdir(".") == []
        assert os.stat(".").st_nlink == 0

    Child(stay).result()


@case
def a_file_is_no_directory():
    write_file("file")
    for call in [
        lambda: os.stat("file/x"),
        lambda: os.stat("file/"),
        lambda: os.mkdir("file/x"),
        lambda: os.listdir("file"),
        lambda: os.rmdir("file"),
        lambda: os.open("file", os.O_RDONLY | os.O_DIRECTORY),
    ]:
        refused(errno.ENOTDIR, call)
    os.mkdir("made/")
    os.rmdir("made/")


@case
def symlinks_are_followed_and_bounded():
    os.symlink("loop2", "loop1")
    os.symlink("loop1", "loop2")
    refused(errno.ELOOP, os.stat, "loop1")
    write_file("end", b"end")
    os.symlink("end", "s0")
    for number in range(1, 35):
        os.symlink("s%d" % (number - 1), "s%d" % number)
    assert read_file("s34") == b"end"
    refused(errno.ELOOP, os.open, "s0", os.O_RDONLY | os.O_NOFOLLOW)
    refused(errno.ENOENT, os.symlink, "", "empty")


@case
def a_symlink_keeps_its_text():
    for number, text in enumerate([b"a", b"/x/../y//z/", bytes(range(1, 256)), b"t" * 4095]):
        name = b"link%d" % number
        os.symlink(text, name)
        assert os.readlink(name) == text
        assert os.lstat(name).st_size == len(text)
    refused(errno.ENAMETOOLONG, os.symlink, b"t" * 4096, b"long")
    write_file("file")
    refused(errno.EINVAL, os.readlink, "file")


@case
def create_through_a_dangling_symlink():
    os.symlink("target", "link")
    refused(errno.EEXIST, os.open, "link", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    assert not os.path.exists("target")
    os.close(os.open("link", os.O_CREAT | os.O_WRONLY))
    assert os.path.exists("target") and os.path.islink("link")


@case
def exclusive_create_has_one_winner():
    def attempt(round_):
        try:
            os.close(os.open("lock%d" % round_, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            return 1
        except FileExistsError:
            return 0

    rounds = range(40)
    children = [Child(lambda: [attempt(round_) for round_ in rounds]) for _ in range(4)]
    wins = [child.result() for child in children]
    assert [sum(column) for column in zip(*wins)] == [1] * len(rounds)


@case
def a_missing_name_appears_when_made():
    for number in range(50):
        name = "n%d" % number
        refused(errno.ENOENT, os.stat, name)
        Child(lambda: write_file(name, b"%d" % number)).result()
        assert read_file(name) == b"%d" % number
        Child(lambda: os.unlink(name)).result()
        refused(errno.ENOENT, os.stat, name)


@case
def descriptors_of_paths_only():
    write_file("file", b"data")
    path = os.open("file", os.O_PATH)
    assert os.fstat(path).st_size == 4
    refused(errno.EBADF, os.read, path, 1)
    again = os.open("/proc/self/fd/%d" % path, os.O_RDONLY)
    assert os.read(again, 9) == b"data"
    os.mkdir("d")
    folder = os.open("d", os.O_PATH | os.O_DIRECTORY)
    write_file("d/inner", b"x")
    assert os.stat("inner", dir_fd=folder).st_size == 1
    called("close", path)
