//! Floor: conformance, in process. Advisory locks through open files: `fcntl(2)` record locks and
//! `flock(2)`, and their release when files close.
//!
//! Deterministic: the test sees threads wait before it decides.

use std::sync::mpsc;
use std::time::Duration;
use uvfs_tests::paged::until;
use uvfs_tests::{Watchdog, hostile, root, vfs_over};
use uvfs_vfs::{
    Directory, Error, File, LockKind, LockOwner, LockRange, LockWait, OpenOptions, VfsConfig,
    waits_for_lock,
};

const ONE: LockOwner = LockOwner(1001);
const OTHER: LockOwner = LockOwner(1002);

fn scene() -> (Directory, Watchdog) {
    let top = root(&vfs_over(&hostile(), VfsConfig::default()));
    top.write_file("a", "0123456789").unwrap();
    top.write_file("b", "").unwrap();
    (top, Watchdog::new(Duration::from_secs(60)))
}

fn open(top: &Directory, name: &str) -> File {
    top.open(name, OpenOptions::read_write()).unwrap()
}

fn range(start: u64, end: u64) -> LockRange {
    LockRange { start, end }
}

fn blocked<T>(result: uvfs_vfs::Result<T>) -> bool {
    matches!(result, Err(Error::WouldBlock))
}

#[test]
fn record_locks_conflict_between_owners_and_not_between_handles() {
    let (top, _watchdog) = scene();
    let (first, second) = (open(&top, "a"), open(&top, "a"));
    first.lock(ONE, LockKind::Exclusive, range(0, 5), LockWait::No).unwrap();
    second.lock(ONE, LockKind::Exclusive, range(0, 5), LockWait::No).unwrap();
    assert!(blocked(second.lock(OTHER, LockKind::Shared, range(4, 6), LockWait::No)));
    second.lock(OTHER, LockKind::Exclusive, range(5, 6), LockWait::No).unwrap();
    let held = first.test_lock(OTHER, LockKind::Shared, range(0, 100)).unwrap();
    assert_eq!((held.owner, held.kind, held.range), (ONE, LockKind::Exclusive, range(0, 5)));
    assert_eq!(first.test_lock(OTHER, LockKind::Shared, range(6, 7)), None);
    first.unlock(ONE, LockRange::ALL);
    assert_eq!(second.test_lock(ONE, LockKind::Shared, LockRange::ALL).unwrap().owner, OTHER);
}

