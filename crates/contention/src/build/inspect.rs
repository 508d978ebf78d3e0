//! The nature of an executable, a library or an object file: whether it was instrumented, and for which runtime.
//!
//! # Boundary
//! Reads symbol and dynamic tables; runs nothing and decides nothing.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Compilers silently accept flags of the pass that mean nothing to them, so their output
//! is inspected. Weakness: it sees which calls exist, not how many accesses are without one.

use crate::Error;
use object::elf;
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, FileKind, Object, ObjectSection, ObjectSymbol};
use std::fs;
use std::path::Path;

/// The findings about a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// The kind of the file.
    pub form: Form,
    /// It asks for the dynamic loader; without it nothing can be preloaded.
    pub interpreter: bool,
    /// Libraries that it names.
    pub needed: Vec<String>,
    /// It calls for plain accesses: `__tsan_read8` and its kin.
    pub plain: bool,
    /// It calls for atomic ones.
    pub atomic: bool,
    /// It calls at the entry of functions.
    pub calls: bool,
    /// It calls at its own start, as everything does that was compiled with the pass.
    pub begins: bool,
    /// It has a sanitizer's own runtime in it, or names one.
    pub sanitizer: Option<String>,
    /// It has debug information.
    pub debug: bool,
}

/// The kind of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Form {
    /// A program or library for this machine.
    Native,
    /// For another machine; its name.
    Foreign(String),
    /// A script, and its interpreter.
    Script(String),
    /// None that is known here.
    #[default]
    Unknown,
}

impl Inspection {
    /// Whether it was linked with the runtime.
    pub fn linked(&self) -> bool {
        self.needed.iter().any(|name| name == crate::embed::LIBRARY)
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// It cannot be read. A file that is no executable is [`Form::Unknown`], no error.
    pub fn of(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(|error| Error::io(path.display(), &error))?;
        Ok(Self::of_bytes(&bytes))
    }

    /// Reads a file's content.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        if let Some(script) = bytes.strip_prefix(b"#!") {
            let line = script.split(|byte| *byte == b'\n').next().unwrap_or_default();
            let line = &line[..line.len().min(256)];
            let form = Form::Script(String::from_utf8_lossy(line).trim().to_string());
            return Self { form, ..Self::default() };
        }
        match FileKind::parse(bytes) {
            Ok(FileKind::Elf64) => Self::of_elf(bytes).unwrap_or_default(),
            Ok(kind) => Self { form: Form::Foreign(format!("{kind:?}")), ..Self::default() },
            Err(_) => Self::default(),
        }
    }

    fn of_elf(bytes: &[u8]) -> Option<Self> {
        let file = ElfFile64::<Endianness>::parse(bytes).ok()?;
        let endian = file.endian();
        let header = file.elf_header();
        let mut found = Self { form: Form::Native, ..Self::default() };
        if header.e_machine(endian) != elf::EM_X86_64 {
            found.form = Form::Foreign(format!("{:?}", file.architecture()));
        }
        for segment in file.elf_program_headers() {
            found.interpreter |= segment.p_type(endian) == elf::PT_INTERP;
        }
        if let Ok(table) = file.elf_dynamic_table() {
            found.needed = table
                .iter()
                .filter(|entry| entry.tag == elf::DT_NEEDED)
                .filter_map(|entry| table.string(entry).ok())
                .map(|name| String::from_utf8_lossy(name).into_owned())
                .collect();
        }
        // A stripped program has only the dynamic table, an object file only the other.
        for symbol in file.dynamic_symbols().chain(file.symbols()) {
            let Ok(name) = symbol.name() else { continue };
            let name = name.split('@').next().unwrap_or(name);
            if symbol.is_undefined() {
                let Some(call) = name.strip_prefix("__tsan_") else { continue };
                let plain = ["read", "write", "unaligned_", "mem"];
                found.plain |= plain.iter().any(|start| call.starts_with(start));
                found.atomic |= call.starts_with("atomic");
                found.calls |= call == "func_entry";
                found.begins |= call == "init";
            } else if ["__tsan_init", "__asan_init", "__msan_init"].contains(&name) {
                found.sanitizer.get_or_insert_with(|| format!("`{name}`"));
            }
        }
        // The runtime itself defines them, and is no program with a sanitizer.
        if let Some(library) = found.needed.iter().find(|name| {
            ["libtsan.so", "libasan.so", "libmsan.so", "libclang_rt."]
                .iter()
                .any(|start| name.starts_with(start))
        }) {
            found.sanitizer = Some(library.clone());
        }
        let debug = |name: &str| file.section_by_name(name).is_some_and(|found| found.size() > 0);
        found.debug = debug(".debug_info") || debug(".zdebug_info");
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_and_other_files_are_distinguished() {
        let script = Inspection::of_bytes(b"#!/bin/sh -e\nexit 0\n");
        assert_eq!(script.form, Form::Script("/bin/sh -e".into()));
        assert_eq!(Inspection::of_bytes(b"").form, Form::Unknown);
        assert_eq!(Inspection::of_bytes(b"plain words").form, Form::Unknown);
        // Cut within the header: no panic, and nothing known.
        let ours = fs::read(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(Inspection::of_bytes(&ours[..40]), Inspection::default());
    }

    #[test]
    fn this_test_is_native_dynamic_and_not_instrumented() {
        let found = Inspection::of(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(found.form, Form::Native);
        assert!(found.interpreter && found.needed.iter().any(|name| name.starts_with("libc.so")));
        assert!(!found.plain && !found.linked() && found.sanitizer.is_none());
    }

    #[test]
    fn another_machine_is_named() {
        let mut ours = fs::read(std::env::current_exe().unwrap()).unwrap();
        ours[18] = 183; // e_machine: AArch64
        assert!(
            matches!(Inspection::of_bytes(&ours).form, Form::Foreign(name) if name == "Aarch64")
        );
    }
}
