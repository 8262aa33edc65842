"""The command lines of sandboxes, without running any of them."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from pilotage.payload import sandbox
from pilotage.payload.sandbox import disk, rule
from pilotage.payload.sandbox.wrap import program

SECRET = "v4lu3 'of' $HOME"


def order(tmp_path, kind: str, **more: Any) -> dict[str, Any]:
    asked = {"kind": kind, **more.pop("asked", {})}
    place = str(tmp_path)
    made = {"key": "7.1", "argv": ["prog", "a b", "$(id)"], "env": {"A": SECRET}, "cwd": place}
    return {**made, "dir": place, "limits": {}, "memory": None, "sandbox": asked, **more}


def wrap(tmp_path, kind: str, **more: Any) -> sandbox.Wrapped:
    return sandbox.wrap(order(tmp_path, kind, **more), {"MARK": "m"})


def pairs(words: list[str], option: str) -> list[str]:
    return [after for word, after in itertools.pairwise(words) if word == option]


def test_none_is_the_payload_itself(tmp_path):
    wrapped = wrap(tmp_path, "none")
    assert wrapped.argv == ["prog", "a b", "$(id)"]
    assert wrapped.env == {"A": SECRET, "MARK": "m"}


@pytest.mark.parametrize("kind", ["bubblewrap", "podman", "user"])
def test_no_list_of_processes_shows_the_environment(tmp_path, kind):
    wrapped = wrap(tmp_path, kind, asked={"user": "someone"})
    assert not any(SECRET in word for word in wrapped.argv)
    assert "A" not in wrapped.env
    assert wrapped.env["MARK"] == "m"
    assert "v4lu3" in wrapped.handed.decode()


def test_bubblewrap_shuts_everything_and_opens_what_was_asked(tmp_path):
    (tmp_path / "in").mkdir()
    readable = str(tmp_path / "in")
    wrapped = wrap(tmp_path, "bubblewrap", asked={"readable": [readable], "network": False})
    words = wrapped.handed.decode().split("\0")
    for option in ("user", "pid", "ipc", "uts", "net"):
        assert f"--unshare-{option}" in words
    assert {"--die-with-parent", "--clearenv"} <= set(words)
    assert pairs(words, "--cap-drop") == ["ALL"]
    assert pairs(words, "--bind") == [str(tmp_path)]
    assert readable in pairs(words, "--ro-bind")
    assert "/etc" not in pairs(words, "--ro-bind")
    # The folder within comes after the one around it, or it would be hidden.
    assert words.index(str(tmp_path)) < words.index(readable)
    assert wrapped.argv[-3:] == ["prog", "a b", "$(id)"]


def test_limits_are_set_inside(tmp_path):
    wrapped = wrap(tmp_path, "bubblewrap", limits={"processes": 9, "disk": 4096})
    assert "--nproc=9:9" in wrapped.argv
    assert "--fsize=4096:4096" in wrapped.argv
    assert not any("disk" in word for word in wrapped.argv)


def test_the_pilots_python_can_be_seen_if_it_runs_the_payload(tmp_path):
    wrapped = wrap(tmp_path, "bubblewrap", argv=[sys.executable, "-c", "pass"])
    shown = pairs(wrapped.handed.decode().split("\0"), "--ro-bind")
    for root in {sys.prefix, sys.base_prefix}:
        assert root.startswith("/usr") or root in shown


def test_podman_writes_paths_so_that_no_sign_ends_them(tmp_path):
    place = tmp_path / 'a,b:c"d e'
    place.mkdir()
    wrapped = wrap(tmp_path, "podman", dir=str(place), cwd=str(place))
    argv = json.loads(wrapped.handed)["argv"]
    quoted = str(place).replace('"', '""')
    assert f'type=bind,"source={quoted}","destination={quoted}"' in pairs(argv, "--mount")
    assert pairs(argv, "--workdir") == [str(place)]


def test_podman_never_takes_an_image_for_an_option(tmp_path):
    with pytest.raises(sandbox.NotPossibleError, match="cannot be the name of an image"):
        wrap(tmp_path, "podman", asked={"image": "--privileged"})
    request = json.loads(wrap(tmp_path, "podman", asked={"image": "quay.io/x:1"}).handed)
    assert request["rest"] == ["quay.io/x:1", "prog", "a b", "$(id)"]
    assert request["last"][-1] == pairs(request["argv"], "--name")[0]


def test_podman_refuses_what_its_format_cannot_hold(tmp_path):
    with pytest.raises(sandbox.NotPossibleError, match="more than one line"):
        wrap(tmp_path, "podman", env={"A": "x\ny"})


def test_apptainer_contains_all_and_renames_the_environment(tmp_path):
    wrapped = wrap(tmp_path, "apptainer", asked={"image": "/images/x.sif", "network": False})
    assert wrapped.argv[0] in {"apptainer", "singularity"}
    assert {"--containall", "--cleanenv", "--no-home", "--no-privs"} <= set(wrapped.argv)
    assert pairs(wrapped.argv, "--network") == ["none"]
    assert pairs(wrapped.argv, "--bind") == [f"{tmp_path}:{tmp_path}:rw"]
    assert pairs(wrapped.argv, "--pwd") == [str(tmp_path)]
    after = wrapped.argv[wrapped.argv.index("/images/x.sif") + 1 :]
    assert after[0] == "/usr/bin/prlimit"
    assert after[-3:] == ["prog", "a b", "$(id)"]
    prefix = "APPTAINERENV_" if program() == "apptainer" else "SINGULARITYENV_"
    assert wrapped.env[f"{prefix}A"] == SECRET
    assert "A" not in wrapped.env


@pytest.mark.parametrize("sign", [",", ":"])
def test_apptainer_refuses_paths_that_it_would_read_differently(tmp_path, sign):
    place = tmp_path / f"a{sign}b"
    place.mkdir()
    with pytest.raises(sandbox.NotPossibleError, match="comma or colon"):
        wrap(tmp_path, "apptainer", asked={"image": "x.sif"}, dir=str(place), cwd=str(place))


def test_apptainer_needs_an_image(tmp_path):
    for image in ("", "--fakeroot"):
        with pytest.raises(sandbox.NotPossibleError, match="needs an image"):
            wrap(tmp_path, "apptainer", asked={"image": image})


@pytest.mark.parametrize("name", ["-u", "root ", "a,b", "ALL\n", "%wheel", "x" * 40])
def test_only_plain_names_of_users_are_taken(tmp_path, name):
    with pytest.raises(sandbox.NotPossibleError, match="name of a user"):
        wrap(tmp_path, "user", asked={"user": name})
    with pytest.raises(ValueError, match="name of a user"):
        rule.sudoers("pilot", [name])
    with pytest.raises(ValueError, match="name of a user"):
        rule.sudoers(name, ["one"])


def test_the_rule_names_each_command_in_full():
    text = rule.sudoers("pilot", ["one", "two"])
    assert f"{rule.GATEKEEPER} run one, " in text
    assert f"{rule.GATEKEEPER} sweep two\n" in text
    assert "*" not in text
    for users in ([], ["pilot"]):
        with pytest.raises(ValueError, match="other than the pilot"):
            rule.sudoers("pilot", users)


@pytest.mark.parametrize(
    "more, why",
    [
        ({"asked": {"kind": "jail"}}, "no kind of sandbox 'jail'"),
        ({"argv": []}, "no program"),
        ({"argv": ["a\0b"]}, "zero byte"),
        ({"env": {"A=B": ""}}, "name of a variable"),
        ({"cwd": "here"}, "absolute"),
        ({"cwd": "/root"}, "not shown in its sandbox"),
        ({"asked": {"readable": ["/no/such/folder"]}}, "is not there"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_starts(tmp_path, more, why):
    kind = more.get("asked", {}).get("kind", "bubblewrap")
    with pytest.raises(sandbox.NotPossibleError, match=why):
        wrap(tmp_path, kind, **more)


def test_limits_are_never_above_our_own(tmp_path):
    wrapped = wrap(tmp_path, "bubblewrap", limits={"open_files": 1 << 40})
    [word] = [word for word in wrapped.argv if word.startswith("--nofile")]
    assert int(word.rpartition(":")[2]) <= max(1 << 20, os.sysconf("SC_OPEN_MAX"))


def test_codes_that_stand_for_signals_are_signals():
    codes = {0: 0, 3: 3, 127: 127, 128: 128, 137: -signal.SIGKILL, 139: -signal.SIGSEGV, 255: 255}
    assert {code: sandbox.exit_code(code) for code in codes} == codes


def test_only_none_says_that_it_protects_little():
    assert sandbox.KINDS[0] == "none"
    assert [threat for threat, shut in sandbox.protects("none").items() if shut] == ["outlive"]
    for kind in ("bubblewrap", "podman", "user"):
        assert all(sandbox.protects(kind).values())
        assert "none of what is tested" in sandbox.words(kind)


def test_a_gauge_counts_files_and_stops_at_the_limit(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "file").write_bytes(bytes(1 << 20))
    (tmp_path / "link").symlink_to("/usr/bin/python3")
    gauge = disk.Gauge(os.fsencode(tmp_path), os.getpid(), 1 << 30)
    sizes = [gauge.look() for _ in range(20)]
    assert (1 << 20) <= max(sizes) < (2 << 20)
    assert sizes[-1] == 0  # not so soon again
    assert disk.Gauge(os.fsencode(tmp_path), os.getpid(), 1000).look() > 1000


def test_a_gauge_counts_files_that_have_no_name_any_more(tmp_path):
    with (tmp_path / "file").open("wb", buffering=0) as file:
        file.write(bytes(1 << 20))
        (tmp_path / "file").unlink()
        gauge = disk.Gauge(os.fsencode(tmp_path), os.getpid(), 1 << 30)
        # One look ends after a moment, wherever it is.
        assert max(gauge.look() for _ in range(20)) >= 1 << 20


def test_the_table_of_the_page_says_what_each_kind_says_of_itself():
    page = (Path(__file__).parents[3] / "docs" / "sandbox.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]
    [head] = [row for row in rows if row and row[0].startswith("a hostile payload")]
    kinds = [cell.strip("`") for cell in head[1:]]
    assert set(kinds) == set(sandbox.KINDS)
    table = {row[0]: row[1:] for row in rows if row}
    for threat, words in sandbox.THREATS.items():
        shut = [sandbox.protects(kind)[threat] for kind in kinds]
        assert table[words] == ["blocked" if one else "possible" for one in shut]
