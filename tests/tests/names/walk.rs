//! Floor: conformance, in process. Path resolution: confinement, symbolic links, slashes, `..`,
//! limits, permissions, the rules of `open(2)`, and files without a name.
//!
//! Deterministic, except the tests with threads, which assert only facts that hold under any
//! schedule.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::hostile::HostileBackend;
use uvfs_tests::{Watchdog, assert_references_exact, errno, hostile, root, tiny, vfs_over};
use uvfs_vfs::{
    Access, Authority, Caller, Directory, Error, FileKind, Listings, NewKind, OpenOptions,
    RenameMode, ResolveMode, Result, SetAttributes, Vfs, VfsConfig,
};

fn scene() -> (Arc<Vfs>, Directory) {
    let vfs = vfs_over(&hostile(), tiny());
    let top = root(&vfs);
    for path in ["a", "a/b", "a/b/c", "out"] {
        top.create_directory(path, 0o755).unwrap();
    }
    for path in ["a/file", "a/b/file", "out/secret"] {
        top.write_file(path, path).unwrap();
    }
    (vfs, top)
}

fn read(directory: &Directory, path: &str) -> std::result::Result<String, i32> {
    let content = directory.read_file(path).map_err(|error| error.errno())?;
    Ok(String::from_utf8(content).unwrap())
}

/// Each path with its required target.
fn check(directory: &Directory, cases: &[(&str, std::result::Result<&str, i32>)]) {
    for (path, expected) in cases {
        assert_eq!(read(directory, path).as_deref().map_err(|errno| *errno), *expected, "{path}");
    }
}

#[test]
fn plain_paths_and_slashes() {
    let (_, top) = scene();
    check(
        &top,
        &[
            ("a/file", Ok("a/file")),
            ("/a/file", Ok("a/file")),
            ("//a///b//file", Ok("a/b/file")),
            ("./a/./b/../file", Ok("a/file")),
            ("../../a/file", Ok("a/file")),
            ("a/file/", Err(libc::ENOTDIR)),
            ("a/file/.", Err(libc::ENOTDIR)),
            ("a/file/..", Err(libc::ENOTDIR)),
            ("a/file/x", Err(libc::ENOTDIR)),
            ("", Err(libc::ENOENT)),
            ("a/none/..", Err(libc::ENOENT)),
            ("a/none/file", Err(libc::ENOENT)),
            ("a/b/", Err(libc::EISDIR)),
            ("a\0b", Err(libc::EINVAL)),
        ],
    );
    assert_eq!(top.stat("/").unwrap().number, top.stat("a/..").unwrap().number);
    let below = top.open_directory("a/b").unwrap();
    check(
        &below,
        &[("file", Ok("a/b/file")), ("../file", Ok("a/file")), ("/a/file", Ok("a/file"))],
    );
}

#[test]
fn lengths_are_limited() {
    let (_, top) = scene();
    let name = "n".repeat(255);
    top.write_file(&name, "x").unwrap();
    assert_eq!(errno(&top.stat("n".repeat(256))), libc::ENAMETOOLONG);
    assert_eq!(errno(&top.create_directory("n".repeat(256), 0o755)), libc::ENAMETOOLONG);
    let long = |length: usize| format!("{}file", "./".repeat((length - 6) / 2) + "a/");
    assert_eq!(long(4094).len(), 4094);
    assert!(top.stat(long(4094)).is_ok());
    assert_eq!(errno(&top.stat(format!("/{}", long(4094)))), 0, "4095 bytes");
    assert_eq!(errno(&top.stat(format!("//{}", long(4094)))), libc::ENAMETOOLONG);
    assert_eq!(errno(&top.symlink("x".repeat(4095), "link")), 0);
    assert_eq!(errno(&top.symlink("x".repeat(4096), "longer")), libc::ENAMETOOLONG);
    assert_eq!(errno(&top.symlink("", "empty")), libc::ENOENT);
}

