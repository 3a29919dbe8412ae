"""What `df.write.format("delvec")` writes, refuses and leaves behind; without a JVM."""

from __future__ import annotations

import json
import shutil
from datetime import date, datetime, timezone
from decimal import Decimal
from math import nan
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as spark_types
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import LongType, StringType, StructField, StructType

from delvec import DeltaTable
from delvec.datasource import DelvecDataSource
from delvec.datasource.writers import BatchWriter
from delvec.errors import (
    ConflictError,
    ConstraintError,
    InvalidArgumentError,
    UnsupportedFeatureError,
)
from tests.datasource.in_process import ids, pickled, write
from tests.delta.log_files import commits

Kind = spark_types.DataType
STRING, LONG = StringType(), LongType()
IDS = ids(1, 2, 3)
MAPPED = {"delta.columnMapping.mode": "name"}


def create(path: Path, *, partition_by: tuple[str, ...] = (), **columns: Kind) -> None:
    """Create a table; names that end in `_` are NOT NULL."""
    fields = [
        StructField(name.rstrip("_"), kind, not name.endswith("_"))
        for name, kind in columns.items()
    ]
    DeltaTable.create(None, path, StructType(fields), partition_by)


def read(path: Path) -> list[dict[str, Any]]:
    """Read the rows as deltalake does, which knows nothing of delvec."""
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path))
    found = pa.table(builder.execute("select * from t order by 1").read_all())
    return found.to_pylist()  # type: ignore[no-any-return]


def read_ids(path: Path) -> list[int]:
    return [row["id"] for row in read(path)]


def actions(path: Path, version: int, kind: str) -> list[dict[str, Any]]:
    return [each[kind] for each in commits(path)[version] if kind in each]


def files(path: Path) -> set[str]:
    return {file.name for file in path.glob("*.parquet")}


def planned(path: Path, mode: str = "append") -> BatchWriter:
    source = DelvecDataSource({"path": str(path)})
    found = source.writer(StructType([StructField("id", LONG)]), mode == "overwrite")
    assert isinstance(found, BatchWriter)
    return found


def task(writer: BatchWriter, *values: int) -> WriterCommitMessage:
    """Write the rows of a task."""
    return writer.write(iter(ids(*values).to_batches()))


def test_a_new_table_is_one_commit_with_vectors_on(tmp_path: Path) -> None:
    write(tmp_path, ids(1, 2), ids(3), userMetadata="first load")
    table = DeltaTable.for_path(None, tmp_path)
    assert table.version == 0
    assert table.properties["delta.enableDeletionVectors"] == "true"
    assert read_ids(tmp_path) == [1, 2, 3]
    [info] = actions(tmp_path, 0, "commitInfo")
    told = info["operation"], info["operationMetrics"]["numOutputRows"], info["userMetadata"]
    assert told == ("WRITE", "3", "first load")


def test_partitions_become_files_of_their_own(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "id": pa.array(range(6), pa.int64()),
            "day": pa.array([date(2026, 1, 1), None, date(2026, 1, 2)] * 2),
            "name": ["a b/ü", "", "__HIVE_DEFAULT_PARTITION__", "x", None, "x"],
            "at": pa.array([datetime(2026, 1, 1, 10, 30, tzinfo=timezone.utc)] * 6),
            "price": pa.array([Decimal("1.50")] * 6, pa.decimal128(8, 2)),
            "local": pa.array([1_767_263_400_500_000] * 6, pa.timestamp("us")),
            "yes": [True] * 6,
        }
    )
    write(tmp_path, rows, partitionBy="day,name,at,price,local,yes")
    values = [add["partitionValues"] for add in actions(tmp_path, 0, "add")]
    assert {name: {value[name] for value in values} for name in values[0]} == {
        "name": {"a b/ü", None, "x"},
        "day": {"2026-01-01", None, "2026-01-02"},
        "at": {"2026-01-01T10:30:00.000000Z"},
        "local": {"2026-01-01 10:30:00.5"},
        "price": {"1.50"},
        "yes": {"true"},
    }
    # An empty string, Hive's name for null and null itself are one value, as for delta-spark.
    assert len(values) == len({tuple(value.items()) for value in values}) == 5
    assert sorted(read_ids(tmp_path)) == list(range(6))


