"""Scripts written for MEOW run here once they import from this module.

All names of a script come from here:
`from pilotage.compat.meow import FileEventPattern, MeowRunner, …`.
Constructors take what MEOW's take, and jobs end as folders `job_N` of `job_output_dir` with
`job.yml` (which is JSON), `stdout.txt`, `stderr.txt`, the recipe and the notebook. What differs:

* Nothing is lost and nothing is repeated: state is kept in `job_queue_dir`, and a runner that
  starts again on it goes on where the last one stopped. A file fires a rule once for each of its
  versions; a rule that changes is another rule, and applies to what exists as MEOW's does.
* A file fires when it is complete: with the usual mask, once it is closed or moved into place and
  has been left alone for `settletime`, which may be 0 or a fraction. In masks without
  `file_closed`, `file_created` and `file_modified` mean what they say.
* `*` stays in one directory and passes hidden files over, and `**` goes deeper, for files that are
  there and for files that come. (MEOW's `*` crossed directories for the latter only.)
* Values are never written into source. They travel as environment variables (bash), globals
  (Python) or papermill's parameters; the default that a recipe assigns to such a name is taken out
  of it. True is `true` in bash, and lists are JSON there.
* Paths that jobs get are absolute; `{JOB}` is the name of the job's folder.
* As many jobs run at once as there are conductors; nothing is polled, so `pause_time` has no
  effect. `stop` waits for running jobs, and the rest stays queued for the next start.
* Mail is not sent and files are not traced: such arguments warn.
"""

from __future__ import annotations

from pilotage.compat.meow.monitor import SocketMonitor, WatchdogMonitor
from pilotage.compat.meow.pattern import (
    DEFAULT_MASK,
    DIR_CREATED_EVENT,
    DIR_DELETED_EVENT,
    DIR_MODIFIED_EVENT,
    DIR_MOVED_EVENT,
    DIR_RETROACTIVE_EVENT,
    FILE_CLOSED_EVENT,
    FILE_CREATED_EVENT,
    FILE_DELETED_EVENT,
    FILE_MODIFIED_EVENT,
    FILE_MOVED_EVENT,
    FILE_RETROACTIVE_EVENT,
    FileEventPattern,
    SocketPattern,
    create_parameter_sweep,
)
from pilotage.compat.meow.recipe import (
    BashRecipe,
    JupyterNotebookRecipe,
    PythonRecipe,
    create_python_requirements,
    get_recipe_from_notebook,
)
from pilotage.compat.meow.role import (
    BashHandler,
    LocalBashConductor,
    LocalPythonConductor,
    PapermillHandler,
    PythonHandler,
)
from pilotage.compat.meow.rule import Rule
from pilotage.compat.meow.runner import MeowRunner

__all__ = [
    "DEFAULT_MASK",
    "DIR_CREATED_EVENT",
    "DIR_DELETED_EVENT",
    "DIR_MODIFIED_EVENT",
    "DIR_MOVED_EVENT",
    "DIR_RETROACTIVE_EVENT",
    "FILE_CLOSED_EVENT",
    "FILE_CREATED_EVENT",
    "FILE_DELETED_EVENT",
    "FILE_MODIFIED_EVENT",
    "FILE_MOVED_EVENT",
    "FILE_RETROACTIVE_EVENT",
    "BashHandler",
    "BashRecipe",
    "FileEventPattern",
    "JupyterNotebookRecipe",
    "LocalBashConductor",
    "LocalPythonConductor",
    "MeowRunner",
    "PapermillHandler",
    "PythonHandler",
    "PythonRecipe",
    "Rule",
    "SocketMonitor",
    "SocketPattern",
    "WatchdogMonitor",
    "create_parameter_sweep",
    "create_python_requirements",
    "get_recipe_from_notebook",
]
