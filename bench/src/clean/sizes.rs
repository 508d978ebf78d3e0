//! How large everything is, and how the cases are named.
//!
//! # Why
//! Each case is named by its true size, so that no line of a quick run is mistaken for one of a full run.

/// How large everything is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Files in each directory: this many, and four more steps.
    pub(super) files: u64,
    /// Added in each step.
    pub(super) files_step: u64,
    /// Bytes of a file, where bytes are cached.
    pub(super) file_bytes: u64,
    /// Files in each directory, where bytes are cached: this many, and four more steps.
    pub(super) whole_files: u64,
    /// Added in each step.
    pub(super) whole_files_step: u64,
    /// The wait of a lookup that reaches the simulated store in the timed pass, in nanoseconds.
    pub(super) lookup_wait_ns: u64,
    /// The wait for each page that is read, in nanoseconds.
    pub(super) page_wait_ns: u64,
    /// Names below the cleaned directory.
    pub(super) below: [u64; 2],
    /// Names outside of it.
    pub(super) outside: u64,
    /// Samples of how soon a cleaning takes effect.
    pub(super) effects: usize,
    /// Samples of the percentile, and milliseconds for which it is watched while nothing is cleaned.
    pub(super) watches: usize,
    pub(super) watch_ms: u64,
    /// Files in each directory that rivals clean, and pages of each of them.
    pub(super) rival_files: u64,
    pub(super) rival_pages: u64,
    /// Steps of the sweep that mounts and the kernel's caches take part in.
    pub(super) pressed_steps: &'static [u64],
    /// Runs of each cell.
    pub(super) runs: usize,
}

pub(super) const FULL: Sizes = Sizes {
    files: 180_000,
    files_step: 20_000,
    file_bytes: 1 << 20,
    whole_files: 180,
    whole_files_step: 20,
    lookup_wait_ns: 50_000,
    page_wait_ns: 8_000,
    below: [100, 1_000_000],
    outside: 100_000,
    effects: 25,
    watches: 9,
    watch_ms: 500,
    rival_files: 20_000,
    rival_pages: 8,
    pressed_steps: &[0, 1, 2, 3, 4],
    runs: 3,
};
/// A tenth.
pub(super) const QUICK: Sizes = Sizes {
    files: 18_000,
    files_step: 2_000,
    file_bytes: 256 << 10,
    whole_files: 72,
    whole_files_step: 8,
    below: [100, 100_000],
    outside: 10_000,
    watches: 5,
    watch_ms: 200,
    rival_files: 2_000,
    pressed_steps: &[0, 4],
    ..FULL
};
/// The figures mean nothing.
pub(super) const TINY: Sizes = Sizes {
    files: 900,
    files_step: 100,
    file_bytes: 64 << 10,
    whole_files: 18,
    whole_files_step: 2,
    lookup_wait_ns: 1_000,
    page_wait_ns: 100,
    below: [10, 1_000],
    outside: 500,
    effects: 3,
    watches: 1,
    watch_ms: 5,
    rival_files: 50,
    rival_pages: 2,
    pressed_steps: &[4],
    runs: 1,
};

/// Steps of a sweep.
pub(super) const STEPS: u64 = 5;

impl Sizes {
    /// Files in each directory.
    pub(super) fn files_at(&self, step: u64) -> u64 {
        self.files + step * self.files_step
    }

    /// Files in each directory, where bytes are cached.
    pub(super) fn whole_files_at(&self, step: u64) -> u64 {
        self.whole_files + step * self.whole_files_step
    }

    /// Bytes in each directory, where bytes are cached.
    pub(super) fn bytes_at(&self, step: u64) -> u64 {
        self.whole_files_at(step) * self.file_bytes
    }
}

/// Whether `2` is cleaned before `3` is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Plain,
    Cleaned,
}

impl Way {
    pub(super) const ALL: [Way; 2] = [Way::Plain, Way::Cleaned];

    /// Word in the names of cases.
    pub(super) fn name(self) -> &'static str {
        match self {
            Way::Plain => "plain",
            Way::Cleaned => "cleaned",
        }
    }
}

/// The time of a second pass over directories of `files` files.
pub(super) fn names_case(files: u64, way: Way) -> String {
    format!("reaccess-{files}-{}", way.name())
}

/// Name of the case of a pass over directories of `bytes` bytes.
pub(super) fn bytes_case(bytes: u64, way: Way) -> String {
    format!("reaccess-{}KiB-{}", bytes >> 10, way.name())
}

/// The accesses of that pass that reached the store.
pub(super) fn misses(case: &str) -> String {
    format!("{case}-misses")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_run_has_the_sizes_of_the_table() {
        let files: Vec<u64> = (0..STEPS).map(|step| FULL.files_at(step)).collect();
        assert_eq!(files, [180_000, 200_000, 220_000, 240_000, 260_000]);
        assert_eq!(names_case(200_000, Way::Plain), "reaccess-200000-plain");
        for sizes in [QUICK, TINY] {
            // The files that fit at the first step are a little more than two directories of the
            // last one.
            let share = 3.0 * sizes.files as f64 / sizes.files_at(STEPS - 1) as f64;
            assert!((2.0..2.15).contains(&share), "{sizes:?}");
            let share = 3.0 * sizes.bytes_at(0) as f64 / sizes.bytes_at(STEPS - 1) as f64;
            assert!((2.0..2.15).contains(&share), "{sizes:?}");
        }
    }
}
