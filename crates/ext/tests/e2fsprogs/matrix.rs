//! The options of mke2fs, each with the same tree.

use crate::images::{Workshop, at, faults, read, run, tools, whole};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use uvfs_ext::{Image, Inode, Kind};

const OPTIONS: &[&[&str]] = &[
    &["-t", "ext2", "-b", "1024", "-I", "128"],
    &["-t", "ext2", "-b", "4096"],
    &["-t", "ext2", "-r", "0", "-b", "1024"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext3", "-b", "2048", "-I", "128"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "2048", "-I", "128"],
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "8192"],
    &["-t", "ext4", "-b", "16384", "-O", "^has_journal"],
    &["-t", "ext2", "-b", "65536"],
    &["-t", "ext4", "-b", "65536", "-O", "^has_journal"],
    &["-t", "ext4", "-b", "1024", "-I", "512", "-g", "1024"],
    &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "^flex_bg"],
    &["-t", "ext4", "-b", "1024", "-g", "512", "-O", "meta_bg,^resize_inode"],
    &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg,^64bit"],
    &["-t", "ext4", "-b", "1024", "-O", "metadata_csum_seed,orphan_file"],
    &["-t", "ext4", "-b", "1024", "-O", "inline_data"],
    &["-t", "ext4", "-b", "4096", "-O", "inline_data,^metadata_csum"],
    &["-t", "ext4", "-b", "1024", "-O", "bigalloc,^resize_inode", "-C", "4096"],
    &["-t", "ext4", "-b", "4096", "-O", "bigalloc,^resize_inode", "-C", "16384"],
    &["-t", "ext4", "-b", "1024", "-O", "^extent,^64bit"],
    &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "sparse_super2,^resize_inode"],
    &["-t", "ext4", "-b", "1024", "-O", "^dir_index"],
    &["-t", "ext4", "-b", "1024", "-O", "^filetype"],
    &["-t", "ext4", "-b", "1024", "-O", "large_dir,ea_inode"],
    &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^huge_file,^extra_isize,^dir_nlink"],
    &["-t", "ext4", "-b", "1024", "-O", "quota,project"],
    &["-t", "ext4", "-b", "1024", "-O", "casefold,encrypt,verity"],
];

/// A tree, by path: kind, mode, links, size, contents or text.
type Tree = BTreeMap<Vec<u8>, (char, u32, u64, u64, Vec<u8>)>;

fn host_tree(path: &Path, prefix: &[u8], tree: &mut Tree) {
    for entry in fs::read_dir(path).unwrap().map(Result::unwrap) {
        let name = [prefix, b"/", entry.file_name().as_bytes()].concat();
        let about = fs::symlink_metadata(entry.path()).unwrap();
        let links = if about.is_dir() { 0 } else { about.nlink() };
        let size = if about.is_dir() { 0 } else { about.size() };
        let (kind, contents) = if about.is_dir() {
            host_tree(&entry.path(), &name, tree);
            ('d', Vec::new())
        } else if about.is_symlink() {
            ('l', fs::read_link(entry.path()).unwrap().into_os_string().into_encoded_bytes())
        } else {
            ('f', fs::read(entry.path()).unwrap())
        };
        tree.insert(name, (kind, about.mode() & 0o7777, links, size, contents));
    }
}

fn image_tree(image: &Image, directory: &Inode, prefix: &[u8], tree: &mut Tree) {
    let mut entries = Vec::new();
    let listed = image.list(directory, 0, &mut |entry| {
        entries.push((entry.name.into_owned(), entry.inode));
        ControlFlow::Continue(())
    });
    listed.unwrap();
    for (name, number) in entries {
        if name == b"." || name == b".." || (prefix.is_empty() && name == b"lost+found") {
            continue;
        }
        assert_eq!(image.lookup(directory, &name).unwrap(), Some(number));
        let inode = image.inode(number).unwrap();
        let path = [prefix, b"/", &name].concat();
        let (kind, contents) = match inode.kind().unwrap() {
            Kind::Directory => {
                image_tree(image, &inode, &path, tree);
                ('d', Vec::new())
            }
            Kind::Symlink => ('l', image.read_link(&inode).unwrap()),
            _ => ('f', whole(image, &inode)),
        };
        let counted = kind != 'd';
        let (links, size) = if counted { (inode.links(), inode.size()) } else { (0, 0) };
        tree.insert(path, (kind, u32::from(inode.mode() & 0o7777), links.into(), size, contents));
    }
    assert_eq!(image.lookup(directory, b"no such name").unwrap(), None);
}

