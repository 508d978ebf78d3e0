//! Answers to bad input: one line with thing, cause and remedy, the right exit status, no mount.
//!
//! Needs no privilege: every refusal here comes before a mount would be made.

use crate::common::{Outcome, Place, finish, is_mounted, run, uvfs};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

/// Checks that `arguments` are refused with one line that has `parts` in it, in this order.
fn check_refused(arguments: &[&str], status: i32, parts: &[&str]) -> Outcome {
    let outcome = run(arguments);
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
    outcome
}

#[test]
fn sources_that_cannot_be_are_refused() {
    let place = Place::new();
    let file = place.source.join("file");
    fs::write(&file, "").unwrap();
    let file = file.to_str().unwrap();
    let check = |source: &str, parts: &[&str]| {
        check_refused(&["mount", source, place.mnt()], 1, parts);
        assert!(!is_mounted(&place.mountpoint));
    };
    check("/no/such/folder", &["source /no/such/folder", "does not exist", "create it"]);
    check("dir:/no/such/folder", &["source /no/such/folder", "does not exist"]);
    check(file, &[file, "not a directory", "name a directory"]);
    #[cfg(feature = "s3")]
    check("s3:bucket", &["source s3:", "write s3://BUCKET or s3://BUCKET/PREFIX"]);
    check("ftp:host", &["ftp:host", "unknown scheme `ftp:`", "memory:, dir:PATH"]);
    check("memory:x", &["memory:x", "takes nothing", "write `memory:`"]);
    check("", &["source", "empty", "dir:PATH"]);
}

/// A compressed image, one of a virtual machine, or one of another file system was "no ext2, ext3 or ext4", without a way out;
/// a missing image was to be created as a directory.
#[test]
fn sources_of_other_formats_are_named_with_the_way_to_an_image() {
    let place = Place::new();
    let path = place.source.join("some.img");
    let path_text = path.to_str().unwrap();
    for arguments in [&["mount", path_text, place.mnt()][..], &["image", "info", path_text]] {
        check_refused(arguments, 1, &[path_text, "does not exist", "`uvfs image create`"]);
    }
    let kinds: [(usize, &[u8], &[&str]); 16] = [
        (0, b"\x1f\x8b\x08", &["is gzip", "gunzip"]),
        (0, b"\xfd7zXZ\0", &["is xz", "unxz"]),
        (0, b"\x28\xb5\x2f\xfd", &["is zstd", "unzstd"]),
        (0, b"BZh9", &["is bzip2", "bunzip2"]),
        (0, b"QFI\xfb\0\0\0\x03", &["is qcow2", "qemu-img convert -O raw"]),
        (0, b"KDMV", &["is vmdk", "qemu-img convert -O raw"]),
        (0, b"vhdxfile", &["is vhdx", "qemu-img convert -O raw"]),
        (64, b"\x7f\x10\xda\xbe", &["is vdi", "qemu-img convert -O raw"]),
        (0, b"XFSB", &["is XFS", "the kernel mounts it"]),
        (0x1_0040, b"_BHRfS_M", &["is btrfs", "the kernel mounts it"]),
        (0, b"hsqs", &["is squashfs", "the kernel mounts it"]),
        (1024, b"\xe2\xe1\xf5\xe0", &["is erofs", "the kernel mounts it"]),
        (1024, b"\x10\x20\xf5\xf2", &["is f2fs", "the kernel mounts it"]),
        (0x8001, b"CD001", &["is ISO 9660", "the kernel mounts it"]),
        (3, b"NTFS    ", &["is NTFS", "the kernel mounts it"]),
        (0, b"LUKS\xba\xbe", &["is LUKS", "cryptsetup open"]),
    ];
    for (at, magic, parts) in kinds {
        let mut bytes = vec![0; 1 << 18];
        bytes[at..at + magic.len()].copy_from_slice(magic);
        fs::write(&path, bytes).unwrap();
        for read_only in [true, false] {
            let mut arguments = vec!["mount", path_text, place.mnt()];
            arguments.extend(read_only.then_some("--read-only"));
            check_refused(&arguments, 1, &[&[path_text], parts].concat());
        }
        check_refused(&["image", "info", path_text], 1, &[&[path_text], parts].concat());
    }
}

