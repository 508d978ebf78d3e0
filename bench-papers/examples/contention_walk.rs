//! The warm walk of uvfs over a RAM store: `contention_walk [operations [threads [mode]]]`, where the mode
//! is `whole` (one look a path), `components` (one a component), or `missing` (a name that is not there).
//!
//! # Why
//! The claim is that a warm walk writes no shared line. Under `uvfs contention` that is a count of
//! transfers, not an impression. Weakness: 512 files; nothing is ever evicted.

#![forbid(unsafe_code)]

use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_bench_papers::contended::{self, Arguments, tree};
use uvfs_vfs::{Caller, Vfs, VfsConfig};

fn main() {
    let arguments = Arguments::read(500, "components");
    let store = MemoryBackend::new(MemoryConfig { root_mode: 0o777, ..MemoryConfig::default() });
    let whole_paths = arguments.mode == "whole";
    let config = VfsConfig { whole_paths, ..VfsConfig::default() };
    let vfs = Vfs::new(store.expect("the defaults are valid"), config).expect("a healthy store");
    let root = vfs.root_directory(Caller::root());
    for directory in tree::directories() {
        root.create_directory(directory, 0o777).expect("room");
    }
    let ending = if arguments.mode == "missing" { ".missing" } else { "" };
    let paths: Vec<String> = (0..tree::COUNT).map(|nth| tree::path(nth) + ending).collect();
    for nth in 0..paths.len() {
        root.write_file(tree::path(nth), b"").expect("room");
    }
    for path in &paths {
        assert_eq!(root.stat(path).is_ok(), ending.is_empty(), "{path}");
    }
    contended::run(&arguments, paths.len(), |me, turn| {
        let nth = (me * 37 + turn * 11) % paths.len();
        root.stat(&paths[nth]).map_or(1, |attributes| u64::from(attributes.links))
    });
}
