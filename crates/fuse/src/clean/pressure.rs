//! Makes the kernel evict nodes when the nodes that it holds exceed the budget.
//!
//! # Boundary
//! Reports the bytes of the frontend's tables ([`Tenant`]), chooses nodes to evict, and asks the kernel to evict them.
//! The core decides when memory is exceeded.
//!
//! # Concurrency
//! Runs on its own thread, which serves nothing and holds no lock while it writes a message: a message may wait for
//! requests in flight. It takes no turn of cleaning. A cleaning counts forgets; forgets that this thread causes can at
//! worst end its wait early, as the kernel's spontaneous forgets do.
//!
//! # Why
//! An inode that the kernel holds cannot be evicted, so the kernel has to evict first, and it does not know that one of
//! its daemons is short of memory. PRUNE (Linux 6.18) skips used nodes. Nodes are chosen by their last use here. The
//! kernel does not report which names programs use: requests reach us only when its own caches miss. Weakness: if no
//! held node can be evicted (10,000 open files, say), the caches exceed their budget by the bytes of those nodes. The
//! thread then tries ever more seldom, and soon after files were closed or a sixteenth more ids were added. No event
//! reports the end of other uses, such as a mapping.

use super::Bridge;
use super::kernel::gone_is_fine;
use crate::buffers;
use crate::lock_order;
use crate::server::Server;
use crate::server::nodes::NodeTable;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{FileKind, Tenant};

/// Nodes asked for together.
const BATCH: usize = 256;
/// Forgets of one batch are awaited for so long, in so many looks; in half as many after a batch without success.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOKS: u32 = 20;
/// If part of a batch was evicted and so many looks then find no more, the rest of the batch is in use.
const QUIET_LOOKS: u32 = 3;
/// A round over all nodes had no success if fewer than one node in so many was evicted.
const VAIN_SHARE: u64 = 16;
/// A rest ends when the kernel holds by one part of so many more than when it began, and by a batch at least.
const GROWN_SHARE: u64 = 16;
/// The pause after a round in which no node was evicted: at first, and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// Bytes of an id with its inode and its name, here, in the store and in the core (decision 0022).
const NODE_BYTES: u64 = 980;
/// Memory is returned to the system when the evicted share of the room was more than this.
const GIVE_BACK_SHARE: u64 = 8;

/// The frontend's part of the budget.
pub(crate) struct Pressure {
    server: Arc<Server>,
    /// Set if a request arrived since the thread last began; read without the lock.
    asked: AtomicBool,
    /// A rest ends when the kernel holds so many ids; read without the lock.
    rests_below: AtomicU64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: bool,
    /// Files were closed since the thread began to look.
    closed: bool,
    /// Too many ids came since it began to rest.
    grown: bool,
    ended: bool,
}

/// Why the thread rests no longer.
#[derive(Debug, PartialEq, Eq)]
enum Rested {
    /// It has rested.
    Enough,
    /// Files were closed.
    Closed,
    /// The kernel holds more nodes, and the new ones may be evictable.
    Grown,
    /// The wait is over for good.
    Ended,
}

impl Tenant for Pressure {
    fn held_bytes(&self) -> u64 {
        let nodes = &self.server.nodes;
        let tables = nodes.bytes() + nodes.missing.bytes() + self.server.files.bytes();
        // ORDERING: Relaxed; a size.
        tables + buffers::extra_bytes() + self.server.queued_bytes.load(Relaxed)
    }

    fn shrink(&self, _bytes: u64) {
        // ORDERING: Relaxed, all; a hint. A thread that misses the begin of a rest sees it when it next adds an id.
        if self.server.nodes.held() >= self.rests_below.load(Relaxed)
            && self.rests_below.swap(u64::MAX, Relaxed) != u64::MAX
        {
            self.state.lock().grown = true;
            self.changed.notify_one();
        }
        // ORDERING: Relaxed; a hint. A thread that misses that `asked` was reset asks again when it next adds an id.
        if self.asked.load(Relaxed) || self.asked.swap(true, Relaxed) {
            return;
        }
        self.state.lock().asked = true;
        self.changed.notify_one();
    }
}

