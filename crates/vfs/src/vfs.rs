//! The file system: one backend, its caches, and the operations on them.
//!
//! # Boundary
//! Composition only. Each family of operations is a file of [`crate::ops`]; paths are walked in `walk`; names, inodes
//! and pages each have a module.
//!
//! # Concurrency
//! Any number of threads may use a [`Vfs`] at once. Operations may block in the backend, and hold no lock while they
//! do. Those named `try_…` answer from the caches or not at all, and never block on a store.

use crate::acl::{self, Acl};
use crate::api::Directory;
use crate::attributes::{Attributes, FileKind};
use crate::backend::{
    Authority, Backend, Capabilities, ChangeSink, Creation, Enforcer, Entry, Export, FileRef,
    InodeId, OpenFiles, Opens, PageCaching, StoreTimes, Timed, Watch, Writes, Xattrs,
};
use crate::background::Background;
use crate::budget::{self, Budget};
use crate::caller::{Caller, Checks};
use crate::clean::Views;
use crate::config::{PagePolicy, Timeouts, VfsConfig};
use crate::error::{Error, Result};
use crate::flight::Flights;
use crate::inode::{Clock, Expiry, INODE_BYTES, InodeTable, ListedBytes, Node, Ticket};
use crate::lock_order;
use crate::name::Name;
use crate::names::NameCache;
use crate::observers::{Observers, Origin};
use crate::ops::{Lists, Turns};
use crate::page::{FilePages, PageCache};
use crate::paths::PathCache;
use crate::permission::{self, Access};
use crate::policy::Marks;
use crate::reclaim::{self, Looked};
use crate::statistics::{CacheStatistics, Counters, ListingStatistics, Statistics};
use crate::tenants::{Tenant, Tenants};
use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use uvfs_concurrent::allowance::Allowance;
use uvfs_concurrent::epoch;
use uvfs_concurrent::generations::Generation;
use uvfs_concurrent::lock::{Mutex, order};
use uvfs_concurrent::padded::Padded;
use uvfs_concurrent::shared::{self, Owner, Shared};

/// Whether the store reports the changes by others that would make an answer wrong. Determined after the ticket was
/// taken, and before the question: so news either finds the answer cached, or keeps it out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reported(bool);

impl Reported {
    pub(crate) const NO: Self = Self(false);
}

/// The parts that operations share.
pub(crate) struct Core {
    /// A weak reference to itself, for objects in the core that outlive it.
    pub(crate) weak_self: shared::Weak<Core>,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) store_times: Arc<StoreTimes>,
    pub(crate) capabilities: Capabilities,
    pub(crate) config: VfsConfig,
    pub(crate) clock: Clock,
    /// The generation of cleans ([`crate::clean`]).
    pub(crate) cleans: Generation,
    /// Cleans that have begun: an equal number, except for one that is half done.
    pub(crate) cleans_begun: Generation,
    /// Held while a clean takes effect. A thread that finds one half done waits for it.
    pub(crate) cleanings: Mutex<()>,
    pub(crate) inodes: InodeTable,
    /// The marked directories ([`crate::policy`]).
    pub(crate) marks: Marks,
    pub(crate) names: NameCache,
    /// The kept listings of directories.
    pub(crate) listed: Arc<ListedBytes>,
    /// Directories that have lists.
    pub(crate) lists: Lists,
    pub(crate) background: Background,
    pub(crate) paths: PathCache,
    pub(crate) flights: Flights,
    /// Taken to move a directory to another parent.
    pub(crate) moves: Turns,
    pub(crate) pages: Arc<PageCache>,
    /// The budget of names, inodes and pages together.
    pub(crate) budget: Budget,
    /// Recent counts of the caches.
    pub(crate) views: Views,
    /// The bytes that threads may add before they check for excess.
    pub(crate) unlooked: Allowance,
    /// The result of the last look; read with every operation, stored when it changes.
    pub(crate) looked: Padded<Looked>,
    /// The tenants of the budget.
    pub(crate) tenants: Tenants,
    pub(crate) counters: Counters,
    /// Frontends with caches of their own.
    pub(crate) observers: Observers,
}

/// A file system over one [`Backend`].
///
/// It ends with the last [`Vfs`], directory and file of it, and then brings written data to the store. The `Vfs` from
/// [`Vfs::new`] *owns* it: while that one lives, threads clone, open and close without a shared count. Once it is gone,
/// the remaining ones are counted in one word, as by an `Arc`.
pub struct Vfs {
    lifetime: Shared<Lifetime>,
    /// None: a further handle.
    _owner: Option<Owner<Lifetime>>,
}

