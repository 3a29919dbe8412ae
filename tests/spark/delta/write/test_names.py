"""How conditions, values and rows name columns: the table's alias, columns of DataFrames, DEFAULT,
and names that differ in case only.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from shutil import copytree

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession, functions

from delvec import DeltaTable
from delvec.errors import InvalidArgumentError
from tests.spark.delta.readers import settings_of
from tests.spark.delta.write.judge import (
    Meanwhile,
    New,
    folder,
    insert,
    judged,
    judged_merge,
    judged_write,
    made,
    update,
)

pytestmark = [pytest.mark.spark, pytest.mark.more]


@pytest.fixture(scope="module")
def original(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names") / "t"
    columns = "id int, v int, s struct<a: int, b: int>, l array<struct<x: int>>"
    rows = "SELECT int(id), int(id) * 10 v, named_struct('a', int(id), 'b', 0) s, "
    rows += "array(named_struct('x', int(id))) l FROM range(7)"
    DeltaTable.create(spark, path, columns).append(spark.sql(rows))
    return path


@pytest.fixture
def table(spark: SparkSession, original: Path, tmp_path: Path) -> DeltaTable:
    return DeltaTable.for_path(spark, copytree(original, tmp_path / "t"))


def values(table: DeltaTable) -> dict[int, int]:
    return {row["id"]: row["v"] for row in table.to_arrow(columns=["id", "v"]).to_pylist()}


# The alias of the table, `t`, in all conditions and values, as in those of a merge.
@pytest.mark.slow
def test_conditions_and_values_may_call_the_table_t(table: DeltaTable) -> None:
    table.delete("t.id >= 6")
    table.delete(functions.col("t.id") == 5)
    table.update({"t.v": "t.id + T.v + 1"}, where="t.id < 2")
    assert values(table) == {0: 1, 1: 12, 2: 20, 3: 30, 4: 40}
    table.overwrite(pa.table({"id": [2], "v": [9]}), where="t.id = 2")
    assert values(table)[2] == 9
    assert table.count("t.id + t.v > 12") == table.to_df(where="t.id + t.v > 12").count() == 3
    assert table.optimize("t.id > 0").version is not None
    assert table.purge("t.id > 0").version is None
    assert table.traces("t.id = 7").condition == "t.id = 7"


def test_files_are_pruned_by_a_condition_that_names_the_table(table: DeltaTable) -> None:
    table.append(pa.table({"id": [100], "v": [0]}))
    report = table.delete("t.id = 100")
    assert (report.files_scanned, report.files_removed) == (0, 1)


@pytest.mark.slow
def test_a_struct_called_t_is_what_t_names(new: New) -> None:
    table = new("id long, t struct<id: long>")
    table.append(pa.table({"id": [1, 2], "t": [{"id": 2}, {"id": 1}]}))
    assert table.delete("t.id = 2").rows_deleted == 1
    table.update({"t.id": "t.id + 5"})
    assert table.to_arrow().to_pylist() == [{"id": 2, "t": {"id": 6}}]


@pytest.mark.slow
def test_delta_sparks_order_and_names_are_taken(table: DeltaTable) -> None:
    table.update("id < 2", {"v": "5"})  # type: ignore[arg-type]
    table.update(functions.col("id") == 2, {"v": "6"})  # type: ignore[arg-type]
    table.update(updates={"v": "7"}, predicate="id = 3")  # type: ignore[call-arg]
    table.delete(condition="id > 5")  # type: ignore[call-arg]
    source = pa.table({"id": [4, 5], "v": [0, 0]})
    merge = table.merge(source, condition="t.id = s.id")  # type: ignore[call-arg]
    merge.when_matched_update("s.id = 4", {"v": "8"}).execute()  # type: ignore[arg-type]
    table.append(pa.table({"id": [9], "w": [1]}), mergeSchema=True)  # type: ignore[call-arg]
    assert values(table) == {0: 5, 1: 5, 2: 6, 3: 7, 4: 8, 5: 50, 9: None}


# Columns of DataFrames, such as `df["id"]`.
def rows(table: DeltaTable) -> list[tuple[int, int, int]]:
    return sorted(tuple(row) for row in table.to_df().select("id", "v", "s.b").collect())


@pytest.mark.slow
def test_columns_of_the_own_dataframe(
    spark: SparkSession, table: DeltaTable, meanwhile: Meanwhile
) -> None:
    df = table.to_df()
    assert table.delete(df["id"] == 0).rows_deleted == 1
    # Another writer's commit in between: the columns are of an older version by now.
    other = DeltaTable.for_path(spark, table.storage.root)
    tried = meanwhile(lambda: other.delete("id = 1 or id = 2"))
    report = table.update(
        {"v": df["v"] + functions.lit(1) + df.s.a, "s.b": table.to_df()["l"]["x"][0]},
        (df.where("id > 0")["s"]["a"] <= 3) & df.id.isin(1, 2, 3),
    )
    assert (report.rows_updated, len(tried)) == (1, 2)
    assert rows(table) == [(3, 34, 3), (4, 40, 0), (5, 50, 0), (6, 60, 0)]
    table.overwrite(spark.sql("SELECT 5 AS id WHERE false"), table.to_df()["id"] == 5)
    assert [row[0] for row in rows(table)] == [3, 4, 6]


def test_columns_of_the_own_dataframe_in_reads(spark: SparkSession, table: DeltaTable) -> None:
    df = table.to_df()
    assert (table.count(df["id"] < 2), table.count(functions.abs(df["v"]) == 30)) == (2, 1)
    assert [row.id for row in table.to_df(where=df["s"]["a"] == 4, columns=["id"]).collect()] == [4]
    assert table.to_arrow(df["id"] == 5)["v"].to_pylist() == [50]
    alien = spark.range(3)["id"] == 1
    for read in (table.count, table.to_arrow, lambda where: table.to_df(where=where)):
        with pytest.raises(InvalidArgumentError, match="bound to a DataFrame"):
            read(alien)


def test_both_sides_of_a_merge(spark: SparkSession, table: DeltaTable) -> None:
    df, source = table.to_df(), spark.sql("SELECT 1 AS id, 5 AS w UNION ALL SELECT 9, 6")
    (
        table.merge(source, df["id"] == source["id"])
        .when_matched_update({"v": source["w"] + df["v"]}, df["v"] == 10)
        .when_not_matched_insert({"id": source["id"], "v": source.w})
        .when_not_matched_by_source_delete(df["id"] > 2)
        .execute()
    )
    assert rows(table) == [(0, 0, 0), (1, 15, 0), (2, 20, 0), (9, 6, None)]
    with pytest.raises(InvalidArgumentError, match=r"both sides.*\n?.*t\.id or s\.id"):
        table.merge(df, df["id"] == functions.col("t.id"))


def test_columns_of_other_dataframes_are_refused(spark: SparkSession, table: DeltaTable) -> None:
    df, before = table.to_df(), folder(Path(table.storage.root))
    same = DeltaTable.for_path(spark, table.storage.root).to_df()
    for alien in (spark.range(3)["id"], df.withColumn("v2", functions.col("v"))["v2"], same["id"]):
        with pytest.raises(InvalidArgumentError, match=r"functions\.col"):
            table.delete(alien == 1)
        with pytest.raises(InvalidArgumentError, match="bound to a DataFrame"):
            table.update({"v": alien})
    assert folder(Path(table.storage.root)) == before


# Names and values in SET and INSERT as delta-spark's users write them.
DEFAULTS = {"delta.feature.allowColumnDefaults": "supported"}
SOURCE = "SELECT 1 AS id, 5 AS w UNION ALL SELECT 2, 6"


@pytest.fixture(scope="module")
def defaults(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("values") / "t"
    columns = "id INT, v INT DEFAULT 7, n STRING, t STRUCT<v: INT, only: INT>, q STRUCT<a: INT>"
    one = "VALUES (1, 1, 'a', named_struct('v', 8, 'only', 9), named_struct('a', 0))"
    return made(spark, path, columns, f"INSERT INTO {{T}} {one}", properties=DEFAULTS)


@pytest.mark.slow
def test_the_alias_of_the_table_in_assigned_columns(spark: SparkSession, defaults: Path) -> None:
    # `t.v` is the column v, though there is a column t with a field v.
    set_ = {"t.v": "s.w", "t.t.v": "10", "T.`q`.A": "t.v"}
    values = {"`t`.id": "s.id", "t.v": "s.w", "t": "named_struct('v', 1, 'only', s.w)"}
    judged_merge(spark, defaults, "alias", SOURCE, (update(set_), insert(values)))


def test_names_and_defaults_that_mean_nothing(spark: SparkSession, defaults: Path) -> None:
    t = DeltaTable.for_path(spark, defaults)
    merge = t.merge(spark.sql(SOURCE), on="t.id = s.id")
    # A field of the column t, since the table has no column `only`.
    assert merge.when_matched_update({"t.only": "1"}).execute(dry_run=True).rows_updated == 1
    for values, message in (
        ({"s.v": "1"}, "no column 's'"),
        ({"t.nope": "1"}, "nope"),
        ({"t.v.x": "1"}, "x"),
        ({"t.v": "1", "v": "2"}, "one clause sets both"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            merge.when_matched_update(values).execute()
    # It stands alone, and for whole columns.
    for name, value in {"v": "DEFAULT + 1", "t.v": "DEFAULT", "n": "upper(DEFAULT)"}.items():
        with pytest.raises(InvalidArgumentError, match=r"(?i)default"):
            t.update({name: value})


@pytest.mark.slow
def test_default_as_a_value(spark: SparkSession, defaults: Path) -> None:
    statement = "UPDATE {T} SET v = DEFAULT, n = DEFAULT"
    done = judged(
        spark, defaults, "set", statement, lambda t: t.update({"v": "DEFAULT", "n": " default"})
    )
    merged = DeltaTable.for_path(spark, done.path)
    (
        merged.merge(spark.sql(SOURCE), on="t.id = s.id and false")
        .when_not_matched_insert({"id": "s.id", "v": "DEFAULT", "n": "DEFAULT"})
        .when_not_matched_by_source_update({"n": "'kept'", "v": "DEFAULT"})
        .execute()
    )
    found = merged.to_df().select("id", "v", "n").collect()
    assert {tuple(row) for row in found} == {(1, 7, "kept"), (1, 7, None), (2, 7, None)}


@pytest.mark.slow
def test_a_column_called_default(spark: SparkSession, tmp_path: Path, new: New) -> None:
    columns = "id INT, v INT DEFAULT 7, `default` INT, g INT GENERATED ALWAYS AS (id + 1)"
    one = "INSERT INTO {T} (id, v, `default`) VALUES (1, 1, 33)"
    path = made(spark, tmp_path / "theirs", columns, one, properties=DEFAULTS)
    set_ = "UPDATE {T} SET v = DEFAULT"
    judged(spark, path, "column", set_, lambda t: t.update({"v": "DEFAULT"}))
    plain = new("id int, default_ int")
    plain.append(spark.sql("SELECT 1 AS id, 2 AS default_"))
    plain.update({"default_": "DEFAULT"})
    assert plain.to_df().first() == (1, None)
    generated = DeltaTable.for_path(spark, path)
    merge = generated.merge(spark.sql("SELECT 5 AS id"), on="t.id = s.id")
    merge.when_not_matched_insert({"id": "s.id", "g": "DEFAULT"}).execute()
    assert generated.to_df().where("id = 5").first() == (5, 7, None, 6)


# Names that differ in case only are the same name, whatever the session says.
CASED = "SELECT 2 AS C2, named_struct('Ab', 4) AS S, 'y' AS p"


@pytest.fixture(scope="module")
def cased(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, columns = tmp_path_factory.mktemp("cases") / "t", "c2 INT, s STRUCT<aB: INT>, P STRING"
    one = "INSERT INTO {T} VALUES (1, named_struct('aB', 1), 'x')"
    return made(spark, path, columns, one, partitioned_by=["p"])


@pytest.mark.slow
@pytest.mark.parametrize("is_sensitive", ["true", "false"])
def test_an_append_by_other_cases(spark: SparkSession, cased: Path, is_sensitive: str) -> None:
    act = partial(DeltaTable.append, merge_schema=True)
    with settings_of(spark, {"spark.sql.caseSensitive": is_sensitive}):
        name = f"append-{is_sensitive}"
        done = judged_write(spark, cased, name, CASED, act, mergeSchema="true")
    assert done.report is not None
    assert DeltaTable.for_path(None, done.path).schema.names == ("c2", "s", "P")


@pytest.mark.slow
def test_a_merge_by_other_cases(spark: SparkSession, cased: Path) -> None:
    judged_merge(spark, cased, "merge", CASED, on="t.C2 + 1 = s.c2")


@pytest.mark.parametrize("is_sensitive", ["false", "true"])
def test_twins_fail(spark: SparkSession, cased: Path, tmp_path: Path, is_sensitive: str) -> None:
    before, t = folder(cased), DeltaTable.for_path(spark, cased)
    with settings_of(spark, {"spark.sql.caseSensitive": is_sensitive}):
        twins = spark.sql("SELECT 1 AS c2, 2 AS C2, 'x' AS P, named_struct('aB', 1) AS s")
        inner = spark.sql("SELECT 1 AS c2, 'x' AS P, named_struct('aB', 1, 'ab', 2) AS s")
        for given in (twins, inner):
            for merges in (False, True):
                with pytest.raises(InvalidArgumentError, match=r"(?i)more than one"):
                    t.append(given, merge_schema=merges)
                merge = t.merge(given, on="t.P = s.P", merge_schema=merges)
                with pytest.raises(InvalidArgumentError, match=r"(?i)more than one|ambiguous"):
                    merge.when_matched_update_all().execute()
        for schema in ("c2 int, C2 int", "s struct<c2: int, C2: int>"):
            with pytest.raises(InvalidArgumentError):
                DeltaTable.create(spark, tmp_path / "new", schema)
    assert folder(cased) == before
