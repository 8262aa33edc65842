// What agents say of their sites, and the broker by which they say it.

import { h, ticks } from "./dom.js";
import { bytes, count, duration, number } from "./say.js";
import { final, icon } from "./state.js";
import { since } from "./tick.js";

/** That nothing is heard of any of these sites. */
export function away(broker) {
  return h(
    "div.alarm",
    icon("bell"),
    h(
      "p",
      h("strong", "The broker cannot be reached: "),
      ...ticks(broker.trouble),
      broker.since ? h("span.note", " for ", since(broker.since)) : null,
      h("br"),
      h("span.note", "The data of these sites is old."),
    ),
  );
}

/** All jobs at the site, whoever sent them. */
export function jobs(agent) {
  const live = Object.entries(agent.jobs).filter(([state, some]) => some && !final(state));
  const words = live.map(([state, some]) => `${number(some)} ${state.replaceAll("_", " ")}`);
  return [
    words.length ? words.join(", ") : "none",
    agent.outbox ? h("p.note", `${count(agent.outbox, "status message")} to be sent`) : null,
  ];
}

/** The agent itself. */
export function about(agent) {
  const days = agent.certificate_days;
  const papers = [
    `up for ${duration(agent.age)}`,
    `${bytes(agent.disk_free)} free`,
    ...(days === null ? [] : [days < 0 ? "certificate expired" : `certificate ${Math.floor(days)} d`]),
  ];
  return [
    `Pilotage ${agent.version}`,
    h("p.note", papers.join(", ")),
    h("p.note", "last seen ", since(agent.heard), " ago"),
  ];
}
