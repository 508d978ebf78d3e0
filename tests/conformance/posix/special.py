"""Fifos, sockets, devices, inotify, polling, and the paths that /proc shows."""

import ctypes
import errno
import os
import select
import socket
import stat
import struct

from harness import Child, called, case, refused, soon, write_file


@case
def fifos_connect_processes():
    os.mkfifo("fifo", 0o600)
    assert stat.S_ISFIFO(os.stat("fifo").st_mode)
    refused(errno.ENXIO, os.open, "fifo", os.O_WRONLY | os.O_NONBLOCK)
    writer = Child(lambda: os.write(os.open("fifo", os.O_WRONLY), b"through"))
    reader = os.open("fifo", os.O_RDONLY)
    assert os.read(reader, 99) == b"through"
    assert writer.result() == 7
    soon(lambda: os.read(reader, 1) == b"")
    # Still open, it would let the second writer come and go before its reader is there.
    os.close(reader)
    os.rename("fifo", "moved")
    writer = Child(lambda: os.write(os.open("moved", os.O_WRONLY), b"again"))
    again = os.open("moved", os.O_RDONLY)
    assert os.read(again, 99) == b"again"
    writer.result()


@case
def sockets_connect_processes():
    server = socket.socket(socket.AF_UNIX)
    server.bind("sock")
    assert stat.S_ISSOCK(os.stat("sock").st_mode)
    server.listen()

    def ask(path):
        client = socket.socket(socket.AF_UNIX)
        client.connect(path)
        client.sendall(b"question")
        return client.recv(99)

    for path in ("sock", "moved"):
        child = Child(lambda: ask(path))
        peer, _ = server.accept()
        assert peer.recv(99) == b"question"
        peer.sendall(b"answer")
        assert child.result() == b"answer"
        if path == "sock":
            os.rename("sock", "moved")
    server.close()
    refused(errno.ECONNREFUSED, ask, "moved")
    refused(errno.EADDRINUSE, socket.socket(socket.AF_UNIX).bind, "moved")
    os.unlink("moved")


@case
def a_socket_is_not_opened():
    server = socket.socket(socket.AF_UNIX)
    server.bind("sock")
    refused((errno.ENXIO, errno.EOPNOTSUPP), os.open, "sock", os.O_RDONLY)


@case(root=True)
def device_nodes_keep_their_numbers():
    for kind, check in [(stat.S_IFCHR, stat.S_ISCHR), (stat.S_IFBLK, stat.S_ISBLK)]:
        for major, minor in [(1, 3), (7, 255), (259, 300), (4095, 70000)]:
            name = "node-%d-%d-%d" % (kind, major, minor)
            os.mknod(name, kind | 0o640, os.makedev(major, minor))
            seen = os.stat(name)
            assert check(seen.st_mode) and seen.st_mode & 0o777 == 0o640
            assert (os.major(seen.st_rdev), os.minor(seen.st_rdev)) == (major, minor)
            os.unlink(name)


class Watch:
    """inotify on one path."""

    NAMES = {
        0x2: "modify", 0x4: "attributes", 0x8: "close-write", 0x40: "moved-from", 0x80: "moved-to",
        0x100: "create", 0x200: "delete", 0x400: "delete-self", 0x800: "move-self",
    }

    def __init__(self, path):
        self.file = called("inotify_init1", os.O_NONBLOCK)
        called("inotify_add_watch", self.file, os.fsencode(path), ctypes.c_uint32(sum(self.NAMES)))

    def events(self):
        """(what, name) of all that came, within a second of the first question."""
        found = []
        while select.select([self.file], [], [], 1 if not found else 0.05)[0]:
            data = os.read(self.file, 65536)
            while data:
                _, mask, _, length = struct.unpack_from("iIII", data)
                name = data[16 : 16 + length].rstrip(b"\0").decode()
                found += [(what, name) for bit, what in self.NAMES.items() if mask & bit]
                data = data[16 + length :]
        return found


@case
def inotify_tells_of_local_changes():
    os.mkdir("d")
    watch = Watch("d")
    steps = [
        (lambda: write_file("d/f", b"x"), [("create", "f"), ("modify", "f"), ("close-write", "f")]),
        (lambda: os.chmod("d/f", 0o600), [("attributes", "f")]),
        (lambda: os.rename("d/f", "d/g"), [("moved-from", "f"), ("moved-to", "g")]),
        (lambda: os.mkdir("d/s"), [("create", "s")]),
        (lambda: os.unlink("d/g"), [("delete", "g")]),
        (lambda: os.rmdir("d/s"), [("delete", "s")]),
    ]
    for step, expected in steps:
        Child(step).result()
        events = watch.events()
        assert [event for event in expected if event not in events] == [], events


@case
def inotify_on_a_file():
    write_file("f")
    watch = Watch("f")
    with open("f", "ab") as file:
        file.write(b"more")
    events = watch.events()
    assert ("modify", "") in events and ("close-write", "") in events, events
    os.rename("f", "g")
    assert ("move-self", "") in watch.events()
    os.unlink("g")
    assert ("delete-self", "") in watch.events()


@case
def files_are_always_ready():
    write_file("f", b"x")
    file = os.open("f", os.O_RDWR)
    readable, writable, _ = select.select([file], [file], [], 5)
    assert readable and writable


@case
def a_path_can_be_resolved_in_proc():
    os.mkdir("d")
    file = os.open("d/f", os.O_CREAT | os.O_RDWR)
    assert os.readlink("/proc/self/fd/%d" % file) == os.path.join(os.getcwd(), "d/f")
    os.rename("d", "e")
    assert os.readlink("/proc/self/fd/%d" % file) == os.path.join(os.getcwd(), "e/f")
    os.unlink("e/f")
    assert os.readlink("/proc/self/fd/%d" % file).endswith(" (deleted)")
