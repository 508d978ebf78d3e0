//! Settings of a mount that can be changed while it is in use.
//!
//! # Boundary
//! From key and value to a [`Setting`], at both ends: the command refuses what makes no sense before it asks, and
//! whoever serves reads what it was sent again, since it trusts nobody. What a setting does is the server's.
//!
//! # Why
//! Keys are named as the options of `uvfs mount`, and values are written as there.

use crate::units::{self, Size};

/// The keys, as the refusal of another one lists them.
pub const KEYS: [&str; 1] = ["cache-size"];

/// One setting that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// `cache-size`: memory of the caches, or of the whole process where a daemon of `uvfs mount` serves.
    CacheSize(Size),
}

impl Setting {
    /// Reads `value` as that of `key`.
    ///
    /// # Errors
    /// What is wrong and what would be right; names key and value.
    pub fn parse(key: &str, value: &str) -> Result<Self, String> {
        let read = match key {
            "cache-size" => units::parse_size(value).map(Setting::CacheSize),
            _ => Err(format!("unknown key; write one of: {}", KEYS.join(", "))),
        };
        read.map_err(|why| format!("{key}={value}: {why}"))
    }
}
