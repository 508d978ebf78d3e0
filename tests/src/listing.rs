//! Listings with attributes, as a kernel's READDIRPLUS asks for them.

use std::sync::Arc;
use std::time::Duration;
use uvfs_vfs::{Attributes, Caller, Cookie, Entries, FileKind, FileRef, Name, Node, Vfs};

/// Gives each entry of a listing, held, to a function.
struct Each<F>(F);

impl<F: FnMut(&[u8], Node)> Entries for Each<F> {
    fn room(&self) -> usize {
        64
    }

    fn wants_nodes(&self) -> bool {
        true
    }

    fn name(&mut self, _: Name<'_>, _: Cookie, _: u64, _: FileKind) -> bool {
        true
    }

    fn node(
        &mut self,
        name: Name<'_>,
        _: Cookie,
        node: Node,
        _: &Attributes,
        _: (Duration, Duration),
    ) -> bool {
        (self.0)(name.as_bytes(), node);
        true
    }
}

/// Lists `directory` to its end for user 0; `each` takes every name with its node.
///
/// # Panics
/// If it cannot be listed.
pub fn for_each_node(vfs: &Arc<Vfs>, directory: &Node, each: impl FnMut(&[u8], Node)) {
    let unopened = FileRef::unopened(directory.id());
    let listed = vfs.list(&Caller::root(), directory, unopened, Cookie(0), &mut Each(each));
    listed.expect("a directory that can be listed");
}

/// The names of `directory` with their nodes, held as a kernel would.
pub fn list_nodes(vfs: &Arc<Vfs>, directory: &Node) -> Vec<(Vec<u8>, Node)> {
    let mut all = Vec::new();
    for_each_node(vfs, directory, |name, node| all.push((name.to_vec(), node)));
    all
}
