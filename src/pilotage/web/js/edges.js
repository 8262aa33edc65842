// Sites that are heard of by messages alone: how their agents say they are.

import { fill, h, ticks } from "./dom.js";
import { bytes, count, duration, number } from "./say.js";
import { badge, final, icon } from "./state.js";
import { since } from "./tick.js";

const HEADS = [
  ["Site", ""],
  ["State", ""],
  ["Jobs there", ""],
  ["Agent", ""],
  ["Last heard", ".n"],
];

const NEEDS = ["silent", "trouble"];

/** A place for them: nothing while there are none. */
export class Edges {
  constructor() {
    this.root = h("section.edges");
    this.body = h("tbody");
    this.alarm = h("div.alarms", { role: "alert" });
    this.panel = h(
      "div.panel.flush",
      h(
        "table.sites.edges.cards",
        h("caption.unseen", "Sites that are reached by messages"),
        h(
          "thead",
          h(
            "tr",
            HEADS.map(([words, kind]) => h(`th${kind}`, { scope: "col" }, words)),
          ),
        ),
        this.body,
      ),
    );
  }

  show(edges, broker) {
    const told = broker?.trouble ?? "";
    if (told !== this.told) {
      this.told = told;
      fill(this.alarm, told ? away(broker) : null);
    }
    fill(this.body, edges.toSorted((a, b) => need(a) - need(b)).map(line));
    if (!broker) fill(this.root);
    else if (!this.root.firstChild || this.empty !== !edges.length) {
      this.empty = !edges.length;
      fill(
        this.root,
        h("div.head", h("h2", "Reached by messages")),
        this.alarm,
        edges.length ? this.panel : h("div.panel", h("p.note", "None was heard of yet.")),
      );
    }
  }
}

function away(broker) {
  return h(
    "div.alarm",
    icon("bell"),
    h(
      "p",
      h("strong", "The broker cannot be reached: "),
      ...ticks(broker.trouble),
      broker.since ? h("span.note", " for ", since(broker.since)) : null,
      h("br"),
      h("span.note", "What is said of these sites is from before."),
    ),
  );
}

/** Those that need a person come first. */
function need(edge) {
  const place = NEEDS.indexOf(edge.state);
  return place >= 0 ? place : NEEDS.length + (edge.warned ? 0 : 1);
}

function line(edge) {
  return h(
    "tr",
    { "data-key": edge.name },
    h("td.c-name", edge.name, edge.batch ? h("p.note", edge.batch) : null),
    h(
      "td.c-state",
      badge(edge.state),
      edge.state === "unknown" ? null : h("span.note", " for ", since(edge.since)),
      edge.words ? h(edge.warned ? "p.note.warned" : "p.note", edge.words) : null,
    ),
    h("td.c-jobs", jobs(edge)),
    h("td.c-agent", `Pilotage ${edge.version}`, h("p.note", papers(edge).join(", "))),
    h("td.n.c-heard", since(edge.heard), " ago"),
  );
}

function jobs(edge) {
  const live = Object.entries(edge.jobs).filter(([state, some]) => some && !final(state));
  const words = live.map(([state, some]) => `${number(some)} ${state.replaceAll("_", " ")}`);
  return [
    words.length ? words.join(", ") : "none",
    edge.outbox ? h("p.note", `${count(edge.outbox, "status message")} to be sent`) : null,
  ];
}

function papers(edge) {
  const days = edge.certificate_days;
  return [
    `up for ${duration(edge.age)}`,
    `${bytes(edge.disk_free)} free`,
    ...(days === null ? [] : [days < 0 ? "certificate over" : `certificate ${Math.floor(days)} d`]),
  ];
}
