"""The keys of recipes and rules in rule files, with their types.

The same keys serve TOML files, the decorators of Python files and the API. `build` turns them into
the data types of `model`.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pilotage.job.model import BatchOptions, Data, OnChange, State, Via

#: A size or duration: a number, or text such as `"8G"` and `"1h 30m"`.
Amount = str | int | float
#: One text, or several.
Texts = str | tuple[str, ...]


class SchemaPart(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A table of a rule file: its keys are closed."""


class RetryText(SchemaPart, frozen=True):
    """When and how often a failed job is tried again."""

    #: Attempts in all.
    attempts: int = 3
    #: How long to wait before the second attempt.
    delay: Amount = 1
    #: By how much each further wait is longer.
    factor: float = 2.0
    #: The longest wait.
    longest: Amount = "1h"


class LimitText(SchemaPart, frozen=True):
    """Limit on the jobs with the same key that run at once."""

    #: Template of the key.
    key: str
    #: Jobs at once.
    most: int = 1


#: How a job runs at a site, as people write it.
Way = Literal["batch", "sbatch", "srun", "direct"]


class BatchText(BatchOptions, SchemaPart, frozen=True):
    """What a job that is a batch job of its own asks the batch system for."""

    #: Slurm's word for `queue`.
    partition: str = ""


class GatherText(SchemaPart, frozen=True):
    """Several files, one job."""

    #: Template of what the files of one set share.
    by: str = ""
    #: So many different files make a set complete.
    count: int | None = None
    #: Template of the item that distinguishes the files of a set; together with `values`.
    item: str = ""
    #: All these items make a set complete: a list, or a range as in a sweep.
    values: list[Any] | dict[str, Any] | None = None


class RecipeText(SchemaPart, frozen=True):
    """What can be written in `[recipe.NAME]`, and also in a rule."""

    #: A program and its arguments; one word such as `"sbatch"` is understood as `via`.
    run: tuple[str, ...] | None = None
    #: A script: a file beside the rule file, or its text if it has more than one line.
    script: str | None = None
    #: What runs the script; unless given, its `#!` line, or bash.
    interpreter: Texts | None = None
    #: Arguments of a script or application.
    args: tuple[str, ...] | None = None
    #: A Python file beside the rule file, `"file.py:function"`, or text of several lines.
    python: str | None = None
    #: The function of it that is called.
    function: str | None = None
    #: A Jupyter notebook beside the book.
    notebook: str | None = None
    #: The kernel of the notebook.
    kernel: str | None = None
    #: Where the executed notebook goes.
    output: str | None = None
    #: An application of the project's configuration.
    app: str | None = None
    #: The interpreter for `python` and `notebook`.
    python_bin: str | None = None
    #: A workflow: a file beside the rule file or in the project's directory.
    flow: str | None = None
    #: Parameters; text values are templates.
    params: dict[str, Any] = {}
    #: Files that must exist after the run, by name; templates.
    outputs: dict[str, str] = {}
    #: Files that a run may write or not, by name, so that what they cause is known; templates.
    optional_outputs: dict[str, str] = {}
    #: Environment variables; templates.
    env: dict[str, str | int | float] = {}
    #: Working directory; a template.
    cwd: str | None = None
    #: Processor cores.
    cpus: int | None = None
    #: Memory, such as `"8G"`.
    memory: Amount | None = None
    #: GPUs.
    gpus: int | None = None
    #: Disk, such as `"100G"`.
    disk: Amount | None = None
    #: Wall time, such as `"1h"`.
    time: Amount | None = None
    #: Where it may run: an expression over the offer and the job, such as `"gpus >= 2"`.
    requirements: str | None = None
    #: Where it would rather run: an expression, the higher the better, such as `"memory / cpus"`.
    rank: str | None = None
    #: The container image that it runs in.
    image: str | None = None
    #: The site that it runs at, as in `sites/NAME.toml`.
    site: str | None = None
    #: How it runs there: as a batch job (`"sbatch"`, the same as `"batch"`), as a blocking step
    #: (`"srun"`), or straight on the host that one logs in to (`"direct"`).
    via: Way | None = None
    #: What it asks the batch system for; `slurm` is another name for it.
    batch: BatchText | None = None
    slurm: BatchText | None = None
    #: Whether its data is copied to the site or mounted there from this machine.
    data: Data | None = None
    #: Files and folders that it reads beside its trigger; templates, globs.
    inputs: Texts | None = None
    #: Attempts in all, or a table.
    retry: int | RetryText | None = None
    #: Higher runs first.
    priority: int | None = None
    #: Template of a key of which one job runs at once, or a table.
    limit: str | LimitText | None = None
    #: What happens if the input is another version at start than at match time.
    on_change: OnChange | None = None
    #: Exit codes that count as success.
    ok_codes: tuple[int, ...] | None = None


