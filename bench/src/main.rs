//! `uvfs-bench`: measures uvfs against its rivals, side by side in one run.
//!
//! # Boundary
//! Composition: command line → bench → report. Each bench is in its own folder ([`mount`]); [`report`], which all
//! benches share, turns numbers into medians and lines. Published experiments are in `bench-papers`.
//!
//! # Concurrency
//! The main thread drives; clients are threads of this process, servers are child processes, so that their CPU times
//! are separate. Signals and failures end in [`cleanup`], which removes every mount, process and file that the run
//! made.
//!
//! # Why
//! On a shared machine only ratios within one run are meaningful, so all systems of a case take turns (A B C A B C
//! ...), and every figure has its spread. Nothing here asserts a time. Weakness: client and server share the machine's
//! cores, so rates show less than CPU times.

#![forbid(unsafe_code)]

mod bare;
mod clean;
mod client;
mod disk_queue;
mod evict;
mod group;
mod hit;
mod http;
mod image;
mod memory;
mod meter;
mod mount;
mod places;
mod policies;
mod remote;
mod server;
mod system;
mod tree;
mod users;
mod walk;
mod watch;

use clap::{Args, Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;
use uvfs_bench_kit::{aims, chart, cleanup, context, cpu, machine, report, rivals};

/// Measures uvfs against its rivals in the same run. Medians with spread; asserts nothing.
#[derive(Debug, Parser)]
#[command(name = "uvfs-bench", max_term_width = 100, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Debug, Subcommand)]
enum Bench {
    /// The mount tool, through the kernel, against the host and other FUSE servers
    Mount(MountArguments),
    /// Path walks in process, against the kernel's tmpfs and against concurrent maps
    Walk(walk::WalkArguments),
    /// Hits that replacement policies keep of sequences of accesses, against those of other crates
    Evict(evict::EvictArguments),
    /// The cache policies `keep` and `once`: store requests of a working set beside a scan
    Policies(policies::PoliciesArguments),
    /// The page cache with hits only, against the kernel's and against other caches
    Hit(hit::HitArguments),
    /// Cleaning a directory: the experiment of Li (2013), how soon it takes effect, and rivals
    Clean(clean::CleanArguments),
    /// The memory of a mount's daemon against its `--cache-size`, under requests that need memory
    Memory(memory::MemoryArguments),
    /// The cost of `top`, the page and a scraper for a mount, and the time that a level of the tree takes
    Watch(watch::WatchArguments),
    /// A disk image, against the kernel on a loop device and against fuse2fs
    Image(image::ImageArguments),
    /// A bucket on a server behind a link with latency, against s3fs and rclone
    Object(remote::RemoteArguments),
    /// A directory on another machine (sshfs over a link with latency), alone and behind uvfs
    SlowDirectory(remote::RemoteArguments),
    /// Users of one machine on one and two processors, on a disk image: the mix that Peacock (1992) measured with
    Users(users::UsersArguments),
    /// The disk queue of a written image on simulated disks, against the policies that Peacock (1992) tried
    DiskQueue(disk_queue::DiskQueueArguments),
    /// The cost of the lock meter: the same work with it on and off
    Meter(meter::MeterArguments),
    /// Opens and reads files on request; started by `clean` as the program whose memory is bounded
    #[command(hide = true)]
    CleanClient(clean::ClientArguments),
    /// A FUSE server that answers constants; started by `mount` as a rival
    #[command(hide = true)]
    BareServer(BareArguments),
}

#[derive(Debug, Args)]
pub(crate) struct MountArguments {
    /// Smaller inputs and fewer runs; ends within a minute
    #[arg(long)]
    pub(crate) quick: bool,
    /// One JSON object per line instead of tables
    #[arg(long)]
    pub(crate) json: bool,
    /// Only this case; may be repeated [default: all]
    #[arg(long = "case", value_name = "NAME")]
    pub(crate) cases: Vec<String>,
    /// Only these systems, separated by commas [default: all that this machine has]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) systems: Vec<String>,
    /// Runs of which the median is taken [default: 9, or 3 with --quick]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: Option<u32>,
    /// Inputs so small that the figures mean nothing, for tests.
    #[arg(long, hide = true)]
    pub(crate) tiny: bool,
}

#[derive(Debug, Args)]
struct BareArguments {
    mountpoint: PathBuf,
    /// Threads that read requests by the device; rings have one
    #[arg(long)]
    readers: usize,
    /// How requests come
    #[arg(long, value_enum, default_value_t = bare::Transport::Device)]
    transport: bare::Transport,
    /// Answer lookups of names that begin with "stuck" only after this long
    #[arg(long, default_value_t = 0)]
    stuck_ms: u64,
}

fn main() -> ExitCode {
    let done = match Arguments::parse().bench {
        Bench::Mount(arguments) => mount::run(&arguments),
        Bench::Walk(arguments) => walk::run(&arguments),
        Bench::Evict(arguments) => evict::run(&arguments),
        Bench::Policies(arguments) => policies::run(&arguments),
        Bench::Hit(arguments) => hit::run(&arguments),
        Bench::Clean(arguments) => clean::run(&arguments),
        Bench::CleanClient(arguments) => clean::serve(&arguments),
        Bench::Memory(arguments) => memory::run(&arguments),
        Bench::Watch(arguments) => watch::run(&arguments),
        Bench::Image(arguments) => image::run(&arguments),
        Bench::Object(arguments) => remote::object(&arguments),
        Bench::SlowDirectory(arguments) => remote::slow_directory(&arguments),
        Bench::Users(arguments) => users::run(&arguments),
        Bench::DiskQueue(arguments) => disk_queue::run(&arguments),
        Bench::Meter(arguments) => meter::run(&arguments),
        Bench::BareServer(arguments) => {
            let BareArguments { mountpoint, readers, transport, stuck_ms } = arguments;
            bare::serve(&mountpoint, transport, readers, stuck_ms)
        }
    };
    cleanup::everything();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("uvfs-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
