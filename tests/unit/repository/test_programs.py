from __future__ import annotations

import subprocess
import sys
import time

import pytest

from tests.suite import programs

SLEEPS = [sys.executable, "-c", "import time; time.sleep(1000)"]


def test_a_program_that_ends_before_it_is_ready_fails_at_once_and_is_reaped():
    process = subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"])
    begun = time.monotonic()
    with pytest.raises(AssertionError, match="it ended with 3: the port is taken"):
        programs.until_ready(process, lambda: False, lambda: "the port is taken", 600)
    assert time.monotonic() - begun < 300
    assert process.returncode == 3


def test_a_program_that_is_never_ready_is_killed():
    process = subprocess.Popen(SLEEPS)
    with pytest.raises(AssertionError, match="it was not ready in time"):
        programs.until_ready(process, lambda: False, patience=0.1)
    assert process.returncode == -9


def test_a_program_is_killed_if_looking_for_it_fails():
    process = subprocess.Popen(SLEEPS)
    with pytest.raises(ZeroDivisionError):
        programs.until_ready(process, lambda: 1 // 0)
    assert process.returncode == -9


def test_a_program_that_is_ready_goes_on_until_it_is_told():
    process = subprocess.Popen(SLEEPS)
    programs.until_ready(process, lambda: True)
    assert process.poll() is None
    assert programs.end(process) == -15


def test_a_program_that_does_not_end_is_killed():
    process = subprocess.Popen(SLEEPS)
    with pytest.raises(subprocess.TimeoutExpired):
        programs.wait(process, 0.1)
    assert process.returncode == -9
