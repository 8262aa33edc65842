"""The page in a real browser, over a real hub: what each view shows, and that it stays true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.rigs.project.browser import Hub, Made, Window, until, window

pytestmark = pytest.mark.needs("chromium")

VIEWS = ("/", "/jobs", "/rules", "/pilots", "/shares")


def test_overview_shows_counts_rates_and_the_last_failures(tab: Window, made: Made) -> None:
    page = tab.open()
    expect(page.locator(".figure[data-state=running] dd")).to_have_text("1")
    expect(page.locator(".figure[data-state=held] dd")).to_have_text("1")
    failures = page.locator(".failures li")
    expect(failures.filter(has_text="broken")).to_contain_text("exit")
    expect(page.locator(".rates")).to_contain_text("Cores in use")
    expect(page).to_have_title(re.compile(r"Overview \(1 running\) · Pilotage"))
    failures.filter(has_text="broken").get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("broken")


def test_overview_goes_on_by_itself(tab: Window, made: Made) -> None:
    page = tab.open()
    before = int(page.locator(".figure[data-state=done] dd").inner_text())
    loaded = len([url for url in tab.asked if url.endswith("/static/js/main.js")])
    made.hub.submit("true", name="more", count=3)
    expect(page.locator(".figure[data-state=done] dd")).to_have_text(str(before + 3))
    assert len([url for url in tab.asked if url.endswith("/static/js/main.js")]) == loaded == 1


def test_pictures_are_drawn_once_there_are_samples(tab: Window, made: Made) -> None:
    page = tab.open()
    expect(page.locator(".chart canvas")).to_be_visible()
    page = tab.go("/pilots")
    expect(page.locator(".chart canvas")).to_be_visible()
    expect(page.locator(".chart .u-legend")).to_contain_text("in all")


def test_rules_show_hits_and_can_be_switched_off_and_on(tab: Window, made: Made) -> None:
    page = tab.open("/rules")
    upper = page.locator("table.rules tr", has_text="upper")
    expect(upper.locator(".c-hits")).to_have_text("1")
    switch = upper.get_by_role("switch")
    expect(switch).to_have_attribute("aria-checked", "true")
    switch.click()
    expect(switch).to_have_attribute("aria-checked", "false")
    expect(switch).to_be_focused()
    page.keyboard.press("Enter")
    expect(switch).to_have_attribute("aria-checked", "true")
    (made.hub.folder / "in/second.txt").write_text("again\n")
    expect(upper.locator(".c-hits")).to_have_text("2")


def test_shares_show_owners_with_bars(tab: Window, made: Made) -> None:
    page = tab.open("/shares")
    owner = made.hub.ask(f"jobs/{made.done}")["owner"]
    line = page.locator("table.shares tr", has_text=owner)
    expect(line.locator(".bar")).to_have_count(2)
    expect(line).to_contain_text("is due")


def test_pilot_appears_by_itself_can_be_looked_at_and_drained(tab: Window, made: Made) -> None:
    page = tab.open("/pilots")
    expect(page.locator("table.pilots tbody tr")).to_have_count(1)
    with made.hub.pilot("node017", "alpha"):
        line = page.locator("table.pilots tr", has_text="node017")
        expect(line.locator(".badge")).to_have_text("available")
        expect(line.locator(".c-site")).to_have_text("alpha")
        line.get_by_role("link").click()
        expect(page.get_by_role("heading", level=1)).to_contain_text("node017")
        expect(page.locator("dl.facts").last).to_contain_text("Memory")
        page.get_by_role("button", name="Drain").click()
        page.get_by_role("button", name="Drain it").click()
        expect(page.locator("h1 .badge")).to_have_text("down")
    page = tab.go("/pilots?all=1")
    expect(page.locator("table.pilots tr", has_text="node017")).to_contain_text("down")


def test_hub_without_pilots_says_how_to_start_one(tab: Window, made: Made) -> None:
    none = '{"pilots": [], "next": null}'
    tab.page.route("**/api/v1/pilots?*", lambda route: route.fulfill(body=none))
    tab.page.route(
        "**/api/v1/stream", lambda route: route.fulfill(content_type="text/event-stream")
    )
    page = tab.open("/pilots")
    expect(page.locator(".empty").last).to_contain_text("pilotage token new enrol")
    expect(page.locator(".empty").last).to_contain_text(f"--hub {made.hub.address}")


def test_address_never_keeps_the_token(tab: Window, made: Made) -> None:
    page = tab.open()
    assert page.url == f"{made.hub.address}/#/"
    page.reload()
    expect(page.locator(".figures")).to_be_visible()
    assert made.hub.token not in "".join(tab.asked)
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Your token")).to_be_focused()
    page.reload()
    expect(page.get_by_label("Your token")).to_be_visible()


def test_wrong_token_is_told_kindly_and_a_right_one_lets_in(tab: Window, made: Made) -> None:
    page = tab.page
    page.goto(f"{made.hub.address}/#token=pil_u_{'x' * 43}")
    expect(page.get_by_role("alert")).to_contain_text("does not accept this token")
    page.get_by_label("Your token").fill("nonsense")
    page.keyboard.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("does not accept this token")
    page.get_by_label("Your token").fill(made.hub.token)
    page.keyboard.press("Enter")
    expect(page.locator(".figures")).to_be_visible()
    refused = [problem for problem in tab.problems if problem.startswith("401 ")]
    assert refused == tab.problems
    tab.problems.clear()


def test_a_token_that_may_only_look_is_told_so(tab: Window, made: Made) -> None:
    new = made.hub.ask("tokens", {"scope": "read", "label": "looker"})
    page = tab.page
    page.goto(f"{made.hub.address}/#token={new['token']}&to=%2Fjobs%2F{made.held}")
    page.get_by_role("button", name="Release").click()
    expect(page.locator(".toast.bad")).to_be_visible()
    expect(page.locator("h1 .badge")).to_have_text("held")
    assert [problem for problem in tab.problems if not problem.startswith("403 ")] == []
    tab.problems.clear()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_follow_the_system_and_the_choice(
    chromium: Browser, made: Made, scheme: str
) -> None:
    with window(chromium, made.hub, color_scheme=scheme) as tab:
        page = tab.open()
        ground = "getComputedStyle(document.body).backgroundColor"
        dark = sum(map(int, re.findall(r"\d+", page.evaluate(ground))[:3])) < 200
        assert dark is (scheme == "dark")
        other = "Light" if dark else "Dark"
        button = page.locator("#theme")
        for _ in range(3):
            button.click()
            if button.inner_text().strip() == other:
                break
        assert (sum(map(int, re.findall(r"\d+", page.evaluate(ground))[:3])) < 200) is not dark


@pytest.mark.parametrize("width", [320, 375, 768])
def test_small_screens_never_scroll_sideways(chromium: Browser, made: Made, width: int) -> None:
    size = {"width": width, "height": 700}
    with window(chromium, made.hub, viewport=size, is_mobile=True, has_touch=True) as tab:
        tab.open()
        for view in (*VIEWS, *(f"/jobs/{job}" for job in made[1:])):
            page = tab.go(view)
            page.wait_for_timeout(300)
            assert tab.overflow() <= 0, view


def test_lost_line_is_told_and_comes_back(chromium: Browser, tmp_path: Path) -> None:
    with Hub(tmp_path / "project") as hub, window(chromium, hub) as tab:
        tab.page.clock.install()
        page = tab.open()
        expect(page.locator("#link")).to_have_text("live")
        expect(page.locator(".empty").first).to_contain_text("Nothing has run here yet")
        hub.stop()
        expect(page.locator("#banner")).to_contain_text("does not answer")
        hub.start()

        def hidden() -> bool:
            # Longer than it ever waits before it tries again.
            page.clock.fast_forward(20_000)
            return page.locator("#banner").is_hidden()

        until(hidden)
        hub.submit("true")
        expect(page.locator(".figure[data-state=done] dd")).to_have_text("1")
        assert [one for one in tab.problems if "ERR_" not in one and "503" not in one] == []
        tab.problems.clear()


def test_views_of_an_empty_project_say_what_to_do_next(chromium: Browser, tmp_path: Path) -> None:
    with Hub(tmp_path / "project") as hub, window(chromium, hub) as tab:
        page = tab.open("/jobs")
        expect(page.locator(".empty")).to_contain_text("pilotage submit echo hello")
        page = tab.go("/rules")
        expect(page.locator(".empty")).to_contain_text("pilotage rule add")
        page = tab.go("/jobs/7")
        expect(page.locator(".empty.bad")).to_contain_text("7")
        tab.problems.clear()
