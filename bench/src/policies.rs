//! `uvfs-bench policies`: the effect of the cache policies `keep` and `once` on a working set beside a scan.
//!
//! # Boundary
//! Counts the accesses to the working set that asked the store; no time is measured. The caches are those of a [`Vfs`]
//! in this process, over a store in memory that keeps a journal of its calls.
//!
//! # Method
//! The working set is an eighth of the tree, in one directory. The scan lists the directories of the rest, and uses each
//! object once. The budget is a quarter of the memory that the whole tree takes in a cache with room for it, so the
//! working set would fill half of it. The working set is used three times, then the scan begins.
//!
//! `names-N-beside-K` uses one object of the working set, at random, after every K objects of the scan.
//! `names-N-after` uses the working set once, after the scan. `pages-` does the same with pages of 4 KiB.
//!
//! # Why
//! A count of requests to the store is a count of misses, and needs no clock. Weakness: all objects of the working set
//! are equally popular, and there is one client. Evicted memory is free a moment later, so runs differ a little.

use crate::report::{Layout, Report, Unit};
use crate::{cleanup, machine};
use clap::Args;
use std::fmt;
use std::io;
use std::sync::Arc;
use uvfs_backends::hostile::{Call, HostileBackend, Plan};
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_vfs::{
    CachePolicy, Caller, Directory, MINIMUM_BYTES, OpenOptions, PagePolicy, Vfs, VfsConfig,
};

/// Marks of the working set and of the scan, by system.
const SYSTEMS: [(&str, Option<CachePolicy>, Option<CachePolicy>); 5] = [
    ("unmarked", None, None),
    ("keep-set", Some(CachePolicy::Keep), None),
    ("once-scan", None, Some(CachePolicy::Once)),
    ("both", Some(CachePolicy::Keep), Some(CachePolicy::Once)),
    ("keep-scan-wrong", None, Some(CachePolicy::Keep)),
];
/// Objects of the scan between two uses of the working set.
const BESIDE: [usize; 2] = [1, 10];
/// The tree, in working sets.
const TREE: usize = 8;
/// Uses of the whole working set before the scan.
const ROUNDS: usize = 3;
/// Names in a directory of the scan.
const FANOUT: usize = 100;
const PAGE: usize = 4096;
/// Pages of a file.
const FILE_PAGES: usize = 16;

/// Arguments of `policies`.
#[derive(Debug, Args)]
pub(crate) struct PoliciesArguments {
    /// Names of the working set, and pages; the tree has eight times as many
    #[arg(long, value_name = "N", default_value_t = 8192,
        value_parser = clap::value_parser!(u32).range(256..=1 << 16))]
    objects: u32,
    /// Runs of which the median is taken
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// One JSON object per line instead of a table
    #[arg(long)]
    json: bool,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    tiny: bool,
}

/// Measures every case with every system.
///
/// # Errors
/// Those of the file system.
pub(crate) fn run(arguments: &PoliciesArguments) -> io::Result<()> {
    cleanup::on_signals()?;
    let (objects, runs) = match arguments.tiny {
        true => (256, 1),
        false => (arguments.objects as usize, arguments.runs),
    };
    let mut report = Report::new("policies");
    for kind in [Kind::Names, Kind::Pages] {
        let store = store(kind, objects)?;
        let budget = bytes_of_all(kind, &store, objects)? / 4;
        for beside in BESIDE.map(Some).into_iter().chain([None]) {
            let case = match beside {
                Some(apart) => format!("{kind}-{objects}-beside-{apart}"),
                None => format!("{kind}-{objects}-after"),
            };
            let turns = (0..runs).flat_map(|_| SYSTEMS);
            for (system, set, scan) in turns {
                let mut scene = Scene::new(kind, &store, budget, objects)?;
                scene.mark("set", set)?;
                scene.mark("scan", scan)?;
                let percent = scene.measure(beside)?;
                report.sample(&case, system, 1, Unit::PercentOfAccesses, percent);
            }
        }
    }
    let mut out = io::stdout().lock();
    match arguments.json {
        true => report.write_json(&mut out),
        false => {
            println!("{}", machine::describe());
            println!("accesses to the working set that asked the store, in percent");
            report.write_tables(&Layout::default(), |_| true, &mut out)
        }
    }
}

type Store = HostileBackend<MemoryBackend>;

/// The objects that are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// By `stat`.
    Names,
    /// By reads.
    Pages,
}

impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if *self == Kind::Names { "names" } else { "pages" })
    }
}

impl Kind {
    /// Objects in one name.
    fn in_a_name(self) -> usize {
        if self == Kind::Names { 1 } else { FILE_PAGES }
    }

    fn config(self, bytes: u64) -> VfsConfig {
        let cache_bytes = MINIMUM_BYTES.max(bytes);
        VfsConfig {
            cache_bytes,
            // A smaller budget than the least that can be set: another tenant has the rest.
            overhead_bytes: cache_bytes - bytes,
            pages: if self == Kind::Names { PagePolicy::Off } else { PagePolicy::WriteThrough },
            ..VfsConfig::default()
        }
    }
}

