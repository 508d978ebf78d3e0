//! The warm walk of `contention_walk` through the dentry caches of Linder, Sarma and Soni 2002, step by step:
//! `contention_papers [operations [threads [variant]]]`. The variant is `global-lock` (Linux 2.4, their baseline),
//! `rcu-hash`, `bucket-locks`, `separate-lru`, `lazy-lru` (their last) or `fast-walk`.
//!
//! # Why
//! For comparison with uvfs's curve. Weakness: the caches have names only, no attributes and no rights, so one core is
//! faster with them than with uvfs; compare the curves, not the nanoseconds.

#![forbid(unsafe_code)]

use uvfs_bench_papers::contended::{self, Arguments, tree};
use uvfs_bench_papers::dcache::tree::Tree;

fn main() {
    let arguments = Arguments::read(500, "global-lock");
    let cache = Tree::new(&arguments.mode);
    let cache = cache.unwrap_or_else(|| panic!("{}: no such variant", arguments.mode));
    for directory in tree::directories() {
        assert!(cache.create_directory(&directory), "{directory}");
    }
    let paths: Vec<String> = (0..tree::COUNT).map(tree::path).collect();
    for path in &paths {
        assert!(cache.create(path) && cache.stat(path), "{path}");
    }
    contended::run(&arguments, paths.len(), |me, turn| {
        let nth = (me * 37 + turn * 11) % paths.len();
        u64::from(cache.stat(&paths[nth]))
    });
}
