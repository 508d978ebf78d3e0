//! S3 by signed HTTP.
//!
//! # Boundary
//! One request of [`Store`] is one HTTP request, on the calling thread. Tries nothing again.
//!
//! # Trust
//! Answers are checked against their requests: a range by its place, its length and its tag, a listing by `xml`, and a
//! whole object by its checksum where the store has one (`sum`). A body is signed with its sum (SHA-256), so that a store
//! takes it whole or not at all. A put succeeds only once the store has named the tag: some stores answer 200 and then an
//! error.
//!
//! # Why
//! `reqsign` signs and finds credentials, `ureq` does HTTP, and both leave a key unchanged (decision 0024). Weakness:
//! `reqsign` is asynchronous, so each signature runs in a small executor.

mod address;
mod client;
mod credentials;
mod sum;
mod tag;
mod xml;

pub use address::Address;

use crate::store::{
    Condition, Delimiter, Head, ListRequest, Metadata, Page, Put, Result, Span, Store, StoreError,
    Tag, Upload,
};
use client::{Answer, Client};
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqsign_core::hash::hex_sha256;
use std::fmt::Write as _;
use std::time::Duration;
use sum::Sum;
use uvfs_vfs::Timestamp;

/// The characters that are not encoded in a key, by the rules of signatures.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The characters that are not encoded in a path, where `/` separates.
const PATH: &AsciiSet = &PLAIN.remove(b'/');
/// A page of a listing is at most this long: 1000 keys of 1024 bytes, each as `%XX`, and their attributes.
const PAGE_BYTES_MAX: u64 = 8 << 20;
/// The mark of a put, as an object's own metadata.
const MARK: &str = "x-amz-meta-uvfs-put";
/// When the content was changed, in seconds: as other clients of object stores keep it, so that they show it.
const MODIFIED: &str = "x-amz-meta-mtime";
/// Metadata that an object keeps when its content or its time changes, besides all that begins with [`OWN_METADATA`].
const KEPT: &[&str] = &[
    "cache-control",
    "content-disposition",
    "content-encoding",
    "content-language",
    "content-type",
    "expires",
    "x-amz-website-redirect-location",
];
/// Metadata that users name themselves.
const OWN_METADATA: &str = "x-amz-meta-";
/// More of an error is not read.
const ERROR_BYTES_MAX: u64 = 64 << 10;

/// A bucket. See the module.
#[derive(Debug)]
pub struct S3Store {
    client: Client,
    url: String,
    bucket: String,
}

impl S3Store {
    /// The bucket at `address`. Sends no request.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] if certificates are needed and the system has no list of authorities.
    pub fn new(address: &Address) -> Result<Self> {
        let client = Client::new(address)?;
        Ok(Self { client, url: address.url(), bucket: address.bucket.clone() })
    }

    /// The bucket at `address`, or in the region that the store says it is in, after it has answered a request.
    ///
    /// # Errors
    /// Why the files of the bucket cannot be listed.
    pub fn connect(address: &Address) -> Result<Self> {
        let try_one = |address: &Address| {
            let store = Self::new(address)?;
            let (prefix, delimiter) = (&address.prefix, Delimiter::Slash);
            let request =
                ListRequest { prefix, delimiter, token: None, after: None, entries_max: 1 };
            store.list_page(&request).map(|_| store)
        };
        match try_one(address) {
            Err(StoreError::Region(region)) if address.endpoint.is_none() => {
                log::info!("{}: the bucket is in {region}", address.name());
                try_one(&Address { region: Some(region), ..address.clone() })
            }
            other => other,
        }
    }

    /// The meaning of an answer without the wanted status.
    fn refusal(&self, answer: Answer) -> StoreError {
        self.refusal_in_words(answer).0
    }

