//! Contents and attributes.

use super::*;
use uvfs_vfs::{SetTime, Timestamp};

const OLD: Timestamp = Timestamp { seconds: 1000, nanoseconds: 1 };

fn with_old_times(memory: &MemoryBackend, inode: InodeId) {
    let node = memory.table.get(inode).unwrap();
    let mut state = node.state.write();
    (state.atime, state.mtime, state.ctime) = (OLD, OLD, OLD);
}

/// Which of access, modification and change time moved from [`OLD`].
fn moved(memory: &MemoryBackend, inode: InodeId) -> (bool, bool, bool) {
    let now = memory.stat(inode);
    (now.atime != OLD, now.mtime != OLD, now.ctime != OLD)
}

#[test]
fn a_file_holds_what_was_written_where_it_was_written() {
    let memory = backend(1 << 24);
    let file = memory.file("a");
    assert_eq!(memory.put(file, 10_000, b"hello").unwrap(), 5);
    assert_eq!(memory.take(file, 9_998, 100), b"\0\0hello");
    assert_eq!(memory.take(file, 10_005, 1), b"");
    assert_eq!(memory.take(file, u64::MAX, 1), b"");
    let attributes = memory.stat(file);
    assert_eq!((attributes.size, attributes.blocks), (10_005, 8));
}

#[test]
fn sizes_end_at_the_largest_signed_offset() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let end = i64::MAX as u64;
    assert_eq!(memory.put(file, end - 3, b"12345").unwrap(), 3);
    assert_eq!(memory.stat(file).size, end);
    assert_eq!(memory.take(file, end - 3, 10), b"123");
    for offset in [end, end + 1, u64::MAX] {
        assert!(matches!(memory.put(file, offset, b"x"), Err(Error::TooBig)));
        assert!(matches!(
            memory.allocate(FileRef::unopened(file), AllocateMode::PunchHole, offset, 1),
            Err(Error::TooBig)
        ));
    }
    assert!(matches!(memory.resize(file, end + 1), Err(Error::TooBig)));
    assert_eq!(memory.resize(file, end).unwrap().size, end);
    assert_eq!(memory.resize(file, 1).unwrap().blocks, 0);
}

/// Bug: xfstests generic/103: `fallocate` of the space that `df` showed was refused, since `df`
/// left out a file's costs beside its pages.
#[test]
fn a_new_file_can_have_all_that_is_available() {
    let mut sizes = Random::new(7);
    for _ in 0..40 {
        let size = (1 << 20) + sizes.below(64 << 20);
        let memory = backend(size);
        let first = memory.file("first");
        memory.put(first, 0, &vec![1; sizes.below(1 << 20) as usize]).unwrap();
        let available = memory.totals().unwrap().blocks_available * PAGE_BYTES;
        let file = FileRef::unopened(memory.file("second"));
        memory.allocate(file, AllocateMode::Extend, 0, available).unwrap();
        let left = memory.totals().unwrap().blocks_available;
        assert!(left < 4, "{left} blocks of {size} bytes were kept back");
    }
}

#[test]
fn a_full_file_system_cuts_a_write_short_and_then_refuses() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let written = memory.put(file, 0, &vec![7; 2 << 20]).unwrap() as u64;
    assert!(written > 1 << 19 && written < 1 << 20);
    assert_eq!(memory.stat(file).size, written);
    assert!(matches!(memory.put(file, written, b"x"), Err(Error::NoSpace)));
    let refused = memory.allocate(FileRef::unopened(file), AllocateMode::Extend, 0, 1 << 40);
    assert!(matches!(refused, Err(Error::NoSpace)));
    assert_eq!(memory.put(file, 0, b"over").unwrap(), 4, "what is there can be overwritten");
    memory.resize(file, 0).unwrap();
    assert_eq!(memory.put(file, 5, b"x").unwrap(), 1);
}

#[test]
fn the_inode_limit_refuses_creation_and_leaves_nothing_behind() {
    let config = MemoryConfig { inodes_max: 3, ..Default::default() };
    let memory = MemoryBackend::new(config).unwrap();
    memory.file("a");
    memory.file("b");
    let used = memory.used();
    assert!(matches!(memory.make(ROOT, "c", NewKind::Regular), Err(Error::NoSpace)));
    assert!(matches!(memory.make(ROOT, "a", NewKind::Regular), Err(Error::Exists)));
    assert_eq!(memory.used(), used);
    assert_eq!(memory.table.racy_count(), 3);
    memory.drop_name(ROOT, "a").unwrap();
    memory.file("c");
}