/// The state that ends with the last handle on a file system. Code outside this crate cannot name it.
pub struct Lifetime {
    pub(crate) core: Shared<Core>,
    // Dropped in this order: inodes outlive their directories.
    _owner: Owner<Core>,
    root: Node,
}

impl Deref for Vfs {
    type Target = Lifetime;

    #[inline]
    fn deref(&self) -> &Lifetime {
        &self.lifetime
    }
}

impl Clone for Vfs {
    /// A further handle on the same file system.
    fn clone(&self) -> Self {
        Self { lifetime: self.lifetime.clone(), _owner: None }
    }
}

impl Vfs {
    /// Puts the caches over `backend`.
    ///
    /// # Errors
    /// [`Error::Invalid`] names an impossible setting. Otherwise the backend's error about its root or about watching.
    pub fn new(backend: impl Backend, config: VfsConfig) -> Result<Arc<Self>> {
        config.validate()?;
        let capabilities = config.pages.applied_to(backend.capabilities());
        if capabilities.writes == Writes::WholeFile && capabilities.opens == Opens::Stateless {
            return Err(Error::Invalid("a store that takes whole files must also handle opens"));
        }
        let caching = match capabilities.caching {
            PageCaching::Core => budget::Pages::Here,
            PageCaching::Store => budget::Pages::Elsewhere,
        };
        let budget = Budget::new(config.cache_bytes, config.overhead_bytes, caching);
        let pages = Arc::new(PageCache::new(config.cache_bytes)?);
        let store_times = Arc::default();
        let (owner, core) = Owner::new_with(|weak_self| Core {
            weak_self,
            capabilities,
            backend: Timed::over(backend, &store_times),
            store_times,
            clock: Clock::default(),
            cleans: Generation::default(),
            cleans_begun: Generation::default(),
            cleanings: Mutex::new(&lock_order::CLEANINGS, ()),
            inodes: InodeTable::new(),
            marks: Marks::new(),
            names: NameCache::new(reclaim::names_expected(&config)),
            listed: Arc::default(),
            lists: Lists::new(),
            background: Background::new(),
            paths: PathCache::new(),
            flights: Flights::new(),
            moves: Turns::new(),
            pages,
            unlooked: Allowance::new(0),
            looked: Padded::default(),
            budget,
            views: Views::new(),
            tenants: Tenants::new(),
            counters: Counters::default(),
            observers: Observers::new(),
            config,
        });
        if let Some(tenant) = core.backend.tenant() {
            core.tenants.join(Arc::downgrade(&tenant));
        }
        core.set_room();
        let ticket = core.clock.now();
        let entry = core.backend().root()?;
        if entry.inode != InodeId::ROOT {
            return Err(Error::Corrupt("the backend's root is not InodeId::ROOT"));
        }
        let root = core.adopt(&entry, ticket);
        core.backend().report_to(Arc::new(News(core.weak_self)));
        if core.config.watch {
            let watch =
                core.backend().watching().ok_or(Error::Unsupported("watching for changes"))?;
            watch.watch(Arc::new(News(core.weak_self)))?;
        }
        let (owner, lifetime) = Owner::new(Lifetime { core, _owner: owner, root });
        Ok(Arc::new(Self { lifetime, _owner: Some(owner) }))
    }

    /// The root directory.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// The root directory as the in-process API sees it, for `caller`.
    pub fn root_directory(&self, caller: Caller) -> Directory {
        Directory::new(self.clone(), self.root.clone(), caller)
    }

    /// The inode `id`, if it is cached.
    pub fn cached(&self, id: InodeId) -> Option<Node> {
        self.core.inodes.find(id)
    }

    /// `tenant` shares the budget of the caches until it is dropped.
    pub fn join_budget(&self, tenant: Weak<dyn Tenant>) {
        self.core.tenants.join(tenant);
    }

    /// Removed objects that are still held. Their space is freed with their last hold.
    pub fn unlinked_in_use(&self) -> usize {
        self.core.inodes.unlinked_in_use()
    }

    /// Whether the store has extended attributes.
    pub fn has_xattrs(&self) -> bool {
        self.core.backend.xattrs().is_some()
    }

    /// The properties of the backend.
    pub fn capabilities(&self) -> &Capabilities {
        &self.core.capabilities
    }

    /// The settings in force.
    pub fn config(&self) -> &VfsConfig {
        &self.core.config
    }

