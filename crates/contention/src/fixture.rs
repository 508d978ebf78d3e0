//! Profiles for tests, built by hand.
//!
//! # Boundary
//! Tests only. Every call adds the same record to each seed.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Rules are tested on profiles with known answers, in a line a record. Weakness: no test checks
//! that such a profile could come from a run.

use uvfs_coherence::machine::Machine;
use uvfs_coherence::profile::{
    Class, Field, Frame, Heat, Lock, LockKind, Meta, Mode, Object, ObjectKind, Operation, Ordering,
    Place, Profile, Run, Sample, Site, Thread, Type,
};

/// See the module.
pub(crate) struct Builder {
    profile: Profile,
    next: u32,
}

impl Builder {
    /// A profile of `seeds` runs without any misses, of a million cycles each.
    pub(crate) fn new(cores: usize, nodes: usize, seeds: u64) -> Self {
        let meta = Meta {
            format: uvfs_coherence::profile::FORMAT,
            tool: "test".to_owned(),
            mode: Mode::Simulated,
            command: vec!["program".to_owned()],
            machine: Machine { cores, nodes, ..Machine::default() },
            computing: true,
            what_if: Vec::new(),
        };
        let run = |seed| Run {
            seed,
            cycles: 1_000_000,
            parallel_cycles: 1_000_000,
            accesses: 1_000_000,
            threads: cores as u64,
            status: Some(0),
            ..Run::default()
        };
        let profile = Profile {
            meta,
            runs: (0..seeds).map(run).collect(),
            modules: Vec::new(),
            types: Vec::new(),
            objects: Vec::new(),
            sites: Vec::new(),
            samples: Vec::new(),
            heat: Vec::new(),
            histograms: Vec::new(),
            locks: Vec::new(),
            threads: Vec::new(),
        };
        Self { profile, next: 0 }
    }

    fn id(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// A type with fields of (path, offset, bytes).
    pub(crate) fn kind(&mut self, name: &str, size: u64, fields: &[(&str, u64, u64)]) -> u32 {
        let id = self.id();
        let field = |(path, offset, bytes): &(&str, u64, u64)| Field {
            path: (*path).to_owned(),
            offset: *offset,
            bytes: *bytes,
            type_name: "u64".to_owned(),
        };
        let fields = fields.iter().map(field).collect();
        let (name, declared) = (name.to_owned(), String::new());
        self.profile.types.push(Type { id, name, size, align: 8, fields, declared });
        id
    }

    /// An object of the heap, allocated at a place of its own.
    pub(crate) fn object(
        &mut self,
        name: &str,
        address: u64,
        size: u64,
        type_id: Option<u32>,
        array: bool,
    ) -> u32 {
        let id = self.id();
        for run in &self.profile.runs {
            self.profile.objects.push(Object {
                seed: run.seed,
                id,
                kind: ObjectKind::Heap,
                address,
                size,
                ordinal: 0,
                frames: vec![Place { module: 0, offset: u64::from(id) }],
                thread: 0,
                name: name.to_owned(),
                type_id,
                array,
                allocated_in: String::new(),
            });
        }
        id
    }

    /// Changes an object in every run.
    pub(crate) fn alter(&mut self, id: u32, change: impl Fn(&mut Object)) {
        self.profile.objects.iter_mut().filter(|object| object.id == id).for_each(change);
    }

    /// An instruction.
    pub(crate) fn site(&mut self, function: &str, operation: Operation, bytes: u32) -> u32 {
        let id = self.id();
        let atomic = !matches!(operation, Operation::Load | Operation::Store);
        for run in &self.profile.runs {
            self.profile.sites.push(Site {
                seed: run.seed,
                id,
                place: Place { module: 0, offset: u64::from(id) },
                callers: Vec::new(),
                operation,
                bytes,
                ordering: if atomic { Ordering::Acquire } else { Ordering::Plain },
                frames: vec![Frame { function: function.to_owned(), source: String::new() }],
                function: function.to_owned(),
            });
        }
        id
    }

    /// A hundred transfers of a hundred cycles from another core of the node, none of them false sharing.
    pub(crate) fn miss(&mut self, object: u32, offset: u64, site: u32) -> Missing<'_> {
        let first = self.profile.samples.len();
        for run in &self.profile.runs {
            self.profile.samples.push(Sample {
                seed: run.seed,
                object,
                offset,
                site,
                class: Class::LocalTransfer,
                count: 100,
                false_shared: 0,
                service: 10_000,
                queue: 0,
                cores: vec![0b11],
                writer: None,
            });
        }
        Missing { samples: &mut self.profile.samples[first..] }
    }

