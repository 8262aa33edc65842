"""The program, arguments and environment of a job of an application.

Templates of arguments are filled with parameters. Each token of a template is one argument,
whatever its parameters contain. No quoting is needed, since no shell splits it later.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from pilotage.agent.app.model import Application, Parameter
from pilotage.base import errors
from pilotage.bus.model import Job
from pilotage.bus.wire import BAD
from pilotage.edge import order
from pilotage.job import model, template

#: Words that a template may have beside parameters, and their meaning.
KNOWN = {
    "job": "the number of the job at this site",
    "nodes": "its nodes",
    "tasks": "its tasks on each node",
    "ranks": "its tasks on all nodes",
    "cpus": "the cores of each task",
    "config": "the name of its config file, below its folder",
}
#: Stands for all words of a config.
STAR = "{*}"

#: Text of a parameter; none if it is absent or off.
Filled = Mapping[str, str | None]

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?")
_SWITCH = {"true": True, "false": False, "on": True, "off": False, "yes": True, "no": False}


def fill_values(
    app: Application, given: Mapping[str, object]
) -> tuple[dict[str, str | None], list[str]]:
    """Check all parameters; return their texts, and a sentence for each problem."""
    found: dict[str, str | None] = {}
    reasons: list[str] = []
    for name in given:
        if name not in app.parameter:
            known = ", ".join(app.parameter) or "none"
            reasons.append(f"there is no parameter {_shown(name)}; there are: {known}")
    for name, one in app.parameter.items():
        raw = given.get(name, one.default)
        if raw is None:
            found[name] = None
            if one.required and one.kind != "flag":
                reasons.append(f"the parameter `{name}` is missing")
            continue
        found[name], reason = fill_value(name, one, raw)
        if reason:
            reasons.append(reason)
    return found, reasons


def fill_value(name: str, one: Parameter, raw: object) -> tuple[str | None, str]:
    """Check one parameter; return its text, or why it is invalid."""
    if one.kind == "flag":
        return _flag(name, one, raw)
    if isinstance(raw, bool) or not isinstance(raw, str | int | float):
        return None, f"the parameter `{name}` is not {_kind(one)}"
    if one.kind in ("integer", "number"):
        return _number(name, one, raw)
    if not isinstance(raw, str):
        raw = str(raw)
    reason = _text(name, one, raw)
    if reason:
        return None, reason
    # A path is never taken for an option, whatever the file is called.
    return (f"./{raw}" if one.kind == "path" else raw), ""


def fill_argv(
    tokens: Sequence[str | tuple[str, ...]], filled: Filled, words: Sequence[str] = ()
) -> list[str]:
    """Fill a template; leave out tokens and groups with an absent parameter."""
    made: list[str] = []
    for token in tokens:
        if token == STAR:
            made += words
            continue
        group = (token,) if isinstance(token, str) else token
        parts = [_token(one, filled) for one in group]
        if None not in parts:
            made += [part for part in parts if part is not None]
    return made


def _token(token: str, filled: Filled) -> str | None:
    made = ""
    for literal, name in template.pieces(token):
        text = filled.get(name) if name else ""
        if text is None:
            return None
        made += literal + text
    return made


def _flag(name: str, one: Parameter, raw: object) -> tuple[str | None, str]:
    on = _SWITCH.get(raw.lower()) if isinstance(raw, str) else raw
    if not isinstance(on, bool):
        return None, f"the parameter `{name}` is neither true nor false"
    return (one.flag if on else None), ""


def _number(name: str, one: Parameter, raw: str | float) -> tuple[str | None, str]:
    try:
        number = _read_number(one, raw)
    except ValueError:
        return None, f"the parameter `{name}` is not {_kind(one)}"
    if not one.minimum <= number <= one.maximum:
        message = f"the parameter `{name}` is {number}, not from {one.minimum} to {one.maximum}"
        return None, message
    return str(number), ""


def _read_number(one: Parameter, raw: str | float) -> int | float:
    """Read a number; refuse fractions for integers, and values that are not finite."""
    if isinstance(raw, str):
        if not (_WHOLE if one.kind == "integer" else _NUMBER).fullmatch(raw):
            raise ValueError(raw)
        raw = int(raw) if _WHOLE.fullmatch(raw) else float(raw)
    if one.kind == "integer" and not isinstance(raw, int):
        raise ValueError(raw)
    if isinstance(raw, float) and not math.isfinite(raw):
        raise ValueError(raw)
    return raw


def _text(name: str, one: Parameter, raw: str) -> str:
    """Return the problem of a text; empty if it is valid."""
    if bad := BAD.search(raw):
        return f"the parameter `{name}` holds the character U+{ord(bad[0]):04X}"
    if len(raw) > one.longest:
        return f"the parameter `{name}` has {len(raw)} characters; the limit is {one.longest}"
    if one.kind == "choice" and raw not in one.choices:
        return f"the parameter `{name}` is none of {', '.join(one.choices)}"
    if one.kind == "path" and (reason := outside(raw)):
        return f"the parameter `{name}` is not a path below the job's folder: {reason}"
    if one.pattern and not _regex(one.pattern).fullmatch(raw):
        return f"the parameter `{name}` does not match `{one.pattern}`"
    if raw.startswith("-") and one.kind == "text" and not one.dash:
        return f"the parameter `{name}` begins with `-`, which it may not"
    return ""


def outside(path: str) -> str:
    """Return why a path is not below the folder that it starts from; none if it is."""
    if not path:
        return "it is empty"
    if BAD.search(path):
        return "it has control characters"
    if path.startswith(("/", "~")):
        return "it is an absolute path"
    if "\\" in path:
        return "it has a `\\`"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "it has `.`, `..` or nothing between slashes"
    return ""


@lru_cache(maxsize=1024)
def _regex(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _kind(one: Parameter) -> str:
    return {"integer": "a whole number", "number": "a number"}.get(one.kind, "text")


def _shown(name: str) -> str:
    return f"`{ascii(name[:80])[1:-1]}`"


def require(app: Application, given: Mapping[str, object]) -> dict[str, str | None]:
    """Return the texts of all parameters, or raise `Denied` with all problems."""
    found, reasons = fill_values(app, given)
    if reasons:
        raise errors.Denied("; ".join(reasons), hint="`pilotage app show NAME` lists parameters")
    return found


class Command(msgspec.Struct, frozen=True):
    """The filled-in program of a job, without templates."""

    #: Launcher, program and arguments.
    argv: tuple[str, ...]
    #: Environment variables beside those that every job of the site has.
    env: Mapping[str, str]
    #: Programs that run before and after it in the same folder; empty means none.
    preprocess: tuple[str, ...] = ()
    postprocess: tuple[str, ...] = ()
    #: The container image; empty means none.
    image: str = ""
    #: The launcher that the batch job adds: `none`, or empty for the site's own.
    launcher: Literal["", "none"] = ""
    #: The function that is called instead, and its arguments.
    function: model.Call | None = None
    calls: Mapping[str, Any] = {}


def make(
    app: Application,
    job: Job,
    given: Mapping[str, object],
    words: Sequence[str] = (),
    *,
    number: int = 0,
) -> Command:
    """Fill in an application for a job; `given` and `words` are from its message and config."""
    filled = {**require(app, given), **_known(job, number)}
    asked = order.function(job.config) if app.takes == "functions" else None
    return Command(
        argv=(*_launcher(app, job, filled), *_argv(app, job, filled, words)),
        env={**app.env, **_allowed(app, job)},
        preprocess=tuple(fill_argv(app.preprocess, filled)),
        postprocess=tuple(fill_argv(app.postprocess, filled)),
        image=app.container,
        launcher="none" if app.launcher else "",
        function=_call(app, asked) if asked else None,
        calls=asked.calls if asked else {},
    )


def _call(app: Application, asked: order.FunctionOrder) -> model.Call:
    return model.Call(asked.function, source=asked.source, python=app.executable)


def _argv(app: Application, job: Job, filled: Filled, words: Sequence[str]) -> Sequence[str]:
    if app.takes == "commands":
        return order.command(job.config)
    if app.takes == order.PILOT:
        hint = "a pool of a hub orders one"
        raise errors.UsageError("only the agent of this site starts pilots", hint=hint)
    return [app.executable, *fill_argv(app.argv, filled, checked(app, words))]


def recipe(argv: Sequence[str]) -> model.Command:
    """Return a recipe of literal arguments."""
    return model.Command(tuple(literal(one) for one in argv))


def literal(text: str) -> str:
    """Escape a text for a job's definition, where every text is a template."""
    return text.replace("{", "{{").replace("}", "}}")


