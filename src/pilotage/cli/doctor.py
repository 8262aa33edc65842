"""`pilotage doctor`: check this machine's prerequisites."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from pilotage.base import errors, units
from pilotage.cli.answer import Answer, Styled, Table, columns
from pilotage.cli.common import HERE, Common
from pilotage.event.file import watches
from pilotage.hub.project import Project

_LEAST_WATCHES = 65_536
_LEAST_ROOM = 1024**3
_LEAST_SQLITE = (3, 38)
_THIS_CENTURY = 1_700_000_000.0
_SIGNS = {"ok": Styled("✔", "green"), "warn": Styled("!", "yellow"), "bad": Styled("✘", "red")}


class CheckResult(msgspec.Struct, frozen=True):
    """The result of one check."""

    name: str
    #: `ok`, `warn` or `bad`.
    verdict: str
    #: What was found, and what to do if that is not well.
    found: str


def doctor(*, at: Common = HERE) -> Answer:
    """Check this machine's prerequisites."""
    checks = [*_machine()]
    try:
        with at.open() as project:
            checks += _project(project)
    except errors.NoProject as error:
        checks.append(CheckResult("project", "warn", f"{error}: {error.hint}"))
    except errors.PilotageError as error:
        checks.append(CheckResult("project", "bad", f"{error}: {error.hint}"))
    return report(checks)


def report(checks: list[CheckResult]) -> Answer:
    """Return what was found; it is no success if anything was bad."""
    rows = tuple((_SIGNS[one.verdict], one.name, one.found) for one in checks)
    bad = [one for one in checks if one.verdict == "bad"]
    return Answer(
        {"ok": not bad, "checks": msgspec.to_builtins(checks)},
        (Table(columns("· CHECK FOUND"), rows),),
        tuple(one.name for one in bad),
        status=1 if bad else 0,
    )


def _machine() -> Iterator[CheckResult]:
    new = sys.version_info >= (3, 11)
    yield CheckResult(
        "python", "ok" if new else "bad", f"{platform.python_version()} at {sys.executable}"
    )
    version = apsw.sqlite_lib_version()
    fresh = tuple(int(part) for part in version.split(".")[:2]) >= _LEAST_SQLITE
    yield CheckResult("sqlite", "ok" if fresh else "bad", f"{version}, apsw {apsw.apsw_version()}")
    yield _watches()
    yield _limit("max_user_instances", 128, "inotify instances")
    has = importlib.util.find_spec("papermill") is not None
    yield CheckResult(
        "notebooks", "ok" if has else "warn",
        "papermill is here" if has else "no papermill: `pip install 'pilotage[notebook]'`",
    )  # fmt: skip
    cores = len(os.sched_getaffinity(0))
    memory = units.bytes_for_people(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    yield CheckResult(
        "machine", "ok", f"{cores} cores, {memory}, {platform.system()} {platform.release()}"
    )
    sane = time.time() > _THIS_CENTURY
    now = time.strftime("%Y-%m-%d %H:%M:%S %Z")
    yield CheckResult("clock", "ok" if sane else "bad", now if sane else f"{now}: set the clock")


def _watches() -> CheckResult:
    return _limit("max_user_watches", _LEAST_WATCHES, "inotify watches")


def _limit(name: str, least: int, what: str) -> CheckResult:
    try:
        number = int(Path(f"/proc/sys/fs/inotify/{name}").read_text(encoding="ascii"))
    except (OSError, ValueError):
        return CheckResult(
            what, "warn", 'unknown here; set `events.mode = "poll"` if files are missed'
        )
    if number >= least:
        return CheckResult(what, "ok", f"{number} a user")
    return CheckResult(what, "warn", f"{number} a user: `sudo sysctl fs.inotify.{name}={least}`")


def _project(project: Project) -> Iterator[CheckResult]:
    yield CheckResult("project", "ok", str(project.root))
    yield _store(project)
    kind = _kind(str(project.root))
    how = (
        "polled: inotify misses what others do" if watches.is_blind(kind) else "watched by inotify"
    )
    yield CheckResult("file system", "ok", f"{kind or 'unknown'}; files are {how}")
    room = shutil.disk_usage(project.state).free
    yield CheckResult(
        "disk", "ok" if room >= _LEAST_ROOM else "warn", f"{units.bytes_for_people(room)} free"
    )
    yield _books(project)
    running = project.running()
    words = "this project is run by a process" if running else "nothing runs it: `pilotage up`"
    yield CheckResult("process", "ok" if running else "warn", words)


def _store(project: Project) -> CheckResult:
    try:
        with project.db.transaction():
            pass
    except errors.StoreUnavailable as error:
        return CheckResult("store", "bad", f"{error}: {error.hint}")
    size = units.bytes_for_people(project.db.path.stat().st_size)
    return CheckResult("store", "ok", f"{project.db.path.name} can be written, {size}")


def _books(project: Project) -> CheckResult:
    loaded = project.read_books()
    for error in loaded.failed.values():
        return CheckResult("rules", "bad", str(error))
    return CheckResult("rules", "ok", f"{len(loaded.rules)} in order")


def _kind(path: str) -> str:
    table = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape")
    return watches.type_of(path, watches.read_mounts(table))
