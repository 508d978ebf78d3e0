//! The command lines of `uvfs drop`, `cached`, `policy`, `warmup` and `refresh`.
//!
//! # Boundary
//! Names, defaults and help texts.

use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use uvfs_terminal::command_line::EXIT_STATUS;

const DROP_HELP: &str = "\
Requests:
  1:DIR   the pages of the files below DIR
  2:DIR   its names and inodes     } of a uvfs mount; other file systems
  3:DIR   both                     } have no way for one directory
  1 2 3   with --mount: of all of a uvfs mount
          with --system: of the whole machine, as /proc/sys/vm/drop_caches

DIR is written without symbolic links. Mount points below it are not crossed.

Kept, and counted: dirty pages (write them first with --sync) and objects in use (open files, working directories of \
processes, pages that are mapped, locked or being read).

In a uvfs mount the daemon does it, for root and for the user who mounted it. It first invalidates everything below \
DIR, in constant time; then it asks the kernel to evict names, inodes and pages, and frees the memory. Where the kernel \
reads the files of the source directly, the pages of the source are dropped as well.

Examples:
  uvfs drop 1:/var/lib/data                evicts the pages of its files
  uvfs drop --sync 1:/srv/a 1:/srv/b       two directories, dirty pages written
                                           first
  uvfs drop --dry-run --json 1:/srv/a      counts only, for programs
  uvfs drop --no-fill 1:/srv/huge          only files whose names the kernel
                                           has cached
  uvfs drop 3:/mnt/data/photos/2019        names, inodes and pages, in a uvfs
                                           mount
  uvfs drop --sync 3 --mount /mnt/data     all of a uvfs mount; dirty pages are
                                           written first
  uvfs drop --system 3                     the whole machine, as root

Exit status:
  0  done
  1  refused, or not all of it could be reached; standard error says why
  2  the command line is not valid";

const CACHED_HELP: &str = "\
Shows:
  on any file system   pages that the kernel has of the files below DIR; every
                       file is visited
  in a uvfs mount      names, inodes and pages that uvfs itself has below DIR;
                       its daemon counts them, for root and for the user who
                       mounted it, and nothing is visited

Where the kernel caches the file data of a uvfs mount, the last lines name the directory of the source: \
`uvfs cached SOURCE` shows those pages. `--kernel` shows the kernel's pages of the mount's own files.

Examples:
  uvfs cached /var/lib/data                cached pages, two levels deep
  uvfs cached /mnt/data/photos             cached objects of a uvfs mount
  uvfs cached /srv --depth 1 --sort name   by name
  uvfs cached /srv --watch                 again every second, until Ctrl-C
  uvfs cached /srv --json                  one object, for programs";

const POLICY_HELP: &str = "\
Policies, for the objects that uvfs has cached in and below a directory:
  keep    evicted last, after all entries without this mark
  once    evicted first: for data that is read once, as by a backup or a scan
  normal  as if nothing were marked, in a directory below a marked one
  none    removes the mark of a directory; the nearest mark above it applies

The nearest mark upwards decides. A mark moves with a renamed directory, and ends with the mount; \
`uvfs mount --policy FILE` sets marks from the start, and the attribute user.uvfs.cache of a directory is its mark.

Examples:
  uvfs policy keep /mnt/data/photos        its entries are evicted last
  uvfs policy once /mnt/data/a /mnt/data/b theirs are evicted first
  uvfs policy none /mnt/data/photos        as before
  uvfs policy /mnt/data                    lists the marks; --json for programs";

const WARMUP_HELP: &str = "\
Lists the directory, so that names, attributes and the listing are cached; data read with --data is cached as far as \
there is room. Ctrl-C ends it; objects reached so far stay cached.

Examples:
  uvfs warmup -r /mnt/data                  names and attributes of all below
  uvfs warmup -r /mnt/data/train --data     and the bytes, 16 files at once

Exit status:
  0  done
  1  refused, interrupted, or not all could be read; standard error says why
  2  the command line is not valid";

const REFRESH_HELP: &str = "\
Drops the cached names and attributes in and below the directory, as `uvfs drop 2:DIR`, and lists it again. Pages \
of unchanged files stay. Lookups by programs meanwhile wait for the source.

Examples:
  uvfs refresh /mnt/data/new                after others have put files there
  uvfs refresh -r /mnt/data                 all below is listed, too

Exit status:
  0  done
  1  refused, interrupted, or not all could be read; standard error says why
  2  the command line is not valid";

