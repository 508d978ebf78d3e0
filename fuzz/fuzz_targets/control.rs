//! `uvfs_fuzz_targets::control` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uvfs_fuzz_targets::control::run(bytes));
