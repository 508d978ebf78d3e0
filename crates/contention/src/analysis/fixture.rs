//! A profile made by hand, whose every figure is known: two seeds, four cores on two nodes.
//!
//! ```text
//! line             transfers, cycles       what it is
//! Super, 0         240, 60,000 of both     a lock (80 %) and a pointer beside it without writes (20 %)
//! counters, 0      100, 20,000             two counters of two nodes: all false
//! Dentry (two), 1  20 each, 5,000 each     a reference count: all true
//! Super, 1         none; 40 misses that memory answers, 10,000
//! ```

use std::collections::BTreeMap;
use uvfs_coherence::Profile;
use uvfs_coherence::machine::{Machine, Parameter};
use uvfs_coherence::profile::*;

pub(crate) fn field(path: &str, offset: u64, bytes: u64, type_name: &str) -> Field {
    Field { path: path.to_owned(), offset, bytes, type_name: type_name.to_owned() }
}

pub(crate) fn type_of(id: u32, name: &str, size: u64, fields: &[Field]) -> Type {
    let (name, fields) = (name.to_owned(), fields.to_vec());
    Type { id, name, size, align: 8, fields, declared: String::new() }
}

pub(crate) fn object(seed: u64, id: u32, name: &str, address: u64, size: u64) -> Object {
    Object {
        seed,
        id,
        kind: ObjectKind::Heap,
        address,
        size,
        ordinal: 0,
        frames: vec![Place { module: 0, offset: 0x400_100 }],
        thread: 0,
        name: name.to_owned(),
        type_id: None,
        array: false,
        allocated_in: "main".to_owned(),
    }
}

fn site(
    seed: u64,
    id: u32,
    offset: u64,
    (operation, bytes, ordering): (Operation, u32, Ordering),
    function: &str,
) -> Site {
    let plain = function.rsplit(' ').next().unwrap_or(function);
    Site {
        seed,
        id,
        place: Place { module: 0, offset },
        callers: Vec::new(),
        operation,
        bytes,
        ordering,
        frames: vec![Frame { function: plain.to_owned(), source: "fs/dcache.c:42".to_owned() }],
        function: function.to_owned(),
    }
}

/// Object and offset, site, class, count and false ones, service and queue, cores, writer.
type Short = ((u32, u64), u32, Class, (u64, u64), (u64, u64), u64, Option<(u32, u64)>);

fn sample(seed: u64, short: Short) -> Sample {
    let ((object, offset), site, class, (count, false_shared), (service, queue), cores, writer) =
        short;
    let cores = vec![cores];
    Sample { seed, object, offset, site, class, count, false_shared, service, queue, cores, writer }
}

const LOCK: u32 = 0;
const HASH: u32 = 1;
const COUNT: u32 = 2;
const DENTRY: u32 = 3;

fn samples(seed: u64, remote: (u64, u64, u64, u64), hash: u64) -> Vec<Sample> {
    use Class::{LocalMemory, LocalTransfer, RemoteMemory, RemoteTransfer};
    let (count, false_shared, service, queue) = remote;
    let writer = |site: u32, count: u64| Some((site, count));
    [
        ((0, 8), LOCK, LocalTransfer, (40, 0), (4000, 1000), 0b0011, writer(LOCK, 40)),
        (
            (0, 8),
            LOCK,
            RemoteTransfer,
            (count, false_shared),
            (service, queue),
            0b1111,
            writer(LOCK, count),
        ),
        ((0, 16), HASH, LocalTransfer, (40, 40), (hash, 0), 0b1111, writer(LOCK, 40)),
        ((1, 0), COUNT, RemoteTransfer, (25, 25), (5000, 0), 0b0001, writer(COUNT, 25)),
        ((1, 8), COUNT, RemoteTransfer, (25, 25), (5000, 0), 0b0100, writer(COUNT, 25)),
        ((2, 64), DENTRY, LocalTransfer, (10, 0), (2500, 0), 0b0011, writer(DENTRY, 10)),
        ((3, 64), DENTRY, LocalTransfer, (10, 0), (2500, 0), 0b1100, writer(DENTRY, 10)),
        ((0, 64), HASH, LocalMemory, (15, 0), (3000, 0), 0b0001, None),
        ((0, 64), HASH, RemoteMemory, (5, 0), (2000, 0), 0b1000, None),
    ]
    .map(|short| sample(seed, short))
    .to_vec()
}

