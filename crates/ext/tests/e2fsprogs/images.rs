//! Shared by the tests: a tree of files, images made of it, and the tools that make them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use tempfile::TempDir;
use uvfs_ext::check::{Observer, check};
use uvfs_ext::{Error, Fault, Image, Inode, MemoryDevice, ROOT};

/// Whether the tools are there; says it if they are not.
pub(crate) fn tools() -> bool {
    let missing = ["mke2fs", "debugfs", "e2fsck", "dumpe2fs"].into_iter().find(|tool| {
        let run = Command::new(tool).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
        run.is_err()
    });
    if let Some(tool) = missing {
        uvfs_skip::lacking(format_args!("{tool} is not installed (Debian: e2fsprogs)"));
    }
    missing.is_none()
}

/// A folder that holds a tree and images.
pub(crate) struct Workshop(TempDir);

/// Contents that no other file has.
pub(crate) fn contents(length: usize, salt: u8) -> Vec<u8> {
    (0..length).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ salt).collect()
}

impl Workshop {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Files of all sizes, holes, links, a large directory.
    pub(crate) fn tree(&self) -> PathBuf {
        let root = self.path("tree");
        let deep = root.join("a/b/c");
        fs::create_dir_all(&deep).unwrap();
        for (salt, length) in (0..).zip([0, 1, 59, 60, 61, 140, 1024, 4096, 5000, 70_000, 700_001])
        {
            fs::write(deep.join(format!("file-{length}")), contents(length, salt)).unwrap();
        }
        let sparse = fs::File::create(root.join("sparse")).unwrap();
        for at in [40_000, 1_000_000, 2_500_000] {
            std::os::unix::fs::FileExt::write_all_at(&sparse, b"island", at).unwrap();
        }
        sparse.set_len(3_000_000).unwrap();
        for length in [1, 58, 59, 60, 61, 400] {
            symlink("x".repeat(length), root.join(format!("link-{length}"))).unwrap();
        }
        fs::hard_link(deep.join("file-4096"), root.join("twice")).unwrap();
        fs::create_dir(root.join("empty")).unwrap();
        let many = root.join("many");
        fs::create_dir(&many).unwrap();
        for number in 0..400 {
            fs::write(many.join(format!("a name that is long enough {number}")), [number as u8])
                .unwrap();
        }
        fs::write(root.join("ä\u{1F600}\n"), "odd").unwrap();
        fs::set_permissions(root.join("twice"), fs::Permissions::from_mode(0o4751)).unwrap();
        root
    }

    /// An image with `options` of mke2fs, filled from `tree`, its directories indexed.
    pub(crate) fn image(&self, name: &str, options: &[&str], tree: Option<&Path>) -> PathBuf {
        let image = self.path(name);
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-F", "-E", "hash_seed=01020304-0506-0708-090a-0b0c0d0e0f10"])
            .args(options);
        if let Some(tree) = tree {
            make.arg("-d").arg(tree);
        }
        // The tree has 400 small files, each of a block.
        let size = if options.contains(&"65536") { "64M" } else { "12M" };
        run(make.arg(&image).arg(size));
        let mut fsck = Command::new("e2fsck");
        let status =
            fsck.args(["-fyD"]).arg(&image).stdout(Stdio::null()).stderr(Stdio::null()).status();
        assert!(status.unwrap().code().unwrap() <= 1, "{options:?}");
        image
    }

    /// Runs `commands` of debugfs on `image`.
    pub(crate) fn debugfs(&self, image: &Path, commands: &[String]) -> String {
        let script = self.path("commands");
        fs::write(&script, commands.join("\n") + "\n").unwrap();
        run(Command::new("debugfs").arg("-w").arg("-f").arg(&script).arg(image))
    }
}

/// Runs a command that must succeed; returns its output.
pub(crate) fn run(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned() + &error
}

pub(crate) fn open(bytes: Vec<u8>) -> Result<Image, Error> {
    Image::open(Arc::new(MemoryDevice::new(bytes)))
}

pub(crate) fn read(path: &Path) -> Image {
    open(fs::read(path).unwrap()).unwrap()
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

/// Keeps the faults.
#[derive(Default)]
pub(crate) struct Faults(pub(crate) Vec<Fault>);

impl Observer for Faults {
    fn fault(&mut self, fault: &Fault) {
        self.0.push(fault.clone());
    }
}

/// The faults that a check finds in an image.
pub(crate) fn faults(image: &Image) -> Vec<String> {
    let mut faults = Faults::default();
    let summary = check(image, &mut faults).unwrap();
    assert_eq!(summary.faults, faults.0.len() as u64);
    faults.0.iter().map(Fault::to_string).collect()
}
