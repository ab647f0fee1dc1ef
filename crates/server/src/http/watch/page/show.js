// The store at work: tiles, charts, tables.

import { Chart, spark } from "./chart.js";
import { bar, byId, draw, logLink, make, say, table } from "./make.js";
import { parts, plural, shown, titleOf, valueOf, whole } from "./units.js";

// Points of a tile's line, and of what is told as of now.
const SPARK = 60;
const LATELY = 10;

const TILES = [
  ["Commits", "rate", (p) => p.commits_per_second, "a"],
  ["Reads", "rate", (p) => p.reads_per_second, "b"],
  ["Durable, half within", "seconds", (p) => p.durable.p50, "a"],
  ["Durable, 99 % within", "seconds", (p) => p.durable.p99, "c"],
  ["Records a block", "count", (p) => p.records_per_block, "a"],
  ["Written per byte", "ratio", (p) => p.written_per_byte, "b"],
  ["Time spent waiting", "share", (p) => p.stalled, "c"],
];

const STAGES = {
  append: "found, checked, numbered and copied into a block",
  wait: "until the block is taken to be written",
  seal: "compressed, and given its place",
  write: "the device makes it durable",
  ack: "until all before it are durable too",
};

const STALLS = {
  backlog: "full blocks wait for the device, or for compression",
  ring: "the ring is full until a checkpoint ends",
  memory: "memory is taken until a checkpoint ends",
  checkpoint: "a checkpoint has not got on far enough",
  heap: "no room in the heap until merging frees some",
  "heap-slope": "little room in the heap: slowed down a little",
  import: "an import is about to be part of the store",
  moving: "its space is being moved to another class",
};

const CHARTS = {
  "chart-durable": {
    title: "Time until a commit is durable", about: "The first commit of each block", unit: "seconds", log: true,
    series: [{ name: "half within", of: (p) => p.durable.p50, line: "a" }, { name: "99 % within", of: (p) => p.durable.p99, line: "c" }],
  },
  "chart-rates": {
    title: "Commits and reads", about: "Refused commits and reads of logs that are not there count, too", unit: "rate", filled: true,
    series: [{ name: "commits", of: (p) => p.commits_per_second, line: "a" }, { name: "reads", of: (p) => p.reads_per_second, line: "b" }],
  },
  "chart-batch": {
    title: "Records a block", about: "How many commits share one durable write", unit: "count", filled: true,
    series: [{ name: "records", of: (p) => p.records_per_block, line: "a" }],
  },
  "chart-written": {
    title: "Bytes written", about: "To ring and heap: commits, checkpoints and merging", unit: "bytesRate", filled: true,
    series: [{ name: "written", of: (p) => p.written_bytes_per_second, line: "b" }],
  },
};

