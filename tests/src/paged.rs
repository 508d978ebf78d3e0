//! Stores and settings under which pages are cached in the core.

use crate::{Hostile, Ledger, hostile};
use std::sync::Arc;
use std::time::Instant;
use uvfs_backends::hostile::LIMIT;
use uvfs_vfs::{
    Authority, Backend, Caller, FileRef, InodeId, Name, Opens, PageCaching, PagePolicy, Vfs,
    VfsConfig,
};

/// One of the ways in which pages can be cached.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// Write back or through.
    pub policy: PagePolicy,
    /// Whether others change the store.
    pub authority: Authority,
    /// Whether the store knows its open files.
    pub opens: Opens,
}

impl Kind {
    /// All of them.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for policy in [PagePolicy::WriteThrough, PagePolicy::WriteBack] {
            for authority in [Authority::Sole, Authority::Shared] {
                for opens in [Opens::Stateless, Opens::Tracked] {
                    all.push(Self { policy, authority, opens });
                }
            }
        }
        all
    }

    /// Those that write back.
    pub fn back() -> Vec<Self> {
        Self::all().into_iter().filter(|kind| kind.policy == PagePolicy::WriteBack).collect()
    }

    /// Writing back to a store of our own.
    pub fn sole(opens: Opens) -> Self {
        Self { policy: PagePolicy::WriteBack, authority: Authority::Sole, opens }
    }

    /// A new store of this kind.
    pub fn store(self) -> Hostile {
        self.claimed_by(hostile())
    }

    /// `store`, which from now on claims to be of this kind.
    pub fn claimed_by(self, store: Hostile) -> Hostile {
        store.claiming(|can| {
            can.caching = PageCaching::Core;
            can.authority = self.authority;
            can.opens = self.opens;
        })
    }

    /// `config` for it.
    pub fn config(self, config: VfsConfig) -> VfsConfig {
        VfsConfig { pages: self.policy, ..config }
    }

    /// A file system over `store`, and the ledger of its open files.
    pub fn mount(self, store: &Hostile, config: VfsConfig) -> (Arc<Vfs>, Ledger) {
        let ledger = Ledger::new(store.clone());
        let vfs = Vfs::new(ledger.clone(), self.config(config));
        (vfs.expect("the store is healthy and the settings are valid"), ledger)
    }
}

/// The store's own content of the file `name` in its root, past any planned fault.
///
/// # Panics
/// If it has no such file.
pub fn stored(store: &Hostile, name: &str) -> Vec<u8> {
    let inner = store.inner();
    let wanted = Name::new(name.as_bytes()).expect(name);
    let entry = inner.names().lookup(&Caller::root(), InodeId::ROOT, wanted).expect(name);
    let mut content = vec![0; entry.attributes.size as usize + 1];
    let mut done = 0;
    loop {
        let into = &mut content[done..];
        match inner.data().read(FileRef::unopened(entry.inode), done as u64, into).expect(name) {
            0 => break,
            count => done += count,
        }
    }
    inner.inodes().forget(entry.inode, 1);
    content.truncate(done);
    content
}

/// Waits until `is` returns true; a [`crate::Watchdog`] ends a wait that hangs.
pub fn until(is: impl Fn() -> bool) {
    while !is() {
        std::thread::yield_now();
    }
}

/// [`crate::assert_references_exact`], once the threads that read ahead and write back have
/// released theirs.
///
/// # Panics
/// If they never do.
pub fn assert_references_come_back(vfs: &Vfs, store: &Hostile) {
    let end = Instant::now() + LIMIT;
    let all_back = || {
        vfs.forget_unused();
        store.outstanding().len() == 1
    };
    while !all_back() && Instant::now() < end {
        std::thread::yield_now();
    }
    if !all_back() {
        eprintln!("references are out: {:?}", vfs.statistics());
    }
    crate::assert_references_exact(vfs, store);
}

/// From now on planned panics print nothing.
pub fn quietly() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let planned = info.payload().downcast_ref::<&str>() == Some(&"a planned panic");
            if !planned {
                hook(info);
            }
        }));
    });
}

/// Where `seen` and `expected` differ first, shortly.
pub fn difference(seen: &[u8], expected: &[u8]) -> Option<String> {
    let at = seen.iter().zip(expected).position(|(one, other)| one != other);
    match at {
        Some(at) => {
            let count = seen.iter().zip(expected).filter(|(one, other)| one != other).count();
            Some(format!(
                "byte {at} (page {}, {} into it) is {} and not {}; {count} in all; of {} and {}",
                at / 4096,
                at % 4096,
                seen[at],
                expected[at],
                seen.len(),
                expected.len()
            ))
        }
        None if seen.len() != expected.len() => {
            Some(format!("{} bytes and not {}", seen.len(), expected.len()))
        }
        None => None,
    }
}
