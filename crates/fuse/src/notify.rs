//! News for the kernel's caches.
//!
//! # Boundary
//! Takes news of changes that did not come through the kernel, and sends notices. Decides nothing about our own caches,
//! which dropped the changed entries before the news arrived here.
//!
//! # Concurrency
//! A request handler must never send. For a notice about an entry the kernel takes the directory's lock; it may already
//! hold that lock for the very request being handled, and the mount would hang. So handlers and watchers only queue,
//! and [`LANES`] threads send, each from a queue of its own. Notices about one inode, and about names in it, take one
//! lane, in order; so do those about missing names of one node id, maybe another lane. A queue is bounded and collapses
//! into "forget everything" when it overflows. A sending thread holds no lock while it sends. A notice about an inode
//! that the kernel does not have, yet holds, is sent again until the kernel has it: a reply that makes the inode may be
//! on its way, with attributes from before the news, and a new inode has no version to compare ([`Early`]). A thread
//! that cleans may wait for notices about missing names ([`Notices::wait_asked`]).
//!
//! # Why
//! A lookup that hangs in a slow store holds its directory's lock in the kernel, so a notice about that directory also
//! hangs. With one thread, that notice delayed all others. Weakness: it still delays those of its own lane.

use crate::lock_order;
use crate::server::nodes::NodeTable;
use crate::statistics::Counters;
use crate::transport::KernelCache;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_vfs::{ChangeSink, InodeId, Name};

/// Queues, with a sending thread each.
const LANES: usize = 4;
/// Notices queued in a lane before they collapse.
const QUEUE_MAX: usize = 16_384 / LANES;
/// Notices of a lane that expire missing names to free room, at most: they never make the queue collapse.
const OURS_MAX: usize = QUEUE_MAX / 4;

enum Notice {
    Entry(InodeId, Box<[u8]>),
    Inode(InodeId),
    /// A name in the directory of a node id, no longer recorded as missing.
    AskAgain(u64, Box<[u8]>),
    Everything,
}

#[derive(Default)]
struct Queue {
    notices: VecDeque<Notice>,
    /// Notices queued so far, and how many of them are done. They are sent in order. A collapsed notice is done when
    /// its substitute is.
    queued: u64,
    done: u64,
    /// The value of `queued` after the last `AskAgain`.
    asked: u64,
    ended: bool,
}

/// The queues, as backends and the in-process API see them.
pub(crate) struct Notices {
    lanes: [Lane; LANES],
}

/// A queue and its thread's signals.
struct Lane {
    queue: Mutex<Queue>,
    work: Condvar,
    /// Some are done.
    progress: Condvar,
}

impl Notices {
    pub(crate) fn new() -> Arc<Self> {
        let lane = |_| Lane {
            queue: Mutex::new(&lock_order::FUSE_NOTICES, Queue::default()),
            work: Condvar::default(),
            progress: Condvar::default(),
        };
        Arc::new(Self { lanes: std::array::from_fn(lane) })
    }

    /// The lane of notices about `object`, the number of a directory or a file.
    fn lane(&self, object: u64) -> &Lane {
        // Numbers of neighbours differ in their low bits, numbers with a generation in the high ones.
        &self.lanes[(object ^ object >> 32) as usize % LANES]
    }

    /// Queues that the kernel is to ask again about `name` in the directory of node id `parent`. False if too
    /// much is queued for that. Never waits.
    pub(crate) fn ask_again(&self, parent: u64, name: &[u8]) -> bool {
        self.lane(parent).ask_again(parent, name)
    }

    /// Queues that the kernel is to forget attributes and pages of `inode`. Never waits.
    pub(crate) fn tell_inode(&self, inode: InodeId) {
        self.lane(inode.0).push(Notice::Inode(inode));
    }

    /// Waits until all that [`Notices::ask_again`] queued so far has been sent, for at most `limit`. Not
    /// from a request handler, for which a sending thread may have to wait.
    pub(crate) fn wait_asked(&self, limit: Duration) {
        let end = Instant::now() + limit;
        self.lanes.iter().for_each(|lane| lane.wait_asked(end));
    }

