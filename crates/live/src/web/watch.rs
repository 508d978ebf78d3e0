//! The live figures of the page: those of `uvfs top --json`, sampled only while there are requests.
//!
//! # Boundary
//! Decides when a sample is taken, and sends it to each request. `top` computes figures.
//!
//! # Concurrency
//! One thread has the sampler; a request sends it the channel for the answer. With any number of open pages, a mount is
//! asked once in [`AGE_MAX`].

use crate::Failure;
use crate::top::figures::{self, Figures};
use crate::top::sample::{self, Sample, Sampler};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// How old an answer may be.
const AGE_MAX: Duration = Duration::from_millis(900);

/// A request for figures: the channel for the answer.
type Wish = Sender<Result<String, Failure>>;

/// See the module.
pub(super) struct Watch(Sender<Wish>);

impl Watch {
    /// Starts the thread with `sampler`.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub(super) fn start(sampler: Sampler) -> Result<Self, Failure> {
        let (sender, wishes) = mpsc::channel();
        let thread = thread::Builder::new().name("uvfs-web-watch".into());
        let started = thread.spawn(move || answer(sampler, &wishes));
        let failed =
            |error| Failure::refused(format!("thread: {}; try again", crate::cause(&error)));
        started.map(|_| Self(sender)).map_err(failed)
    }

    /// The figures, as text of JSON.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) fn figures(&self) -> Result<String, Failure> {
        let gone = || Failure::refused("the samples have ended; start `uvfs web` again");
        let (sender, answer) = mpsc::channel();
        self.0.send(sender).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

fn answer(mut sampler: Sampler, wishes: &Receiver<Wish>) {
    let mut last: Option<(Sample, Figures)> = None;
    while let Ok(wish) = wishes.recv() {
        if last.as_ref().is_none_or(|(sample, _)| sample.at.elapsed() >= AGE_MAX) {
            let earlier = match last.take() {
                Some((earlier, _)) => Some(earlier),
                // Figures of one sample would have rates of 0.
                None => sampler.take().ok().inspect(|_| thread::sleep(sample::FIRST)),
            };
            match sampler.take() {
                Ok(sample) => {
                    let earlier = earlier.as_ref().unwrap_or(&sample);
                    let figures = figures::between(earlier, &sample);
                    last = Some((sample, figures));
                }
                Err(failure) => {
                    let _ = wish.send(Err(failure));
                    continue;
                }
            }
        }
        let text = last.as_ref().map(|(_, figures)| serde_json::to_string(figures));
        let text = match text {
            Some(Ok(text)) => Ok(text),
            Some(Err(error)) => Err(Failure::refused(error.to_string())),
            None => continue,
        };
        // The client may have disconnected.
        let _ = wish.send(text);
    }
}
