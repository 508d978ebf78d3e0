//! State that is newer here than in the store's answers: files in work, and changes made here since a question was asked.
//!
//! # Boundary
//! Decides which node an answer of the store leads to. Sends no request.
//!
//! # Rules
//! H1. A file that is made here, open for writing, or being changed is *in work*. It is found under its key, whatever the store answers.
//! H2. A [`Question`] notes how many changes this mount had made when it was asked. A later change of the same key wins over the answer:
//!     the store may have answered before it carried the change out.
//! H3. A file stays in work from before its change is sent until the change is recorded and its node has the new version. So an
//!     answer meets the file in work, or finds the record.
//! H4. The node is referred to under the lock of this table. So no change comes between the decision and the reference.
//! H5. A record is kept while an older question is open. Kept pages of listings are such questions; they are dropped when
//!     there are more than [`CHANGES_MAX`] records.
//!
//! # Concurrency
//! One lock, taken for each entry of an answer and for each change. No request is sent under it.
//!
//! # Why
//! The core discards an answer about a name that a change has overtaken. A put changes no name, so a listing that the store had made before
//! the put brought the old version back: the file was then read as stale, and every further put was refused. Weakness: an answer that is
//! newer than the change, but was asked for before it, is shown as the change left it until the next listing.

use super::table::{Node, Table, What};
use crate::lock_order::OBJECT_IN_WORK;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use uvfs_concurrent::lock::Mutex;
use uvfs_vfs::InodeId;

/// Records at which kept pages of listings are dropped (H5).
const CHANGES_MAX: usize = 4096;
/// A record without its key.
const RECORD_BYTES: usize = size_of::<(Box<str>, Change)>() + size_of::<(u64, Box<str>)>() + 32;

/// See the module.
#[derive(Debug)]
pub(super) struct Here(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    in_work: BTreeMap<String, InodeId>,
    /// Changes so far.
    clock: u64,
    /// Open questions by the clock when they were asked.
    asked: BTreeMap<u64, usize>,
    changes: HashMap<Box<str>, Change>,
    /// The changes in their order, also those that a later one of the same key has replaced.
    order: VecDeque<(u64, Box<str>)>,
    /// Bytes of the keys in `order`.
    key_bytes: usize,
}

/// The state of a key after a change made here.
#[derive(Debug)]
struct Change {
    stamp: u64,
    now: Option<What>,
}

/// A question that was sent to the store, or whose answer is kept.
#[derive(Debug)]
pub(super) struct Question {
    state: Arc<Mutex<State>>,
    asked: u64,
}

impl Drop for Question {
    fn drop(&mut self) {
        let mut state = self.state.lock();
        if let Some(count) = state.asked.get_mut(&self.asked) {
            *count -= 1;
            if *count == 0 {
                state.asked.remove(&self.asked);
                state.forget_answered();
            }
        }
    }
}

impl State {
    /// Forgets the changes that every open question was asked after (H5).
    fn forget_answered(&mut self) {
        let oldest = self.asked.keys().next().copied().unwrap_or(u64::MAX);
        while let Some((stamp, _)) = self.order.front()
            && *stamp <= oldest
        {
            let Some((stamp, key)) = self.order.pop_front() else { return };
            self.key_bytes -= key.len();
            if self.changes.get(&key).is_some_and(|change| change.stamp == stamp) {
                self.changes.remove(&key);
            }
        }
    }

    /// The present state of `key`, after `question` was answered with `listed`.
    fn now(&self, key: &str, question: &Question, listed: Option<What>) -> Option<What> {
        match self.changes.get(key) {
            Some(change) if change.stamp > question.asked => change.now.clone(),
            _ => listed,
        }
    }
}

impl Here {
    pub(super) fn new() -> Self {
        Self(Arc::new(Mutex::new(&OBJECT_IN_WORK, State::default())))
    }

    /// `id` is in work under `key` from now on.
    pub(super) fn add(&self, key: String, id: InodeId) {
        self.0.lock().in_work.insert(key, id);
    }

    /// Adds a file, unless another one has its key. Returns whether it did.
    pub(super) fn add_new(&self, key: String, id: InodeId) -> bool {
        let mut state = self.0.lock();
        if state.in_work.contains_key(&key) {
            return false;
        }
        state.in_work.insert(key, id);
        true
    }

    /// `id` is not in work under `key` any more.
    pub(super) fn remove(&self, key: &str, id: InodeId) {
        self.remove_if(key, id, || true);
    }

    /// Removes a file if `done` returns true while no other thread changes the files in work.
    pub(super) fn remove_if(&self, key: &str, id: InodeId, done: impl FnOnce() -> bool) {
        let mut state = self.0.lock();
        if state.in_work.get(key) == Some(&id) && done() {
            state.in_work.remove(key);
        }
    }

