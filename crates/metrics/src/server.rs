//! The metrics of one mount over HTTP, for a scraper.
//!
//! # Boundary
//! Answers `GET /metrics` and nothing else. The socket is opened before the mount, so that an address in use refuses
//! the mount.
//!
//! # Concurrency
//! One thread serves up to [`CONNECTIONS_MAX`] connections, and waits for none of them alone: each has [`PATIENCE`] to
//! ask and as much to read its answer. A connection beyond that number ends the oldest one without a request. The
//! thread holds the mount only while it samples.
//!
//! # Why
//! Loopback unless an address is given, since the answer has names of directories. A page in a browser also reaches
//! loopback, through a name whose owner points it there; so the host of a request has to be an address or `localhost`.
//! Any local user may connect, and the thread reads their bytes: the caller takes its capabilities, files
//! and programs from it (`restrict`). Weakness: each complete request costs a report of the mount, so a user
//! that asks again and again takes a processor.

use super::text::Format;
use super::{Sampled, text};
use crate::Failure;
use rustix::event::{PollFd, PollFlags, Timespec};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};
use uvfs_http::{self as http, Limits, Reply, Request};

/// Connections at once.
const CONNECTIONS_MAX: usize = 64;
/// Answers with metrics that are being sent at once; they take memory.
const ANSWERS_MAX: usize = 8;
/// Time for a request, and for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
const LIMITS: Limits = Limits { head_bytes: 8 << 10, body_bytes: 0, time: PATIENCE };

const TEXT: &str = "text/plain; charset=utf-8";

/// Opens the socket that `address` names: a port of the loopback interface, or an address with a port.
///
/// # Errors
/// It is no address, or cannot be had.
pub fn open(address: &str) -> Result<TcpListener, Failure> {
    let port = address.parse().map(|port: u16| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port));
    let read = port.or_else(|_| address.parse()).map_err(|_| {
        Failure::usage(format!(
            "--metrics {address}: no address; write a port, such as 9567, or 127.0.0.1:9567"
        ))
    })?;
    TcpListener::bind(read).map_err(|error| {
        let cause = crate::cause(&error);
        Failure::refused(format!("--metrics {address}: {cause}; write another port, or 0 for any"))
    })
}

/// Answers at `listener` with the results of `sample`, until that returns none. The thread first calls `restrict`, which
/// gives up the rights that it does not need.
///
/// # Errors
/// If its thread cannot be started.
pub fn start(
    listener: TcpListener,
    restrict: impl FnOnce() + Send + 'static,
    sample: impl Fn() -> Option<Sampled> + Send + 'static,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let serve = move || {
        restrict();
        let mut clients = Vec::new();
        while serve_some(&listener, &mut clients, &sample) {}
    };
    thread::Builder::new().name("uvfs-metrics".into()).spawn(serve).map(drop)
}

/// A connection.
struct Client {
    stream: TcpStream,
    stage: Stage,
    /// When it is cut off.
    until: Instant,
}

/// How far a connection is.
enum Stage {
    /// So much of the request has come.
    Asking(Vec<u8>),
    /// The answer, and how much of it is sent.
    Answering(Vec<u8>, usize),
    /// All is sent. If a part of the request were unread, the kernel would discard the answer.
    Leaving,
}

impl Client {
    fn new(stream: TcpStream) -> Self {
        Self { stream, stage: Stage::Asking(Vec::new()), until: Instant::now() + PATIENCE }
    }

    fn is_asking(&self) -> bool {
        matches!(self.stage, Stage::Asking(_))
    }

