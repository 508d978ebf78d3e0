//! Pages for which an `fsync` waits, and the errors of the runs that write them.
//!
//! # Boundary
//! The order of the steps. The caller owns the tags of pages and the error count, and writes the runs.
//!
//! # Protocol
//! A page that waits to be written is *dirty*. A run makes its pages *written* while the store has them; they are not
//! dirty then. An `fsync` *marks* the dirty pages, writes the marked ones, and waits for pages that other threads
//! write.
//!
//! W2. A run makes its pages written before it clears dirty: between the two steps a page is both, and never neither.
//! W3. A run that failed leaves its pages dirty.
//! W4. A run that failed makes its pages dirty, then notes its error, then ends their state *written*. Say a thread
//!     read the count of errors, and then finds a page neither dirty nor being written. If the page did not arrive, the
//!     thread finds a new count.
//! W5. A run that arrived counts its pages as stored, then ends their state *written*: an `fsync` that waited for them
//!     finds them counted.
//!
//! Why W4 needs that order: a page that was dirty again before its error was noted is written by an `fsync` that marks
//! after that. An `fsync` that marks before it read the old count, and waits until the new one is there. With the error
//! noted first, an `fsync` between the two steps finds a new count, no dirty page, and then none being written: success
//! for a page that had failed.
//!
//! Progress: an `fsync` ends with the runs that were in progress, and writes a page at most twice.
//! Checked by `model_an_fsync_beside_a_run_that_fails`, `model_an_fsync_finds_arrived_pages_counted` and others.

/// The pages of one file, as an `fsync` sees them.
pub trait Marked {
    /// The number of errors noted so far.
    fn errors(&self) -> u64;

    /// Marks every page that is dirty.
    fn mark_dirty(&self);

    /// The first marked page from `from` on.
    fn next_marked(&self, from: u64) -> Option<u64>;

    /// Writes a run of marked pages from `first` on, unless other threads have. Returns the index behind it, and
    /// whether it failed.
    fn write_run(&self, first: u64) -> (u64, bool);

    /// Waits for all pages that are being written when the call begins. Returns whether there were any.
    fn wait_for_runs(&self) -> bool;
}

/// A run of pages that is about to be written to the store.
pub trait Begin {
    /// Makes its pages being written.
    fn make_written(&mut self);

    /// Makes them neither dirty nor marked.
    fn clear_dirty(&mut self);
}

/// A run that the store did not take.
pub trait Fail {
    /// Makes its pages dirty again.
    fn make_dirty(&mut self);

    /// Notes the error.
    fn note_error(&mut self);

    /// Ends the state *written* of its pages, and wakes the threads that wait for that.
    fn end(&mut self);
}

/// A run of pages that the store took.
pub trait Arrive {
    /// Counts its pages as stored.
    fn count(&mut self);

    /// Ends the state *written* of its pages, and wakes the threads that wait for that.
    fn end(&mut self);
}

/// Writes the pages that are dirty when the call begins, and waits for those that other threads write. Stops after
/// `failures_max` failed runs. False if a page did not arrive: its error is noted.
pub fn write_marked(pages: &impl Marked, failures_max: usize) -> bool {
    let errors = pages.errors();
    let mut failures = 0;
    // Pages that another thread's run wrote in the first round, and that failed, are dirty in the second.
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
        // Remaining marks stay: another `fsync` may have made them. A stale mark only causes an early write.
        let waited = pages.wait_for_runs();
        // A run that failed before this thread waited for it has noted its error (W4).
        if !(waited || pages.errors() != errors) || failures > 0 {
            break;
        }
    }
    pages.errors() == errors
}

/// Begins `run`, which is about to be written to the store; its pages are locked (W2).
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

/// The store took `run` (W5).
pub fn arrive(run: &mut impl Arrive) {
    run.count();
    run.end();
}
