//! Floor: conformance, in process. Mounts in a namespace: crossing them, binding, stacking,
//! unmounting busy ones, rights on both sides, confinement, and storms of mounts beside walks.
//!
//! Deterministic, except the tests with threads, which assert only facts that hold under any
//! schedule.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::time::Duration;
use uvfs_tests::{Hostile, Watchdog, assert_references_exact, errno, hostile, vfs_over};
use uvfs_vfs::{
    Access, Caller, Cookie, Directory, InodeId, Namespace, OpenOptions, RenameMode, ResolveMode,
    SetAttributes, Unmount, Vfs, VfsConfig,
};

/// One file system: directories `a/b`, and in each directory a `file` with its place.
struct Store {
    hostile: Hostile,
    vfs: Arc<Vfs>,
}

fn store(name: &str) -> Store {
    let hostile = hostile();
    let vfs = vfs_over(&hostile, VfsConfig::default());
    let top = vfs.root_directory(Caller::root());
    for directory in ["a", "a/b"] {
        top.create_directory(directory, 0o755).unwrap();
    }
    for directory in ["", "a/", "a/b/"] {
        top.write_file(format!("{directory}file"), format!("{name}:{directory}")).unwrap();
    }
    Store { hostile, vfs }
}

impl Store {
    fn active(&self) -> u64 {
        self.vfs.statistics().inodes_active
    }

    fn slow_walks(&self) -> u64 {
        self.vfs.statistics().walks.slow.iter().map(|reason| reason.1).sum()
    }
}

/// A namespace with `one` as its root, and `two` mounted on its `a`.
fn scene(one: &Store, two: &Store) -> (Arc<Namespace>, Directory) {
    let namespace = Namespace::new(one.vfs.clone());
    let top = namespace.root_directory(Caller::root());
    namespace.mount(&top.open_directory("a").unwrap(), two.vfs.clone()).unwrap();
    (namespace, top)
}

fn read(directory: &Directory, path: &str) -> Result<String, i32> {
    let content = directory.read_file(path).map_err(|error| error.errno())?;
    Ok(String::from_utf8(content).unwrap())
}

/// Each path with the text that must be read there; twice, since the second time it is cached.
fn check(directory: &Directory, cases: &[(&str, Result<&str, i32>)]) {
    for (path, expected) in cases.iter().chain(cases) {
        assert_eq!(read(directory, path).as_deref().map_err(|errno| *errno), *expected, "{path}");
        let found = directory.stat(path).map(|found| found.size as usize);
        let found = found.map_err(|error| error.errno());
        assert_eq!(found, expected.map(str::len), "stat {path}");
    }
}

#[test]
fn mounts_are_crossed_down_and_up() {
    let (one, two) = (store("1"), store("2"));
    let (namespace, top) = scene(&one, &two);
    let cases = [
        ("file", Ok("1:")),
        ("a/file", Ok("2:")),
        ("a/a/b/file", Ok("2:a/b/")),
        ("a/b", Err(libc::ENOENT)),
        ("a/none/x", Err(libc::ENOENT)),
        ("a/file/x", Err(libc::ENOTDIR)),
        ("a/../file", Ok("1:")),
        ("a/a/../../file", Ok("1:")),
        ("a/a/../file", Ok("2:")),
        ("a/./file", Ok("2:")),
        ("../a/../../a/file", Ok("2:")),
        ("/a//a/file", Ok("2:a/")),
    ];
    check(&top, &cases);
    // From handles inside, too; and an absolute path starts at the namespace's root.
    let inside = top.open_directory("a/a").unwrap();
    check(
        &inside,
        &[
            ("file", Ok("2:a/")),
            ("../../file", Ok("1:")),
            ("/file", Ok("1:")),
            ("/a/file", Ok("2:")),
        ],
    );
    two.vfs.root_directory(Caller::root()).symlink("/file", "to-root").unwrap();
    two.vfs.root_directory(Caller::root()).symlink("../a/b/file", "a/relative").unwrap();
    check(&top, &[("a/to-root", Ok("1:")), ("a/a/relative", Ok("2:a/b/"))]);
    // Without the namespace nothing is mounted.
    check(&one.vfs.root_directory(Caller::root()), &[("a/file", Ok("1:a/"))]);
    let mounts = namespace.mounts();
    assert_eq!((mounts.len(), mounts[0].on), (2, None));
    assert_eq!(mounts[1].on.map(|on| on.0), Some(mounts[0].id));
    assert_eq!((mounts[1].store, mounts[1].root, mounts[1].users), ("memory", InodeId::ROOT, 1));
}

