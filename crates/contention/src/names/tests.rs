//! Names of programs that are compiled when the tests run.
//!
//! Each fixture prints where it allocated and where its variables are, so that no runtime is needed.

use super::*;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use uvfs_coherence::Machine;
use uvfs_coherence::profile::Module;
use uvfs_coherence::profile::*;

/// A compiled fixture and its output.
struct Fixture {
    path: PathBuf,
    objects: Vec<(String, u64, Vec<u64>)>,
    variables: Vec<(String, u64)>,
    _directory: tempfile::TempDir,
}

/// Compiles `source` with `command`, to which the output's and the source's path are appended, and runs it.
fn compile(compiler: &str, arguments: &[&str], source: &str) -> Option<Fixture> {
    if Command::new(compiler).arg("--version").output().is_err() {
        uvfs_skip::lacking(format_args!("no {compiler}"));
        return None;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects");
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/names/fixtures").join(source);
    let mut command = Command::new(compiler);
    command.args(arguments).arg("-o").arg(&path).arg(&source).current_dir(directory.path());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let output = Command::new(&path).output().unwrap();
    assert!(output.status.success(), "{:?}", output.status);
    let (mut objects, mut variables) = (Vec::new(), Vec::new());
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let numbers = || words[2..].iter().map(|word| word.parse().unwrap()).collect::<Vec<u64>>();
        match words[0] {
            "object" => {
                let numbers = numbers();
                objects.push((words[1].to_string(), numbers[0], numbers[1..].to_vec()));
            }
            "variable" => variables.push((words[1].to_string(), numbers()[0])),
            _ => panic!("{line}"),
        }
    }
    Some(Fixture { path, objects, variables, _directory: directory })
}

const RUST: [&str; 7] = [
    "--edition=2024",
    "-g",
    "-O",
    "-Cforce-frame-pointers=yes",
    "--crate-name",
    "objects",
    "-Adead_code",
];
const C: [&str; 3] = ["-g", "-O1", "-fno-omit-frame-pointer"];

fn rust() -> Option<&'static Fixture> {
    static FIXTURE: OnceLock<Option<Fixture>> = OnceLock::new();
    FIXTURE.get_or_init(|| compile("rustc", &RUST, "objects.rs")).as_ref()
}

fn c() -> Option<&'static Fixture> {
    static FIXTURE: OnceLock<Option<Fixture>> = OnceLock::new();
    FIXTURE.get_or_init(|| compile("gcc", &C, "objects.c")).as_ref()
}

pub(super) fn empty(path: &Path) -> Profile {
    Profile {
        meta: Meta {
            format: FORMAT,
            tool: "test".into(),
            mode: Mode::Simulated,
            command: Vec::new(),
            machine: Machine::default(),
            computing: true,
            what_if: Vec::new(),
        },
        runs: Vec::new(),
        modules: vec![Module { id: 0, path: path.display().to_string(), build_id: None }],
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

pub(super) fn object(id: u32, kind: ObjectKind, size: u64, frames: &[u64]) -> Object {
    let frames = frames.iter().map(|offset| Place { module: 0, offset: *offset }).collect();
    Object {
        seed: 1,
        id,
        kind,
        address: 0x7000_0000,
        size,
        ordinal: 0,
        frames,
        thread: 0,
        name: String::new(),
        type_id: None,
        array: false,
        allocated_in: String::new(),
    }
}

pub(super) fn sample(object: u32, offset: u64) -> Sample {
    Sample {
        seed: 1,
        object,
        offset,
        site: 0,
        class: Class::LocalTransfer,
        count: 1,
        false_shared: 0,
        service: 1,
        queue: 0,
        cores: vec![3],
        writer: None,
    }
}

fn site(id: u32, offset: u64, callers: &[u64]) -> Site {
    Site {
        seed: 1,
        id,
        place: Place { module: 0, offset },
        callers: callers.iter().map(|offset| Place { module: 0, offset: *offset }).collect(),
        operation: Operation::FetchAdd,
        bytes: 8,
        ordering: Ordering::Relaxed,
        frames: Vec::new(),
        function: String::new(),
    }
}

/// The profile of all objects of a fixture, named.
fn named(fixture: &Fixture) -> Profile {
    let mut profile = empty(&fixture.path);
    for (i, (_, size, frames)) in fixture.objects.iter().enumerate() {
        profile.objects.push(object(i as u32, ObjectKind::Heap, *size, frames));
    }
    name(&mut profile).unwrap();
    profile
}

fn layout<'p>(profile: &'p Profile, object: &Object) -> &'p Type {
    profile.types.iter().find(|of| Some(of.id) == object.type_id).unwrap()
}

