"""The view of pools in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.rigs.project.browser import Made, Window, until, window

pytestmark = pytest.mark.needs("chromium")

#: It keeps more than needs no leave, so it asks as soon as somebody looks after it.
COSTLY = 'site = "here"\nmaximum = 4\nminimum = 2\nask_above = 1\ninterval = "1s"\n'


@pytest.fixture
def pools(made: Made) -> Iterator[Path]:
    """A folder for the files of pools, and a site on this machine."""
    folder, sites = made.hub.folder / "pools", made.hub.folder / "sites"
    folder.mkdir()
    sites.mkdir()
    (sites / "here.toml").write_text('batch = "local"\n')
    yield folder
    for file in (*folder.iterdir(), *sites.iterdir()):
        file.unlink()
    folder.rmdir()
    sites.rmdir()
    until(lambda: not made.hub.ask("pools")["pools"])


def row(page: Page, name: str) -> Locator:
    return page.locator(f'table.pools tr[data-key="{name}"]')


def test_a_project_without_pools_says_how_to_make_one(tab: Window):
    page = tab.open("/pools")
    expect(page.locator(".empty")).to_contain_text("No pools yet")
    expect(page.locator(".empty code")).to_contain_text("pilotage pool add")


def test_pools_are_shown_with_why_and_paused(tab: Window, pools: Path):
    (pools / "burst.toml").write_text('site = "here"\nmaximum = 8\n')
    (pools / "wrong.toml").write_text('site = "here"\nmaximun = 8\n')
    page = tab.open("/pools")
    expect(row(page, "burst")).to_contain_text("0 of 8")
    expect(page.locator(".alarm")).to_contain_text("wrong has a mistake in its file")
    expect(page.locator(".head .note")).to_contain_text("2 pools: 1 bad file")
    row(page, "burst").get_by_role("link").click()
    expect(page.locator("h1")).to_contain_text("burst")
    expect(page.locator(".chart").first).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Back").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    page.get_by_role("button", name="Pause it").click()
    expect(page.locator("h1 .badge")).to_have_text("paused")
    page.get_by_role("button", name="Resume").click()
    expect(page.get_by_role("button", name="Pause")).to_be_visible()


def test_a_pool_that_asks_first_is_allowed_and_the_leave_is_taken_back(tab: Window, pools: Path):
    (pools / "costly.toml").write_text(COSTLY)
    page = tab.open("/pools")
    alarm = page.locator(".alarm").filter(has_text="costly asks first")
    expect(alarm).to_contain_text("wants 2 cores, more than the 1 that need no leave")
    alarm.get_by_role("button", name="Allow").click()
    expect(page.locator("dialog")).to_contain_text("maximum of 4 cores")
    page.get_by_role("button", name="Allow it").click()
    expect(alarm).to_have_count(0)
    row(page, "costly").get_by_role("link").click()
    expect(page.locator("dl.facts")).to_contain_text("ask_above = 0")
    page.get_by_role("button", name="Reset to its file").click()
    expect(page.locator("dl.facts")).not_to_contain_text("ask_above = 0")


def test_curves_of_a_pool_that_is_looked_after_are_drawn(tab: Window, pools: Path):
    (pools / "quick.toml").write_text('site = "here"\nmaximum = 4\ninterval = "1s"\n')
    page = tab.open("/pools/quick")
    expect(page.locator(".chart canvas")).to_have_count(3)
    expect(page.locator(".why")).to_contain_text("Its demand is 0 cores.")
    page.get_by_role("link", name="Pools", exact=True).last.click()
    expect(row(page, "quick").locator("svg path.wants")).to_have_count(1)


def test_whoever_may_only_look_has_no_buttons(chromium: Browser, made: Made, pools: Path):
    (pools / "costly.toml").write_text(COSTLY)
    secret = made.hub.ask("tokens", {"scope": "read"})["token"]
    with window(chromium, made.hub) as tab:
        tab.page.goto(f"{made.hub.address}/#token={secret}")
        tab.page.locator(".figures").wait_for()
        page = tab.go("/pools")
        expect(page.locator(".alarm")).to_contain_text("costly asks first")
        expect(page.get_by_role("button", name="Allow")).to_have_count(0)
        page = tab.go("/pools/costly")
        expect(page.locator(".head")).to_contain_text(["may read, but not control"])
        expect(page.get_by_role("button", name="Pause")).to_have_count(0)


@pytest.mark.parametrize("width, height", [(1280, 900), (390, 844)])
def test_two_hundred_pools_are_readable(
    chromium: Browser, made: Made, pools: Path, width: int, height: int
):
    for number in range(200):
        # Nobody looks after a pool whose site has no file.
        (pools / f"line-{number:03}.toml").write_text('site = "far"\nmaximum = 8\n')
    with window(chromium, made.hub, viewport={"width": width, "height": height}) as tab:
        page = tab.open("/pools")
        expect(page.locator("table.pools tbody tr")).to_have_count(200)
        assert tab.overflow() == 0
        page.keyboard.press("/")
        page.keyboard.type("line-19")
        expect(page.locator("table.pools tbody tr")).to_have_count(10)
        page.keyboard.type("nine")
        expect(page.locator(".empty")).to_contain_text("No pool matches")
