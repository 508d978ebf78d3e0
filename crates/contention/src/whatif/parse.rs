//! The text of a layout change.
//!
//! # Boundary
//! Words only; whether the type and its fields exist is the caller's to find out.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Errors repeat the text and name the part of it that is wrong, since it comes from a shell and from
//! advice that someone edited. Weakness: a field whose name holds a comma cannot be written.

use crate::error::Error;

/// A layout change as someone wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The whole text.
    pub text: String,
    /// The type.
    pub name: String,
    /// The fields that move; empty if the whole does.
    pub fields: Vec<String>,
    /// The fate of the fields.
    pub action: Action,
}

/// The fate of fields, or of a whole type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// The fields, together, on a line that nothing else is on.
    OwnLine,
    /// Each of the fields on a line that nothing else is on.
    OwnLines,
    /// The fields on another line than these.
    AwayFrom(Vec<String>),
    /// Every object at a multiple of so many bytes.
    Align(u64),
    /// Objects of a row a multiple of so many bytes apart.
    Pad(u64),
    /// These fields first.
    Order(Vec<String>),
}

impl Action {
    /// Fields that the action names itself.
    pub(crate) fn others(&self) -> &[String] {
        match self {
            Self::AwayFrom(fields) | Self::Order(fields) => fields,
            _ => &[],
        }
    }
}

/// The forms, for errors.
const FORMS: &str =
    "`own line`, `own lines`, `away from Type.field`, `align N`, `pad N` or `order a, b, c`";

/// Reads a change; see [`crate::whatif`] for the grammar.
///
/// # Errors
/// A line that names the part of the text that cannot be read.
pub fn parse(text: &str) -> Result<Change, Error> {
    let wrong = |why: String| Error::new(format!("\"{text}\": {why}"));
    let Some((left, right)) = text.rsplit_once("->") else {
        return Err(wrong(format!("there is no `->`; write `Type.field -> own line`, or {FORMS}")));
    };
    let (name, fields) = place(left).map_err(wrong)?;
    let action = action(right.trim(), &name).map_err(wrong)?;
    match (&action, fields.is_empty()) {
        (Action::OwnLine | Action::OwnLines | Action::AwayFrom(_), true) => {
            Err(wrong(format!("`{}` names no field to move: write `{name}.field`", left.trim())))
        }
        (Action::Align(_) | Action::Pad(_) | Action::Order(_), false) => Err(wrong(format!(
            "`{}` is about the whole of `{name}`: leave the field out",
            right.trim()
        ))),
        (Action::AwayFrom(others), _) => match fields.iter().find(|field| others.contains(field)) {
            Some(both) => Err(wrong(format!("`{both}` cannot be away from itself"))),
            None => Ok(Change { text: text.to_owned(), name, fields, action }),
        },
        _ => Ok(Change { text: text.to_owned(), name, fields, action }),
    }
}

/// `Foo`, `a::Foo<B>.bar.baz`, `Foo.{a, b}`.
fn place(text: &str) -> Result<(String, Vec<String>), String> {
    let text = text.trim();
    let mut depth = 0_i32;
    let dot = text.char_indices().find(|(_, letter)| {
        match letter {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        depth == 0 && *letter == '.'
    });
    let (name, fields) = match dot {
        Some((at, _)) => (text[..at].trim(), Some(text[at + 1..].trim())),
        None => (text, None),
    };
    if name.is_empty() || name.contains(['{', '}']) {
        return Err(format!("`{text}` does not begin with the name of a type"));
    }
    if depth != 0 && dot.is_none() {
        return Err(format!("the brackets of `{text}` do not match"));
    }
    let fields = match fields {
        None => Vec::new(),
        Some(list) if list.starts_with('{') => {
            let inner = list.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
            names(inner.ok_or_else(|| format!("the braces of `{text}` do not match"))?, text)?
        }
        Some(one) => names(one, text)?,
    };
    Ok((name.to_owned(), fields))
}

/// Names between commas.
fn names(list: &str, within: &str) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = Vec::new();
    for name in list.split(',').map(str::trim) {
        if name.is_empty() || name.contains(['{', '}', ' ']) {
            return Err(format!("`{within}` has `{name}` where a field is due"));
        }
        if names.iter().any(|known| known == name) {
            return Err(format!("`{within}` names `{name}` twice"));
        }
        names.push(name.to_owned());
    }
    Ok(names)
}

