//! Names for addresses: functions for sites, variables and types for objects, fields for offsets.
//!
//! # Boundary
//! Reads the files of a profile's modules and fills the profile; later stages need neither the program nor
//! its debug information. `analysis` and `report` select what is printed.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! All questions are gathered first, so that each unit of debug information is walked at most once for
//! functions and at most once for variables, and most of them not at all. The files are untrusted: a
//! damaged one leaves its names out and is listed in [`Missing`]. Weakness: names are as good as debug
//! information; optimised code keeps little of C's local variables.

mod dwarf;
mod fields;
mod functions;
mod globals;
mod heap;
mod image;
mod missing;
mod module;
#[cfg(test)]
mod tests;
mod types;

pub use fields::{field_at, object_field};
pub use functions::Options;
pub use missing::{Missing, MissingModule, Reason};

use crate::Error;
use dwarf::{Debug, Die};
use functions::Rules;
use globals::is_variable;
use heap::{Heap, Typing};
use image::Files;
use module::{Located, Module};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use types::{Layout, short};
use uvfs_coherence::Profile;
use uvfs_coherence::profile::{LockKind, Object, ObjectKind, Place, Type};

/// Fills the names of `profile` from the debug information of its modules.
///
/// # Errors
/// The profile refers to a module that it does not list.
pub fn name(profile: &mut Profile) -> Result<Missing, Error> {
    name_with(profile, &Options::default())
}

/// Names what [`name`] names, with `options`.
///
/// # Errors
/// As [`name`]; or a lock pattern is no regular expression.
pub fn name_with(profile: &mut Profile, options: &Options) -> Result<Missing, Error> {
    let rules = Rules::new(options)?;
    let asked = addresses(profile);
    let listed: BTreeSet<u32> = profile.modules.iter().map(|module| module.id).collect();
    if let Some(unknown) = asked.keys().find(|module| !listed.contains(module)) {
        return Err(Error::new(format!(
            "the profile refers to module {unknown} and does not list it: it is damaged; run again"
        )));
    }
    let mut missing = Missing::default();
    let mut files = BTreeMap::new();
    let mut failed = BTreeMap::new();
    for module in profile.modules.iter().filter(|module| asked.contains_key(&module.id)) {
        match Files::open(Path::new(&module.path), module.build_id.as_deref()) {
            Ok(found) => drop(files.insert(module.id, (module.path.clone(), found))),
            Err(reason) => drop(failed.insert(module.id, reason)),
        }
    }
    let debugs: BTreeMap<u32, (&str, Debug<'_>)> = files
        .iter()
        .map(|(id, (path, files))| {
            let addresses = asked.get(id).cloned().unwrap_or_default();
            (*id, (path.as_str(), Debug::new(files, addresses)))
        })
        .collect();
    let modules: BTreeMap<u32, Module<'_, '_>> =
        debugs.iter().map(|(id, (path, debug))| (*id, Module::new(path, debug))).collect();

    sites(profile, &modules, &rules, &mut missing);
    let located = globals::split(profile, &Modules(&modules));
    let mut table = Table::new(profile);
    objects(profile, &modules, &rules, &located, &mut table, &mut missing)?;
    profile.types = table.types;
    library_locks(profile);
    absent(profile, &modules, &failed, &mut missing);
    Ok(missing)
}

/// All addresses of code that will be asked, by module.
fn addresses(profile: &Profile) -> BTreeMap<u32, Vec<u64>> {
    let mut asked: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for site in &profile.sites {
        for place in std::iter::once(&site.place).chain(&site.callers) {
            asked.entry(place.module).or_default().push(place.offset.wrapping_sub(1));
        }
    }
    for object in &profile.objects {
        for place in &object.frames {
            let code = asked.entry(place.module).or_default();
            if !is_variable(object) {
                code.push(place.offset.wrapping_sub(1));
            }
        }
    }
    for code in asked.values_mut() {
        code.sort_unstable();
        code.dedup();
    }
    asked
}

fn sites(
    profile: &mut Profile,
    modules: &BTreeMap<u32, Module<'_, '_>>,
    rules: &Rules,
    missing: &mut Missing,
) {
    for site in &mut profile.sites {
        let places = std::iter::once(&site.place).chain(&site.callers);
        let mut frames = Vec::new();
        let mut own = 0;
        for (i, place) in places.enumerate() {
            let Some(module) = modules.get(&place.module) else { continue };
            frames.extend(module.steps(place.offset).iter().map(|step| step.frame.clone()));
            if i == 0 {
                own = frames.len();
            }
        }
        if !frames.is_empty() {
            site.frames = frames;
            // The caller of an unknown function did not make the access.
            if own > 0 {
                site.function = rules.function(&site.frames);
            }
        }
        match site.function.is_empty() {
            true => missing.sites_unnamed += 1,
            false => missing.sites_named += 1,
        }
    }
}

/// The modules as [`globals::split`] asks them.
struct Modules<'m, 'd, 'a>(&'m BTreeMap<u32, Module<'d, 'a>>);

