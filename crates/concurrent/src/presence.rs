//! Whether somebody has ever come, asked by those who must tell what they do only if so.
//!
//! # Boundary
//! Remembers, by stripes of a key, and never forgets. What is told, and to whom, is the callers' business.
//!
//! # Protocol
//! ```text
//!   who does                          who comes
//!   a step that others can see        arrive
//!   has_come: nobody? then no word    a look at the steps of others
//! ```
//! P1. Of one who does a step and then asks, and one who arrives and then looks, the first is told that somebody has
//!     come, or the second sees the step.
//! P2. A stripe only ever goes from nobody to somebody.
//!
//! O1. the step, the fence of `has_come` → the fence of `arrive`, the look; or the other way round, and then the store of
//!     `arrive` is what `has_come` loads. One of the two fences is first.
//!
//! Progress: wait-free; who asks stores nothing.
//! Checked by `model_a_step_is_seen_or_somebody_is`.
//!
//! # Why
//! Every read of a kernel took a lock for the sake of direct writers, of which most mounts never have one. Weakness: a key
//! shares its stripe with others, and has somebody for good when one of them had.

use crate::primitive::atomic::{AtomicBool, Ordering, fence};

const STRIPES: usize = if cfg!(loom) { 1 } else { 1024 };

/// See the module.
#[derive(Debug)]
pub struct Presence([AtomicBool; STRIPES]);

impl Default for Presence {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicBool::new(false)))
    }
}

impl Presence {
    /// Somebody is here for `key`, and looks at what others did after this.
    pub fn arrive(&self, key: u64) {
        let stripe = self.stripe(key);
        // ORDERING: Relaxed both; the fence orders them (O1). Loaded first: whoever comes again stores nothing.
        if !stripe.load(Ordering::Relaxed) {
            stripe.store(true, Ordering::Relaxed);
        }
        // ORDERING: SeqCst, partner `has_come` (O1).
        fence(Ordering::SeqCst);
    }

    /// Whether somebody may have come for `key`. If not, whoever comes later sees what the caller did before.
    pub fn has_come(&self, key: u64) -> bool {
        // ORDERING: SeqCst, partner `arrive` (O1).
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed; the fence orders it (O1).
        self.stripe(key).load(Ordering::Relaxed)
    }

    fn stripe(&self, key: u64) -> &AtomicBool {
        // Keys may be addresses: the upper bits of a product depend on all of theirs.
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        &self.0[mixed as usize % STRIPES]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_came_once_is_there() {
        let presence = Presence::default();
        assert!((0..5000).all(|key| !presence.has_come(key)));
        presence.arrive(7);
        assert!(presence.has_come(7));
        let others = (0..5000).filter(|&key| presence.has_come(key)).count();
        assert!(others < 50, "{others} share its stripe");
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use crate::primitive::atomic::AtomicU64;
    use crate::primitive::model::{Model, reached};
    use loom::sync::Arc;
    use loom::thread;

    /// P1. Fails without either fence.
    #[test]
    fn model_a_step_is_seen_or_somebody_is() {
        let both = &["nobody had come", "the step was not seen"];
        Model::new(6, both).check(|| {
            let world = Arc::new((Presence::default(), AtomicU64::new(0)));
            let other = world.clone();
            let comes = thread::spawn(move || {
                other.0.arrive(1);
                other.1.load(Ordering::Relaxed) == 1
            });
            world.1.store(1, Ordering::Relaxed);
            let told = world.0.has_come(1);
            let seen = comes.join().unwrap();
            assert!(told || seen, "neither knows of the other");
            if !told {
                reached("nobody had come");
            }
            if !seen {
                reached("the step was not seen");
            }
        });
    }
}
