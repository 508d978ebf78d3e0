//! Floor: property. Random operations, one after the other, each compared with a simple model.
//!
//! * The core over the memory store, against a naive tree ([`tree`]).
//! * The core over a host directory, against system calls on another directory of the same host.
//! * The naive tree against the host, too: a wrong model proves nothing.
//!
//! Each step compares the errno and the whole result of the operation; the end compares everything.
//! proptest shrinks a failure to few operations and prints them; `PROPTEST_CASES` sets their
//! number.

mod core;
mod host;
mod operation;
mod tree;

use self::core::CoreWorld;
use host::HostWorld;
use operation::{Operation, World, operations};
use proptest::prelude::*;
use std::time::Duration;
use tree::TreeWorld;
use uvfs_backends::directory::{DirectoryBackend, DirectoryConfig};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_tests::{Watchdog, tiny};
use uvfs_vfs::{Vfs, VfsConfig};

fn config(cases: u32) -> ProptestConfig {
    let cases =
        std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(cases);
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_time: 20_000,
        ..Default::default()
    }
}

fn memory(config: VfsConfig) -> CoreWorld {
    let memory = MemoryBackend::new(MemoryConfig::default()).unwrap();
    CoreWorld::new(Vfs::new(memory, config).unwrap())
}

fn compare(
    operations: &[Operation],
    mut one: impl World,
    mut other: impl World,
) -> Result<(), TestCaseError> {
    for (step, operation) in operations.iter().enumerate() {
        let (seen, expected) = (one.apply(operation), other.apply(operation));
        prop_assert_eq!(seen, expected, "step {}: {:?}", step, operation);
    }
    prop_assert_eq!(one.everything(), other.everything(), "at the end");
    Ok(())
}

proptest! {
    #![proptest_config(config(150))]

    #[test]
    fn memory_with_default_caches_is_the_naive_tree(operations in operations()) {
        let _watchdog = Watchdog::new(Duration::from_secs(60));
        compare(&operations, memory(VfsConfig::default()), TreeWorld::new())?;
    }

    #[test]
    fn memory_with_tiny_caches_is_the_naive_tree(operations in operations()) {
        let _watchdog = Watchdog::new(Duration::from_secs(60));
        let config = VfsConfig { negative_timeout: Duration::ZERO, ..tiny() };
        compare(&operations, memory(config), TreeWorld::new())?;
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn a_host_directory_is_the_host(operations in operations()) {
        let _watchdog = Watchdog::new(Duration::from_secs(60));
        for config in [VfsConfig::default(), tiny()] {
            let Some(host) = HostWorld::new() else { return Ok(()) };
            let directory = tempfile::tempdir().unwrap();
            let backend = DirectoryBackend::open(directory.path(), DirectoryConfig::default());
            let core = CoreWorld::new(Vfs::new(backend.unwrap(), config).unwrap());
            compare(&operations, core, host)?;
        }
    }

    #[test]
    fn the_naive_tree_is_the_host(operations in operations()) {
        let _watchdog = Watchdog::new(Duration::from_secs(60));
        let Some(host) = HostWorld::new() else { return Ok(()) };
        compare(&operations, TreeWorld::new(), host)?;
    }
}
