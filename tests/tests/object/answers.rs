//! Floor: fault, over HTTP: an object store client's handling of answers, right ones and wrong ones.
//!
//! The server is ours and on loopback; each test has its own. Credentials are none, or the test's.

use std::sync::Arc;
use std::time::Duration;
use uvfs_object::s3::{Address, S3Store};
use uvfs_object::{ObjectBackend, ObjectConfig, Patience, StoreError};
use uvfs_tests::s3::{BUCKET_NAME, Fault, S3Server};
use uvfs_vfs::{
    Caller, Directory, Error, OpenOptions, RenameMode, SetAttributes, SetTime, SyncMode, Timestamp,
    Vfs, VfsConfig,
};

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
        Fault::Flip,
    ];
    for fault in faults {
        let vfs = mount(&server, Duration::from_secs(60));
        assert!(root(&vfs).stat("x").is_ok());
        server.plan([fault, fault]);
        assert_eq!(root(&vfs).read_file("x").unwrap(), content, "{fault:?}");
        if !matches!(fault, Fault::Flip) {
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

/// A range is asked for of what is larger than one request.
#[test]
fn another_range_is_asked_for_again() {
    let server = S3Server::start().unwrap();
    let content: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 251) as u8).collect();
    server.put("x", &content);
    let vfs = mount(&server, Duration::from_secs(60));
    assert!(root(&vfs).stat("x").is_ok());
    server.plan([Fault::OtherRange, Fault::OtherRange]);
    assert!(root(&vfs).read_file("x").unwrap() == content);
}

