"""Files of sites: written with what differs, read with the place of mistakes."""

from __future__ import annotations

import tomllib

import pytest

from pilotage.base import errors
from pilotage.batch import files
from pilotage.batch.model import Defaults, SiteSettings


def test_what_is_written_is_read_again(tmp_path):
    site = SiteSettings(
        batch="slurm", host="me@login", folder="/scratch/me", path=("/opt/slurm/bin",),
        env={"SLURM_CONF": "/etc/slurm.conf", "odd name": 'a "b"'}, per_second=2.5,
        defaults=Defaults(queue="long", time="2h"),
    )  # fmt: skip
    file = files.write(tmp_path, "kit", site)
    assert file == tmp_path / "sites" / "kit.toml"
    assert files.read(tmp_path, "kit") == site
    assert files.read_all(tmp_path) == {"kit": site}


def test_only_what_differs_is_written_with_a_word_on_it():
    text = files.text("kit", SiteSettings(batch="pbs", host="login"))
    assert tomllib.loads(text) == {"batch": "pbs", "host": "login"}
    assert "# The host to log in to" in text
    assert "pilotage site check kit" in text


def test_a_site_is_not_written_over(tmp_path):
    files.write(tmp_path, "kit", SiteSettings(batch="slurm"))
    with pytest.raises(errors.Conflict):
        files.write(tmp_path, "kit", SiteSettings(batch="pbs"))
    assert files.read(tmp_path, "kit").batch == "slurm"


@pytest.mark.parametrize(
    "source,line,words",
    [
        ('batch = "slurm"\nhots = "x"\n', 2, "hots"),
        ('batch = "sulrm"\n', 1, "there is none"),
        ('batch = "slurm"\njobs = "many"\n', 2, "int"),
        ('batch = "slurm"\n\n[defaults]\nque = "a"\n', 4, "que"),
        ('batch = "slurm"\nallow = ["--wrap=x"]\n', 2, "allow"),
    ],
)
def test_a_mistake_is_told_with_its_line(tmp_path, source, line, words):
    file = files.file_of(tmp_path, "kit")
    file.parent.mkdir()
    file.write_text(source)
    with pytest.raises(errors.ConfigError, match=words) as caught:
        files.read(tmp_path, "kit")
    assert f"{file}:{line}:" in str(caught.value)


@pytest.mark.parametrize("source", ['batch = "slurm\n', "batch = 1 2"])
def test_a_mistake_of_syntax_is_told(tmp_path, source):
    file = files.file_of(tmp_path, "kit")
    file.parent.mkdir()
    file.write_text(source)
    with pytest.raises(errors.ConfigError, match=r"kit\.toml"):
        files.read(tmp_path, "kit")


def test_a_site_that_is_not_there_is_told_with_those_that_are(tmp_path):
    files.write(tmp_path, "kit", SiteSettings(batch="slurm"))
    with pytest.raises(errors.NotFound) as caught:
        files.read(tmp_path, "kti")
    assert "kit" in caught.value.hint


@pytest.mark.parametrize("name", ["local", "-x", "a b", "../up", ""])
def test_names_that_cannot_be(tmp_path, name):
    with pytest.raises(errors.ConfigError):
        files.write(tmp_path, name, SiteSettings(batch="slurm"))
