//! Gives the library its name in the loader's eyes, so that a program that was linked with one copy of it
//! and is run with another preloaded carries one of them, not both.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libuvfs_contention.so");
}
