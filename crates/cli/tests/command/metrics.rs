//! `uvfs metrics` and `--metrics`, of real mounts.

use crate::common::{Place, can_mount, eventually, run};
use rustix::process::Signal;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

/// The value of the sample of `place` that begins with `name` and has all of `labels`.
fn value(text: &str, place: &Place, name: &str, labels: &str) -> Option<u64> {
    let start = format!("{name}{{mountpoint=\"{}\"", place.mnt());
    let line = text.lines().find(|line| line.starts_with(&start) && line.contains(labels))?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn the_metrics_of_a_mount_are_what_its_report_says() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let daemon = place.mount_daemon(place.src(), &["--cache-size", "1G"]);
    fs::write(place.mountpoint.join("file"), "text").unwrap();
    let outcome = run(&["metrics", place.mnt()]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let text = outcome.stdout;
    assert_eq!(value(&text, &place, "uvfs_up", ""), Some(1), "{text}");
    assert_eq!(value(&text, &place, "uvfs_memory_limit_bytes", ""), Some(1 << 30), "{text}");
    assert!(value(&text, &place, "uvfs_requests_total", "kind=\"create\"") >= Some(1), "{text}");
    assert!(value(&text, &place, "uvfs_memory_bytes", "of=\"program\"") > Some(0), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let old = run(&["metrics", "--text", place.mnt()]).stdout;
    assert!(old.contains("# TYPE uvfs_mount_info gauge\n") && !old.contains("# EOF"), "{old}");
    rustix::process::kill_process(daemon, Signal::KILL).unwrap();
    eventually("it is down", || value(&run(&["metrics"]).stdout, &place, "uvfs_up", "") == Some(0));
    let named = run(&["metrics", place.mnt()]);
    assert_eq!((named.code, named.stdout.as_str()), (Some(1), ""), "{named:?}");
    assert!(named.stderr.contains("its daemon is gone; run `uvfs unmount"), "{named:?}");
}

#[test]
fn a_mount_answers_a_scraper_and_an_address_that_is_taken_refuses_it() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let refused = run(&["mount", "memory:", place.mnt(), "--daemon", "--metrics", &address]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(
        refused.stderr.contains(&format!("--metrics {address}: Address already in use")),
        "{refused:?}"
    );
    assert!(!crate::common::is_mounted(&place.mountpoint));

    let daemon = place.mount_daemon("memory:", &["--size", "16M", "--metrics", "0"]);
    let report = run(&["stat", place.mnt(), "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    let address = report["options"]["metrics"].as_str().expect("an address").to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(value(&answer, &place, "uvfs_up", ""), Some(1), "{answer}");
    assert!(answer.contains("store=\"memory\"") && answer.ends_with("# EOF\n"), "{answer}");
    // Bug: the thread that read those requests had all of root's rights.
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.as_raw_nonzero())).unwrap();
    let mut status =
        tasks.map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap());
    let status = status.find(|status| status.starts_with("Name:\tuvfs-metrics\n"));
    let status = status.expect("the thread that answers");
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.lines().any(|has| has == line), "no {line}: {status}");
    }
    // A scraper does not keep the mount.
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}
