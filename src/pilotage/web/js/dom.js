// Elements without markup: whatever comes from outside becomes text, never HTML.

/**
 * Make an element: `h("a.name", { href }, "words", [more, nodes])`.
 * Plain objects are attributes; `on…` are listeners, `--…` are variables of its style.
 */
export function h(kind, ...parts) {
  const [tag, ...classes] = kind.split(".");
  const node = document.createElement(tag || "div");
  if (classes.length) node.className = classes.join(" ");
  add(node, parts);
  return node;
}

function add(node, parts) {
  for (const part of parts) {
    if (part === null || part === undefined || part === false || part === "") continue;
    if (Array.isArray(part)) add(node, part);
    else if (part instanceof Node) node.append(part);
    else if (typeof part === "object") {
      for (const [name, value] of Object.entries(part)) give(node, name, value);
    } else node.append(printable(String(part)));
  }
}

function give(node, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
  else if (name.startsWith("--")) node.style.setProperty(name, value);
  else node.setAttribute(name, value === true ? "" : String(value));
}

/** Show what would be invisible, or would turn the line around, as an escape. */
export function printable(text) {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/** The head of a table: words and classes of its columns, and what else stands there. */
export function heading(columns, ...more) {
  const cells = columns.map(([words, kind]) => h(`th${kind}`, { scope: "col" }, words));
  return h("thead", h("tr", cells, more));
}

/** Put other children into a node. */
export function fill(node, ...parts) {
  node.replaceChildren();
  add(node, parts);
  return node;
}

/** Change the words of a node, if they are others. */
export function words(node, text) {
  const shown = printable(String(text));
  if (node.textContent !== shown) node.textContent = shown;
}

/** Words with `commands` in them. */
export function ticks(text) {
  return text.split("`").map((part, n) => (n % 2 ? h("code", part) : part));
}

/** Make the children of a node those of a list; what stays keeps its focus. */
export function keyed(parent, items, key, make, update) {
  const wanted = new Set(items.map((item) => String(key(item))));
  const old = new Map();
  for (const child of [...parent.children]) {
    if (wanted.has(child.dataset.key)) old.set(child.dataset.key, child);
    else child.remove();
  }
  let next = parent.firstElementChild;
  for (const item of items) {
    const id = String(key(item));
    let node = old.get(id);
    if (!node) {
      node = make(item);
      node.dataset.key = id;
    }
    update?.(node, item);
    if (node === next) next = node.nextElementSibling;
    else parent.insertBefore(node, next);
  }
}

/** Call a function not before it was quiet for a while. */
export function later(milliseconds, act) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds, ...given);
  };
}

/** Call a function at most once in a while, and once more for what came in between. */
export function calm(milliseconds, act) {
  let last = -Infinity;
  let timer = 0;
  return () => {
    if (timer) return;
    const wait = Math.max(0, last + milliseconds - performance.now());
    timer = setTimeout(() => {
      timer = 0;
      last = performance.now();
      act();
    }, wait);
  };
}
