//! A thread stands between two steps while another one runs: the tests take each step by hand.
//!
//! Weakening the code between the steps (no second look, an overtaken answer accepted, cleans not applied first) passed
//! all suites, because no store can be stopped at these places.

use super::{Absent, Expiry, Inode, Node, Ticket};
use crate::vfs::Core;
use crate::{
    Attributes, Backend, Caller, Capabilities, Clean, Cookie, Data, Entry, Error, FileKind,
    FileRef, InodeId, Inodes, Listing, Name, Names, Namespace, RenameMode, Result, Timestamp, Vfs,
    VfsConfig,
};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};
use uvfs_containers::object::Ref;

/// A file `f`, directories `d` and `e`, no `none`, and another directory under any other name.
#[derive(Default)]
struct Store {
    /// References given to the core and not returned yet.
    owed: AtomicU64,
}

const FILE: InodeId = InodeId(7);
const DIRECTORY: InodeId = InodeId(8);
const OTHER_DIRECTORY: InodeId = InodeId(9);
const THIRD_DIRECTORY: InodeId = InodeId(10);

fn entry(inode: InodeId) -> Entry {
    let kind = if inode == FILE { FileKind::Regular } else { FileKind::Directory };
    Entry { inode, attributes: Attributes::new(inode.0, kind, 0o755) }
}

impl Backend for Arc<Store> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::read_only("half way")
    }
    fn root(&self) -> Result<Entry> {
        Ok(entry(InodeId::ROOT))
    }
    fn names(&self) -> &dyn Names {
        self
    }
    fn inodes(&self) -> &dyn Inodes {
        self
    }
    fn data(&self) -> &dyn Data {
        self
    }
}

impl Names for Arc<Store> {
    fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
        if name.as_bytes() == b"none" {
            return Err(Error::NotFound);
        }
        // ORDERING: Relaxed, here and below; one thread.
        self.owed.fetch_add(1, Relaxed);
        Ok(entry(match name.as_bytes() {
            b"f" => FILE,
            b"d" => DIRECTORY,
            b"e" => THIRD_DIRECTORY,
            _ => OTHER_DIRECTORY,
        }))
    }
    fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
        Ok(())
    }
}

impl Inodes for Arc<Store> {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        Ok(entry(file.inode).attributes)
    }
    fn forget(&self, _: InodeId, references: u64) {
        self.owed.fetch_sub(references, Relaxed);
    }
}

impl Data for Arc<Store> {
    fn read(&self, _: FileRef, _: u64, _: &mut [u8]) -> Result<usize> {
        Ok(0)
    }
}

struct World {
    store: Arc<Store>,
    vfs: Arc<Vfs>,
}

impl World {
    fn new() -> Self {
        let store = Arc::new(Store::default());
        let vfs = Vfs::new(store.clone(), VfsConfig::default()).unwrap();
        Self { store, vfs }
    }

    fn core(&self) -> &Core {
        &self.vfs.core
    }

    fn find(&self, name: &str) -> Node {
        let name = Name::new(name.as_bytes()).unwrap();
        self.vfs.lookup(&Caller::root(), self.vfs.root(), name).unwrap().found().unwrap().node
    }

    /// The inode, which has no hold any more. A name leads to it.
    fn left(&self, node: Node) -> Ref<Inode> {
        let inode = node.inode.try_ref().unwrap();
        drop(node);
        assert!(inode.racy_inactive());
        inode
    }

    /// The store returns `inode` again, for a question of `ticket`.
    fn adopt(&self, inode: InodeId, ticket: Ticket) -> Node {
        self.store.owed.fetch_add(1, Relaxed);
        self.core().inodes.adopt(self.core(), &entry(inode), ticket, Expiry::NEVER)
    }

    /// Another inode replaces the object's old one before the thread that killed the old one continues.
    fn adopt_while_it_dies(&self, old: &Ref<Inode>, ticket: Ticket) -> Node {
        assert!(old.hold.retire(), "this thread tears it down");
        assert!(!old.is_dead(), "and stops before it says so");
        self.adopt(old.id, ticket)
    }

