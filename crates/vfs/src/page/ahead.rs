//! Read-ahead: predicts which pages of a file will be read soon.
//!
//! # Boundary
//! Chooses the pages. [`super::read`] reads them. One instance per file.
//!
//! # Concurrency
//! Called on a miss, and on a hit of a *mark*: the page whose reading shows that the stream continues. Every read
//! compares with the marks, which are atomic words, so a hit takes no lock. The rest is under one lock.
//!
//! # Why
//! A stream is a place where a reader is expected to continue. A miss there doubles the window, up to a limit. A miss
//! elsewhere begins a new stream and reads only the requested pages. A file that ends within the first window has no
//! stream. A file has several streams, so that two readers do not spoil each other's. The next window is fetched when
//! the reader reaches the mark, before it needs it (Linux `page_cache_async_ra`; Fengguang Wu et al., 2008). A
//! background thread does that and may be late. A reader that reaches a window before its fetch has begun takes it
//! over. Weakness: a strided reader is taken for a random one.

use crate::lock_order;
use std::ops::Range;
use uvfs_concurrent::lazy::LazyBox;
use uvfs_concurrent::lock::Mutex;
use uvfs_concurrent::primitive::atomic::{AtomicU64, Ordering::Relaxed};

/// Streams followed in one file.
const STREAMS: usize = 4;
/// Pages of the first window.
const FIRST_PAGES: u64 = 4;
/// A request for so many pages is not that of a random reader.
const LARGE_PAGES: u64 = 32;
/// No mark.
const NONE: u64 = u64::MAX;

/// The streams of one file, if it is long enough to have any.
#[derive(Debug, Default)]
pub(crate) struct Streams(LazyBox<Followed>);

/// The streams themselves, made by the first miss.
#[derive(Debug)]
struct Followed {
    marks: [AtomicU64; STREAMS],
    streams: Mutex<[Stream; STREAMS]>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stream {
    /// Where a sequential reader misses next. The pages before it were fetched.
    next: u64,
    /// Higher is later.
    used: u64,
    /// Pages fetched last time; 0 if the stream has only just begun.
    window: u32,
    /// Pages before `next` whose background fetch no thread has begun.
    waiting: u32,
}

// Every file that was read has these.
const _: () = assert!(size_of::<Stream>() == 24);

/// A number of pages in 32 bits. Windows are small, and only the end of a waiting range matters.
fn few(pages: u64) -> u32 {
    u32::try_from(pages).unwrap_or(u32::MAX)
}

impl Stream {
    fn waiting(&self) -> Range<u64> {
        self.next.saturating_sub(self.waiting.into())..self.next
    }

    /// The part of `run` that waits.
    fn waiting_part(&self, run: &Range<u64>) -> Range<u64> {
        let waiting = self.waiting();
        run.start.max(waiting.start)..if run.end <= self.next { run.end } else { run.start }
    }

    /// Whether a miss of page `first` is of this stream: the page was fetched with the last window and evicted, its
    /// fetch was late, or a request of `overtakes` pages behind it came first.
    fn has_passed(&self, first: u64, overtakes: u64) -> bool {
        let reach = u64::from(self.window) + u64::from(self.waiting) + overtakes;
        self.window > 0 && (self.next.saturating_sub(reach)..self.next).contains(&first)
    }
}

impl Streams {
    /// Bytes of the streams, once they exist.
    pub(crate) const BYTES: usize = size_of::<Followed>();

    /// Whether the streams exist.
    pub(crate) fn is_made(&self) -> bool {
        self.0.get().is_some()
    }

    /// A caller wants `wanted`, whose first page is missing. Returns the pages to fetch now: they begin there and are
    /// at most `limit`, unless `wanted` has more. `end` is the page behind the last. The flag says whether this call
    /// made the file's streams.
    pub(crate) fn missed(&self, wanted: Range<u64>, limit: u64, end: u64) -> (Range<u64>, bool) {
        let first = wanted.start;
        if end <= FIRST_PAGES && !self.is_made() {
            let window = if first == 0 { FIRST_PAGES.min(limit) } else { 0 };
            let count = window.max(wanted.end.saturating_sub(first)).max(1);
            return (first..first.saturating_add(count).min(end).max(first), false);
        }
        let (followed, made) = self.0.get_or_make(Followed::new);
        (followed.missed(wanted, limit, end), made)
    }

    /// Whether reading `pages` came to a mark. Stores nothing.
    #[inline]
    pub(crate) fn is_marked(&self, pages: &Range<u64>) -> bool {
        self.0.get().is_some_and(|followed| followed.is_marked(pages))
    }

