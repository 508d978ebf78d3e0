//! Rights that the serving threads give up before they serve, so that a request can do only the usual operations.
//!
//! Two fences around each serving thread, and two settings for the process:
//! - Landlock: files below the source, and `/proc` for reading; nothing else, and no TCP. For a bucket also its port and
//!   those of proxies, and the files for resolving names.
//! - seccomp: no new program, no socket (for a bucket: only IP), no mount, no module, no tracing: [`DENIED`] is EPERM.
//! - no core dump, and no tracing by others of the same user: memory holds file contents.
//!
//! # Boundary
//! Threads inherit both fences from the thread that starts them. The main thread and the control socket's stay outside:
//! they unmount, by `umount2` or `fusermount3`. So does the thread that finds a bucket's credentials, which are in
//! files that are replaced and behind any port.
//!
//! # Why
//! A deny list, not an allow list: serving a host directory uses most file system calls, and a missing one would return
//! a wrong errno to some program, years later; Landlock restricts the paths. `unshare` is allowed only for `CLONE_FS`:
//! serving threads unshare their working directory and umask. Best effort: a kernel without one of them serves without
//! it, and `uvfs stat` reports that. Weakness: threads share memory, so code execution in a serving thread can still
//! misuse the main one; the fences stop requests that confuse us, not an attacker inside.

use crate::bucket::Address;
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};
use serde::Serialize;
use std::error::Error;
use std::io;
use std::path::PathBuf;

/// The newest Landlock that the rules below were written for.
const LANDLOCK: ABI = ABI::V6;

/// The active fences, for reports.
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

/// Files for resolving a name. A file that is replaced later is another file, and is not readable any more: those that
/// change with the network are in the two directories.
const RESOLVER: &[&str] = &[
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/nsswitch.conf",
    "/etc/gai.conf",
    "/run/systemd/resolve",
    "/run/NetworkManager",
];

/// The files and ports that serving a source needs.
#[derive(Debug, Clone)]
pub(crate) enum Reach {
    /// No file, for a store in RAM.
    Nothing,
    /// Files below this directory.
    Below(PathBuf),
    /// A bucket, and the files for resolving its address.
    Bucket(Address),
}

impl Reach {
    /// Where addresses are found, as far as it exists. Credentials are found by a thread outside.
    fn read_only(&self) -> Vec<PathBuf> {
        let Reach::Bucket(_) = self else { return Vec::new() };
        let mut paths: Vec<PathBuf> = RESOLVER.iter().map(PathBuf::from).collect();
        paths.retain(|path| path.exists());
        paths
    }

    /// The ports that may be connected to.
    fn ports(&self) -> Vec<u16> {
        let Reach::Bucket(address) = self else { return Vec::new() };
        let proxies = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"];
        let proxies = proxies.iter().filter_map(|name| std::env::var(name).ok());
        let port = |url: String| url.trim_end_matches('/').rsplit(':').next()?.parse().ok();
        let mut ports: Vec<u16> = proxies.filter_map(port).collect();
        // And that by which names are resolved.
        ports.extend([address.port(), 53]);
        ports
    }
}

/// Restricts the calling thread, and all threads that it will start, to `reach` and to harmless system calls. Applies
/// the fences that the kernel has, and returns those.
pub(crate) fn restrict_thread(reach: &Reach) -> Sandbox {
    let files = restrict_files(reach).unwrap_or_else(|error| {
        log::warn!("Landlock: {error}");
        format!("unrestricted ({error})")
    });
    let system_calls = match restrict_system_calls(reach) {
        Ok(denied) => format!("{denied} denied"),
        Err(error) => {
            log::warn!("seccomp: {error}");
            format!("unrestricted ({error})")
        }
    };
    Sandbox { files, system_calls }
}

fn restrict_files(reach: &Reach) -> Result<String, Box<dyn Error>> {
    let all = AccessFs::from_all(LANDLOCK);
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)?
        .handle_access(AccessNet::from_all(LANDLOCK))?
        .create()?
        .add_rule(PathBeneath::new(PathFd::new("/proc")?, AccessFs::from_read(LANDLOCK)))?;
    if let Reach::Below(source) = reach {
        rules = rules.add_rule(PathBeneath::new(PathFd::new(source)?, all))?;
    }
    for path in reach.read_only() {
        let access = match path.is_dir() {
            true => AccessFs::from_read(LANDLOCK),
            false => AccessFs::ReadFile.into(),
        };
        rules = rules.add_rule(PathBeneath::new(PathFd::new(path)?, access))?;
    }
    for port in reach.ports() {
        rules = rules.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    let reach = match reach {
        Reach::Nothing => "/proc",
        Reach::Below(_) => "the source and /proc",
        Reach::Bucket(_) => "the bucket's address, the resolver's files and /proc",
    };
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => format!("only {reach}"),
        RulesetStatus::PartiallyEnforced => format!("only {reach}, as far as this kernel can"),
        RulesetStatus::NotEnforced => "unrestricted (this kernel has no Landlock)".into(),
    })
}

/// Restricts the calling thread, which answers strangers at a listening socket: no file but `/proc`, no capability, and
/// only the system calls of serving, with accept(2).
pub(crate) fn restrict_listener() {
    let none = CapabilitySet::empty();
    drop_capabilities(none);
    if let Err(error) = restrict_files(&Reach::Nothing) {
        log::warn!("Landlock: {error}");
    }
    if let Err(error) = deny_all_but(&[libc::SYS_accept, libc::SYS_accept4], false) {
        log::warn!("seccomp: {error}");
    }
}

