//! The documents of S3 that are read: a page of a listing, an error, and the confirmation of a put; and the one that is
//! sent, a list of parts.
//!
//! # Boundary
//! From untrusted bytes to values. A document that is truncated, or contradicts itself or the request, is refused as a
//! whole.
//!
//! # Why
//! Half a listing that passes for a whole one makes files vanish, so a page counts only if its last tag was read. Keys are
//! asked for in the encoding of URLs, because XML has no words for control characters.

use super::tag;
use crate::store::{Kind, ListRequest, Listed, Page, Result, StoreError, Tag};
use percent_encoding::percent_decode;
use quick_xml::events::Event;
use quick_xml::reader::Reader;
use reqsign_core::time::Timestamp as Instant;

/// The text of a leaf, handed on with the names of the elements around it, innermost last.
type Leaf<'a> = &'a mut dyn FnMut(&[&str], String) -> Result<()>;

/// Walks `document`, which must be one whole `root` element; `leaf` gets the text of each element that ends.
fn walk(document: &[u8], root: &str, leaf: Leaf<'_>) -> Result<()> {
    let text = std::str::from_utf8(document).map_err(|_| StoreError::Broken("not UTF-8"))?;
    let mut reader = Reader::from_str(text);
    let mut path: Vec<String> = Vec::new();
    let mut text = String::new();
    let mut whole = false;
    loop {
        match reader.read_event().map_err(|_| StoreError::Broken("not XML"))? {
            Event::Start(start) => {
                let name = start.local_name().as_ref().to_owned();
                if path.is_empty() && (whole || name != root) {
                    return Err(StoreError::Broken("another document than was asked for"));
                }
                path.push(name);
                text.clear();
            }
            Event::Text(part) => text.push_str(&part),
            Event::CData(part) => text.push_str(&part),
            Event::GeneralRef(reference) => text.push(character(&reference)?),
            Event::End(_) => {
                let names: Vec<&str> = path.iter().skip(1).map(String::as_str).collect();
                leaf(&names, std::mem::take(&mut text))?;
                path.pop();
                whole |= path.is_empty();
            }
            Event::Eof if whole => return Ok(()),
            Event::Eof => return Err(StoreError::Broken("the document is cut")),
            _ => {}
        }
    }
}

/// `&amp;`, `&#13;` and the like.
fn character(reference: &quick_xml::events::BytesRef<'_>) -> Result<char> {
    let unknown = StoreError::Broken("an unknown entity");
    match reference.resolve_char_ref() {
        Ok(Some(character)) => return Ok(character),
        Ok(None) => {}
        Err(_) => return Err(unknown),
    }
    Ok(match &**reference {
        "amp" => '&',
        "lt" => '<',
        "gt" => '>',
        "quot" => '"',
        "apos" => '\'',
        _ => return Err(unknown),
    })
}

/// An entry while it is read.
#[derive(Debug, Default)]
struct Parts {
    key: Option<String>,
    tag: Option<String>,
    size: Option<u64>,
    modified: Option<uvfs_vfs::Timestamp>,
}

