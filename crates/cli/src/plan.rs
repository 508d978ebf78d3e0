//! A checked mount: every option is read, and every check has passed.
//!
//! # Boundary
//! From the command line to values of the layers below. Starts nothing and changes nothing; [`crate::serve`] trusts the
//! result.
//!
//! # Why
//! One place where an option becomes a setting, so that none is accepted and then ignored: an option without a meaning
//! for this source is refused.

use crate::Failure;
use crate::bucket::{Address, OpenBucket};
use crate::checks::{self, Contents, Mounter};
use crate::fake_root;
use crate::flags::{Atime, MountArguments, PageCache, TransportFlag};
use crate::memory::{self, Beyond, Machine, Overhead, ram_bytes};
use crate::mountinfo;
use crate::policies::PolicyFile;
use crate::sandbox::Reach;
use crate::source::{self, Source};
use crate::units::{self, Size};
use clap::ValueEnum;
use serde::Serialize;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use uvfs_backends::directory::reports_all_changes;
use uvfs_backends::image::WritingConfig;
use uvfs_backends::memory::{AccessTimes, SIZE_BYTES_MIN};
use uvfs_client as client;
use uvfs_ext::Image;
use uvfs_ext_write::{DataMode, WithoutBarriers, WriteDevice};
use uvfs_fuse::Transport;
use uvfs_image_tools::{Access, Part, Spec, Writable, reductions};
use uvfs_vfs::{NewOwner, READ_AHEAD_MAX, Timeouts, VfsConfig};

/// Default lifetimes: a request to a host is cheap, and a bucket charges for each.
const HOST_TIMEOUT: Duration = Duration::from_secs(1);
const BUCKET_TIMEOUT: Duration = Duration::from_secs(60);
/// With `--watch`, of answers whose changes are reported. As of a bucket: it bounds the changes that no report tells of.
const REPORTED_TIMEOUT: Duration = Duration::from_secs(60);
/// The range of `--commit`.
const COMMIT_TIMES: RangeInclusive<Duration> =
    Duration::from_millis(100)..=Duration::from_secs(300);
/// Most threads that may read requests.
const READERS_MAX: usize = 64;

/// The store to be mounted.
#[derive(Debug)]
pub(crate) enum Store {
    /// RAM, this much of it.
    Memory {
        /// Room for file data.
        size_bytes: u64,
        /// When reading moves access times.
        access_times: AccessTimes,
    },
    /// This host directory, canonical.
    Directory(PathBuf),
    /// A disk image, open and locked.
    Image(OpenImage),
    /// A bucket, which has answered.
    Bucket(Box<OpenBucket>),
}

/// A disk image that was found to be one.
#[derive(Debug)]
pub(crate) struct OpenImage {
    /// Name as users write it.
    pub(crate) name: String,
    /// The file or the device that it is in.
    pub(crate) path: PathBuf,
    /// The opened image.
    pub(crate) opened: Opened,
}

/// An image, opened and locked for its use.
#[derive(Debug)]
pub(crate) enum Opened {
    /// Only to be read.
    Read(Box<Image>),
    /// For writing; nothing has been written yet.
    Write {
        /// The device below it.
        device: Arc<dyn WriteDevice>,
        /// How it is accessed: `direct`, or `buffered: ` and why.
        access: String,
        /// Time between two commits without a request.
        commit_interval: Duration,
        /// The way of data to it.
        data: DataMode,
    },
}

impl Store {
    /// Name as users write it.
    pub(crate) fn name(&self) -> String {
        match self {
            Store::Memory { .. } => "memory:".into(),
            Store::Directory(path) => path.to_string_lossy().into_owned(),
            Store::Image(image) => image.name.clone(),
            Store::Bucket(bucket) => bucket.address.name(),
        }
    }

