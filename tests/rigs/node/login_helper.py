"""A login helper as the hub starts it, and submissions as it prepares them."""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from pilotage.batch.login import BOOTSTRAP
from pilotage.node.login.orders import rendered
from pilotage.pilot import pack

DEADLINE = 60.0
PACKAGE = [sys.executable, "-m", "pilotage.node"]
SOURCE = str(Path(__file__).parents[3] / "src")


class LoginHelper:
    """Frames to and from the real program."""

    def __init__(self, argv: list[str], env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**os.environ, "PYTHONPATH": SOURCE, **(env or {})},
        )
        #: News with the time of their arrival.
        self.news: list[tuple[float, dict[str, Any]]] = []
        self.complaints = b""
        self._replies: dict[int, queue.SimpleQueue[dict[str, Any]]] = {}
        self._number = 0
        self._threads = [
            threading.Thread(target=one, daemon=True) for one in (self._listen, self._drain)
        ]

    @classmethod
    def booted(cls, root: Path | str, python: str = sys.executable) -> tuple[LoginHelper, str]:
        """Start one as the hub does, through one level of a shell; return what it said first."""
        data = pack.archive()
        sha = hashlib.sha256(data).hexdigest()
        command = shlex.join([python, "-c", BOOTSTRAP, str(root), sha, str(len(data))])
        hand = cls(["sh", "-c", command])
        line = b""
        while not line.endswith(b"\n") and (piece := hand._out.read(1)):
            line += piece
        if line == b"need\n":
            hand._in.write(data)
        return hand.listening(), line.decode()

    @classmethod
    def plain(cls, root: Path | str, env: Mapping[str, str] | None = None) -> LoginHelper:
        """Start one from the package."""
        return cls([*PACKAGE, "hand", str(root)], env).listening()

    def listening(self) -> LoginHelper:
        for thread in self._threads:
            thread.start()
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> int:
        """End it as a lost connection does."""
        if not self._in.closed:
            self._in.close()
        code = self.process.wait(DEADLINE)
        for thread in self._threads:
            thread.join(DEADLINE)
        for pipe in (self._out, self.process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    def send(self, op: str, **fields: Any) -> queue.SimpleQueue[dict[str, Any]]:
        self._number += 1
        reply: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._replies[self._number] = reply
        data = json.dumps({"n": self._number, "op": op, **fields}).encode()
        self._in.write(len(data).to_bytes(4, "big") + data)
        return reply

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        """Return the whole reply."""
        return self.send(op, **fields).get(timeout=DEADLINE)

    def __call__(self, op: str, **fields: Any) -> dict[str, Any]:
        """Return what a request is granted."""
        reply = self.ask(op, **fields)
        assert "ok" in reply, reply
        return dict(reply["ok"])

    def names(self) -> list[str]:
        return [item["name"] for _, item in self.news]

    @property
    def _in(self) -> Any:
        return self.process.stdin

    @property
    def _out(self) -> Any:
        return self.process.stdout

    def _listen(self) -> None:
        while head := self._exactly(4):
            message = json.loads(self._exactly(int.from_bytes(head, "big")))
            if "n" in message:
                self._replies.pop(message["n"]).put(message)
            else:
                self.news += [(time.time(), item) for item in message["news"]]

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self._out.read(size - len(data))
            if not piece:
                return b""
            data += piece
        return bytes(data)

    def _drain(self) -> None:
        assert self.process.stderr is not None
        while piece := self.process.stderr.read(4096):
            self.complaints += piece


class Place:
    """The folder of a project at a site, with submissions."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name in ("bin", "s", "news", "cache"):
            (root / name).mkdir(parents=True, exist_ok=True)
        self.program = root / "bin" / "program.pyz"
        pack.write(self.program)
        #: What each payload appends to when it runs.
        self.ledger = root.with_name(f"{root.name}.ledger")

    def item(self, key: str, *argv: str, index: int = 0, **more: Any) -> dict[str, Any]:
        """Make an item; `launch` in `more` changes its launch."""
        area = self.root / "s" / key / str(index)
        launch = {
            "key": f"{key}-{index}.1",
            "argv": list(argv),
            "env": {},
            "inherit": True,
            "cwd": str(area / "data"),
            "dir": str(area / "run"),
            **more.pop("launch", {}),
        }
        plain: dict[str, Any] = {
            "outputs": {},
            "optional": {},
            "inputs": [],
            "mount": None,
            "image": None,
        }
        return {"launch": launch, **plain, "cleanup": False, **more}

    def order(self, key: str, *items: dict[str, Any]) -> dict[str, Any]:
        return {"v": 1, "key": key, "root": str(self.root), "items": list(items)}

    def submit(self, key: str, *items: dict[str, Any]) -> Path:
        """Write an order as a hand does, and return its folder."""
        folder = self.root / "s" / key
        folder.mkdir()
        (folder / "order.json").write_text(rendered(self.order(key, *items)))
        return folder

    def noted(self, key: str, *then: str) -> tuple[str, ...]:
        """Make a command that notes its run outside, whatever happens to the job's folder."""
        script = f"echo {key} $PILOTAGE_KEY >> {shlex.quote(str(self.ledger))}; {' '.join(then)}"
        return "sh", "-c", script

    def runs(self, key: str) -> int:
        try:
            lines = self.ledger.read_text().splitlines()
        except FileNotFoundError:
            return 0
        return sum(line.split()[0] == key for line in lines)

    def start(
        self, folder: Path, env: Mapping[str, str] | None = None, program: list[str] | None = None
    ) -> subprocess.Popen[str]:
        """Start the job as the batch system does."""
        argv = program or [sys.executable, "-I", "-S", str(self.program)]
        return subprocess.Popen(
            [*argv, "job", str(folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": SOURCE, **(env or {})},
        )

    def run(self, folder: Path, **options: Any) -> subprocess.CompletedProcess[str]:
        with self.start(folder, **options) as process:
            out, err = process.communicate(timeout=DEADLINE)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def told(self, key: str, kind: str = "ended", index: int = 0) -> dict[str, Any]:
        """Read news."""
        return dict(json.loads((self.root / "news" / f"{key}.{index}.{kind}").read_text()))

    def evidence(self, key: str, index: int = 0) -> dict[str, Any]:
        return dict(self.told(key, index=index)["end"])


def wait_for(condition: Callable[..., object], *args: object, seconds: float = DEADLINE) -> None:
    deadline = time.monotonic() + seconds
    while not condition(*args):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
