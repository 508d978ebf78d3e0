//! Runs a C or C++ compiler so that it instruments its output and links with the runtime.
//!
//! # Boundary
//! One command line of a compiler driver to one or more of the compiler's. Works as `CC` of a makefile or
//! of `configure`: a command that compiles nothing is passed on unchanged.
//!
//! # Concurrency
//! None; make runs several of these processes at once.
//!
//! # Why
//! With `-fsanitize=thread` a compiler driver links the sanitizer's own runtime, which must not be. So the
//! flag is for compiling alone, and a command that compiles and links is done in two steps, as `make` would
//! do it. Weakness: link-time optimisation is turned off, since there the pass runs when linking.

use super::inspect::{Form, Inspection};
use crate::Error;
use crate::embed::Runtime;
use std::ffi::{OsStr, OsString};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Flags for compiling. They come last, so that those of a makefile do not undo them.
const COMPILE: [&str; 5] = [
    "-fsanitize=thread",
    "-fsanitize-coverage=trace-pc",
    "-g",
    "-fno-omit-frame-pointer",
    "-fno-lto",
];

/// Options that take the next word as their value.
const WITH_VALUE: [&str; 41] = [
    "-o",
    "-x",
    "-I",
    "-D",
    "-U",
    "-L",
    "-l",
    "-B",
    "-u",
    "-z",
    "-T",
    "-e",
    "-h",
    "-A",
    "-F",
    "-include",
    "-imacros",
    "-idirafter",
    "-iprefix",
    "-isystem",
    "-iquote",
    "-isysroot",
    "-iwithprefix",
    "-iwithprefixbefore",
    "-MF",
    "-MT",
    "-MQ",
    "-Xlinker",
    "-Xassembler",
    "-Xpreprocessor",
    "-Xclang",
    "-target",
    "--param",
    "-aux-info",
    "-wrapper",
    "-dumpbase",
    "-dumpdir",
    "-mllvm",
    "--sysroot",
    "-MJ",
    "-resource-dir",
];

/// Options after which nothing is linked.
const NO_LINK: [&str; 11] = [
    "-c",
    "-S",
    "-E",
    "-M",
    "-MM",
    "-fsyntax-only",
    "--version",
    "--help",
    "-dumpversion",
    "-dumpmachine",
    "-###",
];

/// Which language the compiler's own name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// `cc`.
    C,
    /// `c++`.
    Cxx,
}

impl Language {
    fn default_compiler(self) -> &'static str {
        match self {
            Self::C => "cc",
            Self::Cxx => "c++",
        }
    }

    fn variable(self) -> &'static str {
        match self {
            Self::C => "CC",
            Self::Cxx => "CXX",
        }
    }
}

/// The compiler to call: the one that is named, the environment's unless that is this program, or the
/// system's.
///
/// # Errors
/// A name of no words.
pub fn compiler(language: Language, named: Option<&str>) -> Result<Vec<String>, Error> {
    let of_environment = std::env::var(language.variable()).ok();
    choose(language, named, of_environment.as_deref())
}

fn choose(
    language: Language,
    named: Option<&str>,
    of_environment: Option<&str>,
) -> Result<Vec<String>, Error> {
    let words = |text: &str| text.split_whitespace().map(String::from).collect::<Vec<_>>();
    if let Some(text) = named {
        let words = words(text);
        if words.is_empty() {
            return Err(Error::new("--cc: no compiler; write its name, as in --cc clang"));
        }
        return Ok(words);
    }
    // `make CC="uvfs contention cc"` exports just that.
    let other = of_environment.map(words).filter(|words| {
        !words.is_empty()
            && !words
                .windows(2)
                .any(|pair| pair[0].ends_with("contention") && pair[1].starts_with('c'))
    });
    Ok(other.unwrap_or_else(|| vec![language.default_compiler().to_string()]))
}

/// A compiler's command line, taken apart.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Line {
    parts: Vec<Part>,
    links: bool,
    /// Something is preprocessed or compiled.
    compiles: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// An option, with its value if that is a word of its own.
    Option(Vec<OsString>),
    /// `-x LANGUAGE`.
    Language(OsString),
    /// `-o FILE`.
    Output(OsString),
    /// The source; with the language that `-x` gave it.
    Source { path: OsString, language: Option<OsString> },
    /// An object file or a library.
    Input(OsString),
}

