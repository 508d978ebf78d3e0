//! Functions: their names, their type parameters, and what a table prints for a site.
//!
//! # Boundary
//! Owns the lists of what counts as a lock's own code, as an allocator's, and as a thin wrapper. Which
//! functions are at an address is [`super::dwarf`]'s.
//!
//! # Concurrency
//! None.
//!
//! # Why
//! Time that is spent in a lock belongs to its caller: `[spinlock] @ dget`, as Gough, Siddha and Chen
//! (2007) count it. Locks are known by their paths and names, because programs bring their own. Weakness: a
//! function that is called `lock` and is none is reported as one; [`Options`] can only add.

use super::dwarf::{Debug, Die};
use super::types::short;
use gimli::constants;
use regex::Regex;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use uvfs_coherence::profile::Frame;

/// Options of the naming.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// More functions that are a lock's own code: a regular expression on the function's full path, and
    /// the word that the tables print in brackets.
    pub lock_patterns: Vec<(String, String)>,
}

/// Functions that are a lock's own code, by their full path without generic arguments; the first that
/// matches gives the word in brackets.
///
/// 1. Modules that are nothing but a lock: `std`'s, `parking_lot`'s, `lock_api`'s, `spin`'s.
/// 2. C functions of the usual libraries and of kernels.
/// 3. Methods of types that are called after a lock.
/// 4. Any function whose last word is that of taking or leaving a lock.
const LOCKS: [(&str, &str); 12] = [
    (r"(^|::)(mutex|Mutex|futex_mutex|raw_mutex|fair_mutex|remutex|reentrant_lock)::", "mutex"),
    (r"(^|::)(rwlock|rw_lock|RwLock|raw_rwlock|queue_rwlock)::", "rwlock"),
    (r"^(parking_lot|parking_lot_core|lock_api)::.*(Rw|rw)", "rwlock"),
    (r"^(parking_lot|parking_lot_core|lock_api)::", "mutex"),
    (r"^(spin|spinning_top|spin_sync)::", "spinlock"),
    (r"(^|::)(__)?pthread_spin_\w*lock\w*$", "spinlock"),
    (r"(^|::)(__)?(pthread_rwlock|ck_rwlock|uv_rwlock)\w*$", "rwlock"),
    (r"(^|::)(__)?(pthread_mutex|mtx|uv_mutex)_\w*lock\w*$", "mutex"),
    (
        r"(^|::)_*(raw_|arch_|queued_|ticket_|mcs_|ttas_|tas_|clh_|ck_)*(spin|spinlock|ticket|mcs|ttas|tas|clh)_?(un|try)?_?(lock|acquire|release)\w*$",
        "spinlock",
    ),
    (r"(^|::)_*\w*mutex_?(un|try)?_?(lock|acquire|release)\w*$", "mutex"),
    (r"(^|::)_*\w*(rwlock|rw_lock|read_?lock|write_?lock|down_read|down_write)(_\w+)?$", "rwlock"),
    (
        r"(^|::)(try_|raw_)?(un)?lock(_(slow|contended|irqsave|irq|bh|fast|exclusive|shared|uncontended|common))*$",
        "lock",
    ),
];

/// Methods that a lock's type has beside taking and leaving it.
const LOCK_TYPE_WORDS: &str = r"(acquire|release|lock|unlock|try_lock|try_acquire|acquire_slow|lock_slow|lock_contended|read|write|try_read|try_write|read_contended|write_contended|wake_writer_or_readers|wake_writer|spin|spin_read|spin_write|spin_until|read_unlock|write_unlock|lock_shared|lock_exclusive|unlock_shared|unlock_exclusive|unlock_slow|wake|drop)";

/// Functions in a lock's module that are the caller's own time: reaching the data, building, printing.
const NOT_A_LOCK: &str = r"::(deref|deref_mut|new|get_mut|into_inner|from|default|as_ref|as_mut|fmt|data_ptr|is_poisoned|clear_poison|borrow|borrow_mut|map|guard|done|ignore_poison|get)$";

/// Code that has no place of its own in a table: the standard libraries.
const WRAPPER_ROOTS: [&str; 5] =
    ["core::", "alloc::", "std::", "hashbrown::", "compiler_builtins::"];

