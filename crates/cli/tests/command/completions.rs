//! Shell completions: the shells' own scripts run, with the built program in PATH.

use crate::common::{Outcome, Place, can_mount, finish, run};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};

/// A PATH in which `uvfs` is the built program.
fn path() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_uvfs"));
    let folder = program.parent().expect("a folder").display();
    format!("{folder}:{}", std::env::var("PATH").unwrap_or_default())
}

/// Runs `script` in `shell`; `None`, with a note, if the shell is not installed.
fn shell(shell: &str, arguments: &[&str]) -> Option<Outcome> {
    let mut command = Command::new(shell);
    command.args(arguments).env("PATH", path()).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let is_there = Command::new(shell).arg("--version").stdout(Stdio::null()).status().is_ok();
    if !is_there {
        uvfs_skip::lacking(format_args!("no {shell}"));
        return None;
    }
    Some(finish(&mut command))
}

/// The candidates of bash at the end of `line`, whose words are broken like bash does.
fn bash(line: &str) -> Option<Vec<String>> {
    let words = line.replace(':', " : ").replace('=', " = ");
    let mut words: Vec<&str> = words.split(' ').filter(|word| !word.is_empty()).collect();
    if line.ends_with(' ') {
        words.push("");
    }
    let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "set -u; source <(uvfs completions bash); COMP_WORDBREAKS=$' \\t\\n=:'; COMP_LINE='{line}'; \
         COMP_POINT=${{#COMP_LINE}}; COMP_WORDS=({}); COMP_CWORD={}; _uvfs && printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words.len() - 1
    );
    let outcome = shell("bash", &["-c", &script])?;
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    Some(outcome.stdout.lines().map(ToOwned::to_owned).collect())
}

#[test]
fn bash_completes_commands_values_and_what_stands_behind_a_colon() {
    let place = Place::new();
    std::fs::create_dir(place.source.join("photos")).unwrap();
    let Some(commands) = bash("uvfs un") else { return };
    assert_eq!(commands, ["unmount"]);
    assert_eq!(bash("uvfs mount --page-cache write-b").unwrap(), ["write-back"]);
    // Bash replaces the part behind its last break, so only that is returned.
    let directory = format!("{}/photos/", place.src());
    let check =
        |line: String, expected: &str| assert_eq!(bash(&line).unwrap(), [expected], "{line}");
    check(format!("uvfs drop 3:{}/ph", place.src()), &directory);
    check(format!("uvfs drop 1:/srv 3:{}/ph", place.src()), &directory);
    check(format!("uvfs mount dir:{}/ph", place.src()), &directory);
    check(format!("uvfs cached {}/ph", place.src()), &directory);
    check("uvfs set /mnt/data cache-s".into(), "cache-size=");
    assert!(bash("uvfs drop ").unwrap().contains(&"1:".into()));
}

/// Completing must not hang on the mount that is to be unmounted.
#[test]
fn bash_completes_mountpoints_also_of_dead_mounts() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let daemon = place.mount_daemon(place.src(), &[]);
    let line = format!("uvfs unmount {}", &place.mnt()[..place.mnt().len() - 1]);
    let Some(offered) = bash(&line) else { return };
    assert_eq!(offered, [place.mnt()]);
    rustix::process::kill_process(daemon, Signal::KILL).unwrap();
    assert_eq!(bash(&line).unwrap(), [place.mnt()]);
}

#[test]
fn fish_completes_with_descriptions_and_zsh_reads_its_script() {
    let script = "uvfs completions fish | source; complete -C 'uvfs unmo'";
    if let Some(offered) = shell("fish", &["--no-config", "-c", script]) {
        assert_eq!(
            offered.stdout, "unmount\tEnd a mount, with everything written\n",
            "{offered:?}"
        );
    }
    let script = "autoload -U compinit; compinit -D; source <(uvfs completions zsh); \
                  echo $+functions[_clap_dynamic_completer_uvfs] $_comps[uvfs]";
    if let Some(read) = shell("zsh", &["-f", "-c", script]) {
        assert_eq!(read.stdout, "1 _clap_dynamic_completer_uvfs\n", "{read:?}");
    }
}

#[test]
fn a_script_for_no_shell_is_refused_with_those_that_there_are() {
    let outcome = run(&["completions", "tcsh"]);
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    assert!(outcome.stderr.contains("bash") && outcome.stderr.contains("fish"), "{outcome:?}");
}
