//! Floor: threads that clean, beside all others: the promise. The store is changed past the caches, so that only a
//! cleaning reveals the change. Every change has a number. A cleaning of a directory returns; every later request about
//! objects below it sees at least the store's state at the begin of the cleaning. This covers names, missing names,
//! attributes and data, from the top, through deep handles, and by id, while directories and files move in and out,
//! through the caches and past them.
//!
//! A seed (`UVFS_SEED`) replays the choices, not the schedule. `UVFS_STRESS_SECONDS` runs longer.

use crate::shared::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Gate, HostileBackend, Moment, On, Plan};
use uvfs_tests::paged::Kind;
use uvfs_tests::{Hostile, Numbers, Watchdog, root, seed, stress, vfs_over, with_room};
use uvfs_vfs::{
    Authority, Backend, Clean, Directory, Error, File, FileRef, InodeId, Lookup, NewKind, NewNode,
    OpenOptions, Opens, PagePolicy, RenameMode, Result, SetAttributes, Vfs, VfsConfig,
};

const TOP: u64 = 0;
const M: u64 = 3;
/// Directories of things: the root, two directories in it, and one that moves between these two.
const PLACES: [&str; 3] = ["", "l", "r"];
/// Things that move: the third place, two directories, and two files.
const THINGS: [&str; 5] = ["m", "d0", "d1", "q0", "q1"];
/// The directories in d0 and d1 whose entries have versions.
const SPOTS: [&str; 2] = ["", "/s/e"];
const PAGES: u64 = 3;
/// Names that stand for versions: so many are there at a time.
const KEPT: u64 = 8;

/// Versions of one directory of a thing, or of a file (then all three ids are its own).
struct Versions {
    directory: InodeId,
    attributed: InodeId,
    paged: InodeId,
    /// The store's state.
    now: AtomicU64,
    /// The least state that every request sees, of names and attributes, and of data.
    names: AtomicU64,
    pages: AtomicU64,
    /// The last cleaned place that set it; 4 for the thing itself.
    cleaned: AtomicU64,
}

struct Promise {
    store: Hostile,
    vfs: Arc<Vfs>,
    top: Directory,
    /// For each thing, how often it began and ended to move, times 4, and its place.
    places: Vec<AtomicU64>,
    versions: Vec<Vec<Versions>>,
    ids: [InodeId; 4],
    stop: AtomicBool,
    seen: AtomicU64,
    /// Attributes asked for through an open file that were from before a cleaning.
    behind: AtomicU64,
}

const DIRECTORIES: std::ops::Range<usize> = 1..3;

impl Promise {
    fn new(store: &Hostile, vfs: &Arc<Vfs>) -> Self {
        let versions = |thing: usize| {
            let file = thing >= DIRECTORIES.end;
            let spots = if file { &SPOTS[..1] } else { &SPOTS[..] };
            let of = |spot: &&str| {
                let directory = inner_id(store, &format!("l/{}{spot}", THINGS[thing]));
                let inside = |part| match file {
                    true => directory,
                    false => inner_id(store, &format!("l/{}{spot}/{part}", THINGS[thing])),
                };
                let (attributed, paged) = (inside("a"), inside("p"));
                let [now, names, pages, cleaned] = Default::default();
                Versions { directory, attributed, paged, now, names, pages, cleaned }
            };
            spots.iter().map(of).collect()
        };
        Self {
            store: store.clone(),
            vfs: vfs.clone(),
            top: root(vfs),
            places: THINGS.iter().map(|_| AtomicU64::new(1)).collect(),
            versions: (0..THINGS.len())
                .map(|at| if at == 0 { Vec::new() } else { versions(at) })
                .collect(),
            ids: ["", "l", "r", "l/m"].map(|path| inner_id(store, path)),
            stop: AtomicBool::new(false),
            seen: AtomicU64::new(0),
            behind: AtomicU64::new(0),
        }
    }

