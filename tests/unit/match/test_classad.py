"""Requirements of HTCondor's users, read as ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.match.expr import classad, parse


@pytest.mark.parametrize(
    "theirs, ours",
    [
        (
            'TARGET.Cpus >= 4 && (OpSys == "LINUX") && Memory >= 2048',
            "cpus >= 4 and os == 'linux' and memory >= 2048MiB",
        ),
        ("TARGET.Memory >= RequestMemory", "memory >= job.memory"),
        ("(TARGET.Disk >= MY.RequestDisk)", "disk >= job.disk"),
        ("Disk > 1000", "disk > 1000KiB"),
        ("1000 < target.disk", "1000KiB < disk"),
        ("Memory * 2 > 100", "memory / 1MiB * 2 > 100"),
        ('GLIDEIN_Site == "KIT"', "lower(site) == 'kit'"),
        ('GLIDEIN_Site =?= "KIT"', 'site is "KIT"'),
        ("HasSingularity =!= UNDEFINED", "HasSingularity is not undefined"),
        ("HasFileTransfer isnt TRUE || !FALSE", "HasFileTransfer is not true or not false"),
        ("isUndefined(CUDAVersion)", "not defined(CUDAVersion)"),
        ('ifThenElse(Arch == "X86_64", 1, 2)', "if(arch == 'x86_64', 1, 2)"),
        ('toLower(Machine) == "a.b"', "lower(host) == 'a.b'"),
    ],
)
def test_a_requirement_is_translated(theirs, ours):
    assert classad.translate(theirs) == ours
    parse(ours)


def test_a_translated_requirement_means_the_same():
    expr = parse(classad.translate('Memory >= 2048 && OpSys == "LINUX" && Site == "Kit"'))
    assert expr.holds({"memory": 2**31, "os": "linux", "Site": "KIT"}, {})
    assert not expr.holds({"memory": 2**31 - 1, "os": "linux", "Site": "KIT"}, {})


def test_the_page_of_expressions_shows_what_comes_out():
    page = (Path(__file__).parents[3] / "docs/reference/expressions.md").read_text()
    rows = re.findall(r"^\| `(.*)` \| `(.*)` \|$", page[page.index("ClassAd |") :], re.MULTILINE)
    assert len(rows) == 4
    for theirs, ours in rows:
        assert classad.translate(theirs) == ours


@pytest.mark.parametrize(
    "theirs, words",
    [
        ('regexp("^node", Machine)', "`regexp` has no like"),
        ('stringListMember("a", Tags)', "`stringListMember` has no like"),
        ("Cpus > 1 ? 2 : 3", "`?` has no like"),
        ("MY.ImageSize > 3", "`ImageSize` has no like"),
        ("{1, 2}", "means nothing"),
        ("", "empty"),
        ('"open', "means nothing"),
    ],
)
def test_what_is_not_covered_is_said(theirs, words):
    with pytest.raises(errors.BadRule, match=words.replace("?", r"\?")):
        classad.translate(theirs)
