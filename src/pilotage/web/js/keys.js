// Keys: `/` searches, arrows go from row to row, `x` chooses a row.

/** Let the arrow keys go through the links of a table's rows. */
export function rows(body, choose = null) {
  body.addEventListener("keydown", (event) => {
    const row = event.target.closest("tr");
    if (!row || event.ctrlKey || event.metaKey || event.altKey) return;
    const list = [...body.children];
    const at = list.indexOf(row);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: list.length - 1 }[event.key];
    if (to !== undefined) {
      const next = list[Math.max(0, Math.min(list.length - 1, to))];
      const same = event.target.matches("input[type=checkbox]")
        ? "input[type=checkbox]"
        : "a, button";
      next.querySelector(same)?.focus();
      event.preventDefault();
    } else if (event.key === "x" && choose) {
      choose(row);
      event.preventDefault();
    }
  });
}

/** Let `/` go to the search field while a view is open. */
export function search(field, signal) {
  const press = (event) => {
    const typing = event.target.closest?.("input, textarea, select, dialog");
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    field.focus();
  };
  document.addEventListener("keydown", press, { signal });
}
