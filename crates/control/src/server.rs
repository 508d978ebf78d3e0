//! The end of the control socket that answers: a daemon's, or a program's that mounts through the library.
//!
//! # Concurrency
//! One thread accepts; each client gets a thread, at most `CLIENTS_MAX` at a time. A client that
//! sends nothing loses its place after `REQUEST_TIME`, however it dribbles. No lock: the served
//! mount is shared and immutable, the rest are two counts. Whoever asked for the end is told of it:
//! dropping the server waits for replies under way, and ends cleanings early.
//!
//! A cleaning may take minutes, on its client's thread; others are served meanwhile, since at most
//! `CLEANINGS_MAX` of the places are for cleanings. Its client hears how far it is, by lines that are
//! dropped when it does not read. It is listened to as well: closing the sending side ends the cleaning.
//!
//! Whoever had the mount ended is told what the end waits for, and at last the verdict
//! ([`Server::tell_end`]), before the process ends. Threads refer to what they serve only while they answer: where
//! the process lives on, nothing of the mount does.
//!
//! # Why
//! Only the daemon's user and root are heard, by the kernel's word (SO_PEERCRED); strangers are told so before they occupy a
//! place. Weakness: eight silent clients of the *same* user delay a ninth by up to ten seconds; that user can also kill the daemon.

use super::cleaned::Cleaned;
use super::ended::{EndLine, Verdict, Waits};
use super::level::{Level, LevelRequest};
use super::policies::{Mark, PolicyRequest};
use super::protocol::{self, CleanLine, CleanRequest, Reply, Request};
use super::resident::{Cached, CachedRequest};
use crate::locks;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::{Duration, Instant};
use uvfs_concurrent::primitive::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use uvfs_vfs::CleanProgress;

/// Clients served at once.
const CLIENTS_MAX: usize = 8;
/// Cleanings done at once.
const CLEANINGS_MAX: usize = CLIENTS_MAX / 2;
/// Time between two lines that say how far a cleaning is, and between two looks at whether it is wanted.
const NEWS_TIME: Duration = Duration::from_millis(50);
/// Time between two looks at whether there is a verdict.
const VERDICT_TIME: Duration = Duration::from_millis(20);
/// Time between two lines that say what the end waits for.
const WAITS_TIME: Duration = Duration::from_secs(1);
/// Time in which a whole request has to arrive, and a reply has to be taken.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Time in which another daemon has put its socket in place, or removed it.
const ALONE_TIME: Duration = Duration::from_secs(1);
/// Time in which replies under way are finished when the daemon ends.
const REPLIES_TIME: Duration = Duration::from_secs(5);

/// What the end of a mount ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The process. The stream of the client that asked for it stays open until then.
    Process,
    /// The mount alone: the process is a program's own.
    Mount,
}

/// A mount, as the control socket sees it.
pub trait Served: Send + Sync + 'static {
    /// What is mounted, and what the caches hold and did.
    fn report(&self) -> serde_json::Value;

    /// Changes settings, all of them or none.
    ///
    /// # Errors
    /// Which one is wrong and what would be right.
    fn set(&self, settings: &BTreeMap<String, String>) -> Result<(), String>;

    /// Cleans a directory; returns early when `progress` says so.
    ///
    /// # Errors
    /// Why nothing was cleaned.
    fn clean(
        &self,
        request: &CleanRequest,
        progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> Result<Cleaned, String>;

    /// What is cached below a directory, in rows that fit a reply.
    ///
    /// # Errors
    /// Why there is no such directory.
    fn cached(&self, request: &CachedRequest) -> Result<Cached, String>;

    /// What is cached in a directory, by the directories in it; refused as [`Served::cached`] is.
    ///
    /// # Errors
    /// Why there is no such directory.
    fn level(&self, request: &LevelRequest) -> Result<Level, String>;

    /// Marks a directory.
    ///
    /// # Errors
    /// Why it is not marked.
    fn set_policy(&self, request: &PolicyRequest) -> Result<(), String>;

    /// The marked directories.
    fn policies(&self) -> Vec<Mark>;

    /// Returns when everything that was written is stable in the store.
    ///
    /// # Errors
    /// Why it is not.
    fn commit(&self) -> Result<(), String>;

    /// Ends the mount; blocks while the kernel writes back.
    ///
    /// # Errors
    /// Why it stays.
    fn unmount(&self, lazy: bool) -> Result<(), Stays>;

    /// What its end waits for.
    fn waits(&self) -> Waits;
}