#[test]
fn what_was_put_in_comes_out_whatever_the_options() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let source = workshop.tree();
    let mut expected = Tree::new();
    host_tree(&source, b"", &mut expected);
    for options in OPTIONS {
        let path = workshop.image("matrix.img", options, Some(&source));
        let image = read(&path);
        let mut found = Tree::new();
        image_tree(&image, &image.inode(uvfs_ext::ROOT).unwrap(), b"", &mut found);
        let names = |tree: &Tree| tree.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&found), names(&expected), "{options:?}");
        for (name, about) in &expected {
            let name_shown = String::from_utf8_lossy(name);
            // With inline data, mke2fs 1.47 rounds the size of a file with holes up to blocks.
            if name == b"/sparse" && options.iter().any(|option| option.contains("inline_data")) {
                continue;
            }
            assert!(found[name] == *about, "{options:?}: {name_shown}");
        }
        let many = at(&image, "many");
        let large = many.size() > 2 * u64::from(image.superblock().block_size);
        let has_index = image.superblock().features.dir_index() && !many.is_inline() && large;
        assert_eq!(many.is_indexed(), has_index, "{options:?}: e2fsck -D makes an index");
        assert_eq!(faults(&image), [""; 0], "{options:?}");
        numbers(&path, &image, options);
        fs::remove_file(path).unwrap();
    }
}

/// Compares our superblock with the output of dumpe2fs.
fn numbers(path: &Path, image: &Image, options: &[&str]) {
    let said = run(Command::new("dumpe2fs").arg("-h").arg(path));
    let value = |key: &str| {
        let line = said.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{key} in {said}")).trim().to_owned()
    };
    let superblock = image.superblock();
    let same = |key: &str, ours: u64| assert_eq!(value(key), ours.to_string(), "{options:?} {key}");
    same("Block count", superblock.blocks);
    same("Free blocks", superblock.free_blocks());
    same("Reserved block count", superblock.reserved_blocks());
    same("Inode count", superblock.inodes.into());
    same("Free inodes", superblock.free_inodes().into());
    same("Block size", superblock.block_size.into());
    same("Blocks per group", superblock.blocks_per_group.into());
    same("Inodes per group", superblock.inodes_per_group.into());
    if !options.contains(&"-r") {
        same("Inode size", superblock.inode_size.into());
    }
    assert_eq!(value("Filesystem UUID"), superblock.uuid());
    let mut named: Vec<_> = value("Filesystem features").split(' ').map(str::to_owned).collect();
    let mut ours: Vec<_> = superblock.features.known().map(|flag| flag.name.to_owned()).collect();
    named.retain(|name| name != "(none)");
    named.sort();
    ours.sort();
    assert_eq!(named, ours, "{options:?}");
}

/// Not in the matrix: e2fsck waits ten seconds for another host to show itself.
#[test]
fn a_block_that_guards_mounts_has_an_owner() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let path = workshop.path("mmp.img");
    run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext4", "-O", "mmp"]).arg(&path).arg("8M"));
    let image = read(&path);
    assert_eq!(faults(&image), [""; 0]);
    assert_eq!(image.superblock().features.reductions()[0].0, "mmp");
}