    /// The file in work under `key`; `refer` is called for it while no other thread changes that.
    pub(super) fn find<T>(&self, key: &str, refer: impl FnOnce(InodeId) -> Option<T>) -> Option<T> {
        let state = self.0.lock();
        state.in_work.get(key).and_then(|id| refer(*id))
    }

    /// The names of files in work that lie in the directory `prefix` itself.
    pub(super) fn names_in(&self, prefix: &str) -> Vec<Box<str>> {
        let state = self.0.lock();
        let below = state.in_work.range(prefix.to_owned()..);
        let names = below.map(|(key, _)| key.strip_prefix(prefix)).take_while(Option::is_some);
        names.flatten().filter(|name| !name.contains('/')).map(Into::into).collect()
    }

    /// Whether a file in work lies below the directory `prefix`.
    pub(super) fn any_below(&self, prefix: &str) -> bool {
        let state = self.0.lock();
        let mut below = state.in_work.range(prefix.to_owned()..);
        below.next().is_some_and(|(key, _)| key.starts_with(prefix))
    }

    /// All files in work, as of now.
    pub(super) fn all(&self) -> Vec<InodeId> {
        self.0.lock().in_work.values().copied().collect()
    }

    /// To be taken before a question is sent (H2).
    pub(super) fn ask(&self) -> Question {
        let mut state = self.0.lock();
        let asked = state.clock;
        *state.asked.entry(asked).or_default() += 1;
        drop(state);
        Question { state: self.0.clone(), asked }
    }

    /// Records that a request of this mount has changed `key` to `now`. True if there are too many records (H5).
    pub(super) fn changed(&self, key: &str, now: Option<What>) -> bool {
        let mut state = self.0.lock();
        state.clock += 1;
        if state.asked.is_empty() {
            return false;
        }
        let stamp = state.clock;
        state.changes.insert(key.into(), Change { stamp, now });
        state.order.push_back((stamp, key.into()));
        state.key_bytes += key.len();
        state.order.len() > CHANGES_MAX
    }

    /// The node that `name` in `parent` leads to, with one reference more: `question` was answered with `listed` (H1, H2, H4).
    pub(super) fn refer(
        &self,
        table: &Table,
        (parent, name): (&Arc<Node>, &str),
        question: &Question,
        listed: Option<What>,
    ) -> Option<Arc<Node>> {
        let key = Node::key_below(parent, name);
        let state = self.0.lock();
        if let Some(node) = state.in_work.get(&key).and_then(|id| table.refer_to(*id)) {
            return Some(node);
        }
        let now = state.now(&key, question, listed)?;
        Some(table.refer(parent, name, now))
    }

    /// Bytes of the records.
    pub(super) fn bytes(&self) -> u64 {
        let state = self.0.lock();
        (state.order.len() * RECORD_BYTES + 2 * state.key_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Tag;
    use uvfs_vfs::Timestamp;

    fn object(tag: &str) -> Option<What> {
        Some(What::Object { tag: Tag(tag.into()), size: 1, modified: Timestamp::default() })
    }

    #[test]
    fn a_change_wins_over_answers_that_were_asked_for_before_it_and_no_others() {
        let (here, table) = (Here::new(), Table::new(""));
        let root = table.get(InodeId::ROOT).unwrap();
        let tag = |question: &Question, listed: Option<What>| {
            let node = here.refer(&table, (&root, "x"), question, listed);
            node.map(|node| node.what.tag().unwrap().0.to_string())
        };
        let before = here.ask();
        here.changed("x", object("2"));
        let between = here.ask();
        assert_eq!(tag(&before, object("1")).as_deref(), Some("2"));
        assert_eq!(tag(&before, None).as_deref(), Some("2"), "a listing that does not have it");
        assert_eq!(tag(&between, object("3")).as_deref(), Some("3"), "others were faster");
        here.changed("x", None);
        assert_eq!((tag(&before, object("1")), tag(&between, object("2"))), (None, None));
        assert_eq!(tag(&here.ask(), object("4")).as_deref(), Some("4"));
        drop(before);
        assert_eq!(
            here.0.lock().order.len(),
            1,
            "no question about the first change is open any more"
        );
        assert_eq!(tag(&between, object("2")), None);
        drop(between);
        assert!(here.0.lock().changes.is_empty());
        assert_eq!(here.bytes(), 0);
    }

    #[test]
    fn changes_without_a_question_are_not_recorded_and_too_many_are_reported() {
        let here = Here::new();
        assert!(!here.changed("x", None) && here.bytes() == 0);
        let _question = here.ask();
        let too_many = (0..=CHANGES_MAX).filter(|at| here.changed(&at.to_string(), None)).count();
        assert_eq!(too_many, 1);
    }
}
