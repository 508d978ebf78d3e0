//! The client of the control socket: asks the daemon of a mount.
//!
//! # Why
//! A daemon's *answer* is the one sign of life that works without touching the mount. A missing answer is no sign of
//! death: a program may serve a mount through the library without a socket, so the kernel is asked then
//! ([`crate::liveness`]).

use crate::Failure;
use crate::liveness::{self, Life};
use crate::mountinfo::MountEntry;
use crate::timed::{self, Timed};
use crate::young;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;
use serde::de::DeserializeOwned;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_control::cleaned::{Cleaned, Raw};
use uvfs_control::ended::{EndLine, Verdict, Waits};
use uvfs_control::level::{Level, LevelRequest};
use uvfs_control::place;
use uvfs_control::policies::{Mark, PolicyRequest};
use uvfs_control::protocol::{self, CleanLine, CleanRequest, REPLY_BYTES_MAX, Reply, Request};
use uvfs_control::resident::{Cached, CachedRequest};
use uvfs_vfs::clean;
use uvfs_vfs::{Clean, CleanProgress};

/// Time for a daemon's answer to a request without waits.
pub const REPLY_TIME: Duration = Duration::from_secs(20);

/// Time in which it accepts.
const CONNECT_TIME: Duration = Duration::from_secs(5);

/// Time for its answer whether its source hangs.
const HANGS_TIME: Duration = Duration::from_secs(2);

/// Time in which a daemon that broke its connection has ended, if it ends.
const ENDING_TIME: Duration = Duration::from_secs(5);

/// Time without a line of progress after which a cleaning's daemon is asked whether it lives, and for its answer.
const PROGRESS_TIME: Duration = Duration::from_secs(10);

/// Time between two looks for the socket of a starting mount.
const LOOK_FOR_SOCKET: Duration = Duration::from_millis(5);

/// Longest time between two checks for the user's request to end.
const LOOK: Duration = Duration::from_millis(50);

/// Why a daemon could not be asked.
#[derive(Debug)]
pub enum Unreachable {
    /// No process serves a socket of the mount.
    NotServed,
    /// The socket is not for this user.
    NotPermitted,
    /// Something else.
    Failed(io::Error),
}

/// A connection to a daemon.
#[derive(Debug)]
pub struct Connection {
    stream: BufReader<Timed>,
    /// The daemon, if it can be seen from here.
    process: Option<OwnedFd>,
    pid: i32,
    mount: Option<MountEntry>,
    /// The daemon closed it before an answer.
    is_broken: bool,
}

/// The daemon's messages about the end of its mount.
#[derive(Debug)]
pub enum End {
    /// The whole verdict.
    Verdict(Verdict),
    /// Nothing: it died, or is of another version.
    Silent,
    /// It sent nothing for too long; its last message.
    StillWorking(Waits),
}

/// Connects to the daemon that serves `mount`, which may be another user's.
pub fn connect(mount: &MountEntry) -> Result<Connection, Unreachable> {
    connect_within(mount, CONNECT_TIME)
}

/// Connects as [`connect`] does; waits no longer than `limit` for a daemon that is too busy to accept. A mount that may
/// just be starting is waited for, in any case.
pub fn connect_within(mount: &MountEntry, limit: Duration) -> Result<Connection, Unreachable> {
    loop {
        let may_start = young::may_be_starting(mount);
        match connect_now(mount, limit) {
            Err(Unreachable::NotServed) if may_start => thread::sleep(LOOK_FOR_SOCKET),
            outcome => return outcome,
        }
    }
}

fn connect_now(mount: &MountEntry, limit: Duration) -> Result<Connection, Unreachable> {
    let mut worst = Unreachable::NotServed;
    for path in place::candidates(mount) {
        let is_ours = place::is_socket_of(&path, mount.owner_uid);
        if !is_ours || young::is_of_former_mount(&path, mount) {
            continue;
        }
        match timed::connect(&path, limit) {
            Ok(stream) => match rustix::net::sockopt::socket_peercred(&stream) {
                // A link in a user's folder could lead to another user's daemon.
                Ok(peer) if peer.uid.as_raw() != mount.owner_uid => {}
                Ok(peer) => {
                    let process = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()).ok();
                    let pid = peer.pid.as_raw_nonzero().get();
                    let mount = Some(mount.clone());
                    return Ok(Connection { process, pid, mount, ..Connection::over(stream) });
                }
                Err(errno) => worst = Unreachable::Failed(errno.into()),
            },
            Err(error) if place::means_not_served(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                worst = Unreachable::NotPermitted;
            }
            Err(error) => worst = Unreachable::Failed(error),
        }
    }
    Err(worst)
}

