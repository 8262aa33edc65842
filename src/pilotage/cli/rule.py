"""`pilotage rule`: list, test, check and change rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from pilotage.base import errors, text
from pilotage.base.names import closest
from pilotage.cli import formatting, job_details
from pilotage.cli.answer import Answer, Cell, Shown, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.hub.project import Project
from pilotage.rule import files as books
from pilotage.rule import graph as graphs
from pilotage.rule.files import Diff
from pilotage.rule.model import Rule

app = App(name="rule", help="List, test, check and change rules.", group_commands="Commands")
app.command("pilotage.cli.trial:trial", name="test", help="Show what an event would do.")
app.command("pilotage.cli.picture:graph", name="graph", help="Draw which rules fire after which.")
_HEADS = columns("NAME TRIGGER ENABLED JOBS> BOOK")
Names = Annotated[tuple[str, ...], Parameter(help="Names of rules.", required=True)]


@app.command
def ls(*, at: Common = HERE) -> Answer:
    """List the rules of all rule files, with the number of jobs that each has made."""
    with at.open() as project:
        loaded, known = project.read_books(), project.rules()
        root = str(project.root)
    rules = {**{name: one.rule for name, one in known.items()}, **loaded.rules}
    triggers = trigger_texts(rules, root)
    data, rows = [], list[tuple[Cell, ...]]()
    for name, rule in sorted(rules.items()):
        enabled = known[name].enabled if name in known else rule.enabled
        hits = known[name].hits if name in known else 0
        facts = {"name": name, "trigger": triggers[name], "enabled": enabled, "jobs": hits}
        data.append(facts | {"book": rule.book, "line": rule.line, "in_force": name in known})
        word = Styled("yes", "green") if enabled else Styled("no", "yellow")
        rows.append((name, triggers[name], word, hits, _short(rule.book, root)))
    notes = [str(error) for error in loaded.failed.values()]
    notes += [f"{name} waits for the recipe `{recipe}`" for name, recipe in loaded.inert.items()]
    if not rows:
        notes.append(f"no rules: write books into `{project.settings.rules.folder}/`")
    facts = {"rules": data, "failed": {name: str(one) for name, one in loaded.failed.items()}}
    shown = (Table(_HEADS, tuple(rows)),) if rows else ()
    return Answer(facts | {"inert": loaded.inert}, shown, tuple(sorted(rules)), tuple(notes))


def trigger_texts(rules: dict[str, Rule], root: str) -> dict[str, str]:
    """Write what each rule waits for."""
    return {node.id: node.sub for node in graphs.graph(rules.values(), root).nodes}


def _short(path: str, root: str) -> str:
    return path.removeprefix(root.rstrip("/") + "/")


@app.command
def show(
    name: Annotated[str, Parameter(help="Name of the rule.")], /, *, at: Common = HERE
) -> Answer:
    """Show a rule: what it waits for and what it makes."""
    with at.open() as project:
        rules = {**{key: one.rule for key, one in project.rules().items()}}
        rules |= project.read_books().rules
        root = str(project.root)
    rule = find(rules, name)
    spec = rule.spec
    sweep = (
        "" if rule.points == ({},) else f"{formatting.count(len(rule.points), 'point')} of a sweep"
    )
    facts = {
        "waits for": trigger_texts(rules, root)[name],
        "runs": job_details.runs(spec.recipe),
        "in": spec.cwd,
        "sweep": sweep,
        "params": ", ".join(f"{key} = {value}" for key, value in spec.params.items()),
        "outputs": ", ".join(spec.outputs.values()),
        "needs": job_details.needs(spec),
        "retry": f"{spec.retry.attempts} attempts" if spec.retry.attempts > 1 else "",
        "limit": f"{spec.limit.key}, {spec.limit.most} at once" if spec.limit else "",
        "book": f"{_short(rule.book, root)}:{rule.line or ''}".rstrip(":"),
    }
    shown = (
        line(Styled(f"rule {name}", "bold"), "" if rule.enabled else "  (disabled)"),
        *(formatting.pair(key, value) for key, value in facts.items() if value),
    )
    return Answer({"rule": msgspec.to_builtins(rule)}, shown, (name,))


def find(rules: dict[str, Rule], name: str) -> Rule:
    """Return a rule by its name, or raise `NotFound` with the closest name."""
    if name not in rules:
        raise errors.NotFound(f"there is no rule `{name}`", hint=closest(name, rules))
    return rules[name]


@app.command
def add(
    file: Annotated[Path, Parameter(help="A rule file: .toml or .py.")], /, *, at: Common = HERE
) -> Answer:
    """Add the rules of a file outside `rules/`."""
    if not file.is_file():
        raise errors.NotFound(f"there is no file `{file}`", hint="a rule file is .toml or .py")
    with at.open() as project:
        notes = _sites(project, project.read_book(file).rules)
        return _changed(project.add_book(file), notes)


@app.command
def rm(
    book: Annotated[str, Parameter(help="The file that was added.")], /, *, at: Common = HERE
) -> Answer:
    """Remove the rules of an added rule file; existing jobs continue."""
    with at.open() as project:
        inside = Path(book).resolve()
        if inside.parent == project.folder.resolve() and inside.exists():
            message = f"`{book}` is in `rules/`"
            raise errors.Conflict(message, hint=f"remove the file: `rm {book}`")
        return _changed(project.drop_book(book))


@app.command
def enable(names: Names, /, *, at: Common = HERE) -> Answer:
    """Enable rules: they take events again."""
    return _switch(names, at, on=True)


@app.command
def disable(names: Names, /, *, at: Common = HERE) -> Answer:
    """Disable rules; existing jobs continue."""
    return _switch(names, at, on=False)


def _switch(names: tuple[str, ...], at: Common, *, on: bool) -> Answer:
    with at.open() as project:
        _in_force(project, names)
        project.enable(names, on=on)
    word = "enabled" if on else "disabled"
    return Answer({word: names}, tuple(f"{name} is {word}" for name in names), names)


def _in_force(project: Project, names: tuple[str, ...]) -> None:
    """Put rules in force that are in the folder only, so that they can be named."""
    if any(name not in project.rules() for name in names):
        project.apply_books()
    known = {name: one.rule for name, one in project.rules().items()}
    for name in names:
        find(known, name)


@app.command
def check(
    file: Annotated[
        Path | None, Parameter(help="A rule file; default: all of the project.")
    ] = None,
    /,
    *,
    at: Common = HERE,
) -> Answer:
    """Check rule files for mistakes; change nothing."""
    with at.open() as project:
        if file is not None:
            book = project.read_book(file)
            rules, inert = book.rules, dict(book.inert)
        else:
            loaded = project.read_books()
            if loaded.failed:
                raise next(iter(loaded.failed.values()))
            rules, inert = loaded.rules, loaded.inert
        notes = [f"{name} waits for the recipe `{recipe}`" for name, recipe in inert.items()]
        notes += _sites(project, rules)
    names = sorted(rules)
    words = f" {formatting.count(len(names), 'rule')} in order"
    data = {"ok": True, "rules": names, "inert": inert}
    return Answer(data, (line(Styled("✔", "green"), words),), tuple(names), tuple(notes))


def _sites(project: Project, rules: Mapping[str, Rule]) -> list[str]:
    """Refuse rules whose sites will never take their jobs; return why those of others will wait."""
    from pilotage.flow import sites

    now, running = project.clock.now(), project.running()
    return sites.check_rules(
        project.db, project.root, project.settings, rules, now, running=running
    )


@app.command
def diff(
    file: Annotated[
        Path | None, Parameter(help="A rule file; default: all of the project.")
    ] = None,
    /,
    *,
    at: Common = HERE,
) -> Answer:
    """Show how rules in files differ from those in force."""
    with at.open() as project:
        old = {name: one.rule for name, one in project.rules().items()}
        if file is None:
            loaded = project.read_books()
            if loaded.failed:
                raise next(iter(loaded.failed.values()))
            new = loaded.rules
        else:
            new = project.read_book(file).rules
            mine = str(file.resolve())
            old = {name: one for name, one in old.items() if one.book == mine or name in new}
    return _changed(books.diff(old, new))


def _changed(found: Diff, notes: Iterable[str] = ()) -> Answer:
    shown: list[Shown] = [line(Styled(f"+ {name}", "green")) for name in found.added]
    shown += [line(Styled(f"- {name}", "red")) for name in found.removed]
    for change in found.changed:
        shown.append(line(Styled(f"~ {change.name}", "yellow")))
        shown += [
            f"    {one.field}: {_value(one.old)} → {_value(one.new)}" for one in change.fields
        ]
    names = (*found.added, *found.removed, *(change.name for change in found.changed))
    said = (*notes, *(() if shown else ("nothing changes",)))
    return Answer({"diff": msgspec.to_builtins(found)}, tuple(shown), names, said)


def _value(value: Any) -> str:  # noqa: ANN401 - any JSON value
    return "nothing" if value is None else text.show(text.dump(value))