#[test]
fn symbolic_links_are_followed_forty_times() {
    let (_, top) = scene();
    top.symlink("a/file", "link0").unwrap();
    for at in 1..=40 {
        top.symlink(format!("link{}", at - 1), format!("link{at}")).unwrap();
    }
    check(&top, &[("link39", Ok("a/file")), ("link40", Err(libc::ELOOP))]);
    top.symlink("loop", "loop").unwrap();
    top.symlink("/a/b", "absolute").unwrap();
    top.symlink("../out", "a/relative").unwrap();
    top.symlink("none", "dangling").unwrap();
    top.symlink("a/b/", "slashed").unwrap();
    top.symlink("a/file/", "slashed-file").unwrap();
    check(
        &top,
        &[
            ("loop", Err(libc::ELOOP)),
            ("loop/x", Err(libc::ELOOP)),
            ("absolute/file", Ok("a/b/file")),
            ("absolute/../file", Ok("a/file")),
            ("a/relative/secret", Ok("out/secret")),
            ("dangling", Err(libc::ENOENT)),
            ("dangling/x", Err(libc::ENOENT)),
            ("slashed/file", Ok("a/b/file")),
            ("slashed-file", Err(libc::ENOTDIR)),
        ],
    );
    assert_eq!(top.symlink_stat("absolute").unwrap().kind, FileKind::Symlink);
    assert_eq!(top.symlink_stat("absolute/").unwrap().kind, FileKind::Directory);
    assert_eq!(top.read_link("absolute").unwrap(), b"/a/b");
    assert_eq!(errno(&top.read_link("a/file")), libc::EINVAL);
    assert_eq!(errno(&top.read_link("dangling/")), libc::ENOENT);
}

#[test]
fn beneath_refuses_every_way_out() {
    let (_, top) = scene();
    top.symlink("../out/secret", "a/up").unwrap();
    top.symlink("/out/secret", "a/absolute").unwrap();
    top.symlink("b/../file", "a/within").unwrap();
    top.symlink("b", "a/there").unwrap();
    let jail = top.open_directory("a").unwrap().with_resolve(ResolveMode::BENEATH);
    check(
        &jail,
        &[
            ("file", Ok("a/file")),
            ("b/../file", Ok("a/file")),
            ("b/c/../../b/file", Ok("a/b/file")),
            ("within", Ok("a/file")),
            ("there/../file", Ok("a/file")),
            ("..", Err(libc::EXDEV)),
            ("../a/file", Err(libc::EXDEV)),
            ("b/../../a/file", Err(libc::EXDEV)),
            ("/a/file", Err(libc::EXDEV)),
            ("up", Err(libc::EXDEV)),
            ("absolute", Err(libc::EXDEV)),
            ("there/../../out/secret", Err(libc::EXDEV)),
        ],
    );
    for path in ["../new", "/new", "b/../../new"] {
        assert_eq!(errno(&jail.create_directory(path, 0o755)), libc::EXDEV, "{path}");
        assert_eq!(errno(&jail.rename("file", path, RenameMode::Replace)), libc::EXDEV, "{path}");
        assert_eq!(errno(&jail.write_file(path, "")), libc::EXDEV, "{path}");
    }
    assert_eq!(errno(&jail.remove_file("up")), 0, "the link itself is beneath");
    // A handle taken from a confined one is confined to itself.
    let inner = jail.open_directory("b").unwrap();
    assert_eq!(read(&inner, "../file"), Err(libc::EXDEV));
}

#[test]
fn in_root_takes_the_directory_for_the_root() {
    let (_, top) = scene();
    top.symlink("/b/file", "a/absolute").unwrap();
    top.symlink("../../../file", "a/b/up").unwrap();
    let jail = top.open_directory("a").unwrap().with_resolve(ResolveMode::IN_ROOT);
    check(
        &jail,
        &[
            ("/file", Ok("a/file")),
            ("/../../file", Ok("a/file")),
            ("..", Err(libc::EISDIR)),
            ("absolute", Ok("a/b/file")),
            ("b/up", Ok("a/file")),
            ("/out/secret", Err(libc::ENOENT)),
        ],
    );
    jail.create_directory("/new", 0o755).unwrap();
    assert!(top.stat("a/new").is_ok());
}

#[test]
fn no_symlinks_refuses_them_anywhere() {
    let (_, top) = scene();
    top.symlink("a", "link").unwrap();
    top.symlink("a/file", "to-file").unwrap();
    let strict = top.clone().with_resolve(ResolveMode::NO_SYMLINKS);
    check(
        &strict,
        &[("a/file", Ok("a/file")), ("link/file", Err(libc::ELOOP)), ("to-file", Err(libc::ELOOP))],
    );
    assert_eq!(errno(&strict.write_file("link/new", "")), libc::ELOOP);
    assert_eq!(errno(&strict.remove_file("link")), 0, "the name itself is no walk through it");
}

