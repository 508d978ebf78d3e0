//! `uvfs doctor` of a real mount, with secrets all around.

use crate::common::{Place, can_mount, finish, run, uvfs};
use std::fs;
use std::os::unix::fs::PermissionsExt;

#[test]
fn an_archive_says_what_is_mounted_and_no_secret() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    // Names of sources turn up in the mount table and in reports.
    let source = place.source.join("token=dont-tell&x=1");
    fs::create_dir(&source).unwrap();
    place.mount_daemon(source.to_str().unwrap(), &["--name", "http://me:hunter22@host/data"]);
    fs::write(place.mountpoint.join("file"), "text").unwrap();
    let config = place.source.join("config.toml");
    fs::write(&config, "[mount]\nname = \"AKIAIOSFODNN7EXAMPLE uvfs-doctor-secret\"\n").unwrap();
    let archive = place.source.join("report.tar");
    let path = archive.to_str().unwrap();
    let outcome = finish(
        uvfs()
            .args(["doctor", place.mnt(), "-o", path])
            .env("UVFS_CONFIG", &config)
            .env("SOME_TOKEN", "uvfs-doctor-secret"),
    );
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    for part in [
        "about.txt",
        "mounts.json",
        "mountinfo.txt",
        "config.txt",
        "mount-1/stat-1.json",
        "mount-1/stat-2.json",
        "mount-1/locks.json",
        "log.txt",
        "Secrets were taken out",
    ] {
        assert!(outcome.stdout.contains(part), "{part}: {outcome:?}");
    }
    let bytes = fs::read(&archive).unwrap();
    let text = String::from_utf8_lossy(&bytes);
    for secret in ["dont-tell", "hunter22", "AKIAIOSFODNN7EXAMPLE", "uvfs-doctor-secret"] {
        assert!(!text.contains(secret), "{secret} is in it");
    }
    assert!(text.contains("[taken out]@host/data") && text.contains("\"p99_ns\""), "{text}");
    assert!(text.contains(place.mnt()) && text.contains(env!("CARGO_PKG_VERSION")));
    assert_eq!(fs::metadata(&archive).unwrap().permissions().mode() & 0o777, 0o600);
    let again = run(&["doctor", place.mnt(), "-o", path]);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("File exists; name one that is not there yet"), "{again:?}");
    assert_eq!(fs::read(&archive).unwrap(), bytes, "what is there is left alone");
}

/// It is used when something is broken: a dead mount must not hide the others.
#[test]
fn a_dead_mount_is_in_it_too() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let daemon = place.mount_daemon("memory:", &["--size", "16M"]);
    rustix::process::kill_process(daemon, rustix::process::Signal::KILL).unwrap();
    let archive = place.source.join("report.tar");
    let outcome = run(&["doctor", place.mnt(), "-o", archive.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let text = fs::read(&archive).unwrap();
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("\"error\":\"NotServed\"") && text.contains(" - fuse.uvfs "), "{text}");
}
