//! The available memory, and the part of it for the caches.
//!
//! # Boundary
//! Reads the kernel's figures for the machine, for this process's control group and for this process; turns the size
//! that a user requested into the numbers of the core. Knows no cache.
//!
//! # The numbers
//! `--cache-size` limits the whole process, since a container's limit also counts the whole process. The *overhead* is
//! the program's memory before the caches existed, and an allowance for the buffers of requests; the caches have the
//! rest. A share (`25%`) is one of the smaller of the machine's memory and the control group's limit, and so is the
//! default, a quarter.
//!
//! # Why
//! A quarter leaves the rest to the programs that use the mount and to the kernel's own caches of it. In a small control
//! group a quarter is too little, because entries in use cannot be evicted: 10,000 open files took 118 % of the 13 MiB
//! that a group of 32 MiB left. There the default is half. The limit of a group also holds for the groups in it, so its ancestors
//! are read, too (cgroup-v2 of the kernel's documentation, "memory.max"). The process's other memory is measured five
//! times a second, and fifty times while it is short, since an allocator's use cannot be predicted. A store and the
//! frontend count their own bytes for each file that a kernel holds ([`uvfs_vfs::Tenant`]). Free memory returns to the
//! system when it is short. Weakness: growth between two measurements is seen late. If everything besides the caches
//! exceeds the size, the caches keep a minimum beyond it.

use crate::Failure;
use crate::units::{Size, show_bytes};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use uvfs_concurrent::allocator;
use uvfs_vfs::{MINIMUM_BYTES, Vfs};

/// The default is one of so many parts of the memory.
const DEFAULT_PART: u64 = 4;
/// Least that is taken without being asked for, where it is half of the memory at most.
const DEFAULT_BYTES_MIN: u64 = 16 << 20;
/// Most that is taken without being asked for.
const DEFAULT_BYTES_MAX: u64 = 8 << 30;
/// Least that the caches have besides the overhead: half of it for pages, half for names.
const CACHES_BYTES_MIN: u64 = 4 << 20;
/// Buffers of one reader: the largest write of the kernel.
const READER_BYTES: u64 = 1 << 20;
/// Most for the buffers of all readers: on large machines there are more readers than large requests.
const READERS_BYTES_MAX: u64 = 4 << 20;

/// The kernel's files with memory figures.
#[derive(Debug)]
pub(crate) struct Machine {
    root: PathBuf,
}

impl Machine {
    /// This machine.
    pub(crate) fn here() -> Self {
        Self { root: "/".into() }
    }

    /// Memory that this process may have: the machine's, or the part that its control groups allow.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let machine = self.read("/proc/meminfo").and_then(|text| bytes_of("MemTotal:", &text));
        let machine = machine.unwrap_or_else(ram_bytes);
        self.group_bytes().map_or(machine, |group| group.min(machine))
    }

    /// The least limit of the control groups that this process is in, if there is one.
    fn group_bytes(&self) -> Option<u64> {
        let (groups, mounts) =
            (self.read("/proc/self/cgroup")?, self.read("/proc/self/mountinfo")?);
        let of = |version| {
            let folders = folders(version, &groups, &mounts).into_iter();
            folders.filter_map(move |folder| {
                let text = self.read(folder.join(version.file()).to_str()?)?;
                // `max` is no limit, and version 1 writes a number beyond every machine's memory.
                text.trim().parse::<u64>().ok()
            })
        };
        of(Version::Two).min().or_else(|| of(Version::One).min())
    }

    fn read(&self, path: &str) -> Option<String> {
        fs::read_to_string(self.root.join(path.trim_start_matches('/'))).ok()
    }

    /// The resident memory of this process now.
    pub(crate) fn resident_bytes(&self) -> u64 {
        self.read("/proc/self/status").and_then(|text| bytes_of("VmRSS:", &text)).unwrap_or(0)
    }
}

/// How often the process is measured, and how often while memory is short.
const MEASURED_EVERY: Duration = Duration::from_millis(200);
const MEASURED_OFTEN: Duration = Duration::from_millis(20);
/// Growth allowed between two measurements; the overhead is lowered only by a larger difference.
const SLACK_BYTES: u64 = 1 << 20;
/// Free memory returns to the system when less than this share of the size is left.
const PRESSING_SHARE: u64 = 16;
/// How often at most: while the program frees much more, while it helps, and while it does not.
const GIVEN_BACK_OFTEN: Duration = Duration::from_millis(100);
const GIVEN_BACK_EVERY: Duration = Duration::from_secs(1);
const GIVEN_BACK_SELDOM: Duration = Duration::from_secs(60);
/// Caches below this share one arena of the allocator: each keeps some free memory for itself.
const FEW_ARENAS_BELOW_BYTES: u64 = 1 << 30;

