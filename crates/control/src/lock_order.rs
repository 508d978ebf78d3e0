//! The lock classes of the control socket, outermost first.
//!
//! # Boundary
//! One list, in the frontends' band of ranks ([`uvfs_concurrent::lock_classes`]).

uvfs_concurrent::lock_classes! {
    /// Paths of marked directories, for the control socket.
    POLICY_PATHS = 7, "policy-paths", "paths by which directories of a mount were marked";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_rise_within_the_band() {
        assert!(ORDER.windows(2).all(|pair| pair[0].rank() < pair[1].rank()));
        assert!(ORDER.iter().all(|class| (1..60).contains(&class.rank())));
    }
}