/// [`connect`], for a command that cannot continue without.
///
/// # Errors
/// The reason why no daemon answers, and the remedy.
pub fn reach(mount: &MountEntry) -> Result<Connection, Failure> {
    let mountpoint = mount.mountpoint.display();
    connect(mount).map_err(|unreachable| match unreachable {
        Unreachable::NotServed => match liveness::of(mount) {
            Life::Dead => Failure::refused(gone(mount)),
            Life::Silent => Failure::refused(format!(
                "{mountpoint}: the process that serves it does not answer; if it hangs, end it"
            )),
            Life::Served | Life::Unknown => Failure::refused(format!(
                "{mountpoint}: served by a program that has no control socket; ask that program"
            )),
        },
        Unreachable::NotPermitted => not_permitted(mount),
        Unreachable::Failed(error) if is_timeout(&error) => Failure::refused(format!(
            "{mountpoint}: its daemon does not answer; if it hangs, kill it and run `uvfs unmount {mountpoint}`"
        )),
        Unreachable::Failed(error) => Failure::refused(format!(
            "{mountpoint}: its control socket: {}; try as root",
            crate::cause(&error)
        )),
    })
}

/// The refusal for a mount of another user.
pub fn not_permitted(mount: &MountEntry) -> Failure {
    let (mountpoint, owner) = (mount.mountpoint.display(), mount.owner_uid);
    Failure::refused(format!(
        "{mountpoint}: not permitted; run as root or as the user who mounted it ({owner})"
    ))
}

/// Whether a daemon serves `mount`, as far as this user can see; in doubt, true.
pub fn is_served(mount: &MountEntry) -> bool {
    !matches!(connect(mount), Err(Unreachable::NotServed)) || liveness::of(mount) != Life::Dead
}

/// Whether the daemon of `mount` reports that its source does not answer; false if no daemon reports it.
pub fn source_hangs(mount: &MountEntry) -> bool {
    let stat = connect_within(mount, Duration::ZERO).ok().and_then(|mut daemon| {
        let reply = daemon.ask(Request::Stat, HANGS_TIME).ok()?;
        reply.report
    });
    stat.is_some_and(|report| !report["source_silent_seconds"].is_null())
}

impl Connection {
    /// By `stream`, to a process that is not known.
    fn over(stream: UnixStream) -> Self {
        let stream = BufReader::new(Timed::new(stream));
        Self { stream, process: None, pid: 0, mount: None, is_broken: false }
    }

    /// Whether the daemon has broken this connection and ended; waits a moment for that end. A daemon that is killed
    /// closes its socket a little before its mount fails every request.
    pub fn is_gone(&self) -> bool {
        self.is_broken && self.process.as_ref().is_some_and(|process| ends(process, ENDING_TIME))
    }

    /// The failure of a request. `remedy` is that for a daemon that has not ended.
    fn failure(&self, cause: &str, remedy: &str) -> String {
        match &self.mount {
            Some(mount) if self.is_gone() => gone(mount),
            _ => format!("the daemon: {cause}; {remedy}"),
        }
    }

