//! `uvfs drop`: empties caches of directories.
//!
//! # Boundary
//! Reads the requests, checks all of them before anything is dropped, and carries them out in turn: in a uvfs mount
//! through its daemon ([`mounted`]), elsewhere by visiting files. [`evict`] drops a file's pages, [`report`] prints.
//!
//! # Why
//! An impossible request is refused as a whole: a request for names of a foreign file system does not become one for
//! pages. Weakness: a directory that is removed between check and walk fails late.
//!
//! [`evict`]: super::evict
//! [`mounted`]: super::mounted
//! [`report`]: super::report

use super::evict::{Evict, Mode};
use super::flags::DropArguments;
use super::instead;
use super::meter::{self, Meter};
use super::mounted::{self, Target};
use super::opener::{self, Fill, Offered};
use super::report::{Report, Spinner};
use super::system;
use super::walk::Walk;
use crate::Failure;
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use uvfs_terminal::interrupt::Interrupt;
use uvfs_vfs::clean::request::{Refusal, Request};

/// Runs the subcommand.
///
/// # Errors
/// Invalid or impossible requests, before anything is dropped; and files that could not be reached.
pub fn run(arguments: &DropArguments) -> Result<ExitCode, Failure> {
    let requests: Vec<_> = arguments.requests.iter().map(parse).collect::<Result<_, _>>()?;
    if arguments.system {
        return system::run(&requests, arguments.dry_run, arguments.json);
    }
    if let (Some(_), Some(request)) =
        (&arguments.mount, requests.iter().find(|request| request.directory.is_some()))
    {
        let digit = request.what.digit();
        return Err(Failure::usage(format!(
            "request `{request}`: --mount is for all of a mount; write {digit} without a directory, or the whole \
             path and no --mount"
        )));
    }
    let offered = Offered::probe();
    if arguments.no_fill && !offered.can_leave_alone() {
        return Err(no_resolve_cached());
    }
    let mut jobs = Vec::new();
    for request in requests {
        jobs.push(Job::check(request, arguments.mount.as_deref(), offered, &jobs)?);
    }
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    let mut failures = Vec::new();
    for job in jobs {
        let (text, json, failure) = match job {
            Job::Host { request, directory } => {
                let report = walk(request, directory, arguments, offered, &interrupt)?;
                (report.text(), report.json(), report.failure())
            }
            Job::Mounted { request, target } => {
                let report = target.clean(request, arguments, offered, &interrupt)?;
                (report.text(), report.json(), report.failure())
            }
        };
        let line = if arguments.json { json.to_string() } else { text };
        crate::print_line(line.trim_end());
        failures.extend(failure);
        if interrupt.is_set() {
            failures.push("interrupted; objects dropped so far stay dropped".into());
            break;
        }
    }
    if failures.is_empty() {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::refused(failures.join("; ")))
    }
}

/// The refusal of `--no-fill` on an old kernel.
pub(super) fn no_resolve_cached() -> Failure {
    Failure::refused("--no-fill: needs openat2 with RESOLVE_CACHED, Linux 5.12; leave it out")
}

fn parse(text: &OsString) -> Result<Request, Failure> {
    let absolute = |path: &Path| match path.is_absolute() {
        true => path.to_path_buf(),
        false => std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
    };
    Request::parse_with(text.as_bytes(), absolute).map_err(|refusal| {
        let shown = text.to_string_lossy();
        let meant = match refusal {
            Refusal::Digit => meant(&shown).map(|meant| format!("; write {}", shorten(&meant))),
            _ => None,
        };
        let meant = meant.unwrap_or_default();
        Failure::usage(format!("request `{}`: {refusal}{meant}", shorten(&shown)))
    })
}

/// The request for all caches of the directory that `text` names, which begins with no valid digit.
fn meant(text: &str) -> Option<String> {
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let path = match text.split_once(':') {
        Some((before, path)) if digits(before) => path,
        _ => text,
    };
    let is_path = !path.is_empty() && !digits(path) && !path.starts_with('-');
    is_path.then(|| format!("3:{path} for all of them"))
}

/// The beginning of a text that may be long.
fn shorten(text: &str) -> String {
    const CHARACTERS_MAX: usize = 80;
    match text.char_indices().nth(CHARACTERS_MAX) {
        None => text.replace('\0', "\\0"),
        Some((end, _)) => format!("{}...", &text[..end]),
    }
}

/// A request that can be carried out.
#[derive(Debug)]
enum Job {
    /// By visiting the files of a directory.
    Host {
        /// Names it.
        request: Request,
        /// The directory.
        directory: OwnedFd,
    },
    /// By the daemon of a mount.
    Mounted {
        /// Names it, as the user sees it.
        request: Request,
        /// The directory.
        target: Target,
    },
}

