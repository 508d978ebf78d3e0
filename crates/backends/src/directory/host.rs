//! The shared parts of the backend: the root, the tables, the counters.
//!
//! # Boundary
//! Construction and plain access. Each family of operations is an `impl Host` in its own file.

use super::convert::{HostStat, host_error, shown_number, stat_at, stat_of};
use super::descriptor::DescriptorCache;
use super::identity::Identity;
use super::node::{HostNode, OwnChange};
use super::open::{OpenFiles, OpenHostFile};
use super::shares::Shares;
use super::table::{Forgotten, NodeTable};
use super::watch::Watches;
use super::xattr::XattrListing;
use super::{ActAs, DirectoryConfig};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use uvfs_concurrent::counter::Counter;
use uvfs_concurrent::primitive::atomic::AtomicBool;
use uvfs_vfs::{Authority, Enforcer, Listings, Opens, PageCaching, Waits, Writes};
use uvfs_vfs::{Capabilities, Entry, Error, FileKind, InodeId, Name, Result, Tenant, Totals};

/// The type of overlay file systems in `statfs`. There a file's time of birth changes when it is first written, so
/// times of birth identify nothing.
const OVERLAYFS: u64 = 0x794c_7630;
/// The other file systems of Linux that pass another one's files through.
const ECRYPTFS: u64 = 0xf15f;
const FUSE: u64 = 0x6573_5546;
/// Descriptors kept at most, unless configured.
const DESCRIPTORS_MAX: usize = 4096;

/// A served host directory.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) root: Arc<HostNode>,
    pub(super) root_device: u64,
    /// `/proc/self/fd`: the way from a descriptor that denotes to one that reads or writes.
    pub(super) proc_fds: OwnedFd,
    pub(super) identity: Identity,
    pub(super) nodes: Arc<NodeTable>,
    pub(super) descriptors: DescriptorCache,
    pub(super) files: OpenFiles,
    pub(super) shares: Arc<Shares>,
    pub(super) watches: OnceLock<Watches>,
    pub(super) counters: Counters,
    pub(super) lacks_openat2: AtomicBool,
    pub(super) xattrs: bool,
    acls: bool,
    /// The root is on a file system that passes another one's files through.
    stacked: bool,
    /// Times of birth identify objects.
    births: bool,
    /// Whether a list of extended attributes shows which ones are absent.
    pub(super) listing: XattrListing,
}

/// Events, for reports.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) descriptors_opened: Counter,
    pub(super) shrinks: Counter,
    pub(super) stale: Counter,
    pub(super) outside: Counter,
    pub(super) located: Counter,
    pub(super) pins: Counter,
    pub(super) opens: Counter,
    pub(super) given_up: Counter,
    pub(super) had_again: Counter,
    pub(super) writes_as_caller: Counter,
    pub(super) watches_refused: Counter,
    pub(super) changes_reported: Counter,
    pub(super) changes_overflowed: Counter,
}

