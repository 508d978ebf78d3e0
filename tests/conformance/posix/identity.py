"""What new and changed files inherit or lose: owners, umask, setgid folders, setuid bits."""

import ctypes
import errno
import mmap
import os
import stat

from harness import ALICE, BOB, STAFF, as_user, case, called, read_file, refused, statx, write_file

SETUID, SETGID = stat.S_ISUID, stat.S_ISGID


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


def owner(path):
    seen = os.lstat(path)
    return seen.st_uid, seen.st_gid


def plain_file(path, wanted=0o666):
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, wanted))


MAKERS = {
    "file": plain_file,
    "folder": lambda path: os.mkdir(path),
    "fifo": lambda path: os.mkfifo(path),
    "node": lambda path: os.mknod(path, stat.S_IFREG | 0o666),
    "soft": lambda path: os.symlink("x", path),
}


@case(root=True)
def new_things_belong_to_their_maker():
    os.chmod(".", 0o777)
    for name, make in MAKERS.items():
        as_user(ALICE, make, name, group=STAFF)
        assert owner(name) == (ALICE, STAFF), name


@case(root=True)
def the_umask_of_the_caller_counts():
    os.chmod(".", 0o777)

    def make_all(umask):
        os.umask(umask)
        for name, make in MAKERS.items():
            make("%s-%o" % (name, umask))

    for umask in (0o000, 0o022, 0o027, 0o077, 0o777):
        as_user(ALICE, make_all, umask)
        for name, full in [("file", 0o666), ("folder", 0o777), ("fifo", 0o666), ("node", 0o666)]:
            assert mode("%s-%o" % (name, umask)) == full & ~umask, (name, oct(umask))


@case
def special_bits_at_creation():
    os.umask(0)
    plain_file("f", 0o4755)
    assert mode("f") == 0o4755
    os.mkdir("d", 0o1777)
    assert mode("d") == 0o1777
    os.chmod("f", 0o6711)
    assert mode("f") == 0o6711
    os.chmod("d", 0o3775)
    assert mode("d") == 0o3775


@case(root=True)
def setgid_folders_pass_their_group_on():
    os.mkdir("d")
    os.chown("d", 0, STAFF)
    os.chmod("d", 0o2777)
    for name, make in MAKERS.items():
        as_user(ALICE, make, "d/" + name)
        assert owner("d/" + name) == (ALICE, STAFF), name
    assert mode("d/folder") & SETGID and not mode("d/file") & SETGID
    as_user(BOB, os.mkdir, "d/folder/inner") if mode("d/folder") & 2 else None
    as_user(ALICE, os.mkdir, "d/folder/deep")
    assert owner("d/folder/deep") == (ALICE, STAFF) and mode("d/folder/deep") & SETGID
    write_file("outside")
    os.chown("outside", ALICE, ALICE)
    os.rename("outside", "d/outside")
    assert owner("d/outside") == (ALICE, ALICE)


@case(root=True)
def outsiders_make_no_setgid_programs():
    os.mkdir("d")
    os.chown("d", 0, STAFF)
    os.chmod("d", 0o2777)

    def make(name):
        os.umask(0)
        plain_file(name, 0o2775)

    as_user(ALICE, make, "d/outsider")
    assert mode("d/outsider") == 0o775
    as_user(ALICE, make, "d/member", groups=[STAFF])
    assert mode("d/member") == 0o2775
    as_user(ALICE, os.chmod, "d/outsider", 0o2775)
    assert mode("d/outsider") == 0o775, "chmod gave setgid to a group the owner is not in"
    as_user(ALICE, os.chmod, "d/outsider", 0o2775, groups=[STAFF])
    assert mode("d/outsider") == 0o2775


def privileged(path, bits=0o6777):
    write_file(path, b"program")
    os.chown(path, ALICE, STAFF)
    os.chmod(path, bits)


@case(root=True)
def a_write_of_another_user_clears_setuid():
    def write(path):
        file = os.open(path, os.O_WRONLY)
        os.write(file, b"evil")

    def write_at(path):
        os.pwrite(os.open(path, os.O_RDWR), b"evil", 1 << 16)

    def truncate(path):
        os.truncate(path, 3)

    def truncate_open(path):
        os.ftruncate(os.open(path, os.O_RDWR), 3)

    def truncate_at_open(path):
        os.open(path, os.O_WRONLY | os.O_TRUNC)

    def allocate(path):
        os.posix_fallocate(os.open(path, os.O_RDWR), 0, 10000)

    def copy_in(path):
        source = os.open(path, os.O_RDONLY)
        os.copy_file_range(source, os.open(path, os.O_WRONLY), 3, 0, 4)

    for change in (write, write_at, truncate, truncate_open, truncate_at_open, allocate, copy_in):
        name = change.__name__
        privileged(name)
        assert mode(name) == 0o6777
        as_user(BOB, change, name)
        assert mode(name) == 0o777, "%s left %o" % (name, mode(name))
        assert as_user(BOB, mode, name) == 0o777


