// Asks the server once a second while somebody looks, and shows what it says; and which view that is.

import { ask, Log, Logs } from "./browse.js";
import { byId, say } from "./make.js";
import { Live } from "./show.js";
import { shown } from "./units.js";

const EVERY = 1000;
// Between tries while the server does not answer.
const LONGEST = 8000;
// Points that are kept, as many as the server keeps.
const KEPT = 600;

const live = new Live();
const views = { live: null, logs: new Logs(), log: new Log() };
const state = { points: [], uptime: 0, failures: 0, last: null, view: "live" };

const span = () => Number(byId("span").querySelector("input:checked").value);

function status(kind, text) {
  byId("status").dataset.state = kind;
  say(byId("status"), text);
}

function notice(text) {
  byId("notice").hidden = !text;
  say(byId("notice"), text);
}

// Another server, or this one started anew, counts from the beginning.
async function look() {
  const newest = state.points[state.points.length - 1]?.n;
  const answer = await ask(`api/live${newest === undefined ? "" : `?since=${newest}`}`, AbortSignal.timeout(5000));
  if (answer.uptime_seconds < state.uptime) {
    [state.points, state.uptime] = [[], 0];
    return look();
  }
  state.uptime = answer.uptime_seconds;
  state.points = [...state.points, ...answer.points].slice(-KEPT);
  return { ...answer, points: state.points };
}

function show(answer) {
  state.last = answer;
  document.body.classList.remove("stale");
  const { unready, version, uptime_seconds, made_of } = answer;
  status(unready ? "bad" : "good", unready ? "Not ready" : "Ready");
  notice(unready ? `The server is not ready: ${unready}.` : "");
  const store = made_of?.store ?? "";
  say(byId("store"), store.split("/").pop());
  byId("store").title = store;
  say(byId("about"), `brooklet-server ${version}, up for ${shown(uptime_seconds, "seconds")}`);
  if (state.view === "live") live.show(answer, span());
}

async function tick() {
  let wait = EVERY;
  if (!document.hidden) {
    try {
      show(await look());
      state.failures = 0;
    } catch {
      wait = Math.min(EVERY * 2 ** state.failures, LONGEST);
      state.failures += 1;
      document.body.classList.add("stale");
      status("bad", "No answer");
      notice(`The server does not answer. What is shown is how it was; trying again every ${shown(wait / 1000, "seconds")} or so.`);
    }
  }
  setTimeout(tick, wait);
}

// The value of a name in the address, as it stands there.
function asked(query, name) {
  const part = query.split("&").find((part) => part.startsWith(`${name}=`));
  return part ? part.slice(name.length + 1) : "";
}

function route() {
  const [name, query = ""] = location.hash.slice(1).split("?");
  if (name !== state.view) window.scrollTo(0, 0);
  state.view = name in views ? name : "live";
  for (const view of Object.keys(views)) byId(`view-${view}`).hidden = view !== state.view;
  for (const view of ["live", "logs"]) {
    const is = state.view === view || (view === "logs" && state.view === "log");
    if (is) byId(`to-${view}`).setAttribute("aria-current", "page");
    else byId(`to-${view}`).removeAttribute("aria-current");
  }
  if (state.view === "logs") {
    views.logs.open(asked(query, "prefix"));
    byId("log-back").setAttribute("href", location.hash);
  }
  if (state.view === "log") views.log.open(asked(query, "key"));
  if (state.view === "live" && state.last) live.show(state.last, span());
}

byId("span").addEventListener("change", () => state.last && live.show(state.last, span()));
document.querySelector(".skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
document.addEventListener("visibilitychange", () => { state.failures = 0; });
window.addEventListener("hashchange", route);
route();
tick();