    /// Contents and counters of the caches.
    pub fn statistics(&self) -> Statistics {
        let core = &*self.core;
        let counters = &core.counters;
        Statistics {
            store: core.capabilities.store,
            budget: core.budget_statistics(),
            names: CacheStatistics {
                held: core.names.count() as u64,
                limit: None,
                hits: counters.name_hits.total(),
                misses: counters.name_misses.total(),
                evicted: counters.names_evicted.total(),
            },
            negatives: core.names.negatives() as u64,
            negative_hits: counters.negative_hits.total(),
            waited: counters.waited.total(),
            listings: ListingStatistics {
                held_bytes: core.listed.total(),
                hits: counters.listing_hits.total(),
                misses: counters.listing_misses.total(),
                stale_hits: counters.listing_stale_hits.total(),
                refreshed: counters.listings_refreshed.total(),
                ahead: counters.listings_ahead.total(),
                files_ahead: counters.files_ahead.total(),
            },
            walks: counters.walks.statistics(),
            paths: core.paths.count() as u64,
            inodes: CacheStatistics {
                held: core.inodes.count() as u64,
                limit: None,
                hits: counters.attribute_hits.total(),
                misses: counters.attribute_misses.total(),
                evicted: counters.inodes_evicted.total(),
            },
            inodes_active: core.inodes.racy_active(),
            orphans: core.inodes.orphans(),
            pages: core.pages.statistics(core.pages_allowed()),
            policies: core.policy_statistics(),
            discarded: counters.discarded.total(),
            stale: counters.stale.total(),
            news: counters.news.total(),
            backend: core.backend.counters(),
            store_ended: core.backend.ended(),
            store_latency: core.store_times.latencies(),
            store_under_way: core.store_times.under_way(),
        }
    }

    /// Forgets every inode without a hold, and every name.
    pub fn forget_unused(&self) {
        self.core.forget_names();
        self.core.drop_lists(None);
        self.core.paths.clear(&epoch::pin());
        self.core.inodes.clear_inactive(&self.core);
        epoch::collect();
        self.core.pages.give_back_unused();
    }

    /// Brings all written data of all files to the store. The store may keep it in its own memory. Blocks.
    ///
    /// # Errors
    /// The store's, of the last file that could not be written; its pages stay dirty.
    pub fn write_back_all(&self) -> Result<()> {
        self.core.sync_all_pages()
    }

    /// Like syncfs(2): brings all written data of all files to the store, and has the store make its data stable.
    /// Blocks.
    ///
    /// # Errors
    /// Those of [`Vfs::write_back_all`], and then the store is not asked; or the store's own.
    pub fn sync_fs(&self) -> Result<()> {
        self.core.sync_all_pages()?;
        self.core.backend().sync_fs()
    }

    /// Fails if nothing may be changed.
    pub(crate) fn writable(&self) -> Result<()> {
        let read_only = self.core.config.read_only || self.core.capabilities.read_only;
        if read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// Fails unless `caller` has `wanted` on `node`. Asks the store only for callers that the core has to check.
    pub(crate) fn check(&self, caller: &Caller, node: &Node, wanted: Access) -> Result<()> {
        // Nothing keeps root out of a directory (CAP_DAC_OVERRIDE in capabilities(7)).
        if caller.checks == Checks::Done || (caller.is_privileged() && node.is_directory()) {
            return Ok(());
        }
        let attributes = self.attributes(node, None)?;
        let acl = self.access_acl(caller, node, &attributes)?;
        if permission::allows(caller, &attributes, acl.as_deref(), wanted) {
            Ok(())
        } else {
            Err(Error::Access)
        }
    }

    /// The access control list of `node` as far as it can matter to `caller`.
    pub(crate) fn access_acl(
        &self,
        caller: &Caller,
        node: &Node,
        attributes: &Attributes,
    ) -> Result<Option<Arc<Acl>>> {
        // A list with named entries always shows a mask in the group bits. For root and the owner, the mode is enough.
        let free = caller.is_privileged() || caller.uid == attributes.uid;
        if free || !self.core.capabilities.acls || attributes.mode & 0o070 == 0 {
            return Ok(None);
        }
        if let Some(acl) = node.inode.cached_acl() {
            return Ok(acl);
        }
        let question = node.inode.ask_xattrs(&self.core.clock);
        let asked =
            self.core.store_xattrs()?.get_xattr(&Caller::root(), node.id(), acl::ACCESS_XATTR);
        let acl = match asked {
            Ok(value) => Acl::parse(&value)?.map(Arc::new),
            Err(Error::NoAttribute | Error::Unsupported(_)) => None,
            Err(error) => return Err(error),
        };
        node.inode.keep_acl(question, acl.clone());
        Ok(acl)
    }
}

impl Vfs {
    /// Whether both are of one file system.
    pub(crate) fn same(&self, other: &Self) -> bool {
        self.lifetime.same(&other.lifetime)
    }
}

impl Drop for Lifetime {
    /// Writes all data back, as far as the store takes it.
    fn drop(&mut self) {
        for lost in self.core.end_pages() {
            log::error!("{lost}: lost, the store did not take it");
        }
    }
}

impl Core {
    /// A handle on itself, for work that continues after the caller.
    pub(crate) fn handle(&self) -> Shared<Core> {
        self.weak_self.upgrade().expect("the caller has a handle")
    }