#[test]
fn a_handle_opened_before_a_mount_stays_beneath_it() {
    let (one, two) = (store("1"), store("2"));
    let namespace = Namespace::new(one.vfs.clone());
    let top = namespace.root_directory(Caller::root());
    let beneath = top.open_directory("a").unwrap();
    let deeper = top.open_directory("a/b").unwrap();
    namespace.mount(&beneath, two.vfs.clone()).unwrap();
    check(&beneath, &[("file", Ok("1:a/")), ("./b/file", Ok("1:a/b/")), ("../a/file", Ok("2:"))]);
    // `..` enters the mount on the parent, like in Linux.
    check(&deeper, &[("file", Ok("1:a/b/")), ("../file", Ok("2:")), ("../../file", Ok("1:"))]);
}

#[test]
fn every_operation_works_on_the_mounted_file_system() {
    let (one, two) = (store("1"), store("2"));
    let (_namespace, top) = scene(&one, &two);
    let plain = two.vfs.root_directory(Caller::root());
    top.create_directory("a/new", 0o755).unwrap();
    top.write_file("a/new/x", "content").unwrap();
    top.symlink("x", "a/new/link").unwrap();
    top.link("a/new/x", "a/new/y").unwrap();
    top.rename("a/new/y", "a/z", RenameMode::Replace).unwrap();
    let unnamed = top.open_unnamed("a/new", 0o600).unwrap();
    unnamed.write_all_at(0, b"unnamed").unwrap();
    top.link_file(&unnamed, "a/named").unwrap();
    let mode = SetAttributes { mode: Some(0o640), ..Default::default() };
    assert_eq!(top.set_attributes("a/z", &mode).unwrap().mode, 0o640);
    top.set_xattr("a/z", "user.k", "v", uvfs_vfs::XattrMode::Any).unwrap();
    assert_eq!(top.get_xattr("a/z", "user.k").unwrap(), b"v");
    assert_eq!(top.list_xattrs("a/z").unwrap(), [b"user.k"]);
    check(&plain, &[("new/link", Ok("content")), ("z", Ok("content")), ("named", Ok("unnamed"))]);
    assert_eq!(top.read_link("a/new/link").unwrap(), b"x");
    assert_eq!(top.symlink_stat("a").unwrap().number, plain.stat("/").unwrap().number);
    let names = |directory: &Directory| {
        let all = directory.list_all().unwrap().into_iter().map(|entry| entry.name);
        all.collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(names(&top.open_directory("a").unwrap()), names(&plain));
    assert!(!top.open_directory("a").unwrap().list(Cookie(0)).unwrap().is_empty());
    top.access("a/z", Access::READ).unwrap();
    top.remove_xattr("a/z", "user.k").unwrap();
    top.remove_file("a/new/link").unwrap();
    top.remove_file("a/new/x").unwrap();
    top.remove_directory("a/new").unwrap();
    assert_eq!(errno(&plain.stat("new")), libc::ENOENT);
    check(&one.vfs.root_directory(Caller::root()), &[("a/file", Ok("1:a/")), ("a/z", Err(2))]);
}

#[test]
fn mounts_nest_and_stack() {
    let (one, two, three) = (store("1"), store("2"), store("3"));
    let (namespace, top) = scene(&one, &two);
    namespace.mount(&top.open_directory("a/a/b").unwrap(), three.vfs.clone()).unwrap();
    let nested = [
        ("a/a/b/file", Ok("3:")),
        ("a/a/b/a/b/file", Ok("3:a/b/")),
        ("a/a/b/../file", Ok("2:a/")),
        ("a/a/b/a/../../../../file", Ok("1:")),
    ];
    check(&top, &nested);
    // On top of a mount: its root is covered, and `..` leads past all of them.
    let lower = top.open_directory("a").unwrap();
    namespace.mount(&lower, three.vfs.clone()).unwrap();
    check(&top, &[("a/file", Ok("3:")), ("a/../file", Ok("1:"))]);
    check(&lower, &[("file", Ok("2:")), ("a/b/file", Ok("3:")), ("../file", Ok("1:"))]);
    // Through a handle beneath all of them: on top again.
    let four = store("4");
    namespace.mount(&lower, four.vfs.clone()).unwrap();
    check(&top, &[("a/file", Ok("4:")), ("a/a/../../file", Ok("1:"))]);
    for expected in ["3:", "2:"] {
        namespace.unmount(top.open_directory("a").unwrap(), Unmount::Busy).unwrap();
        check(&top, &[("a/file", Ok(expected))]);
    }
    check(&top, &nested);
    // A file system within itself is seen once, not for ever.
    namespace.mount(&top.open_directory("a/a/b/a").unwrap(), one.vfs.clone()).unwrap();
    check(&top, &[("a/a/b/a/file", Ok("1:")), ("a/a/b/a/a/file", Ok("1:a/"))]);
}

#[test]
fn a_directory_bound_at_two_places_leads_up_to_each() {
    let (one, two) = (store("1"), store("2"));
    let (namespace, top) = scene(&one, &two);
    for place in ["x", "x/p", "y", "y/p"] {
        top.create_directory(place, 0o755).unwrap();
        top.write_file(format!("{place}/file"), place).unwrap();
    }
    let source = top.open_directory("a/a").unwrap();
    for place in ["x/p", "y/p"] {
        namespace.bind(&top.open_directory(place).unwrap(), &source).unwrap();
    }
    let cases = [
        ("x/p/file", Ok("2:a/")),
        ("y/p/b/file", Ok("2:a/b/")),
        ("x/p/../file", Ok("x")),
        ("y/p/../file", Ok("y")),
        ("x/p/b/../../file", Ok("x")),
        ("y/p/b/../../file", Ok("y")),
        ("a/a/../file", Ok("2:")),
    ];
    check(&top, &cases);
    // A mount in one is not in the other.
    let three = store("3");
    namespace.mount(&top.open_directory("x/p/b").unwrap(), three.vfs.clone()).unwrap();
    check(
        &top,
        &[("x/p/b/file", Ok("3:")), ("y/p/b/file", Ok("2:a/b/")), ("x/p/b/../file", Ok("2:a/"))],
    );
    check(&top, &[("a/a/b/file", Ok("2:a/b/"))]);
    // A directory moved out of the bound tree does not lead up to the unbound part.
    let held = top.open_directory("y/p/b").unwrap();
    two.vfs.root_directory(Caller::root()).rename("a/b", "moved", RenameMode::Replace).unwrap();
    check(&held, &[("file", Ok("2:a/b/")), ("../file", Err(libc::ENOENT))]);
}

#[test]
fn what_is_in_use_is_busy() {
    let (one, two, three) = (store("1"), store("2"), store("3"));
    let (namespace, top) = scene(&one, &two);
    let root = |path: &str| top.open_directory(path).unwrap();
    let unmount = |path: &str| errno(&namespace.unmount(root(path), Unmount::Busy));
    let held = root("a/a");
    assert_eq!(unmount("a"), libc::EBUSY, "a handle is inside");
    drop(held);
    let file = top.open("a/file", OpenOptions::read()).unwrap();
    assert_eq!(unmount("a"), libc::EBUSY, "a file is open");
    drop(file);
    namespace.mount(&root("a/a"), three.vfs.clone()).unwrap();
    assert_eq!(unmount("a"), libc::EBUSY, "something is mounted inside");
    // Names of mountpoints cannot be moved; directories above them can.
    let mode = RenameMode::Replace;
    assert_eq!(errno(&top.remove_directory("a")), libc::EBUSY);
    assert_eq!(errno(&top.rename("a", "c", mode)), libc::EBUSY);
    top.create_directory("empty", 0o755).unwrap();
    assert_eq!(errno(&top.rename("empty", "a", mode)), libc::EBUSY);
    assert_eq!(errno(&top.rename("empty", "a", RenameMode::Exchange)), libc::EBUSY);
    assert_eq!(errno(&top.remove_directory("a/a")), libc::EBUSY);
    top.create_directory("q", 0o755).unwrap();
    top.create_directory("q/p", 0o755).unwrap();
    namespace.mount(&root("q/p"), three.vfs.clone()).unwrap();
    let stranger = top.clone().with_caller(Caller::new(7, 7, &[]));
    assert_eq!(errno(&stranger.remove_directory("q/p")), libc::EACCES);
    drop(stranger);
    top.rename("q", "r", mode).unwrap();
    check(&top, &[("r/p/file", Ok("3:")), ("r/p/../../file", Ok("1:"))]);
    // Not the roots of mounts.
    assert_eq!(unmount("empty"), libc::EINVAL);
    assert_eq!(unmount("a/a/a"), libc::EINVAL);
    assert_eq!(unmount("/"), libc::EBUSY);
    assert_eq!(errno(&namespace.unmount(root("/"), Unmount::Lazy)), libc::EBUSY);
    assert_eq!(errno(&namespace.mount(&root("/"), two.vfs.clone())), libc::EBUSY);
    let foreign = Namespace::new(two.vfs.clone()).root_directory(Caller::root());
    assert_eq!(errno(&namespace.mount(&foreign, two.vfs.clone())), libc::EINVAL);
    assert_eq!(errno(&namespace.unmount(foreign, Unmount::Lazy)), libc::EINVAL);
    assert_eq!((unmount("a/a"), unmount("a"), unmount("r/p")), (0, 0, 0));
    check(&top, &[("a/file", Ok("1:a/"))]);
    top.remove_file("a/b/file").unwrap();
    assert_eq!(errno(&top.remove_directory("a/b")), 0);
    assert_eq!(namespace.mounts().len(), 1);
}

#[test]
fn names_do_not_move_from_mount_to_mount() {
    let (one, two) = (store("1"), store("2"));
    let (namespace, top) = scene(&one, &two);
    top.create_directory("bound", 0o755).unwrap();
    let source = top.open_directory("a/a").unwrap();
    namespace.bind(&top.open_directory("bound").unwrap(), &source).unwrap();
    // The last pair is of one file system, in two mounts.
    for (from, to) in [("file", "a/x"), ("a/file", "x"), ("a/a/file", "bound/x")] {
        assert_eq!(errno(&top.rename(from, to, RenameMode::Replace)), libc::EXDEV, "{from}");
        assert_eq!(errno(&top.link(from, to)), libc::EXDEV, "{from}");
        let open = top.open(from, OpenOptions::read_write()).unwrap();
        assert_eq!(errno(&top.link_file(&open, to)), libc::EXDEV, "{from}");
    }
    let (from, to) = (OpenOptions::read(), OpenOptions::write());
    let (from, to) = (top.open("file", from).unwrap(), top.open("a/file", to).unwrap());
    assert_eq!(errno(&from.copy_range(0, &to, 0, 1)), libc::EXDEV);
    assert_eq!(errno(&top.rename("bound/file", "bound/moved", RenameMode::Replace)), 0);
    check(&top, &[("a/a/moved", Ok("2:a/"))]);
}

#[test]
fn a_lazy_unmount_leaves_handles_inside_alone() {
    let (one, two, three) = (store("1"), store("2"), store("3"));
    let before = [one.active(), two.active(), three.active()];
    let (namespace, top) = scene(&one, &two);
    namespace.mount(&top.open_directory("a/a/b").unwrap(), three.vfs.clone()).unwrap();
    let inside = top.open_directory("a/a").unwrap();
    let innermost = top.open_directory("a/a/b").unwrap();
    let file = top.open("a/file", OpenOptions::read_write()).unwrap();
    let root = top.open_directory("a").unwrap();
    let second = root.clone();
    namespace.unmount(root, Unmount::Lazy).unwrap();
    assert_eq!(namespace.mounts().len(), 1);
    check(&top, &[("a/file", Ok("1:a/")), ("a/b/file", Ok("1:a/b/"))]);
    // Each detached mount is on its own.
    let cases = [
        ("file", Ok("2:a/")),
        ("b/file", Ok("2:a/b/")),
        ("../file", Ok("2:")),
        ("../../../file", Ok("2:")),
        ("/file", Ok("1:")),
    ];
    check(&inside, &cases);
    check(&innermost, &[("file", Ok("3:")), ("../../file", Ok("3:"))]);
    inside.write_file("new", "new").unwrap();
    file.write_all_at(0, b"still").unwrap();
    assert_eq!(file.read_to_end().unwrap(), b"still");
    assert_eq!(errno(&namespace.unmount(second, Unmount::Lazy)), libc::EINVAL);
    assert_eq!(errno(&namespace.mount(&inside, one.vfs.clone())), libc::EINVAL);
    drop((inside, innermost, file, top, namespace));
    assert_eq!([one.active(), two.active(), three.active()], before);
    for store in [&one, &two, &three] {
        assert_references_exact(&store.vfs, &store.hostile);
    }
}

#[test]
fn a_mount_keeps_its_file_system_and_its_end_ends_it() {
    let (one, two) = (store("1"), store("2"));
    let (namespace, top) = scene(&one, &two);
    let Store { hostile, vfs } = two;
    let gone = Arc::downgrade(&vfs);
    drop(vfs);
    check(&top, &[("a/a/file", Ok("2:a/"))]);
    namespace.unmount(top.open_directory("a").unwrap(), Unmount::Busy).unwrap();
    assert!(gone.upgrade().is_none());
    drop(hostile);
    // The same when the namespace is dropped first, and a handle last.
    let two = store("2");
    let (namespace, _) = scene(&one, &two);
    let inside = namespace.root_directory(Caller::root()).open_directory("a").unwrap();
    drop((namespace, top));
    check(&inside, &[("file", Ok("2:")), ("../file", Ok("1:"))]);
    drop(inside);
    one.vfs.forget_unused();
    assert_eq!((one.active(), Arc::strong_count(&two.vfs)), (1, 1));
}

/// A directory has room for 65535 marks: each one is released with its mount.
#[test]
fn a_directory_can_be_mounted_on_again_and_again() {
    let _watchdog = Watchdog::new(Duration::from_secs(300));
    let one = store("1");
    let namespace = Namespace::new(one.vfs.clone());
    let top = namespace.root_directory(Caller::root());
    let (place, source) = (top.open_directory("a").unwrap(), top.open_directory("a/b").unwrap());
    for _ in 0..=u16::MAX {
        namespace.bind(&place, &source).unwrap();
        namespace.unmount(top.open_directory("a").unwrap(), Unmount::Busy).unwrap();
    }
    check(&top, &[("a/file", Ok("1:a/"))]);
}

/// Another program removes a mountpoint past the namespace: the mount is dropped at the next
/// removal through it, and nothing can be mounted on an object without a name.
#[test]
fn a_removed_directory_is_no_mountpoint() {
    let (one, two) = (store("1"), store("2"));
    let namespace = Namespace::new(one.vfs.clone());
    let (top, plain) =
        (namespace.root_directory(Caller::root()), one.vfs.root_directory(Caller::root()));
    for place in ["p", "q", "r"] {
        top.create_directory(place, 0o755).unwrap();
    }
    let (p, q) = (top.open_directory("p").unwrap(), top.open_directory("q").unwrap());
    plain.remove_directory("p").unwrap();
    assert_eq!(errno(&namespace.mount(&p, two.vfs.clone())), libc::ENOENT);
    namespace.mount(&q, two.vfs.clone()).unwrap();
    plain.remove_directory("q").unwrap();
    assert_eq!((namespace.mounts().len(), errno(&top.stat("q"))), (2, libc::ENOENT));
    top.remove_directory("r").unwrap();
    assert_eq!(namespace.mounts().len(), 1);
}

#[test]
fn rights_are_those_of_each_file_system() {
    let (one, two) = (store("1"), store("2"));
    let (_namespace, top) = scene(&one, &two);
    let user = top.clone().with_caller(Caller::new(1, 1, &[]));
    let mode = |vfs: &Arc<Vfs>, path: &str, mode| {
        let set = SetAttributes { mode: Some(mode), ..Default::default() };
        vfs.root_directory(Caller::root()).set_attributes(path, &set).unwrap();
    };
    check(&user, &[("a/a/file", Ok("2:a/"))]);
    // The covered directory's rights are not checked.
    mode(&one.vfs, "a", 0);
    check(&user, &[("a/a/file", Ok("2:a/"))]);
    mode(&two.vfs, "/", 0o700);
    check(&user, &[("a/a/file", Err(libc::EACCES)), ("file", Ok("1:"))]);
    assert_eq!(
        errno(&user.stat("a/../file")),
        libc::EACCES,
        "`..` is a search of the mounted root"
    );
    check(&top, &[("a/a/file", Ok("2:a/"))]);
    mode(&two.vfs, "/", 0o755);
    mode(&one.vfs, "/", 0o700);
    check(&user, &[("a/a/file", Err(libc::EACCES)), ("file", Err(libc::EACCES))]);
}

#[test]
fn confined_paths_cross_mounts_and_do_not_leave() {
    let (one, two, three) = (store("1"), store("2"), store("3"));
    let (namespace, top) = scene(&one, &two);
    namespace.mount(&top.open_directory("a/a/b").unwrap(), three.vfs.clone()).unwrap();
    three.vfs.root_directory(Caller::root()).symlink("/file", "absolute").unwrap();
    three.vfs.root_directory(Caller::root()).symlink("../../file", "up").unwrap();
    let beneath = top.open_directory("a/a").unwrap().with_resolve(ResolveMode::BENEATH);
    let cases = [
        ("b/file", Ok("3:")),
        ("b/a/../../file", Ok("2:a/")),
        ("b/../b/file", Ok("3:")),
        ("b/../../file", Err(libc::EXDEV)),
        ("..", Err(libc::EXDEV)),
        ("b/absolute", Err(libc::EXDEV)),
        ("b/up", Err(libc::EXDEV)),
    ];
    check(&beneath, &cases);
    // At the root of a mount, too.
    let root = top.open_directory("a").unwrap().with_resolve(ResolveMode::BENEATH);
    check(&root, &[("a/b/../../file", Ok("2:")), ("../file", Err(libc::EXDEV))]);
    let jail = root.clone().with_resolve(ResolveMode::IN_ROOT);
    let cases = [
        ("/a/b/file", Ok("3:")),
        ("../../a/b/../file", Ok("2:a/")),
        ("a/b/absolute", Ok("2:")),
        ("a/b/up", Ok("2:")),
        ("/../file", Ok("2:")),
    ];
    check(&jail, &cases);
    // A handle held in the jail returns by its own path, after any unmount.
    let inner = root.open_directory("a/b").unwrap();
    assert_eq!(read(&inner, "../file"), Err(libc::EXDEV));
}

#[test]
fn a_known_path_across_mounts_takes_the_fast_walk() {
    let (one, two, three) = (store("1"), store("2"), store("3"));
    let (namespace, top) = scene(&one, &two);
    namespace.mount(&top.open_directory("a/a/b").unwrap(), three.vfs.clone()).unwrap();
    let user = top.with_caller(Caller::new(1, 1, &[]));
    let path = "/a/a/b/a/b/file";
    let expected = user.stat(path).unwrap();
    user.stat(path).unwrap();
    let (slow, fast) = (one.slow_walks(), one.vfs.statistics().walks.fast);
    let hits = |store: &Store| store.vfs.statistics().names.hits;
    let before = [hits(&one), hits(&two), hits(&three)];
    assert_eq!(user.stat(path).unwrap(), expected);
    assert_eq!((one.slow_walks(), one.vfs.statistics().walks.fast), (slow, fast + 1));
    // Each file system counts the names it found.
    assert_eq!(
        [hits(&one), hits(&two), hits(&three)],
        [before[0] + 1, before[1] + 2, before[2] + 3]
    );
    // Nothing is locked or held on the way (only builds with debug assertions count).
    #[cfg(debug_assertions)]
    {
        let tally = uvfs_concurrent::primitive::record::tally(|| user.stat(path).unwrap()).1;
        let shared = (tally.stores, tally.rmws, tally.locks);
        assert_eq!(shared, (0, 0, 0), "{tally:?}");
    }
}

/// A mount with another one in it is removed at once: fast walks see both or none of them.
#[test]
fn a_fast_walk_sees_an_unmount_whole_or_not_at_all() {
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let (one, two, three) = (store("1"), store("2"), store("3"));
    let sizes = ["1", "22", "333"].map(|content| {
        let store = [&one, &two, &three][content.len() - 1];
        let top = store.vfs.root_directory(Caller::root());
        let path = ["a/a/x", "a/x", "x"][content.len() - 1];
        if content.len() == 1 {
            top.create_directory("a/a", 0o755).unwrap();
        }
        top.write_file(path, content).unwrap();
        // So that the caches know it.
        top.stat(path).unwrap().size
    });
    for _ in 0..100 {
        let (namespace, top) = scene(&one, &two);
        namespace.mount(&top.open_directory("a/a").unwrap(), three.vfs.clone()).unwrap();
        assert_eq!(top.stat("a/a/x").unwrap().size, sizes[2]);
        let slow = one.slow_walks();
        let started = Barrier::new(3);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    started.wait();
                    let mut last = sizes[2];
                    while last != sizes[0] {
                        let size = top.stat("a/a/x").unwrap().size;
                        assert!(size == sizes[0] || size == last, "{size} after {last}");
                        last = size;
                    }
                });
            }
            started.wait();
            namespace.unmount(top.open_directory("a").unwrap(), Unmount::Lazy).unwrap();
        });
        assert_eq!(top.stat("a/a/x").unwrap().size, sizes[0]);
        assert_eq!(one.slow_walks(), slow, "the caches knew both");
    }
}

