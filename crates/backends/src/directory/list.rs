//! Listing directories.
//!
//! # Boundary
//! From the host's directory stream to the caller's [`Listing`], with attributes if requested.
//!
//! # Concurrency
//! A listing takes the stream out of the open directory while it uses it; a concurrent listing of
//! the same handle gets a stream of its own. So no lock is held during calls of the host or of the
//! listing.
//!
//! # Why
//! Cookies are the host's own offsets: they stay valid across calls and changes as far as the
//! host's do, and cost no memory here. Entries that a listing did not take stay in the stream, so
//! the next call continues without asking the host. Weakness: an entry that was read ahead and then
//! removed is still reported if no attributes are requested, as POSIX allows.

use super::convert::{host_error, stat_at};
use super::host::Host;
use super::node::HostNode;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use std::sync::Arc;
use uvfs_vfs::{Cookie, Error, FileKind, FileRef, Listing, Name, OpenMode, Result};

/// Bytes of entries asked from the host at once.
const BATCH_BYTES: usize = 32 << 10;

/// A position in a directory, and the entries read ahead from there.
#[derive(Debug)]
pub(super) struct Stream {
    descriptor: Arc<OwnedFd>,
    /// The cookie of the next entry to deliver.
    position: u64,
    /// Nothing was read yet.
    untouched: bool,
    names: Vec<u8>,
    batch: Vec<Ahead>,
    next: usize,
}

/// One entry read ahead; its name is a part of the stream's `names`.
#[derive(Debug, Clone, Copy)]
struct Ahead {
    start: usize,
    end: usize,
    number: u64,
    kind: Option<FileKind>,
    cookie: u64,
}

impl Stream {
    /// A stream at the start of the directory, on a descriptor whose offset has no other user.
    pub(super) fn new(descriptor: Arc<OwnedFd>) -> Self {
        let (names, batch) = (Vec::new(), Vec::new());
        Self { descriptor, position: 0, untouched: true, names, batch, next: 0 }
    }

    /// Seeks to `cookie`. The start is always read again: that is the purpose of rewinding.
    fn go_to(&mut self, cookie: u64) -> Result<()> {
        let stays = match cookie {
            0 => self.untouched,
            cookie => cookie == self.position,
        };
        if !stays {
            rustix::fs::seek(&self.descriptor, SeekFrom::Start(cookie)).map_err(host_error)?;
            self.batch.clear();
            self.next = 0;
            self.position = cookie;
        }
        Ok(())
    }

    /// The next entry, which stays next until [`Stream::advance`]; `None` at the end.
    fn peek(&mut self) -> Result<Option<Ahead>> {
        if self.next == self.batch.len() {
            self.fill()?;
        }
        Ok(self.batch.get(self.next).copied())
    }

    fn advance(&mut self) {
        if let Some(ahead) = self.batch.get(self.next) {
            self.position = ahead.cookie;
            self.next += 1;
        }
    }

    fn name(&self, ahead: Ahead) -> &[u8] {
        self.names.get(ahead.start..ahead.end).unwrap_or_default()
    }

    /// Reads entries until there is one to deliver, or the end.
    fn fill(&mut self) -> Result<()> {
        self.untouched = false;
        self.names.clear();
        self.batch.clear();
        self.next = 0;
        let mut space: Vec<u8> = Vec::with_capacity(BATCH_BYTES);
        let mut raw = RawDir::new(&self.descriptor, space.spare_capacity_mut());
        while let Some(entry) = raw.next() {
            let entry = match entry {
                Ok(entry) => entry,
                // The host's answer for a directory that was removed: it has no entries.
                Err(Errno::NOENT) => return Ok(()),
                Err(errno) => return Err(host_error(errno)),
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let start = self.names.len();
                self.names.extend_from_slice(name);
                self.batch.push(Ahead {
                    start,
                    end: self.names.len(),
                    number: entry.ino(),
                    kind: kind_of(entry.file_type()),
                    cookie: entry.next_entry_cookie(),
                });
            }
            if raw.is_buffer_empty() && !self.batch.is_empty() {
                break;
            }
        }
        Ok(())
    }
}

fn kind_of(kind: FileType) -> Option<FileKind> {
    Some(match kind {
        FileType::RegularFile => FileKind::Regular,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Symlink,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        FileType::Unknown => return None,
    })
}

