//! The command line.
//!
//! # Boundary
//! Names, defaults and help texts. Values that can be wrong in more than form (sizes, durations)
//! stay text here and are read where a one-line refusal can name the remedy ([`crate::serve`]).

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use uvfs_backends::memory::AccessTimes;
use uvfs_cleaning::flags::{
    CachedArguments, DropArguments, PolicyArguments, RefreshArguments, WarmupArguments,
};
use uvfs_fuse::Transport;
use uvfs_image_tools::ImageArguments;
use uvfs_live::{TopArguments, WebArguments};
use uvfs_terminal::color::When;
use uvfs_terminal::command_line::{EXIT_STATUS, Remedy};
use uvfs_vfs::PagePolicy;

const EXAMPLES: &str = "\
Examples:
  uvfs demo                                a mount at work; it leaves nothing
  uvfs mount memory: /mnt/ram --size 2G    a file system in RAM
  uvfs mount /srv/data /mnt/data           a directory, until Ctrl-C
  uvfs mount dir:/srv/data /mnt/data --daemon
                                           the same in the background
  uvfs mount /srv/data /mnt/data --page-cache write-back --cache-size 2G
                                           writes return at once, and go to the
                                           disk in large runs
  uvfs mount /srv/data /mnt/data --daemon --update-fstab
                                           and at every boot
  uvfs mount disk.img /mnt/disk            an ext4 image; its journal keeps it
                                           whole in a crash
  uvfs mount disk.img /mnt/disk --read-only
                                           an ext2, 3 or 4 image, never written
  uvfs mount disk.img ~/disk --fakeroot    another user's, with all rights
  uvfs mount 'disk.img?partition=1' /mnt/disk
                                           a partition of it; ?offset=1M
  uvfs mount s3://bucket/data /mnt/data    an object store;
                                           ?endpoint=http://host:9000
  uvfs mount ./memory: /mnt/odd            a directory called `memory:`
  uvfs mounts                              all mounts, and whether they answer
  uvfs stat /mnt/data                      memory, hits, waits, failures
  uvfs stat /mnt/data --json               every counter, for programs
  uvfs stat /mnt/data --locks --interval 5
                                           waits for each lock, during 5 s
  uvfs top                                 the work of the mounts, live
  uvfs web                                 the same and the cached objects, in a
                                           browser
  uvfs set /mnt/data cache-size=1G         gives it more memory, or less
  uvfs cached /srv/data                    the cached pages of its files
  uvfs drop 1:/srv/data                    evicts these pages
  uvfs drop 3:/mnt/data/photos             pages, names and inodes of one
                                           directory of a mount
  uvfs policy keep /mnt/data/photos        evicts it last; `once`: first
  uvfs unmount /mnt/data                   ends a mount, also a dead one
  uvfs contention cargo run --release      which fields of a program its
                                           threads fight over";

/// What users of other tools write.
pub(crate) const REMEDIES: [Remedy; 11] = [
    remedy(
        "mount",
        "-o",
        "options are words of their own: use --read-only for `-o ro`, --allow-other for `-o allow_other` (mount(8) takes \
         `-t fuse.uvfs -o ro`)",
    ),
    remedy("mount", "-t", "uvfs sees the kind of SOURCE itself: leave -t out"),
    remedy("mount", "-r", "use --read-only"),
    remedy("mount", "--ro", "use --read-only"),
    remedy("mount", "-f", "it stays in the foreground unless --daemon is given: leave -f out"),
    remedy("mount", "-d", "use --daemon for the background, --log-level debug for messages"),
    remedy("mount", "-u", "`uvfs unmount MOUNTPOINT` ends a mount"),
    remedy(
        "stat",
        "--interval",
        "--interval counts during that time, and only locks or the journal: add --locks, --lockmeter or --journal; `uvfs top \
         --interval` repeats the figures of a mount",
    ),
    remedy("stat", "--watch", "`uvfs top MOUNTPOINT` repeats the figures of a mount"),
    remedy("unmount", "-l", "`uvfs unmount MOUNTPOINT` also ends a dead mount: leave -l out"),
    remedy("unmount", "-f", "`uvfs unmount MOUNTPOINT` also ends a dead mount: leave -f out"),
];