/// C allocators and their usual wrappers, by last word.
const ALLOCATORS: &str = r"^_*(rust_|rdl_|rg_|libc_|je_|mi_|tc_|g_|x|k|v|z|zc|kz|kv|s|e|ck_|my_|safe_|checked_)*(malloc|calloc|realloc|alloc|zalloc|alloc_zeroed|memalign|aligned_alloc|posix_memalign|reallocarray|strdup|strndup|new|mem_alloc|allocate|alloc_impl|alloc_array|array_alloc)(0|_n|_array|_node|_bytes|_zeroed|_impl)?$";

/// One function.
#[derive(Debug, Clone, Default)]
pub(super) struct Function {
    /// Demangled, without hash: `<prog::Dir as core::ops::Drop>::drop`.
    pub(super) path: String,
    /// The names of its type parameters, and the types.
    pub(super) parameters: Vec<(String, Die)>,
}

/// Names of functions of one module.
#[derive(Debug)]
pub(super) struct Functions<'d, 'a> {
    pub(super) debug: &'d Debug<'a>,
    known: RefCell<HashMap<Die, Rc<Function>>>,
}

/// `name` as the source has it, without a hash.
pub(super) fn demangle(name: &str) -> String {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return format!("{rust:#}");
    }
    addr2line::demangle_auto(Cow::Borrowed(name), None).into_owned()
}

impl<'d, 'a> Functions<'d, 'a> {
    pub(super) fn new(debug: &'d Debug<'a>) -> Self {
        Self { debug, known: RefCell::default() }
    }

    /// The function of a concrete or inlined entry.
    pub(super) fn function(&self, die: Die) -> Rc<Function> {
        if let Some(known) = self.known.borrow().get(&die) {
            return known.clone();
        }
        let function = Rc::new(self.read(die));
        self.known.borrow_mut().insert(die, function.clone());
        function
    }

    fn read(&self, die: Die) -> Function {
        let mut function = Function::default();
        let origins = self.debug.origins(die);
        let text =
            |name| origins.iter().find_map(|(die, entry)| self.debug.text(die.unit, entry, name));
        let linkage = text(constants::DW_AT_linkage_name)
            .or_else(|| text(constants::DW_AT_MIPS_linkage_name));
        function.path = match linkage {
            Some(linkage) => demangle(&linkage),
            None => {
                let name = text(constants::DW_AT_name).unwrap_or_default();
                let home = origins.last().map_or(die, |origin| origin.0);
                let mut path = String::new();
                for node in self.debug.parents(home) {
                    let parent = Die { unit: home.unit, offset: node.offset };
                    let part = self.debug.entry(parent).and_then(|entry| {
                        self.debug.text(parent.unit, &entry, constants::DW_AT_name)
                    });
                    if let Some(part) = part
                        && !name.is_empty()
                    {
                        path.push_str(&part);
                        path.push_str("::");
                    }
                }
                path + &name
            }
        };
        let mut homes: Vec<Die> = origins.iter().map(|origin| origin.0).collect();
        // A method has its type's parameters too.
        if let Some(home) = homes.last().copied()
            && let Some(node) = self.debug.parents(home).last()
            && matches!(node.tag, constants::DW_TAG_structure_type | constants::DW_TAG_class_type)
        {
            homes.push(Die { unit: home.unit, offset: node.offset });
        }
        for home in homes {
            for child in self.debug.children(home) {
                if child.tag() != constants::DW_TAG_template_type_parameter {
                    continue;
                }
                let name = self.debug.text(home.unit, &child, constants::DW_AT_name);
                let of = self.debug.link(home.unit, &child, constants::DW_AT_type);
                if let (Some(name), Some(of)) = (name, of)
                    && function.parameters.iter().all(|known| known.0 != name)
                {
                    function.parameters.push((name, of));
                }
            }
        }
        function
    }
}

/// The rules for the name of a chain of functions in a table.
#[derive(Debug)]
pub(super) struct Rules {
    locks: Vec<(Regex, String)>,
    own: usize,
    not_a_lock: Regex,
    lock_type: Regex,
    words: Regex,
    allocators: Regex,
}

