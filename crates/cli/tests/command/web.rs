//! `uvfs web` of real mounts: by HTTP, and in a browser.

use crate::common::{LIMIT, Place, can_mount, run, uvfs, wait};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout};
use uvfs_browser::Browser;

/// A page that is served, until it is dropped.
struct Page {
    child: Child,
    /// Address that the server prints first.
    address: String,
    _stdout: BufReader<ChildStdout>,
}

impl Page {
    fn serve(arguments: &[&str]) -> Self {
        let mut child = uvfs().arg("web").args(arguments).spawn().expect("the program starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("text");
        let address = line.trim_end().strip_prefix("uvfs: ").unwrap_or_default().to_owned();
        if address.is_empty() {
            let mut why = String::new();
            child.stderr.take().expect("piped").read_to_string(&mut why).expect("text");
            panic!("no page: {why}");
        }
        Self { child, address, _stdout: stdout }
    }

    /// The host with its port, and the token.
    fn parts(&self) -> (&str, &str) {
        let rest = self.address.strip_prefix("http://").expect("an address");
        rest.split_once("/#").expect("a token")
    }

    /// Sends `bytes` and returns all that is answered.
    fn send(&self, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.parts().0).expect("it listens");
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        // It may be refused before all of it is sent.
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Asks as the page does: the status, and the object.
    fn ask(&self, line: &str, body: &Value) -> (String, Value) {
        let (host, token) = self.parts();
        let body = body.to_string();
        let length = body.len();
        let answer = self.send(
            format!(
                "{line} HTTP/1.1\r\nHost: {host}\r\nOrigin: http://{host}\r\nAuthorization: Bearer {token}\r\n\
                 Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
            )
            .as_bytes(),
        );
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).expect("a status").to_owned();
        (status, serde_json::from_str(body).unwrap_or_default())
    }