    fn plant(store: &Hostile) {
        let honest = HostileBackend::over(store.inner().clone());
        let top = root(&vfs_over(&honest, VfsConfig::default()));
        for path in ["l", "r", "l/m", "fill"] {
            top.create_directory(path, 0o755).unwrap();
        }
        let page = vec![0; (PAGES * 4096) as usize];
        for thing in &THINGS[1..3] {
            for path in ["", "/s", "/s/e"] {
                top.create_directory(format!("l/{thing}{path}"), 0o755).unwrap();
            }
            for spot in SPOTS {
                for file in ["v", "a", "n0"] {
                    top.write_file(format!("l/{thing}{spot}/{file}"), "").unwrap();
                }
                top.write_file(format!("l/{thing}{spot}/p"), &page).unwrap();
            }
        }
        for thing in &THINGS[3..] {
            top.write_file(format!("l/{thing}"), &page).unwrap();
        }
        (0..FILLERS).for_each(|at| top.write_file(format!("fill/{at}"), "").unwrap());
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(SeqCst)
    }

    /// The announced place of a thing, unless it is moving; and the guaranteed states.
    fn path(&self, thing: usize) -> Option<(String, [u64; 2])> {
        let word = self.places[thing].load(SeqCst);
        let place = match word % 4 {
            _ if word / 4 % 2 == 1 => return None,
            M => {
                let (above, [below, _]) = self.path(0)?;
                return Some((format!("{above}/{}", THINGS[thing]), [word, below]));
            }
            place => place,
        };
        Some((format!("{}/{}", PLACES[place as usize], THINGS[thing]), [word, 0]))
    }

    fn still(&self, thing: usize, [word, of_m]: [u64; 2]) -> bool {
        let m = self.places[0].load(SeqCst);
        self.places[thing].load(SeqCst) == word && (word % 4 != M || m == of_m)
    }

    /// If a thing is certainly below a place: the guaranteed states.
    fn below(&self, thing: usize, place: u64) -> Option<[u64; 2]> {
        if place == TOP {
            return Some([0, 0]);
        }
        let word = self.places[thing].load(SeqCst);
        if word / 4 % 2 == 1 {
            return None;
        }
        if word % 4 == place {
            return Some([word, 0]);
        }
        if thing == 0 || word % 4 != M {
            return None;
        }
        let [of_m, _] = self.below(0, place)?;
        Some([word, of_m])
    }

    /// Changes all that has versions in one directory, or one file, behind the caches' back. Only the
    /// thing's keeper does.
    fn bump(&self, versions: &Versions) {
        let (inner, next) = (self.store.inner(), versions.now.load(SeqCst) + 1);
        let by = caller();
        for page in 0..PAGES {
            let file = FileRef::unopened(versions.paged);
            inner.data().write(&by, file, page * 4096, &next.to_le_bytes()).unwrap();
        }
        let set = SetAttributes { uid: Some(next as u32), ..Default::default() };
        inner.inodes().set_attributes(&by, FileRef::unopened(versions.attributed), &set).unwrap();
        if versions.directory != versions.paged {
            let directory = versions.directory;
            let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
            let numbered = format!("n{next}");
            for (made, kept) in [("new", "v"), (numbered.as_str(), numbered.as_str())] {
                let entry =
                    inner.creation().unwrap().create(&by, directory, name(made), &new).unwrap();
                inner.inodes().set_attributes(&by, FileRef::unopened(entry.inode), &set).unwrap();
                inner.inodes().forget(entry.inode, 1);
                if made != kept {
                    let (from, to) = ((directory, name(made)), (directory, name(kept)));
                    inner.names().rename(&by, from, to, RenameMode::Replace).unwrap();
                }
            }
            if next >= KEPT {
                inner.names().unlink(&by, directory, name(&format!("n{}", next - KEPT))).unwrap();
            }
        }
        versions.now.store(next, SeqCst);
    }