#[test]
fn last_components_that_are_no_names() {
    let (_, top) = scene();
    for path in ["a/.", "a/..", ".", ".."] {
        assert_eq!(errno(&top.remove_file(path)), libc::EISDIR, "unlink {path}");
        assert_eq!(errno(&top.create_directory(path, 0o755)), libc::EEXIST, "mkdir {path}");
        let renamed = top.rename("a/file", path, RenameMode::Replace);
        assert_eq!(errno(&renamed), libc::EBUSY, "rename to {path}");
    }
    assert_eq!(errno(&top.remove_directory("a/.")), libc::EINVAL);
    assert_eq!(errno(&top.remove_directory("a/..")), libc::ENOTEMPTY);
    assert_eq!(errno(&top.create_directory("/", 0o755)), libc::EEXIST);
    assert_eq!(errno(&top.remove_directory("/")), libc::EBUSY);
    assert_eq!(errno(&top.remove_file("/")), libc::EISDIR);
}

#[test]
fn slashes_after_the_last_name() {
    let (_, top) = scene();
    top.create_directory("new/", 0o755).unwrap();
    top.rename("new/", "newer/", RenameMode::Replace).unwrap();
    top.remove_directory("newer/").unwrap();
    assert_eq!(errno(&top.remove_file("a/file/")), libc::ENOTDIR);
    assert_eq!(errno(&top.remove_directory("a/file/")), libc::ENOTDIR);
    assert_eq!(errno(&top.rename("a/file/", "x", RenameMode::Replace)), libc::ENOTDIR);
    assert_eq!(errno(&top.rename("a/file", "x/", RenameMode::Replace)), libc::ENOTDIR);
    assert_eq!(errno(&top.symlink("a", "x/")), libc::ENOENT);
    assert_eq!(errno(&top.link("a/file", "x/")), libc::ENOENT);
    assert_eq!(errno(&top.link("a/file/", "x")), libc::ENOTDIR);
    assert_eq!(errno(&top.write_file("x/", "")), libc::EISDIR);
    assert_eq!(errno(&top.create("x/", NewKind::Fifo, 0o600)), libc::ENOENT);
}

#[test]
fn a_directory_that_was_moved_leads_up_to_its_new_parent() {
    let (_, top) = scene();
    let held = top.open_directory("a/b/c").unwrap();
    top.rename("a/b/c", "out/c", RenameMode::Replace).unwrap();
    check(&held, &[("../secret", Ok("out/secret")), ("../../a/file", Ok("a/file"))]);
    top.rename("out", "a/out", RenameMode::Replace).unwrap();
    check(&held, &[("../../file", Ok("a/file"))]);
    top.rename("a/out/c", "a/b", RenameMode::Exchange).unwrap();
    check(&held, &[("../file", Ok("a/file"))]);
    assert_eq!(read(&top, "a/out/c/../secret"), Ok("out/secret".to_owned()));
    top.remove_directory("a/b").unwrap();
    assert_eq!(errno(&held.stat("x")), libc::ENOENT);
    assert_eq!(errno(&held.write_file("x", "")), libc::ENOENT, "nothing is made in a removed one");
}

/// Another thread moves a directory back and forth; a walk through it never leaves its jail and
/// never finds a missing name.
#[test]
fn walks_beside_moves_stay_in_their_jail() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    let (_, top) = scene();
    let jail = top.open_directory("a").unwrap().with_resolve(ResolveMode::BENEATH);
    std::thread::scope(|scope| {
        let mover = scope.spawn(|| {
            for _ in 0..2000 {
                top.rename("a/b", "out/b", RenameMode::Replace).unwrap();
                top.rename("out/b", "a/b", RenameMode::Replace).unwrap();
            }
        });
        while !mover.is_finished() {
            match jail.stat("b/c/../../secret").map(|found| found.number) {
                Err(Error::NotFound | Error::CrossDevice) => {}
                other => panic!("escaped: {other:?}"),
            }
            let found = jail.read_file("b/c/../../file");
            assert!(matches!(&found, Ok(content) if content == b"a/file") || found.is_err());
        }
    });
}

