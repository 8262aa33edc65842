"""Every route for every scope, bad tokens, large bodies, and what must never be seen in a log."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from pilotage.hub.api import routes
from pilotage.hub.api.call import Route
from pilotage.hub.api.overview import Overviews
from pilotage.project import tokens
from pilotage.project.tokens import TokenScope
from tests.rigs.project.hub_port import SPEC, Hub, running

ROUTES = routes.table(Overviews())
#: Which scopes may ask for a route that needs one.
MAY = {
    TokenScope.READ: {TokenScope.READ, TokenScope.USER, TokenScope.ADMIN},
    TokenScope.USER: {TokenScope.USER, TokenScope.ADMIN},
    TokenScope.ADMIN: {TokenScope.ADMIN},
    TokenScope.POOL: {TokenScope.POOL, TokenScope.READ, TokenScope.USER, TokenScope.ADMIN},
}
#: What a route says to one who may, when there is nothing that it names.
WELL = {200, 201, 404, 409, 422}


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running(tmp_path) as found:
        yield found


def where(route: Route) -> str:
    return "/api/v1" + route.path.format(id=1, name="none")


async def ask(client: httpx2.AsyncClient, route: Route) -> httpx2.Response:
    """Ask, and read no more of the answer than its head."""
    body: Any = {"jobs": [{"spec": SPEC}]} if route.path == "/jobs" else {"scope": "read"}
    sent = body if route.body else None
    async with client.stream(route.method, where(route), json=sent) as answer:
        return answer


def test_the_table_is_what_the_page_and_programs_were_promised():
    found = {(one.method, one.path): one.scope for one in ROUTES}
    assert len(found) == len(ROUTES)
    assert {one.scope for one in ROUTES} == set(MAY)
    # Whatever changes something needs more than reading.
    assert not [one for one in ROUTES if one.method != "GET" and one.scope is TokenScope.READ]
    assert not [one for one in ROUTES if one.kind == "write" and one.method == "GET"]
    assert [one.path for one in ROUTES if one.path.startswith("/tokens")] == [
        "/tokens", "/tokens", "/tokens/{id}",
    ]  # fmt: skip
    assert all(one.scope is TokenScope.ADMIN for one in ROUTES if one.path.startswith("/tokens"))


@pytest.mark.parametrize("scope", [*TokenScope, None])
async def test_every_route_answers_those_who_may_and_nobody_else(hub, scope):
    token = "pil_a_" + "x" * 43 if scope is None else hub.token(scope)
    async with hub.client(token) as client:
        for route in ROUTES:
            answer = await ask(client, route)
            allowed = scope is not None and scope in MAY[route.scope]
            expected = WELL if allowed else {401 if scope is None else 403}
            assert answer.status_code in expected, f"{route.method} {route.path}"
    if scope not in {TokenScope.USER, TokenScope.ADMIN}:
        assert hub.writer.do(lambda db: db.value("job_last")) == 0
        assert hub.pokes == 0


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Basic YWRtaW46YWRtaW4="},
        {"Authorization": "Bearer pil_a_"},
        {"Authorization": b"Bearer \xff\xfe"},
        {"Authorization": "Bearer " + "a" * 5000},
        {"Cookie": "token=x"},
    ],
)
async def test_without_a_token_nothing_is_told(hub, headers):
    async with httpx2.AsyncClient(base_url=hub.url) as nobody:
        for route in ROUTES:
            answer = await nobody.request(route.method, where(route), headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert set(answer.json()) == {"code", "message", "hint"}
        assert (await nobody.get("/metrics", headers=headers)).status_code == 401


async def test_expired_and_revoked_tokens_count_no_longer(hub):
    secret = hub.token(TokenScope.READ, lifetime=3.0)
    async with hub.client(secret) as short, hub.client() as admin:
        assert (await short.get("/api/v1/jobs")).status_code == 200
        with anyio.fail_after(60):
            while (await short.get("/api/v1/jobs")).status_code == 200:  # noqa: ASYNC110 - a clock
                await anyio.sleep(0.1)
        assert (await short.get("/api/v1/jobs")).status_code == 401
        made = (await admin.post("/api/v1/tokens", json={"scope": "read", "uses": 5})).json()
        async with hub.client(made["token"]) as other:
            assert (await other.get("/api/v1/jobs")).status_code == 200
            revoked = await admin.delete(f"/api/v1/tokens/{made['id']}")
            assert revoked.json() == {"state": "revoked"}
            # At once, not when a memory of it has faded.
            assert (await other.get("/api/v1/jobs")).status_code == 401
        listed = (await admin.get("/api/v1/tokens")).text
        assert made["token"] not in listed
        assert tokens.digest(made["token"]) not in listed


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_token_in_an_address_is_refused_even_if_it_is_right(hub, method):
    async with hub.client() as admin:
        answer = await admin.request(method, "/api/v1/jobs", params={"token": hub.admin})
        assert answer.status_code == 401
        assert hub.admin not in answer.text


async def test_tokens_for_people_need_an_owner_and_are_bounded(hub):
    async with hub.client() as admin:
        for body in (
            {"scope": "user"},
            {"scope": "user", "owner": "a/b/c"},
            {"scope": "user", "owner": "a b"},
            {"scope": "root"},
            {"scope": "read", "lifetime": 0},
            {"scope": "read", "lifetime": 1e30},
            {"scope": "enrol", "uses": 0},
            {"scope": "enrol", "site": "a\nb"},
        ):
            assert (await admin.post("/api/v1/tokens", json=body)).status_code == 422, body


@pytest.mark.parametrize("declared", [True, False])
async def test_a_body_that_is_too_large_is_refused_before_it_is_kept(hub, declared):
    async def parts() -> AsyncIterator[bytes]:
        for _ in range(20):
            yield b"x" * 2**20

    content = b"x" * (17 * 2**20) if declared else parts()
    async with hub.client() as admin:
        answer = await admin.post("/api/v1/jobs", content=content)
        assert answer.status_code == 413
        answer = await admin.post("/api/v1/tokens", content=b"x" * 70_000)
        assert answer.status_code == 413
        assert (await admin.get("/healthz")).status_code == 200


async def test_what_comes_in_cannot_write_headers_or_markup(hub):
    job = hub.submit("<script>alert(1)</script>", tag="a\r\nSet-Cookie: x=y")
    async with hub.client() as admin:
        for path in (f"/api/v1/jobs/{job}", "/api/v1/none%0d%0aSet-Cookie:%20x=y", "/<script>"):
            answer = await admin.get(path)
            assert "set-cookie" not in answer.headers
            assert answer.headers["content-type"] == "application/json"
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"


async def test_the_page_is_served_whole_and_may_load_nothing_from_elsewhere(hub):
    async with httpx2.AsyncClient(base_url=hub.url) as anyone:
        first = await anyone.get("/")
        assert first.status_code == 200
        assert first.headers["content-type"].startswith("text/html")
        policy = first.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        again = await anyone.get("/", headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        script = await anyone.get("/static/js/main.js")
        assert script.headers["content-type"].startswith("text/javascript")
        assert (await anyone.get("/static/index.htm")).status_code == 404
        assert (await anyone.post("/")).status_code == 405


async def test_no_token_is_ever_logged(hub, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    user = hub.token()
    async with hub.client(user) as anna:
        await anna.get("/api/v1/jobs")
        await anna.get("/api/v1/tokens")
        await anna.get("/api/v1/none")
        await anna.get("/api/v1/jobs", params={"limit": "x"})
        monkeypatch.setattr(hub.face._readers, "ask", None)
        assert (await anna.get("/api/v1/jobs")).status_code == 500
        assert (await anna.get("/metrics")).status_code == 500
    ours = [one for one in caplog.records if not one.name.startswith(("httpx", "httpcore"))]
    assert any("failed" in one.getMessage() for one in ours)
    for one in ours:
        shown = logging.Formatter().format(one)
        assert user not in shown
        assert hub.admin not in shown