    /// The directory that is the source, if it is one.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Store::Memory { .. } | Store::Image(_) | Store::Bucket(_) => None,
            Store::Directory(path) => Some(path),
        }
    }

    /// The path of the source on the host: a directory, or the file of an image.
    pub(crate) fn host_path(&self) -> Option<&Path> {
        match self {
            Store::Image(image) => Some(&image.path),
            _ => self.path(),
        }
    }

    /// The files and ports that serving needs.
    pub(crate) fn reach(&self) -> Reach {
        match self {
            // An image is open already: its path is not needed again.
            Store::Memory { .. } | Store::Image(_) => Reach::Nothing,
            Store::Directory(path) => Reach::Below(path.clone()),
            Store::Bucket(bucket) => Reach::Bucket(bucket.address.clone()),
        }
    }

    /// How the device of an image that is written is accessed.
    fn access(&self) -> Option<String> {
        match self {
            Store::Image(OpenImage { opened: Opened::Write { access, .. }, .. }) => {
                Some(access.clone())
            }
            _ => None,
        }
    }

    /// Nothing can be written to it.
    fn is_read_only(&self) -> bool {
        let reads = |open: &OpenImage| matches!(open.opened, Opened::Read(_));
        match self {
            Store::Image(image) => reads(image),
            Store::Bucket(_) | Store::Memory { .. } | Store::Directory(_) => false,
        }
    }
}

/// Read ahead by the kernel in files of an image: the largest request. The default of FUSE, 128, takes eight requests for it.
const IMAGE_READ_AHEAD_KIB: u32 = 1024;

/// A mount to be made.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The store.
    pub(crate) store: Store,
    /// Where; canonical.
    pub(crate) mountpoint: PathBuf,
    /// Limits and lifetimes of the caches.
    pub(crate) config: VfsConfig,
    /// The process's memory besides its caches.
    pub(crate) overhead: Overhead,
    /// Threads that read requests, if not as many as the frontend thinks right.
    pub(crate) readers: Option<usize>,
    pub(crate) transport: Transport,
    /// The owner of what the mounting user makes, if that user has all rights.
    pub(crate) fake_root: Option<NewOwner>,
    /// The kernel's read-ahead; `None` for the kernel's default.
    pub(crate) kernel_read_ahead_kib: Option<u32>,
    /// The directories that are marked from the start.
    pub(crate) policies: PolicyFile,
    /// Name in the mount table.
    pub(crate) name: String,
    /// The options, for reports.
    pub(crate) options: Options,
}

/// The options in force, as `uvfs stat` shows them.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Options {
    pub(crate) allow_other: bool,
    pub(crate) fakeroot: bool,
    /// The option as it was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) new_owner: Option<String>,
    pub(crate) read_only: bool,
    pub(crate) watch: bool,
    pub(crate) passthrough: bool,
    pub(crate) control_dir: bool,
    /// The transport that was asked for, if not `auto`; `frontend.queues` says what came of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) transport: Option<String>,
    pub(crate) page_cache: Option<String>,
    pub(crate) daemon: bool,
    /// Where a scraper is answered, with the port that was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) metrics: Option<String>,
    pub(crate) size_bytes: Option<u64>,
    /// How a written image is accessed: `direct`, or `buffered: ` and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<String>,
    pub(crate) attr_timeout: String,
    pub(crate) entry_timeout: String,
    pub(crate) negative_timeout: String,
}

