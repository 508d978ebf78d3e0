//! Page lookups of uvfs: `contention_pages [operations [threads [mode]]]`. Every thread reads eight bytes of a
//! cached page of one file (`shared`, through one open file), or each of a file of its own (`own`).
//!
//! # Why
//! Eight bytes, to measure the search for the page and not its copy. Weakness: no page is ever evicted, none is dirty.

#![forbid(unsafe_code)]

use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_bench_papers::contended::{self, Arguments};
use uvfs_vfs::{Caller, OpenOptions, PagePolicy, Vfs, VfsConfig};

const PAGE: u64 = 4096;
const PAGES: u64 = 64;

fn main() {
    let arguments = Arguments::read(500, "shared");
    let store = MemoryBackend::new(MemoryConfig { root_mode: 0o777, ..MemoryConfig::default() });
    let config = VfsConfig { pages: PagePolicy::WriteThrough, ..VfsConfig::default() };
    let vfs = Vfs::new(store.expect("the defaults are valid"), config).expect("a healthy store");
    let root = vfs.root_directory(Caller::root());
    let shared = arguments.mode == "shared";
    let files = if shared { 1 } else { arguments.threads };
    let pages = if shared { PAGES } else { 8 };
    let content = vec![7; (pages * PAGE) as usize];
    let files: Vec<_> = (0..files)
        .map(|nth| {
            let name = format!("file-{nth}");
            root.write_file(&name, &content).expect("room");
            let file = root.open(&name, OpenOptions::read()).expect("it is there");
            assert_eq!(file.read_to_end().expect("a healthy store").len(), content.len());
            file
        })
        .collect();
    contended::run(&arguments, 64, |me, turn| {
        let page = (me as u64 * 13 + turn as u64 * 5) % pages;
        let mut bytes = [0; 8];
        let file = &files[me % files.len()];
        file.read_at(page * PAGE + 8 * (turn as u64 % 512), &mut bytes).expect("a healthy store");
        u64::from(bytes[0])
    });
}
