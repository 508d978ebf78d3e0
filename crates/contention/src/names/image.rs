//! An ELF file, its symbols, and the files that hold its debug information.
//!
//! # Boundary
//! Finds and reads files; does not interpret DWARF.
//!
//! # Concurrency
//! None. Parts of split debug information are read when first asked for.
//!
//! # Why
//! A whole file is read at once and only compressed sections are copied: debug information is walked
//! back and forth. Weakness: a file is in memory as long as it is asked.

use super::missing::Reason;
use gimli::SectionId;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// No file and no section may be larger.
const BYTES_MAX: u64 = 4 << 30;

/// Sections that are no debug sections, and are wanted as well.
const EXTRA: [&str; 2] = [".debug_cu_index", ".debug_tu_index"];

/// Where a section's bytes are.
#[derive(Debug)]
enum Part {
    /// In the file, from and to.
    Range(usize, usize),
    /// Decompressed.
    Owned(Vec<u8>),
}

/// The kind of a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymbolKind {
    Text,
    Data,
    ThreadLocal,
}

/// One symbol with an address.
#[derive(Debug, Clone)]
pub(super) struct Symbol {
    pub(super) address: u64,
    pub(super) size: u64,
    pub(super) kind: SymbolKind,
    pub(super) name: String,
}

/// One ELF file in memory.
#[derive(Debug)]
pub(super) struct Image {
    bytes: Vec<u8>,
    parts: BTreeMap<String, Part>,
    pub(super) build_id: Option<String>,
    pub(super) little_endian: bool,
    link: Option<PathBuf>,
    alternative: Option<PathBuf>,
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

impl Image {
    /// Reads the ELF file at `path`.
    pub(super) fn read(path: &Path) -> Result<Self, Reason> {
        // Anything but a file (a pipe, a device) could block for ever.
        let meta = fs::metadata(path).map_err(|_| Reason::NotFound)?;
        if !meta.is_file() {
            return Err(Reason::NotFound);
        }
        if meta.len() > BYTES_MAX {
            return Err(Reason::Damaged("larger than 4 GiB".into()));
        }
        let bytes = fs::read(path).map_err(|_| Reason::NotFound)?;
        Self::parse(bytes)
    }

    /// The ELF file that `bytes` hold.
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Self, Reason> {
        let damaged = |error: object::Error| Reason::Damaged(error.to_string());
        let mut parts = BTreeMap::new();
        let (build_id, little_endian, link, alternative);
        {
            let file = object::File::parse(&*bytes).map_err(damaged)?;
            build_id = file.build_id().ok().flatten().map(hex);
            little_endian = file.is_little_endian();
            link = file.gnu_debuglink().ok().flatten().map(|x| path_of(x.0));
            alternative = file.gnu_debugaltlink().ok().flatten().map(|x| path_of(x.0));
            for section in file.sections() {
                let Ok(name) = section.name() else { continue };
                let plain = match name.strip_prefix(".zdebug_") {
                    Some(rest) => format!(".debug_{rest}"),
                    None => name.to_string(),
                };
                if !plain.starts_with(".debug_") && !EXTRA.contains(&plain.as_str()) {
                    continue;
                }
                let Ok(data) = section.compressed_data() else { continue };
                let part = if data.format == object::CompressionFormat::None {
                    match section.file_range() {
                        Some((start, size)) => {
                            let end = start.saturating_add(size).min(bytes.len() as u64);
                            Part::Range(start.min(end) as usize, end as usize)
                        }
                        None => continue,
                    }
                } else {
                    // A section packed a thousand times over is a bomb, not debug information.
                    let packed = data.data.len() as u64;
                    if data.uncompressed_size > BYTES_MAX.min(packed.saturating_mul(1100)) {
                        continue;
                    }
                    match data.decompress() {
                        Ok(data) => Part::Owned(data.into_owned()),
                        Err(_) => continue,
                    }
                };
                parts.insert(plain, part);
            }
        }
        Ok(Self { bytes, parts, build_id, little_endian, link, alternative })
    }