#[test]
fn different_callers_may_do_different_things() {
    let (_, top) = scene();
    let (owner, member) = (Caller::new(1, 1, &[]), Caller::new(2, 2, &[7]));
    let stranger = Caller::new(3, 3, &[]);
    top.create_directory("home", 0o750).unwrap();
    let set = SetAttributes { uid: Some(1), gid: Some(7), ..Default::default() };
    top.set_attributes("home", &set).unwrap();
    let of = |caller: &Caller| top.clone().with_caller(caller.clone());
    of(&owner).write_file("home/file", "mine").unwrap();
    assert_eq!(read(&of(&member), "home/file"), Ok("mine".to_owned()));
    assert_eq!(read(&of(&stranger), "home/file"), Err(libc::EACCES));
    assert_eq!(errno(&of(&stranger).stat("home/none")), libc::EACCES);
    assert_eq!(errno(&of(&stranger).stat("home")), 0);
    assert_eq!(errno(&of(&stranger).stat("home/..")), libc::EACCES, "`..` is a search too");
    assert_eq!(errno(&of(&member).write_file("home/new", "")), libc::EACCES);
    assert_eq!(errno(&of(&member).create_directory("home/new", 0o755)), libc::EACCES);
    assert_eq!(errno(&of(&member).create_directory("home/file", 0o755)), libc::EEXIST);
    assert_eq!(errno(&of(&stranger).create_directory("home/file", 0o755)), libc::EACCES);
    assert_eq!(errno(&of(&member).create_directory("home", 0o755)), libc::EEXIST, "mkdir -p");
    assert_eq!(errno(&of(&member).remove_file("home/file")), libc::EACCES);
    let write = OpenOptions::write();
    assert_eq!(errno(&of(&member).open("home/file", write)), libc::EACCES);
    assert_eq!(errno(&of(&owner).open("a/file", write)), libc::EACCES);
    let listed = of(&stranger).open_directory("home").unwrap().list_all();
    assert_eq!(errno(&listed), libc::EACCES);
    let access = |caller, wanted| errno(&of(caller).access("home/file", wanted));
    assert_eq!(access(&member, Access::READ), 0);
    assert_eq!(access(&member, Access::WRITE), libc::EACCES);
    assert_eq!(access(&Caller::root(), Access::EXECUTE), libc::EACCES);
    // An open file stays open.
    let open = of(&owner).open("home/file", OpenOptions::read_write()).unwrap();
    let closed = SetAttributes { mode: Some(0), ..Default::default() };
    of(&owner).set_attributes("home/file", &closed).unwrap();
    open.write_all_at(0, b"still").unwrap();
    open.set_size(3).unwrap();
    assert_eq!(errno(&of(&owner).open("home/file", OpenOptions::read())), libc::EACCES);
    assert_eq!(open.read_to_end().unwrap(), b"sti");
}

#[test]
fn sticky_directories_protect_what_is_in_them() {
    let (_, top) = scene();
    top.clone().with_umask(0).create_directory("tmp", 0o1777).unwrap();
    let one = top.clone().with_caller(Caller::new(1, 1, &[]));
    let other = top.clone().with_caller(Caller::new(2, 2, &[]));
    one.write_file("tmp/one", "").unwrap();
    other.write_file("tmp/other", "").unwrap();
    assert_eq!(errno(&other.remove_file("tmp/one")), libc::EPERM);
    assert_eq!(errno(&other.rename("tmp/one", "tmp/x", RenameMode::Replace)), libc::EPERM);
    let over = other.rename("tmp/other", "tmp/one", RenameMode::Replace);
    assert_eq!(errno(&over), libc::EPERM);
    assert_eq!(errno(&one.remove_file("tmp/one")), 0);
    assert_eq!(errno(&top.remove_file("tmp/other")), 0);
}

#[test]
fn open_follows_the_rules_of_its_flags() {
    let (_, top) = scene();
    top.symlink("a/file", "link").unwrap();
    top.symlink("a/new", "dangling").unwrap();
    let exclusive = OpenOptions::write().create_new(0o600);
    assert_eq!(errno(&top.open("a/file", exclusive)), libc::EEXIST);
    assert_eq!(errno(&top.open("link", exclusive)), libc::EEXIST);
    assert_eq!(errno(&top.open("dangling", exclusive)), libc::EEXIST, "not followed");
    assert_eq!(errno(&top.open("a", exclusive)), libc::EEXIST);
    let read = OpenOptions::read();
    assert_eq!(errno(&top.open("link", read.no_follow())), libc::ELOOP);
    assert_eq!(errno(&top.open("a/file", read.no_follow())), 0);
    assert_eq!(errno(&top.open("none", read)), libc::ENOENT);
    assert_eq!(errno(&top.open("a", OpenOptions::write())), libc::EISDIR);
    assert_eq!(errno(&top.open("a", read.create(0o600))), libc::EISDIR);
    assert_eq!(errno(&top.open("none/x", read.create(0o600))), libc::ENOENT);
    let made = top.open("dangling", OpenOptions::write().create(0o600)).unwrap();
    made.write_all_at(0, b"through the link").unwrap();
    assert_eq!(read_of(&top, "a/new"), "through the link");
    assert_eq!(errno(&made.read_to_end()), libc::EBADF);
    assert_eq!(errno(&top.open("a/file", read).unwrap().write_at(0, b"x")), libc::EBADF);
    let cut = top.open("a/new", OpenOptions::write().truncate()).unwrap();
    assert_eq!(cut.stat().unwrap().size, 0);
    // The creator of a file may write it, with any mode.
    let user = top.open_directory(".").unwrap().with_caller(Caller::new(5, 5, &[]));
    let sealed = user.open("sealed", OpenOptions::write().create_new(0)).unwrap();
    sealed.write_all_at(0, b"once").unwrap();
    assert_eq!(errno(&user.open("sealed", read)), libc::EACCES);
    top.create("pipe", NewKind::Fifo, 0o600).unwrap();
    assert_eq!(errno(&top.open("pipe", read)), libc::ENXIO);
}

