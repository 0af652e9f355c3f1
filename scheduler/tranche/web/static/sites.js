// One site: what it has, and a timeline of its nodes, or the same as a table.
import { ask } from "./api.js";
import { el, jobLink, keep, set, table } from "./dom.js";
import { bytes, clock, gpuTime, moment, now, relative } from "./times.js";

const PAGE = 16; // nodes at a time
const TICKS = [10, 15, 30, 60, 120, 180, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400, 604800, 2419200];
const WORDS = { Running: "running", Planned: "starting", Closing: "stopping", Later: "planned later", Expected: "expected to start here" };

const columns = [
  { name: "Job", cell: (bar) => jobLink(bar.namespace, bar.job) },
  { name: "Node", cell: (bar) => bar.node || "no node yet" },
  { name: "State", cell: (bar) => WORDS[bar.state] ?? bar.state },
  { name: "GPUs", cell: (bar) => String(bar.gpus) + (bar.workers > 1 ? ` (${bar.workers} workers)` : "") },
  { name: "Chunks", cell: (bar) => bar.chunks || "–" },
  { name: "From", style: "time", cell: (bar) => moment(bar.start) },
  { name: "To", style: "time", cell: (bar) => moment(bar.end) + (bar.assumed ? " (assumed)" : "") },
];

export class Site {
  constructor(name, open, changed) {
    this.name = name;
    this.limit = PAGE;
    this.told = null;
    this.title = el("span", { class: "name", text: name });
    this.facts = el("span", { class: "facts" });
    this.used = el("span", { class: "facts used" });
    this.meter = el("meter", { min: "0", max: "1", "aria-hidden": "true" });
    this.axis = el("div", { class: "axis", "aria-hidden": "true" });
    this.lanes = el("ul", { class: "lanes", "aria-label": `Nodes of ${name}` });
    this.table = table(`Windows at ${name}`, columns);
    this.none = el("p", { class: "none" });
    this.more = el("button", { type: "button", onclick: () => { this.limit = Math.min(100, this.limit * 2); changed(); } });
    this.element = el("details", { class: "site", open, ontoggle: () => { if (this.isOpen && !this.told) changed(); } },
      el("summary", {}, this.title, this.facts, this.meter, this.used),
      this.axis, this.lanes, this.table.whole, this.none, this.more);
  }

  get isOpen() {
    return this.element.open;
  }

  async load(chosen) {
    const asked = new URLSearchParams({ ...chosen, limit: this.limit });
    this.told = await ask(`timeline/${encodeURIComponent(this.name)}?${asked}`);
  }

  get bars() {
    return this.isOpen && this.told ? this.told.lanes.flatMap((lane) => lane.bars.map((bar) => ({ ...bar, node: lane.node }))) : [];
  }

  // All sites share the span of time, so that they can be compared.
  draw(asTable, span) {
    this.describe();
    if (!this.told || !this.isOpen) return;
    const { lanes } = this.told;
    const bars = this.bars;
    this.table.whole.hidden = !asTable || !bars.length;
    this.axis.hidden = this.lanes.hidden = asTable || !lanes.length;
    if (asTable) this.table.show(bars, keyOf);
    else this.drawLanes(lanes, span);
    const later = asTable ? 0 : bars.filter((bar) => bar.start && Date.parse(bar.start) >= span.to).length;
    const cut = `${later} ${later === 1 ? "window begins" : "windows begin"} after the end of the timeline: see the table`;
    this.none.hidden = !later && (asTable ? bars.length > 0 : lanes.length > 0);
    set(this.none, { text: later ? cut : asTable ? "no windows" : "no nodes with windows" });
    this.more.hidden = !this.told.next || this.limit >= 100;
    set(this.more, { text: `Show more nodes (${lanes.length} of ${this.told.nodes} shown)` });
  }

