//! Floor: crashes of others: an image whose power was cut under the kernel looks the same through uvfs and through the
//! kernel, once each has replayed the journal.
//!
//! The kernel's ext4 writes to a loop device whose file is on a store that records each write and each flush. A cut
//! keeps everything before the last flush and, of later writes, a prefix or any pages. Needs root, `/dev/fuse`, loop
//! devices and mke2fs; is skipped where they lack. The kernel's timing decides the recorded writes, so no two runs have
//! the same cuts; a failing image is kept and named. `UVFS_CUTS` sets the number of cuts (`cargo xtask cuts` sets it);
//! otherwise there are a few.

#![expect(clippy::disallowed_types, reason = "std's mutex: the store is no part of uvfs")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uvfs_ext::{Image, Kind, MemoryDevice, ROOT};
use uvfs_fuse::{Mount, MountOptions, Unmount};
use uvfs_tests::{Numbers, Watchdog, seed, unmount_idle};
use uvfs_vfs::{
    Attributes, Backend, Caller, Capabilities, Cookie, Data, Entry, Error, FileKind, FileRef,
    InodeId, Inodes, Listing, Name, Names, PageCaching, Result, SetAttributes, SyncMode, Vfs,
    VfsConfig,
};

const DISK: InodeId = InodeId(2);
const PAGE: usize = 4096;
/// Cuts of one recording.
const CUTS: usize = 20;
/// The cuts of a run without `UVFS_CUTS`.
const FEW: usize = 8;

/// The events on the disk, in order.
enum Event {
    Write(u64, Vec<u8>),
    Flush,
}

/// One file, `disk`, and its events.
#[derive(Clone)]
struct Recorder(Arc<Mutex<(Vec<u8>, Vec<Event>)>>);

impl Recorder {
    fn new(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new((image, Vec::new()))))
    }

    fn entry(&self, inode: InodeId) -> Result<Entry> {
        Ok(Entry { inode, attributes: self.attributes(FileRef::unopened(inode))? })
    }
}

impl Backend for Recorder {
    fn capabilities(&self) -> Capabilities {
        Capabilities { caching: PageCaching::Store, ..Capabilities::read_write("recorder") }
    }
    fn root(&self) -> Result<Entry> {
        self.entry(InodeId::ROOT)
    }
    fn names(&self) -> &dyn Names {
        self
    }
    fn inodes(&self) -> &dyn Inodes {
        self
    }
    fn data(&self) -> &dyn Data {
        self
    }
}

impl Names for Recorder {
    fn lookup(&self, _: &Caller, _: InodeId, name: Name<'_>) -> Result<Entry> {
        if name.as_bytes() == b"disk" { self.entry(DISK) } else { Err(Error::NotFound) }
    }
    fn list(&self, _: FileRef, from: Cookie, listing: &mut dyn Listing) -> Result<()> {
        if from == Cookie(0) {
            listing.add_name(Name::new(b"disk")?, Cookie(1), DISK.0, FileKind::Regular);
        }
        Ok(())
    }
}

impl Inodes for Recorder {
    fn attributes(&self, file: FileRef) -> Result<Attributes> {
        if file.inode == InodeId::ROOT {
            return Ok(Attributes::new(1, FileKind::Directory, 0o755));
        }
        let size = self.0.lock().unwrap().0.len() as u64;
        Ok(Attributes { size, ..Attributes::new(DISK.0, FileKind::Regular, 0o600) })
    }
    fn set_attributes(&self, _: &Caller, file: FileRef, _: &SetAttributes) -> Result<Attributes> {
        self.attributes(file)
    }
}

