"""What the commands print that start Spark, as text on a terminal of 80 columns and as JSON.

They run one after the other on a few small tables, in one session. See
`tests/cli/snapshot_files.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.cli.snapshot_files import PINNED, Recorder, compare, short_folder, too_long
from tests.spark.delta.readers import INTERPRETED, settings_of

pytestmark = [pytest.mark.spark, pytest.mark.slow]

OF_BOTH = ("check", "detail", "files", "history", "properties", "schema")
TABLE = "sqlite.printed.orders"
CONVERTED = "sqlite.printed.converted"


@pytest.fixture(scope="module")
def recorder(spark: SparkSession) -> Iterator[Recorder]:
    with short_folder() as folder, settings_of(spark, INTERPRETED):
        found = Recorder(folder)
        write_sources(folder)
        delta(found, f"{folder}/orders")
        conversion(spark, found)
        iceberg(spark, found)
        yield found


def write_sources(folder: Path) -> None:
    (folder / "new.csv").write_text("id,note,day\n" + "".join(f"{i},n{i},1\n" for i in range(10)))
    (folder / "more.csv").write_text("id,note,day\n9,changed,1\n10,added,2\n")
    (folder / "changes.csv").write_text("id,note\n9,changed\n10,added\n")
    (folder / "appended.csv").write_text("id,note\n20,x\n21,y\n")
    (folder / "plain").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), folder / "plain" / "part.parquet")


def delta(recorder: Recorder, table: str) -> None:
    new, more = (f"{recorder.folder}/{name}.csv" for name in ("new", "more"))
    feed = ("--property", "delta.enableChangeDataFeed=true")
    columns = ("--schema", "id long not null, note string, day int", "--partition-by", "day")
    recorder.tried("create", table, *columns, *feed)
    recorder.tried("append", table, "--source", new)
    recorder.tried("delete", table, "--where", "id < 3")
    recorder.tried("update", table, "--set", "note = 'x'", "--where", "id = 5")
    recorder.tried("merge", table, "--source", more, "--on", "t.id = s.id", "--upsert")
    recorder.tried("overwrite", table, "--source", more, "--where", "id >= 9")
    recorder.both("changes", table, "--start-version", "2", "--end-version", "2")
    recorder.both("sql", f"SELECT id, note FROM delta.`{table}` WHERE id > 7 ORDER BY id")
    recorder.run("update", table, "--set", "nota = 'x'", "--where", "id = 5")
    recorder.run("delete", table, "--where", "idd = 5", "--json")
    recorder.tried("optimize", table, "--max-deleted-ratio", "1")
    recorder.tried("purge", table)
    alterations(recorder, table)
    recorder.tried("downgrade", table)
    recorder.run("feature", "enable-vectors", table, "--dry-run")


def alterations(recorder: Recorder, table: str) -> None:
    recorder.tried("column", "add", table, "tax decimal(10,2)")
    recorder.run("column", "drop", table, "tax")
    recorder.tried("constraint", "add", table, "positive", "--check", "id >= 0")
    recorder.run("constraint", "drop", table, "positive", "--dry-run")
    recorder.tried("feature", "add", table, "domainMetadata")
    recorder.tried("delete-keys", table, "--key", "id", "--values", "9")
    since = ("--start-timestamp", "2000-01-01", "--end-version", "1", "--limit", "1")
    recorder.both("changes", table, *since)


def conversion(spark: SparkSession, recorder: Recorder) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.printed")
    recorder.run("convert-to-delta", f"{recorder.folder}/plain")
    target = (f"{recorder.folder}/plain", CONVERTED)
    recorder.tried("convert", *target, "--location", f"{recorder.folder}/converted")
    recorder.tried("clean-target", CONVERTED, "--retain-last", "1")


def iceberg(spark: SparkSession, recorder: Recorder) -> None:
    spark.sql(
        f"CREATE TABLE {TABLE} (id BIGINT NOT NULL, note STRING) USING iceberg"
        f" LOCATION '{recorder.folder}/iceberg' TBLPROPERTIES ('format-version'='3')"
    )
    spark.sql(f"INSERT INTO {TABLE} SELECT id, CONCAT('n', id) FROM range(10)")
    [[first]] = spark.sql(f"SELECT snapshot_id FROM {TABLE}.snapshots").collect()
    changes = f"{recorder.folder}/changes.csv"
    recorder.tried("delete-keys", TABLE, "--key", "id", "--values", "1,2")
    recorder.tried("upsert", TABLE, "--source", changes, "--key", "id")
    recorder.tried("append", TABLE, "--source", f"{recorder.folder}/appended.csv")
    recorder.tried("delete", TABLE, "--where", "note = 'n3'")
    recorder.tried("delete", TABLE, "--where", "id = 4", "--key", "id")
    refs(recorder, str(first))
    for command in OF_BOTH:
        recorder.both(command, TABLE)
    recorder.tried("consolidate", TABLE)
    recorder.tried("index", TABLE, "--key", "id")
    recorder.tried("resolve", TABLE)
    recorder.tried("compact", TABLE, "--rewrite-option", "rewrite-all=true")
    recorder.tried("unlock", TABLE, "--force")
    recorder.tried("index", TABLE, "--drop")
    recorder.tried("expire-snapshots", TABLE, "--older-than", "0s", "--retain-last", "2")
    recorder.tried("remove-orphan-files", TABLE)
    recorder.run("remove-orphan-files", TABLE, "--older-than", "1h")
    recorder.run("detail", "sqlite.printed.nothing")
    recorder.run("delete-keys", TABLE, "--key", "idd", "--values", "1")


def refs(recorder: Recorder, first: str) -> None:
    recorder.tried("branch", "create", TABLE, "audit", "--snapshot-id", first)
    recorder.tried("branch", "fast-forward", TABLE, "audit", "--to", "main")
    recorder.tried("tag", "create", TABLE, "first", "--snapshot-id", first)
    recorder.both("refs", TABLE)
    recorder.tried("branch", "rollback", TABLE, "--branch", "audit", "--snapshot-id", first)
    recorder.tried("branch", "drop", TABLE, "audit")
    recorder.tried("tag", "drop", TABLE, "first")


@PINNED
def test_commands_print_what_their_snapshots_show(recorder: Recorder) -> None:
    assert recorder.failed == []
    shown = recorder.printed.keys() - {"convert-to-delta"}  # which needs no session
    assert len(shown) == 34
    for name in shown:
        compare(f"iceberg/{name}" if name in OF_BOTH else name, recorder.of(name))


def test_lines_fit_the_terminal(recorder: Recorder) -> None:
    assert too_long(recorder) == []
