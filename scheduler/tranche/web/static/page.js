// Log in, choose the view by the address, and keep it fresh.
import { Refused, setToken, takeToken, token } from "./api.js";
import { el, set } from "./dom.js";
import { Job } from "./job.js";
import { Overview } from "./overview.js";
import { zone } from "./times.js";
import { WhatIf } from "./what_if.js";

const EVERY = 2000; // milliseconds between questions
const LONGEST = 30000; // the same, while the server does not answer
const byId = (id) => document.getElementById(id);
let view = null;
let timer = 0;
let failures = 0;
let round = 0;

function live(state, text) {
  set(byId("live"), { class: state, text });
}

function login(reason = "") {
  view = null;
  clearTimeout(timer);
  round += 1;
  live("", "");
  byId("filters").hidden = byId("visitor").hidden = true;
  const input = el("input", { id: "token", type: "password", autocomplete: "off", required: true, spellcheck: "false",
    "aria-describedby": "token-help" });
  const form = el("form", { id: "login" },
    el("h2", { text: "Log in" }),
    reason && el("p", { class: "problem", role: "alert", text: reason }),
    el("label", { for: "token", text: "Token" }), input,
    el("button", { type: "submit", text: "Log in" }),
    el("p", { id: "token-help" },
      "Enter a bearer token for this cluster. To create one for a service account that may read TrainingJobs, run:"),
    el("pre", { tabindex: "0", "aria-label": "command" },
      el("code", { text: "kubectl create token NAME --namespace NAMESPACE --audience page.tranche.dev" })),
    el("p", { text: "A token with this audience is valid for this page only. It is stored in this tab only, and the page shows what RBAC allows you to read." }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    setToken(input.value.trim());
    input.value = "";
    show();
  });
  byId("main").replaceChildren(form);
  document.title = "Log in – tranche";
  input.focus();
}

function choose() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  try {
    if (parts.length === 3 && parts[0] === "jobs") return new Job(decodeURIComponent(parts[1]), decodeURIComponent(parts[2]));
  } catch { /* not a name */ }
  if (parts.length === 1 && parts[0] === "what-if") return new WhatIf();
  return new Overview({ namespace: byId("namespace"), phase: byId("phase"), find: byId("find") });
}

function show() {
  if (!token()) return login();
  view = choose();
  failures = 0;
  byId("filters").hidden = !(view instanceof Overview);
  byId("visitor").hidden = false;
  document.title = view.title;
  byId("main").replaceChildren(view.element);
  return refresh();
}

async function refresh() {
  clearTimeout(timer);
  const asked = view;
  const mine = (round += 1);
  if (!asked) return;
  try {
    await asked.load();
    if (mine !== round) return;
    failures = 0;
    if (asked.told?.plannerResponds === false) live("off", "the planner does not respond: plans, times and reasons are from before");
    else live("on", "live");
    if (asked.user) set(byId("user"), { text: asked.user.replace("system:serviceaccount:", ""), title: asked.user });
    asked.draw();
  } catch (error) {
    if (mine !== round) return;
    if (error instanceof Refused && error.status === 401) {
      setToken("");
      login(error.message);
      return;
    }
    if (error instanceof Refused && [403, 404].includes(error.status)) {
      live("on", "live");
      asked.fail(error.message);
    } else {
      failures += 1;
      live("off", `not live: ${error instanceof Refused ? error.message : "the server does not respond"}`);
    }
  }
  const wait = Math.min(EVERY * 2 ** failures, LONGEST);
  timer = setTimeout(() => (document.hidden ? undefined : refresh()), wait);
}

takeToken();
set(byId("zone"), { text: `Times are in ${zone()}; explanations use UTC (Z).` });
byId("leave").addEventListener("click", () => { setToken(""); login(); });
byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("filters").addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(refresh, 200); });
window.addEventListener("hashchange", () => {
  takeToken();
  show();
  byId("main").focus({ preventScroll: true });
  scrollTo(0, 0);
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && view) refresh(); });
setInterval(() => { if (view && view.ready && !document.hidden) view.draw(); }, 1000);
show();
