//! A control group whose memory is bounded.
//!
//! # Boundary
//! Version 2 where the root hands the memory controller down, version 1 where that has it. Changes no
//! setting of a group that it did not make.

use crate::cleanup;
use crate::context;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The folder of groups, and the names of a group's files.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Controller {
    root: &'static str,
    limit: &'static str,
    usage: &'static str,
}

const VERSION_2: Controller =
    Controller { root: "/sys/fs/cgroup", limit: "memory.max", usage: "memory.current" };
const VERSION_1: Controller = Controller {
    root: "/sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
};

/// A group; removed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    controller: Controller,
    folder: PathBuf,
}

impl Controller {
    /// The machine's.
    ///
    /// # Errors
    /// Why there is none, for people.
    pub(crate) fn find() -> Result<Self, String> {
        if !rustix::process::geteuid().is_root() {
            return Err("control groups need root".into());
        }
        let handed_down = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control");
        if handed_down.is_ok_and(|names| names.split_whitespace().any(|name| name == "memory")) {
            return Ok(VERSION_2);
        }
        if Path::new(VERSION_1.root).join(VERSION_1.limit).exists() {
            return Ok(VERSION_1);
        }
        Err("no memory controller: neither in cgroup.subtree_control of version 2, nor version 1"
            .into())
    }

    /// A group of this run without a limit; `tag` distinguishes those of one run.
    pub(crate) fn make(self, tag: &str) -> io::Result<Group> {
        let name = format!("uvfs-bench-{}-{tag}", std::process::id());
        let group = Group { controller: self, folder: Path::new(self.root).join(name) };
        cleanup::grouping(&group.folder);
        fs::create_dir(&group.folder).map_err(context(group.folder.display()))?;
        Ok(group)
    }
}

impl Group {
    /// Folder of the group.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Limits the memory of its members and of the kernel's caches for them.
    pub(crate) fn limit(&self, bytes: u64) -> io::Result<()> {
        let path = self.folder.join(self.controller.limit);
        fs::write(&path, bytes.to_string()).map_err(context(path.display()))
    }

    /// Memory in use by the group's members.
    pub(crate) fn usage(&self) -> io::Result<u64> {
        let path = self.folder.join(self.controller.usage);
        let text = fs::read_to_string(&path).map_err(context(path.display()))?;
        text.trim().parse().map_err(io::Error::other)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        cleanup::remove_group(&self.folder);
        cleanup::ungrouped(&self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_a_limit_and_goes_away() {
        let controller = match Controller::find() {
            Ok(controller) => controller,
            Err(why) => {
                uvfs_skip::lacking(why);
                return;
            }
        };
        let group = controller.make("test").unwrap();
        let folder = group.folder().to_owned();
        group.limit(64 << 20).unwrap();
        assert!(group.usage().unwrap() < 64 << 20);
        let limit = fs::read_to_string(folder.join(controller.limit)).unwrap();
        assert_eq!(limit.trim(), (64 << 20).to_string());
        drop(group);
        assert!(!folder.exists());
    }
}
