"""The API on a real port: what it answers, and what it keeps to itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import httpx2
import msgspec
import pytest

from pilotage.event import http
from pilotage.hub.project import Project
from pilotage.job.model import State
from pilotage.project import tokens
from pilotage.store import Db
from tests.rigs.project.hub_port import SPEC, Hub, running


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    async with running(tmp_path) as found:
        yield found


async def test_a_job_is_submitted_listed_shown_and_told(hub):
    async with hub.client(hub.token()) as anna:
        answer = await anna.post("/api/v1/jobs", json={"jobs": [{"spec": SPEC, "tag": "t"}]})
        assert answer.status_code == 201
        assert answer.json() == {"ids": [1]}
        assert hub.pokes == 1
        listed = (await anna.get("/api/v1/jobs")).json()
        assert listed["next"] is None
        assert [one["owner"] for one in listed["jobs"]] == ["anna"]
        sheet = (await anna.get("/api/v1/jobs/1")).json()
        assert sheet["spec"]["recipe"]["argv"] == ["echo", "hi"]
        assert sheet["attempts"] == []
        told = (await anna.get("/api/v1/jobs/1/story")).json()
        assert told["moments"][0]["what"] == "submitted"
        why = (await anna.get("/api/v1/jobs/1/explain")).json()
        assert "job 1" in why["headline"]


async def test_the_same_key_is_one_job_and_not_another_owners(hub):
    body = {"jobs": [{"spec": SPEC, "key": "0" * 32}]}
    async with hub.client(hub.token()) as anna, hub.client(hub.token(owner="bert")) as bert:
        for _ in range(2):
            assert (await anna.post("/api/v1/jobs", json=body)).json() == {"ids": [1]}
        assert (await bert.post("/api/v1/jobs", json=body)).status_code == 409


@pytest.mark.parametrize(
    "job, words",
    [
        ({"spec": SPEC, "more": 1}, "unknown field"),
        ({"spec": {**SPEC, "more": 1}}, "unknown field"),
        ({"spec": {**SPEC, "resources": {"cpus": 0}}}, "cpus"),
        ({"spec": {**SPEC, "resources": {"memory": -1}}}, "memory"),
        ({"spec": {**SPEC, "priority": 10**30}}, "priority"),
        ({"spec": {**SPEC, "name": "a\nb"}}, "name"),
        ({"spec": {**SPEC, "requirements": "cpus >"}}, ""),
        ({"spec": SPEC, "key": "short"}, "key"),
        ({"spec": SPEC, "after": [0]}, "after"),
    ],
)
async def test_a_wrong_job_is_refused_whole_with_a_hint(hub, job, words):
    async with hub.client() as admin:
        answer = await admin.post("/api/v1/jobs", json={"jobs": [{"spec": SPEC}, job]})
        assert answer.status_code == 422
        assert words in answer.json()["message"]
        assert set(answer.json()) == {"code", "message", "hint"}
        assert (await admin.get("/api/v1/jobs")).json()["jobs"] == []


async def test_what_is_no_json_is_told_from_what_is_wrong(hub):
    async with hub.client() as admin:
        deep = b'{"jobs": [{"spec": {"params": {"a": ' + b"[" * 100_000
        for body in (b"{", b"", b"\xff", b'{"jobs": "\\ud800"}', deep):
            answer = await admin.post("/api/v1/jobs", content=body)
            assert answer.status_code == 400, body[:10]
        assert (await admin.post("/api/v1/jobs", content=b"[]")).status_code == 422


async def test_lists_are_cut_into_pages_and_filtered(hub):
    for n in range(25):
        hub.submit(f"name{n % 3}", tag="odd" if n % 2 else "")
    hub.submit("100%_sure", owner="bert")
    async with hub.client() as admin:

        async def ids(**query: Any) -> list[int]:
            found = (await admin.get("/api/v1/jobs", params=query)).json()
            return [one["id"] for one in found["jobs"]]

        first = (await admin.get("/api/v1/jobs?limit=10")).json()
        assert [one["id"] for one in first["jobs"]] == list(range(26, 16, -1))
        rest = await ids(before=first["next"], limit=100)
        assert rest == list(range(16, 0, -1))
        assert await ids(owner="bert") == [26]
        assert len(await ids(tag="odd")) == 12
        assert len(await ids(name="name[01]")) == 17
        assert await ids(search="%_SURE") == [26]
        assert await ids(search="7") == [7]
        assert await ids(state="running") == []
        assert len(await ids(state="queued,running")) == 26
        assert len(await ids(state="queued", search="name2")) == 8
        assert (await admin.get("/api/v1/jobs?state=sleeping")).status_code == 422
        assert (await admin.get("/api/v1/jobs?limit=0")).status_code == 422
        assert (await admin.get("/api/v1/jobs?colour=red")).status_code == 422
        assert (await admin.get("/api/v1/jobs?tag=a&tag=b")).status_code == 422


async def test_the_course_of_a_job_is_changed_by_its_owner_and_admins_only(hub):
    job = hub.submit(owner="anna")
    path = f"/api/v1/jobs/{job}"
    async with (
        hub.client(hub.token(owner="bert")) as bert,
        hub.client(hub.token()) as anna,
        hub.client() as admin,
    ):
        assert (await bert.post(f"{path}/hold")).status_code == 403
        assert (await anna.post(f"{path}/hold")).json() == {"state": "held"}
        assert (await admin.post(f"{path}/release")).json() == {"state": "queued"}
        assert (await anna.post(f"{path}/cancel")).json() == {"state": "cancelled"}
        assert (await anna.post(f"{path}/release")).status_code == 409
        assert (await anna.post(f"{path}/retry")).json() == {"state": "queued"}
        assert (await anna.post("/api/v1/jobs/99/cancel")).status_code == 404


async def test_logs_are_followed_to_their_end_character_by_whole_character(hub):
    job = hub.submit()
    async with hub.client() as admin:

        async def read(**query: Any) -> dict[str, Any]:
            answer = await admin.get(f"/api/v1/jobs/{job}/logs", params=query)
            assert answer.status_code == 200
            found: dict[str, Any] = answer.json()
            return found

        assert await read() == {"attempt": 0, "text": "", "next": 0, "end": False}
        folder = hub.run(job)
        sheet = (await admin.get(f"/api/v1/jobs/{job}")).json()
        assert sheet["pilot"] == 7
        assert sheet["attempts"][0]["starter"] == ""
        whole = "grüße\n".encode()
        (folder / "stdout").write_bytes(whole[:3])
        assert await read() == {"attempt": 1, "text": "gr", "next": 2, "end": False}
        (folder / "stdout").write_bytes(whole)
        assert (await read(offset=2))["text"] == "üße\n"
        assert (await read(offset=-2))["text"] == "e\n"
        (folder / "stderr").write_bytes(b"half \xc3")
        hub.end(job)
        last = await read(stream="stderr")
        assert (last["text"], last["end"]) == ("half \ufffd", True)
        last = await read(offset=len(whole))
        assert last == {"attempt": 1, "text": "", "next": len(whole), "end": True}
        assert (await admin.get(f"/api/v1/jobs/{job}/logs?attempt=2")).status_code == 404


async def test_a_payload_cannot_make_its_log_show_other_files(hub, tmp_path):
    job = hub.submit()
    folder = hub.run(job)
    secret = hub.project.state / tokens.FILE
    (folder / "stdout").symlink_to(secret)
    async with hub.client() as admin:
        assert secret.read_text().startswith("pil_a_")
        assert (await admin.get(f"/api/v1/jobs/{job}/logs")).json()["text"] == ""
        for stream in ("../stdout", "stdout/../../x", "admin-token", "/etc/passwd"):
            answer = await admin.get(f"/api/v1/jobs/{job}/logs", params={"stream": stream})
            assert answer.status_code == 422
        for path in ("..%2f..%2fpilotage.toml", "%2e%2e/hub/auth.py", "..\\x", "/etc/passwd"):
            assert (await admin.get(f"/static/{path}")).status_code == 404


async def test_ends_are_waited_for_by_tag(hub):
    first, other = hub.submit(tag="mine"), hub.submit(tag="other")
    async with hub.client() as admin, anyio.create_task_group() as tasks:
        start = (await admin.get("/api/v1/ends?tag=mine")).json()
        assert start["ends"] == []
        hub.run(other)
        hub.end(other)
        hub.run(first)
        found: list[dict[str, Any]] = []

        async def wait() -> None:
            query = {"tag": "mine", "after": start["after"], "wait": 20}
            found.append((await admin.get("/api/v1/ends", params=query)).json())

        tasks.start_soon(wait)
        await anyio.sleep(0.2)
        assert not found
        hub.writer.do(lambda db: db.run("result_put", job=first, body='{"returns": []}'))
        hub.end(first)
        with anyio.fail_after(30):
            while not found:  # noqa: ASYNC110 - the answer is what is waited for
                await anyio.sleep(0.01)
        (end,) = found[0]["ends"]
        assert (end["job"], end["state"], end["result"]) == (first, "done", {"returns": []})
        assert found[0]["after"] >= end["seq"]


async def test_pilots_are_listed_and_asked(hub):
    facts = {"host": "n1", "work": "/w", "cpus": 4, "memory": 100, "gpus": [{}]}

    def enrol(db: Db) -> int:
        return int(
            db.value(
                "pilot_add", name="n1", site="s", pool="p", state="available", digest="d",
                facts=msgspec.json.encode(facts).decode(), now=1.0,
            )
        )  # fmt: skip

    number = hub.writer.do(enrol)
    hub.run(hub.submit())
    async with hub.client() as admin:
        (row,) = (await admin.get("/api/v1/pilots?state=available")).json()["pilots"]
        assert (row["host"], row["cpus"], row["gpus"]) == ("n1", 4, 1)
        assert (await admin.get("/api/v1/pilots?state=lost")).json()["pilots"] == []
        sheet = (await admin.get(f"/api/v1/pilots/{number}")).json()
        assert sheet["facts"]["work"] == "/w"
        assert "digest" not in sheet
        assert (await admin.post(f"/api/v1/pilots/{number}/drain")).json() == {"state": "available"}
        assert (await admin.get(f"/api/v1/pilots/{number}")).json()["asked"] == "drain"
        hub.writer.do(
            lambda db: db.run("pilot_move", id=number, state="down", reason="", now=2.0, ended=2.0)
        )
        assert (await admin.post(f"/api/v1/pilots/{number}/stop")).status_code == 409
        assert (await admin.get("/api/v1/pilots/99")).status_code == 404


async def test_the_hubs_own_machine_is_pilot_nought(hub):
    facts = '{"host": "here", "work": "/w", "cpus": 4, "memory": 100}'

    def enrol(db: Db) -> None:
        db.value(
            "pilot_add", name="here", site="local", pool="", state="available", digest="",
            facts=facts, now=1.0,
        )  # fmt: skip
        db._connection.execute("UPDATE pilot SET id = 0, used = 3")

    hub.writer.do(enrol)
    job = hub.submit()
    hub.run(job, "/run/lock")
    async with hub.client() as admin:
        sheet = (await admin.get("/api/v1/pilots/0")).json()
        assert [one["id"] for one in sheet["jobs"]] == [job]
        assert (await admin.get(f"/api/v1/jobs/{job}")).json()["pilot"] is None
        assert (await admin.get("/api/v1/pilots?limit=1")).json()["next"] is None
        view = (await admin.get("/api/v1/overview")).json()
        assert (view["cpus"], view["used"]) == (4, 3)


async def test_the_overview_keeps_up_with_the_journal(hub):
    async with hub.client() as admin:
        jobs = [hub.submit() for _ in range(5)]
        hub.writer.do(
            lambda db: db.run("sample_put", now=hub.project.clock.now(), rows='[["s",1,8,3,2]]')
        )
        view = (await admin.get("/api/v1/overview")).json()
        assert view["counts"] == {"queued": 5}
        assert view["rates"]["submitted"] > 0
        assert (view["cpus"], view["used"]) == (8, 3)
        assert view["history"][-1][1:] == [2, 8, 3]
        hub.run(jobs[0])
        hub.run(jobs[1])
        hub.end(jobs[1], State.FAILED)
        hub.submit()
        view = (await admin.get("/api/v1/overview")).json()
        assert view["counts"] == {"queued": 4, "running": 1, "failed": 1}
        assert view["rates"]["started"] > 0
        metrics = (await admin.get("/metrics")).text
        assert 'pilotage_jobs{state="queued"} 4\n' in metrics
        assert "pilotage_jobs_started_total 2\n" in metrics
        assert 'pilotage_jobs_ended_total{state="failed"} 1\n' in metrics
        assert "process_resident_memory_bytes" in metrics


async def test_shares_tell_what_is_left_of_the_usage(hub):
    now = hub.project.clock.now()
    rows = msgspec.json.encode([["anna", 100.0, now - 86400, 200.0]]).decode()
    hub.writer.do(lambda db: db.run("usage_put", rows=rows))
    hub.submit(owner="bert")
    async with hub.client() as admin:
        found = (await admin.get("/api/v1/shares")).json()
        assert found["half_life"] == 86400
        anna, bert = found["shares"]
        assert anna["usage"] == pytest.approx(50, rel=0.01)
        assert (anna["total"], bert["queued"], bert["quota"]) == (200, 1, None)


async def test_rules_are_listed_and_switched(tmp_path):
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.toml").write_text(
        '[rule.copy]\nfiles = "in/*.txt"\nrun = ["cp", "{path}", "out"]\n'
    )
    async with running(tmp_path) as hub, hub.client() as admin:
        with Project(tmp_path) as project:
            project.apply_books()
        (rule,) = (await admin.get("/api/v1/rules")).json()["rules"]
        assert (rule["name"], rule["enabled"], rule["hits"]) == ("copy", True, 0)
        assert rule["trigger"]
        answer = await admin.post("/api/v1/rules/copy/disable")
        assert answer.json() == {"enabled": False}
        assert (await admin.get("/api/v1/rules")).json()["rules"][0]["enabled"] is False
        assert (await admin.post("/api/v1/rules/none/enable")).status_code == 404


async def test_readiness_says_what_is_wrong(hub):
    async with httpx2.AsyncClient(base_url=hub.url) as anyone:
        assert (await anyone.get("/healthz")).json() == {"status": "ok", "why": []}
        assert (await anyone.get("/readyz")).status_code == 200
        hub.trouble = "the matchmaker has stopped"
        answer = await anyone.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["why"] == ["the matchmaker has stopped"]


async def test_events_are_posted_here_too_with_a_token_of_their_own(tmp_path):
    taken: list[tuple[str, bytes]] = []

    async def accept(topic: str, body: bytes, _: str) -> int:
        taken.append((topic, body))
        return len(taken)

    webhook = http.app(accept, "s3cret", 1000)
    async with running(tmp_path, webhook) as hub, hub.client() as admin:
        assert (await admin.post("/events/scan.done", content=b"x")).status_code == 401
        headers = {"Authorization": "Bearer s3cret"}
        answer = await admin.post("/events/scan.done", content=b"x", headers=headers)
        assert (answer.status_code, answer.json()) == (202, {"event": 1, "topic": "scan.done"})
        assert (await admin.get("/api/v1/jobs", headers=headers)).status_code == 401
    assert taken == [("scan.done", b"x")]


async def test_heads_are_answered_without_bodies_and_without_streams_that_never_end(hub):
    async with hub.client() as admin:
        for path in ("/api/v1/jobs", "/api/v1/stream", "/", "/openapi.json"):
            answer = await admin.head(path)
            assert (answer.status_code, answer.content) == (200, b"")
