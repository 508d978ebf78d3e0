//! Finding the file system in a file: the file itself, a partition of it, or all bytes from an offset on; and how the
//! file is read.
//!
//! # Boundary
//! Syntax and opening. Each refusal names the contents that it found instead, and how to ask for them.

use super::{kinds, users};
use crate::Failure;
use crate::units::{self, Size};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use uvfs_ext::device::direct::DirectDevice;
use uvfs_ext::device::partition::{Partition, partitions};
use uvfs_ext::{Device, Error, FileDevice, Image, Window};
use uvfs_ext_write::{DataMode, DirectFile, NotDirect, WritableFile, WritableWindow, WriteDevice};

const MISSING: &str = "does not exist; name an existing file, or make one with `uvfs image create`";

/// Which part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// A partition, as the kernel numbers them.
    Partition(u32),
    /// All bytes from this offset on.
    Offset(u64),
}

/// How a file is accessed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// To read it, through the host's page cache; to write it, directly where the host can.
    #[default]
    Usual,
    /// Past the host's page cache, or not at all.
    Direct,
    /// Through the host's page cache.
    Buffered,
}

/// An image that is open to be written.
#[derive(Debug)]
pub struct Writable {
    /// The device of the file system.
    pub device: Arc<dyn WriteDevice>,
    /// `direct`, or `buffered: ` and why.
    pub access: String,
}

/// A file, and which part of it is meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The file.
    pub path: PathBuf,
    /// The part.
    pub part: Part,
    /// How it is accessed.
    pub access: Access,
    /// The way of data to it, if that was said.
    pub data: Option<DataMode>,
}

impl Spec {
    /// Reads `PATH`, `PATH?partition=N` or `PATH?offset=SIZE`, each with `direct=true` or `data=journal` behind `?` or `&`; a file
    /// with that very name comes first.
    ///
    /// # Errors
    /// An unknown word behind the question mark.
    pub fn parse(text: &[u8]) -> Result<Self, Failure> {
        let path = |bytes: &[u8]| PathBuf::from(OsString::from(OsStr::from_bytes(bytes)));
        let whole = Self { path: path(text), part: Part::Whole, access: Access::Usual, data: None };
        let Some(mark) = text.iter().rposition(|byte| *byte == b'?') else { return Ok(whole) };
        if whole.path.symlink_metadata().is_ok() {
            return Ok(whole);
        }
        let asked = String::from_utf8_lossy(&text[mark + 1..]).into_owned();
        let refused = |why: &str| {
            let shown = String::from_utf8_lossy(text);
            let ways = "write ?partition=2 or ?offset=1M, and &direct=true or &data=journal behind it or ?direct=true alone";
            Failure::usage(format!("image {shown}: {why}; {ways}"))
        };
        let (mut part, mut access, mut data) = (Part::Whole, Access::Usual, None);
        for one in asked.split('&') {
            match one.split_once('=') {
                Some(("partition" | "offset", _)) if part != Part::Whole => {
                    return Err(refused("two parts"));
                }
                Some(("partition", number)) => match number.parse() {
                    Ok(number @ 1..) => part = Part::Partition(number),
                    _ => return Err(refused("not a number of a partition")),
                },
                Some(("offset", "0")) => part = Part::Offset(0),
                Some(("offset", offset)) => match (offset.parse(), units::parse_size(offset)) {
                    (Ok(bytes), _) | (_, Ok(Size::Bytes(bytes))) => part = Part::Offset(bytes),
                    _ => return Err(refused("not an offset in bytes")),
                },
                Some(("direct", "true")) => access = Access::Direct,
                Some(("direct", "false")) => access = Access::Buffered,
                Some(("data", "journal")) => data = Some(DataMode::Journal),
                Some(("data", "ordered")) => data = Some(DataMode::Ordered),
                _ => return Err(refused("the option behind the question mark is not known")),
            }
        }
        Ok(Self { path: path(&text[..mark]), part, access, data })
    }

    /// Whether `path` can hold an image: a regular file or a block device.
    pub fn can_be(path: &Path) -> bool {
        path.metadata().is_ok_and(|about| about.is_file() || about.file_type().is_block_device())
    }

    /// Opens the file system. `otherwise` ends the refusal of a file that has none: other kinds that it is not, and a
    /// remedy.
    ///
    /// # Errors
    /// The contents found instead, and a remedy.
    pub fn open(&self, otherwise: &str) -> Result<Image, Failure> {
        if self.data.is_some() {
            return Err(self.refused("data= says how an image is written; leave it out to read it"));
        }
        let device = self.device()?;
        Image::open(device.clone())
            .map_err(|error| self.refusal(&(device.clone() as Arc<dyn Device>), &error, otherwise))
    }

