//! Rules for source files: headers, length, unfinished code, notes at `unsafe` and at orderings.
//!
//! # Boundary
//! Looks at one file at a time. A *note* is a comment line close above the site it explains.

use super::Fault;
use super::code::{Code, has_word};
use crate::tree::Tree;

const LINES_MAX: usize = 900;
/// Documents that a test prints from the flags: as long as the helps are.
const PRINTED: &str = "docs/reference";
const SAFETY_WITHIN: usize = 8;
const ORDERING_WITHIN: usize = 6;
/// The only crates that may hold `unsafe` code. The last two are no part of a file system: three system calls of tools,
/// and the library loaded into programs under analysis (decision 0016).
const UNSAFE_ROOMS: &[&str] = &[
    "crates/concurrent/",
    "crates/containers/",
    "crates/fuse-device/",
    "crates/residency/",
    "crates/contention-runtime/",
];
/// A crate that only one room may name: the room can then be replaced alone.
const NAMED_IN: &[(&str, &str)] = &[("io_uring", "crates/fuse-device/")];
/// Rooms whose texts a user reads, and words of ours for which the field has one; docs/glossary.md has them all.
const SPEAKING: &[&str] = &[
    "crates/cli/",
    "crates/cleaning/",
    "crates/image-tools/",
    "crates/http/",
    "crates/metrics/",
    "crates/live/",
    "crates/client/",
    "crates/contention-cli/",
    "crates/control/",
    "crates/terminal/",
];
const IDIOMS: &[(&str, &str)] = &[
    ("let go of", "`evict`"),
    ("believed", "`valid`"),
    ("goes last", "`evicted last`"),
    ("goes first", "`evicted first`"),
    ("go last", "`evicted last`"),
    ("go first", "`evicted first`"),
    ("held back", "`dirty`"),
    ("heard of", "`shown` or `reported`"),
    ("whoever", "the actor's name"),
    ("in vain", "what did not happen"),
];
const UNFINISHED: &[&str] = &["todo!", "unimplemented!", "dbg!", "#[ignore"];
/// The place that names std's atomics: other code uses this module, which models and tallies watch.
const DOOR: &str = "crates/concurrent/src/primitive";
/// Orderings that order other accesses, so that another thread has the matching one.
const ORDERING_OTHERS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];
const ORDERINGS: &[&str] = &["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"];

pub(super) fn faults(tree: &Tree) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (path, text) in tree.files() {
        let judged = [".rs", ".sh", ".py", ".md"].iter().any(|ending| path.ends_with(ending));
        if judged && !path.starts_with(PRINTED) {
            length(path, text, &mut faults);
        }
        if path.ends_with(".rs") {
            rust(tree, path, text, &mut faults);
        }
    }
    faults
}

fn rust(tree: &Tree, path: &str, text: &str, faults: &mut Vec<Fault>) {
    if path.starts_with("crates/") {
        header(path, text, faults);
        forbids_unsafe(path, text, faults);
    }
    let code = Code::new(text);
    let notes: Vec<&str> = text.lines().collect();
    let imported = imported(&code);
    let constants = ordering_constants(&code);
    let exempt = is_tests_only(tree, path) || is_about_others(&code);
    let spoken = SPEAKING.iter().any(|room| path.starts_with(room)) && !is_tests_only(tree, path);
    let shut_out = comes_through_the_door(tree, path);
    for (line, code, test) in code.lines() {
        for word in UNFINISHED.iter().filter(|word| code.contains(**word)) {
            faults.push(Fault::new(
                path,
                line,
                format!("`{word}` is unfinished or debugging code"),
            ));
        }
        // Help texts are documentation comments and long strings, all in files of this name.
        if spoken && !test && (notes[line - 1].contains('"') || path.ends_with("flags.rs")) {
            for (idiom, word) in IDIOMS.iter().filter(|(idiom, _)| notes[line - 1].contains(idiom))
            {
                let message = format!("users read `{idiom}`; say {word} (docs/glossary.md)");
                faults.push(Fault::new(path, line, message));
            }
        }
        let says_skipped = notes[line - 1].contains("println!(\"skipped: ");
        if says_skipped && (test || is_tests_only(tree, path)) {
            let what = "the output of a test that passes is hidden; use `uvfs_skip`";
            faults.push(Fault::new(path, line, what));
        }
        for (crate_name, room) in NAMED_IN {
            if has_word(code, crate_name) && !path.starts_with(room) && path.starts_with("crates/")
            {
                let what = format!("`{crate_name}` is named only in `{room}`");
                faults.push(Fault::new(path, line, what));
            }
        }
        if code.contains("compile_error!") {
            let what = "does not compile everywhere, as `cargo test` is to; leave it out by `cfg`";
            faults.push(Fault::new(path, line, what));
        }
        if has_word(code, "unsafe") && !noted(&notes, line, SAFETY_WITHIN, &["SAFETY", "# Safety"])
        {
            faults.push(Fault::new(path, line, "`unsafe` without a SAFETY note above it"));
        }
        if !test && !exempt && shut_out && names_std_atomics(code) {
            let what = "std's atomics; `uvfs_concurrent::primitive::atomic` are seen by models and tallies";
            faults.push(Fault::new(path, line, what));
        }
        let alone = !test && !exempt && shut_out && notes[line - 1].contains("// ORDERING:");
        if alone && lacks_partner(&notes[line - 1..]) {
            let what = "an ORDERING note that does not name its partner";
            faults.push(Fault::new(path, line, what));
        }
        let ordered =
            !test && !exempt && (names_ordering(code, &imported) || orders_by(code, &constants));
        if ordered && !noted(&notes, line, ORDERING_WITHIN, &["ORDERING"]) {
            faults.push(Fault::new(
                path,
                line,
                "an atomic ordering without an ORDERING note above it",
            ));
        }
    }
}