def mode_alone(path):
    """The mode as `stat -c %a` asks for it: for nothing beside."""
    return stat.S_IMODE(int.from_bytes(statx(path, 2)[28:30], "little"))


def changes_of_data():
    def direct(file):
        # The size of a page and its alignment suit every device.
        page = mmap.mmap(-1, 4096)
        with_direct = os.open("/proc/self/fd/%d" % file, os.O_WRONLY | os.O_DIRECT)
        os.writev(with_direct, [page])

    def append(file):
        os.write(os.open("/proc/self/fd/%d" % file, os.O_WRONLY | os.O_APPEND), b"evil")

    def fallocate(mode):
        return lambda file: called("fallocate64", file, mode, ctypes.c_long(0), ctypes.c_long(4096))

    def copy_in(file):
        os.copy_file_range(os.open("source", os.O_RDONLY), file, 10)

    def sendfile(file):
        os.sendfile(file, os.open("source", os.O_RDONLY), 0, 10)

    return {
        "write": lambda file: os.write(file, b"evil"),
        "append": append,
        "direct": direct,
        "allocate": fallocate(0),
        "punch": fallocate(3),
        "copy": copy_in,
        "sendfile": sendfile,
    }


@case(root=True)
def cleared_bits_show_at_once():
    """xfstests generic/355 and 683 to 685 showed: `stat -c %a` after such a change showed the bits for as long
    as attributes are believed. The kernel asks to take them away by a change of nothing, whose answer has the
    old mode still, then sends the change of data, and after that asks for sizes and times only."""
    write_file("source", b"0123456789")
    os.chmod("source", 0o666)
    for name, change in changes_of_data().items():
        for opened in ("before", "after"):
            path = "%s-%s" % (name, opened)
            privileged(path, 0o777)
            # Root's descriptor, so that the bits come while the file is open; who writes it counts.
            file = os.open(path, os.O_RDWR) if opened == "before" else None
            os.chmod(path, 0o6777)
            assert mode_alone(path) == 0o6777
            file = file or os.open(path, os.O_RDWR)
            as_user(BOB, change, file)
            assert mode_alone(path) == 0o777, "%s shows %o" % (path, mode_alone(path))
            os.close(file)


@case(root=True)
def the_owner_loses_setuid_by_writing_too():
    privileged("f", 0o4755)
    as_user(ALICE, lambda: os.write(os.open("f", os.O_WRONLY), b"x"))
    assert mode("f") == 0o755
    privileged("g", 0o4755)
    os.write(os.open("g", os.O_WRONLY), b"x")
    assert mode("g") == 0o4755, "root keeps it"


@case(root=True)
def setgid_without_execute_is_no_privilege():
    privileged("f", 0o2666)
    as_user(ALICE, lambda: os.write(os.open("f", os.O_WRONLY), b"x"), groups=[STAFF])
    assert mode("f") == 0o2666


@case(root=True)
def reading_clears_nothing():
    privileged("f")
    as_user(BOB, read_file, "f")
    os.link("f", "g")
    os.rename("g", "h")
    assert mode("h") == 0o6777


@case(root=True)
def a_new_owner_clears_setuid():
    privileged("f")
    as_user(ALICE, os.chown, "f", -1, STAFF, groups=[STAFF])
    assert mode("f") == 0o777
    privileged("g")
    os.chown("g", BOB, BOB)
    assert mode("g") == 0o777
    os.mkdir("d")
    os.chmod("d", 0o6755)
    os.chown("d", ALICE, STAFF)
    assert mode("d") == 0o6755, "a folder keeps its bits"


@case(root=True)
def file_capabilities_go_with_a_write():
    write_file("f", b"program", 0o777)
    # struct vfs_cap_data, revision 2, cap_net_raw permitted.
    value = bytes([1, 0, 0, 2, 0, 0x20, 0, 0]) + bytes(12)
    try:
        os.setxattr("f", "security.capability", value)
    except OSError as error:
        assert error.errno == errno.EOPNOTSUPP, error
        return
    assert os.getxattr("f", "security.capability") == value
    as_user(BOB, lambda: os.write(os.open("f", os.O_WRONLY), b"x"))
    refused(errno.ENODATA, os.getxattr, "f", "security.capability")


@case(root=True)
def owners_are_numbers_without_limits():
    write_file("f")
    for number in (1, 65534, 65535, 65536, (1 << 31) + 1, (1 << 32) - 2):
        os.chown("f", number, number)
        assert owner("f") == (number, number)
    os.chown("f", -1, -1)
    assert owner("f") == ((1 << 32) - 2, (1 << 32) - 2)
    os.symlink("f", "s")
    os.chown("s", ALICE, BOB, follow_symlinks=False)
    assert owner("s") == (ALICE, BOB) and owner("f")[0] == (1 << 32) - 2
