//! A server that speaks S3's protocol on loopback, with faults by plan.
//!
//! # Boundary
//! Listings (version 2), ranges, puts, uploads in parts, copies, removals and conditions of a bucket in memory, in the
//! style with the bucket in the path. Does not check signatures, but records whether a request had one; checks the
//! checksums of puts.
//!
//! # Concurrency
//! A thread for each connection, which ends with its client. One lock over the bucket.
//!
//! # Why
//! A client must survive answers that are cut, of a wrong length, of another version, or half a listing; no real server
//! can be made to send them. Weakness: it is ours, and may share the client's misunderstandings of the protocol; the
//! benches use another server.

use reqsign_core::hash::{base64_encode, hex_sha256};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uvfs_concurrent::lock::{LockClass, Mutex};

static BUCKET: LockClass = LockClass::new(284, "s3-bucket", "objects of a server under test");

/// The fault of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// This status and code.
    Status(u16, &'static str),
    /// The connection ends in the middle of the body.
    Cut,
    /// The body is whole by its headers, and has half of it.
    Half,
    /// A bit of the object's bytes is another one. Nothing, where the answer tells no checksum.
    Flip,
    /// Another version's bytes, with its tag.
    OtherVersion,
    /// A range that was not asked for.
    OtherRange,
    /// The answer waits until another request is under way, too.
    UntilSecond,
    /// The connection ends before the answer; the request was carried out.
    Lost,
    /// The request arrives twice, like from a proxy that retries: the answer is the second one's.
    Twice,
    /// The answer waits so many milliseconds, after the request was carried out.
    Slow(u64),
    /// Busy (503), and to be asked again after so many seconds.
    RetryAfter(u64),
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
    /// Each object's metadata, from puts and copies.
    metadata: BTreeMap<String, Metadata>,
    uploads: BTreeMap<String, (Metadata, BTreeMap<u32, Vec<u8>>)>,
    versions: u64,
    puts: u64,
    faults: VecDeque<Fault>,
    lists: u64,
    gets: u64,
    unsigned: u64,
    /// The only access key that is taken; all, if it is empty.
    access_key: String,
    /// Answers to reads of objects are delayed.
    holds: bool,
    /// The form of tags in listings and in headers, with `{}` for the part between the quotes; empty: unchanged.
    tag_forms: [String; 2],
    under_way: usize,
    most: usize,
    /// Each request, its fault, and its answer.
    recorded: Vec<String>,
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
        bucket.metadata.remove(key);
    }

    /// Puts an object with metadata: headers by their names.
    pub fn put_with(&self, key: &str, content: &[u8], metadata: &[(&str, &str)]) {
        self.put(key, content);
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let metadata = metadata.iter().map(owned).collect();
        self.bucket.lock().metadata.insert(key.to_owned(), metadata);
    }

    /// The metadata of an object, by the names of its headers.
    pub fn metadata(&self, key: &str) -> BTreeMap<String, String> {
        self.bucket.lock().metadata.get(key).cloned().unwrap_or_default()
    }

    /// The content of an object.
    pub fn content(&self, key: &str) -> Option<Vec<u8>> {
        self.bucket.lock().objects.get(key).map(|(_, content)| content.clone())
    }

    /// The keys, in their order.
    pub fn keys(&self) -> Vec<String> {
        self.bucket.lock().objects.keys().cloned().collect()
    }

    /// Uploads that were neither ended nor given up.
    pub fn uploads(&self) -> usize {
        self.bucket.lock().uploads.len()
    }

    /// Objects, parts and copies that were put so far.
    pub fn puts(&self) -> u64 {
        self.bucket.lock().puts
    }

    /// Removes an object.
    pub fn remove(&self, key: &str) {
        self.bucket.lock().objects.remove(key);
    }

    /// Faults of the next answers, one each.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.bucket.lock().faults.extend(faults);
    }

    /// No faults from now on.
    pub fn heal(&self) {
        self.bucket.lock().faults.clear();
    }

    /// Faults that are still planned.
    pub fn planned(&self) -> usize {
        self.bucket.lock().faults.len()
    }

    /// All requests so far in the order in which they were done, each with its conditions, its fault and its answer.
    pub fn recorded(&self) -> Vec<String> {
        self.bucket.lock().recorded.clone()
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

    /// Writes tags in listings and in headers in these two forms, in which `{}` is the tag without its quotes. A form
    /// of a space omits them.
    pub fn write_tags(&self, forms: [&str; 2]) {
        self.bucket.lock().tag_forms = forms.map(str::to_owned);
    }

    /// Answers no read of an object while this is so: its readers hang.
    pub fn hold_reads(&self, holds: bool) {
        self.bucket.lock().holds = holds;
    }

    /// Requests that are under way now.
    pub fn under_way(&self) -> usize {
        self.bucket.lock().under_way
    }

    /// Refuses all requests from now on but those that are signed with the access key `key`.
    pub fn accept_only(&self, key: &str) {
        key.clone_into(&mut self.bucket.lock().access_key);
    }

    /// Most requests that were under way at once.
    pub fn most_at_once(&self) -> usize {
        self.bucket.lock().most
    }
}

