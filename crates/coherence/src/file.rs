//! The file of a profile: JSON lines, written whole or not at all, read completely or refused.
//!
//! # Boundary
//! Text to [`Profile`] and back. [`crate::profile`] defines the records.
//!
//! # Concurrency
//! A file is written beside its name and then renamed, so that a reader sees the old one or the new one.
//!
//! # Why
//! The last line says how many lines there are: a profile that was cut at the end of a line would
//! otherwise give a table that lacks its tail and looks complete. Every reference is looked up once
//! here, so that later stages may rely on them. Weakness: a profile is read into memory as a whole.

use crate::error::Error;
use crate::profile::{FORMAT, Profile, Record};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// The default file of a run, and the ending of such files.
pub const DEFAULT_NAME: &str = "uvfs.contention";

/// Numbers of modules lie below this.
const MODULES_MAX: u32 = 1 << 16;

const AGAIN: &str = "record it again";

impl Profile {
    /// An empty one.
    pub fn new(meta: crate::profile::Meta) -> Self {
        Self {
            meta,
            runs: Vec::new(),
            modules: Vec::new(),
            types: Vec::new(),
            objects: Vec::new(),
            sites: Vec::new(),
            samples: Vec::new(),
            heat: Vec::new(),
            histograms: Vec::new(),
            locks: Vec::new(),
            threads: Vec::new(),
        }
    }

