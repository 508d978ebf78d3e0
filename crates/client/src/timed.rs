//! A socket to a peer that may not answer: every operation on it ends in time.
//!
//! # Boundary
//! Connecting and reading. [`uvfs_control::protocol`] has the messages.
//!
//! # Why
//! A socket's own time limit restarts with each byte, and connecting has none: root's client waited for ever for
//! another user's daemon that sent a byte now and then, or that never accepted. A daemon may need a minute before its
//! answer that all is written, but none to write the line: so a line that has begun has a time limit of its own.
//! Weakness: one call to the clock and one to the kernel for each read.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time in which a line that has begun has to end: a server thinks before it writes, and writes at once.
const LINE_TIME: Duration = Duration::from_secs(5);

/// Connects to the socket at `path`, and waits at most `limit` for the server to accept.
///
/// # Errors
/// Those of connecting; [`io::ErrorKind::WouldBlock`] if the queue of clients stayed full.
pub(super) fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::STREAM;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // The kernel waits that long for room in the queue of clients. Zero would be for ever.
    let limit = limit.max(Duration::from_millis(1));
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(limit))?;
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// A socket that is read until a moment, and not for longer.
#[derive(Debug)]
pub(super) struct Timed {
    socket: UnixStream,
    end: Option<Instant>,
    /// When the line began that has no end yet.
    line_began: Option<Instant>,
    /// Time in which a line that has begun has to end.
    pub(super) line_time: Duration,
}

impl Timed {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, end: None, line_began: None, line_time: LINE_TIME }
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// From now on reads end in `limit` altogether, however many there are.
    pub(super) fn end_in(&mut self, limit: Duration) {
        self.end = Some(Instant::now() + limit);
    }

    /// Time left of a line that has begun; fails if there is none.
    fn line_left(&self) -> io::Result<Option<Duration>> {
        let Some(began) = self.line_began else { return Ok(None) };
        match self.line_time.saturating_sub(began.elapsed()) {
            left if left.is_zero() => {
                Err(io::Error::other("it began an answer and did not end it"))
            }
            left => Ok(Some(left)),
        }
    }

    /// Notes whether `bytes` leave a line without its end.
    fn note_line(&mut self, bytes: &[u8]) {
        match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(last) if last + 1 == bytes.len() => self.line_began = None,
            Some(_) => self.line_began = Some(Instant::now()),
            None if bytes.is_empty() => {}
            None => _ = self.line_began.get_or_insert_with(Instant::now),
        }
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let line_left = self.line_left()?;
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(left.into_iter().chain(line_left).min())?;
        match self.socket.read(into) {
            Ok(length) => {
                self.note_line(&into[..length]);
                Ok(length)
            }
            // Which of the two times it was.
            Err(error) => Err(self.line_left().err().unwrap_or(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen, socket_with};

    /// Bug: with that queue full, root's plain `uvfs stat` hung, too.
    #[test]
    fn connecting_to_a_server_that_never_accepts_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener =
            socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None);
        let listener = listener.unwrap();
        bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&listener, 0).unwrap();
        let waiting: Vec<_> =
            std::iter::from_fn(|| connect(&path, Duration::ZERO).ok()).take(100).collect();
        assert!((1..100).contains(&waiting.len()), "{}", waiting.len());
        let refused = connect(&path, Duration::from_millis(50)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(listener);
        assert!(uvfs_control::place::means_not_served(
            &connect(&path, Duration::ZERO).unwrap_err()
        ));
    }
}
