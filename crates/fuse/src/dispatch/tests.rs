//! Requests from a simulated kernel: their answers, their thread, and whether their reader counts as free by then.

use super::*;
use crate::server::{Answer, Bytes, Listed, Settings, WriteFrom, WriteHow};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::mpsc;
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, HostileBackend, Moment, On, Plan};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_vfs::{Capabilities, Opens, PagePolicy, Result, SetAttributes, Vfs, VfsConfig};

const ROOT: u64 = crate::server::nodes::ROOT;

/// An answer, and how it was sent.
#[derive(Debug, PartialEq, Eq)]
struct Sent {
    answer: std::result::Result<String, i32>,
    /// The node id and the handle in it.
    node: u64,
    handle: u64,
    /// Another request might have waited on the only other reader just then.
    reader_free: bool,
}

/// A reply that reports to a test. `None`: it was dropped unanswered.
struct Fake {
    work: Arc<Work>,
    tell: mpsc::Sender<Option<Sent>>,
    listed: Vec<String>,
    sent: bool,
}

impl Drop for Fake {
    fn drop(&mut self) {
        if !self.sent {
            self.tell.send(None).unwrap();
        }
    }
}

impl Reply for Fake {
    type Backing = ();

    fn register(&self, _: &OwnedFd) -> io::Result<()> {
        Err(io::Error::from_raw_os_error(libc::EPERM))
    }

    fn add(&mut self, listed: &Listed<'_>) -> bool {
        self.listed.push(String::from_utf8_lossy(listed.name).into_owned());
        true
    }

    fn send(mut self, answer: Result<Answer<'_, ()>>) {
        let reader_free = self.work.try_inline().is_some();
        let (mut node, mut handle) = (0, 0);
        let answer = answer.map_err(|error| error.errno()).map(|answer| match answer {
            Answer::Entry(crate::server::EntryOut::Found { attrs, .. }) => {
                node = attrs.node_id;
                "entry".to_owned()
            }
            Answer::Entry(_) => "missing".to_owned(),
            Answer::Attrs(attrs) => format!("size {}", attrs.attributes.size),
            Answer::AttrsAndBirth(attrs) => {
                let born = attrs.attributes.btime.map_or("unborn", |_| "born");
                format!("size {}, {born}", attrs.attributes.size)
            }
            Answer::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Answer::Opened(opened) => {
                handle = opened.handle;
                "opened".to_owned()
            }
            Answer::Created { attrs, opened, .. } => {
                (node, handle) = (attrs.node_id, opened.handle);
                "created".to_owned()
            }
            Answer::Written(count) => format!("{count} bytes"),
            Answer::Offset(offset) => format!("at {offset}"),
            Answer::Size(size) => format!("{size} long"),
            Answer::Listed => {
                self.listed.sort();
                self.listed.join(" ")
            }
            Answer::Totals(_) => "totals".to_owned(),
            Answer::Done => "done".to_owned(),
            Answer::NeedNotAsk => "need not ask".to_owned(),
        });
        self.sent = true;
        self.tell.send(Some(Sent { answer, node, handle, reader_free })).unwrap();
    }
}

struct Front {
    dispatcher: Dispatcher<Fake>,
    store: HostileBackend<MemoryBackend>,
}

impl Front {
    /// With `readers` reading threads, in front of a store that may wait.
    fn new(readers: usize) -> Self {
        Self::over(readers, Opens::Tracked)
    }

    /// A front over a store with such opens.
    fn over(readers: usize, opens: Opens) -> Self {
        Self::with(readers, VfsConfig::default(), |capabilities| capabilities.opens = opens)
    }

    fn with(readers: usize, config: VfsConfig, claim: impl FnOnce(&mut Capabilities)) -> Self {
        let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let store = HostileBackend::new(memory).claiming(|capabilities| {
            capabilities.waits = Waits::Sometimes;
            claim(capabilities);
        });
        let vfs = Vfs::new(store.clone(), config).unwrap();
        // As a mount of the command asks for it.
        let settings = Settings { passthrough: true, control_directory: false, fake_root: None };
        let server = Arc::new(Server::new(vfs, settings));
        Self {
            dispatcher: Dispatcher::new(
                server,
                Arc::new(Work::new(readers)),
                Readers::MayWait,
                true,
            ),
            store,
        }
    }