impl Host {
    pub(super) fn list(
        &self,
        directory: FileRef,
        from: Cookie,
        listing: &mut dyn Listing,
    ) -> Result<()> {
        let open = self.opened_or_open(directory, |node| {
            if node.kind != FileKind::Directory {
                return Err(Error::NotDirectory);
            }
            Ok((self.open_node_as_daemon(node, OpenMode::READ)?, OpenMode::READ))
        })?;
        if open.node.kind != FileKind::Directory {
            return Err(Error::NotDirectory);
        }
        let descriptor = self.descriptor_of(&open)?;
        if !self.is_inside(&open.node, &descriptor) {
            return Err(self.stale());
        }
        if let Some(watches) = self.watches.get() {
            watches.add(self, &open.node, &descriptor);
            if from == Cookie::default() {
                open.node.unsettle_children();
            }
        }
        let Some(slot) = &open.stream else { return Err(Error::NotDirectory) };
        let taken = slot.lock().take();
        let mut stream = match taken {
            Some(stream) => stream,
            None => {
                let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                Stream::new(Arc::new(self.reopen(&descriptor, flags)?))
            }
        };
        let outcome = self.list_stream(&open.node, &mut stream, from, listing);
        let _superseded = slot.lock().replace(stream);
        outcome
    }

    fn list_stream(
        &self,
        directory: &Arc<HostNode>,
        stream: &mut Stream,
        from: Cookie,
        listing: &mut dyn Listing,
    ) -> Result<()> {
        stream.go_to(from.0)?;
        let descriptor = stream.descriptor.clone();
        while let Some(ahead) = stream.peek()? {
            let at = (directory, descriptor.as_fd());
            if !self.deliver(at, stream.name(ahead), ahead, listing)? {
                break;
            }
            stream.advance();
        }
        Ok(())
    }

