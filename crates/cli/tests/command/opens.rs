//! Many open files: a program reaches its own limit, and not that of the daemon.

use crate::common::{Place, can_mount, finish, run};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

/// The most open files of which each is looked at; of more, so many are.
const LOOKED_AT: usize = 400;
/// Files that are there already, where they are not made.
const THERE: usize = 100;

/// Opens by `open` as many files as this process may have, `program`.
fn open_until_refused(program: u64, open: impl Fn(usize) -> std::io::Result<File>) -> Vec<File> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let limit = Rlimit { current: Some(program), maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
    let mut files: Vec<File> = Vec::new();
    let refused = loop {
        match open(files.len()) {
            Ok(file) => files.push(file),
            Err(error) => break error,
        }
    };
    let number = refused.raw_os_error();
    assert_eq!(number, Some(Errno::MFILE.raw_os_error()), "after {} files: {refused}", files.len());
    assert!(files.len() as u64 > program - 100, "its own limit: {} files", files.len());
    // It takes descriptors to start another program from here.
    let raised = Rlimit { current: maximum, maximum };
    setrlimit(Resource::Nofile, raised).unwrap();
    if maximum.is_some_and(|maximum| maximum < program + 10) {
        files.truncate(files.len() - 10);
    }
    files
}

/// A program that opens the same files again and again.
fn open_what_is_there(root: &Path, program: u64) {
    let path = |at: usize| root.join(format!("there{}", at % THERE));
    let files =
        open_until_refused(program, |at| OpenOptions::new().read(true).write(true).open(path(at)));
    let mut other = Command::new("sh");
    other.arg("-c").arg("echo x > other && cat other && rm other");
    let outcome = finish(other_in(&mut other, root));
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "x\n"), "{outcome:?}");
    for (at, file) in files.iter().enumerate().step_by(files.len() / LOOKED_AT) {
        let mut text = [0; 32];
        let count = file.read_at(&mut text, 0).unwrap();
        assert_eq!(&text[..count], format!("text {}", at % THERE).as_bytes());
    }
    println!("met its own limit");
}

/// A program that makes as many open files as it may; in a separate process, since the limit is per process.
fn open_all(root: &Path, program: u64) {
    let open = |at: usize| {
        let path = root.join(format!("f{at}"));
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    };
    let files = open_until_refused(program, open);
    assert!(!root.join(format!("f{}", files.len())).exists(), "what was refused was not made");
    // Others continue meanwhile.
    let mut other = Command::new("sh");
    other.arg("-c").arg("echo x > other && cat other && ls | wc -l && rm other");
    let outcome = finish(other_in(&mut other, root));
    let expected = format!("x\n{}\n", files.len() + 1 + THERE);
    assert_eq!(
        (outcome.code, outcome.stdout.as_str()),
        (Some(0), expected.as_str()),
        "{outcome:?}"
    );
    let each = files.len() / LOOKED_AT + 1;
    let looked_at = || files.iter().enumerate().filter(|(at, _)| at % each == 0 || *at <= 10);
    for (at, file) in looked_at() {
        file.write_all_at(format!("text {at}").as_bytes(), 0).unwrap();
    }
    // Permissions removed, names removed: open files stay open.
    fs::set_permissions(root.join("f0"), fs::Permissions::from_mode(0o0)).unwrap();
    (1..10).for_each(|at| fs::remove_file(root.join(format!("f{at}"))).unwrap());
    for (at, file) in looked_at() {
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

/// A daemon of `daemon` descriptors, and the test `name` in a separate process, which has to call [`inner`] first:
/// there a program opens all of `program` files.
fn meets_its_own_limit(name: &str, (daemon, program): (u64, u64), options: &[&str]) -> Place {
    let place = Place::new();
    for at in 0..THERE {
        fs::write(place.source.join(format!("there{at}")), format!("text {at}")).unwrap();
    }
    let limit = format!("ulimit -n {daemon}; exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &limit, env!("CARGO_BIN_EXE_uvfs")]);
    command.args(["mount", place.src(), place.mnt(), "--daemon"]).args(options);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(&mut command);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let mut inner = Command::new(std::env::current_exe().unwrap());
    inner.args(["--exact", &format!("opens::{name}"), "--nocapture"]);
    inner.env(INNER, place.mnt()).env(INNER_FILES, program.to_string());
    inner.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(&mut inner);
    assert!(outcome.stdout.contains("met its own limit"), "{daemon} {options:?}: {outcome:?}");
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0), "{daemon} {options:?}");
    place
}

const INNER: &str = "UVFS_TEST_OPENS_ALL_BELOW";
const INNER_FILES: &str = "UVFS_TEST_OPENS_FILES";

/// Whether this process is the program; it has done `work` then.
fn inner(work: fn(&Path, u64)) -> bool {
    let Some(root) = std::env::var_os(INNER) else { return false };
    work(Path::new(&root), std::env::var(INNER_FILES).unwrap().parse().unwrap());
    true
}

/// Bug: LTP's creat05, open04 and fcntl12 open files up to their limit. A daemon with no more descriptors than that
/// answered ENFILE, where their own limit returns EMFILE, and no other program could open a file meanwhile.
#[test]
fn a_program_meets_its_own_limit_of_open_files_and_not_the_daemons() {
    if inner(open_all) || !can_mount() {
        return;
    }
    let name = "a_program_meets_its_own_limit_of_open_files_and_not_the_daemons";
    for options in [&[][..], &["--no-passthrough"], &["--page-cache", "write-back"]] {
        let place = meets_its_own_limit(name, (160, 400), options);
        assert_eq!(fs::read(place.source.join("f10")).unwrap(), b"tex", "{options:?}");
    }
}

/// A program met the limit of the daemon at the limits that systems set: 1,024 descriptors for a daemon by default, and
/// 20,000 as the hard limit of containers. There the daemon kept 480 and 10,392 files, and others got ENFILE.
#[test]
fn a_program_meets_its_own_limit_also_where_systems_put_it() {
    if inner(open_what_is_there) || !can_mount() {
        return;
    }
    let name = "a_program_meets_its_own_limit_also_where_systems_put_it";
    let hard = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    for limits in [(1024, 3000), (20_000, 20_000)] {
        if hard.is_some_and(|hard| hard < limits.1) {
            uvfs_skip::lacking(format_args!("no {} descriptors", limits.1));
            continue;
        }
        meets_its_own_limit(name, limits, &[]);
    }
}
