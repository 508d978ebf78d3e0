//! Two things at once: an answer that is older than a change made here, and two changes of one file.

use super::tests::{LONG, counter, mount, names};
use crate::bucket::{Bucket, On};
use std::sync::mpsc;
use std::time::Duration;
use uvfs_vfs::{
    Caller, Clean, Dirty, Error, OpenOptions, RenameMode, SetAttributes, SetTime, Timestamp, Vfs,
};

/// Writes `content` as a program does that rewrites a file.
fn rewrite(vfs: &std::sync::Arc<Vfs>, name: &str, content: &[u8]) -> Result<(), Error> {
    let root = vfs.root_directory(Caller::root());
    let file = root.open(name, OpenOptions::write().truncate())?;
    file.write_all_at(0, content)
}

fn touched() -> SetAttributes {
    let time = SetTime::At(Timestamp { seconds: 7, nanoseconds: 0 });
    SetAttributes { mtime: Some(time), ..SetAttributes::default() }
}

/// A listing was under way, and the store had made it, when files were rewritten, appended to and touched here. The listing arrived
/// after that and set them back: `cat` said ESTALE, `stat` the old size, and every later write of them failed with EBUSY.
#[test]
fn a_listing_from_before_a_change_does_not_set_files_back() {
    for background in [false, true] {
        let bucket = Bucket::new(&["append", "touch", "write"]);
        // A listing that has expired is listed again in the background.
        let vfs = mount(&bucket, "", if background { Duration::from_millis(200) } else { LONG });
        let root = vfs.root_directory(Caller::root());
        assert_eq!(names(&vfs, "."), ["append", "touch", "write"]);
        let (told, changed) = mpsc::channel();
        let other = vfs.clone();
        let change = move || {
            let root = other.root_directory(Caller::root());
            rewrite(&other, "write", b"new").unwrap();
            let file = root.open("append", OpenOptions::read_write()).unwrap();
            file.write_all_at(6, b"ed").unwrap();
            drop(file);
            root.set_attributes("touch", &touched()).unwrap();
            told.send(()).unwrap();
        };
        match background {
            false => {
                bucket.then(On::List, change);
                vfs.refresh(vfs.root()).unwrap();
            }
            true => {
                bucket.then(On::List, change);
                while changed.try_recv().is_err() {
                    names(&vfs, ".");
                }
                while vfs.statistics().listings.refreshed == 0 {
                    std::thread::yield_now();
                }
            }
        }
        for _ in 0..2 {
            assert_eq!(root.stat("write").unwrap().size, 3);
            assert_eq!(root.read_file("write").unwrap(), b"new");
            assert_eq!(root.read_file("append").unwrap(), b"appended");
            assert_eq!(root.read_file("touch").unwrap(), b"touch");
            vfs.clean(vfs.root(), Clean::Pages, Dirty::Skip).unwrap();
        }
        rewrite(&vfs, "write", b"newer").unwrap();
        rewrite(&vfs, "touch", b"again").unwrap();
        assert_eq!(bucket.content("write").unwrap(), b"newer");
        assert_eq!(bucket.content("touch").unwrap(), b"again");
        assert_eq!(counter(&vfs, "write_conflicts"), 0);
    }
}

/// The same by a lookup of one name, which is a listing of the keys that begin with it.
#[test]
fn a_lookup_from_before_a_change_does_not_set_the_file_back() {
    let bucket = Bucket::new(&["x", "xy"]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let other = vfs.clone();
    // While the first lookup is answered, another thread finds the name and rewrites the file.
    bucket.then(On::List, move || {
        std::thread::spawn(move || {
            let root = other.root_directory(Caller::root());
            names(&other, ".");
            root.read_file("x").unwrap();
            rewrite(&other, "x", b"new").unwrap();
        })
        .join()
        .unwrap();
    });
    assert_eq!(root.read_file("x").unwrap(), b"new");
    rewrite(&vfs, "x", b"newer").unwrap();
    assert_eq!(bucket.content("x").unwrap(), b"newer");
}

/// A read was under way when the file was renamed here. The store did not have the old key any more, and the reader was told that the
/// file is stale.
#[test]
fn a_read_during_a_rename_reads_under_the_new_name() {
    let bucket = Bucket::new(&["x"]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let file = root.open("x", OpenOptions::read()).unwrap();
    let other = vfs.clone();
    bucket.then(On::Read, move || {
        let root = other.root_directory(Caller::root());
        root.rename("x", "y", RenameMode::Replace).unwrap();
    });
    assert_eq!(file.read_to_end().unwrap(), b"x");
}

/// One thread closed a new file, and another one renamed it while it was uploaded. The rename took effect at once, the upload then
/// named the old key: the file was in the bucket under its old name and here under none.
#[test]
fn a_rename_during_an_upload_is_not_undone() {
    for (what, written) in [("new", &b"data"[..]), ("empty", b""), ("touched", b"")] {
        let bucket = Bucket::new(&[]);
        let vfs = mount(&bucket, "", LONG);
        let root = vfs.root_directory(Caller::root());
        let after = if what == "touched" { On::Copy } else { On::Put };
        if what == "touched" {
            root.write_file("a", b"").unwrap();
        }
        let (started, renamed) = mpsc::channel();
        let other = vfs.clone();
        bucket.then(after, move || {
            let (done, is_done) = mpsc::channel();
            started.send(is_done).unwrap();
            let rename = move || {
                let root = other.root_directory(Caller::root());
                done.send(root.rename("a", "b", RenameMode::Replace)).unwrap();
            };
            let thread = std::thread::spawn(rename);
            // A rename that does not wait has ended by then.
            let since = std::time::Instant::now();
            while !thread.is_finished() && since.elapsed() < Duration::from_millis(50) {
                std::thread::yield_now();
            }
        });
        if what == "touched" {
            root.set_attributes("a", &touched()).unwrap();
        } else {
            let file = root.open("a", OpenOptions::write().create(0o644)).unwrap();
            file.write_all_at(0, written).unwrap();
            drop(file);
        }
        renamed.recv().unwrap().recv().unwrap().unwrap();
        assert_eq!(bucket.keys(), ["b"], "{what}");
        vfs.clean(vfs.root(), Clean::Both, Dirty::Skip).unwrap();
        assert_eq!(names(&vfs, "."), ["b"], "{what}");
        assert_eq!(root.read_file("b").unwrap(), written, "{what}");
    }
}

/// Empty, cut and touched files went to the store one after the other, for the whole mount: each waited for the request of the one before.
#[test]
fn empty_files_are_put_at_once() {
    let bucket = Bucket::new(&[]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    let other = vfs.clone();
    let inside = bucket.clone();
    bucket.then(On::Put, move || {
        let create = move || {
            let root = other.root_directory(Caller::root());
            drop(root.open("second", OpenOptions::write().create(0o644)).unwrap());
        };
        std::thread::spawn(create).join().unwrap();
        assert_eq!(inside.content("second").unwrap(), b"", "while the first one is under way");
    });
    drop(root.open("first", OpenOptions::write().create(0o644)).unwrap());
    assert_eq!(bucket.keys(), ["first", "second"]);
}
