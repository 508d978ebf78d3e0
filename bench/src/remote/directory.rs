//! A directory on another machine: sshfs over a link with latency, alone and behind uvfs.
//!
//! # Boundary
//! Starts `sftp-server` for each connection of a link, and the mounts. No ssh takes part: `sshfs -o directport` speaks
//! to the server itself, so that no keys and no users are needed.

use super::link::{Link, Server as Far};
use super::{MountCommand, RemoteArguments, Source, System, make_tree, measure, prepare};
use crate::context;
use crate::server::Server;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where systems put the program.
const SFTP_SERVERS: [&str; 3] = [
    "/usr/lib/openssh/sftp-server",
    "/usr/libexec/openssh/sftp-server",
    "/usr/lib/ssh/sftp-server",
];
const PACKAGES: &str = "apt-get install sshfs openssh-sftp-server";

pub(super) fn run(arguments: &RemoteArguments) -> io::Result<()> {
    let places = prepare()?;
    let program = SFTP_SERVERS.iter().map(PathBuf::from).find(|path| path.is_file());
    let program = program.ok_or_else(|| io::Error::other(format!("no sftp-server; {PACKAGES}")))?;
    let link = Link::open(Far::Program(program), arguments.latency(20))?;
    let served = places.work.join("served");
    fs::create_dir_all(&served).map_err(context(served.display()))?;
    make_tree(&served, arguments.sizes())?;
    let port = link.address.port();
    let folder = served.clone();
    let sshfs = move |mountpoint: &Path, options: &str| {
        let mut command = Command::new("sshfs");
        command.arg(format!("127.0.0.1:{}", folder.display())).arg(mountpoint);
        command.args(["-f", "-o", &format!("directport={port}")]);
        if !options.is_empty() {
            command.args(["-o", options]);
        }
        command
    };
    let (below, log) = (places.work.join("below"), places.work.join("below.log"));
    let uvfs = |options: &'static [&'static str]| -> MountCommand {
        let program = places.uvfs.clone().unwrap_or_else(|| "uvfs".into());
        let below = below.clone();
        Box::new(move |mountpoint| {
            let mut command = Command::new(&program);
            command.arg("mount").arg(&below).arg(mountpoint).args(options);
            command
        })
    };
    let alone = |name, options: &'static str| {
        let command = sshfs.clone();
        let command: MountCommand = Box::new(move |mountpoint| command(mountpoint, options));
        System { name, needs: Some(("sshfs", "sshfs")), command, below: None }
    };
    let above = |name, options| {
        let (command, below, log) = (sshfs.clone(), below.clone(), log.clone());
        // A new one for each mount, so that it does not find the caches of the last one there.
        let start = move || Server::start(&mut command(&below, ""), below.clone(), &log);
        let needs = Some(("sshfs", "sshfs"));
        System { name, needs, command: uvfs(options), below: Some(Box::new(start)) }
    };
    let systems = vec![
        alone("sshfs", ""),
        alone("sshfs-cached", "kernel_cache,dcache_timeout=600,entry_timeout=600,attr_timeout=600"),
        above("uvfs", &[]),
        above(
            "uvfs-write-back",
            &["--page-cache=write-back", "--entry-timeout=10m", "--attr-timeout=10m"],
        ),
    ];
    let written = served.join("new");
    let forget = || match fs::remove_dir_all(&written) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    };
    let source = Source { name: "slow-directory", requests: &|| None, forget_written: &forget };
    measure(arguments, &places, &source, systems)
}
