//! Floor: model, over HTTP: the number of requests for a walk over a bucket, and that answers from kept listings are
//! true.
//!
//! The server is ours and on loopback, and counts its requests; each test has its own. No test asserts a time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use uvfs_object::s3::{Address, S3Store};
use uvfs_object::{ObjectBackend, ObjectConfig};
use uvfs_tests::s3::{BUCKET_NAME, S3Server};
use uvfs_vfs::{
    Caller, Cookie, Directory, FileKind, OpenOptions, RenameMode, Vfs, VfsConfig, pass_time,
};

const VALID: Duration = Duration::from_secs(60);

fn mount(server: &S3Server, cache_bytes: u64) -> Arc<Vfs> {
    let text = format!("//{BUCKET_NAME}?endpoint={}&anonymous=true", server.endpoint());
    let store = S3Store::connect(&Address::parse(&text, |_| None).unwrap()).unwrap();
    let config = VfsConfig {
        attr_timeout: VALID,
        entry_timeout: VALID,
        negative_timeout: VALID,
        cache_bytes,
        ..VfsConfig::default()
    };
    Vfs::new(ObjectBackend::new(store, ObjectConfig::default()), config).unwrap()
}

fn root(vfs: &Arc<Vfs>) -> Directory {
    vfs.root_directory(Caller::root())
}

fn requests(server: &S3Server) -> u64 {
    let (lists, gets) = server.requests();
    lists + gets
}

/// Every path below `directory`, in the order of a depth-first walk; directories end with `/`.
fn find(directory: &Directory, path: &str, found: &mut Vec<String>) {
    for entry in directory.list_all().unwrap() {
        let name = String::from_utf8(entry.name).unwrap();
        let below = format!("{path}{name}");
        if entry.kind == FileKind::Directory {
            found.push(format!("{below}/"));
            find(&directory.open_directory(&name).unwrap(), &format!("{below}/"), found);
        } else {
            found.push(below);
        }
    }
}

fn found(directory: &Directory) -> Vec<String> {
    let mut found = Vec::new();
    find(directory, "", &mut found);
    found
}

fn names(directory: &Directory) -> Vec<String> {
    let listed = directory.list_all().unwrap();
    listed.into_iter().map(|entry| String::from_utf8(entry.name).unwrap()).collect()
}

/// Each of 50 directories was one request, each time again: 51 for a walk, where five pages have all of it.
#[test]
fn a_walk_over_many_small_directories_costs_few_requests_and_then_none() {
    let server = S3Server::start().unwrap();
    let key = |at: usize| format!("t/d{:03}/f{at:05}", at % 50);
    (0..5000).for_each(|at| server.put(&key(at), b"x"));
    let vfs = mount(&server, 512 << 20);
    let before = requests(&server);
    let first = found(&root(&vfs));
    assert_eq!(first.len(), 1 + 50 + 5000);
    let cold = requests(&server) - before;
    assert!(cold <= 10, "{cold} requests");
    let before = requests(&server);
    assert_eq!(found(&root(&vfs)), first);
    for at in 0..5000 {
        assert_eq!(root(&vfs).stat(key(at)).unwrap().size, 1);
    }
    assert!(root(&vfs).stat("t/d007/nothing").is_err());
    assert_eq!(requests(&server) - before, 0);
    let listings = vfs.statistics().listings;
    assert!(listings.hits >= 51 && listings.ahead >= 40, "{listings:?}");
    assert!(listings.held_bytes > 5050 * 16, "{listings:?}");
}

/// A program's own changes are in its listings at once, and cost no listing.
#[test]
fn own_changes_are_in_kept_listings_once_each() {
    let server = S3Server::start().unwrap();
    server.put("d/", b"");
    (0..20).for_each(|at| server.put(&format!("d/f{at:02}"), b"x"));
    let vfs = mount(&server, 512 << 20);
    let directory = root(&vfs).open_directory("d").unwrap();
    assert_eq!(names(&directory).len(), 20);
    let mut model: BTreeSet<String> = names(&directory).into_iter().collect();
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for step in 0..300 {
        let name = format!("f{:02}", draw(30));
        match draw(4) {
            0 => {
                directory.write_file(&name, b"new").unwrap();
                model.insert(name);
            }
            1 => assert_eq!(directory.remove_file(&name).is_ok(), model.remove(&name), "{step}"),
            2 => {
                let to = format!("f{:02}", draw(30));
                let moved = directory.rename(&name, &to, RenameMode::Replace).is_ok();
                assert_eq!(moved, model.contains(&name), "{step}");
                if moved && name != to {
                    model.remove(&name);
                    model.insert(to);
                }
            }
            _ => {}
        }
        let listed = names(&directory);
        assert_eq!(listed.len(), model.len(), "{step}: {listed:?}");
        assert_eq!(listed.into_iter().collect::<BTreeSet<_>>(), model, "{step}");
    }
    let listings = vfs.statistics().listings;
    assert!(listings.misses <= 2 && listings.hits >= 300, "{listings:?}");
}

