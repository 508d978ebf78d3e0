//! The duration of a test.

use std::time::Duration;

/// The duration of a test without a natural end: `normal`, or the seconds of `UVFS_STRESS_SECONDS`
/// (`cargo xtask stress` sets it).
pub fn length(normal: Duration) -> Duration {
    let given = std::env::var("UVFS_STRESS_SECONDS").ok();
    given.and_then(|text| text.parse().ok()).map_or(normal, Duration::from_secs)
}

/// Whether this is a long run.
pub fn is_long() -> bool {
    std::env::var_os("UVFS_STRESS_SECONDS").is_some()
}
