//! Policies of directories as text: on the command line and in the file of `uvfs mount --policy`.
//!
//! # Boundary
//! Text to values, and valid paths in a mount. The core implements policies ([`uvfs_vfs::CachePolicy`]); the daemon
//! marks directories ([`crate::serve`]).
//!
//! # Why
//! One directory per line and nothing to quote: the path is the rest of the line. Weakness: a path that ends in a
//! blank, or has a newline in it, can be marked by `uvfs policy` and not by a file.

use crate::Failure;
use rustix::io::Errno;
use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use uvfs_control::policies::directory;
use uvfs_vfs::{CachePolicy, POLICIES_MAX};

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 32 << 20;

/// A line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Line {
    /// Number of the line, from 1 on.
    pub(crate) number: usize,
    /// The policy.
    pub(crate) policy: CachePolicy,
    /// The directory, from the mount's root on.
    pub(crate) directory: PathBuf,
}

/// A file of policies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct PolicyFile {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Lines of the file, without comments and empty ones.
    pub(crate) lines: Vec<Line>,
}

impl PolicyFile {
    /// Reads the file at `path`.
    ///
    /// # Errors
    /// File, line, the fault, and the valid form.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let name = path.display();
        let refused = |cause: &str| Failure::refused(format!("--policy {name}: {cause}"));
        let metadata = fs::metadata(path)
            .map_err(|error| refused(&format!("{}; name a file", crate::cause(&error))))?;
        // The program may read it twice; a pipe would be empty then.
        if !metadata.is_file() {
            return Err(refused("not a regular file; write the lines into one"));
        }
        let mut text = Vec::new();
        let read = fs::File::open(path)
            .and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut text));
        read.map_err(|error| {
            let remedy = match Errno::from_io_error(&error) {
                Some(Errno::ACCESS) => "make it readable",
                _ => "try again",
            };
            refused(&format!("{}; {remedy}", crate::cause(&error)))
        })?;
        if text.len() as u64 > FILE_BYTES_MAX {
            let most = FILE_BYTES_MAX >> 20;
            return Err(refused(&format!("longer than {most} MiB; mark directories further up")));
        }
        let lines = parse(&text).map_err(|(number, cause)| at(path, number, &cause))?;
        Ok(Self { path: path.to_path_buf(), lines })
    }
}

/// The refusal of one line.
pub(crate) fn at(file: &Path, number: usize, cause: &str) -> Failure {
    Failure::refused(format!("{}:{number}: {cause}", file.display()))
}

fn parse(text: &[u8]) -> Result<Vec<Line>, (usize, String)> {
    let mut lines = Vec::new();
    let mut seen = HashMap::new();
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let number = at + 1;
        let line = line.trim_ascii();
        if line.is_empty() || line[0] == b'#' {
            continue;
        }
        let (policy, directory) = parse_line(line).map_err(|cause| (number, cause))?;
        // However many slashes are in it.
        let directory: PathBuf = directory.components().collect();
        if let Some(before) = seen.insert(directory.clone(), number) {
            let directory = directory.display();
            return Err((number, format!("{directory}: in line {before} already; write it once")));
        }
        if lines.len() == POLICIES_MAX {
            let cause =
                format!("more than {POLICIES_MAX} directories; mark directories further up");
            return Err((number, cause));
        }
        lines.push(Line { number, policy, directory });
    }
    Ok(lines)
}

fn parse_line(line: &[u8]) -> Result<(CachePolicy, PathBuf), String> {
    const FORM: &str =
        "write keep, once or normal and a path from the mount's root on, as in `keep /photos`";
    let end = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (word, path) = (String::from_utf8_lossy(&line[..end]), line[end..].trim_ascii_start());
    let policy = match word.parse() {
        Ok(policy) => policy,
        Err(_) => return Err(format!("`{word}` is no policy; {FORM}")),
    };
    if path.is_empty() {
        return Err(format!("no directory; {FORM}"));
    }
    let shown = String::from_utf8_lossy(path);
    Ok((policy, directory(path).map_err(|cause| format!("{shown}: {cause}"))?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    #[test]
    fn lines_are_a_policy_and_the_rest_is_the_path() {
        let text = b"# marks\n\nkeep /photos\n  once\t /back up/a#b \r\nnormal //photos/./tmp/\nkeep /\nonce /\xff";
        let lines = parse(text).unwrap();
        let line = |number, policy, path: &[u8]| {
            let directory = PathBuf::from(OsStr::from_bytes(path));
            Line { number, policy, directory }
        };
        let expected = [
            line(3, CachePolicy::Keep, b"/photos"),
            line(4, CachePolicy::Once, b"/back up/a#b"),
            line(5, CachePolicy::Normal, b"/photos/tmp"),
            line(6, CachePolicy::Keep, b"/"),
            line(7, CachePolicy::Once, b"/\xff"),
        ];
        assert_eq!(lines, expected);
        assert_eq!(parse(b""), Ok(vec![]));
    }

    #[test]
    fn a_wrong_line_is_named_with_cause_and_remedy() {
        let check = |line: &str, parts: &[&str]| {
            let (number, cause) = parse(format!("keep /a\n{line}\n").as_bytes()).unwrap_err();
            assert_eq!(number, 2, "{line}");
            for part in parts {
                assert!(cause.contains(part), "{line}: no {part:?} in {cause:?}");
            }
        };
        check("hold /b", &["`hold` is no policy", "`keep /photos`"]);
        check("none /b", &["`none` is no policy"]);
        check("keep", &["no directory", "`keep /photos`"]);
        check("keep b", &["b: a relative path", "as in /photos"]);
        check("keep /b/../c", &["/b/../c: `..` in the path"]);
        check("keep /b\0", &["a NUL byte"]);
        check("once /./a//", &["/a: in line 1 already", "write it once"]);
        check(&format!("once /{}", "x".repeat(5000)), &["longer than 4096 bytes"]);
        let many: String = (0..=POLICIES_MAX).map(|at| format!("keep /{at}\n")).collect();
        let (number, cause) = parse(many.as_bytes()).unwrap_err();
        assert_eq!((number, cause.starts_with("more than 4096")), (POLICIES_MAX + 1, true));
    }

    #[test]
    fn a_file_that_cannot_be_read_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let check = |path: &Path, part: &str| {
            let refused = PolicyFile::read(path).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("--policy {}: ", path.display())), "{refused}");
            assert!(refused.contains(part) && refused.contains("; "), "{refused}");
        };
        check(&folder.path().join("none"), "No such file");
        check(folder.path(), "not a regular file");
        check(Path::new("/dev/zero"), "not a regular file");
        let long = folder.path().join("long");
        fs::File::create(&long).unwrap().set_len(FILE_BYTES_MAX + 1).unwrap();
        check(&long, "longer than 32 MiB");
        let wrong = folder.path().join("wrong");
        fs::write(&wrong, "#\nkeep").unwrap();
        let refused = PolicyFile::read(&wrong).unwrap_err().to_string();
        assert!(
            refused.starts_with(&format!("{}:2: no directory; ", wrong.display())),
            "{refused}"
        );
    }
}
