//! Cleaning: empties the caches of one directory and of all below it.
//!
//! [`Vfs::begin_clean`] invalidates the entries at once, [`Cleaning::reap`] frees them in steps. [`request`] parses
//! users' requests. A frontend cleans the kernel's caches in between. Picture and counter-examples: docs/cleaning.md.
//!
//! Each clean has a tick of the clock that also stamps names. All cleans share one *generation*.
//!
//! C1. A clean raises the directory's `cleaned` to its tick, then advances the generation. That is its whole effect.
//! C2. Before it uses a directory's cache, a thread compares the generation that the directory knows with the present
//! one. If they differ, it walks up to the first directory that is up to date, and applies cleans on the way down. It
//! reads the generation before the entries, and a directory publishes its new generation after its new state.
//! C3. `cleaned` and the known generation only rise. A name is valid if its question was not before the `cleaned` of
//! its directory. Earlier answers are not cached, nor is the result of a change that was in flight at that time.
//! C4. A directory that moves first applies the cleans of its old place, and records a moment: earlier cleans of the
//! new place do not concern it. That moment is above the tick of no clean that is half done or not applied. So each
//! clean is either applied before the move or has a later tick.
//! C5. A directory applies cleans before it is torn down, and leaves its state to its next inode (the inode table).
//! Caches of a directory with an unknown place are not used.
//! C6. The reaper removes a name only after its directory has applied the clean: it is not complete then
//! ([`uvfs_concurrent::complete`]).
//! C7. Pages do the same by file (P1 to P4 of the page cache), in the directory where the file was last found.
//!
//! Weakness: after any clean each directory in use walks up once, and path memos end. Cleaned entries use memory until
//! the reaper or eviction frees them.

mod below;
mod level;
mod pass;
mod reap;
mod report;
pub mod request;
mod resident;
mod tick;
mod views;

pub use level::{CHILDREN_MAX, ResidentChild, ResidentLevel};
pub use report::{Amount, Clean, CleanProgress, CleanReport, CleanStage, Dirty, Tally};
pub use resident::{Resident, ResidentDirectory};
pub(crate) use views::Views;

use crate::error::{Error, Result};
use crate::inode::Node;
use crate::vfs::Vfs;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

/// A clean that has taken effect: the entries below the directory are not used any more, but most of them are still in
/// memory.
#[derive(Debug)]
#[must_use = "cleaned objects stay in memory until they are reaped, or evicted to make room"]
pub struct Cleaning {
    vfs: Vfs,
    directory: Node,
    clean: Clean,
    /// Tick of the cleaning on the clock that stamps names.
    tick: u64,
    effect: Duration,
}

impl Vfs {
    /// Cleans all entries below `directory`. It takes effect at once, and frees the memory before it returns. Entries
    /// in use stay. Data that the store does not have yet is never lost.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use uvfs_vfs::{Caller, Clean, Dirty, Vfs, VfsConfig};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let store = uvfs_backends::memory::MemoryBackend::new(Default::default())?;
    /// # let vfs = Vfs::new(store, VfsConfig::default())?;
    /// let top = vfs.root_directory(Caller::root());
    /// top.create_directory("photos", 0o755)?;
    /// top.write_file("photos/1.jpg", "...")?;
    /// let photos = top.open_directory("photos")?;
    /// let report = vfs.clean(photos.node(), Clean::Pages | Clean::Names, Dirty::WriteFirst)?;
    /// assert_eq!(report.names.freed.entries, 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn clean(&self, directory: &Node, clean: Clean, dirty: Dirty) -> Result<CleanReport> {
        let cleaning = self.begin_clean(directory, clean)?;
        Ok(cleaning.reap(dirty, &mut |_| ControlFlow::Continue(())))
    }

    /// Takes effect at once, however many entries are below `directory`. When this returns, later callers use nothing
    /// that was cached there before, except for pages that the store does not have yet. [`Cleaning::reap`] frees the
    /// memory. Never blocks on the store.
    ///
    /// # Errors
    /// [`Error::NotDirectory`].
    pub fn begin_clean(&self, directory: &Node, clean: Clean) -> Result<Cleaning> {
        let began = Instant::now();
        if !directory.is_directory() {
            return Err(Error::NotDirectory);
        }
        let tick = self.core.tick(directory, clean);
        Ok(Cleaning {
            vfs: self.clone(),
            directory: directory.clone(),
            clean,
            tick: tick.to_word(),
            effect: began.elapsed(),
        })
    }
}
