// Pools: what each has and wants, and why; those that need a person first.

import * as api from "../api.js";
import { act, word } from "../pool-acts.js";
import { calm, fill, h, heading, keyed, ticks, words } from "../dom.js";
import * as keys from "../keys.js";
import * as live from "../live.js";
import { to } from "../router.js";
import { count, now, number, percent } from "../say.js";
import { spark } from "../spark.js";
import { icon, rebadge } from "../state.js";
import { command, complain, empty } from "../talk.js";

const AGAIN_MS = 5000;
const SPAN = 3600;
/** Points of a small picture; it is drawn anew when there is one more. */
const POINTS = 60;
/** Alarms that are told at once, and pools from which on there is a field to search. */
const [ALARMS, MANY] = [3, 10];
/** States in the order of who looks at them first. */
const URGENT = [
  "bad file",
  "asks first",
  "backs off",
  "unheard",
  "paused",
  "not controlled",
  "controlled",
];
/** States that need a person, in words. */
const TROUBLES = {
  "bad file": "has a mistake in its file",
  "asks first": "asks first",
  "backs off": "backs off",
  unheard: "has an external controller that does not report",
};

export async function open(root, _, signal) {
  const view = new Pools(root, signal);
  await view.read();
}

class Pools {
  constructor(root, signal) {
    this.signal = signal;
    this.samples = new Map();
    this.pools = [];
    this.drawnAt = -Infinity;
    this.alarms = h("div.alarms", { role: "alert" });
    this.tally = h("p.note", { role: "status" });
    this.body = h("tbody");
    this.none = h("div");
    this.field = h("input", {
      type: "search",
      "aria-label": "Search pools",
      placeholder: "Name, site or state",
    });
    this.field.addEventListener("input", () => this.draw());
    const heads = [
      ["Pool", ".c-name"],
      ["State", ".c-state"],
      ["Last hour", ".c-spark"],
      ["Cores", ".c-cores"],
      ["Demand", ".n"],
      ["Coming", ".n"],
      ["Waiting", ".n"],
      ["Utilisation, allocation", ".n.c-use"],
      ["Why", ".c-why"],
    ];
    this.table = h(
      "table.pools.cards",
      h("caption.unseen", "Pools"),
      heading(heads),
      this.body,
    );
    fill(
      root,
      h("div.head", h("h1", "Pools"), this.tally, this.field),
      this.alarms,
      h("div.panel.flush", this.table, this.none),
    );
    keys.rows(this.body);
    keys.search(this.field, signal);
    const again = calm(2000, () => document.hidden || this.read().catch(complain));
    live.on("anew", again, signal);
    const clock = setInterval(again, AGAIN_MS);
    signal.addEventListener("abort", () => clearInterval(clock));
  }

  async read() {
    const found = await api.get("pools", {}, this.signal);
    this.steer = found.steer;
    this.pools = found.pools.sort(
      (a, b) => URGENT.indexOf(a.state) - URGENT.indexOf(b.state) || a.name.localeCompare(b.name),
    );
    if (this.pools.length && now() - this.drawnAt >= this.every()) await this.readSamples();
    this.draw();
  }

  /** Seconds between two pictures: at first they grow quickly. */
  every() {
    return this.full ? SPAN / POINTS : 5;
  }

  async readSamples() {
    this.drawnAt = now();
    const since = (now() - SPAN).toFixed(3);
    const { samples } = await api.get("pools/samples", { since, points: POINTS }, this.signal);
    this.samples = Map.groupBy(samples, (one) => one.pool);
    this.full = samples.length > 4 * this.pools.length;
    this.anew = true;
  }

