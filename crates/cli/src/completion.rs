//! `uvfs completions`: the words that a shell may write at the cursor.
//!
//! # Boundary
//! [`crate::flags`] has the words; this module finds the values of an argument by its name in the command. The engine
//! and the scripts of zsh and fish are `clap_complete`'s; the script of bash is ours.
//!
//! # Why
//! The script asks the program at each key, so it knows the current mounts and never lacks a flag. It reads the mount
//! table and touches no mount: a dead one must not hang the very line that unmounts it. Bash breaks words at `:` and
//! `=`, which would split requests such as `1:/srv`, so its script joins them again and removes the same part from the
//! answers. Weakness: a directory is listed to complete its entries, and hangs if its server does.

use crate::Failure;
use crate::flags::{Arguments, Shell};
use crate::mountinfo;
use clap::{CommandFactory, ValueHint};
use clap_complete::engine::{
    ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter,
};
use clap_complete::env::{EnvCompleter, Fish, Shells, Zsh};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use uvfs_control::setting::{KEYS, LEVELS};

/// Set by the scripts: the shell that asks.
const ASKED_BY: &str = "_UVFS_COMPLETE";
/// Set by the scripts of bash and zsh: the place of the word to complete.
const INDEX: &str = "_CLAP_COMPLETE_INDEX";
/// The program's name in the shell that completes it.
const PROGRAM: &str = "uvfs";
const SHELLS: Shells<'static> = Shells(&[&Bash, &Zsh, &Fish]);

