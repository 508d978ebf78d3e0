//! Direct devices against models, on the file system of the checkout.

use super::testing::Random;
use super::*;
use std::path::Path;
use uvfs_ext::device::direct::{AlignedBuffer, PAGE};

/// The folder for temporary files may be in memory.
pub(super) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
}

/// The file, directly; `None`, with a note, where the checkout's file system cannot.
pub(super) fn direct(path: &Path) -> Option<DirectFile> {
    let opened = DirectFile::new(WritableFile::open(path).unwrap(), path, 0);
    opened.map_err(|refused| uvfs_skip::lacking(format_args!("checkout: {}", refused.why))).ok()
}

/// A device for direct writes with sectors of so many bytes.
fn with_sector(path: &Path, sector: usize) -> Option<DirectFile> {
    drop(direct(path)?);
    let file = WritableFile::open(path).unwrap();
    let (opened, _) = DirectFile::open(&file, path).unwrap();
    Some(DirectFile::with_units(file, opened, (sector, sector.min(PAGE)), 0))
}

/// Cuts `bytes` into slices of any size; some of them are aligned.
fn cut<'b>(bytes: &'b [u8], random: &mut Random) -> Vec<IoSlice<'b>> {
    let mut slices = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let size = match random.below(4) {
            0 => random.below(5),
            1 => random.below(700),
            2 => 4096,
            _ => random.below(200_000),
        };
        let (now, behind) = rest.split_at(rest.len().min(size as usize));
        slices.push(IoSlice::new(now));
        rest = behind;
    }
    slices
}

/// Two writers of neighbouring bytes each wrote the whole sector, and one lost its bytes.
#[test]
fn threads_that_write_any_ranges_beside_each_other_lose_nothing() {
    const THREADS: u64 = 4;
    // It ends within a sector.
    const LENGTH: usize = 600_123;
    for (sector, stripe) in [(512, 100), (4096, 700), (512, 30_011)] {
        let folder = folder();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; LENGTH]).unwrap();
        let Some(device) = with_sector(&path, sector) else { return };
        let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
            let worker = |thread: u64| {
                let device = &device;
                scope.spawn(move || works(device, thread, THREADS, stripe, LENGTH))
            };
            let workers: Vec<_> = (0..THREADS).map(worker).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        device.flush().unwrap();
        let owner = |at: usize| (at / stripe) % THREADS as usize;
        let expected: Vec<u8> = (0..LENGTH).map(|at| models[owner(at)][at]).collect();
        // Through the host's cache: the kernel keeps the two in step.
        assert!(std::fs::read(&path).unwrap() == expected, "sectors of {sector}");
        let mut whole = vec![0; LENGTH];
        device.read_at(0, &mut whole).unwrap();
        assert!(whole == expected, "sectors of {sector}");
        assert!(device.counts().buffer_bytes <= 256 << 10);
    }
}

/// Writes ranges within the stripes of this thread and reads any range. Returns the device as this thread knows it.
fn works(device: &DirectFile, thread: u64, threads: u64, stripe: usize, length: usize) -> Vec<u8> {
    let mut random = Random(thread);
    let mut model = vec![0; length];
    let mut memory = AlignedBuffer::new(40_000);
    for step in 0..300_u64 {
        let own = random.below((length / stripe) as u64) as usize / threads as usize;
        let start = (own * threads as usize + thread as usize) * stripe;
        if start >= length {
            continue;
        }
        let skipped = random.below(stripe as u64) as usize * (step % 3 != 0) as usize;
        let bytes = random.below((stripe - skipped) as u64 + 1) as usize;
        let (from, to) = (start + skipped, (start + skipped + bytes).min(length));
        let from = from.min(to);
        let source = &mut memory.bytes_mut()[from % 16..][..to - from];
        source.fill_with(|| random.next() as u8);
        device.write_at(from as u64, &cut(source, &mut random)).unwrap();
        model[from..to].copy_from_slice(source);
        let from = random.below(length as u64) as usize;
        let to = length.min(from + random.below(20_000) as usize);
        let mut read = vec![0; to - from];
        device.read_at(from as u64, &mut read).unwrap();
        for (at, byte) in (from..to).zip(&read) {
            let is_own = (at / stripe) as u64 % threads == thread;
            assert!(!is_own || *byte == model[at], "byte {at} in step {step}");
        }
    }
    model
}

