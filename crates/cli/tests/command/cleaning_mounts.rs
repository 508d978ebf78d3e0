//! `uvfs drop` in live uvfs mounts: the cleaned entries, the kept ones, and the refusals.

use crate::cleaning::{as_other_user, check_line, check_refused, clean_file, pages, place};
use crate::common::{
    Outcome, Place, can_mount, eventually, finish, is_mounted, pid_in, run, uvfs, wait,
};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Runs `uvfs drop --json` with `arguments`; the object of its one request.
fn drop_json(arguments: &[&str]) -> Value {
    let outcome = run(&[&["drop", "--json"], arguments].concat());
    assert_eq!(
        (outcome.code, outcome.stderr.as_str()),
        (Some(0), ""),
        "{arguments:?}: {outcome:?}"
    );
    serde_json::from_str(&outcome.stdout).expect("one object")
}

/// The cached names, inodes and pages below `directory`.
fn cached(directory: &str) -> [u64; 3] {
    let json = drop_json(&["--dry-run", &format!("3:{directory}")]);
    let before = |sort: &str| json[sort]["before"]["entries"].as_u64().expect("a number");
    [before("names"), before("inodes"), json["before"]["pages"].as_u64().expect("a number")]
}

/// Makes `count` files of one page in `directory`, and reads them all.
fn filled(directory: &Path, count: usize) {
    fs::create_dir_all(directory).expect("a fresh folder");
    for at in 0..count {
        fs::write(directory.join(at.to_string()), vec![1; 4096]).expect("room");
    }
    for at in 0..count {
        fs::read(directory.join(at.to_string())).expect("our own");
    }
}

fn path(place: &Place, below: &str) -> String {
    format!("{}/{below}", place.mnt())
}

#[test]
fn a_directory_is_cleaned_and_its_sibling_of_the_same_prefix_is_not() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let timeouts = ["--attr-timeout", "1h", "--entry-timeout", "1h"];
    let options = [&timeouts[..], &["--page-cache", "write-through"]].concat();
    place.mount_daemon(place.src(), &options);
    for name in ["a", "a/deep/er", "ab"] {
        filled(&place.mountpoint.join(name), 20);
    }
    let (a, ab) = (path(&place, "a"), path(&place, "ab"));
    let (before, sibling) = (cached(&a), cached(&ab));
    assert!(before[0] >= 42 && before[1] >= 42 && before[2] == 40, "{before:?}");
    assert!(sibling[0] >= 20 && sibling[1] >= 20 && sibling[2] == 20, "{sibling:?}");

    let json = drop_json(&[&format!("1:{a}")]);
    assert_eq!((&json["before"]["pages"], &json["freed"]["pages"]), (&40.into(), &40.into()));
    assert_eq!((&json["after"]["pages"], &json["kept_busy"]["pages"]), (&0.into(), &0.into()));
    assert_eq!(json["mount"], place.mnt());
    assert_eq!(json["path_in_mount"], "/a");
    assert_eq!((&json["measured_by"], &json["interrupted"]), (&"uvfs".into(), &false.into()));
    assert!(json["effect_seconds"].as_f64().unwrap() <= json["elapsed_seconds"].as_f64().unwrap());
    assert_eq!(cached(&a)[2], 0);

    let json = drop_json(&[&format!("3:{a}")]);
    let freed = json["inodes"]["freed"]["entries"].as_u64().unwrap();
    let kernel = &json["kernel"];
    assert!(freed >= kernel["let_go"].as_u64().unwrap() && freed >= 40, "{json}");
    assert!(json["names"]["freed"]["entries"].as_u64().unwrap() >= 40, "{json}");
    assert_eq!(cached(&ab), sibling, "the sibling keeps all");
    assert_eq!(fs::read(place.mountpoint.join("a/deep/er/7")).unwrap(), vec![1; 4096]);
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}

#[test]
fn what_is_open_stays_and_goes_on_working() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon(place.src(), &["--page-cache", "write-through"]);
    filled(&place.mountpoint.join("a"), 3);
    let mut file = File::open(place.mountpoint.join("a/1")).unwrap();
    let json = drop_json(&[&format!("2:{}", path(&place, "a"))]);
    assert!(json["inodes"]["kept_busy"]["entries"].as_u64().unwrap() >= 1, "{json}");
    let mut content = Vec::new();
    file.read_to_end(&mut content).expect("an open file is no file of a cache");
    assert_eq!(content, vec![1; 4096]);
}

