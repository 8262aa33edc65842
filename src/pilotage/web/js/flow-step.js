// One step of a flow: why it is as it is, its tasks and attempts, and what jobs of the hub wrote.

import * as api from "./api.js";
import { fill, h, heading, ticks } from "./dom.js";
import { facts, json } from "./facts.js";
import { Log } from "./log.js";
import { to } from "./router.js";
import { bytes, clock, count, duration, number } from "./say.js";
import { badge } from "./state.js";
import { complain } from "./talk.js";
import { lasting } from "./tick.js";

const MOST = 100;
/** States of tasks that say all themselves. */
const QUIET = new Set(["done", "running"]);

export class StepPanel {
  /** `acts(step)` makes the buttons for a step. */
  constructor(flow, acts, close, signal) {
    Object.assign(this, { flow, acts, signal });
    this.name = "";
    this.state = "";
    this.root = h("section.panel.flow-step", { hidden: true, "aria-live": "polite" });
    this.close = h(
      "button.quiet",
      { type: "button", "aria-label": "Close this step", onclick: close },
      "Close",
    );
    [this.top, this.why, this.facts, this.chips, this.tasks, this.log, this.story] = Array.from(
      { length: 7 },
      () => h("div"),
    );
    fill(
      this.root,
      this.top,
      this.why,
      this.facts,
      this.chips,
      this.tasks,
      this.log,
      this.story,
    );
  }

  /** Show a step; nothing hides the panel. */
  async open(name) {
    if (name !== this.name) {
      this.reading?.abort();
      this.reading = new AbortController();
      this.name = name;
      this.state = "";
      this.told = "";
      this.job = 0;
      fill(this.log);
    }
    this.root.hidden = !name;
    if (name) await this.read();
  }

  async read() {
    const { name } = this;
    if (!name) return;
    const found = await api.get(
      `flows/${this.flow}/steps/${encodeURIComponent(name)}`,
      { state: this.state, limit: MOST },
      this.signal,
    );
    if (name !== this.name) return;
    const told = JSON.stringify(found);
    if (told !== this.told) {
      this.told = told;
      this.show(found);
    }
    await this.follow(found);
  }

  show({ step, tasks, story }) {
    const focused = this.root.contains(document.activeElement) && document.activeElement.dataset;
    const chosen = focused?.act ?? focused?.state;
    fill(
      this.top,
      h(
        "div.head",
        h("h2", step.name, " ", badge(step.state)),
        h("div.row", this.acts(step), this.close),
      ),
    );
    fill(this.why, step.why ? h("p.headline", ...ticks(step.why)) : null);
    const time = h("span");
    lasting(time, step.started, step.ended, !step.ended);
    fill(
      this.facts,
      facts([
        ["Runs", step.runs && h("code", step.runs)],
        ["Where", step.sites.join(", ")],
        ["Needs", step.needs.slice(0, 8).join(", ") + (step.needs.length > 8 ? " …" : "")],
        ["Started", step.started && clock(step.started)],
        ["Time", step.started && time],
        ["Attempts", step.attempts ? number(step.attempts) : ""],
        ["Left", step.bytes ? `${bytes(step.bytes)} in ${count(step.files, "file")}` : ""],
        ["Read", step.read ? bytes(step.read) : ""],
      ]),
    );
    this.showChips(step);
    const at = this.tasks.querySelector(".scroll")?.scrollTop ?? 0;
    fill(this.tasks, step.each ? many(tasks, step, this.state) : single(tasks[0]));
    // Whoever looks at the middle of a long list stays there.
    const list = this.tasks.querySelector(".scroll");
    if (list) list.scrollTop = at;
    fill(this.story, step.each || !story.length ? null : told(story));
    if (chosen)
      this.root.querySelector(`[data-act="${chosen}"], [data-state="${chosen}"]`)?.focus();
  }

  showChips(step) {
    const states = Object.entries(step.tasks);
    if (!step.each || states.length < 2) {
      fill(this.chips);
      return;
    }
    const all = states.reduce((sum, [, value]) => sum + value, 0);
    fill(
      this.chips,
      h(
        "div.chips",
        { role: "group", "aria-label": "State of tasks" },
        [["", all], ...states].map(([state, value]) =>
          h(
            "button.chip",
            {
              type: "button",
              "data-state": state || "all",
              "aria-pressed": String(state === this.state),
              onclick: () => {
                this.state = state;
                this.read().catch(complain);
              },
            },
            (state || "all").replaceAll("_", " "),
            h("span.count", number(value)),
          ),
        ),
      ),
    );
  }

