//! A small tree against a naive model, step by step, from many seeds: every result, every error.

use super::*;
use std::collections::BTreeMap;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The root's number in the model; others follow.
const TOP: usize = 0;

#[derive(Debug, Clone)]
struct Object {
    inode: InodeId,
    /// `Some` for a directory.
    entries: Option<BTreeMap<&'static str, usize>>,
    parent: usize,
}

/// Objects by number; a removed one stays, without names.
struct Model {
    objects: Vec<Object>,
}

type Outcome = std::result::Result<(), i32>;

impl Model {
    fn entries(&mut self, at: usize) -> &mut BTreeMap<&'static str, usize> {
        self.objects[at].entries.as_mut().unwrap()
    }
    fn get(&self, at: usize, name: &str) -> Option<usize> {
        self.objects[at].entries.as_ref().unwrap().get(name).copied()
    }
    fn is_directory(&self, at: usize) -> bool {
        self.objects[at].entries.is_some()
    }
    fn is_within(&self, mut at: usize, ancestor: usize) -> bool {
        while at != ancestor && at != TOP {
            at = self.objects[at].parent;
        }
        at == ancestor
    }
    fn names(&self, of: usize) -> usize {
        let lists = self.objects.iter().filter_map(|object| object.entries.as_ref());
        lists.flat_map(|entries| entries.values()).filter(|&&at| at == of).count()
    }
    fn directories(&self) -> Vec<usize> {
        let alive = |at: &usize| *at == TOP || self.names(*at) > 0;
        (0..self.objects.len()).filter(|&at| self.is_directory(at)).filter(alive).collect()
    }

    fn create(&mut self, at: usize, name: &'static str) -> Outcome {
        if self.get(at, name).is_some() { Err(libc::EEXIST) } else { Ok(()) }
    }
    fn unlink(&mut self, at: usize, name: &'static str) -> Outcome {
        let victim = self.get(at, name).ok_or(libc::ENOENT)?;
        if self.is_directory(victim) {
            return Err(libc::EISDIR);
        }
        self.entries(at).remove(name);
        Ok(())
    }
    fn remove_directory(&mut self, at: usize, name: &'static str) -> Outcome {
        let victim = self.get(at, name).ok_or(libc::ENOENT)?;
        let entries = self.objects[victim].entries.as_ref().ok_or(libc::ENOTDIR)?;
        if !entries.is_empty() {
            return Err(libc::ENOTEMPTY);
        }
        self.entries(at).remove(name);
        Ok(())
    }
    fn link(&mut self, of: usize, at: usize, name: &'static str) -> Outcome {
        if self.get(at, name).is_some() {
            return Err(libc::EEXIST);
        }
        if self.is_directory(of) {
            return Err(libc::EPERM);
        }
        self.entries(at).insert(name, of);
        Ok(())
    }
    fn rename(
        &mut self,
        from: (usize, &'static str),
        to: (usize, &'static str),
        mode: RenameMode,
    ) -> Outcome {
        let moved = self.get(from.0, from.1).ok_or(libc::ENOENT)?;
        let there = self.get(to.0, to.1);
        if mode == RenameMode::NoReplace && there.is_some() {
            return Err(libc::EEXIST);
        }
        if mode == RenameMode::Exchange && there.is_none() {
            return Err(libc::ENOENT);
        }
        if self.is_directory(moved) && self.is_within(to.0, moved) {
            return Err(libc::EINVAL);
        }
        // A directory above the source: an exchange would make a loop, and it is not empty.
        let above = |there| self.is_directory(there) && self.is_within(from.0, there);
        if there.is_some_and(above) {
            let exchange = mode == RenameMode::Exchange;
            return Err(if exchange { libc::EINVAL } else { libc::ENOTEMPTY });
        }
        if there == Some(moved) {
            return Ok(());
        }
        match (mode, there) {
            (RenameMode::Exchange, Some(there)) => {
                self.entries(from.0).insert(from.1, there);
                self.objects[there].parent = from.0;
            }
            (_, Some(there)) => {
                match (self.is_directory(moved), self.is_directory(there)) {
                    (true, false) => return Err(libc::ENOTDIR),
                    (false, true) => return Err(libc::EISDIR),
                    (true, true) if !self.entries(there).is_empty() => {
                        return Err(libc::ENOTEMPTY);
                    }
                    _ => {}
                }
                self.entries(from.0).remove(from.1);
            }
            (_, None) => {
                self.entries(from.0).remove(from.1);
            }
        }
        self.entries(to.0).insert(to.1, moved);
        self.objects[moved].parent = to.0;
        Ok(())
    }
}

struct Run {
    memory: MemoryBackend,
    model: Model,
    random: Random,
}

impl Run {
    fn new(seed: u64) -> Self {
        let top = Object { inode: ROOT, entries: Some(BTreeMap::new()), parent: TOP };
        let model = Model { objects: vec![top] };
        Self { memory: backend(1 << 22), model, random: Random::new(seed) }
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.random.below(NAMES.len() as u64) as usize]
    }
    fn place(&mut self) -> (usize, &'static str) {
        let directories = self.model.directories();
        (directories[self.random.below(directories.len() as u64) as usize], self.name())
    }

    fn step(&mut self) {
        let (at, text) = self.place();
        let inode = self.model.objects[at].inode;
        match self.random.below(10) {
            0..=2 => self.create(at, text),
            3 => {
                let real = errno(self.memory.drop_name(inode, text));
                assert_eq!(real, self.model.unlink(at, text));
            }
            4 => {
                let real = errno(self.memory.drop_directory(inode, text));
                assert_eq!(real, self.model.remove_directory(at, text));
            }
            5 => {
                let (from, old) = self.place();
                let Some(of) = self.model.get(from, old) else { return };
                let real = self.memory.add_link(self.model.objects[of].inode, inode, text);
                assert_eq!(errno(real.map(drop)), self.model.link(of, at, text));
            }
            _ => {
                let to = self.place();
                let modes = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange];
                let mode = modes[self.random.below(3) as usize];
                let real = self.memory.move_name(
                    (inode, text),
                    (self.model.objects[to.0].inode, to.1),
                    mode,
                );
                assert_eq!(errno(real), self.model.rename((at, text), to, mode), "{mode:?}");
            }
        }
    }

    fn create(&mut self, at: usize, text: &'static str) {
        let directory = self.random.below(2) == 0;
        let kind = if directory { NewKind::Directory } else { NewKind::Regular };
        let made = self.memory.make(self.model.objects[at].inode, text, kind);
        assert_eq!(errno(made.as_ref().map(drop).map_err(copy)), self.model.create(at, text));
        if let Ok(inode) = made {
            let entries = directory.then(BTreeMap::new);
            self.model.objects.push(Object { inode, entries, parent: at });
            let new = self.model.objects.len() - 1;
            self.model.entries(at).insert(text, new);
        }
    }

    /// All state: names, targets, link counts, and that objects without a name are freed.
    fn check(&mut self) {
        let objects = self.model.objects.clone();
        let mut alive = 0;
        for (at, object) in objects.iter().enumerate() {
            let names = self.model.names(at);
            if at != TOP && names == 0 {
                let gone = self.memory.attributes(FileRef::unopened(object.inode));
                assert!(matches!(gone, Err(Error::Stale)));
                continue;
            }
            alive += 1;
            let links = match &object.entries {
                None => names,
                Some(entries) => {
                    let listed: BTreeMap<_, _> =
                        self.memory.names_of(object.inode).into_iter().collect();
                    let expected: BTreeMap<_, _> = entries
                        .iter()
                        .map(|(name, &at)| (name.to_string(), objects[at].inode))
                        .collect();
                    assert_eq!(listed, expected);
                    2 + entries.values().filter(|&&at| self.model.is_directory(at)).count()
                }
            };
            assert_eq!(self.memory.stat(object.inode).links as usize, links);
        }
        assert_eq!(self.memory.used().1, alive);
        assert_eq!(self.memory.table.racy_count() as u64, alive);
    }

    /// Removes everything, leaves first.
    fn clear(&mut self) {
        while let Some((at, text)) = self.leaf() {
            let inode = self.model.objects[at].inode;
            if self.memory.drop_name(inode, text).is_ok() {
                self.model.unlink(at, text).unwrap();
            } else {
                self.memory.drop_directory(inode, text).unwrap();
                self.model.remove_directory(at, text).unwrap();
            }
        }
    }

    fn leaf(&self) -> Option<(usize, &'static str)> {
        let directories = self.model.directories();
        directories.into_iter().find_map(|at| {
            let entries = self.model.objects[at].entries.as_ref()?;
            let leaf = entries.iter().find(|&(_, &of)| {
                self.model.objects[of].entries.as_ref().is_none_or(BTreeMap::is_empty)
            })?;
            Some((at, *leaf.0))
        })
    }
}

fn errno(result: Result<()>) -> Outcome {
    result.map_err(|error| error.errno())
}

fn copy(error: &Error) -> Error {
    Error::from_errno(error.errno())
}

#[test]
fn a_tree_behaves_as_the_model() {
    for seed in 1..=40 {
        println!("seed {seed}");
        let mut run = Run::new(seed);
        let empty = run.memory.used();
        for step in 0..400 {
            run.step();
            if step % 20 == 0 {
                run.check();
            }
        }
        run.check();
        run.clear();
        assert_eq!(run.memory.used(), empty);
    }
}
