#![forbid(unsafe_code)]
//! A writable store of some hundred lines, mounted: `cargo run -p uvfs-fuse --example key_value -- MOUNTPOINT FILE`,
//! then use it, then `umount MOUNTPOINT`. The keys are in FILE, also after the program has ended.
//!
//! The store keeps its keys as the names of one directory, and its values as the contents of those files. It leaves out
//! directories, links, extended attributes and modes; users of these get EOPNOTSUPP. An id is a place in the table and
//! never names another object. The whole table is saved when a program calls fsync(2), and at the end: uvfs calls
//! `sync_fs` for both. Weakness: a removed value keeps its memory, since it may still be open; a store that counts
//! references frees it in `forget`.
#![expect(clippy::disallowed_types, reason = "std's mutex, as a program elsewhere would use it")]

use std::fs::{self, File};
use std::io::{self, Cursor, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use uvfs_fuse::{Mount, MountOptions};
use uvfs_vfs::{
    Attributes, Backend, Caller, Capabilities, Cookie, Creation, Data, Entry, Error, FileKind,
    FileRef, InodeId, Inodes, Listing, Name, Names, NewKind, NewNode, Result, SetAttributes, Vfs,
    VfsConfig,
};

/// A key and its value by id, which is the place and 2. A removed key is empty.
type Table = Vec<(Vec<u8>, Vec<u8>)>;

/// The store, and the file that it is saved in.
#[derive(Debug, Default)]
pub(crate) struct KeyValue(Mutex<Table>, Option<PathBuf>);

impl KeyValue {
    /// The store that was saved in `file`; an empty one if there is no such file.
    pub(crate) fn open(file: &Path) -> io::Result<Self> {
        let saved = match fs::read(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            saved => saved?,
        };
        let (mut rest, mut parts) = (&saved[..], Vec::new());
        while let Some((length, behind)) = rest.split_first_chunk() {
            let part = behind.split_at_checked(u64::from_le_bytes(*length) as usize);
            let (part, behind) = part.ok_or(ErrorKind::InvalidData)?;
            parts.push(part.to_vec());
            rest = behind;
        }
        let table = parts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
        Ok(Self(Mutex::new(table), Some(file.into())))
    }
    /// Saves all keys and values, each behind its length. A crash leaves the old file or the new one.
    fn save(&self, file: &Path) -> io::Result<()> {
        let table = self.0.lock().unwrap();
        let new = file.with_extension("new");
        let mut bytes = Vec::new();
        for (key, value) in table.iter().filter(|(key, _)| !key.is_empty()) {
            for part in [key, value] {
                bytes.extend((part.len() as u64).to_le_bytes());
                bytes.extend(part);
            }
        }
        let mut saved = File::create(&new)?;
        saved.write_all(&bytes)?;
        saved.sync_all()?;
        fs::rename(new, file)?;
        // The name is stable when its directory is.
        File::open(
            file.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new(".")),
        )?
        .sync_all()
    }
    fn with<T>(&self, file: FileRef, act: impl FnOnce(&mut Vec<u8>) -> T) -> Result<T> {
        let at = (file.inode.0 as usize).checked_sub(2).ok_or(Error::IsDirectory)?;
        Ok(act(&mut self.0.lock().unwrap().get_mut(at).ok_or(Error::Stale)?.1))
    }
    fn entry(&self, inode: InodeId) -> Result<Entry> {
        Ok(Entry { inode, attributes: self.attributes(FileRef::unopened(inode))? })
    }
}

#[rustfmt::skip]
impl Backend for KeyValue {
    fn capabilities(&self) -> Capabilities { Capabilities::read_write("key-value") }
    fn root(&self) -> Result<Entry> { self.entry(InodeId::ROOT) }
    fn names(&self) -> &dyn Names { self }
    fn creation(&self) -> Option<&dyn Creation> { Some(self) }
    fn inodes(&self) -> &dyn Inodes { self }
    fn data(&self) -> &dyn Data { self }
    fn sync_fs(&self) -> Result<()> { Ok(self.1.as_deref().map_or(Ok(()), |file| self.save(file))?) }
}

impl Names for KeyValue {
    fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
        let found = self.0.lock().unwrap().iter().position(|(key, _)| key == name.as_bytes());
        self.entry(InodeId(found.ok_or(Error::NotFound)? as u64 + 2))
    }
    fn list(&self, _: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        let table = self.0.lock().unwrap();
        let here = (2..).zip(&*table).skip(from.0 as usize).filter(|(_, (key, _))| !key.is_empty());
        for (id, (key, _)) in here {
            if !listing.add_name(Name::new(key)?, Cookie(id - 1), id, FileKind::Regular) {
                break;
            }
        }
        Ok(())
    }
    fn unlink(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<()> {
        let mut table = self.0.lock().unwrap();
        let found = table.iter_mut().find(|(key, _)| key == name.as_bytes());
        found.ok_or(Error::NotFound)?.0.clear();
        Ok(())
    }
}

impl Creation for KeyValue {
    fn create(&self, _: &Caller, _: InodeId, name: Name<'_>, new: &NewNode<'_>) -> Result<Entry> {
        let mut table = self.0.lock().unwrap();
        match (new.kind, table.iter().any(|(key, _)| key == name.as_bytes())) {
            (NewKind::Regular, false) => table.push((name.as_bytes().to_vec(), Vec::new())),
            (NewKind::Regular, true) => return Err(Error::Exists),
            _ => return Err(Error::Unsupported("anything but files")),
        }
        let made = InodeId(table.len() as u64 + 1);
        drop(table);
        self.entry(made)
    }
}

impl Inodes for KeyValue {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        match file.inode {
            InodeId::ROOT => Ok(Attributes::new(1, FileKind::Directory, 0o1777)),
            InodeId(id) => self.with(file, |bytes| Attributes {
                size: bytes.len() as u64,
                ..Attributes::new(id, FileKind::Regular, 0o666)
            }),
        }
    }
    fn set_attributes(&self, _: &Caller, file: FileRef, set: &SetAttributes) -> Result<Attributes> {
        self.with(file, |bytes| {
            bytes.resize(set.size.map_or(bytes.len(), |size| size as usize), 0)
        })?;
        self.attributes(file)
    }
}

impl Data for KeyValue {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        Ok(self.with(file, |bytes| (&bytes[bytes.len().min(offset as usize)..]).read(into))??)
    }
    fn write(&self, _: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        Ok(self.with(file, |bytes| {
            let mut place = Cursor::new(bytes);
            place.set_position(offset);
            place.write(data)
        })??)
    }
}

#[allow(dead_code, reason = "a test takes the store alone")]
fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let [mountpoint, file] = &std::env::args_os().skip(1).collect::<Vec<_>>()[..] else {
        return Err("say where: key_value MOUNTPOINT FILE".into());
    };
    let vfs = Vfs::new(KeyValue::open(file.as_ref())?, VfsConfig::default())?;
    let mount = Mount::start(vfs, mountpoint, MountOptions::default())?;
    println!("mounted; `umount {}` ends it", mount.mountpoint().display());
    mount.wait();
    Ok(())
}
