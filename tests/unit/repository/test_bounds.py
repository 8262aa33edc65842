"""Helpers that exist once: what is written again elsewhere is found, and nothing else is."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).parents[3] / "tools" / "bounds.py"


@pytest.fixture
def bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = importlib.util.spec_from_file_location("bounds", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SOURCE", tmp_path)
    monkeypatch.setattr(module, "EXCEPTIONS", {})
    return module


def write(root: Path, body: str, file: str = "some/module.py") -> Path:
    path = root / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"class Some:\n    def act(self):\n        {body}\n")
    return path


@pytest.mark.parametrize(
    "body, call",
    [
        ("os.fsync(3)", "fsync"),
        ("run(os.fsync, 3)", "fsync"),
        ("os.replace(a, b)", "replace"),
        ("part.replace(path)", "replace"),
        ("asyncio.create_task(work())", "create_task"),
        ("loop.create_task(work())", "create_task"),
        ("asyncio.ensure_future(work())", "ensure_future"),
    ],
)
def test_what_base_has_is_found(bounds: ModuleType, tmp_path: Path, body: str, call: str):
    path = write(tmp_path, body)
    assert list(bounds.uses(path)) == [("module.py Some.act", call)]
    assert bounds.main() == 1
    bounds.EXCEPTIONS["module.py Some.act"] = "a reason"
    assert bounds.main() == 0


@pytest.mark.parametrize(
    "body",
    [
        'text.replace("a", "b")', "date.replace(hour=1)", "structs.replace(one, a=1)",
        "os.rename(a, b)", "anyio.create_task_group()", 'say("os.fsync")',
    ],
)  # fmt: skip
def test_what_is_like_it_is_not(bounds: ModuleType, tmp_path: Path, body: str):
    assert list(bounds.uses(write(tmp_path, body))) == []


@pytest.mark.parametrize("file", ["base/x.py", "pilot/node/x.py", "payload/call.py"])
def test_nodes_and_base_are_free(bounds: ModuleType, tmp_path: Path, file: str):
    write(tmp_path, "os.fsync(3)", file)
    assert bounds.main() == 0


def test_an_exception_that_is_not_needed_fails(bounds: ModuleType):
    bounds.EXCEPTIONS["module.py Some.act"] = "a reason"
    assert bounds.main() == 1
