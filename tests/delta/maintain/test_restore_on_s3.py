"""Restores, clones, conversions and statistics in an object store, by few requests."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec import DeltaTable
from delvec.delta.maintain import available_files
from delvec.errors import ObjectNotFoundError
from delvec.storage import Storage
from tests.delta.builder import TableBuilder, removed
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3

FILES = 30


@pytest.fixture
def table(s3: S3Server, tmp_path: Path) -> DeltaTable:
    """Thirty files; version 2 has vectors for all of them, in one file, version 3 has no files."""
    builder = TableBuilder.made(tmp_path / "t")
    names = [f"a b/part-{number}.parquet" for number in range(FILES)]
    adds = [
        builder.write_file(name, {"id": list(range(10 * number, 10 * number + 10))})
        | {"path": name.replace(" ", "%20")}
        for number, name in enumerate(names)
    ]
    builder.add(*adds)
    now = {"deletionTimestamp": int(time.time() * 1000)}
    vectors = builder.write_vectors(*([9] for _ in adds))
    stats = '{"numRecords": 10, "tightBounds": false}'
    marked = [
        add | {"deletionVector": vector, "stats": stats}
        for add, vector in zip(adds, vectors, strict=True)
    ]
    builder.commit(
        *({"remove": removed(add) | now} for add in adds), *({"add": add} for add in marked)
    )
    builder.commit(*({"remove": removed(add) | now} for add in marked))
    uri = f"s3://lake/{tmp_path.name}/orders"
    s3.upload(builder.root, uri)
    return DeltaTable.for_path(None, uri, s3.storage_options)


@pytest.mark.parametrize("by_listing", [False, True])
def test_a_restore_looks_for_all_files_first(table: DeltaTable, *, by_listing: bool) -> None:
    with patch.object(available_files, "_SINGLY", 0 if by_listing else 1000):
        report = table.restore(2)
    assert table.count() == FILES * 9
    # All data files and the one file of vectors; beside what every commit asks for.
    assert (report.requests.heads > FILES) == (not by_listing)
    assert report.requests.heads <= FILES + 5
    table.restore(3)
    [vector] = [info.key for info in table.storage.list() if info.key.endswith(".bin")]
    table.storage.delete([vector])
    with pytest.raises(ObjectNotFoundError, match="deletion_vector"):
        table.restore(2)
    if by_listing:  # which shows all that is inside: nothing is asked for again
        with (
            patch.object(available_files, "_SINGLY", 0),
            patch.object(available_files, "_each", return_value=set()) as each,
        ):
            assert available_files.missing_files(table.storage, [vector]) == [vector]
        each.assert_called_once_with(table.storage, set())
    table.restore(1)
    assert table.count() == FILES * 10


def test_statistics_are_computed_from_live_rows(table: DeltaTable) -> None:
    table.restore(2)
    report = table.recompute_statistics()
    assert report.files_scanned == FILES
    assert table.count([("id", "=", 9)]) == 0
    # One for each data file, one for all vectors, and some for the log.
    assert report.requests.gets < FILES + 20


def test_a_clone_refers_to_files_of_its_source(table: DeltaTable, s3: S3Server) -> None:
    table.restore(2)
    uri = table.storage.root.replace("orders", "copies/orders")
    table.clone(uri)
    clone = DeltaTable.for_path(None, uri, s3.storage_options)
    assert sorted(clone.to_arrow()["id"].to_pylist()) == sorted(table.to_arrow()["id"].to_pylist())
    paths = clone.snapshot().files.paths.to_pylist()
    assert all(path.startswith(f"{table.storage.root}/a b/") for path in paths)
    keys = [info.key for info in clone.storage.list(recursive=True)]
    assert keys == ["_delta_log/00000000000000000000.json"]


def test_a_folder_becomes_a_table(s3: S3Server, tmp_path: Path) -> None:
    uri, storage = f"s3://lake/{tmp_path.name}/folder", None
    storage = Storage.open(uri, s3.storage_options)
    for number in range(20):
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"id": [number]}), sink)
        storage.write(f"day=2026-01-{number + 1:02}/a b.parquet", sink.getvalue())
    storage.write("day=2026-02-01", b"")  # a marker of Hadoop
    DeltaTable.convert_to_delta(None, uri, storage_options=s3.storage_options)
    table = DeltaTable.for_path(None, uri, s3.storage_options)
    assert table.to_arrow([("day", ">", "2026-01-18")])["id"].to_pylist() == [18, 19]
    assert table.count() == 20
