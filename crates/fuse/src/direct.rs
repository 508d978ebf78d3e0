//! Direct writes: a writer gets its answer after the kernel has dropped its pages of the written range.
//!
//! Knows which directly written files the kernel may hold pages of. Knows no stores.
//!
//! # Concurrency
//! The kernel waits for reads in flight before it drops pages, and our readers or workers answer those. So threads of
//! their own send the notices; they wait for nothing else, and hold no lock.
//!
//! D1. A write is in the store before [`DirectWrites::answer`] looks at the file. A thread that brings pages in calls
//!     [`DirectWrites::pages_come`] before it reads the store. Both take the lock of the file's shard, so one sees the other:
//!     bytes from before the write have been announced by then. A read of a file without direct writes takes no lock
//!     ([`Presence`]): it counts as announced before the first direct write. Its pages were in the kernel's cache, locked,
//!     before the notice that makes the file `Clean`, which comes later (D2).
//! D2. `Clean` means that a notice about the whole file ended after the last announcement. A page announced before the
//!     notice was in the kernel's cache, locked, when the notice reached it.
//! D3. At most [`HELD_MAX`] writers wait for notices; others are answered first. The kernel limits its background
//!     requests, direct writes and read-ahead alike. If all were writes that wait for pages of queued reads, none would
//!     ever end. (To lower the kernel's limit to `HELD_MAX` by hand undoes this.)
//!
//! # Why
//! The kernel drops its pages of the range before a direct write, and after a synchronous one, but not when an
//! asynchronous one completes (Linux up to 6.18 at least). On a store that is not shared, pages read in between would
//! stay for ever. A request does not show its kind. To refuse asynchronous direct I/O would reduce every queue to one
//! request at a time. A program that only writes directly pays for [`SETTLED`] notices and then for none. Weakness:
//! with more than `HELD_MAX` writers at once, a reader may see old bytes for a moment after a write is complete.

use crate::lock_order;
use crate::notify::Notices;
use crate::server::nodes::NodeTable;
use crate::statistics::Counters;
use crate::transport::KernelCache;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use uvfs_concurrent::presence::Presence;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
use uvfs_concurrent::shard::Shards;
use uvfs_concurrent::workers::{Fifo, Workers};
use uvfs_vfs::ChangeSink;

/// Background requests that the kernel may have in flight at once; the transport requests this limit.
pub(crate) const BACKGROUND_MAX: u16 = 64;
/// Writers kept waiting at most (D3).
const HELD_MAX: usize = BACKGROUND_MAX as usize / 2;
/// Notices queued at most; further ones go through the queue of [`crate::notify`], which collapses.
const QUEUE_MAX: usize = 4096;
/// Threads at most. More than one, so that a store that is stuck with a read delays writers of that range only.
const THREADS_MAX: usize = 8;
/// Direct writes with no page coming in between after which the whole file is dropped, to be `Clean`.
const SETTLED: u32 = 64;
const SHARDS: usize = 16;
/// Files remembered per shard. Nothing is known of any other file.
const FILES_MAX: usize = 256;

/// Tells the writer.
pub(crate) type Reply = Box<dyn FnOnce(&Counters) + Send>;

/// State of a file that was written directly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PageState {
    /// There may be pages; so many direct writes came since the last of them was announced.
    Pages(u32),
    /// The whole file is being dropped, by the notice of this number.
    Clearing(u64),
    /// There are none.
    Clean,
}

/// The step that a direct write needs before its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Range,
    Whole(u64),
}

struct Job {
    node: u64,
    needs: Needs,
    range: (u64, u64),
    reply: Option<Reply>,
}

/// One shard of the states of files.
#[derive(Default)]
struct Files {
    states: HashMap<u64, PageState>,
    /// Notices about whole files so far.
    cleared: u64,
}

impl Files {
    fn set(&mut self, node: u64, state: PageState) {
        if self.states.len() >= FILES_MAX && !self.states.contains_key(&node) {
            let any = self.states.keys().next().copied();
            any.map(|any| self.states.remove(&any));
        }
        self.states.insert(node, state);
    }
}

