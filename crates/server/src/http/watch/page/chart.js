// Lines over time, drawn by hand: a chart with axes and a place that can be pointed at, and one without any for a tile.

import { draw, make, say } from "./make.js";
import { clock, shown, tick } from "./units.js";

const HEIGHT = 190;
const EDGE = { left: 62, right: 10, top: 10, bottom: 24 };
// Points further apart than that are not joined, in seconds.
const GAP = 4;

// Where 1, 2 or 5 of a power of ten are, up to a value, and no more than a few.
function steps(most, few = 4) {
  const rough = most / few;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((step) => step >= rough * 0.999);
  return Array.from({ length: Math.ceil(most / step - 0.001) + 1 }, (_, i) => i * step);
}

function linear(values) {
  const most = Math.max(...values, 0) || 1;
  const ticks = steps(most);
  const top = ticks[ticks.length - 1];
  return { ticks, place: (value) => value / top };
}

function logarithmic(values) {
  const above = values.filter((value) => value > 0);
  if (above.length === 0) return logarithmic([1e-4, 1e-3]);
  const low = Math.floor(Math.log10(Math.min(...above)) + 1e-9);
  const high = Math.max(Math.ceil(Math.log10(Math.max(...above)) - 1e-9), low + 1);
  const decades = Array.from({ length: high - low + 1 }, (_, i) => 10 ** (low + i));
  const between = high - low < 2 ? [2 * 10 ** low, 5 * 10 ** low] : [];
  return {
    ticks: [...decades, ...between],
    place: (value) => Math.max((Math.log10(value) - low) / (high - low), 0),
  };
}

// The path of a line through [time, value], broken where there is no value; and the area below it.
function path(points, x, y, floor) {
  let [line, area, start, last] = ["", "", null, null];
  const end = () => { if (start !== null && floor !== undefined) area += `L${last},${floor}L${start},${floor}Z`; start = null; };
  let before = -Infinity;
  for (const [at, value] of points) {
    if (value === null || value === undefined) { end(); continue; }
    if (at - before > GAP) end();
    const [px, py] = [x(at).toFixed(1), y(value).toFixed(1)];
    const move = start === null ? "M" : "L";
    if (start === null) start = px;
    line += `${move}${px},${py}`;
    area += `${move}${px},${py}`;
    [last, before] = [px, at];
  }
  end();
  return [line, area];
}

