"""The view of pools in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser import Made, Window

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]


def test_pools_are_shown_with_why_and_paused(tab: Window, made: Made) -> None:
    page = tab.open("/pools")
    expect(page.locator(".empty")).to_contain_text("No pools yet")
    folder = made.hub.folder / "pools"
    folder.mkdir()
    try:
        (folder / "burst.toml").write_text('site = "cluster"\nmaximum = 8\n')
        (folder / "wrong.toml").write_text('site = "cluster"\nmaximun = 8\n')
        page = tab.open("/pools")
        burst = page.locator("section.panel").filter(has_text="burst")
        expect(burst).to_contain_text("at cluster · 0 of at most 8 cores")
        expect(burst.locator(".chart")).to_contain_text("after a few seconds")
        expect(page.locator("section.panel").filter(has_text="wrong")).to_contain_text("maximun")
        burst.get_by_role("button", name="Pause").click()
        expect(burst.locator(".badge")).to_have_text("paused")
        burst.get_by_role("button", name="Resume").click()
        expect(burst.get_by_role("button", name="Pause")).to_be_visible()
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
