"""Memory maps: shared with other processes and with read and write; ends of files; lifetimes."""

import mmap
import os
import signal
import struct
import time

from harness import Child, case, pattern, read_file, refused, soon, statx, write_file

PAGE = 4096


def mapped(name, length, writable=True, shared=True):
    file = os.open(name, os.O_RDWR if writable else os.O_RDONLY)
    flags = mmap.MAP_SHARED if shared else mmap.MAP_PRIVATE
    rights = mmap.PROT_READ | (mmap.PROT_WRITE if writable or not shared else 0)
    try:
        return mmap.mmap(file, length, flags=flags, prot=rights)
    finally:
        os.close(file)


@case
def maps_and_calls_see_each_other():
    write_file("f", bytes(4 * PAGE))
    file = os.open("f", os.O_RDWR)
    view = mapped("f", 4 * PAGE)
    for number in range(100):
        at = number * 163
        os.pwrite(file, b"%04d" % number, at)
        assert view[at : at + 4] == b"%04d" % number
        view[at : at + 4] = b"m%03d" % number
        assert os.pread(file, 4, at) == b"m%03d" % number
    view.flush()
    assert read_file("f") == view[:]


@case
def two_processes_share_a_map():
    write_file("f", bytes(2 * PAGE))
    view = mapped("f", 2 * PAGE)

    def answer():
        other = mapped("f", 2 * PAGE)
        for number in range(1, 50):
            soon(lambda: other[0] == number)
            other[PAGE] = number

    child = Child(answer)
    for number in range(1, 50):
        view[0] = number
        soon(lambda: view[PAGE] == number)
    child.result()
    view.flush()
    assert read_file("f")[0] == 49 and read_file("f")[PAGE] == 49


@case
def a_map_outlives_descriptor_and_name():
    write_file("f", pattern(3 * PAGE))
    view = mapped("f", 3 * PAGE)
    os.unlink("f")
    assert view[:] == pattern(3 * PAGE)
    view[PAGE] = 0xEE
    view.flush()
    assert view[PAGE] == 0xEE


@case
def private_maps_stay_private():
    write_file("f", pattern(PAGE))
    view = mapped("f", PAGE, writable=False, shared=False)
    view[0:5] = b"mine!"
    assert read_file("f") == pattern(PAGE)


@case
def beyond_the_end_is_a_bus_error():
    write_file("f", pattern(PAGE + 100))
    view = mapped("f", PAGE + 100)
    assert view[PAGE + 99] == pattern(PAGE + 100)[PAGE + 99]
    os.truncate("f", 100)

    def touch():
        signal.signal(signal.SIGBUS, signal.SIG_DFL)
        return view[PAGE + 50]

    child = Child(touch)
    try:
        child.result()
        raise AssertionError("read past the end")
    except ChildProcessError:
        assert os.WIFSIGNALED(child.status) and os.WTERMSIG(child.status) == signal.SIGBUS


@case
def truncation_under_a_map():
    write_file("f", pattern(4 * PAGE))
    view = mapped("f", 4 * PAGE)
    view[3 * PAGE] = 1
    os.truncate("f", 100)
    assert view[:100] == pattern(4 * PAGE)[:100] and view[100:PAGE] == bytes(PAGE - 100)
    os.truncate("f", 4 * PAGE)
    assert view[PAGE:] == bytes(3 * PAGE), "old bytes came back"
    view[2 * PAGE : 2 * PAGE + 3] = b"new"
    assert read_file("f")[2 * PAGE : 2 * PAGE + 3] == b"new"


@case
def growth_shows_in_the_map():
    write_file("f", b"x" * 10)
    view = mapped("f", 10)
    with open("f", "ab") as file:
        file.write(b"y" * 20)
    view.resize(30) if hasattr(view, "resize") else None
    assert view[:30] == b"x" * 10 + b"y" * 20


@case
def what_a_map_wrote_is_read_after_closing():
    for number in range(10):
        write_file("f", bytes(5 * PAGE))
        view = mapped("f", 5 * PAGE)
        view[:] = pattern(5 * PAGE, number)
        view.close()
        assert read_file("f") == pattern(5 * PAGE, number)


@case
def maps_want_the_right_descriptor():
    write_file("f", bytes(PAGE))
    file = os.open("f", os.O_RDONLY)
    refused(13, mmap.mmap, file, PAGE, flags=mmap.MAP_SHARED, prot=mmap.PROT_WRITE | mmap.PROT_READ)
    write_only = os.open("f", os.O_WRONLY)
    refused(13, mmap.mmap, write_only, PAGE, flags=mmap.MAP_SHARED, prot=mmap.PROT_READ)


@case
def a_mapped_write_moves_the_time():
    write_file("f", bytes(PAGE))
    os.utime("f", ns=(10**18, 10**18))
    view = mapped("f", PAGE)
    view[0] = 1
    view.flush()
    view.close()
    file = os.open("f", os.O_RDWR)
    os.fsync(file)
    assert os.fstat(file).st_mtime_ns > 10**18


def times_alone(path):
    """Modification and change, as `stat -c '%Y %Z'` asks for them: for nothing beside."""
    seen = statx(path, 0xC0)
    seconds_and_more = struct.Struct("<qI")
    times = (seconds_and_more.unpack_from(seen, at) for at in (112, 96))
    return tuple(seconds * 10**9 + more for seconds, more in times)


@case
def a_mapped_write_shows_its_time_after_closing():
    """xfstests generic/080 and 215 showed: where the kernel maps a host file directly, times of before were shown
    for as long as attributes are believed; nobody hears of such a write."""
    for flags in (0, os.O_CREAT | os.O_EXCL):
        if not flags:
            write_file("f", bytes(PAGE))
            times_alone("f")
        file = os.open("f", os.O_RDWR | flags)
        os.ftruncate(file, PAGE)
        view = mmap.mmap(file, PAGE)
        os.close(file)
        before = times_alone("f")
        time.sleep(0.02)
        view[0] = 1
        view.close()
        seen = times_alone("f")
        assert seen[0] > before[0] and seen[1] > before[1], "%s, before %s" % (seen, before)
        os.unlink("f")


@case
def writing_from_a_map_of_the_same_file():
    data = pattern(8 * PAGE)
    write_file("f", data)
    view = mapped("f", 8 * PAGE)
    file = os.open("f", os.O_RDWR)
    assert os.pwrite(file, memoryview(view)[: 2 * PAGE], 4 * PAGE) == 2 * PAGE
    assert read_file("f") == data[: 4 * PAGE] + data[: 2 * PAGE] + data[6 * PAGE :]