/// Reads every option and makes every check.
///
/// # Errors
/// The first thing found wrong, as one line.
pub(crate) fn plan(arguments: &MountArguments) -> Result<Plan, Failure> {
    let readers = arguments.readers.as_deref().map(readers).transpose()?;
    let overhead = Overhead::here(readers);
    let source = source_of(arguments)?;
    check_writing(arguments, &source)?;
    let fake_root = fake_root::read(arguments, &source)?;
    let mut config = config(arguments, overhead, &source)?;
    let name = arguments.name.as_deref().map(name).transpose()?;
    let policies = arguments.policy.as_deref().map(PolicyFile::read).transpose()?;
    let store = store(arguments, source, &config)?;
    if let Store::Image(OpenImage { opened: Opened::Write { commit_interval, .. }, .. }) = &store
        && arguments.write_back_delay.is_none()
    {
        config.write_back_delay = config.write_back_delay.min(*commit_interval);
    }
    let mounter = Mounter::here();
    let contents = if arguments.nonempty { Contents::MayBeHidden } else { Contents::MustBeEmpty };
    let mounts = mountinfo::read()?;
    let mountpoint =
        checks::mountpoint(&arguments.mountpoint, contents, &mounts, client::is_served)?;
    if let Store::Directory(source) = &store {
        checks::apart(source, &mountpoint)?;
    }
    checks::fuse_available(&mounter)?;
    checks::descriptors()?;
    if arguments.allow_other {
        let conf = std::fs::read_to_string(checks::FUSE_CONF).unwrap_or_default();
        checks::allow_other(mounter.privileged, &conf)?;
    }
    let timeouts = config.reported_timeouts.unwrap_or(Timeouts {
        attr: config.attr_timeout,
        entry: config.entry_timeout,
        negative: config.negative_timeout,
    });
    let options = Options {
        allow_other: arguments.allow_other,
        fakeroot: arguments.fakeroot,
        new_owner: arguments.new_owner.clone(),
        read_only: arguments.read_only || store.is_read_only(),
        watch: arguments.watch,
        control_dir: !arguments.no_control_dir,
        passthrough: !arguments.no_passthrough && !caches_pages(arguments) && !arguments.fakeroot,
        transport: (arguments.transport != TransportFlag::Auto).then(|| show(arguments.transport)),
        page_cache: caches_pages(arguments).then(|| show(arguments.page_cache)),
        daemon: arguments.in_background,
        metrics: None,
        size_bytes: match store {
            Store::Memory { size_bytes, .. } => Some(size_bytes),
            Store::Directory(_) | Store::Image(_) | Store::Bucket(_) => None,
        },
        device: store.access(),
        attr_timeout: units::show_duration(timeouts.attr),
        entry_timeout: units::show_duration(timeouts.entry),
        negative_timeout: units::show_duration(timeouts.negative),
    };
    let name = name.unwrap_or_else(|| store.name());
    let policies = policies.unwrap_or_default();
    // An image is local: larger requests cost it nothing, and each request costs the kernel and us.
    let kernel_read_ahead_kib = matches!(store, Store::Image(_)).then_some(IMAGE_READ_AHEAD_KIB);
    Ok(Plan {
        store,
        mountpoint,
        config,
        overhead,
        readers,
        transport: arguments.transport.into(),
        fake_root,
        kernel_read_ahead_kib,
        policies,
        name,
        options,
    })
}

/// The source; a plain path is a directory or an image, by the kind of the object there.
fn source_of(arguments: &MountArguments) -> Result<Source, Failure> {
    let source = source::parse(&arguments.source)?;
    let Source::Plain(path) = source else { return Ok(source) };
    if path.symlink_metadata().is_err() && path.as_os_str().as_bytes().contains(&b'?') {
        let spec = Spec::parse(path.as_os_str().as_bytes())?;
        if Spec::can_be(&spec.path) {
            return Ok(Source::Image(spec));
        }
    }
    Ok(match Spec::can_be(&path) {
        true => Source::Image(Spec { path, part: Part::Whole, access: Access::Usual, data: None }),
        false => Source::Directory(path),
    })
}

/// Opens an image, after options without a meaning for it were refused.
fn image(arguments: &MountArguments, spec: &Spec, caches_bytes: u64) -> Result<Store, Failure> {
    // The other two are true: nothing moves them.
    let moves_times = arguments.atime == Some(Atime::Relatime);
    let options = [
        ("--size", arguments.size.is_some(), "an image has the size that it has"),
        ("--atime relatime", moves_times, "reading an image moves no access times"),
        ("--watch", arguments.watch, "no other program may change an image"),
    ];
    if let Some((option, _, why)) = options.iter().find(|(_, given, _)| *given) {
        return Err(Failure::usage(format!("{option}: {why}; leave it out")));
    }
    if caches_pages(arguments) && arguments.read_only {
        return Err(Failure::usage(
            "--page-cache: an image that is only read is cached by the host and by the kernel already; leave it out",
        ));
    }
    let name = String::from_utf8_lossy(arguments.source.as_bytes()).into_owned();
    let otherwise = ", and it is not a directory; name a directory or a disk image";
    let opened = if arguments.read_only {
        let image = spec.open(otherwise)?;
        for (feature, service) in reductions(&image) {
            log::warn!("image {name}: {feature}: {service}");
        }
        Opened::Read(Box::new(image))
    } else {
        let Writable { device, access } = spec.open_to_write(otherwise, caches_bytes)?;
        let device: Arc<dyn WriteDevice> = match arguments.unsafe_no_barriers {
            false => device,
            true => {
                log::warn!(
                    "image {name}: --unsafe-no-barriers: a crash of this machine may leave anything of it"
                );
                Arc::new(WithoutBarriers(device))
            }
        };
        let interval = option("--commit", arguments.commit.as_deref(), units::parse_duration)?;
        let commit_interval = interval.unwrap_or(WritingConfig::default().commit_interval);
        if !COMMIT_TIMES.contains(&commit_interval) {
            return Err(Failure::usage("--commit: write 100ms to 5m, as in 5s"));
        }
        Opened::Write { device, access, commit_interval, data: spec.data.unwrap_or_default() }
    };
    Ok(Store::Image(OpenImage { name, path: spec.path.clone(), opened }))
}