impl globals::Locate for Modules<'_, '_, '_> {
    fn locate(&self, place: Place, thread_local: bool) -> Option<Located> {
        self.0.get(&place.module)?.locate(place.offset, thread_local)
    }
}

/// Types of the profile, each layout once.
struct Table {
    types: Vec<Type>,
    next: u32,
    by_die: HashMap<(u32, Die), Option<u32>>,
    by_name: HashMap<String, Vec<usize>>,
}

impl Table {
    fn new(profile: &Profile) -> Self {
        let next = profile.types.iter().map(|of| of.id.saturating_add(1)).max().unwrap_or(0);
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (at, of) in profile.types.iter().enumerate() {
            by_name.entry(of.name.clone()).or_default().push(at);
        }
        Self { types: profile.types.clone(), next, by_die: HashMap::new(), by_name }
    }

    /// The number of the type at `die`.
    fn id(&mut self, module: u32, of: &Module<'_, '_>, die: Die) -> Option<u32> {
        if let Some(known) = self.by_die.get(&(module, die)) {
            return *known;
        }
        let id = of.types.layout(die).map(|layout| self.add(layout));
        self.by_die.insert((module, die), id);
        id
    }

    fn add(&mut self, layout: Layout) -> u32 {
        let Layout { name, size, align, fields, declared } = layout;
        let same = self.by_name.entry(name.clone()).or_default();
        // Every unit has its own copy of a type.
        let known = same.iter().map(|at| &self.types[*at]);
        for of in known {
            if (of.size, of.align) == (size, align) && of.fields == fields {
                return of.id;
            }
        }
        let id = self.next;
        self.next = self.next.saturating_add(1);
        same.push(self.types.len());
        self.types.push(Type { id, name, size, align, fields, declared });
        id
    }
}

fn objects(
    profile: &mut Profile,
    modules: &BTreeMap<u32, Module<'_, '_>>,
    rules: &Rules,
    located: &BTreeMap<usize, (u32, Located)>,
    table: &mut Table,
    missing: &mut Missing,
) -> Result<(), Error> {
    let heap = Heap::new(modules, rules)?;
    type Question = (Vec<Place>, u64, String);
    let mut answers: HashMap<Question, (Option<Typing>, (String, String))> = HashMap::new();
    for (at, object) in profile.objects.iter_mut().enumerate() {
        if object.type_id.is_some() {
            missing.typed += 1;
            continue;
        }
        if let Some((number, found)) = located.get(&at) {
            let module = modules.get(number);
            if let (Some(module), Some(die)) = (module, found.die) {
                let (die, row) = match module.types.element(die) {
                    Some(element) => (element, true),
                    None => (die, false),
                };
                object.type_id = table.id(*number, module, die);
                object.array = row;
            }
        } else if matches!(object.kind, ObjectKind::Heap | ObjectKind::Other) {
            let question = (object.frames.clone(), object.size, object.name.clone());
            let (typing, (function, source)) = answers
                .entry(question)
                .or_insert_with_key(|(frames, size, name)| {
                    let typing = match name.as_str() {
                        "" => heap.typing(frames, *size),
                        name => heap.named(name, frames, *size),
                    };
                    (typing, heap.site(frames))
                })
                .clone();
            if let Some(typing) = typing {
                let module = modules.get(&typing.module);
                if let (Some(module), Some(die)) = (module, typing.die) {
                    object.type_id = table.id(typing.module, module, die);
                    object.array = typing.array;
                    object.name = match typing.array {
                        true => format!("[{}]", short(&module.types.name(die))),
                        false => short(&module.types.name(die)),
                    };
                    missing.guessed += u64::from(typing.guessed);
                    if typing.guessed {
                        object.name.push('?');
                    }
                }
                if let Some(name) = typing.name {
                    object.name = name;
                }
            }
            object.allocated_in = function;
            if object.name.is_empty() {
                let kind = if object.kind == ObjectKind::Heap { "heap" } else { "mapped" };
                object.name = match (object.allocated_in.as_str(), source.as_str()) {
                    ("", _) => format!("{kind}({})", object.size),
                    (function, "") => format!("{kind}({}) @ {function}", object.size),
                    (function, source) => {
                        format!("{kind}({}) @ {function} ({source})", object.size)
                    }
                };
            }
        } else if object.name.is_empty() {
            object.name = match object.kind {
                ObjectKind::Stack => format!("stack of thread {}", object.thread),
                ObjectKind::ThreadLocal => "thread-local".to_string(),
                _ => "unknown".to_string(),
            };
        }
        match object.type_id {
            Some(_) => missing.typed += 1,
            None => missing.untyped += 1,
        }
    }
    Ok(())
}

