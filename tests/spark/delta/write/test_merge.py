"""What MERGE means, with delta-spark as the judge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession, functions

from delvec import DeltaTable
from delvec.delta.table.writes import MergeBuilder
from delvec.errors import ConstraintError, InvalidArgumentError
from tests.marks import slow_but
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import Lazily, feed, folder, judged, rows_of

Clauses = Callable[[MergeBuilder], MergeBuilder]

pytestmark = pytest.mark.spark

FEED = {"delta.enableChangeDataFeed": "true"}
OFF = {"delta.enableDeletionVectors": "false"}
KINDS: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "feed": ((), FEED),
    "copied": ((), FEED | OFF),
    "parts": (("p",), {}),
}
FIGURES = (
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
    "numTargetRowsMatchedUpdated",
    "numTargetRowsMatchedDeleted",
    "numTargetRowsNotMatchedBySourceUpdated",
    "numTargetRowsNotMatchedBySourceDeleted",
    "numSourceRows",
)
# Of each source: (columns, rows). Rows 0 to 9 are in the table, but for 3; 7 and 8 have nulls.
SOURCES = {
    "plain": "SELECT id, concat('s', id) v, CAST(id * 10 AS INT) n, CAST(id % 2 AS INT) p"
    " FROM range(6, 13)",
    "mixed": "SELECT CAST(id AS STRING) V, CAST(id AS SMALLINT) N, id ID, CAST(7 AS TINYINT) P"
    " FROM range(8, 12)",
    "nulls": "SELECT * FROM VALUES (1L, 'x', 1, 0), (NULL, 'y', 2, 0), (NULL, 'z', 3, 1),"
    " (20L, NULL, NULL, NULL) AS rows(id, v, n, p)",
    "empty": "SELECT id, 'x' v, 1 n, 1 p FROM range(0)",
    "twins": "SELECT id % 2 + 1 id, concat('s', id) v, 0 n, 0 p FROM range(4)",
    "wide": "SELECT id, 'w' v, 5 n, 1 p, id * 1.5D extra FROM range(8, 12)",
    "ranges": "SELECT * FROM VALUES (2L, 4L), (100L, 101L) AS rows(low, high)",
}


@pytest.fixture(scope="module")
def sources(spark: SparkSession) -> Iterator[dict[str, DataFrame]]:
    for name, sql in SOURCES.items():
        spark.sql(sql).createOrReplaceTempView(f"source_{name}")
    yield {name: spark.table(f"source_{name}") for name in SOURCES}
    for name in SOURCES:
        spark.catalog.dropTempView(f"source_{name}")


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ten rows in two files or more; row 3 is gone, row 7 and 8 have nulls."""

    def make(kind: str) -> Path:
        parts, properties = KINDS[kind]
        path = tmp_path_factory.mktemp(kind) / "t"
        columns = "id BIGINT, v STRING, n INT, p INT"
        spark_tables.create(
            spark, path, columns, partitioned_by=parts, properties=FEED | properties
        )
        rows = (
            "SELECT id, IF(id = 7, NULL, concat('t', id)), IF(id = 8, NULL, INT(id)), INT(id % 2)"
        )
        spark_tables.sql(
            spark,
            path,
            f"INSERT INTO {{T}} {rows} FROM range(0, 5, 1, 1)",
            f"INSERT INTO {{T}} {rows} FROM range(5, 10, 1, 1)",
            "DELETE FROM {T} WHERE id = 3",
        )
        return path

    return Lazily(make)


