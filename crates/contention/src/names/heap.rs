//! The type of an allocation, by the functions that asked for it.
//!
//! # Boundary
//! Decides the type of heap objects. Type layouts are [`super::types`]'s.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! A Rust allocation comes through a generic function, and debug information keeps its type parameters:
//! `Box::new::<ArcInner<Super>>` names the type. A C allocation has the type of the variable that it is assigned
//! to, or of the `sizeof` or the `new` in its line. The size always has to fit. Where only the size fits, the type is a guess
//! among the types of the allocation's site, and its name ends in `?`. Weakness: frames behind the C library are not
//! trusted, since it has no frame pointers; memory that it allocates for the program has no type.

use super::dwarf::Die;
use super::fields::{TABLE, buckets};
use super::functions::{Rules, brief, plain};
use super::module::{Module, Step};
use super::types::{Kind, short};
use gimli::constants;
use regex::Regex;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::rc::Rc;
use uvfs_coherence::profile::Place;

/// Functions around an allocation that are looked at.
const FRAMES_MAX: usize = 8;
/// Bytes of a source file that is read.
const SOURCE_MAX: u64 = 16 << 20;
/// Lines of one call.
const CALL_LINES: usize = 3;
/// Variables of one function that are looked at.
const LOCALS_MAX: usize = 512;

/// The type of an allocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Typing {
    pub(super) module: u32,
    /// Type of the whole, or of an element; `None` where only the name is known.
    pub(super) die: Option<Die>,
    pub(super) array: bool,
    pub(super) guessed: bool,
    /// In place of the type's own name.
    pub(super) name: Option<String>,
}

/// A variable of a function.
struct Local {
    name: String,
    of: Die,
    line: u64,
    /// It was given by the caller, so no allocation of its line is assigned to it.
    parameter: bool,
}

/// Answers for allocations.
pub(super) struct Heap<'m, 'd, 'a> {
    modules: &'m BTreeMap<u32, Module<'d, 'a>>,
    rules: &'m Rules,
    size_of: Regex,
    size_of_target: Regex,
    cast: Regex,
    new: Regex,
    sources: RefCell<HashMap<String, Option<Rc<[String]>>>>,
}

impl<'m, 'd, 'a> Heap<'m, 'd, 'a> {
    pub(super) fn new(
        modules: &'m BTreeMap<u32, Module<'d, 'a>>,
        rules: &'m Rules,
    ) -> Result<Self, crate::Error> {
        let regex = |pattern: &str| {
            Regex::new(pattern).map_err(|error| crate::Error::new(error.to_string()))
        };
        Ok(Self {
            modules,
            rules,
            size_of: regex(r"\bsizeof\s*\(\s*(?:struct\s+|union\s+|const\s+)?([A-Za-z_]\w*)\s*\)")?,
            size_of_target: regex(r"\bsizeof\s*\(?\s*\*\s*([A-Za-z_][\w.>\[\]-]*)")?,
            cast: regex(
                r"\(\s*(?:struct\s+|union\s+)?([A-Za-z_]\w*)\s*\*\s*\)\s*\w*alloc\w*\s*\(",
            )?,
            new: regex(
                r"\bnew\b\s*(?:\([^()]*\)\s*)?(?:const\s+|struct\s+)?(?:\w+::)*([A-Za-z_]\w*)",
            )?,
            sources: RefCell::default(),
        })
    }

    fn steps(&self, frames: &[Place]) -> Vec<(u32, Rc<[Step]>)> {
        frames
            .iter()
            .take(FRAMES_MAX)
            .filter_map(|place| {
                Some((place.module, self.modules.get(&place.module)?.steps(place.offset)))
            })
            .collect()
    }

