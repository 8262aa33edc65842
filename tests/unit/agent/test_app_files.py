"""Files of applications: closed and checked; programs of theirs that can be trusted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pilotage.agent.app import files
from pilotage.agent.app.model import Application, AppLimits, Config, Parameter, Staging
from pilotage.base import errors

PIN = "0" * 64
FILE = f"""\
version = "2.1"
executable = "/opt/sim/bin/sim"
sha256 = "{PIN}"
argv = [
    "--events", "{{events}}",
    ["--seed", "{{seed}}"],
    "{{fast}}",
]
launcher = "srun"
env_allow = ["OMP_NUM_THREADS"]
preprocess = ["/opt/sim/bin/pre", "{{events}}"]

[pins]
"/opt/sim/bin/pre" = "{PIN}"
"/opt/sim/bin/parse" = "{PIN}"

[parameter.events]
kind = "integer"
minimum = 1
maximum = 1_000_000

[parameter.seed]
kind = "integer"
required = false

[parameter.fast]
kind = "flag"
flag = "--fast"

[config]
format = "json"
program = ["/opt/sim/bin/parse", "{{file}}"]

[limits]
queues = ["batch"]
nodes = 128

[user."CN=alice,O=atlas"]
nodes = 512

[staging]
hosts = ["*.example.org"]
"""


def parse(source: str) -> Application:
    return files.parse(source, "sim", Path("sim.toml"))


def test_a_file_is_an_application():
    app = parse(FILE)
    assert app.argv == ("--events", "{events}", ("--seed", "{seed}"), "{fast}")
    assert app.limits_of("bob").nodes == 128
    assert app.limits_of("CN=alice,O=atlas") == AppLimits(queues=("batch",), nodes=512)
    assert set(app.programs()) == {"/opt/sim/bin/sim", "/opt/sim/bin/pre", "/opt/sim/bin/parse"}


@pytest.mark.parametrize(
    "old, new, line, word",
    [
        ("launcher =", "starter =", 9, "starter"),
        ('launcher = "srun"', 'launcher = "ssh"', 9, "launcher"),
        ('"/opt/sim/bin/sim"', '"sim"', 2, "executable"),
        ('"/opt/sim/bin/sim"', '"/opt/../bin/sim"', 2, "executable"),
        (f'sha256 = "{PIN}"', 'sha256 = "12"', 3, "sha256"),
        (f'sha256 = "{PIN}"', 'sha256 = "12"', 3, "pinned"),
        ('"{fast}",', '"{slow}",', 4, "slow"),
        ('"{fast}",', '"--{fast}",', 4, "argument of its own"),
        ('"{fast}",', '"{fast",', 4, "argv"),
        ('"{fast}",', '"{fast}", "{*}",', 4, "words"),
        ("OMP_NUM_THREADS", "LD_PRELOAD", 10, "env_allow"),
        ("OMP_NUM_THREADS", "PATH", 10, "env_allow"),
        ("OMP_NUM_THREADS", "LSF_ENVDIR", 10, "env_allow"),
        ("minimum = 1\n", "minimum = 2_000_000\n", 19, "minimum"),
        ('kind = "integer"\nminimum', 'kind = "text"\nminimum', 17, "pattern"),
        ('flag = "--fast"', "", 26, "flag"),
        ('kind = "flag"', 'kind = "file"', 27, "kind"),
        ("required = false", 'default = "x"', 24, "default"),
        ("required = false", "defualt = 1", 24, "defualt"),
        ("nodes = 128", "nodes = 0", 36, "nodes"),
        ("nodes = 512", "nodes = 0", 39, "nodes"),
        ("nodes = 512", 'nodes = "512"', 39, "nodes"),
        ("nodes = 512", "node = 512", 39, "node"),
        ('"{file}"', '"file"', 32, "program"),
        ('hosts = ["*.example.org"]', 'private = ["10.0.0.1/8"]', 42, "private"),
        ('hosts = ["*.example.org"]', 'protocols = ["file"]', None, "roots"),
    ],
)
def test_a_mistake_is_told_with_its_line(old: str, new: str, line: int | None, word: str):
    source = FILE.replace(old, new, 1)
    assert source != FILE
    with pytest.raises(errors.ConfigError) as caught:
        parse(source)
    assert word in str(caught.value)
    if line:
        found = str(caught.value).split(":")[1]
        assert found.isdigit(), str(caught.value)
        assert int(found) == line, str(caught.value)


def test_syntax_and_encoding_are_told(tmp_path: Path):
    with pytest.raises(errors.ConfigError, match=r"sim\.toml"):
        parse("a = [")
    (tmp_path / "apps").mkdir()
    (tmp_path / "apps/odd.toml").write_bytes(b"\xff")
    with pytest.raises(errors.ConfigError, match=r"odd\.toml"):
        files.read(tmp_path, "odd")
    for name in ("sim", "../x", "a/b"):
        with pytest.raises(errors.NotFound, match="no application"):
            files.read(tmp_path, name)


FULL = Application(
    executable="/bin/true", sha256=PIN, version="3", about='says "hi"', enabled=False,
    argv=("a b", ("--x", "{x}"), "{*}"), launcher="mpirun", launcher_words=("--oversubscribe",),
    env_allow=("OMP_NUM_THREADS",), env={"A": "1"}, container="docker://x",
    preprocess=("/bin/pre",), postprocess=("/bin/post", "{x}"),
    pins={"/bin/pre": PIN, "/bin/post": PIN, "/bin/parse": PIN}, users=("CN=*",),
    parameter={
        "x": Parameter(kind="text", pattern=r"\w+", default="y", about="what"),
        "n": Parameter(kind="number", minimum=-1.5, maximum=2),
    },
    config=Config(
        format="words", program=("/bin/parse", "{file}"), time="5s",
        word=Parameter(kind="text", pattern=".*", dash=True),
    ),
    limits=AppLimits(queues=("a",), options=("--exclusive",)),
    user={"CN=alice, O=x": {"nodes": 5}},
    staging=Staging(hosts=("h",), protocols=("file",), roots=("/data",), private=("10.0.0.0/8",)),
)  # fmt: skip


@pytest.mark.parametrize(
    "app", [FULL, Application(executable="/bin/true", sha256=PIN), parse(FILE)]
)
def test_what_is_written_is_read(app: Application, tmp_path: Path):
    file = files.write(tmp_path, "sim", app)
    assert files.read(tmp_path, "sim") == app
    assert file.stat().st_mode & 0o022 == 0
    assert files.names(tmp_path) == ["sim"]
    with pytest.raises(errors.Conflict):
        files.write(tmp_path, "sim", app)


@pytest.mark.parametrize("source", [FILE, "enabled = true # for now\n" + FILE])
def test_an_application_is_switched_off_and_on(source: str, tmp_path: Path):
    (tmp_path / "apps").mkdir()
    file = tmp_path / "apps/sim.toml"
    file.write_text(source)
    files.switch(tmp_path, "sim", enabled=False)
    assert not files.read(tmp_path, "sim").enabled
    assert ("# for now" in file.read_text()) == ("# for now" in source)
    files.switch(tmp_path, "sim", enabled=True)
    assert files.read(tmp_path, "sim").enabled
    assert len(list(file.parent.iterdir())) == 1


def test_names_and_parameters_are_plain():
    for name in ("", "a/b", "-x", "a b", "../x", "a" * 200):
        with pytest.raises(errors.ConfigError, match="name"):
            files.check(name, FULL)
    for name in ("job", "a-b", "9", "a b", "nodes"):
        bad = Application(executable="/x", sha256=PIN, parameter={name: Parameter(kind="integer")})
        with pytest.raises(errors.ConfigError, match="parameter"):
            files.check("sim", bad)


# -- programs ------------------------------------------------------------------------------------


@pytest.fixture
def program(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir(mode=0o755)
    file = folder / "sim"
    file.write_text("#!/bin/sh\necho hi\n")
    file.chmod(0o755)
    return file


def app_of(file: Path) -> Application:
    return Application(executable=str(file), sha256=files.digest(str(file)))


def why(file: Path, app: Application) -> str:
    (reason,) = files.Trust().reasons(app)
    return reason


def test_a_program_that_is_as_it_was_is_trusted(program: Path):
    assert files.Trust().reasons(app_of(program)) == []


def test_a_program_that_changed_is_not(program: Path):
    app, known = app_of(program), files.Trust()
    known.require(app)
    facts = program.stat()
    program.write_text("#!/bin/sh\necho ho\n")
    os.utime(program, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    with pytest.raises(errors.Denied, match="SHA-256"):
        known.require(app)


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_program_that_others_can_write_is_not(program: Path, mode: int):
    app = app_of(program)
    program.chmod(mode)
    assert "written by others" in why(program, app)


@pytest.mark.parametrize("mode", [0o775, 0o777])
def test_a_folder_that_others_can_write_is_not(program: Path, mode: int):
    app = app_of(program)
    program.parent.chmod(mode)
    assert str(program.parent) in why(program, app)
    program.parent.chmod(0o1777)
    assert files.Trust().reasons(app) == []


def test_a_link_is_trusted_only_if_all_it_leads_through_is(program: Path, tmp_path: Path):
    app = app_of(program)
    loose = tmp_path / "loose"
    loose.mkdir()
    (loose / "sim").symlink_to(program)
    (tmp_path / "link").symlink_to("loose/sim")
    linked = Application(executable=str(tmp_path / "link"), sha256=app.sha256)
    assert files.Trust().reasons(linked) == []
    loose.chmod(0o777)
    assert str(loose) in why(program, linked)
    (tmp_path / "ring").symlink_to("ring")
    ring = Application(executable=str(tmp_path / "ring"), sha256=app.sha256)
    assert "nowhere" in why(program, ring)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_program_of_somebody_else_is_not(program: Path):
    app = app_of(program)
    os.chown(program, 12345, 12345)
    assert "12345" in why(program, app)


def test_what_is_no_program_is_not(program: Path):
    app = app_of(program)
    program.chmod(0o644)
    assert "not a program" in why(program, app)
    program.unlink()
    assert "No such file" in why(program, app)


def test_every_program_of_an_application_is_looked_at(program: Path):
    other = program.with_name("pre")
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    app = Application(
        executable=str(program), sha256=files.digest(str(program)),
        preprocess=(str(other),), pins={str(other): PIN},
    )  # fmt: skip
    assert str(other) in why(other, app)
