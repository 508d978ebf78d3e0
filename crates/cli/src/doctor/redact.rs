//! Removes secrets from text that users send to others.
//!
//! # Boundary
//! Text to text. [`super`] collects the text.
//!
//! # Why
//! Three filters, since each has holes: values of names that sound like a secret, wherever there are a name and a
//! value; the part before the `@` of a URL, and keys of AWS by their form; and the values of this process's own
//! variables with such names, wherever they appear. They remove more than necessary: a missing value is no loss, and a
//! sent key cannot be recalled. Weakness: a secret in a path, under a harmless name, stays.

use std::ffi::OsString;

/// The replacement of a secret.
pub(super) const INSTEAD: &str = "[taken out]";

/// Parts of names whose values are secrets.
const PARTS: [&str; 13] = [
    "secret",
    "token",
    "passw",
    "passphrase",
    "credential",
    "signature",
    "authorization",
    "access_key",
    "accesskey",
    "api_key",
    "apikey",
    "private",
    "cookie",
];
/// Whole names of that kind.
const NAMES: [&str; 5] = ["sig", "pwd", "auth", "key", "sas"];
/// Shorter values of variables are words that turn up anywhere.
const VALUE_MIN: usize = 6;
/// How keys of AWS begin; sixteen letters and digits follow.
const KEY_STARTS: [&str; 4] = ["AKIA", "ASIA", "AROA", "AIDA"];
const KEY_REST: usize = 16;

/// Whether a value under `name` is a secret.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    PARTS.iter().any(|part| name.contains(part)) || NAMES.contains(&name.as_str())
}

/// Takes out secrets.
#[derive(Debug, Default)]
pub(super) struct Redactor {
    values: Vec<String>,
}

impl Redactor {
    /// One that knows the values of secret `variables`.
    pub(super) fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let secret = variables.into_iter().filter_map(|(name, value)| {
            let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
            (is_secret(&name) && value.len() >= VALUE_MIN).then_some(value)
        });
        let mut values: Vec<_> = secret.collect();
        // If one contains the other, the longer is replaced first.
        values.sort_by_key(|value| std::cmp::Reverse(value.len()));
        Self { values }
    }

    /// `text` without secrets.
    pub(super) fn redact(&self, text: &str) -> String {
        let known =
            self.values.iter().fold(text.to_owned(), |text, value| text.replace(value, INSTEAD));
        let lines = known.split_inclusive('\n');
        lines.map(|line| keys(&users(&named(line)))).collect()
    }
}

fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

/// A line without the values of secret names: `name=value`, `name: value`, `"name":"value"`, `?name=value&`.
fn named(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(begin) = rest.find(is_of_name) {
        let (before, from) = rest.split_at(begin);
        let name_end = from.find(|c| !is_of_name(c)).unwrap_or(from.len());
        let (name, behind) = from.split_at(name_end);
        out.push_str(before);
        out.push_str(name);
        rest = behind;
        if !is_secret(name) {
            continue;
        }
        // An escaped quote stands in JSON within JSON.
        let mark = |c: char| c == '"' || c == '\'' || c == '\\' || c == ' ';
        let gap = behind.find(|c| !mark(c)).unwrap_or(behind.len());
        let Some(value) = behind[gap..].strip_prefix(['=', ':']) else { continue };
        let open = value.find(|c| !mark(c)).unwrap_or(value.len());
        let quoted = value[..open].contains(['"', '\'']);
        let inside = &value[open..];
        let is_header = name.to_ascii_lowercase().ends_with("authorization");
        let ends = |c: char| match (quoted, is_header) {
            (true, _) => c == '"' || c == '\'' || c == '\n' || c == '\\',
            (false, true) => c == '\n',
            (false, false) => c.is_whitespace() || "&,;\"'<>)]}".contains(c),
        };
        let end = inside.find(ends).unwrap_or(inside.len());
        if end == 0 {
            continue;
        }
        let skipped = behind.len() - inside.len();
        out.push_str(&behind[..skipped]);
        out.push_str(INSTEAD);
        rest = &inside[end..];
    }
    out + rest
}

