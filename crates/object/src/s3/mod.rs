//! S3 by signed HTTP.
//!
//! # Boundary
//! One request of [`Store`] is one HTTP request, on the calling thread. Tries nothing again.
//!
//! # Trust
//! Answers are checked against what was asked: a range by its place, its length and its tag, a listing by `xml`.
//!
//! # Why
//! Signing and the search for credentials are `reqsign`'s, HTTP is `ureq`'s, and a key goes through both as it is
//! (decision 0024). Weakness: `reqsign` is asynchronous, so each signature runs in a small executor.

mod address;
mod client;
mod xml;

pub use address::Address;

use crate::store::{Delimiter, ListRequest, Page, Result, Store, StoreError, Tag};
use client::{Answer, Client};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::fmt::Write as _;
use std::ops::Range;
use std::time::Duration;

/// What is not encoded in a key, by the rules of signatures.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same where `/` separates.
const PATH: &AsciiSet = &PLAIN.remove(b'/');
/// A page of a listing is at most this long: 1000 keys of 1024 bytes, each as `%XX`, and what belongs to them.
const PAGE_BYTES_MAX: u64 = 8 << 20;
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
    /// The bucket at `address`. Asks nobody.
    ///
    /// # Errors
    /// [`StoreError::Unreachable`] if certificates are needed and the system has no list of who signs them.
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
            let request = ListRequest { prefix, delimiter, token: None, entries_max: 1 };
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

    /// What an answer without the wanted status means.
    fn refusal(&self, answer: Answer) -> StoreError {
        let after = answer.header("retry-after").and_then(|text| text.parse().ok());
        let region = answer.header("x-amz-bucket-region").map(str::to_owned);
        let status = answer.status();
        let document = answer.body_up_to(ERROR_BYTES_MAX).unwrap_or_default();
        let said = xml::said(&document);
        let text = match (said.code.as_str(), said.message.as_str()) {
            ("", _) => format!("status {status}"),
            (code, "") => code.to_owned(),
            (code, message) => format!("{code}: {message}"),
        };
        let elsewhere = region.or(said.region);
        match (status, said.code.as_str()) {
            (_, "NoSuchBucket") => StoreError::NoBucket,
            (404, _) => StoreError::NotFound,
            (412, _) => StoreError::Changed,
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
            | (401, _) => StoreError::Credentials(text),
            (403, _) => StoreError::Denied(text),
            (408 | 429 | 500..=599, _) | (_, "SlowDown" | "RequestTimeout") => {
                StoreError::Busy { said: text, after: after.map(Duration::from_secs) }
            }
            _ => StoreError::Refused(text),
        }
    }
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
        }
        let answer = self.client.get(&url, &[])?;
        match answer.status() {
            200 => xml::page(&answer.body_up_to(PAGE_BYTES_MAX)?, request),
            // Of a listing, what is not found is the bucket.
            404 => {
                log::debug!("{}: {}", self.bucket, self.refusal(answer));
                Err(StoreError::NoBucket)
            }
            _ => Err(self.refusal(answer)),
        }
    }

    fn read(&self, key: &str, tag: &Tag, range: Range<u64>, into: &mut [u8]) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let url = format!("{}/{}", self.url, utf8_percent_encode(key, PATH));
        let bytes = format!("bytes={}-{}", range.start, range.end - 1);
        let answer = self.client.get(&url, &[("range", &bytes), ("if-match", &tag.0)])?;
        match answer.status() {
            206 => {
                let place = answer.header("content-range").map(str::trim);
                let wanted = format!("bytes {}-{}/", range.start, range.end - 1);
                if !place.is_some_and(|place| place.starts_with(&wanted)) {
                    return Err(StoreError::Broken("another range than was asked for"));
                }
            }
            // The whole object, from a store that knows no ranges: right if that was asked for.
            200 if range.start == 0 => {}
            200 => return Err(StoreError::Broken("the whole object instead of a range")),
            _ => return Err(self.refusal(answer)),
        }
        if answer.header("etag").is_some_and(|other| other != &*tag.0) {
            return Err(StoreError::Changed);
        }
        if answer.header("content-length").is_some_and(|length| length != into.len().to_string()) {
            return Err(StoreError::Broken("another length than was asked for"));
        }
        answer.body_into(into)
    }
}
