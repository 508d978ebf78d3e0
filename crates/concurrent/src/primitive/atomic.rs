//! `std`'s atomics, which record every access of a thread that is being tallied.
//!
//! # Boundary
//! The methods that this workspace uses, with `std`'s names and meaning; adds only the record. Compiled only with debug
//! assertions. Weakness: a missing method is a compile error in debug builds only.

use super::record;
use std::sync::atomic as real;
pub use std::sync::atomic::{Ordering, compiler_fence, fence};

/// The methods of every atomic, for any type of value.
macro_rules! common {
    ($name:ident, $value:ty $(, $parameter:ident)?) => {
        impl$(<$parameter>)? $name$(<$parameter>)? {
            /// Makes an atomic with this value.
            pub const fn new(value: $value) -> Self {
                Self(real::$name::new(value))
            }
            /// Borrows the value; exclusive, so not a shared access.
            pub fn get_mut(&mut self) -> &mut $value {
                self.0.get_mut()
            }
            /// Returns the value; exclusive, so not a shared access.
            pub fn into_inner(self) -> $value {
                self.0.into_inner()
            }
            /// Loads the value; noted as a load.
            pub fn load(&self, order: Ordering) -> $value {
                record::load();
                self.0.load(order)
            }
            /// Stores `value`; noted as a store.
            pub fn store(&self, value: $value, order: Ordering) {
                record::store();
                self.0.store(value, order);
            }
            /// Swaps the value; noted as a read-modify-write.
            pub fn swap(&self, value: $value, order: Ordering) -> $value {
                record::rmw();
                self.0.swap(value, order)
            }
            /// Exchanges the value if it is `current`; noted as a read-modify-write, also when it fails.
            ///
            /// # Errors
            /// The value found, if it is not `current`.
            pub fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                record::rmw();
                self.0.compare_exchange(current, new, success, failure)
            }
            /// Exchanges the value if it is `current`, and may fail spuriously; noted as a read-modify-write, also when
            /// it fails.
            ///
            /// # Errors
            /// The value found, if it is not `current` or the exchange failed spuriously.
            pub fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                record::rmw();
                self.0.compare_exchange_weak(current, new, success, failure)
            }
            /// Changes the value by `change`: a load, and a read-modify-write for each attempt.
            ///
            /// # Errors
            /// The value found, if `change` returns none for it.
            pub fn fetch_update(
                &self,
                success: Ordering,
                failure: Ordering,
                mut change: impl FnMut($value) -> Option<$value>,
            ) -> Result<$value, $value> {
                let mut before = self.load(failure);
                while let Some(after) = change(before) {
                    match self.compare_exchange_weak(before, after, success, failure) {
                        Ok(before) => return Ok(before),
                        Err(now) => before = now,
                    }
                }
                Err(before)
            }
        }

        impl$(<$parameter>)? From<$value> for $name$(<$parameter>)? {
            fn from(value: $value) -> Self {
                Self::new(value)
            }
        }
    };
}

/// Read-modify-writes that only some atomics have.
macro_rules! modifying {
    ($name:ident, $value:ty, $($method:ident),*) => {
        impl $name {
            $(
                /// Calls `std`'s method; noted as a read-modify-write.
                pub fn $method(&self, value: $value, order: Ordering) -> $value {
                    record::rmw();
                    self.0.$method(value, order)
                }
            )*
        }
    };
}

macro_rules! integers {
    ($($name:ident, $value:ty;)*) => {
        $(
            #[doc = concat!("`std::sync::atomic::", stringify!($name), "`, recorded.")]
            #[derive(Debug, Default)]
            #[repr(transparent)]
            pub struct $name(real::$name);
            common!($name, $value);
            modifying!(
                $name, $value, fetch_add, fetch_sub, fetch_and, fetch_nand, fetch_or, fetch_xor,
                fetch_max, fetch_min
            );
        )*
    };
}

integers! {
    AtomicU8, u8;
    AtomicU16, u16;
    AtomicU32, u32;
    AtomicU64, u64;
    AtomicUsize, usize;
    AtomicI32, i32;
    AtomicI64, i64;
    AtomicIsize, isize;
}

/// `std::sync::atomic::AtomicBool`, recorded.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct AtomicBool(real::AtomicBool);
common!(AtomicBool, bool);
modifying!(AtomicBool, bool, fetch_and, fetch_nand, fetch_or, fetch_xor);

/// `std::sync::atomic::AtomicPtr`, recorded.
#[derive(Debug)]
#[repr(transparent)]
pub struct AtomicPtr<T>(real::AtomicPtr<T>);
common!(AtomicPtr, *mut T, T);

impl<T> Default for AtomicPtr<T> {
    fn default() -> Self {
        Self::new(std::ptr::null_mut())
    }
}
