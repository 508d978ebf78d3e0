//! Requests to clean: `N` or `N:PATH`, as a user writes them on a command line or into a file.
//!
//! ```text
//! request = ( "1" | "2" | "3" ) [ ":" path ] [ newline ]
//! path    = "/" then bytes other than NUL; no component is ".."; the last is no newline
//! ```
//! At most 4096 bytes in all, the newline included. The digits have the meaning of
//! `/proc/sys/vm/drop_caches`: 1 pages, 2 names and inodes, 3 both.
//!
//! # Boundary
//! Form only. A value is made by [`Request::parse`] or [`Request::new`], so its path obeys the rules. Other parts carry
//! the value; the control socket carries [`Request::to_bytes`]. The code that opens the directory checks that it exists, is a directory, is in a
//! mount and may be cleaned by the caller. It answers with [`Refusal`] too. So users read one set
//! of messages, and a program that wrote to a file gets one errno for one cause.
//!
//! # Why
//! The effect of a clean is hard to see. So the request must be unambiguous, and nothing is guessed
//! or corrected. `..` is refused rather than resolved, because its meaning depends on links.
//! Weakness: a directory whose own name ends in a newline cannot be named, as that newline ends the
//! request. Its parent can.

use super::Clean;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Longest request in bytes, its newline included.
pub const REQUEST_BYTES_MAX: usize = 4096;

/// What to clean, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Request {
    /// Which caches.
    pub what: Clean,
    /// The directory: an absolute path without `..`. Without one, everything in reach.
    pub directory: Option<PathBuf>,
}

impl Request {
    /// Reads a request.
    ///
    /// # Errors
    /// The first rule, in the order of [`Refusal`]'s variants, that `bytes` breaks.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        Self::parse_with(bytes, Path::to_path_buf)
    }

    /// Reads a request, and replaces its path by `absolute` of it before the path is checked.
    ///
    /// # Errors
    /// As [`Request::parse`].
    pub fn parse_with(
        bytes: &[u8],
        absolute: impl FnOnce(&Path) -> PathBuf,
    ) -> Result<Self, Refusal> {
        if bytes.len() > REQUEST_BYTES_MAX {
            return Err(Refusal::TooLong);
        }
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let (digit, rest) = text.split_first().ok_or(Refusal::Empty)?;
        let what = match digit {
            b'1' => Clean::Pages,
            b'2' => Clean::Names,
            b'3' => Clean::Both,
            _ => return Err(Refusal::Digit),
        };
        let Some((colon, path)) = rest.split_first() else {
            return Ok(Self { what, directory: None });
        };
        if *colon != b':' {
            return Err(Refusal::Form);
        }
        Self::new(what, &absolute(Path::new(OsStr::from_bytes(path))))
    }

    /// To clean one directory.
    ///
    /// # Errors
    /// The rule that `path` breaks.
    pub fn new(what: Clean, path: &Path) -> Result<Self, Refusal> {
        Ok(Self { what, directory: Some(directory(path.as_os_str().as_bytes())?) })
    }

    /// The bytes that [`Request::parse`] reads as this request.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.what.digit() as u8];
        if let Some(directory) = &self.directory {
            bytes.push(b':');
            bytes.extend(directory.as_os_str().as_bytes());
        }
        bytes
    }
}