    /// That thread continues. No reference is owed to the store at the end.
    fn end(self, old: &Ref<Inode>, new: Node) {
        drop(self.core().inodes.tear_down(self.core(), old));
        assert!(self.core().inodes.peek(new.id()).is_some_and(|found| found == new));
        self.end_all(new);
    }

    fn end_all(self, node: Node) {
        drop(node);
        self.vfs.forget_unused();
        assert_eq!(self.store.owed.load(Relaxed), 0);
    }
}

/// Cached names lead to the old inode: they must be invalid from the moment that there is another one.
#[test]
fn an_inode_that_dies_is_dead_before_another_one_stands_for_it() {
    let world = World::new();
    let old = world.left(world.find("f"));
    let new = world.adopt_while_it_dies(&old, world.core().clock.now());
    assert!(old.is_dead() && !new.inode.is_dead());
    assert!(new.inode.cached_attributes().is_some(), "nothing has overtaken the answer");
    world.end(&old, new);
}

/// A change was recorded in the dying inode, and not yet in its table. It has overtaken the answer.
#[test]
fn an_answer_that_a_change_of_a_dying_inode_overtook_is_not_believed() {
    let world = World::new();
    let node = world.find("f");
    let early = world.core().clock.now();
    node.inode.expire_attributes(&world.core().clock);
    let old = world.left(node);
    let new = world.adopt_while_it_dies(&old, early);
    assert_eq!(new.inode.cached_attributes(), None);
    assert!(!new.inode.keep_attributes(early, &entry(FILE).attributes, Expiry::NEVER), "nor later");
    world.end(&old, new);
}

/// A change had overtaken the answer, and the old inode is gone completely before the answer comes.
#[test]
fn an_answer_that_a_change_of_a_dead_inode_overtook_is_not_believed() {
    let world = World::new();
    let node = world.find("f");
    let early = world.core().clock.now();
    node.inode.expire_attributes(&world.core().clock);
    let old = world.left(node);
    assert!(world.core().inodes.retire(world.core(), &old).is_some());
    let new = world.adopt(FILE, early);
    assert_eq!(new.inode.cached_attributes(), None);
    world.end_all(new);
}

/// Names that a directory has invalidated stay invalid in the inode that replaces it.
#[test]
fn what_a_dying_directory_knew_is_taken_over() {
    for dead in [false, true] {
        let world = World::new();
        let node = world.find("d");
        node.inode.forget_names(&world.core().clock);
        let forgotten = node.inode.names_after();
        assert!(forgotten > 0);
        let old = world.left(node);
        let now = world.core().clock.now();
        if dead {
            assert!(world.core().inodes.retire(world.core(), &old).is_some());
            let new = world.adopt(DIRECTORY, now);
            assert_eq!(new.inode.names_after(), forgotten);
            world.end_all(new);
        } else {
            let new = world.adopt_while_it_dies(&old, now);
            assert_eq!(new.inode.names_after(), forgotten);
            world.end(&old, new);
        }
    }
}

/// A program moved a directory into one below it, behind this process, and both were cached: the parents formed a
/// circle. A walk to `..` in a mounted part of the tree never ended.
#[test]
fn a_circle_of_parents_ends_a_walk() {
    let world = World::new();
    let namespace = Namespace::new(world.vfs.clone());
    let top = namespace.root_directory(Caller::root());
    let (mountpoint, source) = (top.open_directory("x"), top.open_directory("e"));
    namespace.bind(&mountpoint.unwrap(), &source.unwrap()).unwrap();
    // In the mount of 10: 8, with 9 in it. Then 8 is found in 9.
    let inner = top.open_directory("x/d/y").unwrap();
    assert_eq!(inner.node().id(), OTHER_DIRECTORY);
    assert_eq!(inner.stat("d").unwrap().number, DIRECTORY.0);
    assert!(matches!(inner.stat("d/.."), Err(Error::NotFound)));
}

