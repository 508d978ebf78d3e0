//! Small images with huge costs: structures that name themselves. A few reads and a few thousand steps must detect them.

use crate::images::{Workshop, at, open, read, tools};
use std::fs;
use std::sync::Arc;
use uvfs_ext::device::testing::{Plan, Probe};
use uvfs_ext::{HashVersion, Image, MemoryDevice, Passed, Place, directory_hash, windows};

/// Where block `logical` of a file lies.
fn place(image: &Image, path: &str, logical: u64) -> usize {
    let Place::At(block) = image.map(&at(image, path), logical..logical + 1).unwrap()[0].place
    else {
        panic!("{path} has a hole")
    };
    block as usize
}

/// A table whose pointers all hold its own number has, three levels deep, 2^24 blocks of one kilobyte, or 2^30 of four.
#[test]
fn a_table_of_blocks_that_names_itself_is_met_once() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let tree = workshop.path("self");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("table"), [1; 1024]).unwrap();
    fs::write(tree.join("file"), [2; 20_000]).unwrap();
    let path = workshop.image("self.img", &["-t", "ext2", "-b", "1024"], Some(&tree));
    let table = place(&read(&path), "table", 0);
    let set = |field: &str, value: u64| format!("set_inode_field file {field} {value}");
    workshop.debugfs(&path, &[set("block[TIND]", table as u64), set("size", 16 << 30)]);
    let good = fs::read(&path).unwrap();
    // A table without pointers is no fault, however often it is passed.
    let search = |fill: u32| {
        let mut bytes = good.clone();
        for pointer in bytes[table * 1024..][..1024].chunks_exact_mut(4) {
            pointer.copy_from_slice(&fill.to_le_bytes());
        }
        let device = Arc::new(Probe::new(MemoryDevice::new(bytes), Plan::default()));
        let image = Image::open(device.clone()).unwrap();
        let file = at(&image, "file");
        let (mut passed, before) = (Passed::default(), device.reads());
        let done = windows(0..16 << 20)
            .try_for_each(|window| image.map_on(&file, window, &mut passed).map(drop));
        (done, device.reads() - before)
    };
    let (done, reads) = search(0);
    assert!(done.is_ok() && reads < 100, "{done:?} after {reads} reads");
    let (done, reads) = search(table as u32);
    let error = done.unwrap_err().to_string();
    assert!(error.contains("in two places") && reads < 100, "{error} after {reads} reads");
}

/// All entries of an index have one hash and lead to one node, which leads to one leaf. The lookup of a missing name
/// searched that leaf 15,000 times, with `large_dir` millions of times.
#[test]
fn an_index_that_names_one_leaf_for_ever_is_given_up() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let tree = workshop.path("tree");
    fs::create_dir_all(tree.join("many")).unwrap();
    for number in 0..200 {
        fs::write(tree.join(format!("many/a name that is long enough {number}")), "").unwrap();
    }
    let path = workshop.image("index.img", &["-t", "ext3", "-b", "1024"], Some(&tree));
    let image = read(&path);
    let (root, node) = (place(&image, "many", 0), place(&image, "many", 2));
    let mut bytes = fs::read(&path).unwrap();
    // Of the superblock: the seed, and whether characters have no sign.
    let mut seed = [0; 4];
    for (word, bytes) in seed.iter_mut().zip(bytes[1024 + 0xEC..].chunks_exact(4)) {
        *word = u32::from_le_bytes(bytes.try_into().unwrap());
    }
    let unsigned = bytes[1024 + 0x160] & 2 != 0;
    assert_eq!(bytes[root * 1024 + 28], 1, "half of MD4");
    let hash = directory_hash(HashVersion::HalfMd4, unsigned, seed, b"not there");
    let mut fill = |block: usize, head: usize, target: u32| {
        let room = (1024 - head) / 8;
        for (at, entry) in bytes[block * 1024 + head..][..room * 8].chunks_exact_mut(8).enumerate()
        {
            let first = (room as u32) << 16 | room as u32;
            let key = if at == 0 { first } else { hash | 1 };
            entry[..4].copy_from_slice(&key.to_le_bytes());
            entry[4..].copy_from_slice(&target.to_le_bytes());
        }
    };
    fill(root, 32, 2);
    fill(node, 8, 1);
    bytes[root * 1024 + 30] = 1;
    bytes[node * 1024..node * 1024 + 8].copy_from_slice(&[0, 0, 0, 0, 0, 4, 0, 0]);
    let image = open(bytes).unwrap();
    let error = image.lookup(&at(&image, "many"), b"not there").unwrap_err().to_string();
    assert!(error.contains("more blocks for one hash"), "{error}");
}
