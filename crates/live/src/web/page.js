// The page of `uvfs web`: live figures, and what is cached of one directory, as a picture and as a table.
//
// The token comes behind the # of the address, is taken out of it at once and kept for this tab alone; it goes to our own server
// in a field, which no other page can set. All that is shown becomes text, never markup: names are strangers'.
"use strict";

const FIGURES_MS = 2000, LEVEL_MS = 5000, POINTS = 90, TILES = 60;
const SVG = "http://www.w3.org/2000/svg";
// A level that takes long to count is counted more seldom: a hundredth of the time at most.
const RESTS = 100;
const at = (id) => document.getElementById(id);

const state = {
  token: "", mounts: [], mountpoint: null, way: [], by: "bytes", paused: false,
  level: null, history: new Map(), asked: 0, levelTimer: 0, lost: false,
};

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
    list.push([`hits: ${hits.of}`, hits.share, percent, all]);
  }
  return list;
}

function drawCharts(mount) {
  const list = at("charts");
  figuresOf(mount).forEach(([label, value, show, more], index) => {
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
    const known = points.map((point) => point === null ? 0 : point);
    const top = label.startsWith("hits") ? 1 : Math.max(...known, 1e-9);
    const line = known.map((point, x) => `${POINTS - known.length + x},${(39 - point / top * 38).toFixed(1)}`);
    picture.firstChild.setAttribute("points", line.join(" "));
  });
  while (list.children.length > figuresOf(mount).length) list.lastChild.remove();
}

