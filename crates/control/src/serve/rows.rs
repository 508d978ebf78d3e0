//! The cached amounts of a live mount, by directory, for a client of the control socket.
//!
//! # Boundary
//! Turns the core's counts ([`Vfs::resident_by_directory`]) into one bounded reply. The client lays it out.
//!
//! # Why
//! A cache of a million names may have as many directories, and a reply has a bound. The directories with the largest
//! amounts get a row, found from the top by a heap. Others count to the nearest ancestor that has a row, and the reply
//! has their number. Weakness: the daemon has all of them in memory for that moment, outside of its budget.

use super::{held, resolve};
use crate::cleaned::{HostSource, Raw};
use crate::policies;
use crate::protocol::REPLY_BYTES_MAX;
use crate::resident::{Cached, CachedRequest, Held, Row};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::Arc;
use uvfs_vfs::{CachePolicy, InodeId, ResidentDirectory, Vfs};

/// Most bytes of the rows of a reply; its other parts are far smaller than the rest of it.
const ROWS_BYTES_MAX: usize = REPLY_BYTES_MAX as usize - (128 << 10);
/// Most levels that are listed apart.
const DEPTH_MAX: u32 = 1000;

/// The cached amounts below the directory that `request` names, with the number of `requests` of each directory.
///
/// # Errors
/// The reason why there is no such directory.
pub fn cached(
    vfs: &Arc<Vfs>,
    source: Option<HostSource>,
    requests: &HashMap<InodeId, u64>,
    request: &CachedRequest,
) -> Result<Cached, String> {
    let directory = resolve(vfs, &policies::directory(&request.directory.0)?)?;
    let depth_max = request.depth.unwrap_or(DEPTH_MAX).min(DEPTH_MAX);
    let mut tree = Tree::new(depth_max);
    for found in vfs.resident_by_directory(&directory) {
        tree.add(&found, requests.get(&found.inode).copied().unwrap_or(0));
    }
    Ok(Cached { source, ..tree.into_rows(ROWS_BYTES_MAX) })
}

/// Directories, each after its parent.
#[derive(Debug)]
struct Tree {
    rows: Vec<Row>,
    /// The policy that applies in each of them, as far as it is known.
    policies: Vec<Option<CachePolicy>>,
    places: HashMap<(usize, Box<[u8]>), usize>,
    depth_max: u32,
    unplaced: Held,
}

impl Tree {
    fn new(depth_max: u32) -> Self {
        let (rows, policies) = (vec![Row::default()], vec![None]);
        Self { rows, policies, places: HashMap::new(), depth_max, unplaced: Held::default() }
    }

    fn add(&mut self, found: &ResidentDirectory, requests: u64) {
        let held = held(&found.resident);
        let Some(path) = &found.path else {
            self.unplaced.add(&held);
            self.rows[0].held.add(&held);
            return;
        };
        let mut at = 0;
        let mut names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        for name in names.by_ref().take(self.depth_max as usize) {
            at = match self.places.get(&(at, name.into())) {
                Some(place) => *place,
                None => self.add_row(at, name),
            };
        }
        self.rows[at].held.add(&held);
        self.rows[at].requests = self.rows[at].requests.saturating_add(requests);
        // Not if it counts to one above it.
        if names.next().is_none() {
            self.policies[at] = found.policy;
        }
    }

    fn add_row(&mut self, parent: usize, name: &[u8]) -> usize {
        let place = self.rows.len();
        let row = Row { name: Raw(name.into()), parent, ..Row::default() };
        self.rows.push(row);
        self.policies.push(None);
        self.places.insert((parent, name.into()), place);
        place
    }

    /// The rows that take at most `bytes_max` as text.
    fn into_rows(mut self, bytes_max: usize) -> Cached {
        self.name_policies();
        let shown = self.choose(bytes_max);
        // Where in the reply each one counts.
        let mut places = Vec::with_capacity(self.rows.len());
        let mut directories: Vec<Row> = Vec::new();
        let mut folded = 0;
        for (row, is_shown) in self.rows.into_iter().zip(shown) {
            let above = places.get(row.parent).copied().unwrap_or(0);
            if is_shown {
                places.push(directories.len());
                directories.push(Row { parent: above, ..row });
            } else {
                places.push(above);
                directories[above].held.add(&row.held);
                let requests = &mut directories[above].requests;
                *requests = requests.saturating_add(row.requests);
                directories[above].folded += 1;
                folded += 1;
            }
        }
        Cached { directories, unplaced: self.unplaced, folded, ..Cached::default() }
    }

