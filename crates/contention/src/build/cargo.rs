//! Runs cargo so that it instruments its builds and leaves starting programs to a runner.
//!
//! # Boundary
//! The command line and the environment of one cargo process. The caller names the runner of the programs;
//! [`super::flags`] has rustc's flags.
//!
//! # Concurrency
//! None; cargo locks the target folder, which is one of its own.
//!
//! # Why
//! A target is named although it is the host's, so that build scripts and procedural macros are not
//! instrumented. Flags go through cargo's configuration, where they join those of the user's files; flags of the
//! environment replace those files, as they do without us, and ours join them. Weakness: `build.rustflags`
//! of a file is read here, without the files that `include` names.

use super::flags::{TARGET, Toolchain, Way};
use crate::Error;
use crate::embed::Runtime;
use serde::Deserialize;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The separator of flags in cargo's encoded variables.
const SEPARATOR: &str = "\u{1f}";
/// The variable that names the runner of programs of [`TARGET`].
const RUNNER: &str = "CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER";

/// A command line of cargo, without the word `cargo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invocation {
    /// `+nightly`.
    pub toolchain: Option<OsString>,
    /// The other flags, without those that name a target folder.
    pub words: Vec<OsString>,
    /// `--target-dir`.
    target_folder: Option<PathBuf>,
    manifest: Option<OsString>,
    profile: Option<String>,
}

impl Invocation {
    /// Reads the words after `cargo`.
    ///
    /// # Errors
    /// There are none, or they name a target with programs that cannot be run here.
    pub fn parse(words: &[OsString]) -> Result<Self, Error> {
        let mut rest = words.iter().peekable();
        let plus = |word: &&&OsString| word.to_string_lossy().starts_with('+');
        let toolchain = rest.next_if(|word| plus(&word)).cloned();
        let mut found = Self {
            toolchain,
            words: Vec::new(),
            target_folder: None,
            manifest: None,
            profile: None,
        };
        while let Some(word) = rest.next() {
            if word == "--" {
                found.words.push(word.clone());
                found.words.extend(rest.by_ref().cloned());
                break;
            }
            let text = word.to_string_lossy();
            let (name, joined) = match text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => {
                    (name, Some(OsString::from(value)))
                }
                _ => (text.as_ref(), None),
            };
            let takes = ["--target-dir", "--target", "--manifest-path", "--profile"];
            if !takes.contains(&name) {
                found.words.push(word.clone());
                continue;
            }
            let separate = joined.is_none();
            let value = joined
                .or_else(|| rest.next().cloned())
                .ok_or_else(|| Error::new(format!("cargo {name}: a value is missing")))?;
            match name {
                "--target-dir" => {
                    found.target_folder = Some(value.into());
                    continue;
                }
                "--target" if value != TARGET => {
                    return Err(Error::new(format!(
                        "cargo --target {}: only programs of {TARGET} can be run; leave it out",
                        value.to_string_lossy()
                    )));
                }
                "--manifest-path" => found.manifest = Some(value.clone()),
                "--profile" => found.profile = Some(value.to_string_lossy().into_owned()),
                _ => {}
            }
            found.words.push(word.clone());
            if separate {
                found.words.push(value);
            }
        }
        match found.words.first() {
            None => Err(Error::new(
                "no command for cargo; write one, as in `uvfs contention cargo run --release`",
            )),
            Some(_) => Ok(found),
        }
    }

    /// Cargo's subcommand: the first word that is no option.
    pub fn subcommand(&self) -> Option<&OsStr> {
        self.words
            .iter()
            .find(|word| !word.to_string_lossy().starts_with('-'))
            .map(OsString::as_os_str)
    }

    fn cargo(&self) -> Command {
        let mut command = match (&self.toolchain, std::env::var_os("CARGO")) {
            (None, Some(path)) if !path.is_empty() => Command::new(path),
            _ => Command::new("cargo"),
        };
        command.args(&self.toolchain);
        command
    }
}

/// Cargo, ready to build.
#[derive(Debug, Clone)]
pub struct Setup {
    invocation: Invocation,
    way: Way,
    runtime: Runtime,
    /// Where it builds: `contention` in the workspace's target folder.
    pub folder: PathBuf,
    /// The toolchain that builds.
    pub toolchain: Toolchain,
}

#[derive(Deserialize)]
struct Metadata {
    target_directory: PathBuf,
}

impl Setup {
    /// Finds out the settings that cargo needs.
    ///
    /// # Errors
    /// No toolchain, no project, a host with programs that cannot be run here, a compiler without the pass.
    pub fn prepare(invocation: Invocation) -> Result<Self, Error> {
        let toolchain = Toolchain::ask(invocation.toolchain.as_deref())?;
        if toolchain.host != TARGET {
            return Err(Error::new(format!(
                "{}: builds for {}, and only programs of {TARGET} can be run; use a toolchain of that host",
                toolchain.version, toolchain.host
            )));
        }
        let runtime = Runtime::install()?;
        let target_folder = match &invocation.target_folder {
            Some(folder) => {
                std::path::absolute(folder).map_err(|error| Error::io(folder.display(), &error))?
            }
            None => target_folder(&invocation)?,
        };
        let way = toolchain.way(invocation.toolchain.as_deref())?;
        Ok(Self { invocation, way, runtime, folder: target_folder.join("contention"), toolchain })
    }

