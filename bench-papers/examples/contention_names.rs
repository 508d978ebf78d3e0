//! Inserts and removals of names in uvfs over a RAM store: `contention_names [operations [threads [mode]]]`.
//!
//! The mode is `insert`, `remove` or `both`, with `-shared` behind it where all threads work in one directory;
//! otherwise each has a directory of its own.
//!
//! # Why
//! A creation writes most: the name, the inode, the directory and the store's own tables. Weakness: the RAM store's
//! locks are part of it; the table of lines shows the owner of each.

#![forbid(unsafe_code)]

use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_bench_papers::contended::{self, Arguments};
use uvfs_vfs::{Caller, NewKind, Vfs, VfsConfig};

/// Turns of a thread before its time is taken.
const WARM: usize = 8;

fn main() {
    let arguments = Arguments::read(100, "insert");
    let (mode, shared) = match arguments.mode.strip_suffix("-shared") {
        Some(mode) => (mode, true),
        None => (arguments.mode.as_str(), false),
    };
    assert!(["insert", "remove", "both"].contains(&mode), "{mode}: insert, remove or both");
    let store = MemoryBackend::new(MemoryConfig { root_mode: 0o777, ..MemoryConfig::default() });
    let vfs = Vfs::new(store.expect("the defaults are valid"), VfsConfig::default());
    let vfs = vfs.expect("a healthy store");
    let root = vfs.root_directory(Caller::root());
    let folders: Vec<_> = (0..if shared { 1 } else { arguments.threads })
        .map(|nth| {
            let name = format!("folder-{nth}");
            root.create_directory(&name, 0o777).expect("room");
            root.open_directory(&name).expect("it is there")
        })
        .collect();
    let name = |me: usize, turn: usize| format!("name-{me}-{turn}");
    if mode == "remove" {
        for me in 0..arguments.threads {
            for turn in 0..arguments.operations + WARM {
                let folder = &folders[me % folders.len()];
                folder.create(name(me, turn), NewKind::Regular, 0o666).expect("room");
            }
        }
    }
    contended::run(&arguments, WARM, |me, turn| {
        let (folder, name) = (&folders[me % folders.len()], name(me, turn));
        if mode != "remove" {
            folder.create(&name, NewKind::Regular, 0o666).expect("room");
        }
        if mode != "insert" {
            folder.remove_file(&name).expect("it is there");
        }
        1
    });
}
