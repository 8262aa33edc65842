from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from examples.foam.science import analyse, draw, files, foams, judge, plot, report, segment

LIMITS = {"low": 60, "high": 220}
KINDS = [(kind, seed) for kind in draw.CLASSES for seed in range(2)]


@cache
def drawn(kind: str, seed: int) -> tuple[int, NDArray[np.uint16]]:
    rng = np.random.default_rng(seed)
    low, high = draw.CLASSES[kind]
    bubbles = int(rng.integers(low, high, endpoint=True))
    return bubbles, draw.scan(rng, bubbles)


def walk(folder: Path, name: str, scan: NDArray[np.uint16]) -> None:
    """Take one scan through the steps as the rules would."""
    draw.write(f"{folder}/scans/{name}.png", scan)
    clean, labels = folder / f"judged/{name}.png", f"{folder}/segmented/{name}.labels.png"
    verdict = f"{folder}/judged/{name}.json"
    judge.judge(
        path=f"{folder}/scans/{name}.png", clean=str(clean), verdict=verdict, low=60, high=220
    )
    if clean.exists():
        picture = f"{folder}/segmented/{name}.png"
        segment.segment(path=str(clean), labels=labels, picture=picture, smoothing=2.0)
        table = f"{folder}/analysed/{name}.csv"
        analyse.analyse(path=labels, table=table, picture=f"{folder}/analysed/{name}.svg")


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of one scan of each class."""
    folder = tmp_path_factory.mktemp("foam")
    for kind in draw.CLASSES:
        walk(folder, kind, drawn(kind, 1)[1])
    return folder


@pytest.mark.parametrize("kind,seed", KINDS)
def test_the_judge_counts_bubbles_and_accepts_the_right_scans(kind, seed, tmp_path):
    bubbles, scan = drawn(kind, seed)
    # The name says nothing: only the image can tell.
    draw.write(f"{tmp_path}/a.png", scan)
    clean, verdict = tmp_path / "clean.png", tmp_path / "verdict.json"
    judge.judge(path=f"{tmp_path}/a.png", clean=str(clean), verdict=str(verdict), **LIMITS)
    said = json.loads(verdict.read_text())
    assert said["scan"] == "a.png"
    assert said["bubbles_estimated"] == pytest.approx(bubbles, rel=0.15)
    assert said["accepted"] is clean.exists() is (kind == "right")
    assert f"{said['bubbles_estimated']}" in said["reason"]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("smoothing", [1.0, 2.0, 3.0])
def test_segmentation_finds_the_bubbles_that_were_drawn(seed, smoothing):
    bubbles, scan = drawn("right", seed)
    owner = foams.bubbles(foams.relief(foams.flatten(scan)), smoothing)
    assert owner.max() == pytest.approx(bubbles, rel=0.1)
    assert set(np.unique(owner)) == set(range(1, owner.max() + 1))


def test_bubbles_fill_the_frame_and_have_six_neighbours(done):
    bubbles = analyse.from_csv((done / "analysed/right.csv").read_text())
    side = 512 * draw.PIXEL_UM
    assert sum(bubble.area_um2 for bubble in bubbles) == pytest.approx(side**2)
    assert sum(np.pi / 4 * b.diameter_um**2 for b in bubbles) == pytest.approx(side**2, rel=1e-3)
    inner = [bubble for bubble in bubbles if not bubble.edge]
    assert np.mean([bubble.neighbours for bubble in inner]) == pytest.approx(6.0, abs=0.5)
    assert all(0.0 < bubble.x_um < side and 0.0 < bubble.y_um < side for bubble in bubbles)


def test_measured_sizes_follow_the_law_they_were_drawn_from(done):
    bubbles = analyse.from_csv((done / "analysed/right.csv").read_text())
    law = plot.fit([bubble.diameter_um for bubble in bubbles if not bubble.edge])
    # A diameter goes as the root of the area, so its logarithm spreads half as much.
    assert law.sigma == pytest.approx(draw.SPREAD / 2, rel=0.25)


def test_a_measured_square_is_exact():
    owner = np.ones((40, 40), np.uint16)
    owner[10:20, 10:30] = 2
    outer, inner = analyse.measure(owner, 2.0)
    assert (inner.area_um2, inner.x_um, inner.y_um) == (800.0, 40.0, 30.0)
    assert (inner.neighbours, inner.edge, outer.edge) == (1, 0, 1)


def test_the_same_seed_gives_the_same_bytes(done, tmp_path):
    # Drawn anew, past the cache.
    walk(tmp_path, "right", drawn.__wrapped__("right", 1)[1])
    results = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(results) == 7
    for path in results:
        assert path.read_bytes() == (done / path.relative_to(tmp_path)).read_bytes()


def test_the_pixel_size_travels_to_the_last_step(done):
    for path in ("scans/right.png", "judged/right.png", "segmented/right.labels.png"):
        assert files.read_png(str(done / path)).um == pytest.approx(draw.PIXEL_UM)


def test_labels_without_a_pixel_size_are_refused(tmp_path):
    Image.fromarray(np.ones((8, 8), np.uint16)).save(tmp_path / "labels.png")
    with pytest.raises(analyse.NoScaleError, match="has no pixel size"):
        analyse.analyse(path=f"{tmp_path}/labels.png", table="unused", picture="unused")


def test_a_blank_scan_is_turned_away_with_a_reason(tmp_path):
    draw.write(f"{tmp_path}/a.png", np.full((64, 64), 9_000, np.uint16))
    verdict = tmp_path / "verdict.json"
    judge.judge(path=f"{tmp_path}/a.png", clean="unused", verdict=str(verdict), **LIMITS)
    said = json.loads(verdict.read_text())
    assert (said["accepted"], said["bubbles_estimated"]) == (False, 0)
    assert "no walls" in said["reason"]


def test_the_report_shows_every_scan_and_needs_no_other_file(done, tmp_path):
    page = tmp_path / "report.html"
    folders = {name: str(done / name) for name in ("judged", "segmented", "analysed", "scans")}
    report.report(**folders, page=str(page))
    text = page.read_text()
    assert "1 of 3 scans had the right number" in text
    assert all(f"<td>{kind}</td>" in text for kind in draw.CLASSES)
    assert text.count("data:image/jpeg;base64,") == 4
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_report_can_be_made_before_the_work_is_done(done, tmp_path):
    page = tmp_path / "report.html"
    empty = str(tmp_path)
    report.report(judged=str(done / "judged"), segmented=empty, analysed=empty, page=str(page))
    assert "1 of them is still at work" in page.read_text()
    report.report(judged=empty, segmented=empty, analysed=empty, page=str(page))
    assert "0 of 0 scans" in page.read_text()


def test_files_appear_whole_and_nothing_hidden_stays(done, tmp_path, monkeypatch):
    assert not [path for path in done.rglob(".*") if path.is_file()]

    def fail(self: Path, target: Path) -> Path:
        assert self.name.startswith(".")
        assert self.parent == target.parent
        raise OSError

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError):  # noqa: PT011
        files.publish_text(f"{tmp_path}/a.txt", "text")
    assert not list(tmp_path.iterdir())
