//! Floor: hostile backend under write-back. What programs outside showed: marks that one `fsync` took from
//! another, dirty pages of files that nobody can read any more.
//!
//! Deterministic: calls of the store fail and are held as planned. Where a moment cannot be observed from outside,
//! a test waits a little before it goes on; a wait that is too short hides a fault and reports none.

use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_tests::paged::{Kind, assert_references_come_back, stored, until};
use uvfs_tests::{Watchdog, errno, root};
use uvfs_vfs::{Caller, OpenMode, OpenOptions, Opens, SyncMode, VfsConfig};

const PAGE: usize = 4096;

/// Nothing is written back unless somebody asks; news of changes is heard.
fn patient() -> VfsConfig {
    let write_back_delay = Duration::from_secs(3600);
    VfsConfig { write_back_delay, watch: true, ..VfsConfig::default() }
}

/// Bug: an fsync that had met failures took the mark "to be written" from every page of the file, also from those
/// that an fsync beside it had just marked; that one then found nothing more to do, saw no new error, and
/// returned 0 with a dirty page.
#[test]
fn a_failed_fsync_leaves_the_marks_of_another_one() {
    let _watchdog = Watchdog::new(Duration::from_secs(60));
    for opens in [Opens::Stateless, Opens::Tracked] {
        let kind = Kind::sole(opens);
        let store = kind.store();
        let (vfs, ledger) = kind.mount(&store, patient());
        let top = root(&vfs);
        let one = top.open("a", OpenOptions::read_write().create(0o644)).unwrap();
        let other = vfs.open(&Caller::root(), one.node(), OpenMode::READ_WRITE).unwrap();
        // No neighbours: each is a run of its own.
        for page in [0, 2, 4, 6] {
            one.write_all_at(page * PAGE as u64, &[7; PAGE]).unwrap();
        }
        let (first, second) = (Gate::new(), Gate::new());
        let write = |nth| On::call(Call::Write).nth(nth);
        let fail = || Fault::Fail(Moment::Before, libc::EIO);
        let plan = Plan::new().when(write(1), fail()).when(write(2), fail());
        let plan = plan.when(write(3), Fault::Hold(Moment::Before, first.clone()));
        store.follow(plan.when(write(4), Fault::Hold(Moment::Before, second.clone())));
        let writes = || store.journal().iter().filter(|made| made.call == Call::Write).count();
        std::thread::scope(|scope| {
            let failed = scope.spawn(|| one.sync(SyncMode::All));
            first.wait_for(1);
            // It hears of the two failures, and tries once more itself.
            assert_eq!(errno(&vfs.flush(&other)), libc::EIO);
            let beside = scope.spawn(|| vfs.sync_open(&other, SyncMode::All));
            second.wait_for(1);
            first.open();
            until(|| writes() == 5);
            // The first one has written its last page, and comes to its end.
            std::thread::sleep(Duration::from_millis(50));
            second.open();
            assert_eq!(errno(&failed.join().unwrap()), libc::EIO);
            beside.join().unwrap().expect("the store takes everything again");
            let there = stored(&store, "a");
            let lost: Vec<_> = [0, 2].into_iter().filter(|page| there[page * PAGE] != 7).collect();
            assert!(lost.is_empty(), "fsync has returned 0, and the store lacks pages {lost:?}");
        });
        drop((one, other, top));
        assert_references_come_back(&vfs, &store);
        ledger.assert_settled();
    }
}
