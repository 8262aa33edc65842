from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilotage.batch.system import lsf
from pilotage.batch.system.model import BatchError
from pilotage.testing.batch.words import KEY, ORDER
from tests.replay.tools import Tools, recorded


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    made = Tools(tmp_path)
    # Without the time, which is the adapter's.
    listing = recorded("lsf", "jobs.txt").partition("\n")[2]
    made.put("bjobs", f"cat <<'E'\n{listing}\nE")
    return made


def test_an_array(tools: Tools):
    tools.put("bsub", "cat; echo 'Job <12> is submitted to queue <normal>.'")
    order = msgspec.structs.replace(ORDER, count=3)
    said = tools.run(lsf.TOOLS.submit(order))
    assert lsf.TOOLS.submitted(said) == "12"
    assert ORDER.script in said.out
    assert f"{KEY}[1-3]" in tools.calls("bsub")[0]


def test_a_listing(tools: Tools):
    said = tools.run(lsf.TOOLS.listing())
    assert said.exit == 0
    assert len(lsf.TOOLS.listed(said)) == 15
    (words,) = tools.calls("bjobs")
    assert words[:2] == ["-a", "-o"]
    assert words[-1] == "-json"


@pytest.mark.parametrize("code", [0, 255])
@pytest.mark.parametrize("words", ["No job found", "No unfinished job found"])
def test_no_job_is_no_failure(tools: Tools, code: int, words: str):
    tools.put("bjobs", f"echo '{words}' >&2; exit {code}")
    assert lsf.TOOLS.listed(tools.run(lsf.TOOLS.listing())) == []


@pytest.mark.parametrize("body", ["exit 0", "echo 'LSF is down' >&2; exit 255"])
def test_silence_is_no_listing(tools: Tools, body: str):
    tools.put("bjobs", body)
    with pytest.raises(BatchError):
        lsf.TOOLS.listed(tools.run(lsf.TOOLS.listing()))


def test_a_word_beside_a_listing_does_no_harm(tools: Tools):
    tools.put("bjobs", "echo 'Cannot connect to LSF. Please wait ...' >&2\n"
              "echo '{\"COMMAND\":\"bjobs\",\"JOBS\":0,\"RECORDS\":[]}'")  # fmt: skip
    assert lsf.TOOLS.listed(tools.run(lsf.TOOLS.listing())) == []


@pytest.mark.parametrize(
    "words, code",
    [
        ("Job <12>: Job has already finished", 0),
        ("Job <12>: No matching job found", 0),
        ("User permission denied", 255),
    ],
)
def test_what_is_over_is_called_off_in_peace(tools: Tools, words: str, code: int):
    tools.put("bkill", f"echo '{words}' >&2; exit 255")
    assert tools.run(lsf.TOOLS.cancel(["12", "13[4]"])).exit == code
    assert tools.calls("bkill") == [["12", "13[4]"]]


def test_the_version(tools: Tools):
    tools.put("bsub", "echo 'IBM Spectrum LSF Standard 10.1.0.14' >&2")
    assert "10.1" in tools.run(lsf.TOOLS.version()).out
