//! `uvfs policy`: marks directories of uvfs mounts, and lists the marked ones.
//!
//! # Boundary
//! Finds the directory and its mount, and asks its daemon; the core implements marks.
//!
//! # Why
//! One command for both: words that begin with a policy mark, a mountpoint alone lists. All directories are checked
//! before the first is marked. Weakness: a mountpoint that is called `keep` is written `./keep`.

use super::flags::PolicyArguments;
use super::instead;
use super::mounted::{self, Refused, Target};
use super::opener::Offered;
use crate::Failure;
use crate::mountinfo::{self, MountEntry};
use crate::shown::shown;
use serde_json::json;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use uvfs_client as client;
use uvfs_control::policies::{self, WORDS};

/// Runs the subcommand.
///
/// # Errors
/// Invalid words, and the daemon's refusals.
pub fn run(arguments: &PolicyArguments) -> Result<ExitCode, Failure> {
    match read(&arguments.words, arguments.json)? {
        Wanted::List(mountpoint) => list(&mountinfo::find(Path::new(mountpoint))?, arguments.json)?,
        Wanted::Mark(policy, directories) => mark(policy, directories)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The request of a command line.
#[derive(Debug, PartialEq, Eq)]
enum Wanted<'a> {
    /// The marks of the mount there.
    List(&'a OsString),
    /// To mark directories.
    Mark(&'a str, &'a [OsString]),
}

fn read(words: &[OsString], json: bool) -> Result<Wanted<'_>, Failure> {
    let (first, directories) = match words {
        [] => return Err(Failure::usage("policy: nothing is named; name a mountpoint")),
        [first, directories @ ..] => (first, directories),
    };
    let policy = first.to_str().filter(|word| WORDS.contains(word));
    match (policy, directories) {
        (Some(policy), []) => Err(Failure::usage(format!(
            "policy {policy}: which directory? name one of a uvfs mount, or write ./{policy} for a mountpoint"
        ))),
        (Some(policy), _) if json => Err(Failure::usage(format!(
            "policy {policy}: --json is for the list, `uvfs policy MOUNTPOINT`; leave it out"
        ))),
        (Some(policy), _) => Ok(Wanted::Mark(policy, directories)),
        (None, []) => Ok(Wanted::List(first)),
        (None, _) => {
            // Not a policy, so it has a refusal.
            let cause = policies::policy(&first.to_string_lossy()).err().unwrap_or_default();
            Err(Failure::usage(format!("policy: {cause}, or one mountpoint alone")))
        }
    }
}

fn mark(policy: &str, directories: &[OsString]) -> Result<(), Failure> {
    let offered = Offered::probe();
    let mut targets = Vec::new();
    for directory in directories {
        let target = find(Path::new(directory), offered)?;
        target.check()?;
        targets.push((Path::new(directory).display(), target));
    }
    for (path, target) in targets {
        let refused = |cause| Failure::refused(format!("{path}: {cause}"));
        target.set_policy(policy)?.map_err(refused)?;
    }
    Ok(())
}

fn find(path: &Path, offered: Offered) -> Result<Target, Failure> {
    let refused = |cause: String| Failure::refused(format!("{}: {cause}", path.display()));
    // In a mount that this user may not enter, links cannot be followed.
    let whole = mounted::whole(path);
    let whole =
        whole.map_err(|error| refused(format!("{}; name a directory", crate::cause(&error))))?;
    match Target::find(&whole, offered) {
        Ok(Some(target)) => Ok(target),
        Ok(None) => Err(refused("not in a uvfs mount; `uvfs mounts` lists them".into())),
        Err(Refused::Failure(failure)) => Err(failure),
        Err(Refused::NotOpened(errno)) => {
            let cause = crate::cause(&errno.into());
            Err(refused(format!("{cause}; {}", instead::remedy(path, errno))))
        }
    }
}

fn list(mount: &MountEntry, json: bool) -> Result<(), Failure> {
    let mountpoint = mount.mountpoint.to_string_lossy();
    let refused = |cause| Failure::refused(format!("{mountpoint}: {cause}"));
    let marks = client::reach(mount)?.policies().map_err(refused)?;
    if marks.is_empty() && !json {
        eprintln!("uvfs: {}: no directory is marked", shown(&mountpoint));
    }
    for mark in marks {
        let line = match json {
            false => shown(&format!("{:<6}  {}", mark.policy, mark.place())).into_owned(),
            true => json!({
                "mountpoint": mountpoint, "policy": mark.policy, "path": mark.path,
                "moved": mark.moved, "inode": mark.inode,
            })
            .to_string(),
        };
        crate::print_line(&line);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_marks_and_a_mountpoint_alone_lists() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let two = words(&["keep", "/a", "keep"]);
        assert_eq!(read(&two, false), Ok(Wanted::Mark("keep", &two[1..])));
        let one = words(&["./keep"]);
        assert_eq!(read(&one, true), Ok(Wanted::List(&one[0])));
        let check = |line: &[&str], json, part: &str| {
            let words = words(line);
            let refused = read(&words, json).unwrap_err().to_string();
            assert!(refused.contains(part), "{line:?}: {refused}");
        };
        check(&["once"], false, "which directory?");
        check(&["none", "/a"], true, "--json is for the list");
        check(
            &["hold", "/a"],
            false,
            "`hold` is no policy; write one of: keep, once, normal, none",
        );
    }

    #[test]
    fn what_is_in_no_mount_is_refused() {
        let offered = Offered::probe();
        let refused = |path: &str| find(Path::new(path), offered).unwrap_err().to_string();
        assert_eq!(refused("/proc"), "/proc: not in a uvfs mount; `uvfs mounts` lists them");
        assert!(refused("/no/such").starts_with("/no/such: No such file or directory; "));
    }
}