impl fmt::Display for Request {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

/// The directory that `path` names in a request.
///
/// # Errors
/// The rule that `path` breaks.
pub fn directory(path: &[u8]) -> Result<PathBuf, Refusal> {
    if path.len() > REQUEST_BYTES_MAX - "1:".len() {
        return Err(Refusal::TooLong);
    }
    if path.is_empty() {
        return Err(Refusal::NoPath);
    }
    if path.contains(&0) {
        return Err(Refusal::Nul);
    }
    if path[0] != b'/' {
        return Err(Refusal::Relative);
    }
    if path.ends_with(b"\n") {
        return Err(Refusal::Newline);
    }
    if path.split(|&byte| byte == b'/').any(|component| component == b"..") {
        return Err(Refusal::DotDot);
    }
    Ok(OsString::from_vec(path.to_vec()).into())
}

/// Why a request is refused. The text names the rule. A `write` of the request fails with
/// [`Refusal::errno`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refusal {
    /// Longer than [`REQUEST_BYTES_MAX`].
    TooLong,
    /// Nothing, or only a newline.
    Empty,
    /// The first byte is not 1, 2 or 3.
    Digit,
    /// Something other than a colon follows the digit.
    Form,
    /// Nothing follows the colon.
    NoPath,
    /// The path has a NUL byte.
    Nul,
    /// The path does not begin with a slash.
    Relative,
    /// A second newline at the end.
    Newline,
    /// The path has a component `..`.
    DotDot,
    /// There is no such directory.
    Missing,
    /// The path names something else than a directory.
    NotDirectory,
    /// A component of the path is a symbolic link.
    Symlink,
    /// The directory is not in this mount.
    Outside,
    /// The caller may not clean this directory.
    NotPermitted,
}

impl Refusal {
    /// The errno for a program that wrote the request into a file.
    pub const fn errno(self) -> i32 {
        match self {
            Refusal::Missing => libc::ENOENT,
            Refusal::NotPermitted => libc::EPERM,
            _ => libc::EINVAL,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Refusal::TooLong => "longer than 4096 bytes; name a directory further up",
            Refusal::Empty => {
                "empty; write 1, 2 or 3, or one of them with a directory as in 1:/srv"
            }
            Refusal::Digit => "begins with none of 1 (pages), 2 (names and inodes), 3 (both)",
            Refusal::Form => "more than a digit; a directory follows a colon, as in 1:/srv",
            Refusal::NoPath => "no directory after the colon; write one as in 1:/srv, or no colon",
            Refusal::Nul => "a NUL byte in the path; no file name has one",
            Refusal::Relative => "a relative path; write it from / on, as in 1:/srv",
            Refusal::Newline => {
                "ends in more than one newline; write at most one, or name the directory above"
            }
            Refusal::DotDot => "`..` in the path; write the path without it",
            Refusal::Missing => "no such directory",
            Refusal::NotDirectory => "not a directory; name the directory that it is in",
            Refusal::Symlink => "a symbolic link in the path; name the directory that it leads to",
            Refusal::Outside => "not a directory of this mount",
            Refusal::NotPermitted => "not permitted; ask root or the owner",
        })
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<(Clean, Option<String>), Refusal> {
        let request = Request::parse(text.as_bytes())?;
        let directory = request.directory.map(|path| path.to_str().unwrap().to_string());
        Ok((request.what, directory))
    }

    #[test]
    fn a_digit_alone_or_with_an_absolute_path_is_a_request() {
        assert_eq!(parse("1"), Ok((Clean::Pages, None)));
        assert_eq!(parse("2\n"), Ok((Clean::Names, None)));
        assert_eq!(parse("3:/"), Ok((Clean::Both, Some("/".into()))));
        for path in ["/home/foo/jpg", "/a b", "/a:b", "/...", "/..a", "/a../b", "/a/./b//", "/é"] {
            assert_eq!(parse(&format!("1:{path}")), Ok((Clean::Pages, Some(path.into()))));
            assert_eq!(parse(&format!("1:{path}\n")), Ok((Clean::Pages, Some(path.into()))));
        }
        assert_eq!(parse("1:/a\nb"), Ok((Clean::Pages, Some("/a\nb".into()))), "inside a name");
    }

    #[test]
    fn names_need_not_be_text() {
        let request = Request::parse(b"1:/\xff\xfe").unwrap();
        let expected = Path::new(OsStr::from_bytes(b"/\xff\xfe"));
        assert_eq!(request.directory.as_deref(), Some(expected));
    }