    /// Reads, writes and updates of eight bytes.
    pub(crate) fn heat(&mut self, object: u32, offset: u64, counts: (u64, u64, u64), cores: u64) {
        let (reads, writes, updates) = counts;
        for run in &self.profile.runs {
            let (seed, cores) = (run.seed, vec![cores]);
            self.profile.heat.push(Heat {
                seed,
                object,
                offset,
                bytes: 8,
                reads,
                writes,
                updates,
                cores,
            });
        }
    }

    /// A lock, taken a thousand times for a hundred cycles without a wait.
    pub(crate) fn lock(
        &mut self,
        object: u32,
        offset: u64,
        kind: LockKind,
        change: impl Fn(&mut Lock),
    ) {
        for run in &self.profile.runs {
            let mut lock = Lock {
                seed: run.seed,
                object,
                offset,
                kind,
                acquisitions: 1000,
                contended: 0,
                bounces: 0,
                wait_total: 0,
                wait_min: 0,
                wait_max: 0,
                hold_total: 100_000,
                hold_min: 100,
                hold_max: 100,
                waiters: Vec::new(),
            };
            change(&mut lock);
            self.profile.locks.push(lock);
        }
    }

    /// A thread on a core.
    pub(crate) fn thread(&mut self, id: u32, core: u32) {
        for run in &self.profile.runs {
            self.profile.threads.push(Thread {
                seed: run.seed,
                id,
                core,
                accesses: 1000,
                misses: 100,
                stalled: 500_000,
                blocked: 0,
                cycles: 1_000_000,
                began: 0,
            });
        }
    }

    /// Changes each run.
    pub(crate) fn runs(&mut self, change: impl Fn(&mut Run)) {
        self.profile.runs.iter_mut().for_each(change);
    }

    /// Changes the head.
    pub(crate) fn meta(&mut self, change: impl Fn(&mut Meta)) {
        change(&mut self.profile.meta);
    }

    /// The profile; its runs' misses and transfers are the sums of its samples.
    pub(crate) fn done(self) -> Profile {
        let mut profile = self.profile;
        for run in &mut profile.runs {
            for sample in profile.samples.iter().filter(|sample| sample.seed == run.seed) {
                run.misses += sample.count;
                if sample.class.is_transfer() {
                    run.transfers += sample.count;
                }
                if sample.class == Class::RemoteTransfer {
                    run.remote_transfers += sample.count;
                }
            }
        }
        profile
    }
}

/// The samples that [`Builder::miss`] added, one a seed.
pub(crate) struct Missing<'b> {
    samples: &'b mut [Sample],
}

impl Missing<'_> {
    /// How many, seed by seed; the last one holds for all that follow. A hundred cycles each.
    pub(crate) fn counts(self, counts: &[u64]) -> Self {
        for (index, sample) in self.samples.iter_mut().enumerate() {
            sample.count = counts[index.min(counts.len() - 1)];
            sample.service = sample.count * 100;
        }
        self
    }

    /// Which part is false sharing.
    pub(crate) fn falsely(self, share: f64) -> Self {
        for sample in self.samples.iter_mut() {
            sample.false_shared = (sample.count as f64 * share) as u64;
        }
        self
    }

    /// Cycles of each.
    pub(crate) fn costs(self, cycles: u64) -> Self {
        for sample in self.samples.iter_mut() {
            sample.service = sample.count * cycles;
        }
        self
    }

    /// How they were answered.
    pub(crate) fn class(self, class: Class) -> Self {
        for sample in self.samples.iter_mut() {
            sample.class = class;
        }
        self
    }

    /// By which cores.
    pub(crate) fn cores(self, cores: u64) -> Self {
        for sample in self.samples.iter_mut() {
            sample.cores = vec![cores];
        }
        self
    }
}