    /// Writes down where another policy begins to hold.
    fn name_policies(&mut self) {
        for at in 0..self.rows.len() {
            // A child comes after its parent, so the parent's policy is known here.
            let above = match at {
                0 => CachePolicy::Normal,
                _ => self.policies[self.rows[at].parent].unwrap_or_default(),
            };
            let policy = *self.policies[at].get_or_insert(above);
            self.rows[at].policy = (policy != above).then(|| policy.to_string());
        }
    }

    /// Chooses the rows to send: the first, and then always the one with most in and below it, until the room is used.
    fn choose(&self, bytes_max: usize) -> Vec<bool> {
        let mut sums: Vec<Held> = self.rows.iter().map(|row| row.held).collect();
        let mut counts = vec![0; sums.len()];
        let mut children = vec![Vec::new(); sums.len()];
        for at in (1..sums.len()).rev() {
            let (parent, sum) = (self.rows[at].parent, sums[at]);
            sums[parent].add(&sum);
            counts[parent] += counts[at] + 1;
            children[parent].push(at);
        }
        let all_requests =
            self.rows.iter().fold(0, |sum: u64, row| sum.saturating_add(row.requests));
        let mut shown = vec![false; sums.len()];
        let mut left = bytes_max;
        let mut next = BinaryHeap::from([(sums[0].bytes(), Reverse(0))]);
        while let Some((_, Reverse(at))) = next.pop() {
            // With all that may count to it: no number in the reply is longer than these.
            let name = self.rows[at].name.clone();
            let policy = self.rows[at].policy.clone();
            let (held, folded) = (sums[at], counts[at]);
            let longest = Row { name, parent: at, held, requests: all_requests, folded, policy };
            let bytes = serde_json::to_string(&longest).map_or(usize::MAX, |text| text.len() + 1);
            if at > 0 && bytes > left {
                break;
            }
            left = left.saturating_sub(bytes);
            shown[at] = true;
            next.extend(children[at].iter().map(|&child| (sums[child].bytes(), Reverse(child))));
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_vfs::{Amount, Caller, Resident, VfsConfig};

    fn found(path: Option<&str>, pages: u64) -> ResidentDirectory {
        let pages = Amount { entries: pages, bytes: pages * 4096 };
        let resident = Resident { pages, ..Resident::default() };
        let path = path.map(|path| path.as_bytes().to_vec());
        ResidentDirectory { inode: InodeId::ROOT, path, resident, policy: None }
    }

    fn tree(depth_max: u32, directories: &[(&str, u64)]) -> Tree {
        let mut tree = Tree::new(depth_max);
        for (path, pages) in directories {
            tree.add(&found(Some(path), *pages), *pages * 100);
        }
        tree
    }

    /// Place of the parent, name and pages of each row.
    fn lines(cached: &Cached) -> Vec<String> {
        let line = |row: &Row| {
            let name = String::from_utf8_lossy(&row.name.0);
            format!("{}/{name} {}", row.parent, row.held.pages.entries)
        };
        cached.directories.iter().map(line).collect()
    }

    #[test]
    fn directories_come_after_those_that_they_are_in_and_deep_ones_count_above() {
        let directories = [("a/b/c", 1), ("", 2), ("a", 4), ("z", 8), ("a/b/d", 16)];
        let all = tree(9, &directories).into_rows(1 << 20);
        assert_eq!(lines(&all), ["0/ 2", "0/a 4", "1/b 0", "2/c 1", "0/z 8", "2/d 16"]);
        assert_eq!(all.folded, 0);
        let two = tree(2, &directories).into_rows(1 << 20);
        assert_eq!(lines(&two), ["0/ 2", "0/a 4", "1/b 17", "0/z 8"]);
        assert_eq!(two.folded, 0, "as it was asked for");
        let requests: Vec<_> = two.directories.iter().map(|row| row.requests).collect();
        assert_eq!(requests, [200, 400, 1700, 800]);
    }

    #[test]
    fn a_policy_is_named_where_it_begins_to_hold() {
        let (keep, once) = (Some(CachePolicy::Keep), Some(CachePolicy::Once));
        let of = |depth_max, directories: &[(&str, Option<CachePolicy>)]| {
            let mut tree = Tree::new(depth_max);
            for (path, policy) in directories {
                tree.add(&ResidentDirectory { policy: *policy, ..found(Some(path), 1) }, 0);
            }
            let cached = tree.into_rows(1 << 20);
            let mut named: Vec<_> = cached.directories.into_iter().collect();
            named.retain(|row| row.policy.is_some());
            let line = |row: &Row| {
                let name = String::from_utf8_lossy(&row.name.0);
                format!("{name} {}", row.policy.clone().unwrap_or_default())
            };
            named.iter().map(line).collect::<Vec<_>>()
        };
        let normal = Some(CachePolicy::Normal);
        let directories =
            [("", normal), ("a/b/c", keep), ("a", keep), ("a/n", normal), ("o", once)];
        assert_eq!(of(9, &directories), ["a keep", "n normal", "o once"]);
        assert_eq!(of(1, &directories), ["a keep", "o once"]);
        assert_eq!(of(0, &[("a", keep), ("", normal)]), [""; 0]);
        assert_eq!(of(9, &[("", keep), ("a", keep)]), [" keep"], "from above");
    }

    #[test]
    fn what_has_no_place_counts_to_the_first() {
        let mut tree = tree(9, &[("a", 1)]);
        tree.add(&found(None, 5), 7);
        let cached = tree.into_rows(1 << 20);
        assert_eq!(lines(&cached)[0], "0/ 5");
        assert_eq!(cached.unplaced.pages.entries, 5);
    }

    #[test]
    fn small_directories_count_above_when_there_is_no_room_and_nothing_is_lost() {
        let names: Vec<_> = (0..500).map(|at| format!("large/{at}/\x01deep")).collect();
        let mut directories: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
        directories.push(("top/below", 1_000_000));
        let every = tree(9, &directories);
        let count = every.rows.len() as u64;
        for bytes_max in [0, 500, 3000, 20_000, 60_000, 1 << 20] {
            let cached = tree(9, &directories).into_rows(bytes_max);
            let text = serde_json::to_string(&cached.directories).unwrap();
            let root = serde_json::to_string(&cached.directories[0]).unwrap();
            assert!(text.len() <= bytes_max.max(root.len()) + 2, "{bytes_max}: {}", text.len());
            let rows = &cached.directories;
            let pages: u64 = rows.iter().map(|row| row.held.pages.entries).sum();
            assert_eq!(pages, 1_000_500, "{bytes_max}");
            assert_eq!(rows.len() as u64 + cached.folded, count, "{bytes_max}");
            assert_eq!(rows.iter().map(|row| row.folded).sum::<u64>(), cached.folded);
            assert!(rows.iter().enumerate().skip(1).all(|(at, row)| row.parent < at));
            assert_eq!(cached.folded == 0, bytes_max == 1 << 20, "{bytes_max}");
            let largest = rows.iter().any(|row| row.name.0 == b"below");
            assert_eq!(largest, bytes_max >= 500, "what holds most has a row first");
        }
    }

    #[test]
    fn a_mount_tells_what_is_cached_and_refuses_what_is_not_there() {
        let backend = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(backend, VfsConfig::default()).unwrap();
        let root = vfs.root_directory(Caller::root());
        for path in ["a", "a/b", "ab"] {
            root.create_directory(path, 0o700).unwrap();
            root.write_file([path, "/file"].concat(), b"x").unwrap();
        }
        let ask = |path: &str, depth| {
            let request = CachedRequest { directory: Raw(path.into()), depth };
            cached(&vfs, None, &HashMap::new(), &request)
        };
        let all = ask("/a", None).unwrap();
        let names: Vec<_> = all.directories.iter().map(|row| row.name.0.clone()).collect();
        assert_eq!(names, [b"".to_vec(), b"b".to_vec()]);
        assert_eq!(all.directories[1].held.names.entries, 1);
        let top = ask("/a", Some(0)).unwrap();
        assert_eq!((top.directories.len(), top.directories[0].held.names.entries), (1, 3));
        assert!(ask("/none", None).unwrap_err().starts_with("no such directory"));
        for bad in ["a", "/a/../b", "", "/\0"] {
            assert!(ask(bad, None).is_err(), "{bad:?}");
        }
    }
}
