"""docs/scale.md has the numbers of docs/scale.json; what measures them runs on small tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree as ET

import pytest
from benchmarks.scale.delta_log import COMMITS, Form, Shape, write_delta_table
from benchmarks.scale.delta_operations import ALL_ENTRIES, DELTA_OPERATIONS
from benchmarks.scale.measure import run_here
from benchmarks.scale.model import checked, line_through
from benchmarks.scale.page import DOCS, TABLES, numbers, written

pytestmark = pytest.mark.more

FILES = 1000
LIVE = FILES + 10 * COMMITS + 10
FACTS: dict[str, dict[str, Any]] = {
    "open": {"version": COMMITS},
    "history": {"versions": COMMITS + 1},
    "live files": {"files": LIVE},
    "plan by bounds": {"files": 10},
    "vacuum, dry run": {"files": 0},
    "restore, dry run": {"files": 60},
    "inspect": {"vectors": FILES // 10},
    "check, log": {"files": LIVE, "findings": 0},
    ALL_ENTRIES: {"entries": LIVE},
    "checkpoint": {"version": COMMITS},
    "alter": {"version": COMMITS + 1},
}


def test_the_tables_of_the_page_and_its_plot_are_written_from_the_numbers() -> None:
    files = written(numbers())
    assert {name: (DOCS / name).read_text() for name in files} == files
    page = files["scale.md"]
    assert all(page.count(f"<!-- table: {name} -->") == 1 for name in TABLES)
    lines = ET.fromstring(files["images/scale-memory.svg"])  # noqa: S314
    assert len(lines.findall("{http://www.w3.org/2000/svg}polyline")) == len(DELTA_OPERATIONS)


def test_all_operations_were_measured_up_to_ten_million_files() -> None:
    found = {(each["operation"], each["files"]) for each in numbers()["runs"]}
    sizes = (100_000, 1_000_000, 10_000_000)
    names = DELTA_OPERATIONS.keys() - {ALL_ENTRIES}  # they would take more memory than there is
    assert {(name, files) for name in names for files in sizes} <= found


def test_the_page_names_the_limit_at_which_memory_ended_and_no_limit_for_other_failures() -> None:
    runs = [
        {"operation": "open", "form": "parts", "files": files, "peak_mib": 100}
        for files in (100_000, 1_000_000)
    ]
    tried = {"operation": "open", "form": "parts", "files": 10_000_000}

    def cell(**found: Any) -> str:  # noqa: ANN401
        table = TABLES["memory"]({"runs": [*runs, {**tried, **found}]})
        return table.splitlines()[2].split(" | ")[3]

    assert cell(failed="MemoryError", address_space_gib=3.5) == "not in 3.5 GiB of address space"
    assert cell(failed="MemoryError") == "fails"
    assert cell(failed="FormatError: damaged", address_space_gib=3.5) == "fails"


@pytest.mark.parametrize("form", get_args(Form))
def test_every_operation_runs_on_a_small_table_of_each_form(tmp_path: Path, form: Form) -> None:
    write_delta_table(tmp_path, Shape(FILES, form, part=300, row_group=200))
    assert DELTA_OPERATIONS.keys() == FACTS.keys()
    for operation, facts in FACTS.items():  # those that commit come last
        taken = run_here(operation, str(tmp_path))
        assert (operation, taken["facts"]) == (operation, facts)
        assert taken["peak_mib"] > 0


def test_pyiceberg_reads_the_manifests_of_a_small_table(tmp_path: Path) -> None:
    table = pytest.importorskip("pyiceberg.table")
    from benchmarks.scale.iceberg_metadata import (  # noqa: PLC0415 - it needs PyIceberg
        PARTITIONS,
        PARTITIONS_WITH_DELETES,
        IcebergShape,
        write_iceberg_table,
    )

    write_iceberg_table(tmp_path, IcebergShape(FILES, in_manifest=300))
    opened = table.StaticTable.from_metadata(str(tmp_path / "metadata" / "v1.metadata.json"))
    for number, deletes in ((1, 0), (2, PARTITIONS_WITH_DELETES), (3, PARTITIONS)):
        files = opened.inspect.files(snapshot_id=number).to_pylist()
        data = [each for each in files if each["content"] == 0]
        assert (len(data), len(files) - len(data)) == (FILES, deletes)
        assert len({each["file_path"] for each in files}) == len(files)
        bounds = [each["readable_metrics"]["id"] for each in data]
        assert [each["lower_bound"] for each in bounds] == [n * 1_000_000 for n in range(FILES)]


def test_a_line_through_two_sizes_predicts_the_third() -> None:
    found = checked({10: 15.0, 20: 20.0, 100: 66.0})
    assert found is not None
    assert (found.model, found.predicted, found.found) == (line_through((10, 15), (20, 20)), 60, 66)
    assert found.error == pytest.approx(0.1)
    assert checked({10: 15.0, 20: 20.0}) is None
