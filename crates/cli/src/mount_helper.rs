//! `mount.fuse.uvfs`: this program as mount(8) calls it, for `/etc/fstab`, `mount -a` and systemd.
//!
//! # Boundary
//! From the words of mount(8) to those of `uvfs mount --daemon`, which does the rest in a separate process.
//! [`crate::flags`] has our options; here are those that belong to mount(8), to systemd, or to no program.
//!
//! # Why
//! mount(8) starts `mount.TYPE SOURCE DIRECTORY -o OPTIONS`. A package only has to install a link of that name to this
//! program, which cannot be of another version. Every option is accepted or refused by name: a silently ignored one,
//! such as `noexec`, would be a broken promise. The exit statuses are mount(8)'s, which passes them on. Weakness: a
//! value with a comma needs `\,`.

use crate::Failure;
use crate::flags::MountArguments;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The names under which mount(8) looks for it, for `-t fuse.uvfs` and `-t uvfs`.
pub(crate) const NAMES: [&str; 2] = ["mount.fuse.uvfs", "mount.uvfs"];

/// Exit statuses of mount(8).
mod status {
    /// The options are invalid, or the user may not mount.
    pub(super) const USAGE: u8 = 1;
    /// The system lacks something.
    pub(super) const SYSTEM: u8 = 2;
    /// It was tried and did not work.
    pub(super) const FAILED: u8 = 32;
}

/// Options for mount(8), systemd or no program: there is nothing to do for them.
const OF_OTHERS: [&str; 27] = [
    "defaults",
    "rw",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "exec",
    "async",
    "nosuid",
    "nodev",
    "user",
    "nouser",
    "users",
    "nousers",
    "owner",
    "noowner",
    "group",
    "nogroup",
    "relatime",
    "norelatime",
    "noiversion",
    "nomand",
    "loud",
    "comment",
    "default_permissions",
    "daemon",
    "nolazytime",
];

/// Options that would be promises, and their replacement.
const REFUSED: [(&str, &str); 15] = [
    ("noexec", "uvfs cannot forbid to execute; leave it out (`user` implies it: write user,exec)"),
    ("suid", "a uvfs mount is always nosuid; leave it out"),
    ("dev", "a uvfs mount is always nodev; leave it out"),
    ("sync", "uvfs has no such mode; write page_cache=write-through, or leave it out"),
    ("dirsync", "uvfs has no such mode; leave it out"),
    ("strictatime", "uvfs has no such mode; write atime=relatime for memory:, or leave it out"),
    ("lazytime", "uvfs has no such mode; leave it out"),
    ("mand", "uvfs has no mandatory locks; leave it out"),
    ("remount", "unmount and mount again; `uvfs set` changes the size of a mount in use"),
    ("bind", "that is no uvfs mount; write the type none"),
    ("allow_root", "write allow_other, or leave it out"),
    ("fsname", "write name"),
    ("subtype", "it is always uvfs; leave it out"),
    ("update-fstab", "that is for a command line; leave it out"),
    ("help", "`uvfs mount --help` is for a command line; leave it out"),
];

/// The request of mount(8).
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    source: OsString,
    mountpoint: OsString,
    /// Further words of `uvfs mount`.
    options: Vec<OsString>,
    /// All but the mount itself.
    fake: bool,
    verbose: bool,
}

/// Whether the program was started under one of [`NAMES`].
pub(crate) fn is_called(program: Option<&OsString>) -> bool {
    let name = program.and_then(|program| Path::new(program).file_name());
    name.is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

/// Carries out the request of mount(8); `words` are those behind the program's name.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    let outcome = read(words).and_then(|asked| match asked.fake {
        true => Ok(0),
        false => mount(&asked),
    });
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("uvfs: {failure}");
            ExitCode::from(status_of(failure.status()))
        }
    }
}

/// mount(8)'s status for one of ours.
fn status_of(ours: u8) -> u8 {
    match ours {
        0 => 0,
        2 => status::USAGE,
        _ => status::FAILED,
    }
}

/// Mounts in the background, and waits until it is ready or has failed.
fn mount(asked: &Asked) -> Result<u8, Failure> {
    let failed = |error: io::Error| {
        let line = format!("this program: {}; see that it can be started", crate::cause(&error));
        Failure::of_another(line, status::SYSTEM)
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["mount", "--daemon", "--at-boot"]).args(&asked.options);
    command.arg("--").arg(&asked.source).arg(&asked.mountpoint).stdin(Stdio::null());
    // mount(8) is silent when it is done.
    if !asked.verbose {
        command.stdout(Stdio::null());
    }
    let ended = command.status().map_err(failed)?;
    // By a signal: it did not work.
    Ok(ended.code().and_then(|code| u8::try_from(code).ok()).map_or(status::FAILED, status_of))
}

