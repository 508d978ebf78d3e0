//! News for the kernel's caches.
//!
//! # Boundary
//! Takes news of changes that did not come through the kernel, and sends notices. Decides nothing
//! about our own caches, which dropped what they believed before the news came here.
//!
//! # Concurrency
//! One thread sends. A request handler must never do so: for a notice about an entry the kernel
//! takes the directory's lock, which it may hold already for the very request being handled, and
//! the mount hangs. So handlers and watchers only queue; the queue is bounded and collapses into
//! "forget everything" when it overflows. The sending thread holds no lock while it sends.
//! Who cleans may wait for notices about missing names ([`Notices::wait_asked`]).

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

/// Notices queued before they collapse.
const QUEUE_MAX: usize = 16_384;
/// Of them, notices about names that are asked for again for our own sake: they are never what makes the
/// queue collapse.
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
    /// Notices queued so far, and how many of them are done. They are sent in order, and what collapsed
    /// is done when its substitute is.
    queued: u64,
    done: u64,
    /// What `queued` was after the last `AskAgain`.
    asked: u64,
    ended: bool,
}

/// The queue, as backends and the in-process API see it.
pub(crate) struct Notices {
    queue: Mutex<Queue>,
    work: Condvar,
    /// Some are done.
    progress: Condvar,
}

impl Notices {
    pub(crate) fn new() -> Arc<Self> {
        let queue = Mutex::new(&lock_order::FUSE_NOTICES, Queue::default());
        Arc::new(Self { queue, work: Condvar::default(), progress: Condvar::default() })
    }

    fn push(&self, notice: Notice) {
        let mut queue = self.queue.lock();
        queue.queued += 1;
        if queue.notices.len() >= QUEUE_MAX {
            queue.notices.clear();
            queue.notices.push_back(Notice::Everything);
        } else {
            queue.notices.push_back(notice);
        }
        drop(queue);
        self.work.notify_one();
    }