#[test]
fn reads_and_writes_mark_the_times_that_posix_says() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let unopened = FileRef::unopened(file);
    let check = |expected, what: &dyn Fn()| {
        with_old_times(&memory, file);
        what();
        assert_eq!(moved(&memory, file), expected);
    };
    let nothing = (false, false, false);
    let content = (false, true, true);
    check(content, &|| assert!(memory.put(file, 0, b"data").is_ok()));
    check(nothing, &|| assert!(memory.put(file, 0, b"").is_ok()));
    check((true, false, false), &|| drop(memory.take(file, 0, 1)));
    check(nothing, &|| drop(memory.take(file, 0, 0)));
    check(content, &|| assert!(memory.resize(file, 4).is_ok()));
    for mode in [AllocateMode::Extend, AllocateMode::PunchHole, AllocateMode::Zero] {
        check(content, &|| memory.allocate(unopened, mode, 0, 10).unwrap());
    }
    let set = |set| assert!(memory.set_attributes(&Caller::root(), unopened, &set).is_ok());
    let changed = (false, false, true);
    check(changed, &|| set(SetAttributes { mode: Some(0o600), ..Default::default() }));
    check(changed, &|| set(SetAttributes { uid: Some(7), ..Default::default() }));
    check((true, false, true), &|| {
        set(SetAttributes { atime: Some(SetTime::Now), ..Default::default() })
    });
    check(nothing, &|| set(SetAttributes::default()));
    set(SetAttributes { size: Some(1), mtime: Some(SetTime::At(OLD)), ..Default::default() });
    assert_eq!(memory.stat(file).mtime, OLD, "a given time wins over the mark of a cut");
}

#[test]
fn what_is_no_file_has_no_data() {
    let memory = backend(1 << 20);
    let directory = memory.directory(ROOT, "d");
    let pipe = memory.make(ROOT, "p", NewKind::Fifo).unwrap();
    assert!(matches!(memory.put(directory, 0, b"x"), Err(Error::IsDirectory)));
    assert!(matches!(memory.resize(directory, 0), Err(Error::IsDirectory)));
    assert!(matches!(memory.resize(pipe, 0), Err(Error::Invalid(_))));
    let mut into = [0];
    assert!(matches!(
        memory.read(FileRef::unopened(directory), 0, &mut into),
        Err(Error::IsDirectory)
    ));
    let device = memory.make(ROOT, "c", NewKind::CharDevice(0x103)).unwrap();
    assert_eq!(memory.stat(device).device, 0x103);
    assert!(matches!(memory.put(InodeId(999), 0, b"x"), Err(Error::Stale)));
}

#[test]
fn an_unprivileged_write_or_cut_and_any_change_of_owner_end_set_id_bits() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let unopened = FileRef::unopened(file);
    let someone = Caller::new(5, 5, &[]);
    let root = Caller::root();
    let set = |caller: &Caller, set| memory.set_attributes(caller, unopened, &set).unwrap().mode;
    let arm = || set(&root, SetAttributes { mode: Some(0o6755), ..Default::default() });
    arm();
    memory.put(file, 0, b"x").unwrap();
    assert_eq!(memory.stat(file).mode, 0o6755);
    memory.write(&someone, unopened, 0, b"x").unwrap();
    assert_eq!(memory.stat(file).mode, 0o755);
    arm();
    assert_eq!(set(&root, SetAttributes { size: Some(0), ..Default::default() }), 0o6755);
    assert_eq!(set(&someone, SetAttributes { size: Some(0), ..Default::default() }), 0o755);
    arm();
    assert_eq!(set(&root, SetAttributes { gid: Some(9), ..Default::default() }), 0o755);
}

#[test]
fn reserved_space_counts_and_goes_with_a_cut_to_the_same_size() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let unopened = FileRef::unopened(file);
    let empty = memory.used();
    memory.allocate(unopened, AllocateMode::KeepSize, 5000, 20_000).unwrap();
    assert_eq!((memory.stat(file).size, memory.stat(file).blocks), (0, 6 * 8));
    memory.resize(file, 0).unwrap();
    assert_eq!(memory.used(), empty);
    memory.allocate(unopened, AllocateMode::Extend, 5000, 20_000).unwrap();
    assert_eq!((memory.stat(file).size, memory.stat(file).blocks), (25_000, 6 * 8));
    assert!(matches!(
        memory.allocate(unopened, AllocateMode::Extend, 0, 0),
        Err(Error::Invalid(_))
    ));
}

#[test]
fn a_copy_keeps_holes_and_ends_with_the_source() {
    let memory = backend(1 << 24);
    let (from, to) = (memory.file("from"), memory.file("to"));
    memory.put(from, 1 << 20, &[3; 5000]).unwrap();
    memory.resize(from, 2 << 20).unwrap();
    memory.put(to, 0, &[9; 30_000]).unwrap();
    let copy = |from, at, to, to_at, length| {
        memory.copy_range(FileRef::unopened(from), at, FileRef::unopened(to), to_at, length)
    };
    assert_eq!(copy(from, 0, to, 10, u64::MAX).unwrap(), 2 << 20);
    let mut expected = memory.take(from, 0, 2 << 20);
    expected.splice(0..0, [9; 10]);
    assert_eq!(memory.take(to, 0, 3 << 20), expected);
    assert_eq!(memory.stat(to).blocks, 4 * 8, "one page of what was before, three with data");
    assert_eq!(copy(from, 2 << 20, to, 0, 10).unwrap(), 0);
    assert!(matches!(copy(from, 0, from, 10, 100), Err(Error::Invalid(_))));
    assert_eq!(copy(from, 1 << 20, from, 0, 100).unwrap(), 100);
    assert_eq!(memory.take(from, 98, 4), [3, 3, 0, 0]);
    assert!(matches!(copy(ROOT, 0, to, 0, 1), Err(Error::IsDirectory)));
}
