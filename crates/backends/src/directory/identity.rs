//! Acting as the caller: the calling thread temporarily has the user, the groups and the umask of the caller.
//!
//! # Boundary
//! Switches credentials and restores them. The call sites decide which calls run as the caller, and which capabilities
//! of the caller may serve. Descriptors of directories are always obtained *before* the switch: search permission was
//! checked when the path was walked.
//!
//! # Concurrency
//! On Linux credentials belong to a thread. The guard is not `Send`, and covers only the system calls that need it. The
//! umask belongs to the thread's file-system context, which threads share by default. The first creation on a thread
//! gives it a context of its own. (A `chdir` elsewhere then no longer affects this thread; nothing here depends on
//! that.)
//!
//! # Why
//! To act as root and repair afterwards (`chown` after `mkdir`) leaves a window, and cannot replace the host's
//! decisions by credentials: setgid folders, default access control lists, quota, sticky bits, clearing set-id bits.
//! A caller's capabilities are read only after a refusal, since few users have any. The call is then repeated with
//! those that it needs, and the host decides. Capabilities of a user namespace that maps some numbers do not serve: the
//! daemon's thread cannot be in that namespace, and an owner looked at before the call may be another one in the call.
//! The real and saved ids stay the daemon's: so the thread can switch back, and the caller may neither signal nor trace
//! it meanwhile. Weakness: six system calls a switch; so reads and lookups do without.

use super::convert::{host_error, host_mode};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};
use rustix::thread::{
    CapabilitySet, CapabilitySets, Gid, Uid, set_thread_groups, set_thread_res_gid,
    set_thread_res_uid,
};
use std::cell::Cell;
use std::marker::PhantomData;
use uvfs_vfs::{Caller, Error, NewNode, Result};

/// With whose rights the backend changes the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActAs {
    /// With those of the caller, where the daemon runs as user 0. Any other daemon has only its own
    /// rights and acts as itself.
    #[default]
    Caller,
    /// With those of the daemon, for every caller.
    Daemon,
}

/// Capabilities for reaching an object whose permission bits forbid it.
pub(super) const REACH: CapabilitySet =
    CapabilitySet::DAC_OVERRIDE.union(CapabilitySet::DAC_READ_SEARCH);
/// Those, and the one for acting as the owner: sticky directories, and protected hard links.
pub(super) const CHANGE_NAMES: CapabilitySet = REACH.union(CapabilitySet::FOWNER);

/// The credentials of the daemon's threads when they act for no caller.
#[derive(Debug)]
pub(super) struct Identity {
    user: Uid,
    group: Gid,
    groups: Vec<Gid>,
    switches: bool,
}

impl Identity {
    /// Reads the daemon's own credentials, and checks that it may take others.
    pub(super) fn of_daemon(act_as: ActAs) -> Result<Self> {
        let identity = Self {
            user: geteuid(),
            group: getegid(),
            groups: getgroups().map_err(host_error)?,
            switches: act_as == ActAs::Caller && geteuid().is_root(),
        };
        if identity.switches {
            let probe = Caller::new(65_534, 65_534, &[65_534]);
            // Any other error concerns that one user, which may not exist in this user namespace.
            if let Err(Error::NotPermitted) = identity.enter(&probe, None) {
                return Err(Error::Unsupported(
                    "acting as the caller takes CAP_SETUID and CAP_SETGID",
                ));
            }
        }
        Ok(identity)
    }

    /// Whether the store acts with each caller's credentials.
    pub(super) fn switches(&self) -> bool {
        self.switches
    }

    /// Whether set-id bits must be cleared by hand when `caller` changes data and does not keep them: the host sees
    /// user 0 or the daemon do it, which may have CAP_FSETID where the caller does not.
    pub(super) fn clears_set_id_by_hand(&self, caller: &Caller) -> bool {
        caller.is_privileged() || !self.switches
    }

