//! The hostile backend follows its plan exactly, and counts the references that it passes out.

use super::*;
use crate::memory::{MemoryBackend, MemoryConfig};
use std::panic::{AssertUnwindSafe, catch_unwind};
use uvfs_vfs::{Backend, Caller, Error, FileRef, InodeId, Name, NewKind, NewNode};

fn hostile() -> HostileBackend<MemoryBackend> {
    HostileBackend::new(MemoryBackend::new(MemoryConfig::default()).unwrap())
}

fn create(backend: &impl Backend, name: &str) -> uvfs_vfs::Result<InodeId> {
    let new = NewNode { kind: NewKind::Regular, mode: 0o644, umask: 0 };
    let name = Name::new(name.as_bytes())?;
    Ok(backend.creation().unwrap().create(&Caller::root(), InodeId::ROOT, name, &new)?.inode)
}

fn lookup(backend: &impl Backend, name: &str) -> uvfs_vfs::Result<InodeId> {
    let name = Name::new(name.as_bytes())?;
    Ok(backend.names().lookup(&Caller::root(), InodeId::ROOT, name)?.inode)
}

#[test]
fn a_failure_before_changes_nothing_and_one_after_does() {
    let hostile = hostile();
    hostile.follow(
        Plan::new()
            .when(On::call(Call::Create).name("a"), Fault::Fail(Moment::Before, libc::EIO))
            .when(On::call(Call::Create).name("b"), Fault::Fail(Moment::After, libc::EIO)),
    );
    assert_eq!(create(&hostile, "a").unwrap_err().errno(), libc::EIO);
    assert_eq!(create(&hostile, "b").unwrap_err().errno(), libc::EIO);
    assert!(hostile.outstanding().is_empty(), "no caller got the reference");
    assert!(matches!(lookup(&hostile, "a"), Err(Error::NotFound)));
    let found = lookup(&hostile, "b").unwrap();
    assert_eq!(hostile.outstanding(), [(found, 1)].into());
    hostile.inodes().forget(found, 1);
    assert!(hostile.outstanding().is_empty());
    assert_eq!(hostile.forgotten_too_often(), 0);
    hostile.inodes().forget(found, 1);
    assert_eq!(hostile.forgotten_too_often(), 1);
}

#[test]
fn a_planned_panic_after_the_work_leaks_no_reference() {
    let hostile = hostile();
    hostile.follow(Plan::new().when(On::call(Call::Create), Fault::Panic(Moment::After)));
    assert!(catch_unwind(AssertUnwindSafe(|| create(&hostile, "a"))).is_err());
    hostile.behave();
    let name = Name::new(b"a").unwrap();
    hostile.inner().names().unlink(&Caller::root(), InodeId::ROOT, name).unwrap();
    let inodes = |name| hostile.counters().iter().find(|one| one.0 == name).unwrap().1;
    assert_eq!(inodes("memory_inodes"), 1, "the file went with its name");
}

#[test]
fn a_stale_lookup_repeats_the_last_answer_and_its_reference_is_forged() {
    let hostile = hostile();
    let old = create(&hostile, "a").unwrap();
    assert_eq!(lookup(&hostile, "a").unwrap(), old);
    hostile.names().unlink(&Caller::root(), InodeId::ROOT, Name::new(b"a").unwrap()).unwrap();
    hostile.follow(Plan::new().when(On::call(Call::Lookup), Fault::Stale));
    assert_eq!(lookup(&hostile, "a").unwrap(), old);
    assert_eq!(hostile.outstanding()[&old], 3);
    hostile.inodes().forget(old, 3);
    assert_eq!(hostile.forgotten_too_often(), 0);
    assert!(matches!(
        hostile.inner().inodes().attributes(FileRef::unopened(old)),
        Err(Error::Stale)
    ));
}

#[test]
fn lengths_are_shortened_and_lied_about_within_the_buffer() {
    let hostile = hostile();
    let file = FileRef::unopened(create(&hostile, "a").unwrap());
    hostile.follow(
        Plan::new()
            .when(On::call(Call::Write), Fault::Short(3))
            .when(On::call(Call::Read).nth(1), Fault::Short(2))
            .when(On::call(Call::Read).nth(2), Fault::Overlong),
    );
    assert_eq!(hostile.data().write(&Caller::root(), file, 0, b"hello").unwrap(), 3);
    let mut buffer = [0; 8];
    assert_eq!(hostile.data().read(file, 0, &mut buffer).unwrap(), 2);
    assert_eq!(hostile.data().read(file, 0, &mut buffer).unwrap(), 8);
    assert_eq!(&buffer, b"hel\0\0\0\0\0");
    assert_eq!(hostile.made(Call::Read), 2);
}

#[test]
fn a_held_call_waits_for_its_gate() {
    let hostile = hostile();
    let gate = Gate::new();
    hostile
        .follow(Plan::new().when(On::call(Call::Create), Fault::Hold(Moment::After, gate.clone())));
    let other = hostile.clone();
    let held = std::thread::spawn(move || create(&other, "a"));
    gate.wait_for(1);
    assert!(lookup(&hostile, "a").is_ok(), "the store has done it");
    assert!(!held.is_finished());
    gate.open();
    assert!(held.join().unwrap().is_ok());
}
