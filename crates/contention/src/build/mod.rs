//! Builds programs with the compiler's pass for accesses, and without the sanitizer that it was made for.
//!
//! # Boundary
//! [`cargo`] wraps cargo, [`compiler`] a C or C++ compiler, [`flags`] has rustc's flags and finds out
//! whether it obeys; [`inspect`] checks the output. Nothing is run here but compilers.
//!
//! # Concurrency
//! None; cargo and make run several of these processes at once.
//!
//! # Why
//! The pass reports every access to functions that a library may define; ours defines them. Weakness: for
//! Rust its name is LLVM's own and no promise, so each build is checked and has a second way.

pub mod cargo;
pub mod compiler;
pub mod flags;
pub mod inspect;