fn lock(seed: u64, contended: u64, wait_total: u64) -> Lock {
    Lock {
        seed,
        object: 0,
        offset: 8,
        kind: LockKind::Word,
        acquisitions: 1000,
        contended,
        bounces: 600,
        wait_total,
        wait_min: 10,
        wait_max: 5200 * seed,
        hold_total: 26_000,
        hold_min: 13,
        hold_max: 2600,
        waiters: vec![(LOCK, contended)],
    }
}

fn heat(seed: u64, place: (u32, u64, u32), counts: (u64, u64, u64), cores: u64) -> Heat {
    let ((object, offset, bytes), (reads, writes, updates)) = (place, counts);
    Heat { seed, object, offset, bytes, reads, writes, updates, cores: vec![cores] }
}

fn histograms(seed: u64) -> Vec<Histogram> {
    let one = |class, with_queue, buckets: &[(u64, u64)]| Histogram {
        seed,
        class,
        with_queue,
        width: 10,
        buckets: buckets.iter().copied().collect::<BTreeMap<_, _>>(),
    };
    vec![
        one(Class::LocalTransfer, false, &[(12, 100)]),
        one(Class::LocalTransfer, true, &[(12, 60), (30, 40)]),
        one(Class::RemoteTransfer, false, &[(48, 20), (49, 70)]),
        one(Class::RemoteTransfer, true, &[(49, 50), (120, 40)]),
        one(Class::LocalMemory, false, &[(20, 15)]),
        one(Class::RemoteMemory, false, &[(40, 5)]),
    ]
}

/// See the module.
pub(crate) fn profile() -> Profile {
    let machine = Machine {
        cores: 4,
        nodes: 2,
        megahertz: Parameter::measured(2600.0),
        ..Machine::default()
    };
    let mut profile = empty();
    profile.meta.machine = machine;
    profile.modules = vec![Module { id: 0, path: "/build/prog".to_owned(), build_id: None }];
    let mut dentry = type_of(
        3,
        "Dentry",
        128,
        &[
            field("name", 0, 8, "char*"),
            field("parent", 8, 8, "Dentry*"),
            field("count", 64, 4, "u32"),
        ],
    );
    dentry.declared = "/src/fs/dcache.c:7".to_owned();
    profile.types = vec![
        type_of(
            1,
            "vfs::super_block::Super",
            128,
            &[
                field("flags", 0, 8, "u64"),
                field("root.lock", 8, 4, "u32"),
                field("root.hash", 16, 8, "hlist*"),
                field("statistics", 64, 8, "u64"),
            ],
        ),
        type_of(2, "AtomicU64", 8, &[]),
        dentry,
    ];
    for seed in [1, 2] {
        profile.runs.push(Run {
            seed,
            cycles: 208_000 + 52_000 * seed,
            parallel_cycles: 260_000,
            accesses: 10_000,
            misses: 210,
            transfers: 190,
            remote_transfers: 90,
            work: 1000,
            threads: 4,
            switches: 500,
            status: Some(0),
            host_nanoseconds: 1_000_000,
        });
        let mut objects = vec![
            object(seed, 0, "Super", 0x1000, 128),
            object(seed, 1, "counters", 0x2000, 16),
            object(seed, 2, "Dentry", 0x3000, 128),
            object(seed, 3, "Dentry", 0x4000, 128),
        ];
        for (object, type_id) in objects.iter_mut().zip([1, 2, 3, 3]) {
            object.type_id = Some(type_id);
        }
        (objects[1].kind, objects[1].array) = (ObjectKind::Global, true);
        (objects[2].frames[0].offset, objects[3].frames[0].offset) = (0x400_200, 0x400_200);
        objects[3].ordinal = 1;
        profile.objects.extend(objects);
        use {Operation as O, Ordering as R};
        profile.sites.extend([
            site(seed, LOCK, 0x40_1000, (O::CompareExchange, 4, R::Acquire), "[spinlock] @ dget"),
            site(seed, HASH, 0x40_1020, (O::Load, 8, R::Plain), "lookup"),
            site(seed, COUNT, 0x40_1040, (O::FetchAdd, 8, R::Relaxed), "count"),
            site(seed, DENTRY, 0x40_1060, (O::FetchAdd, 4, R::Release), "dput"),
        ]);
        profile.samples.extend(match seed {
            1 => samples(seed, (20, 0, 8000, 3000), 8000),
            _ => samples(seed, (60, 4, 20_000, 7000), 4000),
        });
        profile.heat.extend([
            heat(seed, (0, 8, 4), (10, 60, 100), 0b1111),
            heat(seed, (0, 16, 8), (500, 0, 0), 0b1111),
            heat(seed, (1, 0, 8), (0, 0, 250), 0b0001),
            heat(seed, (1, 8, 8), (0, 0, 250), 0b0100),
            heat(seed, (2, 64, 4), (0, 0, 50), 0b0011),
            heat(seed, (3, 64, 4), (0, 0, 50), 0b1100),
        ]);
        profile.histograms.extend(histograms(seed));
        profile.locks.push(if seed == 1 { lock(1, 100, 52_000) } else { lock(2, 200, 104_000) });
        for id in 0..4 {
            profile.threads.push(Thread {
                seed,
                id,
                core: id,
                accesses: 2500,
                misses: 50,
                stalled: 10_000,
                blocked: 5000,
                cycles: 50_000,
                began: 0,
            });
        }
    }
    profile
}

