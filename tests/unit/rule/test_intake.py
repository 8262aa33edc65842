"""Files that settle: a wait that begins again is not ended by the one before."""

from __future__ import annotations

from pathlib import Path

from pilotage.store import connect


def test_a_wait_that_began_again_stays(tmp_path: Path) -> None:
    db = connect(tmp_path / "store.db")
    with db.transaction():
        db.run("pending_put", rule="r", path="/a", due=1.5, event="{}")
        first = db.rows("pending_due", now=2.0)
        db.run("pending_put", rule="r", path="/a", due=3.5, event="{}")
        for rule, path, due, _ in first:
            db.run("pending_drop", rule=rule, path=path, due=due)
        assert db.value("pending_next") == 3.5
        db.run("pending_drop", rule="r", path="/a", due=3.5)
        assert db.value("pending_next") is None
    db.close()
