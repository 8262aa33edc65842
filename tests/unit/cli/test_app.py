"""Commands on applications: what they write, show, refuse and run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.agent import status
from pilotage.agent.app import files, policy
from pilotage.base import errors
from pilotage.bus.model import BatchQueue, Heartbeat, Scheduler
from pilotage.cli import agent_status, app, app_trial, main
from pilotage.cli.app import Described
from pilotage.cli.app_trial import Asked
from pilotage.cli.common import Common
from tests.corpus import injection

SAY = f"#!{sys.executable} -IS\nimport sys\nprint(ascii(sys.argv[1:]))\n"


@pytest.fixture
def at(tmp_path: Path) -> Common:
    (tmp_path / "pilotage.toml").touch()
    return Common(project=tmp_path)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "say"
    file.write_text(SAY)
    file.chmod(0o755)
    return file


@pytest.fixture
def say(at: Common, program: Path) -> Common:
    described = Described(
        parameter=(
            "n=integer:1..5", "x=number:..2.5", "label=text:[^;]*", "mode=choice:a,b", "in=path",
            "fast=flag:--fast",
        ),
        about="says it", nodes=4,
    )  # fmt: skip
    argv = ("--n={n}", "{x}", "{label}", "{mode}", "{in}", "{fast}")
    app.add("say", program, *argv, described=described, at=at)
    return at


GOOD = ("n=3", "x=1.5", "label=a b", "mode=b", "in=x/y")


def test_what_is_added_is_ready(say: Common):
    found: Any = app.ls(at=say).data["apps"]
    assert [(one["name"], one["state"]) for one in found] == [("say", "ready")]
    shown: Any = app.show("say", at=say).data["app"]
    assert shown["settings"]["limits"]["nodes"] == 4
    assert shown["settings"]["parameter"]["n"]["maximum"] == 5
    assert list(shown["settings"]["parameter"]) == ["n", "x", "label", "mode", "in", "fast"]


def test_the_file_that_is_written_explains_itself(say: Common):
    text = files.file_of(say.project or Path(), "say").read_text()
    assert text.count("# ") >= 6
    assert "pilotage app test say" in text


def test_the_arguments_are_shown_one_by_one(say: Common):
    found = app_trial.trial("say", *GOOD, "fast=yes", at=say)
    assert list(found.data["argv"][1:]) == ["--n=3", "1.5", "a b", "b", "./x/y", "--fast"]
    assert found.ids[1:] == ("--n=3", "1.5", "a b", "b", "./x/y", "--fast")


def test_it_runs_here(say: Common):
    found = app_trial.trial("say", *GOOD, run=True, at=say)
    assert found.raw == b"['--n=3', '1.5', 'a b', 'b', './x/y']\n"
    assert (found.status, found.data["exit"]) == (0, 0)


def test_all_that_is_wrong_is_told_and_the_status_says_no(say: Common):
    found = app_trial.trial(
        "say", "n=9", "x=1", "label=;", "mode=b", "in=../x", asked=Asked(user="me", nodes=9), at=say
    )
    assert found.status == errors.Denied.exit_status
    reasons = found.data["reasons"]
    assert len(reasons) == 4
    for word in ("`n`", "`label`", "`in`", "`nodes`"):
        assert word in str(reasons)


def test_a_program_that_changed_is_not_run(say: Common, program: Path):
    program.write_text(SAY + "# more\n")
    found = app_trial.trial("say", *GOOD, run=True, at=say)
    assert found.status == errors.Denied.exit_status
    states: Any = app.ls(at=say).data["apps"]
    assert states[0]["state"] == "not trusted"


def test_a_program_that_others_can_change_is_not_added(at: Common, program: Path):
    program.chmod(0o777)
    with pytest.raises(errors.Denied, match="written by others"):
        app.add("say", program, at=at)
    assert app.ls(at=at).data["apps"] == []


def test_disabled_and_enabled(say: Common):
    app.disable("say", at=say)
    found = app_trial.trial("say", *GOOD, asked=Asked(user="me"), at=say)
    assert found.data["reasons"] == ["the application `say` is disabled"]
    app.enable("say", at=say)
    assert app_trial.trial("say", *GOOD, asked=Asked(user="me"), at=say).data["allowed"]


def test_a_config_gives_parameters_too(say: Common, tmp_path: Path):
    file = files.file_of(tmp_path, "say")
    file.write_text(file.read_text() + "\n[config]\n")
    (tmp_path / "run.cfg").write_text("n = 2\nlabel = from the file\nx = 0\nmode = a\nin = z\n")
    found = app_trial.trial("say", "n=4", asked=Asked(config=tmp_path / "run.cfg"), at=say)
    assert list(found.data["argv"][1:]) == ["--n=4", "0", "from the file", "a", "./z"]


def test_a_file_with_a_mistake_is_listed(say: Common, tmp_path: Path):
    files.file_of(tmp_path, "bad").write_text("executable = 5\n")
    found: Any = app.ls(at=say).data["apps"]
    assert [(one["name"], one["state"]) for one in found] == [
        ("bad", "mistaken"), ("say", "ready"),
    ]  # fmt: skip
    assert "bad.toml:1" in found[0]["trouble"]


@pytest.mark.parametrize(
    "word", ["n", "=integer", "n=integer:x", "n=thing", "n=text", "a b=integer"]
)
def test_a_parameter_that_nobody_understands_is_refused(at: Common, program: Path, word: str):
    with pytest.raises((errors.UsageError, errors.ConfigError)):
        app.add("say", program, described=Described(parameter=(word,)), at=at)
    with pytest.raises(errors.UsageError, match="NAME=VALUE"):
        app_trial._pair("x")


def test_the_corpus_runs_as_one_argument_of_a_real_program(say: Common):
    """Every value at once would be too long a line: each tenth is run, all are made."""
    ran = 0
    for at_, value in enumerate(injection.VALUES):
        if len(value) > 4096:
            with pytest.raises(errors.BadMessage, match="label"):
                app_trial.trial("say", *GOOD[:2], f"label={value}", *GOOD[3:], at=say)
            continue
        found = app_trial.trial("say", *GOOD[:2], f"label={value}", *GOOD[3:], at=say)
        if found.status:
            assert "`label`" in str(found.data["reasons"])
            continue
        assert list(found.data["argv"][1:]) == ["--n=3", "1.5", value, "b", "./x/y"]
        if at_ % 10 == 0:
            ran += 1
            out = app_trial.trial("say", *GOOD[:2], f"label={value}", *GOOD[3:], run=True, at=say)
            assert out.raw == ascii(list(found.data["argv"][1:])).encode() + b"\n"
    assert ran > 5
    assert not list((say.project or Path()).rglob("PWNED"))


def test_the_words_of_the_command_line(at: Common, program: Path, capsys, monkeypatch):
    monkeypatch.chdir(at.project or Path())
    monkeypatch.setenv("PILOTAGE_OUTPUT", "table")
    assert (
        main.run(["app", "add", "say", str(program), "--parameter", "n=integer", "--", "-n", "{n}"])
        == 0
    )
    assert main.run(["app", "test", "say", "n=7"]) == 0
    out = capsys.readouterr().out
    assert re_lines(out)[-3:] == [str(program), "-n", "7"]


def re_lines(out: str) -> list[str]:
    return [line.split(maxsplit=1)[1] for line in out.splitlines() if line[:4].strip().isdigit()]


@pytest.mark.parametrize(
    "queues, told",
    [
        ((BatchQueue(name="short", default=True, time=600.0),), "`short` allows 10 m"),
        ((BatchQueue(name="short", default=True, time=7200.0),), ""),
        ((BatchQueue(name="any", default=True), BatchQueue(name="short", time=60.0)), ""),
        ((BatchQueue(name="short", time=600.0),), ""),
        ((), ""),
    ],
)
def test_a_limit_that_the_queue_does_not_allow_is_told(
    say: Common, queues: tuple[BatchQueue, ...], told: str
):
    state = (say.project or Path()) / ".pilotage"
    beat = Heartbeat(site="mira", time=1.0, version="1", scheduler=Scheduler(queues=queues))
    status.write(state, status.AgentStatus(beat=beat, waits={"say": told} if told else {}))
    notes = app_trial.trial("say", *GOOD, at=say).notes
    assert (told in "".join(notes)) if told else not notes
    shown = agent_status.status(at=say)
    assert (told in str(shown.shown)) if told else "apps" not in str(shown.shown)


def test_each_user_and_each_queue_has_a_limit_of_its_own(say: Common):
    queues = (BatchQueue(name="short", default=True, time=600.0), BatchQueue(name="long"))
    written = files.read(say.project or Path(), "say")
    limits = msgspec.structs.replace(written.limits, queues=("long", "short"))
    own = {"ada": {"queues": ("short",)}, "bob": {"queues": ("short",), "time": "5m"}}
    one = msgspec.structs.replace(written, limits=limits, user=own)
    (told,) = policy.waits(one, queues)
    assert "`time` of `[limits]`" in told
    assert policy.waits(written, queues, "long") == []
    assert "allows 10 m" in policy.waits(written, queues, "short")[0]
