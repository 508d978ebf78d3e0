//! What the serving threads give up before they serve: a request can only do what requests need.
//!
//! Two fences around each serving thread, and two settings for the process:
//! - Landlock: files below the source, and `/proc` for reading; nothing else, and no TCP.
//! - seccomp: no new program, no socket, no mount, no module, no tracing: [`DENIED`] is EPERM.
//! - no core dump, and no tracing by others of the same user: memory holds file contents.
//!
//! # Boundary
//! Threads inherit both fences from the thread that starts them. The main thread and the control
//! socket's stay outside: they unmount, which means `umount2` or running `fusermount3`.
//!
//! # Why
//! A deny list, not an allow list: the host directory is worked on with most file system calls, and
//! a missing one would be a wrong errno in some program's face, years later; the paths are Landlock's
//! business. `unshare` is allowed for `CLONE_FS` alone: serving threads unshare their working directory
//! and umask. Best effort: a kernel without one of them serves without it, and `uvfs stat` says so.
//! Weakness: threads share memory, so code execution in a serving thread can still misuse the main
//! one; the fences stop requests that confuse us, not an attacker who already runs inside.

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde::Serialize;
use std::error::Error;
use std::io;
use std::path::Path;

/// The newest Landlock that the rules below were written for.
const LANDLOCK: ABI = ABI::V6;

/// What is in force, for reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Sandbox {
    /// Which files the serving threads may reach.
    pub(crate) files: String,
    /// Which system calls they may make.
    pub(crate) system_calls: String,
}

impl Sandbox {
    /// Nothing is in force.
    pub(crate) fn off() -> Self {
        Self { files: "unrestricted (--no-sandbox)".into(), system_calls: "unrestricted".into() }
    }
}

/// Forbids core dumps and tracing of this process.
///
/// # Errors
/// If the kernel refuses either.
pub(crate) fn harden_process() -> io::Result<()> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

/// Restricts the calling thread, and all it will start, to files below `source` (none for a file
/// system in RAM) and to harmless system calls. Does what the kernel can, and says what that was.
pub(crate) fn restrict_thread(source: Option<&Path>) -> Sandbox {
    let files = restrict_files(source).unwrap_or_else(|error| {
        log::warn!("Landlock: {error}");
        format!("unrestricted ({error})")
    });
    let system_calls = match restrict_system_calls() {
        Ok(()) => format!("{} denied", DENIED.len()),
        Err(error) => {
            log::warn!("seccomp: {error}");
            format!("unrestricted ({error})")
        }
    };
    Sandbox { files, system_calls }
}

fn restrict_files(source: Option<&Path>) -> Result<String, Box<dyn Error>> {
    let all = AccessFs::from_all(LANDLOCK);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new("/proc")?, AccessFs::from_read(LANDLOCK)))?;
    if let Some(source) = source {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(source)?, all))?;
    }
    let reach = if source.is_some() { "the source and /proc" } else { "/proc" };
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => format!("only {reach}"),
        RulesetStatus::PartiallyEnforced => format!("only {reach}, as far as this kernel can"),
        RulesetStatus::NotEnforced => "unrestricted (this kernel has no Landlock)".into(),
    })
}

fn restrict_system_calls() -> Result<(), Box<dyn Error>> {
    let program = denying_program()?;
    Ok(seccompiler::apply_filter(&program)?)
}

fn denying_program() -> Result<BpfProgram, Box<dyn Error>> {
    let denied = DENIED.iter().flat_map(|&call| numbers(call));
    let other = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::Ne,
        u64::from(libc::CLONE_FS.unsigned_abs()),
    )?;
    let rule = SeccompRule::new(vec![other])?;
    let unshare = numbers(libc::SYS_unshare).map(|number| (number, vec![rule.clone()]));
    let filter = SeccompFilter::new(
        denied.map(|number| (number, Vec::new())).chain(unshare).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(filter.try_into()?)
}

/// The numbers under which the kernel takes `call`: on x86-64 also the one with the x32 bit, which
/// reaches the same code.
fn numbers(call: i64) -> impl Iterator<Item = i64> {
    const X32_BIT: i64 = 0x4000_0000;
    let twin = cfg!(target_arch = "x86_64").then_some(call | X32_BIT);
    [call].into_iter().chain(twin)
}

