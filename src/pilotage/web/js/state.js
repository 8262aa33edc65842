// States: each has a word, a colour and a shape, so that no one depends on the colour.

import { h } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const RING = "M8 2.5a5.5 5.5 0 1 1 0 11a5.5 5.5 0 1 1 0-11z";

/** Paths in a box of 16; stroked. */
const SHAPES = {
  dots: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  ring: RING,
  play: "M5 3.2v9.6l7.5-4.8z",
  check: "M3 8.5l3.3 3.3L13 4.7",
  cross: "M4 4l8 8M12 4l-8 8",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  bar: `${RING}M4.2 4.2l7.6 7.6`,
  dash: "M3.5 8h9",
  down: "M8 3v9M4 8.5l4 4l4-4",
  question: "M5.7 6a2.3 2.3 0 1 1 3.3 2.1c-.7.4-1 .8-1 1.6M8 12.5v.01",
  skip: "M3 9.5a5 5 0 0 1 9.5-1M12.8 4.5v4h-4",
  half: `${RING}M8 2.5v11M10 4v8M12 5.8v4.4`,
  bell: "M8 2.5l6 10.5H2zM8 6.5v3M8 11.3v.01",
};

const LOOKS = {
  waiting: ["quiet", "dots"],
  queued: ["quiet", "ring"],
  staging_in: ["busy", "down"],
  ready: ["quiet", "ring"],
  submitted: ["quiet", "ring"],
  running: ["busy", "play"],
  staging_out: ["busy", "down"],
  held: ["warn", "pause"],
  done: ["good", "check"],
  failed: ["bad", "cross"],
  cancelled: ["quiet", "dash"],
  rejected: ["bad", "bar"],
  skipped: ["quiet", "skip"],
  cancelling: ["warn", "dash"],
  requested: ["quiet", "dots"],
  booting: ["busy", "ring"],
  available: ["good", "check"],
  draining: ["warn", "down"],
  down: ["quiet", "dash"],
  lost: ["warn", "question"],
  connected: ["good", "check"],
  well: ["good", "check"],
  silent: ["bad", "question"],
  unknown: ["quiet", "question"],
  trouble: ["bad", "bell"],
  controlled: ["good", "check"],
  "asks first": ["warn", "question"],
  paused: ["warn", "pause"],
  "backs off": ["warn", "bell"],
  unheard: ["warn", "bell"],
  "bad file": ["bad", "cross"],
  "not controlled": ["quiet", "dash"],
  here: ["good", "check"],
  "not connected": ["quiet", "dash"],
  "not served": ["warn", "dash"],
  "not answering": ["bad", "bell"],
  "needs login": ["bad", "bell"],
  drained: ["warn", "down"],
};

export const JOB_STATES = [
  "waiting",
  "queued",
  "staging_in",
  "submitted",
  "running",
  "staging_out",
  "held",
  "done",
  "failed",
  "cancelled",
  "rejected",
];
const FINAL = new Set(["done", "failed", "cancelled", "rejected"]);

export function final(state) {
  return FINAL.has(state);
}

export function tone(state) {
  return LOOKS[state]?.[0] ?? "quiet";
}

export function icon(shape) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "0 0 16 16");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", SHAPES[shape]);
  svg.append(path);
  return svg;
}

/** The picture of a state alone. */
export function sign(state) {
  return icon(LOOKS[state]?.[1] ?? "ring");
}

/** A state as a badge. */
export function badge(state) {
  return h(`span.badge.${tone(state)}`, sign(state), state.replaceAll("_", " "));
}

/** Change a badge, if the state is another. */
export function rebadge(cell, state) {
  if (cell.dataset.state === state) return;
  cell.dataset.state = state;
  cell.replaceChildren(badge(state));
}
