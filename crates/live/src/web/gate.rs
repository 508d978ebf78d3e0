//! The permitted requests, and restrictions on a browser's use of the answers.
//!
//! # Boundary
//! A pure function of a request and the token. [`super::api`] makes the answers.
//!
//! # Why
//! Other pages run in the same browser, and may send any request to loopback. They cannot read a token that was printed
//! in a terminal, nor send a header field of their own without permission, nor forge an origin. Each of these is
//! checked, so that one mistake is not enough for an attack:
//!
//! | attack | defence |
//! |---|---|
//! | another user, another program of this machine | the token: 256 random bits, which every answer with a figure in it needs |
//! | a page that posts a form, loads an image, a script (CSRF) | the token is in a field, not in a cookie; `Origin` and the kind of the body |
//! | a name that its owner lets point here (DNS rebinding) | `Host` has to be of loopback; the token is of another origin |
//! | a page that shows this one in a frame (clickjacking) | `frame-ancestors 'none'`, `X-Frame-Options` |
//! | a directory whose name is a script | no text becomes markup (`require-trusted-types-for`), no script but ours |
//!
//! No cookie: cookies ignore ports, and would be sent to any other server on loopback. Weakness: the token stays valid
//! until the command ends.

use std::fs::File;
use std::hint::black_box;
use std::io::{self, Read};
use uvfs_http::{self as http, Reply, Request, Status};

/// Bytes of a token.
const TOKEN_BYTES: usize = 32;

/// The browser's permissions for the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; base-uri 'none'; \
                      form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'";

/// The secret that the terminal shows: a request with it comes from the user of that terminal.
pub(super) struct Token(String);

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// The token as the terminal shows it.
    pub(super) fn text(&self) -> &str {
        &self.0
    }

    /// Whether `given` equals it, in a time that does not depend on the place of a difference.
    fn is(&self, given: &str) -> bool {
        let (own, given) = (self.0.as_bytes(), given.as_bytes());
        let pairs = own.iter().zip(given);
        let differ = pairs.fold(0, |differ, (one, other)| black_box(differ | (one ^ other)));
        own.len() == given.len() && differ == 0
    }
}

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// A part of the page, which has no information.
    Page,
    /// Figures.
    Look,
    /// A query or an action described in the body.
    Ask,
}

/// Refuses requests that do not come from our own page, or that need `token` and do not bear it.
///
/// # Errors
/// The status and the reason.
pub(super) fn check(
    request: &Request,
    wants: Wants,
    token: &Token,
) -> Result<(), (Status, &'static str)> {
    let host = request.field("host").filter(|host| http::is_loopback(host));
    let Some(host) = host else {
        return Err((http::FORBIDDEN, "name the host 127.0.0.1 or localhost"));
    };
    if wants == Wants::Page {
        return Ok(());
    }
    // Browsers name the origin of a request; other programs do not.
    let is_own = |site: &str| site == "same-origin" || site == "none";
    if !request.values("sec-fetch-site").all(is_own) {
        return Err((http::FORBIDDEN, "asked for by another page"));
    }
    let given = request.field("authorization").and_then(|field| field.strip_prefix("Bearer "));
    if !given.is_some_and(|given| token.is(given)) {
        return Err((http::UNAUTHORIZED, "open the address that `uvfs web` printed last"));
    }
    if wants == Wants::Look {
        return Ok(());
    }
    let origin = request.field("origin").and_then(|origin| origin.strip_prefix("http://"));
    if !origin.is_some_and(|origin| origin.eq_ignore_ascii_case(host)) {
        return Err((http::FORBIDDEN, "the origin is not this page"));
    }
    let kind =
        request.field("content-type").map(|kind| kind.split(';').next().unwrap_or(kind).trim());
    match kind.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        true => Ok(()),
        false => Err((http::WRONG_KIND, "write application/json")),
    }
}

/// The reply with its restrictions for the browser.
pub(super) fn fenced(mut reply: Reply) -> Reply {
    reply.fields.extend([
        ("Content-Security-Policy", POLICY),
        ("X-Frame-Options", "DENY"),
        ("Referrer-Policy", "no-referrer"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cache-Control", "no-store"),
    ]);
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_long_differ_and_are_compared_whole() {
        let (token, other) = (Token::new().unwrap(), Token::new().unwrap());
        assert_eq!(token.text().len(), 2 * TOKEN_BYTES);
        assert_ne!(token.text(), other.text());
        assert!(token.is(token.text()) && !token.is(other.text()));
        let longer = format!("{}0", token.text());
        for bad in ["", "0", &token.text()[1..], &longer, &token.text().to_uppercase()] {
            assert!(!token.is(bad) || bad == token.text(), "{bad}");
        }
    }
}
