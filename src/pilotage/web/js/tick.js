// Times that go on: one timer for all of them.

import { h } from "./dom.js";
import { clock, duration, now, stamp, ticking } from "./say.js";

/** `3 m ago`, kept up to date. */
export function ago(seconds) {
  if (!seconds) return h("span", "–");
  const node = h("time", { datetime: stamp(seconds), title: clock(seconds) });
  node.dataset.since = String(seconds);
  node.dataset.ago = "ago";
  set(node);
  return node;
}

/** `3 m`, kept up to date. */
export function since(seconds) {
  const node = ago(seconds);
  delete node.dataset.ago;
  set(node);
  return node;
}

/** How long something has lasted since a time, or how long it took. */
export function lasting(node, begin, end, running) {
  delete node.dataset.since;
  if (!begin) node.textContent = "";
  else if (end) node.textContent = duration(Math.max(0, end - begin));
  else if (running) {
    node.dataset.since = String(begin);
    set(node);
  } else node.textContent = "";
}

function set(node) {
  const words = ticking(now() - Number(node.dataset.since));
  const shown = node.dataset.ago ? `${words} ago` : words;
  if (node.textContent !== shown) node.textContent = shown;
}

setInterval(() => {
  if (!document.hidden) document.querySelectorAll("[data-since]").forEach(set);
}, 1000);
