//! The in-process API: a file system without a kernel in front.
//!
//! # Boundary
//! Paths, credentials and handles on top of [`crate::Vfs`]'s operations on nodes. The shape is that of
//! `openat(2)` and cap-std: everything starts at a [`Directory`] handle. There is no current
//! directory and no global state, and a caller's credentials are an argument.
//!
//! # Concurrency
//! Handles are `Send + Sync`. Calls may block on the store.

mod directory;
mod file;

pub use directory::{Directory, DirectoryEntry};
pub use file::{File, OpenOptions};

use crate::walk::{Resolve, Symlinks};

/// How a [`Directory`] handle resolves paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResolveMode {
    /// Where paths may lead.
    pub resolve: Resolve,
    /// Refuse every symbolic link on the way, also the last one.
    pub no_symlinks: bool,
}

impl ResolveMode {
    /// Only to objects below the directory (`RESOLVE_BENEATH`).
    pub const BENEATH: Self = Self { resolve: Resolve::Beneath, no_symlinks: false };
    /// The directory is the root of every path (`RESOLVE_IN_ROOT`).
    pub const IN_ROOT: Self = Self { resolve: Resolve::InRoot, no_symlinks: false };
    /// No symbolic links (`RESOLVE_NO_SYMLINKS`).
    pub const NO_SYMLINKS: Self = Self { resolve: Resolve::Anywhere, no_symlinks: true };

    fn symlinks(self, wanted: Symlinks) -> Symlinks {
        if self.no_symlinks { Symlinks::Refuse } else { wanted }
    }
}
