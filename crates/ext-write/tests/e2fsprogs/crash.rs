//! Crashes: workloads recorded, cut at many moments with any part of the unflushed writes. After the journal is replayed and the
//! list of orphans completed, the image has no faults, and all data that was promised to be stable is there.
//!
//! `UVFS_CRASH_STATES=2000` looks at so many states of each workload instead of some.

use crate::images::{Workshop, open, tools, whole};
use crate::operations::new;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_ext::check::{Observer, check};
use uvfs_ext::{Fault, Image, Kind, MemoryDevice, ROOT, Timestamp};
use uvfs_ext_write::device::testing::{Flushes, Random, Record, Recorder};
use uvfs_ext_write::{DataMode, Error, Grow, Privileges, Volume, WritableMemory};

/// Two sectors, with a checksum in the second.
const SUPERBLOCK: Range<u64> = 1024..2048;
const TORN_SUPERBLOCK: &str = "superblock: its checksum is wrong";

static FACTS: LockClass = LockClass::new(403, "test-facts", "what was promised");

/// The promise about a path.
#[derive(Debug, Clone)]
enum Promise {
    /// A file with this in it.
    Whole(Vec<u8>),
    /// A file that begins with this.
    Begins(Vec<u8>),
    /// A file with one or the other in it.
    Either(Vec<u8>, Vec<u8>),
    /// A file with a part of this in it, from the beginning.
    Part(Vec<u8>),
    /// Nothing.
    Gone,
}

/// A promise, and from when to when it is one.
#[derive(Debug)]
struct Fact {
    from: usize,
    until: usize,
    path: String,
    promise: Promise,
}

/// A volume whose writes are recorded, and the promises on the way.
struct Recorded {
    volume: Volume,
    device: Arc<Recorder>,
    facts: Mutex<Vec<Fact>>,
}

impl Recorded {
    /// From now on, until [`Recorded::changing`].
    fn promise(&self, path: &str, promise: Promise) {
        let from = self.device.moment();
        self.changing(path);
        self.facts.lock().push(Fact { from, until: usize::MAX, path: path.into(), promise });
    }

    /// The promise about a path ends now.
    fn changing(&self, path: &str) {
        let now = self.device.moment();
        let mut facts = self.facts.lock();
        for fact in facts.iter_mut().filter(|fact| fact.path == path) {
            fact.until = fact.until.min(now);
        }
    }

    fn file(&self, directory: u32, name: &str, bytes: &[u8]) -> u32 {
        let file = self.volume.create(directory, name.as_bytes(), &new(Kind::Regular)).unwrap();
        self.volume.write(file, 0, bytes).unwrap();
        file
    }

    fn directory(&self, name: &str) -> u32 {
        self.volume.create(ROOT, name.as_bytes(), &new(Kind::Directory)).unwrap()
    }
}

fn contents(random: &mut Random, most: u64) -> Vec<u8> {
    let length = random.below(most) as usize;
    let first = random.next() as u8;
    (0..length).map(|at| first.wrapping_add((at / 3) as u8)).collect()
}

/// Files made and each made stable.
fn creates(on: &Recorded) {
    let mut random = Random(1);
    for number in 0..25 {
        let bytes = contents(&mut random, 9000);
        let name = format!("f{number}");
        let file = on.file(ROOT, &name, &bytes);
        if number % 3 > 0 {
            on.volume.fsync(file).unwrap();
            on.promise(&name, Promise::Whole(bytes));
        }
    }
}

/// Saves as editors do: a new file, made stable, takes the old one's name.
fn renames_over(on: &Recorded) {
    let mut random = Random(2);
    let mut old = contents(&mut random, 5000);
    let file = on.file(ROOT, "text", &old);
    on.volume.fsync(file).unwrap();
    on.promise("text", Promise::Whole(old.clone()));
    for _ in 0..20 {
        let bytes = contents(&mut random, 9000);
        let file = on.file(ROOT, "text.new", &bytes);
        on.volume.fsync(file).unwrap();
        on.promise("text", Promise::Either(old, bytes.clone()));
        on.volume.rename(ROOT, b"text.new", ROOT, b"text").unwrap();
        old = bytes;
        if random.below(2) == 0 {
            on.volume.sync().unwrap();
            on.promise("text", Promise::Whole(old.clone()));
        }
    }
}

