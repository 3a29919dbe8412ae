"""What a `DeltaTable` tells without a session."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from delvec import DeltaTable
from delvec.errors import FormatError, InvalidArgumentError, TableNotFoundError
from tests.delta.builder import TableBuilder, small_table


@pytest.fixture
def orders(tmp_path: Path) -> DeltaTable:
    """Three files in two days, 10 rows each, ids from 0 on; of the first, rows 0 to 3 are gone."""
    builder = TableBuilder(
        tmp_path / "orders",
        fields={"id": "long", "amount": "double", "day": "date"},
        partition_columns=["day"],
    )
    builder.create()
    adds = []
    for number, day in enumerate(("2026-01-30", "2026-01-30", "2026-01-31")):
        ids = list(range(number * 10, number * 10 + 10))
        entry = builder.write_file(
            f"day={day}/part-{number}.parquet",
            {"id": ids, "amount": [i / 2 for i in ids]},
            {"day": day},
        )
        entry["stats"] = json.dumps(
            {
                "numRecords": 10,
                "minValues": {"id": ids[0], "amount": ids[0] / 2},
                "maxValues": {"id": ids[-1], "amount": ids[-1] / 2},
                "nullCount": {"id": 0, "amount": 0},
            }
        )
        adds.append(entry)
    builder.commit(*({"add": entry} for entry in adds))
    [vector] = builder.write_vectors(range(4))
    builder.delete(adds[0], vector)
    return DeltaTable.for_path(None, builder.root)


def test_what_a_table_is(orders: DeltaTable) -> None:
    assert orders.version == 2
    assert orders.schema.names == ("id", "amount", "day")
    assert orders.partition_columns == ("day",)
    assert orders.properties == {"delta.enableDeletionVectors": "true"}
    assert orders.protocol.has_vectors
    detail = orders.detail()
    assert (detail.files, detail.rows, detail.deleted_rows, detail.files_with_vectors) == (
        3,
        26,
        4,
        1,
    )
    assert json.loads(json.dumps(detail.to_json()))["version"] == 2
    assert orders.detail(version=1).rows == 30


def test_each_call_looks_at_the_newest_version(tmp_path: Path) -> None:
    builder, [first, _] = small_table(tmp_path / "t")
    table = DeltaTable.for_path(None, builder.root)
    assert (table.version, table.count()) == (2, 16)
    builder.commit({"remove": {**first, "dataChange": True}})
    assert (table.version, table.count()) == (3, 8)
    assert table.count(version=2) == 16


def test_files_as_a_table(orders: DeltaTable) -> None:
    files = orders.arrow_files().sort_by("path")
    assert files.column("deleted_rows").to_pylist() == [4, 0, 0]
    assert files.column("row_count").to_pylist() == [10, 10, 10]
    assert files.column("vector").to_pylist() == ["u", None, None]
    assert files.column("vector_bytes").to_pylist() == [31, None, None]
    assert files.column("tight_bounds").to_pylist() == [False, None, None]
    assert files.column("partition_values").to_pylist()[2] == [("day", "2026-01-31")]
    assert files.column("statistics").to_pylist()[2] == {
        "id": {"null_count": 0, "minimum": 20, "maximum": 29},
        "amount": {"null_count": 0, "minimum": 10.0, "maximum": 14.5},
    }
    assert orders.arrow_files(version=1).column("deleted_rows").to_pylist() == [0, 0, 0]


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


def test_only_files_that_can_match_are_opened(orders: DeltaTable) -> None:
    for file in orders.storage.list(recursive=True):
        if "part-0" in file.key or "part-1" in file.key or file.key.endswith(".bin"):
            orders.storage.delete([file.key])
    assert orders.to_arrow([("id", ">=", 20)]).num_rows == 10
    assert orders.to_arrow([("day", "=", "2026-01-31")]).num_rows == 10


def test_counting_by_the_log_alone(orders: DeltaTable) -> None:
    for file in orders.storage.list(recursive=True):
        if file.key.endswith((".parquet", ".bin")):
            orders.storage.delete([file.key])
    assert orders.count() == 26
    assert orders.count([("day", "=", "2026-01-30")]) == 16
    assert orders.count([("id", ">=", 10)]) == 20
    assert orders.count([("id", ">=", 100)]) == 0
    assert orders.count([("id", "=", None)]) == 0


def test_counting_reads_what_the_log_leaves_open(orders: DeltaTable) -> None:
    before = orders.storage.requests.gets
    assert orders.count([("id", ">=", 3), ("id", "<", 25)]) == 21
    assert orders.count([("id", "=", 2)]) == 0
    assert orders.storage.requests.gets > before


def test_counting_without_statistics_reads_footers(tmp_path: Path) -> None:
    builder = TableBuilder(tmp_path / "t")
    builder.create()
    entry = builder.write_file("a.parquet", {"id": range(1000)})
    del entry["stats"]
    builder.commit({"add": entry})
    table = DeltaTable.for_path(None, builder.root)
    assert table.detail().rows is None
    assert table.count() == 1000


def test_what_is_no_table(tmp_path: Path) -> None:
    assert not DeltaTable.is_delta_table(tmp_path)
    with pytest.raises(TableNotFoundError):
        DeltaTable.for_path(None, tmp_path)
    builder, _ = small_table(tmp_path / "t")
    assert DeltaTable.is_delta_table(builder.root)


def test_what_needs_a_session_says_so(orders: DeltaTable) -> None:
    for call in (orders.to_df, orders.files, orders.history):
        with pytest.raises(InvalidArgumentError, match="needs a Spark session"):
            call()
    with pytest.raises(InvalidArgumentError, match="needs a Spark session") as caught:
        orders.to_arrow("id = 1")
    assert "tuples" in str(caught.value.hint)


def test_a_version_or_a_timestamp(orders: DeltaTable) -> None:
    with pytest.raises(InvalidArgumentError, match="name one of them"):
        orders.to_arrow(version=1, timestamp="2026-01-01")


def test_no_session_means_no_pyspark(orders: DeltaTable) -> None:
    code = """