Case = tuple[str, str, str, str, "Clauses"]
BY_ID = "t.id = s.id"
# The kind of table, the source, the condition, and the clauses for delta-spark and for delvec.
CASES: dict[str, Case] = {
    "everything": (
        "feed",
        "plain",
        BY_ID,
        (
            "WHEN MATCHED AND t.n IS NULL THEN DELETE WHEN MATCHED AND s.id < 8 THEN UPDATE SET"
            " v = concat(t.v, s.v), n = t.n + s.n WHEN MATCHED THEN UPDATE SET *"
            " WHEN NOT MATCHED AND s.id = 10 THEN INSERT (id, v) VALUES (s.id + 100, 'ten')"
            " WHEN NOT MATCHED AND s.id > 10 THEN INSERT *"
            " WHEN NOT MATCHED BY SOURCE AND t.id = 0 THEN DELETE"
            " WHEN NOT MATCHED BY SOURCE AND t.id < 3 THEN UPDATE SET v = 'left', n = n * 2"
        ),
        lambda m: (
            m.when_matched_delete("t.n IS NULL")
            .when_matched_update({"v": "concat(t.v, s.v)", "n": "t.n + s.n"}, "s.id < 8")
            .when_matched_update_all()
            .when_not_matched_insert({"id": "s.id + 100", "v": "'ten'"}, "s.id = 10")
            .when_not_matched_insert_all("s.id > 10")
            .when_not_matched_by_source_delete("t.id = 0")
            .when_not_matched_by_source_update({"v": "'left'", "n": "n * 2"}, "t.id < 3")
        ),
    ),
    "everything copied": (
        "copied",
        "plain",
        BY_ID,
        (
            "WHEN MATCHED AND s.n > 70 THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v"
            " WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE AND v = 't1' THEN DELETE"
        ),
        lambda m: (
            m.when_matched_delete(functions.col("s.n") > 70)
            .when_matched_update({"v": functions.col("s.v")})
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete("v = 't1'")
        ),
    ),
    "other order and case": (
        "parts",
        "mixed",
        "t.ID = s.id",
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        lambda m: m.when_matched_update_all().when_not_matched_insert_all(),
    ),
    "null conditions and keys": (
        "feed",
        "nulls",
        BY_ID,
        (
            "WHEN MATCHED AND t.v > NULL THEN DELETE WHEN NOT MATCHED AND s.n > 2 THEN INSERT *"
            " WHEN NOT MATCHED AND s.v = 'y' THEN INSERT (v) VALUES (s.v)"
            " WHEN NOT MATCHED BY SOURCE AND t.n < 3 THEN DELETE"
        ),
        lambda m: (
            m.when_matched_delete("t.v > NULL")
            .when_not_matched_insert_all("s.n > 2")
            .when_not_matched_insert({"v": "s.v"}, "s.v = 'y'")
            .when_not_matched_by_source_delete("t.n < 3")
        ),
    ),
    "several matches": (
        "feed",
        "twins",
        BY_ID,
        "WHEN MATCHED THEN UPDATE SET v = s.v",
        lambda m: m.when_matched_update({"v": "s.v"}),
    ),
    "several matches, all deleted": (
        "feed",
        "twins",
        BY_ID,
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED BY SOURCE AND t.id = 9 THEN UPDATE SET n = 1",
        lambda m: m.when_matched_delete().when_not_matched_by_source_update({"n": 1}, "t.id = 9"),
    ),
    "several matches, one clause": (
        "parts",
        "twins",
        BY_ID,
        "WHEN MATCHED AND s.v < 's2' THEN UPDATE SET v = s.v",
        lambda m: m.when_matched_update({"v": "s.v"}, "s.v < 's2'"),
    ),
    "range": (
        "copied",
        "ranges",
        "t.id BETWEEN s.low AND s.high",
        (
            "WHEN MATCHED THEN UPDATE SET n = s.high"
            " WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.low, s.high)"
        ),
        lambda m: m.when_matched_update({"n": "s.high"}).when_not_matched_insert(
            {"id": "s.low", "n": "s.high"}
        ),
    ),
    "partition moves": (
        "parts",
        "plain",
        BY_ID + " AND t.p = s.p",
        (
            "WHEN MATCHED THEN UPDATE SET p = t.p + 5 WHEN NOT MATCHED BY SOURCE THEN UPDATE SET"
            " p = NULL"
        ),
        lambda m: m.when_matched_update({"p": "t.p + 5"}).when_not_matched_by_source_update(
            {"p": None}
        ),
    ),
    "expressions": (
        "parts",
        "plain",
        "t.id + 1 = s.id * 1 AND upper(t.v) <> 'T6'",
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
        lambda m: m.when_matched_delete().when_not_matched_insert_all(),
    ),
    "nothing in the source": (
        "feed",
        "empty",
        BY_ID,
        (
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
            " WHEN NOT MATCHED BY SOURCE AND t.id > 7 THEN DELETE"
        ),
        lambda m: (
            m.when_matched_delete()
            .when_not_matched_insert_all()
            .when_not_matched_by_source_delete("t.id > 7")
        ),
    ),
    "nothing to do": (
        "feed",
        "empty",
        BY_ID,
        "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *",
        lambda m: m.when_matched_delete().when_not_matched_insert_all(),
    ),
    "inserts only": (
        "copied",
        "twins",
        "t.id = s.id AND t.v = 't1'",
        "WHEN NOT MATCHED AND s.v <> 's3' THEN INSERT *",
        lambda m: m.when_not_matched_insert_all("s.v <> 's3'"),
    ),
    "unknown column": (
        "feed",
        "plain",
        BY_ID,
        "WHEN MATCHED THEN UPDATE SET nope = 1",
        lambda m: m.when_matched_update({"nope": 1}),
    ),
    "too wide for all": (
        "parts",
        "wide",
        BY_ID,
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
        lambda m: m.when_matched_update_all().when_not_matched_insert_all(),
    ),
    "too narrow for all": (
        "feed",
        "ranges",
        "t.id = s.low",
        "WHEN MATCHED THEN UPDATE SET *",
        lambda m: m.when_matched_update_all(),
    ),
    "the same column twice": (
        "feed",
        "plain",
        BY_ID,
        "WHEN MATCHED THEN UPDATE SET v = 'a', V = 'b'",
        lambda m: m.when_matched_update({"v": "'a'", "V": "'b'"}),
    ),
    "a clause behind one that takes all": (
        "feed",
        "plain",
        BY_ID,
        "WHEN MATCHED THEN DELETE WHEN MATCHED THEN UPDATE SET v = 'x'",
        lambda m: m.when_matched_delete().when_matched_update({"v": "'x'"}),
    ),
    "ambiguous": (
        "feed",
        "plain",
        "id = id",
        "WHEN MATCHED THEN DELETE",
        lambda m: m.when_matched_delete(),
    ),
    "a value that does not fit": (
        "feed",
        "plain",
        BY_ID,
        "WHEN MATCHED THEN UPDATE SET n = s.id * 1000000000000",
        lambda m: m.when_matched_update({"n": "s.id * 1000000000000"}),
    ),
    "a text for a number": (
        "feed",
        "plain",
        BY_ID,
        "WHEN MATCHED THEN UPDATE SET n = s.v",
        lambda m: m.when_matched_update({"n": "s.v"}),
    ),
    "the source in a clause without it": (
        "feed",
        "plain",
        BY_ID,
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET v = s.v",
        lambda m: m.when_not_matched_by_source_update({"v": "s.v"}),
    ),
    "the target in an insert": (
        "feed",
        "plain",
        BY_ID,
        "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, t.v)",
        lambda m: m.when_not_matched_insert({"id": "s.id", "v": "t.v"}),
    ),
}
FAST = {"everything"}


