//! Floor: hostile backend, through the kernel. Tasks that die while they wait for a store that does not answer.
//!
//! Bug: `timeout 5 head` of a cached file stayed in an uninterruptible wait for 607 seconds, because OPEN hung in the
//! source. Every signal's INTERRUPT was refused, so the kernel let a killed task go only with the answer.
//!
//! Needs root and `/dev/fuse`; is skipped where they lack.

use super::mount::{Mounted, eventually};
use super::rings::switched;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use uvfs_backends::hostile::{Call, Fault, Gate, Moment, On, Plan};
use uvfs_fuse::{MountOptions, Transport};
use uvfs_tests::{Numbers, hostile, seed, stress};
use uvfs_vfs::{Authority, NewKind, Opens, PageCaching, PagePolicy, VfsConfig, Waits};

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
    let mut config = VfsConfig { pages, ..VfsConfig::default() };
    config.write_back_delay = Duration::from_secs(3600);
    if authority == Authority::Shared && pages == PagePolicy::Off {
        (config.entry_timeout, config.attr_timeout) = (Duration::ZERO, Duration::ZERO);
        config.negative_timeout = Duration::ZERO;
    }
    let options = MountOptions { transport, ..MountOptions::default() };
    Mounted::exactly(hostile, config, options)
}

/// A shell in a directory of the mount.
fn shell(place: &Path, script: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script]).current_dir(place);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// A shell that has begun, and runs `script` when `begin` is called.
fn ready(place: &Path, script: &str) -> Child {
    let mut child = shell(place, &format!("echo >&2; read begin; {script}"));
    assert_eq!(child.stderr.as_mut().unwrap().read(&mut [0]).unwrap(), 1);
    child
}

fn begin(child: &mut Child) {
    child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// What the last directory of a round has: `file`, `directory`, `link`.
fn furnish(mounted: &Mounted, name: &str) {
    let make =
        |path: &str, kind| mounted.root.create(format!("{name}{path}"), kind, 0o755).unwrap();
    make("", NewKind::Directory);
    make("/directory", NewKind::Directory);
    make("/link", NewKind::Symlink(b"file"));
    mounted.root.write_file(format!("{name}/file"), vec![7; 5000]).unwrap();
}

/// A call of the store that hangs, a command that waits for it, and what the directory shows afterwards: a name, and
/// whether it is there.
type Message = (Call, &'static str, Option<(&'static str, bool)>);

const MESSAGES: &[Message] = &[
    (Call::SetAttributes, "exec chmod 600 file", None),
    (Call::SetAttributes, "exec truncate -s 7 file", None),
    (Call::Open, "exec cat file", None),
    (Call::Read, "exec dd if=file iflag=direct of=/dev/null bs=4096 count=1", None),
    (Call::Write, "exec dd if=/dev/zero of=file conv=notrunc bs=100 count=1", None),
    (Call::Write, "exec dd if=/dev/zero of=file conv=notrunc oflag=direct bs=4096 count=1", None),
    (Call::CreateAndOpen, ": > new", Some(("new", true))),
    (Call::Create, "exec mkdir new", Some(("new", true))),
    (Call::Create, "exec ln -s file new", Some(("new", true))),
    (Call::Create, "exec mkfifo new", Some(("new", true))),
    (Call::Link, "exec ln file new", Some(("new", true))),
    (Call::Unlink, "exec rm -f file", Some(("file", false))),
    (Call::RemoveDirectory, "exec rmdir directory", Some(("directory", false))),
    (Call::Rename, "exec mv file new", Some(("file", false))),
    (Call::Rename, "exec mv -n directory new", Some(("new", true))),
    (Call::Sync, "exec sync file", None),
    (Call::List, "exec ls -U directory", None),
    (Call::ReadLink, "exec readlink link", None),
    (Call::Totals, "exec stat -f .", None),
    (Call::Allocate, "exec fallocate -l 9000 file", None),
];

