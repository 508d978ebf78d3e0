//! A memory store that gets runs, and completes them out of order.
//!
//! # Boundary
//! A separate thread performs each run, after a random pause; everything else is the memory store's. The first run
//! waits for a second one, so that runs overlap also where threads are slow. Runs may be refused, or never answered.
//!
//! # Why
//! A small store with a queue. Everything on which the core must not rely differs each time: the order of answers, the
//! answering thread, and whether an answer comes at all. Weakness: the order is not replayed.

use crate::Numbers;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_vfs::{
    Attributes, Backend, Caller, Capabilities, Creation, Data, Entry, Error, FileRef, InodeId,
    Inodes, Names, PageCaching, ReadRun, Result, SetAttributes, WriteRun,
};

static QUEUE: LockClass = LockClass::new(283, "queue", "runs of a store under test");

/// How long the first run waits for a second one at most.
const SECOND_WITHIN: Duration = Duration::from_secs(20);

/// The result of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Answer {
    /// They are done.
    #[default]
    Done,
    /// Writes are refused.
    Refused,
    /// There is no answer.
    Never,
}

/// See the module. Clones are one store.
#[derive(Debug, Clone)]
pub struct Queued {
    inner: Arc<MemoryBackend>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    numbers: Numbers,
    answer: Answer,
    under_way: usize,
    most: usize,
    /// Whether a run has come.
    has_begun: bool,
    /// Runs without an answer.
    kept: Vec<WriteRun>,
}

impl Queued {
    /// An empty one.
    pub fn new(seed: u64) -> Self {
        let memory = MemoryBackend::new(MemoryConfig { root_mode: 0o777, ..Default::default() });
        let numbers = Numbers(seed);
        let state = State {
            numbers,
            answer: Answer::Done,
            under_way: 0,
            most: 0,
            has_begun: false,
            kept: Vec::new(),
        };
        Self {
            inner: Arc::new(memory.expect("the default limits are valid")),
            state: Arc::new(Mutex::new(&QUEUE, state)),
        }
    }

    /// From now on this becomes of runs.
    pub fn answer(&self, answer: Answer) {
        self.state.lock().answer = answer;
    }

    /// Most runs that were under way at once.
    pub fn most(&self) -> usize {
        self.state.lock().most
    }

    /// The store below, which is asked directly.
    pub fn inner(&self) -> &MemoryBackend {
        &self.inner
    }

    /// Does `work` on a thread, later.
    fn later(&self, work: impl FnOnce(&MemoryBackend) + Send + 'static) {
        let mut state = self.state.lock();
        state.under_way += 1;
        state.most = state.most.max(state.under_way);
        let pause = Duration::from_micros(state.numbers.below(1500));
        let is_first = !std::mem::replace(&mut state.has_begun, true);
        drop(state);
        let store = self.clone();
        std::thread::spawn(move || {
            std::thread::sleep(pause);
            if is_first {
                let since = Instant::now();
                while store.most() < 2 && since.elapsed() < SECOND_WITHIN {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            store.state.lock().under_way -= 1;
            work(&store.inner);
        });
    }
}

impl Backend for Queued {
    fn capabilities(&self) -> Capabilities {
        let memory = self.inner.capabilities();
        Capabilities { store: "queued", caching: PageCaching::Core, queue_depth: 8, ..memory }
    }

    fn root(&self) -> Result<Entry> {
        self.inner.root()
    }

    fn names(&self) -> &dyn Names {
        self.inner.names()
    }

    fn creation(&self) -> Option<&dyn Creation> {
        self.inner.creation()
    }

    fn inodes(&self) -> &dyn Inodes {
        self
    }

    fn data(&self) -> &dyn Data {
        self
    }
}

impl Inodes for Queued {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        self.inner.attributes(file)
    }

    fn forget(&self, inode: InodeId, references: u64) {
        self.inner.forget(inode, references);
    }

    fn set_attributes(
        &self,
        caller: &Caller,
        file: FileRef,
        set: &SetAttributes,
    ) -> Result<Attributes> {
        self.inner.set_attributes(caller, file, set)
    }
}

impl Data for Queued {
    fn read(&self, file: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        self.inner.read(file, offset, into)
    }

    fn read_run(&self, mut run: ReadRun) {
        self.later(move |inner| {
            let (file, offset) = (run.file(), run.offset());
            let result = inner.read_with_version(file, offset, run.buffer());
            run.complete(result);
        });
    }

    fn write(&self, caller: &Caller, file: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        self.inner.write(caller, file, offset, data)
    }

    fn write_run(&self, caller: &Caller, run: WriteRun) {
        let answer = self.state.lock().answer;
        let caller = caller.clone();
        match answer {
            Answer::Done => self.later(move |inner| {
                let result = inner.write(&caller, run.file(), run.offset(), run.data());
                run.complete(result);
            }),
            Answer::Refused => self.later(move |_| run.complete(Err(Error::from_errno(libc::EIO)))),
            Answer::Never => self.state.lock().kept.push(run),
        }
    }
}