/// Restricts the calling thread and all that it will start to the needs of a listening client of daemons: it connects
/// to other users' sockets, asks mounts by a separate program, and drops pages of files that it may not read.
pub(crate) fn restrict_client() {
    drop_capabilities(
        CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER,
    );
    let needed = [
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_accept,
        libc::SYS_accept4,
    ];
    if let Err(error) = deny_all_but(&needed, false) {
        log::warn!("seccomp: {error}");
    }
}

/// Drops all capabilities of the calling thread but `kept`; those that it lacks stay lacking.
fn drop_capabilities(kept: CapabilitySet) {
    let dropped = rustix::thread::capabilities(None).and_then(|sets| {
        let (effective, permitted) = (sets.effective & kept, sets.permitted & kept);
        let inheritable = CapabilitySet::empty();
        let sets = CapabilitySets { effective, permitted, inheritable };
        rustix::thread::set_capabilities(None, sets)
    });
    if let Err(error) = dropped {
        log::warn!("capabilities: {error}");
    }
}

/// The number of calls that are denied now, with any arguments.
fn restrict_system_calls(reach: &Reach) -> Result<usize, Box<dyn Error>> {
    match reach {
        Reach::Bucket(_) => deny_all_but(&[libc::SYS_socket, libc::SYS_connect], true),
        _ => deny_all_but(&[], false),
    }
}

/// Denies all of [`DENIED`] but `needed`.
fn deny_all_but(needed: &[i64], is_on_net: bool) -> Result<usize, Box<dyn Error>> {
    let denied: Vec<i64> = DENIED.iter().copied().filter(|call| !needed.contains(call)).collect();
    let program = denying_program(&denied, is_on_net)?;
    seccompiler::apply_filter(&program)?;
    Ok(denied.len())
}

/// Denies `denied`; sockets of other families than IP's, if `is_on_net` (and netlink's, by which names are found).
fn denying_program(denied: &[i64], is_on_net: bool) -> Result<BpfProgram, Box<dyn Error>> {
    let denied = denied.iter().flat_map(|&call| numbers(call));
    let other = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Qword,
        SeccompCmpOp::Ne,
        u64::from(libc::CLONE_FS.unsigned_abs()),
    )?;
    let rule = SeccompRule::new(vec![other])?;
    let unshare = numbers(libc::SYS_unshare).map(|number| (number, vec![rule.clone()]));
    let family = |family: i32| {
        let family = u64::from(family.unsigned_abs());
        SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    };
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK].map(family);
    let others = SeccompRule::new(families.into_iter().collect::<Result<_, _>>()?)?;
    let sockets = numbers(libc::SYS_socket).filter(|_| is_on_net);
    let sockets = sockets.map(|number| (number, vec![others.clone()]));
    let filter = SeccompFilter::new(
        denied.map(|number| (number, Vec::new())).chain(unshare).chain(sockets).collect(),
        SeccompAction::Allow,
        SeccompAction::Errno(libc::EPERM as u32),
        std::env::consts::ARCH.try_into()?,
    )?;
    Ok(filter.try_into()?)
}

/// The numbers under which the kernel accepts `call`: on x86-64 also the one with the x32 bit, which reaches the same
/// code.
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
    #[cfg(feature = "s3")]
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::process::Command;
    use std::thread;

    /// Runs `act` in a thread that was restricted to `reach`.
    fn restricted<T: Send>(reach: Reach, act: impl FnOnce(Sandbox) -> T + Send) -> T {
        thread::scope(|scope| {
            scope.spawn(|| act(restrict_thread(&reach))).join().expect("the restricted thread")
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
        restricted(Reach::Below(source.clone()), |sandbox| {
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
        restricted(Reach::Nothing, |sandbox| {
            if has_landlock(&sandbox) {
                assert!(fs::read("/etc/passwd").is_err());
                assert!(fs::write("/tmp/uvfs-sandbox-test", "").is_err());
            }
        });
    }

    #[test]
    fn sockets_and_programs_are_refused_in_the_thread_and_in_its_children_only() {
        let eperm = Some(libc::EPERM);
        restricted(Reach::Nothing, |sandbox| {
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
    #[cfg(feature = "s3")]
    fn a_bucket_is_reached_by_its_port_and_nothing_else_is() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = listener.local_addr().unwrap();
        let source = format!("//bucket?endpoint=http://{endpoint}");
        let address = Address::parse(&source, |_| None).unwrap();
        let eperm = Some(libc::EPERM);
        restricted(Reach::Bucket(address), |sandbox| {
            assert_eq!(sandbox.system_calls, format!("{} denied", DENIED.len() - 2));
            assert!(TcpStream::connect(endpoint).is_ok());
            assert_eq!(UnixStream::pair().unwrap_err().raw_os_error(), eperm);
            let local = UnixStream::connect("/run/nobody").unwrap_err();
            assert_eq!(local.raw_os_error(), eperm, "a socket of another family");
            assert_eq!(TcpListener::bind("127.0.0.1:0").unwrap_err().raw_os_error(), eperm);
            assert!(Command::new("/bin/true").status().is_err());
            assert!(fs::read("/etc/hosts").is_ok());
            if has_landlock(&sandbox) {
                assert!(fs::write("/tmp/uvfs-sandbox-test", "").is_err());
                assert!(fs::read("/etc/passwd").is_err());
                assert!(TcpStream::connect(other.local_addr().unwrap()).is_err());
            }
        });
    }

    #[test]
    #[expect(deprecated, reason = "its replacement is unsafe for the sake of another flag")]
    fn threads_may_still_unshare_what_serving_needs() {
        restricted(Reach::Nothing, |_| {
            // The directory backend does this to have a umask of its own per thread.
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
