//! Cleaning one directory of a live mount, for a client of the control socket.
//!
//! # Boundary
//! From a request to a directory of the mount, and from the reports of the layers to the one that is sent. What
//! cleaning is, is [`Bridge::clean`]'s.
//!
//! # Concurrency
//! Runs on the client's thread, which serves nothing else and holds no lock: the kernel is waited for, which may first
//! have requests for the threads that serve.

use super::{Bridge, CleanStage, Cleaner, KernelHow, MountProgress, turns};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use uvfs_control::cause;
use uvfs_control::cleaned::{Cleaned, HostSource, Kernel, Phase, Sort, Step};
use uvfs_control::protocol::CleanRequest;
use uvfs_control::serve::{number, resolve};
use uvfs_vfs::clean::request::Request;
use uvfs_vfs::{CleanProgress, Dirty, Node, Tally, Vfs};

impl Cleaner {
    /// Carries out a request of the control socket; `source` is the host directory that the mount shows, if it
    /// shows one. Otherwise as [`Cleaner::clean`].
    ///
    /// # Errors
    /// Why nothing was cleaned, in words.
    pub fn carry_out(
        &self,
        source: Option<HostSource>,
        request: &CleanRequest,
        progress: &mut dyn FnMut(Step) -> ControlFlow<()>,
    ) -> Result<Cleaned, String> {
        let bridge = self.0.upgrade().ok_or_else(|| cause(&turns::mount_ended()))?;
        carry_out(&bridge, source, request, progress)
    }
}

/// Carries out `request`.
///
/// # Errors
/// Why nothing was cleaned.
fn carry_out(
    bridge: &Bridge,
    source: Option<HostSource>,
    request: &CleanRequest,
    progress: &mut dyn FnMut(Step) -> ControlFlow<()>,
) -> Result<Cleaned, String> {
    let vfs = &bridge.vfs;
    let wanted = Request::parse(&request.request.0).map_err(|refusal| refusal.to_string())?;
    let path = wanted.directory.as_deref().unwrap_or(Path::new("/"));
    let directory = resolve(vfs, path)?;
    if request.dry_run {
        return Ok(Cleaned { source, ..resident(vfs, &directory) });
    }
    let dirty = if request.sync { Dirty::WriteFirst } else { Dirty::Skip };
    let report = bridge
        .clean(&directory, wanted.what, dirty, &mut |now| progress(step(now)))
        .map_err(|error| format!("{}; see the daemon's log", cause(&error)))?;
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

#[cfg(test)]
mod tests {
    use super::*;

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
