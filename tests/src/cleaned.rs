//! Shared parts of the tests of cleaning: a core over a hostile store, and the count of the store's
//! calls.

use crate::{Hostile, Watchdog, assert_references_exact, hostile, root, vfs_over};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::hostile::{Call, Plan};
use uvfs_vfs::{
    Clean, CleanReport, Cleaning, Directory, Dirty, File, OpenOptions, PageCaching, PagePolicy,
    Vfs, VfsConfig,
};

/// See the module.
#[derive(Debug)]
pub struct Scene {
    /// The store.
    pub hostile: Hostile,
    /// The core.
    pub vfs: Arc<Vfs>,
    /// Root directory of the core.
    pub top: Directory,
    _watchdog: Watchdog,
}

impl Scene {
    /// Over a store of our own, whose pages the core caches.
    pub fn new() -> Self {
        Self::with(VfsConfig::default())
    }

    /// A scene with this configuration.
    pub fn with(config: VfsConfig) -> Self {
        Self::over(hostile().claiming(|can| can.caching = PageCaching::Core), config)
    }

    /// Writing back, and never by itself.
    pub fn lazy() -> Self {
        let hour = Duration::from_secs(3600);
        Self::with(VfsConfig {
            pages: PagePolicy::WriteBack,
            write_back_delay: hour,
            ..VfsConfig::default()
        })
    }

    /// Over this store.
    pub fn over(hostile: Hostile, config: VfsConfig) -> Self {
        let vfs = vfs_over(&hostile, config);
        let top = root(&vfs);
        Self { hostile, vfs, top, _watchdog: Watchdog::new(Duration::from_secs(120)) }
    }

    /// How often the store got this call while `work` ran.
    pub fn asked(&self, call: Call, work: impl FnOnce()) -> usize {
        self.hostile.follow(Plan::new());
        work();
        self.hostile.made(call)
    }

    /// How often it was asked for a name.
    pub fn lookups(&self, work: impl FnOnce()) -> usize {
        self.asked(Call::Lookup, work)
    }

    /// Which names it was asked for.
    pub fn names_asked(&self, work: impl FnOnce()) -> Vec<String> {
        self.hostile.follow(Plan::new());
        work();
        let made = self.hostile.journal().into_iter().filter(|made| made.call == Call::Lookup);
        made.filter_map(|made| String::from_utf8(made.name?).ok()).collect()
    }

    /// How often it was read.
    pub fn reads(&self, work: impl FnOnce()) -> usize {
        self.asked(Call::Read, work)
    }

    /// A directory; the root is the empty path.
    pub fn directory(&self, path: &str) -> Directory {
        self.top.open_directory(if path.is_empty() { "." } else { path }).unwrap()
    }

    /// A file, to be read.
    pub fn open(&self, path: &str) -> File {
        self.top.open(path, OpenOptions::read()).unwrap()
    }

    /// Cleans, and frees everything.
    pub fn clean(&self, path: &str, clean: Clean) -> CleanReport {
        self.vfs.clean(self.directory(path).node(), clean, Dirty::Skip).unwrap()
    }

    /// Takes effect and frees nothing.
    pub fn begin(&self, path: &str, clean: Clean) -> Cleaning {
        self.vfs.begin_clean(self.directory(path).node(), clean).unwrap()
    }

    /// Makes files and the directories above them.
    pub fn make(&self, files: &[&str]) {
        for file in files {
            for (at, _) in file.match_indices('/') {
                // Another file may have brought it.
                let _ = self.top.create_directory(&file[..at], 0o755);
            }
            self.top.write_file(file, file).unwrap();
        }
        // Changes made these uncertain; this makes them certain again.
        for file in files {
            let above = file.match_indices('/').map(|(at, _)| &file[..at]);
            self.stat_all(&above.chain([*file]).collect::<Vec<_>>());
        }
    }

    /// Looks at each.
    ///
    /// # Panics
    /// If one is missing.
    pub fn stat_all(&self, files: &[&str]) {
        files.iter().for_each(|file| assert!(self.top.stat(file).is_ok(), "{file}"));
    }

    /// Every reference was returned to the store.
    pub fn end(self) {
        drop(self.top);
        assert_references_exact(&self.vfs, &self.hostile);
    }
}

impl Default for Scene {
    fn default() -> Self {
        Self::new()
    }
}

/// Frees the cleaned entries.
pub fn reap(cleaning: Cleaning) -> CleanReport {
    cleaning.reap(Dirty::Skip, &mut |_| ControlFlow::Continue(()))
}

/// The start of a file.
pub fn content(file: &File) -> String {
    let mut into = vec![0; 100];
    let count = file.read_at(0, &mut into).unwrap();
    String::from_utf8(into[..count].to_vec()).unwrap()
}
