//! Other programs that clean: `rclone rc vfs/forget`, `vmtouch -e`, and the kernel's switch for the
//! whole machine.
//!
//! # Boundary
//! Starts the installed ones and reports the missing ones. rclone gets HTTP requests on the
//! loopback interface, like those of its `rclone rc`, without the start of a process. All started
//! programs are ended, unmounted and removed, also after a failure.
//!
//! # Why
//! Time alone would favour a program that forgets everything at once. So each row has its
//! collateral beside it: evicted entries of directory `1`, though only `2` was meant. For mounts
//! they are the names asked of the store again: rclone asks for whole listings, which inotify(7)
//! counts. For the kernel they are the names that are no longer cached, each checked by openat2(2)
//! with `RESOLVE_CACHED`. A program that evicts pages may fill the name cache; that is counted in
//! the same way. Weakness: programs that start anew for each request include the time of their
//! start.

use super::effect::{COLLATERAL, OURS};
use super::figures::Figures;
use super::names::make_files;
use super::pressed::{MOUNT, Mounted, resident_pages, said, write_files};
use super::store::{Branch, ComputedStore, FilePath};
use super::{Run, config, other};
use crate::context;
use crate::http::exchange;
use crate::places::Places;
use crate::report::Unit;
use crate::server::Server;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_residency::page_bytes;
use uvfs_vfs::{Caller, Clean, Dirty, PageCaching, Vfs};

const RCLONE: &str = "rclone";
const VMTOUCH: &str = "vmtouch";
const SWITCH: &str = "kernel-switch";
const SWITCH_FILE: &str = "/proc/sys/vm/drop_caches";
/// Time for rclone to answer.
const START_LIMIT: Duration = Duration::from_secs(20);
const NOT_INSTALLED: &str = "not installed; bench-compare/install.sh gets it";

/// Measures the installed ones.
pub(super) fn measure(run: &Run, figures: &mut Figures) -> io::Result<()> {
    let files = run.sizes.rival_files;
    let places = run.places()?;
    let is_root = rustix::process::geteuid().is_root();
    run.progress("rivals: making the files");
    let backing = run.folder("rival-names")?;
    make_files(&backing, files)?;
    let mut failures = Vec::new();
    let mut attempt = |what: &str, done: io::Result<()>| {
        if let Err(error) = done {
            failures.push(format!("{what}: {error}"));
        }
    };
    run.progress(&format!("rivals: forgetting {files} names"));
    attempt(OURS, in_process(run, files, figures));
    match (is_root && Path::new("/dev/fuse").exists(), &places.uvfs, Places::in_path(RCLONE)) {
        (false, ..) => run.skip("mounts of rivals", "they need root and /dev/fuse"),
        (true, uvfs, rclone) => {
            match uvfs {
                Some(uvfs) => attempt(MOUNT, mounted(run, uvfs, &backing, figures)),
                None => run.skip(MOUNT, "no mount tool; cargo build --release -p uvfs"),
            }
            match rclone {
                Some(rclone) => attempt(RCLONE, forget(run, &rclone, &backing, figures)),
                None => run.skip(RCLONE, NOT_INSTALLED),
            }
        }
    }
    match (run.has_system, is_root) {
        (true, true) => attempt(SWITCH, switch(run, &backing, figures)),
        (true, false) => run.skip(SWITCH, "it needs root"),
        (false, _) => {
            run.skip(SWITCH, "it empties caches of the whole machine; --system allows it")
        }
    }
    fs::remove_dir_all(&backing).map_err(context(backing.display()))?;
    attempt(VMTOUCH, pages(run, figures));
    match failures.is_empty() {
        true => Ok(()),
        false => Err(io::Error::other(failures.join("; "))),
    }
}

fn forget_case(files: u64) -> String {
    format!("forget-{files}")
}

fn collateral_case(files: u64) -> String {
    format!("{COLLATERAL}forget-{files}")
}

/// Adds one forgetting to the figures.
fn sample(figures: &mut Figures, system: &str, files: u64, seconds: f64, gone: u64) {
    figures.sample(&forget_case(files), system, Unit::Seconds, seconds);
    figures.sample(&collateral_case(files), system, Unit::Entries, gone as f64);
}

/// The core alone, until the memory is free.
fn in_process(run: &Run, files: u64, figures: &mut Figures) -> io::Result<()> {
    let branches = ["1", "2"].map(|name| Branch::of(name, files));
    let store = ComputedStore::new(branches.to_vec(), PageCaching::Store);
    let probe = store.probe();
    let vfs = Vfs::new(store, config((64 << 20) + files * 4096)).map_err(other)?;
    let top = vfs.root_directory(Caller::root());
    let look_up = |directory: &str| -> io::Result<()> {
        let mut path = FilePath::below(directory);
        (0..files).try_for_each(|number| top.stat(path.of(number)).map(drop)).map_err(other)
    };
    for _ in 0..run.runs {
        look_up("1")?;
        look_up("2")?;
        let directory = top.open_directory("2").map_err(other)?;
        let begin = Instant::now();
        vfs.clean(directory.node(), Clean::Names, Dirty::Skip).map_err(other)?;
        let seconds = begin.elapsed().as_secs_f64();
        let before = probe.lookups();
        look_up("1")?;
        sample(figures, OURS, files, seconds, probe.lookups() - before);
    }
    Ok(())
}

