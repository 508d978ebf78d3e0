//! Images that contradict themselves: each fault has its error, and costs no more than its object.

use crate::images::{Workshop, at, faults, open, read, run, tools};
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use uvfs_ext::device::testing::{Plan, Probe};
use uvfs_ext::{Error, Image, MemoryDevice, Place, ROOT};

const SUPER: usize = 1024;

/// Bytes of the superblock that are changed, each from its offset on.
type Changes = &'static [(usize, &'static [u8])];

/// An image without checksums, so that a changed field is read instead of refused by its checksum.
fn plain(workshop: &Workshop) -> Vec<u8> {
    let tree = workshop.path("small");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), [1; 5000]).unwrap();
    fs::write(tree.join("other"), [2; 5000]).unwrap();
    let options = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^has_journal,^uninit_bg"];
    fs::read(workshop.image("plain.img", &options, Some(&tree))).unwrap()
}

#[test]
fn every_field_of_the_superblock_that_cannot_be_has_its_error() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let good = plain(&workshop);
    let with = |changes: Changes| {
        let mut image = good.clone();
        for (offset, bytes) in changes {
            image[SUPER + offset..SUPER + offset + bytes.len()].copy_from_slice(bytes);
        }
        open(image).map(|_| ())
    };
    assert!(with(&[]).is_ok());
    let message: &[(&str, Changes)] = &[
        ("no ext2", &[(0x38, &[0, 0])]),
        ("revision 2", &[(0x4C, &[2])]),
        ("compression", &[(0x60, &[0xC3])]),
        ("journal_dev", &[(0x60, &[0xCA])]),
        ("dirdata", &[(0x61, &[0x12])]),
        ("FEATURE_I31", &[(0x63, &[0x80])]),
        ("has_snapshot", &[(0x64, &[0x80])]),
        ("type of checksum", &[(0x65, &[4]), (0x175, &[9])]),
        ("checksum is wrong", &[(0x65, &[4]), (0x175, &[1])]),
        ("block size", &[(0x18, &[7])]),
        ("block size", &[(0x18, &[255, 255, 255, 255])]),
        ("blocks per group", &[(0x20, &[0, 0, 0, 0])]),
        ("blocks per group", &[(0x20, &[1, 32, 0, 0])]),
        // The last bits of such a group's bitmap are in no byte of it: a check ended in a panic.
        ("blocks per group", &[(0x20, &[255, 31, 0, 0])]),
        ("inode size", &[(0x58, &[0, 0])]),
        ("inode size", &[(0x58, &[129, 0])]),
        ("inode size", &[(0x58, &[0, 8])]),
        ("descriptor size", &[(0xFE, &[32, 0])]),
        ("descriptor size", &[(0xFE, &[65, 0])]),
        ("descriptor size", &[(0xFE, &[0, 8])]),
        ("inodes per group", &[(0x28, &[0, 0, 0, 0])]),
        ("inodes per group", &[(0x28, &[255, 255, 255, 255])]),
        ("inodes per group", &[(0x28, &[9, 0, 0, 0])]),
        ("first data block", &[(0x14, &[0])]),
        ("first data block", &[(0x14, &[255, 255, 255, 255])]),
        ("number of blocks", &[(0x4, &[1, 0, 0, 0])]),
        ("number of blocks", &[(0x152, &[1])]),
        ("truncated", &[(0x7, &[1])]),
        ("truncated", &[(0x150, &[1])]),
        ("first inode", &[(0x54, &[1, 0, 0, 0])]),
        ("first inode", &[(0x54, &[255, 255, 255, 255])]),
        ("number of inodes", &[(0x0, &[1, 0, 0, 0])]),
        ("reserved for descriptors", &[(0xCE, &[0xFF, 0xFF])]),
        ("flexible groups", &[(0x174, &[32])]),
        ("cluster size", &[(0x65, &[2]), (0x1C, &[255])]),
        ("clusters per group", &[(0x65, &[2]), (0x24, &[7, 0, 0, 0])]),
        ("first meta group", &[(0x60, &[0xD2]), (0x104, &[255, 255])]),
    ];
    for (message, changes) in message {
        let error = with(changes).expect_err(message).to_string();
        assert!(error.contains(message), "{changes:?}: {error}, not {message}");
    }
    // A bit that matters to writers only is reported; the image is not refused.
    let mut image = good.clone();
    image[SUPER + 0x67] |= 0x40;
    let reductions = open(image).unwrap().superblock().features.reductions();
    assert_eq!(reductions[0].0, "FEATURE_R30");
}