fn action(text: &str, name: &str) -> Result<Action, String> {
    if text.split_whitespace().eq(["own", "line"]) {
        return Ok(Action::OwnLine);
    }
    if text.split_whitespace().eq(["own", "lines"]) {
        return Ok(Action::OwnLines);
    }
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    match word {
        "align" | "pad" => {
            let bytes: u64 = rest
                .parse()
                .map_err(|_| format!("`{text}` wants a number of bytes, as in `{word} 64`"))?;
            if bytes == 0 || bytes > 1 << 20 {
                return Err(format!("`{text}` wants 1 to 1048576 bytes"));
            }
            match word {
                "align" if !bytes.is_power_of_two() => {
                    Err(format!("`{text}`: an alignment is a power of two"))
                }
                "align" => Ok(Action::Align(bytes)),
                _ => Ok(Action::Pad(bytes)),
            }
        }
        "order" => Ok(Action::Order(names(rest, text)?)),
        "away" => {
            let from = rest.strip_prefix("from").filter(|rest| rest.starts_with(' '));
            let from =
                from.ok_or_else(|| format!("`{text}` is written `away from {name}.field`"))?;
            let (other, fields) = place(from)?;
            if other != name {
                return Err(format!(
                    "`{text}` names `{other}`; only fields of the same type, `{name}`, can be parted"
                ));
            }
            if fields.is_empty() {
                return Err(format!("`{text}` names no field: write `away from {name}.field`"));
            }
            Ok(Action::AwayFrom(fields))
        }
        _ => Err(format!("`{text}` is no change; one of {FORMS}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_form_is_read() {
        let check = |text: &str, name: &str, fields: &[&str], action: Action| {
            let change = parse(text).unwrap();
            assert_eq!((change.name.as_str(), change.action), (name, action), "{text}");
            assert_eq!(change.fields, fields, "{text}");
        };
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        check("Foo.bar -> own line", "Foo", &["bar"], Action::OwnLine);
        check("Foo.{a,b.c} -> own  line", "Foo", &["a", "b.c"], Action::OwnLine);
        check("Foo.{a, b[0]} -> own lines", "Foo", &["a", "b[0]"], Action::OwnLines);
        check("a::Foo<B, C>.d->own line", "a::Foo<B, C>", &["d"], Action::OwnLine);
        check("Foo -> align 64", "Foo", &[], Action::Align(64));
        check("Foo -> pad 96", "Foo", &[], Action::Pad(96));
        check("Foo -> order a, b[0],c", "Foo", &[], Action::Order(list(&["a", "b[0]", "c"])));
        let away = Action::AwayFrom(list(&["x", "y"]));
        check("Foo.lock -> away from Foo.{x, y}", "Foo", &["lock"], away);
    }

    #[test]
    fn errors_name_the_part() {
        let refused = |text: &str, part: &str| {
            let line = parse(text).unwrap_err().to_string();
            assert!(line.contains(part), "{text}: {line}");
        };
        refused("Foo.bar own line", "no `->`");
        refused(".bar -> own line", "`.bar` does not begin with the name of a type");
        refused("Foo -> own line", "`Foo` names no field");
        refused("Foo -> own lines", "`Foo` names no field");
        refused("Foo.a -> align 64", "leave the field out");
        refused("Foo -> align 48", "a power of two");
        refused("Foo -> align x", "`align x` wants a number");
        refused("Foo -> pad 0", "`pad 0` wants");
        refused("Foo.a -> closer to b", "`closer to b` is no change");
        refused("Foo.{a,b -> own line", "braces");
        refused("Foo.{a,,b} -> own line", "has `` where a field is due");
        refused("Foo -> order a,a", "names `a` twice");
        refused("Foo.a -> away from Bar.b", "`Bar`; only fields of the same type");
        refused("Foo.a -> away from Foo.a", "`a` cannot be away from itself");
        refused("Foo.a -> away Foo.b", "is written `away from Foo.field`");
        refused("Foo<Bar.a -> own line", "brackets");
    }

    proptest! {
        #[test]
        fn nothing_panics(text in ".{0,60}") {
            if let Err(error) = parse(&text) {
                prop_assert!(!error.to_string().contains('\n'));
            }
        }

        #[test]
        fn near_changes_do_not_panic(text in "(Foo|F<a>|\\.|\\{|\\}|,| |-|>|own line|align|order|pad|away from|64){0,12}") {
            let _ = parse(&text);
        }
    }
}
