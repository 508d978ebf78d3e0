//! The daemon's end of the control socket.
//!
//! # Concurrency
//! One thread accepts; each client gets a thread, at most [`CLIENTS_MAX`] at a time. A client that
//! sends nothing loses its place after [`REQUEST_TIME`], however it dribbles. No lock: the served
//! mount is shared and immutable, the rest are two counts. Whoever asked for the end is told of it:
//! dropping the server waits for replies under way.
//!
//! # Why
//! Only the daemon's user and root are heard, by the kernel's word (SO_PEERCRED); strangers are told
//! so before they occupy a place. Weakness: eight silent clients of the *same* user delay a ninth by
//! up to ten seconds; that user can also simply kill the daemon.

use super::protocol::{self, Reply, Request};
use crate::locks_report;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_concurrent::primitive::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

/// Clients served at once.
const CLIENTS_MAX: usize = 8;
/// Time in which a whole request has to arrive, and a reply has to be taken.
const REQUEST_TIME: Duration = Duration::from_secs(10);
/// Time in which replies under way are finished when the daemon ends.
const REPLIES_TIME: Duration = Duration::from_secs(5);

/// A mount, as the control socket sees it.
pub(crate) trait Served: Send + Sync + 'static {
    /// What is mounted, and what the caches hold and did.
    fn report(&self) -> serde_json::Value;

    /// Changes settings, all of them or none.
    ///
    /// # Errors
    /// Which one is wrong and what would be right.
    fn set(&self, settings: &BTreeMap<String, String>) -> Result<(), String>;

    /// Ends the mount; blocks while the kernel writes back.
    ///
    /// # Errors
    /// Why it stays.
    fn unmount(&self, lazy: bool) -> Result<(), Stays>;
}

/// Why a mount stays mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stays {
    /// In words.
    pub(crate) cause: String,
    /// It is in use.
    pub(crate) busy: bool,
}

/// The socket; removed when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    path: PathBuf,
    crowd: Arc<Crowd>,
}

/// Who is being served.
#[derive(Debug, Default)]
struct Crowd {
    /// Clients that have a thread.
    clients: AtomicUsize,
    /// Requests read and not yet replied to.
    requests: AtomicUsize,
}

impl Server {
    /// Binds `path`, replacing what a dead daemon left there, and answers from threads of its own.
    ///
    /// # Errors
    /// If the socket cannot be made or no thread started.
    pub(crate) fn start(path: &Path, served: Arc<dyn Served>) -> io::Result<Self> {
        // The path names our live mount, so whoever bound it before is gone.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        let server = Self { path: path.to_path_buf(), crowd: Arc::default() };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        let thread = thread::Builder::new().name("uvfs-control".into());
        let crowd = server.crowd.clone();
        thread.spawn(move || accept_all(&listener, &served, &crowd))?;
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process is about to end, often because a client said so: it gets its reply first.
        let deadline = Instant::now() + REPLIES_TIME;
        // ORDERING: Acquire, partner the Release in `converse`: the reply was sent.
        while self.crowd.requests.load(Acquire) > 0 && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        if let Err(error) = fs::remove_file(&self.path) {
            log::info!("control socket {}: {error}", self.path.display());
        }
    }
}

fn accept_all(listener: &UnixListener, served: &Arc<dyn Served>, crowd: &Arc<Crowd>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => admit(stream, served, crowd),
            Err(error) => {
                log::warn!("control socket: {error}");
                // Out of descriptors, most likely: they come back, spinning would not help.
                thread::sleep(Duration::from_millis(100));
            }
        }
    }
}

