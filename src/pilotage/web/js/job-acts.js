// What a person may do with jobs, and does: asked first where it cannot be undone, told afterwards.

import * as api from "./api.js";
import { count } from "./say.js";
import { final } from "./state.js";
import { complain, confirm, notice } from "./talk.js";

/** Requests at once, so that a thousand jobs do not keep the hub from other work. */
const AT_ONCE = 6;

export const WORDS = {
  cancel: ["Cancel", "cancelled", "A running job is stopped; its work so far is lost."],
  hold: ["Hold", "held", "A running job is stopped and restarts once it is released."],
  release: ["Release", "released", "A released job is queued again."],
  retry: ["Retry", "queued again", "A retried job gets a new attempt."],
};
export const VERBS = ["retry", "release", "hold", "cancel"];
const AGAIN = new Set(["failed", "cancelled", "rejected"]);

/** The verbs that a job in a state offers. */
export function verbs(state) {
  const found = [];
  if (AGAIN.has(state)) found.push("retry");
  if (state === "held") found.push("release");
  if (!final(state) && state !== "held") found.push("hold");
  if (!final(state)) found.push("cancel");
  return found;
}

/** Do something with one job; resolves to whether it was done. */
export async function one(job, verb) {
  const [name, done, what] = WORDS[verb];
  if (verb === "cancel" || (verb === "hold" && job.state === "running")) {
    const sure = await confirm(`${name} job ${job.id}?`, [job.name, what], `${name} it`);
    if (!sure) return false;
  }
  try {
    await api.post(`jobs/${job.id}/${verb}`);
  } catch (error) {
    complain(error);
    return false;
  }
  notice(`Job ${job.id}: ${done}`);
  return true;
}

/** Do something with many jobs, those to which it applies; resolves to whether it was begun. */
export async function many(jobs, verb) {
  const [name, done, what] = WORDS[verb];
  const able = jobs.filter((job) => verbs(job.state).includes(verb));
  const others = jobs.length - able.length;
  if (!able.length) {
    notice(`None of the selected jobs can be ${done}`, "warn");
    return false;
  }
  const lines = [what];
  if (others)
    lines.push(
      `${count(others, "other selected job")} cannot be ${done} and ${others === 1 ? "is" : "are"} left unchanged.`,
    );
  const tone = verb === "retry" || verb === "release" ? "main" : "bad";
  if (
    !(await confirm(`${name} ${count(able.length, "job")}?`, lines, `${name} ${able.length}`, tone))
  )
    return false;
  await all(able, verb, done);
  return true;
}

async function all(jobs, verb, done) {
  const left = [...jobs];
  const problems = [];
  const work = async () => {
    for (let job = left.shift(); job; job = left.shift()) {
      try {
        await api.post(`jobs/${job.id}/${verb}`);
      } catch (error) {
        problems.push(error);
        if (error.status === 401 || error.status === 403) left.length = 0;
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const good = jobs.length - problems.length - left.length;
  if (!problems.length) notice(`${count(good, "job")} ${done}`);
  else complain(problems[0]);
}