    /// Starts the threads that send notices through `kernel`.
    pub(crate) fn start(
        self: &Arc<Self>,
        kernel: Box<dyn KernelCache>,
        nodes: Arc<NodeTable>,
        counters: Arc<Counters>,
    ) -> std::io::Result<Notifier> {
        let kernel: Arc<dyn KernelCache> = kernel.into();
        let mut notifier = Notifier { notices: self.clone(), threads: Vec::new() };
        for lane in 0..LANES {
            let (notices, kernel) = (self.clone(), kernel.clone());
            let (nodes, counters) = (nodes.clone(), counters.clone());
            let thread = std::thread::Builder::new()
                .name("uvfs-notifier".to_owned())
                .spawn(move || notices.lanes[lane].send_all(&*kernel, &nodes, &counters))?;
            notifier.threads.push(thread);
        }
        Ok(notifier)
    }
}

impl Lane {
    fn push(&self, notice: Notice) {
        let mut queue = self.queue.lock();
        queue.queued += 1;
        if queue.notices.len() >= QUEUE_MAX {
            // No record has these names any more, so they stay, and `wait_asked` waits for all of them.
            queue.notices.retain(|notice| matches!(notice, Notice::AskAgain(..)));
            if !queue.notices.is_empty() {
                queue.asked = queue.queued;
            }
            queue.notices.push_back(Notice::Everything);
        } else {
            queue.notices.push_back(notice);
        }
        drop(queue);
        self.work.notify_one();
    }

    fn ask_again(&self, parent: u64, name: &[u8]) -> bool {
        let mut queue = self.queue.lock();
        if queue.notices.len() >= OURS_MAX {
            return false;
        }
        queue.queued += 1;
        queue.asked = queue.queued;
        queue.notices.push_back(Notice::AskAgain(parent, name.into()));
        drop(queue);
        self.work.notify_one();
        true
    }

    fn wait_asked(&self, end: Instant) {
        let mut queue = self.queue.lock();
        let asked = queue.asked;
        while queue.done < asked && !queue.ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.progress.wait_for(&mut queue, left);
        }
    }

    fn send_all(&self, kernel: &dyn KernelCache, nodes: &NodeTable, counters: &Counters) {
        let (mut done, mut early) = (0, Early::default());
        loop {
            let (number, notice) = match self.next(done, early.due()) {
                Next::Ended => return,
                Next::Early => {
                    early.send_again(kernel, nodes);
                    continue;
                }
                Next::Notice(number, notice) => (number, notice),
            };
            let sent = match notice {
                Notice::Entry(parent, name) => {
                    nodes.id_of(parent).map_or(Ok(()), |parent| kernel.forget_entry(parent, &name))
                }
                Notice::Inode(inode) => {
                    nodes.id_of(inode).map_or(Ok(()), |node| early.forget_inode(kernel, node))
                }
                Notice::AskAgain(parent, name) => kernel.ask_again(parent, &name),
                Notice::Everything => forget_everything(kernel, nodes, &mut early),
            };
            done = number;
            counters.notices.hit();
            if let Err(error) = sent {
                counters.notices_failed.hit();
                log::debug!("the kernel refused a cache notice: {error}");
            }
        }
    }

    /// The next notice and its number, if there is one before `due`; those up to number `done` have been sent.
    fn next(&self, done: u64, due: Option<Instant>) -> Next {
        let mut queue = self.queue.lock();
        queue.done = done;
        self.progress.notify_all();
        loop {
            if queue.ended {
                return Next::Ended;
            }
            let left = due.map(|due| due.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Next::Early;
            }
            if let Some(notice) = queue.notices.pop_front() {
                let number = queue.queued - queue.notices.len() as u64;
                return Next::Notice(number, notice);
            }
            match left {
                Some(left) => _ = self.work.wait_for(&mut queue, left),
                None => self.work.wait(&mut queue),
            }
        }
    }
}

