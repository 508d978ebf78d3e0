//! Buffers that begin at a multiple of 8, views of arrays, and the cursor that every parser uses.

use crate::abi::Structure;
use crate::malformed::Cause;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes that begin at a multiple of 8, so that messages in them can be viewed in place.
#[derive(Clone, Default)]
pub struct Aligned {
    words: Vec<u64>,
    len: usize,
}

impl Aligned {
    /// Zeros of this length.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(8)], len }
    }

    /// Cut to `len` bytes, if it is longer.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl From<&[u8]> for Aligned {
    fn from(bytes: &[u8]) -> Self {
        let mut aligned = Self::zeroed(bytes.len());
        aligned.copy_from_slice(bytes);
        aligned
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.words.as_bytes()[..self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.words.as_mut_bytes()[..self.len]
    }
}

impl fmt::Debug for Aligned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for Aligned {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Aligned {}

/// An array in a message that need not be aligned: its values are copied out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Packed<'a, T> {
    bytes: &'a [u8],
    of: PhantomData<T>,
}

impl<'a, T: FromBytes + IntoBytes + Immutable> Packed<'a, T> {
    /// The array of these values.
    #[must_use]
    pub fn of(values: &'a [T]) -> Self {
        Self { bytes: values.as_bytes(), of: PhantomData }
    }

    /// Count of its values.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() / size_of::<T>()
    }

    /// Whether it has no value.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The values.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let read = |bytes| T::read_from_bytes(bytes).unwrap_or_else(|_| T::new_zeroed());
        self.bytes.chunks_exact(size_of::<T>()).map(read)
    }

    pub(crate) const fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<T: FromBytes + IntoBytes + Immutable + fmt::Debug> fmt::Debug for Packed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The unread rest of a message.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a>(pub(crate) &'a [u8]);

impl<'a> Cursor<'a> {
    /// The structure that comes next, in place.
    pub(crate) fn structure<T: Structure>(&mut self) -> Result<&'a T, Cause> {
        let (structure, rest) = T::ref_from_prefix(self.0).map_err(cast)?;
        self.0 = rest;
        Ok(structure)
    }

    /// The structure that comes next, copied: it need not be aligned.
    pub(crate) fn copy<T: Structure>(&mut self) -> Result<T, Cause> {
        let (structure, rest) = T::read_from_prefix(self.0).map_err(|_| Cause::Short)?;
        self.0 = rest;
        Ok(structure)
    }

    /// The structure that comes next; zeros complete it if the message ends before it does.
    pub(crate) fn padded<T: Structure>(&mut self) -> T {
        let mut structure = T::new_zeroed();
        let len = self.0.len().min(size_of::<T>());
        structure.as_mut_bytes()[..len].copy_from_slice(&self.0[..len]);
        self.0 = &self.0[len..];
        structure
    }

    /// A name up to its zero.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Cause> {
        let end = self.0.iter().position(|&byte| byte == 0).ok_or(Cause::Unterminated)?;
        let name = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(name)
    }

    /// A name of so many bytes, and its zero.
    pub(crate) fn counted_name(&mut self, len: u32) -> Result<&'a [u8], Cause> {
        let name = self.bytes(len as usize)?;
        match self.bytes(1)? {
            [0] => Ok(name),
            _ => Err(Cause::Unterminated),
        }
    }

    /// Bytes of this length.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Cause> {
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Cause::Short)?;
        self.0 = rest;
        Ok(bytes)
    }

    /// An array of `count` values, in place.
    pub(crate) fn array<T>(&mut self, count: u32) -> Result<&'a [T], Cause>
    where
        T: FromBytes + Immutable + zerocopy::KnownLayout,
    {
        let (array, rest) =
            <[T]>::ref_from_prefix_with_elems(self.0, count as usize).map_err(cast)?;
        self.0 = rest;
        Ok(array)
    }

    /// An array of `count` values that need not be aligned.
    pub(crate) fn packed<T>(&mut self, count: u32) -> Result<Packed<'a, T>, Cause> {
        let len = size_of::<T>().checked_mul(count as usize).ok_or(Cause::Short)?;
        Ok(Packed { bytes: self.bytes(len)?, of: PhantomData })
    }

    /// The rest, which has this length.
    pub(crate) fn data(&mut self, len: u32) -> Result<&'a [u8], Cause> {
        if self.0.len() != len as usize {
            return Err(Cause::DataLength);
        }
        Ok(self.rest())
    }

    /// The rest.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The rest is empty.
    pub(crate) const fn end(&self) -> Result<(), Cause> {
        if self.0.is_empty() { Ok(()) } else { Err(Cause::Trailing) }
    }
}

/// The size is the first rule: a cut message is cut at any address.
fn cast<S, D: ?Sized>(error: zerocopy::CastError<S, D>) -> Cause {
    match error {
        zerocopy::ConvertError::Alignment(_) => Cause::Misaligned,
        zerocopy::ConvertError::Size(_) => Cause::Short,
    }
}
