//! The other end of the control socket: asks the daemon of a mount.
//!
//! # Why
//! Whether a daemon *answers* is the one sign of life that works without touching the mount: no
//! socket, or a socket that nobody serves, means that it is gone. Weakness: a daemon whose socket
//! somebody removed looks gone too; it then ends by a plain unmount like any other.

use super::place;
use super::protocol::{self, Reply, Request};
use crate::Failure;
use crate::mountinfo::MountEntry;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Time in which a daemon answers what needs no waiting.
pub(crate) const REPLY_TIME: Duration = Duration::from_secs(20);

/// Why a daemon could not be asked.
#[derive(Debug)]
pub(crate) enum Unreachable {
    /// It is gone.
    Nobody,
    /// Its socket is not for this user.
    NotPermitted,
    /// Something else.
    Failed(io::Error),
}

/// A connection to a daemon.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
}

/// Connects to the daemon that serves `mount`.
pub(crate) fn connect(mount: &MountEntry) -> Result<Connection, Unreachable> {
    let mut worst = Unreachable::Nobody;
    for path in place::candidates(mount) {
        match UnixStream::connect(path) {
            Ok(stream) => match rustix::net::sockopt::socket_peercred(&stream) {
                // A link in a user's folder could lead to somebody else's daemon.
                Ok(peer) if peer.uid.as_raw() != mount.owner_uid => {}
                Ok(_) => return Ok(Connection { stream: BufReader::new(stream) }),
                Err(errno) => worst = Unreachable::Failed(errno.into()),
            },
            Err(error) if place::means_nobody(&error) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                worst = Unreachable::NotPermitted;
            }
            Err(error) => worst = Unreachable::Failed(error),
        }
    }
    Err(worst)
}

/// Whether a daemon serves `mount`, as far as this user can tell; when in doubt, yes.
pub(crate) fn is_served(mount: &MountEntry) -> bool {
    !matches!(connect(mount), Err(Unreachable::Nobody))
}

impl Connection {
    /// Sends `request` and returns the reply, also a refusal.
    ///
    /// # Errors
    /// If the daemon does not answer within `limit`, or not in the protocol.
    pub(crate) fn ask(&mut self, request: Request, limit: Duration) -> Result<Reply, Failure> {
        self.exchange(request, limit).map_err(|error| {
            let cause = match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                    format!("no answer within {} s", limit.as_secs())
                }
                _ => crate::cause(&error),
            };
            Failure::refused(format!(
                "the daemon: {cause}; if it hangs, kill it and run `uvfs unmount` again"
            ))
        })
    }

    /// Asks for a report: [`Request::Stat`] or [`Request::Locks`].
    ///
    /// # Errors
    /// As [`Connection::ask`], and when the daemon refuses.
    pub(crate) fn report(&mut self, of: Request) -> Result<serde_json::Value, Failure> {
        let reply = self.ask(of, REPLY_TIME)?;
        reply.report.ok_or_else(|| {
            Failure::refused(reply.error.unwrap_or_else(|| "the daemon sent no report".into()))
        })
    }

    /// Waits until the daemon has ended; false when `limit` passed first.
    pub(crate) fn wait_for_end(mut self, limit: Duration) -> bool {
        let timed = self.stream.get_ref().set_read_timeout(Some(limit));
        let ended = timed.and_then(|()| self.stream.read(&mut [0]));
        // A reset is an end as well.
        !ended.is_err_and(|error| {
            matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
        })
    }

    fn exchange(&mut self, request: Request, limit: Duration) -> io::Result<Reply> {
        let line = serde_json::to_string(&request)? + "\n";
        let stream = self.stream.get_mut();
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        // A refused peer may find the stream closed; what was said before counts.
        let sent = stream.write_all(line.as_bytes());
        match protocol::read_line(&mut self.stream, protocol::REPLY_BYTES_MAX)? {
            Some(reply) => Ok(serde_json::from_str(&reply)?),
            None => sent.and(Err(io::Error::other("closed without an answer"))),
        }
    }
}
