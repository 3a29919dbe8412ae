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
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import delvec
from delvec import DeltaTable
from delvec.errors import InvalidArgumentError, TableNotFoundError, UnsupportedFeatureError
from delvec.spark.delta.scan.vectors import VECTOR_MEMORY
from tests.delta.builder import Action, TableBuilder
from tests.spark.delta.readers import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(2)]

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
    for number, day in enumerate(("2026-01-30", None, "2026-01-31")):
        ids = list(range(number * 10, number * 10 + 10))
        entry = builder.write_file(
            f"part-{number}.parquet",
            {"id": ids, "amount": [i / 2 for i in ids], "note": [f"n{i}" for i in ids]},
            {"day": day},
        )
        bounds = {"id": ids[0]}, {"id": ids[-1]}
        entry["stats"] = json.dumps(
            {"numRecords": 10, "minValues": bounds[0], "maxValues": bounds[1]}
        )
        adds.append(entry)
    builder.commit(*({"add": entry} for entry in adds))
    vectors = builder.write_vectors(range(4), [5, 9])
    for entry, vector in zip(adds[:2], vectors, strict=True):
        builder.delete(entry, vector)
    return builder.root


def one_file(root: Path, rows: Mapping[str, Any], **options: Any) -> tuple[TableBuilder, Action]:  # noqa: ANN401
    """Make a table of one file; return its entry as well."""
    builder = TableBuilder(root, **options)
    builder.create()
    entry = builder.write_file("a.parquet", rows)
    builder.commit({"add": entry})
    return builder, entry


def ids_of(df: Any) -> list[int]:  # noqa: ANN401
    return sorted(row.id for row in df.select("id").collect())


LIVE = sorted(set(range(30)) - DELETED)

FORMS = {
    "constant": {},
    "join": {"spark.sql.codegen.maxFields": "3"},
    "tasks": {VECTOR_MEMORY: "1"},
}
TOLD = {"constant": "constant of its file", "join": "broadcast join", "tasks": "Python tasks"}


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
    clean, vectored = report.parts
    assert clean.listing is not None
    assert vectored.listing is not None
    assert (clean.listing.read, clean.listing.total) == (1, 1)
    assert vectored.listing.read == 0
    assert (vectored.listing.by_partition, vectored.listing.by_statistics) == (1, 1)
    assert vectored.listing.vectors == 0
    assert "pruned: 1 by partition values, 1 by statistics" in str(report)
    assert json.loads(json.dumps(report.to_json()))["parts"][1]["form"] == "vector"
    assert "<pre>" in report._repr_html_()
    with pytest.raises(InvalidArgumentError, match="reads no Delta table"):
        delvec.explain(spark.range(3))


def test_conditions_of_all_kinds_prune(spark: SparkSession, orders: Path) -> None:
    df = DeltaTable.for_path(spark, orders).to_df()
    many = ", ".join(str(number) for number in range(100, 140))
    cases = {
        "id > 24": 0,
        "id <=> 5": 1,
        "10 > id": 1,
        "id in (1, 2)": 1,
        f"id in (25, {many})": 0,
        f"id in (3, {many})": 1,
        "id in (1, null)": 1,
        "not (id >= 10)": 1,
        "cast(id as int) = 5": 2,
        "id is null": 2,
        "id between 0 and 5 or id = 17": 2,
        "day = date'2026-01-30'": 1,
        "year(day) = 2026 and month(day) = 1": 1,
        "day is null and id = 3": 0,
        "note like 'n1%'": 2,
        "id + 1 = 5": 2,
    }
    expected = {
        condition: ids_of(spark.createDataFrame(_rows()).where(condition)) for condition in cases
    }
    for condition, read in cases.items():
        found = df.where(condition)
        listing = delvec.explain(found).parts[-1].listing
        assert listing is not None
        # Only the vectors of files that are read are loaded.
        assert (listing.read, listing.vectors) == (read, read), condition
        assert ids_of(found) == expected[condition], condition


