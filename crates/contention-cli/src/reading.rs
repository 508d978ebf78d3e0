//! Commands that read profiles: `report`, `layout`, `compare`, `gate`, `import`; and how every command shows one.
//!
//! # Boundary
//! Files to text on standard output; the library computes the results and their layout.

use super::flags::{
    CompareArguments, GateArguments, ImportArguments, LayoutArguments, ReportArguments, ShowFlags,
};
use crate::Failure;
use rustix::termios::tcgetwinsize;
use serde::Serialize;
use std::fs;
use std::io::{BufReader, IsTerminal, Read, stdout};
use std::path::Path;
use std::process::ExitCode;
use uvfs_coherence::Profile;
use uvfs_coherence::file::DEFAULT_NAME;
use uvfs_contention::Ledger;
use uvfs_contention::analysis::{self, Grouping};
use uvfs_contention::compare;
use uvfs_contention::gate::{self, Outcome, Rules};
use uvfs_contention::import::{self as importer, Imported};
use uvfs_contention::report::{self, Options, Section};

/// The parts of a report, as far as `show` names them.
pub(super) fn options(show: &ShowFlags) -> Result<Options, Failure> {
    let grouping = Grouping::parse(&show.group)?;
    Ok(Options { top: show.top, grouping, ..plain_options() })
}

/// Options for the width and the colours of the terminal, if there is one.
pub(super) fn plain_options() -> Options {
    let terminal = stdout().is_terminal();
    let width =
        tcgetwinsize(stdout()).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    let colour = uvfs_terminal::color::is_wanted(&stdout());
    Options { width: width.filter(|_| terminal), colour, ..Options::default() }
}

/// Shows `profile`: a report or JSON on standard output, and the page if one is asked for.
pub(super) fn show(profile: &Profile, show: &ShowFlags, options: &Options) -> Result<(), Failure> {
    print(&Ledger::new(profile), show, options)
}

fn print(ledger: &Ledger<'_>, show: &ShowFlags, options: &Options) -> Result<(), Failure> {
    if show.form.is_json() {
        crate::print_line(&report::json(ledger, options));
    } else {
        crate::print_line(report::text(ledger, options).trim_end());
    }
    show.form
        .html
        .as_deref()
        .map_or(Ok(()), |path| write_page(path, &report::html(ledger, options)))
}

/// Writes a page.
pub(super) fn write_page(path: &Path, page: &str) -> Result<(), Failure> {
    check_room("--html", Some(path))?;
    fs::write(path, page).map_err(|error| {
        Failure::refused(format!(
            "--html {}: {}; name another file",
            path.display(),
            crate::cause(&error)
        ))
    })
}

/// The first bytes of a profile.
const PROFILE: &[u8] = b"{\"record\":\"meta\"";

/// Whether the file has nothing to lose: it is not there, it is empty, it is no regular file, or it begins with
/// `start`.
fn may_be_replaced(path: &Path, start: &[u8]) -> bool {
    if !fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0) {
        return true;
    }
    let mut first = Vec::new();
    let read =
        fs::File::open(path).and_then(|file| file.take(start.len() as u64).read_to_end(&mut first));
    read.is_ok() && first == start
}

/// Whether a profile may be written here: no other file is lost by it.
pub(super) fn is_room_for_profile(path: &Path) -> bool {
    may_be_replaced(path, PROFILE)
}

/// Refuses a file that could not be written later, or that is no output of ours, before runs whose results would then be
/// lost. `flag` names the output: `--html` a page, others a profile.
pub(super) fn check_room(flag: &str, path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let shown = path.display();
    if path.is_dir() {
        return Err(Failure::refused(format!("{flag} {shown}: Is a directory; name a file")));
    }
    let (start, what) = if flag == "--html" {
        (report::PAGE_HEAD.as_bytes(), "a page of this tool")
    } else {
        (PROFILE, "a profile of this tool")
    };
    if !may_be_replaced(path, start) {
        return Err(Failure::refused(format!(
            "{flag} {shown}: it is there and not {what}; name another file"
        )));
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            Err(Failure::refused(format!("{flag} {shown}: its folder is not there; make it first")))
        }
        _ => Ok(()),
    }
}

/// Prints a result for programs.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::refused(format!("--json: {error}")))?;
    crate::print_line(&text);
    Ok(())
}

