//! `uvfs mounts`: every uvfs mount, with its state, age and memory.
//!
//! # Boundary
//! The list, and the words for states, which `uvfs stat` without a mount also uses. [`crate::liveness`] asks the kernel
//! whether a mount is dead; `docs/stat.md` has the fields of `--json`.
//!
//! # Concurrency
//! A thread for each mount asks its daemon, [`ASKED_AT_ONCE`] at a time, each for at most [`ANSWER_TIME`]: daemons may
//! be other users', and a hanging one does not delay the report of the others. Mounts without an answer are then asked
//! by processes, all at once.
//!
//! # Why
//! Users list a machine's mounts when one of them has a fault, so a dead one is shown with the command that clears it.
//! Weakness: the mounts are those of this mount namespace; a container's are visible inside it.

use crate::Failure;
use crate::flags::MountsArguments;
use crate::liveness::{self, Life};
use crate::mountinfo::{self, MountEntry};
use crate::shown::shown;
use crate::units::show_bytes;
use serde::Serialize;
use serde_json::Value;
use std::io;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uvfs_client as client;
use uvfs_client::state::{State, of_connection, of_life};
use uvfs_control::protocol::Request;
use uvfs_terminal::color::{self, painted};

/// Time for a daemon's report.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// Daemons that are asked at once, each by a thread.
const ASKED_AT_ONCE: usize = 32;

/// A mount in the list; an object of `--json`.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Listed {
    mountpoint: String,
    source: String,
    state: State,
    device: String,
    owner_uid: u32,
    pid: Option<u64>,
    /// Seconds since 1970.
    since: Option<u64>,
    age_seconds: Option<u64>,
    memory_bytes: Option<u64>,
    memory_limit_bytes: Option<u64>,
    /// The remedy, if something is wrong.
    remedy: Option<String>,
}

impl Listed {
    fn new(mount: &MountEntry, state: State, report: &Value, now: u64) -> Self {
        let number = |place: &str| report.pointer(place).and_then(Value::as_u64);
        let of_budget = |name: &str| number(&format!("/core/budget/{name}"));
        let mountpoint = mount.mountpoint.to_string_lossy().into_owned();
        let since = number("/since");
        let memory = of_budget("overhead_bytes").zip(of_budget("held_bytes"));
        Self {
            source: mount.source.to_string_lossy().into_owned(),
            state,
            device: mount.device.to_string(),
            owner_uid: mount.owner_uid,
            pid: number("/pid"),
            since,
            age_seconds: since.map(|since| now.saturating_sub(since)),
            memory_bytes: memory.map(|(program, held)| program.saturating_add(held)),
            memory_limit_bytes: of_budget("limit_bytes"),
            remedy: remedy(state, &quoted(&mountpoint)),
            mountpoint,
        }
    }

    fn cells(&self) -> [String; 5] {
        let none = || "-".to_owned();
        let memory = self.memory_bytes.map(|bytes| match self.memory_limit_bytes {
            Some(limit) => format!("{} of {}", show_bytes(bytes), show_bytes(limit)),
            None => show_bytes(bytes),
        });
        [
            shown(&self.mountpoint).into_owned(),
            shown(&self.source).into_owned(),
            self.state.word().to_owned(),
            self.age_seconds.map_or_else(none, show_age),
            memory.unwrap_or_else(none),
        ]
    }
}

/// The user's remedy for a mount in `state`.
fn remedy(state: State, mountpoint: &str) -> Option<String> {
    match state {
        State::Dead => Some(format!("its daemon is gone; `uvfs unmount {mountpoint}` clears it")),
        State::NotAnswering => Some(
            "the process that serves it does not answer; if it hangs, end it, then unmount".into(),
        ),
        State::OfAnother => Some("root and the user who mounted it see more".into()),
        State::Served | State::Busy | State::WithoutSocket | State::Unknown => None,
    }
}

/// A path as a shell reads it as one word.
fn quoted(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+:,@%".contains(c);
    match path.chars().all(is_plain) {
        true => path.to_owned(),
        false => format!("'{}'", path.replace('\'', "'\\''")),
    }
}

