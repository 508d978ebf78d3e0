//! The functions that hand the lines of a structure to each other.
//!
//! # Boundary
//! One structure at a time. A hand-over is a transfer with a known last writer.
//!
//! # Why
//! The paper's contention mostly had one cause: one function submits work on one processor, another
//! function completes it on another. It shows as an edge from the writer's function and cores to the reader's.
//! Weakness: of each sample only the most frequent writer is kept, so rare edges are missing.

use super::Estimate;
use super::notation::{core_ranges, unite};
use crate::ledger::{Ledger, structure_of};
use serde::Serialize;
use std::collections::BTreeMap;

/// The hand-overs of one structure.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flow {
    /// `Dentry`.
    pub structure: String,
    /// Part of its transfers with a known writer.
    pub known_share: f64,
    /// The most frequent first.
    pub edges: Vec<Edge>,
}

/// From a writer to a reader.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Edge {
    /// The function that took the line by a write.
    pub from: End,
    /// The function that missed it then.
    pub to: End,
    /// Times.
    pub count: Estimate,
    /// Part of the structure's hand-overs.
    pub share: f64,
    /// Part of them across nodes.
    pub remote_share: f64,
    /// The fields that the reader wanted, the most frequent first, at most three.
    pub fields: Vec<String>,
}

/// A function on some cores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct End {
    /// Which.
    pub function: String,
    /// `0-3,8`; empty where it is not known.
    pub cores: String,
}

#[derive(Default)]
struct Gathered {
    counts: Vec<u64>,
    remote: u64,
    cores: Vec<u64>,
    fields: BTreeMap<String, u64>,
}

/// The hand-overs of the objects called `name`. `None` if they have no transfers.
pub fn flow(ledger: &Ledger<'_>, name: &str) -> Option<Flow> {
    let mut edges: BTreeMap<(String, String), Gathered> = BTreeMap::new();
    // Where a function is known to miss the structure, it runs.
    let mut cores: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut all = ledger.none();
    let mut seen = false;
    for sample in ledger.transfers() {
        let Some((seed, object, site)) = ledger.resolve(sample) else { continue };
        if structure_of(object) != name {
            continue;
        }
        seen = true;
        all[seed].add(sample);
        let reader = ledger.function(site);
        unite(cores.entry(reader.clone()).or_default(), &sample.cores);
        let writer =
            sample.writer.and_then(|(id, count)| Some((ledger.site(sample.seed, id)?, count)));
        let Some((writer, count)) = writer else { continue };
        let edge = edges.entry((ledger.function(writer), reader)).or_default();
        edge.counts.resize(ledger.seeds.len(), 0);
        edge.counts[seed] = edge.counts[seed].saturating_add(count);
        if sample.class.is_remote() {
            edge.remote = edge.remote.saturating_add(count);
        }
        unite(&mut edge.cores, &sample.cores);
        let field = ledger.field(object, sample.offset, true).path;
        let times = edge.fields.entry(field).or_default();
        *times = times.saturating_add(count);
    }
    if !seen {
        return None;
    }
    let sum = |edge: &Gathered| edge.counts.iter().fold(0_u64, |sum, one| sum.saturating_add(*one));
    let handed: u64 = edges.values().map(sum).fold(0, u64::saturating_add);
    let transfers = all.iter().fold(0_u64, |sum, one| sum.saturating_add(one.count));
    let part = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
    let mut ranked: Vec<_> = edges.into_iter().filter(|(_, edge)| sum(edge) != 0).collect();
    ranked.sort_by_key(|(_, edge)| std::cmp::Reverse(sum(edge)));
    let edges = ranked.into_iter().map(|((writer, reader), edge)| {
        let mut fields: Vec<_> = edge.fields.iter().collect();
        fields.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let of_writer = cores.get(&writer).map_or_else(String::new, |cores| core_ranges(cores));
        Edge {
            from: End { function: writer, cores: of_writer },
            to: End { function: reader, cores: core_ranges(&edge.cores) },
            share: part(sum(&edge), handed),
            remote_share: part(edge.remote, sum(&edge)),
            fields: fields.into_iter().take(3).map(|(field, _)| field.clone()).collect(),
            count: Estimate::of_counts(edge.counts),
        }
    });
    let edges = edges.collect();
    Some(Flow { structure: name.to_owned(), known_share: part(handed, transfers), edges })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::{empty, profile};

    #[test]
    fn edges_lead_from_writers_to_readers() {
        let flow = flow(&Ledger::new(&profile()), "Super").unwrap();
        assert_eq!((flow.edges.len(), flow.known_share), (2, 1.0));
        let (own, lookup) = (&flow.edges[0], &flow.edges[1]);
        assert_eq!(own.from.function, own.to.function);
        assert_eq!((own.count.mean, own.share, own.remote_share), (80.0, 160.0 / 240.0, 0.5));
        assert_eq!(lookup.from.function, "[spinlock] @ dget");
        assert_eq!((lookup.to.function.as_str(), lookup.to.cores.as_str()), ("lookup", "0-3"));
        assert_eq!(lookup.fields, ["root.hash"]);
        assert_eq!(flow.edges.iter().map(|edge| edge.share).sum::<f64>(), 1.0);
    }

    #[test]
    fn without_writers_there_are_no_edges() {
        let mut profile = profile();
        profile.samples.iter_mut().for_each(|sample| sample.writer = None);
        let flow = super::flow(&Ledger::new(&profile), "Dentry").unwrap();
        assert!(flow.edges.is_empty() && flow.known_share == 0.0);
        assert_eq!(super::flow(&Ledger::new(&profile), "Nothing"), None);
        assert_eq!(super::flow(&Ledger::new(&empty()), "Super"), None);
    }
}
