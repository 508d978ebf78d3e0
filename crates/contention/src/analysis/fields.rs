//! From an offset in an object to the field there, as the tables need it.
//!
//! # Boundary
//! The name itself is [`crate::names::field_at`]'s; here it gets its type, its place in the layout and, for
//! tables that put elements together, `[*]` for an index.
//!
//! # Why
//! Layouts add up all elements of a row, so each offset has to find the one leaf that stands for it, also
//! in the patterns that long arrays are kept as (`slots[].head`). Weakness: of alternatives that overlap,
//! the smallest stands for all.

use crate::names;
use std::collections::BTreeMap;
use uvfs_coherence::profile::{Field, Object, Type};

/// Patterns within patterns that are followed.
const DEPTH: usize = 16;

/// The field at an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// `root.lock`, `[3].value`, `padding`, `+24`; empty if the object is one value without parts.
    pub path: String,
    /// Type of the field, where there is one.
    pub type_name: Option<String>,
    /// Where the leaf that stands for it begins in its type; of padding, where that begins.
    pub offset: u64,
    /// Which element of a row.
    pub element: Option<u64>,
}

impl Named {
    /// The path, with the type in parentheses where it is a pointer: `curr (task_struct*)`.
    pub fn with_pointer(&self) -> String {
        match &self.type_name {
            Some(name) if is_pointer(name) => format!("{} ({name})", self.path),
            _ => self.path.clone(),
        }
    }
}

fn is_pointer(type_name: &str) -> bool {
    let name = type_name.trim();
    name.starts_with('*') || name.starts_with('&') || name.ends_with('*')
}

/// Names the field `offset` bytes into `object`. With `fold`, elements of a row have one name: `[*]`.
pub fn name(types: &BTreeMap<u32, &Type>, object: &Object, offset: u64, fold: bool) -> Named {
    let unknown = || Named { path: format!("+{offset}"), type_name: None, offset, element: None };
    let Some(kind) = object.type_id.and_then(|id| types.get(&id)) else {
        return unknown();
    };
    if !object.array {
        return if kind.size != 0 && offset >= kind.size {
            unknown()
        } else {
            at(kind, offset, fold)
        };
    }
    if kind.size == 0 {
        return unknown();
    }
    let (element, within) = (offset / kind.size, offset % kind.size);
    let mut named = at(kind, within, fold);
    let index = if fold { "*".to_owned() } else { element.to_string() };
    // A `+` or an index follows the brackets directly, a name after a dot.
    let dot = named.path.starts_with(|first: char| first != '+' && first != '[');
    named.path = format!("[{index}]{}{}", if dot { "." } else { "" }, named.path);
    named.element = Some(element);
    named
}

/// The field of `kind` at `offset`.
pub fn inside(kind: &Type, offset: u64) -> Named {
    at(kind, offset, false)
}

fn at(kind: &Type, offset: u64, fold: bool) -> Named {
    let path = names::field_at(kind, offset, 0);
    if kind.fields.is_empty() {
        return Named { path, type_name: Some(kind.name.clone()), offset: 0, element: None };
    }
    match leaf(kind, offset) {
        Ok(field) => Named {
            path: if fold { field.path.replace("[]", "[*]") } else { path },
            type_name: Some(element_type(field)),
            offset: field.offset,
            element: None,
        },
        Err(hole) => Named { path, type_name: None, offset: hole, element: None },
    }
}

/// The type of a leaf; of a row that is kept as a pattern, its elements'.
fn element_type(field: &Field) -> String {
    let element = field.path.ends_with("[]").then(|| {
        field.type_name.strip_prefix('[')?.rsplit_once("; ").map(|(element, _)| element.to_owned())
    });
    element.flatten().unwrap_or_else(|| field.type_name.clone())
}

/// The leaf that stands for `offset`; of a hole, where it begins.
fn leaf(kind: &Type, offset: u64) -> Result<&Field, u64> {
    let (mut offset, mut prefix) = (offset, "");
    for _ in 0..DEPTH {
        let covers = |field: &&Field| {
            let into = offset.checked_sub(field.offset);
            into.is_some_and(|into| into < field.bytes)
                && field.path.len() > prefix.len()
                && field.path.starts_with(prefix)
        };
        let is_pattern = |field: &Field| field.path[prefix.len()..].contains("[]");
        let covering = || kind.fields.iter().filter(covers);
        let plain = covering().filter(|field| !is_pattern(field)).min_by_key(|field| field.bytes);
        if let Some(field) = plain {
            return Ok(field);
        }
        let Some(row) =
            covering().filter(|field| field.path.ends_with("[]")).max_by_key(|one| one.bytes)
        else {
            break;
        };
        let has_parts = kind
            .fields
            .iter()
            .any(|one| one.path.len() > row.path.len() && one.path.starts_with(row.path.as_str()));
        match stride(row) {
            Some(stride) if has_parts => {
                offset = row.offset + (offset - row.offset) % stride;
                prefix = &row.path;
            }
            _ => return Ok(row),
        }
    }
    let ends = kind.fields.iter().map(|field| field.offset.saturating_add(field.bytes));
    Err(ends.filter(|end| *end <= offset).max().unwrap_or(0))
}