    /// Cleans `place`, or a directory of a thing; from then on the store's state is visible.
    fn clean(&self, place: Place, clean: Clean, numbers: &mut Numbers) {
        let (path, rests) = match place {
            Place::Of(M) => match self.path(0) {
                Some((path, words)) => (path, Some((0, words))),
                None => return,
            },
            Place::Of(place) => (PLACES[place as usize].to_owned(), None),
            Place::In(thing, inside) => match self.path(thing) {
                Some((path, words)) => (path + inside, Some((thing, words))),
                None => return,
            },
        };
        let path = if path.is_empty() { ".".to_owned() } else { path };
        let directory = match self.top.open_directory(&path) {
            Ok(directory) => directory,
            // It has moved meanwhile.
            Err(_) if rests.is_some_and(|(thing, words)| !self.still(thing, words)) => return,
            Err(error) => panic!("{path}: {error}"),
        };
        let sure = |thing: usize, spot: usize| match place {
            Place::Of(place) => self.below(thing, place),
            Place::In(other, inside) => {
                (other == thing && SPOTS[spot].starts_with(inside)).then_some([0, 0])
            }
        };
        let all = || {
            let spots = |thing: usize| (0..self.versions[thing].len()).map(move |at| (thing, at));
            (1..THINGS.len()).flat_map(spots)
        };
        let before: Vec<_> = all()
            .map(|(thing, spot)| (sure(thing, spot), self.versions[thing][spot].now.load(SeqCst)))
            .collect();
        let cleaning = self.vfs.begin_clean(directory.node(), clean).unwrap();
        for ((thing, spot), (words, version)) in all().zip(before) {
            if words.is_some() && sure(thing, spot) == words {
                let versions = &self.versions[thing][spot];
                if clean.has_names() {
                    versions.names.fetch_max(version, SeqCst);
                }
                if clean.has_pages() {
                    let place = if let Place::Of(place) = place { place } else { 4 };
                    versions.cleaned.store(place, SeqCst);
                    versions.pages.fetch_max(version, SeqCst);
                }
            }
        }
        drop(directory);
        reap(cleaning, numbers);
    }

    /// Moves a thing somewhere else: through the caches, or behind their back, with news of it.
    fn move_away(&self, thing: usize, foreign: bool, numbers: &mut Numbers) {
        let word = self.places[thing].load(SeqCst);
        let old = word % 4;
        let others = if thing == 0 { 2 } else { 3 };
        let new = (old - 1 + 1 + numbers.below(others - 1)) % others + 1;
        self.places[thing].store((word / 4 + 1) * 4 + old, SeqCst);
        let path = |place: u64| match place {
            // Another thread may be moving it.
            M => loop {
                if let Some((path, _)) = self.path(0) {
                    break path;
                }
                std::thread::yield_now();
            },
            place => PLACES[place as usize].to_owned(),
        };
        let full = |place: u64| format!("{}/{}", path(place), THINGS[thing]);
        if foreign {
            let id = |place: u64| self.ids[place as usize];
            let moved = name(THINGS[thing]);
            let (from, to) = ((id(old), moved), (id(new), moved));
            let inner = self.store.inner();
            inner.names().rename(&caller(), from, to, RenameMode::NoReplace).unwrap();
            let news = self.store.sink().expect("the file system watches");
            news.entry_changed(id(old), moved);
            news.entry_changed(id(new), moved);
            for _ in 0..numbers.below(60) {
                self.top.stat(format!("fill/{}", numbers.below(FILLERS))).unwrap();
            }
        }
        loop {
            let done = match foreign {
                // A move past the caches makes the new place known by a lookup.
                true => self.top.stat(full(new)).map(|_| ()),
                false => self.top.rename(full(old), full(new), RenameMode::NoReplace),
            };
            match done {
                Ok(()) => break,
                Err(Error::NotFound | Error::Stale) if old == M || new == M => {}
                Err(error) => panic!("{} from {old} to {new}: {error}", THINGS[thing]),
            }
        }
        self.places[thing].store((word / 4 + 2) * 4 + new, SeqCst);
    }

    /// Owns some things: changes and moves them, and cleans at random.
    fn keeper(&self, me: u64, mut numbers: Numbers) {
        let mine: &[usize] = if me == 0 { &[0, 1, 3] } else { &[2, 4] };
        while self.goes_on() {
            let thing = *numbers.of(mine);
            if let Some(versions) = self.versions[thing].get(numbers.below(2) as usize) {
                self.bump(versions);
            }
            let clean = some_clean(&mut numbers);
            match numbers.below(10) {
                // A thing just cleaned moves at once.
                0 | 1 => {
                    let place = self.places[thing].load(SeqCst) % 4;
                    let place = if numbers.below(2) == 0 { TOP } else { place };
                    self.clean(Place::Of(place), clean, &mut numbers);
                    let foreign = numbers.below(3) == 0;
                    self.move_away(thing, foreign, &mut numbers);
                }
                2 => self.move_away(thing, false, &mut numbers),
                3 => self.move_away(thing, true, &mut numbers),
                4 | 5 => {
                    let thing = 1 + numbers.below(2) as usize;
                    let inside = *numbers.of(&["", "/s", "/s/e"]);
                    self.clean(Place::In(thing, inside), clean, &mut numbers);
                }
                _ => self.clean(Place::Of(numbers.below(4)), clean, &mut numbers),
            }
        }
    }

