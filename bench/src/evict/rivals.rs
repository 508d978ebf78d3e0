//! Requests to the caches in `bench-compare evict`: their hits on a trace.
//!
//! # Boundary
//! Writes a request with its accesses and reads the answer; both are described in `bench-compare/src/evict.rs`.

use super::traces::Trace;
use crate::rivals::{Rivals, odd};
use std::io::Write;

/// Hits of the counted accesses of `trace` by `name`, in percent.
///
/// # Errors
/// Its answer.
pub(super) fn replay(rivals: &mut Rivals, name: &str, trace: &Trace) -> Result<f64, String> {
    let request = format!("replay {name} {} {}", trace.capacity, trace.accesses.len());
    percent(&rivals.ask_with(&request, |out| {
        trace.accesses.iter().try_for_each(|access| out.write_all(&access.to_le_bytes()))
    })?)
}

fn percent(answer: &str) -> Result<f64, String> {
    let words: Vec<&str> = answer.split(' ').collect();
    let ["hits", hits, "counted", counted] = words[..] else { return Err(odd(answer)) };
    let number = |word: &str| word.parse::<u64>().map_err(|_| odd(answer));
    Ok(100.0 * number(hits)? as f64 / number(counted)?.max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_become_percent() {
        assert_eq!(percent("hits 1 counted 2"), Ok(50.0));
        assert_eq!(percent("hits 0 counted 0"), Ok(0.0));
        for odd in ["hits many", "hits x counted 2", "ns 1"] {
            assert!(percent(odd).unwrap_err().contains("odd answer"), "{odd}");
        }
    }
}
