// A document in this window, and its versions at the server: changes here go there one after another, and changes of others
// come by events. `accepted` is called with each patch of this window that is part of the document, and `changed` after each change.

const media = "application/merge-patch+json";

/** The value after a merge patch (RFC 7396). */
export function merge(value, patch) {
  if (patch === null || typeof patch !== "object" || Array.isArray(patch)) return patch;
  const merged = value !== null && typeof value === "object" && !Array.isArray(value) ? { ...value } : {};
  for (const [name, part] of Object.entries(patch)) {
    if (part === null) delete merged[name];
    else merged[name] = merge(merged[name], part);
  }
  return merged;
}

/** The value after the operations of a patch (RFC 6902), which the server has taken. */
function apply(value, operations) {
  const root = { "": structuredClone(value) };
  const place = (path) => {
    const names = path.split("/").map((name) => name.replaceAll("~1", "/").replaceAll("~0", "~"));
    const last = names.pop();
    return [names.reduce((at, name) => at[name], path === "" ? root : { "": root[""] }), last];
  };
  const at = (path) => {
    const [parent, last] = place(path);
    return parent[last];
  };
  const set = (path, part) => {
    const [parent, last] = place(path);
    parent[last] = part;
  };
  const remove = (path) => {
    const [parent, last] = place(path);
    if (Array.isArray(parent)) parent.splice(Number(last), 1);
    else delete parent[last];
  };
  const add = (path, part) => {
    const [parent, last] = place(path);
    if (Array.isArray(parent)) parent.splice(last === "-" ? parent.length : Number(last), 0, part);
    else parent[last] = part;
  };
  for (const { op, path, from, value: part } of operations) {
    if (op === "remove") remove(path);
    else if (op === "replace") set(path, part);
    else if (op === "add") add(path, part);
    else if (op === "copy") add(path, structuredClone(at(from)));
    else if (op === "move" && from !== path) {
      const moved = at(from);
      remove(from);
      add(path, moved);
    }
  }
  return root[""];
}

/** A text with the edit from `base` to `mine` in it, if the edit from `base` to `theirs` is elsewhere; else `mine`. */
export function rebase(base, mine, theirs) {
  const edit = (to) => {
    let start = 0;
    while (start < Math.min(base.length, to.length) && base[start] === to[start]) start += 1;
    let end = 0;
    while (end < Math.min(base.length, to.length) - start && base.at(-1 - end) === to.at(-1 - end)) end += 1;
    return { start, end: base.length - end, text: to.slice(start, to.length - end) };
  };
  const [own, other] = [edit(mine), edit(theirs)];
  if (own.end <= other.start) return theirs.slice(0, own.start) + own.text + theirs.slice(own.end);
  const shift = theirs.length - base.length;
  if (own.start >= other.end) return theirs.slice(0, own.start + shift) + own.text + theirs.slice(own.end + shift);
  return mine;
}

export class Replica {
  #path;
  #sending = Promise.resolve();

  /** The id of the request on its way. */
  #own = null;

  constructor(name, first, author, changed, accepted) {
    this.#path = `/v1/documents/${encodeURIComponent(name)}`;
    Object.assign(this, { first, author, changed, accepted, version: 0, state: null, updates: [], live: false });
  }

  /** Gets the document, creates it if it is the first time, and follows it. */
  async open() {
    const headers = { "If-None-Match": "*", "Content-Type": "application/json" };
    await fetch(this.#path, { method: "PUT", headers, body: JSON.stringify(this.first) });
    const { updates } = await (await fetch(`${this.#path}?history`)).json();
    this.updates = updates;
    await this.#get();
    const events = new EventSource(`${this.#path}?since=${this.version}`);
    events.onopen = () => this.#show(() => { this.live = true; });
    events.onerror = () => this.#show(() => { this.live = false; });
    events.addEventListener("update", (event) => this.#show(() => this.#take(JSON.parse(event.data))));
    for (const other of ["created", "missed"]) events.addEventListener(other, () => this.#get());
    events.addEventListener("deleted", () => this.#show(() => Object.assign(this, { state: null, updates: [] })));
  }

  #show(change) {
    change();
    this.changed();
  }

  async #get() {
    const got = await fetch(this.#path);
    const state = await got.json();
    this.#show(() => Object.assign(this, { state, version: JSON.parse(got.headers.get("ETag")) * 1 }));
  }

  /** Takes an update, if it is the next one. */
  #take(update) {
    if (update.version !== this.version + 1) return;
    const { type, patch } = update.change;
    if (update.request === this.#own) this.accepted(patch);
    this.state = type === media ? merge(this.state, patch) : apply(this.state, patch);
    this.version = update.version;
    this.updates.push(update);
  }

  /** Sends what `make` returns of the document as it is known, until no change of others is first. */
  async #send(make) {
    // The same key for each try: the change happens once.
    this.#own = crypto.randomUUID();
    const own = { "Idempotency-Key": this.#own, "Document-Author": encodeURIComponent(this.author()) };
    for (;;) {
      const request = make();
      if (!request) return;
      const { method, query, headers, body } = request;
      const reply = await fetch(this.#path + query, { method, headers: { ...own, ...headers, "If-Match": `"${this.version}"` }, body });
      if (!reply.ok && reply.status !== 412) throw new Error((await reply.json()).detail);
      await this.#catchUp();
      if (reply.ok) return;
    }
  }

  /** Takes the updates that others made meanwhile. */
  async #catchUp() {
    const { updates } = await (await fetch(`${this.#path}?since=${this.version}`)).json();
    this.#show(() => updates.forEach((update) => this.#take(update)));
  }

  /** Sends a change, after all that was sent before. */
  #queue(make) {
    this.#sending = this.#sending.then(() => this.#send(make)).catch((error) => console.error(error));
    return this.#sending;
  }

  patch(make) {
    return this.#queue(() => {
      const patch = make(this.state);
      return patch && { method: "PATCH", query: "", headers: { "Content-Type": media }, body: JSON.stringify(patch) };
    });
  }

  /** The version whose state this is: an undo leads back to an earlier one. */
  get base() {
    return this.updates.at(-1)?.back_to ?? this.version;
  }

  /** The oldest version that the history leads back to. */
  get oldest() {
    return (this.updates[0]?.version ?? this.version + 1) - 1;
  }

  /** The last version that is no undo: a redo leads up to it. */
  get top() {
    return this.updates.findLast((update) => update.back_to === null)?.version ?? this.version;
  }

  /** Goes back by one version, or forward by one after that. */
  step(by) {
    return this.#queue(() => ({ method: "POST", query: `?rewind=${this.base + by}` }));
  }
}
