// The page of `uvfs web`: live figures, and the cached objects of one directory, as a picture of two levels and as a table.
//
// The token comes behind the # of the address, is taken out of it at once and kept for this tab alone; it goes to our own server
// in a field, which no other page can set. All that is shown becomes text, never markup: names are strangers'.
"use strict";

const FIGURES_MS = 2000, LEVEL_MS = 5000, POINTS = 90, TILES = 60;
// Directories whose own level is in the picture, the share of the whole that they have at least, and their tiles. Each of them is
// another pass over the daemon's caches: they have their own pause, and there is none if the first pass took longer than this time.
const NESTED = 8, NESTED_SHARE = .02, TILES_NESTED = 12, NESTED_MS = 1000;
// Directories of a level, and of one in which the user searches.
const MOST = 100, MOST_FOUND = 1000;
const SVG = "http://www.w3.org/2000/svg";
// A level that takes long to count is counted more seldom: a hundredth of the time at most.
const RESTS = 100;
const at = (id) => document.getElementById(id);

const state = {
  token: "", mounts: [], mountpoint: null, way: [], by: "bytes", paused: false,
  level: null, below: new Map(), belowAfter: 0, history: new Map(), asked: 0, levelTimer: 0, lost: false, sort: null, find: "",
};
// The places that the browser's Back leads to. The browser keeps their numbers: it writes its history to disk, and names are not for it.
const places = [];

function makeToken() {
  const told = location.hash.slice(1);
  if (/^[0-9a-f]{64}$/.test(told)) {
    sessionStorage.setItem("token", told);
    history.replaceState(null, "", "/");
  }
  state.token = sessionStorage.getItem("token") || "";
}

async function ask(path, body) {
  const request = { headers: { Authorization: `Bearer ${state.token}` }, cache: "no-store" };
  if (body !== undefined) {
    request.method = "POST";
    request.headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let reply;
  try {
    reply = await fetch(path, request);
  } catch {
    throw new Error("`uvfs web` does not answer; start it again, and open the address that it prints");
  }
  const told = await reply.json();
  if (!reply.ok) throw new Error(told.error);
  return told;
}

function say(text, alarm) {
  const said = at("said");
  said.classList.toggle("alarm", Boolean(alarm));
  if (said.textContent !== text) said.textContent = text;
}

// Text

function make(name, content, className) {
  const made = document.createElement(name);
  if (content !== undefined) made.textContent = content;
  if (className) made.className = className;
  return made;
}

// What would be obeyed by a screen, or turn the text around, is shown as a number.
function shown(raw) {
  const text = typeof raw === "string" ? raw
    : raw.map((byte) => byte < 0x20 || byte > 0x7e ? `\\x${byte.toString(16).padStart(2, "0")}` : String.fromCharCode(byte)).join("");
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g,
    (one) => `\\u{${one.codePointAt(0).toString(16)}}`);
}

