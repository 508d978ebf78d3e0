//! `uvfs drop --system`: the kernel's own switch, for the whole machine.
//!
//! # Boundary
//! Writes a digit to `/proc/sys/vm/drop_caches`, and reads the kernel's figures of its caches before and after.
//!
//! # Why
//! The kernel drops only clean entries, and its documentation advises sync(2) first (sysctl/vm, `drop_caches`); so this
//! does that. Only an explicit flag leads here: all programs of the machine pay for it. Weakness: the numbers are the
//! machine's, and others change them meanwhile.

use crate::Failure;
use crate::units::{show_bytes, show_count};
use rustix::io::Errno;
use serde_json::json;
use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;
use uvfs_vfs::clean::request::Request;

/// The switch.
const SWITCH: &str = "/proc/sys/vm/drop_caches";

/// Carries out requests without a directory.
///
/// # Errors
/// If a request names a directory, or the switch cannot be used.
pub(super) fn run(requests: &[Request], dry_run: bool, json: bool) -> Result<ExitCode, Failure> {
    for request in requests {
        if request.directory.is_some() {
            let digit = request.what.digit();
            return Err(Failure::usage(format!(
                "request `{request}`: --system is for the whole machine; write {digit} without a directory, or \
                 leave --system out"
            )));
        }
    }
    for request in requests {
        let began = Instant::now();
        let before = Amounts::read();
        if !dry_run {
            turn(Path::new(SWITCH), request)?;
        }
        let after = Amounts::read();
        let seconds = began.elapsed().as_secs_f64();
        let text = if json {
            json!({
                "request": request.to_string(), "system": true, "dry_run": dry_run,
                "before": before.json(), "after": after.json(), "elapsed_seconds": seconds,
            })
            .to_string()
        } else {
            before.text(&after, request, dry_run) + &format!("  {:<16}  {seconds:.3} s", "time")
        };
        crate::print_line(&text);
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes everything out, then turns the switch.
fn turn(switch: &Path, request: &Request) -> Result<(), Failure> {
    let open = fs::OpenOptions::new().write(true).open(switch);
    let done = open.and_then(|mut file| {
        rustix::fs::sync();
        io::Write::write_all(&mut file, &[request.what.digit() as u8, b'\n'])
    });
    done.map_err(|error| {
        let remedy = match Errno::from_io_error(&error) {
            Some(Errno::ROFS) => "run it outside the container",
            _ => "run as root",
        };
        Failure::refused(format!("{}: {}; {remedy}", switch.display(), crate::cause(&error)))
    })
}

/// The kernel's figures of its caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Amounts {
    page_cache_bytes: u64,
    dirty_bytes: u64,
    reclaimable_bytes: u64,
    names: u64,
    inodes: u64,
}

impl Amounts {
    fn read() -> Self {
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        Self::parse(
            &text("/proc/meminfo"),
            &text("/proc/sys/fs/dentry-state"),
            &text("/proc/sys/fs/inode-nr"),
        )
    }

    fn parse(memory: &str, names: &str, inodes: &str) -> Self {
        let number = |text: &str| text.split_whitespace().next().and_then(|word| word.parse().ok());
        let bytes = |key: &str| {
            let line = memory.lines().find_map(|line| line.strip_prefix(key));
            line.and_then(number).map_or(0, |kib: u64| kib << 10)
        };
        Self {
            page_cache_bytes: bytes("Cached:") + bytes("Buffers:"),
            dirty_bytes: bytes("Dirty:"),
            reclaimable_bytes: bytes("SReclaimable:"),
            names: number(names).unwrap_or(0),
            inodes: number(inodes).unwrap_or(0),
        }
    }

    fn text(&self, after: &Self, request: &Request, dry_run: bool) -> String {
        let mut text = format!("{request}, the whole machine\n");
        let mut row = |label, show: fn(u64) -> String, before, after| {
            text += &match dry_run {
                true => format!("  {label:<16}  {}\n", show(before)),
                false => format!("  {label:<16}  {} -> {}\n", show(before), show(after)),
            };
        };
        row("pages", show_bytes, self.page_cache_bytes, after.page_cache_bytes);
        row("of it dirty", show_bytes, self.dirty_bytes, after.dirty_bytes);
        row("names", show_count, self.names, after.names);
        row("inodes", show_count, self.inodes, after.inodes);
        row("reclaimable slab", show_bytes, self.reclaimable_bytes, after.reclaimable_bytes);
        text
    }

    fn json(&self) -> serde_json::Value {
        json!({
            "page_cache_bytes": self.page_cache_bytes, "dirty_bytes": self.dirty_bytes,
            "reclaimable_slab_bytes": self.reclaimable_bytes, "names": self.names,
            "inodes": self.inodes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        Request::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn the_digit_is_written_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let switch = folder.path().join("switch");
        fs::write(&switch, "").unwrap();
        turn(&switch, &request("3")).unwrap();
        assert_eq!(fs::read(&switch).unwrap(), b"3\n");
    }

    #[test]
    fn a_switch_that_cannot_be_turned_is_refused() {
        let refused = turn(Path::new("/no/such/switch"), &request("1")).unwrap_err().to_string();
        assert_eq!(refused, "/no/such/switch: No such file or directory; run as root");
    }

    #[test]
    fn a_directory_is_refused_before_anything_is_turned() {
        let refused = run(&[request("1"), request("1:/a")], false, false).unwrap_err().to_string();
        assert!(refused.contains("request `1:/a`") && refused.contains("write 1 without"));
    }

    #[test]
    fn amounts_are_read_from_the_kernels_tables() {
        let memory = "MemTotal:  100 kB\nBuffers:  1 kB\nCached:   20 kB\nSwapCached:  9 kB\nDirty: 3 kB\n\
                      SReclaimable:   4 kB\n";
        let amounts = Amounts::parse(memory, "123\t5\t45\t0\t6\t0\n", "77\t8\n");
        let expected = Amounts {
            page_cache_bytes: 21 << 10,
            dirty_bytes: 3 << 10,
            reclaimable_bytes: 4 << 10,
            names: 123,
            inodes: 77,
        };
        assert_eq!(amounts, expected);
        assert!(expected.text(&Amounts::default(), &request("1"), false).contains("123 -> 0"));
        assert_eq!(Amounts::parse("", "", ""), Amounts::default());
        assert!(Amounts::read().page_cache_bytes > 0, "this machine's");
    }
}
