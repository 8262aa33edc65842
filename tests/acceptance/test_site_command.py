"""`pilotage site`: as a person uses it, with real servers and a real terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed.ssh import Sshd
from tests.rigs.project.terminal import typed
from tests.suite import programs

PATIENCE = 120.0


def run(root: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pilotage", *words, "--project", str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)


def answer(root: Path, *words: str, status: int = 0) -> Any:
    found = run(root, *words, "--json")
    assert found.returncode == status, found.stderr + found.stdout
    return json.loads(found.stdout)


def checks(root: Path, *words: str, status: int = 0) -> dict[str, tuple[str, str]]:
    found = answer(root, "site", "check", *words, status=status)
    return {one["name"]: (one["verdict"], one["found"]) for one in found["checks"]}


def add(root: Path, sshd: Sshd, name: str, alias: str, *more: str) -> None:
    settings = ["--ssh-config", str(sshd.config)]
    answer(root, "site", "add", name, "--batch", "local", "--host", alias, *settings, *more)


def state(root: Path, name: str) -> dict[str, Any]:
    found = {one["name"]: one for one in answer(root, "site", "ls")["sites"]}
    return dict(found[name])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "pilotage.toml").touch()
    return tmp_path


def test_a_site_is_added_checked_listed_and_left(root, sshd):
    add(root, sshd, "bed", "key", "--about", "for tests")
    assert state(root, "bed")["state"] == "not connected"
    found = checks(root, "bed", "--run", "--rate")
    bad = {name: words for name, (verdict, words) in found.items() if verdict == "bad"}
    assert bad == {}
    assert sshd.user.name in found["python"][1]
    assert str(sshd.user.home) in found["folder"][1]
    assert "ran on" in found["job"][1]
    assert "a second" in found["rate"][1]
    assert state(root, "bed")["state"] == "connected"
    assert list((sshd.user.home / ".pilotage").glob("*/s/*")) == [], "the trial is cleared away"
    shown = run(root, "site", "show", "bed")
    assert "for tests" in shown.stdout
    assert answer(root, "site", "logout", "bed")["was_connected"]
    assert not answer(root, "site", "logout", "bed")["was_connected"]
    assert state(root, "bed")["state"] == "not connected"


def test_a_code_is_typed_once_for_all_commands(root, sshd):
    add(root, sshd, "bed", "code")
    found = checks(root, "bed", status=1)
    assert found["host key"][0] == "ok"
    assert found["login"][0] == "bad"
    assert "pilotage site login bed" in found["login"][1]
    assert state(root, "bed")["state"] == "needs login"
    words = [sys.executable, "-m", "pilotage", "site", "login", "bed", "--project", str(root)]
    try:
        status, seen = typed(words, [("Password:", sshd.code())])
        assert status == 0, seen
        assert "connected" in seen
        assert "12 h after its last use" in seen
        assert checks(root, "bed")["login"][0] == "ok"
        assert answer(root, "site", "login", "bed")["new"] is False
    finally:
        run(root, "site", "logout", "bed")


def test_a_host_that_nobody_knows_is_told_as_such(root, sshd, tmp_path):
    settings = tmp_path / "settings"
    text = sshd.config.read_text().replace(f"{sshd.folder}/known_hosts", f"{tmp_path}/known")
    settings.write_text(text)
    add(root, sshd, "bed", "key")
    file = root / "sites" / "bed.toml"
    file.write_text(file.read_text().replace(str(sshd.config), str(settings)))
    found = checks(root, "bed", status=1)
    assert found["host key"][0] == "bad"
    assert "is not known" in found["host key"][1]


def test_what_is_missing_there_is_told(root, sshd):
    add(root, sshd, "old", "key", "--python", "python9")
    found = checks(root, "old", status=1)
    assert "python9" in found["program"][1]
    settings = ["--ssh-config", str(sshd.config), "--host", "key"]
    answer(root, "site", "add", "bare", "--batch", "lsf", *settings)
    found = checks(root, "bare", status=1)
    assert found["lsf"][0] == "bad"
    assert "`path` in the site's file" in found["lsf"][1]
    for name in ("old", "bare"):
        run(root, "site", "logout", name)


def test_a_site_that_is_drained_says_so(root, sshd):
    add(root, sshd, "bed", "key")
    answer(root, "site", "drain", "bed")
    assert state(root, "bed")["state"] == "drained"
    answer(root, "site", "resume", "bed")
    assert state(root, "bed")["drain"] is None


def test_mistakes_are_told_with_their_place(root, sshd):
    add(root, sshd, "bed", "key")
    file = root / "sites" / "bed.toml"
    file.write_text(file.read_text() + "jbos = 3\n")
    assert state(root, "bed")["state"] == "bad file"
    found = run(root, "site", "check", "bed")
    assert found.returncode == 3
    assert "bed.toml:" in found.stderr
    assert run(root, "site", "show", "nobody").returncode == 4
    assert run(root, "site", "drain", "nobody").returncode == 4
    assert run(root, "site", "add", "local", "--batch", "slurm").returncode == 3


def test_a_site_on_this_machine_needs_no_login(root, tmp_path):
    folder = str(tmp_path / "there")
    answer(root, "site", "add", "here", "--batch", "local", "--folder", folder)
    assert state(root, "here")["state"] == "here"
    assert checks(root, "here", "--run")["job"][0] == "ok"
    assert run(root, "site", "login", "here").returncode == 2


def test_a_queue_that_does_not_exist_is_found_before_any_job(root, slurm, tmp_path):
    answer(root, "site", "add", "bed", "--batch", "slurm", "--folder", str(tmp_path / "there"))
    file = root / "sites" / "bed.toml"
    env = "".join(f'{name} = "{value}"\n' for name, value in slurm.env.items())
    file.write_text(f'{file.read_text()}\n[env]\n{env}\n[defaults]\nqueue = "nowhere"\n')
    found = checks(root, "bed", status=1)
    assert found["slurm"][0] == "ok"
    assert found["listing"][0] == "ok"
    assert found["queue"][0] == "bad"
    file.write_text(file.read_text().replace('queue = "nowhere"', ""))
    assert "ran on" in checks(root, "bed", "--run")["job"][1]


def test_sites_that_come_while_the_hub_runs_are_begun_with(root, tmp_path):
    (root / "sites").mkdir()
    with (tmp_path / "said").open("w") as words:
        process = subprocess.Popen(
            [sys.executable, "-m", "pilotage", "up", "--project", str(root)],
            stdout=subprocess.DEVNULL, stderr=words,
        )  # fmt: skip
    try:
        for name in ("first", "second"):
            answer(root, "site", "add", name, "--batch", "local", "--folder", str(tmp_path / name))
            where = ["--project", str(root), "--site", name, "--via", "batch", "--name", name]
            # What comes after the program is the program's own.
            command = [sys.executable, "-m", "pilotage", "submit", *where, "true"]
            subprocess.run(command, check=True, timeout=PATIENCE)
            told = run(root, "wait", name, "--timeout", "60s")
            assert told.returncode == 0, told.stdout + told.stderr
    finally:
        programs.end(process)
