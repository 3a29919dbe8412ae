"""What a `DeltaTable` tells without a session, how it is opened, and tables of Delta's projects."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import delvec.delta.table as delta
from delvec import DeltaTable
from delvec.delta.schema.types import Field, PrimitiveType, StructType
from delvec.errors import (
    FormatError,
    InvalidArgumentError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from tests.delta.builder import TableBuilder, removed, small_table
from tests.delta.golden import FUTURE, TABLES, check


@pytest.fixture
def orders(tmp_path: Path) -> DeltaTable:
    """Three files in two days, 10 rows each, ids from 0 on; of the first, rows 0 to 3 are gone."""
    fields = {"id": "long", "amount": "double", "day": "date"}
    builder = TableBuilder.made(tmp_path / "orders", fields=fields, partition_columns=["day"])
    adds = []
    for number, day in enumerate(("2026-01-30", "2026-01-30", "2026-01-31")):
        ids = range(number * 10, number * 10 + 10)
        columns = {"id": ids, "amount": [i / 2 for i in ids]}
        add = builder.write_file(f"day={day}/part-{number}.parquet", columns, {"day": day})
        bounds = [{"id": each, "amount": each / 2} for each in (ids[0], ids[-1])]
        stats = {"numRecords": 10, "minValues": bounds[0], "maxValues": bounds[1]}
        adds.append(add | {"stats": json.dumps(stats | {"nullCount": {"id": 0, "amount": 0}})})
    builder.add(*adds)
    builder.delete_rows(adds[0], range(4))
    return builder.handle


def test_what_a_table_is(orders: DeltaTable) -> None:
    assert (orders.version, orders.schema.names) == (2, ("id", "amount", "day"))
    assert orders.partition_columns == ("day",)
    assert orders.properties == {"delta.enableDeletionVectors": "true"}
    assert orders.protocol.has_vectors
    detail = orders.detail()
    counts = (detail.files, detail.rows, detail.deleted_rows, detail.files_with_vectors)
    assert (counts, json.loads(json.dumps(detail.to_json()))["version"]) == ((3, 26, 4, 1), 2)
    assert "4 rows (13.3 %) by 1 deletion vector" in str(detail)
    assert orders.detail(version=1).rows == 30


def test_each_call_looks_at_the_newest_version(tmp_path: Path) -> None:
    builder, [first, _] = small_table(tmp_path / "t")
    table = builder.handle
    assert (table.version, table.count()) == (2, 16)
    builder.commit({"remove": {**first, "dataChange": True}})
    assert (table.version, table.count()) == (3, 8)
    assert table.count(version=2) == 16


def test_files_as_a_table(orders: DeltaTable) -> None:
    files = orders.arrow_files().sort_by("path").to_pydict()
    expected = {
        "deleted_rows": [4, 0, 0],
        "row_count": [10, 10, 10],
        "vector": ["u", None, None],
        "vector_bytes": [31, None, None],
        "tight_bounds": [False, None, None],
    }
    assert {name: files[name] for name in expected} == expected
    assert files["partition_values"][2] == [("day", "2026-01-31")]
    assert files["statistics"][2] == {
        "id": {"null_count": 0, "minimum": 20, "maximum": 29},
        "amount": {"null_count": 0, "minimum": 10.0, "maximum": 14.5},
    }
    assert orders.arrow_files(version=1)["deleted_rows"].to_pylist() == [0, 0, 0]


def test_rows_as_arrow(orders: DeltaTable) -> None:
    rows = orders.to_arrow()
    assert sorted(rows.column("id").to_pylist()) == list(range(4, 30))
    assert rows.schema == pa.schema(
        [("id", pa.int64()), ("amount", pa.float64()), ("day", pa.date32())]
    )
    some = orders.to_arrow([("day", "=", date(2026, 1, 31)), ("id", ">", 27)], ["id", "_pos"])
    assert some.to_pydict() == {"id": [28, 29], "_pos": [8, 9]}
    either = orders.to_arrow([[("id", "=", 4)], [("id", "in", [2, 25])]], ["id"])
    assert sorted(either.column("id").to_pylist()) == [4, 25]
    assert orders.to_arrow(version=1).num_rows == 30


@pytest.mark.usefixtures("pd")
def test_rows_as_pandas(orders: DeltaTable) -> None:
    assert orders.to_pandas(columns=["id"])["id"].sum() == sum(range(4, 30))


def remove_files(table: DeltaTable, *words: str) -> None:
    keys = [file.key for file in table.storage.list(recursive=True)]
    table.storage.delete([key for key in keys if any(word in key for word in words)])


def test_only_files_that_can_match_are_opened(orders: DeltaTable) -> None:
    remove_files(orders, "part-0", "part-1", ".bin")
    assert orders.to_arrow([("id", ">=", 20)]).num_rows == 10
    assert orders.to_arrow([("day", "=", "2026-01-31")]).num_rows == 10


def test_counting_by_the_log_alone(orders: DeltaTable) -> None:
    remove_files(orders, ".parquet", ".bin")
    assert orders.count() == 26
    conditions = [
        ("day", "=", "2026-01-30"),
        ("id", ">=", 10),
        ("id", ">=", 100),
        ("id", "=", None),
    ]
    assert [orders.count([condition]) for condition in conditions] == [16, 20, 0, 0]


def test_counting_reads_what_the_log_leaves_open(orders: DeltaTable) -> None:
    before = orders.storage.requests.gets
    assert orders.count([("id", ">=", 3), ("id", "<", 25)]) == 21
    assert orders.count([("id", "=", 2)]) == 0
    assert orders.storage.requests.gets > before


def test_counting_without_statistics_reads_footers(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path / "t")
    entry = builder.write_file("a.parquet", {"id": range(1000)})
    del entry["stats"]
    builder.add(entry)
    assert (builder.handle.detail().rows, builder.handle.count()) == (None, 1000)


def test_what_needs_a_session_or_one_version_says_so(orders: DeltaTable) -> None:
    for call in (orders.to_df, orders.files, orders.history):
        with pytest.raises(InvalidArgumentError, match="needs a Spark session"):
            call()
    with pytest.raises(InvalidArgumentError, match="needs a Spark session") as caught:
        orders.to_arrow("id = 1")
    assert "tuples" in str(caught.value.hint)
    with pytest.raises(InvalidArgumentError, match="name one of them"):
        orders.to_arrow(version=1, timestamp="2026-01-01")


def test_no_session_means_no_pyspark(orders: DeltaTable) -> None:
    code = """
