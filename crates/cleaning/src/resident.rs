//! `uvfs cached` in a uvfs mount: the caches of uvfs itself, by directory.
//!
//! # Boundary
//! Asks the daemon and lays out its answer; walks through nothing, so it fills no cache.
//!
//! # Why
//! The daemon counts its caches and visits no file, so a view costs the same for a cold tree, and it includes names and
//! inodes. Weakness: the kernel's caches in front of uvfs are not in it; `--kernel` shows those.

use super::flags::{CachedArguments, Sort};
use super::mounted::Target;
use super::table::{self, Column, Room, Row as Line};
use crate::Failure;
use crate::shown::shown_name;
use crate::units::{counted, show_bytes, show_count};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use uvfs_control::cleaned::HostSource;
use uvfs_control::resident::{Cached, Held};
use uvfs_vfs::Amount;

/// The amounts of a row.
const COLUMNS: [Column; 5] = [
    Column { head: "cached", rank: 0 },
    Column { head: "pages", rank: 2 },
    Column { head: "names", rank: 4 },
    Column { head: "inodes", rank: 5 },
    Column { head: "dirty", rank: 3 },
];

/// A directory of the view.
#[derive(Debug)]
struct Node {
    name: OsString,
    children: Vec<usize>,
    /// The cached amounts in and below it.
    held: Held,
    /// Directories below it that have no line because the reply has a bound.
    folded: u64,
    /// The policy that holds from here on down.
    policy: Option<String>,
}

/// The daemon's answer.
#[derive(Debug)]
pub(super) struct MountView {
    mount: PathBuf,
    inside: PathBuf,
    directory: PathBuf,
    nodes: Vec<Node>,
    unplaced: Held,
    folded: u64,
    source: Option<HostSource>,
    elapsed: Duration,
}

impl MountView {
    /// Asks the daemon of `target`, once.
    ///
    /// # Errors
    /// Why there is no answer.
    pub(super) fn take(target: &Target, arguments: &CachedArguments) -> Result<Self, Failure> {
        let began = Instant::now();
        let path = &arguments.directory;
        let refused = |cause: String| Failure::refused(format!("{}: {cause}", path.display()));
        let cached = target.cached(arguments.depth)?.map_err(refused)?;
        let view = Self::new(cached, path, target, arguments.sort, began.elapsed());
        view.ok_or_else(|| {
            refused("the daemon's report makes no sense; mount again with this version".into())
        })
    }

    /// The view of `cached`, unless that is no tree.
    fn new(
        cached: Cached,
        path: &Path,
        target: &Target,
        sort: Sort,
        elapsed: Duration,
    ) -> Option<Self> {
        let mut nodes: Vec<Node> = Vec::with_capacity(cached.directories.len());
        let mut parents = Vec::with_capacity(cached.directories.len());
        for (at, row) in cached.directories.into_iter().enumerate() {
            let name = match at {
                0 => path.as_os_str().to_os_string(),
                _ => OsString::from_vec(row.name.0),
            };
            if at > 0 {
                nodes.get_mut(row.parent)?.children.push(at);
            }
            parents.push(row.parent);
            let (held, folded, policy) = (row.held, row.folded, row.policy);
            nodes.push(Node { name, children: Vec::new(), held, folded, policy });
        }
        nodes.first()?;
        // A child comes after its parent, so sums are complete from the end on.
        for at in (1..nodes.len()).rev() {
            let held = nodes[at].held;
            nodes[parents[at]].held.add(&held);
        }
        for at in 0..nodes.len() {
            let mut children = std::mem::take(&mut nodes[at].children);
            children.sort_by(|&a, &b| {
                let (a, b) = (&nodes[a], &nodes[b]);
                let by_name = a.name.cmp(&b.name);
                match sort {
                    Sort::Name => by_name,
                    Sort::Size => b.held.bytes().cmp(&a.held.bytes()).then(by_name),
                }
            });
            nodes[at].children = children;
        }
        Some(Self {
            mount: target.mountpoint().to_path_buf(),
            inside: target.path_inside().to_path_buf(),
            directory: path.to_path_buf(),
            nodes,
            unplaced: cached.unplaced,
            folded: cached.folded,
            source: cached.source,
            elapsed,
        })
    }

