//! `uvfs_fuzz_targets::clean_request` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uvfs_fuzz_targets::clean_request::run(bytes));
