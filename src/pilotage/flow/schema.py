"""What a person can write of a workflow: every key, with its type.

The same keys serve files of TOML and of JSON, messages and the Python form.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage.flow.model import OnFailure
from pilotage.rule.schema import Amount, LimitText, SchemaPart, Texts

#: A number or the least and the most of it.
Count = int | tuple[int, int]
Extent = Amount | tuple[Amount, Amount]


class FlowText(SchemaPart, msgspec.Struct, frozen=True):
    """What can be written at the top of a workflow."""

    #: What it is called; of a flow within another that is the name of the step.
    name: str = ""
    #: For people.
    description: str = ""
    #: Parameters with their usual values.
    params: dict[str, Any] = {}
    #: Parameters that have none and must be given.
    required: Texts = ()
    #: Its steps by name.
    step: dict[str, Any] = {}
    #: What comes out: by name, a step or `"step/output"`.
    outputs: dict[str, str] = {}
    #: A URL that those go to at the end.
    to: str = ""
    #: How often tasks may be tried again, in all.
    retries: int = 100
    #: Who is told how it goes.
    notify: dict[str, Any] = {}


class StepText(SchemaPart, msgspec.Struct, frozen=True):
    """What can be written in `[step.NAME]`."""

    #: The site, or those among which one is chosen; templates.
    site: str | None = None
    sites: Texts | None = None
    #: An expression over a site that must hold.
    requirements: str = ""
    #: Steps that must be over before; those that it names elsewhere need not be told here.
    needs: Texts = ()
    #: An application of a site; a template.
    application: str = ""
    #: A program and its arguments, for this hub; `command` is another name for it.
    run: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    #: A script: a file beside the workflow, or its text if it has more than one line.
    script: str | None = None
    #: What runs the script; unless given, its `#!` line, or bash.
    interpreter: Texts | None = None
    #: Arguments of a script or application.
    args: tuple[str, ...] | None = None
    #: A Python file beside the workflow, `"file.py:function"`, or text of more than one line.
    python: str | None = None
    #: The function of it that is called; what it returns is the result of the task.
    function: str | None = None
    #: A Jupyter notebook beside the workflow.
    notebook: str | None = None
    #: The kernel of the notebook.
    kernel: str | None = None
    #: Where the executed notebook goes.
    output: str | None = None
    #: An application of this hub's configuration.
    app: str | None = None
    #: The interpreter for `python` and `notebook`.
    python_bin: str | None = None
    #: A flow of its own: a file beside this one, or a table.
    flow: str | dict[str, Any] | None = None
    #: Parameters of the application, the recipe or the flow; templates.
    parameters: dict[str, Any] = {}
    #: Text for the parser of the application; a template.
    config: str = ""
    #: The same in a file among the inputs.
    config_file: str = ""
    #: Environment variables; templates.
    env: dict[str, str | int | float] = {}
    #: A list, or the template of one that is known only later: one task for each item.
    each: list[Any] | str | None = None
    #: An expression; if it does not hold the step is skipped.
    when: str = ""
    #: What it reads: `"step"`, `"step/file"`, a URL, or a table with `from`, `as` and `sha256`.
    inputs: str | tuple[str | dict[str, str], ...] = ()
    #: Names below its folder that it leaves; one that ends with `/` is a folder.
    outputs: Texts = ()
    #: The output that is a small JSON file: its content is the result of the task.
    result: str = ""
    #: What a failure means: `fail`, `continue`, `retry` or `other_site`.
    on_failure: OnFailure = "fail"
    #: How often a task is tried again.
    retries: int = 0
    #: How long before the next try.
    delay: Amount = 1
    #: Template of a key of which one job runs at once, or a table with `key` and `most`.
    limit: str | LimitText | None = None
    #: Nodes, or the least and the most.
    nodes: Count = 1
    #: Tasks on each node.
    tasks: int = 1
    #: Wall time, or the least and the most, such as `["10m", "1h"]`.
    time: Extent = 0
    #: Node time that it needs at least, whatever its shape, such as `"16h"`.
    work: Amount = 0
    #: Cores of each task.
    cpus: int = 1
    #: Memory, GPUs and disk of each node.
    memory: Amount = 0
    gpus: int = 0
    disk: Amount = 0
    #: Queue and project at the site.
    queue: str = ""
    project: str = ""
    #: Further options of the batch system.
    options: Texts = ()


class InputText(SchemaPart, frozen=True):
    """An input with what it is called."""

    #: `"step"`, `"step/file"`, a URL, or a path below the project's folder.
    source: str = msgspec.field(name="from")
    #: What it is called below the folder of the job.
    name: str = msgspec.field(name="as", default="")
    sha256: str = ""
