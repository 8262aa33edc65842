from __future__ import annotations

import subprocess
import time

import pytest

from testbed.errors import NotUp
from testbed.ssh import Sshd


@pytest.mark.parametrize("alias", ["key", "certificate", "behind"])
def test_one_logs_in(sshd: Sshd, alias: str):
    assert sshd.ssh("id -un; pwd", alias=alias).split() == [sshd.user.name, str(sshd.user.home)]


def test_a_code_works_once(sshd: Sshd):
    code = sshd.code()
    assert login_with(sshd, code) == "in\n"
    assert login_with(sshd, code) == ""
    assert login_with(sshd, sshd.code()) == "in\n"


def test_a_key_alone_does_not_do_where_a_code_is_asked_for(sshd: Sshd):
    with pytest.raises(NotUp, match="Permission denied"):
        sshd.ssh("true", alias="code")


def test_a_certificate_ends(sshd: Sshd):
    sshd.certify(seconds=1)
    time.sleep(2)
    with pytest.raises(NotUp, match="Permission denied"):
        sshd.ssh("true", alias="certificate")
    sshd.certify()
    sshd.ssh("true", alias="certificate")


def test_connections_are_cut_and_made_anew(sshd: Sshd):
    command = ["ssh", "-F", str(sshd.config), "key", "echo in; sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == b"in\n"
        sshd.kill_connections()
        assert client.wait(60) == 255
    sshd.ssh("true")


def test_a_server_stops_and_starts(sshd: Sshd):
    sshd.stop()
    with pytest.raises(NotUp, match="refused"):
        sshd.ssh("true")
    sshd.start()
    sshd.ssh("true")


def login_with(sshd: Sshd, code: str) -> str:
    """Log in as a person does who types a code."""
    answer = sshd.folder / "answer"
    answer.write_text(f"#!/bin/sh\necho {code}\n")
    answer.chmod(0o755)
    asked = {"SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
    once = ["-o", "NumberOfPasswordPrompts=1"]
    done = subprocess.run(
        ["ssh", "-F", str(sshd.config), *once, "code", "echo in"],
        env=sshd.environment() | asked, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout
