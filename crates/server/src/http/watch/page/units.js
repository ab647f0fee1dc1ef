// Figures and their units.

export const NOTHING = "–";
const SPACE = "\u202f";

const COUNT = [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"]];
const BYTES = [[1, "B"], [1e3, "kB"], [1e6, "MB"], [1e9, "GB"], [1e12, "TB"], [1e15, "PB"]];
const SECONDS = [[1e-9, "ns"], [1e-6, "µs"], [1e-3, "ms"], [1, "s"], [60, "min"], [3600, "h"], [86400, "d"]];

// Three digits, and the unit in which they are.
function scaled(value, steps) {
  let [size, unit] = steps[0];
  for (const [s, u] of steps) if (Math.abs(value) >= s * 0.9995) [size, unit] = [s, u];
  const figure = value / size;
  const exact = size === 1 && Number.isInteger(value);
  const digits = exact || figure >= 99.95 || figure === 0 ? 0 : figure >= 9.995 ? 1 : 2;
  return [figure.toFixed(digits), unit];
}

const KINDS = {
  count: (value) => scaled(value, COUNT),
  rate: (value) => { const [figure, unit] = scaled(value, COUNT); return [figure, `${unit}/s`]; },
  bytes: (value) => scaled(value, BYTES),
  bytesRate: (value) => { const [figure, unit] = scaled(value, BYTES); return [figure, `${unit}/s`]; },
  seconds: (value) => (value === 0 ? ["0", "s"] : scaled(value, SECONDS)),
  share: (value) => [value > 0 && value < 0.0005 ? "<0.1" : (value * 100).toFixed(value > 0 && value < 0.0995 ? 1 : 0), "%"],
  ratio: (value) => [value.toFixed(value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2), "×"],
};

// A figure and its unit, apart; what nothing can be said of has none.
export function parts(value, kind) {
  if (value === null || value === undefined || !Number.isFinite(value)) return [NOTHING, ""];
  return KINDS[kind](value);
}

// As short as a figure of a scale can be.
export function tick(value, kind) {
  const [figure, unit] = parts(value, kind);
  return `${figure.includes(".") ? figure.replace(/\.?0+$/, "") : figure}${SPACE}${unit}`.trimEnd();
}

export function shown(value, kind) {
  const [figure, unit] = parts(value, kind);
  return unit ? `${figure}${SPACE}${unit}` : figure;
}

export const whole = (value) => value.toLocaleString("en").replaceAll(",", SPACE);
export const plural = (count, one, many = `${one}s`) => `${whole(count)} ${count === 1 ? one : many}`;
export const clock = (at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false });

// For what is told by others: the end of a name says what its values are.
const ENDS = [
  ["_bytes_per_second", (value) => shown(value, "bytesRate")],
  ["_per_second", (value) => shown(value, "rate")],
  ["_bytes", (value) => shown(value, "bytes")],
  ["_seconds", (value) => shown(value, "seconds")],
  ["_at", clock],
];

const endOf = (name) => ENDS.find(([end]) => name.endsWith(end));

export function titleOf(name) {
  const end = endOf(name)?.[0] ?? "";
  return name.slice(0, name.length - end.length).replaceAll("_", " ");
}

export function valueOf(name, value) {
  if (value === null || value === undefined) return NOTHING;
  if (typeof value !== "number") return typeof value === "object" ? JSON.stringify(value) : String(value);
  const end = endOf(name);
  if (end) return end[1](value);
  return Number.isInteger(value) ? whole(value) : shown(value, "count");
}
