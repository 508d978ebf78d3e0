//! Amounts as people write them: sizes (`64M`, `10%`) and durations (`500ms`), and the way back.
//!
//! # Boundary
//! Text to numbers and numbers to text; knows no option and no machine. A percentage stays one ([`Size::Share`]) until
//! the caller applies it to an amount.
//!
//! # Why
//! A bare number is refused where its unit would be a guess: `--attr-timeout 5` could mean seconds or milliseconds, and
//! a wrong guess is silent. Bytes are the exception, like in `dd` and `mount`. The text of [`show_bytes`] can be read
//! back. Weakness: `1G` and `1GB` differ, like in coreutils.

use std::time::Duration;

/// An amount of bytes, or a share of something that the caller knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// This many bytes.
    Bytes(u64),
    /// This many hundredths of the whole.
    Share(u8),
}

impl Size {
    /// The amount in bytes, given the whole that a share refers to.
    pub fn of(self, whole_bytes: u64) -> u64 {
        match self {
            Size::Bytes(bytes) => bytes,
            Size::Share(hundredths) => {
                (u128::from(whole_bytes) * u128::from(hundredths) / 100) as u64
            }
        }
    }
}

/// Largest size: the address space of a process on common machines. More is a typing error.
const SIZE_BYTES_MAX: u64 = 128 << 40;

/// Reads a size: a number, optionally with a fraction, then nothing or `B` (bytes), `K`, `M`, `G` or `T` (powers of
/// 1024, `iB` may follow), `kB`, `MB`, `GB` or `TB` (powers of 1000), or `%`. A blank between is allowed, since
/// [`show_bytes`] writes one. Zero is refused: no option has a use for it.
///
/// # Errors
/// The fault and the valid forms, as the end of a sentence.
pub fn parse_size(text: &str) -> Result<Size, String> {
    const FORM: &str = "write a number with K, M, G, T or %, as in 512M, 1.5G or 10%";
    let (digits, rest) = split_number(text);
    let (fraction, unit) = match rest.strip_prefix('.') {
        Some(rest) => split_number(rest),
        None => ("0", rest),
    };
    let number = |digits: &str| digits.parse::<u64>().map_err(|_| format!("not a size; {FORM}"));
    // No user means more than nine digits of a fraction.
    let (whole, part) = (number(digits)?, number(fraction.get(..9).unwrap_or(fraction))?);
    let scale = 10u128.pow(fraction.len().min(9) as u32);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let share = unit == "%";
    if share && part != 0 {
        return Err("a share is whole; write 10% or 11%".into());
    }
    if share && (1..=100).contains(&whole) {
        return Ok(Size::Share(whole as u8));
    }
    if share && whole > 0 {
        return Err("more than the whole; write at most 100%".into());
    }
    let unit_bytes = if share { Some(1) } else { unit_bytes(unit) };
    let unit_bytes = u128::from(unit_bytes.ok_or_else(|| format!("unknown unit; {FORM}"))?);
    let bytes = u128::from(whole) * unit_bytes + u128::from(part) * unit_bytes / scale;
    if unit_bytes == 1 && part != 0 {
        return Err(format!("a byte is whole; {FORM}"));
    }
    match u64::try_from(bytes) {
        Ok(0) => Err(format!("zero is no size; {FORM}")),
        Ok(bytes) if bytes <= SIZE_BYTES_MAX => Ok(Size::Bytes(bytes)),
        _ => Err("too large; sizes end at 128T".into()),
    }
}

/// The bytes of `unit`.
fn unit_bytes(unit: &str) -> Option<u64> {
    let (prefix, base) = match unit.strip_suffix('B') {
        Some("") => return Some(1),
        Some(decimal) if !decimal.ends_with('i') => (decimal, 1000u64),
        Some(binary) => (&binary[..binary.len() - 1], 1024),
        None => (unit, 1024),
    };
    let power = match prefix {
        "" if unit.is_empty() => 0,
        "K" | "k" => 1,
        "M" | "m" => 2,
        "G" | "g" => 3,
        "T" | "t" => 4,
        _ => return None,
    };
    Some(base.pow(power))
}

/// Reads a duration: digits and `ms`, `s`, `m` or `h`; `0` needs no unit.
///
/// # Errors
/// The fault and the valid forms, as the end of a sentence.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    const FORM: &str = "write a whole number with ms, s, m or h, as in 500ms or 1s, or 0";
    let (digits, unit) = split_number(text);
    let number: u64 = digits.parse().map_err(|_| format!("not a duration; {FORM}"))?;
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" if number == 0 => 1,
        "" => return Err(format!("the unit is missing; {FORM}")),
        _ => return Err(format!("unknown unit; {FORM}")),
    };
    number.checked_mul(unit_ms).map(Duration::from_millis).ok_or_else(|| "too long".into())
}

