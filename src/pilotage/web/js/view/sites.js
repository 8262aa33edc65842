// Sites: batch systems that we drive, those with an agent, and nodes whose pilots have come.

import * as api from "../api.js";
import { calm, fill, h, heading } from "../dom.js";
import { about, away, jobs as agentJobs } from "../edges.js";
import * as keys from "../keys.js";
import * as live from "../live.js";
import { number } from "../say.js";
import { badge } from "../state.js";
import { command, complain, empty, notice } from "../talk.js";
import { since } from "../tick.js";

const STEPS = [
  ["staging_in", "on their way"],
  ["ready", "ready"],
  ["submitted", "in its queue"],
  ["running", "running"],
  ["staging_out", "staging out"],
];
const AGAIN_MS = 5000;
const NEEDS = ["silent", "trouble", "not answering", "needs login", "bad file"];

export async function open(root, _, signal) {
  const body = h("tbody");
  const table = h(
    "table.sites.cards",
    h("caption.unseen", "Sites"),
    heading([
      ["Site", ""],
      ["State", ""],
      ["Jobs there", ""],
      ["Agent", ""],
      ["Pilots", ".n"],
      ["Takes work", ""],
    ]),
    body,
  );
  const panel = h("div.panel.flush");
  const alarm = h("div.alarms", { role: "alert" });
  let told = "";
  fill(root, h("div.head", h("h1", "Sites")), alarm, panel);
  keys.rows(body);

  async function read() {
    const { sites, broker } = await api.get("sites", {}, signal);
    const trouble = broker?.trouble ?? "";
    if (trouble !== told) {
      told = trouble;
      fill(alarm, trouble ? away(broker) : null);
    }
    const at = document.activeElement?.closest?.("tr")?.dataset.key;
    fill(
      body,
      sites.toSorted((a, b) => need(a) - need(b)).map((site) => line(site, read)),
    );
    fill(
      panel,
      sites.length
        ? table
        : empty(
            "No sites yet. A site is a cluster, or any machine with a batch system, that jobs may run at.",
            command("pilotage site add cluster --batch slurm --host login.example.org"),
          ),
    );
    if (at) body.querySelector(`tr[data-key="${CSS.escape(at)}"] [role=switch]`)?.focus();
  }
  const again = calm(2000, () => read().catch(complain));
  live.on("jobs", again, signal);
  live.on("anew", again, signal);
  const clock = setInterval(again, AGAIN_MS);
  signal.addEventListener("abort", () => clearInterval(clock));
  await read();
}

/** Those that need a person come first. */
function need(site) {
  const place = site.conflict ? 0 : NEEDS.indexOf(site.state);
  return place >= 0 ? place : NEEDS.length + (site.agent?.warned ? 0 : 1);
}

function line(site, read) {
  const off = site.drain !== null;
  const act = async () => {
    try {
      await api.post(`sites/${encodeURIComponent(site.name)}/${off ? "resume" : "drain"}`);
      notice(`${site.name} ${off ? "is resumed" : "is drained"}`);
      await read();
    } catch (error) {
      complain(error);
    }
  };
  const knob = h(
    "button.switch",
    {
      type: "button",
      role: "switch",
      "aria-checked": String(!off),
      "aria-label": `${site.name} takes work`,
      onclick: act,
    },
    h("span.knob"),
    h("span", off ? "off" : "on"),
  );
  return h(
    "tr",
    { "data-key": site.name },
    h(
      "td.c-name",
      site.name,
      h("p.note", `${site.batch} ${where(site)}`.trim()),
      site.about ? h("p.note", site.about) : null,
    ),
    h("td.c-state", ...state(site)),
    h("td.c-jobs", site.agent ? agentJobs(site.agent) : jobs(site.jobs)),
    h("td.c-agent", site.agent ? about(site.agent) : null),
    h("td.n.c-pilots", number(site.pilots)),
    h("td.c-switch", knob, off ? h("p.note", asked(site.drain)) : null),
  );
}

function where(site) {
  if (site.kind === "agent") return site.agent?.ported ? "at our port" : "by messages";
  if (site.kind === "pilots") return "by its pilots";
  return site.host ? `at ${site.host}` : "on this machine";
}

function asked(drain) {
  return `by ${drain.by || "a person"}${drain.why ? `: ${drain.why}` : ""}`;
}

function state(site) {
  const words = site.conflict || site.words;
  return [
    badge(site.conflict ? "trouble" : site.state),
    site.since && site.state !== "unknown" ? h("span.note", " for ", since(site.since)) : null,
    words ? h(site.agent?.warned ? "p.note.warned" : "p.note", words) : null,
  ];
}

function jobs(counts) {
  const words = STEPS.filter(([name]) => counts[name]).map(
    ([name, said]) => `${number(counts[name])} ${said}`,
  );
  return words.length ? words.join(", ") : "none";
}
