from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "tests.contract.batch.beds", "tests.contract.batch.life", "tests.contract.batch.words"
)
