//! The serving end of the control socket: a daemon's, or a program's that mounts through the library.
//!
//! # Concurrency
//! One thread accepts; each client gets a thread, at most `CLIENTS_MAX` at a time, and `LAST_PLACES` more for clients
//! that only request the end. A client that sends no complete request loses its place after `REQUEST_TIME`. No lock:
//! the served mount is shared and immutable, the rest are counts. Dropping the server waits for replies in progress, and
//! ends cleanings early.
//!
//! A thread of its own carries out a request that may need the source (`asking`), so a hanging source takes no place. A
//! cleaning may take minutes; others are served meanwhile, since at most `LONG_MAX` cleanings and commits run at once.
//! The client of a cleaning gets lines of progress, which are dropped when it does not read. It closes its sending side
//! to end the cleaning.
//!
//! The client that ended the mount gets lines with the work that the end waits for, and at last the verdict
//! ([`Server::tell_end`]), before the process ends. Threads refer to the mount only while they answer: if the process
//! lives on, nothing of the mount does.
//!
//! # Why
//! Only the daemon's user and root may send requests, by the kernel's word (SO_PEERCRED); other users are refused
//! before they occupy a place. Weakness: silent clients of the *same* user can take all places, for up to ten seconds;
//! that user can also kill the daemon.

mod asking;

use super::cleaned::Cleaned;
use super::ended::{EndLine, Verdict, Waits};
use super::level::{Level, LevelRequest};
use super::policies::{Mark, PolicyRequest};
use super::protocol::{self, CleanLine, CleanRequest, Reply, Request};
use super::resident::{Cached, CachedRequest};
use crate::locks;
use asking::Course;
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
/// Clients served beyond these, if they ask for the end.
const LAST_PLACES: usize = 2;
/// Cleanings and commits done at once.
const LONG_MAX: usize = CLIENTS_MAX / 2;
/// Time in which a request is answered that is neither a cleaning nor a commit.
const ANSWER_TIME: Duration = Duration::from_secs(15);
/// Time between two lines of progress of a cleaning, and between two checks whether its client still waits.
const NEWS_TIME: Duration = Duration::from_millis(50);
/// Time between two checks for a verdict.
const VERDICT_TIME: Duration = Duration::from_millis(20);
/// Time between two lines with the work that the end waits for.
const WAITS_TIME: Duration = Duration::from_secs(1);
/// Time in which a whole request has to arrive, and a reply has to be taken.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Time in which another daemon has put its socket in place, or removed it.
const ALONE_TIME: Duration = Duration::from_secs(1);
/// Time in which replies under way are finished when the daemon ends. Short in tests, which see that the client of the
/// end has more.
const REPLIES_TIME: Duration =
    if cfg!(test) { Duration::from_millis(50) } else { Duration::from_secs(5) };
/// Time in which the client that requested the end has its verdict: the system call that unmounts may return long after
/// the mount has ended.
const ENDS_TIME: Duration = Duration::from_secs(60);

/// The scope of a mount's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// The process. The stream of the client that requested it stays open until then.
    Process,
    /// The mount alone: the process is a program's own.
    Mount,
}

/// A mount, as the control socket sees it.
pub trait Served: Send + Sync + 'static {
    /// The mount's options, its cached amounts, and its counts.
    fn report(&self) -> serde_json::Value;

    /// Changes settings, all of them or none.
    ///
    /// # Errors
    /// The wrong setting, and its valid values.
    fn set(&self, settings: &BTreeMap<String, String>) -> Result<(), String>;

    /// Cleans a directory; returns early when `progress` requests it.
    ///
    /// # Errors
    /// The reason if nothing was cleaned.
    fn clean(
        &self,
        request: &CleanRequest,
        progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> Result<Cleaned, String>;

    /// The cached amounts below a directory, in rows that fit a reply.
    ///
    /// # Errors
    /// The reason why there is no such directory.
    fn cached(&self, request: &CachedRequest) -> Result<Cached, String>;

    /// The cached amounts of a directory, by its subdirectories; refused like [`Served::cached`].
    ///
    /// # Errors
    /// The reason why there is no such directory.
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
    /// The reason why it stays.
    fn unmount(&self, lazy: bool) -> Result<(), UnmountError>;

    /// The work that its end waits for.
    fn waits(&self) -> Waits;

    /// Whether the source is known to hang now. Returns within a fraction of a second; false if nothing is known.
    fn source_hangs(&self) -> bool {
        false
    }
}

/// The reason why a mount stays mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmountError {
    /// In words.
    pub cause: String,
    /// It is in use.
    pub busy: bool,
}

impl From<io::Error> for UnmountError {
    fn from(error: io::Error) -> Self {
        let busy = error.raw_os_error() == Some(Errno::BUSY.raw_os_error());
        Self { cause: crate::cause(&error), busy }
    }
}

