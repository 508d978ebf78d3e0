//! Loads of the daemon: the phases, and the tree that they use.
//!
//! # Boundary
//! The calls of `find`, `ls -lR` and readers, made by this process, so that other versions of those programs measure
//! the same.

use super::daemon::Daemon;
use crate::context;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Files in one directory.
const FILES_PER_DIRECTORY: usize = 1000;
/// Files with content, so that those that are opened can be read.
const WITH_CONTENT: usize = 10_000;
/// Files that are made before the first of them is removed.
const MADE: usize = 500;
/// Threads that make and remove, each in a directory of its own.
const MAKERS: usize = 2;
/// The file that is read beyond the size; it is sparse.
const DATA: &str = "data";
const DATA_BYTES: u64 = 512 << 20;
/// The size of one read.
const PIECE: usize = 1 << 20;
/// Descriptors that this process needs besides.
const SPARE: u64 = 100;

/// How large the inputs are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) files: usize,
    pub(super) open: usize,
    pub(super) missing: usize,
    /// How many times the size is read.
    pub(super) data_times: u64,
    /// For how long files are made and removed.
    pub(super) make_for: Duration,
    /// Time for the daemon's work after the last call.
    pub(super) after: Duration,
}

/// The client of a phase.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) root: PathBuf,
    pub(super) sizes: Sizes,
    pub(super) data_bytes: u64,
}

/// One phase.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) run: fn(&Client, &mut Daemon) -> io::Result<()>,
}

/// In the order in which they are asked of one mount.
pub(super) const PHASES: [Phase; 12] = [
    Phase { name: "names", run: |client, _| client.names() },
    Phase { name: "find-size", run: |client, _| client.attributes(false) },
    Phase { name: "find-size-again", run: |client, _| client.attributes(false) },
    Phase { name: "ls-lR", run: |client, _| client.attributes(true) },
    Phase { name: "open", run: |client, _| client.open() },
    Phase { name: "data", run: |client, _| client.data() },
    Phase { name: "missing", run: |client, _| client.missing() },
    Phase { name: "together", run: |client, _| client.together() },
    Phase { name: "make-remove", run: |client, _| client.make_and_remove() },
    Phase { name: "drop", run: |_, daemon| daemon.drop_all() },
    Phase { name: "set", run: |_, daemon| daemon.set_own_size() },
    Phase { name: "find-size-after", run: |client, _| client.attributes(false) },
];

/// The tree of `sizes` below `inputs`, made if it is not there.
pub(super) fn source(inputs: &Path, sizes: &Sizes) -> io::Result<PathBuf> {
    let tree = inputs.join(format!("memory-{}", sizes.files));
    if tree.exists() {
        return Ok(tree);
    }
    // Under a temporary name until it is complete: a run may be killed.
    let draft = inputs.join(format!("memory-{}.{}", sizes.files, std::process::id()));
    fill(&draft, sizes)?;
    fs::rename(&draft, &tree).map_err(context(tree.display()))?;
    Ok(tree)
}

/// Fills a mount of another source: the file that is made last shows that the tree is whole.
pub(super) fn fill_mount(root: &Path, sizes: &Sizes) -> io::Result<PathBuf> {
    let tree = tree_in(root, sizes);
    if !tree.join(DATA).exists() {
        fill(&tree, sizes)?;
    }
    Ok(tree)
}

/// The tree of `sizes` in a mount.
pub(super) fn tree_in(root: &Path, sizes: &Sizes) -> PathBuf {
    root.join(format!("memory-{}", sizes.files))
}

fn fill(tree: &Path, sizes: &Sizes) -> io::Result<()> {
    for at in 0..sizes.files {
        if at % FILES_PER_DIRECTORY == 0 {
            let directory = tree.join(directory(at));
            fs::create_dir_all(&directory).map_err(context(directory.display()))?;
        }
        let content: &[u8] = if at < WITH_CONTENT { b"content\n" } else { b"" };
        fs::write(tree.join(path(at)), content)?;
    }
    File::create(tree.join(DATA))?.set_len(DATA_BYTES)
}

fn directory(at: usize) -> String {
    format!("d{:04}", at / FILES_PER_DIRECTORY)
}

fn path(at: usize) -> String {
    format!("{}/file-{at:07}", directory(at))
}

impl Client {
    /// Calls `each` for every file, as its directory lists it.
    fn walk(&self, mut each: impl FnMut(&Path) -> io::Result<()>) -> io::Result<()> {
        let mut seen = 0;
        for directory in fs::read_dir(&self.root)? {
            let directory = directory?;
            if !directory.file_type()?.is_dir() {
                continue;
            }
            for entry in fs::read_dir(directory.path())? {
                each(&entry?.path())?;
                seen += 1;
            }
        }
        match seen == self.sizes.files {
            true => Ok(()),
            false => Err(io::Error::other(format!("{seen} files of {}", self.sizes.files))),
        }
    }

    /// `find`, by names only.
    fn names(&self) -> io::Result<()> {
        self.walk(|_| Ok(()))
    }

