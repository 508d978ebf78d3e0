//! The control directory without a kernel.

use super::*;
use crate::lock_order;
use crate::server::{Server, Settings, WriteFrom, WriteHow};
use std::sync::Arc;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_concurrent::lock::Mutex;
use uvfs_vfs::{Caller, Checks, NewKind, NewNode, SetTime, Timestamp, Vfs, VfsConfig};

const OWNER: u32 = 4_000_001;
const USER: u32 = 4_000_002;
const DAEMON: u32 = 4_000_003;

/// Records the directories that it is asked to clean.
#[derive(Clone)]
struct Asked(Arc<Mutex<Vec<(u64, Clean)>>>);

impl DropCaches for Asked {
    fn drop_caches(&self, directory: &Node, what: Clean) -> io::Result<()> {
        self.0.lock().push((directory.number(), what));
        Ok(())
    }
}

struct Fixture {
    server: Server,
    asked: Asked,
}

impl Fixture {
    /// `/own` of OWNER with `in` of user 0 in it, `/closed` (0700, user 0) with `in` of OWNER in it, `/file`,
    /// `/link` to `own`, and a file `/.uvfs` of the store.
    fn new(on: bool) -> Self {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
        let make = |parent: &Node, name: &str, kind, mode, uid| {
            let caller = Caller { uid, gid: uid, checks: Checks::Done, ..Caller::root() };
            let new = NewNode { kind, mode, umask: 0 };
            vfs.create(&caller, parent, Name::new(name.as_bytes()).unwrap(), &new).unwrap().node
        };
        let root = vfs.root().clone();
        let own = make(&root, "own", NewKind::Directory, 0o755, OWNER);
        make(&own, "in", NewKind::Directory, 0o755, 0);
        let closed = make(&root, "closed", NewKind::Directory, 0o700, 0);
        make(&closed, "in", NewKind::Directory, 0o755, OWNER);
        make(&root, "file", NewKind::Regular, 0o644, OWNER);
        make(&root, "link", NewKind::Symlink(b"own"), 0o777, OWNER);
        make(&root, ".uvfs", NewKind::Regular, 0o644, 0);
        let settings = Settings { passthrough: false, control_directory: on, fake_root: None };
        let mut server = Server::new(vfs, settings);
        server.control.owner = DAEMON;
        let asked = Asked(Arc::new(Mutex::new(&lock_order::FUSE_NOTICES, Vec::new())));
        Self { server, asked }
    }

    fn connected() -> Self {
        let fixture = Self::new(true);
        fixture.server.control.connect(Box::new(fixture.asked.clone()));
        fixture
    }

    /// The errno of a request that `uid` writes to its open file.
    fn write(&self, uid: u32, request: impl AsRef<[u8]>) -> i32 {
        self.write_through(HANDLE | u64::from(uid), uid, request)
    }

    fn write_through(&self, handle: u64, uid: u32, request: impl AsRef<[u8]>) -> i32 {
        let caller = Caller { checks: Checks::Done, ..Caller::new(uid, uid, &[]) };
        let request = request.as_ref();
        let written = self.server.write_control(&caller, handle, request);
        assert!(written.as_ref().ok().is_none_or(|&count| count == request.len()));
        errno(written)
    }

    fn number(&self, path: &[&str]) -> u64 {
        let mut node = self.server.vfs.root().clone();
        for name in path {
            let name = Name::new(name.as_bytes()).unwrap();
            node =
                self.server.vfs.lookup(&Caller::root(), &node, name).unwrap().found().unwrap().node;
        }
        node.number()
    }

    fn take(&self) -> Vec<(u64, Clean)> {
        std::mem::take(&mut self.asked.0.lock())
    }
}

fn errno<T>(result: Result<T>) -> i32 {
    result.err().map_or(0, |error| error.errno())
}

fn found(entry: EntryOut) -> Attrs {
    match entry {
        EntryOut::Found { attrs, .. } => attrs,
        EntryOut::Missing(_) => panic!("missing"),
    }
}

#[test]
fn a_request_reaches_the_cleaner_with_its_directory() {
    let fixture = Fixture::connected();
    let own = fixture.number(&["own"]);
    let inner = fixture.number(&["own", "in"]);
    let root = fixture.number(&[]);
    let check = |request: &str, directory, what| {
        assert_eq!(fixture.write(0, request), 0, "{request:?}");
        assert_eq!(fixture.take(), [(directory, what)], "{request:?}");
    };
    check("1:/own\n", own, Clean::Pages);
    check("2:/own/in", inner, Clean::Names);
    check("3://own/./in//", inner, Clean::Both);
    check("1:/", root, Clean::Pages);
    check("3\n", root, Clean::Both);
}

