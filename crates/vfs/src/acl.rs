//! POSIX access control lists: their wire format, their algebra with mode bits, and the access that
//! they grant.
//!
//! # Boundary
//! Values only. A backend stores lists. [`crate::permission`] decides whether a privileged caller
//! may ignore one.
//!
//! # Format
//! The value of the extended attributes [`ACCESS_XATTR`] and [`DEFAULT_XATTR`] on Linux, version 2:
//! a 32-bit version word, then entries of 8 bytes (`tag:u16 perm:u16 id:u32`), all little endian.
//!
//! # Why
//! Entries stay in their one legal order (owner, named users, group, named groups, mask, others), as
//! the access check reads them in exactly that order. Weakness: a list of thousands of named users
//! is searched from its start on every check; real lists have a handful.

use crate::caller::Caller;
use crate::error::{Error, Result};
use crate::permission::Access;
use std::cell::LazyCell;

/// The extended attribute that holds an object's own list.
pub const ACCESS_XATTR: &[u8] = b"system.posix_acl_access";
/// The extended attribute with the initial list for new objects in a directory.
pub const DEFAULT_XATTR: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id in the wire format of an entry without a user or group. Not a valid user or group.
const NO_ID: u32 = u32::MAX;

/// The subject of an entry of an [`Acl`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AclTag {
    /// The owner.
    UserObj,
    /// A user by id.
    User(u32),
    /// The owning group.
    GroupObj,
    /// A group by id.
    Group(u32),
    /// The upper limit of rights for named users and all groups.
    Mask,
    /// All other users.
    Other,
}

/// One entry of an [`Acl`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AclEntry {
    /// Subject of the entry.
    pub tag: AclTag,
    /// The rights that it grants.
    pub access: Access,
}

/// A valid access control list. The number of entries never changes, only their rights do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acl {
    entries: Box<[AclEntry]>,
}

impl Acl {
    /// Makes a list of entries in their legal order.
    ///
    /// # Errors
    /// [`Error::Invalid`] if an entry is missing, doubled, out of order, or without a valid user or
    /// group.
    pub fn new(entries: Vec<AclEntry>) -> Result<Self> {
        check_order(&entries)?;
        Ok(Self { entries: entries.into() })
    }

