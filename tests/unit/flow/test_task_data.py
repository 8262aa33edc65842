"""What steps leave and read, on this machine: results, folders of jobs, and what is published."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.data.transfer.model import MANIFEST
from pilotage.edge import folders, reach
from pilotage.edge.handoff import InputPiece
from pilotage.edge.inspect import Inspector
from pilotage.edge.publish import Publisher
from pilotage.edge.reach import Reach
from pilotage.flow import moves, task_data
from pilotage.flow.model import Step
from pilotage.flow.task_data import ExpectedOutputs
from pilotage.project import settings as config
from pilotage.store import connect


class Place:
    """A project with a transfer server that is a folder."""

    def __init__(self, top: Path) -> None:
        self.root, self.state, self.data = top / "p", top / "p" / ".pilotage", top / "data"
        for one in (self.state, self.data):
            one.mkdir(parents=True)
        settings = config.FlowSettings(data=f"file://{self.data}", folders=(str(top / "out"),))
        self.reach = Reach(settings, self.root, self.state)
        self.stores = reach.stores(settings, self.state, connect(self.state / "store.db"))
        self.scratch = self.state / "flows" / "scratch"
        self.publisher = Publisher(self.reach, self.stores, self.root, self.scratch)

    async def left(self, name: str, files: dict[str, bytes]) -> InputPiece:
        """Have a step leave files; return how it is read."""
        source = self.root / "src" / name
        for path, data in files.items():
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(data)
        url = f"file://{self.data}/{name}/"
        receipt = await self.reach.inside.send(str(source), url)
        return InputPiece(url, "", receipt.digest, own=True)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def content(url: str) -> str:
    return Path(url.removeprefix("file://")).read_text()


# -- results ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body, value", [(b"[1, 2]", [1, 2]), (b'{"a": "x\\ny"}', {"a": "x\ny"}), (b" 3\n", 3)]
)
def test_any_json_value_is_a_result(body: bytes, value: object):
    assert task_data.parse(body) == value


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"NaN", b"[1e999]", b"-Infinity", b"\xff", b"[" * 40 + b"]" * 40, b"[" * 60_000,
     b'"' + b"x" * moves.MOST_RETURNED_BYTES + b'"'],
)  # fmt: skip
def test_what_is_no_small_json_value_is_none(body: bytes):
    with pytest.raises(errors.BadMessage):
        task_data.parse(body)


def test_the_result_is_among_what_is_left():
    assert task_data.leaves(Step()) == ExpectedOutputs()
    assert task_data.leaves(Step(result="r")) == ExpectedOutputs(("r",), "r")
    assert task_data.leaves(Step(result="r", outputs=("a", "r"))) == ExpectedOutputs(
        ("a", "r"), "r"
    )
    assert task_data.leaves(Step(result="o/r", outputs=("o/",))) == ExpectedOutputs(("o/",), "o/r")
    assert task_data.leaves(Step(result="r", outputs=("",))) == ExpectedOutputs(("",), "r")


# -- folders of our own jobs -----------------------------------------------------------------------


async def test_inputs_come_once_and_half_of_them_is_begun_anew(place: Place, tmp_path: Path):
    one = await place.left("one", {"a": b"1", "sub/b": b"22"})
    two = InputPiece(f"file://{place.data}/one/sub/b", "in/named", "", own=True)
    folder = tmp_path / "work" / "1"
    # Who was killed has left a part, and another file at its place.
    (folder / "a").mkdir(parents=True)
    (tmp_path / "work" / "1.in" / "0").mkdir(parents=True)
    assert await folders.bring(place.reach, place.root, [one, two], folder) == 5
    found = {
        str(at.relative_to(folder)): at.read_bytes() for at in folder.rglob("*") if at.is_file()
    }
    assert found == {"a": b"1", "sub/b": b"22", "in/named": b"22"}
    assert {at.name for at in folder.parent.iterdir()} == {"1", "1.read"}
    (folder / "a").write_bytes(b"changed by the job")
    assert await folders.bring(place.reach, place.root, [one, two], folder) == 5
    assert (folder / "a").read_bytes() == b"changed by the job"


async def test_what_is_not_as_it_was_pinned_does_not_come(place: Place, tmp_path: Path):
    one = await place.left("one", {"a": b"1"})
    (place.data / "one" / "a").write_bytes(b"2")
    with pytest.raises(errors.Conflict):
        await folders.bring(place.reach, place.root, [one], tmp_path / "w")
    file = InputPiece(f"file://{place.data}/one/a", "", "0" * 64, own=True)
    with pytest.raises(errors.Conflict):
        await folders.bring(place.reach, place.root, [file], tmp_path / "w")
    assert folders.read(tmp_path / "w") is None


@pytest.mark.parametrize(
    "address", [".pilotage/store.db", "../x", "/etc/passwd", "a/../../x", "link", "sub/.hidden/x"]
)
async def test_nothing_hidden_and_nothing_outside_is_read_for_a_flow(
    place: Place, tmp_path: Path, address: str
):
    (place.root / "link").symlink_to(place.state)
    with pytest.raises(errors.Denied):
        await folders.bring(place.reach, place.root, [InputPiece(address, "x")], tmp_path / "w")
    for url in (f"file://{place.state}/store.db", f"file://{place.data}/", "http://127.0.0.1:1/"):
        with pytest.raises(errors.Denied):
            await folders.bring(place.reach, place.root, [InputPiece(url, "x")], tmp_path / "w")


async def test_outputs_go_out_again_over_whatever_is_there(place: Place, tmp_path: Path):
    folder = tmp_path / "work" / "1"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "a").write_text("a")
    (folder / "r.json").write_text("3")
    url = f"file://{place.data}/x/"
    inspector = Inspector(place.reach.inside, place.stores, place.scratch)
    for damage in ("", "a", MANIFEST, "all"):
        if damage == "all":
            (place.data / "x" / MANIFEST).write_text('{"version":1,"files":0,"bytes":0}\n')
        elif damage:
            where = place.data / "x" / ("out/a" if damage == "a" else damage)
            where.write_bytes(where.read_bytes()[:-1])
        source = await folders.gather(folder, ["out/", "r.json"])
        if damage == "a":
            found = await inspector.look(url, "")
            assert "bytes" in found.trouble
            (place.data / "x" / MANIFEST).unlink()
        await folders.send(place.reach.inside, folder, source, url)
        found = await inspector.look(url, "", deep=True)
        assert (found.trouble, set(found.items)) == ("", {"out/a", "r.json"})
        assert await inspector.small(found, "r.json", 10) == b"3"
    assert {one.name for one in folder.parent.iterdir()} == {"1"}


# -- what sites cannot reach -----------------------------------------------------------------------


def test_small_files_of_the_project_can_go_with_a_message(place: Place):
    for name, size in (("none", 0), ("small", 10), ("large", 11), ("program", 10)):
        (place.root / name).write_bytes(b"x" * size)
    (place.root / "program").chmod(0o755)
    (place.root / "linked").symlink_to("small")
    os.mkfifo(place.root / "pipe")
    some = b"x" * 10
    wanted: dict[str, bytes | None] = {"none": b"", "small": some, "linked": some}
    wanted |= dict.fromkeys(("large", "program", "pipe"))
    assert {name: place.publisher.small(name, 10) for name in wanted} == wanted
    for name in ("../data", ".pilotage/store.db"):
        with pytest.raises(errors.Denied):
            place.publisher.small(name, 10)


async def test_files_of_the_project_are_published_once_for_each_of_their_versions(place: Place):
    (place.root / "geo").mkdir()
    (place.root / "geo" / "x.db").write_text("one")
    file = await place.publisher.own("1-ab", InputPiece("geo/x.db", "db"))
    again = await place.publisher.own("1-ab", InputPiece("geo/x.db", "other"))
    assert file.url == again.url
    assert content(file.url) == "one"
    assert (len(file.sha256), file.path, again.path) == (64, "db", "other")
    folder = await place.publisher.own("1-ab", InputPiece("geo", ""))
    assert folder.url.endswith("/")
    (place.root / "geo" / "x.db").write_text("another")
    new = await place.publisher.own("1-ab", InputPiece("geo/x.db", "db"))
    assert new.url != file.url
    assert content(file.url) == "one"
    with pytest.raises(errors.NotFound):
        await place.publisher.own("1-ab", InputPiece("geo/none", ""))


async def test_more_inputs_than_a_message_can_name_become_one_folder(place: Place):
    pieces = []
    for at in range(40):
        one = await place.left(f"p{at}", {"part": str(at).encode()})
        pieces.append(InputPiece(one.url, f"part/{at}", one.sha256, own=True))
    for _ in range(2):
        made = await place.publisher.bundle("1-ab/merge/0/1~in/", pieces)
        assert [content(f"{made.url}part/{at}/part") for at in range(40)] == list(
            map(str, range(40))
        )
    assert list(place.scratch.iterdir()) == []


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "told, where",
    [
        ('data = "nowhere"', "flows.data"),
        ('here = "file:///x"', "flows.here"),
        ('[flows.site.a]\ndata = "file:///x"\nread = "x y"', "flows.site.a.read"),
    ],
)
def test_places_that_cannot_be_are_said_at_once(tmp_path: Path, told: str, where: str):
    (tmp_path / config.FILE).write_text(f"[flows]\n{told}\n")
    with pytest.raises(errors.ConfigError, match=where):
        config.read(tmp_path)
