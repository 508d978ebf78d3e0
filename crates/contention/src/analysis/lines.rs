//! The functions that miss each cache line: the tables of Gough, Siddha and Chen 2007, figures 3 to 15.
//!
//! # Boundary
//! Only transfers, misses that another core's cache answered, like the paper: [`mod@super::histogram`] has
//! the misses that memory answers. Shares of latency are of all misses.
//!
//! # Why
//! A table of one line shows which code wants which field; the same table over all objects of a type
//! ([`groups`]) shows it where a program has a thousand of them. Both come from one function with different
//! keys for the same line. Weakness: in a group, a row's address is that of the dearest object.

use super::Estimate;
use super::notation::{count_cores, instruction, unite};
use crate::ledger::{
    Basis, Ledger, ObjectKey, SiteKey, Sum, Sums, mean, share, share_of, structure_of,
};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use uvfs_coherence::profile::{Object, ObjectKind, Operation, Ordering, Sample, Site};

/// A row is hot if it takes this part of its line's latency.
pub const HOT: f64 = 0.2;
/// Above this part of false sharing a line's verdict is [`Verdict::False`], below the rest [`Verdict::True`].
pub const CLEAR: f64 = 0.9;

/// Whether cores want the same bytes of a line or only the same line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Cores want the same bytes.
    True,
    /// Other bytes than those that were written.
    False,
    /// Some of either.
    Mixed,
}

/// One cache line, or those of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineTable {
    /// From 1, by latency.
    pub rank: usize,
    /// Name of the dearest object's type, or of the variable.
    pub structure: String,
    /// Which line of the object; with [`LineTable::lines`] beyond 1, of the first.
    pub line_index: u64,
    /// Where that object lies.
    pub kind: ObjectKind,
    /// The function that allocated it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub allocated_in: String,
    /// Other objects in the line.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub neighbours: Vec<String>,
    /// Lines put together here: 1, unless it is a group.
    pub lines: u64,
    /// Address of the line in the first run that has it.
    pub address: u64,
    /// Transfers.
    pub samples: Estimate,
    /// Part of them from another node.
    pub remote_share: Estimate,
    /// Part of them that wanted other bytes than those written elsewhere.
    pub false_share: Estimate,
    /// Cycles of all transfers.
    pub latency: Estimate,
    /// Cycles of one.
    pub mean_latency: Estimate,
    /// Part of the latency that was waiting for the line.
    pub queue_share: Estimate,
    /// Part of the latency of all misses of the program; of their number, if it has no latencies.
    pub share: Estimate,
    /// True or false sharing.
    pub verdict: Verdict,
    /// Cores that missed, encoded like the profile's.
    pub cores: Vec<u64>,
    /// The misses by address and function.
    pub rows: Vec<Row>,
}

impl LineTable {
    /// Cores that missed.
    pub fn core_count(&self) -> u32 {
        count_cores(&self.cores)
    }

    /// The row with most latency.
    pub fn hottest(&self) -> Option<&Row> {
        let dearer = |best: &&Row, row: &&Row| best.share.mean.total_cmp(&row.share.mean);
        // The first of equal ones.
        self.rows.iter().rev().max_by(dearer)
    }
}