/// The socket; removed when dropped, if it is still this one.
pub struct Server {
    path: PathBuf,
    listener: Arc<UnixListener>,
    /// The served mount; its clients' threads refer to it weakly.
    served: Arc<dyn Served>,
    /// The path is named by the mount's device number, which another mount may get as soon as ours is unmounted.
    identity: Option<Identity>,
    load: Arc<ClientLoad>,
}

/// Identifies a file, beside its path: its number, which may be reused, and its creation time.
type Identity = (u64, i64, i64);

fn identity(path: &Path) -> Option<Identity> {
    let seen = fs::symlink_metadata(path).ok()?;
    Some((seen.ino(), seen.ctime(), seen.ctime_nsec()))
}

/// The right to change the socket at a path, among all daemons of a user. A daemon that ends checks whether the socket
/// is its own and then removes it; in between another daemon, whose mount got the number, may have replaced it. It is
/// the lock of the folder. A process that does not get it in [`ALONE_TIME`] (a stopped process holds it) continues
/// without it.
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
struct ClientLoad {
    /// Clients that have a thread.
    clients: AtomicUsize,
    /// Requests read and not yet replied to.
    requests: AtomicUsize,
    /// Requests for the end among them, until the client has the verdict.
    ends: AtomicUsize,
    /// Cleanings and commits under way.
    long: AtomicUsize,
    /// Threads that carry out a request for which no client waits any more.
    abandoned: AtomicUsize,
    /// A client asked for the end.
    is_asked_to_end: AtomicBool,
    /// The daemon ends.
    is_ending: AtomicBool,
    /// The verdict about written data, as a line.
    verdict: OnceLock<String>,
}

impl Server {
    /// Binds `path`, replaces a dead daemon's socket there, and answers from threads of its own.
    ///
    /// # Errors
    /// If the socket cannot be made or no thread started.
    pub fn start(path: &Path, served: Arc<dyn Served>, ends: Ends) -> io::Result<Self> {
        let _alone = Alone::at(path);
        // The path names our live mount, so the process that bound it before has ended.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = Arc::new(UnixListener::bind(path)?);
        let path = path.to_path_buf();
        let mut server = Self { path, listener, served, identity: None, load: Arc::default() };
        server.identity = identity(&server.path);
        fs::set_permissions(&server.path, fs::Permissions::from_mode(0o600))?;
        server.identity = identity(&server.path);
        let thread = thread::Builder::new().name("uvfs-control".into());
        let listener = server.listener.clone();
        let context = ClientContext {
            served: Arc::downgrade(&server.served),
            load: server.load.clone(),
            ends,
        };
        thread.spawn(move || accept_all(&listener, &context))?;
        Ok(server)
    }

    /// Whether a client has asked for the end, and waits for the verdict.
    pub fn is_asked_to_end(&self) -> bool {
        // ORDERING: Acquire, partner the Release in `end`: set before the mount is ended.
        self.load.is_asked_to_end.load(Acquire)
    }

