"""A project on disk, as commands and Python programs use it: everything here is durable at once.

A command writes to the store and wakes the process that runs the project; it needs no server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pilotage.base import errors, text
from pilotage.base.owner import me
from pilotage.batch import records as sites
from pilotage.job import logs, moves
from pilotage.job import records as jobs
from pilotage.job.model import Attempt, Job, NewJob, State
from pilotage.project.folder import ProjectFolder

if TYPE_CHECKING:
    from pilotage.batch.pilot_request import PilotRequest
    from pilotage.flow.model import Flow
    from pilotage.rule.files import Diff, RuleFile
    from pilotage.rule.model import Rule
    from pilotage.rule.records import LoadedRuleFiles, StoredRule


def read_flow(file: str, found: set[str]) -> dict[str, Any]:
    """Read a workflow that a rule starts; files of workflows that it names are added to `found`."""
    from pilotage.flow.read import from_file  # few rules start workflows, and it is much to load

    return from_file(file, found)


class Project(ProjectFolder):
    """A project with all that commands and Python programs do to it."""

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, new: NewJob) -> int:
        """Queue a job; it is safe when this returns."""
        with self.change() as db:
            job = jobs.add(db, new, self.clock.now())
        if job is None:
            conflict = f"a job with the key {new.key!r} exists already"
            raise errors.Conflict(conflict, hint="the same work is never queued twice")
        return job

    def job(self, number: int) -> Job:
        """Read a job."""
        return jobs.get(self.db, number)

    def jobs(self, selection: jobs.Selection) -> list[Job]:
        """Read jobs."""
        return jobs.find(self.db, selection)

    def attempts(self, number: int) -> list[Attempt]:
        """Read the attempts of a job."""
        return jobs.attempts(self.db, number)

    def want_pilots(self, site: str, wish: PilotRequest, count: int, pool: str) -> list[int]:
        """Ask for pilots at a site."""
        body = msgspec.json.encode(wish).decode()
        with self.change() as db:
            now = self.clock.now()
            return [
                int(db.value("pilot_want", name=site, site=site, pool=pool, wish=body, now=now))
                for _ in range(count)
            ]

    def ask_site(self, name: str, asked: str, why: str = "") -> None:
        """Ask something of a site: `drain`, or nothing any more."""
        with self.change() as db:
            sites.ask(db, name, asked, by=me(), why=why, now=self.clock.now())

    def follow(self, number: int) -> None:
        """Fetch the log of a job for a while, if it is at an edge site."""
        now = self.clock.now()
        if logs.due(self.db, number, now):
            with self.change() as db:
                logs.follow(db, number, now)

    def cancel(self, numbers: Sequence[int]) -> dict[int, State]:
        """Cancel jobs."""
        return self._each(numbers, moves.cancel)

    def hold(self, numbers: Sequence[int]) -> dict[int, State]:
        """Hold jobs."""
        return self._each(numbers, moves.hold)

    def release(self, numbers: Sequence[int]) -> dict[int, State]:
        """Release held jobs."""
        return self._each(numbers, moves.release)

    def retry(self, numbers: Sequence[int]) -> dict[int, State]:
        """Retry failed jobs."""
        from pilotage.flow.rerun import retry  # most commands have nothing to do with workflows

        return self._each(numbers, retry)

    def _each(self, numbers: Sequence[int], verb: Callable[..., State]) -> dict[int, State]:
        with self.change() as db:
            now = self.clock.now()
            return {number: verb(db, jobs.get(db, number), now=now) for number in numbers}

    def check_flow(self, flow: Flow) -> tuple[str, ...]:
        """Refuse a workflow whose sites will never take its steps; return which steps will wait."""
        from pilotage.flow import sites as flow_sites  # most commands need no sites

        now, running = self.clock.now(), self.running()
        return tuple(
            flow_sites.check_flow(self.db, self.root, self.settings, flow, now, running=running)
        )

    # -- events ----------------------------------------------------------------------------------

    def emit(self, topic: str, data: Any = None, *, identity: str = "") -> int:  # noqa: ANN401
        """Send a message to the rules; the same identity twice is one event."""
        body = data if isinstance(data, bytes) else text.dump(data or {}).encode()
        return self.receive(topic, body, identity)

    def receive(self, topic: str, body: bytes, identity: str = "") -> int:
        """Store a message; it is safe when this returns."""
        with self.change() as db:
            return self.store_message(db, topic, body, identity)

    # -- rules -----------------------------------------------------------------------------------

    def read_books(self) -> LoadedRuleFiles:
        """Read all rule files without changing anything."""
        from pilotage.rule import records as books  # most commands need no rules

        return books.read(self.db, self.folder, self.root, read_flow)

    def read_book(self, file: Path) -> RuleFile:
        """Read a book that need not be in force."""
        from pilotage.rule import records as books  # most commands need no rules

        return books.load(file, self.root, read_flow)

    def apply_books(self) -> tuple[Diff, LoadedRuleFiles]:
        """Read all rule files and put their rules in force."""
        from pilotage.rule import records as books  # most commands need no rules

        with self.change() as db:
            loaded = books.read(db, self.folder, self.root, read_flow)
            return books.apply(db, loaded, self.clock.now()), loaded

    def add_book(self, file: Path) -> Diff:
        """Apply the rules of a file, or its new version."""
        from pilotage.rule import records as books  # most commands need no rules

        with self.change() as db:
            origin = books.add(db, file, self.root, self.clock.now(), read_flow)
            loaded = books.read(db, self.folder, self.root, read_flow)
            if origin in loaded.failed:
                raise loaded.failed[origin]
            return books.apply(db, loaded, self.clock.now())

    def put_rules(self, book: str, rules: Iterable[Rule]) -> Diff:
        """Apply rules that a program made; they replace those of the same name of a rule file."""
        from pilotage.rule import records as books  # most commands need no rules

        with self.change() as db:
            books.put(db, book, rules, self.clock.now())
            loaded = books.read(db, self.folder, self.root, read_flow)
            if book in loaded.failed:
                raise loaded.failed[book]
            return books.apply(db, loaded, self.clock.now())

    def rules_in_force(self) -> bool:
        """Return whether the running process has loaded the last change of the rules."""
        from pilotage.rule import records as books  # most commands need no rules

        return books.in_force(self.db)

    def drop_book(self, name: str) -> Diff:
        """Remove the rules of an added rule file."""
        from pilotage.rule import records as books  # most commands need no rules

        with self.change() as db:
            known = {row[0] for row in db.rows("book_list")}
            full = name if name in known else str(Path(name).resolve())
            if full not in known:
                missing = f"no rule file {name!r} was added"
                raise errors.NotFound(
                    missing, hint="`pilotage rule ls` names the rule file of each rule"
                )
            db.run("book_drop", name=full)
            return books.apply(
                db, books.read(db, self.folder, self.root, read_flow), self.clock.now()
            )

    def rules(self) -> dict[str, StoredRule]:
        """Read the rules in force."""
        from pilotage.rule import records as books  # most commands need no rules

        return books.known(self.db)

    def enable(self, names: Sequence[str], *, on: bool = True) -> None:
        """Enable or disable rules."""
        from pilotage.rule import records as books  # most commands need no rules

        with self.change() as db:
            books.enable(db, names, on=on)

    # -- pilots ----------------------------------------------------------------------------------

    def ask_pilots(self, numbers: Sequence[int], asked: str) -> None:
        """Ask pilots to `drain` or to `stop`."""
        from pilotage.pilot import view  # most commands need no pilots

        with self.change() as db:
            view.ask(db, numbers, asked)