/// Why a mount stays mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stays {
    /// In words.
    pub cause: String,
    /// It is in use.
    pub busy: bool,
}

impl From<io::Error> for Stays {
    fn from(error: io::Error) -> Self {
        let busy = error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
        Self { cause: crate::cause(&error), busy }
    }
}

/// The socket; removed when dropped, if it is still this one.
pub struct Server {
    path: PathBuf,
    listener: Arc<UnixListener>,
    /// What is served; its clients' threads refer to it weakly.
    served: Arc<dyn Served>,
    /// The path is named by the mount's device number, which another mount may get as soon as ours is unmounted.
    identity: Option<Identity>,
    crowd: Arc<Crowd>,
}

/// What a file is known by, beside its path: its number, which may be given again, and when it was made.
type Identity = (u64, i64, i64);

fn identity(path: &Path) -> Option<Identity> {
    let seen = fs::symlink_metadata(path).ok()?;
    Some((seen.ino(), seen.ctime(), seen.ctime_nsec()))
}

/// The right to change what is at a path, among all daemons of a user: one that ends looks whether the socket is its own
/// and then removes it, and in between another one may have put its own there, for its mount has the number by now. It is
/// the lock of the folder; a process that does not get it in [`ALONE_TIME`] (another that was stopped holds it) goes on without.
struct Alone {
    _folder: Option<File>,
}

impl Alone {
    fn at(path: &Path) -> Self {
        let folder = path.parent().and_then(|folder| File::open(folder).ok());
        let deadline = Instant::now() + ALONE_TIME;
        let is_held = |folder: &File| {
            let locked = rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive);
            matches!(locked, Err(Errno::WOULDBLOCK | Errno::INTR))
        };
        while folder.as_ref().is_some_and(is_held) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        Self { _folder: folder }
    }
}

/// The clients that are being served.
#[derive(Debug, Default)]
struct Crowd {
    /// Clients that have a thread.
    clients: AtomicUsize,
    /// Requests read and not yet replied to.
    requests: AtomicUsize,
    /// Cleanings under way.
    cleanings: AtomicUsize,
    /// A client asked for the end.
    is_asked_to_end: AtomicBool,
    /// The daemon ends.
    is_ending: AtomicBool,
    /// What became of all that was written, as a line.
    verdict: OnceLock<String>,
}

impl Server {
    /// Binds `path`, replacing what a dead daemon left there, and answers from threads of its own.
    ///
    /// # Errors
    /// If the socket cannot be made or no thread started.
    pub fn start(path: &Path, served: Arc<dyn Served>, ends: Ends) -> io::Result<Self> {
        let _alone = Alone::at(path);
        // The path names our live mount, so whoever bound it before is gone.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = Arc::new(UnixListener::bind(path)?);
        let path = path.to_path_buf();
        let mut server = Self { path, listener, served, identity: None, crowd: Arc::default() };
        server.identity = identity(&server.path);
        fs::set_permissions(&server.path, fs::Permissions::from_mode(0o600))?;
        server.identity = identity(&server.path);
        let thread = thread::Builder::new().name("uvfs-control".into());
        let listener = server.listener.clone();
        let door =
            Door { served: Arc::downgrade(&server.served), crowd: server.crowd.clone(), ends };
        thread.spawn(move || accept_all(&listener, &door))?;
        Ok(server)
    }

    /// Whether a client has asked for the end, and waits for the verdict.
    pub fn is_asked_to_end(&self) -> bool {
        // ORDERING: Acquire, partner the Release in `answer`: set before the mount is ended.
        self.crowd.is_asked_to_end.load(Acquire)
    }

