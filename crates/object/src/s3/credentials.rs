//! Credentials: a thread that no sandbox restricts finds them, and the threads that sign use them.
//!
//! # Boundary
//! Knows where AWS's own tools look, in their order, and reads it by `reqsign`. Signs nothing.
//!
//! # Concurrency
//! One thread per bucket finds credentials, one question at a time. A thread that signs waits for it only when it has no
//! credentials that may still be used. The lock over the credentials is held for a moment.
//!
//! # Why
//! A mount's serving threads are restricted before credentials are renewed for the first time. A rule for a file holds for that
//! one file, and a token that is renewed is another file (a rename over it, or a symbolic link that is swapped); a service may
//! be at any port. The finding thread starts before the fence, so all kinds renew, and the fence needs no holes for them.
//! Weakness: the thread that waits for new credentials waits as long as the service does (some seconds at most).

use super::address::Address;
use crate::lock_order::OBJECT_CREDENTIALS;
use crate::store::{Result, StoreError};
use bytes::Bytes;
use http::{Request, Response, Uri};
use reqsign_aws_v4::{
    AssumeRoleWithWebIdentityCredentialProvider, Credential, ECSCredentialProvider,
    EnvCredentialProvider, IMDSv2CredentialProvider, ProfileCredentialProvider,
    SSOCredentialProvider,
};
use reqsign_core::time::Timestamp;
use reqsign_core::{Context, FileRead, HttpSend, OsEnv, ProvideCredentialDyn, SigningCredential};
use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::{Duration, Instant};
use ureq::Agent;
use uvfs_concurrent::lock::Mutex;

/// For a service that lends credentials: where there is none, nothing answers.
const LENDER_WITHIN: Duration = Duration::from_secs(2);
/// A failure answers further questions for this time: many threads may ask at once.
const FAILURE_HOLDS: Duration = Duration::from_secs(1);
/// Credentials that are renewed early stay in use until this time before their end.
const LAST_USE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug)]
pub(super) struct Credentials {
    known: Arc<Mutex<Option<Arc<Credential>>>>,
    questions: Sender<Question>,
}

/// Where the answer goes; nowhere, if the asking thread does not wait.
type Question = Option<SyncSender<Result<Arc<Credential>>>>;

impl Credentials {
    /// For the bucket at `address`. Starts the thread that finds them, which is as free as the calling thread.
    pub(super) fn new(address: &Address, agent: &Agent) -> Result<Self> {
        let context = Context::new()
            .with_env(OsEnv)
            .with_file_read(Files)
            .with_http_send(Lender(agent.clone()));
        Self::from_sources(Sources { sources: sources(address), context })
    }

    fn from_sources(sources: Sources) -> Result<Self> {
        let known = Arc::new(Mutex::new(&OBJECT_CREDENTIALS, None));
        let (questions, asked) = channel();
        let finder = Finder { sources, known: known.clone(), failed: None };
        let thread = std::thread::Builder::new().name("uvfs-credentials".into());
        let started = thread.spawn(move || finder.serve(&asked));
        let failed = |error| StoreError::Credentials(format!("no thread to find them: {error}"));
        started.map_err(failed)?;
        Ok(Self { known, questions })
    }

    /// Credentials to sign with. Blocks if there are none yet, or those there were have expired.
    pub(super) fn get(&self) -> Result<Arc<Credential>> {
        let known = self.known.lock().clone();
        let Some(known) = known else { return self.find() };
        if known.is_valid() {
            return Ok(known);
        }
        if known.is_valid_at(Timestamp::now() + LAST_USE) {
            // A thread that has ended has no answer; the credentials still hold.
            let _ = self.questions.send(None);
            return Ok(known);
        }
        self.find()
    }

    /// After the store has refused `used`: whether there are others now. Keys in a shared file are replaced without an end
    /// of the old ones that they name.
    pub(super) fn others_than(&self, used: &Credential) -> bool {
        let differ = |other: &Credential| {
            other.access_key_id != used.access_key_id || other.session_token != used.session_token
        };
        let known = self.known.lock().clone();
        known.is_some_and(|known| differ(&known)) || self.find().is_ok_and(|found| differ(&found))
    }