def test_statistics_know_nan_and_long_strings(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "d": pa.array([1.0, nan, -0.0], pa.float64()),
            "e": pa.array([1.0, 2.0, 0.0], pa.float64()),
            "s": ["a" * 40, "z" * 40, None],
            "t": pa.array([datetime(2026, 1, 1, 0, 0, 0, 1500, tzinfo=timezone.utc)] * 3),
        }
    )
    write(tmp_path, rows)
    [add] = actions(tmp_path, 0, "add")
    stats = json.loads(add["stats"])
    assert (stats["numRecords"], stats["tightBounds"]) == (3, True)
    assert stats["nullCount"] == {"e": 0, "s": 1, "t": 0}
    assert (stats["minValues"]["e"], stats["minValues"]["s"]) == (-0.0, "a" * 32)
    assert stats["maxValues"]["s"] > "z" * 32
    # Arrow computes bounds without NaN; Spark would skip the rows that have it.
    assert "d" not in stats["minValues"] | stats["maxValues"]
    [name] = files(tmp_path)
    group = pq.read_metadata(tmp_path / name).row_group(0)
    assert [group.column(index).statistics is None for index in range(4)] == [True, *3 * [False]]
    assert stats["maxValues"]["t"] == "2026-01-01T00:00:00.001Z"  # readers add a millisecond


def test_large_partitions_are_written_before_the_task_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delvec.datasource.data_files._FILE_BYTES", 2000)
    monkeypatch.setattr("delvec.datasource.data_files._TASK_BYTES", 3000)
    batches = [
        pa.record_batch({"id": list(range(i, i + 100)), "p": [j % 3 for j in range(100)]})
        for i in range(0, 1000, 100)
    ]
    write(tmp_path, pa.Table.from_batches(batches), partitionBy="p")
    assert len(files(tmp_path)) > 3
    assert sorted(read_ids(tmp_path)) == list(range(1000))


def test_columns_are_found_by_name_and_missing_ones_are_null(tmp_path: Path) -> None:
    create(tmp_path, id=LONG, name=STRING, n=spark_types.IntegerType(), d=spark_types.DoubleType())
    write(tmp_path, pa.table({"N": pa.array([1], pa.int16()), "ID": pa.array([7], pa.int64())}))
    assert read(tmp_path) == [{"id": 7, "name": None, "n": 1, "d": None}]


def test_mapped_columns_have_physical_names_and_ids(tmp_path: Path) -> None:
    inner = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.struct([("b", pa.string())])))])
    values = pa.map_(pa.string(), pa.struct([("c", pa.int64())]))
    schema = pa.schema([("id", pa.int64()), ("s", inner), ("m", values)])
    row = {"id": 1, "s": {"a": 2, "l": [{"b": "x"}]}, "m": [("k", {"c": 3})]}
    empty = {"id": 2, "s": None, "m": None}
    write(tmp_path, pa.Table.from_pylist([row, empty, row], schema).slice(0, 2), **MAPPED)
    assert DeltaTable.for_path(None, tmp_path).to_arrow().to_pylist() == [row, empty]
    [name] = files(tmp_path)
    stored = pq.read_schema(tmp_path / name)
    assert all(each.name.startswith("col-") for each in stored)
    assert all(b"PARQUET:field_id" in each.metadata for each in stored)


def test_overwriting_removes_all_rows_and_keeps_the_history(tmp_path: Path) -> None:
    write(tmp_path, ids(1, 2))
    write(tmp_path, ids(3), mode="overwrite")
    assert read_ids(tmp_path) == [3]
    before = DeltaTable.for_path(None, tmp_path).to_arrow(version=0)
    assert before["id"].to_pylist() == [1, 2]


def test_an_append_goes_on_top_of_other_commits(tmp_path: Path) -> None:
    write(tmp_path, ids(1))
    late = planned(tmp_path)
    message = task(late, 2)
    write(tmp_path, ids(3))
    late.commit([message])
    assert read_ids(tmp_path) == [1, 2, 3]


