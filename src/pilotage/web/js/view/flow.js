// One flow: its graph as it goes on, its steps, and what to do with it.

import * as api from "../api.js";
import { calm, fill, h, heading, keyed, ticks, words } from "../dom.js";
import { json } from "../facts.js";
import { Graph } from "../flow-graph.js";
import { StepPanel } from "../flow-step.js";
import * as live from "../live.js";
import { rewrite, to } from "../router.js";
import { bytes, clock, count, number } from "../say.js";
import { badge, rebadge } from "../state.js";
import { complain, confirm, notice } from "../talk.js";
import { lasting } from "../tick.js";
import { fillProgress, isOver, progress } from "./flows.js";

/** Steps of which the table is shown, and from which on there is a field to search. */
const [MOST, MANY] = [300, 12];
/** How many times as long as reading took the page then rests: flows may have many steps. */
const REST = 8;

export function title(place) {
  return `Flow ${place.rest[0]}`;
}

export async function open(root, place, signal) {
  const view = new FlowView(root, place, signal);
  await view.read();
}

class FlowView {
  constructor(root, place, signal) {
    const id = place.rest[0];
    Object.assign(this, { root, id, signal, step: place.query.get("step") ?? "" });
    this.path = `flows/${encodeURIComponent(id)}`;
    [this.top, this.alarm, this.picture, this.data] = Array.from({ length: 4 }, () => h("div"));
    /** Steps that alone are listed, if a box stands for several. */
    this.among = null;
    this.calm = 0;
    this.graph = new Graph(this.picture, (node) => this.pick(node), signal);
    this.panel = new StepPanel(
      id,
      (step) => this.stepActs(step),
      () => this.choose(""),
      signal,
    );
    this.far = progress();
    this.time = h("span.note");
    this.moved = h("span.note");
    this.field = h("input", {
      type: "search",
      "aria-label": "Search steps",
      placeholder: "Step, site or state",
    });
    this.field.addEventListener("input", () => this.list());
    this.body = h("tbody");
    this.rest = h("p.note");
    const again = calm(600, () => this.readSoon(again));
    live.on("flows", (changed) => changed.has(Number(id)) && again(), signal);
    live.on("anew", again, signal);
    // Why it waits depends on others: ask again from time to time.
    const timer = setInterval(() => this.flow && !isOver(this.flow.state) && again(), 5000);
    signal.addEventListener("abort", () => clearInterval(timer));
  }

  /** Read again; the longer that takes, the less often. */
  readSoon(again) {
    if (document.hidden) return;
    if (performance.now() < this.calm) setTimeout(again, this.calm - performance.now());
    else this.read().catch(complain);
  }

  async read() {
    const began = performance.now();
    const [flow, picture] = await Promise.all(
      ["", "/graph"].map((tail) => api.get(this.path + tail, {}, this.signal)),
    );
    this.flow = flow;
    if (!this.top.isConnected) this.build();
    this.head(flow);
    this.graph.draw(picture, flow.name);
    this.graph.mark(this.among ? [...this.among][0] : this.step);
    this.list();
    await this.panel.open(this.step);
    this.calm = performance.now() + REST * (performance.now() - began);
  }

  build() {
    const heads = [
      ["Step", ".c-name"],
      ["State", ".c-state"],
      ["Tasks", ".n.c-tasks"],
      ["Where", ".c-site"],
      ["Tries", ".n.c-tries"],
      ["Time", ".n.c-time"],
      ["Left", ".n.c-left"],
      ["Read", ".n.c-read"],
      ["Why", ".c-why"],
    ];
    fill(
      this.root,
      h("p.crumbs", h("a", { href: to("flows") }, "Flows")),
      this.top,
      this.alarm,
      h("div.flow-facts", this.far, this.time, this.moved),
      h("section.panel.graph", { "aria-label": "Graph" }, this.picture),
      this.panel.root,
      h("div.head", h("h2", "Steps"), this.field),
      h(
        "div.panel.flush",
        h(
          "table.flow-steps.cards",
          h("caption.unseen", "Steps"),
          heading(heads),
          this.body,
        ),
      ),
      this.rest,
      this.data,
    );
  }

  head(flow) {
    fillProgress(this.far, flow);
    lasting(this.time, flow.created, flow.ended, !flow.ended);
    const sum = (key) => flow.rows.reduce((total, step) => total + step[key], 0);
    const [left, read] = [sum("bytes"), sum("read")];
    words(this.moved, left || read ? `${bytes(left)} left, ${bytes(read)} read` : "");
    const told = JSON.stringify([flow.state, flow.reason, flow.steer, flow.cleared]);
    if (told === this.told) return;
    this.told = told;
    const focused = this.top.contains(document.activeElement);
    const may = flow.steer
      ? h("div.row", this.acts(flow))
      : h("p.note", "Your token may read, but not change it.");
    const facts = [`started ${clock(flow.created)}`, flow.owner && `by ${flow.owner}`, flow.tag];
    fill(
      this.top,
      h(
        "div.head",
        h("h1", flow.name, h("span.note", ` flow ${flow.id}`), " ", badge(flow.state)),
        may,
      ),
      flow.description ? h("p", flow.description) : null,
      h(
        "p.note",
        facts.filter(Boolean).join(", "),
        flow.cleared ? "; its data was cleared away" : "",
      ),
    );
    if (focused) this.top.querySelector("button")?.focus();
    const bad = flow.state === "failed";
    fill(
      this.alarm,
      flow.reason
        ? h(bad ? "div.alarm.bad" : "div.alarm", { role: "alert" }, h("p", ...ticks(flow.reason)))
        : null,
    );
    fill(
      this.data,
      Object.keys(flow.params).length
        ? h("section.panel", h("h2", "Definition"), json("Parameters", flow.params, true))
        : null,
    );
  }

