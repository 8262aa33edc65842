// A small picture of a pool for a line of a table: what it has, as an area, and its demand.

const SVG = "http://www.w3.org/2000/svg";
const [WIDTH, HEIGHT] = [120, 30];

/** Draw samples from one time to another; those of one pool, the oldest first. */
export function spark(samples, from, until) {
  const svg = make("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
    class: "spark",
    role: "img",
    preserveAspectRatio: "none",
  });
  if (!samples.length) {
    svg.setAttribute("aria-label", "no data yet");
    return svg;
  }
  // What was seen last holds until now.
  const shown = [...samples, { ...samples.at(-1), time: until }];
  const most = Math.max(1, ...shown.map((one) => Math.max(one.supply, one.demand)));
  const x = (time) => (((time - from) / (until - from)) * WIDTH).toFixed(1);
  const y = (value) => (HEIGHT - 1.5 - (value / most) * (HEIGHT - 3)).toFixed(1);
  const along = (key) => shown.map((one) => `${x(one.time)} ${y(one[key])}`).join("L");
  const [first, last] = [shown[0], shown.at(-1)];
  svg.append(
    make("path", {
      class: "has",
      d: `M${x(first.time)} ${HEIGHT}L${along("supply")}L${x(last.time)} ${HEIGHT}z`,
    }),
    make("path", { class: "wants", d: `M${along("demand")}` }),
  );
  svg.setAttribute("aria-label", `at most ${most} cores in the last hour, now ${last.supply}`);
  return svg;
}

function make(kind, facts) {
  const node = document.createElementNS(SVG, kind);
  for (const [name, value] of Object.entries(facts)) node.setAttribute(name, value);
  return node;
}
