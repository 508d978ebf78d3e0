//! Floor: fault, over HTTP: what a client of an object store makes of answers, the right ones and the others.
//!
//! The server is ours and on loopback; each test has its own. Credentials are none, or the test's.

use std::sync::Arc;
use std::time::Duration;
use uvfs_object::s3::{Address, S3Store};
use uvfs_object::{ObjectBackend, ObjectConfig, Patience, StoreError};
use uvfs_tests::s3::{BUCKET_NAME, Fault, S3Server};
use uvfs_vfs::{Caller, Directory, Error, OpenOptions, Vfs, VfsConfig};

fn address(server: &S3Server, more: &str) -> Address {
    let text = format!("//{BUCKET_NAME}{more}?endpoint={}&anonymous=true", server.endpoint());
    Address::parse(&text, |_| None).unwrap()
}

fn mount(server: &S3Server, valid: Duration) -> Arc<Vfs> {
    let pause = Duration::from_millis(1);
    let patience = Patience { attempts: 3, first_pause: pause, longest_pause: pause };
    let config = ObjectConfig { patience, ..ObjectConfig::default() };
    let store = S3Store::connect(&address(server, "")).unwrap();
    let (attr_timeout, entry_timeout, negative_timeout) = (valid, valid, valid);
    let times = VfsConfig { attr_timeout, entry_timeout, negative_timeout, ..VfsConfig::default() };
    Vfs::new(ObjectBackend::new(store, config), times).unwrap()
}

fn root(vfs: &Arc<Vfs>) -> Directory {
    vfs.root_directory(Caller::root())
}

fn names(directory: &Directory) -> Vec<String> {
    let listed = directory.list_all().unwrap();
    listed.iter().map(|entry| String::from_utf8(entry.name.to_vec()).unwrap()).collect()
}

/// A client library that was tried trimmed keys and joined slashes: "n/x " was written to "n/x".
#[test]
fn keys_go_to_the_store_byte_for_byte() {
    let server = S3Server::start().unwrap();
    let odd = [
        " ",
        "x ",
        " x",
        "+",
        "%2F",
        "%",
        "?a=b&c",
        "#",
        "ä\u{301}",
        "a\nb",
        "\u{1}",
        "\\",
        "...",
        "~",
    ];
    for name in odd {
        server.put(&format!("d {name}/{name}"), name.as_bytes());
    }
    let vfs = mount(&server, Duration::ZERO);
    for name in odd {
        let path = format!("d {name}/{name}");
        assert_eq!(root(&vfs).read_file(&path).unwrap(), name.as_bytes(), "{path:?}");
        let directory = root(&vfs).open_directory(format!("d {name}")).unwrap();
        assert_eq!(names(&directory), [name]);
    }
}

#[test]
fn two_thousand_keys_come_in_pages_once_each() {
    let server = S3Server::start().unwrap();
    let keys: Vec<String> = (0..2100).map(|at| format!("k&{at:05}")).collect();
    keys.iter().for_each(|key| server.put(key, key.as_bytes()));
    server.put("d/below", b"x");
    let vfs = mount(&server, Duration::from_secs(60));
    let before = server.requests().0;
    let listed = names(&root(&vfs));
    assert_eq!(listed.len(), 2101);
    assert_eq!(server.requests().0 - before, 3);
    assert_eq!(listed[1..], keys);
}

