// Commands for one job, to copy.
import { el, keep, set } from "./dom.js";

// The name of a job is a DNS label, so nothing in a command needs quotes.
function commandsFor({ namespace, name, suspended, weight }) {
  const patch = (spec) => `kubectl -n ${namespace} patch trainingjob ${name} --type=merge -p '${JSON.stringify({ spec })}'`;
  return [
    ["Logs and ended attempts", `kubectl tranche history ${name} -n ${namespace}`],
    ["Follow the logs", `kubectl -n ${namespace} logs -l tranche.dev/job=${name} --prefix --tail=20 -f`],
    ["Pods", `kubectl -n ${namespace} get pods -l tranche.dev/job=${name} -o wide`],
    ["YAML", `kubectl -n ${namespace} get trainingjob ${name} -o yaml`],
    suspended ? ["Resume", patch({ suspend: false })] : ["Suspend", patch({ suspend: true })],
    ["Set the weight", patch({ weight })],
    ["Delete", `kubectl -n ${namespace} delete trainingjob ${name}`],
  ];
}

export class Commands {
  constructor() {
    this.list = el("dl", { class: "commands" });
    this.said = el("p", { class: "quiet", role: "status" });
    this.element = el("details", { class: "box" }, el("summary", { text: "Commands" }), this.list, this.said);
  }

  draw(job) {
    keep(this.list, commandsFor(job), ([name]) => name,
      ([name]) => el("div", {}, el("dt", { text: name }), el("dd", {}, el("code"),
        el("button", { type: "button", "aria-label": `Copy: ${name}`, text: "Copy", onclick: (event) => this.copy(event.target) }))),
      (item, [, text]) => set(item.querySelector("code"), { text }));
  }

  // Without a secure context there is no clipboard; then the command is selected.
  async copy(button) {
    const code = button.parentNode.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      set(this.said, { text: "copied" });
    } catch {
      getSelection().selectAllChildren(code);
      set(this.said, { text: "selected: copy it with the keyboard" });
    }
  }
}