  /** Show what the job writes that the step is. */
  async follow({ step, tasks }) {
    const last = tasks[0]?.attempts?.at(-1);
    if (step.each || !last?.job || last.way === "flow") return;
    if (last.job !== this.job) {
      this.job = last.job;
      const signal = AbortSignal.any([this.reading.signal, this.signal]);
      this.logs = new Log(`jobs/${last.job}`, last.job, signal);
      fill(this.log, h("div.log", this.logs.root));
    }
    const job = await api.get(`jobs/${last.job}`, {}, this.signal).catch(() => null);
    if (job) this.logs.follow(job);
  }
}

const HEADS = [
  ["Item", ".n"],
  ["Value", ".c-value"],
  ["State", ""],
  ["Where", ""],
  ["Try", ".n"],
  ["Time", ".n"],
  ["Left", ".n"],
  ["Why", ".c-why"],
];

function many(tasks, step, state) {
  const all = state ? (step.tasks[state] ?? 0) : step.total;
  const more = all - tasks.length;
  if (!tasks.length) return h("p.note", "No task matches.");
  return [
    h("div.scroll", table("Tasks", HEADS, tasks.map(task))),
    more > 0 ? h("p.note", `The first ${number(tasks.length)} of ${number(all)}.`) : null,
  ];
}

function task(one) {
  const last = one.attempts.at(-1);
  const time = h("span");
  lasting(time, one.started, one.ended, Boolean(one.started));
  const value = typeof one.value === "string" ? one.value : JSON.stringify(one.value);
  return h(
    "tr",
    h("td.n", one.item),
    h("td.c-value", { title: value }, h("code", value)),
    h("td", badge(one.state)),
    h("td", where(last)),
    h("td.n", one.attempt || ""),
    h("td.n", time),
    h("td.n", last?.bytes ? bytes(last.bytes) : ""),
    h("td.c-why", QUIET.has(one.state) ? "" : ticks(one.why)),
  );
}

function where(attempt) {
  if (!attempt) return "";
  if (attempt.way === "here" && attempt.job)
    return h("a", { href: to(`jobs/${attempt.job}`) }, `job ${attempt.job}`);
  if (attempt.way === "flow" && attempt.job)
    return h("a", { href: to(`flows/${attempt.job}`) }, `flow ${attempt.job}`);
  if (attempt.job) return h("a", { href: to(`jobs/${attempt.job}`) }, attempt.site);
  return attempt.site || "here";
}

const TRIES = [
  ["No.", ".n"],
  ["State", ""],
  ["Where", ""],
  ["Sent", ""],
  ["Took", ".n"],
  ["Left", ".n"],
  ["Read", ".n"],
  ["Reason", ".c-why"],
];

function single(one) {
  if (!one?.attempts.length) return null;
  return [
    h("div.scroll", table("Attempts", TRIES, one.attempts.map(attempt))),
    json("Result", one.result),
  ];
}

function attempt(one) {
  const fenced = one.fenced ? " It does not count any more." : "";
  return h(
    "tr",
    h("td.n", one.number),
    h("td", badge(one.state)),
    h("td", where(one)),
    h("td", clock(one.created)),
    h("td.n", one.ended && one.started ? duration(Math.max(0, one.ended - one.started)) : ""),
    h("td.n", one.bytes ? bytes(one.bytes) : ""),
    h("td.n", one.read ? bytes(one.read) : ""),
    h("td.c-why", ticks(`${one.reason}${fenced}`)),
  );
}

function table(caption, heads, rows) {
  return h(
    "table",
    h("caption.unseen", caption),
    heading(heads),
    h("tbody", rows),
  );
}

function told(story) {
  return h(
    "details.json",
    h("summary", "What happened"),
    h(
      "ul.plain",
      story.map((line) =>
        h(
          "li",
          h("span.note", `${clock(line.time)} `),
          line.state.replaceAll("_", " "),
          line.words ? `: ${line.words}` : "",
        ),
      ),
    ),
  );
}
