//! The kernel's idea of the end of a file: which writes of an appending descriptor append.
//!
//! # Boundary
//! One word for each node id. Knows sizes that were sent and written, and neither the store nor the kernel.
//!
//! # Concurrency
//! Plain data under the lock of the node's shard.
//!
//! E1. A certain end is never above the kernel's own. The kernel writes and sets sizes under the lock of the file, one
//!     at a time: when it sends the next write, its end is at or behind those of all writes before.
//! E2. A larger size in a reply makes the end uncertain: the kernel may take it, or may just then send a write with its old
//!     end. A smaller one is certain: whichever end the kernel takes, it is not below that size.
//! E3. An uncertain end is certain again at the end of the next write. It is also certain when a file is opened for
//!     appending, at the last size sent: a kernel asks for attributes that it does not trust before it opens.
//!
//! # Why
//! A write of an O_APPEND descriptor has the kernel's end as its offset. The store's end may be behind it, if others
//! append: so the store appends at its own end. But a program can request one write at an offset (RWF_NOAPPEND), which
//! no flag of the request shows. A write is of that kind if its offset is before the kernel's end, and this module
//! decides that. In doubt a write appends: an append overwrites nothing. Weakness: while the end is uncertain,
//! RWF_NOAPPEND at or behind it appends. E3 takes the reply to another program's `stat` as received, although that
//! program may have to be scheduled first.

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelEnd(u64);

/// Sizes are below 2^63.
const UNCERTAIN: u64 = 1 << 63;

impl KernelEnd {
    /// The kernel's end is `size`.
    pub(crate) fn at(size: u64) -> Self {
        Self(size & !UNCERTAIN)
    }

    /// Whether this is `size`, for certain.
    pub(crate) fn is_at(self, size: u64) -> bool {
        self.0 == size
    }

    /// Whether `offset` is surely before the kernel's end.
    pub(crate) fn is_behind(self, offset: u64) -> bool {
        self.0 & UNCERTAIN == 0 && offset < self.0
    }

    /// The kernel is shown `size` (E2).
    pub(crate) fn shown(&mut self, size: u64) {
        let uncertain = if size > self.0 { UNCERTAIN } else { self.0 & UNCERTAIN };
        self.0 = Self::at(size).0 | uncertain;
    }

    /// The kernel has written up to `end` (E1, E3).
    pub(crate) fn reaches(&mut self, end: u64) {
        let end = Self::at(end);
        let behind = self.0 & UNCERTAIN == 0 && self.0 > end.0;
        *self = if behind { *self } else { end };
    }

    /// The kernel may not know the last change of it.
    pub(crate) fn doubt(&mut self) {
        self.0 |= UNCERTAIN;
    }

    /// The file is opened for appending, and the store's size is `size` (E3).
    pub(crate) fn agrees(&mut self, size: u64) {
        if self.0 == size | UNCERTAIN {
            *self = Self::at(size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bug: RWF_NOAPPEND was ignored. Only the offset shows which writes of an O_APPEND descriptor append. An offset
    /// that may be the kernel's end, also an old one, must always count as an append.
    #[test]
    fn an_offset_is_before_the_end_only_if_every_end_that_the_kernel_may_know_is_behind_it() {
        let mut end = KernelEnd::at(12);
        assert!(end.is_behind(11) && !end.is_behind(12));
        end.shown(12);
        assert!(end.is_behind(11));
        // Others append 10 bytes: the kernel may know of it, or continue from 12.
        end.shown(22);
        assert!(!end.is_behind(12) && !end.is_behind(0) && !end.is_at(22));
        // The kernel continues from 12, and its end is then 17.
        end.reaches(17);
        assert!(end.is_behind(16) && !end.is_behind(17));
        end.reaches(5);
        assert!(end.is_behind(16), "a write before the end moves it not");
        // Cut, and shown so.
        end.shown(3);
        assert!(end.is_behind(2) && !end.is_behind(3));
        // Written past us, shown, and opened to be appended to.
        end.shown(40);
        end.agrees(50);
        assert!(!end.is_behind(2), "others have appended since");
        end.agrees(40);
        assert!(end.is_behind(39) && !end.is_behind(40));
        // Uncertain ends stay so when smaller sizes are shown.
        end.shown(60);
        end.shown(50);
        assert!(!end.is_behind(39));
    }
}
