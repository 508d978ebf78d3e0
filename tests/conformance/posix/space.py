"""Space: fallocate in its modes, holes and data, block counts, the numbers of statfs."""

import ctypes
import errno
import os
import subprocess

from harness import called, case, pattern, read_file, refused, skip, write_file

KEEP, PUNCH, COLLAPSE, ZERO, INSERT = 1, 2, 8, 16, 32
PAGE = 4096


def fallocate(file, mode, offset, length):
    called("fallocate64", file, mode, ctypes.c_longlong(offset), ctypes.c_longlong(length))


def offered(file, mode, offset, length):
    """The mode, or a skip where the file system lacks it."""
    try:
        fallocate(file, mode, offset, length)
    except OSError as error:
        if error.errno == errno.EOPNOTSUPP:
            skip("fallocate mode %d is not offered" % mode)
        raise


def opened(data=b""):
    write_file("f", data)
    return os.open("f", os.O_RDWR)


@case
def allocation_extends_with_zeros():
    file = opened(b"abc")
    fallocate(file, 0, 0, 3 * PAGE)
    assert os.fstat(file).st_size == 3 * PAGE and read_file("f") == b"abc" + bytes(3 * PAGE - 3)
    fallocate(file, 0, PAGE, PAGE)
    assert os.fstat(file).st_size == 3 * PAGE
    os.posix_fallocate(file, 3 * PAGE, 100)
    assert os.fstat(file).st_size == 3 * PAGE + 100
    assert os.fstat(file).st_blocks * 512 >= 3 * PAGE


@case
def allocation_may_keep_the_size():
    file = opened(b"abc")
    fallocate(file, KEEP, 0, 8 * PAGE)
    assert os.fstat(file).st_size == 3 and read_file("f") == b"abc"
    os.pwrite(file, b"x", 2 * PAGE)
    assert os.pread(file, 99 * PAGE, 3) == bytes(2 * PAGE - 3) + b"x"


@case
def punched_holes_read_as_zeros():
    data = pattern(16 * PAGE)
    file = opened(data)
    os.fsync(file)
    blocks = os.fstat(file).st_blocks
    offered(file, PUNCH | KEEP, 4 * PAGE, 8 * PAGE)
    expected = data[: 4 * PAGE] + bytes(8 * PAGE) + data[12 * PAGE :]
    assert read_file("f") == expected
    assert os.fstat(file).st_blocks < blocks
    fallocate(file, PUNCH | KEEP, 100, 50)
    fallocate(file, PUNCH | KEEP, 2 * PAGE - 10, 20)
    fallocate(file, PUNCH | KEEP, 15 * PAGE, 99 * PAGE)
    expected = bytearray(expected)
    expected[100:150] = bytes(50)
    expected[2 * PAGE - 10 : 2 * PAGE + 10] = bytes(20)
    expected[15 * PAGE :] = bytes(PAGE)
    assert read_file("f") == bytes(expected)
    refused((errno.EOPNOTSUPP, errno.EINVAL), fallocate, file, PUNCH, 0, PAGE)


@case
def ranges_become_zero():
    data = pattern(4 * PAGE)
    file = opened(data)
    offered(file, ZERO, 1000, PAGE)
    assert read_file("f") == data[:1000] + bytes(PAGE) + data[1000 + PAGE :]
    fallocate(file, ZERO | KEEP, 3 * PAGE, 9 * PAGE)
    assert os.fstat(file).st_size == 4 * PAGE
    fallocate(file, ZERO, 3 * PAGE, 9 * PAGE)
    assert os.fstat(file).st_size == 12 * PAGE and os.pread(file, 99 * PAGE, 3 * PAGE) == bytes(9 * PAGE)


@case
def collapsing_and_inserting_work_or_refuse():
    data = pattern(8 * PAGE)
    file = opened(data)
    offered(file, COLLAPSE, 2 * PAGE, PAGE)
    assert read_file("f") == data[: 2 * PAGE] + data[3 * PAGE :]
    offered(file, INSERT, 2 * PAGE, PAGE)
    assert read_file("f") == data[: 2 * PAGE] + bytes(PAGE) + data[3 * PAGE :]


@case
def bad_ranges_are_refused():
    file = opened(b"x")
    refused(errno.EINVAL, fallocate, file, 0, 0, 0)
    refused(errno.EINVAL, fallocate, file, 0, -1, 10)
    refused(errno.EINVAL, fallocate, file, 0, 0, -1)
    refused(errno.EFBIG, fallocate, file, 0, (1 << 63) - 2, 100)
    refused(errno.EBADF, fallocate, os.open("f", os.O_RDONLY), 0, 0, 10)
    refused((errno.EISDIR, errno.EBADF), fallocate, os.open(".", os.O_RDONLY), 0, 0, 10)
    assert os.fstat(file).st_size == 1


@case
def data_and_holes_are_found():
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    mebi = 1 << 20
    os.pwrite(file, pattern(PAGE), mebi)
    os.pwrite(file, pattern(PAGE), 3 * mebi)
    os.ftruncate(file, 5 * mebi)
    seek = os.lseek
    data = seek(file, 0, os.SEEK_DATA)
    assert data <= mebi
    if data == 0:
        # Allowed, if useless: everything counts as data up to the end.
        assert seek(file, 0, os.SEEK_HOLE) == 5 * mebi
        skip("holes are not told apart")
    hole = seek(file, data, os.SEEK_HOLE)
    assert mebi + PAGE <= hole < 3 * mebi
    assert hole < seek(file, hole, os.SEEK_DATA) <= 3 * mebi
    assert seek(file, 0, os.SEEK_HOLE) == 0
    refused(errno.ENXIO, seek, file, 4 * mebi, os.SEEK_DATA)
    assert seek(file, 4 * mebi, os.SEEK_HOLE) == 4 * mebi
    refused(errno.ENXIO, seek, file, 5 * mebi, os.SEEK_DATA)
    refused(errno.ENXIO, seek, file, 9 * mebi, os.SEEK_HOLE)


@case
def holes_and_data_of_plain_files():
    file = opened()
    refused(errno.ENXIO, os.lseek, file, 0, os.SEEK_DATA)
    os.pwrite(file, pattern(10 * PAGE), 0)
    assert os.lseek(file, 5, os.SEEK_DATA) == 5
    assert os.lseek(file, 0, os.SEEK_HOLE) == 10 * PAGE


@case
def sparse_files_take_little_space():
    file = os.open("f", os.O_CREAT | os.O_RDWR)
    os.pwrite(file, b"x", 1 << 32)
    os.fsync(file)
    assert os.fstat(file).st_size == (1 << 32) + 1
    assert os.fstat(file).st_blocks * 512 < 1 << 20
    os.pwrite(file, pattern(1 << 20), 0)
    os.fsync(file)
    assert os.fstat(file).st_blocks * 512 >= 1 << 20


@case
def totals_are_plausible():
    totals = os.statvfs(".")
    assert totals.f_bsize > 0 and totals.f_frsize > 0
    assert totals.f_blocks >= totals.f_bfree >= totals.f_bavail > 0
    assert totals.f_files == 0 or totals.f_files >= totals.f_ffree
    assert totals.f_namemax == 255
    listed = subprocess.run(["df", "-P", "."], capture_output=True, text=True)
    assert listed.returncode == 0 and len(listed.stdout.splitlines()) == 2
