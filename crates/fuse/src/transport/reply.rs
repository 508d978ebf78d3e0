//! Answers as messages to the kernel.
//!
//! # Boundary
//! Encodes and decides nothing. [`crate::dispatch`] knows which answers a request may have.
//!
//! # Concurrency
//! A reply belongs to one thread at a time. It is sent once, or, if its handler drops it, answers EIO.
//!
//! # Why
//! The kernel tells replies apart by the request that they name, so one type serves all of them; only a listing is
//! filled before it is sent. Weakness: an answer that does not fit its request is seen by the kernel alone, which refuses
//! it with EINVAL; the request then gets EIO.

use super::convert::{attr, attr_out, entry, entry_out, found, kind_bits, statfs, statx_out};
use crate::server::{Answer, Listed, Opened, Reply, Through};
use std::io::{self, IoSlice};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use uvfs_fuse_device::{Device, ring};
use uvfs_fuse_protocol::{Listing, OpenFlags, abi};
use uvfs_vfs::{Error, Result};
use zerocopy::IntoBytes;

/// The receiver of one answer.
pub(super) struct KernelReply {
    way: Way,
    device: Arc<Device>,
    listing: Option<Entries>,
}

/// How an answer reaches the kernel.
pub(super) enum Way {
    /// Not at all: the request has no answer, or has it already.
    None,
    /// By `/dev/fuse`, to the request of this number.
    Device(u64),
    /// By its slot of a ring.
    Ring(ring::Answer),
}

/// Entries of a directory, as they lie in the message.
struct Entries {
    bytes: Vec<u8>,
    used: usize,
    with_attributes: bool,
}

/// A host file that the kernel has taken, until this is dropped.
#[derive(Debug)]
pub(super) struct Backing {
    number: u32,
    device: Arc<Device>,
}

impl Drop for Backing {
    fn drop(&mut self) {
        if let Err(error) = self.device.release_backing(self.number) {
            log::warn!("the kernel keeps an unused host file: {error}");
        }
    }
}

impl KernelReply {
    /// `listing`: the room for entries, and whether they have attributes.
    pub(super) fn new(way: Way, device: &Arc<Device>, listing: Option<(usize, bool)>) -> Self {
        let listing = listing.map(|(room, with_attributes)| {
            let room = match &way {
                Way::Ring(answer) => room.min(answer.room()),
                _ => room,
            };
            Entries { bytes: vec![0; room], used: 0, with_attributes }
        });
        Self { way, device: device.clone(), listing }
    }

    /// Sends an error, an errno above 0.
    pub(super) fn error(mut self, errno: i32) {
        self.transmit(errno, &[]);
    }

    /// Sends the concatenation of `parts`, of which there are two at most.
    pub(super) fn done(mut self, parts: &[&[u8]]) {
        self.transmit(0, parts);
    }

    fn transmit(&mut self, errno: i32, parts: &[&[u8]]) {
        match std::mem::replace(&mut self.way, Way::None) {
            Way::None => {}
            Way::Ring(answer) => answer.send(errno, parts),
            Way::Device(unique) => {
                let sent = send(&self.device, unique, errno, parts);
                match sent.as_ref().map_err(io::Error::raw_os_error) {
                    // The kernel no longer waits for it.
                    Ok(()) | Err(Some(libc::ENOENT)) => {}
                    Err(Some(libc::EINVAL)) if errno == 0 => {
                        log::error!("an answer that does not fit its request; it fails with EIO");
                        let _ = send(&self.device, unique, libc::EIO, &[]);
                    }
                    // The mount ends.
                    Err(Some(libc::ENODEV | libc::ECONNABORTED)) => {}
                    Err(_) => log::error!("cannot answer a request: {sent:?}"),
                }
            }
        }
    }
}