    /// [`S3Store::refusal`], with the code and the words of the store.
    fn refusal_in_words(&self, answer: Answer) -> (StoreError, String, String) {
        let after = answer.header("retry-after").and_then(tag::retry_after);
        let region = answer.header("x-amz-bucket-region").map(str::to_owned);
        let signed_with = answer.signed_with();
        let status = answer.status();
        let document = answer.body_up_to(ERROR_BYTES_MAX).unwrap_or_default();
        let said = xml::said(&document);
        let text = match (said.code.as_str(), said.message.as_str()) {
            ("", _) => format!("status {status}"),
            (code, "") => code.to_owned(),
            (code, message) => format!("{code}: {message}"),
        };
        let elsewhere = region.or(said.region);
        let words = text.clone();
        let error = match (status, said.code.as_str()) {
            (_, "NoSuchBucket") => StoreError::NoBucket,
            (_, "RequestTimeTooSkewed") => StoreError::Clock,
            (301 | 307, _)
            | (_, "AuthorizationHeaderMalformed" | "IllegalLocationConstraintException")
                if elsewhere.is_some() =>
            {
                StoreError::Region(elsewhere.unwrap_or_default())
            }
            (
                _,
                "InvalidAccessKeyId"
                | "SignatureDoesNotMatch"
                | "ExpiredToken"
                | "InvalidToken"
                | "TokenRefreshRequired"
                | "MissingAuthenticationToken",
            )
            | (401, _) => match self.client.has_other_credentials(&signed_with) {
                // They were renewed since: the same request may succeed now.
                true => StoreError::Busy { said: text, after: Some(Duration::ZERO) },
                false => StoreError::Credentials(text),
            },
            // Some stores use 404 for an unknown key, too: the code above has sorted that out.
            (404, _) => StoreError::NotFound,
            (412, _) => StoreError::Changed,
            (403, _) => StoreError::Denied(text),
            (501, _) | (_, "NotImplemented") => StoreError::Unsupported(text),
            // Two puts under a condition at once.
            (_, "ConditionalRequestConflict" | "OperationAborted") => {
                StoreError::Busy { said: text, after: Some(Duration::ZERO) }
            }
            (408 | 429 | 500..=599, _) | (_, "SlowDown" | "RequestTimeout") => {
                StoreError::Busy { said: text, after: after.map(Duration::from_secs) }
            }
            _ => StoreError::Refused(text),
        };
        (error, said.code, words)
    }
}

impl S3Store {
    fn url_of(&self, key: &str) -> String {
        format!("{}/{}", self.url, utf8_percent_encode(key, PATH))
    }

    fn part_url(&self, key: &str, upload: &Upload, number: u32) -> String {
        let upload = utf8_percent_encode(&upload.0, PLAIN);
        format!("{}?partNumber={number}&uploadId={upload}", self.url_of(key))
    }

    /// The source of a copy, as the header's text.
    fn source(&self, key: &str) -> String {
        format!("/{}/{}", self.bucket, utf8_percent_encode(key, PATH))
    }

    /// The tag in the header of an answer that accepts a put.
    fn tag_of(&self, answer: Answer) -> Result<Tag> {
        if answer.status() != 200 {
            return Err(self.refusal(answer));
        }
        let tag = answer.header("etag").and_then(tag::parse);
        // Read to its end: then the connection is used again.
        answer.body_up_to(ERROR_BYTES_MAX)?;
        tag.ok_or(StoreError::Broken("it was taken, and no tag told"))
    }

    /// The tag in the document of type `root` that is the answer.
    fn tag_in(&self, answer: Answer, root: &str) -> Result<Tag> {
        if answer.status() != 200 {
            return Err(self.refusal(answer));
        }
        let document = answer.body_up_to(ERROR_BYTES_MAX)?;
        let tag = xml::value(&document, root, "ETag");
        let tag = tag.map_err(|error| self.late_refusal(&document).unwrap_or(error))?;
        tag::parse(&tag).ok_or(StoreError::Broken("it was done, and no tag told"))
    }

    /// The refusal in an error document that follows status 200.
    fn late_refusal(&self, document: &[u8]) -> Option<StoreError> {
        let said = xml::said(document);
        Some(match said.code.as_str() {
            "" => return None,
            "PreconditionFailed" => StoreError::Changed,
            "NoSuchKey" | "NoSuchUpload" => StoreError::NotFound,
            code => StoreError::Busy { said: format!("{code}: {}", said.message), after: None },
        })
    }

    fn send(
        &self,
        (method, url): (Method, &str),
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Result<Answer> {
        let sum = hex_sha256(body);
        let headers: Vec<_> =
            headers.iter().copied().chain([("x-amz-content-sha256", sum.as_str())]).collect();
        self.client.send(method, url, &headers, body)
    }
}

/// The header of a condition, if there is one.
fn conditional<'a>(condition: Condition<'a>) -> Option<(&'static str, &'a str)> {
    match condition {
        Condition::Absent => Some(("if-none-match", "*")),
        Condition::Is(tag) => tag::condition(tag).map(|tag| ("if-match", tag)),
        Condition::Any => None,
    }
}

fn seconds(time: Timestamp) -> String {
    format!("{}.{:09}", time.seconds, time.nanoseconds)
}

fn mark(put: &Put<'_>) -> String {
    format!("{:016x}", put.mark)
}

