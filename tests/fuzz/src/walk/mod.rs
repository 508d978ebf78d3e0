//! Paths and the operations on them against a naive tree, in every resolve mode.
//!
//! The input is a script, a line for each step (`script`), run on a memory store through
//! [`Directory`] handles with the smallest caches there are, and on the model (`model`). Walks must
//! end at the same object or with the same errno; changes must succeed or fail together; a confined
//! walk must end below its start. In the end both trees are the same, seen through warm caches and
//! through cold ones.
//!
//! Weakness: if a change is refused for two reasons at once, the errno is not compared.

mod model;
mod script;

use self::model::{Kind, Model, Object, ROOT, Symlinks, View};
use self::script::{Operation, Step};
use std::sync::Arc;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_vfs::{
    Attributes, Caller, Directory, Error, FileKind, MINIMUM_BYTES, NewKind, OpenOptions, Resolve,
    ResolveMode, Result, Vfs, VfsConfig,
};

const STEPS_MAX: usize = 64;

/// One input.
///
/// # Panics
/// If it is treated as it should not be.
pub fn run(bytes: &[u8]) {
    let mut run = Run::new();
    for line in bytes.split(|&byte| byte == b'\n').take(STEPS_MAX) {
        if let Some(step) = Step::parse(line) {
            run.step(&step);
        }
    }
    run.same(&run.root, ROOT);
    run.vfs.forget_unused();
    run.same(&run.root, ROOT);
}

struct Run {
    vfs: Arc<Vfs>,
    root: Directory,
    model: Model,
    /// A directory that was entered: the other place where walks start.
    entered: (Directory, Object),
}

impl Run {
    fn new() -> Self {
        let memory = MemoryBackend::new(MemoryConfig::default()).expect("the default limits");
        // As small as can be: something else takes all but 16 KiB of the budget.
        let overhead_bytes = MINIMUM_BYTES - (16 << 10);
        let config =
            VfsConfig { cache_bytes: MINIMUM_BYTES, overhead_bytes, ..VfsConfig::default() };
        let vfs = Vfs::new(memory, config).expect("the smallest limits");
        let root = vfs.root_directory(Caller::root());
        let number = root.stat("/").expect("a root").number;
        Self { vfs, entered: (root.clone(), ROOT), root, model: Model::new(number) }
    }

    fn step(&mut self, step: &Step<'_>) {
        let (handle, start) = match step.entered {
            true => self.entered.clone(),
            false => (self.root.clone(), ROOT),
        };
        let handle = handle.with_resolve(step.mode);
        let view = View { start, resolve: step.mode.resolve, no_symlinks: step.mode.no_symlinks };
        let [path, other] = step.paths;
        match step.operation {
            Operation::Stat => self.stat(view, path, Symlinks::Follow, handle.stat(path)),
            Operation::LinkStat => {
                self.stat(view, path, Symlinks::KeepLast, handle.symlink_stat(path));
            }
            Operation::ReadLink => self.read_link(view, path, handle.read_link(path)),
            Operation::ReadFile => self.read_file(view, path, handle.read_file(path)),
            Operation::Enter => self.enter(view, path, handle.open_directory(path)),
            Operation::Directory => {
                let done = handle.create_directory(path, 0o755);
                let expected = self.model.create(view, path, Kind::directory());
                self.created((&handle, step.mode), path, done, expected);
            }
            Operation::Symlink => {
                let done = handle.create(path, NewKind::Symlink(other), 0o777);
                let expected = self.model.create(view, path, Kind::Symlink(other.to_vec()));
                self.created((&handle, step.mode), path, done, expected);
            }
            Operation::CreateNew => {
                let options = OpenOptions::write().create_new(0o600);
                let done = handle.open(path, options).map(drop);
                let expected = self.model.create_new(view, path);
                self.created((&handle, step.mode), path, done, expected);
            }
            Operation::WriteFile => {
                let done = handle.write_file(path, other);
                let expected = self.model.write_file(view, path, other);
                self.created((&handle, step.mode), path, done, expected);
            }
            Operation::Link => agree(handle.link(path, other), self.model.link(view, path, other)),
            Operation::RemoveFile => {
                agree(handle.remove_file(path), self.model.remove_file(view, path));
            }
            Operation::RemoveDirectory => {
                agree(handle.remove_directory(path), self.model.remove_directory(view, path));
            }
            Operation::Rename(mode) => {
                agree(handle.rename(path, other, mode), self.model.rename(view, path, other, mode));
            }
        }
    }

    fn stat(&self, view: View, path: &[u8], last: Symlinks, found: Result<Attributes>) {
        match (found, self.model.find(view, path, last)) {
            (Ok(found), Ok(object)) => {
                self.is(object, &found);
                self.is_within(view, found.number);
            }
            (found, expected) => same_errno(path, found.map(drop), expected.map(drop)),
        }
    }

