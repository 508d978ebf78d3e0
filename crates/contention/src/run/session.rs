//! Programs that cargo starts: cargo has a runner, the runner has a session.
//!
//! # Boundary
//! A folder with the runner's orders and results. The driver makes it, starts cargo, and reads it
//! when cargo has ended; in between cargo starts the driver's own program as the runner, once for each
//! program of the project.
//!
//! # Concurrency
//! One file for each record, named by its process; cargo's own subcommands start one program after the
//! other, others may start several.
//!
//! # Why
//! Only cargo knows which programs a command means, with which arguments, in which folder and environment.
//! It is therefore left to cargo, and nothing is guessed from files in the target folder. Weakness: a program
//! that a program of the project starts runs natively.

use super::{Failure, Outcome, Plan, Progress, attempt};
use crate::Error;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const ORDER: &str = "order.json";
const RECORD: &str = "record";

/// The runner's orders for each program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Order {
    /// How to run; program, arguments, environment and folder are cargo's.
    pub plan: Plan,
    /// Programs outside it, such as examples in documentation, run natively.
    pub target_folder: PathBuf,
    /// Where a profile goes; `None`: into the target folder, named by its program.
    pub output: Option<PathBuf>,
    /// Whether every profile of the target folder has the same name, for commands with one program.
    pub single: bool,
    /// Whether programs are only to be found, and not run.
    pub find: bool,
}

/// The runner's result for one program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The program, as cargo started it.
    pub program: PathBuf,
    /// The program's arguments.
    pub args: Vec<OsString>,
    /// The program's environment; only when programs are found.
    pub env: Vec<(OsString, OsString)>,
    /// The program's working folder.
    pub folder: PathBuf,
    /// Where the profile is, if there is one.
    pub profile: Option<PathBuf>,
    /// Seeds that failed, and how.
    pub failures: Vec<(u64, u8, String)>,
    /// Remarks about its names.
    pub remarks: Vec<String>,
}

/// The driver's side.
#[derive(Debug)]
pub struct Session {
    folder: TempDir,
}

impl Session {
    /// Makes the folder, with `order` in it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn new(order: &Order) -> Result<Self, Error> {
        let folder = tempfile::Builder::new()
            .prefix("uvfs-contention-")
            .tempdir()
            .map_err(|error| Error::io(std::env::temp_dir().display(), &error))?;
        write(&folder.path().join(ORDER), order)?;
        Ok(Self { folder })
    }

    /// The session's folder, for the runner's command line.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The runner's results, in order.
    ///
    /// # Errors
    /// A record cannot be read.
    pub fn records(&self) -> Result<Vec<Record>, Error> {
        let failed = |error: &std::io::Error| Error::io(self.folder.path().display(), error);
        let mut found = Vec::new();
        for entry in fs::read_dir(self.folder.path()).map_err(|error| failed(&error))? {
            let entry = entry.map_err(|error| failed(&error))?;
            if entry.path().extension().is_some_and(|extension| extension == RECORD) {
                let written = entry.metadata().and_then(|found| found.modified());
                found.push((written.map_err(|error| failed(&error))?, entry.path()));
            }
        }
        found.sort();
        found.into_iter().map(|(_, path)| read(&path)).collect()
    }
}

/// The runner's side: its orders.
///
/// # Errors
/// There is no session at `folder`.
pub fn order(folder: &Path) -> Result<Order, Error> {
    read(&folder.join(ORDER))
}

/// Runs `program` as `order` says, and leaves a record in the session at `folder`.
///
/// # Errors
/// It cannot be run.
pub fn run(
    folder: &Path,
    order: &Order,
    program: &Path,
    args: &[OsString],
    progress: Progress<'_>,
) -> Result<Vec<Failure>, Error> {
    let here = std::env::current_dir().map_err(|error| Error::io("the current folder", &error))?;
    let mut record = Record {
        program: std::path::absolute(program)
            .map_err(|error| Error::io(program.display(), &error))?,
        args: args.to_vec(),
        env: Vec::new(),
        folder: here,
        profile: None,
        failures: Vec::new(),
        remarks: Vec::new(),
    };
    let file = folder.join(format!("{}.{RECORD}", std::process::id()));
    if order.find {
        record.env = std::env::vars_os().collect();
        write(&file, &record)?;
        return Ok(Vec::new());
    }
    let plan = Plan { program: program.into(), args: args.to_vec(), ..order.plan.clone() };
    let Outcome { profile, failures, remarks, interrupted, .. } = attempt(&plan, progress)?;
    record.failures = failures
        .iter()
        .map(|failure| (failure.seed, failure.status, failure.cause.clone()))
        .collect();
    record.remarks = remarks;
    if let Some(profile) = profile {
        let path = order.profile_path(program, folder)?;
        profile.write(&path)?;
        record.profile = Some(path);
    }
    write(&file, &record)?;
    if interrupted {
        return Err(Error::new(format!("{}: interrupted", program.display())));
    }
    Ok(failures)
}

impl Order {
    /// Whether `program` is one of the project's.
    pub fn is_ours(&self, program: &Path) -> bool {
        match (fs::canonicalize(program), fs::canonicalize(&self.target_folder)) {
            (Ok(program), Ok(folder)) => program.starts_with(folder),
            _ => false,
        }
    }