    /// Does `work` as `caller`, with `umask` for new objects. If the host refuses it to the caller's user, does it once
    /// more with those of the capabilities `needed` that the caller has.
    pub(super) fn act<T>(
        &self,
        caller: &Caller,
        umask: Option<u32>,
        needed: CapabilitySet,
        mut work: impl FnMut(&AsCaller<'_>) -> Result<T>,
    ) -> Result<T> {
        let first = work(&self.enter(caller, umask)?);
        let is_refused = match &first {
            Err(Error::Access | Error::NotPermitted) => true,
            // The host's answer about an attribute that only a privileged caller may know.
            Err(Error::NoAttribute) => needed == CapabilitySet::SYS_ADMIN,
            _ => false,
        };
        if !is_refused {
            return first;
        }
        self.act_by_capability(caller, umask, needed, work).unwrap_or(first)
    }

    /// Does `work` as `caller` with those of the capabilities `needed` that it has; `None` if it has none of them.
    pub(super) fn act_by_capability<T>(
        &self,
        caller: &Caller,
        umask: Option<u32>,
        needed: CapabilitySet,
        mut work: impl FnMut(&AsCaller<'_>) -> Result<T>,
    ) -> Option<Result<T>> {
        // User 0 has them by its number, and another daemon has none to lend.
        if !self.switches || caller.is_privileged() {
            return None;
        }
        let held = CapabilitySet::from_bits_truncate(caller.capabilities()) & needed;
        if held.is_empty() {
            return None;
        }
        let as_caller = self.enter(caller, umask).and_then(|guard| {
            guard.raise(held).map_err(host_error)?;
            Ok(guard)
        });
        Some(as_caller.and_then(|guard| work(&guard)))
    }

    /// Acts as `caller` until the guard is dropped, with `umask` for new objects.
    pub(super) fn enter(&self, caller: &Caller, umask: Option<u32>) -> Result<AsCaller<'_>> {
        let mut guard = AsCaller {
            daemon: self,
            groups: false,
            group: false,
            user: false,
            umask: None,
            _this_thread: PhantomData,
        };
        if self.switches {
            guard.switch(caller).map_err(|errno| match errno {
                Errno::INVAL => Error::Invalid("no such user or group on the host"),
                errno => host_error(errno),
            })?;
        }
        if let Some(umask) = umask
            && owns_umask()
        {
            guard.umask = Some(rustix::process::umask(Mode::from_raw_mode(umask & 0o777)));
        }
        Ok(guard)
    }
}

/// Proof that this thread acts as a caller; makes it the daemon's again when dropped.
#[derive(Debug)]
pub(super) struct AsCaller<'a> {
    daemon: &'a Identity,
    groups: bool,
    group: bool,
    user: bool,
    umask: Option<Mode>,
    _this_thread: PhantomData<*const ()>,
}

impl AsCaller<'_> {
    /// The mode to pass to the host for `new`. If the host applies the caller's umask itself, it is unchanged: in a
    /// folder with a default access control list the host ignores the umask.
    pub(super) fn creation_mode(&self, new: &NewNode<'_>) -> Mode {
        match self.umask {
            Some(_) => host_mode(new.mode),
            None => host_mode(new.mode & !new.umask),
        }
    }

    /// Groups first and the user last: the first two take the capabilities that the last one drops.
    fn switch(&mut self, caller: &Caller) -> std::result::Result<(), Errno> {
        let (user, group) = (caller.uid, caller.gid);
        if user == u32::MAX || group == u32::MAX {
            return Err(Errno::INVAL);
        }
        if user != 0 {
            let groups: Vec<Gid> = caller
                .supplementary()
                .iter()
                .map(|&group| Gid::from_raw_unchecked(group))
                .collect();
            if groups != self.daemon.groups {
                set_thread_groups(&groups)?;
                self.groups = true;
            }
        }
        if group != self.daemon.group.as_raw() {
            set_thread_res_gid(None, Gid::from_raw(group), None)?;
            self.group = true;
        }
        if user != self.daemon.user.as_raw() {
            set_thread_res_uid(None, Uid::from_raw(user), None)?;
            self.user = true;
        }
        Ok(())
    }

    /// Puts `capabilities` into effect, as far as the daemon has them. The switch to the caller's user has taken all out
    /// of effect, and the switch back puts all into effect again.
    fn raise(&self, capabilities: CapabilitySet) -> std::result::Result<(), Errno> {
        let sets = rustix::thread::capabilities(None)?;
        let effective = capabilities & sets.permitted;
        rustix::thread::set_capabilities(None, CapabilitySets { effective, ..sets })
    }

    fn restore(&self) -> std::result::Result<(), Errno> {
        if self.user {
            set_thread_res_uid(None, self.daemon.user, None)?;
        }
        if self.group {
            set_thread_res_gid(None, self.daemon.group, None)?;
        }
        if self.groups {
            set_thread_groups(&self.daemon.groups)?;
        }
        Ok(())
    }
}