/// Attributes, owners, times and devices, as debugfs sets them.
#[test]
fn attributes_of_all_kinds_are_read() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let value = workshop.path("value");
    fs::write(&value, vec![b'v'; 3000]).unwrap();
    // One entry of each: the owner, user 9 may read, the mask, others.
    let acl = [2, 0, 0, 0].into_iter().chain(
        [
            (1_u16, 7_u16, u32::MAX),
            (2, 4, 9),
            (4, 5, u32::MAX),
            (16, 7, u32::MAX),
            (32, 0, u32::MAX),
        ]
        .into_iter()
        .flat_map(|(tag, bits, id)| {
            [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
        }),
    );
    let acl: Vec<u8> = acl.collect();
    fs::write(workshop.path("acl"), &acl).unwrap();
    for options in [
        &["-t", "ext4", "-b", "4096", "-O", "ea_inode"][..],
        &["-t", "ext4", "-b", "4096", "-I", "128", "-O", "^metadata_csum"],
        &["-t", "ext2", "-b", "4096", "-I", "1024"],
    ] {
        let image = workshop.image("attributes.img", options, None);
        let commands = [
            "write /dev/null file",
            "mknod pipe p",
            "mknod disk b 8 17",
            "mknod far c 1 1",
            "set_inode_field far block[0] 0",
            "set_inode_field far block[1] 0x11112C70",
            "set_inode_field file uid 70001",
            "set_inode_field file gid 70002",
            "set_inode_field file mtime @2000000000",
            "ea_set file user.short abc",
            "ea_set file trusted.t def",
            "ea_set file security.s ghi",
        ];
        let mut commands = commands.map(str::to_owned).to_vec();
        commands.push(format!("ea_set -f {} file user.long", value.display()));
        let acl_file = workshop.path("acl");
        commands.push(format!("ea_set -f {} file system.posix_acl_access", acl_file.display()));
        workshop.debugfs(&image, &commands);
        let image = read(&image);
        let file = at(&image, "file");
        assert_eq!((file.uid(), file.gid()), (70001, 70002));
        assert_eq!(file.modified().seconds, 2_000_000_000);
        let mut names = image.xattr_names(&file).unwrap();
        names.sort();
        let expected =
            ["security.s", "system.posix_acl_access", "trusted.t", "user.long", "user.short"];
        assert_eq!(names, expected.map(|name| name.as_bytes().to_vec()), "{options:?}");
        assert_eq!(image.xattr(&file, b"user.short").unwrap().unwrap(), b"abc");
        assert_eq!(image.xattr(&file, b"user.long").unwrap().unwrap(), vec![b'v'; 3000]);
        assert_eq!(image.xattr(&file, b"system.posix_acl_access").unwrap().unwrap(), acl);
        assert_eq!(image.xattr(&file, b"user.none").unwrap(), None);
        assert_eq!(at(&image, "pipe").kind(), Some(Kind::Fifo));
        assert_eq!(at(&image, "disk").device(), (8, 17));
        assert_eq!(at(&image, "far").device(), (300, 70000));
    }
}

/// A value that leaves no room for the head of its block lies in an inode of its own.
#[test]
fn a_large_value_lies_in_its_own_inode() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image("large.img", &["-t", "ext4", "-b", "1024", "-O", "ea_inode"], None);
    let value = crate::images::contents(1024, 3);
    fs::write(workshop.path("value"), &value).unwrap();
    let set = format!("ea_set -f {} file user.large", workshop.path("value").display());
    workshop.debugfs(&image, &["write /dev/null file".into(), set]);
    let image = read(&image);
    let file = at(&image, "file");
    assert!(image.xattr(&file, b"user.large").unwrap().unwrap() == value);
    assert_eq!(faults(&image), [""; 0]);
}

/// Extents in one-block pieces make a tree of two levels; the blocks of an ext2 file three tables.
#[test]
fn deep_maps_are_followed() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let file = fs::File::create(workshop.path("islands")).unwrap();
    for at in (0..20_000_u64).step_by(2) {
        std::os::unix::fs::FileExt::write_all_at(&file, &at.to_le_bytes(), at * 1024).unwrap();
    }
    let tree = workshop.path("islands-tree");
    fs::create_dir(&tree).unwrap();
    fs::rename(workshop.path("islands"), tree.join("islands")).unwrap();
    let far = fs::File::create(tree.join("far")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&far, b"end", 200 << 20).unwrap();
    for kind in ["ext2", "ext4"] {
        let options = ["-t", kind, "-b", "1024"];
        let image = read(&workshop.image("deep.img", &options, Some(&tree)));
        let islands = at(&image, "islands");
        for block in [0_u64, 2, 11, 12, 266, 268, 270, 9_998, 19_998] {
            let mut bytes = [0; 8];
            assert_eq!(image.read(&islands, block * 1024, &mut bytes).unwrap(), 8);
            let expected = if block % 2 == 0 { block } else { 0 };
            assert_eq!(u64::from_le_bytes(bytes), expected, "{kind}");
        }
        let mut bytes = [0; 100];
        let far = at(&image, "far");
        assert_eq!(image.read(&far, (200 << 20) - 2, &mut bytes).unwrap(), 5);
        assert_eq!(bytes[..5], *b"\0\0end");
        assert_eq!(image.read(&far, 1 << 40, &mut bytes).unwrap(), 0);
        assert_eq!(faults(&image), [""; 0]);
    }
}
