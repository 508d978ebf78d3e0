//! The allocator's functions: the next allocator serves them, the runtime notes each block.
//!
//! # Boundary
//! Notes and charges; never switches, since the C library calls these with locks of its own held.
//!
//! # Concurrency
//! As [`crate::state`].
//!
//! # Why
//! The return addresses at the call tell the type of an allocation. A walk of the frame pointers reads them, which
//! costs a few loads. C++'s `operator new` mostly has no frame pointer, so a walk from its `malloc` missed the caller of
//! `new`. The runtime therefore calls `new` from a frame with a mark, and the walk starts again there. `operator delete`
//! needs nothing: its `free` is seen. Weakness: other code without frame pointers hides its caller, as a C++ library does
//! that is linked into the program; allocations before the program's first constructor are not known.

use crate::next::{Next, next};
use crate::objects::{FRAMES, allocated, freed};
use crate::state::{OPEN, RECORDING, enter, gate, leave, simulation};
use crate::switch::{FRAME_MARK, marked, with_frame};
use crate::threads::current;
use libc::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Memory for the look-up of the next allocator itself: from here, never freed.
const EARLY_BYTES: usize = 64 << 10;
#[repr(align(4096))]
struct Early(std::cell::UnsafeCell<[u8; EARLY_BYTES]>);
// SAFETY: pieces of it are given out once each (`early`).
unsafe impl Sync for Early {}
static EARLY: Early = Early(std::cell::UnsafeCell::new([0; EARLY_BYTES]));
static EARLY_NEXT: AtomicUsize = AtomicUsize::new(0);

fn early(bytes: usize) -> *mut c_void {
    let bytes = bytes.next_multiple_of(64);
    // ORDERING: Relaxed; each caller gets a piece of its own, and nothing is reached through the number.
    let start = EARLY_NEXT.fetch_add(bytes, Ordering::Relaxed);
    if start + bytes > EARLY_BYTES {
        return std::ptr::null_mut();
    }
    // SAFETY: within the array, which no other code refers to.
    unsafe { EARLY.0.get().cast::<u8>().add(start).cast() }
}

fn is_early(block: *mut c_void) -> bool {
    let start = EARLY.0.get() as usize;
    (start..start + EARLY_BYTES).contains(&(block as usize))
}

/// Set while the next allocator is looked up.
static LOOKING: AtomicUsize = AtomicUsize::new(0);
static MALLOC: Next = Next::new(c"malloc");
static CALLOC: Next = Next::new(c"calloc");
static FREE: Next = Next::new(c"free");

/// Looks both up before the program has a thread that could find [`LOOKING`] set by another.
pub(crate) fn prepare() {
    look_up(&MALLOC);
    look_up(&CALLOC);
}

fn look_up(next: &Next) -> Option<usize> {
    if let Some(address) = next.known() {
        return Some(address);
    }
    // ORDERING: Relaxed, all three; only one thread is there yet (`prepare`).
    if LOOKING.load(Ordering::Relaxed) != 0 {
        return None;
    }
    LOOKING.store(1, Ordering::Relaxed);
    let address = next.address();
    LOOKING.store(0, Ordering::Relaxed);
    Some(address)
}

/// # Safety
/// None of its own: `malloc` takes any size.
unsafe fn original_malloc(bytes: usize) -> *mut c_void {
    match look_up(&MALLOC) {
        None => early(bytes),
        // SAFETY: the next allocator's function.
        Some(address) => unsafe {
            std::mem::transmute::<usize, unsafe extern "C" fn(usize) -> *mut c_void>(address)(bytes)
        },
    }
}

/// # Safety
/// None of its own: `calloc` takes any sizes.
unsafe fn original_calloc(count: usize, bytes: usize) -> *mut c_void {
    match look_up(&CALLOC) {
        None => count.checked_mul(bytes).map_or(std::ptr::null_mut(), early),
        // SAFETY: the next allocator's function.
        Some(address) => unsafe {
            type Calloc = unsafe extern "C" fn(usize, usize) -> *mut c_void;
            std::mem::transmute::<usize, Calloc>(address)(count, bytes)
        },
    }
}

/// Words of the stack in which the frame of `operator new` is looked for.
const SEARCHED: u64 = 128;