    /// The first function around the allocation that is not an allocator's own, as tables print it, and its source line.
    /// A function of the C library stands only where there is no other.
    pub(super) fn site(&self, frames: &[Place]) -> (String, String) {
        let steps = self.steps(frames);
        let named = |step: &&Step| !step.frame.function.is_empty();
        let all = || steps.iter().flat_map(|(_, steps)| steps.iter()).filter(named);
        let own = steps.iter().filter(|(number, _)| !self.is_of_the_language(*number));
        let mut own = own.flat_map(|(_, steps)| steps.iter()).filter(named);
        let found = own.find(|step| !self.passes_on(step));
        let Some(step) = found.or_else(|| all().next()) else { return <_>::default() };
        let source = step.frame.source.rsplit('/').next().unwrap_or_default();
        (brief(&step.frame.function), source.to_owned())
    }

    /// Whether the function only passes memory on. A program's own `operator new` does, where its frames are known to be
    /// whole.
    fn passes_on(&self, step: &Step) -> bool {
        let path = &step.frame.function;
        self.rules.is_allocator(path)
            || step.call.is_some() && plain(path).starts_with("operator new")
    }

    fn is_of_the_language(&self, number: u32) -> bool {
        self.modules.get(&number).is_none_or(Module::is_of_the_language)
    }

    /// The type of `size` bytes that were asked for by `frames`.
    pub(super) fn typing(&self, frames: &[Place], size: u64) -> Option<Typing> {
        if size == 0 {
            return None;
        }
        let end = frames.iter().position(|place| self.is_of_the_language(place.module));
        let steps = self.steps(&frames[..end.unwrap_or(frames.len())]);
        self.generic(&steps, size)
            .or_else(|| self.written(&steps, size))
            .or_else(|| self.guessed(&steps, size))
    }

    /// The type that the program itself called `name`.
    pub(super) fn named(&self, name: &str, frames: &[Place], size: u64) -> Option<Typing> {
        let name = name.trim();
        let bare = ["struct ", "union ", "enum ", "class "];
        let bare = bare.iter().find_map(|word| name.strip_prefix(word)).unwrap_or(name).trim();
        let last = last_segment(bare);
        let near = frames.iter().map(|place| place.module);
        let mut order: Vec<u32> = near.chain(self.modules.keys().copied()).collect();
        let mut seen = std::collections::BTreeSet::new();
        order.retain(|module| seen.insert(*module));
        let mut best: Option<(u32, Typing)> = None;
        for number in order {
            let Some(module) = self.modules.get(&number) else { continue };
            for die in module.debug.named(last) {
                let path = module.types.name(*die);
                let Some(bytes) = module.types.size(*die).filter(|bytes| *bytes > 0) else {
                    continue;
                };
                let fits = bytes == size || (bytes < size && size.is_multiple_of(bytes));
                let called = bare == last || path == bare || path.ends_with(&format!("::{bare}"));
                let rank = u32::from(called) * 4
                    + u32::from(bytes == size) * 2
                    + u32::from(fits || size == 0);
                if called && best.as_ref().is_none_or(|best| best.0 < rank) {
                    let array = bytes < size && size.is_multiple_of(bytes);
                    let typing = Typing {
                        module: number,
                        die: Some(*die),
                        array,
                        guessed: false,
                        name: None,
                    };
                    best = Some((rank, typing));
                }
            }
            if best.is_some() {
                break;
            }
        }
        best.map(|best| best.1)
    }

    /// By the type parameters of the functions that the allocation came through.
    fn generic(&self, steps: &[(u32, Rc<[Step]>)], size: u64) -> Option<Typing> {
        for (number, steps) in steps {
            let Some(module) = self.modules.get(number) else { continue };
            for step in steps.iter() {
                if let Some(typing) = self.parameter(*number, module, step, size) {
                    return Some(typing);
                }
            }
        }
        None
    }

