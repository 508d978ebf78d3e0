//! Lists the methods of the seam once, for a store that stands around another one.
//!
//! # Boundary
//! Writes the methods that a layer does not write itself. The layer decides what happens around a call of its store.
//!
//! # Why
//! The types of a layer are known, so a call costs no allocation and no indirect jump of its own. Weakness: a method
//! that a layer neither writes nor lists has the default of its trait, which does not reach the store.

/// Writes methods of [`Backend`](crate::Backend) and its families for a layer: a type whose field `inner` holds the
/// store below it. It stands within the `impl` of the trait, in one of three forms.
///
/// - `forward!(around { unlink: WORD, sync: WORD })`: each method calls `self.around(WORD, file, name, act)`. `file` is
///   the [`FileRef`](crate::FileRef) of the call's object, and `name` the name in the call, if there is one (of a
///   change of names: the directory and the old name). `act(store, file)` makes the call and returns its result.
/// - `forward!(forget, tenant)`: each method calls the store and does nothing else.
/// - `forward!(families: names, export)`: the layer is the family, if its store has it.
#[macro_export]
macro_rules! forward {
    ($around:ident { $($method:ident: $word:expr),* $(,)? }) => {
        $($crate::forward_one!($around $method $word);)*
    };
    (families: $($family:ident),* $(,)?) => { $($crate::forward_one!(family $family);)* };
    ($($method:ident),* $(,)?) => { $($crate::forward_one!($method);)* };
}