    /// Opens the device of the file system to write to it, locks it against all others, and checks that it can be written.
    /// Writes nothing yet. The device's buffers are a part of caches of `caches_bytes`.
    ///
    /// # Errors
    /// As [`Spec::open`]; an obstacle to writing, with the hint that reading may work.
    pub fn open_to_write(&self, otherwise: &str, caches_bytes: u64) -> Result<Writable, Failure> {
        self.check_kind()?;
        let reading = "add --read-only to read it";
        let opened = users::when_unlocked(&self.path, || WritableFile::open(&self.path));
        let opened = opened.map_err(|holder| {
            self.refused(format!(
                "{holder}; end that first (readers may share it, with --read-only)"
            ))
        })?;
        let whole = opened.map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => self.refused(users::of_device(&self.path)),
            io::ErrorKind::NotFound => self.refused(MISSING),
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                self.refused(format!("cannot be written ({}); {reading}", crate::cause(&error)))
            }
            _ => self.refused(crate::cause(&error)),
        })?;
        if let Some(device) = loop_device_of(&self.path) {
            return Err(self.refused(format!(
                "{device} has it as its file; detach that first (losetup -d {device})"
            )));
        }
        let (whole, access) = self.past_the_cache(whole, caches_bytes)?;
        let device: Arc<dyn WriteDevice> = match self.range(&*whole)? {
            None => whole,
            Some((start, length)) => Arc::new(WritableWindow::new(whole, start, length)),
        };
        let image = Image::open(device.clone()).map_err(|error| {
            self.refusal(&(device.clone() as Arc<dyn Device>), &error, otherwise)
        })?;
        let fast = image.recovery().is_some_and(|recovery| recovery.fast_commits);
        if fast {
            let why = "its journal has fast commits, which only e2fsck replays";
            return Err(self.refused(format!("{why}; run e2fsck, or {reading}")));
        }
        uvfs_ext_write::writable(image.superblock())
            .map_err(|error| self.refused(format!("{error}; {reading}")))?;
        Ok(Writable { device, access })
    }

    /// The whole file, directly where that is wanted and the host can; and how it is accessed.
    fn past_the_cache(
        &self,
        whole: WritableFile,
        caches_bytes: u64,
    ) -> Result<(Arc<dyn WriteDevice>, String), Failure> {
        if self.access == Access::Buffered {
            return Ok((Arc::new(whole), "buffered: direct=false was given".into()));
        }
        match DirectFile::new(whole, &self.path, caches_bytes) {
            Ok(direct) => Ok((Arc::new(direct), "direct".into())),
            Err(NotDirect { why, .. }) if self.access == Access::Direct => {
                Err(self.refused(format!("{why}; leave direct=true out")))
            }
            Err(NotDirect { file, why }) => Ok((Arc::new(file), format!("buffered: {why}"))),
        }
    }

    fn refused(&self, why: impl std::fmt::Display) -> Failure {
        Failure::refused(format!("image {}: {why}", self.path.display()))
    }

    /// The part of the file that is meant.
    fn device(&self) -> Result<Arc<dyn Device>, Failure> {
        self.check_kind()?;
        let open = || -> io::Result<Arc<dyn Device>> {
            Ok(match self.access {
                Access::Direct => Arc::new(DirectDevice::open(&self.path)?),
                Access::Usual | Access::Buffered => Arc::new(FileDevice::open(&self.path)?),
            })
        };
        let opened = users::when_unlocked(&self.path, open)
            .map_err(|holder| self.refused(format!("{holder} to write; end that first")))?;
        let whole = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.refused(MISSING),
            io::ErrorKind::InvalidInput if self.access == Access::Direct => {
                self.refused("its file system has no direct reads; leave direct=true out")
            }
            _ => self.refused(crate::cause(&error)),
        })?;
        Ok(match self.range(&*whole)? {
            None => whole,
            Some((start, length)) => Arc::new(Window::new(whole, start, length)),
        })
    }

    /// Refuses what cannot be an image.
    fn check_kind(&self) -> Result<(), Failure> {
        if self.path.is_dir() {
            return Err(self.refused("is a directory; name a file or a block device"));
        }
        // Opening a pipe would wait for a writer.
        if self.path.exists() && !Self::can_be(&self.path) {
            return Err(self.refused("is neither a file nor a block device; name one"));
        }
        Ok(())
    }

    /// Where the part that is meant begins, and how long it is; `None` for all of it.
    fn range(&self, whole: &dyn Device) -> Result<Option<(u64, u64)>, Failure> {
        match self.part {
            Part::Whole => Ok(None),
            Part::Offset(offset) if offset >= whole.length() => {
                Err(self.refused(format!("has {} bytes, and none at {offset}", whole.length())))
            }
            Part::Offset(offset) => Ok(Some((offset, u64::MAX))),
            Part::Partition(number) => {
                let found = partitions(whole).map_err(|error| self.refused(error))?;
                match found.iter().find(|part| part.number == number) {
                    Some(part) => Ok(Some((part.start_bytes, part.length_bytes))),
                    None if found.is_empty() => Err(self.refused("has no partition table")),
                    None => {
                        Err(self
                            .refused(format!("has no partition {number}, but {}", numbers(&found))))
                    }
                }
            }
        }
    }

    /// Why it cannot be read, with a remedy.
    fn refusal(&self, device: &Arc<dyn Device>, error: &Error, otherwise: &str) -> Failure {
        let parts = match (error, self.part) {
            (Error::NotExt, Part::Whole) => partitions(&**device).unwrap_or_default(),
            _ => Vec::new(),
        };
        let has_ext = |part: &&Partition| {
            let part = Window::new(device.clone(), part.start_bytes, part.length_bytes);
            !matches!(Image::open(Arc::new(part)), Err(Error::NotExt | Error::Io(_)))
        };
        if let Some(first) = parts.iter().find(has_ext) {
            let (path, number) = (self.path.display(), first.number);
            return self.refused(format!(
                "{error}, but {}; name one: {path}?partition={number}",
                numbers(&parts)
            ));
        }
        // Behind the partitions: the first sector of FAT and NTFS looks like a table of them.
        if let (Error::NotExt, Some((name, remedy))) = (error, kinds::named(&**device)) {
            return self.refused(format!("is {name}: {remedy}"));
        }
        if !parts.is_empty() {
            return self
                .refused(format!("{error}, and none in {}; name another image", numbers(&parts)));
        }
        match error {
            Error::Truncated { .. } => {
                self.refused(format!("{error}; copy the whole of it, or lengthen it with truncate"))
            }
            Error::NotExt => self.refused(format!("{error}{otherwise}")),
            Error::Corrupt(_) => self.refused(format!("{error}; e2fsck can repair a copy of it")),
            _ => self.refused(error),
        }
    }
}