/// `open_tree_attr`, of Linux 6.15: one number on all machines.
const OPEN_TREE_ATTR: i64 = 467;

/// System calls that no request needs.
const DENIED: &[i64] = &[
    // Other programs, and other processes' memory.
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_setns,
    // The network, and sockets of any kind.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_connect,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    // The kernel itself.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    // Keys, clocks, names and accounting.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_personality,
];

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::UnshareFlags;
    use std::fs;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    /// Runs `act` in a thread that was restricted to `source`.
    fn restricted<T: Send>(source: Option<&Path>, act: impl FnOnce(Sandbox) -> T + Send) -> T {
        thread::scope(|scope| {
            scope.spawn(|| act(restrict_thread(source))).join().expect("the restricted thread")
        })
    }

    fn has_landlock(sandbox: &Sandbox) -> bool {
        let there = sandbox.files.starts_with("only");
        if !there {
            uvfs_skip::lacking(&sandbox.files);
        }
        there
    }

    #[test]
    fn only_files_below_the_source_are_reached() {
        let base = tempfile::tempdir().unwrap();
        let (source, outside) = (base.path().join("source"), base.path().join("outside"));
        fs::create_dir_all(source.join("a")).unwrap();
        fs::create_dir(source.join("b")).unwrap();
        fs::write(&outside, "secret").unwrap();
        restricted(Some(&source), |sandbox| {
            let work = || -> io::Result<()> {
                fs::write(source.join("a/file"), "text")?;
                fs::rename(source.join("a/file"), source.join("b/file"))?;
                fs::hard_link(source.join("b/file"), source.join("a/link"))?;
                fs::remove_file(source.join("a/link"))?;
                assert_eq!(fs::read(source.join("b/file"))?, b"text");
                assert!(fs::read("/proc/self/stat").is_ok());
                Ok(())
            };
            work().expect("everything within the source");
            if has_landlock(&sandbox) {
                let refused = fs::read(&outside).unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
                assert!(fs::write(base.path().join("new"), "").is_err());
                assert!(fs::rename(&outside, source.join("stolen")).is_err());
            }
        });
        assert_eq!(fs::read(&outside).unwrap(), b"secret", "other threads are not affected");
    }

    #[test]
    fn a_ram_mount_reaches_no_file_at_all() {
        restricted(None, |sandbox| {
            if has_landlock(&sandbox) {
                assert!(fs::read("/etc/passwd").is_err());
                assert!(fs::write("/tmp/uvfs-sandbox-test", "").is_err());
            }
        });
    }

    #[test]
    fn sockets_and_programs_are_refused_in_the_thread_and_in_its_children_only() {
        let eperm = Some(libc::EPERM);
        restricted(None, |sandbox| {
            assert_eq!(sandbox.system_calls, format!("{} denied", DENIED.len()));
            let refused = UdpSocket::bind("127.0.0.1:0").unwrap_err();
            assert_eq!(refused.raw_os_error(), eperm);
            let child = thread::spawn(|| UnixStream::pair().unwrap_err().raw_os_error());
            assert_eq!(child.join().unwrap(), eperm);
            assert!(Command::new("/bin/true").status().is_err());
        });
        assert!(UnixStream::pair().is_ok());
    }

    #[test]
    #[expect(deprecated, reason = "its replacement is unsafe for the sake of another flag")]
    fn threads_may_still_unshare_what_serving_needs() {
        restricted(None, |_| {
            // As the directory backend does, to have a umask of its own per thread.
            let unshared = rustix::thread::unshare(UnshareFlags::FS);
            unshared.expect("unshare(CLONE_FS) needs no privilege");
            // A namespace of users, in which a thread has every capability, was to be had for the asking.
            for more in [UnshareFlags::NEWUSER, UnshareFlags::NEWNS, UnshareFlags::FILES] {
                for flags in [more, more | UnshareFlags::FS] {
                    let refused = rustix::thread::unshare(flags).unwrap_err();
                    assert_eq!(refused, rustix::io::Errno::PERM, "{flags:?}");
                }
            }
        });
    }
}
