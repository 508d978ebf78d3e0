//! Many open files: a program meets its own limit, and not that of the daemon.

use crate::common::{Place, can_mount, finish, run};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// Descriptors of the daemon.
const DAEMON: usize = 160;
/// Descriptors of the program.
const PROGRAM: u64 = 400;

/// What a program does that opens all it may; in a process of its own, since the limit is one.
fn open_all(root: &Path) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: Some(PROGRAM), maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    let open = |at: usize| {
        let path = root.join(format!("f{at}"));
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    };
    let mut files: Vec<File> = Vec::new();
    let refused = loop {
        match open(files.len()) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    let number = refused.raw_os_error();
    assert_eq!(number, Some(Errno::MFILE.raw_os_error()), "after {} files: {refused}", files.len());
    assert!(files.len() as u64 > PROGRAM - 100, "its own limit: {} files", files.len());
    assert!(!root.join(format!("f{}", files.len())).exists(), "what was refused was not made");
    // Others go on meanwhile; it takes descriptors to start one from here.
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let mut other = Command::new("sh");
    other.arg("-c").arg("echo x > other && cat other && ls | wc -l && rm other");
    let outcome = finish(other_in(&mut other, root));
    let expected = format!("x\n{}\n", files.len() + 1);
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(0), expected.as_str()),
        "{outcome:?}"
    );
    for (at, file) in files.iter().enumerate() {
        file.write_all_at(format!("text {at}").as_bytes(), 0).unwrap();
    }
    // No longer allowed, no longer there: what is open stays open.
    fs::set_permissions(root.join("f0"), fs::Permissions::from_mode(0o0)).unwrap();
    (1..10).for_each(|at| fs::remove_file(root.join(format!("f{at}"))).unwrap());
    for (at, file) in files.iter().enumerate() {
        let (expected, mut text) = (format!("text {at}"), [0; 32]);
        let count = file.read_at(&mut text, 0).unwrap();
        assert_eq!(&text[..count], expected.as_bytes());
        file.set_len(3).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 3);
    }
    println!("met its own limit");
}

fn other_in<'a>(command: &'a mut Command, root: &Path) -> &'a mut Command {
    command.current_dir(root).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped())
}

/// LTP's creat05, open04 and fcntl12 open files until they may not: a daemon that may have no more descriptors than
/// they answered ENFILE, where their own limit says EMFILE, and others could not open anything meanwhile.
#[test]
fn a_program_meets_its_own_limit_of_open_files_and_not_the_daemons() {
    const INNER: &str = "UVFS_TEST_OPENS_ALL_BELOW";
    if let Some(root) = std::env::var_os(INNER) {
        return open_all(Path::new(&root));
    }
    if !can_mount() {
        return;
    }
    for options in [&[][..], &["--no-passthrough"], &["--page-cache", "write-back"]] {
        let place = Place::new();
        let limit = format!("ulimit -n {DAEMON}; exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &limit, env!("CARGO_BIN_EXE_uvfs")]);
        command.args(["mount", place.src(), place.mnt(), "--daemon"]).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let outcome = finish(&mut command);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        let name = "opens::a_program_meets_its_own_limit_of_open_files_and_not_the_daemons";
        let mut program = Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", name, "--nocapture"]).env(INNER, place.mnt());
        program.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let outcome = finish(&mut program);
        assert!(outcome.stdout.contains("met its own limit"), "{options:?}: {outcome:?}");
        assert_eq!(run(&["unmount", place.mnt()]).code, Some(0), "{options:?}");
        assert_eq!(fs::read(place.source.join("f10")).unwrap(), b"tex", "{options:?}");
    }
}
