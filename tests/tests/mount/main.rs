//! Mounts on temporary directories, through the kernel. Each test has its own mount.

mod absent;
mod budget;
mod clean;
mod control;
mod crash;
mod direct;
mod handles;
mod killed;
mod library;
mod mount;
mod observers;
mod overtaking;
mod request_path;
mod rings;
mod stuck;
mod watched;
