//! The command line of `uvfs contention`.
//!
//! # Boundary
//! Names, defaults and help texts.

use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use uvfs_terminal::color::When;

const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  refused, failed, or a rule of `gate` is broken; standard error says why
  2  the command line is not valid
  Commands that run a program end with its status, if that is another.";

const OVERVIEW: &str = "\
The program is compiled with the thread sanitizer's pass, without its runtime; its threads become cores of a \
simulated machine, in virtual time, one after the other and always in the same order for the same seed. The report \
comes from a stated model, so it is the same on any machine. The kernel, the allocator and \
code that was not compiled with the pass are not seen.

Examples:
  uvfs contention cargo run --release         the contended fields
  uvfs contention cargo bench --bench map     of one benchmark
  make CC=\"uvfs contention cc\"                a C program
  uvfs contention run -- ./prog 1000          and its run
  uvfs contention report uvfs.contention --line 1
                                              a cache line, access by access
  uvfs contention numa -- ./prog              one memory node against two
  uvfs contention sweep -- ./prog {cores}     throughput, 1 to 128 cores
  uvfs contention what-if \"Inode.flags -> own line\" -- ./prog
                                              the gain of a layout
  uvfs contention advise uvfs.contention      useful changes, with reasons
  uvfs contention gate uvfs.contention rules.toml
                                              for continuous integration";

const CARGO_HELP: &str = "\
The target folder is `contention` within the project's own, so that the usual builds stay as they are. Programs that \
cargo starts run on the simulated machine, once for each seed. Their output is shown for the first seed, with --json \
on standard error. The profile of `cargo run` is target/contention/uvfs.contention, that of a test or benchmark \
target/contention/NAME.contention, of a second program of that name NAME-2.contention. RUSTFLAGS and rustflags of \
cargo's configuration are kept; debug information is turned on. Examples in documentation run as usual, without a \
profile.

Examples:
  uvfs contention cargo run --release
  uvfs contention cargo run --release -- --threads 8
  uvfs contention cargo --cores 64 --nodes 2 test --release --test storm
  uvfs contention cargo --html map.html bench --bench map
  uvfs contention cargo +nightly build --release
                               builds only; `uvfs contention run` runs it";

const COMPILER_HELP: &str = "\
Takes the options of the compiler. `-c` compiles with the pass; a command that links adds the runtime, and never \
the sanitizer's own. A program that is started directly runs without the simulation, so that `configure` and programs \
that a build runs work. Link-time optimisation is turned off.

Examples:
  uvfs contention cc -O2 -pthread counter.c -o counter
  make CC=\"uvfs contention cc\" CXX=\"uvfs contention c++\"
  ./configure CC=\"uvfs contention cc --cc clang\"";

const RUN_HELP: &str = "\
The program has to be built with `uvfs contention cargo build` or `uvfs contention cc`. The profile is \
uvfs.contention, unless --output names another file. The program's output is shown for the first seed, with \
--json on standard error; the output of other seeds is shown only when they fail. The seeds are processes in the same folder: --jobs 1 \
runs them one after the other.

Examples:
  uvfs contention run -- ./counter 8
  uvfs contention run --cores 64 --nodes 2 --html counter.html -- ./counter 64
  uvfs contention run --machine server.toml --json -- ./counter > counter.json";

const REPORT_HELP: &str = "\
Examples:
  uvfs contention report uvfs.contention           all, as after a run
  uvfs contention report uvfs.contention --line 2  one line, access by access
  uvfs contention report uvfs.contention --structure Dentry
  uvfs contention report uvfs.contention --hist    latencies by level
  uvfs contention report uvfs.contention --locks   locks in virtual time
  uvfs contention report uvfs.contention --group 'blk|nvme=io'
  uvfs contention report uvfs.contention --html report.html
  uvfs contention report uvfs.contention --json > report.json";

const LAYOUT_HELP: &str = "\
Shows fields, lines and holes, with the accesses and transfers of each field.

Examples:
  uvfs contention layout Dentry uvfs.contention
  uvfs contention layout 'ArcInner<Super>' uvfs.contention --json";

const NUMA_HELP: &str = "\
Runs the program with the same cores on one memory node and on two (or --nodes), and reports the paths and structures \
that the distance slows down.

Examples:
  uvfs contention numa -- ./prog
  uvfs contention numa --cores 32 --nodes 4 -- ./prog 32
  uvfs contention numa cargo run --release";

