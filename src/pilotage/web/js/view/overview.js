// How it goes: alarms, numbers, rates, the last hours as a picture, what failed.

import * as api from "../api.js";
import { chart } from "../charts.js";
import { calm, fill, h } from "../dom.js";
import * as live from "../live.js";
import { to } from "../router.js";
import { SPANS, read, together } from "../samples.js";
import { count, number, rate } from "../say.js";
import { badge, icon, tone } from "../state.js";
import { command, complain, empty } from "../talk.js";
import { ago, since } from "../tick.js";

const FIGURES = [
  ["queued", ["queued", "ready", "submitted", "staging_in"]],
  ["running", ["running", "staging_out"]],
  ["done", ["done"]],
  ["failed", ["failed", "rejected"]],
  ["held", ["held"]],
];
const GONE = new Set(["down", "failed", "lost"]);
const BAD = "failed,rejected";
const FAILURES = 8;
/** Points that a picture may gather before it reads anew. */
const POINTS = 2000;

export async function open(root, _, signal) {
  const view = new Overview(root, signal);
  const found = await api.get("overview", {}, signal);
  live.know(found);
  view.show(found);
  await Promise.all([view.readFailures(), view.readHistory()]);
}

class Overview {
  constructor(root, signal) {
    this.signal = signal;
    this.columns = [[], [], [], []];
    this.alarms = h("div.alarms", { role: "alert" });
    this.figures = h("dl.figures");
    this.rates = h("dl.rates");
    this.picture = h("div.chart");
    this.failures = h("div");
    this.welcome = h("div");
    this.spans = h(
      "select",
      { "aria-label": "Time span", onchange: () => this.readHistory().catch(complain) },
      SPANS.map(([words, seconds]) =>
        h("option", { value: seconds, selected: seconds === 3600 }, words),
      ),
    );
    fill(
      root,
      h("h1.unseen", "Overview"),
      this.alarms,
      this.figures,
      this.welcome,
      h(
        "div.split",
        h(
          "section.panel",
          h("div.head", h("h2", "Jobs and cores over time"), this.spans),
          this.picture,
        ),
        h("section.panel", h("h2", "Now"), this.rates),
      ),
      h(
        "section.panel",
        h(
          "div.head",
          h("h2", "Recent failures"),
          h("a", { href: to("jobs", { state: BAD }) }, "All"),
        ),
        this.failures,
      ),
    );
    this.plot = chart(
      this.picture,
      "Running jobs, cores in use and cores in all over time",
      [
        { label: "running jobs", colour: "s1", fill: 0.15 },
        { label: "cores in use", colour: "s2", dash: [8, 4] },
        { label: "cores in all", colour: "soft", width: 1, dash: [2, 3] },
      ],
      signal,
    );
    live.on(
      "overview",
      (found) => {
        this.show(found);
        this.append(found);
      },
      signal,
    );
    live.on("alarms", (found) => this.showAlarms(found), signal);
    const again = calm(3000, () => this.readFailures().catch(complain));
    live.on(
      "jobs",
      (changed) => {
        if (
          [...changed.values()].some((job) => tone(job.state) === "bad" || this.listed?.has(job.id))
        )
          again();
      },
      signal,
    );
    live.on(
      "anew",
      () => {
        again();
        this.readHistory().catch(complain);
      },
      signal,
    );
  }

  show(found) {
    this.showAlarms(found.alarms);
    const sum = (states) => states.reduce((total, state) => total + (found.counts[state] ?? 0), 0);
    const others = ["waiting", "cancelled"]
      .filter((state) => found.counts[state])
      .map((state) => [state, [state]]);
    fill(
      this.figures,
      [...FIGURES, ...others].map(([name, states]) => {
        const many = sum(states);
        return h(
          `a.figure.${many ? tone(name) : "quiet"}`,
          { href: to("jobs", { state: states.join(",") }), "data-state": name },
          h("dt", badge(name)),
          h("dd", number(many)),
        );
      }),
    );
    const pilots = Object.entries(found.pilots).filter(([state, many]) => many && !GONE.has(state));
    fill(
      this.rates,
      [
        ["Submitted", rate(found.rates.submitted)],
        ["Started", rate(found.rates.started)],
        ["Ended", rate(found.rates.ended)],
        ["Cores in use", `${number(found.used)} of ${number(found.cpus)}`],
        [
          "Pilots",
          pilots.length
            ? pilots.map(([state, many]) => `${number(many)} ${state}`).join(", ")
            : "none",
        ],
      ].map(([name, value]) => h("div", h("dt", name), h("dd", value))),
    );
    this.showWelcome(found);
  }

  showWelcome(found) {
    const fresh = !Object.values(found.counts).some(Boolean);
    if (fresh === this.welcome.hasChildNodes()) return;
    fill(
      this.welcome,
      fresh
        ? empty(
            "Nothing has run here yet. Run something by hand:",
            command("pilotage submit echo hello"),
            h(
              "p.note",
              "Or add a rule to a file in ",
              h("code", "rules/"),
              ": it makes jobs of files as they come.",
            ),
          )
        : null,
    );
  }

  showAlarms(alarms) {
    const now = JSON.stringify(alarms);
    if (this.shownAlarms === now) return;
    this.shownAlarms = now;
    fill(
      this.alarms,
      alarms.map((alarm) =>
        h(
          "div.alarm",
          icon("bell"),
          h("p", h("strong", alarm.words), " ", h("span.note", "for ", since(alarm.since))),
        ),
      ),
    );
  }

  async readFailures() {
    const { jobs } = await api.get("jobs", { state: BAD, limit: FAILURES }, this.signal);
    this.listed = new Set(jobs.map((job) => job.id));
    fill(
      this.failures,
      jobs.length
        ? h(
            "ul.failures",
            jobs.map((job) =>
              h(
                "li",
                badge(job.state),
                h(
                  "div",
                  h("a", { href: to(`jobs/${job.id}`) }, job.name, h("span.note", ` ${job.id}`)),
                  h("p", job.reason || "no reason given"),
                ),
                h("span.note", ago(job.ended)),
              ),
            ),
          )
        : h("p.note", "Nothing failed."),
    );
  }

  async readHistory() {
    const samples = await read(Number(this.spans.value), this.signal);
    this.columns = together(samples);
    this.plot.draw(this.columns);
  }

  /** Go on with the picture; it forgets at its left edge what came in at the right. */
  append(found) {
    const [times] = this.columns;
    if (times.length > POINTS) {
      this.readHistory().catch(complain);
      return;
    }
    if (times.length && found.now <= times.at(-1)) return;
    const values = [found.now, found.counts.running ?? 0, found.used, found.cpus];
    this.columns.forEach((column, n) => column.push(values[n]));
    const edge = found.now - Number(this.spans.value);
    const old = times.findIndex((time) => time >= edge);
    if (old > 0) this.columns.forEach((column) => column.splice(0, old));
    this.plot.draw(this.columns);
    this.picture.dataset.points = String(times.length);
    this.picture.setAttribute(
      "aria-label",
      `${count(values[1], "job")} running, ${values[2]} of ${values[3]} cores in use`,
    );
  }
}
