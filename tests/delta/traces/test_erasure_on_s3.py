"""Traces and downgrades of a table in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from delvec import DeltaTable
from tests.delta.builder import TableBuilder, small_table
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3


def uploaded(s3: S3Server, root: Path, name: str) -> DeltaTable:
    uri = f"s3://lake/{name}"
    s3.upload(root, uri)
    return DeltaTable.for_path(None, uri, s3.storage_options)


def test_traces_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    builder, _ = small_table(tmp_path)
    builder.write_file("a b/orphan.parquet", {"id": [9]})
    # The log may name the table's own files in full, by another name of the same store.
    full = builder.write_file("full.parquet", {"id": [9]})
    builder.add(full | {"path": "s3a://lake/traced/full.parquet"})
    table = uploaded(s3, tmp_path, "traced")
    report = table.traces([("id", "=", 9)])
    assert {place.path: place.kind for place in report.places} == {
        "a b/orphan.parquet": "orphan",
        "full.parquet": "live",
        "part-0.parquet": "deleted",
    }
    assert table.traces([("id", "=", 99)]).is_empty


def test_a_downgrade_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path)
    builder.append("a.parquet", {"id": [1]})
    table = uploaded(s3, tmp_path, "downgraded")
    table.drop_deletion_vectors()
    assert "deletionVectors" not in table.protocol.features
    assert table.to_arrow()["id"].to_pylist() == [1]
