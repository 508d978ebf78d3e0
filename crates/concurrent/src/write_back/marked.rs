//! Pages that an `fsync` waits for, and the errors of the runs that write them.
//!
//! # Boundary
//! The order of the steps. What tags pages have, where errors are noted and how a run is written is the caller's.
//!
//! # Protocol
//! A page that waits to be written is *dirty*. A run makes its pages *written* while the store has them; they are not
//! dirty then. An `fsync` *marks* the dirty pages, writes what is marked, and waits for what others write.
//!
//! W2. A run makes its pages written before they are not dirty any more: between the two a page is both, and never neither.
//! W3. A run that failed leaves its pages dirty.
//! W4. A run that failed makes its pages dirty, then notes its error, then ends their being written. So a thread that
//!     read the count of errors, and then finds a page neither dirty nor being written, finds a new count if the page did
//!     not arrive.
//!
//! Why W4 needs that order: an `fsync` reads the count, marks what is dirty, and waits for what is being written. If it
//! marks after the page is dirty again, it writes the page itself. If it marks before, it read the count before the error
//! was noted; the page is being written until after that, so the wait ends with a new count. With the error noted first,
//! an `fsync` that comes between the note and the dirty page finds a count that is new already, no dirty page to
//! mark, and then none that is being written: it returned success for a page that had failed.
//!
//! Progress: an `fsync` ends with the runs that it met, and writes a page at most twice.
//! Checked by `model_an_fsync_beside_a_run_that_fails`, `model_two_fsyncs_and_a_store_that_fails_once`.

/// The pages of one file, as an `fsync` sees them.
pub trait Marked {
    /// How many errors were noted so far.
    fn errors(&self) -> u64;

    /// Marks every page that is dirty.
    fn mark_dirty(&self);

    /// The first page from `from` on that is marked.
    fn next_marked(&self, from: u64) -> Option<u64>;

    /// Writes a run of marked pages from `first` on, unless others have; the index behind it, and whether it failed.
    fn write_run(&self, first: u64) -> (u64, bool);

    /// Waits for all pages that are being written when the call begins. Whether there were any.
    fn wait_for_runs(&self) -> bool;
}

/// A run of pages that is about to go to the store.
pub trait Begin {
    /// Makes its pages being written.
    fn make_written(&mut self);

    /// They are neither dirty nor marked any more.
    fn clear_dirty(&mut self);
}

/// A run that the store did not take.
pub trait Fail {
    /// Makes its pages dirty again.
    fn make_dirty(&mut self);

    /// Notes the error.
    fn note_error(&mut self);

    /// Ends its pages' being written, and wakes the threads that wait for that.
    fn end(&mut self);
}

/// Writes what is dirty when the call begins, and waits for what others are writing. Gives up after `failures_max` runs
/// that failed. False if any of it did not arrive: its error is noted.
pub fn write_marked(pages: &impl Marked, failures_max: usize) -> bool {
    let errors = pages.errors();
    let mut failures = 0;
    // Pages that others were writing in the first round, and failed to, are dirty in the second.
    for _ in 0..2 {
        pages.mark_dirty();
        let mut at = 0;
        while let Some(first) = pages.next_marked(at) {
            let (stop, failed) = pages.write_run(first);
            at = stop;
            failures += usize::from(failed);
            if failures >= failures_max {
                break;
            }
        }
        // Marks that are left stay: another `fsync` may have made them. A stale mark only causes an early write.
        let waited = pages.wait_for_runs();
        // A run that failed before this thread came to wait for it has noted its error (W4).
        if !(waited || pages.errors() != errors) || failures > 0 {
            break;
        }
    }
    pages.errors() == errors
}

/// `run` is about to go to the store; its pages are locked (W2).
pub fn begin(run: &mut impl Begin) {
    run.make_written();
    run.clear_dirty();
}

/// The store did not take `run` (W3, W4).
pub fn fail(run: &mut impl Fail) {
    run.make_dirty();
    run.note_error();
    run.end();
}
