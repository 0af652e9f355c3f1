// Actions on one job, for users whose rights allow them. Each is confirmed in a dialog.
import { send } from "./api.js";
import { el, keep, set } from "./dom.js";

const ACTIONS = {
  suspend: { title: "Suspend", text: "Its workers save and stop. The job keeps its progress and waits until it is resumed." },
  resume: { title: "Resume", text: "The job is planned again and continues from its checkpoints." },
  weight: { title: "Set weight", text: "A job with a larger weight ranks earlier within its priority class, if the policy uses weights." },
  delete: { title: "Delete", text: "Its workers stop, and the job and its progress are removed. This cannot be undone." },
};

export class Actions {
  // `changed` is called after an action.
  constructor(path, changed) {
    this.path = path;
    this.changed = changed;
    this.bar = el("p", { class: "actions" });
    this.title = el("h3", { id: "dialog-title" });
    this.text = el("p");
    this.weight = el("input", { id: "weight", type: "number", min: "0", step: "any", required: true });
    this.field = el("p", {}, el("label", { for: "weight", text: "Weight " }), this.weight);
    this.problem = el("p", { class: "problem", role: "alert", hidden: true });
    this.go = el("button", { type: "button", onclick: () => this.confirm() });
    this.dialog = el("dialog", { "aria-labelledby": "dialog-title" }, this.title, this.text, this.field, this.problem,
      el("p", { class: "actions" }, this.go, el("button", { type: "button", text: "Cancel", autofocus: true, onclick: () => this.dialog.close() })));
    this.element = el("div", {}, this.bar, this.dialog);
  }

  draw(job) {
    this.job = job;
    const over = job.phase === "Succeeded" || job.phase === "Failed";
    const useful = { suspend: !over && !job.suspended, resume: !over && job.suspended, weight: !over, delete: true };
    const shown = (job.actions ?? []).filter((name) => useful[name]);
    this.bar.hidden = !shown.length;
    keep(this.bar, shown, (name) => name, (name) => el("button", { type: "button", class: name, text: ACTIONS[name].title, onclick: () => this.ask(name) }), () => {});
  }

  ask(name) {
    this.chosen = { action: name, uid: this.job.uid };
    set(this.title, { text: `${ACTIONS[name].title}: ${this.job.namespace}/${this.job.name}` });
    set(this.text, { text: ACTIONS[name].text });
    set(this.go, { text: ACTIONS[name].title, class: name });
    this.field.hidden = name !== "weight";
    this.weight.value = String(this.job.weight);
    this.problem.hidden = true;
    this.dialog.showModal();
  }

  async confirm() {
    if (this.chosen.action === "weight") {
      if (!this.weight.reportValidity()) return;
      this.chosen.weight = Number(this.weight.value);
    }
    this.go.disabled = true;
    try {
      await send(`${this.path}/actions`, this.chosen);
      this.dialog.close();
      this.changed(this.chosen.action);
    } catch (error) {
      set(this.problem, { text: error.status ? error.message : "the server does not respond" });
      this.problem.hidden = false;
    } finally {
      this.go.disabled = false;
    }
  }
}
