// The page: sign in, listen, and show the view that the address asks for.

import * as api from "./api.js";
import { fill, h } from "./dom.js";
import * as live from "./live.js";
import { parse } from "./router.js";
import { number } from "./say.js";
import { ask } from "./sign-in.js";
import { listen } from "./stream.js";
import { setTheme } from "./look.js";
import { trouble } from "./talk.js";

const VIEWS = {
  "": ["Overview", () => import("./view/overview.js")],
  jobs: ["Jobs", () => import("./view/jobs.js")],
  flows: ["Flows", () => import("./view/flows.js")],
  rules: ["Rules", () => import("./view/rules.js")],
  sites: ["Sites", () => import("./view/sites.js")],
  pools: ["Pools", () => import("./view/pools.js")],
  pilots: ["Pilots", () => import("./view/pilots.js")],
  shares: ["Shares", () => import("./view/shares.js")],
};
/** Views of one thing. */
const DETAILS = {
  jobs: () => import("./view/job.js"),
  flows: () => import("./view/flow.js"),
  pilots: () => import("./view/pilot.js"),
  pools: () => import("./view/pool.js"),
};

const [top, nav, link, banner, main] = ["top", "nav", "link", "banner", "main"].map((id) =>
  document.getElementById(id),
);
let leaving = new AbortController();
let line = null;
let heading = "";

/** Close the view that is shown and open that of the address. */
async function open() {
  leaving.abort();
  leaving = new AbortController();
  const { signal } = leaving;
  const place = parse(location.hash);
  const known = place.view in VIEWS ? place.view : "";
  mark(known);
  const load = place.rest.length && DETAILS[known] ? DETAILS[known] : VIEWS[known][1];
  const root = h("div.view", { "data-at": location.hash });
  try {
    const view = await load();
    if (signal.aborted) return;
    main.replaceChildren(root);
    scrollTo(0, 0);
    setHeading(view.title ? view.title(place) : VIEWS[known][0]);
    await view.open(root, place, signal);
  } catch (error) {
    if (signal.aborted) return;
    main.replaceChildren(root);
    trouble(root, error);
    // What the view has begun must not go on behind the words.
    leaving.abort();
    leaving = new AbortController();
    live.on("anew", open, leaving.signal);
  }
}

function mark(known) {
  for (const item of nav.querySelectorAll("a")) {
    if (item.dataset.view === known) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
}

function setHeading(words) {
  heading = words;
  setTitle(live.latest);
}

function setTitle(overview) {
  const running = overview?.counts?.running ?? 0;
  const news = running ? ` (${number(running)} running)` : "";
  document.title = `${heading}${news} · Pilotage`;
}

/** Listen to the hub and say when the line is lost. */
function connect() {
  line?.abort();
  line = new AbortController();
  let lost = false;
  listen(
    live.take,
    (state, wait) => {
      link.className = `link ${state}`;
      link.textContent = state === "open" ? "live" : "not connected";
      banner.hidden = state === "open";
      if (state === "open") {
        if (lost) live.anew();
        lost = false;
        return;
      }
      lost = true;
      const seconds = Math.max(1, Math.round(wait / 1000));
      fill(
        banner,
        `The hub does not answer; this page is not up to date. Reconnecting in ${seconds} s.`,
      );
    },
    line.signal,
  );
}

function start() {
  top.hidden = false;
  connect();
  open();
}

/** Ask for a token, with a kind word if one was not taken. */
function signIn(problem) {
  line?.abort();
  leaving.abort();
  leaving = new AbortController();
  top.hidden = true;
  banner.hidden = true;
  document.title = "Sign in · Pilotage";
  ask(main, problem, start);
}

function furnish() {
  fill(
    nav,
    Object.entries(VIEWS).map(([name, [words]]) =>
      h("li", h("a", { href: `#/${name}`, "data-view": name }, words)),
    ),
  );
  document.getElementById("leave").addEventListener("click", () => {
    api.keep("");
    signIn(null);
  });
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  setTheme(document.getElementById("theme"));
}

function begin() {
  api.takeToken();
  if (api.token()) start();
  else signIn(null);
}

furnish();
live.on("overview", setTitle);
api.onRefused((problem) => {
  if (!api.token()) return;
  api.keep("");
  signIn(problem);
});
addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) begin();
  else if (api.token()) open();
});
begin();
