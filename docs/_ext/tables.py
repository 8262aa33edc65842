"""Markdown tables made of the facts of the code."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import pilotage
from pilotage.agent import settings as agent
from pilotage.agent.app import command
from pilotage.agent.app import model as apps
from pilotage.batch import model as site
from pilotage.batch.pilot_request import PilotRequest
from pilotage.cli import about
from pilotage.data.transfer import keys
from pilotage.event.model import Event, EventKind
from pilotage.flow import model as flow
from pilotage.flow import schema as flows
from pilotage.job import machine, model, records, template
from pilotage.pool import files as pools
from pilotage.pool.efficiency import Efficiency
from pilotage.project import settings as config
from pilotage.rule import schema

from . import commands, facts, figures, matrix, messages


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)


def code(text: str) -> str:
    """Write text as code; nothing for nothing."""
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def plain_type(kind: str) -> str:
    """Write an annotation in words of TOML."""
    text = re.sub(r"\s*\|\s*None$", "", kind)
    choice = re.fullmatch(r"Literal\[(.*)\]", text)
    if choice:
        return " or ".join(f"`{each}`" for each in choice[1].replace("'", '"').split(", "))
    parts = [_WORDS.get(part.strip(), f"`{part.strip()}`") for part in _split(text)]
    return " or ".join(dict.fromkeys(parts))


_WORDS = {
    "str": "text",
    "int": "whole number",
    "float": "number",
    "bool": "true or false",
    "Amount": "amount",
    "Texts": "text or list of texts",
    "tuple[str, ...]": "list of texts",
    "tuple[int, ...]": "list of whole numbers",
    "tuple[State, ...]": "list of states",
    "dict[str, Any]": "table",
    "dict[str, str]": "table of texts",
    "dict[str, str | int | float]": "table of texts or numbers",
    "dict[str, App]": "tables",
    "dict[str, Owner]": "tables",
    "list[Any]": "list",
    "RetryText": "table",
    "LimitText": "table",
    "GatherText": "table",
    "tuple[str | tuple[str, ...], ...]": "list of texts and of lists of texts",
    "dict[str, Parameter]": "tables",
    "dict[str, OwnLimits]": "tables",
    "Parameter": "table",
    "OnChange": '`"cancel"` or `"latest"` or `"ignore"`',
}


def _split(text: str) -> list[str]:
    """Split a union at its bars, but not within brackets."""
    parts, depth, last = [], 0, 0
    for at, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "|" and depth == 0:
            parts.append(text[last:at])
            last = at + 1
    return [*parts, text[last:]]


def settings() -> str:
    """Write every table of `pilotage.toml`."""
    parts = []
    for section in facts.fields(config.Settings):
        owner = type(getattr(config.Settings(), section.name))
        head = f"[{section.name}]"
        if section.name == "app":
            owner, head = config.AppSettings, "[app.NAME]"
        about = facts.sentence(owner)
        rows = [_setting(field) for field in facts.all_fields(owner)]
        parts.append(_section(head, about, rows))
        if owner is config.Share:
            rows = [_setting(field) for field in facts.fields(config.Owner)]
            head = "[share.user.NAME]` and `[share.group.NAME]"
            parts.append(_section(head, facts.sentence(config.Owner), rows))
    return "\n\n".join(parts)


def _section(head: str, about: str, rows: Sequence[Sequence[str]]) -> str:
    return f"## `{head}`\n\n{about}\n\n" + table(("key", "type", "default", "meaning"), rows)


def _setting(field: facts.Field) -> tuple[str, str, str, str]:
    default = field.default.replace("'", '"')
    return code(field.name), plain_type(field.kind), code(_toml(default)), field.about


def _toml(default: str) -> str:
    if default.startswith("("):
        return f"[{default[1:-1].rstrip(',')}]"
    return {"True": "true", "False": "false", "None": ""}.get(default, default)


def site_keys() -> str:
    """Write the keys of a site's file."""
    parts = []
    for owner, head in ((site.SiteSettings, ""), (site.Defaults, "### `[defaults]`\n\n")):
        rows = [_setting(field) for field in facts.fields(owner) if field.name != "defaults"]
        about = f"{facts.sentence(owner)}\n\n" if head else ""
        parts.append(head + about + table(("key", "type", "default", "meaning"), rows))
    return "\n\n".join(parts)


def rule_keys() -> str:
    """Write the keys that only a rule has, by what they belong to."""
    known = {field.name: field for field in facts.fields(schema.RuleText)}
    parts = ["### What it waits for\n\nExactly one of these.\n\n" + _keys(known, schema.TRIGGERS)]
    files = [key for key, goes in schema.TRIGGER_KEYS.items() if goes == schema.FILES]
    parts.append("### Which files\n\nWith `files` and `regex`.\n\n" + _keys(known, files))
    others = {key: goes for key, goes in schema.TRIGGER_KEYS.items() if goes != schema.FILES}
    parts.append("### Which ticks, messages and ends\n\n" + _keys(known, list(others), others))
    taken = {*schema.TRIGGERS, *schema.TRIGGER_KEYS}
    rest = [name for name in known if name not in taken]
    parts.append("### What it makes\n\n" + _keys(known, rest))
    return "\n\n".join(parts)