const fn remedy(command: &'static str, word: &'static str, remedy: &'static str) -> Remedy {
    Remedy { command, word, remedy }
}

const DEMO_HELP: &str = "\
It makes an image in a temporary folder (TMPDIR), mounts it, copies a small tree, shows the cached bytes of its directories, empties the \
caches of one, reads it again, unmounts and checks the image. Each command is printed as it is typed, with its output. Where nothing can be \
mounted, it says what is missing, and the library does the same in process.

Examples:
  uvfs demo                                a mount at work
  cargo run --release -- demo              the same, in uvfs's sources";

const METRICS_HELP: &str = "\
Names, units and labels are in docs/metrics.md and do not change. With `uvfs mount --metrics` the daemon answers a scraper itself.

Examples:
  uvfs metrics                             all mounts
  uvfs metrics /mnt/data | grep hits       of one mount
  uvfs metrics --text > /var/lib/node_exporter/uvfs.prom
                                           for the textfile collector
  uvfs mount /srv/data /mnt/data --metrics 9567
                                           http://127.0.0.1:9567/metrics";

const DOCTOR_HELP: &str = "\
It holds versions, the mounts and their states, settings with their sources, two samples of every daemon's statistics, and \
the end of the log; the command lists its parts. Secrets are removed: values of variables, headers and parameters with such names, \
users and passwords in URLs, keys of AWS. Names of directories stay: read it before you give it away.

Examples:
  uvfs doctor                              of all mounts
  uvfs doctor /mnt/data -o report.tar      of one
  tar xOf report.tar uvfs-doctor/about.txt shows a part of it";

const CONFIG_HELP: &str = "\
The first of these that sets an option decides: the command line, a variable such as UVFS_CACHE_SIZE, the user's file \
~/.config/uvfs/config.toml, the machine's /etc/uvfs/config.toml, the default. UVFS_CONFIG names a file to be read instead of both. \
docs/config.md has more.

Examples:
  uvfs config show                         each setting, and its source
  uvfs config show --effective /mnt/data   every option of that mountpoint
  UVFS_CONFIG=/dev/null uvfs mount /srv/data /mnt/data
                                           a mount without any file";

const SET_KEYS: &str = "\
Keys:
  cache-size  memory of the whole process, as for `uvfs mount`: 512M, 2G, or a
              share such as 25%. Entries beyond the limit are evicted at once,
              unless they are in use
  log-level   least severe messages to log: off, error, warn, info, debug, trace

Examples:
  uvfs set /mnt/data cache-size=1G         more, or less
  uvfs set /mnt/data cache-size=10%        a tenth of the machine's or the
                                           container's memory
  uvfs set /mnt/data log-level=debug       more in the log, for a while";

const MOUNTS_HELP: &str = "\
Each daemon has two seconds to answer. Mounts of other users are listed, with details for root only. The mounts are \
those of this mount namespace: those of a container are listed inside it.

Examples:
  uvfs mounts                              all of them, and their faults
  uvfs mounts --json | jq -r 'select(.state == \"dead\").mountpoint'
                                           those whose daemon is gone";

const STAT_HELP: &str = "\
Examples:
  uvfs stat                                all mounts
  uvfs stat /mnt/data                      memory, hits, waits, failures
  uvfs stat /mnt/data --json | jq .core.pages
                                           some of the counters, for programs
  uvfs stat /mnt/data --locks --interval 5
                                           waits for each lock, during 5 s
  uvfs stat /mnt/disk --journal --interval 5
                                           the work of an image's journal";

const UNMOUNT_HELP: &str = "\
Examples:
  uvfs unmount /mnt/data                   returns when everything is written
  uvfs unmount --lazy /mnt/data            also if it is in use";

const COMPLETIONS_HELP: &str = "\
The script runs `uvfs`, which must be in PATH, at each key. It reads the mount table and asks no mount.

Examples:
  source <(uvfs completions bash)          in this shell; or in ~/.bashrc
  uvfs completions bash > /etc/bash_completion.d/uvfs
                                           for all users
  uvfs completions zsh > /usr/local/share/zsh/site-functions/_uvfs
  uvfs completions fish > ~/.config/fish/completions/uvfs.fish";

