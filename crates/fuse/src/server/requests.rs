//! One method per request.

mod xattrs;

use super::control::{Control, Hiding, is_control};
use super::files::FileTable;
use super::heat::Heat;
use super::kernel_end::KernelEnd;
use super::nodes::{Gone, NodeTable};
use super::overtaken::Overtaken;
use super::request::{Doubts, Sender};
use crate::direct::DirectWrites;
use crate::notify::Notices;
use crate::statistics::Counters;
use crate::task;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use uvfs_concurrent::primitive::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use uvfs_vfs::{
    Access, AllocateMode, Attributes, Authority, Caller, ChangeSink, Checks, Cookie, Entries,
    Error, FileId, FileKind, FileRef, Found, Groups, Hit, InodeId, Lookup, Name, NewKind, NewNode,
    NewOwner, Node, OpenFile, OpenMode, Opens, Origin, PageCaching, Powers, RenameMode, Result,
    SeekTarget, SetAttributes, SetIds, SyncMode, Totals, Vfs, Writes,
};

/// The options of a mount on which requests depend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// Let the kernel read and write host files directly.
    pub(crate) passthrough: bool,
    /// Have a control directory in the root.
    pub(crate) control_directory: bool,
    /// The mounting user has all rights, and the kernel checks none.
    pub(crate) fake_root: Option<FakeRoot>,
}

/// The mounting user as root of the mounted file system.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FakeRoot {
    /// The mounting user.
    pub(crate) user: u32,
    /// The owner of what that user makes.
    pub(crate) new_owner: NewOwner,
    /// Other users may use the mount. The kernel walks the names that it has for any of them, so it must have none.
    pub(crate) with_others: bool,
}

/// Attributes for the kernel.
#[derive(Debug)]
pub(crate) struct Attrs {
    pub(crate) node_id: u64,
    pub(crate) attributes: Attributes,
    pub(crate) valid: Duration,
}

/// An entry for the kernel; its lookup is counted already.
#[derive(Debug)]
pub(crate) enum EntryOut {
    Found {
        attrs: Attrs,
        entry_valid: Duration,
        /// Tells it from an object that had its number before.
        generation: u32,
    },
    /// No such name, to be remembered for so long.
    Missing(Duration),
}

/// See the module.
pub(crate) struct Server {
    pub(crate) vfs: Arc<Vfs>,
    pub(crate) nodes: Arc<NodeTable>,
    pub(crate) files: FileTable,
    pub(crate) control: Control,
    pub(crate) counters: Arc<Counters>,
    pub(crate) heat: Heat,
    pub(crate) notices: Arc<Notices>,
    pub(crate) direct: Arc<DirectWrites>,
    pub(crate) overtaken: Arc<Overtaken>,
    pub(crate) settings: Settings,
    keeps_places: AtomicBool,
    /// Bytes of requests that workers have or will have.
    pub(crate) queued_bytes: AtomicU64,
    /// The origin of changes through this mount: other frontends hear of them, and this one of theirs.
    pub(crate) origin: Origin,
}

/// A directory unchanged for so long has a modification time that the next change will move.
const SETTLED: Duration = Duration::from_secs(2);

/// The flag of an open by execve(2): FMODE_EXEC, which the kernel sends among those of open(2).
const OPENED_TO_RUN: i32 = 0x20;

/// Share of the room of all caches that names known to be missing may take here.
const MISSING_SHARE: u64 = 16;

impl Server {
    pub(crate) fn new(vfs: Arc<Vfs>, settings: Settings) -> Self {
        let (nodes, notices) = (Arc::new(NodeTable::new(vfs.clone())), Notices::new());
        let counters: Arc<Counters> = Arc::default();
        Self {
            origin: vfs.observe(notices.clone()),
            direct: DirectWrites::new(nodes.clone(), notices.clone(), counters.clone()),
            overtaken: Overtaken::new(),
            nodes,
            files: FileTable::new(),
            control: Control::new(settings.control_directory),
            counters,
            heat: Heat::new(),
            notices,
            vfs,
            settings,
            keeps_places: AtomicBool::new(false),
            queued_bytes: AtomicU64::new(0),
        }
    }