const SWEEP_HELP: &str = "\
`{cores}` in the program's arguments is replaced by the number of cores. How the throughput is counted:
  auto          fixed or per-core, by the accesses on few cores [default]
  fixed         the program does the same work on any number of cores
  per-core      every core does the same work
  counted       the program calls uvfs_contention_work(n)
  stdout:REGEX  the program prints it, in virtual time; the number is the first
                group of REGEX

Examples:
  uvfs contention sweep -- ./prog
  uvfs contention sweep --work per-core -- ./prog --threads {cores}
  uvfs contention sweep --cores 1,2,4..64 --nodes 2 -- ./prog {cores}
  uvfs contention sweep --work 'stdout:([0-9.]+) Mops' -- ./prog {cores}
  uvfs contention sweep cargo run --release -- {cores}";

const COMPARE_HELP: &str = "\
Lists costs that rose, fell, are new or are gone, and whether the difference is more than the spread of the seeds.

Examples:
  uvfs contention compare before.contention after.contention
  uvfs contention compare before.contention after.contention --json";

const GATE_HELP: &str = "\
Rules are a TOML file; docs/contention.md has all of them. Each broken rule is a line; the exit status is 1 then.

Examples:
  uvfs contention gate uvfs.contention rules.toml
  uvfs contention gate uvfs.contention rules.toml --json";

const WHAT_IF_HELP: &str = "\
Only the model's layout is changed, not the program. A field that does not exist is refused with a list of the fields. \
Without FILE the program first runs unchanged; the gain is measured against that run.

Changes:
  TYPE.field -> own line              alone on a cache line
  TYPE.{a, b} -> own line             both on a line with nothing else
  TYPE.{a, b} -> own lines            each on a line; of an array, each element
  TYPE.field -> away from TYPE.other  on another line than that field
  TYPE -> align 64                    objects start at multiples of 64
  TYPE -> pad 128                     elements of a row a multiple of 128 apart
  TYPE -> order a, b, c               these fields first, in this order

Examples:
  uvfs contention what-if \"Super.flags -> own line\" -- ./prog
  uvfs contention what-if \"Super.flags -> own line\" \"Counter -> align 64\" \\
      -- ./prog
  uvfs contention what-if \"Counter -> align 128\" base.contention -- ./prog
  uvfs contention what-if \"Super -> order lock, count\" -- cargo run --release";

const ADVISE_HELP: &str = "\
With a program on the command line, each advised change of layout is tried on the profile's machine and with its \
seeds, and its gain is printed.

Examples:
  uvfs contention advise uvfs.contention
  uvfs contention advise uvfs.contention -- ./prog 8
  uvfs contention advise uvfs.contention cargo run --release";

const IMPORT_HELP: &str = "\
Shows hardware samples in the same report. Record them on a machine that has them:
  perf c2c record -- ./prog
  perf script -F comm,pid,tid,cpu,time,event,ip,sym,dso,addr,data_src,weight \\
      > perf.txt

Examples:
  uvfs contention import perf.txt
  uvfs contention import perf.txt --output perf.contention";

const RECORD_HELP: &str = "\
Threads run on the cores of this machine, in real time, and only the states of cache lines are the model's. Every \
run differs, because it depends on this machine's cores and load; the report says so. Use `run` \
unless the machine has the cores.

Examples:
  uvfs contention record -- ./prog
  uvfs contention record cargo run --release";

const MACHINE_HELP: &str = "\
Every number is marked as measured or assumed, and reports repeat the mark. Write it to a file to change it \
and to pass it to --machine.

Examples:
  uvfs contention machine
  uvfs contention machine --write server.toml
  uvfs contention machine --machine server.toml   checks the file";

const CALIBRATE_HELP: &str = "\
Measures the costs that this machine lets a program measure; the rest is marked as assumed. Nothing else should run meanwhile.

Examples:
  uvfs contention calibrate
  uvfs contention calibrate --write this.toml";

/// Flags that take no value; all others take one.
const ALONE: [&str; 6] = ["--json", "--hist", "--locks", "--any-machine", "--compute", "--"];

