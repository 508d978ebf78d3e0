//! Types of one module: names, sizes, and layouts as a list of leaves.
//!
//! # Boundary
//! Follows types from entry to entry, only those that are asked for. Which object has which type is
//! decided in [`super::heap`] and [`super::globals`].
//!
//! # Concurrency
//! None; shapes are kept once read.
//!
//! # Why
//! A report names `root.lock`, not `data.__0.inner.value.root.__0.lock.v.value`: members that only
//! wrap their content lose their names (`WRAPPERS`). Leaves may overlap, as those of an enum's variants
//! do. Weakness: a folded name can no longer be told from its only content.

use super::dwarf::{Debug, Die, Entry};
use gimli::{AttributeValue, constants};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use uvfs_coherence::profile::Field;

/// Members that lose their name when nothing but them takes room in their struct.
const WRAPPERS: [&str; 8] = ["value", "v", "inner", "__0", "pointer", "ptr", "data_ptr", "uninit"];

/// Elements of an array that are listed one by one.
const ELEMENTS_MAX: u64 = 64;

/// Leaves that one array may be written out into, and one type.
const ARRAY_LEAVES_MAX: u64 = 512;
const LEAVES_MAX: usize = 4096;

/// Steps of one flattening, and how deep types may lie in each other: a damaged file may hold a cycle.
const STEPS_MAX: u32 = 100_000;
const DEPTH_MAX: u32 = 48;

/// Alternatives that are listed where several variants share bytes.
const ALTERNATIVES_MAX: usize = 3;

/// A member of a struct, a union or a variant.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) name: String,
    pub(super) offset: u64,
    pub(super) die: Option<Die>,
    /// Storage unit of a bit field: offset and bytes.
    storage: Option<(u64, u64)>,
    artificial: bool,
}

/// The variants of an enum.
#[derive(Debug, Clone, Default)]
struct Variants {
    discriminant: Option<Member>,
    cases: Vec<Member>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A number, a bool, an enum without data.
    Scalar,
    Pointer,
    Struct,
    Union,
    /// Lengths, the outermost first.
    Array(Vec<u64>),
    /// Another name, a qualifier.
    Alias,
    Unknown,
}

/// The type that an entry describes.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) kind: Kind,
    /// Without its path.
    pub(super) name: String,
    size: Option<u64>,
    align: u64,
    pub(super) members: Vec<Member>,
    variants: Vec<Variants>,
    /// The type that a pointer, an array or an alias refers to.
    pub(super) target: Option<Die>,
    declaration: bool,
}

/// The types of one module.
#[derive(Debug)]
pub(super) struct Types<'d, 'a> {
    pub(super) debug: &'d Debug<'a>,
    shapes: RefCell<HashMap<Die, Rc<Shape>>>,
}

/// A leaf while it is put together.
#[derive(Debug, Clone)]
struct Leaf {
    path: String,
    offset: u64,
    bytes: u64,
    type_name: String,
}

/// A layout ready for the profile.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) name: String,
    pub(super) size: u64,
    pub(super) align: u64,
    pub(super) fields: Vec<Field>,
    pub(super) declared: String,
}

impl<'d, 'a> Types<'d, 'a> {
    pub(super) fn new(debug: &'d Debug<'a>) -> Self {
        Self { debug, shapes: RefCell::default() }
    }

    /// The shape of the type at `die`.
    pub(super) fn shape(&self, die: Die) -> Rc<Shape> {
        if let Some(known) = self.shapes.borrow().get(&die) {
            return known.clone();
        }
        let shape = Rc::new(self.read(die));
        self.shapes.borrow_mut().insert(die, shape.clone());
        shape
    }

    fn number(entry: &Entry<'a>, name: gimli::DwAt) -> Option<u64> {
        entry.attr_value(name)?.udata_value()
    }