    /// The mount has ended: tells the clients that wait for that, and those that ask from now on. Dropping the server waits until
    /// they were told.
    pub fn tell_end(&self, verdict: Verdict) {
        let line = serde_json::to_string(&EndLine::Ended { ended: verdict.for_reply() });
        match line {
            // The first verdict stands.
            Ok(line) => drop(self.crowd.verdict.set(line + "\n")),
            Err(error) => log::error!("verdict: {error}"),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Server(at {})", self.path.display())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process is about to end, often because a client said so: it gets its reply first.
        // ORDERING: Release, partner the Acquire in `Crowd::last_line`: the verdict comes first.
        self.crowd.is_ending.store(true, Release);
        // Nobody is accepted any more: the thread that accepts ends.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        let deadline = Instant::now() + REPLIES_TIME;
        // ORDERING: Acquire, partner the Release in `UnderWay`: the reply was sent.
        while self.crowd.requests.load(Acquire) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        let _alone = Alone::at(&self.path);
        if self.identity.is_none() || identity(&self.path) != self.identity {
            log::info!("control socket {}: another mount's by now", self.path.display());
        } else if let Err(error) = fs::remove_file(&self.path) {
            log::info!("control socket {}: {error}", self.path.display());
        }
    }
}

/// What a client is let in to.
#[derive(Clone)]
struct Door {
    served: Weak<dyn Served>,
    crowd: Arc<Crowd>,
    ends: Ends,
}

fn accept_all(listener: &UnixListener, door: &Door) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => admit(stream, door),
            // ORDERING: Relaxed; as in `Server::drop`, which shuts the listener down after it is set.
            Err(_) if door.crowd.is_ending.load(Relaxed) => return,
            Err(error) => {
                log::warn!("control socket: {error}");
                // Out of descriptors, most likely: they come back, spinning would not help.
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Gives the client a thread, or says why not.
fn admit(stream: UnixStream, door: &Door) {
    let own_uid = rustix::process::geteuid().as_raw();
    let peer_uid = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.uid.as_raw());
    if !peer_uid.is_ok_and(|uid| is_permitted(uid, own_uid)) {
        log::warn!("control socket: refused a request of user {peer_uid:?}");
        return turn_away(stream, "not permitted: only root and the user who mounted it may ask");
    }
    // ORDERING: Relaxed; a bound on threads, nothing is reached through it.
    if door.crowd.clients.fetch_add(1, Relaxed) >= CLIENTS_MAX {
        door.crowd.clients.fetch_sub(1, Relaxed);
        return turn_away(stream, "too many requests at once; try again");
    }
    let place = Place(door.crowd.clone());
    let door = door.clone();
    let thread = thread::Builder::new().name("uvfs-control-client".into());
    let started = thread.spawn(move || {
        let _place = place;
        if let Err(error) = converse(stream, &door) {
            log::debug!("control client: {error}");
        }
    });
    if let Err(error) = started {
        log::warn!("control client: no thread: {error}");
    }
}

/// One of [`CLIENTS_MAX`]; given back when dropped.
#[derive(Debug)]
struct Place(Arc<Crowd>);

impl Drop for Place {
    fn drop(&mut self) {
        // ORDERING: Relaxed; as in `admit`.
        self.0.clients.fetch_sub(1, Relaxed);
    }
}

/// Whether a peer may ask a daemon.
fn is_permitted(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == 0 || peer_uid == own_uid
}

fn turn_away(mut stream: UnixStream, cause: &str) {
    // The line fits the socket's buffer; whoever does not read it is not waited for.
    let _ = stream.set_nonblocking(true);
    let _ = stream.write_all(Reply::refused(cause).to_line().as_bytes());
}

/// Answers requests until the client leaves.
fn converse(mut stream: UnixStream, door: &Door) -> io::Result<()> {
    let crowd = &*door.crowd;
    stream.set_write_timeout(Some(REQUEST_TIME))?;
    let mut requests =
        BufReader::new(Patient { stream: stream.try_clone()?, until: Instant::now() });
    loop {
        requests.get_mut().until = Instant::now() + REQUEST_TIME;
        let line = match protocol::read_line(&mut requests, protocol::REQUEST_BYTES_MAX) {
            Ok(Some(line)) => line,
            Ok(None) => return Ok(()),
            Err(error) => {
                let _ = stream.write_all(Reply::refused(error.to_string()).to_line().as_bytes());
                return Err(error);
            }
        };
        let request = UnderWay::begin(crowd);
        // Declared later, so given up first: when no request is under way, nobody refers to it.
        let Some(served) = door.served.upgrade() else {
            return stream.write_all(Reply::refused("the mount has ended").to_line().as_bytes());
        };
        let (reply, is_ending) = match serde_json::from_str(&line) {
            Ok(Request::Clean(request)) => (clean(&request, &*served, &stream, crowd), false),
            Ok(request) => answer(request, &*served, crowd),
            Err(error) => (Reply::refused(format!("not a request: {error}")), false),
        };
        stream.write_all(reply.to_line().as_bytes())?;
        if is_ending {
            see_end(&mut stream, &*served, crowd)?;
            drop(served);
            drop(request);
            if door.ends == Ends::Mount {
                return Ok(());
            }
            // The open stream is the client's sign that the daemon still works; it closes when
            // the process ends.
            stream.set_read_timeout(None)?;
            return stream.read(&mut [0]).map(drop);
        }
    }
}

/// A request that was read and not yet replied to.
#[derive(Debug)]
struct UnderWay<'a>(&'a Crowd);

