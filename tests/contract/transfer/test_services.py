"""Object stores by fsspec's own in memory, and Globus by a service that speaks as it does."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse

from pilotage.base import errors
from pilotage.data.transfer import fetch, url
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.courier import Courier
from pilotage.data.transfer.keys import Credentials
from pilotage.data.transfer.kind.globus import Globus, LocalCollection
from testbed.ports import free_port
from tests.contract.transfer.places import ONCE
from tests.rigs.cluster.web import listening

THEIRS, OURS = "11111111-aaaa", "22222222-bbbb"


async def test_an_object_store_keeps_what_every_kind_promises(tmp_path):
    pytest.importorskip("fsspec", reason="the extra `objects` is not installed")
    source = tmp_path / "out"
    (source / "s").mkdir(parents=True)
    (source / "s" / "-o").write_bytes(b"1" * 100)
    (source / "empty").write_bytes(b"")
    courier = Courier(Allowed(schemes=("memory",), hosts=("bucket",)), patience=ONCE)
    where = f"memory://bucket/{tmp_path.name}"
    assert (await courier.send(str(source), f"{where}/run.1")).moved == 2
    assert (await courier.send(str(source), f"{where}/run.1")).moved == 0
    assert (await courier.fetch(f"{where}/run.1", str(tmp_path / "in"))).moved == 2
    assert (tmp_path / "in" / "s" / "-o").read_bytes() == b"1" * 100
    await courier.fetch(f"{where}/run.1/s/-o", str(tmp_path / "one"))
    assert (tmp_path / "one" / "-o").read_bytes() == b"1" * 100
    with pytest.raises(errors.NotFound):
        await courier.look(f"{where}/nothing")
    (source / "empty").write_bytes(b"more")
    with pytest.raises(errors.Conflict):
        await courier.send(str(source), f"{where}/run.1")


class Service:
    """Two collections that are folders; a submission is carried out once."""

    def __init__(self, theirs: Path, ours: Path) -> None:
        self.tops = {THEIRS: theirs, OURS: ours}
        self.tasks: dict[str, str] = {}
        self.done = 0
        self.token = "good"
        self.fatal = ""

    async def __call__(self, scope, receive, send) -> None:
        request = Request(scope, receive)
        await (await self._answer(request))(scope, receive, send)

    async def _answer(self, request: Request) -> JSONResponse:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return JSONResponse({}, status_code=401)
        match request.url.path.split("/")[2:]:
            case ["operation", "endpoint", collection, "ls"]:
                return self._list(self.tops[collection], request.query_params["path"])
            case ["transfer"]:
                return self._submit(msgspec.json.decode(await request.body()))
            case _:
                pass
        status = {"status": "FAILED", "fatal_error": {"code": self.fatal}}
        return JSONResponse(status if self.fatal else {"status": "SUCCEEDED"})

    def _list(self, top: Path, path: str) -> JSONResponse:
        folder = top / path.strip("/")
        if not folder.is_dir():
            return JSONResponse({}, status_code=404)
        entries = [
            {
                "name": one.name, "type": "dir" if one.is_dir() else "file",
                "size": one.stat().st_size, "last_modified": "2026-01-01 00:00:00+00:00",
            }
            for one in folder.iterdir()
        ]  # fmt: skip
        return JSONResponse({"DATA": entries})

    def _submit(self, body: dict[str, Any]) -> JSONResponse:
        number = body["submission_id"]
        if number not in self.tasks:
            self.tasks[number] = f"task-{len(self.tasks)}"
            self.done += 1
            for one in body["DATA"]:
                source = self.tops[body["source_endpoint"]] / one["source_path"].strip("/")
                target = self.tops[body["destination_endpoint"]] / one["destination_path"].strip(
                    "/"
                )
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, target)
        return JSONResponse({"task_id": self.tasks[number]}, status_code=202)


@pytest.fixture
def globus(tmp_path):
    for name in ("theirs/d/s", "ours"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "theirs" / "d" / "s" / "a").write_bytes(b"1")
    (tmp_path / "token").write_text("good")
    service, port = Service(tmp_path / "theirs", tmp_path / "ours"), free_port()

    def carrier(key: str = "job-7.1") -> Globus:
        may = Allowed(schemes=("globus",), hosts=(THEIRS,))
        return Globus(
            may, Credentials(token=str(tmp_path / "token")),
            LocalCollection(OURS, str(tmp_path / "ours")),
            key=key, service=f"http://127.0.0.1:{port}/v0.10",
        )  # fmt: skip

    with listening(service, port):
        yield service, carrier


async def test_globus_brings_a_folder_to_the_collection_of_the_site(globus, tmp_path):
    _, make = globus
    carrier = make()
    where = url.parse(f"globus://{THEIRS}/d/")
    await fetch.fetch(carrier, where, str(tmp_path / "ours" / "job"))
    await carrier.close()
    assert (tmp_path / "ours" / "job" / "s" / "a").read_bytes() == b"1"


async def test_a_duplicate_submission_is_carried_out_once(globus, tmp_path):
    service, make = globus
    where = url.parse(f"globus://{THEIRS}/d")
    for key in ("job-7.1", "job-7.1", "job-7.2"):
        carrier = make(key)
        items = [item async for item in (await carrier.look(where)).items]
        await carrier.fetch(where, items, str(tmp_path / "ours" / "job"))
        await carrier.close()
    assert service.done == 2


async def test_what_globus_says_is_classed(globus, tmp_path):
    service, make = globus
    carrier = make()
    where = url.parse(f"globus://{THEIRS}/d/")
    for fatal, kind in (
        ("PERMISSION_DENIED", errors.Denied),
        ("FILE_NOT_FOUND", errors.NotFound),
        ("EXPIRED_CREDENTIALS", errors.NeedsCredential),
        ("TIMEOUT", errors.Unavailable),
    ):
        service.fatal = fatal
        with pytest.raises(kind):
            await fetch.fetch(carrier, where, str(tmp_path / "ours" / fatal))
    service.token = "another"
    with pytest.raises(errors.NeedsCredential):
        await carrier.look(where)
    await carrier.close()
