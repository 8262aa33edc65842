// One job: why it is as it is, what happened to it, what it wrote, and what to do with it.

import * as api from "../api.js";
import { calm, fill, h, ticks } from "../dom.js";
import { facts, json } from "../facts.js";
import { VERBS, WORDS, one, verbs } from "../job-acts.js";
import * as live from "../live.js";
import { Log } from "../log.js";
import { learnPilots, where, whereTo } from "../pilot-names.js";
import { to } from "../router.js";
import { bytes, clock, duration } from "../say.js";
import { badge } from "../state.js";
import { attempts, story } from "../story.js";
import { complain } from "../talk.js";
import { ago, lasting } from "../tick.js";

export function title(place) {
  return `Job ${place.rest[0]}`;
}

export async function open(root, place, signal) {
  const view = new JobView(root, place.rest[0], signal);
  await learnPilots(signal);
  await view.read();
}

class JobView {
  constructor(root, id, signal) {
    Object.assign(this, { root, id, signal });
    [this.top, this.why, this.facts, this.story, this.attempts, this.data] = [
      "header",
      "div",
      "div",
      "div",
      "div",
      "div",
    ].map((tag) => h(tag));
    this.path = `jobs/${encodeURIComponent(id)}`;
    this.log = new Log(this.path, id, signal);
    const again = calm(700, () => this.read().catch(complain));
    live.on("jobs", (changed) => changed.has(Number(id)) && again(), signal);
    live.on("anew", again, signal);
    // Why it waits depends on others: ask again from time to time.
    const timer = setInterval(() => document.hidden || this.readWhy().catch(complain), 5000);
    signal.addEventListener("abort", () => clearInterval(timer));
  }

  async read() {
    const [job, told] = await Promise.all(
      ["", "/story"].map((tail) => api.get(this.path + tail, {}, this.signal)),
    );
    await this.readWhy();
    if (!this.top.isConnected) this.build();
    this.show(job, told);
  }

  async readWhy() {
    const why = await api.get(`${this.path}/explain`, {}, this.signal);
    const now = JSON.stringify(why);
    if (this.explained === now) return;
    this.explained = now;
    fill(
      this.why,
      h("h2.unseen", "Why"),
      h("p.headline", why.headline),
      why.reasons?.length
        ? h(
            "ul",
            why.reasons.map((reason) =>
              h("li", reason.text, reason.detail ? h("span.note", `: ${reason.detail}`) : null),
            ),
          )
        : null,
      why.suggestion ? h("p.next", ...ticks(why.suggestion)) : null,
    );
  }

  build() {
    fill(
      this.root,
      h("p.crumbs", h("a", { href: to("jobs") }, "Jobs")),
      this.top,
      h(
        "div.split.even",
        h(
          "div",
          h("section.panel.why", { "aria-live": "polite" }, this.why),
          h("section.panel", h("h2", "Facts"), this.facts),
        ),
        h("section.panel", h("h2", "Story"), this.story),
      ),
      h("section.panel.log", this.log.root),
      h("section.panel", h("h2", "Attempts"), this.attempts),
      this.data,
    );
  }

  show(job, told) {
    const able = verbs(job.state);
    const act = async (verb) => (await one(job, verb)) && this.read();
    const buttons = VERBS.filter((verb) => able.includes(verb)).map((verb) =>
      h(
        "button.plain",
        { type: "button", "data-verb": verb, onclick: () => act(verb).catch(complain) },
        WORDS[verb][0],
      ),
    );
    const focus = this.top.contains(document.activeElement);
    fill(
      this.top,
      h(
        "div.head",
        h("h1", job.name, h("span.note", ` job ${job.id}`), " ", badge(job.state)),
        h("div.row", buttons),
      ),
    );
    if (focus) this.top.querySelector("button")?.focus();
    fill(this.facts, facts(known(job)));
    fill(this.story, story(told));
    fill(this.attempts, attempts(job.attempts ?? []));
    const kept = [...this.data.querySelectorAll("details")].map((node) => node.open);
    fill(
      this.data,
      h(
        "section.panel",
        h("h2", "Definition"),
        json("Result", job.result, true),
        json("Parameters", params(job)),
        json("Binding", job.binding),
        json("Specification", job.spec),
      ),
    );
    this.data.querySelectorAll("details").forEach((node, n) => (node.open = kept[n] ?? node.open));
    this.log.follow(job);
  }
}

function known(job) {
  const time = h("span");
  lasting(time, job.started, job.ended, job.state === "running");
  const need = job.spec?.resources ?? {};
  const place = job.place ? h("a", { href: whereTo(job) }, where(job)) : "";
  return [
    ["Owner", job.owner],
    ["Rule", job.rule && h("a", { href: to("jobs", { name: job.name }) }, job.rule)],
    ["Tag", job.tag && h("a", { href: to("jobs", { tag: job.tag }) }, job.tag)],
    ["Priority", job.priority || ""],
    ["Made", h("span", clock(job.created), h("span.note", " ", ago(job.created)))],
    ["Started", job.started && clock(job.started)],
    ["Ended", job.ended && clock(job.ended)],
    ["Time", time.textContent && time],
    ["Where", place],
    ["Attempt", job.attempt || ""],
    ["File", job.binding?.path],
    ["Caused by", job.parent && h("a", { href: to(`jobs/${job.parent}`) }, `job ${job.parent}`)],
    ["Cores", need.cpus ?? 1],
    ["Memory", need.memory && bytes(need.memory)],
    ["GPUs", need.gpus || ""],
    ["Most time", need.time && duration(need.time)],
    ["Requirements", job.spec?.requirements && h("code", job.spec.requirements)],
    ["Command", job.spec?.recipe?.argv && h("code", job.spec.recipe.argv.map(quoted).join(" "))],
  ];
}

function params(job) {
  const all = { ...job.spec?.params, ...job.binding?.match, ...job.binding?.sweep };
  return Object.keys(all).length ? all : null;
}

/** A word as a shell would want it. */
function quoted(word) {
  return /^[\w@%+=:,./{}-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