    /// `find -size +0`; or `ls -lR`, which asks for access control lists, too.
    fn attributes(&self, long: bool) -> io::Result<()> {
        let mut value = [0; 256];
        self.walk(|path| {
            fs::symlink_metadata(path)?;
            if !long {
                return Ok(());
            }
            for name in ["security.selinux", "system.posix_acl_access"] {
                match rustix::fs::lgetxattr(path, name, &mut value) {
                    Ok(_) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        })
    }

    /// Many files open at once, each of them read.
    fn open(&self) -> io::Result<()> {
        let open = self.opened(self.sizes.open)?;
        // Some work of the daemon is done only while it is idle.
        thread::sleep(self.sizes.after);
        drop(open);
        Ok(())
    }

    fn opened(&self, count: usize) -> io::Result<Vec<File>> {
        raise_file_limit(count as u64 + SPARE)?;
        let open = |at| {
            let file = File::open(self.root.join(path(at)))?;
            file.read_at(&mut [0; 16], 0)?;
            Ok(file)
        };
        (0..count).map(open).collect()
    }

    /// Data beyond the size, from begin to end.
    fn data(&self) -> io::Result<()> {
        let file = File::open(self.root.join(DATA))?;
        let length = self.data_bytes.min(file.metadata()?.len());
        let (mut piece, mut at) = (vec![0; PIECE], 0);
        while at < length {
            match file.read_at(&mut piece, at)? {
                0 => return Err(io::Error::other("the file of data is short")),
                read => at += read as u64,
            }
        }
        Ok(())
    }

    /// Names that are not there, each asked for once.
    fn missing(&self) -> io::Result<()> {
        for at in 0..self.sizes.missing {
            let path = self.root.join(directory(at % self.sizes.files)).join(format!("no-{at}"));
            match fs::symlink_metadata(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(context(path.display())(error)),
                Ok(_) => return Err(io::Error::other(format!("{} is there", path.display()))),
            }
        }
        Ok(())
    }

    /// Files and directories are made, written, renamed and removed for a while, beside each other.
    fn make_and_remove(&self) -> io::Result<()> {
        let until = Instant::now() + self.sizes.make_for;
        let make = |maker: usize| -> io::Result<()> {
            let top = self.root.join(format!("made-{maker}"));
            for round in 0.. {
                let folder = top.join(format!("round-{round}"));
                fs::create_dir_all(&folder)?;
                for at in 0..MADE {
                    let name = folder.join(format!("file-{at}"));
                    fs::write(&name, b"content\n")?;
                    if at % 4 == 0 {
                        fs::rename(&name, folder.join(format!("other-{at}")))?;
                    }
                }
                fs::remove_dir_all(&folder)?;
                if Instant::now() >= until {
                    break;
                }
            }
            fs::remove_dir(&top)
        };
        thread::scope(|scope| {
            let makers: Vec<_> =
                (0..MAKERS).map(|maker| scope.spawn(move || make(maker))).collect();
            joined(makers)
        })
    }

    /// A walk, open files, data and missing names at the same time.
    fn together(&self) -> io::Result<()> {
        let opened = || -> io::Result<()> {
            let _open = self.opened(self.sizes.open / 2)?;
            thread::sleep(self.sizes.after);
            Ok(())
        };
        thread::scope(|scope| {
            let clients = [
                scope.spawn(|| self.attributes(false)),
                scope.spawn(|| self.data()),
                scope.spawn(|| self.missing()),
                scope.spawn(opened),
            ];
            joined(clients)
        })
    }
}

/// Waits for `clients`; returns the first error of one of them.
fn joined<'s>(
    clients: impl IntoIterator<Item = thread::ScopedJoinHandle<'s, io::Result<()>>>,
) -> io::Result<()> {
    let crashed = |_| Err(io::Error::other("a client panicked"));
    clients.into_iter().try_for_each(|one| one.join().unwrap_or_else(crashed))
}

/// Lets this process have `files` descriptors, if that is allowed.
fn raise_file_limit(files: u64) -> io::Result<()> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= files) {
        return Ok(());
    }
    let raised = Rlimit { current: Some(files.max(maximum.unwrap_or(files))), maximum };
    setrlimit(Resource::Nofile, raised)
        .map_err(|error| io::Error::other(format!("{files} descriptors for open files: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The phases are right about the tree: on the tree itself, without any mount.
    #[test]
    fn the_tree_is_walked_opened_and_read() {
        let inputs = std::env::temp_dir().join(format!("uvfs-bench-memory-{}", std::process::id()));
        fs::create_dir_all(&inputs).unwrap();
        let sizes = Sizes {
            files: 2500,
            open: 20,
            missing: 30,
            data_times: 1,
            make_for: Duration::ZERO,
            after: Duration::ZERO,
        };
        let root = source(&inputs, &sizes).unwrap();
        assert_eq!(source(&inputs, &sizes).unwrap(), root, "made once");
        let client = Client { root, sizes, data_bytes: 3 << 20 };
        client.names().unwrap();
        client.attributes(true).unwrap();
        client.missing().unwrap();
        client.data().unwrap();
        assert_eq!(client.opened(20).unwrap().len(), 20);
        client.make_and_remove().unwrap();
        assert!(!client.root.join("made-0").exists());
        assert_eq!(fill_mount(&inputs, &sizes).unwrap(), client.root, "it is there");
        fs::remove_file(client.root.join(path(2000))).unwrap();
        let short = client.names().unwrap_err().to_string();
        assert_eq!(short, "2499 files of 2500");
        fs::remove_dir_all(&inputs).unwrap();
    }
}
