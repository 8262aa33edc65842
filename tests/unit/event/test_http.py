"""Messages by HTTP: every request has an answer, and every wrong one says what is wrong."""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import quote

import anyio
import httpx2
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.event import http

TOKEN = "s3cret"
MOST = 1000


class Inbox:
    """Keeps what it accepts, or fails as told."""

    def __init__(self) -> None:
        self.taken: list[tuple[str, bytes, str]] = []
        self.error: Exception | None = None

    async def accept(self, topic: str, body: bytes, identity: str) -> int:
        await checkpoint()
        if self.error is not None:
            raise self.error
        self.taken.append((topic, body, identity))
        return len(self.taken)


@pytest.fixture
def inbox() -> Inbox:
    return Inbox()


@pytest.fixture
async def client(inbox: Inbox) -> AsyncIterator[httpx2.AsyncClient]:
    async with connect(inbox) as made:
        yield made


def connect(inbox: Inbox) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(
        http.app(inbox.accept, TOKEN, MOST), raise_app_exceptions=False
    )
    headers = {"Authorization": f"Bearer {TOKEN}"}
    return httpx2.AsyncClient(transport=transport, base_url="http://hub", headers=headers)


def is_problem(response: httpx2.Response, status: int, code: str) -> bool:
    facts = response.json()
    assert set(facts) == {"code", "message", "hint"}
    assert facts["message"]
    assert response.headers["content-type"] == "application/json"
    return (response.status_code, facts["code"]) == (status, code)


async def test_a_message_is_accepted(client: httpx2.AsyncClient, inbox: Inbox):
    response = await client.post("/events/scan.done", content=b"\x00\xff")
    assert response.status_code == 202
    assert response.json() == {"event": 1, "topic": "scan.done"}
    topic, body, identity = inbox.taken[0]
    assert (topic, body) == ("scan.done", b"\x00\xff")
    await client.post("/events/scan.done")
    assert inbox.taken[1][2] != identity


async def test_the_key_of_the_sender_is_the_identity(client: httpx2.AsyncClient, inbox: Inbox):
    await client.post("/events/a", headers={"Idempotency-Key": "run-7/2"})
    assert inbox.taken[0][2] == "run-7/2"


@pytest.mark.parametrize("key", ["", " ", "a b", "x" * 201, "é".encode(), b"\xff"])
async def test_a_key_that_cannot_be_used(client: httpx2.AsyncClient, key: str | bytes):
    raw = key.encode() if isinstance(key, str) else key
    response = await client.post("/events/a", headers={b"Idempotency-Key": raw})
    assert is_problem(response, 400, "E200")


@pytest.mark.parametrize(
    "value",
    [b"", b"Bearer", b"Bearer ", b"Bearer wrong", b"Basic s3cret", b"s3cret", b"Bearer \xff\xfe"],
)
async def test_without_the_token_nothing_is_accepted(inbox: Inbox, value: bytes):
    async with connect(inbox) as client:
        del client.headers["authorization"]
        for headers in ({}, {b"Authorization": value}):
            # Not even whether the topic is right.
            response = await client.post("/events/a b", headers=headers)
            assert is_problem(response, 401, "E500")
            assert response.headers["www-authenticate"] == "Bearer"
    assert inbox.taken == []


async def test_the_scheme_is_written_as_people_like(client: httpx2.AsyncClient):
    response = await client.post("/events/a", headers={"Authorization": f"bearer {TOKEN}"})
    assert response.status_code == 202


def test_an_empty_token_is_refused(inbox: Inbox):
    with pytest.raises(errors.UsageError):
        http.app(inbox.accept, "", MOST)


