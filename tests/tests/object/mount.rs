//! Floor: command. A bucket on loopback is mounted by `uvfs mount s3://…`, read through the kernel, and unmounted; and
//! each reason for a refusal is reported.
//!
//! Drives the built `uvfs`: `UVFS_BINARY` names it, else it is beside this test's own target directory, else it is
//! built. Tests that mount need root and `/dev/fuse`, and are skipped where they lack.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};
use uvfs_fuse::Unmount;
use uvfs_tests::s3::{BUCKET_NAME, Fault, S3Server};
use uvfs_tests::{Watchdog, built};

const SECRET: &str = "fLWXYk7vN3o";

/// `uvfs`, in an environment with only a key of AWS.
fn uvfs(words: &[&str]) -> Command {
    let program = std::env::var_os("UVFS_BINARY").map(PathBuf::from);
    let mut command = Command::new(program.unwrap_or_else(|| built("uvfs", "uvfs")));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("AWS_") {
            command.env_remove(name);
        }
    }
    command.env("AWS_ACCESS_KEY_ID", "test").env("AWS_SECRET_ACCESS_KEY", SECRET);
    command.env("HOME", "/nonexistent").env("AWS_EC2_METADATA_DISABLED", "true");
    command.args(words);
    command
}

/// A folder to mount on, which is free again when a test ends, also when it fails.
struct Place {
    folder: tempfile::TempDir,
    _watchdog: Watchdog,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_owned();
        let rescue = move || drop(uvfs_fuse::unmount(&path, Unmount::Lazy));
        Self { folder, _watchdog: Watchdog::with_rescue(Duration::from_secs(120), rescue) }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Usually nothing is mounted any more.
        let _ = uvfs_fuse::unmount(self.path(), Unmount::Lazy);
    }
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn source(server: &S3Server) -> String {
    format!("s3://{BUCKET_NAME}/p?endpoint={}", server.endpoint())
}

#[test]
fn a_bucket_is_mounted_read_and_unmounted() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let server = S3Server::start().unwrap();
    let big: Vec<u8> = (0..5_000_001_u32).map(|at| (at % 251) as u8).collect();
    server.put("p/big", &big);
    for at in 0..300 {
        server.put(&format!("p/d/{at:03}"), at.to_string().as_bytes());
    }
    let folder = Place::new();
    let mountpoint = folder.path().to_str().unwrap();
    let mounted = uvfs(&["mount", &source(&server), mountpoint, "--daemon"]).output().unwrap();
    assert!(mounted.status.success(), "{}", said(&mounted));
    read(&server, folder.path(), &big);
    fail(&server, folder.path(), &big);
    write(&server, folder.path());
    let stat = uvfs(&["stat", mountpoint, "--json"]).output().unwrap();
    let stat = String::from_utf8(stat.stdout).unwrap();
    for word in ["s3://bucket/p", "get_requests", "list_requests"] {
        assert!(stat.contains(word), "{word}: {stat}");
    }
    let ended = uvfs(&["unmount", mountpoint]).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    assert_eq!(server.unsigned(), 0, "the key was used");
}

fn read(server: &S3Server, at: &Path, big: &[u8]) {
    assert_eq!(fs::read(at.join("big")).unwrap(), big);
    let names = || {
        let listed = fs::read_dir(at.join("d")).unwrap();
        let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names().len(), 300);
    let before = server.requests().0;
    for (number, name) in names().into_iter().enumerate() {
        let metadata = fs::metadata(at.join("d").join(&name)).unwrap();
        assert_eq!(metadata.size(), number.to_string().len() as u64);
    }
    assert!(!at.join("d/absent").exists());
    assert!(server.requests().0 <= before + 3, "stat asks of what was listed");
    assert_eq!(fs::read(at.join("d/299")).unwrap(), b"299");
    // No secret where every user can look.
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
        assert!(!String::from_utf8_lossy(&line).contains(SECRET), "{process:?}");
    }
}

