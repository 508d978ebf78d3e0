//! Settings of a mount that can be changed while it is in use.
//!
//! # Boundary
//! From key and value to a [`Setting`], at both ends: the command refuses what makes no sense before it asks, and
//! whoever serves reads what it was sent again, since it trusts nobody. What a setting does is the server's.
//!
//! # Why
//! Keys are named as the options of `uvfs mount`, and values are written as there.

use crate::units::{self, Size};
use log::LevelFilter;

/// The keys, as the refusal of another one lists them.
pub const KEYS: [&str; 2] = ["cache-size", "log-level"];

/// The values of `log-level`, as `uvfs mount --log-level` has them.
pub const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::Off),
    ("error", LevelFilter::Error),
    ("warn", LevelFilter::Warn),
    ("info", LevelFilter::Info),
    ("debug", LevelFilter::Debug),
    ("trace", LevelFilter::Trace),
];

/// One setting that can be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Setting {
    /// `cache-size`: memory of the caches, or of the whole process where a daemon of `uvfs mount` serves.
    CacheSize(Size),
    /// `log-level`: the least severe messages that a daemon of `uvfs mount` logs.
    LogLevel(LevelFilter),
}

impl Setting {
    /// Reads `value` as that of `key`.
    ///
    /// # Errors
    /// What is wrong and what would be right; names key and value.
    pub fn parse(key: &str, value: &str) -> Result<Self, String> {
        let read = match key {
            "cache-size" => units::parse_size(value).map(Setting::CacheSize),
            "log-level" => level(value).map(Setting::LogLevel),
            _ => Err(format!("unknown key; write one of: {}", KEYS.join(", "))),
        };
        read.map_err(|why| format!("{key}={value}: {why}"))
    }
}

fn level(value: &str) -> Result<LevelFilter, String> {
    let found = LEVELS.iter().find(|(name, _)| *name == value);
    let names = || LEVELS.map(|(name, _)| name).join(", ");
    found.map(|(_, level)| *level).ok_or_else(|| format!("not a level; write one of: {}", names()))
}