def test_an_overwrite_does_not_lose_a_concurrent_append(tmp_path: Path) -> None:
    write(tmp_path, ids(1))
    late = planned(tmp_path, mode="overwrite")
    message = task(late, 2)
    before = files(tmp_path)
    write(tmp_path, ids(3))
    with pytest.raises(ConflictError, match="added rows"):
        pickled(late).commit([message])
    late.abort([message])
    assert read_ids(tmp_path) == [1, 3]
    assert len(files(tmp_path)) == len(before)  # the file of the overwrite is gone


def test_of_two_that_create_a_table_one_wins(tmp_path: Path) -> None:
    late = planned(tmp_path)
    create(tmp_path, id=LONG)
    message = task(late, 2)
    with pytest.raises(ConflictError, match="just created"):
        late.commit([message])
    assert files(tmp_path) == set()


def test_an_abort_leaves_no_files_but_those_that_a_commit_names(tmp_path: Path) -> None:
    write(tmp_path, ids(1))
    before = files(tmp_path)
    writer = planned(tmp_path)
    message = task(writer, 2)
    assert len(files(tmp_path)) == 2
    writer.abort([message, None])
    assert files(tmp_path) == before
    first, again = task(writer, 2), task(writer, 2)  # Spark drops that of one attempt
    assert first != again
    writer.commit([again])
    writer.abort([again])
    assert read_ids(tmp_path) == [1, 2]


def test_a_task_that_fails_leaves_no_files(tmp_path: Path) -> None:
    def broken() -> Any:  # noqa: ANN401
        yield from ids(1).to_batches()
        raise OSError("the executor is lost")

    with pytest.raises(OSError, match="lost"):
        planned(tmp_path).write(broken())
    assert files(tmp_path) == set()


def test_a_batch_of_an_application_is_written_once_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, ids(1), txnAppId="loader", txnVersion="7")
    assert not caplog.records
    write(tmp_path, ids(1), txnAppId="loader", txnVersion="6")
    assert "holds transaction 7 of loader, and 6 is not written again (rows: 1)" in caplog.text
    assert (read_ids(tmp_path), len(files(tmp_path))) == ([1], 1)


INVARIANT = '{"delta.invariants": "{\\"expression\\":{\\"expression\\":\\"x > 0\\"}}"}'
# The type and the metadata of a column x, and how it is named.
REFUSED: dict[str, tuple[Kind, str, str]] = {
    "char": (spark_types.CharType(3), "", r"char\(3\) of x"),
    "varchar": (spark_types.ArrayType(spark_types.VarcharType(3)), "", r"varchar\(3\)"),
    "nested": (StructType([StructField("a", LONG, False)]), "", "NOT NULL inside of x"),
    "variant": (spark_types.VariantType(), "", "the variant of x"),
    "generated": (LONG, '{"delta.generationExpression": "id + 1"}', "the generated column x"),
    "default": (LONG, '{"CURRENT_DEFAULT": "7"}', "the default of x"),
    "identity": (
        LONG,
        '{"delta.identity.start": 1, "delta.identity.step": 1}',
        "the identity column x",
    ),
    "invariant": (LONG, INVARIANT, "invariant of x"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_only_spark_writes_is_refused(tmp_path: Path, name: str) -> None:
    kind, metadata, match = REFUSED[name]
    create(tmp_path, id=LONG, x=kind)
    if metadata:
        commit = tmp_path / f"_delta_log/{0:020}.json"
        plain = r"\"name\":\"x\",\"type\":\"long\",\"nullable\":true,\"metadata\":{}"
        text = commit.read_text()
        assert plain in text
        changed = json.dumps(plain.replace("\\", "").replace("{}", metadata))[1:-1]
        commit.write_text(text.replace(plain, changed))
    with pytest.raises(UnsupportedFeatureError, match=f"(?s){match}.*DeltaTable"):
        write(tmp_path, IDS)


def test_check_constraints_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"(?s)the constraint positive.*append\(df\)"):
        write(tmp_path, IDS, **{"delta.constraints.positive": "id > 0"})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        (pa.table({"id": [1], "nmae": ["x"]}), "has no column nmae.*\n?.*did you mean name"),
        (pa.table({"id": ["1"], "name": ["x"]}), "id of .* is long, and string"),
        (pa.table({"id": [1], "ID": [2]}), "more than one column"),
        (pa.table({"name": ["x"]}), "lack column id"),
    ],
    ids=["extra", "type", "twice", "missing"],
)
def test_rows_that_do_not_fit_are_refused(tmp_path: Path, rows: pa.Table, match: str) -> None:
    create(tmp_path, id_=LONG, name=STRING)
    with pytest.raises(InvalidArgumentError, match=match):
        write(tmp_path, rows)


