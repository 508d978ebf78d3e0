//! The lock classes of writing images, outermost first.
//!
//! # Boundary
//! One list, in the stores' band of ranks ([`uvfs_concurrent::lock_classes`]): no lock of a core is held when a store is
//! called. A device's classes are the innermost.

uvfs_concurrent::lock_classes! {
    /// A device in memory.
    EXT_MEMORY = 388, "ext-memory", "the bytes of an image in memory";
    /// A recorder.
    EXT_RECORD = 389, "ext-record", "what a test recorded of the writes to a device";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_rise_within_the_band() {
        assert!(ORDER.windows(2).all(|pair| pair[0].rank() < pair[1].rank()));
        assert!(ORDER.iter().all(|class| (290..400).contains(&class.rank())));
    }
}