/// See the module.
pub(crate) struct DirectWrites {
    files: Shards<Files>,
    /// Whether a file was ever written directly.
    writers: Presence,
    notifiers: Workers<Fifo<Job>>,
    /// Replies that wait for a notice (D3).
    held: AtomicUsize,
    kernel: OnceLock<Box<dyn KernelCache>>,
    nodes: Arc<NodeTable>,
    notices: Arc<Notices>,
    counters: Arc<Counters>,
}

impl DirectWrites {
    pub(crate) fn new(
        nodes: Arc<NodeTable>,
        notices: Arc<Notices>,
        counters: Arc<Counters>,
    ) -> Arc<Self> {
        Arc::new(Self {
            files: Shards::new(&lock_order::FUSE_SEEN, SHARDS),
            writers: Presence::default(),
            notifiers: Workers::new(
                &lock_order::FUSE_DIRECT,
                "uvfs-direct",
                Fifo::new(QUEUE_MAX, |_, _| {}),
            ),
            held: AtomicUsize::new(0),
            kernel: OnceLock::new(),
            nodes,
            notices,
            counters,
        })
    }

    /// From now on notices go through `kernel`; before that there are no requests.
    pub(crate) fn connect(&self, kernel: Box<dyn KernelCache>) {
        // Later calls are ignored.
        let _ = self.kernel.set(kernel);
    }

    /// The kernel is about to hold pages of `node`. Call this before the store is read, or before the kernel gets the
    /// pages.
    pub(crate) fn pages_come(&self, node: u64) {
        if !self.writers.has_come(node) {
            return;
        }
        if let Some(state) = self.files.of(&node).lock().states.get_mut(&node) {
            *state = PageState::Pages(0);
        }
    }

    /// `node` is new: the kernel holds no page of it. Call this before the kernel knows it.
    pub(crate) fn created(&self, node: u64) {
        self.writers.arrive(node);
        self.files.of(&node).lock().set(node, PageState::Clean);
    }

    /// Sends `reply` when the kernel shows no byte of `node` in `offset..offset + length` any more that was read
    /// before now. Never waits.
    pub(crate) fn answer(self: &Arc<Self>, node: u64, offset: u64, length: u64, reply: Reply) {
        match self.needs(node) {
            Needs::Nothing => reply(&self.counters),
            needs => {
                let job = Job { node, needs, range: (offset, length), reply: Some(reply) };
                self.push(job);
            }
        }
    }

    /// Sends `reply` when the kernel has dropped its pages of `node` in `offset..offset + length`. Never waits.
    pub(crate) fn drop_and_answer(
        self: &Arc<Self>,
        node: u64,
        offset: u64,
        length: u64,
        reply: Reply,
    ) {
        self.push(Job { node, needs: Needs::Range, range: (offset, length), reply: Some(reply) });
    }

    /// The kernel drops all pages of `node` some time soon.
    pub(crate) fn drop_soon(&self, node: u64) {
        self.tell(node);
    }

    /// Makes the kernel ask for the attributes of `node` again. Waits for nothing, so handlers may call it.
    pub(crate) fn attributes_changed(&self, node: u64) {
        if let Some(Err(error)) = self.kernel.get().map(|kernel| kernel.forget_attributes(node)) {
            log::debug!("the kernel keeps attributes: {error}");
        }
    }

    fn needs(&self, node: u64) -> Needs {
        self.writers.arrive(node);
        let mut files = self.files.of(&node).lock();
        let (next, needs) = match files.states.get(&node).copied().unwrap_or(PageState::Pages(0)) {
            PageState::Clean => return Needs::Nothing,
            PageState::Clearing(_) => return Needs::Range,
            PageState::Pages(writes) if writes < SETTLED => {
                (PageState::Pages(writes + 1), Needs::Range)
            }
            PageState::Pages(_) => {
                files.cleared += 1;
                (PageState::Clearing(files.cleared), Needs::Whole(files.cleared))
            }
        };
        files.set(node, next);
        needs
    }