def test_a_null_in_a_column_that_takes_none_fails_the_write(tmp_path: Path) -> None:
    create(tmp_path, id_=LONG, p_=STRING, partition_by=("p",))
    with pytest.raises(ConstraintError, match="column id takes no NULL"):
        write(tmp_path, pa.table({"id": pa.array([1, None], pa.int64()), "p": ["a", "b"]}))
    with pytest.raises(ConstraintError, match="column p takes no NULL"):
        write(tmp_path, pa.table({"id": pa.array([1], pa.int64()), "p": [""]}))
    assert files(tmp_path) == set()


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"mergeSchema": "true"}, r"merge_schema=True"),
        ({"overwriteSchema": "true"}, r"replace_schema=True"),
        ({"replaceWhere": "id > 1"}, r"where="),
        ({"partitionOverwriteMode": "dynamic"}, r"dynamic"),
        ({"partitonBy": "id"}, r"did you mean partitionBy"),
        ({"partitionBy": "id"}, r"partitioned by nothing"),
        ({"delta.appendOnly": "true"}, r"set_properties"),
        ({"txnAppId": "a"}, r"go together"),
        ({"txnAppId": "a", "txnVersion": "x"}, r"is a number"),
        ({"txnAppId": "a", "txnVersion": "9" * 5000}, r"is a number"),
        ({"txnAppId": "a", "txnVersion": "\u0661"}, r"is a number"),
    ],
    ids=str,
)
def test_options_are_carried_out_or_refused(
    tmp_path: Path, options: dict[str, str], match: str
) -> None:
    write(tmp_path, IDS, mergeSchema="false", checkpointLocation="elsewhere")
    with pytest.raises((InvalidArgumentError, UnsupportedFeatureError), match=match):
        write(tmp_path, IDS, **options)


def test_an_append_only_table_takes_appends_alone(tmp_path: Path) -> None:
    write(tmp_path, IDS, **{"delta.appendOnly": "true"})
    write(tmp_path, IDS)
    with pytest.raises(UnsupportedFeatureError, match="append-only"):
        write(tmp_path, IDS, mode="overwrite")


@pytest.mark.parametrize("name", ["notes.txt", "day=2026-01-01/part-0.parquet"])
def test_a_folder_with_other_files_is_no_place_for_a_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("mine")
    with pytest.raises(InvalidArgumentError, match=rf"(?s){name}.*choose another folder"):
        write(tmp_path, IDS)


def test_a_table_that_took_the_place_of_the_planned_one_is_not_written_to(tmp_path: Path) -> None:
    write(tmp_path, ids(1), **MAPPED)
    late = planned(tmp_path)
    message = task(late, 2)
    shutil.rmtree(tmp_path)
    write(tmp_path, ids(3), **MAPPED)
    with pytest.raises(ConflictError, match="was replaced while rows for it were written"):
        pickled(late).commit([message])
    assert DeltaTable.for_path(None, tmp_path).to_arrow().to_pylist() == [{"id": 3}]


def test_row_ids_and_the_change_feed_go_on(tmp_path: Path) -> None:
    on = {"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"}
    write(tmp_path, ids(1, 2), **on)
    write(tmp_path, ids(3))
    [add], [info] = (actions(tmp_path, 1, kind) for kind in ("add", "commitInfo"))
    assert add["baseRowId"] == 2
    assert info["isBlindAppend"] is False  # where its rows are from is not known
    assert not actions(tmp_path, 1, "cdc")