def checked(app: Application, words: Sequence[str]) -> list[str]:
    """Check the words that a parser printed, each by the rule of the application."""
    if not words:
        return []
    if app.config is None or app.config.word is None:
        raise errors.Denied("the application takes no words from a config")
    if len(words) > app.config.most:
        raise errors.Denied(f"the config has {len(words)} words; the limit is {app.config.most}")
    made: list[str] = []
    for at, word in enumerate(words):
        text, reason = fill_value(f"word {at + 1}", app.config.word, word)
        if reason or text is None:
            raise errors.Denied(f"of the words of the config: {reason}")
        made.append(text)
    return made


def _known(job: Job, number: int) -> dict[str, str | None]:
    return {
        "job": str(number), "nodes": str(job.nodes), "tasks": str(job.tasks),
        "ranks": str(job.nodes * job.tasks), "cpus": str(job.resources.cpus),
        "config": f"./{job.config_file}" if job.config_file else None,
    }  # fmt: skip


def _launcher(app: Application, job: Job, filled: Filled) -> list[str]:
    ranks = job.nodes * job.tasks
    words = fill_argv(app.launcher_words, filled)
    match app.launcher:
        case "srun":
            first = ["srun", f"--ntasks={ranks}", f"--nodes={job.nodes}", "--kill-on-bad-exit=1"]
        case "mpirun":
            first = ["mpirun", "-n", str(ranks)]
        case _:
            return []
    return [*first, *words]


def _allowed(app: Application, job: Job) -> dict[str, str]:
    for name, value in job.env.items():
        if name not in app.env_allow:
            raise errors.Denied(f"`env` has {name}, which jobs may not set")
        if BAD.search(value):
            raise errors.Denied(f"`env` has control characters in {name}")
    return dict(job.env)
