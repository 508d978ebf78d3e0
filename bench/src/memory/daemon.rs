//! The measured daemon.
//!
//! # Boundary
//! Starts it with a size or in a control group, reads its limit, and requests drops and size changes.

use super::sampler;
use super::{Bound, Mounted};
use crate::clean::said;
use crate::context;
use crate::group::Group;
use crate::places::Places;
use crate::server::Server;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// A shell's line: joins the group and becomes the command.
const IN_GROUP: &str = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;

/// How long a daemon may take from its mount to its control socket.
const SOCKET_WAIT: Duration = Duration::from_secs(20);
const SOCKET_LOOK: Duration = Duration::from_millis(50);

/// A mount of the source.
pub(super) struct Daemon {
    server: Server,
    uvfs: PathBuf,
}

impl Daemon {
    /// Serves `mounted` with `size`, or by its own choice if there is none.
    pub(super) fn start(
        places: &Places,
        mounted: &Mounted,
        tag: &str,
        size: Option<&str>,
        group: Option<&Group>,
    ) -> io::Result<Self> {
        let uvfs = places.uvfs.clone().ok_or_else(|| io::Error::other("no mount tool"))?;
        let mountpoint = places.work.join(tag);
        let mut command = match group {
            None => Command::new(&uvfs),
            Some(group) => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(IN_GROUP).arg(group.folder()).arg(&uvfs);
                command
            }
        };
        command.arg("mount").arg(&mounted.source).arg(&mountpoint);
        if let Some(page_cache) = &mounted.page_cache {
            command.args(["--page-cache", page_cache]);
        }
        // Long lifetimes: the phases are about memory, not about the number of requests to the store.
        command.args(["--attr-timeout", "600s", "--entry-timeout", "600s"]);
        command.args(["--negative-timeout", "600s"]);
        if let Some(size) = size {
            command.args(["--cache-size", size]);
        }
        let log = places.work.join(format!("{tag}.log"));
        Ok(Self { server: Server::start(&mut command, mountpoint, &log)?, uvfs })
    }

    pub(super) fn root(&self) -> PathBuf {
        self.server.mountpoint().to_path_buf()
    }

    pub(super) fn pid(&self) -> u32 {
        self.server.pid()
    }

    /// Whether its process still has memory: one that was killed has none.
    pub(super) fn lives(&self) -> bool {
        sampler::now(self.pid()).0 > 0
    }

    /// The limit in its own report. A mount exists a moment before its control socket, and on a busy machine that
    /// moment is long.
    pub(super) fn bound(&self) -> io::Result<Bound> {
        let deadline = Instant::now() + SOCKET_WAIT;
        loop {
            match self.granted() {
                Err(_) if Instant::now() < deadline && self.lives() => thread::sleep(SOCKET_LOOK),
                granted => return granted,
            }
        }
    }

    fn granted(&self) -> io::Result<Bound> {
        let text = said(Command::new(&self.uvfs).arg("stat").arg(self.root()).arg("--json"))?;
        let report: serde_json::Value = serde_json::from_str(&text)?;
        let of = |name: &str| {
            let bytes = report["core"]["budget"][name].as_u64();
            bytes.ok_or_else(|| io::Error::other(format!("uvfs stat says no {name}")))
        };
        Ok(Bound { size_bytes: of("limit_bytes")?, fixed_bytes: of("fixed_bytes")? })
    }

    /// Has it drop pages, names and inodes of everything.
    pub(super) fn drop_all(&self) -> io::Result<()> {
        let request = format!("3:{}", self.root().display());
        said(Command::new(&self.uvfs).arg("drop").arg(request)).map(drop)
    }

    /// Gives it the size that it has.
    pub(super) fn set_own_size(&self) -> io::Result<()> {
        let setting = format!("cache-size={}", self.bound()?.size_bytes);
        let mut command = Command::new(&self.uvfs);
        said(command.arg("set").arg(self.root()).arg(&setting)).map(drop).map_err(context(setting))
    }
}