    /// Passes one entry to the listing; false if it takes no more.
    fn deliver(
        &self,
        (directory, descriptor): (&Arc<HostNode>, BorrowedFd<'_>),
        name: &[u8],
        ahead: Ahead,
        listing: &mut dyn Listing,
    ) -> Result<bool> {
        // A host with longer names than ours cannot show those here.
        let Ok(checked) = Name::new(name) else { return Ok(true) };
        let next = Cookie(ahead.cookie);
        let wants_attributes = listing.wants_attributes();
        if let (false, Some(kind)) = (wants_attributes, ahead.kind) {
            let number = self.number_in(directory, ahead.number);
            return Ok(listing.add_name(checked, next, number, kind));
        }
        let heard = directory.heard();
        let stat = match stat_at(descriptor, name) {
            Ok(stat) => stat,
            // Removed since the host listed it.
            Err(Error::NotFound) => return Ok(true),
            Err(other) => return Err(other),
        };
        if !wants_attributes {
            let number = self.number_in(directory, ahead.number);
            return Ok(listing.add_name(checked, next, number, stat.attributes.kind));
        }
        let (entry, _node) = self.answer((&stat, heard), (directory, descriptor), checked);
        let taken = listing.add_entry(checked, next, entry);
        if !taken {
            self.forget(entry.inode, 1);
        }
        Ok(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, root_caller};
    use std::collections::BTreeMap;
    use std::fs;
    use uvfs_vfs::{Backend, Entry, FileId, InodeId};

    /// Takes up to `room` entries.
    struct Taker {
        room: usize,
        attributes: bool,
        names: Vec<String>,
        entries: Vec<Entry>,
        last: Cookie,
    }

    impl Taker {
        fn new(room: usize, attributes: bool) -> Self {
            Self { room, attributes, names: vec![], entries: vec![], last: Cookie(0) }
        }

        fn take(&mut self, name: Name<'_>, next: Cookie) -> bool {
            if self.room == 0 {
                return false;
            }
            self.room -= 1;
            self.names.push(String::from_utf8(name.as_bytes().to_vec()).unwrap());
            self.last = next;
            true
        }
    }

    impl Listing for Taker {
        fn add_name(&mut self, name: Name<'_>, next: Cookie, number: u64, _: FileKind) -> bool {
            assert!(number != 0);
            self.take(name, next)
        }
        fn add_entry(&mut self, name: Name<'_>, next: Cookie, entry: Entry) -> bool {
            let taken = self.take(name, next);
            self.entries.extend(taken.then_some(entry));
            taken
        }
        fn wants_attributes(&self) -> bool {
            self.attributes
        }
    }

    fn list_all(scratch: &Scratch, file: FileId, room: usize, attributes: bool) -> Vec<String> {
        let mut all = Vec::new();
        let mut from = Cookie(0);
        loop {
            let mut taker = Taker::new(room, attributes);
            let directory = FileRef { inode: InodeId::ROOT, file };
            scratch.backend.names().list(directory, from, &mut taker).unwrap();
            for entry in &taker.entries {
                scratch.backend.inodes().forget(entry.inode, 1);
            }
            if taker.names.is_empty() {
                return all;
            }
            all.append(&mut taker.names);
            from = taker.last;
        }
    }

    fn populated(count: usize) -> (Scratch, Vec<String>) {
        let scratch = Scratch::new();
        let mut names: Vec<_> = (0..count).map(|at| format!("entry-{at:05}")).collect();
        names.iter().for_each(|name| fs::write(scratch.path(name), b"x").unwrap());
        names.sort();
        (scratch, names)
    }

    #[test]
    fn every_entry_is_listed_once_whatever_the_room() {
        let (scratch, names) = populated(1500);
        let file = scratch
            .backend
            .open_files()
            .open(&root_caller(), InodeId::ROOT, OpenMode::READ)
            .unwrap();
        for (file, room, attributes) in [
            (file, 7, false),
            (file, 100, true),
            (file, 10_000, false),
            (FileId::NONE, 333, true),
            (FileId::NONE, 10_000, false),
        ] {
            let mut seen = list_all(&scratch, file, room, attributes);
            seen.sort();
            assert_eq!(seen, names, "room for {room}, attributes: {attributes}");
        }
        assert_eq!(scratch.counter("nodes"), 1, "every reference was given back");
    }

    #[test]
    fn what_stays_is_listed_once_while_others_come_and_go() {
        let (scratch, names) = populated(1000);
        let file = scratch
            .backend
            .open_files()
            .open(&root_caller(), InodeId::ROOT, OpenMode::READ)
            .unwrap();
        let directory = FileRef { inode: InodeId::ROOT, file };
        let mut seen = BTreeMap::new();
        let mut from = Cookie(0);
        for round in 0.. {
            let mut taker = Taker::new(64, round % 2 == 0);
            scratch.backend.names().list(directory, from, &mut taker).unwrap();
            if taker.names.is_empty() {
                break;
            }
            for name in &taker.names {
                *seen.entry(name.clone()).or_insert(0) += 1;
            }
            from = taker.last;
            fs::write(scratch.path(&format!("new-{round}")), b"").unwrap();
            let _ = fs::remove_file(scratch.path(&names[round * 7 % 500]));
        }
        for name in &names[500..] {
            assert_eq!(seen.get(name), Some(&1), "{name}");
        }
        assert!(seen.values().all(|&times| times == 1));
    }

    #[test]
    fn rewinding_shows_new_entries_and_an_old_cookie_still_leads_to_its_place() {
        let (scratch, _) = populated(300);
        let file = scratch
            .backend
            .open_files()
            .open(&root_caller(), InodeId::ROOT, OpenMode::READ)
            .unwrap();
        let directory = FileRef { inode: InodeId::ROOT, file };
        let mut start = Taker::new(100, false);
        scratch.backend.names().list(directory, Cookie(0), &mut start).unwrap();
        let mut first = Taker::new(1000, false);
        scratch.backend.names().list(directory, start.last, &mut first).unwrap();
        let mut second = Taker::new(1000, false);
        scratch.backend.names().list(directory, start.last, &mut second).unwrap();
        assert_eq!((first.names.len(), &first.names), (200, &second.names));
        fs::write(scratch.path("zz-new"), b"").unwrap();
        assert_eq!(list_all(&scratch, file, 50, false).len(), 301);
    }

    #[test]
    fn two_listings_of_one_handle_do_not_disturb_each_other() {
        let (scratch, names) = populated(2000);
        let file = scratch
            .backend
            .open_files()
            .open(&root_caller(), InodeId::ROOT, OpenMode::READ)
            .unwrap();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut seen = list_all(&scratch, file, 97, true);
                    seen.sort();
                    assert_eq!(seen, names);
                });
            }
        });
    }

    #[test]
    fn only_directories_are_listed_and_a_removed_one_is_empty() {
        let scratch = Scratch::new();
        let folder = scratch.make_directory(InodeId::ROOT, "d").unwrap();
        let inode = scratch.make_file(InodeId::ROOT, "f").unwrap();
        let mut taker = Taker::new(10, false);
        let refused = scratch.backend.names().list(FileRef::unopened(inode), Cookie(0), &mut taker);
        assert!(matches!(refused, Err(Error::NotDirectory)));
        let file =
            scratch.backend.open_files().open(&root_caller(), folder, OpenMode::READ).unwrap();
        scratch.remove_directory(InodeId::ROOT, "d").unwrap();
        let directory = FileRef { inode: folder, file };
        scratch.backend.names().list(directory, Cookie(0), &mut taker).unwrap();
        assert!(taker.names.is_empty());
    }
}