/// Kills a task in each message that waits. It dies while the store still holds the call; afterwards nothing is counted
/// that the kernel does not have, and the kernel sees what the calls did.
fn die_in_each(mounted: Mounted, messages: &[Message]) {
    for (round, (call, script, shows)) in messages.iter().enumerate() {
        let name = format!("round-{round}");
        furnish(&mounted, &name);
        let place = mounted.path(&name);
        // Whatever the kernel keeps of these names, it keeps now.
        for known in ["file", "directory", "link", "new"] {
            drop(fs::symlink_metadata(place.join(known)));
        }
        let mut child = ready(&place, script);
        let gate = Gate::new();
        let hold = Fault::Hold(Moment::Before, gate.clone());
        mounted.hostile.follow(Plan::new().when(On::call(*call), hold));
        begin(&mut child);
        gate.wait_for(1);
        signal(&child, if round % 2 == 0 { Signal::KILL } else { Signal::TERM });
        let status = child.wait().unwrap();
        assert!(gate.held() > 0, "{script}: it died when the store answered: {status}");
        assert!(!status.success(), "{script}");
        gate.open();
        mounted.hostile.behave();
        if let Some((shown, is_there)) = shows {
            let right = || fs::symlink_metadata(place.join(shown)).is_ok() == *is_there;
            assert!(eventually(right), "{script}: the kernel keeps what was before");
        }
    }
    assert!(eventually(|| mounted.mount().statistics().files == 0));
    assert!(mounted.mount().statistics().ended_early >= messages.len() as u64);
    mounted.end();
}

#[test]
fn a_task_dies_in_each_message() {
    let Some(mounted) = mounted(PagePolicy::Off, Authority::Sole, Transport::Device) else {
        return;
    };
    die_in_each(mounted, MESSAGES);
}

#[test]
fn a_task_dies_in_each_message_by_a_ring() {
    let Some(_on) = switched(true) else { return };
    let Some(mounted) = mounted(PagePolicy::Off, Authority::Sole, Transport::Ring) else { return };
    die_in_each(mounted, MESSAGES);
}

#[test]
fn a_task_dies_in_a_question_about_a_name() {
    let Some(mounted) = mounted(PagePolicy::Off, Authority::Shared, Transport::Device) else {
        return;
    };
    let messages = [
        (Call::Lookup, "exec stat none", None),
        (Call::Attributes, "exec stat file", None),
        (Call::List, "exec ls -l directory", None),
    ];
    die_in_each(mounted, &messages);
}

/// A program that is killed closes its files while it ends, when no signal reaches it any more.
#[test]
fn a_task_dies_in_a_close() {
    let Some(mounted) = mounted(PagePolicy::WriteBack, Authority::Shared, Transport::Device) else {
        return;
    };
    mounted.root.create_directory("d", 0o755).unwrap();
    let place = mounted.path("d");
    for (name, script) in [("1", "echo x > 1; read end"), ("2", "exec cat > 2")] {
        let mut child = ready(&place, script);
        let gate = Gate::new();
        let hold = Fault::Hold(Moment::Before, gate.clone());
        mounted.hostile.follow(Plan::new().when(On::call(Call::Write), hold));
        begin(&mut child);
        match name {
            "1" => gate.wait_for(1),
            _ => {
                child.stdin.as_mut().unwrap().write_all(b"x\n").unwrap();
                let size = || mounted.root.stat("d/2").map_or(0, |found| found.size);
                assert!(eventually(|| size() == 2));
            }
        }
        signal(&child, Signal::KILL);
        child.wait().unwrap();
        gate.wait_for(1);
        assert!(gate.held() > 0, "{script}: it ended when the store answered");
        gate.open();
        mounted.hostile.behave();
        let written = || fs::read(place.join(name)).is_ok_and(|bytes| bytes == b"x\n");
        assert!(eventually(written));
    }
    assert!(eventually(|| mounted.mount().statistics().files == 0));
    mounted.end();
}

