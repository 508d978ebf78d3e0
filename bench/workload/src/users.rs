//! Users of one machine: a mix of programs as in Gaede's benchmark, which Peacock (1992) measured with.
//!
//! # Boundary
//! The mix and its files, over a [`Disk`]: any file system, or none ([`Nowhere`]). Runs no threads and takes no time.
//!
//! # Why
//! A turn of a user is four programs, each turn beginning with another one: *edit* (a source is read, changed, written
//! anew, made stable and renamed into place), *compile and copy* (a source and shared headers are read, an object is
//! written, copied and removed), *search* (a folder is listed and its sources are read) and *sort*. Each also computes
//! over all bytes that it reads, as programs do. The digest of a turn depends only on the user and on the turns before,
//! so that two file systems can be compared. Weakness: Gaede's own scripts were not at hand; the proportions are ours.

use std::cell::RefCell;
use std::collections::BTreeMap;

/// A file system's root, as a user's programs see it. Paths begin there.
pub trait Disk {
    /// The whole content of a file.
    ///
    /// # Errors
    /// Of the file system; so for all others.
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;

    /// Makes `content` the content of a file, which may be new.
    ///
    /// # Errors
    /// Of the file system.
    fn write(&self, path: &str, content: &[u8]) -> Result<(), String>;

    /// Writes `content` to a file, and waits until it is stable.
    ///
    /// # Errors
    /// Of the file system.
    fn write_stable(&self, path: &str, content: &[u8]) -> Result<(), String>;

    /// Gives a file another name, in place of the file that had it.
    ///
    /// # Errors
    /// Of the file system.
    fn rename(&self, from: &str, to: &str) -> Result<(), String>;

    /// Removes a file.
    ///
    /// # Errors
    /// Of the file system.
    fn remove(&self, path: &str) -> Result<(), String>;

    /// Makes a folder.
    ///
    /// # Errors
    /// Of the file system.
    fn make_folder(&self, path: &str) -> Result<(), String>;

    /// The names in a folder, in any order.
    ///
    /// # Errors
    /// Of the file system.
    fn names(&self, folder: &str) -> Result<Vec<String>, String>;

    /// The length of a file.
    ///
    /// # Errors
    /// Of the file system.
    fn size(&self, path: &str) -> Result<u64, String>;
}

/// Programs of a turn.
const PROGRAMS: usize = 4;
/// How often a compiler goes over what it read: about half of a turn is computing.
const PASSES: usize = 16;
/// Headers that all users read, and how many of them a compilation reads.
const HEADERS: usize = 16;
const INCLUDED: usize = 4;
/// Sources of a user.
const SOURCES: usize = 4;
const SOURCE_BYTES: usize = 8192;
const HEADER_BYTES: usize = 2048;
const OBJECT_BYTES: usize = 4096;
/// A line of the list that is sorted, and how many there are.
const LINE: usize = 16;
const LINES: usize = 256;
const WORD: usize = 8;

/// Makes the files that all users of `disk` read.
///
/// # Errors
/// Of the file system.
pub fn furnish(disk: &impl Disk) -> Result<(), String> {
    disk.make_folder("include")?;
    (0..HEADERS).try_for_each(|nth| disk.write(&header(nth), &text(nth as u64, HEADER_BYTES)))
}

fn header(nth: usize) -> String {
    format!("include/header-{nth}")
}

/// Bytes that look random and are the same in every run.
fn text(seed: u64, bytes: usize) -> Vec<u8> {
    let words = (0..bytes / WORD).map(|nth| mixed(seed << 32 | nth as u64));
    words.flat_map(u64::to_le_bytes).collect()
}

fn mixed(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) ^ word >> 31
}

/// What a program computes over what it reads.
fn digest(bytes: &[u8]) -> u64 {
    let words = bytes.chunks_exact(WORD).filter_map(|word| word.try_into().ok());
    words.fold(bytes.len() as u64, |sum, word| mixed(sum ^ u64::from_le_bytes(word)))
}