/// `uvfs drop 2:` on a mount: our caches, and the kernel's above them.
fn mounted(run: &Run, uvfs: &Path, backing: &Path, figures: &mut Figures) -> io::Result<()> {
    let files = run.sizes.rival_files;
    let mount = Mounted::over(run.places()?, uvfs, backing, "rival")?;
    let [first, second] = ["1", "2"].map(|name| mount.root().join(name));
    for _ in 0..run.runs {
        stat_all(&first, files)?;
        stat_all(&second, files)?;
        let mut command = Command::new(uvfs);
        command.arg("drop").arg(format!("2:{}", second.display()));
        let begin = Instant::now();
        said(&mut command)?;
        let seconds = begin.elapsed().as_secs_f64();
        let before = mount.lookups()?;
        stat_all(&first, files)?;
        sample(figures, MOUNT, files, seconds, mount.lookups()? - before);
    }
    Ok(())
}

fn stat_all(directory: &Path, files: u64) -> io::Result<()> {
    let mut path = FilePath::below(&directory.display().to_string());
    (0..files).try_for_each(|number| fs::metadata(path.of(number)).map(drop))
}

/// rclone's mount of the same directory.
fn forget(run: &Run, rclone: &Path, backing: &Path, figures: &mut Figures) -> io::Result<()> {
    let (files, places) = (run.sizes.rival_files, run.places()?);
    // Opened and closed: the number stays free long enough for the start.
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
    let (mountpoint, cache) = (places.work.join("rclone"), places.work.join("rclone-cache"));
    let mut command = Command::new(rclone);
    command.arg("mount").arg(backing).arg(&mountpoint).args(["--config", "/dev/null"]);
    command.arg("--cache-dir").arg(cache).args(["--dir-cache-time", "1h", "--poll-interval", "0"]);
    // Attributes that the kernel caches would hide rclone's eviction.
    command.args(["--attr-timeout", "1ms", "--read-only", "--rc", "--rc-no-auth", "--rc-addr"]);
    command.arg(format!("127.0.0.1:{port}"));
    let server = Server::start(&mut command, mountpoint, &places.work.join("rclone.log"))?;
    let [first, second] = ["1", "2"].map(|name| server.mountpoint().join(name));
    wait_for(port)?;
    let mut watch = ListingWatch::of(&backing.join("1"))?;
    for _ in 0..run.runs {
        stat_all(&first, files)?;
        stat_all(&second, files)?;
        watch.listings()?;
        let begin = Instant::now();
        let answer = ask(port, "vfs/forget", "{\"dir\":\"2\"}")?;
        let seconds = begin.elapsed().as_secs_f64();
        if !answer.contains("\"2\"") {
            return Err(io::Error::other(format!("rclone answered {answer}")));
        }
        stat_all(&first, files)?;
        sample(figures, RCLONE, files, seconds, watch.listings()? * files);
    }
    Ok(())
}