fn find<'p>(fixture: &Fixture, profile: &'p Profile, name: &str) -> &'p Object {
    let at = fixture.objects.iter().position(|object| object.0 == name).unwrap();
    &profile.objects[at]
}

fn check(fixture: &Fixture, profile: &Profile, name: &str, expected: &str, array: bool) {
    let object = find(fixture, profile, name);
    assert_eq!((object.name.as_str(), object.array), (expected, array), "{name}");
}

/// The fields of a type, as `offset bytes path`.
fn lines(of: &Type) -> Vec<String> {
    let line = |field: &Field| format!("{} {} {}", field.offset, field.bytes, field.path);
    of.fields.iter().map(line).collect()
}

fn has(of: &Type, expected: &[&str]) {
    let lines = lines(of);
    for line in expected {
        assert!(lines.iter().any(|found| found == line), "`{line}` is not in {lines:#?}");
    }
}

#[test]
fn rust_allocations_have_the_type_of_their_parameter() {
    let Some(fixture) = rust() else { return };
    let profile = named(fixture);
    let check = |name, expected, array| check(fixture, &profile, name, expected, array);
    check("arc", "ArcInner<Super>", false);
    check("box", "Root", false);
    check("rc", "RcInner<Root>", false);
    check("vec", "[Root]", true);
    check("pushed", "[Root]", true);
    check("string", "[u8]", true);
    check("deque", "[Root]", true);
    check("map", "hashbrown table of (u64, Root)", true);
    check("tree", "LeafNode<u32, Root>", false);
    check("slice", "[u16]", true);
    assert!(find(fixture, &profile, "pushed").allocated_in.starts_with("main::{closure}"));
    assert!(find(fixture, &profile, "slice").allocated_in.starts_with("main::{closure}"));
    let map = find(fixture, &profile, "map");
    assert_eq!(object_field(&profile, map, 24 + 8), "[1].1.lock");
    assert_eq!(object_field(&profile, map, 4 * 24 + 2), "control[2]");
}

#[test]
fn a_rust_layout_reads_as_its_source() {
    let Some(fixture) = rust() else { return };
    let profile = named(fixture);
    let arc = find(fixture, &profile, "arc");
    let of = layout(&profile, arc);
    assert_eq!((of.name.as_str(), of.align), ("alloc::sync::ArcInner<objects::Super>", 128));
    has(
        of,
        &[
            "0 8 strong",
            "8 8 weak",
            "128 4 data.root.lock",
            "136 8 data.root.refcount",
            "144 4 data.m.futex",
            "148 1 data.m.poison.failed",
            "152 8 data.m.data",
            "160 4 data.rw.state",
            "192 8 data.rw.data.len",
            "200 8 data.next",
            "208 8 data.maybe.discriminant",
            "216 8 data.maybe.Some",
            "224 8 data.cell.borrow",
            "232 1 data.cell.value.0",
            "240 1 data.event.discriminant",
            "241 1 data.event.Move.y",
            "244 4 data.event.Tick",
            "248 8 data.event.Move.x",
            "304 4 data.roots[3].lock",
            "320 1600 data.table[]",
            "328 8 data.table[].refcount",
            "1920 8 data.hits",
        ],
    );
    let lock = of.fields.iter().find(|field| field.path == "data.root.lock").unwrap();
    assert_eq!(lock.type_name, "AtomicU32");
    assert_eq!(object_field(&profile, arc, 320 + 57 * 16 + 8), "data.table[57].refcount");
    assert_eq!(object_field(&profile, arc, 132), "padding");
    assert!(of.fields.is_sorted_by_key(|field| field.offset));
}

