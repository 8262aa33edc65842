"""A project on disk, as commands and Python programs use it: everything here is durable at once.

A command writes to the store and pokes whoever runs the project; it needs no server.
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
    from pilotage.rule.book import Diff
    from pilotage.rule.model import Rule
    from pilotage.rule.rulebook import Known, Loaded


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
        """Have the log of a job brought here for a while, if it is at a site with an agent."""
        now = self.clock.now()
        if logs.due(self.db, number, now):
            with self.change() as db:
                logs.follow(db, number, now)

    def cancel(self, numbers: Sequence[int]) -> dict[int, State]:
        """Call jobs off."""
        return self._each(numbers, moves.cancel)

    def hold(self, numbers: Sequence[int]) -> dict[int, State]:
        """Keep jobs from going on."""
        return self._each(numbers, moves.hold)

    def release(self, numbers: Sequence[int]) -> dict[int, State]:
        """Let held jobs go on."""
        return self._each(numbers, moves.release)

    def retry(self, numbers: Sequence[int]) -> dict[int, State]:
        """Try jobs again that ended badly."""
        from pilotage.flow.rerun import retry  # most commands have nothing to do with workflows

        return self._each(numbers, retry)

    def _each(self, numbers: Sequence[int], verb: Callable[..., State]) -> dict[int, State]:
        with self.change() as db:
            now = self.clock.now()
            return {number: verb(db, jobs.get(db, number), now=now) for number in numbers}

    def check_flow(self, flow: Flow) -> tuple[str, ...]:
        """Refuse a workflow whose sites will never take its steps; return which steps will wait."""
        from pilotage.status import sites as site_view  # most commands need no sites

        now, running = self.clock.now(), self.running()
        return tuple(
            site_view.check_flow(self.db, self.root, self.settings, flow, now, running=running)
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

    def read_books(self) -> Loaded:
        """Read all books without changing anything."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        return books.read(self.db, self.folder, self.root)

    def apply_books(self) -> tuple[Diff, Loaded]:
        """Read all books and put their rules in force."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self.change() as db:
            loaded = books.read(db, self.folder, self.root)
            return books.apply(db, loaded, self.clock.now()), loaded

    def add_book(self, file: Path) -> Diff:
        """Put the rules of a file in force, or what it has become."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self.change() as db:
            origin = books.add(db, file, self.root, self.clock.now())
            loaded = books.read(db, self.folder, self.root)
            if origin in loaded.failed:
                raise loaded.failed[origin]
            return books.apply(db, loaded, self.clock.now())

    def put_rules(self, book: str, rules: Iterable[Rule]) -> Diff:
        """Put the rules that a program made in force, in the place of those of the same book."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self.change() as db:
            books.put(db, book, rules, self.clock.now())
            loaded = books.read(db, self.folder, self.root)
            if book in loaded.failed:
                raise loaded.failed[book]
            return books.apply(db, loaded, self.clock.now())

    def rules_in_force(self) -> bool:
        """Say whether whoever runs the project has taken up the last change of the rules."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        return books.in_force(self.db)

    def drop_book(self, name: str) -> Diff:
        """Take the rules of an added book out of force."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self.change() as db:
            known = {row[0] for row in db.rows("book_list")}
            full = name if name in known else str(Path(name).resolve())
            if full not in known:
                missing = f"no book {name!r} was added"
                raise errors.NotFound(
                    missing, hint="`pilotage rule ls` names the book of each rule"
                )
            db.run("book_drop", name=full)
            return books.apply(db, books.read(db, self.folder, self.root), self.clock.now())

    def rules(self) -> dict[str, Known]:
        """Read the rules in force."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        return books.known(self.db)

    def enable(self, names: Sequence[str], *, on: bool = True) -> None:
        """Let rules take events, or not."""
        from pilotage.rule import rulebook as books  # most commands need no rules

        with self.change() as db:
            books.enable(db, names, on=on)

    # -- pilots ----------------------------------------------------------------------------------

    def ask_pilots(self, numbers: Sequence[int], asked: str) -> None:
        """Ask pilots to `drain` or to `stop`."""
        from pilotage.pilot import view  # most commands need no pilots

        with self.change() as db:
            view.ask(db, numbers, asked)
