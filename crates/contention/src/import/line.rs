//! One line of `perf script`.
//!
//! # Boundary
//! A line in, its parts out; [`crate::import`] lists the accepted forms.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! The text of the data source is the anchor: what is before it is read from the right, since a command's
//! name may hold blanks, and what is behind it from the left. That text is cut after 82 letters by perf, so
//! its end may be missing or half there; it ends before the first word that is a number. Weakness: perf
//! before 4.1 printed no text for the data source, and its lines are not understood.

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
    /// `None` of what is no access to data: another instruction, as AMD's IBS has them between, a prefetch, no
    /// address, or Arm's SPE saying one access once more under another event.
    pub(super) operation: Option<Operation>,
    pub(super) answer: Answer,
    /// The words for the level.
    pub(super) level: String,
    pub(super) weight: u64,
    /// The instruction first; empty if a call chain follows.
    pub(super) frames: Vec<Called>,
}

/// Reads a line with a data source; `None` if it is none.
pub(super) fn head(text: &str) -> Option<Parsed> {
    let (Left { command, thread, core, time, event, address, source }, parts, rest) =
        match text.find("|OP ") {
            Some(at) => {
                let (parts, rest) = data_source(&text[at..])?;
                (left(&text[..at])?, parts, rest)
            }
            None => unmarked(text)?,
        };
    let part =
        |key: &str| parts.iter().find(|(name, _)| *name == key).map_or("N/A", |(_, value)| *value);
    let locked = part("LCK").starts_with("Yes") || part("AFF").contains("ATOMIC");
    let operation = match part("OP") {
        _ if address == 0 || SAID_BEFORE.contains(&event) => None,
        word if word.starts_with("STORE") || word.starts_with("LOAD") => Some(match locked {
            true => Operation::CompareExchange,
            false if word.starts_with("STORE") => Operation::Store,
            false => Operation::Load,
        }),
        // Without words, the first bits say the same.
        "" if source & 4 != 0 && !locked => Some(Operation::Store),
        "" if source & 6 != 0 => {
            Some(if locked { Operation::CompareExchange } else { Operation::Load })
        }
        _ => None,
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
    let answer = if operation == Some(Operation::Store) {
        stored(part("LVL"), part("SNP"))
    } else {
        answer(part("LVL"), part("SNP"))
    };
    let level = part("LVL").to_owned();
    Some(Parsed { command, thread, core, time, address, operation, answer, level, weight, frames })
}

/// Events under which perf says an access of Arm's SPE again; it is counted as `memory`.
const SAID_BEFORE: [&str; 10] = [
    "l1d-miss",
    "l1d-access",
    "llc-miss",
    "llc-access",
    "tlb-miss",
    "tlb-access",
    "branch-miss",
    "branch",
    "remote-access",
    "instructions",
];

/// The part before the data source's text; see [`Parsed`].
struct Left<'a> {
    command: String,
    thread: u32,
    core: Option<usize>,
    time: Option<f64>,
    event: &'a str,
    address: u64,
    /// The data source as a number.
    source: u64,
}

/// The data source's keys with their values.
type Parts<'t> = Vec<(&'t str, &'t str)>;

/// A line of perf before 5.18, which printed neither `|OP` nor `|LVL`: `addr data_src L3 hit|SNP HitM|...`.
fn unmarked(text: &str) -> Option<(Left<'_>, Parts<'_>, &str)> {
    let at = text.find("|SNP ")?;
    // No level has a colon, so the last one is the event's.
    let event = text[..at].rfind(": ")? + 2;
    let mut level = text[event..at].trim_start();
    for _ in 0..2 {
        level = level.split_once(char::is_whitespace)?.1.trim_start();
    }
    let (mut parts, rest) = data_source(&text[at..])?;
    parts.extend([("OP", ""), ("LVL", level)]);
    Some((left(&text[..at - level.len()])?, parts, rest))
}

/// perf prints no `0x`, but rewritten text may have it.
fn hexadecimal(word: &str) -> Option<u64> {
    u64::from_str_radix(word.strip_prefix("0x").unwrap_or(word), 16).ok()
}