export class Chart {
  // `series` are { name, of, kind of line }; `unit` is the kind of figure.
  constructor(root, { title, about, series, unit, log = false, filled = false }) {
    Object.assign(this, { series, unit, log, filled, points: [], span: 300, pointed: null });
    this.svg = draw("svg", { class: "chart", role: "img", tabindex: "0", height: HEIGHT });
    this.title = title;
    this.when = make("span", { class: "when quiet" });
    this.figures = series.map(() => make("strong", {}));
    const legend = series.map(({ name, line }, i) =>
      make("span", { class: "item" }, make("i", { class: `mark ${line}`, "aria-hidden": "true" }), `${name} `, this.figures[i]));
    root.append(
      make("h3", {}, title),
      make("p", { class: "quiet" }, about),
      make("p", { class: "legend" }, ...legend, this.when),
      this.svg,
    );
    this.svg.addEventListener("pointermove", (event) => this.point(this.at(event)));
    this.svg.addEventListener("pointerleave", () => this.point(null));
    this.svg.addEventListener("blur", () => this.point(null));
    this.svg.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  // At most so many seconds of them; whole minutes, where there are less.
  show(points, span) {
    this.points = points;
    const known = points.length ? this.end - points[0].at : 0;
    this.span = Math.min(span, Math.max(Math.ceil(known / 60), 1) * 60);
    this.draw();
  }

  get end() { return this.points.length ? this.points[this.points.length - 1].at : 0; }

  at(event) {
    const { left, width } = this.svg.getBoundingClientRect();
    const share = (event.clientX - left - EDGE.left) / (width - EDGE.left - EDGE.right);
    return this.end - this.span * (1 - share);
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    this.point(Math.min((this.pointed ?? this.end) + step * (event.shiftKey ? 10 : 1), this.end));
  }

  point(at) {
    this.pointed = at;
    this.draw();
  }

  draw() {
    const width = this.svg.clientWidth;
    if (!width) return;
    const [end, begin] = [this.end, this.end - this.span];
    const seen = this.points.filter((point) => point.at >= begin);
    const values = this.series.flatMap(({ of }) => seen.map(of)).filter((value) => value !== null && value !== undefined);
    const scale = this.log ? logarithmic(values) : linear(values);
    const [right, floor] = [width - EDGE.right, HEIGHT - EDGE.bottom];
    const x = (at) => EDGE.left + ((at - begin) / this.span) * (right - EDGE.left);
    const y = (value) => floor - scale.place(value) * (floor - EDGE.top);
    const parts = [...this.grid(scale, y, right, floor), ...this.times(x, floor, end, width)];
    for (const { of, line } of this.series) {
      const [stroke, area] = path(seen.map((point) => [point.at, of(point)]), x, y, floor);
      if (this.filled) parts.push(draw("path", { class: `area ${line}`, d: area }));
      parts.push(draw("path", { class: `line ${line}`, d: stroke }));
    }
    const pointed = this.pointed === null ? null : nearest(seen, this.pointed);
    if (pointed) parts.push(...this.cross(pointed, x, y, floor));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    this.svg.replaceChildren(...parts);
    this.tell(pointed ?? seen[seen.length - 1], pointed);
  }

  grid(scale, y, right, floor) {
    return scale.ticks.flatMap((value) => [
      draw("line", { class: y(value) >= floor - 0.5 ? "axis" : "grid", x1: EDGE.left, x2: right, y1: y(value), y2: y(value) }),
      draw("text", { class: "tick", x: EDGE.left - 8, y: y(value) + 4, "text-anchor": "end" }, tick(value, this.unit)),
    ]);
  }

  times(x, floor, end, width) {
    const few = width < 420;
    const step = [15, 30, 60, 120, 300].find((step) => this.span / step <= (few ? 3 : 6));
    return Array.from({ length: Math.floor(this.span / step) + 1 }, (_, i) => i * step).map((ago) => {
      const text = ago === 0 ? "now" : step < 60 ? `−${ago} s` : `−${ago / 60} min`;
      const anchor = ago === 0 ? "end" : ago === this.span ? "start" : "middle";
      return draw("text", { class: "tick", x: x(end - ago), y: floor + 17, "text-anchor": anchor }, text);
    });
  }

  cross(pointed, x, y, floor) {
    const at = x(pointed.at);
    const dots = this.series.filter(({ of }) => of(pointed) !== null && of(pointed) !== undefined);
    return [
      draw("line", { class: "cross", x1: at, x2: at, y1: EDGE.top, y2: floor }),
      ...dots.map(({ of, line }) => draw("circle", { class: `dot ${line}`, cx: at, cy: y(of(pointed)), r: 3.5 })),
    ];
  }

  tell(point, pointed) {
    const figures = this.series.map(({ of }) => shown(point ? of(point) : null, this.unit));
    figures.forEach((figure, i) => say(this.figures[i], figure));
    say(this.when, pointed ? `at ${clock(pointed.at)}` : "");
    const said = this.series.map(({ name }, i) => `${name} ${figures[i]}`).join(", ");
    this.svg.setAttribute("aria-label", `${this.title}: ${said}. Arrow keys go through the time.`);
  }
}

function nearest(points, at) {
  let best = null;
  for (const point of points) if (!best || Math.abs(point.at - at) < Math.abs(best.at - at)) best = point;
  return best;
}

// A line that fills what it is put into, for a tile.
export function spark(svg, values, line) {
  const [width, height] = [120, 28];
  const known = values.filter((value) => value !== null && value !== undefined);
  const most = Math.max(...known, 0) || 1;
  const x = (i) => (i / Math.max(values.length - 1, 1)) * width;
  const y = (value) => height - 2 - (value / most) * (height - 4);
  const [stroke, area] = path(values.map((value, i) => [i, value]), x, y, height);
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren(draw("path", { class: `area ${line}`, d: area }), draw("path", { class: `line ${line}`, d: stroke }));
}
