//! The calls that a store of objects answers.
//!
//! # Boundary
//! Keys, pages of listings, versions and bytes; no names, directories or attributes. A call blocks until the store has
//! answered, and is not tried again here ([`crate::Patient`] does that).
//!
//! # Why
//! Narrow, so that a store for tests is a map, and so that a client library can be replaced. A call names everything that
//! its answer depends on: a read its version, a page its beginning, a put the version that it replaces. Weakness: further
//! abilities of a store (appending, composing on the server) need a method here first.

use std::fmt;
use std::ops::Range;
use std::time::Duration;
use uvfs_vfs::Timestamp;

/// The result of a request.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A store of objects.
pub trait Store: Send + Sync + 'static {
    /// One page of the keys, in the order of their bytes.
    fn list_page(&self, request: &ListRequest<'_>) -> Result<Page>;

    /// Reads `span` of the object `key`, all of it, into `into`, which is as long. Bytes of another version than `tag` are
    /// never returned: that is [`StoreError::Changed`]. Nor are bytes that do not match the store's checksum
    /// ([`StoreError::Damaged`]); stores send one for whole objects.
    fn read(&self, key: &str, tag: &Tag, span: Span, into: &mut [u8]) -> Result<()>;

    /// Makes `body` the content of an object, if the condition holds: all of it, or nothing. Returns the new version.
    fn put(&self, put: &Put<'_>, body: &[u8]) -> Result<Tag>;

    /// Begins an object that is sent in parts. No reader sees any of it before [`Store::finish_upload`].
    fn begin_upload(&self, put: &Put<'_>) -> Result<Upload>;

    /// Uploads part `number` (from 1); each but the last has at least [`PART_BYTES_MIN`] bytes. A second upload of a
    /// number replaces the first.
    fn put_part(&self, put: &Put<'_>, upload: &Upload, number: u32, body: &[u8]) -> Result<Tag>;

    /// Makes the parts, in their order, the content of the object, if the condition holds.
    fn finish_upload(&self, put: &Put<'_>, upload: &Upload, parts: &[Tag]) -> Result<Tag>;

    /// Removes the parts of an upload, which cost money as long as they are there.
    fn abort_upload(&self, put: &Put<'_>, upload: &Upload) -> Result<()>;

    /// The metadata of the object `key`. After a lost answer, a writer uses it to find out whether the object is its own.
    fn head(&self, key: &str) -> Result<Head>;

    /// Copies the version `tag` of the object `from` to the key `to`, within the store, if the condition holds there. A store
    /// may ignore the condition, or return [`StoreError::Unsupported`]. Returns the version there. Without `said`, the copy
    /// has the metadata of `from`. With it, the copy has that time and those headers, and may be under the same key.
    fn copy(
        &self,
        from: &str,
        tag: &Tag,
        to: &str,
        condition: Condition<'_>,
        said: Option<(Timestamp, &Metadata)>,
    ) -> Result<Tag>;

    /// Removes an object, of this version only if one is named. Succeeds if there is no object. A store without such
    /// conditions removes any version, or returns [`StoreError::Unsupported`].
    fn delete(&self, key: &str, tag: Option<&Tag>) -> Result<()>;
}

/// Bytes of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Span {
    /// All of them. The named version is as long as the buffer.
    Whole,
    /// These.
    Range(Range<u64>),
}

/// A part of an upload that is not the last has at least so many bytes, by S3's rules.
pub const PART_BYTES_MIN: u64 = 5 << 20;
/// An upload has at most so many parts, by S3's rules.
pub const PARTS_MAX: u64 = 10_000;
/// One request brings or copies at most so many bytes, by S3's rules.
pub const REQUEST_BYTES_MAX: u64 = 5 << 30;

/// A request to write an object.
#[derive(Debug, Clone, Copy)]
pub struct Put<'a> {
    /// The whole key.
    pub key: &'a str,
    /// The object that must be there.
    pub condition: Condition<'a>,
    /// Kept with the object: distinguishes this put from all others, so that a repeated put is recognised.
    pub mark: u64,
    /// Kept with the object: when its content was changed, if a caller has set that.
    pub modified: Option<Timestamp>,
    /// Kept with the object: the metadata of the version that this content replaces.
    pub metadata: &'a Metadata,
}

/// Metadata that users and other clients gave an object, and that a change of its content or time keeps: pairs of a
/// header's name, in small letters, and its value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Metadata(pub Vec<(String, String)>);

impl Metadata {
    /// No metadata, as of a new object.
    pub const NONE: Metadata = Metadata(Vec::new());
}

/// An object without its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Version of the object.
    pub tag: Tag,
    /// The [`Put::mark`] that it bears.
    pub mark: Option<u64>,
    /// Metadata that a change of the object must keep.
    pub metadata: Metadata,
}

/// The object that must be under a key for it to be replaced. Anything else is [`StoreError::Changed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition<'a> {
    /// No object.
    Absent,
    /// This version.
    Is(&'a Tag),
    /// Anything.
    Any,
}

/// The store's name for an upload in parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload(pub String);

/// Whether keys are cut at the next `/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delimiter {
    /// All keys.
    None,
    /// Keys below a further `/` are one [`Kind::Prefix`].
    Slash,
}

/// Which page of keys.
#[derive(Debug, Clone, Copy)]
pub struct ListRequest<'a> {
    /// All keys begin with it.
    pub prefix: &'a str,
    /// Where keys are cut.
    pub delimiter: Delimiter,
    /// The token of the page before; `None` for the first.
    pub token: Option<&'a str>,
    /// The key behind which the first page begins.
    pub after: Option<&'a str>,
    /// Entries at most, 1 to 1000.
    pub entries_max: u16,
}

