// One pool: what it sees, does and why, how that went, and what to do about it.

import * as api from "../api.js";
import { chart } from "../charts.js";
import { calm, fill, h, ticks } from "../dom.js";
import { facts } from "../facts.js";
import * as live from "../live.js";
import { act, verbs, word } from "../pool-acts.js";
import { to } from "../router.js";
import { SPANS } from "../samples.js";
import { count, now, number } from "../say.js";
import { badge, icon } from "../state.js";
import { complain } from "../talk.js";
import { ago } from "../tick.js";
import { part } from "./pools.js";

const AGAIN_MS = 5000;
const CORES = [
  { label: "cores", colour: "s1", fill: 0.25 },
  { label: "demand", colour: "s2", dash: [6, 3] },
  { label: "in use", colour: "s3" },
  { label: "on their way", colour: "s4", width: 1 },
];
const USE = [
  { label: "utilisation %", colour: "s3" },
  { label: "allocation %", colour: "s1", dash: [6, 3] },
];
const WAITING = [{ label: "cores that jobs wait for", colour: "s2", fill: 0.25 }];
const KINDS = {
  aimd: "the AIMD policy",
  linear: "COBalD’s linear controller",
  relative: "COBalD’s relative supply controller",
  stepwise: "COBalD’s stepwise controller",
  outside: "an external controller",
};
const HERE = "requested,submitted,booting,available,draining";
/** Pilots that are looked through, and shown. */
const [LOOKED, SHOWN] = [1000, 40];

export function title(place) {
  return `Pool ${place.rest[0]}`;
}

export async function open(root, place, signal) {
  const view = new Pool(root, place.rest[0], signal);
  await view.read();
}

class Pool {
  constructor(root, name, signal) {
    this.name = name;
    this.signal = signal;
    [this.top, this.alarm, this.why, this.facts, this.pilots] = [
      "div",
      "div",
      "div",
      "div",
      "div",
    ].map((kind) => h(kind));
    this.spans = h(
      "select",
      { "aria-label": "Time span", onchange: () => this.read().catch(complain) },
      SPANS.map(([text, seconds]) =>
        h("option", { value: seconds, selected: seconds === 3600 }, text),
      ),
    );
    const boxes = [h("div.chart"), h("div.chart"), h("div.chart")];
    fill(
      root,
      h("p.crumbs", h("a", { href: to("pools") }, "Pools")),
      this.top,
      this.alarm,
      h("section.panel.why", { "aria-live": "polite" }, this.why),
      h("section.panel", h("div.head", h("h2", "Cores"), this.spans), boxes[0]),
      h(
        "div.split.even",
        h("section.panel", h("h2", "Utilisation and allocation"), boxes[1]),
        h("section.panel", h("h2", "Waiting jobs"), boxes[2]),
      ),
      h(
        "div.split.even",
        h("section.panel", h("h2", "Pool"), this.facts),
        h("section.panel", h("h2", "Pilots"), this.pilots),
      ),
    );
    this.plots = [
      chart(boxes[0], `Cores of pool ${name} over time`, CORES, signal),
      chart(boxes[1], `Utilisation and allocation of pool ${name}, in percent`, USE, signal, 100),
      chart(boxes[2], `Cores that jobs wait for which pool ${name} could run`, WAITING, signal),
    ];
    const again = calm(2000, () => document.hidden || this.read().catch(complain));
    live.on("anew", again, signal);
    live.on("pilots", again, signal);
    const clock = setInterval(again, AGAIN_MS);
    signal.addEventListener("abort", () => clearInterval(clock));
  }

  async read() {
    const since = (now() - Number(this.spans.value)).toFixed(3);
    const [found, { samples }, { pilots }] = await Promise.all([
      api.get("pools", {}, this.signal),
      api.get("pools/samples", { since, pool: this.name }, this.signal),
      api.get("pilots", { state: HERE, limit: LOOKED }, this.signal),
    ]);
    const pool = found.pools.find((one) => one.name === this.name);
    if (!pool) throw new Error(`The pool ${this.name} was removed.`);
    this.head(pool, found.steer);
    this.say(pool);
    this.list(pilots.filter((pilot) => pilot.pool === this.name));
    this.picture(samples);
  }

