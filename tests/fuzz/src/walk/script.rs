//! Scripts: the meaning of a line of the input.
//!
//! A line is a letter for the operation, a letter for the resolve mode (a capital starts at the
//! directory that was entered last, a small one at the root), and one or two paths of any bytes
//! except newline and tab, which separates them: `mbold\tnew`. Other letters count as one of the
//! known, so that every line is a step.

use uvfs_vfs::{RenameMode, ResolveMode};

/// One line.
pub(crate) struct Step<'a> {
    pub(crate) operation: Operation,
    pub(crate) mode: ResolveMode,
    /// Start at the entered directory.
    pub(crate) entered: bool,
    /// The second is empty where there is none.
    pub(crate) paths: [&'a [u8]; 2],
}

#[derive(Clone, Copy)]
pub(crate) enum Operation {
    Stat,
    LinkStat,
    ReadLink,
    ReadFile,
    Enter,
    Directory,
    Symlink,
    CreateNew,
    WriteFile,
    Link,
    RemoveFile,
    RemoveDirectory,
    Rename(RenameMode),
}

const OPERATIONS: [(u8, Operation); 15] = [
    (b't', Operation::Stat),
    (b'T', Operation::LinkStat),
    (b'l', Operation::ReadLink),
    (b'r', Operation::ReadFile),
    (b'e', Operation::Enter),
    (b'd', Operation::Directory),
    (b's', Operation::Symlink),
    (b'c', Operation::CreateNew),
    (b'w', Operation::WriteFile),
    (b'h', Operation::Link),
    (b'u', Operation::RemoveFile),
    (b'U', Operation::RemoveDirectory),
    (b'm', Operation::Rename(RenameMode::Replace)),
    (b'n', Operation::Rename(RenameMode::NoReplace)),
    (b'x', Operation::Rename(RenameMode::Exchange)),
];

const MODES: [(u8, ResolveMode); 4] = [
    (b'a', ResolveMode { resolve: uvfs_vfs::Resolve::Anywhere, no_symlinks: false }),
    (b'b', ResolveMode::BENEATH),
    (b'i', ResolveMode::IN_ROOT),
    (b'n', ResolveMode::NO_SYMLINKS),
];

impl<'a> Step<'a> {
    /// Reads a line; `None` if it is too short to be a step.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        let [operation, mode, rest @ ..] = line else { return None };
        let (path, other) = match rest.iter().position(|&byte| byte == b'\t') {
            Some(tab) => (&rest[..tab], &rest[tab + 1..]),
            None => (rest, &rest[..0]),
        };
        Some(Self {
            operation: choose(&OPERATIONS, *operation),
            mode: choose(&MODES, mode.to_ascii_lowercase()),
            entered: mode.is_ascii_uppercase(),
            paths: [path, other],
        })
    }
}

fn choose<T: Copy>(choices: &[(u8, T)], letter: u8) -> T {
    let known = choices.iter().position(|choice| choice.0 == letter);
    choices[known.unwrap_or(usize::from(letter) % choices.len())].1
}
