"""`pilotage watch`: watch for events here, and forward the jobs to a hub."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.job.model import State

_INTERRUPTED = 130


def watch(
    *,
    hub: Annotated[str, Parameter(help="Address of the hub, such as https://host:8420.")],
    token_file: Annotated[
        Path, Parameter(help="File with a `user` token; jobs belong to its owner.")
    ],
    ca: Annotated[
        Path | None, Parameter(help="File with the hub's certificate, if it made its own.")
    ] = None,
    proxy: Annotated[
        str | None, Parameter(help="HTTP proxy; default: https_proxy; `none` uses no proxy.")
    ] = None,
    insecure: Annotated[bool, Parameter(help="Allow http:// to other machines.")] = False,
    until_idle: Annotated[
        bool, Parameter(help="Exit when nothing is left to do; the status is 1 if a job failed.")
    ] = False,
    at: Common = HERE,
) -> Answer:
    """Watch for events here and forward the jobs to a hub, until Ctrl-C."""
    from pilotage.cli import engine
    from pilotage.edge.forward import TargetHub
    from pilotage.link import connect

    way = connect.route(hub, proxy, str(ca or ""))
    if way.tls is None and not insecure and not connect.is_near(way):
        message = f"{hub} is not encrypted, and a token would travel there"
        raise errors.UsageError(message, hint="use https://, or `--insecure`")
    target = TargetHub(way, _token(token_file))
    with at.open() as project:
        began = time.monotonic()
        counts, heard = engine.drive(project, engine.Choices(until_idle=until_idle, target=target))
        took = time.monotonic() - began
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    bad = counts.get(State.FAILED, 0) + counts.get(State.REJECTED, 0)
    status = _INTERRUPTED if heard == signal.SIGINT else int(until_idle and bool(bad))
    notes = (f"{words or 'no jobs ended'} in {units.for_people(took)}",)
    data = {"project": str(project.root), "ended": counts, "seconds": round(took, 3)}
    return Answer(data, notes=notes, status=status)


def _token(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        message = f"cannot read the token in {file}: {error}"
        raise errors.ConfigError(message, hint="`pilotage token new` makes one") from None
