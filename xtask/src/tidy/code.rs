//! Rust source split into code and the text that the compiler ignores.
//!
//! # Boundary
//! Parts code, comments and the insides of literals, and finds the lines of test modules. Not a parser: it knows no
//! item but `#[cfg(test)]` and its braces.
//!
//! # Why
//! Most rules search for words in code; a word in a comment or a message is not a use of it.

/// One file: for each line the code on it, its comment, and whether only tests compile it.
#[derive(Debug)]
pub(crate) struct Code {
    lines: Vec<String>,
    comments: Vec<String>,
    test: Vec<bool>,
}

impl Code {
    /// Reads `source`.
    pub(crate) fn new(source: &str) -> Self {
        let (code, comments) = parted(source);
        let lines: Vec<_> = code.lines().map(str::to_owned).collect();
        let comments = comments.lines().map(str::to_owned).collect();
        let test = test_lines(&lines);
        Self { lines, comments, test }
    }

    /// Line number from 1, and the comment of each line that has one.
    pub(super) fn comments(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.comments.iter().enumerate();
        lines.map(|(at, line)| (at + 1, line.trim())).filter(|(_, line)| !line.is_empty())
    }

    /// Line number from 1, code, and whether only tests compile it.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &str, bool)> {
        let tests = self.test.iter().copied();
        self.lines
            .iter()
            .zip(tests)
            .enumerate()
            .map(|(at, (line, test))| (at + 1, line.as_str(), test))
    }
}

/// Whether `word` stands in `line` with no letter, digit or underscore on either side.
pub(super) fn has_word(line: &str, word: &str) -> bool {
    let inside = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(inside) && !line[at + word.len()..].starts_with(inside)
    })
}

/// The code and the comments of `source`, the rest of each turned into spaces; lines stay lines. Literals are in neither.
fn parted(source: &str) -> (String, String) {
    let chars: Vec<char> = source.chars().collect();
    let mut code = String::with_capacity(source.len());
    let mut comments = String::with_capacity(source.len());
    let space = |c: &char| if *c == '\n' { '\n' } else { ' ' };
    let mut at = 0;
    while at < chars.len() {
        let length = match chars[at] {
            '/' if chars.get(at + 1) == Some(&'/') => line_comment(&chars[at..]),
            '/' if chars.get(at + 1) == Some(&'*') => block_comment(&chars[at..]),
            '"' => quoted(&chars[at..], '"'),
            'r' if !follows_word(&chars, at) => raw_string(&chars[at..]),
            '\'' => character(&chars[at..]),
            _ => 0,
        };
        if length == 0 {
            code.push(chars[at]);
            comments.push(space(&chars[at]));
            at += 1;
            continue;
        }
        let end = (at + length).min(chars.len());
        let part = &chars[at..end];
        code.extend(part.iter().map(space));
        match chars[at] {
            '/' => comments.extend(part),
            _ => comments.extend(part.iter().map(space)),
        }
        at = end;
    }
    (code, comments)
}

/// A raw string may follow `b`, but an identifier that ends in `r` opens none.
fn follows_word(chars: &[char], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map(|at| chars[at]);
    let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    match before(1) {
        Some('b') => word(before(2)),
        one => word(one),
    }
}

fn line_comment(chars: &[char]) -> usize {
    chars.iter().position(|c| *c == '\n').unwrap_or(chars.len())
}

fn block_comment(chars: &[char]) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at + 1 < chars.len() {
        match (chars[at], chars[at + 1]) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    chars.len()
}

fn quoted(chars: &[char], quote: char) -> usize {
    let mut at = 1;
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            c if c == quote => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// Length of `r"…"` or `r#"…"#`, 0 when this `r` opens none.
fn raw_string(chars: &[char]) -> usize {
    let hashes = chars[1..].iter().take_while(|c| **c == '#').count();
    if chars.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let mut at = 2 + hashes;
    while at < chars.len() {
        if chars[at] == '"'
            && chars[at + 1..].iter().take(hashes).filter(|c| **c == '#').count() == hashes
        {
            return at + 1 + hashes;
        }
        at += 1;
    }
    chars.len()
}

/// Length of a character literal, 0 for a lifetime.
fn character(chars: &[char]) -> usize {
    match (chars.get(1), chars.get(2)) {
        (Some('\\'), _) => quoted(chars, '\''),
        (Some(_), Some('\'')) => 3,
        _ => 0,
    }
}

/// Marks each `#[cfg(test)]` or `#[cfg(all(test, …))]` and the item below it, up to its last brace.
fn test_lines(lines: &[String]) -> Vec<bool> {
    let mut test = vec![false; lines.len()];
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at].trim_start();
        let opens = line.starts_with("#[cfg(test)]") || line.starts_with("#[cfg(all(test");
        let end = if opens { item_end(lines, at) } else { at };
        if opens {
            test[at..=end].fill(true);
        }
        at = end + 1;
    }
    test
}

fn item_end(lines: &[String], start: usize) -> usize {
    let mut depth = 0i32;
    let mut opened = false;
    for (at, line) in lines.iter().enumerate().skip(start) {
        for c in line.chars() {
            match c {
                '{' => (depth, opened) = (depth + 1, true),
                '}' => depth -= 1,
                _ => {}
            }
        }
        let declared = !opened && at > start && line.trim_end().ends_with(';');
        if (opened && depth <= 0) || declared {
            return at;
        }
    }
    lines.len() - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(source: &str) -> Vec<String> {
        Code::new(source).lines().map(|(_, line, _)| line.trim().to_owned()).collect()
    }

    #[test]
    fn comments_and_literals_are_blank() {
        assert_eq!(code("a(); // unsafe"), ["a();"]);
        assert_eq!(code("a(/* x /* y */ */b"), [format!("a({}b", " ".repeat(15))]);
        assert_eq!(code(r##"f("x \" y", 'u', '\'', b"z", r#"a " b"#) + r"q""##).len(), 1);
        assert!(
            !code(r##"f("x \" y", 'u', '\'', b"z", r#"a " b"#) + r"q""##)[0]
                .contains(['x', 'u', 'z', 'q'])
        );
    }

    #[test]
    fn lifetimes_and_words_that_end_in_r_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a str)"), ["fn f<'a>(x: &'a str)"]);
        assert!(code("for\"text\"x")[0].starts_with("for"));
    }

    #[test]
    fn a_string_may_run_over_lines() {
        assert_eq!(code("f(\"a\nb\");\ng();"), ["f(", ");", "g();"]);
    }

    #[test]
    fn test_modules_are_known_by_their_braces() {
        let code = Code::new("fn a() {}\n#[cfg(test)]\nmod tests {\n  fn b() {}\n}\nfn c() {}\n");
        let test: Vec<_> = code.lines().map(|(_, _, test)| test).collect();
        assert_eq!(test, [false, true, true, true, true, false]);
        let code = Code::new("#[cfg(test)]\nmod tests;\nfn c() {}\n");
        assert!(!code.lines().last().unwrap().2);
    }

    #[test]
    fn words_have_borders() {
        assert!(has_word("unsafe { x }", "unsafe") && has_word("(Relaxed)", "Relaxed"));
        assert!(!has_word("#![forbid(unsafe_code)]", "unsafe"));
    }
}
