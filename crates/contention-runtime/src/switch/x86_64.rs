//! Contexts on x86-64 Linux.
//!
//! # Boundary
//! As [`super`] says; all of the crate's assembly is here.
//!
//! # Concurrency
//! The protocol of [`super`] (S1 to S5).
//!
//! # Why
//! `wrfsbase` sets the thread base without a system call; kernels before 5.9 forbid it, and the kernel says
//! so in `AT_HWCAP2`, so there is `arch_prctl` too. Weakness: shadow stacks are not switched; glibc turns
//! them on only where asked to.

use std::arch::{asm, naked_asm};
use std::sync::atomic::{AtomicBool, Ordering};

/// The saved part of a context that does not run. The assembly below knows the order of its fields.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Context {
    stack: usize,
    base: usize,
}

impl Context {
    /// The context of the calling thread: the base is set, and the first switch away sets the stack.
    pub(crate) fn here() -> Self {
        Self { stack: 0, base: thread_base() }
    }
}

/// Whether `wrfsbase` may be used.
static FAST: AtomicBool = AtomicBool::new(false);

/// Finds out how the thread base is set.
pub(crate) fn prepare() {
    const HWCAP2_FSGSBASE: u64 = 2;
    // SAFETY: getauxval only reads the kernel's auxiliary vector of the process.
    let fast = unsafe { libc::getauxval(libc::AT_HWCAP2) } & HWCAP2_FSGSBASE != 0;
    // ORDERING: Relaxed; written once, before the first switch, by the thread that switches.
    FAST.store(fast, Ordering::Relaxed);
}

/// The running thread's base: glibc keeps the base itself in its first word.
#[inline]
pub(crate) fn thread_base() -> usize {
    let base: usize;
    // SAFETY: on x86-64 the first word of a thread's control block is its own address (the ELF
    // thread-local storage ABI, variant two).
    unsafe { asm!("mov {}, fs:[0]", out(reg) base, options(nostack, preserves_flags, readonly)) };
    base
}

/// Keeps the caller's context in `from` and continues as `to`.
///
/// # Safety
/// The caller is the master (S1), `to` is a context that `switch` or `park` kept, and both live.
pub(crate) unsafe fn switch(from: *mut Context, to: *const Context) {
    // ORDERING: Relaxed; see `prepare`.
    if FAST.load(Ordering::Relaxed) {
        // SAFETY: by this function's own contract; the kernel allows `wrfsbase` (`prepare`).
        unsafe { switch_fast(from, to) };
    } else {
        // SAFETY: by this function's own contract, without that instruction.
        unsafe { switch_slow(from, to) };
    }
}

/// # Safety
/// As [`switch`]; the kernel allows `wrfsbase`. The registers that the convention has a callee keep, and the two control
/// words, are on the stack while the context does not run (S3); the base belongs to it (S4).
#[unsafe(naked)]
unsafe extern "C" fn switch_fast(_from: *mut Context, _to: *const Context) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "mov rax, [rsi + 8]",
        "wrfsbase rax",
        "mov rsp, [rsi]",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// # Safety
