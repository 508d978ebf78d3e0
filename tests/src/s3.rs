//! A server that speaks S3's protocol on loopback, with faults by plan.
//!
//! # Boundary
//! Listings (version 2), ranges and conditions of a bucket in memory, in the style with the bucket in the path. Does not check
//! signatures, but notes whether a request had one.
//!
//! # Concurrency
//! A thread for each connection, which ends with its client. One lock over the bucket.
//!
//! # Why
//! What a client must survive (answers that are cut, of a wrong length, of another version, half listings) no real server can be
//! made to send. Weakness: it is ours, and misunderstands the protocol as the client may; the benches run against another one.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{LockClass, Mutex};

static BUCKET: LockClass = LockClass::new(284, "s3-bucket", "objects of a server under test");

/// What is wrong with an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This status and code.
    Status(u16, &'static str),
    /// The connection ends in the middle of the body.
    Cut,
    /// The body is whole by its headers, and has half of it.
    Half,
    /// Another version's bytes, with its tag.
    OtherVersion,
    /// A range that was not asked for.
    OtherRange,
    /// The answer waits until another request is under way, too.
    UntilSecond,
}

/// How long an answer waits for a second request at most.
const SECOND_WITHIN: Duration = Duration::from_secs(20);

/// See the module. Ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct S3Server {
    bucket: Arc<Mutex<Bucket>>,
    address: SocketAddr,
}

/// The name of the only bucket.
pub const BUCKET_NAME: &str = "bucket";

#[derive(Debug, Default)]
struct Bucket {
    objects: BTreeMap<String, (u64, Vec<u8>)>,
    versions: u64,
    faults: VecDeque<Fault>,
    lists: u64,
    gets: u64,
    unsigned: u64,
    under_way: usize,
    most: usize,
}

impl S3Server {
    /// Serves an empty bucket on a free port of loopback.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let bucket = Arc::new(Mutex::new(&BUCKET, Bucket::default()));
        let served = Arc::downgrade(&bucket);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(bucket) = served.upgrade() else { return };
                std::thread::spawn(move || serve(stream, &bucket));
            }
        });
        Ok(Self { bucket, address })
    }

    /// Where it is, as an endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Puts an object, as a new version.
    pub fn put(&self, key: &str, content: &[u8]) {
        let mut bucket = self.bucket.lock();
        bucket.versions += 1;
        let version = bucket.versions;
        bucket.objects.insert(key.to_owned(), (version, content.to_vec()));
    }

    /// Removes an object.
    pub fn remove(&self, key: &str) {
        self.bucket.lock().objects.remove(key);
    }

    /// What the next answers meet, one each.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.bucket.lock().faults.extend(faults);
    }

    /// Listings and reads that were asked for so far.
    pub fn requests(&self) -> (u64, u64) {
        let bucket = self.bucket.lock();
        (bucket.lists, bucket.gets)
    }

    /// Requests that had no signature.
    pub fn unsigned(&self) -> u64 {
        self.bucket.lock().unsigned
    }

    /// Most requests that were under way at once.
    pub fn most_at_once(&self) -> usize {
        self.bucket.lock().most
    }
}

