//! The runtime, carried within this library, and its file for the loader.
//!
//! # Boundary
//! Bytes to a file of the user's cache; the runtime itself is the crate `contention-runtime`, which the
//! build script builds.
//!
//! # Concurrency
//! Files are written under another name and renamed, so several processes may do it at once.
//!
//! # Why
//! One program is all that a user installs. The file that runs preload has the hash of its content in its
//! folder's name, so that two versions do not meet; the one that programs are linked with has not, so that
//! a new version of the runtime does not make cargo build everything again. Both have the same name within,
//! and the loader takes them for one. Weakness: after the cache was emptied, one has to build or run once more before
//! instrumented programs start alone.

use crate::Error;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

include!(concat!(env!("OUT_DIR"), "/runtime.rs"));

/// The file's name, and the name within it.
pub const LIBRARY: &str = "libuvfs_contention.so";

/// The runtime's files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// The library that programs are linked with; its folder is in their run path.
    pub link: PathBuf,
    /// The library that runs preload.
    pub preload: PathBuf,
}

impl Runtime {
    /// Writes the runtime's files if they are missing or differ.
    ///
    /// # Errors
    /// This build has no runtime, or no folder can be written.
    pub fn install() -> Result<Self, Error> {
        let bytes = RUNTIME.map_err(|reason| {
            Error::new(format!(
                "this uvfs carries no runtime: {reason}; use one that was built for x86-64 Linux"
            ))
        })?;
        let mut refusal = None;
        for folder in folders() {
            match Self::install_in(&folder, bytes) {
                Ok(runtime) => return Ok(runtime),
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            }
        }
        Err(refusal.unwrap_or_else(|| {
            Error::new("no folder for the runtime's file; set XDG_CACHE_HOME to one that you own")
        }))
    }

    fn install_in(folder: &Path, bytes: &[u8]) -> Result<Self, Error> {
        let of_version = folder.join(format!("{:016x}", hash(bytes)));
        for folder in [folder, &of_version] {
            private_folder(folder)?;
        }
        let runtime = Self { link: folder.join(LIBRARY), preload: of_version.join(LIBRARY) };
        put(&runtime.preload, bytes)?;
        put(&runtime.link, bytes)?;
        Ok(runtime)
    }
}

/// Where the files may lie, the best first.
fn folders() -> Vec<PathBuf> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache =
        absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
    let user = rustix::process::geteuid().as_raw();
    let temporary = std::env::temp_dir().join(format!("uvfs-contention-{user}"));
    let all = cache.map(|cache| cache.join("uvfs/contention")).into_iter().chain([temporary]);
    // The loader splits its list of libraries at these.
    let splits = |path: &PathBuf| path.to_string_lossy().contains([' ', '\t', '\n', ':', ';', ',']);
    all.filter(|folder| !splits(folder)).collect()
}

/// Makes `folder`, and refuses one that another user could change.
fn private_folder(folder: &Path) -> Result<(), Error> {
    let shown = folder.display();
    match DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        Ok(()) => {}
        Err(error) => return Err(Error::io(shown, &error)),
    }
    let found = fs::symlink_metadata(folder).map_err(|error| Error::io(shown, &error))?;
    let shown = folder.display();
    if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
        return Err(Error::new(format!(
            "{shown}: not a folder of yours; remove it, or set XDG_CACHE_HOME"
        )));
    }
    if found.mode() & 0o022 != 0 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))
            .map_err(|error| Error::io(shown, &error))?;
    }
    Ok(())
}

/// Makes the file at `path` hold `bytes`.
fn put(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let failed = |error: &std::io::Error| Error::io(path.display(), error);
    match fs::read(path) {
        Ok(found) if found == bytes => return Ok(()),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(failed(&error)),
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .permissions(Permissions::from_mode(0o700))
        .tempfile_in(folder)
        .map_err(|error| failed(&error))?;
    file.write_all(bytes).map_err(|error| failed(&error))?;
    file.persist(path).map_err(|error| failed(&error.error))?;
    Ok(())
}

/// FNV-1a: names a version, guards nothing; the content is compared.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_compared_and_put_right() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().join("cache");
        let first = Runtime::install_in(&folder, b"one").unwrap();
        fs::write(&first.preload, b"broken").unwrap();
        let again = Runtime::install_in(&folder, b"one").unwrap();
        assert_eq!(first, again);
        assert_eq!(fs::read(&again.preload).unwrap(), b"one");
        assert_eq!(fs::metadata(&again.preload).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn versions_keep_apart_for_runs_and_share_the_file_for_links() {
        let folder = tempfile::tempdir().unwrap();
        let first = Runtime::install_in(folder.path(), b"one").unwrap();
        let second = Runtime::install_in(folder.path(), b"two").unwrap();
        assert_ne!(first.preload, second.preload);
        assert_eq!(first.link, second.link);
        assert_eq!(fs::read(&first.preload).unwrap(), b"one");
        assert_eq!(fs::read(&second.link).unwrap(), b"two");
    }

    #[test]
    fn a_folder_of_another_kind_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("cache");
        std::os::unix::fs::symlink(folder.path(), &taken).unwrap();
        let refusal = Runtime::install_in(&taken, b"one").unwrap_err().to_string();
        assert!(refusal.contains("not a folder of yours"), "{refusal}");
    }
}