    /// Reading came to a mark in `pages`. Returns the pages to fetch in the background, if any. The fetching thread
    /// asks [`Streams::begin`] first whether they are still wanted.
    pub(crate) fn came_to_mark(&self, pages: Range<u64>, limit: u64, end: u64) -> Range<u64> {
        self.0.get().map_or(0..0, |followed| followed.came_to_mark(pages, limit, end))
    }

    /// Whether some of `run`, a part of a result of [`Streams::came_to_mark`], is still to be fetched: no reader has
    /// taken all of it over.
    pub(crate) fn is_waiting(&self, run: &Range<u64>) -> bool {
        let waits = |one: &Stream| !one.waiting_part(run).is_empty();
        self.0.get().is_some_and(|followed| followed.streams.lock().iter().any(waits))
    }

    /// The part of `run` that is still to be fetched. From now on no reader takes it over.
    pub(crate) fn begin(&self, run: &Range<u64>) -> Range<u64> {
        self.0.get().map_or(0..0, |followed| followed.begin(run))
    }
}

impl Followed {
    fn new() -> Self {
        let streams = Mutex::new(&lock_order::STREAMS, std::array::from_fn(|_| Stream::default()));
        Self { marks: std::array::from_fn(|_| AtomicU64::new(NONE)), streams }
    }

    fn missed(&self, wanted: Range<u64>, limit: u64, end: u64) -> Range<u64> {
        let mut streams = self.streams.lock();
        let used = streams.iter().map(|stream| stream.used).max().unwrap_or(0) + 1;
        let first = wanted.start;
        let asked = wanted.end.saturating_sub(first).max(1);
        if let Some(at) = streams.iter().position(|stream| stream.waiting().contains(&first)) {
            let stream = &mut streams[at];
            let count = (stream.next - first).min(limit).max(asked);
            let stop = first.saturating_add(count).min(end).max(first);
            // The windows behind it still wait for a thread.
            let next = stream.next.max(stop);
            *stream = Stream { next, waiting: few(next - stop), used, ..*stream };
            self.set_mark(at, &streams[at], first, end);
            return first..stop;
        }
        // A kernel in front has two requests of one reader in progress, and they may arrive in the wrong order.
        let overtakes = if asked >= LARGE_PAGES { asked } else { 0 };
        let passed = |stream: &&mut Stream| stream.has_passed(first, overtakes);
        if let Some(stream) = streams.iter_mut().find(passed) {
            stream.used = used;
            let count = (stream.next - first).min(limit).max(asked);
            return first..first.saturating_add(count).min(end).max(first);
        }
        let goes_on = |stream: &Stream| {
            let near = stream.next..=stream.next + u64::from(stream.window).max(overtakes);
            stream.used > 0 && near.contains(&first)
        };
        let found = streams.iter().position(goes_on);
        let oldest = (0..STREAMS).min_by_key(|&at| streams[at].used).unwrap_or(0);
        let at = found.unwrap_or(oldest);
        // The start of a file is taken for the start of a stream.
        let window = match found {
            Some(at) => (u64::from(streams[at].window) * 2).max(FIRST_PAGES).max(asked),
            None if first == 0 => FIRST_PAGES,
            None => 0,
        };
        let count = window.min(limit).max(asked);
        let stop = first.saturating_add(count).min(end).max(first);
        // What is read ahead in the background may be more than `limit`, and stays so.
        let last = found.map_or(0, |at| u64::from(streams[at].window));
        let window = few(window.min(limit.max(asked)).max(last));
        streams[at] = Stream { next: stop, used, window, waiting: 0 };
        self.set_mark(at, &streams[at], first, end);
        first..stop
    }

    fn is_marked(&self, pages: &Range<u64>) -> bool {
        // ORDERING: Relaxed; a hint, checked again under the lock.
        self.marks.iter().any(|mark| pages.contains(&mark.load(Relaxed)))
    }

    fn came_to_mark(&self, pages: Range<u64>, limit: u64, end: u64) -> Range<u64> {
        let mut streams = self.streams.lock();
        let used = streams.iter().map(|stream| stream.used).max().unwrap_or(0) + 1;
        // ORDERING: Relaxed; marks are stored under this lock.
        let marked = |at: &usize| pages.contains(&self.marks[*at].load(Relaxed));
        let Some(at) = (0..STREAMS).find(marked) else { return 0..0 };
        let last = streams[at];
        let window = (u64::from(last.window) * 2).max(FIRST_PAGES).min(limit.max(1));
        let start = last.next;
        let stop = start.saturating_add(window).min(end).max(start);
        // If the reader found the whole last window here, its fetch may still wait.
        let waiting = few(u64::from(last.waiting) + (stop - start));
        streams[at] = Stream { next: stop, used, window: few(window), waiting };
        self.set_mark(at, &streams[at], 0, end);
        start..stop
    }

