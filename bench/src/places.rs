//! Paths: the measured programs, and the folders that a run may use.
//!
//! # Boundary
//! All of them are in the build's target folder, found from this program's own path: nothing else
//! is ever written. Rivals come from the system or from `bench-compare/target`.

use crate::{cleanup, context};
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The folders and programs of one run.
#[derive(Debug)]
pub(crate) struct Places {
    /// Made once and kept: inputs.
    pub(crate) inputs: PathBuf,
    /// This run's own; taken away at its end.
    pub(crate) work: PathBuf,
    /// This program.
    pub(crate) bench: PathBuf,
    /// The mount tool of the same build.
    pub(crate) uvfs: Option<PathBuf>,
    /// Threads that the mount tool reads requests with; rivals get as many.
    pub(crate) readers: usize,
    /// The repository, if this build was made there.
    pub(crate) repository: PathBuf,
}

impl Places {
    /// Finds the programs, building the mount tool if this is a release build under cargo, and
    /// makes the folders.
    pub(crate) fn find() -> io::Result<Self> {
        let bench = std::env::current_exe()?;
        let profile =
            bench.parent().ok_or_else(|| io::Error::other("this program has no folder"))?;
        let target = profile.parent().unwrap_or(profile);
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        build_mount_tool(profile, &repository)?;
        let uvfs = Some(profile.join("uvfs")).filter(|path| path.exists());
        let base = target.join("uvfs-bench");
        let (inputs, work) = (base.join("inputs"), base.join(std::process::id().to_string()));
        cleanup::sweep(&base);
        cleanup::making(&work);
        for folder in [&inputs, &work] {
            fs::create_dir_all(folder).map_err(context(folder.display()))?;
        }
        // More exactly when a mount can be asked.
        let readers = std::thread::available_parallelism().map_or(2, |cores| cores.get() + 1);
        Ok(Self { inputs, work, bench, uvfs, readers, repository })
    }

    /// A C example of libfuse that `bench-compare/install.sh` compiles.
    pub(crate) fn libfuse_example(&self, name: &str) -> Option<PathBuf> {
        let program = self.repository.join("bench-compare/target").join(name);
        Some(program).filter(|path| path.exists())
    }

    /// A server of the crate `bench-compare`.
    pub(crate) fn rival(&self, name: &str) -> Option<PathBuf> {
        let program = self.repository.join("bench-compare/target/release").join(name);
        Some(program).filter(|path| path.exists())
    }

    /// A program in `PATH`.
    pub(crate) fn in_path(name: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
    }
}

/// Builds the mount tool, so that no stale one is measured unnoticed. Without cargo around us (a
/// copied binary) the tool beside this program is used.
fn build_mount_tool(profile: &Path, repository: &Path) -> io::Result<()> {
    let Some(cargo) = std::env::var_os("CARGO") else { return Ok(()) };
    if profile.file_name() != Some(OsStr::new("release")) {
        return Ok(());
    }
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--release", "-p", "uvfs"])
        .current_dir(repository)
        .status()?;
    if built.success() {
        return Ok(());
    }
    Err(io::Error::other("cannot build the mount tool: see above"))
}
