// What a job writes, followed while it runs.

import * as api from "./api.js";
import { fill, h } from "./dom.js";
import { bytes } from "./say.js";
import { final } from "./state.js";
import { complain } from "./talk.js";
import { Terminal } from "./terminal.js";

const EVERY = 1000;
/** Characters that stay on the page; the download has all. */
const MOST = 400_000;

export class Log {
  constructor(path, id, signal) {
    Object.assign(this, { path, id, signal });
    this.stream = "stdout";
    this.attempt = 0;
    this.paused = false;
    this.over = false;
    this.reading = null;
    this.tabs = ["stdout", "stderr"].map((name) =>
      h(
        "button.chip",
        {
          type: "button",
          "aria-pressed": String(name === this.stream),
          onclick: () => this.choose(name),
        },
        name,
      ),
    );
    this.which = h("select", {
      "aria-label": "Attempt",
      hidden: true,
      onchange: () => this.restart(Number(this.which.value)),
    });
    this.pause = h(
      "button.plain",
      { type: "button", "aria-pressed": "false", onclick: () => this.setPaused(!this.paused) },
      "Pause",
    );
    this.text = h("pre.text", {
      tabindex: 0,
      role: "log",
      "aria-label": "Output of the job",
      "aria-live": "off",
    });
    this.note = h("p.note", { role: "status" });
    const save = h(
      "button.plain",
      { type: "button", onclick: () => this.save().catch(complain) },
      "Download",
    );
    this.root = h(
      "div",
      h("div.head", h("h2", "Output"), h("div.row", this.tabs, this.which, this.pause, save)),
      this.text,
      this.note,
    );
    signal.addEventListener("abort", () => clearTimeout(this.timer));
  }

  /** Show the output of a job; a new attempt is followed from its beginning. */
  follow(job) {
    this.ended = final(job.state);
    const attempts = (job.attempts ?? []).map((one) => one.number);
    const numbers = attempts.length ? attempts : job.attempt ? [job.attempt] : [];
    if (!numbers.length) {
      fill(this.text);
      fill(this.note, "No output: it has not started yet.");
      return;
    }
    const last = Math.max(...numbers);
    // Of a job that failed, what it complained about.
    if (this.last === undefined && job.state === "failed") this.press("stderr");
    if (this.last !== last) {
      this.last = last;
      fill(
        this.which,
        numbers.map((number) =>
          h("option", { value: number, selected: number === last }, `attempt ${number}`),
        ),
      );
      this.which.hidden = numbers.length < 2;
      this.restart(last);
    } else if (this.over) this.restart(this.attempt, true);
  }

  press(name) {
    this.stream = name;
    for (const tab of this.tabs) tab.setAttribute("aria-pressed", String(tab.textContent === name));
  }

  choose(name) {
    this.press(name);
    this.restart(this.attempt);
  }

  /** Read from the beginning; `go` goes on where it was. */
  restart(attempt, go = false) {
    if (go && this.complete) return;
    this.reading?.abort();
    this.reading = new AbortController();
    this.attempt = attempt;
    this.over = false;
    if (!go) {
      // The end first: that is what one wants to see of a long output.
      this.offset = -MOST;
      this.dropped = false;
      this.complete = false;
      this.terminal = new Terminal();
      fill(this.text);
    }
    if (attempt) this.more();
  }

  setPaused(paused) {
    this.paused = paused;
    this.pause.setAttribute("aria-pressed", String(paused));
    fill(this.pause, paused ? "Follow" : "Pause");
    if (!paused && !this.over) this.more();
  }

  async more() {
    clearTimeout(this.timer);
    const signal = AbortSignal.any([this.reading.signal, this.signal]);
    try {
      for (let more = true; more && !this.paused && !signal.aborted;) {
        const ended = this.ended;
        const found = await this.part(this.offset, signal);
        more = found.next > Math.max(0, this.offset);
        if (this.offset < 0) this.dropped = found.next - new Blob([found.text]).size > 64;
        this.offset = found.next;
        this.append(found.text);
        if (found.end || (ended && !more)) {
          this.over = true;
          this.complete = ended;
          break;
        }
      }
    } catch (error) {
      if (signal.aborted || error.status === 401) return;
      if (error.status === 404) this.over = true;
    }
    this.tell();
    if (!this.over && !this.paused && !signal.aborted)
      this.timer = setTimeout(() => this.more(), EVERY);
  }

  part(offset, signal) {
    return api.get(
      `${this.path}/logs`,
      { stream: this.stream, attempt: this.attempt, offset },
      signal,
    );
  }

  append(text) {
    if (!text) return;
    const box = this.text;
    const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
    let shown = this.terminal.write(text);
    if (shown.length > MOST) {
      const cut = shown.indexOf("\n", shown.length - MOST) + 1;
      this.dropped = true;
      shown = shown.slice(cut);
      this.terminal.forget(cut);
    }
    box.textContent = shown;
    if (atEnd) box.scrollTop = box.scrollHeight;
  }

  tell() {
    const size = this.offset > 0 ? bytes(this.offset) : "nothing yet";
    const state = this.over && this.ended ? "it has ended" : this.paused ? "paused" : "following";
    const left = this.dropped ? "; the beginning is left out here, the download has all of it" : "";
    fill(this.note, `${this.stream} of attempt ${this.attempt}: ${size}, ${state}${left}`);
  }

  /** Save all that was written, from the first byte. */
  async save() {
    const parts = [];
    for (let offset = 0; ;) {
      const found = await this.part(offset, this.signal);
      parts.push(found.text);
      if (found.next <= offset) break;
      offset = found.next;
    }
    const address = URL.createObjectURL(new Blob(parts, { type: "text/plain" }));
    h("a", {
      href: address,
      download: `job-${this.id}.${this.attempt}.${this.stream}.txt`,
    }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }
}
