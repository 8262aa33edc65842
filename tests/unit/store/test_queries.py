"""Named queries: all parse against the schema, say what they are for, and are used."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import pilotage
from pilotage.store import Db, connect, sqlite
from tests.suite import every

SOURCE = Path(pilotage.__file__).parent
FOLDER = SOURCE / "store" / "sql"
NAMES = sorted(sqlite.load())
_PARAMETER = re.compile(r":([a-z_]+)")


@pytest.fixture(scope="module")
def db(tmp_path_factory) -> Iterator[Db]:
    opened = connect(tmp_path_factory.mktemp("store") / "store.db")
    yield opened
    opened.close()


def statement(text: str) -> str:
    """Return a query without its comments."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("--"))


def test_every_query_fits_the_schema(db):
    with every.cases() as case:
        for name, text in sqlite.load().items():
            with case(name):
                values = dict.fromkeys(_PARAMETER.findall(statement(text)), "[]")
                assert db._connection.execute(f"EXPLAIN {text}", values).fetchall()


def test_every_query_is_one_statement_under_a_sentence_that_says_what_it_is_for():
    with every.cases() as case:
        for name, text in sqlite.load().items():
            with case(name):
                said = [line for line in text.splitlines() if line.startswith("--")]
                assert said[0].startswith("-- ")
                assert said[-1].endswith((".", ";"))
                assert apsw.complete(statement(text))
                assert statement(text).count(";") == 1


def test_no_two_queries_have_one_name():
    heads = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
    files = [file for file in FOLDER.glob("*.sql") if not file.name[0].isdigit()]
    written = Counter(name for file in files for name in heads.findall(file.read_text("utf-8")))
    assert [name for name, count in written.items() if count > 1] == []
    assert sorted(written) == NAMES


@functools.cache
def nodes() -> list[tuple[str, ast.Call | ast.Constant]]:
    """Return every call and constant in the source, with the name of its file."""
    return [
        (file.name, node)
        for file in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call | ast.Constant)
    ]


def texts() -> set[str]:
    """Return every literal text in the source."""
    return {
        node.value
        for _, node in nodes()
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }


def test_no_query_is_dead():
    used = texts()
    assert [name for name in NAMES if name not in used] == []


def asked() -> Iterator[tuple[str, str]]:
    """Yield the file and name of each query that the source asks a connection for."""
    for file, node in nodes():
        match node:
            case ast.Call(
                func=ast.Attribute(attr="run" | "rows" | "row" | "value", value=ast.Name(id="db")),
                args=[ast.Constant(value=str(name))],
            ):
                yield f"{file}:{node.lineno}", name
            case _:
                pass


def test_no_query_is_asked_for_that_is_not_there():
    found = list(asked())
    assert len(found) > 50
    assert [(place, name) for place, name in found if name not in NAMES] == []