/// Whether a file belongs to a crate that can name the door, and is not the door itself.
fn comes_through_the_door(tree: &Tree, path: &str) -> bool {
    let mut parts = path.splitn(3, '/');
    let (Some("crates"), Some(name), Some(_)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let manifest = tree.text(&format!("crates/{name}/Cargo.toml"));
    manifest.is_some_and(|text| text.contains("uvfs-concurrent")) && !path.starts_with(DOOR)
}

fn names_std_atomics(code: &str) -> bool {
    ["std::sync", "core::sync"].iter().any(|module| code.contains(module))
        && has_word(code, "atomic")
}

/// Whether the note that begins with the first of `lines` names an ordering with a partner, but no partner: neither
/// "partner", nor a name in backticks, nor a numbered pair.
fn lacks_partner(lines: &[&str]) -> bool {
    let comment = |line: &&str| line.trim_start().strip_prefix("//").map(str::to_owned);
    let more = lines.iter().skip(1).map_while(comment);
    let more = more.take_while(|line| !line.contains("ORDERING") && !line.contains("SAFETY"));
    let note: String = lines.iter().take(1).map(|line| (*line).to_owned()).chain(more).collect();
    let numbered = |(at, _): (usize, &str)| {
        note[at + 2..].chars().next().is_some_and(|next| next.is_ascii_digit())
    };
    let other_side =
        note.contains("partner") || note.contains('`') || note.match_indices("(O").any(numbered);
    ORDERING_OTHERS.iter().any(|word| has_word(&note, word)) && !other_side
}

/// Whether a file is compiled only for tests: it is in a folder of tests, or the module above it declares it under
/// `cfg(test)`.
pub(super) fn is_tests_only(tree: &Tree, path: &str) -> bool {
    path.starts_with("tests/") || path.contains("/tests/") || is_declared_for_tests(tree, path)
}

fn is_declared_for_tests(tree: &Tree, path: &str) -> bool {
    let Some((folder, file)) = path.trim_end_matches(".rs").rsplit_once('/') else { return false };
    let declaration = format!("mod {file};");
    let inside = ["mod.rs", "lib.rs", "main.rs"].map(|root| format!("{folder}/{root}"));
    inside.iter().chain([&format!("{folder}.rs")]).any(|above| {
        let Some(text) = tree.text(above) else { return false };
        let lines: Vec<&str> = text.lines().collect();
        lines.windows(2).any(|pair| {
            pair[0].starts_with("#[cfg(") && has_word(pair[0], "test") && pair[1] == declaration
        })
    })
}

fn length(path: &str, text: &str, faults: &mut Vec<Fault>) {
    let lines = text.lines().count();
    if lines > LINES_MAX {
        faults.push(Fault::new(path, 0, format!("{lines} lines; split it below {LINES_MAX}")));
    }
}

/// The first line that is neither blank nor a crate attribute opens the module's documentation.
fn header(path: &str, text: &str, faults: &mut Vec<Fault>) {
    let first =
        text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with("#!["));
    if !first.is_some_and(|line| line.starts_with("//!")) {
        faults.push(Fault::new(path, 1, "opens without a `//!` header"));
    }
}