function drawMemory(memory) {
  const parts = [memory.program_bytes, memory.names_bytes, memory.pages_bytes];
  const bar = at("bar");
  while (bar.children.length < parts.length) bar.append(make("div"));
  parts.forEach((part, index) => { bar.children[index].style.width = `${part / Math.max(memory.limit_bytes, 1) * 100}%`; });
  const used = parts.reduce((sum, part) => sum + part, 0);
  at("memory-text").textContent = `memory ${bytes(used)} of ${bytes(memory.limit_bytes)}: program ${bytes(parts[0])}, `
    + `names and inodes ${bytes(parts[1])}, pages ${bytes(parts[2])}`;
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
    state.mountpoint = state.mounts.length ? state.mounts[0].mountpoint : null;
    state.way = [];
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

function directory() {
  if (state.way.every((one) => typeof one === "string")) return `/${state.way.join("/")}`;
  const encoder = new TextEncoder();
  const parts = state.way.flatMap((one) => [47, ...(typeof one === "string" ? encoder.encode(one) : one)]);
  return parts;
}

function measure(share) {
  const amount = (sort, field) => share[sort] ? share[sort][field] : 0;
  switch (state.by) {
    case "names": return amount("names", "entries");
    case "requests": return share.requests;
    case "misses": return share.misses;
    default: return ["names", "inodes", "pages"].reduce((sum, sort) => sum + amount(sort, "bytes"), 0);
  }
}

// Asks for the directory that is shown; `arrived` if somebody went there, who is told when it is.
async function look(arrived) {
  clearTimeout(state.levelTimer);
  let rest = LEVEL_MS;
  const asked = ++state.asked;
  if (state.mountpoint !== null && !document.hidden && (arrived || !state.paused)) {
    try {
      const body = { mountpoint: state.mountpoint, directory: directory(), by: state.by, most: 100 };
      const told = await ask("/api/level", body);
      // Another directory was asked for meanwhile.
      if (asked !== state.asked) return;
      rest = Math.max(rest, told.took_ms * RESTS);
      state.level = told.level;
      drawLevel();
      if (arrived) {
        at("caption").focus();
        say(at("caption").textContent);
      }
    } catch (error) {
      if (asked !== state.asked) return;
      say(error.message, true);
      state.level = null;
      drawLevel();
    }
  }
  state.levelTimer = setTimeout(() => look(false), rest);
}

function enter(way) {
  state.way = way;
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
    at("rows").replaceChildren();
    at("map").replaceChildren();
    return;
  }
  const here = make("bdi", shown(directory()));
  const total = level.total, held = (sort, field) => total[sort] ? total[sort][field] : 0;
  const all = held("names", "bytes") + held("inodes", "bytes") + held("pages", "bytes");
  at("caption").replaceChildren(here, `: ${bytes(all)} cached, ${count(held("names", "entries"))} names, `
    + `${count(level.children.length + level.rest_directories)} directories`);
  const rows = [row("own", null, level.own, level.policy, "in the directory itself")];
  level.children.forEach((child, index) => rows.push(row(`child${index}`, child.name, child, child.policy)));
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
  const amount = (sort, field) => share[sort] ? share[sort][field] : 0;
  const all = amount("names", "bytes") + amount("inodes", "bytes") + amount("pages", "bytes");
  const cells = [bytes(all), count(amount("names", "entries")), bytes(amount("dirty", "bytes")), count(share.requests),
    count(share.misses), policy && policy !== "normal" ? policy : "–"].map((text) => make("td", text));
  const last = make("td");
  if (key !== "rest") {
    const way = raw === null ? state.way : [...state.way, raw];
    const what = raw === null ? "all of this directory" : shown(raw);
    const button = make("button", raw === null ? "Drop all" : "Drop");
    button.type = "button";
    button.dataset.key = `drop ${raw === null ? "" : shown(raw)}`;
    button.setAttribute("aria-label", `drop the cached objects of ${what}`);
    button.addEventListener("click", () => askToDrop(way, raw === null ? null : all, button.dataset.key));
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

function drawMap(level) {
  const parts = level.children.slice(0, TILES).map((child) => ({ child, size: measure(child), kind: "child" }));
  const small = level.children.slice(TILES).reduce((sum, child) => sum + measure(child), 0);
  parts.push({ size: measure(level.own), kind: "own", words: "in the directory itself" });
  parts.push({ size: measure(level.rest) + small, kind: "rest", words: "others" });
  const wanted = parts.filter((part) => part.size > 0).sort((one, other) => other.size - one.size);
  const map = at("map");
  const show = state.by === "bytes" ? bytes : count;
  const tiles = squarify(wanted, { x: 0, y: 0, w: 100, h: 100 }).map((part) => {
    const tile = make("div", undefined, `tile ${part.kind}`);
    const label = part.child ? shown(part.child.name) : part.words;
    if (part.child && ["keep", "once"].includes(part.child.policy)) tile.classList.add(part.child.policy);
    for (const [side, value] of [["left", part.x], ["top", part.y], ["width", part.w], ["height", part.h]]) {
      tile.style[side] = `${value}%`;
    }
    tile.title = `${label}: ${show(part.size)}`;
    tile.append(make("bdi", label), make("br"), show(part.size));
    if (part.child) tile.addEventListener("click", () => enter([...state.way, part.child.name]));
    return tile;
  });
  map.replaceChildren(...tiles);
}

// Dropping

let answered = null;

function askToDrop(way, size, key) {
  const before = state.way;
  state.way = way;
  const path = directory();
  state.way = before;
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
    await look(false);
    const again = [...at("rows").querySelectorAll("button")].find((one) => one.dataset.key === key);
    (again || at("caption")).focus();
  };
  at("ask").showModal();
  at("ask-no").focus();
}

function start() {
  makeToken();
  at("mounts").addEventListener("change", (event) => {
    state.mountpoint = event.target.value;
    at("charts").replaceChildren();
    state.way = [];
    void look(false);
  });
  at("pause").addEventListener("click", () => {
    state.paused = !state.paused;
    at("pause").setAttribute("aria-pressed", String(state.paused));
  });
  for (const choice of document.querySelectorAll("input[name=by]")) {
    choice.addEventListener("change", () => { state.by = choice.value; void look(false); });
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
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) void look(false); });
  if (!state.token) {
    say("open the address that `uvfs web` printed: behind its # is the token", true);
    return;
  }
  void watch();
}

start();
