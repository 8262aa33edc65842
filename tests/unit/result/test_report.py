from __future__ import annotations

import html.parser
import re
from pathlib import Path
from typing import Any

import pytest

from pilotage.base import text
from pilotage.hub.project import Project
from pilotage.job import moves, records
from pilotage.job.model import Binding, Command, JobSpec, NewJob, State
from pilotage.result import lineage, report

PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 16 + b"\x08\x02" + b"\0" * 16
NUMBERS = b"\x89PNG\r\n\x1a\n" + b"\0" * 16 + b"\x10\x00" + b"\0" * 16


class Past:
    """A project in which things have happened."""

    def __init__(self, root: Path) -> None:
        self.project = Project(root)
        self.root = self.project.root
        self.db = self.project.db

    def event(self, kind: str, subject: str) -> int:
        number = int(self.db.value("event_last")) + 1
        row = [0.0, kind, text.store_path(subject), "", "{}", None, 1]
        self.db.run("event_add", first=number, rows=text.dump([row]))
        return number

    def job(self, *args: Any, **facts: Any) -> int:
        with self.db.transaction():
            return self._job(*args, **facts)

    def _job(
        self, name: str, at: float, seconds: float | None = 1.0, *, path: str = "",
        kind: str = "file.closed", state: State = State.DONE, reason: str = "",
        outputs: dict[str, bytes] | None = None, stderr: str = "", parent: int | None = None,
    ) -> int:  # fmt: skip
        """Make a job that started `at` a time and took so many seconds, or never started."""
        subject = str(self.root / path)
        new = NewJob(
            JobSpec(Command(("true",)), name), Binding(path=subject),
            state=State.QUEUED if seconds is not None else state, reason=reason, parent=parent,
        )  # fmt: skip
        number = records.add(self.db, new, at, rule=name, event=self.event(kind, subject))
        assert number is not None
        if seconds is not None:
            self._run(number, at, seconds, state, reason, stderr)
        for output, content in (outputs or {}).items():
            file = self.root / output
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(content)
            paths = text.dump([text.store_path(str(file))])
            self.db.run("output_put", job=number, paths=paths)
        return number

    def _run(
        self, number: int, at: float, seconds: float, state: State, reason: str, stderr: str
    ) -> None:
        folder = Path(moves.attempt_dir(str(self.root), number, 1))
        folder.mkdir(parents=True)
        (folder / "stderr").write_text(stderr, errors="surrogateescape")
        self.db.run("claim_jobs", ids=f"[{number}]", state="running", now=at).fetchall()
        rows = text.dump([[number, 1, ""]])
        self.db.run("claim_attempts", rows=rows, folder=str(self.root), now=at)
        usage = {"exit": 0, "signal": None, "cpu": seconds / 2, "wall": seconds, "max_rss": 2**20}
        more = {
            "read_bytes": 0,
            "written_bytes": 0,
            "reason": reason,
            "cause": "",
            "now": at + seconds,
        }
        self.db.run("attempt_end", job=number, number=1, state=str(state), **usage, **more)
        moved: dict[str, Any] = {"failed": 0, "ended": at + seconds, "not_before": 0.0}
        self.db.run(
            "job_move", id=number, old="running", attempt=1, state=state, reason=reason, **moved
        )


@pytest.fixture
def past(tmp_path: Path):
    made = Past(tmp_path / "lab")
    yield made
    made.project.close()


@pytest.fixture(autouse=True)
def lab(tmp_path: Path) -> None:
    (tmp_path / "lab").mkdir()


