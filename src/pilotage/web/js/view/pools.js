// Pools: what each has and wants, why, and how that went.

import * as api from "../api.js";
import { chart } from "../charts.js";
import { calm, fill, h, words } from "../dom.js";
import * as live from "../live.js";
import { SPANS } from "../samples.js";
import { now, number } from "../say.js";
import { badge } from "../state.js";
import { command, complain, empty, notice } from "../talk.js";
import { ago } from "../tick.js";

const AGAIN_MS = 5000;
const SERIES = [
  { label: "cores", colour: "s1", fill: 0.25 },
  { label: "demand", colour: "s2", dash: [6, 3] },
  { label: "in use", colour: "s3" },
  { label: "jobs wait for", colour: "soft", width: 1, dash: [2, 3] },
];

export async function open(root, _, signal) {
  const view = new Pools(root, signal);
  await view.read();
}

class Pools {
  constructor(root, signal) {
    this.signal = signal;
    this.cards = new Map();
    this.list = h("div");
    this.spans = h(
      "select",
      { "aria-label": "Time span", onchange: () => this.read().catch(complain) },
      SPANS.map(([text, seconds]) =>
        h("option", { value: seconds, selected: seconds === 3600 }, text),
      ),
    );
    fill(root, h("div.head", h("h1", "Pools"), this.spans), this.list);
    const again = calm(2000, () => this.read().catch(complain));
    live.on("anew", again, signal);
    const clock = setInterval(again, AGAIN_MS);
    signal.addEventListener("abort", () => clearInterval(clock));
  }

  async read() {
    const since = (now() - Number(this.spans.value)).toFixed(3);
    const [{ pools }, { samples }] = await Promise.all([
      api.get("pools", {}, this.signal),
      api.get("pools/samples", { since }, this.signal),
    ]);
    const names = pools.map((pool) => pool.name).join("\n");
    if (names !== this.names) {
      this.names = names;
      this.cards = new Map(pools.map((pool) => [pool.name, new Card(pool, this)]));
      fill(this.list, pools.length ? [...this.cards.values()].map((card) => card.root) : nothing());
    }
    for (const pool of pools)
      this.cards.get(pool.name).draw(
        pool,
        samples.filter((one) => one.pool === pool.name),
      );
  }
}

function nothing() {
  return h(
    "div.panel",
    empty(
      "No pools yet. A pool is a file pools/NAME.toml: pilots at a site that grow and shrink with the work.",
      command("pilotage pool ls"),
    ),
  );
}

class Card {
  constructor(pool, view) {
    this.view = view;
    this.state = h("span");
    this.facts = h("p.note");
    this.why = h("p", { role: "status" });
    this.knob = h("button.quiet", { type: "button", onclick: () => this.act().catch(complain) });
    this.picture = h("div.chart");
    this.root = h(
      "section.panel",
      h("div.head", h("h2", pool.name), this.state, this.knob),
      this.facts,
      this.why,
      this.picture,
    );
    this.plot = chart(this.picture, `Cores of pool ${pool.name} over time`, SERIES, view.signal);
  }

  async act() {
    const { name, state } = this.pool;
    const verb = state === "paused" ? "resume" : "pause";
    await api.post(`pools/${encodeURIComponent(name)}/${verb}`);
    notice(`${name} ${verb === "pause" ? "stays as it is" : "goes on"}`);
    await this.view.read();
  }

  draw(pool, samples) {
    this.pool = pool;
    fill(this.state, badge(pool.state), pool.looked ? h("span.note", " ", ago(pool.looked)) : null);
    words(this.knob, pool.state === "paused" ? "Resume" : "Pause");
    this.knob.hidden = pool.state === "bad file";
    words(this.facts, facts(pool));
    words(this.why, pool.trouble || pool.words);
    const column = (pick) => samples.map(pick);
    this.plot.draw([
      column((one) => one.time),
      column((one) => one.supply),
      column((one) => one.demand),
      column((one) => one.supply * (one.allocation ?? 0)),
      column((one) => one.waiting),
    ]);
  }
}

function facts(pool) {
  if (pool.state === "bad file") return "";
  const part = (value) => (value == null ? "unknown" : `${Math.round(100 * value)} %`);
  return [
    `at ${pool.site}`,
    `${number(pool.supply)} of at most ${number(pool.maximum)} cores`,
    `${number(pool.queued + pool.booting)} on their way`,
    `used ${part(pool.utilisation)}`,
    `taken ${part(pool.allocation)}`,
    pool.control,
  ].join(" · ");
}
