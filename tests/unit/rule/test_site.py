"""Rules that name a site: what can be written, and what is said of mistakes."""

from __future__ import annotations

import textwrap

import pytest

from pilotage.base import errors
from pilotage.job.model import Allocation, Command, Script
from pilotage.rule import files

WHOLE = """\
[rule.reduce]
files = "raw/{scan}.h5"
site = "cluster"
run = "sbatch"
script = '''
reduce "$PILOTAGE_PATH"
'''
inputs = ["calibration/*.dat", "maps/{match.scan}.map"]
outputs = {result = "reduced/{stem}.h5"}
data = "mounted"
image = "file:images/reduce.tar"
cpus = 8

[rule.reduce.slurm]
partition = "short"
account = "beam42"
qos = "high"
constraint = "gpu&fast"
reservation = "week12"
nodes = 2
tasks = 16
launcher = "srun"
extra = ["--exclusive"]
"""


def load(text):
    return files.load_text("b.toml", textwrap.dedent(text), "/p", "/nowhere")


def rule(more):
    text = f'[rule.a]\nfiles = "raw/*"\n{textwrap.dedent(more)}'
    return load(text).rules["a"]


def test_all_that_a_rule_can_say_of_a_site():
    spec = load(WHOLE).rules["reduce"].spec
    assert (spec.site, spec.via, spec.data) == ("cluster", "batch", "mounted")
    assert spec.recipe == Script(source='reduce "$PILOTAGE_PATH"\n')
    assert spec.inputs == ("calibration/*.dat", "maps/{match.scan}.map")
    assert spec.image == "file:images/reduce.tar"
    assert spec.allocation == Allocation(
        nodes=2, tasks=16, queue="short", account="beam42", qos="high", constraint="gpu&fast",
        reservation="week12", extra=("--exclusive",), launcher="srun",
    )  # fmt: skip


@pytest.mark.parametrize(
    "written,via",
    [("sbatch", "batch"), ("batch", "batch"), ("srun", "srun"), ("direct", "direct")],
)
def test_how_it_runs_there_is_said_by_either_key(written, via):
    by_run = rule(f'site = "x"\nrun = "{written}"\nscript = """\ntrue\n"""')
    by_via = rule(f'site = "x"\nvia = "{written}"\nrun = ["true"]')
    assert (by_run.spec.via, by_via.spec.via) == (via, via)
    assert by_via.spec.recipe == Command(("true",))


def test_a_site_alone_leaves_the_way_open():
    spec = rule('site = "x"\nrun = ["true"]').spec
    assert (spec.site, spec.via, spec.data, spec.allocation) == ("x", "", "staged", Allocation())


def test_batch_and_slurm_are_one_table():
    one = rule('site = "x"\nrun = ["true"]\nbatch = {queue = "q", nodes = 3}')
    other = rule('site = "x"\nrun = ["true"]\nslurm = {partition = "q", nodes = 3}')
    assert one.spec.allocation == other.spec.allocation == Allocation(queue="q", nodes=3)


def test_a_recipe_may_say_it_for_its_rules():
    found = load("""\
        [recipe.far]
        site = "x"
        run = "srun"
        script = '''
        true
        '''
        slurm = {partition = "q"}

        [rule.a]
        files = "raw/*"
        recipe = "far"
        """)
    spec = files.combine([found])["a"].spec
    assert (spec.site, spec.via, spec.allocation.queue) == ("x", "srun", "q")


@pytest.mark.parametrize(
    "more,line,words",
    [
        ('run = "sbatch"\nscript = """\ntrue\n"""', 1, "goes with `site`"),
        ('run = ["true"]\nvia = "sbatch"', 4, "goes with `site`"),
        ('run = ["true"]\ndata = "mounted"', 4, "goes with `site`"),
        ('run = ["true"]\n[rule.a.slurm]\nnodes = 2', 4, "goes with `site`"),
        ('site = "x"\nrun = ["true"]\nvia = "qsub"', 5, "sbatch"),
        ('site = "x"\nrun = ["true"]\ndata = "copied"', 5, "mounted"),
        ('site = "x y"\nrun = ["true"]', 3, "cannot be the name of a site"),
        ('site = 4\nrun = ["true"]', 3, "site"),
        ('site = "x"\nrun = ["true"]\n[rule.a.slurm]\nnodes = 0', 5, "at least one node"),
        ('site = "x"\nrun = ["true"]\n[rule.a.slurm]\nnode = 2', 6, "node"),
        ('site = "x"\nrun = ["true"]\n[rule.a.batch]\nlauncher = "orted"', 6, "mpirun"),
        ('site = "x"\nrun = ["true"]\n[rule.a.batch]\nqueue = "a b"', 5, "not one word"),
        ('site = "x"\nrun = ["true"]\n[rule.a.batch]\nextra = ["exclusive"]', 5, "no option"),
        ('site = "x"\nrun = ["true"]\nbatch = {nodes = 2}\nslurm = {nodes = 3}', 6, "already"),
        ('site = "x"\nrun = ["true"]\ninputs = ["{nothing}/*"]', 5, "nothing"),
        ('site = "x"\nrun = ["true"]\nimage = "file:../up.tar"', 5, "image"),
        ('site = "x"\nrun = "sbatch"', 1, ""),
    ],
)
def test_a_mistake_is_told_with_its_line(more, line, words):
    with pytest.raises(errors.BadRule) as caught:
        rule(more)
    told = f"{caught.value} {caught.value.hint}"
    assert told.startswith(f"b.toml:{line}: rule.a"), told
    assert words in told


PYTHON = """\
from pilotage.book import rule


@rule(
    files="raw/*.dat",
    site="cluster",
    via="srun",
    slurm={"partition": "short", "nodes": 2},
    inputs=["maps/*.map"],
    data="mounted",
)
def look(path):
    return path
"""


def python(folder, text):
    file = folder / "b.py"
    file.write_text(text)
    return files.load(file, str(folder))


def test_a_book_in_python_says_the_same(tmp_path):
    spec = python(tmp_path, PYTHON).rules["look"].spec
    assert (spec.site, spec.via, spec.data) == ("cluster", "srun", "mounted")
    assert spec.allocation == Allocation(queue="short", nodes=2)
    assert spec.inputs == ("maps/*.map",)


@pytest.mark.parametrize(
    "before,after,words",
    [
        ('    site="cluster",\n', "", "goes with `site`"),
        ('"nodes": 2', '"node": 2', "node"),
        ('via="srun"', 'via="qsub"', "sbatch"),
        ('data="mounted"', 'data="copied"', "staged"),
    ],
)
def test_a_mistake_in_python_is_told_with_its_line(tmp_path, before, after, words):
    assert before in PYTHON
    with pytest.raises(errors.BadRule) as caught:
        python(tmp_path, PYTHON.replace(before, after))
    told = f"{caught.value} {caught.value.hint}"
    assert f"b.py:{caught.value.line}: " in told
    assert caught.value.line in (4, 11, 12)
    assert words in told
