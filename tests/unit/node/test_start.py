"""What a pilot does with its words before the hub has heard of it."""

from __future__ import annotations

import logging
import os
import random
import time

import pytest

from pilotage.node import boxed, checks, dial, options, program
from pilotage.node.link import HubLink

TOKEN = "pil_e_" + "x" * 43


@pytest.fixture
def token(tmp_path, monkeypatch):
    monkeypatch.setattr(options, "hide", lambda: None)
    monkeypatch.setattr(os, "umask", lambda _: 0o022)
    file = tmp_path / "token"
    file.write_text(TOKEN)
    return file


def test_the_file_of_a_token_stays_until_the_token_was_used(token):
    assert options.take(str(token), {}) == TOKEN
    assert token.exists()
    options.forget(str(token))
    assert not token.exists()
    with pytest.raises(options.SecretError, match="a copy of its own"):
        options.take(str(token), {})


def test_a_wrong_address_costs_no_token(token, tmp_path, caplog):
    words = ["--hub", "hub.example.org", "--secret-file", str(token), "--work", str(tmp_path)]
    assert program.main(words) == 2
    assert "is no address of a hub" in caplog.text
    assert token.exists()


def test_folders_that_are_shown_do_not_hold_the_files_of_the_pilot(token, tmp_path, caplog):
    words = ["--hub", "https://hub", "--secret-file", str(token), "--writable", str(tmp_path)]
    assert program.main([*words, "--work", str(tmp_path / "work")]) == 2
    assert "payloads would see the pilot's own files" in caplog.text
    assert boxed.Folders(["/"]).around("/work") == "/"
    assert boxed.Folders(["/work"]).around("/working") == ""


def test_a_folder_that_is_not_there_is_told(capsys):
    with pytest.raises(SystemExit):
        options.parse(["--hub", "https://hub", "--readable", "/nowhere"])
    assert "there is no folder '/nowhere'" in capsys.readouterr().err


def test_folders_of_the_site_are_shown_in_sandboxes_only():
    folders = boxed.Folders(["/data"], ["/scratch"])
    launch = {"argv": ["/bin/true"], "env": {}, "sandbox": {"kind": "bubblewrap"}}
    order = boxed.complete(launch, {}, (), folders)
    assert order["sandbox"]["readable"] == ["/data"]
    assert order["sandbox"]["writable"] == ["/scratch"]
    assert "sandbox" not in boxed.complete({"argv": ["/bin/true"], "env": {}}, {}, (), folders)


def test_each_trouble_with_the_connection_is_told_once(caplog):
    link = HubLink(dial.route("http://127.0.0.1:1"), lambda: None, random.Random(1))
    end = time.monotonic() + 60
    while link._failures < 3 and time.monotonic() < end:
        link.attend(time.monotonic())
        time.sleep(0.01)
    assert [one.levelno for one in caplog.records] == [logging.WARNING]
    assert "cannot reach 127.0.0.1:1" in caplog.text


def test_a_check_that_cannot_run_is_told(tmp_path, caplog):
    (tmp_path / "cvmfs").write_text("#!/bin/sh\nexit 1\n")
    assert checks.run([], str(tmp_path), {}, str(tmp_path / "work")) == []
    assert "cvmfs is not executable" in caplog.text
    with pytest.raises(ValueError, match="no checks can be read in"):
        checks.run([], str(tmp_path / "nowhere"), {}, str(tmp_path / "work"))