/// A request, as far as it matters.
#[derive(Debug, Default)]
struct Request {
    method: String,
    body: Vec<u8>,
    path: String,
    query: BTreeMap<String, String>,
    headers: BTreeMap<String, String>,
}

#[derive(Debug)]
struct Answer {
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

fn serve(stream: TcpStream, bucket: &Mutex<Bucket>) {
    // This thread ends with its client.
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
        let is_read = request.method == "GET" && request.query.is_empty();
        while is_read && bucket.lock().holds {
            std::thread::sleep(Duration::from_millis(1));
        }
        let answer = {
            let mut bucket = bucket.lock();
            if fault == Some(Fault::Twice) {
                let first = answer(&mut bucket, &request, None);
                bucket.recorded.push(recorded(&request, fault, &first));
            }
            let mut answer = answer(&mut bucket, &request, fault);
            let form = bucket.tag_forms[1].clone();
            if !form.is_empty() {
                for (_, value) in answer.headers.iter_mut().filter(|(name, _)| name == "etag") {
                    *value = form.replace("{}", value.trim_matches('"'));
                }
                answer.headers.retain(|(_, value)| !value.trim().is_empty());
            }
            bucket.recorded.push(recorded(&request, fault, &answer));
            answer
        };
        if let Some(Fault::Slow(milliseconds)) = fault {
            std::thread::sleep(Duration::from_millis(milliseconds));
        }
        let written = write(&mut writer, answer, (request.method == "HEAD", fault));
        bucket.lock().under_way -= 1;
        if written.is_err() || matches!(fault, Some(Fault::Cut | Fault::Lost)) {
            let _ = writer.shutdown(std::net::Shutdown::Both);
            return;
        }
    }
}

/// A line of [`S3Server::recorded`].
fn recorded(request: &Request, fault: Option<Fault>, answer: &Answer) -> String {
    let mut line = format!("{} {} {:?}", request.method, request.path, request.query);
    for name in ["if-match", "if-none-match", "x-amz-copy-source", MARK, "range"] {
        if let Some(value) = request.headers.get(name) {
            let _infallible = write!(line, " {name}: {value}");
        }
    }
    let tag = answer.headers.iter().find(|(name, _)| name == "etag");
    let tag = tag.map_or("", |(_, tag)| tag.as_str());
    let _infallible = write!(line, ", {} bytes", request.body.len());
    if let Some(fault) = fault {
        let _infallible = write!(line, ", met {fault:?}");
    }
    let _infallible = write!(line, ": {} {tag}", answer.status);
    line
}

fn read(reader: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let mut line = String::new();
    if reader.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let method = line.split(' ').next().unwrap_or("").to_owned();
    let target = line.split(' ').nth(1).unwrap_or("/").to_owned();
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let mut request = Request { method, path: decoded(path), ..Request::default() };
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
    let length = request.headers.get("content-length").and_then(|length| length.parse().ok());
    request.body.resize(length.unwrap_or(0), 0);
    reader.read_exact(&mut request.body)?;
    Ok(Some(request))
}

