//! `uvfs demo`: a mount at work, from an image made for it to the check after it; nothing is left.
//!
//! # Boundary
//! Prints each command as its reader would type it, and runs exactly that, in a folder of its own. Where there can be no
//! mount, [`in_process`] makes the same calls of the library.
//!
//! # Concurrency
//! One thread. A command runs in a process group of its own: Ctrl-C reaches this process alone, which waits for the
//! command, ends the mount and removes the folder.
//!
//! # Why
//! The first thing that a reader tries needs no image, no mountpoint and no decision. Weakness: a second Ctrl-C does not
//! end it earlier, and `kill -9` leaves the folder and the mount.

mod in_process;
mod template;

use crate::Failure;
use crate::checks::{self, Mounter};
use crate::mountinfo;
use crate::print_line;
use crate::print_text;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use uvfs_terminal::interrupt::Interrupt;

/// The names of the image and the mountpoint in the folder.
const IMAGE: &str = "disk.img";
const MOUNTPOINT: &str = "disk";
/// The tree that is copied: files of two directories, and bytes of each file.
const PHOTOS: (usize, usize) = (8, 256 << 10);
const NOTES: (usize, usize) = (24, 500);
/// Time after which a command counts as hung.
const LIMIT: Duration = Duration::from_secs(30);
/// Time between two looks at a command.
const LOOK: Duration = Duration::from_millis(2);

/// Runs the subcommand.
///
/// # Errors
/// The first command that failed, or Ctrl-C. Nothing is left then, either.
pub(crate) fn run() -> Result<ExitCode, Failure> {
    let began = Instant::now();
    let demo = Demo::new()?;
    comment(&format!("a disk image at work, in {}, which is removed at the end", demo.shown()));
    demo.make_image()?;
    demo.make_tree()?;
    let obstacle = match checks::fuse_available(&Mounter::here()) {
        Ok(()) => demo.mount()?,
        Err(failure) => Some(failure.to_string()),
    };
    match obstacle {
        None => demo.mounted()?,
        Some(why) => {
            comment(&why);
            comment("so there is no mount here: the library serves the image in this process");
            in_process::show(&demo)?;
        }
    }
    demo.uvfs(&["image", "check", IMAGE])?;
    drop(demo);
    let seconds = began.elapsed().as_secs_f64();
    comment(&format!("done in {seconds:.1} s, and nothing is left; `uvfs --help` has more"));
    Ok(ExitCode::SUCCESS)
}

fn comment(text: &str) {
    print_line(&format!("# {text}"));
}

/// The folder of a demonstration. Dropping it ends the mount and removes the folder.
struct Demo {
    folder: PathBuf,
    program: PathBuf,
    /// A signal asks for the end.
    stop: Interrupt,
}

impl Demo {
    fn new() -> Result<Self, Failure> {
        let stop = Interrupt::by_any_of(&[SIGINT, SIGTERM, SIGHUP, SIGQUIT]);
        let stop = stop.map_err(Failure::refused)?;
        let program = std::env::current_exe().map_err(|error| {
            Failure::refused(format!(
                "this program: {}; start it by its path",
                crate::cause(&error)
            ))
        })?;
        let folder = make_folder(&std::env::temp_dir())?;
        Ok(Self { folder, program, stop })
    }

