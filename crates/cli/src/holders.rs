//! Processes that keep a mount busy.
//!
//! # Boundary
//! Reads link texts in `/proc` and mount tables; never touches the mount. Best effort: sees only processes that this
//! user may see, and one may start or end meanwhile. Weakness: files that are only mapped, not open, are not found.

use crate::mountinfo::MountEntry;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};
use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;
use uvfs_control::mounts;

/// Processes named in a message.
const SHOWN_MAX: usize = 5;

/// A sentence part such as `in use by 71 (bash), 80 (vim) and 3 more`.
pub(crate) fn describe(mountpoint: &Path, mounts: &[MountEntry]) -> String {
    let below = mounts
        .iter()
        .find(|mount| mount.mountpoint != mountpoint && mount.mountpoint.starts_with(mountpoint));
    if let Some(mount) = below {
        return format!("{} is mounted inside it", mount.mountpoint.display());
    }
    let holders = list(Path::new("/proc"), mountpoint);
    if holders.is_empty() {
        return "in use, by processes that cannot be seen from here".into();
    }
    let shown: Vec<_> = holders.iter().take(SHOWN_MAX).map(String::as_str).collect();
    let more = match holders.len().saturating_sub(SHOWN_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("in use by {}{more}", shown.join(", "))
}

/// Other places where the file system of `gone` is mounted, in words: in this mount namespace, or in another one, with
/// a process of it.
///
/// The kernel shows a process only the mounts below its root, so the table of a process after chroot(2) may lack the
/// mount although its namespace has it. Where no table shows the mount, a thread enters each namespace, if this user
/// may, and reads its whole table.
pub(crate) fn elsewhere(gone: &MountEntry) -> Option<String> {
    let is_same = |mount: &MountEntry| mount.device == gone.device && mount.source == gone.source;
    let has = |table: &[u8]| mounts::parse(table).into_iter().find(is_same);
    let own_table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    if let Some(mount) = has(&own_table) {
        return Some(format!("also mounted on {}", mount.mountpoint.display()));
    }
    let within = |mount: MountEntry, of: &str| {
        let place = mount.mountpoint.display();
        format!("still mounted on {place} in the mount namespace of {of}")
    };
    let own = fs::read_link("/proc/self/ns/mnt").ok()?;
    let (mut tables, mut namespaces) = (HashSet::new(), Vec::new());
    let mut met = HashSet::new();
    for task in tasks() {
        let Ok(namespace) = fs::read_link(task.path.join("ns/mnt")) else { continue };
        if met.insert(namespace.clone()) {
            namespaces.push((task.path.join("ns/mnt"), task.name()));
        }
        let root = fs::read_link(task.path.join("root")).unwrap_or_default();
        if namespace == own || !tables.insert((namespace, root)) {
            continue;
        }
        let table = fs::read(task.path.join("mountinfo")).unwrap_or_default();
        if let Some(mount) = has(&table) {
            return Some(within(mount, &task.name()));
        }
    }
    // A namespace without a process is kept by a file that shows it.
    let kept = mounts::parse(&own_table).into_iter().filter(|mount| mount.file_system == "nsfs");
    namespaces.extend(kept.map(|mount| {
        let name = mount.mountpoint.display().to_string();
        (mount.mountpoint, name)
    }));
    namespaces.into_iter().find_map(|(file, name)| Some(within(has(&table_of(&file)?)?, &name)))
}

/// A thread of a process.
struct Task {
    pid: u32,
    process: PathBuf,
    path: PathBuf,
}

impl Task {
    fn name(&self) -> String {
        format!("{} ({})", self.pid, command(&self.process))
    }
}

/// All threads that this user sees, by process: each may be in a namespace and have a root of its own.
fn tasks() -> impl Iterator<Item = Task> {
    let mut processes: Vec<(u32, PathBuf)> = numbered(Path::new("/proc"));
    processes.sort();
    processes.into_iter().flat_map(|(pid, process)| {
        let threads = numbered(&process.join("task"));
        threads.into_iter().map(move |(_, path)| Task { pid, process: process.clone(), path })
    })
}

/// The directories in `folder` that have numbers as their names.
fn numbered(folder: &Path) -> Vec<(u32, PathBuf)> {
    let number =
        |entry: fs::DirEntry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path()));
    fs::read_dir(folder).into_iter().flatten().filter_map(|entry| number(entry.ok()?)).collect()
}

/// The whole mount table of the namespace that `file` shows, for a user who may enter it.
fn table_of(file: &Path) -> Option<Vec<u8>> {
    let namespace = File::open(file).ok()?;
    // Paths lead elsewhere in the other namespace.
    let proc = File::open("/proc").ok()?;
    let read = move || {
        // A thread that shares its root and directory with others cannot enter.
        #[allow(
            deprecated,
            reason = "the binding is for flags that take descriptors from others; this one does not"
        )]
        rustix::thread::unshare(UnshareFlags::FS).ok()?;
        let kind = Some(LinkNameSpaceType::Mount);
        rustix::thread::move_into_link_name_space(namespace.as_fd(), kind).ok()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let table = rustix::fs::openat(&proc, "thread-self/mountinfo", flags, Mode::empty());
        let mut text = Vec::new();
        File::from(table.ok()?).read_to_end(&mut text).ok()?;
        Some(text)
    };
    thread::Builder::new().spawn(read).ok()?.join().ok()?
}

