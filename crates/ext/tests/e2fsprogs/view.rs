//! A second opinion: `ext4-view`, whose authors and ours never met, sees the same tree with the same contents.

use crate::images::{Workshop, read, tools, whole};
use ext4_view::{Ext4, Ext4Error, Metadata};
use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use uvfs_ext::{Image, Inode, Kind};

/// By path: mode, owner, group, size, time of change, contents or text.
type Tree = BTreeMap<Vec<u8>, (u16, u32, u32, u64, i64, Vec<u8>)>;

fn theirs(view: &Ext4, directory: &[u8], tree: &mut Tree) -> Result<(), Ext4Error> {
    let from = if directory.is_empty() { b"/".as_slice() } else { directory };
    for entry in view.read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let name: &[u8] = name.as_ref();
        if name == b"." || name == b".." {
            continue;
        }
        let path = [directory, b"/", name].concat();
        let about: Metadata = view.symlink_metadata(path.as_slice())?;
        let contents = if about.is_dir() {
            theirs(view, &path, tree)?;
            Vec::new()
        } else if about.is_symlink() {
            let text = view.read_link(path.as_slice())?;
            let text: &[u8] = text.as_ref();
            text.to_vec()
        } else {
            view.read(path.as_slice())?
        };
        let size = if about.is_dir() { 0 } else { about.len() };
        let changed = about.modified().seconds();
        let mode = about.mode() & 0o7777;
        tree.insert(path, (mode, about.uid(), about.gid(), size, changed, contents));
    }
    Ok(())
}

fn ours(image: &Image, directory: &Inode, prefix: &[u8], tree: &mut Tree) {
    let mut entries = Vec::new();
    let listed = image.list(directory, 0, &mut |entry| {
        entries.push((entry.name.into_owned(), entry.inode));
        ControlFlow::Continue(())
    });
    listed.unwrap();
    for (name, number) in entries.into_iter().filter(|(name, _)| name != b"." && name != b"..") {
        let (inode, path) = (image.inode(number).unwrap(), [prefix, b"/", &name].concat());
        let contents = match inode.kind() {
            Some(Kind::Directory) => {
                ours(image, &inode, &path, tree);
                Vec::new()
            }
            Some(Kind::Symlink) => image.read_link(&inode).unwrap(),
            _ => whole(image, &inode),
        };
        let size = if inode.kind() == Some(Kind::Directory) { 0 } else { inode.size() };
        let changed = inode.modified().seconds;
        let about = (inode.mode() & 0o7777, inode.uid(), inode.gid(), size, changed, contents);
        tree.insert(path, about);
    }
}

#[test]
fn another_reader_agrees_on_tree_and_contents() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let source = workshop.tree();
    // Its authors hold a link to be a path, whose parts have 255 bytes at most.
    fs::remove_file(source.join("link-400")).unwrap();
    for options in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext4", "-b", "4096", "-O", "^64bit,^metadata_csum"],
        &["-t", "ext4", "-b", "2048", "-O", "metadata_csum_seed"],
        &["-t", "ext4", "-b", "1024", "-g", "1024", "-O", "^flex_bg"],
        &["-t", "ext2", "-b", "1024", "-I", "128"],
        &["-t", "ext3", "-b", "4096"],
    ] {
        if options[1] != "ext4" {
            // Its version 1.0 reads a hole of a file without extents from block 0.
            let _ = fs::remove_file(source.join("sparse"));
        }
        let path = workshop.image("view.img", options, Some(&source));
        let image = read(&path);
        let mut mine = Tree::new();
        ours(&image, &image.inode(uvfs_ext::ROOT).unwrap(), b"", &mut mine);
        let view = Ext4::load(Box::new(fs::read(&path).unwrap()));
        let view = view.unwrap_or_else(|error| panic!("{options:?}: {error}"));
        let mut other = Tree::new();
        theirs(&view, b"", &mut other).unwrap_or_else(|error| panic!("{options:?}: {error}"));
        assert_eq!(mine.len(), other.len(), "{options:?}");
        for (name, about) in &mine {
            let shown = String::from_utf8_lossy(name);
            assert!(other.get(name) == Some(about), "{options:?}: {shown}");
        }
    }
}