    /// How `request` is answered; `None`: not at all.
    fn try_ask(&self, request: Request<'_>) -> Option<Sent> {
        let (tell, answered) = mpsc::channel();
        let work = self.dispatcher.shared.work.clone();
        let reply = Fake { work, tell, listed: Vec::new(), sent: false };
        let sender = Sender { uid: 0, gid: 0, task: std::process::id(), number: 0 };
        self.dispatcher.dispatch(sender, request, reply);
        answered.recv_timeout(Duration::from_secs(20)).expect("neither answered nor dropped")
    }

    fn ask(&self, request: Request<'_>) -> Sent {
        self.try_ask(request).expect("an answer")
    }

    fn counts(&self) -> (u64, u64) {
        let counters = self.dispatcher.server().counters.snapshot();
        (counters.inline, counters.pooled)
    }
}

fn name(name: &str) -> Bytes<'_> {
    Bytes::Borrowed(name.as_bytes())
}

/// A write of a plain descriptor.
fn how(from: WriteFrom) -> WriteHow {
    WriteHow { from, appends: false, keeps_set_ids: true, syncs: None }
}

/// Sends requests of every kind that may wait, and checks each by `check` with its answer.
fn every_kind(front: &Front, mut check: impl FnMut(&'static str, Sent) -> Sent) {
    let mut ask = |what: &'static str, request: Request<'_>| {
        let sent = front.ask(request);
        let answer = sent.answer.as_ref().unwrap_or_else(|error| panic!("{what}: errno {error}"));
        assert!(!answer.is_empty(), "{what}");
        check(what, sent)
    };
    let (mode, umask) = (0o755, 0);
    let made = ask("mkdir", Request::MkDir { parent: ROOT, name: name("d"), mode, umask });
    let directory = made.node;
    let flags = libc::O_RDWR;
    let new = Request::Create {
        parent: directory,
        name: name("f"),
        mode,
        umask,
        flags,
        keeps_set_ids: true,
    };
    let file = ask("create", new);
    let (node, handle) = (file.node, file.handle);
    let write = |data: &'static [u8]| Request::Write {
        node,
        file: handle,
        offset: 0,
        data: Bytes::Borrowed(data),
        how: how(WriteFrom::Paged),
    };
    assert_eq!(ask("write", write(b"hello")).answer.unwrap(), "5 bytes");
    let read = Request::Read { node, file: handle, offset: 1, size: 9, into_pages: true };
    assert_eq!(ask("read", read).answer.unwrap(), "ello");
    let direct = Request::Write {
        node,
        file: handle,
        offset: 5,
        data: Bytes::Borrowed(b" you"),
        how: how(WriteFrom::Direct),
    };
    assert_eq!(ask("direct write", direct).answer.unwrap(), "4 bytes");
    let whence = libc::SEEK_HOLE;
    ask("lseek", Request::Lseek { node, file: handle, offset: 0, whence });
    let (offset, length) = (0, 100);
    ask("fallocate", Request::Fallocate { node, file: handle, offset, length, mode: 0 });
    ask(
        "copy_file_range",
        Request::CopyFileRange {
            node,
            file: handle,
            offset: 0,
            to_node: node,
            to_file: handle,
            to_offset: 50,
            length: 5,
        },
    );
    let set = SetAttributes { size: Some(3), ..SetAttributes::default() };
    assert_eq!(
        ask("setattr", Request::SetAttr { node, file: 0, set, keeps_set_ids: true })
            .answer
            .unwrap(),
        "size 3"
    );
    assert_eq!(front.ask(Request::Statx { node, file: 0 }).answer.unwrap(), "size 3, born");
    ask("fsync", Request::Fsync { node, file: handle, data_only: false });
    ask("statfs", Request::StatFs {});
    ask("access", Request::Access { node, mask: 4 });
    let value = || Bytes::Borrowed(&b"v"[..]);
    ask("setxattr", Request::SetXattr { node, name: name("user.x"), value: value(), flags: 0 });
    let get = |size| Request::GetXattr { node, name: name("user.x"), size };
    assert_eq!(ask("getxattr", get(9)).answer.unwrap(), "v");
    assert_eq!(ask("getxattr", get(0)).answer.unwrap(), "1 long");
    let list = Request::ListXattr { node, size: 20 };
    assert_eq!(ask("listxattr", list).answer.unwrap(), "user.x\0");
    ask("removexattr", Request::RemoveXattr { node, name: name("user.x") });
    let unnamed = ask("tmpfile", Request::TmpFile { parent: directory, mode, umask, flags });
    assert!(unnamed.node != 0 && unnamed.node != node);
    ask("link", Request::Link { node: unnamed.node, parent: directory, name: name("t") });
    let link = Request::SymLink { parent: directory, name: name("l"), target: name("f") };
    let link = ask("symlink", link).node;
    assert_eq!(ask("readlink", Request::ReadLink { node: link }).answer.unwrap(), "f");
    let new = |name| Request::MkNod { parent: directory, name, mode, umask, device: 0 };
    ask("mknod", new(name("n")));
    ask("link", Request::Link { node, parent: directory, name: name("g") });
    ask(
        "rename",
        Request::Rename {
            parent: directory,
            name: name("g"),
            new_parent: ROOT,
            new_name: name("h"),
            flags: 0,
        },
    );
    let opened = ask("opendir", Request::OpenDir { node: directory, flags: 0 }).handle;
    let (node, file, offset) = (directory, opened, 0);
    let listed = ask("readdir", Request::ReadDir { node, file, offset }).answer.unwrap();
    assert_eq!(listed, ". .. f l n t");
    let listed = ask("readdirplus", Request::ReadDirPlus { node, file, offset }).answer.unwrap();
    assert_eq!(listed, ". .. f l n t");
    ask("fsyncdir", Request::FsyncDir { node, file, data_only: false });
    ask("unlink", Request::Unlink { parent: directory, name: name("l") });
    let more = ask("mkdir", Request::MkDir { parent: ROOT, name: name("e"), mode, umask });
    assert!(more.node != directory);
    ask("rmdir", Request::RmDir { parent: ROOT, name: name("e") });
}

