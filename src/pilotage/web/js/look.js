// Light or dark: as the system has it, or as chosen here.

import { fill, h } from "./dom.js";
import { icon } from "./state.js";

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const KEY = "pilotage.theme";
const heard = new Set();

/** Hear when the colours change. */
export function onColours(hear, signal) {
  heard.add(hear);
  signal.addEventListener("abort", () => heard.delete(hear));
}

/** Make a button that goes through the schemes. */
export function setTheme(button) {
  const show = () => {
    const chosen = localStorage.getItem(KEY) ?? "auto";
    if (chosen === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    fill(button, icon("half"), { auto: "Auto", light: "Light", dark: "Dark" }[chosen]);
    button.title = `Colours: ${chosen === "auto" ? "as the system" : chosen}`;
    button.setAttribute("aria-label", button.title);
    tell();
  };
  button.addEventListener("click", () => {
    const chosen = NEXT[localStorage.getItem(KEY) ?? "auto"];
    if (chosen === "auto") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, chosen);
    show();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
  show();
}

function tell() {
  for (const hear of heard) hear();
}

/** A colour of the style sheet as the browser has it now. */
export function colour(name) {
  const probe = h("i.probe", { "--probe": `var(--${name})` });
  document.body.append(probe);
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}