async def pieces(size: int) -> AsyncIterator[bytes]:
    for _ in range(size // 100):
        yield b"x" * 100


async def test_the_limit_holds_with_and_without_a_length(client: httpx2.AsyncClient, inbox: Inbox):
    assert (await client.post("/events/a", content=b"x" * MOST)).status_code == 202
    assert (await client.post("/events/a", content=pieces(MOST))).status_code == 202
    for content in (b"x" * (MOST + 1), pieces(MOST + 100), pieces(100 * MOST)):
        assert is_problem(await client.post("/events/a", content=content), 413, "E501")
    assert len(inbox.taken) == 2


@pytest.mark.parametrize("length", [b"1", b"0", b"-1", b"many", b"9" * 50, b"\xff"])
async def test_a_length_that_lies_does_not_help(
    client: httpx2.AsyncClient, inbox: Inbox, length: bytes
):
    response = await client.post(
        "/events/a", content=pieces(2 * MOST), headers={b"Content-Length": length}
    )
    assert is_problem(response, 413, "E501")
    assert inbox.taken == []


@pytest.mark.parametrize(
    "error, status",
    [
        (errors.StoreUnavailable("the disk is full"), 503),
        (errors.Denied("no"), 403),
        (errors.Conflict("no"), 409),
        (errors.NotFound("no"), 404),
        (errors.PilotageError("no"), 500),
        (errors.UsageError("odd \udc80"), 400),
    ],
)
async def test_what_goes_wrong_behind_the_door(
    client: httpx2.AsyncClient, inbox: Inbox, error: errors.PilotageError, status: int
):
    inbox.error = error
    response = await client.post("/events/a")
    assert is_problem(response, status, error.code)
    assert ("retry-after" in response.headers) == (status == 503)


async def test_a_defect_is_not_shown(client: httpx2.AsyncClient, inbox: Inbox):
    inbox.error = ValueError("the password is 1234")
    response = await client.post("/events/a")
    assert is_problem(response, 500, "E100")
    assert "1234" not in response.text


@pytest.mark.parametrize("path", ["/", "/events", "/events/", "/events/a/b", "/events/a%2Fb", "/x"])
async def test_unknown_paths(client: httpx2.AsyncClient, path: str):
    assert is_problem(await client.post(path), 404, "E400")


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
async def test_wrong_methods(client: httpx2.AsyncClient, method: str):
    response = await client.request(method, "/events/a")
    assert is_problem(response, 405, "E200")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("topic", ["a..b", "a%20b", ".", "%00", "%FF", "x" * 201, "a%0Ab"])
async def test_bad_topics(client: httpx2.AsyncClient, inbox: Inbox, topic: str):
    response = await client.post(f"/events/{topic}", content=b"x")
    assert response.status_code in {400, 404}
    assert inbox.taken == []


async def test_a_sender_that_falls_silent_is_given_up(
    client: httpx2.AsyncClient, inbox: Inbox, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(http, "IDLE", 0.02)

    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        await anyio.sleep(60)

    response = await client.post("/events/a", content=slow())
    assert is_problem(response, 408, "E800")
    assert inbox.taken == []


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from(["/events/", "/"]).flatmap(
        lambda start: st.text(max_size=12).map(lambda end: start + end)
    ),
    method=st.sampled_from(["GET", "POST", "HEAD", "OPTIONS", "BREW"]),
    headers=st.dictionaries(
        st.sampled_from([b"Authorization", b"Idempotency-Key", b"Content-Length", b"Expect"]),
        st.binary(max_size=20) | st.just(b"Bearer s3cret"),
    ),
    body=st.binary(max_size=1200),
)
async def test_any_request_has_an_answer(
    path: str, method: str, headers: dict[bytes, bytes], body: bytes, anyio_backend: str
):
    inbox = Inbox()
    async with connect(inbox) as client:
        raw = quote(path.encode("utf-8", "surrogatepass")).encode()
        url = httpx2.URL(scheme="http", host="hub", raw_path=raw)
        response = await client.request(method, url, headers=headers, content=body)
    assert response.status_code in {200, 202, 400, 401, 404, 405, 413}
    assert (response.status_code == 202) == bool(inbox.taken)
    if response.status_code >= 400 and method != "HEAD":
        assert set(response.json()) == {"code", "message", "hint"}