/// The words of the command line; flags before the command are put behind it: it knows whether it has them.
pub(crate) fn behind_the_word(words: Vec<OsString>) -> Vec<OsString> {
    let mut at = 1;
    while let Some(word) = words.get(at).and_then(|word| word.to_str()) {
        if !word.starts_with("--") || word == "--help" {
            break;
        }
        at += if word.contains('=') || ALONE.contains(&word) { 1 } else { 2 };
    }
    let known = words.get(at).and_then(|word| word.to_str());
    if at == 1 || known.is_none_or(|word| word.starts_with('-')) {
        return words;
    }
    let mut moved = words;
    moved[1..=at].rotate_right(1);
    moved
}

/// Find the locks and fields that a program's threads fight over, on a simulated machine
#[derive(Debug, Parser)]
#[command(
    name = "uvfs contention",
    bin_name = "uvfs contention",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = format!("{OVERVIEW}\n\n{EXIT_STATUS}"),
)]
pub(crate) struct ContentionArguments {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: ContentionCommand,

    /// When text is coloured
    #[arg(long, global = true, value_name = "WHEN", value_enum, default_value_t = When::Auto, help_heading = "Everywhere")]
    pub(crate) color: When,
}

/// The subcommands of `uvfs contention`.
#[derive(Debug, Subcommand)]
pub(crate) enum ContentionCommand {
    /// Build a cargo project with the pass, run the programs that cargo starts, and report
    Cargo(Box<CargoArguments>),
    /// Compile or link C with the pass, as `cc` would
    Cc(CompilerArguments),
    /// Compile or link C++ with the pass, as `c++` would
    #[command(name = "c++")]
    Cxx(CompilerArguments),
    /// Run a program on the simulated machine, and report
    Run(Box<RunArguments>),
    /// Show a profile: cache lines, structures, latencies, locks
    Report(ReportArguments),
    /// Show the layout of a type with the heat of its fields
    Layout(LayoutArguments),
    /// Compare one memory node with several
    Numa(Box<NumaArguments>),
    /// Run on more and more cores: curve, its class, and the causes of its bend
    Sweep(Box<SweepArguments>),
    /// Compare two profiles
    Compare(CompareArguments),
    /// Check a profile against rules
    Gate(GateArguments),
    /// Try a layout in the model
    WhatIf(Box<WhatIfArguments>),
    /// Advise changes, with the evidence
    Advise(Box<AdviseArguments>),
    /// Read hardware samples of perf into a profile
    Import(ImportArguments),
    /// Run with real threads on this machine's cores, and report
    Record(Box<RecordArguments>),
    /// Show the machine that is simulated
    Machine(MachineArguments),
    /// Measure the costs of this machine
    Calibrate(CalibrateArguments),
    /// Runs a program for cargo.
    #[command(hide = true)]
    Exec(ExecArguments),
}

/// Which machine.
#[derive(Debug, Clone, Args)]
pub(crate) struct MachineFlags {
    /// Cores [default: the machine file's, or 8]
    #[arg(long, value_name = "N")]
    pub(crate) cores: Option<usize>,
    /// Memory nodes; cores are dealt out in equal blocks [default: the machine file's, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,
    #[command(flatten)]
    pub(crate) file: MachineFileFlag,
}

/// The machine's file.
#[derive(Debug, Clone, Args)]
pub(crate) struct MachineFileFlag {
    /// Costs of the machine, as `uvfs contention machine --write` gives them
    #[arg(long, value_name = "FILE")]
    pub(crate) machine: Option<PathBuf>,
}

/// How runs are made.
#[derive(Debug, Clone, Args)]
pub(crate) struct SeedFlags {
    /// Runs, each with its own jitter; figures are means over them
    #[arg(long, value_name = "N", default_value_t = uvfs_contention::run::SEEDS,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) seeds: u32,
    /// The first seed; the others follow it
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) first_seed: u64,
    #[command(flatten)]
    pub(crate) pace: PaceFlags,
}

/// What makes a run fast or exact, and when it is given up.
#[derive(Debug, Clone, Args)]
pub(crate) struct PaceFlags {
    /// Cycles that a plain access may be ahead of the slowest core; 0 is exact and slow
    #[arg(long, value_name = "CYCLES", default_value_t = uvfs_contention::run::SLACK)]
    pub(crate) slack: u64,
    /// Seconds of processor time that a thread may spend in code that is not instrumented while others could
    /// run, before the program is ended; 0: any
    #[arg(long, value_name = "SECONDS", default_value_t = uvfs_contention::run::WATCHDOG_SECONDS)]
    pub(crate) watchdog: u64,
    /// Charge the computation between accesses by its instructions, not as a flat number of cycles before each
    /// access; experimental
    #[arg(long)]
    pub(crate) compute: bool,
    /// Runs at once [default: as many as this machine has cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) jobs: Option<u32>,
}

