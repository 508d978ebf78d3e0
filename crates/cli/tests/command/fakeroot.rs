//! `--fakeroot`: an image of another user, used by an ordinary user; and the other users of that mount.
//!
//! The daemon runs as the ordinary user. It has two capabilities, so that the test needs neither `fusermount3` nor a
//! device of mode 0666; the programs that use the mount have none.

use crate::common::{Outcome, Place, can_mount, finish, run};
use crate::images::text;
use crate::images_written::sound;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The user that mounts, and another one; neither is in the image at first.
const OWNER: u32 = 1001;
const OTHER: u32 = 1002;

/// An image with files of root; `None`, with a note, if the test cannot run here.
fn image(place: &Place) -> Option<PathBuf> {
    if !can_mount() {
        return None;
    }
    for program in ["setpriv", "mke2fs", "e2fsck", "debugfs"] {
        if let Err(error) = Command::new(program).arg("-V").output() {
            uvfs_skip::lacking(format_args!("{program}: {error}"));
            return None;
        }
    }
    let tree = &place.source;
    let file = |name: &str, mode, owner: u32| {
        let path = tree.join(name);
        fs::write(&path, name).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
    };
    let folder = |name: &str, mode, owner: u32| {
        let path = tree.join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        chown(&path, Some(owner), Some(owner)).unwrap();
    };
    folder("etc", 0o755, 0);
    folder("secret", 0o700, 0);
    folder("tmp", 0o1777, 0);
    folder("home", 0o755, OTHER);
    file("etc/app.conf", 0o644, 0);
    file("etc/shadow", 0o600, 0);
    file("secret/in", 0o644, 0);
    file("tmp/of root", 0o644, 0);
    file("of group 77", 0o640, 0);
    chown(tree.join("of group 77"), None, Some(77)).unwrap();
    fs::copy("/bin/true", tree.join("true")).unwrap();
    fs::set_permissions(tree.join("true"), fs::Permissions::from_mode(0o4711)).unwrap();
    let path = place.source.with_file_name("image");
    fs::File::create(&path).unwrap().set_len(32 << 20).unwrap();
    let mut make = Command::new("mke2fs");
    make.args(["-q", "-F", "-t", "ext4", "-d"]).args([tree, &path]);
    assert!(make.status().unwrap().success());
    chown(&path, Some(OWNER), Some(OWNER)).unwrap();
    // Other users walk to the mountpoint.
    let folder = place.mountpoint.parent().unwrap();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    chown(&place.mountpoint, Some(OWNER), Some(OWNER)).unwrap();
    Some(path)
}

/// Mounts as the ordinary user.
fn mount(place: &Place, image: &Path, options: &[&str]) -> Outcome {
    let capabilities = "+sys_admin,+dac_override";
    let user = OWNER.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &user, "--regid", &user, "--clear-groups"]);
    command.args(["--inh-caps", capabilities, "--ambient-caps", capabilities]);
    command.arg(env!("CARGO_BIN_EXE_uvfs")).args(["mount", text(image), place.mnt(), "--daemon"]);
    command.args(options).env("UVFS_CONFIG", "/dev/null").env_remove("XDG_RUNTIME_DIR");
    let outcome =
        finish(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    outcome
}

/// What `script` prints in the mount, run by `user` with these further groups: a line for each command, and its status if
/// it failed.
fn shell(place: &Place, user: u32, groups: &str, script: &[&str]) -> Vec<String> {
    let run = |line: &&str| {
        let mut command = Command::new("setpriv");
        let id = user.to_string();
        command.args(["--reuid", &id, "--regid", &id]);
        match groups {
            "" => command.arg("--clear-groups"),
            groups => command.args(["--groups", groups]),
        };
        // Root starts it, and may not enter the mount.
        command.args(["sh", "-c", &format!("cd '{}'; {line}", place.mnt())]);
        let done = command.env("LC_ALL", "C").output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).trim().replace('\n', " ");
        let refused = String::from_utf8_lossy(&done.stderr);
        match done.status.success() {
            true => said,
            false => refused.trim().rsplit(": ").next().unwrap_or_default().to_owned(),
        }
    };
    script.iter().map(run).collect()
}

