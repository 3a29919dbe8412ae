"""`to_df`: the FileIndex in Python, the forms in which vectors reach the filter, and `explain`."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import delvec
from delvec import DeltaTable
from delvec.errors import InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError
from delvec.spark.delta.scan import vectors
from delvec.spark.delta.scan.reader import READER
from delvec.spark.delta.scan.vectors import VECTOR_MEMORY
from tests.delta.builder import Action, TableBuilder
from tests.spark.delta.readers import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(2)]

DAYS = ("2026-01-30", None, "2026-01-31")
DELETED = {*range(4), 15, 19}


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of ten rows in two days: the first two have vectors, the third has none."""
    builder = TableBuilder(
        tmp_path_factory.mktemp("scan") / "orders",
        fields={"id": "long", "amount": "double", "day": "date", "note": "string"},
        partition_columns=["day"],
    )
    builder.create()
    adds = []
    for number, day in enumerate(DAYS):
        ids = list(range(number * 10, number * 10 + 10))
        rows = {"id": ids, "amount": [i / 2 for i in ids], "note": [f"n{i}" for i in ids]}
        entry = builder.write_file(f"part-{number}.parquet", rows, {"day": day})
        bounds = {"minValues": {"id": ids[0]}, "maxValues": {"id": ids[-1]}}
        adds.append(entry | {"stats": json.dumps({"numRecords": 10, **bounds})})
    builder.commit(*({"add": entry} for entry in adds))
    vectors = builder.write_vectors(range(4), [5, 9])
    for entry, vector in zip(adds[:2], vectors, strict=True):
        builder.delete(entry, vector)
    return builder.root


def one_file(
    root: Path,
    rows: Mapping[str, Any],
    changed: Action | None = None,
    **options: Any,  # noqa: ANN401
) -> tuple[TableBuilder, Action]:
    """Make a table of one file, whose entry may be changed; return that as well."""
    builder = TableBuilder(root, **options)
    builder.create()
    parts = dict.fromkeys(builder.partition_columns, "seven")
    entry = builder.write_file("a.parquet", rows, parts or None) | (changed or {})
    builder.commit({"add": entry})
    return builder, entry


def frame(spark: SparkSession, builder: TableBuilder) -> DataFrame:
    return DeltaTable.for_path(spark, builder.root).to_df()


def ids_of(df: Any) -> list[int]:  # noqa: ANN401
    return sorted(row.id for row in df.select("id").collect())


LIVE = sorted(set(range(30)) - DELETED)

