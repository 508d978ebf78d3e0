//! A tree of small files, as one `tar` archive: the input of the cases that unpack and walk.
//!
//! # Boundary
//! Writes plain ustar (POSIX.1-1988): a 512-byte header per entry, contents padded to 512 bytes, two
//! empty blocks at the end. Contents and sizes come from a fixed seed, so every machine unpacks the
//! same tree.
//!
//! # Why
//! Written here rather than packed from files, so that making the input does not warm the host's
//! caches with the very names that are measured later.

use crate::client::Random;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Files in one directory.
const FILES_PER_DIRECTORY: usize = 50;
/// Directories in one group of directories.
const DIRECTORIES_PER_GROUP: usize = 25;
/// Sizes are below this; one file in eight is empty.
const SIZE_MAX: u64 = 6000;

/// An archive and its contents.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    /// Where the archive is.
    pub(crate) archive: PathBuf,
    /// Files in it.
    pub(crate) files: usize,
    /// Files that are not empty.
    pub(crate) not_empty: usize,
}

/// The archive of `files` files in `folder`, made if it is not there.
pub(crate) fn archive(folder: &Path, files: usize) -> io::Result<Tree> {
    let archive = folder.join(format!("tree-{files}.tar"));
    let not_empty = sizes(files).filter(|&size| size > 0).count();
    if !archive.exists() {
        // Under a temporary name until it is complete: a run may be killed.
        let draft = folder.join(format!("tree-{files}.{}", std::process::id()));
        let mut out = BufWriter::new(fs::File::create(&draft)?);
        write_archive(&mut out, files)?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.sync_all()?;
        fs::rename(&draft, &archive)?;
    }
    Ok(Tree { archive, files, not_empty })
}

/// The paths of its files, in the order of the archive.
pub(crate) fn paths(files: usize) -> impl Iterator<Item = String> {
    (0..files).map(|at| format!("{}file-{at:06}.txt", folder(at)))
}

/// The folder of a file.
fn folder(at: usize) -> String {
    let directory = at / FILES_PER_DIRECTORY;
    format!("g{:03}/d{directory:05}/", directory / DIRECTORIES_PER_GROUP)
}

fn sizes(files: usize) -> impl Iterator<Item = u64> {
    let mut random = Random(1);
    (0..files).map(move |_| match random.next() {
        number if number % 8 == 0 => 0,
        number => 1 + (number >> 3) % SIZE_MAX,
    })
}

fn write_archive(out: &mut impl Write, files: usize) -> io::Result<()> {
    let contents: Vec<u8> = (b'a'..=b'z').cycle().take(8192).collect();
    for (at, size) in sizes(files).enumerate() {
        let directory = at / FILES_PER_DIRECTORY;
        let group = directory / DIRECTORIES_PER_GROUP;
        if at % (FILES_PER_DIRECTORY * DIRECTORIES_PER_GROUP) == 0 {
            out.write_all(&header(&format!("g{group:03}/"), 0, b'5'))?;
        }
        let folder = folder(at);
        if at % FILES_PER_DIRECTORY == 0 {
            out.write_all(&header(&folder, 0, b'5'))?;
        }
        out.write_all(&header(&format!("{folder}file-{at:06}.txt"), size, b'0'))?;
        let size = usize::try_from(size).unwrap_or(0).min(contents.len());
        out.write_all(&contents[..size])?;
        out.write_all(&[0; 512][..size.next_multiple_of(512) - size])?;
    }
    out.write_all(&[0; 1024])
}

/// A ustar header; `kind` is '0' for a file and '5' for a directory.
fn header(name: &str, size: u64, kind: u8) -> [u8; 512] {
    let mut block = [0_u8; 512];
    let mut put = |at: usize, text: &str| {
        block[at..at + text.len()].copy_from_slice(text.as_bytes());
    };
    let mode = if kind == b'5' { 0o755 } else { 0o644 };
    put(0, name);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000");
    put(116, "0000000");
    put(124, &format!("{size:011o}"));
    put(136, &format!("{:011o}", 1_700_000_000));
    put(148, "        ");
    put(156, if kind == b'5' { "5" } else { "0" });
    put(257, "ustar\x0000");
    put(265, "root");
    put(297, "root");
    // The sum of all bytes, itself taken as blanks.
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn tar_reads_the_archive_as_it_was_meant() {
        let folder = std::env::temp_dir().join(format!("uvfs-bench-tree-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let tree = archive(&folder, 120).unwrap();
        assert_eq!((tree.files, archive(&folder, 120).unwrap().not_empty), (120, tree.not_empty));
        let Ok(listing) = Command::new("tar").arg("-tvf").arg(&tree.archive).output() else {
            uvfs_skip::lacking("no tar here");
            return;
        };
        assert!(listing.status.success(), "{listing:?}");
        let text = String::from_utf8(listing.stdout).unwrap();
        let files: Vec<&str> = text.lines().filter(|line| line.starts_with('-')).collect();
        assert_eq!(files.len(), 120);
        assert_eq!(text.lines().count() - files.len(), 4, "a group and three directories");
        let empty = |line: &&&str| line.split_whitespace().nth(2) == Some("0");
        assert_eq!(files.len() - files.iter().filter(empty).count(), tree.not_empty);
        fs::remove_dir_all(&folder).unwrap();
    }
}