/// Each 404 of a listing was "there is no such bucket", also that of an unknown access key; and https:// to a plain port was
/// "received corrupt message of type InvalidContentType".
#[test]
#[cfg(feature = "s3")]
fn a_store_that_says_what_is_wrong_is_quoted() {
    use std::io::{Read, Write};
    let place = Place::new();
    let check = |scheme: &str, body: &'static str, parts: &[&str]| {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // The thread ends with the process of the test.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let mut client = client.unwrap();
                let _ = client.read(&mut [0; 4096]);
                let length = body.len();
                let head = format!("HTTP/1.1 404 Not Found\r\nContent-Length: {length}");
                let _ = write!(client, "{head}\r\nConnection: close\r\n\r\n{body}");
            }
        });
        let source = format!("s3://box?endpoint={scheme}://{address}&region=here");
        let mut command = uvfs();
        command.args(["mount", &source, place.mnt()]);
        command.env("AWS_ACCESS_KEY_ID", "some").env("AWS_SECRET_ACCESS_KEY", "thing");
        let outcome = finish(&mut command);
        if outcome.stderr.contains("certificates") {
            return uvfs_skip::lacking("no certificate authorities");
        }
        assert_eq!(outcome.code, Some(1), "{outcome:?}");
        for part in parts {
            assert!(outcome.stderr.contains(part), "no {part:?} in {outcome:?}");
        }
    };
    let user = "<Error><Code>XAdminUserNotFound</Code><Message>No such user.</Message></Error>";
    check("http", user, &["XAdminUserNotFound: No such user.", "credentials"]);
    check("http", "", &["there is no such bucket"]);
    let bucket = "<Error><Code>NoSuchBucket</Code></Error>";
    check("http", bucket, &["there is no such bucket"]);
    check("https", "", &["without TLS", "write http://"]);
}

#[test]
fn mountpoints_that_cannot_be_are_refused() {
    let place = Place::new();
    let file = place.source.join("file");
    fs::write(&file, "").unwrap();
    let check = |mountpoint: &str, parts: &[&str]| {
        check_refused(&["mount", "memory:", mountpoint], 1, parts);
    };
    check("/no/such/folder", &["mountpoint /no/such/folder", "does not exist", "mkdir"]);
    check(file.to_str().unwrap(), &["not a directory", "name a directory"]);
    check(place.src(), &[place.src(), "not empty", "--nonempty"]);
}

#[test]
fn a_source_and_a_mountpoint_that_contain_each_other_are_refused() {
    let place = Place::new();
    let inner = place.source.join("inner");
    fs::create_dir(&inner).unwrap();
    let (outer, inner) = (place.src(), inner.to_str().unwrap());
    let check = |source, mountpoint, parts: &[&str]| {
        check_refused(&["mount", source, mountpoint, "--nonempty"], 1, parts);
    };
    check(outer, outer, &["source", "at or below the mountpoint", "outside"]);
    check(inner, outer, &["source", "at or below the mountpoint", "outside"]);
    check(outer, inner, &["mountpoint", "inside the source", "outside"]);
}

#[test]
fn a_link_does_not_hide_that_source_and_mountpoint_are_one() {
    let place = Place::new();
    let link = place.mountpoint.join("link");
    std::os::unix::fs::symlink(&place.source, &link).unwrap();
    let arguments = ["mount", link.to_str().unwrap(), place.src(), "--nonempty"];
    check_refused(&arguments, 1, &["at or below the mountpoint"]);
}

#[test]
fn option_values_that_make_no_sense_are_usage_errors() {
    let place = Place::new();
    let check = |source: &str, options: &[&str], parts: &[&str]| {
        check_refused(&[&["mount", source, place.mnt()], options].concat(), 2, parts);
    };
    check("memory:", &["--size", "lots"], &["--size lots", "not a size", "512M"]);
    check("memory:", &["--size", "0"], &["--size 0", "zero", "512M"]);
    check("memory:", &["--size", "-5"], &["--size -5", "not a size"]);
    check(place.src(), &["--size", "1G"], &["--size", "directory", "leave it out"]);
    check(place.src(), &["--atime", "noatime"], &["--atime", "host's", "leave it out"]);
    check("memory:", &["--watch"], &["--watch", "leave it out"]);
    check("memory:", &["--attr-timeout", "5"], &["--attr-timeout 5", "unit", "500ms"]);
    check("memory:", &["--readers", "0"], &["--readers 0", "1 to 64"]);
    let rule = ["--cache-size 1K", "below the working minimum", "write at least"];
    check("memory:", &["--cache-size", "1K"], &rule);
    let rule = ["--cache-size 128T", "more than the", "of memory", "write at most"];
    check("memory:", &["--cache-size", "128T"], &rule);
}