def recipe_keys() -> str:
    """Write the keys of a recipe, which a rule takes too."""
    known = {field.name: field for field in facts.fields(schema.RecipeText)}
    taken = {*schema.RECIPES, *schema.RECIPE_KEYS}
    rest = [name for name in known if name not in taken]
    some = _keys(known, list(schema.RECIPE_KEYS), schema.RECIPE_KEYS)
    return "\n\n".join(
        [
            "### What runs\n\nExactly one of these.\n\n" + _keys(known, schema.RECIPES),
            "### How it runs\n\n" + some,
            "### What every job takes\n\n" + _keys(known, rest),
        ]
    )


def _keys(
    known: dict[str, facts.Field],
    names: Sequence[str],
    goes: dict[str, tuple[str, ...]] | None = None,
) -> str:
    """Write keys; `goes` says with which others some of them go."""
    if goes is None:
        return table(("key", "type", "meaning"), [_key(known[name]) for name in names])
    rows = []
    for name in names:
        key, kind, about = _key(known[name])
        rows.append((key, ", ".join(code(each) for each in goes[name]), kind, about))
    return table(("key", "goes with", "type", "meaning"), rows)


def sub_tables() -> str:
    """Write the keys of the tables within rules."""
    parts = []
    for name, owner in (
        ("retry", schema.RetryText),
        ("limit", schema.LimitText),
        ("gather", schema.GatherText),
    ):
        rows = [_setting(field) for field in facts.fields(owner)]
        about = facts.sentence(owner)
        parts.append(
            f"### `{name}`\n\n{about}\n\n" + table(("key", "type", "default", "meaning"), rows)
        )
    return "\n\n".join(parts)


def flow_keys() -> str:
    """Write the keys at the top of a workflow, and those of `[notify]`."""
    heads = ("key", "type", "meaning")
    top = table(heads, [_key(field) for field in facts.fields(flows.FlowText)])
    told = table(heads, [_key(field) for field in facts.fields(flow.Notify)])
    return f"{top}\n\n### `[notify]`\n\n{told}"


def step_keys() -> str:
    """Write the keys of a step."""
    return table(
        ("key", "type", "meaning"), [_key(field) for field in facts.fields(flows.StepText)]
    )


def _key(field: facts.Field) -> tuple[str, str, str]:
    about = field.about
    default = _toml(field.default.replace("'", '"'))
    if default not in ("", "{}", "[]"):
        about = f"{about} Default: `{default}`."
    return code(field.name), plain_type(field.kind), about


def keywords() -> str:
    """Write every keyword of templates."""
    rows = [(f"`{{{name}}}`", f"{about}") for name, about in template.KEYWORDS.items()]
    return table(("keyword", "stands for"), rows)


def kinds() -> str:
    """Write every kind of event."""
    rows = [(code(kind), about) for kind, about in facts.members(EventKind).items()]
    return table(("kind", "meaning"), rows)


def event_fields() -> str:
    """Write the fields of an event."""
    rows = [(code(field.name), field.about) for field in facts.fields(Event)]
    return table(("field", "meaning"), rows)


def states() -> str:
    """Write every state of a job, and what may follow it."""
    rows = []
    for state, fact in machine.FACTS.items():
        follow = [code(each) for each in model.State if each in machine.TRANSITIONS[state]]
        final = "yes" if fact.final else ""
        rows.append((code(state), fact.sentence, final, ", ".join(follow)))
    return table(("state", "meaning", "final", "may become"), rows)


def errors() -> str:
    """Write the tree of errors."""
    rows = []
    for depth, kind in facts.error_tree():
        name = "\N{NO-BREAK SPACE}" * 4 * depth + code(kind.__name__)
        link = f"[{kind.code}](#{kind.code.lower()})"
        again = "yes" if kind.retryable else ""
        rows.append((link, name, str(kind.exit_status), again, facts.sentence(kind)))
    return table(("code", "error", "exit status", "may pass by itself", "meaning"), rows)


def error_sections() -> str:
    """Write a section for each error: what it means and what to do."""
    parts = []
    for _, kind in facts.error_tree():
        again = " Trying again may help." if kind.retryable else ""
        advice = about.ADVICE[kind.code]
        advice = advice[:1].upper() + advice[1:]
        parts.append(
            f"({kind.code.lower()})=\n## {kind.code}: {kind.__name__}\n\n"
            f"{facts.sentence(kind)}{again} Exit status {kind.exit_status}.\n\n{advice}"
        )
    return "\n\n".join(parts)


def exits() -> str:
    """Write every exit status."""
    return table(("status", "meaning"), [(str(key), each) for key, each in about.EXITS.items()])


def selectors() -> str:
    """Write how jobs are named."""
    return table(
        ("selector", "means"), [(code(key), each) for key, each in about.SELECTORS.items()]
    )