  describe() {
    set(this.used, { text: this.use ? used(this.use) : "" });
    const { tier, gpus, usedGpus, reservedGpus, nodes, readyNodes, unlimited } = this.summary;
    this.meter.hidden = gpus === undefined || !gpus;
    if (gpus === undefined) { set(this.facts, { text: "" }); return; }
    const lost = nodes - readyNodes ? `, ${nodes - readyNodes} not ready` : "";
    const held = reservedGpus ? `, ${reservedGpus} held for plans` : "";
    const room = unlimited ? "unlimited" : `${usedGpus} of ${gpus} GPUs in use${held}`;
    set(this.facts, { text: `${tier} · ${room} · ${nodes} ${nodes === 1 ? "node" : "nodes"}${lost}` });
    if (gpus) this.meter.value = usedGpus / gpus;
  }

  drawLanes(lanes, span) {
    this.element.style.setProperty("--now", percent(now(), span));
    keep(this.axis, ticks(span), (tick) => String(tick), () => el("span"), (mark, tick) => {
      set(mark, { text: label(tick, span) });
      mark.style.left = percent(tick, span);
    });
    keep(this.lanes, lanes, (lane) => lane.node, () => el("li", {}, el("span", { class: "node" }), el("ul", { class: "track" })), (row, lane) => {
      const use = lane.gpus === null ? "" : ` ${lane.usedGpus}/${lane.gpus}`;
      const name = lane.node || "no node yet";
      keep(row.firstChild, [["name", name], ["use", use], ["bad", lane.node && !lane.ready ? "not ready" : ""]].filter((part) => part[1]),
        (part) => part[0], (part) => el("span", { class: part[0] }), (part, [, text]) => set(part, { text }));
      const placed = pack(lane);
      const track = row.lastChild;
      track.style.setProperty("--rows", placed.rows);
      set(track, { class: placed.rows > 4 ? "track thin" : "track" });
      keep(track, placed.bars.filter((bar) => bar.from < span.to), keyOf, () => el("li", {}, el("a")), (item, bar) => drawBar(item, bar, span));
    });
  }
}

// What jobs have used at a site so far: GPU time from the openings of windows to the ends of pods, and uploads to the site.
function used({ gpuSeconds, copiedBytes, inVainBytes }) {
  const vain = inVainBytes ? `, ${bytes(inVainBytes)} of it unused` : "";
  return `used so far: ${gpuTime(gpuSeconds)}${copiedBytes ? `, ${bytes(copiedBytes)} copied${vain}` : ""}`;
}

function drawBar(item, bar, span) {
  const link = item.firstChild;
  const [from, to] = [bar.from, bar.to].map((at) => clock(new Date(at)));
  const chunks = bar.chunks && bar.workers === 1 ? ` chunks ${bar.chunks},` : "";
  const who = { Expected: "", Later: bar.workers > 1 ? ` ${bar.workers} workers,` : chunks }[bar.state] ?? ` worker ${bar.index}, attempt ${bar.attempt},${chunks}`;
  const words = `${bar.namespace}/${bar.job}${who} ${WORDS[bar.state] ?? bar.state}, ${bar.gpus} GPU${bar.gpus === 1 ? "" : "s"}, ${from} to ${to}`
    + ` (ends ${relative(new Date(bar.to))}${bar.assumed ? ", as assumed: its duration is unknown" : ""})`;
  set(item, { class: `bar ${bar.state.toLowerCase()}${bar.assumed ? " assumed" : ""} c${colour(`${bar.namespace}/${bar.job}`)}` });
  set(link, { href: jobLink(bar.namespace, bar.job).getAttribute("href"), text: bar.job, "aria-label": words, title: words });
  item.style.setProperty("--from", percent(bar.from, span));
  item.style.setProperty("--width", `${Math.max(0, Math.min(bar.to, span.to) - Math.max(bar.from, span.from)) / (span.to - span.from) * 100}%`);
  const [first, last] = [Math.max(bar.from, span.from), Math.min(bar.to, span.to)];
  const past = Math.min(1, Math.max(0, (now() - first) / Math.max(1, last - first)));
  item.style.setProperty("--before", past < 0.5 ? `${past * 100}%` : "0%");
  item.style.setProperty("--after", past < 0.5 ? "0%" : `${(1 - past) * 100}%`);
  item.style.setProperty("--row", bar.row);
  item.style.setProperty("--size", bar.size);
}

