// One job: why it runs or waits, how far it is, its windows, how its pods ended, and what was noted of it.
import { ask } from "./api.js";
import { Actions } from "./actions.js";
import { Commands } from "./commands.js";
import { el, keep, phase, set, table } from "./dom.js";
import { bytes, gpuTime, intervalFacts, moment, percentage, precise } from "./times.js";

const stateOf = (planned) => {
  const by = planned.preemptedBy ? ` (preempted by ${planned.preemptedBy})` : "";
  return { Open: "open", Closing: `closing${by}` }[planned.state] ?? planned.state;
};
// A plan names no node of an unlimited site.
const ON_DEMAND = "created on demand";
const windows = [
  { name: "Worker", cell: (w) => String(w.index) },
  { name: "Attempt", cell: (w) => String(w.attempt) },
  { name: "State", cell: stateOf },
  { name: "Site", cell: (w) => w.site },
  { name: "Node", cell: (w) => w.node ?? ON_DEMAND },
  { name: "Chunks", cell: (w) => ranges(w.chunks ?? []) || "–" },
  { name: "From", style: "time", cell: (w) => moment(w.start) },
  { name: "To", style: "time", cell: (w) => moment(w.end) },
];
const chunkWindows = [
  { name: "Chunk", cell: (c) => String(c.chunk) },
  { name: "State", cell: (c) => c.state.toLowerCase() },
  { name: "Site", cell: (c) => c.site || "–" },
  { name: "Node", cell: (c) => c.node || (c.onDemand ? ON_DEMAND : "–") },
  { name: "GPU", optional: true, cell: (c) => c.slots.join(", ") || "–" },
  { name: "From", style: "time", cell: (c) => moment(c.start) },
  { name: "To", style: "time", cell: (c) => moment(c.end) },
  { name: "Cost when bound", optional: true, cell: (c) => (c.q === null ? "–" : `${Number(c.q.toPrecision(6))} s`) },
];
const SHOWN_CHUNKS = 200;
const servers = [
  { name: "Role", cell: (s) => s.role },
  { name: "Attempt", cell: (s) => String(s.attempt) },
  { name: "State", cell: stateOf },
  { name: "Site", cell: (s) => s.site },
  { name: "Node", cell: (s) => s.node ?? ON_DEMAND },
];
const ROLES = { ps: "parameter server", staging: "staging" };
const attempts = [
  { name: "Attempt", cell: (a) => String(a.attempt) },
  { name: "Pod", cell: (a) => (a.role === "chief" ? "chief" : `${ROLES[a.role] ?? "worker"} ${a.index}`) },
  { name: "Node", cell: (a) => a.node || "–" },
  { name: "From", style: "time", optional: true, cell: (a) => moment(a.start) },
  { name: "To", style: "time", optional: true, cell: (a) => moment(a.end) },
  { name: "Outcome", cell: (a) => a.reason },
  { name: "Exit code", cell: (a) => (a.exitCode === undefined ? "–" : String(a.exitCode)) },
  { name: "Why", style: "why", optional: true, cell: (a) => a.text || "–" },
  { name: "Last log lines", style: "why", optional: true, cell: (a) => (a.log ?? []).join("\n") || "–" },
];
const victims = [
  { name: "When", style: "time", cell: (v) => moment(v.at) },
  { name: "Job", cell: (v) => v.job },
  { name: "Workers", cell: (v) => String(v.workers) },
];
const sites = [
  { name: "Site", cell: (s) => s.site || "all nodes" },
  { name: "GPU time", cell: (s) => gpuTime(s.gpuSeconds ?? 0) },
  { name: "Chunks completed", cell: (s) => String(s.chunks ?? 0) },
  { name: "Copied", cell: (s) => bytes(s.copiedBytes ?? 0) },
  { name: "Copied, unused", cell: (s) => bytes(s.inVainBytes ?? 0) },
];
// Meanings of conditions that an earlier version has written without a message.
const MEANINGS = {
  Planned: { True: "the job has a plan" },
  InvalidTemplate: { False: "the API server accepts the pods of the job", Unknown: "the pods of the job have not been checked yet" },
  Running: { True: "workers run", False: "no worker runs" },
  Suspended: { True: "the job is suspended", False: "the job is not suspended" },
  Complete: { True: "the job has succeeded" },
  Failed: { True: "the job has failed" },
  PodsRejected: { False: "the API server accepts the pods" },
  PodsUnplaced: { False: "all pods found a place" },
  PodsNotStarting: { False: "all containers have started" },
  PodsDoNotStop: { False: "no pod holds its resources after its grace period" },
  EvictionsRefused: { False: "no disruption budget keeps a pod from being stopped" },
  StagingFailed: { False: "no pod that copies data fails" },
};
const spaced = (name) => name.replace(/([a-z])([A-Z])/g, (_, before, after) => `${before} ${after.toLowerCase()}`);
const conditions = [
  { name: "Condition", cell: (c) => spaced(c.type) },
  { name: "Holds", cell: (c) => ({ True: "yes", False: "no" }[c.status] ?? "unknown") },
  { name: "Since", style: "time", cell: (c) => moment(c.lastTransitionTime) },
  { name: "Meaning", style: "why", cell: (c) => c.message || (MEANINGS[c.type]?.[c.status] ?? spaced(c.reason ?? "")) },
];
const events = [
  { name: "When", style: "time", cell: (e) => moment(e.at) },
  { name: "Event", cell: (e) => spaced(e.reason) + (e.count > 1 ? ` ×${e.count}` : "") },
  { name: "Message", style: "why", cell: (e) => e.message },
];

