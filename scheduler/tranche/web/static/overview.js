// All jobs and sites: totals, jobs that wait with their reasons, sites with their windows, jobs that run, jobs that are over.
import { ask } from "./api.js";
import { el, jobLink, keep, phase, set, table } from "./dom.js";
import { midnight, moment, now, precise } from "./times.js";
import { extent } from "./scale.js";
import { Site } from "./sites.js";

const LANES = 24; // nodes up to which sites are open at first
const TABLE = "tranche-as-table";
const PHONE = matchMedia("(max-width: 48rem)");
const PHASES = ["Waiting", "Suspended", "Starting", "Running", "Succeeded", "Failed"];

const job = { name: "Job", sort: "name", cell: (one) => jobLink(one.namespace, one.name) };
const state = { name: "Phase", style: "badge", cell: (one) => phase(one.phase) };
const submitted = { name: "Submitted", style: "time wide", sort: "created", cell: (one) => moment(one.created) };
const progress = { name: "Trained", style: "short", cell: (one) => trained(one) };
const completion = { name: "Planned completion", style: "time", sort: "completion", cell: (one) => moment(one.plannedCompletion) };
const columns = {
  waiting: [
    job, submitted,
    { name: "Planned start", style: "time", sort: "start", cell: (one) => moment(one.plannedStart) },
    { ...completion, style: "time wide" }, { ...progress, style: "short wide" },
    { name: "Why it waits", style: "why", cell: (one) => (one.phase === "Suspended" ? "suspended; " : "") + one.explanation },
  ],
  running: [
    job, state, progress, submitted, completion,
    { name: "Where", style: "why wide", cell: (one) => one.explanation },
  ],
  finished: [
    job, state, { ...progress, style: "short wide" }, submitted,
    { name: "Completed", style: "time", sort: "completed", cell: (one) => moment(one.completed) },
    { name: "Completion time", sort: "jct", cell: (one) => (one.completed && one.created ? precise((Date.parse(one.completed) - Date.parse(one.created)) / 1000) : "–") },
  ],
};
const titles = { waiting: "Waiting", running: "Running", finished: "Finished" };
const sorts = { waiting: "start", running: "start", finished: "-completed" }; // outlives a visit of a job's page

// The share of mini-batches says more than the number of chunks while the first chunks train for hours.
function trained(one) {
  const chunks = one.chunks ? `${one.chunks} ${one.isGang ? "members" : "chunks"}` : "";
  return [one.trainedShare, chunks].filter(Boolean).join(", ") || "–";
}

class Group {
  constructor(name, changed) {
    this.name = name;
    this.shown = PHONE.matches ? { waiting: 4, running: 3, finished: 3 }[name] : 10; // jobs shown at first
    this.count = el("span", { class: "count" });
    this.list = table(`${titles[name]} jobs`, columns[name], (key) => {
      sorts[name] = sorts[name] === key ? `-${key}` : key;
      changed();
    });
    this.none = el("p", { class: "none" });
    this.more = el("button", { type: "button", hidden: true, onclick: () => { this.shown = Math.min(1000, this.shown * 4); changed(); } });
    this.element = el("section", { class: `jobs ${name}`, "aria-labelledby": `h-${name}` },
      el("h2", { id: `h-${name}` }, `${titles[name]} `, this.count), this.list.whole, this.none, this.more);
  }

  draw({ total, jobs }, filtered) {
    const some = jobs.slice(0, this.shown);
    set(this.count, { text: String(total) });
    this.list.show(some, (one) => `${one.namespace}/${one.name}`);
    this.list.sorted(sorts[this.name]);
    this.list.whole.hidden = !some.length;
    this.none.hidden = some.length > 0;
    set(this.none, { text: filtered ? "none that match the filters" : "none" });
    this.more.hidden = some.length >= total || some.length >= 1000;
    set(this.more, { text: `Show more (${some.length} of ${total} shown)` });
  }
}

export class Overview {
  title = "tranche";

  constructor(filters) {
    this.filters = filters;
    this.sites = new Map();
    this.ready = false;
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.totals = el("dl", { class: "totals", "aria-label": "Totals" });
    this.list = el("div", { id: "sites" });
    this.shownSites = PHONE.matches ? 4 : 1000;
    this.moreSites = el("button", { type: "button", hidden: true, onclick: () => { this.shownSites = 1000; this.draw(); } });
    this.asTable = el("button", { type: "button", "aria-pressed": sessionStorage.getItem(TABLE) === "yes",
      text: "As a table", onclick: () => this.toggle() });
    this.legend = el("ul", { class: "legend", "aria-label": "Legend" }, LEGEND.map(([name, words]) =>
      el("li", {}, el("span", { class: name }), words)));
    const sites = el("section", { "aria-labelledby": "h-sites" },
      el("div", { class: "headline" }, el("h2", { id: "h-sites", text: "Sites" }), this.asTable), this.legend, this.list, this.moreSites);
    this.groups = ["waiting", "running", "finished"].map((name) => new Group(name, () => this.again()));
    const [waiting, running, finished] = this.groups.map((group) => group.element);
    keep(filters.phase, ["", ...PHASES], (name) => name, (name) => el("option", { value: name, text: name || "all phases" }), () => {});
    this.whatIf = el("p", { class: "right", hidden: true }, el("a", { href: "#/what-if", text: "What if I submit a job?" }));
    waiting.prepend(this.whatIf);
    this.element = el("div", {}, this.problem, this.totals, waiting, sites, running, finished);
  }

