//! A store that takes writes only at the end, or only whole files: a small object store.
//!
//! # Boundary
//! One directory of files. It records the data that it gets, and refuses writes that its kind does not allow, so that a
//! core that breaks the rule is noticed. A removed file keeps its place.
//!
//! # Why
//! No store of ours is restricted to less than writes anywhere. Weakness: it keeps every version's name and only the
//! last content.

use std::sync::Arc;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_vfs::{
    Attributes, Authority, Backend, Caller, Capabilities, Content, Cookie, Creation, Data, Entry,
    Error, FileId, FileKind, FileRef, InodeId, Inodes, Listing, Name, Names, NewNode, OpenFiles,
    OpenMode, Opens, Result, SetAttributes, WholeContent, Writes,
};

static OBJECTS: LockClass = LockClass::new(284, "objects", "the files of a store under test");

/// Bytes that it takes of a whole file at once.
const PART: usize = 3 << 12;

/// The store's writes, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Given {
    /// Bytes at an offset.
    Bytes {
        /// Where.
        offset: u64,
        /// How many.
        count: usize,
    },
    /// A whole content of so many bytes.
    Whole(usize),
}

/// See the module. Clones are one store.
#[derive(Debug, Clone)]
pub struct Objects {
    state: Arc<Mutex<State>>,
    can: Capabilities,
}

#[derive(Debug, Default)]
struct State {
    objects: Vec<Object>,
    given: Vec<Given>,
    opens: u64,
    /// So many whole files more are refused with EIO.
    refusals: usize,
}

#[derive(Debug, Default)]
struct Object {
    name: Vec<u8>,
    content: Vec<u8>,
    version: u64,
}

impl Objects {
    /// An empty store with this kind of writes.
    pub fn new(writes: Writes, authority: Authority) -> Self {
        let can = Capabilities {
            writes,
            authority,
            opens: Opens::Tracked,
            ..Capabilities::read_write("objects")
        };
        Self { state: Arc::new(Mutex::new(&OBJECTS, State::default())), can }
    }

    /// Returns the store with capabilities changed by `change`.
    #[must_use]
    pub fn claiming(mut self, change: impl FnOnce(&mut Capabilities)) -> Self {
        change(&mut self.can);
        self
    }

    /// The next `count` whole files are refused.
    pub fn refuse(&self, count: usize) {
        self.state.lock().refusals = count;
    }

    /// Writes that the store got so far.
    pub fn given(&self) -> Vec<Given> {
        self.state.lock().given.clone()
    }

    /// The content of the file `name`.
    pub fn content(&self, name: &str) -> Vec<u8> {
        let state = self.state.lock();
        let found = state.objects.iter().find(|object| object.name == name.as_bytes());
        found.map(|object| object.content.clone()).unwrap_or_default()
    }

    /// Another program replaces the file `name`.
    pub fn replace_behind(&self, name: &str, content: &[u8]) {
        let mut state = self.state.lock();
        let found = state.objects.iter_mut().find(|object| object.name == name.as_bytes());
        if let Some(object) = found {
            object.content = content.to_vec();
            object.version += 1;
        }
    }

    fn with<T>(&self, file: FileRef, act: impl FnOnce(&mut Object) -> T) -> Result<T> {
        let at = (file.inode.0 as usize).checked_sub(2).ok_or(Error::IsDirectory)?;
        Ok(act(self.state.lock().objects.get_mut(at).ok_or(Error::Stale)?))
    }

    fn entry(&self, inode: InodeId) -> Result<Entry> {
        Ok(Entry { inode, attributes: self.attributes(FileRef::unopened(inode))? })
    }
}

impl Backend for Objects {
    fn capabilities(&self) -> Capabilities {
        self.can
    }
    fn root(&self) -> Result<Entry> {
        self.entry(InodeId::ROOT)
    }
    fn names(&self) -> &dyn Names {
        self
    }
    fn creation(&self) -> Option<&dyn Creation> {
        Some(self)
    }
    fn inodes(&self) -> &dyn Inodes {
        self
    }
    fn data(&self) -> &dyn Data {
        self
    }
    fn open_files(&self) -> &dyn OpenFiles {
        self
    }
}

