from __future__ import annotations

import pytest

from pilotage import errors
from pilotage.site.batch import known
from pilotage.site.model import BATCH


@pytest.mark.parametrize("name", BATCH)
def test_every_batch_system_of_a_site_has_an_adapter(name: str):
    assert known.adapter(name, program=("python3", "x.pyz"), folder="/q").name == name


def test_others_have_none():
    with pytest.raises(errors.ConfigError, match="abacus"):
        known.adapter("abacus", program=(), folder="")
