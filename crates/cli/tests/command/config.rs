//! Settings from files and variables, as a mount takes them.

use crate::common::{Place, can_mount, finish, run, uvfs};
use std::fs;

#[test]
fn a_mount_takes_what_its_command_line_does_not_say_from_a_file_and_variables() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let file = place.source.join("config.toml");
    let text = format!(
        "[mount]\ndaemon = true\ncache-size = \"1G\"\nread-only = true\n[mountpoint.\"{}\"]\nname = \"named\"\n",
        place.mnt()
    );
    fs::write(&file, text).unwrap();
    let mut command = uvfs();
    command.args(["mount", "memory:", place.mnt(), "--size", "16M", "--cache-size", "2G"]);
    let outcome = finish(command.env("UVFS_CONFIG", &file).env("UVFS_ATTR_TIMEOUT", "7s"));
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    let report = run(&["stat", place.mnt(), "--json"]).stdout;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["core"]["budget"]["limit_bytes"], 2_u64 << 30, "the command line");
    assert_eq!(report["options"]["attr_timeout"], "7s", "the variable");
    assert_eq!(report["options"]["read_only"], true, "the file");
    assert!(run(&["mounts"]).stdout.contains("  named  "), "the file, of this mountpoint");
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}

/// The user that reads "--size: leave it out" did not write it.
#[test]
fn a_refusal_tells_which_options_are_from_elsewhere() {
    let place = Place::new();
    let file = place.source.join("config.toml");
    fs::write(&file, "[mount]\nsize = \"1G\"\n").unwrap();
    let mut command = uvfs();
    let outcome =
        finish(command.args(["mount", place.src(), place.mnt()]).env("UVFS_CONFIG", &file));
    assert_eq!(outcome.code, Some(2), "{outcome:?}");
    let origin = format!("uvfs: --size is from {} [mount]\n", file.display());
    assert!(
        outcome.stderr.starts_with("uvfs: --size: ") && outcome.stderr.ends_with(&origin),
        "{outcome:?}"
    );
}

#[test]
fn config_show_tells_each_value_and_where_it_is_from() {
    let place = Place::new();
    let file = place.source.join("config.toml");
    fs::write(&file, "[mount]\ncache-size = \"1G\"\n").unwrap();
    let show = |more: &[&str]| {
        let mut command = uvfs();
        command.args(["config", "show"]).args(more).env("UVFS_CONFIG", &file);
        let outcome = finish(command.env("UVFS_WATCH", "1"));
        assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
        outcome.stdout
    };
    let line = |text: &str, origin: &str| format!("{text:<40} # {origin}\n");
    let size = line("cache-size = \"1G\"", &format!("{} [mount]", file.display()));
    let watch = line("watch = true", "environment UVFS_WATCH");
    assert_eq!(show(&[]), format!("{watch}{size}"));
    let all = show(&["--effective"]);
    for expected in
        [size, watch, line("page-cache = \"auto\"", "default"), line("# size =", "default")]
    {
        assert!(all.contains(&expected), "{expected}: {all}");
    }
    let objects = show(&["--effective", "--json"]);
    let first: serde_json::Value = serde_json::from_str(objects.lines().next().unwrap()).unwrap();
    assert!(first["option"].is_string() && first["origin"].is_string(), "{first}");
    fs::write(&file, "[mount]\ncache-sise = \"1G\"\n").unwrap();
    let refused = finish(uvfs().args(["config", "show"]).env("UVFS_CONFIG", &file));
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("[mount]: cache-sise: unknown"), "{refused:?}");
}
