// Which view the address asks for.

/** Cut `#/jobs/12?attempt=2` into its parts. */
export function parse(hash) {
  const [path, tail = ""] = hash.replace(/^#\/?/, "").split("?");
  const parts = path.split("/").filter(Boolean).map(decode);
  return { view: parts[0] ?? "", rest: parts.slice(1), query: new URLSearchParams(tail) };
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Write an address: `to("jobs", { state: "failed" })`. */
export function to(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "" && value != null);
  return `#/${path}${given.length ? `?${new URLSearchParams(given)}` : ""}`;
}

/** Change the address without opening the view again. */
export function rewrite(address) {
  if (location.hash !== address) history.replaceState(null, "", address);
}
