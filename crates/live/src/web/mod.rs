//! `uvfs web`: a page of the mounts, for a browser on this machine.
//!
//! # Boundary
//! The socket, the threads, and the end. [`gate`] checks permission, [`api`] answers, [`watch`] has the live figures;
//! the page itself is three files in this folder, which are part of the program.
//!
//! # Concurrency
//! Each connection has a thread, at most [`CONNECTIONS_MAX`] at a time, for one request, which has [`PATIENCE`] to
//! arrive and as much to be answered. One thread samples all mounts, only while there are requests.
//!
//! # Why
//! A daemon serves no page: a process of the watching user reads the browser's bytes. It has only that user's rights,
//! those of `uvfs drop`, and ends with Ctrl-C. Only loopback, since nothing is encrypted; `ssh -L` forwards it.
//! Weakness: other users of this machine can connect, and take all places for [`PATIENCE`], again and again; they see
//! the page without figures.

mod api;
mod gate;
mod watch;

use crate::Failure;
use crate::flags::WebArguments;
use api::Site;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering::Relaxed};
use uvfs_http::{self as http, Limits, Unread};
use uvfs_terminal::interrupt::Interrupt;

/// Connections at once.
const CONNECTIONS_MAX: usize = 32;
/// Time for a request to come, and for its answer to be taken.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest time between two checks for Ctrl-C.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

const LIMITS: Limits = Limits { head_bytes: 16 << 10, body_bytes: 64 << 10, time: PATIENCE };

/// Runs the subcommand, until Ctrl-C. Calls `restrict` before it reads bytes of strangers: that gives up rights.
///
/// # Errors
/// If an argument is no mount, or the address cannot be used.
pub fn run(arguments: &WebArguments, restrict: impl FnOnce()) -> Result<ExitCode, Failure> {
    let address = address(&arguments.listen)?;
    let refused = |error: io::Error| {
        let (listen, cause) = (&arguments.listen, crate::cause(&error));
        Failure::refused(format!("--listen {listen}: {cause}; write another port, or 0 for any"))
    };
    let site = Arc::new(Site::new(&arguments.mountpoints)?);
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    let listener = TcpListener::bind(address).map_err(refused)?;
    let address = listener.local_addr().map_err(refused)?;
    // Behind the `#`: the browser does not send that part.
    crate::print_line(&format!("uvfs: http://{address}/#{}", site.token().text()));
    // From here on it reads bytes of strangers.
    restrict();
    serve(&listener, &site, &interrupt).map_err(refused)?;
    Ok(ExitCode::SUCCESS)
}

/// The address that `listen` names: a port of the loopback interface, or a loopback address with a port.
fn address(listen: &str) -> Result<SocketAddr, Failure> {
    let port = listen.parse().map(|port: u16| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    let address = port.or_else(|_| listen.parse::<SocketAddr>()).map_err(|_| {
        Failure::usage(format!(
            "--listen {listen}: no address; write a port, such as 9568, or 127.0.0.1:9568"
        ))
    })?;
    let is_mapped =
        |address: IpAddr| matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    match address.ip().is_loopback() && !is_mapped(address.ip()) {
        true => Ok(address),
        false => Err(Failure::usage(format!(
            "--listen {listen}: not of this machine alone, and nothing is encrypted; listen on 127.0.0.1 and forward the port: \
             ssh -L 9568:127.0.0.1:9568 HOST"
        ))),
    }
}

/// One of the places; released when dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        // ORDERING: Relaxed; a bound on threads, nothing is reached through it.
        let before = taken.fetch_add(1, Relaxed);
        let place = Self(taken.clone());
        (before < CONNECTIONS_MAX).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // ORDERING: Relaxed; a bound on threads, nothing is reached through it.
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Gives each connection a thread, until Ctrl-C.
fn serve(listener: &TcpListener, site: &Arc<Site>, interrupt: &Interrupt) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let taken = Arc::new(AtomicUsize::new(0));
    while !interrupt.is_set() {
        let mut polled = [PollFd::new(listener, PollFlags::IN)];
        match rustix::event::poll(&mut polled, Some(&LOOK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(errno.into()),
        }
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
            Err(_) => {
                // Such as no descriptor left: they come back, spinning would not help.
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let _ = stream.set_nonblocking(false);
        let Some(place) = Place::take(&taken) else {
            http::write_now(
                &stream,
                &gate::fenced(api::refusal(http::BUSY, "too many at once; try again")),
            );
            continue;
        };
        let (site, interrupt) = (site.clone(), interrupt.clone());
        let thread = thread::Builder::new().name("uvfs-web".into());
        // Without a thread the connection is closed, which is answer enough.
        let _ = thread.spawn(move || {
            let _place = place;
            answer(stream, &site, &interrupt);
        });
    }
    Ok(())
}

fn answer(mut stream: TcpStream, site: &Site, interrupt: &Interrupt) {
    let reply = match http::read(&mut stream, LIMITS) {
        Ok(request) => site.reply(&request, interrupt),
        Err(Unread::Refused(status)) => {
            gate::fenced(api::refusal(status, "not a request for this page"))
        }
        Err(Unread::Gone) => return,
    };
    http::write(&mut stream, &reply, LIMITS);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_listened_on() {
        assert_eq!(address("9568").unwrap().to_string(), "127.0.0.1:9568");
        assert_eq!(address("127.0.0.2:0").unwrap().to_string(), "127.0.0.2:0");
        assert_eq!(address("[::1]:80").unwrap().to_string(), "[::1]:80");
        for bad in ["", "localhost:80", "99999", "127.0.0.1"] {
            assert!(address(bad).unwrap_err().to_string().contains("no address"), "{bad}");
        }
        for open in [
            "0.0.0.0:80",
            "10.0.0.1:80",
            "[::]:80",
            "[::ffff:127.0.0.1]:80",
            "[::ffff:10.0.0.1]:80",
        ] {
            assert!(address(open).unwrap_err().to_string().contains("ssh -L"), "{open}");
        }
    }

    #[test]
    fn places_have_a_bound_and_come_back() {
        let taken = Arc::new(AtomicUsize::new(0));
        let mut places: Vec<_> =
            (0..CONNECTIONS_MAX).map(|_| Place::take(&taken).unwrap()).collect();
        assert!(Place::take(&taken).is_none() && Place::take(&taken).is_none());
        places.pop();
        assert!(Place::take(&taken).is_some());
    }
}
