//! `cargo xtask weaken`: finds the orderings whose weakening no model detects.
//!
//! # Boundary
//! Makes one weakening at a time in a copy of the repository, runs the models of its room, and reports their results.
//! Changes nothing here, and judges nothing: the note at a surviving ordering argues whether the weaker one is
//! equivalent.
//!
//! # Why
//! "Fails with a weaker ordering" is a claim that rots. One step at a time (AcqRel to Acquire and to Release, those to
//! Relaxed, a fence to none): an ordering that survives needs no stronger one. Weakness: only a room's own models run;
//! runs beyond the limit are reported apart, neither red nor green.

use crate::steps::{MODELLED, target};
use crate::tidy::weakenings;
use crate::tree::Tree;
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time limit of a run: a multiple of its unweakened time, with a minimum.
const TIMES: u32 = 10;
const LEAST: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The orderings to weaken.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only the protocols of one module: hold, epoch, frame, radix, ...
    #[arg(long)]
    room: Option<String>,
    /// Only this file, by its path in the repository or below the src of its crate
    file: Option<String>,
    /// Only tell what would be weakened
    #[arg(long)]
    list: bool,
}

/// One step down of one ordering.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Weakening {
    /// From 1.
    pub(crate) line: usize,
    /// The weakened line.
    pub(crate) text: String,
    /// "Acquire -> Relaxed".
    pub(crate) what: String,
}

/// The models' result for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Red,
    Green,
    TimedOut,
    DoesNotCompile,
}

/// Weakens the orderings that `options` name, and reports each.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let tree = Tree::of_repository()?;
    let files = chosen(&tree, options)?;
    let all: Vec<(&str, Weakening)> = files
        .iter()
        .flat_map(|&path| weakenings(&tree, path).into_iter().map(move |one| (path, one)))
        .collect();
    if options.list {
        all.iter().for_each(|(path, one)| println!("{}", shown(path, one)));
        println!("{} weakenings", all.len());
        return Ok(());
    }
    let copy = Copy::of(&tree)?;
    let mut limits: Vec<(&str, Duration)> = Vec::new();
    let mut said: Vec<(Verdict, String)> = Vec::new();
    for (path, one) in &all {
        let (package, below) = place(path).ok_or("a chosen file has models")?;
        let room = room_of(below);
        if !limits.iter().any(|(known, _)| *known == room) {
            let began = Instant::now();
            match copy.judge(package, room, Duration::from_secs(3600))? {
                Verdict::Green => {}
                other => return Err(format!("{room}: {other:?} before anything was weakened")),
            }
            limits.push((room, (began.elapsed() * TIMES).max(LEAST)));
        }
        let limit = limits.iter().find(|(known, _)| *known == room).map_or(LEAST, |known| known.1);
        let text = tree.text(path).unwrap_or_default();
        copy.write(path, &weakened(text, one))?;
        let verdict = copy.judge(package, room, limit);
        copy.write(path, text)?;
        let (verdict, line) = (verdict?, shown(path, one));
        println!("{verdict:?} {line}");
        said.push((verdict, line));
    }
    summary(&said);
    Ok(())
}

fn summary(said: &[(Verdict, String)]) {
    let count = |of: Verdict| said.iter().filter(|(verdict, _)| *verdict == of).count();
    println!(
        "{} weakenings: {} red, {} green, {} timed out, {} do not compile",
        said.len(),
        count(Verdict::Red),
        count(Verdict::Green),
        count(Verdict::TimedOut),
        count(Verdict::DoesNotCompile)
    );
    for (verdict, line) in said {
        if matches!(verdict, Verdict::Green | Verdict::TimedOut) {
            println!("  {verdict:?} {line}");
        }
    }
}

fn shown(path: &str, one: &Weakening) -> String {
    format!("{path}:{} {}: {}", one.line, one.what, one.text.trim())
}

/// The files that `options` name, of those with a protocol.
fn chosen<'a>(tree: &'a Tree, options: &Options) -> Result<Vec<&'a str>, String> {
    let is_chosen = |path: &&str| {
        let Some((_, below)) = place(path) else { return false };
        let of_room = options.room.as_deref().is_none_or(|room| room_of(below) == room);
        let is_file = |file: &str| *path == file || below == file;
        // The models are built on `primitive`.
        of_room && options.file.as_deref().is_none_or(is_file) && room_of(below) != "primitive"
    };
    let sources = tree.files().map(|(path, _)| path).filter(|path| path.ends_with(".rs"));
    let files: Vec<&str> = sources.filter(is_chosen).collect();
    match files.is_empty() {
        true => Err(format!("no file of {} is meant by {options:?}", MODELLED.join(" and "))),
        false => Ok(files),
    }
}

/// The package with models that `path` belongs to, and the rest of the path below its sources.
fn place(path: &str) -> Option<(&'static str, &str)> {
    MODELLED.into_iter().find_map(|package| {
        let below = path.strip_prefix(&folder(package))?.strip_prefix("/src/")?;
        Some((package, below))
    })
}

/// The folder of a package of ours.
fn folder(package: &str) -> String {
    format!("crates/{}", package.trim_start_matches("uvfs-"))
}

