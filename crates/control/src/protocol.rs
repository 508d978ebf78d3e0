//! Messages of the control socket: one JSON object per line, a request and its reply.
//!
//! ```text
//! {"op":"stat"}                  → {"ok":true,"report":{...}}
//! {"op":"locks"}                 → {"ok":true,"report":{...}}, the lock meter's
//! {"op":"set","settings":{"cache-size":"1G"}}
//!                                → {"ok":true} when all are done, or {"ok":false,"error":"..."}
//! {"op":"clean","request":"3:/photos/2019","sync":false,"dry_run":false}
//!                                → {"progress":{...}} for each step, then the report
//! {"op":"cached","directory":"/photos","depth":2}
//!                                → {"ok":true,"report":{...}}, the cached amounts by directory
//! {"op":"level","directory":"/photos","by":"bytes","most":100}
//!                                → {"ok":true,"report":{...}}, the amounts by its subdirectories
//! {"op":"policy","directory":"/photos","policy":"keep"}
//!                                → {"ok":true}; the policy `none` removes the mark
//! {"op":"policies"}              → {"ok":true,"report":[...]}, the marked directories
//! {"op":"unmount","lazy":false}  → {"ok":true} when the mount is out of the tree, then {"waits":{...}} for each change,
//!                                  {"ended":{...}}, and end of stream when the daemon has ended;
//!                                  or {"ok":false,"error":"...","busy":true}
//! ```
//!
//! # Boundary
//! Form only. A request is untrusted until [`read_line`] bounded it and [`Request`] parsed it. Replies have a larger
//! bound: the meter's report grows with the places that take locks. To end a cleaning early a client closes its sending
//! side, and still gets the report; a client that disconnects ends it, too.

use super::cleaned::Raw;
use super::level::LevelRequest;
use super::policies::PolicyRequest;
use super::resident::CachedRequest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use uvfs_vfs::{CleanProgress, clean};

/// Longest request, its newline included.
pub const REQUEST_BYTES_MAX: u64 = 64 << 10;
/// Longest reply, its newline included.
pub const REPLY_BYTES_MAX: u64 = 4 << 20;

/// A client's request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase")]
pub enum Request {
    /// The report of the mount.
    Stat,
    /// The report of the lock meter.
    Locks,
    /// To change settings, all or none.
    Set {
        /// Values by key, as [`crate::setting`] reads them.
        settings: BTreeMap<String, String>,
    },
    /// To clean a directory.
    Clean(CleanRequest),
    /// The cached amounts below a directory.
    Cached(CachedRequest),
    /// The cached amounts of a directory, by its subdirectories.
    Level(LevelRequest),
    /// To mark a directory.
    Policy(PolicyRequest),
    /// Which directories are marked.
    Policies,
    /// To make everything stable that was written.
    Commit,
    /// To end.
    Unmount {
        /// Also while in use.
        #[serde(default)]
        lazy: bool,
    },
}

/// The directory to clean, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanRequest {
    /// Which caches of which directory; the path begins at the root of the file system.
    #[serde(with = "written")]
    pub request: clean::request::Request,
    /// Write dirty pages first.
    #[serde(default)]
    pub sync: bool,
    /// Only count.
    #[serde(default)]
    pub dry_run: bool,
}

/// A request to clean, in its written form.
mod written {
    use super::{Raw, clean::request::Request};
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(request: &Request, to: S) -> Result<S::Ok, S::Error> {
        Raw(request.to_bytes()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Request, D::Error> {
        Request::parse(&Raw::deserialize(from)?.0).map_err(Error::custom)
    }
}

/// One line of the answer to [`Request::Clean`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CleanLine {
    /// A step of the cleaning.
    Progress {
        /// How far it is.
        progress: CleanProgress,
    },
    /// The last line.
    Reply(Reply),
}

/// The daemon's answer.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reply {
    /// Whether it was done.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// It was not done because the mount is in use.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub busy: bool,
    /// Answer to [`Request::Stat`] and [`Request::Locks`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report: Option<serde_json::Value>,
}

impl Reply {
    /// It was done.
    pub fn done() -> Self {
        Self { ok: true, ..Self::default() }
    }

    /// It was not done.
    pub fn refused(error: impl Into<String>) -> Self {
        Self { error: Some(error.into()), ..Self::default() }
    }