/// Refuses options about writing an image where none is written.
fn check_writing(arguments: &MountArguments, source: &Source) -> Result<(), Failure> {
    let why = match source {
        Source::Image(_) if arguments.read_only => "with --read-only nothing is written",
        Source::Image(_) => return Ok(()),
        _ => "only a disk image has a journal",
    };
    let options = [
        ("--commit", arguments.commit.is_some()),
        ("--unsafe-no-barriers", arguments.unsafe_no_barriers),
    ];
    match options.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Failure::usage(format!("{option}: {why}; leave it out"))),
        None => Ok(()),
    }
}

/// Connects to a bucket, after options without a meaning for it were refused.
fn bucket(arguments: &MountArguments, address: Address) -> Result<Store, Failure> {
    // The other two are true: nothing moves them.
    let moves_times = arguments.atime == Some(Atime::Relatime);
    let options = [
        ("--size", arguments.size.is_some(), "a bucket has no size"),
        ("--atime relatime", moves_times, "a bucket has no access times"),
        (
            "--watch",
            arguments.watch,
            "a bucket does not tell of changes; --entry-timeout bounds their age",
        ),
    ];
    if let Some((option, _, why)) = options.iter().find(|(_, given, _)| *given) {
        return Err(Failure::usage(format!("{option}: {why}; leave it out")));
    }
    if caches_pages(arguments) {
        return Err(Failure::usage(
            "--page-cache: a bucket is always cached, and takes whole files when they are closed; leave it out",
        ));
    }
    if arguments.page_cache == PageCache::Off && !arguments.read_only {
        return Err(Failure::usage(
            "--page-cache off: what is written to a bucket is cached until its file is closed; leave it out, or add \
             --read-only",
        ));
    }
    Ok(Store::Bucket(Box::new(OpenBucket::connect(address)?)))
}

fn store(arguments: &MountArguments, source: Source, config: &VfsConfig) -> Result<Store, Failure> {
    match source {
        Source::Bucket(address) => bucket(arguments, address),
        Source::Image(spec) => {
            image(arguments, &spec, config.cache_bytes.saturating_sub(config.overhead_bytes))
        }
        Source::Memory => {
            let size = option("--size", arguments.size.as_deref(), units::parse_size)?;
            let size_bytes = memory_bytes(size.unwrap_or(Size::Share(50)), ram_bytes())?;
            if arguments.watch {
                return Err(Failure::usage(
                    "--watch: no other program can change a memory: file system; leave it out",
                ));
            }
            if caches_pages(arguments) {
                return Err(Failure::usage(
                    "--page-cache: a memory: file system is memory already; leave it out",
                ));
            }
            let access_times = arguments.atime.map(Into::into).unwrap_or_default();
            Ok(Store::Memory { size_bytes, access_times })
        }
        Source::Directory(_) | Source::Plain(_) if arguments.size.is_some() => Err(Failure::usage(
            "--size: a directory has the room that its disk has; leave it out, or mount memory:",
        )),
        Source::Directory(_) | Source::Plain(_) if arguments.atime.is_some() => {
            Err(Failure::usage(
                "--atime: the access times of a directory are its host's; mount the host's file system with that \
             option, or leave it out",
            ))
        }
        Source::Directory(path) | Source::Plain(path) => {
            Ok(Store::Directory(checks::source_directory(&path)?))
        }
    }
}

