//! Whether a dentry cache is consistent when it is no longer used.
//!
//! # Why
//! A cache that loses references is fast for the wrong reason. Every run ends with this check, so a variant's figures
//! come only from caches that were still right at the end.

use super::api::Dcache;
use super::slab::Slab;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// With nothing open: every count is that of the children, the LRU list holds exactly the dentries without any, no slot
/// is lost, and after pruning only the root is left.
///
/// # Errors
/// Describes the inconsistency.
pub(super) fn audit<D: Dcache>(dcache: &D) -> Result<(), String> {
    let slab = dcache.slab();
    let hashed = slab.hashed();
    let mut children: HashMap<_, u32> = HashMap::new();
    for id in &hashed {
        *children.entry(slab.at(*id).parent()).or_default() += 1;
    }
    for id in &hashed {
        let expected = children.get(&Some(*id)).copied().unwrap_or(0);
        equal("references of a dentry", slab.at(*id).count(), expected)?;
    }
    let unused = hashed.iter().filter(|id| slab.at(**id).count() == 0).count();
    equal("dentries in the LRU list", dcache.lru_count(), unused)?;
    slots(slab, "slots in use", hashed.len() + 1)?;
    dcache.shrink_dcache_parent(dcache.root());
    equal("hashed dentries after pruning", slab.hashed().len(), 0)?;
    equal("LRU entries after pruning", dcache.lru_count(), 0)?;
    slots(slab, "slots in use after pruning", 1)?;
    equal("references of the root", slab.at(dcache.root()).count(), 1)
}

/// How long a slot may be on its way back: another thread of the process may be in the middle of giving it.
const COME_BACK: Duration = Duration::from_secs(5);

/// A slot that is lost does not come back, however long one waits.
fn slots(slab: &Slab, what: &str, should: usize) -> Result<(), String> {
    let end = Instant::now() + COME_BACK;
    while slab.in_use() != should && Instant::now() < end {
        std::thread::yield_now();
    }
    equal(what, slab.in_use(), should)
}

fn equal<T: PartialEq + std::fmt::Display>(what: &str, is: T, should: T) -> Result<(), String> {
    match is == should {
        true => Ok(()),
        false => Err(format!("{what}: {is} instead of {should}")),
    }
}
