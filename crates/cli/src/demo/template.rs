//! An empty ext4 image of 64 MiB in a thousand bytes.
//!
//! mke2fs 1.47 made it once: `mke2fs -q -F -t ext4 -b 4096 -N 1024 -E root_owner=0:0` of a file of 64 MiB. To make it
//! again: `UVFS_WRITE_TEMPLATE=1 cargo test -p uvfs template`.
//!
//! ```text
//! piece:  number (LEB128)   bytes
//!         length << 1 | 1   one byte, repeated
//!         length << 1       so many bytes
//! ```
//!
//! # Why
//! Nearly all of a new image is zeros, and most of the rest is long runs of one byte. So a crate for compression would
//! save 400 bytes. Weakness: all images of it have one UUID; they live for seconds.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The image, packed.
const PACKED: &[u8] = include_bytes!("template.bin");

/// Makes the file `path` with the image in it; it takes room only for what is not zero.
///
/// # Errors
/// Those of the file system.
pub(super) fn unpack(path: &Path) -> io::Result<()> {
    let file = File::create_new(path)?;
    let (mut rest, mut at) = (PACKED, 0);
    while !rest.is_empty() {
        let piece = next(&mut rest).ok_or(io::ErrorKind::InvalidData)?;
        match piece {
            Piece::Run(0, length) => at += length as u64,
            Piece::Run(byte, length) => {
                file.write_all_at(&vec![byte; length], at)?;
                at += length as u64;
            }
            Piece::Bytes(bytes) => {
                file.write_all_at(bytes, at)?;
                at += bytes.len() as u64;
            }
        }
    }
    file.set_len(at)
}

/// A part of a packed image.
enum Piece<'a> {
    /// A byte, so many times.
    Run(u8, usize),
    Bytes(&'a [u8]),
}

/// Takes the first piece of `rest`.
fn next<'a>(rest: &mut &'a [u8]) -> Option<Piece<'a>> {
    let (mut number, mut shift) = (0_usize, 0);
    loop {
        let (&byte, behind) = rest.split_first()?;
        *rest = behind;
        number |= usize::from(byte & 0x7f).checked_shl(shift)?;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
    }
    let (length, is_run) = (number >> 1, number & 1 == 1);
    let (bytes, behind) = rest.split_at_checked(if is_run { 1 } else { length })?;
    *rest = behind;
    Some(if is_run { Piece::Run(bytes[0], length) } else { Piece::Bytes(bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;
    use std::process::Command;

    /// Shorter runs take more room than they save.
    const RUN_MIN: usize = 8;

    fn pack(image: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        let number = |packed: &mut Vec<u8>, mut number: usize| {
            while number >= 0x80 {
                packed.push(number as u8 | 0x80);
                number >>= 7;
            }
            packed.push(number as u8);
        };
        let mut bytes = Vec::new();
        let flush = |packed: &mut Vec<u8>, bytes: &mut Vec<u8>| {
            if !bytes.is_empty() {
                number(packed, bytes.len() << 1);
                packed.append(bytes);
            }
        };
        for run in image.chunk_by(|one, next| one == next) {
            if run.len() < RUN_MIN {
                bytes.extend_from_slice(run);
                continue;
            }
            flush(&mut packed, &mut bytes);
            number(&mut packed, run.len() << 1 | 1);
            packed.push(run[0]);
        }
        flush(&mut packed, &mut bytes);
        packed
    }

    #[test]
    fn the_image_is_sound_and_takes_little_room() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        if std::env::var_os("UVFS_WRITE_TEMPLATE").is_some() {
            File::create(&path).unwrap().set_len(64 << 20).unwrap();
            let mut make = Command::new("mke2fs");
            make.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-N", "1024"]);
            make.args(["-E", "root_owner=0:0"]);
            assert!(make.arg(&path).status().unwrap().success());
            let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/src/demo/template.bin");
            std::fs::write(packed, pack(&std::fs::read(&path).unwrap())).unwrap();
            return;
        }
        unpack(&path).unwrap();
        let about = path.metadata().unwrap();
        assert_eq!(about.len(), 64 << 20);
        assert!(about.blocks() * 512 < 2 << 20 && PACKED.len() < 2000, "{}", PACKED.len());
        assert!(pack(&std::fs::read(&path).unwrap()) == PACKED, "packed and unpacked");
        match Command::new("e2fsck").arg("-fn").arg(&path).output() {
            Ok(checked) => assert!(checked.status.success(), "{checked:?}"),
            Err(error) => uvfs_skip::lacking(format_args!("e2fsck: {error}")),
        }
    }

    #[test]
    fn a_torn_template_is_no_panic() {
        for packed in [&[0x80][..], &[0x03], &[0x04, 1], &[0xff; 20]] {
            assert!(next(&mut &*packed).is_none(), "{packed:?}");
        }
    }
}
