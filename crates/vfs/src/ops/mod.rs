//! The operations, one file per family, all as methods of [`crate::Vfs`] on [`crate::Node`]s.
//!
//! Reading order: `open` (one request end to end), then `lookup`, `change` (the name cache under
//! concurrent changes), and the rest in any order.

mod admit;
mod again;
mod attributes;
mod change;
mod create;
mod data;
mod export;
mod follow;
mod list;
mod lists;
mod lookup;
mod open;
mod remove;
mod rename;
mod turn;
mod xattr;

pub(crate) use change::AttributeChange;
pub use export::HANDLE_BYTES;
pub(crate) use follow::SMALL_BYTES;
pub use list::Entries;
pub(crate) use list::Refresh;
pub(crate) use lists::Lists;
pub(crate) use lookup::Look;
pub use lookup::{Found, Lookup};
pub use open::OpenFile;
pub(crate) use turn::Turns;
