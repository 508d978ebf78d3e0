//! Floor: an image that is written past the host's page cache, on disks of any sector size, in a part of a disk, and on hosts that
//! fail or are full. `e2fsck` judges each image. Needs root, `/dev/fuse`, loop devices and mke2fs; is skipped where they lack.

use crate::twin::{Kernel, done, text};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Moment, On, Plan};
use uvfs_ext::{Kind, ROOT};
use uvfs_ext_write::{DirectFile, Error, New, Volume, WritableFile, WritableWindow, WriteDevice};
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_tests::{Watchdog, hostile, unmount_idle, vfs_over};
use uvfs_vfs::VfsConfig;

const FILES: u64 = 12;

/// Whether the tests of this file can run.
fn can_run() -> bool {
    if !uvfs_skip::can_mount() {
        return false;
    }
    if !Path::new("/dev/loop-control").exists() {
        uvfs_skip::lacking("no loop devices");
        return false;
    }
    if let Err(error) = Command::new("mke2fs").arg("-V").output() {
        uvfs_skip::lacking(format_args!("mke2fs: {error}"));
        return false;
    }
    true
}

/// In the build folder: that for temporary files may be in memory.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

/// A new image of so many MiB and blocks of so many bytes.
fn image(path: &Path, block: u32, mib: u64) {
    File::create(path).unwrap().set_len(mib << 20).unwrap();
    done("mke2fs", &["-q", "-F", "-t", "ext4", "-b", &block.to_string(), text(path)]).unwrap();
}

fn sound(path: &Path) {
    done("e2fsck", &["-fn", text(path)]).unwrap();
}

/// The device, past the host's cache; `None`, with a note, where the host cannot.
fn direct(path: &Path) -> Option<DirectFile> {
    let opened = DirectFile::new(WritableFile::open(path).unwrap(), path, 0);
    opened.map_err(|refused| uvfs_skip::lacking(format_args!("host: {}", refused.why))).ok()
}

fn new_file() -> New<'static> {
    let (permissions, device) = (0o644, (0, 0));
    New { kind: Kind::Regular, permissions, uid: 0, gid: 0, device, target: b"", xattrs: &[] }
}

fn bytes(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at ^ at >> 8 ^ (seed * 37)) as u8).collect()
}

/// The contents of file `number`, of an odd length.
fn contents(number: u64) -> Vec<u8> {
    bytes(number, 1 + (number * number * 1733) as usize)
}

/// Writes files in odd pieces, four threads at once.
fn fill(volume: &Volume) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in (0..FILES).filter(|number| number % 4 == thread) {
                    let name = format!("file {number}");
                    let file = volume.create(ROOT, name.as_bytes(), &new_file()).unwrap();
                    let all = contents(number);
                    let mut at = 0;
                    for piece in all.chunks(777 + 500 * number as usize) {
                        volume.write(file, at, piece).unwrap();
                        at += piece.len() as u64;
                    }
                    volume.fsync(file).unwrap();
                }
            });
        }
    });
}

fn check(volume: &Volume) {
    for number in 0..FILES {
        let name = format!("file {number}");
        let file = volume.lookup(ROOT, name.as_bytes()).unwrap().expect("it was written");
        let expected = contents(number);
        let mut read = vec![0; expected.len()];
        assert_eq!(volume.read(file, 0, &mut read).unwrap(), read.len(), "{name}");
        assert!(read == expected, "{name}");
    }
}

/// Opens it, fills it and closes it; opens it again and reads everything.
fn used(device: &Arc<dyn WriteDevice>) {
    let volume = Volume::open(device.clone()).unwrap();
    fill(&volume);
    check(&volume);
    volume.close().unwrap();
    let volume = Volume::open(device.clone()).unwrap();
    check(&volume);
    volume.close().unwrap();
}

/// A loop device, detached when it is dropped.
struct Loop(PathBuf);