#[test]
fn c_allocations_have_the_type_that_the_call_says() {
    let Some(fixture) = c() else { return };
    let mut profile = named(fixture);
    let check = |name, expected, array| check(fixture, &profile, name, expected, array);
    check("declared", "dentry", false);
    check("sizeof", "[bucket]", true);
    check("member", "[bucket]", true);
    check("guessed", "odd_one?", false);
    check("flexible", "flexible", false);
    check("untyped", "heap(77) @ untyped (objects.c:156)", false);
    assert_eq!(find(fixture, &profile, "declared").allocated_in, "by_name");
    let of = layout(&profile, find(fixture, &profile, "declared"));
    assert!(of.declared.contains("objects.c:"), "{}", of.declared);
    has(
        of,
        &[
            "0 4 lock",
            "4 4 references",
            "16 8 name.hash",
            "24 4 name.length",
            "32 8 word.whole|number",
            "40 8 siblings.next",
            "48 8 siblings.previous",
            "56 8 flags.rest",
            "56 4 flags.dirty|busy",
            "95 1 inline_name[31]",
        ],
    );
    // The program's own name comes first; a wrong one stays a name.
    profile.objects = vec![
        Object { name: "struct bucket".into(), ..object(0, ObjectKind::Heap, 24, &[]) },
        Object { name: "bucket".into(), ..object(1, ObjectKind::Other, 48, &[1]) },
        Object { name: "struct nobody".into(), ..object(2, ObjectKind::Heap, 24, &[1]) },
    ];
    profile.objects[0].frames = vec![Place { module: 0, offset: 1 }];
    name(&mut profile).unwrap();
    let names: Vec<_> = profile.objects.iter().map(|x| (x.name.as_str(), x.array)).collect();
    assert_eq!(names, [("bucket", false), ("[bucket]", true), ("struct nobody", false)]);
}

/// Locks of a C++ program were called `La_x86_64_regs?.lr_rdx`: the walk of frames had missed the program's own function, and
/// the type was guessed by its size among those of the C library, whose start code came next.
#[test]
fn a_type_is_guessed_only_where_the_allocation_is() {
    let Some(fixture) = c() else { return };
    let directory = fixture.path.parent().unwrap();
    let copy = |name: &str| {
        let path = directory.join(name);
        fs::copy(&fixture.path, &path).unwrap();
        path.display().to_string()
    };
    let (_, size, frames) = &fixture.objects.iter().find(|one| one.0 == "guessed").unwrap();
    let named = |first: &str, second: &str| {
        let mut profile = empty(Path::new(first));
        profile.modules.push(Module { id: 1, path: second.to_string(), build_id: None });
        let inside = text(fixture, "spin_lock").start + 4;
        let mut one = object(0, ObjectKind::Heap, *size, &[inside]);
        one.frames.extend(frames.iter().map(|&offset| Place { module: 1, offset }));
        profile.objects.push(one);
        name(&mut profile).unwrap();
        profile.objects[0].name.clone()
    };
    let own = fixture.path.to_str().unwrap();
    // The C library asks, and a function of the program is further out.
    let found = named(&copy("libc.so.6"), own);
    assert_eq!(found, format!("heap({size}) @ by_size (objects.c:142)"));
    // A library without debug information asks.
    if !objcopy(&["--strip-debug", "objects", "bare"], directory) {
        uvfs_skip::lacking("no objcopy");
        return;
    }
    let bare = directory.join("bare").display().to_string();
    assert_eq!(named(&bare, own), format!("heap({size}) @ spin_lock"));
}

#[test]
fn an_allocation_is_not_taken_for_a_parameter_of_its_line() {
    // `int main(int c, char **v) { counters = calloc(n, sizeof *counters);` in one line was reported as `[char*]`:
    // the parameter was taken for the target of the assignment, and a variable outside functions was not known.
    const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
struct counter { long value; };
struct counter *counters;
extern char __executable_start;
static char *place;
static __attribute__((noinline)) void *get(size_t n, size_t size) { place = __builtin_return_address(0); return calloc(n, size); }
int main(int n, char **names) { counters = get(n + 7, sizeof *counters);
	printf("object global 64 %lu\n", (unsigned long)(place - &__executable_start));
	return names == 0 || counters == 0; }
"#;
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("global.c");
    fs::write(&source, SOURCE).unwrap();
    let Some(fixture) = compile("gcc", &C, source.to_str().unwrap()) else { return };
    check(&fixture, &named(&fixture), "global", "[counter]", true);
}

