"""What the code has must be explained, and what the pages show must work."""

from __future__ import annotations

import ast
import functools
import importlib
import posixpath
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from docs._ext import commands, facts, figures, tables
from pilotage.base import crash
from pilotage.batch import files as sites
from pilotage.batch import model as site
from pilotage.event.model import EventKind
from pilotage.flow import schema as flows
from pilotage.job import retry, template
from pilotage.job.model import State
from pilotage.project import settings
from pilotage.rule import files, schema
from tests.suite import every

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *(page for page in DOCS.rglob("*.md") if "_build" not in page.parts),
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        ROOT / "CHANGELOG.md",
        ROOT / "testbed" / "README.md",
        ROOT / "bench" / "README.md",
    ]
)

_FENCE = re.compile(r"^(`{3,})([^\n`]*)\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")
_TARGET = re.compile(r"^\(([\w-]+)\)=$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
_GENERATED = re.compile(r"^```\{generated\} ([\w-]+)\n```$", re.MULTILINE)


class Fence(NamedTuple):
    page: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def text_of(page: Path) -> str:
    """Return a page with its generated parts filled in."""
    source = page.read_text(encoding="utf-8")
    return _GENERATED.sub(lambda found: tables.TABLES[found[1]](), source)


def fences(*wanted: str) -> list[Fence]:
    return [
        Fence(page, found.string.count("\n", 0, found.start()) + 1, found[3])
        for page in PAGES
        for found in _FENCE.finditer(page.read_text(encoding="utf-8"))
        if found[2].strip() in wanted
    ]


def in_folders(found: list[Fence], above: Path) -> Iterator[tuple[Fence, Path]]:
    """Give each example an empty folder of its own."""
    for number, fence in enumerate(found):
        folder = above / str(number)
        folder.mkdir()
        yield fence, folder


def page(name: str) -> str:
    return text_of(DOCS / name)


def missing(names: list[str], text: str) -> list[str]:
    return [name for name in names if f"`{name}`" not in text]


# -- everything is explained ---------------------------------------------------------------------


def test_every_command_and_option_is_on_the_page_of_commands():
    text = page("reference/commands.md")
    for one in commands.every():
        assert f"`pilotage {' '.join(one.words)}`" in text
        for option in (*one.arguments, *one.options):
            assert option.about, f"{one.words}: {option.names[0]} has no help"
            assert f"`{option.names[0]}`" in text


def test_every_command_is_used_somewhere_beside_the_reference():
    told = "\n".join(
        each.read_text(encoding="utf-8") for each in PAGES if each.parent.name != "reference"
    )
    nouns = {one.words[0] for one in commands.every()} - {"version", "help"}
    assert [name for name in sorted(nouns) if f"pilotage {name}" not in told] == []


def test_every_setting_is_on_the_page_of_settings():
    text = page("reference/settings.md")
    for section in facts.fields(settings.Settings):
        owner = (
            settings.AppSettings
            if section.name == "app"
            else type(getattr(settings.Settings(), section.name))
        )
        found = facts.fields(owner)
        assert found
        assert all(field.about for field in found)
        assert missing([field.name for field in found], text) == []


@pytest.mark.parametrize("owner", [site.SiteSettings, site.Defaults])
def test_every_key_of_a_site_is_on_the_page_of_sites(owner):
    found = facts.fields(owner)
    assert [field.name for field in found if not field.about and field.name != "defaults"] == []
    assert (
        missing([field.name for field in found if field.name != "defaults"], page("sites.md")) == []
    )


@pytest.mark.parametrize(
    "owner",
    [
        schema.RuleText,
        schema.RecipeText,
        schema.RetryText,
        schema.LimitText,
        schema.GatherText,
    ],
)
def test_every_key_of_a_rule_is_on_the_page_of_rule_files(owner):
    found = facts.fields(owner)
    assert [field.name for field in found if not field.about] == []
    assert missing([field.name for field in found], page("reference/rule-format.md")) == []


@pytest.mark.parametrize("owner", [flows.FlowText, flows.StepText])
def test_every_key_of_a_workflow_is_on_the_page_of_workflow_files(owner):
    found = facts.fields(owner)
    assert [field.name for field in found if not field.about] == []
    assert missing([field.name for field in found], page("flows.md")) == []


def test_every_key_of_a_rule_is_shown_in_an_example():
    shown = set[str]()
    for fence in fences("toml rule"):
        for kind in ("rule", "recipe"):
            for written in tomllib.loads(fence.text).get(kind, {}).values():
                shown |= set(written)
    prose = "\n".join(each.read_text(encoding="utf-8") for each in (DOCS / "how-to").glob("*.md"))
    keys = set(schema.RuleText.__struct_fields__) - {"disk", "gpus"}
    assert [key for key in sorted(keys - shown) if f"`{key}" not in prose] == []


def test_every_kind_of_event_is_explained():
    assert missing([str(kind) for kind in EventKind], page("concepts/events.md")) == []
    assert all(facts.members(EventKind).values())


def test_every_state_is_explained():
    assert missing([str(state) for state in State], page("concepts/job-states.md")) == []


def test_the_number_of_losses_is_the_real_one():
    assert f"After {retry.MOST_LOST} losses" in page("concepts/exactly-once.md")
    assert f"after {retry.MOST_LOST} losses" in page("concepts/job-states.md")


def test_every_keyword_is_explained():
    text = page("reference/rule-format.md")
    assert [word for word in template.KEYWORDS if f"`{{{word}}}`" not in text] == []


def test_every_error_is_explained():
    text = page("reference/errors.md")
    for _, kind in facts.error_tree():
        assert f"## {kind.code}: {kind.__name__}" in text


def test_every_crash_point_is_explained():
    assert missing(list(crash.POINTS), page("concepts/exactly-once.md")) == []


def test_every_variable_that_a_payload_sees_is_explained():
    text = page("reference/files.md")
    words = [word for word in template.KEYWORDS if word not in ("match", "message", "ended")]
    names = [f"PILOTAGE_{word.upper()}" for word in words]
    more = ["PILOTAGE_ATTEMPT", "PILOTAGE_PARAMS", "PILOTAGE_KEY", "PILOTAGE_STARTER"]
    assert missing([*names, *more], text) == []


# -- what is shown works -------------------------------------------------------------------------


def test_a_rule_that_is_shown_loads(tmp_path):
    with every.cases() as case:
        for fence, folder in in_folders(fences("toml rule"), tmp_path):
            with case(fence):
                _loads(fence.text, folder)


def _loads(text: str, folder: Path) -> None:
    for kind in ("rule", "recipe"):
        for written in tomllib.loads(text).get(kind, {}).values():
            _stand_in(written, folder)
    file = folder / "book.toml"
    file.write_text(text, encoding="utf-8")
    loaded = files.load(file, str(folder))
    assert loaded.rules or loaded.recipes
    assert not loaded.inert


def _stand_in(written: dict[str, object], folder: Path) -> None:
    """Make the files that a rule names beside its book."""
    for key in ("script", "notebook", "python", "flow"):
        name = str(written.get(key, ""))
        if name and "\n" not in name:
            file, _, function = name.partition(":")
            body = f"def {function}(**_): ...\n" if function else ""
            (folder / file).write_text(body, encoding="utf-8")


def test_a_python_book_that_is_shown_loads(tmp_path):
    with every.cases() as case:
        for fence, folder in in_folders(fences("python rule"), tmp_path):
            with case(fence):
                file = folder / "book.py"
                file.write_text(fence.text, encoding="utf-8")
                assert files.load(file, str(folder)).rules


def test_what_python_that_is_shown_imports_of_us_is_there():
    with every.cases() as case:
        for fence in fences("python", "python rule"):
            with case(fence):
                _imports_what_is_there(fence.text)


def _imports_what_is_there(text: str) -> None:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pilotage"):
            module = importlib.import_module(node.module or "")
            assert [each.name for each in node.names if not hasattr(module, each.name)] == []


def test_settings_that_are_shown_load(tmp_path):
    with every.cases() as case:
        for fence, folder in in_folders(fences("toml config"), tmp_path):
            with case(fence):
                (folder / settings.FILE).write_text(fence.text, encoding="utf-8")
                assert settings.read(folder) != settings.Settings()


def test_a_site_that_is_shown_loads():
    with every.cases() as case:
        for fence in fences("toml site"):
            with case(fence):
                assert sites.parse(fence.text, "cluster", Path("cluster.toml")).batch


def test_all_toml_is_marked():
    loose = [fence for fence in fences("toml") if fence.page != ROOT / "README.md"]
    assert loose == []


def test_the_rules_of_the_readme_load(tmp_path):
    (fence,) = (each for each in fences("toml") if each.page == ROOT / "README.md")
    for written in tomllib.loads(fence.text)["rule"].values():
        _stand_in(written, tmp_path)
    (tmp_path / "book.toml").write_text(fence.text, encoding="utf-8")
    assert set(files.load(tmp_path / "book.toml", str(tmp_path)).rules) == {"clean", "report"}


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield every call of pilotage in a shell example or in code within text."""
    for each in PAGES:
        source = each.read_text(encoding="utf-8")
        lines = [
            line.removeprefix("$ ")
            for found in _FENCE.finditer(source)
            if found[2].strip() == "console"
            for line in found[3].replace("\\\n", " ").splitlines()
            if line.startswith("$ ")
        ]
        bare = _FENCE.sub("", source)
        lines += [found[1] for found in re.finditer(r"`([^`\n]+)`", bare)]
        for line in lines:
            for call in re.findall(r"(?:^|[\s(])(pilotage [^|;&)(]+)", line):
                yield each.name, _words(call)


def _words(call: str) -> list[str]:
    try:
        return shlex.split(call, comments=True)[1:]
    except ValueError:
        return call.split()[1:]  # a quote is cut off with the rest of the line


def test_a_command_that_is_shown_exists():
    known = {one.words: one for one in commands.every()}
    with every.cases() as case:
        for name, words in shown_commands():
            with case(f"{name}: {' '.join(words)}"):
                _exists(words, known)


def quoted_commands() -> Iterator[tuple[str, list[str]]]:
    """Yield every call of pilotage in a hint, a message or a docstring of the product."""
    for file in sorted((ROOT / "src" / "pilotage").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = (
                    each.value if isinstance(each, ast.Constant) else "X" for each in node.values
                )
                source = "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                source = node.value
            else:
                continue
            for call in re.findall(r"`(pilotage [a-z][^`|;&)(]*)`", source):
                if "X" not in (words := _words(call))[:2]:
                    yield f"{file.name}:{node.lineno}", words


def test_a_command_that_a_hint_names_exists():
    known = {one.words: one for one in commands.every()}
    with every.cases() as case:
        for name, words in quoted_commands():
            with case(f"{name}: {' '.join(words)}"):
                _exists(words, known)


def _exists(words: list[str], known: dict[tuple[str, ...], commands.Command]) -> None:
    nouns = {one[0] for one in known if len(one) > 1}
    if not words or words[0] in {*commands.words(), "COMMAND"} - nouns - {one[0] for one in known}:
        return
    size = 2 if words[0] in nouns and len(words) > 1 and not words[1].startswith("-") else 1
    if words[0] in nouns and size == 1:
        return
    one = known.get(tuple(words[:size]))
    assert one is not None, f"there is no command {' '.join(words[:size])}"
    names = {name for option in one.options for name in option.names} | {"--help", "-h"}
    rest = words[size:]
    if words[0] == "submit":
        rest = _before_the_program(rest, one)
    for word in rest:
        if word.startswith("-") and word != "--":
            assert word.partition("=")[0] in names, f"{' '.join(words[:size])} has no {word}"


def _before_the_program(words: list[str], one: commands.Command) -> list[str]:
    values = {name for option in one.options if option.value for name in option.names}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in values else 1
    return words[:at]


# -- links ---------------------------------------------------------------------------------------


def links() -> Iterator[tuple[Path, str]]:
    for each in PAGES:
        bare = _FENCE.sub("", each.read_text(encoding="utf-8"))
        bare = re.sub(r"`[^`\n]*`", "", bare)
        for found in _LINK.finditer(bare):
            if not found[2].startswith(("http://", "https://")):
                yield each, found[2]


def test_a_link_leads_somewhere():
    with every.cases() as case:
        for each, link in links():
            with case(f"{each.name}: {link}"):
                path, _, anchor = link.partition("#")
                target = each if not path else Path(posixpath.normpath(each.parent / path))
                assert target.exists(), f"{target} does not exist"
                if anchor:
                    assert anchor in anchors(target), f"{target.name} has no #{anchor}"


@functools.cache
def anchors(target: Path) -> set[str]:
    text = text_of(target)
    slugs = {_slug(found[1]) for found in _HEADING.finditer(_FENCE.sub("", text))}
    return slugs | {found[1] for found in _TARGET.finditer(text)}


def _slug(heading: str) -> str:
    """Write a heading as GitHub and MyST make an anchor of it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_page_is_in_a_table_of_contents():
    listed = set[Path]()
    for each in PAGES:
        for found in _FENCE.finditer(each.read_text(encoding="utf-8")):
            if found[2].strip() == "{toctree}":
                names = [line for line in found[3].splitlines() if line and line[0] != ":"]
                listed |= {(each.parent / f"{name}.md") for name in names}
    pages = {each for each in PAGES if each.is_relative_to(DOCS)} - {DOCS / "index.md"}
    assert pages - listed == set()


# -- the figures ---------------------------------------------------------------------------------


def test_the_table_of_figures_has_what_a_peer_has_too():
    told = {
        "name": "500 files: last job done",
        "unit": "s",
        "ours": 1.25,
        "peer": {"meow-base": 52.6},
    }
    alone = {"name": "matching, done alone", "unit": "paths/s", "ours": 700_000.0, "peer": {}}
    found = figures.table({"figures": [told | {"ratio": {"meow-base": 42.08}}, alone]})
    assert found.splitlines()[2:] == ["| 500 files: last job done | 1.25 s | 52.6 s | 42.1 × |"]


def test_the_figures_of_the_readme_are_those_of_the_last_run():
    text = figures.README.read_text(encoding="utf-8")
    assert "<!-- figures -->" in text
    assert figures.filled(text) == text, "run `python -m docs._ext.figures`"


def test_the_page_of_benchmarks_has_all_headlines_and_all_goals_that_are_missed():
    text = page("benchmarks.md")
    assert all(f"| {name} |" in text for names in figures.SHOWN.values() for name in names)
    saved = [msgspec.json.decode(file.read_bytes()) for file in figures.FOLDER.glob("*.json")]
    lost = [one["name"] for run in saved for one in run["figures"] if one["met"] is False]
    assert [name for name in lost if f"| {name} |" not in text] == []


def test_the_walks_of_the_page_on_the_design_have_the_figures_of_the_tool():
    text = (ROOT / "docs" / "design.md").read_text()
    tool = runpy.run_path(str(ROOT / "tools" / "walk.py"))
    for name, title in tool["TITLES"].items():
        found = text.partition(f"### {title[0].upper()}{title[1:]}\n")[2].partition("\n###")[0]
        figures = [f"{role} {most}" for role, most in tool["BOUNDS"][name].items() if role != "hub"]
        assert [one for one in figures if one not in found] == [], title
        assert re.search(rf"hub\b.* {tool['BOUNDS'][name]['hub']}\b", found), title


def test_the_page_on_the_design_lists_the_packages_by_their_docstrings():
    """It is written out, so that the page can be read as it is in the repository."""
    wanted = tables.packages()
    text = (ROOT / "docs" / "design.md").read_text()
    assert wanted in text, f"docs/design.md needs this table of packages:\n\n{wanted}\n"


def test_every_module_that_the_page_on_the_design_explains_exists():
    text = (ROOT / "docs" / "design.md").read_text()
    rows = text.partition("\n| package | modules |\n")[2].partition("\n\n")[0].splitlines()[1:]
    named = [
        f"{row.split('`')[1]}{name}"
        for row in rows
        for name in re.findall(r"`(\w+)`", row.split("|")[2])
    ]
    source = ROOT / "src" / "pilotage"
    assert [name for name in named if not (source / f"{name}.py").exists()] == []
    large = {one.name for one in source.iterdir() if len([*one.glob("*.py")]) > 11}
    assert large <= {name.partition("/")[0] for name in named}


def test_every_file_that_the_page_on_the_design_names_exists():
    """Paths begin at the package, or at the top of the repository."""
    text = (ROOT / "docs" / "design.md").read_text()
    named = re.findall(r"`((?:\w+/)+(?:[\w*-]+\.\w+)?)`", text)
    missing = [
        name
        for name in named
        if not any([*top.glob(name.rstrip("/"))] for top in (ROOT, ROOT / "src" / "pilotage"))
    ]
    assert named
    assert not missing
