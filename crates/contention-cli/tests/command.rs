//! `uvfs contention` from outside: help, and refusals that name thing, cause and remedy.
//!
//! Programs with known answers test the findings of a run.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

const COMMANDS: [&str; 16] = [
    "cargo",
    "cc",
    "c++",
    "run",
    "report",
    "layout",
    "numa",
    "sweep",
    "compare",
    "gate",
    "what-if",
    "advise",
    "import",
    "record",
    "machine",
    "calibrate",
];

/// The result of a command.
#[derive(Debug)]
struct Outcome {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

/// The program, not yet started.
fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_uvfs-contention"));
    command.stdin(Stdio::null());
    command
}

/// Runs `command` to its end.
fn finish(command: &mut Command) -> Outcome {
    let done = command.output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Outcome { code: done.status.code(), stdout: text(done.stdout), stderr: text(done.stderr) }
}

/// Runs the program with `arguments`.
fn run(arguments: &[&str]) -> Outcome {
    finish(program().args(arguments))
}

/// Runs `uvfs contention` with `arguments`, and without the cache of the user.
fn contention(folder: &TempDir, arguments: &[&str]) -> Outcome {
    let mut command = program();
    command.args(arguments).env("XDG_CACHE_HOME", folder.path()).current_dir(folder.path());
    command.env_remove("CC").env_remove("CARGO");
    finish(&mut command)
}

/// Checks that `arguments` are refused with one line that has `parts` in it, in this order.
fn check_refused(folder: &TempDir, arguments: &[&str], status: i32, parts: &[&str]) {
    let outcome = contention(folder, arguments);
    assert_eq!(outcome.code, Some(status), "{arguments:?}: {outcome:?}");
    assert_eq!(outcome.stdout, "", "{arguments:?}");
    let line = outcome.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(line.starts_with("uvfs: ") && !line.contains('\n'), "{arguments:?}: {outcome:?}");
    let mut rest = line;
    for part in parts {
        let at =
            rest.find(part).unwrap_or_else(|| panic!("{arguments:?}: no {part:?} in {line:?}"));
        rest = &rest[at + part.len()..];
    }
}

fn file(folder: &TempDir, name: &str, content: &str, mode: u32) -> String {
    let path = folder.path().join(name);
    fs::write(&path, content).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path.to_str().unwrap().to_string()
}

#[test]
fn every_command_has_help_with_an_example_and_the_exit_statuses() {
    let overview = run(&["--help"]);
    for command in COMMANDS {
        assert!(overview.stdout.contains(command), "{command} is missing in {}", overview.stdout);
        let help = run(&[command, "--help"]);
        assert_eq!(help.code, Some(0), "{command}: {help:?}");
        assert!(
            help.stdout.contains("Examples:") && help.stdout.contains("Exit status:"),
            "{command}: {help:?}"
        );
        assert!(help.stdout.contains("uvfs contention "), "{command}: {help:?}");
    }
    assert!(!overview.stdout.contains("  exec"), "{}", overview.stdout);
    assert!(overview.stdout.contains("Usage: uvfs contention"), "{}", overview.stdout);
}

#[test]
fn programs_that_cannot_be_run_are_refused() {
    let folder = TempDir::new().unwrap();
    let check = |program: &str, parts: &[&str]| {
        check_refused(&folder, &["run", "--", program], 1, parts);
        check_refused(&folder, &["sweep", "--cores", "1", program], 1, parts);
    };
    check("no-such-program-here", &["no-such-program-here", "not found", "name a program"]);
    check("/etc/passwd", &["/etc/passwd", "not executable"]);
    check("sh", &["sh", "not instrumented", "uvfs contention cargo build"]);
    let script = file(&folder, "go", "#!/bin/sh -e\n", 0o755);
    check(&script, &[&script, "a script for /bin/sh -e", "name the program that it starts"]);
    let text = file(&folder, "text", "words\n", 0o755);
    check(&text, &[&text, "not a program"]);
    assert!(!folder.path().join("uvfs.contention").exists());
}

/// A static program, and one with the sanitizer's own runtime, where the compiler makes them.
#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_runs() {
    // `--html /none/map.html` was found out when all seeds had run.
    let folder = TempDir::new().unwrap();
    let program = file(&folder, "prog", "", 0o755);
    for flag in ["--output", "--html"] {
        let parts = [flag, "none/x", "its folder is not there"];
        check_refused(&folder, &["run", flag, "none/x", "--", &program], 1, &parts);
        check_refused(&folder, &["sweep", flag, ".", "--", &program], 1, &["Is a directory"]);
        check_refused(&folder, &["cargo", flag, "none/x", "run"], 1, &parts);
    }
}

