//! `uvfs mount … --update-fstab`: the line of `/etc/fstab` that makes the same mount at every boot.
//!
//! # Boundary
//! Writes one line, a copy of the old file, and the link by which mount(8) finds [`crate::mount_helper`].
//! [`crate::serve`] makes the mount first: a line is written only for a mount that works.
//!
//! # Why
//! The options come from the parsed command line, so no new one is forgotten. Options of mount(8) or systemd in an
//! existing line stay. A boot must not wait for this mount. So the line has `nofail` and waits for the file system of
//! its source, and a mountpoint that the machine needs is refused. Weakness: a source that another service provides
//! after the boot is not known here; its line needs `x-systemd.requires=`.

use crate::Failure;
use crate::flags::{Arguments, MountArguments};
use crate::mount_helper::{self, NAMES};
use crate::mountinfo::MountEntry;
use crate::plan::{Plan, Store};
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use uvfs_control::mounts::FILE_SYSTEM_TYPE;

/// The file systems of the machine.
const FSTAB: &str = "/etc/fstab";
/// Behind the name of the file: a copy of it as it was before the last change.
const BACKUP: &str = ".uvfs.bak";
/// Behind the name of the file, while it is written.
const UNFINISHED: &str = ".uvfs.new";
/// Where mount(8) looks for programs of file systems.
const HELPERS: &str = "/sbin";
/// Places that a machine needs for booting or use, with all below them if the name ends in a slash.
const NEEDED: [&str; 17] = [
    "/", "/bin/", "/boot/", "/dev/", "/etc/", "/lib/", "/lib32/", "/lib64/", "/proc/", "/root",
    "/run/", "/sbin/", "/sys/", "/tmp", "/usr/", "/var", "/home",
];
/// File systems that are empty or missing after a boot.
const VANISHING: [&str; 7] = ["tmpfs", "ramfs", "devtmpfs", "proc", "sysfs", "cgroup2", "devpts"];
/// File systems that need a network, by the beginning of their type.
const NETWORKED: [&str; 9] =
    ["nfs", "cifs", "smb3", "ceph", "9p", "afs", "glusterfs", "lustre", "fuse.sshfs"];
/// Options of a command line that do not concern the mount of a boot.
const OF_THIS_RUN: [&str; 7] =
    ["source", "mountpoint", "daemon", "update_fstab", "in_background", "at_boot", "help"];

/// A line to be written.
#[derive(Debug)]
pub(crate) struct Entry {
    source: OsString,
    mountpoint: PathBuf,
    /// Options of `uvfs mount`.
    options: Vec<OsString>,
    /// Options of mount(8) and systemd, where no line has any.
    defaults: Vec<OsString>,
}

/// The result of writing it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Written {
    /// It was there, word for word.
    Unchanged,
    /// The file has it, and this is a copy of the file before.
    Changed(PathBuf),
}

/// The line for `plan`, if `arguments` request one.
///
/// # Errors
/// A reason why the line would not work, or the machine would not boot.
pub(crate) fn entry(
    arguments: &MountArguments,
    plan: &Plan,
    mounts: &[MountEntry],
) -> Result<Option<Entry>, Failure> {
    if !arguments.update_fstab {
        return Ok(None);
    }
    if !rustix::process::geteuid().is_root() {
        return Err(refused("only root may write it; run as root, or leave the option out"));
    }
    let words = Arguments::command().get_matches_from(std::env::args_os());
    let given = words.subcommand_matches("mount").map(options).transpose()?.unwrap_or_default();
    let source = source(&plan.store)?;
    let program = std::env::current_exe().unwrap_or_default();
    check(&plan.mountpoint, source.as_deref(), &program, mounts)?;
    let entry = Entry {
        source: plan.store.name().into(),
        mountpoint: plan.mountpoint.clone(),
        options: given,
        defaults: defaults(source.as_deref(), mounts),
    };
    // All that can be known to be wrong with the file, before anything is mounted.
    changed(&read(Path::new(FSTAB))?, &entry)?;
    Ok(Some(entry))
}

