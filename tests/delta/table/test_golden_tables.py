"""Tables that Delta's own projects keep for their tests, read without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow.compute as pc
import pytest

import delvec.delta.table as delta
from delvec.errors import UnsupportedFeatureError
from tests.delta.golden import FUTURE, TABLES, check


def test_every_table_of_the_folder_is_judged(golden: Path) -> None:
    assert {path.name for path in golden.iterdir() if path.is_dir()} == {*TABLES, FUTURE}


@pytest.mark.parametrize(
    "name", [name for name in TABLES if name != "data-reader-partition-values"]
)
def test_arrow_alone_reads_the_rows(golden: Path, name: str) -> None:
    table = delta.DeltaTable.for_path(None, golden / name / "delta")
    check(table.to_arrow(), golden, name)
    rows, vectors, deleted = TABLES[name]
    assert table.count() == rows
    detail = table.detail()
    assert (detail.files_with_vectors, detail.deleted_rows) == (vectors, deleted)


@pytest.mark.parametrize("name", ["dv-partitioned-with-checkpoint", "dv-with-columnmapping"])
def test_the_sum_that_the_corpus_tells(golden: Path, name: str) -> None:
    table = delta.DeltaTable.for_path(None, golden / name / "delta")
    assert pc.sum(table.to_arrow().column("col1")).as_py() == 1015
    assert table.version == 15


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_are_read(golden: Path, version: int) -> None:
    path = golden / "time-travel-start-start20-start40" / "delta"
    found = delta.DeltaTable.for_path(None, path).to_arrow(version=version)
    assert sorted(found.column("id").to_pylist()) == list(range(10 * (version + 1)))


def test_a_protocol_from_the_future_is_refused_by_its_number(golden: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="99"):
        delta.DeltaTable.for_path(None, golden / FUTURE / "delta")
