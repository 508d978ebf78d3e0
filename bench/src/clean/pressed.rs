//! The experiment of Li (2013) in the kernel's caches, by a program with a memory limit.
//!
//! # Boundary
//! Two kinds of `uvfs drop`: names of a mount (`2:`), and pages of a directory of the host (`1:`). The limit is a
//! control group's, chosen once like in process: the memory of three directories at the first step.
//!
//! # Why
//! The kernel's cached entries of a FUSE mount hold the daemon's inodes, so a daemon's budget alone evicts nothing that
//! the kernel still has; in the patch's experiment the kernel's memory runs out. The daemon counts lookups; the kernel
//! reports resident pages before the second pass. Weakness: the kernel charges in batches and reclaims in its own
//! order, so these counts vary by a little.

use super::client::Client;
use super::figures::Figures;
use super::sizes::{STEPS, Way, bytes_case, misses, names_case};
use super::store::FilePath;
use super::{Run, names};
use crate::context;
use crate::group::{Controller, Group};
use crate::places::Places;
use crate::report::Unit;
use crate::server::Server;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use uvfs_residency::{cachestat, mincore, page_bytes};

/// A mount of a directory of the host.
pub(super) const MOUNT: &str = "uvfs-mount";
/// The kernel's pages of a directory of the host.
const KERNEL: &str = "kernel-disk";
/// Above the memory of three directories: the kernel charges in batches.
const SPARE_PERCENT: u64 = 3;
/// At least this much above it, for small directories.
const SPARE_BYTES: u64 = 1 << 20;
/// Statfs's name of a file system that is memory.
const TMPFS_MAGIC: u64 = 0x0102_1994;

/// The tools of both families.
struct Tools<'a> {
    places: &'a Places,
    uvfs: PathBuf,
    controller: Controller,
}

impl<'a> Tools<'a> {
    /// # Errors
    /// Why this machine does not have it.
    fn find(run: &'a Run) -> io::Result<Result<Self, String>> {
        let places = run.places()?;
        let Some(uvfs) = places.uvfs.clone() else {
            return Ok(Err("no mount tool; cargo build --release -p uvfs".into()));
        };
        Ok(Controller::find().map(|controller| Self { places, uvfs, controller }))
    }

    /// A program whose memory is bounded by `limit`, if there is one.
    fn start(&self, tag: &str, limit: Option<u64>) -> io::Result<Bounded> {
        let group = self.controller.make(tag)?;
        if let Some(limit) = limit {
            group.limit(limit)?;
        }
        Ok(Bounded { client: Client::start(&self.places.bench, group.folder())?, group })
    }

    fn drop_caches(&self, requests: &[String]) -> io::Result<()> {
        said(Command::new(&self.uvfs).arg("drop").args(requests)).map(drop)
    }
}

/// A program in a group. Dropped in this order: a group can be removed only when it is empty.
struct Bounded {
    client: Client,
    group: Group,
}

/// The standard output of a program that must succeed.
pub(crate) fn said(command: &mut Command) -> io::Result<String> {
    let program = command.get_program().display().to_string();
    let output = command.stdin(Stdio::null()).output().map_err(context(&program))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(io::Error::other(format!("{program}: {}: {why}", output.status)))
}

/// Reports missing tools for both families.
fn tools<'a>(run: &'a Run, what: &str) -> io::Result<Option<Tools<'a>>> {
    match Tools::find(run)? {
        Ok(tools) => Ok(Some(tools)),
        Err(why) => {
            run.skip(what, &why);
            Ok(None)
        }
    }
}

/// The limit of a program that took `taken` bytes without one.
fn limit_above(taken: u64) -> u64 {
    taken + (taken * SPARE_PERCENT / 100).max(SPARE_BYTES)
}

