"""Data of files: appends, holes, large offsets, direct I/O, copies in the kernel, programs."""

import errno
import mmap
import os
import shutil
import socket
import subprocess
import sys

from harness import Child, case, pattern, read_file, refused, skip, soon, write_file

PAGE = 4096


@case
def appends_of_many_writers_are_all_there():
    def append(who):
        file = os.open("log", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        for number in range(200):
            line = b"%d %d %s\n" % (who, number, b"x" * (number * 7 % 300))
            assert os.write(file, line) == len(line)

    for child in [Child(lambda who=who: append(who)) for who in range(4)]:
        child.result()
    seen = {who: [] for who in range(4)}
    for line in read_file("log").splitlines():
        who, number, filler = line.split(b" ")
        assert filler == b"x" * (int(number) * 7 % 300), "torn line"
        seen[int(who)].append(int(number))
    assert all(numbers == list(range(200)) for numbers in seen.values())


@case
def append_goes_to_the_end_wherever_the_offset():
    write_file("f", b"0123456789")
    file = os.open("f", os.O_RDWR | os.O_APPEND)
    os.lseek(file, 3, os.SEEK_SET)
    os.write(file, b"A")
    assert os.lseek(file, 0, os.SEEK_CUR) == 11
    # Linux: with O_APPEND even a positioned write goes to the end.
    os.pwrite(file, b"B", 0)
    assert read_file("f") == b"0123456789AB"
    with open("f", "ab") as other:
        other.write(b"C")
    os.write(file, b"D")
    assert read_file("f") == b"0123456789ABCD"


@case
def truncation_shows_zeros_only():
    data = pattern(3 * PAGE)
    for length in (0, 1, PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 77):
        write_file("f", data)
        os.truncate("f", length)
        assert read_file("f") == data[:length]
        os.truncate("f", 4 * PAGE)
        assert read_file("f") == data[:length] + bytes(4 * PAGE - length)
    os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))
    assert os.stat("f").st_size == 0
    refused(errno.EINVAL, os.truncate, "f", -1)


@case
def writes_past_the_end_leave_zeros():
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    os.pwrite(file, b"start", 0)
    os.pwrite(file, b"end", 3 * PAGE + 5)
    assert os.pread(file, 4 * PAGE, 0) == b"start" + bytes(3 * PAGE) + b"end"
    assert os.pread(file, 10, 4 * PAGE) == b""


@case
def what_one_descriptor_writes_others_see():
    one = os.open("f", os.O_CREAT | os.O_RDWR)
    two = os.open("f", os.O_RDWR)
    for number in range(200):
        os.pwrite(one, b"%06d" % number, number * 3000)
        assert os.pread(two, 6, number * 3000) == b"%06d" % number
        assert os.fstat(two).st_size == os.stat("f").st_size == number * 3000 + 6
    assert Child(lambda: read_file("f")).result() == os.pread(one, 1 << 20, 0)
    os.ftruncate(two, 3)
    assert os.pread(one, 99, 0) == b"000" and os.fstat(one).st_size == 3


@case
def offsets_up_to_the_largest():
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    largest = (1 << 63) - 1
    reached = []
    for end in (1 << 32, 1 << 40, 1 << 43, 1 << 44, 1 << 52, 1 << 62, largest):
        try:
            os.pwrite(file, b"last", end - 4)
        except OSError as error:
            assert error.errno in (errno.EFBIG, errno.EINVAL), error
            break
        assert os.fstat(file).st_size == end
        assert os.pread(file, 4, end - 4) == b"last" and os.pread(file, 9, end - 100) == bytes(9)
        reached.append(end)
    assert 1 << 43 in reached, "files end below 8 TiB"
    refused((errno.EFBIG, errno.EINVAL), os.pwrite, file, b"xx", largest)
    refused(errno.EINVAL, os.pwrite, file, b"x", -1)
    refused(errno.EINVAL, os.lseek, file, -1, os.SEEK_SET)
    os.ftruncate(file, 0)
    try:
        os.ftruncate(file, largest)
    except OSError as error:
        assert error.errno == errno.EFBIG
    else:
        assert os.fstat(file).st_size == largest and os.pread(file, 1, largest - 1) == b"\0"


@case
def direct_io_and_buffered_io_agree():
    write_file("f", pattern(16 * PAGE))
    try:
        direct = os.open("f", os.O_RDWR | os.O_DIRECT)
    except OSError as error:
        if error.errno == errno.EINVAL:
            skip("O_DIRECT is not offered")
        raise
    buffered = os.open("f", os.O_RDWR)
    buffer = mmap.mmap(-1, 4 * PAGE)
    assert os.preadv(direct, [buffer], 4 * PAGE) == 4 * PAGE
    assert buffer[:] == pattern(16 * PAGE)[4 * PAGE : 8 * PAGE]
    buffer[:] = pattern(4 * PAGE, 9)
    assert os.pwritev(direct, [buffer], 8 * PAGE) == 4 * PAGE
    assert os.pread(buffered, 4 * PAGE, 8 * PAGE) == pattern(4 * PAGE, 9)
    os.pwrite(buffered, b"buffered", 8 * PAGE)
    assert os.preadv(direct, [buffer], 8 * PAGE) == 4 * PAGE and buffer[:8] == b"buffered"
    assert os.preadv(direct, [buffer], 14 * PAGE) == 2 * PAGE
    assert os.preadv(direct, [buffer], 16 * PAGE) == 0


