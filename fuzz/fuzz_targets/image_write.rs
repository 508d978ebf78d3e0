//! `uvfs_fuzz_targets::image_write` under libFuzzer.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| uvfs_fuzz_targets::image_write::run(bytes));
