//! Has the kernel let go of something when what it holds is more than the budget allows.
//!
//! # Boundary
//! Says what the frontend's tables take ([`Tenant`]), chooses what goes, and asks the kernel for it. When there is
//! too much is the core's decision.
//!
//! # Concurrency
//! On a thread of its own, which holds no lock while it writes a message, and serves nothing: a message may wait
//! for requests in flight. It does not take a turn of cleaning: a cleaning counts forgets, and those that come
//! from here end its waiting early at worst, as forgets of the kernel's own accord do.
//!
//! # Why
//! An inode that the kernel holds cannot be evicted, so the kernel is the one to decide, and it does not know
//! that memory is short in one of its daemons. PRUNE (Linux 6.18) passes over what is in use. By which ids
//! were used least here, since which names the kernel's programs use it does not tell: requests reach us when
//! its own caches have run out. Weakness: where nothing of what is held can go, 10,000 open files for
//! instance, the caches are beyond their budget by it; the thread then looks again ever more seldom.

use super::Bridge;
use super::kernel::gone_is_fine;
use crate::lock_order;
use crate::server::Server;
use std::io;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::primitive::atomic::{AtomicBool, Ordering::Relaxed};
use uvfs_vfs::{FileKind, Tenant};

/// Nodes asked for together.
const BATCH: usize = 256;
/// Forgets of one batch are awaited for so long, in so many looks.
const LOOK_EVERY: Duration = Duration::from_millis(1);
const LOOKS: u32 = 20;
/// Nothing went of what was asked for: how long to wait before all are asked again, at first and at most.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The frontend's part of the budget.
pub(crate) struct Pressure {
    server: Arc<Server>,
    /// Somebody has asked since the thread last began; read without the lock.
    asked: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    asked: bool,
    ended: bool,
}

impl Tenant for Pressure {
    fn held_bytes(&self) -> u64 {
        let nodes = &self.server.nodes;
        nodes.bytes() + nodes.missing.bytes() + self.server.files.bytes()
    }

    fn shrink(&self, _bytes: u64) {
        // ORDERING: Relaxed; a hint. Who misses that it was taken back asks again with the next thing it adds.
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
        Arc::new(Self { server, asked: AtomicBool::new(false), state, changed: Condvar::default() })
    }

    /// Starts the thread; it joins the budget of the caches.
    pub(crate) fn start(self: &Arc<Self>, bridge: Arc<Bridge>) -> io::Result<Relief> {
        let pressure = self.clone();
        let run = move || pressure.run(&bridge);
        let thread = std::thread::Builder::new().name("uvfs-pressure".to_owned()).spawn(run)?;
        let tenant: Weak<Self> = Arc::downgrade(self);
        self.server.vfs.join_budget(tenant);
        Ok(Relief { pressure: self.clone(), thread: Some(thread) })
    }

    fn run(&self, bridge: &Bridge) {
        let mut pause = PAUSE_MIN;
        while self.wait_until_asked() {
            let helped = self.relieve(bridge);
            pause = if helped { PAUSE_MIN } else { (pause * 2).min(PAUSE_MAX) };
            if !helped && !self.rest(pause) {
                return;
            }
        }
    }

    /// Asks the kernel until the budget holds, or everything was asked for in vain. Whether it helped.
    fn relieve(&self, bridge: &Bridge) -> bool {
        if let Err(error) = self.shrink_missing(bridge) {
            bridge.counters.notices_failed.hit();
            log::debug!("the kernel was told to ask again, and refused: {error}");
        }
        let nodes = &self.server.nodes;
        nodes.trim_past();
        let (held, _) = nodes.totals();
        let (mut asked, mut gone) = (0, 0);
        while bridge.vfs.settle_budget() > 0 && !self.state.lock().ended {
            // Once around, and nothing of it went: all is in use.
            if asked > held && gone == 0 {
                return false;
            }
            let before = nodes.held();
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
            for _ in 0..LOOKS {
                if nodes.held() + ids.len() as u64 / 2 <= before {
                    break;
                }
                std::thread::sleep(LOOK_EVERY);
            }
            gone += before.saturating_sub(nodes.held());
            if asked > held {
                (asked, gone) = (0, 0);
            }
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
                self.server.nodes.missing.told(*parent, name);
            }
        }
    }

    /// False when there is nothing to wait for any more.
    fn wait_until_asked(&self) -> bool {
        let mut state = self.state.lock();
        while !state.asked && !state.ended {
            self.changed.wait(&mut state);
        }
        state.asked = false;
        // ORDERING: Relaxed; as in `shrink`.
        self.asked.store(false, Relaxed);
        !state.ended
    }

    /// Waits for `pause`, or for the end, and then is false.
    fn rest(&self, pause: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.ended {
            self.changed.wait_for(&mut state, pause);
        }
        !state.ended
    }
}

impl Bridge {
    /// Has the kernel let go of those of `ids` that nobody uses.
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