/// A rename from a read-only file system first checked whether there is such a name. So it revealed the names in a
/// directory that the caller may not search.
#[test]
fn a_rename_that_is_not_allowed_does_not_look() {
    let world = World::new();
    let (from, to) = (world.find("d"), world.find("e"));
    let name = Name::new(b"none").unwrap();
    let root = Caller::root();
    let moved = world.vfs.rename(&root, (&from, name), (&to, name), RenameMode::Replace);
    assert!(matches!(moved, Err(Error::ReadOnly)), "{moved:?}");
}

/// C5 of `clean`: before it is torn down, a directory applies cleans above it that it has not applied yet.
#[test]
fn a_directory_learns_what_was_cleaned_before_it_goes() {
    let world = World::new();
    let node = world.find("d");
    let before = node.inode.names_after();
    drop(world.vfs.begin_clean(world.vfs.root(), Clean::Names).unwrap());
    let cleaned = world.vfs.root().inode.cleaned().names;
    assert!(cleaned > before && node.inode.names_after() == before, "it has not heard of it");
    let old = world.left(node);
    assert!(world.core().inodes.retire(world.core(), &old).is_some());
    let new = world.adopt(DIRECTORY, world.core().clock.now());
    assert!(new.inode.names_after() >= cleaned, "names from before are not believed");
    world.end_all(new);
}

/// An inode becomes an orphan with its last name or its last hold, whichever is later. Eviction must find it. When the
/// last hold did not queue it, it stayed until all inodes were visited.
#[test]
fn what_has_neither_name_nor_hold_is_found_by_the_thread_that_evicts() {
    let world = World::new();
    let core = world.core();
    let key = core.names.key(InodeId::ROOT, Name::new(b"f").unwrap());
    for held_last in [true, false] {
        let node = world.find("f");
        let old = match held_last {
            true => {
                core.forget_name(key);
                world.left(node)
            }
            false => {
                let old = world.left(node);
                core.forget_name(key);
                old
            }
        };
        let found = core.inodes.oldest_orphan().expect("it was queued");
        assert!(found.same(&old));
        assert!(core.inodes.retire(core, &found).is_some());
    }
    assert_eq!(world.store.owed.load(Relaxed), 0);
}

/// A directory moves out of a tree that was cleaned, and has not applied that clean. In its new place it would never
/// learn of it.
#[test]
fn a_directory_that_moves_takes_along_what_was_cleaned_where_it_was() {
    let world = World::new();
    let (node, cleaned) = (world.find("e"), world.find("d"));
    let core = world.core();
    node.inode.set_parent(&cleaned, core.clock.now());
    drop(world.vfs.begin_clean(&cleaned, Clean::Names).unwrap());
    let tick = cleaned.inode.cleaned().names;
    assert!(tick > 0 && node.inode.names_after() < tick, "it has not heard of it");
    node.inode.set_parent(world.vfs.root(), core.clock.tick());
    core.learn_cleans(&node.inode);
    assert!(node.inode.names_after() >= tick, "names from before are not believed");
    drop(cleaned);
    world.end_all(node);
}

/// The one of two answers with the later question stays, whichever comes first.
#[test]
fn an_answer_asked_for_earlier_does_not_replace_a_later_one() {
    let world = World::new();
    let node = world.find("f");
    let clock = &world.core().clock;
    let early = clock.now();
    clock.tick();
    let later = Attributes { size: 2, ..entry(FILE).attributes };
    assert!(node.inode.keep_attributes(clock.now(), &later, Expiry::NEVER));
    assert!(!node.inode.keep_attributes(early, &entry(FILE).attributes, Expiry::NEVER));
    assert_eq!(node.inode.last_attributes().size, 2);
    world.end_all(node);
}

/// The later answer may be the first one about the object: it stays then, too.
#[test]
fn an_answer_asked_for_before_the_one_that_brought_the_inode_is_not_believed() {
    let world = World::new();
    let early = world.core().clock.now();
    let new = world.adopt(FILE, world.core().clock.tick());
    assert!(!new.inode.keep_attributes(early, &entry(FILE).attributes, Expiry::NEVER));
    world.end_all(new);
}

