//! A caller's rights on an object: the rules of `path_resolution(7)`, `chmod(2)`, `chown(2)`.
//!
//! # Boundary
//! Decides from values: a [`Caller`], [`Attributes`], an [`Acl`]. Neither fetches nor changes
//! anything. The calling code decides whether to check at all ([`crate::Checks`]).
//!
//! # Why
//! The answers are Linux's to the bit, also where Linux is odd, so a program cannot
//! distinguish a mount from a local disk. Weakness: user 0 has every capability here. A root
//! without CAP_DAC_OVERRIDE has more rights here than in a kernel.

use crate::acl::Acl;
use crate::attributes::{Attributes, FileKind, SetAttributes, SetTime};
use crate::caller::Caller;
use crate::error::{Error, Result};

const SET_UID: u32 = 0o4000;
const SET_GID: u32 = 0o2000;
const STICKY: u32 = 0o1000;
const ANY_EXECUTE: u32 = 0o111;
const GROUP_EXECUTE: u32 = 0o010;
const GROUP_BITS: u32 = 0o070;

bitflags::bitflags! {
    /// The wanted kinds of access to an object. The bits are those of one digit of a mode.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct Access: u8 {
        /// Read a file, list a directory.
        const READ = 4;
        /// Write a file, change the names of a directory.
        const WRITE = 2;
        /// Run a file, search a directory.
        const EXECUTE = 1;
    }
}

impl Access {
    /// The lowest digit of `mode`.
    pub fn from_mode(mode: u32) -> Self {
        Self::from_bits_truncate((mode & 7) as u8)
    }
}

/// Whether `caller` may do all of `wanted` to the object.
///
/// As on Linux, a list is not consulted when the group bits (its mask) are all clear: its named
/// users then count as others.
pub fn allows(caller: &Caller, attributes: &Attributes, acl: Option<&Acl>, wanted: Access) -> bool {
    if caller.is_privileged() {
        // Even root runs a file only if it has an execute bit.
        return attributes.kind == FileKind::Directory
            || !wanted.contains(Access::EXECUTE)
            || attributes.mode & ANY_EXECUTE != 0;
    }
    let mode = attributes.mode;
    if caller.uid == attributes.uid {
        return Access::from_mode(mode >> 6).contains(wanted);
    }
    if let Some(acl) = acl
        && mode & GROUP_BITS != 0
    {
        return acl.allows(caller, attributes.uid, attributes.gid, wanted);
    }
    let (group, other) = (Access::from_mode(mode >> 3), Access::from_mode(mode));
    // Membership may have to be read from the system: only if the answer depends on it.
    if group.contains(wanted) == other.contains(wanted) {
        return other.contains(wanted);
    }
    let class = if caller.in_group(attributes.gid) { group } else { other };
    class.contains(wanted)
}

/// Whether an unprivileged `caller` may search a directory of this mode, owner and group. `None` if
/// that needs an access control list (`acl_free`: there is none), or groups from the system. Agrees
/// with [`allows`] where it answers.
#[inline]
pub(crate) fn may_search(
    caller: &Caller,
    (mode, uid, gid): (u32, u32, u32),
    acl_free: bool,
) -> Option<bool> {
    let may = |mode: u32| Access::from_mode(mode).contains(Access::EXECUTE);
    if caller.uid == uid {
        return Some(may(mode >> 6));
    }
    if !acl_free && mode & GROUP_BITS != 0 {
        return None;
    }
    let (group, other) = (may(mode >> 3), may(mode));
    if group == other {
        return Some(other);
    }
    Some(if caller.known_in_group(gid)? { group } else { other })
}

/// Whether `caller`, which may write `directory`, may remove or rename `victim` in it: the rule of
/// the sticky bit.
///
/// # Errors
/// [`Error::NotPermitted`] if not.
pub fn may_remove(caller: &Caller, directory: &Attributes, victim: &Attributes) -> Result<()> {
    let free = directory.mode & STICKY == 0
        || caller.uid == victim.uid
        || caller.uid == directory.uid
        || caller.is_privileged();
    if free { Ok(()) } else { Err(Error::NotPermitted) }
}

