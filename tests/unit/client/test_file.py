"""Names of files in calls, as callers may write them."""

from __future__ import annotations

from typing import Any

import pytest

import pilotage
from pilotage.base import errors
from pilotage.client.options import Options, change


@pytest.mark.parametrize("path", [3, None, b"a.csv", pilotage.File("a.csv")])
def test_what_is_no_name_is_refused_with_a_hint(path: Any):
    with pytest.raises(errors.UsageError, match="cannot be the name of a file") as caught:
        pilotage.File(path)
    assert "name it from the project's folder" in caught.value.hint
    with pytest.raises(errors.UsageError, match="cannot be the name of a file"):
        change(Options(), {"inputs": [path]})