def job_nouns() -> str:
    """Write the fields of what programs hand in and get back."""
    parts = []
    for owner in (model.NewJob, model.JobSpec, *_RECIPES, model.Job, records.Selection):
        rows = [
            (code(each.name), code(each.kind), code(each.default), each.about)
            for each in facts.all_fields(owner)
        ]
        head = f"### `{owner.__module__}.{owner.__name__}`\n\n{facts.sentence(owner)}\n\n"
        parts.append(head + table(("field", "type", "default", "meaning"), rows))
    return "\n\n".join(parts)


_RECIPES = (model.Command, model.Script, model.Python, model.Notebook, model.App)


_TABLES_OF_POOL = ("pilot", "control")


def pool_keys() -> str:
    """Write the keys of a pool's file."""
    parts = []
    for owner, head in (
        (pools.Pool, ""),
        (PilotRequest, "### `[pilot]`\n\n"),
        (pools.Aimd, '### `[control]`, `kind = "aimd"`\n\n'),
        (pools.Even, '### `[control]`, `kind = "linear"`\n\n'),
        (pools.Relative, '### `[control]`, `kind = "relative"`\n\n'),
        (pools.SupplyStep, '### `[[control.step]]`, `kind = "stepwise"`\n\n'),
        (pools.Outside, '### `[control]`, `kind = "outside"`\n\n'),
        (Efficiency, "### `[efficiency]`\n\n"),
    ):
        rows = [
            _setting(field)
            for field in facts.all_fields(owner)
            if field.name not in _TABLES_OF_POOL
        ]
        parts.append(head + table(("key", "type", "default", "meaning"), rows))
    return "\n\n".join(parts)


_TABLES_OF_APP = ("parameter", "config", "limits", "user", "staging")


def app_keys() -> str:
    """Write the keys of an application's file."""
    parts = []
    for owner, head in (
        (apps.Application, ""),
        (apps.Parameter, "### `[parameter.NAME]`\n\n"),
        (apps.Config, "### `[config]`\n\n"),
        (apps.AppLimits, "### `[limits]` and `[user.NAME]`\n\n"),
        (apps.Staging, "### `[staging]`\n\n"),
    ):
        rows = [
            _setting(field) for field in facts.fields(owner) if field.name not in _TABLES_OF_APP
        ]
        about = f"{facts.sentence(owner)}\n\n" if head else ""
        parts.append(head + about + table(("key", "type", "default", "meaning"), rows))
    return "\n\n".join(parts)


def app_words() -> str:
    """Write the words that a template of arguments may hold beside parameters."""
    return table(
        ("word", "stands for"),
        [(code(f"{{{name}}}"), about) for name, about in command.KNOWN.items()],
    )


def agent_keys() -> str:
    """Write the keys of an agent's file."""
    parts = []
    for owner, head in (
        (agent.Settings, ""),
        (agent.SiteBroker, "### `[bus]`\n\n"),
        (agent.DialledHub, "### `[hub]`, `[hubs.NAME]`\n\n"),
        (agent.RunningLimits, "### `[limits]`\n\n"),
        (agent.KeepTimes, "### `[keep]`\n\n"),
        (agent.RelaySettings, "### `[relay]`\n\n"),
        (keys.Credentials, "### `[credentials.HOST]`\n\n"),
    ):
        about = f"{facts.sentence(owner)}\n\n" if head else ""
        rows = [_setting(field) for field in facts.fields(owner)]
        parts.append(head + about + table(("key", "type", "default", "meaning"), rows))
    return "\n\n".join(parts)


def packages() -> str:
    """Write the packages in the order of their layers, each by the start of its `__init__`."""
    source = Path(pilotage.__file__).parent
    contracts = tomllib.loads((source.parents[1] / "pyproject.toml").read_text())
    (layers,) = (
        one["layers"]
        for one in contracts["tool"]["importlinter"]["contracts"]
        if one["id"] == "layers"
    )
    names = [name for layer in layers for name in layer.split(" | ")]
    rows = [(code(f"{name}/"), _head(source / name / "__init__.py")) for name in names]
    return table(("package", "what comes in, and what goes out"), rows)


def _head(file: Path) -> str:
    """Return the first paragraph of the docstring of a module."""
    words = ast.get_docstring(ast.parse(file.read_text())) or ""
    return " ".join(words.partition("\n\n")[0].split())


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "site-keys": site_keys,
    "pool-keys": pool_keys,
    "app-keys": app_keys,
    "app-words": app_words,
    "agent-keys": agent_keys,
    "messages": messages.page,
    "matrix": matrix.page,
    "benchmarks": figures.headlines,
    "goals-missed": figures.missed,
    "rule-keys": rule_keys,
    "recipe-keys": recipe_keys,
    "sub-tables": sub_tables,
    "flow-keys": flow_keys,
    "step-keys": step_keys,
    "keywords": keywords,
    "kinds": kinds,
    "event-fields": event_fields,
    "states": states,
    "job-nouns": job_nouns,
    "errors": errors,
    "error-sections": error_sections,
    "exits": exits,
    "selectors": selectors,
    "commands": commands.page,
    "options-everywhere": commands.everywhere,
}
