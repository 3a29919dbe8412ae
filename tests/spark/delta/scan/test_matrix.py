"""Tables that delta-spark writes, at every version: the rows that delta-spark reads there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from pyspark.sql import SparkSession

import delvec.delta.table as delta
from tests.delta.log_files import commits, container_kinds, live_adds, newest_version, payload_of
from tests.delta.rows import same_rows
from tests.spark.delta.readers import READERS, read, read_frame, settings_of
from tests.spark.delta.spark_tables import as_delta_spark_reads, create, sql

pytestmark = [pytest.mark.spark, pytest.mark.first_cases(1)]


def check_every_version(
    spark: SparkSession, path: Path, readers: tuple[str, ...] = ("to_df", "to_arrow")
) -> None:
    for version in range(newest_version(path) + 1):
        expected = as_delta_spark_reads(spark, path, version).toArrow()
        for reader in readers:
            assert same_rows(read(reader, spark, path, version), expected)
        table = delta.DeltaTable.for_path(spark, path)
        assert table.count(version=version) == expected.num_rows
    # One more for the data source, which starts processes of Python for each read.
    assert same_rows(read("source", spark, path), expected)


class Layout(NamedTuple):
    """How a table is laid out."""

    mapping: str
    is_partitioned: bool
    checkpoint: str
    properties: dict[str, str]


FEED = {"delta.enableChangeDataFeed": "true"}
TRACKING = {"delta.enableRowTracking": "true"}
PREFIXES = {"delta.randomizeFilePrefixes": "true"}
LAYOUTS = [
    Layout("none", False, "none", FEED),
    Layout("name", True, "v2", FEED | TRACKING | PREFIXES),
    Layout("none", True, "classic", TRACKING),
    Layout("id", False, "classic", {}),
    Layout("id", True, "v2", {}),
    Layout("name", False, "classic", TRACKING),
    Layout("none", True, "v2", PREFIXES),
]
# Every commit takes delta-spark a second and more.
LIVES = [(LAYOUTS[1], "short"), *((layout, "whole") for layout in LAYOUTS)]
COLUMNS = (
    "id BIGINT, p STRING, n INT, s STRUCT<a: INT, b: STRUCT<d: STRING, e: DOUBLE>>,"
    " l ARRAY<STRUCT<x: INT, y: STRING>>, m MAP<STRING, BIGINT>, gone STRING"
)
# Names that must be escaped in folders, in paths of the log, or in both.
PARTITIONS = ("a b", "100%", "x=y/ä:#?")


def rows(start: int, stop: int) -> str:
    choices = ", ".join(f"'{text}'" for text in PARTITIONS)
    return f"""
        SELECT /*+ REPARTITION(1) */ id,
          CASE WHEN id % 4 < 3 THEN element_at(array({choices}), int(id % 4) + 1) END AS p,
          int(id % 10) AS n,
          CASE WHEN id % 7 != 0 THEN named_struct('a', int(id), 'b',
            CASE WHEN id % 3 != 0 THEN named_struct('d', string(id), 'e', id / 8) END) END AS s,
          CASE WHEN id % 5 != 0 THEN array(named_struct('x', int(id), 'y', string(id)), null) END l,
          CASE WHEN id % 4 != 0 THEN map(string(id), id, 'none', null) END AS m,
          concat('gone ', id) AS gone
        FROM range({start}, {stop})"""


def history_of(layout: Layout, life: str) -> list[str]:
    """Give the statements of one table's life; one commit each."""
    changes = [f"INSERT INTO {{T}} {rows(0, 60)}", "DELETE FROM {T} WHERE id % 9 = 4"]
    if life == "whole":
        changes.append("UPDATE {T} SET n = -1, s.a = -1 WHERE id IN (3, 30, 31)")
    if layout.mapping != "none":
        changes += [
            "ALTER TABLE {T} RENAME COLUMN n TO `number, renamed`",
            "ALTER TABLE {T} RENAME COLUMN s.b TO `in ner`",
            "ALTER TABLE {T} DROP COLUMN gone",
            "ALTER TABLE {T} ADD COLUMNS (n STRING, s.f INT AFTER a)",
        ]
    if life == "short":
        more = "INSERT INTO {T} (id, p) VALUES (100, 'a b'), (101, NULL)"
        return [*changes, more, "DELETE FROM {T} WHERE id IN (1, 2, 30, 101)"]
    merged = rows(50, 70).replace("gone ", "merged ")
    columns = "id, p, n" if layout.mapping == "none" else "id, p, `number, renamed`"
    merge = (
        f"MERGE INTO {{T}} t USING ({merged}) s ON t.id = s.id"
        " WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET t.p = s.p"
        f" WHEN NOT MATCHED THEN INSERT ({columns}) VALUES (s.id, s.p, s.n)"
    )
    changes += [
        merge,
        "DELETE FROM {T} WHERE id BETWEEN 20 AND 24",
        "OPTIMIZE {T}",
        "RESTORE TABLE {T} TO VERSION AS OF 2",
        "DELETE FROM {T} WHERE p = 'a b' OR id = 8",
    ]
    return changes


