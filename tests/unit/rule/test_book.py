"""Books: what can be written, what comes of it, and what is said of mistakes."""

from __future__ import annotations

import contextlib
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors, toml
from pilotage.event.model import EventKind
from pilotage.job.model import Command, Limit, Python, Resources, Retry, Script, State
from pilotage.rule import draft, files
from pilotage.rule.model import FilePattern, Gather, Rate, TimerPattern
from pilotage.rule.schema import RuleText
from pilotage.rule.span import SourceSpan

WHOLE = """\
[recipe.cleaner]
run = ["prog", "--n", "{level}", "{path}"]
params = { level = 1, gain = 2.5 }
outputs = { clean = "clean/{stem}.csv" }
memory = "8G"
time = "1h"
retry = { attempts = 3, delay = "5s" }
limit = { key = "{dir}", most = 2 }

[rule.clean]
files = ["raw/{scan}.csv", "/other/{scan}.txt"]
exclude = "*.tmp"
recipe = "cleaner"
events = ["closed", "dir.created"]
sweep = { level = { start = 1, stop = 3, step = 1 } }
params.gain = 3
rate = "10/min"
min_size = "1kB"
settle = "2s"

[rule.merge]
files = "clean/{scan}_{i}.h5"
gather = { by = "{match.scan}", item = "{match.i}", values = { start = 0, stop = 2 } }
script = '''
cat "$@"
'''
args = ["{paths}"]

[rule.tick]
cron = "*/5 3-4 * jan mon"
zone = "Europe/Berlin"
run = ["date"]

[rule.door]
message = "lab.door"
port = 12345
run = ["echo", "{message.who}"]

[rule.mend]
job = "clean"
states = ["failed"]
recipe = "mender"
"""


def load(text, folder="/nowhere"):
    return files.load_text("b.toml", text, "/p", str(folder))


def rule(more, name="a"):
    return load(f"[rule.{name}]\n{textwrap.dedent(more)}").rules[name]


def test_a_whole_book():
    found = load(WHOLE)
    clean = found.rules["clean"]
    assert clean.pattern == FilePattern(
        globs=("/p/raw/{scan}.csv", "/other/{scan}.txt"),
        base="/p",
        exclude=("*.tmp",),
        events=frozenset({EventKind.FILE_CLOSED, EventKind.DIR_CREATED}),
        min_size=1000,
        settle=2.0,
    )
    assert clean.spec.recipe == Command(("prog", "--n", "{level}", "{path}"))
    assert clean.spec.params == {"level": 1, "gain": 3}
    assert clean.spec.outputs == {"clean": "clean/{stem}.csv"}
    assert clean.spec.resources == Resources(memory=8_000_000_000, time=3600.0)
    assert clean.spec.retry == Retry(attempts=3, delay=5.0)
    assert clean.spec.limit == Limit("{dir}", 2)
    assert clean.points == ({"level": 1}, {"level": 2}, {"level": 3})
    assert clean.rate == Rate(10, 60.0)
    assert (clean.book, clean.line) == ("b.toml", 10)
    merge = found.rules["merge"]
    assert isinstance(merge.pattern, FilePattern)
    assert merge.pattern.gather == Gather("{match.scan}", None, "{match.i}", ("0", "1", "2"))
    assert merge.spec.recipe == Script(source='cat "$@"\n', args=("{paths}",))
    assert isinstance(found.rules["tick"].pattern, TimerPattern)
    assert found.inert == {"mend": "mender"}
    assert list(found.recipes) == ["cleaner"]


def test_recipes_of_one_book_serve_rules_of_another():
    other = files.load_text("c.toml", '[recipe.mender]\nrun = ["mend", "{ended.id}"]', "/p", "/")
    rules = files.combine([load(WHOLE), other])
    assert rules["mend"].spec.recipe == Command(("mend", "{ended.id}"))
    assert "mend" not in files.combine([load(WHOLE)])


def test_a_name_is_taken_once():
    first = load(WHOLE)
    second = files.load_text("c.toml", '\n[rule.tick]\nevery = 5\nrun = ["x"]', "/p", "/")
    with pytest.raises(errors.BadRule) as caught:
        files.combine([first, second])
    assert str(caught.value) == (
        "c.toml:2: rule.tick: the name 'tick' is taken by the rule in b.toml:29"
    )
    assert caught.value.file == "c.toml"
    third = files.load_text("d.toml", '[recipe.cleaner]\nrun = ["x"]', "/p", "/")
    with pytest.raises(errors.BadRule, match=r"taken by the recipe in b\.toml:1"):
        files.combine([first, third])