/// `uvfs contention report`.
pub(super) fn report(arguments: &ReportArguments) -> Result<ExitCode, Failure> {
    let profile = Profile::read(&arguments.file)?;
    let ledger = Ledger::new(&profile);
    let mut options = options(&arguments.show)?;
    if let Some(number) = arguments.line {
        let lines = analysis::groups(&ledger).len();
        if number == 0 || number > lines {
            let name = arguments.file.display();
            return Err(Failure::refused(format!(
                "--line {number}: {name} has {lines} contended lines; name one of them, from 1 on"
            )));
        }
        (options.line, options.sections) = (Some(number), vec![Section::Lines]);
    } else if let Some(name) = &arguments.structure {
        // A variable has no type of its name, but lines.
        let tables = analysis::groups(&ledger);
        options.structure = Some(match tables.iter().any(|table| table.structure == *name) {
            true => name.clone(),
            false => whole_name(&profile, &ledger, name)?,
        });
        options.sections = vec![Section::Lines, Section::Layout, Section::Flow];
    } else if arguments.hist {
        options.sections = vec![Section::Histogram];
    } else if arguments.locks {
        options.sections = vec![Section::Locks];
        options.top = options.top.max(30);
    }
    print(&ledger, &arguments.show, &options)?;
    Ok(ExitCode::SUCCESS)
}

/// The name by which the analyses find the user's `name`: `Super` may exist inside an `ArcInner<Super>` only.
fn whole_name(profile: &Profile, ledger: &Ledger<'_>, name: &str) -> Result<String, Failure> {
    let is_object = profile.objects.iter().any(|object| object.name == name);
    if is_object || analysis::layout_heat(ledger, name).is_some() {
        return Ok(name.to_string());
    }
    let around: Vec<_> = profile
        .types
        .iter()
        .map(|one| one.name.as_str())
        .filter(|whole| has_word(whole, name))
        .collect();
    match around.as_slice() {
        [] => Err(unknown_type(ledger, name)),
        [one] => Ok((*one).to_string()),
        several => Err(Failure::refused(format!(
            "{name}: it is in several types of the profile: {}; name one of them",
            several.join(", ")
        ))),
    }
}

/// Whether `name` stands in `whole` between letters that no name has.
fn has_word(whole: &str, name: &str) -> bool {
    let bounds = |letter: Option<char>| {
        !letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_')
    };
    !name.is_empty()
        && whole.match_indices(name).any(|(at, _)| {
            bounds(whole[..at].chars().next_back())
                && bounds(whole[at + name.len()..].chars().next())
        })
}

/// The refusal of a type, with those that there are.
fn unknown_type(ledger: &Ledger<'_>, name: &str) -> Failure {
    let names: Vec<_> = analysis::layouts(ledger, 8).into_iter().map(|one| one.name).collect();
    let known = if names.is_empty() {
        "it knows none; build with debug information".to_string()
    } else {
        format!("the dearest that it knows are {}", names.join(", "))
    };
    Failure::refused(format!("{name}: the profile has no type of that name; {known}"))
}

