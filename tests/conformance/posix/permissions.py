"""Who may do what: modes, groups, sticky directories, search rights, several users. Needs root."""

import errno
import os
import stat

from harness import ALICE, BOB, GUESTS, STAFF, as_user, case, read_file, refused, write_file


def owned(path, mode, user=ALICE, group=ALICE, data=b"data"):
    write_file(path, data)
    os.chown(path, user, group)
    os.chmod(path, mode)


def folder(path, mode, user=ALICE, group=ALICE):
    os.mkdir(path)
    os.chown(path, user, group)
    os.chmod(path, mode)


@case(root=True)
def the_mode_decides():
    def rights(path):
        return [os.access(path, want) for want in (os.R_OK, os.W_OK, os.X_OK)]

    def opens(path):
        outcome = []
        for flags in (os.O_RDONLY, os.O_WRONLY):
            try:
                os.close(os.open(path, flags))
                outcome.append(True)
            except PermissionError:
                outcome.append(False)
        return outcome

    for mode in (0o000, 0o400, 0o600, 0o640, 0o064, 0o007, 0o755, 0o070):
        owned("f", mode)
        for user, groups, shift in [(ALICE, [], 6), (BOB, [ALICE], 3), (BOB, [], 0)]:
            bits = mode >> shift & 7
            expected = [bool(bits & 4), bool(bits & 2), bool(bits & 1)]
            assert as_user(user, rights, "f", groups=groups) == expected, (oct(mode), user, groups)
            assert as_user(user, opens, "f", groups=groups) == expected[:2], (oct(mode), user, groups)


@case(root=True)
def access_asks_for_the_real_user():
    owned("f", 0o600)

    def as_effective_root():
        os.setresuid(BOB, 0, 0)
        return os.access("f", os.R_OK), os.access("f", os.R_OK, effective_ids=True)

    assert as_user(0, as_effective_root) == (False, True)


@case(root=True)
def supplementary_groups_count():
    owned("f", 0o640, ALICE, STAFF)
    refused(errno.EACCES, as_user, BOB, read_file, "f")
    assert as_user(BOB, read_file, "f", groups=[GUESTS, STAFF]) == b"data"
    many = list(range(63000, 63060)) + [STAFF]
    assert as_user(BOB, read_file, "f", groups=many) == b"data"
    refused(errno.EACCES, as_user, BOB, write_file, "f", b"", groups=[STAFF])
    folder("d", 0o770, ALICE, STAFF)
    as_user(BOB, write_file, "d/new", groups=[STAFF])
    refused(errno.EACCES, as_user, BOB, write_file, "d/other")


@case(root=True)
def search_and_list_are_two_rights():
    folder("search", 0o711)
    folder("list", 0o744)
    for name in ("search/f", "list/f"):
        owned(name, 0o644)
    assert as_user(BOB, read_file, "search/f") == b"data"
    refused(errno.EACCES, as_user, BOB, os.listdir, "search")
    assert as_user(BOB, os.listdir, "list") == ["f"]
    refused(errno.EACCES, as_user, BOB, read_file, "list/f")
    refused(errno.EACCES, as_user, BOB, os.stat, "list/missing")
    refused(errno.ENOENT, as_user, BOB, os.stat, "search/missing")
    # A right withdrawn counts at once, also for what has been looked up before.
    os.chmod("search", 0o700)
    refused(errno.EACCES, as_user, BOB, read_file, "search/f")


@case(root=True)
def changing_a_folder_wants_its_write_right():
    folder("d", 0o755)
    owned("d/f", 0o666)
    owned("mine", 0o666, BOB, BOB)
    calls = [
        lambda: write_file("d/new"),
        lambda: os.mkdir("d/sub"),
        lambda: os.symlink("x", "d/soft"),
        lambda: os.mkfifo("d/fifo"),
        lambda: os.unlink("d/f"),
        lambda: os.rename("d/f", "d/g"),
        lambda: os.link("d/f", "d/h"),
        lambda: os.rename("mine", "d/mine"),
    ]
    for call in calls:
        refused(errno.EACCES, as_user, BOB, call)
    assert os.listdir("d") == ["f"]


