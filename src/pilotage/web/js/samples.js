// How full the sites were: samples of the hub as columns for pictures.

import * as api from "./api.js";
import { now } from "./say.js";

export const SPANS = [["10 minutes", 600], ["1 hour", 3600], ["1 day", 86400], ["1 week", 604800]];

/** Read samples of the last seconds; the oldest first. */
export async function read(span, signal) {
  const found = await api.get("samples", { since: (now() - span).toFixed(3) }, signal);
  return found.samples;
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
