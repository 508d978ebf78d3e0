//! Tests of the replacement policy. Its hit ratios are in `uvfs-bench evict`.

use super::*;
use crate::class::Class;
use proptest::prelude::*;
use std::collections::HashSet;

struct Words(Vec<AccessWord>);

impl Access for Words {
    fn access(&self, frame: u32) -> &AccessWord {
        &self.0[frame as usize]
    }
}

fn words(frames: u32) -> Words {
    Words((0..frames).map(|_| AccessWord::default()).collect())
}

/// Queues of frames `0..frames`, each holding the page of its own number, all unused.
fn queues(frames: u32) -> (Queues, Words) {
    let (mut queues, words) = (Queues::new(frames), words(frames));
    (0..frames).for_each(|frame| queues.admit(&words, frame, frame.into()));
    (queues, words)
}

fn offered(queues: &mut Queues, words: &Words, wanted: usize) -> (Vec<u32>, Offer) {
    let mut out = Vec::new();
    let offer = queues.candidates(words, wanted, &mut out);
    (out, offer)
}

/// Uses `frame` at a time when the use counts.
fn used(queues: &Queues, words: &Words, frame: u32) {
    words.access(frame).touch(queues.clock().wrapping_add(1 << 20));
}

#[test]
fn unused_pages_go_in_the_order_they_came() {
    let (mut queues, words) = queues(100);
    assert_eq!(offered(&mut queues, &words, 5), (vec![0, 1, 2, 3, 4], Offer::Full));
    // Two were busy; the others were evicted.
    [0, 2, 4].iter().for_each(|&frame| queues.evicted(frame, frame.into()));
    assert_eq!(queues.len(), 97);
    assert_eq!(offered(&mut queues, &words, 3), (vec![5, 6, 7], Offer::Full));
}

#[test]
fn a_used_page_moves_to_the_main_queue_and_stays() {
    let (mut queues, words) = queues(100);
    used(&queues, &words, 0);
    assert_eq!(offered(&mut queues, &words, 2).0, [1, 2]);
    for frame in 1..100 {
        queues.evicted(frame, frame.into());
    }
    // No other frame is left, and it was not used again.
    assert_eq!(offered(&mut queues, &words, 1), (vec![0], Offer::Full));
}

#[test]
fn pages_of_the_main_queue_go_when_the_small_one_is_short() {
    let (mut queues, words) = queues(100);
    (0..95).for_each(|frame| used(&queues, &words, frame));
    // All used frames move to the main queue; five frames remain, fewer than the tenth that may stay.
    let (out, _) = offered(&mut queues, &words, 3);
    assert_eq!(out, [0, 1, 2], "five of a hundred are below the small queue's part");
}

#[test]
fn a_page_that_left_not_long_ago_comes_back_to_the_main_queue() {
    let (mut queues, words) = queues(100);
    queues.evicted(0, 0);
    queues.admit(&words, 0, 0);
    // Unused, but behind all others, because they are more than a tenth.
    queues.evicted(1, 1);
    queues.admit(&words, 1, 1_000_001);
    // The admitted frames without the last ten; so neither 0, which was seen before, nor 1, another page.
    let (out, _) = offered(&mut queues, &words, 88);
    assert_eq!(out, (2..90).collect::<Vec<u32>>());
    out.iter().for_each(|&frame| queues.evicted(frame, frame.into()));
    let (out, _) = offered(&mut queues, &words, 12);
    assert_eq!(out[out.len() - 1], 0, "{out:?}");
}

#[test]
fn a_page_read_in_pieces_is_not_popular() {
    let (mut queues, words) = queues(1000);
    queues.evicted(0, 0);
    queues.admit(&words, 0, 5000);
    (0..3).for_each(|_| words.access(0).touch(queues.clock()));
    assert_eq!(words.access(0).count(), 0);
    queues.evicted(1, 1);
    queues.admit_as(&words, 1, 5001, (Class::Normal, true));
    words.access(1).touch(queues.clock().wrapping_add(1 << 20));
    assert_eq!(words.access(1).count(), 0, "the use it was read for");
}

#[test]
fn a_small_cache_sees_second_uses_too() {
    let (mut queues, words) = queues(128);
    for key in 0..4 {
        queues.evicted(0, key);
        queues.admit(&words, 0, 1000 + key);
    }
    words.access(1).touch(queues.clock());
    assert_eq!(words.access(1).count(), 1, "four admissions are long ago for 128 pages");
}