/// Whether a result is for programs.
#[derive(Debug, Clone, Args)]
pub(crate) struct JsonFlag {
    /// JSON on standard output
    #[arg(long)]
    pub(crate) json: bool,
}

/// The forms of a result that has a page too.
#[derive(Debug, Clone, Args)]
pub(crate) struct PageFlags {
    #[command(flatten)]
    pub(crate) text: JsonFlag,
    /// Also a page with pictures, in one file
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

impl PageFlags {
    /// Whether JSON is asked for.
    pub(crate) fn is_json(&self) -> bool {
        self.text.json
    }
}

/// The file of a profile.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProfileFlag {
    /// Where the profile goes [default: uvfs.contention]
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

/// Layouts to try.
#[derive(Debug, Clone, Args)]
pub(crate) struct LayoutFlag {
    /// Try a layout, as `uvfs contention what-if` does, against a run without it
    #[arg(long, value_name = "CHANGE", conflicts_with_all = ["html", "top", "group"])]
    pub(crate) what_if: Vec<String>,
}

/// The program to run.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProgramArgument {
    /// The program and its arguments, or a cargo command
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) program: Vec<OsString>,
}

/// How a profile is shown.
#[derive(Debug, Clone, Args)]
pub(crate) struct ShowFlags {
    #[command(flatten)]
    pub(crate) form: PageFlags,
    /// Cache lines, structures and locks of a list
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(crate) top: usize,
    /// Subsystems, for the structures: a pattern for names of structures, and the name of the group
    #[arg(long, value_name = "PATTERN=NAME")]
    pub(crate) group: Vec<String>,
}

/// `uvfs contention cargo`.
#[derive(Debug, Args)]
#[command(after_help = format!("{CARGO_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct CargoArguments {
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
    #[command(flatten)]
    pub(crate) seeds: SeedFlags,
    #[command(flatten)]
    pub(crate) show: ShowFlags,
    /// Where the profile goes; of a second program, its name is added
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) layout: LayoutFlag,
    /// Cargo's command and its options
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}

/// `uvfs contention cc`, `uvfs contention c++`.
#[derive(Debug, Args)]
#[command(after_help = format!("{COMPILER_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct CompilerArguments {
    /// The compiler: gcc, clang or the like [default: $CC or $CXX, else cc or c++]
    #[arg(long, value_name = "COMPILER")]
    pub(crate) cc: Option<String>,
    /// The compiler's options and files
    #[arg(
        value_name = "ARGUMENTS",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub(crate) words: Vec<OsString>,
}

/// `uvfs contention run`.
#[derive(Debug, Args)]
#[command(after_help = format!("{RUN_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
    #[command(flatten)]
    pub(crate) seeds: SeedFlags,
    #[command(flatten)]
    pub(crate) show: ShowFlags,
    #[command(flatten)]
    pub(crate) profile: ProfileFlag,
    #[command(flatten)]
    pub(crate) layout: LayoutFlag,
    #[command(flatten)]
    pub(crate) program: ProgramArgument,
}

/// `uvfs contention report`.
#[derive(Debug, Args)]
#[command(after_help = format!("{REPORT_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct ReportArguments {
    /// A profile
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) show: ShowFlags,
    /// One cache line, by its number in the report
    #[arg(long, value_name = "N", group = "part", conflicts_with = "json")]
    pub(crate) line: Option<usize>,
    /// The lines of one structure
    #[arg(long, value_name = "TYPE", group = "part", conflicts_with = "json")]
    pub(crate) structure: Option<String>,
    /// Latencies by the level that answered
    #[arg(long, group = "part", conflicts_with = "json")]
    pub(crate) hist: bool,
    /// Locks in virtual time
    #[arg(long, group = "part", conflicts_with = "json")]
    pub(crate) locks: bool,
}

/// `uvfs contention layout`.
#[derive(Debug, Args)]
#[command(after_help = format!("{LAYOUT_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct LayoutArguments {
    /// The type, as the report names it; its last word is enough
    #[arg(value_name = "TYPE")]
    pub(crate) name: String,
    /// A profile
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) form: JsonFlag,
}

