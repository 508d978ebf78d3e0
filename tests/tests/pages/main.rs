//! Data in process: the page cache and write-back, without the kernel.

mod fault;
mod property;
mod races;
mod reserve;
mod runs;
mod threads;
mod unwritten;
mod version;
mod write_back;
mod writes;
