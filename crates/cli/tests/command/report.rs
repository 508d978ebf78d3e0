//! The output of `uvfs stat` for a mount: for people, and for programs.

use crate::common::{Place, can_mount, run};
use serde_json::Value;
use std::fs;

const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/stat.md");

fn json(place: &Place) -> Value {
    let outcome = run(&["stat", place.mnt(), "--json"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    serde_json::from_str(&outcome.stdout).expect("one object")
}

/// A mount that was asked for something.
fn used() -> Place {
    let place = Place::new();
    place.mount_daemon(place.src(), &["--page-cache", "write-back"]);
    let file = place.mountpoint.join("file");
    fs::write(&file, "text").expect("a fresh file");
    fs::read(&file).expect("it is there");
    fs::metadata(place.mountpoint.join("missing")).expect_err("nothing");
    place
}

/// The report was ninety lines and more, all counters in the order of their names.
#[test]
fn a_person_reads_some_fifteen_lines_and_all_of_it_with_all() {
    if !can_mount() {
        return;
    }
    let place = used();
    let short = run(&["stat", place.mnt()]);
    assert_eq!(short.code, Some(0), "{short:?}");
    let lines: Vec<&str> = short.stdout.lines().collect();
    assert!((14..=17).contains(&lines.len()), "{}", short.stdout);
    for label in
        ["memory", "names", "pages", "requests", "dirty bytes", "write errors", "other errors"]
    {
        let row = format!("  {label} ");
        assert!(
            lines.iter().any(|line| line.starts_with(&row)),
            "no {label:?} in {}",
            short.stdout
        );
    }
    let all = run(&["stat", place.mnt(), "--all"]);
    assert_eq!(all.code, Some(0), "{all:?}");
    let report = json(&place);
    check_shown(&all.stdout, &report["core"]);
    check_shown(&all.stdout, &report["frontend"]);
    assert_eq!(run(&["stat", place.mnt(), "--all", "--json"]).code, Some(2));
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}

/// Each counter has its line, or its column in the table of caches.
fn check_shown(text: &str, counters: &Value) {
    for (name, value) in counters.as_object().expect("an object") {
        let words = name.replace('_', " ");
        // Times have a row for all of their numbers.
        if value.is_object() && value.get("buckets").is_none() {
            check_shown(text, value);
            continue;
        }
        let is_row = |line: &str| {
            line.strip_prefix("  ").is_some_and(|row| row.starts_with(&format!("{words} ")))
        };
        let is_column = ["held", "limit", "hits", "misses", "evicted"].contains(&name.as_str());
        let is_head = name == "store";
        assert!(is_column || is_head || text.lines().any(is_row), "no {words:?} in {text}");
    }
}

/// Counters came as `[["nodes",3],...]` and as `[{"request":"lookup","count":3},...]`: with jq neither could be asked
/// for by its name.
#[test]
fn a_program_asks_for_a_counter_by_its_name() {
    if !can_mount() {
        return;
    }
    let place = used();
    let report = json(&place);
    let nodes = &report["core"]["backend"]["nodes"];
    assert!(nodes.as_u64().is_some_and(|nodes| nodes > 0), "{report}");
    assert!(report["frontend"]["requests"]["lookup"].as_u64().is_some_and(|n| n > 0), "{report}");
    assert!(report["core"]["walks"]["slow"]["miss"].is_u64(), "{report}");
    check_lists("", &report);
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}

/// Lists hold objects; a thing with a name is a field.
fn check_lists(name: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                check_lists(&format!("{name}.{field}"), value);
            }
        }
        Value::Array(values) => {
            for value in values {
                // A bucket's contents are found by its bound, which is no name.
                let is_bucket = name.ends_with(".buckets") && value.get("below_ns").is_some();
                let named = value.as_object().is_some_and(|fields| fields.len() > 2);
                assert!(named || is_bucket, "{name} holds {value}");
                check_lists(name, value);
            }
        }
        _ => {}
    }
}

/// Every field in docs/stat.md exists, and has the documented kind: programs rely on it.
#[test]
fn the_fields_that_are_written_down_are_there() {
    if !can_mount() {
        return;
    }
    let place = used();
    let mark = run(&["policy", "keep", place.mnt()]);
    assert_eq!(mark.code, Some(0), "{mark:?}");
    let report = json(&place);
    let text = fs::read_to_string(SCHEMA).expect("docs/stat.md");
    // The list of mounts has fields of its own, with their own test.
    let (text, _) = text.split_once("# uvfs mounts").expect("docs/stat.md tells of both");
    let rows = text.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut checked = 0;
    for row in rows {
        let (names, rest) = row.split_once("` | ").expect("a row of a field and its kind");
        let kind = rest.split(" |").next().expect("a kind");
        for name in names.split("`, `") {
            check_field(&report, name, kind);
            checked += 1;
        }
    }
    assert!(checked > 60, "{checked} fields are written down");
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}

fn check_field(report: &Value, name: &str, kind: &str) {
    let place = format!("/{}", name.replace("[]", ".0").replace('.', "/"));
    let value = report.pointer(&place).unwrap_or(&Value::Null);
    let holds = match kind {
        "number" => value.is_u64(),
        "number or null" => value.is_u64() || report.pointer(&place) == Some(&Value::Null),
        "text" => value.is_string(),
        "true or false" => value.is_boolean(),
        "text, if there" => value.is_null() || value.is_string(),
        "number, if there" => value.is_null() || value.is_number(),
        "object of numbers" => value
            .as_object()
            .is_some_and(|fields| !fields.is_empty() && fields.values().all(Value::is_u64)),
        "object of [times](#times)" => value
            .as_object()
            .is_some_and(|kinds| kinds.values().all(|one| check_times(one) == Some(()))),
        other => panic!("{name}: no kind is called {other:?}"),
    };
    assert!(holds, "{name} is no {kind}: {value}");
}

/// Whether `times` have the fields that are written down, and the numbers fit each other.
fn check_times(times: &Value) -> Option<()> {
    let number = |field: &str| times.get(field)?.as_u64();
    let (count, sum_ns) = (number("count")?, number("sum_ns")?);
    let (p50_ns, p99_ns) = (number("p50_ns")?, number("p99_ns")?);
    let buckets = times.get("buckets")?.as_array()?;
    let counted: u64 = buckets.iter().map(|one| one["count"].as_u64()).sum::<Option<u64>>()?;
    let bounds: Vec<_> = buckets.iter().map(|one| one["below_ns"].as_u64()).collect();
    let in_order = bounds.is_sorted_by_key(|bound| bound.unwrap_or(u64::MAX));
    (count > 0 && counted == count && p50_ns <= p99_ns && sum_ns > 0 && in_order).then_some(())
}

/// The heading of the list of mounts is no heading: one object a line, with these fields.
#[test]
fn a_mount_in_the_list_has_its_fields() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    place.mount_daemon("memory:", &["--size", "16M"]);
    let outcome = run(&["stat", "--json"]);
    let mounts = outcome.stdout.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let ours = mounts.into_iter().find(|mount| mount["mountpoint"] == place.mnt());
    let ours = ours.expect("it is mounted");
    assert_eq!((&ours["state"], &ours["source"]), (&"served".into(), &"memory:".into()));
    assert!(ours["device"].is_string() && ours["owner_uid"] == 0, "{ours}");
    assert_eq!(run(&["unmount", place.mnt()]).code, Some(0));
}
