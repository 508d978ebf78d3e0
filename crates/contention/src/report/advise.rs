//! Advice as text.
//!
//! # Boundary
//! Words of [`Advice`] and of the result of its what-if.
//!
//! # Why
//! An advice without its evidence is an opinion, so both stand together, with the command that tries it.
//! Weakness: the gain of a layout is that of the model; advice without a layout has none.

use super::Options;
use super::format::{clean, large, share, share_pm};
use super::text::{heading, wrap};
use crate::advise::{Advice, Rule};
use crate::whatif::Evidence;

/// Longest piece of an advice.
const PIECE: usize = 240;

/// The rule, as the module of the rules lists it.
fn name(rule: Rule) -> &'static str {
    match rule {
        Rule::SeparateReadMostly => "separate-read-mostly",
        Rule::IsolateHotWords => "isolate-hot-words",
        Rule::PadElements => "pad-elements",
        Rule::AlignStructure => "align-structure",
        Rule::SplitByPath => "split-by-path",
        Rule::ShardCounter => "shard-counter",
        Rule::BatchUnderLock => "batch-under-lock",
        Rule::SkipRemoteReads => "skip-remote-reads",
        Rule::FreeWhereAllocated => "free-where-allocated",
        Rule::ReadWithoutLock => "read-without-lock",
        Rule::ShortenHold => "shorten-hold",
        Rule::IsolateLock => "isolate-lock",
    }
}

/// Advice with its evidence and, as far as it was tried, the gain of its layout. `dropped` are layouts without a gain;
/// `program` is the program of the profile.
pub fn advise_text(
    advised: &[(Advice, Option<Evidence>)],
    dropped: &[String],
    program: &[String],
    options: &Options,
) -> String {
    let mut text = String::new();
    if advised.is_empty() {
        text.push_str(
            "Nothing to advise: no rule found a change that gains a hundredth of the time.\n",
        );
    }
    for (at, (one, tried)) in advised.iter().enumerate() {
        if at != 0 {
            text.push('\n');
        }
        let about = clean(&one.about, PIECE);
        text.push_str(&heading(&format!("{}. {about} ({})", at + 1, name(one.rule)), options));
        let remedy = clean(&one.remedy, PIECE);
        let remedy = remedy.trim_end_matches('.');
        text.push_str(&wrap(
            &format!("{remedy}; it stands for {} of the cost.", share_pm(&one.share)),
            options.width,
        ));
        for fact in &one.evidence {
            let (what, found) = (clean(&fact.what, PIECE), clean(&fact.found, PIECE));
            text.push_str(&wrap(&format!("- {what}: {found}"), options.width));
        }
        match (tried, &one.what_if) {
            (Some(evidence), _) => text.push_str(&wrap(&found(evidence), options.width)),
            (None, Some(change)) => {
                // One line, to be pasted whole.
                let program = program.iter().map(|word| format!(" {}", quoted(word)));
                let change = clean(change, usize::MAX);
                text.push_str(&format!("Try it: uvfs contention what-if {} --", quoted(&change)));
                text.extend(program);
                text.push('\n');
            }
            (None, None) => {
                text.push_str("No layout expresses this; change the source and compare.\n")
            }
        }
    }
    if !dropped.is_empty() {
        let layouts: Vec<_> =
            dropped.iter().map(|layout| format!("`{}`", clean(layout, PIECE))).collect();
        let line =
            format!("Tried, and not advised since it gains nothing: {}.", layouts.join(", "));
        text.push_str(&wrap(&line, options.width));
    }
    text
}

/// `word` as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "-_./=:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// The result of a what-if, in a sentence.
fn found(evidence: &Evidence) -> String {
    let gain = match evidence.base.mean {
        0.0 => 0.0,
        base => evidence.gain.mean / base,
    };
    let word = if gain < 0.0 { "more" } else { "fewer" };
    let sure = match evidence.significant {
        Some(true) => "",
        Some(false) => ", which the spread of the seeds may be",
        None => ", of one seed, so it may be jitter",
    };
    let size = match evidence.bytes_per_object {
        0 => String::new(),
        bytes => format!("; {bytes:+} bytes for each object"),
    };
    format!(
        "Tried `{}`: {} -> {} cycles, {} {word}{sure}; {} -> {} transfers{size}.",
        clean(&evidence.change, PIECE),
        large(evidence.base.mean),
        large(evidence.changed.mean),
        share(gain.abs()),
        large(evidence.transfers.0.mean),
        large(evidence.transfers.1.mean)
    )
}
