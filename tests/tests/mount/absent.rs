//! Floor: hostile backend. Extended attributes that objects do not have: which requests reach the store, how many, and
//! how long their absence is cached.
//!
//! Bug: `ls -la` of 100,000 files took 18 seconds, and 2.9 with another FUSE file system. The kernel asked 400,000
//! times for labels and access control lists that no file had, and each time the host was asked again.
//!
//! The test through a mount needs root and `/dev/fuse`; it is skipped where they lack.

use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_tests::{Hostile, Watchdog, hostile, root, unmount_idle, vfs_over};
use uvfs_vfs::{
    Authority, Backend, Caller, Directory, Error, InodeId, Name, OpenOptions, SetAttributes, Vfs,
    VfsConfig, Waits, XattrMode,
};

/// Requests that the kernel and the usual programs send by default.
const ASKED: [&str; 6] = [
    "security.selinux",
    "system.posix_acl_access",
    "system.posix_acl_default",
    "security.capability",
    "security.ima",
    "security.evm",
];
const CAPABILITY: &str = "security.capability";

/// A store that others change, with a file `f` whose attributes are known.
fn scene(attr_timeout: Duration) -> (Hostile, Arc<Vfs>, Directory) {
    let store = hostile().claiming(|can| can.authority = Authority::Shared);
    let config = VfsConfig { attr_timeout, watch: true, ..VfsConfig::default() };
    let vfs = vfs_over(&store, config);
    let top = root(&vfs);
    top.write_file("f", "content").unwrap();
    top.stat("f").unwrap();
    store.follow(Plan::new());
    (store, vfs, top)
}

const LONG: Duration = Duration::from_secs(3600);

fn is_absent(top: &Directory, name: &str) -> bool {
    matches!(top.get_xattr("f", name), Err(Error::NoAttribute))
}

fn id(top: &Directory) -> InodeId {
    top.open("f", OpenOptions::read()).unwrap().node().id()
}

/// Gives the file capabilities past the file system.
fn behind(store: &Hostile, top: &Directory) {
    let set = store.inner().xattrs().unwrap().set_xattr(
        &Caller::root(),
        id(top),
        CAPABILITY.as_bytes(),
        b"all",
        XattrMode::Any,
    );
    set.unwrap();
}

/// Requests of the store that are about extended attributes, since the last call.
fn asked(store: &Hostile) -> usize {
    let made = store.made(Call::GetXattr) + store.made(Call::ListXattrs);
    store.follow(Plan::new());
    made
}

#[test]
fn one_question_tells_of_every_name_that_is_absent() {
    let (store, _vfs, top) = scene(LONG);
    for _ in 0..100 {
        assert!(ASKED.iter().all(|name| is_absent(&top, name)));
        assert!(is_absent(&top, "user.whatever") && top.list_xattrs("f").unwrap().is_empty());
    }
    assert_eq!(asked(&store), 1);
}

#[test]
fn what_exists_is_answered_and_what_is_absent_beside_it_is_known() {
    let (store, _vfs, top) = scene(LONG);
    top.set_xattr("f", CAPABILITY, "all", XattrMode::Any).unwrap();
    top.set_xattr("f", "user.x", "1", XattrMode::Any).unwrap();
    top.stat("f").unwrap();
    asked(&store);
    for _ in 0..10 {
        assert_eq!(top.get_xattr("f", CAPABILITY).unwrap(), b"all");
        assert_eq!(top.get_xattr("f", "user.x").unwrap(), b"1");
        assert!(is_absent(&top, "security.selinux") && is_absent(&top, "security.ima"));
        assert_eq!(top.list_xattrs("f").unwrap().len(), 2);
    }
    // The three that exist or might, each time, and the list that excluded the rest.
    assert_eq!(asked(&store), 31);
}

#[test]
fn every_way_to_get_an_attribute_ends_the_belief_that_there_is_none() {
    type Change = fn(&Hostile, &Directory);
    let ways: [(&str, Change); 4] = [
        ("our own setxattr", |_, top| {
            top.set_xattr("f", CAPABILITY, "all", XattrMode::Any).unwrap();
        }),
        ("news of it", |store, top| {
            behind(store, top);
            store.sink().unwrap().inode_changed(id(top));
        }),
        ("news of everything", |store, top| {
            behind(store, top);
            store.sink().unwrap().everything_changed();
        }),
        ("a change of our own that asks again", |store, top| {
            behind(store, top);
            let set = SetAttributes { mode: Some(0o640), ..SetAttributes::default() };
            top.set_attributes("f", &set).unwrap();
        }),
    ];
    for (way, change) in ways {
        let (store, _vfs, top) = scene(LONG);
        assert!(is_absent(&top, CAPABILITY) && is_absent(&top, CAPABILITY));
        assert_eq!(asked(&store), 1, "{way}");
        change(&store, &top);
        assert_eq!(top.get_xattr("f", CAPABILITY).unwrap(), b"all", "{way}");
    }
}

