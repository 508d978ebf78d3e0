//! How often a user may have directories cleaned through `drop_caches`.
//!
//! # The rule
//! Root and the mount's owner have no limit. Every other user may clean [`BURST`] times at once, and then once in
//! [`PAUSE`]; a request beyond that is refused with EAGAIN and costs nothing. At most [`USERS_MAX`] users have an
//! account at a time. A user whose requests are all older than their pauses has none.
//!
//! # Why
//! A cleaning ends every memo of a whole path, and makes each directory in use check its ancestors once: cheap now and
//! then. In a loop, the owner of one directory slowed the walks of all users. Weakness: 64 users together may still
//! clean 64 times a second.

use crate::lock_order;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::Mutex;
use uvfs_vfs::{Error, Result};

/// Requests that a user may make at once.
pub(super) const BURST: u32 = 16;
/// How long it takes until a user may make one more.
const PAUSE: Duration = Duration::from_secs(1);
/// Users with an account.
const USERS_MAX: usize = 64;

/// When each user's requests will all have been made up for.
#[derive(Debug)]
pub(super) struct Rate(Mutex<HashMap<u32, Instant>>);

impl Rate {
    pub(super) fn new() -> Self {
        Self(Mutex::new(&lock_order::FUSE_DROPS, HashMap::new()))
    }

    /// Takes a request of `user` at `now` on its account.
    ///
    /// # Errors
    /// [`Error::WouldBlock`]: later.
    pub(super) fn take(&self, user: u32, now: Instant) -> Result<()> {
        let mut accounts = self.0.lock();
        let until = accounts.get(&user).map_or(now, |&until| until.max(now)) + PAUSE;
        if until > now + PAUSE * BURST {
            return Err(Error::WouldBlock);
        }
        if accounts.len() >= USERS_MAX {
            accounts.retain(|_, until| *until > now);
        }
        if accounts.len() >= USERS_MAX && !accounts.contains_key(&user) {
            return Err(Error::WouldBlock);
        }
        accounts.insert(user, until);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_burst_and_then_one_in_a_while() {
        let (rate, begin) = (Rate::new(), Instant::now());
        let at = |user, pauses| rate.take(user, begin + PAUSE * pauses).is_ok();
        assert!((0..BURST).all(|_| at(1, 0)));
        assert!(!at(1, 0) && at(2, 0), "each user has an account");
        assert!(at(1, 1) && !at(1, 1));
        assert!((0..BURST).all(|_| at(1, 100)), "all of it is made up for");
        assert!(!at(1, 100));
    }

    #[test]
    fn accounts_are_few_and_end() {
        let (rate, begin) = (Rate::new(), Instant::now());
        let users = USERS_MAX as u32;
        assert!((0..users).all(|user| rate.take(user, begin).is_ok()));
        assert!(rate.take(users, begin).is_err() && rate.take(0, begin).is_ok());
        assert!(rate.take(users, begin + PAUSE).is_ok());
        assert_eq!(rate.0.lock().len(), 2, "that of user 0 after two requests, and the new one");
    }
}