/// The room that `size` asks for on a machine with `ram_bytes`.
fn memory_bytes(size: Size, ram_bytes: u64) -> Result<u64, Failure> {
    match size.of(ram_bytes) {
        0..SIZE_BYTES_MIN => Err(Failure::usage(format!(
            "--size: too small for a file system; write at least {}K",
            SIZE_BYTES_MIN / 1024
        ))),
        bytes => Ok(bytes),
    }
}

fn config(
    arguments: &MountArguments,
    overhead: Overhead,
    source: &Source,
) -> Result<VfsConfig, Failure> {
    let is_bucket = matches!(source, Source::Bucket(_));
    let usual = if is_bucket { BUCKET_TIMEOUT } else { HOST_TIMEOUT };
    let timeout = |name: &str, text: &Option<String>| -> Result<Duration, Failure> {
        Ok(option(name, text.as_deref(), units::parse_duration)?.unwrap_or(usual))
    };
    let cache_bytes = match &arguments.cache_size {
        Some(text) => {
            let beyond = if arguments.at_boot { Beyond::Lowered } else { Beyond::Refused };
            memory::cache_bytes("--cache-size", text, overhead, beyond)?
        }
        None => overhead.default_bytes(Machine::here().memory_bytes()),
    };
    let defaults = VfsConfig::default();
    // An image that is written has its data in the core's pages.
    let is_image = matches!(source, Source::Image(_));
    let is_written_image = is_image && !arguments.read_only;
    let is_auto = arguments.page_cache == PageCache::Auto;
    let is_cached = caches_pages(arguments) || (is_auto && (is_bucket || is_written_image));
    let remedy = match (is_image, is_written_image) {
        (true, true) => "leave out --page-cache off",
        (true, false) => "leave it out",
        (false, _) => "add --page-cache write-back, or leave it out",
    };
    if !is_cached {
        let unused = [
            ("--read-ahead", arguments.read_ahead.is_some()),
            ("--write-back-delay", arguments.write_back_delay.is_some()),
        ];
        if let Some((option, _)) = unused.iter().find(|(_, given)| *given) {
            return Err(Failure::usage(format!("{option}: nothing is cached by uvfs; {remedy}")));
        }
    }
    let writes_back = arguments.page_cache == PageCache::WriteBack || (is_auto && is_written_image);
    if arguments.write_back_delay.is_some() && !writes_back {
        return Err(Failure::usage(
            "--write-back-delay: nothing is written later; add --page-cache write-back, or leave it out",
        ));
    }
    let read_ahead = option("--read-ahead", arguments.read_ahead.as_deref(), read_ahead)?;
    let delay = arguments.write_back_delay.as_deref();
    let delay = option("--write-back-delay", delay, units::parse_duration)?;
    let config = VfsConfig {
        pages: arguments.page_cache.into(),
        read_ahead_bytes: read_ahead.unwrap_or(match is_bucket {
            // The latency of an answer costs as much as a large answer.
            true => READ_AHEAD_MAX,
            false => defaults.read_ahead_bytes,
        }),
        write_back_delay: delay.unwrap_or(defaults.write_back_delay),
        attr_timeout: timeout("--attr-timeout", &arguments.attr_timeout)?,
        entry_timeout: timeout("--entry-timeout", &arguments.entry_timeout)?,
        negative_timeout: timeout("--negative-timeout", &arguments.negative_timeout)?,
        watch: arguments.watch,
        reported_timeouts: reported_timeouts(arguments, source)?,
        read_only: arguments.read_only,
        cache_bytes,
        overhead_bytes: overhead.bytes(),
        ..defaults
    };
    config.validate().map_err(|error| Failure::usage(format!("options: {error}")))?;
    Ok(config)
}