impl Line {
    /// # Errors
    /// The part that excludes the pass or the runtime.
    fn parse(words: &[OsString]) -> Result<Self, Error> {
        let mut line = Self { links: true, ..Self::default() };
        let mut language: Option<OsString> = None;
        let mut rest = words.iter();
        let mut inputs = false;
        while let Some(word) = rest.next() {
            let text = word.to_string_lossy();
            if text == "-" || !text.starts_with('-') {
                inputs = true;
                // A response file may hold anything; the compiler reads it.
                let source =
                    language.is_some() && !text.starts_with('@') || is_source(&text) || text == "-";
                line.compiles |= source;
                line.parts.push(if source {
                    Part::Source { path: word.clone(), language: language.clone() }
                } else {
                    Part::Input(word.clone())
                });
                continue;
            }
            refuse(&text)?;
            if NO_LINK.contains(&text.as_ref())
                || text.starts_with("-print-")
                || text.starts_with("--print-")
            {
                line.links = false;
            }
            let takes = WITH_VALUE.contains(&text.as_ref());
            let value = if takes { rest.next().cloned() } else { None };
            if let Some(name) = text.strip_prefix("-x") {
                let name = value.unwrap_or_else(|| name.into());
                language = (name != "none").then(|| name.clone());
                line.parts.push(Part::Language(name));
            } else if text == "-o" {
                line.parts.extend(value.map(Part::Output));
            } else if text.starts_with("-o") && !text.starts_with("-ob") {
                line.parts.push(Part::Output(text[2..].into()));
            } else if text == "-fsanitize=thread" {
                // Ours; when linking it would bring the sanitizer's runtime.
            } else {
                line.parts.push(Part::Option(std::iter::once(word.clone()).chain(value).collect()));
            }
        }
        line.links &= inputs;
        Ok(line)
    }

    /// One step: `path` to `object`.
    fn compilation(&self, path: &OsStr, language: Option<&OsStr>, object: &Path) -> Vec<OsString> {
        let options = self.parts.iter().filter_map(|part| match part {
            Part::Option(words) if !is_for_linker(&words[0].to_string_lossy()) => Some(words),
            _ => None,
        });
        let mut all: Vec<OsString> = options.flatten().cloned().collect();
        all.extend(COMPILE.map(OsString::from));
        if let Some(language) = language {
            all.extend(["-x".into(), language.into()]);
        }
        all.extend(["-c".into(), path.into(), "-o".into(), object.into()]);
        all
    }

    /// The object files that `-c` makes of something else than assembly.
    fn objects(&self) -> Vec<PathBuf> {
        let is_step =
            self.parts.iter().any(|part| matches!(part, Part::Option(words) if words[0] == "-c"));
        let output = self.parts.iter().find_map(|part| match part {
            Part::Output(path) => Some(PathBuf::from(path)),
            _ => None,
        });
        let of_source = |part: &Part| match part {
            Part::Source { path, language } => {
                let assembles = language
                    .as_ref()
                    .is_some_and(|name| name.to_string_lossy().starts_with("assembler"));
                let name = Path::new(path).file_name()?;
                (is_step && !assembles && !is_assembly(path))
                    .then(|| output.clone().unwrap_or_else(|| Path::new(name).with_extension("o")))
            }
            _ => None,
        };
        self.parts.iter().filter_map(of_source).collect()
    }

    /// All words, in their order, with `objects` in the place of the sources when there are any.
    fn words(&self, objects: &[PathBuf]) -> Vec<OsString> {
        let mut objects = objects.iter();
        let mut words = Vec::new();
        for part in &self.parts {
            match part {
                Part::Option(option) => words.extend(option.iter().cloned()),
                Part::Output(path) => words.extend(["-o".into(), path.clone()]),
                Part::Input(path) => words.push(path.clone()),
                Part::Source { path, .. } => match objects.next() {
                    Some(object) => words.push(object.clone().into()),
                    None => words.push(path.clone()),
                },
                // An object file is no C.
                Part::Language(_) if self.links => {}
                Part::Language(name) => words.extend(["-x".into(), name.clone()]),
            }
        }
        words
    }
}

fn is_source(name: &str) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str).unwrap_or_default();
    const SOURCES: [&str; 15] =
        ["c", "i", "ii", "cc", "cp", "cxx", "cpp", "CPP", "c++", "C", "m", "mm", "s", "S", "sx"];
    SOURCES.contains(&extension)
}

/// Options that exclude the pass or the runtime.
fn refuse(option: &str) -> Result<(), Error> {
    const OTHERS: [&str; 5] = ["address", "memory", "hwaddress", "leak", "kernel-address"];
    let mut sanitizers = option.strip_prefix("-fsanitize=").unwrap_or_default().split(',');
    if let Some(other) = sanitizers.find(|name| OTHERS.contains(name)) {
        return Err(Error::new(format!(
            "-fsanitize={other}: excludes the pass for accesses; leave it out of this build"
        )));
    }
    if ["-static", "--static", "-static-pie"].contains(&option) {
        return Err(Error::new(format!(
            "{option}: nothing can be loaded into a static program; leave it out"
        )));
    }
    Ok(())
}

