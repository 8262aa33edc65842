"""Data at the hub's own port: who may read and write what, and what becomes of odd requests."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import httpx2
import pytest

from pilotage.base import crash, errors
from pilotage.data.transfer import arrival
from pilotage.data.transfer.plan import FreeSpace
from pilotage.edge import port_data
from pilotage.edge.port_data import PortDataLimits
from pilotage.project import settings
from pilotage.project import tokens as auth
from pilotage.project.tokens import TokenScope
from pilotage.store import Db
from tests.rigs.project.hub_port import Hub, running

#: What an attempt at each of two sites reads and writes.
READS, WRITES = "jobs/~inputs/a-1/a.dat", "jobs/mark/1.1/"
OTHERS, OTHER_WRITES = "jobs/~inputs/b-1/b.dat", "jobs/mark/2.1/"
BODY = bytes(range(256)) * 5000


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running(tmp_path, limits=PortDataLimits(bytes=2_000_000, files=3)) as made:
        made.send("mira", 1, [READS, "flow/first/0/1/"], WRITES)
        made.send("titan", 2, [OTHERS], OTHER_WRITES)
        for name in (READS, OTHERS, "flow/first/0/1/deep/one", "flow/other/0/1/one"):
            put(made, name, BODY)
        yield made


@pytest.fixture
async def mira(hub: Hub) -> AsyncIterator[httpx2.AsyncClient]:
    async with hub.client(hub.agent("mira")) as client:
        yield client


def folder(hub: Hub) -> Path:
    return settings.port_folder(hub.project.state)


def put(hub: Hub, name: str, body: bytes) -> None:
    path = folder(hub) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def there(hub: Hub) -> set[str]:
    """Name all files below the folder of the attempts, whole or not."""
    top = folder(hub) / "jobs" / "mark"
    return {str(one.relative_to(top)) for one in top.rglob("*") if one.is_file()}


async def raw(hub: Hub, request: str, key: str) -> int:
    """Send a request as it is; return the status."""
    at = int(hub.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", at)
    head = f"{request}\r\nHost: hub\r\nAuthorization: Bearer {key}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode("latin-1"))
    line = await reader.readline()
    writer.close()
    return int(line.split()[1]) if line else 0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - a folder does not tell
            await asyncio.sleep(0.02)


# -- reading ---------------------------------------------------------------------------------------


async def test_a_site_reads_what_its_attempt_reads(hub: Hub, mira: httpx2.AsyncClient):
    whole = await mira.get(f"/data/{READS}")
    assert (whole.status_code, whole.content) == (200, BODY)
    head = await mira.head(f"/data/{READS}")
    assert (head.headers["content-length"], head.content) == (str(len(BODY)), b"")
    part = {"Range": "bytes=1000-", "If-Range": whole.headers["etag"]}
    rest = await mira.get(f"/data/{READS}", headers=part)
    assert (rest.status_code, rest.content) == (206, BODY[1000:])
    stale = await mira.get(f"/data/{READS}", headers={**part, "If-Range": '"other"'})
    assert (stale.status_code, stale.content) == (200, BODY)


async def test_a_folder_is_listed_as_far_as_it_is_whole(hub: Hub, mira: httpx2.AsyncClient):
    put(hub, f"flow/first/0/1/.{'0' * 32}.part", b"half")
    listed = await mira.get("/data/flow/first/0/1/")
    assert [line.split(b",")[0] for line in listed.content.splitlines()] == [b'{"name":"deep/one"']
    assert (await mira.get("/data/flow/first/0/2/")).status_code == 403


@pytest.mark.parametrize(
    "name", [OTHERS, "flow/other/0/1/one", "flow/", "jobs/~inputs/a-1/", "jobs/", OTHER_WRITES, "x"]
)
async def test_what_is_not_its_own_is_refused(mira: httpx2.AsyncClient, name: str):
    for method in ("GET", "HEAD", "PUT"):
        assert (await mira.request(method, f"/data/{name}", content=b"")).status_code == 403


@pytest.mark.parametrize(
    "name",
    [
        f"{WRITES}../2.1/x", f"{WRITES}%2e%2e/2.1/x", f"{WRITES}..%2f2.1/x", f"{WRITES}./x",
        f"{WRITES}%2fetc/passwd", f"{WRITES}/etc/passwd", f"/{WRITES}x", f"{WRITES}a%00b",
        f"{WRITES}a%0ab", f"{WRITES}.{'0' * 32}.part", f"{WRITES}{'x' * 300}",
        f"{WRITES}{'d/' * 100}x", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/admin-token", "",
    ],
)  # fmt: skip
async def test_a_path_that_leads_elsewhere_is_refused(hub: Hub, name: str):
    key = hub.agent("mira")
    for method in ("GET", "PUT"):
        more = "\r\nContent-Length: 0" if method == "PUT" else ""
        assert await raw(hub, f"{method} /data/{name} HTTP/1.1{more}", key) in (403, 404)
    assert there(hub) == set()


async def test_no_link_is_followed(hub: Hub, mira: httpx2.AsyncClient):
    top = folder(hub)
    secret = hub.project.state / auth.FILE
    (top / WRITES).mkdir(parents=True)
    (top / WRITES / "link").symlink_to(secret)
    (top / WRITES / "out").symlink_to(hub.project.state)
    (top / "flow/first/0/1/deep/two").symlink_to(secret)
    assert (await mira.get("/data/flow/first/0/1/deep/two")).status_code == 403
    for name in ("link", f"out/{auth.FILE}", "out/"):
        assert (await mira.get(f"/data/{WRITES}{name}")).status_code in (403, 404)
    for name in ("link", f"out/{auth.FILE}", "out/new"):
        found = await mira.put(f"/data/{WRITES}{name}", content=b"evil")
        assert found.status_code in (403, 409)
    assert secret.read_text().strip() == hub.admin
    assert not (hub.project.state / "new").exists()


# -- who asks --------------------------------------------------------------------------------------


@pytest.mark.parametrize("scope", [one for one in TokenScope if one is not TokenScope.AGENT])
async def test_tokens_of_others_are_refused(hub: Hub, scope: TokenScope):
    async with hub.client(hub.token(scope)) as client:
        assert (await client.get(f"/data/{READS}")).status_code == 403
        assert (await client.put(f"/data/{WRITES}x", content=b"1")).status_code == 403
    assert there(hub) == set()


async def test_a_key_counts_until_it_is_revoked_and_a_token_never(hub: Hub):
    key = hub.agent("mira")
    async with hub.client(key) as client:
        assert (await client.get(f"/data/{READS}")).status_code == 200
        # Another agent of the site has enrolled since.
        hub.agent("mira")
        hub.face._gate.forget()
        for method in ("GET", "PUT"):
            assert (await client.request(method, f"/data/{READS}")).status_code == 401
    async with hub.client(hub.token(TokenScope.AGENT)) as client:
        assert (await client.get(f"/data/{READS}")).status_code == 401
    async with httpx2.AsyncClient(base_url=hub.url) as client:
        assert (await client.get(f"/data/{READS}")).status_code == 401


@pytest.mark.parametrize("state", ["done", "failed", "cancelled", "rejected"])
async def test_an_attempt_that_is_over_reads_and_writes_nothing(
    hub: Hub, mira: httpx2.AsyncClient, state: str
):
    over = "UPDATE edge_attempt SET state = ?"
    hub.writer.do(lambda db: db._connection.execute(over, (state,)))
    assert (await mira.get(f"/data/{READS}")).status_code == 403
    assert (await mira.put(f"/data/{WRITES}x", content=b"1")).status_code == 403


async def test_outputs_that_were_asked_for_again_may_come_until_they_have(
    hub: Hub, mira: httpx2.AsyncClient
):
    flow = hub.flow()

    def ask(db: Db) -> None:
        run = db._connection.execute
        run("UPDATE edge_attempt SET state = 'done'")
        (task,) = run("SELECT id FROM flow_task WHERE flow = ? LIMIT 1", (flow,)).fetchone() or (0,)
        run(
            "INSERT INTO flow_attempt (task, number, flow, key, way, site, state, created, job) "
            "VALUES (?, 1, ?, 'k', 'edge', 'mira', 'done', 1.0, 1)", (task, flow),
        )  # fmt: skip
        run(
            "INSERT INTO flow_resend (task, number, reason, time) VALUES (?, 1, 'lost', 1)", (task,)
        )

    hub.writer.do(ask)
    assert (await mira.put(f"/data/{WRITES}x", content=b"1")).status_code == 201
    hub.writer.do(lambda db: db._connection.execute("UPDATE flow_resend SET told = 2"))
    assert (await mira.put(f"/data/{WRITES}y", content=b"1")).status_code == 403


# -- writing ---------------------------------------------------------------------------------------


def digest(body: bytes) -> dict[str, str]:
    raw_ = base64.b64encode(hashlib.sha256(body).digest()).decode()
    return {"Repr-Digest": f"sha-256=:{raw_}:"}


async def test_a_file_is_whole_on_disk_before_the_answer(hub: Hub, mira: httpx2.AsyncClient):
    for body in (BODY, b"", b"again"):
        found = await mira.put(f"/data/{WRITES}sub/x", content=body, headers=digest(body))
        assert found.status_code == 201
        assert (folder(hub) / WRITES / "sub" / "x").read_bytes() == body
        assert there(hub) == {"1.1/sub/x"}
    assert (await mira.get(f"/data/{WRITES}sub/x")).content == b"again"


async def test_what_arrives_otherwise_gets_no_name(hub: Hub, mira: httpx2.AsyncClient):
    found = await mira.put(f"/data/{WRITES}x", content=BODY, headers=digest(b"other"))
    # It is tried again, so this must not be for good.
    assert (found.status_code, there(hub)) == (503, set())


async def test_a_file_that_is_cut_off_leaves_nothing(hub: Hub):
    at = int(hub.url.rpartition(":")[2])
    _, writer = await asyncio.open_connection("127.0.0.1", at)
    head = (
        f"PUT /data/{WRITES}x HTTP/1.1\r\nHost: hub\r\nContent-Length: 1000000\r\n"
        f"Authorization: Bearer {hub.agent('mira')}\r\n\r\n"
    )
    writer.write(head.encode() + b"x" * 300_000)
    await writer.drain()
    await until(lambda: bool(there(hub)))
    writer.transport.abort()
    await until(lambda: not there(hub))


async def test_a_half_that_an_earlier_process_left_is_removed(hub: Hub, mira: httpx2.AsyncClient):
    put(hub, f"{WRITES}sub/.{'1' * 32}.part", b"half")
    assert (await mira.put(f"/data/{WRITES}x", content=b"1")).status_code == 201
    assert there(hub) == {"1.1/x"}


async def test_size_and_number_have_limits(hub: Hub, mira: httpx2.AsyncClient):
    key = hub.agent("mira")
    mira.headers["Authorization"] = f"Bearer {key}"
    for size in ("2000001", "9" * 18):
        said = await raw(hub, f"PUT /data/{WRITES}x HTTP/1.1\r\nContent-Length: {size}", key)
        assert said == 413
    assert (await mira.put(f"/data/{WRITES}a", content=b"x" * 1_500_000)).status_code == 201
    assert (await mira.put(f"/data/{WRITES}b", content=b"x" * 600_000)).status_code == 413
    # The same file once more is not a second one.
    assert (await mira.put(f"/data/{WRITES}a", content=b"x")).status_code == 201
    assert (await mira.put(f"/data/{WRITES}b", content=b"x" * 600_000)).status_code == 201
    assert (await mira.put(f"/data/{WRITES}c", content=b"x")).status_code == 201
    assert (await mira.put(f"/data/{WRITES}d", content=b"x")).status_code == 413


async def test_a_file_without_a_length_is_refused(hub: Hub, mira: httpx2.AsyncClient):
    async def some() -> AsyncIterator[bytes]:
        yield b"x"

    assert (await mira.put(f"/data/{WRITES}x", content=some())).status_code == 422
    assert there(hub) == set()


async def test_a_full_disk_is_said_and_may_pass(
    hub: Hub, mira: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    with monkeypatch.context() as patch:
        patch.setattr(arrival, "room", lambda _: FreeSpace(1000, 1000))
        found = await mira.put(f"/data/{WRITES}x", content=b"x" * 5000)
        assert (found.status_code, "left" in found.json()["message"]) == (503, True)
        patch.undo()

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(port_data, "_write", full)
        found = await mira.put(f"/data/{WRITES}x", content=b"x" * 5000)
        assert (found.status_code, "full" in found.json()["message"]) == (503, True)
    assert there(hub) == set()
    assert (await mira.put(f"/data/{WRITES}x", content=b"x" * 5000)).status_code == 201


async def test_a_file_and_a_folder_of_one_name_are_a_conflict(hub: Hub, mira: httpx2.AsyncClient):
    assert (await mira.put(f"/data/{WRITES}a", content=b"1")).status_code == 201
    assert (await mira.put(f"/data/{WRITES}a/b", content=b"1")).status_code == 409
    assert (await mira.put(f"/data/{WRITES}b/c", content=b"1")).status_code == 201
    assert (await mira.put(f"/data/{WRITES}b", content=b"1")).status_code == 409


async def test_an_attempt_that_ends_meanwhile_gets_no_name_for_its_file(
    hub: Hub, mira: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    def end(name: str) -> None:
        if name == "port.received":
            over = "UPDATE edge_attempt SET state = 'cancelled'"
            hub.writer.do(lambda db: db._connection.execute(over))

    monkeypatch.setattr(crash, "point", end)
    assert (await mira.put(f"/data/{WRITES}x", content=b"1")).status_code == 403
    assert there(hub) == set()


@pytest.mark.parametrize(
    "path", [b"/data/", b"/data//x", b"/data/x//y", b"/data/.", b"/data/x/..", b"/other/x"]
)
def test_one_function_judges_names(path: bytes):
    with pytest.raises(errors.Denied):
        port_data.path_of(path)
    assert port_data.path_of(b"/data/a/%c3%a4%ff/") == "a/\u00e4\udcff/"