fn forbids_unsafe(path: &str, text: &str, faults: &mut Vec<Fault>) {
    let crate_root = path.ends_with("/src/lib.rs") || path.ends_with("/src/main.rs");
    if !crate_root || UNSAFE_ROOMS.iter().any(|room| path.starts_with(room)) {
        return;
    }
    if !text.lines().any(|line| line.trim() == "#![forbid(unsafe_code)]") {
        faults.push(Fault::new(path, 1, "lacks `#![forbid(unsafe_code)]`"));
    }
}

/// Whether all `Ordering`s of a file are data about another program, like those of profiles.
fn is_about_others(code: &Code) -> bool {
    let uses = |what: &str| code.lines().any(|(_, line, _)| is_use(line) && line.contains(what));
    uses("profile::") && !uses("atomic")
}

/// The orderings that a file imports by their bare names.
fn imported(code: &Code) -> Vec<&'static str> {
    let uses: Vec<_> = code.lines().map(|(_, line, _)| line).filter(|line| is_use(line)).collect();
    let named =
        |word: &&&str| uses.iter().any(|line| has_word(line, "Ordering") && has_word(line, word));
    let all = uses.iter().any(|line| line.contains("Ordering::*"));
    ORDERINGS.iter().filter(|word| all || named(word)).copied().collect()
}

/// The constants of a file that stand for an ordering.
fn ordering_constants<'a>(code: &'a Code) -> Vec<&'a str> {
    let constant = |line: &'a str| {
        let (head, _) = line.split_once(": Ordering =")?;
        let (before, name) = head.rsplit_once(' ')?;
        before.split(' ').any(|word| matches!(word, "const" | "static")).then_some(name)
    };
    code.lines().filter_map(|(_, line, _)| constant(line)).collect()
}

/// Whether an atomic is accessed with one of `constants`.
fn orders_by(code: &str, constants: &[&str]) -> bool {
    is_access(code) && constants.iter().any(|name| has_word(code, name))
}

fn is_access(code: &str) -> bool {
    ["load(", "store(", "swap(", "fetch_", "compare_exchange", "fence("]
        .iter()
        .any(|call| code.contains(call))
}

pub(super) fn is_use(code: &str) -> bool {
    let code = code.trim_start();
    code.starts_with("use ") || code.starts_with("pub use ") || code.starts_with("pub(crate) use ")
}

/// `Ordering::Release`, or the bare word where it was imported or stands in an atomic's call.
fn names_ordering(code: &str, imported: &[&str]) -> bool {
    let call = is_access(code);
    let named = |word: &&str| {
        let bare = call || imported.contains(word);
        code.contains(&format!("Ordering::{word}")) || (bare && has_word(code, word))
    };
    !is_use(code) && ORDERINGS.iter().any(named)
}