#[test]
fn every_refusal_has_its_errno() {
    let fixture = Fixture::connected();
    let check = |uid, request: &[u8], expected| {
        assert_eq!(fixture.write(uid, request), expected, "{}", request.escape_ascii());
        assert_eq!(fixture.take(), [], "{}", request.escape_ascii());
    };
    let form: [&[u8]; 10] =
        [b"", b"\n", b"4", b"11", b"1:", b"1:own", b"1:/a\0", b"1:/own\n\n", b"1:/own/..", b"x"];
    for request in form {
        check(0, request, libc::EINVAL);
    }
    check(0, &[b'1'; 4097], libc::EINVAL);
    check(0, b"1:/nothing", libc::ENOENT);
    check(0, b"1:/own/nothing/x", libc::ENOENT);
    check(0, b"1:/file", libc::EINVAL);
    check(0, b"1:/file/x", libc::EINVAL);
    check(0, b"1:/link", libc::EINVAL);
    check(0, b"1:/link/in", libc::EINVAL);
    check(0, b"1:/.uvfs", libc::EINVAL);
    check(0, b"1:/./.uvfs/drop_caches", libc::EINVAL);
    check(0, b"1:/own/.uvfs", libc::ENOENT);
    check(USER, b"1:/own", libc::EPERM);
    check(OWNER, b"1:/own/in", libc::EPERM);
    check(OWNER, b"1", libc::EPERM);
    check(OWNER, b"1:/", libc::EPERM);
    check(OWNER, b"1:/closed/in", libc::EACCES);
}

#[test]
fn root_the_mounts_owner_and_a_directorys_owner_may() {
    let fixture = Fixture::connected();
    let check = |uid, request: &str| assert_eq!(fixture.write(uid, request), 0, "{uid} {request}");
    for uid in [0, DAEMON] {
        check(uid, "1");
        check(uid, "1:/own/in");
    }
    check(OWNER, "2:/own");
    check(0, "1:/closed/in");
    assert_eq!(fixture.take().len(), 6);
    // A set-id program writes into a file that its caller opened, and the other way round.
    let opened_by = |uid: u32| HANDLE | u64::from(uid);
    assert_eq!(fixture.write_through(opened_by(USER), 0, "1:/own"), libc::EPERM);
    assert_eq!(fixture.write_through(opened_by(0), USER, "1:/own"), libc::EPERM);
    assert_eq!(fixture.write_through(opened_by(OWNER), 0, "1:/own"), 0);
    // A store without opens.
    assert_eq!(fixture.write_through(0, USER, "1:/own"), libc::EPERM);
    assert_eq!(fixture.write_through(0, OWNER, "1:/own"), 0);
}

/// The owner of one directory cleaned it in a loop: each time every memo of a whole path fell, for all users.
#[test]
fn a_user_cleans_only_so_often() {
    let fixture = Fixture::connected();
    let clean = |uid| fixture.write(uid, "1:/own");
    // Up to one more for each second that this test has taken.
    let refused = (0..1000).map(|_| clean(OWNER)).find(|&errno| errno != 0);
    assert_eq!(refused, Some(libc::EAGAIN));
    assert!(fixture.take().len() >= rate::BURST as usize);
    assert_eq!((clean(0), clean(DAEMON)), (0, 0), "they are not counted");
    assert_eq!(fixture.write_through(HANDLE | u64::from(OWNER), 0, "1:/own"), libc::EAGAIN);
}

#[test]
fn users_are_judged_one_by_one() {
    let mut control = Control::new(true);
    control.owner = DAEMON;
    let check = |users: &[u32], owner, expected| {
        assert_eq!(control.permits(users, owner), expected, "{users:?} {owner:?}");
    };
    for free in [0, DAEMON] {
        check(&[free, free], None, true);
        check(&[free], Some(OWNER), true);
        check(&[free, OWNER], Some(OWNER), true);
        check(&[free, OWNER], None, false);
        check(&[USER, free], Some(OWNER), false);
    }
    check(&[OWNER, OWNER], Some(OWNER), true);
    check(&[OWNER, USER], Some(OWNER), false);
    check(&[USER], Some(0), false);
}

#[test]
fn until_a_thread_cleans_a_request_is_to_be_made_again() {
    let fixture = Fixture::new(true);
    assert_eq!(fixture.write(0, "1:/own"), libc::EAGAIN);
    assert_eq!(fixture.write(0, "1:/nothing"), libc::ENOENT, "it is looked at all the same");
}

