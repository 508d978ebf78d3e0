//! Appends that are made stable, alone and beside a stream.
//!
//! # What the figures mean
//! One client appends 4 KiB and calls fsync(2); the time of both is one sample. Beside it another client writes a new
//! file in pieces of 1 MiB and calls fsync(2) at its end. The appends last exactly as long as the stream.
//!
//! # Why
//! This is the load of Peacock (1992): requests that a program waits for, behind a flood of requests that no program
//! waits for. Weakness: a stream lasts a second, so the tail beside it is that of some hundred appends.

use super::MIB;
use crate::context;
use crate::report::Unit;
use std::fs::{File, OpenOptions};
use std::hint::black_box;
use std::io::{self, Write};
use std::path::Path;
use std::thread;
use std::time::Instant;

/// Rows, with one client and with two.
pub(super) const ALONE_P50: &str = "append-alone-p50";
pub(super) const ALONE_P99: &str = "append-alone-p99";
pub(super) const P50: &str = "append-beside-p50";
pub(super) const P99: &str = "append-beside-p99";
pub(super) const STREAM: &str = "beside-stream";

/// A row's case, clients, unit and value.
pub(super) type Sample = (&'static str, usize, Unit, f64);

/// Measures `alone` appends in `folder`, and those beside a stream of `bytes`.
pub(super) fn measure(folder: &Path, alone: usize, bytes: u64) -> io::Result<Vec<Sample>> {
    let path = folder.join("log-alone");
    let log = OpenOptions::new().append(true).create_new(true).open(&path);
    let mut log = log.map_err(context(path.display()))?;
    let mut left = alone;
    let times = append(&mut log, || {
        left -= 1;
        left == 0
    })?;
    let mut samples = percentiles(times, [ALONE_P50, ALONE_P99], 1);
    let (times, seconds) = thread::scope(|scope| {
        let stream = scope.spawn(|| stream(&folder.join("stream"), bytes));
        let times = append(&mut log, || stream.is_finished());
        let crashed = |_| Err(io::Error::other("the stream panicked"));
        Ok::<_, io::Error>((times?, stream.join().unwrap_or_else(crashed)?))
    })?;
    samples.extend(percentiles(times, [P50, P99], 2));
    let rate = bytes as f64 / MIB as f64 / seconds;
    samples.push((STREAM, 2, Unit::MebibytesPerSecond, rate));
    Ok(samples)
}

/// Touches so much memory and frees it. A virtual machine gets memory from its host at the first touch, which is slow:
/// without this, the first system of a run pays for it.
pub(super) fn touch_memory(bytes: usize) {
    black_box(vec![1_u8; bytes]);
}

/// Appends to `log` until `is_last` says so after one of them. Returns the times in microseconds.
fn append(log: &mut File, mut is_last: impl FnMut() -> bool) -> io::Result<Vec<f64>> {
    let mut times = Vec::new();
    loop {
        let begin = Instant::now();
        log.write_all(&[1; 4096])?;
        log.sync_all()?;
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        if is_last() {
            return Ok(times);
        }
    }
}

/// Writes a new file of `bytes`; returns the seconds.
fn stream(path: &Path, bytes: u64) -> io::Result<f64> {
    let begin = Instant::now();
    let mut file = File::create(path).map_err(context(path.display()))?;
    let piece = vec![7; MIB];
    for _ in 0..bytes / MIB as u64 {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    Ok(begin.elapsed().as_secs_f64())
}

/// The median of `times` and the time that one in a hundred exceeds.
fn percentiles(mut times: Vec<f64>, rows: [&'static str; 2], clients: usize) -> Vec<Sample> {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    let values = [at(50), at(99)];
    rows.into_iter()
        .zip(values)
        .map(|(row, value)| (row, clients, Unit::Microseconds, value))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appends_last_as_long_as_the_stream() {
        let folder = std::env::temp_dir().join(format!("uvfs-bench-beside-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let samples = measure(&folder, 3, 2 << 20).unwrap();
        let rows: Vec<_> = samples.iter().map(|sample| sample.0).collect();
        assert_eq!(rows, [ALONE_P50, ALONE_P99, P50, P99, STREAM]);
        assert!(samples.iter().all(|sample| sample.3 > 0.0), "{samples:?}");
        assert!(folder.join("log-alone").metadata().unwrap().len() >= 4 * 4096);
        assert_eq!(folder.join("stream").metadata().unwrap().len(), 2 << 20);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn one_in_a_hundred_exceeds_the_tail() {
        let times = (0..1000).rev().map(f64::from).collect();
        let values: Vec<_> =
            percentiles(times, [P50, P99], 2).into_iter().map(|row| row.3).collect();
        assert_eq!(values, [500.0, 990.0]);
        assert_eq!(percentiles(vec![3.0], [P50, P99], 2)[1].3, 3.0);
    }
}
