// Shares: who has used how much lately, beside what is due.

import * as api from "../api.js";
import { fill, h } from "../dom.js";
import * as live from "../live.js";
import { duration, number, percent } from "../say.js";
import { complain, empty } from "../talk.js";

const EVERY = 5000;

export async function open(root, _, signal) {
  const lead = h("p.note");
  const panel = h("div.panel");
  fill(root, h("div.head", h("h1", "Shares")), lead, panel);

  async function read() {
    const found = await api.get("shares", {}, signal);
    fill(
      lead,
      `Use of ${duration(found.half_life)} ago counts half. ` +
        "Owners below their fair share are served first.",
    );
    fill(
      panel,
      found.shares.length
        ? list(found.shares)
        : empty("No usage yet. Owners appear with their first jobs."),
    );
  }
  const timer = setInterval(() => document.hidden || read().catch(complain), EVERY);
  signal.addEventListener("abort", () => clearInterval(timer));
  live.on("anew", () => read().catch(complain), signal);
  await read();
}

/** Each owner's part of the usage, beside what is due. */
export function parts(shares) {
  const used = shares.reduce((sum, one) => sum + one.usage, 0);
  return shares
    .map((one) => ({ ...one, now: used ? one.usage / used : 0 }))
    .sort((a, b) => b.now - a.now || a.owner.localeCompare(b.owner));
}

function list(shares) {
  const heads = ["Owner", "Share of use, and fair share", "Running", "Queued", "Core time in all"];
  return h(
    "table.shares.cards",
    h("caption.unseen", "Owners and their shares"),
    h(
      "thead",
      h(
        "tr",
        heads.map((words, n) => h(n > 1 ? "th.n" : "th", { scope: "col" }, words)),
      ),
    ),
    h("tbody", parts(shares).map(line)),
  );
}

function line(one) {
  const gap = one.now - one.due;
  const words =
    Math.abs(gap) < 0.005 ? "as due" : `${percent(Math.abs(gap))} ${gap > 0 ? "above" : "below"}`;
  const quota = one.quota == null ? null : h("span.note", `at most ${number(one.quota)} cores`);
  return h(
    "tr",
    h(
      "th.c-name",
      { scope: "row" },
      one.owner || "-",
      h("span.note", `weight ${one.weight}`),
      quota,
    ),
    h(
      "td.c-bars",
      bar("has used", one.now, gap > 0.005 ? "over" : "now"),
      bar("is due", one.due, "due"),
      h("span.note", words),
    ),
    h("td.n", number(one.running)),
    h("td.n", number(one.queued)),
    h("td.n", duration(one.total)),
  );
}

function bar(label, part, kind) {
  return h(
    "div.measure",
    h("span.what", label),
    h(
      `div.bar.${kind}`,
      { role: "img", "aria-label": `${label} ${percent(part)}` },
      h("i", { "--part": part.toFixed(4) }),
    ),
    h("span.value", percent(part)),
  );
}