/// `uvfs drop`.
#[derive(Debug, Args)]
#[command(after_help = DROP_HELP)]
pub struct DropArguments {
    /// The kind of objects and the directory: 1:DIR pages, 2:DIR names and inodes, 3:DIR both
    #[arg(value_name = "REQUEST", required = true)]
    pub requests: Vec<OsString>,
    /// Write dirty pages first, so that they can be evicted too
    #[arg(long)]
    pub sync: bool,
    /// Count the objects and drop nothing
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON object per request and line
    #[arg(long)]
    pub json: bool,
    /// All of the uvfs mount that is mounted there; the request names no directory
    #[arg(long, value_name = "MOUNTPOINT", conflicts_with = "system")]
    pub mount: Option<PathBuf>,
    /// Visit only files whose names the kernel has cached, so that the walk fills no cache. Pages of files
    /// whose names were evicted stay
    #[arg(long)]
    pub no_fill: bool,
    /// The kernel's own switch, for all files of the machine; the request names no directory. Dirty
    /// pages are written first. Needs root
    #[arg(long, conflicts_with = "no_fill")]
    pub system: bool,
}

/// `uvfs cached`.
#[derive(Debug, Args)]
#[command(after_help = format!("{CACHED_HELP}\n\n{EXIT_STATUS}"))]
pub struct CachedArguments {
    /// The directory to show; mount points below it are not crossed
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Levels of directories to show; deeper objects count to the deepest level shown
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub depth: u32,
    /// Show it repeatedly, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// Time between two views: 1s, 500ms [default: 1s]
    #[arg(long, value_name = "TIME", requires = "watch", allow_hyphen_values = true)]
    pub interval: Option<String>,
    /// One JSON object per view and line
    #[arg(long)]
    pub json: bool,
    /// Order of directories beside each other
    #[arg(long, value_name = "KEY", value_enum, default_value_t = Sort::Size)]
    pub sort: Sort,
    /// Visit only files whose names the kernel has cached, so that the walk fills no cache. Pages of files
    /// whose names were evicted are not seen
    #[arg(long)]
    pub no_fill: bool,
    /// In a uvfs mount: show the kernel's pages of its files, as on other file systems
    #[arg(long)]
    pub kernel: bool,
}

/// `uvfs policy`.
#[derive(Debug, Args)]
#[command(after_help = format!("{POLICY_HELP}\n\n{EXIT_STATUS}"))]
pub struct PolicyArguments {
    /// keep, once, normal or none, and directories of uvfs mounts to mark; or a mountpoint, to list its marks
    #[arg(value_name = "POLICY DIR... | MOUNTPOINT", required = true)]
    pub words: Vec<OsString>,
    /// The list as one JSON object per mark and line
    #[arg(long)]
    pub json: bool,
}

/// `uvfs warmup`.
#[derive(Debug, Args)]
#[command(after_help = WARMUP_HELP)]
pub struct WarmupArguments {
    /// The directory, in a uvfs mount
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// Include all below it, except other mounts
    #[arg(long, short)]
    pub recursive: bool,
    /// Read the files
    #[arg(long)]
    pub data: bool,
    /// Files read at once
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=64))]
    pub jobs: u8,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// `uvfs refresh`.
#[derive(Debug, Args)]
#[command(after_help = REFRESH_HELP)]
pub struct RefreshArguments {
    /// The directory, in a uvfs mount
    #[arg(value_name = "DIR")]
    pub directory: PathBuf,
    /// List all below it, except other mounts
    #[arg(long, short)]
    pub recursive: bool,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
}

/// The order of directories beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// Most cached first.
    Size,
    /// By name.
    Name,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, FromArgMatches};

    fn read<A: Args + FromArgMatches>(line: &[&str]) -> Result<A, clap::Error> {
        let command = A::augment_args(Command::new("test").no_binary_name(true));
        A::from_arg_matches(&command.try_get_matches_from(line)?)
    }

    #[test]
    fn a_drop_command_is_read() {
        let drop: DropArguments = read(&["--sync", "1:/a", "2:/b", "--json"]).unwrap();
        assert_eq!(drop.requests, ["1:/a", "2:/b"]);
        assert!(drop.sync && drop.json && !drop.dry_run && !drop.system && !drop.no_fill);
        let whole: DropArguments = read(&["3", "--mount", "/mnt"]).unwrap();
        assert_eq!(whole.mount.as_deref(), Some(std::path::Path::new("/mnt")));
        assert!(read::<DropArguments>(&["3", "--mount", "/mnt", "--system"]).is_err());
        assert!(read::<DropArguments>(&[]).is_err(), "no request");
        assert!(read::<DropArguments>(&["1", "--system", "--no-fill"]).is_err());
    }

    #[test]
    fn a_cached_command_is_read() {
        let cached: CachedArguments = read(&["/a", "--watch", "--interval", "2s"]).unwrap();
        assert_eq!((cached.depth, cached.sort, cached.watch), (2, Sort::Size, true));
        assert!(read::<CachedArguments>(&["/a", "--interval", "2s"]).is_err(), "without --watch");
        assert!(read::<CachedArguments>(&["/a", "--sort", "colour"]).is_err());
        assert!(read::<CachedArguments>(&["/a", "--depth", "-1"]).is_err());
    }

    #[test]
    fn help_has_examples_of_all() {
        for help in [DROP_HELP, CACHED_HELP, POLICY_HELP] {
            assert!(help.contains("Examples:"), "{help}");
        }
    }
}