/// Reads a page that answers `request`.
pub(super) fn page(document: &[u8], request: &ListRequest<'_>) -> Result<Page> {
    let mut page = Page::default();
    let mut parts = Parts::default();
    let (mut encoded, mut truncated) = (false, None);
    walk(document, "ListBucketResult", &mut |path, text| {
        match path {
            ["EncodingType"] => encoded = text == "url",
            ["IsTruncated"] => truncated = Some(text == "true"),
            ["NextContinuationToken"] => page.next = Some(text),
            ["Contents", "Key"] | ["CommonPrefixes", "Prefix"] => parts.key = Some(text),
            ["Contents", "ETag"] => parts.tag = Some(text),
            ["Contents", "Size"] => parts.size = text.parse().ok(),
            ["Contents", "LastModified"] => parts.modified = time(&text),
            ["Contents"] => page.entries.push(std::mem::take(&mut parts).object()?),
            ["CommonPrefixes"] => page.entries.push(std::mem::take(&mut parts).prefix()?),
            _ => {}
        }
        Ok(())
    })?;
    // The element that names the encoding may stand behind the keys.
    if encoded {
        for entry in &mut page.entries {
            entry.key = decoded(&entry.key)?;
        }
    }
    match truncated {
        None => return Err(StoreError::Broken("a page that does not say whether it is the last")),
        Some(true) if page.next.is_none() => {
            return Err(StoreError::Broken("a page that is not the last, and names no next one"));
        }
        Some(true) => {}
        Some(false) => page.next = None,
    }
    if page.entries.iter().any(|entry| !entry.key.starts_with(request.prefix)) {
        return Err(StoreError::Broken("keys that were not asked for"));
    }
    // Objects stand before prefixes in the document.
    page.entries.sort_by(|one, other| one.key.cmp(&other.key));
    Ok(page)
}

impl Parts {
    fn object(self) -> Result<Listed> {
        let Self { key: Some(key), tag, size: Some(size), modified: Some(modified) } = self else {
            return Err(StoreError::Broken("an object without a key, a size or a time"));
        };
        let tag = tag.as_deref().and_then(tag::parse);
        let tag = tag.unwrap_or_else(|| tag::made_of(size, modified));
        Ok(Listed { key, kind: Kind::Object { tag, size, modified } })
    }

    fn prefix(self) -> Result<Listed> {
        let key = self.key.ok_or(StoreError::Broken("a prefix without a key"))?;
        Ok(Listed { key, kind: Kind::Prefix })
    }
}

/// `2026-11-23T06:29:45.123Z`.
fn time(text: &str) -> Option<uvfs_vfs::Timestamp> {
    let instant: Instant = text.parse().ok()?;
    Some(instant.as_system_time().into())
}

/// A key in the encoding of URLs, in which `+` is a space.
fn decoded(key: &str) -> Result<String> {
    let key = key.replace('+', " ");
    let decoded = percent_decode(key.as_bytes()).decode_utf8();
    let decoded = decoded.map_err(|_| StoreError::Broken("a key that is not UTF-8"))?;
    Ok(decoded.into_owned())
}

/// The text of the element `name` in a document `root` that has it once.
pub(super) fn value(document: &[u8], root: &str, name: &str) -> Result<String> {
    let mut value = None;
    walk(document, root, &mut |path, text| {
        if path == [name] {
            value = Some(text);
        }
        Ok(())
    })?;
    value
        .filter(|text| !text.is_empty())
        .ok_or(StoreError::Broken("it was done, and not said what was made"))
}

/// The document that names the parts of an upload in their order.
pub(super) fn parts(parts: &[Tag]) -> String {
    let part = |(at, tag): (usize, &Tag)| {
        let (number, tag) = (at + 1, quick_xml::escape::escape(&*tag.0));
        format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
    };
    let parts: String = parts.iter().enumerate().map(part).collect();
    format!(
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{parts}</CompleteMultipartUpload>"
    )
}

/// The contents of an error document.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) code: String,
    pub(super) message: String,
    pub(super) region: Option<String>,
}