/// `uvfs contention numa`.
#[derive(Debug, Args)]
#[command(after_help = format!("{NUMA_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct NumaArguments {
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
    #[command(flatten)]
    pub(crate) seeds: SeedFlags,
    #[command(flatten)]
    pub(crate) form: PageFlags,
    /// Also keep the two profiles, as FILE.1-node.contention and FILE.N-nodes.contention
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) program: ProgramArgument,
}

/// `uvfs contention sweep`.
#[derive(Debug, Args)]
#[command(after_help = format!("{SWEEP_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct SweepArguments {
    /// Numbers of cores; `4..64` doubles from the one to the other
    #[arg(long, value_name = "LIST", default_value = "1,2..128")]
    pub(crate) cores: String,
    /// Memory nodes; never more than cores [default: the machine file's, or 1]
    #[arg(long, value_name = "N")]
    pub(crate) nodes: Option<usize>,
    #[command(flatten)]
    pub(crate) machine: MachineFileFlag,
    #[command(flatten)]
    pub(crate) seeds: SeedFlags,
    /// How the throughput is counted: auto, fixed, per-core, counted, stdout:REGEX
    #[arg(long, value_name = "HOW", default_value = "auto")]
    pub(crate) work: String,
    #[command(flatten)]
    pub(crate) form: PageFlags,
    /// Check the sweep against the efficiency rules of a file
    #[arg(long, value_name = "RULES")]
    pub(crate) gate: Option<PathBuf>,
    /// Also keep the profiles, as FILE.N-cores.contention
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) program: ProgramArgument,
}

/// `uvfs contention compare`.
#[derive(Debug, Args)]
#[command(after_help = format!("{COMPARE_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct CompareArguments {
    /// The profile before
    pub(crate) old: PathBuf,
    /// The profile after
    pub(crate) new: PathBuf,
    #[command(flatten)]
    pub(crate) form: PageFlags,
    /// Compare although the machines differ
    #[arg(long)]
    pub(crate) any_machine: bool,
}

/// `uvfs contention gate`.
#[derive(Debug, Args)]
#[command(after_help = format!("{GATE_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct GateArguments {
    /// A profile
    pub(crate) file: PathBuf,
    /// The rules
    pub(crate) rules: PathBuf,
    #[command(flatten)]
    pub(crate) form: JsonFlag,
}

/// `uvfs contention what-if`.
#[derive(Debug, Args)]
#[command(after_help = format!("{WHAT_IF_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct WhatIfArguments {
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
    #[command(flatten)]
    pub(crate) seeds: SeedFlags,
    #[command(flatten)]
    pub(crate) form: JsonFlag,
    /// Keep the profile of the changed layout
    #[arg(long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Changes, then a profile of the unchanged program if there is one
    #[arg(value_name = "CHANGE", required = true)]
    pub(crate) words: Vec<String>,
    /// The program and its arguments, or a cargo command
    #[arg(value_name = "PROGRAM", required = true, last = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

/// `uvfs contention advise`.
#[derive(Debug, Args)]
#[command(after_help = format!("{ADVISE_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct AdviseArguments {
    #[command(flatten)]
    pub(crate) pace: PaceFlags,
    #[command(flatten)]
    pub(crate) form: JsonFlag,
    /// A profile
    pub(crate) file: PathBuf,
    /// The program and its arguments, or a cargo command: tries the advised changes
    #[arg(value_name = "PROGRAM", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

/// `uvfs contention import`.
#[derive(Debug, Args)]
#[command(after_help = format!("{IMPORT_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct ImportArguments {
    /// The output of `perf script`
    pub(crate) file: PathBuf,
    #[command(flatten)]
    pub(crate) show: ShowFlags,
    #[command(flatten)]
    pub(crate) profile: ProfileFlag,
}

/// `uvfs contention record`.
#[derive(Debug, Args)]
#[command(after_help = format!("{RECORD_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct RecordArguments {
    #[command(flatten)]
    pub(crate) show: ShowFlags,
    #[command(flatten)]
    pub(crate) profile: ProfileFlag,
    #[command(flatten)]
    pub(crate) program: ProgramArgument,
}

/// `uvfs contention machine`.
#[derive(Debug, Args)]
#[command(after_help = format!("{MACHINE_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct MachineArguments {
    #[command(flatten)]
    pub(crate) machine: MachineFlags,
    /// Write it to a file that is not there yet
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
}