/// Bug: a reader answered reads and nine other requests while it still counted as busy. With two readers, the program's
/// next request sometimes found none free, and went to a worker for two thread switches.
#[test]
fn an_answer_goes_out_when_its_reader_counts_as_free() {
    let front = Front::new(2);
    let mut before = front.counts();
    every_kind(&front, |what, sent| {
        assert!(sent.reader_free, "{what}");
        let now = front.counts();
        // The request before has cached some of these; a request that may wait has waited here.
        let known = ["getxattr", "listxattr", "removexattr"].contains(&what);
        assert!(known || now.0 == before.0 + 1, "{what}: not run by its reader");
        assert_eq!(now.1, before.1, "{what}: handed over, with a reader free");
        before = now;
        sent
    });
}

#[test]
fn a_worker_answers_as_a_reader_does() {
    let front = Front::new(1);
    every_kind(&front, |_, sent| sent);
    let (inline, pooled) = front.counts();
    assert_eq!(inline, 0, "the only reader never waits");
    assert!(pooled > 20, "{pooled}");
}

#[test]
fn a_handler_that_panics_drops_its_reply_and_gives_its_pass_back() {
    let front = Front::new(2);
    front.store.follow(Plan::new().when(On::call(Call::Totals), Fault::Panic(Moment::Before)));
    for _ in 0..3 {
        assert_eq!(front.try_ask(Request::StatFs {}), None);
        assert!(front.dispatcher.shared.work.try_inline().is_some());
    }
    assert_eq!(front.dispatcher.server().counters.snapshot().panics, 3);
    front.store.behave();
    assert_eq!(front.ask(Request::StatFs {}).answer.unwrap(), "totals");
}

#[test]
fn what_needs_no_store_is_answered_without_leave() {
    let front = Front::new(1);
    assert_eq!(front.ask(Request::IoCtl {}).answer, Err(libc::ENOTTY));
    assert_eq!(front.ask(Request::Poll {}).answer.unwrap(), "need not ask");
    assert_eq!(front.ask(Request::Release { file: 77 }).answer.unwrap(), "done");
    assert_eq!(front.ask(Request::Forget { node: ROOT, lookups: 0 }).answer.unwrap(), "done");
    assert_eq!(front.counts(), (0, 0));
}

#[test]
fn a_request_that_is_kept_is_the_same_request() {
    let data = b"abc".to_vec();
    let (node, file, offset) = (5, 6, 7);
    let data = Bytes::Borrowed(&data);
    let request = Request::Write { node, file, offset, data, how: how(WriteFrom::Direct) };
    let (shown, bytes) = (format!("{request:?}"), request.kept_bytes());
    let kept: Request<'static> = request.into_owned();
    assert_eq!((format!("{kept:?}"), kept.kept_bytes()), (shown, bytes));
    assert!(matches!(kept, Request::Write { data: Bytes::Owned(_), .. }));
}

