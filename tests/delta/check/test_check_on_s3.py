"""Checks and repairs of a table in an object store."""

from __future__ import annotations

from pathlib import Path

import pytest

from delvec import DeltaTable
from tests.delta.builder import small_table
from tests.delta.check.checks import INLINE, found, table_with
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3


def uploaded(root: Path, uri: str, s3: S3Server) -> DeltaTable:
    s3.upload(root, uri)
    return DeltaTable.for_path(None, uri, s3.storage_options)


def test_files_that_are_gone_or_cut_short(tmp_path: Path, s3: S3Server) -> None:
    small_table(tmp_path)
    table = uploaded(tmp_path, "s3://lake/orders", s3)
    before = table.storage.requests
    report = table.check(sample=0)
    used = table.storage.requests - before
    assert (report.findings, report.vectors, used.heads) == ((), 2, 0)  # sizes are listed
    [vectors] = tmp_path.glob("*.bin")
    table.storage.write(vectors.name, vectors.read_bytes()[:-3])
    table.storage.write("orphan.parquet", b"0123456789")
    table.storage.delete(["part-0.parquet"])
    assert found(table.check()) == [
        ("error", "damaged-vector", "part-1.parquet"),
        ("error", "missing-file", "part-0.parquet"),
        ("info", "orphan-data-file", "orphan.parquet"),
    ]


def test_a_vector_in_the_log_is_stored_anew(tmp_path: Path, s3: S3Server) -> None:
    table_with(tmp_path, INLINE)
    table = uploaded(tmp_path, "s3://lake/inline", s3)
    report = table.check(repair=True)
    assert (report.findings, report.repaired_version, report.vector_files) == ((), 3, 1)
    assert sorted(table.to_arrow().column("id").to_pylist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
