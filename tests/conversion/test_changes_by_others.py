"""What others change of a target beside its rows: columns, partitions, properties."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import delvec
from delvec.errors import ConflictError, PlanError, UnsupportedFeatureError
from delvec.iceberg.client.catalog import load_table, table_name
from delvec.iceberg.client.metadata import TableMetadata
from tests.conversion.targets import before, branches, numbered
from tests.delta.builder import TableBuilder
from tests.interop.conversion_targets import check_pyiceberg
from tests.marks import slow_but
from tests.spark.delta.spark_tables import sql

pytestmark = [pytest.mark.spark, pytest.mark.more]

MAPPING = "schema.name-mapping.default"
FIRST: dict[str, list[Any]] = {"id": [1, 2], "n": [10, None]}
SECOND: dict[str, list[Any]] = {"id": [3], "n": [30]}
# What others do to the target {t}, and what the refusal names.
CHANGES: dict[str, tuple[list[str], list[str]]] = {
    "added": (["ADD COLUMN x STRUCT<y: INT>"], ["column 'x' was added"]),
    "filled": (
        ["ADD COLUMN x INT", "INSERT INTO {t} VALUES (100, 1, 1)"],
        ["files and columns", "column 'x' was added"],
    ),
    "dropped": (["DROP COLUMN n"], ["column 'n' was dropped"]),
    "renamed": (["RENAME COLUMN n TO m"], ["column 'n' was renamed to 'm'"]),
    "swapped": (
        ["RENAME COLUMN id TO x", "RENAME COLUMN n TO id", "RENAME COLUMN x TO n"],
        ["column 'id' was renamed to 'n'", "column 'n' was renamed to 'id'"],
    ),
    "widened": (["ALTER COLUMN n TYPE BIGINT"], ["column 'n' is long and was int"]),
    "another of that name": (
        ["DROP COLUMN n", "ADD COLUMN n STRING"],
        ["column 'n' was dropped", "column 'n' was added"],
    ),
    "partitioned": (
        ["ADD PARTITION FIELD bucket(4, id)"],
        ["the partition spec", "it is partitioned by bucket[4] (id_bucket_4) and not by nothing"],
    ),
    "partitioned and filled": (
        ["ADD PARTITION FIELD n", "INSERT INTO {t} VALUES (100, 1)"],
        ["files and the partition spec"],
    ),
    "partitioned and ordered by their column": (
        [
            "ADD COLUMN x INT",
            "ADD PARTITION FIELD x",
            "WRITE ORDERED BY x",
            "INSERT INTO {t} VALUES (100, 1, 1)",
        ],
        ["files and columns and the partition spec", "by x and not by nothing", "'x' was added"],
    ),
}

QUICK = {"another of that name", "partitioned and ordered by their column"}


def source_of(path: Path) -> TableBuilder:
    table = TableBuilder(path, fields={"id": "long", "n": "integer"})
    table.create()
    table.commit({"add": table.write_file("part-0.parquet", rows_of(FIRST))})
    return table


def rows_of(values: dict[str, list[Any]]) -> pa.Table:
    return pa.table(values, schema=pa.schema([("id", pa.int64()), ("n", pa.int32())]))


def metadata_of(spark: SparkSession, target: str) -> TableMetadata:
    return load_table(spark, table_name(spark, target)).metadata


def alter(spark: SparkSession, target: str, *changes: str) -> None:
    for change in changes:
        prefix = "" if change.startswith("INSERT") else f"ALTER TABLE {target} "
        spark.sql(prefix + change.replace("{t}", target))


def check_rows(spark: SparkSession, target: str, expected: pa.Table) -> None:
    spark.catalog.refreshTable(target)
    found = spark.table(target).toArrow().sort_by("id")
    assert found.to_pylist() == expected.to_pylist()
    check_pyiceberg(spark, target, expected)


@pytest.fixture
def target() -> str:
    return f"lake.others.t_{uuid4().hex[:8]}"


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(QUICK, CHANGES))
def test_columns_and_partitions_that_others_changed_are_refused_and_taken_back_on_request(
    spark: SparkSession, tmp_path: Path, target: str, name: str
) -> None:
    changes, named = CHANGES[name]
    source = source_of(tmp_path / "source")
    delvec.convert(spark, source.root, target)
    own = metadata_of(spark, target)
    alter(spark, target, *changes)
    theirs = metadata_of(spark, target)
    for is_newer in (False, True):
        if is_newer:
            source.commit({"add": source.write_file("part-1.parquet", rows_of(SECOND))})
        with pytest.raises(PlanError, match="others have changed") as refused:
            delvec.convert(spark, source.root, target)
        for part in (target, "since version 1 was converted", *named):
            assert part in str(refused.value)
        assert "foreign='overwrite'" in str(refused.value.hint)
    assert metadata_of(spark, target) == theirs

    report = delvec.convert(spark, source.root, target, foreign="overwrite", verify="rows")
    [note] = report.notes
    assert "taken back" in note
    for part in named:
        assert part in note
    if "added" in named[-1]:
        assert "dropped with all values: 'x'" in note or name == "another of that name"
    after = metadata_of(spark, target)
    assert after.schema == own.schema
    assert after.spec == own.spec
    check_rows(spark, target, pa.concat_tables([rows_of(FIRST), rows_of(SECOND)]))
    assert spark.table(f"{target}.all_data_files").count() >= 2  # specs of others are read, too
    assert delvec.convert(spark, source.root, target).mode == "none"
    # The next column of the source has an id of its own.
    source.fields = {"id": "long", "n": "integer", "x": "long"}
    more = pa.table({"id": [4], "n": pa.array([40], pa.int32()), "x": [400]})
    add = source.write_file("part-2.parquet", more)
    source.commit({"metaData": source.metadata()}, {"add": add})
    delvec.convert(spark, source.root, target, verify="rows")
    spark.catalog.refreshTable(target)
    assert [tuple(row) for row in spark.table(target).orderBy("id").collect()] == [
        (1, 10, None),
        (2, None, None),
        (3, 30, None),
        (4, 40, 400),
    ]


@pytest.mark.slow
def test_a_schema_that_an_earlier_conversion_had_is_a_change_as_any_other(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    source = source_of(tmp_path / "source")
    delvec.convert(spark, source.root, target)
    first = metadata_of(spark, target)
    source.fields = {"id": "long", "n": "integer", "x": "long"}
    more = pa.table({"id": [4], "n": pa.array([40], pa.int32()), "x": [400]})
    add = source.write_file("part-2.parquet", more)
    source.commit({"metaData": source.metadata()}, {"add": add})
    delvec.convert(spark, source.root, target)
    rows = [(1, 10, None), (2, None, None), (4, 40, 400)]
    own = metadata_of(spark, target).schema
    alter(spark, target, "DROP COLUMN x")
    assert metadata_of(spark, target).schema == first.schema
    with pytest.raises(PlanError, match="column 'x' was dropped"):
        delvec.convert(spark, source.root, target)
    delvec.convert(spark, source.root, target, foreign="overwrite", verify="rows")
    assert metadata_of(spark, target).schema == own
    spark.catalog.refreshTable(target)
    assert [tuple(row) for row in spark.table(target).orderBy("id").collect()] == rows

    # A rollback leaves the schema as it was, and is none.
    head = first.head()
    assert head is not None
    name = target.removeprefix("lake.")
    spark.sql(f"CALL lake.system.rollback_to_snapshot('{name}', {head.id})").collect()
    assert "rolled back" in str(delvec.convert(spark, source.root, target, version=1))
    delvec.convert(spark, source.root, target, verify="rows")
    spark.catalog.refreshTable(target)
    assert [tuple(row) for row in spark.table(target).orderBy("id").collect()] == rows


@pytest.mark.slow
def test_names_and_mappings_of_others_are_noticed_with_column_mapping(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    path = tmp_path / "source"
    mapped = "'delta.columnMapping.mode' = 'name'"
    sql(
        spark,
        path,
        f"CREATE TABLE {{T}} (id LONG, a INT) USING delta TBLPROPERTIES ({mapped})",
        "INSERT INTO {T} VALUES (1, 10)",
    )
    delvec.convert(spark, path, target)
    sql(spark, path, "ALTER TABLE {T} RENAME COLUMN a TO b")
    delvec.convert(spark, path, target)
    alter(spark, target, "RENAME COLUMN b TO a")
    with pytest.raises(PlanError, match="column 'b' was renamed to 'a'"):
        delvec.convert(spark, path, target)
    delvec.convert(spark, path, target, foreign="overwrite")
    assert spark.table(target).columns == ["id", "b"]

    own = metadata_of(spark, target).properties[MAPPING]
    wrong = json.loads(own)
    wrong[0]["names"], wrong[1]["names"] = wrong[1]["names"], wrong[0]["names"]
    alter(spark, target, f"SET TBLPROPERTIES ('{MAPPING}' = '{json.dumps(wrong)}')")
    sql(spark, path, "INSERT INTO {T} VALUES (2, 20)")
    with pytest.raises(UnsupportedFeatureError, match=f"by the target's property {MAPPING}") as no:
        delvec.convert(spark, path, target)
    assert "set it to what it was" in str(no.value.hint)
    alter(spark, target, f"SET TBLPROPERTIES ('{MAPPING}' = '{own}')")
    delvec.convert(spark, path, target, verify="rows")
    spark.catalog.refreshTable(target)
    assert [tuple(row) for row in spark.table(target).orderBy("id").collect()] == [(1, 10), (2, 20)]


def test_partitions_of_a_type_that_others_changed_cannot_be_taken_back(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    source = source_of(tmp_path / "source")
    delvec.convert(spark, source.root, target)
    alter(
        spark,
        target,
        "ALTER COLUMN n TYPE BIGINT",
        "ADD PARTITION FIELD n",
        "INSERT INTO {t} VALUES (100, 5000000000)",
    )
    theirs = metadata_of(spark, target)
    with pytest.raises(PlanError, match=r"partitions by 'n' have values of long, not int") as no:
        delvec.convert(spark, source.root, target, foreign="overwrite")
    assert f"drop {target}" in str(no.value.hint)
    assert metadata_of(spark, target) == theirs


@pytest.mark.slow
def test_a_column_that_others_add_meanwhile_is_not_lost(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    source = source_of(tmp_path / "source")
    delvec.convert(spark, source.root, target)
    for number, column in ((0, "x"), (1, "y")):  # before it is staged, and before it is published
        name = f"part-{column}.parquet"
        source.commit({"add": source.write_file(name, rows_of(SECOND))})
        meanwhile = before(lambda: alter(spark, target, f"ADD COLUMN {column} INT"))  # noqa: B023
        with numbered({number: meanwhile}), pytest.raises(PlanError, match=f"'{column}' was added"):
            delvec.convert(spark, source.root, target)
        assert column in spark.table(target).columns
        assert branches(spark, target) == {"main"}
        delvec.convert(spark, source.root, target, foreign="overwrite")


def test_a_plan_with_nothing_to_do_does_not_undo_a_newer_conversion(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    source = source_of(tmp_path / "source")
    delvec.convert(spark, source.root, target)
    alter(spark, target, f"UNSET TBLPROPERTIES ('{MAPPING}')")
    plan = delvec.plan_conversion(spark, source.root, target)
    assert plan.mode == "none"
    source.fields = {"id": "long", "n": "integer", "x": "long"}
    more = pa.table({"id": [4], "n": pa.array([40], pa.int32()), "x": [400]})
    add = source.write_file("part-2.parquet", more)
    source.commit({"metaData": source.metadata()}, {"add": add})
    delvec.convert(spark, source.root, target)
    newer = metadata_of(spark, target)
    with pytest.raises(ConflictError):
        plan.apply()
    assert metadata_of(spark, target) == newer
    assert (4, 40, 400) in [tuple(row) for row in spark.table(target).collect()]


def test_a_sort_order_or_a_comment_of_others_is_in_nobodys_way(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    source = source_of(tmp_path / "source")
    delvec.convert(spark, source.root, target)
    alter(spark, target, "WRITE ORDERED BY id", "ALTER COLUMN n COMMENT 'theirs'")
    assert delvec.convert(spark, source.root, target).notes == ()
    source.commit({"add": source.write_file("part-1.parquet", rows_of(SECOND))})
    report = delvec.convert(spark, source.root, target, verify="rows")
    assert (report.mode, len(report.notes)) == ("incremental", 1)
    assert "comments" in report.notes[0]
    check_rows(spark, target, pa.concat_tables([rows_of(FIRST), rows_of(SECOND)]))


def test_a_conversion_with_nothing_to_do_sets_its_properties_again(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    source = source_of(tmp_path / "source")
    delvec.convert(spark, source.root, target)
    own = metadata_of(spark, target).properties
    wrong = json.loads(own[MAPPING])
    wrong[0]["names"], wrong[1]["names"] = wrong[1]["names"], wrong[0]["names"]
    gone = ["gc.enabled", "write.metadata.metrics.default", MAPPING]
    for changes in (
        [f"UNSET TBLPROPERTIES ({', '.join(map(repr, gone))})"],
        [f"SET TBLPROPERTIES ('gc.enabled' = 'true', '{MAPPING}' = '{json.dumps(wrong)}')"],
        [f"SET TBLPROPERTIES ('{MAPPING}' = 'no mapping')"],
    ):
        alter(spark, target, *changes)
        report = delvec.convert(spark, source.root, target)
        assert (report.mode, report.snapshot_id) == ("none", None)
        assert set(report.properties_set) <= set(gone)
        assert MAPPING in report.properties_set
        assert "set again" in report.notes[0]
        restored = metadata_of(spark, target).properties
        assert {key: restored[key] for key in gone[:2]} == {key: own[key] for key in gone[:2]}
        assert json.loads(restored[MAPPING]) == json.loads(own[MAPPING])
        check_rows(spark, target, rows_of(FIRST))
    settled = metadata_of(spark, target)
    report = delvec.convert(spark, source.root, target)
    assert (report.notes, report.properties_set) == ((), ())
    assert metadata_of(spark, target) == settled
    # The same beside new rows.
    alter(spark, target, f"SET TBLPROPERTIES ('gc.enabled' = 'true', '{MAPPING}' = '[]')")
    source.commit({"add": source.write_file("part-1.parquet", rows_of(SECOND))})
    report = delvec.convert(spark, source.root, target, verify="rows")
    assert "gc.enabled" in report.notes[0]
    assert metadata_of(spark, target).properties["gc.enabled"] == "false"
    check_rows(spark, target, pa.concat_tables([rows_of(FIRST), rows_of(SECOND)]))