/// As [`switch`]. As `switch_fast`, with a system call in place of `wrfsbase`.
#[unsafe(naked)]
unsafe extern "C" fn switch_slow(_from: *mut Context, _to: *const Context) {
    // arch_prctl is 158, ARCH_SET_FS is 0x1002; a system call keeps all but rax, rcx and r11.
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "mov rbx, rsi",
        "mov eax, 158",
        "mov edi, 0x1002",
        "mov rsi, [rbx + 8]",
        "syscall",
        "mov rsp, [rbx]",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Keeps the caller's context in `context`, calls `wait(argument)` on the stack that ends at `side`, and
/// when that returns continues as the context is then.
///
/// # Safety
/// `side` is the end of a stack of the caller's own, aligned to 16; `wait` returns only when the master has
/// switched away from the context for the last time (S1), and touches only its stack (S2).
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn park(
    _context: *mut Context,
    _side: usize,
    _wait: unsafe extern "C" fn(usize),
    _argument: usize,
) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "sub rsp, 8",
        "stmxcsr [rsp]",
        "fnstcw [rsp + 4]",
        "mov [rdi], rsp",
        "mov rbx, rdi",
        "mov rsp, rsi",
        "mov rdi, rcx",
        "call rdx",
        "mov rsp, [rbx]",
        "ldmxcsr [rsp]",
        "fldcw [rsp + 4]",
        "add rsp, 8",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// glibc's record of a `pthread_cleanup_push`: a jump buffer and four words, with room to spare.
#[repr(C, align(16))]
#[derive(Debug)]
pub(crate) struct CleanupBuffer([u64; 32]);

impl CleanupBuffer {
    pub(crate) const fn new() -> Self {
        Self([0; 32])
    }
}

/// Calls `start(argument)` and stores its result in `result`. Returns 0 when it returned, 1 when
/// `pthread_exit` left it: glibc unwinds to the innermost cleanup buffer, which is `buffer`, and jumps.
///
/// # Safety
/// `start` is the start routine of the running thread (S4); `buffer` lives until the return.
#[unsafe(naked)]
pub(crate) unsafe extern "C-unwind" fn call_caught(
    _buffer: *mut CleanupBuffer,
    _start: unsafe extern "C-unwind" fn(*mut libc::c_void) -> *mut libc::c_void,
    _argument: *mut libc::c_void,
    _result: *mut *mut libc::c_void,
) -> u32 {
    naked_asm!(
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "mov rbx, rdi",
        "mov r12, rsi",
        "mov r13, rdx",
        "mov r14, rcx",
        "xor esi, esi",
        "call [rip + __sigsetjmp@GOTPCREL]",
        "test eax, eax",
        "jne 2f",
        "mov rdi, rbx",
        "call [rip + __pthread_register_cancel@GOTPCREL]",
        "mov rdi, r13",
        "call r12",
        "mov [r14], rax",
        "mov rdi, rbx",
        "call [rip + __pthread_unregister_cancel@GOTPCREL]",
        "xor eax, eax",
        "jmp 3f",
        "2:",
        "mov rdi, rbx",
        "call [rip + __pthread_unregister_cancel@GOTPCREL]",
        "mov eax, 1",
        "3:",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// A system call that no library sees. Returns a negated error number when it fails.
///
/// # Safety
/// As the call.
pub(crate) unsafe fn system_call(number: i64, arguments: [usize; 6]) -> i64 {
    let [a, b, c, d, e, f] = arguments;
    let result: i64;
    // SAFETY: the kernel's convention; the effect of the call itself is by this function's own contract.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    result
}

/// The instruction that a signal interrupted.
///
/// # Safety
/// `context` is the third argument of the kernel's call of a handler.
pub(crate) unsafe fn interrupted_at(context: *mut libc::c_void) -> u64 {
    // SAFETY: by this function's own contract.
    unsafe {
        (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as u64
    }
}

/// Has the kernel refuse the calling thread the processor's counter, or allow it again; false: it cannot. The
/// kernel's `PR_SET_TSC`: a refused read is a SIGSEGV. A child, and a program that takes this one's place,
/// inherit it.
pub(crate) fn refuse_counter(refuse: bool) -> bool {
    let how = if refuse { libc::PR_TSC_SIGSEGV } else { libc::PR_TSC_ENABLE };
    // SAFETY: sets a flag of the thread.
    unsafe {
        system_call(libc::SYS_prctl, [libc::PR_SET_TSC as usize, how as usize, 0, 0, 0, 0]) == 0
    }
}

/// The processor's counter.
pub(crate) fn counter() -> u64 {
    // SAFETY: reads a register; the caller was not refused it.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Length of the instruction that a SIGSEGV interrupted, if it reads the processor's counter.
///
/// # Safety
/// `context` is the third argument of the kernel's call of a handler of SIGSEGV.
pub(crate) unsafe fn counter_read(context: *mut libc::c_void) -> Option<u64> {
    const GENERAL_PROTECTION: i64 = 13;
    // SAFETY: by this function's own contract; that fault comes from an instruction that was fetched, so its
    // bytes are readable: two at least, and a third where the first two begin one of three.
    unsafe {
        let registers = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        if registers[libc::REG_TRAPNO as usize] != GENERAL_PROTECTION {
            return None;
        }
        let at = registers[libc::REG_RIP as usize] as *const u8;
        match (*at, *at.add(1)) {
            (0x0f, 0x31) => Some(2),                       // rdtsc
            (0x0f, 0x01) if *at.add(2) == 0xf9 => Some(3), // rdtscp
            _ => None,
        }
    }
}

/// Lets the interrupted code go on after that instruction, as if it had read `value` on this core and node.
///
/// # Safety
/// As [`counter_read`], which said that it has `bytes`.
pub(crate) unsafe fn answer_counter(
    context: *mut libc::c_void,
    bytes: u64,
    value: u64,
    (core, node): (u32, u32),
) {
    // SAFETY: by this function's own contract; the kernel loads these registers when the handler returns.
    unsafe {
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        registers[libc::REG_RAX as usize] = (value & 0xffff_ffff) as i64;
        registers[libc::REG_RDX as usize] = (value >> 32) as i64;
        if bytes == 3 {
            // As Linux sets it up for its own use: the node above the core's twelve bits.
            registers[libc::REG_RCX as usize] = i64::from(node << 12 | core & 0xfff);
        }
        registers[libc::REG_RIP as usize] += bytes as i64;
    }
}

/// `if *cell == old { *cell = new }`, atomically on 16 bytes; returns the value before.
///
/// # Safety
/// `cell` is writable and aligned to 16.
pub(crate) unsafe fn compare_exchange_16(cell: *mut u128, old: u128, new: u128) -> u128 {
    let (mut low, mut high) = (old as u64, (old >> 64) as u64);
    // SAFETY: by this function's own contract; every x86-64 processor of this century has the
    // instruction. It wants rbx, which is the compiler's, so that is put back.
    unsafe {
        asm!(
            "xchg rsi, rbx",
            "lock cmpxchg16b [rdi]",
            "mov rbx, rsi",
            in("rdi") cell,
            inout("rsi") new as u64 => _,
            inout("rax") low,
            inout("rdx") high,
            in("rcx") (new >> 64) as u64,
            options(nostack)
        );
    }
    u128::from(low) | u128::from(high) << 64
}

/// An exported function that continues in `$target` with its own return address in the named argument
/// register, and, where given, a constant in another.
macro_rules! with_caller {
    ($name:ident => $target:path, $register:literal) => {
        // The linker makes `__wrap___memcpy_chk` of the C library's name.
        #[allow(non_snake_case)]
        // SAFETY: the name and the type are E1's, the code keeps to E2; `$target` has the arguments of the
        // original and then, in registers that those leave free, the ones that are set here.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[doc(hidden)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                concat!("mov ", $register, ", [rsp]"), "jmp {target}",
                target = sym $target
            )
        }
    };
    ($name:ident => $target:path, $register:literal, $second:literal = $value:expr) => {
        // SAFETY: the name and the type are E1's, the code keeps to E2; `$target` has the arguments of the
        // original and then, in registers that those leave free, the ones that are set here.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[doc(hidden)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                concat!("mov ", $register, ", [rsp]"), concat!("mov ", $second, ", {value}"),
                "jmp {target}",
                target = sym $target, value = const $value
            )
        }
    };
}

/// Defines an entry that also passes the caller's frame pointer, for walking the frames.
macro_rules! with_frame {
    ($name:ident => $target:path, $register:literal, $frame:literal) => {
        // SAFETY: as in `with_caller` (E1, E2).
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[doc(hidden)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                concat!("mov ", $register, ", [rsp]"), concat!("mov ", $frame, ", rbp"),
                "jmp {target}",
                target = sym $target
            )
        }
    };
}