/// The permitted part of `set` for `caller`: the same, except for a set-group-id bit that the
/// caller may not set.
///
/// A change of size counts as one by path, which needs write permission. For a file open for
/// writing, the open has checked that: leave the size out of `set` then.
///
/// # Errors
/// [`Error::NotPermitted`] where only the owner or only root may do it, [`Error::Access`] where
/// write permission is enough.
pub fn check_set_attributes(
    caller: &Caller,
    attributes: &Attributes,
    acl: Option<&Acl>,
    set: &SetAttributes,
) -> Result<SetAttributes> {
    let owner = caller.uid == attributes.uid || caller.is_privileged();
    let mut set = *set;
    if set.size.is_some() && !allows(caller, attributes, acl, Access::WRITE) {
        return Err(Error::Access);
    }
    if !may_change_owner(caller, attributes, set.uid, set.gid) {
        return Err(Error::NotPermitted);
    }
    if let Some(mode) = set.mode {
        if !owner {
            return Err(Error::NotPermitted);
        }
        let group = set.gid.unwrap_or(attributes.gid);
        if mode & SET_GID != 0 && !has_group(caller, group) {
            set.mode = Some(mode & !SET_GID);
        }
    }
    if !owner {
        check_set_times(caller, attributes, acl, &set)?;
    }
    Ok(set)
}

/// The mode of a `kind` of object without its set-id bits: set-user-id always, and set-group-id if
/// the group may execute (without, it is no privilege). Directories keep both.
pub fn cleared_set_ids(mode: u32, kind: FileKind) -> u32 {
    match kind {
        FileKind::Directory => mode,
        _ if mode & GROUP_EXECUTE != 0 => mode & !(SET_UID | SET_GID),
        _ => mode & !SET_UID,
    }
}

/// The mode after a write to, or a cut of, the object by `caller`.
pub fn set_ids_after_write(caller: &Caller, attributes: &Attributes) -> u32 {
    let has_ids = attributes.mode & (SET_UID | SET_GID) != 0;
    if attributes.kind != FileKind::Regular || !has_ids || caller.keeps_set_ids() {
        return attributes.mode;
    }
    set_ids_after_chown(caller, attributes)
}

/// The mode after a change of owner or group by `caller`, root included. `attributes` are those
/// before the change. Only a member of the old group, or a caller that keeps such bits, keeps a
/// set-group-id bit without group execution.
pub fn set_ids_after_chown(caller: &Caller, attributes: &Attributes) -> u32 {
    let mode = cleared_set_ids(attributes.mode, attributes.kind);
    let directory = attributes.kind == FileKind::Directory;
    let keeps = || caller.in_group(attributes.gid) || caller.keeps_set_ids();
    if mode & SET_GID == 0 || directory || keeps() { mode } else { mode & !SET_GID }
}

/// Whether `caller` may set (or keep) set-group-id rights of `group`: a member, or root.
pub fn has_group(caller: &Caller, group: u32) -> bool {
    caller.is_privileged() || caller.in_group(group)
}

/// Root may set any owner and group. The owner may set itself as the owner, and its own groups.
fn may_change_owner(
    caller: &Caller,
    attributes: &Attributes,
    uid: Option<u32>,
    gid: Option<u32>,
) -> bool {
    let owner = caller.uid == attributes.uid;
    let uid_may = uid.is_none_or(|uid| owner && uid == attributes.uid);
    let gid_may = || gid.is_none_or(|gid| owner && (gid == attributes.gid || caller.in_group(gid)));
    caller.is_privileged() || (uid_may && gid_may())
}

