//! An image whose overwritten data goes through its journal.

use crate::common::{Place, can_mount};
use crate::images::{assert_same, done, refused, text, tree};
use crate::images_written::{created, sound, work};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::process::Command;

#[test]
fn data_is_written_through_the_journal_where_that_is_wished() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "64M") else { return };
    let journal = || done(&["stat", "--journal", place.mnt()]).stdout;
    place.mount_daemon(&format!("{}?data=journal", text(&image)), &[]);
    work(&place.mountpoint);
    let path = place.mountpoint.join("overwritten");
    fs::write(&path, vec![1; 600_000]).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[2; 300_000], 1000).unwrap();
    file.sync_data().unwrap();
    done(&["drop", &format!("3:{}", place.mnt())]);
    let mut bytes = Vec::new();
    File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
    let new = [vec![1; 1000], vec![2; 300_000], vec![1; 299_000]].concat();
    assert!(bytes == new, "read from the journal's blocks");
    assert!(journal().contains("go through the journal (data=journal)"), "{}", journal());
    drop(file);
    let seen = tree(&place.mountpoint);
    done(&["unmount", place.mnt()]);
    sound(&image);
    place.mount_daemon(&format!("{}?data=ordered", text(&image)), &[]);
    assert_same(&tree(&place.mountpoint), &seen);
    assert!(journal().contains("(ordered)"), "{}", journal());
    done(&["unmount", place.mnt()]);
}

#[test]
fn the_way_of_data_is_refused_where_there_is_none() {
    let place = Place::new();
    let Some(image) = created(&place, "disk.img", "64M") else { return };
    let journal = format!("{}?data=journal", text(&image));
    refused(&["mount", "--read-only", &journal, place.mnt()], "data= says how an image is written");
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-O", "^has_journal"])
        .arg(&image)
        .status();
    assert!(made.unwrap().success());
    refused(&["mount", &journal, place.mnt()], "it has no journal");
    let nonsense = format!("{}?data=writeback", text(&image));
    let outcome = crate::common::run(&["mount", &nonsense, place.mnt()]);
    assert!(outcome.stderr.contains("&data=journal behind it"), "{outcome:?}");
}
