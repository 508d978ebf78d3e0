//! Numbers and names as people read them.
//!
//! # Boundary
//! One value in, one short text out.
//!
//! # Why
//! One place decides how a share or a count looks, so that the text, the page and the pictures agree.
//! Weakness: English only.

use crate::analysis::Estimate;
use std::borrow::Cow;

/// The longest name of a page; terminals cut more.
pub(super) const NAME_MAX: usize = 200;

/// A name without control characters and marks that turn the direction of writing, at most `max`
/// characters: `queue_very_lo..`.
pub(super) fn clean(name: &str, max: usize) -> String {
    let mut text = String::new();
    for (count, character) in name.chars().enumerate() {
        if count == max {
            let keep = max.saturating_sub(2);
            let end = text.char_indices().nth(keep).map_or(text.len(), |(end, _)| end);
            text.truncate(end);
            text.push_str(&".."[..max.min(2)]);
            return text;
        }
        let turns = matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
            | '\u{2028}' | '\u{2029}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        text.push(if character.is_control() || turns { '\u{fffd}' } else { character });
    }
    text
}

/// A cleaned name for a page or a picture: as text or within quotes.
pub(super) fn escape(name: &str) -> String {
    let mut text = String::new();
    for character in clean(name, NAME_MAX).chars() {
        match character {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            '"' => text.push_str("&quot;"),
            '\'' => text.push_str("&#39;"),
            other => text.push(other),
        }
    }
    text
}

/// A count, or a mean of counts: `12`, `1,234`, `0.5`.
pub(super) fn count(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let size = value.abs();
    if size < 10.0 && (size - size.round()).abs() > 0.005 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", size);
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 && digits != "0" { format!("-{text}") } else { text }
}

/// A share for tables, with the paper's two digits: `59.40%`.
pub(super) fn percent2(share: f64) -> String {
    format!("{:.2}%", share * 100.0)
}

/// A share for tables: `59.4%`.
pub(super) fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A share for sentences: `59 %`, `3.2 %`, `0.04 %`.
pub(super) fn share(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        percent if percent.abs() < 0.005 => "below 0.01 %".to_owned(),
        percent if percent.abs() < 1.0 => format!("{percent:.2} %"),
        percent if percent.abs() < 10.0 => format!("{percent:.1} %"),
        percent => format!("{percent:.0} %"),
    }
}

/// Half an interval as a part of its mean: `3%`; nothing without one.
pub(super) fn relative(estimate: &Estimate) -> String {
    match estimate.relative() {
        None => String::new(),
        Some(part) if part >= 9.995 => ">999%".to_owned(),
        Some(part) if part >= 0.0995 || part == 0.0 => format!("{:.0}%", part * 100.0),
        Some(part) => format!("{:.1}%", part * 100.0),
    }
}

/// An estimated share with its interval in points: `59 % (± 2.1)`.
pub(super) fn share_pm(estimate: &Estimate) -> String {
    let mean = share(estimate.mean);
    match estimate.plus_minus {
        Some(half) => format!("{mean} (± {:.1})", half * 100.0),
        None => mean,
    }
}

/// An estimated count with its interval: `1,234 ± 56`.
pub(super) fn count_pm(estimate: &Estimate) -> String {
    match estimate.plus_minus {
        Some(half) => format!("{} ± {}", count(estimate.mean), count(half)),
        None => count(estimate.mean),
    }
}

/// A large number in words: `12.3 million`.
pub(super) fn large(value: f64) -> String {
    let (value, unit) = match value.abs() {
        size if size >= 999.5e6 => (value / 1e9, " billion"),
        size if size >= 999.5e3 => (value / 1e6, " million"),
        _ => return count(value),
    };
    match value.abs() {
        size if size < 9.95 => format!("{value:.2}{unit}"),
        size if size < 99.5 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// Cycles as time: `4.7 ms`.
pub(super) fn time(cycles: f64, megahertz: f64) -> String {
    if cycles == 0.0 || megahertz <= 0.0 {
        return "0".to_owned();
    }
    let ns = cycles * 1000.0 / megahertz;
    let (value, unit) = match ns {
        ns if ns < 999.5 => (ns, "ns"),
        ns if ns < 999.5e3 => (ns / 1e3, "us"),
        ns if ns < 999.5e6 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    if value < 9.95 { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

/// `1 seed`, `2 seeds`.
pub(super) fn plural(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// Seeds as ranges: `1-8`, `3,7`.
pub(super) fn seeds(seeds: &[u64]) -> String {
    let mut sorted = seeds.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for seed in sorted {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(seed) => *last = seed,
            _ => ranges.push((seed, seed)),
        }
    }
    let shown = ranges.iter().take(8).map(|(first, last)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    });
    let text = shown.collect::<Vec<_>>().join(",");
    if ranges.len() > 8 { text + ",.." } else { text }
}

/// Words of a list: `a, b and c`.
pub(super) fn list(words: &[String]) -> Cow<'_, str> {
    match words {
        [] => Cow::Borrowed(""),
        [one] => Cow::Borrowed(one),
        [most @ .., last] => Cow::Owned(format!("{} and {last}", most.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lose_what_terminals_obey() {
        assert_eq!(clean("a\n\x1b[1m\u{202e}b", 99), "a\u{fffd}\u{fffd}[1m\u{fffd}b");
        assert_eq!(
            (clean("abcdef", 6).as_str(), clean("abcdefg", 6).as_str()),
            ("abcdef", "abcd..")
        );
        assert_eq!(
            (clean("äöüß", 3), clean("abc", 0), clean("abc", 1)),
            ("ä..".into(), "".into(), ".".into())
        );
        assert!(clean(&"x".repeat(10_000), 200).chars().count() == 200);
        assert_eq!(escape("<a href=\"'&\">"), "&lt;a href=&quot;&#39;&amp;&quot;&gt;");
    }

    #[test]
    fn numbers_are_short_and_exact_enough() {
        let counts = [0.0, 0.5, 9.0, 12.4, 1234.0, 1_234_567.0, -1234.0, f64::NAN].map(count);
        assert_eq!(counts, ["0", "0.5", "9", "12", "1,234", "1,234,567", "-1,234", "-"]);
        let shares = [0.0, 0.00001, 0.004, 0.046, 0.463, 1.0].map(share);
        assert_eq!(shares, ["0 %", "below 0.01 %", "0.40 %", "4.6 %", "46 %", "100 %"]);
        assert_eq!(
            [1e3, 1.234e6, 56e6, 789e6, 12.3e9].map(large),
            ["1,000", "1.23 million", "56.0 million", "789 million", "12.3 billion"]
        );
        assert_eq!(
            [260.0, 26_000.0, 0.0].map(|cycles| time(cycles, 2600.0)),
            ["100 ns", "10 us", "0"]
        );
        let wide = Estimate { mean: 100.0, plus_minus: Some(3.0) };
        assert_eq!((relative(&wide), count_pm(&wide)), ("3.0%".into(), "100 ± 3".into()));
        assert_eq!(relative(&Estimate { mean: 1.0, plus_minus: None }), "");
    }

    #[test]
    fn lists_and_ranges_are_short() {
        assert_eq!(seeds(&[1, 2, 3, 8, 5, 6]), "1-3,5-6,8");
        assert_eq!((seeds(&[]), seeds(&[u64::MAX])), (String::new(), u64::MAX.to_string()));
        let words = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(
            (list(&words), list(&words[..1]), list(&[])),
            ("a, b and c".into(), "a".into(), "".into())
        );
        assert_eq!((plural(1, "seed"), plural(8, "seed")), ("1 seed".into(), "8 seeds".into()));
    }
}