/// Pieces of 64 bytes around each variable, and the fate of samples on them.
fn variables(fixture: &Fixture) -> Profile {
    let mut profile = empty(&fixture.path);
    for (i, (_, offset)) in fixture.variables.iter().enumerate() {
        profile.objects.push(object(i as u32, ObjectKind::Global, 64, &[offset & !63]));
        profile.samples.push(sample(i as u32, (offset & 63) + 8 * i as u64));
    }
    name(&mut profile).unwrap();
    profile
}

fn fields(profile: &Profile) -> Vec<String> {
    let name = |sample: &Sample| {
        let object = profile.objects.iter().find(|object| object.id == sample.object).unwrap();
        format!("{}: {}", object.name, object_field(profile, object, sample.offset))
    };
    profile.samples.iter().map(name).collect()
}

#[test]
fn variables_are_found_by_address() {
    if let Some(fixture) = rust() {
        assert_eq!(
            fields(&variables(fixture)),
            ["objects::COUNT: objects::COUNT", "objects::ROWS: objects::ROWS[1]"]
        );
    }
    if let Some(fixture) = c() {
        // The last sample is behind the last variable.
        let fields = fields(&variables(fixture));
        assert_eq!(fields[..2], ["nr_dentries: nr_dentries", "buckets: buckets[0].first"]);
    }
}

/// An address of each symbol's function, past its start.
fn text(fixture: &Fixture, name: &str) -> std::ops::Range<u64> {
    let image = image::Image::read(&fixture.path).unwrap();
    let files = Files::with(image, &fixture.path);
    let is = |symbol: &&image::Symbol| functions::brief(&functions::demangle(&symbol.name)) == name;
    let symbol = files.symbols.iter().find(is).unwrap();
    symbol.address + 1..symbol.address + symbol.size
}

#[test]
fn thread_locals_are_found_in_the_block_of_the_file() {
    for (fixture, expected) in [(rust(), vec!["objects::OWN"]), (c(), vec!["mine", "also_mine"])] {
        let Some(fixture) = fixture else { continue };
        let image = image::Image::read(&fixture.path).unwrap();
        let (start, size) = image.thread_part().unwrap();
        let mut profile = empty(&fixture.path);
        profile.objects.push(object(0, ObjectKind::ThreadLocal, size, &[start]));
        profile.samples = (0..size).step_by(4).map(|offset| sample(0, offset)).collect();
        name(&mut profile).unwrap();
        for expected in expected {
            let found = profile.objects.iter().find(|object| object.name == expected).unwrap();
            assert!(found.type_id.is_some() && found.size <= 8, "{found:?}");
        }
    }
}

#[test]
fn sites_have_functions_lines_and_lock_callers() {
    if let Some(fixture) = c() {
        let mut profile = empty(&fixture.path);
        let inside = text(fixture, "spin_lock");
        let caller = text(fixture, "dget");
        profile.sites = vec![site(0, inside.start + 4, &[caller.start + 4])];
        let missing = name(&mut profile).unwrap();
        let site = &profile.sites[0];
        assert_eq!(site.function, "[spinlock] @ dget");
        assert_eq!(site.frames[0].function, "spin_lock");
        assert!(site.frames[0].source.contains("objects.c:1"), "{site:?}");
        assert_eq!(missing, Missing { sites_named: 1, ..Missing::default() });
    }
    if let Some(fixture) = rust() {
        let mut profile = empty(&fixture.path);
        profile.sites = text(fixture, "lookup").map(|offset| site(0, offset, &[])).collect();
        name(&mut profile).unwrap();
        let functions: BTreeSet<&str> =
            profile.sites.iter().map(|site| site.function.as_str()).collect();
        for expected in ["lookup", "[mutex] @ lookup", "[rwlock] @ lookup"] {
            assert!(functions.contains(expected), "{expected} is not in {functions:?}");
        }
        let inlined = profile.sites.iter().max_by_key(|site| site.frames.len()).unwrap();
        assert_eq!(inlined.frames.last().unwrap().function, "objects::lookup");
        assert!(inlined.frames.iter().all(|frame| !frame.source.is_empty()), "{inlined:?}");
    }
}