  draw() {
    const asked = this.field.value.trim().toLowerCase();
    const shown = this.pools.filter(({ name, site, state }) =>
      [name, site, state].some((text) => text.toLowerCase().includes(asked)),
    );
    keyed(
      this.body,
      shown,
      (pool) => pool.name,
      make,
      (row, pool) => this.update(row, pool),
    );
    this.anew = false;
    this.table.hidden = !shown.length;
    this.field.hidden = this.pools.length < MANY;
    const nobody = this.pools.length ? empty(`No pool matches “${this.field.value}”.`) : nothing();
    fill(this.none, shown.length ? null : nobody);
    words(this.tally, summary(this.pools));
    this.alarm();
  }

  /** Say who needs a person, with what to do about it. */
  alarm() {
    const asking = this.pools.filter((pool) => pool.state in TROUBLES);
    const told = asking.map((pool) => `${pool.name} ${pool.state} ${pool.trouble}`).join("\n");
    if (told === this.told) return;
    this.told = told;
    const more = asking.length - ALARMS;
    fill(
      this.alarms,
      asking.slice(0, ALARMS).map((pool) => this.one(pool)),
      more > 0 ? h("p.note", `${count(more, "more pool")} like that: see the list.`) : null,
    );
  }

  one(pool) {
    const allow = async () => (await act(pool, "allow")) && this.read().catch(complain);
    return h(
      "div.alarm",
      icon("bell"),
      h("p", h("strong", `${pool.name} ${TROUBLES[pool.state]}: `), ...ticks(pool.trouble)),
      this.steer && pool.state === "asks first" && pool.ask_above
        ? h("button.plain", { type: "button", onclick: allow }, `${word("allow")}…`)
        : null,
    );
  }

  update(row, pool) {
    const cell = (name) => row.querySelector(`.c-${name}`);
    words(cell("name").querySelector(".note"), pool.site ? `at ${pool.site}` : "");
    rebadge(cell("state"), pool.state);
    const bad = pool.state === "bad file";
    const values = {
      demand: number(pool.demand),
      coming: number(pool.queued + pool.booting),
      waiting: number(pool.waiting),
      use: pool.allocation == null ? "–" : `${part(pool.utilisation)}, ${part(pool.allocation)}`,
    };
    for (const [name, text] of Object.entries(values)) words(cell(name), bad ? "" : text);
    const full = pool.maximum ? pool.supply / pool.maximum : 0;
    row.querySelector("i").style.setProperty("--part", full.toFixed(3));
    words(
      row.querySelector(".value"),
      bad ? "" : `${number(pool.supply)} of ${number(pool.maximum)}`,
    );
    row.querySelector(".measure").hidden = bad;
    if (this.anew)
      cell("spark").replaceChildren(spark(this.samples.get(pool.name) ?? [], now() - SPAN, now()));
    const why = pool.trouble || pool.words;
    const said = cell("why").firstChild;
    if (said.title !== why) {
      said.title = why;
      fill(said, ticks(why));
    }
  }
}

export function part(value) {
  return value == null ? "–" : percent(value);
}

function summary(pools) {
  const states = Map.groupBy(pools, (pool) => pool.state);
  const told = URGENT.filter((state) => states.has(state)).map(
    (state) => `${number(states.get(state).length)} ${state}`,
  );
  return pools.length ? `${count(pools.length, "pool")}: ${told.join(", ")}` : "";
}

function nothing() {
  return empty(
    "No pools yet. A pool is a number of pilots at a site that grows while jobs wait for them, and shrinks when they have nothing to do.",
    h("p", command("pilotage pool add burst --site cluster --maximum 64")),
    h("p.note", "The site must be there: ", h("a", { href: "#/sites" }, "Sites")),
  );
}

function make(pool) {
  return h(
    "tr",
    h(
      "td.c-name",
      h("a", { href: to(`pools/${encodeURIComponent(pool.name)}`) }, pool.name),
      h("p.note"),
    ),
    h("td.c-state"),
    h("td.c-spark"),
    h("td.c-cores", h("div.measure", h("div.bar.now", h("i")), h("span.value"))),
    h("td.n.c-demand"),
    h("td.n.c-coming"),
    h("td.n.c-waiting"),
    h("td.n.c-use"),
    h("td.c-why", h("p")),
  );
}
