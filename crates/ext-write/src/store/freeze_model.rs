//! Every short history of a block that handles change while commits and a step write its frozen contents (S2).
//!
//! The store is the product's, and so are its commits, its log and its background. The device stops each write until the model has
//! changed the block that is being written, so the change falls between the freeze and the end of the write. The model knows what
//! each transaction froze, and keeps all that it ever read.
//!
//! Each of these makes it fail: changing bytes without copying them; a commit without a reference to its buffers, so one is evicted before
//! its contents are in `newer`; an undo that leaves what it should take back.

use super::{Handle, LogPlace, Owner, Role, Store};
use crate::device::{WritableMemory, WriteDevice};
use crate::error::Result;
use std::io::{self, IoSlice};
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_ext::Device;

const SIZE: usize = 1024;
/// The block whose histories are tried, and one that every transaction has.
const BLOCK: u64 = 10;
const OTHER: u64 = 11;
const JOURNAL: u64 = 20;
const JOURNAL_BLOCKS: u32 = 400;
/// Contents that an undo takes back, and those of the other block.
const SCRATCH: u8 = 99;
const OTHERS: u8 = 200;

static REPLIES: LockClass = LockClass::new(406, "test-replies", "permission to write");

/// What is done to the block at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Nothing,
    Modify,
    Undo,
    Replace,
    Forget,
    Evict,
}

const ACTIONS: [Action; 6] =
    [Action::Nothing, Action::Modify, Action::Undo, Action::Replace, Action::Forget, Action::Evict];

/// Moments: before the first commit, in its log, in that of the second commit, and in a step.
const MOMENTS: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Event {
    /// The contents of the blocks that are written, of those that have one byte throughout and not zero.
    Log(Vec<u8>),
    Place(Vec<u8>),
    Done,
}

/// A device that asks before each write of the log and of places.
#[derive(Debug)]
struct Asking {
    memory: WritableMemory,
    events: Sender<Event>,
    replies: Mutex<Receiver<()>>,
}

