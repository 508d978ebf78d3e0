//! Two file systems behind the same few operations: uvfs over memory, and the kernel's tmpfs.
//!
//! # Boundary
//! The operations of the cases that change files, on paths below one top directory. Makes a fresh
//! file system each time; asserts nothing.

use super::contestants::{
    AMPLE_BYTES, by_components, by_whole_paths, other, walk_kernel, walk_uvfs,
};
use super::place::Tmpfs;
use super::{KERNEL, UVFS, UVFS_WHOLE};
use rustix::fs::{Mode, OFlags, RawDir, RenameFlags};
use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_vfs::{Caller, Directory, NewKind, RenameMode, Vfs};

/// A file system that is used from several threads.
pub(super) trait Files: Sync {
    /// Walks to `path`; its size, or [`uvfs_bench_workload::timed::MISSING`].
    fn walk(&self, path: &CStr) -> u64;
    fn make_directory(&self, path: &CStr) -> io::Result<()>;
    fn make_file(&self, path: &CStr) -> io::Result<()>;
    fn remove_file(&self, path: &CStr) -> io::Result<()>;
    fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()>;
    /// Both must exist, and change places at once.
    fn exchange(&self, one: &CStr, other: &CStr) -> io::Result<()>;
    /// How many names the directory lists, `.` and `..` left out.
    fn list(&self, path: &CStr) -> io::Result<usize>;
}

/// Those that there are.
pub(super) const SYSTEMS: [&str; 3] = [UVFS, UVFS_WHOLE, KERNEL];

/// A fresh, empty one.
///
/// # Errors
/// Mounting needs root; otherwise the error of the system.
pub(super) fn fresh(system: &str, name: &str) -> io::Result<Box<dyn Files>> {
    if system == KERNEL {
        return Ok(Box::new(Tmpfs::mount(name)?));
    }
    let config = MemoryConfig { size_bytes: 8 << 30, inodes_max: 8 << 20, ..Default::default() };
    let backend = MemoryBackend::new(config).map_err(other)?;
    let config = if system == UVFS { by_components } else { by_whole_paths };
    let vfs = Vfs::new(backend, config(AMPLE_BYTES)).map_err(other)?;
    Ok(Box::new(vfs.root_directory(Caller::root())))
}

impl Files for Directory {
    fn walk(&self, path: &CStr) -> u64 {
        walk_uvfs(self, path)
    }

    fn make_directory(&self, path: &CStr) -> io::Result<()> {
        self.create_directory(path.to_bytes(), 0o755).map_err(other)
    }

    fn make_file(&self, path: &CStr) -> io::Result<()> {
        self.create(path.to_bytes(), NewKind::Regular, 0o644).map_err(other)
    }

    fn remove_file(&self, path: &CStr) -> io::Result<()> {
        Directory::remove_file(self, path.to_bytes()).map_err(other)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        Directory::rename(self, from.to_bytes(), to.to_bytes(), RenameMode::Replace).map_err(other)
    }

    fn exchange(&self, one: &CStr, two: &CStr) -> io::Result<()> {
        Directory::rename(self, one.to_bytes(), two.to_bytes(), RenameMode::Exchange).map_err(other)
    }

    fn list(&self, path: &CStr) -> io::Result<usize> {
        let directory = self.open_directory(path.to_bytes()).map_err(other)?;
        Ok(directory.list_all().map_err(other)?.len())
    }
}

impl Files for Tmpfs {
    fn walk(&self, path: &CStr) -> u64 {
        self.top().map_or(0, |top| walk_kernel(top, path))
    }

    fn make_directory(&self, path: &CStr) -> io::Result<()> {
        Ok(rustix::fs::mkdirat(self.top()?, path, Mode::from_raw_mode(0o755))?)
    }

    fn make_file(&self, path: &CStr) -> io::Result<()> {
        let kind = rustix::fs::FileType::RegularFile;
        Ok(rustix::fs::mknodat(self.top()?, path, kind, Mode::from_raw_mode(0o644), 0)?)
    }

    fn remove_file(&self, path: &CStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(self.top()?, path, rustix::fs::AtFlags::empty())?)
    }

    fn rename(&self, from: &CStr, to: &CStr) -> io::Result<()> {
        Ok(rustix::fs::renameat(self.top()?, from, self.top()?, to)?)
    }

    fn exchange(&self, one: &CStr, two: &CStr) -> io::Result<()> {
        let top = self.top()?;
        Ok(rustix::fs::renameat_with(top, one, top, two, RenameFlags::EXCHANGE)?)
    }

    fn list(&self, path: &CStr) -> io::Result<usize> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::openat(self.top()?, path, flags, Mode::empty())?;
        let mut buffer = [MaybeUninit::uninit(); 32 << 10];
        let mut entries = RawDir::new(directory, &mut buffer);
        let mut count = 0;
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            count += usize::from(name != c"." && name != c"..");
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_bench_workload::timed::MISSING;

    fn check(files: &dyn Files) {
        files.make_directory(c"a").unwrap();
        files.make_directory(c"b").unwrap();
        files.make_file(c"a/x").unwrap();
        assert_eq!((files.walk(c"a/x"), files.walk(c"b/x")), (0, MISSING));
        files.exchange(c"a", c"b").unwrap();
        assert_eq!((files.walk(c"a/x"), files.walk(c"b/x")), (MISSING, 0));
        files.rename(c"b/x", c"a/y").unwrap();
        assert_eq!((files.list(c"a").unwrap(), files.list(c"b").unwrap()), (1, 0));
        files.remove_file(c"a/y").unwrap();
        assert!(files.remove_file(c"a/y").is_err());
        assert_eq!(files.list(c".").unwrap(), 2);
    }

    #[test]
    fn the_operations_mean_the_same_on_both() {
        check(&*fresh(UVFS, "files").unwrap());
        check(&*fresh(UVFS_WHOLE, "files").unwrap());
        if !rustix::process::geteuid().is_root() {
            uvfs_skip::skip("mounting a tmpfs needs root");
            return;
        }
        check(&*fresh(KERNEL, "files").unwrap());
        crate::cleanup::everything();
    }
}
