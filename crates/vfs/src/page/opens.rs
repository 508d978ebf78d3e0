//! The store's open files behind one file's pages.
//!
//! # Boundary
//! Knows which of them can be read and written by, and when the store may close them. Pages are filled and written back
//! after the call that opened the file has returned. So a file is closed when no thread uses it *and* no data waits to
//! be written through it.
//!
//! # Concurrency
//! One lock, never held across a call to the store. A thread decides under it which files to close, and closes them
//! afterwards.
//!
//! # Why
//! Only for stores that track opens; the others are asked by inode. Weakness: `close` does not report that the store
//! could not write the data, unless the store is shared. A program must call `fsync`, as on every file system that
//! writes back.

use crate::backend::{FileId, FileRef, InodeId, OpenMode};
use crate::lock_order;
use uvfs_concurrent::lock::Mutex;

/// See the module.
#[derive(Debug)]
pub(crate) struct Opens {
    inode: InodeId,
    files: Mutex<Files>,
}

/// Most files are open once: that one needs no memory of its own.
#[derive(Debug, Default)]
struct Files {
    first: Option<Open>,
    #[allow(
        clippy::box_collection,
        reason = "every file has this word, and few have anything in it"
    )]
    more: Option<Box<Vec<Open>>>,
}

impl Files {
    fn iter(&self) -> impl Iterator<Item = &Open> {
        self.first.iter().chain(self.more.iter().flat_map(|more| more.iter()))
    }

    fn iter_mut(&mut self) -> impl Iterator<Item = &mut Open> {
        self.first.iter_mut().chain(self.more.iter_mut().flat_map(|more| more.iter_mut()))
    }

    fn of(&mut self, file: FileId) -> Option<&mut Open> {
        self.iter_mut().find(|open| open.file == file)
    }

    fn push(&mut self, open: Open) {
        match self.first {
            None => self.first = Some(open),
            Some(_) => self.more.get_or_insert_default().push(open),
        }
    }

    /// Keeps those for which `keep` is true.
    fn retain(&mut self, mut keep: impl FnMut(&Open) -> bool) {
        self.first.take_if(|open| !keep(open));
        if let Some(more) = &mut self.more {
            more.retain(keep);
            if more.is_empty() {
                self.more = None;
            }
        }
    }
}

#[derive(Debug)]
struct Open {
    file: FileId,
    mode: OpenMode,
    /// The user and group for which the store opened it.
    opener: (u32, u32),
    /// Calls that are using it.
    uses: u32,
    /// Open files of the core that share it. The opener is done with it when there are none.
    owners: u32,
}

impl Open {
    fn is_released(&self) -> bool {
        self.owners == 0
    }

    /// Whether an open by `opener` for `mode` can use this one.
    fn serves(&self, mode: OpenMode, opener: (u32, u32)) -> bool {
        let of = |mode: OpenMode| (mode.append, mode.direct, mode.sync, mode.truncate);
        let enough = (self.mode.read || !mode.read) && (self.mode.write || !mode.write);
        enough && of(self.mode) == of(mode) && self.opener == opener
    }
}

/// An open file in use: the store does not close it. Returned by [`Opens::give_back`].
#[derive(Debug)]
#[must_use = "give it back, or the store never closes it"]
pub(crate) struct Borrowed(pub(crate) FileRef);

impl Opens {
    pub(crate) fn new(inode: InodeId) -> Self {
        Self { inode, files: Mutex::new(&lock_order::OPENS, Files::default()) }
    }

    /// The store opened `file` for `opener`.
    pub(crate) fn opened(&self, file: FileId, mode: OpenMode, opener: (u32, u32)) {
        let open = Open { file, mode, opener, uses: 0, owners: 1 };
        self.files.lock().push(open);
    }

    /// Finds an open file that serves as well, and adds an owner to it.
    pub(crate) fn share(&self, mode: OpenMode, opener: (u32, u32)) -> Option<FileId> {
        let mut files = self.files.lock();
        let open = files.iter_mut().find(|open| open.serves(mode, opener))?;
        open.owners += 1;
        Some(open.file)
    }

    /// One owner of `file` is done. False if it was the only one: then call [`Opens::release`].
    pub(crate) fn release_shared(&self, file: FileId) -> bool {
        let mut files = self.files.lock();
        let open = files.iter_mut().find(|open| open.file == file && open.owners > 1);
        open.map(|open| open.owners -= 1).is_some()
    }

    /// An opener of `file` is done. True if the store is to close it now. Otherwise a caller of [`Opens::closable`]
    /// closes it later.
    pub(crate) fn release(&self, file: FileId, unwritten: bool) -> bool {
        let mut files = self.files.lock();
        let Some(open) = files.of(file) else { return true };
        open.owners = open.owners.saturating_sub(1);
        if !open.is_released() || open.uses > 0 || (unwritten && open.mode.write) {
            return false;
        }
        files.retain(|open| open.file != file);
        true
    }

