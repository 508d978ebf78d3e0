//! One module with its debug information, types and functions, as the naming asks them.
//!
//! # Boundary
//! Answers for one place at a time; [`super`], [`super::heap`] and
//! [`super::globals`] use the answers.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Symbols replace missing debug information, so that a stripped-down build still names its
//! functions and variables. Weakness: a symbol does not tell which functions were inlined into it.

use super::dwarf::{Call, Debug, Die};
use super::functions::{Function, Functions, demangle};
use super::image::SymbolKind;
use super::types::Types;
use gimli::constants;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use uvfs_coherence::profile::Frame;

/// How the files of the C and the C++ library and of their loader begin.
const LIBRARIES: [&str; 9] = [
    "libc.so",
    "libc-2",
    "ld-linux",
    "ld-2",
    "libpthread",
    "libm.so",
    "libgcc_s",
    "libstdc++",
    "libc++",
];

/// A function at a place.
#[derive(Debug, Clone)]
pub(super) struct Step {
    /// The function's entry, where it is known from debug information.
    pub(super) call: Option<Call>,
    pub(super) function: Rc<Function>,
    pub(super) frame: Frame,
}

/// A variable, or the piece of memory that comes closest.
#[derive(Debug, Clone)]
pub(super) struct Located {
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) name: String,
    pub(super) die: Option<Die>,
}

/// A module that can be asked.
#[derive(Debug)]
pub(super) struct Module<'d, 'a> {
    pub(super) path: String,
    pub(super) debug: &'d Debug<'a>,
    pub(super) types: Types<'d, 'a>,
    pub(super) functions: Functions<'d, 'a>,
    steps: RefCell<HashMap<u64, Rc<[Step]>>>,
    /// Where the thread-local block begins in the file's own addresses, and its size.
    thread_part: Option<(u64, u64)>,
}

impl<'d, 'a> Module<'d, 'a> {
    pub(super) fn new(path: &str, debug: &'d Debug<'a>) -> Self {
        Self {
            path: path.to_string(),
            debug,
            types: Types::new(debug),
            functions: Functions::new(debug),
            steps: RefCell::default(),
            thread_part: debug.files().main().thread_part(),
        }
    }

    /// Whether it is the C or the C++ library or their loader. These have types and frames of their own, and mostly no
    /// frame pointers.
    pub(super) fn is_of_the_language(&self) -> bool {
        let file = self.path.rsplit('/').next().unwrap_or(&self.path);
        LIBRARIES.iter().any(|library| file.starts_with(library))
    }

    /// The functions at the call that returns to `offset`, the innermost inlined one first.
    pub(super) fn steps(&self, offset: u64) -> Rc<[Step]> {
        if let Some(known) = self.steps.borrow().get(&offset) {
            return known.clone();
        }
        let steps: Rc<[Step]> = Rc::from(self.read(offset.wrapping_sub(1)));
        self.steps.borrow_mut().insert(offset, steps.clone());
        steps
    }

    fn read(&self, address: u64) -> Vec<Step> {
        let symbol = || {
            let symbol = self.debug.files().symbol(address, SymbolKind::Text);
            symbol.map_or_else(String::new, |symbol| demangle(&symbol.name))
        };
        let source = |file: &str, line: u64| match (file, line) {
            ("", _) => String::new(),
            (file, 0) => file.to_string(),
            (file, line) => format!("{file}:{line}"),
        };
        let calls = self.debug.calls(address);
        if calls.is_empty() {
            let function = symbol();
            if function.is_empty() {
                return Vec::new();
            }
            let (file, line) = match self.debug.homes(address).first() {
                Some(home) => self.debug.line(*home, address),
                None => (Rc::from(""), 0),
            };
            let frame = Frame { function, source: source(&file, line) };
            return vec![Step { call: None, function: Rc::default(), frame }];
        }
        let outermost = calls.len() - 1;
        let step = |(i, call): (usize, Call)| {
            let function = self.functions.function(call.die);
            let mut path = function.path.clone();
            if path.is_empty() && i == outermost {
                path = symbol();
            }
            let frame = Frame { function: path, source: source(&call.file, call.line) };
            Step { call: Some(call), function, frame }
        };
        calls.into_iter().enumerate().map(step).collect()
    }

