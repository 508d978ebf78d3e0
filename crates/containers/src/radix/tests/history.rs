//! Threads record their operations on a few indexes, and a checker looks for an order that explains the results.
//!
//! # Why
//! An index with its value and its tag is one small object. If each object's history can be put in an order that agrees
//! with real time and with the answers, the tree is linearizable by index (Wing and Gong 1993). The tree promises no
//! more. Ranges and searches are split into their effects on each index. A removal is two steps, as documented: the
//! tags are removed, then the value.

use super::*;
use std::collections::HashSet;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

/// The effect of an operation on one index, or its answer about it; `None` is an absent value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    See(Option<u64>),
    Insert(u64),
    Replace { from: Option<u64>, to: u64 },
    Take(u64),
    NotTheValue(u64),
    Tag { there: bool },
    TagIfThere,
    Untag { had: bool },
    UntagIfThere,
    SeeTag(bool),
    NotTaggedOrAbsent,
}

/// The object: value and tag.
type State = (Option<u64>, bool);

impl Act {
    /// The state after the act, if the act can have its answer in `state`.
    fn apply(self, state: State) -> Option<State> {
        let (value, tagged) = state;
        match self {
            Act::See(seen) => (seen == value).then_some(state),
            Act::Insert(new) => value.is_none().then_some((Some(new), false)),
            Act::Replace { from, to } => (from == value).then_some((value.map(|_| to), tagged)),
            Act::Take(old) => (value == Some(old)).then_some((None, false)),
            Act::NotTheValue(wrong) => (value != Some(wrong)).then_some(state),
            Act::Tag { there } => (value.is_some() == there).then_some((value, tagged || there)),
            Act::TagIfThere => Some((value, tagged || value.is_some())),
            Act::Untag { had } => (tagged == had).then_some((value, false)),
            Act::UntagIfThere => Some((value, false)),
            Act::SeeTag(seen) => (seen == tagged).then_some(state),
            Act::NotTaggedOrAbsent => (value.is_none() || !tagged).then_some(state),
        }
    }
}

/// One operation's acts on one index, in their order, within `from..to`.
#[derive(Debug, Clone)]
struct Event {
    from: u64,
    to: u64,
    acts: Vec<Act>,
}

/// Whether some order of the events that agrees with their times explains all answers.
fn explained(events: &[Event]) -> bool {
    /// Tries every next act; `done` counts the acts done of each event.
    fn search(
        events: &[Event],
        done: &mut Vec<u8>,
        state: State,
        failed: &mut HashSet<(Vec<u8>, State)>,
    ) -> bool {
        let open = |at: usize, done: &[u8]| usize::from(done[at]) < events[at].acts.len();
        // An act may come next only if it began before the first open event ended.
        let Some(first_end) =
            (0..events.len()).filter(|&at| open(at, done)).map(|at| events[at].to).min()
        else {
            return true;
        };
        if failed.contains(&(done.clone(), state)) {
            return false;
        }
        for at in 0..events.len() {
            if open(at, done) && events[at].from <= first_end {
                let act = events[at].acts[usize::from(done[at])];
                if let Some(next) = act.apply(state) {
                    done[at] += 1;
                    if search(events, done, next, failed) {
                        return true;
                    }
                    done[at] -= 1;
                }
            }
        }
        failed.insert((done.clone(), state));
        false
    }
    search(events, &mut vec![0; events.len()], (None, false), &mut HashSet::new())
}

/// Three neighbours, of which the first two share a leaf, and one index that needs a higher tree.
const INDEXES: [u64; 4] = [62, 63, 64, 1 << 20];

struct Recorder<'a> {
    tree: &'a Tree,
    clock: &'a AtomicU64,
    events: [Vec<Event>; INDEXES.len()],
}

