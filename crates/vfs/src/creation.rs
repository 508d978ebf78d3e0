//! Owner, group, mode and access control lists of a new object.
//!
//! # Boundary
//! One pure function for every store that keeps its own attributes, so that they all agree. A store
//! on a host directory acts as the caller instead, and the host decides.

use crate::acl::Acl;
use crate::attributes::{Attributes, FileKind};
use crate::backend::NewNode;
use crate::caller::{Caller, NewOwner};
use crate::permission;

const SET_GID: u32 = 0o2000;
const GROUP_EXECUTE: u32 = 0o010;

/// The initial owner, mode and lists of a new object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The low 12 bits of its mode.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The list of the object itself, if the mode cannot express it.
    pub access: Option<Acl>,
    /// The initial list for objects below it; directories only.
    pub default: Option<Acl>,
}

/// The initial state of `new`, created by `caller` in a directory with these attributes and this
/// default list.
///
/// A directory with the set-group-id bit passes its group on, and the bit to directories. The
/// default list replaces the umask.
pub fn resolve(
    caller: &Caller,
    parent: &Attributes,
    parent_default: Option<&Acl>,
    new: &NewNode<'_>,
) -> Resolved {
    let kind = new.kind.kind();
    let passes_group = parent.mode & SET_GID != 0;
    let (uid, gid) = match caller.new_owner {
        NewOwner::Caller => (caller.uid, caller.gid),
        NewOwner::Directory => (parent.uid, parent.gid),
        NewOwner::Given { uid, gid } => (uid, gid.unwrap_or(parent.gid)),
    };
    let gid = if passes_group { parent.gid } else { gid };
    let plain = |mode| Resolved { mode, uid, gid, access: None, default: None };
    if kind == FileKind::Symlink {
        return plain(0o777);
    }
    let mode = wanted_mode(caller, parent, kind, new.mode);
    match parent_default {
        None => plain(mode & !(new.umask & 0o777)),
        Some(default) => {
            let (access, mode) = default.inherit(mode);
            let passed = (kind == FileKind::Directory).then(|| default.clone());
            Resolved { access, default: passed, ..plain(mode) }
        }
    }
}

/// The mode before umask and lists, with the final set-group-id bit.
fn wanted_mode(caller: &Caller, parent: &Attributes, kind: FileKind, mode: u32) -> u32 {
    let passes_group = parent.mode & SET_GID != 0;
    if kind == FileKind::Directory {
        // Set-id bits in the request do not apply to a directory; the parent sets them.
        return mode & 0o1777 | parent.mode & SET_GID;
    }
    // No caller gets the rights of a group that it is not in by creating a file that inherits the
    // group. Decided before the umask can hide the group's execute bit.
    let privilege = SET_GID | GROUP_EXECUTE;
    if passes_group && mode & privilege == privilege && !permission::has_group(caller, parent.gid) {
        return mode & 0o7777 & !SET_GID;
    }
    mode & 0o7777
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::NewKind;

    fn parent(mode: u32) -> Attributes {
        Attributes { uid: 1, gid: 2, ..Attributes::new(1, FileKind::Directory, mode) }
    }

    fn caller() -> Caller {
        Caller::new(5, 8, &[])
    }

    fn new(kind: NewKind<'_>, mode: u32) -> NewNode<'_> {
        NewNode { kind, mode, umask: 0o022 }
    }

    #[test]
    fn owner_and_group_are_the_callers_and_the_umask_applies() {
        for mode in 0..0o10000 {
            let made = resolve(&caller(), &parent(0o777), None, &new(NewKind::Regular, mode));
            assert_eq!((made.uid, made.gid, made.mode), (5, 8, mode & !0o022));
            let made = resolve(&caller(), &parent(0o777), None, &new(NewKind::Directory, mode));
            assert_eq!(made.mode, mode & 0o1755, "mkdir gives no set-id bits");
        }
    }

    #[test]
    fn a_set_group_id_directory_passes_its_group_on() {
        let shared = parent(0o2777);
        for kind in [NewKind::Regular, NewKind::Fifo, NewKind::Symlink(b"x"), NewKind::Directory] {
            let made = resolve(&caller(), &shared, None, &new(kind, 0o755));
            assert_eq!(made.gid, 2);
            assert_eq!(made.mode & SET_GID != 0, kind == NewKind::Directory);
        }
    }

    #[test]
    fn another_owner_may_be_wished_and_a_directory_that_passes_its_group_on_decides_it() {
        let made = |new_owner, mode| {
            let caller = Caller { new_owner, ..Caller::root() };
            let made = resolve(&caller, &parent(mode), None, &new(NewKind::Regular, 0o644));
            (made.uid, made.gid)
        };
        let given = |gid| NewOwner::Given { uid: 7, gid };
        let plain = [NewOwner::Caller, NewOwner::Directory, given(Some(9)), given(None)];
        assert_eq!(plain.map(|wish| made(wish, 0o755)), [(0, 0), (1, 2), (7, 9), (7, 2)]);
        assert_eq!(plain.map(|wish| made(wish, 0o2755)), [(0, 2), (1, 2), (7, 2), (7, 2)]);
    }

    #[test]
    fn a_stranger_to_the_group_does_not_get_its_set_group_id_bit() {
        let shared = parent(0o2777);
        let file = |caller: &Caller, parent: &Attributes, mode| {
            resolve(caller, parent, None, &new(NewKind::Regular, mode)).mode
        };
        assert_eq!(file(&caller(), &shared, 0o2775), 0o755);
        assert_eq!(file(&Caller::new(5, 8, &[2]), &shared, 0o2775), 0o2755);
        assert_eq!(file(&Caller::root(), &shared, 0o2775), 0o2755);
        assert_eq!(file(&caller(), &shared, 0o2765), 0o2745, "no group execution, no privilege");
        assert_eq!(file(&caller(), &parent(0o777), 0o2775), 0o2755, "the caller's own group");
        let tight = NewNode { umask: 0o077, ..new(NewKind::Regular, 0o2775) };
        assert_eq!(resolve(&caller(), &shared, None, &tight).mode, 0o700, "settled before umask");
    }

    #[test]
    fn a_default_list_takes_the_place_of_the_umask() {
        let bytes: &[u8] = &[
            2, 0, 0, 0, //
            1, 0, 7, 0, 255, 255, 255, 255, //
            2, 0, 7, 0, 6, 0, 0, 0, //
            4, 0, 5, 0, 255, 255, 255, 255, //
            16, 0, 7, 0, 255, 255, 255, 255, //
            32, 0, 2, 0, 255, 255, 255, 255,
        ];
        let default = Acl::parse(bytes).unwrap().unwrap();
        let made =
            resolve(&caller(), &parent(0o777), Some(&default), &new(NewKind::Regular, 0o666));
        assert_eq!(made.mode, 0o662);
        assert_eq!(made.access.unwrap().equivalent_mode(), (0o662, false));
        assert_eq!(made.default, None);
        let made =
            resolve(&caller(), &parent(0o2777), Some(&default), &new(NewKind::Directory, 0o777));
        assert_eq!((made.mode, made.gid), (0o2772, 2));
        assert_eq!(made.default, Some(default.clone()));
        let link = new(NewKind::Symlink(b"x"), 0);
        let made = resolve(&caller(), &parent(0o777), Some(&default), &link);
        assert_eq!((made.mode, made.access, made.default), (0o777, None, None));
    }
}
