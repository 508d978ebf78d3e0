//! `uvfs_fuzz_targets::fuse_request` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uvfs_fuzz_targets::fuse_request::run(bytes));
