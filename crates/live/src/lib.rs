//! Live figures of mounts: `uvfs top` on a terminal, `uvfs web` for a browser.
//!
//! # Boundary
//! [`top()`] and [`web()`] are the commands. Both ask daemons for reports and compare two of them; the daemons keep no
//! rates. [`kernel_answers`] tells a reader of one report that the kernel's cache answers.
//!
//! # Concurrency
//! A thread takes samples; the screen, or the connections of the page, have threads of their own.
//!
//! # Why
//! The page shows the figures of `uvfs top`, so that both agree. Weakness: both ask the daemons themselves.

#![forbid(unsafe_code)]

mod flags;
mod top;
mod web;

pub use flags::{TopArguments, WebArguments};
pub use top::figures::kernel_answers;
pub use top::run as top;
use uvfs_client::mountinfo;
use uvfs_control::units;
use uvfs_terminal::output::print_line;
use uvfs_terminal::{Failure, cause, shown};
pub use web::run as web;
