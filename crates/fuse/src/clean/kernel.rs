//! Asks the kernel to evict the entries below a directory.
//!
//! # Concurrency
//! Runs on the thread that cleans. That thread has its turn, and holds no lock while it writes a message: some messages
//! block until requests in flight are answered. The parent module has the rules.
//!
//! # Why
//! Children are evicted before their directories, the deepest directory first. PRUNE skips a directory with cached
//! children, and has evicted the others when its write returns; so one pass in that order reaches the top. A second
//! pass finds nodes that a request in flight kept, and further passes run only while they help. Forgets arrive later,
//! through the readers. This module counts them instead of looking up each node. A pause without forgets shows that the
//! remaining nodes are in use.

use super::{Bridge, Progress};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io;
use std::time::{Duration, Instant};
use uvfs_control::cleaned::{Kernel, KernelHow};
use uvfs_vfs::{
    Attributes, Authority, Caller, Clean, Cookie, Entries, FileKind, FileRef, InodeId, Name, Node,
    OpenMode, Opens,
};

/// Nodes in one message. The kernel takes up to 512 in one step, and other messages in between.
const BATCH: usize = 256;
/// Nodes looked at together.
const LOOK: usize = 4096;
/// Messages about single nodes or names between two calls of [`Progress::step`].
const STEP: usize = 64;
/// Passes at most.
const PASSES_MAX: usize = 4;
/// Most levels that are visited.
const DEPTH_MAX: usize = 1 << 16;
/// After so long without a forget, no more will arrive. The kernel has queued them all when a message returns.
const QUIET: Duration = Duration::from_millis(50);
/// The value of [`QUIET`] for later passes, which seldom evict more.
const QUIET_LATER: Duration = Duration::from_millis(15);
/// All forgets are awaited for so long, and so much longer for each.
const PATIENCE: Duration = Duration::from_secs(2);
const PATIENCE_EACH: Duration = Duration::from_micros(50);

/// A node that the kernel holds below the directory.
#[derive(Debug, Clone, Copy)]
struct Below {
    id: u64,
    kind: FileKind,
    /// Directories: how far below.
    depth: u32,
}

impl Bridge {
    /// Asks the kernel, waits for its forgets, and reports the result.
    pub(super) fn empty_kernel(
        &self,
        directory: &Node,
        clean: Clean,
        progress: &mut Progress<'_>,
    ) -> Kernel {
        let began = Instant::now();
        let mut below = self.held_below(directory);
        let held = below.len() as u64;
        progress.now.total = held;
        let mut report = Kernel { held, ..Kernel::default() };
        let asked = match clean.has_names() {
            true => self.empty_names(directory, clean, &mut below, progress, &mut report),
            false => self.empty_pages(&below, progress, &mut report),
        };
        if let Err(error) = asked {
            self.counters.notices_failed.hit();
            report.refused = Some(error.to_string());
        }
        report.kept = self.still_held(&mut below);
        report.let_go = held - report.kept;
        self.counters.clean_let_go.add(report.let_go);
        progress.now.freed = report.let_go;
        report.waited = began.elapsed();
        report
    }

    /// Nodes that the kernel holds below `directory`, in the order in which it can evict them.
    fn held_below(&self, directory: &Node) -> Vec<Below> {
        let mut depths = HashMap::new();
        let mut below = Vec::new();
        for ids in self.nodes.ids().chunks(LOOK) {
            let known = ids.iter().filter_map(|&id| Some((id, self.nodes.peek(id)?)));
            let (ids, nodes): (Vec<u64>, Vec<Node>) = known.unzip();
            let ids: HashMap<InodeId, u64> = nodes.iter().map(Node::id).zip(ids).collect();
            for node in self.vfs.those_below(nodes, directory) {
                let Some(&id) = ids.get(&node.id()) else { continue };
                let is_directory = node.is_directory();
                let depth = if is_directory { depth(&node, directory, &mut depths) } else { 0 };
                below.push(Below { id, kind: node.kind(), depth });
            }
        }
        below.sort_unstable_by_key(|one| (one.kind == FileKind::Directory, Reverse(one.depth)));
        below
    }

    fn empty_pages(
        &self,
        below: &[Below],
        progress: &mut Progress<'_>,
        report: &mut Kernel,
    ) -> io::Result<()> {
        let files: Vec<u64> =
            below.iter().filter(|one| one.kind == FileKind::Regular).map(|one| one.id).collect();
        if !files.is_empty() {
            report.how = KernelHow::Pages;
        }
        report.files += self.forget_each(files.iter().copied(), progress)?;
        Ok(())
    }

