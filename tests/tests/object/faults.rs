//! Floor: fault, over HTTP, by random plans: after any answers of a store, no wrong data is read or cached, and a
//! writer with a success finds its data.
//!
//! A plan is a seed: operations of one program, and the faults of its requests. A failure names the seed; `UVFS_SEED=N`
//! runs that plan alone, `UVFS_PLANS=N` that many.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use uvfs_object::s3::{Address, S3Store};
use uvfs_object::{ObjectBackend, ObjectConfig, Patience};
use uvfs_tests::Numbers;
use uvfs_tests::s3::{BUCKET_NAME, Fault, S3Server};
use uvfs_vfs::{Caller, Directory, Error, OpenOptions, RenameMode, SyncMode, Vfs, VfsConfig};

/// Plans of one run of the tests.
const PLANS: u64 = 25;
const STEPS: u64 = 40;

const FAULTS: [Fault; 15] = [
    Fault::Status(500, "InternalError"),
    Fault::Status(503, "SlowDown"),
    Fault::Status(429, "TooManyRequests"),
    Fault::Status(412, "PreconditionFailed"),
    Fault::Status(403, "ExpiredToken"),
    Fault::Status(409, "ConditionalRequestConflict"),
    Fault::Cut,
    Fault::Half,
    Fault::Flip,
    Fault::Lost,
    Fault::OtherVersion,
    Fault::OtherRange,
    Fault::Twice,
    Fault::Slow(3),
    // Longer than any test may wait: the pause is cut.
    Fault::RetryAfter(3600),
];

fn mount(server: &S3Server) -> Arc<Vfs> {
    let pause = Duration::from_micros(100);
    let patience = Patience { attempts: 2, first_pause: pause, longest_pause: pause };
    let text = format!("//{BUCKET_NAME}?endpoint={}&anonymous=true", server.endpoint());
    let store = S3Store::connect(&Address::parse(&text, |_| None).unwrap()).unwrap();
    let valid = Duration::from_secs(3600);
    let times = VfsConfig {
        attr_timeout: valid,
        entry_timeout: valid,
        negative_timeout: valid,
        ..VfsConfig::default()
    };
    Vfs::new(ObjectBackend::new(store, ObjectConfig { patience, ..ObjectConfig::default() }), times)
        .unwrap()
}

/// The possible contents of a key by now: each of these, whole, or none.
#[derive(Debug, Default, Clone)]
struct Possible {
    contents: BTreeSet<Vec<u8>>,
    absent: bool,
    /// Content written here and refused: it is kept, read here, and put when the store takes it.
    pending: BTreeSet<Vec<u8>>,
}

impl Possible {
    fn sure(content: Option<Vec<u8>>) -> Self {
        let contents = content.iter().cloned().collect();
        Self { absent: content.is_none(), contents, pending: BTreeSet::new() }
    }

    /// The store has this now; content that waits to be put there still does.
    fn is_now(&mut self, content: Option<Vec<u8>>) {
        *self = Self { pending: std::mem::take(&mut self.pending), ..Self::sure(content) };
    }

    fn waits(&mut self, content: &[u8]) {
        self.pending.insert(content.to_vec());
        self.pending.insert(Vec::new());
    }

    fn may_be(&mut self, content: Option<Vec<u8>>) {
        self.absent |= content.is_none();
        self.contents.extend(content);
    }

    fn allows(&self, found: Option<&Vec<u8>>) -> bool {
        found.map_or(self.absent, |found| {
            self.contents.contains(found) || self.pending.contains(found)
        })
    }
}

fn content(draw: &mut Numbers, step: u64) -> Vec<u8> {
    let length = *draw.of(&[0, 5, 4096, 70_000, 300_000]);
    let mut content = format!("step {step}").into_bytes();
    content.resize(content.len().max(length), step as u8);
    content
}

/// When a plan fails: its operations, and the server's requests.
struct Story<'a> {
    server: &'a S3Server,
    steps: Vec<(String, usize)>,
}

impl Story<'_> {
    fn begins(&mut self, step: String) {
        self.steps.push((step, self.server.recorded().len()));
    }
}

impl Drop for Story<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        let recorded = self.server.recorded();
        for (at, (step, from)) in self.steps.iter().enumerate() {
            let end = self.steps.get(at + 1).map_or(recorded.len(), |(_, from)| *from);
            eprintln!("{step}");
            recorded[*from..end].iter().for_each(|line| eprintln!("    {line}"));
        }
    }
}

