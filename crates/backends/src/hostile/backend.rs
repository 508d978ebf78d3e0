//! The calls: each asks the plan, calls the wrapped backend, and applies the planned faults.

use super::{Call, Fault, HostileBackend, Moment};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use uvfs_vfs::{
    AllocateMode, Attributes, Backend, Caller, Capabilities, ChangeSink, Content, Cookie, Creation,
    Data, Entry, Error, Export, FileId, FileKind, FileRef, InodeId, Inodes, Listing, Name, Names,
    NewNode, OpenFiles, OpenMode, RenameMode, Reservation, Result, SeekTarget, SetAttributes,
    SyncMode, Totals, Watch, XattrMode, Xattrs,
};

/// The families that a store may lack.
fn creation_of(store: &impl Backend) -> Result<&dyn Creation> {
    store.creation().ok_or(Error::Unsupported("creating"))
}

fn xattrs_of(store: &impl Backend) -> Result<&dyn Xattrs> {
    store.xattrs().ok_or(Error::Unsupported("extended attributes"))
}

fn export_of(store: &impl Backend) -> Result<&dyn Export> {
    store.export().ok_or(Error::Unsupported("finding an object by its number"))
}

/// The faults of one call.
struct Faults(Vec<Fault>);

impl Faults {
    /// Applies the faults planned for `moment`.
    fn suffer(&self, moment: Moment) -> Result<()> {
        for fault in &self.0 {
            match fault {
                Fault::Delay(at, time) if *at == moment => std::thread::sleep(*time),
                Fault::Hold(at, gate) if *at == moment => gate.pass(),
                Fault::Panic(at) if *at == moment => panic!("a planned panic"),
                Fault::Fail(at, errno) if *at == moment => return Err(Error::from_errno(*errno)),
                _ => {}
            }
        }
        Ok(())
    }

    fn stale(&self) -> bool {
        self.0.iter().any(|fault| matches!(fault, Fault::Stale))
    }

    fn overlong(&self) -> bool {
        self.0.iter().any(|fault| matches!(fault, Fault::Overlong))
    }

    /// Fails if a read of `length` bytes at `offset` asks for one that is damaged.
    fn meet_damage(&self, offset: u64, length: usize) -> Result<()> {
        let end = offset.saturating_add(length as u64);
        for fault in &self.0 {
            match fault {
                Fault::Damaged(bytes, errno) if bytes.start < end && offset < bytes.end => {
                    return Err(Error::from_errno(*errno));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// How much of `length` bytes is done.
    fn shortened(&self, length: usize) -> usize {
        let limits = self.0.iter().filter_map(|fault| match fault {
            Fault::Short(limit) => Some(*limit),
            _ => None,
        });
        limits.fold(length, usize::min)
    }
}

/// Returns a reference unless it was kept: also after a planned panic.
struct Unclaimed<'a, B: Backend> {
    backend: &'a B,
    inode: InodeId,
}

impl<B: Backend> Drop for Unclaimed<'_, B> {
    fn drop(&mut self) {
        self.backend.inodes().forget(self.inode, 1);
    }
}

/// Closes in any case.
struct Closing<'a, B: Backend> {
    backend: &'a B,
    file: FileRef,
}

impl<B: Backend> Drop for Closing<'_, B> {
    fn drop(&mut self) {
        self.backend.open_files().close(self.file);
    }
}

impl<B: Backend> HostileBackend<B> {
    /// A call that hands out no reference.
    fn plain<T>(
        &self,
        call: Call,
        inode: InodeId,
        name: Option<Name<'_>>,
        act: impl FnOnce(&B, &Faults) -> Result<T>,
    ) -> Result<T> {
        let faults = Faults(self.note(call, inode, name));
        faults.suffer(Moment::Before)?;
        let result = act(&self.inner, &faults);
        faults.suffer(Moment::After)?;
        result
    }

    /// A call that returns a reference. If it fails afterwards, the reference is returned to the
    /// store.
    fn entry<T>(
        &self,
        call: Call,
        inode: InodeId,
        name: Option<Name<'_>>,
        act: impl FnOnce(&B) -> Result<T>,
        entry: impl FnOnce(&T) -> Entry,
    ) -> Result<T> {
        let faults = Faults(self.note(call, inode, name));
        faults.suffer(Moment::Before)?;
        let answer = match act(&self.inner) {
            Ok(answer) => answer,
            Err(error) => {
                faults.suffer(Moment::After)?;
                return Err(error);
            }
        };
        let entry = entry(&answer);
        let unclaimed = Unclaimed { backend: &*self.inner, inode: entry.inode };
        faults.suffer(Moment::After)?;
        std::mem::forget(unclaimed);
        let mut state = self.state.lock();
        state.references.hand_out(entry.inode);
        state.attributes.insert(entry.inode, entry.attributes);
        Ok(answer)
    }