    fn read(&self, die: Die) -> Shape {
        let mut shape = Shape {
            kind: Kind::Unknown,
            name: String::new(),
            size: None,
            align: 0,
            members: Vec::new(),
            variants: Vec::new(),
            target: None,
            declaration: false,
        };
        let Some(entry) = self.debug.entry(die) else { return shape };
        shape.name = self.debug.text(die.unit, &entry, constants::DW_AT_name).unwrap_or_default();
        shape.size = Self::number(&entry, constants::DW_AT_byte_size);
        shape.align = Self::number(&entry, constants::DW_AT_alignment).unwrap_or(0);
        shape.target = self.debug.link(die.unit, &entry, constants::DW_AT_type);
        shape.declaration = entry.has_attr(constants::DW_AT_declaration);
        match entry.tag() {
            constants::DW_TAG_base_type | constants::DW_TAG_enumeration_type => {
                shape.kind = Kind::Scalar;
            }
            constants::DW_TAG_pointer_type
            | constants::DW_TAG_reference_type
            | constants::DW_TAG_rvalue_reference_type
            | constants::DW_TAG_ptr_to_member_type
            | constants::DW_TAG_subroutine_type => shape.kind = Kind::Pointer,
            constants::DW_TAG_typedef
            | constants::DW_TAG_const_type
            | constants::DW_TAG_volatile_type
            | constants::DW_TAG_restrict_type
            | constants::DW_TAG_atomic_type
            | constants::DW_TAG_immutable_type
            | constants::DW_TAG_packed_type => shape.kind = Kind::Alias,
            constants::DW_TAG_array_type => {
                let lengths = self.debug.children(die);
                let lengths = lengths
                    .iter()
                    .filter(|x| x.tag() == constants::DW_TAG_subrange_type)
                    .map(|x| {
                        Self::number(x, constants::DW_AT_count).unwrap_or_else(|| {
                            let upper = x.attr_value(constants::DW_AT_upper_bound);
                            match upper.and_then(|x| x.udata_value()) {
                                Some(last) => last.checked_add(1).unwrap_or(0),
                                None => 0,
                            }
                        })
                    });
                shape.kind = Kind::Array(lengths.collect());
            }
            constants::DW_TAG_structure_type | constants::DW_TAG_class_type => {
                shape.kind = Kind::Struct;
                self.read_members(die, &mut shape);
                // A definition elsewhere, as those of type units are.
                if let Some(whole) = self.debug.link(die.unit, &entry, constants::DW_AT_signature) {
                    shape.kind = Kind::Alias;
                    shape.target = Some(whole);
                }
            }
            constants::DW_TAG_union_type => {
                shape.kind = Kind::Union;
                self.read_members(die, &mut shape);
            }
            _ => {}
        }
        shape
    }

    fn read_members(&self, die: Die, shape: &mut Shape) {
        let mut variants: Vec<Variants> = Vec::new();
        // Depth of the variant part that is open.
        let mut part: Option<isize> = None;
        self.debug.below(die, &mut |entry, depth| {
            if part.is_some_and(|open| depth <= open) {
                part = None;
            }
            match entry.tag() {
                constants::DW_TAG_variant_part if depth == 1 => {
                    part = Some(depth);
                    variants.push(Variants::default());
                }
                constants::DW_TAG_member | constants::DW_TAG_inheritance => {
                    let member = |name: String| self.read_member(die.unit, entry, name);
                    let name = self.debug.text(die.unit, entry, constants::DW_AT_name);
                    let name = name.unwrap_or_default();
                    match (part, variants.last_mut()) {
                        (Some(_), Some(variants)) if depth == 2 => {
                            variants.discriminant = member(name);
                        }
                        (Some(_), Some(variants)) if depth == 3 => {
                            variants.cases.extend(member(name));
                        }
                        (None, _) if depth == 1 => shape.members.extend(member(name)),
                        _ => {}
                    }
                }
                _ => {}
            }
        });
        shape.variants = variants;
    }