/// Bug: a copy of an object ended truncated, with status 0, where the store failed behind the cached bytes. A write at
/// the end of the file then went into the middle of the object.
fn fail(server: &S3Server, at: &Path, big: &[u8]) {
    server.put("p/half", big);
    let open = || fs::File::open(at.join("half")).unwrap();
    open().read_exact(&mut [0; 1000]).unwrap();
    server.plan(vec![Fault::Status(403, "AccessDenied"); 1000]);
    // The kernel drops its pages, and reads from the start.
    let mut file = open();
    let mut rest = Vec::new();
    let refused = file.read_to_end(&mut rest).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EACCES), "{} bytes were read", rest.len());
    server.heal();
    assert_eq!(file.seek(SeekFrom::End(0)).unwrap(), big.len() as u64);
    assert!(fs::read(at.join("half")).unwrap() == big);
    fs::remove_file(at.join("half")).unwrap();
}

/// Programs' operations on files, and the bucket's contents afterwards.
fn write(server: &S3Server, at: &Path) {
    let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    fs::write(at.join("new"), "content").unwrap();
    assert_eq!(server.content("p/new").unwrap(), b"content");
    let number = fs::metadata(at.join("new")).unwrap().ino();
    let mut log = fs::OpenOptions::new().append(true).open(at.join("new")).unwrap();
    log.write_all(b", more").unwrap();
    assert_eq!(server.content("p/new").unwrap(), b"content", "it is open");
    log.sync_all().unwrap();
    assert_eq!(server.content("p/new").unwrap(), b"content, more");
    drop(log);
    assert_eq!(fs::metadata(at.join("new")).unwrap().ino(), number);
    fs::create_dir(at.join("made")).unwrap();
    fs::rename(at.join("new"), at.join("made/moved")).unwrap();
    assert_eq!(fs::read(at.join("made/moved")).unwrap(), b"content, more");
    assert!(server.content("p/new").is_none());
    assert_eq!(errno(fs::rename(at.join("made"), at.join("other"))), Some(libc::EXDEV));
    assert_eq!(errno(fs::remove_dir(at.join("made"))), Some(libc::ENOTEMPTY));
    let link = std::os::unix::fs::symlink("x", at.join("link"));
    assert_eq!(errno(link), Some(libc::EPERM));
    // `mv`, `touch` and `cp` are content with that.
    let shell = |words: &str| {
        let done = Command::new("sh").args(["-ec", words]).current_dir(at).output().unwrap();
        assert!(done.status.success(), "{words}: {}", said(&done));
    };
    shell("mv made other; touch other/moved; touch empty; cp big copy; cmp big copy; rm copy");
    assert_eq!(server.content("p/other/moved").unwrap(), b"content, more");
    assert_eq!(server.content("p/empty").unwrap(), b"");
    shell("install -m 700 empty installed; chmod 600 installed; chown 7:8 installed; rm installed");
    if Command::new("rsync").arg("--version").output().is_ok() {
        let from = tempfile::tempdir().unwrap();
        for at in 0..5 {
            fs::write(from.path().join(at.to_string()), at.to_string()).unwrap();
        }
        let from = from.path().display();
        shell(&format!(
            "touch -d 2001-02-03 {from}/*; chmod 600 {from}/*; rsync -a {from}/ copied"
        ));
        let puts = server.puts();
        shell(&format!("rsync -a {from}/ copied; rsync -rt {from}/ copied"));
        assert_eq!(server.puts(), puts, "nothing is sent again");
        assert_eq!(server.content("p/copied/3").unwrap(), b"3");
        shell("rm -r copied");
    }
    // Another program is faster.
    let file = fs::OpenOptions::new().write(true).open(at.join("empty")).unwrap();
    (&file).write_all(b"ours").unwrap();
    server.put("p/empty", b"theirs");
    assert_eq!(errno(file.sync_all()), Some(libc::EBUSY));
    drop(file);
    assert_eq!(server.content("p/empty").unwrap(), b"theirs");
    shell("rm empty.uvfs-conflict-*; rm -f empty; rm -r other");
    assert_eq!(server.keys().len(), 301, "{:?}", server.keys());
    assert_eq!(server.uploads(), 0);
}