/// Whether one of `words` stands in a comment on `line` or at most `within` lines above it.
fn noted(lines: &[&str], line: usize, within: usize, words: &[&str]) -> bool {
    let above = &lines[line.saturating_sub(within + 1)..line.min(lines.len())];
    above
        .iter()
        .filter_map(|text| text.split_once("//"))
        .any(|(_, comment)| words.iter().any(|word| comment.contains(word)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of one file, as `line: message` without the path.
    fn check(path: &str, text: &str) -> Vec<(usize, String)> {
        let faults = faults(&Tree::made_up(&[(path, text)]));
        faults.into_iter().map(|fault| (fault.line, fault.message)).collect()
    }

    #[test]
    fn a_crate_root_forbids_unsafe_except_in_its_room() {
        assert_eq!(check("crates/vfs/src/lib.rs", "#![forbid(unsafe_code)]\n//! Core.\n"), []);
        assert!(check("crates/vfs/src/lib.rs", "//! Core.\n")[0].1.contains("forbid"));
        assert!(check("crates/cli/src/main.rs", "//! Tool.\n")[0].1.contains("forbid"));
        assert_eq!(check("crates/concurrent/src/lib.rs", "//! Threads.\n"), []);
        assert_eq!(check("crates/residency/src/lib.rs", "//! Calls.\n"), []);
        assert_eq!(check("crates/contention-runtime/src/lib.rs", "//! Loaded.\n"), []);
        assert!(check("crates/contention/src/lib.rs", "//! Reports.\n")[0].1.contains("forbid"));
    }

    #[test]
    fn rings_are_named_in_their_crate_alone() {
        let text = "//! A.\nuse io_uring::IoUring;\n// io_uring\nlet a = \"io_uring\";\n";
        assert_eq!(check("crates/fuse-device/src/a.rs", text), []);
        let faults = check("crates/fuse/src/mount.rs", text);
        assert!(matches!(&faults[..], [(2, message)] if message.contains("fuse-device")));
    }

    #[test]
    fn a_file_of_a_crate_opens_with_its_header() {
        assert_eq!(check("crates/vfs/src/a.rs", "use x;\n")[0].0, 1);
        assert_eq!(check("crates/vfs/src/a.rs", "\n//! A.\n"), []);
        assert_eq!(check("bench/src/a.rs", "use x;\n"), []);
    }

    #[test]
    fn long_files_are_named() {
        assert_eq!(check("docs/a.md", &"x\n".repeat(900)), []);
        assert!(check("docs/a.md", &"x\n".repeat(901))[0].1.starts_with("901 lines"));
    }

    #[test]
    fn unfinished_code_is_found_but_not_its_name() {
        let found =
            check("bench/src/a.rs", "fn a() {\n  todo!()\n}\n#[ignore = \"x\"]\nfn b() {}\n");
        assert_eq!(found.iter().map(|fault| fault.0).collect::<Vec<_>>(), [2, 4]);
        assert_eq!(check("bench/src/a.rs", "// todo! later\nlet x = \"dbg!\";\n"), []);
    }

    /// Bug: a crate for one processor alone made plain `cargo test` fail on every other one.
    #[test]
    fn code_for_one_machine_is_left_out_and_no_error() {
        let refused = check("bench/src/a.rs", "#[cfg(not(unix))]\ncompile_error!(\"no\");\n");
        assert_eq!(refused[0].0, 2);
        assert_eq!(check("bench/src/a.rs", "// No compile_error! here.\n#![cfg(unix)]\n"), []);
    }

    #[test]
    fn unsafe_wants_its_note_in_tests_too() {
        let argued = "// SAFETY: P2.\nunsafe { f() }\n";
        assert_eq!(check("bench/src/a.rs", argued), []);
        assert_eq!(check("bench/src/a.rs", "unsafe { f() }\n").len(), 1);
        let far = format!("// SAFETY: P2.\n{}unsafe {{ f() }}\n", "g();\n".repeat(8));
        assert_eq!(check("bench/src/a.rs", &far)[0].0, 10);
        assert_eq!(
            check("bench/src/a.rs", "#[cfg(test)]\nmod t {\n unsafe fn f() {}\n}\n").len(),
            1
        );
    }

    #[test]
    fn an_import_is_no_use_but_makes_bare_words_count() {
        let import = "use std::sync::atomic::Ordering::{Acquire, Relaxed};\n";
        assert_eq!(check("bench/src/a.rs", import), []);
        assert_eq!(
            check("bench/src/a.rs", &format!("{import}x.update(\n    Acquire,\n)\n"))[0].0,
            3
        );
        assert_eq!(check("bench/src/a.rs", &format!("{import}Request::Release => 1,\n")), []);
    }

    /// A whole module accessed its atomics by `ORDER`, with one note at the constant and none where it was used.
    #[test]
    fn an_ordering_behind_a_constant_is_one() {
        let named =
            "// ORDERING: Relaxed; one thread.\nconst ORDER: Ordering = Ordering::Relaxed;\n";
        let far = "f();\n".repeat(8);
        let check = |site: &str| check("bench/src/a.rs", &format!("{named}{far}{site}"));
        assert_eq!(check("x.load(ORDER);\n")[0].0, 11);
        assert_eq!(check("x.store(1, ORDER);\n").len(), 1);
        assert_eq!(check("// ORDERING: Relaxed; as above.\nx.load(ORDER);\n"), []);
        assert_eq!(check("list.sort(ORDER);\nx.load(ORDERED);\n"), []);
    }

    #[test]
    fn users_read_the_words_of_the_field() {
        let line = "    let text = \"let go of 3 inodes\";\n";
        let header = "//! x\n#![forbid(unsafe_code)]\n";
        let faults = |path: &str, line: &str| check(path, &format!("{header}{line}")).len();
        assert_eq!(faults("crates/cli/src/a.rs", line), 1);
        assert_eq!(faults("crates/cli/src/flags.rs", "/// How long a name is believed\n"), 1);
        assert_eq!(faults("crates/cli/src/a.rs", "// Names are let go of.\n"), 0);
        assert_eq!(faults("crates/vfs/src/a.rs", line), 0);
        assert_eq!(faults("crates/cli/tests/a.rs", line), 0);
    }

    #[test]
    fn a_test_says_aloud_that_it_was_skipped() {
        let line = "println!(\"skipped: no root\");\n";
        assert_eq!(check("tests/tests/a.rs", line).len(), 1);
        let unit = format!("#[cfg(test)]\nmod t {{\n{line}}}\n");
        assert_eq!(check("bench/src/a.rs", &unit).len(), 1);
        assert_eq!(check("bench/src/a.rs", line), []);
    }

    /// Ten files of the directory backend used std's atomics: no tally saw their stores.
    #[test]
    fn atomics_come_through_the_door() {
        let manifest = ("crates/vfs/Cargo.toml", "[dependencies]\nuvfs-concurrent = {}\n");
        let found = |path: &str, text: &str| {
            let other = ("crates/alone/Cargo.toml", "[package]\n");
            let inside = ("crates/concurrent/Cargo.toml", "name = \"uvfs-concurrent\"\n");
            faults(&Tree::made_up(&[manifest, other, inside, (path, text)])).len()
        };
        let product = "//! A.\nuse std::sync::atomic::AtomicU64;\n";
        assert_eq!(found("crates/vfs/src/a.rs", product), 1);
        assert_eq!(found("crates/vfs/src/a.rs", "//! A.\nuse std::sync::{Arc, atomic};\n"), 1);
        assert_eq!(found("crates/alone/src/a.rs", product), 0, "it does not link the door");
        assert_eq!(found("crates/concurrent/src/primitive/a.rs", product), 0, "the door");
        assert_eq!(found("crates/concurrent/src/a.rs", product), 1);
        let test = "//! A.\n#[cfg(test)]\nmod t {\n    use std::sync::atomic::AtomicU8;\n}\n";
        assert_eq!(found("crates/vfs/src/a.rs", test), 0);
        let door = "//! A.\nuse uvfs_concurrent::primitive::atomic::AtomicU64;\n";
        assert_eq!(found("crates/vfs/src/a.rs", door), 0);
    }

    #[test]
    fn an_ordering_note_names_its_partner() {
        let manifest = ("crates/vfs/Cargo.toml", "[dependencies]\nuvfs-concurrent = {}\n");
        let found = |note: &str| {
            let text = format!("//! A.\n{note}\nx.load(Ordering::Acquire);\n");
            faults(&Tree::made_up(&[manifest, ("crates/vfs/src/a.rs", &text)])).len()
        };
        assert_eq!(found("// ORDERING: Acquire; what came before is seen."), 1);
        assert_eq!(found("// ORDERING: Acquire, partner `set`."), 0);
        assert_eq!(found("// ORDERING: Acquire: what came before is seen\n// by `set`."), 0);
        assert_eq!(found("// ORDERING: Acquire (O3)."), 0);
        assert_eq!(found("// ORDERING: Acquire (Of course)."), 1);
        assert_eq!(found("// ORDERING: Relaxed; a size."), 0);
    }

    #[test]
    fn an_ordering_wants_its_note_outside_tests() {
        let bare = "x.load(Ordering::Acquire);\n";
        assert_eq!(check("bench/src/a.rs", bare).len(), 1);
        assert_eq!(check("bench/src/a.rs", "x.store(1, Release);\n").len(), 1);
        assert_eq!(
            check("bench/src/a.rs", &format!("// ORDERING: Acquire, partner `f`.\n{bare}")),
            []
        );
        assert_eq!(check("tests/tests/a.rs", bare), []);
        let declared = |declaration: &str| {
            let files = [("bench/src/a/mod.rs", declaration), ("bench/src/a/models.rs", bare)];
            faults(&Tree::made_up(&files)).len()
        };
        assert_eq!(declared("#[cfg(all(test, loom))]\nmod models;\n"), 0);
        let beside =
            [("bench/src/a.rs", "#[cfg(test)]\nmod tests;\n"), ("bench/src/a/tests.rs", bare)];
        assert_eq!(faults(&Tree::made_up(&beside)).len(), 0);
        let of_profiles = "use uvfs_coherence::profile::Ordering;\nOrdering::Acquire => 1,\n";
        assert_eq!(check("bench/src/a.rs", of_profiles), []);
        let both = format!("use std::sync::atomic::AtomicU8;\n{of_profiles}");
        assert_eq!(check("bench/src/a.rs", &both).len(), 1);
        assert_eq!(declared("mod models;\n"), 1, "its name alone does not make it a test");
        assert_eq!(check("bench/src/a.rs", &format!("#[cfg(test)]\nmod t {{\n{bare}}}\n")), []);
        assert_eq!(
            check("bench/src/a.rs", "Request::Release => x.cmp(y) == Ordering::Less,\n"),
            []
        );
    }
}
