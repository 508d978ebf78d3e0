//! A whole tree as plain values, for comparing two views of it.

use std::collections::BTreeMap;
use uvfs_vfs::{Directory, FileKind};

/// Path to the object there.
pub type Snapshot = BTreeMap<String, Seen>;

/// One object as a test compares it; times are left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// `st_ino`.
    pub number: u64,
    /// `st_mode`.
    pub mode: u32,
    /// Names.
    pub links: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// Size in bytes.
    pub size: u64,
    /// Content of a file, text of a link.
    pub content: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// Everything below `directory`.
///
/// # Panics
/// If something in the tree cannot be read.
pub fn snapshot(directory: &Directory) -> Snapshot {
    let mut all = Snapshot::new();
    gather(directory, ".", &mut all);
    all
}

fn gather(root: &Directory, path: &str, all: &mut Snapshot) {
    all.insert(path.to_owned(), seen(root, path));
    if root.symlink_stat(path).expect(path).kind != FileKind::Directory {
        return;
    }
    for entry in root.open_directory(path).expect(path).list_all().expect(path) {
        let name = String::from_utf8_lossy(&entry.name);
        gather(root, &format!("{path}/{name}"), all);
    }
}

fn seen(root: &Directory, path: &str) -> Seen {
    let attributes = root.symlink_stat(path).expect(path);
    let content = match attributes.kind {
        FileKind::Regular => root.read_file(path).expect(path),
        FileKind::Symlink => root.read_link(path).expect(path),
        _ => Vec::new(),
    };
    let mut xattrs = BTreeMap::new();
    if attributes.kind == FileKind::Regular || attributes.kind == FileKind::Directory {
        for name in root.list_xattrs(path).unwrap_or_default() {
            let value = root.get_xattr(path, &name).expect(path);
            xattrs.insert(name, value);
        }
    }
    Seen {
        number: attributes.number,
        mode: attributes.st_mode(),
        links: attributes.links,
        owner: (attributes.uid, attributes.gid),
        size: attributes.size,
        content,
        xattrs,
    }
}
