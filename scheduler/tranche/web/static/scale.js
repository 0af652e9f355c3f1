// The span of time that the timelines of all sites show.
const SPANS = [60, 120, 300, 600, 900, 1800, 3600, 5400, 7200, 10800, 14400, 21600, 28800, 43200, 86400, 172800, 345600, 604800, 2419200, 31536000];

// From a little past to the last end, in steps, so that it does not move all the time. The end of a job whose duration is
// assumed sets no scale, nor do windows that wait for it, unless there are no others.
export function extent(bars, at) {
  const guess = Math.min(...bars.filter((bar) => bar.assumed && bar.end).map((bar) => Date.parse(bar.end)));
  const certain = bars.filter((bar) => !bar.assumed && !(bar.start && Date.parse(bar.start) >= guess));
  const ends = (certain.length ? certain : bars).map((bar) => (bar.end ? Date.parse(bar.end) : at)).concat(at + 30000);
  const starts = bars.map((bar) => (bar.start ? Date.parse(bar.start) : at)).concat(at);
  const ahead = (Math.max(...ends) - at) / 1000;
  const future = SPANS.find((span) => span >= ahead) ?? SPANS.at(-1);
  const past = Math.min(future / 2, Math.max(future / 12, (at - Math.min(...starts)) / 1000));
  const step = future * 10;
  return { from: Math.floor((at - past * 1000) / step) * step, to: at + future * 1000 };
}
