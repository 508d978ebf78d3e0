//! The cached amounts of one directory of a live mount, for a client of the control socket.
//!
//! # Boundary
//! Turns the core's counts ([`Vfs::resident_level`]) into one bounded reply, and chooses the directories to list apart.

use super::{held, resolve};
use crate::cleaned::Raw;
use crate::level::{AskedOf, Child, Level, LevelRequest, MOST, Share, USUAL};
use crate::policies;
use std::collections::HashMap;
use std::sync::Arc;
use uvfs_vfs::{InodeId, Node, Resident, Vfs};

/// The cached amounts of the directory that `request` names, with the kernel's requests (`asked`) about directories.
///
/// # Errors
/// The reason why there is no such directory.
pub fn level(
    vfs: &Arc<Vfs>,
    asked: &HashMap<InodeId, AskedOf>,
    request: &LevelRequest,
) -> Result<Level, String> {
    let directory = resolve(vfs, &policies::directory(&request.directory.0)?)?;
    let most = request.most.unwrap_or(USUAL).min(MOST) as usize;
    let found = vfs.resident_level(&directory);
    let mut asked = by_child(vfs, &directory, asked);
    let mut share = |id, resident: &Resident| Share {
        held: held(resident),
        asked: asked.remove(&id).unwrap_or_default(),
    };
    let own = share(directory.id(), &found.own);
    let children = found.children.into_iter().map(|child| {
        let share = share(child.inode, &child.resident);
        let policy = child.policy.map(|policy| policy.to_string());
        (child.name, Child { name: Raw::default(), share, policy })
    });
    // A directory without a cached name cannot be opened in the picture: it counts to the rest.
    let (mut named, nameless): (Vec<_>, Vec<_>) = children.partition(|(name, _)| name.is_some());
    named.sort_by(|(name, one), (other_name, other)| {
        let size = |child: &Child| child.share.measure(request.by);
        size(other).cmp(&size(one)).then_with(|| name.cmp(other_name))
    });
    let small = named.split_off(most.min(named.len()));
    let mut rest = Share { held: held(&found.rest), ..Share::default() };
    small.iter().chain(&nameless).for_each(|(_, child)| rest.add(&child.share));
    // The kernel may have asked about directories that are no longer cached.
    asked.into_values().for_each(|asked| rest.add(&Share { asked, ..Share::default() }));
    let named = named.into_iter();
    let children: Vec<_> =
        named.map(|(name, child)| Child { name: Raw(name.unwrap_or_default()), ..child }).collect();
    let mut total = own;
    children.iter().map(|child| &child.share).chain([&rest]).for_each(|share| total.add(share));
    let rest_directories = (small.len() + nameless.len()) as u64;
    let policy = Some(vfs.policy(&directory).1.to_string());
    Ok(Level { total, own, children, rest, rest_directories, policy })
}

/// How often the directories in `directory` were asked about, with all below them.
fn by_child(
    vfs: &Arc<Vfs>,
    directory: &Node,
    asked: &HashMap<InodeId, AskedOf>,
) -> HashMap<InodeId, AskedOf> {
    let mut sums: HashMap<InodeId, AskedOf> = HashMap::new();
    for (below, asked) in asked {
        if let Some(child) = vfs.child_towards(directory, *below) {
            let sum = sums.entry(child).or_default();
            sum.requests = sum.requests.saturating_add(asked.requests);
            sum.misses = sum.misses.saturating_add(asked.misses);
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Measure;
    use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
    use uvfs_vfs::{CachePolicy, Caller, VfsConfig};

    #[test]
    fn the_largest_are_listed_apart_and_the_sums_are_right() {
        let backend = MemoryBackend::new(MemoryConfig::default()).unwrap();
        let vfs = Vfs::new(backend, VfsConfig::default()).unwrap();
        let root = vfs.root_directory(Caller::root());
        for at in 0..6u32 {
            root.create_directory(format!("d{at}"), 0o700).unwrap();
            root.create_directory(format!("d{at}/below"), 0o700).unwrap();
            (0..at).for_each(|n| root.write_file(format!("d{at}/below/{n}"), b"x").unwrap());
        }
        let node = |path: &str| resolve(&vfs, std::path::Path::new(path)).unwrap();
        vfs.set_policy(&node("/d5"), Some(CachePolicy::Keep)).unwrap();
        let of = |requests, misses| AskedOf { requests, misses };
        let asked = HashMap::from([
            (vfs.root().id(), of(5, 1)),
            (node("/d1/below").id(), of(610, 61)),
            (node("/d1").id(), of(61, 61)),
            (node("/d2").id(), of(61, 0)),
        ]);
        let ask = |path: &str, by, most| {
            let request = LevelRequest { directory: Raw(path.into()), by, most };
            level(&vfs, &asked, &request).unwrap()
        };
        let names = |level: &Level| -> Vec<String> {
            let name = |child: &Child| String::from_utf8(child.name.0.clone()).unwrap();
            level.children.iter().map(name).collect()
        };
        let all = ask("/", Measure::Names, None);
        assert_eq!(names(&all), ["d5", "d4", "d3", "d2", "d1", "d0"]);
        assert_eq!(all.total.held.names.entries, 6 + 6 + 15);
        assert_eq!((all.own.held.names.entries, all.own.asked), (6, of(5, 1)));
        assert_eq!(all.children[0].policy.as_deref(), Some("keep"));
        assert_eq!((all.rest, all.rest_directories), (Share::default(), 0));
        let two = ask("/", Measure::Names, Some(2));
        assert_eq!((names(&two), two.rest_directories), (vec!["d5".into(), "d4".into()], 4));
        assert_eq!(two.rest.held.names.entries, 4 + 3 + 2 + 1);
        assert_eq!(two.total, all.total);
        let hot = ask("/", Measure::Misses, Some(1));
        assert_eq!((names(&hot), hot.children[0].share.asked), (vec!["d1".into()], of(671, 122)));
        let inside = ask("/d1", Measure::Bytes, None);
        assert_eq!((names(&inside), inside.own.asked), (vec!["below".into()], of(61, 61)));
        assert_eq!(inside.total.asked, of(671, 122));
        let request =
            LevelRequest { directory: Raw(b"/none".into()), by: Measure::Bytes, most: None };
        assert!(level(&vfs, &asked, &request).unwrap_err().starts_with("no such directory"));
    }

    /// However many directories there are, and however they are called.
    #[test]
    fn a_reply_has_a_bound() {
        let child = Child {
            name: Raw(vec![1; 255]),
            share: Share {
                held: crate::resident::Held {
                    names: uvfs_vfs::Amount { entries: u64::MAX, bytes: u64::MAX },
                    inodes: uvfs_vfs::Amount { entries: u64::MAX, bytes: u64::MAX },
                    pages: uvfs_vfs::Amount { entries: u64::MAX, bytes: u64::MAX },
                    dirty: uvfs_vfs::Amount { entries: u64::MAX, bytes: u64::MAX },
                },
                asked: AskedOf { requests: u64::MAX, misses: u64::MAX },
            },
            policy: Some("normal".into()),
        };
        let bytes = serde_json::to_string(&child).unwrap().len() as u64;
        assert!((bytes + 1) * u64::from(MOST) < crate::protocol::REPLY_BYTES_MAX, "{bytes}");
    }
}
