//! Buckets of object stores, as far as this program was built with them.
//!
//! # Boundary
//! From the text after `s3:` to a file system of it. The one place that names the crate of object stores: mounting
//! works with [`Address`] and [`OpenBucket`], which exist in every build.
//!
//! # Why
//! Signing, TLS and HTTP are a third of the compiled code. A user that needs none of it builds without the feature
//! `s3`; there both types have no values, so nothing else asks which build it is in.

#[cfg(not(feature = "s3"))]
mod absent;
#[cfg(feature = "s3")]
mod present;

#[cfg(not(feature = "s3"))]
pub(crate) use absent::{Address, OpenBucket, parse};
#[cfg(feature = "s3")]
pub(crate) use present::{Address, OpenBucket, parse};
