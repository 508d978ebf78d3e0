"""Extended attributes: user, trusted and security; flags, sizes, limits, rights."""

import ctypes
import errno
import os

from harness import ALICE, BOB, as_user, case, called, refused, skip, write_file


def prepared(path="f"):
    write_file(path)
    try:
        os.setxattr(path, "user.probe", b"")
        os.removexattr(path, "user.probe")
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            skip("user attributes are not offered")
        raise


def user_names(path):
    return sorted(name for name in os.listxattr(path) if name.startswith("user."))


@case
def set_get_list_remove():
    prepared()
    os.setxattr("f", "user.one", b"first")
    os.setxattr("f", "user.two", bytes(range(256)))
    os.setxattr("f", "user.empty", b"")
    assert os.getxattr("f", "user.two") == bytes(range(256)) and os.getxattr("f", "user.empty") == b""
    assert user_names("f") == ["user.empty", "user.one", "user.two"]
    os.setxattr("f", "user.one", b"longer than before")
    assert os.getxattr("f", "user.one") == b"longer than before"
    os.removexattr("f", "user.one")
    refused(errno.ENODATA, os.getxattr, "f", "user.one")
    refused(errno.ENODATA, os.removexattr, "f", "user.one")
    assert user_names("f") == ["user.empty", "user.two"]


@case
def create_and_replace():
    prepared()
    refused(errno.ENODATA, os.setxattr, "f", "user.a", b"1", os.XATTR_REPLACE)
    os.setxattr("f", "user.a", b"1", os.XATTR_CREATE)
    refused(errno.EEXIST, os.setxattr, "f", "user.a", b"2", os.XATTR_CREATE)
    os.setxattr("f", "user.a", b"3", os.XATTR_REPLACE)
    assert os.getxattr("f", "user.a") == b"3"


@case
def sizes_are_reported_and_checked():
    prepared()
    os.setxattr("f", "user.a", b"12345")
    buffer = ctypes.create_string_buffer(100)
    assert called("getxattr", b"f", b"user.a", None, 0) == 5
    refused(errno.ERANGE, called, "getxattr", b"f", b"user.a", buffer, 4)
    assert called("getxattr", b"f", b"user.a", buffer, 5) == 5 and buffer.raw[:5] == b"12345"
    needed = called("listxattr", b"f", None, 0)
    refused(errno.ERANGE, called, "listxattr", b"f", buffer, needed - 1)
    assert called("listxattr", b"f", buffer, 100) == needed
    refused(errno.E2BIG, os.setxattr, "f", "user.big", b"x" * 65537)
    refused((errno.ERANGE, errno.ENAMETOOLONG), os.setxattr, "f", "user." + "n" * 251, b"x")
    os.setxattr("f", "user." + "n" * 250, b"x")
    assert os.getxattr("f", "user." + "n" * 250) == b"x"


@case
def many_attributes():
    prepared()
    names = sorted("user.number-%02d" % number for number in range(40))
    for name in names:
        os.setxattr("f", name, name.encode())
    assert user_names("f") == names
    assert all(os.getxattr("f", name) == name.encode() for name in names)


@case
def they_belong_to_the_file_not_the_name():
    prepared()
    file = os.open("f", os.O_RDWR)
    os.setxattr("f", "user.a", b"kept")
    os.link("f", "g")
    os.rename("f", "h")
    assert os.getxattr("g", "user.a") == os.getxattr("h", "user.a") == b"kept"
    os.unlink("g")
    os.unlink("h")
    assert os.getxattr(file, "user.a") == b"kept"
    os.setxattr(file, "user.b", b"late")
    assert sorted(name for name in os.listxattr(file) if name.startswith("user.")) == ["user.a", "user.b"]
    write_file("f")
    assert user_names("f") == []


@case
def what_may_carry_them():
    prepared()
    os.mkdir("d")
    os.setxattr("d", "user.a", b"x")
    assert user_names("d") == ["user.a"]
    os.symlink("f", "soft")
    refused((errno.EPERM, errno.EOPNOTSUPP), os.setxattr, "soft", "user.a", b"x", follow_symlinks=False)
    os.mkfifo("fifo")
    refused((errno.EPERM, errno.EOPNOTSUPP), os.setxattr, "fifo", "user.a", b"x")
    refused((errno.EOPNOTSUPP, errno.EPERM), os.setxattr, "f", "nonsense.a", b"x")
    refused(errno.ENOENT, os.setxattr, "missing", "user.a", b"x")


@case(root=True)
def rights_to_them_are_rights_to_the_data():
    prepared()
    os.setxattr("f", "user.a", b"x")
    os.chown("f", ALICE, ALICE)
    os.chmod("f", 0o644)
    assert as_user(BOB, os.getxattr, "f", "user.a") == b"x"
    refused(errno.EACCES, as_user, BOB, os.setxattr, "f", "user.b", b"y")
    os.chmod("f", 0o600)
    refused(errno.EACCES, as_user, BOB, os.getxattr, "f", "user.a")
    as_user(ALICE, os.setxattr, "f", "user.b", b"y")
    refused(errno.EPERM, as_user, ALICE, os.setxattr, "f", "security.evil", b"x")


@case(root=True)
def security_and_trusted_names():
    write_file("f")
    for name in ("security.conformance", "trusted.conformance"):
        try:
            os.setxattr("f", name, b"value")
        except OSError as error:
            assert error.errno in (errno.EOPNOTSUPP, errno.EPERM), error
            skip("%s is not offered" % name)
        assert os.getxattr("f", name) == b"value"
    os.chmod("f", 0o666)
    refused((errno.ENODATA, errno.EPERM), as_user, BOB, os.getxattr, "f", "trusted.conformance")
    assert "trusted.conformance" not in as_user(BOB, os.listxattr, "f")
