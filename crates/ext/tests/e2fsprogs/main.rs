//! Images that e2fsprogs made, read by us: what was put in comes out.
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