    /// Cleans all the time, and does nothing else.
    fn cleaner(&self, _: u64, mut numbers: Numbers) {
        while self.goes_on() {
            let clean = some_clean(&mut numbers);
            let place = if numbers.below(2) == 0 { TOP } else { numbers.below(4) };
            self.clean(Place::Of(place), clean, &mut numbers);
            (0..numbers.below(20)).for_each(|_| std::thread::yield_now());
        }
    }

    /// Wants room for other names.
    fn filler(&self, _: u64, mut numbers: Numbers) {
        while self.goes_on() {
            for _ in 0..numbers.below(50) {
                self.top.stat(format!("fill/{}", numbers.below(FILLERS))).unwrap();
            }
            if numbers.below(200) == 0 {
                self.vfs.forget_unused();
            }
            std::thread::yield_now();
        }
    }

    fn reader(&self, _: u64, mut numbers: Numbers) {
        let mut deep: [[Option<Directory>; 2]; THINGS.len()] = Default::default();
        let mut files: [[Option<File>; 2]; THINGS.len()] = Default::default();
        while self.goes_on() {
            let thing = 1 + numbers.below(THINGS.len() as u64 - 1) as usize;
            let spot = numbers.below(self.versions[thing].len() as u64) as usize;
            if numbers.below(30) == 0 {
                deep[thing][spot] = None;
                files[thing][spot] = None;
            }
            let is_file = thing >= DIRECTORIES.end;
            let way = if is_file { 4 * numbers.below(2) } else { numbers.below(5) };
            // Somewhere to start from, and the way from there.
            let seen = match way {
                0 => self.walk_down(thing, spot, &mut numbers),
                1 | 2 => {
                    let handle = &mut deep[thing][spot];
                    if handle.is_none()
                        && let Some((path, _)) = self.path(thing)
                    {
                        *handle = self.top.open_directory(path + SPOTS[spot]).ok();
                    }
                    match handle {
                        Some(handle) => self.look(thing, spot, handle, "", &mut numbers),
                        None => Ok(()),
                    }
                }
                3 => {
                    self.by_id(thing, spot, &mut numbers);
                    Ok(())
                }
                _ => {
                    let file = &mut files[thing][spot];
                    if file.is_none()
                        && let Some((path, _)) = self.path(thing)
                    {
                        let inside = if is_file { "" } else { "/p" };
                        let path = path + SPOTS[spot] + inside;
                        *file = self.top.open(path, OpenOptions::read()).ok();
                    }
                    match file {
                        Some(file) => self.read(thing, spot, file, &mut numbers),
                        None => Ok(()),
                    }
                }
            };
            seen.unwrap_or_else(|error| panic!("{}, {spot}, by {way}: {error}", THINGS[thing]));
            self.seen.fetch_add(1, SeqCst);
        }
    }

    fn walk_down(&self, thing: usize, spot: usize, numbers: &mut Numbers) -> Result<()> {
        let Some((path, words)) = self.path(thing) else { return Ok(()) };
        let seen = match thing < DIRECTORIES.end {
            true => {
                let prefix = format!("{path}{}/", SPOTS[spot]);
                self.look(thing, spot, &self.top, &prefix, numbers)
            }
            false => {
                let floor = self.versions[thing][spot].names.load(SeqCst);
                let attributes = self.top.stat(&path);
                attributes.and_then(|seen| {
                    self.attributes_are(u64::from(seen.uid), floor, &path);
                    let file = self.top.open(&path, OpenOptions::read())?;
                    self.read(thing, spot, &file, numbers)
                })
            }
        };
        match seen {
            Err(_) if !self.still(thing, words) => Ok(()),
            seen => seen,
        }
    }