/// `uvfs contention layout`.
pub(super) fn layout(arguments: &LayoutArguments) -> Result<ExitCode, Failure> {
    let profile = Profile::read(&arguments.file)?;
    let ledger = Ledger::new(&profile);
    let name = whole_name(&profile, &ledger, &arguments.name)?;
    let Some(heat) = analysis::layout_heat(&ledger, &name) else {
        return Err(unknown_type(&ledger, &arguments.name));
    };
    if arguments.form.json {
        print_json(&heat)?;
    } else {
        let options =
            Options { sections: vec![Section::Layout], structure: Some(name), ..plain_options() };
        crate::print_line(report::text(&ledger, &options).trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// `uvfs contention compare`.
pub(super) fn compare(arguments: &CompareArguments) -> Result<ExitCode, Failure> {
    let (old, new) = (Profile::read(&arguments.old)?, Profile::read(&arguments.new)?);
    let comparison =
        compare::compare(&Ledger::new(&old), &Ledger::new(&new), arguments.any_machine)?;
    if arguments.form.is_json() {
        print_json(&comparison)?;
    } else {
        crate::print_line(report::compare_text(&comparison, &plain_options()).trim_end());
    }
    if let Some(path) = &arguments.form.html {
        let title = format!("{} and {}", arguments.old.display(), arguments.new.display());
        write_page(path, &report::compare_html(&comparison, &title))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The rules of a file.
pub(super) fn rules(path: &Path) -> Result<Rules, Failure> {
    let shown = path.display().to_string();
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::refused(format!("{shown}: {}; name a file with rules", crate::cause(&error)))
    })?;
    Ok(Rules::parse(&text, &shown)?)
}

/// `uvfs contention gate`.
pub(super) fn gate(arguments: &GateArguments) -> Result<ExitCode, Failure> {
    let rules = rules(&arguments.rules)?;
    let profile = Profile::read(&arguments.file)?;
    let folder = arguments.rules.parent().unwrap_or(Path::new("."));
    let outcome =
        gate::check(&Ledger::new(&profile), &rules, |path| Ok(Profile::read(folder.join(path))?))?;
    judge(&outcome, &arguments.rules, arguments.form.json)
}

/// Says which rules are broken; the exit status.
pub(super) fn judge(outcome: &Outcome, rules: &Path, json: bool) -> Result<ExitCode, Failure> {
    if json {
        print_json(outcome)?;
    } else {
        let file = rules.display();
        for note in &outcome.notes {
            eprintln!("uvfs: {file}: {note}");
        }
        for line in verdicts(outcome, rules) {
            crate::print_line(&line);
        }
    }
    Ok(status(outcome))
}

/// A line for each broken rule, and one with the number of those that hold.
pub(super) fn verdicts(outcome: &Outcome, rules: &Path) -> Vec<String> {
    let file = rules.display();
    let verdict = |broken: &gate::Broken| {
        let certain = match broken.certain {
            Some(true) => "",
            Some(false) => " (within the spread of the seeds)",
            None => " (a single seed has no spread)",
        };
        format!("{file}:{}: broken: {}: {}{certain}", broken.line, broken.rule, broken.evidence)
    };
    let held = outcome.checked - outcome.broken.len();
    let sum = format!("{held} of {} rules hold", outcome.checked);
    outcome.broken.iter().map(verdict).chain([sum]).collect()
}

/// The exit status of `outcome`.
pub(super) fn status(outcome: &Outcome) -> ExitCode {
    if outcome.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The parts of a text that were left out, or not understood.
fn notes(found: &Imported) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some((number, text)) = &found.first_unknown {
        let lines = found.unknown;
        notes
            .push(format!("{lines} lines were not understood, the first is line {number}: {text}"));
    }
    if found.unclear > 0 {
        let levels: Vec<_> = found
            .unclear_levels
            .iter()
            .map(|(words, count)| format!("`{words}` ({count})"))
            .collect();
        notes.push(format!(
            "the samples do not name the level that answered {} accesses: {}",
            found.unclear,
            levels.join(", ")
        ));
    }
    if found.others > 0 {
        notes.push(format!("{} samples are no access to data", found.others));
    }
    notes
}

/// `uvfs contention import`.
pub(super) fn import(arguments: &ImportArguments) -> Result<ExitCode, Failure> {
    let mut options = options(&arguments.show)?;
    let shown = arguments.file.display();
    let file = fs::File::open(&arguments.file).map_err(|error| {
        Failure::refused(format!(
            "{shown}: {}; name what `perf script` printed",
            crate::cause(&error)
        ))
    })?;
    let line_bytes = uvfs_coherence::Machine::default().line_bytes;
    let found = importer::read(BufReader::new(file), &shown.to_string(), line_bytes)?;
    options.notes.extend(notes(&found));
    // perf named the places. Its addresses are those of the process, which say nothing of the program's file.
    let profile = found.profile;
    let output = arguments.profile.output.as_deref().unwrap_or(Path::new(DEFAULT_NAME));
    check_room("--output", Some(output))?;
    profile.write(output)?;
    show(&profile, &arguments.show, &options)?;
    if !arguments.show.form.is_json() {
        eprintln!("uvfs: {}: the profile, of {} accesses", output.display(), found.samples);
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_import_left_out_is_said() {
        let rest = "7f00 62 |OP LOAD|LVL L1 hit|SNP N/A|TLB L1 hit|LCK No|BLK  N/A 9 4010 f (b)";
        let other = rest.replace("LOAD", "N/A");
        let unclear = rest.replace("L1 hit|SNP", "Quux hit|SNP");
        let text = format!("a 1 ev: {rest}\na 1 ev: {other}\na 1 ev: {unclear}\nnonsense\n");
        let found = importer::read(text.as_bytes(), "text", 64).unwrap();
        let said = notes(&found).join("\n");
        for words in ["is line 4: nonsense", "`Quux hit` (1)", "1 samples are no access"] {
            assert!(said.contains(words), "{said}");
        }
        let text = format!("a 1 ev: {rest}");
        assert!(notes(&importer::read(text.as_bytes(), "text", 64).unwrap()).is_empty());
    }

    #[test]
    fn a_type_is_found_within_another_by_its_whole_word() {
        assert!(has_word("alloc::sync::ArcInner<fight::Super>", "Super"));
        assert!(has_word("alloc::sync::ArcInner<fight::Super>", "fight::Super"));
        assert!(!has_word("alloc::sync::ArcInner<fight::Superb>", "Super"));
        assert!(!has_word("MySuper", "Super") && !has_word("Super", ""));
    }
}
