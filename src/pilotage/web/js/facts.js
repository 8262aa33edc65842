// Facts as a list, data as JSON.

import { h } from "./dom.js";

/** A list of names and values; what has no value is left out. */
export function facts(pairs) {
  const known = pairs.filter(
    ([, value]) => value !== null && value !== undefined && value !== "" && value !== false,
  );
  return h(
    "dl.facts",
    known.map(([name, value]) => h("div", h("dt", name), h("dd", value))),
  );
}

/** Data that opens; `null` if there is nothing in it. */
export function json(label, value, open = false) {
  if (value === null || value === undefined) return null;
  if (typeof value === "object" && !Object.keys(value).length) return null;
  return h(
    "details.json",
    { open },
    h("summary", label),
    h("pre", { tabindex: 0, "aria-label": label }, JSON.stringify(value, null, 2)),
  );
}