    fn push(self: &Arc<Self>, mut job: Job) {
        // ORDERING: Relaxed; a bound, nothing is reached through it.
        let may_hold = |held| (held < HELD_MAX).then_some(held + 1);
        let holds = self.held.fetch_update(Relaxed, Relaxed, may_hold).is_ok();
        let at_once = if holds { None } else { job.reply.take() };
        let performer = || {
            let this = self.clone();
            move |job, _: &_| this.perform(job)
        };
        if let Err(job) = self.notifiers.submit(job, THREADS_MAX, performer) {
            // Too many wait, or no thread can be started: the notifier's thread takes it, and the writer does not wait.
            self.tell(job.node);
            self.reply(job);
        }
        at_once.into_iter().for_each(|reply| reply(&self.counters));
    }

    /// Answers the writer of `job`, if it waits.
    fn reply(&self, job: Job) {
        let Some(reply) = job.reply else { return };
        reply(&self.counters);
        // ORDERING: Relaxed; a bound, nothing is reached through it.
        self.held.fetch_sub(1, Relaxed);
    }

    /// All pages of `node` are dropped some time soon.
    fn tell(&self, node: u64) {
        if let Some(node) = self.nodes.get(node) {
            self.notices.inode_changed(node.id());
        }
    }

    fn perform(&self, job: Job) {
        if let Some(kernel) = self.kernel.get() {
            let (offset, length) = match job.needs {
                Needs::Whole(_) => (0, 0),
                _ => job.range,
            };
            match kernel.forget_pages(job.node, offset, length) {
                Err(error) => log::debug!("the kernel keeps pages of a direct write: {error}"),
                Ok(()) => self.cleared(job.node, job.needs),
            }
        }
        self.reply(job);
    }

