"""The structure of the file of an application."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pilotage.base import text, toml


class Parameter(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A parameter that users set."""

    #: What it holds; a `path` is below the folder of the job, a `flag` is on or off.
    kind: Literal["text", "integer", "number", "choice", "flag", "path"]
    #: For people.
    about: str = ""
    #: Whether a job must set it, unless there is a default.
    required: bool = True
    #: Its value if a job does not set it.
    default: str | int | float | bool | None = None
    #: A regular expression that all of a `text` must match; of a `path`, that it must match too.
    pattern: str = ""
    #: Maximal number of characters.
    longest: int = 256
    #: Smallest and largest number.
    minimum: int | float = 0
    maximum: int | float = 9_223_372_036_854_775_807
    #: Values of a `choice`.
    choices: tuple[str, ...] = ()
    #: The argument for a `flag` that is on; there is none if it is off.
    flag: str = ""
    #: Whether a text may begin with `-`, where a program might take it for an option.
    dash: bool = False


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the config file of a job becomes parameters."""

    #: Format of the file or of the output of `program`: `key = value` lines, JSON, or words.
    format: Literal["keys", "json", "words"] = "keys"
    #: The site's own parser and its arguments; `{file}` is the file. Empty means none.
    program: tuple[str, ...] = ()
    #: Time limit of the parser.
    time: str = "10s"
    #: Memory limit of the parser.
    memory: str = "1G"
    #: Rule for each word; the words replace `"{*}"` in the template.
    word: Parameter | None = None
    #: Maximal number of words.
    most: int = 100


class AppLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Limits on the requests of jobs of this application."""

    #: Queues; none means any.
    queues: tuple[str, ...] = ()
    #: Projects that may be charged; none means any.
    projects: tuple[str, ...] = ()
    #: Nodes.
    nodes: int = 1
    #: Tasks on each node.
    tasks: int = 1
    #: Cores of each task.
    cpus: int = 1
    #: GPUs of each node.
    gpus: int = 0
    #: Memory of each node; empty means any.
    memory: str = ""
    #: Wall time.
    time: str = "1h"
    #: Jobs of one user that are not over; 0 means any number.
    jobs: int = 0
    #: Options of the batch system that jobs may use, such as `"--exclusive"`.
    options: tuple[str, ...] = ()
    #: Of pilots: maximal cores of one hub's pilots, including waiting ones.
    maximum: int = 0
    #: Of pilots: maximal number of one hub's pilots in the batch queue; 0 means any number.
    pending: int = 0


class Staging(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where data may come from and go to."""

    #: Kinds of URLs; `hub` is the hub that the agent dials, if it dials one: its port, and small
    #: files within its messages. `message` allows them in messages of a broker, too.
    protocols: tuple[str, ...] = ("https", "sftp", "hub")
    #: Hosts, such as `"data.example.org"`, `"*.example.org"` or `"host:8443"`; none means none.
    hosts: tuple[str, ...] = ()
    #: Networks of this site that may be reached, such as `"10.1.0.0/16"`; else none of them.
    private: tuple[str, ...] = ()
    #: Folders that `file:` URLs may be below.
    roots: tuple[str, ...] = ()


class Application(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file `apps/NAME.toml`."""

    #: The program: its absolute path. Of functions, the Python that calls them; of commands and
    #: pilots, none.
    executable: str = ""
    #: Its SHA-256; another program in its place is not run.
    sha256: str = ""
    #: What a job fills in: `parameters` of the program, or `commands` or `functions` of its own, or
    #: the order of a `pilot` that runs jobs of a hub. With these three, those who may use the
    #: application run any program as the site's user.
    takes: Literal["parameters", "commands", "functions", "pilot"] = "parameters"
    #: Of pilots: addresses of the hubs that they may connect to. Pilots of an agent that dials a
    #: hub connect to that one.
    hubs: tuple[str, ...] = ()
    #: Its version, recorded with each job.
    version: str = "1"
    #: For people.
    about: str = ""
    #: Whether jobs may use it.
    enabled: bool = True
    #: Its arguments, each a text with `{parameters}` in it; a list within is there as a whole or
    #: not at all.
    argv: tuple[str | tuple[str, ...], ...] = ()
    #: What starts its tasks; empty means the site's own.
    launcher: Literal["", "none", "srun", "mpirun"] = ""
    #: Further words of the launcher.
    launcher_words: tuple[str, ...] = ()
    #: Environment variables that a job may set.
    env_allow: tuple[str, ...] = ()
    #: Environment variables that are always set.
    env: dict[str, str] = {}
    #: The container image that it runs in; empty means none.
    container: str = ""
    #: Programs with arguments that run in the job's folder before and after the job.
    preprocess: tuple[str, ...] = ()
    postprocess: tuple[str, ...] = ()
    #: The SHA-256 of each further program: parsers, and what runs before and after.
    pins: dict[str, str] = {}
    #: Users who may use it, as named in their certificates; `*` matches any characters.
    users: tuple[str, ...] = ("*",)
    #: Parameters by name.
    parameter: dict[str, Parameter] = {}
    #: How a config file is read; without it jobs have none.
    config: Config | None = None
    #: Limits on jobs.
    limits: AppLimits = AppLimits()
    #: Limits of single users: some keys of `limits` with other values.
    user: dict[str, dict[str, Any]] = {}
    #: Where data may come from and go to.
    staging: Staging = Staging()

    def limits_of(self, user: str) -> AppLimits:
        """Return the limits of a user; raise `ConfigError` for a key that cannot be so."""
        own = self.user.get(user)
        if not own:
            return self.limits
        return toml.convert(msgspec.structs.asdict(self.limits) | own, AppLimits)

    def programs(self) -> dict[str, str]:
        """Return every program that is run, with the SHA-256 that it must have."""
        more = [self.preprocess, self.postprocess, self.config.program if self.config else ()]
        pinned = {argv[0]: self.pins.get(argv[0], "") for argv in more if argv}
        none = self.takes in ("commands", "pilot")
        own = {} if none else {self.executable: self.sha256}
        return {**own, **pinned}


text.prime(Application)
