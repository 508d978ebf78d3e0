//! A socket to somebody who may not answer: everything on it ends in time.
//!
//! # Boundary
//! Connecting and reading. What is said is [`super::protocol`]'s.
//!
//! # Why
//! A socket's own time limit begins anew with each byte, and connecting has none: root's client waited for ever
//! for another user's daemon that sent a byte now and then, or that never accepted. Weakness: one call to the
//! clock and one to the kernel for each read.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, sockopt};
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Connects to the socket at `path`, and waits no longer than `limit` for somebody to accept.
///
/// # Errors
/// Those of connecting; [`io::ErrorKind::WouldBlock`] if so many wait already that nobody did.
pub(super) fn connect(path: &Path, limit: Duration) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let kind = SocketType::STREAM;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
    // The kernel waits that long for room among those who wait to be accepted. Zero would be for ever.
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
}

impl Timed {
    pub(super) fn new(socket: UnixStream) -> Self {
        Self { socket, end: None }
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// From now on reads end in `limit` altogether, however many there are.
    pub(super) fn end_in(&mut self, limit: Duration) {
        self.end = Some(Instant::now() + limit);
    }
}

impl Read for Timed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.socket.set_read_timeout(left)?;
        self.socket.read(into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{bind, listen, socket_with};

    /// With all places of those who wait taken, root's plain `uvfs stat` hung as well.
    #[test]
    fn connecting_to_somebody_who_never_accepts_ends() {
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
        assert!(super::super::place::means_nobody(&connect(&path, Duration::ZERO).unwrap_err()));
    }
}
