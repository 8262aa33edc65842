"""The tree of commands; each module is imported when its command is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cyclopts import App, Group, Parameter

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


_EVERYDAY = Group("Everyday", sort_key=1)
_CONTROL = Group("Control jobs", sort_key=2)
_NOUNS = Group("By noun", sort_key=3)
_ABOUT = Group("About", sort_key=4)
_OPTIONS = Group("Options", sort_key=5)

#: Name, place and help of each command, in the order in which people meet them.
_COMMANDS: tuple[tuple[Group, str, str, str], ...] = (
    (_EVERYDAY, "init", "init:init", "Create a project in a folder."),
    (_EVERYDAY, "up", "up:up", "Run the project here: watch, match and run until Ctrl-C."),
    (_EVERYDAY, "hub", "hub:hub", "Run the project with pilots only, no jobs on this machine."),
    (_EVERYDAY, "watch", "watch:watch", "Watch for events here, and forward the jobs to a hub."),
    (_EVERYDAY, "submit", "submit:submit", "Queue a command, a script or a job file."),
    (_EVERYDAY, "status", "status:status", "Show running, finished and failed jobs."),
    (_EVERYDAY, "logs", "logs:logs", "Print the output of jobs, and follow it."),
    (_EVERYDAY, "explain", "explain:explain", "Explain why jobs do not run, or how they ended."),
    (_EVERYDAY, "story", "story:story", "Show the history of jobs, from event to result."),
    (_EVERYDAY, "wait", "wait:wait", "Wait until jobs have ended."),
    (_EVERYDAY, "report", "report:report", "Write a report of all jobs as one HTML file."),
    (_CONTROL, "cancel", "verbs:cancel", "Cancel jobs."),
    (_CONTROL, "hold", "verbs:hold", "Hold jobs: they do not start until released."),
    (_CONTROL, "release", "verbs:release", "Release held jobs."),
    (_CONTROL, "retry", "verbs:retry", "Retry failed jobs."),
    (_NOUNS, "job", "job:app", "List, show and remove jobs."),
    (_NOUNS, "flow", "flow:app", "Run and monitor workflows across sites."),
    (_NOUNS, "rule", "rule:app", "List, test, check and change rules."),
    (_NOUNS, "event", "event:app", "Send and list events."),
    (_NOUNS, "pilot", "pilot:app", "List, show, drain, run or pack pilots."),
    (_NOUNS, "site", "site:app", "Add, list and check sites, and log in to them."),
    (_NOUNS, "agent", "agent:app", "Set up, run and drain the agent of this site."),
    (_NOUNS, "app", "app:app", "Add, list and test the applications of this site."),
    (_NOUNS, "pool", "pool:app", "Show and control pools of pilots."),
    (_NOUNS, "share", "share:share", "Show the usage and fair shares of owners."),
    (_NOUNS, "relay", "relay:relay", "Relay connections for pilots without outside network."),
    (_NOUNS, "token", "token:app", "Create, list and revoke tokens."),
    (_NOUNS, "config", "config:app", "Show and check the settings."),
    (_ABOUT, "doctor", "doctor:doctor", "Check this machine's prerequisites."),
    (_ABOUT, "help", "about:topic", "Explain exit statuses, selectors or an error such as E302."),
    (_ABOUT, "--install-completion", "about:completion", "Install shell completion."),
    (_ABOUT, "version", "about:version", "Print the version."),
)

app = App(
    name="pilotage",
    help="Events make jobs, jobs run here or elsewhere, results are events again.",
    version_flags=(),
    group_commands=_ABOUT,
    help_format="plaintext",
    help_formatter=Manual(),
    group_parameters=_OPTIONS,
    default_parameter=Parameter(negative="", show_default=False),
)
for _number, (_group, _name, _place, _help) in enumerate(_COMMANDS):
    app.command(f"pilotage.cli.{_place}", name=_name, help=_help, group=_group, sort_key=_number)
