// Making and filling elements. Text is only ever put as text: keys and payloads are others' bytes.

const SVG = "http://www.w3.org/2000/svg";

export const byId = (id) => document.getElementById(id);

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value !== undefined && value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

export const make = (tag, properties, ...children) =>
  filled(document.createElement(tag), properties, children);

export const draw = (tag, properties, ...children) =>
  filled(document.createElementNS(SVG, tag), properties, children);

// Leaves what is as it was alone, so that a selection and a screen reader's place stay.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

// A part of a bar, and a part of that part which is crossed out.
export function bar(share, crossed = 0, kind = "") {
  const whole = make("span", { class: `bar ${kind}`, "aria-hidden": "true" });
  const part = make("span", { class: "part" });
  part.style.width = `${Math.min(Math.max(share, 0), 1) * 100}%`;
  if (crossed > 0) {
    const gone = make("span", { class: "crossed" });
    gone.style.width = `${Math.min(crossed, 1) * 100}%`;
    part.append(gone);
  }
  whole.append(part);
  return whole;
}

// A table: heads are [text, class], and each row has a cell for each of them.
export function table(element, caption, heads, rows) {
  const head = heads.map(([text, kind]) => make("th", { scope: "col", class: kind }, text));
  const body = rows.map((cells) => make("tr", {}, ...cells.map((cell, i) => make("td", { class: heads[i][1] }, cell))));
  // What somebody has the keyboard on stays where it is.
  if (element.closest("#view-live") && element.contains(document.activeElement)) return;
  element.replaceChildren(
    make("caption", { class: "unseen" }, caption),
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...body),
  );
}

// Bytes of two digits each, as text with the others in between.
const escaped = (hex) =>
  hex.replace(/../g, (digits) => {
    const code = parseInt(digits, 16);
    return code >= 32 && code < 127 ? String.fromCharCode(code) : `\\x${digits}`;
  });

// Keys as people can read them: what has no shape gets one.
export const visible = (text) =>
  text.replace(/[\u0000-\u001f]/g, (c) => String.fromCharCode(0x2400 + c.charCodeAt(0))).replace(/\u007f/g, "\u2421");

export const keyOf = ({ text, binary }) =>
  make("span", { class: binary ? "key binary" : "key" }, binary ? escaped(text) : visible(text));

// A link to a log's entries.
export const logLink = (row) => make("a", { href: `#log?key=${row.url}` }, keyOf(row.key));