impl Pressure {
    pub(crate) fn new(server: Arc<Server>) -> Arc<Self> {
        let state = Mutex::new(&lock_order::FUSE_PRESSURE, State::default());
        let (asked, rests_below) = (AtomicBool::new(false), AtomicU64::new(u64::MAX));
        Arc::new(Self { server, asked, rests_below, state, changed: Condvar::default() })
    }

    /// Starts the thread; it joins the budget of the caches.
    pub(crate) fn start(self: &Arc<Self>, bridge: Arc<Bridge>) -> io::Result<Relief> {
        let pressure = self.clone();
        let run = move || pressure.run(&bridge);
        let thread = std::thread::Builder::new().name("uvfs-pressure".to_owned()).spawn(run)?;
        let tenant: Weak<Self> = Arc::downgrade(self);
        self.server.vfs.join_budget(tenant);
        self.hear_of_closes();
        Ok(Relief { pressure: self.clone(), thread: Some(thread) })
    }

    fn hear_of_closes(self: &Arc<Self>) {
        let pressure = Arc::downgrade(self);
        let closed = move || pressure.upgrade().into_iter().for_each(|pressure| pressure.closed());
        self.server.files.connect(Box::new(closed));
    }

    /// Files were closed while the budget was exceeded: some of their nodes may be evictable now.
    fn closed(&self) {
        let mut state = self.state.lock();
        (state.asked, state.closed) = (true, true);
        drop(state);
        self.changed.notify_one();
    }

    fn run(&self, bridge: &Bridge) {
        let mut pause = PAUSE_MIN;
        while self.wait_until_asked() {
            self.watch_closes();
            let forgotten = self.server.nodes.forgotten();
            let helped = self.relieve(bridge);
            self.give_back(bridge, forgotten);
            if helped {
                self.server.files.ignore_closes();
                pause = PAUSE_MIN;
                continue;
            }
            pause = (pause * 2).min(PAUSE_MAX);
            match self.rest(pause) {
                Rested::Enough => {}
                Rested::Closed | Rested::Grown => pause = PAUSE_MIN,
                Rested::Ended => return,
            }
        }
    }

    /// Returns memory to the system if, since `before` ids were forgotten, so many went that pages need their room.
    fn give_back(&self, bridge: &Bridge, before: u64) {
        let went = self.server.nodes.forgotten() - before;
        if went * NODE_BYTES > bridge.vfs.room_bytes() / GIVE_BACK_SHARE {
            bridge.vfs.give_back();
        }
    }

    /// Files that are closed from now on end the next rest.
    fn watch_closes(&self) {
        self.state.lock().closed = false;
        self.server.files.watch_closes();
    }

    /// Asks the kernel until the budget holds, or all nodes were asked for without success. Returns whether it helped.
    fn relieve(&self, bridge: &Bridge) -> bool {
        if let Err(error) = self.shrink_missing(bridge) {
            bridge.counters.notices_failed.hit();
            log::debug!("the kernel was told to ask again, and refused: {error}");
        }
        let nodes = &self.server.nodes;
        nodes.trim_past();
        let (held, _) = nodes.totals();
        let (mut asked, mut began, mut looks) = (0, nodes.forgotten(), LOOKS);
        while bridge.vfs.evict_excess() > 0 && !self.state.lock().ended {
            let before = nodes.forgotten();
            if asked > held {
                // One full round evicted next to nothing: all nodes are in use.
                if (before - began) * VAIN_SHARE <= asked {
                    return false;
                }
                (asked, began) = (0, before);
            }
            let ids = nodes.idle(BATCH);
            if ids.is_empty() {
                // All were used a moment ago; the hand has passed now.
                asked += BATCH as u64;
                continue;
            }
            if let Err(error) = bridge.ask_to_let_go(&ids) {
                bridge.counters.notices_failed.hit();
                log::debug!("the kernel was asked to evict inodes, and refused: {error}");
                return false;
            }
            asked += ids.len() as u64;
            bridge.counters.let_go_asked.add(ids.len() as u64);
            await_forgets(nodes, before, ids.len() as u64 / 2, looks);
            // While all that is asked for is in use, going around takes no longer than the asking.
            looks = if nodes.forgotten() > before { LOOKS } else { (looks / 2).max(1) };
        }
        true
    }

