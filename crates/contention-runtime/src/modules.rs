//! Mapped files: their places and names, and the names of their variables by address.
//!
//! # Boundary
//! From an address to a [`Place`] and, for data, to the variable that covers it. The reader of debug information
//! adds names later.
//!
//! # Concurrency
//! As [`crate::state`].
//!
//! # Why
//! A place in a module means the same in every run. Weakness: a library that was closed again before the
//! end is not among them, and its places are left out.

use std::ffi::{CStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use uvfs_coherence::profile::{Module, Place};

/// One loaded file.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) record: Module,
    bias: u64,
    /// Loadable parts: start, end, whether writable.
    parts: Vec<(u64, u64, bool)>,
    /// Variables by address in the module, sorted; read when first asked for.
    variables: Option<Vec<(u64, u64)>>,
    /// Offset of the thread-local part in the file's own addresses, and its size.
    pub(crate) thread_part: Option<(u64, u64)>,
    /// How far below a thread's base its thread-local part is.
    pub(crate) thread_distance: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    pub(crate) all: Vec<Loaded>,
}

/// # Safety
/// The loader calls it, with a record that is valid meanwhile, and `data` is the pointer that [`Modules::read`] passed.
unsafe extern "C" fn visit(info: *mut libc::dl_phdr_info, _: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader gives a valid record; `data` is the vector that `read` passed.
    let (info, modules) = unsafe { (&*info, &mut *data.cast::<Vec<Loaded>>()) };
    // SAFETY: the loader's name ends in zero.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) };
    let path = if name.is_empty() {
        if !modules.is_empty() {
            return 0;
        }
        std::fs::read_link("/proc/self/exe").unwrap_or_default()
    } else {
        Path::new(std::ffi::OsStr::from_bytes(name.to_bytes())).to_path_buf()
    };
    let mut module = Loaded {
        record: Module {
            id: modules.len() as u32,
            path: path.to_string_lossy().into_owned(),
            build_id: None,
        },
        bias: info.dlpi_addr,
        parts: Vec::new(),
        variables: None,
        thread_part: None,
        thread_distance: 0,
    };
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the loader gives that many headers.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        match header.p_type {
            libc::PT_LOAD => {
                let writable = header.p_flags & libc::PF_W != 0;
                module.parts.push((start, start + header.p_memsz, writable));
            }
            libc::PT_NOTE if module.record.build_id.is_none() => {
                let size = header.p_memsz as usize;
                // SAFETY: a loaded note is readable for its size.
                let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, size) };
                module.record.build_id = build_id(bytes);
            }
            libc::PT_TLS => {
                module.thread_part = Some((header.p_vaddr, header.p_memsz));
                let base = crate::switch::thread_base() as u64;
                module.thread_distance = base.wrapping_sub(info.dlpi_tls_data as u64);
            }
            _ => {}
        }
    }
    modules.push(module);
    0
}

/// The build identifier among the notes.
fn build_id(notes: &[u8]) -> Option<String> {
    let word = |at: usize| -> Option<usize> {
        Some(u32::from_le_bytes(notes.get(at..at + 4)?.try_into().ok()?) as usize)
    };
    let mut at = 0;
    loop {
        let (name, size, kind) = (word(at)?, word(at + 4)?, word(at + 8)?);
        let name_end = at + 12 + name.next_multiple_of(4);
        let content = notes.get(name_end..name_end.checked_add(size)?)?;
        if kind == 3 && notes.get(at + 12..at + 16) == Some(b"GNU\0") {
            return Some(content.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        at = name_end + size.next_multiple_of(4);
    }
}

impl Modules {
    /// Those that are loaded now.
    pub(crate) fn read() -> Self {
        let mut all: Vec<Loaded> = Vec::new();
        // SAFETY: `visit` gets the same vector back.
        unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut all).cast()) };
        all.retain(|module| !module.parts.is_empty());
        for (index, module) in all.iter_mut().enumerate() {
            module.record.id = index as u32;
        }
        Self { all }
    }

    fn find(&self, address: u64) -> Option<usize> {
        let covers = |module: &Loaded| {
            module.parts.iter().any(|(start, end, _)| (*start..*end).contains(&address))
        };
        self.all.iter().position(covers)
    }

    /// An address in a module.
    pub(crate) fn place(&self, address: u64) -> Option<Place> {
        let module = &self.all[self.find(address)?];
        Some(Place { module: module.record.id, offset: address - module.bias })
    }

    /// The address of a place of a module of this path.
    pub(crate) fn address(&self, path: &Path, offset: u64) -> Option<u64> {
        let same = |module: &&Loaded| {
            let found = Path::new(&module.record.path);
            found == path || std::fs::canonicalize(found).ok() == std::fs::canonicalize(path).ok()
        };
        Some(self.all.iter().find(same)?.bias.wrapping_add(offset))
    }

    /// The variable at an address: its place, its address, its size; without a symbol, the line.
    pub(crate) fn variable(&mut self, address: u64, line_bytes: u64) -> Option<(Place, u64, u64)> {
        let index = self.find(address)?;
        let module = &mut self.all[index];
        let (id, bias) = (module.record.id, module.bias);
        let offset = address - bias;
        let path = module.record.path.clone();
        let variables = module.variables.get_or_insert_with(|| variables(Path::new(&path)));
        let after = variables.partition_point(|(start, _)| *start <= offset);
        if let Some((start, size)) = after.checked_sub(1).map(|before| variables[before])
            && offset < start + size
        {
            return Some((Place { module: id, offset: start }, bias + start, size));
        }
        let start = offset & !(line_bytes - 1);
        Some((Place { module: id, offset: start }, bias + start, line_bytes))
    }
}