/// Mounts and unmounts, lazy and not, beside walkers that stat, open, create and go up.
#[test]
fn mounts_and_unmounts_beside_walkers() {
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    let (one, two) = (store("1"), store("2"));
    let before = [one.active(), two.active()];
    let namespace = Namespace::new(one.vfs.clone());
    let top = namespace.root_directory(Caller::root());
    let beneath = top.open_directory("a").unwrap();
    let (done, walked) = (AtomicBool::new(false), [AtomicU64::new(0), AtomicU64::new(0)]);
    let one_of = |found: Result<String, i32>, allowed: &[Result<&str, i32>]| {
        let found = found.as_deref().map_err(|errno| *errno);
        assert!(allowed.contains(&found), "{found:?}");
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                one_of(read(&top, "a/file"), &[Ok("1:a/"), Ok("2:")]);
                one_of(read(&top, "a/a/file"), &[Ok("2:a/"), Err(libc::ENOENT)]);
                one_of(read(&top, "a/b/../file"), &[Ok("1:a/"), Ok("2:"), Err(libc::ENOENT)]);
                one_of(read(&beneath, "file"), &[Ok("1:a/")]);
                walked[0].fetch_add(1, SeqCst);
            }
        });
        scope.spawn(|| {
            while !done.load(SeqCst) {
                let Ok(inside) = top.open_directory("a/a") else { continue };
                one_of(read(&inside, "file"), &[Ok("2:a/")]);
                one_of(read(&inside, "b/../../file"), &[Ok("2:")]);
                // Out of the mount, unless it has been taken away.
                one_of(read(&inside, "../../file"), &[Ok("1:"), Ok("2:")]);
                inside.write_file("new", "new").unwrap();
                inside.remove_file("new").unwrap();
                walked[1].fetch_add(1, SeqCst);
            }
        });
        let (mut polite, mut round) = (0, 0);
        while round < 400 || walked.iter().any(|walked| walked.load(SeqCst) < 100) {
            round += 1;
            namespace.mount(&beneath, two.vfs.clone()).unwrap();
            assert_eq!(read(&top, "a/a/b/file").as_deref(), Ok("2:a/b/"));
            let busy = round % 2 == 0;
            let how = if busy { Unmount::Busy } else { Unmount::Lazy };
            match errno(&namespace.unmount(top.open_directory("a").unwrap(), how)) {
                0 => polite += u32::from(busy),
                code => {
                    assert!(busy && code == libc::EBUSY, "{code}");
                    namespace.unmount(top.open_directory("a").unwrap(), Unmount::Lazy).unwrap();
                }
            }
            assert_eq!(read(&top, "a/file").as_deref(), Ok("1:a/"));
        }
        done.store(true, SeqCst);
        println!("{polite} of {} polite unmounts found no user inside", round / 2);
    });
    assert_eq!(namespace.mounts().len(), 1);
    assert_eq!(namespace.mounts()[0].users, 2);
    drop((beneath, top, namespace));
    assert_eq!([one.active(), two.active()], before);
    for store in [&one, &two] {
        assert_references_exact(&store.vfs, &store.hostile);
    }
}
