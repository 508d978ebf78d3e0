//! Where the files of the package are on a system.
//!
//! # Boundary
//! Files and texts; dpkg-deb and tar write their formats. The program writes its own completions.
//!
//! # Why
//! All installed files are one list, [`FILES`], beside those made here (manual pages, completions, links). Weakness:
//! the places are Debian's.

use crate::steps::step;
use crate::tree;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// Copied files: source, target.
const FILES: &[(&str, &str)] = &[
    ("contrib/systemd/uvfs@.service", "usr/lib/systemd/system/uvfs@.service"),
    ("contrib/systemd/uvfs.conf.example", "usr/share/doc/uvfs/examples/uvfs.conf.example"),
    ("contrib/grafana/uvfs.json", "usr/share/doc/uvfs/examples/grafana.json"),
    ("contrib/prometheus/uvfs.rules.yml", "usr/share/doc/uvfs/examples/prometheus.rules.yml"),
    ("README.md", "usr/share/doc/uvfs/README.md"),
    ("docs/fstab.md", "usr/share/doc/uvfs/fstab.md"),
    ("docs/systemd.md", "usr/share/doc/uvfs/systemd.md"),
    ("docs/metrics.md", "usr/share/doc/uvfs/metrics.md"),
    ("docs/stat.md", "usr/share/doc/uvfs/stat.md"),
    ("docs/semantics.md", "usr/share/doc/uvfs/semantics.md"),
    ("LICENSE-MIT", "usr/share/doc/uvfs/copyright"),
    ("LICENSE-APACHE", "usr/share/doc/uvfs/LICENSE-APACHE"),
];
/// Where each shell looks for completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "usr/share/bash-completion/completions/uvfs"),
    ("zsh", "usr/share/zsh/vendor-completions/_uvfs"),
    ("fish", "usr/share/fish/vendor_completions.d/uvfs.fish"),
];
/// Names under which mount(8) looks for the program.
const HELPERS: [&str; 2] = ["usr/sbin/mount.fuse.uvfs", "usr/sbin/mount.uvfs"];

/// Lays out all files below `root`, with `program` as `/usr/bin/uvfs` and the manual pages in `manual`.
pub(super) fn lay_out(program: &Path, manual: &Path, root: &Path) -> Result<(), String> {
    let here = tree::root();
    let read = |path: &Path| fs::read(path).map_err(|error| format!("{}: {error}", path.display()));
    write(&root.join("usr/bin/uvfs"), &read(program)?, 0o755)?;
    for (from, to) in FILES {
        write(&root.join(to), &read(&here.join(from))?, 0o644)?;
    }
    let log = root.join("usr/share/doc/uvfs/changelog");
    write(&log, &read(&here.join("CHANGELOG.md"))?, 0o644)?;
    compress(&log)?;
    let pages = fs::read_dir(manual).map_err(|error| format!("{}: {error}", manual.display()))?;
    for entry in pages {
        let entry = entry.map_err(|error| error.to_string())?;
        let page = root.join("usr/share/man/man1").join(entry.file_name());
        write(&page, &read(&entry.path())?, 0o644)?;
        compress(&page)?;
    }
    for (shell, to) in COMPLETIONS {
        let output = Command::new(program).args(["completions", shell]).output();
        let output = output.map_err(|error| format!("{}: {error}", program.display()))?;
        if !output.status.success() || output.stdout.is_empty() {
            return Err(format!("{} completions {shell}: failed", program.display()));
        }
        write(&root.join(to), &output.stdout, 0o644)?;
    }
    for helper in HELPERS {
        let link = root.join(helper);
        folder_of(&link)?;
        symlink("../bin/uvfs", &link).map_err(|error| format!("{}: {error}", link.display()))?;
    }
    let settings = root.join("etc/uvfs");
    fs::create_dir_all(&settings).map_err(|error| format!("{}: {error}", settings.display()))
}

fn folder_of(path: &Path) -> Result<(), String> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
}

