//! The program to run: found, and refused where a run would mean nothing.
//!
//! # Boundary
//! Looks at files; starts nothing.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! A program that the loader gives no runtime runs as ever and leaves no profile, or dies in two sanitizers
//! at once. Both are known from its file beforehand, and a refusal that names the remedy is better.
//! Weakness: a program that is fine and then replaces itself by another one is noticed by its missing
//! profile only.

use crate::Error;
use crate::build::inspect::{Form, Inspection};
use std::env;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A program that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program's file, absolute.
    pub path: PathBuf,
    /// Whether it has debug information, without which there are no names of fields.
    pub debug: bool,
}

impl Program {
    /// Finds `name` as a shell does, and looks at it.
    ///
    /// # Errors
    /// It is not there, cannot be executed, or cannot be run here: each with its remedy.
    pub fn find(name: &Path) -> Result<Self, Error> {
        let path = locate(name)?;
        let found = Inspection::of(&path)?;
        refusal(&path, &found).map_or(Ok(Self { path, debug: found.debug }), Err)
    }
}

/// The file that `name` means: as it is when it has a slash, of `PATH` otherwise.
fn locate(name: &Path) -> Result<PathBuf, Error> {
    let shown = name.display();
    let absolute =
        |path: &Path| std::path::absolute(path).map_err(|error| Error::io(path.display(), &error));
    if name.components().count() > 1 || name.to_string_lossy().contains('/') {
        let found = fs::metadata(name).map_err(|error| Error::io(name.display(), &error))?;
        if !found.is_file() {
            return Err(Error::new(format!("{shown}: not a file; name a program")));
        }
        if found.mode() & 0o111 == 0 {
            return Err(Error::new(format!(
                "{shown}: not executable; name a program, or `chmod +x` it"
            )));
        }
        return absolute(name);
    }
    let folders = env::var_os("PATH").unwrap_or_default();
    let runs = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & 0o111 != 0)
    };
    match env::split_paths(&folders).map(|folder| folder.join(name)).find(runs) {
        Some(path) => absolute(&path),
        None if name.exists() => Err(Error::new(format!("{shown}: not in PATH; write ./{shown}"))),
        None => Err(Error::new(format!("{shown}: not found; name a program, with its path"))),
    }
}

/// Why a program of which `found` was found cannot be run.
fn refusal(path: &Path, found: &Inspection) -> Option<Error> {
    const REBUILD: &str = "build it with `uvfs contention cargo build` or `uvfs contention cc`";
    let cause = match &found.form {
        Form::Script(by) => format!("a script for {by}; name the program that it starts, {REBUILD}"),
        Form::Foreign(machine) => {
            format!("a program for another machine ({machine}); only x86-64 ones can be run, {REBUILD}")
        }
        Form::Unknown => format!("not a program; name an ELF executable, {REBUILD}"),
        Form::Native if found.sanitizer.is_some() => format!(
            "linked with a sanitizer's own runtime ({}), which excludes ours; {REBUILD}, without -fsanitize \
             when linking",
            found.sanitizer.as_deref().unwrap_or_default()
        ),
        Form::Native if !found.interpreter => {
            format!("linked statically, so that no runtime can be loaded; link it dynamically, and {REBUILD}")
        }
        Form::Native if !found.plain && !found.linked() => {
            if found.atomic {
                format!("only its atomic accesses are instrumented; {REBUILD}")
            } else {
                format!("not instrumented; {REBUILD}")
            }
        }
        Form::Native if is_set_id(path) => {
            "runs with the rights of its owner, so the loader preloads nothing; run a copy without these rights"
                .to_string()
        }
        Form::Native => return None,
    };
    Some(Error::new(format!("{}: {cause}", path.display())))
}

fn is_set_id(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.mode() & 0o6000 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(name: &str) -> String {
        Program::find(Path::new(name)).unwrap_err().to_string()
    }

    #[test]
    fn what_is_no_program_is_refused_with_its_remedy() {
        assert!(
            refused("no-such-program-here").ends_with("not found; name a program, with its path")
        );
        assert_eq!(refused("/no/such"), "/no/such: No such file or directory");
        assert_eq!(refused("/tmp/"), "/tmp/: not a file; name a program");
        assert!(refused("/etc/passwd").contains("not executable"));
        assert!(
            refused("sh").contains("not instrumented; build it with `uvfs contention cargo build`")
        );
    }

    #[test]
    fn a_script_is_refused_by_its_first_line() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("go");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(refused(script.to_str().unwrap()).contains("a script for /bin/sh"));
    }

    #[test]
    fn each_kind_of_file_has_its_own_words() {
        let path = Path::new("/bin/x");
        let fine = Inspection {
            form: Form::Native,
            interpreter: true,
            plain: true,
            ..Inspection::default()
        };
        assert_eq!(refusal(path, &fine), None);
        let words = |found: Inspection| refusal(path, &found).unwrap().to_string();
        assert!(
            words(Inspection { interpreter: false, ..fine.clone() }).contains("linked statically")
        );
        assert!(
            words(Inspection { sanitizer: Some("libtsan.so.2".into()), ..fine.clone() })
                .contains("libtsan")
        );
        let atomics = Inspection { plain: false, atomic: true, ..fine.clone() };
        assert!(words(atomics).contains("only its atomic accesses"));
        let foreign = Inspection { form: Form::Foreign("Aarch64".into()), ..fine };
        assert!(words(foreign).contains("another machine (Aarch64)"));
    }
}
