//! The compared systems, by name.
//!
//! # Boundary
//! The kinds of system, and the command that starts each server. [`crate::server`] starts and ends
//! it.
//!
//! # Why
//! A name means the same in every case: `uvfs` is `dir:` with the defaults. Variants for separate
//! questions have longer names.

use crate::bare::rings_enabled;
use crate::places::Places;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The script that installs the C examples.
const INSTALL: &str = "bench-compare/install.sh";
const ENABLE_RINGS: &str = "as root: echo Y > /sys/module/fuse/parameters/enable_uring";

/// One of the compared systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// The host's directory itself, through no server.
    Host,
    /// `uvfs mount dir:...` with defaults.
    Uvfs,
    /// `Uvfs` with no lifetimes for names and attributes: every request reaches the host.
    UvfsUncached,
    /// `Uvfs` with all data through the daemon.
    UvfsNoPassthrough,
    /// `uvfs mount dir:... --page-cache write-back`.
    UvfsWriteBack,
    /// `uvfs mount memory:`.
    UvfsMemory,
    /// The transport of uvfs answering constants, with as many readers as uvfs has.
    Bare,
    /// `Bare` with a single reader.
    BareOneReader,
    /// `Bare` by io_uring.
    BareRing,
    /// The crate `fuser` answering the same constants, with as many readers as uvfs has.
    FuserBare,
    /// libfuse's low-level passthrough example, unchanged.
    LibfusePassthrough,
    /// `LibfusePassthrough` with one thread (`-s`).
    LibfusePassthroughOneThread,
    /// libfuse's passthrough example that uses paths (`passthrough_fh`), and so needs no descriptor
    /// for each inode.
    LibfusePassthroughPaths,
    /// `bindfs`, unchanged.
    Bindfs,
}

impl System {
    /// All of them.
    pub(crate) const ALL: [System; 14] = [
        System::Host,
        System::Uvfs,
        System::UvfsUncached,
        System::UvfsNoPassthrough,
        System::UvfsWriteBack,
        System::UvfsMemory,
        System::Bare,
        System::BareOneReader,
        System::BareRing,
        System::FuserBare,
        System::LibfusePassthrough,
        System::LibfusePassthroughOneThread,
        System::LibfusePassthroughPaths,
        System::Bindfs,
    ];

    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            System::Host => "host",
            System::Uvfs => "uvfs",
            System::UvfsUncached => "uvfs-uncached",
            System::UvfsNoPassthrough => "uvfs-no-passthrough",
            System::UvfsWriteBack => "uvfs-write-back",
            System::UvfsMemory => "uvfs-memory",
            System::Bare => "bare",
            System::BareOneReader => "bare-1-reader",
            System::BareRing => "bare-ring",
            System::FuserBare => "fuser-bare",
            System::LibfusePassthrough => "libfuse-passthrough",
            System::LibfusePassthroughOneThread => "libfuse-passthrough-s",
            System::LibfusePassthroughPaths => "libfuse-passthrough-fh",
            System::Bindfs => "bindfs",
        }
    }

    /// Whether its files are the backing directory's.
    pub(crate) fn shows_backing(self) -> bool {
        self != System::UvfsMemory && !self.is_bare()
    }

    /// Whether it answers constants, and counts GETATTRs in the size of its files.
    pub(crate) fn is_bare(self) -> bool {
        matches!(self, System::Bare | System::BareOneReader | System::BareRing | System::FuserBare)
    }

    /// The command that serves `backing` at `mountpoint` in the foreground.
    ///
    /// # Errors
    /// Why this machine does not have the system, for people.
    pub(crate) fn command(
        self,
        places: &Places,
        backing: &Path,
        mountpoint: &Path,
    ) -> Result<Command, String> {
        match self {
            System::Host => Err("the host needs no server".to_owned()),
            System::Uvfs => uvfs(places, Some(backing), mountpoint, &[]),
            System::UvfsUncached => {
                let believe_nothing =
                    ["--attr-timeout", "0", "--entry-timeout", "0", "--negative-timeout", "0"];
                uvfs(places, Some(backing), mountpoint, &believe_nothing)
            }
            System::UvfsNoPassthrough => {
                uvfs(places, Some(backing), mountpoint, &["--no-passthrough"])
            }
            System::UvfsWriteBack => {
                uvfs(places, Some(backing), mountpoint, &["--page-cache", "write-back"])
            }
            System::UvfsMemory => uvfs(places, None, mountpoint, &["--size", "2G"]),
            System::Bare => Ok(bare(places, mountpoint, places.readers)),
            System::BareOneReader => Ok(bare(places, mountpoint, 1)),
            System::BareRing if !rings_enabled() => Err(format!("no rings here; {ENABLE_RINGS}")),
            System::BareRing => {
                let mut command = bare(places, mountpoint, 1);
                command.args(["--transport", "ring"]);
                Ok(command)
            }
            System::FuserBare => {
                let mut command = Command::new(program(places.rival("fuser-bare"), INSTALL)?);
                command.arg(mountpoint).arg("--readers").arg(places.readers.to_string());
                Ok(command)
            }
            System::LibfusePassthrough => passthrough(places, backing, mountpoint, &[]),
            System::LibfusePassthroughOneThread => {
                passthrough(places, backing, mountpoint, &["-s"])
            }
            System::LibfusePassthroughPaths => {
                let example = places.libfuse_example("passthrough_fh");
                let mut command = Command::new(program(example, INSTALL)?);
                let source = format!("modules=subdir,subdir={}", backing.display());
                command.arg("-f").arg("-o").arg(source).arg(mountpoint);
                Ok(command)
            }
            System::Bindfs => {
                let mut command =
                    Command::new(program(Places::in_path("bindfs"), "apt-get install bindfs")?);
                command.arg("-f").arg(backing).arg(mountpoint);
                Ok(command)
            }
        }
    }
}

fn uvfs(
    places: &Places,
    backing: Option<&Path>,
    mountpoint: &Path,
    options: &[&str],
) -> Result<Command, String> {
    let mut command = Command::new(program(places.uvfs.clone(), "cargo build --release -p uvfs")?);
    command.arg("mount");
    match backing {
        Some(folder) => {
            let mut source = std::ffi::OsString::from("dir:");
            source.push(folder);
            command.arg(source);
        }
        None => {
            command.arg("memory:");
        }
    }
    command.arg(mountpoint).args(options);
    Ok(command)
}

fn bare(places: &Places, mountpoint: &Path, readers: usize) -> Command {
    let mut command = Command::new(&places.bench);
    command.arg("bare-server").arg(mountpoint).arg("--readers").arg(readers.to_string());
    command
}

fn passthrough(
    places: &Places,
    backing: &Path,
    mountpoint: &Path,
    options: &[&str],
) -> Result<Command, String> {
    let program = program(places.libfuse_example("passthrough_ll"), INSTALL)?;
    let mut command = Command::new(program);
    let source = format!("source={}", backing.display());
    command.arg("-f").args(options).arg("-o").arg(source).arg(mountpoint);
    Ok(command)
}

fn program(found: Option<PathBuf>, remedy: &str) -> Result<PathBuf, String> {
    found.ok_or_else(|| format!("not on this machine; {remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique() {
        let mut names = System::ALL.map(System::name);
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    #[test]
    fn a_missing_program_comes_with_its_remedy() {
        let refusal = program(None, "make it").unwrap_err();
        assert_eq!(refusal, "not on this machine; make it");
    }
}
