//! Floor: race, by histories. Some threads change and look up a few names at the same time. Each operation is recorded
//! with its call, its return and its result, and every round is searched for an order that explains it
//! ([`uvfs_tests::history`]): an observer of a change never sees an older state later.
//!
//! In short rounds, by default some seconds in all, with `UVFS_STRESS_SECONDS` as many for each test. `UVFS_SEED`
//! replays the choices, not the schedule.

use crate::shared::Turn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};
use uvfs_backends::hostile::{Fault, Moment, Plan};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_concurrent::epoch;
use uvfs_tests::history::{Act, Event, History, Names, SLOTS, Saw, Slot};
use uvfs_tests::{
    Hostile, Numbers, Watchdog, assert_references_exact, errno, for_each_node, hostile, root, seed,
    stress, tiny, vfs_over, with_room,
};
use uvfs_vfs::{
    Authority, Backend, Caller, Directory, Error, Lookup, Name, NewKind, NewNode, Node, RenameMode,
    Result, SetAttributes, Vfs, VfsConfig,
};

const THREADS: u64 = 4;
const OPERATIONS: usize = 6;
/// Rounds of a fight at least, however slow the machine is.
const ROUNDS_MIN: u64 = 11;
/// Paths of three names, so that they are long enough to be kept as a whole.
const DIRECTORIES: [&str; 2] = ["in/one", "in/two"];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

fn path(slot: Slot) -> String {
    format!("{}/{}", DIRECTORIES[slot / 4], NAMES[slot % 4])
}

/// One file system whose names are fought over.
struct Arena {
    vfs: Arc<Vfs>,
    top: Directory,
    clock: AtomicU64,
    stale: AtomicU64,
    unknown: AtomicU64,
}