class RuleText(RecipeText, frozen=True):
    """What can be written in `[rule.NAME]`."""

    #: Globs of files below the project's directory.
    files: Texts | None = None
    #: A regular expression on the path below the project's directory.
    regex: str | None = None
    #: Time between ticks.
    every: Amount | None = None
    #: Minute, hour, day of month, month, day of week.
    cron: str | None = None
    #: Topics of messages.
    message: Texts | None = None
    #: Names of jobs that ended.
    job: Texts | None = None
    #: Time zone of `cron`.
    zone: str | None = None
    #: What is made up for after a pause.
    catch_up: Literal["none", "one", "all"] | None = None
    #: TCP port on which the rule listens for messages.
    port: int | None = None
    #: States in which the jobs ended.
    states: tuple[State, ...] | None = None
    #: What happened to the files.
    events: tuple[str, ...] | None = None
    #: Globs of what is left out.
    exclude: Texts | None = None
    #: Bounds on the size.
    min_size: Amount | None = None
    max_size: Amount | None = None
    #: Bounds on the time since the last change.
    min_age: Amount | None = None
    max_age: Amount | None = None
    #: Wait until nothing has happened to the file for so long.
    settle: Amount | None = None
    #: What makes a version of a file.
    version: Literal["stat", "content"] | None = None
    #: Several files, one job.
    gather: GatherText | None = None
    #: Variables and their values; one job for each point.
    sweep: dict[str, Any] | None = None
    #: Whether each value meets each other, or the lists go side by side.
    sweep_mode: Literal["product", "zip"] = "product"
    #: The recipe, by name.
    recipe: str | None = None
    #: At most this many jobs in a span of time, such as `"10/min"`.
    rate: str | None = None
    #: How often the rule may stand among the ancestors of its own job.
    max_depth: int = 100
    #: How often a minute the same file may fire the rule.
    max_repeats: int = 60
    #: Whether the SHA-256 of the trigger is recorded.
    sha256: bool = False
    #: Whether it takes events.
    enabled: bool = True


#: How a job runs at a site, as people write it and as we call it.
WAYS: dict[str, Via] = {"batch": "batch", "sbatch": "batch", "srun": "srun", "direct": "direct"}

#: What a recipe is, exactly one; and the keys that only some of them take.
RECIPES = ("run", "script", "python", "notebook", "app", "flow")
RECIPE_KEYS = {
    "interpreter": ("script",),
    "args": ("script", "app"),
    "kernel": ("notebook",),
    "output": ("notebook",),
    "python_bin": ("python", "notebook"),
    "function": ("python",),
}
#: Keys that say how a single job runs: the steps of a workflow have their own.
STEP_KEYS = (
    "outputs", "optional_outputs", "env", "cwd", "cpus", "memory", "gpus", "disk", "time",
    "requirements", "rank", "image", "site", "via", "batch", "slurm", "data", "inputs", "priority",
    "ok_codes",
)  # fmt: skip

#: What a rule waits for, exactly one; and the keys that only some of them take.
TRIGGERS = ("files", "regex", "every", "cron", "message", "job")
FILES = ("files", "regex")
TRIGGER_KEYS = {
    "events": FILES,
    "exclude": FILES,
    "min_size": FILES,
    "max_size": FILES,
    "min_age": FILES,
    "max_age": FILES,
    "settle": FILES,
    "version": FILES,
    "gather": FILES,
    "zone": ("cron",),
    "catch_up": ("every", "cron"),
    "port": ("message",),
    "states": ("job",),
}