    fn read_member(&self, unit: u32, entry: &Entry<'a>, name: String) -> Option<Member> {
        // Static members have no place in the struct.
        if entry.has_attr(constants::DW_AT_external) || entry.has_attr(constants::DW_AT_const_value)
        {
            return None;
        }
        let die = self.debug.link(unit, entry, constants::DW_AT_type);
        let offset = match entry.attr_value(constants::DW_AT_data_member_location) {
            Some(AttributeValue::Exprloc(expression)) => {
                // `plus_uconst N`, as DWARF 2 has it.
                let (_, unit) = self.debug.unit(unit)?;
                match expression.operations(unit.encoding()).next() {
                    Ok(Some(gimli::Operation::PlusConstant { value })) => value,
                    _ => return None,
                }
            }
            Some(value) => value.udata_value()?,
            None => 0,
        };
        let mut storage = None;
        if entry.has_attr(constants::DW_AT_bit_size) {
            let bytes = Self::number(entry, constants::DW_AT_byte_size)
                .or_else(|| die.and_then(|die| self.size(die)))
                .filter(|bytes| (1..=16).contains(bytes))?;
            let start = match Self::number(entry, constants::DW_AT_data_bit_offset) {
                Some(bit) => bit / 8 / bytes * bytes,
                None => offset,
            };
            storage = Some((start, bytes));
        }
        let artificial = entry.has_attr(constants::DW_AT_artificial);
        Some(Member { name, offset, die, storage, artificial })
    }

    /// `die` without other names and qualifiers.
    pub(super) fn strip(&self, die: Die) -> Die {
        let mut at = die;
        for _ in 0..DEPTH_MAX {
            let shape = self.shape(at);
            match (&shape.kind, shape.target) {
                (Kind::Alias, Some(target)) => at = target,
                _ => break,
            }
        }
        at
    }

    /// The target of the pointer `die`, without names and qualifiers.
    pub(super) fn pointee(&self, die: Die) -> Option<Die> {
        let shape = self.shape(self.strip(die));
        if shape.kind != Kind::Pointer {
            return None;
        }
        Some(self.strip(shape.target?))
    }

    /// Bytes of the type, where they are known.
    pub(super) fn size(&self, die: Die) -> Option<u64> {
        self.size_within(die, DEPTH_MAX)
    }

    fn size_within(&self, die: Die, depth: u32) -> Option<u64> {
        let shape = self.shape(die);
        if shape.size.is_some() {
            return shape.size;
        }
        let depth = depth.checked_sub(1)?;
        match &shape.kind {
            Kind::Pointer => Some(8),
            Kind::Alias => self.size_within(shape.target?, depth),
            Kind::Array(lengths) => {
                lengths.iter().try_fold(self.size_within(shape.target?, depth)?, |size, length| {
                    size.checked_mul(*length)
                })
            }
            _ => None,
        }
    }

    /// The element's type of an array with elements; of an array of arrays, the innermost one's.
    pub(super) fn element(&self, die: Die) -> Option<Die> {
        let shape = self.shape(self.strip(die));
        let row = matches!(shape.kind, Kind::Array(_));
        let element = shape.target.filter(|_| row)?;
        self.size(element).filter(|bytes| *bytes > 0)?;
        Some(element)
    }

    /// Whether the type is a struct or a union that is defined.
    pub(super) fn is_record(&self, die: Die) -> bool {
        let shape = self.shape(die);
        matches!(shape.kind, Kind::Struct | Kind::Union) && !shape.declaration
    }

    /// The name with its path: `alloc::sync::ArcInner<prog::Super>`, `dentry`, `Cell[4]`.
    pub(super) fn name(&self, die: Die) -> String {
        self.name_within(die, 8)
    }

    fn name_within(&self, die: Die, depth: u32) -> String {
        let shape = self.shape(die);
        let Some(depth) = depth.checked_sub(1) else { return "…".to_string() };
        let target = |other: &str| match shape.target {
            Some(target) => self.name_within(target, depth),
            None => other.to_string(),
        };
        match &shape.kind {
            Kind::Array(lengths) => {
                let lengths: String = lengths.iter().map(|x| format!("[{x}]")).collect();
                target("?") + &lengths
            }
            Kind::Pointer if shape.name.is_empty() => target("void") + "*",
            Kind::Alias if shape.name.is_empty() => target("void"),
            Kind::Struct | Kind::Union if shape.name.is_empty() => "{anonymous}".to_string(),
            _ => {
                let mut name = String::new();
                if matches!(shape.kind, Kind::Struct | Kind::Union | Kind::Scalar) {
                    for node in self.debug.parents(die) {
                        let parent = Die { unit: die.unit, offset: node.offset };
                        let Some(entry) = self.debug.entry(parent) else { continue };
                        let text = self.debug.text(die.unit, &entry, constants::DW_AT_name);
                        // A C struct that is declared in another is not part of it by name.
                        let path = match node.tag {
                            constants::DW_TAG_namespace | constants::DW_TAG_module => text,
                            _ => None,
                        };
                        if let Some(text) = path {
                            name.push_str(&text);
                            name.push_str("::");
                        }
                    }
                }
                name + &shape.name
            }
        }
    }

