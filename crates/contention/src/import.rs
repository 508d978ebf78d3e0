//! Hardware samples of `perf c2c record` or `perf mem record`, as a profile.
//!
//! # What is accepted
//! The text of `perf script -F comm,tid,cpu,time,event,ip,sym,dso,addr,data_src,weight`, whatever the order
//! of the names after `-F`: perf prints in an order of its own,
//! ```text
//! comm  tid [cpu] time:  event:  addr data_src |OP LOAD|LVL L3 hit|SNP HitM|TLB ...|LCK No|BLK N/A  weight  ip sym (dso)
//! ```
//! A pid before the tid, a period before the event, `+0x1f` behind the symbol and numbers behind the weight
//! (`ins_lat`, `retire_lat`, `p_stage_cyc`) may be there; cpu, time, weight and dso may be missing. With `-g`,
//! call chains follow on lines of their own and end with an empty one. Lines that begin with `#` are skipped.
//! Levels and snoops are understood as perf has printed them since 4.1 (before 5.18 without `|OP` and
//! `|LVL`), on Intel, AMD (IBS) and Arm (SPE):
//! * a snoop of `HitM`, `Fwd` or `Peer`, or a cache of a `Remote` place: a transfer; a `Remote core, same
//!   node` is near;
//! * `RAM`, `PMEM`, `CXL`, or a miss of the last level: memory;
//! * `L3` or `Any cache` without such a snoop: the last level;
//! * `L1`, `L2`, `LFB`: a hit, which is counted among the accesses of its place;
//! * anything else, and stores, of which hardware does not tell how they were answered: an access only. The
//!   words are counted.
//!
//! Samples that are no access to data are counted apart: instructions of other kinds (most of what IBS
//! takes), prefetches, those without an address, and what SPE says again under another event.
//!
//! # Boundary
//! Text in, profile out. The program is not read: the place of code is its name in perf, its
//! offset is the address that perf printed, and memory is told apart by cache line.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Where a PMU exists, its samples are hardware truth, which the model's are not; in the same profile, the same
//! reports and gates read them. Lines are summed one by one, so memory grows with
//! distinct places, not with samples. Weakness: a sample has no false sharing, no waits
//! apart from service, and no locks, so these are zero; widths are unknown and written as zero.

mod line;

use crate::error::Error;
use line::{Answer, Parsed, frame, head};
use std::collections::{BTreeMap, BTreeSet};
use std::io::BufRead;
use uvfs_coherence::Profile;
use uvfs_coherence::machine::Machine;
use uvfs_coherence::profile::{
    Class, FORMAT, Frame, Heat, Histogram, Meta, Mode, Module, Object, ObjectKind, Operation,
    Ordering, Place, Run, Sample, Site, Thread,
};

/// The result of a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Imported {
    /// With [`Mode::Imported`] and one run.
    pub profile: Profile,
    /// Accesses that were read.
    pub samples: u64,
    /// Lines that were not understood, and the first of them.
    pub unknown: u64,
    /// Number and text of the first line that was not understood.
    pub first_unknown: Option<(u64, String)>,
    /// Accesses, stores apart, with a level that perf's words leave open.
    pub unclear: u64,
    /// The words of these, the commonest first, at most eight, with how often.
    pub unclear_levels: Vec<(String, u64)>,
    /// Samples that are no access to data.
    pub others: u64,
}

/// Words for levels that are kept.
const LEVELS: usize = 8;

/// Cycles a bucket of the histogram.
const WIDTH: u64 = 16;

