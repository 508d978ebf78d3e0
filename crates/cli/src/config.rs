//! Settings from files and the environment: values of options of `uvfs mount` that the command line lacks.
//!
//! # Boundary
//! Finds values and records the origin of each. They become words of the command line, so that an option from any
//! origin is read and refused in one place; [`crate::plan`] applies it.
//!
//! # Why
//! The nearest word wins: the command line, then a variable `UVFS_…`, then the user's file, then the machine's; in a
//! file the table of one mountpoint, then the general one. An unknown key is refused, since a misspelt limit would be
//! no limit. A file is read only if its owner is the reader or root, and no other user may write it. Weakness: a flag
//! that a file sets cannot be cleared on the command line, only by its variable.

use crate::Failure;
use crate::daemon;
use crate::flags::{Arguments, ConfigAction, ConfigArguments};
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, CommandFactory};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use toml::{Table, Value};

/// The machine's file.
const SYSTEM: &str = "/etc/uvfs/config.toml";
/// A user's, in the folder of configurations.
const USER: &str = "uvfs/config.toml";
/// A file to be read instead of both.
const INSTEAD: &str = "UVFS_CONFIG";
/// The prefix of all variables.
const PREFIX: &str = "UVFS_";
/// For every mount.
const MOUNT: &str = "mount";
/// For one mountpoint, by its path.
const MOUNTPOINT: &str = "mountpoint";
/// Largest file that is read.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Options that only a command line has.
const NOT_HERE: [&str; 5] = ["help", "update-fstab", "in-background", "at-boot", COLOR];
/// The option that may precede the command.
const COLOR: &str = "color";

/// Where a value is from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Origin {
    CommandLine,
    /// This variable.
    Environment(String),
    /// This table of this file.
    File(PathBuf, String),
    Default,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::CommandLine => out.write_str("command line"),
            Origin::Environment(name) => write!(out, "environment {name}"),
            Origin::File(path, table) => write!(out, "{} {table}", path.display()),
            Origin::Default => out.write_str("default"),
        }
    }
}

/// An option with its value; a flag that is set has `true`.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Setting {
    option: String,
    /// None where the default depends on the machine or the source.
    value: Option<String>,
    origin: Origin,
    is_flag: bool,
}

impl Setting {
    /// A line as a file may have it, with its origin; a default that depends on more is a comment.
    fn line(&self) -> String {
        let line = match &self.value {
            Some(value) if self.is_flag => format!("{} = {value}", self.option),
            Some(value) => format!("{} = {}", self.option, Value::String(value.clone())),
            None => format!("# {} =", self.option),
        };
        format!("{line:<40} # {}", self.origin)
    }

    /// The setting as a word of the command line; none for a flag that is not set.
    fn word(&self) -> Option<OsString> {
        match (self.is_flag, self.value.as_deref()?) {
            (false, value) => Some(format!("--{}={value}", self.option).into()),
            (true, "true") => Some(format!("--{}", self.option).into()),
            (true, _) => None,
        }
    }
}

/// The variables and files of this process.
#[derive(Debug)]
struct Sources {
    variables: Vec<(OsString, OsString)>,
    /// The nearest first.
    files: Vec<ConfigFile>,
}

/// A file that was read.
#[derive(Debug)]
struct ConfigFile {
    path: PathBuf,
    table: Table,
}

/// The words of a command line, with those of `uvfs mount` that files and the environment add; and the origins of
/// these.
///
/// # Errors
/// A fault in a file or a variable.
pub(crate) fn completed(words: Vec<OsString>) -> Result<(Vec<OsString>, Vec<String>), Failure> {
    let command = place_of_command(&words);
    let is_mount = words.get(command).is_some_and(|word| word == MOUNT);
    // The reader of the command line reports invalid words; a request for help is no mount.
    let given = is_mount.then(|| Arguments::command().try_get_matches_from(&words).ok()).flatten();
    let Some(given) = given.as_ref().and_then(|given| given.subcommand_matches(MOUNT)) else {
        return Ok((words, Vec::new()));
    };
    let mountpoint = given.get_raw("mountpoint").and_then(|mut all| all.next());
    let added: Vec<Setting> = effective(&Sources::here()?, mountpoint, Some(given))?
        .into_iter()
        .filter(|one| matches!(one.origin, Origin::Environment(_) | Origin::File(..)))
        .collect();
    let notes =
        added.iter().map(|one| format!("--{} is from {}", one.option, one.origin)).collect();
    let (before, behind) = words.split_at(command + 1);
    let mut all: Vec<OsString> = before.to_vec();
    all.extend(added.iter().filter_map(Setting::word));
    all.extend_from_slice(behind);
    Ok((all, notes))
}