/// How long answers are valid whose changes are reported; a time-out that was given is obeyed.
fn reported_timeouts(
    arguments: &MountArguments,
    source: &Source,
) -> Result<Option<Timeouts>, Failure> {
    let (Source::Directory(path) | Source::Plain(path)) = source else { return Ok(None) };
    // A source that cannot be opened is refused later, with the reason.
    if !arguments.watch {
        return Ok(None);
    }
    let Ok(reports_all) = reports_all_changes(path) else { return Ok(None) };
    if !reports_all {
        log::warn!(
            "{}: its file system may change without a report to this machine; with --watch, the time-outs stay 1s",
            path.display()
        );
        return Ok(None);
    }
    let timeout = |name: &str, text: &Option<String>| -> Result<Duration, Failure> {
        Ok(option(name, text.as_deref(), units::parse_duration)?.unwrap_or(REPORTED_TIMEOUT))
    };
    Ok(Some(Timeouts {
        attr: timeout("--attr-timeout", &arguments.attr_timeout)?,
        entry: timeout("--entry-timeout", &arguments.entry_timeout)?,
        negative: timeout("--negative-timeout", &arguments.negative_timeout)?,
    }))
}

/// Whether uvfs is to keep file data.
fn caches_pages(arguments: &MountArguments) -> bool {
    matches!(arguments.page_cache, PageCache::WriteThrough | PageCache::WriteBack)
}

/// The value as it is written on the command line.
fn show(flag: impl ValueEnum) -> String {
    flag.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
}

/// A size for `--read-ahead`, which may be zero.
fn read_ahead(text: &str) -> Result<u64, String> {
    if text == "0" {
        return Ok(0);
    }
    match units::parse_size(text)? {
        Size::Bytes(bytes @ 0..=READ_AHEAD_MAX) => Ok(bytes),
        _ => Err(format!("write a size of at most {}K, or 0", READ_AHEAD_MAX / 1024)),
    }
}

fn readers(text: &str) -> Result<usize, Failure> {
    match text.parse() {
        Ok(readers @ 1..=READERS_MAX) => Ok(readers),
        _ => Err(Failure::usage(format!(
            "--readers {text}: not a number of threads; write 1 to {READERS_MAX}"
        ))),
    }
}

/// A name for the mount table: only characters that its lines can hold.
fn name(text: &str) -> Result<String, Failure> {
    let fits = !text.is_empty() && text.len() <= 255 && !text.chars().any(char::is_control);
    if !fits || text.contains(',') {
        return Err(Failure::usage(
            "--name: write 1 to 255 bytes without commas and control characters",
        ));
    }
    Ok(text.to_string())
}

