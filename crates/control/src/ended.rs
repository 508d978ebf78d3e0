//! The end of a mount on the control socket: the work that it waits for, and lost data.
//!
//! # Boundary
//! Values and their form. The core ([`uvfs_vfs::Vfs::end`]) retries writes before their data counts as lost.
//!
//! # Why
//! Only the daemon knows whether all written data has reached the source, and it knows that after the mount is gone. So
//! the client that requested the end gets a last line for that. Weakness: of very many files that line names only the
//! first ones; the daemon's log names all.

use super::cleaned::Raw;
use serde::{Deserialize, Serialize};
use uvfs_vfs::{Error, Unwritten};

/// Most bytes of the files named in a verdict; its other parts are far smaller than the rest of a reply.
const LOST_BYTES_MAX: usize = super::protocol::REPLY_BYTES_MAX as usize - (128 << 10);

/// One line after the answer to [`super::protocol::Request::Unmount`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum EndLine {
    /// The end is not there yet.
    Waits {
        /// The work that the end waits for.
        waits: Waits,
    },
    /// The last line.
    Ended {
        /// The verdict about written data.
        ended: Verdict,
    },
}

/// The work that the end of a mount waits for.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Waits {
    /// Bytes that the source does not have yet.
    pub dirty_bytes: u64,
}

/// Data that could not be written to the source.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Verdict {
    /// How many files that is about.
    pub files: u64,
    /// Bytes that the source lacks.
    pub bytes: u64,
    /// The source.
    pub source: String,
    /// The serving process lives on, and so does unwritten data: a program that mounted through the library.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub served_on: bool,
    /// The files, without those that do not fit a reply.
    pub lost: Vec<Lost>,
}

/// A file that the source lacks something of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Lost {
    /// Path from the root of the mount; `None` if it is not known.
    pub path: Option<Raw>,
    /// Number of the file (`st_ino`).
    pub inode: u64,
    /// Bytes that the source lacks.
    pub bytes: u64,
    /// Why the source did not take it; empty if it was not asked, or has not answered.
    pub cause: String,
}

impl Lost {
    /// Whether it is the whole source.
    pub fn is_root(&self) -> bool {
        self.path.as_ref().is_some_and(|path| path.0.is_empty())
    }
}

impl Verdict {
    /// The verdict on `files`, which `source` does not have.
    pub fn new(files: Vec<Unwritten>, source: &str) -> Self {
        let bytes = files.iter().map(|file| file.bytes).sum();
        let count = files.len() as u64;
        let lost = files.into_iter().map(Lost::from).collect();
        Self { files: count, bytes, source: source.to_string(), lost, served_on: false }
    }

    /// With no more files than fit a reply.
    pub fn for_reply(mut self) -> Self {
        let mut left = LOST_BYTES_MAX;
        let fitting = self.lost.iter().take_while(|file| {
            let bytes = serde_json::to_string(file).map_or(usize::MAX, |text| text.len() + 1);
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        });
        let fitting = fitting.count();
        self.lost.truncate(fitting);
        self
    }
}

impl From<Unwritten> for Lost {
    fn from(file: Unwritten) -> Self {
        let cause = match file.error {
            // In the store's own words, if it has some.
            Some(Error::Io(error)) => crate::cause(&error),
            Some(error) => crate::cause(&error.into()),
            None => String::new(),
        };
        Self { path: file.path.map(Raw), inode: file.number, bytes: file.bytes, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_is_distinguished_from_the_others() {
        let read = |line: &str| serde_json::from_str::<EndLine>(line).unwrap();
        let waits = r#"{"waits":{"dirty_bytes":5,"moons":1}}"#;
        assert_eq!(read(waits), EndLine::Waits { waits: Waits { dirty_bytes: 5 } });
        let lost = Lost { path: Some(Raw(b"a\xff".to_vec())), bytes: 3, ..Lost::default() };
        let ended = Verdict { files: 1, bytes: 3, lost: vec![lost], ..Verdict::default() };
        let line = EndLine::Ended { ended };
        assert_eq!(read(&serde_json::to_string(&line).unwrap()), line);
        assert_eq!(read(r#"{"ended":{}}"#), EndLine::Ended { ended: Verdict::default() });
    }

    #[test]
    fn a_verdict_of_very_many_files_fits_a_reply_and_counts_all() {
        let files = (0..50_000).map(|number| Unwritten {
            path: Some(vec![b'\x01'; 600]),
            number,
            bytes: 4096,
            error: Some(uvfs_vfs::Error::NoSpace),
        });
        let verdict = Verdict::new(files.collect(), "/src").for_reply();
        assert_eq!((verdict.files, verdict.bytes), (50_000, 50_000 * 4096));
        assert!(verdict.lost.len() > 500, "{}", verdict.lost.len());
        assert_eq!(verdict.lost[0].cause, "No space left on device");
        let line = serde_json::to_string(&EndLine::Ended { ended: verdict }).unwrap();
        assert!((line.len() as u64) < super::super::protocol::REPLY_BYTES_MAX, "{}", line.len());
    }
}