impl Loop {
    fn over(image: &Path, sector: usize) -> Option<Self> {
        let sector = sector.to_string();
        let mut losetup = Command::new("losetup");
        let made = losetup.args(["--find", "--show", "-b", &sector]).arg(image).output().unwrap();
        if !made.status.success() {
            let printed = String::from_utf8_lossy(&made.stderr);
            uvfs_skip::lacking(format_args!("losetup: {}", printed.trim()));
            return None;
        }
        Some(Self(String::from_utf8_lossy(&made.stdout).trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = done("losetup", &["--detach", text(&self.0)]);
    }
}

/// Bug: the node of a block device lies in /dev, so every device was taken for a file in memory and written through the host's
/// cache. A disk refuses requests for less than a sector, and blocks may be smaller than one.
#[test]
fn disks_of_both_sector_sizes_are_written() {
    if !can_run() {
        return;
    }
    let folder = folder();
    for (sector, block) in [(512, 1024), (512, 4096), (4096, 1024), (4096, 4096)] {
        let path = folder.path().join("disk.img");
        image(&path, block, 24);
        let Some(disk) = Loop::over(&path, sector) else { return };
        let opened = DirectFile::new(WritableFile::open(&disk.0).unwrap(), &disk.0, 0);
        let device: Arc<dyn WriteDevice> = Arc::new(opened.unwrap());
        used(&device);
        assert!(device.counts().partial_writes > 0, "pieces end anywhere");
        drop((device, disk));
        sound(&path);
    }
}

/// A partition begins where the disk says, and an offset anywhere.
#[test]
fn a_part_of_a_disk_is_written_and_nothing_beside_it() {
    if !can_run() {
        return;
    }
    let folder = folder();
    let (alone, whole) = (folder.path().join("alone.img"), folder.path().join("disk.img"));
    for (offset, block) in [(63 * 512, 4096), (1000, 4096), (1000, 1024)] {
        image(&alone, block, 24);
        let length = 24 << 20;
        let beside = |length| bytes(offset as u64, length);
        let image = fs::read(&alone).unwrap();
        fs::write(&whole, [beside(offset), image, beside(3333)].concat()).unwrap();
        let Some(device) = direct(&whole) else { return };
        let window = WritableWindow::new(Arc::new(device), offset as u64, length);
        let window: Arc<dyn WriteDevice> = Arc::new(window);
        used(&window);
        drop(window);
        let now = fs::read(&whole).unwrap();
        let (first, rest) = now.split_at(offset);
        let (image, last) = rest.split_at(length as usize);
        assert!(first == beside(offset) && last == beside(3333), "an offset of {offset}");
        fs::write(&alone, image).unwrap();
        sound(&alone);
    }
}

/// The disk breaks within a large write: that is the writer's error, and what was stable before it stays.
#[test]
fn a_disk_that_breaks_within_a_write_fails_that_write() {
    if !can_run() {
        return;
    }
    let folder = folder();
    let (made, host) = (folder.path().join("disk.img"), folder.path().join("host"));
    image(&made, 4096, 24);
    fs::create_dir(&host).unwrap();
    let rescued = host.clone();
    let _watchdog = Watchdog::with_rescue(Duration::from_secs(120), move || {
        drop(done("umount", &["-l", text(&rescued)]));
    });
    let store = hostile();
    let vfs = vfs_over(&store, VfsConfig::default());
    let mount = Mount::start(vfs.clone(), &host, MountOptions::default()).unwrap();
    let path = host.join("disk.img");
    fs::copy(&made, &path).unwrap();
    let Some(device) = direct(&path) else { return };
    let device: Arc<dyn WriteDevice> = Arc::new(device);
    let volume = Volume::open(device.clone()).unwrap();
    fill(&volume);
    let file = volume.create(ROOT, b"large", &new_file()).unwrap();
    volume.write(file, 0, &bytes(1, 3 << 20)).unwrap();
    volume.sync().unwrap();
    store.follow(Plan::new().when(On::call(Call::Write).from(3), Fault::Fail(Moment::Before, 5)));
    let refused = volume.write(file, 0, &bytes(2, 3 << 20));
    assert!(refused.is_err(), "the disk was broken");
    store.behave();
    check(&volume);
    volume.close().unwrap();
    drop((volume, device));
    fs::copy(&path, &made).unwrap();
    unmount_idle(|| mount.unmount(Unmount::Idle));
    mount.wait();
    sound(&made);
}

/// The image is sparse, and the disk below it is full: the writer's own write fails, not a later flush.
#[test]
fn a_sparse_image_on_a_full_disk_keeps_what_it_has() {
    if !can_run() {
        return;
    }
    let folder = folder();
    let (disk, at) = (folder.path().join("host.img"), folder.path().join("host"));
    image(&disk, 4096, 24);
    fs::create_dir(&at).unwrap();
    let host = Kernel::mount(&disk, &at);
    let path = at.join("disk.img");
    image(&path, 4096, 64);
    let Some(device) = direct(&path) else { return };
    let device: Arc<dyn WriteDevice> = Arc::new(device);
    let volume = Volume::open(device.clone()).unwrap();
    fill(&volume);
    volume.sync().unwrap();
    let ballast = File::create(at.join("ballast")).unwrap();
    let taken: io::Error =
        (0..).find_map(|at| ballast.write_all_at(&[1; 4096], at * 4096).err()).unwrap();
    assert_eq!(taken.kind(), ErrorKind::StorageFull);
    ballast.sync_all().unwrap();
    let file = volume.create(ROOT, b"large", &new_file()).unwrap();
    let refused = (0..16).find_map(|at| volume.write(file, at << 20, &bytes(3, 1 << 20)).err());
    match refused {
        Some(Error::NoSpace) => {}
        Some(Error::Io(error)) if error.kind() == ErrorKind::StorageFull => {}
        otherwise => panic!("{otherwise:?}"),
    }
    check(&volume);
    drop(ballast);
    fs::remove_file(at.join("ballast")).unwrap();
    // The kernel's ext4 gives out freed blocks again when its journal has committed that they are free. A write before that was refused once.
    rustix::fs::syncfs(File::open(&at).unwrap()).unwrap();
    volume.write(file, 0, &bytes(4, 1 << 20)).unwrap();
    volume.close().unwrap();
    drop((volume, device));
    sound(&path);
    drop(host);
}