@case(root=True)
def sticky_folders_protect_entries():
    folder("d", 0o1777, 0, 0)
    for name in ("d/alice", "d/alice2"):
        owned(name, 0o666)
    folder("d/sub", 0o777)
    owned("d/bob", 0o666, BOB, BOB)
    refused((errno.EPERM, errno.EACCES), as_user, BOB, os.unlink, "d/alice")
    refused((errno.EPERM, errno.EACCES), as_user, BOB, os.rmdir, "d/sub")
    refused((errno.EPERM, errno.EACCES), as_user, BOB, os.rename, "d/alice", "d/other")
    refused((errno.EPERM, errno.EACCES), as_user, BOB, os.rename, "d/bob", "d/alice")
    as_user(BOB, os.rename, "d/bob", "d/bob2")
    as_user(ALICE, os.unlink, "d/alice")
    folder("own", 0o1777)
    owned("own/bob", 0o600, BOB, BOB)
    as_user(ALICE, os.unlink, "own/bob")


@case(root=True)
def only_owners_change_modes_and_times():
    owned("f", 0o666)
    refused(errno.EPERM, as_user, BOB, os.chmod, "f", 0o777)
    refused(errno.EPERM, as_user, BOB, os.utime, "f", (1, 1))
    as_user(BOB, os.utime, "f")
    os.chmod("f", 0o644)
    refused(errno.EACCES, as_user, BOB, os.utime, "f")
    as_user(ALICE, os.utime, "f", (1, 1))
    as_user(ALICE, os.chmod, "f", 0o600)


@case(root=True)
def owners_give_to_their_groups_only():
    owned("f", 0o644, ALICE, ALICE)
    refused(errno.EPERM, as_user, ALICE, os.chown, "f", BOB, -1)
    refused(errno.EPERM, as_user, ALICE, os.chown, "f", -1, GUESTS, groups=[STAFF])
    as_user(ALICE, os.chown, "f", -1, STAFF, groups=[STAFF])
    assert os.stat("f").st_gid == STAFF
    as_user(ALICE, os.chown, "f", ALICE, -1)
    refused(errno.EPERM, as_user, BOB, os.chown, "f", -1, BOB)
    refused(errno.EPERM, as_user, BOB, os.chown, "f", BOB, -1)


@case(root=True)
def rights_are_those_of_the_open():
    owned("f", 0o666)

    def keep():
        file = os.open("f", os.O_RDWR)
        os.seteuid(0)
        os.chmod("f", 0o000)
        os.seteuid(BOB)
        os.pwrite(file, b"DATA", 0)
        assert os.pread(file, 9, 0) == b"DATA"
        os.ftruncate(file, 2)
        refused(errno.EACCES, os.open, "f", os.O_RDONLY)

    def start():
        os.seteuid(BOB)
        keep()

    as_user(0, start)
    assert os.stat("f").st_size == 2


@case(root=True)
def root_passes_but_does_not_execute_what_no_user_may():
    owned("f", 0o000)
    assert read_file("f") == b"data"
    assert os.access("f", os.R_OK | os.W_OK) and not os.access("f", os.X_OK)
    refused(errno.EACCES, os.execv, "f", ["f"])
    folder("d", 0o000)
    write_file("d/x")
    assert os.listdir("d") == ["x"]


@case(root=True)
def truncation_wants_the_write_right():
    owned("f", 0o444)
    refused(errno.EACCES, as_user, BOB, os.truncate, "f", 0)
    refused(errno.EACCES, as_user, ALICE, os.truncate, "f", 0)
    refused(errno.EACCES, as_user, ALICE, os.open, "f", os.O_RDONLY | os.O_TRUNC)
    assert read_file("f") == b"data"


@case(root=True)
def devices_are_for_root():
    os.chmod(".", 0o777)
    refused(errno.EPERM, as_user, BOB, os.mknod, "d", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    as_user(BOB, os.mknod, "regular", stat.S_IFREG | 0o600)
    as_user(BOB, os.mkfifo, "fifo")
    assert os.stat("regular").st_uid == BOB and stat.S_ISFIFO(os.stat("fifo").st_mode)


@case(root=True)
def programs_run_as_their_caller():
    write_file("who", b"#!/bin/sh\nid -u\nid -G\n", 0o755)
    os.chmod(".", 0o755)

    def ask():
        import subprocess
        return subprocess.run(["./who"], capture_output=True, text=True).stdout.split()

    assert as_user(BOB, ask, groups=[STAFF]) == [str(BOB), str(BOB), str(STAFF)]
    os.chmod("who", 0o744)
    refused(errno.EACCES, as_user, BOB, ask)
