//! Two things at once: an answer that is older than a change made here, and two changes of one file.

use super::tests::{LONG, counter, mount, names};
use crate::bucket::{Bucket, Fault, On};
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
        let (done, changed) = mpsc::channel();
        let other = vfs.clone();
        let change = move || {
            let root = other.root_directory(Caller::root());
            rewrite(&other, "write", b"new").unwrap();
            let file = root.open("append", OpenOptions::read_write()).unwrap();
            file.write_all_at(6, b"ed").unwrap();
            drop(file);
            root.set_attributes("touch", &touched()).unwrap();
            done.send(()).unwrap();
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

/// A lookup of one name is a listing of the keys that begin with it, so its answer can be older than a change, too.
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

/// A read was under way when the file was renamed here. The store did not have the old key any more, and the reader got the error that the
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

/// Two editors on two machines changed one file, each by writing a new one and renaming it over the old one (`sed -i`, vim, rsync, git). The
/// second rename replaced the first editor's version without a word.
#[test]
fn a_rename_does_not_replace_a_version_that_was_not_seen() {
    let bucket = Bucket::new(&["f"]);
    let (one, other) = (mount(&bucket, "", LONG), mount(&bucket, "", LONG));
    let [one, other] = [one, other].map(|vfs| vfs.root_directory(Caller::root()));
    for root in [&one, &other] {
        assert_eq!(root.read_file("f").unwrap(), b"f");
    }
    one.write_file("f.1", b"first").unwrap();
    other.write_file("f.2", b"second").unwrap();
    one.rename("f.1", "f", RenameMode::Replace).unwrap();
    let refused = other.rename("f.2", "f", RenameMode::Replace);
    assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
    assert_eq!(bucket.content("f").unwrap(), b"first");
    assert_eq!(other.read_file("f.2").unwrap(), b"second", "it stays with its user");
    // The next look shows the other version, and then it may be replaced.
    assert_eq!(other.read_file("f").unwrap(), b"first");
    other.rename("f.2", "f", RenameMode::Replace).unwrap();
    assert_eq!(bucket.content("f").unwrap(), b"second");
    // The same of a file that is not in the store yet.
    let open = other.open("open", OpenOptions::write().create(0o644)).unwrap();
    one.write_file("f.3", b"third").unwrap();
    assert_eq!(one.read_file("f").unwrap(), b"first");
    assert!(matches!(one.rename("f.3", "f", RenameMode::Replace), Err(Error::Busy)));
    one.rename("f.3", "f", RenameMode::Replace).unwrap();
    assert!(matches!(other.rename("open", "f", RenameMode::Replace), Err(Error::Busy)));
    assert_eq!(bucket.content("f").unwrap(), b"third");
    drop(open);
}

/// A rename looked at its target, and replaced a version that others put there between the check and the copy.
#[test]
fn a_rename_replaces_nothing_that_comes_after_its_look() {
    for (there, mode) in [(true, RenameMode::Replace), (false, RenameMode::NoReplace)] {
        let bucket = Bucket::new(&["from"]);
        if there {
            bucket.put("to", b"to");
        }
        let vfs = mount(&bucket, "", LONG);
        let root = vfs.root_directory(Caller::root());
        names(&vfs, ".");
        // The core asks for a name that it does not know. Then come two looks and the copy.
        let looks = if there { 2 } else { 3 };
        bucket.plan(&[&[None; 3][..looks], &[Some(Fault::Overtaken)]].concat());
        let refused = root.rename("from", "to", mode);
        assert!(matches!(refused, Err(Error::Busy)), "{refused:?}");
        assert_eq!(bucket.content("to").unwrap(), b"theirs");
        assert_eq!(bucket.content("from").unwrap(), b"from");
        assert_eq!(root.read_file("to").unwrap(), b"theirs");
        // A copy whose answer was lost is no conflict.
        root.write_file("made", b"made").unwrap();
        bucket.plan(&[None, None, Some(Fault::Lost)]);
        root.rename("made", "to", RenameMode::Replace).unwrap();
        assert_eq!(bucket.content("to").unwrap(), b"made");
        assert_eq!(bucket.keys(), ["from", "to"]);
    }
    let bucket = Bucket::new(&["from", "to"]);
    let vfs = mount(&bucket, "", LONG);
    let root = vfs.root_directory(Caller::root());
    names(&vfs, ".");
    bucket.plan(&[None, None, Some(Fault::NoConditions)]);
    root.rename("from", "to", RenameMode::Replace).unwrap();
    assert_eq!(bucket.content("to").unwrap(), b"from");
}
