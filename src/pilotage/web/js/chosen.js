// Jobs of a table that were chosen, and the bar of what can be done with all of them.

import { h } from "./dom.js";
import { VERBS, WORDS, many, verbs } from "./job-acts.js";
import { count } from "./say.js";
import { complain } from "./talk.js";

export class Chosen {
  /** Choose among the jobs that `shown` returns, in the rows of `body`; `done` reads them anew. */
  constructor(body, shown, done) {
    Object.assign(this, { body, shown, done });
    this.jobs = new Map();
    this.all = h("input", {
      type: "checkbox",
      "aria-label": "Select all jobs shown",
      onchange: () => this.takeAll(),
    });
    this.words = h("strong");
    this.buttons = VERBS.map((verb) =>
      h(
        "button.plain",
        { type: "button", "data-verb": verb, onclick: () => this.act(verb) },
        WORDS[verb][0],
      ),
    );
    const none = h("button.quiet", { type: "button", onclick: () => this.clear() }, "Clear selection");
    this.bar = h("div.bulk", { hidden: true }, this.words, this.buttons, none);
    body.addEventListener("change", (event) => this.toggle(event.target.closest("tr")));
  }

  toggle(line) {
    const job = this.shown().find((one) => String(one.id) === line?.dataset.key);
    if (!job) return;
    if (!this.jobs.delete(job.id)) this.jobs.set(job.id, job);
    this.mark(line);
    this.show();
  }

  takeAll() {
    const wanted = this.all.checked;
    this.jobs = new Map(wanted ? this.shown().map((job) => [job.id, job]) : []);
    for (const line of this.body.children) this.mark(line);
    this.show();
  }

  clear() {
    this.jobs.clear();
    for (const line of this.body.children) this.mark(line);
    this.show();
  }

  /** Keep what a chosen job has become. */
  learn(job) {
    if (this.jobs.has(job.id)) this.jobs.set(job.id, job);
  }

  /** Show in its row whether a job is chosen. */
  mark(line) {
    const chosen = this.jobs.has(Number(line.dataset.key));
    line.classList.toggle("chosen", chosen);
    line.querySelector(".tick input").checked = chosen;
  }

  /** Show how many are chosen, and what can be done with some of them. */
  show() {
    const jobs = [...this.jobs.values()];
    const shown = this.shown();
    this.bar.hidden = !jobs.length;
    this.all.checked = shown.length > 0 && shown.every((job) => this.jobs.has(job.id));
    this.words.textContent = `${count(jobs.length, "job")} selected`;
    for (const button of this.buttons) {
      button.disabled = !jobs.some((job) => verbs(job.state).includes(button.dataset.verb));
    }
  }

  async act(verb) {
    try {
      if (!(await many([...this.jobs.values()], verb))) return;
      this.clear();
      await this.done();
    } catch (error) {
      complain(error);
    }
  }
}