/// Reads the readable part of an error document.
pub(super) fn said(document: &[u8]) -> Said {
    let mut said = Said::default();
    // A proxy may answer with a page of its own: then only the status is known.
    let _ = walk(document, "Error", &mut |path, text| {
        match path {
            ["Code"] => said.code = text,
            ["Message"] => said.message = text,
            ["Region"] => said.region = Some(text),
            _ => {}
        }
        Ok(())
    });
    said
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Delimiter;

    const REQUEST: ListRequest<'_> = ListRequest {
        prefix: "p/",
        delimiter: Delimiter::Slash,
        token: None,
        after: None,
        entries_max: 1000,
    };

    fn document(body: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Name>b</Name><Prefix>p/</Prefix>{body}</ListBucketResult>"
        )
    }

    fn object(key: &str) -> String {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-23T06:29:45.5Z</LastModified>\
             <ETag>&quot;0a-2&quot;</ETag><Size>7</Size><Owner><ID>x</ID></Owner></Contents>"
        )
    }

    const LAST: &str = "<IsTruncated>false</IsTruncated>";

    #[test]
    fn a_page_is_read_with_its_versions_in_order() {
        let body = format!(
            "{LAST}<EncodingType>url</EncodingType>{}{}<CommonPrefixes><Prefix>p/m%2F/</Prefix>\
             </CommonPrefixes>",
            object("p/z+%2B%0A"),
            object("p/a")
        );
        let page = page(document(&body).as_bytes(), &REQUEST).unwrap();
        let keys: Vec<_> = page.entries.iter().map(|entry| entry.key.as_str()).collect();
        assert_eq!((keys, page.next), (vec!["p/a", "p/m//", "p/z +\n"], None));
        let Kind::Object { tag, size, modified } = &page.entries[0].kind else { panic!() };
        assert_eq!((&*tag.0, *size), ("\"0a-2\"", 7));
        assert_eq!((modified.seconds, modified.nanoseconds), (1_795_415_385, 500_000_000));
    }

    #[test]
    fn keys_are_taken_as_they_are_where_the_store_does_not_encode() {
        let body = format!("{LAST}{}", object("p/a%2Fb+&amp;&#x41;"));
        let page = page(document(&body).as_bytes(), &REQUEST).unwrap();
        assert_eq!(page.entries[0].key, "p/a%2Fb+&A");
    }

    #[test]
    fn half_a_listing_is_none() {
        let body = format!("{}{LAST}{}", object("p/a"), object("p/b"));
        let whole = document(&body);
        assert_eq!(page(whole.as_bytes(), &REQUEST).unwrap().entries.len(), 2);
        for end in 0..whole.len() {
            let cut = page(&whole.as_bytes()[..end], &REQUEST);
            assert!(cut.is_err(), "{end} of {} bytes pass for a page", whole.len());
        }
        let untagged = page(
            document(&format!("{LAST}{}", object("p/a"))).replace("0a-2", "").as_bytes(),
            &REQUEST,
        );
        assert_eq!(untagged.unwrap().entries.len(), 1, "an object without a tag hides no other");
        let more = "<IsTruncated>true</IsTruncated>";
        let check = |body: &str, why: &str| {
            let refused = page(document(body).as_bytes(), &REQUEST);
            assert!(matches!(refused, Err(StoreError::Broken(_))), "{why}: {refused:?}");
        };
        check("", "it does not say whether more follow");
        check(more, "more follow, and it does not say where");
        check(&format!("{LAST}{}", object("q/a")), "a key of elsewhere");
        check(&format!("{LAST}<Contents><Key>p/a</Key></Contents>"), "no size");
        check(&format!("{LAST}<CommonPrefixes></CommonPrefixes>"), "a prefix of nothing");
        check(&format!("{LAST}<EncodingType>url</EncodingType>{}", object("p/%ff")), "not UTF-8");
        let other = page(b"<Error><Code>AccessDenied</Code></Error>", &REQUEST);
        assert!(other.is_err(), "an error with status 200");
    }

    #[test]
    fn errors_are_read_as_far_as_they_can_be() {
        let whole = "<Error><Code>A</Code><Message>b</Message><Region>c</Region></Error>";
        let said = said(whole.as_bytes());
        assert_eq!((said.code.as_str(), said.region.as_deref()), ("A", Some("c")));
        assert_eq!(super::said(b"<html>busy</html>"), Said::default());
        assert_eq!(super::said(b"").code, "");
        assert_eq!(super::said(b"<Error><Code>A</Code><Mess").code, "A");
    }
}