/// Has the allocator keep little to itself, if `cache_bytes` are so few that it matters. Called before there
/// are threads.
pub(crate) fn with_few_arenas(cache_bytes: u64) {
    if cache_bytes < FEW_ARENAS_BELOW_BYTES {
        allocator::keep_little();
    }
}

/// The time of the next search for free memory. The less the last one found, the longer the pause: a search takes time,
/// too. If the caches have shrunk meanwhile, or the allocator has more free memory, the next one is soon.
#[derive(Debug)]
struct Giving {
    last: Instant,
    pause: Duration,
    /// The caches' bytes when nothing was found, or more if they held more since.
    held: u64,
    /// The allocator's free bytes after the last search. It still counts those that were returned.
    free: u64,
}

impl Giving {
    fn new(now: Instant) -> Self {
        Self { last: now, pause: GIVEN_BACK_EVERY, held: 0, free: 0 }
    }

    /// Whether it is time, while the caches hold `held` bytes, and the allocator has `free` ones.
    fn is_due(&mut self, now: Instant, held: u64, free: u64) -> bool {
        if held + SLACK_BYTES < self.held {
            self.pause = GIVEN_BACK_EVERY;
        }
        self.held = self.held.max(held);
        let pause = if free > self.free + SLACK_BYTES { GIVEN_BACK_OFTEN } else { self.pause };
        now.saturating_duration_since(self.last) >= pause
    }

    /// Memory was returned, with a useful amount if that `helped`.
    fn done(&mut self, now: Instant, (held, free): (u64, u64), helped: bool) {
        self.pause = match helped {
            true => GIVEN_BACK_EVERY,
            false => (self.pause * 2).min(GIVEN_BACK_SELDOM),
        };
        (self.last, self.held, self.free) = (now, held, free);
    }
}

/// Keeps the whole process within its size: measures its memory besides the caches, and subtracts that from their
/// limit. Ends when `vfs` does.
pub(crate) fn keep_within(vfs: &Arc<Vfs>, least: u64) {
    let vfs = Arc::downgrade(vfs);
    let watch = move || {
        let (machine, mut known) = (Machine::here(), least);
        let mut giving = Giving::new(Instant::now());
        while let Some(vfs) = vfs.upgrade() {
            let mut resident = machine.resident_bytes();
            let limit = vfs.room_bytes() + known;
            let pressing = resident + limit / PRESSING_SHARE > limit;
            if pressing {
                // Also entries that were in use at the last insertion, and no longer are.
                vfs.evict_excess();
            }
            // Looked up only while it matters: it takes the allocator's lock.
            let free = || if pressing { allocator::free_bytes() as u64 } else { 0 };
            if giving.is_due(Instant::now(), vfs.held_bytes(), free()) && pressing {
                vfs.give_back();
                let before = std::mem::replace(&mut resident, machine.resident_bytes());
                let helped = resident + SLACK_BYTES < before;
                giving.done(Instant::now(), (vfs.held_bytes(), free()), helped);
            }
            let besides = resident.saturating_sub(vfs.held_bytes());
            // Room for growth before the next measurement.
            let besides = (besides + SLACK_BYTES).max(least);
            // Up at once, down slowly: buffers are allocated and freed.
            if besides > known || besides + SLACK_BYTES < known {
                known = if besides > known { besides } else { known - SLACK_BYTES / 8 };
                vfs.set_overhead_bytes(known);
            }
            drop(vfs);
            thread::sleep(if pressing { MEASURED_OFTEN } else { MEASURED_EVERY });
        }
    };
    if let Err(error) = thread::Builder::new().name("uvfs-memory".into()).spawn(watch) {
        log::warn!("the process's memory is not watched: {error}");
    }
}

/// Versions of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    /// Type of its file system.
    fn file_system(self) -> &'static str {
        match self {
            Version::One => "cgroup",
            Version::Two => "cgroup2",
        }
    }

    /// Where the limit is.
    fn file(self) -> &'static str {
        match self {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        }
    }

    /// The group's path in a line of `/proc/self/cgroup`, if it is about this version's memory.
    fn group(self, line: &str) -> Option<&str> {
        let mut parts = line.splitn(3, ':');
        let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let ours = match self {
            Version::One => controllers.split(',').any(|controller| controller == "memory"),
            Version::Two => controllers.is_empty(),
        };
        ours.then_some(path)
    }
}