/// A request, as far as it matters.
#[derive(Debug, Default)]
struct Request {
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

fn serve(stream: TcpStream, bucket: &Mutex<Bucket>) {
    // A client that goes away ends this thread.
    let _ = stream.set_nodelay(true);
    let Ok(mut writer) = stream.try_clone() else { return };
    let mut reader = BufReader::new(stream);
    while let Ok(Some(request)) = read(&mut reader) {
        let fault = {
            let mut bucket = bucket.lock();
            bucket.under_way += 1;
            bucket.most = bucket.most.max(bucket.under_way);
            bucket.unsigned += u64::from(!request.headers.contains_key("authorization"));
            bucket.faults.pop_front()
        };
        if fault == Some(Fault::UntilSecond) {
            let since = Instant::now();
            while bucket.lock().under_way < 2 && since.elapsed() < SECOND_WITHIN {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let answer = answer(&mut bucket.lock(), &request, fault);
        let written = write(&mut writer, answer, fault);
        bucket.lock().under_way -= 1;
        if written.is_err() || fault == Some(Fault::Cut) {
            let _ = writer.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let target = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut request = Request { path: decoded(path), ..Request::default() };
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        request.query.insert(decoded(key), decoded(value));
    }
    loop {
        line.clear();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        request.headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Ok(Some(request))
}

fn write(writer: &mut TcpStream, mut answer: Answer, fault: Option<Fault>) -> io::Result<()> {
    let mut head = format!("HTTP/1.1 {} Status\r\n", answer.status);
    if fault == Some(Fault::Half) {
        answer.body.truncate(answer.body.len() / 2);
    }
    let _infallible = write!(head, "content-length: {}\r\n", answer.body.len());
    for (name, value) in &answer.headers {
        let _infallible = write!(head, "{name}: {value}\r\n");
    }
    head.push_str("\r\n");
    if fault == Some(Fault::Cut) {
        answer.body.truncate(answer.body.len() / 2);
    }
    writer.write_all(head.as_bytes())?;
    writer.write_all(&answer.body)
}

fn answer(bucket: &mut Bucket, request: &Request, fault: Option<Fault>) -> Answer {
    let refused = |status: u16, code: &str| Answer {
        status,
        headers: vec![("retry-after", "0".into())],
        body: format!("<Error><Code>{code}</Code><Message>planned</Message></Error>").into_bytes(),
    };
    if let Some(Fault::Status(status, code)) = fault {
        return refused(status, code);
    }
    let Some(key) = request.path.strip_prefix(&format!("/{BUCKET_NAME}/")) else {
        return refused(404, "NoSuchBucket");
    };
    if key.is_empty() {
        bucket.lists += 1;
        return list(bucket, &request.query);
    }
    bucket.gets += 1;
    let Some((version, content)) = bucket.objects.get(key) else {
        return refused(404, "NoSuchKey");
    };
    let tag = |version: u64| format!("\"{version:x}\"");
    let other = u64::from(fault == Some(Fault::OtherVersion));
    let wanted = request.headers.get("if-match");
    if other == 0 && wanted.is_some_and(|wanted| *wanted != tag(*version)) {
        return refused(412, "PreconditionFailed");
    }
    let range = request.headers.get("range").and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
    });
    let (first, last) = range.unwrap_or((0, content.len().saturating_sub(1)));
    let end = content.len().min(last + 1);
    if first >= end {
        return refused(416, "InvalidRange");
    }
    let shown = first + usize::from(fault == Some(Fault::OtherRange));
    Answer {
        status: 206,
        headers: vec![
            ("etag", tag(version + other)),
            ("content-range", format!("bytes {shown}-{}/{}", end - 1, content.len())),
        ],
        body: content[first..end].to_vec(),
    }
}

fn list(bucket: &Bucket, query: &BTreeMap<String, String>) -> Answer {
    let text = |key: &str| query.get(key).map_or("", String::as_str);
    let (prefix, token) = (text("prefix"), decoded(text("continuation-token")));
    let entries_max: usize = text("max-keys").parse().unwrap_or(1000);
    let (mut objects, mut prefixes) = (String::new(), String::new());
    let (mut count, mut last, mut next) = (0, String::new(), None);
    for (key, (version, content)) in &bucket.objects {
        let Some(rest) = key.strip_prefix(prefix) else { continue };
        let cut = rest.find('/').filter(|_| text("delimiter") == "/");
        let shown = &key[..cut.map_or(key.len(), |at| prefix.len() + at + 1)];
        if shown == last || (!token.is_empty() && shown <= token.as_str()) {
            continue;
        }
        if count == entries_max {
            next = Some(encoded(&last));
            break;
        }
        let name = encoded(shown);
        let _infallible = match cut {
            Some(_) => write!(prefixes, "<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
            None => write!(
                objects,
                "<Contents><Key>{name}</Key><LastModified>2026-01-01T00:00:{:02}.000Z</LastModified>\
                 <ETag>&quot;{version:x}&quot;</ETag><Size>{}</Size></Contents>",
                version % 60,
                content.len()
            ),
        };
        count += 1;
        shown.clone_into(&mut last);
    }
    let more = next.map_or_else(String::new, |token| {
        format!("<NextContinuationToken>{token}</NextContinuationToken>")
    });
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult><EncodingType>url</EncodingType>\
         <IsTruncated>{}</IsTruncated>{more}{objects}{prefixes}</ListBucketResult>",
        !more.is_empty()
    );
    Answer {
        status: 200,
        headers: vec![("content-type", "application/xml".into())],
        body: body.into(),
    }
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = |at: usize| tail.get(at).and_then(|byte| char::from(*byte).to_digit(16));
        match (first, hex(0), hex(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}