#[test]
fn settings_that_make_no_sense_are_usage_errors() {
    // Nothing is mounted there: invalid words are refused before any daemon is asked.
    let place = Place::new();
    let check = |setting: &str, parts: &[&str]| {
        check_refused(&["set", place.mnt(), setting], 2, parts);
    };
    check("colour=red", &["colour=red", "unknown key", "cache-size"]);
    check("cache-size=lots", &["cache-size=lots", "not a size", "512M"]);
    check("cache-size=0", &["cache-size=0", "zero"]);
    check("cache-size=101%", &["cache-size=101%", "at most 100%"]);
    check("cache-size", &["cache-size", "KEY=VALUE", "cache-size"]);
    let help = run(&["set", "--help"]);
    assert_eq!(help.code, Some(0));
    for part in ["Keys:", "cache-size", "Examples:", "Exit status:"] {
        assert!(help.stdout.contains(part), "no {part:?} in {}", help.stdout);
    }
}

#[test]
fn a_daemon_that_cannot_start_says_so_through_the_command_that_started_it() {
    let place = Place::new();
    let arguments = ["mount", "/no/such/folder", place.mnt(), "--daemon"];
    check_refused(&arguments, 1, &["/no/such/folder", "does not exist"]);
    let arguments = ["mount", "memory:", place.mnt(), "--daemon", "--size", "lots"];
    check_refused(&arguments, 2, &["--size lots"]);
    let arguments = ["mount", "memory:", place.mnt(), "--daemon", "--log-file", "/no/such/log"];
    check_refused(&arguments, 1, &["log file /no/such/log", "No such file"]);
}

#[test]
fn places_where_nothing_of_ours_is_mounted_are_refused() {
    let place = Place::new();
    for command in [&["stat"][..], &["unmount"], &["set", "cache-size=1G"]] {
        let (command, rest) = (command[0], &command[1..]);
        let check_refused = |arguments: &[&str], status, parts: &[&str]| {
            check_refused(&[arguments, rest].concat(), status, parts)
        };
        check_refused(&[command, place.mnt()], 1, &["nothing is mounted here", "uvfs mounts"]);
        check_refused(&[command, "/no-such"], 1, &["/no-such", "no such directory"]);
        check_refused(&[command, "/no/such/folder"], 1, &["/no/such/folder", "No such file"]);
        check_refused(&[command, "/proc"], 1, &["/proc", "not a uvfs mount"]);
    }
}

#[test]
fn names_that_are_not_text_are_refused_like_others() {
    let name = std::ffi::OsStr::from_bytes(b"/no\xff/such\n");
    let outcome = run(&[std::ffi::OsStr::new("mount"), name, std::ffi::OsStr::new("/mnt")]);
    assert_eq!(outcome.code, Some(1));
    assert_eq!(outcome.stderr.matches('\n').count(), 1, "{outcome:?}");
}

#[test]
fn command_lines_that_make_no_sense_get_status_2_and_help() {
    let nothing = finish(&mut uvfs());
    assert_eq!(nothing.code, Some(2));
    assert!(nothing.stderr.contains("Usage: uvfs"), "{nothing:?}");
    for bad in [
        &["frobnicate"][..],
        &["mount"],
        &["mount", "memory:"],
        &["stat", "--frob", "/"],
        &["set", "/"],
    ] {
        let outcome = run(bad);
        assert_eq!(outcome.code, Some(2), "{outcome:?}");
        assert!(outcome.stderr.contains("--help") || outcome.stderr.contains("Usage"));
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let help = run(&["mount", "--help"]);
    assert_eq!((help.code, help.stderr.as_str()), (Some(0), ""));
    for part in ["Examples:", "Exit status:", "--attr-timeout", "memory:", "./memory:"] {
        assert!(help.stdout.contains(part), "no {part:?} in {}", help.stdout);
    }
    assert!(!help.stdout.contains("in-background"));
    let opening = run(&["--help"]).stdout;
    let opening = opening.lines().next().unwrap();
    for store in ["RAM", "directory", "image", "bucket"] {
        assert!(opening.contains(store), "no {store} in {opening}");
    }
    let version = run(&["--version"]);
    assert_eq!(version.code, Some(0));
    assert_eq!(version.stdout, format!("uvfs {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_listing_names_mounts_only() {
    // Other tests may have mounts at this moment; each line is one of them.
    let outcome = run(&["stat", "--json"]);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""));
    for line in outcome.stdout.lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(object["mountpoint"].is_string(), "{line}");
    }
}

/// A report written to a full disk was cut short, and the status was 0.
#[test]
fn what_cannot_be_printed_is_a_failure_unless_no_process_reads() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let cached =
        |stdout: Stdio| finish(uvfs().args(["cached", "--json"]).arg(folder.path()).stdout(stdout));
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let outcome = cached(full.into());
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let expected = "uvfs: standard output: No space left on device; the output is not complete\n";
    assert_eq!(outcome.stderr, expected);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let outcome = cached(writer.into());
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
}
