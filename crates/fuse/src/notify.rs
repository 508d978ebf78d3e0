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

use crate::server::nodes::NodeTable;
use crate::statistics::Counters;
use crate::transport::KernelCache;
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::JoinHandle;
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_vfs::{ChangeSink, InodeId, Name, lock_order};

/// Notices queued before they collapse.
const QUEUE_MAX: usize = 16_384;

enum Notice {
    Entry(InodeId, Box<[u8]>),
    Inode(InodeId),
    Everything,
}

#[derive(Default)]
struct Queue {
    notices: VecDeque<Notice>,
    ended: bool,
}

/// The queue, as backends and the in-process API see it.
pub(crate) struct Notices {
    queue: Mutex<Queue>,
    work: Condvar,
}

impl Notices {
    pub(crate) fn new() -> Arc<Self> {
        let queue = Mutex::new(&lock_order::FUSE_NOTICES, Queue::default());
        Arc::new(Self { queue, work: Condvar::default() })
    }

    fn push(&self, notice: Notice) {
        let mut queue = self.queue.lock();
        if queue.notices.len() >= QUEUE_MAX {
            queue.notices.clear();
            queue.notices.push_back(Notice::Everything);
        } else {
            queue.notices.push_back(notice);
        }
        drop(queue);
        self.work.notify_one();
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
        while let Some(notice) = self.next() {
            let sent = match notice {
                Notice::Entry(parent, name) => {
                    nodes.id_of(parent).map_or(Ok(()), |parent| kernel.forget_entry(parent, &name))
                }
                Notice::Inode(inode) => {
                    nodes.id_of(inode).map_or(Ok(()), |node| kernel.forget_inode(node))
                }
                Notice::Everything => forget_everything(kernel, nodes),
            };
            counters.notices.hit();
            if let Err(error) = sent {
                counters.notices_failed.hit();
                log::debug!("the kernel refused a cache notice: {error}");
            }
        }
    }

    fn next(&self) -> Option<Notice> {
        let mut queue = self.queue.lock();
        loop {
            if queue.ended {
                return None;
            }
            if let Some(notice) = queue.notices.pop_front() {
                return Some(notice);
            }
            self.work.wait(&mut queue);
        }
    }
}

/// Names by one notice, where the kernel knows it; attributes and pages of each node by one of its own.
fn forget_everything(kernel: &dyn KernelCache, nodes: &NodeTable) -> std::io::Result<()> {
    let names = kernel.forget_everything();
    nodes.ids().into_iter().try_for_each(|node| match kernel.forget_inode(node) {
        // Forgotten meanwhile.
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    })?;
    names
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
        if let Some(thread) = self.thread.take() {
            // A panic there has been reported by its own thread.
            let _ = thread.join();
        }
    }
}
