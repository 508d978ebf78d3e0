//! The running kernel against the codec: a file system that needs the codec alone, and calls for which the kernel sends
//! forty operations.
//!
//! With `UVFS_FUSE_RECORD=FOLDER`, the first message of each operation is written there: the seeds of the fuzz target.

use rustix::fs::{self, AtFlags, CWD, Mode, OFlags, SeekFrom, XattrFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use uvfs_fuse_protocol::abi::{self, Attr, EntryOut, InitOut};
use uvfs_fuse_protocol::reply::{Entries, EntriesPlus};
use uvfs_fuse_protocol::{
    Aligned, Answer, Dialect, InitFlags, InvalEntryFlags, Listing, Notice, Opcode, Operation,
    Reply, Request,
};
use zerocopy::IntoBytes;

const CONTENT: &[u8] = b"content of every file";
/// Group of the root: creations carry it, if the caller is in it.
const GROUP: u32 = 4242;

/// Names of one flat directory, whatever directory is asked.
struct Server {
    dialect: Dialect,
    names: BTreeMap<Vec<u8>, u64>,
    modes: BTreeMap<u64, u32>,
    /// The first message of each operation.
    seen: BTreeMap<u32, Vec<u8>>,
    groups: Vec<u32>,
    /// Minor version of the kernel.
    minor: u32,
}

impl Server {
    fn new() -> Self {
        let modes = BTreeMap::from([(abi::ROOT_ID, 0o040_755)]);
        let (dialect, names, seen) = (Dialect::default(), BTreeMap::new(), BTreeMap::new());
        Self { dialect, names, modes, seen, groups: Vec::new(), minor: 0 }
    }

    /// Serves until the mount ends.
    fn serve(mut self, mut device: File) -> Self {
        let mut buffer = Aligned::zeroed(1 << 20);
        loop {
            let len = match device.read(&mut buffer) {
                Ok(len) => len,
                Err(error) if error.raw_os_error() == Some(Errno::NODEV.raw_os_error()) => {
                    return self;
                }
                Err(error) => panic!("{error}"),
            };
            let message = Aligned::from(&buffer[..len]);
            let request = self.dialect.parse(&message).expect("a message of the kernel");
            self.seen.entry(request.header.opcode).or_insert_with(|| message.to_vec());
            if !matches!(request.operation, Operation::Init(_)) {
                assert_eq!(request.encode(self.dialect), message, "{request:?}");
            }
            self.groups.extend(request.extensions.groups());
            if let Some(reply) = self.answer(&request) {
                let written = device.write(&reply);
                assert_eq!(written.expect("a reply that the kernel accepts"), reply.len());
            }
        }
    }

    fn attr(&self, nodeid: u64) -> Attr {
        let mode = self.modes[&nodeid];
        let size = CONTENT.len() as u64;
        Attr { ino: nodeid, mode, size, nlink: 1, gid: GROUP, blksize: 4096, ..Default::default() }
    }

    fn entry(&self, nodeid: u64) -> EntryOut {
        EntryOut { nodeid, entry_valid: 1, attr: self.attr(nodeid), ..Default::default() }
    }

    fn make(&mut self, name: &[u8], mode: u32) -> EntryOut {
        let nodeid = self.modes.len() as u64 + 1;
        self.modes.insert(nodeid, mode);
        self.names.insert(name.to_vec(), nodeid);
        self.entry(nodeid)
    }

    fn answer(&mut self, request: &Request<'_>) -> Option<Aligned> {
        use Operation as P;
        let nodeid = request.header.nodeid;
        let answer = |answer| Some(Reply { unique: request.header.unique, answer }.encode());
        let error = |errno: Errno| answer(Answer::Error(errno.raw_os_error()));
        let open = abi::OpenOut { fh: 1, ..Default::default() };
        match request.operation {
            P::Init(init) => {
                // Flags that add to messages or send more operations.
                let wanted = InitFlags::SETXATTR_EXT
                    | InitFlags::POSIX_LOCKS
                    | InitFlags::FLOCK_LOCKS
                    | InitFlags::DO_READDIRPLUS
                    | InitFlags::READDIRPLUS_AUTO
                    | InitFlags::SECURITY_CTX
                    | InitFlags::CREATE_SUPP_GROUP
                    | InitFlags::HAS_RESEND
                    | InitFlags::HAS_EXPIRE_ONLY;
                let accepted = wanted & init.offered();
                self.dialect = Dialect::of(accepted);
                self.minor = init.minor;
                let (major, minor) = (abi::VERSION, init.minor.min(abi::MINOR_VERSION));
                let out = InitOut { major, minor, max_write: 65536, ..Default::default() };
                answer(Answer::Init(out.with_flags(accepted)))
            }
            P::Forget(_) | P::BatchForget(_) | P::Interrupt(_) | P::NotifyReply { .. } => None,
            P::Lookup { name } => match self.names.get(name) {
                Some(&nodeid) => answer(Answer::Entry(&self.entry(nodeid))),
                None => error(Errno::NOENT),
            },
            P::MkDir { argument, name } => {
                answer(Answer::Entry(&self.make(name, 0o040_000 | argument.mode)))
            }
            P::MkNod { argument, name } => answer(Answer::Entry(&self.make(name, argument.mode))),
            P::SymLink { name, .. } => answer(Answer::Entry(&self.make(name, 0o120_777))),
            P::Link { argument, name } => {
                self.names.insert(name.to_vec(), argument.oldnodeid);
                answer(Answer::Entry(&self.entry(argument.oldnodeid)))
            }
            P::Create { argument, name } => {
                answer(Answer::Create(&self.make(name, argument.mode), &open))
            }
            P::TmpFile { argument, name } => {
                // The kernel's word for no name, which must not stand in a listing.
                assert_eq!(name, b"/");
                let entry = self.make(name, argument.mode);
                self.names.remove(name);
                answer(Answer::Create(&entry, &open))
            }
            P::Unlink { name } | P::RmDir { name } => {
                self.names.remove(name);
                answer(Answer::Empty)
            }
            P::Rename { name, new_name, .. } => {
                let nodeid = self.names.remove(name).expect("a name");
                self.names.insert(new_name.to_vec(), nodeid);
                answer(Answer::Empty)
            }
            P::ReadLink => answer(Answer::Data(b"target")),
            P::GetAttr(_) | P::SetAttr(_) => {
                let (attr_valid, attr) = (1, self.attr(nodeid));
                answer(Answer::Attr(&abi::AttrOut { attr_valid, attr, ..Default::default() }))
            }
            P::Statx(_) => {
                let Attr { mode, size, .. } = self.attr(nodeid);
                let stat = abi::Statx {
                    mask: 0xFFF,
                    mode: mode as u16,
                    size,
                    nlink: 1,
                    ..Default::default()
                };
                answer(Answer::Statx(&abi::StatxOut { stat, ..Default::default() }))
            }
            P::Open(_) | P::OpenDir(_) => answer(Answer::Open(&open)),
            P::Read(read) => {
                let from = CONTENT.len().min(read.offset as usize);
                answer(Answer::Data(&CONTENT[from..]))
            }
            P::Write { argument, .. } => {
                answer(Answer::Write(&abi::WriteOut { size: argument.size, padding: 0 }))
            }
            P::CopyFileRange(copy) => {
                answer(Answer::Write(&abi::WriteOut { size: copy.len as u32, padding: 0 }))
            }
            P::CopyFileRange64(copy) => {
                answer(Answer::CopyFileRange(&abi::CopyFileRangeOut { bytes_copied: copy.len }))
            }
            P::ReadDir(read) | P::ReadDirPlus(read) => {
                let plus = matches!(request.operation, P::ReadDirPlus(_));
                let mut buffer = vec![0; read.size as usize];
                let mut listing = Listing::new(&mut buffer);
                for (at, (name, &nodeid)) in
                    self.names.iter().enumerate().skip(read.offset as usize)
                {
                    let (next, kind) = (at as u64 + 1, self.modes[&nodeid] >> 12 & 15);
                    let _ = match plus {
                        true => listing.push_plus(&self.entry(nodeid), next, kind, name),
                        false => listing.push(nodeid, next, kind, name),
                    };
                }
                match plus {
                    true => answer(Answer::EntriesPlus(EntriesPlus(listing.as_bytes()))),
                    false => answer(Answer::Entries(Entries(listing.as_bytes()))),
                }
            }
            P::StatFs => {
                let st =
                    abi::Kstatfs { blocks: 77, bsize: 512, namelen: 255, ..Default::default() };
                answer(Answer::StatFs(&abi::StatfsOut { st }))
            }
            P::GetXattr { argument: abi::GetxattrIn { size, .. }, .. }
            | P::ListXattr(abi::GetxattrIn { size, .. }) => match size {
                0 => answer(Answer::Xattr(abi::GetxattrOut { size: 7, padding: 0 }.as_bytes())),
                _ => answer(Answer::Xattr(b"user.a\0")),
            },
            P::GetLk(lock) => answer(Answer::Lock(&abi::LkOut { lk: lock.lk })),
            P::Ioctl { argument, .. } => {
                let data = vec![0; argument.out_size as usize];
                answer(Answer::Ioctl(&abi::IoctlOut::default(), &data))
            }
            P::Poll(poll) => {
                answer(Answer::Poll(&abi::PollOut { revents: poll.events & 1, padding: 0 }))
            }
            P::Lseek(seek) => answer(Answer::Lseek(&abi::LseekOut { offset: seek.offset })),
            P::Unknown(_) => error(Errno::NOSYS),
            _ => answer(Answer::Empty),
        }
    }
}

/// Calls that make the kernel send every operation of [`SENT`].
fn calls(root: &Path, mut device: File) {
    rustix::thread::set_thread_groups(&[rustix::fs::Gid::from_raw(GROUP)]).unwrap();
    let rw = OFlags::RDWR;
    let mode = Mode::from_raw_mode(0o644);
    let path = |name: &str| root.join(name);
    // Now the kernel has the group of the root.
    fs::stat(root).unwrap();
    assert_eq!(fs::stat(path("absent")).err(), Some(Errno::NOENT));
    let file = fs::open(path("f"), rw | OFlags::CREATE, mode).unwrap();
    rustix::io::write(&file, b"twelve bytes").unwrap();
    fs::fsync(&file).unwrap();
    fs::fallocate(&file, fs::FallocateFlags::empty(), 0, 4096).unwrap();
    fs::flock(&file, fs::FlockOperation::LockExclusive).unwrap();
    fs::fcntl_lock(&file, fs::FlockOperation::NonBlockingLockExclusive).unwrap();
    fs::seek(&file, SeekFrom::Data(3)).unwrap();
    let _ = fs::ioctl_getflags(&file);
    let mut polled = [rustix::event::PollFd::new(&file, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut polled, Some(&rustix::event::Timespec::default())).unwrap();
    drop(file);
    let mut text = Vec::new();
    File::open(path("f")).unwrap().read_to_end(&mut text).unwrap();
    assert_eq!(text, CONTENT);

    fs::mkdir(path("d"), Mode::from_raw_mode(0o755)).unwrap();
    fs::mknodat(CWD, path("p"), fs::FileType::Fifo, mode, 0).unwrap();
    fs::symlink("target", path("l")).unwrap();
    assert_eq!(std::fs::read_link(path("l")).unwrap(), Path::new("target"));
    fs::link(path("f"), path("g")).unwrap();
    fs::rename(path("g"), path("h")).unwrap();
    fs::renameat_with(CWD, path("h"), CWD, path("i"), fs::RenameFlags::NOREPLACE).unwrap();
    let (one, other) =
        (fs::open(path("f"), rw, mode).unwrap(), fs::open(path("i"), rw, mode).unwrap());
    assert_eq!(fs::copy_file_range(&one, None, &other, Some(&mut 100), 5), Ok(5));
    drop(fs::open(root, rw | OFlags::TMPFILE, mode));
    fs::chmod(path("f"), Mode::from_raw_mode(0o600)).unwrap();
    fs::access(path("f"), fs::Access::READ_OK).unwrap();
    let born = fs::StatxFlags::BASIC_STATS | fs::StatxFlags::BTIME;
    fs::statx(CWD, path("f"), AtFlags::empty(), born).unwrap();
    assert_eq!(fs::statfs(root).unwrap().f_blocks, 77);

    let mut value = [0_u8; 64];
    fs::setxattr(path("f"), "user.a", b"value", XattrFlags::empty()).unwrap();
    fs::getxattr(path("f"), "user.a", &mut value[..0]).unwrap();
    assert_eq!(fs::getxattr(path("f"), "user.a", &mut value[..]), Ok(7));
    assert_eq!(fs::listxattr(path("f"), &mut value[..]), Ok(7));
    fs::removexattr(path("f"), "user.a").unwrap();

    let names = || {
        let names = std::fs::read_dir(root).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["d", "f", "i", "l", "p"]);
    assert_eq!(names(), ["d", "f", "i", "l", "p"]);
    File::open(root).unwrap().sync_all().unwrap();

    notices(&mut device, fs::stat(path("f")).unwrap().st_ino);
    fs::unlink(path("i")).unwrap();
    fs::rmdir(path("d")).unwrap();
}

/// The kernel accepts each notice, as far as it knows it.
fn notices(device: &mut File, nodeid: u64) {
    let flags = InvalEntryFlags::EXPIRE_ONLY;
    let known = [
        Notice::Poll { kh: 1 },
        Notice::Store { nodeid, offset: 0, data: CONTENT },
        Notice::Retrieve { notify_unique: 9, nodeid, offset: 0, size: 8 },
        Notice::InvalInode { ino: nodeid, off: 0, len: 0 },
        Notice::InvalEntry { parent: abi::ROOT_ID, name: b"f", flags },
        Notice::Delete { parent: abi::ROOT_ID, child: nodeid, name: b"f" },
    ];
    for notice in known {
        let written = device.write(&notice.to_vec());
        assert_eq!(written.ok(), Some(notice.to_vec().len()), "{notice:?}");
    }
    let later = [Notice::Resend, Notice::IncEpoch, Notice::Prune { nodes: &[nodeid, 99] }];
    for notice in later {
        match device.write(&notice.to_vec()) {
            Ok(len) => assert_eq!(len, notice.to_vec().len()),
            // A kernel before 7.40, 7.44 or 7.45.
            Err(error) => {
                let errno = error.raw_os_error();
                assert_eq!(errno, Some(Errno::INVAL.raw_os_error()), "{notice:?}");
                uvfs_skip::lacking(format_args!("this kernel does not know {notice:?}"));
            }
        }
    }
}

/// The operations that the kernel sends for [`calls`], from Linux 6.6 on.
const SENT: &[Opcode] = {
    use Opcode as O;
    &[
        O::Lookup,
        O::GetAttr,
        O::SetAttr,
        O::ReadLink,
        O::SymLink,
        O::MkNod,
        O::MkDir,
        O::Unlink,
        O::RmDir,
        O::Rename,
        O::Rename2,
        O::Link,
        O::Open,
        O::Read,
        O::Write,
        O::StatFs,
        O::Release,
        O::Fsync,
        O::SetXattr,
        O::GetXattr,
        O::ListXattr,
        O::RemoveXattr,
        O::Flush,
        O::Init,
        O::OpenDir,
        O::ReadDir,
        O::ReadDirPlus,
        O::ReleaseDir,
        O::FsyncDir,
        O::SetLk,
        O::SetLkW,
        O::Access,
        O::Create,
        O::Ioctl,
        O::Poll,
        O::NotifyReply,
        O::Fallocate,
        O::Lseek,
        O::Statx,
        O::TmpFile,
    ]
};

/// Ends the mount at the end of the server: if a message makes the server panic, the calls fail instead of waiting,
/// although the client has a copy of the descriptor.
struct End(PathBuf);

impl Drop for End {
    fn drop(&mut self) {
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH;
        let _ = rustix::mount::unmount(&self.0, flags);
    }
}

#[test]
fn the_running_kernel_and_the_codec_agree() {
    if !uvfs_skip::can_mount() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_owned();
    let device = File::options().read(true).write(true).open("/dev/fuse").unwrap();
    let fd = device.as_raw_fd();
    let data = format!("fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other");
    let data = std::ffi::CString::new(data).unwrap();
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    rustix::mount::mount("codec", &root, "fuse.codec", flags, data.as_c_str()).unwrap();
    let notifier = device.try_clone().unwrap();
    let end = End(root.clone());
    let server = std::thread::spawn(move || {
        let _end = end;
        Server::new().serve(device)
    });
    let client = std::thread::spawn(move || calls(&root, notifier)).join();
    let _ = rustix::mount::unmount(folder.path(), UnmountFlags::DETACH);
    let server = server.join();
    let server = server.expect("every message");
    client.expect("every call");
    if server.minor < 39 {
        return uvfs_skip::lacking("a kernel before 6.6 sends fewer operations");
    }
    for &opcode in SENT {
        assert!(server.seen.contains_key(&(opcode as u32)), "{opcode:?} was not sent");
    }
    assert!(!server.groups.is_empty() && server.groups.iter().all(|&group| group == GROUP));
    if let Some(folder) = std::env::var_os("UVFS_FUSE_RECORD") {
        for (number, message) in &server.seen {
            std::fs::write(Path::new(&folder).join(number.to_string()), message).unwrap();
        }
    }
}