fn read(words: &[OsString]) -> Result<Asked, Failure> {
    let mut asked = Asked::default();
    let (mut names, mut options, mut is_sloppy) = (Vec::new(), Vec::new(), false);
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let Some(letters) = word.as_bytes().strip_prefix(b"-").filter(|rest| !rest.is_empty())
        else {
            names.push(word.clone());
            continue;
        };
        for (at, letter) in letters.iter().enumerate() {
            match letter {
                b's' => is_sloppy = true,
                b'f' => asked.fake = true,
                b'v' => asked.verbose = true,
                b'n' | b'w' => {}
                b'r' => options.push(b"ro".to_vec()),
                b'o' | b't' => {
                    let rest = &letters[at + 1..];
                    let value = match rest.is_empty() {
                        true => words.next().map(|word| word.as_bytes().to_vec()),
                        false => Some(rest.to_vec()),
                    };
                    let value = value.ok_or_else(|| usage("-o: what?; write options behind it"))?;
                    if *letter == b'o' {
                        options.extend(split(&value));
                    }
                    break;
                }
                other => {
                    let other = char::from(*other);
                    return Err(usage(&format!(
                        "-{other}: mount(8) has it and uvfs has not; leave it out"
                    )));
                }
            }
        }
    }
    let Ok([source, mountpoint]) = <[OsString; 2]>::try_from(names) else {
        return Err(usage(
            "mount(8) starts this name as mount.fuse.uvfs SOURCE DIRECTORY [-o OPTIONS]; use `uvfs mount`",
        ));
    };
    let mut is_named = false;
    for option in options {
        let option = String::from_utf8(option)
            .map_err(|error| usage(&format!("{error}; write options in UTF-8")))?;
        match word_of(&option) {
            Ok(word) => {
                is_named |= option.starts_with("name=");
                asked.options.extend(word);
            }
            Err(Unusable::Unknown(_)) if is_sloppy => {}
            Err(Unusable::Unknown(why) | Unusable::Refused(why)) => return Err(usage(&why)),
        }
    }
    // `mount -a` skips a line whose source is in the mount table.
    let fits = |name: &str| !name.contains(',') && !name.contains(char::is_control);
    if let Some(name) = source.to_str().filter(|name| !is_named && fits(name)) {
        asked.options.push(format!("--name={name}").into());
    }
    (asked.source, asked.mountpoint) = (source, mountpoint);
    Ok(asked)
}

fn usage(line: &str) -> Failure {
    Failure::usage(line)
}

/// Why an option cannot be used.
#[derive(Debug, PartialEq, Eq)]
enum Unusable {
    /// mount(8) may skip it.
    Unknown(String),
    Refused(String),
}

/// Whether an option of fstab is not for uvfs but for mount(8), systemd or other readers of the line.
pub(crate) fn is_of_others(option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    option.starts_with("x-") || option.starts_with("X-") || OF_OTHERS.contains(&name)
}

/// The word of `uvfs mount` for an option; none for one that is for others.
fn word_of(option: &str) -> Result<Option<OsString>, Unusable> {
    let (name, value) = match option.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (option, None),
    };
    let long = name.replace('_', "-");
    if option.is_empty() || is_of_others(option) {
        return Ok(None);
    }
    if let Some((_, remedy)) = REFUSED.iter().find(|(word, _)| *word == name || *word == long) {
        return Err(Unusable::Refused(format!("option {name}: {remedy}")));
    }
    match (name, value) {
        ("ro", None) => return Ok(Some("--read-only".into())),
        ("noatime" | "nodiratime", None) => return Ok(Some(format!("--atime={name}").into())),
        _ => {}
    }
    let command = MountArguments::augment_args(clap::Command::new("mount"));
    let known = command.get_arguments().find(|one| one.get_long() == Some(&long));
    let known = known.filter(|one| !one.is_hide_set()).ok_or_else(|| {
        let all = "`uvfs mount --help` has all, to be written with - or _";
        Unusable::Unknown(format!("option {name}: unknown; {all}"))
    })?;
    match (known.get_action().takes_values(), value) {
        (true, Some(value)) => Ok(Some(format!("--{long}={value}").into())),
        (false, None) => Ok(Some(format!("--{long}").into())),
        (true, None) => Err(Unusable::Refused(format!(
            "option {name}: its value is missing; write {name}=VALUE"
        ))),
        (false, Some(_)) => {
            Err(Unusable::Refused(format!("option {name}: it takes no value; write {name}")))
        }
    }
}

/// The options between commas; `\,` is a comma of a value, and `\\` a backslash.
pub(crate) fn split(options: &[u8]) -> Vec<Vec<u8>> {
    let mut split = vec![Vec::new()];
    let mut bytes = options.iter();
    while let Some(byte) = bytes.next() {
        let last = split.len() - 1;
        match byte {
            b',' => split.push(Vec::new()),
            b'\\' => split[last].push(*bytes.next().unwrap_or(byte)),
            _ => split[last].push(*byte),
        }
    }
    split
}