#[test]
fn dirty_pages_stay_until_sync_brings_them_to_the_source() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let options = ["--page-cache", "write-back", "--write-back-delay", "1h"];
    place.mount_daemon(place.src(), &options);
    fs::create_dir(place.mountpoint.join("a")).unwrap();
    let target = place.mountpoint.join("a/file");
    // A separate process writes it: each close of a descriptor writes it back to the source, also
    // the close of a copy, which every start of a process makes.
    let file = File::create(&target).unwrap();
    let writer = Command::new("cat").stdin(Stdio::piped()).stdout(file).spawn();
    let mut writer = Writer(writer.expect("cat"));
    writer.0.stdin.as_mut().expect("piped").write_all(&vec![7; 3 * 4096]).unwrap();
    eventually("it is written", || fs::metadata(&target).is_ok_and(|file| file.len() == 3 * 4096));
    let source = place.source.join("a/file");
    assert_ne!(fs::read(&source).unwrap(), vec![7; 3 * 4096], "it is not written back yet");
    let request = format!("1:{}", path(&place, "a"));
    let json = drop_json(&[&request]);
    assert_eq!((&json["kept_dirty"]["pages"], &json["sync"]), (&3.into(), &false.into()), "{json}");
    assert_ne!(fs::read(&source).unwrap(), vec![7; 3 * 4096], "no write was started");
    let json = drop_json(&["--sync", &request]);
    assert_eq!((&json["kept_dirty"]["pages"], &json["sync"]), (&0.into(), &true.into()), "{json}");
    assert_eq!(json["freed"]["pages"], 3);
    assert_eq!(fs::read(&source).unwrap(), vec![7; 3 * 4096]);
    assert_eq!(fs::read(&target).unwrap(), vec![7; 3 * 4096]);
}

/// A process that keeps a file open; ended when dropped.
struct Writer(Child);

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn where_the_kernel_reads_the_source_its_pages_are_dropped_too() {
    if !can_mount() {
        return;
    }
    let Some(place) = place() else { return };
    for name in ["a/x", "a/b/y", "ab/z"] {
        clean_file(&place.source.join(name), 4);
    }
    place.mount_daemon(place.src(), &[]);
    for name in ["a/x", "a/b/y", "ab/z"] {
        fs::read(place.mountpoint.join(name)).unwrap();
    }
    let request = format!("1:{}", path(&place, "a"));
    let source = |json: &Value, what: &str| json["source_pages"][what]["pages"].as_u64().unwrap();
    let json = drop_json(&["--dry-run", &request]);
    assert_eq!((source(&json, "before"), pages(&place.source.join("a/x"))), (8, 4), "{json}");
    let json = drop_json(&[&request]);
    assert_eq!((source(&json, "freed"), source(&json, "after")), (8, 0), "{json}");
    assert_eq!(json["source_pages"]["request"], format!("1:{}/a", place.src()));
    for (name, left) in [("a/x", 0), ("a/b/y", 0), ("ab/z", 4)] {
        assert_eq!(pages(&place.source.join(name)), left, "{name}");
    }
    let text = run(&["drop", &request]).stdout;
    assert!(text.contains("    cached before") && text.contains("in effect"), "{text}");
    // Names are of the mount alone.
    let json = drop_json(&[&format!("2:{}", path(&place, "ab"))]);
    assert_eq!((&json["source_pages"], pages(&place.source.join("ab/z"))), (&Value::Null, 4));
}

#[test]
fn requests_in_a_mount_are_refused_by_path_cause_and_remedy() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &[]);
    fs::create_dir(place.mountpoint.join("below")).unwrap();
    fs::write(place.mountpoint.join("file"), "x").unwrap();
    symlink("below", place.mountpoint.join("link")).unwrap();
    let check = |below: &str, parts: &[&str]| {
        let request = format!("3:{}", path(&place, below));
        check_refused(&["drop", &request], 1, &[&[request.as_str()], parts].concat());
    };
    check("none", &["no such directory"]);
    check("file", &["not a directory", "that it is in"]);
    check("file/none", &["not a directory"]);
    check("link", &["a symbolic link in the path", &path(&place, "below")]);
    check("link/none", &["a symbolic link"]);
    let dots = format!("3:{}/../x", place.mnt());
    check_refused(&["drop", &dots], 2, &["`..` in the path"]);
    check_refused(&["drop", "3:no/such/directory"], 1, &["no/such/directory", "no such directory"]);
    // Every other command took such paths.
    let outcome = finish(
        uvfs().args(["drop", "3:mnt/below"]).current_dir(place.mountpoint.with_file_name("")),
    );
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.starts_with(&format!("3:{}/below\n", place.mnt())), "{outcome:?}");
    let outcome = run(&["drop", "3", "--mount", place.mnt()]);
    assert!(outcome.stdout.starts_with(&format!("3:{}\n", place.mnt())), "{outcome:?}");
    let outside = format!("2:{}", place.src());
    check_refused(&["drop", &outside], 1, &[&outside, "not a uvfs mount"]);
    let whole = format!("3:{}", place.mnt());
    check_refused(&["drop", &whole, "--mount", place.mnt()], 2, &[&whole, "write 3 without"]);
    check_refused(&["drop", "3", "--mount", place.src()], 1, &[place.src(), "nothing is mounted"]);
    check_refused(&["drop", "3"], 2, &["which directory?", "--mount", "--system"]);
    if let Some(mut command) = as_other_user() {
        let outcome = finish(command.args(["drop", "3", "--mount", place.mnt()]));
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        check_line(&outcome, &[place.mnt(), "not permitted", "run as root or as the user who"]);
    }
}

