//! `cargo xtask dist`: a Debian package, an archive, checksums and the list of crates inside.
//!
//! # Boundary
//! Builds the mount tool and lays out its files like on a system ([`layout`]); lists its dependencies ([`sbom`]); tries
//! the package in a clean Debian ([`trial`]). The analyser is not packaged: it builds libraries for programs under
//! analysis, and needs a compiler beside it.
//!
//! # Why
//! dpkg-deb and tar write the files, since they know their formats; the contents are a list here, with tests. Times and
//! owners in them are those of the commit and root, so that the same commit makes the same archive from the same
//! program. Weakness: needs dpkg-deb, which only Debian and its derivatives have.

mod layout;
mod sbom;
mod trial;

use crate::steps::{cargo, step, target};
use crate::{supply, tree};
use clap::Args;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the packages are put, in cargo's folder.
const FOLDER: &str = "dist";

/// What `cargo xtask dist` is to make.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// For this platform, such as x86_64-unknown-linux-musl for a program without shared libraries [default: this machine's]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Package this program instead of building one; it has to run here.
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Package the manual pages in this folder instead of making them
    #[arg(long, value_name = "FOLDER")]
    manual: Option<PathBuf>,
    /// Then install, use and remove the package in a clean Debian, in this folder: made by debootstrap if it is not there.
    /// Needs root and, the first time, the network.
    #[arg(long, value_name = "FOLDER")]
    try_in: Option<PathBuf>,
}

/// Makes the packages, and tries them if that is wanted.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let package = make(options, &target().join(FOLDER))?;
    match &options.try_in {
        Some(debian) => trial::run(debian, &package),
        None => Ok(()),
    }
}

/// Makes the packages in `folder`; the path of the Debian one.
fn make(options: &Options, folder: &Path) -> Result<PathBuf, String> {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let platform = options.target.clone().unwrap_or(host);
    let program = match &options.program {
        Some(program) => program.clone(),
        None => build(&platform)?,
    };
    let version = version()?;
    let made = |error: std::io::Error| format!("{}: {error}", folder.display());
    let name = format!("uvfs-{version}-{platform}");
    let stage = folder.join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).map_err(made)?;
    }
    let (root, control) = (stage.join(&name), stage.join("deb/DEBIAN"));
    let manual = match &options.manual {
        Some(manual) => manual.clone(),
        None => manual_pages(&folder.join("man"))?,
    };
    layout::lay_out(&program, &manual, &root)?;
    // The archive has the files unchanged; the package adds its own.
    step(Command::new("cp").arg("-a").arg(&root).arg(stage.join("deb")))?;
    let architecture = architecture(&platform)?;
    let needs = layout::needs(&fs::read(&program).map_err(made)?);
    let size = layout::size_kib(&root).map_err(made)?;
    for (file, text, mode) in layout::control(&version, architecture, &needs, size) {
        layout::write(&control.join(file), text.as_bytes(), mode)?;
    }
    let time = commit_time()?;
    let package = folder.join(format!("uvfs_{version}_{architecture}.deb"));
    let mut deb = Command::new("dpkg-deb");
    deb.args(["--root-owner-group", "-Zxz", "--build"]).arg(stage.join("deb")).arg(&package);
    step(deb.env("SOURCE_DATE_EPOCH", &time))?;
    let archive = folder.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--use-compress-program=gzip -9n",
    ]);
    tar.arg(format!("--mtime=@{time}")).arg("-C").arg(&stage).arg("-cf").arg(&archive).arg(&name);
    step(&mut tar)?;
    let list = folder.join(format!("{name}.cdx.json"));
    let metadata = supply::metadata("Cargo.toml")
        .ok_or("a crate is missing; `cargo fetch` downloads all of them")?;
    let lock = fs::read_to_string(tree::root().join("Cargo.lock")).map_err(made)?;
    fs::write(&list, sbom::of("uvfs", &metadata, &lock)?).map_err(made)?;
    checksums(folder, &[&package, &archive, &list])?;
    fs::remove_dir_all(&stage).map_err(made)?;
    Ok(package)
}

/// Builds the mount tool for `platform`; the path of the program.
fn build(platform: &str) -> Result<PathBuf, String> {
    let mut build = cargo();
    build.args(["build", "--release", "--locked", "--package", "uvfs", "--target", platform]);
    step(&mut build)?;
    Ok(target().join(platform).join("release/uvfs"))
}