/// The script of bash. Its first loop undoes the breaking of words: a word directly after the one before it in the line
/// is a part of it.
const BASH: &str = r#"_uvfs() {
    local rest=$COMP_LINE word current prefix breaks= i
    local -a words=()
    for ((i = 0; i <= COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if ((i > 0)) && [[ $rest == [^[:space:]]* ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#*"$word"}
    done
    current=${words[${#words[@]}-1]}
    current=${current#[\"\']}
    current=${current//\\/}
    words[${#words[@]}-1]=$current
    mapfile -t COMPREPLY < <(VARIABLE=bash INDEX=$((${#words[@]} - 1)) PROGRAM -- "${words[@]}" 2>/dev/null)
    [[ $COMP_WORDBREAKS == *:* ]] && breaks+=:
    [[ $COMP_WORDBREAKS == *=* ]] && breaks+==
    if [[ $breaks && $current == *[$breaks]* ]]; then
        prefix=${current%"${current##*[$breaks]}"}
        COMPREPLY=("${COMPREPLY[@]#"$prefix"}")
    fi
    [[ "${COMPREPLY[*]}" == */* ]] && compopt -o filenames 2>/dev/null
    if [[ ${#COMPREPLY[@]} == 1 && ${COMPREPLY[0]} == *[/:=] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}
complete -o bashdefault -o default -o nosort -F _uvfs BIN
"#;

/// Runs the subcommand.
///
/// # Errors
/// None that is expected: the script is written to memory first.
pub(crate) fn run(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    let (name, failed) = (shell.name(), |error: io::Error| Failure::refused(error.to_string()));
    let completer = SHELLS.completer(name).ok_or_else(|| Failure::usage("no such shell"))?;
    completer
        .write_registration(ASKED_BY, PROGRAM, PROGRAM, PROGRAM, &mut script)
        .map_err(failed)?;
    crate::print_text(&String::from_utf8_lossy(&script));
    Ok(ExitCode::SUCCESS)
}

/// Answers a shell and ends the program, where a shell asks.
pub(crate) fn answer() {
    clap_complete::CompleteEnv::with_factory(command).var(ASKED_BY).shells(SHELLS).complete();
}

/// The command line with completers for its values.
fn command() -> clap::Command {
    let mounts = || ArgValueCompleter::new(mountpoints);
    let mut whole = Arguments::command();
    for (command, argument) in MOUNTPOINTS {
        whole = whole.mut_subcommand(command, |one| {
            one.mut_arg(argument, |argument| argument.add(mounts()))
        });
    }
    whole
        .mut_subcommand("mount", |mount| {
            mount
                .mut_arg("source", |source| source.add(ArgValueCompleter::new(sources)))
                .mut_arg("mountpoint", |place| place.value_hint(ValueHint::DirPath))
        })
        .mut_subcommand("set", |set| {
            set.mut_arg("settings", |one| one.add(ArgValueCompleter::new(settings)))
        })
        .mut_subcommand("drop", |drop| {
            drop.mut_arg("requests", |one| one.add(ArgValueCompleter::new(requests)))
        })
        .mut_subcommand("cached", |cached| {
            cached.mut_arg("directory", |one| one.value_hint(ValueHint::DirPath))
        })
        .mut_subcommand("warmup", |warmup| {
            warmup.mut_arg("directory", |one| one.value_hint(ValueHint::DirPath))
        })
        .mut_subcommand("refresh", |refresh| {
            refresh.mut_arg("directory", |one| one.value_hint(ValueHint::DirPath))
        })
        .mut_subcommand("policy", |policy| {
            policy.mut_arg("words", |one| one.add(ArgValueCompleter::new(policies)))
        })
}

/// Arguments that are a mountpoint, by subcommand.
const MOUNTPOINTS: [(&str, &str); 5] = [
    ("metrics", "mountpoints"),
    ("stat", "mountpoint"),
    ("set", "mountpoint"),
    ("unmount", "mountpoint"),
    ("drop", "mount"),
];

/// Where uvfs mounts are; or directories, where none begins as `typed`.
fn mountpoints(typed: &OsStr) -> Vec<CompletionCandidate> {
    let mounts = mountinfo::read().unwrap_or_default();
    let ours = mounts.iter().filter(|mount| mount.is_uvfs());
    let named = ours.map(|mount| {
        let source = mount.source.to_string_lossy().into_owned();
        let source = uvfs_terminal::shown::shown(&source).into_owned();
        CompletionCandidate::new(&mount.mountpoint).help(Some(source.into()))
    });
    let mut found = beginning_with(typed, named);
    found.dedup_by(|one, other| one.get_value() == other.get_value());
    if found.is_empty() { directories(typed) } else { found }
}

fn directories(typed: &OsStr) -> Vec<CompletionCandidate> {
    PathCompleter::dir().complete(typed)
}

/// Sources of mounts: a scheme, or a path behind one or by itself.
fn sources(typed: &OsStr) -> Vec<CompletionCandidate> {
    if let Some(found) = behind(typed, "dir:", directories) {
        return found;
    }
    if let Some(found) = behind(typed, "image:", |path| PathCompleter::any().complete(path)) {
        return found;
    }
    let schemes = [("memory:", "RAM"), ("dir:", "a host directory"), ("image:", "a disk image")];
    let schemes =
        schemes.map(|(scheme, what)| CompletionCandidate::new(scheme).help(Some(what.into())));
    let mut found = beginning_with(typed, schemes);
    found.extend(PathCompleter::any().complete(typed));
    found
}

/// Values of `uvfs drop`: a digit, and the directory behind it.
fn requests(typed: &OsStr) -> Vec<CompletionCandidate> {
    let kinds = [("1:", "pages"), ("2:", "names and inodes"), ("3:", "both")];
    let inside = kinds.iter().find_map(|(kind, _)| behind(typed, kind, directories));
    let kinds = kinds.map(|(kind, what)| CompletionCandidate::new(kind).help(Some(what.into())));
    inside.unwrap_or_else(|| beginning_with(typed, kinds))
}

/// Values of `uvfs set`.
fn settings(typed: &OsStr) -> Vec<CompletionCandidate> {
    let levels = |typed: &OsStr| {
        beginning_with(typed, LEVELS.map(|(level, _)| CompletionCandidate::new(level)))
    };
    if let Some(found) = behind(typed, "log-level=", levels) {
        return found;
    }
    beginning_with(typed, KEYS.map(|key| CompletionCandidate::new(format!("{key}="))))
}

/// Values of `uvfs policy`: a policy, then directories; or a mountpoint.
fn policies(typed: &OsStr) -> Vec<CompletionCandidate> {
    let words = ["keep", "once", "normal", "none"].map(CompletionCandidate::new);
    let mut found = beginning_with(typed, words);
    found.extend(mountpoints(typed));
    if !typed.is_empty() {
        found.extend(directories(typed));
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|one| seen.insert(one.get_value().to_owned()));
    found
}

/// Those of `candidates` that begin with `typed`.
fn beginning_with(
    typed: &OsStr,
    candidates: impl IntoIterator<Item = CompletionCandidate>,
) -> Vec<CompletionCandidate> {
    let typed = typed.as_encoded_bytes();
    let begins = |one: &CompletionCandidate| one.get_value().as_encoded_bytes().starts_with(typed);
    candidates.into_iter().filter(begins).collect()
}

/// The results of `complete` behind `prefix`, if `typed` begins with it.
fn behind(
    typed: &OsStr,
    prefix: &str,
    complete: impl Fn(&OsStr) -> Vec<CompletionCandidate>,
) -> Option<Vec<CompletionCandidate>> {
    use std::os::unix::ffi::OsStrExt;
    let path = typed.as_bytes().strip_prefix(prefix.as_bytes())?;
    let found = complete(OsStr::from_bytes(path));
    Some(found.into_iter().map(|one| one.add_prefix(prefix)).collect())
}

/// Bash, whose words we put together ourselves.
#[derive(Debug)]
struct Bash;

impl EnvCompleter for Bash {
    fn name(&self) -> &'static str {
        "bash"
    }

    fn is(&self, name: &str) -> bool {
        name == "bash"
    }

    fn write_registration(
        &self,
        variable: &str,
        _name: &str,
        bin: &str,
        completer: &str,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let script = BASH.replace("VARIABLE", variable).replace("INDEX", INDEX);
        out.write_all(script.replace("PROGRAM", completer).replace("BIN", bin).as_bytes())
    }

    fn write_complete(
        &self,
        command: &mut clap::Command,
        words: Vec<OsString>,
        directory: Option<&Path>,
        out: &mut dyn Write,
    ) -> io::Result<()> {
        use std::os::unix::ffi::OsStrExt;
        let index = std::env::var(INDEX).ok().and_then(|index| index.parse().ok());
        let index = index.unwrap_or(words.len().saturating_sub(1));
        for one in clap_complete::engine::complete(command, words, index, directory)? {
            // A name with a newline would be two.
            if !one.get_value().as_bytes().contains(&b'\n') {
                out.write_all(one.get_value().as_bytes())?;
                out.write_all(b"\n")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The completions of the last of `words`, in `directory`.
    fn offered(directory: &Path, words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = [&["uvfs"], words].concat().iter().map(OsString::from).collect();
        let last = words.len() - 1;
        let found = clap_complete::engine::complete(&mut command(), words, last, Some(directory));
        let found = found.expect("a place in the line");
        found.iter().map(|one| one.get_value().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn commands_flags_and_their_values_are_offered_and_hidden_ones_are_not() {
        let here = Path::new("/");
        let commands = offered(here, &[""]);
        for command in ["mount", "stat", "drop", "completions"] {
            assert!(commands.iter().any(|one| one == command), "{command}: {commands:?}");
        }
        assert!(!commands.iter().any(|one| one == "ask-mount"), "{commands:?}");
        assert_eq!(offered(here, &["mount", "--page-cache", "write-b"]), ["write-back"]);
        assert_eq!(offered(here, &["mount", "--allow-o"]), ["--allow-other"]);
        assert_eq!(offered(here, &["completions", "f"]), ["fish"]);
        assert_eq!(offered(here, &["set", "/m", "cache"]), ["cache-size="]);
        assert_eq!(offered(here, &["set", "/m", "log-level=w"]), ["log-level=warn"]);
        assert_eq!(offered(here, &["policy", "on"]), ["once"]);
    }

    #[test]
    fn directories_are_offered_also_behind_a_scheme_or_a_request() {
        let base = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(base.path().join("photos/2019")).unwrap();
        std::fs::write(base.path().join("photos.img"), "").unwrap();
        let path = |inside: &str| format!("{}/{inside}", base.path().display());
        let check = |words: &[&str], expected: &[String]| {
            assert_eq!(offered(base.path(), words), expected, "{words:?}");
        };
        check(&["cached", &path("ph")], &[path("photos/")]);
        check(&["drop", &format!("3:{}", path("ph"))], &[format!("3:{}", path("photos/"))]);
        assert!(offered(base.path(), &["drop", ""]).starts_with(&[
            "1:".into(),
            "2:".into(),
            "3:".into()
        ]));
        check(
            &["mount", &format!("dir:{}", path("photos/"))],
            &[format!("dir:{}", path("photos/2019/"))],
        );
        let mut either = offered(base.path(), &["mount", &path("ph")]);
        either.sort();
        assert_eq!(either, [path("photos.img"), path("photos/")]);
        check(&["mount", "mem"], &["memory:".into()]);
        check(&["mount", "/srv", &path("ph")], &[path("photos/")]);
        // No mount begins so: directories help further than nothing.
        check(&["unmount", &path("ph")], &[path("photos/")]);
    }
}