    /// The kernel has no notice about all names: the places of all objects are recorded.
    pub(crate) fn keep_places(&self) {
        // ORDERING: Relaxed; no thread takes requests yet.
        self.keeps_places.store(true, Relaxed);
    }

    pub(crate) fn keeps_places(&self) -> bool {
        // ORDERING: Relaxed; set before the first request.
        self.keeps_places.load(Relaxed)
    }

    /// The credentials of a request. The kernel in front has checked permissions, except where the mounting user is root
    /// of the mount.
    pub(crate) fn caller(&self, sender: Sender) -> Caller {
        let Sender { uid, gid, task, .. } = sender;
        let groups = Groups::OfTask { task, read: task::groups };
        // A write and a truncation have their own flag; fallocate and copy_file_range have none.
        let set_ids = SetIds::ByTask { task, has: task::may_keep_set_ids };
        let powers = Powers::OfTask { task, asked: Instant::now(), read: task::capabilities };
        let (checks, new_owner) = (Checks::Done, NewOwner::Caller);
        let caller =
            Caller { uid, gid, groups, checks, set_ids, powers, new_owner, origin: self.origin };
        match self.settings.fake_root {
            None => caller,
            Some(fake) if fake.user == uid => {
                let new_owner = fake.new_owner;
                Caller { checks, set_ids: SetIds::Keep, new_owner, ..Caller::root() }
                    .through(self.origin)
            }
            Some(_) => Caller { checks: Checks::Enforce, ..caller },
        }
    }

    /// Whether the core must check the permissions of user `uid`.
    fn judges(&self, uid: u32) -> bool {
        self.settings.fake_root.is_some_and(|fake| fake.user != uid)
    }

    /// For how long the kernel may use a name without asking, if the caches say `valid`.
    pub(crate) fn name_valid(&self, valid: Duration) -> Duration {
        if self.judges_others() { Duration::ZERO } else { valid }
    }

    /// Whether the kernel need not send opens. It must where users come whose permissions the core checks.
    pub(crate) fn stateless(&self) -> bool {
        self.vfs.capabilities().opens == Opens::Stateless && !self.judges_others()
    }

    /// Whether users come whose permissions the core checks.
    fn judges_others(&self) -> bool {
        self.settings.fake_root.is_some_and(|fake| fake.with_others)
    }

    /// Whether others may change the store.
    pub(crate) fn shared(&self) -> bool {
        self.vfs.capabilities().authority == Authority::Shared
    }

    /// The answer for user `uid`, if the caches have it and no permission has to be checked.
    pub(crate) fn try_lookup(&self, uid: u32, parent: u64, name: &[u8]) -> Option<EntryOut> {
        if self.control.hides(parent, name) {
            return Some(self.control.directory());
        }
        if self.judges(uid) {
            return None;
        }
        let directory = self.nodes.get(parent)?;
        let answer = self.vfs.try_lookup(&directory, Name::new(name).ok()?)?;
        Some(self.lookup_out(parent, name, answer))
    }

