//! Metadata of a disk image: `contention_image OPERATIONS THREADS MODE:IMAGE`. Every thread asks for the attributes of files of
//! the image, by path through the caches of names (`warm`), or of the store, whose blocks are in rows (`store`).
//!
//! # Why
//! The image is in memory, so that no kernel is in the figure. Weakness: it fits into its caches; a miss is a copy here.

#![forbid(unsafe_code)]

use std::sync::Arc;
use uvfs_backends::image::{ImageBackend, ImageConfig};
use uvfs_bench_papers::contended::{self, Arguments};
use uvfs_ext::MemoryDevice;
use uvfs_vfs::{Backend, Caller, FileRef, InodeId, Name, Vfs, VfsConfig};

fn main() {
    let arguments = Arguments::read(500, "");
    let (mode, path) = arguments.mode.split_once(':').expect("MODE:IMAGE");
    let bytes = std::fs::read(path).expect("an image");
    let config = ImageConfig { cache_bytes: 4 << 20 };
    let device = Arc::new(MemoryDevice::new(bytes));
    let backend = ImageBackend::open(device, config).expect("an image that is whole");
    let names =
        |number: usize| (format!("d{:02}", number / 64 % 16), format!("f{:02}", number % 64));
    match mode {
        "warm" => {
            let vfs = Vfs::new(backend, VfsConfig::default()).expect("a healthy store");
            let root = vfs.root_directory(Caller::root());
            let paths: Vec<String> = (0..1024)
                .map(|number| {
                    let (directory, file) = names(number);
                    format!("{directory}/{file}")
                })
                .collect();
            let look = |path: &str| root.stat(path).expect("it is there").size;
            // A path has its memo once it was walked four times.
            (0..4).for_each(|_| assert!(paths.iter().all(|path| look(path) > 0)));
            contended::run(&arguments, 64, |me, turn| {
                look(&paths[(me * 389 + turn * 7) % paths.len()])
            });
        }
        "store" => {
            let caller = Caller::root();
            let find = |parent: InodeId, name: &str| {
                let name = Name::new(name.as_bytes()).expect("a name");
                backend.names().lookup(&caller, parent, name).expect("it is there").inode
            };
            let ids: Vec<InodeId> = (0..1024)
                .map(|number| {
                    let (directory, file) = names(number);
                    find(find(InodeId::ROOT, &directory), &file)
                })
                .collect();
            contended::run(&arguments, 64, |me, turn| {
                let id = ids[(me * 389 + turn * 7) % ids.len()];
                let file = FileRef::unopened(id);
                backend.inodes().attributes(file).expect("it is there").size
            });
        }
        other => panic!("no mode {other}"),
    }
}