#[test]
fn the_librarys_locks_are_named_at_their_callers() {
    let Some(fixture) = c() else { return };
    let mut profile = empty(&fixture.path);
    let inside = text(fixture, "by_name").start + 4;
    profile.sites = vec![site(0, inside, &[]), site(1, inside, &[])];
    profile.objects = vec![object(0, ObjectKind::Heap, 64, &[])];
    profile.samples = vec![sample(0, 8), sample(0, 16)];
    profile.samples[1].site = 1;
    profile.locks = vec![globals::tests::lock(0, 8)];
    profile.locks[0].kind = LockKind::Mutex;
    name(&mut profile).unwrap();
    let functions: Vec<_> = profile.sites.iter().map(|site| site.function.as_str()).collect();
    assert_eq!(functions, ["[mutex] @ by_name", "by_name"]);
}

#[test]
fn other_kinds_of_debug_information() {
    let kinds: [&[&str]; 5] = [
        &["-g", "-gdwarf-4", "-O1", "-fno-omit-frame-pointer"],
        &["-g", "-gz=zlib", "-O1", "-fno-omit-frame-pointer"],
        &["-g", "-fdebug-types-section", "-O1", "-fno-omit-frame-pointer"],
        &["-g", "-gdwarf-4", "-fdebug-types-section", "-O1", "-fno-omit-frame-pointer"],
        &["-g", "-gsplit-dwarf", "-O1", "-fno-omit-frame-pointer"],
    ];
    for arguments in kinds {
        let Some(fixture) = compile("gcc", arguments, "objects.c") else { return };
        println!("{arguments:?}");
        let profile = named(&fixture);
        check(&fixture, &profile, "declared", "dentry", false);
        check(&fixture, &profile, "sizeof", "[bucket]", true);
        check(&fixture, &profile, "member", "[bucket]", true);
        let of = layout(&profile, find(&fixture, &profile, "declared"));
        has(of, &["0 4 lock", "40 8 siblings.next"]);
        assert_eq!(fields(&variables(&fixture))[1], "buckets: buckets[0].first", "{arguments:?}");
    }
    let arguments = [
        "-Csplit-debuginfo=unpacked",
        RUST[0],
        RUST[1],
        RUST[2],
        RUST[3],
        RUST[4],
        RUST[5],
        RUST[6],
    ];
    let Some(fixture) = compile("rustc", &arguments, "objects.rs") else { return };
    let profile = named(&fixture);
    check(&fixture, &profile, "arc", "ArcInner<Super>", false);
}

fn objcopy(arguments: &[&str], directory: &Path) -> bool {
    let status = Command::new("objcopy").args(arguments).current_dir(directory).status();
    status.is_ok_and(|status| status.success())
}

#[test]
fn what_is_missing_is_said() {
    let Some(fixture) = compile("gcc", &C, "objects.c") else { return };
    let directory = fixture.path.parent().unwrap();
    let ask = |path: &Path, build_id: Option<&str>| {
        let mut profile = empty(path);
        profile.modules[0].build_id = build_id.map(str::to_string);
        let inside = text(&fixture, "spin_lock").start;
        profile.sites = vec![site(0, inside + 4, &[])];
        let (_, size, frames) = &fixture.objects[0];
        profile.objects = vec![object(0, ObjectKind::Heap, *size, frames)];
        let missing = name(&mut profile).unwrap();
        (profile, missing)
    };
    let reason = |missing: &Missing| missing.modules[0].reason.clone();

    let (profile, missing) = ask(&directory.join("nothing"), None);
    assert_eq!(reason(&missing), Reason::NotFound);
    assert_eq!(profile.objects[0].name, "heap(96)");
    assert_eq!((missing.sites_unnamed, missing.untyped), (1, 1));
    assert_eq!(reason(&ask(&fixture.path, Some("00ff")).1), Reason::Changed);
    assert!(matches!(reason(&ask(Path::new("/dev/null"), None).1), Reason::NotFound));
    fs::write(directory.join("text"), "no program").unwrap();
    assert!(matches!(reason(&ask(&directory.join("text"), None).1), Reason::Damaged(_)));

    if !objcopy(&["--strip-debug", "objects", "stripped"], directory) {
        uvfs_skip::lacking("no objcopy");
        return;
    }
    let (profile, missing) = ask(&directory.join("stripped"), None);
    assert_eq!(reason(&missing), Reason::NoDebugInformation);
    let text = missing.to_string();
    assert!(text.contains("stripped: no debug information; build with `debug = 2`"), "{text}");
    assert_eq!(profile.sites[0].function, "[spinlock]", "symbols are still there");

    // Debug information in a file of its own, found by its link.
    assert!(objcopy(&["--only-keep-debug", "objects", "objects.debug"], directory));
    assert!(objcopy(&["--add-gnu-debuglink=objects.debug", "stripped", "linked"], directory));
    let (profile, missing) = ask(&directory.join("linked"), None);
    assert!(missing.is_empty(), "{missing}");
    assert_eq!(profile.objects[0].name, "dentry");

    let Some(lines) = compile("gcc", &["-g1", "-O1", "-fno-omit-frame-pointer"], "objects.c")
    else {
        return;
    };
    let mut profile = empty(&lines.path);
    profile.sites = vec![site(0, self::text(&lines, "spin_lock").start + 4, &[])];
    let missing = name(&mut profile).unwrap();
    assert_eq!(reason(&missing), Reason::LinesOnly);
    assert!(profile.sites[0].frames[0].source.contains("objects.c:"));
}