/// Writes a page for each command into `folder`, by a test of the mount tool: the program does not carry the pages.
fn manual_pages(folder: &Path) -> Result<PathBuf, String> {
    let made = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(made)?;
    }
    fs::create_dir_all(folder).map_err(made)?;
    let mut test = cargo();
    test.args(["test", "--package", "uvfs", "--bin", "uvfs", "manual_pages"]);
    step(test.env("UVFS_WRITE_MANUAL", folder))?;
    match fs::read_dir(folder).map_err(made)?.next() {
        Some(_) => Ok(folder.to_owned()),
        None => Err(format!("{}: no page was written", folder.display())),
    }
}

/// The version in the workspace's manifest.
fn version() -> Result<String, String> {
    let text =
        fs::read_to_string(tree::root().join("Cargo.toml")).map_err(|error| error.to_string())?;
    let version = text.split("\nversion = \"").nth(1).and_then(|rest| rest.split('"').next());
    version.map(ToOwned::to_owned).ok_or_else(|| "Cargo.toml: no version".into())
}

/// Debian's word for the processor.
fn architecture(platform: &str) -> Result<&'static str, String> {
    match platform.split('-').next() {
        Some("x86_64") => Ok("amd64"),
        Some("aarch64") => Ok("arm64"),
        _ => Err(format!("{platform}: uvfs has no package for this processor")),
    }
}

/// When the commit was made, in seconds since 1970.
fn commit_time() -> Result<String, String> {
    let output =
        Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(tree::root()).output();
    let output = output.map_err(|error| format!("git: {error}"))?;
    let time = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if time.is_empty() { Err("git: no commit".into()) } else { Ok(time) }
}

/// Writes SHA256SUMS of `files`, by their names alone.
fn checksums(folder: &Path, files: &[&Path]) -> Result<(), String> {
    let mut sums = Command::new("sha256sum");
    sums.args(files.iter().filter_map(|file| file.file_name())).current_dir(folder);
    let output = sums.output().map_err(|error| format!("sha256sum: {error}"))?;
    if !output.status.success() {
        return Err(format!("sha256sum: {}", String::from_utf8_lossy(&output.stderr)));
    }
    let path = folder.join("SHA256SUMS");
    fs::write(&path, &output.stdout).map_err(|error| format!("{}: {error}", path.display()))?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    println!("dist: in {}", folder.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The short form of `--try-in`: dpkg's view of a package whose program only prints.
    #[test]
    fn a_package_is_made_with_its_archive_checksums_and_list() {
        let folder = tempfile::tempdir().unwrap();
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            return uvfs_skip::lacking("no dpkg-deb");
        }
        if let Err(why) = commit_time() {
            return uvfs_skip::lacking(why);
        }
        let program = folder.path().join("program");
        layout::write(&program, b"#!/bin/sh\necho \"$@\"\n", 0o755).unwrap();
        let platform = "x86_64-unknown-linux-musl";
        let manual = folder.path().join("man");
        layout::write(&manual.join("uvfs.1"), b".TH UVFS 1\n", 0o644).unwrap();
        let options = Options {
            target: Some(platform.into()),
            program: Some(program),
            manual: Some(manual),
            try_in: None,
        };
        let dist = folder.path().join("dist");
        let package = make(&options, &dist).unwrap();
        let output = Command::new("dpkg-deb").arg("--contents").arg(&package).output().unwrap();
        let contents = String::from_utf8(output.stdout).unwrap();
        for line in [
            "root/root",
            "./usr/bin/uvfs\n",
            "mount.fuse.uvfs -> ../bin/uvfs",
            "/uvfs@.service\n",
            "/man1/uvfs.1.gz\n",
        ] {
            assert!(contents.contains(line), "{line}: {contents}");
        }
        let field = |name: &str| {
            let output = Command::new("dpkg-deb").arg("--field").arg(&package).arg(name).output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        assert_eq!((field("Architecture").trim(), field("Depends").trim()), ("amd64", ""));
        assert_eq!(field("Version").trim(), version().unwrap());
        let sums = fs::read_to_string(dist.join("SHA256SUMS")).unwrap();
        assert_eq!(sums.lines().count(), 3, "{sums}");
        let first = fs::read(&package).unwrap();
        make(&options, &dist).unwrap();
        assert!(first == fs::read(&package).unwrap(), "the same commit makes the same package");
        assert!(architecture("riscv64gc-unknown-linux-gnu").is_err());
    }
}