/// The index of the command in `words`: behind the options that apply to every command.
fn place_of_command(words: &[OsString]) -> usize {
    let long = format!("--{COLOR}");
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        match word {
            word if word == long => at += 2,
            word if word.starts_with(&format!("{long}=")) => at += 1,
            _ => break,
        }
    }
    at
}

/// The settings of `mountpoint`, a line for each option, as a file may have it.
///
/// # Errors
/// A fault in a file or a variable.
pub(crate) fn lines(mountpoint: Option<&Path>) -> Result<Vec<String>, Failure> {
    let settings = effective(&Sources::here()?, mountpoint.map(Path::as_os_str), None)?;
    Ok(settings.iter().map(Setting::line).collect())
}

/// Runs `uvfs config`.
///
/// # Errors
/// A fault in a file or a variable.
pub(crate) fn run(arguments: &ConfigArguments) -> Result<ExitCode, Failure> {
    let ConfigAction::Show { effective: all, json, mountpoint } = &arguments.action;
    let sources = Sources::here()?;
    let mountpoint = mountpoint.as_ref().map(|path| path.as_os_str());
    let settings = effective(&sources, mountpoint, None)?;
    if !*all && settings.iter().all(|one| one.origin == Origin::Default) {
        eprintln!("uvfs: nothing is set by a file or a variable; --effective shows the defaults");
    }
    for one in settings.iter().filter(|one| *all || one.origin != Origin::Default) {
        let origin = one.origin.to_string();
        if *json {
            let line = json!({"option": one.option, "value": one.value, "origin": origin});
            crate::print_line(&line.to_string());
            continue;
        }
        crate::print_line(&crate::shown::shown(&one.line()));
    }
    Ok(ExitCode::SUCCESS)
}

/// The options of `uvfs mount` that may be set here, in their order.
fn options() -> Vec<Arg> {
    let mut command = Arguments::command();
    command.build();
    let mount = command.find_subcommand(MOUNT).map(clap::Command::get_arguments);
    let is_one = |argument: &&Arg| {
        argument.get_long().is_some_and(|long| !NOT_HERE.contains(&long)) && !argument.is_hide_set()
    };
    mount.into_iter().flatten().filter(is_one).cloned().collect()
}

/// Every option with the value that holds for `mountpoint`, where one does.
fn effective(
    sources: &Sources,
    mountpoint: Option<&OsStr>,
    given: Option<&ArgMatches>,
) -> Result<Vec<Setting>, Failure> {
    let options = options();
    sources.files.iter().try_for_each(|file| file.check(&options))?;
    let mut settings = Vec::new();
    for option in &options {
        let Some(long) = option.get_long() else { continue };
        let is_flag = !option.get_action().takes_values();
        let setting = |value, origin| Setting { option: long.to_owned(), value, origin, is_flag };
        let is_given = given.is_some_and(|given| {
            given.value_source(option.get_id().as_str()) == Some(ValueSource::CommandLine)
        });
        if is_given {
            settings.push(setting(None, Origin::CommandLine));
        } else if let Some((value, origin)) = sources.of(long, is_flag, mountpoint)? {
            settings.push(setting(Some(value), origin));
        } else {
            let default = option.get_default_values().first();
            let default = default.map(|value| value.to_string_lossy().into_owned());
            let value = if is_flag { Some("false".into()) } else { default };
            settings.push(setting(value, Origin::Default));
        }
    }
    Ok(settings)
}

/// The variable of an option.
fn variable(long: &str) -> String {
    format!("{PREFIX}{}", long.replace('-', "_").to_uppercase())
}