/// A log that grows.
fn appends(on: &Recorded) {
    let mut random = Random(3);
    let file = on.file(ROOT, "log", b"");
    let other = on.file(ROOT, "other", b"");
    let mut log = Vec::new();
    for _ in 0..60 {
        let line = contents(&mut random, 700);
        on.volume.write(file, log.len() as u64, &line).unwrap();
        log.extend_from_slice(&line);
        on.volume.write(other, log.len() as u64 * 3, &line).unwrap();
        if random.below(3) == 0 {
            on.volume.fsync(file).unwrap();
            on.promise("log", Promise::Begins(log.clone()));
        }
    }
}

/// Files cut and grown, with blocks that change their owners all the time.
fn truncates(on: &Recorded) {
    let mut random = Random(4);
    let names = ["a", "b", "c"];
    let mut files: Vec<(u32, Vec<u8>)> =
        names.iter().map(|name| (on.file(ROOT, name, b""), Vec::new())).collect();
    for _ in 0..60 {
        let at = random.below(3) as usize;
        let (file, bytes) = &mut files[at];
        on.changing(names[at]);
        match random.below(3) {
            0 => {
                let length = random.below(60_000);
                on.volume.truncate(*file, length).unwrap();
                bytes.resize(length as usize, 0);
            }
            1 => {
                let new = contents(&mut random, 30_000);
                let offset = random.below(20_000) as usize;
                on.volume.write(*file, offset as u64, &new).unwrap();
                if !new.is_empty() {
                    bytes.resize(bytes.len().max(offset + new.len()), 0);
                    bytes[offset..offset + new.len()].copy_from_slice(&new);
                }
            }
            _ => {
                on.volume.fsync(*file).unwrap();
                on.promise(names[at], Promise::Whole(bytes.clone()));
            }
        }
    }
}

/// Names, attributes, directories that move.
fn names(on: &Recorded) {
    let mut random = Random(5);
    let one = on.directory("one");
    let two = on.directory("two");
    for number in 0..30 {
        let name = format!("n{number}");
        let bytes = contents(&mut random, 300);
        let file = on.file(one, &name, &bytes);
        on.volume.link(file, two, name.as_bytes()).unwrap();
        on.volume
            .set_xattr(file, b"user.a", Some(&vec![7; 10 + 40 * number as usize % 700]))
            .unwrap();
        if number % 4 == 1 {
            let sub = format!("s{number}");
            on.volume.create(one, sub.as_bytes(), &new(Kind::Directory)).unwrap();
            on.volume.rename(one, sub.as_bytes(), two, sub.as_bytes()).unwrap();
        }
        if number % 3 == 0 {
            on.volume.unlink(one, name.as_bytes()).unwrap();
            on.volume.sync().unwrap();
            on.promise(&format!("one/{name}"), Promise::Gone);
            on.promise(&format!("two/{name}"), Promise::Whole(bytes));
        }
        if number % 7 == 6 {
            let name = format!("n{}", number - 1);
            on.changing(&format!("two/{name}"));
            on.volume.unlink(two, name.as_bytes()).unwrap();
        }
    }
}

/// A directory whose index grows.
fn splits(on: &Recorded) {
    let directory = on.directory("many");
    let file = on.file(directory, "first", b"x");
    for number in 0..400 {
        let name = format!("a rather long name, so that blocks are full soon, {number}");
        on.volume.link(file, directory, name.as_bytes()).unwrap();
        if number % 25 == 24 {
            on.volume.sync().unwrap();
            on.promise(&format!("many/{name}"), Promise::Whole(b"x".to_vec()));
        }
        if number % 5 == 4 {
            let name = format!("a rather long name, so that blocks are full soon, {}", number - 3);
            on.volume.unlink(directory, name.as_bytes()).unwrap();
        }
    }
}

