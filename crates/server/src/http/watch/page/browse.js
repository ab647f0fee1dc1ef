// Logs by prefix, and the entries of one. What is shown is in the address, so that it can be kept and passed on.

import { byId, keyOf, logLink, make, say, table, visible } from "./make.js";
import { plural, shown, whole, NOTHING } from "./units.js";

const LOGS = 50;
const ENTRIES = 25;

// Asks the server; what it answers with an error is one.
export async function ask(address, signal = AbortSignal.timeout(10_000)) {
  const response = await fetch(address, { signal });
  const answer = await response.json().catch(() => null);
  if (!response.ok || !answer) throw new Error(answer?.error ?? `the server answered with ${response.status}`);
  return answer;
}

// Only the last of several questions is answered.
class Last {
  #number = 0;
  async of(question, then, failed) {
    const number = ++this.#number;
    try {
      const answer = await question;
      if (number === this.#number) then(answer);
    } catch (error) {
      if (number === this.#number) failed(error);
    }
  }
}

const button = (text, act, usable = true) => {
  const made = make("button", { type: "button", disabled: usable ? null : "" }, text);
  made.addEventListener("click", act);
  return made;
};

// What is shown, and the ways on; the keyboard stays on the one that it is on.
function page(element, said, ...buttons) {
  const on = element.contains(document.activeElement) ? document.activeElement.textContent : null;
  element.replaceChildren(make("span", { class: "quiet", role: "status" }, said), ...buttons);
  if (on !== null) (buttons.find((one) => one.textContent === on && !one.disabled) ?? buttons.find((one) => !one.disabled))?.focus();
}

function refuse(element, error) {
  element.replaceChildren(make("p", { class: "notice", role: "alert" }, `This cannot be shown: ${error.message}`));
}

export class Logs {
  constructor() {
    [this.last, this.prefix, this.pages] = [new Last(), null, [null]];
    const search = byId("prefix");
    let timer;
    const go = () => { location.hash = search.value ? `#logs?prefix=${encodeURIComponent(search.value)}` : "#logs"; };
    search.addEventListener("input", () => { clearTimeout(timer); timer = setTimeout(go, 200); });
    byId("search").addEventListener("submit", (event) => { event.preventDefault(); clearTimeout(timer); go(); });
  }

  // `prefix` as it stands in an address: keys are bytes.
  open(prefix) {
    const box = byId("prefix");
    if (document.activeElement !== box) {
      try { box.value = decodeURIComponent(prefix); } catch { box.value = prefix; }
    }
    [this.prefix, this.pages] = [prefix, [null]];
    this.load();
  }

  load() {
    const after = this.pages[this.pages.length - 1];
    const question = `api/logs?prefix=${this.prefix}&limit=${LOGS}${after === null ? "" : `&after=${after}`}`;
    this.last.of(ask(question), (page) => this.show(page), (error) => refuse(byId("logs-pager"), error));
  }

  show({ logs, after, damage }) {
    const keeps = (log) => [
      log.keeps_entries === null ? null : plural(log.keeps_entries, "entry", "entries"),
      log.keeps_bytes === null ? null : shown(log.keeps_bytes, "bytes"),
      log.keeps_seconds === null ? null : shown(log.keeps_seconds, "seconds"),
    ].filter(Boolean).join(", ") || "all";
    const rows = logs.map((log) => [logLink(log), whole(log.next - log.first), whole(log.first), log.next > log.first ? whole(log.next - 1) : NOTHING, keeps(log)]);
    table(byId("logs-table"), "Logs", [["Log", "name"], ["entries", "number"], ["first", "number more-room"], ["last", "number more-room"], ["keeps", "more-room"]], rows);
    const before = (this.pages.length - 1) * LOGS;
    const said = logs.length ? `Logs ${whole(before + 1)} to ${whole(before + logs.length)}, by key` : "No log has such a key";
    page(byId("logs-pager"), said,
      button("Previous", () => { this.pages.pop(); this.load(); }, this.pages.length > 1),
      button("Next", () => { this.pages.push(after); this.load(); }, after !== null),
    );
    if (damage !== null) byId("logs-pager").append(make("p", { class: "notice", role: "alert" }, `Some logs may be missing here: ${damage}`));
  }
}

export class Log {
  constructor() {
    [this.last, this.key, this.pages] = [new Last(), null, [""]];
    const again = () => { this.pages = [byId("log-from").value.trim()]; this.load(); };
    byId("log-form").addEventListener("submit", (event) => { event.preventDefault(); again(); });
    byId("log-form").addEventListener("change", (event) => {
      if (event.target.name !== "order") return;
      byId("log-from").value = "";
      again();
    });
  }

  open(key) {
    [this.key, this.pages] = [key, [""]];
    byId("log-form").reset();
    byId("log-key").textContent = "…";
    byId("entries").replaceChildren();
    this.load();
  }

  load() {
    const order = new FormData(byId("log-form")).get("order");
    const question = `api/log?key=${this.key}&order=${order}&limit=${ENTRIES}&from=${this.pages[this.pages.length - 1]}`;
    const failed = (error) => {
      try { say(byId("log-key"), visible(decodeURIComponent(this.key))); } catch { say(byId("log-key"), this.key); }
      say(byId("log-say"), "");
      byId("entries").replaceChildren();
      refuse(byId("log-pager"), error);
    };
    this.last.of(ask(question), (page) => this.show(page, order), failed);
  }

  show({ key, first, next, entries, from }, order) {
    byId("log-key").replaceChildren(keyOf(key));
    const bounds = next > first ? `${plural(next - first, "entry", "entries")}, ${whole(first)} to ${whole(next - 1)}` : `No entries; the next is ${whole(next)}`;
    say(byId("log-say"), bounds);
    byId("entries").replaceChildren(...entries.map(entryOf));
    const said = entries.length ? `Entries ${whole(entries[0].seq)} to ${whole(entries[entries.length - 1].seq)}` : "Nothing here";
    const [newer, older] = order === "newest" ? ["Older", "Newer"] : ["Newer", "Older"];
    page(byId("log-pager"), said,
      button(older, () => { this.pages.pop(); this.load(); }, this.pages.length > 1),
      button(newer, () => { this.pages.push(from); this.load(); }, from !== null),
    );
  }
}

function entryOf({ seq, bytes, text, binary, cut }) {
  const value = binary || cut ? undefined : parsed(text);
  const kind = binary ? "binary" : value !== undefined ? "JSON" : "text";
  const shownAs = binary ? dump(text) : value !== undefined ? pretty(value) : [text];
  const size = cut ? `the beginning of ${shown(bytes, "bytes")}` : shown(bytes, "bytes");
  return make("li", { class: "entry" },
    make("p", { class: "entry-head" }, make("b", {}, whole(seq)), make("span", { class: "quiet" }, `${kind}, ${size}`)),
    bytes === 0 ? make("p", { class: "quiet" }, "empty") : make("pre", { tabindex: "0", class: kind, "aria-label": `Entry ${seq}` }, ...shownAs));
}

// Objects and arrays alone: a number by itself is as good as it stands.
function parsed(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try { return JSON.parse(text, exact); } catch { return undefined; }
}

// Numbers that JavaScript would round stay as they were written.
class Digits { constructor(source) { this.source = source; } }
function exact(_, value, context) {
  const source = context?.source;
  return typeof value === "number" && source !== undefined && String(value) !== source ? new Digits(source) : value;
}

const token = (kind, text) => make("span", { class: `j-${kind}` }, text);

function pretty(value, indent = "") {
  if (value instanceof Digits) return [token("number", value.source)];
  if (value === null || typeof value !== "object") return [token(value === null ? "null" : typeof value, JSON.stringify(value))];
  const isArray = Array.isArray(value);
  const [open, close] = isArray ? "[]" : "{}";
  const items = Object.entries(value);
  if (items.length === 0) return [open + close];
  const inner = `${indent}  `;
  const lines = items.flatMap(([name, item], i) => [
    `${i ? "," : ""}\n${inner}`, ...(isArray ? [] : [token("name", JSON.stringify(name)), ": "]), ...pretty(item, inner),
  ]);
  return [open, ...lines, `\n${indent}${close}`];
}

// Sixteen bytes a line: where they are, what they are, and how they would read.
function dump(hex) {
  const bytes = hex.match(/../g) ?? [];
  const lines = [];
  for (let at = 0; at < bytes.length; at += 16) {
    const row = bytes.slice(at, at + 16);
    const text = row.map((byte) => { const code = parseInt(byte, 16); return code >= 32 && code < 127 ? String.fromCharCode(code) : "·"; }).join("");
    const halves = `${row.slice(0, 8).join(" ").padEnd(23)}  ${row.slice(8).join(" ").padEnd(23)}`;
    lines.push(token("null", `${at.toString(16).padStart(6, "0")}  `), `${halves}  `, token("string", text), "\n");
  }
  return lines;
}