#[test]
fn a_write_is_one_request_at_the_beginning() {
    let control = Control::new(true);
    let accepts = |offset, appends, length, from| {
        errno(control.accepts(
            offset,
            WriteHow { from, appends, keeps_set_ids: true, syncs: None },
            length,
        ))
    };
    assert_eq!(accepts(0, false, 4096, WriteFrom::Direct), 0);
    assert_eq!(accepts(7, true, 7, WriteFrom::Direct), 0);
    assert_eq!(accepts(7, false, 7, WriteFrom::Direct), libc::EINVAL);
    assert_eq!(accepts(0, false, 4097, WriteFrom::Direct), libc::EINVAL);
    assert_eq!(accepts(0, false, 7, WriteFrom::Mapped), libc::EINVAL);
}

#[test]
fn the_directory_is_found_and_described() {
    let Fixture { server, .. } = Fixture::new(true);
    let root = Caller::root();
    let directory = found(server.try_lookup(0, ROOT, b".uvfs").unwrap());
    assert_eq!((directory.node_id, directory.attributes.st_mode()), (DIRECTORY, 0o040_555));
    assert_eq!(directory.attributes.uid, rustix::process::geteuid().as_raw());
    let file = found(server.lookup(&root, DIRECTORY, b"drop_caches").unwrap());
    assert_eq!((file.node_id, file.attributes.st_mode()), (DROP_CACHES, 0o100_222));
    assert_eq!((file.attributes.size, file.attributes.links), (0, 1));
    assert_eq!(server.getattr(DROP_CACHES, 0).unwrap().attributes, file.attributes);
    assert!(matches!(server.lookup(&root, DIRECTORY, b"x"), Ok(EntryOut::Missing(_))));
    assert_eq!(errno(server.lookup(&root, DROP_CACHES, b"x")), libc::ENOTDIR);
    // The kernel's counts of the two are not kept.
    server.forget(DIRECTORY, 3);
    server.forget(DROP_CACHES, 1);
    assert_eq!(server.counters.forgotten_too_often.total(), 0);
    assert_eq!(server.nodes.totals(), (0, 0));
}

#[test]
fn nothing_can_be_changed_in_it_or_put_in_its_place() {
    let Fixture { server, .. } = Fixture::new(true);
    let root = Caller { checks: Checks::Done, ..Caller::root() };
    let file = found(server.lookup(&root, ROOT, b"file").unwrap()).node_id;
    let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
    for (parent, name) in [(ROOT, NAME), (DIRECTORY, FILE), (DIRECTORY, b"x"), (DROP_CACHES, b"x")]
    {
        let denied = |errno, what| assert_eq!(errno, libc::EPERM, "{what} {parent:#x}");
        denied(errno(server.make(&root, parent, name, &new)), "make");
        denied(errno(server.create(&root, parent, name, &new, libc::O_WRONLY)), "create");
        denied(errno(server.unlink(&root, parent, name, &mut Vec::new())), "unlink");
        denied(errno(server.rmdir(&root, parent, name)), "rmdir");
        denied(errno(server.link(&root, file, parent, name)), "link");
        denied(
            errno(server.rename(&root, (ROOT, b"file"), (parent, name), 0, &mut Vec::new())),
            "rename to",
        );
        denied(
            errno(server.rename(&root, (parent, name), (ROOT, b"y"), 0, &mut Vec::new())),
            "rename from",
        );
    }
    for id in [DIRECTORY, DROP_CACHES] {
        assert_eq!(errno(server.link(&root, id, ROOT, b"y")), libc::EPERM);
        assert_eq!(errno(server.setxattr(&root, id, b"user.x", b"", 0)), libc::EPERM);
        assert_eq!(errno(server.removexattr(&root, id, b"user.x")), libc::EPERM);
        assert_eq!(errno(server.getxattr(&root, id, b"user.x")), libc::ENODATA);
        assert_eq!(server.listxattr(&root, id).unwrap(), b"");
        assert_eq!(errno(server.fsync(id, 0, false)), 0);
        let none = SetAttributes::default();
        let sets = [
            SetAttributes { mode: Some(0o777), ..none },
            SetAttributes { uid: Some(1), ..none },
            SetAttributes { gid: Some(1), size: Some(0), ..none },
            SetAttributes { size: Some(1), ..none },
            SetAttributes { mtime: Some(SetTime::Now), ..none },
        ];
        for set in sets {
            assert_eq!(errno(server.setattr(&root, id, 0, &set, || true)), libc::EPERM, "{set:?}");
        }
    }
    let truncate = SetAttributes {
        size: Some(0),
        mtime: Some(SetTime::At(Timestamp::default())),
        ..SetAttributes::default()
    };
    assert_eq!(
        server.setattr(&root, DROP_CACHES, 0, &truncate, || true).unwrap().attributes.size,
        0
    );
    assert_eq!(errno(server.setattr(&root, DIRECTORY, 0, &truncate, || true)), libc::EPERM);
}