/// `uvfs contention calibrate`.
#[derive(Debug, Args)]
#[command(after_help = format!("{CALIBRATE_HELP}\n\n{EXIT_STATUS}"))]
pub(crate) struct CalibrateArguments {
    #[command(flatten)]
    pub(crate) machine: MachineFileFlag,
    #[command(flatten)]
    pub(crate) form: JsonFlag,
    /// Write the machine to a file that is not there yet
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub(crate) write: Option<PathBuf>,
}

/// The runner of `uvfs contention cargo`.
#[derive(Debug, Args)]
pub(crate) struct ExecArguments {
    /// The folder of the session.
    pub(crate) session: PathBuf,
    /// The program and its arguments.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) program: Vec<OsString>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_may_stand_before_the_command() {
        // `uvfs contention --cores 8 cargo run` was refused with the tip "'cargo --cores' exists".
        let moved = |line: &str| {
            let words = behind_the_word(line.split(' ').map(OsString::from).collect());
            words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
        };
        let same = |line: &str| assert_eq!(moved(line), line);
        assert_eq!(
            moved("uvfs-contention --cores 8 --json cargo run --release"),
            "uvfs-contention cargo --cores 8 --json run --release"
        );
        assert_eq!(
            moved("uvfs-contention --seeds=2 numa ./prog"),
            "uvfs-contention numa --seeds=2 ./prog"
        );
        same("uvfs-contention cargo --cores 8 run");
        same("uvfs-contention --help");
        same("uvfs-contention --json --help");
        same("uvfs-contention --cores");
        same("uvfs-contention --cores 8");
        same("uvfs-contention");
    }

    /// `docs/reference-contention.md` is what `--help` prints.
    #[test]
    fn the_reference_is_what_help_says() {
        let opening = "# Reference: `uvfs contention`\n\nEvery command and flag of the analyser with its default, as \
                       `--help` prints it; what they are for is in [contention.md](contention.md).\n\nThis file is \
                       written by a test: `UVFS_WRITE_REFERENCE=1 cargo test -p uvfs -p uvfs-contention-cli reference`.";
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference-contention.md");
        let whole = <ContentionArguments as clap::CommandFactory>::command();
        let text = uvfs_terminal::reference::text(whole, opening);
        uvfs_terminal::reference::check(path.as_ref(), &text).unwrap();
    }

    /// Each command has a manual page.
    #[test]
    fn the_manual_pages_are_made() {
        let whole = <ContentionArguments as clap::CommandFactory>::command();
        uvfs_terminal::manual::pages(whole, &[]).unwrap();
    }

    /// The subcommands that are shown.
    fn commands() -> Vec<clap::Command> {
        let whole = <ContentionArguments as clap::CommandFactory>::command();
        let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
        std::iter::once(whole.clone()).chain(shown).collect()
    }

    #[test]
    fn every_command_has_examples() {
        for command in commands() {
            let text = command.get_after_help().expect("more help").to_string();
            let examples = text.split("Examples:\n").nth(1);
            let first = examples.and_then(|examples| examples.lines().next()).unwrap_or("");
            assert!(first.contains("uvfs contention"), "{}: {text}", command.get_name());
        }
    }

    #[test]
    fn help_wraps_evenly() {
        // Lines that were broken by hand at 115 columns were broken again at 100: long, short, long, short.
        for command in commands() {
            let text = command.get_after_help().expect("more help").to_string();
            let is_prose =
                |line: &str| !line.is_empty() && !line.starts_with(' ') && !line.ends_with(':');
            for (line, next) in text.lines().zip(text.lines().skip(1).chain([""])) {
                let where_ = format!("{}: {line}", command.get_name());
                assert!(
                    is_prose(line) || line.chars().count() <= 80 || line.ends_with(':'),
                    "{where_}"
                );
                assert!(!(is_prose(line) && is_prose(next)), "broken by hand: {where_}");
            }
        }
    }

    #[test]
    fn no_line_of_help_is_wider_than_the_terminal() {
        for command in commands() {
            for columns in [80, 100] {
                let name = command.get_name().to_string();
                let help = command.clone().term_width(columns).render_long_help().to_string();
                for line in help.lines() {
                    assert!(line.chars().count() <= columns, "{name} at {columns}: {line}");
                }
            }
        }
    }
}