/// Bug: the mode of the open file decided whether a write appends, and the user whether set-id bits stay. The kernel
/// sends both with every write. It may send a place that is not the end even where the flags request an append.
#[test]
fn a_write_does_what_the_kernel_says_of_it() {
    let front = Front::new(2);
    let flags = libc::O_RDWR | libc::O_APPEND;
    let (mode, umask) = (0o755, 0);
    let made = front.ask(Request::Create {
        parent: ROOT,
        name: name("f"),
        mode,
        umask,
        flags,
        keeps_set_ids: true,
    });
    let (node, file) = (made.node, made.handle);
    let write = |offset, text: &'static str, how| {
        let data = Bytes::Borrowed(text.as_bytes());
        let sent = front.ask(Request::Write { node, file, offset, data, how });
        assert_eq!(sent.answer.unwrap(), format!("{} bytes", text.len()));
    };
    let read = || {
        let read = Request::Read { node, file, offset: 0, size: 99, into_pages: true };
        front.ask(read).answer.unwrap()
    };
    let paged = how(WriteFrom::Paged);
    let appends = WriteHow { appends: true, ..paged };
    write(0, "hello ", appends);
    write(6, "world", appends);
    assert_eq!(read(), "hello world");
    write(0, "HELLO", how(WriteFrom::Mapped));
    assert_eq!(read(), "HELLO world", "a page has its place");
    write(6, "WORLD", paged);
    assert_eq!(read(), "HELLO WORLD", "O_APPEND was cleared");
    write(1, "ello", appends);
    assert_eq!(read(), "Hello WORLD", "RWF_NOAPPEND");
    // Another program appends without this kernel, which continues from its own end.
    let vfs = &front.dispatcher.server().vfs;
    let others = vfs.root_directory(uvfs_vfs::Caller::root());
    let options = uvfs_vfs::OpenOptions::write().append();
    others.open("f", options).unwrap().write_all_at(0, b"+theirs").unwrap();
    write(11, "+ours", appends);
    write(16, "+more", appends);
    assert_eq!(read(), "Hello WORLD+theirs+ours+more");
    let set = SetAttributes { mode: Some(0o6755), ..SetAttributes::default() };
    front.ask(Request::SetAttr { node, file: 0, set, keeps_set_ids: true });
    let mode = || others.stat("f").unwrap().mode & 0o7777;
    write(0, "J", paged);
    assert_eq!(mode(), 0o6755, "user 0 with CAP_FSETID");
    write(0, "C", WriteHow { keeps_set_ids: false, ..paged });
    assert_eq!(mode(), 0o755, "user 0 without it");
}

/// Bug: FORGET ran on its reader to the end, and of a removed file that asks the store. As many of them as there are
/// readers, sent into a store that hung, stopped the mount: no hit was answered either.
#[test]
fn a_forget_that_needs_the_store_keeps_no_reader() {
    let pages = uvfs_vfs::PagePolicy::WriteBack;
    let write_back_delay = Duration::from_secs(3600);
    let config = VfsConfig { pages, write_back_delay, ..VfsConfig::default() };
    let front = Front::with(1, config, |claims| {
        claims.opens = Opens::Tracked;
        claims.authority = uvfs_vfs::Authority::Shared;
        claims.caching = uvfs_vfs::PageCaching::Core;
    });
    let (mode, umask, flags) = (0o644, 0, libc::O_RDWR);
    let made = front.ask(Request::Create {
        parent: ROOT,
        name: name("f"),
        mode,
        umask,
        flags,
        keeps_set_ids: true,
    });
    let (node, file) = (made.node, made.handle);
    let data = Bytes::Borrowed(b"never in the store");
    let how = how(WriteFrom::Paged);
    front.ask(Request::Write { node, file, offset: 0, data, how });
    front.ask(Request::Unlink { parent: ROOT, name: name("f") });
    front.ask(Request::Release { file });
    let gate = uvfs_backends::hostile::Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    front.store.follow(Plan::new().when(On::call(Call::Attributes), hold));
    std::thread::scope(|scope| {
        let before = front.counts();
        scope.spawn(|| front.ask(Request::Forget { node, lookups: 1 }));
        gate.wait_for(1);
        let now = front.counts();
        gate.open();
        assert_eq!(now, (before.0, before.1 + 1), "the only reader asks the store");
    });
}

