//! A folder of the host as a user's disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use uvfs_bench_workload::users::Disk;

/// A folder.
#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path)
    }
}

fn said<T>(path: &str, done: io::Result<T>) -> Result<T, String> {
    done.map_err(|error| format!("{path}: {error}"))
}

impl Disk for Folder {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        said(path, fs::read(self.at(path)))
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<(), String> {
        said(path, fs::write(self.at(path), content))
    }

    fn write_stable(&self, path: &str, content: &[u8]) -> Result<(), String> {
        let written = File::create(self.at(path)).and_then(|mut file| {
            file.write_all(content)?;
            file.sync_all()
        });
        said(path, written)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), String> {
        said(from, fs::rename(self.at(from), self.at(to)))
    }

    fn remove(&self, path: &str) -> Result<(), String> {
        said(path, fs::remove_file(self.at(path)))
    }

    fn make_folder(&self, path: &str) -> Result<(), String> {
        said(path, fs::create_dir(self.at(path)))
    }

    fn names(&self, folder: &str) -> Result<Vec<String>, String> {
        let entries = said(folder, fs::read_dir(self.at(folder)))?;
        let name = |entry: io::Result<fs::DirEntry>| {
            Ok(said(folder, entry)?.file_name().to_string_lossy().into_owned())
        };
        entries.map(name).collect()
    }

    fn size(&self, path: &str) -> Result<u64, String> {
        Ok(said(path, fs::metadata(self.at(path)))?.len())
    }
}
