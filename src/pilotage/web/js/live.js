// News of the hub, gathered and handed out once a frame, so that a flood does not freeze the page.

import { setNow } from "./say.js";

/** Changed jobs that are kept for the next frame; beyond that, views read anew. */
const MOST = 2000;

const ears = new Map();
let jobs = new Map();
let flows = new Map();
let pilots = new Map();
let overview = null;
let alarms = null;
let flooded = false;
let asked = false;

/** The last overview, if there was one. */
export let latest = null;

/** Hear of a kind of news until the signal: overview, jobs, flows, pilots, alarms, or anew (read all). */
export function on(kind, hear, signal) {
  if (!ears.has(kind)) ears.set(kind, new Set());
  ears.get(kind).add(hear);
  signal?.addEventListener("abort", () => ears.get(kind).delete(hear));
}

/** Take a message of the stream. */
export function take(event, data) {
  if (event === "overview") {
    overview = data;
    latest = data;
    setNow(data.now);
  } else if (event === "jobs") {
    gather(jobs, data.jobs);
    flooded ||= Boolean(data.more);
  } else if (event === "flows") {
    gather(flows, data.flows);
    flooded ||= Boolean(data.more);
  } else if (event === "pilots") gather(pilots, data.pilots);
  else if (event === "alarms") ({ alarms } = data);
  if (!asked) {
    asked = true;
    requestAnimationFrame(give);
  }
}

/** Have every view read anew, as after a lost line. */
export function anew() {
  tell("anew");
}

/** Keep an overview that was read. */
export function know(found) {
  latest = found;
  setNow(found.now);
}

function gather(kept, rows) {
  for (const row of rows) kept.set(row.id, row);
  if (kept.size > MOST) {
    kept.clear();
    flooded = true;
  }
}

function give() {
  asked = false;
  const [someJobs, someFlows, somePilots, facts, bells] = [jobs, flows, pilots, overview, alarms];
  [jobs, flows, pilots, overview, alarms] = [new Map(), new Map(), new Map(), null, null];
  if (facts) tell("overview", facts);
  if (bells) tell("alarms", bells);
  if (someJobs.size) tell("jobs", someJobs);
  if (someFlows.size) tell("flows", someFlows);
  if (somePilots.size) tell("pilots", somePilots);
  if (flooded) tell("anew");
  flooded = false;
}

function tell(kind, news) {
  for (const hear of ears.get(kind) ?? []) hear(news);
}
