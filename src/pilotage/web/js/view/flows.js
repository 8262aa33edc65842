// Workflows: how far each is, the newest first.

import * as api from "../api.js";
import { calm, fill, h, heading, keyed, later, ticks, words } from "../dom.js";
import { command, complain, empty } from "../talk.js";
import * as keys from "../keys.js";
import * as live from "../live.js";
import { rewrite, to } from "../router.js";
import { number } from "../say.js";
import { final, rebadge } from "../state.js";
import { ago, lasting } from "../tick.js";

const PAGE = 100;
const STATES = ["running", "done", "failed", "cancelled"];
/** What is asked for by the name of a chip. */
const ASKED = { running: "running,cancelling,staging_out" };

export async function open(root, place, signal) {
  const view = new Flows(root, place, signal);
  await view.read();
}

class Flows {
  constructor(root, place, signal) {
    this.signal = signal;
    this.state = place.query.get("state") ?? "";
    this.flows = new Map();
    this.tally = h("p.note", { role: "status" });
    this.body = h("tbody");
    this.none = h("div");
    this.more = h(
      "button.plain",
      { type: "button", hidden: true, onclick: () => this.readOn().catch(complain) },
      "Older",
    );
    this.field = h("input", {
      type: "search",
      "aria-label": "Search flows by name",
      placeholder: "Name",
      value: place.query.get("name") ?? "",
    });
    this.field.addEventListener(
      "input",
      later(250, () => this.again()),
    );
    this.chips = ["", ...STATES].map((state) =>
      h(
        "button.chip",
        {
          type: "button",
          "aria-pressed": String(state === this.state),
          onclick: () => this.choose(state),
        },
        state || "all",
      ),
    );
    const heads = [
      ["No.", ".n.c-id"],
      ["Flow", ".c-name"],
      ["State", ".c-state"],
      ["Steps", ".c-steps"],
      ["Time", ".n.c-time"],
      ["Started", ".c-made"],
      ["Owner", ".c-owner"],
      ["Reason", ".c-reason"],
    ];
    this.table = h(
      "table.flows.cards",
      h("caption.unseen", "Flows"),
      heading(heads),
      this.body,
    );
    fill(
      root,
      h("div.head", h("h1", "Flows"), this.tally, this.field),
      h("div.chips", { role: "group", "aria-label": "State" }, this.chips),
      h("div.panel.flush", this.table, this.none),
      this.more,
    );
    keys.rows(this.body);
    keys.search(this.field, signal);
    const again = calm(1500, () => document.hidden || this.read().catch(complain));
    live.on("anew", again, signal);
    live.on("flows", (changed) => this.hear(changed, again), signal);
  }

  choose(state) {
    this.state = state;
    for (const chip of this.chips)
      chip.setAttribute("aria-pressed", String(chip.textContent === (state || "all")));
    this.again();
  }

  again() {
    rewrite(to("flows", { state: this.state, name: this.field.value.trim() }));
    this.read().catch(complain);
  }

  ask(before) {
    const name = this.field.value.trim();
    return api.get(
      "flows",
      {
        state: ASKED[this.state] ?? this.state,
        name: name && !/[*?[]/.test(name) ? `*${name}*` : name,
        before,
        limit: PAGE,
      },
      this.signal,
    );
  }

  async read() {
    const found = await this.ask(null);
    this.flows = new Map(found.flows.map((flow) => [flow.id, flow]));
    this.next = found.next;
    this.draw();
  }

  async readOn() {
    const found = await this.ask(this.next);
    for (const flow of found.flows) this.flows.set(flow.id, flow);
    this.next = found.next;
    this.draw();
  }

  /** Take in what has changed of those that are shown; new ones, or others, are read. */
  hear(changed, again) {
    let strange = false;
    for (const [id, flow] of changed) {
      const known = this.flows.get(id);
      if (known) this.flows.set(id, flow);
      strange ||= known ? known.state !== flow.state && this.state : flow.parent === null;
    }
    this.draw();
    if (strange) again();
  }

  draw() {
    const shown = [...this.flows.values()].sort((a, b) => b.id - a.id);
    keyed(this.body, shown, (flow) => flow.id, make, update);
    this.table.hidden = !shown.length;
    this.more.hidden = !this.next;
    fill(this.none, shown.length ? null : this.nothing());
    const live = shown.filter((flow) => !final(flow.state)).length;
    words(this.tally, shown.length ? `${number(live)} of ${number(shown.length)} under way` : "");
  }

  nothing() {
    if (this.state || this.field.value.trim()) return empty("No flow matches.");
    return empty(
      "No flows yet. A flow is a set of steps at one or more sites; each starts when its inputs are ready.",
      h("p", command("pilotage flow submit atlas.toml")),
    );
  }
}

function make(flow) {
  return h(
    "tr",
    h("td.n.c-id", flow.id),
    h("td.c-name", h("a", { href: to(`flows/${flow.id}`) }, flow.name), h("span.note")),
    h("td.c-state"),
    h("td.c-steps", progress()),
    h("td.n.c-time", h("span")),
    h("td.c-made", ago(flow.created)),
    h("td.c-owner", flow.owner),
    h("td.c-reason"),
  );
}

function update(row, flow) {
  rebadge(row.querySelector(".c-state"), flow.state);
  words(row.querySelector(".c-name .note"), flow.tag ? ` ${flow.tag}` : "");
  if (row.dataset.reason !== flow.reason) {
    row.dataset.reason = flow.reason;
    fill(row.querySelector(".c-reason"), ticks(flow.reason));
  }
  lasting(row.querySelector(".c-time span"), flow.created, flow.ended, !flow.ended);
  fillProgress(row.querySelector(".steps"), flow);
}

/** A bar in the colours of the states of steps. */
export function progress() {
  return h("div.steps", h("div.parts", { "aria-hidden": "true" }), h("span.value"));
}

export function fillProgress(node, flow) {
  const counts = Object.entries(flow.steps);
  const all = counts.reduce((sum, [, many]) => sum + many, 0);
  const over = counts.reduce((sum, [state, many]) => sum + (isOver(state) ? many : 0), 0);
  const order = ["done", "failed", "skipped", "cancelled", "running", "waiting"];
  const parts = counts
    .filter(([, many]) => many)
    .sort((a, b) => order.indexOf(a[0]) - order.indexOf(b[0]));
  keyed(
    node.querySelector(".parts"),
    parts,
    ([state]) => state,
    ([state]) => h(`i.${state}`),
    (bar, [, many]) => bar.style.setProperty("flex-grow", String(many)),
  );
  words(node.querySelector(".value"), `${number(over)}/${number(all)}`);
  node.title = counts.map(([state, many]) => `${number(many)} ${state}`).join(", ");
}

export function isOver(state) {
  return final(state) || state === "skipped";
}

