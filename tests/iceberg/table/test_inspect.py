"""The inspection of Iceberg tables: what it says is what the table's metadata and rows say."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from delvec import IcebergTable
from delvec.cli import main
from delvec.errors import PlanError, UnsupportedFeatureError
from delvec.iceberg.table import inspection
from delvec.inspection.figures import Advice
from delvec.storage.listed_files import local_path
from tests.spark.delta.readers import settings_of

pytestmark = [pytest.mark.spark, pytest.mark.more]

NAME = "lake.db.inspected"


@pytest.fixture
def table(spark: SparkSession) -> Iterator[IcebergTable]:
    """A table of two partitions and four files: vectors, then equality deletes on two branches."""
    spark.sql(
        f"CREATE TABLE {NAME} (id BIGINT, day STRING) USING iceberg PARTITIONED BY (day)"
        " TBLPROPERTIES ('format-version' = '3', 'write.delete.mode' = 'merge-on-read')"
    )
    found = IcebergTable.for_name(spark, NAME)
    for start in (0, 100):
        days = "CASE WHEN id % 2 = 0 THEN 'a' ELSE '<b>' END AS day"
        rows = spark.range(start, start + 100, 1, 1).selectExpr("id", days)
        rows.writeTo(NAME).append()
    spark.sql(f"DELETE FROM {NAME} WHERE id < 50 AND id % 2 = 0")
    yield found
    spark.sql(f"DROP TABLE {NAME} PURGE")


def live(spark: SparkSession, branch: str = "main") -> int:
    return spark.table(f"{NAME}.branch_{branch}").count()


def test_a_table_is_inspected_step_by_step(spark: SparkSession, table: IcebergTable) -> None:
    report = table.inspect()
    assert (report.format, report.files, report.rows) == ("iceberg", 4, 200)
    assert report.live_rows == live(spark) == 175
    assert (report.vectors.count, report.vectors.rows) == (1, 25)
    assert report.vectors.kinds == {"puffin": 1}
    assert [(each.label, each.vectors) for each in report.vectors.ages] == [("under a day", 1)]
    assert [each.deleted for each in report.most_deleted.shown] == [25, 0, 0, 0]
    assert [(each.name, each.rows, each.deleted) for each in report.partitions.shown] == [
        ("day=a", 100, 25),
        ("day=<b>", 100, 0),
    ]
    assert [each.action for each in report.advice] == ["compact"]
    assert [(each.files, each.deleted) for each in report.moments] == [(2, 0), (4, 0), (4, 25)]
    assert report.freed.vacuum == 0
    files = {row["path"]: row["bytes"] for row in table.files().collect()}
    assert report.bytes == sum(size for path, size in files.items() if path.endswith("parquet"))

    table.delete_keys([1, 3, 5], "id")
    waiting = table.inspect()
    assert (waiting.equality.files, waiting.equality.keys) == (1, 3)
    assert waiting.equality.columns == (("id",),)
    assert waiting.live_rows is None
    assert (waiting.moments[-1].keys, [each.action for each in waiting.advice]) == (3, ["resolve"])
    assert "1 file with 3 keys wait" in str(waiting)

    table.resolve("id")
    resolved = table.inspect()
    assert not resolved.equality.keys
    assert resolved.live_rows == live(spark) == 172
    assert (resolved.vectors.count, resolved.vectors.rows) == (2, 28)
    assert resolved.freed.vacuum is not None
    assert resolved.freed.vacuum > 0  # the equality delete, which older snapshots alone have
    assert table.inspect(listing=False).freed.vacuum is None

    older = table.inspect(waiting.snapshot_id)
    assert (older.equality.keys, older.is_newest, older.advice) == (3, False, ())
    json.dumps(resolved.to_json())
    assert "&lt;b&gt;" in resolved.to_html()


def test_a_resolve_that_is_refused_is_not_advised(spark: SparkSession, table: IcebergTable) -> None:
    table.create_branch("picked", staging=True)
    rows = table.to_df().limit(1)
    staged = table.append(rows, branch="picked").snapshot_id
    table.append(rows)  # else Iceberg would just move main forward
    spark.sql(f"CALL lake.system.cherrypick_snapshot('{NAME}', {staged})")
    table.delete_keys([7], "id", branch="picked")
    report = table.inspect(branch="picked")
    assert "resolve" not in [each.action for each in report.advice]
    [note] = report.notes
    assert note.startswith("resolve would be next, but is refused: snapshot")
    assert "cherry-picked" in note
    with pytest.raises(PlanError, match="cherry-picked"):
        table.resolve("id", staging="picked")


def test_what_the_table_refuses_is_known_before_it_is_advised(
    spark: SparkSession, table: IcebergTable
) -> None:
    expire, consolidate = (Advice(each, "", (), "") for each in ("expire", "consolidate"))
    for advice in (expire, consolidate):
        inspection._require_possible(table._load(), advice)
    spark.sql(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('write.wap.enabled' = 'true')")
    audited = settings_of(spark, {"spark.wap.id": "x"})
    with audited, pytest.raises(UnsupportedFeatureError, match="wait for an audit"):
        inspection._require_possible(table._load(), consolidate)
    log = Path(local_path(table._load().metadata.location), "_delta_log")
    log.mkdir()
    (log / f"{0:020}.json").touch()
    with pytest.raises(PlanError, match=r"is not .* alone"):
        inspection._require_possible(table._load(), expire)


@pytest.mark.slow
def test_what_waits_on_a_staging_branch_is_named(spark: SparkSession, table: IcebergTable) -> None:
    table.create_branch("changes", staging=True)
    table.delete_keys([7, 9], "id", branch="changes")
    newest = table.inspect()
    [staged] = newest.equality.staging
    assert (staged.name, staged.snapshots) == ("changes", 1)
    staged_call = "t.resolve(staging='changes')"
    assert staged_call in [each.call for each in newest.advice]
    branch = table.inspect(branch="changes")
    assert (branch.equality.vectors + branch.equality.files, branch.equality.keys) == (1, 2)
    assert branch.advice[0].arguments == ("resolve", NAME, "--staging", "changes")
    table.resolve("id", staging="changes", restart_staging=True)
    after = table.inspect()
    assert after.live_rows == live(spark)
    assert "resolve" not in [each.action for each in after.advice]
    assert "changes: nothing waits" in str(after)


def test_position_deletes_are_counted_and_compacted_as_advised(spark: SparkSession) -> None:
    name = "lake.db.inspected_v2"
    spark.sql(
        f"CREATE TABLE {name} (id BIGINT) USING iceberg TBLPROPERTIES ('format-version' = '2',"
        " 'write.delete.mode' = 'merge-on-read')"
    )
    table = IcebergTable.for_name(spark, name)
    empty = table.inspect()
    assert (empty.snapshot_id, empty.files, empty.live_rows, empty.advice) == (None, 0, 0, ())
    assert "no snapshot" in str(empty) + empty.to_html()
    spark.range(0, 100, 1, 2).writeTo(name).append()
    spark.sql(f"DELETE FROM {name} WHERE id IN (3, 4, 5)")
    report = table.inspect()
    assert (report.positions.files, report.positions.positions, report.live_rows) == (1, 3, None)
    assert report.positions.bytes > 0
    assert report.positions.oldest_ms == report.committed_ms
    assert "up to 3 by position deletes" in " ".join(str(report).split())
    assert not report.advice
    spark.sql(f"DELETE FROM {name} WHERE id BETWEEN 60 AND 70")
    report = table.inspect()
    assert [each.deleted for each in report.most_deleted.shown] == [11, 3]  # by files of their own
    [advice] = report.advice
    assert advice.action == "compact"
    assert "up to 14.0 % of the rows are deleted" in advice.why

    warehouse = spark.conf.get("spark.sql.catalog.lake.warehouse") or ""
    document = json.loads(run("inspect", name, "--warehouse", warehouse, "--json"))
    [advised] = document["advice"]
    program, *words = shlex.split(advised["command"])
    assert (program, words[-2:]) == ("delvec", ["--warehouse", warehouse])
    run(*words)
    after = table.inspect()
    assert (after.positions.files, after.live_rows, after.advice) == (0, 86, ())
    assert spark.table(name).count() == 86
    spark.sql(f"DROP TABLE {name} PURGE")


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments, env={"COLUMNS": "80", "NO_COLOR": "1"})
    assert result.exit_code == 0, result.output
    return result.output


def test_null_is_told_from_strings_in_partitions(spark: SparkSession) -> None:
    name = "lake.db.inspected_nulls"
    spark.sql(f"CREATE TABLE {name} (id BIGINT, day STRING) USING iceberg PARTITIONED BY (day)")
    spark.sql(f"INSERT INTO {name} VALUES (1, NULL), (2, 'null'), (3, 'NULL'), (4, ''), (5, 'x')")
    found = IcebergTable.for_name(spark, name).inspect().partitions.shown
    shown = {"day=NULL", "day='null'", "day='NULL'", "day=''", "day=x"}
    assert {each.name for each in found} == shown
    spark.sql(f"DROP TABLE {name} PURGE")


def test_files_of_others_are_not_to_be_rewritten(spark: SparkSession, table: IcebergTable) -> None:
    spark.sql(f"ALTER TABLE {NAME} SET TBLPROPERTIES ('gc.enabled' = 'false')")
    report = table.inspect()
    assert not {"compact", "expire"} & {each.action for each in report.advice}
    assert "gc.enabled=false" in report.notes[0]
    spark.sql(f"ALTER TABLE {NAME} UNSET TBLPROPERTIES ('gc.enabled')")
