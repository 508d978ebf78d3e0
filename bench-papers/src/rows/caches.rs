//! The three caches of Peacock (1992) under that paper's three ways of locking, with ours in the place of the third.
//!
//! # Boundary
//! Each reports whether a key was cached, and inserts it if not.
//!
//! # Why
//! The subject is locking, so all caches find by the same hash and evict the least recently used element. The paper's
//! first way is one lock for hash queues and free list (figure 3). Its second is a lock for each queue and one for the
//! free list (figure 2). Its third is the free list split by queue (figure 4). A buffer leaves the free list while it
//! is in use and returns to its end; a name is moved to the end. Weakness: no cleaning of dirty elements, and a queue
//! is a vector.

use std::convert::Infallible;
use std::hint::black_box;
pub use uvfs_bench_workload::rows::Cache;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_concurrent::padded::Padded;
use uvfs_containers::set_associative::buffers::{BufferCache, BufferClasses};
use uvfs_containers::set_associative::translations::{Run, TranslationCache};

/// The classes of all locks here begin with this.
pub const CLASSES: &str = "seed-";

static QUEUE: LockClass = LockClass::new(10, "seed-queue", "one hash queue, or all with the list");
static LIST: LockClass = LockClass::new(20, "seed-list", "the free list");
static WAITS: LockClass = LockClass::new(30, "seed-waits", "sleepers for a block");

/// Elements of a queue on average: the paper's number.
const QUEUE_LENGTH: usize = 4;
const BLOCK_BYTES: usize = 4096;

/// The kind of the cached elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Disk buffers: held while in use.
    Buffers,
    /// The segmap: held while in use; ours copies the run out.
    Translations,
    /// The name cache: looked up, and moved to the end.
    Names,
}

/// How it is locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locking {
    /// One lock for queues and free list.
    OneLock,
    /// A lock for each queue, one for the free list.
    QueueLocks,
    /// One lock for each row; for names the seed's own form, with time stamps.
    Rows,
}

impl Kind {
    /// All, in the order of the tables.
    pub const ALL: [Kind; 3] = [Kind::Buffers, Kind::Translations, Kind::Names];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Buffers => "buffers",
            Kind::Translations => "translations",
            Kind::Names => "names",
        }
    }
}

impl Locking {
    /// All, in the order of the tables.
    pub const ALL: [Locking; 3] = [Locking::OneLock, Locking::QueueLocks, Locking::Rows];

    /// Name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Locking::OneLock => "one-lock",
            Locking::QueueLocks => "queue-locks",
            Locking::Rows => "set-associative",
        }
    }
}

/// An empty cache with room for `capacity` elements.
pub fn new(kind: Kind, locking: Locking, capacity: usize) -> Box<dyn Cache> {
    let is_held = kind != Kind::Names;
    match (locking, kind) {
        (Locking::OneLock, _) => Box::new(OneLock::new(capacity, is_held)),
        (Locking::QueueLocks, _) => Box::new(QueueLocks::new(capacity, is_held)),
        (Locking::Rows, Kind::Buffers) => Box::new(Buffers::new(capacity)),
        (Locking::Rows, Kind::Translations) => Box::new(Translations::new(capacity)),
        (Locking::Rows, Kind::Names) => Box::new(Stamped::new(capacity)),
    }
}