#[test]
fn it_is_believed_no_longer_than_the_attributes() {
    let (store, _vfs, top) = scene(Duration::ZERO);
    assert!(is_absent(&top, CAPABILITY));
    behind(&store, &top);
    assert_eq!(top.get_xattr("f", CAPABILITY).unwrap(), b"all");

    // The file was made a moment ago: a refresh cannot see by its change time whether it was changed since.
    let (store, _vfs, top) = scene(LONG);
    let [from, to] = [&b"f"[..], b"g"].map(|name| Name::new(name).unwrap());
    let entry = store.inner().names().lookup(&Caller::root(), InodeId::ROOT, from).unwrap();
    let entry = store
        .inner()
        .creation()
        .unwrap()
        .link(&Caller::root(), entry.inode, InodeId::ROOT, to)
        .unwrap();
    store.inner().inodes().forget(entry.inode, 2);
    assert!(is_absent(&top, CAPABILITY));
    behind(&store, &top);
    top.stat("g").unwrap();
    assert_eq!(top.get_xattr("f", CAPABILITY).unwrap(), b"all");
}

#[test]
fn an_answer_that_a_change_overtook_is_not_believed() {
    let (store, _vfs, top) = scene(LONG);
    let gate = Gate::new();
    let late = Fault::Hold(Moment::After, gate.clone());
    store.follow(Plan::new().when(On::call(Call::ListXattrs), late));
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(is_absent(&top, CAPABILITY), "it was, when the store was asked"));
        gate.wait_for(1);
        top.set_xattr("f", CAPABILITY, "all", XattrMode::Any).unwrap();
        gate.open();
    });
    assert_eq!(top.get_xattr("f", CAPABILITY).unwrap(), b"all");
}

#[test]
fn a_store_that_cannot_list_is_asked_for_each_name_once() {
    let (store, _vfs, top) = scene(LONG);
    let refuse = Fault::Fail(Moment::Before, libc::EOPNOTSUPP);
    store.follow(Plan::new().when(On::call(Call::ListXattrs), refuse));
    for _ in 0..10 {
        assert!(is_absent(&top, CAPABILITY) && is_absent(&top, "security.selinux"));
    }
    assert_eq!(store.made(Call::GetXattr), 2);
}

/// A mount ends with the test.
struct Mounted {
    mount: Option<Mount>,
    directory: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Mounted {
    fn new(vfs: Arc<Vfs>) -> Option<Self> {
        if !uvfs_skip::can_mount() {
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let rescue = move || _ = uvfs_fuse::unmount(&path, Unmount::Lazy);
        let watchdog = Watchdog::with_rescue(Duration::from_secs(90), rescue);
        let options = MountOptions { readers: Some(2), ..MountOptions::default() };
        let mount = Some(Mount::start(vfs, directory.path(), options).unwrap());
        Some(Self { mount, directory, _watchdog: watchdog })
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let Some(mount) = self.mount.take() else { return };
        unmount_idle(|| mount.unmount(Unmount::Idle));
        mount.wait();
    }
}

#[test]
fn a_kernel_that_asks_again_and_again_is_answered_without_the_store() {
    let store = hostile().claiming(|can| can.waits = Waits::Sometimes);
    let vfs = vfs_over(&store, VfsConfig::default());
    root(&vfs).write_file("f", "content").unwrap();
    let Some(mounted) = Mounted::new(vfs) else { return };
    let path = mounted.directory.path().join("f");
    let mut into = [0; 256];
    let mut get = |name: &str| rustix::fs::lgetxattr(&path, name, &mut into).unwrap_err();
    let absent = rustix::io::Errno::NODATA;
    assert_eq!(get("security.selinux"), absent);
    store.follow(Plan::new());
    for _ in 0..100 {
        for name in ["security.selinux", "security.capability", "system.posix_acl_access", "user.x"]
        {
            assert_eq!(get(name), absent, "{name}");
        }
        assert_eq!(rustix::fs::llistxattr(&path, &mut [0; 256]), Ok(0));
    }
    assert_eq!(asked(&store), 0);
    // No request reached the host; nor does a stuck store delay any of it.
    let gate = Gate::new();
    let stuck = Fault::Hold(Moment::Before, gate.clone());
    store.follow(Plan::new().when(On::any(), stuck));
    assert_eq!(get("security.selinux"), absent);
    assert_eq!(gate.held(), 0);
    gate.open();
    store.behave();
}