def build(spark: SparkSession, path: Path, layout: Layout, life: str) -> None:
    properties = dict(layout.properties)
    if layout.mapping != "none":
        properties["delta.columnMapping.mode"] = layout.mapping
    if layout.checkpoint != "none":
        properties["delta.checkpointInterval"] = "3"
        policy = "v2" if layout.checkpoint == "v2" else "classic"
        properties["delta.checkpointPolicy"] = policy
    partitioned_by = ["p"] if layout.is_partitioned else []
    create(spark, path, COLUMNS, partitioned_by=partitioned_by, properties=properties)
    sql(spark, path, *history_of(layout, life))


def name_of(layout: Layout) -> str:
    form = "partitioned" if layout.is_partitioned else "whole"
    return f"{layout.mapping}-{form}-{layout.checkpoint}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "life"), [pytest.param(*each, id=f"{name_of(each[0])}-{each[1]}") for each in LIVES]
)
def test_the_life_of_a_table(
    spark: SparkSession, tmp_path: Path, layout: Layout, life: str
) -> None:
    path = tmp_path / "a table"
    build(spark, path, layout, life)

    log = path / "_delta_log"
    names = {entry.name for entry in log.iterdir() if not entry.name.startswith(".")}
    classic = [name for name in names if name.endswith(".checkpoint.parquet")]
    second = [name for name in names if ".checkpoint." in name and name not in classic]
    sidecars = list(log.glob("_sidecars/*.parquet"))
    assert bool(second) == bool(sidecars) == (layout.checkpoint == "v2")
    # RESTORE leaves a checkpoint in any case; the versions before it are read without one.
    regular = [name for name in classic if int(name[:20]) % 3 == 0]
    assert bool(regular) == (layout.checkpoint == "classic")
    actions = [action for commit in commits(path) for action in commit]
    operations = {each["commitInfo"]["operation"] for each in actions if "commitInfo" in each}
    assert {"CREATE TABLE", "WRITE", "DELETE"} <= operations
    if life == "whole":
        assert {"UPDATE", "MERGE", "OPTIMIZE", "RESTORE"} <= operations
        changed = {kind for action in actions for kind in action}
        assert ("cdc" in changed) == ("delta.enableChangeDataFeed" in layout.properties)
    assert sum("deletionVector" in each.get("add", {}) for each in actions) > 1
    assert any("deletionVector" in add for add in live_adds(path))
    if layout.properties.get("delta.enableRowTracking"):
        assert all("baseRowId" in add for add in live_adds(path))
    if layout.properties.get("delta.randomizeFilePrefixes"):
        vectors = [a["deletionVector"] for a in live_adds(path) if "deletionVector" in a]
        assert {len(vector["pathOrInlineDv"]) for vector in vectors} == {22}
    if layout.is_partitioned:
        values = {tuple(add["partitionValues"].values()) for add in live_adds(path)}
        assert {(None,), ("100%",), ("x=y/ä:#?",)} <= values

    check_every_version(spark, path)


