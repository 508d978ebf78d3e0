//! Processes that keep a mount busy.
//!
//! # Boundary
//! Reads link texts in `/proc` and the mount table; never touches the mount. Best effort: sees only processes that this
//! user may see, and one may start or end meanwhile. Weakness: files that are only mapped, not open, are not found.

use crate::mountinfo::MountEntry;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
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
pub(crate) fn elsewhere(gone: &MountEntry) -> Option<String> {
    let is_same = |mount: &MountEntry| mount.device == gone.device && mount.source == gone.source;
    let has = |table: &[u8]| mounts::parse(table).into_iter().find(is_same);
    let own = fs::read("/proc/self/mountinfo").ok().and_then(|table| has(&table));
    if let Some(mount) = own {
        return Some(format!("also mounted on {}", mount.mountpoint.display()));
    }
    let mut seen = HashSet::from([fs::read_link("/proc/self/ns/mnt").ok()?]);
    let mut processes: Vec<(u32, PathBuf)> = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| {
            let entry = entry.ok()?;
            Some((entry.file_name().to_str()?.parse().ok()?, entry.path()))
        })
        .collect();
    processes.sort();
    processes.into_iter().find_map(|(pid, process)| {
        let namespace = fs::read_link(process.join("ns/mnt")).ok()?;
        if !seen.insert(namespace) {
            return None;
        }
        let mount = has(&fs::read(process.join("mountinfo")).ok()?)?;
        let (place, command) = (mount.mountpoint.display(), command(&process));
        Some(format!("still mounted on {place} in the mount namespace of {pid} ({command})"))
    })
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
    use std::os::unix::fs::symlink;

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

    #[test]
    fn this_process_holds_what_it_has_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        let _held = fs::File::create(path.join("held")).unwrap();
        let text = describe(&path, &[]);
        assert!(text.contains(&format!("{} (", std::process::id())), "{text}");
    }
}