impl Rules {
    /// The lists above, after those of `options`; an error names the expression that is none.
    pub(super) fn new(options: &Options) -> Result<Self, crate::Error> {
        let fixed = |pattern: &str| {
            Regex::new(pattern).map_err(|error| crate::Error::new(error.to_string()))
        };
        let mut locks = Vec::new();
        for (pattern, word) in &options.lock_patterns {
            let regex = Regex::new(pattern).map_err(|error| {
                let why = error.to_string();
                let why = why.lines().last().unwrap_or_default().trim().to_string();
                crate::Error::new(format!(
                    "lock pattern `{pattern}`: {why}; write a regular expression"
                ))
            })?;
            locks.push((regex, word.clone()));
        }
        let own = locks.len();
        for (pattern, word) in LOCKS {
            locks.push((fixed(pattern)?, word.to_string()));
        }
        Ok(Self {
            locks,
            own,
            not_a_lock: fixed(NOT_A_LOCK)?,
            lock_type: fixed(&format!(
                r"(^|::)\w*(Spin|Ticket|Mcs|MCS|Tas|Ttas|TTAS|Clh|CLH|Seq|Rw|RW)?(Mutex|Lock|Spinlock|SpinLock|RwLock)\w*::{LOCK_TYPE_WORDS}$"
            ))?,
            words: fixed(&format!(r"::{LOCK_TYPE_WORDS}$"))?,
            allocators: fixed(ALLOCATORS)?,
        })
    }

    /// `spinlock`, where the function is a lock's own code.
    pub(super) fn lock(&self, path: &str) -> Option<&str> {
        let plain = plain(path);
        for (regex, word) in &self.locks[..self.own] {
            if regex.is_match(path) || regex.is_match(&plain) {
                return Some(word);
            }
        }
        if self.not_a_lock.is_match(&plain) {
            return None;
        }
        let library = |word: &'static str| {
            // A lock's module holds more than the lock: only functions that acquire, release or wait count.
            (self.words.is_match(&plain)
                || plain.contains("::futex::")
                || plain.contains("parking_lot"))
            .then_some(word)
        };
        for (i, (regex, word)) in self.locks[self.own..].iter().enumerate() {
            if regex.is_match(&plain) {
                let certain = i > 4 || library("").is_some();
                if certain {
                    return Some(word);
                }
            }
        }
        let found = self.lock_type.is_match(&plain);
        found.then(|| {
            let kind = plain.to_ascii_lowercase();
            match () {
                () if kind.contains("mutex") => "mutex",
                () if kind.contains("rwlock") => "rwlock",
                () if kind.contains("seqlock") => "seqlock",
                () if kind.contains("spin") => "spinlock",
                () if ["ticket", "mcs", "tas", "clh"].iter().any(|x| kind.contains(x)) => {
                    "spinlock"
                }
                () => "lock",
            }
        })
    }

    /// Whether the function has no place of its own in a table.
    pub(super) fn is_wrapper(path: &str) -> bool {
        let plain = plain(path);
        path.is_empty() || WRAPPER_ROOTS.iter().any(|root| plain.starts_with(root))
    }

    /// Whether the function only passes on memory that it has from below.
    pub(super) fn is_allocator(&self, path: &str) -> bool {
        let plain = plain(path);
        let last = plain.rsplit("::").next().unwrap_or(&plain);
        Self::is_wrapper(path) || last.starts_with("__rust_") || self.allocators.is_match(last)
    }

    /// The name of `frames` in tables, the innermost function first.
    pub(super) fn function(&self, frames: &[Frame]) -> String {
        let mut word: Option<&str> = None;
        let mut wrapper = None;
        for frame in frames {
            let path = frame.function.as_str();
            if path.is_empty() {
                continue;
            }
            // The innermost lock wins, but a plain `lock` is told more exactly by its caller.
            if let Some(found) = self.lock(path) {
                if word.is_none() || word == Some("lock") {
                    word = Some(found);
                }
                // A function that the lock itself calls is not the lock's caller.
                wrapper = None;
                continue;
            }
            if Self::is_wrapper(path) {
                wrapper = wrapper.or(Some(path));
                continue;
            }
            let name = brief(path);
            return match word {
                Some(word) => format!("[{word}] @ {name}"),
                None => name,
            };
        }
        match (word, wrapper) {
            (Some(word), Some(path)) => format!("[{word}] @ {}", brief(path)),
            (Some(word), None) => format!("[{word}]"),
            (None, Some(path)) => brief(path),
            (None, None) => String::new(),
        }
    }
}