    /// Notes whether `error` says that the daemon closed the connection.
    fn note(&mut self, error: &io::Error) {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        self.is_broken |= matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof);
    }

    /// The process that serves it, by its number here.
    pub fn pid(&self) -> Option<i32> {
        (self.pid > 0).then_some(self.pid)
    }

    /// Sends `request` and returns the reply, also a refusal.
    ///
    /// # Errors
    /// If the daemon does not answer within `limit`, or not in the protocol.
    pub fn ask(&mut self, request: Request, limit: Duration) -> Result<Reply, Failure> {
        self.exchange(request, limit).map_err(|error| {
            self.note(&error);
            let cause = match is_timeout(&error) {
                true => format!("no answer within {} s", limit.as_secs()),
                false => crate::cause(&error),
            };
            let remedy = "if it hangs, kill it and run `uvfs unmount` again";
            Failure::refused(self.failure(&cause, remedy))
        })
    }

    /// Asks for a report: [`Request::Stat`] or [`Request::Locks`].
    ///
    /// # Errors
    /// As [`Connection::ask`], and when the daemon refuses.
    pub fn report(&mut self, of: Request) -> Result<serde_json::Value, Failure> {
        let reply = self.ask(of, REPLY_TIME)?;
        reply.report.ok_or_else(|| {
            Failure::refused(reply.error.unwrap_or_else(|| "the daemon sent no report".into()))
        })
    }

    /// The cached amounts below a directory.
    ///
    /// # Errors
    /// The reason of a refusal; without the name of the directory.
    pub fn cached(&mut self, request: CachedRequest) -> Result<Cached, String> {
        let reply = self.ask(Request::Cached(request), REPLY_TIME);
        report_of(reply.map_err(|failure| failure.to_string())?, "show its caches")
    }

    /// The cached amounts of a directory, by its subdirectories.
    ///
    /// # Errors
    /// The reason of a refusal; without the name of the directory.
    pub fn level(&mut self, request: LevelRequest) -> Result<Level, String> {
        let reply = self.ask(Request::Level(request), REPLY_TIME);
        report_of(reply.map_err(|failure| failure.to_string())?, "tell one level of its caches")
    }

    /// Marks a directory.
    ///
    /// # Errors
    /// Why it is not marked; without the name of the directory.
    pub fn set_policy(&mut self, request: PolicyRequest) -> Result<(), String> {
        let reply = self.ask(Request::Policy(request), REPLY_TIME);
        match reply.map_err(|failure| failure.to_string())? {
            Reply { ok: true, .. } => Ok(()),
            reply => Err(refusal(reply, "mark directories")),
        }
    }

    /// The marked directories.
    ///
    /// # Errors
    /// The reason of a refusal.
    pub fn policies(&mut self) -> Result<Vec<Mark>, String> {
        let reply = self.ask(Request::Policies, REPLY_TIME);
        report_of(reply.map_err(|failure| failure.to_string())?, "mark directories")
    }

    /// Has a directory cleaned, as long as the daemon lives, and passes progress to `show`. When `is_enough` returns true, the
    /// daemon is asked to end early.
    ///
    /// # Errors
    /// The reason if it was not done; without the name of the request.
    pub fn clean(
        &mut self,
        request: CleanRequest,
        show: &dyn Fn(CleanProgress),
        is_enough: &dyn Fn() -> bool,
    ) -> Result<Cleaned, String> {
        let sent = self.send(&Request::Clean(request), REPLY_TIME);
        sent.map_err(|error| self.lost(&error))?;
        let mut line = Vec::new();
        let mut was_ended = false;
        let mut lived = Instant::now();
        loop {
            if is_enough() && !was_ended {
                was_ended = true;
                // The daemon may have ended meanwhile; the read reports it.
                let _ = self.stream.get_ref().socket().shutdown(Shutdown::Write);
            }
            let room = REPLY_BYTES_MAX.saturating_sub(line.len() as u64);
            self.stream.get_mut().end_in(LOOK);
            match (&mut self.stream).take(room).read_until(b'\n', &mut line) {
                Err(error) if is_timeout(&error) && lived.elapsed() < PROGRESS_TIME => continue,
                Err(error) if is_timeout(&error) => {
                    self.see_life()?;
                    lived = Instant::now();
                    continue;
                }
                Err(error) => return Err(self.lost(&error)),
                Ok(_) if !line.ends_with(b"\n") => {
                    let ended = "ended without an answer";
                    return Err(self.lost(&io::Error::new(io::ErrorKind::UnexpectedEof, ended)));
                }
                Ok(_) => {}
            }
            lived = Instant::now();
            let read = serde_json::from_slice(&line);
            line.clear();
            match read.map_err(|error| self.lost(&error.into()))? {
                CleanLine::Progress { progress } => show(progress),
                CleanLine::Reply(reply) => return report_of(reply, "clean"),
            }
        }
    }

    /// The failure of a cleaning.
    fn lost(&mut self, error: &io::Error) -> String {
        self.note(error);
        self.failure(&crate::cause(error), "try again")
    }

    /// Asks by a connection of its own whether the daemon, which says nothing on this one, answers at all.
    ///
    /// # Errors
    /// The words for a daemon that does not.
    fn see_life(&self) -> Result<(), String> {
        let Some(mount) = &self.mount else { return Ok(()) };
        let mut other = reach(mount).map_err(|failure| failure.to_string())?;
        other.ask(Request::Stat, PROGRESS_TIME).map(drop).map_err(|failure| failure.to_string())
    }

    /// Empties the caches of a directory, uvfs's and the kernel's in front of them, as `uvfs drop 3:DIRECTORY` does.
    ///
    /// # Errors
    /// As [`Connection::clean`].
    pub fn empty(
        &mut self,
        directory: &Raw,
        is_enough: &dyn Fn() -> bool,
    ) -> Result<Cleaned, String> {
        let request =
            clean::request::Request::new(Clean::Both, Path::new(OsStr::from_bytes(&directory.0)));
        let request = request.map_err(|refusal| refusal.to_string())?;
        self.clean(CleanRequest { request, sync: false, dry_run: false }, &|_| {}, is_enough)
    }

    /// After a granted [`Request::Unmount`]: waits for the daemon's verdict, for `patience` beyond the last moment at
    /// which the bytes left to be written decreased. Passes the remaining work to `show`. Ends early when `is_enough`
    /// returns true.
    pub fn see_end(
        &mut self,
        patience: Duration,
        show: &mut dyn FnMut(&Waits),
        is_enough: &dyn Fn() -> bool,
    ) -> End {
        let mut deadline = Instant::now() + patience;
        let (mut line, mut last) = (Vec::new(), Waits::default());
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || is_enough() {
                return End::StillWorking(last);
            }
            let room = REPLY_BYTES_MAX.saturating_sub(line.len() as u64);
            self.stream.get_mut().end_in(left.min(LOOK));
            match (&mut self.stream).take(room).read_until(b'\n', &mut line) {
                Err(error) if is_timeout(&error) => continue,
                // A reset is an end as well.
                Err(_) => return End::Silent,
                Ok(_) if !line.ends_with(b"\n") => return End::Silent,
                Ok(_) => {}
            }
            match serde_json::from_slice(&line) {
                Ok(EndLine::Ended { ended }) => return End::Verdict(ended),
                Ok(EndLine::Waits { waits }) => {
                    if waits.dirty_bytes < last.dirty_bytes {
                        deadline = Instant::now() + patience;
                    }
                    show(&waits);
                    last = waits;
                }
                Err(_) => return End::Silent,
            }
            line.clear();
        }
    }

    /// Waits until the daemon's process has ended; false when `limit` passed first.
    pub fn wait_for_process(mut self, limit: Duration) -> bool {
        let deadline = Instant::now() + limit;
        self.stream.get_mut().end_in(limit);
        let closed = self.stream.read(&mut [0]);
        if closed.is_err_and(|error| is_timeout(&error)) {
            return false;
        }
        // The kernel closes the stream on the way to the end of the process.
        let Some(process) = &self.process else { return true };
        ends(process, deadline.saturating_duration_since(Instant::now()))
    }

    fn exchange(&mut self, request: Request, limit: Duration) -> io::Result<Reply> {
        // A refused peer may find the stream closed; its earlier reply counts.
        let sent = self.send(&request, limit);
        match protocol::read_line(&mut self.stream, REPLY_BYTES_MAX)? {
            Some(reply) => Ok(serde_json::from_str(&reply)?),
            None => {
                let closed = "closed without an answer";
                sent.and(Err(io::Error::new(io::ErrorKind::UnexpectedEof, closed)))
            }
        }
    }

    fn send(&mut self, request: &Request, limit: Duration) -> io::Result<()> {
        let line = serde_json::to_string(request)? + "\n";
        let stream = self.stream.get_mut();
        // For the whole answer, however slowly it arrives.
        stream.end_in(limit);
        let mut socket = stream.socket();
        socket.set_write_timeout(Some(limit))?;
        socket.write_all(line.as_bytes())
    }
}

