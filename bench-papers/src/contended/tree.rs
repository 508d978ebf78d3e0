//! The tree of the walks: 512 files at depth 3.

/// Folders of a folder.
pub const FOLDERS: usize = 8;
const FILES: usize = 8;

/// How many files there are.
pub const COUNT: usize = FOLDERS * FOLDERS * FILES;

/// The path of one of them.
pub fn path(nth: usize) -> String {
    let (outer, inner) = (nth / (FILES * FOLDERS) % FOLDERS, nth / FILES % FOLDERS);
    format!("source-{outer}/module-{inner}/file-{}", nth % FILES)
}

/// The directories, each after its parent.
pub fn directories() -> impl Iterator<Item = String> {
    (0..FOLDERS).flat_map(|outer| {
        let inner = move |inner| format!("source-{outer}/module-{inner}");
        std::iter::once(format!("source-{outer}")).chain((0..FOLDERS).map(inner))
    })
}
