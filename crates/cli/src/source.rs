//! The forms of SOURCE: `memory:`, `dir:PATH`, `image:PATH`, `s3://BUCKET/PREFIX`, or a plain path.
//!
//! # Boundary
//! Syntax only. [`crate::checks`] checks that the directory exists and may be read.
//!
//! # Why
//! A scheme is recognised by its form (`word:` before any slash), known or not. So `gs:bucket` is
//! refused as an unknown scheme today, and cannot silently mean a local directory before the scheme
//! exists. Weakness: a directory called `a:b` must be written `./a:b`.

use crate::Failure;
use crate::bucket::{self, Address};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use uvfs_image_tools::Spec;

/// The schemes, as refusals list them.
pub(crate) const KNOWN: &str = "memory:, dir:PATH, image:PATH, s3://BUCKET/PREFIX or a plain path";

/// The source of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// An empty file system in RAM.
    Memory,
    /// A host directory, as the user wrote its path.
    Directory(PathBuf),
    /// A disk image.
    Image(Spec),
    /// A bucket of an object store.
    Bucket(Address),
    /// A host directory, or a disk image if a file is there.
    Plain(PathBuf),
}

/// Reads SOURCE.
///
/// # Errors
/// An unknown scheme, or an empty path.
pub(crate) fn parse(text: &OsStr) -> Result<Source, Failure> {
    let bytes = text.as_bytes();
    match split_scheme(bytes) {
        None => directory(bytes).map(|source| match source {
            Source::Directory(path) => Source::Plain(path),
            other => other,
        }),
        Some((b"memory", b"")) => Ok(Source::Memory),
        Some((b"memory", rest)) => Err(Failure::refused(format!(
            "source `memory:{0}`: memory: takes nothing after the colon; write `memory:`, or \
             `./memory:{0}` for a directory of that name",
            rest.escape_ascii(),
        ))),
        Some((b"dir", rest)) => directory(rest),
        Some((b"image", b"")) => directory(b""),
        Some((b"image", rest)) => Spec::parse(rest).map(Source::Image),
        Some((b"s3", rest)) => bucket::parse(rest).map(Source::Bucket),
        Some((scheme, _)) => Err(Failure::refused(format!(
            "source `{0}`: unknown scheme `{1}:`; use {KNOWN}, and `./{0}` for a directory of \
             that name",
            bytes.escape_ascii(),
            scheme.escape_ascii(),
        ))),
    }
}

/// The scheme and the text after its colon, if `bytes` begins with one.
fn split_scheme(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = bytes.iter().position(|&byte| byte == b':')?;
    let (scheme, rest) = (&bytes[..colon], &bytes[colon + 1..]);
    let is_word = scheme.first()?.is_ascii_alphabetic()
        && scheme.iter().all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(byte));
    is_word.then_some((scheme, rest))
}

fn directory(path: &[u8]) -> Result<Source, Failure> {
    if path.is_empty() {
        return Err(Failure::refused(format!("source: the path is empty; use {KNOWN}")));
    }
    Ok(Source::Directory(OsString::from(OsStr::from_bytes(path)).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let found = match parse(OsStr::new(text)) {
            Ok(Source::Memory) => "memory".to_string(),
            Ok(Source::Directory(path)) => format!("dir {}", path.display()),
            Ok(Source::Plain(path)) => format!("plain {}", path.display()),
            Ok(Source::Bucket(address)) => format!("bucket {}", address.name()),
            Ok(Source::Image(image)) => format!("image {} {:?}", image.path.display(), image.part),
            Err(failure) => format!("refused: {failure}"),
        };
        assert!(found.starts_with(expected), "{text:?}: {found:?}, expected {expected:?}");
    }

    #[test]
    fn schemes_and_plain_paths_are_distinguished() {
        check("memory:", "memory");
        check("dir:/srv", "dir /srv");
        check("dir:relative/path", "dir relative/path");
        check("dir:memory:", "dir memory:");
        check("/srv", "plain /srv");
        check("some where", "plain some where");
        check("./memory:", "plain ./memory:");
        check("/a:b", "plain /a:b");
        check(":odd", "plain :odd");
        check("1:2", "plain 1:2");
        check("image:/d.img", "image /d.img Whole");
        check("image:/d.img?partition=2", "image /d.img Partition(2)");
        check("image:", "refused: source: the path is empty");
    }

    #[test]
    #[cfg(feature = "s3")]
    fn buckets_are_named_and_secrets_are_not_taken() {
        check("s3://bucket/a/b?endpoint=http://127.0.0.1:1", "bucket s3://bucket/a/b");
        check("s3:bucket", "refused: source s3: write s3://BUCKET");
        check("s3://key:secret@bucket", "refused: source s3: credentials do not belong");
    }

    #[test]
    #[cfg(not(feature = "s3"))]
    fn a_bucket_is_refused_with_the_feature_that_brings_it() {
        check(
            "s3://bucket/a/b",
            "refused: source s3: this uvfs was built without the feature `s3`",
        );
    }

    #[test]
    fn unknown_schemes_and_empty_paths_are_refused() {
        check("gs:bucket/key", "refused: source `gs:bucket/key`: unknown scheme `gs:`");
        check("MEMORY:", "refused: source `MEMORY:`: unknown scheme");
        check("memory:/tmp", "refused: source `memory:/tmp`: memory: takes nothing");
        check("", "refused: source: the path is empty");
        check("dir:", "refused: source: the path is empty");
    }

    #[test]
    fn any_bytes_make_a_path() {
        let source = parse(OsStr::from_bytes(b"dir:/\xff\xfe")).unwrap();
        assert_eq!(source, Source::Directory(OsStr::from_bytes(b"/\xff\xfe").into()));
    }
}
