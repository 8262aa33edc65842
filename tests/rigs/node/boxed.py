"""Run one item as the program on a worker node does: `boxed.py CODE AREA`, the item on stdin.

What is to be mounted is mounted, the image is loaded, the payload runs in its sandbox, and what it
said is printed as JSON.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO


def main(code: str, area: str) -> None:
    sys.path.insert(0, code)
    image, mount, sandbox = (
        importlib.import_module(name) for name in ("single.image", "single.mount", "sandbox")
    )
    item = json.load(sys.stdin)
    try:
        with mount.mounted(item, area) as path:
            launch = image.ready(mount.shown(item["launch"], path), item, area)
            Path(launch["dir"]).mkdir(parents=True)
            wrapped = sandbox.wrap(launch)
            fd = os.memfd_create("handed")
            os.write(fd, wrapped.handed)
            os.lseek(fd, 0, os.SEEK_SET)
            os.dup2(fd, 3)
            with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
                done = subprocess.run(
                    wrapped.argv,
                    env={"PATH": os.environ["PATH"], **wrapped.env},
                    cwd=launch["cwd"],
                    pass_fds=(3,),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    check=False,
                )
                said = {"exit": done.returncode, "out": _text(out), "err": _text(err)}
            used = launch.get("sandbox", {}).get("image", "")
            sys.stdout.write(
                json.dumps(
                    {
                        **said,
                        "image": used,
                        "left": sorted(one.name for one in Path(path or area).iterdir()),
                    }
                )
            )
    except (mount.NotMountedError, image.NoImageError, OSError) as error:
        sys.stdout.write(json.dumps({"error": str(error)}))


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode()


if __name__ == "__main__":
    main(*sys.argv[1:])