    /// The mount has ended: sends the verdict to the clients that wait for it, and to later ones that ask.
    /// Dropping the server waits until they have received it.
    pub fn tell_end(&self, verdict: Verdict) {
        let line = serde_json::to_string(&EndLine::Ended { ended: verdict.for_reply() });
        match line {
            // The first verdict stands.
            Ok(line) => drop(self.load.verdict.set(line + "\n")),
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
        // The process is about to end, often by a client's request: that client gets its reply first.
        // ORDERING: Release, partner the Acquire in `ClientLoad::last_line`: the verdict comes first.
        self.load.is_ending.store(true, Release);
        // No more clients are accepted: the accepting thread ends.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        let began = Instant::now();
        // ORDERING: Acquire, both, partner the Release in `UnderWay`: the reply was sent.
        while self.load.requests.load(Acquire) > 0 {
            let limit = match self.load.ends.load(Acquire) {
                0 => REPLIES_TIME,
                _ => ENDS_TIME,
            };
            if began.elapsed() >= limit {
                break;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let _alone = Alone::at(&self.path);
        if self.identity.is_none() || identity(&self.path) != self.identity {
            log::info!(
                "control socket {}: it belongs to another mount by now",
                self.path.display()
            );
        } else if let Err(error) = fs::remove_file(&self.path) {
            log::info!("control socket {}: {error}", self.path.display());
        }
    }
}

/// The state that each client's thread gets.
#[derive(Clone)]
struct ClientContext {
    served: Weak<dyn Served>,
    load: Arc<ClientLoad>,
    ends: Ends,
}

fn accept_all(listener: &UnixListener, context: &ClientContext) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => admit(stream, context),
            // ORDERING: Relaxed; the flag of `Server::drop`, which shuts the listener down after it is set.
            Err(_) if context.load.is_ending.load(Relaxed) => return,
            Err(error) => {
                log::warn!("control socket: {error}");
                // Out of descriptors, most likely: they come back, spinning would not help.
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// The refusal where all places are taken.
const TOO_MANY: &str = "too many requests at once; try again";

/// Starts a thread for the client, or refuses it with the reason.
fn admit(stream: UnixStream, context: &ClientContext) {
    let own_uid = rustix::process::geteuid().as_raw();
    let peer_uid = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.uid.as_raw());
    if !peer_uid.is_ok_and(|uid| is_permitted(uid, own_uid)) {
        log::warn!("control socket: refused a request of user {peer_uid:?}");
        return turn_away(stream, "not permitted: only root and the user who mounted it may ask");
    }
    // ORDERING: Relaxed; a bound on threads, nothing is reached through it.
    let before = context.load.clients.fetch_add(1, Relaxed);
    let place = ClientSlot(context.load.clone());
    if before >= CLIENTS_MAX + LAST_PLACES {
        return turn_away(stream, TOO_MANY);
    }
    let is_last = before >= CLIENTS_MAX;
    let context = context.clone();
    let thread = thread::Builder::new().name("uvfs-control-client".into());
    let started = thread.spawn(move || {
        let _place = place;
        if let Err(error) = converse(stream, &context, is_last) {
            log::debug!("control client: {error}");
        }
    });
    if let Err(error) = started {
        log::warn!("control client: no thread: {error}");
    }
}

/// One of [`CLIENTS_MAX`] and [`LAST_PLACES`]; released when dropped.
#[derive(Debug)]
struct ClientSlot(Arc<ClientLoad>);

impl Drop for ClientSlot {
    fn drop(&mut self) {
        // ORDERING: Relaxed; the bound of `admit`.
        self.0.clients.fetch_sub(1, Relaxed);
    }
}

/// Whether a peer may ask a daemon.
fn is_permitted(peer_uid: u32, own_uid: u32) -> bool {
    peer_uid == 0 || peer_uid == own_uid
}

fn turn_away(mut stream: UnixStream, cause: &str) {
    // The line fits the socket's buffer; the server does not wait for a client that does not read.
    let _ = stream.set_nonblocking(true);
    let _ = stream.write_all(Reply::refused(cause).to_line().as_bytes());
}

/// Answers requests until the client leaves. In the last places (`is_last`) the end is the only request.
fn converse(mut stream: UnixStream, context: &ClientContext, is_last: bool) -> io::Result<()> {
    let load = &context.load;
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
        let parsed = serde_json::from_str(&line);
        let ends = matches!(parsed, Ok(Request::Unmount { .. }));
        let request = (UnderWay::begin(&load.requests), ends.then(|| UnderWay::begin(&load.ends)));
        // Declared later, so dropped first: when no request is in progress, nothing refers to it.
        let Some(served) = context.served.upgrade() else {
            return stream.write_all(Reply::refused("the mount has ended").to_line().as_bytes());
        };
        let answer = match parsed {
            Ok(request @ Request::Unmount { .. }) => answer(request, &served, &stream, load),
            Ok(_) if is_last => Answer::Last(Reply::refused(TOO_MANY)),
            Ok(request) => answer(request, &served, &stream, load),
            Err(error) => Answer::Reply(Reply::refused(format!("not a request: {error}"))),
        };
        let (Answer::Reply(reply) | Answer::Last(reply) | Answer::End(reply)) = &answer;
        stream.write_all(reply.to_line().as_bytes())?;
        if let Answer::Last(_) = answer {
            return Ok(());
        }
        if let Answer::End(_) = answer {
            see_end(&mut stream, &*served, load)?;
            drop(served);
            drop(request);
            if context.ends == Ends::Mount {
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
struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        // ORDERING: Relaxed; counted before the request can end anything.
        count.fetch_add(1, Relaxed);
        Self(count)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // ORDERING: Release, partner the Acquire in `Server::drop`: the reply was sent.
        self.0.fetch_sub(1, Release);
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

impl ClientLoad {
    /// Reads the flag of the end before the verdict. The verdict is set before the flag, so none is missed. In a
    /// test `pause` runs between the two reads.
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

/// Sends the work that the end waits for, until there is a verdict or the client disconnects.
fn see_end(stream: &mut UnixStream, served: &dyn Served, load: &ClientLoad) -> io::Result<()> {
    let mut last = Instant::now();
    loop {
        match load.last_line(|| {}) {
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

/// One of [`LONG_MAX`]; released when dropped.
#[derive(Debug)]
struct Turn(Arc<ClientLoad>);

impl Turn {
    fn take(load: &Arc<ClientLoad>) -> Result<Self, String> {
        // ORDERING: Relaxed; a bound on work, nothing is reached through it.
        let before = load.long.fetch_add(1, Relaxed);
        let turn = Self(load.clone());
        match before < LONG_MAX {
            true => Ok(turn),
            false => Err(format!("{LONG_MAX} cleanings are under way; try again")),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // ORDERING: Relaxed; the bound of `take`.
        self.0.long.fetch_sub(1, Relaxed);
    }
}

/// Cleans for the client at the other end of `stream`, and sends it progress.
fn clean(
    request: &CleanRequest,
    served: &dyn Served,
    course: &Course,
    stream: &UnixStream,
    load: &ClientLoad,
) -> Result<Cleaned, String> {
    let mut last = Instant::now();
    let mut progress = |step| {
        course.step();
        // ORDERING: Relaxed; the flag of `Server::drop`.
        if course.is_abandoned() || load.is_ending.load(Relaxed) {
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
    served.clean(request, &mut progress)
}

/// The reply that reports success or the error.
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

/// Whether the peer has closed its sending side or disconnected.
fn is_leaving(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    match rustix::net::recv(stream, &mut [0][..], flags) {
        Ok((_, 0)) => true,
        Ok(_) | Err(Errno::AGAIN | Errno::INTR) => false,
        Err(_) => true,
    }
}

/// Sends one line; false if the peer has disconnected. A peer that does not read misses it: a line is far smaller than
/// the kernel's unit of sending, so it is never cut.
fn tell(stream: &UnixStream, progress: CleanProgress) -> bool {
    let Ok(line) = serde_json::to_string(&CleanLine::Progress { progress }) else { return true };
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    match rustix::net::send(stream, (line + "\n").as_bytes(), flags) {
        Ok(_) | Err(Errno::AGAIN | Errno::INTR | Errno::NOBUFS) => true,
        Err(_) => false,
    }
}

/// The answer to a request.
#[derive(Debug)]
enum Answer {
    /// More may be asked.
    Reply(Reply),
    /// The client is to connect again for more: a thread may still be at work for it.
    Last(Reply),
    /// The mount is about to end.
    End(Reply),
}

/// The answer to a request other than that for the end.
fn answer(
    request: Request,
    served: &Arc<dyn Served>,
    stream: &UnixStream,
    load: &Arc<ClientLoad>,
) -> Answer {
    let of_source = |limit, carry_out: Carried| {
        let done = asking::ask(served, load, limit, |served, course| carry_out(served, course));
        done.map_or_else(|cause| Answer::Last(Reply::refused(cause)), Answer::Reply)
    };
    let (short, long) = (Some(ANSWER_TIME), None);
    match request {
        Request::Unmount { lazy } => end(lazy, &**served, load),
        // These ask the source nothing.
        Request::Stat => Answer::Reply(Reply { report: Some(served.report()), ..Reply::done() }),
        Request::Locks => Answer::Reply(Reply { report: Some(locks::collect()), ..Reply::done() }),
        Request::Set { settings } => Answer::Reply(done(served.set(&settings))),
        Request::Policy(request) => {
            of_source(short, Box::new(move |served, _| done(served.set_policy(&request))))
        }
        Request::Policies => {
            of_source(short, Box::new(|served, _| reported(Ok(served.policies()))))
        }
        Request::Cached(request) => {
            of_source(short, Box::new(move |served, _| reported(served.cached(&request))))
        }
        Request::Level(request) => {
            of_source(short, Box::new(move |served, _| reported(served.level(&request))))
        }
        Request::Commit => match Turn::take(load) {
            Err(cause) => Answer::Reply(Reply::refused(cause)),
            Ok(turn) => of_source(
                long,
                Box::new(move |served, _| {
                    let _turn = turn;
                    done(served.commit())
                }),
            ),
        },
        Request::Clean(request) => match (Turn::take(load), stream.try_clone()) {
            (Err(cause), _) => Answer::Reply(Reply::refused(cause)),
            (_, Err(error)) => Answer::Reply(Reply::refused(crate::cause(&error))),
            (Ok(turn), Ok(stream)) => of_source(
                long,
                Box::new(move |served, course| {
                    reported(clean(&request, served, course, &stream, &turn.0))
                }),
            ),
        },
    }
}

/// A request, as its thread carries it out.
type Carried = Box<dyn FnOnce(&dyn Served, &Course) -> Reply + Send>;

/// Ends the mount for a client that waits for the verdict.
fn end(lazy: bool, served: &dyn Served, load: &ClientLoad) -> Answer {
    // Before the mount can end: a thread that sees the end sees this, too.
    // ORDERING: Release, partner the Acquire in `Server::is_asked_to_end`. If the end is refused it stays set, and a
    // verdict is made for no client.
    load.is_asked_to_end.store(true, Release);
    match served.unmount(lazy) {
        Ok(()) => Answer::End(Reply::done()),
        Err(stays) => Answer::Reply(Reply { busy: stays.busy, ..Reply::refused(stays.cause) }),
    }
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
mod tests;