/// Reads samples line by line from `input`, called `name` in errors, with lines of `line_bytes`.
///
/// # Errors
/// A failed read; no samples; more than half of the lines not understood.
pub fn read(mut input: impl BufRead, name: &str, line_bytes: u64) -> Result<Imported, Error> {
    let mut sums = Sums::new(line_bytes.max(1));
    let mut number = 0_u64;
    let mut unknown = Unknown::default();
    // A head whose call chain follows, with the number of its line.
    let mut pending: Option<(u64, Parsed)> = None;
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        let read = input.read_until(b'\n', &mut bytes);
        let read =
            read.map_err(|error| Error::io(format!("{name}, line {}", number + 1), &error))?;
        if read == 0 {
            break;
        }
        number += 1;
        let text = String::from_utf8_lossy(&bytes);
        let text = text.trim_end();
        if text.is_empty() || text.starts_with('#') {
            finish(pending.take(), &mut sums, &mut unknown);
            continue;
        }
        if let Some(parsed) = head(text) {
            finish(pending.replace((number, parsed)), &mut sums, &mut unknown);
            if pending.as_ref().is_some_and(|(_, parsed)| !parsed.frames.is_empty()) {
                finish(pending.take(), &mut sums, &mut unknown);
            }
            continue;
        }
        match (&mut pending, frame(text)) {
            (Some((_, parsed)), Some(called)) if text.starts_with([' ', '\t']) => {
                parsed.frames.push(called);
            }
            _ => unknown.add(number, text),
        }
    }
    finish(pending.take(), &mut sums, &mut unknown);
    let hint =
        "make it with: perf script -F comm,pid,tid,cpu,time,event,ip,sym,dso,addr,data_src,weight";
    let known = sums.accesses + sums.others;
    let Unknown { count: unknown, first: first_unknown } = unknown;
    if let Some((line, text)) = first_unknown.as_ref().filter(|_| unknown > known) {
        return Err(Error::new(format!(
            "{name}: {unknown} of {} lines are no samples, the first is line {line}, `{text}`; {hint}",
            unknown + known
        )));
    }
    if sums.accesses == 0 {
        let none = match sums.others {
            0 => "no samples".to_owned(),
            others => format!("none of {others} samples is an access to data"),
        };
        return Err(Error::new(format!("{name}: {none}; {hint}")));
    }
    let (samples, others, unclear) = (sums.accesses, sums.others, sums.unclear);
    let mut unclear_levels: Vec<_> = std::mem::take(&mut sums.unclear_levels).into_iter().collect();
    unclear_levels.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    unclear_levels.truncate(LEVELS);
    let profile = sums.profile();
    Ok(Imported { profile, samples, unknown, first_unknown, unclear, unclear_levels, others })
}

/// Lines that were not understood.
#[derive(Debug, Default)]
struct Unknown {
    count: u64,
    first: Option<(u64, String)>,
}

impl Unknown {
    fn add(&mut self, number: u64, text: &str) {
        self.count += 1;
        if self.first.is_none() {
            self.first = Some((number, text.chars().take(120).collect()));
        }
    }
}

