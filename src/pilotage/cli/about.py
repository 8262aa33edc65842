"""Overview, help topics and version of the command line."""

from __future__ import annotations

import difflib
import inspect
from typing import Annotated

from cyclopts import Parameter

from pilotage import __version__
from pilotage.base import errors
from pilotage.cli.answer import Answer, Shown, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.job.model import State

OVERVIEW = """\
Pilotage: events make jobs, jobs run, results are events again.

  pilotage init              make a project in this folder
  pilotage up                run it: watch, match and run jobs until Ctrl-C
  pilotage submit echo hi    queue a command (in another terminal)

  pilotage status            what runs, what is done, what went wrong
  pilotage explain last      why a job does not run, or how it ended
  pilotage logs -f last      what it writes
  pilotage rule test --event FILE   which rules a file would fire

`pilotage --help` lists all commands, `pilotage COMMAND --help` one of them,
`pilotage help exit` the exit statuses, `pilotage doctor` checks this machine."""

EXITS = {
    0: "success",
    1: "a job or workflow failed: `wait`, `submit --wait`, `flow submit --wait`, `up --until-idle`",
    2: "the command line is wrong",
    3: "a file that a person wrote is wrong: settings, rules, a job file",
    4: "the job, rule, event or file that was named does not exist",
    5: "refused by a policy, a token or a limit",
    6: "something cannot be reached now; try again later",
    7: "a conflict with another process or with the job's state",
    70: "an internal error of Pilotage",
    124: "the time given with `--timeout` is over",
    130: "interrupted by Ctrl-C",
}

SELECTORS = {
    "42": "job 42",
    "3-9": "jobs 3 to 9",
    "1,4,7-9": "several, joined by commas",
    "last": "the newest job",
    "last~2": "the one two before it",
    "all": "every job",
    "failed": "every job in a state: " + ", ".join(sorted(State)),
    "@night": "every job submitted with `--tag night`",
    "fit": "every job with this name, that is, of this rule",
    "fit-*": "every job whose name matches a glob",
}

#: What to do about each error, by code.
ADVICE = {
    "E100": "read the message; `pilotage doctor` checks the machine.",
    "E101": "`pilotage logs JOB` shows what it wrote, `pilotage story JOB` what happened to it.",
    "E102": "correct the function: the notes of the error have the traceback from where it ran.",
    "E200": "`pilotage COMMAND --help` shows what the command takes.",
    "E201": "`pilotage help selectors` shows how jobs are named.",
    "E202": "correct the field that the message names; the page on messages lists all fields.",
    "E300": "correct the file at the place that the message names, then `pilotage config check`.",
    "E301": "`pilotage init` makes a project; `--project DIR` names one that is elsewhere.",
    "E302": "correct the rule file at the line that the message names; `pilotage rule check "
    "FILE` tests it. Until then the last good version of its rules stays in force.",
    "E303": "correct the workflow at the place that the message names; `pilotage flow submit "
    "--dry-run` checks it without sending anything.",
    "E400": "`pilotage job ls`, `pilotage rule ls` and `pilotage event ls` list what there is.",
    "E500": "ask the administrator who set the limit; `pilotage config show` lists the settings.",
    "E501": "send less, or raise `max_size` in pilotage.toml.",
    "E502": "renew the token, the certificate or the key; waiting transfers then continue.",
    "E600": "try again later; `pilotage doctor` checks this machine.",
    "E601": "free space on the disk or correct the permissions of `.pilotage`; a running process "
    "continues as soon as it can write.",
    "E602": "`pilotage up` runs the project; queued jobs are kept.",
    "E603": "do not send the same again by hand: the hub asks the site until it knows. "
    "`pilotage site check NAME` says whether the site answers.",
    "E604": "it is fetched again automatically. If that does not help, it was changed or cut "
    "short at its source: its producer must send it again.",
    "E605": "start the agent of that site, or correct the name; `pilotage site ls` lists the sites "
    "that are known.",
    "E700": "remove the conflict that the message names, or wait for it to end.",
    "E701": "use the process that runs already: every command talks to it. To restart, stop it "
    "with Ctrl-C first.",
    "E702": "`pilotage story JOB` shows how the job got into its state.",
    "E800": "wait longer with `--timeout`; the work continues.",
}


def topic(
    name: Annotated[
        str, Parameter(help="`exit`, `selectors`, `errors` or an error's code such as `E302`.")
    ] = "",
    /,
    *,
    at: Common = HERE,
) -> Answer:
    """Explain exit statuses, selectors or an error."""
    del at
    if not name:
        return Answer({"topics": ["exit", "selectors", "errors", *ADVICE]}, (OVERVIEW,))
    if name == "exit":
        return _pairs("exit", "STATUS> MEANING", {str(key): one for key, one in EXITS.items()})
    if name == "selectors":
        return _pairs("selectors", "SELECTOR MEANS", SELECTORS)
    known = {kind.code: kind for kind in kinds()}
    if name == "errors":
        return _pairs(
            "errors", "CODE MEANING", {code: _says(known[code]) for code in sorted(known)}
        )
    if name.upper() in known:
        return _error(known[name.upper()])
    topics = ["exit", "selectors", "errors", *known]
    close = difflib.get_close_matches(name, topics, n=1)
    hint = f"did you mean `{close[0]}`?" if close else "`pilotage help errors` lists the codes"
    raise errors.NotFound(f"there is no help on `{name}`", hint=hint)


def kinds() -> list[type[errors.PilotageError]]:
    """List every kind of error."""
    return [
        kind
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, errors.PilotageError)
    ]


def _says(kind: type[errors.PilotageError]) -> str:
    return (inspect.getdoc(kind) or "").split("\n", 1)[0]


def _error(kind: type[errors.PilotageError]) -> Answer:
    data = {
        "code": kind.code, "name": kind.__name__, "meaning": _says(kind),
        "advice": ADVICE[kind.code], "status": kind.exit_status, "retryable": kind.retryable,
    }  # fmt: skip
    again = "Trying again may help." if kind.retryable else "Trying the same again will not help."
    shown: tuple[Shown, ...] = (
        line(Styled(kind.code, "bold"), f"  {kind.__name__}, exit status {kind.exit_status}"),
        "",
        f"{_says(kind)} {again}",
        line(Styled("What to do: ", "cyan"), ADVICE[kind.code]),
    )
    return Answer(data, shown, (kind.code,))


def _pairs(name: str, heads: str, facts: dict[str, str]) -> Answer:
    rows = tuple((key, meaning) for key, meaning in facts.items())
    return Answer({name: facts}, (Table(columns(heads), rows),), tuple(facts))


def version(*, at: Common = HERE) -> Answer:
    """Print the version."""
    del at
    return Answer({"version": __version__}, (f"pilotage {__version__}",), (__version__,))


def completion(*, at: Common = HERE) -> Answer:
    """Let the shell complete commands, options and their values."""
    del at
    from pilotage.cli.tree import app

    file = app.install_completion()
    return Answer(
        {"file": str(file)}, (f"wrote {file}; it takes effect in new shells",), (str(file),)
    )
