//! One line of `perf script`.
//!
//! # Boundary
//! A line in, its parts out; [`crate::import`] says what is accepted.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! The `|OP ` of the data source is the anchor: what is before it is read from the right, since a
//! command's name may hold blanks, and what is behind it from the left. Weakness: perf before 4.1 printed
//! no text for the data source, and its lines are not understood.

use uvfs_coherence::profile::{Class, Operation};

/// How an access was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Hit,
    Miss(Class),
    Unknown,
}

/// A function of a call chain, or the instruction itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Called {
    pub(super) address: u64,
    pub(super) symbol: String,
    pub(super) module: String,
}

/// A sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Parsed {
    pub(super) command: String,
    pub(super) thread: u32,
    pub(super) core: Option<usize>,
    /// Seconds.
    pub(super) time: Option<f64>,
    pub(super) address: u64,
    pub(super) operation: Operation,
    pub(super) answer: Answer,
    pub(super) weight: u64,
    /// The instruction first; empty if a call chain follows.
    pub(super) frames: Vec<Called>,
}

/// Reads a line with a data source; `None` if it is none.
pub(super) fn head(text: &str) -> Option<Parsed> {
    let (before, source) = text.split_at(text.find("|OP ").or_else(|| text.find("|LVL "))?);
    let Left { command, thread, core, time, address } = left(before)?;
    let (parts, rest) = data_source(source)?;
    let part =
        |key: &str| parts.iter().find(|(name, _)| *name == key).map_or("N/A", |(_, value)| *value);
    let operation = match part("OP") {
        _ if part("LCK") == "Yes" => Operation::CompareExchange,
        operation if operation.starts_with("STORE") => Operation::Store,
        operation if operation.starts_with("LOAD") || operation == "N/A" => Operation::Load,
        // Prefetches and instruction fetches are nobody's access.
        _ => return None,
    };
    let mut rest = rest.split_whitespace().peekable();
    let mut numbers = Vec::new();
    while let Some(number) = rest.peek().and_then(|word| word.parse::<u64>().ok()) {
        numbers.push(number);
        rest.next();
    }
    let words: Vec<&str> = rest.collect();
    // The last number before the symbol may be an address without letters, and then the symbol may look
    // like one, as `add` does: what is directly before the module is no address.
    let symbol_first = words.get(1).is_none_or(|word| word.starts_with('('));
    let (weight, frames) = match frame(&words.join(" ")) {
        Some(called) if !symbol_first || numbers.len() < 2 => {
            (numbers.first().copied().unwrap_or(0), vec![called])
        }
        _ if words.is_empty() => (numbers.first().copied().unwrap_or(0), Vec::new()),
        _ => {
            let address = numbers.pop()?.to_string();
            let called = frame(&format!("{address} {}", words.join(" ")))?;
            (numbers.first().copied().unwrap_or(0), vec![called])
        }
    };
    let answer = if operation == Operation::Store {
        stored(part("LVL"), part("SNP"))
    } else {
        answer(part("LVL"), part("SNP"))
    };
    Some(Parsed { command, thread, core, time, address, operation, answer, weight, frames })
}

/// What is before the data source's text; see [`Parsed`].
struct Left {
    command: String,
    thread: u32,
    core: Option<usize>,
    time: Option<f64>,
    address: u64,
}

fn left(text: &str) -> Option<Left> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (_source, words) = words.split_last()?;
    let (address, words) = words.split_last()?;
    let address = u64::from_str_radix(address, 16).ok()?;
    let (event, words) = words.split_last()?;
    if !event.ends_with(':') {
        return None;
    }
    // A period, then the time.
    let words = match words.split_last() {
        Some((last, rest)) if last.bytes().all(|byte| byte.is_ascii_digit()) && rest.len() > 1 => {
            // Without time and core, this is the thread.
            if rest.last()?.ends_with(':') { rest } else { words }
        }
        _ => words,
    };
    let (time, words) = match words.split_last() {
        Some((last, rest)) if last.ends_with(':') => {
            (Some(last.trim_end_matches(':').parse::<f64>().ok()?), rest)
        }
        _ => (None, words),
    };
    let (core, words) = match words.split_last() {
        Some((last, rest)) if last.starts_with('[') => {
            let number = last.strip_prefix('[')?.strip_suffix(']')?;
            (Some(number.parse::<usize>().ok().filter(|core| *core < 1 << 16)?), rest)
        }
        _ => (None, words),
    };
    let (thread, command) = words.split_last()?;
    let thread = thread.rsplit('/').next()?.parse().ok()?;
    let time = time.filter(|time| time.is_finite());
    Some(Left { command: command.join(" "), thread, core, time, address })
}