/// Gives the client a thread, or says why not.
fn admit(stream: UnixStream, served: &Arc<dyn Served>, crowd: &Arc<Crowd>) {
    let own_uid = rustix::process::geteuid().as_raw();
    let peer_uid = rustix::net::sockopt::socket_peercred(&stream).map(|peer| peer.uid.as_raw());
    if !peer_uid.is_ok_and(|uid| is_permitted(uid, own_uid)) {
        log::warn!("control socket: refused a request of user {peer_uid:?}");
        return turn_away(stream, "not permitted: only root and the user who mounted it may ask");
    }
    // ORDERING: Relaxed; a bound on threads, nothing is reached through it.
    if crowd.clients.fetch_add(1, Relaxed) >= CLIENTS_MAX {
        crowd.clients.fetch_sub(1, Relaxed);
        return turn_away(stream, "too many requests at once; try again");
    }
    let place = Place(crowd.clone());
    let served = served.clone();
    let thread = thread::Builder::new().name("uvfs-control-client".into());
    let started = thread.spawn(move || {
        if let Err(error) = converse(stream, &*served, &place.0) {
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
fn converse(mut stream: UnixStream, served: &dyn Served, crowd: &Crowd) -> io::Result<()> {
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
        // ORDERING: Relaxed; counted before the request can end anything.
        crowd.requests.fetch_add(1, Relaxed);
        let (reply, is_ending) = answer(&line, served);
        let sent = stream.write_all(reply.to_line().as_bytes());
        // ORDERING: Release, partner the Acquire in `Server::drop`.
        crowd.requests.fetch_sub(1, Release);
        sent?;
        if is_ending {
            // The open stream is the client's sign that the daemon still works; it closes when
            // the process ends.
            stream.set_read_timeout(None)?;
            return stream.read(&mut [0]).map(drop);
        }
    }
}

/// The reply to one line, and whether the daemon is about to end.
fn answer(line: &str, served: &dyn Served) -> (Reply, bool) {
    match serde_json::from_str(line) {
        Ok(Request::Stat) => (Reply { report: Some(served.report()), ..Reply::done() }, false),
        Ok(Request::Locks) => {
            (Reply { report: Some(locks_report::collect()), ..Reply::done() }, false)
        }
        Ok(Request::Set { settings }) => match served.set(&settings) {
            Ok(()) => (Reply::done(), false),
            Err(cause) => (Reply::refused(cause), false),
        },
        Ok(Request::Unmount { lazy }) => match served.unmount(lazy) {
            Ok(()) => (Reply::done(), true),
            Err(stays) => (Reply { busy: stays.busy, ..Reply::refused(stays.cause) }, false),
        },
        Err(error) => (Reply::refused(format!("not a request: {error}")), false),
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
mod tests {
    use super::*;
    use std::io::BufRead;
    use std::os::unix::fs::MetadataExt;
    use uvfs_concurrent::primitive::atomic::AtomicBool;

    #[derive(Debug, Default)]
    struct Fake {
        busy: AtomicBool,
    }

    impl Served for Fake {
        fn report(&self) -> serde_json::Value {
            serde_json::json!({"source": "fake"})
        }
        fn set(&self, settings: &BTreeMap<String, String>) -> Result<(), String> {
            settings.get("size").filter(|size| *size == "1").map(drop).ok_or("size is 1".into())
        }
        fn unmount(&self, lazy: bool) -> Result<(), Stays> {
            match self.busy.load(Relaxed) && !lazy {
                true => Err(Stays { cause: "in use".into(), busy: true }),
                false => Ok(()),
            }
        }
    }

    fn serve() -> (tempfile::TempDir, PathBuf, Server, Arc<Fake>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("0:1");
        let fake = Arc::new(Fake::default());
        let server = Server::start(&path, fake.clone()).unwrap();
        (folder, path, server, fake)
    }

    fn ask(stream: &mut UnixStream, line: &str) -> String {
        stream.write_all(line.as_bytes()).unwrap();
        let mut reply = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut reply).unwrap();
        reply
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
        let server = Server::start(&path, Arc::new(Fake::default())).unwrap();
        assert!(UnixStream::connect(&path).is_ok());
        drop(server);
        assert!(!path.exists());
    }
}
