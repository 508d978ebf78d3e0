//! Images with a few bytes changed: a check finds each fault that `e2fsck -fn` finds, except those listed here.
//!
//! `UVFS_MUTATIONS` says how many images (`cargo xtask mutations` sets it); otherwise there are a few. Fixed numbers choose
//! the changes, so that a failure can be repeated.

use crate::images::{Faults, Workshop, open, tools};
use std::fs;
use std::process::{Command, Stdio};
use uvfs_ext::check::check;

/// Images of a run without `UVFS_MUTATIONS`.
const FEW: u64 = 40;

/// Faults that e2fsck reports and a check does not, each with the reason.
const KNOWN: &[(&str, &str)] = &[
    ("node 7", "room for more descriptors, which matters only to a resize"),
    ("node 9,", "a number of the format's own that no reader uses"),
    ("ad block inode", "broken blocks matter only to writers"),
    ("Padding at end of", "bits of a bitmap behind its group are of no block"),
    ("orphan", "a writer finishes removals and truncations"),
    ("i_faddr", "a field without a reader since 1993"),
    ("imagic flag", "a flag without a reader"),
    ("external journal", "the number of a journal that the flags say is not there"),
];

struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// The faults that e2fsck reports, a line each.
fn found_by_e2fsck(path: &std::path::Path) -> Vec<String> {
    let mut fsck = Command::new("timeout");
    fsck.args(["-k", "1", "20", "e2fsck", "-fn"]).arg(path).stdin(Stdio::null());
    let output = fsck.output().unwrap();
    // 0: nothing; 4: errors are left; 8 and more: it could not.
    if output.status.code() == Some(0) {
        return Vec::new();
    }
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let passed = ["e2fsck 1", "Pass ", "\t", "/", "Fix? no", "Clear? no", "Abort? no"];
    let odd = |line: &&str| {
        !line.trim().is_empty() && !passed.iter().any(|start| line.starts_with(start))
    };
    let lines: Vec<String> = said.lines().filter(odd).map(str::to_owned).collect();
    if lines.is_empty() { vec!["something".into()] } else { lines }
}

#[test]
fn a_check_finds_what_e2fsck_finds() {
    if !tools() {
        return;
    }
    let given = std::env::var("UVFS_MUTATIONS").ok().and_then(|text| text.parse().ok());
    let count = given.unwrap_or(FEW);
    let workshop = Workshop::new();
    let tree = workshop.path("few");
    fs::create_dir_all(tree.join("folder/below")).unwrap();
    for number in 0..60 {
        fs::write(tree.join(format!("folder/a name that is long {number}")), vec![7; number * 90])
            .unwrap();
    }
    std::os::unix::fs::symlink("x".repeat(100), tree.join("link")).unwrap();
    fs::hard_link(tree.join("folder/a name that is long 3"), tree.join("again")).unwrap();
    let bases = [
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg,^resize_inode"][..],
        &["-t", "ext2", "-b", "1024", "-O", "^resize_inode"],
        &["-t", "ext4", "-b", "1024"],
    ]
    .map(|options| {
        let bytes = fs::read(workshop.image("base.img", options, Some(&tree))).unwrap();
        let filled = |at: &usize| bytes[at * 1024..][..1024].iter().any(|byte| *byte != 0);
        let used: Vec<usize> = (1..bytes.len() / 1024).filter(filled).collect();
        (bytes, used)
    });
    let path = workshop.path("mutated.img");
    let (mut both, mut ours_alone, mut missed) = (0, 0, Vec::new());
    for nth in 0..count {
        let mut numbers = Numbers((nth + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let (base, used) = &bases[nth as usize % bases.len()];
        let mut bytes = base.clone();
        for _ in 0..=numbers.below(3) {
            let block = used[numbers.below(used.len())] * 1024;
            // Most fields are near the beginning.
            let reach = [64, 256, 1024][numbers.below(3)];
            bytes[block + numbers.below(reach)] ^= 1 << numbers.below(8);
        }
        fs::write(&path, &bytes).unwrap();
        let ours = match open(bytes) {
            Err(error) => vec![error.to_string()],
            Ok(image) => {
                let mut faults = Faults::default();
                check(&image, &mut faults).unwrap();
                faults.0.iter().map(ToString::to_string).collect()
            }
        };
        let theirs = found_by_e2fsck(&path);
        match (ours.is_empty(), theirs.is_empty()) {
            (false, false) => both += 1,
            (false, true) => ours_alone += 1,
            (true, false) => {
                let known = |line: &String| KNOWN.iter().any(|(known, _)| line.contains(known));
                match theirs.iter().all(known) {
                    true => both += 1,
                    false => missed.push((nth, theirs)),
                }
            }
            (true, true) => {}
        }
    }
    println!("{count} images: {both} found by both, {ours_alone} by us alone");
    assert!(both > 0, "nothing was wrong with any of them");
    assert!(missed.is_empty(), "{} missed: {missed:#?}", missed.len());
}
