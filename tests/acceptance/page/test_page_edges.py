"""Sites that are heard of by messages, on the page: how they are, since when, and the broker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from anyio.from_thread import BlockingPortal
from playwright.sync_api import Browser, Locator, Page, expect

from pilotage.bus.model import Scheduler
from testbed.fault_proxy import FaultProxy
from testbed.rabbit import Rabbit
from tests.rigs.broker.site_messages import OwnExchange, Site, served
from tests.rigs.project.browser import EVIL, Hub, Window, until, window

pytestmark = pytest.mark.needs("chromium")
SICK = Scheduler(batch="slurm", well=False, text=f"slurmctld does not answer {EVIL}")
LONG = "a-site-with-a-long-name." + "x" * 60


class Scene:
    """A hub that hears of sites."""

    def __init__(self, hub: Hub, site: Site, portal: BlockingPortal, proxy: FaultProxy) -> None:
        self.hub, self._site, self._portal, self.proxy = hub, site, portal, proxy

    def beat(self, name: str, **more: Any) -> None:
        self._site.name = name
        self._portal.start_task_soon(lambda: self._site.beat(**more)).result(60)

    def beat_all(self) -> None:
        """Have all sites be as they are meant to be; none is silent for a while."""
        counts = {"running": 12, "queued": 3, "done": 5000}
        self.beat("mira", counts=counts, certificate_days=300.5, outbox=4)
        self.beat("theta", draining=True, certificate_days=5.0)
        self.beat("cooley", scheduler=SICK)
        self.beat(LONG)

    def edges(self) -> dict[str, str]:
        return {one["name"]: one["state"] for one in self.hub.ask("sites")["sites"]}


@pytest.fixture(scope="module")
def scene(rabbit: Rabbit, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with FaultProxy(rabbit.port) as proxy:
        lane = OwnExchange(rabbit, proxy.port)
        hub = Hub(tmp_path_factory.mktemp("edges") / "project", settings=lane.settings())
        site = Site(lane)
        with served(site) as portal, hub:
            until(lambda: not hub.ask("sites")["broker"]["trouble"])
            made = Scene(hub, site, portal, proxy)
            made.beat_all()
            until(lambda: len(made.edges()) == 4, made.edges)
            yield made


@pytest.fixture
def tab(chromium: Browser, scene: Scene) -> Iterator[Window]:
    with window(chromium, scene.hub) as found:
        yield found


def row(page: Page, site: str) -> Locator:
    return page.locator(f'table.sites tr[data-key="{site}"]')


def test_sites_show_what_their_agents_say(tab: Window, scene: Scene):
    page = tab.open("/sites")
    scene.beat_all()
    mira, theta, cooley = (row(page, one) for one in ("mira", "theta", "cooley"))
    expect(mira.locator(".badge")).to_have_text("well")
    expect(mira.locator(".c-jobs")).to_contain_text("12 running, 3 queued")
    expect(mira.locator(".c-jobs")).to_contain_text("4 status messages to be sent")
    expect(mira.locator(".c-jobs")).not_to_contain_text("done")
    expect(mira.locator(".c-agent")).to_contain_text("certificate 300 d")
    expect(theta.locator(".badge")).to_have_text("draining")
    expect(theta.locator(".warned")).to_contain_text("its certificate expires in 4 d")
    expect(cooley.locator(".badge")).to_have_text("trouble")
    expect(cooley.locator(".c-state")).to_contain_text(SICK.text)
    # Those that need a person come first.
    expect(page.locator("table.sites tbody tr").first).to_have_attribute("data-key", "cooley")
    # What is new comes by itself.
    scene.beat("cooley")
    expect(cooley.locator(".badge")).to_have_text("well")
    scene.beat("cooley", scheduler=SICK)
    expect(cooley.locator(".badge")).to_have_text("trouble")


def test_a_broker_that_is_away_is_told_of_once(tab: Window, scene: Scene):
    page = tab.open("/sites")
    scene.beat_all()
    expect(row(page, "mira").locator(".badge")).to_have_text("well")
    scene.proxy.refuse()
    try:
        alarm = page.locator(".alarms .alarm")
        expect(alarm).to_contain_text("The broker cannot be reached")
        expect(row(page, "mira").locator(".badge")).to_have_text("unknown")
        expect(row(page, "mira").locator(".c-state")).to_contain_text("was well when")
    finally:
        scene.proxy.well()
    expect(row(page, "mira").locator(".badge")).to_have_text("well")
    expect(alarm).to_have_count(0)


@pytest.mark.parametrize("size", [(1280, 800), (390, 844)])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_every_screen(chromium: Browser, scene: Scene, size: tuple[int, int], scheme: str):
    width, height = size
    view = {"width": width, "height": height}
    with window(chromium, scene.hub, viewport=view, color_scheme=scheme) as tab:
        page = tab.open("/sites")
        expect(row(page, "cooley")).to_be_visible()
        assert tab.overflow() <= 0