impl Names for Objects {
    fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
        let found =
            self.state.lock().objects.iter().position(|object| object.name == name.as_bytes());
        self.entry(InodeId(found.ok_or(Error::NotFound)? as u64 + 2))
    }

    fn list(&self, _: FileRef, _: Cookie, _: &mut dyn Listing) -> Result<()> {
        Ok(())
    }
}

impl Creation for Objects {
    fn create(&self, _: &Caller, _: InodeId, name: Name<'_>, _: &NewNode<'_>) -> Result<Entry> {
        let mut state = self.state.lock();
        state.objects.push(Object {
            name: name.as_bytes().to_vec(),
            version: 1,
            ..Object::default()
        });
        let made = InodeId(state.objects.len() as u64 + 1);
        drop(state);
        self.entry(made)
    }

    fn create_and_open(
        &self,
        caller: &Caller,
        parent: InodeId,
        name: Name<'_>,
        new: &NewNode<'_>,
        mode: OpenMode,
    ) -> Result<(Entry, FileId)> {
        let entry = self.create(caller, parent, name, new)?;
        Ok((entry, self.open(caller, entry.inode, mode)?))
    }
}

impl Inodes for Objects {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        match file.inode {
            InodeId::ROOT => Ok(Attributes::new(1, FileKind::Directory, 0o1777)),
            InodeId(id) => self.with(file, |object| Attributes {
                size: object.content.len() as u64,
                version: object.version,
                ..Attributes::new(id, FileKind::Regular, 0o666)
            }),
        }
    }

    fn set_attributes(&self, _: &Caller, file: FileRef, set: &SetAttributes) -> Result<Attributes> {
        if let Some(size) = set.size {
            self.with(file, |object| {
                object.content.resize(size as usize, 0);
                object.version += 1;
            })?;
        }
        self.attributes(file)
    }
}

impl Data for Objects {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.read_with_version(file, offset, into).map(|content| content.count)
    }

    fn read_with_version(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<Content> {
        self.with(file, |object| {
            let rest = &object.content[object.content.len().min(offset as usize)..];
            let count = rest.len().min(into.len());
            into[..count].copy_from_slice(&rest[..count]);
            Content { count, version: object.version }
        })
    }

    fn write(&self, _: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        if self.can.writes != Writes::Append {
            return Err(Error::Corrupt("a part of a file, which this store does not take"));
        }
        let at_end = self.with(file, |object| {
            let at_end = object.content.len() as u64 == offset;
            if at_end {
                object.content.extend_from_slice(data);
                object.version += 1;
            }
            at_end
        })?;
        self.state.lock().given.push(Given::Bytes { offset, count: data.len() });
        if at_end {
            Ok(data.len())
        } else {
            Err(Error::Corrupt("a write elsewhere than at the end"))
        }
    }

    fn replace(&self, _: &Caller, file: FileRef, content: &dyn WholeContent) -> Result<Attributes> {
        let mut bytes = vec![0; content.size() as usize];
        // The last part first: an upload's parts arrive in no order.
        for from in (0..bytes.len()).step_by(PART).rev() {
            let part = from..bytes.len().min(from + PART);
            let count = content.read(from as u64, &mut bytes[part.clone()])?;
            assert_eq!(count, part.len(), "a part is whole");
        }
        let size = bytes.len();
        let refusals = std::mem::take(&mut self.state.lock().refusals);
        if refusals > 0 {
            self.state.lock().refusals = refusals - 1;
            return Err(Error::Io(std::io::ErrorKind::Other.into()));
        }
        let taken = self.with(file, |object| {
            let same = [0, object.version].contains(&content.version());
            if same {
                object.content = bytes;
                object.version += 1;
            }
            same
        })?;
        if !taken {
            return Err(Error::Busy);
        }
        self.state.lock().given.push(Given::Whole(size));
        self.attributes(file)
    }
}

impl OpenFiles for Objects {
    fn open(&self, _: &Caller, _: InodeId, _: OpenMode) -> Result<FileId> {
        let mut state = self.state.lock();
        state.opens += 1;
        Ok(FileId(state.opens))
    }

    fn close(&self, _: FileRef) {}
}
