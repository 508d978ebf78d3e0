//! The encoders against e2fsprogs: its structures, decoded and encoded, are the same to the byte, and e2fsck replays our
//! journals.

use crate::images::{Workshop, at, read, run, tools, whole};
use std::fs;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::process::Command;
use uvfs_ext::encode::journal::{Brought, JournalHead};
use uvfs_ext::encode::{directory, extent, index, xattr};
use uvfs_ext::{Group, Image, Inode, Kind, Place, ROOT};

/// An image and its bytes.
struct Both {
    image: Image,
    bytes: Vec<u8>,
}

/// Numbers of compared structures.
#[derive(Debug, Default)]
struct Seen {
    inodes: usize,
    nodes: usize,
    leaves: usize,
    indexes: usize,
    attributes: usize,
}

impl Both {
    fn of(path: &Path) -> Self {
        Self { image: read(path), bytes: fs::read(path).unwrap() }
    }

    fn block(&self, number: u64) -> &[u8] {
        let size = u64::from(self.image.superblock().block_size) as usize;
        &self.bytes[number as usize * size..][..size]
    }

    fn compare(&self) -> Seen {
        let superblock = self.image.superblock();
        let (block, offset) = superblock.place();
        assert_eq!(self.block(block)[offset..offset + 1024], superblock.encode());
        let size = usize::from(superblock.descriptor_size);
        for number in 0..superblock.groups {
            let block = self.block(superblock.descriptor_block(number));
            let at = (number % superblock.descriptors_per_block()) as usize * size;
            let expected = &block[at..at + size];
            let group = self.image.group(number).unwrap();
            let mut bytes = expected.to_vec();
            // Spoil the fields that the encoder writes: counts always, checksums and unused counts where there are any.
            let has_sums = superblock.features.metadata_checksum();
            let checked = has_sums || superblock.features.gdt_checksum();
            let spoilt = [(0x0C..0x12, true), (0x18..0x1C, has_sums), (0x1C..0x20, checked)];
            for (field, _) in spoilt.into_iter().filter(|(_, written)| *written) {
                bytes[field].fill(0xEE);
            }
            group.encode(number, &mut bytes, superblock);
            assert_eq!(bytes, expected, "group {number}");
            if has_sums && !group.no_block_bitmap {
                let sum = superblock.block_bitmap_checksum(self.block(group.block_bitmap));
                assert_eq!(sum, group.block_bitmap_checksum);
            }
            if has_sums && !group.no_inodes {
                let sum = superblock.inode_bitmap_checksum(self.block(group.inode_bitmap));
                assert_eq!(sum, group.inode_bitmap_checksum);
            }
        }
        let mut seen = Seen::default();
        for number in (1..=superblock.inodes).filter(|number| self.has(*number)) {
            let inode = self.image.inode(number).unwrap();
            if inode.kind().is_some() {
                self.inode(&inode, &mut seen);
            }
        }
        seen
    }

    fn group_of(&self, number: u32) -> &Group {
        self.image.group((number - 1) / self.image.superblock().inodes_per_group).unwrap()
    }

    fn has(&self, number: u32) -> bool {
        let at = (number - 1) % self.image.superblock().inodes_per_group;
        let group = self.group_of(number);
        !group.no_inodes
            && at < self.image.superblock().inodes_per_group - group.unused_inodes
            && self.block(group.inode_bitmap)[at as usize / 8] >> (at % 8) & 1 == 1
    }