/// One method for [`forward!`].
#[doc(hidden)]
#[macro_export]
macro_rules! forward_one {
    // Forms: the object is open, or it is an inode; the store makes the call, or one of its families does.
    (@fn $around:ident $word:expr, $of:tt, $by:tt, $method:ident($($a:ident: $t:ty),*) -> $r:ty) => {
        fn $method(&self, $($a: $t),*) -> $crate::Result<$r> {
            $crate::forward_one!(@act self $around $word, $of, $by, $method($($a),*))
        }
    };
    (@act $self:ident $around:ident $word:expr, ($file:ident), $by:tt, $method:ident $a:tt) => {
        $self.$around($word, $file, None, |inner, $file| $crate::forward_one!(@by inner $by $method $a))
    };
    (@act $self:ident $around:ident $word:expr, ($inode:expr, $name:expr), $by:tt, $method:ident $a:tt) => {
        $self.$around($word, $crate::FileRef::unopened($inode), $name, |inner, _| {
            $crate::forward_one!(@by inner $by $method $a)
        })
    };
    (@by $inner:ident (store) $method:ident($($a:ident),*)) => { $inner.$method($($a),*) };
    (@by $inner:ident ($family:ident $(or $lack:literal)?) $method:ident($($a:ident),*)) => {
        $inner.$family()$(.ok_or($crate::Error::Unsupported($lack))?)?.$method($($a),*)
    };

    ($around:ident sync_fs $word:expr) => { $crate::forward_one!(@fn $around $word,
        ($crate::InodeId::ROOT, None), (store), sync_fs() -> ()); };
    ($around:ident end $word:expr) => { $crate::forward_one!(@fn $around $word,
        ($crate::InodeId::ROOT, None), (store), end() -> ()); };
    ($around:ident totals $word:expr) => { $crate::forward_one!(@fn $around $word,
        ($crate::InodeId::ROOT, None), (store), totals() -> $crate::Totals); };
    ($around:ident root $word:expr) => { $crate::forward_one!(@fn $around $word,
        ($crate::InodeId::ROOT, None), (store), root() -> $crate::Entry); };

    ($around:ident lookup $word:expr) => { $crate::forward_one!(@fn $around $word,
        (parent, Some(name)), (names),
        lookup(caller: &$crate::Caller, parent: $crate::InodeId, name: $crate::Name<'_>) -> $crate::Entry); };
    ($around:ident list $word:expr) => { $crate::forward_one!(@fn $around $word, (directory), (names),
        list(directory: $crate::FileRef, from: $crate::Cookie, listing: &mut dyn $crate::Listing) -> ()); };
    ($around:ident unlink $word:expr) => { $crate::forward_one!(@fn $around $word,
        (parent, Some(name)), (names),
        unlink(caller: &$crate::Caller, parent: $crate::InodeId, name: $crate::Name<'_>) -> ()); };
    ($around:ident remove_directory $word:expr) => { $crate::forward_one!(@fn $around $word,
        (parent, Some(name)), (names),
        remove_directory(caller: &$crate::Caller, parent: $crate::InodeId, name: $crate::Name<'_>) -> ()); };
    ($around:ident rename $word:expr) => { $crate::forward_one!(@fn $around $word,
        (from.0, Some(from.1)), (names),
        rename(caller: &$crate::Caller, from: ($crate::InodeId, $crate::Name<'_>),
            to: ($crate::InodeId, $crate::Name<'_>), mode: $crate::RenameMode) -> ()); };

    ($around:ident create $word:expr) => { $crate::forward_one!(@fn $around $word,
        (parent, Some(name)), (creation or "creating"),
        create(caller: &$crate::Caller, parent: $crate::InodeId, name: $crate::Name<'_>,
            new: &$crate::NewNode<'_>) -> $crate::Entry); };
    ($around:ident create_and_open $word:expr) => { $crate::forward_one!(@fn $around $word,
        (parent, Some(name)), (creation or "creating"),
        create_and_open(caller: &$crate::Caller, parent: $crate::InodeId, name: $crate::Name<'_>,
            new: &$crate::NewNode<'_>, mode: $crate::OpenMode) -> ($crate::Entry, $crate::FileId)); };
    ($around:ident create_unnamed $word:expr) => { $crate::forward_one!(@fn $around $word,
        (parent, None), (creation or "creating"),
        create_unnamed(caller: &$crate::Caller, parent: $crate::InodeId, new: &$crate::NewNode<'_>,
            mode: $crate::OpenMode) -> ($crate::Entry, $crate::FileId)); };
    ($around:ident link $word:expr) => { $crate::forward_one!(@fn $around $word,
        (parent, Some(name)), (creation or "creating"),
        link(caller: &$crate::Caller, inode: $crate::InodeId, parent: $crate::InodeId,
            name: $crate::Name<'_>) -> $crate::Entry); };

    ($around:ident attributes $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (inodes),
        attributes(file: $crate::FileRef) -> $crate::Attributes); };
    ($around:ident set_attributes $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (inodes),
        set_attributes(caller: &$crate::Caller, file: $crate::FileRef,
            set: &$crate::SetAttributes) -> $crate::Attributes); };
    ($around:ident read_link $word:expr) => { $crate::forward_one!(@fn $around $word, (inode, None), (inodes),
        read_link(inode: $crate::InodeId) -> Vec<u8>); };

    ($around:ident read $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (data),
        read(file: $crate::FileRef, offset: u64, into: &mut [u8]) -> usize); };
    ($around:ident read_with_version $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (data),
        read_with_version(file: $crate::FileRef, offset: u64, into: &mut [u8]) -> $crate::Content); };
    ($around:ident write $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (data),
        write(caller: &$crate::Caller, file: $crate::FileRef, offset: u64, data: &[u8]) -> usize); };
    ($around:ident write_back $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (data),
        write_back(file: $crate::FileRef, offset: u64, data: &[u8], changed: $crate::Timestamp) -> usize); };
    ($around:ident append $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (data),
        append(caller: &$crate::Caller, file: $crate::FileRef, data: &[u8]) -> usize); };
    ($around:ident allocate $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (data),
        allocate(file: $crate::FileRef, mode: $crate::AllocateMode, offset: u64, length: u64) -> ()); };
    ($around:ident seek $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (data),
        seek(file: $crate::FileRef, offset: u64, target: $crate::SeekTarget) -> u64); };
    ($around:ident copy_range $word:expr) => { $crate::forward_one!(@fn $around $word, (from), (data),
        copy_range(from: $crate::FileRef, from_offset: u64, to: $crate::FileRef, to_offset: u64,
            length: u64) -> u64); };
    ($around:ident sync $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (data),
        sync(file: $crate::FileRef, mode: $crate::SyncMode) -> ()); };
    ($around:ident replace $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (data),
        replace(caller: &$crate::Caller, file: $crate::FileRef,
            content: &dyn $crate::WholeContent) -> $crate::Attributes); };

    ($around:ident open $word:expr) => { $crate::forward_one!(@fn $around $word, (inode, None), (open_files),
        open(caller: &$crate::Caller, inode: $crate::InodeId, mode: $crate::OpenMode) -> $crate::FileId); };
    ($around:ident flush $word:expr) => { $crate::forward_one!(@fn $around $word, (file), (open_files),
        flush(file: $crate::FileRef) -> ()); };

    ($around:ident get_xattr $word:expr) => { $crate::forward_one!(@fn $around $word,
        (inode, None), (xattrs or "extended attributes"),
        get_xattr(caller: &$crate::Caller, inode: $crate::InodeId, name: &[u8]) -> Vec<u8>); };
    ($around:ident set_xattr $word:expr) => { $crate::forward_one!(@fn $around $word,
        (inode, None), (xattrs or "extended attributes"),
        set_xattr(caller: &$crate::Caller, inode: $crate::InodeId, name: &[u8], value: &[u8],
            mode: $crate::XattrMode) -> ()); };
    ($around:ident list_xattrs $word:expr) => { $crate::forward_one!(@fn $around $word,
        (inode, None), (xattrs or "extended attributes"),
        list_xattrs(caller: &$crate::Caller, inode: $crate::InodeId) -> Vec<Vec<u8>>); };
    ($around:ident possible_xattrs $word:expr) => { $crate::forward_one!(@fn $around $word,
        (inode, None), (xattrs or "extended attributes"),
        possible_xattrs(inode: $crate::InodeId) -> Option<Vec<Vec<u8>>>); };
    ($around:ident remove_xattr $word:expr) => { $crate::forward_one!(@fn $around $word,
        (inode, None), (xattrs or "extended attributes"),
        remove_xattr(caller: &$crate::Caller, inode: $crate::InodeId, name: &[u8]) -> ()); };

    ($around:ident by_number $word:expr) => { $crate::forward_one!(@fn $around $word,
        ($crate::InodeId(number), None), (export or "finding an object by its number"),
        by_number(number: u64) -> $crate::Entry); };
    ($around:ident parent_of $word:expr) => { $crate::forward_one!(@fn $around $word,
        (directory, None), (export or "finding an object by its number"),
        parent_of(directory: $crate::InodeId) -> $crate::Entry); };

    (capabilities) => { fn capabilities(&self) -> $crate::Capabilities { self.inner.capabilities() } };
    (root) => { fn root(&self) -> $crate::Result<$crate::Entry> { self.inner.root() } };
    (report_to) => {
        fn report_to(&self, changes: std::sync::Arc<dyn $crate::ChangeSink>) { self.inner.report_to(changes); }
    };
    (ended) => { fn ended(&self) -> Option<$crate::backend::Ended> { self.inner.ended() } };
    (losses) => { fn losses(&self) -> Option<$crate::backend::Losses> { self.inner.losses() } };
    (tenant) => { fn tenant(&self) -> Option<std::sync::Arc<dyn $crate::Tenant>> { self.inner.tenant() } };
    (counters) => { fn counters(&self) -> Vec<(&'static str, u64)> { self.inner.counters() } };
    (forget) => {
        fn forget(&self, inode: $crate::InodeId, references: u64) { self.inner.inodes().forget(inode, references); }
    };
    (give_up) => { fn give_up(&self, file: $crate::FileRef) { self.inner.data().give_up(file); } };
    (os_file) => {
        fn os_file(&self, file: $crate::FileRef) -> Option<std::sync::Arc<std::os::fd::OwnedFd>> {
            self.inner.open_files().os_file(file)
        }
    };

    (family names) => { fn names(&self) -> &dyn $crate::Names { self } };
    (family inodes) => { fn inodes(&self) -> &dyn $crate::Inodes { self } };
    (family data) => { fn data(&self) -> &dyn $crate::Data { self } };
    (family open_files) => { fn open_files(&self) -> &dyn $crate::OpenFiles { self } };
    (family creation) => { $crate::forward_one!(@family creation Creation); };
    (family reservation) => { $crate::forward_one!(@family reservation Reservation); };
    (family xattrs) => { $crate::forward_one!(@family xattrs Xattrs); };
    (family export) => { $crate::forward_one!(@family export Export); };
    (family watching) => { $crate::forward_one!(@family watching Watch); };
    (@family $family:ident $of:ident) => {
        fn $family(&self) -> Option<&dyn $crate::$of> {
            self.inner.$family().map(|_| self as &dyn $crate::$of)
        }
    };
}