#[test]
fn a_file_that_is_something_else_is_not_overwritten() {
    // `run --output prog.c` replaced the source by a profile, and the second run replaced the copy that was kept of it.
    let folder = TempDir::new().unwrap();
    let program = file(&folder, "prog", "", 0o755);
    let source = file(&folder, "prog.c", "int main(void) { return 0; }\n", 0o644);
    let page = file(&folder, "index.html", "<!DOCTYPE html>\n<html lang=\"en\">\n", 0o644);
    check_refused(&folder, &["run", "--html", &page, "--", &program], 1, &["it is there and not"]);
    for flag in ["--output", "--html"] {
        for command in ["run", "sweep", "numa"] {
            let words = [command, flag, &source, "--", &program];
            check_refused(&folder, &words, 1, &[flag, "prog.c", "it is there and not a p"]);
        }
    }
    assert_eq!(fs::read_to_string(source).unwrap(), "int main(void) { return 0; }\n");
}

#[test]
fn flags_may_stand_before_the_command() {
    let folder = TempDir::new().unwrap();
    check_refused(&folder, &["--cores", "0", "machine"], 1, &["`cores` is 0"]);
    let shown = contention(&folder, &["--cores", "64", "--nodes=2", "machine"]);
    assert!(shown.stdout.contains("cores = 64") && shown.stdout.contains("nodes = 2"), "{shown:?}");
}

#[test]
fn programs_that_exclude_the_runtime_are_refused() {
    let folder = TempDir::new().unwrap();
    let source = file(&folder, "a.c", "int shared; int main(void) { return shared++; }\n", 0o644);
    for (flag, words) in
        [("-static", "linked statically"), ("-fsanitize=thread", "sanitizer's own runtime")]
    {
        let program = folder.path().join(flag);
        let made =
            std::process::Command::new("cc").args([flag, &source, "-o"]).arg(&program).output();
        if !made.is_ok_and(|made| made.status.success()) {
            eprintln!("cc {flag} does not work here; left out");
            continue;
        }
        let program = program.to_str().unwrap();
        check_refused(&folder, &["run", program], 1, &[program, words]);
    }
}

#[test]
fn machines_that_cannot_be_are_refused() {
    let folder = TempDir::new().unwrap();
    check_refused(&folder, &["machine", "--cores", "0"], 1, &["cores"]);
    check_refused(&folder, &["machine", "--cores", "4", "--nodes", "9"], 1, &["nodes"]);
    check_refused(&folder, &["machine", "--machine", "/no/such.toml"], 1, &["/no/such.toml"]);
    let broken = file(&folder, "broken.toml", "coers = 3\n", 0o644);
    check_refused(&folder, &["machine", "--machine", &broken], 1, &["coers"]);
    let made = folder.path().join("made.toml");
    let made = made.to_str().unwrap();
    assert_eq!(contention(&folder, &["machine", "--cores", "16", "--write", made]).code, Some(0));
    check_refused(&folder, &["machine", "--write", made], 1, &[made, "name a new file"]);
    let again = contention(&folder, &["machine", "--machine", made]);
    assert!(again.stdout.contains("cores = 16"), "{again:?}");
}

#[test]
fn profiles_that_cannot_be_read_are_refused() {
    let folder = TempDir::new().unwrap();
    let broken = file(&folder, "broken.contention", "{\"record\":\"meta\"\n", 0o644);
    let rules = file(&folder, "rules.toml", "[max]\nfalse_sharing = 0.1\n", 0o644);
    for path in ["/no/such.contention", &broken] {
        check_refused(&folder, &["report", path], 1, &[path]);
        check_refused(&folder, &["layout", "Any", path], 1, &[path]);
        check_refused(&folder, &["compare", path, path], 1, &[path]);
        check_refused(&folder, &["gate", path, &rules], 1, &[path]);
        check_refused(&folder, &["advise", path], 1, &[path]);
    }
    let misspelt = file(&folder, "misspelt.toml", "[mx]\n", 0o644);
    check_refused(&folder, &["gate", &broken, &misspelt], 1, &["misspelt.toml:1", "mx"]);
    let empty = file(&folder, "perf.txt", "", 0o644);
    check_refused(&folder, &["import", &empty], 1, &["perf.txt"]);
}

#[test]
fn command_lines_that_make_no_sense_end_with_two() {
    let folder = TempDir::new().unwrap();
    check_refused(
        &folder,
        &["sweep", "--cores", "8..2", "sh"],
        2,
        &["--cores 8..2", "goes upwards"],
    );
    check_refused(&folder, &["sweep", "--work", "much", "sh"], 2, &["--work much", "stdout:REGEX"]);
    check_refused(&folder, &["sweep", "--work", "stdout:x", "sh"], 2, &["no group"]);
    check_refused(&folder, &["numa", "--nodes", "1", "sh"], 2, &["nothing to compare"]);
    check_refused(&folder, &["what-if", "Foo", "--", "sh"], 2, &["Foo", "->"]);
    check_refused(&folder, &["what-if", "Foo -> align 3", "--", "sh"], 2, &["align 3"]);
    for arguments in
        [&["run"][..], &["run", "--seeds", "0", "sh"], &["report", "a", "--hist", "--locks"]]
    {
        assert_eq!(contention(&folder, arguments).code, Some(2), "{arguments:?}");
    }
}