/// The headers of an answer about `key` that are metadata to keep.
fn metadata(key: &str, answer: &Answer) -> Metadata {
    let is_kept = |name: &str| {
        KEPT.contains(&name) || name.starts_with(OWN_METADATA) && name != MARK && name != MODIFIED
    };
    let mut kept = Vec::new();
    for (name, value) in answer.headers().filter(|(name, _)| is_kept(name)) {
        let Some(value) = value else {
            // A signature is made of plain text.
            let key = key.escape_debug();
            log::warn!("`{key}`: a change loses the metadata {name}, which is not plain text");
            continue;
        };
        let value = match name {
            // Some stores keep the encoding in which an earlier client sent the bytes, which is not that of the object.
            "content-encoding" => {
                let coding = |coding: &&str| !coding.trim().eq_ignore_ascii_case("aws-chunked");
                value.split(',').filter(coding).collect::<Vec<_>>().join(",").trim().to_owned()
            }
            _ => value.to_owned(),
        };
        if !value.is_empty() {
            kept.push((name.to_owned(), value));
        }
    }
    Metadata(kept)
}

fn borrowed(metadata: &Metadata) -> impl Iterator<Item = (&str, &str)> {
    metadata.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
}

impl Store for S3Store {
    fn list_page(&self, request: &ListRequest<'_>) -> Result<Page> {
        let mut url = format!("{}/?encoding-type=url&list-type=2", self.url);
        let mut add = |key: &str, value: &str| {
            let _infallible = write!(url, "&{key}={}", utf8_percent_encode(value, PLAIN));
        };
        add("max-keys", &request.entries_max.to_string());
        add("prefix", request.prefix);
        if request.delimiter == Delimiter::Slash {
            add("delimiter", "/");
        }
        if let Some(token) = request.token {
            add("continuation-token", token);
        } else if let Some(after) = request.after {
            add("start-after", after);
        }
        let answer = self.client.get(&url, &[])?;
        match answer.status() {
            200 => xml::page(&answer.body_up_to(PAGE_BYTES_MAX)?, request),
            // If a listing is not found, the bucket does not exist; unless the store says that something else does not, such
            // as the user.
            404 => match self.refusal_in_words(answer) {
                (StoreError::NotFound, code, _) if code.is_empty() || code == "NoSuchKey" => {
                    Err(StoreError::NoBucket)
                }
                (StoreError::NotFound, _, words) => Err(StoreError::Refused(words)),
                (other, ..) => Err(other),
            },
            _ => Err(self.refusal(answer)),
        }
    }

