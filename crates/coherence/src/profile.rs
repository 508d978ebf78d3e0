//! The profile: the costs of cache lines in one or more runs of a program, as JSON lines.
//!
//! # Boundary
//! Types and their file; no analysis. One record a line, each with a `record` tag; the first is
//! [`Meta`]. The runtime writes it without names, then the driver again with names, so that a reader of a
//! profile needs neither the program nor its debug information.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Addresses are kept as (object, offset) and (module, offset): they mean the same in every address
//! space, and two profiles can be compared line by line. Every sample carries the seed of its run, so
//! that a mean has its spread. Weakness: a few thousand lines a seed.

use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The number of the format that this version writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// Where the counts come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Every access was charged by the model, in virtual time.
    Simulated,
    /// Real threads, real interleaving, the model's coherence states: no virtual time.
    Recorded,
    /// Hardware samples of another tool.
    Imported,
}

/// The program that ran, and the machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// [`FORMAT`].
    pub format: u32,
    /// `uvfs` and its version.
    pub tool: String,
    /// Where the counts come from.
    pub mode: Mode,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The machine, each of its parameters measured or assumed.
    pub machine: Machine,
    /// Whether instructions between accesses were charged one by one; otherwise each access was charged a flat cost.
    #[serde(default)]
    pub computing: bool,
    /// The layout changes that were tried in this run, as the user wrote them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub what_if: Vec<String>,
}

/// One run: one seed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Seed of the jitter, and of the program's own random numbers.
    pub seed: u64,
    /// Clock of the last thread when the program ended, in cycles.
    pub cycles: u64,
    /// Cycles from the creation of the first thread to the end of the last; all of them without threads.
    pub parallel_cycles: u64,
    /// Memory accesses, instrumented ones.
    pub accesses: u64,
    /// Those that left the core's own cache.
    pub misses: u64,
    /// Misses that another core's cache answered.
    pub transfers: u64,
    /// Transfers from another node.
    pub remote_transfers: u64,
    /// The program's own count, from `uvfs_contention_work`.
    #[serde(default)]
    pub work: u64,
    /// Threads that ran.
    pub threads: u64,
    /// Switches from one virtual core to another.
    pub switches: u64,
    /// The program's exit status: `None` while it is not known.
    #[serde(default)]
    pub status: Option<i32>,
    /// Wall-clock nanoseconds of the host.
    pub host_nanoseconds: u64,
}

/// One mapped file with code or data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Number of the module in other records.
    pub id: u32,
    /// File of the module.
    pub path: String,
    /// Build id from the file's note, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
}

/// A place in a module: the address minus the module's load bias, as its symbol table says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// [`Module::id`].
    pub module: u32,
    /// The address that the module's own tables use.
    pub offset: u64,
}

/// Where an object lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectKind {
    /// From the allocator.
    Heap,
    /// A variable of a module.
    Global,
    /// A thread's stack.
    Stack,
    /// A thread's own variables.
    ThreadLocal,
    /// Mapped memory, or memory that an importer could not place.
    Other,
}

/// Memory whose lines are reported together: one allocation, one variable.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Object {
    /// Seed of the run in which the object was seen.
    pub seed: u64,
    /// Number of the object in samples of the same seed.
    pub id: u32,
    /// Where it lies.
    pub kind: ObjectKind,
    /// Address in that run. Shown, never compared; its remainder by the line size places fields in lines.
    pub address: u64,
    /// Bytes; zero where it is not known.
    pub size: u64,
    /// Which of the objects of the same site it is, in order of allocation.
    #[serde(default)]
    pub ordinal: u64,
    /// Return addresses at the allocation, the innermost first; of a global, the place of the variable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Place>,
    /// Thread that allocated it.
    #[serde(default)]
    pub thread: u32,
    /// The name of its kind: `Dentry`, `ArcInner<Super>`, `[Counter]`, a global's name, `heap(48)`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// [`Type::id`] of it, or of its elements when [`Object::array`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_id: Option<u32>,
    /// Whether it is a row of elements.
    #[serde(default)]
    pub array: bool,
    /// The function that allocated it, past the allocator's own frames.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub allocated_in: String,
}

/// One field of a type, flattened: nested structs are `outer.inner`, arrays `name[i]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Field {
    /// `root.lock`.
    pub path: String,
    /// From the start of the type, in bytes.
    pub offset: u64,
    /// Bytes.
    pub bytes: u64,
    /// Type of the field.
    #[serde(rename = "type")]
    pub type_name: String,
}

