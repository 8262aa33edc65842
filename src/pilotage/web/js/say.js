// Numbers, sizes and times as people write them; the same words as on the command line.

/** Seconds by which the clock of the hub is ahead of ours. */
let ahead = 0;

/** Learn the time of the hub. */
export function setNow(seconds) {
  if (Number.isFinite(seconds)) ahead = seconds - Date.now() / 1000;
}

/** The present, as the hub has it. */
export function now() {
  return Date.now() / 1000 + ahead;
}

/** `3 m 12 s` */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  let rest = Math.round(seconds);
  const parts = [];
  for (const [unit, length] of [
    ["d", 86400],
    ["h", 3600],
    ["m", 60],
    ["s", 1],
  ]) {
    const count = Math.floor(rest / length);
    rest -= count * length;
    if (count) parts.push(`${count} ${unit}`);
  }
  return parts.slice(0, 2).join(" ");
}

/** The same for a clock that ticks: whole seconds. */
export function ticking(seconds) {
  return seconds < 60 ? `${Math.max(0, Math.floor(seconds))} s` : duration(seconds);
}

/** `8.0 GiB` */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let left = value;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (left < 1024) return unit === "B" ? `${left} B` : `${left.toFixed(1)} ${unit}`;
    left /= 1024;
  }
  return `${left.toFixed(1)} TiB`;
}

/** `12 345`, with narrow spaces. */
export function number(value) {
  return Math.round(value)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** `1 job`, `2 jobs` */
export function count(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

/** `3.2 per second`, or by the minute if that is a better number. */
export function rate(perSecond) {
  if (!perSecond) return "none";
  if (perSecond >= 1) return `${perSecond < 10 ? perSecond.toFixed(1) : number(perSecond)} /s`;
  return `${Math.max(1, Math.round(perSecond * 60))} /min`;
}

/** A share as `12 %`. */
export function percent(part) {
  const value = part * 100;
  return `${value > 0 && value < 10 ? value.toFixed(1) : Math.round(value)} %`;
}

/** `14:03:12`, with the day if it is not today. */
export function clock(seconds) {
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString("en-GB");
  if (date.toDateString() === new Date().toDateString()) return time;
  const day = date.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" });
  return `${day}, ${time}`;
}

/** `2024-05-01T14:03:12.000Z`, for titles and programs. */
export function stamp(seconds) {
  return new Date(seconds * 1000).toISOString();
}