impl<'a> UnderWay<'a> {
    fn begin(crowd: &'a Crowd) -> Self {
        // ORDERING: Relaxed; counted before the request can end anything.
        crowd.requests.fetch_add(1, Relaxed);
        Self(crowd)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // ORDERING: Release, partner the Acquire in `Server::drop`: the reply was sent.
        self.0.requests.fetch_sub(1, Release);
    }
}

/// The last answer to a client that waits for the end.
#[derive(Debug, PartialEq, Eq)]
enum LastLine<'a> {
    /// Nothing yet.
    NotYet,
    /// The verdict.
    Verdict(&'a str),
    /// Nothing: it ends without a verdict.
    None,
}

impl Crowd {
    /// The end is looked at before the verdict, which was there by then if there is one at all. In a test `pause`
    /// comes between the two looks.
    fn last_line(&self, pause: impl FnOnce()) -> LastLine<'_> {
        // ORDERING: Acquire, partner the Release in `Server::drop`.
        let is_ending = self.is_ending.load(Acquire);
        pause();
        match self.verdict.get() {
            Some(line) => LastLine::Verdict(line),
            None if is_ending => LastLine::None,
            None => LastLine::NotYet,
        }
    }
}

/// Tells what the end waits for, until there is a verdict or nobody listens.
fn see_end(stream: &mut UnixStream, served: &dyn Served, crowd: &Crowd) -> io::Result<()> {
    let mut last = Instant::now();
    loop {
        match crowd.last_line(|| {}) {
            LastLine::Verdict(line) => return stream.write_all(line.as_bytes()),
            LastLine::None => return Ok(()),
            LastLine::NotYet if is_leaving(stream) => return Ok(()),
            LastLine::NotYet => {}
        }
        if last.elapsed() >= WAITS_TIME {
            last = Instant::now();
            let line = serde_json::to_string(&EndLine::Waits { waits: served.waits() })?;
            stream.write_all((line + "\n").as_bytes())?;
        }
        thread::sleep(VERDICT_TIME);
    }
}

/// One of [`CLEANINGS_MAX`]; given back when dropped.
#[derive(Debug)]
struct Turn<'a>(&'a Crowd);

