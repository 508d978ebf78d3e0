//! A value alone on its cache lines.
//!
//! # Why
//! Two threads that write neighbouring words contend for the line that holds both. 128 bytes, not
//! 64: recent x86 cores fetch lines in pairs (Intel 64 and IA-32 Optimization Reference Manual,
//! "spatial prefetcher").

use std::ops::{Deref, DerefMut};

/// Aligns `T` to 128 bytes, so no other value shares its cache line or the neighbouring line.
#[derive(Debug, Default, Clone, Copy)]
#[repr(align(128))]
pub struct Padded<T>(pub T);

impl<T> Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Padded<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_do_not_share_a_line() {
        let pair = [Padded(0u64), Padded(0u64)];
        let distance = (&raw const pair[1]).addr() - (&raw const pair[0]).addr();
        assert_eq!(distance, 128);
    }
}
