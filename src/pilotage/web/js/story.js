// The story of a job as a time line, and its attempts as a table.

import { h, heading } from "./dom.js";
import { to } from "./router.js";
import { bytes, clock, duration, stamp } from "./say.js";
import { badge, tone } from "./state.js";

/** All that happened, from event to result. */
export function story(told) {
  const first = told.moments[0]?.time ?? 0;
  const moments = told.moments.map((one, n) =>
    h(
      `li.${one.state ? tone(one.state) : "quiet"}`,
      h(
        "time",
        { datetime: stamp(one.time), title: clock(one.time) },
        n ? `+${duration(Math.max(0, one.time - first))}` : clock(one.time),
      ),
      h(
        "div",
        h("strong", one.what),
        one.state && !one.what.includes(one.state)
          ? h("span.note", ` ${one.state.replaceAll("_", " ")}`)
          : null,
        (one.details ?? []).map((line) => h("p", line)),
      ),
    ),
  );
  const more = [
    told.outputs?.length
      ? h(
          "div",
          h("h3", "Writes"),
          h(
            "ul.plain",
            told.outputs.map((path) => h("li", h("code", path))),
          ),
        )
      : null,
    told.children?.length
      ? h(
          "div",
          h("h3", "Caused"),
          h(
            "ul.plain",
            told.children.map((child) =>
              h(
                "li",
                badge(child.state),
                " ",
                h(
                  "a",
                  { href: to(`jobs/${child.id}`) },
                  child.name,
                  h("span.note", ` ${child.id}`),
                ),
              ),
            ),
          ),
        )
      : null,
  ];
  return [h("ol.story", moments), more];
}

/** Each try at running a job. */
export function attempts(list) {
  if (!list.length) return h("p.note", "It has not started yet.");
  const heads = [
    ["No.", ".n"],
    ["State", ""],
    ["Began", ""],
    ["Took", ".n"],
    ["Processor", ".n.wide"],
    ["Memory", ".n.wide"],
    ["Exit", ".n"],
    ["Reason", ""],
  ];
  return h(
    "div.scroll",
    h(
      "table",
      h("caption.unseen", "Attempts"),
      heading(heads),
      h(
        "tbody",
        list.map((one) =>
          h(
            "tr",
            h("td.n", one.number),
            h("td", badge(one.state)),
            h("td", one.started ? clock(one.started) : "–"),
            h("td.n", duration(one.wall ?? (one.ended && one.ended - one.started))),
            h("td.n.wide", duration(one.cpu)),
            h("td.n.wide", bytes(one.max_rss)),
            h("td.n", one.signal ? `signal ${one.signal}` : (one.exit ?? "–")),
            h("td", one.reason),
          ),
        ),
      ),
    ),
  );
}
