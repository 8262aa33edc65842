"""Files of the applications of a site, `apps/NAME.toml`: read, checked and written.

A program must still be the one that the site's administrator chose: it has the recorded SHA-256,
belongs to root or to us, and neither it nor any folder above it is writable by others.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from pilotage.agent.app import command
from pilotage.agent.app.model import Application, AppLimits, Config, Parameter, Staging
from pilotage.base import durable, errors, toml, units
from pilotage.batch.system import known
from pilotage.bus.wire import BAD
from pilotage.data.transfer.version import Version
from pilotage.job import template

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@:-]{0,127}")
_PARAMETER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
#: Variables by which a user could put a program of their own in place of the site's.
_NEVER = re.compile(
    r"(LD_.*|DYLD_.*|PATH|IFS|ENV|HOME|SHELL|SHELLOPTS|BASH.*|PS4|PYTHON.*|PERL.*|RUBY.*|NODE_.*|"
    r"GCONV_PATH|GLIBC_.*|MALLOC_.*|LOCPATH|NLSPATH|TERMINFO.*|PILOTAGE_.*|SSH_.*|GIT_.*|EDITOR|"
    r"PAGER|JAVA_TOOL_OPTIONS|_JAVA_OPTIONS|OMPI_MCA_.*|I_MPI_.*|TMPDIR|"
    rf"({'|'.join(known.PREFIXES)}).*)"
)
_LONGEST = 4096
_MOST_CORES = 1_000_000
#: The address of a hub, which is an argument of a pilot.
HUB = re.compile(r"https?://(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9][A-Za-z0-9._-]*)(:[0-9]{1,5})?/?")
#: Keys that do not apply to pilots.
_NO_PILOT = (
    "launcher", "launcher_words", "container", "preprocess", "postprocess", "env_allow",
)  # fmt: skip

_At = tuple[str, ...]


class Mistake(errors.ConfigError):
    """An invalid key of an application's file."""

    def __init__(self, at: _At, text: str, *, hint: str = "") -> None:
        """Name the key by its path."""
        super().__init__(f"`{'.'.join(at)}` cannot be {text}", hint=hint, keys=at)


def check(name: str, app: Application) -> None:
    """Raise `ConfigError` for an invalid name or value."""
    if not _NAME.fullmatch(name):
        raise errors.ConfigError(f"{name!r} cannot be the name of an application")
    _takes(name, app)
    for program, sha256 in app.programs().items():
        if not program.startswith("/") or BAD.search(program) or "/../" in f"{program}/":
            raise Mistake(_place(app, program), f"{program!r}: it is not an absolute path")
        if not _SHA256.fullmatch(sha256):
            at = ("sha256",) if program == app.executable else ("pins", program)
            hint = f"`sha256sum {program}` prints it"
            raise Mistake(at, f"{sha256!r}: every program is pinned", hint=hint)
    for part, one in app.parameter.items():
        if not _PARAMETER.fullmatch(part) or part in command.KNOWN:
            text = f"{part!r}: letters, digits and `_`, and not a reserved word"
            raise Mistake(("parameter", part), text)
        _parameter(("parameter", part), one)
    _argv(app)
    _environment(app)
    if app.config:
        _config(app.config)
    _limits(("limits",), app.limits)
    for user in app.user:
        _limits(("user", user), app.limits_of(user))
    _staging(app.staging)


def _takes(name: str, app: Application) -> None:
    """Check that an application for commands, functions or pilots has its fixed name and keys."""
    _pilots(app)
    if app.takes == "parameters":
        if name == "pilot":
            hint = '`takes = "pilot"`, or another name'
            raise Mistake(("takes",), "`parameters`: `pilot` takes pilots", hint=hint)
        return
    if name != app.takes:
        raise Mistake(("takes",), f"`{app.takes}`: such an application is called `{app.takes}`")
    given: dict[str, object] = {"argv": app.argv, "parameter": app.parameter, "config": app.config}
    if app.takes in ("commands", "pilot"):
        given["executable"] = app.executable
    if app.takes == "pilot":
        # A pilot is the agent's own program; its jobs transfer their own data.
        given |= {key: getattr(app, key) for key in _NO_PILOT}
    for key, value in given.items():
        if value:
            raise Mistake((key,), f"given: the application takes {app.takes}")


def _pilots(app: Application) -> None:
    """Check the limits of pilots, and that other applications have no keys of pilots."""
    every: dict[_At, AppLimits] = {("limits",): app.limits}
    for user in app.user:
        with toml.at("user", user):
            every["user", user] = app.limits_of(user)
    if app.takes == "pilot":
        for url in app.hubs:
            if not HUB.fullmatch(url):
                raise Mistake(("hubs",), f"{url!r}", hint="such as https://hub.example.org:8420")
        for at, one in every.items():
            _pilot_limits(at, one)
        return
    if app.hubs:
        raise Mistake(("hubs",), "given: only pilots go to hubs")
    for at, one in every.items():
        if one.maximum:
            raise Mistake((*at, "maximum"), "given: it is for pilots")


