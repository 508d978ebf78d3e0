"""POSIX access control lists, through setfacl and getfacl. Needs root and the package acl."""

import errno
import os
import shutil
import stat
import struct
import subprocess

from harness import ALICE, BOB, GUESTS, STAFF, as_user, case, read_file, refused, skip, write_file


def setfacl(*words):
    answer = subprocess.run(["setfacl", *words], capture_output=True, text=True)
    if answer.returncode != 0:
        if "not supported" in answer.stderr:
            skip("ACLs are not offered")
        raise AssertionError(answer.stderr.strip())


def getfacl(path):
    command = ["getfacl", "--omit-header", "--numeric", "--no-effective", path]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return sorted(line for line in answer.stdout.splitlines() if line)


def owned(path, mode=0o640, user=ALICE, group=ALICE):
    if not shutil.which("setfacl"):
        skip("setfacl is missing")
    write_file(path, b"data")
    os.chown(path, user, group)
    os.chmod(path, mode)


def mode(path):
    return stat.S_IMODE(os.stat(path).st_mode)


@case(root=True)
def a_named_user_may_read():
    owned("f", 0o600)
    refused(errno.EACCES, as_user, BOB, read_file, "f")
    setfacl("-m", "u:%d:r" % BOB, "f")
    assert as_user(BOB, read_file, "f") == b"data"
    assert as_user(BOB, os.access, "f", os.R_OK) and not as_user(BOB, os.access, "f", os.W_OK)
    refused(errno.EACCES, as_user, BOB, write_file, "f")
    refused(errno.EACCES, as_user, GUESTS, read_file, "f")
    assert getfacl("f") == sorted(["user::rw-", "user:%d:r--" % BOB, "group::---", "mask::r--", "other::---"])
    setfacl("-b", "f")
    refused(errno.EACCES, as_user, BOB, read_file, "f")


@case(root=True)
def a_named_user_may_be_shut_out():
    owned("f", 0o644)
    setfacl("-m", "u:%d:-" % BOB, "f")
    refused(errno.EACCES, as_user, BOB, read_file, "f")
    assert as_user(GUESTS, read_file, "f") == b"data"


@case(root=True)
def named_groups_count_supplementary_too():
    owned("f", 0o600)
    setfacl("-m", "g:%d:rw" % STAFF, "f")
    assert as_user(BOB, read_file, "f", groups=[STAFF]) == b"data"
    as_user(BOB, lambda: os.close(os.open("f", os.O_WRONLY)), groups=[GUESTS, STAFF])
    refused(errno.EACCES, as_user, BOB, read_file, "f", groups=[GUESTS])


@case(root=True)
def the_mask_is_the_group_of_the_mode():
    owned("f", 0o640)
    setfacl("-m", "u:%d:rw" % BOB, "f")
    assert mode("f") == 0o660
    os.chmod("f", 0o640)
    assert "mask::r--" in getfacl("f") and "user:%d:rw-" % BOB in getfacl("f")
    refused(errno.EACCES, as_user, BOB, os.open, "f", os.O_WRONLY)
    assert as_user(BOB, read_file, "f") == b"data"
    os.chmod("f", 0o600)
    refused(errno.EACCES, as_user, BOB, read_file, "f")
    os.chmod("f", 0o777)
    as_user(BOB, lambda: os.close(os.open("f", os.O_RDWR)))
    setfacl("-m", "m::r", "f")
    assert mode("f") == 0o747


@case(root=True)
def default_lists_are_inherited():
    owned("probe")
    os.mkdir("d")
    setfacl("-d", "-m", "u::rwx,g::r-x,o::---,u:%d:rwx" % BOB, "d")

    def make(umask):
        os.umask(umask)
        os.close(os.open("d/f%o" % umask, os.O_CREAT | os.O_WRONLY, 0o666))
        os.mkdir("d/s%o" % umask, 0o777)

    for umask in (0o022, 0o077):
        # Where a default list exists, it takes the place of the umask.
        make(umask)
        inside = getfacl("d/f%o" % umask)
        assert inside == sorted(
            ["user::rw-", "user:%d:rwx" % BOB, "group::r-x", "mask::rw-", "other::---"]), inside
        assert mode("d/f%o" % umask) == 0o660
        below = getfacl("d/s%o" % umask)
        assert "default:user:%d:rwx" % BOB in below and "user:%d:rwx" % BOB in below
    os.chmod("d", 0o755)
    as_user(BOB, lambda: os.close(os.open("d/f77", os.O_RDWR)))
    refused(errno.EACCES, as_user, GUESTS, read_file, "d/f77")
    os.mkdir("d/s77/deeper")
    assert "default:user:%d:rwx" % BOB in getfacl("d/s77/deeper")
    os.mkfifo("d/fifo", 0o600)
    assert "mask::---" in getfacl("d/fifo")
    os.symlink("x", "d/soft")


