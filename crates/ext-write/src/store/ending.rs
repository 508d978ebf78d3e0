//! The end of writing, which the first failure brings.

use crate::device::WriteDevice;
use crate::error::{Error, Result};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

/// Said after the cause, unless the device itself is gone.
const KEPT: &str = "; committed data is safe: mount the image again";

/// The end of writing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The failure.
    pub cause: Arc<str>,
    /// The failure, with its consequence for the image.
    pub why: Arc<str>,
    /// When it was.
    pub since: SystemTime,
}

#[derive(Debug, Default)]
pub(super) struct Ending(OnceLock<Ended>);

impl Ending {
    pub(super) fn get(&self) -> Option<&Ended> {
        self.0.get()
    }

    /// # Errors
    /// [`Error::Ended`], if writing has ended.
    pub(super) fn check(&self) -> Result<()> {
        self.get().map_or(Ok(()), |ended| Err(Error::Ended(ended.why.clone())))
    }

    /// Ends writing because of `error`, unless it has ended already. Returns the error that callers get from now on, and logs it
    /// once.
    pub(super) fn end(&self, error: Error, device: &dyn WriteDevice) -> Error {
        // A device that is gone is the cause of whatever it failed.
        let (cause, kept): (Arc<str>, _) = match (device.check(), error) {
            (Err(gone), _) => (gone.to_string().into(), ""),
            (Ok(()), Error::Ended(why)) => (why, KEPT),
            (Ok(()), error) => (error.to_string().into(), KEPT),
        };
        let mut is_first = false;
        let ended = self.0.get_or_init(|| {
            is_first = true;
            let why = format!("{cause}{kept}").into();
            Ended { cause, why, since: SystemTime::now() }
        });
        let error = Error::Ended(ended.why.clone());
        if is_first {
            ::log::error!("image: {error}");
        }
        error
    }
}
