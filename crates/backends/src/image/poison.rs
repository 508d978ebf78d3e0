//! Inodes in which the code that reads or writes images has panicked: from then on they fail, and others do not.
//!
//! # Boundary
//! Every call that reads or changes an image passes through here. Errors report faults of the image; this is for our
//! own faults that an image has triggered.
//!
//! # Concurrency
//! A flag that is nearly always clear, and a lock behind it.
//!
//! # Why
//! Otherwise every caller would trigger a panic at the same bytes again, each time with a report and a walk through the
//! stack. The shared caches are consistent after a panic: a block in the middle of a read is unclaimed, and a
//! descriptor is unknown. A panic in the middle of a change ends writing, by the handle that was open; reading
//! continues. Weakness: a panic in one of the core's listings counts as one of ours.

use crate::lock_order;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicUsize, Ordering};
use uvfs_vfs::{Error, Result};

/// More are not remembered: they fail each time.
const MOST: usize = 4096;

#[derive(Debug)]
pub(super) struct Poisoned {
    count: AtomicUsize,
    inodes: Mutex<HashSet<u32>>,
}

impl Poisoned {
    pub(super) fn new() -> Self {
        let inodes = Mutex::new(&lock_order::IMAGE_POISONED, HashSet::new());
        Self { count: AtomicUsize::new(0), inodes }
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        // ORDERING: Relaxed; a thread that misses the newest one triggers the same panic.
        self.count.load(Ordering::Relaxed)
    }

    fn add(&self, number: u32) {
        let mut inodes = self.inodes.lock();
        if inodes.len() < MOST {
            inodes.insert(number);
        }
        // ORDERING: Relaxed; see `count`.
        self.count.store(inodes.len(), Ordering::Relaxed);
    }

    /// Runs `work`, which uses the inode `number`; a panic in it is an error, now and from then on.
    pub(super) fn guarded<T>(&self, number: u32, work: impl FnOnce() -> Result<T>) -> Result<T> {
        const WHY: Error = Error::Corrupt("using this object of the image panicked");
        if self.count() > 0 && self.inodes.lock().contains(&number) {
            return Err(WHY);
        }
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            log::error!("image: using inode {number} panicked, which is a fault of uvfs; it fails from now on");
            self.add(number);
            Err(WHY)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ImageBackend, ImageConfig, id_of};
    use super::*;
    use std::sync::Arc;
    use uvfs_ext::device::testing::{Plan, Probe};
    use uvfs_ext::{Image, MemoryDevice, Place, ROOT};
    use uvfs_vfs::{Backend, Caller, FileRef, InodeId, Name};

    /// Bug: only the frontend caught a panic of the code that reads an image, and logged it at every call.
    #[test]
    fn a_panic_costs_one_inode_and_happens_once() {
        let place = tempfile::tempdir().unwrap();
        let (tree, path) = (place.path().join("tree"), place.path().join("disk.img"));
        std::fs::create_dir_all(tree.join("folder")).unwrap();
        for name in ["bad", "good", "folder/below"] {
            std::fs::write(tree.join(name), [7; 5000]).unwrap();
        }
        let mut make = std::process::Command::new("mke2fs");
        match make.args(["-q", "-F", "-b", "4096", "-d"]).arg(&tree).arg(&path).arg("8M").output() {
            Ok(made) => assert!(made.status.success(), "{made:?}"),
            Err(error) => return uvfs_skip::lacking(format_args!("mke2fs: {error}")),
        }
        let memory = MemoryDevice::new(std::fs::read(&path).unwrap());
        let plain = Image::open(Arc::new(memory.clone())).unwrap();
        let root = plain.inode(ROOT).unwrap();
        let inode = |name: &str| {
            let number = plain.lookup(&root, name.as_bytes()).unwrap().unwrap();
            plain.inode(number).unwrap()
        };
        for bad in ["bad", "folder"] {
            let Place::At(block) = plain.map(&inode(bad), 0..1).unwrap()[0].place else {
                panic!("{bad} has a hole")
            };
            let panics = Some(block * 4096..block * 4096 + 1);
            let device = Probe::new(memory.clone(), Plan { panics, ..Plan::default() });
            let device = Arc::new(device);
            let store = ImageBackend::open(device.clone(), ImageConfig::default()).unwrap();
            let caller = Caller::root();
            let ids = ["good", bad].map(|name| id_of(&inode(name)));
            let use_it = |inode: InodeId| {
                let below = Name::new(b"below").unwrap();
                match bad {
                    "folder" if inode == ids[1] => {
                        store.names().lookup(&caller, inode, below).map(|_| 0)
                    }
                    _ => store.data().read(FileRef::unopened(inode), 0, &mut [0; 100]),
                }
            };
            assert!(use_it(ids[0]).is_ok());
            assert!(matches!(use_it(ids[1]), Err(Error::Corrupt(_))), "{bad}");
            let reads = device.reads();
            assert!(matches!(use_it(ids[1]), Err(Error::Corrupt(_))), "{bad}, again");
            assert_eq!((device.reads(), store.poisoned.count()), (reads, 1), "{bad}");
            assert!(use_it(ids[0]).is_ok());
        }
    }

    /// Bug: only the reading backend was guarded: only the frontend caught a panic in the writing one, which is the
    /// default.
    #[test]
    fn a_panic_while_an_image_is_written_costs_one_inode() {
        let poisoned = Poisoned::new();
        let panics =
            || poisoned.guarded(7, || -> Result<()> { panic!("as a fault of ours would") });
        assert!(matches!(panics(), Err(Error::Corrupt(_))));
        let again = poisoned.guarded(7, || -> Result<()> { unreachable!("it is not called") });
        assert!(matches!(again, Err(Error::Corrupt(_))));
        assert!(poisoned.guarded(8, || Ok(())).is_ok() && poisoned.count() == 1);
    }
}
