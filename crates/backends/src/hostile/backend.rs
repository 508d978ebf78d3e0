//! The calls: each asks the plan, calls the wrapped backend, and applies the planned faults.

use super::{Call, Fault, HostileBackend, Moment};
use std::sync::Arc;
use uvfs_vfs::{
    Attributes, Backend, Caller, Capabilities, ChangeSink, Content, Cookie, Creation, Data, Entry,
    Error, Export, FileId, FileKind, FileRef, InodeId, Inodes, Listing, Name, Names, OpenFiles,
    OpenMode, Reservation, Result, Watch, Xattrs, forward,
};

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

/// An answer that carries a reference.
trait HasEntry {
    fn entry(&self) -> Entry;
}

impl HasEntry for Entry {
    fn entry(&self) -> Entry {
        *self
    }
}

impl HasEntry for (Entry, FileId) {
    fn entry(&self) -> Entry {
        self.0
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

    /// [`HostileBackend::plain`] for a call that the plan can only delay or end.
    fn around<T>(
        &self,
        call: Call,
        file: FileRef,
        name: Option<Name<'_>>,
        act: impl FnOnce(&B, FileRef) -> Result<T>,
    ) -> Result<T> {
        self.plain(call, file.inode, name, |inner, _| act(inner, file))
    }

    /// A call that returns a reference. If it fails afterwards, the reference is returned to the
    /// store.
    fn entry<T: HasEntry>(
        &self,
        call: Call,
        file: FileRef,
        name: Option<Name<'_>>,
        act: impl FnOnce(&B, FileRef) -> Result<T>,
    ) -> Result<T> {
        let faults = Faults(self.note(call, file.inode, name));
        faults.suffer(Moment::Before)?;
        let answer = act(&self.inner, file);
        self.hand_out(&faults, answer)
    }

    /// Counts the reference in `answer`, unless the call fails now.
    fn hand_out<T: HasEntry>(&self, faults: &Faults, answer: Result<T>) -> Result<T> {
        let entry = answer.as_ref().ok().map(HasEntry::entry);
        let unclaimed = entry.map(|entry| Unclaimed { backend: &*self.inner, inode: entry.inode });
        faults.suffer(Moment::After)?;
        std::mem::forget(unclaimed);
        if let Some(entry) = entry {
            let mut state = self.state.lock();
            state.references.hand_out(entry.inode);
            state.attributes.insert(entry.inode, entry.attributes);
        }
        answer
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

    forward!(report_to, ended, losses, tenant, counters);
    forward!(entry { root: Call::Root });
    forward!(around { sync_fs: Call::SyncFs, end: Call::End, totals: Call::Totals });
    forward!(families: names, inodes, data, open_files, creation, xattrs, export);

    fn reservation(&self) -> Option<&dyn Reservation> {
        self.inner.reservation()
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
        self.hand_out(&faults, answer)
    }

    fn list(&self, directory: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        self.plain(Call::List, directory.inode, None, |inner, _| {
            inner.names().list(directory, from, &mut Counted { backend: self, listing })
        })
    }

    forward!(around {
        unlink: Call::Unlink,
        remove_directory: Call::RemoveDirectory,
        rename: Call::Rename,
    });
}

impl<B: Backend> Creation for HostileBackend<B> {
    forward!(entry {
        create: Call::Create,
        create_and_open: Call::CreateAndOpen,
        create_unnamed: Call::CreateUnnamed,
        link: Call::Link,
    });
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

    forward!(around { set_attributes: Call::SetAttributes, read_link: Call::ReadLink });
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

    forward!(give_up);
    forward!(around {
        allocate: Call::Allocate,
        seek: Call::Seek,
        copy_range: Call::CopyRange,
        sync: Call::Sync,
    });
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

    forward!(os_file);
    forward!(around { flush: Call::Flush });
}

impl<B: Backend> Xattrs for HostileBackend<B> {
    forward!(around {
        get_xattr: Call::GetXattr,
        set_xattr: Call::SetXattr,
        list_xattrs: Call::ListXattrs,
        possible_xattrs: Call::ListXattrs,
        remove_xattr: Call::RemoveXattr,
    });
}

impl<B: Backend> Export for HostileBackend<B> {
    forward!(entry { by_number: Call::ByNumber, parent_of: Call::ParentOf });
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
