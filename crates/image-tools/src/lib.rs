//! `uvfs image`: disk images: made, looked at without mounting them, committed while they are mounted.
//!
//! # Boundary
//! The command lines, finding the file system in a file ([`Spec`]), and walking to a path. [`uvfs_ext`] has the format.
//!
//! # Concurrency
//! One thread. Programs that hold the lock of an image are waited for.
//!
//! # Why
//! No daemon, no FUSE and no root: a reader of images in a container has none of them. Weakness: symbolic links in a
//! PATH are not followed; the path is that of the object itself.

#![forbid(unsafe_code)]

mod check;
mod commit;
mod create;
mod extract;
mod info;
mod kinds;
mod source;
mod tree;
mod users;

use clap::{Args, Subcommand, ValueEnum};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::ExitCode;
use uvfs_client::mountinfo;
use uvfs_control::units;
use uvfs_ext::{Image, Inode, Kind, ROOT};
use uvfs_terminal::output::{print_line, print_text};
use uvfs_terminal::{Failure, cause, shown};

pub use info::reductions;
pub use source::{Access, Part, Spec, Writable};

const HELP: &str = "\
IMAGE is a file or a block device with ext2, ext3 or ext4; a part of it is written IMAGE?partition=2 (as \
`fdisk -l` numbers them) or IMAGE?offset=1M. It is only read; its journal is replayed in memory. `create` makes an image, and \
`commit` makes a mounted one stable.

Examples:
  uvfs image info disk.img                 sizes, journal, meaning of the flags
  uvfs image check disk.img                every structure, every checksum
  uvfs image ls disk.img /etc              names, modes, owners, sizes
  uvfs image ls -R --json disk.img /       the whole tree, one object per line
  uvfs image cat 'disk.img?partition=1' /etc/fstab
  uvfs image extract disk.img /home ./home with owners, modes, times,
                                           attributes, holes and hard links
  uvfs image create disk.img --size 10G    a new one, to be mounted
  uvfs image commit /mnt/disk              everything written is stable now

Exit status:
  0  done; for `check`: the image has no faults
  1  refused or failed; standard error says why. For `check`: faults were found
  2  the command line is not valid";

/// `uvfs image`.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct ImageArguments {
    /// The command
    #[command(subcommand)]
    command: ImageCommand,
}

#[derive(Debug, Subcommand)]
enum ImageCommand {
    /// Make an image with an empty file system; the file must not be there. mke2fs does it (package e2fsprogs)
    #[command(after_help = HELP)]
    Create(CreateArguments),
    /// Make all changes of a mounted image stable, and wait for that
    #[command(after_help = HELP)]
    Commit {
        /// Where it is mounted
        mountpoint: PathBuf,
    },
    /// Show the facts of an image: sizes, flags and their meaning for a reader, its journal
    #[command(after_help = HELP)]
    Info(OfImage),
    /// Read everything, verify every checksum, count every reference
    #[command(after_help = HELP)]
    Check(OfImage),
    /// List a directory
    #[command(after_help = HELP)]
    Ls(LsArguments),
    /// Write a file to standard output
    #[command(after_help = HELP)]
    Cat(CatArguments),
    /// Copy a file or a tree out of it
    #[command(after_help = HELP)]
    Extract(ExtractArguments),
}

#[derive(Debug, Args)]
struct OfImage {
    /// A file or a block device, perhaps with ?partition=N or ?offset=SIZE
    image: OsString,
    /// JSON, one object per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct CreateArguments {
    /// The file to be made; it takes room as it is filled
    file: PathBuf,
    /// How large: 512M, 10G
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    size: String,
    /// Label of the file system, up to 16 bytes
    #[arg(long)]
    label: Option<String>,
    /// The file system; uvfs writes to ext4 and reads the others
    #[arg(long = "type", value_name = "TYPE", value_enum, default_value_t = Type::Ext4)]
    kind: Type,
}

/// A file system that mke2fs makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Type {
    /// With a journal and extents
    Ext4,
    /// With a journal, files mapped by tables
    Ext3,
    /// Without a journal
    Ext2,
}

#[derive(Debug, Args)]
struct LsArguments {
    #[command(flatten)]
    of: OfImage,
    /// The directory to list
    #[arg(default_value = "/")]
    path: PathBuf,
    /// Include all below it
    #[arg(long, short = 'R')]
    recursive: bool,
}

#[derive(Debug, Args)]
struct CatArguments {
    /// A file or a block device, perhaps with ?partition=N or ?offset=SIZE
    image: OsString,
    /// A regular file, or a symbolic link, whose text is written
    path: PathBuf,
    /// JSON: path and size, instead of the contents
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ExtractArguments {
    #[command(flatten)]
    of: OfImage,
    /// The file or directory to copy
    path: PathBuf,
    /// A directory that is empty or does not exist; nothing is written outside it
    target: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// A refusal, a failure, or faults that a check found.
pub fn run(arguments: &ImageArguments) -> Result<ExitCode, Failure> {
    match &arguments.command {
        ImageCommand::Create(create) => create::run(create),
        ImageCommand::Commit { mountpoint } => commit::run(mountpoint),
        ImageCommand::Info(of) => info::run(&of.image, of.json),
        ImageCommand::Check(of) => check::run(&of.image, of.json),
        ImageCommand::Ls(ls) => {
            tree::list(&open(&ls.of.image)?, &ls.path, ls.recursive, ls.of.json)
        }
        ImageCommand::Cat(cat) => tree::cat(&open(&cat.image)?, &cat.path, cat.json),
        ImageCommand::Extract(extract) => {
            let image = open(&extract.of.image)?;
            extract::run(&image, &extract.path, &extract.target, extract.of.json)
        }
    }
}

fn open(image: &OsStr) -> Result<Image, Failure> {
    source::Spec::parse(image.as_bytes())?.open("; name a disk image")
}

/// The object at `path` in an image.
fn find(image: &Image, path: &std::path::Path) -> Result<Inode, Failure> {
    let shown = path.display();
    let failed = |error: uvfs_ext::Error| Failure::refused(format!("{shown}: {error}"));
    let mut inode = image.inode(ROOT).map_err(failed)?;
    for name in path.as_os_str().as_bytes().split(|byte| *byte == b'/') {
        if name.is_empty() || name == b"." {
            continue;
        }
        if inode.kind() != Some(Kind::Directory) {
            return Err(Failure::refused(format!(
                "{shown}: a part of it is no directory; symbolic links are not followed"
            )));
        }
        let found = image.lookup(&inode, name).map_err(failed)?;
        let number = found.ok_or_else(|| Failure::refused(format!("{shown}: not in the image")))?;
        inode = image.inode(number).map_err(failed)?;
    }
    Ok(inode)
}