/// Unclosed files are put at the end of the mount; those that cannot be put are reported by path, with exit status 1.
#[test]
fn the_end_of_a_mount_puts_what_is_left_and_tells_what_it_cannot() {
    if !uvfs_skip::can_mount() {
        return;
    }
    for denied in [false, true] {
        let server = S3Server::start().unwrap();
        let folder = Place::new();
        let mountpoint = folder.path().to_str().unwrap();
        let mounted = uvfs(&["mount", &source(&server), mountpoint, "--daemon"]).output().unwrap();
        assert!(mounted.status.success(), "{}", said(&mounted));
        let file = fs::File::create(folder.path().join("left")).unwrap();
        (&file).write_all(b"left").unwrap();
        if denied {
            server.plan(vec![Fault::Status(403, "AccessDenied"); 200]);
        }
        drop(file);
        let ended = uvfs(&["unmount", mountpoint]).output().unwrap();
        assert_eq!(ended.status.code(), Some(i32::from(denied)), "{}", said(&ended));
        assert_eq!(said(&ended).contains("left"), denied, "{}", said(&ended));
        assert_eq!(server.content("p/left").is_some(), !denied);
    }
}

/// Bug: a program that wrote an object and started other programs meanwhile put the whole object once for each of them,
/// because each child closes the descriptor that it has inherited.
#[test]
fn a_file_is_put_when_the_process_that_opened_it_closes_it() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let server = S3Server::start().unwrap();
    let folder = Place::new();
    let mountpoint = folder.path().to_str().unwrap();
    let mounted = uvfs(&["mount", &source(&server), mountpoint, "--daemon"]).output().unwrap();
    assert!(mounted.status.success(), "{}", said(&mounted));
    let mut log = fs::File::create(folder.path().join("log")).unwrap();
    let puts = server.puts();
    for line in 0..5 {
        writeln!(log, "{line}").unwrap();
        assert!(Command::new("true").status().unwrap().success());
    }
    assert_eq!(server.puts(), puts, "the program has not closed it");
    // Another thread of the same process closes it.
    std::thread::spawn(move || drop(log)).join().unwrap();
    assert_eq!(server.content("p/log").unwrap(), b"0\n1\n2\n3\n4\n");
    // After this process has closed its descriptor, the child's close puts the file before the child ends.
    let output = fs::File::create(folder.path().join("output")).unwrap();
    let mut child = Command::new("sh")
        .args(["-c", "read line; echo $line"])
        .stdin(Stdio::piped())
        .stdout(output)
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"child\n").unwrap();
    assert!(child.wait().unwrap().success());
    assert_eq!(server.content("p/output").unwrap(), b"child\n");
    let words = ["-c", "echo shell > shell"];
    assert!(Command::new("sh").args(words).current_dir(folder.path()).status().unwrap().success());
    assert_eq!(server.content("p/shell").unwrap(), b"shell\n");
    assert!(uvfs(&["unmount", mountpoint]).output().unwrap().status.success());
}

#[test]
fn a_bucket_that_is_only_read_stays_as_it_is() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let server = S3Server::start().unwrap();
    server.put("p/x", b"x");
    let folder = Place::new();
    let mountpoint = folder.path().to_str().unwrap();
    let words = ["mount", &source(&server), mountpoint, "--daemon", "--read-only"];
    assert!(uvfs(&words).output().unwrap().status.success());
    let refused = fs::write(folder.path().join("new"), "x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EROFS));
    assert_eq!(fs::read(folder.path().join("x")).unwrap(), b"x");
    assert!(uvfs(&["unmount", mountpoint]).output().unwrap().status.success());
    assert_eq!((server.keys(), server.puts()), (vec!["p/x".to_owned()], 0));
}