@case
def vectors_are_one_write():
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    pieces = [pattern(size, size) for size in (1, 5000, 3, 70000, 4096)]
    assert os.writev(file, pieces) == sum(map(len, pieces))
    buffers = [bytearray(len(piece)) for piece in pieces]
    assert os.preadv(file, buffers, 0) == sum(map(len, pieces))
    assert [bytes(buffer) for buffer in buffers] == pieces


@case
def large_files_read_back():
    data = pattern(8 << 20)
    write_file("f", data)
    assert read_file("f") == data
    file = os.open("f", os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
    for at in range((8 << 20) - 1000, 0, -777_777):
        assert os.pread(file, 1000, at) == data[at : at + 1000]
    os.fsync(file)
    os.fdatasync(file)


@case
def copies_inside_the_kernel():
    data = pattern(1 << 20)
    write_file("from", data)
    source, target = os.open("from", os.O_RDWR), os.open("to", os.O_CREAT | os.O_RDWR)
    copied = 0
    while count := os.copy_file_range(source, target, 300_000, copied, copied + 11):
        copied += count
    assert copied == 1 << 20 and read_file("to") == bytes(11) + data
    assert os.copy_file_range(source, target, 10, 2 << 20, 0) == 0
    assert os.copy_file_range(source, source, 1000, 0, 500_000) == 1000
    assert os.pread(source, 1000, 500_000) == data[:1000]
    refused(errno.EINVAL, os.copy_file_range, source, source, 1000, 0, 500)
    refused(errno.EBADF, os.copy_file_range, target, os.open("to", os.O_RDONLY), 9)


@case
def sendfile_and_splice():
    data = pattern(200_000)
    write_file("f", data)
    file = os.open("f", os.O_RDONLY)
    one, two = socket.socketpair()

    def push():
        sent = 0
        while sent < len(data):
            sent += os.sendfile(one.fileno(), file, sent, len(data) - sent)

    child = Child(push)
    received = b""
    while len(received) < len(data):
        received += two.recv(65536)
    child.result()
    assert received == data
    if not hasattr(os, "splice"):
        return
    reader, writer = os.pipe()
    target = os.open("copy", os.O_CREAT | os.O_WRONLY)
    while count := os.splice(file, writer, 16384):
        while count:
            count -= os.splice(reader, target, count)
    assert read_file("copy") == data


@case
def descriptors_say_what_they_may():
    write_file("f", b"data")
    read_only, write_only = os.open("f", os.O_RDONLY), os.open("f", os.O_WRONLY)
    refused(errno.EBADF, os.write, read_only, b"x")
    refused(errno.EBADF, os.read, write_only, 1)
    refused((errno.EBADF, errno.EINVAL), os.ftruncate, read_only, 0)


@case
def offsets_are_shared_by_copies_only():
    write_file("f", b"0123456789")
    file = os.open("f", os.O_RDONLY)
    other, copy = os.open("f", os.O_RDONLY), os.dup(file)
    os.read(file, 3)
    assert os.read(copy, 2) == b"34" and os.read(other, 2) == b"01"
    Child(lambda: os.read(file, 2)).result()
    assert os.read(file, 1) == b"7"


@case
def programs_run_from_here():
    shutil.copy("/bin/cat", "program")
    os.chmod("program", 0o755)
    assert subprocess.run(["./program"], input=b"hello", capture_output=True).stdout == b"hello"
    write_file("script", b"#!%s\nprint(6 * 7)\n" % sys.executable.encode(), 0o755)
    assert subprocess.run(["./script"], capture_output=True).stdout == b"42\n"
    write_file("not", b"#!/bin/sh\n", 0o644)
    refused(errno.EACCES, subprocess.run, ["./not"])


@case
def a_running_program_is_not_written():
    shutil.copy("/bin/sleep", "program")
    os.chmod("program", 0o755)
    process = subprocess.Popen(["./program", "30"])
    try:
        refused(errno.ETXTBSY, os.open, "program", os.O_WRONLY)
        os.unlink("program")
    finally:
        process.kill()
        process.wait()
    shutil.copy("/bin/sleep", "program")
    os.chmod("program", 0o755)
    writer = os.open("program", os.O_WRONLY)
    refused(errno.ETXTBSY, subprocess.run, ["./program", "0"])
    os.close(writer)
    soon(lambda: subprocess.run(["./program", "0"]).returncode == 0)


@case
def created_for_reading_only_by_mode_is_still_writable():
    """As git does: mode 0444, but the descriptor that created the file may write."""
    file = os.open("f", os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o444)
    os.write(file, b"object")
    os.close(file)
    assert read_file("f") == b"object" and os.stat("f").st_mode & 0o777 == 0o444