/// `bytes` for people: three or four digits and a binary unit.
pub fn show_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `count` for people: digits in groups of three.
pub fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 file`, `2,000 files`: `count` of what is called `one`, and `many` of it.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", show_count(count), if count == 1 { one } else { many })
}

/// A duration for people: the unit that [`parse_duration`] would need the fewest digits for.
pub fn show_duration(duration: Duration) -> String {
    match duration.as_millis() {
        0 => "0".into(),
        ms if ms % 3_600_000 == 0 => format!("{}h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{}m", ms / 60_000),
        ms if ms % 1_000 == 0 => format!("{}s", ms / 1_000),
        ms => format!("{ms}ms"),
    }
}

/// A time that was measured, for people: two or three digits and the unit.
pub fn show_ns(ns: u64) -> String {
    match ns {
        ..1_000 => format!("{ns} ns"),
        // Chosen by the rounded value: no 1000.0 µs.
        1_000..999_950 => format!("{:.1} µs", ns as f64 / 1e3),
        999_950..999_950_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.2} s", ns as f64 / 1e9),
    }
}

/// `seconds` since 1970 as `YYYY-MM-DD hh:mm:ss UTC`.
pub fn show_time(seconds: u64) -> String {
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Civil date from days, in years that start in March, so that a leap day ends its year.
    let shifted = day + 719_468;
    let era = shifted / 146_097;
    let of_era = shifted % 146_097;
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3_600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

/// Splits leading digits from the rest.
fn split_number(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_take_binary_units_and_shares() {
        assert_eq!(parse_size("4096"), Ok(Size::Bytes(4096)));
        assert_eq!(parse_size("64M"), Ok(Size::Bytes(64 << 20)));
        assert_eq!(parse_size("2g"), Ok(Size::Bytes(2 << 30)));
        assert_eq!(parse_size("3KiB"), Ok(Size::Bytes(3 << 10)));
        assert_eq!(parse_size("10%"), Ok(Size::Share(10)));
        // A first user's, of which none was taken.
        assert_eq!(parse_size("1GiB"), Ok(Size::Bytes(1 << 30)));
        assert_eq!(parse_size("1GB"), Ok(Size::Bytes(1_000_000_000)));
        assert_eq!(parse_size("1.5G"), Ok(Size::Bytes(3 << 29)));
        assert_eq!(parse_size("0.25K"), Ok(Size::Bytes(256)));
        assert_eq!(parse_size("7 B"), Ok(Size::Bytes(7)));
        assert_eq!(parse_size("128T"), Ok(Size::Bytes(1 << 47)));
        assert_eq!(Size::Share(10).of(1000), 100);
        assert_eq!(Size::Share(100).of(u64::MAX), u64::MAX);
    }

    #[test]
    fn sizes_that_mean_nothing_are_refused_with_a_remedy() {
        for text in ["", "M", "lots", "-5M", "1.5", "5X", "iB", "5%%", "99999999999999999999", "0"]
        {
            let refusal = parse_size(text).expect_err(text);
            assert!(refusal.contains("write a number"), "{text}: {refusal}");
        }
        assert!(parse_size("0M").is_err());
        assert!(parse_size("101%").is_err());
        for text in ["99999T", "129T", "1.5%", "0%", ".5G", "1.G", "1,5G", "1  G", "1GiBB", "1iB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
        assert!(parse_size("18446744073709551615T").is_err(), "overflow");
    }

    /// Bug: `uvfs set` refused sizes in the form that `uvfs stat` showed.
    #[test]
    fn sizes_that_are_shown_are_read_back() {
        for bytes in [1, 1023, 1024, 1536, 5 << 20, (59 << 30) / 10, 1 << 40, 100 << 40] {
            let shown = show_bytes(bytes);
            let Ok(Size::Bytes(read)) = parse_size(&shown) else { panic!("{shown}") };
            assert_eq!(show_bytes(read), shown);
        }
    }

    #[test]
    fn durations_need_a_unit_unless_zero() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        for text in ["", "5", "s", "5 s", "-1s", "5d", "18446744073709551615h"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_are_shown_as_they_are_written() {
        for text in ["0", "500ms", "1s", "90s", "2m", "1h"] {
            assert_eq!(show_duration(parse_duration(text).unwrap()), text);
        }
    }

    #[test]
    fn amounts_are_shown_short() {
        assert_eq!(show_bytes(1023), "1023 B");
        assert_eq!(show_bytes(1536), "1.5 KiB");
        assert_eq!(show_bytes((1 << 20) - 1), "1.0 MiB", "not 1024.0 KiB");
        assert_eq!(show_bytes(u64::MAX), "16384.0 PiB");
        assert_eq!(show_count(0), "0");
        assert_eq!(show_count(999), "999");
        assert_eq!(counted(1, "inode", "inodes"), "1 inode");
        assert_eq!(counted(0, "entry", "entries"), "0 entries");
        assert_eq!(show_count(1_234_567), "1,234,567");
    }

    #[test]
    fn measured_times_are_shown_short() {
        let shown = [0, 999, 1_000, 999_949, 999_950, 12_345_678, 999_950_000, 68_700_000_000];
        let expected =
            ["0 ns", "999 ns", "1.0 µs", "999.9 µs", "1.0 ms", "12.3 ms", "1.00 s", "68.70 s"];
        assert_eq!(shown.map(show_ns), expected);
    }

    #[test]
    fn times_are_shown_as_civil_dates() {
        assert_eq!(show_time(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(show_time(951_827_696), "2000-02-29 12:34:56 UTC");
        assert_eq!(show_time(4_102_444_799), "2099-12-31 23:59:59 UTC");
    }
}