export class Job {
  constructor(namespace, name) {
    this.path = `jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`;
    this.title = `${name} – tranche`;
    this.ready = false;
    this.phase = el("span");
    this.why = el("p", { class: "sentence", id: "explanation" });
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.bar = el("progress", { max: "1", "aria-label": "Mini-batches trained" });
    this.trained = el("span");
    this.facts = el("dl", { class: "facts" });
    this.cells = el("ol", { class: "cells", "aria-hidden": "true" });
    this.cellsText = el("p", { class: "quiet" });
    this.chunks = section("Chunks", this.cells, this.cellsText);
    this.parts = Object.entries({ Windows: windows, "Plan of each chunk": chunkWindows, "Servers and chief": servers, "Ended pods": attempts, "Preempted jobs": victims, "Use of sites": sites, Conditions: conditions, Events: events })
      .map(([name_, columns]) => new Part(name_, columns));
    this.commands = new Commands();
    this.actions = new Actions(this.path, (action) => {
      if (action === "delete") location.hash = "#/";
      else this.load().then(() => this.draw(), () => {});
    });
    this.body = el("div", {}, this.actions.element, this.why, el("p", { class: "progress" }, this.bar, this.trained), this.facts, this.commands.element, this.chunks, this.parts.map((part) => part.element));
    this.element = el("article", { class: "job" },
      el("p", {}, el("a", { href: "#/", text: "← all jobs" })),
      el("h2", {}, el("span", { class: "quiet", text: `${namespace}/` }), name, " ", this.phase), this.problem, this.body);
  }

  async load() {
    this.told = await ask(this.path);
    const noted = await ask(`${this.path}/events`);
    this.events = noted.events;
    this.plan = await ask(`${this.path}/chunks?limit=${SHOWN_CHUNKS}`);
    this.refused = noted.refused;
    this.ready = true;
  }

  draw() {
    const job = this.told;
    this.problem.hidden = true;
    this.body.hidden = false;
    const badge = phase(job.phase);
    set(this.phase, { class: badge.className, text: job.phase });
    set(this.why, { text: job.explanation || "not planned yet" });
    this.drawProgress(job);
    this.drawFacts(job);
    this.commands.draw(job);
    this.actions.draw(job);
    this.drawChunks(job);
    const helpers = job.parameterServers.map((server) => ({ ...server, role: `parameter server ${server.index}` }))
      .concat(job.chief ? [{ ...job.chief, role: "chief" }] : []);
    const [open, planned, support, ended, stopped, used, states, noted] = this.parts;
    open.draw(job.windows, (w) => `${w.index}/${w.attempt}`, "none now");
    const over = job.phase === "Succeeded" || job.phase === "Failed";
    planned.draw(over ? [] : this.plan.chunks, (c) => String(c.chunk), over ? "" : this.plan.note, this.plan.total);
    support.draw(helpers, (s) => `${s.role}/${s.attempt}`);
    const allEnded = Object.values(job.attemptTotals).reduce((sum, count) => sum + count, 0);
    ended.draw([...job.attempts].reverse(), (a) => `${a.index}/${a.attempt}`, "none yet", Math.max(allEnded, job.attempts.length));
    stopped.draw([...job.victims].reverse(), (v) => `${v.at} ${v.job}`);
    used.draw(job.sites ?? [], (s) => s.site);
    states.draw(job.conditions, (c) => c.type);
    noted.draw(this.events, (e) => `${e.at} ${e.reason} ${e.message}`, this.refused || "none recently");
  }

  drawProgress(job) {
    const { batches, of, estimated } = job.trained;
    this.bar.parentNode.hidden = batches === undefined;
    const whole = of ?? null;
    this.bar.hidden = !whole;
    if (whole) this.bar.value = Math.min(1, batches / whole);
    const how = estimated ? ", estimated from run time" : "";
    const share = whole ? percentage(batches, whole) : "";
    const count = `${Math.floor(batches)}${whole ? ` of ${Math.floor(whole)}` : ""} mini-batches`;
    const parts = job.chunkCount ? [share, count] : [share || count]; // the mini-batches of a gang are parts of its run
    set(this.trained, { text: `${parts.filter(Boolean).join(": ")} trained${how}` });
  }