const CONTENTION_HELP: &str = "\
The analyser is a separate program, uvfs-contention, beside this one or in PATH; it needs no mount. In uvfs's \
sources `cargo install --locked --path crates/contention-cli` installs it. `uvfs contention --help` prints its help.

Exit status:
  127  it is not installed
  126  it cannot be started; any other status is the analyser's";

/// Mounts RAM, a host directory, a disk image or a bucket through uvfs, a file system layer in user space.
#[derive(Debug, Parser)]
#[command(
    name = "uvfs",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = format!("{EXAMPLES}\n\n{EXIT_STATUS}"),
)]
pub(crate) struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// When text is coloured
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = When::Auto, help_heading = "Everywhere")]
    pub(crate) color: When,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount SOURCE on MOUNTPOINT and serve it
    Mount(Box<MountArguments>),
    /// Show a mount at work on an image made for it, and leave nothing: some seconds, no arguments
    #[command(after_help = format!("{DEMO_HELP}\n\n{EXIT_STATUS}"))]
    Demo,
    /// List all uvfs mounts: state, age, memory, and the remedy for a dead one
    Mounts(MountsArguments),
    /// Show the mounts, and the contents and counters of their caches
    Stat(StatArguments),
    /// Watch the mounts at work: requests, hits, memory, the largest directories
    Top(TopArguments),
    /// Show the mounts in a browser: a zoomable picture of the caches, live figures, a drop button
    Web(WebArguments),
    /// Print the contents and counters of the caches for a monitoring system, as OpenMetrics
    Metrics(MetricsArguments),
    /// Change settings of a mount while it is in use
    Set(SetArguments),
    /// Empty caches of one directory, on any file system
    Drop(DropArguments),
    /// Read the objects of a directory of a mount into its caches
    Warmup(WarmupArguments),
    /// Read the entries of a directory of a mount from the source again, now
    Refresh(RefreshArguments),
    /// Show the cached objects of a directory, uvfs's or the kernel's
    Cached(CachedArguments),
    /// Mark directories of a mount: their entries are evicted last, or first
    Policy(PolicyArguments),
    /// Make disk images, read them without mounting them, commit a mounted one
    Image(ImageArguments),
    /// Collect data for a bug report, in one archive without secrets
    Doctor(DoctorArguments),
    /// End a mount, after everything is written
    #[command(visible_alias = "umount")]
    Unmount(UnmountArguments),
    /// Find the locks and fields that a program's threads fight over, on a simulated machine
    #[command(disable_help_flag = true, after_help = CONTENTION_HELP)]
    Contention {
        /// Passed on unchanged; `uvfs contention --help` lists them.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Show which settings of `uvfs mount` come from files and the environment
    Config(ConfigArguments),
    /// Print a script that lets a shell complete commands, flags, mountpoints and directories
    #[command(after_help = format!("{COMPLETIONS_HELP}\n\n{EXIT_STATUS}"))]
    Completions {
        /// The shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Reports by its exit status whether a mount answers; see [`crate::liveness`].
    #[command(hide = true)]
    AskMount {
        /// Where it is mounted.
        mountpoint: PathBuf,
    },
}

/// `uvfs mount`.
#[derive(Debug, Args)]
#[command(after_help = format!("{EXAMPLES}\n\n{EXIT_STATUS}"))]
pub(crate) struct MountArguments {
    /// The object to mount: `memory:` (RAM, empty at first), `dir:PATH` (a host directory), `image:PATH` (a disk
    /// image with ext4, or with --read-only also ext2 and ext3, perhaps PATH?partition=N or PATH?offset=SIZE),
    /// `s3://BUCKET/PREFIX` (an object store, perhaps with ?endpoint=URL&region=NAME; credentials come from the
    /// environment) or a plain path (a directory or an image). A directory whose name looks like a scheme is written `./name:`
    pub(crate) source: OsString,
    /// An existing empty directory
    pub(crate) mountpoint: PathBuf,

    /// Serve in the background; returns when the mount is ready, or reports the error
    #[arg(long)]
    pub(crate) daemon: bool,
    /// Allow access by other users; permissions are checked for each of them
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// Be root in a disk image or a `memory:` file system as an ordinary user: the mounting user may read, change,
    /// chown and remove all in it, whatever its owners and modes. They stay visible, and bind other users (--allow-other)
    #[arg(long)]
    pub(crate) fakeroot: bool,
    /// With --fakeroot, the owner of new objects, in numbers or names [default: the owner and the group of their
    /// directory]
    #[arg(long, value_name = "UID[:GID]", allow_hyphen_values = true)]
    pub(crate) new_owner: Option<String>,
    /// Refuse every change
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Mount over a MOUNTPOINT that has entries; they are hidden while it is mounted
    #[arg(long)]
    pub(crate) nonempty: bool,
    /// Room in a `memory:` file system: 512M, 2G, or a share of RAM such as 10% [default: 50%]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) size: Option<String>,
    /// When reading moves access times in a `memory:` file system. There is no strictatime: reads from the
    /// kernel's page cache move none. An image and a bucket take nodiratime and noatime, which hold there always
    /// [default: relatime]
    #[arg(long, value_name = "WHEN", value_enum)]
    pub(crate) atime: Option<Atime>,
    /// How long cached attributes are valid before the source is asked again: 500ms, 1s, 0 [default: 1s; of a
    /// bucket, and with --watch, 60s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) attr_timeout: Option<String>,
    /// How long a cached name is valid [default: 1s; of a
    /// bucket, and with --watch, 60s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) entry_timeout: Option<String>,
    /// How long it stays cached that a name does not exist [default: 1s; of a
    /// bucket, and with --watch, 60s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) negative_timeout: Option<String>,
    /// Notice changes made directly in the host directory at once, not after the timeouts. On a local file system the
    /// default of the timeouts is then 60s; what no report tells of is valid for 1s
    #[arg(long)]
    pub(crate) watch: bool,
    /// Memory of the whole process, nearly all of it for the caches: 256M, 1G, or a share of the memory
    /// of the machine or its control group, such as 10%. With a page cache, names with their inodes have
    /// half of it at most; `uvfs stat --all` shows the memory of the program itself. Data stored in
    /// a `memory:` file system comes on top
    /// [default: 25%, at most 8G]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) cache_size: Option<String>,
    /// Where file data of a host directory, a bucket or an image that is written is cached
    #[arg(long, value_name = "HOW", value_enum, default_value_t = PageCache::Auto)]
    pub(crate) page_cache: PageCache,
    /// Largest read-ahead for a sequential reader: 256K, up to 1M; 0 for none. With a page
    /// cache only [default: 512K]
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub(crate) read_ahead: Option<String>,
    /// How long dirty pages may wait before they are written back, if no `close` or `fsync` writes them
    /// earlier; `sync` does not. With `--page-cache write-back`, and for images that are written [default: 5s, or
    /// for an image the time of --commit if that is shorter]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) write_back_delay: Option<String>,
    /// Longest time between two commits of changes in a disk image, 100ms to 5m. A crash may lose the changes of
    /// this time, unless a program has made them stable earlier [default: 5s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub(crate) commit: Option<String>,
    /// Never flush the cache of the disk below an image, not even for fsync. The end of the daemon loses nothing, but a
    /// crash of the machine may destroy the image: for images that are not needed after a crash
    #[arg(long)]
    pub(crate) unsafe_no_barriers: bool,
    /// Mark directories from the start, as `uvfs policy` does: a file of lines such as `keep /photos`,
    /// `once /backup` and `normal /photos/tmp`, with paths from the mount's root on; # begins a comment
    #[arg(long, value_name = "FILE")]
    pub(crate) policy: Option<PathBuf>,
    /// Threads that read requests from the kernel, 1 to 64 [default: by the number of cores]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub(crate) readers: Option<String>,
    /// Pass file data through the daemon instead of letting the kernel read and write host files
    #[arg(long)]
    pub(crate) no_passthrough: bool,
    /// How requests come from the kernel
    #[arg(long, value_enum, value_name = "WAY", default_value_t = TransportFlag::Auto)]
    pub(crate) transport: TransportFlag,
    /// Leave out `.uvfs` in the root of the mount, whose file `drop_caches` cleans directories when a request
    /// is written to it; a name `.uvfs` of the source can be seen then
    #[arg(long)]
    pub(crate) no_control_dir: bool,
    /// Do not restrict the system calls of the serving threads
    #[arg(long)]
    pub(crate) no_sandbox: bool,
    /// Answer `GET /metrics` here, in the OpenMetrics format, for a scraper: a port of the loopback interface, such as
    /// 9567, or an address with a port. Any client that can connect sees the names of source and mountpoint
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) metrics: Option<String>,
    /// Name in the mount table, instead of the source
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Least severe messages to log
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Warn)]
    pub(crate) log_level: LogLevel,
    /// Log to this file, kept below 16 MiB, instead of standard error. Without it a daemon logs to syslog (the
    /// journal), and its errors, or everything where there is no syslog, to /run/uvfs/log (another user's to
    /// $XDG_RUNTIME_DIR/uvfs/log)
    #[arg(long, value_name = "PATH")]
    pub(crate) log_file: Option<PathBuf>,

    /// When it is mounted: write the line of /etc/fstab that mounts it at every boot, with these options, and keep
    /// the old file as /etc/fstab.uvfs.bak. An existing line is changed; no boot waits for the mount
    #[arg(long)]
    pub(crate) update_fstab: bool,

    /// Set by `--daemon` for the process it starts.
    #[arg(long, hide = true)]
    pub(crate) in_background: bool,

    /// Set by the helper of mount(8): a `--cache-size` beyond the memory is lowered, because a refusal would stop a boot.
    #[arg(long, hide = true)]
    pub(crate) at_boot: bool,
}