fn read_of(directory: &Directory, path: &str) -> String {
    read(directory, path).unwrap()
}

#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    let hostile = hostile();
    let vfs = vfs_over(&hostile, VfsConfig::default());
    let top = root(&vfs);
    let file = top.open_unnamed("/", 0o600).unwrap();
    assert_eq!(file.stat().unwrap().links, 0);
    file.write_all_at(0, b"content").unwrap();
    assert!(top.list_all().unwrap().is_empty());
    top.link_file(&file, "named").unwrap();
    assert_eq!(file.stat().unwrap().links, 1);
    assert_eq!(errno(&top.link_file(&file, "named")), libc::EEXIST);
    assert_eq!(top.stat("named").unwrap().number, file.stat().unwrap().number);
    drop(file);
    assert_eq!(read_of(&top, "named"), "content");
    let gone = top.open_unnamed("/", 0o600).unwrap();
    gone.write_all_at(0, b"never seen").unwrap();
    let inode = gone.node().id();
    drop(gone);
    assert!(vfs.cached(inode).is_none(), "forgotten with its last handle");
    let unlinked = top.open("named", OpenOptions::read()).unwrap();
    top.remove_file("named").unwrap();
    assert_eq!(unlinked.read_to_end().unwrap(), b"content");
    assert_eq!(errno(&top.link_file(&unlinked, "again")), libc::ENOENT);
    drop((unlinked, top));
    assert_references_exact(&vfs, &hostile);
}

#[test]
fn appends_by_several_threads_lose_nothing() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    let (_, top) = scene();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let top = top.clone();
            scope.spawn(move || {
                let append = OpenOptions::write().create(0o600).append();
                let log = top.open("log", append).unwrap();
                for at in 0..500u16 {
                    let [high, low] = at.to_le_bytes();
                    assert_eq!(log.write_at(0, &[thread, high, low, b'\n']).unwrap(), 4);
                }
            });
        }
    });
    let content = top.read_file("log").unwrap();
    let records: BTreeSet<&[u8]> = content.chunks(4).collect();
    assert_eq!((content.len(), records.len()), (4 * 500 * 4, 2000));
}

