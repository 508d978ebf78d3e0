//! Buckets, in a build without them: each is refused, with the feature that brings them.

use crate::Failure;
use std::convert::Infallible;
use std::sync::Arc;
use uvfs_vfs::{Vfs, VfsConfig};

/// There is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address(Infallible);

/// There is none.
#[derive(Debug)]
pub(crate) struct OpenBucket {
    /// Where it would be.
    pub(crate) address: Address,
}

/// Refuses.
pub(crate) fn parse(_: &[u8]) -> Result<Address, Failure> {
    Err(Failure::refused(
        "source s3: this uvfs was built without the feature `s3`; install one with it: \
         cargo install --locked --path crates/cli --features s3",
    ))
}

impl Address {
    pub(crate) fn name(&self) -> String {
        match self.0 {}
    }

    pub(crate) fn port(&self) -> u16 {
        match self.0 {}
    }
}

impl OpenBucket {
    pub(crate) fn connect(address: Address) -> Result<Self, Failure> {
        match address.0 {}
    }

    pub(crate) fn mount(self, _: bool, _: VfsConfig) -> uvfs_vfs::Result<Arc<Vfs>> {
        match self.address.0 {}
    }
}
