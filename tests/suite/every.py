"""Many cases in one test: each is tried, and all that fail are reported together."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

Case = Callable[[object], AbstractContextManager[None]]


@contextmanager
def cases() -> Iterator[Case]:
    """Yield a function that names a case: `with case(name):` holds its assertions.

    A case that skips fails. So does a test that tries no case: its data are missing.
    """
    tried = 0
    failed: list[str] = []

    @contextmanager
    def case(name: object) -> Iterator[None]:
        nonlocal tried
        tried += 1
        try:
            yield
        except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # noqa: BLE001
            failed.append(f"{name}: {_report(error)}")

    yield case
    if not tried:
        pytest.fail("no case was tried", pytrace=False)
    if failed:
        head = f"{len(failed)} of {tried} cases failed"
        pytest.fail("\n".join([head, *failed]), pytrace=False)


def _report(error: BaseException) -> str:
    """Say where an assertion failed and what differs; show any other error with its traceback."""
    trace = error.__traceback__ and error.__traceback__.tb_next  # the first frame is `case`
    if not isinstance(error, (AssertionError, pytest.fail.Exception)):
        return "".join(traceback.format_exception(error.with_traceback(trace)))
    frames = traceback.extract_tb(trace)
    last = [frame for frame in frames if frame.filename == frames[0].filename][-1]
    return f"{Path(last.filename).name}:{last.lineno}: {str(error) or last.line}"