#[test]
fn all_of_a_mount_is_cleaned_by_its_mountpoint() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &[]);
    filled(&place.mountpoint.join("a"), 3);
    for arguments in [&["3", "--mount", place.mnt()][..], &[&format!("3:{}", place.mnt())]] {
        let json = drop_json(arguments);
        assert_eq!((&json["mount"], &json["path_in_mount"]), (&place.mnt().into(), &"/".into()));
        assert_eq!(json["source_pages"], Value::Null, "RAM has no source");
    }
    assert_eq!(fs::read(place.mountpoint.join("a/1")).unwrap(), vec![1; 4096]);
    let outcome = run(&["drop", "3", "--mount", place.mnt()]);
    assert!(
        outcome.stdout.starts_with(&format!("3:{}\n", place.mnt())) && outcome.code == Some(0),
        "{outcome:?}"
    );
}

/// A bind mount; taken away when dropped.
struct Bind(PathBuf);

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

#[test]
fn a_bind_mount_of_a_part_is_translated() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &[]);
    filled(&place.mountpoint.join("a/b"), 2);
    fs::create_dir(place.mountpoint.join("gone")).unwrap();
    let [part, gone] = ["part", "gone"].map(|name| {
        let at = place.source.join(name);
        fs::create_dir(&at).unwrap();
        at
    });
    mount_bind(place.mountpoint.join("a"), &part).unwrap();
    let _part = Bind(part.clone());
    mount_bind(place.mountpoint.join("gone"), &gone).unwrap();
    let _gone = Bind(gone.clone());
    let at = part.to_str().unwrap();
    for (request, inside) in [(format!("3:{at}"), "/a"), (format!("3:{at}/b"), "/a/b")] {
        let json = drop_json(&[&request]);
        assert_eq!((&json["mount"], &json["path_in_mount"]), (&at.into(), &inside.into()));
    }
    fs::remove_dir(place.mountpoint.join("gone")).expect("in use by a mount of elsewhere");
    let gone = gone.to_str().unwrap();
    let parts = [gone, "a directory that was removed", "`uvfs stat`"];
    check_refused(&["drop", "3", "--mount", gone], 1, &parts);
}

#[test]
fn a_mount_whose_daemon_died_is_refused_with_the_way_out() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let daemon = place.mount_daemon("memory:", &[]);
    kill_process(daemon, Signal::KILL).expect("our own");
    eventually("the daemon is gone", || fs::metadata(&place.mountpoint).is_err());
    let whole = format!("3:{}", place.mnt());
    for request in [&[whole.as_str()][..], &["3", "--mount", place.mnt()]] {
        let arguments = [&["drop"], request].concat();
        check_refused(&arguments, 1, &[place.mnt(), "its daemon is gone", "uvfs unmount"]);
    }
}

#[test]
fn others_are_answered_while_directories_are_cleaned() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &[]);
    filled(&place.mountpoint.join("a"), 1000);
    let request = format!("3:{}", place.mnt());
    let many = vec![request.as_str(); 50];
    let mut cleaning = uvfs().arg("drop").args(&many).spawn().expect("the program starts");
    let mut asked = 0;
    while asked < 1 || cleaning.try_wait().expect("our own child").is_none() {
        let stat = run(&["stat", place.mnt(), "--json"]);
        assert_eq!(stat.code, Some(0), "{stat:?}");
        fs::read(place.mountpoint.join("a/7")).expect("served meanwhile");
        asked += 1;
    }
    let outcome = outcome(cleaning);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

/// Starts to clean a mount whose daemon has been stopped; returns when a signal would be caught.
fn clean_stopped(place: &Place, daemon: Pid) -> Child {
    kill_process(daemon, Signal::STOP).expect("our own");
    let child = uvfs().args(["drop", "--json", "3", "--mount", place.mnt()]).spawn();
    let child = child.expect("the program starts");
    let status = format!("/proc/{}/status", child.id());
    eventually("the client catches SIGINT", || {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let caught = text.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
        caught.is_some_and(|mask| mask & 1 << (Signal::INT.as_raw() - 1) != 0)
    });
    child
}