    fn inode(&self, inode: &Inode, seen: &mut Seen) {
        let superblock = self.image.superblock();
        let size = usize::from(superblock.inode_size);
        let at = (inode.number - 1) % superblock.inodes_per_group;
        let table = self.group_of(inode.number).inode_table as usize;
        let start = table * superblock.block_size as usize + at as usize * size;
        let expected = &self.bytes[start..start + size];
        let mut bytes = expected.to_vec();
        bytes[..0x14].fill(0xEE);
        bytes[0x18..].fill(0xEE);
        inode.encode(&mut bytes, superblock);
        assert_eq!(bytes, expected, "inode {}", inode.number);
        seen.inodes += 1;
        let own = xattr::decode_in_inode(&expected[(128 + 32).min(size)..]);
        if size >= 256 && !inode.is_inline() {
            let own = own.unwrap();
            let space = xattr::encode_in_inode(&own, size - 160).unwrap();
            assert_eq!(xattr::decode_in_inode(&space).unwrap(), own);
            seen.attributes += own.len();
        }
        if inode.xattr_block() != 0 {
            self.attributes(inode.xattr_block(), seen);
        }
        if inode.is_inline() {
            return;
        }
        if inode.is_by_extents() {
            let root = self.image.extent_root(inode).unwrap();
            self.nodes(inode, root, inode.block_bytes(), 0..1 << 32, seen);
        }
        if inode.kind() == Some(Kind::Directory) {
            self.directory(inode, seen);
        }
    }

    fn attributes(&self, place: u64, seen: &mut Seen) {
        let expected = self.block(place);
        let stored = xattr::decode_block(expected).unwrap();
        let references = xattr::references(expected);
        let again = xattr::encode_block(&stored, references, place, self.image.superblock());
        let again = again.unwrap();
        assert_eq!(xattr::decode_block(&again).unwrap().len(), stored.len());
        // Hashes and checksum are theirs, wherever the values lie.
        let mut sealed = expected.to_vec();
        xattr::set_references(&mut sealed, references, place, self.image.superblock());
        assert!(sealed == expected, "block {place}");
        // The hash of the whole block, by which a kernel finds one to share, is 0 where debugfs made it.
        let (head, rest) = (&expected[..12], &expected[20..]);
        assert!(stored.len() > 1 || again[..12] == *head && again[20..] == *rest, "block {place}");
        seen.attributes += stored.len();
    }

    fn nodes(
        &self,
        inode: &Inode,
        entries: extent::Entries,
        bytes: &[u8],
        keys: Range<u64>,
        seen: &mut Seen,
    ) {
        let mut again = vec![0; bytes.len()];
        extent::encode(&entries, &mut again);
        if bytes.len() > 60 {
            if self.image.superblock().features.metadata_checksum() {
                extent::seal(inode, &mut again);
            }
            seen.nodes += 1;
        }
        let used = 12
            + 12 * match &entries {
                extent::Entries::Leaf(extents) => extents.len(),
                extent::Entries::Inner(_, children) => children.len(),
            };
        // Bytes behind the entries may be stale; our checksum covers zeros.
        assert_eq!(again[..used], bytes[..used]);
        if let extent::Entries::Inner(depth, children) = entries {
            for (at, child) in children.iter().enumerate() {
                let end = children.get(at + 1).map_or(keys.end, |next| next.logical.into());
                let keys = child.logical.into()..end;
                let below = self.image.extent_entries(inode, child.block, depth - 1, &keys);
                self.nodes(inode, below.unwrap(), self.block(child.block), keys, seen);
            }
        }
    }

    fn directory(&self, inode: &Inode, seen: &mut Seen) {
        let superblock = self.image.superblock();
        let blocks = inode.size() / u64::from(superblock.block_size);
        let mut nodes = vec![];
        if inode.is_indexed() {
            nodes.push(0);
        }
        for run in self.image.map(inode, 0..blocks).unwrap() {
            let Place::At(first) = run.place else { panic!("a hole") };
            for logical in run.logical..run.logical + run.length {
                let expected = self.block(first + logical - run.logical);
                let mut bytes = expected.to_vec();
                if nodes.contains(&logical) {
                    let node = index::Node::decode(expected, logical == 0, superblock).unwrap();
                    if node.root_levels.is_some_and(|levels| levels > 0) {
                        nodes.extend(node.entries.iter().map(|entry| u64::from(entry.1)));
                    }
                    node.encode(&mut bytes, inode, superblock);
                    let at = if logical == 0 { 36 } else { 12 };
                    let used = at - 4 + 8 * node.entries.len();
                    assert_eq!(bytes[..used], expected[..used]);
                    seen.indexes += 1;
                } else {
                    directory::Entries::of(&mut bytes, superblock).seal(inode);
                    assert_eq!(bytes, expected, "inode {}, block {logical}", inode.number);
                    directory::entries(&bytes, superblock.entries_end()).unwrap();
                    seen.leaves += 1;
                }
            }
        }
    }
}

