"""`pilotage config`: show and check the settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from pilotage.base import errors, text, toml
from pilotage.cli import formatting
from pilotage.cli.answer import Answer, Cell, Shown, Styled, line
from pilotage.cli.common import HERE, Common
from pilotage.project import settings

app = App(name="config", help="Show and check the settings.", group_commands="Commands")


@app.command
def show(
    *,
    origin: Annotated[bool, Parameter(help="Show where each setting comes from.")] = False,
    at: Common = HERE,
) -> Answer:
    """Show all settings, including defaults."""
    with at.open() as project:
        found, file = project.settings, project.root / settings.FILE
    source = file.read_text(encoding="utf-8") if file.exists() else ""
    data, shown = [], list[Shown]()
    for path, value, is_default in _flat(found, settings.Settings()):
        where = "default"
        if not is_default and (number := toml.line_of(source, path)):
            where = f"{settings.FILE}:{number}"
        data.append({"name": ".".join(path), "value": value, "origin": where})
        pieces: list[Cell] = [
            Styled(".".join(path), "" if is_default else "bold"),
            f" = {text.dump(value)}",
        ]
        if origin:
            pieces.append(Styled(f"  # {where}", "dim"))
        shown.append(line(*pieces))
    return Answer({"file": str(file), "settings": data}, tuple(shown), (str(file),))


def _flat(
    found: msgspec.Struct, plain: msgspec.Struct, start: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any, bool]]:
    for name in found.__struct_fields__:
        value, usual = getattr(found, name), getattr(plain, name)
        if isinstance(value, msgspec.Struct):
            yield from _flat(value, usual, (*start, name))
        elif isinstance(value, dict) and value:
            for key, inner in value.items():
                yield (*start, name, key), msgspec.to_builtins(inner), False
        elif value or not isinstance(value, dict):
            yield (*start, name), value, value == usual


@app.command
def check(*, at: Common = HERE) -> Answer:
    """Check the settings and all rule files."""
    with at.open() as project:
        file = project.root / settings.FILE
        loaded = project.read_books()
        if loaded.failed:
            raise next(iter(loaded.failed.values()))
        _secrets(project.root, project.settings)
    rules = formatting.count(len(loaded.rules), "rule")
    shown = line(Styled("✔", "green"), f" {file.name} and {rules} are in order")
    notes = tuple(
        f"rule {name} waits for a recipe `{recipe}` that no rule file has"
        for name, recipe in loaded.inert.items()
    )
    return Answer(
        {"ok": True, "rules": len(loaded.rules), "inert": loaded.inert}, (shown,), (), notes
    )


def _secrets(root: Path, found: settings.Settings) -> None:
    for section, name in (("http", found.http.token_file), ("tcp", found.tcp.token_file)):
        if name and not (root / name).is_file():
            message = f"`{section}.token_file` is `{name}`, and there is no such file"
            raise errors.ConfigError(message, hint="make it, or leave the setting out")
