//! A bucket: uvfs, s3fs and rclone over a link with latency to versitygw.
//!
//! # Boundary
//! Starts the server on loopback, makes the bucket's objects as files of the server, and starts the mounts. `cargo
//! xtask night --only servers` installs the server; rivals are Debian's packages.

use super::link::{Link, Server as Far};
use super::{MountCommand, RemoteArguments, Source, System, make_tree, measure, prepare};
use crate::places::Places;
use crate::server::Server;
use crate::{cleanup, context};
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const BUCKET: &str = "bench";
const KEY: &str = "benchkey";
const SECRET: &str = "benchsecret";
const INSTALL: &str = "no versitygw in PATH or target/night/servers/bin; `cargo xtask night --only servers` installs it";

pub(super) fn run(arguments: &RemoteArguments) -> io::Result<()> {
    let places = prepare()?;
    let store = places.work.join("store");
    fs::create_dir_all(store.join(BUCKET)).map_err(context(store.display()))?;
    let server = Store::start(&places, &store)?;
    let link = Link::open(Far::Address(server.address), arguments.latency(5))?;
    load(arguments, &places, server.address)?;
    let url = format!("http://{}", link.address);
    let passwords = places.work.join("s3fs-passwords");
    fs::write(&passwords, format!("{KEY}:{SECRET}\n"))?;
    fs::set_permissions(&passwords, PermissionsExt::from_mode(0o600))?;
    let cache = places.work.join("rclone-cache");
    let fuse = |name, needs, command| System { name, needs: Some(needs), command, below: None };
    let s3fs_cached = ",max_stat_cache_size=1000000,stat_cache_expire=86400,enable_noobj_cache,kernel_cache,parallel_count=16";
    let rclone_cached: &[&str] = &[
        "--dir-cache-time=24h",
        "--attr-timeout=1h",
        "--use-server-modtime",
        "--vfs-cache-mode=full",
        // Otherwise the store gets a file seconds after cp has returned.
        "--vfs-write-back=0s",
    ];
    let (s3, rc) = (("s3fs", "s3fs"), ("rclone", "rclone"));
    let systems = vec![
        System { name: "uvfs", needs: None, command: uvfs(&places, &url), below: None },
        fuse("s3fs", s3, s3fs(&url, &passwords, "")),
        fuse("s3fs-cached", s3, s3fs(&url, &passwords, s3fs_cached)),
        fuse("rclone", rc, rclone(&url, &cache, &[])),
        fuse("rclone-cached", rc, rclone(&url, &cache, rclone_cached)),
    ];
    let written = store.join(BUCKET).join("new");
    let forget = || {
        let _ = fs::remove_dir_all(&cache);
        match fs::remove_dir_all(&written) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    };
    let source =
        Source { name: "object", requests: &|| Some(link.requests()), forget_written: &forget };
    measure(arguments, &places, &source, systems)
}

fn uvfs(places: &Places, url: &str) -> MountCommand {
    let program = places.uvfs.clone().unwrap_or_else(|| "uvfs".into());
    let source = format!("s3://{BUCKET}?endpoint={url}&region=us-east-1");
    Box::new(move |mountpoint| {
        let mut command = Command::new(&program);
        command.arg("mount").arg(&source).arg(mountpoint);
        command.env("AWS_ACCESS_KEY_ID", KEY).env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
    })
}

fn s3fs(url: &str, passwords: &Path, more: &'static str) -> MountCommand {
    let passwords = passwords.display();
    let options = format!("url={url},use_path_request_style,passwd_file={passwords}{more}");
    Box::new(move |mountpoint| {
        let mut command = Command::new("s3fs");
        command.arg(BUCKET).arg(mountpoint).args(["-f", "-o", &options]);
        command
    })
}

fn rclone(url: &str, cache: &Path, more: &'static [&'static str]) -> MountCommand {
    let (url, cache) = (url.to_owned(), cache.to_owned());
    Box::new(move |mountpoint| {
        let mut command = Command::new("rclone");
        command.arg("mount").arg(format!(":s3:{BUCKET}")).arg(mountpoint);
        command.args(["--s3-provider", "Other", "--s3-endpoint", &url, "--s3-region", "us-east-1"]);
        command.args(["--s3-access-key-id", KEY, "--s3-secret-access-key", SECRET]);
        command.args(["--s3-force-path-style", "--config", "/dev/null", "--cache-dir"]).arg(&cache);
        command.args(more);
        command
    })
}

/// Puts the tree into the bucket through a mount of ours, which none of the measured ones is.
fn load(arguments: &RemoteArguments, places: &Places, address: SocketAddr) -> io::Result<()> {
    let mountpoint = places.work.join("load");
    let mut command = uvfs(places, &format!("http://{address}"))(&mountpoint);
    let log = places.work.join("load.log");
    let mount = Server::start(&mut command, mountpoint, &log)?;
    make_tree(mount.mountpoint(), arguments.sizes())
}

/// The server, which ends when it is dropped.
struct Store {
    address: SocketAddr,
    child: Child,
}

impl Store {
    fn start(places: &Places, folder: &Path) -> io::Result<Self> {
        let installed = places.repository.join("target/night/servers/bin/versitygw");
        let program: Option<PathBuf> =
            Places::in_path("versitygw").or(Some(installed).filter(|path| path.is_file()));
        let program = program.ok_or_else(|| io::Error::other(INSTALL))?;
        // A free port; nothing else here takes one between the two lines.
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = File::create(places.work.join("versitygw.log"))?;
        let mut command = Command::new(program);
        command.args(["--port", &address.to_string(), "posix"]).arg(folder);
        command.env("ROOT_ACCESS_KEY", KEY).env("ROOT_SECRET_KEY", SECRET);
        let child = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()?;
        cleanup::started(child.id());
        let mut store = Self { address, child };
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            if store.child.try_wait()?.is_some() || Instant::now() > deadline {
                return Err(io::Error::other("versitygw does not listen"));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(store)
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        cleanup::ended(self.child.id());
    }
}