#[test]
fn what_is_encoded_again_is_the_same_to_the_byte() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let tree = workshop.tree();
    for options in [
        &["-t", "ext2", "-b", "1024"][..],
        &["-t", "ext2", "-b", "4096", "-I", "128"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext4", "-b", "2048", "-O", "^64bit,^metadata_csum,uninit_bg"],
        &["-t", "ext4", "-b", "1024", "-O", "metadata_csum_seed", "-I", "128"],
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "^flex_bg"],
    ] {
        let path = workshop.image("again.img", options, Some(&tree));
        let fill = contents_of_attribute(&workshop);
        workshop.debugfs(
            &path,
            &[
                "ea_set sparse user.small value".into(),
                format!("ea_set -f {} sparse user.large", fill.display()),
            ],
        );
        let seen = Both::of(&path).compare();
        let block_size = options[3];
        assert!(
            seen.inodes > 400 && seen.leaves > 5 && seen.attributes >= 2,
            "{options:?} {seen:?}"
        );
        if options[1] == "ext4" && block_size == "1024" {
            assert!(seen.indexes > 0, "{options:?} {seen:?}");
        }
    }
}

fn contents_of_attribute(workshop: &Workshop) -> std::path::PathBuf {
    let path = workshop.path("attribute");
    fs::write(&path, "v".repeat(300)).unwrap();
    path
}

/// New structures, made from nothing, as a writer makes them; e2fsck is the judge.
#[test]
fn a_directory_made_from_nothing_is_one_for_e2fsck() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let options = ["-t", "ext4", "-b", "1024"];
    let path = workshop.image("made.img", &options, None);
    workshop.debugfs(&path, &["mkdir sub".into(), "expand_dir sub".into()]);
    let mut both = Both::of(&path);
    let inode = at(&both.image, "sub");
    let superblock = both.image.superblock().clone();
    let runs = both.image.map(&inode, 0..2).unwrap();
    let Place::At(first) = runs[0].place else { panic!("{runs:?}") };
    assert_eq!(runs[0].length, 2, "its blocks are neighbours");
    let mut block = vec![0xEE; 1024];
    let mut entries = directory::Entries::of(&mut block, &superblock);
    entries.make_first(inode.number, ROOT);
    entries.seal(&inode);
    let mut second = vec![0xEE; 1024];
    let mut entries = directory::Entries::of(&mut second, &superblock);
    entries.clear();
    entries.seal(&inode);
    both.bytes[first as usize * 1024..][..1024].copy_from_slice(&block);
    both.bytes[first as usize * 1024 + 1024..][..1024].copy_from_slice(&second);
    fs::write(&path, &both.bytes).unwrap();
    run(Command::new("e2fsck").arg("-fn").arg(&path));
    // The same with an index over the second block.
    let mut indexed = inode.clone();
    indexed.set_indexed(true);
    let root = index::Node::make_root(&mut block, superblock.directory_hash().0, 1);
    root.encode(&mut block, &indexed, &superblock);
    both.bytes[first as usize * 1024..][..1024].copy_from_slice(&block);
    let at = (inode.number - 1) % superblock.inodes_per_group;
    let size = usize::from(superblock.inode_size);
    let start = both.group_of(inode.number).inode_table as usize * 1024 + at as usize * size;
    indexed.encode(&mut both.bytes[start..start + size], &superblock);
    fs::write(&path, &both.bytes).unwrap();
    run(Command::new("e2fsck").arg("-fn").arg(&path));
    let image = read(&path);
    let inode = image.inode(inode.number).unwrap();
    assert!(inode.is_indexed());
    assert_eq!(image.lookup(&inode, b"none").unwrap(), None, "found through the index");
    let mut names = Vec::new();
    image
        .list(&inode, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(names, [b".".to_vec(), b"..".to_vec()]);
}

