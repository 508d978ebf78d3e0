//! `cargo xtask pictures`: the page of `uvfs web` as a picture, and `uvfs top` as text, of a mount in use.
//!
//! # Boundary
//! Makes a small tree, mounts it in a separate mount namespace, reads in it, and writes docs/pictures/web.png and the
//! part of docs/top.md between its two marks. The program makes the contents.
//!
//! # Why
//! A picture made by hand shows an unknown version. Weakness: needs root, a Chromium, and the release program; its
//! figures are of the machine that made it, and differ each time, so the gate does not compare it.

use crate::steps::{cargo, step, target};
use crate::tree;
use clap::Args;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Sender};
use std::time::Duration;
use std::{fs, thread};
use uvfs_browser::Browser;

/// The place of the picture, and its size limit: it is in every checkout.
const PICTURE: &str = "docs/pictures/web.png";
const PICTURE_BYTES_MAX: usize = 150_000;
/// The page with the output of `uvfs top`, between these marks.
const TEXT: &str = "docs/top.md";
const MARKS: [&str; 2] = ["<!-- top: made by `cargo xtask pictures` -->\n", "<!-- /top -->"];
/// The mark for the test of the documents' commands.
const NOT_RUN: &str =
    "<!-- not run: `cargo xtask pictures` runs it, on a mount with something to show -->\n";
/// Places of the namespace, which are empty there.
const SOURCE: &str = "/srv/data";
const MOUNTPOINT: &str = "/mnt/data";
/// Directories, with files of so many KiB.
const TREE: [(&str, usize, usize); 9] = [
    ("photos/2023", 24, 512),
    ("photos/2024", 40, 512),
    ("photos/2025/june", 16, 640),
    ("photos/2025/july", 12, 512),
    ("music/albums", 18, 900),
    ("projects/site/src", 300, 12),
    ("projects/tool/src", 220, 9),
    ("mail/archive", 500, 6),
    ("mail/inbox", 120, 4),
];

/// What `cargo xtask pictures` takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The program that is shown, instead of one that is built.
    #[arg(long, value_name = "PATH")]
    program: Option<PathBuf>,
    /// Already in the namespace.
    #[arg(long, hide = true)]
    inside: bool,
}

/// Makes the pictures.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let program = match &options.program {
        Some(program) => program.clone(),
        None => {
            step(cargo().args(["build", "--release", "--locked", "--package", "uvfs"]))?;
            target().join("release/uvfs")
        }
    };
    if options.inside {
        return inside(&program);
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut again = Command::new("unshare");
    again.args(["--mount", "--propagation", "private"]).arg(own).args(["pictures", "--inside"]);
    step(again.arg("--program").arg(program))
}

fn inside(program: &Path) -> Result<(), String> {
    for place in ["/srv", "/mnt"] {
        step(Command::new("mount").args(["-t", "tmpfs", "tmpfs", place]))?;
    }
    let failed = |error: std::io::Error| error.to_string();
    for (folder, files, kib) in TREE {
        let folder = Path::new(SOURCE).join(folder);
        fs::create_dir_all(&folder).map_err(failed)?;
        for at in 0..files {
            fs::write(folder.join(format!("{at:03}")), vec![b'x'; kib << 10]).map_err(failed)?;
        }
    }
    fs::create_dir_all(MOUNTPOINT).map_err(failed)?;
    let mut mount = Command::new(program);
    mount.args(["mount", SOURCE, MOUNTPOINT, "--daemon", "--page-cache", "write-back"]);
    step(mount.args(["--cache-size", "256M", "--entry-timeout", "30s"]))?;
    let made = shown(program);
    // Also when something failed: the daemon would stay.
    let ended = step(Command::new(program).args(["unmount", MOUNTPOINT]));
    made.and(ended)
}

/// Takes both pictures, of a mount that is being read.
fn shown(program: &Path) -> Result<(), String> {
    let (end, ended) = mpsc::channel::<()>();
    let reader = thread::spawn(move || {
        while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
            read_some();
        }
    });
    let made = pictures(program);
    stop(&end);
    let _ = reader.join();
    made
}

fn stop(end: &Sender<()>) {
    let _ = end.send(());
}