    fn shown(&self) -> String {
        self.folder.to_string_lossy().into_owned()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Makes the image: by mke2fs, or from the one that mke2fs made for this program.
    fn make_image(&self) -> Result<(), Failure> {
        let words = ["image", "create", IMAGE, "--size", "64M"];
        let made = self.outcome(&mut self.command(&words))?;
        if made.status.success() {
            say(&words);
            print_text(&made.text);
            return Ok(());
        }
        let why = made.text.trim_end().trim_start_matches("uvfs: ").to_owned();
        comment(&why);
        comment(&format!("so {IMAGE} is an empty ext4 of 64 MiB that is a part of this program"));
        let failed = |error: &io::Error| self.failed(IMAGE, error);
        template::unpack(&self.path(IMAGE)).map_err(|error| failed(&error))?;
        in_process::own_root(&self.path(IMAGE))
    }

    fn make_tree(&self) -> Result<(), Failure> {
        let files = tree();
        let failed = |error: &io::Error| self.failed("tree", error);
        for (name, content) in &files {
            let path = self.path("tree").join(name);
            let made = path.parent().map_or(Ok(()), fs::create_dir_all);
            made.and_then(|()| fs::write(&path, content)).map_err(|error| failed(&error))?;
        }
        comment(&format!(
            "tree/photos has {} files of 256 KiB, tree/notes {} of 500 bytes",
            PHOTOS.0, NOTES.0
        ));
        Ok(())
    }

    /// Mounts the image; returns why that is impossible here.
    fn mount(&self) -> Result<Option<String>, Failure> {
        self.shell("mkdir disk")?;
        let words = ["mount", IMAGE, MOUNTPOINT, "--daemon"];
        let outcome = self.outcome(&mut self.command(&words))?;
        if !outcome.status.success() {
            return Ok(Some(outcome.text.trim_end().trim_start_matches("uvfs: ").to_owned()));
        }
        say(&words);
        print_text(&outcome.text);
        Ok(None)
    }

    /// The demonstration itself, on the mount.
    fn mounted(&self) -> Result<(), Failure> {
        self.shell("cp -r tree/. disk")?;
        // An fsync of the root: all of it is stable then.
        self.shell("sync disk")?;
        self.uvfs(&["cached", MOUNTPOINT])?;
        self.uvfs(&["drop", "3:disk/photos"])?;
        self.uvfs(&["cached", MOUNTPOINT])?;
        let read = self.shell("cat disk/photos/* | wc -c")?;
        let bytes = PHOTOS.0 * PHOTOS.1;
        if read.trim() != bytes.to_string() {
            return Err(Failure::refused(format!(
                "demo: {} bytes came back instead of {bytes}; `uvfs doctor` collects data for a report",
                read.trim()
            )));
        }
        self.uvfs(&["cached", MOUNTPOINT])?;
        self.uvfs(&["unmount", MOUNTPOINT]).map(drop)
    }

    /// Shows a command of this program and its output.
    fn uvfs(&self, words: &[&str]) -> Result<String, Failure> {
        say(words);
        self.done(&format!("uvfs {}", words.join(" ")), &mut self.command(words))
    }

    /// Shows a line for a shell and its output.
    fn shell(&self, line: &str) -> Result<String, Failure> {
        print_line(&format!("$ {line}"));
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]);
        self.done(line, &mut command)
    }

    fn done(&self, line: &str, command: &mut Command) -> Result<String, Failure> {
        let outcome = self.outcome(command)?;
        print_text(&outcome.text);
        if !outcome.status.success() {
            return Err(Failure::refused(format!(
                "demo: `{line}` failed; its output says why, and nothing is left of the demonstration"
            )));
        }
        Ok(outcome.text)
    }

    /// This program with `words`, as it is without any settings of its user.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        let variables = std::env::vars_os().map(|(name, _)| name);
        for name in variables.filter(|name| name.to_string_lossy().starts_with("UVFS_")) {
            command.env_remove(name);
        }
        command.args(words).env("UVFS_CONFIG", "/dev/null");
        command
    }

    /// Runs `command` in the folder.
    fn outcome(&self, command: &mut Command) -> Result<Outcome, Failure> {
        self.check_stop()?;
        let outcome = self.carry_out(command);
        self.check_stop()?;
        outcome.map_err(|error| {
            let program = command.get_program().to_string_lossy().into_owned();
            self.failed(&program, &error)
        })
    }

    fn carry_out(&self, command: &mut Command) -> io::Result<Outcome> {
        let output = self.path("output");
        let out = File::create(&output)?;
        command.current_dir(&self.folder).stdin(Stdio::null());
        // The control socket of an ordinary user lies there, and goes with all else.
        command.env("XDG_RUNTIME_DIR", &self.folder);
        command.stdout(out.try_clone()?).stderr(out).process_group(0);
        let status = wait(&mut command.spawn()?)?;
        Ok(Outcome { status, text: String::from_utf8_lossy(&fs::read(&output)?).into_owned() })
    }

    fn check_stop(&self) -> Result<(), Failure> {
        match self.stop.is_set() {
            true => Err(Failure::refused("demo: ended by a signal; nothing is left of it")),
            false => Ok(()),
        }
    }

    fn failed(&self, what: &str, error: &io::Error) -> Failure {
        let (folder, cause) = (self.folder.display(), crate::cause(error));
        Failure::refused(format!("demo: {what} in {folder}: {cause}; TMPDIR names another folder"))
    }

    fn is_mounted(&self) -> bool {
        let mountpoint = self.path(MOUNTPOINT);
        mountinfo::read().is_ok_and(|all| mountinfo::topmost(&all, &mountpoint).is_some())
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        for words in [&["unmount", MOUNTPOINT][..], &["unmount", "--lazy", MOUNTPOINT]] {
            if self.is_mounted() {
                // The mount table shows whether it worked.
                let _ = self.carry_out(&mut self.command(words));
            }
        }
        let folder = self.folder.display();
        if self.is_mounted() {
            // Removing the folder would remove what is in the mount.
            eprintln!("uvfs: demo: {folder}/{MOUNTPOINT} is still mounted; `uvfs unmount` ends it");
            return;
        }
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("uvfs: demo: {folder}: {}; remove it", crate::cause(&error));
        }
    }
}

/// What a command did.
struct Outcome {
    status: ExitStatus,
    /// Both of its outputs, in their order.
    text: String,
}

fn say(words: &[&str]) {
    print_line(&format!("$ uvfs {}", words.join(" ")));
}

/// Waits for `child`, and kills it after [`LIMIT`].
fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let end = Instant::now() + LIMIT;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > end {
            child.kill()?;
            return child.wait();
        }
        thread::sleep(LOOK);
    }
}

/// Makes a folder for this process alone.
fn make_folder(below: &Path) -> Result<PathBuf, Failure> {
    let pid = std::process::id();
    let mut refused = io::ErrorKind::AlreadyExists.into();
    for number in 0..100 {
        let folder = below.join(format!("uvfs-demo-{pid}-{number}"));
        match DirBuilder::new().mode(0o700).create(&folder) {
            // The mount table has the path without links.
            Ok(()) => return Ok(folder.canonicalize().unwrap_or(folder)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => refused = error,
            Err(error) => {
                refused = error;
                break;
            }
        }
    }
    let (below, cause) = (below.display(), crate::cause(&refused));
    Err(Failure::refused(format!("demo: {below}: {cause}; TMPDIR names another folder")))
}

/// The files of the small tree, by name.
fn tree() -> Vec<(String, Vec<u8>)> {
    let content = |seed: usize, bytes: usize| {
        let mut state = seed as u32 + 1;
        let step = |_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        };
        (0..bytes).map(step).collect()
    };
    let photos = (0..PHOTOS.0).map(|at| (format!("photos/{at}.jpg"), content(at, PHOTOS.1)));
    let notes = (0..NOTES.0).map(|at| (format!("notes/{at}.txt"), content(100 + at, NOTES.1)));
    photos.chain(notes).collect()
}