import sys
from delvec import DeltaTable
table = DeltaTable.for_path(None, sys.argv[1])
assert table.count() == 26 and table.to_arrow().num_rows == 26
assert table.arrow_files().num_rows == 3 and table.arrow_history().num_rows == 3
assert not {"pyspark", "py4j"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code, orders.storage.root], check=True)


def test_only_to_pandas_needs_pandas(tmp_path: Path) -> None:
    kinds = ["byte", "short", "integer", "long", "float", "double"]
    builder = TableBuilder(tmp_path / "t", fields={kind: kind for kind in kinds})
    builder.create()
    types = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
    columns = {kind: pa.array([1, 2], each) for kind, each in zip(kinds, types, strict=True)}
    builder.commit({"add": builder.write_file("a.parquet", columns)})
    DeltaTable.for_path(None, builder.root).checkpoint()
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


def test_statistics_that_cannot_be_trusted_keep_their_file(tmp_path: Path) -> None:
    builder = TableBuilder(tmp_path / "t", fields={"id": "long", "s": "string", "t": "timestamp"})
    builder.create()
    instant = pa.array([1_000_999], pa.timestamp("us", "UTC"))
    text = "a" * 31 + "\U0001f600" * 3
    entry = builder.write_file("a.parquet", {"id": [7], "s": [text], "t": instant})
    entry["stats"] = json.dumps(
        {
            "numRecords": 1,
            "minValues": {"id": "seven", "s": "a", "t": "1970-01-01T00:00:01.000Z"},
            "maxValues": {"id": [], "s": "a" * 31 + "\ufffd", "t": "1970-01-01T00:00:01.000Z"},
            "nullCount": {"id": None},
        }
    )
    builder.commit({"add": entry})
    table = DeltaTable.for_path(None, builder.root)
    assert table.count([("id", ">", 6)]) == 1
    assert table.count([("s", ">", "a" * 31 + "\ufffe")]) == 1
    assert table.count([("t", ">", "1970-01-01T00:00:01.000500Z")]) == 1


def test_null_counts_under_wide_bounds(tmp_path: Path) -> None:
    """Rows 0 and 1 are null; row 2 is not, and is deleted: what is left is null."""
    builder = TableBuilder(tmp_path / "t", fields={"id": "long"})
    builder.create()
    entry = builder.write_file("a.parquet", {"id": pa.array([None, None, 5], pa.int64())})
    entry["stats"] = json.dumps({"numRecords": 3, "nullCount": {"id": 2}})
    builder.commit({"add": entry})
    table = DeltaTable.for_path(None, builder.root)
    assert table.count([("id", "=", None)]) == 2
    [vector] = builder.write_vectors([2])
    builder.delete(entry, vector)
    assert table.count([("id", "=", None)]) == 2
    assert table.count([("id", "!=", None)]) == 0