    /// Reads a file.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|error| {
            Error::new(format!(
                "{}: cannot be read: {error}: name a profile that `run` wrote",
                path.display()
            ))
        })?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
            Error::new(format!(
                "{}, line {line}: not text: this is no profile, or it is damaged: {AGAIN}",
                path.display()
            ))
        })?;
        Self::from_lines(&path.display().to_string(), &text)
    }

    /// Reads the text of a file; errors call it `name`.
    pub fn from_lines(name: &str, text: &str) -> Result<Self, Error> {
        let mut profile: Option<Self> = None;
        let mut ended = None;
        let mut number = 0;
        for line in text.split_inclusive('\n') {
            number += 1;
            let at = |cause: String| Error::new(format!("{name}, line {number}: {cause}"));
            let Some(line) = line.strip_suffix('\n') else {
                return Err(at(format!(
                    "the line is cut short, so the file is incomplete: {AGAIN}"
                )));
            };
            if ended.is_some() {
                return Err(at(format!(
                    "there is more after the end: two files were joined, or it is damaged: {AGAIN}"
                )));
            }
            let Some(profile) = &mut profile else {
                profile = Some(Self::new(meta(line).map_err(at)?));
                continue;
            };
            if let Some(lines) = end(line) {
                ended = Some(lines);
                if lines != number {
                    return Err(at(format!(
                        "the file has {number} lines, but was written with {lines}: {AGAIN}"
                    )));
                }
                continue;
            }
            let record: Record = serde_json::from_str(line).map_err(|error| at(cause(&error)))?;
            match record {
                Record::Meta(_) => {
                    return Err(at(format!("a second head: two files were joined: {AGAIN}")));
                }
                Record::Run(record) => profile.runs.push(record),
                Record::Module(record) => profile.modules.push(record),
                Record::Type(record) => profile.types.push(record),
                Record::Object(record) => profile.objects.push(record),
                Record::Site(record) => profile.sites.push(record),
                Record::Sample(record) => profile.samples.push(record),
                Record::Heat(record) => profile.heat.push(record),
                Record::Histogram(record) => profile.histograms.push(record),
                Record::Lock(record) => profile.locks.push(record),
                Record::Thread(record) => profile.threads.push(record),
            }
        }
        let Some(profile) = profile else {
            return Err(Error::new(format!("{name}: the file is empty: {AGAIN}")));
        };
        if ended.is_none() {
            return Err(Error::new(format!(
                "{name}, line {number}: the end is missing, so the file is incomplete: {AGAIN}"
            )));
        }
        profile
            .check()
            .map_err(|cause| Error::new(format!("{name}: {cause}: it is damaged: {AGAIN}")))?;
        Ok(profile)
    }

    /// The text of its file.
    pub fn to_lines(&self) -> Result<String, Error> {
        let mut text = String::new();
        let mut lines = 0_usize;
        let mut push = |record: &Record| -> Result<(), Error> {
            let line = serde_json::to_string(record).map_err(|error| {
                Error::new(format!("a profile's record cannot be written: {error}"))
            })?;
            text.push_str(&line);
            text.push('\n');
            lines += 1;
            Ok(())
        };
        push(&Record::Meta(Box::new(self.meta.clone())))?;
        macro_rules! section {
            ($records:expr, $kind:path) => {
                for record in $records {
                    push(&$kind(record.clone()))?;
                }
            };
        }
        section!(&self.runs, Record::Run);
        section!(&self.modules, Record::Module);
        section!(&self.types, Record::Type);
        section!(&self.objects, Record::Object);
        section!(&self.sites, Record::Site);
        section!(&self.samples, Record::Sample);
        section!(&self.heat, Record::Heat);
        section!(&self.histograms, Record::Histogram);
        section!(&self.locks, Record::Lock);
        section!(&self.threads, Record::Thread);
        let _ = writeln!(text, "{{\"record\":\"end\",\"lines\":{}}}", lines + 1);
        Ok(text)
    }

    /// Writes the file, whole or not at all.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), Error> {
        let path = path.as_ref();
        let text = self.to_lines()?;
        let failed = |error: std::io::Error| {
            Error::new(format!(
                "{}: the profile cannot be written: {error}: name another file",
                path.display()
            ))
        };
        // A link stays a link. A path that is no file, as /dev/null, is written to and never replaced.
        let target = match fs::metadata(path) {
            Ok(found) if found.is_file() => fs::canonicalize(path).map_err(failed)?,
            Ok(found) if !found.is_dir() => return fs::write(path, text).map_err(failed),
            _ => path.to_path_buf(),
        };
        let beside = beside(&target);
        let result = fs::File::create(&beside)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| fs::rename(&beside, &target));
        result.map_err(|error| {
            let _ = fs::remove_file(&beside);
            failed(error)
        })
    }

    /// That every number which one record has for another leads to one.
    fn check(&self) -> Result<(), String> {
        let modules: HashSet<u32> = self.modules.iter().map(|module| module.id).collect();
        // Lists are made by these numbers.
        if let Some(id) = modules.iter().find(|id| **id >= MODULES_MAX) {
            return Err(format!("module {id}: a profile has fewer than {MODULES_MAX} modules"));
        }
        let types: HashSet<u32> = self.types.iter().map(|kind| kind.id).collect();
        let mut seeds = HashSet::new();
        for run in &self.runs {
            if !seeds.insert(run.seed) {
                return Err(format!("seed {} is there twice", run.seed));
            }
        }
        let mut objects = HashSet::new();
        for object in &self.objects {
            if !objects.insert((object.seed, object.id)) {
                return Err(format!("object {} of seed {} is there twice", object.id, object.seed));
            }
            if let Some(kind) = object.type_id
                && !types.contains(&kind)
            {
                return Err(format!(
                    "object {} of seed {} has no type {kind}",
                    object.id, object.seed
                ));
            }
            if let Some(place) = object.frames.iter().find(|place| !modules.contains(&place.module))
            {
                return Err(format!(
                    "object {} names module {}, which is not there",
                    object.id, place.module
                ));
            }
        }
        let mut sites = HashSet::new();
        for site in &self.sites {
            if !sites.insert((site.seed, site.id)) {
                return Err(format!("site {} of seed {} is there twice", site.id, site.seed));
            }
            let mut places = std::iter::once(&site.place).chain(&site.callers);
            if let Some(place) = places.find(|place| !modules.contains(&place.module)) {
                return Err(format!(
                    "site {} names module {}, which is not there",
                    site.id, place.module
                ));
            }
        }
        let object = |kind: &str, seed: u64, id: u32| match objects.contains(&(seed, id)) {
            true => Ok(()),
            false => Err(format!("a {kind} names object {id} of seed {seed}, which is not there")),
        };
        let site = |kind: &str, seed: u64, id: u32| match sites.contains(&(seed, id)) {
            true => Ok(()),
            false => Err(format!("a {kind} names site {id} of seed {seed}, which is not there")),
        };
        for sample in &self.samples {
            object("sample", sample.seed, sample.object)?;
            site("sample", sample.seed, sample.site)?;
            if let Some((writer, _)) = sample.writer {
                site("sample", sample.seed, writer)?;
            }
        }
        for heat in &self.heat {
            object("heat", heat.seed, heat.object)?;
        }
        for lock in &self.locks {
            object("lock", lock.seed, lock.object)?;
            for (waiter, _) in &lock.waiters {
                site("lock", lock.seed, *waiter)?;
            }
        }
        Ok(())
    }
}

