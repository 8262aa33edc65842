"""Keeps the rules in force: loads books, swaps rules while events flow, lets new rules be born."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping

from pilotage.base import text
from pilotage.event.file.source import FileSource
from pilotage.job import records
from pilotage.project.folder import ProjectFolder
from pilotage.rule import ends, rulebook
from pilotage.rule.book import Diff
from pilotage.rule.ends import Story
from pilotage.rule.flows import FlowReader
from pilotage.rule.intake import Intake
from pilotage.rule.model import JobPattern
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.rules")


class Keeper:
    """Blocking, for a worker thread: file systems are read and events flushed on the way."""

    def __init__(
        self, project: ProjectFolder, writer: Writer, intake: Intake,
        stories: Mapping[str, Story], changed: Callable[[], None], read_flow: FlowReader,
    ) -> None:  # fmt: skip
        """Begin with no rules; `changed` is called when they have changed."""
        self._project = project
        self._writer = writer
        self._intake = intake
        self._stories = stories
        self._changed = changed
        self._read_flow = read_flow
        self._source: FileSource | None = None
        self._generation = -1
        self._fingerprint = ""
        #: Files of workflows that rules start.
        self._flows: frozenset[str] = frozenset()
        self._turn = threading.Lock()

    def load(self) -> None:
        """Read the books and take their rules in force, before any source runs."""
        self._read_folder()
        self._swap()

    def serve(self, source: FileSource) -> None:
        """Take over the file source once it is ready, and let new rules be born."""
        source.ready.wait()
        self._source = source
        self._bear()

    def stale(self) -> bool:
        """Say whether the folder of books is not what was read last."""
        watch = self._project.settings.rules.watch
        return watch and self._look() != self._fingerprint

    def refresh(self) -> None:
        """Follow changes of the folder of books and of the rules in the store."""
        with self._turn:
            self._refresh()

    def _refresh(self) -> None:
        if self._project.settings.rules.watch:
            self._read_folder()
        if self._source and self._writer.do(rulebook.generation) != self._generation:
            self._swap()
            # New ground is watched and scanned before the call returns; what it finds is matched
            # by the new rules, and the key of a job keeps anything from being made twice.
            self._source.reshape(self._intake.index.scope, self._intake.index.kinds)
            self._bear()
            self._changed()

    def _read_folder(self) -> None:
        now = self._look()
        if now == self._fingerprint:
            return
        loaded, diff = self._writer.do(self._apply)
        # A workflow that was not watched until now may have changed since it was read: once more.
        self._fingerprint = now if self._flows == loaded.flows else ""
        self._flows = loaded.flows
        for name, error in loaded.failed.items():
            hint = f" ({error.hint})" if error.hint else ""
            _log.error("%s: its rules stay as they were: %s%s", name, error, hint)
        if summary := rulebook.summary(diff):
            _log.info("rules: %s", summary)

    def _look(self) -> str:
        return rulebook.fingerprint(self._project.folder, self._flows)

    def _apply(self, db: Db) -> tuple[rulebook.Loaded, Diff]:
        project = self._project
        loaded = rulebook.read(db, project.folder, project.root, self._read_flow)
        return loaded, rulebook.apply(db, loaded, self._project.clock.now())

    def _swap(self) -> None:
        def step(db: Db) -> tuple[int, dict[str, rulebook.Known], dict[str, int]]:
            found = rulebook.known(db)
            specs = {name: records.intern(db, one.rule.spec) for name, one in found.items()}
            live = (one.rule.pattern for one in found.values() if one.enabled)
            wanted = any(isinstance(one, JobPattern) for one in live)
            ends.start_ends(db, self._stories, wanted=wanted)
            return rulebook.generation(db), found, specs

        self._generation, found, specs = self._writer.do(step)
        rules = [one.rule for one in found.values()]
        self._intake.swap(rules, specs, str(self._project.root))

    def _bear(self) -> None:
        """Let rules that are new or changed fire on the files that were known before them."""
        known = self._writer.do(rulebook.known)
        unborn = [name for name, one in known.items() if not one.settled and one.enabled]
        if unborn:
            self._intake.flush()
            self._intake.birth(unborn)
            _log.debug("rules born: %s", text.dump(unborn))
        self._writer.do(lambda db: rulebook.take_effect(db, self._generation))