#[test]
fn a_cut_image_says_so() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let good = plain(&workshop);
    let half = good[..good.len() / 2].to_vec();
    assert!(matches!(open(half).unwrap_err(), Error::Truncated { .. }));
    for length in [0, 1, 1024, 2047] {
        assert!(matches!(open(good[..length].to_vec()).unwrap_err(), Error::NotExt));
    }
    assert!(matches!(open(vec![0; 1 << 20]).unwrap_err(), Error::NotExt));
}

/// 2^32 groups in a file of a megabyte: nothing is asked for by their number.
#[test]
fn a_claim_of_many_groups_costs_nothing() {
    #[derive(Debug)]
    struct Huge(MemoryDevice);
    impl uvfs_ext::Device for Huge {
        fn length(&self) -> u64 {
            1 << 58
        }
        fn read_at(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
            match self.0.read_at(offset, into) {
                Ok(()) => Ok(()),
                Err(_) => {
                    into.fill(0);
                    Ok(())
                }
            }
        }
    }
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let mut bytes = plain(&workshop);
    let mut put = |offset: usize, value: u32| {
        bytes[SUPER + offset..SUPER + offset + 4].copy_from_slice(&value.to_le_bytes());
    };
    // Groups of 8 inodes and 8 blocks, as many as inodes have numbers for.
    let groups = (1_u32 << 29) - 1;
    put(0x28, 8);
    put(0x20, 8);
    put(0x24, 8);
    put(0x4, 8 * groups + 1);
    put(0x0, 8 * groups);
    let image = Image::open(Arc::new(Huge(MemoryDevice::new(bytes)))).unwrap();
    assert_eq!(image.superblock().groups, groups);
    assert!(image.inode(ROOT).is_ok());
    assert!(image.inode(8 * groups).is_err(), "the last group has no descriptor");
}

#[test]
fn pointers_that_leave_the_volume_or_lead_into_metadata_are_refused() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let good = plain(&workshop);
    let image = open(good.clone()).unwrap();
    let file = at(&image, "file");
    let Place::At(start) = image.map(&file, 0..1).unwrap()[0].place else { panic!("no hole") };
    // The extent in the inode: logical 0, its length, its start.
    let extent = [&[0, 0, 0, 0, 5, 0, 0, 0][..], &(start as u32).to_le_bytes()].concat();
    let place = good.windows(12).position(|bytes| bytes == extent).unwrap();
    let other = at(&image, "other").number;
    let check = |offset: usize, bytes: &[u8], message: &str| {
        let mut bad = good.clone();
        bad[place + offset..place + offset + bytes.len()].copy_from_slice(bytes);
        let image = open(bad).unwrap();
        let broken = at(&image, "file");
        let error = image.map(&broken, 0..5).unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("inode"), "{error}, not {message}");
        assert!(
            image.read(&image.inode(other).unwrap(), 0, &mut [0; 10]).is_ok(),
            "the rest is read"
        );
        assert!(
            faults(&image).iter().any(|fault| fault.contains(message)),
            "a check says {message}"
        );
    };
    check(8, &[255, 255, 255, 255], "outside the volume");
    check(6, &[1, 0], "outside the volume");
    check(8, &[0, 0, 0, 0], "outside the volume");
    check(8, &[1, 0, 0, 0], "belongs to the file system itself");
    check(4, &[0, 0], "overlap or are empty");
    // The head before it: magic, entries, room, depth.
    let head = |offset: i32, bytes: &[u8], message: &str| {
        let mut bad = good.clone();
        let from = (place as i32 - 12 + offset) as usize;
        bad[from..from + bytes.len()].copy_from_slice(bytes);
        let image = open(bad).unwrap();
        let error = image.map(&at(&image, "file"), 0..5).unwrap_err().to_string();
        assert!(error.contains(message), "{error}, not {message}");
    };
    head(0, &[0, 0], "no magic number");
    head(2, &[9, 0], "more entries than room");
    head(4, &[99, 0], "more entries than room");
    head(6, &[6, 0], "too deep");
}