    fn read(&self, key: &str, tag: &Tag, span: Span, into: &mut [u8]) -> Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let mut headers = Vec::new();
        headers.extend(tag::condition(tag).map(|tag| ("if-match", tag)));
        let place = match &span {
            Span::Whole => None,
            Span::Range(range) => Some(format!("{}-{}", range.start, range.end - 1)),
        };
        let bytes = place.as_ref().map(|place| format!("bytes={place}"));
        match &bytes {
            Some(bytes) => headers.push(("range", bytes)),
            None => headers.push(sum::WANTED),
        }
        let answer = self.client.get(&self.url_of(key), &headers)?;
        let size = match (answer.status(), &span) {
            (206, Span::Range(_)) => {
                let covered = answer.header("content-range").map(str::trim);
                let wanted = format!("bytes {}/", place.unwrap_or_default());
                let size = covered.and_then(|covered| covered.strip_prefix(&wanted));
                size.ok_or(StoreError::Broken("another range than was asked for"))?.parse().ok()
            }
            (206, Span::Whole) => return Err(StoreError::Broken("a range instead of the object")),
            // The whole object, also from a store that knows no ranges.
            (200, _) => answer.header("content-length").and_then(|length| length.parse().ok()),
            _ => return Err(self.refusal(answer)),
        };
        let other = match (tag::is_made(tag), size) {
            (true, Some(size)) => tag::of_answer(&answer, size),
            // Without a size, the time alone cannot be compared.
            (true, None) => None,
            (false, _) => answer.header("etag").and_then(tag::parse),
        };
        if other.is_some_and(|other| other != *tag) {
            return Err(StoreError::Changed);
        }
        if answer.header("content-length").is_some_and(|length| length != into.len().to_string()) {
            return Err(StoreError::Broken("another length than was asked for"));
        }
        let sum = if answer.status() == 200 { Sum::stated(&answer) } else { None };
        answer.body_into(into)?;
        sum.map_or(Ok(()), |sum| sum.check(into))
    }

    fn put(&self, put: &Put<'_>, body: &[u8]) -> Result<Tag> {
        let (mark, modified) = (mark(put), put.modified.map(seconds));
        let mut headers = vec![(MARK, mark.as_str())];
        headers.extend(borrowed(put.metadata));
        headers.extend(modified.as_deref().map(|modified| (MODIFIED, modified)));
        headers.extend(conditional(put.condition));
        self.tag_of(self.send((Method::PUT, &self.url_of(put.key)), &headers, body)?)
    }

    fn begin_upload(&self, put: &Put<'_>) -> Result<Upload> {
        let url = format!("{}?uploads=", self.url_of(put.key));
        let (mark, modified) = (mark(put), put.modified.map(seconds));
        let mut headers = vec![(MARK, mark.as_str())];
        headers.extend(borrowed(put.metadata));
        headers.extend(modified.as_deref().map(|modified| (MODIFIED, modified)));
        let answer = self.send((Method::POST, &url), &headers, &[])?;
        if answer.status() != 200 {
            return Err(self.refusal(answer));
        }
        let document = answer.body_up_to(ERROR_BYTES_MAX)?;
        xml::value(&document, "InitiateMultipartUploadResult", "UploadId").map(Upload)
    }

    fn put_part(&self, put: &Put<'_>, upload: &Upload, number: u32, body: &[u8]) -> Result<Tag> {
        let url = self.part_url(put.key, upload, number);
        self.tag_of(self.send((Method::PUT, &url), &[], body)?)
    }

    fn finish_upload(&self, put: &Put<'_>, upload: &Upload, parts: &[Tag]) -> Result<Tag> {
        let id = utf8_percent_encode(&upload.0, PLAIN);
        let url = format!("{}?uploadId={id}", self.url_of(put.key));
        let headers: Vec<_> = conditional(put.condition).into_iter().collect();
        let answer = self.send((Method::POST, &url), &headers, xml::parts(parts).as_bytes())?;
        self.tag_in(answer, "CompleteMultipartUploadResult")
    }

    fn abort_upload(&self, put: &Put<'_>, upload: &Upload) -> Result<()> {
        let id = utf8_percent_encode(&upload.0, PLAIN);
        let url = format!("{}?uploadId={id}", self.url_of(put.key));
        let answer = self.client.ask(Method::DELETE, &url, &[])?;
        match answer.status() {
            200 | 204 | 404 => answer.body_up_to(ERROR_BYTES_MAX).map(drop),
            _ => Err(self.refusal(answer)),
        }
    }

    fn head(&self, key: &str) -> Result<Head> {
        let answer = self.client.ask(Method::HEAD, &self.url_of(key), &[])?;
        if answer.status() != 200 {
            return Err(self.refusal(answer));
        }
        let mark = answer.header(MARK).and_then(|text| u64::from_str_radix(text, 16).ok());
        let size = answer.header("content-length").and_then(|length| length.parse().ok());
        let tag = tag::of_answer(&answer, size.unwrap_or(0));
        let tag = tag.ok_or(StoreError::Broken("an object without a tag and a time"))?;
        Ok(Head { tag, mark, metadata: metadata(key, &answer) })
    }

    fn copy(
        &self,
        from: &str,
        tag: &Tag,
        to: &str,
        condition: Condition<'_>,
        said: Option<(Timestamp, &Metadata)>,
    ) -> Result<Tag> {
        let source = self.source(from);
        let mut headers = vec![("x-amz-copy-source", source.as_str())];
        headers.extend(tag::condition(tag).map(|tag| ("x-amz-copy-source-if-match", tag)));
        headers.extend(conditional(condition));
        let modified = said.map(|(modified, _)| seconds(modified));
        if let (Some((_, metadata)), Some(modified)) = (said, &modified) {
            headers.extend(borrowed(metadata));
            headers.extend([("x-amz-metadata-directive", "REPLACE"), (MODIFIED, modified)]);
        }
        self.tag_in(self.send((Method::PUT, &self.url_of(to)), &headers, &[])?, "CopyObjectResult")
    }

    fn delete(&self, key: &str, tag: Option<&Tag>) -> Result<()> {
        let condition = tag.and_then(tag::condition).map(|tag| ("if-match", tag));
        let answer = self.client.ask(Method::DELETE, &self.url_of(key), condition.as_slice())?;
        match answer.status() {
            200 | 204 => answer.body_up_to(ERROR_BYTES_MAX).map(drop),
            404 => match self.refusal(answer) {
                StoreError::NotFound => Ok(()),
                other => Err(other),
            },
            _ => Err(self.refusal(answer)),
        }
    }
}
