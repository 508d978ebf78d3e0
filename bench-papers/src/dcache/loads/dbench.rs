//! A file server's clients, each in a tree of its own: the mix of the paper's dbench run.
//!
//! # Why
//! Table 1 counts, for each `d_move` of the paper's dbench run, 272 `d_lookup`s, 30 `dput`s that
//! took the lock, 7.5 `d_instantiate`s, 5 `d_delete`s, 2.6 `d_alloc`s, 1.5 `prune_dcache`s and 0.14
//! `select_parent`s. The mix below is close. Names are few and are reused, so a create usually
//! finds a negative dentry. The cache has room for [`ROOM`] of the names, and the others cause
//! `d_alloc`s and prunes. Paths have dbench's five components. The measured proportions are printed
//! beside the paper's.

use super::{Load, Numbers, Operation, Script};

const DIRECTORIES: [&str; 8] =
    ["ACCESS", "COREL", "EXCEL", "PARADOX", "PM", "PWRPNT", "SEED", "WORD"];
const NAMES: usize = 32;
/// Part of a client's names that the cache has room for.
const ROOM: f64 = 0.67;

/// The frequency of each kind: for 14 renames, so that one directory is made and removed.
const MIX: [(Step, usize); 9] = [
    (Step::StatDirectory, 210),
    (Step::OpenAndStat, 112),
    (Step::Stat, 112),
    (Step::Create, 70),
    (Step::Remove, 70),
    (Step::StatMissing, 42),
    (Step::Rename, 14),
    (Step::List, 14),
    (Step::Directory, 1),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    StatDirectory,
    OpenAndStat,
    Stat,
    Create,
    Remove,
    StatMissing,
    Rename,
    List,
    Directory,
}

/// The load for `clients` clients of `operations` operations each, or a few more.
pub(super) fn load(clients: usize, operations: usize) -> Load {
    let mut preparation = Script::default();
    for path in ["clients".to_owned()].into_iter().chain((0..clients).flat_map(|client| {
        let home = home(client);
        let above = home.rsplit_once('/').map_or("", |(above, _)| above).to_owned();
        let below = DIRECTORIES.map(|directory| format!("{home}/{directory}"));
        [above, home].into_iter().chain(below)
    })) {
        let path = preparation.path(path);
        preparation.operations.push(Operation::CreateDirectory(path));
    }
    let clients: Vec<Script> = (0..clients)
        .map(|client| Client::new(client, &mut preparation).script(operations))
        .collect();
    let names = clients.len() * DIRECTORIES.len() * NAMES;
    let directories = clients.len() * (DIRECTORIES.len() + 2) + 1;
    let entries_max = (names as f64 * ROOM) as usize + directories;
    Load { preparation, held: Vec::new(), clients, entries_max }
}

fn home(client: usize) -> String {
    format!("clients/client{client}/~dmtmp")
}

/// One client while its script is written: which of its files are there.
struct Client {
    client: usize,
    numbers: Numbers,
    script: Script,
    directories: Vec<u32>,
    /// Path and whether it is there, directory by directory.
    files: Vec<(u32, bool)>,
}

impl Client {
    fn new(client: usize, preparation: &mut Script) -> Self {
        let mut script = Script::default();
        let (mut directories, mut files) = (Vec::new(), Vec::new());
        for directory in DIRECTORIES {
            let directory = format!("{}/{directory}", home(client));
            directories.push(script.path(directory.clone()));
            for name in 0..NAMES {
                let name = format!("{directory}/FILE{name:04}.DOC");
                if files.len() % 2 == 0 {
                    let path = preparation.path(name.clone());
                    preparation.operations.push(Operation::Create(path));
                }
                files.push((script.path(name), files.len() % 2 == 0));
            }
        }
        Self { client, numbers: Numbers(client as u64 + 1), script, directories, files }
    }

    fn script(mut self, operations: usize) -> Script {
        let total = MIX.iter().map(|(_, times)| times).sum();
        while self.script.operations.len() < operations {
            let mut at = self.numbers.below(total);
            let step = MIX.iter().find(|(_, times)| {
                let here = at < *times;
                at = at.saturating_sub(*times);
                here
            });
            if let Some((step, _)) = step {
                self.step(*step);
            }
        }
        self.script
    }

    fn step(&mut self, step: Step) {
        let operation = match step {
            Step::StatDirectory => {
                let at = self.numbers.below(self.directories.len());
                Operation::Stat(self.directories[at])
            }
            Step::OpenAndStat => match self.file(true) {
                Some(at) => Operation::OpenAndStat(self.files[at].0),
                None => return,
            },
            Step::Stat => match self.file(true) {
                Some(at) => Operation::Stat(self.files[at].0),
                None => return,
            },
            Step::StatMissing => match self.file(false) {
                Some(at) => Operation::StatMissing(self.files[at].0),
                None => return,
            },
            Step::Create => match self.file(false) {
                Some(at) => Operation::Create(self.turned(at)),
                None => return,
            },
            Step::Remove => match self.file(true) {
                Some(at) => Operation::Remove(self.turned(at)),
                None => return,
            },
            Step::Rename => match self.pair() {
                Some((from, to)) => Operation::Rename(self.turned(from), self.turned(to)),
                None => return,
            },
            Step::List => {
                let at = self.numbers.below(self.directories.len());
                let names = &self.files[at * NAMES..][..NAMES];
                let there = names.iter().filter(|(_, there)| *there).count() as u32;
                Operation::List(self.directories[at], there)
            }
            Step::Directory => return self.directory(),
        };
        self.script.operations.push(operation);
    }

    /// A file that is there, or a name that is not.
    fn file(&mut self, there: bool) -> Option<usize> {
        let start = self.numbers.below(self.files.len());
        let all = (0..self.files.len()).map(|step| (start + step) % self.files.len());
        all.into_iter().find(|at| self.files[*at].1 == there)
    }

    /// A file, and a free name in its directory.
    fn pair(&mut self) -> Option<(usize, usize)> {
        let from = self.file(true)?;
        let first = from / NAMES * NAMES;
        let start = self.numbers.below(NAMES);
        let to = (0..NAMES).map(|step| first + (start + step) % NAMES);
        Some((from, to.into_iter().find(|at| !self.files[*at].1)?))
    }

    fn turned(&mut self, at: usize) -> u32 {
        let (path, there) = &mut self.files[at];
        *there = !*there;
        *path
    }

    /// A directory's life: made, filled, emptied, removed.
    fn directory(&mut self) {
        let directory = format!("{}/TEMP", home(self.client));
        let files = ["A", "B"].map(|name| self.script.path(format!("{directory}/{name}.TMP")));
        let directory = self.script.path(directory);
        let operations = &mut self.script.operations;
        operations.push(Operation::CreateDirectory(directory));
        operations.extend(files.map(Operation::Create));
        operations.extend(files.map(Operation::Remove));
        operations.push(Operation::RemoveDirectory(directory));
    }
}
