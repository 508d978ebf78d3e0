//! The address of a bucket: the user's text, completed by the environment.
//!
//! # Boundary
//! From `s3://BUCKET/PREFIX?KEY=VALUE` and variables to a [`Address`]. Reads no file and sends no request.
//!
//! # Why
//! An unknown parameter is refused and named, because a typing error would otherwise mean another bucket. Any user that
//! lists processes can see a source: it has no place for secrets.

use percent_encoding::percent_decode_str;

/// The parameters, as refusals list them.
const KNOWN: &str = "endpoint, region, profile, anonymous";

/// A bucket, or the part of it below a prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// The bucket.
    pub bucket: String,
    /// Empty, or ends with `/`.
    pub prefix: String,
    /// Where the store is, without a `/` at the end; AWS if it is not given.
    pub endpoint: Option<String>,
    /// The region, if it is given.
    pub region: Option<String>,
    /// Profile of the shared configuration files, if it is given.
    pub profile: Option<String>,
    /// No request is signed.
    pub anonymous: bool,
}

impl Address {
    /// Reads the text behind `s3:`. Missing parts are taken from `variable`, by the names that AWS's own tools use.
    ///
    /// # Errors
    /// The mistake, and the right form.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let example = "write s3://BUCKET or s3://BUCKET/PREFIX";
        let rest = text.strip_prefix("//").ok_or_else(|| example.to_owned())?;
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.contains('@') {
            return Err("credentials do not belong in a source, which everybody can read; set \
                        AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
                .into());
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        if !(3..=63).contains(&bucket.len()) || !bucket.bytes().all(fits) {
            return Err(format!("`{}` is no name of a bucket; {example}", bucket.escape_debug()));
        }
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let mut address = Self {
            bucket: bucket.to_owned(),
            prefix: prefix_of(prefix)?,
            endpoint: None,
            region: None,
            profile: None,
            anonymous: false,
        };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode_str(value).decode_utf8().map_err(|_| {
                format!("parameter `{key}`: its value is not UTF-8; write %XX for bytes")
            })?;
            match key {
                _ if value.is_empty() => return Err(format!("parameter `{key}`: has no value")),
                "endpoint" => address.endpoint = Some(value.into_owned()),
                "region" => address.region = Some(value.into_owned()),
                "profile" => address.profile = Some(value.into_owned()),
                "anonymous" if value == "true" => address.anonymous = true,
                "anonymous" => return Err("parameter `anonymous`: write `anonymous=true`".into()),
                _ => return Err(format!("parameter `{key}` is not known; there are {KNOWN}")),
            }
        }
        let endpoint = address.endpoint.take();
        let endpoint = endpoint.or_else(|| variable("AWS_ENDPOINT_URL_S3"));
        address.endpoint =
            endpoint.or_else(|| variable("AWS_ENDPOINT_URL")).map(endpoint_of).transpose()?;
        let region = address.region.take().or_else(|| variable("AWS_REGION"));
        address.region = region.or_else(|| variable("AWS_DEFAULT_REGION"));
        if let Some(region) = &address.region
            && !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        {
            return Err(format!("region `{}`: not a name of a region", region.escape_debug()));
        }
        Ok(address)
    }

    /// The region to sign for. AWS names another one if this is not it.
    pub(super) fn region(&self) -> &str {
        self.region.as_deref().unwrap_or("us-east-1")
    }

    /// The URL of the bucket, without a `/` at the end.
    pub(super) fn url(&self) -> String {
        let (bucket, region) = (&self.bucket, self.region());
        match &self.endpoint {
            Some(endpoint) => format!("{endpoint}/{bucket}"),
            // A certificate is for one label before the region.
            None if bucket.contains(['.', '_']) => {
                format!("https://s3.{region}.amazonaws.com/{bucket}")
            }
            None => format!("https://{bucket}.s3.{region}.amazonaws.com"),
        }
    }

    /// The ports by which it is reached.
    pub fn port(&self) -> u16 {
        let url = self.url();
        let default = if url.starts_with("http://") { 80 } else { 443 };
        let uri: Option<http::Uri> = url.parse().ok();
        uri.and_then(|uri| uri.port_u16()).unwrap_or(default)
    }

    /// The address as users write it, without parameters.
    pub fn name(&self) -> String {
        format!("s3://{}/{}", self.bucket, self.prefix.trim_end_matches('/'))
    }
}

