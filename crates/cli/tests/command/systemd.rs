//! A mount as a service of systemd: it reports when it is ready, logs by severity, is controlled while it runs, and
//! works within the unit in contrib/systemd.

use crate::common::{Place, can_mount, finish, is_mounted, run, uvfs, wait};
use rustix::process::{Pid, Signal};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

fn contrib(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../contrib/systemd").join(name)
}

/// The value of a setting in the unit.
fn of_unit(name: &str) -> String {
    let unit = fs::read_to_string(contrib("uvfs@.service")).expect("the unit");
    let lines = unit.lines().filter_map(|line| line.split_once('='));
    let mut values = lines.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned());
    values.next().unwrap_or_else(|| panic!("the unit has no {name}"))
}

#[test]
fn systemd_is_notified_when_the_mount_is_there_and_when_it_ends() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let path = place.source.join("notify");
    let listener = UnixDatagram::bind(&path).unwrap();
    listener.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let received = || {
        let mut bytes = [0; 64];
        let length = listener.recv(&mut bytes).expect("a message");
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    };
    let errors = place.source.join("journal");
    let journal = File::create(&errors).unwrap();
    let seen = journal.metadata().unwrap();
    let mut command = uvfs();
    command.args(["mount", "memory:", place.mnt(), "--size", "16M", "--log-level", "info"]);
    command.env("NOTIFY_SOCKET", &path).stderr(journal).stdout(Stdio::null());
    command.env("JOURNAL_STREAM", format!("{}:{}", seen.dev(), seen.ino()));
    let mut child = command.spawn().unwrap();
    assert_eq!(received(), "READY=1");
    assert!(is_mounted(&place.mountpoint), "not before it is there");
    rustix::process::kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(received(), "STOPPING=1");
    assert_eq!(wait(&mut child).code(), Some(0));
    let log = fs::read_to_string(&errors).unwrap();
    assert!(log.starts_with("<6>memory:: mounted on ") && log.lines().count() > 1, "{log}");
    assert!(log.lines().all(|line| line.starts_with("<6>")), "{log}");
}

#[test]
fn how_much_is_logged_is_changed_while_it_is_mounted() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let log = place.source.join("log");
    place.mount_daemon("memory:", &["--size", "16M", "--log-file", log.to_str().unwrap()]);
    let set = |setting: &str| {
        let outcome = run(&["set", place.mnt(), setting]);
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    };
    let logged = |text: &str| fs::read_to_string(&log).unwrap().contains(text);
    set("cache-size=1G");
    assert!(!logged("cache-size=1073741824"), "it logs warnings alone");
    set("log-level=info");
    set("cache-size=2G");
    assert!(logged("log-level=info") && logged("cache-size=2147483648"));
    set("log-level=error");
    set("cache-size=3G");
    assert!(logged("log-level=error") && !logged("cache-size=3221225472"));
    let refused = run(&["set", place.mnt(), "log-level=loud"]);
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("write one of: off, error"), "{refused:?}");
}

/// The unit must not remove a right that a mount needs: it would fail only on a user's machine.
#[test]
fn a_mount_works_with_the_capabilities_of_the_unit() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let capabilities = of_unit("CapabilityBoundingSet").to_lowercase().replace("cap_", "+");
    let bounding = format!("-all,{}", capabilities.replace(' ', ","));
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", &bounding, "--no-new-privs", "--"]);
    command.arg(env!("CARGO_BIN_EXE_uvfs"));
    command.args(["mount", place.src(), place.mnt(), "--daemon", "--allow-other"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(&mut command);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let script = "cd $M && echo text > file && chown 1000:1000 file && chmod 4755 file && mknod node c 1 3 && ln file link && \
                  setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'echo more >> file && ! echo x > /dev/null/x' && \
                  mkdir closed && chmod 0 closed && ls closed && stat -c '%u %s' file";
    let mut user = Command::new("sh");
    user.args(["-c", script]).env("M", place.mnt());
    user.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(&mut user);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (Some(0), "1000 10\n"), "{outcome:?}");
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}

#[test]
fn the_unit_is_one_that_systemd_reads() {
    assert_eq!(of_unit("Type"), "notify");
    // The commands of the unit are those that there are.
    for (setting, command) in [("ExecStart", "mount"), ("ExecReload", "set")] {
        assert_eq!(of_unit(setting).split(' ').nth(1), Some(command));
    }
    let example = fs::read_to_string(contrib("uvfs.conf.example")).expect("an example");
    for variable in ["SOURCE", "OPTIONS", "SETTINGS"] {
        assert!(example.contains(&format!("\n{variable}=")), "{variable}");
    }
    let folder = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(contrib("uvfs@.service")).expect("the unit");
    let unit = unit.replace("/usr/bin/uvfs", env!("CARGO_BIN_EXE_uvfs"));
    let instance = folder.path().join("uvfs@mnt-data.service");
    fs::write(folder.path().join("uvfs@.service"), &unit).unwrap();
    fs::write(&instance, &unit).unwrap();
    let mut command = Command::new("systemd-analyze");
    command.args(["verify", "--man=no"]).arg(&instance);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if Command::new("systemd-analyze").arg("--version").stdout(Stdio::null()).status().is_err() {
        return uvfs_skip::lacking("no systemd-analyze");
    }
    let outcome = finish(&mut command);
    let about_us: Vec<_> = outcome.stderr.lines().filter(|line| line.contains("uvfs@")).collect();
    assert_eq!((outcome.code, about_us), (Some(0), Vec::new()), "{}", outcome.stderr);
}
