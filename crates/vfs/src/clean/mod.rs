//! Cleaning: emptying the caches of one directory, and of all below it.
//!
//! # Boundary
//! Takes what is cached out of use at once ([`Vfs::begin_clean`]) and frees it step by step
//! ([`Cleaning::reap`]); tells what lies below a directory. What users may write is [`request`]'s. What the
//! kernel caches of a mount is its frontend's affair, between the two.
//!
//! # Protocol
//! ```text
//!            generation 4                     generation 5
//!   /        knows 4                          knows 4
//!   └ a      knows 4, cleaned 0     clean a   knows 4, cleaned 70   ◄─ one store, one count
//!     └ b    knows 4, cleaned 0    ────────►  knows 4, cleaned 0
//!       └ c  knows 4                          knows 4               ─► a lookup in c asks b, a, /:
//!                                             knows 5, cleaned 70      names asked for before 70 are
//!                                                                      not believed in a, b, c
//! ```
//! Every cleaning has a moment of the clock that also stamps names (the inode's freshness), and there is
//! one *generation* for all of them.
//!
//! C1. A cleaning first raises the directory's `cleaned` to its moment, then advances the generation. That
//!     is all that it takes to have effect, at any depth, for any number of entries.
//! C2. Who is about to use what is cached of a directory compares the generation that the directory knows
//!     of with the one now. If they differ, the directory asks above: the first directory on the way up
//!     that knows tells the others on the way down. So the generation is read before anything that is
//!     found by it, and a directory says that it knows after what it knows can be read.
//! C3. `cleaned` and "knows" only rise. A name is believed if the store was asked for it at or after the
//!     `cleaned` of its directory; an answer that was asked for before is not kept, nor the outcome of a
//!     change that was under way when its directory learned of the cleaning.
//! C4. A directory that leaves its place first takes in what was cleaned there, and notes the moment when
//!     it came to its new one: what was cleaned there until then does not concern it. That moment is
//!     above the tick of no cleaning that is half done, or that came since it took in the last one: cleanings are counted
//!     before their tick, too. So of each cleaning either half of this is true.
//! C5. A directory that is torn down takes in what was cleaned first, and leaves it to whichever inode
//!     stands for the same directory later (the inode table), also for those below it. A
//!     directory whose place is not known is not believed at all.
//! C6. The reaper takes a name only after its directory has learned that it is not believed: whoever
//!     concludes from its absence that there is no such name ([`uvfs_concurrent::complete`]) was told to
//!     stop before.
//! C7. Pages do the same by file (invariants P1 to P4 of the page cache's cleaning): a file lies in one directory, where it was
//!     last found. While that is not known, its names are asked for again.
//!
//! Counter-examples, looked for or met, each with its test: a lookup that starts below the cleaned
//! directory (C2: it asks above); one that was asked before and answers after (C3); a change that declares
//! its directory complete again (C3); a directory moved out, whose old names would come back to life, or
//! in, whose names would go although they were elsewhere, or between two directories of which a common
//! one above is cleaned meanwhile (C4); one evicted and found again, with or without one above it (C5); an
//! existing name that is denied because the reaper took it from a directory that believed to know all its
//! names (C6); a file whose name goes and that has another (C7); parents that make a circle, because others
//! move directories about (nobody knows where they are, C5); two cleanings at once, of which one advances
//! the generation for the other's mark too early (then the other advances it again).
//!
//! What stops half way: a thread that stops between mark and advance has not cleaned yet; one that stops
//! while asking above has told those below where it stopped, and others ask for themselves.
//!
//! # Why
//! Linux cleans by walking: all that is cached below a directory is visited under its locks, as it was in
//! the patch that proposed this (Li Wang, "VFS: Directory level cache cleaning", linux-fsdevel 2013). Here
//! what costs is spread over those who come next: two words compared per component, and once per cleaning
//! and directory in use a step up. Weakness: any cleaning makes every directory in use ask once, and ends
//! all memos of whole paths; and until the reaper has come by, what was cleaned takes room.

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

/// A cleaning that has taken effect: what was cached below the directory is not used any more, and most of
/// it is still in memory.
#[derive(Debug)]
#[must_use = "what was cleaned stays in memory until it is reaped, or evicted for want of room"]
pub struct Cleaning {
    vfs: Vfs,
    directory: Node,
    clean: Clean,
    /// When, on the clock that stamps names.
    tick: u64,
    effect: Duration,
}

impl Vfs {
    /// Cleans all that is cached below `directory`: takes effect at once, and frees the memory before it
    /// returns. What is in use stays; what the store does not have yet is never lost.
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

    /// Takes effect at once, however much is cached below `directory`: when this returns, nothing that
    /// was cached there before is used by who comes later, but for pages that the store does not have
    /// yet. [`Cleaning::reap`] frees the memory. Never blocks on the store.
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