/// Runs the subcommand.
///
/// # Errors
/// If the mount table cannot be read.
pub(crate) fn run(arguments: &MountsArguments) -> Result<ExitCode, Failure> {
    let mounts = mountinfo::read()?;
    let ours: Vec<_> = mounts.iter().filter(|mount| mount.is_uvfs()).collect();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let listed: Vec<_> = look_at(&ours)
        .into_iter()
        .zip(&ours)
        .map(|((state, report), mount)| Listed::new(mount, state, &report, now))
        .collect();
    if arguments.json {
        for one in &listed {
            let line = serde_json::to_string(one);
            crate::print_line(&line.map_err(|error| Failure::refused(error.to_string()))?);
        }
    } else if listed.is_empty() {
        eprintln!("uvfs: nothing is mounted");
    } else {
        crate::print_text(&table(&listed, color::is_wanted(&io::stdout())));
    }
    Ok(ExitCode::SUCCESS)
}

/// Each of `mounts` as an object of `--json`.
pub(crate) fn objects(mounts: &[MountEntry], now: u64) -> Vec<String> {
    let mounts: Vec<_> = mounts.iter().collect();
    let all = look_at(&mounts).into_iter().zip(&mounts);
    let object = |((state, report), mount): ((State, Value), &&MountEntry)| {
        serde_json::to_string(&Listed::new(mount, state, &report, now)).unwrap_or_default()
    };
    all.map(object).collect()
}

/// The state of each of `mounts`, and its daemon's report, or null.
pub(crate) fn look_at(mounts: &[&MountEntry]) -> Vec<(State, Value)> {
    let mut answers = Vec::with_capacity(mounts.len());
    for mounts in mounts.chunks(ASKED_AT_ONCE) {
        thread::scope(|scope| {
            let asked: Vec<_> =
                mounts.iter().map(|mount| scope.spawn(move || ask(mount))).collect();
            // A thread that panicked has no result.
            let unknown = || (Some(State::Unknown), Value::Null);
            answers.extend(asked.into_iter().map(|one| one.join().unwrap_or_else(|_| unknown())));
        });
    }
    let silent = mounts.iter().zip(&answers).filter(|(_, (state, _))| state.is_none());
    let silent: Vec<_> = silent.map(|(mount, _)| *mount).collect();
    let mut lives = liveness::of_all(&silent).into_iter();
    let mut life = || of_life(lives.next().unwrap_or(Life::Unknown));
    answers.into_iter().map(|(state, report)| (state.unwrap_or_else(&mut life), report)).collect()
}

/// The report of the daemon of `mount`; no state if there is no socket.
fn ask(mount: &MountEntry) -> (Option<State>, Value) {
    let connected = client::connect_within(mount, Duration::ZERO);
    let state = of_connection(&connected);
    let Ok(mut daemon) = connected else { return (state, Value::Null) };
    match daemon.ask(Request::Stat, ANSWER_TIME) {
        // One that is too busy to report is there all the same.
        Ok(reply) => (state, reply.report.unwrap_or_default()),
        Err(_) => (Some(State::NotAnswering), Value::Null),
    }
}

/// States that are coloured: well and not.
const STATE_COLORS: [(&str, u8); 3] = [("served", 32), ("dead", 31), ("not answering", 31)];

