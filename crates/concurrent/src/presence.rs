//! Remembers whether any visitor has ever arrived for a key, for threads that must announce their steps only then.
//!
//! # Boundary
//! Keeps one flag for each stripe of keys, and never clears it. The callers own the announcements and their recipients.
//!
//! # Protocol
//! ```text
//!   actor                             visitor
//!   a step that others can see        arrive
//!   has_come: if false, no message    looks at the steps of others
//! ```
//! P1. An actor does a step and then asks; a visitor arrives and then looks. Either `has_come` returns true to the
//!     actor, or the visitor sees the step.
//! P2. A stripe changes only from absent to present.
//!
//! O1. the step, the fence of `has_come` → the fence of `arrive`, the look. In the other order of the fences,
//!     `has_come` loads the store of `arrive`. One of the two fences is first.
//!
//! Progress: wait-free; the actor stores nothing.
//! Checked by `model_a_step_is_seen_or_a_key_is`.
//!
//! # Why
//! Every read by a kernel took a lock because of direct writers, although most mounts never have any. Weakness: a key
//! shares its stripe with others, and counts as present for good when one of them was.

use crate::primitive::atomic::{AtomicBool, Ordering, fence};

const STRIPES: usize = if cfg!(loom) { 1 } else { 1024 };

/// One flag per stripe of keys. The protocol is in the module's documentation.
#[derive(Debug)]
pub struct Presence([AtomicBool; STRIPES]);

impl Default for Presence {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicBool::new(false)))
    }
}

impl Presence {
    /// A visitor arrives for `key`; it looks at the steps of others only after this.
    pub fn arrive(&self, key: u64) {
        let stripe = self.stripe(key);
        // ORDERING: Relaxed both; the fence orders them (O1). The load comes first, so that a repeated arrival stores
        // nothing.
        if !stripe.load(Ordering::Relaxed) {
            stripe.store(true, Ordering::Relaxed);
        }
        // ORDERING: SeqCst, partner `has_come` (O1).
        fence(Ordering::SeqCst);
    }

    /// Whether a visitor may have arrived for `key`. If not, every later visitor sees the caller's earlier steps.
    pub fn has_come(&self, key: u64) -> bool {
        // ORDERING: SeqCst, partner `arrive` (O1).
        fence(Ordering::SeqCst);
        // ORDERING: Relaxed; the fence orders it (O1).
        self.stripe(key).load(Ordering::Relaxed)
    }

    fn stripe(&self, key: u64) -> &AtomicBool {
        // Keys may be addresses: the upper bits of the product depend on all bits of the key.
        let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        &self.0[mixed as usize % STRIPES]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_came_once_is_there() {
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
    fn model_a_step_is_seen_or_a_key_is() {
        let both = &["no key had come", "the step was not seen"];
        Model::new(6, both).check(|| {
            let world = Arc::new((Presence::default(), AtomicU64::new(0)));
            let other = world.clone();
            let comes = thread::spawn(move || {
                other.0.arrive(1);
                other.1.load(Ordering::Relaxed) == 1
            });
            world.1.store(1, Ordering::Relaxed);
            let came = world.0.has_come(1);
            let seen = comes.join().unwrap();
            assert!(came || seen, "neither knows of the other");
            if !came {
                reached("no key had come");
            }
            if !seen {
                reached("the step was not seen");
            }
        });
    }
}