/// For callers other than the owner: only both times, only to now, and only with write permission.
fn check_set_times(
    caller: &Caller,
    attributes: &Attributes,
    acl: Option<&Acl>,
    set: &SetAttributes,
) -> Result<()> {
    match (set.atime, set.mtime) {
        (None, None) => Ok(()),
        // The time that a change of size sets by itself.
        (None, Some(SetTime::Now)) if set.size.is_some() => Ok(()),
        (Some(SetTime::Now), Some(SetTime::Now)) => {
            if allows(caller, attributes, acl, Access::WRITE) { Ok(()) } else { Err(Error::Access) }
        }
        _ => Err(Error::NotPermitted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Timestamp;

    const RWX: Access = Access::all();

    fn object(kind: FileKind, mode: u32) -> Attributes {
        Attributes { uid: 1, gid: 2, ..Attributes::new(9, kind, mode) }
    }

    fn owner() -> Caller {
        Caller::new(1, 8, &[])
    }
    fn member() -> Caller {
        Caller::new(5, 8, &[2])
    }
    fn stranger() -> Caller {
        Caller::new(5, 8, &[])
    }

    #[test]
    fn each_class_of_callers_gets_its_own_digit_for_every_mode() {
        for mode in 0..0o1000 {
            let file = object(FileKind::Regular, mode);
            for wanted in (0..8).map(Access::from_bits_truncate) {
                let digit = |shift: u32| Access::from_mode(mode >> shift).contains(wanted);
                assert_eq!(allows(&owner(), &file, None, wanted), digit(6));
                assert_eq!(allows(&member(), &file, None, wanted), digit(3));
                assert_eq!(allows(&stranger(), &file, None, wanted), digit(0));
            }
        }
    }

    #[test]
    fn root_may_everything_but_run_what_no_user_may_run() {
        let root = Caller::root();
        assert!(allows(&root, &object(FileKind::Directory, 0), None, RWX));
        let file = object(FileKind::Regular, 0o666);
        assert!(allows(&root, &file, None, Access::READ | Access::WRITE));
        assert!(!allows(&root, &file, None, Access::EXECUTE));
        assert!(allows(&root, &object(FileKind::Regular, 0o001), None, RWX));
    }

    #[test]
    fn a_list_decides_for_all_but_the_owner_while_its_mask_is_open() {
        let bytes: &[u8] = &[
            2, 0, 0, 0, //
            1, 0, 0, 0, 255, 255, 255, 255, //
            2, 0, 7, 0, 5, 0, 0, 0, //
            4, 0, 0, 0, 255, 255, 255, 255, //
            16, 0, 6, 0, 255, 255, 255, 255, //
            32, 0, 1, 0, 255, 255, 255, 255,
        ];
        let acl = Acl::parse(bytes).unwrap().unwrap();
        let file = object(FileKind::Regular, 0o061);
        assert!(allows(&stranger(), &file, Some(&acl), Access::READ | Access::WRITE));
        assert!(!allows(&stranger(), &file, Some(&acl), Access::EXECUTE));
        assert!(!allows(&owner(), &file, Some(&acl), Access::READ));
        let (closed, file) = (acl.with_mode(0o001), object(FileKind::Regular, 0o001));
        assert!(!allows(&stranger(), &file, Some(&closed), Access::READ));
        assert!(allows(&stranger(), &file, Some(&closed), Access::EXECUTE));
    }

    #[test]
    fn a_sticky_directory_keeps_strangers_off_what_is_not_theirs() {
        let open = object(FileKind::Directory, 0o777);
        let sticky = object(FileKind::Directory, 0o1777);
        let victim = Attributes { uid: 6, ..object(FileKind::Regular, 0o666) };
        assert!(may_remove(&stranger(), &open, &victim).is_ok());
        assert!(matches!(may_remove(&stranger(), &sticky, &victim), Err(Error::NotPermitted)));
        assert!(may_remove(&Caller::new(6, 6, &[]), &sticky, &victim).is_ok());
        assert!(may_remove(&owner(), &sticky, &victim).is_ok());
        assert!(may_remove(&Caller::root(), &sticky, &victim).is_ok());
    }

    fn check(caller: &Caller, mode: u32, set: SetAttributes) -> std::result::Result<u32, i32> {
        check_set_attributes(caller, &object(FileKind::Regular, mode), None, &set)
            .map(|set| set.mode.unwrap_or(0))
            .map_err(|error| error.errno())
    }

    #[test]
    fn only_the_owner_changes_the_mode_and_set_group_id_needs_the_group() {
        let set = SetAttributes { mode: Some(0o2755), ..Default::default() };
        assert_eq!(check(&owner(), 0o777, set), Ok(0o755));
        assert_eq!(check(&Caller::new(1, 2, &[]), 0o777, set), Ok(0o2755));
        assert_eq!(check(&Caller::root(), 0o777, set), Ok(0o2755));
        assert_eq!(check(&member(), 0o777, set), Err(libc::EPERM));
        let given = SetAttributes { gid: Some(8), ..set };
        assert_eq!(check(&owner(), 0o777, given), Ok(0o2755), "the group that it will have");
    }

    #[test]
    fn the_owner_gives_away_only_to_groups_of_its_own() {
        let set = |uid, gid| SetAttributes { uid, gid, ..Default::default() };
        for (uid, gid, owner_may) in [
            (None, None, true),
            (Some(1), None, true),
            (Some(5), None, false),
            (None, Some(2), true),
            (None, Some(8), true),
            (None, Some(3), false),
            (Some(1), Some(8), true),
            (Some(5), Some(8), false),
        ] {
            assert_eq!(check(&owner(), 0, set(uid, gid)).is_ok(), owner_may, "{uid:?} {gid:?}");
            assert!(check(&Caller::root(), 0, set(uid, gid)).is_ok());
            let anything = uid.or(gid).is_some();
            assert_eq!(check(&stranger(), 0o777, set(uid, gid)).is_err(), anything);
        }
    }

    #[test]
    fn times_are_the_owners_except_now_for_writers() {
        let now = Some(SetTime::Now);
        let then = Some(SetTime::At(Timestamp::default()));
        let set = |atime, mtime| SetAttributes { atime, mtime, ..Default::default() };
        for (mode, caller, wanted, expected) in [
            (0o000, owner(), set(then, then), Ok(0)),
            (0o000, owner(), set(now, now), Ok(0)),
            (0o777, stranger(), set(then, then), Err(libc::EPERM)),
            (0o777, stranger(), set(now, None), Err(libc::EPERM)),
            (0o777, stranger(), set(now, then), Err(libc::EPERM)),
            (0o772, stranger(), set(now, now), Ok(0)),
            (0o775, stranger(), set(now, now), Err(libc::EACCES)),
            (0o000, Caller::root(), set(then, None), Ok(0)),
        ] {
            assert_eq!(check(&caller, mode, wanted), expected, "{mode:o} {wanted:?}");
        }
    }

    #[test]
    fn a_cut_needs_write_permission_also_for_the_owner() {
        let set = SetAttributes { size: Some(0), ..Default::default() };
        assert_eq!(check(&owner(), 0o577, set), Err(libc::EACCES));
        assert_eq!(check(&stranger(), 0o002, set), Ok(0));
        let marked = SetAttributes { mtime: Some(SetTime::Now), ..set };
        assert_eq!(check(&stranger(), 0o002, marked), Ok(0));
    }

    #[test]
    fn set_id_bits_fall_with_the_content_or_the_owner() {
        let file = |mode| object(FileKind::Regular, mode);
        for (mode, cleared) in
            [(0o6755, 0o755), (0o6745, 0o2745), (0o4700, 0o700), (0o1777, 0o1777)]
        {
            assert_eq!(cleared_set_ids(mode, FileKind::Regular), cleared);
            assert_eq!(cleared_set_ids(mode, FileKind::Directory), mode);
            assert_eq!(set_ids_after_write(&member(), &file(mode)), cleared);
            assert_eq!(set_ids_after_write(&Caller::root(), &file(mode)), mode);
            assert_eq!(set_ids_after_chown(&Caller::root(), &file(mode)), cleared);
        }
        assert_eq!(set_ids_after_write(&stranger(), &file(0o6745)), 0o745);
        assert_eq!(set_ids_after_chown(&stranger(), &file(0o6745)), 0o745);
        let directory = object(FileKind::Directory, 0o6745);
        assert_eq!(set_ids_after_chown(&stranger(), &directory), 0o6745);
    }
}