    /// The line, newline included.
    pub fn to_line(&self) -> String {
        // A `Value` has only string keys, so this cannot fail; a client would see a bare refusal.
        let text = serde_json::to_string(self);
        text.unwrap_or_else(|_| r#"{"ok":false}"#.into()) + "\n"
    }
}

/// Reads one line of at most `bytes_max`; `None` at the end of the stream.
///
/// # Errors
/// Those of `stream`; `InvalidData` when the line is longer or not text; `UnexpectedEof` when the
/// stream ends within it.
pub fn read_line(stream: &mut impl BufRead, bytes_max: u64) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    stream.take(bytes_max).read_until(b'\n', &mut line)?;
    match line.pop() {
        None => Ok(None),
        Some(b'\n') => String::from_utf8(line)
            .map(Some)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the line is not UTF-8")),
        Some(_) if line.len() as u64 + 1 >= bytes_max => {
            let text = format!("the line is longer than {} KiB", bytes_max >> 10);
            Err(io::Error::new(io::ErrorKind::InvalidData, text))
        }
        Some(_) => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::level::Measure;
    use super::*;
    use uvfs_vfs::CleanStage;

    fn parse(text: &str) -> Option<Request> {
        serde_json::from_str(text).ok()
    }

    #[test]
    fn requests_are_one_object_with_an_operation() {
        assert_eq!(parse(r#"{"op":"stat"}"#), Some(Request::Stat));
        assert_eq!(parse(r#"{"op":"locks"}"#), Some(Request::Locks));
        assert_eq!(parse(r#"{"op":"unmount"}"#), Some(Request::Unmount { lazy: false }));
        assert_eq!(parse(r#"{"op":"unmount","lazy":true}"#), Some(Request::Unmount { lazy: true }));
        let settings = BTreeMap::from([("cache-size".into(), "1G".into())]);
        let set = r#"{"op":"set","settings":{"cache-size":"1G"}}"#;
        assert_eq!(parse(set), Some(Request::Set { settings }));
        assert_eq!(parse(r#"{"op":"set"}"#), None);
        let clean = |request: &[u8], sync| {
            let request = clean::request::Request::parse(request).unwrap();
            Some(Request::Clean(CleanRequest { request, sync, dry_run: false }))
        };
        assert_eq!(parse(r#"{"op":"clean","request":"3:/a"}"#), clean(b"3:/a", false));
        assert_eq!(
            parse(r#"{"op":"clean","request":[49,58,47,255],"sync":true}"#),
            clean(b"1:/\xff", true)
        );
        for request in [clean(b"2", false), clean(b"1:/\xff", true)] {
            assert_eq!(parse(&serde_json::to_string(&request).unwrap()), request);
        }
        let cached = |depth| {
            let directory = Raw(b"/a".to_vec());
            Some(Request::Cached(CachedRequest { directory, depth }))
        };
        assert_eq!(parse(r#"{"op":"cached","directory":"/a"}"#), cached(None));
        assert_eq!(parse(r#"{"op":"cached","directory":[47,97],"depth":2}"#), cached(Some(2)));
        let level = LevelRequest { directory: Raw(b"/a".to_vec()), by: Measure::Names, most: None };
        let text = r#"{"op":"level","directory":"/a","by":"names"}"#;
        assert_eq!(parse(text), Some(Request::Level(level)));
        for bad in [r#"{"op":"cached"}"#, r#"{"op":"cached","directory":"/","depth":-1}"#] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        let keep = PolicyRequest { directory: Raw(b"/a".to_vec()), policy: "keep".into() };
        let text = r#"{"op":"policy","directory":"/a","policy":"keep"}"#;
        assert_eq!(parse(text), Some(Request::Policy(keep)));
        assert_eq!(parse(r#"{"op":"policies"}"#), Some(Request::Policies));
        assert_eq!(parse(r#"{"op":"commit"}"#), Some(Request::Commit));
        assert_eq!(parse(r#"{"op":"policy","directory":"/a"}"#), None);
        let relative = r#"{"op":"clean","request":"3:a"}"#;
        for bad in [r#"{"op":"clean"}"#, r#"{"op":"clean","request":3}"#, relative] {
            assert_eq!(parse(bad), None, "{bad}");
        }
        assert_eq!(parse(r#"{"op":"set","settings":{"cache-size":5}}"#), None);
        for bad in ["", "stat", "{}", r#"{"op":"reboot"}"#, r#"{"op":"unmount","lazy":3}"#, "[1]"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn replies_are_one_line_without_empty_fields() {
        assert_eq!(Reply::done().to_line(), "{\"ok\":true}\n");
        let refused = Reply { busy: true, ..Reply::refused("in\nuse") };
        let line = refused.to_line();
        assert_eq!(line, "{\"ok\":false,\"error\":\"in\\nuse\",\"busy\":true}\n");
        assert_eq!(serde_json::from_str::<Reply>(&line).unwrap(), refused);
    }

    #[test]
    fn progress_is_distinguished_from_the_last_line() {
        let read = |line: &str| serde_json::from_str::<CleanLine>(line).unwrap();
        let stage = CleanStage::Frontend;
        let progress = CleanProgress { done: 3, total: 9, freed: 1, stage };
        let line = CleanLine::Progress { progress };
        assert!(serde_json::to_string(&line).unwrap().contains(r#""phase":"kernel""#));
        assert_eq!(read(&serde_json::to_string(&line).unwrap()), line);
        assert_eq!(read(&Reply::done().to_line()), CleanLine::Reply(Reply::done()));
    }

    #[test]
    fn lines_are_bounded_and_whole() {
        let bytes_max = REQUEST_BYTES_MAX;
        let read = |bytes: &[u8]| read_line(&mut &*bytes, bytes_max).map_err(|error| error.kind());
        assert_eq!(read(b""), Ok(None));
        assert_eq!(read(b"a\nb"), Ok(Some("a".into())));
        assert_eq!(read(b"no end"), Err(io::ErrorKind::UnexpectedEof));
        assert_eq!(read(b"\xff\n"), Err(io::ErrorKind::InvalidData));
        let longest = [vec![b'x'; bytes_max as usize - 1], vec![b'\n']].concat();
        assert!(read(&longest).is_ok_and(|line| line.is_some()));
        let longer = vec![b'x'; bytes_max as usize];
        assert_eq!(read(&longer), Err(io::ErrorKind::InvalidData));
    }
}
