//! The built program, from outside: what it refuses and how, and what a mount does.

mod bad_input;
mod cached_mounts;
mod cleaning;
mod cleaning_mounts;
mod common;
mod companion;
mod completions;
mod config;
mod doctor;
mod exit_status;
mod fstab;
mod images;
mod images_written;
mod library_mounts;
mod limits;
mod locks;
mod loss;
mod metrics;
mod mounting;
mod mounts;
mod opens;
mod policies;
mod report;
mod systemd;
mod top;
mod warming;