    /// Has the kernel ask again about the names for which there is no room any more: the budget was lowered.
    fn shrink_missing(&self, bridge: &Bridge) -> io::Result<()> {
        self.server.size_missing();
        loop {
            let names = self.server.nodes.missing.too_many(BATCH);
            if names.is_empty() || self.state.lock().ended {
                return Ok(());
            }
            for (parent, name) in &names {
                gone_is_fine(bridge.kernel.ask_again(*parent, &name.name))?;
                self.server.nodes.missing.notified(*parent, name);
            }
        }
    }

    /// Returns false when the wait is over for good.
    fn wait_until_asked(&self) -> bool {
        let mut state = self.state.lock();
        while !state.asked && !state.ended {
            self.changed.wait(&mut state);
        }
        state.asked = false;
        // ORDERING: Relaxed; the hint of `shrink`.
        self.asked.store(false, Relaxed);
        !state.ended
    }

    /// Waits for `pause`, or for the least one if files were closed since [`Pressure::watch_closes`] or many more ids
    /// came since now, or for the end.
    fn rest(&self, pause: Duration) -> Rested {
        let (began, held) = (Instant::now(), self.server.nodes.held());
        let mut state = self.state.lock();
        state.grown = false;
        // ORDERING: Relaxed; the hint of `shrink`.
        self.rests_below.store(held + (held / GROWN_SHARE).max(BATCH as u64), Relaxed);
        let rested = loop {
            let pause = if state.closed || state.grown { PAUSE_MIN } else { pause };
            let left = pause.saturating_sub(began.elapsed());
            match &*state {
                State { ended: true, .. } => break Rested::Ended,
                _ if !left.is_zero() => _ = self.changed.wait_for(&mut state, left),
                State { closed: true, .. } => break Rested::Closed,
                State { grown: true, .. } => break Rested::Grown,
                _ => break Rested::Enough,
            }
        };
        // ORDERING: Relaxed; the hint of `shrink`.
        self.rests_below.store(u64::MAX, Relaxed);
        rested
    }
}