/// A line without users and passwords of URLs.
fn users(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + 3);
        out.push_str(before);
        let end = behind.find(|c: char| c.is_whitespace() || "/?#\"'<>".contains(c));
        let authority = &behind[..end.unwrap_or(behind.len())];
        rest = match authority.rfind('@') {
            Some(user_end) => {
                out.push_str(INSTEAD);
                &behind[user_end..]
            }
            None => behind,
        };
    }
    out + rest
}

/// A line without parts in the form of an AWS key.
fn keys(line: &str) -> String {
    let mut out = line.to_owned();
    for start in KEY_STARTS {
        let mut from = 0;
        while let Some(at) = out[from..].find(start).map(|at| from + at) {
            let rest = &out[at + start.len()..];
            let is_part = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit();
            let length = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            from = at + start.len();
            if length >= KEY_REST {
                out.replace_range(at..from + length, INSTEAD);
                from = at + INSTEAD.len();
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(Redactor::default().redact(text), expected, "{text}");
    }

    #[test]
    fn values_of_names_that_sound_like_secrets() {
        let gone = INSTEAD;
        check(
            "AWS_SECRET_ACCESS_KEY=abc/def+1 next",
            &format!("AWS_SECRET_ACCESS_KEY={gone} next"),
        );
        check(
            "x-amz-security-token: abc\nnext\n",
            &format!("x-amz-security-token: {gone}\nnext\n"),
        );
        check(
            r#"{"session_token":"a b,c","n":5}"#,
            &format!(r#"{{"session_token":"{gone}","n":5}}"#),
        );
        check(
            "{\"inner\":\"{\\\"password\\\":\\\"p w\\\"}\"}",
            &format!("{{\"inner\":\"{{\\\"password\\\":\\\"{gone}\\\"}}\"}}"),
        );
        check(
            "s3://b?region=eu&X-Amz-Signature=0aF&x=1",
            &format!("s3://b?region=eu&X-Amz-Signature={gone}&x=1"),
        );
        check(
            "Authorization: AWS4-HMAC-SHA256 Credential=a, Signature=b",
            &format!("Authorization: {gone}"),
        );
        check("password = \"two words\" # default", &format!("password = \"{gone}\" # default"));
        check("sig=1&signal=2&design=3", &format!("sig={gone}&signal=2&design=3"));
        check("tokens, secrets and keys: none", "tokens, secrets and keys: none");
        check("secret", "secret");
        check("größe=5 schlüssel=6", "größe=5 schlüssel=6");
    }

    #[test]
    fn users_of_urls_and_keys_by_their_form() {
        check("http://user:pa@ss@host:9000/a@b", &format!("http://{INSTEAD}@host:9000/a@b"));
        check(
            "two http://a@h and https://b:c@i.",
            &format!("two http://{INSTEAD}@h and https://{INSTEAD}@i."),
        );
        check("s3://bucket/a@b", "s3://bucket/a@b");
        check("id AKIAIOSFODNN7EXAMPLE!", &format!("id {INSTEAD}!"));
        check("AKIA and ASIAshort", "AKIA and ASIAshort");
    }

    #[test]
    fn values_of_own_variables_wherever_they_turn_up() {
        let variable = |name: &str, value: &str| (name.into(), value.into());
        let redactor = Redactor::new([
            variable("AWS_SECRET_ACCESS_KEY", "wJalrXUt/nFEMI"),
            variable("MY_TOKEN", "wJalrXUt"),
            variable("API_TOKEN", "abc"),
            variable("HOME", "/home/me"),
        ]);
        let redacted = redactor.redact("a wJalrXUt/nFEMI b wJalrXUt c abc /home/me");
        assert_eq!(redacted, format!("a {INSTEAD} b {INSTEAD} c abc /home/me"));
    }
}