/// A user with a folder.
#[derive(Debug)]
pub struct User<D> {
    disk: D,
    number: usize,
}

impl<D: Disk> User<D> {
    /// Makes the folder of the user `number` and its files.
    ///
    /// # Errors
    /// Of the file system.
    pub fn settle(disk: D, number: usize) -> Result<Self, String> {
        let user = Self { disk, number };
        user.disk.make_folder(&user.folder())?;
        for nth in 0..SOURCES {
            let source = text((number * SOURCES + nth + HEADERS) as u64, SOURCE_BYTES);
            user.disk.write(&user.path(&source_name(nth)), &source)?;
        }
        user.disk.write(&user.path("list"), &text(number as u64, LINES * LINE))?;
        Ok(user)
    }

    fn folder(&self) -> String {
        format!("user-{}", self.number)
    }

    fn path(&self, name: &str) -> String {
        format!("user-{}/{name}", self.number)
    }

    /// All programs once, and the digest of what they saw.
    ///
    /// # Errors
    /// Of the file system.
    pub fn turn(&self, turn: usize) -> Result<u64, String> {
        (0..PROGRAMS).try_fold(0, |sum: u64, nth| {
            let seen = match (self.number + turn + nth) % PROGRAMS {
                0 => self.edit(turn),
                1 => self.compile_and_copy(turn),
                2 => self.search(),
                _ => self.sort(),
            };
            Ok(mixed(sum ^ seen?))
        })
    }

    fn edit(&self, turn: usize) -> Result<u64, String> {
        let path = self.path(&source_name(turn % SOURCES));
        let mut source = self.disk.read(&path)?;
        let place = turn * WORD % SOURCE_BYTES;
        source[place..place + WORD].copy_from_slice(&mixed(turn as u64).to_le_bytes());
        let fresh = self.path("source.new");
        self.disk.write_stable(&fresh, &source)?;
        self.disk.rename(&fresh, &path)?;
        Ok(digest(&source))
    }

    fn compile_and_copy(&self, turn: usize) -> Result<u64, String> {
        let mut unit = self.disk.read(&self.path(&source_name(turn % SOURCES)))?;
        for nth in 0..INCLUDED {
            let header = header((turn * 5 + nth * 3) % HEADERS);
            let size = self.disk.size(&header)?;
            unit.extend(self.disk.read(&header)?);
            unit.extend(size.to_le_bytes());
        }
        let sum = (0..PASSES).fold(0, |sum: u64, _| mixed(sum ^ digest(&unit)));
        let (object, draft) = (self.path("object"), self.path("backup.new"));
        self.disk.write(&object, &text(sum, OBJECT_BYTES))?;
        self.disk.write(&draft, &self.disk.read(&object)?)?;
        self.disk.rename(&draft, &self.path("backup"))?;
        self.disk.remove(&object)?;
        Ok(sum)
    }

    fn search(&self) -> Result<u64, String> {
        let mut names = self.disk.names(&self.folder())?;
        names.sort_unstable();
        let mut sum = 0;
        for path in names.iter().map(|name| self.path(name)) {
            sum = mixed(sum ^ self.disk.size(&path)?);
            if path.contains("source") {
                let source = self.disk.read(&path)?;
                sum +=
                    source.chunks_exact(WORD).filter(|word| word.starts_with(b"x")).count() as u64;
            }
        }
        Ok(sum)
    }

    fn sort(&self) -> Result<u64, String> {
        let list = self.disk.read(&self.path("list"))?;
        let mut lines: Vec<&[u8]> = list.chunks_exact(LINE).collect();
        lines.sort_unstable();
        let sorted = lines.concat();
        self.disk.write(&self.path("sorted"), &sorted)?;
        Ok(digest(&sorted))
    }
}

fn source_name(nth: usize) -> String {
    format!("source-{nth}")
}

/// No file system: a map of one thread. Its users only compute, so that their rate is the machine's.
#[derive(Debug, Default)]
pub struct Nowhere(RefCell<BTreeMap<String, Vec<u8>>>);

impl Nowhere {
    fn missing(path: &str) -> String {
        format!("{path}: not there")
    }
}

