"""The views of flows in a real browser, with flows that the hub runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.rigs.project.browser import EVIL, Made, Window, until, window

pytestmark = pytest.mark.needs("chromium")

#: Where the boxes of the graph are.
PLACES = (
    "[...document.querySelectorAll('.flow-graph .node')]"
    ".map((node) => node.getAttribute('transform'))"
)


def run(words: str, **more: Any) -> dict[str, Any]:
    return {"run": ["sh", "-c", words], **more}


def gated(gate: Path) -> dict[str, Any]:
    """A step that finds a list, tasks for it that wait for files, and what follows."""
    return {
        "name": "gated",
        "description": "Waits for a person.",
        "step": {
            "begin": run("echo said by begin"),
            "work": run(
                f"until [ -e {gate}/{{item}} ]; do sleep 0.1; done",
                each=[0, 1, 2], needs=["begin"],
            ),
            "last": run(f"test -e {gate}/good", needs=["work"]),
        },
    }  # fmt: skip


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def flow(made: Made, gate: Path) -> Iterator[int]:
    """A flow that is under way, and whose tasks wait."""
    number: int = made.hub.ask("flows", {"flow": gated(gate)})["id"]
    until(lambda: step(made, number, "begin")["state"] == "done")
    yield number
    for item in range(3):
        (gate / str(item)).touch()
    if not over(made, number):
        made.hub.ask(f"flows/{number}/cancel", method="POST")
    until(lambda: over(made, number))


def step(made: Made, number: int, name: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = made.hub.ask(f"flows/{number}")["rows"]
    return next(one for one in rows if one["name"] == name)


def over(made: Made, number: int) -> bool:
    return made.hub.ask(f"flows/{number}")["state"] in {"done", "failed", "cancelled"}


def node(page: Page, name: str) -> Locator:
    return page.locator(f'.flow-graph [data-node="{name}"]')


def test_the_graph_goes_on_while_one_looks_and_does_not_move(
    tab: Window, made: Made, flow: int, gate: Path
):
    page = tab.open("/flows")
    row = page.locator(f'table.flows tr[data-key="{flow}"]')
    expect(row).to_contain_text("1/3")
    row.get_by_role("link").click()
    expect(page.locator("h1")).to_contain_text("gated")
    expect(node(page, "begin")).to_contain_text("here")
    expect(node(page, "work")).to_contain_text("work 0/3")
    expect(node(page, "last")).to_have_class("node quiet waiting")
    # What is on the page now must be the same elements to the end: nothing is drawn anew.
    page.evaluate("document.querySelector('.flow-graph').dataset.mine = 'yes'")
    places = page.evaluate(PLACES)
    (gate / "0").touch()
    expect(node(page, "work")).to_contain_text("work 1/3")
    for name in ("1", "2", "good"):
        (gate / name).touch()
    expect(node(page, "last")).to_have_class("node good done")
    expect(page.locator("h1 .badge")).to_have_text("done")
    assert page.locator(".flow-graph[data-mine]").count() == 1
    assert places == page.evaluate(PLACES)
    expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


def test_a_step_shows_its_tasks_its_reason_and_what_it_wrote(
    tab: Window, made: Made, flow: int, gate: Path
):
    page = tab.open(f"/flows/{flow}")
    node(page, "work").click()
    panel = page.locator(".flow-step")
    expect(panel.locator("tbody tr")).to_have_count(3)
    expect(panel.locator("tbody tr").first).to_contain_text("running")
    (gate / "1").touch()
    panel.get_by_role("button", name="done").click()
    expect(panel.locator("tbody tr")).to_have_count(1)
    node(page, "last").click()
    expect(panel.locator(".headline")).to_have_text("waits for work")
    # By keys, too, and the address keeps it.
    node(page, "begin").focus()
    page.keyboard.press("Enter")
    expect(panel.locator("pre.text")).to_contain_text("said by begin")
    expect(panel.get_by_role("link", name="job ")).to_be_visible()
    assert page.evaluate("location.hash") == f"#/flows/{flow}?step=begin"
    panel.get_by_role("button", name="Close").click()
    expect(panel).to_be_hidden()


def test_a_flow_that_failed_is_run_again_and_another_is_called_off(
    tab: Window, made: Made, flow: int, gate: Path
):
    for item in range(3):
        (gate / str(item)).touch()
    page = tab.open(f"/flows/{flow}")
    expect(page.locator("h1 .badge")).to_have_text("failed")
    expect(page.locator(".alarm.bad")).to_contain_text("last failed")
    (gate / "good").touch()
    page.get_by_role("button", name="Retry failed steps").click()
    page.get_by_role("button", name="Retry it").click()
    expect(page.locator("h1 .badge")).to_have_text("done")
    assert step(made, flow, "work")["attempts"] == 3
    assert step(made, flow, "last")["attempts"] == 2
    (gate / "2").unlink()
    node(page, "work").click()
    page.get_by_role("button", name="Retry from here").click()
    page.get_by_role("button", name="Retry it").click()
    expect(node(page, "work")).to_contain_text("work 2/3")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel it").click()
    expect(page.locator("h1 .badge")).to_have_text("cancelled")
    expect(node(page, "last")).to_have_class("node quiet cancelled")


def test_whoever_may_only_look_has_no_buttons(chromium: Browser, made: Made, flow: int):
    secret = made.hub.ask("tokens", {"scope": "read"})["token"]
    with window(chromium, made.hub) as tab:
        tab.page.goto(f"{made.hub.address}/#token={secret}")
        tab.page.locator(".figures").wait_for()
        page = tab.go(f"/flows/{flow}")
        expect(page.locator(".head").first).to_contain_text("may read, but not change")
        expect(page.get_by_role("button", name="Cancel")).to_have_count(0)


@pytest.mark.parametrize("width, height", [(1280, 900), (390, 844)])
def test_four_hundred_steps_are_readable(chromium: Browser, made: Made, width: int, height: int):
    nowhere = {"application": "sim", "requirements": "site == 'nowhere'"}
    steps: dict[str, Any] = {"start": {**nowhere, "parameters": {"what": EVIL}}}
    steps |= {f"sim-{n:03}": {**nowhere, "needs": ["start"]} for n in range(400)}
    steps["end"] = {**nowhere, "needs": list(steps)[1:]}
    body = {"flow": {"name": EVIL, "step": steps}, "key": f"wide-{width}"}
    number = made.hub.ask("flows", body)["id"]
    with window(chromium, made.hub, viewport={"width": width, "height": height}) as tab:
        page = tab.open(f"/flows/{number}")
        expect(page.locator(".flow-graph .node")).to_have_count(3)
        expect(node(page, "sim-000")).to_contain_text("sim* 0/400")
        expect(page.locator("h1")).to_contain_text(EVIL)
        assert tab.overflow() == 0
        node(page, "sim-000").click()
        expect(page.locator("table.flow-steps tbody tr")).to_have_count(300)
        page.get_by_label("Search steps").fill("sim-39")
        expect(page.locator("table.flow-steps tbody tr")).to_have_count(10)
        tab.go("/flows")
        expect(page.locator(f'table.flows tr[data-key="{number}"]')).to_contain_text("0/402")
        assert tab.overflow() == 0
    made.hub.ask(f"flows/{number}/cancel", method="POST")