    #[test]
    fn everything_else_is_refused_by_its_rule() {
        let check = |text: &str, refusal| assert_eq!(parse(text), Err(refusal), "{text:?}");
        check("", Refusal::Empty);
        check("\n", Refusal::Empty);
        for text in ["0", "4", "0:/a", "4:/a", ":x", ":/x", " 1", "-1", "x", "/a", "\u{661}"] {
            check(text, Refusal::Digit);
        }
        for text in ["11", "1 ", "1/a", "1 :/a", "1\r\n", "1\n\n", "12:/a", "1\0", "1;/a"] {
            check(text, Refusal::Form);
        }
        check("1:", Refusal::NoPath);
        check("2:\n", Refusal::NoPath);
        check("1:/a\0b", Refusal::Nul);
        check("1:\0", Refusal::Nul);
        for text in ["1:a", "1:./a", "1: /a", "1:..", "1::/a", "1:~/a", "1:\n\n"] {
            check(text, Refusal::Relative);
        }
        check("1:/a\n\n", Refusal::Newline);
        for text in ["1:/..", "1:/../a", "1:/a/../b", "1:/a/..", "1:/a/../", "1://..//", "1:/..\n"]
        {
            check(text, Refusal::DotDot);
        }
    }

    #[test]
    fn the_limit_counts_everything() {
        let longest = format!("1:/{}", "a".repeat(REQUEST_BYTES_MAX - 3));
        assert_eq!(longest.len(), 4096);
        assert!(parse(&longest).is_ok());
        assert_eq!(parse(&(longest.clone() + "\n")), Err(Refusal::TooLong));
        assert_eq!(parse(&(longest + "a")), Err(Refusal::TooLong));
        assert_eq!(parse(&"x".repeat(5000)), Err(Refusal::TooLong), "before anything is read");
    }

    #[test]
    fn a_request_is_written_as_it_is_read() {
        for text in ["1", "2", "3", "1:/", "2:/a/b", "3:/a b"] {
            assert_eq!(Request::parse(text.as_bytes()).unwrap().to_string(), text);
        }
        let request = Request::new(Clean::Pages, Path::new(OsStr::from_bytes(b"/\xff"))).unwrap();
        assert_eq!(request.to_bytes(), b"1:/\xff");
        assert_eq!(Request::parse(b"1:/\xff"), Ok(request));
    }

    #[test]
    fn a_request_that_is_made_obeys_the_rules_of_one_that_is_read() {
        let check = |path: &str, refusal| {
            assert_eq!(Request::new(Clean::Both, Path::new(path)), Err(refusal), "{path:?}");
        };
        check(&format!("/{}", "a".repeat(REQUEST_BYTES_MAX - 2)), Refusal::TooLong);
        check("", Refusal::NoPath);
        check("a", Refusal::Relative);
        // It is the name's, not the end of a request.
        check("/a\n", Refusal::Newline);
        check("/a/..", Refusal::DotDot);
    }

    #[test]
    fn refusals_have_an_errno_and_name_their_rule() {
        assert_eq!(Refusal::Missing.errno(), libc::ENOENT);
        assert_eq!(Refusal::NotPermitted.errno(), libc::EPERM);
        for refusal in [Refusal::TooLong, Refusal::Digit, Refusal::Outside, Refusal::Symlink] {
            assert_eq!(refusal.errno(), libc::EINVAL, "{refusal}");
        }
        assert!(Refusal::TooLong.to_string().contains(&REQUEST_BYTES_MAX.to_string()));
        assert!(Refusal::DotDot.to_string().contains("`..`"));
    }

    #[test]
    fn what_is_two_questions() {
        for what in [Clean::Pages, Clean::Names, Clean::Both] {
            let number = u8::from(what.has_pages()) + 2 * u8::from(what.has_names());
            assert_eq!(number.to_string(), what.digit().to_string());
        }
    }
}
