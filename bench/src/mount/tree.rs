//! Unpacking a tree of small files, and finding files in it.
//!
//! `untar-50k` is `tar -x` into an empty directory; `find-50k` is `find . -type f -size +0` after
//! the file system was mounted anew (the host's own caches stay warm, in its favour);
//! `find-50k-warm` is the second run. The number in the name is the number of files. The same names
//! with `-cpu` are the CPU time of `tar` or `find` and of the server together.
//!
//! The directory behind all of them is in a tmpfs of its own. ext4 avoids inodes that were freed in
//! the last minutes, and the search for others can be nine tenths of all CPU time. So `host` is the
//! fastest possible host, and every system's ratio to it the worst possible one.
//!
//! `memory:` would lose the tree by mounting anew, so there only the kernel's caches of the mount
//! are dropped.

use super::{Bench, Round};
use crate::cpu::{self, Meter, Reading};
use crate::report::{Report, Unit};
use crate::server::{self, Running};
use crate::system::System;
use crate::tree::{self, Tree};
use crate::{cleanup, context};
use rustix::mount::{MountFlags, UnmountFlags};
use rustix::process::{Pid, WaitId, WaitIdOptions};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const SYSTEMS: [System; 7] = [
    System::Host,
    System::Uvfs,
    System::UvfsUncached,
    System::UvfsMemory,
    System::LibfusePassthrough,
    System::LibfusePassthroughPaths,
    System::Bindfs,
];

/// Measures the three cases.
pub(super) fn measure(bench: &Bench, report: &mut Report) -> io::Result<()> {
    let tree = tree::archive(&bench.places.inputs, bench.sizes.tree_files)?;
    let memory = Tmpfs::mount(bench.folder("tree-backing")?)?;
    let mut systems = SYSTEMS.to_vec();
    // Its low-level example keeps a descriptor for every inode; directories and some room added.
    let descriptors = tree.files as u64 + tree.files as u64 / 10;
    if !server::can_hold_open(descriptors) {
        systems.retain(|&system| system != System::LibfusePassthrough);
        let why = format!("{descriptors} descriptors for the tree are more than allowed here");
        bench.leave_out(System::LibfusePassthrough, &why);
    }
    // A sample takes seconds: half as many already agree well, and none is needed to warm up.
    let rounds = bench.rounds(bench.runs.div_ceil(2)).filter(|round| *round == Round::Counts);
    for (at, _) in rounds.enumerate() {
        systems.retain(|&system| {
            sample(bench, &memory, system, &tree, at, report).unwrap_or_else(|error| {
                bench.failed(system, "untar and find", &error);
                false
            })
        });
    }
    Ok(())
}

/// A tmpfs for this bench alone.
pub(super) struct Tmpfs(PathBuf);

impl Tmpfs {
    pub(super) fn mount(at: PathBuf) -> io::Result<Self> {
        cleanup::mounting(&at);
        let flags = MountFlags::NOSUID | MountFlags::NODEV;
        rustix::mount::mount(c"uvfs-bench", &at, c"tmpfs", flags, c"size=2g,nr_inodes=0")?;
        Ok(Self(at))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // If it is still in use, the register has it.
        if rustix::mount::unmount(&self.0, UnmountFlags::NOFOLLOW).is_ok() {
            cleanup::unmounted(&self.0);
        }
    }
}

/// One sample of `system`; false if there is no such system.
fn sample(
    bench: &Bench,
    memory: &Tmpfs,
    system: System,
    tree: &Tree,
    at: usize,
    report: &mut Report,
) -> io::Result<bool> {
    let backing = memory.0.join(format!("{}-{at}", system.name()));
    fs::create_dir(&backing)?;
    let Some(one) = bench.start(system, &backing, "tree") else { return Ok(false) };
    let untar = unpack(bench, &tree.archive, &one)?;
    let Some(one) = mount_anew(bench, one, &backing)? else { return Ok(false) };
    let cold = find(bench, &one, tree)?;
    let warm = find(bench, &one, tree)?;
    drop(one);
    fs::remove_dir_all(&backing).map_err(context(backing.display()))?;
    let size = match tree.files {
        files if files % 1000 == 0 => format!("{}k", files / 1000),
        files => files.to_string(),
    };
    let cases = [("untar", "", untar), ("find", "", cold), ("find", "-warm", warm)];
    for (what, suffix, taken) in cases {
        let (case, system) = (format!("{what}-{size}{suffix}"), system.name());
        report.sample(&case, system, 1, Unit::Seconds, taken.wall.as_secs_f64());
        let case = format!("{case}-cpu");
        report.sample(&case, system, 1, Unit::CpuSeconds, taken.cpu.as_secs_f64());
    }
    Ok(true)
}

fn mount_anew(bench: &Bench, one: Running, backing: &Path) -> io::Result<Option<Running>> {
    let system = one.system();
    if system.shows_backing() {
        drop(one);
        return Ok(bench.start(system, backing, "tree"));
    }
    one.drop_kernel_caches()?;
    Ok(Some(one))
}

fn unpack(bench: &Bench, archive: &Path, one: &Running) -> io::Result<Reading> {
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(one.root());
    timed(bench, &mut tar, one.pid()).map(|(taken, _)| taken)
}

fn find(bench: &Bench, one: &Running, tree: &Tree) -> io::Result<Reading> {
    let mut find = Command::new("find");
    find.args([".", "-type", "f", "-size", "+0"]).current_dir(one.root());
    let (taken, output) = timed(bench, &mut find, one.pid())?;
    let found = output.iter().filter(|&&byte| byte == b'\n').count();
    if found != tree.not_empty {
        let odd = format!("find saw {found} files of {}", tree.not_empty);
        return Err(io::Error::other(odd));
    }
    Ok(taken)
}

/// Runs `command` to its end; returns its time, the server's, and its output.
fn timed(
    bench: &Bench,
    command: &mut Command,
    server: Option<u32>,
) -> io::Result<(Reading, Vec<u8>)> {
    let log = bench.places.work.join("client.log");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(fs::File::create(&log)?);
    let meter = Meter::start(server)?;
    let mut child = command.spawn().map_err(context(command.get_program().display()))?;
    cleanup::started(child.id());
    let mut output = Vec::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_end(&mut output)?;
    }
    // Dead, but not reaped: its CPU time can still be read.
    let pid = Pid::from_child(&child);
    rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
    let mut taken = meter.read()?;
    taken.cpu += cpu::of_life(child.id())?;
    cleanup::ended(child.id());
    let status = child.wait()?;
    if status.success() {
        return Ok((taken, output));
    }
    let (program, said) = (command.get_program().display(), first_line(&log));
    Err(io::Error::other(format!("{program}: {status}: {said}")))
}

/// The first error message; the last line only reports that there were some.
fn first_line(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    text.lines().next().unwrap_or("it said nothing").to_owned()
}
