//! The free frames of a group of rows, and the number of its frames that may have memory.
//!
//! # Boundary
//! Numbers under one lock a group. Only the caller has a frame that it took. [`super`] returns memory to the system and
//! counts it.
//!
//! # Why
//! The seed's buffer cache: rows share the frames of a group. If there are fewer frames than all rows could use,
//! the frames are with the rows that use them. A hit does not touch this. Weakness: after the limit was lowered it
//! rises by one for each [`REFUSALS`] misses that found no frame, whether or not memory is available again.

/// The number of misses without a frame after which one more frame may have memory.
const REFUSALS: u32 = 8;

/// The free frames of one group.
#[derive(Debug)]
pub(super) struct Free {
    /// Frames that have memory.
    in_place: Vec<u32>,
    /// Frames that have none, the next one last.
    absent: Vec<u32>,
    frames: usize,
    rows: usize,
    /// The number of frames that may have memory, in use or not.
    limit: usize,
    refusals: u32,
}

/// The outcome of taking a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    InPlace(u32),
    /// It has no memory yet; the first access allocates it.
    Absent(u32),
    /// There is none; a row's share is `share` frames.
    Nothing {
        share: usize,
    },
}

impl Free {
    /// The `frames` frames from `first` on, shared by `rows` rows; none of them has memory.
    pub(super) fn new(first: u32, frames: usize, rows: usize) -> Self {
        let absent = (first..first + frames as u32).rev().collect();
        let in_place = Vec::with_capacity(frames);
        Self { in_place, absent, frames, rows, limit: frames, refusals: 0 }
    }

    /// The number of frames that have memory.
    fn present(&self) -> usize {
        self.frames - self.absent.len()
    }

    pub(super) fn take(&mut self) -> Taken {
        if let Some(frame) = self.in_place.pop() {
            return Taken::InPlace(frame);
        }
        if self.present() < self.limit
            && let Some(frame) = self.absent.pop()
        {
            return Taken::Absent(frame);
        }
        self.refusals += 1;
        if self.refusals.is_multiple_of(REFUSALS) && self.limit < self.frames {
            self.limit += 1;
        }
        Taken::Nothing { share: self.limit / self.rows }
    }

    /// A frame with memory, if one is free.
    pub(super) fn take_in_place(&mut self) -> Option<u32> {
        self.in_place.pop()
    }

    /// Frees a frame that has memory.
    pub(super) fn put(&mut self, frame: u32) {
        self.in_place.push(frame);
    }

    /// Frees a frame whose memory was returned, and lowers the limit. From now on no more frames than now may have
    /// memory, but at least one for each row.
    pub(super) fn put_absent(&mut self, frame: u32) {
        self.absent.push(frame);
        self.limit = self.present().max(self.rows);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_limit_falls_with_what_is_given_back_and_rises_slowly() {
        let mut free = Free::new(10, 4, 2);
        let all: Vec<_> = (0..4).map(|_| free.take()).collect();
        assert_eq!(all, [10, 11, 12, 13].map(Taken::Absent));
        assert_eq!(free.take(), Taken::Nothing { share: 2 });
        free.put(11);
        assert_eq!(free.take(), Taken::InPlace(11));
        (10..13).for_each(|frame| free.put_absent(frame));
        // One frame has memory, and one for each row may have.
        assert_eq!((free.limit, free.take()), (2, Taken::Absent(12)));
        let refused = std::iter::repeat_with(|| free.take());
        let more = refused.take_while(|taken| matches!(taken, Taken::Nothing { .. })).count();
        assert_eq!((more, free.limit), (7, 3), "the first refusal was before the memory went");
    }
}
