//! `/etc/fstab`, mount(8) and `--update-fstab`, in a mount namespace whose `/etc` and `/sbin` are copies.

use crate::common::{Outcome, can_mount, finish};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `script` where `/etc/fstab` may be written. `$T` is a fresh folder with `source` and `mnt`, on a disk; `uvfs`
/// is the built program, which is also `/sbin/mount.fuse.uvfs`. `None` if the machine has no such place.
fn in_a_copy(script: &str) -> Option<Outcome> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    for name in ["source", "mnt", "e", "e-work", "s", "s-work"] {
        fs::create_dir(folder.path().join(name)).expect("a fresh folder");
    }
    fs::write(folder.path().join("source/file"), "text\n").expect("a fresh folder");
    let program = Path::new(env!("CARGO_BIN_EXE_uvfs"));
    let bin = program.parent().expect("a folder");
    let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", bin.display());
    let whole = format!(
        "set -u; overlay() {{ mount -t overlay overlay -o lowerdir=$1,upperdir=$T/$2,workdir=$T/$2-work $1 || exit 77; }}; \
         overlay /etc e; overlay /usr/sbin s; : > /etc/fstab; \
         trap 'umount -l $T/mnt 2>/dev/null' EXIT; {script}"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &whole]).env("PATH", path).env("T", folder.path());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(&mut command);
    if outcome.code == Some(77) {
        uvfs_skip::lacking(format_args!("no overlay: {}", outcome.stderr));
        return None;
    }
    Some(outcome)
}

/// The line of the issue, as mount(8) reads it.
#[test]
fn a_line_of_fstab_is_mounted_by_mount_a_and_left_alone_the_second_time() {
    if !can_mount() {
        return;
    }
    let outcome = in_a_copy(
        "ln -s $(command -v uvfs) /sbin/mount.fuse.uvfs; \
         echo \"dir:$T/source $T/mnt fuse.uvfs _netdev,cache_size=1G,log_file=$T/a\\,b,ro 0 0\" > /etc/fstab; \
         mount -a && cat $T/mnt/file && mount -a && ls -d $T/a,b && \
         uvfs stat $T/mnt --json | grep -o '\"read_only\":true\\|\"limit_bytes\":1073741824' && \
         grep -c fuse.uvfs /proc/self/mountinfo && umount $T/mnt",
    );
    let Some(outcome) = outcome else { return };
    assert_eq!((outcome.code, outcome.stderr.as_str()), (Some(0), ""), "{outcome:?}");
    for part in ["text", "/a,b\n", "\"read_only\":true", "\"limit_bytes\":1073741824"] {
        assert!(outcome.stdout.contains(part), "{part}: {outcome:?}");
    }
}

/// A machine that has lost memory since the line was written boots: the size is lowered to the memory, and not refused as on a
/// command line.
#[test]
fn a_size_beyond_the_memory_does_not_stop_a_boot() {
    if !can_mount() {
        return;
    }
    let outcome = in_a_copy(
        "ln -s $(command -v uvfs) /sbin/mount.fuse.uvfs; \
         echo \"dir:$T/source $T/mnt fuse.uvfs cache_size=128T 0 0\" > /etc/fstab; \
         mount -a && cat $T/mnt/file && uvfs stat $T/mnt --json && umount $T/mnt",
    );
    let Some(outcome) = outcome else { return };
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(outcome.stdout.starts_with("text\n"), "{outcome:?}");
    let report = outcome.stdout.lines().nth(1).expect("a report");
    let report: serde_json::Value = serde_json::from_str(report).expect("JSON");
    let limit = report["core"]["budget"]["limit_bytes"].as_u64().expect("a limit");
    assert!((1 << 20..1 << 46).contains(&limit), "{limit}");
}

#[test]
fn mount_says_by_name_which_option_it_cannot_keep_and_fails_with_its_own_status() {
    if !can_mount() {
        return;
    }
    let outcome = in_a_copy(
        "ln -s $(command -v uvfs) /sbin/mount.fuse.uvfs; \
         mount -t fuse.uvfs $T/source $T/mnt -o noexec; echo $?; \
         mount -t fuse.uvfs $T/source $T/mnt -o cache_sise=1G; echo $?; \
         mount -t fuse.uvfs $T/none $T/mnt; echo $?",
    );
    let Some(outcome) = outcome else { return };
    assert_eq!(outcome.stdout, "1\n1\n32\n", "{outcome:?}");
    for part in ["option noexec: ", "option cache_sise: unknown", "none: does not exist"] {
        assert!(outcome.stderr.contains(part), "{part}: {outcome:?}");
    }
}

#[test]
fn the_line_is_written_once_with_a_backup_and_mounts_again() {
    if !can_mount() {
        return;
    }
    let outcome = in_a_copy(
        "echo '# mine' > /etc/fstab; mount='uvfs mount --daemon --update-fstab --cache-size 1G'; \
         $mount $T/source $T/mnt >/dev/null && cat /etc/fstab.uvfs.bak && grep -v '^#' /etc/fstab && \
         mount -a && uvfs unmount $T/mnt && mount -a && cat $T/mnt/file && uvfs unmount $T/mnt && \
         $mount $T/source $T/mnt | grep -c 'has the line already' && readlink /sbin/mount.fuse.uvfs && \
         uvfs unmount $T/mnt && uvfs mount --daemon --update-fstab $T/source /etc; echo $?; grep -c . /etc/fstab",
    );
    let Some(outcome) = outcome else { return };
    let lines: Vec<&str> = outcome.stdout.lines().collect();
    let [backup, line, text, already, link, status, count] = lines[..] else {
        panic!("{outcome:?}");
    };
    assert_eq!(
        (backup, text, already, status, count),
        ("# mine", "text", "1", "1", "2"),
        "{line} {link}"
    );
}
