//! Operations that fail at each of their steps: the operation returns the error, no change of it stays, and the volume continues.
//!
//! A failure halfway through an operation ended writing for all users of a mount: a full index of one directory was enough, and
//! a block that could not be read. To exclude a lack of blocks, each operation reserved as many as it might ever need. So on a
//! nearly full volume, overwrites and renames that needed none were refused.

use super::undo::failing;
use super::{Change, Grow, New, Privileges, Rename, Room, Volume, WriteAt};
use crate::{Error, Result, WritableMemory};
use images::{Workshop, tools};
use std::sync::Arc;
use uvfs_ext::{Kind, ROOT};

#[path = "../../tests/e2fsprogs/images.rs"]
#[expect(dead_code, reason = "some of it is for other tests")]
pub(super) mod images;

/// The state after a failure in an operation.
#[derive(Clone, Copy, PartialEq)]
enum Leaves {
    Nothing,
    /// It has several steps, and those that were done stay.
    Part,
}

struct Failing {
    workshop: Workshop,
    device: Arc<WritableMemory>,
    volume: Volume,
    failures: u32,
}

impl Failing {
    fn new(options: &[&str]) -> Self {
        let workshop = Workshop::new();
        let image = workshop.image(options, "6M", None);
        let device = Arc::new(WritableMemory::new(image));
        let volume = Volume::open(device.clone()).unwrap();
        Self { workshop, device, volume, failures: 0 }
    }

    /// Does an operation again and again, each time with a failure at a later step, until it succeeds.
    fn each_step<R>(&mut self, leaves: Leaves, work: impl Fn(&Volume) -> Result<R>) -> R {
        let before = self.volume.room();
        for steps in 0..10_000 {
            failing::after(Some(steps));
            let done = work(&self.volume);
            let failed = !failing::is_ahead();
            failing::after(None);
            assert!(self.volume.failure().is_none(), "step {steps} ended writing");
            match done {
                Ok(done) if !failed || leaves == Leaves::Part => return done,
                Ok(_) => panic!("step {steps} failed, and nothing was told"),
                Err(error) => assert!(failed && matches!(error, Error::Io(_)), "{error}"),
            }
            self.failures += 1;
            if leaves == Leaves::Nothing {
                assert_eq!(self.volume.room(), before, "step {steps} left something");
            }
        }
        panic!("it never succeeds");
    }

    fn whole<R>(&mut self, work: impl Fn(&Volume) -> Result<R>) -> R {
        self.each_step(Leaves::Nothing, work)
    }

    /// Closes the volume, lets e2fsck judge it, and opens it again.
    fn judge(&mut self, about: &str) {
        self.volume.close().unwrap();
        // Opening the image completes an interrupted operation of several steps.
        Volume::open(self.device.clone()).unwrap().close().unwrap();
        let (status, printed, _) = self.workshop.fsck(&self.device.bytes(), &["-fn"]);
        assert_eq!(status, 0, "{about}: {printed}");
        self.volume = Volume::open(self.device.clone()).unwrap();
    }
}

fn new(kind: Kind) -> New<'static> {
    let (target, xattrs) = (&b""[..], &[][..]);
    New { kind, permissions: 0o644, uid: 1, gid: 1, device: (0, 0), target, xattrs }
}

/// A name that is so long that three fill a block.
fn long(number: u32) -> Vec<u8> {
    format!("{number:0250}").into_bytes()
}

