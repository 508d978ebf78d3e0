//! `bench-compare walk`: the rivals of `uvfs-bench walk` that are Rust crates.
//!
//! # Boundary
//! Holds the maps and walks them on request. `uvfs-bench walk` starts it, orders the rounds and makes
//! the report. One line in, one line out:
//!
//! ```text
//! bench-compare walk 2 papaya dashmap scc mutex-map ...   (at the start)
//! build papaya 6 100000                  built 16777216 9f3c0b1d    bytes of memory it grew by, digest
//! round papaya uniform 2 50              ns 241.7                   threads, milliseconds
//!                                        failed WHY
//! ```
//! `build` with another tree frees the earlier one. It ends with its input.
//!
//! `bench-compare radix`, `hit` and `evict` become `bench-compare-pages`, the rivals of the page cache,
//! which lies beside it; their lines are described in `radix`, `hit` and `evict`, those of `bench-compare rows` in [`rows`].
//!
//! # Why
//! A process of its own, so that the product's build never sees these crates; the tree, the paths
//! and the timed loop are those of the bench, from `uvfs-bench-workload`. Weakness: the processes evict each
//! other from shared caches, which all systems suffer alike.

#![forbid(unsafe_code)]

mod maps;
mod rows;

use maps::{Attributes, Boxed, Cache, Dash, Inline, Locked, Papaya, Scc, Value};
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;
use uvfs_bench_workload::paths::{Paths, Pattern};
use uvfs_bench_workload::timed::{self, MISSING, Pace};
use uvfs_bench_workload::tree::{Place, Tree};

/// The version of the lines above.
const PROTOCOL: u32 = 2;
/// The last two cut names at 23 bytes and stand for a bound; they come last where memory is short.
const NAMES: [&str; 6] =
    ["papaya", "dashmap", "scc", "mutex-map", "papaya-inline", "mutex-map-inline"];

type Folded = foldhash::fast::FixedState;
type Fx = rustc_hash::FxBuildHasher;

const USAGE: &str = "\
usage: bench-compare walk      maps of (parent, name)
       bench-compare rows      caches by many threads, as Peacock (1992)
       bench-compare radix     indexes of pages: insert, look up, tag, remove
       bench-compare hit       caches where everything is there
       bench-compare evict     hits that caches keep of a sequence of accesses
Each is started by the bench of uvfs-bench that it serves, and told by lines what to do.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let served = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["walk"] => serve(),
        ["rows"] => rows::serve(io::stdin().lock(), io::stdout().lock()),
        ["radix" | "hit" | "evict"] => become_pages(&words[0]),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench-compare: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Goes on as the program that holds the rivals of the page cache, which lies beside this one.
///
/// # Errors
/// If it cannot be started; otherwise this does not return.
fn become_pages(word: &str) -> io::Result<()> {
    let program = std::env::current_exe()?.with_file_name("bench-compare-pages");
    let error = Command::new(&program).arg(word).exec();
    let why = format!("{}: {error}; it is built with this one", program.display());
    Err(io::Error::new(error.kind(), why))
}

fn serve() -> io::Result<()> {
    println!("bench-compare walk {PROTOCOL} {}", NAMES.join(" "));
    let mut course: Option<Course> = None;
    for line in io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        let answer = match words[..] {
            ["build", name, depth, names] => build(&mut course, name, depth, names),
            ["round", name, pattern, threads, ms] => turn(&mut course, name, pattern, threads, ms),
            _ => Err(format!("no such request: {line}")),
        };
        println!("{}", answer.unwrap_or_else(|why| format!("failed {why}")));
        io::stdout().flush()?;
    }
    Ok(())
}

/// A tree, the paths through it, and the maps that hold it.
struct Course {
    tree: Tree,
    paths: [Paths; 2],
    built: Vec<Built>,
}

struct Built {
    name: &'static str,
    cache: Box<dyn Rounds>,
    /// Hot, uniform.
    paces: [Pace; 2],
}

/// A [`Cache`] whose kind is known only inside, so that the timed loop has no call through a table.
trait Rounds {
    fn round(&self, paths: &Paths, pace: &mut Pace, threads: usize, target: Duration) -> Turn;
}

type Turn = Result<f64, String>;

impl<C: Cache> Rounds for C {
    fn round(&self, paths: &Paths, pace: &mut Pace, threads: usize, target: Duration) -> Turn {
        timed::round(&paths.track(), pace, threads, target, |path| {
            self.walk(path.to_bytes()).unwrap_or(MISSING)
        })
    }
}

