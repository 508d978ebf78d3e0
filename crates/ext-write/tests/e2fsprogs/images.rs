//! Shared by the tests: making images, reading them, checking them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use uvfs_ext::{Image, Inode, MemoryDevice, ROOT};

/// Whether the tools are there; says it if they are not.
pub(crate) fn tools() -> bool {
    let missing = ["mke2fs", "debugfs", "e2fsck"].into_iter().find(|tool| {
        let run = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        run.is_err()
    });
    if let Some(tool) = missing {
        uvfs_skip::lacking(format_args!("{tool} is not installed (Debian: e2fsprogs)"));
    }
    missing.is_none()
}

/// A folder for images.
pub(crate) struct Workshop(TempDir);

impl Workshop {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// An image of `size` with `options` of mke2fs, filled from `tree`.
    pub(crate) fn image(&self, options: &[&str], size: &str, tree: Option<&Path>) -> Vec<u8> {
        let path = self.path("new.img");
        // An existing file would keep the bytes that mke2fs does not write.
        let _ = fs::remove_file(&path);
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-F"]).args(options);
        if let Some(tree) = tree {
            make.arg("-d").arg(tree);
        }
        let output = make.arg(&path).arg(size).stdin(Stdio::null()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{options:?}: {error}");
        fs::read(&path).unwrap()
    }

    /// Runs e2fsck with `arguments` on an image; its status, its output, and the image afterwards.
    pub(crate) fn fsck(&self, image: &[u8], arguments: &[&str]) -> (i32, String, Vec<u8>) {
        let path = self.path("judged.img");
        fs::write(&path, image).unwrap();
        let output = Command::new("e2fsck").args(arguments).arg(&path).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.code().unwrap_or(-1), printed, fs::read(&path).unwrap())
    }
}

pub(crate) fn open(bytes: Vec<u8>) -> Image {
    Image::open(Arc::new(MemoryDevice::new(bytes))).unwrap()
}

/// The inode at a path.
pub(crate) fn at(image: &Image, path: &str) -> Inode {
    let mut inode = image.inode(ROOT).unwrap();
    for name in path.split('/').filter(|name| !name.is_empty()) {
        let found = image.lookup(&inode, name.as_bytes()).unwrap();
        inode = image.inode(found.unwrap_or_else(|| panic!("no {path}"))).unwrap();
    }
    inode
}

pub(crate) fn whole(image: &Image, inode: &Inode) -> Vec<u8> {
    let mut bytes = vec![0xA5; inode.size() as usize + 1];
    let length = image.read(inode, 0, &mut bytes).unwrap();
    bytes.truncate(length);
    bytes
}