/// The work of a sending thread.
enum Next {
    Notice(u64, Notice),
    /// A notice that came too early is due again.
    Early,
    Ended,
}

/// Notices about inodes that the kernel did not have. It has forgotten the inode, and says so soon, or it is about to
/// make it from a reply. In the second case the notice must come after that.
#[derive(Default)]
struct Early {
    /// Node ids, and how often each was sent. The oldest is first: each waits equally long.
    waiting: VecDeque<(Instant, u64, u32)>,
}

impl Early {
    /// The time that a thread may take to read its reply, with some reserve.
    const PAUSE: Duration = Duration::from_millis(2);
    /// In all a minute, and a pause takes longer on a busy machine: attributes are hardly valid for longer.
    const SENT_MAX: u32 = 30_000;

    /// When the next one is due.
    fn due(&self) -> Option<Instant> {
        self.waiting.front().map(|&(due, ..)| due)
    }

    fn forget_inode(&mut self, kernel: &dyn KernelCache, node: u64) -> std::io::Result<()> {
        self.send(kernel, node, 1)
    }

    fn send(&mut self, kernel: &dyn KernelCache, node: u64, sent: u32) -> std::io::Result<()> {
        match kernel.forget_inode(node) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                if sent < Self::SENT_MAX {
                    self.waiting.push_back((Instant::now() + Self::PAUSE, node, sent));
                }
                Ok(())
            }
            sent => sent,
        }
    }

    /// Sends those that are due, unless the kernel has forgotten their nodes.
    fn send_again(&mut self, kernel: &dyn KernelCache, nodes: &NodeTable) {
        let now = Instant::now();
        while let Some(&(due, node, sent)) = self.waiting.front()
            && due <= now
        {
            self.waiting.pop_front();
            if nodes.is_held(node)
                && let Err(error) = self.send(kernel, node, sent + 1)
            {
                log::debug!("the kernel refused a cache notice: {error}");
            }
        }
    }
}

/// Sends a notice for all names that the kernel knows, and one for the attributes and pages of each node. A kernel without
/// a notice for all names (before Linux 6.16) gets one for each name that is recorded. A failure does not stop the
/// others; the last error is returned.
fn forget_everything(
    kernel: &dyn KernelCache,
    nodes: &NodeTable,
    early: &mut Early,
) -> std::io::Result<()> {
    let mut sent = kernel.forget_everything();
    let by_name = matches!(&sent, Err(error) if error.raw_os_error() == Some(libc::EINVAL));
    if by_name {
        sent = Ok(());
    }
    for node in nodes.ids() {
        if by_name && let Err(error) = ask_again_about(kernel, nodes, node) {
            sent = Err(error);
        }
        if let Err(error) = early.forget_inode(kernel, node) {
            sent = Err(error);
        }
    }
    sent
}

/// The kernel asks again about each name of `node`, and about each name that it knows to be missing in it.
fn ask_again_about(kernel: &dyn KernelCache, nodes: &NodeTable, node: u64) -> std::io::Result<()> {
    let mut sent = Ok(());
    for (parent, name) in nodes.places(node) {
        sent = kernel.ask_again(parent, &name).and(sent);
    }
    for missing in nodes.missing.names(node) {
        sent = kernel.ask_again(node, &missing.name).and(sent);
    }
    sent
}

impl ChangeSink for Notices {
    fn entry_changed(&self, parent: InodeId, name: Name<'_>) {
        self.lane(parent.0).push(Notice::Entry(parent, name.as_bytes().into()));
    }

    fn inode_changed(&self, inode: InodeId) {
        self.tell_inode(inode);
    }

    fn everything_changed(&self) {
        self.lane(0).push(Notice::Everything);
    }
}

