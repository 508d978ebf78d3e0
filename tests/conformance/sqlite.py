"""One SQLite case: `sqlite.py KIND JOURNAL-MODE FOLDER`.

Accounts hold money that transactions move about; the sum is the invariant that a torn, lost or
reordered write breaks, and `pragma integrity_check` is the second judge. A killed writer notes each
commit in a file outside the folder, and every noted commit must be in the database afterwards.
"""

import multiprocessing
import os
import random
import signal
import sqlite3
import sys
import tempfile
import time

ACCOUNTS, EACH = 50, 1000
QUICK = bool(os.environ.get("QUICK"))


def connect(path, mode, map_size=0):
    connection = sqlite3.connect(path, timeout=90, isolation_level=None)
    # Changing the mode needs the lock, and SQLite does not wait for that one by itself.
    deadline = time.monotonic() + 60
    while True:
        try:
            answer = connection.execute("pragma journal_mode=%s" % mode).fetchone()[0]
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    assert answer == mode, "journal mode is %s" % answer
    connection.execute("pragma synchronous=full")
    connection.execute("pragma mmap_size=%d" % map_size)
    return connection


def create(path, mode):
    connection = connect(path, mode)
    connection.execute("create table account(number integer primary key, money integer)")
    connection.execute("create table entry(id integer primary key, who, step, filler)")
    connection.execute("create index by_step on entry(who, step)")
    rows = [(number, EACH) for number in range(ACCOUNTS)]
    connection.execute("begin")
    connection.executemany("insert into account values(?, ?)", rows)
    connection.execute("commit")
    connection.close()


def move(connection, who, step, source):
    """One transaction: money from here to there, and a row that says so."""
    connection.execute("begin immediate")
    one, two = source.sample(range(ACCOUNTS), 2)
    connection.execute("update account set money = money - 7 where number = ?", (one,))
    connection.execute("update account set money = money + 7 where number = ?", (two,))
    filler = source.randbytes(source.randrange(2000))
    connection.execute("insert into entry(who, step, filler) values(?, ?, ?)", (who, step, filler))
    connection.execute("commit")


def verify(path, entries=None):
    connection = sqlite3.connect(path, timeout=90)
    assert connection.execute("pragma integrity_check").fetchone()[0] == "ok"
    assert connection.execute("select sum(money) from account").fetchone()[0] == ACCOUNTS * EACH
    if entries is not None:
        count = connection.execute("select count(*) from entry").fetchone()[0]
        assert count == entries, "%d entries, not %d" % (count, entries)
    return connection


def write(path, mode, who, steps, map_size=0):
    connection = connect(path, mode, map_size)
    source = random.Random(who)
    for step in range(steps):
        move(connection, who, step, source)


def start(count, target, *arguments):
    jobs = [multiprocessing.Process(target=target, args=(*arguments[:2], who, *arguments[2:])) for who in range(count)]
    for job in jobs:
        job.start()
    return jobs


def end(jobs):
    for job in jobs:
        job.join(100)
    assert all(job.exitcode == 0 for job in jobs), [job.exitcode for job in jobs]


def writers(path, mode, map_size=0):
    steps = 25 if QUICK else 80
    end(start(4, write, path, mode, steps, map_size))
    verify(path, 4 * steps)


def maps(path, mode):
    writers(path, mode, 64 << 20)


def readers(path, mode):
    """Every reader sees a whole transaction or none of it, and never an older one than before."""
    jobs = start(2, write, path, mode, 40 if QUICK else 120)
    before = 0
    while any(job.is_alive() for job in jobs):
        connection = sqlite3.connect(path, timeout=90, isolation_level=None)
        connection.execute("begin")
        money = connection.execute("select sum(money) from account").fetchone()[0]
        count = connection.execute("select count(*) from entry").fetchone()[0]
        connection.execute("commit")
        connection.close()
        assert money == ACCOUNTS * EACH and count >= before, (money, count, before)
        before = count
    end(jobs)
    verify(path)


def noted_writer(path, mode, who, notes):
    connection = connect(path, mode)
    source, step = random.Random(who), 0
    with open(notes, "a") as out:
        while True:
            move(connection, who, step, source)
            out.write("%d\n" % step)
            out.flush()
            step += 1


def killed(path, mode):
    for turn in range(2 if QUICK else 6):
        with tempfile.NamedTemporaryFile() as notes:
            job = multiprocessing.Process(target=noted_writer, args=(path, mode, turn, notes.name))
            job.start()
            time.sleep(0.4 + 0.15 * turn)
            os.kill(job.pid, signal.SIGKILL)
            job.join()
            promised = [int(line) for line in open(notes.name)]
        connection = verify(path)
        rows = connection.execute("select step from entry where who = ? order by step", (turn,))
        found = [row[0] for row in rows]
        assert found[: len(promised)] == promised, "a noted commit is missing"
        assert len(found) - len(promised) <= 1
        connection.close()


def bulk(path, mode):
    connection = connect(path, mode)
    count = 3000 if QUICK else 20000
    connection.execute("begin")
    rows = ((9, step, os.urandom(400)) for step in range(count))
    connection.executemany("insert into entry(who, step, filler) values(?, ?, ?)", rows)
    connection.execute("savepoint half")
    connection.execute("delete from entry")
    connection.execute("rollback to half")
    connection.execute("commit")
    connection.execute("delete from entry where step % 2 = 1")
    connection.execute("vacuum")
    backup = sqlite3.connect(path + ".backup")
    connection.backup(backup)
    backup.close()
    connection.close()
    verify(path, count // 2)
    verify(path + ".backup", count // 2)


def switch(path, _mode):
    for step, mode in enumerate(["delete", "wal", "truncate", "wal", "persist", "memory", "delete"]):
        connection = connect(path, mode)
        move(connection, 1, step, random.Random(step))
        connection.close()
    verify(path, 7)


def main():
    kind, mode, folder = sys.argv[1:]
    path = os.path.join(folder, "%s-%s.db" % (kind, mode))
    create(path, mode)
    {"writers": writers, "readers": readers, "killed": killed, "bulk": bulk, "maps": maps, "switch": switch}[kind](path, mode)
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))


if __name__ == "__main__":
    main()
