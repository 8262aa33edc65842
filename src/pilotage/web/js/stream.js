// Server-sent events over fetch: EventSource cannot send the token in a header.

import { Refused, ask } from "./api.js";

const LONGEST = 15_000;
/** The hub says something every few seconds; after so much silence the line is dead. */
const SILENCE = 45_000;

/**
 * Listen until the signal; `hear(event, data)` for each message, `link(state, wait)` for the line:
 * "open", or "lost" with the milliseconds until the next try.
 */
export async function listen(hear, link, signal) {
  let failures = 0;
  while (!signal.aborted) {
    try {
      await once(
        hear,
        () => {
          failures = 0;
          link("open", 0);
        },
        signal,
      );
    } catch (error) {
      if (signal.aborted || (error instanceof Refused && error.status === 401)) return;
    }
    if (signal.aborted) return;
    failures += 1;
    const wait = Math.min(LONGEST, 500 * 2 ** Math.min(failures, 5)) * (0.75 + Math.random() / 2);
    link("lost", wait);
    await sleep(wait, signal);
  }
}

async function once(hear, opened, signal) {
  const dead = new AbortController();
  const stop = () => dead.abort();
  signal.addEventListener("abort", stop);
  let timer = setTimeout(stop, SILENCE);
  try {
    const answer = await ask("stream", {
      headers: { Accept: "text/event-stream" },
      signal: dead.signal,
    });
    opened();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parse = parser(hear);
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE);
      parse(value);
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener("abort", stop);
  }
}

/** Cut text into messages, wherever it was torn. */
export function parser(hear) {
  let rest = "";
  return (text) => {
    rest += text;
    const blocks = rest.split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      let event = "message";
      const data = [];
      for (const line of block.split(/\r?\n/)) {
        if (line.startsWith("event:")) event = line.slice(6).trim();
        else if (line.startsWith("data:")) data.push(line.slice(5).replace(/^ /, ""));
      }
      if (data.length) hear(event, JSON.parse(data.join("\n")));
    }
  };
}

function sleep(milliseconds, signal) {
  return new Promise((wake) => {
    const done = () => {
      clearTimeout(timer);
      removeEventListener("online", done);
      signal.removeEventListener("abort", done);
      wake();
    };
    const timer = setTimeout(done, milliseconds);
    addEventListener("online", done);
    signal.addEventListener("abort", done);
  });
}