/// Blocks set aside, written in pieces, punched.
fn allocations(on: &Recorded) {
    let mut random = Random(7);
    let file = on.file(ROOT, "set", b"");
    let mut bytes = vec![0; 200_000];
    on.volume.allocate(file, 0..200_000, Grow::Size).unwrap();
    on.volume.fsync(file).unwrap();
    on.promise("set", Promise::Whole(bytes.clone()));
    for _ in 0..40 {
        on.changing("set");
        let from = random.below(150_000) as usize;
        let length = 1 + random.below(20_000) as usize;
        if random.below(2) == 0 {
            on.volume.punch(file, from as u64..(from + length) as u64).unwrap();
            bytes[from..from + length].fill(0);
        } else {
            let fill = random.next() as u8;
            on.volume.write(file, from as u64, &vec![fill; length]).unwrap();
            bytes[from..from + length].fill(fill);
        }
        if random.below(2) == 0 {
            on.volume.fsync(file).unwrap();
            on.promise("set", Promise::Whole(bytes.clone()));
        }
    }
}

/// Four threads, each with its directory and its files.
fn threads(on: &Recorded) {
    thread::scope(|scope| {
        for number in 0..4_u64 {
            scope.spawn(move || {
                let mut random = Random(100 + number);
                let name = format!("t{number}");
                let own = on.directory(&name);
                for step in 0..12 {
                    let bytes = contents(&mut random, 6000);
                    let file = on.file(own, &format!("f{step}"), &bytes);
                    if random.below(2) == 0 {
                        on.volume.fsync(file).unwrap();
                        on.promise(&format!("{name}/f{step}"), Promise::Whole(bytes));
                    } else if random.below(3) == 0 {
                        on.volume.unlink(own, format!("f{step}").as_bytes()).unwrap();
                    }
                }
            });
        }
    });
}

/// Three threads, each as a database writes its log: pages at the end and over old ones, each made stable as data alone.
fn overwrites(on: &Recorded) {
    thread::scope(|scope| {
        for number in 0..3_u64 {
            scope.spawn(move || {
                let mut random = Random(200 + number);
                let name = format!("w{number}");
                let file = on.file(ROOT, &name, b"");
                let mut bytes = Vec::new();
                for step in 0..25_u8 {
                    let at = random.below(bytes.len() as u64 / 1024 + 2) as usize * 1024;
                    on.changing(&name);
                    on.volume.write(file, at as u64, &[step; 1024]).unwrap();
                    bytes.resize(bytes.len().max(at + 1024), 0);
                    bytes[at..at + 1024].fill(step);
                    if random.below(2) == 0 {
                        on.volume.fdatasync(file).unwrap();
                        on.promise(&name, Promise::Whole(bytes.clone()));
                    }
                }
            });
        }
    });
}

/// Until nothing fits, and again.
fn fills(on: &Recorded) {
    for round in 0..3 {
        let name = format!("big{round}");
        let file = on.file(ROOT, &name, b"");
        let mut at = 0;
        let full = loop {
            match on.volume.write(file, at, &vec![round; 60_000]) {
                Ok(()) => at += 60_000,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::NoSpace), "{full}");
        on.volume.fsync(file).unwrap();
        on.promise(&name, Promise::Begins(vec![round; at as usize]));
        on.changing(&name);
        on.volume.unlink(ROOT, name.as_bytes()).unwrap();
    }
}