/// Reads `directory` piece by piece, and removes those entries of each piece whose number in it `removes` accepts.
/// Calls `between` between two pieces with the number of read entries. Returns the read entries.
fn read_and_remove(
    directory: &Directory,
    removes: impl Fn(usize) -> bool,
    mut between: impl FnMut(usize),
) -> Vec<Vec<u8>> {
    let (mut at, mut seen) = (Cookie(0), Vec::new());
    loop {
        let piece = directory.list(at).unwrap();
        let Some(last) = piece.last() else { return seen };
        at = last.next;
        for (nth, entry) in piece.iter().enumerate() {
            seen.push(entry.name.clone());
            if removes(nth) {
                directory.remove_file(&entry.name).unwrap();
            }
        }
        between(seen.len());
    }
}

/// `rm -r` reads a piece of a listing, removes its entries, and reads on.
#[test]
fn a_remover_that_lists_meets_every_entry_that_stays_once() {
    let server = S3Server::start().unwrap();
    (0..3000).for_each(|at| server.put(&format!("d/f{at:04}"), b"x"));
    let vfs = mount(&server, 512 << 20);
    let directory = root(&vfs).open_directory("d").unwrap();
    assert_eq!(names(&directory).len(), 3000);
    let seen = read_and_remove(
        &directory,
        |nth| nth % 2 == 0,
        |seen| {
            // Another program lists it meanwhile, with a new file in it.
            directory.write_file(format!("new{seen}"), b"x").unwrap();
            assert!(names(&directory).len() > 1000);
        },
    );
    let once: BTreeSet<_> = seen.iter().collect();
    assert_eq!(once.len(), seen.len());
    assert!(seen.iter().filter(|name| name.starts_with(b"f")).count() == 3000);
}

/// Bug: the list of a directory was evicted for lack of room in the middle of a listing whose reader removed the read
/// entries. The next listing skipped as many names as had been read, and those were no longer there: it skipped names
/// that had not been read, and `rm -r` reported that the directory was not empty.
#[test]
fn a_remover_that_lists_misses_nothing_when_the_list_is_evicted() {
    for removed_of_ten in [0, 5, 10] {
        let server = S3Server::start().unwrap();
        (0..3000).for_each(|at| server.put(&format!("d/f{at:04}"), b"x"));
        let vfs = mount(&server, 512 << 20);
        let directory = root(&vfs).open_directory("d").unwrap();
        assert_eq!(names(&directory).len(), 3000);
        // Made here, so it stands behind all others in the list, and before them in the bucket.
        directory.write_file("a", b"x").unwrap();
        assert_eq!(names(&directory).len(), 3001);
        let removes = |nth| nth % 10 < removed_of_ten;
        let seen = read_and_remove(&directory, removes, |_| vfs.forget_unused());
        let once: BTreeSet<_> = seen.iter().collect();
        assert_eq!((once.len(), seen.len()), (3001, 3001), "{removed_of_ten} of ten removed");
    }
}

/// A directory listed with its siblings has the same names as when it is listed alone, for any keys.
#[test]
fn directories_listed_together_are_what_they_are_alone() {
    for seed in 0..30_u64 {
        let server = S3Server::start().unwrap();
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        let parts = ["a", "b", "a-x", "a.b", "ab", "", "é", "z", ".", "..", "c d", "a!"];
        for _ in 0..1500 {
            let depth = 1 + draw(4);
            let mut key = format!("d{:02}", draw(25));
            for _ in 0..depth {
                key.push('/');
                key.push_str(parts[draw(parts.len() as u64) as usize]);
            }
            server.put(&key, b"x");
        }
        let vfs = mount(&server, 512 << 20);
        let keys = server.keys();
        let walked = found(&root(&vfs));
        for path in walked.iter().filter(|path| path.ends_with('/')) {
            let directory = root(&vfs).open_directory(path.trim_end_matches('/')).unwrap();
            assert_eq!(names(&directory), shown(&keys, path), "seed {seed}, {path}");
        }
        assert!(vfs.statistics().listings.ahead > 0, "seed {seed}");
    }
}

