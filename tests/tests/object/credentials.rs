//! Floor: command. Credentials of each kind are renewed under a mount that is restricted by its own sandbox.
//!
//! The services that lend credentials are one server on loopback. Tests that mount need root and `/dev/fuse`, and are
//! skipped where they lack.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use uvfs_concurrent::lock::{LockClass, Mutex};
use uvfs_fuse::Unmount;
use uvfs_tests::s3::{BUCKET_NAME, S3Server};
use uvfs_tests::{Watchdog, built};

static LENT: LockClass =
    LockClass::new(285, "lent", "what a service under test lends, and for which token");

/// The current credentials of the service: an access key, and the token for which it is lent.
#[derive(Debug, Default)]
struct Lent {
    key: &'static str,
    token: &'static str,
}

/// A container's, an instance's and a token-exchanging service at one address.
struct Lender {
    lent: Arc<Mutex<Lent>>,
    address: String,
}

impl Lender {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let lent = Arc::new(Mutex::new(&LENT, Lent::default()));
        let served = lent.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that disconnects has its answer or needs none.
                let _ = serve(stream, &served);
            }
        });
        Self { lent, address }
    }

    fn lend(&self, key: &'static str, token: &'static str) {
        *self.lent.lock() = Lent { key, token };
    }
}

fn serve(mut stream: TcpStream, lent: &Mutex<Lent>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut head, mut length) = (String::new(), String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        head.push_str(&line);
        line.clear();
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    head.push_str(&String::from_utf8_lossy(&body));
    let path = head.split(' ').nth(1).unwrap_or("").to_owned();
    let Lent { key, token } = *lent.lock();
    let end = "2044-12-01T16:00:00Z";
    let (status, body) = match path.as_str() {
        "/latest/api/token" => (200, "session".to_owned()),
        "/latest/meta-data/iam/security-credentials/" => (200, "role".to_owned()),
        _ if !head.contains(token) => (403, "another token is needed".to_owned()),
        "/" => (
            200,
            format!(
                "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>\
                 <AccessKeyId>{key}</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
                 <SessionToken>t</SessionToken><Expiration>{end}</Expiration></Credentials>\
                 </AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
            ),
        ),
        _ => (
            200,
            format!(
                "{{\"Code\":\"Success\",\"AccessKeyId\":\"{key}\",\"SecretAccessKey\":\"s\",\
                 \"Token\":\"t\",\"Expiration\":\"{end}\"}}"
            ),
        ),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status} Status\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

/// The way in which Kubernetes passes a token to a program: the file is a link into a folder that is a link, too, which
/// is swapped.
fn project(folder: &Path, name: &str, content: &str) -> PathBuf {
    let version = tempfile::Builder::new().prefix("..").tempdir_in(folder).unwrap().keep();
    fs::write(version.join(name), content).unwrap();
    std::os::unix::fs::symlink(&version, folder.join("..new")).unwrap();
    fs::rename(folder.join("..new"), folder.join("..data")).unwrap();
    let file = folder.join(name);
    // It stays at its first place.
    let _ = std::os::unix::fs::symlink(Path::new("..data").join(name), &file);
    file
}

/// The file is replaced as a whole.
fn replace(folder: &Path, name: &str, content: &str) -> PathBuf {
    fs::write(folder.join("new"), content).unwrap();
    fs::rename(folder.join("new"), folder.join(name)).unwrap();
    folder.join(name)
}

fn shared_file(key: &str) -> String {
    format!("[default]\naws_access_key_id={key}\naws_secret_access_key=s\n")
}

/// A kind of credentials: returns the files of the n-th version (of two), and the variables that name all of it.
type Kind<'a> = (&'static str, &'a dyn Fn(&Path, usize) -> Vec<(&'static str, String)>);

/// The fence let credentials be found once: its rules were for the files of the start, so that a token that was renewed
/// could not be read, and for the ports 80 and 443. After some hours every operation was EACCES.
#[test]
fn credentials_of_each_kind_are_renewed_under_the_sandbox() {
    if !uvfs_skip::can_mount() {
        return;
    }
    const KEYS: [&str; 2] = ["AKIAFIRST", "AKIASECOND"];
    const TOKENS: [&str; 2] = ["token-1-of-two", "token-2-of-two"];
    let lender = Lender::start();
    let service = |path: &str| format!("{}{path}", lender.address);
    let named = |path: PathBuf| path.to_str().unwrap().to_owned();
    let kinds: [Kind<'_>; 4] = [
        ("container", &|folder, n| {
            vec![
                ("AWS_CONTAINER_CREDENTIALS_FULL_URI", service("/container")),
                (
                    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                    named(project(folder, "token", TOKENS[n])),
                ),
            ]
        }),
        ("instance", &|_, n| {
            // Its session is lent for no token of ours.
            lender.lend(KEYS[n], "session");
            vec![
                ("AWS_EC2_METADATA_DISABLED", "false".to_owned()),
                ("AWS_EC2_METADATA_SERVICE_ENDPOINT", service("")),
            ]
        }),
        ("web identity", &|folder, n| {
            vec![
                ("AWS_ENDPOINT_URL_STS", service("/")),
                ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/r".to_owned()),
                ("AWS_WEB_IDENTITY_TOKEN_FILE", named(project(folder, "token", TOKENS[n]))),
            ]
        }),
        ("shared file", &|folder, n| {
            vec![(
                "AWS_SHARED_CREDENTIALS_FILE",
                named(replace(folder, "credentials", &shared_file(KEYS[n]))),
            )]
        }),
    ];
    let program = std::env::var_os("UVFS_BINARY").map(PathBuf::from);
    let program = program.unwrap_or_else(|| built("uvfs", "uvfs"));
    for (kind, prepare) in kinds {
        let server = S3Server::start().unwrap();
        server.put("p/x", b"x");
        server.put("p/y", b"y");
        let (files, mountpoint) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = mountpoint.path().to_owned();
        let rescue = move || drop(uvfs_fuse::unmount(&at, Unmount::Lazy));
        let _watchdog = Watchdog::with_rescue(Duration::from_secs(60), rescue);
        let version = |n: usize| {
            lender.lend(KEYS[n], TOKENS[n]);
            server.accept_only(KEYS[n]);
            prepare(files.path(), n)
        };
        let source = format!("s3://{BUCKET_NAME}/p?endpoint={}", server.endpoint());
        let mut mount = Command::new(&program);
        mount.args(["mount", &source]).arg(mountpoint.path()).arg("--daemon");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("AWS_") {
                mount.env_remove(name);
            }
        }
        mount.env("HOME", "/nonexistent").env("AWS_EC2_METADATA_DISABLED", "true");
        let mounted = mount.envs(version(0)).output().unwrap();
        let said = String::from_utf8_lossy(&mounted.stderr).into_owned();
        assert!(mounted.status.success(), "{kind}: {said}");
        let read = |name: &str| fs::read(mountpoint.path().join(name));
        assert_eq!(read("x").unwrap(), b"x", "{kind}");
        version(1);
        assert_eq!(read("y").unwrap(), b"y", "{kind}: renewed");
        uvfs_fuse::unmount(mountpoint.path(), Unmount::Lazy).unwrap();
    }
}