impl Recorder<'_> {
    fn operate(&mut self, random: &mut Random, fresh: u64) {
        let at = random.below(INDEXES.len() as u64) as usize;
        let (index, tag) = (INDEXES[at], Tag::Dirty);
        let guard = pin();
        let from = self.clock.fetch_add(1, Ordering::SeqCst);
        let tree = self.tree;
        let some = |value: Option<NonZeroU64>| value.map(NonZeroU64::get);
        let mut all: [Vec<Act>; INDEXES.len()] = Default::default();
        match random.below(14) {
            0 => all[at].push(Act::See(some(tree.get(index, &guard)))),
            1 | 2 => all[at].push(match tree.insert(index, value(fresh), &guard) {
                Ok(()) => Act::Insert(fresh),
                Err(found) => Act::See(Some(found.get())),
            }),
            3 => {
                let from = some(tree.replace(index, value(fresh), &guard));
                all[at].push(Act::Replace { from, to: fresh });
            }
            4 => match some(tree.remove(index, &guard)) {
                Some(old) => all[at].extend([Act::UntagIfThere, Act::Take(old)]),
                None => all[at].push(Act::See(None)),
            },
            5 => {
                let guess = some(tree.get(index, &guard)).unwrap_or(1);
                if tree.remove_if(index, value(guess), &guard) {
                    all[at].extend([Act::UntagIfThere, Act::Take(guess)]);
                } else {
                    all[at].push(Act::NotTheValue(guess));
                }
            }
            6 | 7 => all[at].push(Act::Tag { there: tree.set_tag(index, tag, &guard) }),
            8 => all[at].push(Act::Untag { had: tree.clear_tag(index, tag, &guard) }),
            9 => all[at].push(Act::SeeTag(tree.is_tagged(index, tag, &guard))),
            10 => {
                let mut out = [(0, NonZeroU64::MIN); 8];
                let found = tree.gang(.., &mut out, &guard);
                for (acts, index) in all.iter_mut().zip(INDEXES) {
                    let seen = out[..found].iter().find(|one| one.0 == index);
                    acts.push(Act::See(seen.map(|one| one.1.get())));
                }
            }
            11 => {
                let found: Vec<_> = tree.iter_tagged(.., tag, &guard).collect();
                for (acts, index) in all.iter_mut().zip(INDEXES) {
                    match found.iter().find(|one| one.0 == index) {
                        Some(one) => acts.extend([Act::SeeTag(true), Act::See(Some(one.1.get()))]),
                        None => acts.push(Act::NotTaggedOrAbsent),
                    }
                }
            }
            12 => {
                tree.set_tags(.., tag, &guard);
                all.iter_mut().for_each(|acts| acts.push(Act::TagIfThere));
            }
            _ => {
                tree.clear_tags(.., tag, &guard);
                all.iter_mut().for_each(|acts| acts.push(Act::UntagIfThere));
            }
        }
        let to = self.clock.fetch_add(1, Ordering::SeqCst);
        for (events, acts) in self.events.iter_mut().zip(all) {
            if !acts.is_empty() {
                events.push(Event { from, to, acts });
            }
        }
    }
}

#[test]
fn every_index_has_a_history_that_can_be_explained() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 1500;
    const OPERATIONS: u64 = 7;
    let barrier = Barrier::new(THREADS as usize);
    let rounds: Vec<(Tree, AtomicU64)> =
        (0..ROUNDS).map(|_| (Tree::new(&CLASS), AtomicU64::new(0))).collect();
    let histories: Vec<Vec<[Vec<Event>; INDEXES.len()]>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (barrier, rounds) = (&barrier, &rounds);
                scope.spawn(move || {
                    let mut random = Random(thread);
                    let mut round = |(tree, clock)| {
                        let mut recorder = Recorder { tree, clock, events: Default::default() };
                        barrier.wait();
                        for operation in 0..OPERATIONS {
                            let fresh = (thread * OPERATIONS + operation + 1) * 10;
                            recorder.operate(&mut random, fresh);
                        }
                        recorder.events
                    };
                    rounds.iter().map(|(tree, clock)| round((tree, clock))).collect()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    for (round, (mut tree, _)) in rounds.into_iter().enumerate() {
        for at in 0..INDEXES.len() {
            let events: Vec<Event> =
                histories.iter().flat_map(|rounds| rounds[round][at].iter().cloned()).collect();
            assert!(explained(&events), "round {round}, index {}: {events:#?}", INDEXES[at]);
        }
        check_structure(&mut tree);
    }
}

#[test]
fn the_checker_refuses_what_cannot_be() {
    let event = |from, to, acts: &[Act]| Event { from, to, acts: acts.to_vec() };
    let insert = event(0, 1, &[Act::Insert(5)]);
    let sees = |from, to, seen| event(from, to, &[Act::See(seen)]);
    assert!(explained(&[insert.clone(), sees(2, 3, Some(5))]));
    assert!(!explained(&[insert.clone(), sees(2, 3, None)]), "it was there");
    assert!(explained(&[event(0, 3, &[Act::Insert(5)]), sees(1, 2, None)]), "at the same time");
    let twice = [insert.clone(), event(2, 3, &[Act::Insert(6)])];
    assert!(!explained(&twice), "two insertions");
    let lost =
        [insert, event(2, 5, &[Act::Tag { there: true }]), event(6, 7, &[Act::NotTaggedOrAbsent])];
    assert!(!explained(&lost), "a tag is lost");
    let back = [event(0, 9, &[Act::Insert(5)]), sees(1, 2, Some(5)), sees(3, 4, None)];
    assert!(!explained(&back), "seen, then not there");
}
