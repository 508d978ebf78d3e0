//! `uvfs image ls` and `uvfs image cat`: the contents of an image.

use super::find;
use crate::{Failure, print_line};
use serde_json::json;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use uvfs_ext::{Image, Inode, Kind};
use uvfs_terminal::shown::shown_name;

/// Bytes that are read at a time.
const PIECE: usize = 1 << 20;

/// Lists the object at `path`.
pub(super) fn list(
    image: &Image,
    path: &Path,
    recursive: bool,
    json: bool,
) -> Result<ExitCode, Failure> {
    let top = find(image, path)?;
    if top.kind() != Some(Kind::Directory) {
        print_line(&line(image, path, &top, json)?);
        return Ok(ExitCode::SUCCESS);
    }
    // A directory that two names lead to is listed once: in a hostile image it may lie in itself.
    let mut seen = HashSet::from([top.number]);
    let mut waiting = vec![(path.to_path_buf(), top)];
    let mut faults = 0;
    // A failure skips its object; the others are listed.
    let mut tell = |failure: Failure| {
        eprintln!("uvfs: {failure}");
        faults += 1;
    };
    while let Some((path, directory)) = waiting.pop() {
        let mut below = Vec::new();
        let entries = entries(image, &path, &directory).unwrap_or_else(|failure| {
            tell(failure);
            Vec::new()
        });
        for (name, number) in entries {
            let path = if recursive { path.join(&name) } else { PathBuf::from(&name) };
            let inode = image.inode(number).map_err(|error| failed(&path, &error));
            let shown = inode.and_then(|inode| Ok((line(image, &path, &inode, json)?, inode)));
            let inode = match shown {
                Ok((line, inode)) => {
                    print_line(&line);
                    inode
                }
                Err(failure) => {
                    tell(failure);
                    continue;
                }
            };
            if recursive && inode.kind() == Some(Kind::Directory) && seen.insert(number) {
                below.push((path, inode));
            }
        }
        below.reverse();
        waiting.extend(below);
    }
    match faults {
        0 => Ok(ExitCode::SUCCESS),
        faults => Err(Failure::refused(format!(
            "{}: {faults} objects have faults; `uvfs image check` shows them",
            path.display()
        ))),
    }
}

/// The entries of a directory but `.` and `..`.
pub(super) fn entries(
    image: &Image,
    path: &Path,
    directory: &Inode,
) -> Result<Vec<(OsString, u32)>, Failure> {
    let mut entries = Vec::new();
    let listed = image.list(directory, 0, &mut |entry| {
        if *entry.name != *b"." && *entry.name != *b".." {
            entries.push((OsStr::from_bytes(&entry.name).to_owned(), entry.inode));
        }
        ControlFlow::Continue(())
    });
    listed.map_err(|error| failed(path, &error))?;
    Ok(entries)
}

/// One object, as `ls -l` shows it.
fn line(image: &Image, path: &Path, inode: &Inode, json: bool) -> Result<String, Failure> {
    let (letter, word) = match inode.kind() {
        Some(Kind::Regular) => ('-', "file"),
        Some(Kind::Directory) => ('d', "directory"),
        Some(Kind::Symlink) => ('l', "symlink"),
        Some(Kind::Fifo) => ('p', "fifo"),
        Some(Kind::Socket) => ('s', "socket"),
        Some(Kind::CharDevice) => ('c', "char-device"),
        Some(Kind::BlockDevice) => ('b', "block-device"),
        None => ('?', "unknown"),
    };
    let target = match inode.kind() {
        Some(Kind::Symlink) => match image.read_link(inode) {
            Ok(text) => Some(OsStr::from_bytes(&text).to_owned()),
            Err(uvfs_ext::Error::NoKey) => None,
            Err(error) => return Err(failed(path, &error)),
        },
        _ => None,
    };
    let mode = inode.mode() & 0o7777;
    if json {
        let target = target.map(|target| target.to_string_lossy().into_owned());
        return Ok(json!({
            "path": path.to_string_lossy(),
            "inode": inode.number,
            "kind": word,
            "mode": mode,
            "links": inode.links(),
            "uid": inode.uid(),
            "gid": inode.gid(),
            "size": inode.size(),
            "modified": inode.modified().seconds,
            "target": target,
        })
        .to_string());
    }
    let target = target.map(|target| format!(" -> {}", shown_name(target))).unwrap_or_default();
    let (uid, gid, size) = (inode.uid(), inode.gid(), inode.size());
    let (links, name) = (inode.links(), shown_name(path));
    Ok(format!("{letter}{mode:04o} {links:>3} {uid:>5} {gid:>5} {size:>12} {name}{target}"))
}

/// Writes the contents of the file at `path`.
pub(super) fn cat(image: &Image, path: &Path, json: bool) -> Result<ExitCode, Failure> {
    let inode = find(image, path)?;
    if json {
        print_line(&line(image, path, &inode, json)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = io::stdout().lock();
    let written = |result: io::Result<()>| match result {
        // The reader needs no more.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::refused(format!("standard output: {}", crate::cause(&error)))),
        Ok(()) => Ok(true),
    };
    match inode.kind() {
        Some(Kind::Symlink) => {
            let text = image.read_link(&inode).map_err(|error| failed(path, &error))?;
            written(out.write_all(&text))?;
        }
        Some(Kind::Regular) => {
            let mut piece = vec![0; PIECE];
            let mut offset = 0;
            loop {
                let length = image.read(&inode, offset, &mut piece);
                let length = length.map_err(|error| failed(path, &error))?;
                if length == 0 || !written(out.write_all(&piece[..length]))? {
                    break;
                }
                offset += length as u64;
            }
        }
        Some(Kind::Directory) => {
            return Err(Failure::refused(format!(
                "{}: is a directory; `uvfs image ls` lists it",
                path.display()
            )));
        }
        _ => return Err(Failure::refused(format!("{}: has no contents", path.display()))),
    }
    written(out.flush())?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn failed(path: &Path, error: &uvfs_ext::Error) -> Failure {
    Failure::refused(format!("{}: {error}", path.display()))
}