#[test]
fn cargo_without_a_project_or_for_another_machine_is_refused() {
    let folder = TempDir::new().unwrap();
    check_refused(
        &folder,
        &["cargo", "run"],
        1,
        &["cargo", "Cargo.toml", "go to a folder of a project"],
    );
    check_refused(
        &folder,
        &["cargo", "run", "--target", "aarch64-unknown-linux-gnu"],
        1,
        &["only programs of"],
    );
}

#[test]
fn the_compiler_passes_questions_through_and_refuses_what_excludes_it() {
    let folder = TempDir::new().unwrap();
    let version = contention(&folder, &["cc", "-dumpversion"]);
    assert!(version.code == Some(0) && !version.stdout.is_empty(), "{version:?}");
    check_refused(&folder, &["cc", "-static", "a.c"], 1, &["-static"]);
    check_refused(&folder, &["cc", "-fsanitize=address", "a.c"], 1, &["-fsanitize=address"]);
    check_refused(
        &folder,
        &["cc", "--cc", "/no/such/cc", "-c", "a.c"],
        1,
        &["/no/such/cc", "--cc"],
    );
}

/// One command compiles and links; the program runs alone, and needs the runtime but no sanitizer's.
#[test]
fn what_the_compiler_makes_runs_alone() {
    let folder = TempDir::new().unwrap();
    let source = "#include <stdio.h>\nint shared; int main(void) { return printf(\"%d\\n\", ++shared) != 2; }\n";
    let source = file(&folder, "a.c", source, 0o644);
    let made = contention(&folder, &["cc", "-O2", "-Wall", &source, "-o", "alone"]);
    assert_eq!((made.code, made.stderr.as_str()), (Some(0), ""));
    let program = folder.path().join("alone");
    let mut command = std::process::Command::new(&program);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let alone = finish(&mut command);
    assert_eq!((alone.code, alone.stdout.as_str(), alone.stderr.as_str()), (Some(0), "1\n", ""));
    let bytes = fs::read(&program).unwrap();
    let has = |text: &str| bytes.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("libuvfs_contention.so") && has("__tsan_write4") && !has("libtsan"));
    assert!(!Path::new(&folder.path().join("a.o")).exists());
    // A failed compilation keeps its status.
    let broken = file(&folder, "b.c", "int main(void) { return }\n", 0o644);
    assert_eq!(contention(&folder, &["cc", &broken]).code, Some(1));
}

/// A toolchain that drops the pass's attribute instruments no plain access and says nothing. Then the unstable
/// flag is taken; where that means nothing either, nothing is built.
#[test]
fn a_toolchain_that_ignores_the_pass_is_noticed() {
    let folder = TempDir::new().unwrap();
    fs::create_dir(folder.path().join("src")).unwrap();
    let manifest =
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n";
    file(&folder, "Cargo.toml", manifest, 0o644);
    file(&folder, "src/main.rs", "fn main() {}\n", 0o644);
    let deaf = |name: &str, dropped: &str| {
        let script = format!(
            "#!/bin/bash\nkept=()\nfor word in \"$@\"; do case \"$word\" in {dropped}) ;; *) kept+=(\"$word\") ;; esac; done\n\
             exec rustc \"${{kept[@]}}\"\n"
        );
        file(&folder, name, &script, 0o755)
    };
    let build = |rustc: &str| {
        let mut command = program();
        command.args(["cargo", "build"]).current_dir(folder.path());
        command
            .env("XDG_CACHE_HOME", folder.path().join("cache"))
            .env("RUSTC", rustc)
            .env_remove("CARGO");
        command.env_remove("CARGO_TARGET_DIR");
        finish(&mut command)
    };
    let second = build(&deaf("second", "-Cllvm-args=-force-attribute*"));
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(folder.path().join("target/contention").exists());
    let none = build(&deaf("none", "-Cllvm-args=-force-attribute*|-Zsanitizer=thread"));
    assert_eq!(none.code, Some(1), "{none:?}");
    let line = none.stderr.strip_suffix('\n').unwrap_or_default();
    assert!(line.starts_with("uvfs: rustc ") && !line.contains('\n'), "{line}");
    assert!(
        line.contains("plain accesses are left out") && line.contains("use another toolchain"),
        "{line}"
    );
}
