"""A Delta table in an object store: the same rows, and few requests."""

from __future__ import annotations

import pytest

from delvec import DeltaTable
from tests.delta.builder import TableBuilder
from tests.s3.server import S3Server

pytestmark = pytest.mark.s3

FILES = 20
URI = "s3://lake/some/orders"


@pytest.fixture(scope="module")
def table(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> DeltaTable:
    """Twenty files with vectors, of which ten share a `.bin` file; version 1 has no vectors."""
    root = tmp_path_factory.mktemp("local") / "t"
    builder = TableBuilder.made(root)
    adds = [
        builder.write_file(
            f"a b/part-{number}.parquet", {"id": range(number * 10, number * 10 + 10)}
        )
        for number in range(FILES)
    ]
    for entry in adds:
        entry["path"] = entry["path"].replace(" ", "%20")
    builder.add(*adds)
    vectors = builder.write_vectors(*([number % 10] for number in range(10)))
    for number in range(10, FILES):
        vectors += builder.write_vectors([number % 10])
    removed = [{"remove": {"path": entry["path"], "dataChange": True}} for entry in adds]
    marked = [
        {"add": entry | {"deletionVector": vector}}
        for entry, vector in zip(adds, vectors, strict=True)
    ]
    builder.commit(*removed, *marked)
    s3.upload(root, URI)
    return DeltaTable.for_path(None, URI, s3.storage_options)


def test_the_same_rows_come_from_a_bucket(table: DeltaTable) -> None:
    expected = [number for number in range(FILES * 10) if number // 10 % 10 != number % 10]
    assert sorted(table.to_arrow().column("id").to_pylist()) == expected
    assert table.count() == len(expected)
    files = table.to_arrow([("id", "=", 5)], ["id", "_file"]).to_pylist()
    assert files == [{"id": 5, "_file": f"{URI}/a b/part-0.parquet"}]


def test_a_vector_costs_at_most_one_request(table: DeltaTable) -> None:
    def gets(version: int) -> int:
        before = table.storage.requests
        snapshot = table.snapshot(version)
        _ = snapshot.files
        opened = table.storage.requests
        table.to_arrow(version=version)
        after = table.storage.requests
        return (after - opened).gets - (opened - before).gets

    with_vectors, without = gets(2), gets(1)
    assert without == FILES
    # Ten vectors in one file come with one GET, the ten others with one each.
    assert with_vectors - without == 11