/// The layout of a type that a reported object has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Type {
    /// Number of the type in objects.
    pub id: u32,
    /// With its path: `uvfs_vfs::inode::Inode`.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Alignment of the type, in bytes, where the debug information says it; zero if not.
    #[serde(default)]
    pub align: u64,
    /// Leaves, by offset. Bytes that no field covers are padding.
    pub fields: Vec<Field>,
    /// File and line of the definition, where known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub declared: String,
}

/// The kind of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// Plain load.
    Load,
    /// Plain store.
    Store,
    /// Atomic load.
    AtomicLoad,
    /// Atomic store.
    AtomicStore,
    /// Atomic read-modify-write: `fetch_add` and its kin.
    FetchAdd,
    /// Atomic bit operation: `fetch_or`, `fetch_and`, `fetch_xor`, `fetch_nand`.
    FetchBits,
    /// Atomic exchange.
    Exchange,
    /// Compare and exchange.
    CompareExchange,
}

/// Ordering of an atomic instruction; `Plain` of all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ordering {
    /// Not atomic.
    Plain,
    /// `relaxed`.
    Relaxed,
    /// `acquire`, `consume`.
    Acquire,
    /// `release`.
    Release,
    /// `acq_rel`.
    AcquireRelease,
    /// `seq_cst`.
    SequentiallyConsistent,
}

/// One function of a chain of inlined calls.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Demangled, with its path, without hash.
    pub function: String,
    /// `file:line`, empty where unknown.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source: String,
}

/// An instruction that accessed memory, and the callers of the function around it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// Seed of the run in which the site was seen.
    pub seed: u64,
    /// Number of the site in samples of the same seed.
    pub id: u32,
    /// The return address of the instrumentation call: the instruction is just before it.
    pub place: Place,
    /// Return addresses of the functions around it, the innermost first; a few, for lock callers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callers: Vec<Place>,
    /// Kind of the access.
    pub operation: Operation,
    /// Bytes that one execution touches.
    pub bytes: u32,
    /// Ordering of an atomic access.
    pub ordering: Ordering,
    /// The functions at this place, the innermost inlined one first, then the callers'.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frames: Vec<Frame>,
    /// Name in tables: `lookup`, or `[spinlock] @ dget` inside a lock's own code.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub function: String,
}

/// How an access that left the core's own cache was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Class {
    /// A cache of a core of the same node.
    LocalTransfer,
    /// The node's last-level cache; no other core has the line.
    LastLevel,
    /// Memory of the node.
    LocalMemory,
    /// Memory of another node.
    RemoteMemory,
    /// A cache of a core of another node.
    RemoteTransfer,
}

impl Class {
    /// All of them, from near to far.
    pub const ALL: [Self; 5] = [
        Self::LocalTransfer,
        Self::LastLevel,
        Self::LocalMemory,
        Self::RemoteMemory,
        Self::RemoteTransfer,
    ];

    /// Whether another core's cache answered.
    pub fn is_transfer(self) -> bool {
        matches!(self, Self::LocalTransfer | Self::RemoteTransfer)
    }

    /// Whether another node answered.
    pub fn is_remote(self) -> bool {
        matches!(self, Self::RemoteMemory | Self::RemoteTransfer)
    }
}

/// The misses of one site on one place of one object, of one class.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Seed of the run.
    pub seed: u64,
    /// [`Object::id`].
    pub object: u32,
    /// From the object's start, in bytes.
    pub offset: u64,
    /// [`Site::id`].
    pub site: u32,
    /// How they were answered.
    pub class: Class,
    /// How many.
    pub count: u64,
    /// Misses that met no byte that another core had written since this one lost the line.
    pub false_shared: u64,
    /// Cycles to be served, all together.
    pub service: u64,
    /// Cycles to wait for the line before that, all together.
    pub queue: u64,
    /// Cores that missed, bit by bit, core 0 first, 64 a word.
    pub cores: Vec<u64>,
    /// The site whose write took the line away most often, with the number of times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writer: Option<(u32, u64)>,
}

/// Most places of one object and seed of which a profile has the heat: the most visited.
pub const HEAT_PLACES_MAX: usize = 2048;

/// All accesses to one place of a contended line, hits included. See [`HEAT_PLACES_MAX`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Heat {
    /// Seed of the run.
    pub seed: u64,
    /// [`Object::id`].
    pub object: u32,
    /// From the object's start, in bytes.
    pub offset: u64,
    /// Bytes of an access.
    pub bytes: u32,
    /// Loads, since the line became contended.
    pub reads: u64,
    /// Stores.
    pub writes: u64,
    /// Atomic read-modify-writes.
    pub updates: u64,
    /// Cores, encoded like [`Sample::cores`].
    pub cores: Vec<u64>,
}

