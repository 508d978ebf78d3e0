//! The metrics of one mount over HTTP, for a scraper.
//!
//! # Boundary
//! Answers `GET /metrics` and nothing else. The socket is opened before anything is mounted, so that an address that is taken
//! refuses the mount.
//!
//! # Concurrency
//! One thread takes one connection after the other, and gives each [`PATIENCE`] to ask and as much to be answered: a scraper comes a few times in
//! a minute. It holds the mount only while it answers.
//!
//! # Why
//! Loopback unless an address is written, since names of directories are in the answer. A page in a browser reaches loopback
//! too, by a name that its owner lets point there; so the host that a request names has to be an address or `localhost`.
//! Weakness: who may connect can hold up a scraper for that patience, again and again.

use super::{Sampled, text};
use crate::Failure;
use crate::http::{self, Limits, Reply, Request, Unread};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Time for a request, and for its answer.
const PATIENCE: Duration = Duration::from_secs(2);
const LIMITS: Limits = Limits { head_bytes: 8 << 10, body_bytes: 0, time: PATIENCE };

const TEXT: &str = "text/plain; charset=utf-8";
const KIND: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Opens the socket that `address` names: a port of the loopback interface, or an address with a port.
///
/// # Errors
/// It is no address, or cannot be had.
pub(crate) fn open(address: &str) -> Result<TcpListener, Failure> {
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

/// Answers at `listener` with what `sample` finds, until it finds nothing.
///
/// # Errors
/// If there is no thread for it.
pub(crate) fn start(
    listener: TcpListener,
    sample: impl Fn() -> Option<Sampled> + Send + 'static,
) -> io::Result<()> {
    let serve = move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => match sample() {
                    Some(sampled) => answer(stream, &text::render(&[sampled])),
                    None => return,
                },
                Err(error) => {
                    log::warn!("metrics: {}", crate::cause(&error));
                    // Such as no descriptor left: not again at once.
                    thread::sleep(PATIENCE);
                }
            }
        }
    };
    thread::Builder::new().name("uvfs-metrics".into()).spawn(serve).map(drop)
}

fn answer(mut stream: TcpStream, metrics: &str) {
    let reply = match http::read(&mut stream, LIMITS) {
        Ok(request) => reply(&request, metrics),
        Err(Unread::Refused(status)) => Reply::new(status, TEXT, "GET /metrics\n"),
        // Whoever is gone or says nothing is told nothing.
        Err(Unread::Gone) => return,
    };
    http::write(&mut stream, &reply, LIMITS);
}

fn reply(request: &Request, metrics: &str) -> Reply {
    if !request.values("host").all(http::is_address) {
        return Reply::new(http::FORBIDDEN, TEXT, "name the host by its address\n");
    }
    match (&*request.method, &*request.path) {
        ("GET", "/metrics") => Reply::new(http::OK, KIND, metrics),
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

    #[test]
    fn one_page_is_served_and_only_to_those_who_name_an_address() {
        let listener = open("0").unwrap();
        let address = listener.local_addr().unwrap();
        let status = |request: &str| {
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(request.as_bytes()).unwrap();
            answer(listener.accept().unwrap().0, "x");
            let mut told = String::new();
            client.read_to_string(&mut told).unwrap();
            told.split("\r\n").next().unwrap().to_owned()
        };
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
    fn a_scraper_is_answered_behind_one_that_says_nothing_or_too_much() {
        let listener = open("0").unwrap();
        let address = listener.local_addr().unwrap();
        let sample = || {
            let report = json!({"since": 1});
            Some(Sampled {
                mountpoint: "/m".into(),
                source: "s".into(),
                report,
                locks: json!(null),
            })
        };
        start(listener, sample).unwrap();
        let mut flood = TcpStream::connect(address).unwrap();
        // It is cut off somewhere in the middle.
        let _ = flood.write_all(&vec![b'x'; 1 << 20]);
        let silent = TcpStream::connect(address).unwrap();
        let mut scraper = TcpStream::connect(address).unwrap();
        scraper.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        scraper.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut answer = String::new();
        scraper.read_to_string(&mut answer).unwrap();
        assert!(
            answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text")
        );
        assert!(answer.contains("uvfs_start_time_seconds{mountpoint=\"/m\"} 1\n"), "{answer}");
        assert!(answer.ends_with("# EOF\n"), "{answer}");
        drop((flood, silent));
    }
}