def _pilot_limits(at: _At, one: AppLimits) -> None:
    if not 1 <= one.maximum <= _MOST_CORES:
        text = f"{one.maximum}: it says how many cores the pilots of each hub may have"
        raise Mistake((*at, "maximum"), text)
    if not 0 <= one.pending <= _MOST_CORES:
        raise Mistake((*at, "pending"), str(one.pending))
    for key in ("nodes", "tasks"):
        if getattr(one, key) > 1:
            raise Mistake((*at, key), f"{getattr(one, key)}: a pilot is on one node")


def _parameter(at: _At, one: Parameter) -> None:
    try:
        re.compile(one.pattern)
    except re.error as error:
        raise Mistake((*at, "pattern"), f"{one.pattern!r}: {error}") from None
    if one.kind == "text" and not one.pattern:
        raise Mistake((*at, "pattern"), "empty: a text must say what it may hold")
    if one.kind == "choice" and not one.choices:
        raise Mistake((*at, "choices"), "empty: a choice must say what it may be")
    if one.kind == "flag" and not one.flag:
        raise Mistake((*at, "flag"), "empty: a flag must say which argument it is")
    if not 1 <= one.longest <= _LONGEST:
        raise Mistake((*at, "longest"), f"{one.longest}: from 1 to {_LONGEST}")
    if one.minimum > one.maximum:
        raise Mistake((*at, "minimum"), f"{one.minimum}, which is above the maximum")
    if one.default is not None:
        _, reason = command.fill_value(at[-1], one, one.default)
        if reason:
            raise Mistake((*at, "default"), f"{one.default!r}: {reason}")


def _argv(app: Application) -> None:
    groups: Iterable[tuple[str, tuple[str, ...]]] = [
        *(("argv", (one,) if isinstance(one, str) else one) for one in app.argv),
        ("preprocess", app.preprocess), ("postprocess", app.postprocess),
        ("launcher_words", app.launcher_words),
    ]  # fmt: skip
    for key, tokens in groups:
        for token in tokens:
            _token(app, (key,), token)
    stars = [one for one in app.argv if one == command.STAR]
    if len(stars) != (app.config is not None and app.config.format == "words"):
        text = f"`{command.STAR}` {len(stars)} times: it stands for the words of a config, once"
        raise Mistake(("argv",), text)


def _token(app: Application, at: _At, token: str) -> None:
    if BAD.search(token):
        raise Mistake(at, f"{token!r}: it has control characters")
    if token == command.STAR:
        return
    try:
        names = template.names(token)
    except errors.BadRule as error:
        raise Mistake(at, f"{token!r}: {error.message}", hint=error.hint) from None
    for name in sorted(names):
        if name not in app.parameter and name not in command.KNOWN:
            known = ", ".join([*app.parameter, *command.KNOWN])
            text = f"{token!r}: there is no parameter `{name}`"
            raise Mistake(at, text, hint=f"there are {known}")
        flag = name in app.parameter and app.parameter[name].kind == "flag"
        if flag and token != f"{{{name}}}":
            raise Mistake(at, f"{token!r}: the flag `{name}` is an argument of its own")


def _environment(app: Application) -> None:
    for name in app.env_allow:
        if not _VARIABLE.fullmatch(name) or _NEVER.fullmatch(name):
            text = f"{name!r}: with it a user could have another program run"
            raise Mistake(("env_allow",), text)
    for name, value in app.env.items():
        if not _VARIABLE.fullmatch(name) or BAD.search(value):
            raise Mistake(("env", name), f"{value!r}")


def _config(config: Config) -> None:
    with toml.at("config", "time"):
        seconds = units.seconds(config.time)
    with toml.at("config", "memory"):
        memory = units.size(config.memory)
    if not 0 < seconds <= 600:
        raise Mistake(("config", "time"), f"{config.time!r}: a parser has up to 10 minutes")
    if memory < 2**20:
        raise Mistake(("config", "memory"), f"{config.memory!r}: no parser can live with that")
    if config.format == "words":
        if config.word is None:
            raise Mistake(("config", "word"), "absent: it must say what each word may be")
        _parameter(("config", "word"), config.word)
        if config.word.kind in ("flag", "path"):
            raise Mistake(("config", "word"), f"of the kind {config.word.kind}")
    if config.program and "{file}" not in config.program:
        raise Mistake(("config", "program"), "without `{file}`, which is the file to read")


