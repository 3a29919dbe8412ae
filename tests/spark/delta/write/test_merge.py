"""What MERGE means, with delta-spark as the judge."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession, functions

from delvec import DeltaTable
from delvec.errors import ConstraintError, InvalidArgumentError
from delvec.spark.delta.write.clauses import Clause
from tests.marks import slow_but
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import (
    DELETE,
    FEED,
    INSERT_ALL,
    KINDS,
    UPDATE_ALL,
    New,
    by_source_update,
    folder,
    insert,
    judged_merge,
    lazily_made,
    made,
    rows_of,
    update,
)

pytestmark = pytest.mark.spark

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
    "wider": "SELECT id, id * 1.5D Extra, named_struct('a', 1) s, 'x' V FROM range(8, 12)",
    "ranges": "SELECT * FROM VALUES (2L, 4L), (100L, 101L) AS rows(low, high)",
}


@pytest.fixture(scope="module")
def tables(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Ten rows in two files or more; row 3 is gone, row 7 and 8 have nulls."""
    rows = "SELECT id, IF(id = 7, NULL, concat('t', id)), IF(id = 8, NULL, INT(id)), INT(id % 2)"
    return lazily_made(
        spark,
        tmp_path_factory,
        KINDS,
        "id BIGINT, v STRING, n INT, p INT",
        f"INSERT INTO {{T}} {rows} FROM range(0, 5, 1, 1)",
        f"INSERT INTO {{T}} {rows} FROM range(5, 10, 1, 1)",
        "DELETE FROM {T} WHERE id = 3",
    )


def delete(condition: str) -> Clause:
    return Clause("matched", "delete", condition)


def by_source_delete(condition: str) -> Clause:
    return Clause("not_matched_by_source", "delete", condition)


BY_ID = "t.id = s.id"
Case = tuple[str, str, tuple[Clause, ...], str, bool]


def case(kind: str, source: str, *clauses: Clause, on: str = BY_ID, evolve: bool = False) -> Case:
    return kind, source, clauses, on, evolve


CASES: dict[str, Case] = {
    "everything": case(
        "feed",
        "plain",
        delete("t.n IS NULL"),
        update({"v": "concat(t.v, s.v)", "n": "t.n + s.n"}, "s.id < 8"),
        UPDATE_ALL,
        insert({"id": "s.id + 100", "v": "'ten'"}, "s.id = 10"),
        insert(None, "s.id > 10"),
        by_source_delete("t.id = 0"),
        by_source_update({"v": "'left'", "n": "n * 2"}, "t.id < 3"),
    ),
    "everything copied": case(
        "copied",
        "plain",
        delete("s.n > 70"),
        update({"v": "s.v"}),
        INSERT_ALL,
        by_source_delete("v = 't1'"),
    ),
    "other order and case": case("parts", "mixed", UPDATE_ALL, INSERT_ALL, on="t.ID = s.id"),
    "null conditions and keys": case(
        "feed",
        "nulls",
        delete("t.v > NULL"),
        insert(None, "s.n > 2"),
        insert({"v": "s.v"}, "s.v = 'y'"),
        by_source_delete("t.n < 3"),
    ),
    "several matches": case("feed", "twins", update({"v": "s.v"})),
    "several matches, all deleted": case(
        "feed", "twins", DELETE, by_source_update({"n": 1}, "t.id = 9")
    ),
    "range": case(
        "copied",
        "ranges",
        update({"n": "s.high"}),
        insert({"id": "s.low", "n": "s.high"}),
        on="t.id BETWEEN s.low AND s.high",
    ),
    "partition moves": case(
        "parts",
        "plain",
        update({"p": "t.p + 5"}),
        by_source_update({"p": None}),
        on=f"{BY_ID} AND t.p = s.p",
    ),
    "expressions": case(
        "parts", "plain", DELETE, INSERT_ALL, on="t.id + 1 = s.id * 1 AND upper(t.v) <> 'T6'"
    ),
    "nothing in the source": case(
        "feed", "empty", DELETE, INSERT_ALL, by_source_delete("t.id > 7")
    ),
    "nothing to do": case("feed", "empty", DELETE, INSERT_ALL),
    "inserts only": case(
        "copied", "twins", insert(None, "s.v <> 's3'"), on=f"{BY_ID} AND t.v = 't1'"
    ),
    "new columns": case("feed", "wider", UPDATE_ALL, INSERT_ALL, evolve=True),
    "new columns, copied": case("copied", "wider", UPDATE_ALL, INSERT_ALL, evolve=True),
    "a clause behind one that takes all": case("feed", "plain", DELETE, update({"v": "'x'"})),
    "ambiguous": case("feed", "plain", DELETE, on="id = id"),
    "a value that does not fit": case("feed", "plain", update({"n": "s.id * 1000000000000"})),
    "the source where it has no row": case("feed", "plain", by_source_update({"v": "s.v"})),
    "the target in an insert": case("feed", "plain", insert({"id": "s.id", "v": "t.v"})),
}