/// Writes the line, and the link that mount(8) needs, and reports it.
///
/// # Errors
/// If that fails; the mount exists.
pub(crate) fn write(entry: &Entry) -> Result<(), Failure> {
    link(Path::new(HELPERS))?;
    match write_to(Path::new(FSTAB), entry)? {
        Written::Unchanged => crate::print_line(&format!("uvfs: {FSTAB}: has the line already")),
        Written::Changed(backup) => crate::print_line(&format!(
            "uvfs: {FSTAB}: has the line now; the file before is {}",
            backup.display()
        )),
    }
    Ok(())
}

fn refused(why: &str) -> Failure {
    Failure::refused(format!("--update-fstab: {why}"))
}

/// The path of the source after a boot.
fn source(store: &Store) -> Result<Option<PathBuf>, Failure> {
    match store {
        Store::Memory { .. } => Ok(None),
        // A user's environment does not exist at boot.
        Store::Bucket(_) => Err(refused(
            "a bucket: at a boot there are no credentials in the environment; mount it by the unit uvfs@.service, which \
             needs a drop-in for the network (docs/systemd.md)",
        )),
        Store::Directory(path) => Ok(Some(path.clone())),
        Store::Image(image) => {
            let path = image.name.strip_prefix("image:").unwrap_or(&image.name);
            let path = Path::new(path.split('?').next().unwrap_or(path));
            match path.is_absolute() {
                true => Ok(Some(path.to_path_buf())),
                false => Err(refused(&format!(
                    "{}: found only from this directory; name the image by a path that begins with /",
                    path.display()
                ))),
            }
        }
    }
}

/// Whether a boot can continue with this mount, and make it.
fn check(
    mountpoint: &Path,
    source: Option<&Path>,
    program: &Path,
    mounts: &[MountEntry],
) -> Result<(), Failure> {
    let is_needed = |place: &&&str| match place.strip_suffix('/').filter(|one| !one.is_empty()) {
        Some(folder) => mountpoint.starts_with(folder),
        None => mountpoint == Path::new(place),
    };
    if let Some(place) = NEEDED.iter().find(is_needed) {
        return Err(refused(&format!(
            "mountpoint {}: the machine needs {} to boot; name a directory of its own, such as /mnt/data",
            mountpoint.display(),
            place.trim_end_matches('/'),
        )));
    }
    for (what, path) in
        [("mountpoint", Some(mountpoint)), ("source", source), ("program", Some(program))]
    {
        let below = path.and_then(|path| holding(path, mounts).map(|mount| (path, mount)));
        if let Some((path, mount)) = below.filter(|(_, mount)| is_vanishing(mount)) {
            return Err(refused(&format!(
                "{what} {}: lies on a {}, which is empty after a boot; name one on a disk",
                path.display(),
                mount.file_system
            )));
        }
    }
    Ok(())
}

fn is_vanishing(mount: &MountEntry) -> bool {
    VANISHING.contains(&mount.file_system.as_str())
}

/// The mount of `path`; the last one of stacked mounts.
fn holding<'a>(path: &Path, mounts: &'a [MountEntry]) -> Option<&'a MountEntry> {
    let above = mounts.iter().filter(|mount| path.starts_with(&mount.mountpoint));
    above.max_by_key(|mount| mount.mountpoint.components().count())
}

/// Options by which the boot continues without the mount, and the mount waits for its source.
fn defaults(source: Option<&Path>, mounts: &[MountEntry]) -> Vec<OsString> {
    let mut options: Vec<OsString> = vec!["nofail".into()];
    if let Some(path) = source {
        let mount = holding(path, mounts);
        let is_networked =
            |mount: &MountEntry| NETWORKED.iter().any(|one| mount.file_system.starts_with(one));
        if mount.is_some_and(is_networked) {
            options.push("_netdev".into());
        }
        let mut after = OsString::from("x-systemd.requires-mounts-for=");
        after.push(path);
        options.push(after);
    }
    options
}

/// The options that were written on the command line, as a line of fstab has them.
fn options(given: &ArgMatches) -> Result<Vec<OsString>, Failure> {
    let command = Arguments::command();
    let mount = command.find_subcommand("mount").map(clap::Command::get_arguments);
    let mut options = Vec::new();
    for argument in mount.into_iter().flatten() {
        let id = argument.get_id().as_str();
        let is_given = given.value_source(id) == Some(ValueSource::CommandLine);
        let Some(long) = argument.get_long().filter(|_| is_given && !OF_THIS_RUN.contains(&id))
        else {
            continue;
        };
        if id == "name" {
            return Err(refused(
                "mount(8) knows a mount by the source in its line; leave --name out",
            ));
        }
        let mut option = OsString::from(long.replace('-', "_"));
        if argument.get_action().takes_values() {
            let value = given.get_raw(id).and_then(Iterator::last).unwrap_or_default();
            option.push("=");
            // A boot has another working directory.
            match ["policy", "log_file"].contains(&id) {
                true => option.push(std::path::absolute(value).map_err(|error| {
                    refused(&format!("{}: {}", Path::new(value).display(), crate::cause(&error)))
                })?),
                false => option.push(value),
            }
        }
        options.push(option);
    }
    Ok(options)
}

