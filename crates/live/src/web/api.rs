//! Answers to the page: its own parts, figures, one level of the cached amounts, and the result of a drop.
//!
//! # Boundary
//! From a request to a reply; daemons are asked like by other commands. [`gate`] checks permission.
//!
//! # Why
//! The name of a directory is in the body, never in an address, which histories and logs keep. Paths are text, or a
//! list of bytes if they are not UTF-8 ([`Raw`]), the form of all reports.

use super::gate::{self, Token, Wants};
use super::watch::Watch;
use crate::Failure;
use crate::mountinfo::{self, MountEntry};
use crate::top::sample::Sampler;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;
use uvfs_client as client;
use uvfs_control::cleaned::Raw;
use uvfs_control::level::{LevelRequest, Measure};
use uvfs_http::{self as http, Reply, Request, Status};
use uvfs_terminal::interrupt::Interrupt;

const JSON: &str = "application/json";

/// The page: where each part is, its kind, and itself.
const PAGE: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("page.html")),
    ("/page.css", "text/css; charset=utf-8", include_str!("page.css")),
    ("/page.js", "text/javascript; charset=utf-8", include_str!("page.js")),
];

/// The request for a level.
#[derive(Debug, Deserialize)]
struct LevelAsked {
    mountpoint: String,
    directory: Raw,
    #[serde(default)]
    by: Measure,
    most: Option<u32>,
}

/// The request for a drop.
#[derive(Debug, Deserialize)]
struct DropAsked {
    mountpoint: String,
    directory: Raw,
}

/// The mounts that the page shows.
pub(super) struct Site {
    token: Token,
    watch: Watch,
    /// Where they are; empty if it shows all.
    mountpoints: Vec<PathBuf>,
}

impl Site {
    /// A site of the mounts at `mountpoints`; without any, of all that there are.
    ///
    /// # Errors
    /// If one of them is no mount.
    pub(super) fn new(mountpoints: &[PathBuf]) -> Result<Self, Failure> {
        let watch = Watch::start(Sampler::new(mountpoints)?.without_directories())?;
        let token = Token::new().map_err(|error| {
            Failure::refused(format!("/dev/urandom: {}; mount /dev", crate::cause(&error)))
        })?;
        let found = mountpoints.iter().map(|path| Ok(mountinfo::find(path)?.mountpoint));
        Ok(Self { token, watch, mountpoints: found.collect::<Result<_, Failure>>()? })
    }

    pub(super) fn token(&self) -> &Token {
        &self.token
    }

    /// The answer to `request`.
    pub(super) fn reply(&self, request: &Request, interrupt: &Interrupt) -> Reply {
        gate::fenced(self.answer(request, interrupt))
    }

    fn answer(&self, request: &Request, interrupt: &Interrupt) -> Reply {
        let part = PAGE.iter().find(|(path, ..)| *path == request.path);
        let (wants, method) = match (&*request.path, part) {
            (_, Some(_)) => (Wants::Page, "GET"),
            ("/api/figures", _) => (Wants::Look, "GET"),
            ("/api/level" | "/api/drop", _) => (Wants::Ask, "POST"),
            // A client that names another host gets no information.
            _ => (Wants::Page, ""),
        };
        if let Err((status, why)) = gate::check(request, wants, &self.token) {
            return refusal(status, why);
        }
        if method.is_empty() {
            return refusal(http::NOT_FOUND, "there is no such page");
        }
        if request.method != method {
            let allow = vec![("Allow", method)];
            return Reply { fields: allow, ..refusal(http::NOT_ALLOWED, "another method") };
        }
        if let Some((_, kind, text)) = part {
            return Reply::new(http::OK, kind, *text);
        }
        let outcome = match &*request.path {
            "/api/figures" => self.watch.figures(),
            "/api/level" => asked(request).and_then(|asked| self.level(asked)),
            _ => asked(request).and_then(|asked| self.empty(asked, interrupt)),
        };
        match outcome {
            Ok(text) => Reply::new(http::OK, JSON, text),
            // Like for commands: invalid requests, and impossible ones.
            Err(failure) if failure.status() == 2 => refusal(http::BAD, &failure.to_string()),
            Err(failure) => refusal(http::CONFLICT, &failure.to_string()),
        }
    }

