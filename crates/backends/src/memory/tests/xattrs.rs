//! Extended attributes and access control lists.

use super::*;
use uvfs_vfs::acl::{ACCESS_XATTR, DEFAULT_XATTR};

fn set(memory: &MemoryBackend, inode: InodeId, name: &[u8], value: &[u8]) -> Result<()> {
    memory.set_xattr(&Caller::root(), inode, name, value, XattrMode::Any)
}

fn get(memory: &MemoryBackend, inode: InodeId, name: &[u8]) -> Result<Vec<u8>> {
    memory.get_xattr(&Caller::root(), inode, name)
}

fn remove(memory: &MemoryBackend, inode: InodeId, name: &[u8]) -> Result<()> {
    memory.remove_xattr(&Caller::root(), inode, name)
}

fn list(memory: &MemoryBackend, inode: InodeId) -> Vec<Vec<u8>> {
    memory.list_xattrs(&Caller::root(), inode).unwrap()
}

/// The wire format of a list: owner, user 7, group, mask, others.
fn wire(owner: u8, user: u8, group: u8, mask: u8, other: u8) -> Vec<u8> {
    let entry = |tag: u8, access: u8, id: [u8; 4]| {
        let mut bytes = vec![tag, 0, access, 0];
        bytes.extend(id);
        bytes
    };
    let no_id = [255; 4];
    let parts = [
        vec![2, 0, 0, 0],
        entry(1, owner, no_id),
        entry(2, user, [7, 0, 0, 0]),
        entry(4, group, no_id),
        entry(16, mask, no_id),
        entry(32, other, no_id),
    ];
    parts.concat()
}

fn minimal(owner: u8, group: u8, other: u8) -> Vec<u8> {
    let full = wire(owner, 0, group, 0, other);
    [&full[..12], &full[20..28], &full[36..]].concat()
}

#[test]
fn attributes_are_set_listed_replaced_and_removed() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let before = memory.used();
    assert!(matches!(get(&memory, file, b"user.x"), Err(Error::NoAttribute)));
    set(&memory, file, b"user.x", b"1").unwrap();
    set(&memory, file, b"security.y", b"").unwrap();
    set(&memory, file, b"user.x", b"longer").unwrap();
    assert_eq!(get(&memory, file, b"user.x").unwrap(), b"longer");
    assert_eq!(get(&memory, file, b"security.y").unwrap(), b"");
    assert_eq!(list(&memory, file), [b"security.y".to_vec(), b"user.x".to_vec()]);
    let modal = |mode| memory.set_xattr(&Caller::root(), file, b"user.x", b"3", mode);
    assert!(matches!(modal(XattrMode::Create), Err(Error::Exists)));
    modal(XattrMode::Replace).unwrap();
    remove(&memory, file, b"user.x").unwrap();
    assert!(matches!(modal(XattrMode::Replace), Err(Error::NoAttribute)));
    assert!(matches!(remove(&memory, file, b"user.x"), Err(Error::NoAttribute)));
    remove(&memory, file, b"security.y").unwrap();
    assert_eq!(memory.used(), before);
}

#[test]
fn names_and_values_have_limits() {
    let memory = backend(1 << 24);
    let file = memory.file("a");
    let long = [b"user.".as_slice(), &[b'x'; 250]].concat();
    set(&memory, file, &long, &vec![1; 65536]).unwrap();
    let errno = |name: &[u8], length| {
        set(&memory, file, name, &vec![1; length]).map_err(|error| error.errno())
    };
    assert_eq!(errno(&[&long[..], b"x"].concat(), 1), Err(libc::ERANGE));
    assert_eq!(errno(b"", 1), Err(libc::ERANGE));
    assert_eq!(errno(b"user.", 1), Err(libc::EINVAL));
    assert_eq!(errno(b"user.a\0b", 1), Err(libc::EINVAL));
    assert_eq!(errno(b"user.big", 65537), Err(libc::E2BIG));
    assert_eq!(errno(b"other.x", 1), Err(libc::EOPNOTSUPP));
    assert_eq!(errno(b"system.x", 1), Err(libc::EOPNOTSUPP));
    let set_many = (0..300).map(|at| set(&memory, file, format!("user.{at:0240}").as_bytes(), b""));
    let accepted = set_many.filter(Result::is_ok).count();
    assert!((200..300).contains(&accepted), "{accepted}");
    let listed: usize = list(&memory, file).iter().map(|name| name.len() + 1).sum();
    assert!(listed <= 65536);
}

#[test]
fn a_full_file_system_takes_no_attribute() {
    let memory = backend(SIZE_BYTES_MIN);
    let file = memory.file("a");
    assert!(matches!(set(&memory, file, b"user.x", &[1; 20_000]), Err(Error::NoSpace)));
    assert!(list(&memory, file).is_empty());
}