/// One instruction that misses one place of a line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Transfers.
    pub samples: Estimate,
    /// Part of them from another node.
    pub remote_share: Estimate,
    /// File name of the module with the instruction.
    pub module: String,
    /// Address of the instruction, as the module's symbol table has it: the return address of the call
    /// that reported it.
    pub instruction_address: u64,
    /// `cmpxchg4.acq`.
    pub instruction: String,
    /// Operation of the instruction.
    pub operation: Operation,
    /// Bytes of it.
    pub bytes: u32,
    /// Ordering of it.
    pub ordering: Ordering,
    /// `[spinlock] @ dget`.
    pub function: String,
    /// `file:line`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub source: String,
    /// In the first run that has it.
    pub data_address: u64,
    /// The object, if it is not the line's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// From the object's start.
    pub offset: u64,
    /// `root.lock`, without type.
    pub field: String,
    /// The datum as it is printed: a variable's field with the variable's name, a pointer's with its type.
    pub data: String,
    /// Part of the transfers that wanted other bytes than those written elsewhere.
    pub false_share: Estimate,
    /// Cycles of one transfer.
    pub mean_latency: Estimate,
    /// Part of the latency that was waiting for the line.
    pub queue_share: Estimate,
    /// Part of the latency of all misses of the program.
    pub share: Estimate,
    /// Part of the latency of this line.
    pub share_of_line: f64,
    /// Whether any core wrote these bytes since the line became contended; `None` where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub written: Option<bool>,
    /// The writers that took the line away, the most frequent first, at most three.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub invalidated_by: Vec<Writer>,
    /// At least [`HOT`] of the line's latency.
    pub hot: bool,
    /// Cores that missed, encoded like the profile's.
    pub cores: Vec<u64>,
}

/// A writer that took a line away.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Writer {
    /// The function that wrote.
    pub function: String,
    /// The field that it writes, where it is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
    /// Part of the times that are known.
    pub share: f64,
}

/// Cache lines by the latency of their transfers, the dearest first.
pub fn lines(ledger: &Ledger<'_>) -> Vec<LineTable> {
    tables(ledger, Fold::Never)
}

/// Cache lines as in [`lines`], with the lines of all objects of one type, at one place in it, counted as one.
pub fn groups(ledger: &Ledger<'_>) -> Vec<LineTable> {
    tables(ledger, Fold::ByType)
}

#[derive(Clone, Copy, PartialEq)]
enum Fold {
    Never,
    ByType,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum TableKey {
    Line(ObjectKey, u64),
    /// Structure, and where the line begins in it.
    Type(String, ObjectKind, i64),
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RowKey {
    /// Where in the line, or in the structure; then the object.
    at: i64,
    object: Option<ObjectKey>,
    structure: String,
    field: String,
    site: SiteKey,
}

struct GatheredRow<'a> {
    tallies: Sums,
    cores: Vec<u64>,
    /// Weight of the sample that the row's addresses are from.
    weight: u64,
    sample: &'a Sample,
    object: &'a Object,
    site: &'a Site,
    data_address: u64,
    /// Whether the row stands for several elements of a row of them.
    several: bool,
    /// (function, field) with how often.
    writers: BTreeMap<(String, String), u64>,
}

#[derive(Default)]
struct Gathered<'a> {
    tallies: Sums,
    cores: Vec<u64>,
    rows: BTreeMap<RowKey, GatheredRow<'a>>,
    /// Real lines in the first seed that has any.
    addresses: BTreeMap<usize, BTreeSet<u64>>,
    /// Weight by structure, for the name.
    structures: BTreeMap<String, u64>,
}

fn tables(ledger: &Ledger<'_>, fold: Fold) -> Vec<LineTable> {
    let mut gathered: BTreeMap<TableKey, Gathered<'_>> = BTreeMap::new();
    for sample in ledger.transfers() {
        add(ledger, fold, sample, &mut gathered);
    }
    let written = Written::new(ledger);
    let finished = gathered.into_iter();
    let mut tables: Vec<(u128, LineTable)> = finished
        .map(|(key, gathered)| {
            let weight = |one: &Sum| u128::from(one.weight(ledger.basis));
            let weight = gathered.tallies.iter().map(weight).sum();
            (weight, finish(ledger, &key, gathered, &written))
        })
        .collect();
    // Equal ones stay in the order of their keys.
    tables.sort_by_key(|(weight, _)| std::cmp::Reverse(*weight));
    let ranked = tables.into_iter().zip(1..);
    ranked.map(|((_, table), rank)| LineTable { rank, ..table }).collect()
}