impl Disk for Nowhere {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        self.0.borrow().get(path).cloned().ok_or_else(|| Self::missing(path))
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), String> {
        self.0.borrow_mut().insert(path.to_owned(), content.to_vec());
        Ok(())
    }

    fn write_stable(&self, path: &str, content: &[u8]) -> Result<(), String> {
        self.write(path, content)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), String> {
        let mut files = self.0.borrow_mut();
        let content = files.remove(from).ok_or_else(|| Self::missing(from))?;
        files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &str) -> Result<(), String> {
        let removed = self.0.borrow_mut().remove(path);
        removed.map(drop).ok_or_else(|| Self::missing(path))
    }

    fn make_folder(&self, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn names(&self, folder: &str) -> Result<Vec<String>, String> {
        let inside = |path: &str| Some(path.strip_prefix(folder)?.strip_prefix('/')?.to_owned());
        Ok(self.0.borrow().keys().filter_map(|path| inside(path)).collect())
    }

    fn size(&self, path: &str) -> Result<u64, String> {
        let files = self.0.borrow();
        files.get(path).map(|content| content.len() as u64).ok_or_else(|| Self::missing(path))
    }
}

/// uvfs, in process.
#[cfg(feature = "vfs")]
mod vfs {
    use super::Disk;
    use uvfs_vfs::{Directory, OpenOptions, RenameMode, Result as Done, SyncMode};

    fn said<T>(path: &str, done: Done<T>) -> Result<T, String> {
        done.map_err(|error| format!("{path}: {error}"))
    }

    impl Disk for Directory {
        fn read(&self, path: &str) -> Result<Vec<u8>, String> {
            said(path, self.read_file(path))
        }

        fn write(&self, path: &str, content: &[u8]) -> Result<(), String> {
            said(path, self.write_file(path, content))
        }

        fn write_stable(&self, path: &str, content: &[u8]) -> Result<(), String> {
            let file = self.open(path, OpenOptions::write().create(0o666).truncate());
            let written = file.and_then(|file| {
                file.write_all_at(0, content)?;
                file.sync(SyncMode::All)
            });
            said(path, written)
        }

        fn rename(&self, from: &str, to: &str) -> Result<(), String> {
            said(from, Directory::rename(self, from, to, RenameMode::Replace))
        }

        fn remove(&self, path: &str) -> Result<(), String> {
            said(path, self.remove_file(path))
        }

        fn make_folder(&self, path: &str) -> Result<(), String> {
            said(path, self.create_directory(path, 0o777)).map(drop)
        }

        fn names(&self, folder: &str) -> Result<Vec<String>, String> {
            let entries =
                said(folder, self.open_directory(folder).and_then(|open| open.list_all()))?;
            Ok(entries
                .iter()
                .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
                .collect())
        }

        fn size(&self, path: &str) -> Result<u64, String> {
            Ok(said(path, self.stat(path))?.size)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_leaves_the_files_that_the_next_one_needs() {
        let disk = Nowhere::default();
        furnish(&disk).unwrap();
        let user = User::settle(disk, 3).unwrap();
        let first: Vec<u64> = (0..8).map(|turn| user.turn(turn).unwrap()).collect();
        let mut names = user.disk.names("user-3").unwrap();
        names.sort();
        let expected = ["backup", "list", "sorted", "source-0", "source-1", "source-2", "source-3"];
        assert_eq!(names, expected);
        let again = Nowhere::default();
        furnish(&again).unwrap();
        let again = User::settle(again, 3).unwrap();
        assert!(first.iter().enumerate().all(|(turn, one)| again.turn(turn) == Ok(*one)));
    }

    #[test]
    fn what_fails_names_the_file() {
        let user = User::settle(Nowhere::default(), 0).unwrap();
        assert_eq!(user.turn(0), Err("include/header-0: not there".to_owned()));
        user.disk.remove("user-0/list").unwrap();
        assert_eq!(user.sort(), Err("user-0/list: not there".to_owned()));
    }
}
