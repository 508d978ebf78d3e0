//! Debug information of one module: which function is at an address, and where its entries are.
//!
//! # Boundary
//! Units, entries, functions, lines, static variables. What a type looks like is [`super::types`]'s.
//!
//! # Concurrency
//! None; results are kept behind cells.
//!
//! # Why
//! All addresses that will be asked are given at the start, so one walk over a unit answers them all,
//! and units without such an address are never walked. Weakness: a program that was linked into one unit
//! (full link-time optimisation) is walked whole.

use super::image::{Files, Image};
use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, EndianSlice, RunTimeEndian, SectionId, Unit,
    UnitOffset, UnitType, constants,
};
use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::rc::Rc;

pub(super) type Slice<'a> = EndianSlice<'a, RunTimeEndian>;
pub(super) type Entry<'a> = DebuggingInformationEntry<Slice<'a>>;

/// Links from entry to entry that are followed before it is called a cycle.
const HOPS_MAX: usize = 16;

/// An entry: its unit's number and its offset in that unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Die {
    pub(super) unit: u32,
    pub(super) offset: usize,
}

/// A split unit, with the sections of its own file.
type Split<'a> = Box<(Dwarf<Slice<'a>>, Unit<Slice<'a>>)>;

/// A unit, and the split one that it stands for.
#[derive(Debug)]
struct Whole<'a> {
    unit: Unit<Slice<'a>>,
    start: usize,
    types: bool,
    /// Walked in place of `unit`, where it could be found.
    split: OnceCell<Option<Split<'a>>>,
    index: OnceCell<Index>,
    lines: OnceCell<BTreeMap<u64, (u64, u64)>>,
    files: RefCell<HashMap<u64, Rc<str>>>,
}

/// An entry with a name or a scope, and its parent's place in the index.
#[derive(Debug, Clone, Copy)]
pub(super) struct Node {
    pub(super) offset: usize,
    parent: u32,
    pub(super) tag: gimli::DwTag,
}

/// What one walk over a unit found.
#[derive(Debug, Default)]
struct Index {
    nodes: Vec<Node>,
    /// By asked address: the function, then those inlined there, outermost first.
    chains: BTreeMap<u64, Vec<usize>>,
    /// Whether it says anything of types.
    types: bool,
}

/// One function at an address.
#[derive(Debug, Clone)]
pub(super) struct Call {
    /// The entry at the address: a concrete function or an inlined one.
    pub(super) die: Die,
    /// File and line where execution is in this function; empty where unknown.
    pub(super) file: Rc<str>,
    pub(super) line: u64,
}

/// A variable with a fixed place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Static {
    pub(super) address: u64,
    pub(super) thread_local: bool,
    pub(super) die: Die,
    /// The namespace or function around it.
    pub(super) scope: Option<Die>,
}

/// Debug information of one module.
pub(super) struct Debug<'a> {
    files: &'a Files,
    dwarf: Dwarf<Slice<'a>>,
    units: Vec<Whole<'a>>,
    /// Type units by signature.
    signatures: HashMap<u64, Die>,
    /// Asked addresses, sorted, and the units that each lies in.
    addresses: Vec<u64>,
    homes: Vec<Vec<u32>>,
    statics: OnceCell<Vec<Static>>,
    named: OnceCell<HashMap<String, Vec<Die>>>,
    /// The first split file that was not found.
    pub(super) lost: RefCell<Option<String>>,
}

impl std::fmt::Debug for Debug<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Debug of {} units", self.units.len())
    }
}

fn sections(image: &Image, split: bool) -> Dwarf<Slice<'_>> {
    let endian = if image.little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
    let load = |id: SectionId| -> Result<Slice<'_>, std::convert::Infallible> {
        let name = if split { id.dwo_name() } else { Some(id.name()) };
        Ok(EndianSlice::new(name.map_or(&[][..], |name| image.section(name)), endian))
    };
    let Ok(dwarf) = Dwarf::load(load);
    dwarf
}

/// How many units `image` has, as [`Debug::new`] will number them.
pub(super) fn unit_count(image: &Image) -> usize {
    headers(&sections(image, false)).len()
}

type Header<'a> = gimli::UnitHeader<Slice<'a>>;