/// Two transactions of ours, the second of which frees a block of the first; one block begins as blocks of journals do.
#[test]
fn a_journal_that_we_write_is_replayed_by_e2fsck() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let tree = workshop.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), vec![b'o'; 4 * 1024]).unwrap();
    for features in ["64bit", "^64bit", "^metadata_csum", "^metadata_csum,^64bit"] {
        let options = ["-t", "ext4", "-b", "1024", "-O", features, "-J", "size=1"];
        let path = workshop.image("ours.img", &options, Some(&tree));
        let mut both = Both::of(&path);
        let mut superblock = both.image.superblock().clone();
        let place = |inode: &Inode, block| match both.image.map(inode, block..block + 1).unwrap()[0]
        {
            uvfs_ext::Run { place: Place::At(place), .. } => place,
            other => panic!("{other:?}"),
        };
        let journal = both.image.inode(superblock.journal_inode()).unwrap();
        let places: Vec<_> = (0..12).map(|block| place(&journal, block)).collect();
        let file = at(&both.image, "file");
        let targets: Vec<_> = (0..4).map(|block| place(&file, block)).collect();
        let mut head = JournalHead::decode(both.block(places[0])).unwrap();
        let (first, end) = head.ring();
        assert!(first == 1 && end == 1024, "{first} {end}");
        head.set_features(&superblock);
        let sequence = head.sequence() + 5;
        head.set_tail(first, sequence);
        let mut escaped = vec![3; 1024];
        escaped[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
        let (one, two) = (vec![1; 1024], vec![2; 1024]);
        let brought = |target: usize, bytes| Brought { block: targets[target], bytes };
        let log = [
            head.encode(),
            head.descriptor(sequence, &[brought(0, &one), brought(1, &one), brought(2, &escaped)]),
            one.clone(),
            one.clone(),
            JournalHead::escaped(&escaped).unwrap(),
            head.commit(sequence, 1_800_000_000, 5),
            head.revocation(sequence + 1, &[targets[1]]),
            head.descriptor(sequence + 1, &[brought(0, &two)]),
            two.clone(),
            head.commit(sequence + 1, 1_800_000_001, 5),
            // Never committed.
            head.descriptor(sequence + 2, &[brought(3, &two)]),
            two.clone(),
        ];
        for (block, place) in log.iter().zip(&places) {
            both.bytes[*place as usize * 1024..][..1024].copy_from_slice(block);
        }
        superblock.set_needs_recovery(true);
        both.bytes[1024..2048].copy_from_slice(&superblock.encode());
        fs::write(&path, &both.bytes).unwrap();
        let check = |what: &str| {
            let image = read(&path);
            let found: Vec<u8> =
                whole(&image, &at(&image, "file")).chunks(1024).map(|block| block[1023]).collect();
            assert_eq!(found, [2, b'o', 3, b'o'], "{what} {features}");
            image.recovery().cloned()
        };
        let recovery = check("ours").unwrap();
        assert_eq!((recovery.transactions, recovery.blocks, recovery.revoked), (2, 2, 1));
        let status = Command::new("e2fsck").args(["-fy", "-E", "journal_only"]).arg(&path).output();
        assert!(status.unwrap().status.code().unwrap() <= 1);
        assert_eq!(check("theirs"), None);
        run(Command::new("e2fsck").arg("-fn").arg(&path));
    }
}