    /// The variable at `address`. Of a thread's own variables the address is that of the block from which
    /// each thread's is copied.
    pub(super) fn locate(&self, address: u64, thread_local: bool) -> Option<Located> {
        if !thread_local {
            return self.variable_at(address, false);
        }
        let (start, size) = self.thread_part?;
        let offset = address.checked_sub(start).filter(|offset| *offset < size)?;
        let found = self.variable_at(offset, true)?;
        Some(Located { start: start.checked_add(found.start)?, ..found })
    }

    /// The variable at `address`, an offset in the thread's block if `thread_local`.
    fn variable_at(&self, address: u64, thread_local: bool) -> Option<Located> {
        let kind = if thread_local { SymbolKind::ThreadLocal } else { SymbolKind::Data };
        let symbol = self.debug.files().symbol(address, kind);
        let statics = self.debug.statics();
        let end =
            statics.partition_point(|x| (x.thread_local, x.address) <= (thread_local, address));
        let mut best: Option<Located> = None;
        for variable in statics[..end].iter().rev().take(64) {
            if variable.thread_local != thread_local {
                break;
            }
            let origins = self.debug.origins(variable.die);
            let die = origins
                .iter()
                .find_map(|(die, x)| self.debug.link(die.unit, x, constants::DW_AT_type));
            let mut size = die.and_then(|die| self.types.size(die)).unwrap_or(0);
            if size == 0
                && let Some(symbol) = symbol
                && symbol.address == variable.address
            {
                size = symbol.size;
            }
            let better = best.as_ref().is_none_or(|best| best.size < size);
            if address - variable.address < size && better {
                let name = self.variable(variable.scope, &origins);
                best = Some(Located { start: variable.address, size, name, die });
            }
        }
        let by_symbol = symbol.map(|symbol| Located {
            start: symbol.address,
            size: symbol.size,
            name: tidy(&demangle(&symbol.name)),
            die: None,
        });
        let best = match (best, by_symbol) {
            // Debug information may lack the name, as it does of merged constants.
            (Some(mut best), Some(symbol)) if best.name.is_empty() => {
                best.name = symbol.name;
                Some(best)
            }
            (Some(best), _) => Some(best),
            (None, by_symbol) => by_symbol,
        };
        if best.is_some() || thread_local {
            return best;
        }
        let (name, start, size) = self.debug.files().main().data_section(address)?;
        let file = self.path.rsplit('/').next().unwrap_or(&self.path);
        Some(Located { start, size, name: format!("{name} of {file}"), die: None })
    }

    fn variable(&self, scope: Option<Die>, origins: &[(Die, super::dwarf::Entry<'a>)]) -> String {
        let text =
            |name| origins.iter().find_map(|(die, entry)| self.debug.text(die.unit, entry, name));
        if let Some(linkage) = text(constants::DW_AT_linkage_name) {
            return tidy(&demangle(&linkage));
        }
        let name = text(constants::DW_AT_name).unwrap_or_default();
        let mut path = String::new();
        if let Some(scope) = scope
            && !name.is_empty()
        {
            let mut around: Vec<Die> = self
                .debug
                .parents(scope)
                .iter()
                .map(|node| Die { unit: scope.unit, offset: node.offset })
                .collect();
            around.push(scope);
            for die in around {
                let origins = self.debug.origins(die);
                let part = origins.iter().find_map(|(die, entry)| {
                    self.debug.text(die.unit, entry, constants::DW_AT_name)
                });
                if let Some(part) = part {
                    path.push_str(&part);
                    path.push_str("::");
                }
            }
        }
        tidy(&(path + &name))
    }
}

/// A thread-local variable without the machinery that `thread_local!` wraps it in.
fn tidy(name: &str) -> String {
    let last = name.rsplit("::").next().unwrap_or(name);
    let machinery = last.contains("RUST_STD_INTERNAL") || matches!(last, "VAL" | "__KEY");
    match name.find("::{") {
        Some(at) if machinery => name[..at].to_string(),
        _ => name.to_string(),
    }
}
