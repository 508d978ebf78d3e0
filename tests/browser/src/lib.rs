#![forbid(unsafe_code)]
//! A headless Chromium for tests and pictures, controlled through a pipe.
//!
//! # Boundary
//! Starts one, loads a page, runs scripts in it, presses keys, takes a picture, and ends it. The caller defines the
//! page's work.
//!
//! # Concurrency
//! A thread reads the browser's messages; calls wait for their answers, one at a time.
//!
//! # Why
//! The DevTools protocol goes over a pipe as JSON, each message with a zero behind it: no port, no websocket, and no
//! crate for either (decision 0031). The browser has the pipe as descriptors 3 and 4, which a shell passes to it.
//! Weakness: differences of other browsers are not seen.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Program names of a Chromium.
const PROGRAMS: [&str; 4] =
    ["chromium", "chromium-headless-shell", "chromium-browser", "google-chrome"];
/// Time after which an answer, or an awaited state, counts as missing.
const LIMIT: Duration = Duration::from_secs(60);
/// Time between two checks for an awaited state.
const LOOK: Duration = Duration::from_millis(20);

/// The browser, ended when dropped.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    /// Number of the last call.
    calls: u64,
    /// Session of the one page.
    session: Option<String>,
    _profile: TempDir,
}

/// The name of a Chromium that is installed here.
pub fn installed() -> Option<&'static str> {
    let runs = |program: &&str| {
        let version = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        version.is_ok_and(|output| output.status.success())
    };
    PROGRAMS.into_iter().find(|program| runs(program))
}

impl Browser {
    /// Starts `program` with an empty page of `width` by `height`.
    ///
    /// # Errors
    /// Why it does not start, in words.
    pub fn start(program: &str, (width, height): (u32, u32)) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("{program}: {error}");
        let profile = tempfile::tempdir().map_err(failed)?;
        let mut command = Command::new("sh");
        command.args(["-c", r#"exec "$@" 3<&0 4>&1 0</dev/null 1>/dev/null"#, "sh", program]);
        command.args([
            "--headless",
            "--remote-debugging-pipe",
            // Root has no other way; the page is our own.
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--disable-extensions",
            "--no-first-run",
            "--hide-scrollbars",
        ]);
        command.arg(format!("--user-data-dir={}", profile.path().display()));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let (Some(to), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(format!("{program}: no pipe"));
        };
        let (sender, from) = mpsc::channel();
        let read = move || {
            for message in BufReader::new(out).split(0).map_while(Result::ok) {
                let Ok(message) = serde_json::from_slice(&message) else { continue };
                if sender.send(message).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().name("browser".into()).spawn(read).map_err(failed)?;
        let mut browser = Self { child, to, from, calls: 0, session: None, _profile: profile };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))?;
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", &target)?;
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        browser.call("Runtime.enable", &json!({}))?;
        browser.call("Log.enable", &json!({}))?;
        let size =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        browser.call("Emulation.setDeviceMetricsOverride", &size)?;
        Ok(browser)
    }

    /// Carries out one method of the protocol.
    ///
    /// # Errors
    /// The browser's error, or the lack of an answer.
    pub fn call(&mut self, method: &str, parameters: &Value) -> Result<Value, String> {
        self.calls += 1;
        let mut message = json!({"id": self.calls, "method": method, "params": parameters});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).map_err(|error| format!("{method}: {error}"))?;
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let said = self.from.recv_timeout(left).map_err(|_| format!("{method}: no answer"))?;
            if said["id"] != json!(self.calls) {
                continue;
            }
            return match said.get("error") {
                Some(error) => Err(format!("{method}: {error}")),
                None => Ok(said["result"].clone()),
            };
        }
    }

    /// Loads the page at `address`.
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn open(&mut self, address: &str) -> Result<(), String> {
        let opened = self.call("Page.navigate", &json!({"url": address}))?;
        match opened.get("errorText").and_then(Value::as_str) {
            Some(error) => Err(format!("{address}: {error}")),
            None => Ok(()),
        }
    }

    /// The value of `script` in the page; a promise is awaited.
    ///
    /// # Errors
    /// Those of [`Browser::call`], and exceptions of the script.
    pub fn evaluate(&mut self, script: &str) -> Result<Value, String> {
        let asked = json!({"expression": script, "returnByValue": true, "awaitPromise": true});
        let answer = self.call("Runtime.evaluate", &asked)?;
        match answer.get("exceptionDetails") {
            Some(thrown) => Err(format!("{script}: {thrown}")),
            None => Ok(answer["result"]["value"].clone()),
        }
    }

    /// Waits until `script` is true in the page, also across the loading of another one.
    ///
    /// # Errors
    /// That it never was, with its last value.
    pub fn wait_for(&mut self, script: &str) -> Result<(), String> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let value = self.evaluate(script);
            if value == Ok(Value::Bool(true)) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(format!("no result in time for {script}: {value:?}"));
            }
            thread::sleep(LOOK);
        }
    }

    /// Presses a key that has a name, such as `Enter`, `Tab` or `Escape`.
    ///
    /// # Errors
    /// As [`Browser::call`].
    pub fn press(&mut self, key: &str) -> Result<(), String> {
        let code = match key {
            "Backspace" => 8,
            "Tab" => 9,
            "Enter" => 13,
            "Escape" => 27,
            _ => return Err(format!("{key}: not a key that this knows")),
        };
        let mut event =
            json!({"type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code});
        if key == "Enter" {
            event["text"] = json!("\r");
        }
        self.call("Input.dispatchKeyEvent", &event)?;
        event["type"] = json!("keyUp");
        self.call("Input.dispatchKeyEvent", &event).map(drop)
    }

    /// Sets the page's colour scheme: `dark` or `light`.
    ///
    /// # Errors
    /// Those of [`Browser::call`].
    pub fn prefer(&mut self, scheme: &str) -> Result<(), String> {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", &json!({"features": features})).map(drop)
    }

    /// The page as a PNG.
    ///
    /// # Errors
    /// Those of [`Browser::call`].
    pub fn picture(&mut self) -> Result<Vec<u8>, String> {
        let taken = self.call("Page.captureScreenshot", &json!({"format": "png"}))?;
        let text = taken["data"].as_str().unwrap_or_default();
        STANDARD.decode(text).map_err(|error| format!("picture: {error}"))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        self.session = None;
        // It closes its own processes; the remaining ones are killed.
        let _ = self.call("Browser.close", &json!({}));
        let deadline = Instant::now() + Duration::from_secs(5);
        while Instant::now() < deadline && matches!(self.child.try_wait(), Ok(None)) {
            thread::sleep(LOOK);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
