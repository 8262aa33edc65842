// Rules: what they are waiting for is in their books; here is whether they do, and how often.

import * as api from "../api.js";
import { calm, fill, h, heading } from "../dom.js";
import * as keys from "../keys.js";
import * as live from "../live.js";
import { to } from "../router.js";
import { number } from "../say.js";
import { command, complain, empty, notice } from "../talk.js";
import { ago } from "../tick.js";

export async function open(root, _, signal) {
  const body = h("tbody");
  const table = h(
    "table.rules.cards",
    h("caption.unseen", "Rules"),
    heading([
      ["Rule", ""],
      ["Book", ".wide"],
      ["Takes events", ""],
      ["Hits", ".n"],
      ["Last fired", ""],
    ]),
    body,
  );
  const panel = h("div.panel.flush");
  fill(root, h("div.head", h("h1", "Rules")), panel);
  keys.rows(body);

  async function read() {
    const { rules } = await api.get("rules", {}, signal);
    const at = document.activeElement?.closest?.("tr")?.dataset.key;
    const kind = document.activeElement?.getAttribute?.("role");
    fill(
      body,
      rules.map((rule) => line(rule, read)),
    );
    fill(
      panel,
      rules.length
        ? table
        : empty(
            "No rules yet. Write a rule file in rules/; its rules are in force when it is saved.",
            command("pilotage rule add my-rules.toml"),
          ),
    );
    if (at)
      body
        .querySelector(
          `tr[data-key="${CSS.escape(at)}"] ${kind === "switch" ? "[role=switch]" : "a"}`,
        )
        ?.focus();
  }
  const again = calm(2000, () => read().catch(complain));
  live.on("jobs", again, signal);
  live.on("anew", again, signal);
  await read();
}

function line(rule, read) {
  const off = !rule.enabled;
  const act = async () => {
    try {
      await api.post(`rules/${encodeURIComponent(rule.name)}/${off ? "enable" : "disable"}`);
      notice(`Rule ${rule.name} ${off ? "takes events again" : "takes no more events"}`);
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
      "aria-label": `Rule ${rule.name} takes events`,
      onclick: act,
    },
    h("span.knob"),
    h("span", off ? "off" : "on"),
  );
  return h(
    "tr",
    { "data-key": rule.name },
    h(
      "td.c-name",
      h("a", { href: to("jobs", { name: rule.name }) }, rule.name),
      h("p.note", rule.trigger),
    ),
    h("td.wide", rule.book, rule.line ? h("span.note", `, line ${rule.line}`) : null),
    h("td.c-switch", knob),
    h("td.n.c-hits", number(rule.hits)),
    h("td.c-last", rule.last ? ago(rule.last) : "never"),
  );
}
