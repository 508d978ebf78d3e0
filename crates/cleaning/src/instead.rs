//! What a user may have meant by a directory that does not exist.
//!
//! # Boundary
//! Lists one directory, after a command has been refused. [`nearest`] compares the names.
//!
//! # Why
//! A name with a wrong letter is the usual cause. Only directories are proposed, because the commands on caches take
//! nothing else. Weakness: of a very large directory a part is looked at.

use rustix::io::Errno;
use std::fs::{self, DirEntry};
use std::path::Path;
use uvfs_terminal::nearest::nearest;

/// Most names to look at: a refusal is to come soon.
const NAMES_MAX: usize = 10_000;

/// The end of a refusal of `path`, which does not exist: the nearest directory beside its first missing part, `before`
/// that the words that precede it on the command line.
pub(super) fn of(before: &str, path: &Path) -> String {
    let above = path.ancestors().skip(1).find(|above| on_disk(above).is_dir());
    let Some(above) = above else { return "name an existing directory".into() };
    let wanted = path.strip_prefix(above).ok().and_then(|below| below.components().next());
    let wanted = wanted.map(|wanted| wanted.as_os_str().to_string_lossy().into_owned());
    let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let entries = fs::read_dir(on_disk(above)).into_iter().flatten().filter_map(Result::ok);
    let directories = entries.take(NAMES_MAX).filter(is_directory);
    let names = directories.filter_map(|entry| entry.file_name().into_string().ok());
    match wanted.and_then(|wanted| nearest(&wanted, names)) {
        Some(found) => format!("did you mean {before}{}?", above.join(found).display()),
        None => format!("name an existing directory of {}", on_disk(above).display()),
    }
}

/// The end of a refusal of `path`, which is to be a directory of a uvfs mount and cannot be opened.
pub(super) fn remedy(path: &Path, errno: Errno) -> String {
    match errno {
        Errno::NOENT => of("", path),
        Errno::NOTDIR => "name the directory that it is in".into(),
        Errno::LOOP => "name the directory that the link leads to".into(),
        Errno::ACCESS | Errno::PERM => "run as root or as its owner".into(),
        _ => "name a directory of a uvfs mount".into(),
    }
}

/// `path`, which may be the empty beginning of a relative one.
fn on_disk(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `uvfs drop 3:m/typo` was answered with "no such directory" alone.
    #[test]
    fn the_nearest_directory_is_proposed_and_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir_all(at("photos/2026")).unwrap();
        fs::write(at("phtoo"), "").unwrap();
        let meant = |name: &str| of("3:", &at(name));
        assert_eq!(meant("phtoos"), format!("did you mean 3:{}?", at("photos").display()));
        assert_eq!(meant("phtoos/deep"), format!("did you mean 3:{}?", at("photos").display()));
        let year = at("photos/2026");
        assert_eq!(meant("photos/2062"), format!("did you mean 3:{}?", year.display()));
        assert_eq!(
            meant("music"),
            format!("name an existing directory of {}", folder.path().display())
        );
        assert_eq!(of("", Path::new("no-such-directory-here")), "name an existing directory of .");
    }
}
