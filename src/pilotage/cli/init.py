"""`pilotage init`: create a project."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pilotage.base import errors
from pilotage.cli.answer import Answer, Shown, Styled, line
from pilotage.cli.common import HERE, Common
from pilotage.project import settings

_SETTINGS = """\
# Settings of this Pilotage project. What is left out has its default;
# `pilotage config show` lists all settings and where each comes from.

[site]
# cpus = 4            # cores given to jobs; 0 means all
# memory = "8G"       # memory given to jobs; empty means all
# on_exit = "linger"  # "stop" ends running jobs when Pilotage stops, "linger" lets them go on

[events]
# mode = "poll"       # "auto" polls only where inotify is blind (NFS, Lustre, ...)

[retention]
# keep = "30d"        # jobs that ended longer ago are forgotten with their logs

# [hub]
# host = "0.0.0.0"    # let pilots and programs on other machines in, encrypted

# [app.convert]       # recipes may say `app = "convert"`
# argv = ["/usr/bin/convert"]
"""

_RULES = """\
# Rules: what to wait for, and what to run then. A change takes effect as soon as it is saved.
# `pilotage rule check` looks for mistakes,
# `pilotage rule test --event FILE` shows what would happen.

# Each text file in inbox/ is written in capitals to outbox/.
# {path} is the file that came, {match.name} what `{name}` stood for.

[rule.capitals]
files = "inbox/{name}.txt"
script = '''
mkdir -p "$(dirname "$result")"
tr '[:lower:]' '[:upper:]' < "$PILOTAGE_PATH" > "$result"
'''
params = { result = "{base}/outbox/{match.name}.txt" }
outputs = { result = "outbox/{match.name}.txt" }

# More that a rule can do:
#
# [rule.fit]
# files = ["raw/*.csv", "more/**/*.csv"]
# sweep = { level = [1, 2, 3] }          # one job for each value
# run = ["python", "fit.py", "{path}", "--level", "{level}"]
# cpus = 2
# memory = "4G"
# time = "1h"
# retry = 3
#
# [rule.nightly]
# cron = "0 3 * * *"
# python = "report.py:main"
"""


def init(
    folder: Annotated[Path, Parameter(help="The folder; created if missing.")] = Path(),
    /,
    *,
    at: Common = HERE,
) -> Answer:
    """Create a project in a folder, with settings and a working example rule."""
    root = (at.project or Path()) / folder
    try:
        made = make(root.resolve())
    except OSError as error:
        message = f"cannot make a project in `{root}`: {error.strerror}"
        raise errors.StoreUnavailable(
            message, hint="choose a folder that you may write to"
        ) from error
    enter = "" if root.resolve() == Path.cwd() else f"cd {folder} && "
    shown: list[Shown] = [line(Styled("✔", "green"), f" {root.resolve()} is a project")]
    shown += [f"  {name}" for name in made] or ["  it was one before; nothing was changed"]
    shown += ["", "Next, run it; then, in another terminal, give it something to do:", ""]
    shown += [f"  {enter}pilotage up", f"  {enter}mkdir -p inbox && echo hello > inbox/hi.txt"]
    return Answer(
        {"project": str(root.resolve()), "made": made}, tuple(shown), (str(root.resolve()),)
    )


def make(root: Path) -> list[str]:
    """Write missing files, and return their names."""
    made = []
    for name, content in ((settings.FILE, _SETTINGS), ("rules/example.toml", _RULES)):
        file = root / name
        if file.exists() or (name.startswith("rules/") and any(root.glob("rules/*"))):
            continue
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
        made.append(name)
    return made
