//! The list of orphans, in memory and as a crash leaves it.
//!
//! Each remove wrote its inode twice under the lock of the list, to put it there and to take it out: two threads that removed files
//! were slower than one.

use super::undo_tests::images::{Workshop, tools};
use super::{New, Volume};
use crate::WritableMemory;
use std::collections::BTreeSet;
use std::sync::Arc;
use uvfs_ext::{Kind, ROOT};

const FILE: New<'_> = New {
    kind: Kind::Regular,
    permissions: 0o644,
    uid: 1,
    gid: 1,
    device: (0, 0),
    target: b"",
    xattrs: &[],
};

struct Orphanage {
    workshop: Workshop,
    device: Arc<WritableMemory>,
    volume: Volume,
}

impl Orphanage {
    fn new() -> Self {
        let workshop = Workshop::new();
        let options = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "512"];
        let device = Arc::new(WritableMemory::new(workshop.image(&options, "6M", None)));
        let volume = Volume::open(device.clone()).unwrap();
        Self { workshop, device, volume }
    }

    /// A file of that name, held and then without a name.
    fn orphan(&self, name: u32) -> u32 {
        let name = name.to_string();
        let held = self.volume.create_held(ROOT, name.as_bytes(), &FILE).unwrap();
        self.volume.unlink(ROOT, name.as_bytes()).unwrap();
        held.0.number
    }

    /// The chain as the transactions have it that are closed.
    fn linked(&self) -> BTreeSet<u32> {
        self.volume.listed_orphans().unwrap().into_iter().collect()
    }

    /// A crash: the next writer frees the orphans, and e2fsck finds nothing wrong.
    fn crash(&self, about: &str) {
        let device = Arc::new(WritableMemory::new(self.device.bytes()));
        Volume::open(device.clone()).unwrap().close().unwrap();
        let (status, printed, _) = self.workshop.fsck(&device.bytes(), &["-fn"]);
        assert_eq!(status, 0, "{about}: {printed}");
    }
}

#[test]
fn only_orphans_that_a_transaction_leaves_come_into_the_chain() {
    if !tools() {
        return;
    }
    let all = Orphanage::new();
    let stays = all.orphan(1);
    let goes = all.orphan(2);
    assert!(all.linked().is_empty(), "no transaction was closed");
    all.volume.forget(goes).unwrap();
    all.volume.sync().unwrap();
    assert_eq!(all.linked(), BTreeSet::from([stays]));
    all.crash("one that stays");
    // A second one in front of it, which is taken out with one that was linked before.
    let second = all.orphan(3);
    all.volume.forget(all.orphan(4)).unwrap();
    assert_eq!(all.linked(), BTreeSet::from([stays]));
    all.volume.sync().unwrap();
    assert_eq!(all.linked(), BTreeSet::from([stays, second]));
    all.volume.forget(stays).unwrap();
    assert_eq!(all.linked(), BTreeSet::from([second]));
    all.volume.sync().unwrap();
    all.crash("one that was behind another");
    all.volume.forget(second).unwrap();
    all.volume.sync().unwrap();
    assert!(all.linked().is_empty());
    all.crash("none");
}

/// Files lose their names, get them back, are cut and are freed, in an order that a number chooses. Behind each commit
/// the chain has the orphans of memory, and a crash leaves an image that the next writer brings in order.
#[test]
fn behind_each_commit_the_chain_is_that_of_memory() {
    if !tools() {
        return;
    }
    let all = Orphanage::new();
    let mut word = 0x9E37_79B9_u32;
    let mut next = |below: usize| {
        word = word.wrapping_mul(0x0019_660D).wrapping_add(0x3C6E_F35F);
        (word >> 16) as usize % below
    };
    let mut held: Vec<u32> = Vec::new();
    let (mut names, mut commits, mut most) = (0..10_000_u32, 0, 0);
    for _ in 0..600 {
        let name = names.next().unwrap();
        match next(8) {
            0 | 1 => held.push(all.orphan(name)),
            2 | 3 if !held.is_empty() => {
                let number = held.swap_remove(next(held.len()));
                all.volume.forget(number).unwrap();
            }
            4 => {
                let unnamed = all.volume.create_unnamed(ROOT, &FILE).unwrap().0.number;
                if next(2) == 0 {
                    all.volume.link(unnamed, ROOT, name.to_string().as_bytes()).unwrap();
                    all.volume.forget(unnamed).unwrap();
                } else {
                    held.push(unnamed);
                }
            }
            5 if !held.is_empty() => {
                let number = held[next(held.len())];
                all.volume.write(number, 0, &[7; 3000]).unwrap();
                all.volume.truncate(number, 1000).unwrap();
            }
            6 => {
                all.volume.sync().unwrap();
                assert_eq!(all.linked(), held.iter().copied().collect());
                (commits, most) = (commits + 1, most.max(held.len()));
                if commits % 8 == 0 {
                    all.crash(&format!("commit {commits}"));
                }
            }
            _ => drop(all.volume.forget(all.orphan(name))),
        }
    }
    assert!(commits > 40 && most > 10, "{commits} commits, {most} orphans");
    all.volume.close().unwrap();
    all.crash("the end");
}