    /// Ends well, as after Ctrl-C.
    fn end(mut self) {
        rustix::process::kill_process(Pid::from_child(&self.child), Signal::INT).unwrap();
        assert_eq!(wait(&mut self.child).code(), Some(0));
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A mount with something in its page cache: 3 files in `photos/2019`, one in `music`.
fn mounted() -> Place {
    let place = Place::new();
    for (folder, files) in [("photos/2019", 3), ("music", 1)] {
        fs::create_dir_all(place.source.join(folder)).unwrap();
        for at in 0..files {
            fs::write(place.source.join(folder).join(at.to_string()), vec![1; 1 << 20]).unwrap();
        }
    }
    let options =
        ["--page-cache", "write-through", "--entry-timeout", "1h", "--attr-timeout", "1h"];
    place.mount_daemon(place.src(), &options);
    for (folder, files) in [("photos/2019", 3), ("music", 1)] {
        for at in 0..files {
            fs::read(place.mountpoint.join(folder).join(at.to_string())).unwrap();
        }
    }
    place
}

/// The cached bytes of `name`, in a level of the mount's root.
fn cached(page: &Page, place: &Place, name: &str) -> u64 {
    let asked = json!({"mountpoint": place.mnt(), "directory": "/"});
    let (status, answer) = page.ask("POST /api/level", &asked);
    assert_eq!(status, "200", "{answer}");
    let children = answer["level"]["children"].as_array().expect("a list");
    let child = children.iter().find(|child| child["name"] == name);
    child.and_then(|child| child["pages"]["bytes"].as_u64()).unwrap_or(0)
}

#[test]
fn a_directory_is_looked_at_and_dropped_by_http() {
    if !can_mount() {
        return;
    }
    let place = mounted();
    let page = Page::serve(&[place.mnt()]);
    let (status, figures) = page.ask("GET /api/figures", &json!({}));
    assert_eq!(
        (status.as_str(), &figures["mounts"][0]["mountpoint"]),
        ("200", &json!(place.mnt()))
    );
    // Story: the first figures were those of one sample, whose rates are 0.
    assert!(figures["seconds"].as_f64() > Some(0.1), "{figures}");
    assert_eq!(cached(&page, &place, "photos"), 3 << 20);
    assert_eq!(cached(&page, &place, "music"), 1 << 20);
    let drop = json!({"mountpoint": place.mnt(), "directory": "/photos"});
    // A request without the token, or from elsewhere, drops nothing.
    let (host, token) = page.parts();
    let fields = |fields: &str| {
        let body = drop.to_string();
        let length = body.len();
        let text =
            format!("POST /api/drop HTTP/1.1\r\n{fields}Content-Length: {length}\r\n\r\n{body}");
        page.send(text.as_bytes()).split(' ').nth(1).map(str::to_owned)
    };
    let json = "Content-Type: application/json\r\n";
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let refusals = [
        (format!("Host: {host}\r\nOrigin: http://{host}\r\n{json}"), "401"),
        (format!("Host: {host}\r\nOrigin: http://evil.example\r\n{json}{bearer}"), "403"),
        (
            format!("Host: rebound.example\r\nOrigin: http://rebound.example\r\n{json}{bearer}"),
            "403",
        ),
        (format!("Host: {host}\r\nOrigin: http://{host}\r\n{bearer}"), "415"),
    ];
    for (text, status) in refusals {
        assert_eq!(fields(&text).as_deref(), Some(status), "{text}");
    }
    assert_eq!(cached(&page, &place, "photos"), 3 << 20, "nothing was dropped");
    let (status, answer) = page.ask("POST /api/drop", &drop);
    assert_eq!((status.as_str(), &answer["page_bytes"]), ("200", &json!(3 << 20)), "{answer}");
    assert_eq!(cached(&page, &place, "photos"), 0);
    assert_eq!(cached(&page, &place, "music"), 1 << 20);
    let missing = json!({"mountpoint": place.mnt(), "directory": "/none"});
    let (status, answer) = page.ask("POST /api/drop", &missing);
    assert_eq!(status, "409");
    assert!(answer["error"].as_str().unwrap().contains("no such directory"), "{answer}");
    page.end();
}

/// A page shows only its own mount to a user with its token.
#[test]
fn a_page_of_one_mount_tells_of_no_other() {
    if !can_mount() {
        return;
    }
    let (shown, other) = (mounted(), mounted());
    let page = Page::serve(&[shown.mnt()]);
    let (_, figures) = page.ask("GET /api/figures", &json!({}));
    assert_eq!(figures["mounts"].as_array().map(Vec::len), Some(1), "{figures}");
    let asked = json!({"mountpoint": other.mnt(), "directory": "/"});
    for line in ["POST /api/level", "POST /api/drop"] {
        let (status, answer) = page.ask(line, &asked);
        assert_eq!(status, "409", "{answer}");
        assert!(answer["error"].as_str().unwrap().contains("not a mount of this page"), "{answer}");
    }
    page.end();
}

#[test]
fn what_is_too_large_too_much_or_no_request_is_refused_and_others_are_served() {
    let page = Page::serve(&[]);
    let (host, token) = page.parts();
    let status = |bytes: &[u8]| page.send(bytes).split(' ').nth(1).map(str::to_owned);
    let large = format!(
        "POST /api/drop HTTP/1.1\r\nHost: {host}\r\nContent-Length: 70000\r\n\r\n{}",
        "x".repeat(70_000)
    );
    assert_eq!(status(large.as_bytes()).as_deref(), Some("413"));
    let long = format!("GET /{} HTTP/1.1\r\nHost: {host}\r\n\r\n", "x".repeat(20_000));
    assert_eq!(status(long.as_bytes()).as_deref(), Some("431"));
    let chunked = format!(
        "POST /api/drop HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    );
    assert_eq!(status(chunked.as_bytes()).as_deref(), Some("501"));
    assert_eq!(status(b"\x16\x03\x01\0\0\r\n\r\n").as_deref(), Some("400"));
    // A second request on the connection is not looked at.
    let two = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").repeat(2);
    assert_eq!(page.send(two.as_bytes()).matches("HTTP/1.1 200 OK").count(), 1);
    // More silent clients than places: they lose them, and a real request is served at last.
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(host).unwrap()).collect();
    crate::common::eventually("a place", || {
        let text = format!(
            "GET /api/figures HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
        );
        status(text.as_bytes()).as_deref() == Some("200")
    });
    drop(silent);
    page.end();
}

#[test]
fn what_is_no_mount_and_an_address_of_others_are_refused() {
    let refused = run(&["web", "/proc"]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    let open = run(&["web", "--listen", "0.0.0.0:0"]);
    assert_eq!(open.code, Some(2), "{open:?}");
    assert!(open.stderr.contains("ssh -L"), "{open:?}");
    let page = Page::serve(&[]);
    let taken = run(&["web", "--listen", page.parts().0]);
    assert_eq!(taken.code, Some(1), "{taken:?}");
    assert!(taken.stderr.contains("Address already in use"), "{taken:?}");
    page.end();
}

/// Bug: a request to drop ends in a newline, and a name may, too. Such a directory is now refused in words, by the
/// page, which asks like `uvfs top`, and on the command line, and the one with the same name without it keeps its
/// cached entries. Newlines elsewhere belong to the name.
#[test]
fn a_directory_whose_name_ends_in_a_newline_is_refused_and_no_other_is_dropped() {
    if !can_mount() {
        return;
    }
    let place = mounted();
    for name in ["music\n", "photos/20\n19"] {
        fs::create_dir(place.mountpoint.join(name)).unwrap();
        fs::write(place.mountpoint.join(name).join("file"), vec![1; 4096]).unwrap();
        fs::read(place.mountpoint.join(name).join("file")).unwrap();
    }
    let page = Page::serve(&[place.mnt()]);
    let (music, photos) = (cached(&page, &place, "music"), cached(&page, &place, "photos"));
    assert_eq!((music, cached(&page, &place, "music\n")), (1 << 20, 4096), "both are shown");
    for line in ["POST /api/drop", "POST /api/level"] {
        let asked = json!({"mountpoint": place.mnt(), "directory": "/music\n"});
        let (status, answer) = page.ask(line, &asked);
        assert!(
            status != "200" && answer.to_string().contains("newline"),
            "{line}: {status} {answer}"
        );
    }
    let refused = run(&["drop", &format!("3:{}/music\n\n", place.mnt())]);
    assert!(refused.code != Some(0) && refused.stderr.contains("newline"), "{refused:?}");
    let kept = [cached(&page, &place, "music"), cached(&page, &place, "music\n")];
    assert_eq!(kept, [1 << 20, 4096], "nothing was dropped");
    let inside = json!({"mountpoint": place.mnt(), "directory": "/photos/20\n19"});
    let (status, answer) = page.ask("POST /api/drop", &inside);
    assert_eq!(status, "200", "{answer}");
    assert_eq!(cached(&page, &place, "photos"), photos - 4096);
    page.end();
}

/// In a browser, by its keys alone: into a directory, drop it, and its bytes are freed.
#[test]
fn a_browser_enters_a_directory_drops_it_and_sees_the_bytes_go() {
    if !can_mount() {
        return;
    }
    let Some(program) = uvfs_browser::installed() else {
        return uvfs_skip::lacking("no chromium");
    };
    let place = mounted();
    // A name that would be markup, if names were.
    let script = "<img src=x onerror=document.title='pwned'>";
    fs::create_dir(place.mountpoint.join("photos").join(script)).unwrap();
    let page = Page::serve(&[place.mnt()]);
    let mut browser = Browser::start(program, (1200, 900)).unwrap();
    browser.open(&page.address).unwrap();
    let button = |label: &str| format!("document.querySelector('button[aria-label=\"{label}\"]')");
    let (enter, drop) = (button("enter photos"), button("drop the cached objects of 2019"));
    browser.wait_for(&format!("{enter} !== null")).unwrap();
    assert_eq!(
        browser.evaluate("location.hash + location.pathname").unwrap(),
        "/",
        "no token stays there"
    );
    // The picture in the README had half a button in its last column: the table had less room than it needs.
    let whole = "(rows => rows.scrollWidth <= rows.clientWidth)(document.querySelector('.rows'))
        && document.documentElement.scrollWidth <= document.documentElement.clientWidth";
    assert_eq!(browser.evaluate(whole).unwrap(), true, "the last column is seen");
    let tiles = "[...document.querySelectorAll('.tile')].map(tile => tile.title).join()";
    browser.wait_for(&format!("{tiles}.includes('photos: 3.0 MiB')")).unwrap();
    browser.evaluate(&format!("{enter}.focus()")).unwrap();
    browser.press("Enter").unwrap();
    browser.wait_for(&format!("{drop} !== null")).unwrap();
    let bytes = "[...document.querySelectorAll('tr')].find(row => row.textContent.startsWith('2019'))?.cells[1].textContent ?? ''";
    let shown = browser.evaluate(bytes).unwrap();
    assert!(shown.as_str().unwrap().starts_with("3.0 MiB"), "{shown}");
    // A screen reader's user hears the place, and the focus is there.
    browser.wait_for("document.activeElement.id === 'caption'").unwrap();
    browser
        .wait_for(
            "document.getElementById('said').textContent.startsWith('/photos: 3.0 MiB cached')",
        )
        .unwrap();
    browser.evaluate(&format!("{drop}.focus()")).unwrap();
    browser.press("Enter").unwrap();
    browser
        .wait_for("document.getElementById('ask').open && document.activeElement.id === 'ask-no'")
        .unwrap();
    browser.press("Escape").unwrap();
    browser.wait_for("!document.getElementById('ask').open").unwrap();
    assert_eq!(cached(&page, &place, "photos"), 3 << 20, "it was not confirmed");
    browser.evaluate(&format!("{drop}.focus()")).unwrap();
    browser.press("Enter").unwrap();
    browser.wait_for("document.activeElement.id === 'ask-no'").unwrap();
    browser.press("Tab").unwrap();
    browser.wait_for("document.activeElement.id === 'ask-yes'").unwrap();
    browser.press("Enter").unwrap();
    browser.wait_for("document.getElementById('said').textContent.startsWith('dropped ')").unwrap();
    browser.wait_for(&format!("!({bytes}).startsWith('3.0 MiB')")).unwrap();
    assert_eq!(cached(&page, &place, "photos"), 0);
    browser.press("Backspace").unwrap();
    browser
        .wait_for(&format!("{enter} !== null && !({tiles}).includes('photos: 3.0 MiB')"))
        .unwrap();
    assert_eq!(browser.evaluate("document.title").unwrap(), "uvfs", "a name is not markup");
    // Without its token, like another tab of the same browser, the page asks for its address.
    let host = page.parts().0.to_owned();
    browser.evaluate("sessionStorage.clear()").unwrap();
    browser.open(&format!("http://{host}/")).unwrap();
    browser
        .wait_for("document.getElementById('said').textContent.startsWith('open the address')")
        .unwrap();
    assert_eq!(browser.evaluate("document.querySelectorAll('.tile').length").unwrap(), 0);
    page.end();
}

/// Story: a reader of the page found one level in one colour, no order and no search, "hits: names 0.0 %" where the
/// kernel's cache answers, "Drop all" in the row of the directory itself, and at 420 pixels no button to drop.
#[test]
fn a_browser_sorts_searches_and_shows_two_levels_by_kind() {
    if !can_mount() {
        return;
    }
    let Some(program) = uvfs_browser::installed() else {
        return uvfs_skip::lacking("no chromium");
    };
    let place = mounted();
    let page = Page::serve(&[place.mnt()]);
    let mut browser = Browser::start(program, (420, 900)).unwrap();
    browser.open(&page.address).unwrap();
    // Two levels, and the kinds of the bytes with their legend.
    let tiles = "[...document.querySelectorAll('.tile')].map(tile => tile.title).join()";
    browser.wait_for(&format!("({tiles}).includes('photos/2019: 3.0 MiB')")).unwrap();
    let inside =
        "document.querySelector('.tile.parent .inside .tile.child .kinds .one').clientWidth > 0";
    assert_eq!(browser.evaluate(inside).unwrap(), true);
    let legend = "document.getElementById('legend').innerText.replaceAll('\\n', ' ')";
    let shown = browser.evaluate(legend).unwrap();
    assert!(shown.as_str().unwrap().starts_with("pages 4.0 MiB dirty pages 0 B inodes"), "{shown}");
    // All in sight of a narrow window, without a step to the side: the picture, and a button to drop each row.
    let seen = "['#map', '#drop-all', 'button[aria-label=\"drop the cached objects of photos\"]'].map((one) => {
        const box = document.querySelector(one).getBoundingClientRect();
        return box.left >= 0 && box.right <= innerWidth && box.top >= 0 && box.bottom <= innerHeight;
    })";
    assert_eq!(browser.evaluate(seen).unwrap(), json!([true, true, true]));
    let own = "[...document.querySelectorAll('[data-row=own] button')].length";
    assert_eq!(browser.evaluate(own).unwrap(), 0, "it holds for the directories below, too");
    // As `uvfs top` has it: the kernel answers repeated lookups.
    let names = "[...document.querySelectorAll('#charts li')].map(one => one.innerText.replaceAll('\\n', ' '))
        .find(text => text.startsWith('hits: names'))";
    browser.wait_for(&format!("({names})?.startsWith('hits: names kernel the kernel')")).unwrap();
    // By name from the first letter on, and from the last; a column that is sorted is shown.
    let rows =
        "[...document.querySelectorAll('#rows tr')].map(row => row.cells[0].textContent).join()";
    let sort =
        |column: &str| format!("document.querySelector('[data-column={column}] button').click()");
    let order = |column: &str| {
        format!("document.querySelector('[data-column={column}]').getAttribute('aria-sort')")
    };
    let own = "in the directory itself";
    assert_eq!(browser.evaluate(rows).unwrap(), format!("{own},photos,music"));
    assert_eq!(browser.evaluate(&order("bytes")).unwrap(), "descending");
    browser.evaluate(&sort("name")).unwrap();
    assert_eq!(browser.evaluate(rows).unwrap(), format!("{own},music,photos"));
    assert_eq!(browser.evaluate(&order("name")).unwrap(), "ascending");
    browser.evaluate(&sort("name")).unwrap();
    assert_eq!(browser.evaluate(rows).unwrap(), format!("{own},photos,music"));
    let is_seen = "document.querySelector('#rows td:nth-child(3)').offsetWidth > 0";
    assert_eq!(browser.evaluate(is_seen).unwrap(), false);
    browser.evaluate(&sort("names")).unwrap();
    assert_eq!(browser.evaluate(is_seen).unwrap(), true);
    assert_eq!(browser.evaluate(&order("bytes")).unwrap(), Value::Null);
    // The key of `uvfs top` for a search.
    browser
        .evaluate("document.body.dispatchEvent(new KeyboardEvent('keydown', { key: '/', bubbles: true }))")
        .unwrap();
    browser.wait_for("document.activeElement.id === 'find'").unwrap();
    browser
        .evaluate(
            "(find => { find.value = 'PHO'; find.dispatchEvent(new Event('input')); })(document.activeElement)",
        )
        .unwrap();
    assert_eq!(browser.evaluate(rows).unwrap(), format!("{own},photos"));
    let faded =
        "[...document.querySelectorAll('.faded')].map(tile => tile.title.split(':')[0]).join()";
    assert_eq!(browser.evaluate(faded).unwrap(), "music");
    // A tile of the second level is entered at once, and the browser goes back.
    browser
        .evaluate("[...document.querySelectorAll('.tile')].find(tile => tile.title.startsWith('photos/2019')).click()")
        .unwrap();
    let caption = "document.getElementById('caption').textContent";
    browser.wait_for(&format!("({caption}).startsWith('/photos/2019: ')")).unwrap();
    let text = "document.getElementById('find').value";
    assert_eq!(browser.evaluate(text).unwrap(), "", "a search is about one directory");
    assert_eq!(browser.evaluate("location.href.endsWith('/') && history.state").unwrap(), 0);
    browser.evaluate("history.back()").unwrap();
    browser.wait_for(&format!("({caption}).startsWith('/: ')")).unwrap();
    drop(browser);
    page.end();
}

/// Colours differ, and neither is too faint to read.
#[test]
fn dark_and_light_have_enough_contrast_and_everything_a_name() {
    let Some(program) = uvfs_browser::installed() else {
        return uvfs_skip::lacking("no chromium");
    };
    let page = Page::serve(&[]);
    let mut browser = Browser::start(program, (1200, 900)).unwrap();
    let mut grounds = Vec::new();
    for scheme in ["dark", "light"] {
        browser.prefer(scheme).unwrap();
        browser.open(&page.address).unwrap();
        browser
            .wait_for(
                "document.readyState === 'complete' && document.getElementById('mounts') !== null",
            )
            .unwrap();
        // By the formula of WCAG 2: text needs 4.5.
        let contrasts = "(() => {
            const style = getComputedStyle(document.documentElement);
            const light = (name) => {
              const text = style.getPropertyValue(name).trim();
              const parts = [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16) / 255);
              const [r, g, b] = parts.map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
              return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            };
            const pairs = [['--text', '--ground'], ['--faint', '--ground'], ['--faint', '--panel'], ['--accent', '--ground'],
              ['--alarm', '--ground'], ['--on-accent', '--accent'], ['--on-tile', '--one'], ['--on-tile', '--two'],
              ['--on-tile', '--three'], ['--on-tile', '--four'], ['--on-tile', '--rest']];
            return pairs.map(([one, other]) => {
              const [high, low] = [light(one), light(other)].sort((a, b) => b - a);
              return [`${one} on ${other}`, (high + 0.05) / (low + 0.05)];
            }).filter(([, contrast]) => !(contrast >= 4.5));
          })()";
        assert_eq!(browser.evaluate(contrasts).unwrap(), json!([]), "{scheme}");
        grounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor").unwrap());
    }
    assert_ne!(grounds[0], grounds[1]);
    // As a screen reader has them.
    let nameless = "[...document.querySelectorAll('button, select, input, table, section, nav')]
        .filter((one) => !(one.getAttribute('aria-label') || one.getAttribute('aria-labelledby') || one.textContent.trim()
            || (one.labels && one.labels.length))).map((one) => one.outerHTML)";
    assert_eq!(browser.evaluate(nameless).unwrap(), json!([]));
    drop(browser);
    page.end();
}
