//! Supplementary groups of the task that sent a request.
//!
//! The FUSE protocol carries a caller's uid, gid and thread id, not its other groups; the kernel
//! shows them in `/proc/TID/status` (proc(5)). Read only for operations that act as the caller.

/// The supplementary groups of thread `task`; none if it has gone.
pub(crate) fn of_task(task: u32) -> Vec<u32> {
    match std::fs::read_to_string(format!("/proc/{task}/status")) {
        Ok(status) => parse(&status),
        Err(_) => Vec::new(),
    }
}

fn parse(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:"));
    line.map_or_else(Vec::new, |line| line.split_whitespace().flat_map(str::parse).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_groups_line_is_found_among_the_others() {
        assert_eq!(parse("Name:\tx\nGroups:\t4 27 1000 \nVmPeak: 1 kB\n"), [4, 27, 1000]);
        assert_eq!(parse("Groups:\t \n"), [0u32; 0]);
        assert_eq!(parse(""), [0u32; 0]);
        assert_eq!(of_task(u32::MAX), [0u32; 0]);
    }
}