    /// For people.
    pub(super) fn text(&self, room: Room) -> String {
        let mut lines = Vec::new();
        self.lines(0, 0, &mut lines);
        let mut text = table::text(&COLUMNS, &lines, self.nodes[0].held.bytes(), room);
        if self.unplaced != Held::default() {
            let bytes = show_bytes(self.unplaced.bytes());
            text += &format!("{bytes} of it somewhere below: a name on the way is not cached\n");
        }
        if self.folded > 0 {
            let count = show_count(self.folded);
            text += &format!(
                "too many directories for one answer: the {count} smallest count to those above them\n"
            );
        }
        if let Some(source) = self.source_pages() {
            let source = shown_name(source);
            text += &format!(
                "file data is cached by the kernel, of the source: uvfs cached {source}\n"
            );
        }
        let Held { names, inodes, pages, .. } = self.nodes[0].held;
        text += &format!(
            "{}, {}, {} in uvfs's own caches; {:.3} s\n",
            counted(pages.entries, "page", "pages"),
            counted(names.entries, "name", "names"),
            counted(inodes.entries, "inode", "inodes"),
            self.elapsed.as_secs_f64()
        );
        text
    }

    fn lines(&self, node: usize, depth: usize, lines: &mut Vec<Line>) {
        let Node { name, children, held, policy, .. } = &self.nodes[node];
        let name: String = shown_name(name);
        let slash = if name.ends_with('/') { "" } else { "/" };
        let policy = policy.as_ref().map(|policy| format!("  {policy}")).unwrap_or_default();
        lines.push(Line {
            cells: vec![
                show_bytes(held.bytes()),
                bytes(held.pages),
                count(held.names),
                count(held.inodes),
                bytes(held.dirty),
            ],
            part: held.bytes(),
            name: format!("{:indent$}{name}{slash}{policy}", "", indent = 2 * depth),
        });
        for child in children {
            self.lines(*child, depth + 1, lines);
        }
    }

    /// The directory of the source whose pages a reader of the mount has in memory.
    fn source_pages(&self) -> Option<PathBuf> {
        let source = self.source.as_ref().filter(|source| source.caches_pages)?;
        let root = PathBuf::from(OsString::from_vec(source.path.0.clone()));
        let below = self.inside.strip_prefix("/").unwrap_or(&self.inside);
        Some(root.components().chain(below.components()).collect())
    }

    /// For programs.
    pub(super) fn json(&self) -> Value {
        let source = self.source_pages();
        json!({
            "directory": self.directory.to_string_lossy(),
            "measured_by": "uvfs",
            "mount": self.mount.to_string_lossy(),
            "path_in_mount": self.inside.to_string_lossy(),
            "tree": self.object(0),
            "unplaced": held_json(&self.unplaced),
            "folded_directories": self.folded,
            "source_caches_pages": source.map(|path| path.to_string_lossy().into_owned()),
            "interrupted": false,
            "elapsed_seconds": self.elapsed.as_secs_f64(),
        })
    }

    fn object(&self, node: usize) -> Value {
        let Node { name, children, held, folded, policy } = &self.nodes[node];
        let mut object = held_json(held);
        let more = json!({
            "name": name.to_string_lossy(),
            "policy": policy,
            "folded_directories": folded,
            "directories": children.iter().map(|&child| self.object(child)).collect::<Vec<_>>(),
        });
        if let (Value::Object(all), Value::Object(more)) = (&mut object, more) {
            all.extend(more);
        }
        object
    }
}

/// `cached_bytes` and `dirty_bytes` have the same meaning for other file systems.
fn held_json(held: &Held) -> Value {
    json!({
        "cached_bytes": held.bytes(),
        "dirty_bytes": held.dirty.bytes,
        "pages": { "pages": held.pages.entries, "bytes": held.pages.bytes },
        "names": held.names,
        "inodes": held.inodes,
    })
}