/// The state of a task: `S` while any signal would interrupt its wait, `D` when one did.
fn state(child: &Child) -> char {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    stat.rsplit(") ").next().and_then(|rest| rest.chars().next()).unwrap()
}

/// A signal with a handler interrupts no request. The kernel tells of the first signal only: a later one ends the task all
/// the same.
#[test]
fn a_handled_signal_ends_no_request() {
    let Some(mounted) = mounted(PagePolicy::Off, Authority::Shared, Transport::Device) else {
        return;
    };
    furnish(&mounted, "d");
    for kills in [false, true] {
        let gate = Gate::new();
        let hold = Fault::Hold(Moment::Before, gate.clone());
        mounted.hostile.follow(Plan::new().when(On::call(Call::Lookup).name("none"), hold));
        let script = "trap : USR1; [ -e none ]; [ $? = 1 ] && exit 7";
        let mut child = shell(&mounted.path("d"), script);
        gate.wait_for(1);
        signal(&child, Signal::USR1);
        assert!(eventually(|| state(&child) == 'D'), "the kernel has heard of no signal");
        if kills {
            signal(&child, Signal::TERM);
            assert!(!child.wait().unwrap().success());
            assert!(gate.held() > 0, "it died when the store answered");
            gate.open();
        } else {
            gate.open();
            assert_eq!(child.wait().unwrap().code(), Some(7), "the shell goes on with its answer");
        }
        mounted.hostile.behave();
    }
    assert_eq!(mounted.mount().statistics().ended_early, 1);
    mounted.end();
}

/// Signals and kills at any moment of any message, on a store that takes its time.
fn signals_amid_messages(mounted: Mounted) {
    let signals = if stress::is_long() { 10_000 } else { 300 };
    let slow = vec![Fault::Delay(Moment::Before, Duration::from_millis(2))];
    mounted.hostile.follow(Plan::random(1, 0.5, slow));
    let seed = seed();
    let script = "trap : USR1; while :; do \
         : > a || exit 9; echo x >> a || exit 9; read x < a || exit 9; [ -e a ] || exit 9; \
         [ -e none ] && exit 9; [ -e directory/none ] && exit 9; : directory/* *; \
         mkdir b && mv b c && ln a d && rm -f d a && rmdir c || exit 9; done";
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let mounted = &mounted;
            scope.spawn(move || {
                let mut numbers = Numbers(seed + thread);
                for round in 0..signals / 4 / 10 {
                    let name = format!("{thread}-{round}");
                    furnish(mounted, &name);
                    let mut child = shell(&mounted.path(&name), script);
                    for _ in 0..9 {
                        for _ in 0..numbers.below(200_000) {
                            std::hint::spin_loop();
                        }
                        signal(&child, Signal::USR1);
                    }
                    // A shell that gets the signal before it has its handler dies of it.
                    signal(&child, Signal::KILL);
                    let status = child.wait().unwrap();
                    let mut said = String::new();
                    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                    assert!(status.code().is_none(), "{status}: {said}");
                    assert!(!said.contains("nterrupted"), "{said}");
                }
            });
        }
    });
    mounted.hostile.behave();
    assert!(eventually(|| mounted.mount().statistics().files == 0));
    assert_eq!(mounted.mount().statistics().panics, 0);
    mounted.end();
}

#[test]
fn signals_amid_messages_lose_no_reply() {
    if let Some(mounted) = mounted(PagePolicy::Off, Authority::Shared, Transport::Device) {
        signals_amid_messages(mounted);
    }
}

#[test]
fn signals_amid_messages_by_a_ring_lose_no_reply() {
    let Some(_on) = switched(true) else { return };
    if let Some(mounted) = mounted(PagePolicy::Off, Authority::Shared, Transport::Ring) {
        signals_amid_messages(mounted);
    }
}