    fn find(&self) -> Result<Arc<Credential>> {
        let ended = || StoreError::Credentials("the thread that finds them has ended".into());
        let (answer, answered) = sync_channel(1);
        self.questions.send(Some(answer)).map_err(|_| ended())?;
        answered.recv().map_err(|_| ended())?
    }
}

/// The thread that finds credentials.
#[derive(Debug)]
struct Finder {
    sources: Sources,
    known: Arc<Mutex<Option<Arc<Credential>>>>,
    /// The last failure, and when it was.
    failed: Option<(Instant, StoreError)>,
}

impl Finder {
    /// Answers until nothing can ask any more.
    fn serve(mut self, asked: &Receiver<Question>) {
        while let Ok(question) = asked.recv() {
            // All that was asked until now gets one answer. It is newer than each of these questions.
            let mut questions = vec![question];
            questions.extend(asked.try_iter());
            let answer = self.find();
            for waiting in questions.into_iter().flatten() {
                // A thread that gave up waiting needs no answer.
                let _ = waiting.send(answer.clone());
            }
        }
    }

    fn find(&mut self) -> Result<Arc<Credential>> {
        if let Some((since, error)) = &self.failed
            && since.elapsed() < FAILURE_HOLDS
        {
            return Err(error.clone());
        }
        match self.sources.find() {
            Ok(found) => {
                let found = Arc::new(found);
                *self.known.lock() = Some(found.clone());
                self.failed = None;
                Ok(found)
            }
            Err(why) => {
                let known = self.known.lock().is_some();
                if known {
                    log::warn!("the credentials cannot be renewed: {why}");
                }
                let error = StoreError::Credentials(why);
                self.failed = Some((Instant::now(), error.clone()));
                Err(error)
            }
        }
    }
}

/// A source by its name.
type Source = (&'static str, Box<dyn ProvideCredentialDyn<Credential = Credential>>);

/// Where credentials are looked for.
#[derive(Debug)]
struct Sources {
    /// In their order: the first that has some is taken.
    sources: Vec<Source>,
    context: Context,
}

fn sources(address: &Address) -> Vec<Source> {
    let mut profile = ProfileCredentialProvider::default();
    let mut sso = SSOCredentialProvider::default();
    if let Some(name) = &address.profile {
        profile = profile.with_profile(name);
        sso = sso.with_profile(name);
    }
    vec![
        ("the variables", Box::new(EnvCredentialProvider::new())),
        ("the profile", Box::new(profile)),
        ("single sign-on", Box::new(sso)),
        ("the web identity", Box::new(AssumeRoleWithWebIdentityCredentialProvider::default())),
        ("the container's service", Box::new(ECSCredentialProvider::default())),
        ("the instance's service", Box::new(IMDSv2CredentialProvider::default())),
    ]
}

impl Sources {
    /// The credentials of the first source that has some; or why none has.
    fn find(&self) -> std::result::Result<Credential, String> {
        let mut failures = Vec::new();
        for (name, source) in &self.sources {
            match pollster::block_on(source.provide_credential_dyn(&self.context)) {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {}
                Err(error) => failures.push(format!("{name}: {}", explained(&error))),
            }
        }
        Err(match failures.is_empty() {
            true => "no variable, profile, token or service has any".to_owned(),
            false => failures.join("; "),
        })
    }
}

/// The texts of `error` and its causes, in one line.
fn explained(error: &reqsign_core::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        // Some causes repeat the text of the error that they caused.
        if !text.contains(&said) {
            let _infallible = write!(text, ": {said}");
        }
        cause = error.source();
    }
    text.escape_debug().to_string()
}

/// Credential files, for `reqsign`.
#[derive(Debug)]
struct Files;

impl FileRead for Files {
    async fn file_read(&self, path: &str) -> reqsign_core::Result<Vec<u8>> {
        let unreadable = |error| reqsign_core::Error::config_invalid(format!("{path}: {error}"));
        std::fs::read(path).map_err(unreadable)
    }
}

/// Services that lend credentials, for `reqsign`: blocks, as its caller does.
#[derive(Debug)]
struct Lender(Agent);

