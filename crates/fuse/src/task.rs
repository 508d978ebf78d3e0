//! Properties of the requesting task that the FUSE protocol does not carry.
//!
//! The protocol carries a uid, a gid and a thread id; the kernel shows the rest in `/proc/TID/status` (proc(5)). It is
//! read only for operations that act as the caller, and for data changes of a file with set-id bits. The task waits for
//! the answer, so it exists, unless it is in a PID namespace that is not visible here or was killed meanwhile.

use std::sync::OnceLock;

/// The bit of CAP_FSETID.
const FSETID: u32 = 4;

/// The supplementary groups of thread `task`; none if it has ended.
pub(crate) fn groups(task: u32) -> Vec<u32> {
    parse_groups(&status(task))
}

/// Whether thread `task` of user 0 may have CAP_FSETID; false if it has ended: to clear a set-id bit too many is
/// harmless. For other users the capability proves nothing: in their own user namespace they have every one.
pub(crate) fn may_keep_set_ids(task: u32) -> bool {
    parse_effective(&status(task)) & (1 << FSETID) != 0
}

/// The process of thread `task`; none if it has gone, or if `/proc` is not that of this process's PID namespace.
pub(crate) fn process(task: u32) -> Option<u32> {
    if is_ours() { line(&status(task), "Tgid:").trim().parse().ok() } else { None }
}

/// Whether `/proc` is that of this process's PID namespace.
fn is_ours() -> bool {
    static IS_OURS: OnceLock<bool> = OnceLock::new();
    let own = || std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok();
    *IS_OURS.get_or_init(|| own() == Some(std::process::id()))
}

/// SIGKILL.
const KILL: u32 = 9;
/// Signals whose default action ends no task: SIGCHLD, SIGCONT, SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH.
const HARMLESS: [u32; 8] = [17, 18, 19, 20, 21, 22, 23, 28];

/// Whether thread `task` is about to die of a signal: it cannot use an answer. A signal that ends its process is SIGKILL
/// for each of its threads (the kernel's `complete_signal`), unless it leaves a core.
pub(crate) fn is_dying(task: u32) -> bool {
    is_ours() && parse_dying(&status(task))
}

/// Whether thread `task` is ending because a signal has killed its process. It closes its files then, and no signal
/// reaches it any more.
pub(crate) fn was_killed(task: u32) -> bool {
    let stat = || std::fs::read_to_string(format!("/proc/{task}/stat")).unwrap_or_default();
    is_ours() && parse_killed(&stat())
}

fn parse_killed(stat: &str) -> bool {
    /// The fields behind the name: the kernel's flags of a task, and the status of its end.
    const FLAGS: usize = 6;
    const EXIT_CODE: usize = 49;
    /// PF_EXITING.
    const EXITING: u64 = 4;
    let fields = stat.rsplit(')').next().unwrap_or_default();
    let field = |at| fields.split_whitespace().nth(at).and_then(|text| text.parse::<u64>().ok());
    let is_exiting = field(FLAGS).is_some_and(|flags| flags & EXITING != 0);
    is_exiting && field(EXIT_CODE).is_some_and(|code| code & 0x7f != 0)
}

fn parse_dying(status: &str) -> bool {
    let signals = |name| u64::from_str_radix(line(status, name).trim(), 16).unwrap_or(0);
    let bit = |signal: u32| 1 << (signal - 1);
    let pending = signals("SigPnd:") | signals("ShdPnd:");
    let harmless = HARMLESS.iter().fold(0, |all, &signal| all | bit(signal));
    let spared = signals("SigBlk:") | signals("SigIgn:") | signals("SigCgt:") | harmless;
    // A debugger sees every other signal first.
    let is_traced = line(status, "TracerPid:").trim() != "0";
    pending & bit(KILL) != 0 || (!is_traced && pending & !spared != 0)
}