/// Waits until `wanted` ids were forgotten after the first `before`, or until more of them are unlikely, for at most
/// `looks` looks. The kernel has already sent the forgets, but other requests are queued before them.
fn await_forgets(nodes: &NodeTable, before: u64, wanted: u64, looks: u32) {
    let (mut seen, mut quiet) = (before, 0);
    for _ in 0..looks {
        let forgotten = nodes.forgotten();
        quiet = if forgotten == seen { quiet + 1 } else { 0 };
        seen = forgotten;
        if forgotten - before >= wanted || (forgotten > before && quiet >= QUIET_LOOKS) {
            return;
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

impl Bridge {
    /// Makes the kernel evict the unused ones of `ids`.
    fn ask_to_let_go(&self, ids: &[u64]) -> io::Result<()> {
        if self.prunes()? {
            return gone_is_fine(self.kernel.prune(ids));
        }
        // An older kernel is asked by name: all names of the directories among them, but those of directories.
        for &id in ids {
            let Some(node) = self.nodes.peek(id).filter(|node| node.kind() == FileKind::Directory)
            else {
                continue;
            };
            self.forget_names_of(id, &node)?;
        }
        Ok(())
    }
}

/// The thread; ended and joined when dropped.
pub(crate) struct Relief {
    pressure: Arc<Pressure>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Relief {
    fn drop(&mut self) {
        self.pressure.state.lock().ended = true;
        self.pressure.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Settings;
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_vfs::{Caller, Name, NewKind, NewNode, OpenFile, OpenMode, Vfs, VfsConfig};

    const HOUR: Duration = Duration::from_secs(3600);

    /// In front of a file system that has `count` directories open.
    fn with_open(count: usize) -> (Arc<Pressure>, Vec<u64>) {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
        let open = || vfs.open(&Caller::root(), vfs.root(), OpenMode::READ).map(Arc::new);
        let files: Vec<Arc<OpenFile>> = (0..count).map(|_| open().unwrap()).collect();
        let settings = Settings { passthrough: false, control_directory: false, fake_root: None };
        let server = Arc::new(Server::new(vfs, settings));
        let handles = files.into_iter().map(|file| server.files.insert(file, 0)).collect();
        let pressure = Pressure::new(server);
        pressure.hear_of_closes();
        (pressure, handles)
    }

    /// When 10,000 files had just been closed, the kernel held all of them for two seconds more: while they were open,
    /// the pauses between two looks had grown so long. With an hour to wait, news that is lost hangs the test.
    #[test]
    fn a_rest_ends_when_files_are_closed() {
        let (pressure, handles) = with_open(64);
        pressure.watch_closes();
        std::thread::scope(|scope| {
            let rest = scope.spawn(|| pressure.rest(HOUR));
            for handle in &handles {
                assert!(pressure.server.release(*handle).is_some());
            }
            assert_eq!(rest.join().unwrap(), Rested::Closed);
        });
        assert!(pressure.wait_until_asked(), "it looks, although no thread has added anything");
    }

    /// One file opened and closed again and again beside many that stay open is no news.
    #[test]
    fn few_closes_do_not_end_a_rest() {
        let (pressure, handles) = with_open(64);
        pressure.watch_closes();
        for handle in &handles[..4] {
            assert!(pressure.server.release(*handle).is_some());
        }
        assert_eq!(pressure.rest(PAUSE_MIN), Rested::Enough);
        assert!(pressure.server.release(handles[4]).is_some());
        assert_eq!(pressure.rest(HOUR), Rested::Closed);
        pressure.watch_closes();
        pressure.server.files.ignore_closes();
        assert!(handles[5..].iter().all(|handle| pressure.server.release(*handle).is_some()));
        assert_eq!(pressure.rest(PAUSE_MIN), Rested::Enough, "there is nothing too much");
    }

    /// Makes `count` files, which the kernel then holds.
    fn publish(server: &Server, count: usize) -> Vec<u64> {
        let (vfs, caller) = (&server.vfs, Caller::root());
        let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
        let made = |at| {
            let name = format!("file-{at}");
            let name = Name::new(name.as_bytes()).unwrap();
            let found = vfs.create(&caller, vfs.root(), name, &new).unwrap();
            server.nodes.publish(&found.node, (found.attributes.number, 0), None)
        };
        let first = server.nodes.held() + server.nodes.forgotten();
        (0..count as u64).map(|at| made(first + at)).collect()
    }

    /// While 5,000 files were open, rounds without success made the rests long, and a listing of 300,000 files brought
    /// 8,000 ids in one of them: the process was at 166 % of 16 MiB on a busy machine.
    #[test]
    fn a_rest_ends_when_many_more_are_held() {
        let (pressure, _) = with_open(1);
        let add = |count| {
            publish(&pressure.server, count);
            pressure.shrink(1);
        };
        add(BATCH);
        std::thread::scope(|scope| {
            let rest = scope.spawn(|| pressure.rest(HOUR));
            // ORDERING: Relaxed; the test reads nothing else through it.
            while pressure.rests_below.load(Relaxed) == u64::MAX {
                std::thread::yield_now();
            }
            add(BATCH / 2);
            std::thread::sleep(PAUSE_MIN * 2);
            assert!(!rest.is_finished(), "a few are no reason");
            add(BATCH);
            assert_eq!(rest.join().unwrap(), Rested::Grown);
        });
        assert_eq!(pressure.rest(PAUSE_MIN), Rested::Enough, "of those that came before");
    }

    /// The evicted nodes of a batch were counted as a difference of the number of ids. Where as many ids were added,
    /// the batch seemed to fail: the thread waited for each batch to the end, and rested after one round.
    #[test]
    fn what_went_counts_also_where_as_many_come() {
        let (pressure, _) = with_open(1);
        let nodes = &pressure.server.nodes;
        let ids = publish(&pressure.server, 8);
        let (held, forgotten) = (nodes.held(), nodes.forgotten());
        assert!(ids.iter().all(|&id| nodes.forget(id, 1)));
        publish(&pressure.server, 8);
        assert_eq!((nodes.held(), nodes.forgotten()), (held, forgotten + 8));
        let began = Instant::now();
        await_forgets(nodes, forgotten, 8, 100_000);
        await_forgets(nodes, forgotten, 9, 100_000);
        assert!(began.elapsed() < HOUR / 60, "no more will go");
    }
}