import sys, pyarrow
from delvec import DeltaTable
table = DeltaTable(sys.argv[1])
assert pyarrow.table(table).num_rows == 26
assert table.count() == 26 and table.to_arrow().num_rows == 26
assert table.arrow_files().num_rows == 3 and table.arrow_history().num_rows == 3
assert not {"pyspark", "py4j"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, orders.storage.root], check=True)


def test_only_to_pandas_needs_pandas(tmp_path: Path) -> None:
    kinds = ["byte", "short", "integer", "long", "float", "double"]
    builder = TableBuilder.made(tmp_path / "t", fields={kind: kind for kind in kinds})
    types = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
    columns = {kind: pa.array([1, 2], each) for kind, each in zip(kinds, types, strict=True)}
    builder.append("a.parquet", columns)
    builder.handle.checkpoint()
    code = """
import sys
class WithoutPandas:
    def find_spec(self, name, *_):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)
sys.meta_path.insert(0, WithoutPandas())
from delvec import DeltaTable
from delvec.errors import MissingDependencyError
table = DeltaTable.for_path(None, sys.argv[1])
for kind in sys.argv[2:]:
    assert table.to_arrow([(kind, "<", 2)]).num_rows == 1, kind
    assert table.to_arrow([(kind, "in", [2, 3])]).num_rows == 1, kind
    assert table.count([(kind, ">", 300)]) == 0, kind
try:
    table.to_pandas()
except MissingDependencyError as error:
    assert "pip install pandas" in str(error)
else:
    raise AssertionError("read without pandas")
"""
    subprocess.run([sys.executable, "-c", code, builder.root, *kinds], check=True)