/// Files and directories without names that are in use, and large files that are freed in many steps. A check of an image that
/// was cut while a removed directory was in use called it broken.
fn orphans(on: &Recorded) {
    for round in 0..8_u8 {
        let holed = on.file(ROOT, "holed", b"");
        for block in 0..60 {
            on.volume.write(holed, block * 3000, &[round; 100]).unwrap();
        }
        let held = on.file(ROOT, "held", &[round; 5000]);
        on.volume.hold(held).unwrap();
        on.volume.unlink(ROOT, b"held").unwrap();
        on.volume.sync().unwrap();
        on.volume.write(held, 5000, &[round; 3000]).unwrap();
        on.volume.unlink(ROOT, b"holed").unwrap();
        let left = on.directory("left");
        on.volume.hold(left).unwrap();
        on.volume.rmdir(ROOT, b"left").unwrap();
        on.volume.sync().unwrap();
        if round % 2 == 0 {
            on.volume.forget(held).unwrap();
            on.volume.forget(left).unwrap();
        }
    }
}

/// Data that waits in pages and is written back in pieces, in blocks that removed files had: a file is too short or whole, and
/// never shows what another one left. New content is written back before it takes the old one's name.
fn delayed(on: &Recorded) {
    let mut random = Random(12);
    let changed = Timestamp { seconds: 1, nanoseconds: 0 };
    let back = |file: u32, bytes: &[u8], range: Range<usize>| {
        let part = &bytes[range.clone()];
        let at = range.start as u64;
        let written = on.volume.write_back(file, at, part, changed, Privileges::Stay).unwrap();
        assert_eq!(written, part.len());
    };
    let mut text = vec![1; 100];
    let first = on.file(ROOT, "text", &text);
    on.volume.fsync(first).unwrap();
    on.promise("text", Promise::Whole(text.clone()));
    for round in 0..14_u8 {
        let name = format!("d{round}");
        let bytes = vec![round + 1; 4096 * (1 + random.below(12) as usize)];
        let file = on.volume.create(ROOT, name.as_bytes(), &new(Kind::Regular)).unwrap();
        on.volume.sync().unwrap();
        on.volume.reserve(file, 0..bytes.len() as u64).unwrap();
        on.promise(&name, Promise::Part(bytes.clone()));
        let mut at = 0;
        while at < bytes.len() {
            let end = bytes.len().min(at + 4096 * (1 + random.below(4) as usize));
            back(file, &bytes, at..end);
            at = end;
            if random.below(3) == 0 {
                on.volume.commit_now_and_then().unwrap();
            }
        }
        if random.below(2) == 0 {
            on.volume.fdatasync(file).unwrap();
            on.promise(&name, Promise::Whole(bytes));
        }
        if round % 3 == 2 {
            let gone = format!("d{}", round - 1);
            on.changing(&gone);
            on.volume.unlink(ROOT, gone.as_bytes()).unwrap();
        }
        let new_text = vec![100 + round; 100 + 700 * usize::from(round)];
        let file = on.volume.create(ROOT, b"text.new", &new(Kind::Regular)).unwrap();
        on.volume.reserve(file, 0..new_text.len() as u64).unwrap();
        back(file, &new_text, 0..new_text.len());
        on.promise("text", Promise::Either(text, new_text.clone()));
        on.volume.rename(ROOT, b"text.new", ROOT, b"text").unwrap();
        text = new_text;
        on.volume.sync().unwrap();
        on.promise("text", Promise::Whole(text.clone()));
    }
}

/// A database over its old pages, without a log of its own: each write is there or not. Blocks that were overwritten are freed
/// meanwhile, and get data of other files in place.
fn pages(on: &Recorded) {
    let mut random = Random(13);
    let mut bytes = vec![1; 40 << 10];
    let file = on.file(ROOT, "db", &bytes);
    on.volume.sync().unwrap();
    for round in 2..26_u8 {
        let scratch = on.file(ROOT, "scratch", &[round; 9000]);
        on.volume.write(scratch, 500, &[round; 8000]).unwrap();
        on.volume.fsync(scratch).unwrap();
        let old = bytes.clone();
        let from = random.below(bytes.len() as u64 - 1) as usize;
        let to = bytes.len().min(from + 1 + random.below(20 << 10) as usize);
        bytes[from..to].fill(round);
        on.promise("db", Promise::Either(old, bytes.clone()));
        on.volume.write(file, from as u64, &bytes[from..to]).unwrap();
        let mut read = vec![0; bytes.len()];
        assert_eq!(on.volume.read(file, 0, &mut read).unwrap(), bytes.len());
        assert!(read == bytes, "a reader sees what the place has not yet");
        on.volume.fdatasync(file).unwrap();
        on.promise("db", Promise::Whole(bytes.clone()));
        on.volume.unlink(ROOT, b"scratch").unwrap();
        on.volume.sync().unwrap();
        let name = format!("other{}", round % 4);
        on.changing(&name);
        if round > 5 {
            on.volume.unlink(ROOT, name.as_bytes()).unwrap();
        }
        let other = on.file(ROOT, &name, &[100 + round; 9000]);
        on.volume.fsync(other).unwrap();
        on.promise(&name, Promise::Whole(vec![100 + round; 9000]));
    }
}