/// The answer was current at the first check. A change came before the second check and put the file elsewhere, while
/// its pages were being moved.
#[test]
fn a_file_that_is_moved_while_it_is_found_is_asked_for_again() {
    let world = World::new();
    let (node, root) = (world.find("f"), world.vfs.root());
    let elsewhere = world.find("d");
    for moved_at in [0, 1, 2] {
        node.inode.found_in(root.id());
        let pages = world.core().pages_of(&node);
        assert!(node.inode.can_be_found() && pages.parent_hint() == Some(root.id()));
        let looks = Cell::new(0);
        node.inode.bring_pages_to(&elsewhere, || {
            let look = looks.replace(looks.get() + 1);
            look < moved_at
        });
        let home = [Some(root.id()), None, Some(DIRECTORY)][moved_at];
        assert_eq!(
            (node.inode.parent_hint(), pages.parent_hint()),
            (home, home),
            "moved at look {moved_at}"
        );
        assert_eq!(node.inode.can_be_found(), home.is_some(), "moved at look {moved_at}");
    }
    drop(elsewhere);
    world.end_all(node);
}

/// A change has overtaken the answer. Neither its name nor its place is cached, and a place that it contradicts is in
/// doubt.
#[test]
fn an_answer_that_was_overtaken_places_and_names_nothing() {
    let world = World::new();
    let (node, elsewhere) = (world.find("f"), world.find("d"));
    let core = world.core();
    let key = core.names.key(DIRECTORY, Name::new(b"g").unwrap());
    for overtaken in [false, true] {
        node.inode.found_in(InodeId::ROOT);
        world.store.owed.fetch_add(1, Relaxed);
        let ticket = core.clock.now();
        if overtaken {
            elsewhere.inode.dir_state().entries.lock().note(&core.clock);
        }
        let answer = (key, &entry(FILE));
        let (again, valid) = {
            let arrival = crate::names::Arrival::Asked;
            core.admit(&elsewhere, ticket, answer, arrival, crate::vfs::Reported::NO)
        };
        assert!(again == node && valid.is_zero() == overtaken);
        assert_eq!(node.inode.parent_hint(), (!overtaken).then_some(DIRECTORY));
        assert_eq!(core.names.target(key).is_some(), !overtaken);
        core.forget_name(key);
    }
    drop(elsewhere);
    world.end_all(node);
}

/// A directory whose names were invalidated is not complete. An answer to an earlier question is not cached.
#[test]
fn a_directory_that_forgets_its_names_is_not_complete() {
    let world = World::new();
    let directory = world.find("d");
    let forget = |inode: &Inode| inode.forget_names(&world.core().clock);
    let clean = |inode: &Inode| {
        let tick = world.core().clock.tick().to_word();
        let ticks = super::CleanTicks { names: tick, pages: 0 };
        inode.be_cleaned(&world.core().clock, ticks, 1);
    };
    for forgets in [&forget as &dyn Fn(&Inode), &clean] {
        let early = world.core().clock.now();
        let admits = |ticket| directory.inode.dir_state().entries.lock().admits(ticket);
        assert!(admits(early));
        directory.inode.declare_complete(0, Expiry::NEVER, None);
        let claimed = directory.inode.claim_complete(&mut None);
        let (complete, claim, until) = claimed.expect("just declared");
        assert_eq!(until, Expiry::NEVER);
        forgets(&directory.inode);
        assert!(directory.inode.claim_complete(&mut None).is_none());
        assert!(!complete.stands(claim, world.core().names.losses(), DIRECTORY.0));
        assert!(!admits(early) && admits(world.core().clock.now()));
    }
    world.end_all(directory);
}

/// News of an uncached directory came before the answer about it. Answers about its entries that are as old must not be
/// cached either.
#[test]
fn news_that_found_no_directory_is_known_to_the_one_that_comes() {
    let world = World::new();
    let early = world.core().clock.now();
    assert!(world.core().inodes.find_changed(&world.core().clock, DIRECTORY).is_none());
    let new = world.adopt(DIRECTORY, early);
    assert!(!new.inode.dir_state().entries.lock().admits(early));
    assert!(new.inode.dir_state().entries.lock().admits(world.core().clock.now()));
    world.end_all(new);
}