fn run(seed: u64) {
    let mut draw = Numbers(seed);
    let server = S3Server::start().unwrap();
    let names: Vec<String> = (0..6).map(|at| format!("d/f{at}")).collect();
    let mut model = BTreeMap::new();
    for name in &names[..3] {
        server.put(name, name.as_bytes());
        model.insert(name.clone(), Possible::sure(Some(name.clone().into_bytes())));
    }
    names[3..].iter().for_each(|name| _ = model.insert(name.clone(), Possible::sure(None)));
    let vfs = mount(&server);
    let root = vfs.root_directory(Caller::root());
    let mut story = Story { server: &server, steps: Vec::new() };
    for step in 0..STEPS {
        let planned = draw.below(4);
        server.plan((0..planned).map(|_| *draw.of(&FAULTS)));
        let name = draw.of(&names).clone();
        story.begins(format!("step {step}, {name}"));
        act(&server, &root, &mut model, &mut draw, (seed, step, &name));
        story.begins("nothing, until the plan is met".to_owned());
        forget_plan(&server, &root);
        for (name, possible) in &mut model {
            let there = server.content(name);
            assert!(
                possible.allows(there.as_ref()),
                "seed {seed}, step {step}: {name} has bytes that no client put"
            );
            possible.is_now(there);
        }
    }
    drop(vfs);
    // A new mount reads the store's final contents, and no part of an upload is left visible.
    let vfs = mount(&server);
    let root = vfs.root_directory(Caller::root());
    for name in &names {
        let read = root.read_file(name).ok();
        assert!(read == server.content(name), "seed {seed}: {name}");
    }
}

/// Requests without a purpose, until all planned faults are used up.
fn forget_plan(server: &S3Server, root: &Directory) {
    let mut at = 0;
    while server.planned() > 0 {
        at += 1;
        let _ = root.stat(format!("nothing{at}"));
        assert!(at < 1000, "no request arrives");
    }
}

fn act(
    server: &S3Server,
    root: &Directory,
    model: &mut BTreeMap<String, Possible>,
    draw: &mut Numbers,
    (seed, step, name): (u64, u64, &str),
) {
    let before = server.content(name);
    match draw.below(6) {
        0 | 1 => {
            let new = content(draw, step);
            let possible = model.get_mut(name).unwrap();
            possible.waits(&new);
            let Ok(file) = root.open(name, OpenOptions::write().create(0o644).truncate()) else {
                return;
            };
            if file.write_all_at(0, &new).is_err() {
                return;
            }
            if file.sync(SyncMode::All).is_ok() {
                assert!(
                    server.content(name).as_ref() == Some(&new),
                    "seed {seed}, step {step}: told, and not there"
                );
            }
        }
        2 => {
            let removed = root.remove_file(name);
            let possible = model.get_mut(name).unwrap();
            possible.may_be(None);
            if removed.is_ok() {
                assert!(server.content(name).is_none(), "seed {seed}, step {step}: {name}");
                *possible = Possible::sure(None);
            }
        }
        3 => {
            let to = format!("d/f{}", draw.below(6));
            if to == name {
                return;
            }
            let moved = root.rename(name, &to, RenameMode::Replace);
            let source = model.get_mut(name).unwrap();
            source.may_be(None);
            let mut moving = source.clone();
            if moved.is_ok() {
                source.pending.clear();
            }
            moving.contents.extend(before);
            let target = model.get_mut(&to).unwrap();
            target.contents.extend(moving.contents);
            target.pending.extend(moving.pending);
            if moved.is_ok() {
                let there = server.content(&to);
                assert!(
                    there.is_none() || target.allows(there.as_ref()),
                    "seed {seed}, step {step}"
                );
            }
        }
        4 => {
            // All of it, or an error; never a part, and never another's.
            if let Ok(listed) = root.open_directory("d").and_then(|directory| directory.list_all())
            {
                let listed: BTreeSet<_> = listed.into_iter().map(|entry| entry.name).collect();
                for (name, possible) in model.iter() {
                    let is_listed = listed.contains(&name.as_bytes()[2..]);
                    let waits = !possible.pending.is_empty();
                    let is_there = server.content(name).is_some();
                    assert!(is_listed == is_there || waits, "seed {seed}, step {step}: {name}");
                }
            }
        }
        _ => match root.read_file(name) {
            Ok(read) => {
                let right = before.as_ref() == Some(&read) || model[name].pending.contains(&read);
                assert!(right, "seed {seed}, step {step}: {name}, wrong bytes");
            }
            Err(Error::NotFound) => {
                assert!(before.is_none(), "seed {seed}, step {step}: {name}");
            }
            Err(_) => {}
        },
    }
}

#[test]
fn whatever_a_store_answers_nothing_wrong_is_read_or_reported() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    if let Some(seed) = number("UVFS_SEED") {
        return run(seed);
    }
    (0..number("UVFS_PLANS").unwrap_or(PLANS)).for_each(run);
}