/// A field of a line: characters that mount(8) takes for its end are written in octal.
fn field(text: &OsStr) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for byte in text.as_bytes() {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => out.extend(format!("\\{byte:03o}").bytes()),
            other => out.push(*other),
        }
    }
    out
}

/// The text of a field.
fn text_of(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((byte, after)) = rest.split_first() {
        let octal = (*byte == b'\\').then(|| after.get(..3)).flatten();
        let octal = octal.and_then(|digits| str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(decoded) => {
                out.push(decoded);
                rest = &after[3..];
            }
            None => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    out
}

fn fields(line: &[u8]) -> Vec<&[u8]> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let fields = line.split(is_blank).filter(|field| !field.is_empty());
    fields.take_while(|field| !field.starts_with(b"#")).collect()
}

/// The line of `entry`, with the foreign options of the old line.
fn line_of(entry: &Entry, before: Option<&[u8]>) -> Vec<u8> {
    let of_others: Vec<OsString> = match before {
        None => entry.defaults.clone(),
        Some(options) => {
            let kept = mount_helper::split(&text_of(options)).into_iter();
            let kept = kept.filter(|one| str::from_utf8(one).is_ok_and(mount_helper::is_of_others));
            let mut kept: Vec<_> = kept.map(OsString::from_vec).collect();
            // In any case, no boot waits for it.
            if !kept.iter().any(|one| one == "nofail" || one == "noauto") {
                kept.push("nofail".into());
            }
            kept
        }
    };
    let all = of_others.iter().chain(&entry.options);
    let all: Vec<_> = all.map(|option| mount_helper::joined(option)).collect();
    let parts = [
        field(&entry.source),
        field(entry.mountpoint.as_os_str()),
        FILE_SYSTEM_TYPE.as_bytes().to_vec(),
        field(&all.join(OsStr::new(","))),
        b"0 0".to_vec(),
    ];
    parts.join(&b' ')
}

/// `text` with the line of `entry`; none if it is there.
fn changed(text: &[u8], entry: &Entry) -> Result<Option<Vec<u8>>, Failure> {
    let mut lines: Vec<Vec<u8>> = text.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    // The last line ends with a newline, or is to.
    if lines.last().is_some_and(Vec::is_empty) {
        lines.pop();
    }
    let is_there = |line: &Vec<u8>| {
        fields(line).get(1).is_some_and(|at| text_of(at) == entry.mountpoint.as_os_str().as_bytes())
    };
    let Some(at) = lines.iter().position(is_there) else {
        lines.push(line_of(entry, None));
        return Ok(Some(whole(&lines)));
    };
    let parts = fields(&lines[at]);
    let kind = parts.get(2).copied().unwrap_or_default();
    if !NAMES.iter().any(|name| kind == &name.as_bytes()["mount.".len()..]) {
        return Err(refused(&format!(
            "{FSTAB}:{}: {} is another file system's mountpoint; remove that line, or name another directory",
            at + 1,
            entry.mountpoint.display()
        )));
    }
    let line = line_of(entry, Some(parts.get(3).copied().unwrap_or_default()));
    if lines[at] == line {
        return Ok(None);
    }
    lines[at] = line;
    Ok(Some(whole(&lines)))
}

fn whole(lines: &[Vec<u8>]) -> Vec<u8> {
    let mut text = lines.join(&b'\n');
    text.push(b'\n');
    text
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(|error| at(path, &error)),
    }
}

fn at(path: &Path, error: &io::Error) -> Failure {
    refused(&format!("{}: {}; nothing was changed in it", path.display(), crate::cause(error)))
}

