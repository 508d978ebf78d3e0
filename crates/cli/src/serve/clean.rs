//! Cleaning one directory of a live mount, for a client of the control socket.
//!
//! # Boundary
//! From the bytes of a request to a directory of the mount, and from the reports of the layers below to the
//! one that is sent. What cleaning is, is the core's and the frontend's.
//!
//! # Concurrency
//! Runs on the client's thread, which serves nothing else and holds no lock: the frontend waits for the
//! kernel, which may first have requests for the threads that serve.
//!
//! # Why
//! The path is walked by the core from the mount's root, not by the kernel from the host's: so a link that
//! appears on the way, or a mount on top of it, leads nowhere else. Weakness: the walk brings the names
//! on the way into the cache; they are above the directory and stay.

use crate::control::cleaned::{Cleaned, HostSource, Kernel, Number, Phase, Raw, Sort, Step};
use crate::control::protocol::CleanRequest;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use uvfs_fuse::{CleanStage, KernelHow, Mount, MountProgress};
use uvfs_vfs::clean::request::{Refusal, Request};
use uvfs_vfs::{
    Amount, Caller, Checks, CleanProgress, Dirty, Error, Groups, Node, PageCaching, ResolveMode,
    Tally, Vfs,
};

/// Carries out `request`.
///
/// # Errors
/// Why nothing was cleaned.
pub(super) fn clean(
    mount: &Mount,
    vfs: &Arc<Vfs>,
    source: Option<&Path>,
    request: &CleanRequest,
    progress: &mut dyn FnMut(Step) -> ControlFlow<()>,
) -> Result<Cleaned, String> {
    let wanted = Request::parse(&request.request.0).map_err(|refusal| refusal.to_string())?;
    let path = wanted.directory.as_deref().unwrap_or(Path::new("/"));
    let directory = resolve(vfs, path)?;
    let source = source.map(|path| host_source(vfs, path));
    if request.dry_run {
        return Ok(Cleaned { source, ..resident(vfs, &directory) });
    }
    let dirty = if request.sync { Dirty::WriteFirst } else { Dirty::Skip };
    let report = mount
        .clean(&directory, wanted.what, dirty, &mut |now| progress(step(now)))
        .map_err(|error| format!("{}; see the daemon's log", crate::cause(&error)))?;
    let (caches, kernel) = (report.caches, report.kernel);
    Ok(Cleaned {
        names: sort(caches.names),
        inodes: sort(caches.inodes),
        pages: sort(caches.pages),
        kernel: Some(Kernel {
            held: kernel.held,
            let_go: kernel.let_go,
            kept: kernel.kept,
            files: kernel.files,
            how: how(kernel.how).into(),
            refused: kernel.refused,
        }),
        not_written: caches.not_written,
        effect_seconds: caches.effect.as_secs_f64(),
        took_seconds: report.took.as_secs_f64(),
        interrupted: report.ended_early,
        source,
    })
}

/// The directory `path` of the file system; no link on the way is followed.
pub(super) fn resolve(vfs: &Arc<Vfs>, path: &Path) -> Result<Node, String> {
    // Who may clean is decided already: this process's user, whose mount it is, or root.
    let groups = rustix::process::getgroups().unwrap_or_default();
    let caller = Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: Groups::Known(groups.iter().map(|group| group.as_raw()).collect()),
        checks: Checks::Done,
    };
    let root = vfs.root_directory(caller).with_resolve(ResolveMode::NO_SYMLINKS);
    match root.open_directory(path.as_os_str().as_bytes()) {
        Ok(directory) => Ok(directory.node().clone()),
        Err(Error::NotFound) => Err(Refusal::Missing.to_string()),
        Err(Error::NotDirectory) => Err(Refusal::NotDirectory.to_string()),
        Err(Error::SymlinkLoop) => Err(Refusal::Symlink.to_string()),
        Err(Error::Access | Error::NotPermitted) => Err(Refusal::NotPermitted.to_string()),
        Err(error) => Err(format!("{error}; try again")),
    }
}

