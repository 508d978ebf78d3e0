//! Clean ticks: how a cleaning takes effect at once. See [`super`].

use crate::backend::InodeId;
use crate::clean::Clean;
use crate::inode::CleanTicks;
use crate::inode::{Inode, Node, Ticket};
use crate::vfs::Core;

impl Core {
    /// All that is cached below `directory` is out of use (C1).
    pub(super) fn tick(&self, directory: &Node, clean: Clean) -> Ticket {
        let one = self.cleanings.lock();
        // Before the tick: who is above that sees that there is one (K7 of `changes`).
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

    /// A moment that every cleaning is before or after: what was cleaned before it is learned by `learn`, and
    /// what will be has a later moment (C4).
    pub(crate) fn moment_between_cleans(&self, learn: impl Fn()) -> Ticket {
        loop {
            let before = self.cleans.now();
            learn();
            let moment = self.clock.between_ticks();
            // All that the moment is above were learned; what has begun since is above the moment.
            if self.cleans_begun.now() == before {
                return moment;
            }
            // One is half done.
            drop(self.cleanings.lock());
        }
    }

    /// Sees to it that `directory` knows of all cleanings up to now (C2). False if it cannot be told,
    /// because nobody knows where the directory is: then nothing that is cached of it may be used.
    #[inline]
    pub(crate) fn learn_cleans(&self, directory: &Inode) -> bool {
        let now = self.cleans.now();
        directory.knows_cleans(now) || self.ask_above(directory, now)
    }

    /// Goes up to the first directory that knows, and comes down telling those on the way.
    #[cold]
    fn ask_above(&self, directory: &Inode, now: u64) -> bool {
        let mut above: Vec<(Node, Ticket)> = Vec::new();
        loop {
            let highest = above.last().map_or(directory, |(node, _)| &node.inode);
            if highest.knows_cleans(now) {
                break;
            }
            match highest.parent_since() {
                // Where others move directories about, what is cached of them may be a circle.
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
