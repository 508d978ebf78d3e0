//! The server of the control socket before a mount that is busy or whose source hangs.

use super::*;
use std::io::BufRead;
use std::os::unix::fs::MetadataExt;
use uvfs_vfs::Clean;

#[derive(Debug, Default)]
struct Fake {
    busy: AtomicBool,
    /// The source hangs, and every request with it that asks the source.
    hangs: AtomicBool,
    /// Cleanings that ended.
    cleaned: AtomicUsize,
    /// The system call that unmounts does not return.
    unmounts: AtomicBool,
}

impl Served for Fake {
    fn report(&self) -> serde_json::Value {
        serde_json::json!({"source": "fake"})
    }
    fn set(&self, settings: &BTreeMap<String, String>) -> Result<(), String> {
        settings.get("size").filter(|size| *size == "1").map(drop).ok_or("size is 1".into())
    }
    /// `1` is done at once, `2` refused, `3` runs until it is stopped.
    fn clean(
        &self,
        request: &CleanRequest,
        progress: &mut dyn FnMut(CleanProgress) -> ControlFlow<()>,
    ) -> Result<Cleaned, String> {
        self.wait_for_source();
        let mut done = 0;
        let interrupted = match request.request.what {
            Clean::Pages => false,
            Clean::Names => return Err("no".into()),
            Clean::Both => loop {
                done += 1;
                if progress(CleanProgress { done, ..CleanProgress::default() }).is_break() {
                    break true;
                }
            },
        };
        self.cleaned.fetch_add(1, Relaxed);
        Ok(Cleaned { interrupted, ..Cleaned::default() })
    }
    /// `/a` has a directory, others are not there.
    fn cached(&self, request: &CachedRequest) -> Result<Cached, String> {
        self.wait_for_source();
        let there = request.directory.0 == b"/a" && request.depth == Some(2);
        let folded = if there { 7 } else { return Err("no".into()) };
        Ok(Cached { folded, ..Cached::default() })
    }
    fn level(&self, _: &LevelRequest) -> Result<Level, String> {
        Ok(Level { rest_directories: 9, ..Level::default() })
    }
    fn set_policy(&self, request: &PolicyRequest) -> Result<(), String> {
        (request.policy == "keep").then_some(()).ok_or("no".into())
    }
    fn policies(&self) -> Vec<Mark> {
        vec![Mark { inode: 5, ..Mark::default() }]
    }
    fn commit(&self) -> Result<(), String> {
        if self.busy.load(Relaxed) { Err("the disk is gone".into()) } else { Ok(()) }
    }
    fn unmount(&self, lazy: bool) -> Result<(), UnmountError> {
        match self.busy.load(Relaxed) && !lazy {
            true => Err(UnmountError { cause: "in use".into(), busy: true }),
            false => {
                while self.unmounts.load(Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                Ok(())
            }
        }
    }
    fn waits(&self) -> Waits {
        Waits { dirty_bytes: 7 }
    }
    fn source_hangs(&self) -> bool {
        self.hangs.load(Relaxed)
    }
}

impl Fake {
    fn wait_for_source(&self) {
        while self.hangs.load(Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

fn serve() -> (tempfile::TempDir, PathBuf, Server, Arc<Fake>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0:1");
    let fake = Arc::new(Fake::default());
    let server = Server::start(&path, fake.clone(), Ends::Process).unwrap();
    (folder, path, server, fake)
}

fn ask(stream: &mut UnixStream, line: &str) -> String {
    stream.write_all(line.as_bytes()).unwrap();
    let mut reply = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut reply).unwrap();
    reply
}

/// Bug: a client's thread checked for the verdict, and then for the end of the server. When both came between the two
/// checks, it sent no verdict, and the client reported that the daemon had ended without a word.
#[test]
fn a_verdict_that_comes_with_the_end_is_sent() {
    let load = ClientLoad::default();
    let both = || {
        load.verdict.set("told".into()).unwrap();
        load.is_ending.store(true, Release);
    };
    assert_eq!(load.last_line(both), LastLine::Verdict("told"));
    let load = ClientLoad::default();
    assert_eq!(load.last_line(|| {}), LastLine::NotYet);
    load.is_ending.store(true, Release);
    assert_eq!(load.last_line(|| {}), LastLine::None);
}

/// Bug: umount(2) took more than five seconds, and returned after the mount had ended. The daemon ended meanwhile without
/// an answer, and `uvfs unmount` took that for a failure, although all was written.
#[test]
fn the_client_of_a_slow_end_gets_its_verdict() {
    let (_folder, path, server, fake) = serve();
    fake.unmounts.store(true, Relaxed);
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(b"{\"op\":\"unmount\",\"lazy\":false}\n").unwrap();
    while !server.is_asked_to_end() {
        thread::yield_now();
    }
    let (ended, end) = std::sync::mpsc::channel();
    let ending = thread::spawn(move || {
        server.tell_end(Verdict { files: 3, ..Verdict::default() });
        drop(server);
        ended.send(()).unwrap();
    });
    assert!(end.recv_timeout(4 * REPLIES_TIME).is_err(), "it did not wait for its client");
    fake.unmounts.store(false, Relaxed);
    let mut lines = BufReader::new(client).lines();
    let answer = lines.next().unwrap().unwrap();
    assert!(answer.contains("\"ok\":true"), "{answer}");
    let verdict = lines.next().unwrap().unwrap();
    assert!(verdict.contains("\"files\":3"), "{verdict}");
    drop(lines);
    ending.join().unwrap();
}

#[test]
fn requests_are_answered_in_turn_on_one_connection() {
    let (_folder, path, _server, fake) = serve();
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let mut client = UnixStream::connect(&path).unwrap();
    let report = ask(&mut client, "{\"op\":\"stat\"}\n");
    assert_eq!(report, "{\"ok\":true,\"report\":{\"source\":\"fake\"}}\n");
    let locks = ask(&mut client, "{\"op\":\"locks\"}\n");
    assert!(locks.starts_with("{\"ok\":true,\"report\":{\"classes\":["), "{locks}");
    let cached =
        |path: &str| format!("{{\"op\":\"cached\",\"directory\":\"{path}\",\"depth\":2}}\n");
    assert!(ask(&mut client, &cached("/a")).contains("\"folded\":7"));
    assert_eq!(ask(&mut client, &cached("/b")), "{\"ok\":false,\"error\":\"no\"}\n");
    let level = "{\"op\":\"level\",\"directory\":\"/a\"}\n";
    assert!(ask(&mut client, level).contains("\"rest_directories\":9"));
    let policy = |policy: &str| {
        format!("{{\"op\":\"policy\",\"directory\":\"/a\",\"policy\":\"{policy}\"}}\n")
    };
    assert_eq!(ask(&mut client, &policy("keep")), "{\"ok\":true}\n");
    assert_eq!(ask(&mut client, &policy("hold")), "{\"ok\":false,\"error\":\"no\"}\n");
    assert!(ask(&mut client, "{\"op\":\"policies\"}\n").contains("\"inode\":5"));
    assert!(ask(&mut client, "nonsense\n").contains("not a request"));
    let set = |value: &str| format!("{{\"op\":\"set\",\"settings\":{{\"size\":\"{value}\"}}}}\n");
    assert_eq!(ask(&mut client, &set("1")), "{\"ok\":true}\n");
    assert_eq!(ask(&mut client, &set("2")), "{\"ok\":false,\"error\":\"size is 1\"}\n");
    fake.busy.store(true, Relaxed);
    assert!(ask(&mut client, "{\"op\":\"unmount\"}\n").contains("\"busy\":true"));
    assert_eq!(ask(&mut client, "{\"op\":\"unmount\",\"lazy\":true}\n"), "{\"ok\":true}\n");
}

#[test]
fn an_endless_line_is_refused() {
    let (_folder, path, _server, _) = serve();
    let mut client = UnixStream::connect(&path).unwrap();
    let reply = ask(&mut client, &"x".repeat(protocol::REQUEST_BYTES_MAX as usize));
    assert!(reply.contains("longer than 64 KiB"), "{reply}");
}

#[test]
fn silent_clients_leave_room_until_the_places_are_taken() {
    let (_folder, path, _server, _) = serve();
    let silent: Vec<_> =
        (0..CLIENTS_MAX - 1).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let mut last = UnixStream::connect(&path).unwrap();
    assert!(ask(&mut last, "{\"op\":\"stat\"}\n").contains("\"ok\":true"));
    let mut ninth = UnixStream::connect(&path).unwrap();
    assert!(ask(&mut ninth, "{\"op\":\"stat\"}\n").contains("too many requests"));
    drop((silent, last));
    // Their threads notice in their own time.
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        let mut next = UnixStream::connect(&path).unwrap();
        let mut reply = String::new();
        let _ = next.write_all(b"{\"op\":\"stat\"}\n");
        let _ = BufReader::new(next).read_line(&mut reply);
        if reply.contains("report") {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("no place came free");
}

fn request(digit: char) -> String {
    format!("{{\"op\":\"clean\",\"request\":\"{digit}\"}}\n")
}

/// Reads until the last line of a cleaning.
fn reply(client: UnixStream) -> Reply {
    client.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut lines = BufReader::new(client);
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < deadline, "it goes on");
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        match serde_json::from_str(&line).expect("a line of a cleaning") {
            CleanLine::Progress { .. } => {}
            CleanLine::Reply(reply) => return reply,
        }
    }
}

#[test]
fn a_cleaning_is_reported_step_by_step_while_others_are_served() {
    let (_folder, path, _server, fake) = serve();
    let mut client = UnixStream::connect(&path).unwrap();
    assert!(ask(&mut client, &request('1')).contains("\"interrupted\":false"));
    assert_eq!(ask(&mut client, &request('2')), "{\"ok\":false,\"error\":\"no\"}\n");
    let step = ask(&mut client, &request('3'));
    assert!(step.starts_with("{\"progress\":{"), "{step}");
    let mut other = UnixStream::connect(&path).unwrap();
    assert!(ask(&mut other, "{\"op\":\"stat\"}\n").contains("fake"), "meanwhile");
    assert_eq!(fake.cleaned.load(Relaxed), 1, "it goes on");
    client.shutdown(std::net::Shutdown::Write).unwrap();
    let reply = reply(client);
    assert!(reply.ok && reply.report.unwrap()["interrupted"] == true);
}

#[test]
fn a_client_that_goes_away_or_an_end_of_the_daemon_ends_its_cleaning() {
    let (_folder, path, server, fake) = serve();
    let mut client = UnixStream::connect(&path).unwrap();
    ask(&mut client, &request('3'));
    drop(client);
    let deadline = Instant::now() + Duration::from_secs(20);
    while fake.cleaned.load(Relaxed) < 1 {
        assert!(Instant::now() < deadline, "it continues without a client");
        thread::yield_now();
    }
    let mut client = UnixStream::connect(&path).unwrap();
    ask(&mut client, &request('3'));
    drop(server);
    assert_eq!(fake.cleaned.load(Relaxed), 2, "before the server was gone");
    assert!(reply(client).ok);
}

#[test]
fn a_client_that_does_not_read_holds_up_no_cleaning() {
    let (_folder, path, _server, fake) = serve();
    let mut client = UnixStream::connect(&path).unwrap();
    client.write_all(request('3').as_bytes()).unwrap();
    let (ours, theirs) = UnixStream::pair().unwrap();
    while rustix::net::send(&ours, b"x", SendFlags::DONTWAIT).is_ok() {}
    assert!(tell(&ours, CleanProgress::default()), "full is not gone");
    assert!(!is_leaving(&ours));
    drop(theirs);
    assert!(is_leaving(&ours) && !tell(&ours, CleanProgress::default()));
    assert_eq!(fake.cleaned.load(Relaxed), 0);
    client.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(reply(client).ok);
}

#[test]
fn cleanings_leave_places_for_short_requests() {
    let (_folder, path, _server, _fake) = serve();
    let clients: Vec<_> = (0..LONG_MAX)
        .map(|_| {
            let mut client = UnixStream::connect(&path).unwrap();
            assert!(ask(&mut client, &request('3')).contains("progress"));
            client
        })
        .collect();
    let mut next = UnixStream::connect(&path).unwrap();
    let refused = ask(&mut next, &request('1'));
    assert!(refused.contains("4 cleanings are under way; try again"), "{refused}");
    assert!(ask(&mut next, "{\"op\":\"stat\"}\n").contains("fake"));
    drop(clients);
}

#[test]
fn strangers_are_not_heard() {
    assert!(is_permitted(0, 1000) && is_permitted(1000, 1000));
    assert!(!is_permitted(1001, 1000) && !is_permitted(1000, 0));
}

#[test]
fn a_left_over_socket_is_replaced_and_ours_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0:1");
    drop(UnixListener::bind(&path).unwrap());
    let server = Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    drop(server);
    assert!(!path.exists());
}

/// Bug: a device number is free as soon as its mount is gone, before the daemon has ended. If the next mount got the
/// number, the ending daemon removed the new daemon's socket.
#[test]
fn a_socket_that_another_has_replaced_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0:1");
    let ends = Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
    let begins = Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
    drop(ends);
    assert!(UnixStream::connect(&path).is_ok());
    drop(begins);
    assert!(!path.exists());
}