impl Sources {
    fn here() -> Result<Self, Failure> {
        let instead = std::env::var_os(INSTEAD).filter(|path| !path.is_empty());
        let folder = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from);
        let folder = folder.filter(|folder| folder.is_absolute());
        let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
        let user = folder.or_else(home).map(|folder| folder.join(USER));
        let files = match instead {
            // A file named by the user must exist.
            Some(path) => vec![(PathBuf::from(path), true)],
            None => {
                let user = user.into_iter().map(|path| (path, false));
                user.chain([(PathBuf::from(SYSTEM), false)]).collect()
            }
        };
        let read =
            files.iter().filter_map(|(path, needed)| ConfigFile::read(path, *needed).transpose());
        Ok(Self {
            variables: std::env::vars_os().collect(),
            files: read.collect::<Result<_, _>>()?,
        })
    }

    /// The value of an option, by the nearest that has one.
    fn of(
        &self,
        long: &str,
        is_flag: bool,
        mountpoint: Option<&OsStr>,
    ) -> Result<Option<(String, Origin)>, Failure> {
        let name = variable(long);
        if let Some((_, value)) = self.variables.iter().find(|(one, _)| *one == *name) {
            let text = value.to_str().ok_or_else(|| usage(&format!("{name}: no UTF-8")))?;
            let value = match (is_flag, text) {
                (false, text) => text.to_owned(),
                (true, "1" | "true") => "true".to_owned(),
                (true, "0" | "false" | "") => "false".to_owned(),
                (true, _) => return Err(usage(&format!("{name}={text}: write true or false"))),
            };
            return Ok(Some((value, Origin::Environment(name))));
        }
        Ok(self.files.iter().find_map(|file| {
            let (value, table) = file.value(long, mountpoint)?;
            Some((value, Origin::File(file.path.clone(), table)))
        }))
    }
}

fn usage(line: &str) -> Failure {
    Failure::usage(line)
}

