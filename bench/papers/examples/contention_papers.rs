//! The warm walk of `contention_walk` through the dentry caches of Linder, Sarma and Soni 2002, step by step:
//! `contention_papers [operations [threads [variant]]]`, where the variant is `global-lock` (Linux 2.4, their
//! baseline), `rcu-hash`, `bucket-locks`, `separate-lru`, `lazy-lru` (where they ended) or `fast-walk`.
//!
//! # Why
//! What uvfs's curve is to be seen beside. Weakness: the caches know names only, no attributes and no rights, so that
//! one core is faster with them than with uvfs; the curves are compared, not the nanoseconds.

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
