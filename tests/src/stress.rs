//! How long a test goes on.

use std::time::Duration;

/// How long a test that could go on for ever does: `normal`, or as many seconds as
/// `UVFS_STRESS_SECONDS` says (`cargo xtask stress` sets it).
pub fn length(normal: Duration) -> Duration {
    let given = std::env::var("UVFS_STRESS_SECONDS").ok();
    given.and_then(|text| text.parse().ok()).map_or(normal, Duration::from_secs)
}

/// Whether this is a long run.
pub fn is_long() -> bool {
    std::env::var_os("UVFS_STRESS_SECONDS").is_some()
}