/// The names of the C library's locks in brackets: their accesses are charged to their callers, so no
/// function of a lock is at the site. Only the library touches these words.
fn library_locks(profile: &mut Profile) {
    let mut words: BTreeMap<(u64, u32, u64), &str> = BTreeMap::new();
    for lock in &profile.locks {
        let word = match lock.kind {
            LockKind::Mutex => "mutex",
            LockKind::Shared | LockKind::Exclusive => "rwlock",
            LockKind::Spin => "spinlock",
            LockKind::Word | LockKind::Awaited => continue,
            // Their words have names of their own.
            LockKind::Condition | LockKind::Barrier | LockKind::Semaphore => continue,
        };
        words.insert((lock.seed, lock.object, lock.offset), word);
    }
    let objects: BTreeMap<(u64, u32), &Object> =
        profile.objects.iter().map(|object| ((object.seed, object.id), object)).collect();
    let types: BTreeMap<u32, &Type> = profile.types.iter().map(|of| (of.id, of)).collect();
    let mut found: BTreeMap<(u64, u32), &str> = BTreeMap::new();
    for sample in &profile.samples {
        let by_type = || {
            let object = objects.get(&(sample.seed, sample.object))?;
            let of = types.get(&object.type_id?)?;
            let offset = if object.array { sample.offset % of.size.max(1) } else { sample.offset };
            let field = fields::field_at(of, offset, 0);
            let inner = field.rsplit_once("__data.").map(|(_, inner)| inner)?;
            let word = inner.split(['.', '[', '|']).next()?;
            Some(match word {
                "__lock" | "__owner" | "__nusers" | "__kind" | "__count" => "mutex",
                "__readers" | "__writers" | "__wrphase_futex" | "__writers_futex"
                | "__cur_writer" => "rwlock",
                "__wseq" | "__g1_start" | "__g_refs" | "__g_size" | "__g_signals" | "__wrefs" => {
                    "condvar"
                }
                _ => return None,
            })
        };
        let place = (sample.seed, sample.object, sample.offset);
        if let Some(word) = words.get(&place).copied().or_else(by_type) {
            found.insert((sample.seed, sample.site), word);
        }
    }
    for site in &mut profile.sites {
        if let Some(word) = found.get(&(site.seed, site.id))
            && !site.function.is_empty()
            && !site.function.starts_with('[')
        {
            site.function = format!("[{word}] @ {}", site.function);
        }
    }
}

/// Lists the modules that lacked an answer.
fn absent(
    profile: &Profile,
    modules: &BTreeMap<u32, Module<'_, '_>>,
    failed: &BTreeMap<u32, Reason>,
    missing: &mut Missing,
) {
    // Callers and allocators in a library without debug information are no loss.
    let sites = profile.sites.iter().map(|site| site.place.module);
    let objects = profile.objects.iter().filter(|object| is_variable(object));
    let needed: BTreeSet<u32> =
        sites.chain(objects.map(|object| object.frames[0].module)).collect();
    for module in profile.modules.iter().filter(|module| needed.contains(&module.id)) {
        // `[vdso]`, `linux-vdso.so.1` and their like are no files.
        if !module.path.contains('/') {
            continue;
        }
        if let Some(reason) = failed.get(&module.id) {
            missing.module(&module.path, reason.clone());
            continue;
        }
        let Some(known) = modules.get(&module.id) else { continue };
        if known.debug.is_empty() {
            let damaged = known.debug.files().debug().has_debug_information();
            let reason = match damaged {
                true => Reason::Damaged("its debug information has no readable unit".into()),
                false => Reason::NoDebugInformation,
            };
            missing.module(&module.path, reason);
        } else if let Some(name) = known.debug.lost.borrow().as_ref() {
            missing.module(&module.path, Reason::SplitNotFound(name.clone()));
        } else if !known.debug.has_types() {
            missing.module(&module.path, Reason::LinesOnly);
        }
    }
}
