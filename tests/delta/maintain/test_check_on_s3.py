"""Checks and repairs of a table in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delvec import DeltaTable
from delvec.storage import Storage
from tests.delta.builder import small_table
from tests.delta.maintain.checks import INLINE, found, table_with
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


def uploaded(root: Path, uri: str, server: S3Server) -> DeltaTable:
    storage = Storage.open(uri, server.storage_options)
    for path in root.rglob("*"):
        if path.is_file():
            storage.write(str(path.relative_to(root)), path.read_bytes())
    return DeltaTable.for_path(None, uri, server.storage_options)


def test_files_that_are_gone_or_cut_short(tmp_path: Path, server: S3Server) -> None:
    small_table(tmp_path)
    table = uploaded(tmp_path, "s3://lake/orders", server)
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


def test_a_vector_in_the_log_is_stored_anew(tmp_path: Path, server: S3Server) -> None:
    table_with(tmp_path, INLINE)
    table = uploaded(tmp_path, "s3://lake/inline", server)
    report = table.check(repair=True)
    assert (report.findings, report.repaired_version, report.vector_files) == ((), 3, 1)
    assert sorted(table.to_arrow().column("id").to_pylist()) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