    /// Queues that the kernel is to ask again about `name` in the directory of node id `parent`. False if too
    /// much is queued for that. Never waits.
    pub(crate) fn ask_again(&self, parent: u64, name: &[u8]) -> bool {
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

    /// Waits until all that [`Notices::ask_again`] queued so far has been sent, for at most `limit`. Not
    /// from a request handler, for which the sending thread may have to wait.
    pub(crate) fn wait_asked(&self, limit: Duration) {
        let end = Instant::now() + limit;
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

    /// Starts the thread that sends notices through `kernel`.
    pub(crate) fn start(
        self: &Arc<Self>,
        kernel: Box<dyn KernelCache>,
        nodes: Arc<NodeTable>,
        counters: Arc<Counters>,
    ) -> std::io::Result<Notifier> {
        let notices = self.clone();
        let thread = std::thread::Builder::new()
            .name("uvfs-notifier".to_owned())
            .spawn(move || notices.send_all(&*kernel, &nodes, &counters))?;
        Ok(Notifier { notices: self.clone(), thread: Some(thread) })
    }

    fn send_all(&self, kernel: &dyn KernelCache, nodes: &NodeTable, counters: &Counters) {
        let mut done = 0;
        while let Some((number, notice)) = self.next(done) {
            let sent = match notice {
                Notice::Entry(parent, name) => {
                    nodes.id_of(parent).map_or(Ok(()), |parent| kernel.forget_entry(parent, &name))
                }
                Notice::Inode(inode) => {
                    nodes.id_of(inode).map_or(Ok(()), |node| kernel.forget_inode(node))
                }
                Notice::AskAgain(parent, name) => kernel.ask_again(parent, &name),
                Notice::Everything => forget_everything(kernel, nodes),
            };
            done = number;
            counters.notices.hit();
            if let Err(error) = sent {
                counters.notices_failed.hit();
                log::debug!("the kernel refused a cache notice: {error}");
            }
        }
    }

    /// The next notice and its number; those up to number `done` have been sent.
    fn next(&self, done: u64) -> Option<(u64, Notice)> {
        let mut queue = self.queue.lock();
        queue.done = done;
        self.progress.notify_all();
        loop {
            if queue.ended {
                return None;
            }
            if let Some(notice) = queue.notices.pop_front() {
                let number = queue.queued - queue.notices.len() as u64;
                return Some((number, notice));
            }
            self.work.wait(&mut queue);
        }
    }
}

/// Names by one notice, where the kernel knows it; attributes and pages of each node by one of its own. One that
/// fails keeps no other from being sent: the last error is told.
fn forget_everything(kernel: &dyn KernelCache, nodes: &NodeTable) -> std::io::Result<()> {
    let mut told = kernel.forget_everything();
    for node in nodes.ids() {
        match kernel.forget_inode(node) {
            // Forgotten meanwhile.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
            Err(error) => told = Err(error),
            Ok(()) => {}
        }
    }
    told
}

impl ChangeSink for Notices {
    fn entry_changed(&self, parent: InodeId, name: Name<'_>) {
        self.push(Notice::Entry(parent, name.as_bytes().into()));
    }

    fn inode_changed(&self, inode: InodeId) {
        self.push(Notice::Inode(inode));
    }

    fn everything_changed(&self) {
        self.push(Notice::Everything);
    }
}

/// The sending thread; ended and joined when dropped.
pub(crate) struct Notifier {
    notices: Arc<Notices>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.notices.queue.lock().ended = true;
        self.notices.work.notify_all();
        self.notices.progress.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own thread.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_concurrent::lock::LockClass;
    use uvfs_vfs::{Caller, NewKind, NewNode, Vfs, VfsConfig};

    static TOLD: LockClass =
        LockClass::new(400, "fake-told", "what a kernel made for a test was told");

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
            let mut told = self.0.lock();
            told.push(node);
            match told.len() % 2 {
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

    /// Bug: the first notice that the kernel refused was the last one sent, and all nodes behind it kept pages
    /// and attributes of which nobody knew any more whether they were true.
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
        let kernel = Refusing(Mutex::new(&TOLD, Vec::new()));
        let told = forget_everything(&kernel, &nodes);
        assert_eq!(told.unwrap_err().raw_os_error(), Some(libc::EIO));
        let mut sent = kernel.0.into_inner();
        sent.sort_unstable();
        let mut held = nodes.ids();
        held.sort_unstable();
        assert_eq!((sent.len(), sent), (5, held));
    }

    /// Names of ours never make the queue collapse, which would cost every name of the mount.
    #[test]
    fn what_is_asked_again_for_our_own_sake_leaves_room_for_news() {
        let notices = Notices::new();
        let taken = (0..QUEUE_MAX).filter(|_| notices.ask_again(2, b"no")).count();
        assert_eq!(taken, OURS_MAX);
        for _ in taken..QUEUE_MAX {
            notices.inode_changed(InodeId(7));
        }
        assert_eq!(notices.queue.lock().notices.len(), QUEUE_MAX);
        assert!(!notices.ask_again(2, b"no"));
        notices.inode_changed(InodeId(7));
        let (number, substitute) = notices.next(0).unwrap();
        assert!(matches!(substitute, Notice::Everything));
        assert_eq!(number, QUEUE_MAX as u64 + 1, "with it all are done");
    }

    #[test]
    fn notices_are_numbered_in_the_order_in_which_they_are_sent() {
        let notices = Notices::new();
        notices.wait_asked(Duration::from_secs(3600));
        assert!(notices.ask_again(2, b"a"));
        notices.inode_changed(InodeId(7));
        assert_eq!(notices.next(0).unwrap().0, 1);
        std::thread::scope(|scope| {
            // Far longer than a test may take: it has to be woken.
            let waits = scope.spawn(|| notices.wait_asked(Duration::from_secs(3600)));
            assert_eq!(notices.next(1).unwrap().0, 2);
            waits.join().unwrap();
        });
        notices.wait_asked(Duration::from_secs(3600));
        assert!(notices.ask_again(2, b"a"));
        // Nobody sends it.
        notices.wait_asked(Duration::from_millis(5));
        notices.queue.lock().ended = true;
        notices.wait_asked(Duration::from_secs(3600));
    }
}
