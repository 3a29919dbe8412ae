"""Every table feature with every write: delta-spark reads the result, or it is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from delvec import DeltaTable
from delvec.errors import (
    ConflictError,
    ConstraintError,
    DelvecError,
    InvalidArgumentError,
    UnsupportedFeatureError,
)
from tests.delta import log_files
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import (
    Meanwhile,
    New,
    copy_of,
    feed,
    folder,
    insert,
    judged,
    judged_merge,
    made,
    rows_of,
)

pytestmark = pytest.mark.spark

ICEBERG = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "false"}
FILES = frozenset({"append", "update", "merge"})
CHANGES = frozenset({"delete", "update", "merge"})
ALL = FILES | CHANGES
V2 = {"delta.checkpointPolicy": "v2"}


class Case(NamedTuple):
    """A feature: columns besides `id BIGINT, v STRING`, their values in the first rows, the table's
    properties, operations that are refused, more of CREATE TABLE, and statements that follow.
    """

    columns: str = ""
    values: str = ""
    properties: Mapping[str, str] = {}
    refused: frozenset[str] = frozenset()
    clause: str = ""
    after: tuple[str, ...] = ()


def supported(name: str) -> dict[str, str]:
    return {f"delta.feature.{name}": "supported"}


# Features alone; the others are in one table, see `TOGETHER`.
CASES: dict[str, Case] = {
    "deletionVectors": Case(),
    "columnMapping by id": Case(
        properties={"delta.columnMapping.mode": "id"},
        after=("ALTER TABLE {T} RENAME COLUMN v TO w", "ALTER TABLE {T} RENAME COLUMN w TO v"),
    ),
    "typeWidening": Case(
        ", n TINYINT",
        ", 1Y n",
        {"delta.enableTypeWidening": "true"},
        after=("ALTER TABLE {T} ALTER COLUMN n TYPE INT",),
    ),
    "vacuumProtocolCheck": Case(properties=supported("vacuumProtocolCheck")),
    "appendOnly": Case(properties={"delta.appendOnly": "true"}, refused=CHANGES),
    "not null": Case(", n INT NOT NULL", ", 1 n"),
    "identityColumns": Case(", n BIGINT GENERATED ALWAYS AS IDENTITY"),
    "checkpointProtection": Case(
        properties={"delta.checkpointInterval": "3"},
        after=("ALTER TABLE {T} DROP FEATURE deletionVectors",),
    ),
    "icebergCompatV1": Case(
        properties=ICEBERG | {"delta.enableIcebergCompatV1": "true"}, refused=ALL
    ),
    "icebergCompatV2": Case(
        properties=ICEBERG | {"delta.enableIcebergCompatV2": "true"}, refused=ALL
    ),
    "partitioned by a variant's neighbour": Case(
        ", x VARIANT, p INT", ", parse_json('1') x, 1 p", clause="PARTITIONED BY (p)"
    ),
}
# Features that get along, in one table.
TOGETHER = Case(
    ", n INT DEFAULT 42, twice BIGINT GENERATED ALWAYS AS (id * 2), at TIMESTAMP_NTZ, x VARIANT",
    ", 1 n, TIMESTAMP_NTZ'2024-01-01 00:00:00' at, parse_json('{\"a\": 1}') x",
    V2
    | supported("allowColumnDefaults")
    | {
        "delta.columnMapping.mode": "name",
        "delta.enableChangeDataFeed": "true",
        "delta.enableRowTracking": "true",
        "delta.enableInCommitTimestamps": "true",
        "delta.constraints.small": "id < 1000",
        "delta.checkpointInterval": "2",
        "delta.randomizeFilePrefixes": "true",
    },
    clause="CLUSTER BY (id)",
)


def table_of(spark: SparkSession, path: Path, case: Case) -> DeltaTable:
    """Let delta-spark make a table of six rows in one file."""
    properties = {"delta.enableDeletionVectors": "true", **case.properties}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    columns = f"id BIGINT, v STRING{case.columns}"
    statement = f"CREATE TABLE {{T}} ({columns}) USING delta {case.clause} TBLPROPERTIES ({listed})"
    spark_tables.sql(spark, path, statement)
    rows = spark.sql(f"SELECT id, 'old' v{case.values} FROM range(0, 6, 1, 1)")
    rows.write.format("delta").mode("append").save(str(path))
    spark_tables.sql(spark, path, *case.after)
    return DeltaTable.for_path(spark, path)


def operations(spark: SparkSession, case: Case) -> dict[str, Callable[[DeltaTable], Any]]:
    rows = spark.sql(f"SELECT id, 'new' v{case.values} FROM range(10, 12)")
    source = spark.sql(f"SELECT id, 'merged' v{case.values} FROM range(4, 8, 1, 1)")
    names = [name for name in source.columns if name != "id"]
    return {
        "append": lambda t: t.append(rows),
        "delete": lambda t: t.delete("id = 1"),
        "update": lambda t: t.update({"v": "'updated'"}, "id IN (2, 3)"),
        "merge": lambda t: (
            t.merge(source, "t.id = s.id")
            .when_matched_delete("s.id = 5")
            .when_matched_update({name: f"s.{name}" for name in names})
            .when_not_matched_insert({name: f"s.{name}" for name in ["id", *names]})
            .execute()
        ),
    }


def expected(refused: frozenset[str]) -> dict[int, str]:
    """Give the values by id that the operations leave which are not refused."""
    rows = dict.fromkeys(range(6), "old")
    if "append" not in refused:
        rows |= {10: "new", 11: "new"}
    if "delete" not in refused:
        del rows[1]
    if "update" not in refused:
        rows |= {2: "updated", 3: "updated"}
    if "merge" not in refused:
        rows |= {4: "merged", 6: "merged", 7: "merged"}
        del rows[5]
    return rows


def written(spark: SparkSession, path: Path, name: str, case: Case) -> DeltaTable:
    """Do all four, and let delta-spark read what came of it."""
    table = table_of(spark, path, case)
    for operation, act in operations(spark, case).items():
        before = folder(path)
        if operation not in case.refused:
            assert act(table).version == table.version, operation
            continue
        with pytest.raises(UnsupportedFeatureError) as caught:
            act(table)
        assert caught.value.feature == name
        assert caught.value.hint
        assert folder(path) == before
    rows_of(spark, path)
    rows = spark_tables.as_delta_spark_reads(spark, path).select("id", "v").collect()
    assert {row.id: row.v for row in rows} == expected(case.refused)
    assert len(rows) == len(expected(case.refused))
    return table


@pytest.mark.slow
def test_features_that_get_along_in_one_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(spark, path, "all", TOGETHER)
    infos = [commit[0]["commitInfo"]["inCommitTimestamp"] for commit in log_files.commits(path)]
    assert infos == sorted(set(infos))
    rows = {row.id: row for row in table.to_df().collect()}
    assert {key: row.twice for key, row in rows.items()} == {key: key * 2 for key in rows}
    kinds = [text for text in feed(spark, path, table.version) if "_change_type='insert'" in text]
    assert len(kinds) == 2
    stats = [json.loads(add["stats"]) for add in log_files.live_adds(path)]
    assert all(each["minValues"] for each in stats)
    checkpoints = [name for name in folder(path) if ".checkpoint." in name]
    assert all(len(name.split(".")) == 4 for name in checkpoints)  # named by a UUID
    with pytest.raises(ConstraintError):
        table.update({"id": "id + 1000"}, "id = 0")
    # delta-spark goes on with what delvec wrote.
    spark_tables.sql(spark, path, "DELETE FROM {T} WHERE id IN (0, 10)", "OPTIMIZE {T}")
    left = {row.id: row.v for row in table.to_df().collect()}
    assert left == {k: v for k, v in expected(frozenset()).items() if k not in (0, 10)}


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_each_feature_alone(spark: SparkSession, tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    table = written(spark, path, name.split(" ", maxsplit=1)[0], CASES[name])
    if "merge" in CASES[name].refused:
        return
    spark_tables.sql(spark, path, "UPDATE {T} SET v = 'theirs' WHERE id = 0")
    assert {row.id: row.v for row in table.to_df().collect()}[0] == "theirs"
    if name == "checkpointProtection":
        assert "checkpointProtection" in table.protocol.features
        # No checkpoint may come before the version that the table protects.
        guarded = int(table.properties["delta.requireCheckpointProtectionBeforeVersion"])
        assert guarded > 0


@pytest.fixture(scope="module")
def plain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plain") / "t"
    table = DeltaTable.create(spark, path, "id long, v string")
    table.append(spark.range(0, 6, 1, 1).selectExpr("id", "'old' v"))
    return path


EDITS: dict[str, tuple[frozenset[str], dict[str, str]]] = {
    "icebergCompatV3": (FILES, {"delta.enableIcebergCompatV3": "true"}),
    "icebergCompatV2": (ALL, {"delta.enableIcebergCompatV2": "true"}),
    "icebergWriterCompatV1": (ALL, {"delta.enableIcebergWriterCompatV1": "true"}),
    "materializePartitionColumns": (FILES, {}),
    "appendOnly": (CHANGES, {"delta.appendOnly": "true"}),
    "redirectWriterOnly-preview": (ALL, {}),
    "somethingNew": (ALL, {}),
    "collations": (ALL, {}),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_unknown_feature_is_refused_by_name(spark: SparkSession, plain: Path, name: str) -> None:
    refused, properties = EDITS[name]
    path = edited(plain, name, properties, [name])
    try:
        table = DeltaTable.for_path(spark, path)
    except UnsupportedFeatureError as error:  # not even read
        assert error.feature == name  # noqa: PT017
        return
    before = folder(path)
    for operation, act in operations(spark, Case()).items():
        if operation in refused:
            with pytest.raises(UnsupportedFeatureError) as caught:
                act(table)
            assert caught.value.feature == name
    assert folder(path) == before


def edited(path: Path, name: str, properties: Mapping[str, str], features: list[str]) -> Path:
    """Copy a table, and give its first commit other properties and more features of writers."""
    copy = copy_of(path, name)
    first = copy / "_delta_log" / f"{0:020d}.json"
    actions = [json.loads(line) for line in first.read_text().splitlines()]
    for action in actions:
        action.get("protocol", {}).get("writerFeatures", []).extend(features)
        action.get("metaData", {}).get("configuration", {}).update(properties)
    first.write_text("".join(json.dumps(action) + "\n" for action in actions))
    (first.parent / f".{first.name}.crc").unlink(missing_ok=True)
    return copy


@pytest.mark.slow
def test_a_manifest_follows_appends_and_forbids_vectors(spark: SparkSession, plain: Path) -> None:
    symlinks = {"delta.compatibility.symlinkFormatManifest.enabled": "true"}
    off = {"delta.enableDeletionVectors": "false"}
    table = DeltaTable.for_path(spark, edited(plain, "manifest", symlinks | off, []))
    manifest = plain.parent / "manifest" / "_symlink_format_manifest" / "manifest"
    acts = operations(spark, Case())
    for act in acts.values():
        assert act(table).notes == ()
        files = {line.rsplit("/", 1)[-1] for line in manifest.read_text().split()}
        live = {add["path"].rsplit("/", 1)[-1] for add in log_files.live_adds(manifest.parents[1])}
        assert files == live
    table = DeltaTable.for_path(spark, edited(plain, "both", symlinks, []))
    for name in ("delete", "update", "merge"):
        with pytest.raises(UnsupportedFeatureError, match="symlink"):
            acts[name](table)
    assert table.delete("id >= 0").files_removed == 1  # whole files need no vector


def test_all_rows_are_tracked(spark: SparkSession, new: New, meanwhile: Meanwhile) -> None:
    table = new("id long")
    meanwhile(lambda: table.append(spark.range(3).coalesce(1)))
    with pytest.raises(ConflictError, match="added rows"):
        table.set_properties({"delta.enableRowTracking": "true"}, max_retries=0)
    table.add_feature("rowTracking")
    table.delete("id = 1")
    [file] = table.snapshot().files.entries([0])
    assert (file.add["baseRowId"], file.add["defaultRowCommitVersion"]) == (0, table.version)


# Values of identity columns: generated as delta-spark does, unique whoever writes.
def with_identity(spark: SparkSession, path: Path, definition: str) -> DeltaTable:
    made(spark, path, f"id BIGINT GENERATED {definition}, v INT")
    return DeltaTable.for_path(spark, path)


def values(spark: SparkSession, first: int, last: int, partitions: int = 2) -> DataFrame:
    return spark.range(first, last, 1, partitions).selectExpr("int(id) AS v")


def mark(path: Path) -> int:
    """Give the high water mark of the newest metadata."""
    actions = [action for commit in log_files.commits(path) for action in commit]
    texts = [action["metaData"]["schemaString"] for action in actions if "metaData" in action]
    metadata: dict[str, Any] = json.loads(texts[-1])["fields"][0]["metadata"]
    return int(metadata["delta.identity.highWaterMark"])


def ids(table: DeltaTable) -> list[int]:
    found = [row.id for row in table.to_df().collect()]
    assert len(set(found)) == len(found)
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("definition", "step"),
    [("ALWAYS AS IDENTITY (START WITH 10 INCREMENT BY -3)", -3), ("BY DEFAULT AS IDENTITY", 1)],
)
def test_both_engines_give_ids(
    spark: SparkSession, tmp_path: Path, definition: str, step: int
) -> None:
    path = tmp_path / "t"
    table = with_identity(spark, path, definition)
    table.append(values(spark, 0, 5))
    start = 10 if step < 0 else 1
    assert {(each - start) % step for each in ids(table)} == {0}
    furthest = min if step < 0 else max
    assert mark(path) == furthest(ids(table))
    spark_tables.sql(spark, path, "INSERT INTO {T} (v) VALUES (5), (6)")
    table.append(values(spark, 7, 9, 3))
    assert len(ids(table)) == 9
    assert mark(path) == furthest(ids(table))
    before, last = set(ids(table)), mark(path)
    (
        table.merge(values(spark, 8, 12), on="t.v = s.v")
        .when_matched_update({"v": "s.v"})
        .when_not_matched_insert({"id": "DEFAULT", "v": "s.v"})
        .execute()
    )
    new = set(ids(table)) - before
    assert len(new) == 3
    assert all((each - last) * step > 0 for each in new)
    last = mark(path)
    assert table.overwrite(values(spark, 0, 3), dry_run=True).rows_inserted == 3
    table.overwrite(values(spark, 0, 3))
    assert all((each - last) * step > 0 for each in ids(table))
    assert sum(rows_of(spark, path).values()) == 3


@pytest.mark.slow
def test_values_that_rows_bring_along(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = with_identity(spark, path, "BY DEFAULT AS IDENTITY (START WITH 10 INCREMENT BY 3)")
    table.append(spark.sql("SELECT 14L AS id, 0 AS v"))
    assert ids(table) == [14]
    (
        table.merge(values(spark, 1, 3), on="t.v = s.v")
        .when_not_matched_insert({"id": "70", "v": "s.v"}, "s.v = 1")
        .when_not_matched_insert({"v": "s.v"})
        .execute()
    )
    # As delta-spark rounds it, to 10 + 3 * 20.
    assert mark(path) == 70
    assert {14, 70} < set(ids(table))


@pytest.mark.slow
def test_delta_spark_refuses_such_a_mark_too(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    with_identity(spark, path, "BY DEFAULT AS IDENTITY (START WITH 0 INCREMENT BY 5)")
    done = judged_merge(
        spark,
        path,
        "mark",
        "SELECT 1 AS v UNION ALL SELECT 2",
        (insert({"id": f"{2**63 - 2}", "v": "s.v"}, "s.v = 1"), insert({"v": "s.v"})),
        on="t.v = s.v",
    )
    assert "no values left" in str(done.error)


@pytest.mark.slow
def test_columns_are_computed_from_new_ids(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "id BIGINT GENERATED ALWAYS AS IDENTITY, v INT, g BIGINT GENERATED ALWAYS AS (id * 10)"
    )
    path, insert_one = made(spark, tmp_path / "t", columns), "INSERT INTO {T} (v) VALUES (1)"
    rows = values(spark, 1, 2, 1)
    done = judged(spark, path, "generated", insert_one, lambda t: t.append(rows))
    assert rows_of(spark, done.path) == {"Row(id=1, v=1, g=10)": 1}
    table = DeltaTable.for_path(spark, done.path)
    assert table.append(values(spark, 2, 4), dry_run=True).rows_inserted == 2
    merge = table.merge(values(spark, 1, 3), on="t.v = s.v")
    with pytest.raises(InvalidArgumentError, match="generated column g is computed from an id"):
        merge.when_not_matched_insert({"v": "s.v"}).execute()


def test_two_writers_at_a_time(spark: SparkSession, tmp_path: Path, meanwhile: Meanwhile) -> None:
    table = with_identity(spark, tmp_path / "t", "ALWAYS AS IDENTITY")
    tried = meanwhile(lambda: table.append(values(spark, 0, 3)))
    table.append(values(spark, 3, 6))
    assert len(tried) == 2
    assert len(ids(table)) == 6


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = with_identity(spark, path, f"ALWAYS AS IDENTITY (START WITH {2**63 - 2})")
    table.append(values(spark, 0, 1))
    merge = table.merge(values(spark, 0, 2), on="t.v = s.v")
    wrong = merge.when_not_matched_insert({"id": "7", "v": "s.v"})
    acts: list[tuple[str, Callable[[], object]]] = [
        ("GENERATED ALWAYS", lambda: table.append(spark.sql("SELECT 5L AS id, 1 AS v"))),
        ("cannot be updated", lambda: table.update({"id": "id + 1"})),
        ("rows cannot give", wrong.execute),
        ("identity columns", lambda: merge.when_matched_update({"id": "DEFAULT"}).execute()),
        ("no values left", lambda: table.append(values(spark, 0, 5))),
        ("no values left", lambda: table.append(values(spark, 0, 2, 1))),
    ]
    before = folder(path)
    for message, act in acts:
        with pytest.raises(DelvecError, match=message):
            act()
    assert folder(path) == before
    assert table.update({"v": "v + 1"}).rows_updated == 1