/// The names that a bucket with these keys, which are in order, has in the directory `prefix`.
fn shown(keys: &[String], prefix: &str) -> Vec<String> {
    let (mut files, mut names) = (BTreeSet::new(), Vec::<String>::new());
    for rest in keys.iter().filter_map(|key| key.strip_prefix(prefix)) {
        let (name, below) = rest.split_once('/').map_or((rest, false), |(name, _)| (name, true));
        if matches!(name, "" | "." | "..") || (below && files.contains(name)) {
            continue;
        }
        if !below {
            files.insert(name);
        }
        if names.last().is_none_or(|last| last != name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// After an expiry each name was asked for by itself ("TTL cliff"): 2,000 requests where two pages have all of it.
#[test]
fn what_has_expired_is_listed_again_and_answered_meanwhile() {
    let server = S3Server::start().unwrap();
    (0..900).for_each(|at| server.put(&format!("d/f{at:03}"), b"x"));
    let vfs = mount(&server, 512 << 20);
    let directory = root(&vfs).open_directory("d").unwrap();
    assert_eq!(names(&directory).len(), 900);
    server.put("d/theirs", b"x");
    server.remove("d/f000");
    // Valid: as it was listed.
    assert_eq!(names(&directory).len(), 900);
    let before = server.requests().0;
    pass_time(VALID);
    // Expired: the old list, refreshed in the background. This thread's clock is ahead of the refreshing one's, so each
    // answer comes from an expired list.
    assert_eq!(names(&directory).len(), 900);
    for at in 1..900 {
        assert!(directory.stat(format!("f{at:03}")).is_ok());
    }
    let mut tries = 0;
    while directory.stat("theirs").is_err() || directory.stat("f000").is_ok() {
        std::thread::sleep(Duration::from_millis(1));
        tries += 1;
        assert!(tries < 20_000, "never refreshed");
    }
    let refreshed = vfs.statistics().listings.refreshed;
    assert!(refreshed > 0 && vfs.statistics().listings.stale_hits > 900);
    // The parent is listed again as well, without a request per name.
    let asked = server.requests().0 - before;
    assert!(asked <= 2 * refreshed + 4, "{asked} requests, {refreshed} refreshed");
    // Once that time more, and no longer: then the answer is the store's.
    server.put("d/later", b"x");
    pass_time(VALID * 3);
    assert!(directory.stat("later").is_ok());
    assert!(names(&directory).contains(&"later".to_owned()));
}

/// Bug: one GET after another for 400 small files: there was no read-ahead across files.
#[test]
fn files_read_in_order_are_fetched_before_they_are_asked_for() {
    let server = S3Server::start().unwrap();
    let key = |at: usize| format!("t/d{}/f{at:03}", at / 100);
    (0..400).for_each(|at| server.put(&key(at), format!("content of {at}").as_bytes()));
    let vfs = mount(&server, 512 << 20);
    found(&root(&vfs));
    let gets = server.requests().1;
    for at in 0..400 {
        assert_eq!(root(&vfs).read_file(key(at)).unwrap(), format!("content of {at}").as_bytes());
    }
    assert_eq!(server.requests().1 - gets, 400, "each once");
    let ahead = vfs.statistics().listings.files_ahead;
    assert!(ahead > 300, "{ahead} of 400");
    // Read again: no requests.
    for at in 0..400 {
        root(&vfs).read_file(key(at)).unwrap();
    }
    assert_eq!(server.requests().1 - gets, 400);
}

#[test]
fn a_reader_that_stops_or_jumps_has_nothing_more_fetched() {
    let server = S3Server::start().unwrap();
    let key = |at: usize| format!("d/f{at:04}");
    (0..2000).for_each(|at| server.put(&key(at), b"content"));
    let vfs = mount(&server, 512 << 20);
    found(&root(&vfs));
    let gets = server.requests().1;
    let mut read = 0;
    for at in (0..30).map(|at| at * 61 % 2000) {
        root(&vfs).read_file(key(at)).unwrap();
        read += 1;
    }
    assert_eq!(server.requests().1 - gets, read, "no order");
    let gets = server.requests().1;
    for at in 1500..1540 {
        root(&vfs).read_file(key(at)).unwrap();
    }
    // The requests in flight when it stopped, and no more.
    std::thread::sleep(Duration::from_millis(200));
    let fetched = server.requests().1 - gets;
    assert!((40..=40 + 64).contains(&fetched), "{fetched} for 40");
}

/// The lists are in the budget, and are evicted when there is no room.
#[test]
fn listings_are_within_the_budget() {
    let server = S3Server::start().unwrap();
    (0..20_000)
        .for_each(|at| server.put(&format!("d{}/a-name-of-some-length-{at}", at / 2000), b""));
    let vfs = mount(&server, 8 << 20);
    assert_eq!(found(&root(&vfs)).len(), 20_010);
    assert_eq!(found(&root(&vfs)).len(), 20_010);
    let statistics = vfs.statistics();
    let (held, limit) = (statistics.budget.held_bytes, statistics.budget.limit_bytes);
    assert!(held <= limit, "{held} of {limit}");
    vfs.forget_unused();
    assert_eq!(vfs.statistics().listings.held_bytes, 0);
    let file = root(&vfs).open("d0/a-name-of-some-length-7", OpenOptions::read()).unwrap();
    assert_eq!(file.read_to_end().unwrap(), b"");
}
