"""Defaults that recipes assign, taken out where a pattern supplies the value.

MEOW wrote values into these lines. Here values travel as values, and all that happens to the source
is that the first assignment to such a name does not happen. Lines keep their numbers.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

_SHELL = re.compile(r"((?:export|readonly|declare|typeset)(?:\s+-\w+)*\s+)?(\w+)=(.*)")
_HERE = re.compile(r"(?<!<)<<-?\s*[\"'\\]?(\w+)")
_MAGIC = re.compile(r"^(\s*)[%!?]", re.MULTILINE)


def bash(source: str, names: AbstractSet[str]) -> str:
    """Let defaults of a shell script go to variables that nobody reads.

    What is assigned may go on over lines or run programs; a name can always be another.
    """
    lines, left, skip_to = source.split("\n"), set(names), 0
    for at, line in enumerate(lines):
        found = _SHELL.match(line) if at >= skip_to else None
        if found and found[2] in left:
            left.remove(found[2])
            if not re.search(rf"\$\{{?{found[2]}\b", found[3]):
                lines[at] = f"{found[1] or ''}_default_{found[2]}={found[3]}"
        if at >= skip_to and (here := _HERE.search(line)):
            skip_to = _end(lines, at, here[1])
    return "\n".join(lines)


def _end(lines: Sequence[str], start: int, word: str) -> int:
    """Find the end of a here-document; `1 << n` begins none."""
    ends = (at for at in range(start + 1, len(lines)) if lines[at].strip("\t") == word)
    return next(ends, start)


def python(source: str, names: AbstractSet[str]) -> str:
    """Blank the defaults of a Python script."""
    return _python(source, names, set(names))


def notebook(content: dict[str, Any], names: AbstractSet[str]) -> dict[str, Any]:
    """Blank the defaults of a notebook, if it is in Python."""
    changed, left = copy.deepcopy(content), set(names)
    if language(content) == "python":
        for cell in changed["cells"]:
            if cell.get("cell_type") == "code":
                cell["source"] = _python("".join(cell["source"]), names, left)
    return changed


def language(content: dict[str, Any]) -> str:
    """Say in which language a notebook is; Python, if it does not tell."""
    facts = content.get("metadata", {})
    named = facts.get("language_info", {}).get("name")
    return str(named or facts.get("kernelspec", {}).get("language") or "python")


def _python(source: str, names: AbstractSet[str], left: set[str]) -> str:
    try:
        # Lines for IPython are comments to the parser; they stay in the source.
        tree = ast.parse(_MAGIC.sub(r"\1#", source))
    except (SyntaxError, ValueError):
        return source  # The job will say what is wrong with it, with the right line.
    lines = source.encode().split(b"\n")
    for node in reversed(list(_defaults(tree.body, names, left))):
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        head, tail = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
        blank = b"(" + b"\n" * (last - first) + b")" if last > first else b"pass"
        lines[first : last + 1] = (head + blank + tail).split(b"\n")
    return b"\n".join(lines).decode()


def _defaults(
    body: Sequence[ast.stmt], names: AbstractSet[str], left: set[str]
) -> Iterator[ast.Assign | ast.AnnAssign]:
    """Yield the first assignment to each name, unless it makes the value from itself."""
    for node in body:
        if isinstance(node, ast.If) and "__name__" in _names(node.test, ast.Load):
            yield from _defaults(node.body, names, left)
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        bound = set().union(*(_names(target, ast.Store) for target in targets))
        if not bound & left:
            continue
        left -= bound
        if bound & _names(node.value, ast.Load):
            continue
        if not bound <= names:
            told = ", ".join(sorted(bound))
            raise ValueError(f"line {node.lineno} of a recipe assigns {told} together: split it")
        yield node


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    return {
        found.id
        for found in ast.walk(node)
        if isinstance(found, ast.Name) and isinstance(found.ctx, context)
    }