    /// Where the type is defined: `file:line`; empty where that is not known.
    fn declared(&self, die: Die) -> String {
        let Some(entry) = self.debug.entry(die) else { return String::new() };
        let file = match entry.attr_value(constants::DW_AT_decl_file) {
            Some(AttributeValue::FileIndex(index)) => index,
            Some(value) => value.udata_value().unwrap_or(0),
            None => return String::new(),
        };
        let line = Self::number(&entry, constants::DW_AT_decl_line).unwrap_or(0);
        let file = self.debug.file(die.unit, file);
        if file.is_empty() || line == 0 { String::new() } else { format!("{file}:{line}") }
    }

    /// The layout of the type, its leaves by offset.
    pub(super) fn layout(&self, die: Die) -> Option<Layout> {
        let size = self.size(die)?;
        let mut steps = STEPS_MAX;
        let mut leaves = self.leaves(die, 0, &mut steps);
        leaves.retain(|leaf| leaf.bytes > 0 && leaf.offset < size);
        merge(&mut leaves);
        leaves.truncate(LEAVES_MAX);
        let fields = leaves.into_iter().map(|leaf| Field {
            path: leaf.path,
            offset: leaf.offset,
            bytes: leaf.bytes,
            type_name: leaf.type_name,
        });
        let whole = self.strip(die);
        let named = if self.shape(whole).name.is_empty() { die } else { whole };
        Some(Layout {
            name: self.name(named),
            size,
            align: self.shape(whole).align,
            fields: fields.collect(),
            declared: self.declared(named),
        })
    }

    fn leaves(&self, die: Die, depth: u32, steps: &mut u32) -> Vec<Leaf> {
        if *steps == 0 || depth > DEPTH_MAX {
            return Vec::new();
        }
        *steps -= 1;
        let shape = self.shape(die);
        let scalar = || {
            let bytes = self.size(die).unwrap_or(0);
            let leaf =
                Leaf { path: String::new(), offset: 0, bytes, type_name: short(&self.name(die)) };
            vec![leaf]
        };
        match &shape.kind {
            Kind::Scalar | Kind::Pointer | Kind::Unknown => scalar(),
            Kind::Alias => match shape.target {
                Some(target) => {
                    let mut leaves = self.leaves(target, depth + 1, steps);
                    // `_Atomic int`, `spinlock_t`: the name that the source uses.
                    if let [leaf] = &mut leaves[..]
                        && leaf.path.is_empty()
                        && !shape.name.is_empty()
                    {
                        leaf.type_name.clone_from(&shape.name);
                    }
                    leaves
                }
                None => scalar(),
            },
            Kind::Array(lengths) => self.array(shape.target, lengths, depth, steps),
            Kind::Struct | Kind::Union => self.record(&shape, depth, steps),
        }
    }

    fn array(&self, of: Option<Die>, lengths: &[u64], depth: u32, steps: &mut u32) -> Vec<Leaf> {
        let Some(of) = of else { return Vec::new() };
        let Some((length, inner)) = lengths.split_first() else {
            return self.leaves(of, depth + 1, steps);
        };
        let element = self.array(Some(of), inner, depth, steps);
        let bytes = inner.iter().try_fold(self.size(of).unwrap_or(0), |x, y| x.checked_mul(*y));
        let Some(bytes) = bytes.filter(|bytes| *bytes > 0) else { return Vec::new() };
        let count = (*length).saturating_mul(element.len() as u64);
        if *length <= ELEMENTS_MAX && count <= ARRAY_LEAVES_MAX {
            let mut leaves = Vec::new();
            for i in 0..*length {
                for leaf in &element {
                    let Some(offset) =
                        i.checked_mul(bytes).and_then(|x| x.checked_add(leaf.offset))
                    else {
                        return leaves;
                    };
                    let path = join(&format!("[{i}]"), &leaf.path);
                    leaves.push(Leaf { path, offset, ..leaf.clone() });
                }
            }
            return leaves;
        }
        // A pattern: all of it, then the first element's leaves, which stand for every element's.
        let Some(all) = bytes.checked_mul(*length) else { return Vec::new() };
        let lengths: String = inner.iter().map(|x| format!("[{x}]")).collect();
        let type_name = format!("[{}{lengths}; {length}]", short(&self.name(of)));
        let mut leaves = vec![Leaf { path: "[]".to_string(), offset: 0, bytes: all, type_name }];
        if element.len() > 1 || element.iter().any(|leaf| !leaf.path.is_empty()) {
            leaves.extend(
                element.into_iter().map(|leaf| Leaf { path: join("[]", &leaf.path), ..leaf }),
            );
        }
        leaves
    }

