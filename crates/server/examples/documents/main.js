// The page: shows the document of this window, and sends what is typed.

import { Replica, rebase } from "./replica.js";

const at = (id) => document.getElementById(id);
const author = at("author");
author.value = `Guest ${Math.floor(Math.random() * 90) + 10}`;

const first = { title: "Notes", text: "", tasks: {} };
const replica = new Replica("shared", first, () => author.value, show, accept);
// What of each field was last seen of the document.
const seen = { title: "", text: "" };

function show() {
  const { state, version, live, updates } = replica;
  at("status").textContent = live ? "Live" : "Connecting";
  at("status").classList.toggle("live", live);
  at("version").textContent = state ? `Version ${version}` : "The document was deleted";
  if (!state) return;
  for (const field of ["title", "text"]) showField(at(field), field, String(state[field] ?? ""));
  showTasks(state.tasks ?? {});
  showHistory(updates);
  at("undo").disabled = replica.base <= replica.oldest;
  at("redo").disabled = replica.base >= replica.top || replica.base === version;
}

/** What was sent is part of the document: only what was typed behind that is new. */
function accept(patch) {
  for (const field of Object.keys(seen)) if (typeof patch[field] === "string") seen[field] = patch[field];
}

/** Shows a field, with what was typed here since and has not been sent. */
function showField(input, field, theirs) {
  const mine = input.value;
  const shown = mine === seen[field] ? theirs : rebase(seen[field], mine, theirs);
  seen[field] = theirs;
  if (shown === mine) return;
  const { selectionStart: start, selectionEnd: end } = input;
  input.value = shown;
  if (document.activeElement === input) {
    // The cursor stays where it was in the text, as far as text before it moved it.
    const moved = mine.slice(0, start) === shown.slice(0, start) ? 0 : shown.length - mine.length;
    input.setSelectionRange(start + moved, end + moved);
  }
}

function showTasks(tasks) {
  at("tasks").replaceChildren(...Object.entries(tasks).map(([id, { text, done }]) => {
    const [item, label, box] = ["li", "label", "input"].map((name) => document.createElement(name));
    box.type = "checkbox";
    box.checked = done;
    box.onchange = () => replica.patch(() => ({ tasks: { [id]: { done: box.checked } } }));
    label.append(box, ` ${text}`);
    item.classList.toggle("done", done);
    item.append(label);
    return item;
  }));
}

function showHistory(updates) {
  at("history").replaceChildren(...updates.slice(-40).toReversed().map(({ version, author, back_to, change }) => {
    const [item, code] = ["li", "code"].map((name) => document.createElement(name));
    item.value = version;
    code.textContent = back_to === null ? JSON.stringify(change.patch) : `back to version ${back_to}`;
    item.append(decodeURIComponent(author), code);
    return item;
  }));
}

let typed;
for (const field of ["title", "text"]) {
  at(field).oninput = () => {
    clearTimeout(typed);
    typed = setTimeout(send, 120);
  };
}

/** Sends the fields that differ from the document. */
function send() {
  const fields = ["title", "text"];
  return replica.patch(() => {
    const changed = fields.filter((field) => at(field).value !== seen[field]);
    return changed.length > 0 && Object.fromEntries(changed.map((field) => [field, at(field).value]));
  });
}

at("add").onsubmit = (event) => {
  event.preventDefault();
  const text = at("task").value.trim();
  at("task").value = "";
  if (text) replica.patch(() => ({ tasks: { [`${Date.now()}-${Math.random().toString(36).slice(2, 6)}`]: { text, done: false } } }));
};
at("undo").onclick = () => replica.step(-1);
at("redo").onclick = () => replica.step(1);

await replica.open();