/// A path without arguments, those of C++ functions included, and `<T as Trait>::f` as `T::f`.
pub(super) fn plain(path: &str) -> String {
    let path = before_arguments(path);
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    // `<T as Trait>::f`, `<T>::f`: the part in the outer brackets at the start is a path itself.
    if let Some(inner) = path.strip_prefix('<')
        && let Some(end) = closing(inner)
    {
        let own = &inner[..end];
        let (own, of) = own.split_once(" as ").unwrap_or((own, ""));
        let own = own.trim_start_matches(['&', '*']).trim_start_matches("mut ");
        // A bare `T` has no path; the trait says whose code it is.
        let parameter = !own.contains("::") && of.contains("::");
        out.push_str(&plain(if parameter { of } else { own }));
        rest = &inner[end + 1..];
    }
    let mut depth = 0u32;
    let mut before = ' ';
    for c in rest.chars() {
        match c {
            '<' => depth += 1,
            // `Fn() -> T`
            '>' if before != '-' => depth = depth.saturating_sub(1),
            _ if depth == 0 => out.push(c),
            _ => {}
        }
        before = c;
    }
    // `Vec::<T>::push` has lost the part between.
    while let Some(at) = out.find("::::") {
        out.replace_range(at..at + 2, "");
    }
    if out.ends_with("::") {
        out.truncate(out.len() - 2);
    }
    out
}

/// `Dir::get(std::string const&) const` as `Dir::get`. Rust's paths have no arguments.
fn before_arguments(path: &str) -> &str {
    let mut open = 0u32;
    for (at, c) in path.strip_suffix(" const").unwrap_or(path).char_indices().rev() {
        match c {
            ')' => open += 1,
            '(' if open == 1 => {
                let before = &path[..at];
                let whole = before.is_empty() || before.ends_with("operator");
                return if whole { path } else { before };
            }
            '(' => open = open.saturating_sub(1),
            _ if open == 0 => return path,
            _ => {}
        }
    }
    path
}

/// Where the bracket that is open before `text` is closed.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 1u32;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
        before = c;
    }
    None
}