/// The refusal for a mount whose daemon has ended.
fn gone(mount: &MountEntry) -> String {
    let mountpoint = mount.mountpoint.display();
    format!("{mountpoint}: its daemon is gone; run `uvfs unmount {mountpoint}`")
}

/// Whether `process` ends within `limit`.
fn ends(process: &OwnedFd, limit: Duration) -> bool {
    let mut polled = [PollFd::new(process, PollFlags::IN)];
    let limit = Timespec::try_from(limit).unwrap_or_default();
    !matches!(rustix::event::poll(&mut polled, Some(&limit)), Ok(0))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The report in `reply`, of a daemon asked to `what`.
fn report_of<T: DeserializeOwned>(reply: Reply, what: &str) -> Result<T, String> {
    match reply {
        Reply { ok: true, report: Some(report), .. } => {
            serde_json::from_value(report).map_err(|error| {
                format!("the daemon's report: {error}; mount again with this version")
            })
        }
        reply => Err(refusal(reply, what)),
    }
}

/// The reason why the daemon did not `what`.
fn refusal(reply: Reply, what: &str) -> String {
    match reply.error {
        // A daemon of an older version.
        Some(error) if error.starts_with("not a request: unknown variant") => {
            format!("its daemon is of a version that cannot {what}; unmount it and mount it again")
        }
        error => error.unwrap_or_else(|| "the daemon sent no report".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks for a cleaning; the peer is `serve`.
    fn clean(
        serve: impl FnOnce(BufReader<UnixStream>) + Send + 'static,
        show: &dyn Fn(CleanProgress),
        is_enough: &dyn Fn() -> bool,
    ) -> Result<Cleaned, String> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let peer = std::thread::spawn(move || serve(BufReader::new(theirs)));
        let mut connection = Connection::over(ours);
        let request = CleanRequest {
            request: clean::request::Request::parse(b"3:/").unwrap(),
            sync: false,
            dry_run: false,
        };
        let cleaned = connection.clean(request, show, is_enough);
        peer.join().unwrap();
        cleaned
    }

    #[test]
    fn steps_come_before_the_report_however_the_bytes_arrive() {
        let shown = std::cell::Cell::new(0);
        let cleaned = clean(
            |mut peer| {
                let mut request = String::new();
                peer.read_line(&mut request).unwrap();
                assert!(request.starts_with(r#"{"op":"clean""#), "{request}");
                let said =
                    b"{\"progress\":{\"done\":7}}\n{\"ok\":true,\"report\":{\"not_written\":2}}\n";
                for byte in said {
                    peer.get_mut().write_all(&[*byte]).unwrap();
                }
            },
            &|step| shown.set(shown.get() + step.done),
            &|| false,
        );
        assert_eq!((cleaned.unwrap().caches.not_written, shown.get()), (2, 7));
    }

    #[test]
    fn a_caller_that_wants_an_end_still_gets_the_report() {
        let cleaned = clean(
            |mut peer| {
                let mut all = String::new();
                peer.read_to_string(&mut all).expect("the sending side is closed");
                peer.get_mut()
                    .write_all(b"{\"ok\":true,\"report\":{\"interrupted\":true}}\n")
                    .unwrap();
            },
            &|_| {},
            &|| true,
        );
        assert!(cleaned.unwrap().interrupted);
    }

    #[test]
    fn a_daemon_that_dies_or_refuses_or_is_old_is_said() {
        let check = |said: &'static str, expected: &str| {
            let serve = move |mut peer: BufReader<UnixStream>| {
                peer.read_line(&mut String::new()).unwrap();
                peer.get_mut().write_all(said.as_bytes()).unwrap();
            };
            let refused = clean(serve, &|_| {}, &|| false).unwrap_err();
            assert!(refused.contains(expected), "{refused}");
        };
        check("", "ended without an answer");
        check("{\"progress\":{}}\n{\"ok\"", "ended without an answer");
        check("nonsense\n", "the daemon: ");
        check("{\"ok\":false,\"error\":\"no such directory\"}\n", "no such directory");
        let old = "{\"ok\":false,\"error\":\"not a request: unknown variant `clean`, expected\"}\n";
        check(old, "mount it again");
    }

    /// Bug: root's `uvfs stat` waited for ever for another user's daemon that sent a byte every few seconds.
    #[test]
    fn an_answer_that_comes_drop_by_drop_has_one_time_limit() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let peer = std::thread::spawn(move || {
            while theirs.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut connection = Connection::over(ours);
        connection.stream.get_mut().line_time = Duration::from_secs(3600);
        let refused = connection.ask(Request::Stat, Duration::from_secs(1)).unwrap_err();
        assert!(refused.to_string().contains("no answer within 1 s"), "{refused}");
        let ended = connection.see_end(Duration::from_millis(200), &mut |_| {}, &|| false);
        assert!(matches!(ended, End::StillWorking(_)), "{ended:?}");
        drop(connection);
        peer.join().unwrap();
    }

    /// Bug: so did `uvfs unmount`, which allows a daemon a minute to write everything: it waited that minute.
    #[test]
    fn an_answer_that_has_begun_has_to_end_soon() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let peer = std::thread::spawn(move || {
            while theirs.write_all(b" ").is_ok() {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let mut connection = Connection::over(ours);
        connection.stream.get_mut().line_time = Duration::from_millis(100);
        let hour = Duration::from_secs(3600);
        let refused = connection.ask(Request::Unmount { lazy: false }, hour).unwrap_err();
        assert!(refused.to_string().contains("began an answer and did not end it"), "{refused}");
        let ended = connection.see_end(hour, &mut |_| {}, &|| false);
        assert!(matches!(ended, End::Silent), "{ended:?}");
        drop(connection);
        peer.join().unwrap();
    }

    /// Bug: Ctrl-C killed `uvfs unmount` while it waited, without a report of unwritten data.
    #[test]
    fn a_caller_that_has_waited_enough_learns_what_is_left() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"{\"waits\":{\"dirty_bytes\":7}}\n").unwrap();
        let mut connection = Connection::over(ours);
        let seen = std::cell::Cell::new(0);
        let ended = connection.see_end(
            Duration::from_secs(3600),
            &mut |waits| seen.set(waits.dirty_bytes),
            &|| seen.get() > 0,
        );
        assert!(matches!(&ended, End::StillWorking(waits) if waits.dirty_bytes == 7), "{ended:?}");
    }

    /// `kill -9 PID; uvfs unmount M` met the daemon between the end of its socket and the end of its mount. The command
    /// failed with "Connection reset by peer", and left the dead mount.
    #[test]
    fn a_daemon_that_dies_before_its_answer_is_gone() {
        for at_once in [true, false] {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let mut daemon = std::process::Command::new("/bin/cat");
            let daemon = daemon.stdin(std::process::Stdio::piped()).spawn();
            let mut daemon = daemon.expect("cat is everywhere");
            let pid = rustix::process::Pid::from_child(&daemon);
            let process = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok();
            let mut connection = Connection { process, ..Connection::over(ours) };
            assert!(!connection.is_gone(), "nothing is known yet");
            drop(theirs);
            if at_once {
                daemon.kill().unwrap();
            }
            assert!(connection.ask(Request::Stat, Duration::from_secs(60)).is_err());
            // A daemon that ends a moment later is waited for.
            let stdin = daemon.stdin.take();
            let ending = std::thread::spawn(move || drop(stdin));
            assert!(connection.is_gone());
            ending.join().unwrap();
            daemon.wait().unwrap();
        }
    }

    /// A daemon that refuses, or sends nonsense, lives.
    #[test]
    fn a_daemon_that_answers_is_not_gone() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(b"nonsense\n").unwrap();
        let own = rustix::process::getpid();
        let process = rustix::process::pidfd_open(own, PidfdFlags::empty()).ok();
        let mut connection = Connection { process, ..Connection::over(ours) };
        assert!(connection.ask(Request::Stat, Duration::from_secs(60)).is_err());
        assert!(!connection.is_gone());
    }

    /// Bug: the client also wrote that daemon's text to the terminal unescaped.
    #[test]
    fn what_a_daemon_says_is_shown_and_not_obeyed() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let peer = std::thread::spawn(move || {
            let mut peer = BufReader::new(theirs);
            peer.read_line(&mut String::new()).unwrap();
            let said = br#"{"ok":false,"error":"\u001b]0;pwned\u0007\nuvfs: another line"}"#;
            peer.get_mut().write_all(said).unwrap();
            peer.get_mut().write_all(b"\n").unwrap();
        });
        let mut connection = Connection::over(ours);
        let refused = connection.report(Request::Stat).unwrap_err().to_string();
        assert_eq!(refused, "\\x1b]0;pwned\\x07\\nuvfs: another line");
        peer.join().unwrap();
    }
}
