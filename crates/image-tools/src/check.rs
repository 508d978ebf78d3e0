//! `uvfs image check`: everything in an image, read and counted.

use crate::units::counted;
use crate::{Failure, print_line};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::ffi::OsStr;
use std::process::ExitCode;
use uvfs_ext::Fault;
use uvfs_ext::check::{Observer, check};

/// Prints each fault as it is found, then how much was read.
pub(super) fn run(name: &OsStr, json: bool) -> Result<ExitCode, Failure> {
    let image = super::open(name)?;
    let bar = ProgressBar::new(image.superblock().inodes.into());
    let style = ProgressStyle::with_template("{bar:30} {percent} %, {pos} of {len} inodes");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let mut printer = Printer { json, bar };
    let summary = check(&image, &mut printer);
    printer.bar.finish_and_clear();
    let shown = name.to_string_lossy();
    let summary = summary.map_err(|error| Failure::refused(format!("image {shown}: {error}")))?;
    let faults = summary.faults;
    print_line(&if json {
        let (inodes, blocks) = (summary.inodes, summary.blocks);
        let (directories, names) = (summary.directories, summary.names);
        json!({
            "faults": faults, "groups": summary.groups, "inodes": inodes,
            "directories": directories, "names": names, "blocks": blocks,
        })
        .to_string()
    } else {
        format!(
            "{}; {}, {} with {}, {} in {}",
            counted(faults, "fault", "faults"),
            counted(summary.inodes, "inode", "inodes"),
            counted(summary.directories, "directory", "directories"),
            counted(summary.names, "name", "names"),
            counted(summary.blocks, "block", "blocks"),
            counted(u64::from(summary.groups), "group", "groups")
        )
    });
    match faults {
        0 => Ok(ExitCode::SUCCESS),
        faults => Err(Failure::refused(format!(
            "image {shown}: {}; e2fsck can repair a copy of it",
            counted(faults, "fault", "faults")
        ))),
    }
}

struct Printer {
    json: bool,
    bar: ProgressBar,
}

impl Observer for Printer {
    fn fault(&mut self, fault: &Fault) {
        let line = if self.json {
            json!({ "inode": fault.inode, "block": fault.block, "fault": fault.what }).to_string()
        } else {
            crate::shown::shown(&fault.to_string()).into_owned()
        };
        self.bar.suspend(|| print_line(&line));
    }

    fn progress(&mut self, inodes: u64, _: u64) {
        self.bar.set_position(inodes);
    }
}
