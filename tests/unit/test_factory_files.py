"""Files of hubs: what they may say, what a hub may ask for, and who may read the token."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.batch.wish import Wish
from pilotage.edge.factory import files

GOOD = """
url = "https://127.0.0.1:8420"
token_file = "lab.token"
maximum = 64
[sites]
grid = "batch"
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("hubs", "sites"):
        (tmp_path / name).mkdir()
    (tmp_path / "sites" / "batch.toml").write_text('batch = "local"\n')
    token = tmp_path / "hubs" / "lab.token"
    token.write_text("pil_f_secret\n")
    token.chmod(0o600)
    (tmp_path / "hubs" / "lab.toml").write_text(GOOD)
    return tmp_path


def read(text: str) -> files.Hub:
    return files.parse(text, "lab", Path("lab.toml"))


def test_a_good_file_is_read(root: Path):
    known = files.load(root, "lab")
    assert (known.token, known.way.port, known.vouch) == ("pil_f_secret", 8420, "")
    assert (known.hub.pending, known.hub.sites) == (10, {"grid": "batch"})
    assert files.names(root) == ["lab"]


def test_a_change_of_the_token_or_of_the_certificate_counts_as_well(root: Path):
    token, ca, file = (root / "hubs" / one for one in ("lab.token", "lab.pem", "lab.toml"))
    marks = [files.mark(root, "none"), files.mark(root, "lab")]
    token.chmod(0o644)
    marks.append(files.mark(root, "lab"))
    token.write_text("pil_f_another\n")
    marks.append(files.mark(root, "lab"))
    file.write_text('ca = "lab.pem"\n' + GOOD)
    marks.append(files.mark(root, "lab"))
    ca.write_text("x")
    marks.append(files.mark(root, "lab"))
    file.write_text("= no TOML")
    marks.append(files.mark(root, "lab"))
    assert len(set(marks)) == len(marks)
    assert files.mark(root, "lab") == marks[-1]


def test_two_files_for_one_hub_are_two_factories_to_it(root: Path):
    # So it refuses the second, as it would that of anybody else, and no pilot is started twice.
    one, two = (files.identity(root, name) for name in ("lab", "lab2"))
    assert one != two
    assert one == files.identity(root, "lab")
    assert re.fullmatch("[0-9a-f]{12}", one)


def test_a_file_that_cannot_be_read_is_a_mistake_in_it(root: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    with pytest.raises(errors.ConfigError, match="Permission denied"):
        files.read(root, "lab")


@pytest.mark.parametrize(
    "text,words",
    [
        ("url = ", "TOML"),
        ("maxmum = 1\n" + GOOD, "lab.toml:1.*unknown field `maxmum`"),
        (GOOD.replace("64", "0"), "lab.toml:4: `maximum` cannot be 0"),
        (GOOD.replace("64", "99999"), "`maximum` cannot be 99999"),
        (GOOD.replace("[sites]", "pending = 0\n[sites]"), "`pending` cannot be 0"),
        (GOOD.replace('grid = "batch"', ""), "`sites` cannot be like this"),
        (GOOD.replace("grid =", '"a b" ='), "`sites` cannot be like this"),
        (GOOD.replace("[sites]", 'interval = "0s"\n[sites]'), "`interval` cannot be 0s"),
        (GOOD.replace("[sites]", 'time = "soon"\n[sites]'), "soon"),
        (GOOD.replace("maximum = 64", ""), "maximum"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, words: str):
    with pytest.raises(errors.ConfigError, match=words) as caught:
        read(text)
    assert caught.value.hint


@pytest.mark.parametrize("name", ["1lab", "a b", "x" * 41])
def test_names_are_words(name: str):
    with pytest.raises(errors.ConfigError, match="cannot be the name"):
        files.parse(GOOD, name, Path("lab.toml"))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_a_token_that_others_may_read_is_refused(root: Path, mode: int):
    (root / "hubs" / "lab.token").chmod(mode)
    with pytest.raises(errors.ConfigError, match="others may read") as caught:
        files.load(root, "lab")
    assert "chmod 600" in caught.value.hint


def change(root: Path, old: str, new: str) -> None:
    (root / "hubs" / "lab.toml").write_text(GOOD.replace(old, new))


def test_what_cannot_be_used_is_refused(root: Path):
    change(root, "https://127.0.0.1", "http://hub.example.org")
    with pytest.raises(errors.ConfigError, match="not encrypted"):
        files.load(root, "lab")
    change(root, '"batch"', '"nowhere"')
    with pytest.raises(errors.NotFound, match="no site `nowhere`"):
        files.load(root, "lab")
    change(root, "maximum", 'ca = "none.pem"\nmaximum')
    with pytest.raises(errors.ConfigError, match="cannot use the certificate"):
        files.load(root, "lab")
    change(root, "", "")
    (root / "sites" / "batch.toml").write_text('batch = "factory"\n')
    with pytest.raises(errors.ConfigError, match="cannot reach"):
        files.load(root, "lab")
    (root / "hubs" / "lab.token").write_text("")
    (root / "sites" / "batch.toml").write_text('batch = "local"\n')
    with pytest.raises(errors.ConfigError, match="there is no token"):
        files.load(root, "lab")


LIMITED = read(
    GOOD.replace(
        "[sites]",
        'cpus = 8\nmemory = "16G"\ngpus = 1\ntime = "1h"\nqueues = ["long"]\n'
        'accounts = ["beam"]\n[sites]',
    )
)


@pytest.mark.parametrize(
    "wish",
    [
        Wish(),
        Wish(cpus=8, memory=16 * 10**9, gpus=1, time=3600.0, queue="long", account="beam"),
        Wish(idle=60.0),
    ],
)
def test_what_is_within_the_limits_of_a_hub_is_started(wish: Wish):
    assert LIMITED.objection(wish) == ""


@pytest.mark.parametrize(
    "wish",
    [
        Wish(cpus=9), Wish(cpus=0), Wish(cpus=-1), Wish(memory=10**12), Wish(memory=-5),
        Wish(gpus=2), Wish(gpus=-1), Wish(time=3601.0), Wish(time=float("nan")), Wish(time=-1.0),
        Wish(queue="short"), Wish(account="other"), Wish(idle=-1.0), Wish(idle=float("nan")),
    ],
)  # fmt: skip
def test_what_is_beyond_is_refused_with_words(wish: Wish):
    assert "factory" in LIMITED.objection(wish) or "idle" in LIMITED.objection(wish)


def test_no_pilot_is_larger_than_all_that_a_hub_has():
    assert "64 cores" in read(GOOD.replace("[sites]", "cpus = 100\n[sites]")).objection(
        Wish(cpus=65)
    )
