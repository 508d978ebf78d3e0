//! `--fakeroot`: an ordinary user gets all rights in a mount; without it, such a user gets a hint.
//!
//! # Boundary
//! Reads the options, refuses them where they have no meaning, and finds users and groups by name. The frontend maps the
//! user ([`uvfs_fuse::MountOptions::fake_root`]), and the core judges all others.
//!
//! # Why
//! A user that can write the file of an image can write all that is in it: its owners and modes protect nothing from that
//! user. Owners in a host directory protect, and a bucket has none: there the option is refused. Weakness: names are
//! those of `/etc/passwd` and `/etc/group`; the command needs the numbers of users that only a network service knows.

use crate::Failure;
use crate::flags::MountArguments;
use crate::source::Source;
use uvfs_vfs::{Access, Caller, NewOwner, Vfs};

/// The owner of what the mounting user makes, if that user is to have all rights.
///
/// # Errors
/// An option without a meaning for this source or this user; an owner that cannot be read.
pub(crate) fn read(
    arguments: &MountArguments,
    source: &Source,
) -> Result<Option<NewOwner>, Failure> {
    let owner = arguments.new_owner.as_deref();
    if !arguments.fakeroot {
        return match owner {
            Some(_) => Err(Failure::usage("--new-owner: only with --fakeroot; add that")),
            None => Ok(None),
        };
    }
    let why = match source {
        Source::Directory(_) | Source::Plain(_) => "only root changes owners in a host directory",
        Source::Bucket(_) => "a bucket has no owners",
        Source::Image(_) | Source::Memory if is_root() => "root may do all without it",
        Source::Image(_) | Source::Memory => {
            let table = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
            let (users, groups) = (table("/etc/passwd"), table("/etc/group"));
            let given = owner.map(|text| {
                new_owner(text, &users, &groups)
                    .map_err(|why| Failure::usage(format!("--new-owner {text}: {why}")))
            });
            return Ok(Some(given.transpose()?.unwrap_or(NewOwner::Directory)));
        }
    };
    Err(Failure::usage(format!("--fakeroot: {why}; leave it out")))
}

/// The hint for a user that may not use the root directory of an image; none for another one.
pub(crate) fn hint(vfs: &Vfs, is_read_only: bool) -> Option<&'static str> {
    let groups = rustix::process::getgroups().unwrap_or_default();
    let groups: Vec<u32> = groups.iter().map(|group| group.as_raw()).collect();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let caller = Caller::new(uid, gid, &groups);
    let reading = Access::READ | Access::EXECUTE;
    let wanted = if is_read_only { reading } else { reading | Access::WRITE };
    vfs.access(&caller, vfs.root(), wanted).err()?;
    Some(match is_read_only {
        true => {
            "its root directory is not readable for you; with --fakeroot you may read all in it, whatever its owners"
        }
        false => {
            "its root directory is not writable for you; with --fakeroot you may do all in it, whatever its owners"
        }
    })
}

/// Whether this process is root of the machine. The root of a user namespace has rights on its own users' objects only.
fn is_root() -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    rustix::process::getuid().is_root() && has_all_users(&map)
}

/// Whether a user namespace with this map is the machine's.
fn has_all_users(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// `UID[:GID]`, numbers or names of these tables.
fn new_owner(text: &str, users: &str, groups: &str) -> Result<NewOwner, String> {
    let (user, group) = match text.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (text, None),
    };
    let uid = id(user, users, "user")?;
    let gid = group.map(|group| id(group, groups, "group")).transpose()?;
    Ok(NewOwner::Given { uid, gid })
}

/// The number of `name`, or `name` itself if it is a number, as chown(1) reads it.
fn id(name: &str, table: &str, what: &str) -> Result<u32, String> {
    let number_of = |line: &str| {
        let mut fields = line.split(':');
        (fields.next()? == name).then(|| fields.nth(1)?.parse().ok()).flatten()
    };
    let known = if name.is_empty() { None } else { table.lines().find_map(number_of) };
    match known.or_else(|| name.parse().ok()) {
        // The last number means "unchanged" in chown(2).
        Some(id) if id != u32::MAX => Ok(id),
        _ => Err(format!("no {what} {name:?} here; write UID or UID:GID, numbers or names")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Arguments, Command};
    use clap::Parser;
    use std::path::PathBuf;

    #[test]
    fn an_owner_is_numbers_or_names() {
        let users = "root:x:0:0::/root:/bin/sh\nwww-data:x:33:33::/var/www:/bin/sh\n7:x:8:8:::\n";
        let groups = "root:x:0:\nstaff:x:50:a,b\n";
        let check = |text, uid, gid| {
            assert_eq!(new_owner(text, users, groups), Ok(NewOwner::Given { uid, gid }), "{text}");
        };
        check("0", 0, None);
        check("1000:100", 1000, Some(100));
        check("www-data", 33, None);
        check("www-data:staff", 33, Some(50));
        check("7", 8, None);
        for bad in ["", ":", "0:", ":0", "nobody", "0:wheel", "-1", "4294967295", "1:2:3", "0 "] {
            let refused = new_owner(bad, users, groups).unwrap_err();
            assert!(refused.contains("write UID or UID:GID"), "{bad}: {refused}");
        }
    }

    /// An option that is accepted and then without effect would be a false promise.
    #[test]
    fn it_is_refused_where_it_has_no_meaning() {
        let refusal = |line: &[&str], source: &Source| {
            let line = [&["uvfs", "mount", "x", "/"], line].concat();
            let Command::Mount(arguments) = Arguments::try_parse_from(line).unwrap().command else {
                unreachable!("it says mount");
            };
            read(&arguments, source).map_err(|failure| failure.to_string())
        };
        let directory = Source::Directory(PathBuf::from("/srv"));
        let refused = refusal(&["--fakeroot"], &directory).unwrap_err();
        assert!(refused.starts_with("--fakeroot: only root changes owners in a host directory;"));
        let alone = refusal(&["--new-owner", "0"], &Source::Memory).unwrap_err();
        assert_eq!(alone, "--new-owner: only with --fakeroot; add that");
        assert_eq!(refusal(&[], &directory), Ok(None));
        let here = refusal(&["--fakeroot"], &Source::Memory);
        match is_root() {
            true => {
                assert_eq!(
                    here.unwrap_err(),
                    "--fakeroot: root may do all without it; leave it out"
                )
            }
            false => assert_eq!(here, Ok(Some(NewOwner::Directory))),
        }
    }

    #[test]
    fn the_root_of_a_namespace_is_not_that_of_the_machine() {
        assert!(has_all_users("         0          0 4294967295\n"));
        assert!(!has_all_users("         0       1001          1\n"));
        assert!(!has_all_users("0 100000 65536\n65536 0 1\n") && !has_all_users(""));
    }
}
