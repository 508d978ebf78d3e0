//! From an offset in a type or an object to the field there.
//!
//! # Boundary
//! Pure on the profile: neither the program nor its debug information is needed.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Long arrays are kept as a pattern (`table[]` with its first element's leaves), so an index is worked
//! out when it is asked. Weakness: where variants of an enum overlap, the smallest leaf is told.

use uvfs_coherence::Profile;
use uvfs_coherence::profile::{Field, Object, ObjectKind, Type};

/// Patterns within patterns that are followed.
const DEPTH_MAX: u32 = 16;

/// What an object is called that holds the buckets of a `hashbrown` table.
pub(super) const TABLE: &str = "hashbrown table of ";

/// The control bytes that `hashbrown` keeps beyond one for each bucket.
const GROUP: u64 = 16;

/// The field of `of` that `bytes` at `offset` touch: `root.lock`, `table[7].head`; `padding` between
/// fields, `+24` outside; empty if the type is one value without parts.
pub fn field_at(of: &Type, offset: u64, bytes: u64) -> String {
    if of.size > 0 && offset >= of.size {
        return format!("+{offset}");
    }
    if of.fields.is_empty() {
        return if offset == 0 { String::new() } else { format!("+{offset}") };
    }
    let fields: Vec<&Field> = of.fields.iter().collect();
    inside(&fields, "", offset, bytes, DEPTH_MAX)
}

fn inside(fields: &[&Field], prefix: &str, offset: u64, bytes: u64, depth: u32) -> String {
    let covering =
        |field: &&&Field| offset.checked_sub(field.offset).is_some_and(|into| into < field.bytes);
    // The same place and width is surely meant; else the smallest.
    let exact = fields
        .iter()
        .find(|field| (field.offset, field.bytes) == (offset, bytes) && !is_pattern(&field.path));
    let plain = || {
        let found = fields.iter().filter(covering).filter(|field| !is_pattern(&field.path));
        found.min_by_key(|field| field.bytes)
    };
    let outermost = || {
        let found = fields.iter().filter(covering).filter(|field| {
            let rest = field.path.strip_prefix(prefix);
            rest.is_some_and(|rest| rest.find("[]") == rest.len().checked_sub(2))
        });
        found.max_by_key(|field| field.bytes)
    };
    if let Some(field) = exact.or_else(plain) {
        return field.path.clone();
    }
    let Some(pattern) = outermost() else {
        // A wide access may begin in a hole and reach a field.
        let reached = fields
            .iter()
            .filter(|field| !is_pattern(&field.path))
            .find(|field| field.offset > offset && field.offset < offset.saturating_add(bytes));
        return reached.map_or_else(|| "padding".to_string(), |field| field.path.clone());
    };
    let name = &pattern.path[..pattern.path.len() - 2];
    let Some(stride) = stride(pattern) else { return name.to_string() };
    let into = offset - pattern.offset;
    let element = format!("{name}[{}]", into / stride);
    let parts: Vec<Field> = fields
        .iter()
        .filter(|field| {
            field.path.len() > pattern.path.len() && field.path.starts_with(&pattern.path)
        })
        .map(|field| Field {
            path: field.path[pattern.path.len()..].to_string(),
            ..(*field).clone()
        })
        .collect();
    if parts.is_empty() || depth == 0 {
        return element;
    }
    let parts: Vec<&Field> = parts.iter().collect();
    let within = inside(&parts, "", pattern.offset + into % stride, bytes, depth - 1);
    if within.is_empty() || within.starts_with(['.', '[']) {
        element + &within
    } else {
        format!("{element}.{within}")
    }
}

/// Whether the path belongs to a long array's pattern.
fn is_pattern(path: &str) -> bool {
    path.contains("[]")
}

/// Bytes of an element: the pattern's type says how many there are, `[Bucket; 1024]`.
fn stride(pattern: &Field) -> Option<u64> {
    let count = pattern.type_name.strip_suffix(']')?.rsplit("; ").next()?;
    let count: u64 = count.parse().ok().filter(|count| *count > 0)?;
    Some(pattern.bytes / count).filter(|stride| *stride > 0)
}

/// How many buckets a `hashbrown` table of `size` bytes has for entries of `entry` bytes, and where they
/// begin.
pub(super) fn buckets(size: u64, entry: u64) -> Option<(u64, u64)> {
    if entry == 0 || entry > size {
        return None;
    }
    for power in 1..48 {
        let buckets = 1_u64 << power;
        let control = buckets.checked_mul(entry)?.checked_next_multiple_of(GROUP)?;
        let all = control.checked_add(buckets)?.checked_add(GROUP)?;
        if all == size {
            return Some((buckets, control - buckets * entry));
        }
        if all > size {
            return None;
        }
    }
    None
}