/// `pid (command)` of every process whose directory, root, program or open file is at or below
/// `mountpoint`.
fn list(proc: &Path, mountpoint: &Path) -> Vec<String> {
    let Ok(processes) = fs::read_dir(proc) else { return Vec::new() };
    let mut found: Vec<(u32, String)> = processes
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let process = entry.path();
            holds(&process, mountpoint).then(|| (pid, command(&process)))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(pid, command)| format!("{pid} ({command})")).collect()
}

fn holds(process: &Path, mountpoint: &Path) -> bool {
    let fixed = ["cwd", "root", "exe"].map(|link| process.join(link));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten();
    let open = open.filter_map(|entry| Some(entry.ok()?.path()));
    fixed.into_iter().chain(open).any(|link: PathBuf| {
        // The text alone: following the link would ask the mount's daemon.
        fs::read_link(link).is_ok_and(|target| target.starts_with(mountpoint))
    })
}

fn command(process: &Path) -> String {
    let name = fs::read(process.join("comm")).unwrap_or_default();
    let name = name.trim_ascii_end();
    if name.is_empty() { "?".into() } else { name.escape_ascii().to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::symlink;
    use std::process::{Command, Stdio};

    fn process(proc: &Path, pid: u32, comm: &str, cwd: &str, open: &str) {
        let folder = proc.join(pid.to_string());
        fs::create_dir_all(folder.join("fd")).unwrap();
        fs::write(folder.join("comm"), format!("{comm}\n")).unwrap();
        symlink(cwd, folder.join("cwd")).unwrap();
        symlink(open, folder.join("fd/3")).unwrap();
    }

    #[test]
    fn holders_are_found_by_directory_and_by_open_file() {
        let proc = tempfile::tempdir().unwrap();
        let proc = proc.path();
        process(proc, 30, "vim", "/home", "/mnt/a/file (deleted)");
        process(proc, 4, "bash", "/mnt/a", "/dev/null");
        process(proc, 5, "innocent", "/mnt/ab", "/mnt");
        fs::create_dir(proc.join("sys")).unwrap();
        assert_eq!(list(proc, Path::new("/mnt/a")), ["4 (bash)", "30 (vim)"]);
        assert!(list(&proc.join("missing"), Path::new("/")).is_empty());
    }

    /// The daemon of a mount of which a container had a copy was waited for a minute, without a word about the container.
    #[test]
    fn another_mount_of_the_file_system_is_found() {
        let table = fs::read("/proc/self/mountinfo").unwrap();
        let here = mounts::parse(&table).into_iter().next_back().expect("a mount");
        let text = elsewhere(&here).expect("it is still mounted");
        assert!(text.starts_with("also mounted on "), "{text}");
        let gone = MountEntry { source: "no such source".into(), ..here };
        assert_eq!(elsewhere(&gone), None);
    }

    /// Bug: of a container whose processes had all changed their root, no table showed the mount, and nothing named it.
    #[test]
    fn a_mount_that_only_chrooted_processes_keep_is_found() {
        if !rustix::process::geteuid().is_root() {
            uvfs_skip::lacking("root, to make a mount namespace");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (mountpoint, root) = (folder.path().join("m"), folder.path().join("root"));
        fs::create_dir(&mountpoint).unwrap();
        fs::create_dir(&root).unwrap();
        // One process throughout. Its new root lacks the mount.
        let script = "mount -t tmpfs only-here-7 \"$1\" && mount --bind / \"$2\" && \
            grep only-here-7 /proc/self/mountinfo && \
            exec chroot \"$2\" /bin/sh -c 'echo in; read end'";
        let mut unshare = Command::new("unshare");
        unshare.args(["-m", "sh", "-c", script, "sh"]).args([&mountpoint, &root]);
        let mut keeper = unshare.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(keeper.stdout.take().unwrap()).lines();
        let line = lines.next().expect("a namespace can be made").unwrap();
        let gone = mounts::parse(line.as_bytes()).remove(0);
        assert_eq!(lines.next().unwrap().unwrap(), "in");
        let text = elsewhere(&gone).expect("it is still mounted");
        let (at, name) = (mountpoint.display(), format!("{} (sh)", keeper.id()));
        assert_eq!(text, format!("still mounted on {at} in the mount namespace of {name}"));
        drop(keeper.stdin.take());
        keeper.wait().unwrap();
        assert_eq!(elsewhere(&gone), None);
    }

    #[test]
    fn this_process_holds_what_it_has_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let _held = fs::File::create(path.join("held")).unwrap();
        let text = describe(&path, &[]);
        assert!(text.contains(&format!("{} (", std::process::id())), "{text}");
    }
}