    fn parameter(
        &self,
        number: u32,
        module: &Module<'d, 'a>,
        step: &Step,
        size: u64,
    ) -> Option<Typing> {
        let parameters = &step.function.parameters;
        if parameters.is_empty() {
            return None;
        }
        let path = plain(&step.frame.function);
        let library = Rules::is_wrapper(&path) || path.starts_with("__gnu_cxx::");
        let verb = path.rsplit("::").next().unwrap_or(&path);
        let makes = [
            "new",
            "alloc",
            "with_capacity",
            "from",
            "reserve",
            "grow",
            "push",
            "insert",
            "extend",
            "resize",
            "collect",
            "clone",
            "pin",
            "boxed",
            "into",
            "init",
            "make",
            "create",
        ];
        if !library && !makes.iter().any(|word| verb.contains(word)) {
            return None;
        }
        let rows = ["raw_vec", "::vec::", "vec_deque", "slice", "allocator", "array", "RawVec"];
        let row = rows.iter().any(|word| path.contains(word))
            || (!library
                && ["with_capacity", "array", "vec"].iter().any(|word| verb.contains(word)));
        let typing = |die: Die, array| Typing {
            module: number,
            die: Some(die),
            array,
            guessed: false,
            name: None,
        };
        // `T` first: the others are allocators, hashers, closures.
        let mut parameters: Vec<_> = parameters.iter().collect();
        parameters.sort_by_key(|(name, _)| !matches!(name.as_str(), "T" | "_Tp"));
        for (name, of) in parameters {
            let main = matches!(name.as_str(), "T" | "_Tp");
            let Some(bytes) = module.types.size(*of).filter(|bytes| *bytes > 0) else { continue };
            if path.starts_with("hashbrown::") {
                if main && path.contains("RawTable") {
                    let name = format!("{TABLE}{}", short(&module.types.name(*of)));
                    let begin = buckets(size, bytes);
                    let die = begin.filter(|begin| begin.1 == 0).map(|_| *of);
                    return Some(Typing {
                        die,
                        array: true,
                        name: Some(name),
                        ..typing(*of, true)
                    });
                }
                continue;
            }
            if row && main && size.is_multiple_of(bytes) {
                return Some(typing(*of, true));
            }
            if bytes == size && (main || !library) {
                return Some(typing(*of, false));
            }
            if main && bytes < size && (path.contains("Arc") || path.contains("Rc")) {
                let content = module.types.name(*of);
                for wrapper in ["ArcInner", "RcInner", "RcBox"] {
                    let dies = module.debug.named(&format!("{wrapper}<{content}>"));
                    let mut dies = dies.iter();
                    if let Some(die) = dies.find(|die| module.types.size(**die) == Some(size)) {
                        return Some(typing(*die, false));
                    }
                }
            }
        }
        None
    }

    /// By the source at the call: the variable that is declared there, or a `sizeof`.
    fn written(&self, steps: &[(u32, Rc<[Step]>)], size: u64) -> Option<Typing> {
        for (number, steps) in steps {
            let Some(module) = self.modules.get(number) else { continue };
            for step in steps.iter() {
                let Some(call) = &step.call else { continue };
                if module.debug.is_rust(call.die.unit) || call.line == 0 {
                    continue;
                }
                let locals = locals(module, call.die);
                let declared =
                    locals.iter().filter(|local| local.line == call.line && !local.parameter);
                let mut declared = declared.filter_map(|local| module.types.pointee(local.of));
                if let Some(typing) = declared.find_map(|of| fit(*number, module, of, size)) {
                    return Some(typing);
                }
                if let Some(typing) = self.size_of(*number, module, step, &locals, size) {
                    return Some(typing);
                }
            }
        }
        None
    }

