//! `uvfs_fuzz_targets::acl` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uvfs_fuzz_targets::acl::run(bytes));
