//! Extended attributes, and symbolic links' text.

use super::change::AttributeChange;
use crate::acl;
use crate::attributes::FileKind;
use crate::backend::{XattrMode, Xattrs};
use crate::caller::{Caller, Checks};
use crate::error::{Error, Result};
use crate::inode::{Absent, Node};
use crate::paths::RightsChange;
use crate::permission::Access;
use crate::policy::{Account, CachePolicy, XATTR};
use crate::vfs::{Core, Vfs};
use uvfs_containers::class::Class;

/// Longest attribute name in bytes (xattr(7)).
pub(super) const XATTR_NAME_MAX: usize = 255;
/// Longest attribute value in bytes (xattr(7)).
pub(super) const XATTR_SIZE_MAX: usize = 64 << 10;

/// Whether it is the attribute that represents a directory's mark.
fn is_policy(node: &Node, name: &[u8]) -> bool {
    name == XATTR && node.is_directory()
}

/// The names of the attributes that exist in the caches only.
fn own_mark(node: &Node) -> Vec<Vec<u8>> {
    node.inode.own_mark().map(|_| XATTR.to_vec()).into_iter().collect()
}

/// The account to which marks of `caller` are charged.
fn account_of(caller: &Caller) -> Account {
    match caller.is_privileged() {
        true => Account::System,
        false => Account::User(caller.uid),
    }
}

impl Vfs {
    /// The text of a symbolic link. May block.
    ///
    /// # Errors
    /// [`Error::Invalid`] for anything else.
    pub fn read_link(&self, node: &Node) -> Result<Vec<u8>> {
        if node.kind() != FileKind::Symlink {
            return Err(Error::Invalid("not a symbolic link"));
        }
        let text = self.core.backend().inodes().read_link(node.id())?;
        node.inode.was_read(&self.core.clock);
        Ok(text)
    }

    /// The cached answer about an extended attribute, which can only be that there is none. For callers whose
    /// permission was checked before. Never blocks on the store.
    pub fn try_get_xattr(
        &self,
        caller: &Caller,
        node: &Node,
        name: &[u8],
    ) -> Option<Result<Vec<u8>>> {
        let plain = caller.checks == Checks::Done && (1..=XATTR_NAME_MAX).contains(&name.len());
        if !plain || is_policy(node, name) || !node.inode.absent().lacks(name) {
            return None;
        }
        self.core.counters.attribute_hits.hit();
        Some(Err(self.core.absent_error(name)))
    }

    /// The names of all extended attributes, if the store is known to have none. Never blocks on the store.
    pub fn try_list_xattrs(&self, node: &Node) -> Option<Vec<Vec<u8>>> {
        if !node.inode.absent().lacks_every() {
            return None;
        }
        self.core.counters.attribute_hits.hit();
        Some(own_mark(node))
    }

    /// The value of an extended attribute. May block.
    ///
    /// # Errors
    /// [`Error::NoAttribute`]; [`Error::Access`] or [`Error::NotPermitted`] by the rules of
    /// xattr(7).
    pub fn get_xattr(&self, caller: &Caller, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        self.check_xattr(caller, node, name, Access::READ)?;
        if is_policy(node, name) {
            let mark = node.inode.own_mark().map(CachePolicy::of).ok_or(Error::NoAttribute)?;
            return Ok(mark.to_string().into_bytes());
        }
        self.core.get_xattr(caller, node, name)
    }

    /// Sets an extended attribute. May block.
    ///
    /// `user.uvfs.cache` of a directory is not stored: it is the directory's mark ([`Vfs::set_policy`]), one of
    /// "normal", "keep" and "once", and ends with the mount. A caller that may set any `user.` attribute of the
    /// directory may set it. On other objects it is an ordinary attribute.
    ///
    /// # Errors
    /// [`Error::Invalid`] for another value of `user.uvfs.cache`. [`Error::Quota`] for the mark of a user that has
    /// [`crate::USER_POLICIES_MAX`]. Those of xattr(7) and of the store.
    pub fn set_xattr(
        &self,
        caller: &Caller,
        node: &Node,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.writable()?;
        if value.len() > XATTR_SIZE_MAX {
            return Err(Error::from_errno(libc::E2BIG));
        }
        self.check_xattr(caller, node, name, Access::WRITE)?;
        if is_policy(node, name) {
            return self.set_policy_xattr(caller, node, value, mode);
        }
        self.changing_xattrs(caller, node, |store| {
            store.set_xattr(caller, node.id(), name, value, mode)
        })
    }

    fn set_policy_xattr(
        &self,
        caller: &Caller,
        node: &Node,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let value = str::from_utf8(value).unwrap_or_default();
        let policy = value.parse::<CachePolicy>()?;
        self.may_mark(caller, node, policy)?;
        match (mode, node.inode.own_mark()) {
            (XattrMode::Create, Some(_)) => Err(Error::Exists),
            (XattrMode::Replace, None) => Err(Error::NoAttribute),
            _ => self.set_policy_for(account_of(caller), node, Some(policy)),
        }
    }

    fn changing_xattrs(
        &self,
        caller: &Caller,
        node: &Node,
        change: impl FnOnce(&dyn Xattrs) -> Result<()>,
    ) -> Result<()> {
        let store = self.core.store_xattrs()?;
        // It may be the access control list. Dropped after the change: see `paths`.
        let rights = node.is_directory().then(|| RightsChange(&self.core.paths));
        let attributes = AttributeChange::begin(&self.core, node);
        let changed = change(store);
        drop((attributes, rights));
        self.notify_inode(caller, node, changed)
    }

