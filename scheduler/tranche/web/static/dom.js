// Making and updating elements. Text is only ever set as text: nothing that a user has written becomes markup.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  set(made, attributes);
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "text") { if (element.textContent !== value) element.textContent = value; }
    else if (value === false || value === null || value === undefined) element.removeAttribute(name);
    else if (element.getAttribute(name) !== String(value)) element.setAttribute(name, value === true ? "" : value);
  }
  return element;
}

// Children by key, so that focus and opened details outlive an update: update(element, item) is called for each.
export function keep(parent, items, keyOf, create, update) {
  const known = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let before = null;
  for (const item of items) {
    const key = keyOf(item);
    let child = known.get(key);
    if (!child) {
      child = create(item);
      child.dataset.key = key;
    }
    known.delete(key);
    update(child, item);
    const place = before ? before.nextElementSibling : parent.firstElementChild;
    if (place !== child) parent.insertBefore(child, place);
    before = child;
  }
  for (const gone of known.values()) gone.remove();
}

// A table whose cells are functions from an item to a node or text; on a phone each row becomes a card with labels.
// The headers of columns with a key `sort` are buttons, which call `sort` with the key.
export function table(caption, columns, sort = null) {
  const body = el("tbody");
  const heading = (column) => (sort && column.sort ? el("button", { type: "button", text: column.name, onclick: () => sort(column.sort) }) : column.name);
  const head = el("tr", {}, columns.map((column) => el("th", { scope: "col", class: column.style?.includes("wide") ? "wide" : null }, heading(column))));
  const whole = el("table", {}, el("caption", { text: caption }), el("thead", {}, head), body);
  const show = (items, keyOf) => keep(body, items, keyOf,
    () => el("tr", {}, columns.map((column, index) =>
      el(index ? "td" : "th", { "data-label": column.name, class: column.style, ...(index ? {} : { scope: "row" }) }))),
    (row, item) => columns.forEach((column, index) => fill(row.children[index], column.cell(item))));
  const sorted = (key) => columns.forEach((column, index) => set(head.children[index], {
    "aria-sort": { [column.sort]: "ascending", [`-${column.sort}`]: "descending" }[column.sort ? key : ""] ?? null }));
  return { whole, show, sorted };
}

// Replace what is in a cell only if it reads differently, and never what has the focus.
function fill(cell, value) {
  const made = value instanceof Node ? value : document.createTextNode(value ?? "");
  const old = cell.firstChild;
  if (old && old.isEqualNode(made)) return;
  if (old && old.nodeName === "A" && made.nodeName === "A") {
    set(old, { href: made.getAttribute("href"), text: made.textContent });
  } else cell.replaceChildren(made);
}

export function jobLink(namespace, name) {
  return el("a", { href: `#/jobs/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`, text: `${namespace}/${name}` });
}

export function phase(name) {
  return el("span", { class: `phase ${name.toLowerCase()}`, text: name });
}
