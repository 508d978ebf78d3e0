//! Entity tags, as stores write them and as they are compared.
//!
//! # Boundary
//! From the texts of answers to [`Tag`]s, and back to the headers of a condition. Sends nothing.
//!
//! # Why
//! Stores and the proxies before them write one tag in several ways: without quotes in a listing, as a weak one (`W/"…"`) where a
//! proxy has compressed an answer. Compared as they are written, every read of such a store was ESTALE. So a tag is kept in one
//! form, the strong one with quotes, which conditions want.
//!
//! An object may have no tag at all, for example a file that was put into the folder of a server. Its size and time stand for
//! it then, in a form that no tag has. Weakness: they are compared here and not by the store, so a change by others between
//! that and a write is overwritten, and one within the same second that keeps the size is not seen.

use super::client::Answer;
use crate::store::Tag;
use reqsign_core::time::Timestamp as Instant;
use std::time::UNIX_EPOCH;
use uvfs_vfs::Timestamp;

/// The first character of a tag that is made of size and time.
const MADE: char = '~';

/// The tag in `text`, if there is one.
pub(super) fn parse(text: &str) -> Option<Tag> {
    let text = text.trim();
    let strong = text.strip_prefix("W/").or_else(|| text.strip_prefix("w/")).unwrap_or(text);
    let bare = strong.trim_matches('"');
    (!bare.is_empty()).then(|| Tag(format!("\"{bare}\"").into()))
}

/// The substitute for the tag of an object that has none.
pub(super) fn made_of(size: u64, modified: Timestamp) -> Tag {
    Tag(format!("{MADE}{size}-{}", modified.seconds).into())
}

/// Whether [`made_of`] has made `tag`.
pub(super) fn is_made(tag: &Tag) -> bool {
    tag.0.starts_with(MADE)
}

/// The tag as a condition of a request, if the store can compare it.
pub(super) fn condition(tag: &Tag) -> Option<&str> {
    (!is_made(tag)).then_some(&tag.0)
}

/// The tag of an object of `size` bytes, from `answer`; absent if it has neither a tag nor a time.
pub(super) fn of_answer(answer: &Answer, size: u64) -> Option<Tag> {
    if let Some(tag) = answer.header("etag").and_then(parse) {
        return Some(tag);
    }
    let time = Instant::parse_rfc2822(answer.header("last-modified")?).ok()?;
    Some(made_of(size, time.as_system_time().into()))
}

/// Seconds that `text` of a header Retry-After asks to wait: a number, or a date.
pub(super) fn retry_after(text: &str) -> Option<u64> {
    if let Ok(seconds) = text.trim().parse() {
        return Some(seconds);
    }
    let then = Instant::parse_rfc2822(text.trim()).ok()?.as_system_time();
    let now = Instant::now().as_system_time();
    let since = |time: std::time::SystemTime| time.duration_since(UNIX_EPOCH).ok();
    Some(since(then)?.saturating_sub(since(now)?).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listing without quotes, or a proxy that makes tags weak, made every read ESTALE.
    #[test]
    fn one_tag_has_one_form() {
        for text in ["\"0a-2\"", "0a-2", "W/\"0a-2\"", " \"0a-2\" ", "w/0a-2"] {
            assert_eq!(parse(text).unwrap(), Tag("\"0a-2\"".into()), "{text}");
        }
        for text in ["", "\"\"", "W/\"\"", " "] {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn size_and_time_stand_for_a_tag_and_are_no_condition() {
        let time = |seconds, nanoseconds| Timestamp { seconds, nanoseconds };
        let made = made_of(7, time(5, 900_000_000));
        assert_eq!(made, made_of(7, time(5, 0)), "a header has whole seconds");
        assert_ne!(made, made_of(8, time(5, 0)));
        assert_ne!(made, made_of(7, time(6, 0)));
        assert_eq!((is_made(&made), condition(&made)), (true, None));
        let real = parse("~7-5").unwrap();
        assert_eq!((is_made(&real), condition(&real)), (false, Some("\"~7-5\"")));
    }

    #[test]
    fn a_store_says_when_to_come_back_by_seconds_or_by_a_date() {
        assert_eq!(retry_after(" 7 "), Some(7));
        assert_eq!(retry_after("Thu, 01 Dec 1994 16:00:00 GMT"), Some(0));
        assert!(retry_after("Mon, 01 Dec 2194 16:00:00 GMT").unwrap() > 1_000_000_000);
        assert_eq!(retry_after("soon"), None);
    }
}