def one_file(root: Path, kind: str, values: pa.Array, **stats: object) -> DeltaTable:
    builder = TableBuilder(root, fields={"x": kind})
    builder.create()
    entry = builder.write_file("a.parquet", {"x": values})
    entry["stats"] = json.dumps({"numRecords": len(values), **stats})
    builder.commit({"add": entry})
    return DeltaTable.for_path(None, builder.root)


def test_doubles_that_were_floats(tmp_path: Path) -> None:
    """Statistics hold a float in its shortest form; as a double it is another number."""
    low = high = {"x": 0.7}
    values = pa.array([0.7], pa.float32())
    table = one_file(tmp_path / "t", "double", values, minValues=low, maxValues=high)
    assert table.count([("x", "<", 0.7)]) == 1
    assert table.count([("x", "=", 0.699999988079071)]) == 1
    assert table.count([("x", "<", 0.6)]) == 0


def test_null_counts_of_writers_that_count_deleted_rows(tmp_path: Path) -> None:
    """Five nulls are deleted, five values are left: the count of nulls is that of rows left."""
    builder = TableBuilder(tmp_path / "t", fields={"x": "long"})
    builder.create()
    entry = builder.write_file("a.parquet", {"x": pa.array([None] * 5 + [1] * 5, pa.int64())})
    [vector] = builder.write_vectors(range(5))
    stats = json.dumps({"numRecords": 10, "nullCount": {"x": 5}})
    builder.commit({"add": entry | {"stats": stats, "deletionVector": vector}})
    table = DeltaTable.for_path(None, builder.root)
    assert table.count([("x", "=", 1)]) == 5
    assert table.count([("x", "=", None)]) == 0


def test_numbers_in_statistics_are_exact(tmp_path: Path) -> None:
    number = 1_234_567_890_123_456_789
    values = pa.array([number])
    table = one_file(tmp_path / "t", "long", values, minValues={"x": 0}, maxValues={"x": 0})
    file = tmp_path / "t" / "_delta_log" / "00000000000000000001.json"
    text = file.read_text().replace(
        r"\"minValues\": {\"x\": 0}", r"\"minValues\": {\"x\": 1.234567890123456789E18}"
    )
    text = text.replace(
        r"\"maxValues\": {\"x\": 0}", r"\"maxValues\": {\"x\": 1.234567890123456789E18}"
    )
    file.write_text(text)
    assert table.count([("x", "=", number)]) == 1


def test_statistics_that_pretend_to_belong_to_another_file(tmp_path: Path) -> None:
    builder = TableBuilder(tmp_path / "t")
    builder.create()
    adds = [builder.write_file(f"{number}.parquet", {"id": [number]}) for number in (1, 50)]
    low = {"numRecords": 1, "minValues": {"id": 1}, "maxValues": {"id": 1}}
    adds[0]["stats"] = json.dumps(low) * 2
    adds[1]["stats"] = " "
    builder.commit(*({"add": entry} for entry in adds))
    assert DeltaTable.for_path(None, builder.root).to_arrow([("id", "=", 50)]).num_rows == 1


@pytest.mark.parametrize("cardinality", [-5, 50])
def test_a_cardinality_that_cannot_be(tmp_path: Path, cardinality: int) -> None:
    builder, [first, _] = small_table(tmp_path / "t")
    vector = first["deletionVector"] | {"cardinality": cardinality, "offset": 999}
    removed = {"path": first["path"], "deletionVector": first["deletionVector"]}
    builder.commit(
        {"remove": removed | {"dataChange": True}}, {"add": first | {"deletionVector": vector}}
    )
    with pytest.raises(FormatError, match=f"part-0.parquet marks .* found {cardinality}"):
        DeltaTable.for_path(None, builder.root).count()


def test_a_vector_without_a_cardinality(tmp_path: Path) -> None:
    builder, [first, _] = small_table(tmp_path / "t")
    vector = {
        name: value for name, value in first["deletionVector"].items() if name != "cardinality"
    }
    removed = {"path": first["path"], "deletionVector": first["deletionVector"]}
    changed = first | {"deletionVector": vector | {"offset": 999}}
    builder.commit({"remove": removed | {"dataChange": True}}, {"add": changed})
    with pytest.raises(FormatError, match=r"part-0\.parquet marks an impossible number"):
        DeltaTable.for_path(None, builder.root).count()