#[test]
fn user_attributes_are_for_files_and_directories() {
    let memory = backend(1 << 20);
    let link = memory.make(ROOT, "l", NewKind::Symlink(b"x")).unwrap();
    assert!(matches!(set(&memory, link, b"user.x", b"1"), Err(Error::NotPermitted)));
    assert!(matches!(get(&memory, link, b"user.x"), Err(Error::NoAttribute)));
    set(&memory, link, b"trusted.x", b"1").unwrap();
    set(&memory, ROOT, b"user.x", b"1").unwrap();
    assert!(matches!(
        set(&memory, link, ACCESS_XATTR, &minimal(7, 7, 7)),
        Err(Error::Unsupported(_))
    ));
}

#[test]
fn a_list_and_the_mode_follow_each_other() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let before = memory.used();
    set(&memory, file, ACCESS_XATTR, &wire(6, 5, 4, 6, 0)).unwrap();
    assert_eq!(memory.stat(file).mode, 0o660, "the mask shows as the group");
    assert_eq!(get(&memory, file, ACCESS_XATTR).unwrap(), wire(6, 5, 4, 6, 0));
    assert_eq!(list(&memory, file), [ACCESS_XATTR.to_vec()]);
    let chmod = SetAttributes { mode: Some(0o751), ..Default::default() };
    memory.set_attributes(&Caller::root(), FileRef::unopened(file), &chmod).unwrap();
    assert_eq!(get(&memory, file, ACCESS_XATTR).unwrap(), wire(7, 5, 4, 5, 1));
    set(&memory, file, ACCESS_XATTR, &minimal(6, 4, 0)).unwrap();
    assert_eq!(memory.stat(file).mode, 0o640);
    assert!(matches!(get(&memory, file, ACCESS_XATTR), Err(Error::NoAttribute)));
    assert_eq!(memory.used(), before, "what the mode says is not kept twice");
    set(&memory, file, ACCESS_XATTR, &wire(6, 5, 4, 6, 0)).unwrap();
    remove(&memory, file, ACCESS_XATTR).unwrap();
    remove(&memory, file, ACCESS_XATTR).unwrap();
    assert_eq!((memory.stat(file).mode, memory.used()), (0o660, before));
    assert!(matches!(set(&memory, file, ACCESS_XATTR, b"junk"), Err(Error::Unsupported(_))));
}

#[test]
fn a_stranger_to_the_group_loses_its_set_group_id_bit_with_the_list() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let owned =
        SetAttributes { uid: Some(5), gid: Some(44), mode: Some(0o755), ..Default::default() };
    let armed = SetAttributes { mode: Some(0o2755), ..Default::default() };
    let unopened = FileRef::unopened(file);
    for (caller, expected) in [(Caller::new(5, 5, &[]), 0o750), (Caller::new(5, 44, &[]), 0o2750)] {
        memory.set_attributes(&Caller::root(), unopened, &owned).unwrap();
        memory.set_attributes(&Caller::root(), unopened, &armed).unwrap();
        let list = wire(7, 5, 5, 5, 0);
        memory.set_xattr(&caller, file, ACCESS_XATTR, &list, XattrMode::Any).unwrap();
        assert_eq!(memory.stat(file).mode, expected);
    }
}

#[test]
fn a_default_list_is_for_directories_and_passes_on() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let directory = memory.directory(ROOT, "d");
    let empty = memory.used();
    assert!(matches!(set(&memory, file, DEFAULT_XATTR, &minimal(7, 7, 7)), Err(Error::Access)));
    set(&memory, directory, DEFAULT_XATTR, &wire(7, 7, 5, 7, 1)).unwrap();
    assert_eq!(memory.stat(directory).mode, 0o755);
    let node = |kind| NewNode { kind, mode: 0o666, umask: 0o077 };
    let root = Caller::root();
    let made = memory.create(&root, directory, name("f"), &node(NewKind::Regular)).unwrap();
    assert_eq!(made.attributes.mode, 0o660, "the umask has no part");
    assert_eq!(get(&memory, made.inode, ACCESS_XATTR).unwrap(), wire(6, 7, 5, 6, 0));
    let below = memory.create(&root, directory, name("d"), &node(NewKind::Directory)).unwrap();
    assert_eq!(get(&memory, below.inode, DEFAULT_XATTR).unwrap(), wire(7, 7, 5, 7, 1));
    for (entry, text) in [(made, "f"), (below, "d")] {
        memory.forget(entry.inode, 1);
        let _ = memory.drop_name(directory, text);
        let _ = memory.drop_directory(directory, text);
    }
    set(&memory, directory, DEFAULT_XATTR, &[2, 0, 0, 0]).unwrap();
    assert!(list(&memory, directory).is_empty());
    assert_eq!(memory.used(), empty);
}

#[test]
fn a_write_ends_the_capabilities_of_a_program() {
    let memory = backend(1 << 20);
    let file = memory.file("a");
    let before = memory.used();
    set(&memory, file, b"security.capability", b"all").unwrap();
    memory.put(file, 0, b"x").unwrap();
    assert!(matches!(get(&memory, file, b"security.capability"), Err(Error::NoAttribute)));
    memory.resize(file, 0).unwrap();
    assert_eq!(memory.used(), before);
}
