//! Buckets, in a build with them.

use crate::Failure;
use std::sync::Arc;
use uvfs_object::s3::S3Store;
use uvfs_object::{ObjectBackend, ObjectConfig};
use uvfs_vfs::{Vfs, VfsConfig};

pub(crate) use uvfs_object::s3::Address;

/// A bucket that was found to be one that can be listed.
#[derive(Debug)]
pub(crate) struct OpenBucket {
    /// Where it is.
    pub(crate) address: Address,
    /// The store at that address.
    store: S3Store,
}

/// The bucket in `rest`, the text after `s3:`. An error shows no secret parts of it.
pub(crate) fn parse(rest: &[u8]) -> Result<Address, Failure> {
    let text = std::str::from_utf8(rest);
    let text = text.map_err(|_| Failure::refused("source s3: not UTF-8; keys are"))?;
    let variable = |name: &str| std::env::var(name).ok();
    Address::parse(text, variable).map_err(|why| Failure::refused(format!("source s3: {why}")))
}

impl OpenBucket {
    /// Asks for the bucket. Blocks.
    ///
    /// # Errors
    /// Why it cannot be used, with a remedy.
    pub(crate) fn connect(address: Address) -> Result<Self, Failure> {
        let store = S3Store::connect(&address).map_err(|error| {
            let (name, remedy) = (address.name(), error.remedy());
            Failure::refused(format!("source {name}: {error}; {remedy}"))
        })?;
        Ok(Self { address, store })
    }

    /// The file system of it.
    ///
    /// # Errors
    /// Those of [`Vfs::new`].
    pub(crate) fn mount(self, read_only: bool, config: VfsConfig) -> uvfs_vfs::Result<Arc<Vfs>> {
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let caches = config.cache_bytes.saturating_sub(config.overhead_bytes);
        let objects = ObjectConfig {
            prefix: self.address.prefix,
            owner,
            read_only,
            upload_bytes_max: (caches / 8).min(ObjectConfig::default().upload_bytes_max),
            ..ObjectConfig::default()
        };
        Vfs::new(ObjectBackend::new(self.store, objects), config)
    }
}
