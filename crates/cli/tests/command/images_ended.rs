//! Reports after writing to an image has ended: the log, `uvfs stat` and `uvfs unmount`.

use crate::common::{Place, can_mount, is_mounted, run};
use crate::images::{done, text};
use crate::images_written::{created, sound};
use rustix::fs::SeekFrom;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small host file system in RAM, with a sparse copy of an image.
pub(crate) struct Host {
    root: PathBuf,
    pub(crate) image: PathBuf,
}

impl Host {
    /// `None`, said aloud, where none can be mounted.
    pub(crate) fn with_copy_of(image: &Path, root: &Path, data: &CStr) -> Option<Self> {
        if let Err(error) = rustix::mount::mount("tmpfs", root, "tmpfs", MountFlags::empty(), data)
        {
            uvfs_skip::lacking(format_args!("no tmpfs can be mounted here: {error}"));
            return None;
        }
        let host = Self { root: root.to_path_buf(), image: root.join("disk.img") };
        let copied = Command::new("cp").arg("--sparse=always").arg(image).arg(&host.image).status();
        assert!(copied.unwrap().success());
        Some(host)
    }

    /// Takes all room that is left.
    fn fill(&self) {
        let mut ballast = File::create(self.root.join("ballast")).unwrap();
        let piece = vec![1; 4096];
        let full = loop {
            if let Err(error) = ballast.write_all(&piece) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::StorageFull);
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.root, UnmountFlags::DETACH);
    }
}

/// The value of the row `name` of a report.
pub(crate) fn row<'t>(report: &'t str, name: &str) -> &'t str {
    let row = report.lines().find_map(|line| line.trim_start().strip_prefix(name));
    row.unwrap_or_else(|| panic!("no {name:?} in\n{report}")).trim()
}

/// Lines of `log` with `part`.
fn count(log: &Path, part: &str) -> usize {
    let log = fs::read_to_string(log).unwrap();
    log.lines().filter(|line| line.contains(part)).count()
}