/// One flipped bit in an answer was returned, and cached for as long as the version was. The store had told the checksum, and
/// nothing compared it.
#[test]
fn a_flipped_bit_is_noticed_where_the_store_tells_a_checksum() {
    let server = S3Server::start().unwrap();
    let content: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
    server.put("x", &content);
    let vfs = mount(&server, Duration::from_secs(60));
    assert!(root(&vfs).stat("x").is_ok());
    let damaged = || {
        let counters = vfs.statistics().backend;
        counters.iter().find(|(name, _)| *name == "checksum_mismatches").unwrap().1
    };
    server.plan([Fault::Flip; 3]);
    assert!(matches!(root(&vfs).read_file("x"), Err(Error::Corrupt(_))));
    assert_eq!(damaged(), 3);
    server.plan([Fault::Flip]);
    assert!(root(&vfs).read_file("x").unwrap() == content, "asked for again, and nothing cached");
    assert_eq!(damaged(), 4);
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
fn each_reason_why_a_bucket_does_not_open_has_its_own_error() {
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
    // For an unknown access key a store answers that it is not found.
    assert!(matches!(is(404, "InvalidAccessKeyId"), StoreError::Credentials(_)));
    assert!(matches!(is(404, ""), StoreError::NoBucket));
    assert!(matches!(is(503, "SlowDown"), StoreError::Busy { .. }));
    assert!(matches!(is(400, "Whatever"), StoreError::Refused(_)));
    assert!(matches!(meets(Fault::Half), StoreError::Broken(_)));
    assert!(matches!(meets(Fault::Cut), StoreError::Broken(_) | StoreError::Unreachable(_)));
    let not_served =
        Address::parse("//bucket?endpoint=http://127.0.0.1:1&anonymous=true", |_| None);
    let refused = S3Store::connect(&not_served.unwrap()).unwrap_err();
    assert!(matches!(refused, StoreError::Unreachable(_)), "{refused}");
    assert_eq!(server.unsigned(), 12, "nothing is signed where the source says so");
}

/// Everything that changes a bucket, by the requests that a real store takes, for keys that a careless client would change.
#[test]
fn what_is_written_arrives_byte_for_byte() {
    let server = S3Server::start().unwrap();
    let vfs = mount(&server, Duration::from_secs(60));
    let root = root(&vfs);
    for name in [" ", "x ", "+", "%2F", "?a=b&c", "#", "a\nb", "ä\u{301}", "~&amp;"] {
        root.write_file(name, name.as_bytes()).unwrap();
        assert_eq!(server.content(name).unwrap(), name.as_bytes());
        root.rename(name, format!("{name}!"), RenameMode::Replace).unwrap();
        assert_eq!(server.keys(), [format!("{name}!")]);
        assert_eq!(root.read_file(format!("{name}!")).unwrap(), name.as_bytes());
        root.remove_file(format!("{name}!")).unwrap();
        assert_eq!(server.keys(), Vec::<String>::new());
    }
    let big: Vec<u8> = (0..20_000_001_u32).map(|at| (at % 251) as u8).collect();
    root.write_file("d+ d", b"").unwrap();
    root.write_file("big &+%20", &big).unwrap();
    assert!(server.content("big &+%20").unwrap() == big);
    assert_eq!(server.uploads(), 0);
    let file = root.open("big &+%20", OpenOptions::read_write()).unwrap();
    file.write_all_at(10_000_000, b"changed").unwrap();
    drop(file);
    assert_eq!(&server.content("big &+%20").unwrap()[10_000_000..10_000_007], b"changed");
    root.create_directory("e", 0o755).unwrap();
    assert_eq!(server.content("e/").unwrap(), b"");
    root.remove_directory("e").unwrap();
    let now = SetAttributes { mtime: Some(SetTime::Now), ..SetAttributes::default() };
    let before = server.puts();
    root.set_attributes("d+ d", &now).unwrap();
    assert_eq!(server.puts() - before, 1, "copied to itself");
    assert_eq!(server.keys(), ["big &+%20", "d+ d"]);
}

/// Faults at every request of a put, an upload in parts and a rename: the store has the old content or the new one, and
/// a caller with a success finds the new one.
#[test]
fn faults_while_writing_lose_nothing_and_show_no_part() {
    let server = S3Server::start().unwrap();
    let faults = [
        Fault::Status(500, "InternalError"),
        Fault::Status(503, "SlowDown"),
        Fault::Status(409, "ConditionalRequestConflict"),
        Fault::Lost,
        Fault::Half,
        Fault::Cut,
    ];
    let large: Vec<u8> = (0..9_000_000_u32).map(|at| (at % 241) as u8).collect();
    for (round, fault) in faults.into_iter().enumerate() {
        for content in [&b"small"[..], &large] {
            let vfs = mount(&server, Duration::from_secs(60));
            let root = root(&vfs);
            let name = format!("{round}-{}", content.len());
            let file = root.open(&name, OpenOptions::read_write().create(0o644)).unwrap();
            file.write_all_at(0, content).unwrap();
            server.plan([fault, fault]);
            file.sync(SyncMode::All).unwrap();
            assert!(server.content(&name).unwrap() == content, "{fault:?}");
            // Three in a row are one more than are tried.
            file.write_all_at(0, b"S").unwrap();
            server.plan([fault; 12]);
            let outcome = file.sync(SyncMode::All);
            let there = server.content(&name).unwrap();
            let new = [b"S", &content[1..]].concat();
            assert!(there == content || there == new, "{fault:?}: a part");
            assert!(outcome.is_err() || there == new, "{fault:?}: told, and not there");
            while server.planned() > 0 {
                let _ = root.stat("nothing");
            }
            file.sync(SyncMode::All).unwrap();
            assert!(
                server.content(&name).unwrap() == new,
                "{fault:?}: kept until it could be written"
            );
        }
    }
    let vfs = mount(&server, Duration::ZERO);
    server.plan([Fault::Status(403, "AccessDenied")]);
    let denied = root(&vfs).write_file("denied", b"x");
    assert!(matches!(denied, Err(Error::Access)), "{denied:?}");
}

/// Seeded operations by one program, compared with a map; others look at the bucket after each close.
#[test]
fn a_bucket_is_what_a_map_says() {
    let server = S3Server::start().unwrap();
    let vfs = mount(&server, Duration::from_secs(60));
    let root = root(&vfs);
    let mut model = std::collections::BTreeMap::<String, Vec<u8>>::new();
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = |below: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..600 {
        let name = format!("f{}", draw(12));
        let known = model.get(&name).cloned();
        match draw(7) {
            0 | 1 => {
                let content = vec![step as u8; draw(70_000) as usize];
                root.write_file(&name, &content).unwrap();
                model.insert(name, content);
            }
            2 => {
                let removed = root.remove_file(&name);
                assert_eq!(removed.is_ok(), known.is_some(), "{step}: {removed:?}");
                model.remove(&name);
            }
            3 => {
                let to = format!("f{}", draw(12));
                let moved = root.rename(&name, &to, RenameMode::Replace);
                assert_eq!(moved.is_ok(), known.is_some(), "{step}: {moved:?}");
                if let Some(content) = model.remove(&name) {
                    model.insert(to, content);
                }
            }
            4 => {
                let size = draw(90_000);
                let set = SetAttributes { size: Some(size), ..SetAttributes::default() };
                assert_eq!(root.set_attributes(&name, &set).is_ok(), known.is_some());
                if let Some(content) = model.get_mut(&name) {
                    content.resize(size as usize, 0);
                }
            }
            5 => {
                let Ok(file) = root.open(&name, OpenOptions::read_write()) else {
                    assert!(known.is_none());
                    continue;
                };
                let at = draw(80_000) as usize;
                file.write_all_at(at as u64, b"patch").unwrap();
                drop(file);
                let content = model.get_mut(&name).unwrap();
                content.resize(content.len().max(at + 5), 0);
                content[at..at + 5].copy_from_slice(b"patch");
            }
            _ => {
                let read = root.read_file(&name).ok();
                assert!(read == known, "{step}: {name}");
            }
        }
        assert_eq!(server.keys(), model.keys().cloned().collect::<Vec<_>>(), "{step}");
    }
    for (name, content) in &model {
        assert!(server.content(name).unwrap() == *content, "{name}");
    }
}

/// A change sent none of the headers that the object had, and `touch` replaced them by its time. Which headers those are only
/// the protocol's client knows.
#[test]
fn headers_of_an_object_survive_a_change_of_its_time_and_its_content() {
    let kept = [
        ("cache-control", "max-age=60"),
        ("content-disposition", "inline; filename=\"a, b\""),
        ("content-encoding", "gzip"),
        ("content-language", "de"),
        ("content-type", "text/html; charset=utf-8"),
        ("expires", "Thu, 01 Dec 2044 16:00:00 GMT"),
        ("x-amz-meta-owner", "bob"),
    ];
    let server = S3Server::start().unwrap();
    let vfs = mount(&server, Duration::from_secs(60));
    let at = SetTime::At(Timestamp { seconds: 7, nanoseconds: 0 });
    let time = SetAttributes { mtime: Some(at), ..SetAttributes::default() };
    for (name, size) in [("touched", 0), ("put", 100), ("parts", 9 << 20)] {
        // The version that an earlier writer has put bears its mark and its time, which are replaced.
        let own = [("x-amz-meta-uvfs-put", "1"), ("x-amz-meta-mtime", "1")];
        server.put_with(name, b"old", &[&kept[..], &own].concat());
        match size {
            0 => _ = root(&vfs).set_attributes(name, &time).unwrap(),
            size => root(&vfs).write_file(name, vec![b'x'; size]).unwrap(),
        }
        let mut now = server.metadata(name);
        assert_ne!(now.remove("x-amz-meta-uvfs-put").as_deref(), Some("1"), "{name}");
        let modified = now.remove("x-amz-meta-mtime");
        assert_eq!(modified.as_deref(), (size == 0).then_some("7.000000000"), "{name}");
        let kept = kept.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(now, kept.into(), "{name}");
    }
}

/// A store, or a proxy before it, wrote tags in a listing without quotes and those of answers as weak ones: each read was ESTALE. An object
/// without a tag made its directory EIO.
#[test]
fn tags_in_any_form_or_none_are_usable() {
    for forms in [["{}", "\"{}\""], ["&quot;{}&quot;", "W/\"{}\""], [" ", " "]] {
        let server = S3Server::start().unwrap();
        server.put("x", b"content");
        server.put("moves", b"moves");
        server.put("unread", b"unread");
        server.write_tags(forms);
        let vfs = mount(&server, Duration::ZERO);
        assert_eq!(names(&root(&vfs)), ["moves", "unread", "x"], "{forms:?}");
        assert_eq!(root(&vfs).read_file("x").unwrap(), b"content", "{forms:?}");
        let file = root(&vfs).open("unread", OpenOptions::read()).unwrap();
        server.put("unread", b"replaced in between");
        assert!(matches!(file.read_to_end(), Err(Error::Stale)), "{forms:?}");
        root(&vfs).rename("moves", "moved", RenameMode::Replace).unwrap();
        root(&vfs).remove_file("moved").unwrap();
        // A put has to be recognised by its tag.
        if forms[1] != " " {
            root(&vfs).write_file("x", b"ours").unwrap();
            assert_eq!(server.content("x").unwrap(), b"ours", "{forms:?}");
        }
    }
}