    fn cleared(&self, node: u64, needs: Needs) {
        let Needs::Whole(number) = needs else { return };
        let mut files = self.files.of(&node).lock();
        if let Some(state) = files.states.get_mut(&node)
            && *state == PageState::Clearing(number)
        {
            *state = PageState::Clean;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_concurrent::lock::Mutex;
    use uvfs_vfs::{Vfs, VfsConfig};

    /// Reports each notice, and returns from it when it is let.
    struct Fake(Sender<(u64, u64, u64)>, Mutex<Receiver<()>>);

    static LET: uvfs_concurrent::lock::LockClass =
        uvfs_concurrent::lock::LockClass::new(400, "fake-pages", "leave to return from a notice");

    impl KernelCache for Fake {
        fn forget_entry(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!()
        }
        fn ask_again(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!()
        }
        fn forget_inode(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_attributes(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_pages(&self, node: u64, offset: u64, length: u64) -> io::Result<()> {
            self.0.send((node, offset, length)).unwrap();
            let _ = self.1.lock().recv();
            Ok(())
        }
        fn prune(&self, _: &[u64]) -> io::Result<()> {
            unreachable!()
        }
        fn forget_everything(&self) -> io::Result<()> {
            unreachable!()
        }
    }

    struct World {
        direct: Arc<DirectWrites>,
        notices: Receiver<(u64, u64, u64)>,
        leave: Sender<()>,
        answers: (Sender<u64>, Receiver<u64>),
    }

    fn world() -> World {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
        let direct =
            DirectWrites::new(Arc::new(NodeTable::new(vfs)), Notices::new(), Arc::default());
        let ((sent, notices), (leave, let_go)) = (channel(), channel());
        direct.connect(Box::new(Fake(sent, Mutex::new(&LET, let_go))));
        World { direct, notices, leave, answers: channel() }
    }

    impl World {
        fn write(&self, number: u64) {
            let answers = self.answers.0.clone();
            self.direct.answer(7, number, 1, Box::new(move |_| answers.send(number).unwrap()));
        }

        /// Writes that need a notice, each with the next number; none is in the way of the next.
        fn settle(&self, writes: u64) {
            for number in 0..writes {
                self.write(number);
                assert_eq!(self.notices.recv().unwrap(), (7, number, 1));
                self.leave.send(()).unwrap();
                assert_eq!(self.answers.1.recv().unwrap(), number);
            }
        }
    }

    #[test]
    fn a_writer_is_answered_when_the_pages_have_gone() {
        let world = world();
        world.write(3);
        assert_eq!(world.notices.recv().unwrap(), (7, 3, 1));
        assert!(world.answers.1.try_recv().is_err(), "they have not gone yet");
        world.leave.send(()).unwrap();
        assert_eq!(world.answers.1.recv().unwrap(), 3);
    }

    /// A program that only writes directly pays for no notices after a while, until pages are read again.
    #[test]
    fn a_file_without_pages_needs_no_notices_until_pages_come() {
        let world = world();
        world.settle(u64::from(SETTLED));
        world.write(1000);
        assert_eq!(world.notices.recv().unwrap(), (7, 0, 0), "the whole file");
        world.leave.send(()).unwrap();
        assert_eq!(world.answers.1.recv().unwrap(), 1000);
        world.write(1001);
        assert_eq!(world.answers.1.try_recv().unwrap(), 1001, "at once");
        world.direct.pages_come(8);
        world.write(1002);
        assert_eq!(world.answers.1.try_recv().unwrap(), 1002, "another file's");
        world.direct.pages_come(7);
        world.settle(1);
    }

    /// Every read of a kernel took a lock for the sake of direct writers that there were not.
    #[cfg(debug_assertions)]
    #[test]
    fn a_read_that_meets_no_direct_writer_takes_no_lock() {
        use uvfs_concurrent::primitive::record::tally;
        let world = world();
        let ((), cost) = tally(|| world.direct.pages_come(7));
        assert_eq!((cost.locks, cost.stores, cost.rmws), (0, 0, 0));
        world.settle(1);
        let ((), cost) = tally(|| world.direct.pages_come(7));
        assert_eq!(cost.locks, 1, "now it is announced");
    }

    /// A program that fills a new file pays for none.
    #[test]
    fn a_new_file_needs_no_notices_until_pages_come() {
        let world = world();
        world.direct.created(7);
        world.write(1);
        assert_eq!(world.answers.1.try_recv().unwrap(), 1, "at once");
        world.direct.pages_come(7);
        world.settle(1);
    }

    /// Pages that come while the whole file is being dropped may come behind it.
    #[test]
    fn pages_that_come_during_the_notice_are_not_taken_for_gone() {
        let world = world();
        world.settle(u64::from(SETTLED));
        world.write(1000);
        assert_eq!(world.notices.recv().unwrap(), (7, 0, 0));
        world.write(1001);
        assert_eq!(world.notices.recv().unwrap(), (7, 1001, 1), "not believed before it ended");
        world.direct.pages_come(7);
        world.leave.send(()).unwrap();
        world.leave.send(()).unwrap();
        let mut answers = [world.answers.1.recv().unwrap(), world.answers.1.recv().unwrap()];
        answers.sort_unstable();
        assert_eq!(answers, [1000, 1001]);
        world.settle(1);
    }

    /// All background requests of the kernel may be writes, with the reads whose pages they wait for queued behind
    /// them: some writes need an answer.
    #[test]
    fn not_all_writers_wait() {
        let world = world();
        for number in 0..u64::from(BACKGROUND_MAX) {
            world.write(number);
        }
        let at_once = world.answers.1.try_iter().count();
        assert_eq!(at_once, usize::from(BACKGROUND_MAX) - HELD_MAX);
        for _ in 0..BACKGROUND_MAX {
            world.leave.send(()).unwrap();
        }
        assert_eq!(world.answers.1.iter().take(HELD_MAX).count(), HELD_MAX);
        assert_eq!(world.notices.iter().take(usize::from(BACKGROUND_MAX)).count(), 64);
    }
}
