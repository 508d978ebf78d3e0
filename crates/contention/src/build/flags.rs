//! The flags for rustc, and whether it obeys them.
//!
//! # Boundary
//! Flags and one trial compilation; [`super::cargo`] passes them on.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! `-C passes` is documented, but the passes that it can name are LLVM's. A toolchain without the pass ends
//! with an error; one that ignores the attribute silently leaves plain accesses uninstrumented. So a few lines
//! are compiled first and their calls checked; then the unstable way is tried. Weakness: a fifth
//! of a second before each build.

use super::inspect::Inspection;
use crate::Error;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::process::Command;

/// The target with programs that can be run here.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Each block of the program announces itself, so that its computing can be charged.
const BLOCKS: [&str; 3] = [
    "-Cllvm-args=-sanitizer-coverage-level=2",
    "-Cllvm-args=-sanitizer-coverage-trace-pc",
    "-Cllvm-args=-sanitizer-coverage-prune-blocks=0",
];

/// One way to have accesses reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The pass by its name in LLVM; stable toolchains have it.
    Pass,
    /// rustc's own flag, which wants `RUSTC_BOOTSTRAP` on stable toolchains.
    Sanitizer,
}

impl Way {
    /// Flags for code generation, as rustc takes them.
    pub fn flags(self) -> Vec<String> {
        let own: &[&str] = match self {
            Self::Pass => &[
                "-Cpasses=forceattrs,tsan-module,function(tsan),sancov-module",
                "-Cllvm-args=-force-attribute=sanitize_thread",
                BLOCKS[0],
                BLOCKS[1],
                BLOCKS[2],
            ],
            Self::Sanitizer => &[
                "-Zsanitizer=thread",
                "-Cunsafe-allow-abi-mismatch=sanitizer",
                "-Zexternal-clangrt",
                "-Cpasses=sancov-module",
                BLOCKS[0],
                BLOCKS[1],
                BLOCKS[2],
            ],
        };
        own.iter().chain(&["-Cforce-frame-pointers=yes"]).map(ToString::to_string).collect()
    }

    /// Flags for linking with the runtime at `library`.
    pub fn link_flags(library: &Path) -> Result<Vec<String>, Error> {
        let refused = || {
            Error::new(format!(
                "{}: the path is no UTF-8, which cargo needs; set XDG_CACHE_HOME to another one",
                library.display()
            ))
        };
        let folder = library.parent().and_then(Path::to_str).ok_or_else(refused)?;
        let library = library.to_str().ok_or_else(refused)?;
        Ok(vec![
            "-Clink-arg=-Wl,--no-as-needed".into(),
            format!("-Clink-arg={library}"),
            // For programs that are started alone: cargo's own helpers, doctests, by hand.
            format!("-Clink-arg=-Wl,-rpath,{folder}"),
        ])
    }

    /// The environment that rustc needs.
    pub fn environment(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Pass => None,
            Self::Sanitizer => Some(("RUSTC_BOOTSTRAP", "1")),
        }
    }
}

/// The trial: a plain load, a plain store, an atomic and a call that cannot be folded away.
const TRIAL: &str = "\
#![crate_type = \"lib\"]
#[no_mangle]
pub fn trial(from: &u64, to: &mut u64, word: &std::sync::atomic::AtomicU64) {
    *to = *from;
    word.fetch_add(1, std::sync::atomic::Ordering::AcqRel);
}
";

/// rustc's description of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Toolchain {
    /// The first line of `rustc -vV`.
    pub version: String,
    /// The default target.
    pub host: String,
}

/// The rustc that cargo would use, given cargo's `+toolchain` word.
fn rustc(toolchain: Option<&OsStr>) -> Command {
    let mut command = match (toolchain, std::env::var_os("RUSTC")) {
        (None, Some(path)) if !path.is_empty() => Command::new(path),
        _ => Command::new("rustc"),
    };
    command.args(toolchain);
    command
}