    /// Drops attributes and pages (of a directory, its listing) of each; how many it were.
    fn forget_each(
        &self,
        nodes: impl Iterator<Item = u64>,
        progress: &mut Progress<'_>,
    ) -> io::Result<u64> {
        let mut done = 0;
        for (at, node) in nodes.enumerate() {
            if at % STEP == 0 && !progress.step() {
                break;
            }
            gone_is_fine(self.kernel.forget_inode(node))?;
            progress.now.done = progress.now.total.min(progress.now.done + 1);
            done += 1;
        }
        self.counters.clean_asked.add(done);
        Ok(done)
    }

    fn empty_names(
        &self,
        directory: &Node,
        clean: Clean,
        below: &mut Vec<Below>,
        progress: &mut Progress<'_>,
        report: &mut Kernel,
    ) -> io::Result<()> {
        self.ask_again(directory, below, progress, report)?;
        let watch = self.nodes.watch_forgets();
        if !below.is_empty() {
            let top = self.nodes.id_of(directory.id());
            report.how = if self.prunes()? { KernelHow::Pruned } else { KernelHow::Entries };
            for pass in 0..PASSES_MAX {
                let before = below.len();
                match report.how {
                    KernelHow::Pruned => self.prune(below, progress)?,
                    _ => report.unlisted = self.forget_names(top, below, progress)?,
                }
                let quiet = if pass == 0 { QUIET } else { QUIET_LATER };
                let limit = PATIENCE + PATIENCE_EACH * u32::try_from(before).unwrap_or(u32::MAX);
                watch.wait(can_go(below, report.how), quiet, limit);
                let left = self.still_held(below);
                progress.now.freed = report.held - left;
                let done = can_go(below, report.how) == 0 || left == before as u64;
                if done || !progress.step() {
                    break;
                }
            }
        }
        drop(watch);
        // Listings hold names, too. Listings of evicted directories are already gone.
        let kept = below.iter().filter(|one| one.kind == FileKind::Directory).map(|one| one.id);
        let top = self.nodes.id_of(directory.id());
        self.forget_each(kept.chain(top), progress)?;
        if clean.has_pages() {
            // Pages of evicted inodes are already gone.
            let used = below.iter().filter(|one| one.kind == FileKind::Regular).map(|one| one.id);
            report.files += self.forget_each(used, progress)?;
        }
        Ok(())
    }

    /// Makes the kernel revalidate its negative entries in `top` and in the directories that it holds below. Where no
    /// name can ever appear, the negative entries are dropped, so that their directory can be evicted. Elsewhere they
    /// keep their directory: to drop a name that was created a moment before would detach a directory from the
    /// processes in it. No order of our locks and the kernel's rules that out.
    fn ask_again(
        &self,
        top: &Node,
        below: &[Below],
        progress: &mut Progress<'_>,
        report: &mut Kernel,
    ) -> io::Result<()> {
        let directories = below.iter().filter(|one| one.kind == FileKind::Directory);
        let directories = directories.map(|one| one.id).chain(self.nodes.id_of(top.id()));
        let store = self.vfs.capabilities();
        let fixed = store.read_only && store.authority == Authority::Sole;
        for id in directories {
            for name in self.nodes.missing.names(id) {
                if report.missing.is_multiple_of(STEP as u64) && !progress.step() {
                    return Ok(());
                }
                match fixed {
                    true => gone_is_fine(self.kernel.forget_entry(id, &name.name))?,
                    false => gone_is_fine(self.kernel.ask_again(id, &name.name))?,
                }
                self.nodes.missing.notified(id, &name);
                self.counters.clean_asked.hit();
                report.missing += 1;
            }
        }
        // The notifier tells the kernel about names that had left the record before this thread listed it.
        self.notices.wait_asked(PATIENCE);
        Ok(())
    }

    /// Whether the kernel can prune nodes. A message about no node changes nothing, and its result shows it.
    pub(super) fn prunes(&self) -> io::Result<bool> {
        if let Some(&known) = self.prunes.get() {
            return Ok(known);
        }
        let known = match self.kernel.prune(&[]) {
            Ok(()) => true,
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => false,
            Err(error) => return Err(error),
        };
        Ok(*self.prunes.get_or_init(|| known))
    }

    fn prune(&self, below: &[Below], progress: &mut Progress<'_>) -> io::Result<()> {
        let mut ids = Vec::with_capacity(BATCH);
        for batch in below.chunks(BATCH) {
            if !progress.step() {
                break;
            }
            ids.clear();
            ids.extend(batch.iter().map(|one| one.id));
            gone_is_fine(self.kernel.prune(&ids))?;
            self.counters.clean_asked.add(ids.len() as u64);
            progress.now.done = progress.now.total.min(progress.now.done + ids.len() as u64);
        }
        Ok(())
    }

