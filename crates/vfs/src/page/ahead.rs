//! Read-ahead: what of a file will be wanted soon.
//!
//! # Boundary
//! Decides which pages; reading them is [`super::read`]'s. One instance per file.
//!
//! # Concurrency
//! Asked on a miss, and on a hit of a *mark*: the page whose reading says that the stream goes on. The
//! marks are words that every read compares with, so a hit takes no lock. The rest is under one lock.
//!
//! # Why
//! A stream is a place where reading is expected to go on. A miss there doubles the window, up to a
//! limit; a miss elsewhere begins a new stream and reads only what was asked for. Several streams are
//! kept, so that two readers of one file do not spoil each other's. The next window is fetched when
//! the reader comes to the mark, before it needs it (Linux `page_cache_async_ra`; Fengguang Wu et al.,
//! 2008). Weakness: a reader that strides is taken for random.

use crate::lock_order;
use std::ops::Range;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Streams followed in one file.
const STREAMS: usize = 4;
/// Pages of the first window.
const FIRST_PAGES: u64 = 4;
/// No mark.
const NONE: u64 = u64::MAX;

/// The streams of one file.
#[derive(Debug)]
pub(crate) struct Streams {
    marks: [AtomicU64; STREAMS],
    streams: Mutex<[Stream; STREAMS]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// Where a sequential reader misses next; what is before it was fetched.
    next: u64,
    /// Pages fetched last time; 0 if the stream has only just begun.
    window: u64,
    /// Higher is later.
    used: u64,
}

impl Streams {
    pub(crate) fn new() -> Self {
        let streams = Mutex::new(&lock_order::STREAMS, [Stream::default(); STREAMS]);
        Self { marks: std::array::from_fn(|_| AtomicU64::new(NONE)), streams }
    }

    /// Somebody wants `wanted`, the first page of which is missing: the pages to fetch now, which begin
    /// there and are no more than `limit` unless more were wanted. `end` is the page behind the last.
    pub(crate) fn missed(&self, wanted: Range<u64>, limit: u64, end: u64) -> Range<u64> {
        let mut streams = self.streams.lock();
        let used = streams.iter().map(|stream| stream.used).max().unwrap_or(0) + 1;
        let first = wanted.start;
        let goes_on = |stream: &Stream| {
            stream.used > 0 && (stream.next..=stream.next + stream.window).contains(&first)
        };
        let found = streams.iter().position(goes_on);
        let oldest = (0..STREAMS).min_by_key(|&at| streams[at].used).unwrap_or(0);
        let at = found.unwrap_or(oldest);
        let asked = wanted.end.saturating_sub(first).max(1);
        // The start of a file is taken for the start of a stream.
        let window = match found {
            Some(at) => (streams[at].window * 2).max(FIRST_PAGES),
            None if first == 0 => FIRST_PAGES,
            None => 0,
        };
        let count = window.min(limit).max(asked);
        let stop = first.saturating_add(count).min(end).max(first);
        streams[at] = Stream { next: stop, window: window.min(limit), used };
        self.set_mark(at, &streams[at], end);
        first..stop
    }

    /// Whether reading `pages` came to a mark. Stores nothing.
    #[inline]
    pub(crate) fn is_marked(&self, pages: &Range<u64>) -> bool {
        // ORDERING: Relaxed; a hint, judged again under the lock.
        self.marks.iter().any(|mark| pages.contains(&mark.load(Relaxed)))
    }

    /// Reading came to a mark in `pages`: what to fetch in the background, if anything.
    pub(crate) fn came_to_mark(&self, pages: Range<u64>, limit: u64, end: u64) -> Range<u64> {
        let mut streams = self.streams.lock();
        let used = streams.iter().map(|stream| stream.used).max().unwrap_or(0) + 1;
        // ORDERING: Relaxed; marks are stored under this lock.
        let marked = |at: &usize| pages.contains(&self.marks[*at].load(Relaxed));
        let Some(at) = (0..STREAMS).find(marked) else { return 0..0 };
        let window = (streams[at].window * 2).max(FIRST_PAGES).min(limit.max(1));
        let start = streams[at].next;
        let stop = start.saturating_add(window).min(end).max(start);
        streams[at] = Stream { next: stop, window, used };
        self.set_mark(at, &streams[at], end);
        start..stop
    }

    /// Marks the page in the middle of what was fetched last.
    fn set_mark(&self, at: usize, stream: &Stream, end: u64) {
        let mark = match stream.window {
            0 => NONE,
            _ if stream.next >= end => NONE,
            window => stream.next - (window / 2).clamp(1, stream.next.max(1)),
        };
        // ORDERING: Relaxed; a hint (`is_marked`), and under the lock.
        self.marks[at].store(mark, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 64;

    /// Reads `pages` one by one, fetching as told; how many pages each fetch had.
    fn read(streams: &Streams, pages: impl Iterator<Item = u64>, end: u64) -> Vec<u64> {
        let mut here = std::collections::HashSet::new();
        let mut fetches = Vec::new();
        for page in pages {
            if !here.contains(&page) {
                let run = streams.missed(page..page + 1, LIMIT, end);
                assert!(run.start == page && run.end > page && run.end <= end);
                fetches.push(run.end - run.start);
                here.extend(run);
            }
            if streams.is_marked(&(page..page + 1)) {
                let run = streams.came_to_mark(page..page + 1, LIMIT, end);
                assert!(run.start > page && run.end <= end);
                fetches.push(run.end - run.start);
                here.extend(run);
            }
        }
        fetches
    }

    #[test]
    fn a_sequential_reader_misses_once_and_its_window_grows() {
        let streams = Streams::new();
        let fetches = read(&streams, 0..1000, 1000);
        assert_eq!(fetches[..5], [4, 8, 16, 32, 64]);
        assert!(fetches.len() < 25, "{fetches:?}");
        assert_eq!(fetches.iter().sum::<u64>(), 1000, "every page once, none beyond the end");
    }

    #[test]
    fn a_random_reader_is_given_what_it_asks_for() {
        let streams = Streams::new();
        let pages = (1..200u64).map(|at| at * 7919 % 100_000 + 2);
        assert!(read(&streams, pages, 200_000).iter().all(|&count| count == 1));
    }

    #[test]
    fn a_stream_that_begins_in_the_middle_is_seen_at_its_second_page() {
        let streams = Streams::new();
        let fetches = read(&streams, 500..600, 100_000);
        assert_eq!(fetches[..3], [1, 4, 8]);
        assert!(fetches.len() < 9);
    }

    #[test]
    fn three_streams_do_not_spoil_each_other() {
        let streams = Streams::new();
        let pages = (0..3000u64).map(|at| at % 3 * 100_000 + at / 3);
        let fetches = read(&streams, pages, 1 << 40);
        assert!(fetches.len() < 80, "{} fetches", fetches.len());
    }

    #[test]
    fn what_is_wanted_is_fetched_even_beyond_the_limit() {
        let streams = Streams::new();
        assert_eq!(streams.missed(10..200, LIMIT, 1000), 10..200);
        assert_eq!(streams.missed(999..1001, LIMIT, 1000), 999..1000);
    }
}