/// Headers of all units, those of types in their own section last; up to the first damaged one.
fn headers<'a>(dwarf: &Dwarf<Slice<'a>>) -> Vec<Header<'a>> {
    let mut found = Vec::new();
    let mut units = dwarf.units();
    while let Ok(Some(header)) = units.next() {
        found.push(header);
    }
    let mut units = dwarf.type_units();
    while let Ok(Some(header)) = units.next() {
        found.push(header);
    }
    found
}

impl<'a> Debug<'a> {
    /// Opens the debug information of `files`; `addresses` are all that will be asked.
    pub(super) fn new(files: &'a Files, mut addresses: Vec<u64>) -> Self {
        let mut dwarf = sections(files.debug(), false);
        if let Some(supplement) = files.supplement() {
            dwarf.set_sup(sections(supplement, false));
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        addresses.sort_unstable();
        addresses.dedup();
        let mut homes = vec![Vec::new(); addresses.len()];
        let mut units = Vec::new();
        let mut signatures = HashMap::new();
        for header in headers(&dwarf) {
            let number = units.len() as u32;
            let types = header.debug_info_offset().is_none();
            let gimli::UnitSectionOffset(start) = header.offset();
            let kind = header.type_();
            let Ok(unit) = dwarf.unit(header) else { continue };
            if let UnitType::Type { type_signature, type_offset } = kind {
                let die = Die { unit: number, offset: type_offset.0 };
                signatures.insert(type_signature.0, die);
            }
            if let Ok(mut ranges) = dwarf.unit_ranges(&unit) {
                while let Ok(Some(range)) = ranges.next() {
                    let from = addresses.partition_point(|x| *x < range.begin);
                    let to = addresses.partition_point(|x| *x < range.end);
                    for home in homes.get_mut(from..to).unwrap_or(&mut []) {
                        if !home.contains(&number) && home.len() < 8 {
                            home.push(number);
                        }
                    }
                }
            }
            units.push(Whole {
                unit,
                start,
                types,
                split: OnceCell::new(),
                index: OnceCell::new(),
                lines: OnceCell::new(),
                files: RefCell::default(),
            });
        }
        Self {
            files,
            dwarf,
            units,
            signatures,
            addresses,
            homes,
            statics: OnceCell::new(),
            named: OnceCell::new(),
            lost: RefCell::new(None),
        }
    }

    /// Whether there is anything to ask.
    pub(super) fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Whether a unit that was walked says anything of types.
    pub(super) fn has_types(&self) -> bool {
        let mut walked = self.units.iter().filter_map(|unit| unit.index.get()).peekable();
        walked.peek().is_none() || walked.any(|index| index.types)
    }

    /// The unit to walk in place of `number`: itself, or what it is the skeleton of.
    pub(super) fn unit(&self, number: u32) -> Option<(&Dwarf<Slice<'a>>, &Unit<Slice<'a>>)> {
        let whole = self.units.get(number as usize)?;
        let split = whole.split.get_or_init(|| self.open_split(number as usize, whole));
        Some(match split {
            Some(both) => (&both.0, &both.1),
            None => (&self.dwarf, &whole.unit),
        })
    }

    fn open_split(&self, number: usize, whole: &Whole<'a>) -> Option<Split<'a>> {
        let id = whole.unit.dwo_id?;
        let name = self.dwarf.attr_string(&whole.unit, whole.unit.dwo_name().ok()??).ok()?;
        let name = name.to_string_lossy().into_owned();
        let found = self.packaged(id).or_else(|| {
            let directory = whole.unit.comp_dir.map(|x| x.to_string_lossy().into_owned());
            let directory = PathBuf::from(directory.unwrap_or_default());
            let image = self.files.split(number, &directory, name.as_ref())?;
            let mut dwarf = sections(image, true);
            dwarf.make_dwo(&self.dwarf);
            Some(dwarf)
        });
        let unit = found.and_then(|dwarf| {
            let mut headers = dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                let Ok(mut unit) = dwarf.unit(header) else { continue };
                if unit.dwo_id == Some(id) {
                    unit.copy_relocated_attributes(&whole.unit);
                    return Some((dwarf, unit));
                }
            }
            None
        });
        if unit.is_none() {
            self.lost.borrow_mut().get_or_insert(name);
        }
        unit.map(Box::new)
    }

    fn packaged(&self, id: gimli::DwoId) -> Option<Dwarf<Slice<'a>>> {
        let image = self.files.package()?;
        let endian = if image.little_endian { RunTimeEndian::Little } else { RunTimeEndian::Big };
        let load = |section: SectionId| -> gimli::Result<Slice<'a>> {
            let name = section.dwo_name().unwrap_or(section.name());
            Ok(EndianSlice::new(image.section(name), endian))
        };
        let package = gimli::DwarfPackage::load(load, EndianSlice::new(&[], endian)).ok()?;
        package.find_cu(id, &self.dwarf).ok()?
    }

    /// The entry at `die`.
    pub(super) fn entry(&self, die: Die) -> Option<Entry<'a>> {
        self.unit(die.unit)?.1.entry(UnitOffset(die.offset)).ok()
    }

    /// The entries directly below `die`.
    pub(super) fn children(&self, die: Die) -> Vec<Entry<'a>> {
        let mut found = Vec::new();
        self.below(die, &mut |entry, depth| {
            if depth == 1 {
                found.push(entry.clone());
            }
        });
        found
    }

    /// Shows all entries below `die`, each with its depth.
    pub(super) fn below(&self, die: Die, show: &mut dyn FnMut(&Entry<'a>, isize)) {
        let Some((_, unit)) = self.unit(die.unit) else { return };
        let Ok(mut raw) = unit.entries_raw(Some(UnitOffset(die.offset))) else { return };
        let mut entry = Entry::null();
        match raw.read_entry(&mut entry) {
            Ok(true) if entry.has_children() => {}
            _ => return,
        }
        while !raw.is_empty() && raw.next_depth() > 0 {
            match raw.read_entry(&mut entry) {
                Ok(true) => show(&entry, entry.depth()),
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }

    /// The entry that `value`, read in unit `unit`, refers to.
    pub(super) fn refer(&self, unit: u32, value: AttributeValue<Slice<'a>>) -> Option<Die> {
        match value {
            AttributeValue::UnitRef(offset) => Some(Die { unit, offset: offset.0 }),
            AttributeValue::DebugInfoRef(offset) => {
                // Split units refer within themselves only.
                let end = self.units.partition_point(|x| !x.types && x.start <= offset.0);
                let number = end.checked_sub(1)?;
                let offset = offset.0 - self.units.get(number)?.start;
                Some(Die { unit: number as u32, offset })
            }
            AttributeValue::DebugTypesRef(signature) => self.signatures.get(&signature.0).copied(),
            _ => None,
        }
    }

    /// The entry that attribute `name` of `entry` refers to.
    pub(super) fn link(&self, unit: u32, entry: &Entry<'a>, name: gimli::DwAt) -> Option<Die> {
        self.refer(unit, entry.attr_value(name)?)
    }

    /// A string attribute.
    pub(super) fn text(&self, unit: u32, entry: &Entry<'a>, name: gimli::DwAt) -> Option<String> {
        let value = entry.attr_value(name)?;
        let (dwarf, unit) = self.unit(unit)?;
        let text = dwarf.attr_string(unit, value).ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    /// `entry` and those that it completes: abstract origins and specifications.
    pub(super) fn origins(&self, die: Die) -> Vec<(Die, Entry<'a>)> {
        let mut found: Vec<(Die, Entry<'a>)> = Vec::new();
        let mut next = Some(die);
        while let Some(die) = next
            && found.len() < HOPS_MAX
            && let Some(entry) = self.entry(die)
        {
            next = self
                .link(die.unit, &entry, constants::DW_AT_abstract_origin)
                .or_else(|| self.link(die.unit, &entry, constants::DW_AT_specification));
            found.push((die, entry));
        }
        found
    }

    fn index(&self, number: u32) -> Option<&Index> {
        let whole = self.units.get(number as usize)?;
        Some(whole.index.get_or_init(|| self.walk(number)))
    }

    /// One walk over a unit: scopes, and the functions at asked addresses.
    fn walk(&self, number: u32) -> Index {
        let mut index = Index::default();
        let Some((dwarf, unit)) = self.unit(number) else { return index };
        let Ok(mut raw) = unit.entries_raw(None) else { return index };
        let asked: Vec<u64> = self
            .addresses
            .iter()
            .zip(&self.homes)
            .filter(|(_, homes)| homes.contains(&number))
            .map(|(address, _)| *address)
            .collect();
        // Open scopes: depth, place in `nodes`; open functions at asked addresses: depth.
        let mut scopes: Vec<(isize, u32)> = Vec::new();
        let mut inside: Vec<isize> = Vec::new();
        let mut entry = Entry::null();
        while !raw.is_empty() {
            let (offset, depth) = (raw.next_offset(), raw.next_depth());
            while scopes.last().is_some_and(|scope| scope.0 >= depth) {
                scopes.pop();
            }
            while inside.last().is_some_and(|open| *open >= depth) {
                inside.pop();
            }
            let mut ahead = raw.clone();
            let abbreviation = match raw.read_abbreviation() {
                Ok(Some(abbreviation)) => abbreviation,
                Ok(None) => continue,
                Err(_) => break,
            };
            let tag = abbreviation.tag();
            let code = match tag {
                constants::DW_TAG_subprogram => !asked.is_empty(),
                constants::DW_TAG_inlined_subroutine => !inside.is_empty(),
                _ => false,
            };
            if code {
                if ahead.read_entry(&mut entry).is_err() {
                    break;
                }
                raw = ahead;
                if self.covers(dwarf, unit, &entry, &asked, &mut index) {
                    inside.push(depth);
                }
            } else if raw.skip_attributes(abbreviation.attributes()).is_err() {
                break;
            }
            let scope = matches!(
                tag,
                constants::DW_TAG_namespace
                    | constants::DW_TAG_module
                    | constants::DW_TAG_structure_type
                    | constants::DW_TAG_class_type
                    | constants::DW_TAG_union_type
                    | constants::DW_TAG_enumeration_type
                    | constants::DW_TAG_typedef
                    | constants::DW_TAG_base_type
                    | constants::DW_TAG_subprogram
            );
            index.types |= matches!(
                tag,
                constants::DW_TAG_structure_type
                    | constants::DW_TAG_base_type
                    | constants::DW_TAG_union_type
            );
            if scope {
                let parent = scopes.last().map_or(u32::MAX, |scope| scope.1);
                if abbreviation.has_children() {
                    scopes.push((depth, index.nodes.len() as u32));
                }
                index.nodes.push(Node { offset: offset.0, parent, tag });
            }
        }
        index
    }

    /// Adds the code entry to the chains of those of `asked` that it covers; whether there are any.
    fn covers(
        &self,
        dwarf: &Dwarf<Slice<'a>>,
        unit: &Unit<Slice<'a>>,
        entry: &Entry<'a>,
        asked: &[u64],
        index: &mut Index,
    ) -> bool {
        let Ok(mut ranges) = dwarf.die_ranges(unit, entry) else { return false };
        let mut any = false;
        while let Ok(Some(range)) = ranges.next() {
            if range.begin == 0 {
                continue;
            }
            let from = asked.partition_point(|x| *x < range.begin);
            let to = asked.partition_point(|x| *x < range.end);
            for address in asked.get(from..to).unwrap_or(&[]) {
                let chain = index.chains.entry(*address).or_default();
                if chain.len() < 256 && chain.last() != Some(&entry.offset().0) {
                    chain.push(entry.offset().0);
                }
                any = true;
            }
        }
        any
    }

    /// The functions at `address`, which was announced, the innermost inlined one first.
    pub(super) fn calls(&self, address: u64) -> Vec<Call> {
        let Ok(at) = self.addresses.binary_search(&address) else { return Vec::new() };
        for number in &self.homes[at] {
            let Some(chain) = self.index(*number).and_then(|x| x.chains.get(&address)) else {
                continue;
            };
            let (mut file, mut line) = self.line(*number, address);
            let mut calls = Vec::new();
            for offset in chain.iter().rev() {
                let die = Die { unit: *number, offset: *offset };
                let Some(entry) = self.entry(die) else { continue };
                let outer = (
                    entry.attr_value(constants::DW_AT_call_file).and_then(|x| match x {
                        AttributeValue::FileIndex(index) => Some(index),
                        other => other.udata_value(),
                    }),
                    entry.attr_value(constants::DW_AT_call_line).and_then(|x| x.udata_value()),
                );
                calls.push(Call { die, file, line });
                file = outer.0.map_or_else(|| Rc::from(""), |x| self.file(*number, x));
                line = outer.1.unwrap_or(0);
            }
            return calls;
        }
        Vec::new()
    }

    /// File and line of `address` in unit `number`, of the innermost function.
    pub(super) fn line(&self, number: u32, address: u64) -> (Rc<str>, u64) {
        let Some(whole) = self.units.get(number as usize) else { return (Rc::from(""), 0) };
        let lines = whole.lines.get_or_init(|| self.read_lines(number, whole));
        match lines.get(&address) {
            Some((file, line)) => (self.file(number, *file), *line),
            None => (Rc::from(""), 0),
        }
    }

    fn read_lines(&self, number: u32, whole: &Whole<'a>) -> BTreeMap<u64, (u64, u64)> {
        let mut found = BTreeMap::new();
        let Some(program) = whole.unit.line_program.clone() else { return found };
        let mut rows = program.rows();
        let mut before: Option<(u64, u64, u64)> = None;
        while let Ok(Some((_, row))) = rows.next_row() {
            let address = row.address();
            if let Some((start, file, line)) = before
                && start != 0
                && address > start
            {
                let from = self.addresses.partition_point(|x| *x < start);
                let to = self.addresses.partition_point(|x| *x < address);
                for at in from..to {
                    if self.homes[at].contains(&number) {
                        found.entry(self.addresses[at]).or_insert((file, line));
                    }
                }
            }
            let line = row.line().map_or(0, |line| line.get());
            before = (!row.end_sequence()).then(|| (address, row.file_index(), line));
        }
        found
    }

    /// The path of file `index` in unit `number`'s line table.
    pub(super) fn file(&self, number: u32, index: u64) -> Rc<str> {
        let Some(whole) = self.units.get(number as usize) else { return Rc::from("") };
        if let Some(known) = whole.files.borrow().get(&index) {
            return known.clone();
        }
        let path: Rc<str> = Rc::from(self.read_file(whole, index).unwrap_or_default());
        whole.files.borrow_mut().insert(index, path.clone());
        path
    }

    fn read_file(&self, whole: &Whole<'a>, index: u64) -> Option<String> {
        let header = whole.unit.line_program.as_ref()?.header();
        let file = header.file(index)?;
        let string = |value| {
            let text = self.dwarf.attr_string(&whole.unit, value).ok()?;
            Some(text.to_string_lossy().into_owned())
        };
        let mut path = PathBuf::new();
        if let Some(directory) = whole.unit.comp_dir {
            path.push(&*directory.to_string_lossy());
        }
        if let Some(directory) = file.directory(header).and_then(string) {
            path.push(directory);
        }
        path.push(string(file.path_name())?);
        Some(path.to_string_lossy().into_owned())
    }

    /// Whether unit `number` was written in Rust.
    pub(super) fn is_rust(&self, number: u32) -> bool {
        let Some((_, unit)) = self.unit(number) else { return false };
        let root = unit.entry(unit.header.root_offset()).ok();
        let language = root.and_then(|root| root.attr_value(constants::DW_AT_language));
        matches!(language, Some(AttributeValue::Language(constants::DW_LANG_Rust)))
    }

    /// The units that announced `address` lies in.
    pub(super) fn homes(&self, address: u64) -> &[u32] {
        self.addresses.binary_search(&address).map_or(&[], |at| &self.homes[at])
    }

    /// The scopes around `die`, which is one itself, outermost first.
    pub(super) fn parents(&self, die: Die) -> Vec<Node> {
        let Some(index) = self.index(die.unit) else { return Vec::new() };
        let Ok(mut at) = index.nodes.binary_search_by_key(&die.offset, |node| node.offset) else {
            return Vec::new();
        };
        let mut found = Vec::new();
        while let Some(node) = index.nodes.get(at).and_then(|x| index.nodes.get(x.parent as usize))
        {
            found.push(*node);
            at = index.nodes[at].parent as usize;
        }
        found.reverse();
        found
    }

    /// The entries of types with names in unit `number`.
    pub(super) fn types_of(&self, number: u32) -> impl Iterator<Item = (Die, gimli::DwTag)> {
        let nodes = self.index(number).map_or(&[][..], |index| &index.nodes);
        nodes
            .iter()
            .filter(|node| {
                matches!(
                    node.tag,
                    constants::DW_TAG_structure_type
                        | constants::DW_TAG_class_type
                        | constants::DW_TAG_union_type
                        | constants::DW_TAG_typedef
                )
            })
            .map(move |node| (Die { unit: number, offset: node.offset }, node.tag))
    }

    /// The types that are called `name`, without their path, in all units.
    pub(super) fn named(&self, name: &str) -> &[Die] {
        let named = self.named.get_or_init(|| {
            let mut named: HashMap<String, Vec<Die>> = HashMap::new();
            for number in 0..self.units.len() as u32 {
                for (die, _) in self.types_of(number) {
                    let Some(entry) = self.entry(die) else { continue };
                    if entry.has_attr(constants::DW_AT_declaration) {
                        continue;
                    }
                    if let Some(name) = self.text(number, &entry, constants::DW_AT_name) {
                        named.entry(name).or_default().push(die);
                    }
                }
            }
            named
        });
        named.get(name).map_or(&[], Vec::as_slice)
    }

    /// All variables with a fixed place, by kind and address.
    pub(super) fn statics(&self) -> &[Static] {
        self.statics.get_or_init(|| {
            let mut found = Vec::new();
            for number in 0..self.units.len() as u32 {
                self.read_statics(number, &mut found);
            }
            found.sort_by_key(|x| (x.thread_local, x.address, x.die));
            found
        })
    }

    fn read_statics(&self, number: u32, found: &mut Vec<Static>) {
        let Some((dwarf, unit)) = self.unit(number) else { return };
        let Ok(mut raw) = unit.entries_raw(None) else { return };
        let mut scopes: Vec<(isize, usize)> = Vec::new();
        while !raw.is_empty() {
            let (offset, depth) = (raw.next_offset().0, raw.next_depth());
            while scopes.last().is_some_and(|scope| scope.0 >= depth) {
                scopes.pop();
            }
            let abbreviation = match raw.read_abbreviation() {
                Ok(Some(abbreviation)) => abbreviation,
                Ok(None) => continue,
                Err(_) => return,
            };
            let tag = abbreviation.tag();
            if matches!(tag, constants::DW_TAG_namespace | constants::DW_TAG_subprogram)
                && abbreviation.has_children()
            {
                scopes.push((depth, offset));
            }
            if tag != constants::DW_TAG_variable {
                if raw.skip_attributes(abbreviation.attributes()).is_err() {
                    return;
                }
                continue;
            }
            for specification in abbreviation.attributes() {
                let Ok(attribute) = raw.read_attribute(*specification) else { return };
                if attribute.name() == constants::DW_AT_location
                    && let AttributeValue::Exprloc(expression) = attribute.value()
                    && let Some((address, thread_local)) = place(dwarf, unit, expression)
                    && (address != 0 || thread_local)
                {
                    let die = Die { unit: number, offset };
                    let scope = scopes.last().map(|scope| Die { unit: number, offset: scope.1 });
                    found.push(Static { address, thread_local, die, scope });
                }
            }
        }
    }

    /// Parts of the module's own tables.
    pub(super) fn files(&self) -> &'a Files {
        self.files
    }
}

/// The fixed address that `expression` says, and whether it is an offset in the thread's block.
fn place<'a>(
    dwarf: &Dwarf<Slice<'a>>,
    unit: &Unit<Slice<'a>>,
    expression: gimli::Expression<Slice<'a>>,
) -> Option<(u64, bool)> {
    let mut operations = expression.operations(unit.encoding());
    let mut value = None;
    let mut thread_local = false;
    while let Ok(Some(operation)) = operations.next() {
        match (operation, value) {
            (gimli::Operation::Address { address }, None) => value = Some(address),
            (gimli::Operation::UnsignedConstant { value: constant }, None) => {
                value = Some(constant)
            }
            (gimli::Operation::SignedConstant { value: constant }, None) => {
                value = Some(u64::try_from(constant).ok()?);
            }
            (
                gimli::Operation::AddressIndex { index }
                | gimli::Operation::ConstantIndex { index },
                None,
            ) => value = dwarf.address(unit, index).ok(),
            (gimli::Operation::PlusConstant { value: more }, Some(base)) => {
                value = Some(base.wrapping_add(more));
            }
            (gimli::Operation::TLS, Some(_)) => thread_local = true,
            _ => return None,
        }
    }
    value.map(|address| (address, thread_local))
}
