//! `ls -la` of one large directory: its names, and for each the attributes, the label and the access control list.
//!
//! `ls-100k` is the first listing after mounting; `ls-100k-again` the second. The number in the name is the number of
//! files. The same names with `-cpu` are the CPU time of the client and of the server together. The calls are those of
//! GNU `ls -la` (`lstat`, and `lgetxattr` of `security.selinux` and `system.posix_acl_access`), made by this process,
//! so that another `ls` measures the same.
//!
//! The directory is in a tmpfs of its own, like the trees ([`super::tree`]).

use super::tree::Tmpfs;
use super::{Bench, Round};
use crate::context;
use crate::cpu::{Meter, Reading};
use crate::report::{Report, Unit};
use crate::server::Running;
use crate::system::System;
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::path::Path;

const SYSTEMS: [System; 4] = [System::Host, System::Uvfs, System::UvfsUncached, System::Bindfs];
/// The extended attributes that `ls -la` reads of each file.
const ASKED: [&str; 2] = ["security.selinux", "system.posix_acl_access"];

/// Measures both listings.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> io::Result<()> {
    let memory = Tmpfs::mount(bench.folder("list-backing")?)?;
    let backing = memory.path().join("directory");
    fs::create_dir(&backing).map_err(context(backing.display()))?;
    let count = bench.sizes.listed;
    (0..count).try_for_each(|at| File::create(backing.join(format!("file-{at:06}"))).map(drop))?;
    let mut systems = SYSTEMS.to_vec();
    // A sample takes seconds; none is needed to warm up.
    for _ in bench.rounds(bench.runs.div_ceil(2)).filter(|round| *round == Round::Counts) {
        systems.retain(|&system| {
            sample(bench, &backing, system, report).unwrap_or_else(|error| {
                bench.failed(system, "ls", &error);
                false
            })
        });
    }
    Ok(())
}

fn sample(bench: &Bench, backing: &Path, system: System, report: &mut Report) -> io::Result<bool> {
    let Some(one) = bench.start(system, backing, "list") else { return Ok(false) };
    let size = match bench.sizes.listed {
        files if files % 1000 == 0 => format!("{}k", files / 1000),
        files => files.to_string(),
    };
    for suffix in ["", "-again"] {
        let taken = list(bench, &one)?;
        let (case, system) = (format!("ls-{size}{suffix}"), system.name());
        report.sample(&case, system, 1, Unit::Seconds, taken.wall.as_secs_f64());
        report.sample(&format!("{case}-cpu"), system, 1, Unit::CpuSeconds, taken.cpu.as_secs_f64());
    }
    Ok(true)
}

fn list(bench: &Bench, one: &Running) -> io::Result<Reading> {
    let meter = Meter::start(one.pid())?;
    let seen = list_long(one.root())?;
    let taken = meter.read()?;
    match seen == bench.sizes.listed {
        true => Ok(taken),
        false => Err(io::Error::other(format!("{seen} files of {}", bench.sizes.listed))),
    }
}

/// The calls of `ls -la` in `directory`; returns the number of files.
fn list_long(directory: &Path) -> io::Result<usize> {
    let (mut seen, mut value) = (0, [0; 256]);
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        fs::symlink_metadata(&path)?;
        for name in ASKED {
            match rustix::fs::lgetxattr(&path, name, &mut value) {
                Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(error) => return Err(error.into()),
            }
        }
        seen += 1;
    }
    Ok(seen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_listed() {
        let folder = std::env::temp_dir().join(format!("uvfs-bench-list-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        (0..10).for_each(|at| drop(File::create(folder.join(at.to_string())).unwrap()));
        assert_eq!(list_long(&folder).unwrap(), 10);
        fs::remove_dir_all(&folder).unwrap();
    }
}