    /// Makes progress without blocking; an error ends the connection. `reply` builds the response, also for a malformed
    /// request.
    fn go_on(
        &mut self,
        reply: &mut dyn FnMut(Result<Request, http::Status>) -> Reply,
    ) -> io::Result<()> {
        let mut buffer = [0; 4096];
        loop {
            match &mut self.stage {
                Stage::Asking(bytes) => {
                    let room = buffer.len().min(LIMITS.head_bytes - bytes.len());
                    match self.stream.read(&mut buffer[..room])? {
                        0 => return Err(ErrorKind::UnexpectedEof.into()),
                        length => bytes.extend_from_slice(&buffer[..length]),
                    }
                    let answer = match http::parse(bytes, LIMITS) {
                        Ok(None) => continue,
                        Ok(Some(request)) => reply(Ok(request)),
                        Err(status) => reply(Err(status)),
                    };
                    self.stage = Stage::Answering(answer.bytes(), 0);
                    self.until = Instant::now() + PATIENCE;
                }
                Stage::Answering(answer, sent) => {
                    *sent += self.stream.write(&answer[*sent..])?;
                    if *sent == answer.len() {
                        self.stream.shutdown(Shutdown::Write)?;
                        self.stage = Stage::Leaving;
                    }
                }
                Stage::Leaving => {
                    if self.stream.read(&mut buffer)? == 0 {
                        return Err(ErrorKind::UnexpectedEof.into());
                    }
                }
            }
        }
    }
}

/// Waits until a connection arrives or can continue, and serves those; false when there is nothing to sample any more.
fn serve_some(
    listener: &TcpListener,
    clients: &mut Vec<Client>,
    sample: &dyn Fn() -> Option<Sampled>,
) -> bool {
    let now = Instant::now();
    clients.retain(|client| client.until > now);
    let first = clients.iter().map(|client| client.until).min();
    let left = first.map(|first| first.saturating_duration_since(now));
    let left = left.and_then(|left| Timespec::try_from(left).ok());
    let mut polled = vec![PollFd::new(listener, PollFlags::IN)];
    polled.extend(clients.iter().map(|client| {
        let wanted = if matches!(client.stage, Stage::Answering(..)) {
            PollFlags::OUT
        } else {
            PollFlags::IN
        };
        PollFd::new(&client.stream, wanted)
    }));
    if rustix::event::poll(&mut polled, left.as_ref()).is_err() {
        return true;
    }
    let ready: Vec<_> = polled.iter().map(|polled| !polled.revents().is_empty()).collect();
    drop(polled);
    let mut sampling = true;
    let mut answering =
        clients.iter().filter(|client| matches!(client.stage, Stage::Answering(..))).count();
    let mut reply = |request: Result<Request, http::Status>| match request {
        Ok(request) => reply(&request, &mut |format| {
            answering += 1;
            if answering > ANSWERS_MAX {
                return None;
            }
            let sampled = sample();
            sampling &= sampled.is_some();
            Some(text::render(&[sampled?], format))
        }),
        Err(status) => Reply::new(status, TEXT, "GET /metrics\n"),
    };
    let mut at = 0;
    clients.retain_mut(|client| {
        at += 1;
        !ready[at] || is_kept(client.go_on(&mut reply))
    });
    // A few at a time: a flood of connections does not delay the answers to others.
    for _ in 0..CONNECTIONS_MAX {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => {
                log::warn!("metrics: {}", crate::cause(&error));
                // Probably EMFILE: retry after a pause.
                thread::sleep(Duration::from_millis(100));
                break;
            }
        };
        if stream.set_nonblocking(true).is_err() {
            continue;
        }
        let mut client = Client::new(stream);
        // A scraper's request usually arrives with its connection.
        if !is_kept(client.go_on(&mut reply)) {
            continue;
        }
        if clients.len() >= CONNECTIONS_MAX {
            match clients.iter().position(Client::is_asking) {
                Some(oldest) => drop(clients.remove(oldest)),
                None => continue,
            }
        }
        clients.push(client);
    }
    sampling
}

fn is_kept(outcome: io::Result<()>) -> bool {
    outcome
        .is_err_and(|error| matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted))
}

