//! `uvfs image info`: the facts of an image.

use crate::Failure;
use crate::print_text;
use crate::units;
use serde_json::json;
use std::ffi::OsStr;
use std::fmt::Write;
use std::process::ExitCode;
use uvfs_ext::Image;
use uvfs_terminal::shown::shown;

/// Prints the fields of the superblock, and the meaning of its flags for a reader.
pub(super) fn run(name: &OsStr, json: bool) -> Result<ExitCode, Failure> {
    let image = super::open(name)?;
    if json {
        crate::print_line(&object(&image).to_string());
    } else {
        print_text(&text(&image));
    }
    Ok(ExitCode::SUCCESS)
}

fn object(image: &Image) -> serde_json::Value {
    let superblock = image.superblock();
    let names: Vec<_> = superblock.features.known().map(|feature| feature.name).collect();
    let unknown: Vec<_> = superblock.features.unknown().into_iter().map(|(_, name)| name).collect();
    let reduced: Vec<_> = reductions(image)
        .into_iter()
        .map(|(name, what)| json!({ "feature": name, "service": what }))
        .collect();
    let [made, mounted, written] = superblock.times();
    let recovery = image.recovery().map(|recovery| {
        json!({
            "transactions": recovery.transactions,
            "blocks": recovery.blocks,
            "revoked": recovery.revoked,
            "fast_commits": recovery.fast_commits,
        })
    });
    json!({
        "kind": superblock.kind(),
        "label": superblock.label(),
        "uuid": superblock.uuid(),
        "block_size": superblock.block_size,
        "cluster_blocks": superblock.cluster_blocks,
        "blocks": superblock.blocks,
        "blocks_free": superblock.free_blocks(),
        "blocks_reserved": superblock.reserved_blocks(),
        "groups": superblock.groups,
        "blocks_per_group": superblock.blocks_per_group,
        "inodes": superblock.inodes,
        "inodes_free": superblock.free_inodes(),
        "inodes_per_group": superblock.inodes_per_group,
        "inode_size": superblock.inode_size,
        "made": made,
        "mounted": mounted,
        "written": written,
        "clean": superblock.is_clean() && image.recovery().is_none(),
        "errors_noted": superblock.has_errors(),
        "features": names,
        "unknown_features": unknown,
        "reduced": reduced,
        "recovery": recovery,
    })
}

/// The flags that reduce the service. A replay clears the flag of a journal that needs one.
pub fn reductions(image: &Image) -> Vec<(String, &'static str)> {
    let mut reductions = image.superblock().features.reductions();
    reductions.retain(|(name, _)| name != "fast_commit" || has_fast_commits(image));
    reductions
}

fn has_fast_commits(image: &Image) -> bool {
    image.recovery().is_some_and(|recovery| recovery.fast_commits)
}

fn text(image: &Image) -> String {
    let superblock = image.superblock();
    let mut text = String::new();
    let mut line = |key: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{key:<12} {value}");
    };
    let size = superblock.blocks.saturating_mul(superblock.block_size.into());
    line("kind", format!("{}, {}", superblock.kind(), units::show_bytes(size)));
    let label = superblock.label();
    line("label", if label.is_empty() { "none".into() } else { shown(&label).into_owned() });
    line("uuid", superblock.uuid());
    let free = superblock.free_blocks();
    let block = superblock.block_size;
    line("blocks", format!("{} of {block} bytes, {free} free", superblock.blocks));
    let (inode, free) = (superblock.inode_size, superblock.free_inodes());
    line("inodes", format!("{} of {inode} bytes, {free} free", superblock.inodes));
    line("groups", format!("{} of {} blocks", superblock.groups, superblock.blocks_per_group));
    let state = match (superblock.has_errors(), image.recovery()) {
        (true, _) => "errors were noted; `uvfs image check` shows what it finds".into(),
        (false, Some(recovery)) => format!(
            "not unmounted: {} transactions with {} blocks replayed in memory",
            recovery.transactions, recovery.blocks
        ),
        (false, None) if superblock.is_clean() => "clean".into(),
        (false, None) => "not unmounted, and there is nothing to replay".into(),
    };
    line("state", state);
    let names: Vec<_> = superblock.features.known().map(|feature| feature.name).collect();
    line("features", names.join(" "));
    for (name, what) in reductions(image) {
        line("note", format!("{name}: {what}"));
    }
    text
}