/// The list for people: columns as wide as their contents, then the remedies.
fn table(listed: &[Listed], colored: bool) -> String {
    let heads = ["MOUNTPOINT", "SOURCE", "STATE", "AGE", "MEMORY"].map(str::to_owned);
    let rows: Vec<_> = std::iter::once(heads).chain(listed.iter().map(Listed::cells)).collect();
    let mut widths = [0; 5];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(widths).enumerate().map(|(at, (cell, width))| {
            let filled = format!("{cell:<width$}");
            match STATE_COLORS.iter().find(|(word, _)| at == 2 && *word == cell) {
                Some((_, code)) => painted(&filled, *code, colored),
                None => filled,
            }
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    for one in listed {
        if let Some(remedy) = &one.remedy {
            text.push_str(&shown(&format!("{}: {remedy}", one.mountpoint)));
            text.push('\n');
        }
    }
    text
}

/// `3 d 4 h`: the two largest units.
fn show_age(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, _) => format!("{hours} h {} min", minutes % 60),
        (days, hours, _) => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mount(mountpoint: &str) -> MountEntry {
        MountEntry {
            id: 1,
            device: mountinfo::Device { major: 0, minor: 50 },
            root: "/".into(),
            mountpoint: mountpoint.into(),
            file_system: mountinfo::FILE_SYSTEM_TYPE.into(),
            source: "memory:".into(),
            owner_uid: 5,
            owner_gid: 5,
        }
    }

    fn report() -> Value {
        let budget =
            json!({"overhead_bytes": 1 << 20, "held_bytes": 1 << 20, "limit_bytes": 8 << 20});
        json!({"pid": 77, "since": 1_000, "core": {"budget": budget}})
    }

    #[test]
    fn the_table_says_what_is_wrong_with_which_mount_and_what_helps() {
        let good = Listed::new(&mount("/mnt/data"), State::Served, &report(), 1_000 + 7_320);
        let dead = Listed::new(&mount("/mnt/a b"), State::Dead, &Value::Null, 1_000);
        let expected = "\
MOUNTPOINT  SOURCE   STATE   AGE        MEMORY
/mnt/data   memory:  served  2 h 2 min  2.0 MiB of 8.0 MiB
/mnt/a b    memory:  dead    -          -
/mnt/a b: its daemon is gone; `uvfs unmount '/mnt/a b'` clears it
";
        let listed = [good, dead];
        assert_eq!(table(&listed, false), expected);
        let colored = table(&listed, true);
        assert!(
            colored.contains("\u{1b}[31mdead") && colored.contains("\u{1b}[32mserved"),
            "{colored}"
        );
        let plain = ["[31m", "[32m", "[0m"]
            .iter()
            .fold(colored, |text, code| text.replace(&format!("\u{1b}{code}"), ""));
        assert_eq!(plain, expected, "columns stand as they do without colours");
    }

    /// The fields are a promise (docs/stat.md): a change here breaks programs.
    #[test]
    fn the_object_has_the_fields_that_are_written_down() {
        let object = |state, report: &Value| {
            serde_json::to_value(Listed::new(&mount("/m"), state, report, 1_060)).unwrap()
        };
        assert_eq!(
            object(State::Served, &report()),
            json!({
                "mountpoint": "/m", "source": "memory:", "state": "served", "device": "0:50",
                "owner_uid": 5, "pid": 77, "since": 1_000, "age_seconds": 60,
                "memory_bytes": 2 << 20, "memory_limit_bytes": 8 << 20, "remedy": null,
            })
        );
        let dead = object(State::Dead, &Value::Null);
        assert_eq!((&dead["state"], &dead["pid"]), (&json!("dead"), &Value::Null));
        assert_eq!(dead["remedy"], json!("its daemon is gone; `uvfs unmount /m` clears it"));
        let document = include_str!("../../../docs/stat.md");
        for field in dead.as_object().unwrap().keys() {
            assert!(document.contains(&format!("`{field}`")), "{field}");
        }
        for state in [
            State::Served,
            State::Busy,
            State::Dead,
            State::NotAnswering,
            State::WithoutSocket,
            State::OfAnother,
            State::Unknown,
        ] {
            assert_eq!(serde_json::to_value(state).unwrap(), json!(state.word()));
            assert!(document.contains(&format!("`{}`", state.word())), "{}", state.word());
        }
    }

    /// A daemon may be another user's, and may send any text.
    #[test]
    fn nonsense_of_a_daemon_is_left_out_and_not_obeyed() {
        let report = json!({"pid": "\u{1b}]0;x\u{7}", "since": u64::MAX, "core": {"budget": {
            "overhead_bytes": u64::MAX, "held_bytes": 7, "limit_bytes": -1}}});
        let listed = Listed::new(&mount("/m\u{1b}[31m"), State::Served, &report, 5);
        assert_eq!(
            (listed.pid, listed.age_seconds, listed.memory_limit_bytes),
            (None, Some(0), None)
        );
        assert_eq!(listed.memory_bytes, Some(u64::MAX));
        assert!(!table(&[listed], false).contains('\u{1b}'));
    }

    #[test]
    fn ages_have_two_units_at_most() {
        let ages = [0, 59, 60, 3_599, 3_600, 86_399, 86_400, 400 * 86_400].map(show_age);
        assert_eq!(
            ages,
            ["0 s", "59 s", "1 min", "59 min", "1 h 0 min", "23 h 59 min", "1 d 0 h", "400 d 0 h"]
        );
    }
}
