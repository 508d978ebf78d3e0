//! The two loads of the paper, as scripts that are fixed before the clock starts.
//!
//! # Boundary
//! The operations of each client, in order, and their required results. Knows no variant. Data is
//! neither written nor read: the subject is names.
//!
//! # Why
//! The same seed makes the same script, so every variant does the same work, and every operation
//! has one right answer, which is checked. Formatting and random numbers happen before the clock
//! starts.

pub(super) mod dbench;
pub(super) mod httperf;

use super::paths::System;

/// A path from the root.
pub(super) type Path = Box<[u8]>;

/// One operation of a client.
#[derive(Debug, Clone, Copy)]
pub(super) enum Operation {
    /// Open and close.
    Open(u32),
    /// Open, ask for attributes by path, close: dbench's habit.
    OpenAndStat(u32),
    /// Attributes of an existing file.
    Stat(u32),
    /// Attributes of a missing file.
    StatMissing(u32),
    /// Open a new file and close it.
    Create(u32),
    /// Remove a file.
    Remove(u32),
    /// Rename the first to the second.
    Rename(u32, u32),
    /// Count the names of a directory.
    List(u32, u32),
    /// Make a directory.
    CreateDirectory(u32),
    /// Remove a directory.
    RemoveDirectory(u32),
}

/// The operations of one client.
#[derive(Debug, Default)]
pub(super) struct Script {
    pub(super) paths: Vec<Path>,
    pub(super) operations: Vec<Operation>,
}

impl Script {
    /// Notes a path; its number.
    pub(super) fn path(&mut self, path: String) -> u32 {
        self.paths.push(path.into_bytes().into());
        self.paths.len() as u32 - 1
    }

    /// Does everything; how many operations came out otherwise than they must.
    pub(super) fn run(&self, system: &dyn System) -> u64 {
        let right = |operation: &&Operation| !self.perform(system, operation);
        self.operations.iter().filter(right).count() as u64
    }

    fn perform(&self, system: &dyn System, operation: &Operation) -> bool {
        let path = |number: u32| &*self.paths[number as usize];
        match *operation {
            Operation::Open(file) => close(system, system.open(path(file))),
            Operation::OpenAndStat(file) => {
                let open = system.open(path(file));
                system.stat(path(file)) & close(system, open)
            }
            Operation::Stat(file) => system.stat(path(file)),
            Operation::StatMissing(file) => !system.stat(path(file)),
            Operation::Create(file) => close(system, system.create(path(file))),
            Operation::Remove(file) => system.remove(path(file)),
            Operation::Rename(from, to) => system.rename(path(from), path(to)),
            Operation::List(directory, count) => {
                system.list(path(directory)) == Some(count as usize)
            }
            Operation::CreateDirectory(directory) => system.create_directory(path(directory)),
            Operation::RemoveDirectory(directory) => system.remove_directory(path(directory)),
        }
    }
}

fn close(system: &dyn System, open: Option<super::paths::Open>) -> bool {
    let opened = open.is_some();
    open.into_iter().for_each(|open| system.close(open));
    opened
}

/// A load for some number of clients.
#[derive(Debug)]
pub(super) struct Load {
    /// Makes the files that are there at the start.
    pub(super) preparation: Script,
    /// Files that stay open all the while.
    pub(super) held: Vec<Path>,
    /// One for each client.
    pub(super) clients: Vec<Script>,
    /// Room that the cache gets, in dentries.
    pub(super) entries_max: usize,
}

/// Which load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file server's.
    Dbench,
    /// A web server's.
    Httperf,
}

impl Kind {
    /// Both.
    pub(super) const ALL: [Kind; 2] = [Kind::Dbench, Kind::Httperf];

    /// Name that the paper uses.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Dbench => "dbench",
            Kind::Httperf => "httperf",
        }
    }

    /// The load for `clients` clients of about `operations` operations each.
    pub(super) fn load(self, clients: usize, operations: usize) -> Load {
        match self {
            Kind::Dbench => dbench::load(clients, operations),
            Kind::Httperf => httperf::load(clients, operations),
        }
    }
}

/// splitmix64: the same numbers for the same seed.
#[derive(Debug, Clone)]
pub(super) struct Numbers(pub(super) u64);

impl Numbers {
    fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.word() % end as u64) as usize
    }

    /// A number from 0 to 1.
    pub(super) fn share(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }
}