#[derive(Default)]
struct Faults(Vec<String>);

impl Observer for Faults {
    fn fault(&mut self, fault: &Fault) {
        self.0.push(fault.to_string());
    }
}

/// The faults that a check finds in an image.
fn checked(bytes: Vec<u8>) -> Result<(), String> {
    let image = Image::open(Arc::new(MemoryDevice::new(bytes)));
    let image = image.map_err(|error| format!("reading: {error}"))?;
    let mut faults = Faults::default();
    check(&image, &mut faults).map_err(|error| error.to_string())?;
    if faults.0.is_empty() { Ok(()) } else { Err(faults.0.join("; ")) }
}

/// The faults of the state after a crash, if it has any.
fn wrong(state: Vec<u8>, moment: usize, facts: &[Fact]) -> Result<Vec<u8>, String> {
    checked(state.clone()).map_err(|what| format!("before recovery: {what}"))?;
    let device = Arc::new(WritableMemory::new(state));
    let volume = Volume::open(device.clone()).map_err(|error| format!("opening: {error}"))?;
    volume.close().map_err(|error| format!("closing: {error}"))?;
    let bytes = device.bytes();
    let image = Image::open(Arc::new(MemoryDevice::new(bytes.clone())));
    let image = image.map_err(|error| format!("reading: {error}"))?;
    checked(bytes.clone()).map_err(|what| format!("after recovery: {what}"))?;
    for fact in facts.iter().filter(|fact| fact.from <= moment && moment <= fact.until) {
        let found = find(&image, &fact.path);
        let holds = match (&found, &fact.promise) {
            (None, Promise::Gone) => true,
            (Some(found), Promise::Whole(bytes)) => found == bytes,
            (Some(found), Promise::Begins(bytes)) => found.starts_with(bytes),
            (Some(found), Promise::Either(one, other)) => found == one || found == other,
            (Some(found), Promise::Part(bytes)) => bytes.starts_with(found),
            _ => false,
        };
        if !holds {
            let length = found.map(|found| found.len());
            return Err(format!("{} (from {}) was lost: {length:?}", fact.path, fact.from));
        }
    }
    Ok(bytes)
}

fn find(image: &Image, path: &str) -> Option<Vec<u8>> {
    let mut inode = image.inode(ROOT).unwrap();
    for name in path.split('/') {
        inode = image.inode(image.lookup(&inode, name.as_bytes()).unwrap()?).unwrap();
    }
    Some(whole(image, &inode))
}