    /// For a reader or worker to which [`Server::try_lookup`] has returned `None`.
    pub(crate) fn lookup(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<EntryOut> {
        if is_control(parent) {
            return self.control.lookup(parent, name);
        }
        if name == b"." || name == b".." {
            return self.lookup_handle(parent, name);
        }
        let directory = self.node(parent)?;
        let bytes = Name::new(name)?;
        let answer = match caller.checks {
            Checks::Done => self.vfs.lookup_missed(caller, &directory, bytes)?,
            Checks::Enforce => self.vfs.lookup(caller, &directory, bytes)?,
        };
        Ok(self.lookup_out(parent, name, answer))
    }

    /// The kernel returns `lookups` of `id`. May ask the store.
    pub(crate) fn forget(&self, id: u64, lookups: u64) {
        self.give_back(id, lookups).into_iter().for_each(|gone| self.nodes.release(gone));
    }

    /// [`Server::forget`] without asking the store: returns the hold that is left to release.
    pub(crate) fn give_back(&self, id: u64, lookups: u64) -> Option<Gone> {
        if is_control(id) {
            return None;
        }
        let (exact, gone) = self.nodes.give_back(id, lookups);
        if !exact {
            self.counters.forgotten_too_often.hit();
        }
        gone
    }

    pub(crate) fn try_getattr(&self, id: u64) -> Option<Attrs> {
        let (node, end) = self.nodes.get_with_end(id)?;
        let (attributes, valid) = self.vfs.try_attributes(&node)?;
        self.shows(id, end, attributes.size);
        Some(Attrs { node_id: id, attributes, valid })
    }

    pub(crate) fn getattr(&self, id: u64, handle: u64) -> Result<Attrs> {
        if is_control(id) {
            return Ok(self.control.attributes(id));
        }
        let (node, end) = self.nodes.get_with_end(id).ok_or(Error::Stale)?;
        let file = self.files.get(handle);
        let attributes = self.vfs.attributes(&node, file.as_deref())?;
        let (attributes, valid) = self.vfs.believed(&node, attributes);
        self.shows(id, end, attributes.size);
        Ok(Attrs { node_id: id, attributes, valid })
    }

    /// `is_wanted`: whether the kernel still waits for the answer. So too in [`Server::write`].
    pub(crate) fn setattr(
        &self,
        caller: &Caller,
        id: u64,
        handle: u64,
        set: &SetAttributes,
        is_wanted: impl Fn() -> bool,
    ) -> Result<Attrs> {
        if is_control(id) {
            return self.control.set_attributes(id, set);
        }
        let node = self.node(id)?;
        let file = self.files.get(handle);
        let attributes = self.vfs.set_attributes(caller, &node, file.as_deref(), set)?;
        let (attributes, valid) = self.vfs.believed(&node, attributes);
        match set.size {
            // The kernel holds the lock of the file until it has taken this size over.
            Some(_) => self.nodes.ends(id, |end| match is_wanted() {
                true => *end = KernelEnd::at(attributes.size),
                false => end.doubt(),
            }),
            None => self.nodes.ends(id, |end| end.shown(attributes.size)),
        }
        Ok(Attrs { node_id: id, attributes, valid })
    }

    /// The kernel is shown `size` of `id`, which ended for it at `end` so far.
    fn shows(&self, id: u64, end: KernelEnd, size: u64) {
        if !end.is_at(size) {
            self.nodes.ends(id, |end| end.shown(size));
        }
    }

    pub(crate) fn readlink(&self, id: u64) -> Result<Vec<u8>> {
        self.vfs.read_link(&self.node(id)?)
    }

    pub(crate) fn make(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new: &NewNode<'_>,
    ) -> Result<EntryOut> {
        self.control.reject_reserved(parent, name)?;
        let directory = self.node(parent)?;
        let bytes = Name::new(name)?;
        let found = self.with_room(|| self.vfs.create(caller, &directory, bytes, new))?;
        Ok(self.made_out(parent, name, found))
    }

    pub(crate) fn link(
        &self,
        caller: &Caller,
        id: u64,
        parent: u64,
        name: &[u8],
    ) -> Result<EntryOut> {
        self.control.reject_reserved(parent, name)?;
        let (node, directory) = (self.node(id)?, self.node(parent)?);
        let found = self.vfs.link(caller, &node, &directory, Name::new(name)?)?;
        Ok(self.made_out(parent, name, found))
    }

    /// Adds the object that lost the name to `renamed`; so too [`Server::rename`].
    pub(crate) fn unlink(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        renamed: &mut Vec<InodeId>,
    ) -> Result<()> {
        self.control.reject_reserved(parent, name)?;
        let directory = self.node(parent)?;
        let lost = |victim: &Node| {
            renamed.push(victim.id());
            self.nodes.moved(victim, Some((parent, name)), None);
        };
        self.vfs.unlink_telling(caller, &directory, Name::new(name)?, lost)
    }

    pub(crate) fn rmdir(&self, caller: &Caller, parent: u64, name: &[u8]) -> Result<()> {
        self.control.reject_reserved(parent, name)?;
        self.vfs.remove_directory(caller, &self.node(parent)?, Name::new(name)?)
    }

    pub(crate) fn rename(
        &self,
        caller: &Caller,
        from: (u64, &[u8]),
        to: (u64, &[u8]),
        flags: u32,
        renamed: &mut Vec<InodeId>,
    ) -> Result<()> {
        self.control.reject_reserved(from.0, from.1)?;
        self.control.reject_reserved(to.0, to.1)?;
        let mode = rename_mode(flags)?;
        let (old, new) = (self.node(from.0)?, self.node(to.0)?);
        let (old, new) = ((&old, Name::new(from.1)?), (&new, Name::new(to.1)?));
        self.vfs.rename_telling(caller, old, new, mode, |moved, target| {
            renamed.extend([Some(moved), target].into_iter().flatten().map(Node::id));
            if target == Some(moved) {
                // Two names of one object: rename does nothing.
                return;
            }
            if let Some(target) = target {
                let back = (mode == RenameMode::Exchange).then_some(from);
                self.nodes.moved(target, Some(to), back);
            }
            self.nodes.moved(moved, Some(from), Some(to));
        })?;
        // The kernel moves its entry, and looks the old name up again.
        self.nodes.missing.made(to.0, to.1);
        Ok(())
    }

    pub(crate) fn try_open(&self, caller: &Caller, id: u64, flags: i32) -> Option<OpenFile> {
        self.vfs.try_open(caller, &self.nodes.get(id)?, open_mode(flags))
    }

    /// Opens a file; a transport that passes it through asks for its host file next.
    pub(crate) fn open(&self, caller: &Caller, id: u64, flags: i32) -> Result<OpenFile> {
        let (node, mode) = (self.node(id)?, open_mode(flags));
        if flags & OPENED_TO_RUN != 0 && caller.checks == Checks::Enforce {
            self.vfs.access(caller, &node, Access::EXECUTE)?;
            // To run a program is no right to read it.
            return self.vfs.open(&Caller { checks: Checks::Done, ..caller.clone() }, &node, mode);
        }
        if !mode.truncate {
            return self.vfs.open(caller, &node, mode);
        }
        let opened = self.changing(caller, (id, &node), || self.vfs.open(caller, &node, mode))?;
        self.nodes.ends(id, |end| end.shown(0));
        Ok(opened)
    }

    /// `file`, which the kernel knows as `id`, is open to be appended to.
    pub(crate) fn opened_to_append(&self, id: u64, file: &OpenFile) {
        if let Ok(attributes) = self.vfs.attributes(file.node(), Some(file)) {
            self.nodes.ends(id, |end| end.agrees(attributes.size));
        }
    }

    /// Creates a file and opens it, or opens a file that another program created since the kernel looked.
    pub(crate) fn create(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        new: &NewNode<'_>,
        flags: i32,
    ) -> Result<(EntryOut, OpenFile)> {
        self.control.reject_reserved(parent, name)?;
        let directory = self.node(parent)?;
        let bytes = Name::new(name)?;
        let mode = OpenMode { truncate: false, ..open_mode(flags) };
        let made =
            self.with_room(|| self.vfs.create_and_open(caller, &directory, bytes, new, mode));
        let is_new = made.is_ok();
        let (found, file) = match made {
            Err(Error::Exists) if flags & libc::O_EXCL == 0 => {
                let found = self.vfs.lookup(caller, &directory, bytes)?.found()?;
                if found.node.kind() != FileKind::Regular {
                    // The kernel takes it from here, by looking the name up again.
                    return Err(Error::Stale);
                }
                // No permissions on this file were checked: the kernel assumed that it was new.
                let caller = Caller { checks: Checks::Enforce, ..caller.clone() };
                let mode = OpenMode { truncate: flags & libc::O_TRUNC != 0, ..mode };
                let file = self.vfs.open(&caller, &found.node, mode)?;
                (found, file)
            }
            made => made?,
        };
        let out = self.made_out(parent, name, found);
        if let EntryOut::Found { attrs, .. } = &out
            && is_new
            && !mode.read
            && self.keeps_pages()
        {
            self.direct.created(attrs.node_id);
        }
        Ok((out, file))
    }

    /// Creates a file without a name in the file system of `parent`, and opens it.
    pub(crate) fn create_unnamed(
        &self,
        caller: &Caller,
        parent: u64,
        new: &NewNode<'_>,
        flags: i32,
    ) -> Result<(EntryOut, OpenFile)> {
        let mode = OpenMode { truncate: false, ..open_mode(flags) };
        let parent = self.node(parent)?;
        let file = self.with_room(|| self.vfs.create_unnamed(caller, &parent, new, mode))?;
        let node = file.node().clone();
        let attributes = self.vfs.attributes(&node, Some(&file))?;
        let found = Found {
            node,
            attributes,
            entry_valid: Duration::ZERO,
            attributes_valid: Duration::ZERO,
        };
        Ok((self.found_out(found, None), file))
    }

    /// Registers an open file. Returns its handle, and whether the kernel may keep pages or listings cached by earlier
    /// opens. Thread `task` has opened it.
    pub(crate) fn opened(&self, file: Arc<OpenFile>, task: u32) -> (u64, bool) {
        // Programs of this mount see what a writer here wrote, and the kernel's pages have it.
        let keep_cache = !self.shared()
            || self.files.is_written(file.node().id())
            || self.settled_directory(file.node());
        // Each flush of such a file puts all of it.
        let is_whole = self.vfs.capabilities().writes == Writes::WholeFile;
        let opener = (is_whole && file.mode().write).then(|| task::process(task)).flatten();
        (self.files.insert(file, opener.unwrap_or(0)), keep_cache)
    }

    /// Whether the directory's modification time alone distinguishes the kernel's copy of a listing from a newer one.
    fn settled_directory(&self, node: &Node) -> bool {
        let Some((attributes, _)) = self.vfs.try_attributes(node) else { return false };
        let age = SystemTime::now().duration_since(attributes.mtime.into());
        node.is_directory() && age.is_ok_and(|age| age > SETTLED)
    }

    pub(crate) fn release(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.files.remove(handle)
    }

    pub(crate) fn try_read(
        &self,
        id: u64,
        handle: u64,
        offset: u64,
        into: &mut [u8],
    ) -> Option<Hit> {
        match self.files.get(handle) {
            Some(file) => self.vfs.try_read(file.node(), offset, into),
            None => self.vfs.try_read(&self.nodes.get(id)?, offset, into),
        }
    }

    pub(crate) fn read_ahead(&self, id: u64, handle: u64, offset: u64, count: usize) {
        let ahead = |node: &Node, file| {
            self.vfs.read_ahead(node, file, offset, count);
            Ok(())
        };
        // No request waits for it, so its errors are dropped.
        drop(self.with_file(id, handle, ahead));
    }

    pub(crate) fn read(&self, id: u64, handle: u64, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.with_file(id, handle, |node, file| self.vfs.read(node, file, offset, into))
    }

    pub(crate) fn write(
        &self,
        caller: &Caller,
        (id, handle): (u64, u64),
        offset: u64,
        data: &[u8],
        appends: bool,
        is_wanted: impl Fn() -> bool,
    ) -> Result<usize> {
        // The kernel's idea of the end may be old; the store knows the end. A write certainly before the kernel's end
        // is no append (RWF_NOAPPEND), which no flag of the request shows.
        let before_end =
            || self.nodes.get_with_end(id).is_some_and(|(_, end)| end.is_behind(offset));
        let at_end = appends && !before_end();
        let written = self.with_file(id, handle, |node, file| {
            self.changing(caller, (id, node), || match at_end {
                true => self.vfs.append(caller, node, file, data),
                false => self.vfs.write(caller, node, file, offset, data),
            })
        })?;
        // Wherever the store put it: the kernel counts from the place that it sent.
        self.nodes.ends(id, |end| match is_wanted() {
            true => end.reaches(offset.saturating_add(written as u64)),
            false => end.doubt(),
        });
        Ok(written)
    }

    /// Writes pages of a mapping: all of them, or it fails. The kernel takes a short answer for success, and no program
    /// sees the error of such a write.
    pub(crate) fn write_mapped(
        &self,
        caller: &Caller,
        (id, handle): (u64, u64),
        offset: u64,
        data: &[u8],
    ) -> Result<usize> {
        let mut done = 0;
        while done < data.len() {
            let (at, rest) = (offset + done as u64, &data[done..]);
            let written = match self.write(caller, (id, handle), at, rest, false, || true) {
                Ok(0) => Err(Error::NoSpace),
                written => written,
            };
            done += written.inspect_err(|error| {
                let refused = |node: &Node, _| {
                    self.vfs.mapping_was_refused(node, at, rest.len(), error);
                    Ok(())
                };
                // The file is gone where no node is found: nothing of it is lost.
                let _ = self.with_file(id, handle, refused);
            })?;
        }
        Ok(done)
    }

    /// Changes data of `node`, the kernel's `id`, by `work`. If that clears bits of the mode, the kernel would not ask
    /// again: it keeps the attributes of its earlier request, and afterwards doubts only sizes and times.
    fn changing<T>(
        &self,
        caller: &Caller,
        (id, node): (u64, &Node),
        work: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let loses = self.vfs.may_lose_set_ids(caller, node);
        let done = self.with_room(work);
        if loses {
            self.direct.attributes_changed(id);
        }
        done
    }

    /// Performs `work`. If there is no room, and removed files are still held, it waits a little and tries again. The
    /// kernel sends its forget of a file only after `unlink` and `close` have returned, and a program that removes one
    /// file to make room for another expects that room.
    fn with_room<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(Error::NoSpace) if self.vfs.unlinked_in_use() > 0 => self.vfs.with_space(work),
            other => other,
        }
    }

    pub(crate) fn fallocate(
        &self,
        caller: &Caller,
        id: u64,
        handle: u64,
        (offset, length): (u64, u64),
        flags: i32,
    ) -> Result<()> {
        let keep_size = libc::FALLOC_FL_KEEP_SIZE;
        let mode = match flags {
            0 => AllocateMode::Extend,
            flags if flags == keep_size => AllocateMode::KeepSize,
            flags if flags == libc::FALLOC_FL_PUNCH_HOLE | keep_size => AllocateMode::PunchHole,
            flags if flags == libc::FALLOC_FL_ZERO_RANGE => AllocateMode::Zero,
            flags if flags == libc::FALLOC_FL_ZERO_RANGE | keep_size => AllocateMode::ZeroKeepSize,
            _ => return Err(Error::Unsupported("this mode of fallocate")),
        };
        self.with_file(id, handle, |node, file| {
            self.changing(caller, (id, node), || {
                self.vfs.allocate(caller, node, file, mode, offset, length)
            })
        })
    }

    pub(crate) fn lseek(&self, id: u64, handle: u64, offset: u64, whence: i32) -> Result<u64> {
        let target = match whence {
            libc::SEEK_DATA => SeekTarget::Data,
            libc::SEEK_HOLE => SeekTarget::Hole,
            _ => return Err(Error::Invalid("a seek that the kernel does itself")),
        };
        self.with_file(id, handle, |node, file| self.vfs.seek(node, file, offset, target))
    }

    pub(crate) fn copy_file_range(
        &self,
        caller: &Caller,
        from: (u64, u64, u64),
        to: (u64, u64, u64),
        length: u64,
    ) -> Result<u64> {
        self.with_file(from.0, from.1, |source, source_file| {
            self.with_file(to.0, to.1, |target, target_file| {
                let source = (source, source_file, from.2);
                let to_range = (target, target_file, to.2);
                self.changing(caller, (to.0, target), || {
                    self.vfs.copy_range(caller, source, to_range, length)
                })
            })
        })
    }

    pub(crate) fn fsync(&self, id: u64, handle: u64, data_only: bool) -> Result<()> {
        let mode = if data_only { SyncMode::Data } else { SyncMode::All };
        match self.files.get(handle) {
            Some(file) => self.vfs.sync_open(&file, mode),
            None if is_control(id) => Ok(()),
            None => self.with_file(id, handle, |node, file| self.vfs.sync(node, file, mode)),
        }
    }

    /// Whether a flush can report an error: a store whose pages we do not cache has reported every error of a write
    /// with that write.
    pub(crate) fn wants_flush(&self) -> bool {
        self.keeps_pages() && self.vfs.capabilities().opens == Opens::Tracked
    }

    /// Whether we cache the pages of files.
    pub(crate) fn keeps_pages(&self) -> bool {
        self.vfs.capabilities().caching == PageCaching::Core
    }

    pub(crate) fn try_flush(&self, handle: u64) -> Option<Result<()>> {
        self.files.get(handle).map_or(Some(Ok(())), |file| self.vfs.try_flush(&file))
    }

    /// Thread `task` closes a descriptor of an open file.
    ///
    /// A store that takes whole files is given the file when the process that opened it closes it. A descriptor that another
    /// process has inherited is closed before that, for example by each child that runs another program; those closes put
    /// nothing and are told no error. The opener cannot end without closing the file.
    pub(crate) fn flush(&self, handle: u64, task: u32) -> Result<()> {
        let Some((file, opener)) = self.files.get_with_opener(handle) else { return Ok(()) };
        if let Some(opener) = opener {
            let inherited = task::process(task).is_some_and(|closer| closer != opener);
            if inherited && task::process(opener) == Some(opener) {
                return Ok(());
            }
            self.files.opener_closes(handle);
        }
        self.vfs.flush(&file)
    }

    /// The numbers of a directory and of its parent, for `.` and `..`.
    pub(crate) fn numbers(&self, own: &Attrs) -> (u64, u64) {
        let number = own.attributes.number;
        if is_control(own.node_id) {
            return (number, self.vfs.root().number());
        }
        let parent = self.nodes.get(own.node_id).and_then(|node| node.parent());
        (number, parent.map_or(number, |parent| parent.number()))
    }

    pub(crate) fn list(
        &self,
        caller: &Caller,
        id: u64,
        handle: u64,
        from: Cookie,
        entries: &mut dyn Entries,
    ) -> Result<()> {
        if is_control(id) {
            return self.control.list(id, from, entries);
        }
        let mut hiding = Hiding(entries);
        let entries = if self.control.covers(id) { &mut hiding } else { hiding.0 };
        // The open was permitted, perhaps to another user that has passed the descriptor on.
        let opened = caller.checks == Checks::Enforce && self.files.get(handle).is_some();
        let checked = opened.then(|| Caller { checks: Checks::Done, ..caller.clone() });
        let caller = checked.as_ref().unwrap_or(caller);
        self.with_file(id, handle, |node, file| self.vfs.list(caller, node, file, from, entries))
    }

    /// The totals. The kernel forgets a removed file with a separate message, which another reader may still process.
    /// So a caller that asks at once after a removal waits for that, some milliseconds at most.
    pub(crate) fn statfs(&self) -> Result<Totals> {
        for pause_us in [100, 200, 400, 800, 1600, 3200] {
            // Those that are open stay.
            if self.vfs.unlinked_in_use() == 0 || self.vfs.unlinked_in_use() <= self.files.removed()
            {
                break;
            }
            std::thread::sleep(Duration::from_micros(pause_us));
        }
        self.vfs.totals()
    }

    pub(crate) fn access(&self, caller: &Caller, id: u64, mask: i32) -> Result<()> {
        if is_control(id) {
            return self.control.access(caller, id, Access::from_mode(mask as u32));
        }
        self.vfs.access(caller, &self.node(id)?, Access::from_mode(mask as u32))
    }

    /// Drops all nodes and files of the kernel: its session has ended.
    pub(crate) fn end(&self) {
        self.vfs.unobserve(self.origin);
        self.files.clear();
        self.nodes.clear();
    }

    /// An object of the control directory is no node: any other operation on it is not permitted.
    pub(crate) fn node(&self, id: u64) -> Result<Node> {
        let missing = || if is_control(id) { Error::NotPermitted } else { Error::Stale };
        self.nodes.get(id).ok_or_else(missing)
    }

    /// The entry of `name` in `parent`, which is new; it is no longer recorded as missing.
    pub(crate) fn made_out(&self, parent: u64, name: &[u8], found: Found) -> EntryOut {
        let out = self.found_out(found, Some((parent, name)));
        self.nodes.missing.made(parent, name);
        out
    }

    fn found_out(&self, found: Found, place: Option<(u64, &[u8])>) -> EntryOut {
        let (node_id, generation) = self.publish(&found.node, &found.attributes, place);
        // After it was counted: news from before then found no node id, and no notice was sent.
        let (attributes, valid) = self.vfs.believed(&found.node, found.attributes);
        let attrs = Attrs { node_id, attributes, valid };
        let entry_valid = self.name_valid(found.entry_valid);
        EntryOut::Found { attrs, entry_valid, generation }
    }

    fn lookup_out(&self, parent: u64, name: &[u8], answer: Lookup) -> EntryOut {
        match answer {
            Lookup::Found(found) => self.found_out(found, Some((parent, name))),
            Lookup::Missing(valid) if self.name_valid(valid).is_zero() => {
                EntryOut::Missing(Duration::ZERO)
            }
            Lookup::Missing(valid) => {
                self.size_missing();
                let ask_again = |parent, name: &[u8]| self.notices.ask_again(parent, name);
                let recorded = self.nodes.missing.record(parent, name, ask_again);
                EntryOut::Missing(if recorded { valid } else { Duration::ZERO })
            }
        }
    }

    /// The kernel got no answer to a request that may have changed these: it asks again. Never waits.
    pub(crate) fn tell_doubts(&self, doubts: &Doubts) {
        for (parent, name) in &doubts.names {
            if !self.notices.ask_again(*parent, name)
                && let (Some(parent), Ok(name)) = (self.nodes.peek(*parent), Name::new(name))
            {
                self.notices.entry_changed(parent.id(), name);
            }
        }
        for node in doubts.nodes.iter().filter_map(|&id| self.nodes.peek(id)) {
            self.notices.tell_inode(node.id());
        }
    }

    /// Names that are missing have a share of the room there is now.
    pub(crate) fn size_missing(&self) {
        self.nodes.missing.set_room(self.vfs.room_bytes() / MISSING_SHARE);
    }

    /// The open file behind `handle`, or the object itself for stores that do not track opens.
    fn with_file<T>(
        &self,
        id: u64,
        handle: u64,
        action: impl FnOnce(&Node, FileRef) -> Result<T>,
    ) -> Result<T> {
        match self.files.get(handle) {
            Some(file) => action(file.node(), file.reference()),
            None => {
                let node = self.node(id)?;
                let file = FileRef { inode: node.id(), file: FileId::NONE };
                action(&node, file)
            }
        }
    }
}

