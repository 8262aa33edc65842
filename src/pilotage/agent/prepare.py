"""Preparation of a job: its config is read, and the application is filled in.

The parsed config is stored, since programs in the job's folder may change the file. The command is
made again each time, so that changes by the site's administrator take effect.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from pilotage.agent.app import command, hosts, parser, policy
from pilotage.agent.app.command import Command
from pilotage.agent.app.model import Application
from pilotage.base import durable, errors, text
from pilotage.base.paths import inside
from pilotage.batch.malleable import Fit
from pilotage.bus.model import Job, Shape
from pilotage.job.model import JobSpec

#: File name of a config that came with the message.
CONFIG = "pilotage-config"


class PreparedJob(msgspec.Struct, frozen=True):
    """The record of a prepared attempt; it outlives the agent."""

    #: The content of the config.
    parameters: dict[str, Any] = {}
    words: tuple[str, ...] = ()
    #: Whether a program runs after the job, and whether anything is to be done after it.
    after: bool = False
    leaves: bool = False
    #: Whether that program has run, whether sending has begun, and whether all is done.
    postprocessed: bool = False
    sending: bool = False
    sent: bool = False
    #: Bytes of inputs.
    read: int = 0


text.prime(PreparedJob)


def bare(job: Job) -> bool:
    """Return whether a job has neither inputs nor outputs."""
    return not (job.inputs or job.outputs or job.config or job.config_file)


def plain(app: Application, job: Job) -> bool:
    """Return whether a job needs only to be run; then no record is kept."""
    return bare(job) and not (app.preprocess or app.postprocess)


def check(app: Application, job: Job, user: str) -> None:
    """Raise `Denied` if a job may not run any more: its application may have changed since."""
    if reasons := policy.judge(app, job, user).reasons:
        raise errors.Denied("; ".join(reasons), hint="`pilotage app show NAME` says what may run")


def check_outputs(app: Application, job: Job) -> None:
    """Raise `Denied` if results may not go where they are to go any more."""
    for one in job.outputs:
        if reason := hosts.why_not(one.url, app.staging):
            raise errors.Denied(f"{text.show(one.url)} cannot be used: {reason}")


def sized(job: Job, fit: Fit | None) -> Job:
    """Write a job in the shape that it has got."""
    if fit is None:
        return job
    time = job.wall_time if fit.time is None else int(fit.time)
    return msgspec.structs.replace(job, nodes=fit.nodes, wall_time=time, shape=Shape())


def configured(job: Job) -> Job:
    """Name the file that the config of a message is in."""
    return msgspec.structs.replace(job, config_file=CONFIG) if job.config else job


def write_config(job: Job, folder: str, aside: str) -> None:
    """Put the config of a message into the job's folder."""
    part = os.path.join(aside, CONFIG)
    with open(part, "w", encoding="utf-8", newline="") as file:
        file.write(job.config)
    os.rename(part, inside(folder, CONFIG))


def open_folders(job: Job, folder: str) -> None:
    """Make the folders that outputs go to, as they are where the job comes from."""
    for one in job.outputs:
        os.makedirs(os.path.dirname(inside(folder, one.path)), exist_ok=True)


async def read_config(app: Application, job: Job, folder: str) -> PreparedJob:
    """Read the config of a job, if it has one, by the site's own parser."""
    file = configured(job).config_file
    if not file or app.takes != "parameters":
        return PreparedJob()
    parsed = await parser.parse(app, folder, file)
    return PreparedJob(parameters=dict(parsed.parameters), words=parsed.words)


def fill(app: Application, job: Job, kept: PreparedJob, number: int) -> Command:
    """Fill in an application; the message overrides the config."""
    given = {**kept.parameters, **job.parameters}
    return command.make(app, configured(job), given, kept.words, number=number)


def spec_of(spec: JobSpec, filled: Command, folder: str) -> JobSpec:
    """Return the definition that the batch job runs."""
    return msgspec.structs.replace(
        spec,
        recipe=filled.function or command.recipe(filled.argv),
        base=folder,
        env={name: command.literal(value) for name, value in filled.env.items()},
        cwd=command.literal(folder),
        image=filled.image,
    )


# -- records on disk -------------------------------------------------------------------------------


def read(file: Path) -> PreparedJob | None:
    """Read the record of an attempt; none if its data is not there yet."""
    try:
        return msgspec.convert(text.load(file.read_bytes()), PreparedJob)
    except FileNotFoundError:
        return None
    except (ValueError, msgspec.ValidationError) as error:
        raise errors.PilotageError(f"{file} cannot be read: {error}") from error


def write(file: Path, kept: PreparedJob) -> None:
    """Write the record of an attempt; it is on disk when this returns."""
    durable.folder(file.parent, mode=0o700)
    durable.write(file, text.dump(kept))
