// Pictures over time, drawn by uPlot in the colours of the page.

import uPlot from "../vendor/uplot/uPlot.esm.js";
import { fill, h } from "./dom.js";
import { colour, onColours } from "./look.js";
import { number } from "./say.js";

const HEIGHT = 220;
export const PALETTE = ["s1", "s2", "s3", "s4", "s5", "s6", "s7", "s8"];

/**
 * A chart of series `{ label, colour, fill?, dash?, band? }`; `draw(data)` gives it
 * `[times, values…]`, `choose(series)` makes it anew; its scale goes up to `least` at least.
 */
export function chart(root, label, series, signal, least = 1) {
  let wanted = series;
  let data = null;
  let plot = null;
  root.setAttribute("role", "img");
  root.setAttribute("aria-label", label);

  const make = () => {
    plot?.destroy();
    plot = null;
    if (!data) return;
    fill(root);
    plot = new uPlot(options(wanted, root.clientWidth, least), data, root);
  };
  const watch = new ResizeObserver(() => {
    const width = root.clientWidth;
    if (plot && width && plot.width !== width) plot.setSize({ width, height: HEIGHT });
  });
  watch.observe(root);
  onColours(make, signal);
  signal.addEventListener("abort", () => {
    watch.disconnect();
    plot?.destroy();
  });
  return {
    choose(others) {
      wanted = others;
      make();
    },
    draw(found) {
      if (found[0].length < 2) {
        data = null;
        plot?.destroy();
        plot = null;
        fill(root, h("p.empty", "The chart needs a few seconds of data."));
        return;
      }
      data = found;
      if (plot && plot.series.length === found.length) plot.setData(found);
      else make();
    },
  };
}

function options(series, width, least) {
  const [soft, line] = [colour("soft"), colour("line")];
  const axis = {
    stroke: soft,
    grid: { stroke: line, width: 1 },
    ticks: { stroke: line, width: 1, size: 4 },
    font: "12px system-ui, sans-serif",
  };
  return {
    width,
    height: HEIGHT,
    cursor: { y: false, points: { size: 6 } },
    legend: { live: true },
    scales: { x: { time: true }, y: { range: (_, __, most) => [0, Math.max(least, most * 1.08)] } },
    axes: [
      { ...axis, space: 70, values: times },
      {
        ...axis,
        size: 52,
        space: 32,
        incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5],
        values: (_, marks) => marks.map(number),
      },
    ],
    series: [
      {
        label: "at",
        value: (plot, at) =>
          new Date((at ?? plot.data[0].at(-1)) * 1000).toLocaleTimeString("en-GB"),
      },
      ...series.map((one) => {
        const ink = colour(one.colour);
        return {
          label: one.label,
          stroke: ink,
          width: one.width ?? 2,
          dash: one.dash,
          fill: one.fill ? ink.replace(/^rgb\((.*)\)$/, `rgba($1, ${one.fill})`) : undefined,
          points: { show: false },
          paths: one.steps ? uPlot.paths.stepped({ align: 1 }) : undefined,
          // Where the pointer is; without one, the last.
          value: (plot, _, index, at) => {
            const found = (one.values?.() ?? plot.data[index])[at ?? plot.data[0].length - 1];
            return found === null ? "–" : number(found ?? 0);
          },
        };
      }),
    ],
  };
}

/** Marks of the time axis: the day only if it changes. */
function times(_, marks, __, ___, step) {
  let day = "";
  return marks.map((at) => {
    const date = new Date(at * 1000);
    const clock = date.toLocaleTimeString(
      "en-GB",
      step < 60
        ? { hour: "2-digit", minute: "2-digit", second: "2-digit" }
        : { hour: "2-digit", minute: "2-digit" },
    );
    const today = date.toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    const shown = day && day !== today ? `${clock}\n${today}` : clock;
    day = today;
    return shown;
  });
}

/** Lay series of sites on top of each other; the topmost is drawn first. */
export function stack(times, rows) {
  const sums = times.map(() => 0);
  return rows.map((row) => row.map((value, n) => (sums[n] += value ?? 0)));
}