    fn begin(&self, run: &Range<u64>) -> Range<u64> {
        let mut streams = self.streams.lock();
        let mut each = streams.iter_mut().map(|stream| (stream.waiting_part(run), stream));
        let Some((part, stream)) = each.find(|(part, _)| !part.is_empty()) else {
            return 0..0;
        };
        // Windows returned before this one are late: the reader that reaches them fetches them.
        stream.waiting = few(stream.next - part.end);
        part
    }

    /// Marks the page in the middle of the last window, but none before `first`.
    fn set_mark(&self, at: usize, stream: &Stream, first: u64, end: u64) {
        let mark = match stream.window {
            0 => NONE,
            _ if stream.next >= end => NONE,
            window => {
                let half = u64::from(window / 2);
                (stream.next - half.clamp(1, stream.next.max(1))).max(first)
            }
        };
        // ORDERING: Relaxed; a hint (`is_marked`), and under the lock.
        self.marks[at].store(mark, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: u64 = 64;

    /// Reads `pages` one by one, fetching as the streams say. Returns the pages of each fetch.
    fn read(streams: &Streams, pages: impl Iterator<Item = u64>, end: u64) -> Vec<u64> {
        let mut here = std::collections::HashSet::new();
        let mut fetches = Vec::new();
        for page in pages {
            if !here.contains(&page) {
                let run = streams.missed(page..page + 1, LIMIT, end).0;
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
        let streams = Streams::default();
        let fetches = read(&streams, 0..1000, 1000);
        assert_eq!(fetches[..5], [4, 8, 16, 32, 64]);
        assert!(fetches.len() < 25, "{fetches:?}");
        assert_eq!(fetches.iter().sum::<u64>(), 1000, "every page once, none beyond the end");
    }

    #[test]
    fn a_random_reader_is_given_what_it_asks_for() {
        let streams = Streams::default();
        let pages = (1..200u64).map(|at| at * 7919 % 100_000 + 2);
        assert!(read(&streams, pages, 200_000).iter().all(|&count| count == 1));
    }

    #[test]
    fn a_stream_that_begins_in_the_middle_is_seen_at_its_second_page() {
        let streams = Streams::default();
        let fetches = read(&streams, 500..600, 100_000);
        assert_eq!(fetches[..3], [1, 4, 8]);
        assert!(fetches.len() < 9);
    }

    /// Once, the reader began a stream of its own there, of one page, and the late thread fetched all pages again.
    #[test]
    fn a_reader_that_comes_before_its_window_is_fetched_takes_it_over() {
        let streams = Streams::default();
        assert_eq!(streams.missed(0..1, LIMIT, 1000).0, 0..4);
        let late = streams.came_to_mark(2..3, LIMIT, 1000);
        assert_eq!(late, 4..12);
        assert_eq!(streams.missed(4..5, LIMIT, 1000).0, 4..12);
        assert!(!streams.is_waiting(&late) && streams.begin(&late).is_empty(), "the reader has it");
        // It continues as if the fetch had been in time.
        assert!(streams.is_marked(&(8..9)));
        let next = streams.came_to_mark(8..9, LIMIT, 1000);
        assert_eq!(next, 12..28);
        assert!(streams.is_waiting(&next));
        assert_eq!(streams.begin(&next), next);
        assert!(streams.begin(&next).is_empty());
        // Its fetch has begun. A miss all the same is of this stream.
        assert_eq!(streams.missed(12..13, LIMIT, 1000).0, 12..28);
        assert_eq!(streams.missed(20..21, 4, 1000).0, 20..24);
        assert!(streams.is_marked(&(20..21)), "it continues");
    }

    /// A reader that was faster than one window took it over, and all others that waited were forgotten: it fetched
    /// every window itself, and waited for each.
    #[test]
    fn a_reader_that_takes_a_window_over_leaves_the_others_to_their_threads() {
        let streams = Streams::default();
        streams.missed(0..1, 8, 1000);
        let one = streams.came_to_mark(2..3, 64, 1000);
        let other = streams.came_to_mark(8..9, 64, 1000);
        assert_eq!((one, &other), (4..12, &(12..28)));
        assert_eq!(streams.missed(4..5, 8, 1000).0, 4..12);
        assert!(streams.is_waiting(&(12..20)) && streams.is_waiting(&(20..28)));
        assert_eq!(streams.missed(12..14, 8, 1000).0, 12..20);
        assert!(!streams.is_waiting(&(12..20)));
        assert_eq!(streams.begin(&other), 20..28);
        assert!(!streams.is_waiting(&other));
    }

    /// A reader that finds every page here reaches marks before the last window is fetched.
    #[test]
    fn windows_that_wait_are_begun_in_any_order() {
        let handed = || {
            let streams = Streams::default();
            streams.missed(0..1, LIMIT, 1000);
            let one = streams.came_to_mark(2..3, LIMIT, 1000);
            let other = streams.came_to_mark(8..9, LIMIT, 1000);
            assert_eq!((&one, &other), (&(4..12), &(12..28)));
            (streams, one, other)
        };
        let (streams, one, other) = handed();
        assert_eq!((streams.begin(&one), streams.begin(&other)), (4..12, 12..28));
        let (streams, one, other) = handed();
        assert_eq!((streams.begin(&other), streams.begin(&one)), (12..28, 0..0), "it is late");
        let (streams, one, other) = handed();
        assert_eq!(streams.missed(6..7, LIMIT, 1000).0, 6..28, "all that was not begun");
        assert!(streams.begin(&one).is_empty() && streams.begin(&other).is_empty());
        let (streams, ..) = handed();
        assert_eq!(streams.missed(6..7, 8, 1000).0, 6..14, "within the limit");
        assert_eq!(streams.missed(14..15, 8, 1000).0, 14..22, "where it goes on");
    }

    #[test]
    fn three_streams_do_not_spoil_each_other() {
        let streams = Streams::default();
        let pages = (0..3000u64).map(|at| at % 3 * 100_000 + at / 3);
        let fetches = read(&streams, pages, 1 << 40);
        assert!(fetches.len() < 80, "{} fetches", fetches.len());
    }

    /// 10,000 small open files took 180 bytes each for streams that none of them ever had.
    #[test]
    fn a_file_that_ends_within_the_first_window_has_no_streams() {
        let streams = Streams::default();
        assert_eq!(streams.missed(0..1, LIMIT, 4), (0..4, false));
        assert_eq!(streams.missed(1..2, LIMIT, 4), (1..2, false));
        assert_eq!(streams.missed(0..1, 2, 4), (0..2, false), "within the limit");
        assert_eq!(streams.missed(2..9, LIMIT, 4), (2..4, false));
        assert!(!streams.is_made() && !streams.is_marked(&(0..4)));
        assert_eq!(streams.came_to_mark(0..4, LIMIT, 4), 0..0);
        // It grew.
        assert_eq!(streams.missed(0..1, LIMIT, 5), (0..4, true));
        assert_eq!(streams.missed(4..5, LIMIT, 5), (4..5, false));
        assert!(streams.is_made());
    }

    /// A kernel asks for 1 MiB and already for the next one. If the second came first, or the window was still smaller
    /// than a request, each request was a new stream, and nothing was read ahead.
    #[test]
    fn large_requests_of_one_reader_are_one_stream_in_any_order() {
        const PIECE: u64 = 256;
        let streams = Streams::default();
        let ask = |at: u64| streams.missed(at * PIECE..(at + 1) * PIECE, LIMIT, 1 << 20).0;
        for at in [0, 2, 1, 3] {
            assert_eq!(ask(at), at * PIECE..(at + 1) * PIECE);
        }
        assert!(streams.is_marked(&(3 * PIECE..4 * PIECE)));
        let ahead = streams.came_to_mark(3 * PIECE..4 * PIECE, 4 * PIECE, 1 << 20);
        assert_eq!(ahead, 4 * PIECE..6 * PIECE);
        assert_eq!(streams.begin(&(4 * PIECE..5 * PIECE)), 4 * PIECE..5 * PIECE);
        assert_eq!(ask(5), 5 * PIECE..6 * PIECE);
        let ahead = streams.came_to_mark(5 * PIECE..6 * PIECE, 4 * PIECE, 1 << 20);
        assert_eq!(ahead, 6 * PIECE..10 * PIECE, "it grows");
    }

    #[test]
    fn what_is_wanted_is_fetched_even_beyond_the_limit() {
        let streams = Streams::default();
        assert_eq!(streams.missed(10..200, LIMIT, 1000).0, 10..200);
        assert_eq!(streams.missed(999..1001, LIMIT, 1000).0, 999..1000);
    }
}