/// Bug: writes that waited for a worker were not counted. A hundred programs that wrote 1 MiB each into a slow store
/// took 100 MiB beside a budget of 16.
#[test]
fn a_write_that_waits_for_a_worker_counts() {
    let front = Front::new(1);
    let (mode, umask, flags) = (0o644, 0, libc::O_RDWR);
    let made = front.ask(Request::Create {
        parent: ROOT,
        name: name("f"),
        mode,
        umask,
        flags,
        keeps_set_ids: true,
    });
    let server = front.dispatcher.server();
    let queued = || server.queued_bytes.load(Relaxed);
    assert!(soon(|| queued() == 0), "{}", queued());
    let gate = uvfs_backends::hostile::Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    front.store.follow(Plan::new().when(On::call(Call::Write), hold));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (node, file, how) = (made.node, made.handle, how(WriteFrom::Paged));
            let data = Bytes::Owned(vec![7; 1 << 20]);
            front.ask(Request::Write { node, file, offset: 0, data, how })
        });
        gate.wait_for(1);
        let now = queued();
        gate.open();
        assert!(now >= 1 << 20, "{now} bytes while it is under way");
    });
    assert!(soon(|| queued() == 0), "{}", queued());
}

/// Bug: every file made on a mount of an image stayed in the table of passed-through files until the mount ended.
/// CREATE counted an open there, and the kernel sends no RELEASE to a store without opens. Half an hour of creating and
/// removing took the whole memory budget, and left no room for the caches.
#[test]
fn a_file_that_was_made_and_closed_leaves_nothing_behind() {
    for opens in [Opens::Stateless, Opens::Tracked] {
        let front = Front::over(2, opens);
        let (mode, umask, flags) = (0o644, 0, libc::O_RDWR);
        for _ in 0..3 {
            let new = Request::Create {
                parent: ROOT,
                name: name("f"),
                mode,
                umask,
                flags,
                keeps_set_ids: true,
            };
            let made = front.ask(new);
            match opens {
                Opens::Stateless => assert_eq!(made.handle, 0, "there will be no RELEASE"),
                Opens::Tracked => {
                    assert_eq!(front.dispatcher.shared.backings.inodes(), 1);
                    front.ask(Request::Release { file: made.handle });
                }
            }
            front.ask(Request::Unlink { parent: ROOT, name: name("f") });
            front.ask(Request::Forget { node: made.node, lookups: 1 });
        }
        assert_eq!(front.dispatcher.shared.backings.inodes(), 0, "{opens:?}");
        assert_eq!(front.dispatcher.server().files.count(), 0, "{opens:?}");
    }
}