  toggle() {
    const pressed = this.asTable.getAttribute("aria-pressed") !== "true";
    sessionStorage.setItem(TABLE, pressed ? "yes" : "no");
    set(this.asTable, { "aria-pressed": String(pressed) });
    this.draw();
  }

  again() {
    this.load().then(() => this.draw(), () => {});
  }

  async load() {
    const { namespace, phase: chosenPhase, find } = this.filters;
    const chosen = { namespace: namespace.value };
    const limit = Math.max(...this.groups.map((group) => group.shown));
    const asked = new URLSearchParams({ ...chosen, phase: chosenPhase.value, find: find.value.trim(), since: midnight(), limit, ...sorts });
    this.told = await ask(`overview?${asked}`);
    this.user = this.told.user;
    this.arrange();
    await Promise.all([...this.sites.values()].filter((site) => site.isOpen).map((site) => site.load(chosen)));
    this.ready = true;
  }

  arrange() {
    let lanes = 0;
    const before = this.sites;
    this.sites = new Map(this.told.sites.map((site) => {
      lanes += site.nodes ?? 8;
      const open = !PHONE.matches && (lanes <= LANES || !before.size && lanes === (site.nodes ?? 8) && lanes <= 4 * LANES);
      const held = before.get(site.name) ?? new Site(site.name, open, () => this.again());
      held.summary = site;
      held.use = this.told.uses[site.name];
      return [site.name, held];
    }));
  }

  draw() {
    this.problem.hidden = true;
    const names = ["", ...this.told.namespaces];
    keep(this.filters.namespace, names, (name) => name, (name) => el("option", { value: name, text: name || "all namespaces" }), () => {});
    this.drawTotals();
    this.whatIf.hidden = !this.told.whatIf;
    const chosen = this.filters.phase.value;
    const filtered = Boolean(chosen || this.filters.find.value.trim());
    for (const group of this.groups) {
      group.draw(this.told[group.name], filtered);
      group.element.hidden = Boolean(chosen) && !this.told[group.name].total;
    }
    const count = this.sites.size;
    keep(this.list, [...this.sites.values()].slice(0, this.shownSites), (site) => site.name, (site) => site.element, () => {});
    this.moreSites.hidden = count <= this.shownSites;
    set(this.moreSites, { text: `Show more sites (${Math.min(count, this.shownSites)} of ${count} shown)` });
    const asTable = this.asTable.getAttribute("aria-pressed") === "true";
    const span = extent([...this.sites.values()].flatMap((site) => site.bars), now());
    for (const site of this.sites.values()) site.draw(asTable, span);
    this.legend.hidden = asTable || ![...this.sites.values()].some((site) => site.isOpen);
  }

  drawTotals() {
    const { waiting, suspended, running, gpus, succeeded, failed, averageJct } = this.told.totals;
    const known = this.told.sites.filter((site) => site.gpus !== undefined);
    const sum = (field) => known.reduce((total, site) => total + site[field], 0);
    const ended = `${succeeded} succeeded${failed ? `, ${failed} failed` : ""}`;
    const tiles = [
      ["Waiting", String(waiting), suspended ? `and ${suspended} suspended` : ""],
      ["Running", String(running), ""],
      known.length ? ["GPUs in use", `${sum("usedGpus")} of ${sum("gpus")}`, ""] : ["GPUs in use by these jobs", String(gpus), ""],
      ["Average JCT today", averageJct === null ? "–" : precise(averageJct), ended],
    ];
    keep(this.totals, tiles, ([name]) => name, ([name]) => el("div", {}, el("dt", { text: name }), el("dd")), (tile, [, value, note]) =>
      keep(tile.lastChild, [["value", value], ["note", note]].filter((part) => part[1]), (part) => part[0],
        (part) => el("span", { class: part[0] }), (part, [, text]) => set(part, { text })));
  }

  fail(reason) {
    if (this.filters.namespace.value) this.filters.namespace.value = "";
    set(this.problem, { text: reason });
    this.problem.hidden = false;
  }
}

const LEGEND = [
  ["swatch bar running", "trains"], ["swatch bar planned", "starts"], ["swatch bar closing", "stops"],
  ["swatch bar later", "planned later"], ["swatch bar expected", "waiting job, expected start"],
  ["swatch bar running assumed", "assumed duration"],
  ["swatch nowline", "now"], ["swatch hues", "one color for each job; the height of a bar is its number of GPUs"],
];