fn contents(of: &[IoSlice<'_>]) -> Vec<u8> {
    let blocks = of.iter().flat_map(|slice| slice.chunks(SIZE));
    blocks.filter(|block| block[0] != 0 && is_of(block, block[0])).map(|block| block[0]).collect()
}

fn is_of(block: &[u8], byte: u8) -> bool {
    block.iter().all(|found| *found == byte)
}

impl Device for Asking {
    fn length(&self) -> u64 {
        self.memory.length()
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.memory.read_at(offset, into)
    }
}

impl WriteDevice for Asking {
    fn write_at(&self, offset: u64, from: &[IoSlice<'_>]) -> io::Result<()> {
        let block = offset / SIZE as u64;
        if block != JOURNAL {
            let before = contents(from);
            let event = if block > JOURNAL { Event::Log } else { Event::Place };
            self.events.send(event(before.clone())).map_err(io::Error::other)?;
            self.replies.lock().recv().map_err(io::Error::other)?;
            if contents(from) != before {
                return Err(io::Error::other("frozen bytes changed while they were written"));
            }
        }
        self.memory.write_at(offset, from)
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }
}

struct NoOwner;

impl Owner for NoOwner {
    fn closing(&self, _: &mut Handle<'_>) -> Result<()> {
        Ok(())
    }

    fn committed(&self, _: Vec<Range<u64>>) {}
}

/// The block as it has to be.
struct World {
    store: Arc<Store>,
    device: Arc<Asking>,
    events: Receiver<Event>,
    replies: Sender<()>,
    /// The block's contents; nothing while it is free.
    now: Option<u8>,
    /// The block's contents in the last transaction that is stable.
    committed: Option<u8>,
    /// The running transaction has it.
    is_listed: bool,
    /// The transaction that freed it.
    freed_in: u32,
    stable: u32,
    last: u8,
    kept: Vec<(Arc<[u8]>, u8)>,
}

impl World {
    fn new() -> Self {
        let mut bytes = vec![0; (JOURNAL as usize + JOURNAL_BLOCKS as usize) * SIZE];
        bytes[BLOCK as usize * SIZE..][..SIZE].fill(1);
        let (events, asked) = mpsc::channel();
        let (replies, answers) = mpsc::channel();
        let replies_of_device = Mutex::new(&REPLIES, answers);
        let memory = WritableMemory::new(bytes);
        let device = Arc::new(Asking { memory, events, replies: replies_of_device });
        let log = LogPlace::empty(JOURNAL, JOURNAL_BLOCKS, SIZE as u32);
        let store = Store::new(device.clone(), SIZE as u32, 64, Some(log)).unwrap();
        Self {
            store: Arc::new(store),
            device,
            events: asked,
            replies,
            now: Some(1),
            committed: Some(1),
            is_listed: false,
            freed_in: 0,
            stable: 0,
            last: 1,
            kept: Vec::new(),
        }
    }

    fn operate(&self, operation: impl FnOnce(&mut Handle<'_>)) {
        operation(&mut self.store.begin(4).unwrap().unwrap());
    }

    fn act(&mut self, action: Action) {
        self.last += 1;
        let value = self.last;
        match (action, self.now) {
            (Action::Modify, Some(_)) => {
                self.operate(|handle| {
                    handle.modify(BLOCK, Role::Inodes, |bytes| bytes.fill(value)).unwrap();
                });
                (self.now, self.is_listed) = (Some(value), true);
            }
            (Action::Undo, Some(_)) => {
                self.operate(|handle| {
                    let change = |bytes: &mut [u8]| bytes.fill(SCRATCH);
                    let (before, ()) = handle.modify_keeping(BLOCK, Role::Inodes, change).unwrap();
                    handle.restore(BLOCK, before).unwrap();
                });
                self.is_listed = true;
            }
            // A free block is used again when the transaction that freed it is stable.
            (Action::Replace, now) if now.is_some() || self.freed_in <= self.stable => {
                self.operate(|handle| handle.replace(BLOCK, Role::Inodes, vec![value; SIZE]));
                (self.now, self.is_listed) = (Some(value), true);
            }
            (Action::Forget, Some(_)) => {
                self.freed_in = self.store.running();
                self.operate(|handle| handle.forget(BLOCK..BLOCK + 1));
                (self.now, self.is_listed) = (None, false);
            }
            (Action::Evict, _) => self.store.shrink(u64::MAX),
            _ => {}
        }
        if let Some(now) = self.now {
            let read = self.store.read(BLOCK).unwrap();
            assert!(is_of(&read, now), "the newest contents are read");
            self.kept.push((read, now));
        }
        for (bytes, then) in &self.kept {
            assert!(is_of(bytes, *then), "a reader keeps what it read");
        }
    }

    /// Commits, and does `during` in the first write of its log.
    fn commit(&mut self, mut during: Option<Action>) {
        let number = self.store.running();
        let others = OTHERS + number as u8;
        self.operate(|handle| {
            handle.modify(OTHER, Role::Inodes, |bytes| bytes.fill(others)).unwrap();
        });
        let frozen: Vec<u8> =
            self.now.filter(|_| self.is_listed).into_iter().chain([others]).collect();
        (self.is_listed, self.committed) = (false, self.now);
        self.while_it_writes(
            |store| store.commit(number, &NoOwner),
            |world, event| {
                let Event::Log(found) = event else { panic!("{event:?} in a commit") };
                assert!(found.is_empty() || found == frozen, "{found:?} is not {frozen:?}");
                during.take().into_iter().for_each(|action| world.act(action));
            },
        );
        self.stable = number;
    }

    /// Brings all that is committed to its place, and does `during` in the first write.
    fn checkpoint(&mut self, mut during: Option<Action>) {
        let committed = self.committed;
        self.while_it_writes(Store::checkpoint, |world, event| {
            let Event::Place(found) = event else { panic!("{event:?} in a step") };
            let others = OTHERS + world.stable as u8;
            let expected = |byte: &u8| *byte == others || Some(*byte) == committed;
            assert!(found.iter().all(expected), "{found:?}, {committed:?} is committed");
            during.take().into_iter().for_each(|action| world.act(action));
        });
        let place = &self.device.memory.bytes()[BLOCK as usize * SIZE..][..SIZE];
        assert!(committed.is_none_or(|committed| is_of(place, committed)), "{committed:?}");
    }

    /// Does `work` in another thread, and `look` before each write of that.
    fn while_it_writes(
        &mut self,
        work: impl FnOnce(&Store) -> Result<()> + Send,
        mut look: impl FnMut(&mut Self, Event),
    ) {
        let (store, done) = (self.store.clone(), self.device.events.clone());
        thread::scope(|scope| {
            let working = scope.spawn(move || {
                let result = work(&store);
                done.send(Event::Done).unwrap();
                result
            });
            let replies = Replies(self.replies.clone());
            loop {
                match self.events.recv().unwrap() {
                    Event::Done => break,
                    event => look(self, event),
                }
                replies.0.send(()).unwrap();
            }
            working.join().unwrap().unwrap();
        });
    }
}

/// Permits all writes when the model fails: the failure would wait for the thread that writes.
struct Replies(Sender<()>);

impl Drop for Replies {
    fn drop(&mut self) {
        let rest = if thread::panicking() { 1000 } else { 0 };
        // The thread may have ended.
        (0..rest).for_each(|_| self.0.send(()).unwrap_or_default());
    }
}

/// Runs one history.
fn run(history: [Action; MOMENTS]) {
    let mut world = World::new();
    world.act(history[0]);
    world.commit(Some(history[1]));
    world.commit(Some(history[2]));
    world.checkpoint(Some(history[3]));
    world.commit(None);
    world.checkpoint(None);
}

#[test]
fn frozen_contents_stay_as_they_are_in_every_history() {
    for number in 0..ACTIONS.len().pow(MOMENTS as u32) {
        let mut rest = number;
        run(std::array::from_fn(|_| {
            let action = ACTIONS[rest % ACTIONS.len()];
            rest /= ACTIONS.len();
            action
        }));
    }
}