#[test]
fn entries_that_cannot_be_are_refused() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let good = plain(&workshop);
    let place = good.windows(6).position(|bytes| bytes == b"\x04\x01file").unwrap() - 6;
    let check = |offset: usize, bytes: &[u8], message: &str| {
        let mut bad = good.clone();
        bad[place + offset..place + offset + bytes.len()].copy_from_slice(bytes);
        let image = open(bad).unwrap();
        let root = image.inode(ROOT).unwrap();
        let error = image.lookup(&root, b"nothing").unwrap_err().to_string();
        assert!(
            error.contains(message) && error.contains("inode 2: block"),
            "{error}, not {message}"
        );
    };
    check(4, &[0, 0], "a length that cannot be");
    check(4, &[13, 0], "a length that cannot be");
    check(4, &[0, 8], "a length that cannot be");
    check(6, &[200], "shorter than its name");
    check(6, &[0], "no name");
    check(8, b"f/le", "slash");
    check(8, b"f\0le", "NUL");
    check(0, &[255, 255, 255, 255], "an inode that cannot be");
    // Those that the format keeps for itself: inode 1 was taken for the root of the mount, which has that number there.
    check(0, &[1, 0, 0, 0], "an inode that cannot be");
    check(0, &[8, 0, 0, 0], "an inode that cannot be");
    check(6, &[2, 1, b'.', b'.'], "does not stand where");
}

/// Every read of the image fails in its turn: an error each time, and no panic.
#[test]
fn a_device_that_fails_is_an_error_of_the_operation() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let device = MemoryDevice::new(plain(&workshop));
    let walk = |plan: Plan| -> Result<u64, Error> {
        let probe = Arc::new(Probe::new(device.clone(), plan));
        let image = Image::open(probe.clone())?;
        let root = image.inode(ROOT)?;
        let file = image.lookup(&root, b"file")?.map(|file| image.inode(file)).transpose()?;
        image.read(&file.unwrap(), 0, &mut [0; 5000])?;
        Ok(probe.reads())
    };
    let reads = walk(Plan::default()).unwrap();
    assert!(reads > 4);
    for fails_from in 0..reads {
        let plan = Plan { fails_from: Some(fails_from), ..Plan::default() };
        assert!(matches!(walk(plan).unwrap_err(), Error::Io(_)));
    }
    let (recorder, heard) = std::sync::mpsc::channel();
    let delay = Duration::from_micros(1);
    walk(Plan { recorder: Some(recorder), delay, ..Plan::default() }).unwrap();
    assert_eq!(heard.iter().next(), Some((1024, 1024)), "the superblock comes first");
}

/// A leaf whose names were all removed is one free entry as long as the block, and a node of an index begins like that. The
/// lookup of a missing name returned EIO, on a healthy image.
#[test]
fn a_leaf_without_names_is_no_node() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let tree = workshop.path("tree");
    fs::create_dir_all(tree.join("many")).unwrap();
    let name = |number: u32| format!("a name that is long enough {number}");
    for number in 0..200 {
        fs::write(tree.join("many").join(name(number)), "").unwrap();
    }
    let path = workshop.image("leaf.img", &["-t", "ext3", "-b", "1024"], Some(&tree));
    let image = read(&path);
    let many = at(&image, "many");
    assert!(many.is_indexed());
    // Block 1 is a leaf: there is one level.
    let Place::At(leaf) = image.map(&many, 1..2).unwrap()[0].place else { panic!("no leaf") };
    let mut bytes = fs::read(&path).unwrap();
    let leaf = &mut bytes[leaf as usize * 1024..][..1024];
    let gone = |number: &u32| {
        let name = name(*number);
        let entry = [&[name.len() as u8, 1], name.as_bytes()].concat();
        leaf.windows(entry.len()).any(|bytes| bytes == entry)
    };
    let (gone, left): (Vec<u32>, Vec<u32>) = (0..200).partition(gone);
    assert!(gone.len() > 5 && left.len() > 100);
    leaf[..8].copy_from_slice(&[0, 0, 0, 0, 0, 4, 0, 0]);
    let image = open(bytes).unwrap();
    let many = at(&image, "many");
    for number in gone {
        assert_eq!(image.lookup(&many, name(number).as_bytes()).unwrap(), None);
    }
    for number in left {
        assert!(image.lookup(&many, name(number).as_bytes()).unwrap().is_some());
    }
}

/// A file claimed 2^63 bytes: a search for its data had no end.
#[test]
fn a_file_is_no_longer_than_its_map_reaches() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    for (kind, reach) in [("ext2", (12_u64 + 256 + (1 << 16) + (1 << 24)) << 10), ("ext4", 1 << 42)]
    {
        let path = workshop.path("long.img");
        run(Command::new("mke2fs")
            .args(["-q", "-F", "-b", "1024", "-t", kind])
            .arg(&path)
            .arg("4M"));
        workshop.debugfs(&path, &["write /dev/null file".into()]);
        for (size, readable) in [(reach, true), (reach + 1, false), (1 << 63, false)] {
            let set = format!("set_inode_field file size {size}");
            // The sums are those of debugfs.
            workshop.debugfs(&path, &[set]);
            let image = read(&path);
            let root = image.inode(ROOT).unwrap();
            let number = image.lookup(&root, b"file").unwrap().unwrap();
            match image.inode(number) {
                Ok(file) => assert!(readable && file.size() == size, "{kind}: {size}"),
                Err(error) => {
                    let beyond = error.to_string().contains("its size is beyond the format");
                    assert!(beyond && !readable, "{kind}: {size}: {error}");
                }
            }
        }
    }
}