/// A program that did nothing.
pub(crate) fn empty() -> Profile {
    Profile {
        meta: Meta {
            format: FORMAT,
            tool: "uvfs 0.1.0".to_owned(),
            mode: Mode::Simulated,
            command: vec!["./prog".to_owned(), "8".to_owned()],
            machine: Machine::default(),
            computing: true,
            what_if: Vec::new(),
        },
        runs: Vec::new(),
        modules: Vec::new(),
        types: Vec::new(),
        objects: Vec::new(),
        sites: Vec::new(),
        samples: Vec::new(),
        heat: Vec::new(),
        histograms: Vec::new(),
        locks: Vec::new(),
        threads: Vec::new(),
    }
}

/// One transfer in an object without name, by an instruction without symbol, in a run that is not listed.
pub(crate) fn anonymous() -> Profile {
    let mut profile = empty();
    let mut unnamed = object(7, 5, "", 0x1010, 48);
    unnamed.frames.clear();
    profile.objects.push(unnamed);
    let mut site = site(7, 9, 0x10, (Operation::Load, 8, Ordering::Plain), "");
    site.frames.clear();
    profile.sites.push(site);
    profile
        .samples
        .push(sample(7, ((5, 24), 9, Class::LocalTransfer, (1, 0), (120, 0), 1, Some((99, 1)))));
    profile
}

/// [`profile`]'s figures with names that programs and files should not have.
pub(crate) fn hostile() -> Profile {
    let mut profile = profile();
    let script = "<script>alert('x')</script>";
    let nasty = format!("{script}\"&\n\r\x1b[31m\u{202e}ünïcode\0{}", "A".repeat(10_000));
    profile.meta.command = vec![nasty.clone()];
    profile.meta.tool.clone_from(&nasty);
    profile.meta.machine.name.clone_from(&nasty);
    profile.meta.what_if = vec![nasty.clone()];
    profile.modules.iter_mut().for_each(|one| one.path = format!("/{nasty}"));
    for one in &mut profile.types {
        one.name = format!("{nasty}{}", one.id);
        one.declared.clone_from(&nasty);
        one.fields.iter_mut().for_each(|field| {
            field.path = format!("{}{nasty}", field.path);
            field.type_name = format!("{nasty}*");
        });
    }
    for one in &mut profile.objects {
        one.name = format!("{}{nasty}", one.name);
        one.allocated_in.clone_from(&nasty);
    }
    for one in &mut profile.sites {
        one.function = format!("{}{nasty}", one.function);
        one.frames = vec![Frame { function: nasty.clone(), source: nasty.clone() }];
    }
    profile
}
