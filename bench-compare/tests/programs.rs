//! The programs, started from outside: the one becomes the other, and answers.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// The output of `bench-compare`, started with `words`, to `requests`.
fn said(words: &[&str], requests: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bench-compare"));
    command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program without a use for requests may have ended already.
    let _ = child.stdin.take().unwrap().write_all(requests);
    child.wait_with_output().unwrap()
}

fn lines(output: &Output) -> Vec<&str> {
    assert!(output.status.success(), "{output:?}");
    std::str::from_utf8(&output.stdout).unwrap().lines().collect()
}

#[test]
fn each_command_greets_and_answers() {
    let output = said(&["walk"], b"build papaya 2 50\n");
    let walk = lines(&output);
    assert!(walk[0].starts_with("bench-compare walk 2 ") && walk[1].starts_with("built "));

    let output = said(&["rows"], b"run scc 2 100 10\nend\n");
    let rows = lines(&output);
    assert!(rows[0] == "bench-compare rows 1 scc quick_cache" && rows[1].starts_with("ran "));

    let output = said(&["radix"], b"round congee random 2 1000\nend\n");
    let radix = lines(&output);
    assert!(radix[0].starts_with("bench-compare radix 1 btree-mutex "), "{radix:?}");
    assert!(radix[1].starts_with("round insert="), "{radix:?}");

    let mut replay = b"replay foyer 10 2\n".to_vec();
    replay.extend([5_u64.to_le_bytes(), 5_u64.to_le_bytes()].concat());
    let output = said(&["evict"], &replay);
    assert_eq!(
        lines(&output),
        ["bench-compare evict 1 moka quick_cache tinyufo foyer scc", "hits 1 counted 2"]
    );
}

#[test]
fn the_bytes_of_a_build_do_not_depend_on_the_one_before() {
    let requests = b"build papaya 200000\nbuild quick_cache 200000\nrun 2 zipf 1000\n\
                     build papaya 200000\nrun 1 uniform 1000\n";
    let output = said(&["hit"], requests);
    let hit = lines(&output);
    assert!(hit[0].starts_with("bench-compare hit 1 quick_cache "), "{hit:?}");
    let bytes = |nth: usize| hit[nth].strip_prefix("built ").unwrap().parse::<u64>().unwrap();
    let (first, second) = (bytes(1), bytes(4));
    assert!(first > 200_000 * 16, "a key and a value are sixteen bytes: {first}");
    assert!(first.abs_diff(second) < first / 4, "{first} {second}");
    assert!(hit[3].starts_with("ran ") && hit[5].starts_with("ran "), "{hit:?}");
}

#[test]
fn other_words_are_refused_with_those_there_are() {
    for words in [&[][..], &["mount"], &["walk", "radix"]] {
        let output = said(words, b"");
        assert_eq!(output.status.code(), Some(2));
        let usage = String::from_utf8_lossy(&output.stderr);
        assert!(["walk", "radix", "hit", "evict"].iter().all(|word| usage.contains(word)));
    }
}
