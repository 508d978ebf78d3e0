//! `uvfs set`: changes settings of a mount while it is in use.
//!
//! # Boundary
//! The words of the command line; the control socket defines a [`Setting`] and the form of its value. The command
//! refuses invalid values before it sends a request. The daemon applies settings ([`crate::serve`]).
//!
//! # Why
//! Keys have the names of the options of `uvfs mount`, and values the same form. All settings of one command are read
//! before the first is applied. Weakness: the daemon alone knows some limits, such as its program's part of a cache's
//! size; it refuses those values, with exit status 1.

use crate::Failure;
use crate::flags::SetArguments;
use crate::mountinfo;
use std::collections::BTreeMap;
use std::process::ExitCode;
use uvfs_client as client;
use uvfs_control::protocol::Request;
use uvfs_control::setting::{KEYS, Setting};

/// Runs the subcommand.
///
/// # Errors
/// Invalid words, and the daemon's refusals.
pub(crate) fn run(arguments: &SetArguments) -> Result<ExitCode, Failure> {
    let settings = split(&arguments.settings)?;
    let mount = mountinfo::find(&arguments.mountpoint)?;
    let mountpoint = mount.mountpoint.display();
    let mut daemon = client::reach(&mount)?;
    let reply = daemon.ask(Request::Set { settings }, client::REPLY_TIME)?;
    match reply.error {
        None if reply.ok => Ok(ExitCode::SUCCESS),
        cause => Err(Failure::refused(format!(
            "{mountpoint}: {}",
            cause.unwrap_or_else(|| "the daemon refused".into())
        ))),
    }
}

/// The words of the command line as keys and values, each checked, none twice.
fn split(words: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let mut settings = BTreeMap::new();
    for word in words {
        let (key, value) = word.split_once('=').ok_or_else(|| {
            Failure::usage(format!(
                "{word}: not a setting; write KEY=VALUE with one of the keys {}",
                KEYS.join(", ")
            ))
        })?;
        Setting::parse(key, value).map_err(Failure::usage)?;
        if settings.insert(key.to_string(), value.to_string()).is_some() {
            return Err(Failure::usage(format!("{key}={value}: set twice; write it once")));
        }
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Size;

    fn refusal(words: &[&str]) -> String {
        let words: Vec<_> = words.iter().map(ToString::to_string).collect();
        split(&words).unwrap_err().to_string()
    }

    #[test]
    fn settings_are_keys_with_values() {
        let settings = split(&["cache-size=1GiB".into()]).unwrap();
        assert_eq!(settings, BTreeMap::from([("cache-size".into(), "1GiB".into())]));
        assert_eq!(Setting::parse("cache-size", "25%"), Ok(Setting::CacheSize(Size::Share(25))));
        for key in KEYS {
            let refused = Setting::parse(key, "").unwrap_err();
            assert!(!refused.contains("unknown key"), "{refused}");
        }
    }

    #[test]
    fn refusals_name_key_value_rule_and_keys() {
        let unknown = refusal(&["colour=red"]);
        assert_eq!(unknown, "colour=red: unknown key; write one of: cache-size, log-level");
        let level = refusal(&["log-level=loud"]);
        assert!(level.starts_with("log-level=loud: not a level; write one of: off, "), "{level}");
        assert!(refusal(&["cache-size=lots"]).starts_with("cache-size=lots: not a size; write"));
        assert!(
            refusal(&["cache-size"])
                .contains("write KEY=VALUE with one of the keys cache-size, log-level")
        );
        assert!(refusal(&["cache-size=1G", "cache-size=2G"]).contains("set twice"));
    }
}
