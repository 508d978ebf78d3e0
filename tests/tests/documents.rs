//! Floor: documents. Every block of README.md and docs/tutorials that a reader would type is run unchanged.
//!
//! # Boundary
//! A page is a script: its `sh` and `console` blocks run in order, in one shell, in a fresh folder. A block whose first
//! line is a comment with the name of a file (`/* stats.c */`, `# rules.toml`) is that file. In a `console` block a
//! line that begins with `$ ` is a command, and the lines after it are its output. A block that cannot run here has a
//! comment above it: `<!-- not run: REASON -->`. Rust blocks are tests of the documentation already.
//!
//! # Concurrency
//! The shell has its own mount and process namespaces: `/srv`, `/mnt` and `/run` are empty file systems in memory, so
//! the paths work unchanged and nothing of the machine changes. Every process ends with the shell. The variables of the
//! AWS tools lead to a store on loopback with the bucket `bucket`.
//!
//! # Why
//! Four of the five commands of README's image block failed, and no test noticed. Weakness: numbers are not compared,
//! since times and sizes differ from run to run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uvfs_tests::built;
use uvfs_tests::s3::S3Server;

/// Pages with blocks that a reader runs.
const PAGES: [&str; 5] = [
    "README.md",
    "docs/contention.md",
    "docs/tutorials/backend.md",
    "docs/tutorials/false-sharing.md",
    "docs/tutorials/mount.md",
];

/// Precedes each command in the shell's output.
const MARK: &str = "@@command ";

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests lies in the repository").into()
}

/// A fenced block of a page.
#[derive(Debug)]
struct Block {
    language: String,
    /// Line of the fence.
    line: usize,
    lines: Vec<String>,
    /// Why it does not run here.
    not_run: Option<String>,
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    let mut not_run = None;
    for (at, line) in page.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => found.extend(open.take()),
            (Some(block), None) => block.lines.push(line.to_owned()),
            (None, Some(language)) => {
                let (language, not_run) = (language.to_owned(), not_run.take());
                open = Some(Block { language, line: at + 1, lines: Vec::new(), not_run });
            }
            (None, None) => {
                let reason = line.strip_prefix("<!-- not run: ");
                if let Some(reason) = reason.and_then(|rest| rest.strip_suffix(" -->")) {
                    not_run = Some(reason.to_owned());
                } else if !line.trim().is_empty() {
                    not_run = None;
                }
            }
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    found
}

/// A command of a page, and its output in the page.
#[derive(Debug)]
struct Step {
    line: usize,
    command: String,
    printed: Vec<String>,
}

/// The steps of a block: in a `console` block one for each `$ `, in a block of `sh` one for the whole block.
fn steps(block: &Block) -> Vec<Step> {
    if block.language == "sh" {
        return vec![Step {
            line: block.line,
            command: block.lines.join("\n"),
            printed: Vec::new(),
        }];
    }
    let mut steps: Vec<Step> = Vec::new();
    for (at, line) in block.lines.iter().enumerate() {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => {
                let line = block.line + at + 1;
                steps.push(Step { line, command: command.to_owned(), printed: Vec::new() });
            }
            (None, Some(step)) => step.printed.push(line.clone()),
            (None, None) => panic!("line {}: output before the first command", block.line + at + 1),
        }
    }
    steps
}

/// The files that blocks are, by name.
fn files_of(blocks: &[Block]) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    for block in blocks {
        let first = block.lines.first().map_or("", String::as_str);
        let name = match block.language.as_str() {
            "c" => first.strip_prefix("/* ").and_then(|rest| rest.strip_suffix(" */")),
            "toml" => first.strip_prefix("# "),
            _ => None,
        };
        if let Some(name) = name.filter(|name| !name.contains(' ')) {
            files.insert(name.to_owned(), block.lines.join("\n") + "\n");
        }
    }
    files
}

/// `line` without parts that differ from run to run: a number is `#`, with its unit; a path of the fresh folder is
/// `DIR`.
fn shape(line: &str, folder: &str) -> String {
    let line = line.replace(folder, "DIR").replace("/tmp/try", "DIR");
    let mut words = Vec::new();
    for word in line.split_whitespace() {
        let unit = matches!(
            word.trim_end_matches([',', ';', ')']),
            "B" | "KiB" | "MiB" | "GiB" | "ns" | "µs" | "ms" | "s" | "million" | "below"
        );
        let mut number = false;
        let mut plain = String::new();
        for letter in word.chars() {
            let digit =
                letter.is_ascii_digit() || (number && matches!(letter, '.' | ',' | '-' | ':'));
            if digit && !number {
                plain.push('#');
            }
            number = digit;
            if !digit {
                plain.push(letter);
            }
        }
        match words.last() {
            Some(_) if unit => {}
            Some(last) if *last == plain => {}
            _ => words.push(plain),
        }
    }
    words.join(" ")
}

