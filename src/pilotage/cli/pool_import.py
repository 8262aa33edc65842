"""`pilotage pool import`: convert sites and pools of a TARDIS configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from pilotage.base import durable, errors
from pilotage.cli.answer import Answer, Shown, Styled, line
from pilotage.cli.common import HERE, Common

if TYPE_CHECKING:
    from pilotage.compat.cobald.carry import Moved

_MODE = 0o600


def import_(
    file: Annotated[
        Path, Parameter(help="A configuration of TARDIS, or of COBalD with one in it.")
    ],
    /,
    *,
    dry_run: Annotated[
        bool, Parameter(name=("--dry-run", "-n"), help="Show what would be written; write nothing.")
    ] = False,
    at: Common = HERE,
) -> Answer:
    """Write site and pool files from a TARDIS configuration; existing files are not changed."""
    from pilotage.compat.cobald import carry, tardis

    with at.open() as project:
        root = project.root
    found = tardis.load(file)
    moved: list[Moved] = []
    refused: list[errors.PilotageError] = []
    for place in found.places:
        try:
            moved.append(carry.carry(place))
        except errors.PilotageError as error:
            refused.append(error)
    if not moved:
        raise refused[0]
    texts = {path: text for one in moved for path, text in _texts(root, one).items()}
    kept = [path for path in texts if path.exists()]
    fresh = [path for path in texts if path not in kept]
    for path in fresh if not dry_run else ():
        _write(path, texts[path])
    lost = [f"{one.name}: {words}" for one in moved for words in one.lost]
    lost += carry.general(found)
    data: dict[str, Any] = {
        "written": [str(path) for path in fresh], "kept": [str(path) for path in kept],
        "lost": lost, "refused": [str(one) for one in refused], "dry_run": dry_run,
    }  # fmt: skip
    shown = _shown(root, fresh, kept, dry_run=dry_run)
    shown += [line(Styled("not carried over: ", "yellow"), words) for words in lost]
    shown += [line(Styled("refused: ", "red"), f"{one} ({one.hint})") for one in refused]
    names = tuple(name for one in moved for name in one.pools)
    return Answer(data, tuple(shown), names, _notes(moved), status=int(bool(refused)))


def _texts(root: Path, one: Moved) -> dict[Path, str]:
    """Return what would be in which file."""
    from pilotage.batch import files as sites
    from pilotage.compat.cobald import carry
    from pilotage.pool import files as pools

    made, site = dict[Path, str](), one.site
    if one.reach.far:
        way = root / sites.FOLDER / f"{one.name}.ssh"
        made[way] = one.reach.settings
        site = msgspec.structs.replace(site, ssh_config=str(way))
    made[sites.file_of(root, one.name)] = sites.text(one.name, site)
    for name, pool in one.pools.items():
        made[pools.file_of(root, name)] = carry.text(name, pool)
    return made


def _write(path: Path, text: str) -> None:
    """Write a new file; one that came meanwhile stays as it is."""
    path.parent.mkdir(exist_ok=True)
    try:
        durable.create(path, text, mode=_MODE)
    except FileExistsError:
        hint = "it appeared meanwhile, or is a broken link; try again"
        raise errors.Conflict(f"{path} is there and was not written", hint=hint) from None


def _shown(root: Path, fresh: list[Path], kept: list[Path], *, dry_run: bool) -> list[Shown]:
    word = Styled("would write ", "dim") if dry_run else Styled("wrote ", "green")
    there = Styled("kept ", "dim")
    return [
        *(line(word, str(path.relative_to(root))) for path in fresh),
        *(line(there, f"{path.relative_to(root)}, which was there") for path in kept),
    ]


def _notes(moved: list[Moved]) -> tuple[str, ...]:
    checks = ", ".join(f"`pilotage site check {one.name}`" for one in moved)
    return (f"look at each site: {checks}", "then `pilotage up` and `pilotage pool run FILE`")