/// Reads the value of an option with `parse`; a refusal names the option and the value.
fn option<T>(
    name: &str,
    text: Option<&str>,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, Failure> {
    let explain = |text: &str, why: String| Failure::usage(format!("{name} {text}: {why}"));
    text.map(|text| parse(text).map_err(|why| explain(text, why))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::{Arguments, Command};
    use clap::Parser;

    fn arguments(line: &[&str]) -> MountArguments {
        let line = [&["uvfs", "mount"], line].concat();
        match Arguments::try_parse_from(line).unwrap().command {
            Command::Mount(arguments) => *arguments,
            _ => unreachable!("it says mount"),
        }
    }

    fn refusal(line: &[&str]) -> String {
        plan(&arguments(line)).unwrap_err().to_string()
    }

    #[test]
    fn option_values_are_refused_by_name() {
        let check = |option: &str, value: &str, expected: &str| {
            let refusal = refusal(&["memory:", "/", option, value]);
            assert!(refusal.starts_with(option) && refusal.contains(expected), "{refusal}");
        };
        check("--size", "lots", "lots: not a size;");
        check("--size", "0", "zero is no size;");
        check("--size", "-1G", "not a size;");
        check("--size", "100", "too small");
        check("--attr-timeout", "5", "the unit is missing;");
        check("--entry-timeout", "-1s", "not a duration;");
        check("--negative-timeout", "soon", "not a duration;");
        check("--cache-size", "1M", "below the working minimum");
        check("--cache-size", "lots", "lots: not a size;");
        check("--readers", "0", "write 1 to 64");
        check("--readers", "many", "write 1 to 64");
        check("--name", "a,b", "without commas");
        assert!(refusal(&["memory:", "/", "--attr-timeout", "9999h"]).contains("365 days"));
    }

    #[test]
    fn options_that_mean_nothing_for_the_source_are_refused() {
        assert!(refusal(&["/tmp", "/", "--size", "1G"]).starts_with("--size: a directory has"));
        assert!(refusal(&["memory:", "/", "--watch"]).starts_with("--watch: no other program"));
        let cached = refusal(&["memory:", "/", "--page-cache", "write-back"]);
        assert!(cached.starts_with("--page-cache: a memory: file system"), "{cached}");
        let ahead = refusal(&["/tmp", "/", "--read-ahead", "64K"]);
        assert!(ahead.starts_with("--read-ahead: nothing is cached"), "{ahead}");
        let cached = ["/tmp", "/", "--page-cache", "write-through"];
        let delay = refusal(&[&cached[..], &["--write-back-delay", "1s"]].concat());
        assert!(delay.starts_with("--write-back-delay: nothing is written later"), "{delay}");
        let ahead = refusal(&[&cached[..], &["--read-ahead", "2M"]].concat());
        assert!(ahead.contains("at most 1024K"), "{ahead}");
    }

    #[test]
    fn checks_come_in_the_order_of_the_command_line() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().to_str().unwrap();
        assert!(refusal(&["gs:x", "/nowhere"]).contains("unknown scheme"));
        assert!(refusal(&["/nowhere", "/nowhere"]).starts_with("source /nowhere: does not exist"));
        assert!(refusal(&[folder, "/nowhere"]).starts_with("mountpoint /nowhere: does not exist"));
        assert!(refusal(&[folder, folder]).contains("at or below the mountpoint"));
    }

    #[test]
    fn the_size_of_the_caches_is_that_of_the_process() {
        // Not this process's: other tests make it as large as they like.
        let overhead = Overhead::new(5 << 20, Some(2));
        let config = |line: &[&str]| {
            let arguments = arguments(&[&["memory:", "/"], line].concat());
            super::config(&arguments, overhead, &Source::Memory)
        };
        let least = format!("{}M", overhead.minimum_bytes() >> 20);
        for (text, bytes) in
            [("64M", 64 << 20), ("1GiB", 1 << 30), (&*least, overhead.minimum_bytes())]
        {
            let config = config(&["--cache-size", text]).unwrap();
            assert_eq!((config.cache_bytes, config.overhead_bytes), (bytes, overhead.bytes()));
            assert!(config.validate().is_ok(), "the least that is accepted works");
        }
        let memory = Machine::here().memory_bytes();
        assert_eq!(config(&[]).unwrap().cache_bytes, overhead.default_bytes(memory));
        assert_eq!(config(&["--cache-size", "100%"]).unwrap().cache_bytes, memory);
    }

    /// With `--watch`, every answer was asked again after a second; a time-out that is given is obeyed.
    #[test]
    fn a_watched_local_directory_has_long_timeouts() {
        let folder = tempfile::tempdir().unwrap();
        let reported = |path: &Path, line: &[&str]| {
            let source = Source::Directory(path.to_path_buf());
            let arguments = arguments(&[&["/", "/"], line].concat());
            let overhead = Overhead::new(5 << 20, Some(2));
            super::config(&arguments, overhead, &source).unwrap().reported_timeouts
        };
        let (minute, short) = (Duration::from_secs(60), Duration::from_secs(5));
        let expected = Timeouts { attr: short, entry: minute, negative: minute };
        let expected = reports_all_changes(folder.path()).unwrap().then_some(expected);
        assert_eq!(reported(folder.path(), &["--watch", "--attr-timeout", "5s"]), expected);
        assert_eq!(reported(folder.path(), &[]), None);
        assert_eq!(reported(Path::new("/proc"), &["--watch"]), None, "it reports no changes");
    }

    #[test]
    fn half_of_the_machine_is_the_default_room() {
        assert_eq!(memory_bytes(Size::Share(50), 8 << 30).unwrap(), 4 << 30);
        assert!(ram_bytes() > 1 << 20);
    }
}
