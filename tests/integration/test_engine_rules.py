"""Rules that come, change and go while events flow."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import anyio
import pytest

from pilotage.base import errors
from pilotage.job.model import State
from tests.rigs.project.project import Rig

ONE = '[rule.one]\nfiles = "raw/*"\nrun = ["true"]\n'


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


async def test_a_rule_born_while_running_takes_what_exists(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, ONE)
    (tmp_path / "elsewhere").mkdir()
    for number in range(10):
        (raw / str(number)).write_text("x")
        (tmp_path / "elsewhere" / str(number)).write_text("x")
    async with rig.live():
        await rig.ended(10, "one")
        rig.rules('[rule.two]\nfiles = "raw/*"\nrun = ["true"]\n', "two.toml")
        rig.rules('[rule.three]\nfiles = "elsewhere/*"\nrun = ["true"]\n', "three.toml")
        rig.rules(
            '[rule.four]\nfiles = "raw/*"\nevents = ["closed"]\nrun = ["true"]\n', "four.toml"
        )
        await rig.ended(30)
        (raw / "new").write_text("x")
        await rig.ended(33)
        await anyio.sleep(0.3)
    counts = {name: len(rig.jobs(name)) for name in ("one", "two", "three", "four")}
    assert counts == {"one": 11, "two": 11, "three": 10, "four": 1}


async def test_a_changed_rule_takes_only_what_it_has_not_taken(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.r]\nfiles = "raw/*.a"\nrun = ["true"]\n')
    for name in ("1.a", "2.b"):
        (raw / name).write_text("x")
    async with rig.live():
        await rig.ended(1)
        rig.rules('[rule.r]\nfiles = "raw/*"\nrun = ["echo", "changed"]\n')
        await rig.ended(2)
        await anyio.sleep(0.3)
    assert [Path(job.binding.path).name for job in rig.jobs()] == ["1.a", "2.b"]


async def test_a_mistake_leaves_the_rules_as_they_were(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, ONE)
    async with rig.live() as project:
        rig.rules('[rule.one]\nfiles = "raw/*"\nrum = ["true"]\n')
        await anyio.sleep(1.2)
        (raw / "a").write_text("x")
        await rig.ended(1)
        assert set(project.rules()) == {"one"}
        (tmp_path / "rules/book.toml").unlink()
        await rig.until(lambda: not project.rules() and project.rules_in_force())
        (raw / "b").write_text("x")
        await anyio.sleep(0.5)
    assert len(rig.jobs()) == 1


async def test_books_are_added_and_dropped_at_run_time(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path)
    book = tmp_path / "more.toml"
    book.write_text(ONE)
    (raw / "a").write_text("x")
    async with rig.live() as project:
        assert project.add_book(book).added == ("one",)
        await rig.ended(1)
        project.enable(["one"], on=False)
        await rig.until(project.rules_in_force)
        (raw / "b").write_text("x")
        await anyio.sleep(0.5)
        assert len(rig.jobs()) == 1
        project.enable(["one"])
        await rig.until(project.rules_in_force)
        (raw / "c").write_text("x")
        await rig.ended(3)  # and what came while it was disabled
        assert project.drop_book(str(book)).removed == ("one",)
        await rig.until(project.rules_in_force)
        (raw / "d").write_text("x")
        await anyio.sleep(0.5)
        assert len(rig.jobs()) == 3
        with pytest.raises(errors.NotFound):
            project.drop_book("nothing.toml")
        book.write_text("[rule.one]\nfiles = 3\n")
        with pytest.raises(errors.BadRule) as caught:
            project.add_book(book)
    assert caught.value.line == 2


async def test_a_rule_in_python(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path)
    rig.rules(
        "from pilotage.book import rule\n\n\n"
        '@rule(files="raw/*.txt", sweep={"n": [1, 2]}, cpus=1)\n'
        "def shout(path, n):\n"
        "    return open(path).read().upper() * n\n",
        "shout.py",
    )
    async with rig.live():
        (raw / "a.txt").write_text("x")
        jobs = await rig.ended(2)
    assert [rig.output(job, "result.json") for job in jobs] == ['"X"', '"XX"']


async def test_a_recipe_may_come_later(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.late]\nfiles = "raw/*"\nrecipe = "work"\n')
    (raw / "a").write_text("x")
    async with rig.live() as project:
        assert project.read_books().inert == {"late": "work"}
        rig.rules('[recipe.work]\nrun = ["true"]\n', "recipes.toml")
        await rig.ended(1)
        (tmp_path / "rules/recipes.toml").unlink()
        await rig.until(lambda: not project.rules())


async def test_no_event_is_lost_or_repeated_while_rules_change(tmp_path: Path, raw: Path) -> None:
    rules = '[rule.r]\nfiles = "raw/**/*.dat"\nrun = ["true"]\ncpus = 4096\nparams = {{ n = {} }}\n'
    rig = Rig(tmp_path, rules.format(0))
    count = 2000

    def write() -> None:
        for number in range(count):
            folder = raw / str(number % 20)
            folder.mkdir(exist_ok=True)
            (folder / f"{number}.dat").write_text("x")
            time.sleep(0.001)

    async with rig.live() as project:
        writer = threading.Thread(target=write)
        writer.start()
        change = 0
        while writer.is_alive():
            change += 1
            rig.rules(rules.format(change))
            await anyio.to_thread.run_sync(project_refresh, project)
            await anyio.sleep(0.3)
        await rig.until(lambda: project.db.value("job_last") >= count)
        await anyio.sleep(1)
    jobs = rig.jobs()
    assert len({job.binding.path for job in jobs}) == len(jobs) == count
    assert {job.state for job in jobs} == {State.QUEUED}


def project_refresh(project: object) -> None:
    project.poke()  # type: ignore[attr-defined]