    /// The bytes of a section; none if it is absent.
    pub(super) fn section(&self, name: &str) -> &[u8] {
        match self.parts.get(name) {
            Some(Part::Range(start, end)) => self.bytes.get(*start..*end).unwrap_or(&[]),
            Some(Part::Owned(data)) => data,
            None => &[],
        }
    }

    /// Whether there is any debug information to read.
    pub(super) fn has_debug_information(&self) -> bool {
        !self.section(SectionId::DebugInfo.name()).is_empty()
    }

    /// All symbols with addresses, by address.
    fn symbols(&self, into: &mut Vec<Symbol>) {
        let Ok(file) = object::File::parse(&*self.bytes) else { return };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            let kind = match symbol.kind() {
                object::SymbolKind::Text => SymbolKind::Text,
                object::SymbolKind::Data => SymbolKind::Data,
                object::SymbolKind::Tls => SymbolKind::ThreadLocal,
                _ => continue,
            };
            if symbol.is_undefined() {
                continue;
            }
            let Ok(name) = symbol.name_bytes() else { continue };
            if name.is_empty() {
                continue;
            }
            into.push(Symbol {
                address: symbol.address(),
                size: symbol.size(),
                kind,
                name: String::from_utf8_lossy(name).into_owned(),
            });
        }
    }

    /// Address and size of the block that each thread has a copy of.
    pub(super) fn thread_part(&self) -> Option<(u64, u64)> {
        let file = object::File::parse(&*self.bytes).ok()?;
        let mut found: Option<(u64, u64)> = None;
        for section in file.sections() {
            let name = section.name().unwrap_or_default();
            if name != ".tdata" && name != ".tbss" {
                continue;
            }
            let end = section.address().saturating_add(section.size());
            let (start, before) = found.unwrap_or((section.address(), end));
            found = Some((start.min(section.address()), before.max(end)));
        }
        found.map(|(start, end)| (start, end - start))
    }

    /// The name and bounds of the section with data at `address`: `.bss`.
    pub(super) fn data_section(&self, address: u64) -> Option<(String, u64, u64)> {
        let file = object::File::parse(&*self.bytes).ok()?;
        file.sections().find_map(|section| {
            let (start, size) = (section.address(), section.size());
            let inside = start != 0 && address.checked_sub(start).is_some_and(|at| at < size);
            let name = section.name().ok()?.to_string();
            (inside && !name.starts_with(".tdata") && !name.starts_with(".tbss"))
                .then_some((name, start, size))
        })
    }
}

/// A module's file and everything that explains it.
#[derive(Debug)]
pub(super) struct Files {
    /// The file that was mapped.
    main: Image,
    /// Another one with its debug information.
    separate: Option<Image>,
    /// The parts that `dwz` moved out of several files.
    supplement: Option<Image>,
    /// Text, data and thread-local symbols, by address.
    pub(super) symbols: Vec<Symbol>,
    path: PathBuf,
    package: OnceCell<Option<Image>>,
    /// One place for each split unit that may be asked for, by number of its skeleton.
    split: Vec<OnceCell<Option<Image>>>,
}

impl Files {
    /// Reads `path`, and finds its debug information. `build_id` is that of the file mapped when the program ran.
    pub(super) fn open(path: &Path, build_id: Option<&str>) -> Result<Self, Reason> {
        let main = Image::read(path)?;
        if let (Some(then), Some(now)) = (build_id, &main.build_id)
            && !then.eq_ignore_ascii_case(now)
        {
            return Err(Reason::Changed);
        }
        Ok(Self::with(main, path))
    }