/// `|OP LOAD|LVL L3 hit|...|BLK  N/A   120 401136 f (b)`: keys with values, and what follows the last.
fn data_source(text: &str) -> Option<(Vec<(&str, &str)>, &str)> {
    const KEYS: [&str; 7] = ["OP", "LVL", "SNP", "TLB", "LCK", "BLK", "AFF"];
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let inner = rest.strip_prefix('|')?;
        let key = KEYS
            .into_iter()
            .find(|key| inner.strip_prefix(key).is_some_and(|after| after.starts_with(' ')))?;
        let value = &inner[key.len()..];
        // The next key, if it is one, else the end of this value: a number.
        let next = value
            .find('|')
            .filter(|at| KEYS.iter().any(|key| value[at + 1..].starts_with(&format!("{key} "))));
        match next {
            Some(at) => {
                parts.push((key, value[..at].trim()));
                rest = &value[at..];
            }
            None => {
                let end = last_value(key, value);
                parts.push((key, value[..end].trim()));
                return Some((parts, &value[end..]));
            }
        }
    }
}

/// Where the value of the last key ends: before the first word that is a number of its own.
fn last_value(key: &str, value: &str) -> usize {
    let mut at = 0;
    while at < value.len() {
        let start = at + value[at..].len() - value[at..].trim_start().len();
        let end = value[start..].find(' ').map_or(value.len(), |length| start + length);
        let word = &value[start..end];
        let number = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
        // Without a weight, an address of sixteen letters or less follows a lock's single word.
        let single = key == "LCK" && at > 0;
        if number || single || word.is_empty() {
            return start;
        }
        at = end;
    }
    value.len()
}

/// `401136 lookup+0x16 (/usr/bin/bench)`: an address, a symbol that may hold blanks, a module that may
/// be missing.
pub(super) fn frame(text: &str) -> Option<Called> {
    let text = text.trim();
    let (address, rest) = text.split_once(' ').unwrap_or((text, ""));
    if address.is_empty() || address.len() > 16 {
        return None;
    }
    let address = u64::from_str_radix(address, 16).ok()?;
    let rest = rest.trim();
    let (symbol, module) = match rest.rfind(" (").map(|at| (&rest[..at], &rest[at + 2..])) {
        Some((symbol, module)) if module.ends_with(')') => (symbol, &module[..module.len() - 1]),
        _ => match rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) {
            Some(module) => ("", module),
            None => (rest, ""),
        },
    };
    let symbol = match symbol.rsplit_once("+0x") {
        Some((name, offset)) if offset.bytes().all(|byte| byte.is_ascii_hexdigit()) => name,
        _ => symbol,
    };
    let symbol = match symbol.trim() {
        "" | "[unknown]" => format!("{address:#x}"),
        symbol => symbol.to_owned(),
    };
    let module = if module.is_empty() { "[unknown]" } else { module };
    Some(Called { address, symbol, module: module.to_owned() })
}

/// A store is told by its snoop, which few machines report; a level says only whether it hit.
fn stored(level: &str, snoop: &str) -> Answer {
    match answer(level, snoop) {
        Answer::Miss(class) if class.is_transfer() => Answer::Miss(class),
        Answer::Hit if level.ends_with("hit") => Answer::Hit,
        _ => Answer::Unknown,
    }
}

