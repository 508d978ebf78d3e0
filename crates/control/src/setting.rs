//! Settings of a mount that can be changed while it is in use.
//!
//! # Boundary
//! Turns key and value into a [`Setting`], at both ends: the command refuses invalid values before it sends, and the
//! server parses them again, since it trusts no client. The server applies the setting.
//!
//! # Why
//! Keys have the names of the options of `uvfs mount`, and values the same form.

use crate::units::{self, Size};
use log::LevelFilter;

/// The keys, as an error message lists them.
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
    /// The fault and the valid values; names key and value.
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