/// Writes the line into the file at `path`, whole or not at all, with a copy of the old file.
fn write_to(path: &Path, entry: &Entry) -> Result<Written, Failure> {
    // Where it is a link, the file behind it is meant.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let before = read(&path)?;
    let Some(after) = changed(&before, entry)? else { return Ok(Written::Unchanged) };
    let beside = |ending: &str| {
        let mut name = path.clone().into_os_string();
        name.push(ending);
        PathBuf::from(name)
    };
    let mode = fs::metadata(&path).map_or(0o644, |seen| seen.mode() & 0o7777);
    let backup = beside(BACKUP);
    replace(&before, &beside(UNFINISHED), &backup, mode)?;
    replace(&after, &beside(UNFINISHED), &path, mode)?;
    Ok(Written::Changed(backup))
}

/// Makes `text` the content of `path`, by way of `unfinished`: a crash leaves the old or the new file.
fn replace(text: &[u8], unfinished: &Path, path: &Path, mode: u32) -> Result<(), Failure> {
    let write = || {
        // One that is left over is of a try that ended early; a link there is not followed.
        let _ = fs::remove_file(unfinished);
        let options = fs::OpenOptions::new().write(true).create_new(true).mode(mode).clone();
        let mut file = options.open(unfinished)?;
        // Independent of this process's umask.
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(text)?;
        file.sync_all()?;
        fs::rename(unfinished, path)?;
        match path.parent() {
            Some(folder) => fs::File::open(folder)?.sync_all(),
            None => Ok(()),
        }
    };
    write().map_err(|error| {
        let _ = fs::remove_file(unfinished);
        at(path, &error)
    })
}

