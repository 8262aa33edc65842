"""`pilotage app test`: show or run what an application would run."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import anyio
import msgspec
from cyclopts import Parameter

from pilotage.agent import status
from pilotage.agent.app import command, files, model, parser, policy
from pilotage.base import errors, text
from pilotage.bus import wire
from pilotage.bus.model import Job
from pilotage.cli import formatting
from pilotage.cli.answer import Answer, Shown, Styled, line
from pilotage.cli.common import HERE, Common

_CLEAN = ("PATH", "LANG", "LC_ALL", "TZ")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the job of the test would ask for."""

    user: Annotated[
        str, Parameter(help="Apply the limits, queues and projects of this user, too.")
    ] = ""
    config: Annotated[Path | None, Parameter(help="Config file that it would bring.")] = None
    nodes: Annotated[int, Parameter(help="Nodes.")] = 1
    tasks: Annotated[int, Parameter(help="Tasks on each node.")] = 1
    queue: Annotated[str, Parameter(help="Queue.")] = ""
    account: Annotated[str, Parameter(help="Project that would be charged.")] = ""
    input: Annotated[tuple[str, ...], Parameter(help="URL of data; repeatable.")] = ()

    def job(self, name: str, given: dict[str, str]) -> Job:
        """Make the message of it that a user would send."""
        plain = {
            "v": 1, "kind": "job", "site": "here", "application": name, "parameters": given,
            "nodes": self.nodes, "tasks": self.tasks, "queue": self.queue,
            "project": self.account, "inputs": [{"url": one} for one in self.input],
            "config_file": self.config.name if self.config else "",
        }  # fmt: skip
        return wire.convert(plain, Job)


_PLAIN = Asked()


def trial(
    name: Annotated[str, Parameter(help="Name of the application.")],
    /,
    *parameters: Annotated[str, Parameter(help="Parameters, each as NAME=VALUE.")],
    asked: Asked = _PLAIN,
    run: Annotated[bool, Parameter(help="Run it here, in a folder of its own.")] = False,
    timeout: Annotated[float, Parameter(help="Stop it after N seconds.")] = 60.0,
    at: Common = HERE,
) -> Answer:
    """Show the arguments for given parameters, or why they are refused."""
    with at.open() as project:
        app = files.read(project.root, name)
        notes = _waits(app, asked, project.state)
    given = dict(_pair(one) for one in parameters)
    job = asked.job(name, given)
    parsed = _config(app, asked.config)
    values: dict[str, object] = {**parsed.parameters, **given}
    reasons = [*files.Trust().reasons(app), *command.fill_values(app, values)[1]]
    if asked.user:
        told = policy.judge(app, job, asked.user).reasons
        reasons += [one for one in told if one not in reasons]
    if reasons:
        shown: list[Shown] = [line(Styled("refused", "red"))]
        shown += [f"  {text.show(one)}" for one in reasons]
        data = {"app": name, "allowed": False, "reasons": reasons}
        return Answer(data, tuple(shown), notes=notes, status=errors.Denied.exit_status)
    made = command.make(app, job, values, parsed.words)
    data = {"app": name, "allowed": True, "reasons": [], **msgspec.to_builtins(made)}
    if not run:
        return Answer(data, tuple(_shown(made)), made.argv, notes)
    found = _run(made, data, timeout)
    return msgspec.structs.replace(found, notes=(*found.notes, *notes))


def _waits(app: model.Application, asked: Asked, state: Path) -> tuple[str, ...]:
    """Return warnings for jobs that would wait forever in the queues that the agent knows."""
    try:
        seen = status.read(state)
    except (errors.NotFound, errors.ConfigError):
        return ()
    limits = app.limits_of(asked.user)
    if asked.queue:
        limits = msgspec.structs.replace(limits, queues=(asked.queue,))
    one = msgspec.structs.replace(app, limits=limits, user={}) if asked.queue else app
    return tuple(policy.waits(one, seen.beat.scheduler.queues, seen.queue))


def _pair(word: str) -> tuple[str, str]:
    key, equals, value = word.partition("=")
    if not equals:
        raise errors.UsageError(f"`{word}` is not NAME=VALUE")
    return key, value


def _config(app: model.Application, file: Path | None) -> parser.Parsed:
    if file is None:
        return parser.Parsed()
    return anyio.run(parser.parse, app, str(file.absolute().parent), file.name)


def _shown(made: command.Command) -> list[Shown]:
    shown: list[Shown] = [
        line(Styled(f"{at:>4}  ", "dim"), text.show(one)) for at, one in enumerate(made.argv)
    ]
    told = {
        "before": " ".join(made.preprocess),
        "after": " ".join(made.postprocess),
        "env": ", ".join(f"{key}={value}" for key, value in made.env.items()),
        "image": made.image,
    }
    return [
        *shown,
        *(formatting.pair(key, text.show(value)) for key, value in told.items() if value),
    ]


def _run(made: command.Command, data: dict[str, Any], timeout: float) -> Answer:
    """Run it in a new folder; what it wrote is the answer."""
    printed = b""
    with tempfile.TemporaryDirectory(prefix="pilotage-app-") as folder:
        for argv in filter(None, (made.preprocess, made.argv, made.postprocess)):
            done = _once(argv, folder, made, timeout)
            if argv is made.argv or done.returncode:
                printed = done.stdout
                data = data | {"exit": done.returncode}
            if done.returncode:
                said = f"{argv[0]} ended with {done.returncode}"
                return Answer(data, (*_shown(made), said), raw=printed, status=1)
    said = f"{made.argv[0]} ended well"
    return Answer(data, (*_shown(made), said), raw=printed)


def _once(
    argv: tuple[str, ...], folder: str, made: command.Command, timeout: float
) -> subprocess.CompletedProcess[bytes]:
    """Run one program with little in its environment."""
    env = {key: os.environ[key] for key in _CLEAN if key in os.environ} | dict(made.env)
    try:
        return subprocess.run(
            argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, timeout=timeout,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise errors.TimedOut(f"{argv[0]} did not end within {timeout:g} s") from None
    except OSError as error:
        raise errors.NotFound(f"{argv[0]} cannot run: {error.strerror}") from None
