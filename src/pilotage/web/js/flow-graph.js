// The graph of a flow: boxes stay where they are while their states, times and sizes change.

import { printable } from "./dom.js";
import { bytes, now, number, ticking } from "./say.js";
import { sign, tone } from "./state.js";

const SVG = "http://www.w3.org/2000/svg";
/** Pixels of a letter of the first and of the second line. */
const [LETTER, SMALL] = [7.4, 6];
const SIDE = 10;

export class Graph {
  /** `choose(node)` is called with the box that a person has chosen. */
  constructor(root, choose, signal) {
    this.root = root;
    this.choose = choose;
    this.boxes = new Map();
    const clock = setInterval(() => document.hidden || this.tick(), 1000);
    signal.addEventListener("abort", () => clearInterval(clock));
  }

  /** Show a picture; only another shape is drawn anew. */
  draw(picture, name) {
    const shape = JSON.stringify([
      picture.width,
      picture.height,
      picture.nodes.map((node) => [node.id, node.x, node.y, node.width]),
    ]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.build(picture, name);
    }
    for (const node of picture.nodes) this.update(node);
    for (const [path, source] of this.arrows) {
      const over = this.boxes.get(source)?.node.state === "done";
      path.setAttribute("class", over ? "edge past" : "edge");
    }
  }

  build(picture, name) {
    const kept = document.activeElement?.closest?.("[data-node]")?.dataset.node;
    this.boxes = new Map();
    const svg = make("svg", {
      viewBox: `0 0 ${picture.width} ${picture.height}`,
      width: picture.width,
      height: picture.height,
      class: "flow-graph",
      role: "group",
      "aria-label": `Steps of ${name}`,
    });
    svg.style.setProperty("--least", `${Math.round(picture.width * 0.72)}px`);
    const head = make("marker", {
      id: "flow-head",
      viewBox: "0 0 10 10",
      refX: 9,
      refY: 5,
      markerWidth: 7,
      markerHeight: 7,
      orient: "auto",
    });
    head.append(make("path", { class: "head", d: "M0 0L10 5L0 10z" }));
    const defs = make("defs");
    defs.append(head);
    svg.append(defs);
    this.arrows = picture.arrows.map((arrow) => {
      const path = make("path", { d: arrow.path, "marker-end": "url(#flow-head)" });
      svg.append(path);
      return [path, arrow.source];
    });
    for (const node of picture.nodes) svg.append(this.box(node, picture.high));
    this.root.replaceChildren(svg);
    if (kept) this.boxes.get(kept)?.group.focus();
    this.mark(this.chosen);
  }

  box(node, high) {
    const { x, y, width } = node;
    const group = make("g", { tabindex: 0, role: "button", transform: `translate(${x} ${y})` });
    group.dataset.node = node.id;
    const parts = {
      group,
      frame: make("rect", { class: "frame", width, height: high, rx: 8 }),
      sign: make("g"),
      title: make("text", { class: "title", x: 34, y: 21 }),
      sub: make("text", { class: "sub", x: SIDE + 2, y: 38 }),
      rail: make("rect", {
        class: "rail",
        x: SIDE,
        y: high - 8,
        width: width - 2 * SIDE,
        height: 3,
        rx: 1.5,
      }),
      bar: make("rect", { class: "bar-now", x: SIDE, y: high - 8, width: 0, height: 3, rx: 1.5 }),
      hint: make("title"),
    };
    group.append(
      parts.hint,
      parts.frame,
      parts.sign,
      parts.title,
      parts.sub,
      parts.rail,
      parts.bar,
    );
    const pick = () => this.choose(this.boxes.get(node.id).node);
    group.addEventListener("click", pick);
    group.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      pick();
    });
    this.boxes.set(node.id, parts);
    return group;
  }

  update(node) {
    const box = this.boxes.get(node.id);
    box.node = node;
    const state = node.state || "waiting";
    if (box.state !== state) {
      box.state = state;
      const icon = sign(state);
      for (const [name, value] of Object.entries({ x: 12, y: 9, width: 15, height: 15 }))
        icon.setAttribute(name, value);
      box.sign.replaceChildren(icon);
      box.group.setAttribute("class", `node ${tone(state)} ${state}`);
    }
    const many = node.total > 1;
    const label = many ? `${node.label} ${number(node.done)}/${number(node.total)}` : node.label;
    say(box.title, cut(label, (node.width - 46) / LETTER));
    box.rail.style.display = many ? "" : "none";
    box.bar.style.display = many ? "" : "none";
    if (many) box.bar.setAttribute("width", ((node.width - 2 * SIDE) * node.done) / node.total);
    this.time(box);
    const told = [label, state.replaceAll("_", " "), node.why, node.sites.join(", ")];
    say(box.hint, told.filter(Boolean).join("\n"));
    box.group.setAttribute("aria-label", told.filter(Boolean).join(", "));
  }

  time(box) {
    const { node } = box;
    const took = node.started ? ticking((node.ended ?? now()) - node.started) : "";
    const where = node.sites.slice(0, 2).join(", ") + (node.sites.length > 2 ? " …" : "");
    const facts = [where, took, node.bytes ? bytes(node.bytes) : ""].filter(Boolean);
    say(box.sub, cut(facts.join(" · ") || node.runs, (node.width - 2 * SIDE) / SMALL));
  }

  tick() {
    for (const box of this.boxes.values())
      if (box.node?.started && !box.node.ended) this.time(box);
  }

  /** Show which box is chosen: the one with this step in it. */
  mark(step) {
    this.chosen = step;
    for (const box of this.boxes.values())
      box.group.classList.toggle("chosen", Boolean(box.node?.steps.includes(step)));
  }
}

function say(node, text) {
  const shown = printable(text);
  if (node.textContent !== shown) node.textContent = shown;
}

function cut(text, most) {
  const room = Math.max(4, Math.floor(most));
  return text.length <= room ? text : `${text.slice(0, room - 1)}…`;
}

function make(kind, facts = {}) {
  const node = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(facts)) node.setAttribute(name, value);
  return node;
}
