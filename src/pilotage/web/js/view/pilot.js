// One pilot: what its node is, what its checks said, and what it runs.

import * as api from "../api.js";
import { calm, fill, h } from "../dom.js";
import { facts, json } from "../facts.js";
import * as live from "../live.js";
import { to } from "../router.js";
import { bytes, clock, duration, number } from "../say.js";
import { badge, icon } from "../state.js";
import { complain } from "../talk.js";
import { ago } from "../tick.js";
import { act } from "./pilots.js";

const GONE = ["down", "failed", "lost"];

export function title(place) {
  return `Pilot ${place.rest[0]}`;
}

export async function open(root, place, signal) {
  const id = place.rest[0];
  const read = async () =>
    show(root, await api.get(`pilots/${encodeURIComponent(id)}`, {}, signal));
  const again = calm(1000, () => read().catch(complain));
  live.on("pilots", (changed) => changed.has(Number(id)) && again(), signal);
  live.on("anew", again, signal);
  await read();
}

function show(root, pilot) {
  const node = pilot.facts ?? {};
  const buttons =
    GONE.includes(pilot.state) || !pilot.id
      ? null
      : ["drain", "stop"].map((verb) =>
          h(
            "button.plain",
            { type: "button", disabled: pilot.asked === verb, onclick: () => act(pilot, verb) },
            verb === "stop" ? "Stop" : "Drain",
          ),
        );
  fill(
    root,
    h("p.crumbs", h("a", { href: to("pilots") }, "Pilots")),
    h("div.head", h("h1", pilot.name, " ", badge(pilot.state)), h("div.row", buttons)),
    pilot.reason ? h("p", pilot.reason) : null,
    h(
      "div.split.even",
      h(
        "section.panel",
        h("h2", "Pilot"),
        facts([
          ["Number", pilot.id],
          ["Site", pilot.site],
          ["Pool", pilot.pool],
          ["Cores", `${number(pilot.used)} of ${number(pilot.cpus ?? node.cpus ?? 0)} in use`],
          ["Jobs", number(pilot.running)],
          ["Enrolled", pilot.enrolled && clock(pilot.enrolled)],
          ["Last seen", pilot.seen && ago(pilot.seen)],
          ["Left", pilot.ended && clock(pilot.ended)],
          ["Asked", pilot.asked],
        ]),
        running(pilot.jobs),
      ),
      h(
        "section.panel",
        h("h2", "Node"),
        facts([
          ["Host", node.host],
          ["Cores", node.cpus],
          ["Memory", node.memory && bytes(node.memory)],
          ["Disk", node.disk && bytes(node.disk)],
          ["GPUs", (node.gpus ?? []).map((gpu) => gpu.name || "GPU").join(", ")],
          ["System", [node.os, node.release, node.arch].filter(Boolean).join(", ")],
          ["Python", node.python_version],
          ["Sandboxes", (node.sandboxes ?? []).join(", ")],
          ["Batch job", node.batch],
          ["Life", node.lifetime && duration(node.lifetime)],
          ["Folder", node.work],
        ]),
        node.attributes && Object.keys(node.attributes).length
          ? json("Attributes", node.attributes)
          : null,
      ),
    ),
    pilot.checks ? h("section.panel", h("h2", "Checks"), checks(pilot.checks)) : null,
  );
}

function running(jobs) {
  if (!jobs?.length) return null;
  const one = (job) => (typeof job === "object" ? job : { id: job, name: `job ${job}` });
  return [
    h("h3", "Runs now"),
    h(
      "ul.plain",
      jobs
        .map(one)
        .map((job) =>
          h("li", h("a", { href: to(`jobs/${job.id}`) }, job.name), h("span.note", ` ${job.id}`)),
        ),
    ),
  ];
}

function checks(found) {
  if (!found.length) return h("p.note", "No checks ran on this node.");
  return h(
    "ul.checks",
    found.map((check) =>
      h(
        `li.${check.ok ? "good" : "bad"}`,
        icon(check.ok ? "check" : "cross"),
        h(
          "div",
          h("strong", check.name),
          h(
            "span.note",
            ` ${check.kind}, ${check.ok ? "passed" : "not passed"}`,
            check.seconds ? `, ${duration(check.seconds)}` : "",
          ),
          check.words ? h("p", check.words) : null,
        ),
      ),
    ),
  );
}
