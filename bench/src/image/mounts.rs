//! The image of a run, and its mounts.
//!
//! # Boundary
//! Makes the image once, from the tree that other benches unpack, with tar(1) and mke2fs(8). Mounts it, read-only, and
//! unmounts each mount when it is dropped; [`cleanup`] does so after a failure or a signal.

use crate::client::Random;
use crate::places::Places;
use crate::server::Server;
use crate::{cleanup, context, tree};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// The folder of small files, and the one large file, at the root of the image.
pub(super) const TREE: &str = "tree";
pub(super) const LARGE: &str = "large";

/// All, in the order of the tables.
pub(super) const SYSTEMS: [System; 3] = [System::Uvfs, System::Kernel, System::Fuse2fs];

/// Time for others to leave a mount: the kernel closes files in the background.
const LEAVE_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// The mount tool of the same build, with its defaults.
    Uvfs,
    /// ext4 on a loop device.
    Kernel,
    /// The mount of e2fsprogs, in user space.
    Fuse2fs,
}

impl System {
    pub(super) fn name(self) -> &'static str {
        match self {
            System::Uvfs => "uvfs",
            System::Kernel => "kernel",
            System::Fuse2fs => "fuse2fs",
        }
    }

    /// Why this machine does not have it.
    pub(crate) fn absent(self, places: &Places) -> Option<String> {
        let found = match self {
            System::Uvfs => places.uvfs.is_some(),
            System::Kernel => Path::new("/dev/loop-control").exists(),
            System::Fuse2fs => Places::in_path("fuse2fs").is_some(),
        };
        let why = match self {
            System::Uvfs => "no mount tool; cargo build --release -p uvfs",
            System::Kernel => "no loop devices here",
            System::Fuse2fs => "not installed; apt-get install fuse2fs",
        };
        (!found).then(|| why.to_owned())
    }
}

/// The purpose of a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Only to be read.
    Reading,
    /// To be written, too.
    Writing,
}

/// A mount of the image.
#[derive(Debug)]
pub(crate) struct Mounted {
    root: PathBuf,
    /// Absent if the kernel serves it.
    server: Option<Server>,
}

impl Mounted {
    /// Mounts `image`; the mount is unused.
    pub(crate) fn start(
        system: System,
        places: &Places,
        image: &Path,
        wanted: Wanted,
    ) -> io::Result<Self> {
        Self::with(system, places, image, wanted, &[])
    }

    /// Mounts with more `options` of our mount tool.
    pub(super) fn with(
        system: System,
        places: &Places,
        image: &Path,
        wanted: Wanted,
        options: &[&str],
    ) -> io::Result<Self> {
        let reads = wanted == Wanted::Reading;
        let root = places.work.join(format!("image-{}", system.name()));
        let mut command = match system {
            System::Uvfs => {
                let uvfs = places.uvfs.as_ref().ok_or_else(|| io::Error::other("no mount tool"))?;
                let mut command = Command::new(uvfs);
                command.arg("mount").arg(image).arg(&root).args(options);
                if reads {
                    command.arg("--read-only");
                }
                command
            }
            System::Kernel => {
                fs::create_dir_all(&root).map_err(context(root.display()))?;
                cleanup::mounting(&root);
                let mut mount = Command::new("mount");
                mount.args(["-t", "ext4", "-o"]);
                if reads {
                    done(mount.arg("ro,loop").args([image, &root]))?;
                    return Ok(Self { root, server: None });
                }
                let device = Loop::attach(image)?;
                done(mount.arg("rw").arg(&device.0).arg(&root))?;
                return Ok(Self { root, server: None });
            }
            System::Fuse2fs => {
                let mut command = Command::new("fuse2fs");
                command.args(["-f", "-o", if reads { "ro" } else { "rw" }]).args([image, &root]);
                command
            }
        };
        let log = places.work.join(format!("image-{}.log", system.name()));
        let server = Server::start(&mut command, root.clone(), &log)?;
        Ok(Self { root, server: Some(server) })
    }

    /// The process that serves it, if the kernel does not.
    pub(super) fn pid(&self) -> Option<u32> {
        self.server.as_ref().map(Server::pid)
    }

    /// Where clients work.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A server takes its own mount away.
        if self.server.is_some() {
            return;
        }
        let patient = Instant::now() + LEAVE_LIMIT;
        loop {
            match rustix::mount::unmount(&self.root, UnmountFlags::NOFOLLOW) {
                Err(Errno::BUSY) if Instant::now() < patient => {
                    thread::sleep(Duration::from_millis(20));
                }
                Err(error) => {
                    // The register still has it.
                    eprintln!("uvfs-bench: cannot unmount {}: {error}", self.root.display());
                    return;
                }
                Ok(()) => break,
            }
        }
        cleanup::unmounted(&self.root);
        let _ = fs::remove_dir(&self.root);
    }
}

/// A loop device that bypasses the host's page cache, as our mounts do that write. Dropped, it stays until its mount
/// ends.
struct Loop(String);

impl Loop {
    fn attach(image: &Path) -> io::Result<Self> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--direct-io=on", "--find", "--show"]).arg(image);
        Ok(Self(done(&mut losetup)?.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Err(error) = done(Command::new("losetup").arg("--detach").arg(&self.0)) {
            eprintln!("uvfs-bench: cannot detach {}: {error}", self.0);
        }
    }
}

/// The small files of an image with so many, by their paths in it, sorted.
pub(super) fn paths(files: usize) -> Vec<String> {
    tree::paths(files).map(|path| format!("{TREE}/{path}")).collect()
}

/// The image with `files` small files and one of `large_bytes`, made if it is not there.
pub(super) fn make(places: &Places, files: usize, large_bytes: u64) -> io::Result<PathBuf> {
    let image = places.inputs.join(format!("image-{files}-{}M.img", large_bytes >> 20));
    if image.exists() {
        return Ok(image);
    }
    // In the run's own folder until it is whole: a run may be killed.
    let source = places.work.join("image-source");
    let unpacked = source.join(TREE);
    fs::create_dir_all(&unpacked).map_err(context(unpacked.display()))?;
    let packed = tree::archive(&places.inputs, files)?.archive;
    done(Command::new("tar").arg("-xf").arg(packed).arg("-C").arg(&unpacked))?;
    let mut large = BufWriter::new(File::create(source.join(LARGE))?);
    let mut numbers = Random(1);
    for _ in 0..large_bytes / 8 {
        large.write_all(&numbers.next().to_le_bytes())?;
    }
    large.into_inner().map_err(io::IntoInnerError::into_error)?;
    let draft = places.work.join("image-draft");
    // Files have less than 6000 bytes; directories, tables and the journal need some more.
    let mebibytes = ((large_bytes + files as u64 * 8192) >> 20) + 64;
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-b", "4096", "-N"]).arg((files * 2).to_string());
    done(make.arg("-d").arg(&source).arg(&draft).arg(format!("{mebibytes}M")))?;
    fs::remove_dir_all(&source)?;
    fs::rename(&draft, &image)?;
    Ok(image)
}

/// A new image of `bytes` with an empty file system.
pub(crate) fn make_empty(path: &Path, bytes: u64) -> io::Result<()> {
    let _ = fs::remove_file(path);
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-b", "4096"]).arg(path);
    done(make.arg(format!("{}M", bytes >> 20)))?;
    Ok(())
}

/// Runs `command`, which succeeds. Returns its output.
fn done(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(context(&name))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{name}: {}: {}", output.status, said.trim())))
}
