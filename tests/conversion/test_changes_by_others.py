"""What others change of a target beside its rows: columns, partitions, properties."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from delvec.errors import ConflictError, PlanError, UnsupportedFeatureError
from tests.conversion.targets import Pair, before, numbered
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


@pytest.fixture
def pair(spark: SparkSession, tmp_path: Path, target: str) -> Pair:
    """A source of one file, which is converted."""
    table = TableBuilder(tmp_path / "source", fields={"id": "long", "n": "integer"})
    table.create()
    add = table.write_file("part-0.parquet", rows_of(FIRST))
    table.commit({"add": add})
    pair = Pair(spark, table, [add], target)
    pair.convert()
    return pair


def rows_of(*several: dict[str, list[Any]]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("n", pa.int32())])
    return pa.concat_tables([pa.table(values, schema=schema) for values in several])


def add_rows(pair: Pair) -> None:
    name = f"part-{pair.source.version}.parquet"
    pair.source.commit({"add": pair.source.write_file(name, rows_of(SECOND))})


def add_column(pair: Pair) -> None:
    """Let the source have a column x, and a row with it."""
    pair.source.fields = {"id": "long", "n": "integer", "x": "long"}
    more = pa.table({"id": [4], "n": pa.array([40], pa.int32()), "x": [400]})
    add = pair.source.write_file("part-x.parquet", more)
    pair.source.commit({"metaData": pair.source.metadata()}, {"add": add})


def alter(pair: Pair, *changes: str) -> None:
    for change in changes:
        pair.sql(change if change.startswith("INSERT") else f"ALTER TABLE {{t}} {change}")


def tuples(pair: Pair) -> list[tuple[Any, ...]]:
    pair.spark.catalog.refreshTable(pair.target)
    return [tuple(row) for row in pair.spark.table(pair.target).orderBy("id").collect()]


def check_rows(pair: Pair, *several: dict[str, list[Any]]) -> None:
    expected = rows_of(*several)
    assert tuples(pair) == [tuple(row.values()) for row in expected.to_pylist()]
    check_pyiceberg(pair.spark, pair.target, expected)


def swapped(mapping: str) -> str:
    """A name mapping in which two columns have changed places."""
    first, second = json.loads(mapping)
    first["names"], second["names"] = second["names"], first["names"]
    return json.dumps([first, second])


@pytest.mark.slow
@pytest.mark.parametrize("name", slow_but(QUICK, CHANGES))
def test_columns_and_partitions_that_others_changed_are_refused_and_taken_back_on_request(
    pair: Pair, name: str
) -> None:
    changes, named = CHANGES[name]
    own = pair.metadata()
    alter(pair, *changes)
    theirs = pair.metadata()
    for is_newer in (False, True):
        if is_newer:
            add_rows(pair)
        with pytest.raises(PlanError, match="others have changed") as refused:
            pair.convert()
        for part in (pair.target, "since version 1 was converted", *named):
            assert part in str(refused.value)
        assert "foreign='overwrite'" in str(refused.value.hint)
    assert pair.metadata() == theirs

    [note] = pair.convert(foreign="overwrite", verify="rows").notes
    for part in ("taken back", *named):
        assert part in note
    if "added" in named[-1]:
        assert "dropped with all values: 'x'" in note or name == "another of that name"
    after = pair.metadata()
    assert (after.schema, after.spec) == (own.schema, own.spec)
    check_rows(pair, FIRST, SECOND)
    # Specs of others are read, too.
    assert pair.spark.table(f"{pair.target}.all_data_files").count() >= 2
    assert pair.convert().mode == "none"
    # The next column of the source has an id of its own.
    add_column(pair)
    pair.convert(verify="rows")
    assert tuples(pair) == [(1, 10, None), (2, None, None), (3, 30, None), (4, 40, 400)]


@pytest.mark.slow
def test_a_schema_that_an_earlier_conversion_had_is_a_change_as_any_other(pair: Pair) -> None:
    first = pair.metadata()
    add_column(pair)
    pair.convert()
    rows = [(1, 10, None), (2, None, None), (4, 40, 400)]
    own = pair.metadata().schema
    alter(pair, "DROP COLUMN x")
    assert pair.metadata().schema == first.schema
    with pytest.raises(PlanError, match="column 'x' was dropped"):
        pair.convert()
    pair.convert(foreign="overwrite", verify="rows")
    assert pair.metadata().schema == own
    assert tuples(pair) == rows

    # A rollback leaves the schema as it was, and is none.
    head = first.head()
    assert head is not None
    pair.sql(f"CALL lake.system.rollback_to_snapshot('{{n}}', {head.id})")
    assert "rolled back" in str(pair.convert(version=1))
    pair.convert(verify="rows")
    assert tuples(pair) == rows


@pytest.mark.slow
def test_names_and_mappings_of_others_are_noticed_with_column_mapping(
    spark: SparkSession, tmp_path: Path, target: str
) -> None:
    path = tmp_path / "source"
    pair = Pair(spark, TableBuilder(path), [], target)
    mapped = "'delta.columnMapping.mode' = 'name'"
    sql(
        spark,
        path,
        f"CREATE TABLE {{T}} (id LONG, a INT) USING delta TBLPROPERTIES ({mapped})",
        "INSERT INTO {T} VALUES (1, 10)",
    )
    pair.convert()
    sql(spark, path, "ALTER TABLE {T} RENAME COLUMN a TO b")
    pair.convert()
    alter(pair, "RENAME COLUMN b TO a")
    with pytest.raises(PlanError, match="column 'b' was renamed to 'a'"):
        pair.convert()
    pair.convert(foreign="overwrite")
    assert spark.table(target).columns == ["id", "b"]

    own = pair.metadata().properties[MAPPING]
    alter(pair, f"SET TBLPROPERTIES ('{MAPPING}' = '{swapped(own)}')")
    sql(spark, path, "INSERT INTO {T} VALUES (2, 20)")
    with pytest.raises(UnsupportedFeatureError, match=f"by the target's property {MAPPING}") as no:
        pair.convert()
    assert "set it to what it was" in str(no.value.hint)
    alter(pair, f"SET TBLPROPERTIES ('{MAPPING}' = '{own}')")
    pair.convert(verify="rows")
    assert tuples(pair) == [(1, 10), (2, 20)]


def test_partitions_of_a_type_that_others_changed_cannot_be_taken_back(pair: Pair) -> None:
    insert = "INSERT INTO {t} VALUES (100, 5000000000)"
    alter(pair, "ALTER COLUMN n TYPE BIGINT", "ADD PARTITION FIELD n", insert)
    theirs = pair.metadata()
    with pytest.raises(PlanError, match=r"partitions by 'n' have values of long, not int") as no:
        pair.convert(foreign="overwrite")
    assert f"drop {pair.target}" in str(no.value.hint)
    assert pair.metadata() == theirs


@pytest.mark.slow
def test_a_column_that_others_add_meanwhile_is_not_lost(pair: Pair) -> None:
    for number, column in ((0, "x"), (1, "y")):  # before it is staged, and before it is published
        add_rows(pair)
        meanwhile = before(lambda: alter(pair, f"ADD COLUMN {column} INT"))  # noqa: B023
        with numbered({number: meanwhile}), pytest.raises(PlanError, match=f"'{column}' was added"):
            pair.convert()
        assert column in pair.spark.table(pair.target).columns
        assert pair.refs() == {"main"}
        pair.convert(foreign="overwrite")


def test_a_plan_with_nothing_to_do_does_not_undo_a_newer_conversion(pair: Pair) -> None:
    alter(pair, f"UNSET TBLPROPERTIES ('{MAPPING}')")
    plan = pair.plan()
    assert plan.mode == "none"
    add_column(pair)
    pair.convert()
    newer = pair.metadata()
    with pytest.raises(ConflictError):
        plan.apply()
    assert pair.metadata() == newer
    assert (4, 40, 400) in tuples(pair)


def test_a_sort_order_or_a_comment_of_others_is_in_nobodys_way(pair: Pair) -> None:
    alter(pair, "WRITE ORDERED BY id", "ALTER COLUMN n COMMENT 'theirs'")
    assert pair.convert().notes == ()
    add_rows(pair)
    report = pair.convert(verify="rows")
    assert report.mode == "incremental"
    [note] = report.notes
    assert "comments" in note
    check_rows(pair, FIRST, SECOND)


def test_a_conversion_with_nothing_to_do_sets_its_properties_again(pair: Pair) -> None:
    own = pair.metadata().properties
    gone = ["gc.enabled", "write.metadata.metrics.default", MAPPING]
    wrong = swapped(own[MAPPING])
    for change in (
        f"UNSET TBLPROPERTIES ({', '.join(map(repr, gone))})",
        f"SET TBLPROPERTIES ('gc.enabled' = 'true', '{MAPPING}' = '{wrong}')",
        f"SET TBLPROPERTIES ('{MAPPING}' = 'no mapping')",
    ):
        alter(pair, change)
        report = pair.convert()
        assert (report.mode, report.snapshot_id) == ("none", None)
        assert MAPPING in report.properties_set
        assert set(report.properties_set) <= set(gone)
        assert "set again" in report.notes[0]
        restored = pair.metadata().properties
        assert {key: restored[key] for key in gone[:2]} == {key: own[key] for key in gone[:2]}
        assert json.loads(restored[MAPPING]) == json.loads(own[MAPPING])
        check_rows(pair, FIRST)
    settled = pair.metadata()
    report = pair.convert()
    assert (report.notes, report.properties_set) == ((), ())
    assert pair.metadata() == settled
    # The same beside new rows.
    alter(pair, f"SET TBLPROPERTIES ('gc.enabled' = 'true', '{MAPPING}' = '[]')")
    add_rows(pair)
    assert "gc.enabled" in pair.convert(verify="rows").notes[0]
    assert pair.metadata().properties["gc.enabled"] == "false"
    check_rows(pair, FIRST, SECOND)
