//! The class of a cached entry: evicted before the others, with them, or after them.
//!
//! # Boundary
//! One byte for [`crate::name_table`], which stores it with each entry, and [`crate::replacement`], which has a queue
//! for each class. The callers choose the class of an entry.
//!
//! # Why
//! Three are enough: more would have to be weighed against each other. Weakness: all entries of the class `Keep` are
//! alike.

/// The class of one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Class {
    /// Evicted when it was not used for long.
    #[default]
    Normal = 0,
    /// Evicted after the others, as long as it leaves them some room.
    Keep = 1,
    /// Evicted before the others, used or not.
    Once = 2,
}

impl Class {
    /// The class of a byte made by `class as u8`.
    #[inline]
    pub fn from_byte(byte: u8) -> Self {
        match byte {
            1 => Self::Keep,
            2 => Self::Once,
            _ => Self::Normal,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        for class in [Class::Normal, Class::Keep, Class::Once] {
            assert_eq!(Class::from_byte(class as u8), class);
        }
    }
}