  drawFacts(job) {
    const where = job.expectedAt && job.expectedAt.site ? `${job.expectedAt.site}${job.expectedAt.node ? ` (${job.expectedAt.node})` : ""}` : "";
    const lost = job.lostBatches ? `, ${round(job.lostBatches)} mini-batches lost` : "";
    const facts = [
      ["Created", moment(job.created)],
      ["Started", moment(job.started, "not yet")],
      ...(job.completed ? [["Completed", moment(job.completed)]] : [["Planned start", moment(job.plannedStart)], ["Planned completion", moment(job.plannedCompletion)], ...intervalFacts(job.completionInterval)]),
      ...(where ? [["Expected node", where]] : []),
      ["Preemptions", `${job.preemptions}${lost}`],
      ["Failures", String(job.failures)],
      ["Priority", job.priority],
      ["Weight", String(job.weight)],
      ["Workers", `at most ${job.maxWorkers}, ${job.gpus} GPU${job.gpus === 1 ? "" : "s"} each`],
      ...Object.entries(job.homes).map(([site, chunks]) => [`Data at ${site}`, `chunks ${chunks}`]),
      ...job.staging.map((one) => [`Staging to ${one.site}`, one.givenUp ? `stopped after ${one.failures} failures${one.why ? `: ${one.why}` : ""}` : `chunks ${one.chunks || one.wanted || "–"}`]),
    ];
    if (job.started && job.completed) facts.splice(3, 0, ["Completion time", precise((Date.parse(job.completed) - Date.parse(job.created)) / 1000)]);
    keep(this.facts, facts, ([name]) => name, ([name]) => el("div", {}, el("dt", { text: name }), el("dd")), (pair, [, value]) => {
      const cell = pair.lastChild;
      const made = value instanceof Node ? value : document.createTextNode(value);
      if (!cell.firstChild || !cell.firstChild.isEqualNode(made)) cell.replaceChildren(made);
    });
  }

  drawChunks(job) {
    this.chunks.hidden = !job.chunkCount;
    if (!job.chunkCount) return;
    const state = Array.from({ length: job.chunkCount }, () => "waits");
    for (const { chunk } of job.partialChunks) if (chunk in state) state[chunk] = "begun";
    for (const one of job.windows) for (const chunk of one.chunks ?? []) if (chunk in state) state[chunk] = "open";
    for (const chunk of numbers(job.done, job.chunkCount)) state[chunk] = "done";
    const items = state.map((name, chunk) => ({ name, chunk }));
    set(this.cells, { class: job.chunkCount > 200 ? "cells many" : "cells" });
    keep(this.cells, items, (item) => String(item.chunk), (item) => el("li", { text: String(item.chunk) }), (cell, item) => set(cell, { class: item.name, title: `chunk ${item.chunk}: ${WORDS[item.name]}` }));
    const counts = Object.keys(WORDS).map((name) => [name, state.filter((one) => one === name).length]).filter(([, count]) => count);
    set(this.cellsText, { text: `${job.chunkCount} chunks: ${counts.map(([name, count]) => `${count} ${WORDS[name]}`).join(", ")}` });
  }

  fail(reason) {
    set(this.problem, { text: reason });
    this.problem.hidden = false;
    this.body.hidden = true;
    this.ready = false;
  }
}

const WORDS = { done: "done", open: "assigned to a worker", begun: "started, not running now", waits: "not started" };

class Part {
  constructor(name, columns) {
    this.columns = columns;
    this.list = table(name, columns);
    this.all = el("button", { type: "button", hidden: true, onclick: () => { this.shown = Infinity; this.draw(...this.last); } });
    this.shown = ROWS;
    this.count = el("span", { class: "count" });
    this.none = el("p", { class: "none" });
    this.element = section([`${name} `, this.count], this.list.whole, this.all, this.none);
  }

  // `total` is how many there are if not all of them are shown.
  draw(items, keyOf, none = "", total = items.length) {
    const more = items.length ? total - items.length : 0;
    this.element.hidden = !items.length && !none;
    this.list.whole.hidden = !items.length;
    this.none.hidden = items.length > 0 && !more;
    set(this.none, { text: more ? `and ${more} more` : none });
    set(this.count, { text: String(items.length + more) });
    this.last = [items, keyOf, none, total];
    this.all.hidden = items.length <= this.shown;
    set(this.all, { text: `Show all ${items.length}` });
    const some = items.slice(0, this.shown);
    this.list.show(some, keyOf);
    this.columns.forEach((column, index) => {
      const empty = column.optional && some.every((item) => column.cell(item) === "–");
      for (const row of this.list.whole.rows) row.children[index].hidden = Boolean(empty);
    });
  }
}

const ROWS = 20; // rows of a table at first

function section(title, ...children) {
  return el("section", {}, el("h3", {}, title), children);
}

function numbers(text, count) {
  return (text || "").split(",").filter(Boolean).flatMap((part) => {
    const [first, last = first] = part.split("-").map(Number);
    return Array.from({ length: Math.max(0, Math.min(last, count - 1) - first + 1) }, (_, index) => first + index);
  });
}

function ranges(chunks) {
  const found = [];
  for (const chunk of [...chunks].sort((a, b) => a - b)) {
    if (found.length && chunk === found.at(-1)[1] + 1) found.at(-1)[1] = chunk;
    else found.push([chunk, chunk]);
  }
  return found.map(([first, last]) => (first === last ? `${first}` : `${first}-${last}`)).join(",");
}

const round = (value) => String(Math.round((value ?? 0) * 10) / 10);
