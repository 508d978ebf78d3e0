//! The demonstration without a mount: the same work by calls of the library.
//!
//! # Boundary
//! Prints the calls; a reader finds them in `uvfs_vfs`.

use super::{Demo, IMAGE, tree};
use crate::Failure;
use crate::print_line;
use crate::units::{show_bytes, show_count};
use std::fmt::Display;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use uvfs_backends::image::{WritingConfig, WritingImage};
use uvfs_image_tools::Spec;
use uvfs_vfs::{Caller, Clean, Dirty, SetAttributes, Vfs, VfsConfig};

/// Memory for the caches.
const CACHE_BYTES: u64 = 32 << 20;

/// Shows the calls and their results.
///
/// # Errors
/// The first call that failed, and Ctrl-C.
pub(super) fn show(demo: &Demo) -> Result<(), Failure> {
    let vfs = open(&demo.path(IMAGE))?;
    let root = vfs.root_directory(Caller::root());
    say("let vfs = Vfs::new(WritingImage::open(device, &config)?, VfsConfig::default())?;");
    say("let root = vfs.root_directory(Caller::root());");
    let (mut files, mut photos) = (tree(), 0);
    files.sort();
    for (name, content) in &files {
        demo.check_stop()?;
        let (folder, _) = name.split_once('/').unwrap_or_default();
        if root.stat(folder).is_err() {
            root.create_directory(folder, 0o755).map_err(failed)?;
        }
        root.write_file(name, content).map_err(failed)?;
    }
    say("for (name, content) in tree { root.write_file(name, content)?; }");
    vfs.sync_fs().map_err(failed)?;
    say("vfs.sync_fs()?;");
    show_cached(&vfs);
    let directory = root.open_directory("photos").map_err(failed)?;
    let report = vfs.clean(directory.node(), Clean::Both, Dirty::Skip).map_err(failed)?;
    say("vfs.clean(photos, Clean::Both, Dirty::Skip)?");
    let freed = |what: &str, tally: uvfs_vfs::Tally| {
        print_line(&format!("  {what:<8} {} freed", show_count(tally.freed.entries)));
    };
    freed("names", report.names);
    freed("inodes", report.inodes);
    freed("pages", report.pages);
    show_cached(&vfs);
    demo.check_stop()?;
    for (name, content) in files.iter().filter(|(name, _)| name.starts_with("photos/")) {
        if root.read_file(name).map_err(failed)? != *content {
            return Err(failed(format!("{name} is not what was written")));
        }
        photos += content.len();
    }
    say("for name in photos { bytes += root.read_file(name)?.len(); }");
    print_line(&format!("{photos}"));
    show_cached(&vfs);
    let lost = vfs.end();
    say("vfs.end()");
    match lost.len() {
        0 => Ok(()),
        files => Err(failed(format!("{files} files did not reach the image"))),
    }
}

/// Makes this process's user the owner of the root directory of an image.
///
/// # Errors
/// An image that cannot be written.
pub(super) fn own_root(image: &Path) -> Result<(), Failure> {
    let vfs = open(image)?;
    let uid = Some(rustix::process::geteuid().as_raw());
    let gid = Some(rustix::process::getegid().as_raw());
    let owner = SetAttributes { uid, gid, ..SetAttributes::default() };
    vfs.set_attributes(&Caller::root(), vfs.root(), None, &owner).map_err(failed)?;
    vfs.sync_fs().map_err(failed)
}

fn open(image: &Path) -> Result<Arc<Vfs>, Failure> {
    let spec = Spec::parse(image.as_os_str().as_bytes())?;
    let device = spec.open_to_write("", CACHE_BYTES)?.device;
    let image = WritingImage::open(device, &WritingConfig::within(CACHE_BYTES)).map_err(failed)?;
    let config = VfsConfig { cache_bytes: CACHE_BYTES, ..VfsConfig::default() };
    Vfs::new(image, config).map_err(failed)
}

fn say(call: &str) {
    print_line(&format!("> {call}"));
}

fn failed(cause: impl Display) -> Failure {
    Failure::refused(format!("demo: {cause}; `uvfs doctor` collects data for a report"))
}

/// Cached entries by directory, as `uvfs cached` shows those of a mount.
fn show_cached(vfs: &Vfs) {
    say("vfs.resident_by_directory(vfs.root())");
    let mut all = vfs.resident_by_directory(vfs.root());
    all.sort_by(|one, other| one.path.cmp(&other.path));
    print_line("       pages     names    inodes  directory");
    for one in all {
        let path = one.path.unwrap_or_default();
        let (names, inodes) = (one.resident.names.entries, one.resident.inodes.entries);
        print_line(&format!(
            "{:>12} {:>9} {:>9}  /{}",
            show_bytes(one.resident.pages.bytes),
            show_count(names),
            show_count(inodes),
            crate::shown::shown(&String::from_utf8_lossy(&path)),
        ));
    }
}
