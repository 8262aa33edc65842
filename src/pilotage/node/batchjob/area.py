"""The folder of an item: what is put there for its payload, and what is taken away after it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from .. import beside
from . import inputs, surroundings

_PROGRAMS = ("call.py", "warm.py")


class Area:
    """One item and its folder."""

    def __init__(self, path: str, item: Mapping[str, Any]) -> None:
        self.path = path
        #: Declared outputs by name, also those that need not be there.
        self.outputs = {**(item.get("outputs") or {}), **(item.get("optional") or {})}
        self._item = item
        self._programs = [os.path.join(path, "lib", name) for name in _PROGRAMS]

    def prepare(self, launch: Mapping[str, Any]) -> None:
        """Make the folders and programs that the launch names."""
        if not self._holds(launch["dir"]):
            raise inputs.PlaceError(f"{launch['dir']} is not below {self.path}")
        os.makedirs(self.path, exist_ok=True)
        cwd = f"{launch['cwd']}/"
        # The attempt's own directory is made by the starter, as its claim.
        if self._holds(cwd) and not cwd.startswith(f"{launch['dir']}/"):
            os.makedirs(cwd, exist_ok=True)
        for path in self._programs:
            if path in launch["argv"]:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(beside.data(os.path.basename(path)))

    def open_folders(self) -> None:
        """Make the folders that outputs go to, as they are where the job comes from."""
        for folder in {os.path.dirname(path) for path in self.outputs.values()}:
            if self._holds(f"{folder}/"):
                os.makedirs(folder, exist_ok=True)

    @contextlib.contextmanager
    def mounted(self, launch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Have the data there, if it is to be mounted; yields the launch that sees it."""
        if not self._item.get("mount"):
            yield launch
            return
        from . import mount

        with mount.mounted(self._item, self.path) as path:
            yield mount.shown(launch, path)

    def completed(
        self, launch: dict[str, Any], env: Mapping[str, str], passed: Mapping[str, str]
    ) -> dict[str, Any]:
        """Add to the launch what it needs of this node."""
        launch = surroundings.completed(launch, env)
        if self._item.get("image"):
            from . import image

            launch = image.ready(launch, self._item, self.path)
        if (launch.get("sandbox") or {}).get("kind", "none") != "none":
            from .. import boxed

            launch = boxed.complete(launch, passed, self._programs)
        return launch

    def clean(self) -> None:
        """Remove what nobody needs any more, if that is wanted: inputs and our programs."""
        if self._item.get("cleanup"):
            ours = [one["path"] for one in self._item.get("inputs") or ()]
            for path in (*ours, *self._programs):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _holds(self, path: str) -> bool:
        return path.startswith(f"{self.path}/")
