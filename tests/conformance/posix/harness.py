"""What the cases share: registration, a process for each, helpers to act as others.

A case passes when its function returns. It fails by an exception (an `assert` is the usual one), by
dying, or by taking too long; it skips by `skip(why)`. Children made with `Child` carry their result
or exception back, so an `assert` in another process fails the case that waits for it.
"""

import ctypes
import errno
import os
import pickle
import shutil
import signal
import sys
import time
import traceback

QUICK = bool(os.environ.get("QUICK"))
LIMIT_SECONDS = 60
# Two users and two groups that need not exist: the kernel only compares numbers.
ALICE, BOB = 61001, 61002
STAFF, GUESTS = 62001, 62002

libc = ctypes.CDLL(None, use_errno=True)
CASES = []


class Skipped(Exception):
    """The machine or the file system cannot run this case."""


class Case:
    """One registered case."""

    def __init__(self, function, root):
        self.function = function
        self.root = root
        self.name = "%s.%s" % (function.__module__, function.__name__)


def case(function=None, *, root=False):
    """Registers a case; `root=True` for those that act as several users."""
    if function is None:
        return lambda function: case(function, root=root)
    CASES.append(Case(function, root))
    return function


def skip(why):
    raise Skipped(why)


def run(chosen, folder):
    """Runs one case and prints its outcome; true unless it failed."""
    if chosen.root and os.geteuid() != 0:
        print("skipped %s: needs root" % chosen.name, flush=True)
        return True
    place = os.path.join(folder, chosen.name)

    def body():
        os.mkdir(place)
        os.chmod(place, 0o755)
        os.chdir(place)
        os.umask(0o022)
        chosen.function()

    child = Child(body)
    try:
        child.result(LIMIT_SECONDS)
        print("ok %s" % chosen.name, flush=True)
        outcome = True
    except Skipped as reason:
        print("skipped %s: %s" % (chosen.name, reason), flush=True)
        outcome = True
    except BaseException as reason:
        print("FAILED %s: %s" % (chosen.name, describe(reason)), flush=True)
        sys.stderr.write("%s\n%s\n" % (chosen.name, getattr(reason, "origin", "")))
        outcome = False
    shutil.rmtree(place, ignore_errors=True)
    return outcome


def describe(reason):
    """One line: the exception, and the line of the case that raised it."""
    text = "%s: %s" % (type(reason).__name__, reason) if str(reason) else type(reason).__name__
    return (text.replace("\n", " ") + getattr(reason, "place", ""))[:240]


def place_of(reason):
    """The innermost line outside this file."""
    frames = [frame for frame in traceback.extract_tb(reason.__traceback__) if frame.filename != __file__]
    return " (line %d: %s)" % (frames[-1].lineno, frames[-1].line) if frames else ""


class Child:
    """A function in a forked process, as another user if wanted; its result comes back."""

    def __init__(self, function, user=None, group=None, groups=()):
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            status = 1
            try:
                if user is not None:
                    become(user, group if group is not None else user, groups)
                send(writer, ("value", function()))
                status = 0
            except BaseException as reason:
                send(writer, ("error", reason, traceback.format_exc(), place_of(reason)))
            finally:
                os._exit(status)
        os.close(writer)
        self.reader = reader
        self.status = None

    def running(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = status
        return self.status is None

    def kill(self, number=signal.SIGKILL):
        os.kill(self.pid, number)

    def result(self, seconds=20):
        """What the function returned, or its exception; `TimeoutError` when it did not end."""
        deadline = time.monotonic() + seconds
        answer = b""
        os.set_blocking(self.reader, False)
        while True:
            ended = not self.running()
            try:
                while piece := os.read(self.reader, 65536):
                    answer += piece
            except BlockingIOError:
                pass
            if ended:
                break
            if time.monotonic() > deadline:
                self.kill()
                raise TimeoutError("not done after %d s" % seconds)
            time.sleep(0.002)
        os.close(self.reader)
        if not answer:
            raise ChildProcessError("died with status %d" % self.status)
        kind, value, *origin = pickle.loads(answer)
        if kind == "error":
            value.origin, value.place = origin
            raise value
        return value


def send(writer, answer):
    try:
        data = pickle.dumps(answer)
        pickle.loads(data)
    except Exception:
        origin = answer[2:] if answer[0] == "error" else ("", "")
        data = pickle.dumps(("error", RuntimeError(repr(answer[1])), *origin))
    while data:
        data = data[os.write(writer, data):]


def become(user, group, groups):
    os.setgroups(list(groups))
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)


def as_user(user, function, *arguments, group=None, groups=()):
    """`function(*arguments)` in a process of `user`; its result, or its exception."""
    return Child(lambda: function(*arguments), user, group, groups).result()


def refused(number, function, *arguments, **named):
    """Asserts that the call fails with this errno (or one of these)."""
    numbers = number if isinstance(number, tuple) else (number,)
    try:
        function(*arguments, **named)
    except OSError as error:
        expected = "/".join(errno.errorcode[number] for number in numbers)
        found = errno.errorcode.get(error.errno, str(error.errno))
        assert error.errno in numbers, "%s instead of %s" % (found, expected)
        return
    raise AssertionError("succeeded instead of %s" % "/".join(errno.errorcode[number] for number in numbers))


def called(name, *arguments):
    """A libc function that returns -1 on error; raises `OSError` then."""
    result = getattr(libc, name)(*arguments)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result


def statx(path, wanted):
    """`struct statx`, asked for `wanted` alone: a kernel that believes to know that need not ask for it."""
    place = (ctypes.c_uint8 * 256)()
    called("statx", -100, os.fsencode(path), 0, wanted, place)
    return bytes(place)


def soon(condition, seconds=10):
    """Waits until `condition()` holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def write_file(path, data=b"", mode=0o644):
    """Creates or replaces a file; `mode` is set whatever the umask."""
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view):]
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def read_file(path):
    with open(path, "rb") as file:
        return file.read()


def pattern(size, seed=1):
    """Bytes that differ from page to page and from seed to seed."""
    block = bytes((seed * 31 + at * 7 + (at >> 8)) & 0xFF for at in range(min(size, 65536)))
    pieces, number = [], 0
    while sum(map(len, pieces)) < size:
        pieces.append(number.to_bytes(8, "little") + block[8:])
        number += 1
    return b"".join(pieces)[:size]
