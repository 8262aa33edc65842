// Jobs as rows of a table that change in place.

import { h, words } from "./dom.js";
import { where } from "./pilot-names.js";
import { to } from "./router.js";
import { rebadge } from "./state.js";
import { ago, lasting } from "./tick.js";

export const HEADS = [
  ["id", "n", "Job"],
  ["name", "", "Name"],
  ["state", "", "State"],
  ["time", "n", "Time"],
  ["made", "wide", "Made"],
  ["where", "wide", "Where"],
  ["owner", "wide", "Owner"],
  ["tag", "wide", "Tag"],
  ["reason", "", "Reason"],
];

/** Make an empty row for a job; `update` fills it. */
export function make(job) {
  const link = h("a.go", { href: to(`jobs/${job.id}`) });
  const tick = h("input", { type: "checkbox", "aria-label": `Select job ${job.id}` });
  const row = h("tr", h("td.tick", h("label.hit", tick)));
  for (const [name, kind] of HEADS) {
    row.append(h(`td.c-${name}${kind ? `.${kind}` : ""}`, name === "name" ? link : null));
  }
  return row;
}

/** Show a job in its row; only what differs is touched. */
export function update(row, job) {
  const cell = (name) => row.querySelector(`.c-${name}`);
  words(cell("id"), job.id);
  const link = row.querySelector(".go");
  words(link, job.name);
  link.title = job.name;
  rebadge(cell("state"), job.state);
  lasting(cell("time"), job.started, job.ended, job.state === "running");
  if (!cell("made").firstChild) cell("made").append(ago(job.created));
  words(cell("where"), where(job));
  words(cell("owner"), job.owner ?? "");
  words(cell("tag"), job.tag ?? "");
  const attempt = job.attempt > 1 ? `attempt ${job.attempt}` : "";
  words(cell("reason"), [attempt, job.reason].filter(Boolean).join(": "));
}