fn add<'a>(
    ledger: &Ledger<'a>,
    fold: Fold,
    sample: &'a Sample,
    gathered: &mut BTreeMap<TableKey, Gathered<'a>>,
) {
    let Some((seed, object, site)) = ledger.resolve(sample) else { return };
    let line = ledger.line(object, sample.offset);
    let Some((owner, line_index)) = ledger.line_key(seed, line) else { return };
    let start = line.wrapping_mul(ledger.line_bytes);
    let name = structure_of(object);
    let address = object.address.wrapping_add(sample.offset);
    let field = ledger.field(object, sample.offset, fold == Fold::ByType);
    let (key, at) = match fold {
        Fold::Never => {
            let key = TableKey::Line(owner.clone(), *line_index);
            (key, address.wrapping_sub(start) as i64)
        }
        Fold::ByType => {
            let at = match ledger.type_of(object) {
                Some(one) if object.array && one.size != 0 => sample.offset % one.size,
                _ => sample.offset,
            };
            (TableKey::Type(name.clone(), object.kind, place(ledger, object, start)), at as i64)
        }
    };
    let own = || ledger.none();
    let table =
        gathered.entry(key).or_insert_with(|| Gathered { tallies: own(), ..Gathered::default() });
    table.tallies[seed].add(sample);
    unite(&mut table.cores, &sample.cores);
    table.addresses.entry(seed).or_default().insert(line);
    let weight = sample.service.saturating_add(sample.queue).max(sample.count);
    let structure_weight = table.structures.entry(name.clone()).or_default();
    *structure_weight = structure_weight.saturating_add(weight);
    let key = RowKey {
        at,
        object: (fold == Fold::Never).then(|| ObjectKey::of(object)),
        structure: name,
        field: field.path,
        site: ledger.site_key(site),
    };
    let row = table.rows.entry(key).or_insert_with(|| GatheredRow {
        tallies: own(),
        cores: Vec::new(),
        weight,
        sample,
        object,
        site,
        data_address: address,
        several: false,
        writers: BTreeMap::new(),
    });
    row.tallies[seed].add(sample);
    unite(&mut row.cores, &sample.cores);
    row.several |= row.sample.offset != sample.offset;
    // Addresses are of the first seed; there, of the dearest sample.
    if sample.seed == row.sample.seed && weight > row.weight {
        (row.weight, row.sample, row.object) = (weight, sample, object);
        (row.site, row.data_address) = (site, address);
    }
    if let Some((writer, count)) = sample.writer
        && let Some(site) = ledger.site(sample.seed, writer)
    {
        let aim = ledger.aim(seed, writer, line);
        let field = aim.map_or_else(String::new, |(object, offset)| {
            data(object, &ledger.field(object, offset, fold == Fold::ByType).path)
        });
        let all = row.writers.entry((ledger.function(site), field)).or_default();
        *all = all.saturating_add(count);
    }
}

/// Where in an object's structure the line at `start` begins: the same for lines that belong into one
/// group. Of structures smaller than a line nothing is told apart.
fn place(ledger: &Ledger<'_>, object: &Object, start: u64) -> i64 {
    let size = ledger.type_of(object).map_or(object.size, |one| one.size);
    if size < ledger.line_bytes {
        return 0;
    }
    let relative = start.wrapping_sub(object.address) as i64;
    match i64::try_from(size) {
        Ok(size) if object.array => relative.rem_euclid(size),
        _ => relative,
    }
}

/// How a place is printed: variables with their name, since it says more than their type would.
fn data(object: &Object, field: &str) -> String {
    match (object.kind, field) {
        (_, "") => structure_of(object),
        (ObjectKind::Global | ObjectKind::ThreadLocal, field) if !object.name.is_empty() => {
            let dot = field.starts_with(|first: char| first != '[' && first != '+');
            format!("{}{}{field}", object.name, if dot { "." } else { "" })
        }
        (_, field) => field.to_owned(),
    }
}

