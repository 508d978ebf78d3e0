//! A link with latency, on loopback: what arrives at one end leaves at the other one a while later.
//!
//! # Boundary
//! Relays bytes between a client and a server, each direction late by half of a round trip, and counts requests of
//! HTTP. The server is an address, or a program that gets the connection as its standard input and output.
//!
//! # Concurrency
//! Four threads for each connection: in each direction one reads and one writes when the bytes are due, so that the
//! link delays and does not limit the rate. They end with the connection.
//!
//! # Why
//! A store on loopback answers in microseconds, and every cache looks useless. Weakness: no loss and no limit of rate;
//! a request is counted if it begins with its own packet, as those of all clients here do.

use crate::cleanup;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Where a link leads.
#[derive(Debug, Clone)]
pub(super) enum Server {
    Address(SocketAddr),
    /// Started for each connection.
    Program(PathBuf),
}

/// The near end of a link. It accepts connections until the process ends.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) address: SocketAddr,
    requests: Arc<AtomicU64>,
}

impl Link {
    /// Opens a link whose round trip takes `latency`.
    pub(super) fn open(server: Server, latency: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let requests = Arc::new(AtomicU64::new(0));
        let counted = requests.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let (server, counted) = (server.clone(), counted.clone());
                thread::spawn(move || {
                    if let Err(error) = relay(near, &server, latency / 2, &counted) {
                        eprintln!("uvfs-bench: a link to {server:?}: {error}");
                    }
                });
            }
        });
        Ok(Self { address, requests })
    }

    /// Requests of HTTP so far.
    pub(super) fn requests(&self) -> u64 {
        // ORDERING: Relaxed; a statistic, read after the client's command has ended.
        self.requests.load(Relaxed)
    }
}

/// Relays one connection to its end.
fn relay(
    near: TcpStream,
    server: &Server,
    delay: Duration,
    requests: &Arc<AtomicU64>,
) -> io::Result<()> {
    near.set_nodelay(true)?;
    let far = match server {
        Server::Address(address) => TcpStream::connect(address)?,
        Server::Program(program) => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let far = TcpStream::connect(listener.local_addr()?)?;
            let (theirs, _) = listener.accept()?;
            let input = OwnedFd::from(theirs.try_clone()?);
            let mut command = Command::new(program);
            command.stdin(Stdio::from(input)).stdout(Stdio::from(OwnedFd::from(theirs)));
            let mut child = command.stderr(Stdio::null()).spawn()?;
            cleanup::started(child.id());
            // The program ends with its connection.
            thread::spawn(move || {
                let _ = child.wait();
                cleanup::ended(child.id());
            });
            far
        }
    };
    far.set_nodelay(true)?;
    let (near_writes, far_writes) = (near.try_clone()?, far.try_clone()?);
    let requests = requests.clone();
    let there = thread::spawn(move || {
        late(near, far_writes, delay, |bytes| {
            const METHODS: [&[u8]; 5] = [b"GET ", b"PUT ", b"HEAD ", b"POST ", b"DELETE "];
            if METHODS.iter().any(|method| bytes.starts_with(method)) {
                // ORDERING: Relaxed; a statistic, read after the client has ended.
                requests.fetch_add(1, Relaxed);
            }
        });
    });
    late(far, near_writes, delay, |_| {});
    let _ = there.join();
    Ok(())
}

/// Copies `from` to `to` until one of them ends, each byte `delay` late.
fn late(mut from: TcpStream, mut to: TcpStream, delay: Duration, mut look: impl FnMut(&[u8])) {
    let (sender, due) = mpsc::sync_channel::<(Instant, Vec<u8>)>(256);
    let writer = thread::spawn(move || {
        for (moment, bytes) in due {
            thread::sleep(moment.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
    });
    let mut buffer = vec![0; 256 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        look(&buffer[..count]);
        if sender.send((Instant::now() + delay, buffer[..count].to_vec())).is_err() {
            break;
        }
    }
    drop(sender);
    let _ = writer.join();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes are late by a round trip, and the answer is whole.
    #[test]
    fn an_answer_takes_a_round_trip_and_requests_are_counted() {
        let link =
            Link::open(Server::Program("/bin/cat".into()), Duration::from_millis(40)).unwrap();
        let mut stream = TcpStream::connect(link.address).unwrap();
        let begin = Instant::now();
        stream.write_all(b"GET /a").unwrap();
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"GET /a");
        assert!(begin.elapsed() >= Duration::from_millis(40), "no sooner than the link");
        assert_eq!(link.requests(), 1);
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut answer).unwrap(), 0, "the end is relayed, too");
    }
}
