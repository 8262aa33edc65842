// All jobs: filtered and paged by the hub, changed in place by the stream.

import * as api from "../api.js";
import { Chosen } from "../chosen.js";
import { calm, fill, h, keyed, later } from "../dom.js";
import * as row from "../job-row.js";
import * as keys from "../keys.js";
import * as live from "../live.js";
import { learnPilots } from "../pilot-names.js";
import { rewrite, to } from "../router.js";
import { count, number } from "../say.js";
import { JOB_STATES } from "../state.js";
import { command, complain, empty } from "../talk.js";

const PAGE = 100;
const FIELDS = [
  ["search", "Search", "name, tag, reason or number"],
  ["name", "Name", "fit*"],
  ["owner", "Owner", ""],
  ["tag", "Tag", ""],
];

export async function open(root, place, signal) {
  const view = new Jobs(root, place.query, signal);
  await Promise.all([view.read(), learnPilots(signal)]);
  view.draw();
}

class Jobs {
  constructor(root, query, signal) {
    this.signal = signal;
    this.filter = Object.fromEntries(
      ["state", "search", "name", "owner", "tag", "before"].map((name) => [
        name,
        query.get(name) ?? "",
      ]),
    );
    this.shown = [];
    this.reading = new AbortController();
    this.refresh = calm(1500, () => this.read().catch(complain));
    this.build(root);
    live.on("jobs", (changed) => this.change(changed), signal);
    live.on("anew", this.refresh, signal);
    live.on("overview", (found) => this.showCounts(found), signal);
    this.showCounts(live.latest);
  }

  build(root) {
    this.states = h(
      "div.chips",
      { role: "group", "aria-label": "State" },
      ["", ...JOB_STATES].map((state) => this.chip(state)),
    );
    this.fields = FIELDS.map((field) => this.field(field));
    this.body = h("tbody");
    this.chosen = new Chosen(
      this.body,
      () => this.shown,
      () => this.read(),
    );
    const heads = row.HEADS.map(([name, kind, words]) =>
      h(`th.c-${name}${kind ? `.${kind}` : ""}`, { scope: "col" }, words),
    );
    this.table = h(
      "table.jobs.cards",
      h("caption.unseen", "Jobs, the newest first"),
      h("thead", h("tr", h("th.tick", { scope: "col" }, h("label.hit", this.chosen.all)), heads)),
      this.body,
    );
    this.none = h("div");
    this.pages = h("nav.pages", { "aria-label": "Pages" });
    this.tally = h("p.note", { role: "status" });
    fill(
      root,
      h("div.head", h("h1", "Jobs"), this.tally),
      this.states,
      h(
        "form.filters",
        { role: "search", onsubmit: (event) => event.preventDefault() },
        this.fields,
      ),
      this.chosen.bar,
      h("div.panel.flush", this.table, this.none),
      this.pages,
    );
    keys.rows(this.body, (line) => this.chosen.toggle(line));
    keys.search(this.fields[0].querySelector("input"), this.signal);
  }

  chip(state) {
    const press = () => this.narrow({ state: state ? this.toggled(state) : "" });
    return h(
      "button.chip",
      { type: "button", "data-state": state, onclick: press },
      state || "all",
      " ",
      h("span.count"),
    );
  }

  /** The chosen states with one more, or without it. */
  toggled(state) {
    const chosen = new Set(this.filter.state.split(",").filter(Boolean));
    if (!chosen.delete(state)) chosen.add(state);
    return [...chosen].join(",");
  }

  field([name, label, hint]) {
    const type = later(250, (value) => this.narrow({ [name]: value }));
    return h(
      "label.field",
      { "data-field": name },
      h("span", label),
      h("input", {
        type: "search",
        value: this.filter[name],
        placeholder: hint,
        autocomplete: "off",
        spellcheck: "false",
        oninput: (event) => type(event.target.value.trim()),
      }),
    );
  }

  /** Ask for other jobs; what was chosen among the old ones is let go. */
  narrow(change) {
    Object.assign(this.filter, { before: "" }, change);
    rewrite(to("jobs", this.filter));
    this.chosen.clear();
    this.read().catch(complain);
  }

  async read() {
    this.reading.abort();
    this.reading = new AbortController();
    const either = AbortSignal.any([this.reading.signal, this.signal]);
    const found = await api.get("jobs", { ...this.filter, limit: PAGE }, either);
    this.shown = found.jobs;
    this.next = found.next;
    this.draw();
  }

  /** Take changes of the stream: rows that are here at once, the rest by reading anew. */
  change(changed) {
    let others = false;
    const here = new Set(this.shown.map((job) => job.id));
    this.shown = this.shown.map((job) => {
      const now = changed.get(job.id);
      if (!now) return job;
      if (this.filter.state && !this.filter.state.split(",").includes(now.state)) others = true;
      return { ...job, ...now };
    });
    for (const id of changed.keys()) if (!here.has(id)) others = true;
    for (const job of this.shown) if (changed.has(job.id)) this.redraw(job);
    if (others && !this.filter.before) this.refresh();
    this.chosen.show();
  }

  redraw(job) {
    const line = this.body.querySelector(`tr[data-key="${job.id}"]`);
    if (line) row.update(line, job);
    this.chosen.learn(job);
  }

  draw() {
    const chosen = this.filter.state.split(",");
    for (const button of this.states.children) {
      button.setAttribute("aria-pressed", String(chosen.includes(button.dataset.state)));
    }
    keyed(
      this.body,
      this.shown,
      (job) => job.id,
      row.make,
      (line, job) => {
        row.update(line, job);
        this.chosen.mark(line);
      },
    );
    this.table.hidden = !this.shown.length;
    fill(this.none, this.shown.length ? null : this.nothing());
    fill(this.tally, this.shown.length ? `${count(this.shown.length, "job")} shown` : "");
    fill(
      this.pages,
      this.filter.before
        ? h("a", { href: to("jobs", { ...this.filter, before: "" }) }, "Newest")
        : null,
      this.next
        ? h("a", { href: to("jobs", { ...this.filter, before: this.next }) }, "Older")
        : null,
    );
    this.chosen.show();
  }

  nothing() {
    const { before: _, ...asked } = this.filter;
    if (Object.values(asked).some(Boolean)) {
      const clear = () => {
        this.fields.forEach((field) => (field.querySelector("input").value = ""));
        this.narrow({ state: "", search: "", name: "", owner: "", tag: "" });
      };
      if (this.next) return empty(`No job from ${this.next} on matches; older ones may.`);
      return empty(
        "No job matches.",
        h("button.plain", { type: "button", onclick: clear }, "Show all jobs"),
      );
    }
    return empty(
      "No jobs yet. Put a file where a rule waits for it, or run something by hand:",
      command("pilotage submit echo hello"),
    );
  }

  showCounts(overview) {
    if (!overview) return;
    for (const button of this.states.children) {
      const { state } = button.dataset;
      const some = state
        ? (overview.counts[state] ?? 0)
        : Object.values(overview.counts).reduce((sum, n) => sum + n, 0);
      button.querySelector(".count").textContent = number(some);
    }
  }
}