    /// The process, which starts programs with the words `runner` before them; none of the words may have
    /// white space in it.
    ///
    /// # Errors
    /// A path that cargo cannot be told.
    pub fn command(&self, runner: &[String]) -> Result<Command, Error> {
        let mut command = self.invocation.cargo();
        let mut flags = self.way.flags();
        flags.extend(Way::link_flags(&self.runtime.link)?);
        if let Some(mut all) = environment_flags("CARGO_ENCODED_RUSTFLAGS", "RUSTFLAGS") {
            all.extend(flags);
            command.env("CARGO_ENCODED_RUSTFLAGS", all.join(SEPARATOR));
        } else {
            let files = configuration_files();
            let mut all = build_flags(&files, "rustflags", "CARGO_BUILD_RUSTFLAGS");
            all.extend(flags);
            command.arg("--config").arg(configuration("rustflags", &all));
        }
        // Examples in documentation are linked with instrumented code.
        let mut documentation = environment_flags("CARGO_ENCODED_RUSTDOCFLAGS", "RUSTDOCFLAGS")
            .unwrap_or_else(|| {
                build_flags(&configuration_files(), "rustdocflags", "CARGO_BUILD_RUSTDOCFLAGS")
            });
        documentation.extend(Way::link_flags(&self.runtime.link)?);
        if self.way == Way::Sanitizer {
            documentation.extend(self.way.flags());
        }
        command.env("CARGO_ENCODED_RUSTDOCFLAGS", documentation.join(SEPARATOR));
        command.env("CARGO_TARGET_DIR", &self.folder).env("CARGO_BUILD_TARGET", TARGET);
        command.env(RUNNER, runner.join(" "));
        command.envs(self.way.environment());
        for profile in ["dev", "release"].into_iter().chain(self.invocation.profile.as_deref()) {
            let profile = profile.to_uppercase().replace('-', "_");
            for (setting, value) in [("DEBUG", "2"), ("STRIP", "none"), ("SPLIT_DEBUGINFO", "off")]
            {
                let name = format!("CARGO_PROFILE_{profile}_{setting}");
                if std::env::var_os(&name).is_none() {
                    command.env(name, value);
                }
            }
        }
        command.args(&self.invocation.words);
        Ok(command)
    }
}

/// Where cargo builds without us.
fn target_folder(invocation: &Invocation) -> Result<PathBuf, Error> {
    let mut command = invocation.cargo();
    command.args(["metadata", "--no-deps", "--format-version", "1"]);
    if let Some(manifest) = &invocation.manifest {
        command.arg("--manifest-path").arg(manifest);
    }
    let output =
        command.stderr(Stdio::piped()).output().map_err(|error| Error::io("cargo", &error))?;
    let read = serde_json::from_slice::<Metadata>(&output.stdout);
    match read {
        Ok(metadata) if output.status.success() => Ok(metadata.target_directory),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            let line = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("no answer");
            let line = line.trim_start_matches("error: ");
            Err(Error::new(format!("cargo: {line}; go to a folder of a project")))
        }
    }
}

/// Flags that the environment has, if it has any: they replace those of files.
fn environment_flags(encoded: &str, plain: &str) -> Option<Vec<String>> {
    if let Ok(flags) = std::env::var(encoded) {
        return Some(
            flags.split(SEPARATOR).filter(|flag| !flag.is_empty()).map(String::from).collect(),
        );
    }
    let flags = std::env::var(plain).ok()?;
    let flags: Vec<_> = flags.split_whitespace().map(String::from).collect();
    (!flags.is_empty()).then_some(flags)
}

/// Cargo's configuration files that hold in this folder, the nearest first.
fn configuration_files() -> Vec<toml::Table> {
    let here = std::env::current_dir().unwrap_or_default();
    let above = here.ancestors().map(|folder| folder.join(".cargo"));
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    let mut seen = Vec::new();
    let mut files = Vec::new();
    for folder in above.chain(home) {
        if seen.contains(&folder) {
            continue;
        }
        let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
        if let Some(table) =
            read("config").or_else(|| read("config.toml")).and_then(|text| text.parse().ok())
        {
            files.push(table);
        }
        seen.push(folder);
    }
    files
}

