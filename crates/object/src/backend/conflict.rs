//! Contents that the store refuses for good, because others have replaced or removed the object.
//!
//! # Boundary
//! Keeps the content under a name beside the file, or drops it. [`super::writing`] finds the conflict.
//!
//! # Rules
//! K1. A refused content is never put under the file's own key again, also not when others remove their object later.
//! K2. It is put as a new object, `NAME.uvfs-conflict-TIME-HOST`. The file here has that name from then on: open descriptors
//!     continue with it, and the old name leads to the object of the others.
//! K3. If the store cannot take that object now, the file stays refused, and each later try is for the name beside it (K1).
//! K4. If a part of the content lies only in the version that is gone, no whole content can be kept. The file loses its name,
//!     and the log says so.
//! K5. In each case but K3 the writer gets EBUSY once, and the core has no dirty pages of it any more.
//!
//! # Why
//! The content was tried again every few seconds for ever, kept its memory, and appeared under the name as soon as the others
//! removed their object. Users of other synchronised folders know names beside the file. Weakness: only users remove these
//! objects.

use super::Shared;
use super::names::node_name;
use super::table::{Node, What};
use super::writing::Failed;
use crate::store::{Condition, StoreError};
use std::sync::Arc;
use uvfs_vfs::{Error, FileRef, Timestamp, WholeContent};

/// Names that are tried, if another daemon of this host has taken the first.
const NAMES_MAX: u32 = 8;
/// Bytes of a name, as file systems have it.
const NAME_BYTES_MAX: usize = 255;
/// Bytes of a key, by S3's rules.
const KEY_BYTES_MAX: usize = 1024;

impl Shared {
    /// Others have replaced or removed the object of `node`: keeps `content` beside it (K2). Returns the writer's error. The
    /// caller is inside the gate of the file, which is in work.
    pub(super) fn keep_beside(&self, node: &Arc<Node>, content: &dyn WholeContent) -> Error {
        let (id, key) = (node.id, node.key());
        let Some(directory) = node.parent() else { return Error::Busy };
        self.table.refuse(id);
        if content.size() == 0 {
            self.lose(node, "there was nothing in it");
            return Error::Busy;
        }
        let now = Timestamp::now();
        for number in 1..=NAMES_MAX {
            let Some(beside) = beside(&key, now.seconds, number) else { break };
            match self.upload_if(id, &beside, Condition::Absent, content) {
                Ok(tag) => {
                    let what = What::Object { tag, size: content.size(), modified: now };
                    self.uploads.here.add(beside.clone(), id);
                    self.changed(&beside, Some(what.clone()));
                    self.table.move_to(id, (directory, node_name(&beside)), what);
                    self.uploads.here.remove(&key, id);
                    self.table.accept(id);
                    self.table.forget_time(id);
                    self.leave_work(id);
                    self.uploads.kept_beside.hit();
                    self.went_elsewhere(directory, node_name(&key));
                    let (key, beside) = (key.escape_debug(), beside.escape_debug());
                    log::warn!(
                        "`{key}`: others have changed it, and their version stays; the content written here is `{beside}`"
                    );
                    return Error::Busy;
                }
                Err(Failed::Store(StoreError::Changed)) => {}
                Err(Failed::Store(error)) => return self.refused("writing", &beside, error),
                Err(Failed::Content(Error::Stale | Error::Busy)) => {
                    self.lose(node, "a part of it was only in the version that is gone");
                    return Error::Busy;
                }
                Err(Failed::Content(error)) => return error,
            }
        }
        self.lose(node, "no name beside it is free");
        Error::Busy
    }

    /// The file has no content that could be kept (K4). The caller is inside its gate.
    fn lose(&self, node: &Node, why: &str) {
        let key = node.key();
        let size = self.attributes_of(node.id).map_or(0, |now| now.size);
        let orphan = What::Orphan { content: None, size };
        self.table.change(node.id, |now| Some(now.become_what(orphan)));
        self.uploads.here.remove(&key, node.id);
        if let Some(directory) = node.parent() {
            self.went_elsewhere(directory, node_name(&key));
        }
        let key = key.escape_debug();
        log::warn!(
            "`{key}`: others have changed it, and their version stays; the content written here is lost: {why}"
        );
    }

    /// The core has dropped the content written to `file`: the name leads to the store's object.
    pub(super) fn give_up(&self, file: FileRef) {
        let Ok((_inside, node)) = self.enter(file.inode) else { return };
        self.table.forget_time(node.id);
        match &node.what {
            What::Local(local) => {
                let orphan = What::Orphan { content: None, size: local.size };
                let key = node.key();
                self.table.change(node.id, |now| Some(now.become_what(orphan)));
                self.uploads.here.remove(&key, node.id);
                if let Some(directory) = node.parent() {
                    self.went_elsewhere(directory, node.name());
                }
            }
            What::Object { .. } => self.content_went(node.id),
            What::Directory | What::Orphan { .. } => {}
        }
    }
}

/// A key beside `key`; `None` if there is no room for one.
fn beside(key: &str, seconds: i64, number: u32) -> Option<String> {
    let number = if number == 1 { String::new() } else { format!("-{number}") };
    let suffix = format!(".uvfs-conflict-{seconds}-{}{number}", host());
    let name = node_name(key);
    let directory = key.strip_suffix(name)?;
    let room = NAME_BYTES_MAX.min(KEY_BYTES_MAX.checked_sub(directory.len())?);
    let mut stem = name.len().min(room.checked_sub(suffix.len())?);
    while !name.is_char_boundary(stem) {
        stem -= 1;
    }
    Some(format!("{directory}{}{suffix}", &name[..stem]))
}

/// The name of this machine, as far as it can be part of a key.
fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let plain = |sign: &char| sign.is_ascii_alphanumeric() || matches!(sign, '-' | '.' | '_');
    let name: String = name.trim().chars().filter(plain).take(64).collect();
    if name.is_empty() { "host".into() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_beside_a_file_is_a_name_whatever_the_file_is_called() {
        let short = beside("d/x", 7, 1).unwrap();
        assert_eq!(short, format!("d/x.uvfs-conflict-7-{}", host()));
        assert!(beside("x", 7, 2).unwrap().ends_with("-2"));
        let long = format!("d/{}", "ä".repeat(127));
        let beside_long = beside(&long, 7, 1).unwrap();
        assert!(node_name(&beside_long).len() <= NAME_BYTES_MAX && beside_long.starts_with("d/ä"));
        let deep = format!("{}/x", "d".repeat(KEY_BYTES_MAX - 10));
        assert_eq!(beside(&deep, 7, 1), None);
    }
}
