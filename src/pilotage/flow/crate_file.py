"""RO-Crates of flows on disk: a folder or a zip file, complete or not there at all."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from pilotage.base import errors
from pilotage.flow import crate, report, view
from pilotage.flow.crate import CrateFlow, CrateRun
from pilotage.flow.view import OutputFile, TaskDetail
from pilotage.store import Db

#: The most tasks in a crate.
MOST_TASKS = 100_000
NO_LICENSE = "No licence was given; ask the owner."

#: Fetches an address into a folder here.
Fetch = Callable[[str, Path], None]


def write(
    db: Db, number: int, out: Path, now: float, version: str, *, license_: str = "",
    fetch: Fetch | None = None,
) -> int:  # fmt: skip
    """Write the crate of a flow, with its data if that can be fetched; return how many files."""
    if out.exists() and (out.is_file() != (out.suffix == ".zip") or _full(out)):
        hint = "choose another name, or remove it first"
        raise errors.Conflict(f"`{out}` is there already", hint=hint)
    if not out.absolute().parent.is_dir():
        raise errors.NotFound(f"there is no folder `{out.parent}`", hint="make it first")
    main = _part(db, number)
    within = _within(db, main)
    tasks = [one for part in (main, *within.values()) for one in part.tasks]
    files = view.files(db, [one.id for one in tasks])
    hidden = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    try:
        inside = _bring(hidden, number, tasks, files, fetch) if fetch else {}
        (hidden / crate.DEFINITION).write_bytes(crate.definition(main.sheet.flow))
        (hidden / crate.REPORT).write_text(report.render(db, number, now), encoding="utf-8")
        run = CrateRun(main, files, license_ or NO_LICENSE, now, version, within, inside)
        (hidden / "ro-crate-metadata.json").write_text(
            json.dumps(crate.metadata(run), indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        count = sum(1 for one in hidden.rglob("*") if one.is_file())
        if out.suffix == ".zip":
            _pack(hidden, out)
        else:
            hidden.chmod(0o755)
            if out.is_dir():
                out.rmdir()
            os.replace(hidden, out)
    finally:
        shutil.rmtree(hidden, ignore_errors=True)
    return count


def _part(db: Db, number: int) -> CrateFlow:
    return CrateFlow(view.sheet(db, number), view.all_tasks(db, number, MOST_TASKS))


def _within(db: Db, part: CrateFlow) -> dict[str, CrateFlow]:
    """Read the flows within a flow, and those within them, by the keys of their attempts."""
    found: dict[str, CrateFlow] = {}
    left = [part]
    while left:
        for task in left.pop().tasks:
            for one in task.attempts:
                if one.way == "flow" and one.job is not None:
                    found[one.key] = _part(db, one.job)
                    left.append(found[one.key])
    return found


def _full(out: Path) -> bool:
    return out.is_file() or any(out.iterdir())


def _bring(
    folder: Path, number: int, tasks: list[TaskDetail], files: list[OutputFile], fetch: Fetch
) -> dict[tuple[int, int, str], str]:
    """Bring what counts into the crate."""
    left: dict[tuple[int, int], list[OutputFile]] = {}
    for one in files:
        left.setdefault((one.task, one.number), []).append(one)
    found: dict[tuple[int, int, str], str] = {}
    for task in tasks:
        mine = left.get((task.id, task.attempt), [])
        current = next((one for one in task.attempts if one.number == task.attempt), None)
        if not mine or current is None or not current.place:
            continue
        # Steps of flows within may have the same names.
        where = task.step if current.flow == number else f"{current.flow}/{task.step}"
        below = f"{crate.DATA}/{where}/{task.item}"
        (folder / below).mkdir(parents=True)
        fetch(current.place, folder / below)
        for one in mine:
            if (folder / below / one.name).is_file():
                found[one.task, one.number, one.name] = f"{below}/{one.name}"
    return found


def _pack(folder: Path, out: Path) -> None:
    hidden = out.with_name(f".{out.name}.part")
    try:
        with zipfile.ZipFile(hidden, "w", zipfile.ZIP_DEFLATED) as packed:
            for one in sorted(folder.rglob("*")):
                if one.is_file():
                    packed.write(one, one.relative_to(folder).as_posix())
        os.replace(hidden, out)
    finally:
        hidden.unlink(missing_ok=True)
