"""Data that is handed on: what a job has left is told, pinned, and sent again when it is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.responses import Response

from pilotage.data.transfer.model import MANIFEST
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.cluster.web import Web, serving

_MAKE = 'mkdir -p out; cat data 2>/dev/null > out/copy; echo "made by $PILOTAGE_JOB" > out/made'
_READ = "cat in/made > out"


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    (tmp_path / "web").mkdir()
    with serving(tmp_path / "web") as one:
        yield one


@pytest.fixture
def edge(tmp_path: Path, rabbit: Rabbit, web: Web) -> Iterator[Edge]:
    with edge_agent.at_local(tmp_path / "e", rabbit) as one:
        staging = {"protocols": ["http"], "hosts": [f"127.0.0.1:{web.port}"]}
        staging["private"] = ["127.0.0.0/8"]
        # What was damaged at the server must not be had from what an earlier job brought.
        one.change({"limits": {"cache": "0"}})
        one.programs.add("make", _MAKE, staging=staging)
        one.programs.add("read", _READ, staging=staging)
        yield one


def made(edge: Edge, web: Web) -> tuple[str, dict[str, Any]]:
    """Have a job leave something; return its key, and what it has left."""
    (web.root / "data").write_text("twelve bytes")
    key = edge.post(
        "make", inputs=[{"url": f"{web.url}/data"}],
        outputs=[{"path": "out/", "url": f"{web.url}/1/make/0/1/"}],
    )  # fmt: skip
    end = edge.wait_state(key, "done", "failed")
    assert end["state"] == "done", end
    return key, end


def place(web: Web) -> Path:
    return web.root / "1" / "make" / "0" / "1"


def read(edge: Edge, web: Web, digest: str) -> dict[str, Any]:
    """Have another job read it, by the digest that was told."""
    where = {"url": f"{web.url}/1/make/0/1/", "path": "in", "sha256": digest}
    return edge.wait_state(edge.post("read", inputs=[where]), "done", "failed")


def resent(edge: Edge, key: str) -> dict[str, Any]:
    """Have it sent again; return what is told then."""
    told = said(edge, key)["seq"]
    edge.control("resend", keys=[key], reason="lost")
    edge.wait(lambda: said(edge, key)["seq"] > told)
    return said(edge, key)


def said(edge: Edge, key: str) -> dict[str, Any]:
    """Return the last word on a job that is over."""
    found = edge.end(key)
    assert found is not None
    return found


def tampered(folder: Path) -> None:
    whole = (folder / "made").read_bytes()
    (folder / "made").write_bytes(whole.replace(b"made", b"maid"))


def truncated(folder: Path) -> None:
    with (folder / MANIFEST).open("r+b") as file:
        file.truncate(60)


def replaced(folder: Path) -> None:
    """Have somebody else's result there, whole."""
    lines = (folder / MANIFEST).read_text().splitlines()
    (folder / MANIFEST).write_text(f'{{"version":1,"files":1,"bytes":12}}\n{lines[1]}\n')


def removed(folder: Path) -> None:
    (folder / "made").unlink()


DAMAGE: dict[Callable[[Path], None], str] = {
    tampered: "conflict", truncated: "conflict", replaced: "conflict", removed: "not_found",
}  # fmt: skip


def test_what_was_left_is_told_and_damage_is_refused_and_healed(edge: Edge, web: Web):
    with edge.up():
        key, end = made(edge, web)
        (left,) = end["left"]
        size = sum(one.stat().st_size for one in place(web).iterdir() if one.name != MANIFEST)
        assert (left["url"], left["files"]) == (f"{web.url}/1/make/0/1/", 2)
        assert (left["bytes"], end["read"]) == (size, 12)
        good = {one.name: one.read_bytes() for one in place(web).iterdir()}
        assert read(edge, web, left["digest"])["read"] == size
        refused = read(edge, web, "0" * 64)
        assert (refused["reason"]["class"], refused["reason"]["code"]) == ("staging", "conflict")
        starts = len(edge.programs.starts())
        for damage, code in DAMAGE.items():
            damage(place(web))
            hurt = read(edge, web, left["digest"])
            assert (hurt["state"], hurt["reason"]["code"]) == ("failed", code), (damage, hurt)
            again = resent(edge, key)
            assert (again["state"], again["left"], again["reason"]["text"]) == ("done", [left], "")
            assert {one.name: one.read_bytes() for one in place(web).iterdir()} == good
            assert read(edge, web, left["digest"])["state"] == "done", damage
        # None of the damaged was given to a program, and what was left was made once.
        assert len(edge.programs.starts()) == starts + len(DAMAGE)


def test_a_wish_outlives_the_agent_and_what_is_left_is_told_after_it(edge: Edge, web: Web):
    with edge.up():
        key, end = made(edge, web)
        tampered(place(web))
        web.faults[:] = [
            lambda request: Response(status_code=503) if request.method == "PUT" else None
        ]
        edge.control("resend", keys=[key])
        edge.wait(lambda: edge.query("SELECT 1 FROM edge_resend"))
        edge.kill()
        web.faults[:] = []
        edge.start()
        edge.wait(lambda: said(edge, key)["seq"] > end["seq"])
        assert said(edge, key)["left"] == end["left"]
        assert b"made" in (place(web) / "made").read_bytes()
        assert edge.query("SELECT 1 FROM edge_resend") == []


def test_what_cannot_be_sent_again_is_said(edge: Edge, web: Web):
    with edge.up():
        key, end = made(edge, web)
        plain = edge.post("count")
        edge.wait_ended(plain)
        edge.control("resend", keys=[key, plain, "nobody"], user="bob", reply="status.answers")
        edge.wait(lambda: edge.heard("answer"))
        assert [one["ok"] for one in edge.heard("answer")[0]["results"]] == [False] * 3
        edge.control("resend", keys=[plain, "nobody"], reply="status.answers")
        edge.wait(lambda: len(edge.heard("answer")) == 2)
        first, second = edge.heard("answer")[1]["results"]
        assert "has no outputs" in first["text"]
        assert second["job"] == 0
        (folder,) = edge.root.rglob(f"edge/{end['job']}.{end['attempt']}")
        folder.rename(folder.with_name("elsewhere"))
        edge.control("resend", keys=[key])
        edge.wait(lambda: said(edge, key)["seq"] > end["seq"])
        reason = said(edge, key)["reason"]
        assert (reason["class"], reason["code"]) == ("staging", "resend")
        assert "its folder was removed" in reason["text"]
