//! Images made by e2fsprogs, read by this crate: the trees are equal.
//!
//! Each test is skipped, and says so, where mke2fs, debugfs, e2fsck or dumpe2fs is missing.

mod damage;
mod encode;
mod hostile;
mod images;
mod journal;
mod matrix;
mod mutations;
mod view;
