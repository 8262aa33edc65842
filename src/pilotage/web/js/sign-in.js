// Who are you? A token, kept in this tab until it is closed.

import * as api from "./api.js";
import { fill, h } from "./dom.js";
import { command } from "./talk.js";

/** Show the form; `done` is called once a token was taken. */
export function ask(root, problem, done) {
  const words = h("p.problem", { role: "alert" }, problem ? kind(problem) : "");
  const field = h("input", {
    id: "token",
    name: "token",
    type: "password",
    autocomplete: "current-password",
    required: true,
    spellcheck: "false",
    placeholder: "pil_…",
    "aria-describedby": "how",
  });
  const button = h("button.main", "Sign in");
  const form = h(
    "form.sign-in",
    h("img", { src: "static/icon.svg", alt: "", width: 48, height: 48 }),
    h("h1", "Pilotage"),
    h("label", { for: "token" }, "Your token"),
    field,
    button,
    words,
    h(
      "div.note",
      { id: "how" },
      h("p", "The hub prints an address with a token when it starts. To make another token:"),
      command("pilotage token new user"),
    ),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    button.disabled = true;
    fill(words);
    try {
      await check(field.value.trim());
      done();
    } catch (error) {
      fill(words, kind(error));
      field.select();
    } finally {
      button.disabled = false;
    }
  });
  fill(root, form);
  field.focus();
}

/** Try a token before it is kept. */
async function check(secret) {
  if (!/^[\x21-\x7e]+$/.test(secret)) throw new api.Refused(401, {});
  await api.ask("overview", { headers: { Authorization: `Bearer ${secret}` } });
  api.keep(secret);
}

function kind(problem) {
  if (problem instanceof api.Unreachable) return "The hub does not answer. Is it running?";
  if (problem.status === 401) {
    return "The hub does not accept this token: it has expired, was revoked, or is incomplete.";
  }
  return problem.hint ? `${problem.message}. ${problem.hint}` : problem.message;
}