@pytest.mark.slow
def test_a_shallow_clone_and_what_is_deleted_in_it(spark: SparkSession, tmp_path: Path) -> None:
    source, clone = tmp_path / "the source", tmp_path / "the clone"
    create(spark, source, "id BIGINT, p STRING", partitioned_by=["p"])
    sql(
        spark,
        source,
        "INSERT INTO {T} SELECT id, concat('p ', id % 2) FROM range(40)",
        "DELETE FROM {T} WHERE id % 5 = 0",
    )
    before = as_delta_spark_reads(spark, source).toArrow()
    spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{source}`")
    cloned = live_adds(clone)
    assert {add["deletionVector"]["storageType"] for add in cloned} == {"p"}
    assert all(add["path"].startswith("file:") for add in cloned)
    sql(
        spark,
        clone,
        "DELETE FROM {T} WHERE id IN (1, 2, 3)",
        "INSERT INTO {T} VALUES (100, 'p 0'), (101, 'new')",
    )
    kinds = {add.get("deletionVector", {}).get("storageType") for add in live_adds(clone)}
    assert kinds == {"u", "p", None}
    absolute = [add for add in live_adds(clone) if add["path"].startswith("file:")]
    assert len(absolute) == len(cloned)
    assert {add["deletionVector"]["storageType"] for add in absolute} == {"u", "p"}

    check_every_version(spark, clone)
    for reader in READERS:
        assert same_rows(read(reader, spark, source), before)


WIDER = (
    "i TYPE BIGINT, f TYPE DOUBLE, d TYPE DECIMAL(10, 4), day TYPE TIMESTAMP_NTZ, x TYPE DOUBLE,"
    " n.a TYPE BIGINT"
)
WIDENING = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}


@pytest.mark.slow
def test_columns_whose_types_were_widened(spark: SparkSession, tmp_path: Path) -> None:
    create(
        spark,
        tmp_path,
        "id BIGINT, b TINYINT, i INT, f FLOAT, d DECIMAL(5, 2), day DATE, x INT,"
        " n STRUCT<a: SHORT>, p INT",
        partitioned_by=["p"],
        properties=WIDENING | {"delta.checkpointInterval": "3"},
    )
    sql(
        spark,
        tmp_path,
        "INSERT INTO {T} SELECT id, tinyint(id), int(id) * 1000000, float(id) / 10, id / 4,"
        " date_add(DATE'2020-02-27', int(id)), int(id), named_struct('a', smallint(id)),"
        " int(id % 2) FROM range(20)",
        "DELETE FROM {T} WHERE id IN (3, 4, 5)",
        f"ALTER TABLE {{T}} ALTER COLUMN b TYPE INT, p TYPE BIGINT, {WIDER}",
        "INSERT INTO {T} SELECT id, int(id) * 1000, id * 10000000000, id / 10, id / 4096,"
        " TIMESTAMP_NTZ'2020-02-27 01:02:03' + make_interval(0, 0, 0, int(id)), id / 3,"
        " named_struct('a', id * 10000000000), id % 2 FROM range(20, 40)",
        "DELETE FROM {T} WHERE id IN (6, 30)",
    )
    assert list((tmp_path / "_delta_log").glob("*.checkpoint.parquet"))
    check_every_version(spark, tmp_path)
    with settings_of(spark, {"spark.sql.parquet.enableVectorizedReader": "false"}):
        expected = as_delta_spark_reads(spark, tmp_path).toArrow()
        assert same_rows(read("to_df", spark, tmp_path), expected)


@pytest.mark.parametrize("vectorized", ["true", "false"])
def test_files_from_before_a_type_was_widened(
    spark: SparkSession, widened: Path, vectorized: str
) -> None:
    with settings_of(spark, {"spark.sql.parquet.enableVectorizedReader": vectorized}):
        expected = as_delta_spark_reads(spark, widened).toArrow()
        for reader in ("to_df", "to_arrow"):
            assert same_rows(read(reader, spark, widened), expected)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "where",
    [
        "f > 0.1D AND f < 0.3D",  # 0.1 as a float is more than 0.1 as a double
        "f = double(float(0.2))",
        "i >= 19000000",
        "day > TIMESTAMP_NTZ'2020-03-01 00:00:00' AND day < TIMESTAMP_NTZ'2020-03-03 12:00:00'",
        "d = 2.5",
        "x <= 3.5 OR n.a = 19",
    ],
)
def test_statistics_of_files_from_before_a_type_was_widened(
    spark: SparkSession, widened: Path, where: str
) -> None:
    table = delta.DeltaTable.for_path(spark, widened)
    # Not delta-spark's own answer to the condition: it believes the old statistics of floats.
    expected = as_delta_spark_reads(spark, widened).select("id").collect()
    everything = table.to_df().cache()
    try:
        assert everything.count() == len(expected)
        wanted = sorted(row.id for row in everything.where(where).collect())
    finally:
        everything.unpersist()
    assert wanted
    assert sorted(row.id for row in table.to_df().where(where).collect()) == wanted
    assert table.count(where) == len(wanted)
    assert sorted(table.to_arrow(where).column("id").to_pylist()) == wanted


@pytest.fixture(scope="module")
def widened(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of few rows, each with statistics from before."""
    path = tmp_path_factory.mktemp("widened")
    create(
        spark,
        path,
        "id BIGINT, i INT, f FLOAT, d DECIMAL(5, 2), day DATE, x INT, n STRUCT<a: SHORT>",
        properties=WIDENING,
    )
    sql(
        spark,
        path,
        "INSERT INTO {T} SELECT /*+ REPARTITION(10) */ id, int(id) * 1000000, float(id) / 10,"
        " id / 4, date_add(DATE'2020-02-27', int(id)), int(id), named_struct('a', smallint(id))"
        " FROM range(20)",
        "DELETE FROM {T} WHERE id = 17",
        f"ALTER TABLE {{T}} ALTER COLUMN {WIDER}",
    )
    assert len(live_adds(path)) > 7
    return path


def same_ids(
    spark: SparkSession, path: Path, expected: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> None:
    for reader in READERS:
        found = read(reader, spark, path).column("id").to_numpy()
        assert np.array_equal(np.sort(found), expected)
    assert delta.DeltaTable.for_path(spark, path).count() == len(expected)


def one_sorted_file(spark: SparkSession, path: Path, count: int) -> None:
    create(spark, path, "id BIGINT")
    spark.range(count).coalesce(1).write.format("delta").mode("append").save(str(path))
    [add] = live_adds(path)
    assert json.loads(add["stats"])["numRecords"] == count


@pytest.mark.slow
def test_vectors_of_array_bitmap_and_run_containers(spark: SparkSession, tmp_path: Path) -> None:
    one_sorted_file(spark, tmp_path, 200_000)
    deleted = "id < 500 OR id % 65536 = 9 OR (id > 131072 AND id % 3 = 0)"
    sql(spark, tmp_path, f"DELETE FROM {{T}} WHERE {deleted}")
    [add] = live_adds(tmp_path)
    assert container_kinds(payload_of(tmp_path, add)) == ["run", "array", "bitmap", "array"]
    ids = np.arange(200_000)
    gone = (ids < 500) | (ids % 65_536 == 9) | ((ids > 131_072) & (ids % 3 == 0))
    same_ids(spark, tmp_path, ids[~gone])
    # And what delta-spark makes of it when it merges: no runs any more.
    sql(spark, tmp_path, "DELETE FROM {T} WHERE id % 2 = 1 AND id < 60000")
    [add] = live_adds(tmp_path)
    assert "bitmap" in container_kinds(payload_of(tmp_path, add))[:1]
    same_ids(spark, tmp_path, ids[~(gone | ((ids % 2 == 1) & (ids < 60_000)))])


@pytest.mark.slow
def test_variants_behind_vectors(spark: SparkSession, tmp_path: Path) -> None:
    create(spark, tmp_path, "id BIGINT, v VARIANT")
    value = "parse_json(concat('{\"a\": ', id, ', \"b\": [1, null]}'))"
    sql(
        spark,
        tmp_path,
        f"INSERT INTO {{T}} SELECT id, CASE WHEN id % 3 != 0 THEN {value} END FROM range(20)",
        "DELETE FROM {T} WHERE id IN (2, 19)",
    )
    shown = ["id", "to_json(v) AS v", "v:a::int AS a"]
    expected = as_delta_spark_reads(spark, tmp_path).selectExpr(*shown).toArrow()
    assert same_rows(read_frame("to_df", spark, tmp_path).selectExpr(*shown).toArrow(), expected)
    assert read("to_arrow", spark, tmp_path).num_rows == expected.num_rows == 18