    /// Evicts by name, for kernels without PRUNE: every name that the store lists in `top` and in the directories held
    /// below, except names of directories. For a dropped directory the kernel would show a process its current
    /// directory as "(deleted)", and does not report whether there is such a process. Returns the number of directories
    /// that could not be listed.
    fn forget_names(
        &self,
        top: Option<u64>,
        below: &[Below],
        progress: &mut Progress<'_>,
    ) -> io::Result<u64> {
        let mut unlisted = 0;
        let directories = below.iter().filter(|one| one.kind == FileKind::Directory);
        for id in directories.map(|one| one.id).chain(top) {
            let Some(node) = self.nodes.get(id) else { continue };
            let mut from = Some(Cookie::default());
            while let Some(at) = from {
                if !progress.step() {
                    return Ok(unlisted);
                }
                let Ok(names) = self.list_some(&node, at) else {
                    unlisted += 1;
                    break;
                };
                from = names.next;
                for name in &names.names {
                    gone_is_fine(self.kernel.forget_entry(id, name))?;
                }
                let sent = names.names.len() as u64;
                self.counters.clean_asked.add(sent);
                progress.now.done = progress.now.total.min(progress.now.done + sent);
            }
        }
        Ok(unlisted)
    }

    /// Forgets names as [`Bridge::forget_names`] does, of one directory.
    pub(super) fn forget_names_of(&self, id: u64, directory: &Node) -> io::Result<()> {
        let mut from = Some(Cookie::default());
        while let Some(at) = from {
            // A directory that cannot be listed keeps its names.
            let Ok(names) = self.list_some(directory, at) else { break };
            from = names.next;
            for name in &names.names {
                gone_is_fine(self.kernel.forget_entry(id, name))?;
            }
        }
        Ok(())
    }

    /// Returns some names of `directory` that are not directories. It asks for names alone, so the listing inserts
    /// nothing into the caches that are being emptied.
    fn list_some(&self, directory: &Node, from: Cookie) -> uvfs_vfs::Result<SomeNames> {
        let caller = Caller::root();
        let tracked = self.vfs.capabilities().opens == Opens::Tracked;
        let open =
            tracked.then(|| self.vfs.open(&caller, directory, OpenMode::READ)).transpose()?;
        let unopened = FileRef::unopened(directory.id());
        let file = open.as_ref().map_or(unopened, |open| open.reference());
        let mut names = SomeNames::default();
        self.vfs.list(&caller, directory, file, from, &mut names)?;
        Ok(names)
    }

    /// Removes from `below` the nodes that the kernel no longer holds, and returns how many are left.
    fn still_held(&self, below: &mut Vec<Below>) -> u64 {
        below.retain(|one| self.nodes.is_held(one.id));
        below.len() as u64
    }
}

/// A piece of a listing.
#[derive(Debug, Default)]
struct SomeNames {
    names: Vec<Box<[u8]>>,
    seen: usize,
    /// Where the listing continues; `None` at the end.
    next: Option<Cookie>,
}

impl Entries for SomeNames {
    fn room(&self) -> usize {
        BATCH - self.seen
    }

    fn wants_nodes(&self) -> bool {
        false
    }

    fn name(&mut self, name: Name<'_>, next: Cookie, _number: u64, kind: FileKind) -> bool {
        if self.seen == BATCH {
            return false;
        }
        self.seen += 1;
        if kind != FileKind::Directory {
            self.names.push(name.as_bytes().into());
        }
        self.next = (self.seen == BATCH).then_some(next);
        true
    }

    fn node(
        &mut self,
        name: Name<'_>,
        next: Cookie,
        _node: Node,
        attributes: &Attributes,
        _valid: (Duration, Duration),
    ) -> bool {
        self.name(name, next, attributes.number, attributes.kind)
    }
}

/// How many of `below` the kernel can evict if they are unused.
fn can_go(below: &[Below], how: KernelHow) -> u64 {
    let by_name = how == KernelHow::Entries;
    below.iter().filter(|one| !by_name || one.kind != FileKind::Directory).count() as u64
}

/// Depth of `node` below `top`; `known` remembers the directories between them.
fn depth(node: &Node, top: &Node, known: &mut HashMap<InodeId, u32>) -> u32 {
    let mut chain = vec![node.id()];
    let mut at = node.parent();
    let mut depth = 0;
    while let Some(parent) = at {
        if parent == *top {
            break;
        }
        if let Some(&found) = known.get(&parent.id()) {
            depth = found;
            break;
        }
        chain.push(parent.id());
        // If others move directories in the store, cached parents may form a circle.
        at = parent.parent().filter(|_| chain.len() < DEPTH_MAX);
    }
    for id in chain.into_iter().rev() {
        depth += 1;
        known.insert(id, depth);
    }
    depth
}

/// A node that the kernel did not hold counts as evicted.
pub(super) fn gone_is_fine(answer: io::Result<()>) -> io::Result<()> {
    match answer {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
        other => other,
    }
}
