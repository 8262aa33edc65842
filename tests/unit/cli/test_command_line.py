"""The command line as a whole: answers, help, errors, and what programs read."""

from __future__ import annotations

import inspect
import io
import json
import sys

import pytest

from pilotage.cli import about, main, printing
from pilotage.cli.answer import Answer, Styled, Table, columns
from pilotage.cli.tree import app
from pilotage.hub.project import Project
from pilotage.project import folder
from pilotage.testing.clock import ManualClock
from tests.suite import every

START = 1_700_000_000.0


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    (tmp_path / "pilotage.toml").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(folder, "WallClock", lambda: ManualClock(START))
    for name in ("PILOTAGE_OUTPUT", "PILOTAGE_PROJECT", "PILOTAGE_DEBUG"):
        monkeypatch.delenv(name, raising=False)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["pilotage", *words])
        status = main.main()
        found = capfd.readouterr()
        return status, found.out, found.err

    return call


def leaves(node, path=()):
    for name in node:
        if name.startswith("-"):
            continue
        child = node[name]
        if child.default_command is None:
            yield from leaves(child, (*path, name))
        else:
            yield (*path, name), child


COMMANDS = dict(leaves(app))


def test_every_command_and_flag_has_help():
    with every.cases() as case:
        for path, command in COMMANDS.items():
            with case(" ".join(path)):
                assert command.help.strip()
                assert "at" in inspect.signature(command.default_command).parameters
            for argument in command.assemble_argument_collection(parse_docstring=False):
                if argument.parse and argument.show:
                    with case(" ".join([*path, argument.name])):
                        assert argument.parameter.help


@pytest.mark.parametrize("kind", about.kinds(), ids=lambda kind: kind.code)
def test_every_error_says_what_it_means_and_what_to_do(kind, run):
    assert about.ADVICE[kind.code]
    assert kind.exit_status in about.EXITS
    status, out, _ = run("help", kind.code)
    assert status == 0
    assert "What to do" in out


def test_no_words_print_an_overview(run):
    status, out, err = run()
    assert (status, err) == (0, "")
    assert "pilotage up" in out


@pytest.mark.parametrize(
    "words, status, error, hint",
    [
        (["jbo"], 2, "unknown command `jbo`", "`job`"),
        (["job", "lss"], 2, "unknown command `lss`", "`ls`"),
        (["job", "ls", "--stat", "failed"], 2, "unknown option: --stat", "`--state`"),
        (["job", "ls", "--most", "x"], 2, "`x`", "--help"),
        (["job", "ls", "--state", "bad"], 2, "bad", "done"),
        (["version", "more"], 2, "`more`", "--help"),
        (["submit"], 2, "CMD", "--help"),
        (["submit", "--mem", "1G", "ls"], 2, "--mem", "--memory"),
        (["explain", "9-3"], 2, "backwards", "3-9"),
        (["job", "show", "99"], 4, "no job 99", "job ls"),
        (["rule", "show", "x"], 4, "no rule `x`", "there are none"),
        (["help", "E999"], 4, "E999", "help errors"),
        (["help", "exits"], 4, "exits", "`exit`"),
        (["--project", "/nowhere", "status"], 3, "/nowhere", "--project"),
        (["event", "emit", "a b"], 2, "a b", "dots"),
        (["event", "emit", "a", "--data", "{"], 2, "not JSON", "sample"),
        (["job", "purge", "--older", "1d"], 0, "", ""),
        (["up", "--cpus", "0"], 2, "0 cores", "--cpus"),
        (["rule", "test"], 2, "--event", "rule test"),
    ],
)
def test_errors_say_what_and_what_to_do(run, words, status, error, hint):
    found, out, err = run(*words)
    assert found == status
    if status:
        assert out == ""
        head, _, rest = err.partition("\n\nhint: ")
        assert head.startswith("error: ")
        assert error in head
        assert hint in rest


def test_an_error_is_one_json_value_too(run):
    status, out, err = run("job", "show", "9", "--json")
    assert status == 4
    assert json.loads(out)["error"]["code"] == "E400"
    assert err.startswith("error: there is no job 9")


def test_what_was_not_foreseen_says_how_to_report_it(run, monkeypatch):
    def fail(*_):
        raise ZeroDivisionError("oh")

    monkeypatch.setattr(Project, "jobs", fail)
    status, _, err = run("job", "ls")
    assert status == 70
    assert "ZeroDivisionError" in err
    assert "PILOTAGE_DEBUG=1" in err


def test_options_of_every_command_may_stand_first(run, tmp_path):
    run("submit", "true")
    after = run("job", "ls", "--json", "--project", str(tmp_path))
    assert run("--json", "--project", str(tmp_path), "job", "ls") == after
    assert run(f"--project={tmp_path}", "--json", "job", "ls") == after
    assert run("-q", "job", "ls")[1] == "1\n"


def test_the_environment_chooses_the_output(run, monkeypatch):
    run("submit", "true")
    monkeypatch.setenv("PILOTAGE_OUTPUT", "quiet")
    assert run("job", "ls")[1] == "1\n"
    monkeypatch.setenv("PILOTAGE_OUTPUT", "json")
    assert json.loads(run("job", "ls")[1])["schema"] == 1
    assert json.loads(run("job", "show", "7")[1])["error"]["status"] == 4
    assert run("job", "ls", "-q")[1] == "1\n"
    monkeypatch.setenv("PILOTAGE_OUTPUT", "xml")
    assert run("job", "ls")[0] == 2