    /// The mount at `mountpoint`, by the table alone: no file system is touched.
    fn mount(&self, mountpoint: &str) -> Result<MountEntry, Failure> {
        let mounts = mountinfo::read()?;
        let mut at = mounts.into_iter().rev();
        let found = at.find(|mount| mount.mountpoint.to_str() == Some(mountpoint));
        let is_shown = |mount: &MountEntry| {
            mount.is_uvfs()
                && (self.mountpoints.is_empty() || self.mountpoints.contains(&mount.mountpoint))
        };
        found.filter(is_shown).ok_or_else(|| {
            Failure::refused(format!("{mountpoint}: not a mount of this page; reload it"))
        })
    }

    fn level(&self, asked: LevelAsked) -> Result<String, Failure> {
        let mut daemon = client::reach(&self.mount(&asked.mountpoint)?)?;
        let begun = Instant::now();
        let LevelAsked { directory, by, most, .. } = asked;
        let level = daemon.level(LevelRequest { directory, by, most }).map_err(Failure::refused)?;
        let took_ms = begun.elapsed().as_secs_f64() * 1e3;
        text(&json!({"took_ms": took_ms, "level": level}))
    }

    fn empty(&self, asked: DropAsked, interrupt: &Interrupt) -> Result<String, Failure> {
        let mut daemon = client::reach(&self.mount(&asked.mountpoint)?)?;
        let cleaned = daemon.empty(&asked.directory, &|| interrupt.is_set());
        let cleaned = cleaned.map_err(Failure::refused)?;
        let caches = &cleaned.caches;
        text(&json!({
            "names": caches.names.freed.entries,
            "inodes": caches.inodes.freed.entries,
            "page_bytes": caches.pages.freed.bytes,
            "seconds": caches.took.as_secs_f64(),
            "interrupted": cleaned.interrupted,
        }))
    }
}

/// The parsed body of `request`.
fn asked<T: DeserializeOwned>(request: &Request) -> Result<T, Failure> {
    serde_json::from_slice(&request.body).map_err(|error| Failure::usage(error.to_string()))
}

fn text(value: &Value) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| Failure::refused(error.to_string()))
}