fn bytes(number: Amount) -> String {
    if number.entries == 0 { "-".into() } else { show_bytes(number.bytes) }
}

fn count(number: Amount) -> String {
    if number.entries == 0 { "-".into() } else { show_count(number.entries) }
}

#[cfg(test)]
mod tests {
    use super::super::mounted::example;
    use super::*;
    use uvfs_control::cleaned::Raw;
    use uvfs_control::resident::Row;

    fn row(name: &str, parent: usize, pages: u64) -> Row {
        let pages = Amount { entries: pages, bytes: pages * 4096 };
        let names = Amount { entries: 1, bytes: 512 };
        let held = Held { names, pages, ..Held::default() };
        Row { name: Raw(name.into()), parent, held, ..Row::default() }
    }

    fn view(cached: Cached, sort: Sort) -> Option<MountView> {
        let path = Path::new("/mnt/data/t");
        let target = Target::inside(example("/", "/mnt/data"), path).unwrap();
        MountView::new(cached, path, &target, sort, Duration::from_millis(1500))
    }

    fn rows() -> Vec<Row> {
        let mut rows = vec![row("", 0, 0), row("a", 0, 1), row("deep", 1, 1), row("b", 0, 6)];
        rows[3].held.dirty = Amount { entries: 1, bytes: 4096 };
        rows[3].policy = Some("keep".into());
        rows
    }

    #[test]
    fn lines_are_sums_in_columns_with_the_marks_behind() {
        let cached = Cached { directories: rows(), ..Cached::default() };
        let expected = "
  cached     pages  names  inodes    dirty  share                 directory
34.0 KiB  32.0 KiB      4       -  4.0 KiB  ####################  /mnt/data/t/
24.5 KiB  24.0 KiB      1       -  4.0 KiB  ###############         b/  keep
 9.0 KiB   8.0 KiB      2       -        -  ######                  a/
 4.5 KiB   4.0 KiB      1       -        -  ###                       deep/
8 pages, 4 names, 0 inodes in uvfs's own caches; 1.500 s
";
        let text = view(cached.clone(), Sort::Size).unwrap().text(Room::Any);
        assert_eq!(text, expected[1..], "\n{text}");
        let json = view(cached, Sort::Name).unwrap().json();
        assert_eq!((&json["measured_by"], &json["mount"]), (&json!("uvfs"), &json!("/mnt/data")));
        let below = &json["tree"]["directories"];
        assert_eq!((&below[0]["name"], &below[1]["policy"]), (&json!("a"), &json!("keep")));
        assert_eq!(below[0]["directories"][0]["pages"]["pages"], 1);
        assert_eq!(json["tree"]["cached_bytes"], 8 * 4096 + 4 * 512);
    }

    #[test]
    fn what_a_view_leaves_out_is_said_before_its_sum() {
        let mut source = HostSource { path: Raw(b"/srv".to_vec()), ..HostSource::default() };
        source.caches_pages = true;
        let unplaced = row("", 0, 1).held;
        let cached = Cached { directories: rows(), unplaced, folded: 1234, source: Some(source) };
        let text = view(cached.clone(), Sort::Size).unwrap().text(Room::Any);
        let expected = "
4.5 KiB of it somewhere below: a name on the way is not cached
too many directories for one answer: the 1,234 smallest count to those above them
file data is cached by the kernel, of the source: uvfs cached /srv/t
8 pages";
        assert!(text.contains(expected), "{text}");
        let json = view(cached, Sort::Size).unwrap().json();
        assert_eq!(
            (&json["folded_directories"], &json["unplaced"]["names"]["entries"]),
            (&json!(1234), &json!(1))
        );
        assert_eq!(json["source_caches_pages"], "/srv/t");
    }

    #[test]
    fn a_report_that_is_no_tree_is_refused() {
        for bad in
            [vec![], vec![row("", 0, 1), row("a", 1, 1)], vec![row("", 0, 1), row("a", 9, 1)]]
        {
            assert!(view(Cached { directories: bad, ..Cached::default() }, Sort::Size).is_none());
        }
    }
}
