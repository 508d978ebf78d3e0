//! Signed requests over kept connections.
//!
//! # Boundary
//! Requests by URL, signed if there are credentials; the caller interprets the status.
//!
//! # Concurrency
//! Shared by all threads. `ureq` keeps and reuses connections; a separate thread renews credentials (`credentials`).
//!
//! # Why
//! Certificates are checked against the system's list, so that an administrator's own authority counts. Redirects are not
//! followed: a signature is for one host. Every wait has a bound, since a file operation hangs on it.

use super::address::Address;
use super::credentials::Credentials;
use crate::store::{Result, StoreError};
use http::{HeaderName, HeaderValue, Method, Request, Response};
use reqsign_aws_v4::{Credential, RequestSigner};
use reqsign_core::{Context, SignRequest};
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;
use ureq::config::AutoHeaderValue;
use ureq::tls::{Certificate, PemItem, RootCerts, TlsConfig, parse_pem};
use ureq::{Agent, Body};

/// The lists of certificate authorities, where known systems keep them.
const CERTIFICATES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];
/// Until a connection stands.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);
/// Until an answer begins.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// Until the body of a request is sent: the largest part over a slow line.
const SENT_WITHIN: Duration = Duration::from_secs(120);
/// Until the body of the answer is read.
const BODY_WITHIN: Duration = Duration::from_secs(60);
/// Connections that are kept.
const IDLE_MAX: usize = 32;
/// Bytes of each of the two buffers of a connection, idle ones included. The library's default is 128 KiB: too much for a
/// mount of 16 MiB with 16 connections.
const BUFFER_BYTES: usize = 32 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Client {
    agent: Agent,
    /// Absent where nothing is signed.
    signer: Option<Signer>,
}

#[derive(Debug)]
struct Signer {
    credentials: Credentials,
    context: Context,
    sign: RequestSigner,
}

impl Client {
    /// For the bucket at `address`.
    pub(super) fn new(address: &Address) -> Result<Self> {
        let agent = agent(address)?;
        let signer = match address.anonymous {
            true => None,
            false => Some(Signer {
                credentials: Credentials::new(address, &agent)?,
                context: Context::new(),
                sign: RequestSigner::new("s3", address.region()),
            }),
        };
        Ok(Self { agent, signer })
    }

    /// Requests `url` with these headers, and waits until the answer begins.
    pub(super) fn get(&self, url: &str, headers: Headers<'_>) -> Result<Answer> {
        self.ask(Method::GET, url, headers)
    }

    /// Sends a request of another method, without a body.
    pub(super) fn ask(&self, method: Method, url: &str, headers: Headers<'_>) -> Result<Answer> {
        let (request, signed_with) = self.signed(method, url, headers, ())?;
        let answer = self.agent.run(request).map_err(unreachable)?;
        Ok(Answer { answer, signed_with })
    }

    /// Sends `body`, and waits until the answer begins.
    pub(super) fn send(
        &self,
        method: Method,
        url: &str,
        headers: Headers<'_>,
        body: &[u8],
    ) -> Result<Answer> {
        let (request, signed_with) = self.signed(method, url, headers, body)?;
        let answer = self.agent.run(request).map_err(unreachable)?;
        Ok(Answer { answer, signed_with })
    }

    fn signed<B>(
        &self,
        method: Method,
        url: &str,
        headers: Headers<'_>,
        body: B,
    ) -> Result<(Request<B>, SignedWith)> {
        let invalid = |error: http::Error| StoreError::Refused(error.to_string());
        let mut request = Request::builder().method(method).uri(url).body(body).map_err(invalid)?;
        for (name, value) in headers {
            let value = HeaderValue::from_str(value).map_err(|error| invalid(error.into()))?;
            let name = HeaderName::try_from(*name).map_err(|error| invalid(error.into()))?;
            request.headers_mut().insert(name, value);
        }
        let Some(signer) = &self.signer else { return Ok((request, None)) };
        let credential = signer.credentials.get()?;
        let (mut parts, body) = request.into_parts();
        let signed = signer.sign.sign_request(&signer.context, &mut parts, Some(&credential), None);
        let signed = pollster::block_on(signed);
        signed.map_err(|error| StoreError::Credentials(error.to_string()))?;
        Ok((Request::from_parts(parts, body), Some(credential)))
    }