    /// Reads the wire format. A value without entries means "no list": `None`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a truncated value or an invalid list;
    /// [`Error::Unsupported`] for another version.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let Some((version, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return Err(Error::Invalid("an access control list shorter than its header"));
        };
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Error::Unsupported("this version of access control lists"));
        }
        let (records, []) = body.as_chunks::<ENTRY_BYTES>() else {
            return Err(Error::Invalid("an access control list that ends within an entry"));
        };
        if records.is_empty() {
            return Ok(None);
        }
        Self::new(records.iter().map(parse_entry).collect::<Result<_>>()?).map(Some)
    }

    /// The wire format.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.entries.len() * ENTRY_BYTES);
        bytes.extend(VERSION.to_le_bytes());
        for entry in &self.entries {
            let (tag, id) = tag_word(entry.tag);
            bytes.extend(tag.to_le_bytes());
            bytes.extend(u16::from(entry.access.bits()).to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    /// The entries, in order.
    pub fn entries(&self) -> &[AclEntry] {
        &self.entries
    }

    /// The permission bits (the low 9 of a mode) of the list, and whether they express it
    /// completely. Such a minimal list need not be stored.
    pub fn equivalent_mode(&self) -> (u32, bool) {
        let mut minimal = true;
        let (mut owner, mut group, mut other) = (0, 0, 0);
        for entry in &self.entries {
            let bits = u32::from(entry.access.bits());
            match entry.tag {
                AclTag::UserObj => owner = bits,
                AclTag::GroupObj => group = bits,
                AclTag::Other => other = bits,
                // The mask comes after the owning group, so it decides these bits.
                AclTag::Mask => (group, minimal) = (bits, false),
                AclTag::User(_) | AclTag::Group(_) => minimal = false,
            }
        }
        (owner << 6 | group << 3 | other, minimal)
    }

    /// The list after a `chmod` to `mode`: the group bits change the mask, or the owning group if
    /// there is no mask.
    pub fn with_mode(&self, mode: u32) -> Self {
        self.map_mode_entries(|_, bits| bits, mode)
    }

    /// The initial list and mode of an object created with `mode` below a directory with this
    /// default list. There is a list only if mode bits cannot express it. The umask is not used.
    pub fn inherit(&self, mode: u32) -> (Option<Self>, u32) {
        let access = self.map_mode_entries(|default, bits| default & bits, mode);
        let (bits, minimal) = access.equivalent_mode();
        let mode = mode & !0o777 | bits;
        (if minimal { None } else { Some(access) }, mode)
    }

    /// Whether the list of an object of `uid` and `gid` grants `caller` all of `wanted`. Ignores
    /// privileges.
    pub fn allows(&self, caller: &Caller, uid: u32, gid: u32, wanted: Access) -> bool {
        // Supplementary groups may have to be read from the system: at most once, and only if
        // needed.
        let groups = LazyCell::new(|| caller.supplementary());
        let in_group = |group: u32| caller.gid == group || groups.contains(&group);
        let mut member = false;
        for entry in &self.entries {
            let grants = entry.access.contains(wanted);
            match entry.tag {
                AclTag::UserObj if caller.uid == uid => return grants,
                AclTag::User(user) if caller.uid == user => return grants && self.masks_in(wanted),
                // A caller in several groups gets the rights of any one of them. It never falls
                // through to "others" if it is in a group of the list.
                AclTag::GroupObj if in_group(gid) => member = true,
                AclTag::Group(group) if in_group(group) => member = true,
                AclTag::Other => return !member && grants,
                _ => continue,
            }
            if grants {
                return self.masks_in(wanted);
            }
        }
        false
    }

    /// Whether the mask permits `wanted`. Without a mask, all rights are permitted.
    fn masks_in(&self, wanted: Access) -> bool {
        let mask = self.entries.iter().find(|entry| entry.tag == AclTag::Mask);
        mask.is_none_or(|mask| mask.access.contains(wanted))
    }

    /// Replaces the rights of the three entries that represent mode bits by `change(rights, bits of
    /// mode)`.
    fn map_mode_entries(&self, change: impl Fn(Access, Access) -> Access, mode: u32) -> Self {
        let masked = self.entries.iter().any(|entry| entry.tag == AclTag::Mask);
        let mut entries = self.entries.clone();
        for entry in &mut entries {
            let shift = match entry.tag {
                AclTag::UserObj => 6,
                AclTag::Mask => 3,
                AclTag::GroupObj if !masked => 3,
                AclTag::Other => 0,
                _ => continue,
            };
            entry.access = change(entry.access, Access::from_mode(mode >> shift));
        }
        Self { entries }
    }
}

fn parse_entry(record: &[u8; ENTRY_BYTES]) -> Result<AclEntry> {
    let [tag0, tag1, perm0, perm1, id @ ..] = *record;
    let id = u32::from_le_bytes(id);
    let tag = match u16::from_le_bytes([tag0, tag1]) {
        0x01 => AclTag::UserObj,
        0x02 => AclTag::User(id),
        0x04 => AclTag::GroupObj,
        0x08 => AclTag::Group(id),
        0x10 => AclTag::Mask,
        0x20 => AclTag::Other,
        _ => return Err(Error::Invalid("an unknown entry in an access control list")),
    };
    let access = u8::try_from(u16::from_le_bytes([perm0, perm1])).ok().and_then(Access::from_bits);
    let access = access.ok_or(Error::Invalid("an unknown right in an access control list"))?;
    Ok(AclEntry { tag, access })
}

fn tag_word(tag: AclTag) -> (u16, u32) {
    match tag {
        AclTag::UserObj => (0x01, NO_ID),
        AclTag::User(id) => (0x02, id),
        AclTag::GroupObj => (0x04, NO_ID),
        AclTag::Group(id) => (0x08, id),
        AclTag::Mask => (0x10, NO_ID),
        AclTag::Other => (0x20, NO_ID),
    }
}

/// Owner, named users, group, named groups, mask (required with named entries), others. Named
/// entries may be in any order among themselves, and doubled: the kernel allows it too.
fn check_order(entries: &[AclEntry]) -> Result<()> {
    #[derive(PartialEq)]
    enum Expect {
        UserObj,
        Users,
        Groups,
        Other,
        End,
    }
    let mut expect = Expect::UserObj;
    let mut needs_mask = false;
    for entry in entries {
        expect = match (entry.tag, expect) {
            (AclTag::UserObj, Expect::UserObj) => Expect::Users,
            (AclTag::User(id), Expect::Users) if id != NO_ID => {
                needs_mask = true;
                Expect::Users
            }
            (AclTag::GroupObj, Expect::Users) => Expect::Groups,
            (AclTag::Group(id), Expect::Groups) if id != NO_ID => {
                needs_mask = true;
                Expect::Groups
            }
            (AclTag::Mask, Expect::Groups) => Expect::Other,
            (AclTag::Other, Expect::Other) => Expect::End,
            (AclTag::Other, Expect::Groups) if !needs_mask => Expect::End,
            _ => return Err(Error::Invalid("entries of an access control list out of order")),
        };
    }
    match expect {
        Expect::End => Ok(()),
        _ => Err(Error::Invalid("an access control list without its required entries")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AclTag::{Group, GroupObj, Mask, Other, User, UserObj};

    fn acl(entries: &[(AclTag, u8)]) -> Result<Acl> {
        let entry = |&(tag, bits)| AclEntry { tag, access: Access::from_bits_truncate(bits) };
        Acl::new(entries.iter().map(entry).collect())
    }

    fn named() -> Acl {
        let entries =
            [(UserObj, 7), (User(7), 6), (GroupObj, 5), (Group(9), 4), (Mask, 6), (Other, 1)];
        acl(&entries).unwrap()
    }

    fn wire(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0];
        for &(tag, perm, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(perm.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn the_wire_format_survives_and_hides_ids_that_mean_nothing() {
        let bytes = named().to_bytes();
        assert_eq!(bytes.len(), 4 + 6 * 8);
        assert_eq!(Acl::parse(&bytes).unwrap(), Some(named()));
        let odd = wire(&[(1, 6, 55), (4, 4, 66), (0x20, 4, 77)]);
        let clean = wire(&[(1, 6, NO_ID), (4, 4, NO_ID), (0x20, 4, NO_ID)]);
        assert_eq!(Acl::parse(&odd).unwrap().unwrap().to_bytes(), clean);
    }

    #[test]
    fn a_list_without_entries_is_no_list() {
        assert!(matches!(Acl::parse(&[2, 0, 0, 0]), Ok(None)));
        assert!(matches!(Acl::parse(&[]), Ok(None)));
    }

    #[test]
    fn bad_values_are_refused() {
        let minimal = wire(&[(1, 7, 0), (4, 5, 0), (0x20, 5, 0)]);
        assert!(Acl::parse(&minimal).is_ok());
        assert!(matches!(Acl::parse(&minimal[..3]), Err(Error::Invalid(_))));
        assert!(matches!(Acl::parse(&minimal[..minimal.len() - 1]), Err(Error::Invalid(_))));
        assert!(matches!(Acl::parse(&[1, 0, 0, 0]), Err(Error::Unsupported(_))));
        for bad in [
            wire(&[(1, 7, 0), (4, 5, 0), (0x20, 8, 0)]),
            wire(&[(1, 7, 0), (4, 5, 0), (0x20, 0x107, 0)]),
            wire(&[(1, 7, 0), (4, 5, 0), (0x40, 5, 0)]),
            wire(&[(1, 7, 0), (2, 5, NO_ID), (4, 5, 0), (0x10, 7, 0), (0x20, 5, 0)]),
        ] {
            assert!(matches!(Acl::parse(&bad), Err(Error::Invalid(_))), "{bad:?}");
        }
    }

    #[test]
    fn entries_have_one_legal_order() {
        for good in [
            &[(UserObj, 7), (GroupObj, 5), (Other, 5)][..],
            &[(UserObj, 7), (GroupObj, 5), (Mask, 5), (Other, 5)],
            &[(UserObj, 7), (User(2), 1), (User(1), 1), (GroupObj, 5), (Mask, 5), (Other, 5)],
        ] {
            assert!(acl(good).is_ok(), "{good:?}");
        }
        for bad in [
            &[][..],
            &[(UserObj, 7)],
            &[(UserObj, 7), (GroupObj, 5)],
            &[(GroupObj, 7), (UserObj, 5), (Other, 5)],
            &[(UserObj, 7), (GroupObj, 5), (Other, 5), (Other, 5)],
            &[(UserObj, 7), (GroupObj, 5), (Other, 5), (Mask, 5)],
            &[(UserObj, 7), (GroupObj, 5), (User(1), 1), (Mask, 5), (Other, 5)],
            &[(UserObj, 7), (User(1), 1), (GroupObj, 5), (Other, 5)],
            &[(UserObj, 7), (GroupObj, 5), (Group(1), 1), (Other, 5)],
            &[(UserObj, 7), (GroupObj, 5), (Mask, 1), (Mask, 1), (Other, 5)],
        ] {
            assert!(matches!(acl(bad), Err(Error::Invalid(_))), "{bad:?}");
        }
    }

    #[test]
    fn a_minimal_list_is_its_mode_for_every_mode() {
        for mode in 0..0o1000 {
            let bits = |shift: u32| (mode >> shift & 7) as u8;
            let minimal =
                acl(&[(UserObj, bits(6)), (GroupObj, bits(3)), (Other, bits(0))]).unwrap();
            assert_eq!(minimal.equivalent_mode(), (mode, true));
            assert_eq!(minimal.with_mode(0o751).equivalent_mode(), (0o751, true));
            let (access, created) = minimal.inherit(0o6666);
            assert_eq!((access, created), (None, 0o6000 | mode & 0o666));
        }
    }

    #[test]
    fn the_mask_stands_for_the_group_bits() {
        assert_eq!(named().equivalent_mode(), (0o761, false));
        for mode in 0..0o1000 {
            let changed = named().with_mode(mode);
            assert_eq!(changed.equivalent_mode(), (mode, false));
            assert_eq!(changed.entries()[2], named().entries()[2], "the owning group stays");
            let (access, created) = named().inherit(0o4000 | mode);
            assert_eq!(created, 0o4000 | mode & 0o761);
            assert_eq!(access.unwrap().equivalent_mode().0, mode & 0o761);
        }
    }

    #[test]
    fn each_caller_gets_the_entry_that_fits_best() {
        let named = named();
        let check = |caller: &Caller, expected: u8| {
            for wanted in 0..8 {
                let allowed = named.allows(caller, 1, 2, Access::from_bits_truncate(wanted));
                assert_eq!(allowed, expected & wanted == wanted, "{caller:?} {wanted}");
            }
        };
        check(&Caller::new(1, 2, &[9]), 7); // the owner, unmasked
        check(&Caller::new(7, 2, &[9]), 6); // a named user, not its groups
        check(&Caller::new(5, 2, &[]), 4); // r-x masked by rw-
        check(&Caller::new(5, 0, &[9]), 4);
        check(&Caller::new(5, 0, &[]), 1); // others, unmasked
    }

    #[test]
    fn rights_of_two_groups_do_not_add_up() {
        let list = acl(&[(UserObj, 7), (GroupObj, 4), (Group(9), 2), (Mask, 7), (Other, 7)]);
        let list = list.unwrap();
        let both = Caller::new(5, 2, &[9]);
        assert!(list.allows(&both, 1, 2, Access::READ));
        assert!(list.allows(&both, 1, 2, Access::WRITE));
        assert!(!list.allows(&both, 1, 2, Access::READ | Access::WRITE));
        assert!(!list.allows(&both, 1, 2, Access::EXECUTE), "a member is not one of the others");
    }
}
