//! A gate that admits a bounded number of threads and refuses the others.
//!
//! # Boundary
//! Counts; never waits. The caller decides what a refused thread does.
//!
//! # Invariants
//! G1. At most `capacity` passes exist at any time.
//! G2. A dropped pass makes room for exactly one more.
//!
//! Progress: wait-free but for the retry of the compare-exchange, which means that another thread
//! entered.
//! Checked by `model_gate`.

use crate::primitive::atomic::{AtomicUsize, Ordering};

/// The count of threads inside, and its limit.
#[derive(Debug)]
pub struct Gate {
    inside: AtomicUsize,
    capacity: usize,
}

/// Permission to be inside a [`Gate`].
#[derive(Debug)]
pub struct Pass<'a>(&'a Gate);

impl Gate {
    /// Admits at most `capacity` threads at once.
    pub fn new(capacity: usize) -> Self {
        Self { inside: AtomicUsize::new(0), capacity }
    }

    /// Enters if there is room. Never waits.
    pub fn try_enter(&self) -> Option<Pass<'_>> {
        // ORDERING: Relaxed; only the number of passes matters, nothing is reached through it.
        let mut inside = self.inside.load(Ordering::Relaxed);
        loop {
            if inside >= self.capacity {
                return None;
            }
            // ORDERING: Relaxed; the read-modify-write alone keeps G1.
            match self.inside.compare_exchange_weak(
                inside,
                inside + 1,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Pass(self)),
                Err(now) => inside = now,
            }
        }
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // ORDERING: Relaxed; only the number of passes matters.
        self.0.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn lets_in_as_many_as_fit() {
        let gate = Gate::new(2);
        let first = gate.try_enter().unwrap();
        let _second = gate.try_enter().unwrap();
        assert!(gate.try_enter().is_none());
        drop(first);
        assert!(gate.try_enter().is_some());
        assert!(Gate::new(0).try_enter().is_none());
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::model::{Model, reached};
    use loom::sync::Arc;

    /// G1: fails if `try_enter` loads and stores instead of exchanging.
    #[test]
    fn model_gate() {
        Model::new(180, &["entered", "refused"]).check(|| {
            let (gate, inside) = (Arc::new(Gate::new(1)), Arc::new(AtomicUsize::new(0)));
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let (gate, inside) = (gate.clone(), inside.clone());
                    loom::thread::spawn(move || {
                        if let Some(pass) = gate.try_enter() {
                            assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                            inside.fetch_sub(1, Ordering::SeqCst);
                            drop(pass);
                            reached("entered");
                        } else {
                            reached("refused");
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            assert!(gate.try_enter().is_some());
        });
    }
}