/// `uvfs mounts`.
#[derive(Debug, Args)]
#[command(after_help = format!("{MOUNTS_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct MountsArguments {
    /// One JSON object per mount and line; docs/stat.md has its fields
    #[arg(long)]
    pub(crate) json: bool,
}

/// `uvfs stat`.
#[derive(Debug, Args)]
#[command(after_help = format!("{STAT_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct StatArguments {
    /// The mount to show; without it, all are listed
    pub(crate) mountpoint: Option<PathBuf>,
    /// Every counter, not only the most important ones
    #[arg(long, requires = "mountpoint", conflicts_with_all = ["json", "meter"])]
    pub(crate) all: bool,
    /// One JSON object per mount and line, with every counter; docs/stat.md has its fields
    #[arg(long)]
    pub(crate) json: bool,
    /// Show locks instead of caches: how often each kind is taken, how long it is held and waited for
    #[arg(long, group = "meter", requires = "mountpoint")]
    pub(crate) locks: bool,
    /// Show locks with the places that take them, in the layout of lockmeter
    #[arg(long, group = "meter", requires = "mountpoint")]
    pub(crate) lockmeter: bool,
    /// Show the journal of a disk image that is written: transactions, commits, waits, checkpoints
    #[arg(long, group = "meter", requires = "mountpoint")]
    pub(crate) journal: bool,
    /// Watch the locks or the journal for this time, and show that time only, instead of all since the mount
    #[arg(long, value_name = "SECONDS", requires = "meter", allow_hyphen_values = true)]
    pub(crate) interval: Option<String>,
}

