//! Messages to systemd from a service of `Type=notify`.
//!
//! # Boundary
//! One datagram to the socket that systemd names. If it names none, it does not wait.
//!
//! # Why
//! A unit that needs the mount has to start when the mount exists, not when the program was started. Twenty lines for a
//! protocol that systemd documents as stable need no library. Weakness: a missing socket is not reported; systemd then
//! reports that the start took too long.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where systemd listens: a path, or a name behind `@`.
const SOCKET: &str = "NOTIFY_SOCKET";

/// The service does its work.
pub(crate) const READY: &str = "READY=1";
/// It ends, and may take its time.
pub(crate) const STOPPING: &str = "STOPPING=1";

/// Reports to systemd that `state` holds, if systemd started this process and expects reports.
pub(crate) fn tell(state: &str) {
    if let Some(socket) = std::env::var_os(SOCKET)
        && let Err(error) = send(&socket, state)
    {
        log::warn!("{SOCKET}: {}; systemd is not told {state}", crate::cause(&error));
    }
}

fn send(socket: &OsStr, state: &str) -> io::Result<()> {
    let address = match socket.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives_at_a_path_and_at_a_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("uvfs-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        for (socket, listener) in [
            (path.clone().into_os_string(), UnixDatagram::bind(&path).unwrap()),
            (format!("@{name}").into(), UnixDatagram::bind_addr(&address).unwrap()),
        ] {
            send(&socket, READY).unwrap();
            let mut message = [0; 64];
            let length = listener.recv(&mut message).unwrap();
            assert_eq!(&message[..length], READY.as_bytes());
        }
        assert!(send(OsStr::new("/none/such"), READY).is_err());
    }
}
