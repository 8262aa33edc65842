"""Sites on the page: how they are, what is there, and the switch that gives them no more."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from testbed.ports import free_port
from tests.rigs.project.browser import EVIL, Hub, Window, until, window

pytestmark = pytest.mark.needs("chromium")


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Iterator[Hub]:
    hub = Hub(tmp_path_factory.mktemp("sites") / "project")
    sites = hub.folder / "sites"
    sites.mkdir()
    (sites / "desk.toml").write_text(
        f'batch = "local"\nfolder = "{hub.folder}/site"\nabout = "under the {EVIL} desk"\n'
    )
    (hub.folder / "ssh").write_text(f"Host far\n  HostName 127.0.0.1\n  Port {free_port()}\n")
    (sites / "far.toml").write_text(
        f'batch = "slurm"\nhost = "far"\nssh_config = "{hub.folder}/ssh"\n'
    )
    with hub:
        yield hub


@pytest.fixture
def tab(chromium: Browser, hub: Hub) -> Iterator[Window]:
    with window(chromium, hub) as found:
        yield found


def row(page: Page, site: str) -> Locator:
    return page.locator(f'table.sites tr[data-key="{site}"]')


def test_sites_show_how_they_are_and_what_is_there(tab: Window, hub: Hub):
    job = hub.shell("sleep 600", name="long", site="desk", via="batch")
    hub.becomes(job, "running")
    page = tab.open("/sites")
    here = row(page, "desk")
    expect(here.locator(".c-state .badge")).to_have_text("here")
    expect(here.locator(".c-name")).to_contain_text("local on this machine")
    expect(here.locator(".c-name")).to_contain_text(EVIL)
    expect(here.locator(".c-jobs")).to_have_text("1 running")
    far = row(page, "far")
    expect(far.locator(".c-state .badge")).to_have_text("not answering")
    expect(far.locator(".c-state")).to_contain_text("far")
    expect(far.locator(".c-jobs")).to_have_text("none")
    hub.ask(f"jobs/{job}/cancel", method="POST")
    expect(here.locator(".c-jobs")).to_have_text("none")


def test_a_site_is_given_nothing_while_its_switch_is_off(tab: Window, hub: Hub):
    page = tab.open("/sites")
    switch = row(page, "desk").get_by_role("switch")
    expect(switch).to_be_checked()
    switch.click()
    expect(switch).not_to_be_checked()
    expect(row(page, "desk").locator(".c-switch")).to_contain_text("off")
    assert asked(hub, "desk") == "drain"
    # The hub itself hears of it soon.
    until(lambda: not _taken(hub))
    page.keyboard.press("Space")
    expect(switch).to_be_checked()
    assert asked(hub, "desk") == ""
    hub.becomes(hub.shell("true", name="after", site="desk", via="batch"), "done")


def _taken(hub: Hub) -> bool:
    """Say whether the site takes a job."""
    job = hub.shell("true", name="probe", site="desk", via="batch")
    until(lambda: hub.ask(f"jobs/{job}")["state"] == "done" or "drain" in str(why(hub, job)))
    taken = bool(hub.ask(f"jobs/{job}")["state"] == "done")
    if not taken:
        hub.ask(f"jobs/{job}/cancel", method="POST")
    return taken


def why(hub: Hub, job: int) -> object:
    return hub.ask(f"jobs/{job}/explain")


def asked(hub: Hub, site: str) -> str:
    [found] = [one for one in hub.ask("sites")["sites"] if one["name"] == site]
    return "drain" if found["drain"] else ""


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen(chromium: Browser, hub: Hub, size: tuple[int, int], scheme: str):
    width, height = size
    view = {"width": width, "height": height}
    with window(chromium, hub, viewport=view, color_scheme=scheme) as tab:
        page = tab.open("/sites")
        expect(row(page, "far")).to_be_visible()
        assert tab.overflow() <= 0