/// Two attributes named the same bytes as their value: a few kilobytes of an image became megabytes of memory.
#[test]
fn a_value_belongs_to_one_attribute() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let options = ["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^metadata_csum"];
    let path = workshop.image("values.img", &options, None);
    fs::write(workshop.path("value"), [b'v'; 500]).unwrap();
    let long = format!("ea_set -f {} file user.one", workshop.path("value").display());
    let commands = ["write /dev/null file".into(), long, "ea_set file user.other x".into()];
    workshop.debugfs(&path, &commands);
    let good = fs::read(&path).unwrap();
    let file = |bytes: Vec<u8>| {
        let image = open(bytes).unwrap();
        let file = at(&image, "file");
        image.xattrs(&file)
    };
    assert_eq!(file(good.clone()).unwrap().len(), 2);
    // In the entry before its name: the value's offset, its inode, its size.
    let entry =
        |name: &[u8]| good.windows(name.len()).position(|bytes| bytes == name).unwrap() - 16;
    let (one, other) = (entry(b"one\0"), entry(b"other\0"));
    let mut shared = good.clone();
    // Each lies in the block, and together they are longer.
    let large = 600_u32.to_le_bytes();
    for at in [one, other] {
        shared[at + 2..at + 4].copy_from_slice(&400_u16.to_le_bytes());
        shared[at + 8..at + 12].copy_from_slice(&large);
    }
    assert!(file(shared).unwrap_err().to_string().contains("shares its value"));
}

/// A file that was open when its last name was removed is in use until it is closed. In the image of a machine that
/// stopped before that, a check called its blocks marked and without an owner.
#[test]
fn an_open_file_without_a_name_owns_its_blocks() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    plain(&workshop);
    let path = workshop.path("plain.img");
    let commands = ["set_inode_field file links_count 0", "unlink file"];
    workshop.debugfs(&path, &commands.map(str::to_owned));
    let image = read(&path);
    assert_eq!(faults(&image), [""; 0], "the last one of the list of orphans");
    let number = (12..40).find(|number| image.inode(*number).unwrap().links() == 0).unwrap();
    workshop.debugfs(&path, &[format!("set_inode_field <{number}> dtime 1700000000")]);
    let found = faults(&read(&path));
    assert!(found.iter().any(|fault| fault.contains("has no owner")), "deleted: {found:?}");
}

/// With a journal on another device, a check compared no bitmap of blocks. With the number of the block that guards mounts
/// outside the volume, it panicked.
#[test]
fn a_check_compares_bitmaps_whatever_the_journal_and_the_guard_are() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let good = plain(&workshop);
    let mut bad = good.clone();
    bad[SUPER + 0x5C] |= 4;
    let bitmap = u32::from_le_bytes(bad[2048..2052].try_into().unwrap()) as usize;
    bad[bitmap * 1024 + 1023] ^= 0x80;
    let found = faults(&open(bad).unwrap());
    assert!(found.iter().any(|fault| fault.contains("block 8192 is marked")), "{found:?}");
    let mut bad = good;
    bad[SUPER + 0x61] |= 1;
    bad[SUPER + 0x168..SUPER + 0x170].fill(0xFF);
    let found = faults(&open(bad).unwrap());
    assert!(found.iter().any(|fault| fault.contains("guards mounts")), "{found:?}");
}

/// The power failed while files were truncated: a check called them broken for blocks behind their ends, and for the
/// numbers that link the list of orphans.
#[test]
fn a_file_that_is_being_cut_is_no_damage() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let path = workshop.image("cut.img", &["-t", "ext4", "-b", "1024"], Some(&workshop.tree()));
    let image = read(&path);
    let number = |name: &str| at(&image, name).number;
    let (first, second) = (number("a/b/c/file-70000"), number("a/b/c/file-5000"));
    let commands = [
        format!("set_inode_field <{first}> size 10"),
        format!("set_inode_field <{first}> dtime @{second}"),
        format!("set_inode_field <{second}> size 1500"),
        format!("set_super_value last_orphan {first}"),
    ];
    workshop.debugfs(&path, &commands);
    assert_eq!(faults(&read(&path)), [""; 0]);
    workshop.debugfs(&path, &["set_super_value last_orphan 0".to_owned()]);
    assert_eq!(faults(&read(&path)).len(), 3, "without the list they are");
}