def test_a_rule_survives_json_and_its_digest_ignores_where_it_stands():
    rules = load(WHOLE).rules
    for each in rules.values():
        assert files.load_rule(files.dump(each)) == each
    moved = load("\n\n" + WHOLE).rules
    assert moved["clean"].line == 12
    assert files.digest(moved["clean"]) == files.digest(rules["clean"])
    assert len({files.digest(each) for each in rules.values()}) == len(rules)
    assert files.diff(rules, moved).same == ("clean", "door", "merge", "tick")


def test_differences_are_told_by_field():
    old = {"a": rule('files = "a"\nrun = ["x"]'), "b": rule('files = "b"\nrun = ["x"]', "b")}
    new = {
        "a": rule('files = "a"\nrun = ["y"]\ncpus = 2'),
        "c": rule('every = 3\nrun = ["x"]', "c"),
    }
    found = files.diff(old, new)
    assert (found.added, found.removed, found.same) == (("c",), ("b",), ())
    assert [(one.field, one.old, one.new) for one in found.changed[0].fields] == [
        ("spec.recipe.argv", ("x",), ("y",)),
        ("spec.resources.cpus", 1, 2),
    ]


@pytest.mark.parametrize(
    "text, message, hint",
    [
        (
            "x",
            "b.toml:1: not TOML: Expected '=' after a key in a key/value pair at the end",
            "text",
        ),
        ("a = [1\n", "b.toml:2: not TOML: Unclosed array at the end", "text"),
        ("[rules.a]", "b.toml:1: rules: a rule file has no table 'rules'", "did you mean `rule`?"),
        ("rule = 3", "b.toml:1: rule: this is 3, not a table", "write `[rule.NAME]`"),
        (
            '[rule.a]\nfiles = "a/*"\nrn = ["x"]',
            "b.toml:3: rule.a.rn: there is no key 'rn'",
            "did you mean `run`?",
        ),
        (
            '[rule.a]\nfiles = 3\nrun = ["x"]',
            "b.toml:2: rule.a.files: this is a whole number, not text or a list",
            "",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = "ls -l"',
            "b.toml:3: rule.a.run: this is text, not a list",
            'write a list: `run = ["prog", "{path}"]`',
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = [\n  "x",\n  "{pth}",\n]',
            "b.toml:3: rule.a.run: there is no keyword `{pth}` here",
            "did you mean `path`?",
        ),
        (
            '[rule.a]\nfiles = ["{x}/a", "{y}/b"]\nrun = ["{x}"]',
            "b.toml:3: rule.a.run: there is no keyword `{x}` here",
            "known are",
        ),
        (
            '[recipe.r]\nrun = ["{path}"]\n\n[rule.t]\nevery = 3\nrecipe = "r"',
            "b.toml:2: recipe.r.run: there is no keyword `{path}` here (as rule.t uses it)",
            "known are `base`, `job`",
        ),
        (
            '[rule.a]\nfiles = "a"\nevery = 3\nrun = ["x"]',
            "b.toml:1: rule.a: a rule waits for one thing; this one has `files` and `every`",
            "give exactly one of `files`, `regex`, `every`, `cron`, `message`, `job`",
        ),
        (
            '[rule.a]\nfiles = "a"\n',
            "b.toml:1: rule.a: a job runs one thing; here it is nothing",
            "give exactly one of `run`, `script`, `python`, `notebook`, `app`, `flow`;",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = ["x"]\n\n[rule.a.params]\nx = 1\nLD_PRELOAD = "x"',
            (
                "b.toml:7: rule.a.params.LD_PRELOAD: 'LD_PRELOAD' cannot be a parameter: "
                "scripts get parameters as environment variables, "
                "and this one changes how programs run"
            ),
            "call it `ld_preload`",
        ),
        (
            '[rule.a]\nmessage = "a"\nsettle = 3\nrun = ["x"]',
            "b.toml:3: rule.a.settle: this goes with `files` and `regex`, not with `message`",
            "",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = ["x"]\nsweep = { x = { start = 1 } }',
            "b.toml:4: rule.a.sweep.x: the range of 'x' has no `stop`",
            "give `start`, `stop` and `step`",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = ["x"]\nsettle = "2 fortnights"',
            "b.toml:4: rule.a.settle: cannot read '2 fortnights' as a duration",
            "write `90s`, `1h 30m` or `01:30:00`",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = ["x"]\nevents = ["close"]',
            "b.toml:4: rule.a.events: there is no event 'close'",
            "did you mean `closed`?",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = ["x"]\ngather = { by = "x", cout = 3 }',
            "b.toml:4: rule.a.gather.cout: there is no key 'cout'",
            "did you mean `count`?",
        ),
        (
            '[rule.a]\njob = "x"\nstates = ["fialed"]\nrun = ["x"]',
            "b.toml:3: rule.a.states: this cannot be 'fialed'",
            "did you mean `failed`?",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = ["x"]\non_change = "stop"',
            "b.toml:4: rule.a.on_change: this cannot be 'stop'",
            "known are `cancel`, `ignore`, `latest`",
        ),
        (
            '[rule.a]\nfiles = "a"\npython = "x.py:f"',
            "b.toml:3: rule.a.python: there is no file 'x.py'",
            "it is looked for in /nowhere",
        ),
        (
            '[rule.a]\ncron = "0 25 * * *"\nrun = ["x"]',
            "b.toml:2: rule.a.cron: '25' does not belong in the field 'hour'",
            "it takes 0 to 23, `*`, lists, ranges and steps",
        ),
        (
            '[rule.a]\ncron = "0 3 * * *"\nzone = "America"\nrun = ["x"]',
            "b.toml:3: rule.a.zone: there is no time zone 'America'",
            "write one such as `Europe/Berlin`",
        ),
        (
            '[rule."a b"]\nfiles = "x"\nrun = ["x"]',
            "b.toml:1: rule.a b: 'a b' cannot name a rule or recipe",
            "use letters",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = ["x"]\nrate = "often"',
            "b.toml:4: rule.a.rate: cannot read 'often' as a rate",
            "write `10/min` or `100/2h`",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = ["x"]\ncpus = 0',
            "b.toml:4: rule.a.cpus: 0 is too small; the least is 1",
            "",
        ),
        (
            '[recipe.r]\nrun = ["x", "{"]',
            "b.toml:2: recipe.r.run: a lone `{` in '{'",
            "a literal brace is `{{`",
        ),
        (
            '[rule.a]\nfiles = "a"\nrun = ["x"]\nrecipe = "r"',
            "b.toml:3: rule.a.run: the rule has a `recipe` already: 'r'",
            "",
        ),
        (
            '[rule.a]\nregex = "("\nrun = ["x"]',
            (
                "b.toml:2: rule.a.regex: '(' is not a regular expression: "
                "missing ), unterminated subpattern at position 0"
            ),
            "in TOML",
        ),
    ],
)
def test_a_mistake_is_told_with_its_place(text, message, hint):
    with pytest.raises(errors.BadRule) as caught:
        load(text)
    assert str(caught.value) == message
    assert caught.value.hint.startswith(hint)