    fn read_link(&self, view: View, path: &[u8], found: Result<Vec<u8>>) {
        match (found, self.model.find(view, path, Symlinks::KeepLast).map(|at| self.model.kind(at)))
        {
            (Ok(text), Ok(Kind::Symlink(expected))) => assert_eq!(text, *expected),
            (Err(Error::Invalid(_)), Ok(Kind::Directory(_) | Kind::File(_))) => {}
            (found, expected) => same_errno(path, found.map(drop), expected.map(drop)),
        }
    }

    fn read_file(&self, view: View, path: &[u8], found: Result<Vec<u8>>) {
        match (found, self.model.find(view, path, Symlinks::Follow).map(|at| self.model.kind(at))) {
            (Ok(content), Ok(Kind::File(expected))) => assert_eq!(content, *expected),
            (Err(Error::IsDirectory), Ok(Kind::Directory(_))) => {}
            (found, expected) => same_errno(path, found.map(drop), expected.map(drop)),
        }
    }

    fn enter(&mut self, view: View, path: &[u8], found: Result<Directory>) {
        let object = self.model.find(view, path, Symlinks::Follow);
        match (found, object) {
            (Ok(directory), Ok(object)) => {
                let found = directory.with_resolve(ResolveMode::default());
                let attributes = found.stat(".").expect("a directory that is held");
                self.is(object, &attributes);
                self.is_within(view, attributes.number);
                self.entered = (found, object);
            }
            (Err(Error::NotDirectory), Ok(object)) => {
                assert!(!matches!(self.model.kind(object), Kind::Directory(_)));
            }
            (found, expected) => same_errno(path, found.map(drop), expected.map(drop)),
        }
    }

    /// A step that may have made an object: the model learns its number.
    fn created(
        &mut self,
        (handle, mode): (&Directory, ResolveMode),
        path: &[u8],
        done: Result<()>,
        expected: std::result::Result<Option<Object>, i32>,
    ) {
        agree(done, expected.map(drop));
        if let Ok(Some(object)) = expected {
            // A link may be made, but not looked at, where links are refused.
            let handle = handle.clone().with_resolve(ResolveMode { no_symlinks: false, ..mode });
            let made = match self.model.kind(object) {
                Kind::Symlink(_) => handle.symlink_stat(path),
                _ => handle.stat(path),
            };
            let made = made.expect("just made");
            assert!(!self.model.knows(made.number), "a new object has the number of another");
            self.model.number(object, made.number);
            self.is(object, &made);
        }
    }

    /// `found` is `object`, with its current attributes.
    fn is(&self, object: Object, found: &Attributes) {
        assert_eq!(found.number, self.model.number_of(object), "another object");
        let links = self.model.links(object);
        match self.model.kind(object) {
            Kind::Directory(_) => assert_eq!(found.kind, FileKind::Directory),
            Kind::File(content) => {
                assert_eq!((found.kind, found.size), (FileKind::Regular, content.len() as u64));
                assert_eq!(found.links, links);
            }
            Kind::Symlink(_) => assert_eq!((found.kind, found.links), (FileKind::Symlink, links)),
        }
    }

    /// A confined walk stays below its start. Uses the whole tree, not the rules of walking.
    fn is_within(&self, view: View, number: u64) {
        if view.resolve != Resolve::Anywhere {
            assert!(self.model.numbers_below(view.start).contains(&number), "out of its start");
        }
    }

    /// Everything below `directory` is as the model has it.
    fn same(&self, directory: &Directory, object: Object) {
        let Kind::Directory(expected) = self.model.kind(object) else {
            panic!("the model has no directory here")
        };
        let mut names: Vec<_> = directory
            .list_all()
            .expect("a directory")
            .into_iter()
            .map(|entry| entry.name)
            .collect();
        names.sort();
        assert!(names.iter().eq(expected.keys()), "{names:?} instead of {:?}", expected.keys());
        for (name, &child) in expected {
            self.is(child, &directory.symlink_stat(name).expect("a listed name"));
            match self.model.kind(child) {
                Kind::Directory(_) => {
                    self.same(&directory.open_directory(name).expect("a directory"), child);
                }
                Kind::File(content) => {
                    assert_eq!(directory.read_file(name).expect("a file"), *content);
                }
                Kind::Symlink(text) => {
                    assert_eq!(directory.read_link(name).expect("a link"), *text);
                }
            }
        }
    }
}

/// Both did it, or neither.
fn agree(done: Result<()>, expected: std::result::Result<(), i32>) {
    match (&done, expected) {
        (Ok(()), Ok(())) | (Err(_), Err(_)) => {}
        _ => panic!("{done:?}, and the model says {expected:?}"),
    }
}

/// Both failed, for the same reason.
fn same_errno(path: &[u8], found: Result<()>, expected: std::result::Result<(), i32>) {
    let found = found.map_err(|error| match error {
        // A removed directory: NotFound, by either error.
        Error::Stale => Error::NotFound.errno(),
        error => error.errno(),
    });
    // A name that is too long anywhere may be refused before the walk gets there.
    let too_long = found == Err(Error::NameTooLong.errno()) && expected.is_err();
    assert!(
        found == expected || too_long,
        "{found:?} instead of {expected:?}: {}",
        path.escape_ascii()
    );
}
