//! Object stores, over HTTP. The server is on loopback, and each test has its own.

mod answers;
mod credentials;
mod faults;
mod listing;
mod mount;
