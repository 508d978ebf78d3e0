//! The acquisitions of the caches' locks, as the lock meter counts them.

use super::caches::CLASSES;
use uvfs_concurrent::lock::meter::{self, ClassReport};

/// Acquisitions of the caches' locks since `before`, and how many of them found the lock held.
pub fn contended(before: &[ClassReport]) -> (u64, u64) {
    let classes = meter::difference(&meter::snapshot(), before);
    let of_caches = classes.iter().filter(|class| class.class.starts_with(CLASSES));
    of_caches.fold((0, 0), |(acquisitions, contended), class| {
        let totals = &class.totals;
        (acquisitions + totals.acquisitions, contended + totals.contended)
    })
}