/// The output of a child that no thread has read yet.
fn outcome(mut child: Child) -> Outcome {
    let code = wait(&mut child).code();
    let mut text = [String::new(), String::new()];
    child.stdout.take().expect("piped").read_to_string(&mut text[0]).expect("text");
    child.stderr.take().expect("piped").read_to_string(&mut text[1]).expect("text");
    let [stdout, stderr] = text;
    Outcome { code, stdout, stderr }
}

#[test]
fn ctrl_c_ends_a_cleaning_in_good_order_and_twice_at_once() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let daemon = place.mount_daemon("memory:", &[]);
    filled(&place.mountpoint.join("a"), 3);

    let client = clean_stopped(&place, daemon);
    kill_process(Pid::from_child(&client), Signal::INT).expect("our own child");
    kill_process(daemon, Signal::CONT).expect("our own");
    let once = outcome(client);
    assert_eq!(once.code, Some(1), "{once:?}");
    check_line(&once, &["interrupted; objects dropped so far stay dropped"]);
    let json: Value = serde_json::from_str(&once.stdout).expect("the report of what was done");
    assert_eq!(json["path_in_mount"], "/");

    let mut client = clean_stopped(&place, daemon);
    let pid = Pid::from_child(&client);
    eventually("two signals end it though the daemon hangs", || {
        kill_process(pid, Signal::INT).expect("not reaped yet");
        fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))
            .is_ok_and(|stat| stat.contains(") Z"))
    });
    assert_eq!(wait(&mut client).code(), Some(1));
    kill_process(daemon, Signal::CONT).expect("our own");
    assert_eq!(run(&["stat", place.mnt()]).code, Some(0), "the daemon took no harm");
    assert_eq!(fs::read(place.mountpoint.join("a/1")).unwrap(), vec![1; 4096]);
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
    assert!(!is_mounted(&place.mountpoint));
}

#[test]
fn a_stranger_at_the_socket_learns_nothing_and_garbage_is_refused() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mount = run(&["mount", "memory:", place.mnt(), "--daemon"]);
    assert_eq!(mount.code, Some(0), "{mount:?}");
    pid_in(&mount.stdout);
    let line = crate::common::mount_line(&place.mountpoint).expect("mounted");
    let device = line.split(' ').nth(2).expect("a device number");
    let socket = ["/run/uvfs", "/tmp/uvfs-0"].map(|folder| Path::new(folder).join(device));
    let socket = socket.iter().find(|path| path.exists()).expect("the control socket");
    let ask = |line: &str| {
        let mut stream = std::os::unix::net::UnixStream::connect(socket).expect("served");
        stream.write_all(line.as_bytes()).expect("taken");
        stream.shutdown(std::net::Shutdown::Write).expect("open");
        let mut reply = String::new();
        stream.read_to_string(&mut reply).expect("text");
        reply
    };
    for (request, part) in [
        ("3:/none", "no such directory"),
        ("3:/../etc", "`..` in the path"),
        ("9:/", "none of 1"),
        ("3:a", "relative path"),
        ("", "empty"),
        ("3:/\\u0000", "a NUL byte"),
    ] {
        let reply = ask(&format!("{{\"op\":\"clean\",\"request\":\"{request}\"}}\n"));
        assert!(reply.contains("\"ok\":false") && reply.contains(part), "{request}: {reply}");
    }
    let long = format!("{{\"op\":\"clean\",\"request\":\"3:/{}\"}}\n", "a".repeat(5000));
    assert!(ask(&long).contains("longer than 4096 bytes"));
    assert!(ask("{\"op\":\"clean\"}\n").contains("not a request"));
    assert!(ask("{\"op\":\"clean\",\"request\":\"3:/\"}\n").contains("\"ok\":true"));
}

#[test]
fn the_control_directory_can_be_left_out() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.source.join(".uvfs")).unwrap();
    fs::write(place.source.join(".uvfs/own"), "x").unwrap();
    place.mount_daemon(place.src(), &[]);
    let dot = place.mountpoint.join(".uvfs");
    assert!(dot.join("drop_caches").exists() && !dot.join("own").exists(), "hidden");
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
    place.mount_daemon(place.src(), &["--no-control-dir"]);
    assert!(!dot.join("drop_caches").exists() && dot.join("own").exists());
    let stat = run(&["stat", place.mnt(), "--json"]).stdout;
    let stat: Value = serde_json::from_str(&stat).expect("one object");
    assert_eq!(stat["options"]["control_dir"], false);
}
