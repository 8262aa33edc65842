// Jobs know the numbers of pilots; people know their names.

import * as api from "./api.js";
import * as live from "./live.js";
import { to } from "./router.js";

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

/** Where a job runs or ran: a site, or the name of a pilot; its number if that is all we know. */
export function where(job) {
  const place = job.place;
  if (!place) return "";
  if (place.kind === "hub") return "another hub";
  if (place.kind !== "pilot") return place.site;
  return names.get(place.pilot) ?? `pilot ${place.pilot}`;
}

/** The address of the page that tells more of that. */
export function whereTo(job) {
  const kind = job.place?.kind;
  if (kind === "batch" || kind === "agent") return to("sites");
  return kind === "hub" ? "" : to(`pilots/${job.place?.pilot ?? 0}`);
}