/// The loop device that has `path` as its file, if one has: it locks nothing, and the kernel may have it mounted.
fn loop_device_of(path: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let ours = path.metadata().ok().filter(|about| about.is_file())?;
    for entry in std::fs::read_dir("/sys/block").ok()?.filter_map(Result::ok) {
        let Ok(file) = std::fs::read_to_string(entry.path().join("loop/backing_file")) else {
            continue;
        };
        let theirs = Path::new(file.trim_end()).metadata();
        if theirs.is_ok_and(|theirs| (theirs.dev(), theirs.ino()) == (ours.dev(), ours.ino())) {
            return Some(format!("/dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    None
}

fn numbers(parts: &[Partition]) -> String {
    let numbers: Vec<_> = parts.iter().map(|part| part.number.to_string()).collect();
    let word = if numbers.len() == 1 { "partition" } else { "partitions" };
    format!("{word} {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_read_and_nonsense_is_refused() {
        let part = |text: &str| Spec::parse(text.as_bytes()).map(|spec| spec.part);
        assert_eq!(part("/no/disk.img").unwrap(), Part::Whole);
        assert_eq!(part("/no/disk.img?partition=3").unwrap(), Part::Partition(3));
        assert_eq!(part("/no/disk.img?offset=1M").unwrap(), Part::Offset(1 << 20));
        assert_eq!(part("/no/disk.img?offset=512").unwrap(), Part::Offset(512));
        assert_eq!(part("/no/disk.img?offset=0").unwrap(), Part::Offset(0));
        let access = |text: &str| Spec::parse(text.as_bytes()).map(|spec| (spec.part, spec.access));
        assert_eq!(access("/no/disk.img").unwrap(), (Part::Whole, Access::Usual));
        assert_eq!(access("/no/disk.img?direct=true").unwrap(), (Part::Whole, Access::Direct));
        let both = access("/no/disk.img?partition=3&direct=true").unwrap();
        assert_eq!(both, (Part::Partition(3), Access::Direct));
        let offset = access("/no/disk.img?direct=false&offset=1M").unwrap();
        assert_eq!(offset, (Part::Offset(1 << 20), Access::Buffered));
        let data = |text: &str| Spec::parse(text.as_bytes()).map(|spec| (spec.access, spec.data));
        assert_eq!(data("/no/disk.img?direct=true").unwrap(), (Access::Direct, None));
        let journal = data("/no/disk.img?direct=false&data=journal").unwrap();
        assert_eq!(journal, (Access::Buffered, Some(DataMode::Journal)));
        let ordered = data("/no/disk.img?data=ordered").unwrap();
        assert_eq!(ordered, (Access::Usual, Some(DataMode::Ordered)));
        for bad in [
            "?data=writeback",
            "?partition=0",
            "?partition=x",
            "?offset=-1",
            "?offset=lots",
            "?part=1",
            "?",
            "?direct=yes",
            "?partition=1&offset=1M",
        ] {
            let refusal = part(&format!("/no/disk.img{bad}")).unwrap_err().to_string();
            assert!(refusal.contains("write ?partition=2 or ?offset=1M"), "{refusal}");
        }
    }

    #[test]
    fn a_file_whose_name_has_a_question_mark_is_that_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk?partition=1");
        std::fs::write(&path, "").unwrap();
        let spec = Spec::parse(path.as_os_str().as_bytes()).unwrap();
        assert_eq!(spec, Spec { path, part: Part::Whole, access: Access::Usual, data: None });
    }
}