/// Waits for a count that a thread makes after its answer was sent.
fn soon(mut is_so: impl FnMut() -> bool) -> bool {
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    while !is_so() {
        if std::time::Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    true
}

#[test]
fn every_answer_is_timed_wherever_it_is_made() {
    for readers in [1, 2] {
        let front = Front::new(readers);
        every_kind(&front, |_, sent| sent);
        front.ask(Request::IoCtl {});
        front.ask(Request::Lookup { parent: ROOT, name: name("d") });
        let requests = || front.dispatcher.server().counters.snapshot().requests;
        let timed = soon(|| {
            requests().iter().all(|one| one.count == one.latency.count && one.latency.sum_ns > 0)
        });
        assert!(timed, "{readers} readers: {:?}", requests());
        assert!(requests().len() > 25, "{}", requests().len());
    }
}

#[test]
fn a_slow_store_is_seen_in_its_times_and_in_the_requests() {
    let front = Front::new(1);
    let (gate, delay) = (uvfs_backends::hostile::Gate::new(), Duration::from_millis(30));
    let on = On::call(Call::Lookup);
    front.store.follow(Plan::new().when(on.clone(), Fault::Hold(Moment::Before, gate.clone())));
    let vfs = front.dispatcher.server().vfs.clone();
    std::thread::scope(|scope| {
        scope.spawn(|| front.ask(Request::Lookup { parent: ROOT, name: name("x") }));
        gate.wait_for(1);
        assert_eq!(vfs.statistics().store_under_way, 1);
        gate.open();
    });
    assert!(soon(|| vfs.statistics().store_under_way == 0));
    front.store.follow(Plan::new().when(on, Fault::Delay(Moment::Before, delay)));
    front.ask(Request::Lookup { parent: ROOT, name: name("y") });
    let store = vfs.statistics().store_latency;
    let (_, lookups) = store.iter().find(|(call, _)| *call == "lookup").expect("lookups");
    assert_eq!(lookups.count, 2);
    assert!(lookups.p99_ns >= 25_000_000, "{lookups:?}");
    let requests = || front.dispatcher.server().counters.snapshot().requests;
    let is_slow =
        |one: &crate::RequestCount| one.request == "lookup" && one.latency.p99_ns > 25_000_000;
    assert!(soon(|| requests().iter().any(is_slow)), "{:?}", requests());
}

/// A store that never waits has no store time.
#[test]
fn a_store_that_never_waits_is_not_timed() {
    let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
    let vfs = Vfs::new(memory, VfsConfig::default()).unwrap();
    vfs.root_directory(uvfs_vfs::Caller::root()).write_file("a", b"x").unwrap();
    assert!(vfs.statistics().store_latency.is_empty());
}

/// The mount finds its busiest directory without configuration.
#[test]
fn the_directory_that_is_asked_about_most_is_known() {
    use crate::server::heat::EVERY;
    let front = Front::new(2);
    let (mode, umask) = (0o755, 0);
    let made = front.ask(Request::MkDir { parent: ROOT, name: name("d"), mode, umask });
    let flags = libc::O_RDWR;
    let new = Request::Create {
        parent: made.node,
        name: name("f"),
        mode,
        umask,
        flags,
        keeps_set_ids: true,
    };
    let file = front.ask(new);
    for _ in 0..20 * EVERY {
        front.ask(Request::Lookup { parent: made.node, name: name("f") });
        front.ask(Request::GetAttr { node: file.node, file: file.handle });
    }
    let server = front.dispatcher.server();
    let directory = server.nodes.get(made.node).unwrap().id();
    let asked = server.heat.asked();
    let counted = asked.get(&directory).copied().unwrap_or_default();
    // Of the file's own requests the directory is known by where it was seen.
    let expected = 38 * u64::from(EVERY)..=41 * u64::from(EVERY);
    assert!(expected.contains(&counted.requests), "{asked:?}");
    assert!(counted.misses <= 2 * u64::from(EVERY), "the caches knew: {asked:?}");
    for _ in 0..20 * EVERY {
        let set = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
        front.ask(Request::SetAttr { node: made.node, file: 0, set, keeps_set_ids: true });
    }
    let missed = server.heat.asked()[&directory].misses;
    assert!(missed >= 19 * u64::from(EVERY), "no cache does these: {missed}");
}

/// The bytes of a stream were copied into pages of the kernel and then into ours, and the kernel kept its copy beside them.
#[test]
fn a_descriptor_that_only_writes_passes_by_the_kernels_pages_if_there_are_ours() {
    use crate::server::Through;
    let over = |pages| {
        let front = Front::with(2, VfsConfig { pages, ..VfsConfig::default() }, |_| {});
        move |flags| front.dispatcher.shared.through(None, flags, true)
    };
    let through = over(PagePolicy::WriteBack);
    for flags in [0, libc::O_APPEND, libc::O_TRUNC | libc::O_CREAT] {
        assert!(matches!(through(flags | libc::O_WRONLY), Through::Requests { keep: true }));
        assert!(matches!(through(flags | libc::O_RDWR), Through::Pages { keep: true }));
    }
    assert!(matches!(through(libc::O_RDONLY), Through::Pages { .. }));
    let through = over(PagePolicy::Off);
    assert!(matches!(through(libc::O_WRONLY), Through::Pages { .. }), "nothing of ours");

    let vfs = Vfs::new(MemoryBackend::new(MemoryConfig::default()).unwrap(), {
        VfsConfig { pages: PagePolicy::WriteBack, ..VfsConfig::default() }
    });
    let settings = Settings { passthrough: false, control_directory: false, fake_root: None };
    let server = Arc::new(Server::new(vfs.unwrap(), settings));
    let old: Dispatcher<Fake> =
        Dispatcher::new(server, Arc::new(Work::new(2)), Readers::MayWait, false);
    let through = old.shared.through(None, libc::O_WRONLY, true);
    assert!(matches!(through, Through::Pages { .. }), "a kernel that would keep old pages");
}
