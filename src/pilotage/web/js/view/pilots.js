// Pilots: the places that run jobs, and how full each site was.

import * as api from "../api.js";
import { PALETTE, chart, stack } from "../charts.js";
import { fill, h, heading, keyed, words } from "../dom.js";
import * as keys from "../keys.js";
import * as live from "../live.js";
import { rewrite, to } from "../router.js";
import { SPANS, bySite, read as readSamples } from "../samples.js";
import { count, now, number } from "../say.js";
import { rebadge } from "../state.js";
import { command, complain, confirm, empty, notice } from "../talk.js";
import { ago } from "../tick.js";

const GONE = new Set(["down", "failed", "lost"]);
const HERE = "requested,submitted,booting,available,draining";
/** Rows that are shown; a fleet is read by its sites, not by scrolling. */
const MOST = 500;

export async function open(root, place, signal) {
  const view = new Pilots(root, place.query, signal);
  await Promise.all([view.read(), view.readSlots()]);
}

/** Ask a pilot to drain or stop. */
export async function act(pilot, verb) {
  const lines =
    verb === "stop"
      ? ["Its jobs are stopped and queued again, and it leaves."]
      : ["It finishes its jobs, takes no more, and leaves."];
  const name = verb === "stop" ? "Stop" : "Drain";
  if (!(await confirm(`${name} pilot ${pilot.name}?`, lines, `${name} it`))) return;
  try {
    await api.post(`pilots/${pilot.id}/${verb}`);
    notice(`Pilot ${pilot.name} was asked to ${verb}`);
  } catch (error) {
    complain(error);
  }
}

class Pilots {
  constructor(root, query, signal) {
    this.signal = signal;
    this.known = new Map();
    this.all = query.get("all") === "1";
    this.body = h("tbody");
    this.picture = h("div.chart");
    this.none = h("div");
    this.tally = h("p.note", { role: "status" });
    this.spans = h(
      "select",
      { "aria-label": "Time span", onchange: () => this.readSlots().catch(complain) },
      SPANS.map(([text, seconds]) =>
        h("option", { value: seconds, selected: seconds === 3600 }, text),
      ),
    );
    const heads = [
      ["Pilot", ""],
      ["Site", ""],
      ["State", ""],
      ["Cores used", ".c-use"],
      ["Jobs", ".n"],
      ["Last seen", ".wide"],
      ["Reason", ".c-reason"],
    ];
    this.table = h(
      "table.pilots.cards",
      h("caption.unseen", "Pilots"),
      heading(heads, h("th", h("span.unseen", "Acts"))),
      this.body,
    );
    const past = h(
      "label.check",
      h("input", {
        type: "checkbox",
        checked: this.all,
        onchange: (event) => {
          this.all = event.target.checked;
          rewrite(to("pilots", { all: this.all ? 1 : "" }));
          this.read().catch(complain);
        },
      }),
      "Show pilots that have ended",
    );
    fill(
      root,
      h("div.head", h("h1", "Pilots"), this.tally),
      h("section.panel", h("div.head", h("h2", "Cores in use by site"), this.spans), this.picture),
      h("div.head", past),
      h("div.panel.flush", this.table, this.none),
    );
    this.plot = chart(this.picture, "Cores in use by site over time", [], signal);
    keys.rows(this.body);
    live.on(
      "pilots",
      (changed) => {
        for (const [id, pilot] of changed) {
          if (this.known.has(id) || this.known.size < MOST)
            this.known.set(id, { ...this.known.get(id), ...pilot });
        }
        this.draw();
      },
      signal,
    );
    // A picture of a week changes less often than one of ten minutes.
    const wait = () => (this.used?.[0]?.length > 9 ? Math.max(5, this.spans.value / 300) : 3);
    const slots = () => now() - this.readAt > wait() && this.readSlots().catch(complain);
    live.on("overview", slots, signal);
    live.on(
      "anew",
      () => {
        this.read().catch(complain);
        this.readSlots().catch(complain);
      },
      signal,
    );
  }

