//! Extensions at the end of requests that create: security contexts, supplementary groups.
//!
//! They follow names, so nothing in them is aligned. Records are multiples of 8 bytes. The first records may be security
//! contexts behind one head, whose count stands where other heads have their type.

use crate::abi::{EXT_GROUPS, ExtHeader, MAX_NR_SECCTX, Secctx, SuppGroups};
use crate::bytes::{Cursor, Packed};
use crate::malformed::Cause;
use zerocopy::IntoBytes;

/// The extensions of a request, checked when the request was parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extensions<'a>(&'a [u8]);

/// One extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Extension<'a> {
    /// Security contexts of the new file, as bytes; [`Extensions::security_contexts`] has them parsed.
    SecurityContexts {
        /// How many.
        count: u32,
        /// The records behind the head.
        records: &'a [u8],
    },
    /// Supplementary groups of the caller.
    Groups(Packed<'a, u32>),
    /// An extension of a type that this version does not know.
    Unknown {
        /// Type of the extension.
        kind: u32,
        /// Bytes behind the head.
        body: &'a [u8],
    },
}

/// A security context: the extended attribute that the new file gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SecurityContext<'a> {
    /// Name of the attribute, without its zero.
    pub name: &'a [u8],
    /// Value of the attribute.
    pub context: &'a [u8],
}

impl<'a> Extensions<'a> {
    /// The extensions in these bytes, as they stand at the end of a request.
    ///
    /// # Errors
    /// [`Cause::Extensions`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Cause> {
        let mut cursor = Cursor(bytes);
        while !cursor.0.is_empty() {
            let extension = extension(&mut cursor).map_err(|_| Cause::Extensions)?;
            if let Extension::SecurityContexts { count, records } = extension {
                let mut cursor = Cursor(records);
                for _ in 0..count {
                    context(&mut cursor).map_err(|_| Cause::Extensions)?;
                }
            }
        }
        Ok(Self(bytes))
    }

    /// The bytes of these extensions, as the kernel makes them: [`Self::parse`] reads them.
    #[must_use]
    pub fn encode(contexts: &[SecurityContext<'_>], groups: &[u32]) -> Vec<u8> {
        let size = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        let mut bytes = Vec::new();
        let mut record = |kind, body: &[u8]| {
            let len = (size_of::<ExtHeader>() + body.len()).next_multiple_of(8);
            let end = bytes.len() + len;
            bytes.extend(ExtHeader { size: size(len), r#type: kind }.as_bytes());
            bytes.extend(body);
            bytes.resize(end, 0);
        };
        if !contexts.is_empty() {
            let mut body = Vec::new();
            for SecurityContext { name, context } in contexts {
                body.extend(Secctx { size: size(context.len()), padding: 0 }.as_bytes());
                body.extend([name, &[0][..], context].concat());
                body.resize(body.len().next_multiple_of(8), 0);
            }
            record(size(contexts.len()), &body);
        }
        if !groups.is_empty() {
            let head = SuppGroups { nr_groups: size(groups.len()) };
            record(EXT_GROUPS, &[head.as_bytes(), groups.as_bytes()].concat());
        }
        bytes
    }

    /// Whether the request has none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Every extension.
    pub fn iter(&self) -> impl Iterator<Item = Extension<'a>> + use<'a> {
        let mut cursor = Cursor(self.0);
        std::iter::from_fn(move || extension(&mut cursor).ok())
    }

    /// Every security context.
    pub fn security_contexts(&self) -> impl Iterator<Item = SecurityContext<'a>> + use<'a> {
        self.iter().flat_map(|extension| {
            let (mut left, mut cursor) = match extension {
                Extension::SecurityContexts { count, records } => (count, Cursor(records)),
                _ => (0, Cursor(&[])),
            };
            std::iter::from_fn(move || {
                left = left.checked_sub(1)?;
                context(&mut cursor).ok()
            })
        })
    }

    /// Every supplementary group.
    pub fn groups(&self) -> impl Iterator<Item = u32> + use<'a> {
        self.iter().flat_map(|extension| match extension {
            Extension::Groups(groups) => groups.iter(),
            _ => Packed::of(&[]).iter(),
        })
    }

    pub(crate) const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }
}

/// The extension that comes next.
fn extension<'a>(cursor: &mut Cursor<'a>) -> Result<Extension<'a>, Cause> {
    let head: ExtHeader = cursor.copy()?;
    let body = (head.size as usize).checked_sub(size_of::<ExtHeader>()).ok_or(Cause::Short)?;
    let mut inner = Cursor(cursor.bytes(body)?);
    // The size of a record may leave out its padding.
    cursor.0 = &cursor.0[padding(head.size as usize).min(cursor.0.len())..];
    Ok(match head.r#type {
        count @ 0..=MAX_NR_SECCTX => Extension::SecurityContexts { count, records: inner.0 },
        EXT_GROUPS => {
            let groups: SuppGroups = inner.copy()?;
            Extension::Groups(inner.packed(groups.nr_groups)?)
        }
        kind => Extension::Unknown { kind, body: inner.0 },
    })
}

/// The security context that comes next.
fn context<'a>(cursor: &mut Cursor<'a>) -> Result<SecurityContext<'a>, Cause> {
    let before = cursor.0.len();
    let head: Secctx = cursor.copy()?;
    let context =
        SecurityContext { name: cursor.name()?, context: cursor.bytes(head.size as usize)? };
    cursor.0 = &cursor.0[padding(before - cursor.0.len()).min(cursor.0.len())..];
    Ok(context)
}

/// Zeros up to a multiple of 8.
const fn padding(len: usize) -> usize {
    len.wrapping_neg() % 8
}