/// A reply with the reason of a refusal.
pub(super) fn refusal(status: Status, why: &str) -> Reply {
    Reply::new(status, JSON, json!({"error": why}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;
    use uvfs_http::Limits;

    const LIMITS: Limits =
        Limits { head_bytes: 4096, body_bytes: 4096, time: Duration::from_secs(60) };

    fn request(text: &str) -> Request {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        client.write_all(text.as_bytes()).unwrap();
        http::read(&mut listener.accept().unwrap().0, LIMITS).unwrap()
    }

    /// Asks with the fields in their usual form, one of which is `changed` to another value, or left out if that is empty.
    fn ask(site: &Site, line: &str, body: &str, changed: (&str, &str)) -> Reply {
        let bearer = format!("Bearer {}", site.token().text());
        let length = body.len().to_string();
        let usual = [
            ("Host", "127.0.0.1:9568"),
            ("Authorization", &bearer),
            ("Origin", "http://127.0.0.1:9568"),
            ("Sec-Fetch-Site", "same-origin"),
            ("Content-Type", "application/json"),
            ("Content-Length", &length),
        ];
        let mut text = format!("{line} HTTP/1.1\r\n");
        for (name, value) in usual {
            let value = if name == changed.0 { changed.1 } else { value };
            if !value.is_empty() {
                text += &format!("{name}: {value}\r\n");
            }
        }
        site.reply(&request(&(text + "\r\n" + body)), &Interrupt::default())
    }

    const AS_USUAL: (&str, &str) = ("", "");
    const DROP: &str = r#"{"mountpoint":"/no/such","directory":"/"}"#;

    #[test]
    fn every_answer_forbids_frames_scripts_of_others_and_keeping_it() {
        let site = Site::new(&[]).unwrap();
        let replies = [
            ask(&site, "GET /", "", AS_USUAL),
            ask(&site, "GET /api/figures", "", AS_USUAL),
            ask(&site, "GET /api/figures", "", ("Authorization", "")),
            ask(&site, "POST /api/drop", DROP, AS_USUAL),
            ask(&site, "GET /none", "", AS_USUAL),
        ];
        assert_eq!(replies.each_ref().map(|reply| reply.status.0), [200, 200, 401, 409, 404]);
        for reply in &replies {
            let field = |name: &str| {
                let all: Vec<_> = reply.fields.iter().filter(|(one, _)| *one == name).collect();
                assert_eq!(all.len(), 1, "{name}");
                all[0].1
            };
            let policy = field("Content-Security-Policy");
            for part in ["default-src 'none'", "frame-ancestors 'none'", "form-action 'none'"] {
                assert!(policy.contains(part), "{policy}");
            }
            assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
            assert_eq!((field("X-Frame-Options"), field("Cache-Control")), ("DENY", "no-store"));
            assert_eq!(field("Referrer-Policy"), "no-referrer");
        }
    }

    #[test]
    fn all_but_our_own_page_are_refused() {
        let site = Site::new(&[]).unwrap();
        let status = |line: &str, changed| ask(&site, line, DROP, changed).status.0;
        // There is no mount: a request that passes the gate gets that answer.
        assert_eq!(status("POST /api/drop", AS_USUAL), 409);
        for host in
            ["rebound.example:9568", "10.0.0.1", "", "127.0.0.1.example", "localhost.example"]
        {
            for line in ["GET /", "GET /page.js", "GET /api/figures", "POST /api/drop", "GET /none"]
            {
                assert_eq!(status(line, ("Host", host)), 403, "{line} {host:?}");
            }
        }
        let wrong = format!("Bearer {}", "0".repeat(64));
        let almost = format!("Bearer {}x", site.token().text());
        let basic = format!("Basic {}", site.token().text());
        for token in ["", "Bearer ", &wrong, &almost, &basic, site.token().text()] {
            for line in ["GET /api/figures", "POST /api/level", "POST /api/drop"] {
                assert_eq!(status(line, ("Authorization", token)), 401, "{line} {token}");
            }
        }
        let origins = [
            "",
            "null",
            "http://evil.example",
            "https://127.0.0.1:9568",
            "http://127.0.0.1:1",
            "127.0.0.1:9568",
        ];
        for origin in origins {
            assert_eq!(status("POST /api/drop", ("Origin", origin)), 403, "{origin}");
            assert_eq!(status("POST /api/level", ("Origin", origin)), 403, "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert_eq!(status("GET /api/figures", ("Sec-Fetch-Site", site)), 403, "{site}");
            assert_eq!(status("POST /api/drop", ("Sec-Fetch-Site", site)), 403, "{site}");
        }
        for kind in ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"] {
            assert_eq!(status("POST /api/drop", ("Content-Type", kind)), 415, "{kind}");
        }
        assert_eq!(
            status("POST /api/drop", ("Content-Type", "application/JSON; charset=utf-8")),
            409
        );
        assert_eq!(status("POST /api/drop", ("Sec-Fetch-Site", "")), 409, "no browser");
    }

    #[test]
    fn methods_and_bodies_that_make_no_sense_are_refused() {
        let site = Site::new(&[]).unwrap();
        for line in [
            "POST /",
            "HEAD /",
            "PUT /api/drop",
            "GET /api/drop",
            "GET /api/level",
            "DELETE /api/figures",
        ] {
            let reply = ask(&site, line, DROP, AS_USUAL);
            assert_eq!(reply.status.0, 405, "{line}");
            assert!(reply.fields.iter().any(|(name, _)| *name == "Allow"), "{line}");
        }
        for body in [
            "",
            "{}",
            "[]",
            r#"{"mountpoint":1,"directory":"/"}"#,
            r#"{"mountpoint":"/a"}"#,
            "\u{0}",
        ] {
            assert_eq!(ask(&site, "POST /api/drop", body, AS_USUAL).status.0, 400, "{body:?}");
            assert_eq!(ask(&site, "POST /api/level", body, AS_USUAL).status.0, 400, "{body:?}");
        }
        let by = r#"{"mountpoint":"/a","directory":"/","by":"size"}"#;
        assert_eq!(ask(&site, "POST /api/level", by, AS_USUAL).status.0, 400);
        // A path that is no mount is not even opened.
        let reply =
            ask(&site, "POST /api/level", r#"{"mountpoint":"/proc","directory":"/"}"#, AS_USUAL);
        assert_eq!(reply.status.0, 409);
        assert!(String::from_utf8(reply.body).unwrap().contains("/proc: not a mount of this page"));
    }

    /// A page that fetched anything elsewhere would reveal its user.
    #[test]
    fn the_page_asks_no_other_server_and_makes_no_markup_of_text() {
        for (path, _, text) in PAGE {
            assert!(
                !text.contains("://")
                    || path == "/page.js"
                        && !text.replace("http://www.w3.org/2000/svg", "").contains("://"),
                "{path}"
            );
            for word in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
                "style=\"",
                "onclick",
            ] {
                assert!(!text.contains(word), "{path}: {word}");
            }
        }
    }
}
