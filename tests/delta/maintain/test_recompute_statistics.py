"""Statistics from live rows: tight again, and formatted as those from footers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import patch

import deltalake
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delvec import DeltaTable
from delvec.delta.maintain import recompute_statistics as module
from delvec.delta.read.data_file import open_data_file
from delvec.delta.read.footer_statistics import file_statistics, read_parquet_footer
from delvec.delta.write.report import WriteReport
from delvec.errors import ChecksumError, FormatError, InvalidArgumentError, ObjectNotFoundError
from tests.delta import log_files
from tests.delta.builder import (
    MAPPED,
    Action,
    TableBuilder,
    field_of,
    legacy,
    mapped_field,
    protocol_of,
    removed,
    struct_of,
    table_with,
)


def statistics(table: DeltaTable, path: str = "part-0.parquet") -> dict[str, Any]:
    [entry] = [each for each in table.snapshot().files.entries() if each.path == path]
    found: dict[str, Any] = json.loads(entry.add["stats"], parse_float=Decimal)
    return found


def with_vector(add: Action, vector: Action, **more: Any) -> Action:  # noqa: ANN401
    stats = json.loads(add["stats"]) | {"tightBounds": False} | more
    return add | {"deletionVector": vector, "stats": json.dumps(stats)}


def one_file(
    root: Path,
    rows: Any,  # noqa: ANN401
    deleted: Sequence[int] = (0,),
    fields: Any = None,  # noqa: ANN401
    records: int | None = None,
    **options: Any,  # noqa: ANN401
) -> DeltaTable:
    """A table of one file, some of whose rows are deleted; the log may count others."""
    builder = TableBuilder.made(root, fields=fields or {"id": "long"})
    add = builder.append("part-0.parquet", rows, **options)
    if deleted:
        [vector] = builder.write_vectors(deleted)
        counted = {} if records is None else {"numRecords": records}
        builder.commit({"remove": removed(add)}, {"add": with_vector(add, vector, **counted)})
    return builder.handle


@pytest.fixture
def table(tmp_path: Path) -> DeltaTable:
    """A table of the ids 1 and 2, of which the first is deleted; version 2."""
    return one_file(tmp_path / "t", {"id": [1, 2]})


def recomputed(table: DeltaTable) -> dict[str, Any]:
    table.recompute_statistics()
    return statistics(table)


STRUCT = struct_of(
    field_of("x", "long"),
    field_of("items", {"type": "array", "elementType": "long", "containsNull": True}),
    field_of("y", "string"),
)
INNER = pa.struct([("x", pa.int64()), ("items", pa.list_(pa.int64())), ("y", pa.string())])
STRUCTS = [{"x": 1, "items": [1], "y": None}, None, {"x": 5, "items": None, "y": "b"}, {"x": 9}]
# Columns, types, deleted rows, the count in the log, and: rows, minima, maxima, nulls.
FILES: dict[str, tuple[Any, Any, list[int], int | None, tuple[int, Any, Any, Any]]] = {
    "bounds are those of live rows, the count is of all": (
        *({"id": [1, 2, None, 90, None]}, {"id": "long"}, [0, 3, 4], None),
        (5, {"id": 2}, {"id": 2}, {"id": 1}),
    ),
    "no row is live": ({"id": [1, 2]}, {"id": "long"}, [0, 1], None, (2, None, None, {"id": 0})),
    "the log counts live rows": (
        *({"id": range(10)}, {"id": "long"}, [8, 9], 8),
        (10, {"id": 0}, {"id": 7}, {"id": 0}),
    ),
    "fields of structs are null where the struct is": (
        {"s": pa.array(STRUCTS, INNER), "id": [1, 2, 3, 4]},
        *({"s": STRUCT, "id": "long"}, [3], None),
        (
            *(4, {"s": {"x": 1, "y": "b"}, "id": 1}, {"s": {"x": 5, "y": "b"}, "id": 3}),
            {"s": {"x": 1, "y": 2}, "id": 0},
        ),
    ),
    "bounds are of the type that the column has now": (
        {"a": pa.array([0.1, 2.5], pa.float32()), "b": pa.array([1, 2], pa.int32())},
        *({"a": "double", "b": "long"}, [], None),
        (2, {"a": Decimal("0.10000000149011612"), "b": 1}, {"a": 2.5, "b": 2}, {"a": 0, "b": 0}),
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_statistics_are_those_of_live_rows_and_no_row_changes(tmp_path: Path, name: str) -> None:
    columns, fields, deleted, records, (rows, low, high, nulls) = FILES[name]
    table = one_file(tmp_path / "t", columns, deleted, fields, records)
    before = None if records else table.to_arrow()
    report = table.recompute_statistics()
    assert (report.version, report.files_scanned) == (table.version, 1)
    bounds = {"minValues": low, "maxValues": high} if low else {}
    expected = {"numRecords": rows, **bounds, "nullCount": nulls, "tightBounds": True}
    assert statistics(table) == expected
    assert before is None or table.to_arrow() == before
    assert table.count() == rows - len(deleted)


def test_files_are_pruned_by_the_new_bounds(tmp_path: Path) -> None:
    table = one_file(tmp_path / "t", {"id": [1, 2, 90]}, [2])
    path = tmp_path / "t" / "part-0.parquet"
    path.rename(tmp_path / "kept")
    with pytest.raises(ObjectNotFoundError):
        table.to_arrow([("id", ">", 50)])
    (tmp_path / "kept").rename(path)
    table.recompute_statistics()
    path.unlink()
    assert table.to_arrow([("id", ">", 50)]).num_rows == 0  # the file is not opened


def test_the_commit_changes_no_rows_and_keeps_the_entry(table: DeltaTable) -> None:
    [before] = table.snapshot().files.entries()
    table.recompute_statistics(commit_metadata="mine")
    info, add = log_files.commits(Path(table.storage.root))[3]
    assert add["add"] | {"stats": 0} == {**before.add, "stats": 0, "dataChange": False}
    assert info["commitInfo"].items() >= {
        *{"operation": "COMPUTE STATS", "isBlindAppend": False, "userMetadata": "mine"}.items()
    }
    assert info["commitInfo"]["operationParameters"] == {"predicate": '["true"]'}


def test_a_second_time_there_is_nothing_to_do(table: DeltaTable) -> None:
    table.recompute_statistics()
    assert (table.recompute_statistics().version, table.version) == (None, 3)
    table.checkpoint()
    assert DeltaTable.for_path(None, table.storage.root).recompute_statistics().version is None


def test_a_dry_run_reads_no_data_file(table: DeltaTable) -> None:
    table.storage.delete(["part-0.parquet"])
    report = table.recompute_statistics(dry_run=True)
    assert (report.version, report.files_scanned, table.version) == (None, 1, 2)


TYPES: dict[str, tuple[Any, list[Any]]] = {
    "byte": (pa.int8(), [-3, 100, None]),
    "short": (pa.int16(), [-3, 1000, None]),
    "integer": (pa.int32(), [-3, 100_000, None]),
    "long": (pa.int64(), [-(2**63), 2**63 - 1, None]),
    "float": (pa.float32(), [0.1, -7.5, None]),
    "double": (pa.float64(), [0.1, -1e300, None]),
    "decimal(38,10)": (
        pa.decimal128(38, 10),
        [Decimal("1234567890123456789012345678.1234567891"), Decimal("-0.0000000001"), None],
    ),
    "decimal(5,2)": (pa.decimal128(5, 2), [Decimal("1.10"), Decimal("-999.99"), None]),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [datetime(2024, 1, 31, 23, 59, 59, 999_999, timezone.utc), None],
    ),
    "timestamp_ntz": (
        pa.timestamp("us"),
        [datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime(2024, 1, 1, 0, 0, 0, 1), None],  # noqa: DTZ001
    ),
    "string": (pa.string(), ["", "a" * 40, "\U0010ffff" * 33, "é" * 50, None]),
    "boolean": (pa.bool_(), [True, False, None]),
    "binary": (pa.binary(), [b"a", b"\xff", None]),
}


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_has_the_statistics_that_a_footer_gives(tmp_path: Path, kind: str) -> None:
    stored, values = TYPES[kind]
    rows = pa.table({"a": pa.array([*values, *values], stored)})
    table = one_file(tmp_path / "t", rows, [], {"a": kind}, row_group_size=2)
    table.recompute_statistics()
    metadata, size = table.snapshot().metadata, int(table.snapshot().files.sizes[0])
    footer = read_parquet_footer(table.storage, "part-0.parquet", size)
    expected = file_statistics(metadata, footer, tight_bounds=True)
    found = statistics(table)
    if kind in ("float", "double"):  # a footer does not tell whether there is a NaN
        assert float(found.pop("maxValues")["a"]) == max(v for v in rows["a"].to_pylist() if v)
        assert {k: float(v) for k, v in found.pop("minValues").items()} == expected.pop("minValues")
    assert found == expected


FLOATS = st.lists(st.one_of(st.none(), st.floats(width=64)), min_size=1, max_size=12)


@pytest.mark.slow
@given(values=FLOATS, data=st.data())
def test_numbers_that_are_none_have_no_maximum(
    values: list[float | None], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    deleted = data.draw(st.sets(st.integers(0, len(values) - 1)))
    rows = pa.table({"a": pa.array(values, pa.float64())})
    root = tmp_path_factory.mktemp("floats") / "t"
    table = one_file(root, rows, sorted(deleted), {"a": "double"})
    table.recompute_statistics()
    live = [value for at, value in enumerate(values) if at not in deleted]
    numbers = [value for value in live if value is not None]
    plain = [value for value in numbers if not np.isnan(value)]
    found = statistics(table)
    assert found["nullCount"] == {"a": len(live) - len(numbers)}
    low, high = (found.get(name, {}).get("a") for name in ("minValues", "maxValues"))
    is_low = bool(plain) and np.isfinite(min(plain))
    is_high = len(plain) == len(numbers) > 0 and np.isfinite(max(plain))
    assert (low is not None, high is not None) == (is_low, is_high)
    assert low is None or float(low) == min(plain)
    assert high is None or float(high) == max(plain)


def test_columns_have_their_physical_names_and_files_may_lack_them(tmp_path: Path) -> None:
    protocol = protocol_of("deletionVectors", "columnMapping")
    fields = [mapped_field(name, "long", n) for n, name in enumerate(("id", "added"))]
    builder = TableBuilder.made(tmp_path, protocol=protocol, properties=MAPPED, fields=fields)
    [vector] = builder.write_vectors([2])
    builder.add(with_vector(builder.write_file("part-0.parquet", {"col-0": [4, 5, 6]}), vector))
    assert recomputed(builder.handle) == {
        "numRecords": 3,
        "minValues": {"col-0": 4},
        "maxValues": {"col-0": 5},
        "nullCount": {"col-0": 0, "col-1": 2},
        "tightBounds": True,
    }


def test_variants_arrays_and_columns_without_an_index_are_not_read(tmp_path: Path) -> None:
    builder = TableBuilder.made(
        tmp_path,
        fields={"id": "long", "v": "variant", "x": "long"},
        protocol=protocol_of("deletionVectors", "variantType"),
        properties={"delta.dataSkippingNumIndexedCols": "2"},
    )
    shredded = pa.array([{"value": b"", "metadata": b"", "typed_value": 1}] * 2)
    builder.append("part-0.parquet", {"id": [1, 2], "v": shredded, "x": [3, 4]})
    found = recomputed(builder.handle)
    assert (found["nullCount"], found["maxValues"]) == ({"id": 0}, {"id": 2})


def test_a_table_without_the_feature_says_nothing_of_tight_bounds(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path, protocol=legacy(1, 2), properties={})
    add = builder.write_file("part-0.parquet", {"id": [1, 2]})
    del add["stats"]
    builder.add(add)
    expected = {"minValues": {"id": 1}, "maxValues": {"id": 2}, "nullCount": {"id": 0}}
    assert recomputed(builder.handle) == {"numRecords": 2, **expected}
    assert deltalake.DeltaTable(str(builder.root)).to_pyarrow_table().num_rows == 2


def test_vectors_that_are_damaged_or_of_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="does not have"):
        one_file(tmp_path / "other", {"id": [1, 2]}, [7]).recompute_statistics()
    table = one_file(tmp_path / "t", {"id": [1, 2]})
    [path] = (tmp_path / "t").glob("deletion_vector_*")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(ChecksumError):
        table.recompute_statistics()
    assert table.version == 2


def partitioned(root: Path) -> DeltaTable:
    fields = {"id": "long", "day": "date"}
    builder = TableBuilder.made(root, fields=fields, partition_columns=["day"])
    adds = [
        builder.write_file(f"part-{number}.parquet", {"id": [number, 100]}, {"day": day})
        for number, day in enumerate(("2024-01-01", "2024-01-02", None))
    ]
    vectors = builder.write_vectors([1], [1], [1])
    builder.add(*(with_vector(add, each) for add, each in zip(adds, vectors, strict=True)))
    return builder.handle


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ([("day", "=", "2024-01-02")], [1]),
        ([("day", "=", None)], [2]),
        ([("day", "<", "2024-01-09")], [0, 1]),
        (None, [0, 1, 2]),
    ],
)
def test_partitions_choose_files(tmp_path: Path, where: list[Any] | None, files: list[int]) -> None:
    table = partitioned(tmp_path / "t")
    report = table.recompute_statistics(where)
    tight = [n for n in range(3) if statistics(table, f"part-{n}.parquet")["tightBounds"]]
    assert tight == files
    assert (report.files_scanned, report.files_pruned) == (len(files), 3 - len(files))


@pytest.mark.parametrize("where", [[("id", "=", 1)], "day = '2024-01-01'"])
def test_other_conditions_are_refused(tmp_path: Path, where: Any) -> None:  # noqa: ANN401
    table = partitioned(tmp_path / "t")
    with pytest.raises(InvalidArgumentError, match="the table is partitioned by day"):
        table.recompute_statistics(where)


def test_only_files_that_need_it_are_read(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path)
    full = {"numRecords": 1, "minValues": {"id": 1}, "maxValues": {"id": 1}, "nullCount": {"id": 0}}
    names = ("good", "bare", "none")
    good, bare, none = (builder.write_file(f"{name}.parquet", {"id": [1]}) for name in names)
    good["stats"] = json.dumps(full)
    del none["stats"]
    builder.add(good, bare, none)
    assert builder.handle.recompute_statistics().files_scanned == 2
    found = [statistics(builder.handle, f"{name}.parquet") for name in names]
    assert found == [full, *[full | {"tightBounds": True}] * 2]


def raced(
    table: DeltaTable, compete: Callable[[], object], at: int = 1
) -> tuple[WriteReport, list[str]]:
    """Recompute while somebody commits right before a file is opened; give all that were."""
    opened: list[str] = []

    def open_one(storage: Any, file: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        opened.append(file.path)
        if len(opened) == at:
            compete()
        return open_data_file(storage, file, *args, **kwargs)

    with patch.object(module, "open_data_file", open_one):
        return table.recompute_statistics(), opened


def test_a_concurrent_delete_is_kept_and_only_its_file_is_read_again(tmp_path: Path) -> None:
    builder, adds = table_with(tmp_path, *[{"id": [0, 1, 2, 3]}] * 3)
    table = DeltaTable.for_path(None, tmp_path)
    [vector] = builder.write_vectors([3])
    report, opened = raced(table, lambda: builder.delete(adds[1], vector), at=3)
    assert report.attempts == 2
    assert sorted(opened) == [f"part-{number}.parquet" for number in (0, 1, 1, 2)]
    assert table.count() == 11
    found = [statistics(table, f"part-{number}.parquet") for number in range(3)]
    assert [each["maxValues"]["id"] for each in found] == [3, 2, 3]


def test_a_concurrent_append_does_not_matter(table: DeltaTable) -> None:
    builder = TableBuilder(Path(table.storage.root), version=2)
    new = builder.write_file("new.parquet", {"id": [7]})
    report, opened = raced(table, lambda: builder.add(new))
    assert (report.version, report.attempts, len(opened)) == (4, 2, 1)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 7]


def test_statistics_of_other_columns_are_computed_anew(tmp_path: Path) -> None:
    fields = {"id": "long", "n": "long"}
    table = one_file(tmp_path, {"id": [1, 2], "n": [3, 4]}, [0], fields)
    properties = {"delta.dataSkippingStatsColumns": "n", "delta.enableDeletionVectors": "true"}
    builder = TableBuilder(tmp_path, fields=fields, version=2, properties=properties)
    report, _ = raced(table, lambda: builder.commit({"metaData": builder.metadata()}))
    assert (report.attempts, statistics(table)["maxValues"]) == (2, {"n": 4})