/// `build.{name}` of `files` and of the variable. Empty where flags of a target are set, which cargo then
/// prefers, and joins with ours.
fn build_flags(files: &[toml::Table], name: &str, variable: &str) -> Vec<String> {
    let of_target = files.iter().any(|file| {
        let targets = file.get("target").and_then(toml::Value::as_table);
        targets.is_some_and(|targets| {
            targets.iter().any(|(target, settings)| {
                (target == TARGET || target.starts_with("cfg(")) && settings.get(name).is_some()
            })
        })
    });
    if of_target {
        return Vec::new();
    }
    let mut flags = Vec::new();
    // In cargo's order of lists: the nearer file comes later.
    for file in files.iter().rev() {
        match file.get("build").and_then(|build| build.get(name)) {
            Some(toml::Value::String(text)) => {
                flags = text.split_whitespace().map(String::from).collect();
            }
            Some(toml::Value::Array(list)) => {
                flags.extend(list.iter().filter_map(|flag| flag.as_str().map(String::from)));
            }
            _ => {}
        }
    }
    if let Ok(text) = std::env::var(variable) {
        flags.extend(text.split_whitespace().map(String::from));
    }
    flags
}

/// `flags` for `--config`.
fn configuration(name: &str, flags: &[String]) -> String {
    let list = toml::Value::Array(flags.iter().cloned().map(toml::Value::String).collect());
    format!("target.{TARGET}.{name}={list}")
}

/// A word for the runner's variable, which cargo splits at white space: `path` itself, or a link to it in
/// `folder`.
///
/// # Errors
/// Neither is without white space.
pub fn runner_word(path: &Path, folder: &Path) -> Result<String, Error> {
    let plain = |path: &Path| {
        path.to_str().filter(|text| !text.contains(char::is_whitespace)).map(String::from)
    };
    if let Some(word) = plain(path) {
        return Ok(word);
    }
    let link = folder.join("uvfs");
    let word = plain(&link).ok_or_else(|| {
        Error::new(format!(
            "{}: cargo takes no path with white space here; set TMPDIR",
            link.display()
        ))
    })?;
    std::os::unix::fs::symlink(path, &link).map_err(|error| Error::io(link.display(), &error))?;
    Ok(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Invocation, Error> {
        Invocation::parse(&line.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn what_names_folder_and_toolchain_is_taken_out() {
        let found =
            parse("+nightly run --target-dir /x --profile slim-build -- --target-dir y").unwrap();
        assert_eq!(found.toolchain.as_deref(), Some(OsStr::new("+nightly")));
        assert_eq!(found.target_folder.as_deref(), Some(Path::new("/x")));
        assert_eq!(found.words, ["run", "--profile", "slim-build", "--", "--target-dir", "y"]);
        assert_eq!(found.profile.as_deref(), Some("slim-build"));
        assert_eq!(found.subcommand(), Some(OsStr::new("run")));
        assert_eq!(
            parse("--locked test --manifest-path=a/Cargo.toml").unwrap().manifest.unwrap(),
            "a/Cargo.toml"
        );
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let refusal = |line: &str| parse(line).unwrap_err().to_string();
        assert!(refusal("").starts_with("no command for cargo"));
        assert!(
            refusal("run --target aarch64-unknown-linux-gnu").contains("only programs of x86_64")
        );
        assert!(refusal("run --target").contains("a value is missing"));
        assert!(parse("run --target x86_64-unknown-linux-gnu").is_ok());
    }

    #[test]
    fn flags_of_files_join_as_cargo_joins_them() {
        let far: toml::Table = "[build]\nrustflags = [\"-Ctarget-cpu=native\"]".parse().unwrap();
        let near: toml::Table = "[build]\nrustflags = [\"--cfg\", \"near\"]".parse().unwrap();
        let none = "UVFS_TEST_NO_SUCH_VARIABLE";
        let joined = build_flags(&[near.clone(), far.clone()], "rustflags", none);
        assert_eq!(joined, ["-Ctarget-cpu=native", "--cfg", "near"]);
        // Cargo prefers those of the target, and they join ours by themselves.
        let target: toml::Table = "[target.'cfg(unix)']\nrustflags = \"-O\"".parse().unwrap();
        assert!(build_flags(&[target, far], "rustflags", none).is_empty());
    }

    #[test]
    fn flags_survive_the_configuration_language() {
        let flags = vec!["-Clink-arg=/a \"b\"/c".to_string(), "-O".to_string()];
        let table: toml::Table = configuration("rustflags", &flags).parse().unwrap();
        let list = &table["target"][TARGET]["rustflags"];
        assert_eq!(list[0].as_str().unwrap(), flags[0]);
        assert_eq!(list[1].as_str().unwrap(), "-O");
    }

    #[test]
    fn a_runner_with_white_space_gets_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("a b");
        fs::write(&program, "").unwrap();
        let word = runner_word(&program, folder.path()).unwrap();
        assert!(!word.contains(' ') && Path::new(&word).canonicalize().is_ok());
        assert_eq!(runner_word(Path::new("/bin/true"), folder.path()).unwrap(), "/bin/true");
    }
}