@pytest.mark.parametrize("name", slow_but({"everything"}, CASES))
def test_delta_spark_does_the_same(spark: SparkSession, tables: dict[str, Path], name: str) -> None:
    kind, source, clauses, on, evolve = CASES[name]
    query = SOURCES[source]
    judged_merge(spark, tables[kind], name, query, clauses, *FIGURES, on=on, evolve=evolve)


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["64m", "0"])
def test_the_source_is_computed_once(spark: SparkSession, new: New, limit: str) -> None:
    table = new("id long, v string", properties=FEED)
    table.append(spark.range(8).selectExpr("id", "'old' v"))
    seen = spark.sparkContext.accumulator(0)

    def count(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - Spark reads hints
        seen.add(1)
        return value

    counted = functions.udf(count, "long").asNondeterministic()
    source = spark.range(5, 11, 1, 2).select(
        counted("id").alias("id"), functions.expr("concat(uuid(), rand())").alias("v")
    )
    merge = table.merge(source, "t.id = s.id").when_matched_delete("t.id = 5")
    with settings_of(spark, {"spark.delvec.merge.broadcastLimit": limit}):
        report = merge.when_matched_update_all().when_not_matched_insert_all().execute()
    assert (report.rows_deleted, report.rows_updated, report.rows_inserted) == (1, 2, 3)
    assert report.scans == 1
    assert seen.value == 6
    found = table.to_df().where("v <> 'old'").collect()
    told = table.changes(report.version).where("_change_type IN ('update_postimage', 'insert')")
    assert len({row.v for row in found}) == 5
    assert Counter(told.select("id", "v").collect()) == Counter(found)
    assert sorted(row.id for row in found) == [6, 7, 8, 9, 10]


@pytest.mark.more
def test_of_several_matches_one_may_satisfy_a_clause(spark: SparkSession, new: New) -> None:
    """It is the only one that changes the row; delta-spark 4.4 refuses it in some tables."""
    table = new("id long, v string")
    table.append(spark.range(3).selectExpr("id", "'t' v"))
    source = spark.sql(SOURCES["twins"])
    merge = table.merge(source, BY_ID)
    assert merge.when_matched_update({"v": "s.v"}, "s.v < 's2'").execute().rows_updated == 2
    assert {tuple(row) for row in table.to_df().collect()} == {(0, "t"), (1, "s0"), (2, "s1")}
    with pytest.raises(InvalidArgumentError, match="several rows of the source"):
        merge.when_matched_update({"v": "s.v"}).execute()


@pytest.mark.slow
def test_conditions_that_are_different_each_time_count_once(spark: SparkSession, new: New) -> None:
    table = new("id long, v double", properties=FEED)
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
def test_rules_and_defaults_hold_in_a_merge(spark: SparkSession, tmp_path: Path) -> None:
    columns = "id BIGINT NOT NULL, n INT DEFAULT 42, twice INT GENERATED ALWAYS AS (n * 2)"
    rules = {"delta.constraints.small": "n < 1000"}
    defaults = {"delta.feature.allowColumnDefaults": "supported"}
    path = made(spark, tmp_path / "t", columns, properties=rules | defaults)
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
def test_a_source_that_is_the_table_itself(spark: SparkSession, tmp_path: Path, new: New) -> None:
    table = new("id long, `a.b` int, s struct<x: int, y: int>")
    values = {"id": "s.id", "a.b": 1, "s": "named_struct('x', 1, 'y', int(s.id))"}
    into_empty = table.merge(spark.range(3), "t.id = s.id").when_not_matched_insert(values)
    assert into_empty.execute().rows_inserted == 3
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


# Of a constant Spark would make a filter of the file format, which loses such values by itself.
KEYS = (
    ("string", "unhex(concat('FF', 40 + id))"),
    ("date", "date_from_unix_date(int(id - 141428))"),  # in October 1582
    ("date", "date_from_unix_date(int(id - 719163))"),  # the first day of year 1
    ("date", "date_from_unix_date(int(id))"),
    ("date", "DATE'9999-12-31' + 400"),
    ("date", "DATE'0001-01-01' - 400"),
    ("timestamp", "TIMESTAMP'9999-12-31 00:00:00' + INTERVAL 400 DAYS"),
    ("timestamp_ntz", "TIMESTAMP_NTZ'0001-01-01 00:00:00' - INTERVAL 400 DAYS"),
    ("double", "double('NaN')"),
    ("binary", "X'FF'"),
    ("decimal(38,0)", "99999999999999999999999999999999999999"),
    ("boolean", "true"),
)


@pytest.mark.first_cases(1)
@pytest.mark.quick_cases(3)
@pytest.mark.parametrize(("kind", "key"), KEYS)
def test_odd_keys_find_their_partners(spark: SparkSession, new: New, kind: str, key: str) -> None:
    table = new(f"k {kind}, v long")
    source = spark.range(1, 2).selectExpr(f"CAST({key} AS {kind}) k", "id v")
    source = source.union(spark.sql("SELECT NULL, 0L"))
    table.append(source)
    merge = table.merge(source, "t.k = s.k").when_matched_update({"v": 2})
    report = merge.when_not_matched_insert_all().execute()
    assert (report.rows_updated, report.rows_inserted) == (1, 1)  # null has no partner
    assert sorted(row.v for row in table.to_df().select("v").collect()) == [0, 0, 2]
