//! The functions that this library stands before: the next definition of each name.
//!
//! # Boundary
//! Look-up only.
//!
//! # Concurrency
//! The first thread that needs a pointer looks it up. Two threads may do so at once; both find the same address.
//!
//! # Why
//! `dlsym(RTLD_NEXT)` finds the C library, or another library that was preloaded after this one, such as
//! an allocator. Weakness: functions that an executable defines itself precede this library and are not seen.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One name, looked up on first use.
pub(crate) struct Next {
    name: &'static CStr,
    version: Option<&'static CStr>,
    found: AtomicUsize,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, version: None, found: AtomicUsize::new(0) }
    }

    /// The newer function of a name that the C library has in two versions.
    pub(crate) const fn versioned(name: &'static CStr, version: &'static CStr) -> Self {
        Self { name, version: Some(version), found: AtomicUsize::new(0) }
    }

    /// Address of the function, if it was looked up before.
    #[inline]
    pub(crate) fn known(&self) -> Option<usize> {
        // ORDERING: Relaxed; the function was there before the process was.
        Some(self.found.load(Ordering::Relaxed)).filter(|found| *found != 0)
    }

    /// Address of the function; zero when there is none.
    #[inline]
    pub(crate) fn address(&self) -> usize {
        // ORDERING: Relaxed; the function was there before the process was.
        let found = self.found.load(Ordering::Relaxed);
        if found != 0 { found } else { self.look_up() }
    }

    #[cold]
    fn look_up(&self) -> usize {
        // SAFETY: both strings end in zero.
        let mut found = unsafe {
            match self.version {
                Some(version) => {
                    libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), version.as_ptr())
                }
                None => std::ptr::null_mut(),
            }
        } as usize;
        if found == 0 {
            // SAFETY: the string ends in zero.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        }
        // ORDERING: Relaxed; the function was there before the process was.
        self.found.store(found, Ordering::Relaxed);
        found
    }

    /// Looks the name up in a library that is loaded already, if it is not known.
    #[cold]
    pub(crate) fn look_in(&self, library: &CStr) {
        if self.known().is_some() {
            return;
        }
        // SAFETY: both strings end in zero. The library stays open, since the address is kept.
        let found = unsafe {
            let handle = libc::dlopen(library.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD);
            if handle.is_null() {
                return;
            }
            libc::dlsym(handle, self.name.as_ptr()) as usize
        };
        // ORDERING: Relaxed; the function was there before the process was.
        self.found.store(found, Ordering::Relaxed);
    }
}

/// The address of the next function, for entry points in assembly.
pub(crate) extern "C" fn look(next: &Next) -> usize {
    let address = next.address();
    if address == 0 {
        missing(next.name);
    }
    address
}

/// Calls the next function of a name: `next!(c"close": (i32) -> i32)(descriptor)`.
macro_rules! next {
    ($name:literal : ($($argument:ty),* $(,)?) $(-> $result:ty)?) => {
        next!(@ $crate::next::Next::new($name), $name, ($($argument),*) $(-> $result)?)
    };
    ($name:literal @ $version:literal : ($($argument:ty),* $(,)?) $(-> $result:ty)?) => {
        next!(@ $crate::next::Next::versioned($name, $version), $name, ($($argument),*) $(-> $result)?)
    };
    (@ $make:expr, $name:literal, ($($argument:ty),* $(,)?) $(-> $result:ty)?) => {{
        static NEXT: $crate::next::Next = $make;
        let address = NEXT.address();
        if address == 0 {
            $crate::next::missing($name);
        }
        // SAFETY: a call of it is as safe as the C library says of this name; the call site argues it.
        type Function = unsafe extern "C-unwind" fn($($argument),*) $(-> $result)?;
        #[allow(unused_unsafe)] // The call site often stands in an unsafe block of its own.
        // SAFETY: it is the C library's function of this name, with the type that the call site states.
        let function = unsafe { std::mem::transmute::<usize, Function>(address) };
        function
    }};
}
pub(crate) use next;

/// Ends the process: the program calls a function that the C library does not have.
#[cold]
pub(crate) fn missing(name: &CStr) -> ! {
    crate::message(&format!("the C library has no `{}`", name.to_string_lossy()));
    // SAFETY: ends the process.
    unsafe { crate::switch::system_call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
    unreachable!("the process has ended")
}