/// The module right below the crate that the file `below` its sources belongs to. No two crates with models have a
/// module of one name.
fn room_of(below: &str) -> &str {
    below.split('/').next().unwrap_or(below).trim_end_matches(".rs")
}

fn weakened(text: &str, one: &Weakening) -> String {
    let line = |(at, line): (usize, &str)| {
        let line = if at + 1 == one.line { &one.text } else { line };
        format!("{line}\n")
    };
    text.lines().enumerate().map(line).collect()
}

/// A copy of the repository, in which things are weakened.
struct Copy {
    root: PathBuf,
}

impl Copy {
    fn of(tree: &Tree) -> Result<Self, String> {
        let copy = Self { root: target().join("weaken/tree") };
        for (path, text) in tree.files() {
            copy.write(path, text)?;
        }
        Ok(copy)
    }

    /// Writes one file, unless it is the same already: an unchanged file is not built again.
    fn write(&self, path: &str, text: &str) -> Result<(), String> {
        let to = self.root.join(path);
        if fs::read_to_string(&to).is_ok_and(|there| there == text) {
            return Ok(());
        }
        let failed = |error| format!("{}: {error}", to.display());
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).map_err(failed)?;
        }
        fs::write(&to, text).map_err(failed)
    }

    /// The result of the models of `room` in `package` for the current copy.
    fn judge(&self, package: &str, room: &str, limit: Duration) -> Result<Verdict, String> {
        let Some(models) = self.built(package)? else { return Ok(Verdict::DoesNotCompile) };
        let mut command = Command::new(&models);
        // All of the room's tests that there are under the model checker.
        command.arg(format!("{room}::")).env("LOOM_MAX_PREEMPTIONS", "3");
        command.current_dir(self.root.join(folder(package)));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child =
            command.spawn().map_err(|error| format!("{}: {error}", models.display()))?;
        let began = Instant::now();
        loop {
            match child.try_wait().map_err(|error| format!("waiting for a model: {error}"))? {
                Some(status) if status.success() => return Ok(Verdict::Green),
                Some(_) => return Ok(Verdict::Red),
                None if began.elapsed() < limit => thread::sleep(LOOK_EVERY),
                None => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Ok(Verdict::TimedOut);
                }
            }
        }
    }

    /// Builds the models of `package`; where they are, or `None` if they do not compile.
    fn built(&self, package: &str) -> Result<Option<PathBuf>, String> {
        let cargo = std::env::var_os("CARGO").unwrap_or("cargo".into());
        let mut command = Command::new(cargo);
        command.args(["test", "-p", package, "--lib", "--profile", "model"]);
        command.args(["--no-run", "--message-format", "json"]).current_dir(&self.root);
        command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target().join("loom"));
        let output = command.output().map_err(|error| format!("cargo: {error}"))?;
        if !output.status.success() {
            return Ok(None);
        }
        let messages = String::from_utf8_lossy(&output.stdout);
        let program = messages.lines().rev().find_map(executable);
        program.map(Some).ok_or("cargo names no program of models".to_owned())
    }
}

/// The program that a message of cargo is about.
fn executable(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let path = message.get("executable")?.as_str()?;
    Path::new(path).is_absolute().then(|| path.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rooms_are_modules_right_below_a_crate_with_models() {
        let of = |path: &'static str| place(path).map(|(package, below)| (package, room_of(below)));
        assert_eq!(of("crates/containers/src/frame/free.rs"), Some(("uvfs-containers", "frame")));
        assert_eq!(of("crates/concurrent/src/lazy.rs"), Some(("uvfs-concurrent", "lazy")));
        assert_eq!(of("crates/vfs/src/vfs.rs"), None);
    }

    #[test]
    fn files_are_chosen_by_room_and_by_name() {
        let tree = Tree::made_up(&[
            ("crates/concurrent/src/lazy.rs", ""),
            ("crates/containers/src/frame/free.rs", ""),
            ("crates/concurrent/src/primitive/atomic.rs", ""),
            ("crates/vfs/src/vfs.rs", ""),
        ]);
        let chosen = |room: Option<&str>, file: Option<&str>| {
            let (room, file) = (room.map(str::to_owned), file.map(str::to_owned));
            let options = Options { room, file, list: false };
            chosen(&tree, &options).map(|files| files.len()).unwrap_or(0)
        };
        assert_eq!(chosen(None, None), 2);
        assert_eq!(chosen(Some("frame"), None), 1);
        assert_eq!(chosen(None, Some("lazy.rs")), 1);
        assert_eq!(chosen(None, Some("crates/containers/src/frame/free.rs")), 1);
        assert_eq!(chosen(Some("frame"), Some("lazy.rs")), 0, "refused");
    }

    #[test]
    fn one_line_is_another_one() {
        let one = Weakening { line: 2, text: "B".into(), what: String::new() };
        assert_eq!(weakened("a\nb\nc\n", &one), "a\nB\nc\n");
    }

    #[test]
    fn cargo_names_the_program() {
        let named = "{\"reason\":\"compiler-artifact\",\"executable\":\"/t/uvfs-1\"}";
        assert_eq!(executable(named), Some("/t/uvfs-1".into()));
        assert_eq!(executable("{\"executable\":null}"), None);
        assert_eq!(executable("warning: nothing"), None);
    }
}