/// `uvfs metrics`.
#[derive(Debug, Args)]
#[command(after_help = format!("{METRICS_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct MetricsArguments {
    /// The mounts; without one, all that there are, also those that do not answer
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoints: Vec<PathBuf>,
    /// Write the older text format (0.0.4), as the textfile collector of node_exporter reads it
    #[arg(long)]
    pub(crate) text: bool,
}

/// `uvfs doctor`.
#[derive(Debug, Args)]
#[command(after_help = format!("{DOCTOR_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct DoctorArguments {
    /// The mounts; without one, all that there are
    #[arg(value_name = "MOUNTPOINT")]
    pub(crate) mountpoints: Vec<PathBuf>,
    /// The archive, a tar file that is not there yet [default: uvfs-doctor-TIME.tar here]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// `uvfs config`.
#[derive(Debug, Args)]
#[command(after_help = format!("{CONFIG_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct ConfigArguments {
    /// What to do
    #[command(subcommand)]
    pub(crate) action: ConfigAction,
}

/// What `uvfs config` does.
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigAction {
    /// Show each setting, its value and its source
    #[command(after_help = format!("{CONFIG_HELP}\n\n{EXIT_STATUS}"))]
    Show {
        /// Every option, including those with their default
        #[arg(long)]
        effective: bool,
        /// One JSON object per option and line
        #[arg(long)]
        json: bool,
        /// Settings of this mountpoint; without it, of mountpoints that no file names
        mountpoint: Option<PathBuf>,
    },
}

