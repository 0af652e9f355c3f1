// The plan of a job that is not created: paste its YAML and see its start, its end, and the jobs that it would delay.
import { ask, send } from "./api.js";
import { el, jobLink, keep, set, table } from "./dom.js";
import { duration, intervalFacts, moment } from "./times.js";

const KEPT = "tranche-what-if";
const columns = [
  { name: "Job", cell: (one) => jobLink(one.namespace, one.name) },
  { name: "Planned completion", style: "time", cell: (one) => moment(one.before) },
  { name: "With this job", style: "time", cell: (one) => moment(one.after) },
  { name: "Later by", cell: (one) => duration((Date.parse(one.after) - Date.parse(one.before)) / 1000) },
];

export class WhatIf {
  title = "What if – tranche";

  constructor() {
    this.ready = false;
    this.manifest = el("textarea", { id: "manifest", spellcheck: "false", required: true, placeholder: "apiVersion: tranche.dev/v1alpha1\nkind: TrainingJob\n…" });
    this.manifest.value = sessionStorage.getItem(KEPT) ?? "";
    this.namespace = el("input", { id: "into", value: "default", maxlength: "63", autocomplete: "off" });
    this.go = el("button", { type: "button", text: "Plan", onclick: () => this.plan() });
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.sentence = el("p", { class: "sentence", role: "status" });
    this.facts = el("dl", { class: "facts" });
    this.none = el("p", { class: "none" });
    this.delays = table("Delayed jobs", columns);
    this.answer = el("section", { hidden: true, "aria-labelledby": "h-answer" }, el("h3", { id: "h-answer", text: "Plan" }), this.sentence, this.facts,
      el("h3", { text: "Delayed jobs" }), this.delays.whole, this.none);
    this.element = el("article", { class: "job" },
      el("p", {}, el("a", { href: "#/", text: "← all jobs" })),
      el("h2", { text: "What if I submit a job?" }),
      el("p", { class: "quiet", text: "The planner plans the job on the present state of the cluster. Nothing is created. The API server checks the job in a dry run." }),
      el("label", { for: "manifest", text: "TrainingJob (YAML)" }), this.manifest,
      el("p", { class: "actions" }, el("label", { for: "into", text: "Namespace, if the YAML has none" }), this.namespace, this.go), this.problem, this.answer);
  }

  async load() {
    this.user = (await ask("overview?limit=1")).user;
    this.ready = true;
  }

  draw() {}

  async plan() {
    sessionStorage.setItem(KEPT, this.manifest.value);
    this.go.disabled = true;
    set(this.go, { text: "Planning…" });
    this.problem.hidden = true;
    try {
      this.show(await send("what-if", { manifest: this.manifest.value, namespace: this.namespace.value.trim() || "default" }));
    } catch (error) {
      this.answer.hidden = true;
      this.fail(error.status ? error.message : "the server does not respond");
    } finally {
      this.go.disabled = false;
      set(this.go, { text: "Plan" });
    }
  }

  show(told) {
    const { plannedStart, plannedCompletion, workers, site, behind, delays, delayed, cutShort, note } = told;
    set(this.sentence, { text: told.explanation });
    const facts = [
      ["Planned start", moment(plannedStart, cutShort ? "after the end of the forecast" : "never, as the cluster is")],
      ["Planned completion", moment(plannedCompletion, cutShort ? "after the end of the forecast" : "never, as the cluster is")],
      ...intervalFacts(told.completionInterval),
      ["Workers that would start at once", String(workers)],
      ...(site ? [["First site", site]] : []),
      ...(behind ? [["After", behind]] : []),
      ...(note ? [["Note", note]] : []),
    ];
    keep(this.facts, facts, ([name]) => name, ([name]) => el("div", {}, el("dt", { text: name }), el("dd")),
      (pair, [, value]) => pair.lastChild.replaceChildren(value));
    this.delays.show(delays, (one) => `${one.namespace}/${one.name}`);
    this.delays.whole.hidden = !delays.length;
    const more = delayed - delays.length;
    set(this.none, { text: delays.length ? (more ? `and ${more} more` : "") : "none of the jobs that you may list" });
    this.answer.hidden = false;
  }

  fail(reason) {
    set(this.problem, { text: reason });
    this.problem.hidden = false;
  }
}
