//! Floor: hostile backend, through the kernel. Reads that overtake a write.
//!
//! Bug: a program that read the end of a file got zeros in place of the bytes that another program appended, and from a
//! store of its own for as long as the kernel kept the page. The kernel copies the bytes of a write into its page, and
//! then sends them. If it drops the page meanwhile, a later READ brings the page back. Another thread of the daemon
//! answered that READ first: short, so the kernel filled the page up with zeros, or with the old bytes of the page.
//!
//! Needs root and `/dev/fuse`; is skipped where they lack.

use super::mount::{Mounted, eventually};
use super::rings::switched;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_fuse::{MountOptions, Transport};
use uvfs_tests::hostile;
use uvfs_vfs::{Authority, Opens, PageCaching, PagePolicy, SetAttributes, VfsConfig, Waits};

fn mounted(pages: PagePolicy, authority: Authority, transport: Transport) -> Option<Mounted> {
    let hostile = hostile().claiming(|can| {
        can.waits = Waits::Sometimes;
        can.opens = Opens::Tracked;
        can.authority = authority;
        can.caching = match pages {
            PagePolicy::Off => PageCaching::Store,
            _ => PageCaching::Core,
        };
    });
    let options = MountOptions { readers: Some(2), transport, ..MountOptions::default() };
    Mounted::exactly(hostile, VfsConfig { pages, ..VfsConfig::default() }, options)
}

/// Writes `text` at `offset` of a file of 4,200 bytes that the kernel has in its pages. While the store holds the write,
/// `lose` makes the kernel drop its pages, and a reader brings them back from before the write.
fn overtakes(mounted: &Mounted, offset: u64, text: &[u8], lose: impl FnOnce(&Mounted, &str)) {
    let name = &format!("{offset}-{}", text.len());
    let mut content = vec![b'A'; 4200];
    mounted.root.write_file(name, &content).unwrap();
    let reader = File::open(mounted.path(name)).unwrap();
    let read = || {
        let mut bytes = vec![0; 12_000];
        let length = reader.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(length);
        bytes
    };
    let mut writer = OpenOptions::new().read(true).write(true).open(mounted.path(name)).unwrap();
    assert!(read() == content);
    let gate = Gate::new();
    let hold = Fault::Hold(Moment::Before, gate.clone());
    mounted.hostile.follow(Plan::new().when(On::call(Call::Write), hold));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::io::Seek::seek(&mut writer, std::io::SeekFrom::Start(offset)).unwrap();
            writer.write_all(text).unwrap();
        });
        gate.wait_for(1);
        let before = reads(mounted);
        lose(mounted, name);
        let brings_back = || {
            reader.read_exact_at(&mut [0; 1], offset & !4095).unwrap();
            reads(mounted) > before
        };
        assert!(eventually(brings_back), "the kernel keeps its pages");
        gate.open();
    });
    content.resize(content.len().max(offset as usize + text.len()), 0);
    content[offset as usize..][..text.len()].copy_from_slice(text);
    let seen = read();
    let wrong = seen.iter().zip(&content).position(|(seen, right)| seen != right);
    assert!(seen == content, "{offset}: {} bytes, wrong from {wrong:?}", seen.len());
}

/// A program changes the file through another frontend: the kernel drops the pages from the first one on, up to one that
/// the write has locked.
fn by_news(mounted: &Mounted, name: &str) {
    let set = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
    mounted.root.set_attributes(name, &set).unwrap();
}

fn reads(mounted: &Mounted) -> u64 {
    let requests = mounted.mount().statistics().requests;
    requests.iter().find(|one| one.request == "read").map_or(0, |one| one.count)
}

fn all_kinds(transport: Transport) {
    for pages in [PagePolicy::Off, PagePolicy::WriteThrough] {
        for authority in [Authority::Sole, Authority::Shared] {
            let Some(mounted) = mounted(pages, authority, transport) else { return };
            // At the end of the file; over its end; within a page; whole pages and a bit.
            overtakes(&mounted, 4200, &[b'B'; 100], by_news);
            overtakes(&mounted, 4150, &[b'C'; 5000], by_news);
            overtakes(&mounted, 50, &[b'D'; 10], by_news);
            overtakes(&mounted, 0, &[b'E'; 4100], by_news);
            mounted.end();
        }
    }
}

#[test]
fn a_read_that_overtakes_a_write_leaves_no_old_page() {
    all_kinds(Transport::Device);
}

#[test]
fn a_read_that_overtakes_a_write_by_a_ring_leaves_no_old_page() {
    let Some(_on) = switched(true) else { return };
    all_kinds(Transport::Ring);
}

/// Each program that opened a file of a store that others change made the kernel drop the pages that a writer had just
/// filled.
#[test]
fn an_open_leaves_the_pages_of_a_writer() {
    let Some(mounted) = mounted(PagePolicy::Off, Authority::Shared, Transport::Device) else {
        return;
    };
    let reads = || reads(&mounted);
    let read = || {
        let file = File::open(mounted.path("f")).unwrap();
        assert_eq!(file.read_at(&mut [0; 100], 0).unwrap(), 4);
    };
    mounted.root.write_file("f", "abcd").unwrap();
    read();
    let before = reads();
    read();
    assert_eq!(reads(), before + 1, "others may have changed it");
    let writer = OpenOptions::new().write(true).open(mounted.path("f")).unwrap();
    read();
    let before = reads();
    read();
    assert_eq!(reads(), before);
    drop(writer);
    assert!(eventually(|| mounted.mount().statistics().files == 0));
    read();
    assert_eq!(reads(), before + 1, "nothing is written here any more");
    mounted.end();
}
