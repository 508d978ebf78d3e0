//! Operations, and their observable results.

use proptest::prelude::*;
use std::collections::BTreeMap;

/// Few paths, so that operations collide.
pub(crate) const PATHS: [&str; 9] = ["a", "b", "d", "e", "d/a", "d/b", "d/e", "d/e/a", "e/a"];

/// One step.
#[derive(Debug, Clone)]
pub(crate) enum Operation {
    Create(&'static str, u32),
    MakeDirectory(&'static str, u32),
    Symlink(&'static str, &'static str),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    RemoveDirectory(&'static str),
    Rename(&'static str, &'static str, Mode),
    Write(&'static str, u64, usize, u8),
    Read(&'static str),
    Truncate(&'static str, u64),
    Punch(&'static str, u64, u64),
    Stat(&'static str),
    SymlinkStat(&'static str),
    ReadLink(&'static str),
    List(&'static str),
    Chmod(&'static str, u32),
    Chown(&'static str, u32, u32),
    SetXattr(&'static str, &'static str, u8),
    GetXattr(&'static str, &'static str),
    RemoveXattr(&'static str, &'static str),
    /// Caches, if there are any, evict as much as they may.
    Forget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Replace,
    NoReplace,
    Exchange,
}

/// The result of an operation: its errno, or its value.
pub(crate) type Outcome = Result<Shown, i32>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shown {
    Nothing,
    Bytes(Vec<u8>),
    Attributes(Shape),
    /// Names and the letter of each one's kind.
    Names(BTreeMap<String, char>),
}

/// The attributes that a step decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) kind: char,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) owner: (u32, u32),
    /// Size; 0 for a directory, because every store has its own idea of it.
    pub(crate) size: u64,
}

/// Something that operations can be tried on.
pub(crate) trait World {
    fn apply(&mut self, operation: &Operation) -> Outcome;

    /// Every path with its object.
    fn everything(&mut self) -> BTreeMap<&'static str, Vec<Outcome>> {
        let mut all = BTreeMap::new();
        for path in PATHS.into_iter().chain(["."]) {
            let questions = [
                Operation::SymlinkStat(path),
                Operation::ReadLink(path),
                Operation::Read(path),
                Operation::List(path),
                Operation::GetXattr(path, "user.x"),
            ];
            all.insert(path, questions.iter().map(|question| self.apply(question)).collect());
        }
        all
    }
}

/// Up to sixty steps.
pub(crate) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    proptest::collection::vec(operation(), 1..60)
}

fn operation() -> impl Strategy<Value = Operation> {
    use Operation::*;
    let path = || proptest::sample::select(&PATHS[..]);
    let target = proptest::sample::select(&["a", "b", "e", "d/e", "e/a", "none", "a/"][..]);
    let permissions =
        proptest::sample::select(&[0o644, 0o600, 0o755, 0o4755, 0o2755, 0o2644, 0o1777, 0][..]);
    let mode = proptest::sample::select(&[Mode::Replace, Mode::NoReplace, Mode::Exchange][..]);
    let xattr = || proptest::sample::select(&["user.x", "user.y"][..]);
    let offset = || 0..20_000u64;
    prop_oneof![
        4 => (path(), permissions.clone()).prop_map(|(path, mode)| Create(path, mode & 0o777)),
        4 => (path(), permissions.clone()).prop_map(|(path, mode)| MakeDirectory(path, mode)),
        1 => (target, path()).prop_map(|(target, path)| Symlink(target, path)),
        2 => (path(), path()).prop_map(|(old, new)| Link(old, new)),
        2 => path().prop_map(Unlink),
        2 => path().prop_map(RemoveDirectory),
        6 => (path(), path(), mode).prop_map(|(from, to, mode)| Rename(from, to, mode)),
        3 => (path(), offset(), 1..9000usize, 1..255u8)
            .prop_map(|(path, at, length, byte)| Write(path, at, length, byte)),
        1 => path().prop_map(Read),
        2 => (path(), offset()).prop_map(|(path, size)| Truncate(path, size)),
        1 => (path(), offset(), 1..9000u64).prop_map(|(path, at, length)| Punch(path, at, length)),
        2 => path().prop_map(Stat),
        1 => path().prop_map(SymlinkStat),
        1 => path().prop_map(ReadLink),
        2 => path().prop_map(List),
        1 => (path(), permissions).prop_map(|(path, mode)| Chmod(path, mode)),
        1 => (path(), 0..3u32, 0..3u32).prop_map(|(path, uid, gid)| Chown(path, uid, gid)),
        1 => (path(), xattr(), any::<u8>())
            .prop_map(|(path, name, value)| SetXattr(path, name, value)),
        1 => (path(), xattr()).prop_map(|(path, name)| GetXattr(path, name)),
        1 => (path(), xattr()).prop_map(|(path, name)| RemoveXattr(path, name)),
        1 => Just(Forget),
    ]
}