#[test]
fn other_files_are_other_locks() {
    let (top, _watchdog) = scene();
    open(&top, "a").lock(ONE, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
    open(&top, "b").lock(OTHER, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
}

#[test]
fn a_lock_needs_a_file_open_for_what_it_is_about() {
    let (top, _watchdog) = scene();
    let reader = top.open("a", OpenOptions::read()).unwrap();
    let writer = top.open("a", OpenOptions::write()).unwrap();
    let lock = |file: &File, kind| file.lock(ONE, kind, LockRange::ALL, LockWait::No);
    assert!(lock(&reader, LockKind::Shared).is_ok());
    assert!(matches!(lock(&reader, LockKind::Exclusive), Err(Error::BadHandle)));
    assert!(lock(&writer, LockKind::Exclusive).is_ok());
    assert!(matches!(lock(&writer, LockKind::Shared), Err(Error::BadHandle)));
}

#[test]
fn whole_file_locks_belong_to_the_handle_and_go_with_it() {
    let (top, _watchdog) = scene();
    let (first, second) = (open(&top, "a"), open(&top, "a"));
    first.lock_whole(LockKind::Exclusive, LockWait::No).unwrap();
    assert!(blocked(second.lock_whole(LockKind::Shared, LockWait::No)));
    // Independent of record locks.
    second.lock(OTHER, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
    drop(first);
    second.lock_whole(LockKind::Shared, LockWait::No).unwrap();
    second.unlock_whole();
    open(&top, "a").lock_whole(LockKind::Exclusive, LockWait::No).unwrap();
}

#[test]
fn a_handles_own_record_locks_go_with_it() {
    let (top, _watchdog) = scene();
    let (first, second) = (open(&top, "a"), open(&top, "a"));
    let owner = first.lock_owner();
    assert_ne!(owner, second.lock_owner());
    first.lock(owner, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
    let wanted = second.lock_owner();
    assert!(blocked(second.lock(wanted, LockKind::Shared, LockRange::ALL, LockWait::No)));
    drop(first);
    second.lock(wanted, LockKind::Shared, LockRange::ALL, LockWait::No).unwrap();
}

#[test]
fn locks_follow_the_object_not_the_name() {
    let (top, _watchdog) = scene();
    let file = open(&top, "a");
    file.lock(ONE, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
    top.rename("a", "c", uvfs_vfs::RenameMode::Replace).unwrap();
    top.write_file("a", "").unwrap();
    open(&top, "a").lock(OTHER, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
    let moved = open(&top, "c");
    assert!(blocked(moved.lock(OTHER, LockKind::Shared, LockRange::ALL, LockWait::No)));
    top.remove_file("c").unwrap();
    assert!(blocked(moved.lock(OTHER, LockKind::Shared, LockRange::ALL, LockWait::No)));
}

#[test]
fn a_waiter_gets_the_lock_when_its_holder_closes() {
    let (top, _watchdog) = scene();
    for whole in [false, true] {
        let (first, second) = (open(&top, "a"), open(&top, "a"));
        let lock = move |file: &File, wait| match whole {
            true => file.lock_whole(LockKind::Exclusive, wait),
            false => file.lock(file.lock_owner(), LockKind::Exclusive, range(2, 3), wait),
        };
        lock(&first, LockWait::No).unwrap();
        let (send, receive) = mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(move || send.send(lock(&second, LockWait::Yes).is_ok()).unwrap());
            let early = receive.recv_timeout(Duration::from_millis(50));
            assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "it waits");
            drop(first);
            assert_eq!(receive.recv_timeout(Duration::from_secs(20)), Ok(true));
        });
    }
}

/// Several waiters for one range, each of which frees it again: none is left asleep.
#[test]
fn every_waiter_is_served() {
    let (top, _watchdog) = scene();
    let holder = open(&top, "a");
    holder.lock(ONE, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
    std::thread::scope(|scope| {
        for at in 0..8 {
            let top = top.clone();
            scope.spawn(move || {
                let kind = if at % 2 == 0 { LockKind::Shared } else { LockKind::Exclusive };
                let (file, owner) = (open(&top, "a"), LockOwner(2000 + at));
                file.lock(owner, kind, range(at % 3, 5), LockWait::Yes).unwrap();
                file.unlock(owner, LockRange::ALL);
            });
        }
        until(|| (0..8).all(|at| waits_for_lock(LockOwner(2000 + at))));
        holder.unlock(ONE, LockRange::ALL);
    });
}

/// The circle closes over two files.
#[test]
fn a_deadlock_over_two_files_is_refused() {
    let (top, _watchdog) = scene();
    let (one, other) = (LockOwner(3001), LockOwner(3002));
    let (a, b) = (open(&top, "a"), open(&top, "b"));
    a.lock(one, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
    b.lock(other, LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
    std::thread::scope(|scope| {
        let waiter =
            scope.spawn(|| a.lock(other, LockKind::Exclusive, LockRange::ALL, LockWait::Yes));
        // Until the other thread waits, the lock is only taken; then the cycle closes.
        until(|| waits_for_lock(other));
        assert!(blocked(b.lock(one, LockKind::Exclusive, LockRange::ALL, LockWait::No)));
        let refused = b.lock(one, LockKind::Exclusive, LockRange::ALL, LockWait::Yes);
        assert!(matches!(refused, Err(Error::Deadlock)), "{refused:?}");
        a.unlock(one, LockRange::ALL);
        waiter.join().unwrap().unwrap();
    });
}

/// Two shared holders that both request exclusive access: the second request would wait for ever.
#[test]
fn two_upgrades_are_a_deadlock() {
    let (top, _watchdog) = scene();
    let (one, other) = (LockOwner(4001), LockOwner(4002));
    let file = open(&top, "a");
    for owner in [one, other] {
        file.lock(owner, LockKind::Shared, LockRange::ALL, LockWait::No).unwrap();
    }
    std::thread::scope(|scope| {
        let waiter =
            scope.spawn(|| file.lock(one, LockKind::Exclusive, LockRange::ALL, LockWait::Yes));
        until(|| waits_for_lock(one));
        let refused = file.lock(other, LockKind::Exclusive, LockRange::ALL, LockWait::Yes);
        assert!(matches!(refused, Err(Error::Deadlock)), "{refused:?}");
        file.unlock(other, LockRange::ALL);
        waiter.join().unwrap().unwrap();
    });
}

/// A waiter waits for several holders; the first of them releases, and the second closes the cycle.
#[test]
fn a_deadlock_with_the_second_holder_is_found() {
    let (top, _watchdog) = scene();
    let owners = [LockOwner(5001), LockOwner(5002), LockOwner(5003)];
    let (a, b) = (open(&top, "a"), open(&top, "b"));
    for owner in &owners[..2] {
        a.lock(*owner, LockKind::Shared, LockRange::ALL, LockWait::No).unwrap();
    }
    b.lock(owners[2], LockKind::Exclusive, LockRange::ALL, LockWait::No).unwrap();
    std::thread::scope(|scope| {
        // Waits for the first and the second holder of `a`.
        let waiter =
            scope.spawn(|| a.lock(owners[2], LockKind::Exclusive, LockRange::ALL, LockWait::Yes));
        until(|| waits_for_lock(owners[2]));
        // The second waits for `b`, whose holder waits for it.
        let (send, receive) = mpsc::channel();
        let b = &b;
        scope.spawn(move || {
            let asked = b.lock(owners[1], LockKind::Exclusive, LockRange::ALL, LockWait::Yes);
            send.send(asked).unwrap();
        });
        let found = receive.recv_timeout(Duration::from_secs(20));
        // In any case, release every waiter.
        a.unlock(owners[1], LockRange::ALL);
        a.unlock(owners[0], LockRange::ALL);
        waiter.join().unwrap().unwrap();
        b.unlock(owners[2], LockRange::ALL);
        assert!(matches!(found, Ok(Err(Error::Deadlock))), "{found:?}");
    });
}