/// A page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// In the order of their keys.
    pub entries: Vec<Listed>,
    /// How to ask for the next page; `None` at the end.
    pub next: Option<String>,
}

/// An entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The whole key, or the whole prefix with the `/` that it was cut at.
    pub key: String,
    /// Kind of the entry.
    pub kind: Kind,
}

/// The kind of an entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// An object.
    Object {
        /// Version of the object.
        tag: Tag,
        /// Bytes.
        size: u64,
        /// When it was written.
        modified: Timestamp,
    },
    /// Keys that continue after a `/`.
    Prefix,
}

/// A version of an object: its entity tag, as the store writes it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Tag(pub Box<str>);

impl fmt::Debug for Tag {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Why a request failed. Names the bucket or host where that is known, and never a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such object.
    NotFound,
    /// The object is of another version.
    Changed,
    /// There is no such bucket.
    NoBucket,
    /// The credentials do not allow it.
    Denied(String),
    /// There are no credentials, or the store does not take them.
    Credentials(String),
    /// The clock here and the store's are too far apart.
    Clock,
    /// The bucket is in this region.
    Region(String),
    /// There is no answer from the host.
    Unreachable(String),
    /// The store has no time now.
    Busy {
        /// Message of the store.
        said: String,
        /// The wait that it asks for, if it names one.
        after: Option<Duration>,
    },
    /// The answer is truncated, or contradicts itself or the request.
    Broken(&'static str),
    /// The bytes of an answer do not have the checksum of this kind that the store has of the object.
    Damaged(&'static str),
    /// The store cannot do that at all, such as writing under a condition.
    Unsupported(String),
    /// Any other refusal.
    Refused(String),
}

/// Whether the same request may succeed a moment later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Temporary {
    /// No.
    No,
    /// Yes.
    Yes,
    /// Yes, and not before this time has passed.
    After(Duration),
}

impl StoreError {
    /// Whether trying again can help.
    pub fn temporary(&self) -> Temporary {
        match self {
            StoreError::Busy { after: Some(after), .. } => Temporary::After(*after),
            StoreError::Busy { .. }
            | StoreError::Unreachable(_)
            | StoreError::Broken(_)
            | StoreError::Damaged(_) => Temporary::Yes,
            _ => Temporary::No,
        }
    }

    /// The user's remedy.
    pub fn remedy(&self) -> &'static str {
        match self {
            StoreError::NotFound | StoreError::Changed => "list the directory again",
            StoreError::NoBucket => "check the name of the bucket, and the endpoint",
            StoreError::Denied(_) => {
                "the credentials need s3:ListBucket on the bucket, s3:GetObject on its objects, and s3:PutObject and \
                 s3:DeleteObject for writing; --read-only asks for less"
            }
            StoreError::Credentials(_) => {
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE; a public bucket is read with \
                 `?anonymous=true`"
            }
            StoreError::Clock => "set the clock of this machine, for example by NTP",
            StoreError::Region(_) => {
                "add that region to the source, as `?region=`, or set AWS_REGION"
            }
            StoreError::Unreachable(_) => "check `?endpoint=`, the network and the proxy",
            StoreError::Busy { .. } | StoreError::Broken(_) => "try again later",
            StoreError::Damaged(_) => {
                "check the network, proxies, and the object: read it by another client that compares checksums"
            }
            StoreError::Refused(_) | StoreError::Unsupported(_) => {
                "check the endpoint, the source and the credentials"
            }
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::NotFound => write!(out, "there is no such object"),
            StoreError::Changed => write!(out, "the object was replaced"),
            StoreError::NoBucket => write!(out, "there is no such bucket"),
            StoreError::Denied(said) => write!(out, "the store denies it ({said})"),
            StoreError::Credentials(why) => write!(out, "no valid credentials ({why})"),
            StoreError::Clock => write!(out, "the clock of this machine is not the store's"),
            StoreError::Region(region) => write!(out, "the bucket is in region {region}"),
            StoreError::Unreachable(why) => write!(out, "the store cannot be reached ({why})"),
            StoreError::Busy { said, .. } => write!(out, "the store is busy ({said})"),
            StoreError::Broken(what) => write!(out, "the answer of the store is unusable: {what}"),
            StoreError::Damaged(kind) => {
                write!(out, "the bytes do not have the checksum ({kind}) that the store tells")
            }
            StoreError::Unsupported(said) => write!(out, "the store cannot do that ({said})"),
            StoreError::Refused(said) => write!(out, "the store refuses it ({said})"),
        }
    }
}

impl std::error::Error for StoreError {}