fn finish(
    ledger: &Ledger<'_>,
    key: &TableKey,
    gathered: Gathered<'_>,
    written: &Written,
) -> LineTable {
    let Gathered { tallies, cores, rows, addresses, structures } = gathered;
    let whole = tallies.clone();
    let rows: Vec<_> =
        rows.into_values().map(|row| finish_row(ledger, row, &whole, written)).collect();
    // In a group all structures are the same one.
    let owner = rows.iter().max_by(|one, other| one.1.share.mean.total_cmp(&other.1.share.mean));
    let (name, line_index) = match key {
        TableKey::Line(owner, line) => (None, (Some(owner), *line)),
        TableKey::Type(name, _, start) => {
            // The first line begins at or before the structure does.
            let line = u64::try_from(*start).unwrap_or(0).div_ceil(ledger.line_bytes);
            (Some(name.clone()), (None, line))
        }
    };
    let dearest = match line_index.0 {
        Some(key) => rows.iter().find(|(object, _)| ObjectKey::of(object) == *key).or(owner),
        None => owner,
    };
    let object = dearest.map(|(object, _)| *object);
    let structure = name.unwrap_or_else(|| object.map_or_else(|| "?".to_owned(), structure_of));
    let neighbours = structures.into_keys().filter(|one| *one != structure).collect();
    let lines = addresses.values().map(BTreeSet::len).max().unwrap_or(0) as u64;
    let line = addresses.values().next().and_then(|lines| lines.first()).copied();
    let false_share = share(&tallies, |one| one.false_shared, |one| one.count);
    let structure_name = structure.clone();
    LineTable {
        rank: 0,
        structure,
        line_index: line_index.1,
        kind: object.map_or(ObjectKind::Other, |object| object.kind),
        allocated_in: object.map_or_else(String::new, |object| object.allocated_in.clone()),
        neighbours,
        lines,
        address: line.unwrap_or(0).wrapping_mul(ledger.line_bytes),
        samples: mean(&tallies, |one| one.count),
        remote_share: share(&tallies, |one| one.remote, |one| one.count),
        false_share,
        latency: mean(&tallies, Sum::latency),
        mean_latency: share(&tallies, Sum::latency, |one| one.count),
        queue_share: share(&tallies, |one| one.queue, Sum::latency),
        share: share_of(&tallies, &ledger.totals, ledger.basis),
        verdict: match false_share.mean {
            share if share >= CLEAR => Verdict::False,
            share if share <= 1.0 - CLEAR => Verdict::True,
            _ => Verdict::Mixed,
        },
        cores,
        rows: rows
            .into_iter()
            .map(|(object, mut row)| {
                let name = structure_of(object);
                row.object = (name != structure_name).then_some(name);
                row
            })
            .collect(),
    }
}

fn finish_row<'a>(
    ledger: &Ledger<'_>,
    row: GatheredRow<'a>,
    line: &Sums,
    written: &Written,
) -> (&'a Object, Row) {
    let GatheredRow {
        tallies, cores, sample, object, site, data_address, several, writers, ..
    } = row;
    let sum = |tallies: &Sums, basis: Basis| -> f64 {
        tallies.iter().map(|one| one.weight(basis) as f64).sum()
    };
    let of_line = match sum(line, ledger.basis) {
        0.0 => 0.0,
        whole => sum(&tallies, ledger.basis) / whole,
    };
    let field = ledger.field(object, sample.offset, several);
    let source = site.frames.first().map_or_else(String::new, |frame| frame.source.clone());
    let row = Row {
        samples: mean(&tallies, |one| one.count),
        remote_share: share(&tallies, |one| one.remote, |one| one.count),
        module: ledger.module(site.place.module).to_owned(),
        instruction_address: site.place.offset,
        instruction: instruction(site.operation, site.bytes, site.ordering),
        operation: site.operation,
        bytes: site.bytes,
        ordering: site.ordering,
        function: ledger.function(site),
        source,
        data_address,
        object: None,
        offset: sample.offset,
        data: data(object, &field.with_pointer()),
        field: field.path,
        false_share: share(&tallies, |one| one.false_shared, |one| one.count),
        mean_latency: share(&tallies, Sum::latency, |one| one.count),
        queue_share: share(&tallies, |one| one.queue, Sum::latency),
        share: share_of(&tallies, &ledger.totals, ledger.basis),
        share_of_line: of_line,
        written: written.at(sample, site.bytes),
        invalidated_by: writers_of(writers),
        hot: of_line >= HOT,
        cores,
    };
    (object, row)
}