    /// The names of all extended attributes that `caller` may see. May block.
    pub fn list_xattrs(&self, caller: &Caller, node: &Node) -> Result<Vec<Vec<u8>>> {
        if self.core.absent_of(node)?.lacks_every() {
            return Ok(own_mark(node));
        }
        let mut names = self.core.store_xattrs()?.list_xattrs(caller, node.id())?;
        if !caller.is_privileged() {
            names.retain(|name| !name.starts_with(b"trusted."));
        }
        if node.is_directory() {
            // An attribute of this name in the store stays hidden.
            names.retain(|name| name != XATTR);
            names.extend(own_mark(node));
        }
        Ok(names)
    }

    /// Removes an extended attribute. May block.
    pub fn remove_xattr(&self, caller: &Caller, node: &Node, name: &[u8]) -> Result<()> {
        self.writable()?;
        self.check_xattr(caller, node, name, Access::WRITE)?;
        if is_policy(node, name) {
            let mark = node.inode.own_mark().ok_or(Error::NoAttribute)?;
            self.may_mark(caller, node, CachePolicy::of(mark))?;
            return self.set_policy_for(account_of(caller), node, None);
        }
        self.changing_xattrs(caller, node, |store| store.remove_xattr(caller, node.id(), name))
    }

    /// Only a directory's owner may set or remove its mark. `Keep` takes memory from all users, so that mark needs the
    /// owner of the root directory. Checked even if the frontend checks everything else.
    fn may_mark(&self, caller: &Caller, node: &Node, policy: CachePolicy) -> Result<()> {
        let owns = |node: &Node| self.attributes(node, None).map(|now| now.uid == caller.uid);
        let keeps = policy == CachePolicy::Keep || node.inode.own_mark() == Some(Class::Keep);
        match caller.is_privileged() || owns(node)? && (!keeps || owns(self.root())?) {
            true => Ok(()),
            false => Err(Error::NotPermitted),
        }
    }

    /// In a sticky directory any user may make files. Its own attributes are its owner's.
    fn check_sticky(&self, caller: &Caller, node: &Node) -> Result<()> {
        let attributes = self.attributes(node, None)?;
        let sticky = node.is_directory() && attributes.mode & 0o1000 != 0;
        if sticky && caller.uid != attributes.uid && !caller.is_privileged() {
            return Err(Error::NotPermitted);
        }
        Ok(())
    }

    /// Rights to read or write each namespace: xattr(7).
    fn check_xattr(&self, caller: &Caller, node: &Node, name: &[u8], wanted: Access) -> Result<()> {
        if name.is_empty() || name.len() > XATTR_NAME_MAX {
            return Err(Error::Range);
        }
        if caller.checks == Checks::Done {
            return Ok(());
        }
        let writing = wanted.contains(Access::WRITE);
        if name == acl::ACCESS_XATTR || name == acl::DEFAULT_XATTR {
            let owner = !writing || caller.uid == self.attributes(node, None)?.uid;
            return if owner || caller.is_privileged() { Ok(()) } else { Err(Error::NotPermitted) };
        }
        if name.starts_with(b"trusted.") && !caller.is_privileged() {
            return Err(if writing { Error::NotPermitted } else { Error::NoAttribute });
        }
        if name.starts_with(b"security.") {
            let allowed = !writing || caller.is_privileged();
            return if allowed { Ok(()) } else { Err(Error::NotPermitted) };
        }
        if name.starts_with(b"user.") {
            if !matches!(node.kind(), FileKind::Regular | FileKind::Directory) {
                return Err(if writing { Error::NotPermitted } else { Error::NoAttribute });
            }
            self.check(caller, node, wanted)?;
            return if writing { self.check_sticky(caller, node) } else { Ok(()) };
        }
        Ok(())
    }
}

impl Core {
    /// The value of an extended attribute that may be absent.
    fn get_xattr(&self, caller: &Caller, node: &Node, name: &[u8]) -> Result<Vec<u8>> {
        let noted = Absent::of(name);
        let known = node.inode.absent();
        // One list answers for all names. If some are known, there was such a list.
        let known = match noted {
            Some(_) if known == Absent::UNKNOWN => self.learn_absent(node)?,
            _ => known,
        };
        if known.lacks(name) {
            return Err(self.absent_error(name));
        }
        let asked = node.inode.ask_xattrs(&self.clock);
        let answer = self.store_xattrs()?.get_xattr(caller, node.id(), name);
        if let (Some(noted), Err(Error::NoAttribute)) = (noted, &answer) {
            node.inode.keep_absent(asked, noted);
        }
        answer
    }

    /// The attributes known to be absent. Asks the store if that is not known.
    pub(crate) fn absent_of(&self, node: &Node) -> Result<Absent> {
        match node.inode.absent() {
            Absent::UNKNOWN => self.learn_absent(node),
            known => Ok(known),
        }
    }

    /// Asks the store for its extended attributes, and records the absent ones. A store that cannot say, or not without
    /// the caller's rights, leaves them unknown: it is asked for each name.
    pub(crate) fn learn_absent(&self, node: &Node) -> Result<Absent> {
        let asked = node.inode.ask_xattrs(&self.clock);
        let names = match self.store_xattrs()?.possible_xattrs(node.id()) {
            Ok(Some(names)) => names,
            Ok(None) | Err(Error::Unsupported(_) | Error::Access | Error::NotPermitted) => {
                return Ok(Absent::UNKNOWN);
            }
            Err(error) => return Err(error),
        };
        let absent = Absent::all_but(names.iter().map(Vec::as_slice));
        node.inode.keep_absent(asked, absent);
        Ok(absent)
    }

    /// The store's error for a missing attribute `name`.
    fn absent_error(&self, name: &[u8]) -> Error {
        let list = name == acl::ACCESS_XATTR || name == acl::DEFAULT_XATTR;
        match list && !self.capabilities.acls {
            true => Error::Unsupported("access control lists"),
            false => Error::NoAttribute,
        }
    }
}