/// `uvfs set`.
#[derive(Debug, Args)]
#[command(after_help = format!("{SET_KEYS}\n\n{EXIT_STATUS}"))]
pub(crate) struct SetArguments {
    /// Where it is mounted
    pub(crate) mountpoint: PathBuf,
    /// The changes, such as cache-size=1G
    #[arg(value_name = "KEY=VALUE", required = true)]
    pub(crate) settings: Vec<String>,
}

/// `uvfs unmount`.
#[derive(Debug, Args)]
#[command(after_help = format!("{UNMOUNT_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct UnmountArguments {
    /// Where it is mounted
    pub(crate) mountpoint: PathBuf,
    /// Detach now, even if it is in use; the daemon serves until its last user is gone
    #[arg(long)]
    pub(crate) lazy: bool,
}

/// A shell that completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shell {
    /// 4.4 or later
    Bash,
    /// With `compinit`
    Zsh,
    /// 3 or later
    Fish,
}

impl Shell {
    /// The shell's name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Shell::Bash => "bash",
            Shell::Zsh => "zsh",
            Shell::Fish => "fish",
        }
    }
}

/// When reading moves access times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Atime {
    /// When they are not later than the last change, or a day old
    Relatime,
    /// When relatime moves them, and never those of directories
    Nodiratime,
    /// Never
    Noatime,
}

impl From<Atime> for AccessTimes {
    fn from(atime: Atime) -> Self {
        match atime {
            Atime::Relatime => AccessTimes::Relatime,
            Atime::Nodiratime => AccessTimes::Nodiratime,
            Atime::Noatime => AccessTimes::Noatime,
        }
    }
}

/// Where file data is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PageCache {
    /// The best for the source: the kernel caches RAM and host directories already; images that are written are
    /// cached as with write-back
    Auto,
    /// Not by uvfs; every request goes to the source
    Off,
    /// In uvfs, within --cache-size; writes reach the source at once
    WriteThrough,
    /// In uvfs; dirty pages are written back to the source within --write-back-delay, in large runs, or by close
    /// or fsync, which report errors; `sync` does not write them earlier
    WriteBack,
}

/// `--transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum TransportFlag {
    /// The best for the source, of those that the kernel offers
    Auto,
    /// One by one from /dev/fuse, which every kernel has
    Device,
    /// By io_uring, with a queue for each core: Linux 6.14, and the module's parameter enable_uring
    Ring,
}

impl From<TransportFlag> for Transport {
    fn from(flag: TransportFlag) -> Self {
        match flag {
            TransportFlag::Auto => Self::Auto,
            TransportFlag::Device => Self::Device,
            TransportFlag::Ring => Self::Ring,
        }
    }
}

impl From<PageCache> for PagePolicy {
    fn from(cache: PageCache) -> Self {
        match cache {
            PageCache::Auto => PagePolicy::Auto,
            PageCache::Off => PagePolicy::Off,
            PageCache::WriteThrough => PagePolicy::WriteThrough,
            PageCache::WriteBack => PagePolicy::WriteBack,
        }
    }
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogLevel {
    /// Nothing.
    Off,
    /// Failures.
    Error,
    /// Also suspicious events.
    Warn,
    /// Also rare events.
    Info,
    /// Also details for debugging.
    Debug,
    /// Also every request.
    Trace,
}

impl From<LogLevel> for log::LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => log::LevelFilter::Off,
            LogLevel::Error => log::LevelFilter::Error,
            LogLevel::Warn => log::LevelFilter::Warn,
            LogLevel::Info => log::LevelFilter::Info,
            LogLevel::Debug => log::LevelFilter::Debug,
            LogLevel::Trace => log::LevelFilter::Trace,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// A flag that is not documented is not found; a handwritten document of flags is wrong after the next one.
    #[test]
    fn the_reference_is_what_help_says() {
        let opening = "# Reference: `uvfs`\n\nEvery command and flag with its default, as `--help` prints it. The \
                       analyser's are in [reference-contention.md](reference-contention.md).\n\nThis file is written \
                       by a test: `UVFS_WRITE_REFERENCE=1 cargo test -p uvfs -p uvfs-contention-cli reference`.";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference.md");
        let text = uvfs_terminal::reference::text(Arguments::command(), opening);
        uvfs_terminal::reference::check(path.as_ref(), &text).unwrap();
    }