impl Job {
    /// `others` were checked before: of one mount's, one is enough, as its daemon has few places for clients.
    fn check(
        request: Request,
        mount: Option<&Path>,
        offered: Offered,
        others: &[Self],
    ) -> Result<Self, Failure> {
        let target = match (&request.directory, mount) {
            (None, None) => {
                return Err(Failure::usage(format!(
                    "request `{request}`: which directory? write {request}:DIR, {request} with --mount MOUNTPOINT \
                     for all of a uvfs mount, or {request} with --system for the whole machine"
                )));
            }
            (None, Some(mountpoint)) => Some(Target::whole(mountpoint)?),
            (Some(path), _) => Target::find(path, offered).map_err(|refused| match refused {
                mounted::Refused::NotOpened(errno) => {
                    Failure::refused(not_opened(&request, path, errno))
                }
                mounted::Refused::Failure(failure) => failure,
            })?,
        };
        if let Some(target) = target {
            let is_same = |job: &Self| match job {
                Job::Mounted { target: other, .. } => other.is_in_mount_of(&target),
                Job::Host { .. } => false,
            };
            if !others.iter().any(is_same) {
                target.check()?;
            }
            return Ok(Job::Mounted { request, target });
        }
        let path = request.directory.as_deref().unwrap_or(Path::new("/"));
        let directory = opener::start(path, offered)
            .map_err(|errno| Failure::refused(not_opened(&request, path, errno)))?;
        // First: the remedy for names is a request for pages, of which there are none.
        if let Some(name) = meter::without_pages(directory.as_fd()) {
            return Err(Failure::refused(format!("{request}: {}", meter::no_pages(name))));
        }
        if let Some(name) = meter::memory(directory.as_fd()) {
            return Err(Failure::refused(format!(
                "{request}: a {name}, whose pages are the files themselves; nothing can be dropped, remove \
                 files instead"
            )));
        }
        if request.what.has_names() {
            return Err(Failure::refused(foreign_names(&request, path)));
        }
        Ok(Job::Host { request, directory })
    }
}

/// Visits the files below `directory`, which `request` names, and drops their pages.
///
/// # Errors
/// If the directory cannot be looked at.
pub(super) fn walk(
    request: Request,
    directory: OwnedFd,
    arguments: &DropArguments,
    offered: Offered,
    interrupt: &Interrupt,
) -> Result<Report, Failure> {
    let began = Instant::now();
    let meter = Meter::choose(directory.as_fd());
    let mode = Mode::of(arguments);
    let fill = if arguments.no_fill { Fill::Never } else { Fill::Allowed };
    let spinner = Spinner::new(&request.to_string());
    let walk = Walk { offered, fill, interrupt, show: &|progress| spinner.show(progress) };
    let evict = Evict::new(meter, mode);
    let path = request.directory.as_deref().unwrap_or(Path::new("/"));
    let walked = walk.run(directory, path.as_os_str(), &evict);
    spinner.end();
    let outcome = walked.map_err(|error| {
        Failure::refused(format!("{request}: {}; try again", crate::cause(&error)))
    })?;
    Ok(Report { request, mode, meter, fill, outcome, elapsed: began.elapsed() })
}

/// Why names of one directory stay.
fn foreign_names(request: &Request, path: &Path) -> String {
    let path = path.display();
    format!(
        "{request}: not a uvfs mount, and the kernel has no way to drop names and inodes of one directory; \
         drop its pages (`uvfs drop 1:{path}`), or as root everything of the machine (`uvfs drop {} --system`)",
        request.what.digit()
    )
}

/// The line for a directory that cannot be opened.
fn not_opened(request: &Request, path: &Path, errno: Errno) -> String {
    match errno {
        Errno::NOENT => {
            let instead = instead::of(&format!("{}:", request.what.digit()), path);
            format!("{request}: {}; {instead}", Refusal::Missing)
        }
        Errno::NOTDIR => format!("{request}: {}", Refusal::NotDirectory),
        Errno::LOOP => match fs::canonicalize(path) {
            Ok(real) => format!("{request}: {}, {}", Refusal::Symlink, real.display()),
            Err(_) => format!("{request}: {}", Refusal::Symlink),
        },
        Errno::ACCESS | Errno::PERM => {
            format!("{request}: {}; run as root or as its owner", crate::cause(&errno.into()))
        }
        Errno::NOTCONN => {
            format!(
                "{request}: in a mount whose daemon is gone; `uvfs stat` lists it, `uvfs unmount` ends it"
            )
        }
        _ => format!("{request}: {}", crate::cause(&errno.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `uvfs drop m` was answered with the meaning of the digits alone.
    #[test]
    fn a_directory_without_a_digit_is_understood() {
        let written = |text: &str| meant(text);
        assert_eq!(written("m").as_deref(), Some("3:m for all of them"));
        assert_eq!(written("/srv").as_deref(), Some("3:/srv for all of them"));
        assert_eq!(written("4:/srv").as_deref(), Some("3:/srv for all of them"));
        assert_eq!(written(":/srv").as_deref(), Some("3:/srv for all of them"));
        for nothing in ["", "0", "0:", "44", "-x"] {
            assert_eq!(written(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn what_the_kernel_cannot_do_is_said_with_what_can_be_done() {
        let request = Request::parse(b"3:/srv/a").unwrap();
        let line = foreign_names(&request, Path::new("/srv/a"));
        for part in ["3:/srv/a: ", "no way", "uvfs drop 1:/srv/a", "uvfs drop 3 --system"] {
            assert!(line.contains(part), "{line}");
        }
    }

    #[test]
    fn long_requests_are_shown_in_part() {
        assert_eq!(shorten("1:/a"), "1:/a");
        assert_eq!(shorten(&"é".repeat(100)).chars().count(), 83);
        assert_eq!(shorten("1:/\0"), "1:/\\0");
    }
}