/// What tables print for `offset` in `object`: `root.lock`, `[3].count`, `COUNTERS[3]`; a variable's and a
/// plain value's own name where it has no parts.
pub fn object_field(profile: &Profile, object: &Object, offset: u64) -> String {
    let of = object.type_id.and_then(|id| profile.types.iter().find(|of| of.id == id));
    let Some(of) = of else { return format!("+{offset}") };
    if object.array && of.size > 0 {
        let element = offset / of.size;
        if object.name.starts_with(TABLE)
            && let Some((count, _)) = buckets(object.size, of.size)
            && element >= count
        {
            let control = (count * of.size).next_multiple_of(GROUP);
            return match offset.checked_sub(control) {
                Some(byte) => format!("control[{byte}]"),
                None => "padding".to_string(),
            };
        }
        let field = field_at(of, offset % of.size, 0);
        let own = if object.kind == ObjectKind::Global { object.name.as_str() } else { "" };
        return own.to_string()
            + &match field.chars().next() {
                None | Some('[' | '+') => format!("[{element}]{field}"),
                Some(_) => format!("[{element}].{field}"),
            };
    }
    let field = field_at(of, offset, 0);
    if field.is_empty() { object.name.clone() } else { field }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(size: u64, fields: &[(&str, u64, u64, &str)]) -> Type {
        let fields = fields.iter().map(|(path, offset, bytes, type_name)| Field {
            path: path.to_string(),
            offset: *offset,
            bytes: *bytes,
            type_name: type_name.to_string(),
        });
        Type {
            id: 0,
            name: "T".into(),
            size,
            align: 8,
            fields: fields.collect(),
            declared: String::new(),
        }
    }

    #[test]
    fn fields_padding_and_the_unknown() {
        let task =
            of(32, &[("lock", 0, 4, "u32"), ("next", 8, 8, "*T"), ("A.x|B.y", 16, 8, "u64")]);
        let at = |offset, bytes| field_at(&task, offset, bytes);
        assert_eq!(at(0, 4), "lock");
        assert_eq!(at(2, 1), "lock");
        assert_eq!(at(4, 4), "padding");
        assert_eq!(at(4, 8), "next", "a wide access reaches it");
        assert_eq!(at(16, 8), "A.x|B.y");
        assert_eq!(at(24, 8), "padding");
        assert_eq!(at(32, 8), "+32");
        assert_eq!(field_at(&of(8, &[("", 0, 8, "u64")]), 0, 8), "");
        assert_eq!(field_at(&of(0, &[]), 8, 8), "+8");
    }

    #[test]
    fn the_width_tells_variants_apart() {
        let either = of(16, &[("A.whole", 8, 8, "u64"), ("B.low", 8, 4, "u32")]);
        assert_eq!(field_at(&either, 8, 8), "A.whole");
        assert_eq!(field_at(&either, 8, 4), "B.low");
        assert_eq!(field_at(&either, 12, 4), "A.whole");
    }

    #[test]
    fn patterns_give_an_index() {
        let table = of(
            8 + 1024 * 64,
            &[
                ("count", 0, 8, "u64"),
                ("slots[]", 8, 1024 * 64, "[Slot; 1024]"),
                ("slots[].head", 8, 8, "u64"),
                ("slots[].tags[]", 16, 48, "[u8; 48]"),
            ],
        );
        assert_eq!(field_at(&table, 0, 8), "count");
        assert_eq!(field_at(&table, 8, 8), "slots[0].head");
        assert_eq!(field_at(&table, 8 + 64 * 1000, 8), "slots[1000].head");
        assert_eq!(field_at(&table, 8 + 64 * 3 + 8 + 5, 1), "slots[3].tags[5]");
        assert_eq!(field_at(&table, 8 + 64 * 3 + 60, 1), "slots[3].padding");
        let damaged = of(64, &[("x[]", 0, 64, "[u8; 0]"), ("y[]", 0, 0, "")]);
        assert_eq!(field_at(&damaged, 5, 1), "x");
    }

    #[test]
    fn a_hash_table_has_buckets_and_control_bytes() {
        // Four buckets of 24 bytes, 4 + 16 control bytes; eight of 12 bytes.
        assert_eq!(buckets(96 + 20, 24), Some((4, 0)));
        assert_eq!(buckets(96 + 24, 12), Some((8, 0)));
        assert_eq!(buckets(64 + 20, 13), Some((4, 12)));
        assert_eq!(buckets(97 + 20, 24), None);
        assert_eq!(buckets(u64::MAX, u64::MAX), None);
        assert_eq!(buckets(u64::MAX, 1), None);
    }
}
