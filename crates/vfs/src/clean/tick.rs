//! Clean ticks: how a clean takes effect at once. See [`super`].

use crate::backend::InodeId;
use crate::clean::Clean;
use crate::inode::CleanTicks;
use crate::inode::{Inode, Node, Ticket};
use crate::vfs::Core;

impl Core {
    /// Invalidates all entries below `directory` (C1).
    pub(super) fn tick(&self, directory: &Node, clean: Clean) -> Ticket {
        let one = self.cleanings.lock();
        // Before the tick: a thread with a later moment then sees this clean (K7 of `changes`).
        self.cleans_begun.advance();
        let tick = self.clock.tick();
        let of = |wanted: bool| if wanted { tick.to_word() } else { 0 };
        let ticks = CleanTicks { names: of(clean.has_names()), pages: of(clean.has_pages()) };
        directory.inode.raise_cleaned(ticks);
        self.cleans.advance();
        drop(one);
        if clean.has_names() {
            self.paths.shape_changed();
        }
        tick
    }

    /// Returns a tick between cleans: `learn` has applied every earlier clean, and later ones have a later tick (C4).
    pub(crate) fn moment_between_cleans(&self, learn: impl Fn()) -> Ticket {
        loop {
            let before = self.cleans.now();
            learn();
            let moment = self.clock.between_ticks();
            // All cleans below the moment were applied. Those begun since are above it.
            if self.cleans_begun.now() == before {
                return moment;
            }
            // A clean is half done.
            drop(self.cleanings.lock());
        }
    }

    /// Makes `directory` apply all cleans up to now (C2). False if that is impossible, because the
    /// place of the directory is not known. Then none of its cached entries may be used.
    #[inline]
    pub(crate) fn learn_cleans(&self, directory: &Inode) -> bool {
        let now = self.cleans.now();
        directory.knows_cleans(now) || self.ask_above(directory, now)
    }

    /// Walks up to the first directory that is up to date, and applies cleans on the way down.
    #[cold]
    fn ask_above(&self, directory: &Inode, now: u64) -> bool {
        let mut above: Vec<(Node, Ticket)> = Vec::new();
        loop {
            let highest = above.last().map_or(directory, |(node, _)| &node.inode);
            if highest.knows_cleans(now) {
                break;
            }
            match highest.parent_since() {
                // Where other programs move directories, cached parents may form a circle.
                Some(_) if above.len() > self.inodes.count() => return false,
                Some(link) => above.push(link),
                None if highest.id == InodeId::ROOT => break,
                None => return false,
            }
        }
        let mut from_above = CleanTicks::default();
        let mut joined = Ticket::default();
        while let Some((node, since)) = above.pop() {
            let ticks = node.inode.cleaned().max(from_above.after(joined));
            node.inode.be_cleaned(&self.clock, ticks, now);
            (from_above, joined) = (ticks, since);
        }
        let ticks = directory.cleaned().max(from_above.after(joined));
        directory.be_cleaned(&self.clock, ticks, now);
        true
    }
}
