// How full the sites were: samples of the hub as columns for pictures.

import * as api from "./api.js";
import { now } from "./say.js";

export const SPANS = [
  ["10 minutes", 600],
  ["1 hour", 3600],
  ["1 day", 86400],
  ["1 week", 604800],
];

/** The hub answers so many samples at once; pictures have so many points at most. */
const PART = 20_000;
const PARTS = 8;
const POINTS = 1200;

/** Read samples of the last seconds, thinned out; the oldest first. */
export async function read(span, signal) {
  const samples = [];
  let since = now() - span;
  for (let part = 0; part < PARTS; part += 1) {
    const found = await api.get("samples", { since: since.toFixed(3) }, signal);
    samples.push(...found.samples);
    if (found.samples.length < PART) break;
    since = found.samples.at(-1).time + 0.001;
  }
  return thin(samples);
}

/** Keep every so manyth moment, and the last. */
function thin(samples) {
  const times = [...new Set(samples.map((one) => one.time))];
  const step = Math.ceil(times.length / POINTS);
  if (step < 2) return samples;
  const kept = new Set(times.filter((_, n) => n % step === 0 || n === times.length - 1));
  return samples.filter((one) => kept.has(one.time));
}

/** All sites together: `[times, running, used, cpus]`. */
export function together(samples) {
  const sums = new Map();
  for (const { time, running, used, cpus } of samples) {
    const sum = sums.get(time) ?? sums.set(time, [0, 0, 0]).get(time);
    sum[0] += running;
    sum[1] += used;
    sum[2] += cpus;
  }
  const times = [...sums.keys()].sort((a, b) => a - b);
  return [times, ...[0, 1, 2].map((n) => times.map((time) => sums.get(time)[n]))];
}

/** One column for each site: `{ times, sites, used, cpus }`, where a site without a sample has 0. */
export function bySite(samples) {
  const times = [...new Set(samples.map((one) => one.time))].sort((a, b) => a - b);
  const place = new Map(times.map((time, n) => [time, n]));
  const sites = [...new Set(samples.map((one) => one.site))].sort();
  const used = sites.map(() => times.map(() => 0));
  const cpus = times.map(() => 0);
  for (const one of samples) {
    const n = place.get(one.time);
    used[sites.indexOf(one.site)][n] = one.used;
    cpus[n] += one.cpus;
  }
  return { times, sites, used, cpus };
}