fn check(place: &Place, user: u32, groups: &str, steps: &[(&str, &str)]) {
    let (script, expected): (Vec<_>, Vec<_>) = steps.iter().copied().unzip();
    let said = shell(place, user, groups, &script);
    for ((line, expected), said) in script.iter().zip(expected).zip(said) {
        assert_eq!(said, expected, "user {user}: {line}");
    }
}

fn end(place: &Place, image: &Path) {
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!((outcome.code, &*outcome.stderr), (Some(0), ""));
    sound(image);
}

/// The owner, the group and the mode of `path` in the image, as another program reads them.
fn owner(image: &Path, path: &str) -> (u32, u32, u32) {
    let shown = Command::new("debugfs").args(["-R", &format!("stat {path}")]).arg(image).output();
    let shown = String::from_utf8(shown.unwrap().stdout).unwrap();
    let field = |name: &str, radix| {
        let rest = shown.split(name).nth(1).unwrap_or_else(|| panic!("no {name} in {shown}"));
        u32::from_str_radix(rest.split_whitespace().next().unwrap(), radix).unwrap()
    };
    (field("User:", 10), field("Group:", 10), field("Mode:", 8))
}

const DENIED: &str = "Permission denied";
const NOT_PERMITTED: &str = "Operation not permitted";

/// An ordinary user that mounted the image of another one met "Permission denied" at each step: its owners and modes bound the
/// one person that could reach the mount, and could read and write the image file anyway. Nothing said what to do.
#[test]
fn an_ordinary_user_does_all_in_an_image_of_another() {
    let place = Place::new();
    let Some(image) = image(&place) else { return };
    let hint = mount(&place, &image, &[]).stderr;
    assert!(hint.contains("is not writable for you; with --fakeroot you may do all"), "{hint}");
    check(&place, OWNER, "", &[("echo x > new", DENIED), ("cat etc/shadow", DENIED)]);
    end(&place, &image);
    assert_eq!(mount(&place, &image, &["--fakeroot"]).stderr, "");
    check(
        &place,
        OWNER,
        "",
        &[
            ("stat -c '%u %a' etc/shadow secret", "0 600 0 700"),
            ("echo x > new", ""),
            ("echo x >> etc/app.conf", ""),
            ("cat etc/shadow", "etc/shadow"),
            ("test -w etc/shadow && test -x secret && ! test -x etc/shadow", ""),
            ("rm etc/app.conf", ""),
            (
                "chmod 755 secret && chown 1234:55 secret && stat -c '%u:%g %a' secret",
                "1234:55 755",
            ),
            ("rm -r secret", ""),
            ("rm 'tmp/of root'", ""),
            ("./true", ""),
            ("mkdir dir && mkfifo dir/fifo && ln -s x dir/link && chown -h 7:8 dir/link", ""),
            ("touch dir/mine && chown 1001:1001 dir/mine", ""),
            ("echo x > dir/program && chmod 6755 dir/program && echo y >> dir/program", ""),
            ("stat -c %a dir/program", "6755"),
            ("chown 5 dir/program && stat -c %a dir/program", "755"),
            ("touch -d @1000000000 etc && stat -c %Y etc", "1000000000"),
            ("echo x > home/file", ""),
            // The kernel asks for rights of the machine's root before it asks a file system.
            ("mknod dir/device b 1 1", NOT_PERMITTED),
        ],
    );
    end(&place, &image);
    assert_eq!(owner(&image, "/new"), (0, 0, 0o644));
    assert_eq!(owner(&image, "/home/file"), (OTHER, OTHER, 0o644), "the owner of the directory");
    assert_eq!(owner(&image, "/dir/link"), (7, 8, 0o777));
    assert_eq!(owner(&image, "/dir/mine"), (OWNER, OWNER, 0o644));
    assert_eq!(owner(&image, "/dir/program"), (5, 0, 0o755));
}

#[test]
fn new_objects_get_the_owner_that_was_wished() {
    let place = Place::new();
    let Some(image) = image(&place) else { return };
    mount(&place, &image, &["--fakeroot", "--new-owner", "70:71"]);
    check(&place, OWNER, "", &[("mkdir dir && echo x > dir/file && ln -s x home/link", "")]);
    let shown = run(&["stat", place.mnt()]).stdout;
    assert!(shown.contains(" fakeroot,") && shown.contains(" new-owner 70:71"), "{shown}");
    end(&place, &image);
    for (path, mode) in [("/dir", 0o755), ("/dir/file", 0o644), ("/home/link", 0o777)] {
        assert_eq!(owner(&image, path), (70, 71, mode), "{path}");
    }
}

