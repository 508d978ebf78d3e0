//! Whether a pattern asks for a name.
//!
//! # Boundary
//! Words in, an answer out; [`crate::ledger`] knows the objects with these names.
//!
//! # Why
//! Rules, changes and flags name types and functions as people do: without paths, with `*`, mistyped. Weakness: two
//! types of the same short name are one here.

/// The content of an `Arc` or `Rc` with this name of its counted block.
pub(crate) fn counted(name: &str) -> Option<&str> {
    let last = name.split('<').next()?.rsplit("::").next()?;
    if !matches!(last, "ArcInner" | "RcInner" | "RcBox") {
        return None;
    }
    let inner = &name[name.find('<')? + 1..name.strip_suffix('>')?.len()];
    // The allocator's parameter, where it is there.
    let mut depth = 0_i32;
    let end = inner.char_indices().find(|(_, letter)| {
        match letter {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        depth == 0 && *letter == ','
    });
    Some(end.map_or(inner, |(at, _)| &inner[..at]))
}

/// Whether `pattern` asks for `name`: `*` stands for any letters, and a pattern without a path
/// fits a name with any.
pub(crate) fn fits(pattern: &str, name: &str) -> bool {
    if glob(pattern.as_bytes(), name.as_bytes()) {
        return true;
    }
    // `Foo.bar` fits `a::b::Foo.bar`; only separators outside of angle brackets begin a name.
    let mut depth = 0_i32;
    let bytes = name.as_bytes();
    (0..bytes.len()).any(|at| {
        match bytes[at] {
            b'<' => depth += 1,
            b'>' => depth -= 1,
            _ => {}
        }
        let starts = depth == 0 && at >= 2 && &bytes[at - 2..at] == b"::";
        starts && glob(pattern.as_bytes(), &bytes[at..])
    })
}

/// Whether the type called `name` is the one that `pattern` asks for: as [`fits`], and paths may be left out
/// of its parameters as well, or all of these: `RwLock` and `RwLock<Table>` are `a::RwLock<b::Table>`.
pub(crate) fn means(pattern: &str, name: &str) -> bool {
    let short = without_paths(name);
    let bare = short.find('<').filter(|at| *at > 0).map_or("", |at| &short[..at]);
    fits(pattern, name) || fits(pattern, &short) || !bare.is_empty() && fits(pattern, bare)
}

/// `a::Foo<b::Bar>` is `Foo<Bar>`.
fn without_paths(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find("::") {
        short.push_str(&rest[..at]);
        let is_of_name = |letter: char| letter.is_alphanumeric() || letter == '_';
        short.truncate(short.trim_end_matches(is_of_name).len());
        rest = &rest[at + 2..];
    }
    short + rest
}

fn glob(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        if p < pattern.len() && pattern[p] == b'*' {
            star = Some((p, n));
            p += 1;
        } else if p < pattern.len() && pattern[p] == name[n] {
            p += 1;
            n += 1;
        } else if let Some((at, matched)) = star {
            star = Some((at, matched + 1));
            p = at + 1;
            n = matched + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|letter| *letter == b'*')
}

/// The nearest of `names` to a written one, if it is near enough to be meant.
pub(crate) fn nearest<'n>(
    wanted: &str,
    names: impl IntoIterator<Item = &'n str>,
) -> Option<&'n str> {
    let wanted = wanted.to_lowercase();
    let far = |name: &str| edits(&wanted, &name.to_lowercase());
    let best = names.into_iter().map(|name| (far(name), name)).min()?;
    (best.0 <= (wanted.chars().count() / 3).max(2)).then_some(best.1)
}

/// Letters to insert, delete or change.
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (line, letter) in from.chars().enumerate() {
        let mut corner = row[0];
        row[0] = line + 1;
        for (column, other) in to.iter().enumerate() {
            let change = corner + usize::from(letter != *other);
            corner = row[column + 1];
            row[column + 1] = change.min(corner + 1).min(row[column] + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "no type `RwLock`; did you mean `RwLock`?"
    #[test]
    fn a_generic_type_is_called_as_people_call_it() {
        let name = "std::sync::poison::rwlock::RwLock<tables::Table, std::Global>";
        for pattern in ["RwLock", "RwLock<Table, Global>", "RwLock<Table*", name] {
            assert!(means(pattern, name), "{pattern}");
        }
        for pattern in ["Table", "Lock", "RwLock<Other>", "poison", "rwlock"] {
            assert!(!means(pattern, name), "{pattern}");
        }
        assert!(means("ArcInner<Atomic<u64>>", "alloc::sync::ArcInner<epoch::Atomic<u64>>"));
        assert!(means("Foo", "a::Foo") && !means("", "<a::Foo as b::Bar>::Baz"));
    }

    #[test]
    fn patterns_fit_names_with_and_without_paths() {
        assert!(fits("Foo.bar", "Foo.bar"));
        assert!(fits("Foo.bar", "a::b::Foo.bar"));
        assert!(fits("walk::*", "uvfs::walk::fast"));
        assert!(fits("Foo.*", "Foo.a.b"));
        assert!(fits("*", ""));
        assert!(!fits("Foo.bar", "XFoo.bar"));
        assert!(!fits("Foo.bar", "Foo.bar2"));
        assert!(!fits("Foo", "Arc<a::Foo"));
        assert!(fits("a*b*c", "aXXbYYc"));
        assert!(!fits("a*b*c", "aXXcYYb"));
    }

    #[test]
    fn counted_blocks_are_seen_through() {
        assert_eq!(counted("ArcInner<Super>"), Some("Super"));
        assert_eq!(counted("alloc::sync::ArcInner<a::B<C, D>, Global>"), Some("a::B<C, D>"));
        assert_eq!(counted("ArcInner"), None);
        assert_eq!(counted("Vec<Super>"), None);
    }

    #[test]
    fn near_names_are_found_and_far_ones_not() {
        assert_eq!(nearest("Dentri", ["Inode", "Dentry"]), Some("Dentry"));
        assert_eq!(nearest("completely", ["Inode", "Dentry"]), None);
        assert_eq!(edits("kitten", "sitting"), 3);
    }
}