@pytest.mark.parametrize("name", slow_but(FAST, CASES))
def test_delta_spark_does_the_same(
    spark: SparkSession, tables: dict[str, Path], sources: dict[str, DataFrame], name: str
) -> None:
    kind, source, on, sql, clauses = CASES[name]
    judged(
        spark,
        tables[kind],
        name.replace(" ", "-"),
        f"MERGE INTO {{T}} t USING source_{source} s ON {on} {sql}",
        lambda t: clauses(t.merge(sources[source], on)).execute(),
        *FIGURES,
    )


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["64m", "0"])
def test_the_source_is_computed_once_and_table_and_feed_agree(
    spark: SparkSession, tmp_path: Path, limit: str
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, v string", properties=FEED)
    table.append(spark.range(8).selectExpr("id", "'old' v"))
    seen = spark.sparkContext.accumulator(0)

    def count(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - Spark reads hints
        seen.add(1)
        return value

    counted = functions.udf(count, "long").asNondeterministic()
    source = spark.range(5, 11, 1, 2).select(
        counted("id").alias("id"), functions.expr("concat(uuid(), rand())").alias("v")
    )
    spark.conf.set("spark.delvec.merge.broadcastLimit", limit)
    try:
        report = (
            table.merge(source, "t.id = s.id")
            .when_matched_delete("t.id = 5")
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute()
        )
    finally:
        spark.conf.unset("spark.delvec.merge.broadcastLimit")
    assert (report.rows_deleted, report.rows_updated, report.rows_inserted) == (1, 2, 3)
    assert report.scans == 1
    assert seen.value == 6
    new = table.to_df().where("v <> 'old'").collect()
    told = table.changes(report.version).where("_change_type IN ('update_postimage', 'insert')")
    assert len({row.v for row in new}) == 5
    assert Counter(told.select("id", "v").collect()) == Counter(new)
    assert sorted(row.id for row in new) == [6, 7, 8, 9, 10]


@pytest.mark.slow
def test_conditions_that_are_different_each_time_count_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, v double", properties=FEED)
    table.append(spark.range(400).selectExpr("id", "-1d v"))
    report = (
        table.merge(spark.range(300, 500), "t.id = s.id")
        .when_matched_delete("rand() < 0.3")
        .when_matched_update({"v": functions.rand()}, functions.rand() < 0.5)
        .when_not_matched_by_source_update({"v": 7}, "rand() < 0.5")
        .execute()
    )
    with pytest.raises(InvalidArgumentError, match="deterministic"):
        table.merge(spark.range(9), "t.id = s.id AND rand() < 1").when_matched_delete().execute()
    counts = Counter(row._change_type for row in table.changes(report.version).collect())
    assert counts["delete"] == report.rows_deleted > 0
    assert counts["update_postimage"] == counts["update_preimage"] == report.rows_updated > 0
    left = table.to_df().collect()
    assert len(left) == 400 - report.rows_deleted
    assert sum(row.v != -1 for row in left) == report.rows_updated
    assert [row for row in left if row.id < 300 and row.v not in (-1, 7)] == []


@pytest.mark.slow
def test_rules_and_defaults_hold_for_what_a_merge_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT NOT NULL, n INT DEFAULT 42, twice INT GENERATED"
        " ALWAYS AS (n * 2)) USING delta TBLPROPERTIES ('delta.constraints.small' = 'n < 1000',"
        " 'delta.enableDeletionVectors' = 'true',"
        " 'delta.feature.allowColumnDefaults' = 'supported')"
    )
    table = DeltaTable.for_path(spark, path)
    table.append(spark.range(4).selectExpr("id", "int(id) n"))
    source = spark.range(2, 6).selectExpr("id", "int(id * 100) m")
    merge = table.merge(source, "t.id = s.id")
    merge.when_matched_update({"n": "m"}).when_not_matched_insert({"id": "s.id"}).execute()
    expected = [(0, 0, 0), (1, 1, 2), (2, 200, 400), (3, 300, 600), (4, 42, 84), (5, 42, 84)]
    assert sorted(map(tuple, table.to_df().collect())) == expected
    before = folder(path)
    for builder, rule in (
        (merge.when_matched_update({"n": "m * 2 + 400"}), "small"),
        (merge.when_matched_update({"id": None}), "id"),
        (merge.when_matched_update({"twice": "1"}), "twice"),
        (merge.when_not_matched_by_source_update({"n": 5000}), "small"),
    ):
        with pytest.raises(ConstraintError) as caught:
            builder.execute()
        assert rule in str(caught.value.constraint)
        assert folder(path) == before
    assert Counter(map(repr, table.to_df().collect())) == rows_of(spark, path)


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_columns_of_the_source_become_columns_of_the_table(
    spark: SparkSession, tmp_path: Path, vectors: str
) -> None:
    table = DeltaTable.create(
        spark,
        tmp_path / "t",
        "id long, s struct<a: int>",
        properties=FEED | {"delta.enableDeletionVectors": vectors},
    )
    table.append(spark.sql("SELECT id, named_struct('a', INT(id)) s FROM range(3)"))
    source = spark.sql(
        "SELECT named_struct('b', 'x', 'a', 9) S, id ID, id * 1.5D Extra FROM range(2, 4)"
    )
    merge = table.merge(source, "t.id = s.id", merge_schema=True)
    report = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    rows = sorted(map(repr, table.to_df().collect()))
    assert rows == [
        "Row(id=0, s=Row(a=0, b=None), Extra=None)",
        "Row(id=1, s=Row(a=1, b=None), Extra=None)",
        "Row(id=2, s=Row(a=9, b='x'), Extra=3.0)",
        "Row(id=3, s=Row(a=9, b='x'), Extra=4.5)",
    ]
    assert Counter(rows) == rows_of(spark, tmp_path / "t")
    told = feed(spark, tmp_path / "t", report.version or 0)
    assert sum("Extra=4.5, _change_type='insert'" in row for row in told) == 1
    assert sum("Extra=None, _change_type='update_preimage'" in row for row in told) == 1
    assert sum(told.values()) == 3


@pytest.mark.slow
def test_names_aliases_and_a_source_that_is_the_table_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = DeltaTable.create(spark, tmp_path / "t", "id long, `a.b` int, s struct<x: int, y: int>")
    assert (
        table.merge(spark.range(3), "t.id = s.id")
        .when_not_matched_insert(
            {"id": "s.id", "a.b": 1, "s": "named_struct('x', 1, 'y', int(s.id))"}
        )
        .execute()
        .rows_inserted
        == 3
    )  # into an empty table
    own = table.to_df().where("id > 0").selectExpr("id k", "`a.b` + 10 b")
    merge = table.merge(own, "target.id = k", source_alias="own", target_alias="target")
    plan = merge.when_matched_update(
        {"`a.b`": "own.b + `a.b`", "s.x": functions.col("own.k"), "s.`y`": "target.s.y * 2"}
    ).when_not_matched_by_source_delete()
    before = folder(tmp_path / "t")
    dry = plan.execute(dry_run=True)
    assert (dry.version, dry.rows_updated, dry.rows_deleted) == (None, 2, 1)
    assert folder(tmp_path / "t") == before
    assert plan.execute().rows_updated == 2
    rows = sorted(map(repr, table.to_df().collect()))
    assert rows == ["Row(id=1, a.b=12, s=Row(x=1, y=2))", "Row(id=2, a.b=12, s=Row(x=2, y=4))"]
    with pytest.raises(InvalidArgumentError, match="whole columns"):
        table.merge(own, "id = k").when_not_matched_insert({"id": "k", "s.x": 1}).execute()
    with pytest.raises(InvalidArgumentError, match="at least one clause"):
        table.merge(own, "id = k").execute()


@pytest.mark.slow
def test_keys_beyond_what_python_knows(spark: SparkSession, tmp_path: Path) -> None:
    for kind, far in (
        ("date", "DATE'9999-12-31' + 400"),
        ("date", "DATE'0001-01-01' - 400"),
        ("timestamp", "TIMESTAMP'9999-12-31 00:00:00' + INTERVAL 400 DAYS"),
        ("timestamp_ntz", "TIMESTAMP_NTZ'0001-01-01 00:00:00' - INTERVAL 400 DAYS"),
        ("double", "double('NaN')"),
        ("binary", "X'FF'"),
        ("decimal(38,0)", "99999999999999999999999999999999999999"),
        ("boolean", "true"),
    ):
        path = tmp_path / f"t{abs(hash((kind, far)))}"
        table = DeltaTable.create(spark, path, f"k {kind}, v int")
        table.append(spark.sql(f"SELECT CAST({far} AS {kind}) k, 1 v UNION ALL SELECT NULL, 0"))
        source = spark.sql(f"SELECT CAST({far} AS {kind}) k UNION ALL SELECT NULL")
        merge = table.merge(source, "t.k = s.k").when_matched_update({"v": 2})
        assert merge.execute().rows_updated == 1, kind
        assert sorted(row.v for row in table.to_df().select("v").collect()) == [0, 2]