#[test]
fn an_operation_on_names_that_fails_at_any_step_leaves_nothing() {
    if !tools() {
        return;
    }
    for options in [
        &["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "1024"][..],
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-J",
            "size=1",
            "-N",
            "1024",
            "-O",
            "^metadata_csum,^dir_index",
        ],
    ] {
        let mut all = Failing::new(options);
        let one = all.whole(|volume| volume.create(ROOT, b"one", &new(Kind::Directory)));
        let two = all.whole(|volume| volume.create(ROOT, b"two", &new(Kind::Directory)));
        // Leaves split, nodes split, and the index gets a level.
        for number in 0..260 {
            all.whole(|volume| volume.create(one, &long(number), &new(Kind::Fifo)));
        }
        all.judge("names");
        let xattrs: &[(&[u8], &[u8])] = &[(b"user.large", &[7; 600])];
        let file = New { xattrs, ..new(Kind::Regular) };
        let file = all.whole(|volume| volume.create(two, b"file", &file));
        let link = New { target: &[b'x'; 200], ..new(Kind::Symlink) };
        all.whole(|volume| volume.create(two, b"link", &link));
        all.whole(|volume| volume.link(file, one, b"file"));
        let unnamed = all.whole(|volume| volume.create_unnamed(two, &new(Kind::Regular)));
        all.whole(|volume| volume.link(unnamed.0.number, two, b"named"));
        all.volume.forget(unnamed.0.number).unwrap();
        let sub = all.whole(|volume| volume.create(one, b"sub", &new(Kind::Directory)));
        all.whole(|volume| volume.create(two, b"empty", &new(Kind::Directory)));
        all.judge("new objects");
        all.whole(|volume| volume.rename(one, b"file", one, b"other"));
        all.whole(|volume| volume.rename_as(one, b"sub", two, b"file", Rename::Exchange));
        all.whole(|volume| volume.rename(two, b"file", one, b"moved"));
        assert_eq!(all.volume.lookup(one, b"moved").unwrap(), Some(sub));
        let whiteout = Rename::Whiteout { uid: 7, gid: 8, replaces: true };
        all.whole(|volume| volume.rename_as(one, b"moved", two, b"away", whiteout));
        all.whole(|volume| volume.rename_as(two, b"away", two, b"here", whiteout));
        for (directory, name) in [(one, &b"moved"[..]), (two, b"away")] {
            let number = all.volume.lookup(directory, name).unwrap().unwrap();
            let inode = all.volume.inode(number).unwrap();
            assert_eq!((inode.kind(), inode.links(), inode.uid()), (Some(Kind::CharDevice), 1, 7));
            assert_eq!(inode.device(), (0, 0));
        }
        all.judge("renames");
        // A victim that is not freed at once is freed when the volume is closed.
        all.each_step(Leaves::Part, |volume| volume.rename(one, b"other", two, b"link"));
        all.each_step(Leaves::Part, |volume| volume.rmdir(two, b"empty"));
        for number in 0..260 {
            all.each_step(Leaves::Part, |volume| volume.unlink(one, &long(number)));
        }
        all.judge("removals");
        assert!(all.failures > 2000, "{} failures", all.failures);
    }
}

#[test]
fn an_operation_on_a_file_that_fails_at_any_step_leaves_nothing() {
    if !tools() {
        return;
    }
    let mut all = Failing::new(&["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let file = all.volume.create(ROOT, b"file", &new(Kind::Regular)).unwrap();
    let content = [9; 1024];
    // The tree gets leaves, a node above them, and splits of both.
    for block in 0..400 {
        all.whole(|volume| volume.write(file, block * 2048, &content));
    }
    all.judge("a tree that grows");
    let set_aside = all.volume.create(ROOT, b"set aside", &new(Kind::Regular)).unwrap();
    all.each_step(Leaves::Part, |volume| volume.allocate(set_aside, 0..300 << 10, Grow::Size));
    for block in 0..150 {
        all.whole(|volume| volume.write(set_aside, block * 2048, &content));
    }
    all.judge("preallocated blocks");
    for block in 0..20 {
        all.each_step(Leaves::Part, |volume| volume.punch(file, block * 4096..block * 4096 + 1024));
    }
    all.judge("holes");
    for (name, value) in [("user.a", Some(&[1; 700][..])), ("user.b", Some(b"2")), ("user.a", None)]
    {
        all.whole(|volume| volume.set_xattr(file, name.as_bytes(), value));
    }
    all.whole(|volume| volume.change(file, |_| Ok::<_, Error>(Change::default())));
    all.judge("attributes");
    let privileges = Privileges::Become(&|_| 0o600);
    all.each_step(Leaves::Part, |volume| {
        volume.write_at(file, WriteAt::End, &[5; 3000], privileges).map(drop)
    });
    all.each_step(Leaves::Part, |volume| volume.truncate(set_aside, 1000));
    all.judge("an end that is cut");
    all.volume.hold(file).unwrap();
    all.volume.unlink(ROOT, b"file").unwrap();
    all.each_step(Leaves::Part, |volume| volume.forget(file));
    all.each_step(Leaves::Part, |volume| volume.unlink(ROOT, b"set aside"));
    all.judge("removals");
    let Room { free_blocks, .. } = all.volume.room();
    all.volume.sync().unwrap();
    assert_eq!(all.volume.room().free_blocks, free_blocks);
    assert!(all.failures > 1000, "{} failures", all.failures);
}
