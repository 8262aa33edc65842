"""Dry runs: verdicts and the jobs that would be made."""

from __future__ import annotations

from pilotage.event.model import Event, EventKind
from pilotage.rule import files
from pilotage.rule.dryrun import MOST_SHOWN, PlannedJob, dry_run

TEXT = """
[rule.clean]
files = "raw/{scan}.csv"
run = ["clean", "--level", "{level}", "{path}", "{job}"]
params = { gain = "{level}", out = "{stem}.out" }
sweep = { level = [1, 2] }
outputs = { c = "clean/{scan}.{level}" }
limit = "{dir}"
settle = "2s"

[rule.other]
files = "other/*"
run = ["x"]

[rule.many]
files = "raw/*"
script = '''
echo
'''
args = ["{paths}"]
sweep = { x = { start = 1, stop = 1000 } }
gather = { count = 5 }

[rule.door]
message = "lab.*"
app = "bell"
args = ["{message.who}"]
"""


def run(event):
    rules = files.load_text("b.toml", TEXT, "/p", "/").rules.values()
    return {trial.rule: trial for trial in dry_run(rules, event, 0.0, "/p").trials}


def test_what_a_file_would_start():
    found = run(Event(EventKind.FILE_CLOSED, "/p/raw/s 1.csv", 0.0))
    assert list(found) == ["clean", "many", "other", "door"]
    clean = found["clean"]
    assert clean.count == 2
    assert clean.note == "made when the file has been still for 2 s"
    assert clean.jobs[1] == PlannedJob(
        sweep={"level": 2},
        argv=("clean", "--level", "2", "/p/raw/s 1.csv", "<job>"),
        params={"scan": "s 1", "gain": 2, "out": "s 1.out", "level": 2},
        outputs={"c": "/p/clean/s 1.2"},
        limit="/p/raw",
    )
    assert found["other"].verdict.reasons == (
        "path 'raw/s 1.csv' does not match 'other/*': directory '/p/raw' is not '/p/other'",
    )


def test_long_sweeps_are_counted():
    many = run(Event(EventKind.FILE_CLOSED, "/p/raw/a", 0.0))["many"]
    assert (many.count, len(many.jobs)) == (1000, MOST_SHOWN)
    assert many.jobs[0].argv == ("bash", "<script>", "/p/raw/a")
    assert many.note == "made when all 5 files of the set are there"


def test_what_a_message_would_start():
    door = run(Event(EventKind.MESSAGE, "lab.door", 0.0, data={"who": "Ada"}))["door"]
    assert door.jobs[0].argv == ("bell", "Ada")
    door = run(Event(EventKind.MESSAGE, "lab.door", 0.0, data={"why": "Ada"}))["door"]
    assert door.verdict.fires
    assert door.note == "there is no keyword `{message.who}` here; did you mean `message.why`?"
