//! The control socket's protocol: any bytes of a client or a daemon.
//!
//! Lines are bounded and whole; a parsed request or reply is parsed again after it was written;
//! every reply is one line.

use uvfs_control::protocol::{
    CleanLine, REPLY_BYTES_MAX, REQUEST_BYTES_MAX, Reply, Request, read_line,
};

/// One input.
///
/// # Panics
/// If it is treated as it should not be.
pub fn run(bytes: &[u8]) {
    check(bytes, REQUEST_BYTES_MAX, |line| {
        if let Ok(request) = serde_json::from_str::<Request>(line) {
            let text = serde_json::to_string(&request).expect("a request has only plain fields");
            assert_eq!(serde_json::from_str::<Request>(&text).expect("our own"), request);
        }
    });
    check(bytes, REPLY_BYTES_MAX, |line| {
        if let Ok(reply) = serde_json::from_str::<Reply>(line) {
            let text = reply.to_line();
            assert_eq!(text.find('\n'), Some(text.len() - 1));
            assert_eq!(serde_json::from_str::<Reply>(&text).expect("our own"), reply);
        }
        if let Ok(step) = serde_json::from_str::<CleanLine>(line) {
            let text = serde_json::to_string(&step).expect("a step has only plain fields");
            assert_eq!(serde_json::from_str::<CleanLine>(&text).expect("our own"), step);
        }
    });
}

/// Reads lines of at most `bytes_max`, and passes each to `look`.
fn check(bytes: &[u8], bytes_max: u64, look: impl Fn(&str)) {
    let mut stream = bytes;
    while let Ok(Some(line)) = read_line(&mut stream, bytes_max) {
        assert!((line.len() as u64) < bytes_max && !line.contains('\n'));
        look(&line);
    }
}
