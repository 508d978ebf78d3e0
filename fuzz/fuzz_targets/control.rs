//! The control socket's protocol: any bytes as a client or a daemon might send them.
//!
//! Lines are bounded and whole; a request or reply that is understood is understood again after it
//! was written; a reply is one line whatever it says.
//!
//! The module is taken from the tool by its path: the tool has no library, and needs none for this.
//! Hence the allowance: what only its other half calls is not called here.

#![no_main]

#[allow(dead_code, unreachable_pub)]
#[path = "../../crates/cli/src/control/protocol.rs"]
mod protocol;

use libfuzzer_sys::fuzz_target;
use protocol::{LINE_BYTES_MAX, Reply, Request, read_line};

fuzz_target!(|bytes: &[u8]| {
    let mut stream = bytes;
    while let Ok(Some(line)) = read_line(&mut stream) {
        assert!((line.len() as u64) < LINE_BYTES_MAX && !line.contains('\n'));
        if let Ok(request) = serde_json::from_str::<Request>(&line) {
            let text = serde_json::to_string(&request).expect("a request has only plain fields");
            assert_eq!(serde_json::from_str::<Request>(&text).expect("our own"), request);
        }
        if let Ok(reply) = serde_json::from_str::<Reply>(&line) {
            let text = reply.to_line();
            assert_eq!(text.find('\n'), Some(text.len() - 1));
            assert_eq!(serde_json::from_str::<Reply>(&text).expect("our own"), reply);
        }
    }
});