/// The folders of the group that this process is in and of all that it is in, by the texts of
/// `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn folders(version: Version, groups: &str, mounts: &str) -> Vec<PathBuf> {
    let Some(group) = groups.lines().find_map(|line| version.group(line)) else {
        return Vec::new();
    };
    let Some((root, mountpoint)) = mounts.lines().find_map(|line| mount_of(version, line)) else {
        return Vec::new();
    };
    // In a container only a part of the tree may be mounted; a group outside of it is not seen.
    let below = Path::new(group).strip_prefix(root).unwrap_or(Path::new(""));
    let below =
        if below.components().any(|part| part.as_os_str() == "..") { Path::new("") } else { below };
    below.ancestors().map(|part| Path::new(mountpoint).join(part)).collect()
}

/// The mounted part of the tree of groups, and its mountpoint, if `line` of the mount table has them.
fn mount_of(version: Version, line: &str) -> Option<(&str, &str)> {
    let (mount, file_system) = line.split_once(" - ")?;
    let mut fields = mount.split(' ');
    let (root, mountpoint) = (fields.nth(3)?, fields.next()?);
    let mut fields = file_system.split(' ');
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let ours = kind == version.file_system()
        && (version == Version::Two || options.split(',').any(|option| option == "memory"));
    ours.then_some((root, mountpoint))
}

/// The bytes after `label`, as proc_meminfo(5) and proc_pid_status(5) write them.
fn bytes_of(label: &str, text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(label))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The machine's memory by sysinfo(2).
pub(crate) fn ram_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    let unit = u64::from(info.mem_unit.max(1));
    #[allow(clippy::useless_conversion, reason = "a 32-bit field on 32-bit machines")]
    u64::from(info.totalram).saturating_mul(unit)
}

/// The process's memory besides its caches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Overhead {
    /// The program, before it has cached anything.
    program_bytes: u64,
    /// Buffers of requests.
    buffer_bytes: u64,
}

impl Overhead {
    /// That of this process, which has no caches yet and will have so many `readers`, if that is known.
    pub(crate) fn here(readers: Option<usize>) -> Self {
        Self::new(Machine::here().resident_bytes(), readers)
    }

    pub(crate) fn new(program_bytes: u64, readers: Option<usize>) -> Self {
        let of_readers = |readers: usize| (readers as u64).saturating_mul(READER_BYTES);
        let buffer_bytes = readers.map_or(u64::MAX, of_readers).min(READERS_BYTES_MAX);
        Self { program_bytes, buffer_bytes }
    }

    /// Both together.
    pub(crate) fn bytes(self) -> u64 {
        self.program_bytes.saturating_add(self.buffer_bytes)
    }

    /// The least size that works, in whole MiB.
    pub(crate) fn minimum_bytes(self) -> u64 {
        let least = self.bytes().saturating_add(CACHES_BYTES_MIN).max(MINIMUM_BYTES);
        least.div_ceil(1 << 20) << 20
    }

    /// The size that is taken when none is asked for.
    pub(crate) fn default_bytes(self, memory_bytes: u64) -> u64 {
        let least = DEFAULT_BYTES_MIN.min(memory_bytes / 2).max(self.minimum_bytes());
        (memory_bytes / DEFAULT_PART).min(DEFAULT_BYTES_MAX).max(least)
    }

    /// The bytes of `size` on a machine with `memory_bytes`.
    ///
    /// # Errors
    /// As the end of a sentence, if that is below the working minimum, or beyond the memory.
    pub(crate) fn cache_bytes(self, size: Size, memory_bytes: u64) -> Result<u64, String> {
        let (bytes, minimum) = (size.of(memory_bytes), self.minimum_bytes());
        if bytes > memory_bytes.max(minimum) {
            return Err(format!(
                "more than the {} of memory that this machine, or its control group, has; write at most {}M, or a \
                 share such as 25%",
                show_bytes(memory_bytes),
                memory_bytes.max(minimum) >> 20
            ));
        }
        if bytes >= minimum {
            return Ok(bytes);
        }
        let is = match size {
            Size::Bytes(_) => String::new(),
            Size::Share(_) => format!("{} of {}: ", show_bytes(bytes), show_bytes(memory_bytes)),
        };
        Err(format!(
            "{is}below the working minimum ({} of program, {} of buffers, the rest for the caches); \
             write at least {}M",
            show_bytes(self.program_bytes),
            show_bytes(self.buffer_bytes),
            minimum >> 20
        ))
    }
}