impl<'a> Turn<'a> {
    fn take(crowd: &'a Crowd) -> Option<Self> {
        // ORDERING: Relaxed; a bound on work, nothing is reached through it.
        let before = crowd.cleanings.fetch_add(1, Relaxed);
        let turn = Self(crowd);
        (before < CLEANINGS_MAX).then_some(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; as in `take`.
        self.0.cleanings.fetch_sub(1, Relaxed);
    }
}

/// Cleans for the client at the other end of `stream`, and tells it how far that is.
fn clean(request: &CleanRequest, served: &dyn Served, stream: &UnixStream, crowd: &Crowd) -> Reply {
    let Some(_turn) = Turn::take(crowd) else {
        return Reply::refused(format!("{CLEANINGS_MAX} cleanings are under way; try again"));
    };
    let mut last = Instant::now();
    let mut progress = |step| {
        // ORDERING: Relaxed; as in `Server::drop`.
        if crowd.is_ending.load(Relaxed) {
            return ControlFlow::Break(());
        }
        if last.elapsed() < NEWS_TIME {
            return ControlFlow::Continue(());
        }
        last = Instant::now();
        match is_leaving(stream) || !tell(stream, step) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    reported(served.clean(request, &mut progress))
}

/// The reply that says whether something was done.
fn done(outcome: Result<(), String>) -> Reply {
    outcome.map_or_else(Reply::refused, |()| Reply::done())
}

/// The reply that carries `report`.
fn reported(report: Result<impl Serialize, String>) -> Reply {
    match report.map(serde_json::to_value) {
        Err(cause) => Reply::refused(cause),
        Ok(Ok(report)) => Reply { report: Some(report), ..Reply::done() },
        Ok(Err(error)) => Reply::refused(format!("report: {error}")),
    }
}

/// Whether the peer has closed its sending side, or is gone.
fn is_leaving(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(stream, &mut [0][..], flags) {
        Ok((_, 0)) => true,
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => false,
        Err(_) => true,
    }
}

/// Sends one line; false if the peer is gone. One that does not read misses it: a line is far smaller than
/// what the kernel sends in one piece, so it is never cut.
fn tell(stream: &UnixStream, progress: CleanProgress) -> bool {
    let Ok(line) = serde_json::to_string(&CleanLine::Progress { progress }) else { return true };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match rustix::net::send(stream, (line + "\n").as_bytes(), flags) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => true,
        Err(_) => false,
    }
}

/// The reply to a request that needs no patience, and whether the daemon is about to end.
fn answer(request: Request, served: &dyn Served, crowd: &Crowd) -> (Reply, bool) {
    match request {
        Request::Stat => (Reply { report: Some(served.report()), ..Reply::done() }, false),
        Request::Locks => (Reply { report: Some(locks::collect()), ..Reply::done() }, false),
        Request::Set { settings } => (done(served.set(&settings)), false),
        Request::Policy(request) => (done(served.set_policy(&request)), false),
        Request::Policies => (reported(Ok(served.policies())), false),
        Request::Cached(request) => (reported(served.cached(&request)), false),
        Request::Level(request) => (reported(served.level(&request)), false),
        Request::Commit => (done(served.commit()), false),
        // Taken out by `converse`, which has the stream that it needs.
        Request::Clean(_) => (Reply::refused("a cleaning has no short answer"), false),
        Request::Unmount { lazy } => match end(lazy, served, crowd) {
            Ok(()) => (Reply::done(), true),
            Err(stays) => (Reply { busy: stays.busy, ..Reply::refused(stays.cause) }, false),
        },
    }
}

/// Ends the mount for a client that waits for the verdict.
fn end(lazy: bool, served: &dyn Served, crowd: &Crowd) -> Result<(), Stays> {
    // Before the mount can end: whoever sees the end sees this too.
    // ORDERING: Release, partner the Acquire in `Server::is_asked_to_end`. Where the end is refused it stays set, and
    // a verdict is made for nobody.
    crowd.is_asked_to_end.store(true, Release);
    served.unmount(lazy)
}

/// A stream whose reads end, all together, at an instant.
#[derive(Debug)]
struct Patient {
    stream: UnixStream,
    until: Instant,
}

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.stream.set_read_timeout(Some(left))?;
        self.stream.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::os::unix::fs::MetadataExt;

    #[derive(Debug, Default)]
    struct Fake {
        busy: AtomicBool,
        /// Cleanings that ended.
        cleaned: AtomicUsize,
    }