fn status(task: u32) -> String {
    std::fs::read_to_string(format!("/proc/{task}/status")).unwrap_or_default()
}

fn line<'a>(status: &'a str, name: &str) -> &'a str {
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default()
}

fn parse_groups(status: &str) -> Vec<u32> {
    line(status, "Groups:").split_whitespace().flat_map(str::parse).collect()
}

fn parse_effective(status: &str) -> u64 {
    u64::from_str_radix(line(status, "CapEff:").trim(), 16).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_line_is_found_among_the_others() {
        assert_eq!(parse_groups("Name:\tx\nGroups:\t4 27 1000 \nVmPeak: 1 kB\n"), [4, 27, 1000]);
        assert_eq!(parse_groups("Groups:\t \n"), [0u32; 0]);
        assert_eq!(parse_groups(""), [0u32; 0]);
        assert_eq!(groups(u32::MAX), [0u32; 0]);
    }

    #[test]
    fn a_thread_is_of_its_process() {
        let own = std::process::id();
        let thread = || rustix::thread::gettid().as_raw_nonzero().get() as u32;
        let other = std::thread::spawn(move || (thread(), process(thread()))).join().unwrap();
        assert_ne!(other.0, own);
        assert_eq!((other.1, process(own)), (Some(own), Some(own)));
        assert_eq!((process(other.0), process(u32::MAX)), (None, None));
    }

    #[test]
    fn a_task_dies_of_signals_that_it_neither_handles_nor_ignores() {
        let dies = |pending: &str, shared: &str, spared: [&str; 3], tracer: &str| {
            let [blocked, ignored, caught] = spared;
            parse_dying(&format!(
                "TracerPid:\t{tracer}\nSigPnd:\t{pending}\nShdPnd:\t{shared}\nSigBlk:\t{blocked}\nSigIgn:\t{ignored}\n\
                 SigCgt:\t{caught}\n"
            ))
        };
        let none = ["0"; 3];
        assert!(dies("0000000000000100", "0", none, "0"), "SIGKILL");
        assert!(dies("0", "100", ["100"; 3], "77"), "nothing spares it");
        assert!(dies("0", "4", none, "0"), "SIGQUIT");
        assert!(!dies("0", "4", none, "77"), "it is the debugger's first");
        for spared in [["4", "0", "0"], ["0", "4", "0"], ["0", "0", "4"]] {
            assert!(!dies("4", "4", spared, "0"));
        }
        // SIGCHLD, SIGCONT, SIGURG, SIGWINCH; SIGALRM with a handler.
        assert!(!dies("0000000008430000", "2000", ["0", "0", "2000"], "0"));
        assert!(dies("0", "2000", none, "0"), "SIGALRM");
        assert!(!dies("0", "0", none, "0") && !is_dying(u32::MAX) && !is_dying(std::process::id()));
    }

    #[test]
    fn a_task_that_ends_was_killed_or_ended_itself() {
        let stat = |flags: u32, code: u32| {
            format!("7 (a) b) S 1 7 7 0 -1 {flags} {}{code}\n", "0 ".repeat(EXIT_CODE - 7))
        };
        const EXIT_CODE: usize = 49;
        assert!(parse_killed(&stat(0x40_0004, 9)) && parse_killed(&stat(4, 15)));
        assert!(!parse_killed(&stat(0x40_0004, 0x100)), "exit(1)");
        assert!(!parse_killed(&stat(0x40_0000, 9)) && !parse_killed("") && !was_killed(u32::MAX));
    }

    #[test]
    fn capabilities_are_those_in_effect() {
        let status =
            "CapInh:\t0000000000000010\nCapPrm:\t0000000000000010\nCapEff:\t000001ffffffffef\n";
        assert_eq!(parse_effective(status), 0x1ff_ffff_ffef);
        assert_eq!((parse_effective("CapEff:\tx\n"), parse_effective("")), (0, 0));
        assert!(!may_keep_set_ids(u32::MAX));
    }
}
