//! `uvfs image create`: a file with an empty file system, made by mke2fs.
//!
//! # Why
//! The format has more than thirty features, whose defaults its own tools know best. Weakness: those tools have to be
//! installed to make an image, though not to use one.

use super::{CreateArguments, Type};
use crate::Failure;
use crate::units::{self, Size};
use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::Duration;
use uvfs_terminal::interrupt::Interrupt;

/// The smallest that has room for a journal.
const SIZE_MIN: u64 = 8 << 20;
/// Time between two looks whether mke2fs has ended.
const LOOK: Duration = Duration::from_millis(5);
/// Bytes of a label.
const LABEL_MAX: usize = 16;
/// Where it is; not every user has the last two in PATH.
const PLACES: [&str; 3] = ["mke2fs", "/usr/sbin/mke2fs", "/sbin/mke2fs"];

/// Makes the file and has it filled; nothing is left of one that failed.
///
/// # Errors
/// A file that is there already, a size that makes no sense, and what mke2fs refuses.
pub(super) fn run(arguments: &CreateArguments) -> Result<ExitCode, Failure> {
    let path = arguments.file.display();
    let size = match units::parse_size(&arguments.size) {
        Ok(Size::Bytes(bytes)) if bytes >= SIZE_MIN => bytes,
        Ok(Size::Bytes(_)) => return Err(Failure::usage("--size: too small; write at least 8M")),
        Ok(Size::Share(_)) => return Err(Failure::usage("--size: write a size, as in 10G")),
        Err(why) => return Err(Failure::usage(format!("--size {}: {why}", arguments.size))),
    };
    if arguments.label.as_ref().is_some_and(|label| label.len() > LABEL_MAX) {
        return Err(Failure::usage("--label: longer than 16 bytes; write a shorter one"));
    }
    let refused = |why: String| Failure::refused(format!("image {path}: {why}"));
    // From here on a signal removes the file.
    let interrupt = Interrupt::by_signals().map_err(Failure::refused)?;
    let file = OpenOptions::new().write(true).create_new(true).open(&arguments.file);
    let file = file.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            refused("is there already; name another, or remove it".into())
        }
        _ => refused(crate::cause(&error)),
    })?;
    let made = file
        .set_len(size)
        .map_err(|error| refused(format!("{}; write a smaller --size", crate::cause(&error))))
        .and_then(|()| make(&arguments.file, arguments, &interrupt).map_err(refused));
    if made.is_err() {
        // It was made above, and has nothing in it.
        let _ = fs::remove_file(&arguments.file);
    }
    made?;
    let size = units::show_bytes(size);
    let kind = kind_of(arguments.kind);
    crate::print_line(&format!(
        "uvfs: image {path}: {size}, an empty {kind}; `uvfs mount` mounts it"
    ));
    Ok(ExitCode::SUCCESS)
}

fn kind_of(kind: Type) -> &'static str {
    match kind {
        Type::Ext4 => "ext4",
        Type::Ext3 => "ext3",
        Type::Ext2 => "ext2",
    }
}

/// Runs `command` to its end, or ends it when the user asks for that.
fn output(command: &mut Command, interrupt: &Interrupt) -> io::Result<Output> {
    let mut child = command.spawn()?;
    while child.try_wait()?.is_none() {
        if interrupt.wait(LOOK) {
            child.kill()?;
            child.wait()?;
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted, and ended"));
        }
    }
    child.wait_with_output()
}

fn make(path: &Path, arguments: &CreateArguments, interrupt: &Interrupt) -> Result<(), String> {
    let kind = kind_of(arguments.kind);
    // The owner of the image owns its root directory.
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    for program in PLACES {
        let mut command = Command::new(program);
        command.args(["-q", "-F", "-t", kind, "-E", &format!("root_owner={uid}:{gid}")]);
        if let Some(label) = &arguments.label {
            command.args(["-L", label]);
        }
        command.arg("--").arg(path).stdin(Stdio::null());
        match output(command.stdout(Stdio::null()).stderr(Stdio::piped()), interrupt) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(format!("{program}: {}", crate::cause(&error))),
            Ok(done) if done.status.success() => return Ok(()),
            Ok(done) => {
                let printed = String::from_utf8_lossy(&done.stderr).trim().to_owned();
                return Err(format!("mke2fs: {printed}; see mke2fs(8)"));
            }
        }
    }
    Err("mke2fs is not installed; install e2fsprogs (Debian, Fedora and Arch call it so)".into())
}