/// Counts a sample if it is whole; one without an instruction's address is none.
fn finish(parsed: Option<(u64, Parsed)>, sums: &mut Sums, unknown: &mut Unknown) {
    let Some((number, parsed)) = parsed else { return };
    match parsed.operation {
        None => sums.others += 1,
        Some(_) if parsed.frames.is_empty() => {
            unknown.add(number, &format!("{}: no instruction address", parsed.command));
        }
        Some(operation) => sums.add(&parsed, operation),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct SiteId(u32);

/// One object a line, one site an instruction.
struct Sums {
    line_bytes: u64,
    modules: BTreeMap<String, u32>,
    objects: BTreeMap<u64, u32>,
    sites: BTreeMap<(Place, Operation), SiteId>,
    site_records: Vec<Site>,
    samples: BTreeMap<(u32, u64, SiteId, Class), Summed>,
    heat: BTreeMap<(u32, u64), Warm>,
    histograms: BTreeMap<Class, BTreeMap<u64, u64>>,
    threads: BTreeMap<u32, Working>,
    transferred: BTreeSet<u32>,
    commands: BTreeSet<String>,
    accesses: u64,
    others: u64,
    unclear: u64,
    unclear_levels: BTreeMap<String, u64>,
    time: Option<(f64, f64)>,
    cores: usize,
    far: bool,
}

#[derive(Default)]
struct Summed {
    count: u64,
    cycles: u64,
    cores: Vec<u64>,
}

#[derive(Default)]
struct Warm {
    reads: u64,
    writes: u64,
    updates: u64,
    cores: Vec<u64>,
}

#[derive(Default)]
struct Working {
    core: u32,
    accesses: u64,
    misses: u64,
    stalled: u64,
}

impl Sums {
    fn new(line_bytes: u64) -> Self {
        Self {
            line_bytes,
            modules: BTreeMap::new(),
            objects: BTreeMap::new(),
            sites: BTreeMap::new(),
            site_records: Vec::new(),
            samples: BTreeMap::new(),
            heat: BTreeMap::new(),
            histograms: BTreeMap::new(),
            threads: BTreeMap::new(),
            transferred: BTreeSet::new(),
            commands: BTreeSet::new(),
            accesses: 0,
            others: 0,
            unclear: 0,
            unclear_levels: BTreeMap::new(),
            time: None,
            cores: 1,
            far: false,
        }
    }

    fn module(&mut self, path: &str) -> u32 {
        match self.modules.get(path) {
            Some(id) => *id,
            None => {
                let id = self.modules.len() as u32;
                self.modules.insert(path.to_owned(), id);
                id
            }
        }
    }

    fn site(&mut self, parsed: &Parsed, operation: Operation) -> SiteId {
        let first = &parsed.frames[0];
        let place = Place { module: self.module(&first.module), offset: first.address };
        if let Some(id) = self.sites.get(&(place, operation)) {
            return *id;
        }
        let id = SiteId(self.site_records.len() as u32);
        let callers: Vec<Place> = parsed.frames[1..]
            .iter()
            .map(|frame| Place { module: self.module(&frame.module), offset: frame.address })
            .collect();
        let named =
            |frame: &line::Called| Frame { function: frame.symbol.clone(), source: String::new() };
        let locked = operation == Operation::CompareExchange;
        self.site_records.push(Site {
            seed: 0,
            id: id.0,
            place,
            callers,
            operation,
            bytes: 0,
            ordering: if locked { Ordering::SequentiallyConsistent } else { Ordering::Plain },
            frames: parsed.frames.iter().map(named).collect(),
            function: first.symbol.clone(),
        });
        self.sites.insert((place, operation), id);
        id
    }

    fn add(&mut self, parsed: &Parsed, operation: Operation) {
        self.accesses += 1;
        let site = self.site(parsed, operation);
        let (line, offset) = (parsed.address / self.line_bytes, parsed.address % self.line_bytes);
        let next = self.objects.len() as u32;
        let object = *self.objects.entry(line).or_insert(next);
        if self.commands.len() < 16 {
            self.commands.insert(parsed.command.clone());
        }
        if let Some(time) = parsed.time {
            let (first, last) = self.time.unwrap_or((time, time));
            self.time = Some((first.min(time), last.max(time)));
        }
        let core = parsed.core;
        self.cores = self.cores.max(core.map_or(0, |core| core + 1));
        let thread = self.threads.entry(parsed.thread).or_default();
        if thread.accesses == 0 {
            thread.core = core.unwrap_or(0) as u32;
        }
        thread.accesses += 1;
        let warm = self.heat.entry((object, offset)).or_default();
        match operation {
            Operation::Load => warm.reads += 1,
            Operation::Store => warm.writes += 1,
            _ => warm.updates += 1,
        }
        mark(&mut warm.cores, core);
        let class = match parsed.answer {
            Answer::Hit => return,
            Answer::Unknown => {
                if operation != Operation::Store {
                    self.unclear += 1;
                    let room = self.unclear_levels.len() < 8 * LEVELS;
                    match self.unclear_levels.get_mut(&parsed.level) {
                        Some(count) => *count += 1,
                        None if room => {
                            self.unclear_levels.insert(parsed.level.clone(), 1);
                        }
                        None => {}
                    }
                }
                return;
            }
            Answer::Miss(class) => class,
        };
        thread.misses += 1;
        thread.stalled = thread.stalled.saturating_add(parsed.weight);
        self.far |= class.is_remote();
        if class.is_transfer() {
            self.transferred.insert(object);
        }
        let sample = self.samples.entry((object, offset, site, class)).or_default();
        sample.count += 1;
        sample.cycles = sample.cycles.saturating_add(parsed.weight);
        mark(&mut sample.cores, core);
        if parsed.weight > 0 {
            *self.histograms.entry(class).or_default().entry(parsed.weight / WIDTH).or_default() +=
                1;
        }
    }

    fn profile(self) -> Profile {
        let machine = Machine {
            name: "imported from perf: its latencies are in the samples, not here".to_owned(),
            cores: self.cores,
            nodes: if self.far { 2.min(self.cores) } else { 1 },
            line_bytes: self.line_bytes,
            ..Machine::default()
        };
        let seconds = self.time.map_or(0.0, |(first, last)| last - first);
        let cycles = (seconds * machine.megahertz.value * 1e6) as u64;
        let count = |wanted: fn(&Class) -> bool| -> u64 {
            let chosen = self.samples.iter().filter(|((.., class), _)| wanted(class));
            chosen.map(|(_, sample)| sample.count).sum()
        };
        let run = Run {
            cycles,
            parallel_cycles: cycles,
            accesses: self.threads.values().map(|thread| thread.accesses).sum(),
            misses: count(|_| true),
            transfers: count(|class| class.is_transfer()),
            remote_transfers: count(|class| *class == Class::RemoteTransfer),
            threads: self.threads.len() as u64,
            host_nanoseconds: (seconds * 1e9) as u64,
            ..Run::default()
        };
        let line_bytes = self.line_bytes;
        let object = |(line, id): (u64, u32)| Object {
            seed: 0,
            id,
            kind: ObjectKind::Other,
            address: line * line_bytes,
            size: line_bytes,
            ordinal: 0,
            frames: Vec::new(),
            thread: 0,
            name: format!("line {:#x}", line * line_bytes),
            type_id: None,
            array: false,
            allocated_in: String::new(),
        };
        let module = |(path, id): (String, u32)| Module { id, path, build_id: None };
        let sample =
            |((object, offset, site, class), summed): ((u32, u64, SiteId, Class), Summed)| Sample {
                seed: 0,
                object,
                offset,
                site: site.0,
                class,
                count: summed.count,
                false_shared: 0,
                service: summed.cycles,
                queue: 0,
                cores: summed.cores,
                writer: None,
            };
        let heat = |((object, offset), warm): ((u32, u64), Warm)| Heat {
            seed: 0,
            object,
            offset,
            bytes: 0,
            reads: warm.reads,
            writes: warm.writes,
            updates: warm.updates,
            cores: warm.cores,
        };
        // perf weighs from issue to retirement, which has the wait in it.
        let histogram = |(class, buckets)| Histogram {
            seed: 0,
            class,
            with_queue: true,
            width: WIDTH,
            buckets,
        };
        let thread = |(index, (_, working)): (usize, (u32, Working))| Thread {
            seed: 0,
            id: index as u32,
            core: working.core,
            accesses: working.accesses,
            misses: working.misses,
            stalled: working.stalled,
            blocked: 0,
            cycles,
            began: 0,
        };
        let mut objects: Vec<Object> = self.objects.into_iter().map(object).collect();
        objects.sort_by_key(|object| object.id);
        let mut modules: Vec<Module> = self.modules.into_iter().map(module).collect();
        modules.sort_by_key(|module| module.id);
        let transferred = self.transferred;
        Profile {
            meta: Meta {
                format: FORMAT,
                tool: concat!("uvfs ", env!("CARGO_PKG_VERSION")).to_owned(),
                mode: Mode::Imported,
                command: self.commands.into_iter().collect(),
                machine,
                computing: false,
                what_if: Vec::new(),
            },
            runs: vec![run],
            modules,
            types: Vec::new(),
            objects,
            sites: self.site_records,
            samples: self.samples.into_iter().map(sample).collect(),
            heat: self
                .heat
                .into_iter()
                .filter(|((object, _), _)| transferred.contains(object))
                .map(heat)
                .collect(),
            histograms: self.histograms.into_iter().map(histogram).collect(),
            locks: Vec::new(),
            threads: self.threads.into_iter().enumerate().map(thread).collect(),
        }
    }
}

fn mark(cores: &mut Vec<u64>, core: Option<usize>) {
    let Some(core) = core else { return };
    if cores.len() <= core / 64 {
        cores.resize(core / 64 + 1, 0);
    }
    cores[core / 64] |= 1 << (core % 64);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn perf_script(text: &str) -> Result<Imported, Error> {
        read(text.as_bytes(), "text", 64)
    }
    use proptest::prelude::*;

    const TEXT: &str = "\
# perf script
bench  4711 [003]  6516.714341: cpu/mem-loads,ldlat=30/P:  7f3a00001048  629800842 |OP LOAD|LVL L3 hit|SNP HitM|TLB L1 hit|LCK No|BLK  N/A     120     401136 lookup+0x16 (/usr/bin/bench)
bench  4712 [067]  6516.714441: cpu/mem-loads,ldlat=30/P:  7f3a00001048  629800842 |OP LOAD|LVL L3 hit|SNP HitM|TLB L1 hit|LCK No|BLK  N/A     140     401136 lookup+0x16 (/usr/bin/bench)
bench  4712 [067]  6516.715341: cpu/mem-loads,ldlat=30/P:  7f3a00001040  629800842 |OP LOAD|LVL Remote Cache (1 hop) hit|SNP HitM|TLB L2 miss|LCK Yes|BLK  N/A     500     401200 dget (/usr/bin/bench)
bench  4712 [067]  6516.716341: cpu/mem-stores/P:  7f3a00001040  5080144 |OP STORE|LVL L1 miss|SNP N/A|TLB N/A|LCK N/A|BLK  N/A     0     401204 dget (/usr/bin/bench)
bench  4712 [067]  6517.714341: cpu/mem-loads,ldlat=30/P:  7f3a00002000  68100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 hit|LCK No|BLK  N/A     7     401300 scan (/usr/bin/bench)
bench  4712 [067]  6517.814341: cpu/mem-loads,ldlat=30/P:  7f3a00003000  68100142 |OP LOAD|LVL Local RAM hit|SNP Miss|TLB L1 hit|LCK No|BLK  N/A     300     401300 [unknown] ([unknown])
";

    #[test]
    fn samples_become_a_profile() {
        let imported = perf_script(TEXT).unwrap();
        assert_eq!((imported.samples, imported.unknown, imported.unclear), (6, 0, 0));
        let profile = imported.profile;
        assert_eq!((profile.meta.mode, profile.meta.machine.cores), (Mode::Imported, 68));
        assert_eq!(profile.meta.machine.nodes, 2);
        let run = &profile.runs[0];
        assert_eq!((run.accesses, run.misses, run.transfers, run.remote_transfers), (6, 4, 3, 1));
        assert_eq!(run.threads, 2);
        let lookup = profile.sites.iter().find(|site| site.function == "lookup").unwrap();
        assert_eq!((lookup.place.offset, lookup.operation), (0x401136, Operation::Load));
        let samples: Vec<_> =
            profile.samples.iter().filter(|sample| sample.site == lookup.id).collect();
        assert_eq!(samples.len(), 1, "the two are one place");
        assert_eq!((samples[0].count, samples[0].service, samples[0].offset), (2, 260, 8));
        assert_eq!((samples[0].class, &samples[0].cores), (Class::LocalTransfer, &vec![8, 8]));
        let locked = profile.samples.iter().find(|sample| sample.class == Class::RemoteTransfer);
        let locked = profile.sites.iter().find(|site| site.id == locked.unwrap().site).unwrap();
        assert_eq!(locked.operation, Operation::CompareExchange);
        // Only the contended line has heat: two loads, a locked one and a store.
        let heat: Vec<_> = profile
            .heat
            .iter()
            .map(|heat| (heat.offset, heat.reads, heat.writes, heat.updates))
            .collect();
        assert_eq!(heat, [(0, 0, 1, 1), (8, 2, 0, 0)]);
        assert_eq!(profile.objects[0].name, "line 0x7f3a00001040");
        assert_eq!(profile.modules[0].path, "/usr/bin/bench");
        assert_eq!(profile.histograms.len(), 3);
    }

    #[test]
    fn call_chains_are_read() {
        let text = "\
bench 4711/4712 [003] 65.714341:  1 mem_load:ppp:  1048 629800842 |OP LOAD|LVL Any cache hit|SNP Peer|TLB N/A|LCK No  120
\t          401136 lookup+0x16 (/usr/bin/bench)
\t          401999 std::map<int, a b>::find(int) (/usr/bin/bench)

bench 4711/4712 [003] 65.714341:  1 mem_load:ppp:  1048 629800842 |OP LOAD|LVL N/A|SNP N/A|TLB N/A|LCK No  120
\t          401136 lookup+0x16 (/usr/bin/bench)
";
        let imported = perf_script(text).unwrap();
        assert_eq!((imported.samples, imported.unknown, imported.unclear), (2, 0, 1));
        let site = &imported.profile.sites[0];
        assert_eq!(site.frames[1].function, "std::map<int, a b>::find(int)");
        assert_eq!(site.callers, [Place { module: 0, offset: 0x401999 }]);
        assert_eq!(imported.profile.samples[0].class, Class::LocalTransfer);
    }

    #[test]
    fn a_few_unknown_lines_are_counted_and_many_refused() {
        let some = format!("Warning: lost 3 chunks\n{TEXT}");
        let imported = perf_script(&some).unwrap();
        assert_eq!(imported.unknown, 1);
        assert_eq!(imported.first_unknown, Some((1, "Warning: lost 3 chunks".to_owned())));
        let most = format!("{TEXT}{}", "bench 1 2.0: cycles: 401136 main (/bin/a)\n".repeat(7));
        let refused = perf_script(&most).unwrap_err().to_string();
        assert!(refused.contains("7 of 13 lines") && refused.contains("line 8"), "{refused}");
        assert!(refused.contains("perf script -F"), "{refused}");
        assert!(perf_script("").unwrap_err().to_string().contains("no samples"));
        assert!(perf_script("# only a comment\n").is_err());
    }

    #[test]
    fn what_is_no_access_is_counted_apart() {
        // IBS takes more samples of instructions without an access than of such with one; they once were
        // taken for loads of address zero, or had the text refused.
        let other = "a 1 [000] 1.0: ibs_op//: 0 1e05080021 |OP N/A|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A 0 401136 f (b)\n";
        let load = "a 1 [000] 2.0: ibs_op//: 7f00 629100142 |OP LOAD|LVL LX hit|SNP N/A|TLB L1 hit|LCK N/A|BLK  N/A 9 401136 f (b)\n";
        let chained = "a 1 [000] 3.0: ibs_op//: 0 21 |OP EXEC|LVL L1 hit|SNP N/A|TLB N/A|LCK N/A|BLK  N/A 0\n\t401136 f (b)\n\n";
        let found = perf_script(&format!("{}{load}{chained}", other.repeat(3))).unwrap();
        assert_eq!((found.samples, found.others, found.unknown), (1, 4, 0));
        assert_eq!((found.unclear, found.unclear_levels), (1, vec![("LX hit".to_owned(), 1)]));
        assert_eq!(found.profile.runs[0].accesses, 1);
        let refused = perf_script(other).unwrap_err().to_string();
        assert!(refused.contains("none of 1 samples is an access to data"), "{refused}");
        let bare =
            "a 1 [000] 2.0: ev: 7f00 62 |OP LOAD|LVL L1 hit|SNP N/A|TLB L1 hit|LCK No|BLK  N/A 9\n";
        let found = perf_script(&format!("{load}{bare}")).unwrap();
        let first = (2, "a: no instruction address".to_owned());
        assert_eq!((found.unknown, found.first_unknown), (1, Some(first)));
    }

    #[test]
    fn a_failed_read_is_reported_with_its_line() {
        struct Broken;
        impl std::io::Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::from_raw_os_error(5))
            }
        }
        let error = read(std::io::BufReader::new(Broken), "a.txt", 64).unwrap_err().to_string();
        assert_eq!(error, "a.txt, line 1: Input/output error");
    }

    #[test]
    fn what_is_imported_names_lines_for_the_other_stages() {
        let profile = perf_script(TEXT).unwrap().profile;
        let ledger = crate::ledger::Ledger::new(&profile);
        let spot = ledger.sampled(&profile.samples[0]).unwrap();
        assert_eq!(spot.name(), "line 0x7f3a00001040+0");
        assert!(
            crate::compare::compare(
                &crate::Ledger::new(&profile),
                &crate::Ledger::new(&profile),
                false
            )
            .is_ok()
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "([ -~]{0,80}\n){0,8}") {
            let _ = perf_script(&text);
        }

        #[test]
        fn no_damaged_sample_panics(cut in 0_usize..1400, insert in "[ -~]{0,6}") {
            let at = (0..=cut.min(TEXT.len())).rev().find(|at| TEXT.is_char_boundary(*at)).unwrap();
            let _ = perf_script(&format!("{}{insert}{}", &TEXT[..at], &TEXT[at..]));
        }
    }
}