/// An option as [`split`] reads it.
pub(crate) fn joined(option: &OsStr) -> OsString {
    let mut out = Vec::with_capacity(option.len());
    for byte in option.as_bytes() {
        if matches!(byte, b',' | b'\\') {
            out.push(b'\\');
        }
        out.push(*byte);
    }
    OsString::from_vec(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Arguments, Command};
    use clap::Parser;

    fn words(line: &[&str]) -> Vec<OsString> {
        line.iter().map(OsString::from).collect()
    }

    fn options(options: &str) -> Result<Vec<String>, String> {
        let read = read(&words(&["dir:/srv", "/mnt", "-o", options, "-n"]));
        let text = |word: OsString| word.to_string_lossy().into_owned();
        read.map(|asked| asked.options.into_iter().map(text).collect())
            .map_err(|failure| failure.to_string())
    }

    #[test]
    fn it_is_known_by_its_name() {
        for name in ["/sbin/mount.fuse.uvfs", "mount.uvfs"] {
            assert!(is_called(Some(&name.into())), "{name}");
        }
        for name in ["uvfs", "/mount.fuse.uvfs/uvfs", "mount.fuse"] {
            assert!(!is_called(Some(&name.into())), "{name}");
        }
    }

    #[test]
    fn options_of_fstab_are_those_of_the_command_with_dash_or_underscore() {
        assert_eq!(
            options(
                "rw,_netdev,cache_size=2G,page-cache=write-back,allow_other,ro,x-systemd.automount,fakeroot,new_owner=7"
            ),
            Ok([
                "--cache-size=2G",
                "--page-cache=write-back",
                "--allow-other",
                "--read-only",
                "--fakeroot",
                "--new-owner=7",
                "--name=dir:/srv"
            ]
            .map(str::to_owned)
            .to_vec())
        );
        assert_eq!(options("noatime,name=a").unwrap(), ["--atime=noatime", "--name=a"]);
        assert_eq!(options(r"log_file=/a\,b\\c").unwrap()[0], r"--log-file=/a,b\c");
        assert_eq!(options("defaults,noauto,user,nofail,comment=x").unwrap(), ["--name=dir:/srv"]);
    }

    /// A flag that is new must be one that a line of fstab may have, and the command must read it.
    #[test]
    fn every_long_option_can_be_written_in_fstab() {
        let command = MountArguments::augment_args(clap::Command::new("mount"));
        let shown = command.get_arguments().filter(|one| !one.is_hide_set());
        let mut known = 0;
        for one in shown {
            let Some(long) = one.get_long() else { continue };
            if REFUSED.iter().any(|(word, _)| *word == long) || OF_OTHERS.contains(&long) {
                continue;
            }
            let values = one.get_possible_values();
            let value = values.first().map_or("1", |value| value.get_name());
            let option = match one.get_action().takes_values() {
                true => format!("{}={value}", long.replace('-', "_")),
                false => long.replace('-', "_"),
            };
            let word = word_of(&option).unwrap().expect("a word").into_string().unwrap();
            let line = ["uvfs", "mount", "--daemon", &word, "--", "dir:/srv", "/mnt"];
            let read = Arguments::try_parse_from(line).expect("the command takes it").command;
            assert!(matches!(read, Command::Mount(_)));
            known += 1;
        }
        assert!(known > 15, "{known}");
    }

    #[test]
    fn what_cannot_be_kept_is_refused_by_name() {
        let check = |option: &str, expected: &str| {
            let refused = options(option).unwrap_err();
            let name = option.split('=').next().unwrap();
            assert!(refused.starts_with(&format!("option {name}: ")), "{refused}");
            assert!(refused.contains(expected), "{refused}");
        };
        for (word, remedy) in REFUSED {
            check(word, remedy);
        }
        check("cache_sise=2G", "unknown; `uvfs mount --help` has all");
        check("in_background", "unknown");
        check("at_boot", "unknown");
        check("cache_size", "its value is missing; write cache_size=VALUE");
        check("watch=1", "it takes no value; write watch");
    }

    #[test]
    fn the_words_of_mount_are_read_as_it_writes_them() {
        let asked = |line: &[&str]| read(&words(line)).unwrap();
        let plain = asked(&["/srv", "/mnt"]);
        assert_eq!((plain.source, plain.mountpoint), ("/srv".into(), "/mnt".into()));
        let all = asked(&["memory:", "/mnt", "-sfnv", "-o", "rw,frob", "-t", "fuse.uvfs"]);
        assert!(all.fake && all.verbose, "and the unknown option is passed over");
        assert_eq!(asked(&["/srv", "/mnt", "-r"]).options[0], "--read-only");
        assert_eq!(asked(&["/srv", "/mnt", "-oro"]).options[0], "--read-only");
        for bad in
            [&["/srv"][..], &["/a", "/b", "/c"], &["/a", "/b", "-N", "1"], &["/a", "/b", "-o"]]
        {
            assert_eq!(read(&words(bad)).unwrap_err().status(), 2, "{bad:?}");
        }
        assert_eq!([0, 1, 2, 101].map(status_of), [0, 32, 1, 32]);
    }

    #[test]
    fn a_value_survives_the_way_through_the_line() {
        for value in ["plain", "a,b", "a\\", "\\,", "x=1,y\\\\"] {
            let joined = joined(OsStr::new(value));
            assert_eq!(split(joined.as_bytes()), [value.as_bytes().to_vec()], "{value}");
        }
    }
}