fn writers_of(writers: BTreeMap<(String, String), u64>) -> Vec<Writer> {
    const SHOWN: usize = 3;
    let all: f64 = writers.values().map(|count| *count as f64).sum();
    let mut writers: Vec<_> = writers.into_iter().collect();
    writers.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let writers = writers.into_iter().take(SHOWN).filter(|(_, count)| *count != 0);
    writers
        .map(|((function, field), count)| Writer { function, field, share: count as f64 / all })
        .collect()
}

/// Offset, bytes, whether written.
type Touched = (u64, u32, bool);

/// Which bytes of an object were written, from the heat of contended lines.
struct Written {
    /// By (seed, object).
    heat: BTreeMap<(u64, u32), Vec<Touched>>,
}

impl Written {
    fn new(ledger: &Ledger<'_>) -> Self {
        let mut heat: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for one in &ledger.profile.heat {
            let place = (one.offset, one.bytes, one.writes != 0 || one.updates != 0);
            heat.entry((one.seed, one.object)).or_default().push(place);
        }
        Self { heat }
    }

    fn at(&self, sample: &Sample, bytes: u32) -> Option<bool> {
        let end = sample.offset.saturating_add(u64::from(bytes.max(1)));
        let meets = |(offset, bytes, _): &&Touched| {
            *offset < end && offset.saturating_add(u64::from((*bytes).max(1))) > sample.offset
        };
        let ledger = self.heat.get(&(sample.seed, sample.object))?.iter().filter(meets);
        ledger.map(|(.., written)| *written).reduce(|one, other| one || other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::{anonymous, empty, profile};

    #[test]
    fn lines_come_by_latency_with_exact_figures() {
        let tables = lines(&Ledger::new(&profile()));
        let names: Vec<_> =
            tables.iter().map(|one| (one.structure.as_str(), one.line_index)).collect();
        assert_eq!(names, [("Super", 0), ("counters", 0), ("Dentry", 1), ("Dentry", 1)]);
        let top = &tables[0];
        // Seeds 1 and 2 have 100 and 140 transfers of the line.
        assert_eq!(top.samples.mean, 120.0);
        assert_eq!(top.remote_share.mean, 80.0 / 240.0);
        assert_eq!(top.false_share.mean, 84.0 / 240.0);
        assert_eq!(top.verdict, Verdict::Mixed);
        // (20,000 + 4,000) + (28,000 + 8,000) over two seeds.
        assert_eq!(top.latency.mean, 30_000.0);
        assert_eq!(top.mean_latency.mean, 250.0);
        assert_eq!(top.share.mean, 60_000.0 / 100_000.0);
        assert_eq!((top.lines, top.core_count()), (1, 4));
        assert_eq!(top.address, 0x1000);
        assert_eq!(tables[1].verdict, Verdict::False);
        assert_eq!(tables[2].verdict, Verdict::True);
        assert_eq!(tables.iter().map(|one| one.rank).collect::<Vec<_>>(), [1, 2, 3, 4]);
    }

    #[test]
    fn rows_are_by_address_and_name_instruction_field_and_writer() {
        let tables = lines(&Ledger::new(&profile()));
        let rows = &tables[0].rows;
        let shown: Vec<_> = rows
            .iter()
            .map(|row| (row.instruction.as_str(), row.function.as_str(), row.data.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                ("cmpxchg4.acq", "[spinlock] @ dget", "root.lock"),
                ("ld8", "lookup", "root.hash (hlist*)"),
            ]
        );
        let (lock, hash) = (&rows[0], &rows[1]);
        assert_eq!((lock.samples.mean, hash.samples.mean), (80.0, 40.0));
        assert_eq!((lock.hot, hash.hot), (true, true));
        assert_eq!((lock.written, hash.written), (Some(true), Some(false)));
        assert_eq!(hash.false_share.mean, 1.0);
        assert_eq!(hash.invalidated_by[0].function, "[spinlock] @ dget");
        assert_eq!(hash.invalidated_by[0].field, "root.lock");
        assert_eq!(hash.invalidated_by[0].share, 1.0);
        assert_eq!((lock.module.as_str(), lock.instruction_address), ("prog", 0x401000));
        assert_eq!(lock.data_address, 0x1008);
        assert_eq!(lock.share_of_line + hash.share_of_line, 1.0);
        assert_eq!(tables[1].rows[0].data, "counters[0]");
    }

    #[test]
    fn shares_of_lines_add_up_to_that_of_all_transfers() {
        let profile = profile();
        let of = |tables: &[LineTable]| tables.iter().map(|one| one.share.mean).sum::<f64>();
        let (single, grouped) =
            (of(&lines(&Ledger::new(&profile))), of(&groups(&Ledger::new(&profile))));
        // 90,000 of 100,000 cycles are of transfers.
        assert!((single - 0.9).abs() < 1e-12, "{single}");
        assert!((grouped - 0.9).abs() < 1e-12, "{grouped}");
        for table in lines(&Ledger::new(&profile)) {
            let rows: f64 = table.rows.iter().map(|row| row.share.mean).sum();
            assert!((rows - table.share.mean).abs() < 1e-12);
        }
    }

    #[test]
    fn objects_of_one_type_are_one_group() {
        let tables = groups(&Ledger::new(&profile()));
        let group = tables.iter().find(|one| one.structure == "Dentry").unwrap();
        assert_eq!((group.lines, group.line_index, group.rows.len()), (2, 1, 1));
        assert_eq!(group.samples.mean, 20.0);
        assert_eq!(group.rows[0].field, "count");
        // Two elements in one row of the table, one in each of the line's own.
        assert_eq!((tables[1].rows.len(), tables[1].rows[0].data.as_str()), (1, "counters[*]"));
        assert_eq!(lines(&Ledger::new(&profile()))[1].rows.len(), 2);
    }

    #[test]
    fn a_run_alone_has_no_interval() {
        let mut one = profile();
        one.runs.truncate(1);
        one.samples.retain(|sample| sample.seed == 1);
        let tables = lines(&Ledger::new(&one));
        assert_eq!(tables[0].samples, Estimate { mean: 100.0, plus_minus: None });
        assert!(lines(&Ledger::new(&profile()))[0].samples.plus_minus.is_some());
    }

    #[test]
    fn addresses_do_not_matter_across_seeds() {
        let mut moved = profile();
        moved.objects.iter_mut().filter(|one| one.seed == 2).for_each(|one| one.address += 1 << 20);
        let (before, after) = (lines(&Ledger::new(&profile())), lines(&Ledger::new(&moved)));
        assert_eq!(before, after);
    }

    #[test]
    fn nothing_and_the_unknown_are_no_panic() {
        assert!(
            lines(&Ledger::new(&empty())).is_empty() && groups(&Ledger::new(&empty())).is_empty()
        );
        let tables = lines(&Ledger::new(&anonymous()));
        assert_eq!(tables[0].structure, "heap(48)");
        assert_eq!(tables[0].rows[0].data, "+24");
        assert_eq!(tables[0].rows[0].function, "?+0x10");
        let mut damaged = profile();
        damaged.objects.clear();
        assert!(lines(&Ledger::new(&damaged)).is_empty());
        damaged.meta.machine.line_bytes = 0;
        assert!(groups(&Ledger::new(&damaged)).is_empty());
        let mut high = profile();
        high.objects.iter_mut().for_each(|one| one.address = u64::MAX - 3);
        assert!(!lines(&Ledger::new(&high)).is_empty());
    }

    #[test]
    fn without_latencies_transfers_are_counted() {
        let mut recorded = profile();
        recorded.samples.iter_mut().for_each(|one| (one.service, one.queue) = (0, 0));
        let tables = lines(&Ledger::new(&recorded));
        assert_eq!(tables[0].structure, "Super");
        assert!(tables[0].share.mean > 0.0 && tables[0].latency.mean == 0.0);
    }
}