#[test]
fn everything_busy_is_reported_after_one_round() {
    let (mut queues, words) = queues(1000);
    let (mut calls, mut seen) = (0, HashSet::new());
    loop {
        let (out, offer) = offered(&mut queues, &words, 32);
        seen.extend(out);
        calls += 1;
        if offer == Offer::Exhausted {
            break;
        }
        assert!(calls < 100, "goes round for ever");
    }
    assert_eq!((seen.len(), queues.len()), (1000, 1000), "each was offered, none was lost");
    let (out, offer) = offered(&mut queues, &words, 1);
    assert_eq!((out.len(), offer), (1, Offer::Full), "a new round begins");
}

#[test]
fn a_call_with_everything_hot_ends_and_the_next_gets_on() {
    let (mut queues, words) = queues(10_000);
    for _ in 0..3 {
        (0..10_000).for_each(|frame| used(&queues, &words, frame));
    }
    let (out, offer) = offered(&mut queues, &words, 1);
    assert_eq!((out.len(), offer), (0, Offer::Short), "so many looks for one page are enough");
    let found = (0..2000).find(|_| !offered(&mut queues, &words, 32).0.is_empty());
    assert!(found.is_some(), "uses are forgotten as the hand goes round");
}

#[test]
fn a_few_busy_pages_do_not_turn_the_hand_to_the_main_queue() {
    let (mut queues, words) = queues(1000);
    // Half become main pages.
    (0..500).for_each(|frame| used(&queues, &words, frame));
    let mut admitted = 1000u64;
    for _ in 0..20_000 {
        let (out, _) = offered(&mut queues, &words, 4);
        for frame in out {
            // One in five is busy.
            if frame % 5 != 0 {
                assert!(frame >= 500, "a main page went, with {} others", queues.len());
                queues.evicted(frame, frame.into());
                queues.admit(&words, frame, admitted);
                admitted += 1;
            }
        }
    }
}

#[test]
fn no_frames_no_candidates() {
    let mut queues = Queues::new(0);
    queues.set_capacity(usize::MAX);
    assert_eq!(offered(&mut queues, &words(0), 1), (vec![], Offer::Exhausted));
    assert!(!queues.remove(0) && queues.is_empty());
}

#[test]
fn memory_is_bounded_by_the_frames() {
    let queues = Queues::new(100_000);
    assert!(queues.bytes() <= 100_000 * 14, "{}", queues.bytes());
}

fn class_of(number: u8) -> Class {
    [Class::Normal, Class::Keep, Class::Once][usize::from(number % 3)]
}

/// Frames 0..50 normal, 50..80 to keep, 80..100 to evict first.
fn classed() -> (Queues, Words) {
    let (mut queues, words) = (Queues::new(100), words(100));
    for frame in 0..100 {
        let class = [Class::Normal, Class::Keep, Class::Once]
            [(frame >= 50) as usize + (frame >= 80) as usize];
        queues.admit_as(&words, frame, frame.into(), (class, false));
    }
    (queues, words)
}

#[test]
fn pages_leave_by_class_and_among_each_other_as_they_came() {
    let (mut queues, words) = classed();
    // A use does not protect either class.
    (80..90).for_each(|frame| used(&queues, &words, frame));
    assert_eq!(offered(&mut queues, &words, 100).0, (80..100).chain(0..80).collect::<Vec<u32>>());
    let lengths = [Class::Normal, Class::Keep, Class::Once].map(|class| queues.len_of(class));
    assert_eq!((lengths, queues.len()), ([50, 30, 20], 100), "offered, and not gone");
}

#[test]
fn pages_to_be_kept_leave_an_eighth_to_the_others() {
    let (mut queues, words) = (Queues::new(100), words(100));
    for frame in 0..100 {
        let class = if frame < 95 { Class::Keep } else { Class::Normal };
        queues.admit_as(&words, frame, frame.into(), (class, false));
    }
    let (out, _) = offered(&mut queues, &words, 14);
    let expected: Vec<u32> = (0..7).chain(95..100).chain(7..9).collect();
    assert_eq!(out, expected, "88 of 100 may be kept before the others");
}

#[test]
fn a_page_to_be_kept_goes_round_again_for_each_use() {
    let (mut queues, words) = (Queues::new(10), words(10));
    (0..10).for_each(|frame| queues.admit_as(&words, frame, 0, (Class::Keep, false)));
    used(&queues, &words, 0);
    assert_eq!(offered(&mut queues, &words, 1).0, [1]);
}