    /// Files that the store may close by now. `unwritten`: data still waits to be written.
    pub(crate) fn closable(&self, unwritten: bool) -> Vec<FileRef> {
        let mut gone = Vec::new();
        self.files.lock().retain(|open| {
            let keep = !open.is_released() || open.uses > 0 || (unwritten && open.mode.write);
            if !keep {
                gone.push(FileRef { inode: self.inode, file: open.file });
            }
            keep
        });
        gone
    }

    /// An open file to read by: `wished`, if possible, or another one.
    pub(crate) fn reader(&self, wished: FileRef) -> Option<Borrowed> {
        self.borrow(|open| open.mode.read, wished.file)
    }

    /// Whether the file is open for writing.
    pub(crate) fn has_writer(&self) -> bool {
        self.files.lock().iter().any(|open| open.mode.write && !open.is_released())
    }

    /// An open file to write by.
    pub(crate) fn writer(&self) -> Option<Borrowed> {
        self.borrow(|open| open.mode.write, FileId::NONE)
    }

    fn borrow(&self, fits: impl Fn(&Open) -> bool, wished: FileId) -> Option<Borrowed> {
        let mut files = self.files.lock();
        let wishes = files.iter().any(|open| open.file == wished && fits(open));
        let found = files.iter_mut().find(|open| fits(open) && (!wishes || open.file == wished))?;
        found.uses += 1;
        Some(Borrowed(FileRef { inode: self.inode, file: found.file }))
    }

    /// Ends a use. Returns the file if the store is to close it now.
    pub(crate) fn give_back(&self, borrowed: Borrowed, unwritten: bool) -> Option<FileRef> {
        let mut files = self.files.lock();
        let open = files.of(borrowed.0.file)?;
        open.uses -= 1;
        if !open.is_released() || open.uses > 0 || (unwritten && open.mode.write) {
            return None;
        }
        files.retain(|open| open.file != borrowed.0.file);
        Some(borrowed.0)
    }

    /// Whether the file is open.
    pub(crate) fn any_wanted(&self) -> bool {
        self.files.lock().iter().any(|open| !open.is_released())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: OpenMode = OpenMode::READ;
    const WRITE: OpenMode = OpenMode { read: false, ..OpenMode::READ_WRITE };

    fn opens(files: &[(u64, OpenMode)]) -> Opens {
        let opens = Opens::new(InodeId(7));
        files.iter().for_each(|&(id, mode)| opens.opened(FileId(id), mode, (0, 0)));
        opens
    }

    #[test]
    fn a_file_in_use_is_closed_by_its_last_user() {
        let opens = opens(&[(1, READ)]);
        let used = opens.reader(FileRef { inode: InodeId(7), file: FileId(1) }).unwrap();
        assert!(!opens.release(FileId(1), false));
        assert!(opens.closable(false).is_empty() && !opens.any_wanted());
        assert_eq!(opens.give_back(used, false).unwrap().file, FileId(1));
        assert!(opens.closable(false).is_empty(), "told once");
    }

    #[test]
    fn a_writer_stays_until_everything_is_written() {
        let opens = opens(&[(1, READ), (2, WRITE)]);
        assert!(opens.release(FileId(1), true), "nothing is written by it");
        assert!(!opens.release(FileId(2), true));
        let used = opens.writer().unwrap();
        assert_eq!(used.0.file, FileId(2));
        assert!(opens.give_back(used, true).is_none());
        assert!(opens.closable(true).is_empty());
        let closed: Vec<_> = opens.closable(false).iter().map(|open| open.file).collect();
        assert_eq!(closed, [FileId(2)]);
        assert!(opens.writer().is_none());
    }

    #[test]
    fn a_reader_that_cannot_read_by_its_own_file_reads_by_another() {
        let opens = opens(&[(1, WRITE), (2, READ)]);
        let own = FileRef { inode: InodeId(7), file: FileId(1) };
        assert_eq!(opens.reader(own).unwrap().0.file, FileId(2));
    }

    #[test]
    fn opens_of_one_user_share_a_file_of_the_store_that_serves_them() {
        let opens = opens(&[(1, OpenMode::READ_WRITE)]);
        let ours = (0, 0);
        assert_eq!(opens.share(READ, ours), Some(FileId(1)));
        assert_eq!(opens.share(WRITE, ours), Some(FileId(1)));
        assert_eq!(opens.share(READ, (1, 0)), None, "the store has not let that user in");
        assert_eq!(opens.share(OpenMode { sync: true, ..READ }, ours), None);
        assert!(opens.release_shared(FileId(1)) && !opens.release(FileId(1), false));
        assert!(!opens.release_shared(FileId(1)), "the last owner closes");
        assert!(opens.release(FileId(1), false));
    }
}