impl Arena {
    fn new(vfs: Arc<Vfs>) -> Self {
        let top = root(&vfs);
        for directory in ["in"].into_iter().chain(DIRECTORIES) {
            top.create_directory(directory, 0o755).unwrap();
        }
        let (clock, stale, unknown) = Default::default();
        Self { vfs, top, clock, stale, unknown }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, SeqCst)
    }

    fn directory(&self, slot: Slot) -> Node {
        self.top.open_directory(DIRECTORIES[slot / 4]).unwrap().node().clone()
    }

    /// The object of `slot`, in one of the ways to ask. `None`: the caches alone have no answer.
    fn look(&self, slot: Slot, way: u64) -> Option<Result<u64>> {
        let name = Name::new(NAMES[slot % 4].as_bytes()).unwrap();
        let number = |answer: Lookup| answer.found().map(|found| found.attributes.number);
        match way {
            0 => {
                Some(self.vfs.lookup(&Caller::root(), &self.directory(slot), name).and_then(number))
            }
            1 => self.vfs.try_lookup(&self.directory(slot), name).map(number),
            _ => Some(self.top.stat(path(slot)).map(|found| found.number)),
        }
    }

    fn make(&self, slot: Slot, kind: NewKind<'_>) -> Result<u64> {
        let new = NewNode { kind, mode: 0o755, umask: 0 };
        let name = Name::new(NAMES[slot % 4].as_bytes()).unwrap();
        let found = self.vfs.create(&Caller::root(), &self.directory(slot), name, &new)?;
        Ok(found.node.number())
    }

    /// Performs `act`; `None` if its result shows nothing.
    fn act(&self, act: Act, way: u64) -> Option<Event> {
        let top = &self.top;
        let called = self.tick();
        let done: Result<Option<u64>> = match act {
            Act::Look(slot) => match self.look(slot, way) {
                Some(found) => found.map(Some),
                None => {
                    self.unknown.fetch_add(1, SeqCst);
                    return None;
                }
            },
            Act::Create(slot) => self.make(slot, NewKind::Regular).map(Some),
            Act::MakeDirectory(slot) => self.make(slot, NewKind::Directory).map(Some),
            Act::Unlink(slot) => top.remove_file(path(slot)).map(|()| None),
            Act::RemoveDirectory(slot) => top.remove_directory(path(slot)).map(|()| None),
            Act::Replace(from, to) => {
                top.rename(path(from), path(to), RenameMode::Replace).map(|()| None)
            }
            Act::Exchange(one, other) => {
                top.rename(path(one), path(other), RenameMode::Exchange).map(|()| None)
            }
        };
        let returned = self.tick();
        let saw = match done {
            Ok(Some(number)) => Saw::Object(number),
            Ok(None) => Saw::Done,
            // The object vanished between finding and using it: no change, and no result.
            Err(Error::Stale) => {
                self.stale.fetch_add(1, SeqCst);
                return None;
            }
            Err(error) => Saw::Failed(error.errno()),
        };
        Some(Event { called, returned, act, saw })
    }

    /// One thread's part of a round.
    fn play(&self, numbers: &mut Numbers) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..OPERATIONS {
            // Few names at a time, so that operations collide.
            let slot = |numbers: &mut Numbers| match numbers.below(3) {
                0 => numbers.below(SLOTS as u64) as Slot,
                _ => (numbers.below(2) * 4) as Slot,
            };
            let (one, other) = (slot(numbers), slot(numbers));
            let act = match numbers.below(16) {
                0 | 1 => Act::Create(one),
                2 => Act::MakeDirectory(one),
                3 | 4 => Act::Unlink(one),
                5 => Act::RemoveDirectory(one),
                6..=8 => Act::Replace(one, other),
                9 => Act::Exchange(one, other),
                10 => {
                    // Completes the list of the directory's names, if no change interferes.
                    for_each_node(&self.vfs, &self.directory(one), |_, _| ());
                    continue;
                }
                _ => Act::Look(one),
            };
            events.extend(self.act(act, numbers.below(4)));
            if numbers.below(4) == 0 {
                std::thread::yield_now();
            }
        }
        events
    }

    /// Looks at every name, alone: in the caches, which must agree with the store.
    fn settled(&self, backend: &impl Backend) -> Names {
        let found = |answer: Result<u64>| match answer {
            Ok(number) => Some(number),
            Err(Error::NotFound) => None,
            Err(error) => panic!("{error}"),
        };
        Names::found(|slot| {
            let cached = found(self.look(slot, 2).unwrap());
            let name = Name::new(NAMES[slot % 4].as_bytes()).unwrap();
            let parent = self.directory(slot).id();
            let entry = backend.names().lookup(&Caller::root(), parent, name).ok();
            entry.iter().for_each(|entry| backend.inodes().forget(entry.inode, 1));
            let stored = entry.map(|entry| entry.attributes);
            assert_eq!(cached, stored.map(|stored| stored.number), "{}", path(slot));
            stored.map(|stored| (stored.number, stored.kind == uvfs_vfs::FileKind::Directory))
        })
    }

    /// Rounds until `end`, and at least [`ROUNDS_MIN`]; calls `prepare` before each.
    fn fight(&self, backend: &impl Backend, seed: u64, end: Instant, prepare: impl Fn(u64)) -> u64 {
        let mut before = self.settled(backend);
        let mut rounds = 0;
        while rounds < ROUNDS_MIN || Instant::now() < end {
            rounds += 1;
            prepare(rounds);
            let arrived = AtomicU64::new(0);
            let threads = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let arrived = &arrived;
                        scope.spawn(move || {
                            let mut numbers = Numbers(seed ^ (rounds * THREADS + thread));
                            arrived.fetch_add(1, SeqCst);
                            while arrived.load(SeqCst) < THREADS {
                                std::thread::yield_now();
                            }
                            self.play(&mut numbers)
                        })
                    })
                    .collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let after = self.settled(backend);
            let history = History { before, threads, after };
            assert!(history.is_linearizable(), "round {rounds} of seed {seed}:\n{history}");
            before = after;
        }
        let (stale, unknown) = (self.stale.load(SeqCst), self.unknown.load(SeqCst));
        println!("{rounds} rounds; {stale} stale answers, {unknown} looks that missed the caches");
        rounds
    }
}

/// Ends the threads beside a fight, also when the fight fails.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// Runs `beside` again and again while `fight` lasts.
fn beside<R>(beside: impl Fn(u64) + Sync, fight: impl FnOnce() -> R) -> R {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut at = 0;
            while !stop.load(SeqCst) {
                beside(at);
                at += 1;
                std::thread::yield_now();
            }
        });
        let _stop = StopAtEnd(&stop);
        fight()
    })
}

fn length() -> Duration {
    stress::length(Duration::from_millis(1200))
}

fn watchdog() -> (Turn, Watchdog) {
    (Turn::take(), Watchdog::new(length() + Duration::from_secs(60)))
}