fn write(
    writer: &mut TcpStream,
    mut answer: Answer,
    (head_only, fault): (bool, Option<Fault>),
) -> io::Result<()> {
    if fault == Some(Fault::Lost) {
        return Ok(());
    }
    let mut head = format!("HTTP/1.1 {} Status\r\n", answer.status);
    if answer.status == 204 {
        return write!(writer, "{head}\r\n");
    }
    if fault == Some(Fault::Half) {
        answer.body.truncate(answer.body.len() / 2);
    }
    let _infallible = write!(head, "content-length: {}\r\n", answer.body.len());
    if head_only {
        answer.body.clear();
    }
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
    let after = match fault {
        Some(Fault::RetryAfter(seconds)) => seconds,
        _ => 0,
    };
    let refused = |status: u16, code: &str| Answer {
        status,
        headers: vec![("retry-after".to_owned(), after.to_string())],
        body: format!("<Error><Code>{code}</Code><Message>planned</Message></Error>").into_bytes(),
    };
    let signed = request.headers.get("authorization").map_or("", String::as_str);
    if !bucket.access_key.is_empty()
        && !signed.contains(&format!("Credential={}/", bucket.access_key))
    {
        return refused(403, "InvalidAccessKeyId");
    }
    if let Some(Fault::Status(status, code)) = fault {
        return refused(status, code);
    }
    if let Some(Fault::RetryAfter(_)) = fault {
        return refused(503, "SlowDown");
    }
    let Some(key) = request.path.strip_prefix(&format!("/{BUCKET_NAME}/")) else {
        return refused(404, "NoSuchBucket");
    };
    if key.is_empty() {
        bucket.lists += 1;
        return list(bucket, &request.query);
    }
    if !matches!(request.method.as_str(), "GET" | "HEAD") {
        return change(bucket, key, request).unwrap_or_else(|(status, code)| refused(status, code));
    }
    bucket.gets += 1;
    let Some((version, content)) = bucket.objects.get(key) else {
        return refused(404, "NoSuchKey");
    };
    if request.method == "HEAD" {
        let metadata = bucket.metadata.get(key).cloned().unwrap_or_default();
        let about = [
            ("etag".to_owned(), tag(*version)),
            ("last-modified".to_owned(), format!("Thu, 01 Jan 2026 00:00:{:02} GMT", version % 60)),
        ];
        let headers = metadata.into_iter().chain(about).collect();
        return Answer { status: 200, headers, body: vec![0; content.len()] };
    }
    let other = u64::from(fault == Some(Fault::OtherVersion));
    let wanted = request.headers.get("if-match");
    if other == 0 && wanted.is_some_and(|wanted| *wanted != tag(*version)) {
        return refused(412, "PreconditionFailed");
    }
    let range = request.headers.get("range").and_then(|range| {
        let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
        Some((first.parse::<usize>().ok()?, last.parse::<usize>().ok()?))
    });
    let about = |version: u64| {
        vec![
            ("etag".to_owned(), tag(version)),
            ("last-modified".to_owned(), format!("Thu, 01 Jan 2026 00:00:{:02} GMT", version % 60)),
        ]
    };
    let Some((first, last)) = range else {
        let (mut headers, mut body) = (about(version + other), content.clone());
        if request.headers.get("x-amz-checksum-mode").is_some_and(|mode| mode == "ENABLED") {
            let sum = base64_encode(&crc32c::crc32c(content).to_be_bytes());
            headers.push(("x-amz-checksum-crc32c".to_owned(), sum));
            headers.push(("x-amz-checksum-type".to_owned(), "FULL_OBJECT".to_owned()));
            if fault == Some(Fault::Flip) && !body.is_empty() {
                let middle = body.len() / 2;
                body[middle] ^= 1;
            }
        }
        return Answer { status: 200, headers, body };
    };
    let end = content.len().min(last + 1);
    if first >= end {
        return refused(416, "InvalidRange");
    }
    let shown = first + usize::from(fault == Some(Fault::OtherRange));
    let place = format!("bytes {shown}-{}/{}", end - 1, content.len());
    let mut headers = about(version + other);
    headers.push(("content-range".to_owned(), place));
    Answer { status: 206, headers, body: content[first..end].to_vec() }
}

/// Identifies a put, as metadata of the object.
const MARK: &str = "x-amz-meta-uvfs-put";

/// Headers of an object by their names.
type Metadata = BTreeMap<String, String>;

/// The headers of a request that an object keeps.
fn metadata_in(headers: &BTreeMap<String, String>) -> Metadata {
    let is_kept = |name: &str| {
        let plain = name == "cache-control" || name == "expires" || name.starts_with("content-");
        (plain && name != "content-length") || name.starts_with("x-amz-meta-")
    };
    let kept = headers.iter().filter(|(name, _)| is_kept(name));
    kept.map(|(name, value)| (name.clone(), value.clone())).collect()
}

fn tag(version: u64) -> String {
    format!("\"{version:x}\"")
}

