//! Concurrent threads, with an oracle: neither tags nor values are ever lost.

use super::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

fn dirty_in(tree: &Tree, index: u64) -> bool {
    let guard = pin();
    let mut out = [(0, NonZeroU64::MIN); 1];
    tree.gang_tagged(index..=index, Tag::Dirty, &mut out, &guard) == 1
}

/// The tag race: one thread clears the last tag of a leaf and goes up. Another tags a neighbour, sees the parent's
/// bit and stops; then the bit is cleared: a dirty page that no search finds. Every thread has one page of a leaf
/// to itself and looks for it after tagging it.
#[test]
fn a_tag_is_found_although_the_neighbours_clear_theirs() {
    const THREADS: u64 = 4;
    let mut tree = Tree::new(&CLASS);
    let far = 1 << 20;
    for index in (0..THREADS).chain([far]) {
        tree.insert(index, value(1), &pin()).unwrap();
    }
    std::thread::scope(|scope| {
        for index in 0..THREADS {
            let tree = &tree;
            scope.spawn(move || {
                for _ in 0..20_000 {
                    assert!(tree.set_tag(index, Tag::Dirty, &pin()));
                    assert!(dirty_in(tree, index), "tagged, and not found by its tag");
                    assert!(tree.any_tagged(Tag::Dirty, &pin()));
                    assert!(tree.clear_tag(index, Tag::Dirty, &pin()));
                }
            });
        }
    });
    assert!(!tree.any_tagged(Tag::Dirty, &pin()));
    check_structure(&mut tree);
}

/// Two threads tag the same page. A thread that finds it tagged takes no lock, and must also be right while the
/// other has not finished.
#[test]
fn a_tag_that_was_set_already_is_found_too() {
    const ROUNDS: usize = 20_000;
    let mut tree = Tree::new(&CLASS);
    for index in [7, 1 << 30] {
        tree.insert(index, value(1), &pin()).unwrap();
    }
    let (barrier, lost) = (Barrier::new(2), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (tree, barrier, lost) = (&tree, &barrier, &lost);
            scope.spawn(move || {
                for _ in 0..ROUNDS {
                    barrier.wait();
                    let tagged = tree.set_tag(7, Tag::Dirty, &pin());
                    // Counted: after a panic the other thread would wait for ever.
                    if !tagged || !dirty_in(tree, 7) {
                        lost.fetch_add(1, Ordering::SeqCst);
                    }
                    barrier.wait();
                    if thread == 0 {
                        tree.clear_tag(7, Tag::Dirty, &pin());
                    }
                }
            });
        }
    });
    assert_eq!(lost.into_inner(), 0, "tagged, and not found by its tag");
    check_structure(&mut tree);
}

/// Pages with versions: writers change a page and tag it. A thread that writes back looks for tags, clears them,
/// and stores the version that it then sees. In the end every last version is stored.
#[test]
fn the_last_version_of_every_page_is_written_back() {
    const PAGES: u64 = 6;
    const WRITES: u64 = 20_000;
    let mut tree = Tree::new(&CLASS);
    let index = |page: u64| page * 40;
    let versions: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    let stored: Vec<AtomicU64> = (0..PAGES).map(|_| AtomicU64::new(0)).collect();
    for page in 0..PAGES {
        tree.insert(index(page), value(page + 1), &pin()).unwrap();
    }
    let write_back = |tree: &Tree| {
        let guard = pin();
        let mut out = [(0, NonZeroU64::MIN); PAGES as usize];
        tree.copy_tag(.., Tag::Dirty, Tag::ToWrite, &guard);
        let found = tree.gang_tagged(.., Tag::ToWrite, &mut out, &guard);
        for (at, page) in &out[..found] {
            tree.clear_tag(*at, Tag::Dirty, &guard);
            tree.clear_tag(*at, Tag::ToWrite, &guard);
            let page = page.get() as usize - 1;
            let version = versions[page].load(Ordering::SeqCst);
            stored[page].store(version, Ordering::SeqCst);
        }
        found
    };
    let writing = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|thread| {
                let (tree, versions) = (&tree, &versions);
                scope.spawn(move || {
                    let mut random = Random(thread);
                    for _ in 0..WRITES {
                        let page = random.below(PAGES);
                        versions[page as usize].fetch_add(1, Ordering::SeqCst);
                        assert!(tree.set_tag(index(page), Tag::Dirty, &pin()));
                    }
                })
            })
            .collect();
        let (tree, writing, write_back) = (&tree, &writing, &write_back);
        scope.spawn(move || {
            while writing.load(Ordering::SeqCst) {
                write_back(tree);
            }
            write_back(tree);
        });
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        writing.store(false, Ordering::SeqCst);
    });
    for page in 0..PAGES as usize {
        let version = versions[page].load(Ordering::SeqCst);
        assert_eq!(stored[page].load(Ordering::SeqCst), version, "page {page} was lost");
    }
    check_structure(&mut tree);
}

/// Threads fill and empty neighbouring ranges, so that leaves, their parents and roots are linked and unlinked
/// concurrently. Each thread finds and removes the values that it alone inserted.
#[test]
fn trees_grow_and_shrink_under_threads() {
    const THREADS: u64 = 4;
    let mut tree = Tree::new(&CLASS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let tree = &tree;
            scope.spawn(move || {
                let mut random = Random(thread);
                for _ in 0..3000 {
                    let base = [0, 1 << 6, 1 << 12, 1 << 19][random.below(4) as usize];
                    let own = |at: u64| base + at * THREADS + thread;
                    let count = 1 + random.below(4);
                    for at in 0..count {
                        assert!(tree.insert(own(at), value(own(at) + 1), &pin()).is_ok());
                    }
                    for at in 0..count {
                        assert_eq!(tree.get(own(at), &pin()), Some(value(own(at) + 1)));
                        assert!(tree.set_tag(own(at), Tag::Writing, &pin()));
                    }
                    for at in 0..count {
                        assert!(tree.is_tagged(own(at), Tag::Writing, &pin()));
                        let found = tree.remove(own(at), &pin());
                        assert_eq!(found, Some(value(own(at) + 1)));
                        assert_eq!(tree.get(own(at), &pin()), None);
                    }
                }
            });
        }
    });
    assert!(tree.is_empty());
    check_structure(&mut tree);
}