fn build(
    course: &mut Option<Course>,
    name: &str,
    depth: &str,
    names: &str,
) -> Result<String, String> {
    let (depth, names) = (number(depth)?, number(names)?);
    let tree = Tree::new(depth as usize, names);
    if course.as_ref().is_none_or(|course| course.tree != tree) {
        let paths = Pattern::ALL.map(|pattern| Paths::new(&tree, pattern));
        *course = Some(Course { tree, paths, built: Vec::new() });
    }
    let course = course.as_mut().ok_or("no tree")?;
    let before = resident_bytes();
    let (name, cache) = match name {
        "papaya" => (NAMES[0], filled::<Papaya<Boxed, Fx>>(&course.tree)),
        "dashmap" => (NAMES[1], filled::<Dash<Fx>>(&course.tree)),
        "scc" => (NAMES[2], filled::<Scc<Folded>>(&course.tree)),
        "mutex-map" => (NAMES[3], filled::<Locked<Boxed, Fx>>(&course.tree)),
        "papaya-inline" => (NAMES[4], filled::<Papaya<Inline, Fx>>(&course.tree)),
        "mutex-map-inline" => (NAMES[5], filled::<Locked<Inline, Fx>>(&course.tree)),
        other => return Err(format!("no rival {other}; there are: {}", NAMES.join(", "))),
    };
    let grown = resident_bytes().saturating_sub(before);
    course.built.push(Built { name, cache, paces: [Pace::default(); 2] });
    let digest = course.paths.iter().fold(0, |sum: u64, paths| sum.wrapping_add(paths.digest()));
    Ok(format!("built {grown} {digest:x}"))
}

fn filled<C: Cache + 'static>(tree: &Tree) -> Box<dyn Rounds> {
    Box::new(fill::<C>(tree))
}

fn fill<C: Cache>(tree: &Tree) -> C {
    let mut cache = C::with_room(tree.names() as usize);
    for level in 1..=tree.depth() {
        for index in 0..tree.count(level) {
            let place = Place { level, index };
            let child = tree.id(place);
            let leaf = tree.is_leaf(place);
            let attributes = Attributes {
                size: if leaf { Tree::size(child) } else { 0 },
                atime_ns: 1,
                mtime_ns: 1,
                ctime_ns: 1,
                mode: if leaf { 0o100_644 } else { 0o040_755 },
                uid: 0,
                gid: 0,
                links: if leaf { 1 } else { 2 },
            };
            let parent = tree.id(tree.parent(place));
            cache.insert(parent, tree.name(place).as_bytes(), Value { child, attributes });
        }
    }
    cache
}

fn turn(
    course: &mut Option<Course>,
    name: &str,
    pattern: &str,
    threads: &str,
    ms: &str,
) -> Result<String, String> {
    let nth = Pattern::ALL.iter().position(|one| one.name() == pattern).ok_or("no such pattern")?;
    let (threads, ms) = (number(threads)?.clamp(1, 1024) as usize, number(ms)?);
    let course = course.as_mut().ok_or("nothing is built")?;
    let built = course.built.iter_mut().find(|built| built.name == name);
    let Built { cache, paces, .. } = built.ok_or("it is not built")?;
    let target = Duration::from_millis(ms);
    let ns = cache.round(&course.paths[nth], &mut paces[nth], threads, target)?;
    Ok(format!("ns {ns}"))
}

fn number(word: &str) -> Result<u64, String> {
    word.parse().map_err(|_| format!("{word} is no number"))
}

/// Memory of this process that is in place.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rival_builds_and_takes_its_turns() {
        let mut course = None;
        for name in NAMES {
            let answer = build(&mut course, name, "3", "500").unwrap();
            assert!(answer.starts_with("built "), "{answer}");
            for (pattern, threads) in [("hot", "1"), ("uniform", "2")] {
                let answer = turn(&mut course, name, pattern, threads, "1").unwrap();
                let ns: f64 = answer.strip_prefix("ns ").unwrap().parse().unwrap();
                assert!(ns > 0.0);
            }
        }
        assert_eq!(course.as_ref().unwrap().built.len(), NAMES.len());
        build(&mut course, "papaya", "2", "500").unwrap();
        assert_eq!(course.unwrap().built.len(), 1, "another tree takes away the first one's maps");
    }

    fn find_each<C: Cache>(tree: &Tree) {
        let cache = fill::<C>(tree);
        let paths = Paths::new(tree, Pattern::Uniform);
        let track = paths.track();
        for (path, &size) in track.paths.iter().zip(track.sizes) {
            assert_eq!(cache.walk(path.to_bytes()), Some(size), "{path:?}");
            assert_eq!(cache.walk(&[path.to_bytes(), b"~"].concat()), None, "{path:?}");
        }
    }

    #[test]
    fn every_map_finds_every_path() {
        for tree in [Tree::new(1, 3000), Tree::new(6, 3000)] {
            find_each::<Papaya<Boxed, Fx>>(&tree);
            find_each::<Dash<Fx>>(&tree);
            find_each::<Scc<Folded>>(&tree);
            find_each::<Locked<Boxed, Fx>>(&tree);
            find_each::<Papaya<Inline, Fx>>(&tree);
            find_each::<Locked<Inline, Fx>>(&tree);
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_there_is() {
        let mut course = None;
        assert!(turn(&mut course, "papaya", "hot", "1", "1").is_err());
        let refusal = build(&mut course, "btree", "3", "500").unwrap_err();
        assert!(refusal.contains("papaya, dashmap"), "{refusal}");
        assert!(build(&mut course, "papaya", "three", "500").is_err());
        assert!(turn(&mut course, "papaya", "warm", "1", "1").is_err());
    }
}