/// The disk below a sparse image was full, and a commit failed: `uvfs stat` counted no error, `uvfs stat --journal` said that the
/// device had failed, the log said nothing where `fsync` found it, and `uvfs unmount` said that 0 bytes of 1 file were lost.
#[test]
fn a_commit_that_fails_is_reported_with_its_cause_and_its_losses() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return uvfs_skip::skip("a small host file system is mounted by root alone");
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "64M") else { return };
    let Some(host) = Host::with_copy_of(&image, &place.source, c"size=6M") else { return };
    let log = place.mountpoint.with_file_name("log");
    let log_file = format!("--log-file={}", text(&log));
    place.mount_daemon(text(&host.image), &["--commit=5m", &log_file]);
    let path = |name: &str| place.mountpoint.join(name);
    fs::write(path("kept"), vec![1; 20_000]).unwrap();
    fs::write(path("grown"), vec![2; 8192]).unwrap();
    fs::create_dir(path("d")).unwrap();
    File::open(&place.mountpoint).unwrap().sync_all().unwrap();
    for number in 0..10 {
        fs::write(path(&format!("d/f{number}")), vec![number; 4000]).unwrap();
    }
    let mut grown = File::options().append(true).open(path("grown")).unwrap();
    grown.write_all(&[3; 5000]).unwrap();
    drop(grown);
    // A search for holes brings their data to the image, and commits nothing.
    for name in (0..10).map(|number| format!("d/f{number}")).chain(["grown".into()]) {
        rustix::fs::seek(File::open(path(&name)).unwrap(), SeekFrom::Hole(0)).unwrap();
    }
    host.fill();
    let synced = File::open(path("d/f3")).unwrap().sync_all().unwrap_err();
    assert_eq!(synced.raw_os_error(), Some(5), "{synced}");
    let cause = "No space left on device below the image";
    let whole = format!("{cause}; committed data is safe: mount the image again");
    assert_eq!(count(&log, &format!("image: writing has ended: {whole}")), 1);
    assert_eq!(fs::create_dir(path("more")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    let report = done(&["stat", place.mnt()]).stdout;
    assert_ne!(row(&report, "write errors"), "0", "{report}");
    assert!(row(&report, "other errors").contains("changes refused"), "{report}");
    for report in [&report, &done(&["stat", "--journal", place.mnt()]).stdout] {
        let writing = row(report, "writing");
        assert!(writing.starts_with("has ended at 2"), "{report}");
        assert!(writing.ends_with(&format!(" UTC: {whole}")), "{report}");
    }
    let outcome = run(&["image", "commit", place.mnt()]);
    let message = format!("{}: writing has ended: {whole}", place.mnt());
    assert!(outcome.code == Some(1) && outcome.stderr.contains(&message), "{outcome:?}");
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(!is_mounted(&place.mountpoint));
    let mut lines: Vec<String> =
        (0..10).map(|number| format!("d/f{number}: lost 3.9 KiB")).collect();
    lines.push("grown: lost 4.9 KiB".into());
    for line in lines {
        let line = format!("{}/{line}: {cause}", place.mnt());
        assert!(outcome.stderr.contains(&line), "no {line} in\n{}", outcome.stderr);
        assert_eq!(count(&log, &line), 1);
    }
    let all = format!(
        "{}: ended, but 43.9 KiB of 11 files did not reach {} and are lost",
        place.mnt(),
        text(&host.image)
    );
    assert!(outcome.stderr.contains(&all), "no {all} in\n{}", outcome.stderr);
    assert_eq!(outcome.stderr.lines().count(), 12, "{}", outcome.stderr);
    assert_eq!(count(&log, "writing has ended"), 1);
    // The files that were reported as safe are there.
    fs::remove_file(host.root.join("ballast")).unwrap();
    place.mount_daemon(text(&host.image), &[]);
    assert_eq!(fs::read(path("kept")).unwrap(), vec![1; 20_000]);
    assert_eq!(fs::read(path("grown")).unwrap(), vec![2; 8192]);
    assert_eq!(fs::read_dir(path("d")).unwrap().count(), 0);
    done(&["unmount", place.mnt()]);
    sound(&host.image);
}

/// The file of a mounted image was removed, and the log called its committed data safe.
#[test]
fn an_image_that_was_removed_is_lost_as_a_whole_and_nothing_is_called_safe() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "32M") else { return };
    let log = place.mountpoint.with_file_name("log");
    let log_file = format!("--log-file={}", text(&log));
    place.mount_daemon(text(&image), &["--commit=5m", &log_file]);
    let file = File::create(place.mountpoint.join("file")).unwrap();
    (&file).write_all(&[7; 3_000_000]).unwrap();
    file.sync_all().unwrap();
    fs::remove_file(&image).unwrap();
    assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    drop(file);
    let why = "the image file was removed or replaced: the contents of the mount are lost when the mount ends";
    assert_eq!(count(&log, &format!("image: writing has ended: {why}")), 1);
    let report = done(&["stat", place.mnt()]).stdout;
    assert!(row(&report, "writing").ends_with(why), "{report}");
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let message = format!("{}/: lost 2.9 MiB: {why}", place.mnt());
    assert!(outcome.stderr.contains(&message), "no {message} in\n{}", outcome.stderr);
    let message = format!("{}: ended, and 2.9 MiB of all files are lost with ", place.mnt());
    assert!(outcome.stderr.contains(&message), "no {message} in\n{}", outcome.stderr);
    assert!(!fs::read_to_string(&log).unwrap().contains("safe"));
}