/// A function's name as tables print it: `lookup`, `Dir::lookup`, `worker::{closure#0}`.
pub(super) fn brief(path: &str) -> String {
    let plain = plain(path).replace("{{closure}}", "{closure}");
    let parts: Vec<&str> = plain.split("::").filter(|part| !part.starts_with("{impl")).collect();
    let Some((last, before)) = parts.split_last() else { return plain };
    let keep = before.last().is_some_and(|part| {
        last.starts_with('{') || part.chars().next().is_some_and(char::is_uppercase)
    });
    let from = if keep { before.len() - 1 } else { before.len() };
    // A closure in a closure in a function: up to the function.
    let mut from = from;
    while from > 0 && parts[from].starts_with('{') {
        from -= 1;
    }
    let name = parts[from..].join("::");
    if name.contains(' ') { short(&name) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn function(paths: &[&str]) -> String {
        let frame = |path: &&str| Frame { function: path.to_string(), source: String::new() };
        let frames: Vec<Frame> = paths.iter().map(frame).collect();
        Rules::new(&Options::default()).unwrap().function(&frames)
    }

    #[test]
    fn paths_lose_arguments_and_traits() {
        let check = |path: &str, expected: &str| assert_eq!(plain(path), expected, "{path}");
        check("alloc::vec::Vec<T,A>::push", "alloc::vec::Vec::push");
        check("<a::Dir<X> as core::ops::Drop>::drop", "a::Dir::drop");
        check(
            "<T as alloc::slice::hack::ConvertVec>::to_vec",
            "alloc::slice::hack::ConvertVec::to_vec",
        );
        check("<alloc::sync::Arc<a::B>>::new", "alloc::sync::Arc::new");
        check("<&mut F as a::G<fn() -> u8>>::call", "a::G::call");
        check("a::f::<u8>", "a::f");
        check("a::Dir::get(std::pair<int, b::C> const&, void (*)()) const", "a::Dir::get");
        check("main::{lambda(int)#1}::operator()(int) const", "main::{lambda(int)#1}::operator()");
        check("operator()", "operator()");
        check("(", "(");
        check(")", ")");
        check("<", "");
        check("<<<", "");
        check("a>b", "ab");
    }

    #[test]
    fn tables_print_short_names() {
        let check = |path: &str, expected: &str| assert_eq!(brief(path), expected, "{path}");
        check("lookup", "lookup");
        check("a::walk::lookup", "lookup");
        check("a::walk::Dir::lookup", "Dir::lookup");
        check("<a::Dir as a::Find>::find", "Dir::find");
        check("a::main::{{closure}}", "main::{closure}");
        check("a::main::{closure#0}::{closure#1}", "main::{closure#0}::{closure#1}");
        check("", "");
    }

    #[test]
    fn locks_are_named_with_their_callers() {
        let check = |paths: &[&str], expected: &str| assert_eq!(function(paths), expected);
        check(&["spin_lock", "dget", "main"], "[spinlock] @ dget");
        check(&["ticket_acquire", "work"], "[spinlock] @ work");
        check(&["mcs_lock", "work"], "[spinlock] @ work");
        check(&["_raw_spin_lock_irqsave", "work"], "[spinlock] @ work");
        check(&["pthread_mutex_lock", "work"], "[mutex] @ work");
        check(&["pthread_rwlock_rdlock", "work"], "[rwlock] @ work");
        check(
            &[
                "core::sync::atomic::atomic_compare_exchange",
                "<std::sys::sync::mutex::futex::Mutex>::lock",
                "std::sync::poison::mutex::Mutex<T>::lock",
                "a::lookup",
            ],
            "[mutex] @ lookup",
        );
        check(
            &["std::sys::sync::rwlock::futex::RwLock::read", "a::Dir::get"],
            "[rwlock] @ Dir::get",
        );
        check(
            &["<parking_lot::raw_mutex::RawMutex as lock_api::mutex::RawMutex>::lock", "a::b"],
            "[mutex] @ b",
        );
        check(&["parking_lot::raw_rwlock::RawRwLock::lock_shared_slow", "a::b"], "[rwlock] @ b");
        check(&["spin::mutex::spin::SpinMutex<T,R>::lock", "a::b"], "[mutex] @ b");
        check(&["a::TicketLock::acquire", "a::b"], "[spinlock] @ b");
        check(&["a::Gate::try_lock", "a::b"], "[lock] @ b");
        check(&["lock", "pthread_mutex_lock", "work"], "[mutex] @ work");
    }

    #[test]
    fn what_is_no_lock_keeps_its_name() {
        let check = |paths: &[&str], expected: &str| assert_eq!(function(paths), expected);
        check(&["std::sync::poison::mutex::MutexGuard<T>::deref", "a::lookup"], "lookup");
        check(&["core::sync::atomic::AtomicU64::fetch_add", "a::lookup"], "lookup");
        check(&["block", "main"], "block");
        check(&["clock", "main"], "clock");
        check(&["a::unlocked_count", "main"], "unlocked_count");
        check(&["a::Clock::read", "main"], "Clock::read");
        check(&["a::spinner", "main"], "spinner");
        check(&["alloc::vec::Vec<T,A>::len"], "Vec::len");
        check(&[], "");
    }

    #[test]
    fn a_pattern_of_ones_own_goes_first() {
        let options = Options { lock_patterns: vec![("^enter_gate$".into(), "gate".into())] };
        let rules = Rules::new(&options).unwrap();
        assert_eq!(rules.lock("enter_gate"), Some("gate"));
        assert_eq!(rules.lock("enter"), None);
        let options = Options { lock_patterns: vec![("(".into(), "gate".into())] };
        let error = Rules::new(&options).unwrap_err().to_string();
        assert!(error.starts_with("lock pattern `(`: ") && !error.contains('\n'), "{error}");
    }

    #[test]
    fn allocators_are_passed_over() {
        let rules = Rules::new(&Options::default()).unwrap();
        for path in [
            "malloc",
            "xmalloc",
            "g_malloc0",
            "kzalloc",
            "__rust_alloc",
            "alloc::vec::Vec<T>::push",
            "std::thread::spawn",
        ] {
            assert!(rules.is_allocator(path), "{path}");
        }
        for path in ["dentry_new", "main", "allocation_count", "a::Pool::take"] {
            assert!(!rules.is_allocator(path), "{path}");
        }
    }
}
