//! A store of one file, `file`, which is replaced as a whole and reports its version.
//!
//! # Boundary
//! Every byte of the content is the version's number (its lowest eight bits, never 0), so that a read that mixes two
//! versions shows it. It may be written to as well, which makes another version.
//!
//! # Why
//! A small object store. Weakness: it is one file, and keeps no older version.

use std::sync::Arc;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_vfs::{
    Attributes, Authority, Backend, Caller, Capabilities, Content, Cookie, Data, Entry, Error,
    FileKind, FileRef, InodeId, Inodes, Listing, Name, Names, Result, SetAttributes, SetTime,
    Timestamp,
};

static OBJECT: LockClass = LockClass::new(281, "object", "the one file of a store under test");
static MEETING: LockClass = LockClass::new(282, "meeting", "what a test does at a read");

/// The file's id.
const FILE: InodeId = InodeId(2);

/// Called at each read with its offset, before the bytes are taken.
type AtRead = Box<dyn FnMut(u64) + Send>;

/// See the module. Clones are one store.
#[derive(Clone)]
#[expect(missing_debug_implementations, reason = "it holds what a test does at a read")]
pub struct Versioned {
    object: Arc<Mutex<Object>>,
    at_read: Arc<Mutex<Option<AtRead>>>,
    /// The version comes with the bytes, and not only with the attributes.
    with_bytes: bool,
}

struct Object {
    version: u64,
    content: Vec<u8>,
    mtime: Timestamp,
}

/// The value of every byte of `version`.
pub fn byte_of(version: u64) -> u8 {
    (version % 255) as u8 + 1
}

impl Versioned {
    /// A file with its first version, of `size` bytes. `with_bytes`: reads name the version that they are of.
    pub fn new(size: usize, with_bytes: bool) -> Self {
        let content = vec![byte_of(1); size];
        // The time never changes.
        let object =
            Object { version: 1, content, mtime: Timestamp { seconds: 7, nanoseconds: 0 } };
        Self {
            object: Arc::new(Mutex::new(&OBJECT, object)),
            at_read: Arc::new(Mutex::new(&MEETING, None)),
            with_bytes,
        }
    }

    /// Replaces the file by its next version, of `size` bytes; the version.
    pub fn replace(&self, size: usize) -> u64 {
        let mut object = self.object.lock();
        object.version += 1;
        object.content = vec![byte_of(object.version); size];
        object.version
    }

    /// The content of the store.
    pub fn content(&self) -> Vec<u8> {
        self.object.lock().content.clone()
    }

    /// From now on `act` is called at each read. It may replace the file.
    pub fn at_read(&self, act: impl FnMut(u64) + Send + 'static) {
        *self.at_read.lock() = Some(Box::new(act));
    }

    fn file(&self) -> Attributes {
        let object = self.object.lock();
        let mut attributes = Attributes::new(FILE.0, FileKind::Regular, 0o666);
        attributes.size = object.content.len() as u64;
        attributes.mtime = object.mtime;
        attributes.ctime = object.mtime;
        attributes.version = object.version;
        attributes
    }
}

impl Backend for Versioned {
    fn capabilities(&self) -> Capabilities {
        Capabilities { authority: Authority::Shared, ..Capabilities::read_write("versioned") }
    }

    fn root(&self) -> Result<Entry> {
        let attributes = Attributes::new(1, FileKind::Directory, 0o777);
        Ok(Entry { inode: InodeId::ROOT, attributes })
    }

    fn names(&self) -> &dyn Names {
        self
    }

    fn inodes(&self) -> &dyn Inodes {
        self
    }

    fn data(&self) -> &dyn Data {
        self
    }
}

impl Names for Versioned {
    fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
        match name.as_bytes() {
            b"file" => Ok(Entry { inode: FILE, attributes: self.file() }),
            _ => Err(Error::NotFound),
        }
    }

    fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
        Ok(())
    }
}

impl Inodes for Versioned {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        match file.inode {
            InodeId::ROOT => self.root().map(|root| root.attributes),
            _ => Ok(self.file()),
        }
    }

    fn set_attributes(&self, _: &Caller, _: FileRef, set: &SetAttributes) -> Result<Attributes> {
        if let Some(SetTime::At(time)) = set.mtime {
            self.object.lock().mtime = time;
        }
        Ok(self.file())
    }
}

impl Data for Versioned {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_with_version(file, offset, into).map(|content| content.count)
    }

    fn read_with_version(&self, _: FileRef, offset: u64, into: &mut [u8]) -> Result<Content> {
        let act = self.at_read.lock().take();
        if let Some(mut act) = act {
            act(offset);
            self.at_read.lock().get_or_insert(act);
        }
        let object = self.object.lock();
        let rest = object.content.get(offset as usize..).unwrap_or(&[]);
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(Content { count, version: if self.with_bytes { object.version } else { 0 } })
    }

    fn write(&self, _: &Caller, _: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        let mut object = self.object.lock();
        let (start, end) = (offset as usize, offset as usize + data.len());
        if object.content.len() < end {
            object.content.resize(end, 0);
        }
        object.content[start..end].copy_from_slice(data);
        object.version += 1;
        Ok(data.len())
    }
}
