//! Floor: conformance. Several frontends over one file system: each gets news of the others' changes, and not of its
//! own; all get news of external changes in the store.
//!
//! In process with two frontends that only listen, and with two mounts through the kernel (needs root and `/dev/fuse`).

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_fuse::{Mount, MountOptions};
use uvfs_tests::{Hostile, Watchdog, hostile, vfs_over};
use uvfs_vfs::{
    AllocateMode, Caller, ChangeSink, InodeId, Name, NewKind, NewNode, Node, OpenMode, Origin,
    RenameMode, SetAttributes, Vfs, VfsConfig, XattrMode,
};

const NOTHING: Vec<String> = Vec::new();

/// A frontend that only listens.
struct Listener(Mutex<Vec<String>>);

static HEARD: LockClass = LockClass::new(400, "listener", "what a frontend of a test was told");

impl Default for Listener {
    fn default() -> Self {
        Self(Mutex::new(&HEARD, Vec::new()))
    }
}

impl Listener {
    fn heard(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl ChangeSink for Listener {
    fn entry_changed(&self, parent: InodeId, name: Name<'_>) {
        let name = String::from_utf8_lossy(name.as_bytes()).into_owned();
        self.0.lock().push(format!("{} in {}", name, parent.0));
    }

    fn inode_changed(&self, inode: InodeId) {
        self.0.lock().push(format!("inode {}", inode.0));
    }

    fn everything_changed(&self) {
        self.0.lock().push("everything".to_owned());
    }
}

/// Two frontends, and callers through each and through none.
struct Scene {
    hostile: Hostile,
    vfs: Arc<Vfs>,
    listeners: [Arc<Listener>; 2],
    origins: [Origin; 2],
}

impl Scene {
    fn new() -> Self {
        let hostile = hostile();
        let vfs = vfs_over(&hostile, VfsConfig { watch: true, ..VfsConfig::default() });
        let listeners = [Arc::new(Listener::default()), Arc::new(Listener::default())];
        let origins = [0, 1].map(|at: usize| vfs.observe(listeners[at].clone()));
        Self { hostile, vfs, listeners, origins }
    }

    /// The news of each since the last call.
    fn heard(&self) -> [Vec<String>; 2] {
        [self.listeners[0].heard(), self.listeners[1].heard()]
    }

    fn make(&self, caller: &Caller, parent: &Node, called: &str, kind: NewKind<'_>) -> Node {
        let new = NewNode { kind, mode: 0o755, umask: 0 };
        self.vfs.create(caller, parent, name(called), &new).unwrap().node
    }
}

fn name(name: &str) -> Name<'_> {
    Name::new(name.as_bytes()).unwrap()
}

/// Every kind of change by `caller`; calls `check` with the news that every other frontend must have got.
fn change_everything(scene: &Scene, caller: &Caller, mut check: impl FnMut(&str, Vec<String>)) {
    let Scene { vfs, .. } = scene;
    let root = vfs.root();
    let entry = |called: &str| format!("{called} in {}", root.id().0);
    let inode = |node: &Node| format!("inode {}", node.id().0);
    let file = scene.make(caller, root, "file", NewKind::Regular);
    check("create", vec![entry("file")]);
    let directory = scene.make(caller, root, "directory", NewKind::Directory);
    check("mkdir", vec![entry("directory")]);
    vfs.link(caller, &file, root, name("more")).unwrap();
    check("link", vec![entry("more"), inode(&file)]);
    vfs.rename(caller, (root, name("more")), (root, name("moved")), RenameMode::NoReplace).unwrap();
    check("rename", vec![entry("more"), entry("moved"), inode(&file)]);
    let mode = OpenMode { truncate: true, ..OpenMode::READ_WRITE };
    let open = vfs.open(caller, &file, mode).unwrap();
    check("open with O_TRUNC", vec![inode(&file)]);
    let reference = open.reference();
    vfs.write(caller, &file, reference, 0, b"some text").unwrap();
    check("write", vec![inode(&file)]);
    vfs.append(caller, &file, reference, b", more").unwrap();
    check("append", vec![inode(&file)]);
    vfs.allocate(caller, &file, reference, AllocateMode::Extend, 0, 100).unwrap();
    check("allocate", vec![inode(&file)]);
    vfs.copy_range(caller, (&file, reference, 0), (&file, reference, 50), 4).unwrap();
    check("copy", vec![inode(&file)]);
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    vfs.set_attributes(caller, &file, None, &set).unwrap();
    check("chmod", vec![inode(&file)]);
    vfs.set_xattr(caller, &file, b"user.x", b"y", XattrMode::Any).unwrap();
    check("setxattr", vec![inode(&file)]);
    vfs.remove_xattr(caller, &file, b"user.x").unwrap();
    check("removexattr", vec![inode(&file)]);
    drop(open);
    vfs.unlink(caller, root, name("moved")).unwrap();
    check("unlink", vec![entry("moved"), inode(&file)]);
    vfs.unlink(caller, root, name("file")).unwrap();
    check("unlink", vec![entry("file"), inode(&file)]);
    vfs.remove_directory(caller, root, name("directory")).unwrap();
    check("rmdir", vec![entry("directory")]);
    drop(directory);
}

#[test]
fn a_change_reaches_every_frontend_but_the_one_it_came_through() {
    let scene = Scene::new();
    for own in [0, 1] {
        let caller = Caller::root().through(scene.origins[own]);
        change_everything(&scene, &caller, |what, expected| {
            let heard = scene.heard();
            assert_eq!(heard[1 - own], expected, "{what}");
            assert_eq!(heard[own], [""; 0], "{what}: of its own change");
        });
    }
    change_everything(&scene, &Caller::root(), |what, expected| {
        assert_eq!(scene.heard(), [expected.clone(), expected], "{what}, in process");
    });
}

#[test]
fn news_of_the_store_reaches_all() {
    let scene = Scene::new();
    let sink = scene.hostile.sink().unwrap();
    sink.inode_changed(InodeId::ROOT);
    sink.entry_changed(InodeId::ROOT, name("x"));
    sink.everything_changed();
    let root = InodeId::ROOT.0;
    let expected = vec![format!("inode {root}"), format!("x in {root}"), "everything".to_owned()];
    assert_eq!(scene.heard(), [expected.clone(), expected]);
}

#[test]
fn an_observer_that_has_gone_gets_nothing_and_the_other_goes_on() {
    let scene = Scene::new();
    let through = |at: usize| Caller::root().through(scene.origins[at]);
    scene.vfs.unobserve(scene.origins[0]);
    scene.make(&through(1), scene.vfs.root(), "a", NewKind::Regular);
    assert_eq!(scene.heard(), [NOTHING; 2], "the only one made it");
    scene.make(&through(0), scene.vfs.root(), "b", NewKind::Regular);
    assert_eq!(scene.heard(), [vec![], vec![format!("b in {}", InodeId::ROOT.0)]]);
    // A number is not reused: late requests of the ended one do not count for the new one.
    let late = Arc::new(Listener::default());
    let origin = scene.vfs.observe(late.clone());
    assert!(!scene.origins.contains(&origin));
    scene.make(&through(0), scene.vfs.root(), "c", NewKind::Regular);
    assert_eq!(late.heard(), [format!("c in {}", InodeId::ROOT.0)]);
    scene.vfs.unobserve(scene.origins[1]);
    scene.vfs.unobserve(origin);
    scene.make(&Caller::root(), scene.vfs.root(), "d", NewKind::Regular);
    assert_eq!((scene.heard()[1].len(), late.heard().len()), (1, 0), "c, and nothing after it");
}

#[test]
fn what_failed_for_sure_is_no_news() {
    let scene = Scene::new();
    scene.make(&Caller::root(), scene.vfs.root(), "a", NewKind::Regular);
    scene.heard();
    let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
    let again = scene.vfs.create(&Caller::root(), scene.vfs.root(), name("a"), &new);
    assert_eq!(again.unwrap_err().errno(), libc::EEXIST);
    assert_eq!(scene.heard(), [NOTHING; 2]);
}

/// A rename that the store did and then called failed left the kernel of another mount with both names as they were.
#[test]
fn what_may_have_been_done_is_reported() {
    use uvfs_backends::hostile::{Call, Fault, Moment, On, Plan};
    let scene = Scene::new();
    let root = scene.vfs.root();
    scene.make(&Caller::root(), root, "a", NewKind::Regular);
    scene.heard();
    let fault = Fault::Fail(Moment::After, libc::EIO);
    scene.hostile.follow(Plan::new().when(On::call(Call::Rename), fault));
    let caller = Caller::root().through(scene.origins[0]);
    let (from, to) = ((root, name("a")), (root, name("b")));
    scene.vfs.rename(&caller, from, to, RenameMode::Replace).unwrap_err();
    let entry = |called: &str| format!("{called} in {}", root.id().0);
    assert_eq!(scene.heard(), [vec![], vec![entry("a"), entry("b")]]);
}

fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Bug: two mounts of one memory file system: each kernel caches names, attributes and pages for hours, since no other
/// program can change the store. Only the other mount can, and the first got no news of it.
#[test]
fn two_mounts_of_one_file_system_agree() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let vfs = vfs_over(&hostile(), VfsConfig::default());
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let paths = [one.path().to_owned(), two.path().to_owned()];
    let _watchdog = Watchdog::with_rescue(Duration::from_secs(90), move || {
        for path in &paths {
            let _ = uvfs_fuse::unmount(path, uvfs_fuse::Unmount::Lazy);
        }
    });
    let options = || MountOptions { readers: Some(2), ..MountOptions::default() };
    let mounts = [&one, &two].map(|at| Mount::start(vfs.clone(), at.path(), options()).unwrap());
    let (one, two) = (one.path(), two.path());
    assert!(!two.join("file").exists(), "and that is remembered");
    fs::write(one.join("file"), "first").unwrap();
    assert!(eventually(|| fs::read_to_string(two.join("file")).is_ok_and(|text| text == "first")));
    fs::write(two.join("file"), "longer than the first").unwrap();
    let longer = |text: String| text == "longer than the first";
    assert!(eventually(|| fs::read_to_string(one.join("file")).is_ok_and(longer)));
    assert!(eventually(|| fs::metadata(one.join("file")).unwrap().len() == 21));
    fs::rename(one.join("file"), one.join("moved")).unwrap();
    assert!(eventually(|| !two.join("file").exists() && two.join("moved").exists()));
    fs::remove_file(two.join("moved")).unwrap();
    assert!(eventually(|| !one.join("moved").exists()));
    drop(mounts);
}
