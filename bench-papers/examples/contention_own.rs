//! Changes or opens of files, each thread in a directory of its own: `contention_own [operations [threads [mode]]]`.
//!
//! | mode | an operation |
//! |---|---|
//! | `open-own` | open and close a file of one's own |
//! | `open-one` | open and close the one file that all open |
//! | `create-own`, `remove-own` | make a file in one's own directory; remove it |
//! | `rename-own` | give a file of one's own another name in its directory |
//! | `read` | read 4 KiB of a cached page of the one file that all read |
//! | `write-own` | write 4 KiB over a cached page of a file of one's own |
//! | `mix` | a user's turn: edit a file, compile it against headers that all share, list and search, clean up |
//!
//! # Why
//! All threads have one caller and one file system, like the users of one server: they share only lines of the file
//! system. Each thread makes its own files, so that no line starts in another core's cache. Weakness: the RAM store's
//! locks are part of it; the table of lines shows the owner of each.

#![forbid(unsafe_code)]

use uvfs_backends::memory::{MemoryBackend, MemoryConfig};
use uvfs_bench_papers::contended::{self, Arguments};
use uvfs_vfs::{Caller, Directory, NewKind, OpenOptions, PagePolicy, RenameMode, Vfs, VfsConfig};

const PAGE: usize = 4096;
const PAGES: usize = 8;
/// Turns of a thread before its time is taken.
const WARM: usize = 24;
/// Headers that every compiling thread reads.
const HEADERS: usize = 16;

const MODES: [&str; 8] =
    ["open-own", "open-one", "create-own", "remove-own", "rename-own", "read", "write-own", "mix"];

fn main() {
    let arguments = Arguments::read(100, "open-own");
    let mode = arguments.mode.as_str();
    assert!(MODES.contains(&mode), "{mode}: one of {}", MODES.join(", "));
    let store = MemoryBackend::new(MemoryConfig { root_mode: 0o777, ..MemoryConfig::default() });
    let pages = match mode {
        "read" | "write-own" => PagePolicy::WriteBack,
        _ => PagePolicy::Auto,
    };
    let config = VfsConfig { pages, ..VfsConfig::default() };
    let vfs = Vfs::new(store.expect("the defaults are valid"), config).expect("a healthy store");
    let root = vfs.root_directory(Caller::root());
    let content = vec![7; PAGES * PAGE];
    root.write_file("one", &content).expect("room");
    root.create_directory("include", 0o755).expect("room");
    for nth in 0..HEADERS {
        root.write_file(format!("include/header-{nth}"), b"#pragma once").expect("room");
    }
    let users: Vec<User> = (0..arguments.threads).map(|me| User::new(&root, me)).collect();
    contended::run(&arguments, WARM, |me, turn| {
        let user = &users[me];
        if turn == arguments.operations {
            user.prepare(&content, &arguments);
        }
        match mode {
            "open-own" => drop(user.folder.open("file", OpenOptions::read()).expect("there")),
            "open-one" => drop(root.open("one", OpenOptions::read()).expect("there")),
            "create-own" => user.create(&format!("name-{turn}")),
            "remove-own" => user.folder.remove_file(format!("name-{turn}")).expect("there"),
            "rename-own" => {
                let names = ["name-0", "name-1"];
                let (from, to) = (names[turn % 2], names[1 - turn % 2]);
                user.folder.rename(from, to, RenameMode::NoReplace).expect("there");
            }
            "read" => user.read((me * 13 + turn * 5) % PAGES),
            "write-own" => user.write((turn * 5) % PAGES),
            _ => user.turn(&root, turn),
        }
        1
    });
}

/// A thread's own directory.
struct User {
    folder: Directory,
    /// The file that is read or written.
    file: std::sync::OnceLock<uvfs_vfs::File>,
}

impl User {
    fn new(root: &Directory, me: usize) -> Self {
        let name = format!("folder-{me}");
        root.create_directory(&name, 0o777).expect("room");
        let folder = root.open_directory(&name).expect("it is there");
        Self { folder, file: std::sync::OnceLock::new() }
    }

    /// The preparation of each thread before it is measured.
    fn prepare(&self, content: &[u8], arguments: &Arguments) {
        self.folder.write_file("file", content).expect("room");
        match arguments.mode.as_str() {
            "remove-own" => {
                (0..arguments.operations + WARM)
                    .for_each(|turn| self.create(&format!("name-{turn}")));
            }
            // Where the first turn finds it.
            "rename-own" => self.create(&format!("name-{}", arguments.operations % 2)),
            "read" | "write-own" => {
                let path = if arguments.mode == "read" { "../one" } else { "file" };
                let file = self.folder.open(path, OpenOptions::read_write()).expect("it is there");
                assert_eq!(file.read_to_end().expect("a healthy store").len(), content.len());
                assert!(self.file.set(file).is_ok(), "once");
            }
            _ => {}
        }
    }

    fn create(&self, name: &str) {
        self.folder.create(name, NewKind::Regular, 0o666).expect("room");
    }

    fn file(&self) -> &uvfs_vfs::File {
        self.file.get().expect("prepared")
    }

    fn read(&self, page: usize) {
        let mut bytes = [0; PAGE];
        let count = self.file().read_at((page * PAGE) as u64, &mut bytes).expect("healthy");
        assert_eq!(count, PAGE);
    }

    fn write(&self, page: usize) {
        self.file().write_all_at((page * PAGE) as u64, &[9; PAGE]).expect("room");
    }

    /// Edits, compiles, searches, and cleans up.
    fn turn(&self, root: &Directory, turn: usize) {
        let folder = &self.folder;
        let source = folder.read_file("file").expect("there");
        folder.write_file("file.new", &source[..64]).expect("room");
        folder.rename("file.new", "source", RenameMode::Replace).expect("there");
        for nth in 0..4 {
            let header = format!("include/header-{}", (turn * 5 + nth) % HEADERS);
            root.stat(&header).expect("there");
            drop(root.open(&header, OpenOptions::read()).expect("there"));
        }
        folder.write_file("object", &source[..128]).expect("room");
        for entry in folder.list_all().expect("healthy") {
            folder.stat(&entry.name).expect("there");
        }
        folder.remove_file("object").expect("there");
    }
}
