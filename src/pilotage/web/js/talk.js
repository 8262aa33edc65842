// Words to the person: notices that go by themselves, questions, and what is wrong.

import { Refused, Unreachable } from "./api.js";
import { fill, h } from "./dom.js";
import { icon } from "./state.js";

const STAY = 6000;

/** Show a notice for a while; it is also read out. */
export function notice(words, tone = "good") {
  const shape = tone === "good" ? "check" : "bell";
  const close = h("button.quiet", { type: "button", "aria-label": "Close" }, icon("cross"));
  const toast = h(`div.toast.${tone}`, icon(shape), h("p", words), close);
  const gone = () => toast.remove();
  close.addEventListener("click", gone);
  document.getElementById("toasts").append(toast);
  setTimeout(gone, tone === "good" ? STAY : 2 * STAY);
}

/** Say why something could not be done. */
export function complain(error) {
  if (error.name === "AbortError") return;
  if (error instanceof Refused && error.status === 401) return;
  notice(error.hint ? `${error.message}. ${error.hint}` : error.message, "bad");
}

/** Ask before something is done; resolves to whether it is wanted. */
export function confirm(question, details, verb, tone = "bad") {
  const yes = h(`button.${tone}`, { value: "yes" }, verb);
  const dialog = h(
    "dialog.ask",
    { "aria-labelledby": "question" },
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "question" }, question),
      details.map((line) => h("p", line)),
      h("div.row", h("button.plain", { value: "", autofocus: true }, "Back"), yes),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((answer) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      answer(dialog.returnValue === "yes");
    });
  });
}

/** Words for where nothing is, with what to do next. */
export function empty(words, ...more) {
  return h("div.empty", h("p", words), more);
}

/** A command to copy. */
export function command(text) {
  const copy = h("button.quiet", { type: "button" }, "Copy");
  copy.addEventListener("click", async () => {
    await navigator.clipboard?.writeText(text);
    fill(copy, "Copied");
  });
  return h("div.command", h("code", text), navigator.clipboard ? copy : null);
}

/** Fill a view with what went wrong. */
export function trouble(root, error) {
  if (error.name === "AbortError" || error.status === 401) return;
  const words =
    error instanceof Unreachable
      ? "The hub does not answer. This view loads when it is back."
      : error.message;
  fill(
    root,
    h(
      "div.empty.bad",
      h("p", words),
      error.hint ? h("p", error.hint) : null,
      h("p", h("a", { href: "#/" }, "Go to the overview")),
    ),
  );
}
