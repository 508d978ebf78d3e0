//! The command lines of `uvfs top` and `uvfs web`.
//!
//! # Boundary
//! Names, defaults and help texts.

use crate::top::keys::DESCRIBED;
use clap::Args;
use std::path::PathBuf;
use uvfs_terminal::command_line::EXIT_STATUS;

const TOP_HELP: &str = "\
Without a terminal each mount is a line per interval. The figures of a directory are those of its own entries; on the third level \
they include all below it. Rates and percentiles are of one interval; a share of hits in parentheses is of all the time.

Examples:
  uvfs top                                 all mounts
  uvfs top /mnt/data --interval 250ms      one of them, four times a second
  uvfs top --once                          a picture of one second, as text
  uvfs top --json | jq '.mounts[].requests[0]'
                                           the most frequent request";

const WEB_HELP: &str = "\
It prints an address and serves it until Ctrl-C. Behind the # of the address is a token: with it, a reader can see and drop cached \
objects, as you can; without it the page is empty. Nothing is encrypted, so it listens on this machine alone; docs/web.md has more.

Examples:
  uvfs web                                 all mounts
  uvfs web /mnt/data --listen 9568         one of them, at a port of your choice
  ssh -L 9568:127.0.0.1:9568 HOST          forwards it from another machine";

/// The keys of `uvfs top`.
fn top_keys() -> String {
    let lines = DESCRIBED.iter().map(|(key, _, effect)| format!("  {key:<8}{effect}\n"));
    format!("Keys:\n{}", lines.collect::<String>())
}

/// `uvfs top`.
#[derive(Debug, Args)]
#[command(after_help = format!("{}\n{TOP_HELP}\n\n{EXIT_STATUS}", top_keys()))]
pub struct TopArguments {
    /// The mounts; without one, all that there are
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoints: Vec<PathBuf>,
    /// Show the events of one interval once, as text, and end
    #[arg(long)]
    pub once: bool,
    /// One JSON object per interval and line; docs/top.md has its fields
    #[arg(long)]
    pub json: bool,
    /// Time between two looks: seconds, or 250ms, 1m; at least 100ms [default: 1s]
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    pub interval: Option<String>,
}

/// `uvfs web`.
#[derive(Debug, Args)]
#[command(after_help = format!("{WEB_HELP}\n\n{EXIT_STATUS}"))]
pub struct WebArguments {
    /// The mounts; without one, all that there are
    #[arg(value_name = "MOUNTPOINT")]
    pub mountpoints: Vec<PathBuf>,
    /// Where to listen: a port of the loopback interface, such as 9568, 0 for any that is free, or a loopback address with a
    /// port
    #[arg(long, value_name = "ADDRESS", default_value = "0")]
    pub listen: String,
}