/// The sending threads; ended and joined when dropped.
pub(crate) struct Notifier {
    notices: Arc<Notices>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Notifier {
    fn drop(&mut self) {
        for lane in &self.notices.lanes {
            lane.queue.lock().ended = true;
            lane.work.notify_all();
            lane.progress.notify_all();
        }
        for thread in self.threads.drain(..) {
            // A panic there has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::nodes::{EntryPlace, ROOT};
    use std::io;
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_concurrent::lock::LockClass;
    use uvfs_vfs::{Caller, NewKind, NewNode, Vfs, VfsConfig};

    static SENT: LockClass =
        LockClass::new(400, "fake-sent", "what a kernel made for a test was sent");

    /// Refuses every second notice.
    struct Refusing(Mutex<Vec<u64>>);

    impl KernelCache for Refusing {
        fn forget_entry(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!()
        }
        fn ask_again(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!()
        }
        fn forget_attributes(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_pages(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_inode(&self, node: u64) -> io::Result<()> {
            let mut sent = self.0.lock();
            sent.push(node);
            match sent.len() % 2 {
                0 => Ok(()),
                _ => Err(io::Error::from_raw_os_error(libc::EIO)),
            }
        }
        fn prune(&self, _: &[u64]) -> io::Result<()> {
            unreachable!()
        }
        fn forget_everything(&self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Bug: after the first notice that the kernel refused, no more were sent. All nodes behind it kept pages and
    /// attributes that might be wrong.
    #[test]
    fn a_refused_notice_keeps_no_other_from_being_sent() {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
        let nodes = NodeTable::new(vfs.clone());
        for name in [b"a", b"b", b"c", b"d"] {
            let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
            let name = Name::new(name).unwrap();
            let found = vfs.create(&Caller::root(), vfs.root(), name, &new).unwrap();
            nodes.publish(&found.node, (found.attributes.number, 0), None);
        }
        let kernel = Refusing(Mutex::new(&SENT, Vec::new()));
        let sent = forget_everything(&kernel, &nodes, &mut Early::default());
        assert_eq!(sent.unwrap_err().raw_os_error(), Some(libc::EIO));
        let mut sent = kernel.0.into_inner();
        sent.sort_unstable();
        let mut held = nodes.ids();
        held.sort_unstable();
        assert_eq!((sent.len(), sent), (5, held));
    }

    /// A kernel without a notice for all names. Keeps the names of the other notices.
    struct Old(Mutex<Vec<(u64, Vec<u8>)>>);

    impl KernelCache for Old {
        fn forget_entry(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!()
        }
        fn ask_again(&self, parent: u64, name: &[u8]) -> io::Result<()> {
            self.0.lock().push((parent, name.to_owned()));
            Ok(())
        }
        fn forget_attributes(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_pages(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_inode(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
        fn prune(&self, _: &[u64]) -> io::Result<()> {
            unreachable!()
        }
        fn forget_everything(&self) -> io::Result<()> {
            Err(io::Error::from_raw_os_error(libc::EINVAL))
        }
    }

    /// Bug: a kernel before Linux 6.16 refuses the one notice that stands for all names, and got no other. It kept names
    /// that a program had removed through another frontend, for good where names do not expire.
    #[test]
    fn a_kernel_without_a_notice_for_all_names_hears_of_each() {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
        let nodes = NodeTable::new(vfs.clone());
        let new = NewNode { kind: NewKind::Directory, mode: 0o755, umask: 0 };
        let make = |parent: &uvfs_vfs::Node, name: &'static [u8]| {
            vfs.create(&Caller::root(), parent, Name::new(name).unwrap(), &new).unwrap()
        };
        let seen = |place| EntryPlace { generation: 0, place: Some(place), others: false };
        let above = make(vfs.root(), b"d");
        let number = (above.attributes.number, 0);
        let directory = nodes.publish(&above.node, number, Some(seen((ROOT, b"d"))));
        let found = make(&above.node, b"f");
        let number = (found.attributes.number, 0);
        nodes.publish(&found.node, number, Some(seen((directory, b"f"))));
        nodes.missing.set_room(1 << 20);
        assert!(nodes.missing.record(directory, b"none", |_, _| true));
        let kernel = Old(Mutex::new(&SENT, Vec::new()));
        forget_everything(&kernel, &nodes, &mut Early::default()).unwrap();
        let mut sent = kernel.0.into_inner();
        sent.sort_unstable();
        let name = |parent, name: &[u8]| (parent, name.to_owned());
        let mut all = [name(ROOT, b"d"), name(directory, b"f"), name(directory, b"none")];
        all.sort_unstable();
        assert_eq!(sent, all);
    }

    /// Bug: names that were no longer recorded as missing left the queue when it collapsed, and the kernel kept them.
    #[test]
    fn a_queue_that_collapses_keeps_names_that_no_record_has() {
        let all = Notices::new();
        let notices = all.lane(2);
        notices.push(Notice::Inode(InodeId(7)));
        assert!(notices.ask_again(2, b"a") && notices.ask_again(2, b"b"));
        for _ in 0..QUEUE_MAX {
            notices.push(Notice::Inode(InodeId(7)));
        }
        let mut done = 0;
        let mut next = || match notices.next(done, None) {
            Next::Notice(number, notice) => {
                // A thread that waits for the names waits for both.
                let waits = notices.queue.lock().asked > done;
                done = number;
                (waits, notice)
            }
            Next::Early | Next::Ended => unreachable!("it has not ended"),
        };
        assert!(matches!(next(), (true, Notice::AskAgain(2, name)) if *name == *b"a"));
        assert!(matches!(next(), (true, Notice::AskAgain(2, name)) if *name == *b"b"));
        assert!(matches!(next(), (true, Notice::Everything)));
        for _ in 0..2 {
            assert!(matches!(next(), (false, Notice::Inode(_))));
        }
    }

    /// Names of ours never make the queue collapse, which would cost every name of the mount.
    #[test]
    fn what_is_asked_again_for_our_own_sake_leaves_room_for_news() {
        let all = Notices::new();
        let notices = all.lane(2);
        let taken = (0..QUEUE_MAX).filter(|_| notices.ask_again(2, b"no")).count();
        assert_eq!(taken, OURS_MAX);
        for _ in taken..QUEUE_MAX {
            notices.push(Notice::Inode(InodeId(7)));
        }
        assert_eq!(notices.queue.lock().notices.len(), QUEUE_MAX);
        assert!(!notices.ask_again(2, b"no"));
        notices.push(Notice::Inode(InodeId(7)));
        let mut next = notices.next(0, None);
        for _ in 0..OURS_MAX {
            assert!(matches!(next, Next::Notice(_, Notice::AskAgain(..))));
            next = notices.next(0, None);
        }
        let all = QUEUE_MAX as u64 + 1;
        assert!(matches!(next, Next::Notice(number, Notice::Everything) if number == all));
    }

    #[test]
    fn notices_are_numbered_in_the_order_in_which_they_are_sent() {
        let all = Notices::new();
        let notices = all.lane(2);
        all.wait_asked(Duration::from_secs(3600));
        assert!(notices.ask_again(2, b"a"));
        notices.push(Notice::Inode(InodeId(7)));
        let next = |done| match notices.next(done, None) {
            Next::Notice(number, _) => number,
            Next::Early | Next::Ended => unreachable!("it has not ended"),
        };
        assert_eq!(next(0), 1);
        std::thread::scope(|scope| {
            // Far longer than a test may take: it has to be woken.
            let waits = scope.spawn(|| all.wait_asked(Duration::from_secs(3600)));
            assert_eq!(next(1), 2);
            waits.join().unwrap();
        });
        all.wait_asked(Duration::from_secs(3600));
        assert!(notices.ask_again(2, b"a"));
        // No thread sends it.
        all.wait_asked(Duration::from_millis(5));
        notices.queue.lock().ended = true;
        all.wait_asked(Duration::from_secs(3600));
    }

    /// A kernel that makes its inode from a reply that was on its way, after three notices.
    struct Slow(Mutex<u32>);

    impl KernelCache for Arc<Slow> {
        fn forget_entry(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!()
        }
        fn ask_again(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!()
        }
        fn forget_attributes(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_pages(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_inode(&self, _: u64) -> io::Result<()> {
            let mut sent = self.0.lock();
            *sent += 1;
            match *sent {
                0..=3 => Err(io::Error::from_raw_os_error(libc::ENOENT)),
                _ => Ok(()),
            }
        }
        fn prune(&self, _: &[u64]) -> io::Result<()> {
            unreachable!()
        }
        fn forget_everything(&self) -> io::Result<()> {
            unreachable!()
        }
    }

    /// A notice overtook the reply that made the inode. The kernel had no inode to invalidate, and then cached the
    /// attributes from before the news, for as long as the reply said.
    #[test]
    fn a_notice_about_an_inode_that_the_kernel_is_about_to_make_is_sent_again() {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
        let nodes = NodeTable::new(vfs.clone());
        let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
        let found = vfs.create(&Caller::root(), vfs.root(), Name::new(b"f").unwrap(), &new);
        let found = found.unwrap();
        let id = nodes.publish(&found.node, (found.attributes.number, 0), None);
        let kernel = Arc::new(Slow(Mutex::new(&SENT, 0)));
        let mut early = Early::default();
        early.forget_inode(&kernel, id).unwrap();
        while early.due().is_some() {
            early.send_again(&kernel, &nodes);
        }
        assert_eq!(*kernel.0.lock(), 4, "until the kernel had it");

        *kernel.0.lock() = 0;
        early.forget_inode(&kernel, id).unwrap();
        nodes.forget(id, 1);
        while early.due().is_some() {
            early.send_again(&kernel, &nodes);
        }
        assert_eq!(*kernel.0.lock(), 1, "the kernel has forgotten it");
    }

    /// Waits in every notice about the directory of node id 1, as the kernel does while a lookup there hangs.
    struct Hanging {
        hangs: Mutex<bool>,
        ends: Condvar,
        sent: Mutex<Vec<u64>>,
        news: Condvar,
    }

    static HANGS: LockClass = LockClass::new(401, "fake-hangs", "whether a lookup hangs");

    impl KernelCache for Arc<Hanging> {
        fn forget_entry(&self, _: u64, _: &[u8]) -> io::Result<()> {
            unreachable!()
        }
        fn ask_again(&self, parent: u64, _: &[u8]) -> io::Result<()> {
            if parent == 1 {
                let mut hangs = self.hangs.lock();
                while *hangs {
                    self.ends.wait(&mut hangs);
                }
            }
            self.sent.lock().push(parent);
            self.news.notify_all();
            Ok(())
        }
        fn forget_attributes(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_pages(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn forget_inode(&self, _: u64) -> io::Result<()> {
            unreachable!()
        }
        fn prune(&self, _: &[u64]) -> io::Result<()> {
            unreachable!()
        }
        fn forget_everything(&self) -> io::Result<()> {
            unreachable!()
        }
    }

    /// A lookup hung in a slow store, with its directory's lock held in the kernel. The one thread that sent notices waited
    /// for that lock, and no other directory's news reached the kernel.
    #[test]
    fn a_directory_that_hangs_keeps_no_news_of_others() {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
        let nodes = Arc::new(NodeTable::new(vfs));
        let kernel = Arc::new(Hanging {
            hangs: Mutex::new(&HANGS, true),
            ends: Condvar::default(),
            sent: Mutex::new(&SENT, Vec::new()),
            news: Condvar::default(),
        });
        let notices = Notices::new();
        let notifier = notices.start(Box::new(kernel.clone()), nodes, Arc::default()).unwrap();
        assert!(notices.ask_again(1, b"slow"));
        assert!(notices.ask_again(2, b"fast"));
        let mut sent = kernel.sent.lock();
        let mut late = false;
        while sent.is_empty() && !late {
            late = kernel.news.wait_for(&mut sent, Duration::from_secs(60));
        }
        let first = sent.clone();
        drop(sent);
        *kernel.hangs.lock() = false;
        kernel.ends.notify_all();
        notices.wait_asked(Duration::from_secs(3600));
        drop(notifier);
        assert_eq!(first, [2], "the news of directory 2 waits for directory 1");
        assert_eq!(*kernel.sent.lock(), [2, 1]);
    }
}