/// The class of a load by perf's words for its level and snoop.
fn answer(level: &str, snoop: &str) -> Answer {
    let has = |word: &str| level.contains(word);
    let far = has("Remote");
    let snooped = ["HitM", "Fwd", "Peer"].iter().any(|word| snoop.contains(word));
    let missed = level.ends_with("miss");
    if has("RAM") || has("PMEM") || has("CXL") {
        return Answer::Miss(if far { Class::RemoteMemory } else { Class::LocalMemory });
    }
    if far {
        // What is not memory is a cache there, whatever level.
        return Answer::Miss(Class::RemoteTransfer);
    }
    if snooped {
        return Answer::Miss(Class::LocalTransfer);
    }
    if has("L3") || has("Any cache") {
        return Answer::Miss(if missed { Class::LocalMemory } else { Class::LastLevel });
    }
    if !missed && ["L0", "L1", "L2", "LFB", "MHB"].iter().any(|word| has(word)) {
        return Answer::Hit;
    }
    Answer::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_and_snoops_have_their_class() {
        use Answer::{Hit, Miss, Unknown};
        let check = |level: &str, snoop: &str, wanted: Answer| {
            assert_eq!(answer(level, snoop), wanted, "{level}|{snoop}");
        };
        check("L1 hit", "None", Hit);
        check("LFB/MAB hit", "None", Hit);
        check("L3 hit", "None", Miss(Class::LastLevel));
        check("L3 hit", "HitM", Miss(Class::LocalTransfer));
        check("L3 hit", "Fwd", Miss(Class::LocalTransfer));
        check("L2 hit", "Peer", Miss(Class::LocalTransfer));
        check("L3 miss", "N/A", Miss(Class::LocalMemory));
        check("Remote Cache (1 hop) hit", "HitM", Miss(Class::RemoteTransfer));
        check("Remote Cache (2 hops) hit", "Hit", Miss(Class::RemoteTransfer));
        check("Remote Any cache hit", "HitM", Miss(Class::RemoteTransfer));
        check("Remote L3 hit", "N/A", Miss(Class::RemoteTransfer));
        check("Any cache hit", "Peer", Miss(Class::LocalTransfer));
        check("RAM hit", "None", Miss(Class::LocalMemory));
        check("Local RAM hit", "Hit", Miss(Class::LocalMemory));
        check("Remote RAM (1 hop) hit", "None", Miss(Class::RemoteMemory));
        check("Remote RAM hit", "N/A", Miss(Class::RemoteMemory));
        check("N/A", "N/A", Unknown);
        check("I/O hit", "N/A", Unknown);
        check("Uncached hit", "N/A", Unknown);
        check("L1 miss", "N/A", Unknown);
        assert_eq!(stored("L1 miss", "N/A"), Unknown);
        assert_eq!(stored("L1 hit", "N/A"), Hit);
        assert_eq!(stored("RAM hit", "N/A"), Unknown);
        assert_eq!(stored("L3 hit", "HitM"), Miss(Class::LocalTransfer));
    }

    #[test]
    fn optional_parts_may_be_missing_or_there() {
        let whole = head("my prog 12/34 [001] 1.500000: 10 ev:ppp: ff00 68 |OP LOAD|LVL RAM hit|SNP None|TLB L2 miss|LCK No|BLK  N/A|AFF  N/A 300 25 7 4010 f(int, b)+0x1 (/a b)").unwrap();
        assert_eq!((whole.command.as_str(), whole.thread, whole.core), ("my prog", 34, Some(1)));
        assert_eq!((whole.address, whole.weight, whole.time), (0xff00, 300, Some(1.5)));
        let called = Called { address: 0x4010, symbol: "f(int, b)".into(), module: "/a b".into() };
        assert_eq!(whole.frames, [called]);
        let bare = head("prog 34 ev: ff00 68 |OP STORE|LVL L1 hit|SNP N/A|TLB N/A|LCK No  0 ffffffff81 [unknown] ([kernel.kallsyms])").unwrap();
        assert_eq!((bare.thread, bare.core, bare.time), (34, None, None));
        assert_eq!((bare.operation, bare.answer), (Operation::Store, Answer::Hit));
        assert_eq!(bare.frames[0].symbol, "0xffffffff81");
        let unweighted = head(
            "prog 34 ev: ff00 68 |OP LOAD|LVL RAM hit|SNP None|TLB L1 hit|LCK No 401abc f (b)",
        )
        .unwrap();
        assert_eq!((unweighted.weight, unweighted.frames[0].address), (0, 0x401abc));
        let named =
            head("prog 34 ev: ff00 68 |OP LOAD|LVL RAM hit|LCK No 9 401136 add (b)").unwrap();
        assert_eq!((named.frames[0].symbol.as_str(), named.frames[0].address), ("add", 0x401136));
        let chained =
            head("prog 34 1.5: ev: ff00 68 |OP LOAD|LVL RAM hit|SNP None|TLB L1 hit|LCK No 12")
                .unwrap();
        assert!(chained.frames.is_empty());
    }

    #[test]
    fn what_is_no_sample_is_none() {
        for text in [
            "",
            "prog 34 1.5: cycles: 4010 f (b)",
            "prog x ev: ff00 68 |OP LOAD|LVL RAM hit|LCK No 1 2 f (b)",
            "prog 34 ev: zz00 68 |OP LOAD|LVL RAM hit|LCK No 1 2 f (b)",
            "prog 34 ev ff00 68 |OP LOAD|LVL RAM hit|LCK No 1 2 f (b)",
            "prog 34 ev: ff00 68 |OP EXEC|LVL RAM hit|LCK No 1 2 f (b)",
            "|OP LOAD|LVL RAM hit",
        ] {
            assert_eq!(head(text), None, "{text}");
        }
    }
}
