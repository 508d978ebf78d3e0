//! Devices that fail: the caller gets an error, reading continues, and the next writer can recover the image.

use crate::images::{Workshop, at, open, tools, whole};
use crate::operations::new;
use std::ops::ControlFlow;
use std::sync::Arc;
use uvfs_ext::{Kind, ROOT};
use uvfs_ext_write::device::testing::{Faults, Faulty, Random};
use uvfs_ext_write::{Error, Losses, Volume, WritableMemory};

/// Makes, writes, renames and removes until something fails; returns the files that were made stable, with their contents.
fn work(volume: &Volume) -> (Vec<(String, u8)>, Error) {
    let mut random = Random(5);
    let mut stable = Vec::new();
    for step in 0..10_000_u64 {
        let name = format!("f{step}");
        let mut one = || -> Result<(), Error> {
            let file = volume.create(ROOT, name.as_bytes(), &new(Kind::Regular))?;
            volume.write(file, 0, &[step as u8; 3000])?;
            if random.below(3) == 0 {
                volume.fsync(file)?;
                stable.push((name.clone(), step as u8));
            } else if random.below(2) == 0 {
                volume.rename(ROOT, name.as_bytes(), ROOT, b"last")?;
            } else {
                volume.unlink(ROOT, name.as_bytes())?;
            }
            Ok(())
        };
        if let Err(error) = one() {
            return (stable, error);
        }
    }
    panic!("the plan failed nothing");
}

/// The changes that `volume` reports as lost are those that the `next` mount does not find. Returns their bytes.
fn check_losses(losses: &Losses, volume: &Volume, next: &Volume) -> u64 {
    let Losses::Some(lost) = losses else { panic!("the image is there") };
    let mut numbers = Vec::new();
    let all = volume.list(ROOT, 0, &mut |entry| {
        numbers.extend((entry.kind == Some(Kind::Regular)).then_some(entry.inode));
        ControlFlow::Continue(())
    });
    all.unwrap();
    for number in numbers {
        let contents = |of: &Volume| {
            let inode = of.inode(number).ok()?;
            let mut read = vec![0; inode.size() as usize];
            of.read(number, 0, &mut read).unwrap();
            Some((inode.generation(), read))
        };
        let (now, then) = (contents(volume).unwrap(), contents(next));
        let reported = lost.iter().find(|lost| lost.inode.number == number);
        let missing = if then.is_some_and(|then| then == now) { 0 } else { now.1.len() as u64 };
        assert_eq!(reported.map_or(0, |reported| reported.bytes), missing, "inode {number}");
    }
    lost.iter().map(|lost| lost.bytes).sum()
}

#[test]
fn after_a_failed_write_or_flush_the_image_is_recovered_whole() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "4M", None);
    let writes = (0..30).map(|at| Faults { writes: Some(at * 5 / 2), ..Faults::default() });
    let flushes = (0..12).map(|at| Faults { flushes: Some(at), ..Faults::default() });
    let mut bytes_lost = 0;
    for (number, plan) in writes.chain(flushes).enumerate() {
        let device = Arc::new(Faulty::new(WritableMemory::new(image.clone())));
        let volume = Volume::open(device.clone()).unwrap();
        device.plan(plan);
        let (stable, error) = work(&volume);
        assert!(matches!(error, Error::Io(_) | Error::Ended(_)), "{plan:?}: {error}");
        device.plan(Faults::default());
        // It stays as it is, well or not, for reading and for writing.
        volume.lookup(ROOT, b"none").unwrap();
        for (name, fill) in &stable {
            let file = volume.lookup(ROOT, name.as_bytes()).unwrap().unwrap();
            let mut read = [0; 3001];
            assert_eq!(volume.read(file, 0, &mut read).unwrap(), 3000);
            assert_eq!(read[..3000], [*fill; 3000], "{plan:?}");
        }
        // A failed write of data is one error; a failed commit ends writing.
        let ended = matches!(error, Error::Ended(_));
        let again = volume.create(ROOT, b"again", &new(Kind::Regular));
        assert_eq!(matches!(again, Err(Error::Ended(_))), ended, "{plan:?}: {again:?}");
        assert_eq!(matches!(volume.close(), Err(Error::Ended(_))), ended);
        let lost = ended.then(|| volume.losses().unwrap());
        let device = Arc::new(WritableMemory::new(device.device().bytes()));
        let next = Volume::open(device.clone()).unwrap();
        bytes_lost += lost.map_or(0, |lost| check_losses(&lost, &volume, &next));
        next.close().unwrap();
        if number % 4 == 0 {
            let (status, printed, _) = workshop.fsck(&device.bytes(), &["-fn"]);
            assert_eq!(status, 0, "{plan:?}: {printed}");
        }
        let image = open(device.bytes());
        for (name, fill) in &stable {
            assert_eq!(whole(&image, &at(&image, name)), [*fill; 3000], "{plan:?}");
        }
    }
    assert!(bytes_lost > 0);
}

