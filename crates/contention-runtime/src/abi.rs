//! The entry points that the ThreadSanitizer pass of LLVM and of GCC calls, and those that a program may call itself.
//!
//! # Boundary
//! Entry points only: each passes on the address, the kind and the place of an access. The atomic operations are
//! carried out here, since the pass replaces them by calls; all at the strongest ordering, which the
//! simulated machine has anyway.
//!
//! # Concurrency
//! In a simulated run the master alone comes here. In a recorded run all threads do.
//!
//! # Why
//! The pass's interface is not documented by either compiler, but it has been the same from GCC 12 and
//! LLVM 14 on. Weakness: accesses that inline assembly, the C library and precompiled code make are not seen.

use crate::access::{
    begin, block, compound, end, function_entry, function_exit, kind, ordered, plain, range,
};
use crate::switch::{compare_exchange_16, last_caller, with_caller, with_caller_aside, with_stack};
use std::ffi::c_void;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use uvfs_coherence::profile::Operation;

with_caller!(__tsan_read1 => plain, "rsi", "edx" = kind(Operation::Load, 1));
with_caller!(__tsan_volatile_read1 => plain, "rsi", "edx" = kind(Operation::Load, 1));
with_caller!(__tsan_read2 => plain, "rsi", "edx" = kind(Operation::Load, 2));
with_caller!(__tsan_volatile_read2 => plain, "rsi", "edx" = kind(Operation::Load, 2));
with_caller!(__tsan_unaligned_read2 => plain, "rsi", "edx" = kind(Operation::Load, 2));
with_caller!(__tsan_unaligned_volatile_read2 => plain, "rsi", "edx" = kind(Operation::Load, 2));
with_caller!(__tsan_read4 => plain, "rsi", "edx" = kind(Operation::Load, 4));
with_caller!(__tsan_volatile_read4 => plain, "rsi", "edx" = kind(Operation::Load, 4));
with_caller!(__tsan_unaligned_read4 => plain, "rsi", "edx" = kind(Operation::Load, 4));
with_caller!(__tsan_unaligned_volatile_read4 => plain, "rsi", "edx" = kind(Operation::Load, 4));
with_caller!(__tsan_read8 => plain, "rsi", "edx" = kind(Operation::Load, 8));
with_caller!(__tsan_volatile_read8 => plain, "rsi", "edx" = kind(Operation::Load, 8));
with_caller!(__tsan_unaligned_read8 => plain, "rsi", "edx" = kind(Operation::Load, 8));
with_caller!(__tsan_unaligned_volatile_read8 => plain, "rsi", "edx" = kind(Operation::Load, 8));
with_caller!(__tsan_read16 => plain, "rsi", "edx" = kind(Operation::Load, 16));
with_caller!(__tsan_volatile_read16 => plain, "rsi", "edx" = kind(Operation::Load, 16));
with_caller!(__tsan_unaligned_read16 => plain, "rsi", "edx" = kind(Operation::Load, 16));
with_caller!(__tsan_unaligned_volatile_read16 => plain, "rsi", "edx" = kind(Operation::Load, 16));
with_caller!(__tsan_write1 => plain, "rsi", "edx" = kind(Operation::Store, 1));
with_caller!(__tsan_volatile_write1 => plain, "rsi", "edx" = kind(Operation::Store, 1));
with_caller!(__tsan_write2 => plain, "rsi", "edx" = kind(Operation::Store, 2));
with_caller!(__tsan_volatile_write2 => plain, "rsi", "edx" = kind(Operation::Store, 2));
with_caller!(__tsan_unaligned_write2 => plain, "rsi", "edx" = kind(Operation::Store, 2));
with_caller!(__tsan_unaligned_volatile_write2 => plain, "rsi", "edx" = kind(Operation::Store, 2));
with_caller!(__tsan_write4 => plain, "rsi", "edx" = kind(Operation::Store, 4));
with_caller!(__tsan_volatile_write4 => plain, "rsi", "edx" = kind(Operation::Store, 4));
with_caller!(__tsan_unaligned_write4 => plain, "rsi", "edx" = kind(Operation::Store, 4));
with_caller!(__tsan_unaligned_volatile_write4 => plain, "rsi", "edx" = kind(Operation::Store, 4));
with_caller!(__tsan_write8 => plain, "rsi", "edx" = kind(Operation::Store, 8));
with_caller!(__tsan_volatile_write8 => plain, "rsi", "edx" = kind(Operation::Store, 8));
with_caller!(__tsan_unaligned_write8 => plain, "rsi", "edx" = kind(Operation::Store, 8));
with_caller!(__tsan_unaligned_volatile_write8 => plain, "rsi", "edx" = kind(Operation::Store, 8));
with_caller!(__tsan_write16 => plain, "rsi", "edx" = kind(Operation::Store, 16));
with_caller!(__tsan_volatile_write16 => plain, "rsi", "edx" = kind(Operation::Store, 16));
with_caller!(__tsan_unaligned_write16 => plain, "rsi", "edx" = kind(Operation::Store, 16));
with_caller!(__tsan_unaligned_volatile_write16 => plain, "rsi", "edx" = kind(Operation::Store, 16));
with_caller!(__tsan_read_write1 => compound, "rsi", "edx" = kind(Operation::Store, 1));
with_caller!(__tsan_read_write2 => compound, "rsi", "edx" = kind(Operation::Store, 2));
with_caller!(__tsan_unaligned_read_write2 => compound, "rsi", "edx" = kind(Operation::Store, 2));
with_caller!(__tsan_read_write4 => compound, "rsi", "edx" = kind(Operation::Store, 4));
with_caller!(__tsan_unaligned_read_write4 => compound, "rsi", "edx" = kind(Operation::Store, 4));
with_caller!(__tsan_read_write8 => compound, "rsi", "edx" = kind(Operation::Store, 8));
with_caller!(__tsan_unaligned_read_write8 => compound, "rsi", "edx" = kind(Operation::Store, 8));
with_caller!(__tsan_read_write16 => compound, "rsi", "edx" = kind(Operation::Store, 16));
with_caller!(__tsan_unaligned_read_write16 => compound, "rsi", "edx" = kind(Operation::Store, 16));
with_caller!(__tsan_vptr_read => plain, "rsi", "edx" = kind(Operation::Load, 8));
with_caller!(__tsan_vptr_update => plain, "rsi", "edx" = kind(Operation::Store, 8));
with_caller!(__tsan_read_range => range, "rdx", "ecx" = kind(Operation::Load, 1));
with_caller!(__tsan_write_range => range, "rdx", "ecx" = kind(Operation::Store, 1));
with_caller!(__tsan_memcpy => copy, "rcx");
with_caller!(__tsan_memmove => copy_overlapping, "rcx");
with_caller!(__tsan_memset => fill, "rcx");
// GCC's pass does not replace these calls. The programs are linked with `--wrap` (`build/compiler.rs`), so that only their
// own calls arrive here.
with_caller!(__wrap_memcpy => copy, "rcx");
with_caller!(__wrap_memmove => copy_overlapping, "rcx");
with_caller!(__wrap_memset => fill, "rcx");
with_caller!(__wrap_memcmp => compare, "rcx");
with_caller!(__wrap_strlen => length, "rsi");
with_caller!(__wrap_strcmp => compare_strings, "rdx");
with_caller!(__wrap_strcpy => copy_string, "rdx");
with_caller!(__wrap___memcpy_chk => copy_within, "r8");
with_caller!(__wrap___memmove_chk => copy_overlapping_within, "r8");
with_caller!(__wrap___memset_chk => fill_within, "r8");
with_caller!(__wrap___strcpy_chk => copy_string_within, "rcx");
with_stack!(__tsan_func_entry => function_entry, "rsi");
with_caller!(__tsan_func_exit => function_exit, "rdi");
with_caller!(__sanitizer_cov_trace_pc => block, "rdi");

