//! A FUSE server that answers constants: the cost of the FUSE crate and the kernel alone.
//!
//! # Boundary
//! Every name is a file with the same attributes; nothing can be read or changed. Run as a child
//! process (a hidden subcommand of this program), so that its CPU time is its own.
//!
//! # Why
//! The floor for uvfs: the same crate, the same number of readers, no work. The size of a file is
//! the number of GETATTR requests so far: a client can check that each of its calls was exactly one
//! request. That costs one shared increment per request.

use fuser::{
    Config, Errno, FileAttr, FileHandle, FileType, Filesystem, Generation, INodeNo, MountOption,
    ReplyAttr, ReplyEntry, Request, Session,
};
use std::ffi::OsStr;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// How long the kernel may cache an answer.
const LIFETIME: Duration = Duration::from_secs(3600);
/// Lookups of names that begin so take long, if asked for.
const STUCK: &[u8] = b"stuck";

/// Mounts and serves until unmounted.
pub(crate) fn serve(mountpoint: &Path, readers: usize, stuck_ms: u64) -> io::Result<()> {
    let mut config = Config::default();
    config.n_threads = Some(readers);
    config.mount_options = vec![
        MountOption::FSName("uvfs-bench".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
    ];
    let server = Bare { getattrs: AtomicU64::new(0), stuck: Duration::from_millis(stuck_ms) };
    Session::new(server, mountpoint, &config)?.run()
}

#[derive(Debug)]
struct Bare {
    getattrs: AtomicU64,
    stuck: Duration,
}

impl Filesystem for Bare {
    fn lookup(&self, _request: &Request, _parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let attr = attributes(node_of(name), 0);
        if self.stuck.is_zero() || !name.as_bytes().starts_with(STUCK) {
            return reply.entry(&LIFETIME, &attr, Generation(0));
        }
        let stuck = self.stuck;
        // A thread of its own: only the requesting client waits.
        std::thread::spawn(move || {
            std::thread::sleep(stuck);
            reply.error(Errno::ENOENT);
        });
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_nodes_of_their_own_and_none_is_the_root() {
        let nodes = ["", "a", "b", "stuck-1"].map(|name| node_of(OsStr::new(name)));
        assert!(nodes.iter().all(|&node| node != INodeNo::ROOT));
        assert_ne!(nodes[1], nodes[2]);
        assert_eq!(node_of(OsStr::new("a")), nodes[1]);
    }
}