/// A hash without a seed, for the caches that are not ours.
fn spread(key: u64, among: usize) -> usize {
    let mixed = (key ^ key >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((u128::from(mixed) * among as u128) >> 64) as usize
}

const NONE: u32 = u32::MAX;

/// The free list: unused elements, the least recently used first.
#[derive(Debug)]
struct List {
    /// Before and after each element.
    links: Vec<[u32; 2]>,
    /// The key of each element, for the thread that takes it from the list.
    keys: Vec<Option<u64>>,
    listed: Vec<bool>,
    first: u32,
    last: u32,
}

impl List {
    /// All `elements` elements, none of which is anything.
    fn new(elements: usize) -> Self {
        let mut list = Self {
            links: vec![[NONE; 2]; elements],
            keys: vec![None; elements],
            listed: vec![false; elements],
            first: NONE,
            last: NONE,
        };
        (0..elements as u32).for_each(|element| list.append(element));
        list
    }

    fn append(&mut self, element: u32) {
        debug_assert!(!self.listed[element as usize]);
        self.links[element as usize] = [self.last, NONE];
        match self.last {
            NONE => self.first = element,
            last => self.links[last as usize][1] = element,
        }
        self.last = element;
        self.listed[element as usize] = true;
    }

    /// Takes `element` out. Whether it was in the list.
    fn remove(&mut self, element: u32) -> bool {
        if !std::mem::replace(&mut self.listed[element as usize], false) {
            return false;
        }
        let [before, after] = self.links[element as usize];
        match before {
            NONE => self.first = after,
            before => self.links[before as usize][1] = after,
        }
        match after {
            NONE => self.last = before,
            after => self.links[after as usize][0] = before,
        }
        true
    }

    /// Takes the first element, with its key.
    fn pop(&mut self) -> Option<(u32, Option<u64>)> {
        let first = self.first;
        (first != NONE).then(|| {
            self.remove(first);
            (first, self.keys[first as usize].take())
        })
    }
}

/// An element in its queue.
#[derive(Debug)]
struct Entry {
    key: u64,
    element: u32,
    holds: u32,
}

type Queue = Vec<Entry>;

fn find(queue: &mut Queue, key: u64) -> Option<&mut Entry> {
    queue.iter_mut().find(|entry| entry.key == key)
}

fn use_element(element: u32) {
    black_box(element);
}

/// Figure 3: one lock for everything.
struct OneLock {
    all: Mutex<(Vec<Queue>, List)>,
    is_held: bool,
}

impl OneLock {
    fn new(capacity: usize, is_held: bool) -> Self {
        let queues = (0..capacity.div_ceil(QUEUE_LENGTH)).map(|_| Queue::new()).collect();
        Self { all: Mutex::new(&QUEUE, (queues, List::new(capacity))), is_held }
    }
}

impl Cache for OneLock {
    fn access(&self, key: u64) -> bool {
        let mut all = self.all.lock();
        let (queues, list) = &mut *all;
        let queue = spread(key, queues.len());
        let (element, hit) = match find(&mut queues[queue], key) {
            Some(entry) => {
                entry.holds += 1;
                let element = entry.element;
                list.remove(element);
                (element, true)
            }
            None => {
                let Some((element, before)) = list.pop() else { return false };
                if let Some(before) = before {
                    let old = spread(before, queues.len());
                    queues[old].retain(|entry| entry.element != element);
                }
                list.keys[element as usize] = Some(key);
                queues[queue].push(Entry { key, element, holds: 1 });
                (element, false)
            }
        };
        if self.is_held {
            drop(all);
            use_element(element);
            all = self.all.lock();
        }
        let (queues, list) = &mut *all;
        if let Some(entry) = find(&mut queues[queue], key) {
            entry.holds -= 1;
            if entry.holds == 0 {
                list.append(element);
            }
        }
        hit
    }
}

/// Figure 2: a lock for each queue and one for the free list.
struct QueueLocks {
    queues: Vec<Padded<Mutex<Queue>>>,
    list: Padded<Mutex<List>>,
    is_held: bool,
}

impl QueueLocks {
    fn new(capacity: usize, is_held: bool) -> Self {
        let queue = |_| Padded(Mutex::new(&QUEUE, Queue::new()));
        Self {
            queues: (0..capacity.div_ceil(QUEUE_LENGTH)).map(queue).collect(),
            list: Padded(Mutex::new(&LIST, List::new(capacity))),
            is_held,
        }
    }

    /// Takes `key` if it is in its queue; moves it to the end at once if it is not to be held.
    fn hit(&self, queue: &mut Queue, key: u64) -> Option<u32> {
        let entry = find(queue, key)?;
        let mut list = self.list.lock();
        let was_listed = list.remove(entry.element);
        if self.is_held {
            entry.holds += 1;
        } else if was_listed {
            list.append(entry.element);
        }
        Some(entry.element)
    }

    /// The element used longest ago, out of its queue.
    fn victim(&self) -> Option<u32> {
        loop {
            let (element, before) = self.list.lock().pop()?;
            let Some(before) = before else { return Some(element) };
            let mut queue = self.queues[spread(before, self.queues.len())].lock();
            match queue.iter().position(|entry| entry.element == element) {
                // Found between the two locks, and held again.
                Some(at) if queue[at].holds > 0 => {}
                Some(at) => {
                    queue.swap_remove(at);
                    self.list.lock().remove(element);
                    return Some(element);
                }
                // Found, released, and taken by another thread.
                None => {}
            }
        }
    }
}

impl Cache for QueueLocks {
    fn access(&self, key: u64) -> bool {
        let at = spread(key, self.queues.len());
        let mut queue = self.queues[at].lock();
        let hit = self.hit(&mut queue, key);
        let element = match hit {
            Some(element) => element,
            None => {
                drop(queue);
                let Some(element) = self.victim() else { return false };
                queue = self.queues[at].lock();
                if let Some(other) = self.hit(&mut queue, key) {
                    self.list.lock().append(element);
                    other
                } else {
                    let holds = u32::from(self.is_held);
                    queue.push(Entry { key, element, holds });
                    let mut list = self.list.lock();
                    list.keys[element as usize] = Some(key);
                    if !self.is_held {
                        list.append(element);
                    }
                    element
                }
            }
        };
        drop(queue);
        if self.is_held {
            use_element(element);
            let mut queue = self.queues[at].lock();
            if let Some(entry) = find(&mut queue, key) {
                entry.holds -= 1;
                if entry.holds == 0 {
                    let mut list = self.list.lock();
                    list.keys[element as usize] = Some(key);
                    list.append(element);
                }
            }
        }
        hit.is_some()
    }
}

/// Our buffers.
struct Buffers(BufferCache);

impl Buffers {
    fn new(capacity: usize) -> Self {
        let classes = BufferClasses { rows: &QUEUE, free: &LIST, waits: &WAITS };
        // With the tables of so many blocks.
        let cache = BufferCache::new(classes, capacity * (BLOCK_BYTES + 128), BLOCK_BYTES);
        Self(cache.expect("address space for a benchmark"))
    }
}

impl Cache for Buffers {
    fn access(&self, key: u64) -> bool {
        let mut hit = true;
        let read = |bytes: &mut [u8]| {
            hit = false;
            bytes[..8].copy_from_slice(&key.to_le_bytes());
            Ok::<(), Infallible>(())
        };
        let Ok(buffer) = self.0.get(key, read);
        black_box(buffer[0]);
        drop(buffer);
        hit
    }
}

/// Our translations: of each object one window.
struct Translations(TranslationCache);

impl Translations {
    fn new(capacity: usize) -> Self {
        Self(TranslationCache::new(&QUEUE, capacity * 32))
    }
}

impl Cache for Translations {
    fn access(&self, key: u64) -> bool {
        let object = key as u32;
        let known = self.0.get(object, 0);
        if known.is_none() {
            self.0.insert(object, 0, Run { first: 0, length: 1, at: None });
        }
        black_box(known).is_some()
    }
}

/// Ways of the name cache's rows.
const STAMPED_WAYS: usize = 8;

/// One row of the seed's name cache: keys, and when each was last used; 0: free.
#[repr(align(64))]
struct StampedRow(Mutex<[(u64, u64); STAMPED_WAYS]>);

/// The seed's name cache: an array of rows, each with its lock, and a time stamp in each element.
struct Stamped(Vec<StampedRow>);

impl Stamped {
    fn new(capacity: usize) -> Self {
        let row = |_| StampedRow(Mutex::new(&QUEUE, [(0, 0); STAMPED_WAYS]));
        Self((0..capacity.div_ceil(STAMPED_WAYS)).map(row).collect())
    }

    /// A time that grows: nanoseconds since the first call.
    fn now() -> u64 {
        static BEGAN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        BEGAN.get_or_init(std::time::Instant::now).elapsed().as_nanos() as u64 + 1
    }
}

impl Cache for Stamped {
    fn access(&self, key: u64) -> bool {
        let now = Self::now();
        let mut row = self.0[spread(key, self.0.len())].0.lock();
        let found = row.iter_mut().find(|(one, stamp)| *one == key && *stamp > 0);
        if let Some((_, stamp)) = found {
            *stamp = now;
            return true;
        }
        if let Some(oldest) = row.iter_mut().min_by_key(|(_, stamp)| *stamp) {
            *oldest = (key, now);
        }
        false
    }
}