    fn size_of(
        &self,
        number: u32,
        module: &Module<'d, 'a>,
        step: &Step,
        locals: &[Local],
        size: u64,
    ) -> Option<Typing> {
        let call = step.call.as_ref()?;
        let lines = self.source(&call.file)?;
        let from = usize::try_from(call.line).ok()?.checked_sub(1)?;
        let mut text = String::new();
        for line in lines.iter().skip(from).take(CALL_LINES) {
            text.push_str(line);
            text.push('\n');
            if line.contains(';') {
                break;
            }
        }
        let says = [&self.size_of, &self.cast, &self.new];
        for found in says.into_iter().flat_map(|regex| regex.captures_iter(&text)) {
            let name = &found[1];
            let named = module.debug.named(name);
            let near = named.iter().filter(|die| die.unit == call.die.unit);
            let mut all = near.chain(named.iter());
            if let Some(typing) = all.find_map(|die| fit(number, module, *die, size)) {
                return Some(typing);
            }
            if let Some(local) = locals.iter().find(|local| local.name == *name)
                && let Some(typing) = fit(number, module, local.of, size)
            {
                return Some(typing);
            }
        }
        for found in self.size_of_target.captures_iter(&text) {
            let name = found[1].trim_end_matches(['-', '>', '.', ']']);
            let name = name.rsplit(['.', '>']).next().unwrap_or(name);
            let member = || {
                let within = locals.iter().filter_map(|local| module.types.pointee(local.of));
                within
                    .flat_map(|of| module.types.shape(of).members.clone())
                    .find(|member| member.name == name)
                    .and_then(|member| member.die)
            };
            let of = locals.iter().find(|local| local.name == name).map(|local| local.of);
            let global = || global(module, call.die.unit, name);
            if let Some(target) =
                of.or_else(member).or_else(global).and_then(|of| module.types.pointee(of))
                && let Some(typing) = fit(number, module, target, size)
            {
                return Some(typing);
            }
        }
        None
    }

    fn source(&self, path: &str) -> Option<Rc<[String]>> {
        if let Some(known) = self.sources.borrow().get(path) {
            return known.clone();
        }
        let read = || {
            let meta = fs::metadata(path).ok()?;
            if !meta.is_file() || meta.len() > SOURCE_MAX {
                return None;
            }
            let bytes = fs::read(path).ok()?;
            let text = String::from_utf8_lossy(&bytes);
            Some(text.lines().map(str::to_string).collect())
        };
        let lines: Option<Rc<[String]>> = read();
        self.sources.borrow_mut().insert(path.to_string(), lines.clone());
        lines
    }

    /// By size alone, among the types that the calling function uses, then among its unit's types.
    fn guessed(&self, steps: &[(u32, Rc<[Step]>)], size: u64) -> Option<Typing> {
        let all = steps.iter().flat_map(|(number, steps)| steps.iter().map(move |x| (*number, x)));
        let mut callers = all.filter(|(_, step)| !self.rules.is_allocator(&step.frame.function));
        // Without debug information it has no types, and those of functions around it are not its own.
        let (number, step) = callers.next()?;
        let module = self.modules.get(&number)?;
        let call = step.call.as_ref()?;
        let mut handled: Vec<Die> = Vec::new();
        for local in locals(module, call.die) {
            let Some(of) = module.types.pointee(local.of) else { continue };
            handled.push(of);
            for member in &module.types.shape(of).members {
                handled.extend(member.die.and_then(|die| module.types.pointee(die)));
            }
        }
        let guess = |die: Die, array| Typing {
            module: number,
            die: Some(die),
            array,
            guessed: true,
            name: None,
        };
        let records = |die: &Die| module.types.is_record(*die);
        let of_size = |die: &Die| module.types.size(*die) == Some(size);
        let exact = handled.iter().copied().filter(records).filter(of_size);
        if let Some(die) = only(module, exact) {
            return Some(guess(die, false));
        }
        if module.debug.is_rust(call.die.unit) {
            // A Rust allocation that is a row says so; and a unit has thousands of types that are not its own.
            return None;
        }
        let divides = |die: &Die| {
            module
                .types
                .size(*die)
                .is_some_and(|bytes| bytes > 1 && bytes < size && size.is_multiple_of(bytes))
        };
        let rows = handled.iter().copied().filter(records).filter(divides);
        if let Some(die) = only(module, rows) {
            return Some(guess(die, true));
        }
        let all = module.debug.types_of(call.die.unit).map(|(die, _)| module.types.strip(die));
        only(module, all.filter(records).filter(of_size)).map(|die| guess(die, false))
    }
}

