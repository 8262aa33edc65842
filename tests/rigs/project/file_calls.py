"""Calls and programs with files, as a user asks for them: the same at every place."""

from __future__ import annotations

from pathlib import Path

import pytest

import pilotage
from pilotage.base import errors
from pilotage.client import Client
from tests.suite.programs import PATIENCE

_ODD = "in/a é [1] {x}.txt"


def make(root: Path) -> None:
    """Put files into a project."""
    for name in ("in/plain.txt", _ODD, "in/set/1.txt", "in/set/deep/2.txt", "in/more-1.txt"):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")


def works(client: Client, root: Path) -> None:
    """Require that functions and programs find their files, and that what they write comes home."""
    arguments(client, root)
    options(client, root)
    many(client, root)
    failures(client, root)
    programs(client, root)


def arguments(client: Client, root: Path) -> None:
    """Give files as arguments."""

    def join(first, others, *, to):
        from pathlib import Path

        to["all"].write_text("".join(path.read_text() for path in [first, *others]))
        Path("scratch.txt").write_text("lost")
        to["folder"].mkdir()
        (to["folder"] / "é").write_text(str(Path.cwd()))
        return [type(first).__name__, first.name, to["all"].parent.is_dir()]

    future = client.submit(
        join,
        pilotage.File(_ODD),
        [pilotage.File(Path("in/plain.txt")), pilotage.File("./in/set/deep/2.txt")],
        to={
            "all": pilotage.File("out/new/a b.txt", output=True),
            "folder": pilotage.File("out/folder", output=True),
        },
    )
    assert future.result(PATIENCE) == ["PosixPath", Path(_ODD).name, True]
    text = f"{_ODD}\nin/plain.txt\nin/set/deep/2.txt\n"
    assert (root / "out/new/a b.txt").read_text() == text
    assert (root / "out/folder/é").read_text() != str(root)
    # What is not declared is gone, and said to be.
    assert future.left == ["scratch.txt"]
    assert not list(root.rglob("scratch.txt"))

    def count(folder):
        return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.txt"))

    found = client.submit(count, pilotage.File("in/set")).result(PATIENCE)
    assert found == ["1.txt", "deep/2.txt"]


def options(client: Client, root: Path) -> None:
    """Name files by options; the function uses their names."""

    def sums(target):
        import glob
        from pathlib import Path

        # Links count, too.
        names = glob.glob("in/*.txt") + glob.glob("in/set/**/*.txt", recursive=True)  # noqa: PTH207
        Path(target).write_text(" ".join(sorted(names)))
        return len(Path("in/plain.txt").read_text())

    view = client.options(inputs=["in/*-1.txt", "in/set", "in/plain.txt"])
    future = view.submit(sums, "out/sums.txt", outputs={"sums": "out/sums.txt"})
    assert future.result(PATIENCE) == 13
    names = ["in/more-1.txt", "in/plain.txt", "in/set/1.txt", "in/set/deep/2.txt"]
    assert (root / "out/sums.txt").read_text().split() == names
    assert not future.left


def many(client: Client, root: Path) -> None:
    """Give each of many calls files of its own."""

    def copy(number, source, target):
        target.write_text(f"{number} {source.read_text()}")
        return number

    sources = [pilotage.File("in/plain.txt")] * 4
    targets = [pilotage.File(f"out/many/{number}", output=True) for number in range(4)]
    assert list(client.map(copy, range(4), sources, targets)) == [0, 1, 2, 3]
    found = {path.name: path.read_text() for path in (root / "out/many").iterdir()}
    assert found == {str(number): f"{number} in/plain.txt\n" for number in range(4)}


def failures(client: Client, root: Path) -> None:
    """Lack an input or an output, or raise."""

    def never(path):
        return str(path)

    with pytest.raises(errors.JobFailed, match=r"in/gone\.txt"):
        client.submit(never, pilotage.File("in/gone.txt")).result(PATIENCE)
    with pytest.raises(errors.JobFailed, match=r"out/gone\.txt"):
        client.submit(never, pilotage.File("out/gone.txt", output=True)).result(PATIENCE)

    def raises(path):
        path.write_text("half")
        raise LookupError("no such thing")

    future = client.submit(raises, pilotage.File("out/half.txt", output=True))
    with pytest.raises(errors.RemoteError, match="no such thing"):
        future.result(PATIENCE)
    assert future.job
    assert client.job(future.job)["state"] == "failed"
    assert not (root / "out/half.txt").exists()


def programs(client: Client, root: Path) -> None:
    """Run programs that name files."""
    words = ["sh", "-c", 'cat "$0" in/set/*.txt > "$1"', _ODD, "out/{p}.txt"]
    future = client.submit(
        words, inputs=[_ODD.replace("[", "[[]"), "in/set"], outputs=["out/{p}.txt"]
    )
    assert future.result(PATIENCE).state == "done"
    assert (root / "out/{p}.txt").read_text() == f"{_ODD}\nin/set/1.txt\n"
    with pytest.raises(errors.JobFailed, match=r"out/none\.txt"):
        client.submit(["true"], outputs=["out/none.txt"]).result(PATIENCE)
    with pytest.raises(errors.JobFailed, match=r"in/gone\.txt"):
        client.submit(["true"], inputs=["in/gone.txt"]).result(PATIENCE)