    /// Looks at something of a directory that has versions, by way of `from`.
    fn look(
        &self,
        thing: usize,
        spot: usize,
        from: &Directory,
        prefix: &str,
        numbers: &mut Numbers,
    ) -> Result<()> {
        let versions = &self.versions[thing][spot];
        let floor = versions.names.load(SeqCst);
        let path = |part: &str| format!("{prefix}{part}");
        match numbers.below(8) {
            0 | 1 => {
                let file = from.open(path("p"), OpenOptions::read())?;
                return self.read(thing, spot, &file, numbers);
            }
            2 | 3 => {
                let part = *numbers.of(&["v", "a"]);
                let found = from.stat(path(part));
                // A replaced object may be freed before its attributes are requested.
                if part == "v" && matches!(found, Err(Error::Stale)) {
                    return Ok(());
                }
                let seen = u64::from(found?.uid);
                match part {
                    "a" => self.attributes_are(seen, floor, prefix),
                    _ => assert!(seen >= floor, "{prefix}v: {seen} after {floor} was cleaned"),
                }
            }
            4 => {
                let listed = match prefix {
                    "" => from.list_all()?,
                    _ => from.open_directory(prefix)?.list_all()?,
                };
                let wanted = format!("n{floor}");
                let there = listed.iter().any(|entry| entry.name == wanted.as_bytes());
                return Self::there_or_over(versions, floor, there);
            }
            5 => {
                // To be known as missing, and wrongly so after a while.
                let _ = from.stat(path(&format!("n{}", floor + 1 + numbers.below(3))));
            }
            _ => match from.stat(path(&format!("n{floor}"))) {
                Ok(_) => {}
                Err(Error::NotFound) => return Self::there_or_over(versions, floor, false),
                Err(Error::Stale) => {}
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    /// Fails unless the name of version `floor` existed, or was removed by later ones.
    fn there_or_over(versions: &Versions, floor: u64, there: bool) -> Result<()> {
        let over = versions.now.load(SeqCst) + 1 >= floor + KEPT;
        if there || over { Ok(()) } else { Err(Error::NotFound) }
    }

    /// The announced place of a thing, its place in the caches, and the last cleaning.
    fn story(&self, thing: usize, spot: usize, file: &File) -> String {
        let place = self.places[thing].load(SeqCst);
        let places = ["l", "r"].map(|path| self.top.open_directory(path).unwrap());
        let below = places.map(|place| self.vfs.is_below(file.node(), place.node()));
        let cleaned = self.versions[thing][spot].cleaned.load(SeqCst);
        format!(
            "{}{}, move {}, in {}, by the caches {below:?}, {cleaned} was cleaned",
            THINGS[thing],
            SPOTS[spot],
            place / 4,
            place % 4
        )
    }

    /// Attributes of an unreplaced object, found by name.
    fn attributes_are(&self, seen: u64, floor: u64, how: &str) {
        if seen < floor {
            panic!("{how}: attributes {seen} after {floor} was cleaned");
        }
    }

    fn by_id(&self, thing: usize, spot: usize, numbers: &mut Numbers) {
        let versions = &self.versions[thing][spot];
        let Some(node) = self.vfs.cached(versions.directory) else { return };
        let floor = versions.names.load(SeqCst);
        let part = ["v", "a"][numbers.below(2) as usize];
        let found = match numbers.below(2) {
            0 => self.vfs.try_lookup(&node, name(part)),
            _ => self.vfs.lookup(&caller(), &node, name(part)).ok(),
        };
        match found {
            Some(Lookup::Found(found)) => {
                let seen = u64::from(found.attributes.uid);
                match part {
                    "a" => self.attributes_are(seen, floor, "by id"),
                    _ => assert!(seen >= floor, "by id: {seen} after {floor} was cleaned"),
                }
            }
            Some(Lookup::Missing(_)) => panic!("by id: {part:?} is always there"),
            None => {}
        }
    }

    fn read(&self, thing: usize, spot: usize, file: &File, numbers: &mut Numbers) -> Result<()> {
        let versions = &self.versions[thing][spot];
        if numbers.below(20) == 0 {
            let floor = versions.names.load(SeqCst);
            let seen = u64::from(file.stat()?.uid);
            if versions.attributed == versions.paged && seen < floor {
                self.behind.fetch_add(1, SeqCst);
            }
        }
        let floor = versions.pages.load(SeqCst);
        let mut word = [0; 8];
        let page = numbers.below(PAGES);
        let got = file.read_at(page * 4096, &mut word)?;
        let seen = u64::from_le_bytes(word);
        assert_eq!(got, 8, "the file is never cut");
        if seen < floor {
            panic!("page {page}: {seen}, not {floor}: {}", self.story(thing, spot, file));
        }
        Ok(())
    }

    /// Alone: after the last cleaning everything has the store's state.
    fn assert_current(&self) {
        drop(self.vfs.begin_clean(self.top.node(), Clean::Both).unwrap());
        for thing in 1..THINGS.len() {
            let (path, _) = self.path(thing).expect("nothing moves");
            for (versions, spot) in self.versions[thing].iter().zip(SPOTS) {
                let (now, path) = (versions.now.load(SeqCst), path.clone() + spot);
                let parts = if thing < DIRECTORIES.end { ["/v", "/a", "/p"] } else { [""; 3] };
                for part in &parts[..2] {
                    let seen = self.top.stat(path.clone() + part).unwrap().uid;
                    assert_eq!(u64::from(seen), now, "{path}{part}");
                }
                let content = self.top.read_file(path.clone() + parts[2]).unwrap();
                assert_eq!(content[4096..4104], now.to_le_bytes(), "{path}");
            }
        }
    }
}

const FILLERS: u64 = 300;
/// The target of a cleaning: a place, or a directory of a thing.
#[derive(Clone, Copy)]
enum Place {
    Of(u64),
    In(usize, &'static str),
}

fn promise(kind: Kind, config: VfsConfig, seed: u64, length: Duration) {
    let store = kind.store();
    Promise::plant(&store);
    let hour = Duration::from_secs(3600);
    let config = VfsConfig {
        watch: true,
        attr_timeout: hour,
        entry_timeout: hour,
        negative_timeout: hour,
        ..config
    };
    let (vfs, ledger) = kind.mount(&store, config);
    let scene = Promise::new(&store, &vfs);
    let acts: [Act<Promise>; 7] = [
        Promise::keeper,
        Promise::keeper,
        Promise::reader,
        Promise::reader,
        Promise::reader,
        Promise::cleaner,
        Promise::filler,
    ];
    play(&scene, &scene.stop, (seed, length), &acts, |round| {
        // The journal restarts, too.
        if round % 20 == 1 {
            store.follow(Plan::random(seed ^ round, 0.05, delays()));
        }
    });
    store.behave();
    scene.assert_current();
    let Promise { top, vfs: held, seen, behind, versions, .. } = scene;
    let changes: u64 = versions.iter().flatten().map(|one| one.now.load(SeqCst)).sum();
    let (seen, behind) = (seen.load(SeqCst), behind.load(SeqCst));
    println!("{kind:?}: {changes} changes, {seen} looks, {behind} old ones at what was open");
    drop((top, held));
    ledger.assert_settled();
    assert_empty(&vfs, &store);
    drop(vfs);
    ledger.assert_alone();
}

#[test]
fn what_was_there_before_a_cleaning_is_not_seen_after_it() {
    let _turn = Turn::take();
    let _watchdog = Watchdog::new(stress::length(Duration::from_secs(120)) * 3);
    let seed = seed();
    let length = stress::length(Duration::from_secs(8)) / 8;
    for (at, policy) in [PagePolicy::WriteBack, PagePolicy::WriteThrough].into_iter().enumerate() {
        for authority in [Authority::Sole, Authority::Shared] {
            let opens = if at == 0 { Opens::Tracked } else { Opens::Stateless };
            let kind = Kind { policy, authority, opens };
            promise(kind, with_room(64 << 10), seed, length);
            promise(kind, VfsConfig::default(), !seed, length);
        }
    }
}

/// An answer from before a cleaning is returned to its caller, with no lifetime for a frontend.
#[test]
fn an_old_answer_is_not_to_be_believed() {
    let _turn = Turn::take();
    let _watchdog = Watchdog::new(Duration::from_secs(120));
    for missing in [false, true] {
        let store = Kind::sole(Opens::Stateless).store();
        let vfs = vfs_over(&store, VfsConfig::default());
        let top = root(&vfs);
        top.create_directory("a", 0o755).unwrap();
        top.create_directory("a/b", 0o755).unwrap();
        top.write_file("a/b/1", "").unwrap();
        vfs.forget_unused();
        let (above, directory) =
            (top.open_directory("a").unwrap(), top.open_directory("a/b").unwrap());
        let gate = Gate::new();
        let held = Fault::Hold(Moment::After, gate.clone());
        store.follow(Plan::new().when(On::call(Call::Lookup).nth(1), held));
        let wanted = name(if missing { "2" } else { "1" });
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| vfs.lookup(&caller(), directory.node(), wanted).unwrap());
            gate.wait_for(1);
            drop(vfs.begin_clean(above.node(), Clean::Names).unwrap());
            gate.open();
            let valid = match asking.join().unwrap() {
                Lookup::Found(found) => found.entry_valid,
                Lookup::Missing(valid) => valid,
            };
            assert_eq!(valid, Duration::ZERO, "missing: {missing}");
        });
    }
}