/// Looks at many cuts of a workload. On a medium that drops flushes at least `lost_least` of them are wrong: what shows that
/// this test can fail.
fn cut_everywhere(name: &str, workload: fn(&Recorded), lost_least: usize, data: DataMode) {
    if !tools() {
        return;
    }
    let wanted = std::env::var("UVFS_CRASH_STATES").ok().and_then(|count| count.parse().ok());
    let wanted: usize = wanted.unwrap_or(24);
    let workshop = Workshop::new();
    let options = ["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "256", "-g", "2048"];
    let image = workshop.image(&options, "4M", None);
    // A flush takes long: other threads write meanwhile, and ask for flushes of their own.
    let device = Arc::new(Recorder::new(image).while_flushing(|| {
        for _ in 0..20 {
            thread::yield_now();
        }
    }));
    let volume = Volume::with_data(device.clone(), 32 << 20, data).unwrap();
    let recorded = Recorded { volume, device, facts: Mutex::new(&FACTS, Vec::new()) };
    workload(&recorded);
    let Recorded { volume, device, facts } = recorded;
    drop(volume);
    let facts = facts.into_inner();
    let sectors: Record = device.record();
    let record = sectors.clone().with_whole(SUPERBLOCK);
    let flushes = record.flushes();
    let mut random = Random(name.len() as u64);
    let (mut lost, mut refused) = (0, 0);
    for state in 0..wanted {
        // Half of them right at a flush, some right where a promise begins, the others anywhere.
        let moment = if state % 2 == 0 {
            flushes[random.below(flushes.len() as u64) as usize] - usize::from(state % 4 == 0)
        } else if state % 4 == 3 && !facts.is_empty() {
            facts[random.below(facts.len() as u64) as usize].from
        } else {
            random.below(record.moments() as u64 + 1) as usize
        };
        let seed = random.next();
        let about = format!("{name}: moment {moment}, seed {seed}");
        let torn = record.torn(moment, seed, Flushes::Kept);
        let after =
            wrong(torn.clone(), moment, &facts).unwrap_or_else(|what| panic!("{about}: {what}"));
        let torn_too = sectors.torn(moment, seed, Flushes::Kept);
        match wrong(torn_too, moment, &facts) {
            Ok(_) => {}
            // No reader can use it. The kernel's superblock has the same checksum in its second sector.
            Err(what) if what.contains(TORN_SUPERBLOCK) => refused += 1,
            Err(what) => panic!("{about}, with the superblock torn: {what}"),
        }
        if state % 8 == 0 {
            let (status, printed, _) = workshop.fsck(&after, &["-fn"]);
            assert_eq!(status, 0, "{about}: {printed}");
            // By e2fsck alone; it completes the list of orphans.
            let (status, printed, theirs) = workshop.fsck(&torn, &["-fp"]);
            assert!(status <= 1, "{about}: {printed}");
            let (status, printed, _) = workshop.fsck(&theirs, &["-fn"]);
            assert_eq!(status, 0, "{about}: {printed}");
            let _ = open(theirs);
        }
        if state % 4 == 1 {
            let lying = record.torn(moment, seed, Flushes::Dropped);
            lost += usize::from(wrong(lying, moment, &facts).is_err());
        }
    }
    eprintln!(
        "{name}: {wanted} states, {refused} with a torn superblock, {lost} lost without flushes"
    );
    assert!(lost >= lost_least, "{name}: a medium that drops flushes loses something: {lost}");
}

/// `fdatasync` waited for the commit of another thread, whose last flush had begun before the page was written, and
/// returned without a flush that covered the page. A log of PostgreSQL or SQLite is written that way.
#[test]
fn fdatasync_waits_for_a_flush_that_began_after_its_write() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "4M", None);
    // The flush that is to be held up counts down to it; its beginning is told, and its end waits to be allowed.
    let (begun, has_begun) = mpsc::channel();
    let (allow, allowed) = mpsc::channel::<()>();
    let held_up = Arc::new(AtomicUsize::new(usize::MAX));
    let (countdown, allowed) = (held_up.clone(), Mutex::new(&FACTS, allowed));
    let device = Arc::new(Recorder::new(image).while_flushing(move || {
        if countdown.fetch_sub(1, SeqCst) == 1 {
            begun.send(()).unwrap();
            allowed.lock().recv().unwrap();
        }
    }));
    let volume = Volume::open(device.clone()).unwrap();
    let file = volume.create(ROOT, b"log", &new(Kind::Regular)).unwrap();
    volume.write(file, 0, &[1; 1024]).unwrap();
    held_up.store(2, SeqCst);
    thread::scope(|scope| {
        // The second flush of a commit is the one behind its record.
        let commit = scope.spawn(|| volume.sync().unwrap());
        has_begun.recv().unwrap();
        volume.write(file, 0, &[2; 1024]).unwrap();
        let (tell, received) = mpsc::channel();
        let sync = scope.spawn(|| {
            tell.send(std::fs::read_link("/proc/thread-self").unwrap()).unwrap();
            drop(tell);
            volume.fdatasync(file).unwrap();
        });
        let thread = std::path::Path::new("/proc").join(received.recv().unwrap()).join("stat");
        let sleeps = || {
            let stat = std::fs::read_to_string(&thread).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" S"))
        };
        while !sleeps() && !sync.is_finished() {
            thread::yield_now();
        }
        allow.send(()).unwrap();
        commit.join().unwrap();
        sync.join().unwrap();
    });
    let moment = device.moment();
    drop(volume);
    let promise = Promise::Whole(vec![2; 1024]);
    let fact = Fact { from: moment, until: usize::MAX, path: "log".into(), promise };
    let record = device.record();
    for seed in 0..20 {
        let torn = record.torn(moment, seed, Flushes::Kept);
        wrong(torn, moment, std::slice::from_ref(&fact)).unwrap_or_else(|what| panic!("{what}"));
    }
}

