//! `uvfs contention machine` and `calibrate`, and the machine that flags name.
//!
//! # Boundary
//! Files and flags; the library describes and measures machines.

use super::flags::{CalibrateArguments, MachineArguments, MachineFileFlag, MachineFlags};
use crate::Failure;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;
use uvfs_coherence::Machine;
use uvfs_coherence::machine::Source;
use uvfs_contention::calibrate::{Calibration, Native, Row, calibrate as measure};
use uvfs_contention::machine_file;

/// The machine of the file, or the default one.
pub(super) fn of_file(flag: &MachineFileFlag) -> Result<Machine, Failure> {
    match &flag.machine {
        None => Ok(Machine::default()),
        Some(path) => Ok(machine_file::read(path)?),
    }
}

/// The machine that the flags name, checked.
pub(super) fn of_flags(flags: &MachineFlags) -> Result<Machine, Failure> {
    let machine = of_file(&flags.file)?;
    let (cores, nodes) =
        (flags.cores.unwrap_or(machine.cores), flags.nodes.unwrap_or(machine.nodes));
    let machine = machine.with(cores, nodes);
    machine.validate()?;
    Ok(machine)
}

/// `uvfs contention machine`.
pub(super) fn show(arguments: &MachineArguments) -> Result<ExitCode, Failure> {
    put(&of_flags(&arguments.machine)?, arguments.write.as_deref())
}

/// `uvfs contention calibrate`.
pub(super) fn calibrate(arguments: &CalibrateArguments) -> Result<ExitCode, Failure> {
    let base = of_file(&arguments.machine)?;
    let native = Native::new()?;
    let found = measure(&base, |quantity| {
        eprintln!("uvfs: measuring {}", quantity.path());
        native.measure(quantity)
    })?;
    let machine = Machine { name: name_of_this(), ..found.machine };
    if arguments.form.json {
        super::reading::print_json(&Calibration { machine, rows: found.rows })?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::print_line(rows_text(&found.rows).trim_end());
    match &arguments.write {
        Some(path) => put(&machine, Some(path)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// A line for each quantity, in cycles.
fn rows_text(rows: &[Row]) -> String {
    let width = rows.iter().map(|row| row.path.len()).max().unwrap_or(0);
    rows.iter()
        .map(|row| {
            let value = row.parameter.value;
            let source = match row.parameter.source {
                Source::Measured => "measured",
                Source::Assumed => "assumed",
                Source::Scaled => "assumed, scaled",
            };
            let more = match (row.spread, &row.reason) {
                (Some((low, high)), _) => format!(", {low} to {high}"),
                (None, Some(reason)) => format!(": {reason}"),
                (None, None) => String::new(),
            };
            format!("{:width$} {value:>9} {source}{more}\n", row.path)
        })
        .collect()
}

/// The processor, as the kernel names it.
fn name_of_this() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    model.map_or("this machine", |(_, name)| name.trim()).to_string()
}

/// Prints `machine`, or writes it.
fn put(machine: &Machine, path: Option<&Path>) -> Result<ExitCode, Failure> {
    let text = machine.to_text();
    match path {
        None => crate::print_line(text.trim_end()),
        Some(path) => {
            let failed = |error: &std::io::Error| {
                let shown = path.display();
                Failure::refused(format!(
                    "--write {shown}: {}; name a new file",
                    crate::cause(error)
                ))
            };
            let mut file = File::create_new(path).map_err(|error| failed(&error))?;
            file.write_all(text.as_bytes()).map_err(|error| failed(&error))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use uvfs_coherence::machine::Parameter;
    use uvfs_contention::calibrate::Quantity;

    #[test]
    fn a_number_says_where_it_is_from() {
        let row = |quantity: Quantity, parameter, spread, reason: Option<&str>| Row {
            quantity,
            path: quantity.path(),
            parameter,
            spread,
            reason: reason.map(String::from),
        };
        let text = rows_text(&[
            row(Quantity::Pause, Parameter::measured(41.0), Some((40.0, 43.0)), None),
            row(Quantity::RemoteMemory, Parameter::scaled(380.0), None, Some("one node")),
            row(Quantity::Atomic, Parameter::assumed(18.0), None, Some("why")),
        ]);
        assert!(text.contains("41 measured, 40 to 43\n"), "{text}");
        assert!(text.contains("380 assumed, scaled: one node\n"), "{text}");
        assert!(text.contains("18 assumed: why\n"), "{text}");
    }
}
