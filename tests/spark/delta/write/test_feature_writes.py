"""Every table feature with every write: delta-spark reads the result, or it is refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from delvec import DeltaTable
from delvec.errors import ConstraintError, UnsupportedFeatureError
from tests.delta import log_files
from tests.spark.delta import spark_tables
from tests.spark.delta.write.judge import copy_of, feed, folder, rows_of

pytestmark = pytest.mark.spark

ICEBERG = {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "false"}
FILES = frozenset({"append", "update", "merge"})
CHANGES = frozenset({"delete", "update", "merge"})
ALL = FILES | CHANGES
V2 = {"delta.checkpointPolicy": "v2"}


@dataclass(frozen=True)
class Case:
    """A feature, a table that has it, and what is refused.

    Attributes:
        columns: Columns besides `id BIGINT, v STRING`.
        values: Their values in the first rows, in SQL.
        properties: The table's.
        refused: Operations that are refused.
        clause: More of CREATE TABLE.
        after: Statements that follow the first rows.
    """

    columns: str = ""
    values: str = ""
    properties: Mapping[str, str] = field(default_factory=dict)
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


def made(spark: SparkSession, path: Path, case: Case) -> DeltaTable:
    """Let delta-spark make a table of six rows in one file."""
    properties = {"delta.enableDeletionVectors": "true", **case.properties}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(
        f"CREATE TABLE delta.`{path}` (id BIGINT, v STRING{case.columns}) USING delta"
        f" {case.clause} TBLPROPERTIES ({listed})"
    )
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
    table = made(spark, path, case)
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


def row_ids(spark: SparkSession, path: Path) -> dict[int, int]:
    rows = spark_tables.as_delta_spark_reads(spark, path)
    return {row.id: row.row_id for row in rows.select("id", "_metadata.row_id").collect()}


@pytest.mark.slow
def test_features_that_get_along_in_one_table(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "t"
    table = written(spark, path, "all", TOGETHER)
    ids = row_ids(spark, path)
    assert {key: ids[key] for key in (0, 2, 3, 4)} == {0: 0, 2: 2, 3: 3, 4: 4}
    assert len(set(ids.values())) == len(ids)
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
def test_what_delta_spark_cannot_make_is_refused_by_name(
    spark: SparkSession, plain: Path, name: str
) -> None:
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


@pytest.mark.slow
def test_invariants_of_old_hold(spark: SparkSession, plain: Path) -> None:
    path = edited(plain, "invariants", {}, ["invariants"])
    first = path / "_delta_log" / f"{0:020d}.json"
    rule = json.dumps({"expression": {"expression": "id < 1000"}})
    text = []
    for line in first.read_text().splitlines():
        action = json.loads(line)
        if "metaData" in action:
            schema = json.loads(action["metaData"]["schemaString"])
            schema["fields"][0]["metadata"]["delta.invariants"] = rule
            action["metaData"]["schemaString"] = json.dumps(schema)
        text.append(json.dumps(action) + "\n")
    first.write_text("".join(text))
    table = DeltaTable.for_path(spark, path)
    before = folder(path)
    with pytest.raises(ConstraintError):
        table.append(spark.sql("SELECT 1000L id, 'x' v"))
    with pytest.raises(ConstraintError):
        table.update({"id": "id + 998"})
    merge = table.merge(spark.range(5000, 5001), "t.id = s.id")
    with pytest.raises(ConstraintError):
        merge.when_not_matched_insert({"id": "s.id"}).execute()
    assert folder(path) == before
    assert table.update({"id": "id + 990"}).rows_updated == 6
