//! HTTP/1.1, as little of it as two small servers need: one request for each connection, and all of it bounded.
//!
//! # Boundary
//! Reads a request, writes a reply, and classifies a host name. The metrics of a mount and `uvfs web` define
//! the requests and their permissions.
//!
//! # Concurrency
//! None: a caller has a connection for itself.
//!
//! # Why
//! `httparse`, which is a dependency already, parses the heads of requests. A server crate would bring features that
//! have to be removed again: persistent connections, chunks, threads without a bound (decision 0031). A request with
//! two different lengths, or with chunks, is refused: nothing here needs it, and disagreement about the length is how
//! requests are smuggled. Weakness: a connection for each request, a third of a millisecond on loopback.

#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, TcpStream};
use std::time::{Duration, Instant};

/// Fields of a head at most; browsers send some twenty.
const FIELDS_MAX: usize = 64;
/// Bytes that are read, and not looked at, of a request that was refused.
const REFUSED_BYTES_MAX: usize = 256 << 10;
/// Time for these.
const REFUSED_TIME: Duration = Duration::from_millis(500);

/// The limits of a request.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of the first line and the fields.
    pub head_bytes: usize,
    /// Bytes of the body.
    pub body_bytes: usize,
    /// For all of it, and again for the reply.
    pub time: Duration,
}

/// A request, as it was sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Request {
    /// The method, such as `GET`.
    pub method: String,
    /// Without the part after a `?`.
    pub path: String,
    fields: Vec<(String, String)>,
    /// Empty if it has none.
    pub body: Vec<u8>,
}

impl Request {
    /// The value of a field; `None` if it is there twice, since either could be meant.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut values = self.values(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// All values of a field.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        let is_it = move |field: &&(String, String)| field.0.eq_ignore_ascii_case(name);
        self.fields.iter().filter(is_it).map(|(_, value)| value.as_str())
    }
}

/// A status and its words.
pub type Status = (u16, &'static str);

/// Done.
pub const OK: Status = (200, "OK");
/// The request breaks the rules of HTTP or of the page.
pub const BAD: Status = (400, "Bad Request");
/// The token is missing or wrong.
pub const UNAUTHORIZED: Status = (401, "Unauthorized");
/// Not for this client.
pub const FORBIDDEN: Status = (403, "Forbidden");
/// Nothing is at this path.
pub const NOT_FOUND: Status = (404, "Not Found");
/// The path has another method.
pub const NOT_ALLOWED: Status = (405, "Method Not Allowed");
/// Understood, and refused by the mount.
pub const CONFLICT: Status = (409, "Conflict");
/// The body exceeds its bound.
pub const TOO_LARGE: Status = (413, "Content Too Large");
/// The body is not JSON.
pub const WRONG_KIND: Status = (415, "Unsupported Media Type");
/// The head exceeds its bound.
pub const HEAD_TOO_LARGE: Status = (431, "Request Header Fields Too Large");
/// The request uses a part of HTTP that is left out.
pub const NOT_DONE: Status = (501, "Not Implemented");
/// Too many requests at once.
pub const BUSY: Status = (503, "Service Unavailable");

/// Why there is no request.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread {
    /// The client has disconnected, or took too long: there is no receiver for a reply.
    Gone,
    /// It is refused.
    Refused(Status),
}

impl From<io::Error> for Unread {
    fn from(_: io::Error) -> Self {
        Unread::Gone
    }
}

/// Reads one request.
///
/// # Errors
/// See [`Unread`].
pub fn read(stream: &mut TcpStream, limits: Limits) -> Result<Request, Unread> {
    let deadline = Instant::now() + limits.time;
    let mut bytes = Vec::new();
    let (mut request, begins, length) = loop {
        // Also of one that came with the last bytes that there is room for.
        match head(&bytes, limits) {
            Err(status) => return Err(Unread::Refused(status)),
            Ok(Some(head)) => break head,
            Ok(None) if bytes.len() >= limits.head_bytes => {
                return Err(Unread::Refused(HEAD_TOO_LARGE));
            }
            Ok(None) => more(stream, &mut bytes, limits.head_bytes, deadline)?,
        }
    };
    while bytes.len() < begins + length {
        more(stream, &mut bytes, begins + length, deadline)?;
    }
    request.body = bytes[begins..begins + length].to_vec();
    Ok(request)
}

/// The request without a body at the beginning of `bytes`; `None` until it is complete.
///
/// # Errors
/// The status with which it is refused.
pub fn parse(bytes: &[u8], limits: Limits) -> Result<Option<Request>, Status> {
    match head(bytes, limits)? {
        Some((request, _, _)) => Ok(Some(request)),
        None if bytes.len() >= limits.head_bytes => Err(HEAD_TOO_LARGE),
        None => Ok(None),
    }
}