/// The head, after its format is known to be ours: another format may have other fields.
fn meta(line: &str) -> Result<crate::profile::Meta, String> {
    let no_profile = || format!("this is no profile of this tool: {AGAIN}");
    let value: Value = serde_json::from_str(line).map_err(|_| no_profile())?;
    if value.get("record").and_then(Value::as_str) != Some("meta") {
        return Err(no_profile());
    }
    match value.get("format").and_then(Value::as_u64) {
        Some(format) if format == u64::from(FORMAT) => {}
        Some(format) => {
            return Err(format!(
                "the profile has format {format}, but this version reads {FORMAT} only: \
                 {AGAIN} with this version, or read it with the version that wrote it"
            ));
        }
        None => return Err(no_profile()),
    }
    match serde_json::from_value(value) {
        Ok(Record::Meta(meta)) => {
            meta.machine.validate().map_err(|error| error.to_string())?;
            Ok(*meta)
        }
        Ok(_) => Err(no_profile()),
        Err(error) => Err(cause(&error)),
    }
}

/// How many lines the file has, if this is its last.
fn end(line: &str) -> Option<usize> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct End {
        record: String,
        lines: usize,
    }
    // Only the last line begins so; the others need not be read twice.
    if !line.starts_with("{\"record\":\"end\"") {
        return None;
    }
    let end: End = serde_json::from_str(line).ok()?;
    (end.record == "end").then_some(end.lines)
}

/// Numbers as keys: JSON has them as text, and a tagged record no longer knows that they were keys.
pub(crate) fn buckets<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<u64, u64>, D::Error> {
    BTreeMap::<String, u64>::deserialize(deserializer)?
        .into_iter()
        .map(|(bucket, count)| match bucket.parse() {
            Ok(bucket) => Ok((bucket, count)),
            Err(_) => Err(D::Error::custom(format!("bucket `{bucket}` is no number"))),
        })
        .collect()
}

/// The parser's message without its line and column, which count within one record.
fn cause(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(text, _)| text);
    format!("{text}: it is damaged, or of another version: {AGAIN}")
}