BY_ID = "spark.sql.parquet.fieldId.read.enabled"
FORMS = {
    "constant": {},
    "join": {"spark.sql.codegen.maxFields": "3"},
    "join, as asked for": {READER: "spark"},
    "tasks": {VECTOR_MEMORY: "1"},
}
TOLD = {
    "constant": "constant of its file",
    "join": "since Spark reads this by rows",
    "join, as asked for": "since spark.delvec.scan.reader is spark",
    "tasks": "Python tasks",
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_every_form_gives_the_same_rows(
    spark: SparkSession, orders: Path, form: str, ansi: str
) -> None:
    with settings_of(spark, {**FORMS[form], "spark.sql.ansi.enabled": ansi}):
        table = DeltaTable.for_path(spark, orders)
        df = table.to_df()
        assert df.columns == ["id", "amount", "day", "note"]
        assert ids_of(df) == LIVE
        assert df.count() == len(LIVE)
        assert ids_of(df.where("day is null")) == [10, 11, 12, 13, 14, 16, 17, 18]
        assert ids_of(df.where("day = '2026-01-30' and amount > 3")) == [7, 8, 9]
        assert TOLD[form] in str(delvec.explain(df))
        rows = table.to_df(columns=["_pos", "id", "_file"]).collect()
        assert len(rows) == len(LIVE)
        for row in rows:
            file, position = divmod(row.id, 10)
            assert (row._pos, row._file) == (position, f"{orders}/part-{file}.parquet")


def test_where_and_columns_as_arguments(spark: SparkSession, orders: Path) -> None:
    table = DeltaTable.for_path(spark, orders)
    df = table.to_df(where="note >= 'n25' and id > 20", columns=["id", "_pos"])
    assert df.columns == ["id", "_pos"]
    assert ids_of(df) == [25, 26, 27, 28, 29]
    assert ids_of(table.to_df(where=F.col("id") == 7)) == [7]
    assert ids_of(table.to_df(where="id = 3")) == []
    assert ids_of(table.to_df(version=1, where="id = 3")) == [3]


def test_explain_tells_what_is_pruned_and_why(spark: SparkSession, orders: Path) -> None:
    df = DeltaTable.for_path(spark, orders).to_df()
    report = delvec.explain(df.where("day = '2026-01-31' or day is null").where("id > 25"))
    clean, vectored = (part.listing for part in report.parts)
    assert clean is not None
    assert vectored is not None
    assert (clean.read, clean.total) == (1, 1)
    assert (vectored.read, vectored.by_partition, vectored.by_statistics) == (0, 1, 1)
    assert vectored.vectors == 0
    assert "pruned: 1 by partition values, 1 by statistics" in str(report)
    assert json.loads(json.dumps(report.to_json()))["parts"][1]["form"] == "vector"
    assert "<pre>" in report._repr_html_()
    with pytest.raises(InvalidArgumentError, match="reads no Delta table"):
        delvec.explain(spark.range(3))


MANY = ", ".join(map(str, range(100, 140)))
# Conditions by how many of the two files with vectors they read.
READ = {
    0: ["id > 24", f"id in (25, {MANY})", "day is null and id = 3"],
    1: [
        *("id <=> 5", "10 > id", "id in (1, 2)", f"id in (3, {MANY})", "id in (1, null)"),
        *("not (id >= 10)", "day = date'2026-01-30'", "year(day) = 2026 and month(day) = 1"),
    ],
    2: [
        *("cast(id as int) = 5", "id is null", "id between 0 and 5 or id = 17"),
        *("note like 'n1%'", "id + 1 = 5"),
    ],
}


def test_conditions_of_all_kinds_prune(spark: SparkSession, orders: Path) -> None:
    df = DeltaTable.for_path(spark, orders).to_df()
    day = pa.array([DAYS[number // 10] for number in LIVE]).cast(pa.date32())
    notes = [f"n{number}" for number in LIVE]
    live = spark.createDataFrame(pa.table({"id": pa.array(LIVE), "day": day, "note": notes}))
    for read, conditions in READ.items():
        for condition in conditions:
            found = df.where(condition)
            listing = delvec.explain(found).parts[-1].listing
            assert listing is not None
            # Only the vectors of files that are read are loaded.
            assert (listing.read, listing.vectors) == (read, read), condition
            assert ids_of(found) == ids_of(live.where(condition)), condition


@pytest.mark.more
def test_sql_over_a_view_joins_and_threads(spark: SparkSession, orders: Path) -> None:
    df = DeltaTable.for_path(spark, orders).to_df()
    df.createOrReplaceTempView("delvec_orders")
    assert spark.sql("SELECT count(*) c FROM delvec_orders WHERE id < 15").collect() == [(11,)]
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(lambda low: df.where(f"id >= {low}").count(), range(0, 30, 5)))
    assert counts == [sum(number >= low for number in LIVE) for low in range(0, 30, 5)]
    files = [f"file:{orders}/part-{number}.parquet" for number in range(3)]
    assert sorted(df.inputFiles()) == files


def test_a_vector_that_is_gone_fails_the_query_with_our_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder, entry = one_file(tmp_path / "t", {"id": range(10)})
    [vector] = builder.write_vectors([1])
    builder.delete(entry, vector)
    df = frame(spark, builder)
    builder.vector_path().unlink()
    with pytest.raises(PySparkException, match=r"(?s)deletion vector of a.parquet.*Hint:"):
        df.collect()


def mapped(root: Path, mode: str, *fields: dict[str, Any]) -> TableBuilder:
    """Begin a table whose columns are mapped."""
    builder = TableBuilder(root, properties={"delta.columnMapping.mode": mode})
    builder.protocol["readerFeatures"] = ["deletionVectors", "columnMapping"]
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = builder.metadata() | {"schemaString": schema}
    builder.commit({"protocol": builder.protocol}, {"metaData": metadata})
    return builder


def test_columns_are_found_by_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    """In mapping mode `id` the names in the files mean nothing."""
    nested = {"type": "struct", "fields": [_field("x", "long", 3), _field("y", "string", 4)]}
    builder = mapped(tmp_path / "t", "id", _field("id", "long", 1), _field("s", nested, 2))
    inner = [_parquet_field("old_y", pa.string(), 4), _parquet_field("old_x", pa.int64(), 3)]
    outer = [_parquet_field("b", pa.struct(inner), 2), _parquet_field("a", pa.int64(), 1)]
    rows = [{"a": i, "b": {"old_x": i * 2, "old_y": f"y{i}"}} for i in range(10)]
    entry = builder.write_file("a.parquet", pa.Table.from_pylist(rows, pa.schema(outer)))
    assert pq.read_schema(builder.root / "a.parquet").field("a").metadata[b"PARQUET:field_id"]
    builder.commit({"add": entry})
    [vector] = builder.write_vectors([0, 5])
    builder.delete(entry, vector)
    table = DeltaTable.for_path(spark, builder.root)
    expected = [(i, i * 2, f"y{i}") for i in range(10) if i not in (0, 5)]
    for allowed in ("true", "false"):
        with settings_of(spark, {BY_ID: allowed}):
            df = table.to_df()
            assert sorted((r.id, r.s.x, r.s.y) for r in df.collect()) == expected
            assert [r.id for r in df.where("s.x = 14 and s.y = 'y7'").collect()] == [7]
            assert spark.conf.get(BY_ID) == allowed
    assert table.to_arrow().to_pylist()[0] == {"id": 1, "s": {"x": 2, "y": "y1"}}


def test_mapped_columns_of_files_without_ids(spark: SparkSession, tmp_path: Path) -> None:
    """As in a table whose columns were mapped by name after its files were written."""
    builder = mapped(tmp_path / "t", "name", _field("new", "long", 1, "old"))
    builder.commit({"add": builder.write_file("a.parquet", {"old": range(10)})})
    df = frame(spark, builder)
    for allowed in ("true", "false"):
        with settings_of(spark, {BY_ID: allowed}):
            assert df.selectExpr("sum(new)").collect() == [(45,)]


def _field(name: str, kind: Any, number: int, stored: str = "") -> dict[str, Any]:  # noqa: ANN401
    mapping = {"id": number, "physicalName": stored or f"col-{number}"}
    metadata = {f"delta.columnMapping.{key}": value for key, value in mapping.items()}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def _parquet_field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


@pytest.mark.slow
def test_texts_of_fixed_width_are_filled_up(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    spark.sql(f"CREATE TABLE delta.`{path}` (id INT, c CHAR(5), a ARRAY<CHAR(3)>) USING delta")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (1, 'ab', array('x')), (2, 'b', null)")
    expected = spark.read.format("delta").load(path)
    table = DeltaTable.for_path(spark, path)
    assert sorted(table.to_df().collect()) == sorted(expected.collect())
    assert table.to_arrow(columns=["c"]).column("c").to_pylist() == ["ab   ", "b    "]
    for condition in ("c = 'ab'", "c > 'ab '", "c in ('b', 'x')"):
        wanted = sorted(row.id for row in expected.where(condition).collect())
        assert ids_of(table.to_df().where(condition)) == wanted, condition
        assert table.to_arrow(condition, ["id"]).column("id").to_pylist() == wanted, condition
    assert table.to_arrow([("c", "in", ["ab"])], ["id"]).column("id").to_pylist() == [1]
    with pytest.raises(UnsupportedFeatureError, match="only Spark pads"):
        table.to_arrow()


@pytest.mark.more
def test_conditions_on_the_name_of_the_file(spark: SparkSession, orders: Path) -> None:
    table = DeltaTable.for_path(spark, orders)
    for form in ("constant", "join"):
        with settings_of(spark, FORMS[form]):
            df = table.to_df(columns=["id", "day", "_file", "_pos"])
            assert ids_of(df.where("_file like '%part-2%'")) == list(range(20, 30))
            found = df.where("_file is not null and day is null and _pos < 6")
            assert ids_of(found) == [10, 11, 12, 13, 14]
            assert df.groupBy("_file").count().where("_file like '%0.parquet'").count() == 1


def test_floats_are_compared_as_floats(spark: SparkSession, tmp_path: Path) -> None:
    bounds = {"numRecords": 1, "minValues": {"f": 0.7}, "maxValues": {"f": 0.7}}
    rows, stats = {"f": pa.array([0.7], pa.float32())}, {"stats": json.dumps(bounds)}
    builder, _ = one_file(tmp_path / "t", rows, stats, fields={"f": "float"})
    table = DeltaTable.for_path(spark, builder.root)
    for condition in (
        *("f = float('0.7')", "f in (float('0.7'), float('1'))"),
        "cast(f as double) = 0.699999988079071D",
    ):
        assert table.to_df().where(condition).count() == 1, condition
        assert table.count(condition) == 1, condition


def test_missing_and_damaged_files_are_never_ignored(spark: SparkSession, tmp_path: Path) -> None:
    builder, _ = one_file(tmp_path / "t", {"id": range(10)})
    df, file = frame(spark, builder), builder.root / "a.parquet"
    names = ("ignoreMissingFiles", "ignoreCorruptFiles")
    with settings_of(spark, {f"spark.sql.files.{name}": "true" for name in names}):
        for damage in (lambda: file.write_bytes(b"garbage" * 100), file.unlink):
            damage()
            with pytest.raises((PySparkException, Py4JJavaError)):
                df.collect()


INTEGERS = {"fields": {"id": "long", "p": "integer"}, "partition_columns": ["p"]}


@pytest.mark.first_cases(3)
@pytest.mark.parametrize(
    ("changed", "options", "message"),
    [
        ({"size": 0}, {}, r"no size for a\.parquet"),
        ({}, INTEGERS, "partition value of the log is not of its column"),
        ({}, {"fields": {"_tmp_metadata_row_index": "long"}}, "takes for itself"),
    ],
    ids=["no size", "a partition value of another type", "a column that Spark takes for itself"],
)
def test_what_cannot_be_read_rightly_is_refused(
    spark: SparkSession, tmp_path: Path, changed: Action, options: dict[str, Any], message: str
) -> None:
    builder, _ = one_file(tmp_path / "t", {"id": range(10)}, changed, **options)
    with pytest.raises((PySparkException, UnsupportedFeatureError), match=message):
        frame(spark, builder).collect()


def test_rows_that_are_cached_serve_all_reads_of_their_version(
    spark: SparkSession, orders: Path
) -> None:
    def plan(df: DataFrame) -> str:
        return str(df._jdf.queryExecution().executedPlan().toString())

    table = DeltaTable.for_path(spark, orders)
    kept = table.to_df().cache()
    try:
        assert ids_of(kept) == LIVE
        again = table.to_df()
        assert ids_of(again) == LIVE
        assert plan(again).count("InMemoryTableScan") == 1
        assert "FileScan" not in plan(again).partition("InMemoryRelation")[0]
        others = [table.to_df(version=1), table.to_df(columns=["id", "_pos"])]
        others.append(table.to_df(where="day = '2026-01-30'"))
        assert not any("InMemory" in plan(df) for df in others)
        assert ids_of(others[0]) == list(range(30))
    finally:
        kept.unpersist()


def test_large_tasks_carry_no_more_vectors_than_there_are(
    spark: SparkSession, orders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = DeltaTable.for_path(spark, orders)
    with settings_of(spark, {"spark.sql.files.maxPartitionBytes": "1000t"}):
        assert "constant of its file" in str(delvec.explain(table.to_df()))
        assert ids_of(table.to_df()) == LIVE
        monkeypatch.setattr(vectors, "_TASK_BYTES", 0)
        assert "or those of one task more than 64 MiB" in str(delvec.explain(table.to_df()))
    with (
        settings_of(spark, {VECTOR_MEMORY: "plenty"}),
        pytest.raises(InvalidArgumentError, match="which is not a size"),
    ):
        table.to_df()


def test_a_vector_of_a_file_of_unknown_rows_stays_off_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = TableBuilder(tmp_path / "t")
    builder.create()
    df = frame(spark, builder)
    assert (df.count(), df.where("id = 1").count(), df.columns) == (0, 0, ["id"])
    entry = builder.write_file("a.parquet", {"id": range(10)})
    [vector] = builder.write_vectors([1, 2])
    del entry["stats"]
    builder.commit({"add": entry | {"deletionVector": vector}})
    df = frame(spark, builder)
    assert "Python tasks" in str(delvec.explain(df))
    assert ids_of(df) == [0, *range(3, 10)]


def test_columns_with_dots_in_their_names(spark: SparkSession, tmp_path: Path) -> None:
    fields = {"a.b": "long", "id": "long"}
    builder, _ = one_file(tmp_path / "t", {"a.b": [1], "id": [2]}, fields=fields)
    table = DeltaTable.for_path(spark, builder.root)
    for where in (None, "id = 2"):
        assert table.to_df(where=where, columns=["a.b"]).collect() == [(1,)]


@pytest.mark.more
def test_tables_by_name(spark: SparkSession, orders: Path, tmp_path: Path) -> None:
    assert DeltaTable.for_name(spark, f"delta.`{orders}`").count() == len(LIVE)
    odd = tmp_path / "a%41" / "t"
    shutil.copytree(orders, odd)
    for path in (orders, odd):
        spark.sql(f"CREATE TABLE delvec_named USING delta LOCATION '{path}'")
        try:
            for name in ("delvec_named", "spark_catalog.default.delvec_named"):
                assert DeltaTable.for_name(spark, name).storage.root == str(path)
        finally:
            spark.sql("DROP TABLE delvec_named")
    with pytest.raises(TableNotFoundError, match="no table delvec_named"):
        DeltaTable.for_name(spark, "delvec_named")
    spark.sql("CREATE TABLE delvec_other (id BIGINT) USING parquet")
    try:
        with pytest.raises(TableNotFoundError, match="but one of parquet"):
            DeltaTable.for_name(spark, "delvec_other")
    finally:
        spark.sql("DROP TABLE delvec_other")


def test_metadata_as_frames(spark: SparkSession, orders: Path) -> None:
    table = DeltaTable.for_path(spark, orders)
    deleted = table.files().where("vector = 'u'").selectExpr("sum(deleted_rows)")
    assert deleted.collect() == [(6,)]
    assert [row.version for row in table.history(2).collect()] == [3, 2]


def test_counting_with_conditions_of_sql(spark: SparkSession, orders: Path) -> None:
    table = DeltaTable.for_path(spark, orders)
    for condition in ("id >= 12", "day is null", "length(note) = 2", "id % 2 = 0", "id = 3"):
        assert table.count(condition) == table.to_df().where(condition).count(), condition
    assert table.count(F.col("id") > 100) == 0
    assert table.count("day < current_date()") == table.to_df().where("day is not null").count()
    assert table.to_arrow("id > 26", ["id"]).column("id").to_pylist() == [27, 28, 29]
    with pytest.raises(InvalidArgumentError, match="cannot be evaluated without Spark"):
        table.to_arrow("length(note) = 2")