@case(root=True)
def without_a_default_list_the_umask_counts():
    owned("probe")
    os.mkdir("d")
    setfacl("-m", "u:%d:rwx" % BOB, "d")
    os.umask(0o027)
    os.close(os.open("d/f", os.O_CREAT | os.O_WRONLY, 0o666))
    assert mode("d/f") == 0o640 and len(getfacl("d/f")) == 3
    setfacl("-d", "-m", "u:%d:rwx" % BOB, "d")
    setfacl("-k", "d")
    os.mkdir("d/sub")
    assert len(getfacl("d/sub")) == 3


@case(root=True)
def lists_guard_folders():
    owned("probe")
    os.mkdir("d", 0o700)
    write_file("d/f", b"inside")
    refused(errno.EACCES, as_user, BOB, read_file, "d/f")
    setfacl("-m", "u:%d:x" % BOB, "d")
    assert as_user(BOB, read_file, "d/f") == b"inside"
    refused(errno.EACCES, as_user, BOB, os.listdir, "d")
    setfacl("-m", "u:%d:rwx" % BOB, "d")
    as_user(BOB, write_file, "d/new")
    assert sorted(as_user(BOB, os.listdir, "d")) == ["f", "new"]
    setfacl("-x", "u:%d" % BOB, "d")
    refused(errno.EACCES, as_user, BOB, os.stat, "d/f")


@case(root=True)
def only_the_owner_sets_lists():
    owned("f", 0o666)
    setfacl("-m", "u:%d:r" % GUESTS, "f")
    value = os.getxattr("f", "system.posix_acl_access")
    refused(errno.EPERM, as_user, BOB, os.setxattr, "f", "system.posix_acl_access", value)
    as_user(ALICE, os.setxattr, "f", "system.posix_acl_access", value)
    refused((errno.EACCES, errno.EINVAL), os.setxattr, "f", "system.posix_acl_default", value)


@case(root=True)
def malformed_lists_are_refused():
    owned("f", 0o644)
    setfacl("-m", "u:%d:r" % BOB, "f")
    entry = struct.Struct("<HHI").pack
    user, group, other = entry(1, 6, 2**32 - 1), entry(4, 4, 2**32 - 1), entry(32, 4, 2**32 - 1)
    named, mask = entry(2, 4, BOB), entry(16, 4, 2**32 - 1)
    version = struct.pack("<I", 2)
    name = "system.posix_acl_access"
    os.setxattr("f", name, version + user + named + group + mask + other)
    for bad in [
        version + user + named + group + other,
        version + user + group,
        version + other + group + user,
        version + user + group + entry(99, 4, 0) + other,
        version + user[:5],
    ]:
        refused(errno.EINVAL, os.setxattr, "f", name, bad)
    assert "user:%d:r--" % BOB in getfacl("f")
    refused((errno.EINVAL, errno.EOPNOTSUPP), os.setxattr, "f", name, struct.pack("<I", 7) + user + group + other)


@case(root=True)
def a_list_that_says_no_more_than_the_mode_is_none():
    owned("f", 0o644)
    setfacl("-m", "u::rw,g::r,o::-", "f")
    assert mode("f") == 0o640 and len(getfacl("f")) == 3
    refused(errno.ENODATA, os.getxattr, "f", "system.posix_acl_access")


@case(root=True)
def copies_and_renames_carry_lists():
    owned("f", 0o640)
    setfacl("-m", "u:%d:rw,g:%d:r" % (BOB, STAFF), "f")
    subprocess.run(["cp", "-a", "f", "copy"], check=True)
    assert getfacl("copy") == getfacl("f")
    before = getfacl("f")
    os.rename("f", "moved")
    assert getfacl("moved") == before
    os.chown("moved", BOB, BOB)
    assert getfacl("moved") == before
