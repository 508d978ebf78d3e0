//! Requests of the kernel: one table of operations, which parses and builds.

use crate::abi::{
    AccessIn, BatchForgetIn, BmapIn, CopyFileRangeIn, CreateIn, CuseInitIn, FallocateIn, FlushIn,
    ForgetIn, ForgetOne, FsyncIn, GetattrIn, GetxattrIn, InHeader, InitIn, InterruptIn, IoctlIn,
    LinkIn, LkIn, LseekIn, MkdirIn, MknodIn, NotifyRetrieveIn, OpenIn, PollIn, ReadIn, ReleaseIn,
    RemovemappingIn, RemovemappingOne, Rename2In, RenameIn, SetattrIn, SetupmappingIn, SetxattrIn,
    StatxIn, SyncfsIn, WriteIn,
};
use crate::bytes::{Aligned, Cursor, Packed};
use crate::extensions::Extensions;
use crate::flags::{InitFlags, SetxattrFlags};
use crate::malformed::{Cause, Malformed};
use crate::opcode::Opcode;
use zerocopy::{FromBytes, IntoBytes};

/// A request, which borrows the message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request<'a> {
    /// Number of the request, node, caller.
    pub header: &'a InHeader,
    /// The operation, with its arguments.
    pub operation: Operation<'a>,
    /// Extensions that INIT negotiated.
    pub extensions: Extensions<'a>,
}

/// The form of requests, which INIT negotiates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dialect {
    /// SETXATTR has the long form.
    pub setxattr_ext: bool,
}

impl<'a> Request<'a> {
    /// Parses a whole message, as one read of `/dev/fuse` returns it; `message` begins at a multiple of 8.
    ///
    /// The form is that without [`InitFlags::SETXATTR_EXT`]; [`Dialect::parse`] knows both.
    ///
    /// # Errors
    /// The rule that the message breaks. A number that this version does not know breaks none: [`Operation::Unknown`].
    pub fn parse(message: &'a [u8]) -> Result<Self, Malformed> {
        Dialect::default().parse(message)
    }

    /// Parses a request of io_uring: `argument` is the area that begins with the fixed structure of the operation and may be
    /// longer, `payload` is the rest of the request.
    ///
    /// The form is that without [`InitFlags::SETXATTR_EXT`]; [`Dialect::from_parts`] knows both.
    ///
    /// # Errors
    /// The rule that the message breaks.
    pub fn from_parts(
        header: &'a InHeader,
        argument: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Self, Malformed> {
        Dialect::default().from_parts(header, argument, payload)
    }

    /// The message as the kernel sends it, in the form of a [`Dialect`]; the lengths in the header are made right.
    #[must_use]
    pub fn encode(&self, dialect: Dialect) -> Aligned {
        self.operation.message(self.header, self.extensions.as_bytes(), dialect)
    }
}

impl Dialect {
    /// The form that these accepted flags select.
    #[must_use]
    pub const fn of(accepted: InitFlags) -> Self {
        Self { setxattr_ext: accepted.contains(InitFlags::SETXATTR_EXT) }
    }

    /// Bytes of the fixed structure of an operation.
    #[must_use]
    pub const fn argument_size(self, opcode: Opcode) -> usize {
        match opcode {
            Opcode::SetXattr if !self.setxattr_ext => 8,
            _ => opcode.argument_size(),
        }
    }

    /// [`Request::parse`] in this form.
    ///
    /// # Errors
    /// The rule that the message breaks.
    pub fn parse(self, message: &[u8]) -> Result<Request<'_>, Malformed> {
        let mut cursor = Cursor(message);
        let header: &InHeader = cursor.structure().map_err(headless)?;
        if header.len as usize != message.len() {
            return Err(malformed(header, Cause::Length));
        }
        let size = match Opcode::try_from(header.opcode) {
            // Kernels before 7.36 send less; a later one may send more.
            Ok(Opcode::Init) => cursor.0.len(),
            Ok(opcode) => self.argument_size(opcode),
            Err(_) => 0,
        };
        let argument = cursor.bytes(size).map_err(|cause| malformed(header, cause))?;
        self.from_parts(header, argument, cursor.0)
    }

