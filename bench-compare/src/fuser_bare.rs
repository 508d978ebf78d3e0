//! A FUSE server over the crate `fuser` that answers constants: the cost of that crate and the kernel alone.
//!
//! # Boundary
//! The same answers as the server of `uvfs-bench` over uvfs's transport (bench/src/bare.rs): every name is a file with
//! the same attributes, whose size is the number of GETATTR requests so far.

use fuser::{
    Config, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, MountOption,
    ReplyAttr, ReplyEntry, Request, Session,
};
use std::ffi::OsStr;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, UNIX_EPOCH};

/// How long the kernel may cache an answer.
const LIFETIME: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fuser-bare: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Mounts and serves until unmounted.
fn run() -> Result<(), String> {
    let words: Vec<_> = std::env::args_os().skip(1).collect();
    let [mountpoint, option, readers] = words.as_slice() else { return Err(usage()) };
    let readers = readers.to_str().and_then(|readers| readers.parse().ok()).ok_or_else(usage)?;
    if option != "--readers" {
        return Err(usage());
    }
    let mut config = Config::default();
    config.n_threads = Some(readers);
    config.mount_options = vec![
        MountOption::FSName("uvfs-bench".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    let server = Bare { getattrs: AtomicU64::new(0) };
    let session = Session::new(server, PathBuf::from(mountpoint), &config);
    session.and_then(Session::run).map_err(|error| error.to_string())
}

fn usage() -> String {
    "usage: fuser-bare MOUNTPOINT --readers N".to_owned()
}

#[derive(Debug)]
struct Bare {
    getattrs: AtomicU64,
}

impl Filesystem for Bare {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply.entry(&LIFETIME, &attributes(node_of(name), 0), Generation(0));
    }

    fn getattr(&self, _req: &Request, node: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        // ORDERING: Relaxed; a count that its own client reads.
        let count = self.getattrs.fetch_add(1, Relaxed) + 1;
        reply.attr(&LIFETIME, &attributes(node, count));
    }
}

/// A node id for every name, never the root's.
fn node_of(name: &OsStr) -> INodeNo {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(name.as_bytes());
    INodeNo((hash >> 1) + 2)
}

fn attributes(node: INodeNo, size: u64) -> FileAttr {
    let root = node == INodeNo::ROOT;
    FileAttr {
        ino: node,
        size: if root { 0 } else { size },
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: if root { FileType::Directory } else { FileType::RegularFile },
        perm: if root { 0o755 } else { 0o644 },
        nlink: if root { 2 } else { 1 },
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}