#[test]
fn wrong_answers_are_asked_again_and_never_taken() {
    let server = S3Server::start().unwrap();
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    server.put("x", &content);
    server.put("y", b"y");
    let faults = [
        Fault::Status(500, "InternalError"),
        Fault::Status(503, "SlowDown"),
        Fault::Status(429, "TooManyRequests"),
        Fault::Cut,
        Fault::Half,
        Fault::OtherRange,
    ];
    for fault in faults {
        let vfs = mount(&server, Duration::from_secs(60));
        assert!(root(&vfs).stat("x").is_ok());
        server.plan([fault, fault]);
        assert_eq!(root(&vfs).read_file("x").unwrap(), content, "{fault:?}");
        if !matches!(fault, Fault::OtherRange) {
            let vfs = mount(&server, Duration::from_secs(60));
            server.plan([fault, fault]);
            assert_eq!(names(&root(&vfs)), ["x", "y"], "{fault:?}");
        }
    }
    // The third try was the last: an error, and not half a file or an empty directory.
    let vfs = mount(&server, Duration::from_secs(60));
    assert!(root(&vfs).stat("x").is_ok());
    server.plan([Fault::Half; 3]);
    assert!(root(&vfs).read_file("x").is_err());
    server.plan([Fault::Half; 3]);
    assert!(root(&vfs).list_all().is_err());
    assert_eq!(root(&vfs).read_file("x").unwrap(), content);
    assert_eq!(names(&root(&vfs)), ["x", "y"]);
}

#[test]
fn another_version_is_stale_also_where_the_server_ignores_the_condition() {
    let server = S3Server::start().unwrap();
    server.put("x", b"first");
    let vfs = mount(&server, Duration::ZERO);
    let file = root(&vfs).open("x", OpenOptions::read()).unwrap();
    server.plan([Fault::OtherVersion]);
    assert!(matches!(file.read_to_end(), Err(Error::Stale)));
    server.put("x", b"second");
    let old = root(&vfs).open("x", OpenOptions::read()).unwrap();
    server.put("x", b"third!");
    assert!(matches!(old.read_to_end(), Err(Error::Stale)));
    assert_eq!(root(&vfs).read_file("x").unwrap(), b"third!");
}

#[test]
fn a_large_file_is_read_by_many_requests_at_once() {
    let server = S3Server::start().unwrap();
    let content: Vec<u8> = (0..9_000_001_u32).map(|at| (at % 251) as u8).collect();
    server.put("big", &content);
    let vfs = mount(&server, Duration::from_secs(60));
    assert!(root(&vfs).stat("big").is_ok());
    let file = root(&vfs).open("big", OpenOptions::read()).unwrap();
    let mut read = vec![0; content.len()];
    server.plan([Fault::UntilSecond]);
    assert_eq!(file.read_at(0, &mut read).unwrap(), content.len());
    assert!(read == content);
    assert!(server.most_at_once() > 1, "one after the other");
}

#[test]
fn each_reason_why_a_bucket_does_not_open_is_told_apart() {
    let server = S3Server::start().unwrap();
    let meets = |fault: Fault| {
        server.plan([fault]);
        S3Store::connect(&address(&server, "")).unwrap_err()
    };
    let is = |status, code| meets(Fault::Status(status, code));
    assert!(matches!(is(403, "AccessDenied"), StoreError::Denied(_)));
    assert!(matches!(is(403, "InvalidAccessKeyId"), StoreError::Credentials(_)));
    assert!(matches!(is(403, "SignatureDoesNotMatch"), StoreError::Credentials(_)));
    assert!(matches!(is(400, "ExpiredToken"), StoreError::Credentials(_)));
    assert!(matches!(is(403, "RequestTimeTooSkewed"), StoreError::Clock));
    assert!(matches!(is(404, "NoSuchBucket"), StoreError::NoBucket));
    assert!(matches!(is(503, "SlowDown"), StoreError::Busy { .. }));
    assert!(matches!(is(400, "Whatever"), StoreError::Refused(_)));
    assert!(matches!(meets(Fault::Half), StoreError::Broken(_)));
    assert!(matches!(meets(Fault::Cut), StoreError::Broken(_) | StoreError::Unreachable(_)));
    let nobody = Address::parse("//bucket?endpoint=http://127.0.0.1:1&anonymous=true", |_| None);
    let refused = S3Store::connect(&nobody.unwrap()).unwrap_err();
    assert!(matches!(refused, StoreError::Unreachable(_)), "{refused}");
    assert_eq!(server.unsigned(), 10, "nothing is signed where the source says so");
}