/// Return addresses from `pc` on outwards, by frame pointers from `frame` on. Code that has none may have left
/// anything in the register, so only frames between this very frame and the stack's end are looked at; on
/// another stack than the thread's own, none.
fn walk(pc: u64, frame: u64, (low, high): (u64, u64)) -> [u64; FRAMES] {
    let mut frames = [0; FRAMES];
    frames[0] = pc;
    let mut known = 1;
    let here = (&raw const frame).addr() as u64;
    if !(low..high).contains(&here) {
        return frames;
    }
    let usable = |frame: u64, before: u64| {
        frame > before && frame.saturating_add(16) <= high && frame.is_multiple_of(8)
    };
    // SAFETY: the callers' addresses are aligned and between this function's frame and the end of the running thread's
    // stack, all of which is in use and so mapped and readable.
    let read = |address: u64| unsafe { *(address as *const u64) };
    let mut frame = frame;
    if !usable(frame, here) {
        // An `operator new` that keeps something else in the register: its caller's frame has the mark.
        let words = (1..SEARCHED).map(|word| (here & !7) + 8 * word);
        let mut frames = words.map(|mark| mark + 8).take_while(|frame| usable(*frame, here));
        frame = frames.find(|frame| read(frame - 8) == FRAME_MARK).unwrap_or(0);
    }
    let mut before = here;
    while known < FRAMES && usable(frame, before) {
        let (mark, next, back) = (read(frame - 8), read(frame), read(frame + 8));
        if back < 4096 {
            break;
        }
        if mark == FRAME_MARK {
            // Frames so far are of `operator new`; the caller of `new` is the site.
            frames = [0; FRAMES];
            known = 0;
        }
        frames[known] = back;
        known += 1;
        before = frame;
        frame = next;
    }
    frames
}

/// Notes an allocation. Behind the closed gate.
fn note(block: *mut c_void, bytes: usize, pc: u64, frame: u64) {
    let state = simulation();
    state.scheduler.get().advance(state.costs.allocate);
    if !block.is_null() {
        allocated(block as u64, bytes as u64, &walk(pc, frame, current().stack.get()));
    }
}

/// Notes one of a recorded run.
fn recorded(block: *mut c_void, bytes: usize, pc: u64, frame: u64) {
    if gate() == RECORDING && !block.is_null() {
        let frames = |stack| walk(pc, frame, stack);
        crate::recorded::allocated(block as u64, bytes as u64, frames);
    }
}

/// Makes an allocation and notes it.
fn noted(bytes: usize, pc: u64, frame: u64, make: impl FnOnce() -> *mut c_void) -> *mut c_void {
    if !enter() {
        let block = make();
        recorded(block, bytes, pc, frame);
        return block;
    }
    let block = make();
    note(block, bytes, pc, frame);
    leave();
    block
}

with_frame!(malloc => heap_malloc, "rsi", "rdx");
/// # Safety
/// As `malloc`; `pc` and `frame` are the caller's (`with_frame`).
unsafe extern "C" fn heap_malloc(bytes: usize, pc: u64, frame: u64) -> *mut c_void {
    // SAFETY: the program's request.
    noted(bytes, pc, frame, || unsafe { original_malloc(bytes) })
}

with_frame!(calloc => heap_calloc, "rdx", "rcx");
/// # Safety
/// As `calloc`; `pc` and `frame` are the caller's (`with_frame`).
unsafe extern "C" fn heap_calloc(count: usize, bytes: usize, pc: u64, frame: u64) -> *mut c_void {
    // SAFETY: the program's request.
    let make = || unsafe { original_calloc(count, bytes) };
    noted(count.saturating_mul(bytes), pc, frame, make)
}

with_frame!(aligned_alloc => heap_aligned_alloc, "rdx", "rcx");
/// # Safety
/// As `aligned_alloc`; `pc` and `frame` are the caller's (`with_frame`).
unsafe extern "C" fn heap_aligned_alloc(
    align: usize,
    bytes: usize,
    pc: u64,
    frame: u64,
) -> *mut c_void {
    // SAFETY: the program's request.
    noted(bytes, pc, frame, || unsafe {
        next!(c"aligned_alloc": (usize, usize) -> *mut c_void)(align, bytes)
    })
}

with_frame!(memalign => heap_memalign, "rdx", "rcx");
/// # Safety
/// As `memalign`; `pc` and `frame` are the caller's (`with_frame`).
unsafe extern "C" fn heap_memalign(align: usize, bytes: usize, pc: u64, frame: u64) -> *mut c_void {
    // SAFETY: the program's request.
    noted(bytes, pc, frame, || unsafe {
        next!(c"memalign": (usize, usize) -> *mut c_void)(align, bytes)
    })
}

with_frame!(valloc => heap_valloc, "rsi", "rdx");
/// # Safety
/// As `valloc`; `pc` and `frame` are the caller's (`with_frame`).
unsafe extern "C" fn heap_valloc(bytes: usize, pc: u64, frame: u64) -> *mut c_void {
    // SAFETY: the program's request.
    noted(bytes, pc, frame, || unsafe { next!(c"valloc": (usize) -> *mut c_void)(bytes) })
}

with_frame!(posix_memalign => heap_posix_memalign, "rcx", "r8");
/// # Safety
/// As `posix_memalign`: `result` is writable.
unsafe extern "C" fn heap_posix_memalign(
    result: *mut *mut c_void,
    align: usize,
    bytes: usize,
    pc: u64,
    frame: u64,
) -> c_int {
    let entered = enter();
    // SAFETY: the program's request; on success the result is set.
    unsafe {
        let original = next!(c"posix_memalign": (*mut *mut c_void, usize, usize) -> c_int);
        let error = original(result, align, bytes);
        if entered {
            if error == 0 {
                note(*result, bytes, pc, frame);
            }
            leave();
        } else if error == 0 {
            recorded(*result, bytes, pc, frame);
        }
        error
    }
}

