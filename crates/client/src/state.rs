//! The state of a mount, in the words of all commands.

use crate::Unreachable;
use crate::liveness::Life;
use serde::Serialize;
use std::io;

/// The state of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum State {
    /// The daemon answers.
    #[serde(rename = "served")]
    Served,
    /// So many clients ask its daemon that it accepts no more at the moment.
    #[serde(rename = "busy")]
    Busy,
    /// No process serves it: every request fails.
    #[serde(rename = "dead")]
    Dead,
    /// A process has it, and does not answer.
    #[serde(rename = "not answering")]
    NotAnswering,
    /// A program serves it that cannot be asked.
    #[serde(rename = "served without a control socket")]
    WithoutSocket,
    /// The daemon answers its owner and root alone.
    #[serde(rename = "of another user")]
    OfAnother,
    /// It cannot be found out from here.
    #[serde(rename = "unknown")]
    Unknown,
}

impl State {
    /// The word for it, which is also that of `--json`.
    pub fn word(self) -> &'static str {
        match self {
            State::Served => "served",
            State::Busy => "busy",
            State::Dead => "dead",
            State::NotAnswering => "not answering",
            State::WithoutSocket => "served without a control socket",
            State::OfAnother => "of another user",
            State::Unknown => "unknown",
        }
    }
}

/// The state that the connection to a socket shows; `None` if there is no socket.
pub fn of_connection<T>(connected: &Result<T, Unreachable>) -> Option<State> {
    match connected {
        Ok(_) => Some(State::Served),
        Err(Unreachable::Failed(error)) if error.kind() == io::ErrorKind::WouldBlock => {
            Some(State::Busy)
        }
        Err(Unreachable::NotServed) => None,
        Err(Unreachable::NotPermitted) => Some(State::OfAnother),
        Err(Unreachable::Failed(_)) => Some(State::Unknown),
    }
}

/// The state that the kernel shows for a mount without a socket.
pub fn of_life(life: Life) -> State {
    match life {
        Life::Dead => State::Dead,
        Life::Silent => State::NotAnswering,
        Life::Served => State::WithoutSocket,
        Life::Unknown => State::Unknown,
    }
}