/// `dies`, if all are one type.
fn only(module: &Module<'_, '_>, dies: impl Iterator<Item = Die>) -> Option<Die> {
    let mut found: Option<Die> = None;
    for die in dies {
        match found {
            None => found = Some(die),
            Some(first) if first == die => {}
            Some(first) if module.types.name(first) == module.types.name(die) => {}
            Some(_) => return None,
        }
    }
    found
}

/// A typing as one or several of `of`, if the size allows it.
fn fit(number: u32, module: &Module<'_, '_>, of: Die, size: u64) -> Option<Typing> {
    let bytes = module.types.size(of).filter(|bytes| *bytes > 0)?;
    let of = if module.types.shape(module.types.strip(of)).name.is_empty() {
        of
    } else {
        module.types.strip(of)
    };
    let typing = Typing { module: number, die: Some(of), array: false, guessed: false, name: None };
    if bytes == size {
        return Some(typing);
    }
    // A record with more behind it: a flexible array member.
    let record = module.types.is_record(module.types.strip(of));
    if record && bytes < size && open_ended(module, of) {
        return Some(typing);
    }
    size.is_multiple_of(bytes).then_some(Typing { array: true, ..typing })
}

/// Whether the last member of the record is an array without a length.
fn open_ended(module: &Module<'_, '_>, of: Die) -> bool {
    let shape = module.types.shape(module.types.strip(of));
    let last = shape.members.last().and_then(|member| member.die);
    last.is_some_and(|die| {
        let shape = module.types.shape(module.types.strip(die));
        matches!(&shape.kind, Kind::Array(lengths) if lengths.contains(&0) || lengths.is_empty())
    })
}

/// The type of the variable `name` of a unit that is in no function.
fn global(module: &Module<'_, '_>, unit: u32, name: &str) -> Option<Die> {
    let own = module.debug.statics().iter().filter(|found| found.die.unit == unit);
    own.filter_map(|found| module.debug.entry(found.die)).find_map(|entry| {
        let called = module.debug.text(unit, &entry, constants::DW_AT_name)?;
        (called == name).then(|| module.debug.link(unit, &entry, constants::DW_AT_type))?
    })
}

/// The variables and parameters of the function at `die`, an inlined one's as well.
fn locals(module: &Module<'_, '_>, die: Die) -> Vec<Local> {
    let mut found: Vec<Local> = Vec::new();
    for (origin, _) in module.debug.origins(die) {
        // Depths of functions within, which are not this one.
        let mut other: Option<isize> = None;
        module.debug.below(origin, &mut |entry, depth| {
            if other.is_some_and(|open| depth <= open) {
                other = None;
            }
            let tag = entry.tag();
            if matches!(tag, constants::DW_TAG_inlined_subroutine | constants::DW_TAG_subprogram)
                && other.is_none()
            {
                other = Some(depth);
            }
            let variable =
                matches!(tag, constants::DW_TAG_variable | constants::DW_TAG_formal_parameter);
            if !variable || other.is_some() || found.len() >= LOCALS_MAX {
                return;
            }
            let of = module.debug.link(origin.unit, entry, constants::DW_AT_type);
            let name = module.debug.text(origin.unit, entry, constants::DW_AT_name);
            let line = entry.attr_value(constants::DW_AT_decl_line).and_then(|x| x.udata_value());
            let parameter = tag == constants::DW_TAG_formal_parameter;
            if let (Some(of), Some(name)) = (of, name) {
                found.push(Local { name, of, line: line.unwrap_or(0), parameter });
            }
        });
        if found.len() >= LOCALS_MAX {
            break;
        }
    }
    found
}

/// The last part of a type's path, with its generic arguments: `ArcInner<a::B>` of `x::ArcInner<a::B>`.
fn last_segment(path: &str) -> &str {
    let end = path.find('<').unwrap_or(path.len());
    match path[..end].rfind("::") {
        Some(at) => &path[at + 2..],
        None => path,
    }
}

impl std::fmt::Debug for Heap<'_, '_, '_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Heap over {} modules", self.modules.len())
    }
}
