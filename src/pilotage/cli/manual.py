"""How `--help` looks: heads and two columns, as all our tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions
    from rich.text import Text

_WIDEST = 96
_TITLES = {"Parameters": "Options"}


class Manual:
    """Prints the parts of a help page."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print commands or options under their head."""
        from rich.padding import Padding
        from rich.table import Table

        del options
        if not panel.entries:
            return
        title = _plain(panel.title)
        console.print(_TITLES.get(title, title), style="bold", highlight=False)
        grid = Table.grid(padding=(0, 3, 0, 0))
        grid.add_column(no_wrap=True, style="cyan")
        grid.add_column()
        for entry in panel.entries:
            grid.add_row(_names(entry, panel.format), _about(entry))
        console.print(Padding(grid, (0, 0, 1, 2)), width=min(console.width, _WIDEST))

    def render_usage(self, console: Console, options: ConsoleOptions, usage: object) -> None:
        """Print how a command is called."""
        del options
        if words := _plain(usage).removeprefix("Usage: "):
            console.print(f"Usage: {words}\n", markup=False, highlight=False)

    def render_description(
        self, console: Console, options: ConsoleOptions, description: object
    ) -> None:
        """Print what a command is for."""
        del options
        if words := _plain(description):
            console.print(f"{words}\n", markup=False, highlight=False)


def _names(entry: HelpEntry, kind: str) -> str:
    if kind == "command":
        return ", ".join(entry.names + entry.shorts)
    if entry.positional_label:
        return entry.positional_label
    words = ", ".join((*entry.shorts, *entry.names))
    return f"{words} {entry.metavar}" if entry.metavar else words


def _plain(words: object) -> str:
    """Take the text out of what the parser wraps for markup."""
    inner = getattr(words, "primary_renderable", words)
    return str(getattr(inner, "plain", inner) or "").strip()


def _about(entry: HelpEntry) -> Text:
    from rich.text import Text

    about = Text(_plain(entry.description))
    if entry.choices:
        about.append(f" One of {', '.join(entry.choices)}.", style="dim")
    if entry.env_var:
        about.append(f" Also {', '.join(entry.env_var)}.", style="dim")
    return about