impl HttpSend for Lender {
    async fn http_send(&self, request: Request<Bytes>) -> reqsign_core::Result<Response<Bytes>> {
        let failed = |error: ureq::Error| reqsign_core::Error::unexpected(error.to_string());
        let (mut parts, body) = request.into_parts();
        if let Some(uri) = own_sts(&parts.uri) {
            parts.uri = uri;
        }
        let request = Request::from_parts(parts, body.to_vec());
        let request = self.0.configure_request(request).timeout_global(Some(LENDER_WITHIN)).build();
        let (parts, mut body) = self.0.run(request).map_err(failed)?.into_parts();
        let body = body.read_to_vec().map_err(failed)?;
        Ok(Response::from_parts(parts, body.into()))
    }
}

/// The address of the service that exchanges tokens, where a variable names another one than AWS's.
fn own_sts(uri: &Uri) -> Option<Uri> {
    uri.host().filter(|host| host.starts_with("sts."))?;
    let own = std::env::var("AWS_ENDPOINT_URL_STS").ok().filter(|own| !own.is_empty())?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    format!("{}{path}", own.trim_end_matches('/')).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqsign_core::ProvideCredential;
    use uvfs_concurrent::counter::Counter;

    /// Lends `key-1`, `key-2` and so on, each until so many seconds from now; or fails.
    #[derive(Debug, Clone)]
    struct Source {
        lent: Arc<Counter>,
        seconds: Option<u64>,
    }

    impl ProvideCredential for Source {
        type Credential = Credential;

        async fn provide_credential(
            &self,
            _: &Context,
        ) -> reqsign_core::Result<Option<Credential>> {
            self.lent.hit();
            let Some(seconds) = self.seconds else {
                let cause = std::io::Error::other("first\nsecond");
                return Err(reqsign_core::Error::unexpected("no answer").with_source(cause));
            };
            Ok(Some(Credential {
                access_key_id: format!("key-{}", self.lent.total()),
                secret_access_key: "s".into(),
                session_token: None,
                expires_in: Some(Timestamp::now() + Duration::from_secs(seconds)),
            }))
        }
    }

    fn credentials(seconds: Option<u64>) -> (Credentials, Arc<Counter>) {
        let lent = Arc::new(Counter::new());
        let source = Source { lent: lent.clone(), seconds };
        let sources = vec![("the test", Box::new(source) as Box<_>)];
        (Credentials::from_sources(Sources { sources, context: Context::new() }).unwrap(), lent)
    }

    #[test]
    fn credentials_are_asked_for_when_they_are_needed() {
        let key = |credentials: &Credentials| credentials.get().unwrap().access_key_id.clone();
        let (fresh, lent) = credentials(Some(3600));
        assert_eq!([key(&fresh), key(&fresh)], ["key-1", "key-1"]);
        assert_eq!(lent.total(), 1);
        let (expired, _) = credentials(Some(0));
        assert_eq!([key(&expired), key(&expired)], ["key-1", "key-2"]);
        // These are used on while others are found.
        let (ageing, lent) = credentials(Some(60));
        assert_eq!([key(&ageing), key(&ageing)], ["key-1", "key-1"]);
        let since = Instant::now();
        while lent.total() < 2 {
            assert!(since.elapsed() < Duration::from_secs(20), "nothing was asked for");
            std::thread::yield_now();
        }
    }

    #[test]
    fn refused_credentials_are_looked_for_again() {
        let (credentials, lent) = credentials(Some(3600));
        let used = credentials.get().unwrap();
        assert!(credentials.others_than(&used));
        assert_eq!(credentials.get().unwrap().access_key_id, "key-2");
        assert!(credentials.others_than(&used), "another thread has found them");
        assert_eq!(lent.total(), 2);
    }

    /// A renewal that failed was logged with the stack of the thread, each frame a line.
    #[test]
    fn a_failure_is_one_line_and_answers_for_a_moment() {
        let (credentials, lent) = credentials(None);
        let since = Instant::now();
        let failures = [credentials.get().unwrap_err(), credentials.get().unwrap_err()];
        let expected = StoreError::Credentials("the test: no answer: first\\nsecond".into());
        assert_eq!(failures, [expected.clone(), expected]);
        let asked = since.elapsed().as_secs() / FAILURE_HOLDS.as_secs() + 1;
        assert!(lent.total() <= asked, "{} in {:?}", lent.total(), since.elapsed());
    }
}
