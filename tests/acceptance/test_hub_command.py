"""`pilotage hub` and `pilotage token`: as a person uses them, with the real process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.suite.programs import PATIENCE, end, until_ready


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pilotage", *words, "--project", str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def answer(root: Path, *words: str) -> Any:
    found = run(root, *words, "--json")
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pilotage.toml").write_text("[hub]\nport = 0\n")
    return tmp_path


@contextmanager
def hub(root: Path) -> Iterator[httpx2.Client]:
    """Run the hub, with a client that has the token of this machine."""
    command = [sys.executable, "-m", "pilotage", "hub", "--project", str(root)]
    with (root / "said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT)
    file = root / ".pilotage" / "hub.json"
    until_ready(process, file.exists, (root / "said").read_text)
    try:
        url = json.loads(file.read_text())["url"]
        token = (root / ".pilotage" / "admin-token").read_text().strip()
        with httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
            yield client
    finally:
        status = end(process)
    assert status == 0, (root / "said").read_text()
    assert not file.exists()


def test_tokens_are_made_once_shown_once_and_revoked(root):
    made = answer(root, "token", "new", "user", "--owner", "physics/anna", "--lifetime", "1h")
    assert made["token"].startswith("pil_u_")
    secret = run(root, "token", "new", "enrol", "--uses", "3", "--site", "lab", "-q").stdout.strip()
    assert secret.startswith("pil_e_")
    listed = run(root, "token", "ls")
    assert "physics/anna" in listed.stdout
    assert made["token"] not in listed.stdout
    assert run(root, "token", "revoke", str(made["id"])).returncode == 0
    states = {one["id"]: one["state"] for one in answer(root, "token", "ls")["tokens"]}
    assert states[made["id"]] == "revoked"
    assert run(root, "token", "revoke", "99").returncode == 4
    assert run(root, "token", "new", "king").returncode == 2
    assert run(root, "token", "new", "read", "--uses", "0").returncode == 2
    stored = (root / ".pilotage").glob("store.db*")
    assert not [file for file in stored if made["token"].encode() in file.read_bytes()]


def test_the_hub_serves_and_runs_nothing_here(root):
    with hub(root) as client:
        assert client.get("/readyz").status_code == 200
        spec = {"name": "hi", "recipe": {"kind": "command", "argv": ["true"]}}
        assert client.post("/api/v1/jobs", json={"jobs": [{"spec": spec}]}).status_code == 201
        time.sleep(0.5)
        assert client.get("/api/v1/jobs/1").json()["state"] == "queued"
        assert "nothing" in client.get("/api/v1/jobs/1/explain").json()["headline"]
        assert client.get("/").status_code == 200


def test_a_token_that_another_process_revokes_is_refused_within_seconds(root):
    with hub(root) as client:
        made = answer(root, "token", "new", "read")
        headers = {"Authorization": f"Bearer {made['token']}"}
        assert client.get("/api/v1/jobs", headers=headers).status_code == 200
        assert run(root, "token", "revoke", str(made["id"])).returncode == 0
        # What is remembered of it counts for two seconds; the machine may be slow.
        deadline = time.monotonic() + 20
        while client.get("/api/v1/jobs", headers=headers).status_code == 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        token = (root / ".pilotage" / "admin-token").read_text().strip()
        assert made["token"] not in (root / "said").read_text()
        # The page's address is told once, to whoever started the hub.
        assert (root / "said").read_text().count(token) == 1


def test_a_hub_for_others_must_be_encrypted(root):
    everywhere = "0.0.0.0"  # noqa: S104 - refused, never listened on
    (root / "pilotage.toml").write_text(f'[hub]\nport = 0\nhost = "{everywhere}"\ntls = "off"\n')
    found = run(root, "hub")
    assert found.returncode == 3
    assert "in the clear" in found.stderr