/// A prefix as a directory: it ends with `/`, and each part is a name.
fn prefix_of(text: &str) -> Result<String, String> {
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.is_empty() {
        return Ok(String::new());
    }
    let named = |part: &str| uvfs_vfs::Name::new(part.as_bytes()).is_ok();
    if !text.split('/').all(named) {
        return Err(format!("prefix `{}`: each part must be a name", text.escape_debug()));
    }
    Ok(format!("{text}/"))
}

fn endpoint_of(text: String) -> Result<String, String> {
    if text.contains('@') {
        // The text is not shown: the part before that is a secret.
        return Err("endpoint: credentials do not belong in it, which everybody can read; write \
                    http://HOST:PORT or https://HOST"
            .into());
    }
    let uri: Result<http::Uri, _> = text.parse();
    let fits = uri.is_ok_and(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri.host().is_some_and(|host| !host.is_empty())
            && uri.query().is_none()
    });
    if !fits {
        let text = text.escape_debug();
        return Err(format!("endpoint `{text}`: write http://HOST:PORT or https://HOST"));
    }
    Ok(text.trim_end_matches('/').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Address, String> {
        Address::parse(text, |_| None)
    }

    #[test]
    fn buckets_prefixes_and_parameters_are_read() {
        let plain = parse("//bucket").unwrap();
        assert_eq!((plain.name().as_str(), plain.port()), ("s3://bucket/", 443));
        assert_eq!(plain.url(), "https://bucket.s3.us-east-1.amazonaws.com");
        let dotted = parse("//my.bucket/a/b/?region=eu-west-1").unwrap();
        assert_eq!(dotted.prefix, "a/b/");
        assert_eq!(dotted.url(), "https://s3.eu-west-1.amazonaws.com/my.bucket");
        let local = parse("//bucket/a b?endpoint=http%3A%2F%2F127.0.0.1%3A7070%2F").unwrap();
        assert_eq!((local.prefix.as_str(), local.port()), ("a b/", 7070));
        assert_eq!(local.url(), "http://127.0.0.1:7070/bucket");
        assert!(parse("//bucket?endpoint=http://[::1]:9&anonymous=true").unwrap().anonymous);
    }

    #[test]
    fn the_environment_fills_what_the_source_leaves_open() {
        let variables = |name: &str| match name {
            "AWS_ENDPOINT_URL" => Some("http://general:1".to_owned()),
            "AWS_ENDPOINT_URL_S3" => Some("http://special:2".to_owned()),
            "AWS_REGION" => Some(String::new()),
            "AWS_DEFAULT_REGION" => Some("eu-south-1".to_owned()),
            _ => None,
        };
        let address = Address::parse("//bucket", variables).unwrap();
        assert_eq!(address.endpoint.as_deref(), Some("http://special:2"));
        assert_eq!(address.region(), "eu-south-1");
        let address = Address::parse("//bucket?endpoint=http://own:3&region=x", variables).unwrap();
        assert_eq!((address.port(), address.region()), (3, "x"));
    }

    #[test]
    fn slips_of_the_pen_are_refused_by_name() {
        let check = |text: &str, expected: &str| {
            let refusal = parse(text).unwrap_err();
            assert!(refusal.contains(expected), "{text}: {refusal}");
        };
        check("bucket", "write s3://BUCKET");
        check("//", "is no name of a bucket");
        check("//b!cket", "is no name of a bucket");
        check("//key:secret@bucket", "credentials do not belong in a source");
        check("//bucket?regoin=x", "parameter `regoin` is not known; there are endpoint, region");
        check("//bucket?region=", "parameter `region`: has no value");
        check("//bucket?region=a/b", "not a name of a region");
        check("//bucket?endpoint=here", "write http://HOST:PORT");
        check("//bucket?endpoint=ftp://here", "write http://HOST:PORT");
        check("//bucket?endpoint=http://me:secret@here", "write http://HOST:PORT");
        // The refusal printed the password.
        for text in ["http://me:secret@here", "me:secret@here", "http://me:sec%23ret@here#"] {
            let refusal = parse(&format!("//bucket?endpoint={text}")).unwrap_err();
            assert!(!refusal.contains("sec"), "{refusal}");
        }
        check("//bucket?anonymous=yes", "anonymous=true");
        check("//bucket/a//b", "each part must be a name");
        check("//bucket/../b", "each part must be a name");
    }
}