// Give each bar as many rows as it has GPUs, the first that are free at its start. A window of the forecast takes the rows
// that are free first, because its times are estimates: it adds no row to a node whose GPUs are known.
export function pack(lane) {
  const free = Array.from({ length: lane.gpus ?? 0 }, () => -Infinity);
  const moments = lane.bars.map((bar) => {
    const from = bar.start ? Date.parse(bar.start) : now();
    const begin = bar.state === "Later" ? Math.max(from, now()) : from;
    const least = bar.state === "Expected" ? begin : Math.max(begin, now());
    return { ...bar, from: begin, to: Math.max(bar.end ? Date.parse(bar.end) : least, least, begin + 1), size: Math.max(1, Math.min(bar.gpus, 64)) };
  });
  const order = (bar) => ({ Later: 1, Expected: 2 }[bar.state] ?? 0);
  const bars = moments.sort((a, b) => order(a) - order(b) || a.from - b.from).map((bar) => {
    let row = 0;
    const until = (at) => Math.max(...free.slice(at, at + bar.size));
    const rows = bar.state === "Later" && lane.gpus ? Math.max(0, lane.gpus - bar.size) : Infinity;
    while (row < rows && until(row) > bar.from) row += 1;
    if (rows < Infinity && until(row) > bar.from) for (let at = 0; at <= rows; at += 1) if (until(at) < until(row)) row = at;
    for (let at = row; at < row + bar.size; at += 1) free[at] = bar.to;
    return { ...bar, row };
  });
  return { bars, rows: Math.max(1, free.length) };
}

function ticks(span) {
  const seconds = (span.to - span.from) / 1000;
  const room = matchMedia("(max-width: 40rem)").matches ? 4 : 8;
  const step = (TICKS.find((one) => seconds / one <= room) ?? TICKS.at(-1)) * 1000;
  const offset = new Date(span.from).getTimezoneOffset() * 60000;
  const marks = [];
  for (let at = Math.ceil((span.from - offset) / step) * step + offset; at < span.to - (span.to - span.from) * (room === 4 ? 0.15 : 0.05); at += step) marks.push(at);
  return marks;
}

function label(at, span) {
  const date = new Date(at);
  const long = span.to - span.from > 36 * 3600 * 1000;
  if (long) return date.toLocaleDateString([], { month: "short", day: "numeric" });
  const seconds = span.to - span.from < 15 * 60 * 1000 ? { second: "2-digit" } : {};
  return date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hour12: false, ...seconds });
}

const percent = (at, span) => `${Math.min(100, Math.max(0, (at - span.from) / (span.to - span.from) * 100))}%`;
const keyOf = (bar) => `${bar.namespace}/${bar.job}/${bar.index}/${bar.attempt}/${{ Expected: "expected", Later: `later ${bar.chunks}` }[bar.state] ?? ""}`;
const hash = (text) => [...text].reduce((sum, char) => (sum * 31 + char.codePointAt(0)) >>> 0, 7);
const HUES = 6;
const colours = new Map(); // job: number of its colour

// By the name, so that it is mostly the same everywhere; but of those that fewest jobs have, or neighbours would look alike.
function colour(job) {
  if (!colours.has(job)) {
    if (colours.size > 500) colours.clear();
    const used = Array.from({ length: HUES }, () => 0);
    for (const one of colours.values()) used[one] += 1;
    const least = Math.min(...used);
    let chosen = hash(job) % HUES;
    while (used[chosen] > least) chosen = (chosen + 1) % HUES;
    colours.set(job, chosen);
  }
  return colours.get(job);
}