/// Fights over a store that counts references; at the end all of them are back.
fn fight_over(hostile: &Hostile, config: VfsConfig, near: impl Fn(&Vfs, u64) + Sync) -> u64 {
    let (seed, _watchdog) = (seed(), watchdog());
    let vfs = vfs_over(hostile, config);
    let arena = Arena::new(vfs.clone());
    let end = Instant::now() + length();
    let honest = hostile.inner().clone();
    // A new plan also clears the journal, which would grow without end.
    let fight = || arena.fight(&*honest, seed, end, |_| hostile.follow(Plan::new()));
    let rounds = beside(|at| near(&vfs, at), fight);
    drop(arena);
    assert_references_exact(&vfs, hostile);
    rounds
}

#[test]
fn operations_have_an_order() {
    let (seed, _watchdog) = (seed(), watchdog());
    let memory = Arc::new(MemoryBackend::new(MemoryConfig::default()).unwrap());
    let hostile = Hostile::over(memory.clone());
    let arena = Arena::new(vfs_over(&hostile, VfsConfig::default()));
    let end = Instant::now() + length();
    let rounds = arena.fight(&*memory, seed, end, |_| hostile.follow(Plan::new()));
    assert!(rounds > 10);
}

/// Operations also have an order while names and inodes are evicted for lack of room.
#[test]
fn operations_have_an_order_under_reclaim() {
    let hostile = hostile();
    let beside = |vfs: &Vfs, at: u64| {
        let (caller, name) = (Caller::root(), format!("missing-{}", at % 500));
        let _ = vfs.lookup(&caller, vfs.root(), Name::new(name.as_bytes()).unwrap());
    };
    assert!(fight_over(&hostile, tiny(), beside) > 10);
}

/// So they have while another thread forgets all that it can, all the time.
#[test]
fn operations_have_an_order_while_all_is_forgotten() {
    let beside = |vfs: &Vfs, at: u64| {
        vfs.forget_unused();
        if at.is_multiple_of(64) {
            epoch::collect();
        }
    };
    assert!(fight_over(&hostile(), VfsConfig::default(), beside) > 10);
}

/// So they have over a store that others could change: with lifetimes, with short ones, with none.
#[test]
fn operations_have_an_order_over_a_shared_store() {
    let _watchdog = watchdog();
    for time in [Duration::from_secs(60), Duration::from_millis(5), Duration::ZERO] {
        let seed = seed();
        let hostile = hostile().claiming(|can| can.authority = Authority::Shared);
        let config = VfsConfig {
            attr_timeout: time,
            entry_timeout: time,
            negative_timeout: time,
            ..VfsConfig::default()
        };
        let vfs = vfs_over(&hostile, config);
        let arena = Arena::new(vfs.clone());
        let end = Instant::now() + length() / 3;
        let honest = hostile.inner().clone();
        arena.fight(&*honest, seed, end, |_| hostile.follow(Plan::new()));
        drop(arena);
        assert_references_exact(&vfs, &hostile);
    }
}

/// Operations also have an order when calls of the store take long, before or after their effect.
#[test]
fn operations_have_an_order_with_a_slow_store() {
    let _watchdog = watchdog();
    for config in [VfsConfig::default(), tiny()] {
        let seed = seed();
        let hostile = hostile();
        let vfs = vfs_over(&hostile, config);
        let arena = Arena::new(vfs.clone());
        let end = Instant::now() + length() / 2;
        let honest = hostile.inner().clone();
        let slow = |round: u64| {
            let delay = |moment, micros| Fault::Delay(moment, Duration::from_micros(micros));
            let delays = [delay(Moment::Before, 30), delay(Moment::After, 30)];
            hostile.follow(Plan::random(seed ^ round, 0.4, delays.to_vec()));
        };
        let rounds = beside(
            |at| {
                if at.is_multiple_of(16) {
                    vfs.forget_unused();
                }
            },
            || arena.fight(&*honest, seed, end, slow),
        );
        hostile.behave();
        assert!(rounds > 10);
        drop(arena);
        assert_references_exact(&vfs, &hostile);
    }
}