def test_where_a_job_may_run_reaches_its_definition():
    asked = 'requirements = "gpus >= 2"\nrank = "memory"\nimage = "docker://python:3.12"\n'
    book_ = f'[recipe.r]\nrun = ["x"]\n{asked}\n[rule.a]\nfiles = "x"\nrecipe = "r"\nrank = "cpus"'
    spec = load(book_).rules["a"].spec
    assert (spec.requirements, spec.rank, spec.image) == (
        "gpus >= 2",
        "cpus",
        "docker://python:3.12",
    )


@pytest.mark.parametrize(
    "line, message, hint",
    [
        (
            'requirements = "gpus = 2"',
            "requirements: at character 6 of the expression: '=' means nothing here",
            "to compare, write `==`",
        ),
        (
            'rank = "job.memry"',
            "rank: at character 1 of the expression: a job has no attribute `memry`",
            "did you mean `job.memory`?",
        ),
        (
            'image = "--privileged"',
            "image: '--privileged' cannot name an image",
            "",
        ),
        ('image = "a b"', "image: 'a b' cannot name an image", ""),
    ],
)
def test_a_mistake_in_where_a_job_may_run_is_told_with_its_line(line, message, hint):
    with pytest.raises(errors.BadRule) as caught:
        load(f'[rule.a]\nfiles = "x"\nrun = ["x"]\n{line}')
    assert str(caught.value) == f"b.toml:4: rule.a.{message}"
    assert caught.value.hint.startswith(hint)


