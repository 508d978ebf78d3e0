//! The class of something cached: whether it goes before the others, with them, or after them.
//!
//! # Boundary
//! A word for [`crate::name_table`], which keeps one with each entry, and [`crate::replacement`], which has
//! a queue for each. Who is in which class is the callers' business.
//!
//! # Why
//! Three are enough: more would have to be weighed against each other. Weakness: among those that are to be
//! kept all are alike.

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Class {
    /// Goes when it was not used for long.
    #[default]
    Normal = 0,
    /// Goes after the others, as long as it leaves them some room.
    Keep = 1,
    /// Goes before the others, used or not.
    Once = 2,
}

impl Class {
    /// As it came from `class as u8`.
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
