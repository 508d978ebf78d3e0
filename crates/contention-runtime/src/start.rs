//! The beginning of a run: configuration, environment, and the program's own start.
//!
//! # Boundary
//! From the loader's call of this library's constructor to the program's first instruction.
//!
//! # Concurrency
//! One thread: the program's first, before it has made any other.
//!
//! # Why
//! The simulation begins where the C library starts the program, on a stack that is aligned to a page, so
//! that the program's variables lie in lines the same way wherever the kernel put the stack. Weakness:
//! constructors of libraries run before, unseen.

use crate::exclusive::Exclusive;
use crate::locking::Locking;
use crate::samples::Samples;
use crate::sites::Sites;
use crate::state::{Costs, OPEN, RECORDING, Simulation, exists, install, set_gate, simulation};
use crate::switch::system_call;
use crate::threads::Thread;
use libc::{c_char, c_int};
use std::cell::Cell;
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use uvfs_coherence::configuration::{Configuration, VARIABLE};
use uvfs_coherence::machine::Parameter;
use uvfs_coherence::profile::Mode;
use uvfs_coherence::{Model, Scheduler, TICKS_PER_CYCLE};

#[cfg(not(test))]
#[used]
// SAFETY: an entry of that section is a function that the loader calls with the process's arguments, and
// the static is one such pointer.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = constructor;

/// Takes a variable out of the environment; its value.
///
/// # Safety
/// `environment` is an array of strings that ends in null, and no other thread reads it now.
unsafe fn take_variable(environment: *mut *mut c_char, name: &str) -> Option<Vec<u8>> {
    let mut at = environment;
    // SAFETY: by this function's own contract; the walk ends at the null.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            let value =
                entry.strip_prefix(name.as_bytes()).and_then(|rest| rest.strip_prefix(b"="));
            if let Some(value) = value.map(<[u8]>::to_vec) {
                let mut hole = at;
                while !(*hole).is_null() {
                    *hole = *hole.add(1);
                    hole = hole.add(1);
                }
                return Some(value);
            }
            at = at.add(1);
        }
    }
    None
}

/// Whether a variable is set.
///
/// # Safety
/// As [`take_variable`].
unsafe fn has_variable(environment: *mut *mut c_char, name: &str) -> bool {
    let mut at = environment;
    // SAFETY: by this function's own contract; the walk ends at the null.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry = CStr::from_ptr(*at).to_bytes();
            if entry.strip_prefix(name.as_bytes()).is_some_and(|rest| rest.starts_with(b"=")) {
                return true;
            }
            at = at.add(1);
        }
    }
    false
}

/// Starts the process again without randomised addresses, if they are randomised: programs that hash addresses, as
/// parking_lot does with its locks', would otherwise differ from run to run. Where the kernel or a sandbox
/// forbids it, the run continues with them. Children get randomised addresses again.
///
/// # Safety
/// As [`take_variable`], and `arguments` likewise.
unsafe fn without_randomised_addresses(arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    const MARK: &str = "UVFS_CONTENTION_PERSONALITY";
    const ASK: usize = 0xffff_ffff;
    let personality = |value: usize| {
        // SAFETY: asks for or sets a number of the process.
        unsafe { system_call(libc::SYS_personality, [value, 0, 0, 0, 0, 0]) }
    };
    // SAFETY: by this function's own contract.
    let mark = unsafe { take_variable(environment, MARK) };
    if let Some(before) = mark.and_then(|text| String::from_utf8(text).ok()?.parse().ok()) {
        personality(before);
        return;
    }
    let before = personality(ASK);
    let fixed = libc::ADDR_NO_RANDOMIZE as usize;
    if before < 0 || before as usize & fixed != 0 || personality(before as usize | fixed) < 0 {
        return;
    }
    let Ok(mark) = std::ffi::CString::new(format!("{MARK}={before}")) else { return };
    // SAFETY: the environment is copied with one entry more; the path is the kernel's.
    unsafe {
        let mut copy = vec![mark.as_ptr().cast_mut()];
        let mut at = environment;
        while !(*at).is_null() {
            copy.push(*at);
            at = at.add(1);
        }
        copy.push(std::ptr::null_mut());
        let path = libc::getauxval(libc::AT_EXECFN) as usize;
        let exec = [path, arguments as usize, copy.as_ptr() as usize, 0, 0, 0];
        system_call(libc::SYS_execve, exec);
    }
    personality(before as usize);
}