/// What is cached below `directory`.
fn resident(vfs: &Arc<Vfs>, directory: &Node) -> Cleaned {
    let resident = vfs.resident(directory);
    let of = |amount| Sort { before: number(amount), after: number(amount), ..Sort::default() };
    Cleaned {
        names: of(resident.names),
        inodes: of(resident.inodes),
        pages: Sort { kept_dirty: number(resident.dirty), ..of(resident.pages) },
        ..Cleaned::default()
    }
}

pub(super) fn host_source(vfs: &Vfs, path: &Path) -> HostSource {
    // Who asks compares: under the same path there may be another directory where it runs.
    let seen = rustix::fs::stat(path).ok();
    HostSource {
        path: Raw(path.as_os_str().as_bytes().into()),
        device: seen.map_or(0, |stat| stat.st_dev),
        inode: seen.map_or(0, |stat| stat.st_ino),
        caches_pages: vfs.capabilities().caching == PageCaching::Store,
    }
}

fn step(now: MountProgress) -> Step {
    match now.stage {
        CleanStage::Waiting => Step { phase: Phase::Waiting, ..Step::default() },
        CleanStage::Kernel => {
            Step { phase: Phase::Kernel, done: now.sent, total: now.held, freed: now.let_go }
        }
        CleanStage::Caches => {
            let CleanProgress { done, total, freed } = now.caches;
            Step { phase: Phase::Freeing, done, total, freed }
        }
    }
}

fn how(how: KernelHow) -> &'static str {
    match how {
        KernelHow::Nothing => "nothing",
        KernelHow::Pages => "pages",
        KernelHow::Pruned => "pruned",
        KernelHow::Entries => "entries",
    }
}

fn sort(tally: Tally) -> Sort {
    Sort {
        before: number(tally.found),
        freed: number(tally.freed),
        after: number(tally.left()),
        kept_busy: number(tally.busy),
        kept_dirty: number(tally.dirty),
    }
}

pub(super) fn number(Amount { entries, bytes }: Amount) -> Number {
    Number { entries, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_vfs::VfsConfig;

    #[test]
    fn a_path_is_walked_without_following_links() {
        let backend = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(backend, VfsConfig::default()).unwrap();
        let root = vfs.root_directory(Caller::root());
        root.create_directory("a", 0o700).unwrap();
        root.create_directory("a/b", 0o700).unwrap();
        root.write_file("a/file", b"x").unwrap();
        root.symlink("a", "link").unwrap();
        root.symlink("b", "a/last").unwrap();
        let check = |path: &str, refusal: Refusal| {
            let refused = resolve(&vfs, Path::new(path)).unwrap_err();
            assert_eq!(refused, refusal.to_string(), "{path}");
        };
        check("/none", Refusal::Missing);
        check("/none/b", Refusal::Missing);
        check("/a/file", Refusal::NotDirectory);
        check("/a/file/b", Refusal::NotDirectory);
        check("/link", Refusal::Symlink);
        check("/link/b", Refusal::Symlink);
        check("/a/last", Refusal::Symlink);
        for path in ["/", "/a", "/a/b", "/a//./b/"] {
            assert!(resolve(&vfs, Path::new(path)).unwrap().is_directory(), "{path}");
        }
        assert_eq!(resolve(&vfs, Path::new("/")).unwrap(), *vfs.root());
    }

    #[test]
    fn steps_are_those_of_the_stage() {
        let caches = CleanProgress { done: 1, total: 2, freed: 1 };
        let now = MountProgress { held: 9, sent: 4, let_go: 3, caches, ..MountProgress::default() };
        let at = |stage| step(MountProgress { stage, ..now });
        assert_eq!(at(CleanStage::Waiting).total, 0);
        let kernel = Step { phase: Phase::Kernel, done: 4, total: 9, freed: 3 };
        assert_eq!(at(CleanStage::Kernel), kernel);
        assert_eq!(at(CleanStage::Caches).total, 2);
    }
}
