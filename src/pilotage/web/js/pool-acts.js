// What a person does to pools: asked first where it costs something, told afterwards.

import * as api from "./api.js";
import { count } from "./say.js";
import { complain, confirm, notice } from "./talk.js";

const BY_PERSON = "paused by a person";
/** Each with its word, what is asked and said before, and what is said afterwards. */
const ACTS = {
  pause: {
    word: "Pause",
    ask: () => ["No more pilots are asked for and none is drained.", "Those that are there go on."],
    tone: "main",
    done: "stays as it is",
  },
  resume: {
    word: "Resume",
    // What paused by itself had a reason.
    ask: (pool) =>
      pool.trouble && pool.trouble !== BY_PERSON
        ? [pool.trouble, "What failed before counts no more: pilots are asked for again."]
        : null,
    tone: "main",
    done: "goes on",
  },
  allow: {
    word: "Allow",
    ask: (pool) => [
      `It may have up to its maximum of ${count(pool.maximum, "core")}, and asks no more.`,
      "“Back to its file” takes this back.",
    ],
    tone: "main",
    done: "has leave for all up to its maximum",
  },
  reset: { word: "Back to its file", ask: () => null, done: "is as its file says" },
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
