//! How instructions and sets of cores are written.
//!
//! # Boundary
//! Values in, words out.
//!
//! # Why
//! Tables can be laid beside those of Gough, Siddha and Chen 2007. Weakness: all atomic bit operations are one word.

use uvfs_coherence::profile::{Operation, Ordering};

/// An instruction as the published tables write it: `ld8`, `ld4.acq`, `cmpxchg4.acq`, `fetchadd8.rlx`.
/// All atomic bit operations are `fetchor`.
pub fn instruction(operation: Operation, bytes: u32, ordering: Ordering) -> String {
    let name = match operation {
        Operation::Load | Operation::AtomicLoad => "ld",
        Operation::Store | Operation::AtomicStore => "st",
        Operation::FetchAdd => "fetchadd",
        Operation::FetchBits => "fetchor",
        Operation::Exchange => "xchg",
        Operation::CompareExchange => "cmpxchg",
    };
    let ordering = match ordering {
        Ordering::Plain => "",
        Ordering::Relaxed => ".rlx",
        Ordering::Acquire => ".acq",
        Ordering::Release => ".rel",
        Ordering::AcquireRelease => ".acqrel",
        Ordering::SequentiallyConsistent => ".sc",
    };
    match bytes {
        // Hardware samples do not say how many.
        0 => format!("{name}{ordering}"),
        _ => format!("{name}{bytes}{ordering}"),
    }
}

/// Adds the cores of `more` to `cores`.
pub(crate) fn unite(cores: &mut Vec<u64>, more: &[u64]) {
    if cores.len() < more.len() {
        cores.resize(more.len(), 0);
    }
    for (word, more) in cores.iter_mut().zip(more) {
        *word |= more;
    }
}

/// How many cores are in `cores`.
pub(crate) fn count_cores(cores: &[u64]) -> u32 {
    cores.iter().map(|word| word.count_ones()).sum()
}

/// Cores as ranges: `0-3,8`.
pub fn core_ranges(cores: &[u64]) -> String {
    let is_set =
        |core: usize| cores.get(core / 64).is_some_and(|word| word >> (core % 64) & 1 == 1);
    let mut ranges: Vec<String> = Vec::new();
    let mut core = 0;
    while core < cores.len() * 64 {
        if is_set(core) {
            let first = core;
            while is_set(core + 1) {
                core += 1;
            }
            ranges.push(match core - first {
                0 => first.to_string(),
                _ => format!("{first}-{core}"),
            });
        }
        core += 1;
    }
    ranges.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_written_as_in_the_paper() {
        use Operation as O;
        let shown = [
            instruction(O::Load, 8, Ordering::Plain),
            instruction(O::AtomicLoad, 4, Ordering::Acquire),
            instruction(O::Store, 4, Ordering::Plain),
            instruction(O::AtomicStore, 8, Ordering::Release),
            instruction(O::CompareExchange, 4, Ordering::Acquire),
            instruction(O::FetchAdd, 4, Ordering::Release),
            instruction(O::Exchange, 8, Ordering::SequentiallyConsistent),
            instruction(O::FetchBits, 8, Ordering::Acquire),
            instruction(O::FetchAdd, 8, Ordering::AcquireRelease),
            instruction(O::AtomicLoad, 1, Ordering::Relaxed),
        ];
        let expected = [
            "ld8",
            "ld4.acq",
            "st4",
            "st8.rel",
            "cmpxchg4.acq",
            "fetchadd4.rel",
            "xchg8.sc",
            "fetchor8.acq",
            "fetchadd8.acqrel",
            "ld1.rlx",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn cores_are_ranges() {
        assert_eq!(core_ranges(&[]), "");
        assert_eq!(core_ranges(&[0b1_0000_1111]), "0-3,8");
        assert_eq!(core_ranges(&[1 << 63, 0b11]), "63-65");
        let mut cores = vec![1];
        unite(&mut cores, &[2, 1]);
        assert_eq!((core_ranges(&cores), count_cores(&cores)), ("0-1,64".to_owned(), 3));
    }
}
