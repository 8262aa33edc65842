from __future__ import annotations

import pytest

pytest.register_assert_rewrite(
    "pilotage.testing.batch.beds", "pilotage.testing.batch.life", "pilotage.testing.batch.words"
)