/// Defines an entry that also passes the place of the stack: the address of its return address.
macro_rules! with_stack {
    ($name:ident => $target:path, $register:literal) => {
        // SAFETY: as in `with_caller` (E1, E2).
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[doc(hidden)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                concat!("mov ", $register, ", rsp"), "jmp {target}",
                target = sym $target
            )
        }
    };
}

/// An exported function that calls `$target` with its arguments and continues, with the same arguments, in the
/// function that `$target` returned. It then has no frame: an unwinder does not meet this
/// library.
macro_rules! prepared {
    ($name:ident => $target:path) => {
        // SAFETY: the name and the type are E1's. Six pushes and eight bytes more, with the return address, make
        // 64: the call is aligned (E2). The arguments, those on the stack too, are as they came at the jump.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[doc(hidden)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "sub rsp, 8",
                "call {target}",
                "add rsp, 8", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp rax",
                target = sym $target
            )
        }
    };
}

/// An exported function that continues in `$target` while the gate is open, with its return address in
/// `$register` where one is named. Otherwise it continues, without a frame of its own, in the next function of its name:
/// a thread that is cancelled there is unwound, and must not meet this library's frames.
macro_rules! passing {
    ($name:ident => $target:path, $next:expr $(, $register:literal)?) => {
        const _: () = {
            static NEXT: $crate::next::Next = $next;
            // SAFETY: as in `with_caller` while the gate is open, else as in `prepared` (E1, E2).
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            #[doc(hidden)]
            unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    "cmp dword ptr [rip + {gate}], {open}",
                    "jne 2f",
                    $( concat!("mov ", $register, ", [rsp]"), )?
                    "jmp {target}",
                    "2:",
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9",
                    "sub rsp, 8",
                    "lea rdi, [rip + {next}]",
                    "call {look}",
                    "add rsp, 8",
                    "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    "jmp rax",
                    gate = sym $crate::state::GATE,
                    open = const $crate::state::OPEN,
                    target = sym $target,
                    next = sym NEXT,
                    look = sym $crate::next::look
                )
            }
        };
    };
}