/// Called by the loader.
extern "C" fn constructor(_: c_int, arguments: *mut *mut c_char, environment: *mut *mut c_char) {
    crate::heap::prepare();
    // SAFETY: the loader passes the process's arguments and environment, before any other thread is there.
    unsafe {
        if has_variable(environment, VARIABLE) {
            without_randomised_addresses(arguments, environment);
        }
    }
    // SAFETY: the loader passes the process's environment, before any other thread is there.
    let configured = unsafe { take_variable(environment, VARIABLE) };
    let Some(path) = configured else { return };
    // SAFETY: the environment is this thread's alone. No child is to be simulated, nor any program that it becomes.
    unsafe { take_variable(environment, "LD_PRELOAD") };
    crate::switch::prepare();
    let path = std::path::Path::new(OsStr::from_bytes(&path));
    match read_configuration(path) {
        Ok(configuration) => begin(configuration),
        Err(reason) => {
            crate::message(&format!(
                "{}: {reason}: the program would run without being simulated; start it with `uvfs contention run`",
                path.display()
            ));
            crate::process::leave_now(72);
        }
    }
}

fn read_configuration(path: &std::path::Path) -> Result<Configuration, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot be read: {error}"))?;
    let configuration: Configuration =
        serde_json::from_str(&text).map_err(|error| format!("is no configuration: {error}"))?;
    configuration.machine.validate().map_err(|error| error.to_string())?;
    if configuration.mode == Mode::Imported {
        return Err("a run cannot be imported".to_string());
    }
    Ok(configuration)
}

fn ticks(parameter: Parameter) -> u64 {
    (parameter.value * TICKS_PER_CYCLE as f64).round() as u64
}

// SAFETY: glibc exports this variable, of this type, for the use of such libraries.
unsafe extern "C" {
    /// The C library's: where the kernel put the first thread's stack.
    static __libc_stack_end: *mut libc::c_void;
}

fn begin(configuration: Configuration) {
    let machine = &configuration.machine;
    let cost = &machine.cost;
    let mut compute = crate::compute::Compute::new(machine);
    let computes =
        configuration.compute && configuration.mode == Mode::Simulated && compute.has_code();
    let costs = Costs {
        compute: if computes { 0 } else { ticks(cost.compute) },
        call: if computes { 0 } else { ticks(cost.call) },
        plain: if computes { 0 } else { ticks(cost.compute) + ticks(machine.latency.hit) },
        pause: ticks(cost.pause),
        futex_wait: ticks(cost.futex_wait),
        futex_wake: ticks(cost.futex_wake),
        wake_latency: ticks(cost.wake_latency),
        thread_create: ticks(cost.thread_create),
        thread_start: ticks(cost.thread_start),
        yield_now: ticks(cost.yield_now),
        read_clock: ticks(cost.read_clock),
        allocate: ticks(cost.allocate),
        system_call: ticks(cost.system_call),
    };
    // SAFETY: set by the loader before any constructor.
    let top = unsafe { __libc_stack_end } as u64;
    // As all threads, it lives to the end of the process.
    let first: &'static Thread = Box::leak(Box::new(Thread::first(top)));
    let (handle, seed) = (first.handle.get(), configuration.seed);
    // The number of the allocator's arenas must not depend on the host's cores.
    const M_ARENA_MAX: c_int = -8;
    // SAFETY: sets a number of the C library's allocator.
    unsafe { libc::mallopt(M_ARENA_MAX, 8 * machine.cores.min(128) as c_int) };
    install(Simulation {
        slack: configuration.slack * TICKS_PER_CYCLE,
        line_mask: machine.line_bytes - 1,
        computes,
        compute: Exclusive::new(compute),
        scheduler: Exclusive::new(Scheduler::new(machine)),
        model: Exclusive::new(Model::new(machine, seed)),
        locking: Exclusive::new(Locking::new()),
        sites: Exclusive::new(Sites::new()),
        samples: Exclusive::new(Samples::new(machine.line_bytes, machine.cores)),
        objects: Exclusive::default(),
        threads: Exclusive::new(vec![first]),
        alive: Cell::new(0),
        current: Cell::new(first),
        ended: Cell::new(None),
        modules: Exclusive::default(),
        waiting: Exclusive::default(),
        kept: Exclusive::default(),
        attribute_masks: Exclusive::default(),
        random: Cell::new(seed),
        process: crate::process::number(),
        work: Cell::new(0),
        parallel_from: Cell::new(None),
        parallel_to: Cell::new(0),
        host_start: crate::time::host_now(),
        costs,
        configuration,
    });
    let state = simulation();
    state.objects.get().handles.insert(handle, 0);
    let modules = state.configuration.modules.clone();
    let layouts = state.configuration.layouts.clone();
    state.objects.get().set_layouts(&modules, &layouts);
    if state.configuration.mode == Mode::Recorded {
        crate::recorded::prepare(&state.configuration.machine, seed);
    }
    crate::process::prepare();
    crate::watchdog::start();
}

/// Opens the gate: called by the start code of [`crate::switch`], with the program's arguments.
pub(crate) extern "C" fn open() -> usize {
    static NEXT: crate::next::Next = crate::next::Next::new(c"__libc_start_main");
    if exists() {
        let recorded = simulation().configuration.mode == Mode::Recorded;
        if !recorded {
            crate::counter::begin(crate::process::own_action());
        }
        set_gate(if recorded { RECORDING } else { OPEN });
    }
    NEXT.address()
}

crate::switch::started!(__libc_start_main => open);