    fn record(&self, shape: &Shape, depth: u32, steps: &mut u32) -> Vec<Leaf> {
        let mut groups: Vec<(&Member, Vec<Leaf>)> = Vec::new();
        for member in &shape.members {
            let Some(die) = member.die else { continue };
            if let Some((offset, bytes)) = member.storage {
                let type_name = short(&self.name(die));
                groups.push((member, vec![Leaf { path: String::new(), offset, bytes, type_name }]));
                continue;
            }
            let mut leaves = self.leaves(die, depth + 1, steps);
            leaves.retain_mut(|leaf| match leaf.offset.checked_add(member.offset) {
                Some(offset) => {
                    leaf.offset = offset;
                    leaf.bytes > 0
                }
                None => false,
            });
            if !leaves.is_empty() && groups.len() < LEAVES_MAX {
                groups.push((member, leaves));
            }
        }
        let mut leaves = if shape.kind == Kind::Union {
            union(groups)
        } else {
            fold(groups, shape.variants.is_empty())
        };
        for variants in &shape.variants {
            leaves.extend(self.variants(shape, variants, depth, steps));
        }
        merge(&mut leaves);
        leaves.truncate(LEAVES_MAX);
        // `AtomicU32` says more than the `u32` in it.
        if let [leaf] = &mut leaves[..]
            && leaf.path.is_empty()
            && shape.name.starts_with("Atomic")
        {
            leaf.type_name = short(&shape.name);
        }
        leaves
    }

    fn variants(&self, shape: &Shape, of: &Variants, depth: u32, steps: &mut u32) -> Vec<Leaf> {
        let mut leaves = Vec::new();
        for case in &of.cases {
            let Some(die) = case.die else { continue };
            for mut leaf in self.leaves(die, depth + 1, steps) {
                leaf.path = join(&case.name, &leaf.path);
                leaf.offset = leaf.offset.saturating_add(case.offset);
                if leaf.bytes > 0 && leaves.len() < LEAVES_MAX {
                    leaves.push(leaf);
                }
            }
        }
        let Some(discriminant) = &of.discriminant else { return leaves };
        let bytes = discriminant.die.and_then(|die| self.size(die)).unwrap_or(0);
        let niche = leaves.iter().any(|leaf| {
            let into = discriminant.offset.checked_sub(leaf.offset);
            into.is_some_and(|into| into < leaf.bytes)
        });
        if !niche {
            leaves.push(Leaf {
                path: "discriminant".to_string(),
                offset: discriminant.offset,
                bytes,
                type_name: discriminant.die.map_or_else(String::new, |die| short(&self.name(die))),
            });
        } else if shape.name.starts_with("Option<") {
            // An optional value has the name of its content.
            for leaf in &mut leaves {
                if let Some(rest) = leaf.path.strip_prefix("Some") {
                    leaf.path = rest.strip_prefix('.').unwrap_or(rest).to_string();
                }
            }
        }
        leaves
    }
}

/// `outer.inner`, `outer[3]`, or whichever there is.
fn join(outer: &str, inner: &str) -> String {
    if outer.is_empty() || inner.is_empty() || inner.starts_with('[') {
        format!("{outer}{inner}")
    } else {
        format!("{outer}.{inner}")
    }
}

