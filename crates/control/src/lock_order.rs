//! The lock classes of the control socket, outermost first.
//!
//! # Boundary
//! One list, in the frontends' band of ranks ([`uvfs_concurrent::lock_classes`]).

uvfs_concurrent::lock_classes! {
    in FRONTENDS;
    /// The open question to a source.
    SOURCE_PROBE = 3, "source-probe", "the pending question to the source, and the last answer";
    /// Paths of marked directories, for the control socket.
    POLICY_PATHS = 7, "policy-paths", "paths by which directories of a mount were marked";
}