# One file: its columns, what the log says of them, rows that a vector deletes, and counts of rows.
NUMBER = 1_234_567_890_123_456_789
TEXT = "a" * 31 + "\U0001f600" * 3
ONE_FILE: dict[str, tuple[dict[str, tuple[str, pa.Array]], str, range, list[tuple[Any, int]]]] = {
    "bounds that cannot be trusted": (
        {
            "id": ("long", pa.array([7])),
            "s": ("string", pa.array([TEXT])),
            "t": ("timestamp", pa.array([1_000_999], pa.timestamp("us", "UTC"))),
        },
        '{"numRecords": 1, "nullCount": {"id": null},'
        ' "minValues": {"id": "seven", "s": "a", "t": "1970-01-01T00:00:01.000Z"},'
        ' "maxValues": {"id": [], "s": "%s", "t": "1970-01-01T00:00:01.000Z"}}'
        % ("a" * 31 + "\ufffd"),
        range(0),
        [
            (("id", ">", 6), 1),
            (("s", ">", "a" * 31 + "\ufffe"), 1),
            (("t", ">", "1970-01-01T00:00:01.000500Z"), 1),
        ],
    ),
    "nulls": (
        {"x": ("long", pa.array([None, None, 5], pa.int64()))},
        '{"numRecords": 3, "nullCount": {"x": 2}}',
        range(0),
        [(("x", "=", None), 2)],
    ),
    "nulls, and what is none is deleted": (
        {"x": ("long", pa.array([None, None, 5], pa.int64()))},
        '{"numRecords": 3, "nullCount": {"x": 2}, "tightBounds": false}',
        range(2, 3),
        [(("x", "=", None), 2), (("x", "!=", None), 0)],
    ),
    "nulls counted by a writer that counts deleted rows": (
        {"x": ("long", pa.array([None] * 5 + [1] * 5, pa.int64()))},
        '{"numRecords": 10, "nullCount": {"x": 5}}',
        range(5),
        [(("x", "=", 1), 5), (("x", "=", None), 0)],
    ),
    # Statistics hold a float in its shortest form; as a double it is another number.
    "doubles that were floats": (
        {"x": ("double", pa.array([0.7], pa.float32()))},
        '{"numRecords": 1, "minValues": {"x": 0.7}, "maxValues": {"x": 0.7}}',
        range(0),
        [(("x", "<", 0.7), 1), (("x", "=", 0.699999988079071), 1), (("x", "<", 0.6), 0)],
    ),
    "numbers of many digits": (
        {"x": ("long", pa.array([NUMBER]))},
        '{"minValues": {"x": 1.234567890123456789E18}, "maxValues": {"x":1.234567890123456789E18}}',
        range(0),
        [(("x", "=", NUMBER), 1)],
    ),
}


@pytest.mark.parametrize("name", ONE_FILE)
def test_rows_are_counted_rightly_whatever_statistics_say(tmp_path: Path, name: str) -> None:
    columns, stats, deleted, counts = ONE_FILE[name]
    builder = TableBuilder.made(
        tmp_path, fields={each: kind for each, (kind, _) in columns.items()}
    )
    entry = builder.write_file("a.parquet", {each: values for each, (_, values) in columns.items()})
    entry["stats"] = stats
    if deleted:
        [entry["deletionVector"]] = builder.write_vectors(deleted)
    builder.add(entry)
    table = DeltaTable.for_path(None, tmp_path)
    for condition, count in counts:
        assert table.count([condition]) == count, condition


def test_statistics_that_pretend_to_belong_to_another_file(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path / "t")
    adds = [builder.write_file(f"{number}.parquet", {"id": [number]}) for number in (1, 50)]
    low = {"numRecords": 1, "minValues": {"id": 1}, "maxValues": {"id": 1}}
    builder.add(adds[0] | {"stats": json.dumps(low) * 2}, adds[1] | {"stats": " "})
    assert builder.handle.to_arrow([("id", "=", 50)]).num_rows == 1


@pytest.mark.parametrize("cardinality", [-5, 50, None])
def test_a_cardinality_that_cannot_be(tmp_path: Path, cardinality: int | None) -> None:
    builder, [first, _] = small_table(tmp_path / "t")
    vector = first["deletionVector"] | {"cardinality": cardinality, "offset": 999}
    if cardinality is None:
        del vector["cardinality"]
    builder.commit({"remove": removed(first)}, {"add": first | {"deletionVector": vector}})
    with pytest.raises(FormatError, match=r"part-0\.parquet marks (an impossible|more)") as caught:
        builder.handle.count()
    assert cardinality is None or f"found {cardinality}" in str(caught.value)


COLUMNS = StructType((Field("id", PrimitiveType("long")),))


def test_a_table_is_opened_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delvec.delta.table.handle.active_session", lambda: None)
    small_table(tmp_path)
    tables = [DeltaTable(str(tmp_path)), DeltaTable(tmp_path), DeltaTable(None, tmp_path)]
    for table in (*tables, DeltaTable(tmp_path, storage_options={})):
        assert table == DeltaTable.for_path(None, tmp_path)
        assert repr(table) == f"DeltaTable({str(tmp_path)!r})"