def test_json_of_jobs(run, tmp_path):
    status, out, _ = run("submit", "--name", "fit", "--tag", "n", "--json", "true", "--json")
    assert (status, out) == (0, '{"schema":1,"id":1,"name":"fit","running":false}\n')
    _, out, _ = run("job", "ls", "--json")
    assert json.loads(out) == {
        "schema": 1,
        "more": False,
        "jobs": [
            {
                "id": 1, "name": "fit", "state": "queued", "reason": "", "rule": "", "tag": "n",
                "priority": 0, "attempt": 0, "created": "2023-11-14T22:13:20.000Z",
                "started": None, "ended": None, "not_before": None, "path": "", "event": None,
                "parent": None, "place": None,
            }
        ],
    }  # fmt: skip
    _, out, _ = run("explain", "1", "--json")
    assert json.loads(out) == {
        "schema": 1,
        "jobs": [
            {
                "id": 1,
                "state": "queued",
                "headline": "job 1 is queued",
                "reasons": [{"text": "nothing runs this project now", "detail": ""}],
                "suggestion": "start it: `pilotage up`",
            }
        ],
    }
    _, out, _ = run("job", "show", "1", "--json")
    shown = json.loads(out)["jobs"][0]
    assert shown["attempts"] == []
    assert shown["spec"]["recipe"] == {"kind": "command", "argv": ["true", "--json"]}


def test_json_of_verbs(run):
    run("submit", "true")
    _, out, _ = run("hold", "1", "--json")
    assert json.loads(out) == {
        "schema": 1, "jobs": [{"id": 1, "was": "queued", "state": "held"}]
    }  # fmt: skip
    assert json.loads(run("hold", "1", "--json")[1])["jobs"] == []
    assert run("release", "all", "-q")[1] == "1\n"
    assert run("release", "1")[0] == 7
    assert run("cancel", "1")[0] == 0
    assert run("cancel", "1")[0] == 0
    assert run("retry", "1")[0] == 0
    assert run("retry", "1")[0] == 7
    run("submit", "--after", "1", "true")
    assert run("retry", "2")[0] == 7
    assert json.loads(run("job", "ls", "--state", "waiting", "--json")[1])["jobs"][0]["id"] == 2


def test_json_of_status_and_events(run):
    run("submit", "true")
    _, out, _ = run("status", "--json")
    found = json.loads(out)
    assert found["running"] is False
    assert found["jobs"]["queued"] == 1
    assert found["names"] == [{"name": "true", "queued": 1}]
    assert run("event", "emit", "a.b", "--data", '{"x": 1}', "--id", "one", "-q")[1] == "1\n"
    assert run("event", "emit", "a.b", "--id", "one", "-q")[1] == "1\n"
    _, out, _ = run("event", "ls", "--json")
    (event,) = json.loads(out)["events"]
    assert (event["kind"], event["subject"], event["data"]) == ("message", "a.b", {"x": 1})


def test_a_dry_run_queues_nothing(run):
    status, out, _ = run("submit", "-n", "--cpus", "1", "echo", "hi")
    assert status == 0
    assert "echo hi" in out
    assert run("submit", "-n", "--cpus", "9999", "echo")[0] == 5
    assert run("job", "ls", "-q")[1] == ""


def test_waiting_gives_up_in_time(run):
    run("submit", "sleep", "1")
    status, _, err = run("wait", "1", "--timeout", "50ms")
    assert status == 124
    assert "1 job not ended after 50 ms" in err


def test_a_first_project_has_a_rule_that_is_in_order(run, tmp_path):
    (tmp_path / "new").mkdir()
    status, out, _ = run("init", "new")
    assert status == 0
    assert "cd new && pilotage up" in out
    assert run("rule", "check", "--project", "new")[0] == 0
    assert run("config", "check", "--project", "new")[0] == 0
    before = (tmp_path / "new/pilotage.toml").read_text()
    assert "nothing was changed" in run("init", "new")[1]
    assert (tmp_path / "new/pilotage.toml").read_text() == before


def test_settings_say_where_they_come_from(run, tmp_path):
    (tmp_path / "pilotage.toml").write_text("[site]\ncpus = 3\n")
    _, out, _ = run("config", "show", "--origin")
    assert "site.cpus = 3  # pilotage.toml:2" in out
    assert 'events.mode = "auto"  # default' in out
    (tmp_path / "pilotage.toml").write_text("[site]\ncpu = 3\n")
    status, _, err = run("config", "show")
    assert status == 3
    assert "cpu" in err


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        return True


def test_tables_have_no_boxes_and_numbers_to_the_right():
    table = Table(columns("ID> NAME"), ((1, "a"), (22, Styled("b\n\x1b", "red"))))
    assert printing.lines(table, io.StringIO()) == ["ID  NAME", " 1  a", "22  b\\n\\x1b"]


def test_colours_are_for_terminals_that_want_them(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert printing.paint(Styled("x", "red"), Terminal()) == "\033[31mx\033[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert printing.paint(Styled("x", "red"), Terminal()) == "x"


@pytest.mark.parametrize(
    "content, most, shown", [("abc", 3, "abc"), ("abcd", 3, "ab…"), ("日本語", 4, "日…")]
)
def test_text_is_cut_by_the_places_it_takes(content, most, shown):
    assert printing.shorten(content, most) == shown
    assert printing.width(printing.shorten(content, most)) <= most


def test_an_odd_name_comes_out_as_the_bytes_it_was(capfdbinary):
    printing.answer(Answer({"path": "a\udcff"}, ("a\udcff",)), "table")
    assert capfdbinary.readouterr().out == b"a\xff\n"
    assert printing.dump({"path": "a\udcff"}) == '{"schema": 1, "path": "a\\udcff"}\n'