/// A store with the tree.
fn store(kind: Kind, objects: usize) -> io::Result<Store> {
    let limits = MemoryConfig { size_bytes: 8 << 30, ..MemoryConfig::default() };
    let store = HostileBackend::new(MemoryBackend::new(limits)?);
    let vfs = Vfs::new(store.clone(), kind.config(1 << 30))?;
    let top = vfs.root_directory(Caller::root());
    let bytes = vec![1; if kind == Kind::Names { 0 } else { FILE_PAGES * PAGE }];
    top.create_directory("set", 0o755)?;
    top.create_directory("scan", 0o755)?;
    let names = objects / kind.in_a_name();
    for at in 0..names {
        top.write_file(format!("set/{at}"), &bytes)?;
    }
    for at in 0..names * (TREE - 1) {
        if at % FANOUT == 0 {
            top.create_directory(format!("scan/{}", at / FANOUT), 0o755)?;
        }
        top.write_file(scanned(at), &bytes)?;
    }
    store.follow(Plan::new());
    Ok(store)
}

/// Path of a file of the scan.
fn scanned(at: usize) -> String {
    format!("scan/{}/{at}", at / FANOUT)
}

/// The memory that the whole tree takes in a cache with room for it.
fn bytes_of_all(kind: Kind, store: &Store, objects: usize) -> io::Result<u64> {
    let mut scene = Scene::new(kind, store, 8 << 30, objects)?;
    let empty = scene.held();
    (0..objects).try_for_each(|at| scene.use_set(at).map(drop))?;
    scene.scan(|_| Ok(()))?;
    Ok(scene.held() - empty)
}

/// A file system whose caches are empty.
struct Scene {
    kind: Kind,
    store: Store,
    vfs: Arc<Vfs>,
    top: Directory,
    /// Objects in the working set.
    objects: usize,
    page: Vec<u8>,
    random: u64,
}

impl Scene {
    fn new(kind: Kind, store: &Store, bytes: u64, objects: usize) -> io::Result<Self> {
        let vfs = Vfs::new(store.clone(), kind.config(bytes))?;
        let top = vfs.root_directory(Caller::root());
        let (store, page) = (store.clone(), vec![0; PAGE]);
        Ok(Self { kind, store, vfs, top, objects, page, random: 0x9e37_79b9_7f4a_7c15 })
    }

    fn held(&self) -> u64 {
        let budget = self.vfs.statistics().budget;
        budget.metadata_bytes + budget.page_bytes
    }

    fn mark(&self, path: &str, policy: Option<CachePolicy>) -> io::Result<()> {
        Ok(self.vfs.set_policy(self.top.open_directory(path)?.node(), policy)?)
    }

    /// Percent of the counted accesses that asked the store.
    fn measure(&mut self, beside: Option<usize>) -> io::Result<f64> {
        for at in 0..ROUNDS * self.objects {
            self.use_set(at % self.objects)?;
        }
        let (mut asked, mut counted, mut apart) = (0u64, 0u64, 0);
        self.scan(|scene| {
            apart += 1;
            if beside.is_some_and(|beside| apart % beside == 0) {
                let at = scene.draw();
                asked += u64::from(scene.use_set(at)?);
                counted += 1;
            }
            Ok(())
        })?;
        if beside.is_none() {
            for at in 0..self.objects {
                asked += u64::from(self.use_set(at)?);
                counted += 1;
            }
        }
        Ok(100.0 * asked as f64 / counted as f64)
    }

    /// Uses one object of the working set; true if that asked the store.
    fn use_set(&mut self, at: usize) -> io::Result<bool> {
        self.store.follow(Plan::new());
        let path = format!("set/{}", at / self.kind.in_a_name());
        Ok(match self.kind {
            Kind::Names => {
                self.top.stat(path)?;
                self.store.made(Call::Lookup) + self.store.made(Call::Attributes) > 0
            }
            Kind::Pages => {
                self.read(&path, at % FILE_PAGES)?;
                self.store.made(Call::Read) > 0
            }
        })
    }

    fn read(&mut self, path: &str, page: usize) -> io::Result<()> {
        let file = self.top.open(path, OpenOptions::read())?;
        let count = file.read_at((page * PAGE) as u64, &mut self.page)?;
        if count == PAGE { Ok(()) } else { Err(io::Error::other("a page was read in part")) }
    }

    /// Uses each object of the scan once, and calls `after` behind each.
    fn scan(&mut self, mut after: impl FnMut(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let names = self.objects / self.kind.in_a_name() * (TREE - 1);
        for at in 0..names {
            self.store.follow(Plan::new());
            if at % FANOUT == 0 {
                self.top.open_directory(format!("scan/{}", at / FANOUT))?.list_all()?;
            }
            let path = scanned(at);
            match self.kind {
                Kind::Names => {
                    self.top.stat(path)?;
                    after(self)?;
                }
                Kind::Pages => {
                    let file = self.top.open(path, OpenOptions::read())?;
                    for page in 0..FILE_PAGES {
                        file.read_at((page * PAGE) as u64, &mut self.page)?;
                        after(self)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// An object of the working set at random, by Marsaglia's xorshift.
    fn draw(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as usize % self.objects
    }
}
