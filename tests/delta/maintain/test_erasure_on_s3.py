"""Traces and downgrades of a table in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delvec import DeltaTable
from delvec.storage import Storage
from tests.delta.builder import TableBuilder, small_table
from tests.storage.s3_server import MISSING, find_server, running_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.storage.s3_server import S3Server

pytestmark = pytest.mark.s3

PROGRAM = find_server()
if PROGRAM is None:
    pytest.skip(MISSING, allow_module_level=True)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    assert PROGRAM is not None
    with running_server(PROGRAM, tmp_path_factory.mktemp("s3")) as running:
        running.create_bucket("lake")
        yield running


def uploaded(server: S3Server, root: Path, name: str) -> DeltaTable:
    uri = f"s3://lake/{name}"
    storage = Storage.open(uri, server.storage_options)
    for path in root.rglob("*"):
        if path.is_file():
            storage.write(str(path.relative_to(root)), path.read_bytes())
    return DeltaTable.for_path(None, uri, server.storage_options)


def test_traces_in_a_bucket(server: S3Server, tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    builder.write_file("a b/orphan.parquet", {"id": [9]})
    # The log may name the table's own files in full, by another name of the same store.
    full = builder.write_file("full.parquet", {"id": [9]})
    builder.commit({"add": full | {"path": "s3a://lake/traced/full.parquet"}})
    table = uploaded(server, tmp_path, "traced")
    report = table.traces([("id", "=", 9)])
    assert {place.path: place.kind for place in report.places} == {
        "a b/orphan.parquet": "orphan",
        "full.parquet": "live",
        "part-0.parquet": "deleted",
    }
    assert table.traces([("id", "=", 99)]).is_empty


def test_a_downgrade_in_a_bucket(server: S3Server, tmp_path: Path) -> None:
    builder = TableBuilder(tmp_path)
    builder.create()
    builder.commit({"add": builder.write_file("a.parquet", {"id": [1]})})
    table = uploaded(server, tmp_path, "downgraded")
    table.drop_deletion_vectors()
    assert "deletionVectors" not in table.protocol.features
    assert table.to_arrow()["id"].to_pylist() == [1]
