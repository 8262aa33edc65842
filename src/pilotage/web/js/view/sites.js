// Sites: where batch systems run our jobs, whether we reach them, and what is there.

import * as api from "../api.js";
import { calm, fill, h } from "../dom.js";
import { Edges } from "../edges.js";
import * as keys from "../keys.js";
import * as live from "../live.js";
import { number } from "../say.js";
import { badge } from "../state.js";
import { command, complain, empty, notice } from "../talk.js";
import { ago } from "../tick.js";

const STEPS = [
  ["staging_in", "on their way"],
  ["ready", "ready"],
  ["submitted", "in its queue"],
  ["running", "running"],
  ["staging_out", "coming home"],
];
const AGAIN_MS = 5000;

export async function open(root, _, signal) {
  const body = h("tbody");
  const table = h(
    "table.sites.cards",
    h("caption.unseen", "Sites"),
    h(
      "thead",
      h(
        "tr",
        [
          ["Site", ""],
          ["State", ""],
          ["Jobs there", ""],
          ["Pilots", ".n"],
          ["Takes work", ""],
        ].map(([words, kind]) => h(`th${kind}`, { scope: "col" }, words)),
      ),
    ),
    body,
  );
  const panel = h("div.panel.flush");
  const heard = new Edges();
  fill(root, h("div.head", h("h1", "Sites")), panel, heard.root);
  keys.rows(body);

  async function read() {
    const { sites, edges, broker } = await api.get("sites", {}, signal);
    heard.show(edges, broker);
    panel.hidden = !sites.length && edges.length > 0;
    const at = document.activeElement?.closest?.("tr")?.dataset.key;
    fill(
      body,
      sites.map((site) => line(site, read)),
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

function line(site, read) {
  const off = site.asked === "drain";
  const act = async () => {
    try {
      await api.post(`sites/${encodeURIComponent(site.name)}/${off ? "resume" : "drain"}`);
      notice(`${site.name} ${off ? "is given work again" : "is given nothing more"}`);
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
      h("p.note", `${site.batch} ${site.host ? `at ${site.host}` : "on this machine"}`),
      site.about ? h("p.note", site.about) : null,
    ),
    h("td.c-state", ...state(site)),
    h("td.c-jobs", jobs(site.jobs)),
    h("td.n.c-pilots", number(site.pilots)),
    h("td.c-switch", knob),
  );
}

function state(site) {
  if (site.trouble) {
    const since = site.since ? h("span.note", " ", ago(site.since)) : null;
    return [badge("trouble"), since, h("p.note", site.trouble)];
  }
  return [badge(site.kept ? "connected" : "not looked after")];
}

function jobs(counts) {
  const words = STEPS.filter(([name]) => counts[name]).map(
    ([name, said]) => `${number(counts[name])} ${said}`,
  );
  return words.length ? words.join(", ") : "none";
}
