"""A hub in a temporary folder and a real browser that looks at its page."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import httpx2
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, Response

from testbed.ports import free_port
from tests.suite.programs import PATIENCE, end, until_ready

SRC = str(Path(__file__).parents[3] / "src")
#: A name that would be code if it were ever taken for markup.
EVIL = "<img src=x onerror=alert(1)>"


class Hub:
    """A project with `pilotage up`, on a port of its own."""

    def __init__(self, folder: Path, rules: str = "", settings: str = "") -> None:
        self.folder = folder
        self.port = free_port()
        (folder / "rules").mkdir(parents=True)
        (folder / "rules/book.toml").write_text(rules)
        (folder / "pilotage.toml").write_text(f"[hub]\nport = {self.port}\n{settings}")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def said(self) -> Path:
        """What it printed."""
        return self.folder / ".said"

    @property
    def token(self) -> str:
        return (self.folder / ".pilotage/admin-token").read_text().strip()

    def start(self) -> None:
        """Start it and wait until it answers."""
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "pilotage", "up"],
                cwd=self.folder, env={**os.environ, "PYTHONPATH": SRC},
                stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            )  # fmt: skip
        until_ready(self.process, self._answers, self.said.read_text, PATIENCE)

    def stop(self) -> None:
        """End it as a person would."""
        assert self.process is not None
        end(self.process)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _answers(self) -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(f"{self.address}/readyz").status_code == 200
        return False

    def ask(self, path: str, body: object = None, method: str = "") -> Any:
        """Ask its API something."""
        answer = httpx2.request(
            method or ("GET" if body is None else "POST"),
            f"{self.address}/api/v1/{path}",
            headers={"Authorization": f"Bearer {self.token}"},
            json=body,
            timeout=PATIENCE,
        )
        assert answer.is_success, answer.text
        return answer.json()

    def submit(self, *argv: str, tag: str = "", count: int = 1, **spec: object) -> list[int]:
        """Queue the same command some times."""
        job = {
            "spec": {"name": argv[0], "recipe": {"kind": "command", "argv": argv}, **spec},
            "tag": tag,
        }
        ids: list[int] = self.ask("jobs", {"jobs": [job] * count})["ids"]
        return ids

    def shell(self, script: str, **spec: object) -> int:
        """Queue a line for the shell."""
        return self.submit("sh", "-c", script, **spec)[0]  # type: ignore[arg-type]

    @contextmanager
    def pilot(self, name: str, site: str) -> Iterator[subprocess.Popen[bytes]]:
        """Have a real pilot offer two cores."""
        secret = self.folder / f"{name}.token"
        secret.touch(0o600)
        secret.write_text(self.ask("tokens", {"scope": "enrol", "site": site, "uses": 1})["token"])
        words = ["--hub", self.address, "--secret-file", str(secret), "--name", name]
        process = subprocess.Popen(
            [sys.executable, "-m", "pilotage", "pilot", "run", *words, "--cpus", "2",
             "--work", str(self.folder / name)],
            env={**os.environ, "PYTHONPATH": SRC}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            yield process
        finally:
            end(process)

    def becomes(self, job: int, *states: str) -> None:
        """Wait for a state of a job."""
        until(lambda: self.ask(f"jobs/{job}")["state"] in states, lambda: self.ask(f"jobs/{job}"))


class Made(NamedTuple):
    """A hub, and its jobs by what they show."""

    hub: Hub
    done: int
    failed: int
    running: int
    unfit: int
    held: int
    evil: int


def until(condition: Callable[[], object], why: Callable[[], object] = lambda: "") -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.05)


class Window:
    """One tab, and all that it said and asked."""

    def __init__(self, page: Page, hub: Hub) -> None:
        self.page, self.hub = page, hub
        self.problems: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(60_000)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._asks)
        page.on("response", self._answered)
        page.on("dialog", lambda dialog: self.problems.append(f"dialog: {dialog.message}"))

    def _heard(self, message: ConsoleMessage) -> None:
        # That an answer was not 2xx is told by `_answered`, with the address.
        told = "Failed to load resource" in message.text
        if message.type in {"error", "warning"} and not told:
            self.problems.append(message.text)

    def _asks(self, request: Request) -> None:
        self.asked.append(request.url)

    def _answered(self, response: Response) -> None:
        if response.status >= 400:
            self.problems.append(f"{response.status} {response.url}")

    def open(self, view: str = "/") -> Page:
        """Come in with the token in the address, then go to a view."""
        self.page.goto(f"{self.hub.address}/#token={self.hub.token}")
        self.page.locator(".figures").wait_for()
        return self.go(view)

    def go(self, view: str) -> Page:
        """Go to a view by its address."""
        self.page.goto(f"{self.hub.address}/#{view}")
        self.page.locator(f'.view[data-at="#{view}"] > *').first.wait_for()
        return self.page

    @property
    def strangers(self) -> list[str]:
        """Requests that went elsewhere."""
        own = urlsplit(self.hub.address).netloc
        return [
            url
            for url in self.asked
            if urlsplit(url).scheme not in {"data", "blob"} and urlsplit(url).netloc != own
        ]

    def overflow(self) -> int:
        """Pixels by which the page is wider than its window."""
        found: int = self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return found


@contextmanager
def window(browser: Browser, hub: Hub, **options: Any) -> Iterator[Window]:
    """Have a tab that shares nothing with others, and check that nothing went wrong in it."""
    context = browser.new_context(**options)
    try:
        found = Window(context.new_page(), hub)
        yield found
        assert found.problems == []
        assert found.strangers == []
    finally:
        context.close()
