// Jobs know the numbers of pilots; people know their names.

import * as api from "./api.js";
import * as live from "./live.js";

const MOST = 1000;
const names = new Map();

live.on("pilots", (changed) => learn(changed.values()));

/** Ask for the names of the newest pilots. */
export async function learnPilots(signal) {
  const found = await api.get("pilots", { limit: MOST }, signal);
  learn(found.pilots);
}

function learn(pilots) {
  if (names.size > 10 * MOST) names.clear();
  for (const pilot of pilots) names.set(pilot.id, pilot.name);
}

/** Where a job runs or ran: the name of the pilot, or its number if that is all we know. */
export function where(job) {
  if (!job.attempt) return "";
  if (job.pilot === null || job.pilot === undefined) return "local";
  return names.get(job.pilot) ?? `pilot ${job.pilot}`;
}