/// Compiles and links as `words` says, with accesses reported to the runtime. Gives the exit status.
///
/// # Errors
/// The command line excludes it, the compiler cannot be started, or it ignored the pass.
pub fn run(compiler: &[String], words: &[OsString]) -> Result<u8, Error> {
    let line = Line::parse(words)?;
    if !line.links {
        let mut all = line.words(&[]);
        if line.compiles {
            all.extend(COMPILE.map(OsString::from));
        }
        let status = call(compiler, &all)?;
        if status == 0 {
            for object in line.objects() {
                check(compiler, &object)?;
            }
        }
        return Ok(status);
    }
    let folder = tempfile::Builder::new()
        .prefix("uvfs-contention-")
        .tempdir()
        .map_err(|error| Error::io(std::env::temp_dir().display(), &error))?;
    let mut objects = Vec::new();
    for part in &line.parts {
        let Part::Source { path, language } = part else { continue };
        let object = folder.path().join(format!("{}.o", objects.len()));
        let status = call(compiler, &line.compilation(path, language.as_deref(), &object))?;
        if status != 0 {
            return Ok(status);
        }
        if !is_assembly(path) {
            check(compiler, &object)?;
        }
        objects.push(object);
    }
    let runtime = Runtime::install()?;
    let mut all = line.words(&objects);
    all.retain(|word| !strips(&word.to_string_lossy()));
    if all.iter().any(|word| word == "-static-libstdc++") {
        // Before the runtime, so that the linker takes `operator new` from the C++ library.
        all.extend(["-Wl,-Bstatic", "-lstdc++", "-Wl,-Bdynamic"].map(OsString::from));
    }
    all.extend(link_words(&runtime.link));
    call(compiler, &all)
}

/// Whether `option` is for the linker alone; some compilers warn of it when nothing is linked.
fn is_for_linker(option: &str) -> bool {
    const WORDS: [&str; 9] = [
        "-shared",
        "-pie",
        "-no-pie",
        "-rdynamic",
        "-s",
        "-r",
        "-nostdlib",
        "-nodefaultlibs",
        "-nostartfiles",
    ];
    const STARTS: [&str; 6] = ["-l", "-L", "-Wl,", "-Xlinker", "-fuse-ld", "-static-lib"];
    WORDS.contains(&option) || STARTS.iter().any(|start| option.starts_with(start))
}

/// Whether `option` has the linker throw away names and types.
fn strips(option: &str) -> bool {
    ["-s", "-Wl,-s", "-Wl,-S", "-Wl,--strip-all", "-Wl,--strip-debug"].contains(&option)
}

fn is_assembly(name: &OsStr) -> bool {
    let extension = Path::new(name).extension().and_then(OsStr::to_str);
    matches!(extension, Some("s" | "S" | "sx"))
}

/// Functions of the C library whose accesses the runtime sees (`contention-runtime/src/abi.rs` has `__wrap_` of each): the
/// program's own calls are linked to it, those within libraries stay.
const WRAPPED: &[&str] = &[
    "memcpy",
    "memmove",
    "memset",
    "memcmp",
    "strlen",
    "strcmp",
    "strcpy",
    "__memcpy_chk",
    "__memmove_chk",
    "__memset_chk",
    "__strcpy_chk",
];

/// Words for linking with the runtime at `library`, whether or not it seems needed.
fn link_words(library: &Path) -> Vec<OsString> {
    let mut path = OsString::from("-Wl,-rpath,");
    path.push(library.parent().unwrap_or(Path::new("/")));
    let wrapped = WRAPPED.iter().map(|name| OsString::from(format!("-Wl,--wrap={name}")));
    let mut words: Vec<OsString> = wrapped.collect();
    words.extend([
        "-fno-lto".into(),
        "-Wl,--push-state,--no-as-needed".into(),
        library.into(),
        "-Wl,--pop-state".into(),
        path,
    ]);
    words
}

/// Looks at the object file of one compilation: a compiler that does not know the flag may ignore it.
fn check(compiler: &[String], object: &Path) -> Result<(), Error> {
    match Inspection::of(object) {
        Ok(found) if found.form == Form::Native && !found.begins => Err(Error::new(format!(
            "{}: ignores -fsanitize=thread, so accesses are not instrumented; name gcc or clang with --cc",
            compiler.join(" ")
        ))),
        // The output's place or kind is not known; a run checks it again.
        _ => Ok(()),
    }
}

