//! The cached amounts, added up by directory and shown as a tree with bars.
//!
//! # Boundary
//! A [`Visitor`] that measures and drops nothing, and the layout of its result.
//!
//! # Why
//! Directories below the shown depth count to their shown ancestor, so a tree of a million directories needs as many
//! nodes as lines. Those with nothing cached are counted, not shown: the question is where the memory is.

use super::NODES;
use super::evict::Links;
use super::flags::Sort;
use super::meter::Meter;
use super::opener::Identity;
use super::place::Place;
use super::report::files;
use super::table::{self, Column, Room, Row};
use super::tally::Tally;
use super::walk::Visitor;
use crate::shown::shown_name;
use crate::units::{show_bytes, show_count};
use serde_json::{Value, json};
use std::ffi::{CStr, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use uvfs_concurrent::lock::Mutex;
use uvfs_residency::page_bytes;

/// The amounts of a row.
const COLUMNS: [Column; 4] = [
    Column { head: "cached", rank: 0 },
    Column { head: "of", rank: 2 },
    Column { head: "dirty", rank: 3 },
    Column { head: "writing", rank: 4 },
];

/// A directory of the tree.
#[derive(Debug)]
struct Node {
    name: OsString,
    children: Vec<usize>,
    /// The amounts in it, and after [`Tree::new`] also below it.
    tally: Tally,
}

/// Adds up the cached amounts, by directory.
#[derive(Debug)]
pub(super) struct Census {
    meter: Meter,
    depth_max: u32,
    links: Links,
    nodes: Mutex<Vec<Node>>,
}

impl Census {
    /// For one walk from `start`, whose node is 0.
    pub(super) fn new(meter: Meter, depth_max: u32, start: &Path) -> Self {
        let name = start.as_os_str().to_os_string();
        let root = Node { name, children: Vec::new(), tally: Tally::default() };
        Self { meter, depth_max, links: Links::new(), nodes: Mutex::new(&NODES, vec![root]) }
    }

    /// The tree, after the walk.
    pub(super) fn into_tree(self, sort: Sort) -> Tree {
        Tree::new(self.nodes.into_inner(), sort)
    }
}

impl Visitor for Census {
    fn enter(&self, parent: &Place, name: &CStr) -> usize {
        if parent.depth >= self.depth_max {
            return parent.node;
        }
        let name = OsStr::from_bytes(name.to_bytes()).to_os_string();
        let mut nodes = self.nodes.lock();
        let node = nodes.len();
        nodes.push(Node { name, children: Vec::new(), tally: Tally::default() });
        nodes[parent.node].children.push(node);
        node
    }

    fn file(&self, file: &OwnedFd, tally: &mut Tally) -> io::Result<()> {
        let identity = Identity::of(file.as_fd())?;
        if self.links.seen(&identity) {
            tally.links += 1;
            return Ok(());
        }
        tally.size_bytes += identity.bytes;
        match self.meter.measure(file)? {
            None => tally.files_unknown += 1,
            Some(now) => {
                tally.files_before += u64::from(now.cached > 0);
                tally.pages_before += now.cached;
                tally.pages_dirty_before += now.dirty;
                tally.pages_writeback_before += now.writeback;
            }
        }
        Ok(())
    }

    fn counted(&self, place: &Place, tally: &Tally) {
        self.nodes.lock()[place.node].tally += tally;
    }

    fn listed(&self, _directory: &OwnedFd) {}
}

/// Directories with the amounts in and below them.
#[derive(Debug)]
pub(super) struct Tree {
    nodes: Vec<Node>,
}

impl Tree {
    fn new(mut nodes: Vec<Node>, sort: Sort) -> Self {
        // A child comes after its parent, so sums are complete from the end on.
        for at in (0..nodes.len()).rev() {
            let mut sum = nodes[at].tally;
            for child in nodes[at].children.clone() {
                sum += &nodes[child].tally;
            }
            nodes[at].tally = sum;
        }
        for at in 0..nodes.len() {
            let mut children = std::mem::take(&mut nodes[at].children);
            children.sort_by(|&a, &b| {
                let (a, b) = (&nodes[a], &nodes[b]);
                let by_name = a.name.cmp(&b.name);
                match sort {
                    Sort::Name => by_name,
                    Sort::Size => b.tally.pages_before.cmp(&a.tally.pages_before).then(by_name),
                }
            });
            nodes[at].children = children;
        }
        Self { nodes }
    }

    /// The sum of everything.
    pub(super) fn total(&self) -> &Tally {
        &self.nodes[0].tally
    }

    /// Lines for people.
    pub(super) fn text(&self, room: Room) -> String {
        let mut rows = Vec::new();
        self.rows(0, 0, &mut rows);
        table::text(&COLUMNS, &rows, self.total().pages_before, room)
    }

    fn rows(&self, node: usize, depth: usize, rows: &mut Vec<Row>) {
        let Node { name, children, tally } = &self.nodes[node];
        let name: String = shown_name(name);
        let slash = if name.ends_with('/') { "" } else { "/" };
        rows.push(Row {
            cells: vec![
                show_bytes(tally.pages_before * page_bytes()),
                share_of_files(tally),
                show_unless_zero(tally.pages_dirty_before),
                show_unless_zero(tally.pages_writeback_before),
            ],
            part: tally.pages_before,
            name: format!("{:indent$}{name}{slash}", "", indent = 2 * depth),
        });
        let shown = |child: &&usize| self.nodes[**child].tally.pages_before > 0;
        for child in children.iter().filter(shown) {
            self.rows(*child, depth + 1, rows);
        }
        let empty = children.len() - children.iter().filter(shown).count();
        if empty > 0 && empty < children.len() {
            let (indent, count) = (2 * (depth + 1), show_count(empty as u64));
            let name = format!("{:indent$}and {count} with nothing", "");
            rows.push(Row { cells: Vec::new(), part: 0, name });
        }
    }

    /// An object for programs, with all directories.
    pub(super) fn json(&self) -> Value {
        self.object(0)
    }

    fn object(&self, node: usize) -> Value {
        let Node { name, children, tally } = &self.nodes[node];
        json!({
            "name": name.to_string_lossy(),
            "cached_bytes": tally.pages_before * page_bytes(),
            "dirty_bytes": tally.pages_dirty_before * page_bytes(),
            "writeback_bytes": tally.pages_writeback_before * page_bytes(),
            "size_bytes": tally.size_bytes,
            "files": tally.files,
            "files_with_pages": tally.files_before,
            "directories": children.iter().map(|&child| self.object(child)).collect::<Vec<_>>(),
        })
    }
}

/// `45%`: the cached share of the files' bytes.
fn share_of_files(tally: &Tally) -> String {
    let cached = u128::from(tally.pages_before * page_bytes());
    match u128::from(tally.size_bytes) {
        0 => String::new(),
        // The last page of a file counts whole, so there may be a little more than all.
        size => format!("{}%", (100 * cached / size).min(100)),
    }
}

fn show_unless_zero(pages: u64) -> String {
    if pages == 0 { "-".into() } else { show_bytes(pages * page_bytes()) }
}

/// `1,234 files, 120 with pages`, for the last line of a view.
pub(super) fn summary(tally: &Tally) -> String {
    format!("{}, {} with pages", files(tally.files), show_count(tally.files_before))
}

#[cfg(test)]
mod tests {
    use super::super::opener::{Fill, Offered};
    use super::super::testing;
    use super::*;

    fn node(name: &str, pages: u64, children: &[usize]) -> Node {
        let size_bytes = 2 * pages * page_bytes();
        let tally = Tally { pages_before: pages, files: 1, size_bytes, ..Tally::default() };
        Node { name: name.into(), children: children.to_vec(), tally }
    }

    #[test]
    fn sums_go_upwards_and_lines_are_sorted() {
        let nodes = || {
            vec![
                node("/srv", 0, &[1, 2, 3]),
                node("a", 256, &[4]),
                node("b", 768, &[]),
                node("c", 0, &[]),
                node("deep", 256, &[]),
            ]
        };
        if page_bytes() != 4096 {
            return uvfs_skip::lacking("the text below is for pages of 4 KiB");
        }
        let expected = "
 cached   of  dirty  writing  share                 directory
5.0 MiB  50%      -        -  ####################  /srv/
3.0 MiB  50%      -        -  ############            b/
2.0 MiB  50%      -        -  ########                a/
1.0 MiB  50%      -        -  ####                      deep/
                                                      and 1 with nothing
";
        let text = Tree::new(nodes(), Sort::Size).text(Room::Any);
        assert_eq!(text, expected[1..], "\n{text}");
        let by_name = Tree::new(nodes(), Sort::Name).json();
        let names: Vec<_> = by_name["directories"].as_array().unwrap().iter().collect();
        let names: Vec<_> = names.iter().map(|node| node["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(by_name["directories"][0]["cached_bytes"], 512 * 4096);
    }

    #[test]
    fn a_census_counts_by_directory_to_the_depth_that_is_shown() {
        let Some(folder) = testing::Tree::new() else { return };
        for (file, pages) in [("t/a/x", 2), ("t/a/b/c/y", 3), ("t/z", 4), ("u/other", 5)] {
            folder.clean_file(file, pages);
        }
        std::fs::hard_link(folder.path("t/z"), folder.path("t/zz")).unwrap();
        let start = folder.path("t");
        let census = Census::new(Meter::Cachestat, 1, &start);
        let outcome = testing::walk(&start, Offered::probe(), Fill::Allowed, &census);
        let tree = census.into_tree(Sort::Size);
        assert_eq!((tree.total().pages_before, tree.total().links), (9, 1));
        assert_eq!((tree.nodes.len(), outcome.tally.files), (2, 4), "c counts to a");
        assert_eq!((tree.nodes[1].tally.pages_before, tree.nodes[1].tally.files), (5, 2));
        assert_eq!(tree.total().size_bytes, 9 * page_bytes());
    }
}
