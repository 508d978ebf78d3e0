//! Properties of the requesting task that the FUSE protocol does not carry.
//!
//! The protocol carries a uid, a gid and a thread id; the kernel shows the rest in `/proc/TID/status` (proc(5)). It is
//! read only for operations that act as the caller, and for data changes of a file with set-id bits. The task waits for
//! the answer, so it exists, unless it is in a PID namespace that is not visible here or was killed meanwhile.
//!
//! A capability in that file proves nothing by itself: each user has all of them in a user namespace of its own. It
//! holds for the objects of the numbers that the namespace maps. Of a namespace that maps every number to itself, as
//! the machine's own one, these are all objects.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

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

/// The capabilities of thread `task`, which asked at a moment, that hold for every object; none if it does not belong to
/// `user` and `group`, or if its user namespace does not map every number to itself. The namespace and the start of the
/// task are looked at before and after: so a number that another task gets meanwhile, and a change of namespace, are
/// seen. A task that began after the question has got the number of one that was killed.
pub(crate) fn capabilities((task, asked): (u32, Instant), user: u32, group: u32) -> u64 {
    if !shows_our_processes() {
        return 0;
    }
    let Some(before) = Standing::of(task) else { return 0 };
    let status = status(task);
    let is_the_same = Standing::of(task).as_ref() == Some(&before);
    let is_callers = file_system_id(&status, "Uid:") == Some(user)
        && file_system_id(&status, "Gid:") == Some(group);
    match before.maps_all() && before.is_older_than(asked) && is_callers && is_the_same {
        true => parse_effective(&status),
        false => 0,
    }
}

/// Properties of a task that another task of its number, or the same one in another user namespace, does not share.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    /// When it began, in ticks since the machine's start.
    began: u64,
    users: String,
    groups: String,
}

impl Standing {
    fn of(task: u32) -> Option<Self> {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/{task}/{name}")).ok();
        Some(Self {
            began: began(&read("stat")?)?,
            users: read("uid_map")?,
            groups: read("gid_map")?,
        })
    }

    /// Whether it began before `asked`, as far as the kernel's clock ticks tell; false if that is not known. A thread that
    /// loses its processor between the two clocks takes the task for younger than it is, so it looks again.
    fn is_older_than(&self, asked: Instant) -> bool {
        (0..LOOKS).any(|_| {
            let up = std::fs::read_to_string("/proc/uptime").ok();
            up.and_then(|up| uptime(&up)).is_some_and(|up| {
                let age =
                    up.saturating_sub(Duration::from_millis(self.began.saturating_mul(TICK_MS)));
                age + Duration::from_millis(2 * TICK_MS) >= asked.elapsed()
            })
        })
    }

    /// Whether its user namespace maps every user and every group to itself.
    fn maps_all(&self) -> bool {
        [&self.users, &self.groups]
            .iter()
            .all(|map| map.split_whitespace().eq(["0", "0", ALL_NUMBERS]))
    }
}

/// The unit of `began`: USER_HZ is 100 in every Linux that has FUSE and a current userland.
const TICK_MS: u64 = 10;
/// Looks at the two clocks.
const LOOKS: usize = 8;

/// The time since the machine's start in `/proc/uptime`.
fn uptime(text: &str) -> Option<Duration> {
    Duration::try_from_secs_f64(text.split_whitespace().next()?.parse().ok()?).ok()
}

/// How many numbers of users there are, without the last one, which stands for none.
const ALL_NUMBERS: &str = "4294967295";

/// The start in `stat`; the command's name before it may have spaces and brackets.
fn began(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The last of four numbers of a user or a group.
fn file_system_id(status: &str, name: &str) -> Option<u32> {
    line(status, name).split_whitespace().nth(3)?.parse().ok()
}

/// The process of thread `task`; none if it has gone, or if `/proc` is not that of this process's PID namespace.
pub(crate) fn process(task: u32) -> Option<u32> {
    match shows_our_processes() {
        true => line(&status(task), "Tgid:").trim().parse().ok(),
        false => None,
    }
}

/// Whether `/proc` is that of this process's PID namespace.
fn shows_our_processes() -> bool {
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
    shows_our_processes() && parse_dying(&status(task))
}

/// Whether thread `task` is ending because a signal has killed its process. It closes its files then, and no signal
/// reaches it any more.
pub(crate) fn was_killed(task: u32) -> bool {
    let stat = || std::fs::read_to_string(format!("/proc/{task}/stat")).unwrap_or_default();
    shows_our_processes() && parse_killed(&stat())
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
        assert_eq!(capabilities((u32::MAX, Instant::now()), 0, 0), 0);
    }

    #[test]
    fn capabilities_count_for_the_user_that_has_them_and_in_a_namespace_of_all_numbers() {
        let own = std::process::id();
        let status = status(own);
        let id = |name| file_system_id(&status, name).unwrap();
        let (user, group) = (id("Uid:"), id("Gid:"));
        assert_eq!(
            (user, group),
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        );
        let asked = Instant::now();
        assert_eq!(capabilities((own, asked), user + 1, group), 0);
        assert_eq!(capabilities((own, asked), user, group + 1), 0);
        let standing = Standing::of(own).unwrap();
        let expected = if standing.maps_all() { parse_effective(&status) } else { 0 };
        assert_eq!(capabilities((own, asked), user, group), expected);
        let maps_all = |users: &str, groups: &str| {
            Standing { began: 1, users: users.into(), groups: groups.into() }.maps_all()
        };
        let all = "         0          0 4294967295\n";
        assert!(maps_all(all, all));
        for some in ["0 1000 1\n", "0 0 65536\n", "", "0 0 1000\n1000 1000 4294966295\n"] {
            assert!(!maps_all(some, all) && !maps_all(all, some), "{some}");
        }
        let stat = "7 (a) b (c)) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 8812 1 2 3";
        assert_eq!(began(stat), Some(8812));
    }

    /// A killed task's request goes on in the store, and its number may be another task's by then.
    #[test]
    fn a_task_that_began_after_the_question_did_not_ask() {
        let own = Standing::of(std::process::id()).unwrap();
        let up = uptime(&std::fs::read_to_string("/proc/uptime").unwrap()).unwrap();
        assert!(own.is_older_than(Instant::now()));
        let Some(long_ago) = Instant::now().checked_sub(up / 2) else { return };
        let late = Standing { began: up.as_millis() as u64 / TICK_MS, ..own };
        assert!(late.is_older_than(Instant::now()) && !late.is_older_than(long_ago));
        assert_eq!(uptime("8812.07 3.10\n"), Some(Duration::from_millis(8_812_070)));
    }
}