// The mean of what is known.
function mean(values) {
  const known = values.filter((value) => value !== null && value !== undefined);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

export class Live {
  constructor() {
    this.tiles = TILES.map(([name]) => {
      const [figure, unit, line] = [make("span", { class: "figure" }), make("span", { class: "unit" }), draw("svg", { class: "spark", "aria-hidden": "true" })];
      byId("tiles").append(make("div", { class: "tile" }, make("h3", {}, name), make("p", {}, figure, " ", unit), line));
      return { figure, unit, line };
    });
    this.charts = Object.entries(CHARTS).map(([id, chart]) => new Chart(byId(id), chart));
    this.extras = new Map();
  }

  show({ points, stages, now, made_of, hot_logs, extras }, span) {
    this.showTiles(points);
    this.charts.forEach((chart) => chart.show(points, span));
    if (now) {
      showStages(points, stages);
      showStalls(points, now, span);
      showFills(now);
      showRuns(now, made_of);
      showSpaces(now.spaces);
    }
    showHotLogs(hot_logs);
    this.showExtras(extras);
  }

  showTiles(points) {
    const last = points[points.length - 1];
    TILES.forEach(([, kind, of, line], i) => {
      const [figure, unit] = parts(last ? of(last) : null, kind);
      say(this.tiles[i].figure, figure);
      say(this.tiles[i].unit, unit);
      spark(this.tiles[i].line, points.slice(-SPARK).map(of), line);
    });
  }

  // Extras of the frontends: an array of objects is a table, an object a list of figures.
  showExtras(extras) {
    for (const { name, value } of extras) {
      if (!this.extras.has(name)) {
        const [line, element] = [make("p", { class: "quiet" }), make("table")];
        const title = name.charAt(0).toUpperCase() + titleOf(name.slice(1));
        byId("users").append(make("section", { class: "card", id: `extra-${name}` }, make("h3", {}, title), line, make("div", { class: "scroll" }, element)));
        this.extras.set(name, { line, element });
      }
      const { line, element } = this.extras.get(name);
      if (Array.isArray(value)) {
        const names = [...new Set(value.flatMap(Object.keys))];
        const number = (name) => value.some((row) => typeof row[name] === "number");
        say(line, value.length ? `${whole(value.length)} now` : "None now");
        table(element, name, names.map((name) => [titleOf(name), number(name) ? "number" : ""]),
          value.map((row) => names.map((name) => valueOf(name, row[name]))));
      } else {
        table(element, name, [["", ""], ["", "number"]], Object.entries(value ?? {}).map(([name, value]) => [titleOf(name), valueOf(name, value)]));
      }
    }
  }
}

function showStages(points, stages) {
  const late = points.slice(-LATELY);
  const means = stages.map((_, i) => mean(late.map((point) => point.stages[i].mean)));
  const sum = means.reduce((sum, value) => sum + (value ?? 0), 0);
  const segments = means.map((value, i) => {
    const segment = make("span", { class: `stage s${i}` });
    segment.style.flexGrow = sum ? (value ?? 0) / sum : 0;
    return segment;
  });
  byId("stage-bar").replaceChildren(...segments);
  const said = stages.map((stage, i) => `${stage} ${shown(means[i], "seconds")}`).join(", ");
  byId("stage-bar").setAttribute("aria-label", said);
  const rows = stages.map((stage, i) => {
    const quantile = (of) => shown(mean(late.map((point) => of(point.stages[i]))), "seconds");
    const name = make("span", {}, make("i", { class: `mark s${i}`, "aria-hidden": "true" }), make("b", {}, stage), make("span", { class: "quiet more" }, STAGES[stage]));
    return [name, shown(means[i], "seconds"), quantile((times) => times.p50), quantile((times) => times.p99)];
  });
  table(byId("stages"), "Stages of a write", [["Stage", ""], ["mean", "number"], ["half within", "number"], ["99 % within", "number"]], rows);
}

function showStalls(points, now, span) {
  const seen = points.slice(-span);
  const seconds = seen.reduce((sum, point) => sum + point.seconds, 0) || 1;
  const waited = (reason) => {
    const all = seen.flatMap((point) => point.stalls.filter((stall) => stall.reason === reason).map((stall) => [stall.share * point.seconds, stall.per_second * point.seconds]));
    return all.reduce(([a, b], [c, d]) => [a + c, b + d], [0, 0]);
  };
  const rows = now.stalls.filter((stall) => stall.count > 0).map((stall) => {
    const [time, count] = waited(stall.reason);
    const name = make("span", {}, make("b", {}, stall.reason), make("span", { class: "quiet more" }, STALLS[stall.reason] ?? ""));
    return [name, whole(stall.now), shown(count / seconds, "rate"), shown(time / seconds, "share"), shown(stall.seconds, "seconds")];
  });
  const stalled = seen.reduce((sum, point) => sum + point.stalled * point.seconds, 0);
  const waiting = now.ring.waiting ? `${plural(now.ring.waiting, "writer")} wait right now. ` : "";
  const late = stalled > 0
    ? `In the time shown, waits for room add up to ${shown(stalled / seconds, "share")} of one writer’s time.`
    : "In the time shown no commit had to wait for room.";
  say(byId("stalls-say"), waiting + late);
  const heads = [["Waiting for", ""], ["now", "number"], ["commits", "number"], ["of the time", "number"], ["in all", "number"]];
  if (rows.length) table(byId("stalls"), "Why commits waited", heads, rows);
  else byId("stalls").replaceChildren();
}

function showFills(now) {
  const { ring, memory, cache, heap, maintenance } = now;
  const used = heap.bytes - heap.free_bytes;
  const fill = (name, used, whole, more = "") => [name, used / (whole || 1), `${shown(used, "bytes")} of ${shown(whole, "bytes")}${more}`];
  const fragmented = heap.free_bytes > 0 ? `, largest hole ${shown(heap.largest_free_bytes, "bytes")}` : "";
  const rows = [
    fill("Ring", ring.used_bytes, ring.size_bytes, `, ${ring.in_flight} of ${ring.depth} writes in flight, ${ring.queued} queued`),
    fill("Memory", memory.used_bytes, memory.budget_bytes, `, ${plural(memory.logs, "log")}`),
    fill("Cache", cache.used_bytes, cache.budget_bytes),
    fill("Heap", used, heap.bytes, fragmented),
  ];
  if (heap.free_bytes > 0) {
    const apart = 1 - heap.largest_free_bytes / heap.free_bytes;
    rows.push(["Fragmentation", apart, `${shown(apart, "share")} of ${shown(heap.free_bytes, "bytes")} free lies apart from the largest hole`]);
  }
  const state = (share) => (share > 0.9 ? "full" : share > 0.75 ? "high" : "");
  byId("fills").replaceChildren(...rows.flatMap(([name, share, text]) => [
    make("dt", {}, name, make("b", {}, shown(share, "share"))),
    make("dd", {}, bar(share, 0, ["Heap", "Cache", "Fragmentation"].includes(name) ? "" : state(share)), make("span", { class: "quiet" }, text)),
  ]));
  const at = maintenance.checkpoint_per_mille;
  const work = [at !== null ? `a checkpoint is ${shown(at / 1000, "share")} done` : null, maintenance.compacting ? "runs are being merged" : null].filter(Boolean);
  const done = `${plural(maintenance.checkpoints, "checkpoint")} and ${plural(maintenance.compactions, "compaction")} so far`;
  say(byId("maintenance"), work.length ? `Right now ${work.join(", and ")}; ${done}` : `At rest; ${done}`);
}

function showRuns(now, made) {
  // What is listed is a second old, and so is what is said of it; past the most that are listed, only sums are known.
  const isAll = made && made.count === made.runs.length;
  const sum = (of) => made.runs.reduce((sum, run) => sum + run[of], 0);
  const { count, bytes, entries, dead } = isAll
    ? { count: made.count, bytes: sum("bytes"), entries: sum("entries"), dead: sum("dead") } : now.runs;
  const part = entries ? `, ${shown(dead / entries, "share")} of them dead` : "";
  say(byId("runs-say"), count ? `${plural(count, "run")} of ${shown(bytes, "bytes")} with ${shown(entries, "count")} entries${part}` : "None yet: what was committed is in the ring and in memory");
  const runs = made?.runs ?? [];
  const most = Math.max(...runs.map((run) => run.bytes), 1);
  const rows = runs.map((run) => {
    const gone = run.entries ? run.dead / run.entries : 0;
    const notes = [run.merging ? "merging" : null, run.elsewhere ? "offloaded" : null].filter(Boolean).join(", ");
    const name = make("span", {}, `${run.id} `, make("span", { class: "quiet more" }, notes || `level ${run.level}`));
    return [name, bar(run.bytes / most, gone, run.merging ? "merging" : ""), shown(run.bytes, "bytes"), shown(run.logs, "count"), shown(run.entries, "count"), shown(gone, "share")];
  });
  const heads = [["Run", ""], ["", "wide"], ["size", "number"], ["logs", "number"], ["entries", "number"], ["dead", "number"]];
  if (rows.length) table(byId("runs"), "Runs, newest first; what is crossed out is dead", heads, rows);
  else byId("runs").replaceChildren();
}

function showHotLogs(logs) {
  say(byId("hot-logs-say"), logs.length ? "By entries appended of late; a link shows the log" : "Nothing was appended of late by way of this server");
  const most = Math.max(...logs.map((log) => log.entries_per_second), 1e-9);
  const rows = logs.map((log) => [logLink(log), bar(log.entries_per_second / most), shown(log.entries_per_second, "rate"), shown(log.bytes_per_second, "bytesRate")]);
  if (rows.length) table(byId("hot-logs"), "Busiest logs", [["Log", "name"], ["", "wide"], ["entries", "number"], ["payload", "number"]], rows);
  else byId("hot-logs").replaceChildren();
}

function showSpaces(spaces) {
  byId("spaces-card").hidden = spaces.length === 0;
  const rows = spaces.map((space) => [
    make("a", { href: `#logs?prefix=${encodeURIComponent(`${space.name}/`)}` }, space.name),
    shown(space.logs, "count"), shown(space.bytes ?? space.memory_bytes, "bytes"), shown(space.appended, "count"), shown(space.reads, "count"), shown(space.refused, "count"),
  ]);
  const heads = ["logs", "bytes", "appended", "reads", "refused"].map((name) => [name, "number"]);
  table(byId("spaces"), "Spaces", [["Space", "name"], ...heads], rows);
}