impl Drop for AsCaller<'_> {
    fn drop(&mut self) {
        if let Err(errno) = self.restore() {
            // To continue would serve the next caller with this one's rights.
            log::error!("cannot take back the daemon's own credentials: {errno}; giving up");
            std::process::abort();
        }
        if let Some(umask) = self.umask {
            rustix::process::umask(umask);
        }
    }
}

/// Whether this thread has a umask of its own; the first call separates it, if that is allowed.
fn owns_umask() -> bool {
    thread_local!(static OWNS: Cell<Option<bool>> = const { Cell::new(None) });
    OWNS.with(|owns| {
        if owns.get().is_none() {
            owns.set(Some(own_file_system_context()));
        }
        owns.get() == Some(true)
    })
}

// The binding is deprecated because other flags can take descriptors from under a thread; this one
// cannot, and the replacement would need `unsafe`.
#[allow(deprecated)]
fn own_file_system_context() -> bool {
    rustix::thread::unshare(rustix::thread::UnshareFlags::FS).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::testing::{Scratch, is_root, root_caller};
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
    use std::path::Path;
    use std::time::Instant;
    use uvfs_vfs::{
        Backend, FileRef, InodeId, Name, NewKind, OpenMode, Powers, SetAttributes, XattrMode,
    };

    const USER: u32 = 1234;
    const GROUP: u32 = 2345;
    const EXTRA: u32 = 3456;

    fn user() -> Caller {
        Caller::new(USER, GROUP, &[EXTRA])
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    /// A source that everybody may write to.
    fn open_to_all() -> Scratch {
        let scratch = Scratch::new();
        set_mode(&scratch.path(""), 0o777);
        scratch
    }

    fn ownership(scratch: &Scratch, name: &str) -> (u32, u32, u32) {
        let about = fs::symlink_metadata(scratch.path(name)).unwrap();
        (about.uid(), about.gid(), about.mode() & 0o7777)
    }

    fn credentials() -> (u32, u32, Vec<u32>) {
        let groups = getgroups().unwrap().iter().map(|group| group.as_raw()).collect();
        (geteuid().as_raw(), getegid().as_raw(), groups)
    }

    #[test]
    fn the_thread_has_the_callers_credentials_only_inside_the_guard() {
        if !is_root() {
            return;
        }
        let identity = Identity::of_daemon(ActAs::Caller).unwrap();
        let before = credentials();
        {
            let _as_caller = identity.enter(&Caller::new(1234, 2345, &[10, 20]), None).unwrap();
            assert_eq!(credentials(), (1234, 2345, vec![10, 20]));
        }
        assert_eq!(credentials(), before);
        let refused = identity.enter(&Caller::new(u32::MAX, 1, &[]), None);
        assert!(matches!(refused, Err(Error::Invalid(_))));
        drop(refused);
        assert_eq!(credentials(), before);
    }

    #[test]
    fn a_panic_inside_the_guard_restores_the_daemons_credentials() {
        if !is_root() {
            return;
        }
        let identity = Identity::of_daemon(ActAs::Caller).unwrap();
        let before = credentials();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _as_caller = identity.enter(&Caller::new(1234, 2345, &[]), Some(0o77)).unwrap();
            panic!("on purpose");
        }));
        assert!(outcome.is_err());
        assert_eq!(credentials(), before);
    }

    #[test]
    fn acting_as_the_daemon_changes_nothing_but_the_umask() {
        let identity = Identity::of_daemon(ActAs::Daemon).unwrap();
        let before = credentials();
        let guard = identity.enter(&Caller::new(1234, 2345, &[]), Some(0o027)).unwrap();
        assert_eq!(credentials(), before);
        let new = NewNode { kind: NewKind::Regular, mode: 0o666, umask: 0o027 };
        if guard.umask.is_some() {
            assert_eq!(guard.creation_mode(&new).as_raw_mode(), 0o666);
            assert_eq!(rustix::process::umask(Mode::from_raw_mode(0o027)).as_raw_mode(), 0o027);
        } else {
            assert_eq!(guard.creation_mode(&new).as_raw_mode(), 0o640);
        }
    }

    #[test]
    fn what_a_caller_makes_is_the_callers() {
        if !is_root() {
            return;
        }
        let scratch = open_to_all();
        let make = |name: &str, kind, mode, umask| {
            let new = NewNode { kind, mode, umask };
            let name = Name::new(name.as_bytes()).unwrap();
            scratch
                .backend
                .creation()
                .unwrap()
                .create(&user(), InodeId::ROOT, name, &new)
                .map(|entry| entry.inode)
        };
        let folder = make("d", NewKind::Directory, 0o777, 0o027).unwrap();
        make("f", NewKind::Regular, 0o666, 0o022).unwrap();
        make("p", NewKind::Fifo, 0o666, 0o077).unwrap();
        make("l", NewKind::Symlink(b"x"), 0o777, 0).unwrap();
        assert_eq!(ownership(&scratch, "d"), (USER, GROUP, 0o750));
        assert_eq!(ownership(&scratch, "f"), (USER, GROUP, 0o644));
        assert_eq!(ownership(&scratch, "p"), (USER, GROUP, 0o600));
        assert_eq!(ownership(&scratch, "l").0, USER);
        assert!(matches!(
            make("c", NewKind::CharDevice(0x103), 0o666, 0),
            Err(Error::NotPermitted)
        ));

        let new = NewNode { kind: NewKind::Regular, mode: 0o4666, umask: 0o002 };
        let name = Name::new(b"o").unwrap();
        let opened = scratch.backend.creation().unwrap().create_and_open(
            &user(),
            folder,
            name,
            &new,
            OpenMode::READ_WRITE,
        );
        assert!(opened.is_ok());
        assert_eq!(ownership(&scratch, "d/o"), (USER, GROUP, 0o4664));
        if let Ok((entry, _)) = scratch.backend.creation().unwrap().create_unnamed(
            &user(),
            folder,
            &new,
            OpenMode::READ_WRITE,
        ) {
            assert_eq!((entry.attributes.uid, entry.attributes.gid), (USER, GROUP));
        }
        set_mode(&scratch.path(""), 0o755);
        assert!(matches!(make("no", NewKind::Regular, 0o666, 0), Err(Error::Access)));
    }

    #[test]
    fn a_setgid_folder_gives_its_group_on() {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        let folder = scratch.make_directory(InodeId::ROOT, "d").unwrap();
        chown(scratch.path("d"), Some(0), Some(EXTRA)).unwrap();
        set_mode(&scratch.path("d"), 0o2777);
        let caller = Caller::new(USER, GROUP, &[]);
        scratch.make_as(&caller, folder, "sub", NewKind::Directory, 0o755).unwrap();
        scratch.make_as(&caller, folder, "f", NewKind::Regular, 0o2775).unwrap();
        assert_eq!(ownership(&scratch, "d/sub"), (USER, EXTRA, 0o2755));
        // The caller is not a member of the group, so it must not set the set-id bit.
        assert_eq!(ownership(&scratch, "d/f"), (USER, EXTRA, 0o775));
    }

    #[test]
    fn supplementary_groups_count_and_strangers_are_refused() {
        if !is_root() {
            return;
        }
        let scratch = open_to_all();
        fs::write(scratch.path("f"), b"x").unwrap();
        chown(scratch.path("f"), Some(0), Some(EXTRA)).unwrap();
        set_mode(&scratch.path("f"), 0o060);
        let inode = scratch.lookup(InodeId::ROOT, "f").unwrap();
        assert!(scratch.backend.open_files().open(&user(), inode, OpenMode::READ_WRITE).is_ok());
        let stranger = Caller::new(USER, GROUP, &[]);
        let refused = scratch.backend.open_files().open(&stranger, inode, OpenMode::READ);
        assert!(matches!(refused, Err(Error::Access)));
        let mode = SetAttributes { mode: Some(0o777), ..SetAttributes::default() };
        let refused =
            scratch.backend.inodes().set_attributes(&stranger, FileRef::unopened(inode), &mode);
        assert!(matches!(refused, Err(Error::NotPermitted)));
        let size = SetAttributes { size: Some(0), ..SetAttributes::default() };
        let refused =
            scratch.backend.inodes().set_attributes(&stranger, FileRef::unopened(inode), &size);
        assert!(matches!(refused, Err(Error::Access)));
    }

    /// A user whose task has the capability `number`.
    fn user_with(number: u32) -> Caller {
        let read = |(number, _): (u32, Instant), _, _| 1 << number;
        let powers = Powers::OfTask { task: number, asked: Instant::now(), read };
        Caller { powers, ..user() }
    }

    /// Bug: the daemon acted as a user without capabilities. A backup user with CAP_DAC_READ_SEARCH read no file of
    /// others, although the kernel had let it pass, and the same user did on the host.
    #[test]
    fn a_capability_of_a_user_serves_as_on_the_host_and_no_other_does() {
        const NET_ADMIN: u32 = 12;
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        let root = InodeId::ROOT;
        fs::write(scratch.path("f"), b"private").unwrap();
        set_mode(&scratch.path("f"), 0o600);
        fs::create_dir(scratch.path("d")).unwrap();
        set_mode(&scratch.path("d"), 0o755);
        let inode = scratch.lookup(root, "f").unwrap();
        let folder = scratch.lookup(root, "d").unwrap();
        let backend = &scratch.backend;
        let open = |caller: &Caller, mode| backend.open_files().open(caller, inode, mode).map(drop);
        let set = |caller: &Caller, set: SetAttributes| {
            backend.inodes().set_attributes(caller, FileRef::unopened(inode), &set)
        };
        let make = |caller: &Caller, name: &str, kind| {
            scratch.make_as(caller, folder, name, kind, 0o644).map(drop)
        };
        let none = SetAttributes::default();
        let chown = SetAttributes { uid: Some(5), ..none };
        let chmod = SetAttributes { mode: Some(0o640), ..none };
        type Act<'a> = Box<dyn Fn(&Caller) -> Result<()> + 'a>;
        let acts: [(&str, u32, Act<'_>); 7] = [
            ("read", 2, Box::new(|caller| open(caller, OpenMode::READ))),
            ("write", 1, Box::new(|caller| open(caller, OpenMode::READ_WRITE))),
            ("make", 1, Box::new(|caller| make(caller, "new", NewKind::Regular))),
            (
                "remove",
                1,
                Box::new(|caller| {
                    backend.names().unlink(caller, folder, Name::new(b"new").unwrap())
                }),
            ),
            ("chmod", 3, Box::new(|caller| set(caller, chmod).map(drop))),
            ("chown", 0, Box::new(|caller| set(caller, chown).map(drop))),
            (
                "capability",
                31,
                Box::new(|caller| {
                    // Version 2, effective, CAP_NET_RAW.
                    let value = [1, 0, 0, 2, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                    let name = b"security.capability";
                    backend.xattrs().unwrap().set_xattr(caller, inode, name, &value, XattrMode::Any)
                }),
            ),
        ];
        let before = credentials();
        for (name, needed, act) in &acts {
            for lacking in [user(), user_with(NET_ADMIN)] {
                let refused = act(&lacking);
                assert!(
                    matches!(refused, Err(Error::Access | Error::NotPermitted)),
                    "{name}: {refused:?}"
                );
            }
            match act(&user_with(*needed)) {
                Err(Error::Unsupported(_)) => uvfs_skip::lacking("no such attributes here"),
                done => done.unwrap_or_else(|error| panic!("{name}: {error}")),
            }
            assert_eq!(credentials(), before);
        }
        assert_eq!(ownership(&scratch, "f"), (5, 0, 0o640));
        // The bit stays that the host clears for an owner outside the group.
        let (owner, bits) =
            (Caller { uid: 5, ..user() }, SetAttributes { mode: Some(0o2750), ..none });
        assert_eq!(set(&owner, bits).unwrap().mode, 0o750);
        let keeper = Caller { uid: 5, ..user_with(4) };
        assert_eq!(set(&keeper, bits).unwrap().mode, 0o2750);
        let device = NewKind::CharDevice(0x103);
        set_mode(&scratch.path("d"), 0o777);
        assert!(matches!(make(&user_with(1), "null", device), Err(Error::NotPermitted)));
        make(&user_with(27), "null", device).unwrap();
        assert_eq!(ownership(&scratch, "d/null").0, USER);
    }

    #[test]
    fn a_private_file_opens_for_its_owner_below_a_folder_closed_to_the_owner() {
        if !is_root() {
            return;
        }
        let scratch = Scratch::new();
        let folder = scratch.make_directory(InodeId::ROOT, "d").unwrap();
        fs::write(scratch.path("d/f"), b"private").unwrap();
        chown(scratch.path("d/f"), Some(65_534), Some(65_534)).unwrap();
        set_mode(&scratch.path("d/f"), 0o600);
        set_mode(&scratch.path("d"), 0o700);
        let inode = scratch.lookup(folder, "f").unwrap();
        scratch.close_descriptors();
        let other_user = Caller::new(65_534, 65_534, &[]);
        let file =
            scratch.backend.open_files().open(&other_user, inode, OpenMode::READ_WRITE).unwrap();
        let open = FileRef { inode, file };
        assert_eq!(scratch.backend.data().read(open, 0, &mut [0; 16]).unwrap(), 7);
        let all = SetAttributes { mode: Some(0o640), size: Some(3), ..SetAttributes::default() };
        let unopened = FileRef::unopened(inode);
        assert_eq!(
            scratch.backend.inodes().set_attributes(&other_user, unopened, &all).unwrap().mode,
            0o640
        );
        let set = scratch.backend.xattrs().unwrap().set_xattr(
            &other_user,
            inode,
            b"user.a",
            b"x",
            XattrMode::Any,
        );
        match set {
            Err(Error::Unsupported(_)) => uvfs_skip::lacking("no user attributes here"),
            set => set.unwrap(),
        }
    }

    #[test]
    fn in_a_sticky_folder_only_the_owner_removes() {
        if !is_root() {
            return;
        }
        let scratch = open_to_all();
        set_mode(&scratch.path(""), 0o1777);
        scratch.make_as(&user(), InodeId::ROOT, "f", NewKind::Regular, 0o666).unwrap();
        let other = Caller::new(USER + 1, GROUP, &[]);
        let name = Name::new(b"f").unwrap();
        let refused = scratch.backend.names().unlink(&other, InodeId::ROOT, name);
        assert!(matches!(refused, Err(Error::NotPermitted)));
        let to = (InodeId::ROOT, Name::new(b"g").unwrap());
        let refused = scratch.backend.names().rename(
            &other,
            (InodeId::ROOT, name),
            to,
            uvfs_vfs::RenameMode::Replace,
        );
        assert!(matches!(refused, Err(Error::NotPermitted)));
        scratch.backend.names().unlink(&user(), InodeId::ROOT, name).unwrap();
    }

    #[test]
    fn a_default_access_control_list_replaces_the_umask() {
        if !is_root() {
            return;
        }
        let scratch = open_to_all();
        let folder = scratch.make_as(&user(), InodeId::ROOT, "d", NewKind::Directory, 0o755);
        let folder = folder.unwrap();
        // Version 2: owner rwx, user EXTRA rwx, group r-x, mask rwx, others none.
        let none = u32::MAX;
        let list = [(1, 7, none), (2, 7, EXTRA), (4, 5, none), (16, 7, none), (32, 0, none)];
        let mut value = 2u32.to_le_bytes().to_vec();
        for (tag, permissions, id) in list {
            value.extend(u16::to_le_bytes(tag));
            value.extend(u16::to_le_bytes(permissions));
            value.extend(u32::to_le_bytes(id));
        }
        let default = b"system.posix_acl_default";
        match scratch.backend.xattrs().unwrap().set_xattr(
            &user(),
            folder,
            default,
            &value,
            XattrMode::Any,
        ) {
            Err(Error::Unsupported(_)) => {
                return uvfs_skip::lacking("no access control lists here");
            }
            set => set.unwrap(),
        }
        assert!(scratch.backend.capabilities().acls);
        let new = NewNode { kind: NewKind::Regular, mode: 0o666, umask: 0o077 };
        let name = Name::new(b"f").unwrap();
        let made = scratch.backend.creation().unwrap().create(&user(), folder, name, &new).unwrap();
        assert_eq!(made.attributes.mode, 0o660, "the list decides, not the umask");
        let access = b"system.posix_acl_access";
        assert!(scratch.backend.xattrs().unwrap().get_xattr(&user(), made.inode, access).is_ok());
        let name = Name::new(b"g").unwrap();
        let made =
            scratch.backend.creation().unwrap().create(&user(), InodeId::ROOT, name, &new).unwrap();
        assert_eq!(made.attributes.mode, 0o600, "without a list the umask does");
    }

    #[test]
    fn set_id_bits_go_when_an_unprivileged_caller_writes_cuts_or_gives_away() {
        if !is_root() {
            return;
        }
        for act_as in [ActAs::Caller, ActAs::Daemon] {
            let scratch =
                Scratch::with(super::super::DirectoryConfig { act_as, descriptors_max: None });
            fs::write(scratch.path("f"), b"12345").unwrap();
            chown(scratch.path("f"), Some(USER), Some(GROUP)).unwrap();
            let arm = || {
                set_mode(&scratch.path("f"), 0o6777);
                scratch.lookup(InodeId::ROOT, "f").unwrap()
            };
            let inode = arm();
            let file =
                scratch.backend.open_files().open(&user(), inode, OpenMode::READ_WRITE).unwrap();
            let open = FileRef { inode, file };
            scratch.backend.data().write(&root_caller(), open, 0, b"x").unwrap();
            assert_eq!(ownership(&scratch, "f").2, 0o6777, "user 0 may");
            scratch.backend.data().write(&user(), open, 0, b"x").unwrap();
            assert_eq!(ownership(&scratch, "f").2, 0o777, "write, {act_as:?}");
            arm();
            let size = SetAttributes { size: Some(2), ..SetAttributes::default() };
            let after = scratch.backend.inodes().set_attributes(&user(), open, &size).unwrap();
            assert_eq!(after.mode, 0o777, "truncate, {act_as:?}");
            arm();
            let group = SetAttributes { gid: Some(EXTRA), ..SetAttributes::default() };
            let after = scratch.backend.inodes().set_attributes(&user(), open, &group).unwrap();
            assert_eq!((after.gid, after.mode), (EXTRA, 0o777), "chown, {act_as:?}");
        }
    }

    #[test]
    fn many_threads_act_as_many_callers_without_mixing_them_up() {
        if !is_root() {
            return;
        }
        let scratch = open_to_all();
        std::thread::scope(|scope| {
            for thread in 0..8u32 {
                let scratch = &scratch;
                scope.spawn(move || {
                    for round in 0..100 {
                        let caller = Caller::new(USER + thread, GROUP + thread, &[EXTRA + thread]);
                        let name = format!("{thread}-{round}");
                        let made =
                            scratch.make_as(&caller, InodeId::ROOT, &name, NewKind::Regular, 0o600);
                        let about = scratch.attributes(made.unwrap()).unwrap();
                        assert_eq!((about.uid, about.gid), (USER + thread, GROUP + thread));
                    }
                });
            }
        });
    }
}