/// A removed file is one of many in its shard. An answer to a question from before its change is overtaken, even if its
/// own stamp is not stored any more. A later question has a later ticket.
#[test]
fn an_answer_about_an_inode_that_left_is_overtaken() {
    for others in [0, 1, 100] {
        let world = World::new();
        let early = world.core().clock.at_most_now();
        let node = world.find("f");
        node.inode.expire_attributes(&world.core().clock);
        let old = world.left(node);
        drop(world.core().inodes.retire(world.core(), &old).unwrap());
        // Each inode is in one of 64 shards: enough of them for each shard.
        for other in 0..others * 64 {
            let node = world.adopt(InodeId(100 + other), world.core().clock.at_most_now());
            node.inode.expire_attributes(&world.core().clock);
            let left = world.left(node);
            drop(world.core().inodes.retire(world.core(), &left).unwrap());
        }
        let new = world.adopt(FILE, early);
        assert!(!new.inode.attributes_believed(), "{others} others");
        assert!(!new.inode.keep_attributes(early, &entry(FILE).attributes, Expiry::NEVER));
        let now = world.core().clock.now();
        assert!(new.inode.keep_attributes(now, &entry(FILE).attributes, Expiry::NEVER));
        drop(old);
        world.end_all(new);
    }
}

/// Bug: a directory was moved here, then by another program. A listing of its new place had too early a ticket to
/// change its place, but its name there was cached all the same. So a clean of the new place did not reach its entries.
#[test]
fn a_name_is_not_kept_for_a_directory_that_is_believed_elsewhere() {
    const PLACE: InodeId = InodeId(9);
    let world = World::new();
    let core = world.core();
    let (place, moved) = (world.adopt(PLACE, core.clock.now()), world.find("d"));
    let key = core.names.key(PLACE, Name::new(b"d").unwrap());
    assert!(moved.inode.set_parent(world.vfs.root(), core.clock.stamp()));
    let about = (key, &entry(DIRECTORY));
    let losses = core.names.losses().of(PLACE.0);
    for (asked, kept) in
        [(place.inode.ask_entries(&core.clock), false), (core.clock.now().into(), true)]
    {
        world.store.owed.fetch_add(1, Relaxed);
        let (again, valid) = {
            let arrival = crate::names::Arrival::Listed;
            core.admit(&place, asked, about, arrival, crate::vfs::Reported::NO)
        };
        assert!(again == moved && valid.is_zero() != kept);
        assert_eq!(core.names.target(key).is_some(), kept);
        assert_eq!(moved.inode.parent().unwrap() == place, kept);
        assert!(core.names.losses().of(PLACE.0) > losses, "nor is its place complete");
    }
    core.forget_name(key);
    drop(moved);
    world.end_all(place);
}

/// The store took two seconds to say that there is no such attribute. Another program set it meanwhile, in the tick of the
/// object's change time. By the time of the answer's arrival the change time counted as old, so the record outlived the
/// refresh that showed the same change time.
#[test]
fn an_absent_attribute_is_as_old_as_its_question() {
    let world = World::new();
    let node = world.find("f");
    let ctime = Timestamp { seconds: 1_000_000, nanoseconds: 0 };
    let shown = Attributes { ctime, ..entry(FILE).attributes };
    let asked = node.inode.ask(&world.core().clock);
    assert!(node.inode.keep_attributes(asked, &shown, Expiry::NEVER));
    let changed = SystemTime::from(ctime);
    let lacks_after_refresh = |age: Duration| {
        let question = node.inode.ask_xattrs(&world.core().clock).at(changed + age);
        node.inode.keep_absent(question, Absent::all_but([]));
        assert!(node.inode.absent().lacks_every());
        let asked = node.inode.ask(&world.core().clock);
        assert!(node.inode.keep_attributes(asked, &shown, Expiry::NEVER));
        node.inode.absent().lacks_every()
    };
    assert!(!lacks_after_refresh(Duration::from_millis(10)), "the store looked within the tick");
    assert!(lacks_after_refresh(Duration::from_secs(2)), "a later change shows");
    world.end_all(node);
}