fn left(text: &str) -> Option<Left<'_>> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (source, words) = words.split_last()?;
    let source = hexadecimal(source)?;
    let (address, words) = words.split_last()?;
    let address = hexadecimal(address)?;
    let (event, words) = words.split_last()?;
    let event = event.strip_suffix(':')?;
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
    let event = event.trim_end_matches(':');
    Some(Left { command: command.join(" "), thread, core, time, event, address, source })
}

/// `|OP LOAD|LVL L3 hit|...|BLK  N/A   120 401136 f (b)`: keys with values, and the rest behind the last.
fn data_source(text: &str) -> Option<(Parts<'_>, &str)> {
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
                let end = last_value(value);
                parts.push((key, value[..end].trim()));
                return Some((parts, &value[end..]));
            }
        }
    }
}

/// Where the value of the last key ends: before the first word that is a number, be it the weight or an
/// address. No word of perf's has only letters of such, but one that was cut may be empty.
fn last_value(value: &str) -> usize {
    let mut at = 0;
    for word in value.split_inclusive(' ') {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let digits = word.trim().trim_start_matches("0x");
        if !digits.is_empty() && digits.bytes().all(is_digit) {
            return at;
        }
        at += word.len();
    }
    value.len()
}

/// `401136 lookup+0x16 (/usr/bin/bench)`: an address, a symbol that may hold blanks, a module that may
/// be missing.
pub(super) fn frame(text: &str) -> Option<Called> {
    let text = text.trim();
    let (address, rest) = text.split_once(' ').unwrap_or((text, ""));
    if address.is_empty() || address.len() > 18 {
        return None;
    }
    let address = hexadecimal(address)?;
    let (symbol, module) = without_module(rest.trim());
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

/// Parts `f(int, int) (/usr/bin/a (deleted))` before the module, whose own brackets are in pairs.
fn without_module(text: &str) -> (&str, &str) {
    let mut depth = 0_i32;
    for (at, byte) in text.bytes().enumerate().rev() {
        depth += i32::from(byte == b')') - i32::from(byte == b'(');
        if depth <= 0 {
            let is_module = byte == b'(' && (at == 0 || text.as_bytes()[at - 1] == b' ');
            return match is_module {
                true => (text[..at].trim_end(), &text[at + 1..text.len() - 1]),
                false => (text, ""),
            };
        }
    }
    (text, "")
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
    // Since 5.16 `Remote` may also be another core of this node.
    let neighbour = has("core, same node");
    let far = has("Remote") && !neighbour;
    let snooped = ["HitM", "Fwd", "Peer"].iter().any(|word| snoop.contains(word));
    let missed = level.ends_with("miss");
    if ["RAM", "PMEM", "CXL", "Ext Mem", "Extension mem"].iter().any(|word| has(word)) {
        return Answer::Miss(if far { Class::RemoteMemory } else { Class::LocalMemory });
    }
    if far {
        // Any other level than memory counts as a cache there.
        return Answer::Miss(Class::RemoteTransfer);
    }
    if snooped || neighbour {
        return Answer::Miss(Class::LocalTransfer);
    }
    if has("L3") || has("Any cache") {
        return Answer::Miss(if missed { Class::LocalMemory } else { Class::LastLevel });
    }
    if !missed
        && ["L0", "L1", "L2", "LFB", "MAB", "MHB", "Fill Buffer"].iter().any(|word| has(word))
    {
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
        check("Remote core, same node Any cache hit", "HitM", Miss(Class::LocalTransfer));
        check("Remote core, same node Any cache hit", "N/A", Miss(Class::LocalTransfer));
        check("Remote node, same socket Any cache hit", "HitM", Miss(Class::RemoteTransfer));
        check("Remote node, same socket RAM hit", "N/A", Miss(Class::RemoteMemory));
        check("Remote socket, same board Any cache hit", "N/A", Miss(Class::RemoteTransfer));
        check("L3 or L3 hit", "None", Miss(Class::LastLevel));
        check("LFB/MAB or LFB/MAB hit", "None", Hit);
        check("Cache Fill Buffer hit", "N/A", Hit);
        check("Local RAM or RAM hit", "N/A", Miss(Class::LocalMemory));
        check("PMEM hit", "None", Miss(Class::LocalMemory));
        check("Ext Mem hit", "N/A", Miss(Class::LocalMemory));
        check("L2 MHB hit", "N/A", Hit);
        check("N/A or N/A hit", "N/A", Unknown);
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
        assert_eq!((bare.operation, bare.answer), (Some(Operation::Store), Answer::Hit));
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

    /// Operation, answer, weight and symbol.
    fn short(text: &str) -> (Option<Operation>, Answer, u64, String) {
        let parsed = head(text).unwrap_or_else(|| panic!("{text}"));
        let symbol = parsed.frames.first().map_or("", |called| &called.symbol).to_owned();
        (parsed.operation, parsed.answer, parsed.weight, symbol)
    }

    #[test]
    fn lines_of_intel_are_read() {
        use Operation::{CompareExchange, Load, Store};
        // A period, a hybrid machine's event, tabs, three weights.
        let hybrid = "web content 46572 [002] 544966.882384:      10000         cpu_core/MEM_UOPS.LATENCY/:     7ffdf1391b0c      10268100142 |OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK    N/A\t  5   7    0     7fad7c47425d [unknown] (/usr/lib64/libglib-2.0.so)";
        assert_eq!(short(hybrid), (Some(Load), Answer::Hit, 5, "0x7fad7c47425d".into()));
        let remote = "db 12/34 [101] 1.5: cpu/mem-loads,ldlat=30/P: ffff888812345678 1e00 |OP LOAD|LVL Remote Cache (1 hop) hit|SNP HitM|TLB L2 miss|LCK Yes|BLK  N/A 812 ffffffff82429168 down_read+0x1c ([kernel.kallsyms])";
        let far = Answer::Miss(Class::RemoteTransfer);
        assert_eq!(short(remote), (Some(CompareExchange), far, 812, "down_read".into()));
        let store = "db 34 [101] 1.5: cpu/mem-stores/P: 7f0012345678 5080144 |OP STORE|LVL L1 hit|SNP N/A|TLB L1 or L2 hit|LCK No|BLK  N/A 0 55b3c122bffc std::vector<int, std::allocator<int> >::push_back+0x3 (/usr/bin/my db)";
        let name = "std::vector<int, std::allocator<int> >::push_back";
        assert_eq!(short(store), (Some(Store), Answer::Hit, 0, name.into()));
        // Both levels, of perf 6.0 to 6.7.
        let twice = "db 34 1.5: ev:ppp: 7f00 10668100842 |OP LOAD|LVL L3 or L3 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A 47 401136 f (b)";
        assert_eq!(short(twice).1, Answer::Miss(Class::LastLevel));
    }

    #[test]
    fn lines_of_amd_are_read() {
        // Most samples of IBS are of instructions that access nothing.
        let other = "db 34 [007] 9.25: ibs_op//: 0 1e05080021 |OP N/A|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A 0 401136 f (b)";
        assert_eq!((short(other).0, short(other).3), (None, "f".into()));
        let near = "db 34 [007] 9.25: ibs_op//: 7f00 12 |OP LOAD|LVL Remote core, same node Any cache hit|SNP HitM|TLB L1 hit|LCK N/A|BLK 310 401136 f (b)";
        let transfer = Answer::Miss(Class::LocalTransfer);
        assert_eq!(short(near), (Some(Operation::Load), transfer, 310, "f".into()));
        // perf cuts the text after 82 letters, wherever that is.
        for cut in ["TLB L1 hit|LC", "TLB L1 hit|LCK", "TLB L1 or", "TLB L1 hit|", "TL"] {
            let line = format!(
                "db 34 [007] 9.25: ibs_op//: 7f00 12 |OP LOAD|LVL Remote node, same socket Any cache hit|SNP HitM|{cut} 310 401136 f (b)"
            );
            let far = Answer::Miss(Class::RemoteTransfer);
            assert_eq!(short(&line), (Some(Operation::Load), far, 310, "f".into()), "{line}");
        }
    }

    #[test]
    fn lines_of_arm_are_read_once() {
        let again = |event: &str, source: &str| {
            short(&format!(
                "ls 14753 [011]  3678.072400:          1    {event}:   ffffa7c20000      {source} ffffa7c22b4b2a00 [unknown] ([kernel.kallsyms])"
            ))
        };
        let marked = "88000182 |OP LOAD|LVL L2 hit|SNP Peer|TLB Walker hit|LCK No|BLK  N/A|AFF N/A";
        let transfer = Answer::Miss(Class::LocalTransfer);
        let symbol = "0xffffa7c22b4b2a00".to_owned();
        assert_eq!(again("memory", marked), (Some(Operation::Load), transfer, 0, symbol.clone()));
        for event in ["l1d-access", "tlb-access", "llc-miss", "remote-access"] {
            assert_eq!(again(event, marked).0, None, "{event}");
        }
        // Words behind the operation, and its final kind.
        let simd = "444000288100144 |OP STORE SIMD|LVL L1 hit|SNP None|TLB Walker hit|LCK No|BLK  N/A|AFF PRED SG";
        assert_eq!(again("memory", simd).0, Some(Operation::Store));
        let atomic =
            "288100142 |OP LOAD|LVL L1 hit|SNP HitM|TLB Walker hit|LCK No|BLK  N/A|AFF ATOMIC AR";
        assert_eq!(again("memory", atomic).0, Some(Operation::CompareExchange));
        // perf before 5.18 had neither `|OP` nor `|LVL`: the number says the operation.
        let old = "88000182 Remote Cache (1 hop) hit|SNP HitM|TLB Walker hit|LCK No|BLK  N/A";
        let far = Answer::Miss(Class::RemoteTransfer);
        assert_eq!(again("memory", old), (Some(Operation::Load), far, 0, symbol));
        let stored = "88000184 L1 miss|SNP N/A|TLB Walker hit|LCK No|BLK  N/A";
        assert_eq!(again("memory", stored).0, Some(Operation::Store));
    }

    #[test]
    fn modules_and_numbers_have_their_forms() {
        let called = |text: &str| {
            let called = frame(text).unwrap();
            (called.address, called.symbol, called.module)
        };
        let part = |address: u64, symbol: &str, module: &str| {
            (address, symbol.to_owned(), module.to_owned())
        };
        let mapped = called("7f00 f(int, (anonymous namespace)::B)+0x1 (/dev/zero (deleted))");
        let symbol = "f(int, (anonymous namespace)::B)";
        assert_eq!(mapped, part(0x7f00, symbol, "/dev/zero (deleted)"));
        assert_eq!(called("0x7f00 f"), part(0x7f00, "f", "[unknown]"));
        assert_eq!(called("7f00 f(int)"), part(0x7f00, "f(int)", "[unknown]"));
        assert_eq!(called("7f00 ([kernel.kallsyms].init.text)").2, "[kernel.kallsyms].init.text");
        assert_eq!(frame("12345678901234567890 f (b)"), None);
        let written = "p 34 1.5: ev: 0x7f00 0x68 |OP LOAD|LVL RAM hit|SNP None|TLB L1 hit|LCK No|BLK  N/A 0x401abc f (b)";
        assert_eq!((head(written).unwrap().address, short(written).3), (0x7f00, "f".into()));
    }

    #[test]
    fn what_is_no_sample_is_none() {
        for text in [
            "",
            "prog 34 1.5: cycles: 4010 f (b)",
            "prog x ev: ff00 68 |OP LOAD|LVL RAM hit|LCK No 1 2 f (b)",
            "prog 34 ev: zz00 68 |OP LOAD|LVL RAM hit|LCK No 1 2 f (b)",
            "prog 34 ev ff00 68 |OP LOAD|LVL RAM hit|LCK No 1 2 f (b)",
            "prog 34 ev: 68 |OP LOAD|LVL RAM hit|LCK No 1 2 f (b)",
            "prog 34 ev: ff00 68 RAM hit 1 2 f (b)",
            "prog 34 ff00 68 RAM hit|SNP None 1 2 f (b)",
            "|SNP None",
            "|OP LOAD|LVL RAM hit",
        ] {
            assert_eq!(head(text), None, "{text}");
        }
    }
}