/// Each transaction changed the superblock, so each checkpoint wrote it in place, and a power cut between its two sectors left an
/// image that nothing opens. What names did is in the groups and inodes; only the head of the list of orphans is in it.
#[test]
fn transactions_write_no_superblock_without_a_cause() {
    if !tools() {
        return;
    }
    let workshop = Workshop::new();
    let image = workshop.image(&["-t", "ext4", "-b", "1024", "-J", "size=1"], "8M", None);
    let device = Arc::new(Recorder::new(image));
    let volume = Volume::open(device.clone()).unwrap();
    let written = || device.record().writes_to(SUPERBLOCK);
    let (opened, checkpoints) = (written(), volume.counts().checkpoints);
    let mut names = 0;
    while volume.counts().checkpoints < checkpoints + 3 {
        for name in names..names + 20_u32 {
            let name = format!("f{name}");
            let file = volume.create(ROOT, name.as_bytes(), &new(Kind::Regular)).unwrap();
            volume.write(file, 0, b"some bytes").unwrap();
        }
        names += 20;
        volume.commit_now_and_then().unwrap();
    }
    assert_eq!(written(), opened, "by three checkpoints");
    let held = volume.create_held(ROOT, b"held", &new(Kind::Regular)).unwrap();
    volume.unlink(ROOT, b"held").unwrap();
    volume.sync().unwrap();
    let image = open(device.record().cut(device.moment()));
    assert_eq!(image.superblock().last_orphan(), held.0.number, "what is needed is in the journal");
    volume.forget(held.0.number).unwrap();
    volume.close().unwrap();
    let (status, printed, _) = workshop.fsck(&device.record().cut(device.moment()), &["-fn"]);
    assert_eq!(status, 0, "{printed}");
}

macro_rules! workloads {
    ($module:ident, $data:ident: $($name:ident: $lost_least:literal,)*) => {
        mod $module {
            $(mod $name {
                use super::super::*;

                #[test]
                fn survives_any_cut() {
                    let data = DataMode::$data;
                    cut_everywhere(stringify!($name), super::super::$name, $lost_least, data);
                }
            })*
        }
    };
}

workloads! {
    journaled, Journal:
    pages: 0,
    appends: 0,
    truncates: 0,
    allocations: 0,
    threads: 0,
    overwrites: 0,
    fills: 0,
    orphans: 0,
    delayed: 0,
}

workloads! {
    ordered, Ordered:
    creates: 1,
    renames_over: 1,
    appends: 0,
    truncates: 0,
    names: 1,
    splits: 1,
    allocations: 0,
    threads: 0,
    overwrites: 0,
    fills: 0,
    orphans: 0,
    delayed: 1,
}