    /// The last answer to this lookup, if there was one.
    fn old_lookup(&self, parent: InodeId, name: Name<'_>) -> Option<Result<Entry>> {
        let mut state = self.state.lock();
        let old = *state.lookups.get(&(parent, name.as_bytes().to_vec()))?;
        if let Some(entry) = old {
            state.references.forge(entry.inode);
        }
        Some(old.ok_or(Error::NotFound))
    }

    fn remember_lookup(&self, parent: InodeId, name: Name<'_>, answer: &Result<Entry>) {
        let answer = match answer {
            Ok(entry) => Some(*entry),
            Err(Error::NotFound) => None,
            Err(_) => return,
        };
        self.state.lock().lookups.insert((parent, name.as_bytes().to_vec()), answer);
    }
}

/// Counts the references that a listing passes on.
struct Counted<'a, B: Backend> {
    backend: &'a HostileBackend<B>,
    listing: &'a mut dyn Listing,
}

impl<B: Backend> Listing for Counted<'_, B> {
    fn add_name(&mut self, name: Name<'_>, next: Cookie, number: u64, kind: FileKind) -> bool {
        self.listing.add_name(name, next, number, kind)
    }

    fn add_entry(&mut self, name: Name<'_>, next: Cookie, entry: Entry) -> bool {
        let taken = self.listing.add_entry(name, next, entry);
        if taken {
            self.backend.state.lock().references.hand_out(entry.inode);
        }
        taken
    }

    fn wants_attributes(&self) -> bool {
        self.listing.wants_attributes()
    }
}

impl<B: Backend> Backend for HostileBackend<B> {
    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn root(&self) -> Result<Entry> {
        self.entry(Call::Root, InodeId::ROOT, None, |inner| inner.root(), |entry| *entry)
    }

    fn report_to(&self, changes: Arc<dyn ChangeSink>) {
        self.inner.report_to(changes);
    }

    fn sync_fs(&self) -> Result<()> {
        self.plain(Call::SyncFs, InodeId::ROOT, None, |inner, _| inner.sync_fs())
    }

    fn end(&self) -> Result<()> {
        self.plain(Call::End, InodeId::ROOT, None, |inner, _| inner.end())
    }

    fn totals(&self) -> Result<Totals> {
        self.plain(Call::Totals, InodeId::ROOT, None, |inner, _| inner.totals())
    }

    fn tenant(&self) -> Option<std::sync::Arc<dyn uvfs_vfs::Tenant>> {
        self.inner.tenant()
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }

    fn names(&self) -> &dyn Names {
        self
    }

    fn creation(&self) -> Option<&dyn Creation> {
        self.inner.creation().map(|_| self as &dyn Creation)
    }

    fn inodes(&self) -> &dyn Inodes {
        self
    }

    fn data(&self) -> &dyn Data {
        self
    }

    fn reservation(&self) -> Option<&dyn Reservation> {
        self.inner.reservation()
    }

    fn open_files(&self) -> &dyn OpenFiles {
        self
    }

    fn xattrs(&self) -> Option<&dyn Xattrs> {
        self.inner.xattrs().map(|_| self as &dyn Xattrs)
    }

    fn export(&self) -> Option<&dyn Export> {
        self.inner.export().map(|_| self as &dyn Export)
    }

    fn watching(&self) -> Option<&dyn Watch> {
        Some(self)
    }
}

