"""Whether the input is still what it was when the rule matched it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pilotage.event import content
from pilotage.event.model import FileVersion
from pilotage.job.model import Binding
from pilotage.run import launch


@pytest.fixture
def file(tmp_path) -> Path:
    made = Path(tmp_path, "a.csv")
    made.write_text("1")
    return made


def bound(file: Path, *, sha256: bool = False) -> Binding:
    found = file.stat()
    version = str(FileVersion(found.st_ino, found.st_size, found.st_mtime_ns))
    digest = content.sha256(str(file)) if sha256 else ""
    return Binding(path=str(file), version=version, sha256=digest or "")


def touch(file: Path) -> None:
    os.utime(file, ns=(1, 1))


@pytest.mark.parametrize("on_change", ["cancel", "latest", "ignore"])
def test_an_input_as_it_was_is_no_objection(file, on_change):
    assert launch.objection(bound(file), on_change) == ""


@pytest.mark.parametrize("on_change, fine", [("cancel", False), ("latest", True), ("ignore", True)])
def test_what_a_changed_input_means_is_the_rules_own_choice(file, on_change, fine):
    binding = bound(file)
    file.write_text("22")
    said = launch.objection(binding, on_change)
    assert said == ("" if fine else f"its input {file} has changed since the rule matched it")


@pytest.mark.parametrize(
    "on_change, fine", [("cancel", False), ("latest", False), ("ignore", True)]
)
def test_what_a_vanished_input_means_is_too(file, on_change, fine):
    binding = bound(file)
    file.unlink()
    assert launch.objection(binding, on_change) == ("" if fine else f"its input {file} is gone")


def test_the_same_content_under_a_new_time_is_the_same_where_it_was_hashed(file):
    plain, hashed = bound(file), bound(file, sha256=True)
    touch(file)
    assert launch.objection(plain, "cancel") != ""
    assert launch.objection(hashed, "cancel") == ""
    file.write_text("2")
    assert launch.objection(hashed, "cancel") != ""


def test_a_version_that_is_the_content_is_compared_as_content(file):
    digest = content.sha256(str(file))
    assert digest is not None
    binding = Binding(path=str(file), version=f"sha256-{digest}", sha256=digest)
    touch(file)
    assert launch.objection(binding, "cancel") == ""


def test_another_file_under_the_same_name_has_changed(file, tmp_path):
    binding = bound(file)
    other = tmp_path / "other"
    other.write_text("1")
    os.utime(other, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns))
    other.rename(file)
    assert "has changed" in launch.objection(binding, "cancel")


def test_what_has_no_input_or_no_version_has_nothing_to_compare(file):
    assert launch.objection(Binding(), "cancel") == ""
    assert launch.objection(Binding(path="/gone"), "cancel") == ""


def test_a_name_that_is_not_text_can_be_told(tmp_path):
    binding = Binding(path=f"{tmp_path}/\udcff", version="1-2-3")
    assert launch.objection(binding, "cancel") == f"its input {tmp_path}/\\xff is gone"
