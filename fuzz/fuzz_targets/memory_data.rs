//! `uvfs_fuzz_targets::memory_data` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uvfs_fuzz_targets::memory_data::run(bytes));