impl<B: Backend> Names for HostileBackend<B> {
    fn lookup(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<Entry> {
        let faults = Faults(self.note(Call::Lookup, parent, Some(name)));
        faults.suffer(Moment::Before)?;
        if faults.stale()
            && let Some(old) = self.old_lookup(parent, name)
        {
            faults.suffer(Moment::After)?;
            return old;
        }
        let answer = self.inner.names().lookup(caller, parent, name);
        self.remember_lookup(parent, name, &answer);
        let unclaimed = answer
            .as_ref()
            .ok()
            .map(|entry| Unclaimed { backend: &*self.inner, inode: entry.inode });
        faults.suffer(Moment::After)?;
        std::mem::forget(unclaimed);
        if let Ok(entry) = &answer {
            let mut state = self.state.lock();
            state.references.hand_out(entry.inode);
            state.attributes.insert(entry.inode, entry.attributes);
        }
        answer
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        self.plain(Call::List, directory.inode, None, |inner, _| {
            inner.names().list(directory, from, &mut Counted { backend: self, listing })
        })
    }

    fn unlink(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.plain(Call::Unlink, parent, Some(name), |inner, _| {
            inner.names().unlink(caller, parent, name)
        })
    }

    fn remove_directory(&self, caller: &Caller, parent: InodeId, name: Name<'_>) -> Result<()> {
        self.plain(Call::RemoveDirectory, parent, Some(name), |inner, _| {
            inner.names().remove_directory(caller, parent, name)
        })
    }

    fn rename(
        &self,
        caller: &Caller,
        from: (InodeId, Name<'_>),
        to: (InodeId, Name<'_>),
        mode: RenameMode,
    ) -> Result<()> {
        self.plain(Call::Rename, from.0, Some(from.1), |inner, _| {
            inner.names().rename(caller, from, to, mode)
        })
    }
}

impl<B: Backend> Creation for HostileBackend<B> {
    fn create(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
    ) -> Result<Entry> {
        let act = |inner: &B| creation_of(inner)?.create(caller, parent, name, new);
        self.entry(Call::Create, parent, Some(name), act, |entry| *entry)
    }

    fn create_and_open(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let act = |inner: &B| creation_of(inner)?.create_and_open(caller, parent, name, new, mode);
        self.entry(Call::CreateAndOpen, parent, Some(name), act, |(entry, _)| *entry)
    }

    fn create_unnamed(
        &self,
        caller: &Caller,
        parent: InodeId,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let act = |inner: &B| creation_of(inner)?.create_unnamed(caller, parent, new, mode);
        self.entry(Call::CreateUnnamed, parent, None, act, |(entry, _)| *entry)
    }

    fn link(
        &self,
        caller: &Caller,
        inode: InodeId,
        parent: InodeId,
        name: Name<'_>,
    ) -> Result<Entry> {
        let act = |inner: &B| creation_of(inner)?.link(caller, inode, parent, name);
        self.entry(Call::Link, parent, Some(name), act, |entry| *entry)
    }
}

impl<B: Backend> Inodes for HostileBackend<B> {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        let found = self.plain(Call::Attributes, file.inode, None, |inner, faults| {
            let old = self.state.lock().attributes.get(&file.inode).copied();
            match old.filter(|_| faults.stale()) {
                Some(old) => Ok(old),
                None => inner.inodes().attributes(file),
            }
        })?;
        self.state.lock().attributes.insert(file.inode, found);
        Ok(found)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        let real = self.state.lock().references.take_back(inode, references);
        if real > 0 {
            self.inner.inodes().forget(inode, real);
        }
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        self.plain(Call::SetAttributes, file.inode, None, |inner, _| {
            inner.inodes().set_attributes(caller, file, set)
        })
    }

    fn read_link(&self, inode: InodeId) -> Result<Vec<u8>> {
        self.plain(Call::ReadLink, inode, None, |inner, _| inner.inodes().read_link(inode))
    }
}

impl<B: Backend> Data for HostileBackend<B> {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.plain(Call::Read, file.inode, None, |inner, faults| {
            let length = into.len();
            faults.meet_damage(offset, length)?;
            let count = inner.data().read(file, offset, &mut into[..faults.shortened(length)])?;
            Ok(if faults.overlong() { length } else { count })
        })
    }

    fn read_with_version(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<Content> {
        self.plain(Call::Read, file.inode, None, |inner, faults| {
            let length = into.len();
            faults.meet_damage(offset, length)?;
            let into = &mut into[..faults.shortened(length)];
            let content = inner.data().read_with_version(file, offset, into)?;
            let count = if faults.overlong() { length } else { content.count };
            Ok(Content { count, ..content })
        })
    }

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        self.plain(Call::Write, file.inode, None, |inner, faults| {
            inner.data().write(caller, file, offset, &data[..faults.shortened(data.len())])
        })
    }

    fn append(&self, caller: &Caller, file: FileRef, data: &[u8]) -> Result<usize> {
        self.plain(Call::Append, file.inode, None, |inner, faults| {
            inner.data().append(caller, file, &data[..faults.shortened(data.len())])
        })
    }

    fn give_up(&self, file: FileRef) {
        self.inner.data().give_up(file);
    }

    fn allocate(&self, file: FileRef, mode: AllocateMode, offset: u64, length: u64) -> Result<()> {
        self.plain(Call::Allocate, file.inode, None, |inner, _| {
            inner.data().allocate(file, mode, offset, length)
        })
    }

    fn seek(&self, file: FileRef, offset: u64, target: SeekTarget) -> Result<u64> {
        self.plain(Call::Seek, file.inode, None, |inner, _| inner.data().seek(file, offset, target))
    }

    fn copy_range(
        &self,
        from: FileRef,
        from_offset: u64,
        to: FileRef,
        to_offset: u64,
        length: u64,
    ) -> Result<u64> {
        self.plain(Call::CopyRange, from.inode, None, |inner, _| {
            inner.data().copy_range(from, from_offset, to, to_offset, length)
        })
    }

    fn sync(&self, file: FileRef, mode: SyncMode) -> Result<()> {
        self.plain(Call::Sync, file.inode, None, |inner, _| inner.data().sync(file, mode))
    }
}

impl<B: Backend> OpenFiles for HostileBackend<B> {
    fn open(&self, caller: &Caller, inode: InodeId, mode: OpenMode) -> Result<FileId> {
        let faults = Faults(self.note(Call::Open, inode, None));
        faults.suffer(Moment::Before)?;
        let file = self.inner.open_files().open(caller, inode, mode)?;
        if let Err(error) = faults.suffer(Moment::After) {
            self.inner.open_files().close(FileRef { inode, file });
            return Err(error);
        }
        Ok(file)
    }