/// Looks at every file, and reads some of them.
fn read_some() {
    for (folder, files, _) in TREE {
        for at in 0..files {
            let path = Path::new(MOUNTPOINT).join(folder).join(format!("{at:03}"));
            let _ = fs::metadata(&path);
            if at % 3 == 0 {
                let _ = fs::read(&path);
            }
        }
    }
    let _ = fs::write(Path::new(MOUNTPOINT).join("mail/inbox/new"), vec![b'y'; 200 << 10]);
    thread::sleep(Duration::from_millis(40));
}

fn pictures(program: &Path) -> Result<(), String> {
    thread::sleep(Duration::from_secs(3));
    let mut top = Command::new(program);
    let top =
        top.args(["top", "--once", MOUNTPOINT]).output().map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&top.stdout).into_owned();
    if !text.starts_with(MOUNTPOINT) {
        return Err(format!("top: {text}{}", String::from_utf8_lossy(&top.stderr)));
    }
    let (page_of_top, picture) = (tree::root().join(TEXT), tree::root().join(PICTURE));
    let said = |error: std::io::Error| format!("docs/top.md: {error}");
    let old = fs::read_to_string(&page_of_top).map_err(said)?;
    let new = between(
        &old,
        &format!("{NOT_RUN}```console\n$ uvfs top --once {MOUNTPOINT}\n{text}```\n"),
    )?;
    let png = page(program)?;
    if png.len() > PICTURE_BYTES_MAX {
        return Err(format!("{PICTURE}: {} bytes, more than {PICTURE_BYTES_MAX}", png.len()));
    }
    let folder = picture.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    fs::write(&picture, &png).map_err(|error| format!("{PICTURE}: {error}"))?;
    fs::write(&page_of_top, new).map_err(said)?;
    println!("pictures: {PICTURE}, {} bytes, and docs/top.md", png.len());
    Ok(())
}

/// `text` with `new` between its marks.
fn between(text: &str, new: &str) -> Result<String, String> {
    let (before, rest) = text.split_once(MARKS[0]).ok_or("docs/top.md: no mark for top")?;
    let (_, after) = rest.split_once(MARKS[1]).ok_or("docs/top.md: no second mark for top")?;
    Ok(format!("{before}{}{new}{}{after}", MARKS[0], MARKS[1]))
}

/// The serving process, ended when dropped.
struct Served(Child);

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn page(program: &Path) -> Result<Vec<u8>, String> {
    let chromium = uvfs_browser::installed().ok_or("no chromium; install Debian's chromium")?;
    let mut web = Command::new(program);
    let web = web.args(["web", MOUNTPOINT]).stdout(Stdio::piped()).spawn();
    let mut served = Served(web.map_err(|error| error.to_string())?);
    let mut line = String::new();
    let out = served.0.stdout.take().ok_or("web: no output")?;
    BufReader::new(out).read_line(&mut line).map_err(|error| error.to_string())?;
    let address = line.trim_end().strip_prefix("uvfs: ").ok_or("web: no address")?;
    let mut browser = Browser::start(chromium, (1280, 1000))?;
    browser.prefer("light")?;
    browser.open(address)?;
    browser.wait_for("document.querySelectorAll('.tile.child').length > 2")?;
    // Some points for the charts.
    thread::sleep(Duration::from_secs(24));
    browser.picture()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_between_the_marks_is_replaced_and_nothing_else() {
        let text = format!("a\n{}old\n{}\nb\n", MARKS[0], MARKS[1]);
        let new = between(&text, "new\n").unwrap();
        assert_eq!(new, format!("a\n{}new\n{}\nb\n", MARKS[0], MARKS[1]));
        assert!(between("a", "new").is_err() && between(MARKS[0], "new").is_err());
        let readme = fs::read_to_string(tree::root().join(TEXT)).unwrap();
        assert!(between(&readme, "").is_ok(), "the page has its marks");
        // Bug: the command removed the second mark of the page, and the test of the documents failed.
        assert!(readme.contains(&format!("{}{NOT_RUN}```console\n", MARKS[0])), "and says why");
        let picture = fs::read(tree::root().join(PICTURE)).unwrap();
        assert!(picture.starts_with(b"\x89PNG") && picture.len() <= PICTURE_BYTES_MAX);
    }
}