def _limits(at: _At, limits: AppLimits) -> None:
    for key, least in (("nodes", 1), ("tasks", 1), ("cpus", 1), ("gpus", 0), ("jobs", 0)):
        value = getattr(limits, key)
        if value < least:
            raise Mistake((*at, key), str(value))
    if limits.memory:
        with toml.at(*at, "memory"):
            units.size(limits.memory)
    with toml.at(*at, "time"):
        seconds = units.seconds(limits.time or 0)
    if not seconds > 0:
        raise Mistake((*at, "time"), f"{limits.time!r}: a job needs some")
    for one in limits.options:
        if not one.startswith("-"):
            raise Mistake((*at, "options"), f"{one!r}: options begin with `-`")


def _staging(staging: Staging) -> None:
    for one in staging.private:
        try:
            ipaddress.ip_network(one)
        except ValueError as error:
            raise Mistake(("staging", "private"), f"{one!r}: {error}") from None
    for one in staging.roots:
        if not one.startswith("/") or "/../" in f"{one}/":
            raise Mistake(("staging", "roots"), f"{one!r}: it is not an absolute path")
    if "file" in staging.protocols and not staging.roots:
        raise Mistake(("staging", "roots"), "empty while `file` is among the protocols")


def _place(app: Application, program: str) -> _At:
    """Return the key that names a program."""
    named = {"executable": (app.executable,), "preprocess": app.preprocess,
             "postprocess": app.postprocess}  # fmt: skip
    found = (key for key, argv in named.items() if argv[:1] == (program,))
    key = next(found, "")
    return (key,) if key else ("config", "program")


FOLDER = "apps"
_ENABLED = re.compile(r"^enabled[ \t]*=[ \t]*(?:true|false)[ \t]*(#.*)?$", re.MULTILINE)
#: Keys at the top of a new file, with a comment for each.
_ABOUT = {
    "about": "What it is, for people.",
    "version": "Each job keeps it in its record.",
    "executable": "The program, and the SHA-256 that it must have.",
    "argv": "Its arguments: each is one argument, whatever the parameters in it hold.",
    "launcher": "What starts its tasks: none, srun or mpirun.",
    "container": "The container image that it runs in.",
    "preprocess": "Runs in the job's folder before it.",
    "postprocess": "Runs in the job's folder after it.",
}
#: A comment before each table.
_TABLE_ABOUT = {
    "parameter": "What a user may fill in.",
    "limits": "What a job may ask for; an empty list means any.",
    "user": "What single users may ask for instead.",
    "staging": "Where data may come from and go to; no hosts means none.",
    "config": "How a config file becomes parameters.",
    "env": "Environment variables that are always set.",
    "pins": "The SHA-256 of each further program.",
}


APPS = toml.TomlFolder(
    folder=FOLDER, kind=Application, noun="application", page="applications",
    hint="`pilotage app add`",
    check=check, mode=0o644,
)  # fmt: skip
file_of, names, read, parse = APPS.file, APPS.names, APPS.read, APPS.parse


def write(root: Path, name: str, app: Application) -> Path:
    """Write the file of a new application, which only its owner may change."""
    check(name, app)
    return APPS.create(root, name, text(name, app))


def switch(root: Path, name: str, *, enabled: bool) -> Path:
    """Enable or disable an application; nothing else in its file changes."""
    read(root, name)
    file = file_of(root, name)
    source = file.read_text(encoding="utf-8")
    line = f"enabled = {'true' if enabled else 'false'}"
    head, bracket, tail = source.partition("\n[")
    if _ENABLED.search(head):
        head = _ENABLED.sub(lambda found: " ".join([line, found[1] or ""]).rstrip(), head, count=1)
    else:
        head = f"{line}\n{head}"
    made = head + bracket + tail
    if parse(made, name, file).enabled is not enabled:
        raise errors.Conflict(
            f"`enabled` cannot be changed in {file}", hint="change it with an editor"
        )
    durable.write(file, made)
    return file


def text(name: str, app: Application) -> str:
    """Write an application as TOML: values that are not defaults, with comments."""
    lines = [
        f"# Application {name}. `pilotage app test {name}` shows what runs for which parameters.",
    ]
    fresh = Application(executable="", sha256="")
    tables: list[str] = []
    for key in Application.__struct_fields__:
        value = getattr(app, key)
        if isinstance(value, msgspec.Struct) or (isinstance(value, dict) and value):
            tables += ["", f"# {_TABLE_ABOUT[key]}", *_table(key, value, getattr(fresh, key))[1:]]
        elif value != getattr(fresh, key) or key in ("version", "enabled", "argv"):
            lines += [
                "",
                *([f"# {_ABOUT[key]}"] if key in _ABOUT else []),
                f"{key} = {_toml(value)}",
            ]
    return "\n".join([*lines, *tables, ""])