/// Bug: the host's file system below an image was full. The daemon's log had no line about the errors that an `fsync` met
/// itself, nor of which file they were, and `uvfs unmount` said "Input/output error".
#[test]
fn a_full_host_below_an_image_is_in_the_log_and_named_at_the_end() {
    if !can_mount() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return uvfs_skip::skip("a small host file system is mounted by root alone");
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "64M") else { return };
    let Some(host) = Host::with_copy_of(&image, &place.source, c"size=6M") else { return };
    let log = place.mountpoint.with_file_name("log");
    let log_file = format!("--log-file={}", text(&log));
    let options = ["--commit=5m", "--write-back-delay=1h", &log_file];
    place.mount_daemon(text(&host.image), &options);
    let path = place.mountpoint.join("file");
    fs::write(&path, vec![1; 60_000]).unwrap();
    host.fill();
    let file = File::open(&path).unwrap();
    for _ in 0..2 {
        assert_eq!(file.sync_all().unwrap_err().raw_os_error(), Some(5));
    }
    drop(file);
    let cause = "No space left on device below the image";
    assert_eq!(count(&log, &format!("/file: cannot write back, will try again: {cause}")), 1);
    assert!(count(&log, "image: the device failed a write of ") >= 2);
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    let line = format!("{}/file: lost 58.6 KiB: {cause}", place.mnt());
    assert!(outcome.stderr.contains(&line), "no {line} in\n{}", outcome.stderr);
}

const STORE: &str = "import mmap, os, sys\n\
file = os.open(sys.argv[1], os.O_RDWR)\n\
mapping = mmap.mmap(file, 1 << 20)\n\
mapping[0:1 << 20] = b'M' * (1 << 20)\n\
mapping.close()\n\
os.close(file)\n";

/// Bug: a program stored to a mapping of a hole, and the store had no room for it. The program ended with success, the
/// data was gone, and no counter, log line or unmount showed it. Linux's ext4 kills such a program.
#[test]
fn a_store_to_a_mapping_that_is_refused_is_counted_logged_and_named() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "24M") else { return };
    let log = place.mountpoint.with_file_name("log");
    let log_file = format!("--log-file={}", text(&log));
    for (source, more) in [(text(&image), None), ("memory:", Some("--size=24M"))] {
        let options: Vec<_> = [log_file.as_str()].into_iter().chain(more).collect();
        place.mount_daemon(source, &options);
        let path = |name: &str| place.mountpoint.join(name);
        for name in ["hole", "later", "gone"] {
            File::create(path(name)).unwrap().set_len(1 << 20).unwrap();
        }
        let mut fill = File::create(path("fill")).unwrap();
        while fill.write_all(&[1; 4096]).is_ok() {}
        let _ = fill.sync_all();
        for name in ["hole", "later", "gone"] {
            let stored = Command::new("python3").args(["-c", STORE]).arg(path(name)).status();
            match stored {
                Ok(status) => assert!(status.success(), "the kernel tells the program nothing"),
                Err(_) => {
                    done(&["unmount", place.mnt()]);
                    return uvfs_skip::lacking("python3 is not installed");
                }
            }
            let line = format!("/{name}: ");
            let of_file =
                |text: &str| text.contains(&line) && text.contains("to a mapping were refused");
            let logged =
                fs::read_to_string(&log).unwrap().lines().filter(|text| of_file(text)).count();
            assert_eq!(logged, 1, "{source}: {name}");
        }
        let report = done(&["stat", place.mnt()]).stdout;
        assert_ne!(row(&report, "write errors"), "0", "{source}: {report}");
        // Only bytes that are missing in the end are lost.
        fill.set_len(0).unwrap();
        drop(fill);
        fs::remove_file(path("fill")).unwrap();
        fs::remove_file(path("gone")).unwrap();
        fs::write(path("later"), vec![b'M'; 1 << 20]).unwrap();
        let outcome = run(&["unmount", place.mnt()]);
        assert_eq!(outcome.code, Some(1), "{source}: {outcome:?}");
        // The store may have had room for some pages.
        let line = format!("{}/hole: lost 1", place.mnt());
        assert!(outcome.stderr.contains(&line), "no {line} in\n{}", outcome.stderr);
        assert!(outcome.stderr.contains("B: No space left on device\n"), "{outcome:?}");
        assert!(outcome.stderr.contains(" of 1 file did not reach "), "{outcome:?}");
        assert_eq!(outcome.stderr.lines().count(), 2, "{outcome:?}");
        fs::remove_file(&log).unwrap();
    }
    let kept = done(&["image", "cat", text(&image), "/later"]).stdout;
    assert_eq!(kept.bytes().filter(|byte| *byte == b'M').count(), 1 << 20);
    sound(&image);
}
