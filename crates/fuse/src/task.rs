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
    static IS_OURS: OnceLock<bool> = OnceLock::new();
    let own = || std::fs::read_link("/proc/self").ok()?.to_str()?.parse().ok();
    let is_ours = *IS_OURS.get_or_init(|| own() == Some(std::process::id()));
    if is_ours { line(&status(task), "Tgid:").trim().parse().ok() } else { None }
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
    fn capabilities_are_those_in_effect() {
        let status =
            "CapInh:\t0000000000000010\nCapPrm:\t0000000000000010\nCapEff:\t000001ffffffffef\n";
        assert_eq!(parse_effective(status), 0x1ff_ffff_ffef);
        assert_eq!((parse_effective("CapEff:\tx\n"), parse_effective("")), (0, 0));
        assert!(!may_keep_set_ids(u32::MAX));
    }
}
