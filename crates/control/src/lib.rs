#![forbid(unsafe_code)]
//! The control socket: how `uvfs stat`, `set`, `drop`, `cached`, `policy`, `web` and `unmount` reach whoever serves a mount,
//! the daemon of `uvfs mount` or a program that mounts through the library.
//!
//! # Boundary
//! [`protocol`] says what is said, with the values of [`cleaned`], [`resident`], [`level`], [`policies`], [`ended`], [`locks`] and
//! [`setting`]; [`place`] where the socket is, by the mount table of [`mounts`]; [`server`] answers for whatever
//! implements [`server::Served`], with the parts of [`serve`] that need nothing but the core. Knows no frontend, no
//! store, and no command line: the client is the tool's.
//!
//! # Why
//! A socket in a folder that only its owner may enter, and the peer's user id checked by the kernel's word as well:
//! file modes alone fail open when somebody loosens them. Never a TCP port. A crate of its own, because the frontend
//! and the tool both serve it. Weakness: its public items are for these two, and change with them.

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
    // What another program said ends with a newline as a rule.
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