/// The leaves of a struct: its members' under their names, without those that only wrap.
fn fold(groups: Vec<(&Member, Vec<Leaf>)>, plain: bool) -> Vec<Leaf> {
    let only = groups.len() == 1 && plain;
    let mut leaves: Vec<Leaf> = Vec::new();
    for (i, (member, inner)) in groups.iter().enumerate() {
        let name = member.name.as_str();
        let wrapper = only && (member.artificial || WRAPPERS.contains(&name));
        // `std`'s mutex and its kin keep their parts in `inner`, beside their data.
        let inlined = name == "inner"
            && inner.iter().all(|leaf| !leaf.path.is_empty())
            && !groups.iter().enumerate().any(|(j, (other, _))| {
                j != i && inner.iter().any(|leaf| first(&leaf.path) == other.name)
            });
        let name = match name.strip_prefix("__") {
            _ if wrapper || inlined => "",
            Some(number) if number.bytes().all(|x| x.is_ascii_digit()) => number,
            _ => name,
        };
        for leaf in inner {
            leaves.push(Leaf { path: join(name, &leaf.path), ..leaf.clone() });
        }
    }
    leaves
}

/// The first name of a path.
fn first(path: &str) -> &str {
    path.split(['.', '[']).next().unwrap_or(path)
}

/// The leaves of a union: `a|b` where its members are plain, else those of the first of the largest.
fn union(groups: Vec<(&Member, Vec<Leaf>)>) -> Vec<Leaf> {
    let extent = |leaves: &[Leaf]| {
        leaves.iter().map(|leaf| leaf.offset.saturating_add(leaf.bytes)).max().unwrap_or(0)
    };
    let largest = groups.iter().map(|(_, leaves)| extent(leaves)).max().unwrap_or(0);
    let plain = groups.iter().all(|(_, leaves)| leaves.len() == 1 && leaves[0].path.is_empty());
    if plain && groups.len() > 1 {
        return groups
            .into_iter()
            .flat_map(|(member, leaves)| {
                leaves.into_iter().map(|leaf| Leaf { path: member.name.clone(), ..leaf })
            })
            .collect();
    }
    let group = groups.into_iter().find(|(_, leaves)| extent(leaves) == largest);
    group.map_or_else(Vec::new, |group| fold(vec![group], true))
}

/// Sorts leaves, and makes one of those that share their place: `a|b`.
fn merge(leaves: &mut Vec<Leaf>) {
    // The whole before its parts.
    leaves.sort_by(|a, b| (a.offset, b.bytes).cmp(&(b.offset, a.bytes)));
    let mut merged: Vec<Leaf> = Vec::with_capacity(leaves.len());
    for leaf in leaves.drain(..) {
        match merged.last_mut() {
            Some(last)
                if (last.offset, last.bytes) == (leaf.offset, leaf.bytes)
                    && !last.path.contains("[]")
                    && !leaf.path.contains("[]") =>
            {
                if last.path.split('|').any(|path| path == leaf.path) {
                    continue;
                }
                match last.path.split('|').count() {
                    n if n < ALTERNATIVES_MAX => {
                        last.path = format!("{}|{}", last.path, tail(&last.path, &leaf.path));
                    }
                    ALTERNATIVES_MAX => last.path.push_str("|…"),
                    _ => {}
                }
            }
            _ => merged.push(leaf),
        }
    }
    *leaves = merged;
}

/// `path` as it is written after `before|`: without the part that both share.
fn tail<'p>(before: &str, path: &'p str) -> &'p str {
    let before = before.split('|').next().unwrap_or(before);
    match before.rfind('.') {
        Some(dot) if path.starts_with(&before[..=dot]) && !path[dot + 1..].is_empty() => {
            &path[dot + 1..]
        }
        _ => path,
    }
}

/// A type's or function's name without paths: `ArcInner<Super>` of `alloc::sync::ArcInner<prog::Super>`.
pub(super) fn short(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut start = 0;
    let word = |c: char| c.is_alphanumeric() || matches!(c, '_' | '{' | '}' | '#' | '$');
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("::") {
            // The part before belonged to a path; a closing bracket's name stays.
            if out.len() > start && out[start..].chars().all(word) {
                out.truncate(start);
            } else {
                out.push_str("::");
                start = out.len();
            }
            rest = after;
            continue;
        }
        out.push(c);
        if !word(c) {
            start = out.len();
        }
        rest = &rest[c.len_utf8()..];
    }
    out.replace(", Global>", ">")
}