impl Toolchain {
    /// Asks rustc.
    ///
    /// # Errors
    /// It cannot be started, or fails.
    pub fn ask(toolchain: Option<&OsStr>) -> Result<Self, Error> {
        let output =
            rustc(toolchain).arg("-vV").output().map_err(|error| Error::io("rustc", &error))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let host = text.lines().find_map(|line| line.strip_prefix("host: "));
        match (output.status.success(), host) {
            (true, Some(host)) => Ok(Self {
                version: text.lines().next().unwrap_or_default().to_string(),
                host: host.to_string(),
            }),
            _ => {
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.lines().next().unwrap_or("no answer").to_string();
                Err(Error::new(format!("rustc -vV: {said}; install the toolchain or name another")))
            }
        }
    }

    /// The first way that this rustc obeys.
    ///
    /// # Errors
    /// None does; the line has the version and the result of each way.
    pub fn way(&self, toolchain: Option<&OsStr>) -> Result<Way, Error> {
        let mut causes = Vec::new();
        for way in [Way::Pass, Way::Sanitizer] {
            match trial(toolchain, way)? {
                None => return Ok(way),
                Some(cause) => causes.push(cause),
            }
        }
        Err(Error::new(format!(
            "{}: accesses are not instrumented, neither by the pass ({}) nor by -Zsanitizer=thread ({}); use \
             another toolchain, such as `cargo +stable`",
            self.version, causes[0], causes[1]
        )))
    }
}

/// Compiles the trial in `way`. `None`: it took effect.
fn trial(toolchain: Option<&OsStr>, way: Way) -> Result<Option<String>, Error> {
    let failed = |error: &std::io::Error| Error::io(std::env::temp_dir().display(), error);
    let folder = tempfile::Builder::new()
        .prefix("uvfs-contention-")
        .tempdir()
        .map_err(|error| failed(&error))?;
    let source = folder.path().join("trial.rs");
    let object = folder.path().join("trial.o");
    fs::write(&source, TRIAL).map_err(|error| failed(&error))?;
    let arguments: Vec<OsString> = vec![
        "--edition=2021".into(),
        "--emit=obj".into(),
        format!("--target={TARGET}").into(),
        "-Copt-level=2".into(),
        "-o".into(),
        object.clone().into(),
        source.into(),
    ];
    let mut command = rustc(toolchain);
    command.args(way.flags()).args(arguments).envs(way.environment());
    let output = command.output().map_err(|error| Error::io("rustc", &error))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let line = said.lines().find(|line| line.contains("error")).or(said.lines().next());
        return Ok(Some(line.unwrap_or("it failed without a word").trim().to_string()));
    }
    let found = Inspection::of(&object)?;
    Ok(match found {
        Inspection { plain: true, atomic: true, calls: true, .. } => None,
        Inspection { plain: false, .. } => Some("plain accesses are left out".into()),
        Inspection { atomic: false, .. } => Some("atomic accesses are left out".into()),
        _ => Some("calls are left out".into()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_take_effect_with_this_toolchain() {
        assert_eq!(trial(None, Way::Pass).unwrap(), None);
        assert_eq!(trial(None, Way::Sanitizer).unwrap(), None);
        let toolchain = Toolchain::ask(None).unwrap();
        assert!(toolchain.version.starts_with("rustc "), "{toolchain:?}");
        assert_eq!(toolchain.way(None).unwrap(), Way::Pass);
    }

    #[test]
    fn a_toolchain_that_is_not_there_is_a_line() {
        let refusal =
            Toolchain::ask(Some(OsStr::new("+no-such-toolchain"))).unwrap_err().to_string();
        assert!(refusal.starts_with("rustc -vV: "), "{refusal}");
    }

    #[test]
    fn the_runtime_is_linked_whether_or_not_it_seems_needed() {
        let flags = Way::link_flags(Path::new("/a b/libuvfs_contention.so")).unwrap();
        assert_eq!(flags[0], "-Clink-arg=-Wl,--no-as-needed");
        assert_eq!(flags[1], "-Clink-arg=/a b/libuvfs_contention.so");
        assert_eq!(flags[2], "-Clink-arg=-Wl,-rpath,/a b");
    }
}