impl Data for Recorder {
    fn read(&self, _: FileRef, offset: u64, into: &mut [u8]) -> Result<usize> {
        let state = self.0.lock().unwrap();
        let rest = state.0.get(offset as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }
    fn write(&self, _: &Caller, _: FileRef, offset: u64, data: &[u8]) -> Result<usize> {
        let mut state = self.0.lock().unwrap();
        let at = offset as usize;
        state.0[at..at + data.len()].copy_from_slice(data);
        state.1.push(Event::Write(offset, data.to_vec()));
        Ok(data.len())
    }
    fn sync(&self, _: FileRef, _: SyncMode) -> Result<()> {
        self.0.lock().unwrap().1.push(Event::Flush);
        Ok(())
    }
}

/// Runs a command for twenty seconds at most; returns its error.
fn done(program: &str, arguments: &[&str]) -> std::result::Result<String, String> {
    let output = Command::new("timeout").args(["-k", "2", "20", program]).args(arguments).output();
    let output = output.map_err(|error| format!("timeout: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned()),
        false => Err(format!(
            "{program} {arguments:?}: {} {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a plain path")
}

/// A file system of the kernel over a file, through a loop device that is detached with it.
struct Kernel(PathBuf);

impl Kernel {
    fn mount(file: &Path, on: &Path, options: &str) -> std::result::Result<Self, String> {
        let options = format!("loop,{options}");
        done("mount", &["-t", "ext4", "-o", &options, text(file), text(on)])?;
        Ok(Self(on.to_owned()))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if done("umount", &[text(&self.0)]).is_err() {
            let _ = done("umount", &["-l", text(&self.0)]);
        }
    }
}

/// The object of a path: mode, links, owner, group, size, times, contents or text, attributes.
#[derive(Debug, PartialEq, Eq)]
struct About {
    head: (u16, u64, u32, u32, u64),
    times: [(i64, u32); 2],
    contents: Vec<u8>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

type Tree = BTreeMap<PathBuf, About>;

fn shown_by_us(bytes: Vec<u8>) -> std::result::Result<(Tree, u32), String> {
    let said = |error: uvfs_ext::Error| error.to_string();
    let image = Image::open(Arc::new(MemoryDevice::new(bytes))).map_err(said)?;
    let replayed = image.recovery().map_or(0, |recovery| recovery.transactions);
    let mut tree = Tree::new();
    let mut waiting = vec![(PathBuf::new(), ROOT)];
    while let Some((directory, number)) = waiting.pop() {
        let inode = image.inode(number).map_err(said)?;
        let mut names = Vec::new();
        let listed = image.list(&inode, 0, &mut |entry| {
            names.push(entry.name.into_owned());
            ControlFlow::Continue(())
        });
        listed.map_err(said)?;
        for name in names.into_iter().filter(|name| !matches!(name.as_slice(), b"." | b"..")) {
            let number = image.lookup(&inode, &name).map_err(said)?;
            let number = number.ok_or("a name that is listed is not found")?;
            let below = image.inode(number).map_err(said)?;
            let path = directory.join(String::from_utf8(name).map_err(|_| "an odd name")?);
            let contents = match below.kind() {
                Some(Kind::Regular) => {
                    let mut bytes = vec![0; below.size() as usize];
                    image.read(&below, 0, &mut bytes).map_err(said)?;
                    bytes
                }
                Some(Kind::Symlink) => image.read_link(&below).map_err(said)?,
                _ => Vec::new(),
            };
            if below.kind() == Some(Kind::Directory) {
                waiting.push((path.clone(), number));
            }
            let named = |name: Vec<u8>| {
                let value = image.xattr(&below, &name).map_err(said)?.ok_or("no value")?;
                Ok::<_, String>((name, value))
            };
            let names = image.xattr_names(&below).map_err(said)?;
            let attributes = names.into_iter().map(named).collect::<std::result::Result<_, _>>()?;
            let time = |time: uvfs_ext::Timestamp| (time.seconds, time.nanoseconds);
            let about = About {
                head: (
                    below.mode(),
                    below.links().into(),
                    below.uid(),
                    below.gid(),
                    if below.kind() == Some(Kind::Directory) { 0 } else { below.size() },
                ),
                times: [time(below.modified()), time(below.changed())],
                contents,
                attributes,
            };
            tree.insert(path, about);
        }
    }
    Ok((tree, replayed))
}

fn shown_by_the_kernel(root: &Path) -> std::io::Result<Tree> {
    let mut tree = Tree::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(directory) = waiting.pop() {
        for entry in fs::read_dir(directory)? {
            let path = entry?.path();
            let about = fs::symlink_metadata(&path)?;
            let contents = if about.is_file() {
                fs::read(&path)?
            } else if about.is_symlink() {
                fs::read_link(&path)?.into_os_string().into_encoded_bytes()
            } else {
                Vec::new()
            };
            if about.is_dir() {
                waiting.push(path.clone());
            }
            let mut attributes = Vec::new();
            let mut value = vec![0; 65_536];
            if let Ok(length) = rustix::fs::getxattr(&path, "user.k", &mut value[..])
                && about.is_file()
            {
                attributes.push((b"user.k".to_vec(), value[..length].to_vec()));
            }
            let size = if about.is_dir() { 0 } else { about.size() };
            let kept = About {
                head: (about.mode() as u16, about.nlink(), about.uid(), about.gid(), size),
                times: [
                    (about.mtime(), about.mtime_nsec() as u32),
                    (about.ctime(), about.ctime_nsec() as u32),
                ],
                contents,
                attributes,
            };
            tree.insert(path.strip_prefix(root).expect("below the root").to_owned(), kept);
        }
    }
    Ok(tree)
}

/// Changes of all kinds below `root`, some of them synchronous.
fn work(root: &Path, numbers: &mut Numbers, steps: usize) {
    // The error of a removed object is ignored.
    let path =
        |numbers: &mut Numbers| root.join(format!("d{}/f{}", numbers.below(4), numbers.below(40)));
    for directory in 0..4 {
        let _ = fs::create_dir(root.join(format!("d{directory}")));
    }
    for step in 0..steps {
        let (one, two) = (path(numbers), path(numbers));
        // As a journal's own blocks begin, now and then: such data is stored otherwise.
        let magic = [0xC0, 0x3B, 0x39, 0x98];
        let fill = [step as u8, (step >> 8) as u8, 7, 9];
        let fill = if numbers.below(4) == 0 { magic } else { fill };
        match numbers.below(12) {
            0..=3 => drop(fs::write(&one, fill.repeat(numbers.below(5000) as usize))),
            4 => drop(fs::rename(&one, &two)),
            5 => drop(fs::remove_file(&one)),
            6 => drop(fs::hard_link(&one, &two)),
            7 => drop(symlink("x".repeat(numbers.below(200) as usize + 1), &one)),
            8 => {
                if let Ok(file) = File::options().write(true).open(&one) {
                    let _ = file.set_len(numbers.below(30_000));
                    let _ = file.write_all_at(&fill, numbers.below(60_000));
                }
            }
            9 => {
                let value = fill.repeat(numbers.below(150) as usize + 1);
                let flags = rustix::fs::XattrFlags::empty();
                let _ = rustix::fs::setxattr(&one, "user.k", &value, flags);
            }
            10 => {
                let folder = root.join(format!("d{}/s{}", numbers.below(4), numbers.below(5)));
                if fs::create_dir(&folder).is_err() {
                    let _ = fs::remove_dir(&folder);
                }
            }
            _ => {
                if let Ok(file) = File::open(&one) {
                    let _ = file.sync_all();
                }
            }
        }
    }
}

/// The disk after a power cut at some moment.
struct Cuts<'a> {
    events: &'a [Event],
    /// The certain content, and the number of its events.
    stable: (Vec<u8>, usize),
}

impl Cuts<'_> {
    /// The disk after `events` events were requested; `events` never decreases.
    fn at(&mut self, events: usize, numbers: &mut Numbers) -> Vec<u8> {
        let past = &self.events[..events];
        let flush = past.iter().rposition(|event| matches!(event, Event::Flush)).unwrap_or(0);
        for event in &self.events[self.stable.1..flush.max(self.stable.1)] {
            put(&mut self.stable.0, event, |_| true);
        }
        self.stable.1 = flush.max(self.stable.1);
        let mut disk = self.stable.0.clone();
        let torn = numbers.below(2) == 0;
        for event in &past[self.stable.1.min(events)..] {
            put(&mut disk, event, |_| !torn || numbers.below(2) == 0);
        }
        disk
    }
}

/// Applies those pages of a write for which `reached` returns true.
fn put(disk: &mut [u8], event: &Event, mut reached: impl FnMut(usize) -> bool) {
    let Event::Write(offset, data) = event else { return };
    for (page, bytes) in data.chunks(PAGE).enumerate() {
        if reached(page) {
            let at = *offset as usize + page * PAGE;
            disk[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

/// The options of mke2fs, and the kernel's mount options.
const KINDS: [(&[&str], &str); 4] = [
    (&["-b", "1024", "-J", "size=1"], "commit=1"),
    (&["-b", "1024", "-J", "size=1", "-O", "^metadata_csum,^64bit"], "data=journal,commit=1"),
    (&["-b", "4096", "-J", "size=4"], "data=ordered,nodelalloc,commit=1"),
    (&["-b", "1024", "-J", "size=1", "-O", "^metadata_csum"], "data=writeback,commit=1"),
];

#[test]
fn an_image_whose_power_was_cut_shows_what_the_kernel_shows() {
    if !uvfs_skip::can_mount() {
        return;
    }
    if !Path::new("/dev/loop-control").exists() {
        return uvfs_skip::lacking("no loop devices");
    }
    if let Err(error) = Command::new("mke2fs").arg("-V").output() {
        return uvfs_skip::lacking(format_args!("mke2fs: {error}"));
    }
    let wanted = std::env::var("UVFS_CUTS").ok().and_then(|text| text.parse().ok()).unwrap_or(FEW);
    let mut numbers = Numbers(seed());
    let (mut cuts, mut replayed, mut refused) = (0, 0, 0);
    for kind in 0.. {
        if cuts >= wanted {
            break;
        }
        let count = (wanted - cuts).min(if wanted == FEW { FEW / 2 } else { CUTS });
        let (some, none) = cut(KINDS[kind % KINDS.len()], count, &mut numbers);
        (cuts, replayed, refused) = (cuts + count, replayed + some, refused + none);
    }
    println!("{cuts} cuts: {replayed} with transactions to replay, {refused} refused by both");
    assert!(replayed > 0, "no cut left anything to replay");
    assert!(refused * 2 < cuts, "{refused} of {cuts} cuts are of nothing that can be mounted");
}

/// One recording, cut `count` times. How many had transactions to replay, and how many both refuse.
fn cut((made, mounted): (&[&str], &str), count: usize, numbers: &mut Numbers) -> (usize, usize) {
    let folder = tempfile::tempdir().unwrap();
    let [image, served, kernel] = ["cut.img", "served", "kernel"].map(|n| folder.path().join(n));
    [&served, &kernel].into_iter().for_each(|path| fs::create_dir(path).unwrap());
    let mut arguments = vec!["-q", "-F", "-t", "ext4"];
    arguments.extend(made);
    done("mke2fs", &[&arguments[..], &[text(&image), "12M"]].concat()).unwrap();
    let base = fs::read(&image).unwrap();
    let recorder = Recorder::new(base.clone());
    {
        let rescued = [kernel.clone(), served.clone()];
        let _watchdog = Watchdog::with_rescue(Duration::from_secs(300), move || {
            rescued.iter().for_each(|path| drop(done("umount", &["-l", text(path)])));
        });
        let vfs = Vfs::new(recorder.clone(), VfsConfig::default()).unwrap();
        let options = MountOptions { readers: Some(2), ..MountOptions::default() };
        let mount = Mount::start(vfs, &served, options).unwrap();
        let over = Kernel::mount(&served.join("disk"), &kernel, mounted);
        let over = over.unwrap_or_else(|why| panic!("{why}"));
        work(&kernel, numbers, 400 + count * 20);
        drop(over);
        unmount_idle(|| mount.unmount(Unmount::Idle));
    }
    let ended = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs() as i64;
    // The kernel's changes from now on have a later second.
    std::thread::sleep(Duration::from_millis(1100));
    let state = recorder.0.lock().unwrap();
    let events = &state.1;
    let mut moments: Vec<usize> =
        (0..count).map(|_| numbers.below(events.len() as u64 + 1) as usize).collect();
    moments.sort_unstable();
    let mut states = Cuts { events, stable: (base, 0) };
    let (mut replayed, mut refused) = (0, 0);
    for (cuts, moment) in moments.into_iter().enumerate() {
        let disk = states.at(moment, numbers);
        // A file of its own: mount(8) takes a loop device that still has the file, and with it blocks of the cut before. The kernel
        // refused a good image once.
        let image = folder.path().join(format!("cut-{cuts}.img"));
        fs::write(&image, &disk).unwrap();
        let ours = shown_by_us(disk.clone());
        let theirs = Kernel::mount(&image, &kernel, "noatime")
            .and_then(|_over| shown_by_the_kernel(&kernel).map_err(|error| error.to_string()));
        let about = format!("{made:?} {mounted}, cut at {moment} of {}", events.len());
        match (ours, theirs) {
            (Ok((ours, transactions)), Ok(mut theirs)) => {
                replayed += usize::from(transactions > 0);
                for (path, about) in &mut theirs {
                    // Of an orphan that has a name the kernel ends the truncation, which is a change of now.
                    if about.times[1].0 > ended
                        && let Some(ours) = ours.get(path)
                    {
                        about.times = ours.times;
                    }
                }
                let odd = ours.iter().find(|(path, about)| theirs.get(*path) != Some(about));
                let odd = odd.or_else(|| theirs.iter().find(|(path, _)| !ours.contains_key(*path)));
                if let Some((path, _)) = odd {
                    let heads = [&ours, &theirs].map(|tree| {
                        tree.get(path).map(|about| (about.head, about.times, about.contents.len()))
                    });
                    let [ours, theirs] = heads;
                    let kept = keep(&disk);
                    panic!("{about}: {path:?} is {ours:?}, for the kernel {theirs:?}; {kept}");
                }
            }
            (Err(_), Err(_)) => refused += 1,
            (ours, theirs) => {
                let (ours, theirs) = (ours.map(drop), theirs.map(drop));
                let said = done("dmesg", &[]).unwrap_or_else(|why| why);
                let lines = said.lines().rev().filter(|line| line.contains("EXT4-fs"));
                let said: Vec<_> = lines.take(5).collect();
                let kept = keep(&disk);
                panic!("{about}: {ours:?}, the kernel: {theirs:?}, {said:#?}; {kept}");
            }
        }
        fs::remove_file(&image).unwrap();
    }
    (replayed, refused)
}

/// Keeps the bytes of a failing image.
fn keep(disk: &[u8]) -> String {
    let path = std::env::temp_dir().join(format!("uvfs-cut-{}.img", std::process::id()));
    let kept = fs::write(&path, disk);
    format!("{}: {kept:?}", path.display())
}