/// The kernel checks nothing for a mount with `--fakeroot`: it asks for no open of a file of an image, and walks the names
/// that it knows for each user. So the core must be asked for each name and each open, and must judge.
#[test]
fn other_users_are_judged_by_the_owners_and_modes_of_the_image() {
    let place = Place::new();
    let Some(image) = image(&place) else { return };
    mount(&place, &image, &["--fakeroot", "--allow-other"]);
    // The kernel knows all these names from now on.
    check(&place, OWNER, "", &[("cat secret/in etc/shadow", "secret/inetc/shadow")]);
    check(
        &place,
        OTHER,
        "",
        &[
            ("cat etc/app.conf", "etc/app.conf"),
            ("cat etc/shadow", DENIED),
            ("echo x >> etc/app.conf", DENIED),
            ("truncate -s 0 etc/app.conf", DENIED),
            ("ls secret", DENIED),
            ("cat secret/in", DENIED),
            ("stat secret/in", DENIED),
            ("cd secret && echo inside", "can't cd to secret"),
            ("test -r etc/shadow || test -w etc/app.conf || echo neither", "neither"),
            ("chmod 777 etc", NOT_PERMITTED),
            ("chown 1002 etc", NOT_PERMITTED),
            ("mkdir etc/dir", DENIED),
            ("rm etc/app.conf", DENIED),
            ("rm 'tmp/of root'", NOT_PERMITTED),
            ("mv 'tmp/of root' home", NOT_PERMITTED),
            ("cat 'of group 77'", DENIED),
            ("./true", ""),
            ("cat true", DENIED),
            (
                "echo x > tmp/mine && chmod 4755 tmp/mine && stat -c '%u:%g %a' tmp/mine",
                "1002:1002 4755",
            ),
            ("mkdir home/dir && stat -c '%u:%g' home/dir && rm tmp/mine", "1002:1002"),
            ("touch etc/app.conf", DENIED),
        ],
    );
    check(&place, OTHER, "77", &[("cat 'of group 77'", "of group 77")]);
    check(&place, OWNER, "", &[("cat secret/in && chmod 711 secret", "secret/in")]);
    check(&place, OTHER, "", &[("cat secret/in", "secret/in"), ("ls secret", DENIED)]);
    check(&place, OWNER, "", &[("chmod 700 secret", "")]);
    check(&place, OTHER, "", &[("cat secret/in", DENIED)]);
    end(&place, &image);
    assert_eq!(owner(&image, "/home/dir"), (OTHER, OTHER, 0o755));
}

/// A file that is executable and not readable, a full directory of a read-only image: what is read needs no writer.
#[test]
fn an_image_is_read_whatever_its_modes() {
    let place = Place::new();
    let Some(image) = image(&place) else { return };
    let before = fs::read(&image).unwrap();
    mount(&place, &image, &["--fakeroot", "--read-only"]);
    check(
        &place,
        OWNER,
        "",
        &[
            ("cat secret/in etc/shadow", "secret/inetc/shadow"),
            ("ls secret", "in"),
            ("rm etc/shadow", "Read-only file system"),
        ],
    );
    end(&place, &image);
    assert!(fs::read(&image).unwrap() == before, "the image is as it was");
}

#[test]
fn a_file_system_in_ram_may_have_any_owners() {
    let place = Place::new();
    if image(&place).is_none() {
        return;
    }
    mount(&place, Path::new("memory:"), &["--fakeroot"]);
    check(
        &place,
        OWNER,
        "",
        &[("mkdir d && chown 0:0 d && chmod 700 d && touch d/x && stat -c %u d d/x", "0 0")],
    );
    let outcome = run(&["unmount", place.mnt()]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn it_is_refused_where_it_would_have_no_effect() {
    let place = Place::new();
    let outcome = run(&["mount", place.src(), place.mnt(), "--fakeroot"]);
    let expected = "uvfs: --fakeroot: only root changes owners in a host directory; leave it out\n";
    assert_eq!((outcome.code, &*outcome.stderr), (Some(2), expected));
    let outcome = run(&["mount", "memory:", place.mnt(), "--new-owner", "0"]);
    assert_eq!(outcome.stderr, "uvfs: --new-owner: only with --fakeroot; add that\n");
}
