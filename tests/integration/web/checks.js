// What a visitor with a screen reader, a keyboard or weak eyes would stumble over; a list of faults.
() => {
  const faults = [];
  const shown = (e) => e.checkVisibility();
  const name = (e) => (e.getAttribute("aria-label") || e.innerText || e.labels?.[0]?.innerText || e.labels?.[0]?.textContent || "").trim();
  for (const e of document.querySelectorAll("a, button, input, select, summary, progress"))
    if (shown(e) && !name(e)) faults.push("no name: " + e.outerHTML.slice(0, 80));
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) faults.push("an id twice");
  for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby]"))
    for (const id of (e.getAttribute("aria-labelledby") ?? e.getAttribute("aria-describedby")).split(" "))
      if (!document.getElementById(id)) faults.push("refers to nothing: " + id);
  if (!document.documentElement.lang) faults.push("no language");
  if (document.querySelectorAll("main").length !== 1 || document.querySelectorAll("h1").length !== 1) faults.push("landmarks");
  const levels = [...document.querySelectorAll("h1, h2, h3")].filter(shown).map((e) => Number(e.tagName[1]));
  levels.forEach((level, i) => { if (i && level > levels[i - 1] + 1) faults.push("a heading is left out"); });
  for (const e of document.querySelectorAll("table")) if (!e.caption || !e.querySelector("th[scope=col]")) faults.push("table without names");
  const paint = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => { paint.clearRect(0, 0, 1, 1); paint.fillStyle = text; paint.fillRect(0, 0, 1, 1);
    const d = paint.getImageData(0, 0, 1, 1).data; return [d[0], d[1], d[2], d[3] / 255]; };
  const under = (e) => { for (let at = e; at; at = at.parentElement) {
    const c = rgba(getComputedStyle(at).backgroundColor); if (c[3] > 0.99) return c; } return [255, 255, 255, 1]; };
  const bright = (c) => { const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !shown(e) || e.closest(".skip, caption, option")) continue;
    const [a, b] = [bright(rgba(getComputedStyle(e).color)), bright(under(e))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faults.push(`contrast ${((a + 0.05) / (b + 0.05)).toFixed(1)}: ${e.outerHTML.slice(0, 90)}`);
  }
  return [...new Set(faults)];
}
