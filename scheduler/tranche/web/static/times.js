// Moments, durations and amounts as people read them. `now` is the server's clock, in milliseconds.
import { el } from "./dom.js";

let skew = 0;

export function now() {
  return Date.now() + skew;
}

export function setClock(header) {
  const ahead = Date.parse(header) - Date.now();
  if (Number.isFinite(ahead)) skew = Math.abs(ahead) > 2000 ? ahead : 0;
}

export function duration(seconds) {
  const s = Math.abs(seconds);
  if (s < 1) return "0 s";
  if (s < 90) return `${Math.round(s)} s`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min`;
  if (s < 36 * 3600) return `${Math.round(s / 360) / 10} h`;
  return `${Math.round(s / 8640) / 10} d`;
}

// The same with a digit more, for completion times.
export function precise(seconds) {
  if (seconds < 90) return `${Math.round(seconds * 10) / 10} s`;
  return seconds < 90 * 60 ? `${Math.round(seconds / 6) / 10} min` : duration(seconds);
}

// Three significant digits, no fewer before the point.
const digits = (value) => String(value >= 100 ? Math.round(value) : Number(value.toPrecision(3)));

export function gpuTime(seconds) {
  return seconds < 3600 ? `${digits(seconds)} GPU-seconds` : `${digits(seconds / 3600)} GPU-hours`;
}

export function bytes(amount) {
  const [size, unit] = [[1e15, "PB"], [1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([least]) => amount >= least) ?? [1, "B"];
  return `${digits(amount / size)} ${unit}`;
}

// Share of mini-batches. It is rounded down, so that 100 % means that nothing is left.
export function percentage(batches, total) {
  if (typeof batches !== "number" || !total) return "";
  const share = Math.min(1, batches / total) * 100;
  return `${share < 10 ? Math.floor(share * 10) / 10 : Math.floor(share)} %`;
}

// Beginning of today in the visitor's time zone.
export function midnight() {
  const at = new Date(now());
  at.setHours(0, 0, 0, 0);
  return at.toISOString();
}

export function clock(at) {
  const day = (date) => date.toDateString();
  const time = at.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return day(at) === day(new Date(now())) ? time : `${at.toLocaleDateString([], { month: "short", day: "numeric" })} ${time}`;
}

export function relative(at) {
  const seconds = (at.getTime() - now()) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `in ${duration(seconds)}` : `${duration(seconds)} ago`;
}

export function moment(text, none = "–") {
  if (!text) return none;
  const at = new Date(text);
  return el("time", { datetime: text, title: text }, `${clock(at)} `, el("small", { text: relative(at) }));
}

/** Facts about the interval of a planned completion: one, or none if it is unknown. */
export function intervalFacts(interval) {
  return interval ? [["80 % interval", el("span", {}, moment(interval.earliest), " to ", moment(interval.latest))]] : [];
}

export const zone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;