/// Writes a file with its folders.
pub(super) fn write(path: &Path, text: &[u8], mode: u32) -> Result<(), String> {
    folder_of(path)?;
    fs::write(path, text)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .map_err(|error| format!("{}: {error}", path.display()))
}

fn compress(path: &Path) -> Result<(), String> {
    step(Command::new("gzip").args(["-9n", "-f"]).arg(path))
}

/// The files of the package about itself: name, text, mode.
pub(super) fn control(
    version: &str,
    architecture: &str,
    needs: &str,
    size_kib: u64,
) -> [(&'static str, String, u32); 3] {
    let depends = if needs.is_empty() { String::new() } else { format!("Depends: {needs}\n") };
    let about = format!(
        "Package: uvfs\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: The uvfs authors <uvfs@localhost>\n\
         Installed-Size: {size_kib}\n{depends}Recommends: fuse3\nSection: utils\nPriority: optional\n\
         Homepage: https://github.com/uvfs/uvfs\nDescription: caching file system layer in user space\n \
         Mounts RAM, a host directory or a disk image with caches of names, attributes\n \
         and pages within one bound of memory, and empties them by directory.\n"
    );
    // A mount in use keeps running the program that started it.
    let reload = "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl daemon-reload || true; fi\n";
    [
        ("control", about, 0o644),
        ("postinst", reload.into(), 0o755),
        ("postrm", reload.into(), 0o755),
    ]
}

/// The requirement of `program`: the newest version of the C library whose symbols it names.
pub(super) fn needs(program: &[u8]) -> String {
    let mark = b"GLIBC_2.";
    let found = program.windows(mark.len()).enumerate().filter(|(_, bytes)| bytes == mark);
    let minors = found.filter_map(|(at, _)| {
        let rest = &program[at + mark.len()..];
        let digits: String = rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .map(|byte| char::from(*byte))
            .collect();
        digits.parse::<u32>().ok()
    });
    match minors.max() {
        Some(minor) => format!("libc6 (>= 2.{minor}), libgcc-s1"),
        None => String::new(),
    }
}

/// The size of the files below `root`.
pub(super) fn size_kib(root: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        let seen = entry.metadata()?;
        bytes += if seen.is_dir() { size_kib(&entry.path())? } else { seen.len().div_ceil(1024) };
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for the program, which has only to print.
    fn program(folder: &Path) -> std::path::PathBuf {
        let path = folder.join("uvfs");
        write(&path, b"#!/bin/sh\necho \"$@\"\n", 0o755).unwrap();
        path
    }

    #[test]
    fn every_file_is_where_a_system_looks_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        let manual = folder.path().join("man");
        write(&manual.join("uvfs-mount.1"), b".TH UVFS-MOUNT 1\n", 0o644).unwrap();
        lay_out(&program(folder.path()), &manual, &root).unwrap();
        for path in [
            "usr/bin/uvfs",
            "usr/share/man/man1/uvfs-mount.1.gz",
            "usr/share/doc/uvfs/changelog.gz",
            "usr/lib/systemd/system/uvfs@.service",
            "etc/uvfs",
        ] {
            assert!(root.join(path).exists(), "{path}");
        }
        for helper in HELPERS {
            assert!(
                root.join(helper).canonicalize().unwrap().ends_with("usr/bin/uvfs"),
                "{helper}"
            );
        }
        let zsh = fs::read_to_string(root.join(COMPLETIONS[1].1)).unwrap();
        assert_eq!(zsh, "completions zsh\n");
        assert!(size_kib(&root).unwrap() > 10);
    }

    #[test]
    fn what_a_program_needs_is_read_from_its_symbols() {
        assert_eq!(needs(b"..GLIBC_2.4\0GLIBC_2.34\0GLIBC_2.17"), "libc6 (>= 2.34), libgcc-s1");
        assert_eq!(needs(b"a program without shared libraries"), "");
        let [control, ..] = control("0.1.0", "amd64", "libc6", 12);
        assert!(control.1.contains("\nDepends: libc6\n") && control.1.ends_with(".\n"));
        assert!(!super::control("0.1.0", "amd64", "", 12)[0].1.contains("Depends"));
    }
}