/// Second passes over names, through the kernel and a mount.
pub(super) fn measure_mount(run: &Run, figures: &mut Figures) -> io::Result<()> {
    let what = format!("second passes of {MOUNT}");
    let Some(tools) = tools(run, &what)? else { return Ok(()) };
    if !Path::new("/dev/fuse").exists() {
        run.skip(&what, "no /dev/fuse");
        return Ok(());
    }
    let sizes = &run.sizes;
    let backing = run.folder("mount-names")?;
    run.progress("mount: making the files");
    names::make_files(&backing, sizes.files_at(STEPS - 1))?;
    let taken = {
        let mount = Mounted::start(&tools, &backing, "calibrate")?;
        let mut bounded = tools.start("calibrate", None)?;
        for directory in ["1", "2", "3"] {
            bounded.client.open(sizes.files, &mount.root().join(directory))?;
        }
        bounded.group.usage()?
    };
    let limit = limit_above(taken);
    figures.note(format!(
        "{MOUNT}: the program that opens has {:.1} MiB for itself and the kernel's caches of it",
        limit as f64 / f64::from(1 << 20)
    ));
    for &step in sizes.pressed_steps {
        let files = sizes.files_at(step);
        run.progress(&format!("mount: {files} files in each directory"));
        for at in 0..run.runs {
            for way in Way::ALL {
                let tag = format!("{files}-{}-{at}", way.name());
                let mount = Mounted::start(&tools, &backing, &tag)?;
                let (seconds, missed) = second_open(&tools, &mount, files, way, limit, &tag)?;
                let case = names_case(files, way);
                figures.sample(&case, MOUNT, Unit::Seconds, seconds);
                figures.sample(&misses(&case), MOUNT, Unit::Entries, missed as f64);
            }
        }
    }
    fs::remove_dir_all(&backing).map_err(context(backing.display()))
}

/// A mount with lifetimes beyond the run.
pub(super) struct Mounted<'a> {
    server: Server,
    uvfs: &'a Path,
}

impl<'a> Mounted<'a> {
    fn start(tools: &'a Tools<'_>, backing: &Path, tag: &str) -> io::Result<Self> {
        Self::over(tools.places, &tools.uvfs, backing, tag)
    }

    /// `backing`, served by `uvfs`.
    pub(super) fn over(
        places: &Places,
        uvfs: &'a Path,
        backing: &Path,
        tag: &str,
    ) -> io::Result<Self> {
        let mountpoint = places.work.join(format!("mounted-{tag}"));
        let mut source = std::ffi::OsString::from("dir:");
        source.push(backing);
        let mut command = Command::new(uvfs);
        command.arg("mount").arg(source).arg(&mountpoint);
        command.args(["--attr-timeout", "3600s", "--entry-timeout", "3600s"]);
        let log = places.work.join(format!("mounted-{tag}.log"));
        Ok(Self { server: Server::start(&mut command, mountpoint, &log)?, uvfs })
    }

    pub(super) fn root(&self) -> &Path {
        self.server.mountpoint()
    }

    /// LOOKUP requests so far.
    pub(super) fn lookups(&self) -> io::Result<u64> {
        Ok(self.statistics()?["frontend"]["requests"]["lookup"].as_u64().unwrap_or(0))
    }

    fn statistics(&self) -> io::Result<serde_json::Value> {
        let text = said(Command::new(self.uvfs).arg("stat").arg(self.root()).arg("--json"))?;
        Ok(serde_json::from_str(&text)?)
    }
}

/// Seconds of the second pass, and its lookups that reached the daemon.
fn second_open(
    tools: &Tools<'_>,
    mount: &Mounted<'_>,
    files: u64,
    way: Way,
    limit: u64,
    tag: &str,
) -> io::Result<(f64, u64)> {
    let mut bounded = tools.start(tag, Some(limit))?;
    let client = &mut bounded.client;
    let [first, second, third] = ["1", "2", "3"].map(|name| mount.root().join(name));
    client.open(files, &first)?;
    client.open(files, &second)?;
    if way == Way::Cleaned {
        tools.drop_caches(&[format!("2:{}", second.display())])?;
    }
    client.open(files, &third)?;
    let before = mount.lookups()?;
    let seconds = client.open(files, &first)?;
    Ok((seconds, mount.lookups()? - before))
}