/// Waits until rclone answers at `port`.
fn wait_for(port: u16) -> io::Result<()> {
    let deadline = Instant::now() + START_LIMIT;
    loop {
        match ask(port, "rc/noop", "{}") {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// The body of the answer to a POST.
fn ask(port: u16, what: &str, body: &str) -> io::Result<String> {
    let length = body.len();
    let request = format!(
        "POST /{what} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    );
    exchange((Ipv4Addr::LOCALHOST, port), START_LIMIT, &request).map_err(context(what))
}

/// Counts how often a directory is opened to be listed.
struct ListingWatch(OwnedFd);

impl ListingWatch {
    fn of(directory: &Path) -> io::Result<Self> {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        inotify::add_watch(&watch, directory, WatchFlags::OPEN | WatchFlags::ONLYDIR)?;
        Ok(Self(watch))
    }

    /// Listings since the last call.
    fn listings(&mut self) -> io::Result<u64> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut count = 0;
        loop {
            match reader.next() {
                // Without a name it is about the directory itself.
                Ok(event) => {
                    let is_listing =
                        event.events().contains(ReadFlags::OPEN) && event.file_name().is_none();
                    count += u64::from(is_listing);
                }
                Err(Errno::AGAIN) => return Ok(count),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// The kernel's switch, which knows no directories: `2`, names and inodes.
fn switch(run: &Run, backing: &Path, figures: &mut Figures) -> io::Result<()> {
    let files = run.sizes.rival_files;
    let first = backing.join("1");
    for _ in 0..run.runs {
        stat_all(&first, files)?;
        let cached = cached_names(&first, files)?;
        let begin = Instant::now();
        fs::write(SWITCH_FILE, "2").map_err(context(SWITCH_FILE))?;
        let seconds = begin.elapsed().as_secs_f64();
        let left = cached_names(&first, files)?;
        sample(figures, SWITCH, files, seconds, cached.saturating_sub(left));
    }
    Ok(())
}

/// Names of `directory` that the kernel has cached; asking brings none in.
fn cached_names(directory: &Path, files: u64) -> io::Result<u64> {
    let directory = File::open(directory)?;
    let mut path = FilePath::below("");
    let mut cached = 0;
    for number in 0..files {
        let name = path.of(number).trim_start_matches('/');
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat2(&directory, name, flags, Mode::empty(), ResolveFlags::CACHED) {
            Ok(_) => cached += 1,
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(cached)
}

/// Pages of a directory on a disk: vmtouch, and `uvfs drop 1:` without options and with
/// `--no-fill`.
fn pages(run: &Run, figures: &mut Figures) -> io::Result<()> {
    let sizes = &run.sizes;
    let (files, bytes) = (sizes.rival_files, sizes.rival_pages * page_bytes());
    let folder = run.folder("rival-pages")?;
    let directory = folder.join("1");
    run.progress(&format!("rivals: evicting {} pages", files * sizes.rival_pages));
    write_files(&directory, files, bytes)?;
    let request = format!("1:{}", directory.display());
    let mut systems: Vec<(&str, PathBuf, Vec<String>)> = Vec::new();
    match Places::in_path(VMTOUCH) {
        Some(vmtouch) => {
            let words = ["-q".to_owned(), "-e".into(), directory.display().to_string()];
            systems.push((VMTOUCH, vmtouch, words.to_vec()));
        }
        None => run.skip(VMTOUCH, NOT_INSTALLED),
    }
    match &run.places()?.uvfs {
        Some(uvfs) => {
            systems.push(("uvfs-drop", uvfs.clone(), vec!["drop".into(), request.clone()]));
            let words = vec!["drop".into(), "--no-fill".into(), request];
            systems.push(("uvfs-drop-no-fill", uvfs.clone(), words));
        }
        None => run.skip("uvfs drop", "no mount tool; cargo build --release -p uvfs"),
    }
    let has_cold_names = run.has_system && rustix::process::geteuid().is_root();
    if !has_cold_names {
        run.skip(
            "names that are brought in",
            "they are all cached; --system lets them leave first",
        );
    }
    for _ in 0..run.runs {
        for (system, program, words) in &systems {
            if resident_pages(&directory, files)? < files * sizes.rival_pages {
                read_all(&directory, files)?;
            }
            if has_cold_names {
                // Names are evicted; inodes with pages stay, and their pages.
                fs::write(SWITCH_FILE, "2").map_err(context(SWITCH_FILE))?;
            }
            let before = cached_names(&directory, files)?;
            let begin = Instant::now();
            said(Command::new(program).args(words))?;
            let seconds = begin.elapsed().as_secs_f64();
            let filled = cached_names(&directory, files)?.saturating_sub(before);
            let left = resident_pages(&directory, files)?;
            let pages = files * sizes.rival_pages;
            figures.sample(&format!("evict-{pages}"), system, Unit::Seconds, seconds);
            let case = format!("evict-{pages}-left");
            figures.sample(&case, system, Unit::Entries, left as f64);
            if has_cold_names {
                let case = format!("evict-{pages}-names-brought-in");
                figures.sample(&case, system, Unit::Entries, filled as f64);
            }
        }
    }
    fs::remove_dir_all(&folder).map_err(context(folder.display()))
}

fn read_all(directory: &Path, files: u64) -> io::Result<()> {
    let mut path = FilePath::below(&directory.display().to_string());
    (0..files).try_for_each(|number| fs::read(path.of(number)).map(drop))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn folder(name: &str) -> PathBuf {
        let name = format!("uvfs-bench-rivals-{name}-{}", std::process::id());
        std::env::temp_dir().join(name)
    }

    #[test]
    fn listings_of_a_directory_are_counted_and_nothing_else() {
        let folder = folder("watch");
        write_files(&folder, 2, 1).unwrap();
        let mut watch = ListingWatch::of(&folder).unwrap();
        read_all(&folder, 2).unwrap();
        assert_eq!(watch.listings().unwrap(), 0);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        assert_eq!((watch.listings().unwrap(), watch.listings().unwrap()), (1, 0));
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn cached_names_are_counted() {
        let folder = folder("cached");
        write_files(&folder, 3, 1).unwrap();
        match cached_names(&folder, 3) {
            Ok(cached) => assert_eq!(cached, 3, "they were made a moment ago"),
            Err(error) => {
                uvfs_skip::lacking(format_args!("no openat2 with RESOLVE_CACHED: {error}"))
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn answers_of_http_are_read_and_refusals_come_out() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = thread::spawn(move || {
            for answer in ["HTTP/1.1 200 OK\r\n\r\n{\"x\":1}", "HTTP/1.1 404 Not Found\r\n\r\nno"] {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 512];
                let count = stream.read(&mut request).unwrap();
                assert!(request[..count].starts_with(b"POST /vfs/forget HTTP/1.1\r\n"));
                stream.write_all(answer.as_bytes()).unwrap();
            }
        });
        assert_eq!(ask(port, "vfs/forget", "{}").unwrap(), "{\"x\":1}");
        assert!(ask(port, "vfs/forget", "{}").unwrap_err().to_string().contains("404"));
        server.join().unwrap();
    }
}