    /// A module of an image that is in memory already.
    pub(super) fn with(main: Image, path: &Path) -> Self {
        let separate = if main.has_debug_information() { None } else { separate(&main, path) };
        let explained = separate.as_ref().unwrap_or(&main);
        let supplement = explained.alternative.as_ref().and_then(|link| {
            let near = path.parent().unwrap_or(Path::new("/")).join(link);
            let debug = Path::new("/usr/lib/debug").join(link.strip_prefix("/").unwrap_or(link));
            [near, debug].iter().find_map(|path| Image::read(path).ok())
        });
        let mut symbols = Vec::new();
        main.symbols(&mut symbols);
        if let Some(separate) = &separate {
            separate.symbols(&mut symbols);
        }
        symbols.sort_by(|a, b| (a.address, b.size, &a.name).cmp(&(b.address, a.size, &b.name)));
        symbols.dedup_by(|a, b| a.address == b.address && a.name == b.name);
        let units = super::dwarf::unit_count(explained);
        let split = (0..units).map(|_| OnceCell::new()).collect();
        let path = path.to_path_buf();
        Self { main, separate, supplement, symbols, path, package: OnceCell::new(), split }
    }

    /// The image that has the debug information.
    pub(super) fn debug(&self) -> &Image {
        self.separate.as_ref().unwrap_or(&self.main)
    }

    /// The image that was mapped.
    pub(super) fn main(&self) -> &Image {
        &self.main
    }

    /// The parts that `dwz` moved out, where they were found.
    pub(super) fn supplement(&self) -> Option<&Image> {
        self.supplement.as_ref()
    }

    /// The package of split units beside the program: `prog.dwp`.
    pub(super) fn package(&self) -> Option<&Image> {
        let read = || {
            let mut name = self.path.clone().into_os_string();
            name.push(".dwp");
            Image::read(Path::new(&name))
                .or_else(|_| Image::read(&self.path.with_extension("dwp")))
                .ok()
        };
        self.package.get_or_init(read).as_ref()
    }

    /// The split unit that skeleton `number` names.
    pub(super) fn split(&self, number: usize, directory: &Path, name: &Path) -> Option<&Image> {
        let read = || {
            let beside = self.path.parent().unwrap_or(Path::new("/"));
            let file = name.file_name().map(Path::new).unwrap_or(name);
            [directory.join(name), beside.join(name), beside.join(file)]
                .iter()
                .find_map(|path| Image::read(path).ok())
        };
        self.split.get(number)?.get_or_init(read).as_ref()
    }

    /// The symbol of `kind` that `address` lies in, innermost first; without a size, the last before it.
    pub(super) fn symbol(&self, address: u64, kind: SymbolKind) -> Option<&Symbol> {
        let end = self.symbols.partition_point(|symbol| symbol.address <= address);
        let near = self.symbols[..end].iter().rev().take(64).filter(|symbol| symbol.kind == kind);
        let mut first = None;
        for symbol in near {
            if address - symbol.address < symbol.size {
                return Some(symbol);
            }
            if first.is_none() && symbol.size == 0 && kind == SymbolKind::Text {
                first = Some(symbol);
            }
        }
        first
    }
}

/// The file with the debug information of `main`, by build id or by link.
fn separate(main: &Image, path: &Path) -> Option<Image> {
    let root = Path::new("/usr/lib/debug");
    let mut places = Vec::new();
    if let Some(id) = main.build_id.as_deref().filter(|id| id.len() > 2 && id.is_ascii()) {
        places.push(root.join(".build-id").join(&id[..2]).join(format!("{}.debug", &id[2..])));
    }
    if let Some(name) = &main.link {
        let real = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        let beside = real.parent().unwrap_or(Path::new("/"));
        places.push(beside.join(name));
        places.push(beside.join(".debug").join(name));
        places.push(root.join(beside.strip_prefix("/").unwrap_or(beside)).join(name));
    }
    places.iter().find_map(|place| {
        let image = Image::read(place).ok()?;
        // Another build's debug information would name the wrong fields.
        let same = match (&main.build_id, &image.build_id) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        (same && image.has_debug_information()).then_some(image)
    })
}
