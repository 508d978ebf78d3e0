//! Names in process: their cache, walks, changes, mounts of a namespace and cleaning, without the kernel and its pages.

mod clean;
mod clean_races;
mod export;
mod fault;
mod locks;
mod model;
mod mounts;
mod names;
mod races;
mod walk;
