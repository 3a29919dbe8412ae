"""Which way of finding rows is chosen, and what is said of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pyarrow as pa
import pytest

from delvec.errors import InvalidArgumentError
from delvec.iceberg.client.catalog import LoadedTable, TableName
from delvec.iceberg.client.file_scan import DataFilesWithKeys
from delvec.iceberg.client.files import EqualityDeleteFile
from delvec.iceberg.deletes.key_filter import ScopedDelete
from delvec.iceberg.search.finder import Strategy, choose
from delvec.iceberg.search.key_index import IndexedKey, KeyIndex
from delvec.iceberg.search.search import Search

NOTHING = cast("Any", None)
TABLE = LoadedTable(NOTHING, TableName("lake", ("db",), "t"), NOTHING, NOTHING, NOTHING)


def search(keys: int, rows: int, files: int, kind: str = "string") -> Search:
    schema = {"type": "struct", "fields": [{"id": 1, "name": "k", "required": 0, "type": kind}]}
    deletes = EqualityDeleteFile("d", "parquet", 0, "[]", (1,), keys, 9, 7)
    listed = pa.table({"path": [f"f{n}" for n in range(files)], "rows": [rows // files] * files})
    planned = DataFilesWithKeys(files, listed, ())
    return Search(TABLE, 5, schema, planned, (ScopedDelete(deletes, -1),))


def index(rows: int, kind: str = "string", why_not: str | None = None, runs: int = 0) -> KeyIndex:
    key = IndexedKey((1,), (kind,), 77)
    return KeyIndex(
        TABLE, key, 1, 5, rows, rows * 12, 1 + rows // 4_000_000, why_not, rows, runs=runs
    )


def test_what_is_asked_for_is_done() -> None:
    some = search(10, 1000, 1)
    assert choose(some, index(1000), "join").strategy == "join"
    assert choose(some, index(1000), "index").strategy == "index"
    assert choose(some, None, "join").reason == "as asked for"


@pytest.mark.parametrize("wanted", ["auto", "index"])
def test_an_index_that_is_missing_or_not_usable_is_not_used(wanted: Strategy) -> None:
    some = search(10, 1_000_000_000, 1000)
    for each, why in (
        (None, "there is no index"),
        (index(1_000_000_000, why_not="it is empty"), "the index is not usable: it is empty"),
    ):
        if wanted == "auto":
            assert choose(some, each, wanted).strategy == "join"
            assert choose(some, each, wanted).reason == why
        else:
            with pytest.raises(InvalidArgumentError, match=why):
                choose(some, each, wanted)


@pytest.mark.parametrize(
    ("keys", "rows", "files", "kind", "expected"),
    [
        (10, 1000, 1, "string", "join"),  # a look-up takes longer than reading everything
        (100, 2_000_000_000, 2000, "string", "index"),  # most files have no candidate
        (100, 2_000_000_000, 2000, "long", "index"),  # and no file is read at all
        (1_000_000, 20_000_000, 16, "long", "join"),  # bits in a filter are hard to beat
        (1_000_000, 2_000_000, 16, "string", "join"),
    ],
)
def test_the_cheaper_way_is_chosen(
    keys: int, rows: int, files: int, kind: str, expected: str
) -> None:
    found = choose(search(keys, rows, files, kind), index(rows, kind), "auto")
    assert found.strategy == expected
    assert found.reason.startswith(f"{keys:,} keys in")


def test_an_index_of_many_small_files_costs_more() -> None:
    some = search(1000, 40_000_000, 4000)
    assert choose(some, index(40_000_000), "auto").strategy == "index"
    # Of a table that had a hundred times as many rows.
    assert choose(some, index(4_000_000_000, runs=16), "auto").strategy == "join"


def test_files_that_are_not_indexed_count_as_read() -> None:
    some = search(10, 1_000_000_000, 1000, "long")
    assert choose(some, index(1_000_000_000, "long"), "auto").strategy == "index"
    stale = replace(index(10_000_000, "long"), snapshot_id=4)
    assert choose(some, stale, "auto").strategy == "join"