fn send(device: &Device, unique: u64, errno: i32, parts: &[&[u8]]) -> io::Result<()> {
    let length = parts.iter().map(|part| part.len()).sum();
    let header = match errno {
        0 => abi::OutHeader::ok(unique, length),
        _ => abi::OutHeader::error(unique, errno),
    };
    let none = IoSlice::new(&[]);
    let mut slices = [IoSlice::new(header.as_bytes()), none, none];
    let count = parts.len().min(2);
    for (slice, part) in slices[1..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    device.send(&slices[..1 + count])
}

impl Drop for KernelReply {
    /// A handler panicked, or forgot it: the caller must not wait for ever.
    fn drop(&mut self) {
        self.transmit(libc::EIO, &[]);
    }
}

impl Reply for KernelReply {
    type Backing = Backing;

    fn register(&self, host: &OwnedFd) -> io::Result<Backing> {
        let number = self.device.register_backing(host)?;
        Ok(Backing { number, device: self.device.clone() })
    }

    fn add(&mut self, listed: &Listed<'_>) -> bool {
        self.listing.as_mut().is_some_and(|listing| listing.add(listed))
    }

    fn send(mut self, answer: Result<Answer<'_, Backing>>) {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => return self.error(error.errno()),
        };
        match answer {
            Answer::NeedNotAsk => self.error(libc::ENOSYS),
            Answer::Done => self.done(&[]),
            Answer::Entry(entry) => match entry_out(&entry) {
                Some(entry) => self.done(&[entry.as_bytes()]),
                None => self.error(Error::NotFound.errno()),
            },
            Answer::Attrs(attrs) => self.done(&[attr_out(&attrs).as_bytes()]),
            Answer::AttrsAndBirth(attrs) => self.done(&[statx_out(&attrs).as_bytes()]),
            Answer::Bytes(bytes) => self.done(&[bytes]),
            Answer::Size(size) => {
                self.done(&[abi::GetxattrOut { size, padding: 0 }.as_bytes()]);
            }
            Answer::Opened(opened) => self.done(&[open_out(&opened).as_bytes()]),
            Answer::Created { attrs, entry_valid, generation, opened } => {
                let entry = found(&attrs, entry_valid, generation);
                self.done(&[entry.as_bytes(), open_out(&opened).as_bytes()]);
            }
            Answer::Written(count) => {
                let size = u32::try_from(count).unwrap_or(u32::MAX);
                self.done(&[abi::WriteOut { size, padding: 0 }.as_bytes()]);
            }
            Answer::Offset(offset) => self.done(&[abi::LseekOut { offset }.as_bytes()]),
            Answer::Totals(totals) => self.done(&[statfs(&totals).as_bytes()]),
            Answer::Listed => {
                let listing = self.listing.take();
                let bytes =
                    listing.as_ref().map_or(&[][..], |listing| &listing.bytes[..listing.used]);
                self.done(&[bytes]);
            }
        }
    }
}

fn open_out(opened: &Opened<Backing>) -> abi::OpenOut {
    let none = OpenFlags::empty();
    let (flags, backing) = match &opened.through {
        Through::Pages { keep } => (if *keep { OpenFlags::KEEP_CACHE } else { none }, None),
        Through::Listing { keep: true } => (OpenFlags::CACHE_DIR | OpenFlags::KEEP_CACHE, None),
        Through::Listing { keep: false } => (none, None),
        Through::Requests { keep: true } => (OpenFlags::DIRECT_IO | OpenFlags::KEEP_CACHE, None),
        Through::Requests { keep: false } => (OpenFlags::DIRECT_IO, None),
        Through::Host(backing) => (OpenFlags::PASSTHROUGH, Some(backing)),
        // Direct I/O prevails over passthrough, but in mmap(2).
        Through::HostByRequests(backing) => {
            (OpenFlags::PASSTHROUGH | OpenFlags::DIRECT_IO, Some(backing))
        }
    };
    let backing_id = backing.map_or(0, |backing| backing.number as i32);
    abi::OpenOut { fh: opened.handle, open_flags: flags.bits(), backing_id }
}

impl Entries {
    fn add(&mut self, listed: &Listed<'_>) -> bool {
        let Listed { number, next, name, .. } = *listed;
        let kind = kind_bits(listed.attributes.kind) >> 12;
        let mut rest = Listing::new(&mut self.bytes[self.used..]);
        let added = match self.with_attributes {
            false => rest.push(number, next, kind, name),
            true => {
                let attr = attr(listed.attributes, number);
                let node = (listed.node, listed.generation);
                rest.push_plus(&entry(node, listed.valid, attr), next, kind, name)
            }
        };
        self.used += rest.len();
        added
    }
}