function name(raw) { return make("bdi", shown(raw)); }

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit === 0 ? count : count.toFixed(1)} ${units[unit]}`;
}

function count(number) { return Math.round(number).toLocaleString("en"); }
function rate(number) { return number > 0 && number < 10 ? number.toFixed(1) : count(number); }
function percent(share) { return share === null ? "–" : `${(share * 100).toFixed(1)} %`; }
function time(ns) {
  if (!ns) return "–";
  if (ns < 1e3) return `${ns} ns`;
  if (ns < 1e6) return `${(ns / 1e3).toFixed(1)} µs`;
  return ns < 1e9 ? `${(ns / 1e6).toFixed(1)} ms` : `${(ns / 1e9).toFixed(1)} s`;
}

// Live figures

function figuresOf(mount) {
  const sum = (kinds) => kinds.reduce((sum, one) => sum + one.per_second, 0);
  const first = mount.requests.find((one) => one.p50_ns > 0);
  const call = mount.source_calls.find((one) => one.p50_ns > 0);
  const list = [
    ["requests/s", sum(mount.requests), rate, `${count(mount.requests_waiting)} waiting`],
    ["p99 of requests", first ? first.p99_ns : 0, time, first ? `${first.kind}, p50 ${time(first.p50_ns)}` : "none"],
    ["source calls/s", sum(mount.source_calls), rate,
      `${count(mount.source_under_way)} under way${call ? `, p99 ${time(call.p99_ns)}` : ""}`],
    ["dirty", mount.memory.dirty_bytes, bytes, "not in the source yet"],
  ];
  for (const hits of mount.hits) {
    const all = hits.share_total === null ? "none yet" : `${percent(hits.share_total)} since the mount`;
    if (hits.by_kernel) list.push([`hits: ${hits.of}`, null, () => "kernel", "the kernel's cache answers"]);
    else if (hits.of === "passthrough") list.push([hits.of, hits.share, percent, `${percent(hits.share_total)} of all opened files`]);
    else list.push([`hits: ${hits.of}`, hits.share, percent, all]);
  }
  return list;
}

function drawCharts(mount) {
  const list = at("charts");
  const figures = figuresOf(mount);
  figures.forEach(([label, value, show, more], index) => {
    const key = `${mount.mountpoint}\n${label}`;
    const points = state.history.get(key) || [];
    points.push(value);
    if (points.length > POINTS) points.shift();
    state.history.set(key, points);
    let item = list.children[index];
    if (!item) {
      item = make("li");
      const picture = document.createElementNS(SVG, "svg");
      picture.setAttribute("viewBox", `0 0 ${POINTS - 1} 40`);
      picture.setAttribute("preserveAspectRatio", "none");
      picture.setAttribute("aria-hidden", "true");
      picture.append(document.createElementNS(SVG, "polyline"));
      item.append(make("span"), make("b"), make("span"), picture);
      list.append(item);
    }
    const [head, now, rest, picture] = item.children;
    head.textContent = label;
    now.textContent = show(value);
    rest.textContent = more;
    const isShare = index >= figures.length - mount.hits.length;
    const top = isShare ? 1 : Math.max(...points, 1e-9);
    const line = points.flatMap((point, x) =>
      point === null ? [] : [`${POINTS - points.length + x},${(39 - point / top * 38).toFixed(1)}`]);
    picture.firstChild.setAttribute("points", line.join(" "));
  });
  while (list.children.length > figures.length) list.lastChild.remove();
}

function drawMemory(memory) {
  const parts = [memory.program_bytes, memory.names_bytes, memory.pages_bytes];
  const bar = at("bar");
  while (bar.children.length < parts.length) bar.append(make("div"));
  parts.forEach((part, index) => { bar.children[index].style.width = `${part / Math.max(memory.limit_bytes, 1) * 100}%`; });
  const used = parts.reduce((sum, part) => sum + part, 0);
  const words = ["program", "names and inodes", "pages"], colors = ["rest-kind", "two", "one"];
  at("memory-text").replaceChildren(`memory ${bytes(used)} of ${bytes(memory.limit_bytes)}:`,
    ...words.flatMap((word, index) => [make("i", undefined, colors[index]), `${word} ${bytes(parts[index])}`]));
}

function drawMounts() {
  const list = at("mounts");
  const known = [...list.options].map((option) => option.value).join("\n");
  if (known !== state.mounts.map((mount) => mount.mountpoint).join("\n")) {
    list.replaceChildren(...state.mounts.map((mount) => {
      const option = make("option", shown(mount.mountpoint));
      option.value = mount.mountpoint;
      return option;
    }));
  }
  if (!state.mounts.some((mount) => mount.mountpoint === state.mountpoint)) {
    go(state.mounts.length ? state.mounts[0].mountpoint : null, []);
    void look(false);
  }
  if (state.mountpoint !== null) list.value = state.mountpoint;
}

async function watch() {
  try {
    if (!state.paused && !document.hidden) {
      state.mounts = (await ask("/api/figures")).mounts;
      if (state.lost) { state.lost = false; say(""); }
      drawMounts();
      const mount = state.mounts.find((one) => one.mountpoint === state.mountpoint);
      if (!mount) {
        say("no uvfs mount; `uvfs mount SOURCE MOUNTPOINT` makes one");
      } else {
        at("source").textContent = `${shown(mount.source)} ${mount.store ? `(${shown(mount.store)})` : ""}`
          + `${mount.state === "served" ? "" : ` – ${mount.state}; \`uvfs mounts\` says more`}`;
        drawMemory(mount.memory);
        drawCharts(mount);
      }
    }
  } catch (error) {
    state.lost = true;
    say(error.message, true);
  }
  setTimeout(watch, FIGURES_MS);
}

// One directory

function directory(way = state.way) {
  if (way.every((one) => typeof one === "string")) return `/${way.join("/")}`;
  const encoder = new TextEncoder();
  const parts = way.flatMap((one) => [47, ...(typeof one === "string" ? encoder.encode(one) : one)]);
  return parts;
}

function amount(share, sort, field) { return share[sort] ? share[sort][field] : 0; }

// The columns of the table.
const VALUES = {
  name: (child) => shown(child.name),
  bytes: (share) => ["names", "inodes", "pages"].reduce((sum, sort) => sum + amount(share, sort, "bytes"), 0),
  names: (share) => amount(share, "names", "entries"),
  dirty: (share) => amount(share, "dirty", "bytes"),
  requests: (share) => share.requests,
  misses: (share) => share.misses,
  policy: (child) => child.policy && child.policy !== "normal" ? child.policy : "",
};

function measure(share) { return VALUES[state.by](share); }

function add(shares) {
  const sum = { requests: 0, misses: 0 };
  for (const sort of ["names", "inodes", "pages", "dirty"]) sum[sort] = { entries: 0, bytes: 0 };
  for (const share of shares) {
    sum.requests += share.requests;
    sum.misses += share.misses;
    for (const sort of ["names", "inodes", "pages", "dirty"]) {
      sum[sort].entries += amount(share, sort, "entries");
      sum[sort].bytes += amount(share, sort, "bytes");
    }
  }
  return sum;
}

// Asks for the directory that is shown; `arrived` if the user has entered it and hears its name.
async function look(arrived) {
  clearTimeout(state.levelTimer);
  let rest = LEVEL_MS;
  const asked = ++state.asked;
  if (state.mountpoint !== null && !document.hidden && (arrived || !state.paused)) {
    try {
      const body = { mountpoint: state.mountpoint, directory: directory(), by: state.by, most: state.find ? MOST_FOUND : MOST };
      const told = await ask("/api/level", body);
      // Another directory was asked for meanwhile.
      if (asked !== state.asked) return;
      state.level = told.level;
      drawLevel();
      if (arrived) {
        at("caption").focus();
        say(at("caption").textContent);
      }
      rest = Math.max(rest, told.took_ms * RESTS);
      if (told.took_ms < NESTED_MS && Date.now() >= state.belowAfter) await lookBelow(asked);
      if (asked !== state.asked) return;
    } catch (error) {
      if (asked !== state.asked) return;
      say(error.message, true);
      state.level = null;
      drawLevel();
    }
  }
  state.levelTimer = setTimeout(() => look(false), rest);
}

// Asks for the levels of the largest directories.
async function lookBelow(asked) {
  const { mountpoint, way, level, by } = state;
  const below = new Map();
  let took = 0;
  for (const child of level.children.slice(0, NESTED)) {
    if (measure(child) < Math.max(measure(level.total) * NESTED_SHARE, 1)) break;
    const body = { mountpoint, directory: directory([...way, child.name]), by, most: TILES_NESTED };
    try {
      const told = await ask("/api/level", body);
      took += told.took_ms;
      below.set(shown(child.name), told.level);
    } catch {
      // It may be gone by now: its tile is drawn without a level of its own.
    }
    if (asked !== state.asked) return;
  }
  state.below = below;
  state.belowAfter = Date.now() + took * RESTS;
  drawMap(level);
}

function go(mountpoint, way) {
  if (mountpoint !== state.mountpoint) at("charts").replaceChildren();
  state.mountpoint = mountpoint;
  state.way = way;
  state.below = new Map();
  state.belowAfter = 0;
  // A search is about one directory.
  state.find = "";
  at("find").value = "";
}

function enter(way) {
  go(state.mountpoint, way);
  history.pushState(places.push({ mountpoint: state.mountpoint, way }) - 1, "", "/");
  void look(true);
}

function drawWay() {
  const parts = [[], ...state.way.map((_, index) => state.way.slice(0, index + 1))];
  at("way").replaceChildren(...parts.map((way, index) => {
    const item = make("li");
    const last = index === parts.length - 1;
    const button = make("button");
    button.type = "button";
    button.append(index === 0 ? "/" : name(way[way.length - 1]));
    if (last) button.setAttribute("aria-current", "location");
    button.addEventListener("click", () => enter(way));
    item.append(button);
    return item;
  }));
}

function drawLevel() {
  drawWay();
  const level = state.level;
  const focused = document.activeElement && document.activeElement.dataset.key;
  if (!level) {
    at("caption").textContent = "";
    for (const id of ["rows", "map", "legend"]) at(id).replaceChildren();
    return;
  }
  const here = make("bdi", shown(directory()));
  at("drop-all").setAttribute("aria-label", `drop the cached objects of all of ${shown(directory())}`);
  at("caption").replaceChildren(here, `: ${bytes(VALUES.bytes(level.total))} cached, ${count(VALUES.names(level.total))} names, `
    + `${count(level.children.length + level.rest_directories)} directories`);
  const rows = [row("own", null, level.own, level.policy, "in the directory itself")];
  const found = level.children.filter((child) => isFound(child.name));
  inOrder(found).forEach((child, index) => rows.push(row(`child${index}`, child.name, child, child.policy)));
  if (state.find) {
    const words = `${count(found.length)} of ${count(level.children.length)} directories found`;
    at("caption").append(make("span", ` – ${words}`));
  }
  if (level.rest_directories > 0 || measure(level.rest) > 0) {
    rows.push(row("rest", null, level.rest, null, `${count(level.rest_directories)} other directories`));
  }
  at("rows").replaceChildren(...rows);
  if (focused) {
    const again = [...at("rows").querySelectorAll("button")].find((one) => one.dataset.key === focused);
    if (again) again.focus();
  }
  drawMap(level);
}

function isFound(raw) { return shown(raw).toLowerCase().includes(state.find); }

// The order of the rows: that of the daemon, the largest first, until the user chooses a column.
function inOrder(children) {
  const column = state.sort ? state.sort.column : state.by, down = state.sort ? state.sort.down : true;
  for (const head of document.querySelectorAll("th[data-column]")) {
    const is = head.dataset.column === column;
    if (is) head.setAttribute("aria-sort", down ? "descending" : "ascending"); else head.removeAttribute("aria-sort");
    head.classList.toggle("sorted", is);
  }
  if (!state.sort) return children;
  const value = VALUES[column];
  const compare = (one, other) => typeof one === "string" ? one.localeCompare(other) : one - other;
  return [...children].sort((one, other) => compare(value(one), value(other)) * (down ? -1 : 1));
}

function sortBy(column) {
  // Text begins with its first letter, numbers with the largest.
  const isText = column === "name" || column === "policy";
  const current = state.sort || { column: state.by, down: true };
  state.sort = { column, down: current.column === column ? !current.down : !isText };
  if (state.level) drawLevel();
}

function row(key, raw, share, policy, words) {
  const line = make("tr");
  line.dataset.row = key;
  const head = make("th");
  head.scope = "row";
  if (raw === null) {
    head.textContent = words;
  } else {
    const button = make("button");
    button.type = "button";
    button.dataset.key = `enter ${shown(raw)}`;
    button.setAttribute("aria-label", `enter ${shown(raw)}`);
    button.append(name(raw));
    button.addEventListener("click", () => enter([...state.way, raw]));
    head.append(button);
  }
  const texts = { bytes: bytes(VALUES.bytes(share)), names: count(VALUES.names(share)), dirty: bytes(VALUES.dirty(share)),
    requests: count(share.requests), misses: count(share.misses), policy: VALUES.policy({ policy }) || "–" };
  const sorted = state.sort ? state.sort.column : state.by;
  const cells = Object.entries(texts).map(([column, text]) =>
    make("td", text, `${column === "bytes" ? "" : "extra"} ${column === sorted ? "sorted" : ""}`));
  const last = make("td");
  if (raw !== null) {
    const button = make("button", "Drop");
    button.type = "button";
    button.dataset.key = `drop ${shown(raw)}`;
    button.setAttribute("aria-label", `drop the cached objects of ${shown(raw)}`);
    button.addEventListener("click", () => askToDrop([...state.way, raw], VALUES.bytes(share), button.dataset.key));
    last.append(button);
  }
  line.append(head, ...cells, last);
  return line;
}

// The picture: squarified (Bruls and others, 2000), so that areas can be compared.
function squarify(parts, box) {
  const placed = [];
  const sum = parts.reduce((sum, part) => sum + part.size, 0);
  if (sum <= 0) return placed;
  let { x, y, w, h } = box;
  const scale = w * h / sum;
  let from = 0;
  const worst = (sizes, side) => {
    const total = sizes.reduce((sum, size) => sum + size, 0) * scale;
    const [large, small] = [Math.max(...sizes) * scale, Math.min(...sizes) * scale];
    return Math.max(side * side * large / (total * total), total * total / (side * side * small));
  };
  while (from < parts.length) {
    const side = Math.min(w, h);
    let to = from + 1;
    const sizes = [parts[from].size];
    while (to < parts.length && worst([...sizes, parts[to].size], side) <= worst(sizes, side)) {
      sizes.push(parts[to].size);
      to += 1;
    }
    const strip = sizes.reduce((sum, size) => sum + size, 0) * scale / side;
    let along = 0;
    for (let index = from; index < to; index += 1) {
      const length = parts[index].size * scale / strip;
      placed.push({ ...parts[index], x: w >= h ? x : x + along, y: w >= h ? y + along : y,
        w: w >= h ? strip : length, h: w >= h ? length : strip });
      along += length;
    }
    if (w >= h) { x += strip; w -= strip; } else { y += strip; h -= strip; }
    from = to;
  }
  return placed;
}

// The parts of an amount, and their colours.
const KINDS = {
  bytes: [
    ["pages", "one", (share) => Math.max(amount(share, "pages", "bytes") - VALUES.dirty(share), 0)],
    ["dirty pages", "four", VALUES.dirty],
    ["inodes", "three", (share) => amount(share, "inodes", "bytes")],
    ["names", "two", (share) => amount(share, "names", "bytes")],
  ],
  names: [["names", "two", VALUES.names]],
  requests: [["answered at once", "three", (share) => Math.max(share.requests - share.misses, 0)], ["misses", "four", VALUES.misses]],
  misses: [["misses", "four", VALUES.misses]],
};

function show(size) { return state.by === "bytes" ? bytes(size) : count(size); }

function drawMap(level) {
  const map = at("map");
  map.replaceChildren(...tiles(level, state.way, { x: 0, y: 0, w: map.clientWidth, h: map.clientHeight }, state.below));
  at("legend").replaceChildren(...KINDS[state.by].map(([word, color, size]) => {
    const item = make("li");
    item.append(make("i", undefined, color), `${word} ${show(size(level.total))}`);
    return item;
  }));
}

// The tiles of the directory at `way` in `box`, which is in pixels; `below` has the levels of its directories.
function tiles(level, way, box, below) {
  const most = below ? TILES : TILES_NESTED;
  const parts = level.children.slice(0, most).map((child) => ({ child, share: child, kind: "child" }));
  parts.push({ share: level.own, kind: "own", words: "in the directory itself" });
  parts.push({ share: add([level.rest, ...level.children.slice(most)]), kind: "rest", words: "others" });
  const wanted = parts.map((part) => ({ ...part, size: measure(part.share) })).filter((part) => part.size > 0);
  return squarify(wanted.sort((one, other) => other.size - one.size), box).map((part) => tile(part, way, box, below));
}

function tile(part, way, box, below) {
  const made = make("div", undefined, `tile ${part.kind}`);
  const text = part.child ? shown(part.child.name) : part.words;
  for (const [side, value] of [["left", part.x / box.w], ["top", part.y / box.h], ["width", part.w / box.w], ["height", part.h / box.h]]) {
    made.style[side] = `${value * 100}%`;
  }
  made.title = `${[...way.slice(state.way.length).map(shown), text].join("/")}: ${show(part.size)}`;
  const label = make("div", undefined, "label");
  label.append(make("bdi", text));
  if (part.child && ["keep", "once"].includes(part.child.policy)) label.append(` · ${part.child.policy}`);
  // The room beside the label, the margins and the borders.
  const room = { x: 0, y: 0, w: part.w - 8, h: part.h - 27 };
  const inner = part.child && below ? below.get(text) : undefined;
  if (inner && inner.children.length && room.w > 60 && room.h > 40) {
    made.classList.add("parent");
    label.append(` ${show(part.size)}`);
    const inside = make("div", undefined, "inside");
    inside.append(...tiles(inner, [...way, part.child.name], room, null));
    made.append(label, inside);
  } else {
    const kinds = make("div", undefined, part.w < part.h ? "kinds tall" : "kinds");
    for (const [, color, size] of KINDS[state.by]) {
      const one = make("div", undefined, color);
      one.style.flex = `${size(part.share) / part.size} 1 0`;
      kinds.append(one);
    }
    label.append(make("br"), show(part.size));
    made.append(kinds, label);
  }
  if (part.child) {
    const names = [...way.slice(state.way.length), part.child.name, ...(inner ? inner.children.map((child) => child.name) : [])];
    if (!names.some(isFound)) made.classList.add("faded");
    made.addEventListener("click", (event) => {
      event.stopPropagation();
      enter([...way, part.child.name]);
    });
  }
  return made;
}

// Dropping

let answered = null;

function askToDrop(way, size, key) {
  const path = directory(way);
  at("ask-text").replaceChildren("Drop the cached objects of ", make("bdi", shown(path)), " and below",
    size === null ? "?" : `, ${bytes(size)}?`);
  answered = async () => {
    say("dropping …");
    try {
      const told = await ask("/api/drop", { mountpoint: state.mountpoint, directory: path });
      say(`dropped ${count(told.names)} names, ${count(told.inodes)} inodes, ${bytes(told.page_bytes)} of pages of ${shown(path)}`
        + `${told.interrupted ? "; interrupted" : ""}`);
    } catch (error) {
      say(error.message, true);
    }
    state.belowAfter = 0;
    await look(false);
    const again = [...at("rows").querySelectorAll("button")].find((one) => one.dataset.key === key);
    (again || (key === null ? at("drop-all") : at("caption"))).focus();
  };
  at("ask").showModal();
  at("ask-no").focus();
}

function start() {
  makeToken();
  at("mounts").addEventListener("change", (event) => {
    go(event.target.value, []);
    void look(false);
  });
  // Back and Forward of the browser.
  addEventListener("popstate", (event) => {
    const place = places[event.state] || { mountpoint: state.mountpoint, way: [] };
    go(place.mountpoint, place.way);
    void look(true);
  });
  addEventListener("resize", () => { if (state.level) drawMap(state.level); });
  for (const head of document.querySelectorAll("th[data-column]")) {
    head.firstElementChild.addEventListener("click", () => sortBy(head.dataset.column));
  }
  at("find").addEventListener("input", (event) => {
    const before = state.find;
    state.find = event.target.value.trim().toLowerCase();
    if (state.level) drawLevel();
    const found = at("rows").querySelectorAll("[data-row^=child]").length;
    say(state.find ? `${count(found)} found` : "");
    // With a text, more directories are listed.
    if (Boolean(before) !== Boolean(state.find)) void look(false);
  });
  at("drop-all").addEventListener("click", () => askToDrop(state.way, null, null));
  at("pause").addEventListener("click", () => {
    state.paused = !state.paused;
    at("pause").setAttribute("aria-pressed", String(state.paused));
  });
  for (const choice of document.querySelectorAll("input[name=by]")) {
    choice.addEventListener("change", () => { [state.by, state.sort, state.belowAfter] = [choice.value, null, 0]; void look(false); });
  }
  at("ask-no").addEventListener("click", () => at("ask").close());
  at("ask-yes").addEventListener("click", () => {
    at("ask").close();
    void answered();
  });
  document.addEventListener("keydown", (event) => {
    const isField = ["SELECT", "INPUT"].includes(event.target.tagName);
    if (event.key === "Backspace" && !isField && !at("ask").open && state.way.length) {
      event.preventDefault();
      enter(state.way.slice(0, -1));
    }
    if (event.key === "/" && !isField && !at("ask").open) {
      event.preventDefault();
      at("find").focus();
    }
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) void look(false); });
  if (!state.token) {
    say("open the address that `uvfs web` printed: behind its # is the token", true);
    return;
  }
  void watch();
}

start();
