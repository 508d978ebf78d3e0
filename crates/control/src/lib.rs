#![forbid(unsafe_code)]
//! The control socket: how `uvfs stat`, `set`, `drop`, `cached`, `policy`, `web` and `unmount` reach the process that
//! serves a mount, the daemon of `uvfs mount` or a program that mounts through the library.
//!
//! # Boundary
//! [`protocol`] defines the messages, with the values of [`cleaned`], [`resident`], [`level`], [`policies`], [`ended`],
//! [`locks`] and [`setting`]. [`place`] finds the socket, by the mount table of [`mounts`]. [`server`] answers for a
//! [`server::Served`], with the parts of [`serve`] that need only the core. Knows no frontend, no store, and no command
//! line: the tool has the client.
//!
//! # Why
//! A socket in a folder that only its owner may enter; the server also checks the peer's user id, which the kernel
//! reports: file modes alone fail open when they are loosened. Never a TCP port. A crate of its own, because the
//! frontend and the tool both serve it. Weakness: its public items are for these two, and change with them.

pub mod cleaned;
pub mod ended;
pub mod level;
pub mod lock_order;
pub mod locks;
pub mod mounts;
pub mod place;
pub mod policies;
pub mod probe;
pub mod protocol;
pub mod resident;
pub mod serve;
pub mod server;
pub mod setting;
pub mod units;

use std::io;

/// The words of `error` without the number that `std` appends.
pub fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    let end = text.find(" (os error ").unwrap_or(text.len());
    // The output of another program usually ends with a newline.
    text[..end].trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_words_without_numbers() {
        assert_eq!(cause(&io::Error::from_raw_os_error(libc::EBUSY)), "Device or resource busy");
        assert_eq!(cause(&io::Error::other("plain words")), "plain words");
    }
}
