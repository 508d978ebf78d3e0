//! One request to a server of this machine, and its answer.
//!
//! # Boundary
//! Sends bytes that the caller has made, and checks only the status: for rivals and daemons that get a few requests, on
//! connections that end with the answer.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Sends `request` (with Connection: close) to `address` and returns the body. Blocks for `limit` at most for each piece of it.
///
/// # Errors
/// No connection, no answer in time, or a status other than 200, with all of the answer.
pub(crate) fn exchange(
    address: impl ToSocketAddrs,
    limit: Duration,
    request: &str,
) -> io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(limit))?;
    // At once: a server may answer and close when it has read a part.
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    match head.split(' ').nth(1) {
        Some("200") => Ok(body.to_owned()),
        _ => Err(io::Error::other(answer.trim().to_owned())),
    }
}
