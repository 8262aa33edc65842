"""`pilotage pool add`: write the file of a new pool."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from pilotage.base import errors
from pilotage.batch.pilot_request import PilotRequest
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.cli.fleet import PilotOptions
from pilotage.edge import view
from pilotage.pool import files
from pilotage.pool import site as pool_site
from pilotage.pool.files import Pool

#: What may be said of a pool, and an example where nothing is.
_KEYS = {
    "maximum": ("Cores that it has at most.", ""),
    "minimum": ("Cores that it has at least, used or not.", "0"),
    "pending": ("Pilots that may wait in the batch queue at once.", "10"),
    "ask_above": ("Ask a person before there are more cores than this.", "256"),
    "interval": ("Time between two decisions.", '"30s"'),
}
_PILOT_KEYS = {
    "cpus": ("Cores.", "1"),
    "memory": ("Memory; else what the batch system gives.", '"8G"'),
    "gpus": ("GPUs.", "0"),
    "time": ("Wall time; else the site's default.", '"12h"'),
    "queue": ("Queue or partition; else the site's default.", '"long"'),
    "account": ("What is charged; else the site's default.", '"beam42"'),
    "idle": ("It leaves after this time without work.", '"10m"'),
}
_CONTROL = """
# The AIMD policy decides: it orders what has waited for a while, and lets idle pilots go.
# `pilotage pool simulate` tries others.
#[control]
#kind = "aimd"
# Time that jobs must wait before pilots are ordered for them.
#patience = "15m"
# Time that an idle pilot is kept.
#rest = "5m"
"""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PoolOptions(PilotOptions):
    """Limits of a new pool, and resources of each of its pilots."""

    site: Annotated[str, Parameter(help="The site that its pilots run at.")]
    maximum: Annotated[int, Parameter(help="Cores that it has at most.")]
    minimum: Annotated[int, Parameter(help="Cores that it has at least.")] = 0
    pending: Annotated[int, Parameter(help="Pilots that may wait in the queue at once.")] = 10
    ask_above: Annotated[int, Parameter(help="Ask for permission above this number of cores.")] = 0
    about: Annotated[str, Parameter(help="A description.")] = ""

    def pool(self) -> Pool:
        """Return the pool."""
        given = asdict(self)
        pilot = PilotRequest(**{key: given.pop(key) for key in PilotRequest.__struct_fields__})
        return Pool(**given, pilot=pilot)


def add(
    name: Annotated[str, Parameter(help="Name of the new pool.")],
    /,
    *,
    described: PoolOptions,
    at: Common = HERE,
) -> Answer:
    """Write the file of a new pool; a running hub uses it at once."""
    made = described.pool()
    with at.open() as project:
        try:
            files.check(name, made)
        except errors.ConfigError as error:
            raise errors.UsageError(str(error), hint=error.hint) from error
        agents = view.pilot_sites(project.db, project.clock.now(), running=project.running())
        pool_site.read(project.root, made.site, agents)
        file = files.POOLS.create(project.root, name, text(name, made))
        shown = file.relative_to(project.root)
        idle = not project.running()
    closed = agents[made.site].closed if made.site in agents and not idle else ""
    notes = (
        *((closed,) if closed else ()),
        "`pilotage up` controls it" if idle else "the hub controls it from now on",
        f"`pilotage pool show {name}` says what it does and why",
    )
    data = {"pool": msgspec.to_builtins(made) | {"name": name}, "file": str(file)}
    return Answer(data, (f"wrote {shown}",), (name,), notes)


def text(name: str, made: Pool) -> str:
    """Write a pool as TOML: what was said, and the rest as comments to be made use of."""
    lines = [
        f"# Pool {name}: pilots at {made.site}, as many as jobs need.",
        "# A change of this file counts at once; if it goes, so do the pilots.",
        *([f"about = {_toml(made.about)}"] if made.about else []),
        "", "# The site that its pilots run at.", f"site = {_toml(made.site)}",
    ]  # fmt: skip
    plain = Pool(site="", maximum=0)
    for key, (about, example) in _KEYS.items():
        lines += _key(key, getattr(made, key), getattr(plain, key), about, example)
    lines += ["", "# What each of its pilots is.", "[pilot]"]
    for key, (about, example) in _PILOT_KEYS.items():
        lines += _key(key, getattr(made.pilot, key), getattr(PilotRequest(), key), about, example)
    return "\n".join(lines) + "\n" + _CONTROL


def _key(key: str, value: Any, usual: Any, about: str, example: str) -> list[str]:  # noqa: ANN401
    said = f"{key} = {_toml(value)}" if value != usual else f"#{key} = {example}"
    return [f"# {about}", said]


def _toml(value: object) -> str:
    """Write a value; TOML's texts and numbers are JSON's."""
    return msgspec.json.encode(value).decode()