with_frame!(realloc => heap_realloc, "rdx", "rcx");
/// # Safety
/// As `realloc`: `block` is null or a live block.
unsafe extern "C" fn heap_realloc(
    block: *mut c_void,
    bytes: usize,
    pc: u64,
    frame: u64,
) -> *mut c_void {
    if is_early(block) {
        // SAFETY: the program's request; the old block is readable up to the array's end.
        unsafe {
            let new = heap_malloc(bytes, pc, frame);
            let left = EARLY.0.get() as usize + EARLY_BYTES - block as usize;
            if !new.is_null() {
                libc::memcpy(new, block, bytes.min(left));
            }
            return new;
        }
    }
    let original = next!(c"realloc": (*mut c_void, usize) -> *mut c_void);
    if !enter() {
        if gate() == RECORDING && !block.is_null() {
            crate::recorded::freed(block as u64);
        }
        // SAFETY: handed on as it came.
        let new = unsafe { original(block, bytes) };
        recorded(new, bytes, pc, frame);
        return new;
    }
    // The old object ends before the allocator can give its memory to another. If there is no room it
    // lives on unnoted.
    if !block.is_null() {
        freed(block as u64);
    }
    // SAFETY: the program's request.
    let new = unsafe { original(block, bytes) };
    note(new, bytes, pc, frame);
    leave();
    new
}

with_frame!(reallocarray => heap_reallocarray, "rcx", "r8");
/// # Safety
/// As `reallocarray`: `block` is null or a live block.
unsafe extern "C" fn heap_reallocarray(
    block: *mut c_void,
    count: usize,
    bytes: usize,
    pc: u64,
    frame: u64,
) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the program's request.
        Some(bytes) => unsafe { heap_realloc(block, bytes, pc, frame) },
        None => {
            // SAFETY: the running thread's own error number.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            std::ptr::null_mut()
        }
    }
}

/// The address of the next `operator new`, or `instead` where there is none. A library that the program loaded for itself
/// alone may call `new`: then the C++ library is not among the libraries that follow this one.
fn find_new(next: &Next, instead: usize) -> usize {
    if next.known().is_none() {
        // After a failed look-up the C library calls `free`, which must not start another look-up then.
        FREE.address();
    }
    if next.address() == 0 {
        [c"libstdc++.so.6", c"libc++abi.so.1"].iter().for_each(|library| next.look_in(library));
    }
    next.known().unwrap_or(instead)
}

extern "C" fn look_new(next: &Next) -> usize {
    find_new(next, libc::malloc as *const () as usize)
}

extern "C" fn look_aligned_new(next: &Next) -> usize {
    find_new(next, aligned_new as *const () as usize)
}

/// # Safety
/// None of its own: `aligned_alloc` takes any sizes.
unsafe extern "C" fn aligned_new(bytes: usize, align: usize) -> *mut c_void {
    // SAFETY: the program's request.
    unsafe { libc::aligned_alloc(align, bytes) }
}

marked!(_Znwm => look_new, c"_Znwm");
marked!(_Znam => look_new, c"_Znam");
marked!(_ZnwmRKSt9nothrow_t => look_new, c"_ZnwmRKSt9nothrow_t");
marked!(_ZnamRKSt9nothrow_t => look_new, c"_ZnamRKSt9nothrow_t");
marked!(_ZnwmSt11align_val_t => look_aligned_new, c"_ZnwmSt11align_val_t");
marked!(_ZnamSt11align_val_t => look_aligned_new, c"_ZnamSt11align_val_t");
marked!(_ZnwmSt11align_val_tRKSt9nothrow_t => look_aligned_new, c"_ZnwmSt11align_val_tRKSt9nothrow_t");
marked!(_ZnamSt11align_val_tRKSt9nothrow_t => look_aligned_new, c"_ZnamSt11align_val_tRKSt9nothrow_t");

/// Interposed.
///
/// # Safety
/// `block` is null or a live block, and the program is done with it.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn free(block: *mut c_void) {
    if block.is_null() || is_early(block) {
        return;
    }
    let address = FREE.address();
    // SAFETY: the next allocator's function.
    let original =
        unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void)>(address) };
    if gate() == OPEN && enter() {
        let state = simulation();
        state.scheduler.get().advance(state.costs.allocate);
        freed(block as u64);
        // SAFETY: the program gives it back.
        unsafe { original(block) };
        leave();
        return;
    }
    if gate() == RECORDING {
        crate::recorded::freed(block as u64);
    }
    // SAFETY: handed on as it came.
    unsafe { original(block) };
}