  head(pool, steer) {
    const told = JSON.stringify([pool.state, pool.looked, pool.trouble, pool.changed, steer]);
    if (told === this.told) return;
    this.told = told;
    const chosen = document.activeElement?.dataset?.verb;
    const buttons = verbs(pool).map((verb) =>
      h(
        `button.${verb === "allow" ? "main" : "plain"}`,
        {
          type: "button",
          "data-verb": verb,
          onclick: async () => (await act(pool, verb)) && this.read().catch(complain),
        },
        word(verb),
      ),
    );
    const may = steer ? h("div.row", buttons) : h("p.note", "Your token may read, but not control pools.");
    fill(
      this.top,
      h(
        "div.head",
        h(
          "h1",
          pool.name,
          " ",
          badge(pool.state),
          " ",
          pool.looked ? h("span.note", ago(pool.looked)) : null,
        ),
        may,
      ),
      pool.about ? h("p.note", pool.about) : null,
    );
    this.top.querySelector(`[data-verb="${chosen}"]`)?.focus();
    fill(
      this.alarm,
      pool.trouble
        ? h("div.alarm", { role: "alert" }, icon("bell"), h("p", ...ticks(pool.trouble)))
        : null,
    );
  }

  say(pool) {
    const said = pool.words.split("; ").filter((one) => one !== pool.trouble);
    const headline = pool.looked
      ? `Its demand is ${count(pool.demand, "core")}.`
      : "It has not been checked yet.";
    fill(
      this.why,
      h("p.headline", headline),
      pool.words
        ? h(
            "ul",
            said.map((one) => h("li", ...ticks(one))),
          )
        : null,
    );
    if (pool.state === "bad file") return fill(this.facts, h("p.note", "Its file has a mistake."));
    const set = Object.entries(pool.changed).map(([key, value]) => `${key} = ${value}`);
    return fill(
      this.facts,
      facts([
        ["Site", h("a", { href: to("sites") }, pool.site)],
        ["Decides", KINDS[pool.control] ?? pool.control],
        ["Controlled by", pool.steered],
        [
          "Bounds",
          `from ${number(pool.minimum)} to ${count(pool.maximum, "core")}, ${number(pool.cpus)} each`,
        ],
        ["May wait", count(pool.pending, "pilot")],
        ["Asks first", pool.ask_above ? `above ${count(pool.ask_above, "core")}` : ""],
        ["Changed by command", set.join(", ")],
        [
          "Has",
          `${count(pool.supply, "core")}; ${part(pool.utilisation)} utilisation, ${part(pool.allocation)} allocation`,
        ],
        ["On their way", `${number(pool.queued)} wait at the site, ${number(pool.booting)} start`],
        ["Leave", pool.draining ? count(pool.draining, "core") : ""],
        ["Jobs wait for", count(pool.waiting, "core")],
      ]),
    );
  }

  list(pilots) {
    const rows = pilots
      .slice(0, SHOWN)
      .map((pilot) =>
        h(
          "li.row",
          h("a", { href: to(`pilots/${pilot.id}`) }, pilot.name),
          badge(pilot.state),
          h("span.note", pilot.cpus ? `${number(pilot.used)} of ${count(pilot.cpus, "core")}` : ""),
        ),
      );
    const more = pilots.length - rows.length;
    fill(
      this.pilots,
      rows.length ? h("ul.plain", rows) : h("p.note", "None now."),
      more > 0 ? h("p.note", `and ${number(more)} more`) : null,
    );
  }

  picture(samples) {
    const column = (pick) => samples.map(pick);
    const times = column((one) => one.time);
    const hundred = (value) => (value == null ? null : 100 * value);
    this.plots[0].draw([
      times,
      column((one) => one.supply),
      column((one) => one.demand),
      column((one) => one.supply * (one.allocation ?? 0)),
      column((one) => one.queued),
    ]);
    this.plots[1].draw([
      times,
      column((one) => hundred(one.utilisation)),
      column((one) => hundred(one.allocation)),
    ]);
    this.plots[2].draw([times, column((one) => one.waiting)]);
  }
}