/// A name that renames replace is never absent, never shows an older object again, neither to one observer nor to
/// another one that asks later, and the object seen there is not at its old name.
#[test]
fn a_replaced_name_only_moves_forward() {
    let _watchdog = watchdog();
    for old in ["new", "from/new"] {
        for config in [VfsConfig::default(), tiny()] {
            let hostile = hostile();
            let vfs = vfs_over(&hostile, config);
            let top = root(&vfs);
            top.create_directory("from", 0o755).unwrap();
            top.write_file("target", "").unwrap();
            let first = top.stat("target").unwrap().number;
            let (newest, end) = (AtomicU64::new(0), Instant::now() + length() / 4);
            let replace = |_| {
                for _ in 0..50 {
                    top.write_file(old, "").unwrap();
                    top.rename(old, "target", RenameMode::Replace).unwrap();
                }
                vfs.forget_unused();
                hostile.follow(Plan::new());
            };
            let seen = beside(replace, || {
                std::thread::scope(|scope| {
                    let observers: Vec<_> = (0..3)
                        .map(|_| scope.spawn(|| observe(&top, (old, first), &newest, end)))
                        .collect();
                    observers.into_iter().map(|one| one.join().unwrap()).sum::<u64>()
                })
            });
            assert!(seen > 0);
            println!("{seen} looks, {} objects", newest.load(SeqCst));
            drop(top);
            assert_references_exact(&vfs, &hostile);
        }
    }
}

/// A path is walked in its current state, also if it is cached as a whole. Once a directory on it has moved, or has
/// lost search permission, or its last name has another object, no walk follows the old cached path, even while others
/// walk it.
#[test]
fn whole_paths_change_with_their_directories() {
    let _watchdog = watchdog();
    for config in [VfsConfig::default(), with_room(64 << 10)] {
        let hostile = hostile();
        let vfs = vfs_over(&hostile, config);
        let top = root(&vfs);
        for directory in ["a", "a/b", "a/b/c"] {
            top.create_directory(directory, 0o755).unwrap();
        }
        let (old, new) = ("a/b/c/file", "a/moved/c/file");
        top.write_file(old, "").unwrap();
        let stranger = top.clone().with_caller(Caller::new(1000, 1000, &[]));
        let walk = |at: u64| {
            for _ in 0..20 {
                let one = if at.is_multiple_of(2) { &top } else { &stranger };
                let _ = (one.stat(old), one.stat(new));
            }
        };
        let end = Instant::now() + length() / 2;
        let rounds = beside(walk, || {
            let mut rounds = 0;
            while rounds == 0 || Instant::now() < end {
                let both = |path: &str| [errno(&top.stat(path)), errno(&stranger.stat(path))];
                assert_eq!(both(old), [0, 0]);
                top.rename("a/b", "a/moved", RenameMode::Replace).unwrap();
                assert_eq!((both(old), both(new)), ([libc::ENOENT; 2], [0, 0]), "moved");
                top.rename("a/moved", "a/b", RenameMode::Replace).unwrap();
                assert_eq!((both(old), both(new)), ([0, 0], [libc::ENOENT; 2]), "moved back");
                for (mode, stopped) in [(0o700, libc::EACCES), (0o755, 0)] {
                    let set = SetAttributes { mode: Some(mode), ..Default::default() };
                    top.set_attributes("a", &set).unwrap();
                    assert_eq!(both(old), [0, stopped], "{mode:o}");
                }
                let number = top.stat(old).unwrap().number;
                top.write_file("a/b/new", "").unwrap();
                top.rename("a/b/new", old, RenameMode::Replace).unwrap();
                assert_ne!(top.stat(old).unwrap().number, number, "replaced");
                top.remove_file(old).unwrap();
                assert_eq!(both(old), [libc::ENOENT; 2], "removed");
                top.write_file(old, "").unwrap();
                rounds += 1;
                if rounds % 16 == 0 {
                    hostile.follow(Plan::new());
                }
            }
            rounds
        });
        println!("{rounds} rounds, {} walks by whole paths", vfs.statistics().walks.whole);
        assert!(rounds > 0);
        drop((top, stranger));
        assert_references_exact(&vfs, &hostile);
    }
}

/// One observer of a replaced name. The store numbers the objects of one thread in the order of their creation;
/// `first`, the initial one, is another thread's.
fn observe(top: &Directory, (old, first): (&str, u64), newest: &AtomicU64, end: Instant) -> u64 {
    let mut looks = 0;
    let order = |number: u64| if number == first { 0 } else { number };
    while looks == 0 || Instant::now() < end {
        let known = newest.load(SeqCst);
        let found = order(top.stat("target").expect("absent while being replaced").number);
        assert!(found >= known, "{found} after {known} was seen");
        newest.fetch_max(found, SeqCst);
        match top.stat(old).map(|there| there.number) {
            Ok(number) => assert!(number > found, "{number} at its old name after {found}"),
            failed => assert_eq!(errno(&failed), libc::ENOENT),
        }
        looks += 1;
    }
    looks
}
