//! The callers of a mount whose mounting user is its root.

use super::control::is_control;
use super::nodes::ROOT;
use super::request::Sender;
use super::requests::{EntryOut, FakeRoot, Server, Settings};
use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_vfs::{
    Attributes, Caller, Cookie, Entries, Error, FileKind, Name, NewKind, NewNode, NewOwner, Node,
    Vfs, VfsConfig,
};

const USER: u32 = 1001;

fn server(with_others: bool) -> Server {
    let config = MemoryConfig { root_mode: 0o755, ..MemoryConfig::default() };
    let vfs = Vfs::new(MemoryBackend::new(config).unwrap(), VfsConfig::default()).unwrap();
    let fake_root = FakeRoot { user: USER, new_owner: NewOwner::Directory, with_others };
    let settings =
        Settings { passthrough: false, control_directory: true, fake_root: Some(fake_root) };
    Server::new(vfs, settings)
}

fn caller(server: &Server, uid: u32) -> Caller {
    server.caller(Sender { uid, gid: uid, task: u32::MAX, number: 0 })
}

/// A directory of mode 700 in the root: its node id, and for how long the kernel may use its name.
fn closed(server: &Server) -> (u64, Duration) {
    let new = NewNode { kind: NewKind::Directory, mode: 0o700, umask: 0 };
    match server.make(&caller(server, USER), ROOT, b"closed", &new).unwrap() {
        EntryOut::Found { attrs, entry_valid, .. } => {
            assert_eq!((attrs.attributes.uid, attrs.attributes.gid), (0, 0), "of the directory");
            (attrs.node_id, entry_valid)
        }
        EntryOut::Missing(_) => panic!("it was made"),
    }
}

#[test]
fn names_are_valid_only_where_no_other_user_can_walk_them() {
    for with_others in [false, true] {
        let server = server(with_others);
        let (directory, valid) = closed(&server);
        assert_eq!(valid.is_zero(), with_others);
        assert!(server.try_lookup(USER, ROOT, b"closed").is_some(), "a hit for the user itself");
        assert!(server.try_lookup(7, ROOT, b"closed").is_none(), "another one is judged");
        assert!(server.try_lookup(7, ROOT, b".uvfs").is_some(), "in no store");
        let missing = server.lookup(&caller(&server, USER), directory, b"none").unwrap();
        assert!(matches!(missing, EntryOut::Missing(valid) if valid.is_zero() == with_others));
        let other = server.lookup(&caller(&server, 7), directory, b"none");
        assert!(matches!(other, Err(Error::Access)));
    }
}

/// The names of a listing.
#[derive(Default)]
struct Names(usize);

impl Entries for Names {
    fn room(&self) -> usize {
        16
    }

    fn wants_nodes(&self) -> bool {
        false
    }

    fn name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
        self.0 += 1;
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

/// A directory that was opened by one user was listed by another one that got the descriptor: each request was judged again.
#[test]
fn what_is_open_is_used_by_each_user_that_has_it() {
    let server = server(true);
    let (directory, _) = closed(&server);
    let new = NewNode { kind: NewKind::Regular, mode: 0o600, umask: 0 };
    server.make(&caller(&server, USER), directory, b"file", &new).unwrap();
    let other = caller(&server, 7);
    assert!(matches!(server.open(&other, directory, libc::O_RDONLY), Err(Error::Access)));
    let opened = server.open(&caller(&server, USER), directory, libc::O_RDONLY).unwrap();
    let handle = server.opened(Arc::new(opened), 0).0;
    let mut names = Names::default();
    server.list(&other, directory, handle, Cookie(0), &mut names).unwrap();
    assert_eq!(names.0, 1);
    assert!(server.list(&other, directory, 0, Cookie(0), &mut names).is_err());
    server.release(handle);
}

#[test]
fn access_to_the_control_directory_is_by_its_modes() {
    let server = server(true);
    let Some(EntryOut::Found { attrs, .. }) = server.try_lookup(7, ROOT, b".uvfs") else {
        panic!("it is there");
    };
    assert!(is_control(attrs.node_id));
    let access = |uid, mask| server.access(&caller(&server, uid), attrs.node_id, mask).is_ok();
    assert_eq!([access(7, libc::X_OK), access(7, libc::W_OK)], [true, false]);
    assert!(access(USER, libc::X_OK | libc::W_OK));
}
