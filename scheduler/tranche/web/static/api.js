// Questions to the server this page came from, with the visitor's token, which stays in this tab.
import { setClock } from "./times.js";

const KEY = "tranche-token";
const known = new Map(); // path: {tag, value}

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export const token = () => sessionStorage.getItem(KEY) ?? "";

export function setToken(text) {
  known.clear();
  if (text) sessionStorage.setItem(KEY, text);
  else sessionStorage.removeItem(KEY);
}

// The token of a link, as `kubectl tranche page` opens it; it leaves the address at once and never reaches a server.
export function takeToken() {
  const found = /^#token=([\w.~+/=-]+)$/.exec(location.hash);
  if (!found) return;
  setToken(found[1]);
  history.replaceState(null, "", "#/");
}

// A request that changes or computes something. The header shows that it comes from this page: other sites cannot send it.
export async function send(path, body) {
  const headers = { "Tranche-Token": token(), "Tranche-Request": "page", "Content-Type": "application/json" };
  const answer = await fetch(`v1/${path}`, { method: "POST", headers, body: JSON.stringify(body), cache: "no-store", credentials: "omit", redirect: "error" });
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, String(value.error ?? `the server answers ${answer.status}`));
  return value;
}

export async function ask(path) {
  const cached = known.get(path);
  const headers = { "Tranche-Token": token() };
  if (cached) headers["If-None-Match"] = cached.tag;
  const answer = await fetch(`v1/${path}`, { headers, cache: "no-store", credentials: "omit", redirect: "error" });
  setClock(answer.headers.get("Date"));
  if (answer.status === 304 && cached) return cached.value;
  const value = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, String(value.error ?? `the server answers ${answer.status}`));
  if (known.size > 200) known.clear();
  known.set(path, { tag: answer.headers.get("ETag") ?? "", value });
  return value;
}