#[test]
fn a_page_read_ahead_to_go_first_is_passed_over_once() {
    let (mut queues, words) = (Queues::new(10), words(10));
    (0..4).for_each(|frame| queues.admit_as(&words, frame, 0, (Class::Once, frame < 2)));
    assert_eq!(offered(&mut queues, &words, 1).0, [2]);
    queues.evicted(2, 0);
    words.access(0).touch(queues.clock());
    let (out, offer) = offered(&mut queues, &words, 3);
    assert_eq!((out, offer), (vec![3, 0, 1], Offer::Full));
    // Only such pages: the round ends.
    let (mut queues, words) = (Queues::new(10), self::words(10));
    (0..10).for_each(|frame| queues.admit_as(&words, frame, 0, (Class::Once, true)));
    assert_eq!(offered(&mut queues, &words, 3), (vec![], Offer::Exhausted));
    assert_eq!(offered(&mut queues, &words, 3), (vec![0, 1, 2], Offer::Full));
}

#[test]
fn a_page_changes_its_class() {
    let (mut queues, words) = classed();
    used(&queues, &words, 0);
    assert!(queues.set_class(99, Class::Normal) && !queues.set_class(99, Class::Normal));
    assert!(queues.set_class(0, Class::Once) && queues.set_class(98, Class::Keep));
    queues.remove(97);
    assert!(!queues.set_class(97, Class::Keep), "it is not here");
    let (out, _) = offered(&mut queues, &words, 100);
    let order: Vec<u32> =
        (80..97).chain([0]).chain(1..50).chain([99]).chain(50..80).chain([98]).collect();
    assert_eq!(out, order);
}

proptest! {
    /// Pages to evict first change nothing for the others: with and without them, the same pages are offered in the
    /// same order.
    #[test]
    fn pages_that_go_first_are_not_seen_by_the_others(
        steps in prop::collection::vec((0..4u8, 0..64u32, any::<bool>()), 0..400)
    ) {
        let (mut plain, plain_words) = (Queues::new(128), words(128));
        let (mut mixed, mixed_words) = (Queues::new(128), words(128));
        for (step, frame, other) in steps {
            let key = u64::from(frame) % 23;
            if other {
                mixed.admit_as(&mixed_words, 64 + frame, key, (Class::Once, false));
            }
            match step {
                0 => {
                    plain.admit(&plain_words, frame, key);
                    mixed.admit(&mixed_words, frame, key);
                }
                1 => {
                    used(&plain, &plain_words, frame);
                    used(&mixed, &mixed_words, frame);
                }
                _ => {
                    while let Some(frame) = (64..128).find(|&frame| mixed.remove(frame)) {
                        mixed.admit_as(&mixed_words, frame, key, (Class::Once, false));
                        mixed.evicted(frame, key);
                    }
                    let (out, offer) = offered(&mut plain, &plain_words, frame as usize);
                    let same = offered(&mut mixed, &mixed_words, frame as usize);
                    prop_assert_eq!(&same, &(out.clone(), offer));
                    for frame in out.into_iter().filter(|frame| frame % 3 != 0) {
                        plain.evicted(frame, u64::from(frame) % 23);
                        mixed.evicted(frame, u64::from(frame) % 23);
                    }
                }
            }
            prop_assert_eq!(plain.clock(), mixed.clock());
        }
    }

    /// After any steps, queues contain the same frames as a set, and offer each at most once in a call.
    #[test]
    fn queues_are_a_set(steps in prop::collection::vec((0..6u8, 0..24u32, 0..3u8), 0..300)) {
        let (mut queues, words) = (Queues::new(24), words(24));
        let mut model = HashSet::new();
        for (step, frame, class) in steps {
            match step {
                0 => {
                    let class = (class_of(class), frame % 2 == 0);
                    queues.admit_as(&words, frame, u64::from(frame) % 7, class);
                    model.insert(frame);
                }
                1 => prop_assert_eq!(queues.remove(frame), model.remove(&frame)),
                2 => {
                    queues.evicted(frame, u64::from(frame) % 7);
                    model.remove(&frame);
                }
                3 => used(&queues, &words, frame),
                4 => _ = queues.set_class(frame, class_of(class)),
                _ => {
                    let (out, offer) = offered(&mut queues, &words, frame as usize);
                    let set: HashSet<_> = out.iter().copied().collect();
                    prop_assert!(set.len() == out.len() && set.is_subset(&model), "{:?}", out);
                    prop_assert_eq!(offer == Offer::Full, out.len() == frame as usize);
                }
            }
            prop_assert_eq!(queues.len(), model.len());
        }
        // All remaining frames can be evicted in turns.
        for _ in 0..1000 {
            for frame in offered(&mut queues, &words, 5).0 {
                queues.evicted(frame, 0);
                prop_assert!(model.remove(&frame));
            }
        }
        prop_assert!(queues.is_empty() && model.is_empty());
    }
}
