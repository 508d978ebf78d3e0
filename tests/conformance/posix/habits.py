"""What the kernel tells a file system with each request, and no mode of the open file says.

Each case was wrong once because the file system went by the flags of `open`, or by the user, alone. They run on every kind
of mount and on the host. `stored` looks past the kernel's pages: bytes in a wrong place show there, and
nowhere else while the file is cached.
"""

import ctypes
import errno
import fcntl
import mmap
import os
import select
import stat

from harness import ALICE, BOB, STAFF, Child, case, called, skip, write_file

RWF_APPEND, RWF_NOAPPEND = 0x10, 0x20
CAP_FSETID = 4


def stored(path):
    """The bytes of the file as they are read around the kernel's pages."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    page = mmap.mmap(-1, 1 << 16)
    direct = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        return page[:os.preadv(direct, [page], 0)]
    finally:
        os.close(direct)


def append_flag(file, on):
    flags = fcntl.fcntl(file, fcntl.F_GETFL)
    fcntl.fcntl(file, fcntl.F_SETFL, flags | os.O_APPEND if on else flags & ~os.O_APPEND)


@case
def a_store_to_a_mapping_of_an_appending_file_has_its_place():
    """The pages were appended: a file of 42 bytes had 84, and its beginning was as before."""
    write_file("f", b"-" * 42)
    file = os.open("f", os.O_RDWR | os.O_APPEND)
    with mmap.mmap(file, 0) as view:
        view[0:5] = b"HELLO"
        view.flush()
        assert stored("f") == b"HELLO" + b"-" * 37, stored("f")
        os.write(file, b"+tail")
        view[6:11] = b"WORLD"
        view.flush()
    os.close(file)
    expected = b"HELLO-WORLD" + b"-" * 31 + b"+tail"
    assert stored("f") == expected, stored("f")
    assert os.stat("f").st_size == len(expected)


@case
def the_appending_flag_is_that_of_the_moment():
    """A descriptor that was opened to append did so until it was closed."""
    for flags in (os.O_RDWR | os.O_APPEND, os.O_RDWR):
        write_file("f", b"hello world\n")
        file = os.open("f", flags)
        append_flag(file, False)
        assert os.pwrite(file, b"HELLO", 0) == 5
        assert stored("f") == b"HELLO world\n", stored("f")
        append_flag(file, True)
        assert os.pwrite(file, b"tail", 0) == 4
        assert stored("f") == b"HELLO world\ntail", stored("f")
        append_flag(file, False)
        assert os.pwrite(file, b"WORLD", 6) == 5
        assert stored("f") == b"HELLO WORLD\ntail", stored("f")
        os.close(file)


@case
def the_appending_flag_is_shared_with_the_descriptor():
    write_file("f", b"hello")
    file = os.open("f", os.O_RDWR | os.O_APPEND)
    copy = os.dup(file)
    Child(lambda: append_flag(copy, False)).result()
    os.pwrite(file, b"J", 0)
    other = os.open("f", os.O_RDWR | os.O_APPEND)
    os.pwrite(other, b"!", 0)
    assert stored("f") == b"Jello!", stored("f")


def written(file, data, offset, flags):
    try:
        assert os.pwritev(file, [data], offset, flags) == len(data)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.EINVAL):
            skip("the kernel does not know the flag")
        raise


@case
def one_write_may_append_or_not():
    """`RWF_NOAPPEND` and `RWF_APPEND` of pwritev2(2): the request has the flags of the descriptor all the same."""
    write_file("f", b"hello")
    file = os.open("f", os.O_RDWR | os.O_APPEND)
    os.write(file, b" world")
    written(file, b"HELLO", 0, RWF_NOAPPEND)
    assert stored("f") == b"HELLO world", stored("f")
    written(file, b"W", 6, RWF_NOAPPEND)
    os.write(file, b"!")
    assert stored("f") == b"HELLO World!", stored("f")
    os.truncate("f", 8)
    written(file, b"J", 0, RWF_NOAPPEND)
    os.write(file, b".")
    assert stored("f") == b"JELLO Wo.", stored("f")
    plain = os.open("f", os.O_RDWR)
    written(plain, b"?", 0, RWF_APPEND)
    written(plain, b"H", 0, 0)
    assert stored("f") == b"HELLO Wo.?", stored("f")


def capabilities(change):
    """Calls `change` with the permitted set of this process (a number), and has what it returns in effect."""
    class Header(ctypes.Structure):
        _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]

    class Data(ctypes.Structure):
        _fields_ = [(name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable")]

    header, data = Header(0x20080522, 0), (Data * 2)()
    called("capget", ctypes.byref(header), data)
    wanted = change(data[0].permitted | data[1].permitted << 32)
    for half, bits in zip(data, (wanted & 0xFFFFFFFF, wanted >> 32)):
        half.effective = half.permitted = bits
    called("capset", ctypes.byref(header), data)


def without_fsetid(function, *arguments):
    """`function(*arguments)` in a process of user 0 that has every capability but CAP_FSETID."""
    def run():
        capabilities(lambda have: have & ~(1 << CAP_FSETID))
        return function(*arguments)

    return Child(run).result()


def as_user_with_fsetid(user, function, *arguments):
    """`function(*arguments)` in a process of `user` that has CAP_FSETID alone."""
    def run():
        called("prctl", 8, 1, 0, 0, 0)  # PR_SET_KEEPCAPS
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        capabilities(lambda have: have & 1 << CAP_FSETID)
        return function(*arguments)

    return Child(run).result()


def changes():
    def direct(path):
        page = mmap.mmap(-1, 4096)
        os.writev(os.open(path, os.O_WRONLY | os.O_DIRECT), [page])

    def copy_in(path):
        source = os.open("source", os.O_RDONLY)
        os.copy_file_range(source, os.open(path, os.O_WRONLY), 4)

    def allocate(mode):
        size = ctypes.c_long(4096)
        return lambda path: called("fallocate64", os.open(path, os.O_RDWR), mode, ctypes.c_long(0), size)

    def change_size(path):
        os.ftruncate(os.open(path, os.O_RDWR), 3)

    return {
        "write": lambda path: os.write(os.open(path, os.O_WRONLY), b"evil"),
        "append": lambda path: os.write(os.open(path, os.O_WRONLY | os.O_APPEND), b"evil"),
        "direct": direct,
        "truncate": lambda path: os.truncate(path, 3),
        "ftruncate": change_size,
        "open": lambda path: os.open(path, os.O_WRONLY | os.O_TRUNC),
        "allocate": allocate(0),
        "punch": allocate(3),
        "copy": copy_in,
    }


def program(path, bits=0o6777, owner=ALICE):
    write_file(path, b"program")
    os.chown(path, owner, STAFF)
    os.chmod(path, bits)


def mode(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


@case(root=True)
def set_id_bits_go_with_a_change_by_root_without_its_capability():
    """User 0 kept the bits, whatever capabilities it had: in a container it has not this one."""
    write_file("source", b"0123456789")
    for name, change in changes().items():
        for owner in (0, ALICE):
            path = "%s-%d" % (name, owner)
            program(path, owner=owner)
            without_fsetid(change, path)
            assert mode(path) == 0o777, "%s left %o" % (path, mode(path))


@case(root=True)
def set_id_bits_stay_with_a_change_by_root():
    write_file("source", b"0123456789")
    for name, change in changes().items():
        program(name)
        change(name)
        assert mode(name) == 0o6777, "%s left %o" % (name, mode(name))


@case(root=True)
def set_id_bits_stay_with_a_write_of_a_user_with_the_capability():
    os.chmod(".", 0o777)
    program("f")
    as_user_with_fsetid(BOB, changes()["write"], "f")
    assert mode("f") == 0o6777, oct(mode("f"))


@case(root=True)
def set_id_bits_stay_with_a_change_of_size_by_a_user_with_the_capability():
    """Only user 0 kept them: uvfs looked at the user, and did not obey the flag of the request."""
    os.chmod(".", 0o777)
    for name in ("truncate", "ftruncate", "open"):
        program(name)
        as_user_with_fsetid(BOB, changes()[name], name)
        assert mode(name) == 0o6777, "%s left %o" % (name, mode(name))


@case(root=True)
def set_id_bits_stay_with_a_store_to_a_mapping():
    def store():
        with mmap.mmap(os.open("f", os.O_RDWR), 0) as view:
            view[0:4] = b"evil"
            view.flush()

    program("f")
    without_fsetid(store)
    assert stored("f") == b"evilram"
    assert mode("f") == 0o6777, oct(mode("f"))


@case(root=True)
def a_group_bit_that_locks_goes_without_capability_and_membership():
    for name, groups, left in (("stranger", [], 0o666), ("member", [STAFF], 0o2666)):
        program(name, 0o2666)

        def write(name=name, groups=groups):
            os.setgroups(groups)
            os.write(os.open(name, os.O_WRONLY), b"evil")

        without_fsetid(write)
        assert mode(name) == left, "%s left %o" % (name, mode(name))


@case
def a_file_is_always_ready():
    write_file("f", b"x")
    file = os.open("f", os.O_RDWR)
    poll = select.poll()
    poll.register(file, select.POLLIN | select.POLLOUT)
    assert poll.poll(0) == [(file, select.POLLIN | select.POLLOUT)]