    impl Served for Fake {
        fn report(&self) -> serde_json::Value {
            serde_json::json!({"source": "fake"})
        }
        fn set(&self, settings: &BTreeMap<String, String>) -> Result<(), String> {
            settings.get("size").filter(|size| *size == "1").map(drop).ok_or("size is 1".into())
        }
        /// `1` is done at once, `2` refused, `3` goes on until it is stopped.
        fn clean(
            &self,
            request: &CleanRequest,
            progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
        ) -> Result<Cleaned, String> {
            let mut done = 0;
            let interrupted = match &*request.request.0 {
                b"1" => false,
                b"2" => return Err("no".into()),
                _ => loop {
                    done += 1;
                    if progress(CleanProgress { done, ..CleanProgress::default() }).is_break() {
                        break true;
                    }
                },
            };
            self.cleaned.fetch_add(1, Relaxed);
            Ok(Cleaned { interrupted, ..Cleaned::default() })
        }
        /// `/a` has a directory, others are not there.
        fn cached(&self, request: &CachedRequest) -> Result<Cached, String> {
            let there = request.directory.0 == b"/a" && request.depth == Some(2);
            let folded = if there { 7 } else { return Err("no".into()) };
            Ok(Cached { folded, ..Cached::default() })
        }
        fn level(&self, _: &LevelRequest) -> Result<Level, String> {
            Ok(Level { rest_directories: 9, ..Level::default() })
        }
        fn set_policy(&self, request: &PolicyRequest) -> Result<(), String> {
            (request.policy == "keep").then_some(()).ok_or("no".into())
        }
        fn policies(&self) -> Vec<Mark> {
            vec![Mark { inode: 5, ..Mark::default() }]
        }
        fn commit(&self) -> Result<(), String> {
            if self.busy.load(Relaxed) { Err("the disk is gone".into()) } else { Ok(()) }
        }
        fn unmount(&self, lazy: bool) -> Result<(), Stays> {
            match self.busy.load(Relaxed) && !lazy {
                true => Err(Stays { cause: "in use".into(), busy: true }),
                false => Ok(()),
            }
        }
        fn waits(&self) -> Waits {
            Waits { dirty_bytes: 7 }
        }
    }

    fn serve() -> (tempfile::TempDir, PathBuf, Server, Arc<Fake>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0:1");
        let fake = Arc::new(Fake::default());
        let server = Server::start(&path, fake.clone(), Ends::Process).unwrap();
        (folder, path, server, fake)
    }