    /// The backend, about to be called: asserts in debug builds that no lock is held.
    pub(crate) fn backend(&self) -> &dyn Backend {
        order::assert_none_held("a backend call");
        &*self.backend
    }

    /// The store's creation of objects, about to be called: like [`Core::backend`].
    pub(crate) fn store_creation(&self) -> Result<&dyn Creation> {
        self.backend().creation().ok_or(Error::Unsupported("creating"))
    }

    /// The store's objects by number, about to be called: like [`Core::backend`].
    pub(crate) fn store_export(&self) -> Result<&dyn Export> {
        self.backend().export().ok_or(Error::Unsupported("finding an object by its number"))
    }

    /// The store's open files, about to be called: like [`Core::backend`].
    pub(crate) fn store_files(&self) -> &dyn OpenFiles {
        self.backend().open_files()
    }

    /// The store's extended attributes, about to be called: like [`Core::backend`].
    pub(crate) fn store_xattrs(&self) -> Result<&dyn Xattrs> {
        self.backend().xattrs().ok_or(Error::Unsupported("extended attributes"))
    }

    /// The inode of `entry`, kept in the table.
    pub(crate) fn adopt(&self, entry: &Entry, ticket: Ticket) -> Node {
        let expiry = self.attribute_expiry(&entry.attributes, Reported::NO);
        let node = self.inodes.adopt(self, entry, ticket, expiry);
        self.added(INODE_BYTES);
        node
    }

    /// Whether the store changes behind the caches.
    pub(crate) fn shared(&self) -> bool {
        self.capabilities.authority == Authority::Shared
    }

    /// Whether others' changes of the names in `directory` will be reported.
    pub(crate) fn reported_names(&self, directory: InodeId) -> Reported {
        self.reported(|store| store.reports_names(directory))
    }

    /// Whether others' changes of the attributes of `inode` will be reported.
    fn reported_attributes(&self, inode: InodeId) -> Reported {
        self.reported(|store| store.reports_attributes(inode))
    }

    fn reported(&self, reports: impl Fn(&dyn Watch) -> bool) -> Reported {
        let asked = self.config.watch && self.config.reported_timeouts.is_some();
        Reported(asked && self.backend().watching().is_some_and(reports))
    }

    fn timeouts(&self, reported: Reported) -> Timeouts {
        let config = &self.config;
        let usual = Timeouts {
            attr: config.attr_timeout,
            entry: config.entry_timeout,
            negative: config.negative_timeout,
        };
        config.reported_timeouts.filter(|_| reported.0).unwrap_or(usual)
    }

    /// How long `value` is valid. Reports tell of one name of an object, and of what happens in a directory, not of its
    /// times.
    pub(crate) fn attribute_expiry(&self, value: &Attributes, reported: Reported) -> Expiry {
        if !self.shared() {
            return Expiry::NEVER;
        }
        let has_one_name = value.kind != FileKind::Directory && value.links == 1;
        let reported = if has_one_name { reported } else { Reported::NO };
        Expiry::after(self.timeouts(reported).attr)
    }

    pub(crate) fn entry_expiry(&self, reported: Reported) -> Expiry {
        if self.shared() { Expiry::after(self.timeouts(reported).entry) } else { Expiry::NEVER }
    }

    pub(crate) fn negative_expiry(&self, reported: Reported) -> Expiry {
        match self.timeouts(reported).negative {
            timeout if timeout.is_zero() => Expiry::EXPIRED,
            timeout if self.shared() => Expiry::after(timeout),
            _ => Expiry::NEVER,
        }
    }

    /// The core found the store's object changed or gone: drops cached entries of a directory.
    pub(crate) fn went_stale(&self, node: &Node) {
        self.counters.stale.hit();
        node.inode.expire_attributes(&self.clock);
        if node.is_directory() {
            node.inode.forget_names(&self.clock);
            self.paths.shape_changed();
        }
    }