/// Bytes of an element of a pattern: its type says how many there are, `[Bucket; 1024]`.
pub(crate) fn stride(row: &Field) -> Option<u64> {
    let count: u64 = row.type_name.strip_suffix(']')?.rsplit("; ").next()?.parse().ok()?;
    row.bytes.checked_div(count).filter(|stride| *stride > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::fixture::{field, object, type_of};

    fn types() -> Vec<Type> {
        vec![
            type_of(
                1,
                "task",
                32,
                &[
                    field("lock", 0, 4, "u32"),
                    field("curr", 8, 8, "task_struct*"),
                    field("name", 16, 12, "[char; 12]"),
                ],
            ),
            type_of(2, "AtomicU64", 8, &[]),
            type_of(
                3,
                "Bad",
                0,
                &[field("x", u64::MAX, u64::MAX, "u8"), field("y[]", 0, 8, "[u8; 0]")],
            ),
            type_of(
                4,
                "Table",
                8 + 1024 * 64,
                &[
                    field("count", 0, 8, "u64"),
                    field("slots[]", 8, 1024 * 64, "[Slot; 1024]"),
                    field("slots[].head", 8, 8, "*Slot"),
                    field("slots[].tags[]", 24, 48, "[u8; 48]"),
                ],
            ),
        ]
    }

    fn named(type_id: Option<u32>, array: bool, offset: u64, fold: bool) -> Named {
        let types = types();
        let mut object = object(1, 0, "anything", 0x1000, 1 << 20);
        (object.type_id, object.array) = (type_id, array);
        name(&types.iter().map(|one| (one.id, one)).collect(), &object, offset, fold)
    }

    #[test]
    fn fields_holes_and_the_unknown_have_names() {
        let path = |offset| named(Some(1), false, offset, false).path;
        assert_eq!([0, 2, 8, 16, 20].map(path), ["lock", "lock", "curr", "name", "name"]);
        assert_eq!([4, 6, 28, 32].map(path), ["padding", "padding", "padding", "+32"]);
        assert_eq!(named(Some(1), false, 6, false).offset, 4);
        assert_eq!(named(None, false, 24, false).path, "+24");
        assert_eq!(named(Some(9), true, 24, false).path, "+24", "a type that is not there");
    }

    #[test]
    fn elements_have_their_index_unless_folded() {
        assert_eq!(named(Some(1), true, 72, false).path, "[2].curr");
        assert_eq!(named(Some(1), true, 72, true).path, "[*].curr");
        assert_eq!(named(Some(1), true, 68, false).path, "[2].padding");
        assert_eq!(named(Some(2), true, 16, false).path, "[2]");
        assert_eq!(named(Some(2), true, 20, false).path, "[2]+4");
        assert_eq!(named(Some(2), false, 0, false).path, "");
    }

    #[test]
    fn all_elements_of_a_pattern_have_one_leaf() {
        let at = |offset, fold| {
            let named = named(Some(4), false, offset, fold);
            (named.path, named.offset)
        };
        assert_eq!(at(8 + 64 * 1000, false), ("slots[1000].head".into(), 8));
        assert_eq!(at(8 + 64 * 1000, true), ("slots[*].head".into(), 8));
        assert_eq!(at(8 + 64 * 3 + 20, true), ("slots[*].tags[*]".into(), 24));
        assert_eq!(at(8 + 64 * 3 + 10, false), ("slots[3].padding".into(), 16));
        let tags = named(Some(4), false, 30, false);
        assert_eq!(tags.type_name.as_deref(), Some("u8"));
    }

    #[test]
    fn only_pointers_show_their_type() {
        assert_eq!(named(Some(1), false, 8, false).with_pointer(), "curr (task_struct*)");
        assert_eq!(named(Some(1), false, 0, false).with_pointer(), "lock");
        assert!(is_pointer("*const Node") && is_pointer("&str") && !is_pointer("Mul"));
    }

    #[test]
    fn damaged_types_do_no_harm() {
        assert_eq!(named(Some(3), false, u64::MAX, false).path, "x");
        assert_eq!(named(Some(3), false, 5, false).path, "y");
        assert_eq!(named(Some(3), false, 9, false).path, "padding");
        assert_eq!(named(Some(3), true, 5, false).path, "+5");
    }
}
