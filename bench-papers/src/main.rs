//! `uvfs-bench-papers`, the program; its code is in its library, which its examples share.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    uvfs_bench_papers::main()
}