/// Two callers create one name at once: one makes it, the other opens it, and neither fails.
#[test]
fn creating_one_name_from_several_threads() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    let (_, top) = scene();
    for round in 0..200 {
        let name = format!("name-{round}");
        let opened: Vec<Result<u64>> = std::thread::scope(|scope| {
            let open = || {
                let file = top.open(&name, OpenOptions::write().create(0o600))?;
                Ok(file.stat()?.number)
            };
            let threads: Vec<_> = (0..3).map(|_| scope.spawn(open)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let numbers: BTreeSet<u64> = opened.into_iter().map(Result::unwrap).collect();
        assert_eq!(numbers.len(), 1);
    }
}

/// Bug: a name created through a dangling link whose text ends in a slash became a plain file.
#[test]
fn a_link_that_can_only_lead_to_a_directory_creates_no_file() {
    let vfs = vfs_over(&hostile(), VfsConfig::default());
    let root = root(&vfs);
    root.symlink("d/", "a").unwrap();
    assert!(matches!(root.write_file("a", "x"), Err(Error::IsDirectory)));
    assert!(matches!(root.symlink_stat("d"), Err(Error::NotFound)));
}

/// A file system over a store that other programs change, where answers are valid for long, and the other program.
fn shared_scene(listings: Listings, config: VfsConfig) -> (Arc<Vfs>, Directory, Directory) {
    let hour = Duration::from_secs(3600);
    let store = hostile().claiming(|can| {
        can.authority = Authority::Shared;
        can.listings = listings;
    });
    let config =
        VfsConfig { attr_timeout: hour, entry_timeout: hour, negative_timeout: hour, ..config };
    let other = root(&vfs_over(&HostileBackend::over(store.inner().clone()), VfsConfig::default()));
    for path in ["a", "a/b", "many"] {
        other.create_directory(path, 0o755).unwrap();
    }
    other.write_file("a/b/f", "old").unwrap();
    let vfs = vfs_over(&store, config);
    let top = root(&vfs);
    (vfs, top, other)
}

/// Walks `path` until it is found as a whole, by one memo.
fn make_memo(vfs: &Vfs, top: &Directory, path: &str) {
    let whole = || vfs.statistics().walks.whole;
    let before = whole();
    assert!((0..1000).any(|_| top.stat(path).is_ok() && whole() > before), "no memo of {path}");
}

/// The inode number of a file, by the memo of its path and by its components.
fn both_walks(top: &Directory) -> [std::result::Result<u64, i32>; 2] {
    let number = |found: Result<uvfs_vfs::Attributes>| {
        found.map(|found| found.number).map_err(|error| error.errno())
    };
    let by_components = top.open_directory("a/b").and_then(|directory| directory.stat("f"));
    [number(top.stat("a/b/f")), number(by_components)]
}

/// Another program replaced or removed a file, or its directory, and a listing showed that. The memo of the whole path
/// still led to the old file, for as long as its name would have been valid.
#[test]
fn a_memo_of_a_path_ends_when_a_listing_shows_another_meaning() {
    for listings in [Listings::Asked, Listings::Kept] {
        let (vfs, top, other) = shared_scene(listings, VfsConfig::default());
        let refresh = |path: &str| {
            vfs.refresh(top.open_directory(path).unwrap().node()).unwrap();
        };
        let held = top.open("a/b/f", OpenOptions::read()).unwrap();
        refresh("a/b");
        make_memo(&vfs, &top, "a/b/f");
        other.write_file("a/b/new", "new").unwrap();
        other.rename("a/b/new", "a/b/f", RenameMode::Replace).unwrap();
        refresh("a/b");
        let new = other.stat("a/b/f").unwrap().number;
        assert_eq!(both_walks(&top), [Ok(new); 2], "replaced, {listings:?}");

        make_memo(&vfs, &top, "a/b/f");
        other.remove_file("a/b/f").unwrap();
        refresh("a/b");
        let [memo, components] = both_walks(&top);
        assert_eq!(memo, components, "removed, {listings:?}");
        if listings == Listings::Kept {
            assert_eq!(components, Err(libc::ENOENT), "a kept listing denies it at once");
        }

        other.write_file("a/b/f", "again").unwrap();
        refresh("a/b");
        make_memo(&vfs, &top, "a/b/f");
        other.rename("a/b", "a/moved", RenameMode::Replace).unwrap();
        other.create_directory("a/b", 0o755).unwrap();
        other.write_file("a/b/f", "elsewhere").unwrap();
        refresh("a");
        let new = other.stat("a/b/f").unwrap().number;
        assert_eq!(both_walks(&top), [Ok(new); 2], "its directory was replaced, {listings:?}");
        drop(held);
    }
}

/// A memo stayed also where the name was evicted before the next lookup showed its new meaning: the file was open.
#[test]
fn a_memo_of_a_path_ends_with_its_names() {
    let (vfs, top, other) = shared_scene(Listings::Asked, tiny());
    for name in 0..2000 {
        other.write_file(format!("many/{name}"), "").unwrap();
    }
    let held = top.open("a/b/f", OpenOptions::read()).unwrap();
    let directory = top.open_directory("a/b").unwrap();
    make_memo(&vfs, &top, "a/b/f");
    let old = top.stat("a/b/f").unwrap().number;
    other.write_file("a/b/new", "new").unwrap();
    other.rename("a/b/new", "a/b/f", RenameMode::Replace).unwrap();
    let many = top.open_directory("many").unwrap();
    let evicted = (0..1000).any(|_| {
        vfs.refresh(many.node()).unwrap();
        directory.stat("f").unwrap().number != old
    });
    assert!(evicted, "the scene");
    assert_eq!(top.stat("a/b/f").unwrap().number, directory.stat("f").unwrap().number);
    drop(held);
}