def _rows() -> pa.Table:
    days = ["2026-01-30", None, "2026-01-31"]
    ids = pa.array(LIVE)
    day = pa.array([days[number // 10] for number in LIVE]).cast(pa.date32())
    notes = [f"n{number}" for number in LIVE]
    return pa.table({"id": ids, "amount": [i / 2 for i in LIVE], "day": day, "note": notes})


@pytest.mark.more
def test_sql_over_a_view_joins_and_threads(spark: SparkSession, orders: Path) -> None:
    df = DeltaTable.for_path(spark, orders).to_df()
    df.createOrReplaceTempView("delvec_orders")
    assert spark.sql("SELECT count(*) c FROM delvec_orders WHERE id < 15").first().c == 11  # type: ignore[union-attr]
    twice = df.alias("a").join(df.alias("b"), F.col("a.id") == F.col("b.id") + 10)
    assert twice.count() == sum(number + 10 in LIVE for number in LIVE)
    assert df.where("id in (select max(id) from delvec_orders)").first().id == 29  # type: ignore[union-attr]
    with ThreadPoolExecutor(6) as pool:
        counts = list(pool.map(lambda low: df.where(f"id >= {low}").count(), range(0, 30, 5)))
    assert counts == [sum(number >= low for number in LIVE) for low in range(0, 30, 5)]
    cached = df.cache()
    assert ids_of(cached) == LIVE
    cached.unpersist()
    assert sorted(df.inputFiles()) == [
        f"file:{orders}/part-{number}.parquet" for number in range(3)
    ]


def test_a_vector_that_is_gone_fails_the_query_with_our_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder, entry = one_file(tmp_path / "t", {"id": range(10)})
    [vector] = builder.write_vectors([1])
    builder.delete(entry, vector)
    df = DeltaTable.for_path(spark, builder.root).to_df()
    builder.vector_path().unlink()
    with pytest.raises(PySparkException) as caught:
        df.collect()
    assert "deletion vector of a.parquet" in str(caught.value)
    assert "Hint:" in str(caught.value)


def test_columns_are_found_by_their_ids(spark: SparkSession, tmp_path: Path) -> None:
    """In mapping mode `id` the names in the files mean nothing."""
    builder = TableBuilder(tmp_path / "t", properties={"delta.columnMapping.mode": "id"})
    builder.protocol["readerFeatures"] = ["deletionVectors", "columnMapping"]
    nested = {"type": "struct", "fields": [_field("x", "long", 3), _field("y", "string", 4)]}
    fields = [_field("id", "long", 1), _field("s", nested, 2)]
    metadata = builder.metadata() | {
        "schemaString": json.dumps({"type": "struct", "fields": fields})
    }
    builder.commit({"protocol": builder.protocol}, {"metaData": metadata})
    struct = pa.struct(
        [_parquet_field("old_y", pa.string(), 4), _parquet_field("old_x", pa.int64(), 3)]
    )
    schema = pa.schema([_parquet_field("b", struct, 2), _parquet_field("a", pa.int64(), 1)])
    rows = [{"a": i, "b": {"old_x": i * 2, "old_y": f"y{i}"}} for i in range(10)]
    entry = builder.write_file("a.parquet", pa.Table.from_pylist(rows, schema))
    assert pq.read_schema(builder.root / "a.parquet").field("a").metadata[b"PARQUET:field_id"]
    builder.commit({"add": entry})
    [vector] = builder.write_vectors([0, 5])
    builder.delete(entry, vector)
    table = DeltaTable.for_path(spark, builder.root)
    expected = [(i, i * 2, f"y{i}") for i in range(10) if i not in (0, 5)]
    setting = "spark.sql.parquet.fieldId.read.enabled"
    for allowed in ("true", "false"):
        with settings_of(spark, {setting: allowed}):
            df = table.to_df()
            assert sorted((r.id, r.s.x, r.s.y) for r in df.collect()) == expected
            assert [r.id for r in df.where("s.x = 14 and s.y = 'y7'").collect()] == [7]
            assert spark.conf.get(setting) == allowed
    assert table.to_arrow().to_pylist()[0] == {"id": 1, "s": {"x": 2, "y": "y1"}}


def _field(name: str, kind: Any, number: int) -> dict[str, Any]:  # noqa: ANN401
    metadata = {
        "delta.columnMapping.id": number,
        "delta.columnMapping.physicalName": f"col-{number}",
    }
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
    rows = {"f": pa.array([0.7], pa.float32())}
    builder, entry = one_file(tmp_path / "t", rows, fields={"f": "float"})
    bounds = {"numRecords": 1, "minValues": {"f": 0.7}, "maxValues": {"f": 0.7}}
    builder.commit({"add": entry | {"stats": json.dumps(bounds)}})
    table = DeltaTable.for_path(spark, builder.root)
    for condition in (
        "f = float('0.7')",
        "f in (float('0.7'), float('1'))",
        "cast(f as double) = 0.699999988079071D",
    ):
        assert table.to_df().where(condition).count() == 1, condition
        assert table.count(condition) == 1, condition


def test_missing_and_damaged_files_are_never_ignored(spark: SparkSession, tmp_path: Path) -> None:
    builder, _ = one_file(tmp_path / "t", {"id": range(10)})
    df = DeltaTable.for_path(spark, builder.root).to_df()
    names = ("ignoreMissingFiles", "ignoreCorruptFiles")
    with settings_of(spark, {f"spark.sql.files.{name}": "true" for name in names}):
        (builder.root / "a.parquet").write_bytes(b"garbage" * 100)
        with pytest.raises((PySparkException, Py4JJavaError)):
            df.collect()
        (builder.root / "a.parquet").unlink()
        with pytest.raises((PySparkException, Py4JJavaError)):
            df.collect()


def test_a_file_without_a_size_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    builder, entry = one_file(tmp_path / "t", {"id": range(10)})
    builder.commit({"add": entry | {"size": 0}})
    with pytest.raises(PySparkException, match=r"no size for a\.parquet"):
        DeltaTable.for_path(spark, builder.root).to_df().count()


def test_mapped_columns_of_files_without_ids(spark: SparkSession, tmp_path: Path) -> None:
    """As in a table whose columns were mapped by name after its files were written."""
    builder = TableBuilder(tmp_path / "t", properties={"delta.columnMapping.mode": "name"})
    builder.protocol["readerFeatures"] = ["deletionVectors", "columnMapping"]
    fields = [_field("new", "long", 1)]
    fields[0]["metadata"]["delta.columnMapping.physicalName"] = "old"
    schema = json.dumps({"type": "struct", "fields": fields})
    builder.commit(
        {"protocol": builder.protocol}, {"metaData": builder.metadata() | {"schemaString": schema}}
    )
    entry = builder.write_file("a.parquet", {"old": range(10)})
    builder.commit({"add": entry})
    df = DeltaTable.for_path(spark, builder.root).to_df()
    for allowed in ("true", "false"):
        with settings_of(spark, {"spark.sql.parquet.fieldId.read.enabled": allowed}):
            assert df.selectExpr("sum(new) s").first().s == 45  # type: ignore[union-attr]


def test_large_tasks_carry_no_more_vectors_than_there_are(
    spark: SparkSession, orders: Path
) -> None:
    with settings_of(spark, {"spark.sql.files.maxPartitionBytes": "1000t"}):
        df = DeltaTable.for_path(spark, orders).to_df()
        assert "constant of its file" in str(delvec.explain(df))
        assert ids_of(df) == LIVE


def test_a_vector_of_a_file_of_unknown_rows_stays_off_the_driver(
    spark: SparkSession, tmp_path: Path
) -> None:
    builder = TableBuilder(tmp_path / "t")
    builder.create()
    entry = builder.write_file("a.parquet", {"id": range(10)})
    [vector] = builder.write_vectors([1, 2])
    del entry["stats"]
    builder.commit({"add": entry | {"deletionVector": vector}})
    df = DeltaTable.for_path(spark, builder.root).to_df()
    assert "Python tasks" in str(delvec.explain(df))
    assert ids_of(df) == [0, *range(3, 10)]


def test_a_partition_value_that_is_none(spark: SparkSession, tmp_path: Path) -> None:
    builder = TableBuilder(
        tmp_path / "t", fields={"id": "long", "p": "integer"}, partition_columns=["p"]
    )
    builder.create()
    builder.commit({"add": builder.write_file("a.parquet", {"id": [1]}, {"p": "seven"})})
    with pytest.raises(PySparkException, match="partition value of the log is not of its column"):
        DeltaTable.for_path(spark, builder.root).to_df().collect()


def test_columns_with_dots_in_their_names(spark: SparkSession, tmp_path: Path) -> None:
    fields = {"a.b": "long", "id": "long"}
    builder, _ = one_file(tmp_path / "t", {"a.b": [1], "id": [2]}, fields=fields)
    table = DeltaTable.for_path(spark, builder.root)
    assert table.to_df(columns=["a.b"]).collect() == [(1,)]
    assert table.to_df(where="id = 2", columns=["a.b"]).collect() == [(1,)]


@pytest.mark.more
def test_tables_by_name(spark: SparkSession, orders: Path, tmp_path: Path) -> None:
    assert DeltaTable.for_name(spark, f"delta.`{orders}`").count() == len(LIVE)
    spark.sql(f"CREATE TABLE delvec_named USING delta LOCATION '{orders}'")
    try:
        assert DeltaTable.for_name(spark, "delvec_named").count() == len(LIVE)
        assert DeltaTable.for_name(spark, "spark_catalog.default.delvec_named").version == 3
    finally:
        spark.sql("DROP TABLE delvec_named")
    odd = tmp_path / "a%41"
    odd.mkdir()
    shutil.copytree(orders, odd / "t")
    spark.sql(f"CREATE TABLE delvec_named USING delta LOCATION '{odd / 't'}'")
    try:
        assert DeltaTable.for_name(spark, "delvec_named").storage.root == str(odd / "t")
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
    files = table.files()
    assert files.where("vector = 'u'").selectExpr("sum(deleted_rows) d").first().d == 6  # type: ignore[union-attr]
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


def test_a_column_that_spark_takes_for_itself(spark: SparkSession, tmp_path: Path) -> None:
    builder = TableBuilder(tmp_path / "t", fields={"_tmp_metadata_row_index": "long"})
    builder.create()
    with pytest.raises(UnsupportedFeatureError, match="takes for itself"):
        DeltaTable.for_path(spark, builder.root).to_df()


def test_a_table_without_files(spark: SparkSession, tmp_path: Path) -> None:
    builder = TableBuilder(tmp_path / "t")
    builder.create()
    df = DeltaTable.for_path(spark, builder.root).to_df()
    assert (df.count(), df.where("id = 1").count(), df.columns) == (0, 0, ["id"])


def test_a_limit_that_is_no_size(spark: SparkSession, orders: Path) -> None:
    with (
        settings_of(spark, {VECTOR_MEMORY: "plenty"}),
        pytest.raises(InvalidArgumentError, match="which is not a size"),
    ):
        DeltaTable.for_path(spark, orders).to_df()