/// The answer to `request`; `metrics` is called only for a request for them.
fn reply(request: &Request, metrics: &mut dyn FnMut(Format) -> Option<String>) -> Reply {
    if !request.values("host").all(http::is_address) {
        return Reply::new(http::FORBIDDEN, TEXT, "name the host by its address\n");
    }
    match (&*request.method, &*request.path) {
        ("GET", "/metrics") => {
            let format = Format::accepted(request.values("accept"));
            match metrics(format) {
                Some(text) => Reply::new(http::OK, format.kind(), text),
                None => Reply::new(http::BUSY, TEXT, "too many at once; try again\n"),
            }
        }
        (_, "/metrics") => {
            let fields = vec![("Allow", "GET")];
            Reply { fields, ..Reply::new(http::NOT_ALLOWED, TEXT, "GET\n") }
        }
        _ => Reply::new(http::NOT_FOUND, TEXT, "/metrics\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};

    #[test]
    fn an_address_is_a_port_of_loopback_unless_it_says_more() {
        assert!(open("0").unwrap().local_addr().unwrap().ip().is_loopback());
        let taken = open("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap().to_string();
        let refused = open(&address).unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("--metrics {address}: Address already in use; ")),
            "{refused}"
        );
        for bad in ["", "localhost", "99999", "1.2.3.4", "host:1"] {
            assert!(open(bad).unwrap_err().to_string().contains("no address"), "{bad}");
        }
    }

    /// Serves on a port of its own, and returns the address.
    fn served() -> SocketAddr {
        let listener = open("0").unwrap();
        let address = listener.local_addr().unwrap();
        let sample = || {
            let (report, locks) = (json!({"since": 1}), json!(null));
            Some(Sampled { mountpoint: "/m".into(), source: "s".into(), report, locks })
        };
        start(listener, || {}, sample).unwrap();
        address
    }

    fn ask(address: SocketAddr, request: &str) -> String {
        let mut client = TcpStream::connect(address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn one_page_is_served_and_only_to_clients_that_name_an_address() {
        let address = served();
        let status = |request: &str| ask(address, request).split("\r\n").next().unwrap().to_owned();
        for good in [
            "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:9567\r\n\r\n",
            "GET /metrics?a=b HTTP/1.1\r\nhost: localhost\r\n\r\n",
            "GET /metrics HTTP/1.0\r\n\r\n",
            "GET /metrics HTTP/1.1\r\nHost: [::1]:9567\r\n\r\n",
        ] {
            assert_eq!(status(good), "HTTP/1.1 200 OK", "{good}");
        }
        let rebound = "GET /metrics HTTP/1.1\r\nHost: rebound.example:9567\r\n\r\n";
        assert_eq!(status(rebound), "HTTP/1.1 403 Forbidden");
        assert_eq!(status("POST /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 405 Method Not Allowed");
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), "HTTP/1.1 404 Not Found");
        assert_eq!(status("nonsense\r\n\r\n"), "HTTP/1.1 400 Bad Request");
    }

    #[test]
    fn the_format_is_the_one_that_is_asked_for() {
        let address = served();
        let with = |accept: &str| ask(address, &format!("GET /metrics HTTP/1.1\r\n{accept}\r\n"));
        let prometheus = "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3\r\n";
        for open in ["", "Accept: */*\r\n", prometheus] {
            let answer = with(open);
            assert!(answer.contains("Content-Type: application/openmetrics-text"), "{answer}");
            assert!(answer.ends_with("# EOF\n"), "{answer}");
        }
        let answer = with("Accept: text/plain;version=0.0.4\r\n");
        assert!(answer.contains("Content-Type: text/plain; version=0.0.4"), "{answer}");
        assert!(
            !answer.contains("# EOF") && answer.contains("uvfs_start_time_seconds{"),
            "{answer}"
        );
    }

    /// Bug: silent connections were served one after the other, two seconds each: three hundred of them, of any local
    /// user, delayed every scraper for ten minutes.
    #[test]
    fn a_scraper_is_answered_behind_many_that_say_nothing_or_too_much() {
        let address = served();
        let mut flood = TcpStream::connect(address).unwrap();
        // It is cut off somewhere in the middle.
        let _ = flood.write_all(&vec![b'x'; 1 << 20]);
        let silent: Vec<_> =
            (0..3 * CONNECTIONS_MAX).map(|_| TcpStream::connect(address).unwrap()).collect();
        let answer = ask(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text")
        );
        assert!(answer.contains("uvfs_start_time_seconds{mountpoint=\"/m\"} 1\n"), "{answer}");
        // The first of them were cut off for the later ones, so none is waited for.
        let mut first = &silent[0];
        assert!(matches!(first.read(&mut [0]), Ok(0) | Err(_)));
        drop(flood);
    }
}