    /// [`Request::from_parts`] in this form.
    ///
    /// # Errors
    /// The rule that the message breaks.
    pub fn from_parts<'a>(
        self,
        header: &'a InHeader,
        argument: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Request<'a>, Malformed> {
        self.parts(header, argument, payload).map_err(|cause| malformed(header, cause))
    }

    fn parts<'a>(
        self,
        header: &'a InHeader,
        argument: &'a [u8],
        payload: &'a [u8],
    ) -> Result<Request<'a>, Cause> {
        let Ok(opcode) = Opcode::try_from(header.opcode) else {
            let (operation, extensions) =
                (Operation::Unknown(header.opcode), Extensions::default());
            return Ok(Request { header, operation, extensions });
        };
        let end = payload.len().checked_sub(header.extensions_size()).ok_or(Cause::Extensions)?;
        let (payload, extensions) = payload.split_at(end);
        let extensions = Extensions::parse(extensions)?;
        let mut payload = Cursor(payload);
        let operation = Operation::parse(opcode, Cursor(argument), &mut payload, self)?;
        payload.end()?;
        Ok(Request { header, operation, extensions })
    }
}

const fn malformed(header: &InHeader, cause: Cause) -> Malformed {
    Malformed { unique: Some(header.unique), opcode: header.opcode, cause }
}

const fn headless(cause: Cause) -> Malformed {
    Malformed { unique: None, opcode: 0, cause }
}