/// Variables of a file's symbol tables: address and size, sorted; empty when there is none to read.
fn variables(path: &Path) -> Vec<(u64, u64)> {
    let mut found = std::fs::read(path).ok().and_then(|file| symbols(&file)).unwrap_or_default();
    found.sort_unstable();
    found.dedup_by_key(|variable| variable.0);
    found
}

/// Symbols of data in a 64-bit little-endian ELF file.
fn symbols(file: &[u8]) -> Option<Vec<(u64, u64)>> {
    let number = |at: usize, bytes: usize| -> Option<u64> {
        let mut value = [0; 8];
        value[..bytes].copy_from_slice(file.get(at..at.checked_add(bytes)?)?);
        Some(u64::from_le_bytes(value))
    };
    if file.get(..6)? != [0x7f, b'E', b'L', b'F', 2, 1] {
        return None;
    }
    let (table, size, count) =
        (number(0x28, 8)? as usize, number(0x3a, 2)? as usize, number(0x3c, 2)? as usize);
    let mut found = Vec::new();
    for index in 0..count {
        let header = table.checked_add(index * size)?;
        let kind = number(header + 4, 4)?;
        // SHT_SYMTAB, SHT_DYNSYM.
        if kind != 2 && kind != 11 {
            continue;
        }
        let (start, bytes) =
            (number(header + 0x18, 8)? as usize, number(header + 0x20, 8)? as usize);
        for entry in (start..start.checked_add(bytes)?).step_by(24) {
            let is_object = number(entry + 4, 1)? & 0xf == 1;
            let (address, length) = (number(entry + 8, 8)?, number(entry + 16, 8)?);
            if is_object && length > 0 && address > 0 {
                found.push((address, length));
            }
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    static MARK: [u64; 9] = [7; 9];

    #[test]
    fn a_variable_of_this_program_is_found_by_an_address_inside() {
        let mut modules = Modules::read();
        let address = MARK.as_ptr() as u64;
        let (place, start, size) = modules.variable(address + 17, 64).unwrap();
        assert_eq!((start, size), (address, 72));
        assert_eq!(modules.place(address), Some(place));
        let path = std::env::current_exe().unwrap();
        assert_eq!(modules.address(&path, place.offset), Some(address));
        let own: fn() = a_variable_of_this_program_is_found_by_an_address_inside;
        assert_eq!(
            modules.place(own as usize as u64).map(|place| place.module),
            Some(place.module)
        );
        assert_eq!(modules.place(16), None);
    }

    #[test]
    fn a_build_identifier_is_found_among_notes() {
        let mut notes = Vec::new();
        for (kind, content) in [(1_u32, vec![1_u8, 2]), (3, vec![0xab, 0x01, 0xcd])] {
            notes.extend(4_u32.to_le_bytes());
            notes.extend((content.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(b"GNU\0");
            notes.extend(&content);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        assert_eq!(build_id(&notes).as_deref(), Some("ab01cd"));
        assert_eq!(build_id(&notes[..17]), None);
        assert_eq!(symbols(b"\x7fELF\x02\x01 and not much more"), None);
    }
}