    /// Whether file data is cached here.
    pub(crate) fn caches_pages(&self) -> bool {
        self.capabilities.caching == PageCaching::Core
    }

    /// Whether written data stays here for a while.
    pub(crate) fn writes_back(&self) -> bool {
        match self.capabilities.writes {
            Writes::Anywhere => match self.config.pages {
                PagePolicy::WriteBack => true,
                PagePolicy::Auto => self.caches_pages() && self.capabilities.writes_back,
                PagePolicy::WriteThrough | PagePolicy::Off => false,
            },
            Writes::Append => false,
            Writes::WholeFile => true,
        }
    }

    /// The pages of `node`, a regular file.
    pub(crate) fn pages_of<'a>(&self, node: &'a Node) -> &'a Arc<FilePages> {
        let pages = &node.inode.rest().pages;
        let shared = self.capabilities.authority == Authority::Shared;
        let pages =
            pages.get_or_init(|| self.pages.file(node.id(), self.clock.at_most_now(), shared));
        if pages.parent_hint() != node.inode.parent_hint() {
            self.move_pages_to_hint(&node.inode, pages);
        }
        pages
    }

    /// Whether the core must apply ownership rules for `caller` itself.
    pub(crate) fn enforces(&self, caller: &Caller) -> bool {
        caller.checks == Checks::Enforce && self.capabilities.enforcer == Enforcer::Core
    }

    /// Passes news of the store on to all frontends.
    fn notify(&self, news: impl Fn(&dyn ChangeSink)) {
        self.observers.notify(Origin::default(), news);
    }

    /// Reads attributes again. Caches them if no change overtook the answer.
    pub(crate) fn refresh(&self, node: &Node, file: FileRef) -> Result<Attributes> {
        let asked = node.inode.ask(&self.clock);
        let reported = self.reported_attributes(node.id());
        match self.backend().inodes().attributes(file) {
            Ok(value) => {
                let expiry = self.attribute_expiry(&value, reported);
                if !node.inode.keep_attributes(asked, &value, expiry) {
                    self.counters.discarded.hit();
                }
                Ok(node.inode.known_better(value))
            }
            Err(error) => {
                if matches!(error, Error::Stale) {
                    self.went_stale(node);
                }
                Err(error)
            }
        }
    }
}

/// Takes the backend's news: invalidates cached entries, then notifies the frontends.
struct News(shared::Weak<Core>);

impl ChangeSink for News {
    fn entry_changed(&self, parent: InodeId, name: Name<'_>) {
        let Some(core) = self.0.upgrade() else { return };
        core.counters.news.hit();
        if let Some(directory) = core.inodes.find_changed(&core.clock, parent) {
            {
                let known = directory.inode.dir_state();
                let mut changes = known.entries.lock();
                changes.note(&core.clock);
                known.complete.revoke();
            }
            directory.inode.expire_attributes(&core.clock);
        }
        let key = core.names.key(parent, name);
        if let Some(node) = core.names.target(key) {
            node.inode.lost_name_in(parent);
        }
        core.lose_name(key);
        core.paths.shape_changed();
        core.paths.entries_change(parent);
        core.notify(|observer| observer.entry_changed(parent, name));
    }

    fn inode_changed(&self, inode: InodeId) {
        let Some(core) = self.0.upgrade() else { return };
        core.counters.news.hit();
        if let Some(node) = core.inodes.find_changed(&core.clock, inode) {
            node.inode.expire_attributes(&core.clock);
            core.paths.shape_changed();
            if let Some(pages) = node.inode.known_pages() {
                pages.content_changed();
            }
        }
        core.notify(|observer| observer.inode_changed(inode));
    }

    fn everything_changed(&self) {
        let Some(core) = self.0.upgrade() else { return };
        core.counters.news.hit();
        core.inodes.note_all(&core.clock);
        core.inodes.for_each(|inode| {
            if inode.kind() == FileKind::Directory {
                let mut changes = inode.dir_state().entries.lock();
                changes.note(&core.clock);
                inode.dir_state().complete.revoke();
            }
            inode.expire_attributes(&core.clock);
            if let Some(pages) = inode.known_pages() {
                pages.content_changed();
            }
        });
        core.forget_names();
        core.paths.shape_changed();
        core.notify(|observer| observer.everything_changed());
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Core({})", self.capabilities.store)
    }
}

impl fmt::Debug for Lifetime {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Lifetime({})", self.core.capabilities.store)
    }
}

impl fmt::Debug for Vfs {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Vfs({})", self.core.capabilities.store)
    }
}