    fn ask(stream: &mut UnixStream, line: &str) -> String {
        stream.write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut reply).unwrap();
        reply
    }

    /// Bug: a client that waited for the verdict looked for it, then for the end of the server; where both came between
    /// the two looks it was told nothing, and said that the daemon had ended without a word.
    #[test]
    fn a_verdict_that_comes_with_the_end_is_told() {
        let crowd = Crowd::default();
        let both = || {
            crowd.verdict.set("told".into()).unwrap();
            crowd.is_ending.store(true, Release);
        };
        assert_eq!(crowd.last_line(both), LastLine::Verdict("told"));
        let crowd = Crowd::default();
        assert_eq!(crowd.last_line(|| {}), LastLine::NotYet);
        crowd.is_ending.store(true, Release);
        assert_eq!(crowd.last_line(|| {}), LastLine::None);
    }

    #[test]
    fn requests_are_answered_in_turn_on_one_connection() {
        let (_folder, path, _server, fake) = serve();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let mut client = UnixStream::connect(&path).unwrap();
        let report = ask(&mut client, "{\"op\":\"stat\"}\n");
        assert_eq!(report, "{\"ok\":true,\"report\":{\"source\":\"fake\"}}\n");
        let locks = ask(&mut client, "{\"op\":\"locks\"}\n");
        assert!(locks.starts_with("{\"ok\":true,\"report\":{\"classes\":["), "{locks}");
        let cached =
            |path: &str| format!("{{\"op\":\"cached\",\"directory\":\"{path}\",\"depth\":2}}\n");
        assert!(ask(&mut client, &cached("/a")).contains("\"folded\":7"));
        assert_eq!(ask(&mut client, &cached("/b")), "{\"ok\":false,\"error\":\"no\"}\n");
        let level = "{\"op\":\"level\",\"directory\":\"/a\"}\n";
        assert!(ask(&mut client, level).contains("\"rest_directories\":9"));
        let policy = |policy: &str| {
            format!("{{\"op\":\"policy\",\"directory\":\"/a\",\"policy\":\"{policy}\"}}\n")
        };
        assert_eq!(ask(&mut client, &policy("keep")), "{\"ok\":true}\n");
        assert_eq!(ask(&mut client, &policy("hold")), "{\"ok\":false,\"error\":\"no\"}\n");
        assert!(ask(&mut client, "{\"op\":\"policies\"}\n").contains("\"inode\":5"));
        assert!(ask(&mut client, "nonsense\n").contains("not a request"));
        let set =
            |value: &str| format!("{{\"op\":\"set\",\"settings\":{{\"size\":\"{value}\"}}}}\n");
        assert_eq!(ask(&mut client, &set("1")), "{\"ok\":true}\n");
        assert_eq!(ask(&mut client, &set("2")), "{\"ok\":false,\"error\":\"size is 1\"}\n");
        fake.busy.store(true, Relaxed);
        assert!(ask(&mut client, "{\"op\":\"unmount\"}\n").contains("\"busy\":true"));
        assert_eq!(ask(&mut client, "{\"op\":\"unmount\",\"lazy\":true}\n"), "{\"ok\":true}\n");
    }

    #[test]
    fn an_endless_line_is_refused() {
        let (_folder, path, _server, _) = serve();
        let mut client = UnixStream::connect(&path).unwrap();
        let reply = ask(&mut client, &"x".repeat(protocol::REQUEST_BYTES_MAX as usize));
        assert!(reply.contains("longer than 64 KiB"), "{reply}");
    }

    #[test]
    fn silent_clients_leave_room_until_the_places_are_taken() {
        let (_folder, path, _server, _) = serve();
        let silent: Vec<_> =
            (0..CLIENTS_MAX - 1).map(|_| UnixStream::connect(&path).unwrap()).collect();
        let mut last = UnixStream::connect(&path).unwrap();
        assert!(ask(&mut last, "{\"op\":\"stat\"}\n").contains("\"ok\":true"));
        let mut refused = String::new();
        let ninth = UnixStream::connect(&path).unwrap();
        BufReader::new(ninth).read_line(&mut refused).unwrap();
        assert!(refused.contains("too many requests"), "{refused}");
        drop((silent, last));
        // Their threads notice in their own time.
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline {
            let mut next = UnixStream::connect(&path).unwrap();
            let mut reply = String::new();
            let _ = next.write_all(b"{\"op\":\"stat\"}\n");
            let _ = BufReader::new(next).read_line(&mut reply);
            if reply.contains("report") {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
        panic!("no place came free");
    }

    fn request(digit: char) -> String {
        format!("{{\"op\":\"clean\",\"request\":\"{digit}\"}}\n")
    }

    /// Reads until the last line of a cleaning.
    fn reply(client: UnixStream) -> Reply {
        client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut lines = BufReader::new(client);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            assert!(Instant::now() < deadline, "it goes on");
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            match serde_json::from_str(&line).expect("a line of a cleaning") {
                CleanLine::Progress { .. } => {}
                CleanLine::Reply(reply) => return reply,
            }
        }
    }

    #[test]
    fn a_cleaning_is_told_step_by_step_while_others_are_served() {
        let (_folder, path, _server, fake) = serve();
        let mut client = UnixStream::connect(&path).unwrap();
        assert!(ask(&mut client, &request('1')).contains("\"interrupted\":false"));
        assert_eq!(ask(&mut client, &request('2')), "{\"ok\":false,\"error\":\"no\"}\n");
        let step = ask(&mut client, &request('3'));
        assert!(step.starts_with("{\"progress\":{"), "{step}");
        let mut other = UnixStream::connect(&path).unwrap();
        assert!(ask(&mut other, "{\"op\":\"stat\"}\n").contains("fake"), "meanwhile");
        assert_eq!(fake.cleaned.load(Relaxed), 1, "it goes on");
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let reply = reply(client);
        assert!(reply.ok && reply.report.unwrap()["interrupted"] == true);
    }

    #[test]
    fn a_client_that_goes_away_or_an_end_of_the_daemon_ends_its_cleaning() {
        let (_folder, path, server, fake) = serve();
        let mut client = UnixStream::connect(&path).unwrap();
        ask(&mut client, &request('3'));
        drop(client);
        let deadline = Instant::now() + Duration::from_secs(20);
        while fake.cleaned.load(Relaxed) < 1 {
            assert!(Instant::now() < deadline, "it goes on for nobody");
            thread::yield_now();
        }
        let mut client = UnixStream::connect(&path).unwrap();
        ask(&mut client, &request('3'));
        drop(server);
        assert_eq!(fake.cleaned.load(Relaxed), 2, "before the server was gone");
        assert!(reply(client).ok);
    }

    #[test]
    fn a_client_that_does_not_read_holds_up_no_cleaning() {
        let (_folder, path, _server, fake) = serve();
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(request('3').as_bytes()).unwrap();
        let (ours, theirs) = UnixStream::pair().unwrap();
        while rustix::net::send(&ours, b"x", SendFlags::DONTWAIT).is_ok() {}
        assert!(tell(&ours, CleanProgress::default()), "full is not gone");
        assert!(!is_leaving(&ours));
        drop(theirs);
        assert!(is_leaving(&ours) && !tell(&ours, CleanProgress::default()));
        assert_eq!(fake.cleaned.load(Relaxed), 0);
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(reply(client).ok);
    }

    #[test]
    fn cleanings_leave_places_for_short_requests() {
        let (_folder, path, _server, _fake) = serve();
        let clients: Vec<_> = (0..CLEANINGS_MAX)
            .map(|_| {
                let mut client = UnixStream::connect(&path).unwrap();
                assert!(ask(&mut client, &request('3')).contains("progress"));
                client
            })
            .collect();
        let mut next = UnixStream::connect(&path).unwrap();
        let refused = ask(&mut next, &request('1'));
        assert!(refused.contains("4 cleanings are under way; try again"), "{refused}");
        assert!(ask(&mut next, "{\"op\":\"stat\"}\n").contains("fake"));
        drop(clients);
    }

    #[test]
    fn strangers_are_not_heard() {
        assert!(is_permitted(0, 1000) && is_permitted(1000, 1000));
        assert!(!is_permitted(1001, 1000) && !is_permitted(1000, 0));
    }

    #[test]
    fn a_left_over_socket_is_replaced_and_ours_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0:1");
        drop(UnixListener::bind(&path).unwrap());
        let server = Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(server);
        assert!(!path.exists());
    }

    /// A device number is free as soon as its mount is gone, before the daemon has ended. Where the next mount got
    /// it, the daemon that ended took away the socket of the one that had begun.
    #[test]
    fn a_socket_that_another_has_replaced_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0:1");
        let ends = Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
        let begins = Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
        drop(ends);
        assert!(UnixStream::connect(&path).is_ok());
        drop(begins);
        assert!(!path.exists());
    }

    /// Between the look whether the socket is its own and the removal, the daemon that ended could be overtaken by one
    /// that put its own there: the mount that had begun then had no socket for as long as it lived.
    #[test]
    fn who_ends_beside_one_that_begins_leaves_its_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0:1");
        let start = || Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
        let mut ends = start();
        for turn in 0..3000 {
            let barrier = std::sync::Barrier::new(2);
            let begins = thread::scope(|scope| {
                scope.spawn(|| {
                    barrier.wait();
                    drop(ends);
                });
                barrier.wait();
                start()
            });
            assert!(UnixStream::connect(&path).is_ok(), "turn {turn}");
            ends = begins;
        }
    }

    /// A process that was stopped while it had the folder would keep every mount of its user from starting.
    #[test]
    fn a_folder_that_somebody_keeps_is_waited_for_a_moment_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0:1");
        let kept = File::open(folder.path()).unwrap();
        rustix::fs::flock(&kept, FlockOperation::LockExclusive).unwrap();
        let server = Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(server);
    }
}