/// Reads on, up to `bytes_max` of all.
fn more(
    stream: &mut TcpStream,
    bytes: &mut Vec<u8>,
    bytes_max: usize,
    deadline: Instant,
) -> io::Result<()> {
    let mut buffer = [0; 4096];
    let room = buffer.len().min(bytes_max - bytes.len());
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    match stream.read(&mut buffer[..room])? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        length => {
            bytes.extend_from_slice(&buffer[..length]);
            Ok(())
        }
    }
}

/// The head of a request, the start of its body and the body's length; `None` if it is not complete.
fn head(bytes: &[u8], limits: Limits) -> Result<Option<(Request, usize, usize)>, Status> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut parsed = httparse::Request::new(&mut fields);
    let begins = match parsed.parse(bytes) {
        Ok(httparse::Status::Partial) => return Ok(None),
        Ok(httparse::Status::Complete(begins)) => begins,
        Err(httparse::Error::TooManyHeaders) => return Err(HEAD_TOO_LARGE),
        Err(_) => return Err(BAD),
    };
    let mut request = Request {
        method: parsed.method.unwrap_or_default().to_owned(),
        path: parsed.path.unwrap_or_default().split('?').next().unwrap_or_default().to_owned(),
        ..Request::default()
    };
    for field in parsed.headers.iter() {
        let value = std::str::from_utf8(field.value).map_err(|_| BAD)?;
        request.fields.push((field.name.to_owned(), value.trim().to_owned()));
    }
    if request.values("transfer-encoding").next().is_some() {
        return Err(NOT_DONE);
    }
    let lengths: Vec<_> = request.values("content-length").collect();
    let length = match *lengths {
        [] => 0,
        [one] if !one.is_empty() && one.bytes().all(|byte| byte.is_ascii_digit()) => {
            one.parse().unwrap_or(usize::MAX)
        }
        _ => return Err(BAD),
    };
    match length > limits.body_bytes {
        true => Err(TOO_LARGE),
        false => Ok(Some((request, begins, length))),
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// See [`Status`].
    pub status: Status,
    /// The type of the body.
    pub kind: &'static str,
    /// More fields, with their values.
    pub fields: Vec<(&'static str, &'static str)>,
    /// The body, of the kind that its field names.
    pub body: Vec<u8>,
}

impl Reply {
    /// A reply with `body`, of `kind` (Content-Type).
    pub fn new(status: Status, kind: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status, kind, fields: Vec::new(), body: body.into() }
    }

    /// The reply as it is sent.
    pub fn bytes(&self) -> Vec<u8> {
        let (number, words) = self.status;
        let mut head = format!(
            "HTTP/1.1 {number} {words}\r\nContent-Type: {}\r\nContent-Length: {}\r\nX-Content-Type-Options: nosniff\r\n",
            self.kind,
            self.body.len()
        );
        for (name, value) in &self.fields {
            head += &format!("{name}: {value}\r\n");
        }
        head += "Connection: close\r\n\r\n";
        [head.as_bytes(), &self.body].concat()
    }
}

/// Sends `reply`, in the time of `limits`, and ends the connection. A client that does not read it gets none.
pub fn write(stream: &mut TcpStream, reply: &Reply, limits: Limits) {
    let deadline = Instant::now() + limits.time;
    let bytes = reply.bytes();
    let mut sent = 0;
    while sent < bytes.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || stream.set_write_timeout(Some(left)).is_err() {
            return;
        }
        match stream.write(&bytes[sent..]) {
            Ok(0) | Err(_) => return,
            Ok(length) => sent += length,
        }
    }
    // If a part of the request were unread, the kernel would discard the reply.
    let _ = stream.shutdown(Shutdown::Write);
    let deadline = Instant::now() + REFUSED_TIME;
    let mut unread = Vec::new();
    while more(stream, &mut unread, REFUSED_BYTES_MAX, deadline).is_ok()
        && unread.len() < REFUSED_BYTES_MAX
    {}
}

/// Sends the part of `reply` that the kernel takes at once, and ends the connection.
pub fn write_now(mut stream: &TcpStream, reply: &Reply) {
    let _ = stream.set_nonblocking(true);
    let _ = stream.write(&reply.bytes());
}

/// The name in the value of a `Host` field: without its port.
fn name(host: &str) -> &str {
    match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, _)) => name,
        None => host.split(':').next().unwrap_or(host),
    }
}

/// Whether a host is named by an address, or as `localhost`; with a port or without.
pub fn is_address(host: &str) -> bool {
    name(host).eq_ignore_ascii_case("localhost") || name(host).parse::<IpAddr>().is_ok()
}