/// Second passes over pages that the kernel has of a directory on a disk.
pub(super) fn measure_host(run: &Run, figures: &mut Figures) -> io::Result<()> {
    let what = format!("second passes of {KERNEL}");
    let Some(tools) = tools(run, &what)? else { return Ok(()) };
    let sizes = &run.sizes;
    let folder = run.folder("host-pages")?;
    if rustix::fs::statfs(&folder)?.f_type as u64 == TMPFS_MAGIC {
        run.skip(&what, &format!("{} is no disk", folder.display()));
        return Ok(());
    }
    run.progress("host: making the files");
    let directories = ["1", "2", "3"].map(|name| folder.join(name));
    for directory in &directories {
        write_files(directory, sizes.whole_files_at(STEPS - 1), sizes.file_bytes)?;
    }
    // Pages are charged to the process that touched them first.
    let empty = || {
        let request = |directory: &PathBuf| format!("1:{}", directory.display());
        tools.drop_caches(&directories.each_ref().map(request))
    };
    empty()?;
    let taken = {
        let mut bounded = tools.start("calibrate-pages", None)?;
        for directory in &directories {
            bounded.client.read(sizes.whole_files, directory)?;
        }
        bounded.group.usage()?
    };
    let limit = limit_above(taken);
    figures.note(format!(
        "{KERNEL}: the program that reads has {:.1} MiB for itself and the kernel's caches of it",
        limit as f64 / f64::from(1 << 20)
    ));
    let [first, second, third] = &directories;
    for &step in sizes.pressed_steps {
        let files = sizes.whole_files_at(step);
        run.progress(&format!("host: {files} files in each directory"));
        for at in 0..run.runs {
            for way in Way::ALL {
                empty()?;
                let tag = format!("pages-{files}-{}-{at}", way.name());
                let mut bounded = tools.start(&tag, Some(limit))?;
                let client = &mut bounded.client;
                client.read(files, first)?;
                client.read(files, second)?;
                if way == Way::Cleaned {
                    tools.drop_caches(&[format!("1:{}", second.display())])?;
                }
                client.read(files, third)?;
                let resident = resident_pages(first, files)?;
                let seconds = client.read(files, first)?;
                let case = bytes_case(sizes.bytes_at(step), way);
                let missed = (sizes.bytes_at(step) / page_bytes()).saturating_sub(resident);
                figures.sample(&case, KERNEL, Unit::Seconds, seconds);
                figures.sample(&misses(&case), KERNEL, Unit::Entries, missed as f64);
            }
        }
    }
    fs::remove_dir_all(&folder).map_err(context(folder.display()))
}

/// Files of `bytes` bytes each, on the disk.
pub(super) fn write_files(directory: &Path, files: u64, bytes: u64) -> io::Result<()> {
    fs::create_dir_all(directory).map_err(context(directory.display()))?;
    let mut path = FilePath::below(&directory.display().to_string());
    let content = vec![0x5a; usize::try_from(bytes).unwrap_or(0)];
    for number in 0..files {
        fs::write(path.of(number), &content)?;
    }
    rustix::fs::syncfs(File::open(directory)?)?;
    Ok(())
}

/// Pages of the files of `directory` that the kernel has.
pub(super) fn resident_pages(directory: &Path, files: u64) -> io::Result<u64> {
    let mut path = FilePath::below(&directory.display().to_string());
    let mut pages = 0;
    for number in 0..files {
        let file = File::open(path.of(number))?;
        let bytes = file.metadata()?.len();
        pages += match cachestat(&file, 0, bytes) {
            Ok(residency) => residency.cached,
            // Before Linux 6.5.
            Err(_) => mincore(&file, bytes)?,
        };
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small program had some 100 KiB to spare. The kernel charges in batches of that size, and keeps an inode for a grace
    /// period before it frees it; once it found nothing to free and killed the program.
    #[test]
    fn a_small_program_has_room_for_what_the_kernel_does_not_free_at_once() {
        for taken in [0, 4 << 20, 30 << 20] {
            assert_eq!(limit_above(taken), taken + (1 << 20));
        }
        assert_eq!(limit_above(400 << 20), 412 << 20);
    }

    #[test]
    fn what_was_written_is_resident_and_what_failed_says_why() {
        let folder = std::env::temp_dir().join(format!("uvfs-bench-pages-{}", std::process::id()));
        write_files(&folder, 3, 2 * page_bytes()).unwrap();
        assert_eq!(resident_pages(&folder, 3).unwrap(), 6);
        assert!(resident_pages(&folder, 4).is_err());
        fs::remove_dir_all(&folder).unwrap();
        assert_eq!(said(Command::new("echo").arg("yes")).unwrap(), "yes\n");
        let why = said(Command::new("ls").arg("/nowhere/at/all")).unwrap_err().to_string();
        assert!(why.contains("/nowhere/at/all"), "{why}");
    }
}