#[test]
fn the_file_opens_for_writing_and_the_directory_for_reading() {
    let control = Control::new(true);
    let write = libc::O_WRONLY | libc::O_APPEND;
    assert_eq!(control.open(DROP_CACHES, write, USER).unwrap(), HANDLE | u64::from(USER));
    assert!(control.open(DIRECTORY, libc::O_DIRECTORY, u32::MAX).is_ok());
    for flags in [libc::O_RDONLY, libc::O_RDWR] {
        assert_eq!(errno(control.open(DROP_CACHES, flags, 0)), libc::EACCES);
    }
    assert_eq!(errno(control.open(DIRECTORY, libc::O_WRONLY, 0)), libc::EACCES);
}

/// Notes the names of a listing, of which it has room for one at a time.
#[derive(Default)]
struct Names(Vec<Vec<u8>>);

impl Entries for Names {
    fn room(&self) -> usize {
        100
    }
    fn wants_nodes(&self) -> bool {
        true
    }
    fn name(&mut self, name: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
        self.0.push(name.as_bytes().to_vec());
        true
    }
    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        _: Node,
        attributes: &Attributes,
        _: (Duration, Duration),
    ) -> bool {
        self.name(name, next, 0, attributes.kind)
    }
}

fn names(server: &Server, id: u64, from: u64) -> Vec<Vec<u8>> {
    let mut names = Names::default();
    server.list(&Caller::root(), id, 0, Cookie(from), &mut names).unwrap();
    names.0.sort();
    names.0
}

#[test]
fn listings_show_it_only_when_asked_for_itself() {
    let Fixture { server, .. } = Fixture::new(true);
    assert_eq!(names(&server, ROOT, 0), [&b"closed"[..], b"file", b"link", b"own"]);
    assert_eq!(names(&server, DIRECTORY, 0), [b"drop_caches"]);
    assert_eq!(names(&server, DIRECTORY, 1), [[0u8; 0]; 0]);
}

#[test]
fn switched_off_it_is_a_name_like_any_other() {
    let Fixture { server, .. } = Fixture::new(false);
    let root = Caller { checks: Checks::Done, ..Caller::root() };
    let file = found(server.lookup(&root, ROOT, b".uvfs").unwrap());
    assert_eq!(file.attributes.kind, FileKind::Regular);
    assert!(!is_control(file.node_id));
    assert!(names(&server, ROOT, 0).contains(&b".uvfs".to_vec()));
    server.rename(&root, (ROOT, b".uvfs"), (ROOT, b"x"), 0, &mut Vec::new()).unwrap();
    assert_eq!(errno(server.unlink(&root, ROOT, b".uvfs", &mut Vec::new())), libc::ENOENT);
}

#[test]
fn handles_and_node_ids_belong_to_the_control_files_alone() {
    assert!(is_control(DIRECTORY) && is_control(DROP_CACHES) && !is_control(RESERVED - 1));
    assert!(!is_control(ROOT) && !is_control(0));
    let Fixture { server, .. } = Fixture::new(true);
    let caller = Caller { checks: Checks::Done, ..Caller::root() };
    let file = found(server.lookup(&caller, ROOT, b"file").unwrap()).node_id;
    let opened = server.open(&caller, file, libc::O_RDONLY).unwrap();
    let handle = server.opened(Arc::new(opened), 0).0;
    assert_eq!(handle & HANDLE, 0);
    let ours = server.control.open(DROP_CACHES, libc::O_WRONLY, handle as u32).unwrap();
    assert!(server.release(ours).is_none(), "a file of the same low bits");
    assert!(server.release(handle).is_some());
}

/// A store may number its objects as it likes.
#[test]
fn a_store_that_uses_our_numbers_gets_other_ids() {
    let Fixture { server, .. } = Fixture::new(true);
    let node = server.node(ROOT).unwrap();
    let name = Name::new(b"own").unwrap();
    let own = server.vfs.lookup(&Caller::root(), &node, name).unwrap().found().unwrap().node;
    for number in RESERVED..=u64::MAX {
        let id = server.nodes.publish(&own, (number, 0), None);
        assert!(!is_control(id), "{number:#x}");
        assert!(server.nodes.forget(id, 1));
    }
}
