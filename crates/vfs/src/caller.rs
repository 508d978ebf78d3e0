//! The credentials that come with every operation.
//!
//! # Boundary
//! Plain data. [`crate::permission`] decides about a caller's rights. A backend on a host acts *as* the caller.

use crate::observers::Origin;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

/// Reads the supplementary groups of a task, by thread id.
pub type GroupReader = fn(u32) -> Vec<u32>;

/// The supplementary groups of a caller.
#[derive(Clone)]
pub enum Groups {
    /// These.
    Known(GroupList),
    /// Those of a task, read only if needed: most operations do not need them.
    OfTask {
        /// The task's thread id.
        task: u32,
        /// How to read them.
        read: GroupReader,
    },
}

impl fmt::Debug for Groups {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Groups::Known(groups) => write!(out, "{groups:?}"),
            Groups::OfTask { task, .. } => write!(out, "of task {task}"),
        }
    }
}

/// Groups, stored inline if they are few. Each open file has a copy of its caller, and such a copy counts on no line
/// that other threads use.
#[derive(Clone)]
pub struct GroupList(GroupStorage);

/// Groups stored inline, more than most users have.
const IN_PLACE: usize = 14;

#[derive(Clone)]
enum GroupStorage {
    Few { count: u8, groups: [u32; IN_PLACE] },
    Many(Arc<[u32]>),
}

impl Deref for GroupList {
    type Target = [u32];

    #[inline]
    fn deref(&self) -> &[u32] {
        match &self.0 {
            GroupStorage::Few { count, groups } => &groups[..usize::from(*count)],
            GroupStorage::Many(groups) => groups,
        }
    }
}

impl From<&[u32]> for GroupList {
    fn from(groups: &[u32]) -> Self {
        let mut few = [0; IN_PLACE];
        match few.get_mut(..groups.len()) {
            Some(place) => {
                place.copy_from_slice(groups);
                Self(GroupStorage::Few { count: groups.len() as u8, groups: few })
            }
            None => Self(GroupStorage::Many(groups.into())),
        }
    }
}

impl From<Vec<u32>> for GroupList {
    fn from(groups: Vec<u32>) -> Self {
        groups.as_slice().into()
    }
}

impl FromIterator<u32> for GroupList {
    fn from_iter<I: IntoIterator<Item = u32>>(groups: I) -> Self {
        groups.into_iter().collect::<Vec<_>>().into()
    }
}

impl fmt::Debug for GroupList {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, out)
    }
}

/// Whether a caller's changes of the data of a file leave the set-id bits of its mode: CAP_FSETID of capabilities(7).
#[derive(Debug, Clone, Copy, Default)]
pub enum SetIds {
    /// Changes by user 0 leave them, and those by other users clear them.
    #[default]
    ByUser,
    /// They leave them.
    Keep,
    /// They clear them.
    Clear,
    /// Changes by user 0 leave them if the task has the capability, by its thread id. Those by other users clear them.
    /// Called only for a file that has such bits.
    ByTask {
        /// The task's thread id.
        task: u32,
        /// Whether it has the capability.
        has: fn(u32) -> bool,
    },
}

/// The capabilities of a caller (capabilities(7)) that hold for every object, whatever its user is. Those that a user
/// has in a user namespace, for the objects which that maps, do not count.
#[derive(Debug, Clone, Copy, Default)]
pub enum Powers {
    /// Those of user 0, if that is the user, and otherwise none.
    #[default]
    ByUser,
    /// Those of a task, read only if a store has refused something to its user.
    OfTask {
        /// The task's thread id.
        task: u32,
        /// When the task asked. A task of the same number that began later is another one.
        asked: Instant,
        /// Reads them for a task that asked then and still has this user and group: a bit for each number.
        read: fn((u32, Instant), u32, u32) -> u64,
    },
}

/// The owner and the group of an object that a caller makes. A directory that passes its group on decides the group.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NewOwner {
    /// The user and the group of the caller.
    #[default]
    Caller,
    /// The owner and the group of the directory.
    Directory,
    /// This user, and this group or that of the directory.
    Given {
        /// User id.
        uid: u32,
        /// Group id.
        gid: Option<u32>,
    },
}

/// Whether the core must check permissions for a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checks {
    /// Check: mode bits, access control lists, sticky and ownership rules.
    Enforce,
    /// The frontend's client has done so already (a kernel with `default_permissions`).
    Done,
}

