"""The page in a real browser: its bars are the table's files, and nothing leaves it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from delvec import DeltaTable
from delvec.inspection.figures import Ranking, Share
from delvec.inspection.report import InspectReport
from tests.inspection.browser import Browser, started
from tests.inspection.tables import partitioned_table
from tests.inspection.test_page import hostile_report

pytestmark = pytest.mark.more

PHONE = 390
TROUBLE = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown")
SUM = "[...document.querySelectorAll('#{} [data-files]')].reduce((n, e) => n + +e.dataset.files, 0)"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with started(tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, InspectReport]:
    few, many = (tmp_path_factory.mktemp(name) for name in ("few", "many"))
    partitioned_table(few)
    partitioned_table(many, days=tuple(f"2026-01-{day:02}" for day in range(1, 6)), files=8)
    return {
        "few": DeltaTable.for_path(None, few).inspect(),
        "many": DeltaTable.for_path(None, many).inspect(),
        "hostile": hostile_report(),
    }


def opened(browser: Browser, report: InspectReport, folder: Path, **how: Any) -> None:  # noqa: ANN401
    """Show the page of a report, and check that all was quiet."""
    url = report.write_html(folder / "page.html").as_uri()
    browser.open(url, **how)
    assert not browser.named(*TROUBLE)
    assert [each["request"]["url"] for each in browser.named("Network.requestWillBeSent")] == [url]


def bars(browser: Browser) -> list[float]:
    """The filled share of each bar of a file, in percent, as the browser draws it."""
    found: list[float] = browser.evaluate(
        "[...document.querySelectorAll('#files .bar')].map(bar => 100 *"
        " bar.lastChild.getBoundingClientRect().width / bar.getBoundingClientRect().width)"
    )
    return found


def test_there_is_a_bar_for_each_file_of_the_table(
    browser: Browser, reports: dict[str, InspectReport], tmp_path: Path
) -> None:
    opened(browser, reports["few"], tmp_path, width=1280)
    assert bars(browser) == pytest.approx([30] * 3 + [10] * 3 + [0] * 6, abs=0.1)
    assert browser.evaluate("document.querySelectorAll('#partitions .bar').length") == 3
    assert browser.evaluate(SUM.format("partitions")) == 12
    heights = "[...document.querySelectorAll('#history .plot:first-child rect')].length"
    assert browser.evaluate(heights) == len(reports["few"].moments)
    opened(browser, reports["many"], tmp_path, width=1280)
    assert len(bars(browser)) == 21, "the last one is all other files"
    assert browser.evaluate(SUM.format("files")) == reports["many"].files == 40


@pytest.mark.parametrize("name", ["few", "many", "hostile"])
def test_a_phone_does_not_scroll_sideways_and_names_stay_names(
    browser: Browser, reports: dict[str, InspectReport], tmp_path: Path, name: str
) -> None:
    opened(browser, reports[name], tmp_path, width=PHONE, mobile=True)
    browser.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.evaluate("document.documentElement.scrollWidth") <= PHONE
    assert browser.evaluate("window.innerWidth") == PHONE
    if name == "hostile":
        assert browser.evaluate("document.scripts.length + document.images.length") == 0
        assert "<script>alert(1)</script>" in browser.evaluate(
            "document.querySelector('h1').innerText"
        )
        assert "<script>" in browser.evaluate("document.title")


LINES = (
    "e => Math.round(e.getBoundingClientRect().height / parseFloat(getComputedStyle(e).lineHeight))"
)


@pytest.mark.parametrize("width", [PHONE, 900, 1280])
def test_numbers_and_names_are_not_broken_and_bars_are_equally_long(
    browser: Browser, reports: dict[str, InspectReport], tmp_path: Path, width: int
) -> None:
    """Bars can be compared with each other only if all of them have the same whole."""
    many = reports["many"]
    name = "part-00000-2bc940f0-dd3c-461d-8869-a8d7c3ab4a3b.c000.snappy.parquet"
    share = Share(name, 1, 98_765_432, 12_345_678, 10)
    rest = Share("", 10**6, 10**13, 10**9, 10**13)
    large = replace(
        many,
        rows=10**13,
        live_rows=10**13 - 10**9,
        vectors=replace(many.vectors, rows=10**9),
        most_deleted=Ranking((share, replace(share, deleted=1)), rest, 10**6),
    )
    opened(browser, large, tmp_path, width=width, mobile=width == PHONE)
    assert browser.evaluate("document.documentElement.scrollWidth") <= width
    numbers = f"[...document.querySelectorAll('.card b')].map({LINES})"
    assert set(browser.evaluate(numbers)) == {1}
    beyond = "[...document.querySelectorAll('.card b')].filter(e => e.scrollWidth > e.clientWidth)"
    assert browser.evaluate(f"{beyond}.length") == 0
    names = f"[...document.querySelectorAll('#files tbody th bdi')].map({LINES})"
    assert set(browser.evaluate(names)) == {1}
    lengths = "[...document.querySelectorAll('#files .bar')].map(e => e.clientWidth)"
    assert len(set(browser.evaluate(lengths))) == 1
    assert browser.evaluate("document.querySelector('#files .bar').clientWidth") > 100


def test_the_page_follows_the_colour_scheme_and_is_printed_light_with_all_numbers(
    browser: Browser, reports: dict[str, InspectReport], tmp_path: Path
) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    for dark, colour in ((False, "rgb(250, 249, 246)"), (True, "rgb(22, 21, 19)")):
        opened(browser, reports["few"], tmp_path, width=1280, dark=dark)
        assert browser.evaluate(ground) == colour
    assert browser.pdf().startswith(b"%PDF-")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.evaluate(ground) == "rgb(255, 255, 255)"
    assert browser.evaluate(
        "document.querySelector('details table').getBoundingClientRect().height"
    )


def test_the_policy_lets_nothing_out_that_a_name_could_ask_for(
    browser: Browser, reports: dict[str, InspectReport], tmp_path: Path
) -> None:
    """Escaping is the first wall, the policy the second: it holds if the first one did not."""
    page = reports["few"].to_html()
    asking = '<img src="http://127.0.0.1:9/x.png"><p style="color: red">x</p>'
    path = tmp_path / "broken.html"
    path.write_text(page.replace("<main>", f"<main>{asking}"))
    browser.open(path.as_uri(), width=1280)
    refused = [each["entry"]["text"] for each in browser.named("Log.entryAdded")]
    assert any("Content Security Policy" in each for each in refused)
    sent = {each["requestId"]: each["request"]["url"] for each in browser.named(_SENT)}
    failed = {each["requestId"]: each.get("blockedReason") for each in browser.named(_FAILED)}
    outside = [key for key, url in sent.items() if url.startswith("http")]
    assert all(failed.get(key) == "csp" for key in outside)


_SENT = "Network.requestWillBeSent"
_FAILED = "Network.loadingFailed"