/// Whether a host is named by an address of the loopback interface, or as `localhost`; with a port or without.
pub fn is_loopback(host: &str) -> bool {
    let is_loopback = |address: IpAddr| address.is_loopback();
    name(host).eq_ignore_ascii_case("localhost") || name(host).parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    const LIMITS: Limits =
        Limits { head_bytes: 1024, body_bytes: 100, time: Duration::from_secs(60) };

    /// The result of reading `bytes`, after which the sender closes its side.
    fn sent(bytes: &[u8], limits: Limits) -> Result<Request, Unread> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let bytes = bytes.to_vec();
        let sender = thread::spawn(move || {
            // Refused in the middle, it cannot send the rest.
            let _ = client.write_all(&bytes);
            let _ = client.shutdown(Shutdown::Write);
            client
        });
        let (mut stream, _) = listener.accept().unwrap();
        let request = read(&mut stream, limits);
        drop(stream);
        sender.join().unwrap();
        request
    }

    fn refused(bytes: &[u8]) -> Status {
        match sent(bytes, LIMITS) {
            Err(Unread::Refused(status)) => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_is_read_whole_and_no_further() {
        let text = "POST /a/b?c=d HTTP/1.1\r\nhost:  x \r\nContent-Length: 3\r\nX: 1\r\nx: 2\r\n\r\nabcdef";
        let request = sent(text.as_bytes(), LIMITS).unwrap();
        assert_eq!(
            (&*request.method, &*request.path, &*request.body),
            ("POST", "/a/b", &b"abc"[..])
        );
        assert_eq!((request.field("Host"), request.field("none")), (Some("x"), None));
        assert_eq!(request.field("x"), None, "it is ambiguous which of the two is meant");
        assert_eq!(request.values("X").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(sent(b"GET / HTTP/1.1\r\n\r\n", LIMITS).unwrap().body, b"");
    }

    #[test]
    fn what_is_too_much_or_can_be_read_in_two_ways_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\n\r\n", "x".repeat(2000));
        assert_eq!(refused(long.as_bytes()), HEAD_TOO_LARGE);
        let many = format!("GET / HTTP/1.1\r\n{}\r\n", "a:b\r\n".repeat(FIELDS_MAX + 1));
        assert_eq!(refused(many.as_bytes()), HEAD_TOO_LARGE);
        assert_eq!(refused(&[b'x'; 5000]), HEAD_TOO_LARGE);
        let with =
            |fields: &str| refused(format!("POST / HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes());
        assert_eq!(with("Content-Length: 101"), TOO_LARGE);
        assert_eq!(with("Content-Length: 99999999999999999999999"), TOO_LARGE);
        assert_eq!(with("Content-Length: 3\r\nContent-Length: 3"), BAD);
        for bad in ["+3", "-3", "3, 3", "", "0x3"] {
            assert_eq!(with(&format!("Content-Length: {bad}")), BAD, "{bad}");
        }
        assert_eq!(with("Transfer-Encoding: chunked"), NOT_DONE);
        assert_eq!(with("Content-Length: 3\r\nTransfer-Encoding: chunked"), NOT_DONE);
        assert_eq!(with("a: \u{e9}b\r\nx: \0"), BAD);
        assert_eq!(refused(b"GET / HTTP/1.1\r\na: \xff\r\n\r\n"), BAD);
        assert_eq!(refused(b"GET / HTTP/9.9\r\n\r\n"), BAD);
        assert_eq!(refused(b"\x16\x03\x01\x02\0\x01"), BAD, "a client that speaks TLS");
    }

    #[test]
    fn a_client_that_is_gone_or_takes_too_long_gets_nothing() {
        assert_eq!(sent(b"GET / HT", LIMITS), Err(Unread::Gone));
        assert_eq!(
            sent(b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", LIMITS),
            Err(Unread::Gone)
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let soon = Limits { time: Duration::from_millis(20), ..LIMITS };
        assert_eq!(read(&mut stream, soon), Err(Unread::Gone));
        drop(client);
    }

    #[test]
    fn names_of_hosts_are_no_addresses() {
        for host in
            ["127.0.0.1", "127.0.0.1:80", "localhost", "LocalHost:1", "[::1]:80", "127.9.9.9"]
        {
            assert!(is_loopback(host) && is_address(host), "{host}");
        }
        for host in ["10.0.0.1:80", "[2001:db8::1]"] {
            assert!(!is_loopback(host) && is_address(host), "{host}");
        }
        for host in
            ["", "a.example", "localhost.a.example", "127.0.0.1.a.example", "127.1", "a@127.0.0.1"]
        {
            assert!(!is_loopback(host) && !is_address(host), "{host}");
        }
    }
}