@pytest.mark.parametrize(
    ("files", "message", "hint"),
    [
        ([], "there is no such folder, or it is empty", "create(spark, '{path}', schema)"),
        (["day=1/part.parquet"], "holds Parquet files and no _delta_log", "{convert}"),
        (
            ["metadata/v1.metadata.json", "data/part.parquet"],
            *("is the folder of an Iceberg table", "IcebergTable.for_name(spark, "),
        ),
        (["notes.txt"], "it has no commits in _delta_log", ""),
    ],
)
def test_no_table_has_hints(tmp_path: Path, files: list[str], message: str, hint: str) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"id": [1]}), tmp_path / name)
    for path in (tmp_path, tmp_path / "none")[: 1 if files else 2]:
        assert not DeltaTable.is_delta_table(path)
        with pytest.raises(TableNotFoundError, match=message) as caught:
            DeltaTable(path)
        call = f"DeltaTable.convert_to_delta(None, '{path}')"
        assert hint.format(path=path, convert=call) in str(caught.value.hint)
    if "convert" in hint:
        DeltaTable.convert_to_delta(None, tmp_path)
        assert DeltaTable.is_delta_table(tmp_path)
        assert DeltaTable(tmp_path).count() == 1


@pytest.mark.parametrize("name", ["db.orders", "spark_catalog.db.orders"])
def test_a_name_in_the_place_of_a_path_says_how_to_open_it(name: str) -> None:
    with pytest.raises(TableNotFoundError, match="looks like the name of a table") as caught:
        DeltaTable(name)
    assert f"DeltaTable.for_name(spark, {name!r})" in str(caught.value.hint)


def test_a_version_belongs_to_the_read(tmp_path: Path) -> None:
    small_table(tmp_path)
    with pytest.raises(InvalidArgumentError, match="opened with all of its versions") as caught:
        DeltaTable(tmp_path, version=0)
    assert caught.value.hint == "name it where you read: to_arrow(version=0)"


def test_create_if_not_exists_keeps_a_table_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = DeltaTable.create_if_not_exists(None, path, COLUMNS, description="orders")
    assert (table.version, table.detail().description) == (0, "orders")
    again = DeltaTable.create_if_not_exists(None, path, StructType(()), description="others")
    assert (again.version, again.schema, again.detail().description) == (0, COLUMNS, "orders")


def test_a_table_is_created_by_a_schema_of_arrow(tmp_path: Path) -> None:
    tags = pa.large_list(pa.dictionary(pa.int8(), pa.large_string()))
    fields = [("at", pa.timestamp("ns", "UTC")), ("local", pa.timestamp("ms")), ("tags", tags)]
    schema = pa.schema([pa.field("id", pa.uint32(), nullable=False), *fields])
    table = DeltaTable.create(None, tmp_path / "t", schema)
    text = "struct<id:long,at:timestamp,local:timestamp_ntz,tags:array<string>>"
    assert str(table.schema) == text
    assert [field.nullable for field in table.schema.fields] == [False, True, True, True]
    with pytest.raises(InvalidArgumentError, match=r"column at is time64\[us\] in Arrow"):
        table.add_columns(pa.schema([("at", pa.time64("us"))]))


def test_html_of_a_table_shows_facts_and_columns_and_escapes_them(tmp_path: Path) -> None:
    builder = TableBuilder.made(tmp_path / "<b>", fields={"<script>alert(1)</script>": "long"})
    table = DeltaTable(builder.root)
    for html in (table._repr_html_(), table.detail()._repr_html_(), table.schema._repr_html_()):
        assert "<script>" not in html
        assert "<b>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in table._repr_html_()
    assert "0 files, 0 B, 0 live rows" in table._repr_html_()
    assert repr(table.detail()) == f"TableDetail({builder.root}: version 0)"


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
    table = DeltaTable.for_path(None, golden / name / "delta")
    assert (pc.sum(table.to_arrow().column("col1")).as_py(), table.version) == (1015, 15)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_older_versions_are_read(golden: Path, version: int) -> None:
    table = DeltaTable.for_path(None, golden / "time-travel-start-start20-start40" / "delta")
    found = sorted(table.to_arrow(version=version).column("id").to_pylist())
    assert found == list(range(10 * (version + 1)))


def test_a_protocol_from_the_future_is_refused_by_its_number(golden: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match="99"):
        delta.DeltaTable.for_path(None, golden / FUTURE / "delta")