/// See [`marked`]: a word that no program has on its stack by chance.
pub(crate) const FRAME_MARK: u64 = 0x6f70_6572_e77a_9d15;

/// An exported function that calls the next function of its name from a frame that has [`FRAME_MARK`] below its frame
/// pointer. A walk of the frames so knows where the program called the function. An exception passes the frame.
macro_rules! marked {
    ($name:ident => $look:path, $next:expr) => {
        const _: () = {
            static NEXT: $crate::next::Next = $crate::next::Next::new($next);
            // The name is C++'s.
            #[allow(non_snake_case)]
            // SAFETY: the name and the type are E1's. The return address and five pushes make 48, so both calls are
            // aligned (E2). The three arguments are on the stack during the first call and as they came at the second.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            #[unsafe(naked)]
            #[doc(hidden)]
            unsafe extern "C" fn $name() {
                std::arch::naked_asm!(
                    ".cfi_startproc",
                    "push rbp", ".cfi_def_cfa_offset 16", ".cfi_offset rbp, -16",
                    "mov rbp, rsp", ".cfi_def_cfa_register rbp",
                    "movabs rax, {mark}",
                    "push rax", "push rdi", "push rsi", "push rdx",
                    "lea rdi, [rip + {next}]",
                    "call {look}",
                    "mov rdi, [rbp - 16]", "mov rsi, [rbp - 24]", "mov rdx, [rbp - 32]",
                    "call rax",
                    "leave", ".cfi_def_cfa rsp, 8",
                    "ret",
                    ".cfi_endproc",
                    mark = const $crate::switch::FRAME_MARK,
                    next = sym NEXT,
                    look = sym $look
                )
            }
        };
    };
}

/// The program's start, which the C library's start code calls with seven arguments and which never
/// returns: aligns the stack to a page, calls `$target`, continues in its result. The lines of the program's
/// variables then do not depend on the stack's place, which the kernel chooses.
macro_rules! started {
    ($name:ident => $target:path) => {
        // SAFETY: the name and the type are E1's. The function never returns and so need not keep anything;
        // both calls are aligned (E2), and the seventh argument lies where the callee looks for it. Nothing
        // below the old stack pointer is in use.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[doc(hidden)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "mov rbx, rdi", "mov rbp, rsi", "mov r12, rdx", "mov r13, rcx", "mov r14, r8",
                "mov r15, r9", "mov rax, [rsp + 8]",
                "and rsp, -4096", "sub rsp, 16", "mov [rsp], rax",
                "call {target}",
                "mov rdi, rbx", "mov rsi, rbp", "mov rdx, r12", "mov rcx, r13", "mov r8, r14",
                "mov r9, r15", "xor ebp, ebp",
                "call rax", "ud2",
                target = sym $target
            )
        }
    };
}

/// Defines an entry that leaves the return address where [`last_caller`] finds it: all argument registers are taken.
macro_rules! with_caller_aside {
    ($name:ident => $target:path) => {
        // SAFETY: as in `with_caller` (E1, E2), with `rax` and a word of our own in place of a register; the
        // word is aligned, so one store writes it whole.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        #[unsafe(naked)]
        #[doc(hidden)]
        unsafe extern "C" fn $name() {
            std::arch::naked_asm!(
                "mov rax, [rsp]", "mov [rip + {aside}], rax", "jmp {target}",
                target = sym $target, aside = sym $crate::switch::CALLER
            )
        }
    };
}

pub(crate) use {
    marked, passing, prepared, started, with_caller, with_caller_aside, with_frame, with_stack,
};

/// See [`last_caller`].
pub(crate) static CALLER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