    fn close(&self, file: FileRef) {
        let closing = Closing { backend: &*self.inner, file };
        let faults = Faults(self.note(Call::Close, file.inode, None));
        // A close has no error to return; only delays, gates and panics have a meaning here.
        let _ = faults.suffer(Moment::Before);
        drop(closing);
        let _ = faults.suffer(Moment::After);
    }

    fn flush(&self, file: FileRef) -> Result<()> {
        self.plain(Call::Flush, file.inode, None, |inner, _| inner.open_files().flush(file))
    }

    fn os_file(&self, file: FileRef) -> Option<Arc<OwnedFd>> {
        self.inner.open_files().os_file(file)
    }
}

impl<B: Backend> Xattrs for HostileBackend<B> {
    fn get_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.plain(Call::GetXattr, inode, None, |inner, _| {
            xattrs_of(inner)?.get_xattr(caller, inode, name)
        })
    }

    fn set_xattr(
        &self,
        caller: &Caller,
        inode: InodeId,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.plain(Call::SetXattr, inode, None, |inner, _| {
            xattrs_of(inner)?.set_xattr(caller, inode, name, value, mode)
        })
    }

    fn list_xattrs(&self, caller: &Caller, inode: InodeId) -> Result<Vec<Vec<u8>>> {
        self.plain(Call::ListXattrs, inode, None, |inner, _| {
            xattrs_of(inner)?.list_xattrs(caller, inode)
        })
    }

    fn possible_xattrs(&self, inode: InodeId) -> Result<Option<Vec<Vec<u8>>>> {
        self.plain(Call::ListXattrs, inode, None, |inner, _| {
            xattrs_of(inner)?.possible_xattrs(inode)
        })
    }

    fn remove_xattr(&self, caller: &Caller, inode: InodeId, name: &[u8]) -> Result<()> {
        self.plain(Call::RemoveXattr, inode, None, |inner, _| {
            xattrs_of(inner)?.remove_xattr(caller, inode, name)
        })
    }
}

impl<B: Backend> Export for HostileBackend<B> {
    fn by_number(&self, number: u64) -> Result<Entry> {
        let act = |inner: &B| export_of(inner)?.by_number(number);
        self.entry(Call::ByNumber, InodeId(number), None, act, |entry| *entry)
    }

    fn parent_of(&self, directory: InodeId) -> Result<Entry> {
        let act = |inner: &B| export_of(inner)?.parent_of(directory);
        self.entry(Call::ParentOf, directory, None, act, |entry| *entry)
    }
}

impl<B: Backend> Watch for HostileBackend<B> {
    /// Reports the store's changes, and lets a test report some, too ([`HostileBackend::sink`]).
    fn watch(&self, changes: Arc<dyn ChangeSink>) -> Result<()> {
        self.state.lock().sink = Some(changes.clone());
        match self.inner.watching() {
            Some(watch) => watch.watch(changes),
            None => Ok(()),
        }
    }
}
