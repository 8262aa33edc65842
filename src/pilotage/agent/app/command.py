"""The program, arguments and environment of a job of an application."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from pilotage.agent.app import fill
from pilotage.agent.app.model import Application
from pilotage.base import errors
from pilotage.bus.model import Job
from pilotage.bus.strict import BAD
from pilotage.edge import order
from pilotage.job import model


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
    filled = {**fill.require(app, given), **_known(job, number)}
    asked = order.function(job.config) if app.takes == "functions" else None
    return Command(
        argv=(*_launcher(app, job, filled), *_argv(app, job, filled, words)),
        env={**app.env, **_allowed(app, job)},
        preprocess=tuple(fill.argv(app.preprocess, filled)),
        postprocess=tuple(fill.argv(app.postprocess, filled)),
        image=app.container,
        launcher="none" if app.launcher else "",
        function=_call(app, asked) if asked else None,
        calls=asked.calls if asked else {},
    )


def _call(app: Application, asked: order.FunctionOrder) -> model.Call:
    return model.Call(asked.function, source=asked.source, python=app.executable)


def _argv(app: Application, job: Job, filled: fill.Filled, words: Sequence[str]) -> Sequence[str]:
    if app.takes == "commands":
        return order.command(job.config)
    if app.takes == order.PILOT:
        hint = "a pool of a hub orders one"
        raise errors.UsageError("only the agent of this site starts pilots", hint=hint)
    return [app.executable, *fill.argv(app.argv, filled, checked(app, words))]


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
        text, reason = fill.value(f"word {at + 1}", app.config.word, word)
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


def _launcher(app: Application, job: Job, filled: fill.Filled) -> list[str]:
    ranks = job.nodes * job.tasks
    words = fill.argv(app.launcher_words, filled)
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