/// The credentials of one operation.
#[derive(Debug, Clone)]
pub struct Caller {
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Groups,
    /// Whether the core checks permissions.
    pub checks: Checks,
    /// Whether changes of data leave set-id bits.
    pub set_ids: SetIds,
    /// The capabilities of a user other than 0, for a store that acts as the caller.
    pub powers: Powers,
    /// The owner of what it makes, in a store that keeps owners itself ([`crate::creation`]).
    pub new_owner: NewOwner,
    /// The frontend of the caller, which needs no notice of its own changes.
    pub origin: Origin,
}

impl Caller {
    /// User 0, which no permission stops.
    pub fn root() -> Self {
        Self::new(0, 0, &[])
    }

    /// A caller whose permissions the core checks.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Self {
        Self {
            uid,
            gid,
            groups: Groups::Known(groups.into()),
            checks: Checks::Enforce,
            set_ids: SetIds::default(),
            powers: Powers::default(),
            new_owner: NewOwner::default(),
            origin: Origin::default(),
        }
    }

    /// Returns the caller through the frontend of `origin`: all other frontends are notified of its changes.
    #[must_use]
    pub fn through(self, origin: Origin) -> Self {
        Self { origin, ..self }
    }

    /// Whether the caller may ignore permissions (CAP_DAC_OVERRIDE, CAP_FOWNER, ... as user 0 has them).
    pub fn is_privileged(&self) -> bool {
        self.uid == 0
    }

    /// Whether the caller's changes of data leave set-id bits; may read from the system.
    pub fn keeps_set_ids(&self) -> bool {
        match self.set_ids {
            SetIds::ByUser => self.is_privileged(),
            SetIds::Keep => true,
            SetIds::Clear => false,
            SetIds::ByTask { task, has } => self.is_privileged() && has(task),
        }
    }

    /// The capabilities of a user other than 0 that hold for every object, a bit for each number; may read them from the
    /// system.
    pub fn capabilities(&self) -> u64 {
        match self.powers {
            Powers::ByUser => 0,
            Powers::OfTask { task, asked, read } => read((task, asked), self.uid, self.gid),
        }
    }

    /// The supplementary groups; may read them from the system.
    pub fn supplementary(&self) -> GroupList {
        match &self.groups {
            Groups::Known(groups) => groups.clone(),
            Groups::OfTask { task, read } => read(*task).into(),
        }
    }

    /// Like [`Caller::in_group`], if the answer does not need groups from the system.
    #[inline]
    pub fn known_in_group(&self, group: u32) -> Option<bool> {
        match &self.groups {
            _ if self.gid == group => Some(true),
            Groups::Known(groups) => Some(groups.contains(&group)),
            Groups::OfTask { .. } => None,
        }
    }

    /// Whether the caller is a member of `group`.
    pub fn in_group(&self, group: u32) -> bool {
        self.gid == group || self.supplementary().contains(&group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_ids_stay_for_user_0_unless_the_task_or_the_request_says_otherwise() {
        let (root, user) = (Caller::root(), Caller::new(1000, 100, &[]));
        let of = |caller: &Caller, set_ids| Caller { set_ids, ..caller.clone() }.keeps_set_ids();
        let by_task = |task| SetIds::ByTask { task, has: |task| task == 7 };
        let root = [SetIds::ByUser, by_task(7), by_task(8), SetIds::Keep, SetIds::Clear]
            .map(|set_ids| of(&root, set_ids));
        assert_eq!(root, [true, true, false, true, false]);
        let user = [SetIds::ByUser, by_task(7), SetIds::Keep, SetIds::Clear]
            .map(|set_ids| of(&user, set_ids));
        assert_eq!(user, [false, false, true, false], "a user has every capability of a namespace");
    }

    #[test]
    fn membership_counts_the_primary_and_the_supplementary_groups() {
        let caller = Caller::new(1000, 100, &[27, 44]);
        assert!(caller.in_group(100) && caller.in_group(44) && !caller.in_group(0));
        assert!(!caller.is_privileged() && Caller::root().is_privileged());
        let lazy = Caller { groups: Groups::OfTask { task: 7, read: |task| vec![task] }, ..caller };
        assert!(lazy.in_group(7) && lazy.known_in_group(7).is_none());
        let many: GroupList = (0..100).collect();
        let few: GroupList = (0..14).collect();
        assert_eq!((many.len(), few.len(), few[13]), (100, 14, 13));
        assert!(matches!((&many.0, &few.0), (GroupStorage::Many(_), GroupStorage::Few { .. })));
        assert_eq!((lazy.known_in_group(100), caller.known_in_group(44)), (Some(true), Some(true)));
    }
}