/// Between the look whether the socket is its own and the removal, the daemon that ended could be overtaken by one
/// that put its own there: the mount that had begun then had no socket for as long as it lived.
#[test]
fn a_server_that_ends_beside_one_that_begins_leaves_its_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0:1");
    let start = || Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
    let mut ends = start();
    for turn in 0..3000 {
        let barrier = std::sync::Barrier::new(2);
        let begins = thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                drop(ends);
            });
            barrier.wait();
            start()
        });
        assert!(UnixStream::connect(&path).is_ok(), "turn {turn}");
        ends = begins;
    }
}

/// A process that was stopped while it had the folder would keep every mount of its user from starting.
#[test]
fn a_folder_that_another_process_keeps_is_waited_for_a_moment_only() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("0:1");
    let kept = File::open(folder.path()).unwrap();
    rustix::fs::flock(&kept, FlockOperation::LockExclusive).unwrap();
    let server = Server::start(&path, Arc::new(Fake::default()), Ends::Process).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
    drop(server);
}

/// A source that hung took a place for each request that asked it. Behind eight of them even the unmount was refused, and the
/// mount could be ended by signals alone.
#[test]
fn a_source_that_hangs_takes_no_place() {
    let (_folder, path, server, fake) = serve();
    fake.hangs.store(true, Relaxed);
    let cached = "{\"op\":\"cached\",\"directory\":\"/a\",\"depth\":2}\n";
    let asked = |line: &str| ask(&mut UnixStream::connect(&path).unwrap(), line);
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS_MAX)
            .map(|at| {
                let line = if at % 2 == 0 { cached.into() } else { request('1') };
                scope.spawn(move || asked(&line))
            })
            .collect();
        for client in clients {
            let reply = client.join().unwrap();
            assert!(reply.contains("the source does not answer"), "{reply}");
        }
    });
    // Refused at once now, for as many threads are lost.
    assert!(asked(cached).contains("requests wait for it already"));
    assert!(asked("{\"op\":\"stat\"}\n").contains("fake"));
    fake.hangs.store(false, Relaxed);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !asked(cached).contains("\"folded\":7") {
        assert!(Instant::now() < deadline, "the threads are not given back");
        thread::yield_now();
    }
    fake.hangs.store(true, Relaxed);
    assert_eq!(asked("{\"op\":\"unmount\"}\n"), "{\"ok\":true}\n");
    drop(server);
    fake.hangs.store(false, Relaxed);
}

/// Bug: no places were reserved for any kind of request: silent clients kept their mount from being unmounted.
#[test]
fn a_place_is_kept_for_the_end() {
    let (_folder, path, _server, _) = serve();
    let mut taken: Vec<_> = (0..CLIENTS_MAX).map(|_| UnixStream::connect(&path).unwrap()).collect();
    // The last of them is answered, so all of them have their places.
    assert!(ask(taken.last_mut().unwrap(), "{\"op\":\"stat\"}\n").contains("fake"));
    let mut ninth = UnixStream::connect(&path).unwrap();
    assert_eq!(ask(&mut ninth, "{\"op\":\"unmount\"}\n"), "{\"ok\":true}\n");
}