#[test]
fn a_profile_that_names_an_unlisted_module_is_refused() {
    let mut profile = empty(Path::new("/none"));
    profile.sites = vec![site(0, 1, &[])];
    profile.modules.clear();
    let error = name(&mut profile).unwrap_err().to_string();
    assert!(error.contains("module 0") && error.contains("run again"), "{error}");
}

/// Everything that a module can be asked, of damaged bytes.
fn ask_all(bytes: Vec<u8>, fixture: &Fixture) {
    let Ok(image) = image::Image::parse(bytes) else { return };
    let files = Files::with(image, Path::new("/nonexistent/program"));
    let mut addresses: Vec<u64> = fixture.objects.iter().flat_map(|x| x.2.clone()).collect();
    addresses.iter_mut().for_each(|address| *address -= 1);
    let debug = Debug::new(&files, addresses);
    let modules = BTreeMap::from([(0, super::Module::new("/program", &debug))]);
    let rules = Rules::new(&Options::default()).unwrap();
    let heap = Heap::new(&modules, &rules).unwrap();
    for (_, size, frames) in &fixture.objects {
        let frames: Vec<_> =
            frames.iter().map(|offset| Place { module: 0, offset: *offset }).collect();
        if let Some(typing) = heap.typing(&frames, *size)
            && let Some(die) = typing.die
        {
            modules[&0].types.layout(die);
            modules[&0].types.name(die);
        }
        heap.site(&frames);
        heap.named("struct bucket", &frames, *size);
    }
    for (_, offset) in &fixture.variables {
        if let Some(die) = modules[&0].locate(*offset, false).and_then(|found| found.die) {
            modules[&0].types.layout(die);
        }
        modules[&0].locate(offset & 0xff, true);
    }
}

#[test]
fn damaged_files_never_panic() {
    let Some(fixture) = c() else { return };
    let whole = fs::read(&fixture.path).unwrap();
    let image = image::Image::read(&fixture.path).unwrap();
    // Where in the file each debug section is, so that most flips hit one.
    let place = |name: &str| {
        let section = image.section(name);
        let at = whole.windows(section.len()).position(|window| window == section).unwrap();
        at..at + section.len()
    };
    let names = [".debug_info", ".debug_abbrev", ".debug_line", ".debug_str", ".debug_rnglists"];
    let places: Vec<_> = names
        .iter()
        .filter(|name| !image.section(name).is_empty())
        .map(|name| place(name))
        .collect();
    let mut state = 0x1234_5678_9abc_def1_u64;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as usize % below.max(1)
    };
    for round in 0..400 {
        let mut bytes = whole.clone();
        match round % 4 {
            0 => bytes.truncate(random(whole.len())),
            1 => (0..4).for_each(|_| {
                let at = random(whole.len());
                bytes[at] = random(256) as u8;
            }),
            _ => {
                for _ in 0..1 + random(6) {
                    let place = &places[random(places.len())];
                    bytes[place.start + random(place.len())] = random(256) as u8;
                }
            }
        }
        let one = Instant::now();
        ask_all(bytes, fixture);
        assert!(one.elapsed() < Duration::from_secs(60), "round {round} does not end");
    }
}