/// A flush that failed for one caller was forgotten: the kernel reports a lost page once, so the flush of the next commit
/// succeeded, and its record said that lost blocks of the log were there.
#[test]
fn a_failed_flush_outside_a_commit_ends_writing_too() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "4M", None);
    for of_all in [false, true] {
        let device = Arc::new(Faulty::new(WritableMemory::new(image.clone())));
        let volume = Volume::open(device.clone()).unwrap();
        let file = volume.create(ROOT, b"file", &new(Kind::Regular)).unwrap();
        volume.write(file, 0, &[1; 1024]).unwrap();
        volume.fsync(file).unwrap();
        device.plan(Faults { flushes: Some(0), once: true, ..Faults::default() });
        let synced = if of_all { volume.sync() } else { volume.fdatasync(file) };
        let error = synced.unwrap_err();
        assert!(matches!(error, Error::Ended(_)), "{error}");
        let error = volume.create(ROOT, b"next", &new(Kind::Regular)).unwrap_err();
        assert!(matches!(error, Error::Ended(_)), "{error}");
        assert!(matches!(volume.fsync(file), Err(Error::Ended(_))));
        assert!(matches!(volume.close(), Err(Error::Ended(_))));
        let mut read = [0; 1024];
        assert_eq!(volume.read(file, 0, &mut read).unwrap(), 1024);
    }
}

/// The device refuses one piece of data: the caller gets the error, the allocated blocks are free again, and the next write works.
#[test]
fn a_failed_write_of_data_costs_that_write_alone() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "4M", None);
    let device = Arc::new(Faulty::new(WritableMemory::new(image)));
    let volume = Volume::open(device.clone()).unwrap();
    let file = volume.create(ROOT, b"file", &new(Kind::Regular)).unwrap();
    volume.allocate(file, 0..4096, uvfs_ext_write::Grow::Nothing).unwrap();
    volume.sync().unwrap();
    let before = volume.room();
    for offset in [0, 4096, 50_000] {
        device.plan(Faults { writes: Some(0), once: true, ..Faults::default() });
        let error = volume.write(file, offset, &[7; 2000]).unwrap_err();
        assert!(matches!(error, Error::Io(_)), "{offset}: {error}");
        assert_eq!(volume.inode(file).unwrap().size(), 0, "{offset}");
    }
    assert_eq!(volume.room(), before);
    for offset in [0, 4096, 50_000] {
        volume.write(file, offset, &[7; 2000]).unwrap();
    }
    volume.close().unwrap();
    let bytes = device.device().bytes();
    let (status, printed, _) = workshop.fsck(&bytes, &["-fn"]);
    assert_eq!(status, 0, "{printed}");
    let image = open(bytes);
    let found = whole(&image, &at(&image, "file"));
    assert_eq!(
        (found.len(), &found[..2000], &found[2000..4096]),
        (52_000, &[7; 2000][..], &[0; 2096][..])
    );
}