/// The return address that the last entry of `with_caller_aside` left.
pub(crate) fn last_caller() -> u64 {
    // ORDERING: Relaxed; of the same thread in a simulated run, and only a label in a recorded one.
    CALLER.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, AtomicUsize};
    use std::sync::mpsc;

    struct Shared {
        master: Context,
        parked: Context,
        ready: mpsc::Sender<()>,
        wake: mpsc::Receiver<()>,
        steps: AtomicU64,
        /// Value of the thread's own variable, seen by the thread that runs on its stack.
        variable: AtomicUsize,
    }

    /// # Safety
    /// `shared` is the address of a [`Shared`] that lives until the return.
    unsafe extern "C" fn wait(shared: usize) {
        // SAFETY: the test below keeps it until the thread is joined.
        let shared = unsafe { &*(shared as *const Shared) };
        shared.ready.send(()).unwrap();
        shared.wake.recv().unwrap();
    }

    /// Runs on the parked thread's stack, by the master's hand, between two switches.
    fn as_the_thread(shared: *mut Shared) {
        // SAFETY: as in `wait`; the two contexts are used by the protocol's rules.
        unsafe {
            for step in 0..1000_u64 {
                let float = step as f64 * 0.5;
                (*shared).steps.fetch_add(step, Ordering::Relaxed);
                (*shared).variable.store(thread_base(), Ordering::Relaxed);
                switch(&mut (*shared).parked, &(*shared).master);
                assert_eq!(float * 2.0, step as f64);
            }
            // Away for the last time: the thread itself continues from here.
            switch(&mut (*shared).parked, &(*shared).master);
        }
    }

    #[test]
    fn a_parked_thread_is_run_by_another_and_ends_itself() {
        prepare();
        for fast in [FAST.load(Ordering::Relaxed), false] {
            FAST.store(fast, Ordering::Relaxed);
            let (ready, is_ready) = mpsc::channel();
            let (waker, wake) = mpsc::channel();
            let mut shared = Box::new(Shared {
                master: Context::here(),
                parked: Context::default(),
                ready,
                wake,
                steps: AtomicU64::new(0),
                variable: AtomicUsize::new(0),
            });
            let address = &raw mut *shared as usize;
            let thread = std::thread::spawn(move || {
                let shared = address as *mut Shared;
                let own = thread_base();
                let mut side = vec![0_u8; 256 << 10];
                let end = (side.as_mut_ptr() as usize + side.len()) & !15;
                // SAFETY: the side stack is the thread's own; the master takes over when it is ready.
                unsafe {
                    (*shared).parked = Context::here();
                    park(&mut (*shared).parked, end, wait, shared as usize);
                }
                as_the_thread(shared);
                own
            });
            is_ready.recv().unwrap();
            let own = thread_base();
            for _ in 0..=1000 {
                // SAFETY: the thread has parked (S1), and this is the only other one.
                unsafe { switch(&mut shared.master, &shared.parked) };
                assert_eq!(thread_base(), own, "the master has its own base again");
            }
            waker.send(()).unwrap();
            let threads = thread.join().unwrap();
            assert_eq!(shared.steps.load(Ordering::Relaxed), 499_500);
            assert_eq!(shared.variable.load(Ordering::Relaxed), threads);
            assert_ne!(threads, own);
        }
    }

    #[test]
    fn control_words_belong_to_the_context() {
        // Round towards zero on one side must not reach the other: `switch` keeps both words.
        let mut here = Context::here();
        let mut word = 0_u32;
        // SAFETY: stores the control word; a switch from a context to itself keeps and restores it.
        unsafe {
            asm!("stmxcsr [{}]", in(reg) &mut word);
            let pointer = &raw mut here;
            let before = word;
            let toward_zero = before | 0x6000;
            asm!("ldmxcsr [{}]", in(reg) &toward_zero);
            switch(pointer, pointer);
            asm!("stmxcsr [{}]", in(reg) &mut word);
            asm!("ldmxcsr [{}]", in(reg) &before);
        }
        assert_eq!(word & 0x6000, 0x6000);
    }

    #[test]
    fn sixteen_bytes_are_exchanged_only_if_they_are_as_expected() {
        let mut cell = (7_u128 << 64) | 9;
        // SAFETY: a `u128` is aligned to 16.
        unsafe {
            assert_eq!(compare_exchange_16(&mut cell, 9, 1), (7 << 64) | 9);
            assert_eq!(compare_exchange_16(&mut cell, (7 << 64) | 9, 3 << 64), (7 << 64) | 9);
        }
        assert_eq!(cell, 3 << 64);
    }
}