#[test]
fn each_reason_why_nothing_is_mounted_is_a_line_with_its_remedy() {
    let server = S3Server::start().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let check = |source: &str, fault: Option<Fault>, words: [&str; 2]| {
        server.plan(fault);
        let output = uvfs(&["mount", source, folder.path().to_str().unwrap()]).output().unwrap();
        let line = said(&output);
        assert_eq!((output.status.code(), line.lines().count()), (Some(1), 1), "{line}");
        assert!(words.iter().all(|word| line.contains(word)), "{words:?}: {line}");
        assert!(!line.contains(SECRET), "{line}");
    };
    let good = source(&server);
    let refuses = |status, code, words| check(&good, Some(Fault::Status(status, code)), words);
    refuses(403, "AccessDenied", ["the store denies it", "s3:ListBucket"]);
    refuses(403, "SignatureDoesNotMatch", ["no valid credentials", "AWS_SECRET_ACCESS_KEY"]);
    refuses(403, "RequestTimeTooSkewed", ["the clock of this machine", "NTP"]);
    refuses(503, "SlowDown", ["the store is busy", "try again later"]);
    let other = good.replace("//bucket", "//nobodys");
    check(&other, None, ["there is no such bucket", "check the name of the bucket"]);
    check("s3://bucket?endpoint=http://127.0.0.1:1", None, ["cannot be reached", "?endpoint="]);
    check("s3://bucket?regoin=x", None, ["`regoin` is not known", "endpoint, region"]);
}

/// 80 programs that read from a store that hung took all threads of their user: `ls` of a cached directory and the opening of a
/// cached file took two minutes.
#[test]
fn readers_that_hang_leave_what_is_cached_alone() {
    if !uvfs_skip::can_mount() {
        return;
    }
    const READERS: usize = 80;
    let server = S3Server::start().unwrap();
    for at in 0..READERS {
        server.put(&format!("p/cold/{at}"), b"cold");
    }
    server.put("p/warm/x", b"warm");
    let folder = Place::new();
    let mountpoint = folder.path().to_str().unwrap();
    let mounted = uvfs(&["mount", &source(&server), mountpoint, "--daemon"]).output().unwrap();
    assert!(mounted.status.success(), "{}", said(&mounted));
    let path = |name: &str| folder.path().join(name);
    let list = |name: &str| fs::read_dir(path(name)).unwrap().count();
    assert_eq!((list("cold"), list("warm")), (READERS, 1));
    assert_eq!(fs::read(path("warm/x")).unwrap(), b"warm");
    server.hold_reads(true);
    std::thread::scope(|scope| {
        let read = |at: usize| fs::read(path(&format!("cold/{at}")));
        let readers: Vec<_> = (0..READERS).map(|at| scope.spawn(move || read(at))).collect();
        let since = Instant::now();
        // As many as may wait at once do.
        while server.under_way() < 40 {
            assert!(since.elapsed() < Duration::from_secs(20), "{} hang", server.under_way());
            std::thread::sleep(Duration::from_millis(1));
        }
        // In another thread: if this hangs, the readers have to be released.
        let cached = scope.spawn(move || (list("warm"), fs::read(path("warm/x")).unwrap()));
        while !cached.is_finished() && since.elapsed() < Duration::from_secs(15) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let hung = !cached.is_finished();
        server.hold_reads(false);
        assert_eq!(cached.join().unwrap(), (1, b"warm".to_vec()));
        assert!(!hung, "a hit waited for the store");
        for reader in readers {
            assert_eq!(reader.join().unwrap().unwrap(), b"cold");
        }
    });
    assert!(uvfs(&["unmount", mountpoint]).output().unwrap().status.success());
}
