//! Disk images, compared with the kernel's ext4.

mod cuts;
mod delayed;
mod direct;
mod mapped;
mod twin;
