"""Checkpoints too large for one Arrow array; entries are read by row groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.scale.delta_log import Shape, write_delta_table
from numpy.typing import NDArray

from delvec import DeltaTable
from delvec.delta.log import checkpoint_reader, snapshot
from delvec.delta.log.checkpoint_reader import ParquetActions
from delvec.delta.log.paths import one_array
from delvec.delta.skipping import statistics_columns as columns
from delvec.delta.skipping.predicate import parse_filters
from delvec.errors import UnsupportedFeatureError

FILES = 200


def read(path: Path) -> dict[str, Any]:
    """Read all that a table's log says, and what a predicate leaves of it."""
    found = DeltaTable.for_path(None, path).snapshot()
    predicate = parse_filters([("id", "<", 50_000_000)], found.metadata.schema)
    return {
        "paths": found.files.paths.to_pylist(),
        "rows": found.files.row_counts.to_pylist(),
        "entries": [(entry.path, entry.add) for entry in found.files.entries()],
        "pruned": found.files.prune(predicate, "UTC").paths.to_pylist(),
    }


@pytest.mark.parametrize("statistics", ["json", "columns", "both"])
def test_a_checkpoint_that_is_read_by_row_groups_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statistics: Literal["json", "columns", "both"]
) -> None:
    shape = Shape(FILES, "classic", row_group=30, statistics=statistics)
    write_delta_table(tmp_path, shape)
    expected = read(tmp_path)
    monkeypatch.setattr(checkpoint_reader, "_BYTES_AT_ONCE", 1)
    monkeypatch.setattr(columns, "_BYTES_AT_ONCE", 1000)
    assert read(tmp_path) == expected
    assert len(expected["paths"]) > FILES > len(expected["pruned"]) > 0


def test_entries_are_read_from_their_row_groups_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_delta_table(tmp_path, Shape(FILES, "classic", row_group=30))
    files = DeltaTable.for_path(None, tmp_path).snapshot().files
    wanted = [path for path in files.paths.to_pylist() if path.startswith("day=2024-05-30/")]
    [index] = [files.paths.index(path).as_py() for path in wanted]
    groups = []
    whole = ParquetActions._entries

    def noted(self: ParquetActions, group: int, rows: NDArray[np.int64]) -> list[dict[str, Any]]:
        groups.append(group)
        return whole(self, group, rows)

    monkeypatch.setattr(ParquetActions, "_entries", noted)
    last = len(files) - 1
    found = files.entries([last, index, last - 1])
    assert [entry.path for entry in found] == files.paths.take([last, index, last - 1]).to_pylist()
    assert found[1].add["stats"].startswith('{"numRecords":1000000,"minValues":{"id":150000000,')
    assert found[1].add["partitionValues"] == {"day": "2024-05-30"}
    # The first row group has protocol and metadata, then come 30 files in each.
    assert sorted(groups) == [1 + 150 // 30, 1 + (FILES - 1) // 30]


def test_more_paths_than_an_array_of_arrow_holds_are_refused() -> None:
    paths = pa.array(["x" * (1 << 20)] * 64)
    with pytest.raises(UnsupportedFeatureError, match="lake/orders has too many files"):
        one_array([paths] * 33, "lake/orders")


def test_setting_a_property_reads_no_entries_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_delta_table(tmp_path, Shape(10))

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("all files are replayed")

    monkeypatch.setattr(snapshot, "replay_commits", refused)
    done = DeltaTable.for_path(None, tmp_path).set_properties({"owner": "lake"})
    assert done.version == 11


def test_small_reads_take_none_of_arrows_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that ends while such a thread frees what Python read is aborted."""
    write_delta_table(tmp_path, Shape(FILES, "classic", row_group=30))
    threads = []
    whole = pq.ParquetFile.read

    def noted(self: pq.ParquetFile, **options: Any) -> pa.Table:  # noqa: ANN401
        threads.append(options["use_threads"])
        return whole(self, **options)

    monkeypatch.setattr(pq.ParquetFile, "read", noted)
    read(tmp_path)
    assert set(threads) == {False}
    monkeypatch.setattr(checkpoint_reader, "wants_threads", lambda _: True)
    read(tmp_path)
    assert set(threads) == {False, True}
