//! A directory to play in, and shorthands for the calls that tests make most.

use super::host::Host;
use super::{DirectoryBackend, DirectoryConfig};
use std::path::PathBuf;
use uvfs_vfs::{
    Attributes, Backend, Caller, FileRef, InodeId, Name, NewKind, NewNode, RenameMode, Result,
};

/// A temporary directory and the backend that serves it.
pub(super) struct Scratch {
    folder: tempfile::TempDir,
    pub(super) backend: DirectoryBackend,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self::with(DirectoryConfig::default())
    }

    pub(super) fn with(config: DirectoryConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let backend = DirectoryBackend::open(folder.path(), config).unwrap();
        Self { folder, backend }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(super) fn host(&self) -> &Host {
        &self.backend.host
    }

    pub(super) fn lookup(&self, parent: InodeId, name: &str) -> Result<InodeId> {
        let entry =
            self.backend.names().lookup(&root_caller(), parent, Name::new(name.as_bytes())?)?;
        Ok(entry.inode)
    }

    pub(super) fn attributes(&self, inode: InodeId) -> Result<Attributes> {
        self.backend.inodes().attributes(FileRef::unopened(inode))
    }

    pub(super) fn make(&self, parent: InodeId, name: &str, kind: NewKind<'_>) -> Result<InodeId> {
        self.make_as(&root_caller(), parent, name, kind, 0o755)
    }

    pub(super) fn make_as(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: &str,
        kind: NewKind<'_>,
        mode: u32,
    ) -> Result<InodeId> {
        let new = NewNode { kind, mode, umask: 0 };
        Ok(self
            .backend
            .creation()
            .unwrap()
            .create(caller, parent, Name::new(name.as_bytes())?, &new)?
            .inode)
    }

    pub(super) fn make_file(&self, parent: InodeId, name: &str) -> Result<InodeId> {
        self.make(parent, name, NewKind::Regular)
    }

    pub(super) fn make_directory(&self, parent: InodeId, name: &str) -> Result<InodeId> {
        self.make(parent, name, NewKind::Directory)
    }

    pub(super) fn unlink(&self, parent: InodeId, name: &str) -> Result<()> {
        self.backend.names().unlink(&root_caller(), parent, Name::new(name.as_bytes())?)
    }

    pub(super) fn remove_directory(&self, parent: InodeId, name: &str) -> Result<()> {
        self.backend.names().remove_directory(&root_caller(), parent, Name::new(name.as_bytes())?)
    }

    pub(super) fn rename(
        &self,
        parent: InodeId,
        name: &str,
        to: InodeId,
        new: &str,
        mode: RenameMode,
    ) -> Result<()> {
        let (name, new) = (Name::new(name.as_bytes())?, Name::new(new.as_bytes())?);
        self.backend.names().rename(&root_caller(), (parent, name), (to, new), mode)
    }

    pub(super) fn counter(&self, name: &str) -> u64 {
        let counters = self.backend.counters();
        counters.iter().find(|(counter, _)| *counter == name).unwrap().1
    }

    /// Closes every descriptor that may be closed.
    pub(super) fn close_descriptors(&self) {
        while self.host().descriptors.len() > 0 {
            self.host().descriptors.shrink();
        }
    }
}

/// The user that runs the tests, as which every backend of theirs acts anyway.
pub(super) fn root_caller() -> Caller {
    Caller::new(rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), &[])
}

/// Whether the test runs as user 0; prints a note if not.
pub(super) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        uvfs_skip::skip("only user 0 can act as others");
    }
    root
}

/// Runs `body`, the rest of the test with the full `name`, in a separate process that may have `descriptors` open: such
/// a limit applies to all threads of a process.
pub(crate) fn in_process_with(descriptors: u64, name: &str, body: fn()) {
    const INNER: &str = "UVFS_TEST_IN_ITS_OWN_PROCESS";
    const DONE: &str = "came to its end";
    if std::env::var_os(INNER).is_some() {
        use rustix::process::{Resource, Rlimit, setrlimit};
        let limit = Rlimit { current: Some(descriptors), maximum: Some(descriptors) };
        setrlimit(Resource::Nofile, limit).unwrap();
        body();
        println!("{DONE}");
        return;
    }
    let outcome = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INNER, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let errors = String::from_utf8_lossy(&outcome.stderr).into_owned();
    assert!(said.contains(DONE), "{said}{errors}");
}
