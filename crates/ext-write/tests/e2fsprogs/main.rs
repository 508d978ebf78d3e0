//! Images that we write, judged by e2fsprogs and by our own reader.
//!
//! Each test is skipped, and says so, where mke2fs, debugfs or e2fsck is missing.

mod crash;
mod delayed;
mod distrust;
mod faults;
mod flags;
mod images;
mod operations;
mod order;
mod room;
mod transactions;
mod windows;