    /// Where the profile of `program` goes. A second program of one session gets its name added to the file
    /// that the user named; a second of the same name a number.
    fn profile_path(&self, program: &Path, session: &Path) -> Result<PathBuf, Error> {
        let name = plain_name(program);
        let default = if self.single {
            uvfs_coherence::file::DEFAULT_NAME.into()
        } else {
            format!("{name}.contention")
        };
        let path = &self.output.clone().unwrap_or_else(|| self.target_folder.join(default));
        let mut taken = HashSet::new();
        for entry in
            fs::read_dir(session).map_err(|error| Error::io(session.display(), &error))?.flatten()
        {
            if entry.path().extension().is_some_and(|extension| extension == RECORD) {
                taken.extend(read::<Record>(&entry.path())?.profile);
            }
        }
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let extension =
            path.extension().unwrap_or("contention".as_ref()).to_string_lossy().into_owned();
        let with_name = |number: usize| match number {
            0 => path.clone(),
            _ if self.output.is_none() && !self.single => {
                path.with_file_name(format!("{name}-{}.{extension}", number + 1))
            }
            1 => path.with_file_name(format!("{stem}-{name}.{extension}")),
            _ => path.with_file_name(format!("{stem}-{name}-{number}.{extension}")),
        };
        Ok((0..).map(with_name).find(|path| !taken.contains(path)).unwrap_or_else(|| path.clone()))
    }
}

/// A program's name without the hash that cargo puts behind it.
fn plain_name(program: &Path) -> String {
    let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match name.rsplit_once('-') {
        Some((plain, hash))
            if hash.len() == 16
                && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
                && !plain.is_empty() =>
        {
            plain.to_string()
        }
        _ => name,
    }
}

fn write(path: &Path, value: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_vec(value)
        .map_err(|error| Error::new(format!("{}: {error}", path.display())))?;
    fs::write(path, text).map_err(|error| Error::io(path.display(), &error))
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> Result<T, Error> {
    let text = fs::read(path).map_err(|error| Error::io(path.display(), &error))?;
    serde_json::from_slice(&text).map_err(|error| {
        Error::new(format!("{}: {error}; it is for programs that cargo starts", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(output: Option<&str>, single: bool) -> Order {
        Order {
            plan: Plan::new("", Vec::new()),
            target_folder: "/t".into(),
            output: output.map(PathBuf::from),
            single,
            find: false,
        }
    }

    #[test]
    fn names_lose_their_hash() {
        assert_eq!(plain_name(Path::new("/t/deps/map-0123456789abcdef")), "map");
        assert_eq!(plain_name(Path::new("/t/two-words")), "two-words");
        assert_eq!(plain_name(Path::new("/t/-0123456789abcdef")), "-0123456789abcdef");
    }

    #[test]
    fn profiles_do_not_overwrite_each_other() {
        let session = Session::new(&order(Some("/o/p.contention"), false)).unwrap();
        let order = super::order(session.folder()).unwrap();
        let program = Path::new("/t/map-0123456789abcdef");
        let first = order.profile_path(program, session.folder()).unwrap();
        assert_eq!(first, Path::new("/o/p.contention"));
        let record = Record {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            folder: "/".into(),
            profile: Some(first),
            failures: Vec::new(),
            remarks: Vec::new(),
        };
        write(&session.folder().join("1.record"), &record).unwrap();
        let second = order.profile_path(program, session.folder()).unwrap();
        assert_eq!(second, Path::new("/o/p-map.contention"));
        write(&session.folder().join("2.record"), &Record { profile: Some(second), ..record })
            .unwrap();
        let third = order.profile_path(program, session.folder()).unwrap();
        assert_eq!(third, Path::new("/o/p-map-2.contention"));
        assert_eq!(session.records().unwrap().len(), 2);
    }

    #[test]
    fn a_library_and_a_program_of_one_name_keep_both_profiles() {
        // `cargo test` of a package with src/lib.rs and src/main.rs starts two programs of the same name. The
        // second, which had no tests, wrote its empty profile over the first one's.
        let session = Session::new(&order(None, false)).unwrap();
        let order = super::order(session.folder()).unwrap();
        let path =
            |program: &str| order.profile_path(Path::new(program), session.folder()).unwrap();
        for (number, expected) in [(1, "adv"), (2, "adv-2"), (3, "adv-3")] {
            let profile = path(&format!("/t/adv-000000000000000{number}"));
            assert_eq!(profile, Path::new("/t").join(format!("{expected}.contention")));
            let record = Record {
                program: "/t/adv".into(),
                args: Vec::new(),
                env: Vec::new(),
                folder: "/".into(),
                profile: Some(profile),
                failures: Vec::new(),
                remarks: Vec::new(),
            };
            write(&session.folder().join(format!("{number}.record")), &record).unwrap();
        }
    }

    #[test]
    fn without_a_file_the_target_folder_has_it() {
        let session = Session::new(&order(None, true)).unwrap();
        let path =
            |order: Order| order.profile_path(Path::new("/t/map"), session.folder()).unwrap();
        assert_eq!(path(order(None, true)), Path::new("/t/uvfs.contention"));
        assert_eq!(path(order(None, false)), Path::new("/t/map.contention"));
    }

    #[test]
    fn what_is_no_session_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert!(super::order(folder.path()).unwrap_err().to_string().contains("No such file"));
        fs::write(folder.path().join(ORDER), "{").unwrap();
        assert!(
            super::order(folder.path())
                .unwrap_err()
                .to_string()
                .contains("for programs that cargo starts")
        );
    }
}
