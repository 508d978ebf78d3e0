//! Switching the one master thread from one virtual core's context to another.
//!
//! # Boundary
//! The only module that knows a processor. A processor's file supplies, and nothing else is asked of it:
//!
//! | item | meaning |
//! |---|---|
//! | `Context` | what is kept of a context that does not run: its stack pointer and its thread base |
//! | `switch(from, to)` | keeps the caller's context in `from`, goes on as `to` |
//! | `park(context, side, wait, argument)` | keeps the caller's context, calls `wait(argument)` on the stack `side`; when that returns, goes on as the context then is |
//! | `call_caught(buffer, start, argument, result)` | calls a thread's start routine so that `pthread_exit` ends in it |
//! | `thread_base()` | the running thread's base |
//! | `prepare()` | once, before the first switch: which way of setting the thread base there is |
//! | `system_call(number, arguments)` | a system call that no library sees |
//! | `with_caller!` and its kin | entry points that pass their own return address, or more, on |
//! | `started!`, `prepared!`, `passing!` | the program's start, and entry points that leave no frame |
//! | `marked!`, `FRAME_MARK` | an entry point that calls on from a frame with a mark |
//! | `interrupted_at(context)` | the instruction that a signal interrupted |
//! | `refuse_counter`, `counter`, `counter_read`, `answer_counter` | the processor's counter: have reading it fault, and answer the fault |
//! | `compare_exchange_16` | on 16 bytes |
//!
//! # Concurrency
//! ```text
//!   real thread:  start ── park ─────────────────(asleep on the side stack)───────── wake ── end
//!                           │                                                         ▲
//!   master:                 └─ switch ─▶ runs it ─ switch ─▶ another ... ─ switch ─▶ finish, join
//! ```
//! S1. A context is run by at most one OS thread: its own until it parks, the master from the switch to
//!     it until the switch away, its own again only after the master woke it and will not return to it.
//! S2. A parked thread touches only its side stack; the stack it parked on belongs to the master.
//! S3. `switch` keeps all that the platform's calling convention has a callee keep, the control words of the
//!     floating-point units included; the compiler saves the rest around the call.
//! S4. The thread base belongs to the stack: code that runs on a thread's stack sees that thread's
//!     thread-local variables and its `pthread_self`.
//! S5. No thread-local variable of the runtime itself is read on both sides of a switch.
//!
//! If a thread stops: a parked thread that never continues holds nothing that the master needs, since
//! the master waits only for threads that it has just woken, and for a new one until it has parked.
//!
//! # Why
//! A switch is a dozen instructions where handing a baton from thread to thread is two system calls.
//! Weakness: a library that keeps the kernel's thread identity (a robust list, restartable sequences, an
//! alternate signal stack) sees the master's.

mod x86_64;
pub(crate) use x86_64::*;