def test_files_are_looked_for_beside_the_book(tmp_path):
    (tmp_path / "steps.py").write_text("def clean(): ...\n")
    (tmp_path / "fit.ipynb").write_text("{}")
    (tmp_path / "go.sh").write_text("echo")
    text = '[rule.{0}]\nfiles = "a"\n{1}\n'
    kinds = {
        "python": 'python = "steps.py:clean"\npython_bin = "/usr/bin/python3"',
        "notebook": 'notebook = "fit.ipynb"\noutput = "out/{stem}.ipynb"',
        "script": 'script = "go.sh"\ninterpreter = "bash"',
        "app": 'app = "xds"\nargs = ["{path}"]',
    }
    source = "".join(text.format(name, keys) for name, keys in kinds.items())
    found = load(source, tmp_path).rules
    python = found["python"].spec.recipe
    assert python == Python(str(tmp_path / "steps.py"), "", "clean", "/usr/bin/python3")
    assert found["script"].spec.recipe == Script(file=f"{tmp_path}/go.sh", interpreter=("bash",))
    with pytest.raises(errors.BadRule) as caught:
        load('[recipe.a]\npython = "steps.py:clena"', tmp_path)
    assert caught.value.hint == "did you mean `clean`?"


def test_a_book_file_must_be_readable(tmp_path):
    with pytest.raises(errors.BadRule, match="No such file"):
        files.load(tmp_path / "no.toml", "/p")
    (tmp_path / "b.toml").write_bytes(b"# a\n# \xff\n")
    with pytest.raises(errors.BadRule, match=r"b\.toml:2: not UTF-8"):
        files.load(tmp_path / "b.toml", "/p")
    (tmp_path / "b.yaml").write_text("")
    with pytest.raises(errors.BadRule, match=r"cannot end with '\.yaml'"):
        files.load(tmp_path / "b.yaml", "/p")


def test_lines_are_found():
    source = '[a]\nx = """\ny = 1\n"""\n"y" = [\n 1, # ]\n]\nz.w = "\\""\n[b."c.d"]\nq = 1'
    assert toml.line_of(source, ("a", "y")) == 5
    assert toml.line_of(source, ("a", "z", "w")) == 8
    assert toml.line_of(source, ("b", "c.d", "q")) == 10
    assert toml.line_of(source, ("a", "nothing")) == 1
    assert toml.line_of(source, ("nothing",)) is None


# -- whatever is written, only BadRule comes out ---------------------------------------------------

SCALARS = (
    st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.sampled_from("ab{}*[]/.: \n0"), max_size=8)
    | st.sampled_from(["1h", "a/{x}", "{path}", "closed", "x.py", "0 3 * * *", "10/min", "done"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["start", "stop", "by", "count", "key", "x"]), inner)
    ),
    max_leaves=5,
)
KEYS = st.sampled_from(sorted(set(RuleText.__struct_fields__) | {"kind", "name", "PATH"}))


@given(st.dictionaries(KEYS, VALUES, max_size=5), st.booleans())
def test_any_values_make_a_rule_or_a_bad_rule(data, sound):
    start = {"files": "a/{x}", "run": ["x"]} if sound else {}
    place = SourceSpan("b.py", "", ("rule", "a"), 1)
    written = draft.Draft("a", place, {**start, **data}, "/p", "/nowhere")
    with contextlib.suppress(errors.BadRule):
        if not draft.recipe_of(written):
            built = draft.rule_of(written)
            assert files.load_rule(files.dump(built)) == built


@given(st.data())
def test_any_damage_to_a_book_is_a_bad_rule(data):
    start = data.draw(st.integers(0, len(WHOLE)))
    end = data.draw(st.integers(start, min(len(WHOLE), start + 12)))
    patch = data.draw(st.text(max_size=4) | st.sampled_from(["[", "{", '"', "\n", "=", "0"]))
    with contextlib.suppress(errors.BadRule):
        files.combine([load(WHOLE[:start] + patch + WHOLE[end:])])


@pytest.mark.parametrize(
    "text", ["a = " + "[" * 10_000, "a = " + "9" * 5000, "a = " + "{a=" * 2000, "\0", "\ufeff"]
)
def test_hostile_text(text):
    with contextlib.suppress(errors.BadRule):
        load(text)


def test_states_and_shapes_of_retry_and_limit():
    found = rule(
        'job = ["a", "b*"]\nstates = ["failed", "done"]\nrun = ["x"]\nretry = 4\nlimit = "k"'
    )
    assert found.pattern.states == {State.FAILED, State.DONE}
    assert found.spec.retry == Retry(attempts=4)
    assert found.spec.limit == Limit("k", 1)