/// Makes the link by which mount(8) finds this program, if there is none.
fn link(folder: &Path) -> Result<(), Failure> {
    let link = folder.join(NAMES[0]);
    let failed = |error: io::Error| {
        let program = "the program of uvfs";
        let (link, cause) = (link.display(), crate::cause(&error));
        refused(&format!("{link}: {cause}; make it a link to {program}, for mount(8)"))
    };
    let program = std::env::current_exe().map_err(failed)?;
    match symlink(&program, &link) {
        Ok(()) => {
            let (link, program) = (link.display(), program.display());
            crate::print_line(&format!("uvfs: {link}: leads to {program} now, for mount(8)"));
            Ok(())
        }
        Err(error) if error.raw_os_error() == Some(Errno::EXIST.raw_os_error()) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_control::mounts::parse;

    const BEFORE: &str =
        "# static file systems\nUUID=1 / ext4 defaults 0 1\n\n/dev/sdb /srv ext4 defaults 0 2";

    fn entry(mountpoint: &str, options: &[&str]) -> Entry {
        Entry {
            source: "/srv/da ta".into(),
            mountpoint: mountpoint.into(),
            options: options.iter().map(OsString::from).collect(),
            defaults: vec!["nofail".into()],
        }
    }

    fn after(before: &str, entry: &Entry) -> Option<String> {
        changed(before.as_bytes(), entry).unwrap().map(|text| String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_line_is_added_once_and_the_others_stay_as_they_are() {
        let added = entry("/mnt/d#1", &["cache_size=2G", "log_file=/a,b"]);
        let first = after(BEFORE, &added).expect("a change");
        let line =
            r"/srv/da\040ta /mnt/d\0431 fuse.uvfs nofail,cache_size=2G,log_file=/a\134,b 0 0";
        assert_eq!(first, format!("{BEFORE}\n{line}\n"));
        assert_eq!(after(&first, &added), None, "the second time nothing changes");
    }

    #[test]
    fn a_line_that_is_there_keeps_what_is_mount_s_and_systemds() {
        let line = "x /mnt/a fuse.uvfs noauto,x-systemd.automount,_netdev,cache_size=1G 0 0";
        let first = after(line, &entry("/mnt/a", &["watch"])).unwrap();
        let rest = "fuse.uvfs noauto,x-systemd.automount,_netdev,watch 0 0\n";
        assert_eq!(first, format!("/srv/da\\040ta /mnt/a {rest}"));
        let first = after("x /mnt/a uvfs rw 0 0 # mine", &entry("/mnt/a", &[])).unwrap();
        assert!(first.contains(" fuse.uvfs rw,nofail 0 0\n"), "no boot waits for it: {first}");
    }

    #[test]
    fn a_mountpoint_of_another_file_system_is_refused_by_its_line() {
        let refused = changed(BEFORE.as_bytes(), &entry("/srv", &[])).unwrap_err().to_string();
        assert!(refused.contains("/etc/fstab:4: /srv is another file system's"), "{refused}");
        assert!(changed(b"# x /mnt/a ext4\n", &entry("/mnt/a", &[])).is_ok(), "a comment");
    }

    #[test]
    fn what_would_block_the_boot_is_refused() {
        let table = b"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:5 / /tmp rw - tmpfs none rw\n\
                      3 1 0:6 / /net rw - nfs4 host:/x rw\n";
        let mounts = parse(table);
        let refusal = |mountpoint: &str, source: &str, program: &str| {
            let path = Path::new;
            let checked = check(path(mountpoint), Some(path(source)), path(program), &mounts);
            checked.err().map(|failure| failure.to_string()).unwrap_or_default()
        };
        assert_eq!(refusal("/mnt/data", "/srv/data", "/usr/bin/uvfs"), "");
        assert_eq!(refusal("/var/lib/data", "/srv/data", "/usr/bin/uvfs"), "");
        for needed in ["/", "/usr", "/usr/share/x", "/etc/x", "/boot", "/run/x", "/var", "/lib64"] {
            let refused = refusal(needed, "/srv/data", "/usr/bin/uvfs");
            assert!(
                refused.contains("needs") && refused.contains("to boot"),
                "{needed}: {refused}"
            );
        }
        for (what, line) in [
            ("mountpoint /tmp/x", refusal("/tmp/x", "/srv", "/usr/bin/uvfs")),
            ("source /tmp/x", refusal("/mnt/x", "/tmp/x", "/usr/bin/uvfs")),
            ("program /tmp/uvfs", refusal("/mnt/x", "/srv", "/tmp/uvfs")),
        ] {
            assert!(line.contains(&format!("{what}: lies on a tmpfs")), "{line}");
        }
        let options = |source: &str| defaults(Some(Path::new(source)), &mounts);
        assert_eq!(options("/srv"), ["nofail", "x-systemd.requires-mounts-for=/srv"]);
        assert_eq!(
            options("/net/a"),
            ["nofail", "_netdev", "x-systemd.requires-mounts-for=/net/a"]
        );
        assert_eq!(defaults(None, &mounts), ["nofail"]);
    }

    #[test]
    fn the_options_of_the_command_line_are_written_and_those_of_this_run_are_not() {
        let line = [
            "uvfs",
            "mount",
            "/srv",
            "/mnt",
            "--daemon",
            "--update-fstab",
            "--cache-size",
            "2G",
            "--allow-other",
            "--log-file",
            "relative",
        ];
        let words = Arguments::command().get_matches_from(line);
        let given = options(words.subcommand_matches("mount").unwrap()).unwrap();
        let here = std::env::current_dir().unwrap().join("relative");
        let log = format!("log_file={}", here.display());
        assert_eq!(given, ["allow_other", "cache_size=2G", &log]);
        let named = ["uvfs", "mount", "/srv", "/mnt", "--name", "x"];
        let words = Arguments::command().get_matches_from(named);
        assert!(options(words.subcommand_matches("mount").unwrap()).is_err());
    }

    #[test]
    fn the_file_is_replaced_whole_with_its_mode_and_a_copy_of_it_before() {
        let folder = tempfile::tempdir().unwrap();
        let (path, backup) = (folder.path().join("fstab"), folder.path().join("fstab.uvfs.bak"));
        let folder_of_link = folder.path().canonicalize().unwrap();
        fs::write(&path, BEFORE).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o664)).unwrap();
        let linked = folder.path().join("link");
        symlink("fstab", &linked).unwrap();
        let one = entry("/mnt/a", &[]);
        let written = write_to(&linked, &one).unwrap();
        assert_eq!(written, Written::Changed(folder_of_link.join("fstab.uvfs.bak")));
        assert!(fs::symlink_metadata(&linked).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&backup).unwrap(), BEFORE);
        assert!(fs::read_to_string(&path).unwrap().contains("/mnt/a fuse.uvfs"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o664);
        assert_eq!(write_to(&path, &one).unwrap(), Written::Unchanged);
        assert_eq!(fs::read_to_string(&backup).unwrap(), BEFORE, "the copy is of the last change");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3, "nothing unfinished is left");
    }
}