  acts(flow) {
    const button = (verb, text, act, kind = "plain") =>
      h(`button.${kind}`, { type: "button", "data-act": verb, onclick: act }, text);
    if (!isOver(flow.state))
      return flow.state === "cancelling" ? [] : [button("cancel", "Cancel", () => this.cancel())];
    return flow.state === "done"
      ? []
      : [button("retry", "Retry failed steps", () => this.retry([]))];
  }

  stepActs(step) {
    if (!this.flow.steer || !isOver(this.flow.state)) return null;
    return h(
      "button.plain",
      { type: "button", "data-act": "from", onclick: () => this.retry([step.name]) },
      "Retry from here",
    );
  }

  async cancel() {
    const running = this.flow.rows.filter((step) => step.state === "running").length;
    const lines = [`${count(running, "step")} will be cancelled at their sites.`];
    if (await confirm(`Cancel flow ${this.id}?`, lines, "Cancel it"))
      await this.act("cancel", undefined, "is being cancelled");
  }

  async retry(steps) {
    const lines = steps.length
      ? [`${steps[0]} and all steps after it run again. Earlier steps are kept.`]
      : ["Failed and cancelled steps run again, and all steps after them. Finished steps are kept."];
    if (await confirm(`Retry flow ${this.id}?`, lines, "Retry it", "main"))
      await this.act("retry", { steps }, "runs again");
  }

  async act(verb, body, done) {
    try {
      await api.post(`${this.path}/${verb}`, body);
      notice(`Flow ${this.id} ${done}`);
      await this.read();
    } catch (error) {
      complain(error);
    }
  }

  /** A person has chosen a box; of one that stands for several steps those are listed. */
  pick(node) {
    const several = node.steps.length > 1;
    const again = several ? this.among?.has(node.id) : node.id === this.step;
    this.among = several && !again ? new Set(node.steps) : null;
    this.field.value = "";
    this.list();
    this.choose(several || again ? "" : node.id);
    if (!this.among) return;
    this.graph.mark(node.id);
    this.body.closest(".panel").scrollIntoView({ block: "nearest" });
  }

  choose(step) {
    this.step = step;
    rewrite(to(`flows/${this.id}`, { step }));
    this.graph.mark(step);
    this.panel
      .open(step)
      .then(() => step && this.panel.root.scrollIntoView({ block: "nearest" }))
      .catch(complain);
  }

  list() {
    const { among } = this;
    const asked = this.field.value.trim().toLowerCase();
    const all = this.flow.rows;
    const found = all.filter(
      (step) =>
        (!among || among.has(step.name)) &&
        [step.name, step.state, ...step.sites].some((text) => text.toLowerCase().includes(asked)),
    );
    this.field.hidden = all.length < MANY;
    keyed(
      this.body,
      found.slice(0, MOST),
      (step) => step.name,
      (step) => this.row(step),
      update,
    );
    const more = found.length - MOST;
    const others = among ? `only ${count(found.length, "step")} of the box that you chose` : "";
    words(this.rest, more > 0 ? `and ${number(more)} more: search for them` : others);
  }

  row(step) {
    const link = h("button.step", { type: "button", onclick: () => this.choose(step.name) });
    words(link, step.name);
    return h(
      "tr",
      h("td.c-name", link),
      h("td.c-state"),
      h("td.n.c-tasks"),
      h("td.c-site"),
      h("td.n.c-tries"),
      h("td.n.c-time", h("span")),
      h("td.n.c-left"),
      h("td.n.c-read"),
      h("td.c-why"),
    );
  }
}

function update(row, step) {
  const cell = (name) => row.querySelector(`.c-${name}`);
  rebadge(cell("state"), step.state);
  words(
    cell("tasks"),
    step.each && step.total ? `${number(step.total - step.open)}/${number(step.total)}` : "",
  );
  words(cell("site"), step.sites.join(", "));
  words(cell("tries"), step.attempts ? number(step.attempts) : "");
  lasting(cell("time").firstChild, step.started, step.ended, Boolean(step.started));
  words(cell("left"), step.bytes ? bytes(step.bytes) : "");
  words(cell("read"), step.read ? bytes(step.read) : "");
  if (row.dataset.why !== step.why) {
    row.dataset.why = step.why;
    fill(cell("why"), ticks(step.why));
  }
}