/// The script of a page. Its functions replace a reader's environment: both programs on the path, and `cargo`, which
/// here uses the programs that this test run has built.
fn script(steps: &[Step], sh: &[bool]) -> String {
    let mut script = String::from(include_str!("documents.sh"));
    for (at, step) in steps.iter().enumerate() {
        // A trap that a function sets ends with the function.
        let strict = if sh[at] || step.printed.is_empty() { "\"$FAILED\"" } else { "-" };
        let _ = write!(script, "echo '{MARK}{at}'\ntrap {strict} ERR\n{}\n", step.command);
    }
    script
}

/// Runs the blocks of `page` and returns the differences.
fn run(page: &str, files: &BTreeMap<String, String>) -> Vec<String> {
    let text = fs::read_to_string(repository().join(page)).unwrap();
    let (mut all, mut sh) = (Vec::new(), Vec::new());
    for block in blocks(&text) {
        match (block.language.as_str(), &block.not_run) {
            ("sh" | "console", None) => {
                let steps = steps(&block);
                sh.extend(steps.iter().map(|_| block.language == "sh"));
                all.extend(steps);
            }
            ("sh" | "console", Some(reason)) => {
                eprintln!("{page}:{}: not run: {reason}", block.line);
            }
            _ => {}
        }
    }
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(folder.path().join(name), text).unwrap();
    }
    let programs = tempfile::tempdir().unwrap();
    let path = programs.path().join("script.sh");
    fs::write(&path, script(&all, &sh)).unwrap();
    for (package, name) in [("uvfs", "uvfs"), ("uvfs-contention-cli", "uvfs-contention")] {
        std::os::unix::fs::symlink(built(package, name), programs.path().join(name)).unwrap();
    }
    let search = format!("{}:{}", programs.path().display(), std::env::var("PATH").unwrap());
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "bash"]).arg(&path);
    shell.current_dir(folder.path()).env("PATH", search).env("REPOSITORY", repository());
    shell.env("HOME", programs.path()).env_remove("CARGO_TARGET_DIR");
    let store = S3Server::start().expect("loopback has a free port");
    shell.env("AWS_ENDPOINT_URL", store.endpoint()).env("AWS_REGION", "us-east-1");
    shell.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", "test");
    let output = shell.stdin(Stdio::null()).output().expect("unshare of util-linux starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let here = folder.path().to_str().unwrap();
    let mut faults = Vec::new();
    let mut parts = said.split(MARK).skip(1);
    for (at, step) in all.iter().enumerate() {
        let Some(part) = parts.next() else {
            faults.push(format!("{page}:{}: not reached: {}", step.line, step.command));
            break;
        };
        let printed = part.strip_prefix(&format!("{at}\n")).expect("steps are in order");
        if let Some(failed) = printed.lines().find(|line| line.starts_with("@@failed")) {
            faults.push(format!("{page}:{}: {failed}\n{printed}", step.line));
            continue;
        }
        let mut shapes = printed.lines().map(|line| shape(line, here));
        for wanted in step.printed.iter().map(|line| shape(line, here)) {
            if !shapes.any(|shape| shape == wanted) {
                let command = &step.command;
                faults.push(format!(
                    "{page}:{}: `{command}` does not print (as the next lines) `{wanted}`, but\n{printed}",
                    step.line
                ));
                break;
            }
        }
    }
    if faults.is_empty() && !output.status.success() {
        faults.push(format!(
            "{page}: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ));
    }
    faults
}

/// Bug: README told readers to mount an image in the foreground and to check it while it was mounted, which fails.
#[test]
fn every_block_runs_as_it_is_written() {
    if !uvfs_skip::can_mount() {
        return;
    }
    if Command::new("gcc").arg("--version").output().is_err() {
        return uvfs_skip::lacking("gcc");
    }
    let mut files = BTreeMap::new();
    for page in PAGES {
        files.extend(files_of(&blocks(&fs::read_to_string(repository().join(page)).unwrap())));
    }
    let faults: Vec<String> = PAGES.iter().flat_map(|page| run(page, &files)).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A page that is new under docs/tutorials was not in the list, so its blocks ran nowhere.
#[test]
fn every_tutorial_is_in_the_list() {
    for entry in fs::read_dir(repository().join("docs/tutorials")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let page = format!("docs/tutorials/{name}");
        let text = fs::read_to_string(repository().join(&page)).unwrap();
        let runs = blocks(&text).iter().any(|block| matches!(&*block.language, "sh" | "console"));
        assert!(!runs || PAGES.contains(&&*page), "{page} has blocks to run and is not in PAGES");
    }
}