/// The operations by their form; `special` ones are parsed and built below.
macro_rules! operations {
    (
        bare { $($bare:ident)* }
        named { $($named:ident)* }
        fixed { $($fixed:ident($structure:ident))* }
        fixed_and_name { $($with_name:ident($name_structure:ident))* }
        fixed_and_data { $($with_data:ident($data_structure:ident, $size:ident))* }
        special { $($special:tt)* }
    ) => {
        /// An operation with its arguments. [`Opcode`] has the meaning of each.
        ///
        /// Names are without their zero, and may have any byte but zero: whether a name is empty or has a slash is for
        /// the caller to judge.
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        pub enum Operation<'a> {
            $(#[doc = concat!("[`Opcode::", stringify!($bare), "`]")] $bare,)*
            $(
                #[doc = concat!("[`Opcode::", stringify!($named), "`]")]
                $named {
                    /// The name, without its zero.
                    name: &'a [u8],
                },
            )*
            $(
                #[doc = concat!("[`Opcode::", stringify!($fixed), "`]")]
                $fixed(&'a $structure),
            )*
            $(
                #[doc = concat!("[`Opcode::", stringify!($with_name), "`]")]
                $with_name {
                    /// The fixed structure.
                    argument: &'a $name_structure,
                    /// The name, without its zero.
                    name: &'a [u8],
                },
            )*
            $(
                #[doc = concat!("[`Opcode::", stringify!($with_data), "`]")]
                $with_data {
                    /// The fixed structure.
                    argument: &'a $data_structure,
                    #[doc = concat!("Bytes of the length `", stringify!($size), "`.")]
                    data: &'a [u8],
                },
            )*
            $($special)*
        }

        impl<'a> Operation<'a> {
            fn parse(
                opcode: Opcode,
                mut argument: Cursor<'a>,
                payload: &mut Cursor<'a>,
                dialect: Dialect,
            ) -> Result<Self, Cause> {
                Ok(match opcode {
                    $(Opcode::$bare => Self::$bare,)*
                    $(Opcode::$named => Self::$named { name: payload.name()? },)*
                    $(Opcode::$fixed => Self::$fixed(argument.structure()?),)*
                    $(Opcode::$with_name => {
                        Self::$with_name { argument: argument.structure()?, name: payload.name()? }
                    })*
                    $(Opcode::$with_data => {
                        let argument: &$data_structure = argument.structure()?;
                        Self::$with_data { argument, data: payload.data(argument.$size)? }
                    })*
                    other => return Self::parse_special(other, argument, payload, dialect),
                })
            }

            /// The number of the operation in the header.
            #[must_use]
            pub const fn number(&self) -> u32 {
                (match self {
                    $(Self::$bare => Opcode::$bare,)*
                    $(Self::$named { .. } => Opcode::$named,)*
                    $(Self::$fixed(_) => Opcode::$fixed,)*
                    $(Self::$with_name { .. } => Opcode::$with_name,)*
                    $(Self::$with_data { .. } => Opcode::$with_data,)*
                    Self::BatchForget(_) => Opcode::BatchForget,
                    Self::Init(_) => Opcode::Init,
                    Self::RemoveMapping(_) => Opcode::RemoveMapping,
                    Self::Rename { flags: 0, .. } => Opcode::Rename,
                    Self::Rename { .. } => Opcode::Rename2,
                    Self::SetXattr { .. } => Opcode::SetXattr,
                    Self::SymLink { .. } => Opcode::SymLink,
                    Self::Unknown(number) => return *number,
                }) as u32
            }

            /// The parts of the message behind the header.
            fn write(&self, into: &mut Vec<u8>, dialect: Dialect) {
                match *self {
                    $(Self::$bare => {})*
                    $(Self::$named { name } => push_name(into, name),)*
                    $(Self::$fixed(argument) => into.extend(argument.as_bytes()),)*
                    $(Self::$with_name { argument, name } => {
                        into.extend(argument.as_bytes());
                        push_name(into, name);
                    })*
                    $(Self::$with_data { argument, data } => {
                        into.extend(argument.as_bytes());
                        into.extend(data);
                    })*
                    _ => self.write_special(into, dialect),
                }
            }
        }
    };
}

operations! {
    bare { ReadLink StatFs Destroy }
    named { Lookup Unlink RmDir RemoveXattr }
    fixed {
        Forget(ForgetIn) GetAttr(GetattrIn) SetAttr(SetattrIn) Open(OpenIn) Read(ReadIn)
        Release(ReleaseIn) Fsync(FsyncIn) ListXattr(GetxattrIn) Flush(FlushIn) OpenDir(OpenIn)
        ReadDir(ReadIn) ReleaseDir(ReleaseIn) FsyncDir(FsyncIn) GetLk(LkIn) SetLk(LkIn) SetLkW(LkIn)
        Access(AccessIn) Interrupt(InterruptIn) Bmap(BmapIn) Poll(PollIn) Fallocate(FallocateIn)
        ReadDirPlus(ReadIn) Lseek(LseekIn) CopyFileRange(CopyFileRangeIn)
        CopyFileRange64(CopyFileRangeIn) SetupMapping(SetupmappingIn) SyncFs(SyncfsIn) Statx(StatxIn)
        CuseInit(CuseInitIn)
    }
    fixed_and_name {
        MkNod(MknodIn) MkDir(MkdirIn) Link(LinkIn) GetXattr(GetxattrIn) Create(CreateIn)
        TmpFile(CreateIn)
    }
    fixed_and_data {
        Write(WriteIn, size) Ioctl(IoctlIn, in_size) NotifyReply(NotifyRetrieveIn, size)
    }
    special {
        /// [`Opcode::BatchForget`]
        BatchForget(&'a [ForgetOne]),
        /// [`Opcode::Init`]; fields that an older kernel leaves out are 0.
        Init(InitIn),
        /// [`Opcode::RemoveMapping`]
        RemoveMapping(Packed<'a, RemovemappingOne>),
        /// [`Opcode::Rename`] and [`Opcode::Rename2`]
        Rename {
            /// Node of the directory that gets the name.
            new_parent: u64,
            /// `RENAME_NOREPLACE` and others; 0 with [`Opcode::Rename`].
            flags: u32,
            /// The name in the directory of the header.
            name: &'a [u8],
            /// The name in the other directory.
            new_name: &'a [u8],
        },
        /// [`Opcode::SetXattr`]
        SetXattr {
            /// The attribute, without its zero.
            name: &'a [u8],
            /// Value of the attribute, of the length that the message states.
            value: &'a [u8],
            /// `XATTR_CREATE` or `XATTR_REPLACE`.
            flags: u32,
            /// Empty in the short form.
            setxattr_flags: SetxattrFlags,
        },
        /// [`Opcode::SymLink`]
        SymLink {
            /// The name, without its zero.
            name: &'a [u8],
            /// The target, without its zero.
            target: &'a [u8],
        },
        /// An operation that this version does not know, by its number: answer ENOSYS.
        Unknown(u32),
    }
}

impl<'a> Operation<'a> {
    fn parse_special(
        opcode: Opcode,
        mut argument: Cursor<'a>,
        payload: &mut Cursor<'a>,
        dialect: Dialect,
    ) -> Result<Self, Cause> {
        Ok(match opcode {
            Opcode::BatchForget => {
                let head: &BatchForgetIn = argument.structure()?;
                Self::BatchForget(payload.array(head.count)?)
            }
            // Every kernel sends both versions.
            Opcode::Init if argument.0.len() < 8 => return Err(Cause::Short),
            Opcode::Init => Self::Init(argument.padded()),
            Opcode::RemoveMapping => {
                let head: &RemovemappingIn = argument.structure()?;
                Self::RemoveMapping(payload.packed(head.count)?)
            }
            Opcode::Rename => {
                let head: &RenameIn = argument.structure()?;
                Self::rename(head.newdir, 0, payload)?
            }
            Opcode::Rename2 => {
                let head: &Rename2In = argument.structure()?;
                Self::rename(head.newdir, head.flags, payload)?
            }
            Opcode::SetXattr => {
                let mut head = Cursor(argument.bytes(dialect.argument_size(opcode))?);
                let head: SetxattrIn = head.padded();
                Self::SetXattr {
                    name: payload.name()?,
                    value: payload.data(head.size)?,
                    flags: head.flags,
                    setxattr_flags: head.setxattr_flags(),
                }
            }
            Opcode::SymLink => Self::SymLink { name: payload.name()?, target: payload.name()? },
            other => Self::Unknown(other as u32),
        })
    }

    fn rename(new_parent: u64, flags: u32, names: &mut Cursor<'a>) -> Result<Self, Cause> {
        Ok(Self::Rename { new_parent, flags, name: names.name()?, new_name: names.name()? })
    }

    fn write_special(&self, into: &mut Vec<u8>, dialect: Dialect) {
        match *self {
            Self::BatchForget(nodes) => {
                let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
                into.extend(BatchForgetIn { count, dummy: 0 }.as_bytes());
                into.extend(nodes.as_bytes());
            }
            Self::Init(init) => into.extend(init.as_bytes()),
            Self::RemoveMapping(ranges) => {
                let count = u32::try_from(ranges.len()).unwrap_or(u32::MAX);
                into.extend(RemovemappingIn { count }.as_bytes());
                into.extend(ranges.as_bytes());
            }
            Self::Rename { new_parent: newdir, flags, name, new_name } => {
                if flags == 0 {
                    into.extend(RenameIn { newdir }.as_bytes());
                } else {
                    into.extend(Rename2In { newdir, flags, padding: 0 }.as_bytes());
                }
                push_name(into, name);
                push_name(into, new_name);
            }
            Self::SetXattr { name, value, flags, setxattr_flags } => {
                let size = u32::try_from(value.len()).unwrap_or(u32::MAX);
                let setxattr_flags = setxattr_flags.bits();
                let head = SetxattrIn { size, flags, setxattr_flags, padding: 0 };
                into.extend(&head.as_bytes()[..dialect.argument_size(Opcode::SetXattr)]);
                push_name(into, name);
                into.extend(value);
            }
            Self::SymLink { name, target } => {
                push_name(into, name);
                push_name(into, target);
            }
            _ => {}
        }
    }

    /// The message as the kernel sends it, without extensions and in the form without
    /// [`InitFlags::SETXATTR_EXT`]; length and operation in the header are made right.
    #[must_use]
    pub fn encode(&self, header: &InHeader) -> Aligned {
        self.message(header, &[], Dialect::default())
    }

    fn message(&self, header: &InHeader, extensions: &[u8], dialect: Dialect) -> Aligned {
        let mut bytes = header.as_bytes().to_vec();
        self.write(&mut bytes, dialect);
        bytes.extend(extensions);
        let mut message = Aligned::from(&bytes[..]);
        if let Ok((header, _)) = InHeader::mut_from_prefix(&mut message) {
            header.len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            header.opcode = self.number();
            header.total_extlen = u16::try_from(extensions.len() / 8).unwrap_or(u16::MAX);
        }
        message
    }
}

fn push_name(into: &mut Vec<u8>, name: &[u8]) {
    into.extend(name);
    into.push(0);
}