/// A name that no reader looks for, in the same folder, so that a rename is atomic.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::Machine;
    use crate::profile::{
        Class, Field, Frame, Heat, Histogram, Lock, LockKind, Meta, Mode, Module, Object,
        ObjectKind, Operation, Ordering, Place, Run, Sample, Site, Thread, Type,
    };

    /// One record of each kind.
    fn profile() -> Profile {
        let mut profile = Profile::new(Meta {
            format: FORMAT,
            tool: "uvfs 0.1.0".to_string(),
            mode: Mode::Simulated,
            command: vec!["./a b".to_string(), "\"\n".to_string()],
            machine: Machine::default(),
            computing: true,
            what_if: vec!["A.b -> own line".to_string()],
        });
        let place = Place { module: 1, offset: u64::MAX };
        profile.runs.push(Run { seed: 3, cycles: u64::MAX, status: Some(-1), ..Run::default() });
        profile.modules.push(Module {
            id: 1,
            path: "/a".to_string(),
            build_id: Some("0f".to_string()),
        });
        let field =
            Field { path: "a[1]".to_string(), offset: 8, bytes: 4, type_name: "u32".to_string() };
        let name = "A<ü>".to_string();
        profile.types.push(Type {
            id: 4,
            name,
            size: 16,
            align: 8,
            fields: vec![field],
            declared: String::new(),
        });
        profile.objects.push(Object {
            seed: 3,
            id: 5,
            kind: ObjectKind::Heap,
            address: 0x7fff_ffff_f000,
            size: 48,
            ordinal: 2,
            frames: vec![place],
            thread: 1,
            name: "A".to_string(),
            type_id: Some(4),
            array: true,
            allocated_in: "main".to_string(),
        });
        profile.sites.push(Site {
            seed: 3,
            id: 6,
            place,
            callers: vec![place],
            operation: Operation::CompareExchange,
            bytes: 8,
            ordering: Ordering::AcquireRelease,
            frames: vec![Frame { function: "f".to_string(), source: "a.rs:1".to_string() }],
            function: "f".to_string(),
        });
        profile.samples.push(Sample {
            seed: 3,
            object: 5,
            offset: 8,
            site: 6,
            class: Class::RemoteTransfer,
            count: 2,
            false_shared: 1,
            service: 900,
            queue: 10,
            cores: vec![u64::MAX, 1],
            writer: Some((6, 2)),
        });
        let cores = vec![1];
        profile.heat.push(Heat {
            seed: 3,
            object: 5,
            offset: 8,
            bytes: 8,
            reads: 1,
            writes: 2,
            updates: 3,
            cores,
        });
        profile.histograms.push(Histogram {
            seed: 3,
            class: Class::LastLevel,
            with_queue: true,
            width: 10,
            buckets: [(5, 1), (700, 2)].into(),
        });
        profile.locks.push(Lock {
            seed: 3,
            object: 5,
            offset: 0,
            kind: LockKind::Word,
            acquisitions: 4,
            contended: 2,
            bounces: 1,
            wait_total: 9,
            wait_min: 4,
            wait_max: 5,
            hold_total: 8,
            hold_min: 2,
            hold_max: 2,
            waiters: vec![(6, 2)],
        });
        let (accesses, misses, stalled, blocked, cycles) = (5, 2, 900, 0, 1000);
        profile.threads.push(Thread {
            seed: 3,
            id: 0,
            core: 0,
            accesses,
            misses,
            stalled,
            blocked,
            cycles,
            began: 0,
        });
        profile
    }

    fn error(text: &str) -> String {
        Profile::from_lines("p", text).expect_err("must be refused").to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("uvfs.contention");
        profile().write(&path).expect("written");
        assert_eq!(Profile::read(&path), Ok(profile()));
        profile().write(&path).expect("over the old one");
        let names: Vec<_> = fs::read_dir(folder.path()).expect("the folder").collect();
        assert_eq!(names.len(), 1, "nothing is left beside it");
        let none =
            profile().write(folder.path().join("none/p")).expect_err("no folder").to_string();
        assert!(none.contains("none/p: the profile cannot be written"), "{none}");
    }

    #[test]
    fn what_is_no_file_is_never_replaced() {
        // `--output /dev/full`, given by root, was renamed over: the device was gone and a profile lay in its
        // place. A link to a profile in another folder was lost in the same way.
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        profile().write(path("target")).expect("written");
        std::os::unix::fs::symlink("target", path("link")).expect("a link");
        let other = Profile { runs: Vec::new(), ..profile() };
        other.write(path("link")).expect("through the link");
        assert!(path("link").is_symlink(), "the link is gone");
        let read = |name| fs::read_to_string(path(name)).expect("a file");
        assert_eq!(read("target"), other.to_lines().expect("lines"));
        std::os::unix::fs::symlink("/dev/null", path("device")).expect("a link");
        profile().write(path("device")).expect("thrown away");
        assert!(path("device").is_symlink(), "the link is gone");
        std::os::unix::fs::symlink("/dev/full", path("full")).expect("a link");
        let full = profile().write(path("full")).expect_err("no room").to_string();
        assert!(full.contains("No space left"), "{full}");
    }

    #[test]
    fn a_file_cut_anywhere_is_refused() {
        let text = profile().to_lines().expect("text");
        for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
            assert!(Profile::from_lines("p", &text[..end]).is_err(), "cut at {end}");
        }
        assert!(error(&text[..text.len() - 1]).starts_with("p, line 12: the line is cut short"));
        let lines: Vec<&str> = text.split_inclusive('\n').collect();
        assert_eq!(
            error(&lines[..11].concat()),
            "p, line 11: the end is missing, so the file is incomplete: record it again"
        );
        assert!(error("").starts_with("p: the file is empty"));
        for gone in 1..11 {
            let rest = [&lines[..gone], &lines[gone + 1..]].concat().concat();
            assert!(Profile::from_lines("p", &rest).is_err(), "without line {gone}");
        }
        assert!(
            error(&[&lines[..], &lines[..]].concat().concat()).contains("two files were joined")
        );
    }

    /// A list that long was made of this number once, until memory ended.
    #[test]
    fn a_number_that_no_module_has_is_refused() {
        let mut profile = profile();
        profile.modules[0].id = u32::MAX;
        let text = profile.to_lines().expect("text");
        assert!(
            error(&text).contains("module 4294967295: a profile has fewer than"),
            "{}",
            error(&text)
        );
    }

    #[test]
    fn another_format_is_refused_with_the_remedy() {
        let text = profile().to_lines().expect("text").replacen(
            "\"format\":1",
            "\"format\":2,\"new\":0",
            1,
        );
        let error = error(&text);
        assert!(
            error.starts_with("p, line 1: the profile has format 2, but this version reads 1 only"),
            "{error}"
        );
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        for text in
            ["hello\n", "{}\n", "[1]\n", "{\"record\":\"run\"}\n", "\n", "{\"record\":\"meta\"}\n"]
        {
            assert!(error(text).starts_with("p, line 1: this is no profile"), "{text}");
        }
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("p");
        fs::write(&path, b"a\nb\xff\n").expect("written");
        let binary = Profile::read(&path).expect_err("no text").to_string();
        assert!(binary.contains("p, line 2: not text"), "{binary}");
        let missing = Profile::read(folder.path().join("q")).expect_err("no file").to_string();
        assert!(missing.contains("q: cannot be read"), "{missing}");
    }

    #[test]
    fn damage_is_named_with_its_line() {
        let text = profile().to_lines().expect("text");
        let kind = text.replacen("\"record\":\"sample\"", "\"record\":\"simple\"", 1);
        assert!(
            error(&kind).starts_with("p, line 7: unknown variant `simple`"),
            "{}",
            error(&kind)
        );
        let number = text.replacen("\"count\":2", "\"count\":-2", 1);
        assert!(error(&number).starts_with("p, line 7: "), "{}", error(&number));
        let reference = text.replacen("\"object\":5", "\"object\":7", 1);
        assert!(
            error(&reference).contains("a sample names object 7 of seed 3"),
            "{}",
            error(&reference)
        );
        let machine = text.replacen("\"cores\":8", "\"cores\":0", 1);
        assert!(error(&machine).contains("`cores` is 0"), "{}", error(&machine));
    }
}