/// Latencies of misses of one class: `buckets[i]` counts those of `[i * width, (i + 1) * width)` cycles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Histogram {
    /// Seed of the run.
    pub seed: u64,
    /// How they were answered.
    pub class: Class,
    /// Whether the wait for the line is in it.
    pub with_queue: bool,
    /// Cycles a bucket.
    pub width: u64,
    /// By bucket; absent ones are zero.
    #[serde(deserialize_with = "crate::file::buckets")]
    pub buckets: BTreeMap<u64, u64>,
}

/// How a lock was recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LockKind {
    /// `pthread_mutex_t`.
    Mutex,
    /// `pthread_rwlock_t`, held shared.
    Shared,
    /// `pthread_rwlock_t`, held alone.
    Exclusive,
    /// `pthread_spinlock_t`.
    Spin,
    /// A word that one thread moves with acquire and moves back with release.
    Word,
    /// A word on which threads spun until another changed it.
    Awaited,
    /// `pthread_cond_t`: a wait for the work of another thread.
    Condition,
    /// `pthread_barrier_t`: a wait for the last to come.
    Barrier,
    /// `sem_t`: a wait for a post by another thread.
    Semaphore,
}

impl LockKind {
    /// Whether a thread holds it and the others wait for that thread; the rest are signals.
    pub fn is_held(self) -> bool {
        matches!(self, Self::Mutex | Self::Shared | Self::Exclusive | Self::Spin | Self::Word)
    }

    /// Whether a waiter may only lack work: an idle pool waits so for all of its time.
    pub fn is_for_work(self) -> bool {
        matches!(self, Self::Condition | Self::Semaphore)
    }
}

/// One lock in virtual time; times in cycles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Lock {
    /// Seed of the run.
    pub seed: u64,
    /// [`Object::id`].
    pub object: u32,
    /// From the object's start, in bytes.
    pub offset: u64,
    /// How it was recognised.
    pub kind: LockKind,
    /// Times it was taken.
    pub acquisitions: u64,
    /// Acquisitions that waited.
    pub contended: u64,
    /// Acquisitions by another core than the one before.
    pub bounces: u64,
    /// Waits: all, the shortest and the longest of those that waited.
    pub wait_total: u64,
    /// See [`Lock::wait_total`].
    pub wait_min: u64,
    /// See [`Lock::wait_total`].
    pub wait_max: u64,
    /// Holds: all, the shortest and the longest.
    pub hold_total: u64,
    /// See [`Lock::hold_total`].
    pub hold_min: u64,
    /// See [`Lock::hold_total`].
    pub hold_max: u64,
    /// Sites that waited, the most frequent first, at most four, with how often.
    pub waiters: Vec<(u32, u64)>,
}

/// One thread of one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    /// Seed of the run.
    pub seed: u64,
    /// In order of creation; zero is the first.
    pub id: u32,
    /// The virtual core it began on.
    pub core: u32,
    /// Accesses.
    pub accesses: u64,
    /// Misses.
    pub misses: u64,
    /// Cycles that it stood still for misses.
    pub stalled: u64,
    /// Cycles that it was blocked in the kernel's place.
    pub blocked: u64,
    /// The thread's clock at its end.
    pub cycles: u64,
    /// The thread's clock when it was created: its creator's.
    #[serde(default)]
    pub began: u64,
}

/// One line of a profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "kebab-case")]
#[allow(missing_docs)] // Each is named as its content.
pub enum Record {
    Meta(Box<Meta>),
    Run(Run),
    Module(Module),
    Type(Type),
    Object(Object),
    Site(Site),
    Sample(Sample),
    Heat(Heat),
    Histogram(Histogram),
    Lock(Lock),
    Thread(Thread),
}

/// A profile in memory. Its vectors are in the order of the file.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)] // Each is named as its content.
pub struct Profile {
    pub meta: Meta,
    pub runs: Vec<Run>,
    pub modules: Vec<Module>,
    pub types: Vec<Type>,
    pub objects: Vec<Object>,
    pub sites: Vec<Site>,
    pub samples: Vec<Sample>,
    pub heat: Vec<Heat>,
    pub histograms: Vec<Histogram>,
    pub locks: Vec<Lock>,
    pub threads: Vec<Thread>,
}