    /// Each command has a manual page. A package gets the pages from here.
    #[test]
    fn the_manual_pages_are_made() {
        // The analyser's page is its own program's.
        let pages = uvfs_terminal::manual::pages(Arguments::command(), &["contention"]).unwrap();
        uvfs_terminal::manual::write_where_asked(&pages).unwrap();
    }

    #[test]
    fn the_definition_is_consistent() {
        Arguments::command().debug_assert();
    }

    /// `uvfs set` accepts the values of `uvfs mount`.
    #[test]
    fn levels_are_the_same_words_everywhere() {
        let ours = LogLevel::value_variants().iter();
        let ours: Vec<_> = ours
            .map(|level| {
                (level.to_possible_value().unwrap().get_name().to_owned(), (*level).into())
            })
            .collect();
        let theirs = uvfs_control::setting::LEVELS.map(|(name, level)| (name.to_owned(), level));
        assert_eq!(ours, theirs);
    }

    #[test]
    fn the_meters_options_need_each_other() {
        let read = |line: &[&str]| Arguments::try_parse_from([&["uvfs", "stat"], line].concat());
        for good in [&["/m", "--locks"][..], &["/m", "--lockmeter", "--json", "--interval", "2"]] {
            assert!(read(good).is_ok(), "{good:?}");
        }
        for bad in [
            &["--locks"][..],
            &["/m", "--interval", "2"],
            &["/m", "--locks", "--lockmeter"],
            &["/m", "--all", "--json"],
            &["/m", "--all", "--locks"],
            &["--all"],
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn every_command_has_its_exit_statuses_written_down() {
        let document = include_str!("../../../docs/exit-status.md");
        for command in commands().iter().skip(1) {
            let row = format!("| `{}` | 0, ", command.get_name());
            assert!(document.contains(&row), "{row}");
        }
    }

    /// All commands, with the words that lead to them.
    fn commands() -> Vec<clap::Command> {
        let whole = Arguments::command();
        let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
        std::iter::once(whole.clone()).chain(shown).collect()
    }

    /// Texts that were broken by hand at 110 columns were broken again at the terminal's: long, short, long, short.
    #[test]
    fn help_is_wrapped_once() {
        for command in commands() {
            let text = command.get_after_help().expect("more help").to_string();
            let is_prose =
                |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            for (line, next) in text.lines().zip(text.lines().skip(1).chain([""])) {
                let place = format!("{}: {line}", command.get_name());
                let fits = line.chars().count() <= 80;
                assert!(is_prose(line) || fits, "the terminal breaks it anywhere: {place}");
                assert!(!(is_prose(line) && is_prose(next)), "broken by hand: {place}");
            }
        }
    }

    #[test]
    fn no_line_of_help_is_wider_than_the_terminal() {
        for command in commands() {
            for columns in [80, 100] {
                let help = command.clone().term_width(columns).render_long_help().to_string();
                for line in help.lines() {
                    assert!(line.chars().count() <= columns, "{columns} columns: {line}");
                }
            }
        }
    }

    #[test]
    fn a_mount_command_is_read() {
        let line = ["uvfs", "mount", "memory:", "/mnt", "--size", "1G", "--watch"];
        let Command::Mount(mount) = Arguments::try_parse_from(line).unwrap().command else {
            panic!("not a mount");
        };
        assert_eq!((mount.size.as_deref(), mount.watch, mount.daemon), (Some("1G"), true, false));
        assert_eq!(mount.attr_timeout, None);
    }
}
