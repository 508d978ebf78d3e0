//! Cleaning with a simulated kernel: the messages, their order, and the use of its answers.
//! `tests/tests/mount/clean.rs` tests the real kernel.

use super::*;
use std::time::Duration;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_control::cleaned::KernelHow;
use uvfs_vfs::{Caller, FileKind, Name, NewKind, NewNode, VfsConfig};

static LOG: LockClass =
    LockClass::new(400, "fake-kernel", "what a kernel made for a test was asked");

#[derive(Debug, Default)]
struct Log {
    pruned: Vec<Vec<u64>>,
    entries: Vec<(u64, String)>,
    inodes: Vec<u64>,
    again: Vec<(u64, String)>,
}

impl Log {
    fn messages(&self) -> usize {
        self.pruned.len() + self.entries.len() + self.inodes.len() + self.again.len()
    }
}

/// A kernel that holds one lookup of every node of a [`Tree`].
struct Fake {
    nodes: Arc<NodeTable>,
    names: Vec<(u64, &'static str, u64)>,
    old: bool,
    busy: Vec<u64>,
    /// Takes its time over a name.
    slow: bool,
    fails: Option<i32>,
    log: Arc<Mutex<Log>>,
}

impl Fake {
    fn let_go(&self, id: u64) -> io::Result<()> {
        let has_children = self.names.iter().any(|one| one.0 == id && self.nodes.is_held(one.2));
        if !self.nodes.is_held(id) {
            return Err(io::Error::from_raw_os_error(libc::ENOENT));
        }
        if !has_children && !self.busy.contains(&id) {
            assert!(self.nodes.forget(id, 1));
        }
        Ok(())
    }

    fn answer(&self) -> io::Result<()> {
        self.fails.map_or(Ok(()), |errno| Err(io::Error::from_raw_os_error(errno)))
    }
}

impl KernelCache for Fake {
    fn forget_entry(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        let name = String::from_utf8_lossy(name).into_owned();
        let known = self.names.iter().find(|one| one.0 == parent && one.1 == name);
        self.log.lock().entries.push((parent, name.clone()));
        self.answer()?;
        known.map_or(Err(io::Error::from_raw_os_error(libc::ENOENT)), |one| self.let_go(one.2))
    }

