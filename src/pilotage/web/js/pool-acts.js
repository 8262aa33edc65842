// What a person does to pools: asked first where it costs something, told afterwards.

import * as api from "./api.js";
import { count } from "./say.js";
import { complain, confirm, notice } from "./talk.js";

const BY_PERSON = "paused by a person";
/** Each with its word, what is asked and said before, and what is said afterwards. */
const ACTS = {
  pause: {
    word: "Pause",
    ask: () => ["It orders and drains no pilots.", "Present pilots continue."],
    tone: "main",
    done: "is paused",
  },
  resume: {
    word: "Resume",
    // What paused by itself had a reason.
    ask: (pool) =>
      pool.trouble && pool.trouble !== BY_PERSON
        ? [pool.trouble, "Earlier failures are reset: pilots are ordered again."]
        : null,
    tone: "main",
    done: "is resumed",
  },
  allow: {
    word: "Allow",
    ask: (pool) => [
      `It may grow to its maximum of ${count(pool.maximum, "core")} without asking again.`,
      "“Back to its file” takes this back.",
    ],
    tone: "main",
    done: "may grow to its maximum",
  },
  reset: { word: "Reset to its file", ask: () => null, done: "is reset to its file" },
};
/** What may be done with a pool now. */
export function verbs(pool) {
  if (pool.state === "bad file") return [];
  const found = [pool.state === "paused" ? "resume" : "pause"];
  if (pool.state === "asks first" && pool.ask_above) found.unshift("allow");
  if (Object.keys(pool.changed).length) found.push("reset");
  return found;
}

export function word(verb) {
  return ACTS[verb].word;
}

/** Do something with a pool; resolves to whether it was done. */
export async function act(pool, verb) {
  const { word, ask, tone, done } = ACTS[verb];
  const lines = ask(pool);
  if (lines && !(await confirm(`${word} pool ${pool.name}?`, lines, `${word} it`, tone)))
    return false;
  try {
    await api.post(`pools/${encodeURIComponent(pool.name)}/${verb}`);
  } catch (error) {
    complain(error);
    return false;
  }
  notice(`${pool.name} ${done}`);
  return true;
}
