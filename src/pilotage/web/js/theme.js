// Runs before the first paint, so that the page never flashes in the wrong colours.
const chosen = localStorage.getItem("pilotage.theme");
if (chosen) document.documentElement.dataset.theme = chosen;