def _table(key: str, value: object, usual: object) -> list[str]:
    """Write a table, or one for each of its members."""
    if isinstance(value, dict) and all(
        isinstance(one, (msgspec.Struct, dict)) for one in value.values()
    ):
        return [
            line
            for name, one in value.items()
            for line in _section(f"{key}.{_key(name)}", one, _usual(one))
        ]
    if isinstance(value, dict):
        return ["", f"[{key}]", *(f"{_key(name)} = {_toml(one)}" for name, one in value.items())]
    if key == "limits":
        return _section(key, value, {"maximum": 0, "pending": 0})
    return _section(key, value, {} if key == "staging" else _plain(usual))


def _section(head: str, value: object, usual: dict[str, Any]) -> list[str]:
    given = _plain(value)
    told = [
        f"{_key(name)} = {_toml(one)}"
        for name, one in given.items()
        if one is not None and (name == "kind" or name not in usual or one != usual[name])
    ]
    return ["", f"[{head}]", *told]


def _usual(one: object) -> dict[str, Any]:
    return _plain(Parameter(kind=one.kind)) if isinstance(one, Parameter) else {}


def _plain(value: object) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(value) if value is not None else {}
    return found


def _toml(value: object) -> str:
    """Write a value inline: as JSON, except for tables."""
    if isinstance(value, dict):
        inner = ", ".join(
            f"{_key(name)} = {_toml(one)}" for name, one in value.items() if one is not None
        )
        return f"{{ {inner} }}"
    return msgspec.json.encode(value).decode()


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


#: Maximal number of links to follow.
_MOST_LINKS = 40


def digest(path: str) -> str:
    """Return the SHA-256 of a file."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise errors.NotFound(f"{path} cannot be read: {error.strerror}") from None


def exposed(path: str) -> str:
    """Return who else could change or replace a file; empty if no one could."""
    todo, links = path, 0
    while True:
        for one in _chain(todo):
            try:
                facts = os.lstat(one)
            except OSError as error:
                return f"{one}: {error.strerror}"
            if reason := _loose(one, facts):
                return reason
            if stat.S_ISLNK(facts.st_mode):
                links += 1
                rest = todo[len(one) :]
                todo = os.path.join(os.path.dirname(one), os.readlink(one)) + rest
                todo = os.path.normpath(todo)
                break
        else:
            return ""
        if links > _MOST_LINKS:
            return f"{path}: its links lead nowhere"


def _chain(path: str) -> list[str]:
    """Return all folders above a path from the root on, and itself."""
    parts = [part for part in path.split("/") if part]
    return ["/", *("/" + "/".join(parts[: at + 1]) for at in range(len(parts)))]


def _loose(path: str, facts: os.stat_result) -> str:
    if facts.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to user {facts.st_uid}, neither to root nor to us"
    if stat.S_ISLNK(facts.st_mode):
        return ""  # its mode means nothing
    if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        # In a folder such as /tmp others may add files, but not move or remove ours.
        if stat.S_ISDIR(facts.st_mode) and facts.st_mode & stat.S_ISVTX:
            return ""
        return f"{path} can be written by others (mode {stat.S_IMODE(facts.st_mode):04o})"
    return ""


class Trust:
    """Checks programs at each use; unchanged files are not read again."""

    def __init__(self) -> None:
        """Start with an empty cache."""
        self._known: dict[str, tuple[Version, str]] = {}

    def reasons(self, app: Application) -> list[str]:
        """Return the problems of the programs of an application."""
        found = [self._why_not(path, sha256) for path, sha256 in app.programs().items()]
        return [reason for reason in found if reason]

    def require(self, app: Application) -> None:
        """Raise `Denied` if a program of an application is not to be trusted."""
        if reasons := self.reasons(app):
            hint = "the site's administrator must check it: `pilotage app test NAME`"
            raise errors.Denied("; ".join(reasons), hint=hint)

    def _why_not(self, path: str, sha256: str) -> str:
        if reason := exposed(path):
            return reason
        facts = os.stat(path)
        if not stat.S_ISREG(facts.st_mode) or not facts.st_mode & 0o111:
            return f"{path} is not a program"
        if self._digest(path, facts) != sha256:
            return f"{path} is not the program that was registered: its SHA-256 differs"
        return ""

    def _digest(self, path: str, facts: os.stat_result) -> str:
        now = Version.of(facts)
        known = self._known.get(path)
        if known is None or known[0] != now:
            known = self._known[path] = (now, digest(path))
        return known[1]
