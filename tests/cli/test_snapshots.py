"""What every command prints, as text on a terminal of 80 columns and as JSON.

The commands run one after the other on a few small tables, in one Spark session; the snapshots are
compared command by command. See `tests/cli/snapshot_files.py`.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delvec.cli import main
from delvec.vector import Bitmap, pack
from tests.cli.snapshot_files import Recorder, compare
from tests.spark.delta.readers import INTERPRETED, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NAMES = [name for name in main.list_commands(click.Context(main)) if name != "demo"]
ICEBERG = "sqlite.printed.orders"
CONVERTED = "sqlite.printed.converted"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder whose path is short and always as long: lines break in the same places."""
    made = Path(tempfile.mkdtemp(prefix="lake-", dir="/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def recorder(spark: SparkSession, folder: Path) -> Recorder:
    found = Recorder(folder)
    with settings_of(spark, INTERPRETED):
        write_sources(folder)
        without_tables(found)
        delta_rows(found)
        delta_looks(found)
        delta_maintenance(found)
        conversion(spark, found)
        iceberg(spark, found)
    return found


def write_sources(folder: Path) -> None:
    """Rows to be written, and a file of vectors."""
    (folder / "new.csv").write_text("id,note,day\n" + "".join(f"{i},n{i},1\n" for i in range(10)))
    (folder / "more.csv").write_text("id,note,day\n9,changed,1\n10,added,2\n")
    (folder / "plain").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), folder / "plain" / "part.parquet")
    [vectors] = pack([Bitmap([0, 9]), Bitmap(range(1000))])
    (folder / "dv.bin").write_bytes(vectors.data)


def both(recorder: Recorder, *arguments: str) -> None:
    """As text and as JSON, for what changes nothing."""
    recorder.run(*arguments)
    recorder.run(*arguments, "--json")


def tried(recorder: Recorder, *arguments: str) -> None:
    """A dry run as text, then in earnest as JSON."""
    recorder.run(*arguments, "--dry-run")
    recorder.run(*arguments, "--json")


def without_tables(recorder: Recorder) -> None:
    both(recorder, "inspect", f"{recorder.folder}/dv.bin")
    recorder.run("completion", "bash")
    recorder.run("completion", "fish", "--json")


def delta_rows(recorder: Recorder) -> None:
    table, new = f"{recorder.folder}/orders", f"{recorder.folder}/new.csv"
    more = f"{recorder.folder}/more.csv"
    feed = ("--property", "delta.enableChangeDataFeed=true")
    columns = ("--schema", "id long not null, note string, day int", "--partition-by", "day")
    tried(recorder, "create", table, *columns, *feed)
    tried(recorder, "append", table, "--source", new)
    tried(recorder, "delete", table, "--where", "id < 3")
    tried(recorder, "update", table, "--set", "note = 'x'", "--where", "id = 5")
    tried(recorder, "merge", table, "--source", more, "--on", "t.id = s.id", "--upsert")
    tried(recorder, "overwrite", table, "--source", more, "--where", "id >= 9")
    changed = ("--start-version", "2", "--end-version", "3")
    both(recorder, "changes", table, *changed)


def delta_looks(recorder: Recorder) -> None:
    table = f"{recorder.folder}/orders"
    both(recorder, "detail", table)
    both(recorder, "schema", table)
    both(recorder, "properties", table)
    tried(recorder, "properties", table, "--set", "delta.logRetentionDuration=interval 60 days")
    both(recorder, "history", table)
    both(recorder, "files", table)
    both(recorder, "check", table)
    both(recorder, "traces", table, "--where", "note = 'n1'")
    both(recorder, "traces", table, "--where", "id = 77")


def delta_maintenance(recorder: Recorder) -> None:
    table = f"{recorder.folder}/orders"
    tried(recorder, "clone", table, f"{recorder.folder}/clone")
    tried(recorder, "recompute-statistics", table)
    recorder.run("generate-manifest", table)
    tried(recorder, "optimize", table, "--max-deleted-ratio", "1")
    tried(recorder, "purge", table)
    tried(recorder, "generate-manifest", table)
    tried(recorder, "checkpoint", table)
    tried(recorder, "vacuum", table, "--retention-hours", "0", "--force")
    tried(recorder, "clean-log", table)
    recorder.run("restore", table, "--version", "2")
    tried(recorder, "restore", table, "--version", "7")
    tried(recorder, "downgrade", f"{recorder.folder}/clone")
    tried(recorder, "convert-to-delta", f"{recorder.folder}/plain")


def conversion(spark: SparkSession, recorder: Recorder) -> None:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS sqlite.printed")
    target = (f"{recorder.folder}/plain", CONVERTED)
    tried(recorder, "convert", *target, "--location", f"{recorder.folder}/converted")
    tried(recorder, "clean-target", CONVERTED, "--retain-last", "1")


def iceberg(spark: SparkSession, recorder: Recorder) -> None:
    spark.sql(
        f"CREATE TABLE {ICEBERG} (id BIGINT NOT NULL, note STRING) USING iceberg"
        f" LOCATION '{recorder.folder}/iceberg' TBLPROPERTIES ('format-version'='3')"
    )
    spark.sql(f"INSERT INTO {ICEBERG} SELECT id, CONCAT('n', id) FROM range(10)")
    changes = recorder.folder / "changes.csv"
    changes.write_text("id,note\n9,changed\n10,added\n")
    tried(recorder, "delete-keys", ICEBERG, "--key", "id", "--values", "1,2")
    tried(recorder, "upsert", ICEBERG, "--source", str(changes), "--key", "id")
    for command in ("detail", "schema", "check"):
        both(recorder, command, ICEBERG)
    recorder.run("properties", ICEBERG, "--json")
    tried(recorder, "consolidate", ICEBERG)
    tried(recorder, "index", ICEBERG, "--key", "id")
    tried(recorder, "resolve", ICEBERG)
    tried(recorder, "compact", ICEBERG, "--rewrite-option", "rewrite-all=true")
    recorder.run("detail", "sqlite.printed.nothing")


@pytest.mark.parametrize("name", NAMES)
def test_a_command_prints_what_its_snapshot_shows(recorder: Recorder, name: str) -> None:
    compare(name, recorder.of(name))


def test_lines_fit_the_terminal(recorder: Recorder) -> None:
    for name in NAMES:
        for printed in recorder.printed[name]:
            command, _, shown = printed.partition("\n")
            if "--json" not in command and "completion" not in command:
                assert max(map(len, shown.splitlines()), default=0) <= 80, printed