type Refused = (u16, &'static str);

/// Whether the object under `key` satisfies the conditions of the request.
fn check_conditions(bucket: &Bucket, key: &str, request: &Request) -> Result<(), Refused> {
    let known = bucket.objects.get(key).map(|(version, _)| tag(*version));
    let (wanted, none) = (request.headers.get("if-match"), request.headers.get("if-none-match"));
    match (wanted, known) {
        (Some(_), None) => Err((404, "NoSuchKey")),
        (Some(wanted), Some(known)) if *wanted != known => Err((412, "PreconditionFailed")),
        (None, Some(_)) if none.is_some() => Err((412, "PreconditionFailed")),
        _ => Ok(()),
    }
}

fn done(status: u16, tag: String, document: &str) -> Answer {
    let body = document.replace("{}", &tag.replace('"', "&quot;")).into_bytes();
    Answer { status, headers: vec![("etag".to_owned(), tag)], body }
}

/// Makes `content` an object.
fn store(bucket: &mut Bucket, key: &str, content: Vec<u8>, metadata: Metadata) -> String {
    bucket.versions += 1;
    let version = bucket.versions;
    bucket.objects.insert(key.to_owned(), (version, content));
    bucket.metadata.insert(key.to_owned(), metadata);
    tag(version)
}

/// PUT, POST and DELETE of an object.
fn change(bucket: &mut Bucket, key: &str, request: &Request) -> Result<Answer, Refused> {
    let (query, headers) = (&request.query, &request.headers);
    let metadata = metadata_in(headers);
    if let Some(sum) = headers.get("x-amz-content-sha256")
        && sum != "UNSIGNED-PAYLOAD"
        && *sum != hex_sha256(&request.body)
    {
        return Err((400, "XAmzContentSHA256Mismatch"));
    }
    bucket.puts += u64::from(request.method == "PUT");
    let upload = query.get("uploadId");
    match (request.method.as_str(), upload) {
        ("DELETE", Some(id)) => _ = bucket.uploads.remove(id).ok_or((404, "NoSuchUpload"))?,
        ("DELETE", None) => {
            let known = bucket.objects.get(key).map(|(version, _)| tag(*version));
            let wanted = headers.get("if-match");
            if wanted.is_some() && known.is_some() && known.as_ref() != wanted {
                return Err((412, "PreconditionFailed"));
            }
            bucket.objects.remove(key);
        }
        ("POST", None) if query.contains_key("uploads") => {
            bucket.versions += 1;
            let id = format!("u+/{}", bucket.versions);
            bucket.uploads.insert(id.clone(), (metadata, BTreeMap::new()));
            return Ok(done(
                200,
                id,
                "<InitiateMultipartUploadResult><UploadId>{}</UploadId></InitiateMultipartUploadResult>",
            ));
        }
        ("POST", Some(id)) => {
            check_conditions(bucket, key, request)?;
            let (metadata, parts) = bucket.uploads.remove(id).ok_or((404, "NoSuchUpload"))?;
            let named = String::from_utf8_lossy(&request.body).matches("<PartNumber>").count();
            if named != parts.len() {
                return Err((400, "InvalidPart"));
            }
            let content = parts.into_values().flatten().collect();
            let tag = store(bucket, key, content, metadata);
            return Ok(done(
                200,
                tag,
                "<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>",
            ));
        }
        ("PUT", Some(id)) => {
            let number = query.get("partNumber").and_then(|number| number.parse().ok());
            let (_, parts) = bucket.uploads.get_mut(id).ok_or((404, "NoSuchUpload"))?;
            let number = number.ok_or((400, "InvalidArgument"))?;
            parts.insert(number, request.body.clone());
            return Ok(done(200, format!("\"p{number}\""), ""));
        }
        ("PUT", None) => {
            let Some(source) = headers.get("x-amz-copy-source") else {
                check_conditions(bucket, key, request)?;
                let tag = store(bucket, key, request.body.clone(), metadata);
                return Ok(done(200, tag, ""));
            };
            let source = decoded(source);
            let source =
                source.strip_prefix(&format!("/{BUCKET_NAME}/")).ok_or((404, "NoSuchKey"))?;
            let (version, content) = bucket.objects.get(source).ok_or((404, "NoSuchKey"))?.clone();
            if headers
                .get("x-amz-copy-source-if-match")
                .is_some_and(|wanted| *wanted != tag(version))
            {
                return Err((412, "PreconditionFailed"));
            }
            check_conditions(bucket, key, request)?;
            let replaces =
                headers.get("x-amz-metadata-directive").is_some_and(|word| word == "REPLACE");
            if source == key && !replaces {
                return Err((400, "InvalidRequest"));
            }
            let copied = || bucket.metadata.get(source).cloned().unwrap_or_default();
            let metadata = if replaces { metadata } else { copied() };
            let tag = store(bucket, key, content, metadata);
            return Ok(done(200, tag, "<CopyObjectResult><ETag>{}</ETag></CopyObjectResult>"));
        }
        _ => return Err((405, "MethodNotAllowed")),
    }
    Ok(Answer { status: 204, headers: Vec::new(), body: Vec::new() })
}

fn list(bucket: &Bucket, query: &BTreeMap<String, String>) -> Answer {
    let text = |key: &str| query.get(key).map_or("", String::as_str);
    let prefix = text("prefix");
    let token = match text("continuation-token") {
        "" => text("start-after").to_owned(),
        token => decoded(token),
    };
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
                 <ETag>{}</ETag><Size>{}</Size></Contents>",
                version % 60,
                match bucket.tag_forms[0].as_str() {
                    "" => format!("&quot;{version:x}&quot;"),
                    form => form.replace("{}", &format!("{version:x}")),
                },
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
        headers: vec![("content-type".to_owned(), "application/xml".to_owned())],
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