  async read() {
    const { pilots } = await api.get(
      "pilots",
      { state: this.all ? "" : HERE, limit: MOST },
      this.signal,
    );
    this.known = new Map(pilots.map((pilot) => [pilot.id, pilot]));
    this.draw();
  }

  async readSlots() {
    this.readAt = now();
    const { times, sites, used, cpus } = bySite(
      await readSamples(Number(this.spans.value), this.signal),
    );
    // The sum is drawn first, so that each area hides the lower part of the one before.
    const layers = stack(times, used);
    const drawn = sites
      .map((site, n) => ({
        label: site || "local",
        colour: PALETTE[n % PALETTE.length],
        fill: 1,
        width: 1,
        values: () => this.used[n],
      }))
      .reverse();
    const series = [...drawn, { label: "in all", colour: "soft", width: 1, dash: [2, 3] }];
    const names = sites.join("\n");
    this.used = used;
    if (this.names !== names) this.plot.choose(series);
    this.names = names;
    this.plot.draw([times, ...layers.reverse(), cpus]);
  }

  draw() {
    const pilots = [...this.known.values()].sort(
      (a, b) => GONE.has(a.state) - GONE.has(b.state) || b.id - a.id,
    );
    const wanted = pilots.filter((pilot) => this.all || !GONE.has(pilot.state));
    keyed(
      this.body,
      wanted,
      (pilot) => pilot.id,
      make,
      (row, pilot) => update(row, pilot),
    );
    this.table.hidden = !wanted.length;
    const counts = Object.entries(live.latest?.pilots ?? {});
    const [gone, here] = [true, false].map((is) =>
      counts.filter(([state]) => GONE.has(state) === is).reduce((sum, [, n]) => sum + n, 0),
    );
    fill(this.none, wanted.length ? null : nothing(gone));
    const more = wanted.length >= MOST ? `, the newest ${MOST} are shown` : "";
    words(this.tally, `${count(here, "pilot")} here, ${number(gone)} gone${more}`);
  }
}

function nothing(gone) {
  return empty(
    gone
      ? "No pilot is here now. Start one wherever there are cores:"
      : "No pilots yet. Make a token, and start a pilot with it wherever there are cores:",
    h("p", command("pilotage token new enrol")),
    h("p", command(`pilotage pilot run --hub ${location.origin} --secret-file token`)),
  );
}

function make(pilot) {
  const buttons = ["drain", "stop"].map((verb) =>
    h("button.quiet", { type: "button", "data-verb": verb }, verb === "stop" ? "Stop" : "Drain"),
  );
  return h(
    "tr",
    h("td.c-name", h("a", { href: to(`pilots/${pilot.id}`) })),
    h("td.c-site"),
    h("td.c-state"),
    h("td.c-use", h("div.measure", h("div.bar.now", h("i")), h("span.value"))),
    h("td.n.c-running"),
    h("td.wide.c-seen"),
    h("td.c-reason"),
    h("td.c-acts", buttons),
  );
}

function update(row, pilot) {
  const cell = (name) => row.querySelector(`.c-${name}`);
  words(cell("name").firstChild, pilot.name);
  words(cell("site"), pilot.site || "–");
  rebadge(cell("state"), pilot.state);
  row
    .querySelector("i")
    .style.setProperty("--part", pilot.cpus ? (pilot.used / pilot.cpus).toFixed(3) : "0");
  words(
    row.querySelector(".value"),
    pilot.cpus ? `${number(pilot.used)} of ${number(pilot.cpus)}` : number(pilot.used),
  );
  words(cell("running"), number(pilot.running));
  cell("seen").replaceChildren(ago(pilot.seen));
  words(cell("reason"), pilot.asked ? `asked to ${pilot.asked}` : pilot.reason);
  const gone = GONE.has(pilot.state);
  for (const button of row.querySelectorAll("button")) {
    const { verb } = button.dataset;
    // Number 0 is the machine of the hub: it goes with the hub.
    button.hidden = gone || !pilot.id;
    button.disabled = pilot.asked === verb || (verb === "drain" && pilot.state === "draining");
    button.onclick = () => act(pilot, verb);
  }
}