/// The start of a program's constructors; this library has its own.
// SAFETY: the pass's name and type (E1).
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __tsan_init() {}

// SAFETY: the pass's name and type (E1).
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __tsan_ignore_thread_begin() {}

// SAFETY: the pass's name and type (E1).
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __tsan_ignore_thread_end() {}

/// A fence costs nothing here: the simulated machine executes in order.
// SAFETY: the pass's name and type (E1).
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __tsan_atomic_thread_fence(_ordering: i32) {
    // ORDERING: SeqCst, the strongest that the caller may have asked for.
    std::sync::atomic::fence(Ordering::SeqCst);
}

// SAFETY: the pass's name and type (E1).
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn __tsan_atomic_signal_fence(_ordering: i32) {
    // ORDERING: SeqCst, the strongest that the caller may have asked for, for the compiler only.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// # Safety
/// As `memcpy`, which the pass replaced by this call: the program answers for both ranges.
unsafe extern "C" fn copy(to: *mut u8, from: *const u8, bytes: usize, pc: u64) -> *mut u8 {
    // SAFETY: the program asks for exactly this copy.
    unsafe {
        range(from as u64, bytes, pc, kind(Operation::Load, 1));
        range(to as u64, bytes, pc, kind(Operation::Store, 1));
        libc::memcpy(to.cast(), from.cast(), bytes).cast()
    }
}

/// # Safety
/// As `memmove`, which the pass replaced by this call.
unsafe extern "C" fn copy_overlapping(
    to: *mut u8,
    from: *const u8,
    bytes: usize,
    pc: u64,
) -> *mut u8 {
    // SAFETY: the program asks for exactly this move.
    unsafe {
        range(from as u64, bytes, pc, kind(Operation::Load, 1));
        range(to as u64, bytes, pc, kind(Operation::Store, 1));
        libc::memmove(to.cast(), from.cast(), bytes).cast()
    }
}

/// # Safety
/// As `memset`, which the pass replaced by this call.
unsafe extern "C" fn fill(to: *mut u8, byte: i32, bytes: usize, pc: u64) -> *mut u8 {
    // SAFETY: the program asks for exactly this.
    unsafe {
        range(to as u64, bytes, pc, kind(Operation::Store, 1));
        libc::memset(to.cast::<c_void>(), byte, bytes).cast()
    }
}

unsafe extern "C" {
    /// The C library's: ends a program that would write behind an object.
    safe fn __chk_fail() -> !;
}

/// A function of C that is told how much room its target has: ends the program where that is too little.
macro_rules! within {
    ($name:ident => $target:ident($to:ident, $second:ident: $kind:ty $(, $bytes:ident)?), $wanted:expr) => {
        /// # Safety
        /// As the function without the room.
        unsafe extern "C" fn $name(
            $to: *mut u8, $second: $kind, $($bytes: usize,)? room: usize, pc: u64,
        ) -> *mut u8 {
            // SAFETY: the caller's promise.
            unsafe {
                if $wanted > room {
                    __chk_fail();
                }
                $target($to, $second, $($bytes,)? pc)
            }
        }
    };
}

within!(copy_within => copy(to, from: *const u8, bytes), bytes);
within!(copy_overlapping_within => copy_overlapping(to, from: *const u8, bytes), bytes);
within!(fill_within => fill(to, byte: i32, bytes), bytes);
within!(copy_string_within => copy_string(to, from: *const u8), libc::strlen(from.cast()) + 1);

/// # Safety
/// As `memcmp`. The whole of both ranges counts as read, though the function may stop at the first difference.
unsafe extern "C" fn compare(one: *const u8, other: *const u8, bytes: usize, pc: u64) -> i32 {
    // SAFETY: the program asks for exactly this comparison.
    unsafe {
        range(one as u64, bytes, pc, kind(Operation::Load, 1));
        range(other as u64, bytes, pc, kind(Operation::Load, 1));
        libc::memcmp(one.cast(), other.cast(), bytes)
    }
}

/// # Safety
/// As `strlen`.
unsafe extern "C" fn length(text: *const u8, pc: u64) -> usize {
    // SAFETY: the program asks for exactly this length.
    unsafe {
        let bytes = libc::strlen(text.cast());
        range(text as u64, bytes + 1, pc, kind(Operation::Load, 1));
        bytes
    }
}

/// # Safety
/// As `strcmp`. Of both strings that counts as read which is as long as the shorter one.
unsafe extern "C" fn compare_strings(one: *const u8, other: *const u8, pc: u64) -> i32 {
    // SAFETY: the program asks for exactly this comparison.
    unsafe {
        let bytes = libc::strlen(one.cast()).min(libc::strlen(other.cast())) + 1;
        range(one as u64, bytes, pc, kind(Operation::Load, 1));
        range(other as u64, bytes, pc, kind(Operation::Load, 1));
        libc::strcmp(one.cast(), other.cast())
    }
}

/// # Safety
/// As `strcpy`.
unsafe extern "C" fn copy_string(to: *mut u8, from: *const u8, pc: u64) -> *mut u8 {
    // SAFETY: the program asks for exactly this copy, the terminating zero included.
    unsafe { copy(to, from, libc::strlen(from.cast()) + 1, pc) }
}

/// The atomic operations on cells of one width, by their exported names.
macro_rules! atomics {
    ($word:ty, $cell:ty, $bytes:literal, $load:ident $store:ident $val:ident $strong:ident $weak:ident
     $exchange:ident $add:ident $sub:ident $and:ident $or:ident $xor:ident $nand:ident) => {
        const _: () = {
            with_caller!($load => load, "rdx");
            with_caller!($store => store, "rcx");
            with_caller!($val => compare, "r9");
            with_caller!($strong => compare_flag, "r9");
            with_caller!($weak => compare_flag, "r9");
            /// # Safety
            /// `cell` is one that the program may use in this way: the pass replaced its operation by this call.
            unsafe extern "C" fn load(cell: *const $cell, order: i32, pc: u64) -> $word {
                let token = begin(cell as u64, pc, ordered(Operation::AtomicLoad, $bytes, order));
                // SAFETY: the program loads this cell atomically.
                // ORDERING: SeqCst, the strongest that the caller may have asked for.
                let found = unsafe { (*cell).load(Ordering::SeqCst) };
                end(token, u64::from(found), u64::from(found), true);
                found
            }
            /// # Safety
            /// `cell` is one that the program may use in this way: the pass replaced its operation by this call.
            unsafe extern "C" fn store(cell: *const $cell, value: $word, order: i32, pc: u64) {
                let token = begin(cell as u64, pc, ordered(Operation::AtomicStore, $bytes, order));
                // SAFETY: the program stores to this cell atomically; the old value is for the locks.
                // ORDERING: SeqCst, the strongest that the caller may have asked for.
                let old = unsafe { (*cell).swap(value, Ordering::SeqCst) };
                end(token, u64::from(old), u64::from(value), true);
            }
            /// # Safety
            /// `cell` is one that the program may use in this way: the pass replaced its operation by this call.
            unsafe extern "C" fn compare(
                cell: *const $cell, expected: $word, value: $word, order: i32, _failure: i32, pc: u64,
            ) -> $word {
                let kind = ordered(Operation::CompareExchange, $bytes, order);
                let token = begin(cell as u64, pc, kind);
                // SAFETY: the program compares and exchanges this cell.
                // ORDERING: SeqCst, the strongest that the caller may have asked for.
                let done = unsafe {
                    (*cell).compare_exchange(expected, value, Ordering::SeqCst, Ordering::SeqCst)
                };
                let (Ok(old) | Err(old)) = done;
                end(token, u64::from(old), u64::from(value), done.is_ok());
                old
            }
            /// # Safety
            /// As `compare_exchange` of the program on `cell`; `expected` is its own variable, readable and writable.
            unsafe extern "C" fn compare_flag(
                cell: *const $cell, expected: *mut $word, value: $word, order: i32, failure: i32, pc: u64,
            ) -> i32 {
                // SAFETY: the program gives both; the word that was found is stored to `expected`.
                unsafe {
                    let wanted = *expected;
                    let found = compare(cell, wanted, value, order, failure, pc);
                    if found == wanted {
                        1
                    } else {
                        *expected = found;
                        0
                    }
                }
            }
            atomics!(@ $word, $cell, $bytes, $exchange, exchange, Exchange, swap, |_, value| value);
            atomics!(@ $word, $cell, $bytes, $add, add, FetchAdd, fetch_add, <$word>::wrapping_add);
            atomics!(@ $word, $cell, $bytes, $sub, sub, FetchAdd, fetch_sub, <$word>::wrapping_sub);
            atomics!(@ $word, $cell, $bytes, $and, and, FetchBits, fetch_and, |old, value| old & value);
            atomics!(@ $word, $cell, $bytes, $or, or, FetchBits, fetch_or, |old, value| old | value);
            atomics!(@ $word, $cell, $bytes, $xor, xor, FetchBits, fetch_xor, |old, value| old ^ value);
            atomics!(
                @ $word, $cell, $bytes, $nand, nand, FetchBits, fetch_nand, |old, value| !(old & value)
            );
        };
    };
    (@ $word:ty, $cell:ty, $bytes:literal, $name:ident, $target:ident, $operation:ident, $method:ident, $new:expr) => {
        with_caller!($name => $target, "rcx");
        /// # Safety
        /// `cell` is one that the program may use in this way: the pass replaced its operation by this call.
        unsafe extern "C" fn $target(
            cell: *const $cell, value: $word, order: i32, pc: u64,
        ) -> $word {
            let token = begin(cell as u64, pc, ordered(Operation::$operation, $bytes, order));
            // SAFETY: the program updates this cell atomically.
            // ORDERING: SeqCst, the strongest that the caller may have asked for.
            let old = unsafe { (*cell).$method(value, Ordering::SeqCst) };
            let new: fn($word, $word) -> $word = $new;
            end(token, u64::from(old), u64::from(new(old, value)), true);
            old
        }
    };
}

atomics!(u8, AtomicU8, 1,
__tsan_atomic8_load __tsan_atomic8_store __tsan_atomic8_compare_exchange_val
__tsan_atomic8_compare_exchange_strong __tsan_atomic8_compare_exchange_weak __tsan_atomic8_exchange
__tsan_atomic8_fetch_add __tsan_atomic8_fetch_sub __tsan_atomic8_fetch_and
__tsan_atomic8_fetch_or __tsan_atomic8_fetch_xor __tsan_atomic8_fetch_nand);
atomics!(u16, AtomicU16, 2,
__tsan_atomic16_load __tsan_atomic16_store __tsan_atomic16_compare_exchange_val
__tsan_atomic16_compare_exchange_strong __tsan_atomic16_compare_exchange_weak __tsan_atomic16_exchange
__tsan_atomic16_fetch_add __tsan_atomic16_fetch_sub __tsan_atomic16_fetch_and
__tsan_atomic16_fetch_or __tsan_atomic16_fetch_xor __tsan_atomic16_fetch_nand);
atomics!(u32, AtomicU32, 4,
__tsan_atomic32_load __tsan_atomic32_store __tsan_atomic32_compare_exchange_val
__tsan_atomic32_compare_exchange_strong __tsan_atomic32_compare_exchange_weak __tsan_atomic32_exchange
__tsan_atomic32_fetch_add __tsan_atomic32_fetch_sub __tsan_atomic32_fetch_and
__tsan_atomic32_fetch_or __tsan_atomic32_fetch_xor __tsan_atomic32_fetch_nand);
atomics!(u64, AtomicU64, 8,
__tsan_atomic64_load __tsan_atomic64_store __tsan_atomic64_compare_exchange_val
__tsan_atomic64_compare_exchange_strong __tsan_atomic64_compare_exchange_weak __tsan_atomic64_exchange
__tsan_atomic64_fetch_add __tsan_atomic64_fetch_sub __tsan_atomic64_fetch_and
__tsan_atomic64_fetch_or __tsan_atomic64_fetch_xor __tsan_atomic64_fetch_nand);

/// An atomic update of 16 bytes; the value for the locks is the lower half.
///
/// # Safety
/// `cell` is aligned to 16 and writable: the pass passes only cells that the program updates or loads
/// atomically, and its compilers align such a cell so.
unsafe fn update_128(
    cell: *mut u128,
    kind: u32,
    pc: u64,
    change: impl Fn(u128) -> Option<u128>,
) -> u128 {
    let token = begin(cell as u64, pc, kind);
    // SAFETY: the program updates this cell atomically, so it is writable and aligned. Even a load
    // takes this way, as the instruction set has no other on every processor.
    let (old, new) = unsafe {
        let mut old = compare_exchange_16(cell, 0, 0);
        loop {
            let Some(new) = change(old) else { break (old, None) };
            let found = compare_exchange_16(cell, old, new);
            if found == old {
                break (old, Some(new));
            }
            old = found;
        }
    };
    end(token, old as u64, new.unwrap_or(old) as u64, new.is_some());
    old
}

with_caller_aside!(__tsan_atomic128_load => load_128);
with_caller_aside!(__tsan_atomic128_store => store_128);
with_caller_aside!(__tsan_atomic128_compare_exchange_val => compare_128);
with_caller_aside!(__tsan_atomic128_compare_exchange_strong => compare_flag_128);
with_caller_aside!(__tsan_atomic128_compare_exchange_weak => compare_flag_128);

/// # Safety
/// As `update_128`, for `cell`.
unsafe extern "C" fn load_128(cell: *mut u128, order: i32) -> u128 {
    let kind = ordered(Operation::AtomicLoad, 16, order);
    // SAFETY: as `update_128`.
    unsafe { update_128(cell, kind, last_caller(), |_| None) }
}

/// # Safety
/// As `update_128`, for `cell`.
unsafe extern "C" fn store_128(cell: *mut u128, value: u128, order: i32) {
    let kind = ordered(Operation::AtomicStore, 16, order);
    // SAFETY: as `update_128`.
    unsafe { update_128(cell, kind, last_caller(), |_| Some(value)) };
}

/// # Safety
/// As `update_128`, for `cell`.
unsafe extern "C" fn compare_128(
    cell: *mut u128,
    expected: u128,
    value: u128,
    order: i32,
    _failure: i32,
) -> u128 {
    let kind = ordered(Operation::CompareExchange, 16, order);
    // SAFETY: as `update_128`.
    unsafe { update_128(cell, kind, last_caller(), |old| (old == expected).then_some(value)) }
}

/// # Safety
/// As `update_128`, for `cell`; `expected` is the program's own variable, readable and writable.
unsafe extern "C" fn compare_flag_128(
    cell: *mut u128,
    expected: *mut u128,
    value: u128,
    order: i32,
    failure: i32,
) -> i32 {
    // SAFETY: the program gives both; the value that was found is stored to `expected`.
    unsafe {
        let wanted = *expected;
        let found = compare_128(cell, wanted, value, order, failure);
        if found == wanted {
            1
        } else {
            *expected = found;
            0
        }
    }
}

macro_rules! updates_128 {
    ($($name:ident $target:ident $operation:ident $apply:expr),* $(,)?) => { $(
        with_caller_aside!($name => $target);
        /// # Safety
        /// As `update_128`, for `cell`.
        unsafe extern "C" fn $target(cell: *mut u128, value: u128, order: i32) -> u128 {
            let kind = ordered(Operation::$operation, 16, order);
            let apply: fn(u128, u128) -> u128 = $apply;
            // SAFETY: as `update_128`.
            unsafe { update_128(cell, kind, last_caller(), |old| Some(apply(old, value))) }
        }
    )* };
}

updates_128!(
    __tsan_atomic128_exchange exchange_128 Exchange |_, value| value,
    __tsan_atomic128_fetch_add fetch_add_128 FetchAdd u128::wrapping_add,
    __tsan_atomic128_fetch_sub fetch_sub_128 FetchAdd u128::wrapping_sub,
    __tsan_atomic128_fetch_and fetch_and_128 FetchBits |old, value| old & value,
    __tsan_atomic128_fetch_or fetch_or_128 FetchBits |old, value| old | value,
    __tsan_atomic128_fetch_xor fetch_xor_128 FetchBits |old, value| old ^ value,
    __tsan_atomic128_fetch_nand fetch_nand_128 FetchBits |old, value| !(old & value),
);
