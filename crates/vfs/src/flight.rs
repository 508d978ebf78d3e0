//! Lookups in flight: of several that miss one name at once, one asks the store.
//!
//! # Boundary
//! Lets one thread ask and others wait. The answer is passed through the name cache: a thread that waited looks there.
//!
//! # Concurrency
//! One shard lock to join and to land. A flight's own lock and condition to wait, and to wake if a thread waits.
//! Nothing is held across the call to the store. A flight lands when it is dropped, so a store that panics wakes the
//! waiting threads, too.
//!
//! # Why
//! Many threads ask for a directory that has just expired. Without this the store gets the same question from each (as
//! Linux `d_alloc_parallel`, which parks the others on the entry). A flight has the hash of its name and no copy of it:
//! two names with one hash would wait for one another, and the thread that waited then asks for itself. A shard has few
//! flights at once, so it is a list. Weakness: if the answer may not be cached, the waiting threads have lost the time.

use crate::lock_order;
use std::sync::Arc;
use uvfs_concurrent::lock::{Condvar, Mutex};
use uvfs_concurrent::shard::Shards;

/// The lookups in flight.
pub(crate) struct Flights {
    shards: Shards<Vec<InFlight>>,
}

/// One lookup in flight.
struct InFlight {
    hash: u64,
    /// Where threads wait for it, once one does.
    landing: Option<Arc<Landing>>,
}

/// The state on which the threads wait for one flight.
struct Landing {
    landed: Mutex<Landed>,
    changed: Condvar,
}

#[derive(Default)]
struct Landed {
    done: bool,
    /// Threads that sleep until it is done. Counted under the lock that sleeping releases.
    #[cfg(test)]
    sleepers: usize,
}

/// The right to ask the store. Dropped when the answer is in the cache, or will not come.
pub(crate) struct Flight<'a> {
    flights: &'a Flights,
    hash: u64,
}

impl Flights {
    pub(crate) fn new() -> Self {
        Self { shards: Shards::new(&lock_order::FLIGHTS, 32) }
    }

    /// The right to ask for the name whose key has this hash ([`crate::names::Key`]); or `None` after another thread's
    /// flight has landed. Blocks until then.
    pub(crate) fn join(&self, hash: u64) -> Option<Flight<'_>> {
        let landing = {
            let mut shard = self.shards.of_hash(hash).lock();
            match shard.iter_mut().find(|flight| flight.hash == hash) {
                Some(flight) => flight.landing.get_or_insert_with(Landing::new).clone(),
                None => {
                    shard.push(InFlight { hash, landing: None });
                    return Some(Flight { flights: self, hash });
                }
            }
        };
        let mut landed = landing.landed.lock();
        while !landed.done {
            #[cfg(test)]
            {
                landed.sleepers += 1;
            }
            landing.changed.wait(&mut landed);
        }
        None
    }

    /// Threads that wait for that lookup to land.
    #[cfg(test)]
    fn sleepers(&self, hash: u64) -> usize {
        let shard = self.shards.of_hash(hash).lock();
        let flight = shard.iter().find(|flight| flight.hash == hash);
        let landing = flight.and_then(|flight| flight.landing.clone());
        drop(shard);
        landing.map_or(0, |landing| landing.landed.lock().sleepers)
    }

    /// Lookups in flight now.
    #[cfg(test)]
    fn count(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }
}

impl Drop for Flight<'_> {
    fn drop(&mut self) {
        let mut shard = self.flights.shards.of_hash(self.hash).lock();
        let place = shard.iter().position(|flight| flight.hash == self.hash);
        let flight = place.map(|place| shard.swap_remove(place));
        drop(shard);
        // From now on no thread finds it; each that did waits here.
        if let Some(landing) = flight.and_then(|flight| flight.landing) {
            landing.landed.lock().done = true;
            landing.changed.notify_all();
        }
    }
}

impl Landing {
    fn new() -> Arc<Self> {
        let landed = Mutex::new(&lock_order::FLIGHT, Landed::default());
        Arc::new(Self { landed, changed: Condvar::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    #[test]
    fn one_asks_and_the_others_wait_for_it() {
        let (flights, asked, waited) = (Flights::new(), AtomicUsize::new(0), AtomicUsize::new(0));
        let flight = flights.join(1).unwrap();
        assert!(flights.join(2).is_some(), "another name");
        assert!(flights.join(1 << 40 | 1).is_some(), "another name of the same shard");
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| match flights.join(1) {
                    Some(_) => asked.fetch_add(1, SeqCst),
                    None => waited.fetch_add(1, SeqCst),
                });
            }
            drop(flight);
        });
        // A thread that came after the landing asks itself.
        assert_eq!(asked.load(SeqCst) + waited.load(SeqCst), 4);
        assert_eq!(flights.count(), 0);
    }

    /// Weakened code showed that no test here was sure to have two sleepers: waking one of them, or not waiting at all,
    /// passed every test.
    #[test]
    fn all_sleepers_are_woken_by_the_landing_and_none_before_it() {
        let (flights, returned) = (Flights::new(), AtomicUsize::new(0));
        let flight = flights.join(1).unwrap();
        std::thread::scope(|scope| {
            let sleepers: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let asks = flights.join(1).is_some();
                        returned.fetch_add(1, SeqCst);
                        asks
                    })
                })
                .collect();
            while flights.sleepers(1) < 3 && returned.load(SeqCst) == 0 {
                std::thread::yield_now();
            }
            let early = returned.load(SeqCst);
            drop(flight);
            let asked = sleepers.into_iter().filter_map(|one| one.join().ok()).filter(|asks| *asks);
            assert_eq!((early, asked.count()), (0, 0), "one asks, and the others wait for it");
        });
        assert_eq!(flights.count(), 0);
    }

    #[test]
    fn a_flight_that_panics_lands() {
        let flights = Flights::new();
        let crash = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _flight = flights.join(1).unwrap();
            panic!("the store fell over");
        }));
        assert!(crash.is_err() && flights.join(1).is_some());
    }
}