    fn ask_again(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        if self.slow {
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut log = self.log.lock();
        log.again.push((parent, String::from_utf8_lossy(name).into_owned()));
        drop(log);
        self.answer()
    }

    fn forget_attributes(&self, _: u64) -> io::Result<()> {
        unreachable!("cleaning drops whole files")
    }

    fn forget_pages(&self, _: u64, _: u64, _: u64) -> io::Result<()> {
        unreachable!("cleaning drops whole files")
    }

    fn forget_inode(&self, node: u64) -> io::Result<()> {
        self.log.lock().inodes.push(node);
        self.answer()
    }

    fn forget_everything(&self) -> io::Result<()> {
        panic!("cleaning one directory must not empty the others")
    }

    fn prune(&self, nodes: &[u64]) -> io::Result<()> {
        self.log.lock().pruned.push(nodes.to_vec());
        if self.old {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        self.answer()?;
        for &node in nodes {
            let _ = self.let_go(node);
        }
        Ok(())
    }
}

/// ```text
/// foo/{a, b, sub/{c, deep/{d}}}   foobar/{x}
/// ```
struct Tree {
    bridge: Arc<Bridge>,
    foo: Node,
    log: Arc<Mutex<Log>>,
    names: Vec<(u64, &'static str, u64)>,
}

impl Tree {
    fn new(change: impl FnOnce(&mut Fake)) -> Self {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
        let nodes = Arc::new(NodeTable::new(vfs.clone()));
        let mut names = Vec::new();
        let mut make = |parent: &Node, name: &'static str, kind: NewKind<'_>| {
            let new = NewNode { kind, mode: 0o755, umask: 0 };
            let found = vfs
                .create(&Caller::root(), parent, Name::new(name.as_bytes()).unwrap(), &new)
                .unwrap();
            let id = nodes.publish(&found.node, (found.attributes.number, 0), None);
            names.push((nodes.id_of(parent.id()).unwrap(), name, id));
            found.node
        };
        let foo = make(vfs.root(), "foo", NewKind::Directory);
        let foobar = make(vfs.root(), "foobar", NewKind::Directory);
        let sub = make(&foo, "sub", NewKind::Directory);
        let deep = make(&sub, "deep", NewKind::Directory);
        for (parent, name) in [(&foo, "a"), (&foo, "b"), (&sub, "c"), (&deep, "d"), (&foobar, "x")]
        {
            assert_eq!(make(parent, name, NewKind::Regular).kind(), FileKind::Regular);
        }
        let log = Arc::new(Mutex::new(&LOG, Log::default()));
        let mut fake = Fake {
            nodes: nodes.clone(),
            names: names.clone(),
            old: false,
            busy: Vec::new(),
            slow: false,
            fails: None,
            log: log.clone(),
        };
        change(&mut fake);
        let bridge =
            Bridge::new(vfs, nodes, Arc::default(), Box::new(fake), Notices::new(), Turns::new());
        Self { bridge, foo, log, names }
    }

    fn id(&self, name: &str) -> u64 {
        id_in(&self.names, name)
    }

    fn ids<const N: usize>(&self, names: [&str; N]) -> Vec<u64> {
        let mut ids: Vec<_> = names.map(|name| self.id(name)).into();
        ids.sort_unstable();
        ids
    }

    fn clean(&self, what: Clean) -> Cleaned {
        let mut go_on = |_| ControlFlow::Continue(());
        self.bridge.clean(&self.foo, what, Dirty::Skip, &mut go_on).unwrap()
    }

    fn held<const N: usize>(&self, names: [&str; N]) -> bool {
        names.iter().all(|name| self.bridge.nodes.is_held(self.id(name)))
    }
}

fn id_in(names: &[(u64, &'static str, u64)], name: &str) -> u64 {
    names.iter().find(|one| one.1 == name).unwrap().2
}

#[test]
fn children_are_asked_for_before_their_directories_and_nothing_outside_is() {
    let tree = Tree::new(|_| ());
    let report = tree.clean(Clean::Names).kernel();
    assert_eq!((report.how, report.held, report.let_go, report.kept), (KernelHow::Pruned, 6, 6, 0));
    assert_eq!(report.refused, None);
    let log = tree.log.lock();
    assert_eq!(log.pruned[0], [0; 0], "the probe has no effect");
    let (files, directories) = log.pruned[1].split_at(4);
    let mut files = files.to_vec();
    files.sort_unstable();
    assert_eq!(files, tree.ids(["a", "b", "c", "d"]));
    assert_eq!(directories, [tree.id("deep"), tree.id("sub")]);
    assert_eq!(log.pruned.len(), 2);
    assert_eq!((&log.entries[..], &log.inodes[..]), (&[][..], &[tree.id("foo")][..]));
    drop(log);
    assert!(tree.held(["foo", "foobar", "x"]));
}

#[test]
fn what_is_in_use_is_kept_with_its_directories_and_counted() {
    let tree = Tree::new(|fake| fake.busy.push(id_in(&fake.names, "d")));
    let report = tree.clean(Clean::Both).kernel();
    assert_eq!((report.held, report.let_go, report.kept, report.files), (6, 3, 3, 1));
    assert!(tree.held(["d", "deep", "sub"]));
    // Its pages are evicted all the same, and so are the listings of the directories that stay.
    let mut inodes = tree.log.lock().inodes.clone();
    inodes.sort_unstable();
    assert_eq!(inodes, tree.ids(["d", "deep", "sub", "foo"]));
}

#[test]
fn pages_alone_are_asked_for_by_file() {
    let tree = Tree::new(|_| ());
    let report = tree.clean(Clean::Pages).kernel();
    let expected = Kernel {
        how: KernelHow::Pages,
        held: 6,
        kept: 6,
        files: 4,
        waited: report.waited,
        ..Kernel::default()
    };
    assert_eq!(report, expected);
    let mut log = tree.log.lock();
    log.inodes.sort_unstable();
    assert_eq!(log.inodes, tree.ids(["a", "b", "c", "d"]));
    assert_eq!(log.messages(), 4);
}

/// An older kernel is asked by name, and never for the name of a directory.
#[test]
fn a_kernel_that_cannot_prune_is_asked_by_name() {
    let tree = Tree::new(|fake| fake.old = true);
    let report = tree.clean(Clean::Names).kernel();
    assert_eq!((report.how, report.held, report.let_go), (KernelHow::Entries, 6, 4));
    assert_eq!((report.kept, report.unlisted, report.refused), (2, 0, None));
    assert!(tree.held(["foo", "foobar", "x", "sub", "deep"]));
    let mut log = tree.log.lock();
    let parents: Vec<u64> = log.entries.iter().map(|one| one.0).collect();
    let (deep, sub, foo) = (tree.id("deep"), tree.id("sub"), tree.id("foo"));
    assert!(parents.starts_with(&[deep, sub, foo, foo]), "{parents:?}");
    let mut named: Vec<_> = log.entries.iter().map(|one| one.1.clone()).collect();
    named.sort();
    named.dedup();
    assert_eq!(named, ["a", "b", "c", "d"]);
    assert_eq!(log.pruned, [[0; 0]], "only the probe");
    *log = Log::default();
    drop(log);
    tree.clean(Clean::Names);
    assert_eq!(tree.log.lock().pruned.len(), 0, "it was probed again");
}

#[test]
fn a_refusal_is_reported_and_our_own_caches_are_cleaned() {
    for old in [false, true] {
        let tree = Tree::new(|fake| (fake.old, fake.fails) = (old, Some(libc::EPERM)));
        let report = tree.clean(Clean::Both);
        let refused = io::Error::from_raw_os_error(libc::EPERM).to_string();
        assert_eq!(report.kernel().refused, Some(refused), "old: {old}");
        assert_eq!((report.kernel().let_go, report.kernel().kept), (0, 6));
        assert!(!report.interrupted && report.caches.names.freed.entries > 0, "{report:?}");
        assert_eq!(tree.bridge.counters.notices_failed.total(), 1);
    }
}

#[test]
fn what_the_kernel_does_not_have_is_let_go() {
    let tree = Tree::new(|fake| fake.fails = Some(libc::ENOENT));
    assert_eq!(tree.clean(Clean::Pages).kernel().refused, None);
    assert_eq!(tree.log.lock().inodes.len(), 4);
}

#[test]
fn progress_is_reported_and_may_end_it() {
    let tree = Tree::new(|_| ());
    let mut seen = Vec::new();
    let mut tell = |now: CleanProgress| {
        seen.push(now);
        ControlFlow::Continue(())
    };
    tree.bridge.clean(&tree.foo, Clean::Names, Dirty::Skip, &mut tell).unwrap();
    assert!(seen.iter().any(|now| now.stage == CleanStage::Frontend && now.total == 6));
    let kernels = seen.iter().rfind(|now| now.stage == CleanStage::Frontend);
    assert_eq!(kernels.map(|now| (now.done, now.freed)), Some((6, 6)));
    assert_eq!(seen.last().map(|now| now.stage), Some(CleanStage::Freeing));

    let tree = Tree::new(|_| ());
    let mut end = |_| ControlFlow::Break(());
    let report = tree.bridge.clean(&tree.foo, Clean::Names, Dirty::Skip, &mut end).unwrap();
    assert!(report.interrupted);
    assert_eq!((report.kernel().held, report.kernel().let_go), (6, 0));
    // The probe changes nothing.
    let log = tree.log.lock();
    assert_eq!((log.pruned.concat().len(), log.entries.len(), log.inodes.len()), (0, 0, 0));
}

#[test]
fn a_cleaner_fails_when_its_mount_has_ended() {
    let tree = Tree::new(|_| ());
    let cleaner = Cleaner::of(&tree.bridge);
    let clean = |cleaner: &Cleaner| {
        let mut go_on = |_| ControlFlow::Continue(());
        let answer = cleaner.clean(&tree.foo, Clean::Both, Dirty::Skip, &mut go_on);
        answer.err().and_then(|error| error.raw_os_error())
    };
    assert_eq!(clean(&cleaner), None);
    tree.bridge.turns.end();
    assert_eq!(clean(&cleaner), Some(libc::ENOTCONN));
    assert_eq!(tree.bridge.counters.cleans_refused.total(), 1);
    let Tree { bridge, foo, .. } = tree;
    drop(bridge);
    let mut go_on = |_| ControlFlow::Continue(());
    let error = cleaner.clean(&foo, Clean::Both, Dirty::Skip, &mut go_on).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTCONN));
}

#[test]
fn a_file_is_no_directory() {
    let tree = Tree::new(|_| ());
    let file = tree.bridge.nodes.get(tree.id("a")).unwrap();
    let mut go_on = |_| ControlFlow::Continue(());
    let error = tree.bridge.clean(&file, Clean::Both, Dirty::Skip, &mut go_on).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTDIR));
    assert_eq!(tree.log.lock().messages(), 0);
}

/// Below the directory and in itself, and in no other; before the nodes, and not when only pages
/// are evicted.
#[test]
fn missing_names_are_asked_for_again_below_the_directory() {
    let tree = Tree::new(|_| ());
    let missing = &tree.bridge.nodes.missing;
    let believed = ["foo", "sub", "deep", "foobar"].map(|name| tree.id(name));
    for parent in believed {
        assert!(missing.record(parent, b"no", |_, _| panic!("there is room")));
    }
    assert_eq!(tree.clean(Clean::Pages).kernel().missing, 0);
    let report = tree.clean(Clean::Names).kernel();
    assert_eq!((report.missing, report.let_go, report.refused), (3, 6, None));
    let mut log = tree.log.lock();
    assert_eq!(log.entries.len(), 0, "a name may have been made meanwhile: it is not detached");
    log.again.sort_unstable();
    let mut expected: Vec<_> = believed[..3].iter().map(|&id| (id, "no".to_owned())).collect();
    expected.sort_unstable();
    assert_eq!(log.again, expected);
    drop(log);
    assert_eq!((missing.count(), missing.names(believed[3]).len()), (1, 1));
    assert_eq!(tree.clean(Clean::Names).kernel().missing, 0, "once is enough");
}

/// The kernel keeps the negative entries for which a message failed or was not sent.
#[test]
fn missing_names_stay_recorded_until_the_kernel_was_notified() {
    let tree = Tree::new(|fake| fake.fails = Some(libc::EPERM));
    let missing = &tree.bridge.nodes.missing;
    assert!(missing.record(tree.id("sub"), b"no", |_, _| true));
    let report = tree.clean(Clean::Names).kernel();
    assert!(report.refused.is_some() && report.missing == 0, "{report:?}");
    assert_eq!(missing.count(), 1);
    let mut end = |_| ControlFlow::Break(());
    tree.bridge.clean(&tree.foo, Clean::Names, Dirty::Skip, &mut end).unwrap();
    assert_eq!((missing.count(), tree.log.lock().again.len()), (1, 1));
    let tree = Tree::new(|fake| fake.fails = Some(libc::ENOENT));
    let missing = &tree.bridge.nodes.missing;
    assert!(missing.record(tree.id("sub"), b"no", |_, _| true));
    assert_eq!(tree.clean(Clean::Names).kernel().missing, 1);
    assert_eq!(missing.count(), 0, "what it does not have it does not believe");
}

/// The notifier sends a name that the record evicted for lack of room: cleaning waits for that
/// notice.
#[test]
fn cleaning_waits_for_notices_about_missing_names() {
    let tree = Tree::new(|_| ());
    let notices = tree.bridge.notices.clone();
    assert!(notices.ask_again(tree.id("sub"), b"no"));
    let calls = Arc::new(Mutex::new(&LOG, Log::default()));
    let kernel = Fake {
        nodes: tree.bridge.nodes.clone(),
        names: Vec::new(),
        old: false,
        busy: Vec::new(),
        slow: true,
        fails: None,
        log: calls.clone(),
    };
    let sub = tree.id("sub");
    let (nodes, counters) = (tree.bridge.nodes.clone(), tree.bridge.counters.clone());
    let notifier = std::thread::scope(|scope| {
        let cleaning = scope.spawn(|| {
            tree.clean(Clean::Names);
            calls.lock().again.clone()
        });
        let notifier = notices.start(Box::new(kernel), nodes, counters).unwrap();
        assert_eq!(cleaning.join().unwrap(), [(sub, "no".to_owned())]);
        notifier
    });
    drop(notifier);
}
