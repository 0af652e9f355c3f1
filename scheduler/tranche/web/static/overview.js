// Sites with their windows, and jobs that wait, run, and are over.
import { ask } from "./api.js";
import { el, jobLink, keep, phase, set, table } from "./dom.js";
import { duration, moment } from "./times.js";
import { extent, Site } from "./sites.js";

const STEP = 50; // jobs of a group at a time
const LANES = 24; // nodes up to which sites are open at first
const TABLE = "tranche-as-table";

const columns = {
  waiting: [
    { name: "Job", cell: (job) => jobLink(job.namespace, job.name) },
    { name: "Planned start", style: "time", cell: (job) => moment(job.plannedStart) },
    { name: "Planned completion", style: "time", cell: (job) => moment(job.plannedCompletion) },
    { name: "Why it waits", style: "why", cell: (job) => (job.phase === "Suspended" ? "suspended; " : "") + job.explanation },
  ],
  running: [
    { name: "Job", cell: (job) => jobLink(job.namespace, job.name) },
    { name: "Phase", cell: (job) => phase(job.phase) },
    { name: "Chunks done", cell: (job) => job.chunks || "–" },
    { name: "Planned completion", style: "time", cell: (job) => moment(job.plannedCompletion) },
    { name: "Where", style: "why", cell: (job) => job.explanation },
  ],
  finished: [
    { name: "Job", cell: (job) => jobLink(job.namespace, job.name) },
    { name: "Phase", cell: (job) => phase(job.phase) },
    { name: "Chunks done", cell: (job) => job.chunks || "–" },
    { name: "Completed", style: "time", cell: (job) => moment(job.completed) },
    { name: "JCT", cell: (job) => (job.completed && job.created ? duration((Date.parse(job.completed) - Date.parse(job.created)) / 1000) : "–") },
  ],
};
const titles = { waiting: "Waiting", running: "Running", finished: "Finished" };

class Group {
  constructor(name, changed) {
    this.name = name;
    this.count = el("span", { class: "count" });
    this.list = table(`${titles[name]} jobs`, columns[name]);
    this.none = el("p", { class: "none", text: "none" });
    this.more = el("button", { type: "button", text: "Show more", onclick: () => changed() });
    this.element = el("section", { class: `jobs ${name}`, "aria-labelledby": `h-${name}` },
      el("h2", { id: `h-${name}` }, `${titles[name]} `, this.count), this.list.whole, this.none, this.more);
  }

  draw({ total, jobs }) {
    set(this.count, { text: String(total) });
    this.list.show(jobs, (job) => `${job.namespace}/${job.name}`);
    this.list.whole.hidden = !jobs.length;
    this.none.hidden = jobs.length > 0;
    this.more.hidden = jobs.length >= total || jobs.length >= 1000;
    set(this.more, { text: `Show more (${jobs.length} of ${total} shown)` });
  }
}

export class Overview {
  title = "tranche";

  constructor(namespace, find) {
    this.namespace = namespace;
    this.find = find;
    this.limit = STEP;
    this.sites = new Map();
    this.ready = false;
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.list = el("div", { id: "sites" });
    this.asTable = el("button", { type: "button", "aria-pressed": sessionStorage.getItem(TABLE) === "yes",
      text: "As a table", onclick: () => this.toggle() });
    const legend = ["running", "planned", "closing", "expected"].map((state) =>
      el("li", {}, el("span", { class: `swatch bar ${state}` }), { running: "trains", planned: "starts", closing: "stops", expected: "waiting job, where it will start" }[state]));
    const sites = el("section", { "aria-labelledby": "h-sites" },
      el("div", { class: "headline" }, el("h2", { id: "h-sites", text: "Sites" }), this.asTable),
      el("ul", { class: "legend", "aria-label": "Legend" }, legend), this.list);
    this.groups = ["waiting", "running", "finished"].map((name) => new Group(name, () => { this.limit = Math.min(1000, this.limit * 4); this.again(); }));
    this.element = el("div", {}, this.problem, sites, this.groups.map((group) => group.element));
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
    const chosen = new URLSearchParams({ namespace: this.namespace.value });
    const asked = new URLSearchParams({ ...Object.fromEntries(chosen), find: this.find.value.trim(), limit: this.limit });
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
      const open = lanes <= LANES || !before.size && lanes === (site.nodes ?? 8) && lanes <= 4 * LANES;
      const held = before.get(site.name) ?? new Site(site.name, open, () => this.again());
      held.summary = site;
      held.use = this.told.uses[site.name];
      return [site.name, held];
    }));
  }

  draw() {
    this.problem.hidden = true;
    const names = ["", ...this.told.namespaces];
    keep(this.namespace, names, (name) => name, (name) => el("option", { value: name, text: name || "all" }), () => {});
    keep(this.list, [...this.sites.values()], (site) => site.name, (site) => site.element, () => {});
    const asTable = this.asTable.getAttribute("aria-pressed") === "true";
    const span = extent([...this.sites.values()].flatMap((site) => site.bars));
    for (const site of this.sites.values()) site.draw(asTable, span);
    for (const group of this.groups) group.draw(this.told[group.name]);
  }

  fail(reason) {
    if (this.namespace.value) this.namespace.value = "";
    set(this.problem, { text: reason });
    this.problem.hidden = false;
  }
}