class Page(html.parser.HTMLParser):
    """All that a browser would look at: elements, their addresses, and text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def rendered(past: Past, lead: str | None = None) -> Page:
    return Page(report.render(past.db, "A title", lead))


def test_a_project_in_which_nothing_ran_says_so(past):
    page = rendered(past)
    assert "nothing has run yet" in page.text
    assert "svg" not in page.tags


def test_the_page_tells_how_many_jobs_ran_and_how_long(past):
    for n in range(3):
        past.job("judge", 100.0 + n, path=f"scans/{n}.png")
    past.job("judge", 103.0, seconds=None, state=State.HELD, reason="a person stopped it")
    page = rendered(past)
    totals = report.read_totals(past.db)
    assert (totals.jobs, totals.states[State.DONE], totals.cpu) == (4, 3, 1.5)
    assert "3 done, 1 held" in page.text
    assert "a person stopped it" in page.text
    assert "scans/2.png" in page.text


def test_the_page_needs_no_other_file_and_no_script(past, tmp_path):
    past.job("draw", 1.0, outputs={"a.png": PIXEL})
    out = tmp_path / "page.html"
    report.write(past.db, out, "A title", "<article id='mine'>lead</article>")
    written = out.read_text()
    page = Page(written)
    assert page.addresses
    assert all(address.startswith("data:") for address in page.addresses)
    assert not {"script", "link", "iframe", "object"} & set(page.tags)
    assert not re.search(r"https?:", written.replace("http://www.w3.org/2000/svg", ""))
    assert "<article id='mine'>lead</article>" in written
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["page.html"]


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>.png",
        '"><img src=x onerror=alert(1)>.png',
        "{{ 7 * 7 }}.png",
        "odd \udcff bytes.png",
        "line\nfeed \x1b[31m.png",
    ],
)
def test_file_names_are_shown_and_never_obeyed(past, tmp_path, name):
    name = name.replace("/", "\u2215")
    shown = text.show(name)
    past.job(
        shown, 1.0, path=name, outputs={name: PIXEL}, state=State.FAILED, reason=shown, stderr=name
    )
    out = tmp_path / "page.html"
    report.write(past.db, out, name)
    page = Page(out.read_text(encoding="utf-8"))
    assert page.tags.count("script") == 0
    assert all(address.startswith("data:") for address in page.addresses)
    assert "49.png" not in page.text
    assert "\x1b" not in page.text


def test_a_failure_is_told_with_its_last_words(past):
    words = "\n".join(f"line {n}" for n in range(100)) + "\n\x1b[31mout of foam\x1b[0m\n"
    past.job("judge", 1.0, path="a.png", state=State.FAILED, reason="exit code 3", stderr=words)
    told = rendered(past).text
    assert "exit code 3" in told
    assert "out of foam" in told
    assert "line 99" in told
    assert "line 80" not in told


def test_of_many_failures_the_newest_are_told(past, monkeypatch):
    monkeypatch.setattr(report, "MOST_FAILURES", 2)
    for n in range(3):
        past.job("judge", float(n), state=State.FAILED, reason=f"reason {n}")
    told = rendered(past).text
    assert "reason 0" not in told
    assert "reason 2" in told
    assert "The newest 2 of 3." in told


def test_pictures_are_shown_as_far_as_there_is_room(past, monkeypatch):
    monkeypatch.setattr(report, "MOST_IMAGES", 2)
    monkeypatch.setattr(report, "LARGEST_IMAGE", 100)
    past.job("one", 1.0, outputs={"b/1.png": PIXEL, "a/0.png": NUMBERS, "b/t.csv": b"1"})
    past.job("two", 2.0, outputs={"a/2.svg": b"<svg/>", "b/large.png": PIXEL + b"\0" * 100})
    past.job("three", 3.0, outputs={"b/3.png": PIXEL, "b/4.png": PIXEL})
    (past.root / "b/4.png").unlink()
    found = report.read_images(past.db, str(past.root))
    assert [image.name for image in found.images] == ["a/2.svg", "b/1.png"]
    assert found.note.startswith("2 more are left out")
    assert found.images[0].data.startswith("data:image/svg+xml;base64,")


def test_many_jobs_become_a_picture_of_rules(past):
    for n in range(lineage.MOST_JOBS):
        past.job("judge", float(n), path=f"{n}.png", parent=1 if n else None)
    assert "Every job" in rendered(past).text
    past.job("judge", 100.0, path="last.png")
    assert "Every job" not in rendered(past).text


def test_the_time_line_has_what_began_in_the_colour_of_its_rule(past):
    past.job("judge", 1.0)
    past.job("judge", 2.0, state=State.FAILED)
    past.job("segment", 3.0)
    past.job("late", 4.0, seconds=None, state=State.HELD)
    page = rendered(past)
    assert "3 jobs over 3.0 s" in page.text
    legend = page.text.partition("3 jobs over")[2].partition("Jobs")[0]
    assert legend.split()[-3:] == ["judge", "segment", "failed"]


def test_a_long_table_shows_the_newest(past, monkeypatch):
    monkeypatch.setattr(report, "MOST_LINES", 2)
    for n in range(3):
        past.job("judge", float(n), path=f"scan-{n}.png")
    told = rendered(past).text
    assert "The newest 2 of 3 jobs" in told
    assert "scan-0.png" not in told.partition("made by")[2]


def test_rules_are_linked_by_what_their_jobs_caused(past):
    first = past.job("judge", 1.0, path="scans/a.png", outputs={"judged/a.json": b"{}"})
    past.job("judge", 2.0, path="scans/b.png", outputs={"judged/b.json": b"{}"})
    past.job("segment", 3.0, path="judged/a.png", parent=first)
    past.job("report", 5.0, path="judged", kind="dir.modified")
    edges = {
        (edge.source, edge.target): edge.label
        for edge in lineage.by_rule(past.db, str(past.root)).edges
    }
    assert edges.pop(("source file.closed", "rule judge")) == "2"
    assert edges == {("rule judge", "rule segment"): "1", ("rule judge", "rule report"): "2"}


def test_a_job_on_a_folder_is_caused_by_what_was_written_since_the_one_before(past):
    past.job("judge", 1.0, outputs={"judged/a.json": b"{}"})
    past.job("judge", 2.0, outputs={"judged/b.json": b"{}"})
    past.job("report", 4.0, path="judged", kind="dir.modified")
    past.job("judge", 6.0, outputs={"judged/c.json": b"{}"})
    past.job("report", 8.0, path="judged", kind="dir.modified")
    jobs = lineage.read(past.db, 100)
    edges = lineage.by_job(past.db, jobs, str(past.root)).edges
    assert [(edge.source, edge.target) for edge in edges] == [("1", "3"), ("2", "3"), ("4", "5")]
