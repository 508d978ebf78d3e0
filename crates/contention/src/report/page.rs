//! The frame of an HTML page: one file, readable without network and without scripts.
//!
//! # Boundary
//! Style, head and tables; the content comes escaped from its caller.
//!
//! # Why
//! A page is sent to other people, so it must not load anything: its policy forbids all sources, and allows
//! only its own style and one small script (sorting a table by a column). Weakness: the style is
//! repeated in every page, three kilobytes.

use super::format::escape;
use std::fmt::Write as _;

const STYLE: &str = "
:root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#5b6570;--line:#d6dbe0;--soft:#f3f5f7;--hot:#fff1d6;
--c1:#0072b2;--c2:#56b4e9;--c3:#009e73;--c4:#e69f00;--c5:#d55e00}
@media(prefers-color-scheme:dark){:root{--bg:#15181c;--fg:#e4e8ec;--dim:#98a2ad;--line:#353b42;--soft:#1e2228;
--hot:#3a2f16;--c1:#4aa8e0;--c2:#8ad0f5;--c3:#35c79a;--c4:#f0b93a;--c5:#f08a4a}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}
main{max-width:76rem;margin:0 auto;padding:1rem}h1{font-size:1.3rem}h2{font-size:1.15rem;margin:2rem 0 .5rem;
border-top:1px solid var(--line);padding-top:1rem}h3{font-size:1rem;margin:1.2rem 0 .3rem}
h1,h2,h3,p,li{overflow-wrap:anywhere}p{margin:.3rem 0}.dim{color:var(--dim)}nav a{margin-right:1rem}
a{color:var(--c1)}ol.summary{padding-left:1.4rem}ol.summary li:first-child{font-weight:600}
.scroll{overflow-x:auto;margin:.5rem 0}table{border-collapse:collapse;font-size:13px;white-space:nowrap}
th,td{padding:.2rem .55rem;text-align:left;border-bottom:1px solid var(--line)}
th{background:var(--soft);cursor:pointer;font-weight:600}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}
td.code{font-family:ui-monospace,monospace}tr.hot td{font-weight:700;background:var(--hot)}
tr.sub td{font-weight:600;background:var(--soft)}tr.edge td{border-top:2px solid var(--c1)}
svg{width:100%;height:auto;max-width:60rem;display:block}svg text{fill:var(--fg);font:12px system-ui,sans-serif}
svg text.title{font-weight:600;font-size:13px}svg .grid{stroke:var(--line)}polyline{fill:none;stroke-width:2}
.dashed{stroke-dasharray:5 4}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}
.c5{fill:var(--c5)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}
.s5{stroke:var(--c5)}.heat rect{stroke:var(--bg);stroke-width:1}.shared{fill:var(--c5)}.own{fill:var(--c4)}
.victim{fill:var(--c1)}.read{fill:var(--c2)}.quiet{fill:var(--line)}.hole{fill:var(--soft)}
.key span{display:inline-block;margin-right:1rem}.key i{display:inline-block;width:.8em;height:.8em;
margin-right:.3em;vertical-align:-.05em}.key .shared{background:var(--c5)}.key .own{background:var(--c4)}
.key .victim{background:var(--c1)}.key .read{background:var(--c2)}.key .quiet{background:var(--line)}
.key .hole{background:var(--soft);outline:1px solid var(--line)}
";

const SCRIPT: &str = "
document.querySelectorAll('table.sort th').forEach(function(th){th.addEventListener('click',function(){
var t=th.closest('table'),b=t.tBodies[0],i=th.cellIndex,d=th.dataset.d=th.dataset.d==='-1'?'1':'-1';
function k(r){var s=r.cells[i]?r.cells[i].textContent:'',n=parseFloat(s.replace(/,/g,''));return isNaN(n)?s:n}
Array.from(b.rows).map(function(r,n){return[k(r),n,r]}).sort(function(x,y){var p=x[0],q=y[0];
var c=typeof p==='number'&&typeof q==='number'?p-q:String(p).localeCompare(String(q));return c*d||x[1]-y[1]})
.forEach(function(x){b.appendChild(x[2])})})});
";

/// How every page begins, by which a page of ours is told from others.
pub const PAGE_HEAD: &str = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
    <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
    <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
    style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n";

/// A whole page; `body` is HTML.
pub(super) fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "{PAGE_HEAD}<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}\
         </main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// How a cell is shown.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Number,
    Word,
    Code,
}

/// A table with a heading; the browser scrolls it, and sorts it where `sort` says so.
pub(super) struct Rows {
    text: String,
    kinds: Vec<Kind>,
}

impl Rows {
    pub(super) fn new(sort: bool, columns: &[(&str, Kind)]) -> Self {
        let class = if sort { " class=\"sort\"" } else { "" };
        let mut text = format!("<div class=\"scroll\"><table{class}>\n<thead><tr>");
        for (head, kind) in columns {
            let class = if *kind == Kind::Number { " class=\"n\"" } else { "" };
            let _ = write!(text, "<th{class}>{}</th>", escape(head));
        }
        text.push_str("</tr></thead>\n<tbody>\n");
        Self { text, kinds: columns.iter().map(|(_, kind)| *kind).collect() }
    }

    /// A row; `class` is one of the style's, or nothing.
    pub(super) fn push(&mut self, class: &str, cells: &[String]) {
        let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
        let _ = write!(self.text, "<tr{class}>");
        for (at, cell) in cells.iter().enumerate() {
            let class = match self.kinds.get(at) {
                Some(Kind::Number) => " class=\"n\"",
                Some(Kind::Code) => " class=\"code\"",
                _ => "",
            };
            let _ = write!(self.text, "<td{class}>{}</td>", escape(cell));
        }
        self.text.push_str("</tr>\n");
    }

    pub(super) fn finish(self) -> String {
        self.text + "</tbody></table></div>\n"
    }
}
