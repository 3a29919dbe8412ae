"""docs/benchmarks.md and its plots are what docs/benchmarks.json says."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import benchmarks.__main__  # noqa: F401  (it registers all benchmarks)
import pytest
from benchmarks.page import DOCS, numbers, plot, updated, written
from benchmarks.runner import REGISTRY

SECTIONS = numbers()["sections"]


def test_the_page_and_its_plots_are_written_from_the_numbers() -> None:
    files = written(numbers())
    assert {name: (DOCS / name).read_text() for name in files} == files
    assert sorted(path.name for path in (DOCS / "images").glob("benchmarks-*.svg")) == sorted(
        name.removeprefix("images/") for name in files if name.endswith(".svg")
    )


def test_every_ratio_names_a_benchmark_that_there_is() -> None:
    cells = [cell for section in SECTIONS for row in section["rows"] for cell in row["ratios"]]
    assert {cell["benchmark"] for cell in cells} - {None} <= REGISTRY.keys()
    assert [cell["ratio"] for cell in cells if cell["benchmark"] is None] == [0.23]


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section["id"])
def test_a_plot_has_a_bar_for_each_ratio(section: dict[str, object]) -> None:
    rows, columns = section["rows"], section["columns"]
    assert isinstance(rows, list)
    assert isinstance(columns, list)
    bars = ET.fromstring(plot(section)).findall("{http://www.w3.org/2000/svg}rect")  # noqa: S314
    assert len(bars) == len(columns) + sum(len(row["ratios"]) for row in rows)


def ran(section: str, *, without: int = 0) -> dict[str, object]:
    """Results of a run of all benchmarks of a section, or of all but the first few."""
    [found] = [each for each in SECTIONS if each["id"] == section]
    cells = [cell for row in found["rows"] for cell in row["ratios"]][without:]
    results = [{**cell, "ratio": 0.333} for cell in cells]
    return {"machine": {"when": "2030-01-31T10:00:00+00:00"}, "results": results}


def test_a_run_of_all_ratios_of_a_section_is_taken_over_with_its_day() -> None:
    sections = {each["id"]: each for each in updated(numbers(), ran("writing"))["sections"]}
    writing = sections.pop("writing")
    assert {cell["ratio"] for row in writing["rows"] for cell in row["ratios"]} == {0.33}
    assert writing["measured"] == "2030-01-31"
    assert list(sections.values()) == [each for each in SECTIONS if each["id"] != "writing"]


def test_a_run_of_some_ratios_of_a_section_is_not_taken_over() -> None:
    assert updated(numbers(), ran("writing", without=1)) == numbers()