/// The answer to a size beyond the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beyond {
    /// It is refused: caches of that size would be swapped, or the kernel would kill the process.
    Refused,
    /// The memory is taken, with a warning.
    Lowered,
}

/// Computes [`Overhead::cache_bytes`] for `text` as the value of `option`.
///
/// # Errors
/// One line that names the option, the value, the rule and the remedy.
pub(crate) fn cache_bytes(
    option: &str,
    text: &str,
    overhead: Overhead,
    beyond: Beyond,
) -> Result<u64, Failure> {
    let memory_bytes = Machine::here().memory_bytes();
    let mut size = crate::units::parse_size(text);
    if let Ok(Size::Bytes(bytes)) = size
        && bytes > memory_bytes
        && beyond == Beyond::Lowered
    {
        let memory = show_bytes(memory_bytes);
        log::warn!(
            "{option} {text}: this machine, or its control group, has {memory}: they are taken"
        );
        size = Ok(Size::Share(100));
    }
    let bytes = size.and_then(|size| overhead.cache_bytes(size, memory_bytes));
    bytes.map_err(|why| Failure::usage(format!("{option} {text}: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::parse_size;

    const MIB: u64 = 1 << 20;

    /// A machine of 16 GiB with these files.
    fn machine(files: &[(&str, &str)]) -> (tempfile::TempDir, Machine) {
        let folder = tempfile::tempdir().unwrap();
        let memory = ("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:   1 kB\n");
        for (path, text) in files.iter().chain([&memory]) {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let machine = Machine { root: folder.path().into() };
        (folder, machine)
    }

    const MOUNTED_TWO: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
        31 22 0:28 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const MOUNTED_ONE: &str = "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n";

    /// Bug: a process that had found no free memory for a while searched once a minute, also after a cleaning had freed
    /// most of its caches: for so long the process kept that memory.
    #[test]
    fn what_the_caches_let_go_is_given_back_soon() {
        let mut now = Instant::now();
        let mut giving = Giving::new(now);
        for _ in 0..10 {
            now += GIVEN_BACK_SELDOM;
            assert!(giving.is_due(now, 100 << 20, 0));
            giving.done(now, (100 << 20, 0), false);
        }
        now += GIVEN_BACK_EVERY;
        assert!(!giving.is_due(now, 101 << 20, 0), "there was nothing ten times");
        assert!(!giving.is_due(now, 101 << 20, 0));
        assert!(giving.is_due(now, 10 << 20, 0), "91 MiB were freed");
        giving.done(now, (10 << 20, 0), true);
        now += GIVEN_BACK_EVERY;
        assert!(giving.is_due(now, 10 << 20, 0), "and more of it may follow");
    }

    #[test]
    fn without_a_group_the_machine_counts() {
        let (_folder, machine) = machine(&[]);
        assert_eq!(machine.memory_bytes(), 16 << 30);
        assert!(Machine::here().memory_bytes() > 1 << 20);
        assert!(Machine::here().resident_bytes() > 1 << 16);
        let nowhere = Machine { root: "/no/such/machine".into() };
        assert_eq!(nowhere.memory_bytes(), ram_bytes());
    }

    #[test]
    fn the_least_limit_on_the_way_up_counts() {
        let files = [
            ("proc/self/cgroup", "0::/user.slice/session/service\n"),
            ("proc/self/mountinfo", MOUNTED_TWO),
            ("sys/fs/cgroup/user.slice/session/service/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/session/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/user.slice/memory.max", "1073741824\n"),
        ];
        assert_eq!(machine(&files).1.memory_bytes(), 1 << 30);
        // The root of the tree has no such file; a group without limits leaves the machine's memory.
        assert_eq!(machine(&files[..3]).1.memory_bytes(), 16 << 30);
        let beyond = ("sys/fs/cgroup/user.slice/session/service/memory.max", "99999999999999\n");
        assert_eq!(machine(&[files[0], files[1], beyond]).1.memory_bytes(), 16 << 30);
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_root() {
        let files = [
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", MOUNTED_TWO),
            ("sys/fs/cgroup/memory.max", "536870912\n"),
        ];
        assert_eq!(machine(&files).1.memory_bytes(), 512 * MIB);
        // The process was started outside of the mounted tree: its visible limits still hold.
        let outside = [("proc/self/cgroup", "0::/../other\n"), files[1], files[2]];
        assert_eq!(machine(&outside).1.memory_bytes(), 512 * MIB);
    }

    #[test]
    fn version_one_is_asked_where_version_two_says_nothing() {
        let files = [
            ("proc/self/cgroup", "9:cpu:/x\n4:memory,hugetlb:/docker/abc/deep\n0::/\n"),
            ("proc/self/mountinfo", MOUNTED_ONE),
            ("sys/fs/cgroup/memory/deep/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "268435456\n"),
        ];
        assert_eq!(machine(&files).1.memory_bytes(), 256 * MIB);
        assert_eq!(machine(&files[..3]).1.memory_bytes(), 16 << 30, "no limit");
    }

    #[test]
    fn texts_that_are_not_as_expected_say_nothing() {
        for text in ["", "MemTotal: many kB", "MemTotal: 5", "MemFree: 5 kB"] {
            assert_eq!(bytes_of("MemTotal:", text), None, "{text}");
        }
        for line in ["", "0", "0:", "x - cgroup2 y"] {
            assert_eq!(Version::Two.group(line), None, "{line}");
            assert_eq!(mount_of(Version::Two, line), None, "{line}");
        }
    }

    #[test]
    fn the_default_is_a_quarter_within_bounds() {
        let overhead = Overhead::new(5 * MIB, Some(2));
        assert_eq!(overhead.default_bytes(16 << 30), 4 << 30);
        assert_eq!(overhead.default_bytes(1 << 40), DEFAULT_BYTES_MAX);
        assert_eq!(overhead.default_bytes(16 * MIB), 11 * MIB, "the minimum");
    }

    /// In a group of 32 MiB a daemon took the working minimum, 13 MiB, and 10,000 open files were at 118 percent of it.
    #[test]
    fn a_small_group_gives_half_and_no_more() {
        let overhead = Overhead::new(6 * MIB, Some(3));
        let default = |memory: u64| overhead.default_bytes(memory * MIB) / MIB;
        assert_eq!([20, 28, 32, 48, 64, 80].map(default), [13, 14, 16, 16, 16, 20]);
    }

    #[test]
    fn the_minimum_has_room_for_program_buffers_and_caches() {
        assert_eq!(Overhead::new(0, Some(1)).minimum_bytes(), MINIMUM_BYTES);
        assert_eq!(Overhead::new(5 * MIB + 1, Some(2)).minimum_bytes(), 12 * MIB);
        for many in [Some(64), None] {
            assert_eq!(Overhead::new(6 * MIB, many).minimum_bytes(), 14 * MIB, "a bound");
        }
    }

    #[test]
    fn sizes_below_the_minimum_are_refused_with_it() {
        let overhead = Overhead::new(5 * MIB, Some(2));
        let check = |text: &str, memory: u64| {
            overhead.cache_bytes(parse_size(text).unwrap(), memory).map_err(|why| {
                assert!(why.ends_with("write at least 11M"), "{why}");
                why
            })
        };
        assert_eq!(check("11M", 0), Ok(11 * MIB));
        assert_eq!(check("25%", 1 << 30), Ok(256 * MIB));
        let refused = check("10MiB", 0).unwrap_err();
        assert!(refused.starts_with("below the working minimum (5.0 MiB of program"), "{refused}");
        let refused = check("1%", 512 * MIB).unwrap_err();
        assert!(refused.starts_with("5.1 MiB of 512.0 MiB: below"), "{refused}");
    }

    /// 5000G were taken without a word on a machine of 24 GiB.
    #[test]
    fn sizes_beyond_the_memory_are_refused_with_it() {
        let overhead = Overhead::new(5 * MIB, Some(2));
        let check = |text: &str| overhead.cache_bytes(parse_size(text).unwrap(), 24 << 30);
        assert_eq!((check("24G"), check("100%")), (Ok(24 << 30), Ok(24 << 30)));
        for beyond in ["5000G", "25G"] {
            let refused = check(beyond).unwrap_err();
            assert!(refused.starts_with("more than the 24.0 GiB of memory"), "{refused}");
            assert!(refused.contains("write at most 24576M"), "{refused}");
        }
        let here = |beyond| cache_bytes("--cache-size", "128T", overhead, beyond);
        assert!(here(Beyond::Refused).is_err());
        assert_eq!(here(Beyond::Lowered), Ok(Machine::here().memory_bytes()));
    }
}