    /// Whether other credentials are there now than those of a request that the store has refused for them.
    pub(super) fn has_other_credentials(&self, used: &SignedWith) -> bool {
        let (Some(signer), Some(used)) = (&self.signer, used) else { return false };
        signer.credentials.others_than(used)
    }
}

/// The credentials of a request's signature; absent where nothing is signed.
pub(super) type SignedWith = Option<Arc<Credential>>;

/// Names in small letters, and values.
pub(super) type Headers<'a> = &'a [(&'a str, &'a str)];

/// An answer whose body was not read yet.
#[derive(Debug)]
pub(super) struct Answer {
    answer: Response<Body>,
    signed_with: SignedWith,
}

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.answer.status().as_u16()
    }

    pub(super) fn signed_with(&self) -> SignedWith {
        self.signed_with.clone()
    }

    /// A header, if it is there and plain text.
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.answer.headers().get(name)?.to_str().ok()
    }

    /// All headers that are plain text, and the names of the others.
    pub(super) fn headers(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.answer.headers().iter().map(|(name, value)| (name.as_str(), value.to_str().ok()))
    }

    /// The body, if it is no longer than `bytes_max`.
    pub(super) fn body_up_to(mut self, bytes_max: u64) -> Result<Vec<u8>> {
        let body = self.answer.body_mut().with_config().limit(bytes_max).read_to_vec();
        body.map_err(|error| match error {
            ureq::Error::BodyExceedsLimit(_) => StoreError::Broken("longer than any answer"),
            other => unreachable(other),
        })
    }

    /// The body, which must be as long as `into`.
    pub(super) fn body_into(mut self, into: &mut [u8]) -> Result<()> {
        let mut reader = self.answer.body_mut().as_reader();
        let cut = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::UnexpectedEof => StoreError::Broken("the object is cut"),
            _ => StoreError::Unreachable(error.to_string()),
        };
        reader.read_exact(into).map_err(cut)?;
        // The end is read, too: then the connection is used again.
        match reader.read(&mut [0]).map_err(cut)? {
            0 => Ok(()),
            _ => Err(StoreError::Broken("more than was asked for")),
        }
    }
}

fn unreachable(error: ureq::Error) -> StoreError {
    StoreError::Unreachable(in_words(error.to_string()))
}

/// The first byte of an answer in plain HTTP is no type of a TLS message, and that is all that the library says of it.
fn in_words(cause: String) -> String {
    match cause.contains("InvalidContentType") {
        true => "the endpoint answers without TLS: write http:// in place of https://".into(),
        false => cause,
    }
}

fn agent(address: &Address) -> Result<Agent> {
    let url = address.url();
    let roots = match certificates() {
        // A store without TLS needs none; a service that lends credentials may.
        Err(_) if url.starts_with("http://") => Vec::new(),
        roots => roots?,
    };
    let tls = TlsConfig::builder()
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .timeout_connect(Some(CONNECT_WITHIN))
        .timeout_send_body(Some(SENT_WITHIN))
        .timeout_recv_response(Some(ANSWER_WITHIN))
        .timeout_recv_body(Some(BODY_WITHIN))
        .input_buffer_size(BUFFER_BYTES)
        .output_buffer_size(BUFFER_BYTES)
        .max_idle_connections(IDLE_MAX)
        .max_idle_connections_per_host(IDLE_MAX)
        .accept(AutoHeaderValue::None)
        .accept_encoding(AutoHeaderValue::None)
        .user_agent(concat!("uvfs/", env!("CARGO_PKG_VERSION")));
    Ok(config.build().new_agent())
}

/// The certificate authorities that are trusted.
fn certificates() -> Result<Vec<Certificate<'static>>> {
    let own = std::env::var("AWS_CA_BUNDLE").or_else(|_| std::env::var("SSL_CERT_FILE")).ok();
    let known = CERTIFICATES.iter().copied();
    let paths = own.as_deref().map_or_else(|| known.clone().collect(), |path| vec![path]);
    let text = paths.iter().find_map(|path| std::fs::read(path).ok());
    let text = text.ok_or_else(|| {
        let paths = paths.join(", ");
        StoreError::Unreachable(format!(
            "nobody is known who signs certificates: none of {paths} can be read; install the package \
             ca-certificates, or set SSL_CERT_FILE"
        ))
    })?;
    let certificate = |item| match item {
        Ok(PemItem::Certificate(certificate)) => Some(certificate),
        _ => None,
    };
    Ok(parse_pem(&text).filter_map(certificate).collect())
}