impl ConfigFile {
    /// The file at `path`; none if there is none, or none that this user may read, and none is `needed`.
    fn read(path: &Path, needed: bool) -> Result<Option<Self>, Failure> {
        let at = |why: &str| Failure::refused(format!("{}: {why}", path.display()));
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && !needed => return Ok(None),
            // HOME may be another user's, after `su -m`. What a reader may not see holds for another user.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !needed => {
                // The command that starts a daemon has said so.
                if !std::env::args_os().any(|word| word == daemon::FLAG) {
                    let (path, cause) = (path.display().to_string(), crate::cause(&error));
                    eprintln!("uvfs: {}: {cause}; goes on without it", crate::shown::shown(&path));
                }
                return Ok(None);
            }
            Err(error) => {
                return Err(at(&format!("{}; see that it can be read", crate::cause(&error))));
            }
            Ok(file) => file,
        };
        let seen = file.metadata().map_err(|error| at(&crate::cause(&error)))?;
        let us = rustix::process::geteuid().as_raw();
        if !seen.is_file() && !path.starts_with("/dev") {
            return Err(at("not a file; name a file of settings"));
        }
        if seen.is_file() && ((seen.uid() != us && seen.uid() != 0) || seen.mode() & 0o022 != 0) {
            return Err(at(
                "another user may change it; make it yours, writable for you alone (chmod go-w)",
            ));
        }
        let mut text = String::new();
        let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
        read.map_err(|error| at(&format!("{}; write it in UTF-8", crate::cause(&error))))?;
        let table = text.parse().map_err(|error: toml::de::Error| {
            let line = error.span().map_or(1, |span| text[..span.start].lines().count().max(1));
            Failure::refused(format!(
                "{}:{line}: {}; mend that line",
                path.display(),
                error.message()
            ))
        })?;
        Ok(Some(Self { path: path.to_path_buf(), table }))
    }

    /// Refuses keys that no option reads.
    fn check(&self, options: &[Arg]) -> Result<(), Failure> {
        let at = |table: &str, why: String| {
            Failure::refused(format!("{} {table}: {why}", self.path.display()))
        };
        for (name, value) in &self.table {
            if ![MOUNT, MOUNTPOINT].contains(&name.as_str()) || !value.is_table() {
                let known = format!("[{MOUNT}] and [{MOUNTPOINT}.\"/path\"]");
                return Err(at(name, format!("unknown; settings are in the tables {known}")));
            }
        }
        for (table, values) in self.tables() {
            let values = values.as_table().ok_or_else(|| at(&table, "not a table".into()))?;
            if table.starts_with(&format!("[{MOUNTPOINT}.")) && !table.contains("\"/") {
                return Err(at(
                    &table,
                    "no mountpoint; write its whole path, as in \"/mnt/data\"".into(),
                ));
            }
            for (key, value) in values {
                let long = key.replace('_', "-");
                let known = options.iter().find(|one| one.get_long() == Some(&long));
                let known = known.ok_or_else(|| {
                    at(
                        &table,
                        format!("{key}: unknown; the keys are the options of `uvfs mount --help`"),
                    )
                })?;
                let fits = match known.get_action().takes_values() {
                    true => value.is_str() || value.is_integer(),
                    false => value.is_bool(),
                };
                if !fits {
                    let kind = if known.get_action().takes_values() {
                        "text, as in \"2G\""
                    } else {
                        "true or false"
                    };
                    return Err(at(&table, format!("{key}: write {kind}")));
                }
            }
        }
        Ok(())
    }

    /// The tables, by their headings in the file.
    fn tables(&self) -> Vec<(String, &Value)> {
        let all = self.table.get(MOUNT).map(|values| (format!("[{MOUNT}]"), values));
        let of_one = self.table.get(MOUNTPOINT).and_then(Value::as_table).into_iter().flatten();
        let of_one = of_one.map(|(path, values)| (format!("[{MOUNTPOINT}.\"{path}\"]"), values));
        all.into_iter().chain(of_one).collect()
    }

    /// The file's value of an option, with the table that has it.
    fn value(&self, long: &str, mountpoint: Option<&OsStr>) -> Option<(String, String)> {
        let path = mountpoint.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.into()));
        let of_one = self.table.get(MOUNTPOINT).and_then(Value::as_table).into_iter().flatten();
        let of_one = of_one
            .filter(|(named, _)| {
                // Without a slash at the end, which a shell's completion puts there.
                path.as_ref().is_some_and(|path| {
                    Path::new(named.as_str()).components().eq(path.components())
                })
            })
            .map(|(named, values)| (format!("[{MOUNTPOINT}.\"{named}\"]"), values));
        let all = self.table.get(MOUNT).map(|values| (format!("[{MOUNT}]"), values));
        of_one.chain(all).find_map(|(table, values)| {
            let found = values.as_table()?.iter().find(|(key, _)| key.replace('_', "-") == long)?;
            let value = match found.1 {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            Some((value, table))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A word before the command hid it, and no file and no variable was read.
    #[test]
    fn the_command_is_found_behind_what_holds_for_all() {
        let check = |line: &str, place| {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            assert_eq!(place_of_command(&words), place, "{line}");
        };
        check("uvfs mount a b", 1);
        check("uvfs --color never mount a b", 3);
        check("uvfs --color=never mount a b", 2);
        check("uvfs --color", 3);
        check("uvfs", 1);
    }

    fn file(path: &str, text: &str) -> ConfigFile {
        ConfigFile { path: path.into(), table: text.parse().expect("TOML") }
    }

    fn sources(variables: &[(&str, &str)], files: &[(&str, &str)]) -> Sources {
        Sources {
            variables: variables.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            files: files.iter().map(|(path, text)| file(path, text)).collect(),
        }
    }

    /// The value of `option` for /mnt/data, and where it is from.
    fn value(sources: &Sources, option: &str) -> (String, String) {
        let settings = effective(sources, Some(OsStr::new("/mnt/data/")), None).unwrap();
        let one = settings.into_iter().find(|one| one.option == option).expect("an option");
        (one.value.unwrap_or_default(), one.origin.to_string())
    }

    /// The order is a promise (docs/config.md).
    #[test]
    fn the_nearest_word_holds() {
        let system = (
            "/etc/c",
            "[mount]\ncache-size = \"1G\"\nreaders = 4\nwatch = true\nattr_timeout = \"5s\"",
        );
        let user =
            ("/home/c", "[mount]\ncache-size = \"2G\"\n[mountpoint.\"/mnt/data\"]\nreaders = 5");
        let all = sources(&[("UVFS_ATTR_TIMEOUT", "9s"), ("UVFS_WATCH", "0")], &[user, system]);
        let is = |option, expected: &str, origin: &str| {
            assert_eq!(value(&all, option), (expected.to_owned(), origin.to_owned()), "{option}");
        };
        is("cache-size", "2G", "/home/c [mount]");
        is("readers", "5", "/home/c [mountpoint.\"/mnt/data\"]");
        is("attr-timeout", "9s", "environment UVFS_ATTR_TIMEOUT");
        is("watch", "false", "environment UVFS_WATCH");
        is("page-cache", "auto", "default");
        // Another source, another default.
        is("entry-timeout", "", "default");
        is("allow-other", "false", "default");
        let words = ["uvfs", "mount", "/srv", "/mnt/data", "--cache-size", "7G"];
        let given = Arguments::command().get_matches_from(words);
        let settings =
            effective(&all, None, Some(given.subcommand_matches("mount").unwrap())).unwrap();
        let size = settings.iter().find(|one| one.option == "cache-size").unwrap();
        assert_eq!(size.origin, Origin::CommandLine);
    }

    #[test]
    fn a_setting_that_nothing_reads_is_refused_with_its_place() {
        let refusal = |text: &str| {
            let found = effective(&sources(&[], &[("/c", text)]), None, None);
            found.err().map(|failure| failure.to_string()).unwrap_or_default()
        };
        assert_eq!(refusal("[mount]\ncache-size = \"1G\"\nreaders = 2\nallow_other = false"), "");
        for (text, expected) in [
            ("[mount]\ncache-sise = \"1G\"", "/c [mount]: cache-sise: unknown; the keys are"),
            ("[mount]\nupdate-fstab = true", "update-fstab: unknown"),
            ("[mount]\nwatch = \"yes\"", "/c [mount]: watch: write true or false"),
            ("[mount]\ncache-size = true", "cache-size: write text"),
            ("cache-size = \"1G\"", "/c cache-size: unknown; settings are in the tables"),
            ("[mountpoint.data]\nwatch = true", "no mountpoint; write its whole path"),
            ("[mountpoint]\nwatch = true", "not a table"),
        ] {
            assert!(refusal(text).contains(expected), "{text}: {}", refusal(text));
        }
        let bad = sources(&[("UVFS_WATCH", "yes")], &[]);
        let refused = effective(&bad, None, None).unwrap_err().to_string();
        assert_eq!(refused, "UVFS_WATCH=yes: write true or false");
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_broken_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config.toml");
        assert!(ConfigFile::read(&path, false).unwrap().is_none());
        assert!(ConfigFile::read(&path, true).unwrap_err().to_string().contains("No such file"));
        let write = |text: &str, mode| {
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            ConfigFile::read(&path, false).map(|file| file.is_some())
        };
        assert_eq!(write("[mount]\n", 0o644), Ok(true));
        assert!(
            write("[mount]\n", 0o664).unwrap_err().to_string().contains("another user may change")
        );
        let broken = write("[mount]\ncache-size = \n", 0o644).unwrap_err().to_string();
        assert!(broken.starts_with(&format!("{}:2: ", path.display())), "{broken}");
        assert!(ConfigFile::read(Path::new("/dev/null"), true).unwrap().is_some());
    }

    #[test]
    fn a_setting_is_a_word_that_the_command_reads() {
        let all = sources(
            &[("UVFS_PAGE_CACHE", "write-back")],
            &[("/c", "[mount]\nwatch = true\nallow-other = false\nreaders = 3")],
        );
        let settings = effective(&all, None, None).unwrap();
        let set = settings.iter().filter(|one| one.origin != Origin::Default);
        let words: Vec<_> = set.filter_map(Setting::word).collect();
        let mut expected =
            ["--watch", "--page-cache=write-back", "--readers=3"].map(OsString::from);
        expected.sort();
        let mut sorted = words.clone();
        sorted.sort();
        assert_eq!(sorted, expected);
        let line = ["uvfs", "mount"].map(OsString::from).into_iter().chain(words);
        let line: Vec<_> = line.chain(["/srv".into(), "/mnt".into()]).collect();
        assert!(Arguments::command().try_get_matches_from(line).is_ok());
    }
}