impl Drop for Server {
    /// Also where a mount did not come about.
    fn drop(&mut self) {
        self.vfs.unobserve(self.origin);
    }
}

/// An OPEN has O_TRUNC only if that was agreed; otherwise the kernel asks for a change of size. It keeps O_DIRECT to
/// itself: its buffers are not ours to align.
fn open_mode(flags: i32) -> OpenMode {
    let access = flags & libc::O_ACCMODE;
    OpenMode {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        append: flags & libc::O_APPEND != 0,
        truncate: flags & libc::O_TRUNC != 0,
        direct: false,
        sync: flags & libc::O_DSYNC != 0,
    }
}

/// The mode that the flags of a rename(2) mean: each is a bit, and an exchange excludes the others.
fn rename_mode(flags: u32) -> Result<RenameMode> {
    let (keeps, exchanges, whiteout) =
        (libc::RENAME_NOREPLACE, libc::RENAME_EXCHANGE, libc::RENAME_WHITEOUT);
    Ok(match flags {
        0 => RenameMode::Replace,
        flags if flags == keeps => RenameMode::NoReplace,
        flags if flags == exchanges => RenameMode::Exchange,
        flags if flags == whiteout => RenameMode::Whiteout,
        flags if flags == keeps | whiteout => RenameMode::WhiteoutNoReplace,
        _ => return Err(Error::Invalid("flags of rename that exclude each other, or are unknown")),
    })
}

/// The kind that a `mknod` of `mode` and `device` means.
pub(crate) fn special_kind(mode: u32, device: u32) -> Result<NewKind<'static>> {
    Ok(match FileKind::from_mode(mode) {
        Some(FileKind::Fifo) => NewKind::Fifo,
        Some(FileKind::Socket) => NewKind::Socket,
        Some(FileKind::CharDevice) => NewKind::CharDevice(device),
        Some(FileKind::BlockDevice) => NewKind::BlockDevice(device),
        Some(FileKind::Regular) | None => NewKind::Regular,
        Some(FileKind::Directory | FileKind::Symlink) => {
            return Err(Error::Invalid("mknod makes no directories or symbolic links"));
        }
    })
}
