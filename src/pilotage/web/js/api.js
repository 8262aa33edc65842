// What the hub is asked over HTTP; the token stays in this tab.

const KEY = "pilotage.token";
const BASE = "api/v1/";

/** An answer that is no. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message || `the hub answered ${status}`);
    this.status = status;
    this.code = error.code ?? "";
    this.hint = error.hint ?? "";
  }
}

/** No answer at all. */
export class Unreachable extends Error {}

let refused = () => {};

/** Say what happens when the token is not taken. */
export function onRefused(act) {
  refused = act;
}

export function token() {
  return sessionStorage.getItem(KEY) ?? "";
}

export function keep(secret) {
  if (secret) sessionStorage.setItem(KEY, secret);
  else sessionStorage.removeItem(KEY);
}

/** Take the token out of the address, where it would stay in the history. */
export function takeToken() {
  const found = /^#token=([^&]+)(?:&to=(.*))?$/.exec(location.hash);
  if (!found) return;
  keep(decodeURIComponent(found[1]));
  const to = found[2] ? decodeURIComponent(found[2]) : "/";
  history.replaceState(null, "", `${location.pathname}${location.search}#${to}`);
}

/** Ask with a method; the caller reads the body. */
export async function ask(path, options = {}) {
  const headers = { Authorization: `Bearer ${token()}`, ...options.headers };
  let answer;
  try {
    answer = await fetch(BASE + path, { cache: "no-store", ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable("the hub does not answer");
  }
  if (answer.ok) return answer;
  const body = await answer.json().catch(() => ({}));
  const problem = new Refused(answer.status, body.error ?? body);
  if (answer.status === 401) refused(problem);
  throw problem;
}

/** Read something: `get("jobs", { state: "failed" }, signal)`. */
export async function get(path, query = {}, signal = undefined) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  const tail = given.length ? `?${new URLSearchParams(given)}` : "";
  const answer = await ask(path + tail, { signal });
  return answer.json();
}

/** Have something done. */
export async function post(path, body = undefined) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const answer = await ask(path, { method: "POST", headers, body: sent });
  return answer.json().catch(() => ({}));
}
