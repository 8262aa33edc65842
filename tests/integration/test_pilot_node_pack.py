"""The pilot as one file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pilotage.pilot import pack
from tests.rigs.node.scripted_hub import SECRET, Hub, pilot, wait_for

_NOBODY = 65534


@pytest.fixture
def hub():
    one = Hub()
    yield one
    one.close()


@pytest.fixture
def packed(tmp_path) -> Path:
    target: Path = tmp_path / "pilotage-pilot.pyz"
    pack.write(target)
    return target


def test_it_is_small_and_always_the_same(packed):
    assert packed.stat().st_size < 300_000
    assert packed.read_bytes() == pack.archive()
    assert packed.read_bytes().startswith(b"#!/usr/bin/env python3\n")
    answer = subprocess.run([packed, "--help"], capture_output=True, text=True, check=True)
    assert "--hub" in answer.stdout


def test_it_runs_jobs_without_any_installed_package(hub, packed, tmp_path):
    program = [sys.executable, "-I", "-S", str(packed)]
    with pilot(hub.url, tmp_path / "p", program=program, env={"PYTHONPATH": ""}) as one:
        wait_for(lambda: hub.checks is not None)
        work = hub.facts["work"]
        folder = f"{work}/jobs/1.1"
        argv = [f"{work}/call.py", "--file", f"{folder}/recipe.py", "--function", "f"]
        argv += ["--params", f"{folder}/p.json", "--result", f"{folder}/result.json"]
        files = {"recipe.py": "def f():\n    return 42\n", "p.json": "{}"}
        hub.grant("1.1", hub.facts["python"], *argv, files=files, result=True)
        wait_for(lambda: "1.1" in hub.ends)
        assert hub.ends["1.1"]["result"] == 42
        one.terminate()
        assert one.status() == 0


def test_a_payload_of_the_same_user_sees_neither_secret_nor_memory(hub, tmp_path):
    home = Path("/tmp", f"pilot-test-{os.getpid()}")
    home.mkdir()
    try:
        pack.write(home / "pilot.pyz")
        program = [sys.executable, str(home / "pilot.pyz")]
        if os.getuid() == 0:
            keep = ["--reuid", str(_NOBODY), "--regid", str(_NOBODY), "--clear-groups"]
            program = ["setpriv", *keep, "/usr/bin/python3", str(home / "pilot.pyz")]
            os.chown(home, _NOBODY, _NOBODY)
            (home / "work").mkdir()
            os.chown(home / "work", _NOBODY, _NOBODY)
        env = {"PILOTAGE_SECRET": SECRET, "HOME": "/", "PYTHONPATH": ""}
        with pilot(hub.url, home, "--secret-file", "", program=program, env=env) as one:
            wait_for(lambda: hub.checks is not None)
            pid = one.process.pid
            look = f"cat /proc/{pid}/environ; head -c 1 /proc/{pid}/mem; ls /proc/{pid}/fd/"
            hub.grant("1.1", "sh", "-c", look)
            wait_for(lambda: "1.1" in hub.ends)
            # What it wrote may come after the news of its end.
            denied = ("1.1", "stderr")
            wait_for(lambda: hub.logs.get(denied, b"").count(b"Permission denied") == 3)
            assert hub.logs.get(("1.1", "stdout"), b"") == b""
            one.terminate()
            assert one.status() == 0
    finally:
        shutil.rmtree(home)