fn call(compiler: &[String], words: &[OsString]) -> Result<u8, Error> {
    let mut command = Command::new(&compiler[0]);
    command.args(&compiler[1..]).args(words);
    let status = command.status().map_err(|error| {
        Error::io(format!("{}, to compile; name another with --cc", compiler[0]), &error)
    })?;
    Ok(code(status))
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    u8::try_from(code).unwrap_or(255)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        Line::parse(&words(text)).unwrap()
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    fn shown(words: &[OsString]) -> String {
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn steps_are_distinguished() {
        let step = line("-O2 -c a.c -o a.o");
        assert!(step.compiles && !step.links);
        assert_eq!(step.objects(), [Path::new("a.o")]);
        assert_eq!(line("-c x/a.c").objects(), [Path::new("a.o")]);
        assert!(line("-c a.S").objects().is_empty());
        let link = line("a.o -lm -o a");
        assert!(link.links && !link.compiles);
        let both = line("a.c b.cpp -o a");
        assert!(both.links && both.compiles);
        // Questions to the compiler.
        for question in ["--version", "-v", "-print-search-dirs", "-dumpmachine"] {
            assert!(!line(question).links, "{question}");
        }
        assert!(!line("-E a.c").links && !line("-MM a.c").links);
    }

    #[test]
    fn one_command_becomes_two() {
        let both =
            line("-O2 -Wall -Iinclude -D A a.c -x c++ b.txt -o prog -L. -lm -Wl,-z,now -pthread");
        let step = shown(&both.compilation("a.c".as_ref(), None, Path::new("/t/0.o")));
        assert_eq!(
            step,
            "-O2 -Wall -Iinclude -D A -pthread -fsanitize=thread -fsanitize-coverage=trace-pc -g -fno-omit-frame-pointer -fno-lto -c a.c -o /t/0.o"
        );
        let link = shown(&both.words(&["/t/0.o".into(), "/t/1.o".into()]));
        assert_eq!(
            link,
            "-O2 -Wall -Iinclude -D A /t/0.o /t/1.o -o prog -L. -lm -Wl,-z,now -pthread"
        );
        assert!(
            both.parts
                .contains(&Part::Source { path: "b.txt".into(), language: Some("c++".into()) })
        );
    }

    /// The folder became a source, which compiling leaves out: the flag then took the next word, and no header was found.
    #[test]
    fn the_value_of_a_flag_is_no_source() {
        for flag in ["--sysroot", "-MJ", "-resource-dir"] {
            let step = line(&format!("{flag} /opt/it a.c -o a"));
            let step = shown(&step.compilation("a.c".as_ref(), None, Path::new("/t/0.o")));
            assert!(step.starts_with(&format!("{flag} /opt/it ")), "{step}");
        }
    }

    #[test]
    fn the_sanitizers_runtime_is_kept_out() {
        let found = line("-fsanitize=thread a.c -o a");
        assert!(!shown(&found.words(&["/t/0.o".into()])).contains("sanitize"));
        let refusal = |text: &str| Line::parse(&words(text)).unwrap_err().to_string();
        assert!(refusal("-fsanitize=undefined,address a.c").starts_with("-fsanitize=address"));
        assert!(refusal("a.c -static").contains("static"));
        let link = shown(&link_words(Path::new("/c/libuvfs_contention.so")));
        assert!(
            link.contains("--no-as-needed /c/libuvfs_contention.so") && link.contains("-rpath,/c")
        );
    }

    #[test]
    fn this_program_is_not_its_own_compiler() {
        let choose = |named, of_environment| choose(Language::C, named, of_environment).unwrap();
        assert_eq!(choose(None, Some("uvfs contention cc")), ["cc"]);
        assert_eq!(choose(None, Some("ccache gcc")), ["ccache", "gcc"]);
        assert_eq!(choose(Some("clang -m64"), Some("gcc")), ["clang", "-m64"]);
        assert_eq!(choose(None, None), ["cc"]);
        assert!(super::choose(Language::Cxx, Some(" "), None).is_err());
    }

    #[test]
    fn a_compilation_is_looked_at() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("a.c");
        std::fs::write(&source, "int shared; int next(void) { return shared++; }\n").unwrap();
        let object = folder.path().join("a.o");
        let compile = |compiler: &str| {
            let words = ["-c".into(), source.clone().into(), "-o".into(), object.clone().into()];
            run(&[compiler.to_string()], &words)
        };
        assert_eq!(compile("cc").unwrap(), 0);
        let found = Inspection::of(&object).unwrap();
        assert!(found.plain && found.calls && found.begins && found.debug, "{found:?}");
        // A compiler that ignores the flag.
        let deaf = folder.path().join("deaf");
        std::fs::write(&deaf, "#!/bin/sh\nfor w in \"$@\"; do shift; case $w in -fsan*) ;; *) set -- \"$@\" \"$w\";; esac; done\nexec cc \"$@\"\n")
            .unwrap();
        std::fs::set_permissions(&deaf, std::os::unix::fs::PermissionsExt::from_mode(0o755))
            .unwrap();
        let refusal = compile(deaf.to_str().unwrap()).unwrap_err().to_string();
        assert!(refusal.contains("ignores -fsanitize=thread"), "{refusal}");
        assert!(compile("/no/such/cc").unwrap_err().to_string().contains("name another with --cc"));
    }
}