/// Each request was one that the kernel refused: the place, the length or the memory was not aligned.
#[test]
fn ranges_of_any_place_length_and_memory_are_written() {
    const LENGTH: usize = 3 << 20;
    for sector in [512, 4096, 16 << 10] {
        let folder = folder();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![0; LENGTH]).unwrap();
        let Some(device) = with_sector(&path, sector) else { return };
        let mut random = Random(sector as u64);
        let mut model = vec![0; LENGTH];
        let mut source = AlignedBuffer::new(LENGTH + PAGE);
        let mut into = AlignedBuffer::new(LENGTH + PAGE);
        for step in 0..150 {
            let unit = [1, 512, 4096][step % 3];
            let from = random.below((LENGTH / unit) as u64) as usize * unit;
            let most = [5000, 300_000, LENGTH][(random.below(3)) as usize].min(LENGTH - from);
            let bytes = random.below((most / unit) as u64 + 1) as usize * unit;
            let shift = [0, 0, 16, 512][random.below(4) as usize];
            let part = &mut source.bytes_mut()[shift..shift + bytes];
            let fill = random.next();
            part.iter_mut().enumerate().for_each(|(at, byte)| *byte = (at as u64 ^ fill) as u8);
            match random.below(2) {
                0 => device.write_at(from as u64, &[IoSlice::new(part)]).unwrap(),
                _ => device.write_at(from as u64, &cut(part, &mut random)).unwrap(),
            }
            model[from..from + bytes].copy_from_slice(part);
            let shift = [0, 16][random.below(2) as usize];
            let from = random.below(LENGTH as u64 / 512) as usize * 512;
            let bytes = random.below((LENGTH - from) as u64 + 1) as usize;
            let part = &mut into.bytes_mut()[shift..shift + bytes];
            device.read_at(from as u64, part).unwrap();
            assert!(*part == model[from..from + bytes], "{bytes} bytes from {from}, step {step}");
        }
        assert!(std::fs::read(&path).unwrap() == model);
        let mut byte = [0];
        let behind = device.read_at(LENGTH as u64, &mut byte).unwrap_err();
        assert_eq!(behind.kind(), io::ErrorKind::UnexpectedEof);
        device.read_at(u64::MAX, &mut byte).unwrap_err();
    }
}

/// A direct write of the last sector would have lengthened the file to a whole sector.
#[test]
fn a_file_that_ends_within_a_sector_keeps_its_length() {
    for length in [100, 5000, 8192 + 513] {
        let folder = folder();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![1; length]).unwrap();
        let Some(device) = direct(&path) else { return };
        assert_eq!(device.length(), length as u64);
        let all = vec![2; length];
        device.write_at(0, &[IoSlice::new(&all)]).unwrap();
        device.write_at(length as u64 - 3, &[IoSlice::new(b"end")]).unwrap();
        device.flush().unwrap();
        let mut read = vec![0; length];
        device.read_at(0, &mut read).unwrap();
        assert!(read[..length - 3] == all[3..] && read.ends_with(b"end"), "{length}");
        assert_eq!(std::fs::read(&path).unwrap(), read);
        let error = device.write_at(length as u64 - 1, &[IoSlice::new(b"ab")]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

/// Aligned memory costs no copy, and others' slices share one request and its buffer.
#[test]
fn aligned_slices_need_no_buffer() {
    let folder = folder();
    let path = folder.path().join("image");
    std::fs::write(&path, vec![0; 4 << 20]).unwrap();
    let Some(device) = direct(&path) else { return };
    let mut memory = AlignedBuffer::new(3 << 20);
    memory.bytes_mut().fill(7);
    let pages: Vec<_> = memory.bytes().chunks(PAGE).map(IoSlice::new).collect();
    device.write_at(PAGE as u64, &pages).unwrap();
    device.read_at(PAGE as u64, memory.bytes_mut()).unwrap();
    assert!(memory.bytes().iter().all(|byte| *byte == 7));
    assert_eq!(device.counts(), DeviceCounts { is_direct: true, ..DeviceCounts::default() });
    let page = &memory.bytes()[1..PAGE + 1];
    device.write_at(0, &[IoSlice::new(page)]).unwrap();
    let counts = device.counts();
    assert_eq!((counts.buffer_bytes, counts.partial_writes), (PAGE as u64, 0));
    device.write_at(1, &[IoSlice::new(b"part")]).unwrap();
    assert_eq!(device.counts().partial_writes, 1);
    let mut read = [0; 6];
    device.read_at(0, &mut read).unwrap();
    assert_eq!(&read, b"\x07part\x07");
}

/// The refusals are those of the file: without them a write gave a file that was cut its length back.
#[test]
fn a_direct_file_that_was_removed_or_cut_is_noticed() {
    let folder = folder();
    let path = folder.path().join("image");
    std::fs::write(&path, vec![0; 20_000]).unwrap();
    let Some(device) = direct(&path) else { return };
    let other = WritableFile::open(&path).unwrap_err();
    assert_eq!(other.kind(), io::ErrorKind::WouldBlock);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(9_000).unwrap();
    assert!(device.check().unwrap_err().to_string().contains("cut to 9000 bytes"));
    device.write_at(16_384, &[IoSlice::new(&[1; 512])]).unwrap_err();
    assert_eq!(path.metadata().unwrap().len(), 9_000);
    let mut beyond = [0; 512];
    device.read_at(8_192, &mut beyond).unwrap();
    let error = device.read_at(16_384, &mut beyond).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(device.check().unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_file_in_memory_stays_with_the_host() {
    let Ok(folder) = tempfile::tempdir_in("/dev/shm") else {
        return uvfs_skip::lacking("no /dev/shm");
    };
    let path = folder.path().join("image");
    std::fs::write(&path, vec![0; 20_000]).unwrap();
    let refused = DirectFile::new(WritableFile::open(&path).unwrap(), &path, 0).unwrap_err();
    assert_eq!(refused.why, "its file system is in memory");
    assert!(!refused.file.counts().is_direct);
    let other = folder.path().join("other");
    std::fs::write(&other, "").unwrap();
    std::fs::rename(other, &path).unwrap();
    refused.file.check().unwrap_err();
}