impl Host {
    pub(super) fn open(path: &Path, config: DirectoryConfig) -> Result<Self> {
        let proc_fds = open_proc_fds()?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(host_error)?;
        let stat = stat_of(&root)?;
        let kind = rustix::fs::fstatfs(&root).map_err(host_error)?.f_type as u64;
        let births = kind != OVERLAYFS;
        let (nodes, node) = NodeTable::new(&stat, births);
        let limit = raise_descriptor_limit();
        let capacity = config.descriptors_max.unwrap_or(to_keep(limit));
        let mut host = Self {
            root_device: stat.key.device,
            proc_fds,
            identity: Identity::of_daemon(config.act_as)?,
            nodes,
            descriptors: DescriptorCache::new(capacity),
            files: OpenFiles::default(),
            shares: Shares::new(limit, capacity),
            watches: OnceLock::new(),
            counters: Counters::default(),
            lacks_openat2: AtomicBool::new(false),
            xattrs: false,
            acls: false,
            stacked: [OVERLAYFS, ECRYPTFS, FUSE].contains(&kind),
            births: births && stat.attributes.btime.is_some(),
            listing: XattrListing::of(&root)?,
            root: node,
        };
        host.root.slot.pin(Arc::new(root));
        (host.xattrs, host.acls) = host.probe_xattrs()?;
        Ok(host)
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: "directory",
            enforcer: if self.identity.switches() { Enforcer::Store } else { Enforcer::Core },
            authority: Authority::Shared,
            waits: Waits::Sometimes,
            opens: Opens::Tracked,
            caching: PageCaching::Store,
            writes_back: false,
            read_only: false,
            acls: self.acls,
            os_files: true,
            os_stacked: self.stacked,
            births: self.births,
            queue_depth: 1,
            writes: Writes::Anywhere,
            // The host has them in memory, and its positions use every bit.
            listings: Listings::Asked,
        }
    }

    /// The entry for the object in `stat` after our own change, found as `seen`; with one reference to its node.
    pub(super) fn entry(
        &self,
        stat: &HostStat,
        seen: Option<(&Arc<HostNode>, &[u8])>,
    ) -> (Entry, Arc<HostNode>) {
        let node = self.nodes.remember(stat, seen);
        if let Some((parent, name)) = seen {
            parent.settle_child(name, node.id);
        }
        let attributes = self.attributes_of(&node, stat);
        (Entry { inode: node.id, attributes }, node)
    }

    /// The entry for the object in `stat` as the answer to a question: the host showed it under `name` after `heard`
    /// events in the directory. [`super::watch`] has the protocol.
    pub(super) fn answer(
        &self,
        (stat, heard): (&HostStat, u64),
        (parent, open): (&Arc<HostNode>, BorrowedFd<'_>),
        name: Name<'_>,
    ) -> (Entry, Arc<HostNode>) {
        let seen = Some((parent, name.as_bytes()));
        let (node, other) = self.nodes.remember_anew(stat, seen);
        node.unsettle_unless(stat);
        let entry = Entry { inode: node.id, attributes: self.shown(stat) };
        let Some(watches) = self.watches.get() else { return (entry, node) };
        let again = (parent.heard() != heard).then(|| stat_at(open, name.as_bytes()));
        let stays = |again: &Result<HostStat>| again.as_ref().is_ok_and(|again| node.is(again));
        if other.is_some() || again.as_ref().is_some_and(|again| !stays(again)) {
            watches.entry_found_changed(parent.id, name, other);
        }
        if again.is_some_and(|again| node.was_changed((stat, again.as_ref().ok()))) {
            watches.inode_found_changed(node.id);
        }
        (entry, node)
    }

    /// The host showed no `name` after `heard` events in the directory. False if it has to be asked again.
    pub(super) fn answer_missing(&self, parent: &HostNode, name: Name<'_>, heard: u64) -> bool {
        let Some(watches) = self.watches.get() else { return true };
        if let Some(other) = parent.forget_child(name.as_bytes()) {
            watches.entry_found_changed(parent.id, name, Some(other));
        }
        parent.heard() == heard
    }

    /// The attributes of `node` as the answer to a question, like [`Host::answer`].
    pub(super) fn answer_attributes(
        &self,
        node: &HostNode,
        look: impl Fn() -> Result<HostStat>,
    ) -> Result<uvfs_vfs::Attributes> {
        let heard = node.heard();
        let stat = look()?;
        node.unsettle_unless(&stat);
        if let Some(watches) = self.watches.get()
            && node.heard() != heard
            && node.was_changed((&stat, look().as_ref().ok()))
        {
            watches.inode_found_changed(node.id);
        }
        Ok(self.shown(&stat))
    }

    /// Attributes of `stat` after our own change, for the core.
    pub(super) fn attributes_of(&self, node: &HostNode, stat: &HostStat) -> uvfs_vfs::Attributes {
        node.settle(stat);
        self.shown(stat)
    }

    fn shown(&self, stat: &HostStat) -> uvfs_vfs::Attributes {
        let number = shown_number(stat.key, self.root_device);
        uvfs_vfs::Attributes { number, ..stat.attributes }
    }

    /// The number shown for an entry of `directory` that is known by its host number alone.
    pub(super) fn number_in(&self, directory: &HostNode, number: u64) -> u64 {
        shown_number(super::convert::HostKey { number, ..directory.key }, self.root_device)
    }

    /// Marks our own change to `nodes`, if there is a change sink.
    pub(super) fn own_change<'a>(&self, nodes: [Option<&'a HostNode>; 4]) -> OwnChange<'a> {
        OwnChange::of(if self.watches.get().is_some() { nodes } else { [None; 4] })
    }

    /// Notes how `node` looks after a change of ours, so that it is not taken for another's.
    pub(super) fn note_own_change(&self, node: &HostNode) {
        // A deleted object is seen through its pin.
        let stat = |node: &HostNode| match node.slot.get() {
            Some(open) => stat_of(&open).ok(),
            None => node.names().1.iter().find_map(|known| {
                let directory = self.descriptor(&known.parent).ok()?;
                stat_at(directory.as_fd(), &known.name).ok().filter(|stat| node.is(stat))
            }),
        };
        if self.watches.get().is_some()
            && let Some(stat) = stat(node)
        {
            node.settle(&stat);
        }
    }

    /// Gives up a pin: a directory's descriptor may stay open, any other is closed.
    pub(super) fn release_pin(&self, node: &HostNode) {
        match node.kind {
            FileKind::Directory => self.descriptors.unpin(&node.slot),
            _ => node.slot.close(),
        }
    }

    pub(super) fn forget(&self, id: InodeId, references: u64) {
        let Forgotten::Unknown(Some(node)) = self.nodes.forget(id, references) else { return };
        // Another thread may have looked it up again, and even pinned it, since.
        if node.id == InodeId::ROOT || self.nodes.is_referenced(&node) {
            return;
        }
        if let Some(watches) = self.watches.get() {
            watches.remove(self, &node);
        }
        // The core does not use it any more, but an object below may keep the node.
        self.release_pin(&node);
    }

    /// Writes all data that the host has in memory of the file system below the root, also that of others.
    pub(super) fn sync_fs(&self) -> Result<()> {
        let root = self.descriptor(&self.root)?;
        let root: OwnedFd = self.reopen(&root, OFlags::RDONLY | OFlags::DIRECTORY)?;
        rustix::fs::syncfs(root).map_err(host_error)
    }

    pub(super) fn totals(&self) -> Result<Totals> {
        let root = self.descriptor(&self.root)?;
        let host = rustix::fs::fstatvfs(&root).map_err(host_error)?;
        Ok(Totals {
            block_size: u32::try_from(host.f_frsize).unwrap_or(u32::MAX),
            blocks: host.f_blocks,
            blocks_free: host.f_bfree,
            blocks_available: host.f_bavail,
            files: host.f_files,
            files_free: host.f_ffree,
            name_max: u32::try_from(host.f_namemax).unwrap_or(255).min(255),
        })
    }

    pub(super) fn counter_values(&self) -> Vec<(&'static str, u64)> {
        let counters = &self.counters;
        let watches = self.watches.get().map_or(0, Watches::len);
        vec![
            ("nodes", self.nodes.len() as u64),
            ("files_open", self.files.len() as u64),
            ("descriptors_cached", self.descriptors.len() as u64),
            ("descriptors_opened", counters.descriptors_opened.total()),
            ("descriptor_shortages", counters.shrinks.total()),
            ("pins", counters.pins.total()),
            ("opens", counters.opens.total()),
            ("descriptors_given_up", counters.given_up.total()),
            ("descriptors_had_again", counters.had_again.total()),
            ("stale", counters.stale.total()),
            ("descriptors_located", counters.located.total()),
            ("descriptors_outside", counters.outside.total()),
            ("writes_as_caller", counters.writes_as_caller.total()),
            ("watches", watches as u64),
            ("watches_refused", counters.watches_refused.total()),
            ("changes_reported", counters.changes_reported.total()),
            ("changes_overflowed", counters.changes_overflowed.total()),
        ]
    }
}

/// Bytes of an open file: its value, its descriptor with both counts, and its place in the table.
const OPEN_FILE_BYTES: usize = size_of::<OpenHostFile>() + 96;

impl Tenant for Host {
    fn held_bytes(&self) -> u64 {
        self.nodes.bytes() + (self.files.len() * OPEN_FILE_BYTES) as u64
    }

    /// Nodes are freed when the core returns its references, and descriptors are the kernel's memory.
    fn shrink(&self, _bytes: u64) {}
}

fn open_proc_fds() -> Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(CWD, "/proc/self/fd", flags, Mode::empty())
        .map_err(|_| Error::Unsupported("serving a directory takes /proc to be mounted"))
}

/// The default number of descriptors to keep: a quarter of the process's limit, since users' open files count, too.
fn to_keep(limit: usize) -> usize {
    (limit / 4).clamp(16, DESCRIPTORS_MAX)
}

/// Raises the soft limit to the hard one, and returns it.
fn raise_descriptor_limit() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    let limit = match setrlimit(Resource::Nofile, raised) {
        Ok(()) => maximum,
        Err(_) => current,
    };
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX)
}

impl Default for DirectoryConfig {
    fn default() -> Self {
        Self { act_as: ActAs::Caller, descriptors_max: None }
    }
}
